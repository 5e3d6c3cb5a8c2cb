"""A log in shards: a folder of saved logs, which are its episodes in order, and a manifest that is written last.

A shard is a log of its own, whose numbers of episodes and positions count from 0. Its clusters have the numbers of the
whole log. The manifest has the checksum of each shard's manifest, which has those of its files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from tidelog.data.core.columns import declared_atoms, declared_unit
from tidelog.data.core.declared import DeclaredPropensities
from tidelog.data.core.log_columns import OPTIONAL, PLAIN, LogColumns
from tidelog.data.core.order import Values
from tidelog.data.core.registry import unreadable
from tidelog.data.core.report import Report
from tidelog.data.core.sharded_array import ShardedArray
from tidelog.data.io.saved_checks import check_structure
from tidelog.data.io.storage import LOG, SHARDED, described, refuse_target, save, saved_columns
from tidelog.disk import Content, write_folder
from tidelog.errors import ConfigError, LogError
from tidelog.folders import MANIFEST, checksum
from tidelog.memory import shortage
from tidelog.schema import typed
from tidelog.types import Spec

MOST_ROWS = 2**31 - 1  # positions are 32-bit integers
_SHIFTED = ("position", "next_position", "episode")
_WHOLE, _FIX = (
    "the shards that were written with it",
    "copy the folder again from the original, or save the log again",
)


class ShardEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A shard: the name of its folder, and the checksum of its manifest."""

    folder: Annotated[str, msgspec.Meta(pattern=r"^[\w-][\w.-]*$")]
    sha256: str


class ShardsManifest(msgspec.Struct):
    """The fields of a sharded log's manifest, besides those of every folder."""

    shards: Annotated[list[ShardEntry], msgspec.Meta(min_length=1)]
    spec: dict[str, Any]
    report: dict[str, Any]
    reward_unit: str | None = None
    atoms: list[float] = []
    declared: DeclaredPropensities | None = None


def shard_name(number: int) -> str:
    """The name of a shard's folder."""
    return f"shard-{number:04d}.tidelog"


def save_shards(log: LogColumns, path: Path, shards: int, overwrite: bool = False) -> None:
    """Write a log as a folder of shards with about as many steps each, as a whole or not at all.

    LogError if the path exists and may not be overwritten; ConfigError for a number of shards that is not possible.
    """
    episodes = len(log.episode_ids)
    if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= episodes:
        raise ConfigError(
            f"shards = {shards!r}: expected 1 to {episodes:,}, as episodes are not divided. fix: use fewer shards"
        )
    refuse_target(path, overwrite, LOG, SHARDED)
    even = np.searchsorted(log.starts, np.linspace(0, log.steps, shards + 1))
    least = np.arange(shards + 1)  # each shard has an episode
    cuts = np.minimum(np.maximum.accumulate(even - least) + least, episodes - least[::-1])
    folders: dict[str, Content] = {
        shard_name(number): partial(save, _piece(log, int(cuts[number]), int(cuts[number + 1])))
        for number in range(shards)
    }
    body = {"spec": log.spec.to_json(), "report": log.report.to_json(), **described(log)}

    def manifest(aside: Path) -> dict[str, Content]:
        entries = [{"folder": name, "sha256": checksum(aside / name / MANIFEST)} for name in folders]
        return {MANIFEST: SHARDED.text({**body, "shards": entries}, {})}

    write_folder(path, folders, manifest, LogError)


def _piece(log: LogColumns, first: int, after: int) -> LogColumns:
    """The episodes from `first` to before `after` as a log of their own, without a copy of large columns."""
    rows = slice(int(log.starts[first]), int(log.starts[after]))
    stored = slice(int(log.position[rows.start]), int(log.next_position[rows.stop - 1]) + 1)
    columns: dict[str, Any] = {}
    for name in PLAIN:
        values = getattr(log, name)
        columns[name] = None if values is None else values[rows]
    columns |= {name: columns[name] - np.int32(stored.start) for name in ("position", "next_position")}
    columns["episode"] = columns["episode"] - np.int32(first)
    columns["episode_ids"] = log.episode_ids[first:after]
    columns["action_mask"] = None if log.action_mask is None else log.action_mask[stored]
    return replace(
        log,
        observation={name: leaf[stored] for name, leaf in log.observation.items()},
        extra={name: values[rows] for name, values in log.extra.items()},
        report=Report(log.report.source, rows.stop - rows.start),
        origin=None,
        **columns,
    )


def sharded_columns(path: str | Path, memory_map: bool = False) -> dict[str, Any]:
    """Read the fields of a log from a folder of `save_shards`; LogError names what is missing, changed or foreign.

    `memory_map=True` leaves columns with several numbers a row on disk, and checks sizes only. The others are read into
    memory, as everything is without it.
    """
    folder = Path(path)
    about = typed(SHARDED.manifest(folder), ShardsManifest, str(folder / MANIFEST), LogError, _FIX)
    spec, report = Spec.from_json(about.spec), Report.from_json(about.report)
    _check_shards(folder, about.shards)
    shards = [saved_columns(folder / one.folder, memory_map=True, verify=not memory_map) for one in about.shards]
    flat = [_flat(shard) for shard in shards]
    for one, shard, named in zip(about.shards, shards, flat, strict=True):
        if shard["spec"] != spec or named.keys() != flat[0].keys():
            raise unreadable(folder / one.folder, "it has other columns than the sharded log", _WHOLE, _FIX)
    parts = {name: [named[name] for named in flat] for name in flat[0]}
    in_memory = {name for name, values in parts.items() if not memory_map or values[0].ndim == 1}
    problem = shortage(sum(part.nbytes for name in in_memory for part in parts[name]))
    if problem is not None:
        fix = "free memory" if memory_map else "open it with memory_map=True (--memory-map)"
        raise unreadable(folder, problem, "columns that fit into memory", fix)
    stored = [len(next(iter(shard["observation"].values()))) for shard in shards]
    if sum(stored) > MOST_ROWS:
        raise unreadable(folder, f"{sum(stored):,} observations", f"at most {MOST_ROWS:,}", "use fewer shards")
    before = {name: np.cumsum([0, *stored[:-1]]) for name in ("position", "next_position")}
    before["episode"] = np.cumsum([0, *(len(shard["episode_ids"]) for shard in shards[:-1])])
    columns: dict[str, Any] = {}
    for name, values in parts.items():
        if len({_type(part) for part in values}) > 1:
            raise unreadable(folder, f"'{name}' has several types in the shards", _WHOLE, _FIX)
        if name in _SHIFTED:
            shifted = zip(values, before[name], strict=True)
            columns[name] = np.concatenate([part + np.int32(start) for part, start in shifted])
        else:
            columns[name] = np.concatenate(values) if name in in_memory else ShardedArray(values)
    joined: dict[str, Any] = {
        "observation": {name: columns[f"observation/{name}"] for name in spec.observation},
        "extra": {name: columns[f"extra/{name}"] for name in shards[0]["extra"]},
        **{name: columns.get(name) for name in PLAIN},
    }
    check_structure(spec, joined["observation"], joined, joined["extra"], about.declared)
    origin = {"source": str(folder.absolute()), "columns": None, "memory_map": memory_map}
    unit = declared_unit(about.reward_unit)
    known = {"spec": spec, "report": report, "reward_unit": unit, "declared": about.declared, "origin": origin}
    return {**joined, **known, "atoms": declared_atoms(about.atoms)}


def _check_shards(folder: Path, shards: Sequence[ShardEntry]) -> None:
    """Raise LogError unless each shard is there once, as it was when the manifest was written."""
    for number, one in enumerate(shards):
        path = folder / one.folder
        if one.sha256 in [other.sha256 for other in shards[:number]]:
            raise unreadable(path, "the manifest lists this shard twice", _WHOLE, _FIX)
        if not path.is_dir():
            raise unreadable(path, "the shard is missing", _WHOLE, _FIX)
        if not (path / MANIFEST).is_file():
            raise unreadable(path, f"the shard has no {MANIFEST}", _WHOLE, _FIX)
        LOG.manifest(path)
        if checksum(path / MANIFEST) != one.sha256:
            raise unreadable(path, "another log is in the place of this shard", _WHOLE, _FIX)


def _flat(shard: Mapping[str, Any]) -> dict[str, Values]:
    """Every column of a shard under one name, as `LogColumns.columns`."""
    flat = {f"observation/{name}": leaf for name, leaf in shard["observation"].items()}
    flat |= {name: shard[name] for name in PLAIN if name not in OPTIONAL or shard[name] is not None}
    return flat | {f"extra/{name}": values for name, values in shard["extra"].items()}


def _type(values: Values) -> str:
    """The type of a column; text of all lengths is one type."""
    return "text" if values.dtype.kind == "U" else values.dtype.str
