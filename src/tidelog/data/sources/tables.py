"""Read a table: text, JSON, Parquet and Arrow files by their endings, and frames in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from tidelog.data.core.columns import USUAL_FORM, TextForm
from tidelog.data.core.registry import unreadable
from tidelog.data.parsing.tables import Table, first_error_line, unique
from tidelog.data.sources.file_bytes import FIX_MEMORY, PACKED, ending_of, refuse_large, refuse_wide
from tidelog.data.sources.json_objects import DOCUMENTS, read_document, read_lines, read_objects
from tidelog.data.sources.separated_text import SEPARATORS, read_csv, read_separated, read_tsv
from tidelog.data.validation.clusters import kind_of
from tidelog.errors import LogError, nearest
from tidelog.folders import MANIFEST
from tidelog.input_files import NotRegularError, check_regular, open_regular
from tidelog.memory import shortage

Reader: TypeAlias = Callable[[Path, Sequence[str] | None], Table]  # (path, column names or None for all) -> table
_NUMBER = 8  # bytes of memory of one cell
_ARROW_FILE = b"ARROW1"  # at the start of an Arrow file; a stream has no such mark


def one_table(source: Any, columns: Sequence[str] | None = None, form: TextForm = USUAL_FORM) -> Table:
    """Read a table from one path, a Polars frame or a pandas frame; LogError if it cannot be read.

    Without a header, the columns of separated text are `column_1`, `column_2`, ... With a separator, a file with an
    unknown ending is separated text.
    """
    if isinstance(source, pl.DataFrame | pl.LazyFrame):
        frame = source.collect() if isinstance(source, pl.LazyFrame) else source
        return Table.of(frame, "the frame")
    kind = type(source)
    if kind.__module__.split(".")[0] == "pandas" and kind.__name__ == "DataFrame":  # without importing pandas
        labels = [str(label) for label in source.columns]
        series = [_pandas_series(label, source.iloc[:, place]) for place, label in enumerate(unique(labels))]
        return Table.of(pl.DataFrame(series), "the frame", labels)
    if not isinstance(source, str | Path):
        raise _not_a_table(
            repr(kind.__name__), "neither a path nor a frame", "pass a path, or a Polars or pandas frame"
        )
    path = Path(source)
    ending = ending_of(path, SOURCES)
    try:
        if (path / MANIFEST).is_file():
            raise _not_a_table(str(path), "a saved log, which needs no mapping", "use tidelog.open_log")
        if ending is None and form.separator is None:
            unknown = "".join(path.suffixes[-2:]) or path.name
            known = f"{nearest(unknown, SOURCES)}; tidelog.read_npz and read_minari read arrays"
            fix = f"for text, set separator in the mapping; {known}"
            raise _not_a_table(str(path), f"an unknown file ending: '{unknown}'", fix)
        if not os.path.exists(path):
            remote = re.match(r"([a-z0-9]{2,}):/", str(source))
            fix = f"download it first: paths of {remote[1]}: are not read" if remote else "check the path"
            raise _not_a_table(str(source), "the file does not exist", fix)
        problem = shortage(check_regular(path).st_size)
        if problem is not None:
            raise _not_a_table(str(path), problem, FIX_MEMORY)
        reader = read_csv if ending is None else SOURCES[ending]
        refused = _unfit_setting(form, reader)
        if refused is not None:
            setting, found = refused
            raise _not_a_table(str(path), found, f"drop {setting} from the mapping")
        if form.explode is not None:
            table = read_objects(path, explode=form.explode, document=reader is read_document)
        else:
            usual = SEPARATORS.get(ending or "", ",")
            table = reader(path, columns) if form == USUAL_FORM else read_separated(path, usual, form)
    except NotRegularError as error:
        raise _not_a_table(str(path), str(error), "name a regular file") from error
    except (OSError, EOFError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _not_a_table(str(path), first_error_line(error), "export or copy the file again") from error
    return table


def _unfit_setting(form: TextForm, reader: Reader) -> tuple[str, str] | None:
    """The first setting that a file of this kind cannot have, and what was found; None if all fit."""
    is_text = reader in (read_csv, read_tsv)
    settings = (
        ("header", not form.header and not is_text, "header = false for a file with names"),
        ("separator", form.separator is not None and not is_text, "a separator for a file that is no text"),
        ("decimal", form.decimal != "." and not is_text, "a decimal comma for a file that is no text"),
        ("explode", form.explode is not None and reader not in _OF_JSON, "explode for a file that is not JSON"),
    )
    return next(((setting, found) for setting, unfit, found in settings if unfit), None)


def _not_a_table(source: str, found: str, fix: str) -> LogError:
    return unreadable(source, found, f"a table: {ENDINGS_TEXT}, or a frame", fix)


def _pandas_series(label: str, column: Any) -> pl.Series:
    """The same column in Polars; missing values of any pandas type become null."""
    if str(column.dtype).startswith("datetime64"):
        naive = column if column.dt.tz is None else column.dt.tz_convert("UTC").dt.tz_localize(None)
        return pl.Series(label, naive.to_numpy().astype("datetime64[us]"))
    if column.dtype.kind in "biuf" and not hasattr(column.dtype, "na_value"):
        return pl.Series(label, column.to_numpy())
    empty = column.isna().to_numpy()
    values = [None if absent else value for value, absent in zip(column.tolist(), empty, strict=True)]
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1 and not kinds <= {int, float, bool}:
        values = [None if value is None else str(value) for value in values]
    return pl.Series(label, values, strict=False)


def read_parquet(path: Path, columns: Sequence[str] | None) -> Table:
    """Read the named columns of a Parquet file, one at a time."""
    return _selected(pl.scan_parquet(path, low_memory=True), path, columns)


def read_arrow(path: Path, columns: Sequence[str] | None) -> Table:
    """Read the named columns of an Arrow file (Feather) or stream."""
    with open_regular(path) as stream:
        whole = stream.read(len(_ARROW_FILE)) == _ARROW_FILE
    return _selected(pl.scan_ipc(path) if whole else pl.read_ipc_stream(path).lazy(), path, columns)


def _selected(frame: pl.LazyFrame, path: Path, columns: Sequence[str] | None) -> Table:
    """The named columns, and those named like clusters, or else the first column; LogError if they do not fit."""
    present = frame.collect_schema().names()
    refuse_wide(path, len(present))
    named = set(present if columns is None else columns)
    used = [name for name in present if name in named or kind_of(name) is not None] or present[:1]
    rows = int(frame.select(pl.len()).collect().item())
    refuse_large(path, _NUMBER * rows * len(used), "a table that fits into memory")
    return Table.of(frame.select(used), str(path), present)


_OF_TEXT: dict[str, Reader] = {
    ".csv": read_csv, ".tsv": read_tsv, ".jsonl": read_lines, ".ndjson": read_lines, ".dsjson": read_lines,
}  # fmt: skip
_OF_JSON = (read_lines, read_document)
SOURCES: dict[str, Reader] = {
    **_OF_TEXT,
    **{f"{ending}{packed}": reader for ending, reader in _OF_TEXT.items() for packed in PACKED},
    **dict.fromkeys(DOCUMENTS, read_document),
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
    ".ipc": read_arrow,
}
TEXT_ENDINGS = tuple(SEPARATORS)
ENDINGS_TEXT = (
    f"{', '.join([*_OF_TEXT, DOCUMENTS[0]])} (each also {', '.join(PACKED)}), "
    f"{', '.join(ending for ending in SOURCES if ending.count('.') == 1 and ending not in (*_OF_TEXT, DOCUMENTS[0]))}"
)
