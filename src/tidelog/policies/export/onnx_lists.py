"""The traced function of an ONNX file of a ranking policy: histories in, lists out.

Letters: `B` histories, `H` steps, `N` items, `Q` query size, `K` items found, `n` generated vectors,
`F` features of users.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.policies.export.onnx_graphs import Input, OnnxGraph
from tidelog.runtime.history_encoders import features_of, item_queries, item_scores, rows, states
from tidelog.types import Catalogue, Histories, Spec


def listing_graph(recipe: Mapping[str, Any], spec: Spec) -> OnnxGraph:
    """Return the graph from `history` and `event` [B, H] and `mask` [B, N] to `item` and `score` [B, width].

    With user features, `user` [B, F] is also an input, zeros by default. Items are counted from 1; where fewer items
    are allowed than the list's length, the list ends in 0 with a score of -inf.
    """
    node, space = recipe["act"], spec.action
    count = space.n if isinstance(space, Catalogue) else 0
    width = min(node["width"], count)
    table = jnp.asarray(np.asarray(rows(np, _on_host(node["catalogue"])), np.float32))  # [N + 1, Q]

    def program(history: jax.Array, event: jax.Array, mask: jax.Array, *user: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = states(jnp, node, Histories(history, event, *(user or (None,))), _loop)
        queries = item_queries(jnp, node, state)
        scores = [jnp.where(mask, queries[:, i] @ table[1:].T, -math.inf) for i in range(queries.shape[1])]
        found, ideas = _searched(scores, width)
        logits = jnp.sum(table[found] * queries[:, :1], axis=-1)
        valid = (jnp.take_along_axis(scores[0], found - 1, axis=1) > -math.inf) & ~_again(found)
        logits = jnp.where(valid, logits, -math.inf)
        likelihood, rating, first = item_scores(jnp, node, state, found, logits, ideas)
        return _ordered(found, likelihood + node["q_weight"] * rating, first, valid, width)

    steps = ("B", node["history"])
    inputs = [Input("history", steps, "int32"), Input("event", steps, "int32")]
    inputs.append(Input("mask", ("B", count), "bool", np.ones((1, count), bool)))
    features = features_of(node)
    if features:
        inputs.append(Input("user", ("B", features), "float32", np.zeros((1, features), np.float32)))
    return OnnxGraph(inputs, program, ["item", "score"])


def _loop(step: Any, carry: jax.Array, inputs: tuple[jax.Array, ...]) -> jax.Array:
    """Scan the steps: traced once for any number of steps."""
    last: jax.Array = jax.lax.scan(lambda c, now: (step(c, *now), None), carry, inputs)[0]
    return last


def _on_host(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {name: _on_host(value) for name, value in node.items()}
    if isinstance(node, list):
        return [_on_host(item) for item in node]
    return np.asarray(node) if isinstance(node, jax.Array) else node


def _searched(scores: list[jax.Array], width: int) -> tuple[jax.Array, jax.Array]:
    """Return items [B, K] of the best scores [B, N] by each query, generated ones first; and which came from one.

    Without generated vectors all are marked. A mask of one row is broadcast to B rows in the scores.
    """
    likely, *others = scores
    found = jax.lax.top_k(likely, width)[1] + 1
    if not others:
        return found, found > 0
    near = max(1, -(-width // len(others)))
    imagined = [jax.lax.top_k(score, near)[1] + 1 for score in others]
    whole = jnp.concatenate([*imagined, found], axis=1)
    marks = jnp.asarray(np.arange(len(others) * near + width) < len(others) * near)
    return whole, (whole > 0) & marks


def _again(found: jax.Array) -> jax.Array:
    """[B, K] bool: items that are also further left in their row."""
    width = found.shape[1]
    left = jnp.asarray(np.tril(np.ones((width, width), bool), -1))
    return jnp.any((found[:, :, None] == found[:, None, :]) & left, axis=-1)


def _ordered(
    found: jax.Array, score: jax.Array, first: jax.Array, valid: jax.Array, width: int
) -> tuple[jax.Array, jax.Array]:
    """Return supported items by score, then the others, with scores lowered below."""
    least = jnp.min(jnp.where(first, score, math.inf), axis=1, keepdims=True)
    rest = jnp.where(first | ~valid, -math.inf, score)
    gap = jnp.max(rest, axis=1, keepdims=True) - least
    below = score - jnp.where(gap > 0, jnp.where(gap < math.inf, gap, 0.0), 0.0)
    lowered = jnp.where(first, score, jnp.minimum(below, least))  # rounding must not lift a score above
    key = jnp.where(first, lowered, lowered - 1.0)
    place = jax.lax.top_k(jnp.where(valid, key, -math.inf), width)[1]
    chosen = jnp.take_along_axis(valid, place, axis=1)
    items = jnp.where(chosen, jnp.take_along_axis(found, place, axis=1), 0)
    return items.astype(jnp.int32), jnp.where(chosen, jnp.take_along_axis(lowered, place, axis=1), -math.inf)
