"""Ranking a catalogue for histories in JAX: search queries, values of the items found, and the compiled ranker.

Letters: `B` histories, `H` history length, `N` items, `D` item vector size, `n` generated vectors, `K` items found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.errors import SpecError
from tidelog.networks.recipe import whole
from tidelog.recommend.networks import (
    ItemGeneration,
    Pair,
    Places,
    SuccessorCounts,
    catalogue_node,
    clipped_latents,
    decode_items,
    encoder_node,
    pair_node,
    repeats_node,
    successors_node,
    with_new_rows,
)
from tidelog.recommend.next_item import NextItemModel, WindowStates, read_states
from tidelog.runtime.ranking import ROWS, Ranker, RankingFunctions, ReadsHistories
from tidelog.support import supported
from tidelog.types import HistoryArrays, same_shape

NumpyArray = np.ndarray[Any, Any]


class RankingParams(NamedTuple):
    """The arrays that ranking reads."""

    next_item: NextItemModel
    critic: Pair
    generation: ItemGeneration | None
    latents: jax.Array | None  # [n, L]
    features: jax.Array | None
    weight: jax.Array
    q_updates: jax.Array  # int32: updates of Q; without any, items are ranked by likelihood alone
    repeat_share: jax.Array  # share of the log's events whose item the user had before
    successors: SuccessorCounts | None = None  # what followed each item, where the model reads it


def with_new_items(config: Any, params: RankingParams, features: NumpyArray) -> RankingParams:
    """Return the arrays with new items after the others, known by their features [M, F] alone.

    SpecError where no tower reads features.
    """
    table = params.next_item.table
    if table.tower is None or params.features is None:
        raise SpecError(
            "this policy knows items by their events alone",
            fix="train it with item features and content=True (--content)",
        )
    count = len(features)
    longer = eqx.tree_at(
        lambda one: (one.weight, one.bias),
        table,
        (jnp.pad(table.weight, ((0, count), (0, 0))), jnp.pad(table.bias, (0, count))),
    )
    counted = params.successors
    return params._replace(
        next_item=params.next_item._replace(table=longer),
        successors=None if counted is None else with_new_rows(counted, count),
        features=jnp.concatenate([params.features, jnp.asarray(features, params.features.dtype)]),
    )


class ItemScores(NamedTuple):
    """Items found: log-likelihood relative to the most likely one, standardised Q, and support by the log."""

    likelihood: jax.Array  # [B, K]
    rating: jax.Array  # [B, K]
    first: jax.Array  # [B, K] bool


def all_items(config: Any, params: RankingParams) -> jax.Array:
    """Return rows [N + 1, D + 1] for inner products with queries: likelihood or similarity; the last is the bias."""
    items = params.next_item.table(None, params.features)
    return jnp.concatenate([items.vectors, items.bias[:, None]], axis=1)


def queries(config: Any, params: RankingParams, seen: HistoryArrays, key: jax.Array | None = None) -> jax.Array:
    """Return queries [B, 1 + n, D + 1] for histories: likelihood first, then n generated vectors."""
    states = final_states(config, params, seen)
    queries = jnp.concatenate([states, jnp.ones((len(states), 1))], axis=1)[:, None]
    if params.generation is None or params.latents is None:
        return queries
    latents = params.latents if key is None else clipped_latents(key, params.latents.shape, config.latent_clip)
    vectors = decode_items(params.generation, states[:, None], latents[None], config.phi)
    return jnp.concatenate([queries, jnp.pad(vectors, ((0, 0), (0, 0), (0, 1)))], axis=1)


def standardised(values: jax.Array, among: jax.Array) -> jax.Array:
    """Values [..., K] minus mean, over standard deviation, both of marked ones [..., K]; 0 where all are equal."""
    same_shape(values=values, among=among)
    count = jnp.maximum(jnp.sum(among, axis=-1, keepdims=True), 1)
    mean = jnp.sum(values, axis=-1, keepdims=True, where=among) / count
    variance = jnp.sum(jnp.square(values - mean), axis=-1, keepdims=True, where=among) / count
    return jnp.where(among & (variance > 1e-12), (values - mean) * jax.lax.rsqrt(jnp.maximum(variance, 1e-12)), 0.0)


def score_items(
    config: Any, params: RankingParams, seen: HistoryArrays, found: jax.Array, logits: jax.Array, ideas: jax.Array
) -> ItemScores:
    """Return scores of found items [B, K] for histories; `logits` [B, K] -inf for none, `ideas` [B, K] bool."""
    valid = jnp.isfinite(logits)
    known = jnp.where(valid, logits, -1e30)
    first = supported(known, config.threshold, valid)
    if params.generation is not None:  # an untrained generator supports nothing
        first = jnp.where(params.q_updates > 0, ideas & valid, first)
    vectors = params.next_item.table(found, params.features).vectors
    q = params.critic(final_states(config, params, seen)[:, None], vectors)[..., 0]
    likelihood = jnp.where(valid, known - jnp.max(known, axis=-1, keepdims=True), -jnp.inf)
    return ItemScores(likelihood, standardised(q, first), first)


def final_states(config: Any, params: RankingParams, seen: HistoryArrays) -> jax.Array:
    """Return the states [B, D] at the end of histories [B, L], of which the encoder reads the last ones."""
    return _at_the_end(config, params, seen).states[:, 0]


def places(config: Any, params: RankingParams, seen: HistoryArrays) -> Places:
    """Return the places [B, L + M] of items after histories: events that repeat, and successors of the last item."""
    found: Places = jax.tree.map(lambda part: part[:, 0], _at_the_end(config, params, seen).places)
    return found


def _at_the_end(config: Any, params: RankingParams, seen: HistoryArrays) -> WindowStates:
    last = np.array([seen.items.shape[1] - 1])
    return read_states(params.next_item, params, config.history, seen, last)


def recipe(config: Any, params: RankingParams) -> dict[str, Any]:
    """Return the computation of lists as a recipe (`networks/recipe.py`); ExportError for a custom history encoder.

    Without updates of Q there is no generator in it: it has no updates either.
    """
    idea = None
    if params.generation is not None and params.q_updates > 0:
        idea = {
            "kind": "generation",
            "outward": pair_node(params.generation.generator.outward),
            "perturbation": pair_node(params.generation.perturbation.body),
            "phi": float(config.phi),
            "latents": params.latents,
        }
    repeats, after = params.next_item.repeats, params.next_item.successors
    catalogue = catalogue_node(params.next_item.table, params.features)
    if after is not None and params.successors is not None:
        catalogue |= {"kind": "counted_catalogue", "successors": successors_node(after, params.successors)}
    act = {
        "kind": "ranking",
        "catalogue": catalogue,
        "encoder": encoder_node(params.next_item.encoder, params.next_item.users),
        "critic": pair_node(params.critic),
        "generation": idea,
        "threshold": float(config.threshold),
        "history": config.history,
        "repeats": None if repeats is None else repeats_node(repeats, config.reach),
        "width": config.candidates,
        "q_weight": float(params.weight),
        "repeat_share": float(np.clip(params.repeat_share, 0.0, 1.0)),
    }
    return whole(act)


# Compiled ranking, for `tidelog.runtime.ranking`.


def ranker(algorithm: Any, params: Any, vocabulary: ReadsHistories, supervised: bool = False) -> Ranker:
    """Return a ranker of item indices for histories; `supervised`: by likelihood only."""
    numbers = jax.tree.map(jnp.float32, algorithm)

    def padded(method: str) -> Callable[..., Any]:
        return partial(_call_padded, partial(_call, method, numbers, params))

    functions = RankingFunctions(
        table=np.asarray(_call("all_items", numbers, params), np.float32),
        queries=padded("queries"),
        score_items=padded("score_items"),
        places=padded("places") if params.next_item.repeats is not None or params.successors is not None else None,
        history=algorithm.reach,
        kinds=len(params.next_item.encoder.events) - 1,
        features=0 if params.next_item.encoder.profile is None else len(params.next_item.encoder.profile),
        known_users=0 if params.next_item.users is None else len(params.next_item.users.weight) - 1,
        width=algorithm.candidates,
        q_weight=float(params.weight),
        repeat_share=float(np.clip(params.repeat_share, 0.0, 1.0)),
    )
    return Ranker(functions, supervised, vocabulary)


@eqx.filter_jit
def _call(method: str, algorithm: Any, params: Any, *arrays: Any) -> Any:
    return getattr(algorithm, method)(params, *arrays)


def _call_padded(function: Callable[..., Any], seen: HistoryArrays, *arrays: NumpyArray) -> Any:
    """Call a compiled function of arrays [B, ...] with a padded batch, to reuse a compiled batch size."""
    count = len(seen.items)
    rows = min(ROWS, 1 << max(3, (count - 1).bit_length()))

    def padded(part: NumpyArray) -> NumpyArray:
        return np.concatenate([part, np.repeat(part[-1:], rows - count, axis=0)])

    return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], function(*jax.tree.map(padded, (seen, *arrays))))
