"""The registry of table formats, and frames in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from tidelog.data.core.registry import refusal
from tidelog.data.parsing.tables import Table, said
from tidelog.data.sources.frames import is_pandas, polars_of
from tidelog.data.sources.lines import read_lines
from tidelog.data.sources.parquet_guard import refuse_contradictions
from tidelog.data.sources.text import read_separated
from tidelog.data.validation.clusters import kind_of
from tidelog.errors import LogError, nearest
from tidelog.folders import MANIFEST

Reader: TypeAlias = Callable[[Path, Sequence[str] | None], Table]  # (path, column names or None for all) -> table


def read_csv(path: Path, wanted: Sequence[str] | None) -> Table:
    """Read comma-separated text, gzipped or not."""
    return read_separated(path, ",")


def read_tsv(path: Path, wanted: Sequence[str] | None) -> Table:
    """Read tab-separated text, gzipped or not."""
    return read_separated(path, "\t")


def read_parquet(path: Path, wanted: Sequence[str] | None) -> Table:
    """Read the named columns of a Parquet file, one at a time."""
    refuse_contradictions(path)
    return _some(pl.scan_parquet(path, low_memory=True), path, wanted)


def read_arrow(path: Path, wanted: Sequence[str] | None) -> Table:
    """Read the named columns of an Arrow file (Feather) or stream."""
    with path.open("rb") as stream:
        whole = stream.read(len(_ARROW)) == _ARROW
    frame = pl.scan_ipc(path) if whole else pl.read_ipc_stream(path).lazy()
    return _some(frame, path, wanted)


def _some(frame: pl.LazyFrame, path: Path, wanted: Sequence[str] | None) -> Table:
    columns = frame.collect_schema().names()
    used = columns if wanted is None else [name for name in columns if name in set(wanted) or kind_of(name) is not None]
    return Table.of(frame.select(used or columns[:1]), str(path), columns)


_ARROW = b"ARROW1"
SOURCES: dict[str, Reader] = {
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".tsv": read_tsv,
    ".tsv.gz": read_tsv,
    ".parquet": read_parquet,
    ".jsonl": read_lines,
    ".jsonl.gz": read_lines,
    ".ndjson": read_lines,
    ".ndjson.gz": read_lines,
    ".arrow": read_arrow,
    ".feather": read_arrow,
    ".ipc": read_arrow,
}


def table_of(source: Any, wanted: Sequence[str] | None = None) -> Table:
    """Read a table from a path, a Polars frame or a pandas frame; LogError if it cannot be read."""
    if isinstance(source, pl.DataFrame | pl.LazyFrame):
        frame = source.collect() if isinstance(source, pl.LazyFrame) else source
        return Table.of(frame, "the frame")
    if is_pandas(source):
        return Table.of(polars_of(source), "the frame", [str(label) for label in source.columns])
    if not isinstance(source, str | Path):
        raise _refused(
            repr(type(source).__name__), "neither a path nor a frame", "pass a path, or a Polars or pandas frame"
        )
    return _from_path(Path(source), wanted)


def _from_path(path: Path, wanted: Sequence[str] | None) -> Table:
    endings = [ending for ending in SOURCES if path.name.lower().endswith(ending)]
    try:
        _refuse_path(path, endings)
        return SOURCES[max(endings, key=len)](path, wanted)
    except (OSError, EOFError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _refused(str(path), said(error), "export or copy the file again") from error


def _refuse_path(path: Path, endings: Sequence[str]) -> None:
    if (path / MANIFEST).is_file():
        raise _refused(str(path), "a saved log, which needs no mapping", "use tidelog.open_log")
    if not endings:
        ending = "".join(path.suffixes[-2:]) or path.name
        advice = f"{nearest(ending, SOURCES)}; tidelog.read_npz and read_minari read arrays"
        raise _refused(str(path), f"an unknown file ending: '{ending}'", advice)
    if not path.is_file():
        raise _refused(str(path), "the file does not exist", "check the path")


def _refused(source: str, found: str, advice: str) -> LogError:
    report = refusal(source, "unreadable file", found, f"a table: {', '.join(SOURCES)}, or a frame", advice)
    return LogError(report.text(), report)
