"""A log that stays on disk: the rows of a block of updates are drawn first, then fetched, then trained on.

What is fetched is a small log of its own, with the windows that the drawn rows need, so that units gather from it as
they gather from a whole one and the arithmetic is the same to the last bit. Draws with an order that learns see the
priorities of the beginning of their block; blocks begin at fixed updates, so that bits do not depend on the clock.

Letters: `R` rows drawn, `J` rows fetched, `M` stored observations.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog.algorithms.core.contract import StoreSpec
from tidelog.algorithms.core.sampling import LoggedAction, NStep, Sampler, Stored, Unit, Window
from tidelog.data.core.log_columns import ranges
from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.errors import LogError
from tidelog.training.engine.stores import check_columns, mean_weight
from tidelog.types import Continuous

Rows = NDArray[np.int64]
LONGEST_BLOCK = 500  # updates
MOST_BYTES = 64 << 20  # of observations in one block


class Fetched(NamedTuple):
    """What a block reads: a small store, and where the drawn rows stand in it, [R] int32."""

    store: Stored
    slots: NDArray[np.int32]


def is_mapped(log: Log) -> bool:
    """Whether the log's observations stay on disk."""
    return any(isinstance(leaf, np.memmap) for leaf in log.observation.values())


class Stream:
    """A store whose columns are fetched as they are needed; `episodes` are the ordinals that may be drawn."""

    def __init__(self, log: Log, keep: StoreSpec, scaler: Scaler, episodes: NDArray[Any] | None = None) -> None:
        check_columns(log, keep)
        self._log, self._keep, self._scaler, self._episodes = log, keep, scaler, episodes
        if "reward" in keep.columns and self.count(NStep(1, 1.0)) == 0:
            raise LogError("no step of this log can be a target of value learning: what followed is never known")
        if log.weight is not None:
            self._mean_weight  # noqa: B018 - weights that are all 0 are refused at once

    def count(self, unit: Unit) -> int:
        """How many samples there are."""
        table = self._table(unit)
        return self._log.steps if table is None else len(table)

    def rows(self, unit: Unit, indices: NDArray[Any]) -> Rows:
        """The log's rows at indices into the samples."""
        table = self._table(unit)
        return np.asarray(indices if table is None else table[indices], np.int64)

    def block(self, draw: Sampler) -> int:
        """How many updates are fetched at once."""
        width = sum(leaf[:1].nbytes for leaf in self._log.observation.values())
        return max(1, min(LONGEST_BLOCK, MOST_BYTES // (draw.size * (_span(draw.unit) + 1) * max(width, 1))))

    def example(self, draw: Sampler) -> Stored:
        """A store of the right shapes, for tracing."""
        return self.fetch(np.zeros(draw.size, np.int64), draw.unit).store

    def fetch(self, rows: Rows, unit: Unit, offset: NDArray[Any] | int = 0) -> Fetched:
        """The small store around the drawn rows [R]; always of one size for one R.

        Of windows, `offset` [R] says where among the steps that count each drawn row stands.
        """
        before, span = offset + (unit.burn_in if isinstance(unit, Window) else 0), _span(unit)
        first, end = self._starts[self._log.episode[rows]], self._ends(rows)
        begin = np.maximum(first, rows - before)
        lengths = np.minimum(end, rows + span - before - 1) - begin + 1  # of each window
        behind = np.cumsum(lengths)
        total = len(rows) * span
        starts = np.append(behind - lengths, behind[-1])  # what follows the last window is padding, and never read
        windows = np.repeat(np.arange(len(rows)), lengths)
        taken = np.arange(behind[-1]) - starts[windows] + begin[windows]
        store = self._small(taken, windows, starts, total)
        return Fetched(store, (starts[:-1] + rows - begin).astype(np.int32))

    def _small(self, taken: Rows, windows: Rows, starts: Rows, total: int) -> Stored:
        """Rows `taken` [J] of `windows` [J] as a store of `total` rows, the observation after each window kept too."""
        log, missing = self._log, total - len(taken)
        last = np.append(windows[1:] != windows[:-1], True)
        position = np.arange(len(taken)) + windows
        stored = np.zeros(total + len(starts) - 1, np.int64)
        stored[position] = log.position[taken]
        stored[position[last] + 1] = log.next_position[taken[last]]
        reach = np.minimum(
            self._reach(taken) - taken + np.arange(len(taken)), starts[windows] + _lengths(windows, last) - 1
        )
        observation = {name: np.asarray(leaf[stored]) for name, leaf in log.observation.items()}
        space = log.spec.action
        action = _pad(np.asarray(log.action[taken]), missing)
        needs_reward = "reward" in self._keep.columns and log.reward is not None
        return Stored(
            observation={name: jnp.asarray(leaf) for name, leaf in self._scaler.observation(observation).items()},
            position=_index(_pad(position, missing)),
            next_position=_index(_pad(position + 1, missing)),
            reach=_index(_pad(reach, missing)),
            action=jnp.asarray(space.to_unit(action) if isinstance(space, Continuous) else action),
            episode=_index(_pad(windows, missing)),
            starts=_index(starts),
            reward=_column(self._scaler.reward(np.asarray(log.reward[taken])), missing) if needs_reward else None,  # type: ignore[index]
            terminated=_column(log.terminated[taken], missing) if "terminated" in self._keep.columns else None,
            mask=None if log.action_mask is None else jnp.asarray(np.asarray(log.action_mask[stored])),
            weight=None if log.weight is None else _column(log.weight[taken] / self._mean_weight, missing),
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
        """Episodes [E] whose last step is truncated and followed by nothing known."""
        last = self._starts[1:] - 1
        unknown = np.asarray(self._log.next_position[last]) == np.asarray(self._log.position[last])
        return np.asarray(unknown & ~np.asarray(self._log.terminated[last]))

    def _ends(self, rows: Rows) -> Rows:
        return np.asarray(self._starts[np.asarray(self._log.episode[rows]) + 1] - 1)

    def _reach(self, rows: Rows) -> Rows:
        return np.asarray(self._ends(rows) - self._open[np.asarray(self._log.episode[rows])])

    def _table(self, unit: Unit) -> Rows | None:
        """Rows that may be drawn, or None where all may."""
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
    """How many rows a sample may need."""
    if isinstance(unit, Window):
        return unit.burn_in + unit.length
    return unit.n_step if isinstance(unit, NStep) else 1


def _lengths(windows: Rows, last: NDArray[np.bool_]) -> Rows:
    """The length of the window of each fetched row [J]."""
    counts = np.bincount(windows, minlength=int(last.sum()))
    return np.asarray(counts[windows])


def _pad(values: NDArray[Any], missing: int) -> NDArray[Any]:
    return np.concatenate([values, np.repeat(values[-1:], missing, axis=0)]) if missing else values


def _column(values: NDArray[Any], missing: int) -> Any:
    return jnp.asarray(_pad(np.asarray(values), missing))


def _index(values: NDArray[Any]) -> Any:
    return jnp.asarray(values.astype(np.int32))
