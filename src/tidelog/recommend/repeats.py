"""Repeated items: each earlier event of a user has a score for its item being selected again.

One softmax goes over the scores of the catalogue and of the earlier events, and an item's probability is the sum over
all its places: copying as in Gu, Lu, Li, Li 2016, arXiv:1603.06393; for items consumed again Ren et al. 2019,
arXiv:1812.02646. An item that a user selected often and recently has many places with high scores. Where nobody repeats
an item the scores fall until they have no effect.

Letters: `B` windows, `A` states of a window, `T` targets, `P` states, `L` earlier events, `N` items, `D` item vector
size, `S` sampled items.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.networks.arrays import zeros
from tidelog.networks.recipe import Node
from tidelog.runtime.history_encoders import AGES, NO_PLACE, age_groups
from tidelog.types import same_shape


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


def sampled_scores(others: jax.Array, sample: jax.Array, places: Places | None, items: int) -> jax.Array:
    """Return the scores [B, A, S] of sampled items over all their places: `others` [B, A, S], `sample` [S] of `items`.

    `places` has items [B, A, L] or [B, 1, L], and scores [B, A, L].
    """
    if places is None:
        return others
    count = len(sample)
    slot = jnp.full(items + 1, count).at[sample].min(jnp.arange(count))  # an item twice in the sample has its first
    top = jax.lax.stop_gradient(jnp.max(places.scores, axis=-1, keepdims=True))
    weights = jnp.exp(places.scores - top)
    at = jnp.broadcast_to(slot[places.items], weights.shape)
    rows, states = (jnp.arange(size) for size in weights.shape[:2])
    sums = jnp.zeros((*others.shape[:2], count + 1)).at[rows[:, None, None], states[:, None], at].add(weights)
    repeated = sums[..., slot[sample]]
    there = repeated > 0.0
    return jnp.where(there, jnp.logaddexp(others, top + jnp.log(jnp.where(there, repeated, 1.0))), others)


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
