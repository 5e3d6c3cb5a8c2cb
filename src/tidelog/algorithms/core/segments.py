"""Stores of segments, and how phases read them: whole segments, epoch by epoch or among those that still live.

A segment is what one copy of an environment brought in one collection. What it holds beyond what was collected is
prepared before a phase visits it. Letters: `C` segments in a store, `T` steps of a segment, `W` copies, `B` batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.contract import StoreSpec
from tidelog.algorithms.core.sampling import Gathered
from tidelog.errors import ConfigError

Columns = dict[str, Any]  # by name: arrays [C, T, ...], or pytrees of them
MOST = 2**31 - 1


class Lives(NamedTuple):
    """How long segments stay in a store that is not emptied: until they were drawn often enough, or grew too old.

    Samples are whole segments there.
    """

    uses: jax.Array  # [C] int32: how often each was drawn; MOST where none has come yet
    ages: jax.Array  # [C] int32: updates drawn from the store since each came
    max_use: jax.Array  # int32
    max_staleness: jax.Array  # int32


class Segments(NamedTuple):
    """A store of `C` segments, of which the first `filled` are there; with lives a ring, the next one's place there."""

    columns: Columns
    filled: jax.Array  # int32
    lives: Lives | None = None

    @property
    def live(self) -> jax.Array | None:
        """Which segments [C] can be drawn, or None where all of them can."""
        if self.lives is None:
            return None
        return (self.lives.uses < self.lives.max_use) & (self.lives.ages <= self.lives.max_staleness)


def empty(shapes: Mapping[str, Any], keep: StoreSpec) -> Segments:
    """A store for segments of the given shapes [any, T, ...], nothing in it."""
    capacity = keep.capacity or 0

    def made(leaf: Any) -> jax.Array:
        return jnp.zeros((capacity, *leaf.shape[1:]), leaf.dtype)

    lives = None
    if keep.max_use is not None or keep.max_staleness is not None:
        limits = (jnp.int32(MOST if most is None else most) for most in (keep.max_use, keep.max_staleness))
        lives = Lives(jnp.full(capacity, MOST, jnp.int32), jnp.zeros(capacity, jnp.int32), *limits)
    return Segments(jax.tree.map(made, dict(shapes)), jnp.int32(0), lives)


def added(store: Segments, columns: Mapping[str, Any]) -> Segments:
    """The store with `W` more segments; one that is full begins anew. Columns it does not keep are left out."""
    capacity = jax.tree.leaves(store.columns)[0].shape[0]
    kept = {name: columns[name] for name in store.columns if name in columns}
    count = jax.tree.leaves(kept)[0].shape[0]
    if store.lives is not None:
        return _replaced(store, kept, (store.filled + jnp.arange(count)) % capacity)
    at = jnp.where(store.filled + count > capacity, 0, store.filled)

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new, at, axis=0)

    now = store.columns | jax.tree.map(put, {name: store.columns[name] for name in kept}, kept)
    return store._replace(columns=now, filled=at + count)


def _replaced(store: Segments, kept: Columns, slots: jax.Array) -> Segments:
    """The ring with other segments at `slots` [W], which begin their lives."""
    lives: Any = store.lives
    old = {name: store.columns[name] for name in kept}
    put = jax.tree.map(lambda leaf, new: leaf.at[slots].set(new, unique_indices=True), old, kept)
    lives = lives._replace(uses=lives.uses.at[slots].set(0), ages=lives.ages.at[slots].set(0))
    return Segments(store.columns | put, (slots[-1] + 1) % lives.uses.shape[0], lives)


def drawn(store: Segments, rows: jax.Array) -> Segments:
    """The store after an update was drawn from it: segments at `rows` [B] once more used, all of them older."""
    lives: Any = store.lives
    return store._replace(lives=lives._replace(uses=lives.uses.at[rows].add(1), ages=lives.ages + 1))


def looked_at(store: Segments) -> Columns:
    """The columns as a phase sees all of them at once: in segments that do not live nothing is valid."""
    if store.live is None:
        return store.columns
    return store.columns | {"valid": store.columns["valid"] & store.live[:, None]}


@dataclass(frozen=True)
class Whole:
    """One sample is a segment, or one of the `pieces` equal parts that it is cut into."""

    pieces: int = 1

    def rows(self, store: Segments) -> tuple[int, None]:
        """Every piece of every segment."""
        return jax.tree.leaves(store.columns)[0].shape[0] * self.pieces, None

    def gather(self, store: Segments, rows: jax.Array) -> Gathered:
        """Columns [B, T, ...] at `rows` [B], with lives also `age` [B], and which of their steps were decisions."""

        def cut(leaf: jax.Array) -> jax.Array:
            count, steps = leaf.shape[:2]
            parts = leaf.reshape(count * self.pieces, steps // self.pieces, *leaf.shape[2:])
            return parts.at[rows].get(mode="promise_in_bounds")

        data = jax.tree.map(cut, store.columns)
        if store.lives is not None:
            data["age"] = store.lives.ages[rows]
        return Gathered(data, None, data["valid"])


class Shuffled(NamedTuple):
    """The order of an epoch, how many batches of it were drawn, and what the next order comes from."""

    order: jax.Array  # [count] int32
    drawn: jax.Array  # int32
    key: jax.Array


@dataclass(frozen=True)
class Epochs:
    """Every sample once in each epoch, in an order that every epoch draws anew; the batch size divides their number.

    What comes is known beforehand: it depends on no feedback.
    """

    foreseen: ClassVar[bool] = True

    def init(self, count: int, key: jax.Array | None = None) -> Shuffled:
        """The first epoch's order, which depends on nothing but the key."""
        if key is None:
            raise TypeError("an order of epochs needs a key")
        return Shuffled(_shuffled(key, count), jnp.int32(0), key)

    def draw(
        self, state: Shuffled, key: jax.Array, size: int, count: int, progress: jax.Array
    ) -> tuple[jax.Array, None]:
        """Indices [size]: the next part of the epoch's order."""
        return jax.lax.dynamic_slice_in_dim(state.order, state.drawn * size, size), None

    def learn(self, state: Shuffled, indices: jax.Array, priority: jax.Array | None) -> Shuffled:
        """One batch further, or at the beginning of a new epoch."""
        count = state.order.shape[0]
        drawn = state.drawn + 1
        ended = drawn == count // indices.shape[0]
        key = jnp.where(ended, jax.random.fold_in(state.key, 1), state.key)
        order = jax.lax.cond(ended, lambda: _shuffled(key, count), lambda: state.order)
        return Shuffled(order, jnp.where(ended, 0, drawn), key)


@dataclass(frozen=True)
class Living:
    """Samples that live, uniformly and none twice in a batch; where they are too few for one, all equally often.

    To be drawn is a use, and makes all samples of the store an update older.
    """

    uses_up: ClassVar[bool] = True

    def init(self, count: int, key: jax.Array | None = None) -> None:
        """Nothing is remembered: the store knows who lives."""

    def draw(
        self, state: None, key: jax.Array, size: int, count: int, progress: jax.Array, live: jax.Array
    ) -> tuple[jax.Array, None]:
        """Indices [size] of samples that are `live` [count]; at least one has to be."""
        return _among(live, key, jnp.arange(size)), None

    def learn(self, state: None, indices: jax.Array, priority: jax.Array | None) -> None:
        """Nothing is learnt."""


class Passed(NamedTuple):
    """How many samples were passed, and what orders come from."""

    samples: jax.Array  # int32
    key: jax.Array


@dataclass(frozen=True)
class Passes:
    """Samples that live, pass after pass, each pass in an order of its own; to be drawn uses nothing up.

    A batch that reaches beyond the end of a pass goes on at its beginning, so that passes are exact where the batch
    size divides how many live.
    """

    uses_up: ClassVar[bool] = False

    def init(self, count: int, key: jax.Array | None = None) -> Passed:
        """Before the first pass."""
        if key is None:
            raise TypeError("an order of passes needs a key")
        return Passed(jnp.int32(0), key)

    def draw(
        self, state: Passed, key: jax.Array, size: int, count: int, progress: jax.Array, live: jax.Array
    ) -> tuple[jax.Array, None]:
        """Indices [size] of samples that are `live` [count]; at least one has to be."""
        number = state.samples // jnp.maximum(jnp.sum(live), 1)
        return _among(live, jax.random.fold_in(state.key, number), state.samples + jnp.arange(size)), None

    def learn(self, state: Passed, indices: jax.Array, priority: jax.Array | None) -> Passed:
        """One batch further."""
        return state._replace(samples=state.samples + indices.shape[0])


def _among(live: jax.Array, key: jax.Array, places: jax.Array) -> jax.Array:
    """Who stands at `places` [size] of a random order of those that are `live` [count], again and again."""
    order = jnp.argsort(jnp.where(live, jax.random.uniform(key, live.shape), jnp.inf))
    return order[places % jnp.maximum(jnp.sum(live), 1)].astype(jnp.int32)


def _shuffled(key: jax.Array, count: int) -> jax.Array:
    """A permutation [count]: sorting random bits once is cheaper on CPU than `jax.random.permutation`."""
    return jnp.argsort(jax.random.bits(key, (count,))).astype(jnp.int32)


def check_divides(what: str, part: int, whole: str, count: int) -> None:
    """Raise ConfigError unless `part` divides `count`."""
    if count % part:
        raise ConfigError(f"{what} = {part} does not divide {whole} = {count}: every epoch uses every step once")


def check_lives(config: Any, store: str, updates: int) -> None:
    """Raise ConfigError unless every segment that has just come lives through so many `updates` of its store.

    `config` has the fields `<store>_capacity`, `<store>_max_use` and `<store>_max_staleness`.
    """
    owner = type(config).__name__
    capacity, most, oldest = (getattr(config, f"{store}_{name}") for name in ("capacity", "max_use", "max_staleness"))
    if capacity < config.environments:
        raise ConfigError(
            f"{owner}.{store}_capacity = {capacity} is less than environments = {config.environments}: "
            "a collection brings a segment of every environment"
        )
    each = -(-config.minibatch // config.environments)
    if most <= updates * each:
        raise ConfigError(
            f"{owner}.{store}_max_use = {most} and update_per_collect = {config.update_per_collect}: minibatches of "
            f"{config.minibatch} segments draw each of {config.environments} new ones up to "
            f"{each} times an update, so that the {store} store could be empty before the next collection; "
            f"allow at least {updates * each + 1} uses"
        )
    if oldest is not None and oldest < updates:
        raise ConfigError(
            f"{owner}.{store}_max_staleness = {oldest} and update_per_collect = {config.update_per_collect}: the "
            f"{store} store would be empty before the next collection; allow at least {updates} updates"
        )
