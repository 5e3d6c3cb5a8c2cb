"""Stores of segments, and the orders of their samples: whole segments, in epochs or among live segments.

A segment is the part of one collection from one copy of an environment. `prepare` of a phase adds the columns that
collection does not give. Letters: `C` segments in a store, `T` steps of a segment, `W` copies, `B` batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.contract import StoreSpec
from tidelog.algorithms.sampling import SampleData
from tidelog.errors import ConfigError

Columns = dict[str, Any]  # by name: arrays [C, T, ...], or pytrees of them
MOST = 2**31 - 1


class Lifetimes(NamedTuple):
    """The lifetime of segments in a store that no phase empties: limited by uses and age.

    Samples are whole segments in such a store.
    """

    uses: jax.Array  # [C] int32: number of draws of each; MOST for an empty slot
    ages: jax.Array  # [C] int32: updates from the store since each was added
    max_use: jax.Array  # int32
    max_staleness: jax.Array  # int32


class Segments(NamedTuple):
    """A store of `C` segments, `filled` of them present; with lives a ring, and `filled` is the next slot."""

    columns: Columns
    filled: jax.Array  # int32
    lives: Lifetimes | None = None

    @property
    def live(self) -> jax.Array | None:
        """Which segments [C] can be drawn; None means all of them."""
        if self.lives is None:
            return None
        return (self.lives.uses < self.lives.max_use) & (self.lives.ages <= self.lives.max_staleness)


def empty(shapes: Mapping[str, Any], keep: StoreSpec) -> Segments:
    """Return an empty store for segments of the given shapes [any, T, ...]."""
    capacity = keep.capacity or 0

    def zeros(leaf: Any) -> jax.Array:
        return jnp.zeros((capacity, *leaf.shape[1:]), leaf.dtype)

    lives = None
    if keep.max_use is not None or keep.max_staleness is not None:
        limits = (jnp.int32(MOST if most is None else most) for most in (keep.max_use, keep.max_staleness))
        lives = Lifetimes(jnp.full(capacity, MOST, jnp.int32), jnp.zeros(capacity, jnp.int32), *limits)
    return Segments(jax.tree.map(zeros, dict(shapes)), jnp.int32(0), lives)


def added(store: Segments, columns: Mapping[str, Any]) -> Segments:
    """Add `W` segments; a full store starts again at slot 0. Columns outside the store are left out."""
    capacity = jax.tree.leaves(store.columns)[0].shape[0]
    stored = {name: columns[name] for name in store.columns if name in columns}
    count = jax.tree.leaves(stored)[0].shape[0]
    if store.lives is not None:
        return _replaced(store, stored, (store.filled + jnp.arange(count)) % capacity)
    at = jnp.where(store.filled + count > capacity, 0, store.filled)

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new, at, axis=0)

    now = store.columns | jax.tree.map(put, {name: store.columns[name] for name in stored}, stored)
    return store._replace(columns=now, filled=at + count)


def _replaced(store: Segments, stored: Columns, slots: jax.Array) -> Segments:
    """Return the ring with new segments at `slots` [W], with use and age 0."""
    lives: Any = store.lives
    old = {name: store.columns[name] for name in stored}
    put = jax.tree.map(lambda leaf, new: leaf.at[slots].set(new, unique_indices=True), old, stored)
    lives = lives._replace(uses=lives.uses.at[slots].set(0), ages=lives.ages.at[slots].set(0))
    return Segments(store.columns | put, (slots[-1] + 1) % lives.uses.shape[0], lives)


def drawn(store: Segments, rows: jax.Array) -> Segments:
    """Return the store after an update: one more use of segments at `rows` [B], all segments one update older."""
    lives: Any = store.lives
    return store._replace(lives=lives._replace(uses=lives.uses.at[rows].add(1), ages=lives.ages + 1))


def looked_at(store: Segments) -> Columns:
    """Return the columns as a phase reads all of them at once: segments that are not live have no valid steps."""
    if store.live is None:
        return store.columns
    return store.columns | {"valid": store.columns["valid"] & store.live[:, None]}


@dataclass(frozen=True)
class Whole:
    """A sample is a segment, or one of its `num_chunks` equal parts."""

    num_chunks: int = 1

    def rows(self, store: Segments) -> tuple[int, None]:
        """Return all chunks of all segments."""
        return jax.tree.leaves(store.columns)[0].shape[0] * self.num_chunks, None

    def gather(self, store: Segments, rows: jax.Array) -> SampleData:
        """Return columns [B, T, ...] at `rows` [B], with lives also `age` [B], and the steps that are decisions."""

        def cut(leaf: jax.Array) -> jax.Array:
            count, steps = leaf.shape[:2]
            parts = leaf.reshape(count * self.num_chunks, steps // self.num_chunks, *leaf.shape[2:])
            return parts.at[rows].get(mode="promise_in_bounds")

        data = jax.tree.map(cut, store.columns)
        if store.lives is not None:
            data["age"] = store.lives.ages[rows]
        return SampleData(data, None, data["valid"])


class Shuffled(NamedTuple):
    """The order of an epoch, the number of batches already drawn, and the key of the next order."""

    order: jax.Array  # [count] int32
    drawn: jax.Array  # int32
    key: jax.Array


@dataclass(frozen=True)
class Epochs:
    """Every sample once in each epoch, in a new random order each epoch; the batch size divides their number.

    The order does not depend on feedback.
    """

    def init(self, count: int, key: jax.Array | None = None) -> Shuffled:
        """Return the order of the first epoch, from the key only."""
        if key is None:
            raise TypeError("Epochs.init needs a key, got None. fix: pass key=jax.random.key(seed)")
        return Shuffled(_shuffled(key, count), jnp.int32(0), key)

    def draw(
        self, state: Shuffled, key: jax.Array, size: int, count: int, progress: jax.Array
    ) -> tuple[jax.Array, None]:
        """Return indices [size]: the next part of the epoch's order."""
        return jax.lax.dynamic_slice_in_dim(state.order, state.drawn * size, size), None

    def learn(self, state: Shuffled, indices: jax.Array, priority: jax.Array | None) -> Shuffled:
        """Return the state one batch later, or at the beginning of a new epoch."""
        count = state.order.shape[0]
        drawn = state.drawn + 1
        ended = drawn == count // indices.shape[0]
        key = jnp.where(ended, jax.random.fold_in(state.key, 1), state.key)
        order = jax.lax.cond(ended, lambda: _shuffled(key, count), lambda: state.order)
        return Shuffled(order, jnp.where(ended, 0, drawn), key)


@dataclass(frozen=True)
class LiveUniform:
    """Live samples, uniform, without repeats in a batch; fewer live samples than the batch size repeat equally often.

    A draw is one use, and makes all samples of the store one update older.
    """

    uses_up: ClassVar[bool] = True

    def init(self, count: int, key: jax.Array | None = None) -> None:
        """Return no state: the store holds which samples are live."""

    def draw(
        self, state: None, key: jax.Array, size: int, count: int, progress: jax.Array, live: jax.Array
    ) -> tuple[jax.Array, None]:
        """Return indices [size] of `live` samples [count]; at least one must be live."""
        return _cyclic(live, key, jnp.arange(size)), None

    def learn(self, state: None, indices: jax.Array, priority: jax.Array | None) -> None:
        """Return no state."""


class PassState(NamedTuple):
    """The number of samples drawn so far, and the key of the orders."""

    samples: jax.Array  # int32
    key: jax.Array


@dataclass(frozen=True)
class LivePasses:
    """Live samples, pass after pass, each pass in its own random order; a draw is not a use.

    A batch that goes beyond the end of a pass continues at its beginning: passes are exact where the batch size divides
    the number of live samples.
    """

    uses_up: ClassVar[bool] = False

    def init(self, count: int, key: jax.Array | None = None) -> PassState:
        """Return the state before the first pass."""
        if key is None:
            raise TypeError("LivePasses.init needs a key, got None. fix: pass key=jax.random.key(seed)")
        return PassState(jnp.int32(0), key)

    def draw(
        self, state: PassState, key: jax.Array, size: int, count: int, progress: jax.Array, live: jax.Array
    ) -> tuple[jax.Array, None]:
        """Return indices [size] of `live` samples [count]; at least one must be live."""
        number = state.samples // jnp.maximum(jnp.sum(live), 1)
        return _cyclic(live, jax.random.fold_in(state.key, number), state.samples + jnp.arange(size)), None

    def learn(self, state: PassState, indices: jax.Array, priority: jax.Array | None) -> PassState:
        """Return the state one batch later."""
        return state._replace(samples=state.samples + indices.shape[0])


def _cyclic(live: jax.Array, key: jax.Array, places: jax.Array) -> jax.Array:
    """Return the samples at `places` [size] of a random order of the `live` ones [count], cyclically."""
    order = jnp.argsort(jnp.where(live, jax.random.uniform(key, live.shape), jnp.inf))
    return order[places % jnp.maximum(jnp.sum(live), 1)].astype(jnp.int32)


def _shuffled(key: jax.Array, count: int) -> jax.Array:
    """Return a permutation [count]: sorting random bits once is cheaper on CPU than `jax.random.permutation`."""
    return jnp.argsort(jax.random.bits(key, (count,))).astype(jnp.int32)


def check_divides(what: str, part: int, whole: str, count: int) -> None:
    """Raise ConfigError unless `part` divides `count`."""
    if count % part:
        raise ConfigError(
            f"{what} = {part} does not divide {whole} = {count}, but every epoch uses every step once",
            fix=f"choose a divisor of {count}",
        )


def check_lives(config: Any, store: str, updates: int) -> None:
    """Raise ConfigError unless a new segment stays live through all `updates` of its store.

    `config` has the fields `<store>_capacity`, `<store>_max_use` and `<store>_max_staleness`.
    """
    owner = type(config).__name__
    capacity, most, oldest = (getattr(config, f"{store}_{name}") for name in ("capacity", "max_use", "max_staleness"))
    if capacity < config.num_envs:
        raise ConfigError(
            f"{owner}.{store}_capacity = {capacity} is less than num_envs = {config.num_envs}; a "
            "collection adds one segment per environment",
            fix=f"use at least {config.num_envs}",
        )
    each = -(-config.minibatch // config.num_envs)
    if most <= updates * each:
        raise ConfigError(
            f"{owner}.{store}_max_use = {most} and update_per_collect = {config.update_per_collect}: a "
            f"minibatch has {config.minibatch} segments and draws each of {config.num_envs} new "
            f"segments up to {each} times per update; the {store} store could be empty before the next "
            "collection",
            fix=f"allow at least {updates * each + 1} uses",
        )
    if oldest is not None and oldest < updates:
        raise ConfigError(
            f"{owner}.{store}_max_staleness = {oldest} and update_per_collect = "
            f"{config.update_per_collect}: the {store} store would be empty before the next collection",
            fix=f"allow at least {updates} updates",
        )
