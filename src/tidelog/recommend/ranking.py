"""Ranking a catalogue for histories: search queries, and values of the items found.

Letters: `B` histories, `H` history length, `N` items, `D` item vector size, `n` generated vectors, `K` items found.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.losses.next_item_losses import standardised
from tidelog.networks.recipe import whole
from tidelog.recommend.candidate_generation import ItemGeneration, clipped, decode_items
from tidelog.recommend.networks import recipe
from tidelog.recommend.networks.catalogue import Pair
from tidelog.recommend.next_item import NextItemModel
from tidelog.support import supported
from tidelog.types import Histories


class PolicyParams(NamedTuple):
    """The arrays that ranking reads."""

    recall: NextItemModel
    critic: Pair
    imagination: ItemGeneration | None
    latents: jax.Array | None
    features: jax.Array | None
    weight: jax.Array


class ItemScores(NamedTuple):
    """Items found: log-likelihood relative to the most likely one, standardised Q, and support by the log."""

    likelihood: jax.Array  # [B, K]
    rating: jax.Array  # [B, K]
    first: jax.Array  # [B, K] bool


def all_items(params: PolicyParams) -> jax.Array:
    """Return rows [N + 1, D + 1] for inner products with queries: likelihood or similarity; the last is the bias."""
    items = params.recall.table(None, params.features)
    return jnp.concatenate([items.vectors, items.bias[:, None]], axis=1)


def queries(config: Any, params: PolicyParams, seen: Histories, key: jax.Array | None) -> jax.Array:
    """Return queries [B, 1 + n, D + 1] for histories: likelihood first, then n generated vectors."""
    states = state_after(params, seen)
    queries = jnp.concatenate([states, jnp.ones((len(states), 1))], axis=1)[:, None]
    if params.imagination is None or params.latents is None:
        return queries
    latents = params.latents if key is None else clipped(config, key, params.latents.shape)
    vectors = decode_items(config, params.imagination, states[:, None], latents[None])
    return jnp.concatenate([queries, jnp.pad(vectors, ((0, 0), (0, 0), (0, 1)))], axis=1)


def score_items(
    config: Any, params: PolicyParams, seen: Histories, found: jax.Array, logits: jax.Array, ideas: jax.Array
) -> ItemScores:
    """Return scores of found items [B, K] for histories; `logits` [B, K] -inf for none, `ideas` [B, K] bool."""
    valid = jnp.isfinite(logits)
    known = jnp.where(valid, logits, -1e30)
    first = supported(known, config.threshold, valid) if params.imagination is None else ideas & valid
    vectors = params.recall.table(found, params.features).vectors
    q = params.critic(state_after(params, seen)[:, None], vectors)[..., 0]
    likelihood = jnp.where(valid, known - jnp.max(known, axis=-1, keepdims=True), -jnp.inf)
    return ItemScores(likelihood, standardised(q, first), first)


def state_after(params: PolicyParams, seen: Histories) -> jax.Array:
    """Return the states [B, D] at the end of histories."""
    vectors = params.recall.table(seen.items, params.features).vectors
    state: jax.Array = params.recall.reader(vectors, seen.events, user=seen.users)[:, -1]
    return state


def recipe_of(config: Any, params: PolicyParams) -> dict[str, Any]:
    """Return the computation of lists as a recipe (`networks/recipe.py`); ExportError for a custom history encoder."""
    idea = params.imagination and {
        "kind": "imagination",
        "outward": recipe.pair(params.imagination.generator.outward),
        "perturbation": recipe.pair(params.imagination.perturbation.body),
        "phi": float(config.phi),
        "latents": params.latents,
    }
    act = {
        "kind": "listed",
        "catalogue": recipe.catalogue(params.recall.table, params.features),
        "reader": recipe.reader(params.recall.reader),
        "critic": recipe.pair(params.critic),
        "imagination": idea,
        "threshold": float(config.threshold),
        "history": config.history,
        "width": config.candidates,
        "q_weight": float(params.weight),
    }
    return whole(act)
