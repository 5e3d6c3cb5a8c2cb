"""A log saved as a folder: one `.npy` file per column and a manifest with sizes and checksums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from tidelog.data.core.columns import declared_unit
from tidelog.data.core.log_columns import OPTIONAL, PLAIN, LogColumns
from tidelog.data.core.order import Values
from tidelog.data.core.registry import unreadable
from tidelog.data.core.report import Report
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.folders import MANIFEST, Kind
from tidelog.types import Spec

LOG = Kind("log", 2, LogError)
_FOLDER, _FIX = "a folder that Log.save wrote", "copy the folder again from the original, or save the log again"


def save(log: LogColumns, path: Path, overwrite: bool = False) -> None:
    """Write a log as a whole or not at all; LogError if the path exists and may not be overwritten."""
    refuse_target(path, overwrite, LOG)
    files: dict[str, Callable[[Path], None]] = {}
    entries = []
    for place, (name, values) in enumerate(log.columns().items()):
        safe = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)[:60]
        file = f"{place:03d}-{safe}.npy"
        files[file] = partial(write_array, values)
        entries.append({"column": name, "file": file, "dtype": values.dtype.str, "shape": list(values.shape)})
    counts = {"steps": log.steps, "episodes": len(log.episode_ids)}
    body = {"counts": counts, "spec": log.spec.to_json(), "columns": entries, "report": log.report.to_json()}
    LOG.write(path, files, body if log.reward_unit is None else {**body, "reward_unit": log.reward_unit})


def saved_columns(path: str | Path, memory_map: bool = False) -> dict[str, Any]:
    """Read the fields of a log from a folder of `Log.save`; LogError names a foreign, truncated or changed file.

    `memory_map=True` leaves columns on disk and checks sizes only, not checksums.
    """
    folder = Path(path)
    try:
        manifest = LOG.manifest(folder)
        entries = manifest["columns"]
        columns = {entry["column"]: read_column(LOG, folder, entry, manifest, memory_map) for entry in entries}
    except LogError as error:
        raise unreadable(folder, str(error), _FOLDER, _FIX) from error
    try:
        plain = {name: columns.get(name) if name in OPTIONAL else columns[name] for name in PLAIN}
        spec = Spec.from_json(manifest["spec"])
        report = Report.from_json(manifest["report"])
        unit = declared_unit(manifest.get("reward_unit"))
        observation = {name: columns[f"observation/{name}"] for name in spec.observation}
    except (KeyError, TypeError, AttributeError, SpecError, ConfigError) as error:
        raise unreadable(folder / MANIFEST, f"an entry is missing or malformed ({error})", _FOLDER, _FIX) from error
    prefix = "extra/"
    extra = {name.removeprefix(prefix): values for name, values in columns.items() if name.startswith(prefix)}
    origin = {"source": str(folder.absolute()), "columns": None, "memory_map": memory_map}
    known = {"spec": spec, "observation": observation, "extra": extra, "report": report, "origin": origin}
    return {**known, **plain, "reward_unit": unit}


def refuse_target(path: Path, overwrite: bool, kind: Kind) -> None:
    """Raise LogError unless the path is free, or holds a folder of this kind and `overwrite` is True."""
    if not path.exists():
        return
    if not overwrite:
        raise LogError(
            f"{path} exists. fix: choose another, or overwrite=True (--overwrite) if it is a {kind.name} to replace"
        )
    if not kind.is_at(path):
        raise LogError(f"{path} exists and is not a tidelog {kind.name}: not overwritten. fix: choose another path")


def write_array(values: Values, path: Path) -> None:
    """Write one array as an .npy file."""
    with path.open("wb") as stream:
        np.lib.format.write_array(stream, np.ascontiguousarray(values), allow_pickle=False)


def read_column(
    kind: Kind, folder: Path, entry: Mapping[str, Any], manifest: Mapping[str, Any], memory_map: bool = False
) -> Values:
    """Read one array of a folder; LogError if its type or shape differs from the manifest."""
    file = kind.file(folder, entry["file"], manifest, whole=not memory_map)
    try:
        values: Values = np.load(file, mmap_mode="r" if memory_map else None, allow_pickle=False)
    except (ValueError, OSError, EOFError, OverflowError, SyntaxError, TokenError) as error:
        raise LogError(f"{file}: not a readable array ({error})") from error
    if values.dtype.str != entry["dtype"] or list(values.shape) != entry["shape"]:
        raise LogError(f"{file} holds {values.dtype} {values.shape}: expected {entry['dtype']} {entry['shape']}")
    return values
