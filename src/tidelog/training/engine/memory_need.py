"""The memory that training takes, stated and compared with what is free before anything is allocated."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from tidelog.data.log import Log
from tidelog.errors import SpaceError
from tidelog.memory import available_memory, in_units
from tidelog.recommend.interactions.log import Interactions
from tidelog.training.engine.log_streaming import is_mapped
from tidelog.types import Spec

LOG_COPIES = 2  # the scaled columns, and the same in the units of the device
STATE_COPIES = 3  # the state before an update, after it, and in a checkpoint
COUNTED = 1 << 22  # weights of a layer; smaller networks are not worth tracing


def check_memory(algorithms: Sequence[Any], seeds: int, spec: Spec, log: Log | Interactions | None) -> None:
    """Raise SpaceError if the log, the batches, and the networks with their optimisers do not fit into free memory.

    A memory-mapped log stays on disk, and `log` None is an environment. On an accelerator its own memory counts.
    """
    free = _free()
    columns = _bytes_of(log)
    batches = 2 * _batch_rows(algorithms[0]) * (columns // max(1, len(log) if log is not None else 1))
    on_disk = isinstance(log, Log) and is_mapped(log)
    data = batches + (0 if on_disk else LOG_COPIES * columns)
    states = sum(STATE_COPIES * seeds * state_bytes(one, spec) for one in algorithms)
    if free is None or data + states <= free:
        return
    fixes = ["use fewer seeds or smaller networks"] if states > data else []
    fixes += ["open the log with memory_map=True", "use fewer rows"] if data > states and isinstance(log, Log) else []
    raise SpaceError(
        f"training needs about {in_units(data + states)} of memory ({in_units(data)} for the log and its batches, "
        f"{in_units(states)} for {seeds * len(algorithms)} member(s) with optimisers), but {in_units(free)} are free; "
        f"nothing was written. fix: {', '.join(fixes) or 'use fewer rows'}, or free memory"
    )


def state_bytes(algorithm: Any, spec: Spec) -> int:
    """Return the bytes of a state: networks, targets and optimisers; 0 for networks too small to matter."""
    widest = sorted([1, 1, *_sizes(algorithm, spec)])[-2:]
    if widest[0] * widest[1] < COUNTED:
        return 0
    try:
        shapes = jax.eval_shape(lambda key: algorithm.init(spec, key, 1), jax.random.key(0))
    except (ValueError, OverflowError, TypeError):  # a size that no array can have
        return int(4 * widest[0] * widest[1])
    leaves = [leaf for leaf in jax.tree.leaves(shapes) if hasattr(leaf, "shape")]
    return sum(int(np.prod(leaf.shape, dtype=np.float64)) * 4 for leaf in leaves)


def _sizes(algorithm: Any, spec: Spec) -> Iterator[int]:
    """The widths of layers: settings, numbers of features and of actions."""
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if field.name in ("size", "embedding", "recurrent_size") or isinstance(value, tuple):
            yield from (one for one in (value if isinstance(value, tuple) else (value,)) if type(one) is int)
    for leaf in (*spec.observation.values(), spec.action):
        yield from (getattr(leaf, name) for name in ("size", "n") if type(getattr(leaf, name, None)) is int)
        yield from getattr(leaf, "sizes", ())


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
