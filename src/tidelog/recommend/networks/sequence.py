"""History encoders: causal networks from a user's events to states.

An encoder reads one feature vector per step and returns one state per step, from the steps up to it; a step that is not
real has the state of an empty history. Letters: `B` batch, `L` steps, `D` size, `F` features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.gru import GRU
from tidelog.networks.mlp import LayerNorm, Linear, drop, from_host, zeros

MakeBody: TypeAlias = Callable[..., Any]  # (generator, size, length, layers, heads) -> a module [B, L, D] -> [B, L, D]


class Reader(eqx.Module):
    """Item vectors [B, L, D], event kinds [B, L] (0 for none) and user features [B, F] -> states [B, L, D]."""

    events: jax.Array  # [kinds + 1, D]
    empty: jax.Array  # [D]
    body: Any
    norm: LayerNorm
    about: jax.Array | None  # [F, D]: user features' weights, added to every state; initially zeros

    @classmethod
    def create(
        cls,
        generator: np.random.Generator,
        make: MakeBody,
        size: int,
        kinds: int,
        length: int,
        layers: int,
        heads: int,
        features: int = 0,
    ) -> Reader:
        """Return an encoder of states up to `length` steps long, with this number of user features."""
        body = make(generator, size, length, layers, heads)
        events = from_host(0.1 * generator.standard_normal((kinds + 1, size)))
        empty = from_host(generator.standard_normal(size))
        about = zeros(features, size) if features else None
        return cls(events, empty, body, LayerNorm(from_host(np.ones(size)), zeros(size)), about)

    def __call__(
        self,
        vectors: jax.Array,
        events: jax.Array,
        dropout: jax.Array | float | None = None,
        key: jax.Array | None = None,
        *,
        user: jax.Array | None = None,
    ) -> jax.Array:
        real = events > 0
        x = math.sqrt(vectors.shape[-1]) * vectors + self.events[events]
        x = jnp.where(real[..., None], x, 0.0)
        if dropout is not None and key is not None:
            x = drop(x, dropout, key)
        output = self.body(x, real, dropout, key)
        states = jnp.where(real[..., None], output, self.empty)
        if self.about is not None and user is not None:
            states = states + (user @ self.about)[:, None]
        return self.norm(states)


class Mean(eqx.Module):
    """The mean of all steps up to each, then one layer."""

    layer: Linear

    def __call__(self, x: jax.Array, real: jax.Array, dropout: Any = None, key: Any = None) -> jax.Array:
        count = jnp.maximum(jnp.cumsum(real, axis=1), 1)[..., None]
        return self.layer(jnp.cumsum(x, axis=1) / count)


class Recurrent(eqx.Module):
    """A gated recurrent unit, then one layer."""

    unit: GRU
    layer: Linear

    def __call__(self, x: jax.Array, real: jax.Array, dropout: Any = None, key: Any = None) -> jax.Array:
        return self.layer(self.unit.unroll(x, real))


class Attention(eqx.Module):
    """Blocks of causal self-attention over positions counted from the first step (Kang and McAuley 2018).

    A step after the last position uses the last one: later positions would never be trained.
    """

    positions: jax.Array  # [P, D]
    blocks: tuple[Block, ...]

    def __call__(self, x: jax.Array, real: jax.Array, dropout: Any = None, key: Any = None) -> jax.Array:
        steps = x.shape[1]
        x = x + self.positions[jnp.minimum(jnp.arange(steps), len(self.positions) - 1)]
        seen = jnp.tril(jnp.ones((steps, steps), bool)) & real[:, None, :]  # [B, L, L]
        seen = seen | jnp.eye(
            steps, dtype=bool
        )  # a step that is not real attends to itself only, and no other step to it
        for i, block in enumerate(self.blocks):
            x = block(x, seen, dropout, None if key is None else jax.random.fold_in(key, i + 1))
        return x


class Block(eqx.Module):
    """Self-attention over the steps, then a layer for each step; both with residual connections."""

    before: LayerNorm
    queries: Linear
    keys: Linear
    values: Linear
    out: Linear
    between: LayerNorm
    wide: Linear
    narrow: Linear
    heads: int = eqx.field(static=True)

    @classmethod
    def create(cls, generator: np.random.Generator, size: int, heads: int) -> Block:
        """Return a block with small weights: its initial output is close to its input."""

        def layer() -> Linear:
            return Linear.create(generator, size, size, 1.0)

        norms = [LayerNorm(from_host(np.ones(size)), zeros(size)) for _ in range(2)]
        return cls(norms[0], layer(), layer(), layer(), layer(), norms[1], layer(), layer(), heads)

    def __call__(self, x: jax.Array, seen: jax.Array, dropout: Any, key: jax.Array | None) -> jax.Array:
        one, two = (None, None) if key is None else jax.random.split(key)
        x = x + _dropped(self._attend(self.before(x), seen), dropout, one)
        return x + _dropped(self.narrow(jax.nn.relu(self.wide(self.between(x)))), dropout, two)

    def _attend(self, x: jax.Array, seen: jax.Array) -> jax.Array:
        batch, steps, size = x.shape

        def heads(layer: Linear) -> jax.Array:
            return layer(x).reshape(batch, steps, self.heads, size // self.heads)

        match = jnp.einsum("bqhd,bkhd->bhqk", heads(self.queries), heads(self.keys)) / math.sqrt(size / self.heads)
        share = jax.nn.softmax(jnp.where(seen[:, None], match, -jnp.inf), axis=-1)
        output = jnp.einsum("bhqk,bkhd->bqhd", share, heads(self.values))
        return self.out(output.reshape(batch, steps, size))


def _dropped(x: jax.Array, dropout: Any, key: jax.Array | None) -> jax.Array:
    return x if dropout is None or key is None else drop(x, dropout, key)


def mean(generator: np.random.Generator, size: int, length: int, layers: int, heads: int) -> Mean:
    """Return the order-independent encoder."""
    return Mean(Linear.create(generator, size, size, 1.0))


def recurrent(generator: np.random.Generator, size: int, length: int, layers: int, heads: int) -> Recurrent:
    """Return one unit as wide as the items' vectors."""
    return Recurrent(GRU.create(generator, size, size), Linear.create(generator, size, size, 1.0))


def attention(generator: np.random.Generator, size: int, length: int, layers: int, heads: int) -> Attention:
    """Return `layers` blocks of `heads` heads."""
    positions = from_host(0.1 * generator.standard_normal((length, size)))
    return Attention(positions, tuple(Block.create(generator, size, heads) for _ in range(layers)))


READERS: Mapping[str, MakeBody] = {"mean": mean, "gru": recurrent, "attention": attention}
