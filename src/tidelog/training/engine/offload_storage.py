"""The location and the size of the offloaded stores, and the check that there is room before anything is collected."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from tidelog.algorithms.core.contract import Collecting, StoreSpec
from tidelog.algorithms.core.segments import Columns
from tidelog.errors import ConfigError, SpaceError, nearest
from tidelog.memory import available_memory
from tidelog.training.engine.plan import offloadable_stores
from tidelog.training.engine.segment_offload import OffloadedStore, size

LOCATIONS = ("device", "host", "disk")
FOLDER = "phase_buffer"  # in a run's folder
Planned = Mapping[str, tuple[Columns, StoreSpec]]


@dataclass(frozen=True)
class Storage:
    """The location of segments between rounds (device, host memory, or disk in a run's folder), and its limits."""

    where: str = "device"
    folder: Path | None = None  # of the run
    limit: float | None = None  # GB, for the segments of all members
    keep: int = 1  # number of checkpoints; each may need other segments
    together: bool | None = None  # members under one vmap; None: on accelerators

    def stacked(self, members: int) -> bool:
        """Return whether this many members are stacked in a functional environment."""
        together = jax.default_backend() != "cpu" if self.together is None else self.together
        return together and members > 1 and self.where == "device"

    def offloaded_stores(self, algorithm: Collecting, planned: Planned, member: int) -> dict[str, OffloadedStore]:
        """Create the empty offloaded stores of a member."""
        if self.where == "device":
            return {}
        width = algorithm.collection().environments
        stores = {}
        for name in offloadable_stores(algorithm):
            shapes, store_spec = planned[name]
            folder = None if self.folder is None else self.folder / FOLDER / f"member-{member}" / name
            stores[name] = OffloadedStore(shapes, store_spec.capacity or 0, width, folder, self.where == "disk")
        return stores


def storage_for(
    where: str, out: str | Path | None, limit: float | None, keep: int, algorithm: Collecting, together: bool | None
) -> Storage:
    """Return the storage of a run's phase buffer; ConfigError if that location is not possible."""
    if where not in LOCATIONS:
        raise ConfigError(f"phase_buffer = {where!r}: {nearest(str(where), LOCATIONS)}")
    if limit is not None and not limit > 0:
        raise ConfigError(f"phase_buffer_limit = {limit!r}: expected a number of GB above 0. fix: use 8")
    if where == "disk" and out is None:
        raise ConfigError("phase_buffer = 'disk' needs a run folder. fix: name one, as in out='runs/name'")
    if where != "device" and not offloadable_stores(algorithm):
        raise ConfigError(
            f"phase_buffer = {where!r}: {type(algorithm).__name__} with these settings stores no segments between "
            "phases (PPG with an auxiliary phase does). fix: use phase_buffer='device'"
        )
    if where != "device" and together:
        raise ConfigError(
            f"phase_buffer = {where!r} and together=True: members under one vmap need the phase buffer on the device. "
            "fix: set only one of them"
        )
    return Storage(where, None if out is None else Path(out), limit, keep, together)


def check_room(storage: Storage, algorithm: Collecting, planned: Planned, members: int, stacked: bool = False) -> None:
    """Raise SpaceError, with the numbers, if the offloaded stores, or else all stores, do not fit.

    `stacked` members take their memory twice at the start: one by one, and stacked.
    """
    offloaded = offloadable_stores(algorithm)
    each = sum(store_bytes(*planned[name]) for name in offloaded or planned)
    needed, amount = members * each, f"{size(each)}" + (f" for each of {members} members" if members > 1 else "")
    what, fix = "the phase buffer takes", "reduce policy_iterations, environments or rollout_steps"
    if not offloaded:
        what, fix = "the stores of segments take", "reduce the capacity, environments, rollout_steps or steps"
    if storage.limit is not None and needed > storage.limit * 1e9:
        raise SpaceError(f"{what} {amount}, more than phase_buffer_limit = {storage.limit:g} GB. fix: {fix}")
    demands = [_demand(storage, needed, stacked)]
    if storage.where == "host" and storage.folder is not None:  # checkpoints write it to files
        demands.append(_demand(replace(storage, where="disk"), needed, False))
    for demand in demands:
        if demand.free is not None and demand.bytes > demand.free:
            raise SpaceError(
                f"{what} {amount}{demand.why}, {size(demand.bytes)} in total, but {demand.place} has "
                f"{size(demand.free)} free. fix: {fix}{demand.other if offloaded else ''}"
            )


class Demand(NamedTuple):
    """The needed and the free bytes (None: unknown) of a location, the reason, and an alternative location."""

    bytes: int
    free: int | None
    place: str
    why: str
    other: str


def _demand(storage: Storage, needed: int, stacked: bool) -> Demand:
    free, place, other = _free(storage)
    if storage.where == "disk":
        times = 1 + storage.keep
        why = f", {times} times because each of {storage.keep} checkpoints may need an older one (keep=1: twice)"
        return Demand(needed * times, free, place, why, other)
    if stacked:
        why = ", twice while the members are stacked (together=False: once)"
        return Demand(2 * needed, free, place, why, other)
    return Demand(needed, free, place, "", other)


def store_bytes(shapes: Columns, store_spec: StoreSpec) -> int:
    """Return the bytes of a full store."""
    each = [int(np.prod(leaf.shape[1:])) * int(leaf.dtype.itemsize) for leaf in jax.tree.leaves(shapes)]
    return (store_spec.capacity or 0) * sum(each)


def _free(storage: Storage) -> tuple[int | None, str, str]:
    """Return the free bytes of the location (None: unknown), its name, and an alternative location."""
    elsewhere = ", or set phase_buffer to 'disk'"
    if storage.where == "disk":
        folder = storage.folder or Path()
        while not folder.exists():
            folder = folder.parent
        written = (storage.folder or Path()) / FOLDER  # by this run, before it was resumed
        own = sum(path.stat().st_size for path in written.rglob("*.npy"))
        return shutil.disk_usage(folder).free + own, f"the disk of {folder}", ""
    if storage.where == "device" and jax.default_backend() != "cpu":
        statistics = jax.devices()[0].memory_stats() or {}
        free = statistics["bytes_limit"] - statistics.get("bytes_in_use", 0) if "bytes_limit" in statistics else None
        return free, "the device", ", or set phase_buffer to 'host' or 'disk'"
    return available_memory(), "this machine's memory", elsewhere
