"""The memory that training takes, stated and compared with what is free before anything is allocated."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tidelog.algorithms.core.contract import StoreSpec
from tidelog.algorithms.core.segments import Columns
from tidelog.data.log import Log
from tidelog.errors import SpaceError
from tidelog.memory import available_memory, in_units
from tidelog.recommend.interactions.log import Interactions
from tidelog.training.engine.log_streaming import is_mapped
from tidelog.types import Spec

Planned = Mapping[str, tuple[Columns, StoreSpec]]  # by name: the shapes of a store's columns, and its capacity
LOG_COPIES = 2  # the scaled columns, and the same in the units of the device
STATE_COPIES = 5  # before an update and after it, gradients, in a checkpoint; 13.4 times the weights measured, not 15
PROGRAMS = 150_000_000  # bytes of compiled programs and their runtime on a processor, measured: 170 MB
MOMENTS = 2  # of Adam, the optimiser by default


def check_memory(algorithms: Sequence[Any], seeds: int, spec: Spec, log: Log | Interactions | None) -> None:
    """Raise SpaceError if the log, its batches, and the networks with their optimisers do not fit into free memory.

    A memory-mapped log stays on disk, and `log` None is an environment. On an accelerator its own memory counts.
    """
    free = _free()
    columns = _bytes_of(log)
    batches = 2 * _batch_rows(algorithms[0]) * (columns // max(1, len(log) if log is not None else 1))
    on_disk = isinstance(log, Log) and is_mapped(log)
    data = batches + (0 if on_disk else LOG_COPIES * columns)
    states = sum(STATE_COPIES * seeds * state_bytes(one, spec) for one in algorithms)
    programs = PROGRAMS if jax.default_backend() == "cpu" else 0
    if free is None or data + states + programs <= free:
        return
    fixes = ["use fewer seeds or smaller networks"] if states > data else []
    fixes += ["open the log with memory_map=True", "use fewer rows"] if data > states and isinstance(log, Log) else []
    members = seeds * len(algorithms)
    raise SpaceError(
        f"training needs at least {in_units(data + states + programs)} of memory ({in_units(data)} for the log and "
        f"its batches, {in_units(states)} for {members} member(s) with optimisers, {in_units(programs)} for compiled "
        f"programs), but {in_units(free)} are free; nothing was written. fix: {', '.join(fixes) or 'use fewer rows'}, "
        "or free memory"
    )


def check_segments(planned: Planned, members: int, stacked: bool) -> None:
    """Raise SpaceError, with the numbers, if the stores of segments of all members do not fit into free memory.

    `stacked` members take their memory twice at the start: one by one, and stacked.
    """
    sizes = {name: store_bytes(shapes, store) for name, (shapes, store) in planned.items()}
    each, free = sum(sizes.values()), _free()
    needed = each * members * (2 if stacked else 1)
    if free is None or needed <= free:
        return
    several = f" for each of {members} members" if members > 1 else ""
    twice = ", twice while the members are stacked (together=False: once)" if stacked else ""
    place = "this machine" if jax.default_backend() == "cpu" else "the device"
    largest = max(sizes, key=lambda name: sizes[name])
    raise SpaceError(
        f"the stores of segments take {in_units(each)}{several}{twice}, {in_units(needed)} in total; the largest is "
        f"'{largest}' with {in_units(sizes[largest])}; but {place} has {in_units(free)} of memory free; nothing was "
        "written. fix: reduce environments or rollout_steps, or the algorithm's policy_iterations or capacity"
    )


def store_bytes(shapes: Columns, store: StoreSpec) -> int:
    """Return the bytes of a full store; `shapes` are those of its columns, [any, T, ...]."""
    one = sum(int(np.prod(leaf.shape[1:])) * int(leaf.dtype.itemsize) for leaf in jax.tree.leaves(shapes))
    return (store.capacity or 0) * one


def state_bytes(algorithm: Any, spec: Spec) -> int:
    """Return the bytes that the hidden layers of a state take at least: weights and both moments of the optimiser.

    Each setting of widths counts as one network. Nothing is created: drawing the weights would take the memory.
    """
    inputs, outputs = sum(_widths(spec.observation.values())), sum(_widths([spec.action]))
    weights = 0
    for field in dataclasses.fields(algorithm):
        widths = getattr(algorithm, field.name)
        if isinstance(widths, tuple) and widths and all(type(width) is int for width in widths):
            weights += sum(one * two for one, two in itertools.pairwise((max(1, inputs), *widths, max(1, outputs))))
    return 4 * (1 + MOMENTS) * weights


def _widths(parts: Iterable[Any]) -> Iterator[int]:
    """The numbers of features of leaves, or of actions."""
    for part in parts:
        yield from (getattr(part, name) for name in ("size", "n") if type(getattr(part, name, None)) is int)


def _batch_rows(algorithm: Any) -> int:
    rows = getattr(algorithm, "batch_size", 0)
    return rows if type(rows) is int else 0


def _bytes_of(log: Log | Interactions | None) -> int:
    if log is None:
        return 0
    if isinstance(log, Log):
        return sum(column.nbytes for column in log.columns().values())
    return sum(value.nbytes for value in vars(log).values() if isinstance(value, np.ndarray))


def _free() -> int | None:
    if jax.default_backend() == "cpu":
        return available_memory()
    facts = jax.devices()[0].memory_stats() or {}
    return facts["bytes_limit"] - facts.get("bytes_in_use", 0) if "bytes_limit" in facts else None
