"""Through the door: a source and a mapping become a validated log, or a report of everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.data.assemble import checked
from tidelog.data.core.columns import Columns
from tidelog.data.core.raw import RawLog
from tidelog.data.core.registry import examine, refusal
from tidelog.data.core.report import Report
from tidelog.data.log import Log
from tidelog.data.parsing.tables import from_table
from tidelog.data.sources import ARRAYS, ending_of, table_of
from tidelog.data.sources.d4rl import raw_d4rl
from tidelog.data.sources.npz import raw_npz
from tidelog.data.sources.ogbench import raw_ogbench
from tidelog.data.sources.reagent import raw_reagent
from tidelog.errors import ConfigError, LogError


def read_log(source: Any, columns: Columns | Mapping[str, Any] | str | Path) -> Log:
    """Read a table (a path or a Polars or pandas frame) through a mapping (an object, or a TOML or JSON file).

    Raises LogError with the report of every problem, ConfigError if the mapping itself is wrong.
    """
    return checked(_raw(source, _mapping(columns)))


def read_npz(path: str | Path) -> Log:
    """Read arrays named as in `Log.from_arrays` from an npz file; LogError with the report of every problem."""
    return checked(raw_npz(path))


def read_d4rl(path: str | Path) -> Log:
    """Read an HDF5 file in the layout of D4RL; LogError with the report of every problem."""
    return checked(raw_d4rl(path))


def read_ogbench(path: str | Path) -> Log:
    """Read an npz file in any of OGBench's three layouts; LogError with the report of every problem."""
    return checked(raw_ogbench(path))


def read_reagent(path: str | Path, missing: str = "mean+flag") -> Log:
    """Read ReAgent's JSON, one decision a line, plain, gzipped or bzip2; LogError with the report of every problem.

    `missing` ("error", "mean+flag" or "forward") says what becomes of features that a line lacks.
    """
    return checked(raw_reagent(path, missing))


def read_minari(source: Any) -> Log:
    """Read a Minari data set: its id, the path of its folder, or the object; LogError if it is not there or no log."""
    from tidelog.data.sources.minari import raw_minari

    return checked(raw_minari(source))


def read_file(path: str | Path) -> Log:
    """Read a file that needs no mapping, told by its ending and names; LogError with the report of every problem."""
    return checked(_raw_file(path))


def validate(source: Any, columns: Columns | Mapping[str, Any] | str | Path | None = None) -> Report:
    """Everything that is wrong or worth saying about a source; never raises on bad data.

    Without a mapping the source is a file that needs none, told by its ending, or else a Minari data set.
    """
    try:
        raw = _raw_file(source) if columns is None else _raw(source, _mapping(columns))
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
    wanted = [name for used in columns.used().values() for name in used]
    return from_table(table_of(source, wanted), columns)


def _raw_file(source: Any) -> RawLog:
    ending = ending_of(source, ARRAYS) if isinstance(source, str | Path) else None
    if ending is not None:
        return ARRAYS[ending](Path(source))
    from tidelog.data.sources.minari import raw_minari

    return raw_minari(source)


def _mapping(columns: Columns | Mapping[str, Any] | str | Path) -> Columns:
    if isinstance(columns, Columns):
        return columns
    return Columns.from_mapping(columns) if isinstance(columns, Mapping) else Columns.from_file(columns)
