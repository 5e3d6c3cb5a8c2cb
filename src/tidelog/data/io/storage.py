"""A log saved as a folder: one `.npy` file per column and a manifest with sizes and checksums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tidelog.data.core.columns import declared_atoms, declared_unit
from tidelog.data.core.declared import DeclaredPropensities
from tidelog.data.core.log_columns import OPTIONAL, PLAIN, LogColumns
from tidelog.data.core.npy import read_array, read_header
from tidelog.data.core.order import Values
from tidelog.data.core.registry import unreadable
from tidelog.data.core.report import Report
from tidelog.data.io.saved_checks import check_contents, check_structure
from tidelog.disk import stream_to
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.folders import MANIFEST, Kind
from tidelog.input_files import open_regular
from tidelog.memory import shortage
from tidelog.schema import typed
from tidelog.types import Spec

LOG, SHARDED = Kind("log", 2, LogError), Kind("sharded log", 1, LogError)
_EXTRA = "extra/"
_FOLDER, _FIX = "a folder that Log.save wrote", "copy the folder again from the original, or save the log again"


def save(log: LogColumns, path: Path, overwrite: bool = False) -> None:
    """Write a log as a whole or not at all; LogError if the path exists and may not be overwritten."""
    refuse_target(path, overwrite, LOG, SHARDED)
    files: dict[str, Callable[[Path], None]] = {}
    entries = []
    for place, (name, values) in enumerate(log.columns().items()):
        safe = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)[:60]
        file = f"{place:03d}-{safe}.npy"
        files[file] = partial(write_array, values)
        entries.append({"column": name, "file": file, "dtype": values.dtype.str, "shape": list(values.shape)})
    counts = {"steps": log.steps, "episodes": len(log.episode_ids)}
    body = {"counts": counts, "spec": log.spec.to_json(), "columns": entries, "report": log.report.to_json()}
    LOG.write(path, files, {**body, **described(log)})


def described(log: LogColumns) -> dict[str, Any]:
    """The fields of a manifest that only some logs have: the unit of rewards, atoms, and declared propensities."""
    some: dict[str, Any] = {} if log.reward_unit is None else {"reward_unit": log.reward_unit}
    some |= {"atoms": list(log.atoms)} if log.atoms else {}
    return some | ({} if log.declared is None else {"declared": log.declared.to_json()})


def saved_columns(path: str | Path, memory_map: bool = False, verify: bool | None = None) -> dict[str, Any]:
    """Read the fields of a log from a folder of `Log.save`; LogError names a foreign, truncated or changed file.

    `memory_map=True` leaves columns on disk and checks sizes only, not checksums and contents, unless `verify`.
    """
    verify = not memory_map if verify is None else verify
    folder = Path(path)
    try:
        manifest = LOG.manifest(folder)
        about = typed(manifest, LogManifest, MANIFEST, LogError)
        columns = read_columns(LOG, folder, about.columns, manifest, memory_map, verify)
        spec, report = Spec.from_json(about.spec), Report.from_json(about.report)
        unit, atoms = declared_unit(about.reward_unit), declared_atoms(about.atoms)
        plain = {name: columns.get(name) if name in OPTIONAL else columns[name] for name in PLAIN}
        observation = {name: columns[f"observation/{name}"] for name in spec.observation}
        extra = {name.removeprefix(_EXTRA): values for name, values in columns.items() if name.startswith(_EXTRA)}
        check_structure(spec, observation, plain, extra, about.declared)
        if verify:
            check_contents(spec, observation, plain)
    except (KeyError, ConfigError) as error:
        raise unreadable(folder / MANIFEST, f"an entry is missing or malformed ({error})", _FOLDER, _FIX) from error
    except (LogError, SpecError) as error:
        if getattr(error, "report", None) is not None:  # it has a fix of its own
            raise
        raise unreadable(folder, str(error).partition(". fix: ")[0], _FOLDER, _FIX) from error
    origin = {"source": str(folder.absolute()), "columns": None, "memory_map": memory_map}
    known = {"spec": spec, "observation": observation, "extra": extra, "report": report, "origin": origin}
    return {**known, **plain, "reward_unit": unit, "atoms": atoms, "declared": about.declared}


class ColumnEntry(msgspec.Struct, forbid_unknown_fields=True):
    """The file, type and shape of one column."""

    column: str
    file: str
    dtype: str
    shape: list[int]


class LogManifest(msgspec.Struct):
    """The fields of a log's manifest, besides those of every folder."""

    columns: list[ColumnEntry]
    spec: dict[str, Any]
    report: dict[str, Any]
    reward_unit: str | None = None
    atoms: list[float] = []
    declared: DeclaredPropensities | None = None


def is_saved_log(path: Path) -> bool:
    """Whether a folder is a saved log, in one piece or in shards."""
    return LOG.is_at(path) or SHARDED.is_at(path)


def refuse_target(path: Path, overwrite: bool, *kinds: Kind) -> None:
    """Raise LogError unless the path is free, or holds a folder of one of these kinds and `overwrite` is True."""
    if not path.exists():
        return
    if not overwrite:
        raise LogError(
            f"{path} exists. fix: choose another, or overwrite=True (--overwrite) if it is a {kinds[0].name} to replace"
        )
    if not any(kind.is_at(path) for kind in kinds):
        raise LogError(f"{path} exists and is not a tidelog {kinds[0].name}: not overwritten. fix: choose another path")


def write_array(values: Values, path: Path) -> None:
    """Write one array as an .npy file."""
    with stream_to(path) as stream:
        np.lib.format.write_array(stream, np.ascontiguousarray(values), allow_pickle=False)


def read_columns(
    kind: Kind,
    folder: Path,
    entries: Sequence[ColumnEntry],
    manifest: Mapping[str, Any],
    memory_map: bool = False,
    verify: bool = True,
) -> dict[str, Values]:
    """Read the arrays of a folder; LogError if one is named twice, or its type or shape differs from the manifest."""
    names = [entry.column for entry in entries]
    if len(set(names)) < len(names):
        raise LogError("a column is listed twice")
    return {entry.column: _read_column(kind, folder, entry, manifest, memory_map, verify) for entry in entries}


def _read_column(
    kind: Kind, folder: Path, entry: ColumnEntry, manifest: Mapping[str, Any], memory_map: bool, verify: bool
) -> Values:
    file = kind.file(folder, entry.file, manifest, whole=verify)
    try:
        with open_regular(file) as stream:
            size = file.stat().st_size
            problem = None if memory_map else shortage(size)
            if problem is not None:
                fix = (
                    "open it with memory_map=True (--memory-map)"
                    if kind is LOG
                    else "free memory, or save fewer events"
                )
                raise unreadable(file, problem, "a column that fits into memory", fix)
            if memory_map:
                read_header(stream, size)
            values: Values = (
                read_array(stream, size) if not memory_map else np.load(file, mmap_mode="r", allow_pickle=False)
            )
    except (ValueError, OSError, EOFError, OverflowError) as error:
        raise LogError(f"{file}: not a readable array ({error})") from error
    if values.dtype.str != entry.dtype or list(values.shape) != entry.shape:
        raise LogError(f"{file} holds {values.dtype} {values.shape}: expected {entry.dtype} {entry.shape}")
    return values
