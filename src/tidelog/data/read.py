"""Read any source into a validated log, or into a report of every problem; convert a log to another format."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tidelog._files import MANIFEST
from tidelog._text import count_of
from tidelog.data.columns import Columns, UnknownKeyError
from tidelog.data.export import save_npz, to_minari, to_parquet
from tidelog.data.formats import raw_d4rl, raw_npz, raw_ogbench, raw_reagent, raw_robomimic
from tidelog.data.log import Log
from tidelog.data.parse import from_table
from tidelog.data.raw import RawLog, Report, Values, examine, refusal, unreadable
from tidelog.data.sources import (
    ARRAYS,
    ENDINGS_TEXT,
    ending_of,
    files_of,
    is_table_file,
    recorded_source,
    source_text,
    table_of,
)
from tidelog.data.storage import SHARDED, saved_columns, sharded_columns
from tidelog.errors import ConfigError, LogError, nearest

Source: TypeAlias = str | Path | Sequence[str | Path]  # a file, a folder of tables, a glob, or several of these
ADVICE = (
    f"a table ({ENDINGS_TEXT}) with a mapping, a saved log, a file that needs no mapping ({', '.join(ARRAYS)}), "
    "or the id of a Minari data set"
)


def read_log(source: Any, columns: Columns | Mapping[str, Any] | str | Path) -> Log:
    """Read a table (a path or a Polars or pandas frame) through a mapping (an object, or a TOML or JSON file).

    A folder of tables, a glob such as `logs/2026-*/part-*.parquet`, or a list of paths, folders and globs is one log of
    several files, which are read in the order of their names. Raises LogError with the report of every problem,
    ConfigError if the mapping itself is wrong.

    Example:
        >>> table = pl.DataFrame({"patient": [7, 7, 8], "severity": [3, 2, 4], "dose": [0, 1, 0], "cured": [0, 1, 0]})
        >>> table.write_csv("visits.csv")
        >>> columns = tl.Columns(
        ...     episode="patient", observation=["severity"], action="dose", reward="cured", terminated=True
        ... )
        >>> tl.read_log("visits.csv", columns)
        Log(3 steps, 2 episodes, observation {numeric: Vector}, action Discrete)
    """
    mapping = Columns.of(columns)
    return replace(Log.from_raw(_raw(source, mapping)), origin=_origin(source, mapping))


def read_npz(path: str | Path) -> Log:
    """Read arrays named as in `Log.from_arrays` from an npz file; LogError with the report of every problem.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> log.to_npz("visits.npz")
        >>> tl.read_npz("visits.npz")
        Log(769 steps, 200 episodes, observation {numeric: Vector, categorical: Codes}, action Discrete)
    """
    return replace(Log.from_raw(raw_npz(path)), origin=_origin(path, None))


def read_d4rl(path: str | Path) -> Log:
    """Read an HDF5 or npz file in the layout of D4RL; LogError with the report of every problem.

    Example:
        >>> import h5py
        >>> with h5py.File("walk.hdf5", "w") as file:
        ...     file["observations"], file["actions"] = np.zeros((4, 3)), np.eye(4)[:, :2]
        ...     file["rewards"], file["terminals"] = np.ones(4), [False, True, False, True]
        >>> tl.read_d4rl("walk.hdf5")
        Log(4 steps, 2 episodes, observation {observation: Vector}, action Continuous)
    """
    return replace(Log.from_raw(raw_d4rl(path)), origin=_origin(path, None))


def read_ogbench(path: str | Path) -> Log:
    """Read an npz file in any of OGBench's three layouts; LogError with the report of every problem.

    Example:
        >>> ends = np.array([0.0, 0.0, 1.0, 0.0, 1.0])  # T + 1 rows for T decisions of an episode
        >>> np.savez("walk.npz", observations=np.zeros((5, 3)), actions=np.eye(5)[:, :2], terminals=ends)
        >>> tl.read_ogbench("walk.npz")
        Log(3 steps, 2 episodes, observation {observation: Vector}, action Continuous)
    """
    return replace(Log.from_raw(raw_ogbench(path)), origin=_origin(path, None))


def read_robomimic(path: str | Path) -> Log:
    """Read robomimic's demonstrations (`data/demo_N`), or such groups at the root of an HDF5 file.

    LogError with the report of every problem.

    Example:
        >>> import h5py
        >>> with h5py.File("lift.hdf5", "w") as file:
        ...     for number in range(2):
        ...         demonstration = file.create_group(f"data/demo_{number}")
        ...         demonstration["obs/arm"], demonstration["actions"] = np.zeros((3, 4)), np.eye(3)[:, :2]
        ...         demonstration["rewards"], demonstration["dones"] = np.ones(3), [0, 0, 1]
        >>> tl.read_robomimic("lift.hdf5")
        Log(6 steps, 2 episodes, observation {arm: Vector}, action Continuous)
    """
    return replace(Log.from_raw(raw_robomimic(Path(path))), origin=_origin(path, None))


def read_reagent(path: str | Path, missing: str = "mean+flag") -> Log:
    """Read ReAgent's JSON, one decision per line, plain, gzipped or bzip2; LogError with the report of every problem.

    `missing` ("error", "mean+flag" or "forward") is the rule for features that a line does not have.

    Example:
        >>> line = '{"mdp_id": "7", "sequence_number": 0, "state_features": {"1": 3.0}, "action": "low", "reward": 1.0}'
        >>> with open("log.json", "w") as file:
        ...     print(line, file=file)
        >>> tl.read_reagent("log.json")
        Log(1 steps, 1 episodes, observation {numeric: Vector}, action Discrete)
    """
    return Log.from_raw(raw_reagent(path, missing))


def read_minari(source: Any) -> Log:
    """Read a Minari data set: its id, its folder, or the object; LogError if it does not exist or is invalid.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> log.to_minari("clinic/visits-v0")
        >>> len(tl.read_minari("clinic/visits-v0").starts) - 1
        200
    """
    from tidelog.data.formats import raw_minari

    return Log.from_raw(raw_minari(source))


def read_file(path: str | Path) -> Log:
    """Read a file that needs no mapping, by its ending and contents; LogError with the report of every problem."""
    return Log.from_raw(_raw_file(path))


def open_log(path: str | Path, memory_map: bool = False) -> Log:
    """Read a folder of `Log.save`; LogError names the file that is foreign, truncated or changed.

    `memory_map=True` leaves columns on disk and checks sizes only, not checksums. Of a log in shards, columns with one
    number a row are read into memory then.

    Example:
        >>> tl.collect("treatment", episodes=200, seed=0).save("visits.tidelog")
        >>> log = tl.open_log("visits.tidelog", memory_map=True)
        >>> type(log.action).__name__
        'memmap'
    """
    manifest = Path(path) / MANIFEST
    sharded = manifest.is_file() and SHARDED.is_named_in(SHARDED.manifest_text(Path(path)))
    return Log(**(sharded_columns if sharded else saved_columns)(path, memory_map))


def rows_in_source(log: Log) -> tuple[Values, int] | None:
    """The row of the source of each step [N], from 0, and the number of rows there; None if no source is known.

    The source is read again; LogError if it is no longer what the log was read from.
    """
    if log.origin is None:
        return None
    source, columns = log.origin["source"], log.origin.get("columns")
    if isinstance(source, str | Path) and (Path(source) / MANIFEST).exists():
        whole = open_log(source, memory_map=True)
        rows: Values = np.arange(whole.steps)
        left_out = 0
    else:
        raw = _raw_file(source) if columns is None else _raw(source, Columns.of(columns))
        whole, rows = Log.from_raw(raw), raw.source_rows[raw.order.rows]
        left_out = len(raw.left_out)
    part = replace(whole, extra={"row": rows})
    for one in log.origin.get("parts", ()):
        part = part.part_again(one)
    if replace(part, extra=log.extra).fingerprint() != log.fingerprint():
        raise LogError(
            f"{source_text(log.origin)} has changed since the log was read, which needs its order of rows",
            fix="read the log again",
        )
    return part.extra["row"], whole.steps + left_out


def is_table(source: Source) -> bool:
    """Whether a source needs a mapping: a table by its ending, or several tables."""
    several = files_of(source, is_table_file) is not None
    return several or (isinstance(source, str | Path) and is_table_file(source))


def read_any(
    source: Source, columns: Columns | Mapping[str, Any] | str | Path | None = None, *, memory_map: bool = False
) -> Log:
    """Read any source: one or several tables (with a mapping), a saved log, a file of arrays, or a Minari data set.

    `memory_map` leaves the columns of a saved log on disk. Raises LogError with the report if the log is not usable,
    ConfigError if a mapping is missing or not needed.
    """
    if memory_map:
        if not isinstance(source, str | Path) or not (Path(source) / MANIFEST).exists():
            raise ConfigError(
                f"{_shown(source)} is not a saved log: only saved logs can stay on disk",
                fix=(
                    f"save it with `tidelog data convert --data {_quoted(source)} --out NAME.tidelog`, and "
                    "--columns FILE for a table"
                ),
            )
        return open_log(source, memory_map=True)
    if is_table(source):
        if columns is None:
            raise ConfigError(
                f"{_shown(source)} is a table without a mapping of its columns",
                fix=(
                    f"`tidelog data inspect --data {_quoted(source)}` proposes a mapping; write it to a file and "
                    "pass --columns FILE"
                ),
            )
        return read_log(source, columns)
    if not isinstance(source, str | Path):
        raise ConfigError(f"{source!r}", "a path, or a list of paths", "name files")
    path = Path(source)
    if columns is not None:
        raise ConfigError(f"{source} is not a table: only tables use a mapping", fix="drop the mapping")
    elif (path / MANIFEST).exists():
        log = open_log(path)
    elif ending_of(path, ARRAYS) is not None:
        log = read_file(path)
    elif path.exists() and not path.is_dir():
        raise LogError(
            f"{source} has the unknown ending '{path.suffix}'",
            ADVICE,
            "give a table of text the ending .csv, or set `separator` in a mapping",
        )
    else:
        log = read_minari(str(source))
    return replace(log, origin=_origin(source, None))


def _shown(source: Source) -> str:
    return str(source) if isinstance(source, str | Path) else " ".join(map(str, source))


def _quoted(source: Source) -> str:
    return shlex.join([str(source)] if isinstance(source, str | Path) else map(str, source))


def _origin(source: Any, mapping: Columns | None) -> dict[str, Any] | None:
    """Where a log is read again: its files, and its mapping; None for frames."""
    recorded = recorded_source(source, is_table_file)
    return None if recorded is None else {"source": recorded, "columns": None if mapping is None else asdict(mapping)}


def validate(source: Any, columns: Columns | Mapping[str, Any] | str | Path | None = None) -> Report:
    """Validate a source and return the report; does not raise for bad data.

    Without a mapping, the source is a file that needs none (by its ending) or a Minari data set.

    Example:
        >>> table = pl.DataFrame({"patient": [7, 7], "severity": [3, None], "dose": [0, 1], "cured": [0, 1]})
        >>> columns = tl.Columns(
        ...     episode="patient", observation=["severity"], action="dose", reward="cured", terminated=True
        ... )
        >>> report = tl.validate(table, columns)
        >>> print(report.text().splitlines()[1])
        error: missing value in 'severity', 1 row: 2
    """
    try:
        raw = _raw_file(source) if columns is None else _raw(source, Columns.of(columns))
    except ConfigError as error:
        name = "unknown mapping key" if isinstance(error, UnknownKeyError) else "bad mapping"
        return refusal(
            _shown(source) if columns is None else str(columns),
            name,
            error.found,
            error.expected or "a mapping from the log's columns",
            error.fix or "correct the mapping",
        )
    except LogError as error:
        report: Report = error.report
        return report
    return examine(raw)


def _raw(source: Any, columns: Columns) -> RawLog:
    names = [name for used in columns.used().values() for name in used]
    return from_table(table_of(source, names, columns.text_form), columns)


def _raw_file(source: Any) -> RawLog:
    if isinstance(source, list | tuple):
        raise unreadable(_shown(source), "several files without a mapping", "tables with a mapping", "pass columns=")
    ending = ending_of(source, ARRAYS) if isinstance(source, str | Path) else None
    if ending is not None:
        return ARRAYS[ending](Path(source))
    from tidelog.data.formats import raw_minari

    return raw_minari(source)


def convert(
    source: Source,
    target: str | Path,
    columns: Columns | Mapping[str, Any] | str | Path | None = None,
    overwrite: bool = False,
    shards: int | None = None,
) -> str:
    """Read a log from any source and write it to `target`; return a description of the result.

    `target` is a `.parquet` table (plus its mapping), a `.tidelog` folder, an `.npz` file, or `minari:ID`; `shards`
    divides a folder into so many saved logs.
    """
    kind = "minari:" if str(target).startswith("minari:") else Path(target).suffix.lower()
    if kind not in TARGETS:
        raise ConfigError(
            f"target '{target}' has an unknown format: {nearest(kind, TARGETS)}",
            fix=f"name one output, such as {Path(target).name or 'log'}.parquet",
        )
    if shards is None:
        return TARGETS[kind](read_any(source, columns), str(target), overwrite)
    if kind != SHARDED_TARGET:
        raise ConfigError(f"target '{target}' has no shards", fix=f"name a {SHARDED_TARGET} folder, or drop shards")
    read_any(source, columns).save(target, overwrite, shards)
    return f"{target} with {count_of(shards, 'shard')}"


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


SHARDED_TARGET = ".tidelog"
TARGETS: dict[str, Callable[[Log, str, bool], str]] = {
    ".parquet": _to_parquet,
    SHARDED_TARGET: _to_folder,
    ".npz": _to_npz,
    "minari:": _to_minari,
}
