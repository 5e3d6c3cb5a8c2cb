"""The recommender's networks, and their nodes of a recipe (`tidelog/networks/recipe.py`).

Items are vectors of length 1, one per row of a table or from a tower over item features. A history encoder is a causal
network from a user's events to states: it reads one vector per step and returns one state per step, from the steps up
to it; a step that is not valid has the state of an empty history. Critics, generator and perturbation are networks of
a state and an item's vector.

Letters: `B` batch, `L` steps, `A` those whose states are asked for, `N` items, `D` item vector size, `P` states, `C`
candidates, `F` features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.arrays import float32, normal, zeros
from tidelog.networks.gru import GRU
from tidelog.networks.mlp import MLP, LayerNorm, Linear, drop
from tidelog.networks.recipe import Node, foreign, gru, linear, mlp, norm
from tidelog.runtime.ranking import GAPS

MakeBody: TypeAlias = Callable[..., Any]  # (generator, size, length, layers, heads) -> a module [B, L, D] -> [B, A, D]
ALL_STEPS = slice(None)  # those whose states are asked for


# Items.


class Items(NamedTuple):
    """Items: directions [..., D] of length 1, and their log-popularity bias [...], independent of the state."""

    vectors: jax.Array
    bias: jax.Array


class Table(eqx.Module):
    """One row per item, plus the output of a tower over its features where there is one; row 0 is no item."""

    weight: jax.Array  # [N + 1, D]
    bias: jax.Array  # [N + 1]
    tower: MLP | None  # [F] -> [D + 1]

    @classmethod
    def create(
        cls, generator: np.random.Generator, items: int, size: int, features: int | None, hidden: tuple[int, ...]
    ) -> Table:
        """Return random directions; with a tower rows are zeros: a new item then depends on its features only."""
        if features is None:
            return cls(float32(generator.standard_normal((items + 1, size)) / np.sqrt(size)), zeros(items + 1), None)
        tower = MLP.create(generator, (features, *hidden, size + 1))
        return cls(zeros(items + 1, size), zeros(items + 1), tower)

    def __call__(self, items: jax.Array | None, features: jax.Array | None) -> Items:
        """Return items by index [...], or all of them in order; `features` [N + 1, F] of all."""
        weight, bias = (self.weight, self.bias) if items is None else (self.weight[items], self.bias[items])
        if self.tower is not None and features is not None:
            outputs = self.tower(features if items is None else features[items])
            weight, bias = weight + outputs[..., :-1], bias + outputs[..., -1]
        return Items(unit_vectors(weight), bias)


def unit_vectors(vectors: jax.Array) -> jax.Array:
    """Return vectors [..., D] scaled to length 1."""
    return vectors * jax.lax.rsqrt(jnp.sum(jnp.square(vectors), axis=-1, keepdims=True) + 1e-12)


class UserTable(eqx.Module):
    """Vectors of users: one that all users share, and for each user of the log the difference from it.

    Both start at zero. A user without training events has the shared vector, exactly: nothing moved the difference.
    """

    weight: jax.Array  # [U + 1, D]; row 0 is the shared vector

    def __call__(self, users: jax.Array) -> jax.Array:
        """Return the vectors [B, D] of users [B] int32, counted from 1; 0 is an unknown user."""
        return self.weight[0] + jnp.where(users[:, None] > 0, self.weight[users], 0.0)


def rows_in_batch(users: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Return the rows [B + 1] of a table of `count` rows that users [B] read, row 0 first, and their places [B] there.

    Each row is there once; what is left is filled up with the number `count`, a row that does not exist.
    """
    read = jnp.concatenate([jnp.zeros_like(users[:1]), users])
    rows, places = jnp.unique(read, size=len(read), fill_value=count, return_inverse=True)
    return rows, places[1:]


def take_user_rows(tree: Any, rows: jax.Array) -> Any:
    """Return a tree in which every table of users has these rows [R] only."""
    return _each_user_table(lambda table: UserTable(table.weight.at[rows].get(mode="clip")), tree)


def put_user_rows(tree: Any, part: Any, rows: jax.Array) -> Any:
    """Return `part`, but with the tables of users of `tree`, in which these rows [R] are those of `part`."""
    return _each_user_table(
        lambda table, few: UserTable(table.weight.at[rows].set(few.weight, mode="drop")), tree, part
    )


def _each_user_table(change: Callable[..., UserTable], tree: Any, *parts: Any) -> Any:
    """Return the last tree, with each table of users changed."""

    def one(*several: Any) -> Any:
        return change(*several) if isinstance(several[0], UserTable) else several[-1]

    return jax.tree.map(one, tree, *parts, is_leaf=lambda part: isinstance(part, UserTable))


# Networks of a state and an item.


class Pair(eqx.Module):
    """A network of a state [..., S] and an item's vector [..., D]; each is encoded once for all pairs."""

    state: Linear
    item: Linear
    body: MLP

    @classmethod
    def create(cls, generator: np.random.Generator, state: int, item: int, hidden: tuple[int, ...], out: int) -> Pair:
        """Return a network of widths `hidden`, with uniform fan-in initialisation as in BCQ's networks."""
        first, body = hidden[0], MLP.create(generator, (*hidden, out), linear=Linear.uniform)
        return cls(Linear.uniform(generator, state, first), Linear.uniform(generator, item, first), body)

    def __call__(self, state: jax.Array, vector: jax.Array) -> jax.Array:
        """[..., out]; shapes are broadcast, as states [P, 1, S] with candidates [P, C, D]."""
        return self.body(jax.nn.relu(self.state(state) + self.item(vector)))

    def among(self, state: jax.Array, vectors: jax.Array, chosen: jax.Array) -> jax.Array:
        """[P, C, out] of selected items [P, C] out of all [N, D]; encodes all items or the selected ones, the fewer."""
        encoded = self.item(vectors)[chosen] if len(vectors) <= chosen.size else self.item(vectors[chosen])
        return self.body(jax.nn.relu(self.state(state)[:, None] + encoded))


class ItemCritics(eqx.Module):
    """Item critics, `E` of them."""

    members: tuple[Pair, ...]

    def __call__(self, state: jax.Array, vector: jax.Array) -> jax.Array:
        """[E, ...]."""
        return jnp.stack([member(state, vector)[..., 0] for member in self.members])

    def among(self, state: jax.Array, vectors: jax.Array, chosen: jax.Array) -> jax.Array:
        """[E, P, C] of selected items [P, C] out of all [N, D]."""
        return jnp.stack([member.among(state, vectors, chosen)[..., 0] for member in self.members])

    def in_unit(self, factor: float, constant: Any) -> ItemCritics:
        """Return critics with values `factor * Q + constant`."""
        return ItemCritics(
            tuple(Pair(one.state, one.item, one.body.with_outputs(factor, constant)) for one in self.members)
        )


class ItemGenerator(eqx.Module):
    """A conditional variational autoencoder of item vectors [..., D], given states."""

    inward: Pair
    outward: Pair

    def encode(self, state: jax.Array, vector: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return mean and log-std [..., L] of the latents of a vector."""
        mean, log_std = jnp.split(self.inward(state, vector), 2, axis=-1)
        return mean, jnp.clip(log_std, -4.0, 15.0)

    def decode(self, state: jax.Array, latent: jax.Array) -> jax.Array:
        """Return the direction [..., D] of latents."""
        return unit_vectors(self.outward(state, latent))


class Correction(eqx.Module):
    """The direction of a vector's perturbation, one number per dimension within [-1, 1]."""

    body: Pair

    def __call__(self, state: jax.Array, vector: jax.Array) -> jax.Array:
        return jnp.tanh(self.body(state, vector))


def perturb_vectors(vector: jax.Array, direction: jax.Array, reach: Any) -> jax.Array:
    """Move vectors of length 1 by at most `reach / sqrt(D)` per coordinate and scale them back to length 1."""
    return unit_vectors(vector + reach / np.sqrt(vector.shape[-1]) * direction)


class ItemGeneration(NamedTuple):
    """The networks that generate vectors similar to those of logged items."""

    generator: ItemGenerator
    perturbation: Correction


def decode_items(networks: ItemGeneration, states: jax.Array, latent: jax.Array, phi: Any) -> jax.Array:
    """Decode latents [..., L] into vectors [..., D] of length 1, moved by at most `phi / sqrt(D)` per coordinate."""
    vector = networks.generator.decode(states, latent)
    return perturb_vectors(vector, networks.perturbation(states, vector), phi)


def clipped_latents(key: jax.Array, shape: tuple[int, ...], limit: Any) -> jax.Array:
    """Return standard normal latents, clipped at `limit` on both sides."""
    return jnp.clip(normal(key, shape), -limit, limit)


# History encoders.


class HistoryEncoder(eqx.Module):
    """Item vectors [B, L, D], event kinds [B, L] (0 for none) and user features [B, F] -> states [B, L, D].

    With time gaps each step also reads the group [B, L] of the time from its event to the next one, or until now.
    """

    events: jax.Array  # [kinds + 1, D]
    empty: jax.Array  # [D]
    body: Any
    norm: LayerNorm
    profile: jax.Array | None  # [F, D]: user features' weights, added to every state; initially zeros
    gaps: jax.Array | None = None  # [GAPS, D]: groups of time gaps; initially zeros; None: not read

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
        time_gaps: bool = False,
    ) -> HistoryEncoder:
        """Return an encoder of states up to `length` steps long, with this number of user features."""
        body = make(generator, size, length, layers, heads)
        events = float32(0.1 * generator.standard_normal((kinds + 1, size)))
        empty = float32(generator.standard_normal(size))
        profile = zeros(features, size) if features else None
        gaps = zeros(GAPS, size) if time_gaps else None
        return cls(events, empty, body, LayerNorm(float32(np.ones(size)), zeros(size)), profile, gaps)

    def __call__(
        self,
        vectors: jax.Array,
        events: jax.Array,
        dropout: jax.Array | float | None = None,
        key: jax.Array | None = None,
        *,
        user: jax.Array | None = None,
        gaps: jax.Array | None = None,
        user_vectors: jax.Array | None = None,
        steps: slice = ALL_STEPS,
    ) -> jax.Array:
        """Return the states of some steps; `user_vectors` [B, D] of users are added to all before the last norm."""
        valid = events > 0
        x = math.sqrt(vectors.shape[-1]) * vectors + self.events[events]
        if (self.gaps is None) != (gaps is None):
            raise TypeError(f"gaps is {type(gaps).__name__}, but the encoder's gaps are {type(self.gaps).__name__}")
        if self.gaps is not None and gaps is not None:
            x = x + self.gaps[gaps]
        x = jnp.where(valid[..., None], x, 0.0)
        if dropout is not None and key is not None:
            x = drop(x, dropout, key)
        output = self.body(x, valid, dropout, key, steps)
        states = jnp.where(valid[:, steps, None], output, self.empty)
        if self.profile is not None and user is not None:
            states = states + (user @ self.profile)[:, None]
        if user_vectors is not None:
            states = states + user_vectors[:, None]
        return self.norm(states)


class Mean(eqx.Module):
    """The mean of all steps up to each, then one layer."""

    layer: Linear

    def __call__(
        self, x: jax.Array, valid: jax.Array, dropout: Any = None, key: Any = None, steps: slice = ALL_STEPS
    ) -> jax.Array:
        count = jnp.maximum(jnp.cumsum(valid, axis=1), 1)[..., None]
        return self.layer((jnp.cumsum(x, axis=1) / count)[:, steps])


class Recurrent(eqx.Module):
    """A gated recurrent unit, then one layer."""

    unit: GRU
    layer: Linear

    def __call__(
        self, x: jax.Array, valid: jax.Array, dropout: Any = None, key: Any = None, steps: slice = ALL_STEPS
    ) -> jax.Array:
        return self.layer(self.unit.unroll(x, valid)[:, steps])


class Attention(eqx.Module):
    """Blocks of causal self-attention over positions counted from the first step (Kang and McAuley 2018).

    A step after the last position uses the last one: later positions would never be trained.
    """

    positions: jax.Array  # [P, D]
    blocks: tuple[Block, ...]

    def __call__(
        self, x: jax.Array, valid: jax.Array, dropout: Any = None, key: Any = None, steps: slice = ALL_STEPS
    ) -> jax.Array:
        length = x.shape[1]
        x = x + self.positions[jnp.minimum(jnp.arange(length), len(self.positions) - 1)]
        visible = jnp.tril(jnp.ones((length, length), bool)) & valid[:, None, :]  # [B, L, L]
        # a step that is not valid attends to itself only, and no other step to it
        visible = visible | jnp.eye(length, dtype=bool)
        for i, block in enumerate(self.blocks):
            asked = steps if i == len(self.blocks) - 1 else ALL_STEPS  # another block reads the outputs of all steps
            x = block(x, visible, dropout, None if key is None else jax.random.fold_in(key, i + 1), asked)
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

        norms = [LayerNorm(float32(np.ones(size)), zeros(size)) for _ in range(2)]
        return cls(norms[0], layer(), layer(), layer(), layer(), norms[1], layer(), layer(), heads)

    def __call__(
        self, x: jax.Array, visible: jax.Array, dropout: Any, key: jax.Array | None, steps: slice = ALL_STEPS
    ) -> jax.Array:
        one, two = (None, None) if key is None else jax.random.split(key)
        read = self.before(x)
        x = x[:, steps] + _dropped(self._attend(read[:, steps], read, visible[:, steps]), dropout, one)
        return x + _dropped(self.narrow(jax.nn.relu(self.wide(self.between(x)))), dropout, two)

    def _attend(self, asking: jax.Array, read: jax.Array, visible: jax.Array) -> jax.Array:
        """[B, A, D] of steps [B, A, D] that ask about steps [B, L, D], as far as they are visible [B, A, L]."""

        def heads(layer: Linear, x: jax.Array) -> jax.Array:
            return layer(x).reshape(*x.shape[:2], self.heads, x.shape[2] // self.heads)

        queries, keys = heads(self.queries, asking), heads(self.keys, read)
        match = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) / math.sqrt(queries.shape[-1])
        share = jax.nn.softmax(jnp.where(visible[:, None], match, -jnp.inf), axis=-1)
        output = jnp.einsum("bhqk,bkhd->bqhd", share, heads(self.values, read))
        return self.out(output.reshape(asking.shape))


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
    positions = float32(0.1 * generator.standard_normal((length, size)))
    return Attention(positions, tuple(Block.create(generator, size, heads) for _ in range(layers)))


HISTORY_ENCODERS: Mapping[str, MakeBody] = {"mean": mean, "gru": recurrent, "attention": attention}


# Nodes of a recipe.


def catalogue_node(table: Table, features: Any) -> Node:
    """Return the node of item vectors; `features` [N + 1, F] where a tower reads them, else None."""
    tower = None if table.tower is None else mlp(table.tower)
    return {"kind": "catalogue", "weight": table.weight, "bias": table.bias, "tower": tower, "features": features}


def encoder_node(part: HistoryEncoder, users: UserTable | None) -> Node:
    """Return the node of a history encoder, and of the vectors of users that it adds."""
    node = {"kind": "reader", "events": part.events, "empty": part.empty, "profile": part.profile}
    node |= {} if part.gaps is None else {"kind": "timed_reader", "gaps": part.gaps}
    node |= {} if users is None else {"kind": "user_reader", "gaps": part.gaps, "users": users.weight}
    return {**node, "body": _body(part.body), "norm": norm(part.norm)}


def _body(part: Any) -> Node:
    if isinstance(part, Mean):
        return {"kind": "mean", "linear": linear(part.layer)}
    if isinstance(part, Recurrent):
        return {"kind": "recurrent", "unit": gru(part.unit), "linear": linear(part.layer)}
    if isinstance(part, Attention):
        return {"kind": "attention", "positions": part.positions, "blocks": [_block(block) for block in part.blocks]}
    raise foreign(part)


def _block(part: Block) -> Node:
    layers = {name: linear(getattr(part, name)) for name in ("queries", "keys", "values", "out", "wide", "narrow")}
    norms = {"before": norm(part.before), "between": norm(part.between)}
    return {"kind": "attention_block", **layers, **norms, "heads": part.heads}


def pair_node(part: Pair) -> Node:
    """Return the node of a network of a state and an item's vector."""
    return {"kind": "pair", "state": linear(part.state), "item": linear(part.item), "body": mlp(part.body)}
