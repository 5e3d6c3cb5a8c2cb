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

from tidelog.networks.layers import GRU, MLP, LayerNorm, Linear, drop, float32, int32, normal, zeros
from tidelog.networks.recipe import Node, foreign, gru, linear, mlp, norm
from tidelog.recommend.interactions import Interactions
from tidelog.runtime.ranking import AGES, NO_PLACE, TRUSTS, age_groups
from tidelog.types import same_shape

# Repeated items: each earlier event of a user has a score for its item being selected again.
#
# One softmax goes over the scores of the catalogue and of the earlier events, and an item's probability is the sum over
# all its places: copying as in Gu, Lu, Li, Li 2016, arXiv:1603.06393; for items consumed again Ren et al. 2019,
# arXiv:1812.02646. An item that a user selected often and recently has many places with high scores. Where nobody
# repeats an item the scores fall until they have no effect.
#
# Letters: `B` windows, `A` states of a window, `T` targets, `P` states, `L` earlier events, `N` items, `D` item vector
# size, `S` sampled items.


class Repeats(eqx.Module):
    """Scores of earlier events in a state, by their age, their kind, and the match of item and state."""

    age: jax.Array  # [AGES]
    kind: jax.Array  # [kinds + 1]
    gate: jax.Array  # [D]
    match: jax.Array  # [D, D]

    @classmethod
    def create(cls, size: int, kinds: int) -> Repeats:
        """Return zeros: every earlier event has the same score."""
        return cls(zeros(AGES), zeros(kinds + 1), zeros(size), zeros(size, size))

    def __call__(self, states: jax.Array, vectors: jax.Array, events: jax.Array, ages: jax.Array) -> jax.Array:
        """Return scores [B, A, L] of events in states [B, A, D]; `NO_PLACE` for padding and for later events.

        `vectors` [B, L, D] and `events` [B, L] are the items and kinds of the events, `ages` [A, L] or [B, A, L] the
        numbers of events since, 1 for the last one.
        """
        groups = jnp.asarray(age_groups(vectors.shape[1]))[jnp.clip(ages, 0, vectors.shape[1])]
        score = jnp.einsum("bad,bld->bal", states @ self.match, vectors) + (states @ self.gate)[..., None]
        score = score + self.age[groups] + self.kind[events][:, None]
        return jnp.where((events > 0)[:, None] & (ages > 0), score, NO_PLACE)


class Places(NamedTuple):
    """Places of items beside the catalogue, as earlier events of states, and the scores of their items."""

    items: jax.Array  # [..., L] int32
    scores: jax.Array  # [..., L]


def log_total(logits: jax.Array, places: Places | None) -> jax.Array:
    """Return the logarithm of the sum over the catalogue [..., N + 1] and the earlier events: [...]."""
    total = jax.nn.logsumexp(logits, axis=-1)
    return total if places is None else jnp.logaddexp(total, jax.nn.logsumexp(places.scores, axis=-1))


def log_score(logit: jax.Array, item: jax.Array, places: Places | None) -> jax.Array:
    """Return scores of items [..., T] over all their places: `logit` [..., T], places [..., A, L], A being T or 1."""
    same_shape(logit=logit, item=item)
    if places is None:
        return logit
    same = item[..., None] == places.items
    return jnp.logaddexp(logit, jax.nn.logsumexp(jnp.where(same, places.scores, NO_PLACE), axis=-1))


def with_places(logits: jax.Array, places: Places | None) -> jax.Array:
    """Return the scores of all items [P, N + 1] over all their places [P, L]; -inf for no item."""
    if places is None:
        return logits
    top = jnp.maximum(jnp.max(logits, axis=-1), jnp.max(places.scores, axis=-1))[:, None]
    rows = jnp.arange(len(logits))[:, None]
    repeated = jnp.zeros_like(logits).at[rows, places.items].add(jnp.exp(places.scores - top))
    return jnp.logaddexp(logits, top + jnp.log(repeated)).at[..., 0].set(-jnp.inf)


def without_repeats(places: Places, length: int) -> Places | None:
    """Return the places [P, L + M] without the first `length`, those of earlier events; None where none are left."""
    left = Places(*(part[:, length:] for part in places))
    return left if left.items.shape[1] else None


def repeats_node(part: Repeats, reach: int) -> Node:
    """Return the node of a recipe, for histories of `reach` events."""
    return {
        "kind": "repeats",
        "age": part.age,
        "event": part.kind,
        "gate": part.gate,
        "match": part.match,
        "length": reach,
    }


MakeBody: TypeAlias = Callable[..., Any]  # (generator, size, length, layers, heads) -> a module [B, L, D] -> [B, A, D]
ALL_STEPS = slice(None)  # those whose states are asked for


# Items.


class Items(NamedTuple):
    """Items: directions [..., D] of length 1, and their log-popularity bias [...], independent of the state."""

    vectors: jax.Array
    bias: jax.Array


class ItemTable(eqx.Module):
    """One row per item, plus the output of a tower over its features where there is one; row 0 is no item."""

    weight: jax.Array  # [N + 1, D]
    bias: jax.Array  # [N + 1]
    tower: MLP | None  # [F] -> [D + 1]

    @classmethod
    def create(
        cls, generator: np.random.Generator, items: int, size: int, features: int | None, hidden: tuple[int, ...]
    ) -> ItemTable:
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
    """Item vectors [B, L, D], event kinds [B, L] (0 for none) and user features [B, F] -> states [B, L, D]."""

    events: jax.Array  # [kinds + 1, D]
    empty: jax.Array  # [D]
    body: Any
    norm: LayerNorm
    profile: jax.Array | None  # [F, D]: user features' weights, added to every state; initially zeros

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
    ) -> HistoryEncoder:
        """Return an encoder of states up to `length` steps long, with this number of user features."""
        body = make(generator, size, length, layers, heads)
        events = float32(0.1 * generator.standard_normal((kinds + 1, size)))
        empty = float32(generator.standard_normal(size))
        profile = zeros(features, size) if features else None
        return cls(events, empty, body, LayerNorm(float32(np.ones(size)), zeros(size)), profile)

    def __call__(
        self,
        vectors: jax.Array,
        events: jax.Array,
        dropout: jax.Array | float | None = None,
        key: jax.Array | None = None,
        *,
        user: jax.Array | None = None,
        user_vectors: jax.Array | None = None,
        steps: slice = ALL_STEPS,
    ) -> jax.Array:
        """Return the states of some steps; `user_vectors` [B, D] of users are added to all before the last norm."""
        valid = events > 0
        x = math.sqrt(vectors.shape[-1]) * vectors + self.events[events]
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


def catalogue_node(table: ItemTable, features: Any) -> Node:
    """Return the node of item vectors; `features` [N + 1, F] where a tower reads them, else None."""
    tower = None if table.tower is None else mlp(table.tower)
    return {"kind": "catalogue", "weight": table.weight, "bias": table.bias, "tower": tower, "features": features}


def encoder_node(part: HistoryEncoder, users: UserTable | None) -> Node:
    """Return the node of a history encoder, and of the vectors of users that it adds."""
    node = {"kind": "history_encoder", "events": part.events, "empty": part.empty, "profile": part.profile}
    node |= {} if users is None else {"kind": "user_encoder", "users": users.weight}
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


# Counted successors: items that often followed the last item are more likely, as the counts say.
#
# The probability of a counted successor is multiplied by `1 + exp(x)`, where `x` is the logarithm of its share of what
# followed the last item, plus a trust that depends on the number of counts, a part for the kind of the last event and a
# part for the state. So a list in a large catalogue begins where a last-item Markov rule stands, and the history
# encoder learns what counts do not say; models of both kinds are joined in Rendle, Freudenthaler, Schmidt-Thieme 2010,
# doi:10.1145/1772690.1772773, and He and McAuley 2016, arXiv:1609.09152. As a place of its item (above) a
# successor has the score `logit + x`: the sum of both exponentials is that product.
#
# What a training predicts is in the counts already. Without correction a pair that the log has once would look certain,
# so the targets of an update are taken out of their counts.
#
# Letters: `B` windows, `A` states of a window, `T` targets of a state, `N` items, `M` successors of an item, `D` item
# vector size.


class SuccessorCounts(NamedTuple):
    """How often items followed each item in the log; row 0 has none."""

    items: jax.Array  # [N + 1, M] int32, the commonest first; 0 for none
    counts: jax.Array  # [N + 1, M]
    totals: jax.Array  # [N + 1]: counts of all that followed

    @classmethod
    def of(cls, log: Interactions, most: int) -> SuccessorCounts:
        """Count every event after the one before it of the same user; a basket follows the event before the basket."""
        from scipy import sparse

        begin = log.baskets[0] if log.has_baskets else np.arange(len(log))
        follows = begin > log.starts[log.user]
        size = len(log.items) + 1
        pairs = (log.item[begin[follows] - 1], log.item[follows])
        counted = sparse.csr_matrix((np.ones(len(pairs[0])), pairs), shape=(size, size))  # equal pairs are summed
        rows = np.repeat(np.arange(size), np.diff(counted.indptr))
        order = np.lexsort((counted.indices, -counted.data, rows))
        position = np.arange(len(rows)) - counted.indptr[rows]
        kept = position < most
        items, counts = np.zeros((size, most), np.int32), np.zeros((size, most), np.float32)
        items[rows[kept], position[kept]] = counted.indices[order][kept]
        counts[rows[kept], position[kept]] = counted.data[order][kept]
        return cls(int32(items), float32(counts), float32(np.asarray(counted.sum(axis=1)).ravel()))

    @classmethod
    def none(cls, items: int, most: int) -> SuccessorCounts:
        """Return counts of 0 for N items."""
        size = items + 1
        return cls(jnp.zeros((size, most), jnp.int32), zeros(size, most), zeros(size))


class Successors(eqx.Module):
    """Scores of the counted successors of the last item, in a state."""

    trust: jax.Array  # [TRUSTS], by the binary logarithm of the number of counts
    kind: jax.Array  # [kinds + 1]: of the last event
    gate: jax.Array  # [D]

    @classmethod
    def create(cls, size: int, kinds: int, items: int) -> Successors:
        """Return a trust that gives all successors together about as much probability as the untrained catalogue."""
        return cls(jnp.full(TRUSTS, np.log(items), jnp.float32), zeros(kinds + 1), zeros(size))

    def __call__(
        self,
        states: jax.Array,
        last: jax.Array,
        kinds: jax.Array,
        counted: SuccessorCounts,
        table: Callable[[jax.Array], Items],
        targets: jax.Array | None = None,
    ) -> Places:
        """Return successors and scores [B, A, M] in states [B, A, D] after last items and their kinds of event [B, A].

        `table` returns vectors and biases of items. `targets` [B, A, T] are taken out of the counts, 0 for none; None
        takes nothing out.
        """
        items, counts, totals = counted.items[last], counted.counts[last], counted.totals[last]
        if targets is not None:
            counts = counts - jnp.sum(items[..., None] == targets[..., None, :], axis=-1)
            totals = totals - jnp.sum(targets > 0, axis=-1)
        same_shape(items=items, counts=counts)
        there = (items > 0) & (counts > 0.5)
        totals = jnp.maximum(totals, 1.0)
        group = jnp.clip(jnp.log2(totals) + 1e-4, 0, TRUSTS - 1).astype(jnp.int32)
        part = self.trust[group] + self.kind[kinds] + states @ self.gate - jnp.log(totals)
        found = table(items)
        logits = jnp.einsum("bad,bamd->bam", states, found.vectors) + found.bias
        scores = logits + part[..., None] + jnp.log(jnp.where(there, counts, 1.0))
        return Places(items, jnp.where(there, scores, NO_PLACE))


def joined(first: Places | None, second: Places | None) -> Places | None:
    """Return the places [..., L] and [..., M] of the same states as one."""
    if first is None or second is None:
        return second if first is None else first
    items = jnp.broadcast_to(first.items, first.scores.shape)
    return Places(
        jnp.concatenate([items, second.items], axis=-1), jnp.concatenate([first.scores, second.scores], axis=-1)
    )


def successors_node(part: Successors, counted: SuccessorCounts) -> Node:
    """Return the node of a recipe."""
    counts = {"items": counted.items, "counts": counted.counts, "totals": counted.totals}
    return {"kind": "successors", "trust": part.trust, "event": part.kind, "gate": part.gate} | counts


def with_new_rows(counted: SuccessorCounts, count: int) -> SuccessorCounts:
    """Return the counts with `count` new items, which nothing followed."""
    longer: Any = jax.tree.map(lambda part: jnp.pad(part, ((0, count), *((0, 0),) * (part.ndim - 1))), counted)
    return SuccessorCounts(*longer)
