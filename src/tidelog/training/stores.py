"""A log on the device, in the units of the networks. Letters: `B` batch, `N` steps, `M` stored observations."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from tidelog._machine import available_memory, in_units
from tidelog.algorithms.contract import Algorithm, StoreSpec
from tidelog.algorithms.sampling import LoggedAction, NStep, Sampler, StoredLog, Unit, Window
from tidelog.algorithms.segments import Columns
from tidelog.data.log import Log
from tidelog.data.log_columns import ranges
from tidelog.data.statistics import Scaler, actions_are_equal, rewards_are_equal
from tidelog.errors import LogError, MemoryLimitError
from tidelog.networks.layers import float32, from_host, int32
from tidelog.recommend.interactions import Interactions
from tidelog.types import Continuous, Discrete, Hybrid, Spec


def stores_of(algorithm: Algorithm, log: Log, scaler: Scaler) -> dict[str, StoredLog]:
    """Create the stores of an algorithm, filled from one log."""
    return {name: stored(log, store_spec, scaler) for name, store_spec in algorithm.stores(log.spec).items()}


def stored(log: Log, store_spec: StoreSpec, scaler: Scaler) -> StoredLog:
    """Return the columns of a store; LogError if the log lacks one of them or has nothing to bootstrap from."""
    check_columns(log, store_spec)
    usable = np.flatnonzero(log.has_target) if "reward" in store_spec.columns else None
    if usable is not None and len(usable) == 0:
        raise _without_target()
    space = log.spec.action
    action = space.to_unit(log.action) if isinstance(space, Continuous | Hybrid) else log.action
    return StoredLog(
        observation={name: from_host(leaf) for name, leaf in scaler.observation(log.observation).items()},
        position=int32(log.position),
        next_position=int32(log.next_position),
        reach=int32(log.reach),
        action=from_host(action),
        episode=int32(log.episode),
        starts=int32(log.starts),
        usable=None if usable is None or len(usable) == len(log.position) else int32(usable),
        reward=None if log.reward is None or usable is None else from_host(scaler.reward(log.reward)),
        terminated=from_host(log.terminated) if "terminated" in store_spec.columns else None,
        mask=None if log.action_mask is None else from_host(log.action_mask),
        weight=None if log.weight is None else from_host(log.weight / mean_weight(log.weight, usable)),
        log_propensity=float32(log_propensity(log)) if "propensity" in store_spec.columns else None,
        elapsed=None if usable is None or log.spacing is None else float32(log.spacing),
    )


def _without_target() -> LogError:
    return LogError(
        "no step of this log can be learned from: every episode has one step that is not terminated, "
        "and its next observation is unknown",
        fix="set terminated=True for one-step decisions, or add a next_observation column",
    )


def mean_weight(weight: np.ndarray[Any, Any], rows: np.ndarray[Any, Any] | None) -> float:
    """Return the mean weight of the rows that are read, all rows for None; LogError if it is 0.

    Weights are divided by it: they set the relative weight of rows, and do not change the size of a step.
    """
    mean = float(np.mean(weight if rows is None else weight[rows], dtype=np.float64))
    if mean == 0.0:
        raise LogError(
            "all weights of the steps that are read are 0",
            "at least one above 0",
            "correct the weight column, remove it from the mapping, or hold out other episodes (split_seed)",
        )
    return mean


def log_propensity(log: Log, rows: Any = slice(None)) -> np.ndarray[Any, Any]:
    """Return the logarithms [N] of propensities; of continuous actions in units in which the bounds are [-1, 1]."""
    space, propensity = log.spec.action, np.asarray(log.propensity[rows])  # type: ignore[index]
    volume = space.log_volume() if isinstance(space, Continuous | Hybrid) else 0.0
    logs: np.ndarray[Any, Any] = np.log(propensity.astype(np.float64)) + volume
    return logs


def check_columns(log: Log, store_spec: StoreSpec) -> None:
    """Raise LogError if the log lacks a column of a store."""
    if "reward" in store_spec.columns and log.reward is None:
        raise LogError("this log has no reward column, and the algorithm learns from rewards", fix="map one, or use bc")
    if "propensity" in store_spec.columns and log.propensity is None:
        raise LogError(
            "this log has no propensities, and the algorithm weighs logged actions by them (Retrace)",
            fix="map a propensity column, declare how the actions were drawn (propensity=), or use td-lambda returns",
        )


def check_differences(algorithm: Algorithm, log: Log) -> None:
    """Raise LogError if an algorithm learns from rewards, and all decisions have equal rewards or are one action."""
    learns = any("reward" in store_spec.columns for store_spec in algorithm.stores(log.spec).values())
    if learns and actions_are_equal(log):
        first, space = np.asarray(log.action[0]), log.spec.action
        shown = repr(space.names[int(first)]) if isinstance(space, Discrete) and space.names else f"{first}"
        raise LogError(
            f"every action of this log is {shown}, so a policy that is learnt from it cannot differ from the behaviour "
            "policy",
            "at least two actions",
            "check the mapping of `action`, or use bc, which imitates the behaviour policy",
        )
    if learns and log.reward is not None and rewards_are_equal(log):
        raise LogError(
            f"every reward of this log is {np.ravel(log.reward[:1])[0]:g} and all returns are equal",
            "rewards that differ",
            "check the mapping, or use bc, which imitates the logging policy",
        )


# Streaming of a log that stays on disk: draw the rows of a block of updates, fetch them, then train on them.
#
# The fetched rows form a small log that holds the windows of the drawn rows. Units gather from it as from a whole log,
# and the arithmetic is the same to the last bit. A sampler with priorities uses the priorities at the start of its
# block. Blocks begin at fixed updates, therefore the bits do not depend on the clock.
#
# Letters: `R` rows drawn, `J` rows fetched, `M` stored observations.

Rows = NDArray[np.int64]
LONGEST_BLOCK = 500  # updates
MOST_BYTES = 64 << 20  # limit of the observations in one block


class BlockData(NamedTuple):
    """The data of a block: a small store, and the positions of the drawn rows in it, [R] int32."""

    store: StoredLog
    slots: NDArray[np.int32]


def is_mapped(log: Log) -> bool:
    """Return whether the log's observations stay on disk."""
    return any(isinstance(leaf, np.memmap) for leaf in log.observation.values())


class Stream:
    """A store that fetches its columns on demand; `episodes` are the ordinals that may be drawn."""

    def __init__(self, log: Log, keep: StoreSpec, scaler: Scaler, episodes: NDArray[Any] | None = None) -> None:
        check_columns(log, keep)
        self._log, self._keep, self._scaler, self._episodes = log, keep, scaler, episodes
        if "reward" in keep.columns and self.count(NStep(1, 1.0)) == 0:
            raise _without_target()
        if log.weight is not None:
            self._mean_weight  # noqa: B018 - raises at once if all weights are 0

    def count(self, unit: Unit) -> int:
        """Return the number of samples."""
        table = self._table(unit)
        return self._log.steps if table is None else len(table)

    def rows(self, unit: Unit, indices: NDArray[Any]) -> Rows:
        """Return the log's rows at indices into the samples."""
        table = self._table(unit)
        return np.asarray(indices if table is None else table[indices], np.int64)

    def block(self, draw: Sampler) -> int:
        """Return the number of updates in one block."""
        width = sum(leaf[:1].nbytes for leaf in self._log.observation.values())
        return max(1, min(LONGEST_BLOCK, MOST_BYTES // (draw.size * (_span(draw.unit) + 1) * max(width, 1))))

    def example(self, draw: Sampler) -> StoredLog:
        """Return a store with the right shapes, for tracing."""
        return self.fetch(np.zeros(draw.size, np.int64), draw.unit).store

    def fetch(self, rows: Rows, unit: Unit, offset: NDArray[Any] | int = 0) -> BlockData:
        """Return the small store around the drawn rows [R]; its size depends on R alone.

        For windows, `offset` [R] is the position of each drawn row among the steps that count.
        """
        before, span = offset + (unit.burn_in if isinstance(unit, Window) else 0), _span(unit)
        first, end = self._starts[self._log.episode[rows]], self._ends(rows)
        begin = np.maximum(first, rows - before)
        lengths = np.minimum(end, rows + span - before - 1) - begin + 1  # of each window
        ends = np.cumsum(lengths)
        total = len(rows) * span
        starts = np.append(ends - lengths, ends[-1])  # rows after the last window are padding, never read
        windows = np.repeat(np.arange(len(rows)), lengths)
        fetched = np.arange(ends[-1]) - starts[windows] + begin[windows]
        store = self._small(fetched, windows, starts, total)
        return BlockData(store, (starts[:-1] + rows - begin).astype(np.int32))

    def _small(self, fetched: Rows, windows: Rows, starts: Rows, total: int) -> StoredLog:
        """Build a store of `total` rows from `fetched` rows [J] of `windows` [J], with the observation after each."""
        log, missing = self._log, total - len(fetched)
        last = np.append(windows[1:] != windows[:-1], True)
        position = np.arange(len(fetched)) + windows
        stored = np.zeros(total + len(starts) - 1, np.int64)
        stored[position] = log.position[fetched]
        stored[position[last] + 1] = log.next_position[fetched[last]]
        reach = np.minimum(
            self._reach(fetched) - fetched + np.arange(len(fetched)), starts[windows] + _lengths(windows, last) - 1
        )
        observation = {name: np.asarray(leaf[stored]) for name, leaf in log.observation.items()}
        space = log.spec.action
        action = _pad(np.asarray(log.action[fetched]), missing)
        needs_reward = "reward" in self._keep.columns and log.reward is not None
        weighs = "propensity" in self._keep.columns
        return StoredLog(
            observation={name: from_host(leaf) for name, leaf in self._scaler.observation(observation).items()},
            position=int32(_pad(position, missing)),
            next_position=int32(_pad(position + 1, missing)),
            reach=int32(_pad(reach, missing)),
            action=from_host(space.to_unit(action) if isinstance(space, Continuous | Hybrid) else action),
            episode=int32(_pad(windows, missing)),
            starts=int32(starts),
            reward=_column(self._scaler.reward(np.asarray(log.reward[fetched])), missing) if needs_reward else None,  # type: ignore[index]
            terminated=_column(log.terminated[fetched], missing) if "terminated" in self._keep.columns else None,
            mask=None if log.action_mask is None else from_host(np.asarray(log.action_mask[stored])),
            weight=None if log.weight is None else _column(log.weight[fetched] / self._mean_weight, missing),
            log_propensity=_column(log_propensity(log, fetched).astype(np.float32), missing) if weighs else None,
            elapsed=_column(log.spacing[fetched].astype(np.float32), missing)
            if needs_reward and log.spacing is not None
            else None,
        )

    @cached_property
    def _mean_weight(self) -> float:
        rows = self._targets if "reward" in self._keep.columns else self._decisions
        return mean_weight(np.asarray(self._log.weight), rows)

    @cached_property
    def _starts(self) -> Rows:
        return np.asarray(self._log.starts, np.int64)

    def _ends(self, rows: Rows) -> Rows:
        return np.asarray(self._starts[np.asarray(self._log.episode[rows]) + 1] - 1)

    def _reach(self, rows: Rows) -> Rows:
        return np.asarray(self._ends(rows) - self._log.open_ends[np.asarray(self._log.episode[rows])])

    def _table(self, unit: Unit) -> Rows | None:
        """Return the rows that may be drawn, or None for all rows."""
        inner = unit.unit if isinstance(unit, Window) else unit
        return self._decisions if isinstance(inner, LoggedAction) else self._targets

    @cached_property
    def _decisions(self) -> Rows | None:
        if self._episodes is None:
            return None
        return ranges(self._starts[self._episodes], self._starts[self._episodes + 1])

    @cached_property
    def _targets(self) -> Rows | None:
        open_ends = self._log.open_ends
        if not open_ends.any():
            return self._decisions
        episodes = np.arange(len(open_ends)) if self._episodes is None else self._episodes
        return ranges(self._starts[episodes], self._starts[episodes + 1] - open_ends[episodes])


def _span(unit: Unit) -> int:
    """Return the largest number of rows that a sample needs."""
    if isinstance(unit, Window):
        return unit.burn_in + unit.length + getattr(unit.unit, "next_action", False)
    return unit.n_step + unit.next_action if isinstance(unit, NStep) else 1


def _lengths(windows: Rows, last: NDArray[np.bool_]) -> Rows:
    """Return the length of the window of each fetched row [J]."""
    counts = np.bincount(windows, minlength=int(last.sum()))
    return np.asarray(counts[windows])


def _pad(values: NDArray[Any], missing: int) -> NDArray[Any]:
    return np.concatenate([values, np.repeat(values[-1:], missing, axis=0)]) if missing else values


def _column(values: NDArray[Any], missing: int) -> Any:
    return from_host(_pad(np.asarray(values), missing))


# The memory that training takes, stated and compared with what is free before anything is allocated.

Planned = Mapping[str, tuple[Columns, StoreSpec]]  # by name: the shapes of a store's columns, and its capacity
LOG_COPIES = 2  # the scaled columns, and the same in the units of the device
STATE_COPIES = 5  # before an update and after it, gradients, in a checkpoint; 13.4 times the weights measured, not 15
PROGRAMS = 150_000_000  # bytes of compiled programs and their runtime on a processor, measured: 170 MB
MOMENTS = 2  # of Adam, the optimiser by default


def check_memory(algorithms: Sequence[Any], seeds: int, spec: Spec, log: Log | Interactions | None) -> None:
    """Raise MemoryLimitError if the log, its batches, and the networks with their optimisers do not fit into free
    memory.

    A memory-mapped log stays on disk, and `log` None is an environment. On an accelerator its own memory counts.
    """
    free, arrays = (
        _free(),
        () if log is None else log.columns().values() if isinstance(log, Log) else vars(log).values(),
    )
    columns = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    rows = getattr(algorithms[0], "batch_size", 0)
    batches = 2 * (rows if type(rows) is int else 0) * (columns // max(1, 0 if log is None else len(log)))
    on_disk = isinstance(log, Log) and is_mapped(log)
    data = batches + (0 if on_disk else LOG_COPIES * columns)
    states = sum(STATE_COPIES * seeds * state_bytes(one, spec) for one in algorithms)
    programs = PROGRAMS if jax.default_backend() == "cpu" else 0
    if free is None or data + states + programs <= free:
        return
    fixes = ["use fewer seeds or smaller networks"] if states > data else []
    fixes += ["open the log with memory_map=True", "use fewer rows"] if data > states and isinstance(log, Log) else []
    members = seeds * len(algorithms)
    raise MemoryLimitError(
        f"training needs at least {in_units(data + states + programs)} of memory ({in_units(data)} "
        f"for the log and its batches, {in_units(states)} for {members} member(s) with optimisers, "
        f"{in_units(programs)} for compiled programs), but {in_units(free)} are free; nothing was "
        "written",
        fix=f"{', '.join(fixes) or 'use fewer rows'}, or free memory",
    )


def check_segments(planned: Planned, members: int, stacked: bool) -> None:
    """Raise MemoryLimitError, with the numbers, if the stores of segments of all members do not fit into free memory.

    `stacked` members take their memory twice at the start: one by one, and stacked.
    """
    sizes = {name: store_bytes(shapes, store) for name, (shapes, store) in planned.items()}
    each, free = sum(sizes.values()), _free()
    needed = each * members * (2 if stacked else 1)
    if free is None or needed <= free:
        return
    several = f" for each of {members} members" if members > 1 else ""
    twice = ", twice while the members are stacked (vmap=False: once)" if stacked else ""
    where = "this machine" if jax.default_backend() == "cpu" else "the device"
    largest = max(sizes, key=lambda name: sizes[name])
    raise MemoryLimitError(
        f"the stores of segments take {in_units(each)}{several}{twice}, {in_units(needed)} in total; "
        f"the largest is '{largest}' with {in_units(sizes[largest])}; but {where} has "
        f"{in_units(free)} of memory free; nothing was written",
        fix="reduce environments or rollout_steps, or the algorithm's policy_iterations or capacity",
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


def _free() -> int | None:
    if jax.default_backend() == "cpu":
        return available_memory()
    facts = jax.devices()[0].memory_stats() or {}
    return facts["bytes_limit"] - facts.get("bytes_in_use", 0) if "bytes_limit" in facts else None
