"""How a phase reads a store: in which unit, in which order, how many at a time.

A unit gathers samples out of a store; an order chooses their rows. Both are values with pure methods, so that a new
unit or order is one class and the loop stays as it is.

Letters: `B` batch, `N` steps, `M` stored observations, `T` steps of a window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp

from tidelog.algorithms.contract import Batch
from tidelog.types import Decision, Observation, Transition


class Stored(NamedTuple):
    """A log on the device, in the units that networks see; columns that no phase reads are None."""

    observation: Observation  # leaves [M, ...]
    position: jax.Array  # [N] int32: where the observation of step i is stored
    next_position: jax.Array  # [N] int32: where the observation after it is stored
    reach: jax.Array  # [N] int32: last row that a window starting here may use
    action: jax.Array  # [N], [N, M] or [N, A]
    episode: jax.Array  # [N] int32
    starts: jax.Array  # [E + 1] int32: the first row of each episode, and N
    usable: jax.Array | None = None  # [U] int32: rows that can be a target of value learning; None: all
    reward: jax.Array | None = None  # [N] or [N, K]
    terminated: jax.Array | None = None  # [N] bool
    mask: jax.Array | None = None  # [M, A] bool
    weight: jax.Array | None = None  # [N]


class Gathered(NamedTuple):
    """Samples as a unit gathers them: data, the log's own weights, and which steps of windows count."""

    data: Any
    weight: jax.Array | None
    valid: jax.Array | None = None


class Unit(Protocol):
    """What one sample is; `store` is a log's, or one of segments where the unit is of those."""

    def rows(self, store: Any) -> tuple[int, jax.Array | None]:
        """How many samples there are, and their rows (None: 0 .. count - 1)."""

    def gather(self, store: Any, rows: jax.Array) -> Gathered:
        """The samples at `rows` [B]."""


class Order(Protocol):
    """In which order samples are drawn; `init` makes the state that the loop carries for it."""

    def init(self, count: int, key: jax.Array | None = None) -> Any:
        """The order's state over `count` samples; the key is for orders that are random from the start."""

    def draw(
        self, state: Any, key: jax.Array, size: int, count: int, progress: jax.Array
    ) -> tuple[jax.Array, jax.Array | None]:
        """Indices [size] into the samples and their importance weights or None, at a share of the run in [0, 1]."""

    def learn(self, state: Any, indices: jax.Array, priority: jax.Array | None) -> Any:
        """The state after the step said what it thought of its samples."""


class LivingOrder(Protocol):
    """An order over a store whose samples have lives: it is also told which of them are `live`, [count] bool."""

    def init(self, count: int, key: jax.Array | None = None) -> Any:
        """The order's state."""

    def draw(
        self, state: Any, key: jax.Array, size: int, count: int, progress: jax.Array, live: jax.Array
    ) -> tuple[jax.Array, jax.Array | None]:
        """Indices [size] into the samples that live, and their importance weights or None."""

    def learn(self, state: Any, indices: jax.Array, priority: jax.Array | None) -> Any:
        """The state after the step said what it thought of its samples."""


@dataclass(frozen=True)
class Uniform:
    """Every sample equally likely, with replacement."""

    def init(self, count: int, key: jax.Array | None = None) -> None:
        """Nothing is remembered."""

    def draw(self, state: None, key: jax.Array, size: int, count: int, progress: jax.Array) -> tuple[jax.Array, None]:
        """Indices [size], each uniform on `0 .. count - 1`."""
        return jax.random.randint(key, (size,), 0, count), None

    def learn(self, state: None, indices: jax.Array, priority: jax.Array | None) -> Any:
        """Nothing is learnt."""
        return state


@dataclass(frozen=True)
class Choice:
    """A decision alone: what was seen and what was done, without what followed."""

    def rows(self, store: Stored) -> tuple[int, None]:
        """Every step of the log."""
        return store.position.shape[0], None

    def gather(self, store: Stored, rows: jax.Array, limit: jax.Array | None = None) -> Gathered:
        """Decisions at `rows` [B]."""
        here = store.position[rows]
        mask = None if store.mask is None else store.mask[here]
        return Gathered(Decision(_at(store.observation, here), store.action[rows], mask), _weight(store, rows))

    def end(self, store: Stored, rows: jax.Array) -> jax.Array:
        """The last row [B] of each row's episode."""
        return store.starts[store.episode[rows] + 1] - 1


@dataclass(frozen=True)
class Row:
    """A decision and what followed within `n_step` steps, never across the end of an episode.

    The n-step return is not corrected for the logger's choices in between: it favours what the logger did.
    """

    n_step: int
    discount: Any  # float, or a tracer in a population

    def rows(self, store: Stored) -> tuple[int, jax.Array | None]:
        """The steps whose window ends in a terminal or a known observation."""
        return (store.position.shape[0], None) if store.usable is None else (store.usable.shape[0], store.usable)

    def gather(self, store: Stored, rows: jax.Array, limit: jax.Array | None = None) -> Gathered:
        """Transitions at `rows` [B], their steps no later than row `limit` [B]."""
        if store.reward is None or store.terminated is None:
            raise TypeError("a Row reads the columns 'reward' and 'terminated': the algorithm must Keep them")
        last = self.last(store, rows, limit)
        reward = store.reward[rows]
        for k in range(1, self.n_step):
            inside = (rows + k <= last).reshape(-1, *[1] * (reward.ndim - 1))
            reward += jnp.where(inside, self.discount**k * store.reward[jnp.minimum(rows + k, last)], 0.0)
        length = last - rows + 1
        factor = self.discount if self.n_step == 1 else self.discount ** length.astype(jnp.float32)
        here, after = store.position[rows], store.next_position[last]
        row = Transition(
            observation=_at(store.observation, here),
            action=store.action[rows],
            reward=reward,
            discount=factor * (1.0 - store.terminated[last].astype(jnp.float32)),
            next_observation=_at(store.observation, after),
            mask=None if store.mask is None else store.mask[here],
            next_mask=None if store.mask is None else store.mask[after],
        )
        return Gathered(row, _weight(store, rows))

    def last(self, store: Stored, rows: jax.Array, limit: jax.Array | None = None) -> jax.Array:
        """The last row [B] whose reward is summed."""
        last = jnp.minimum(rows + (self.n_step - 1), store.reach[rows])
        return last if limit is None else jnp.minimum(last, limit)

    def end(self, store: Stored, rows: jax.Array) -> jax.Array:
        """The last row [B] of each row's episode that value learning can use."""
        return store.reach[rows]


@dataclass(frozen=True)
class Window:
    """`length` steps in a row of one episode, after `burn_in` steps that only warm up a memory.

    The drawn row is the first whose loss counts. Steps before the episode's start or after its end are not real.
    """

    unit: Row | Choice
    length: int
    burn_in: int = 0

    def rows(self, store: Stored) -> tuple[int, jax.Array | None]:
        """A window can begin wherever its unit can."""
        return self.unit.rows(store)

    def gather(self, store: Stored, rows: jax.Array) -> Gathered:
        """Windows [B, T] that begin `burn_in` before `rows` [B], T = burn_in + length."""
        offsets = jnp.arange(-self.burn_in, self.length)
        grid = rows[:, None] + offsets
        begin, end = store.starts[store.episode[rows]][:, None], self.unit.end(store, rows)[:, None]
        real = (grid >= begin) & (grid <= end)
        within = jnp.clip(grid, begin, end)
        limit = jnp.broadcast_to(within[:, -1:], within.shape)
        data, weight, _ = self.unit.gather(store, within.reshape(-1), limit.reshape(-1))
        data, weight = jax.tree.map(lambda leaf: leaf.reshape(*within.shape, *leaf.shape[1:]), (data, weight))
        data = data._replace(real=real)
        if isinstance(self.unit, Row):
            last = self.unit.last(store, within.reshape(-1), limit.reshape(-1)).reshape(within.shape)
            data = data._replace(last=jnp.clip(last - grid[:, :1], 0, len(offsets) - 1))
        return Gathered(data, weight, real & (offsets >= 0))


@dataclass(frozen=True)
class Draw:
    """One batch of a phase: `size` samples of a unit from a store, in an order."""

    store: str
    size: int
    unit: Unit
    order: Order | LivingOrder = Uniform()

    def batch(self, store: Any, state: Any, key: jax.Array, progress: jax.Array) -> tuple[Batch, jax.Array]:
        """A batch, and the indices that its feedback goes back to."""
        count, rows = self.unit.rows(store)
        live, choices = getattr(store, "live", None), cast(Any, self.order).draw
        choices = choices if live is None else partial(choices, live=live)
        indices, importance = choices(state, key, self.size, count, progress)
        return self.at(store, indices if rows is None else rows[indices], importance), indices

    def at(self, store: Any, rows: jax.Array, importance: jax.Array | None = None) -> Batch:
        """The batch of given rows [B] of the store."""
        data, weight, valid = self.unit.gather(store, rows)
        if importance is not None:
            each = importance if valid is None else jnp.broadcast_to(importance[:, None], valid.shape)
            weight = each if weight is None else each * weight
        return Batch(data, rows, weight, valid)


def _weight(store: Stored, rows: jax.Array) -> jax.Array | None:
    return None if store.weight is None else store.weight[rows]


def _at(observation: Observation, positions: jax.Array) -> Observation:
    return {name: leaf[positions] for name, leaf in observation.items()}
