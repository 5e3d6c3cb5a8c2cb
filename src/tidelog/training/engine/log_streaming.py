"""Streaming of a log that stays on disk: draw the rows of a block of updates, fetch them, then train on them.

The fetched rows form a small log that holds the windows of the drawn rows. Units gather from it as from a whole log,
and the arithmetic is the same to the last bit. A sampler with priorities uses the priorities at the start of its block.
Blocks begin at fixed updates, therefore the bits do not depend on the clock.

Letters: `R` rows drawn, `J` rows fetched, `M` stored observations.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.algorithms.core.contract import StoreSpec
from tidelog.algorithms.core.sampling import LoggedAction, NStep, Sampler, Stored, Unit, Window
from tidelog.data.core.log_columns import ranges
from tidelog.data.core.sharded_array import ShardedArray
from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.errors import LogError
from tidelog.networks.arrays import from_host, int32
from tidelog.training.engine.stores import check_columns, mean_weight
from tidelog.types import Continuous

Rows = NDArray[np.int64]
LONGEST_BLOCK = 500  # updates
MOST_BYTES = 64 << 20  # limit of the observations in one block


class Fetched(NamedTuple):
    """The data of a block: a small store, and the positions of the drawn rows in it, [R] int32."""

    store: Stored
    slots: NDArray[np.int32]


def is_mapped(log: Log) -> bool:
    """Return whether the log's observations stay on disk."""
    return any(isinstance(leaf, np.memmap | ShardedArray) for leaf in log.observation.values())


class Stream:
    """A store that fetches its columns on demand; `episodes` are the ordinals that may be drawn."""

    def __init__(self, log: Log, keep: StoreSpec, scaler: Scaler, episodes: NDArray[Any] | None = None) -> None:
        check_columns(log, keep)
        self._log, self._keep, self._scaler, self._episodes = log, keep, scaler, episodes
        if "reward" in keep.columns and self.count(NStep(1, 1.0)) == 0:
            raise LogError(
                "no step of this log can be a target of value learning, because no next observation is known. fix: set "
                "terminated=True for one-step decisions, or add a next_observation column"
            )
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

    def example(self, draw: Sampler) -> Stored:
        """Return a store with the right shapes, for tracing."""
        return self.fetch(np.zeros(draw.size, np.int64), draw.unit).store

    def fetch(self, rows: Rows, unit: Unit, offset: NDArray[Any] | int = 0) -> Fetched:
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
        return Fetched(store, (starts[:-1] + rows - begin).astype(np.int32))

    def _small(self, fetched: Rows, windows: Rows, starts: Rows, total: int) -> Stored:
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
        return Stored(
            observation={name: from_host(leaf) for name, leaf in self._scaler.observation(observation).items()},
            position=int32(_pad(position, missing)),
            next_position=int32(_pad(position + 1, missing)),
            reach=int32(_pad(reach, missing)),
            action=from_host(space.to_unit(action) if isinstance(space, Continuous) else action),
            episode=int32(_pad(windows, missing)),
            starts=int32(starts),
            reward=_column(self._scaler.reward(np.asarray(log.reward[fetched])), missing) if needs_reward else None,  # type: ignore[index]
            terminated=_column(log.terminated[fetched], missing) if "terminated" in self._keep.columns else None,
            mask=None if log.action_mask is None else from_host(np.asarray(log.action_mask[stored])),
            weight=None if log.weight is None else _column(log.weight[fetched] / self._mean_weight, missing),
        )

    @cached_property
    def _mean_weight(self) -> float:
        rows = self._targets if "reward" in self._keep.columns else self._decisions
        return mean_weight(np.asarray(self._log.weight), rows)

    @cached_property
    def _starts(self) -> Rows:
        return np.asarray(self._log.starts, np.int64)

    @cached_property
    def _open(self) -> NDArray[np.bool_]:
        """Return the episodes [E] whose last step is truncated and has no known next observation."""
        last = self._starts[1:] - 1
        unknown = np.asarray(self._log.next_position[last]) == np.asarray(self._log.position[last])
        return np.asarray(unknown & ~np.asarray(self._log.terminated[last]))

    def _ends(self, rows: Rows) -> Rows:
        return np.asarray(self._starts[np.asarray(self._log.episode[rows]) + 1] - 1)

    def _reach(self, rows: Rows) -> Rows:
        return np.asarray(self._ends(rows) - self._open[np.asarray(self._log.episode[rows])])

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
        if not self._open.any():
            return self._decisions
        episodes = np.arange(len(self._open)) if self._episodes is None else self._episodes
        return ranges(self._starts[episodes], self._starts[episodes + 1] - self._open[episodes])


def _span(unit: Unit) -> int:
    """Return the largest number of rows that a sample needs."""
    if isinstance(unit, Window):
        return unit.burn_in + unit.length
    return unit.n_step if isinstance(unit, NStep) else 1


def _lengths(windows: Rows, last: NDArray[np.bool_]) -> Rows:
    """Return the length of the window of each fetched row [J]."""
    counts = np.bincount(windows, minlength=int(last.sum()))
    return np.asarray(counts[windows])


def _pad(values: NDArray[Any], missing: int) -> NDArray[Any]:
    return np.concatenate([values, np.repeat(values[-1:], missing, axis=0)]) if missing else values


def _column(values: NDArray[Any], missing: int) -> Any:
    return from_host(_pad(np.asarray(values), missing))
