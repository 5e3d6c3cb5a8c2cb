"""Read any source into a validated log, or into a report of every problem; convert a log to another format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tidelog.data.core.columns import Columns
from tidelog.data.core.raw import RawLog
from tidelog.data.core.registry import examine, refusal
from tidelog.data.core.report import Report
from tidelog.data.io.export import save_npz, to_minari, to_parquet
from tidelog.data.io.storage import saved_columns
from tidelog.data.log import Log
from tidelog.data.parsing.tables import from_table
from tidelog.data.sources import ARRAYS, SOURCES, ending_of, table_of
from tidelog.data.sources.arrays import raw_d4rl, raw_npz, raw_ogbench
from tidelog.data.sources.reagent import raw_reagent
from tidelog.errors import ConfigError, LogError, nearest
from tidelog.folders import MANIFEST

ADVICE = (
    f"a table ({', '.join(SOURCES)}) with a mapping, a saved log, a file that needs no mapping ({', '.join(ARRAYS)}), "
    "or the id of a Minari data set"
)


def read_log(source: Any, columns: Columns | Mapping[str, Any] | str | Path) -> Log:
    """Read a table (a path or a Polars or pandas frame) through a mapping (an object, or a TOML or JSON file).

    Raises LogError with the report of every problem, ConfigError if the mapping itself is wrong.
    """
    mapping = Columns.of(columns)
    return _from_file(Log.from_raw(_raw(source, mapping)), source, mapping)


def _from_file(log: Log, source: Any, mapping: Columns | None = None) -> Log:
    """The log with its origin, so that a run over it, or over a part of it, is resumed without passing it again."""
    if not isinstance(source, str | Path):
        return log
    path = Path(source)
    absolute = str(path.absolute()) if path.exists() else str(source)
    return replace(log, origin={"source": absolute, "columns": None if mapping is None else asdict(mapping)})


def read_npz(path: str | Path) -> Log:
    """Read arrays named as in `Log.from_arrays` from an npz file; LogError with the report of every problem."""
    return _from_file(Log.from_raw(raw_npz(path)), path)


def read_d4rl(path: str | Path) -> Log:
    """Read an HDF5 file in the layout of D4RL; LogError with the report of every problem."""
    return _from_file(Log.from_raw(raw_d4rl(path)), path)


def read_ogbench(path: str | Path) -> Log:
    """Read an npz file in any of OGBench's three layouts; LogError with the report of every problem."""
    return _from_file(Log.from_raw(raw_ogbench(path)), path)


def read_reagent(path: str | Path, missing: str = "mean+flag") -> Log:
    """Read ReAgent's JSON, one decision per line, plain, gzipped or bzip2; LogError with the report of every problem.

    `missing` ("error", "mean+flag" or "forward") is the rule for features that a line does not have.
    """
    return Log.from_raw(raw_reagent(path, missing))


def read_minari(source: Any) -> Log:
    """Read a Minari data set: its id, its folder, or the object; LogError if it does not exist or is invalid."""
    from tidelog.data.sources.minari import raw_minari

    return Log.from_raw(raw_minari(source))


def read_file(path: str | Path) -> Log:
    """Read a file that needs no mapping, by its ending and contents; LogError with the report of every problem."""
    return Log.from_raw(_raw_file(path))


def open_log(path: str | Path, memory_map: bool = False) -> Log:
    """Read a folder of `Log.save`; LogError names the file that is foreign, truncated or changed.

    `memory_map=True` leaves columns on disk and checks sizes only, not checksums.
    """
    return Log(**saved_columns(path, memory_map))


def is_table(source: str | Path) -> bool:
    """Whether a source is a file that needs a mapping, by its ending."""
    return ending_of(source, SOURCES) is not None


def read_any(
    source: str | Path, columns: Columns | Mapping[str, Any] | str | Path | None = None, *, memory_map: bool = False
) -> Log:
    """Read any source: a table (with a mapping), a saved log, a file of arrays, or a Minari data set.

    `memory_map` leaves the columns of a saved log on disk. Raises LogError with the report if the log is not usable,
    ConfigError if a mapping is missing or not needed.
    """
    path = Path(source)
    mapping = None
    if memory_map:
        if not (path / MANIFEST).exists():
            raise ConfigError(
                f"{source} is not a saved log: only saved logs can stay on disk. fix: use `tidelog data convert`"
            )
        return open_log(path, memory_map=True)
    if is_table(source):
        if columns is None:
            raise ConfigError(
                f"{source} is a table without a mapping of its columns. fix: `tidelog data inspect {source}` "
                "proposes a mapping; write it to a file and pass --columns FILE"
            )
        mapping = Columns.of(columns)
        log = read_log(path, mapping)
    elif columns is not None:
        raise ConfigError(f"{source} is not a table: only tables use a mapping. fix: drop the mapping")
    elif (path / MANIFEST).exists():
        log = open_log(path)
    elif ending_of(path, ARRAYS) is not None:
        log = read_file(path)
    elif path.exists() and not path.is_dir():
        raise LogError(f"{source} has the unknown ending '{path.suffix}': expected {ADVICE}")
    else:
        log = read_minari(str(source))
    return _from_file(log, source, mapping)


def validate(source: Any, columns: Columns | Mapping[str, Any] | str | Path | None = None) -> Report:
    """Validate a source and return the report; does not raise for bad data.

    Without a mapping, the source is a file that needs none (by its ending) or a Minari data set.
    """
    try:
        raw = _raw_file(source) if columns is None else _raw(source, Columns.of(columns))
    except ConfigError as error:
        unknown = "unknown key" in str(error)
        name = "unknown mapping key" if unknown else "bad mapping"
        return refusal(
            str(source) if columns is None else str(columns),
            name,
            str(error),
            "a mapping from the log's columns",
            "correct the mapping",
        )
    except LogError as error:
        report: Report = error.report
        return report
    return examine(raw)


def _raw(source: Any, columns: Columns) -> RawLog:
    names = [name for used in columns.used().values() for name in used]
    return from_table(table_of(source, names), columns)


def _raw_file(source: Any) -> RawLog:
    ending = ending_of(source, ARRAYS) if isinstance(source, str | Path) else None
    if ending is not None:
        return ARRAYS[ending](Path(source))
    from tidelog.data.sources.minari import raw_minari

    return raw_minari(source)


def convert(
    source: str | Path,
    target: str | Path,
    columns: Columns | Mapping[str, Any] | str | Path | None = None,
    overwrite: bool = False,
) -> str:
    """Read a log from any source and write it to `target`; return a description of the result.

    `target` is a `.parquet` table (plus its mapping), a `.tidelog` folder, an `.npz` file, or `minari:ID`.
    """
    kind = "minari:" if str(target).startswith("minari:") else Path(target).suffix.lower()
    if kind not in TARGETS:
        raise ConfigError(f"target '{target}' has an unknown format: {nearest(kind, TARGETS)}")
    return TARGETS[kind](read_any(source, columns), str(target), overwrite)


def _to_parquet(log: Log, target: str, overwrite: bool) -> str:
    return f"{target} and its mapping {to_parquet(log, target, overwrite)}"


def _to_folder(log: Log, target: str, overwrite: bool) -> str:
    log.save(target, overwrite)
    return target


def _to_npz(log: Log, target: str, overwrite: bool) -> str:
    save_npz(log, target, overwrite)
    return target


def _to_minari(log: Log, target: str, overwrite: bool) -> str:
    name = target.removeprefix("minari:")
    to_minari(log, name, overwrite)
    return f"the Minari data set {name}"


TARGETS: dict[str, Callable[[Log, str, bool], str]] = {
    ".parquet": _to_parquet,
    ".tidelog": _to_folder,
    ".npz": _to_npz,
    "minari:": _to_minari,
}
