"""Where what waits between rounds lies, how large it is, and whether there is room: said before anything is played."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from tidelog.algorithms.core.contract import Collecting, StoreSpec
from tidelog.algorithms.core.segments import Columns
from tidelog.errors import ConfigError, SpaceError, nearest
from tidelog.training.engine.plan import waiting
from tidelog.training.engine.segment_offload import OffloadedStore, size

PLACES = ("device", "host", "disk")
FOLDER = "phase_buffer"  # in a run's folder
Planned = Mapping[str, tuple[Columns, StoreSpec]]


@dataclass(frozen=True)
class Storage:
    """Where segments wait: on the device, in the host's memory, or on disk in a run's folder; and what is refused."""

    where: str = "device"
    folder: Path | None = None  # of the run
    limit: float | None = None  # GB that the segments of all members may take
    keep: int = 1  # checkpoints kept, of which each may need the segments of another time
    together: bool | None = None  # members under one vmap; None: where there is an accelerator

    def stacked(self, members: int) -> bool:
        """Whether so many members are put side by side where the environment is a function."""
        together = jax.default_backend() != "cpu" if self.together is None else self.together
        return together and members > 1 and self.where == "device"

    def depots(self, algorithm: Collecting, planned: Planned, member: int) -> dict[str, OffloadedStore]:
        """The stores of a member that lie off the device, empty."""
        if self.where == "device":
            return {}
        width = algorithm.collection().environments
        found = {}
        for name in waiting(algorithm):
            shapes, keep = planned[name]
            folder = None if self.folder is None else self.folder / FOLDER / f"member-{member}" / name
            found[name] = OffloadedStore(shapes, keep.capacity or 0, width, folder, self.where == "disk")
        return found


def storage_for(
    where: str, out: str | Path | None, limit: float | None, keep: int, algorithm: Collecting, together: bool | None
) -> Storage:
    """Where a run's phase memory is to lie; ConfigError where it cannot lie there."""
    if where not in PLACES:
        raise ConfigError(f"phase_buffer = {where!r}: {nearest(str(where), PLACES)}")
    if limit is not None and not limit > 0:
        raise ConfigError(f"phase_buffer_limit = {limit!r}: expected a number of GB above 0")
    if where == "disk" and out is None:
        raise ConfigError("phase_buffer = 'disk' lies in the run's folder: name one, as in out='runs/name'")
    if where != "device" and not waiting(algorithm):
        raise ConfigError(
            f"phase_buffer = {where!r}: {type(algorithm).__name__} as it is set keeps no segments from phase to phase "
            "(PPG with an auxiliary phase does); leave it on the device"
        )
    if where != "device" and together:
        raise ConfigError(f"phase_buffer = {where!r} and together: members under one vmap keep theirs on the device")
    return Storage(where, None if out is None else Path(out), limit, keep, together)


def check_room(storage: Storage, algorithm: Collecting, planned: Planned, members: int, stacked: bool = False) -> None:
    """Raise SpaceError, with the numbers, unless there is room for what waits between rounds, or else for all stores.

    `stacked` members are there twice while they begin: one by one, and side by side.
    """
    waits = waiting(algorithm)
    each = sum(store_bytes(*planned[name]) for name in waits or planned)
    needed, words = members * each, f"{size(each)}" + (f" for each of {members} members" if members > 1 else "")
    what, mend = "the phase memory takes", "ask for fewer policy_iterations, environments or rollout_steps"
    if not waits:
        what, mend = "the stores of segments take", "ask for less capacity, fewer environments, rollout_steps or steps"
    if storage.limit is not None and needed > storage.limit * 1e9:
        raise SpaceError(f"{what} {words}, more than phase_buffer_limit = {storage.limit:g} GB: {mend}")
    demands = [_demand(storage, needed, stacked)]
    if storage.where == "host" and storage.folder is not None:  # checkpoints make files of it
        demands.append(_demand(replace(storage, where="disk"), needed, False))
    for demand in demands:
        if demand.free is not None and demand.bytes > demand.free:
            raise SpaceError(
                f"{what} {words}{demand.why}, {size(demand.bytes)} in all, and {demand.place} has "
                f"{size(demand.free)}: {mend}{demand.other if waits else ''}"
            )


class Demand(NamedTuple):
    """Bytes that are needed and free (None: unknown) in a place, why so many, and where else they could lie."""

    bytes: int
    free: int | None
    place: str
    why: str
    other: str


def _demand(storage: Storage, needed: int, stacked: bool) -> Demand:
    free, place, other = _free(storage)
    if storage.where == "disk":
        times = 1 + storage.keep
        why = f", {times} times over because each of {storage.keep} checkpoints may need an older one (keep=1: twice)"
        return Demand(needed * times, free, place, why, other)
    if stacked:
        why = ", twice over while they are put side by side (together=False: once)"
        return Demand(2 * needed, free, place, why, other)
    return Demand(needed, free, place, "", other)


def store_bytes(shapes: Columns, keep: StoreSpec) -> int:
    """What a full store takes."""
    each = [int(np.prod(leaf.shape[1:])) * int(leaf.dtype.itemsize) for leaf in jax.tree.leaves(shapes)]
    return (keep.capacity or 0) * sum(each)


def _free(storage: Storage) -> tuple[int | None, str, str]:
    """Bytes that are free where it is to lie (None: unknown), how that place is called, and where else it could lie."""
    elsewhere = ", or set phase_buffer to 'disk'"
    if storage.where == "disk":
        there = storage.folder or Path()
        while not there.exists():
            there = there.parent
        written = (storage.folder or Path()) / FOLDER  # by this run, before it was resumed
        ours = sum(path.stat().st_size for path in written.rglob("*.npy"))
        return shutil.disk_usage(there).free + ours, f"the disk of {there}", ""
    if storage.where == "device" and jax.default_backend() != "cpu":
        told = jax.devices()[0].memory_stats() or {}
        free = told["bytes_limit"] - told.get("bytes_in_use", 0) if "bytes_limit" in told else None
        return free, "the device", ", or set phase_buffer to 'host' or 'disk'"
    return available_memory(), "this machine's memory", elsewhere


def available_memory() -> int | None:
    """Bytes that programs can have without others being pushed out, or None where the system does not say."""
    told = Path("/proc/meminfo")
    if told.exists():
        found = re.search(r"MemAvailable:\s+(\d+) kB", told.read_text())
        if found:
            return int(found[1]) * 1024
    names: Any = getattr(os, "sysconf_names", {})
    return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) if "SC_AVPHYS_PAGES" in names else None
