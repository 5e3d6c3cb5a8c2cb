"""Stores of segments, and how phases read them: whole segments, shuffled epoch by epoch.

A segment is what one copy of an environment brought in one collection. What it holds beyond what was collected is
prepared before a phase visits it. Letters: `C` segments in a store, `T` steps of a segment, `W` copies, `B` batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.draws import Gathered
from tidelog.errors import ConfigError

Columns = dict[str, Any]  # by name: arrays [C, T, ...], or pytrees of them


class Segments(NamedTuple):
    """A store of `C` segments, of which the first `filled` are there."""

    columns: Columns
    filled: jax.Array  # int32


def empty(shapes: Mapping[str, Any], capacity: int) -> Segments:
    """A store for segments of the given shapes [any, T, ...], nothing in it."""

    def made(leaf: Any) -> jax.Array:
        return jnp.zeros((capacity, *leaf.shape[1:]), leaf.dtype)

    return Segments(jax.tree.map(made, dict(shapes)), jnp.int32(0))


def added(store: Segments, columns: Mapping[str, Any]) -> Segments:
    """The store with `W` more segments; one that is full begins anew. Columns it does not keep are left out."""
    capacity = jax.tree.leaves(store.columns)[0].shape[0]
    kept = {name: columns[name] for name in store.columns if name in columns}
    count = jax.tree.leaves(kept)[0].shape[0]
    at = jnp.where(store.filled + count > capacity, 0, store.filled)

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new, at, axis=0)

    return Segments(store.columns | jax.tree.map(put, {name: store.columns[name] for name in kept}, kept), at + count)


@dataclass(frozen=True)
class Whole:
    """One sample is a segment, or one of the `pieces` equal parts that it is cut into."""

    pieces: int = 1

    def rows(self, store: Segments) -> tuple[int, None]:
        """Every piece of every segment; a phase visits a store that is full."""
        return jax.tree.leaves(store.columns)[0].shape[0] * self.pieces, None

    def gather(self, store: Segments, rows: jax.Array) -> Gathered:
        """Columns [B, T, ...] at `rows` [B], and which of their steps were decisions."""

        def cut(leaf: jax.Array) -> jax.Array:
            count, steps = leaf.shape[:2]
            parts = leaf.reshape(count * self.pieces, steps // self.pieces, *leaf.shape[2:])
            return parts.at[rows].get(mode="promise_in_bounds")

        data = jax.tree.map(cut, store.columns)
        return Gathered(data, None, data["valid"])


class Shuffled(NamedTuple):
    """The order of an epoch, how many batches of it were drawn, and what the next order comes from."""

    order: jax.Array  # [count] int32
    drawn: jax.Array  # int32
    key: jax.Array


@dataclass(frozen=True)
class Epochs:
    """Every sample once in each epoch, in an order that every epoch draws anew; the batch size divides their number."""

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


def _shuffled(key: jax.Array, count: int) -> jax.Array:
    """A permutation [count]: sorting random bits once is cheaper on CPU than `jax.random.permutation`."""
    return jnp.argsort(jax.random.bits(key, (count,))).astype(jnp.int32)


def check_divides(what: str, part: int, whole: str, count: int) -> None:
    """Raise ConfigError unless `part` divides `count`."""
    if count % part:
        raise ConfigError(f"{what} = {part} does not divide {whole} = {count}: every epoch uses every step once")
