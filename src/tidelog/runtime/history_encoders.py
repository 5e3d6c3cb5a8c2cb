"""History encoding of a policy over a catalogue, from a recipe's nodes: search queries and scores of found items.

`xp` is NumPy, or `jax.numpy` where the same lines are traced for ONNX. Letters: `B` histories, `H` steps, `N` items,
`D` item vector size, `n` generated vectors, `K` items found, `L` latent size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tidelog.runtime.networks import Array, Node, gru, layer_norm, linear, mlp
from tidelog.runtime.ranking import GAPS, RankingFunctions
from tidelog.types import Histories

Step: TypeAlias = Callable[..., Array]  # (carry, *now) -> carry
Loop: TypeAlias = Callable[[Step, Array, tuple[Array, ...]], Array]
RANKING = "ranking"  # node kind of a ranking policy
AGES = 56  # groups of ages: four for each doubling; an age of 2**14 events and more is in the last
NO_PLACE = -1e30  # score of no event
TRUSTS = 32  # groups of numbers of counted successors, one for each doubling
SHORTEST = -20  # binary logarithm of the shortest gap with a group of its own


def ranking_functions(node: Node) -> RankingFunctions:
    """Return the NumPy functions of a node for reading histories; ValueError for invalid counts of successors."""
    if "successors" in node["catalogue"]:
        _check_successors(node["catalogue"])
    return RankingFunctions(
        table=np.asarray(rows(np, node["catalogue"]), np.float32),
        queries=lambda seen: item_queries(np, node, states(np, node, seen)),
        score_items=lambda seen, *found: item_scores(np, node, states(np, node, seen), *found),
        places=(lambda seen: places(np, node, states(np, node, seen), seen)) if has_places(node) else None,
        history=reach(node),
        kinds=len(node["reader"]["events"]) - 1,
        features=features_of(node),
        reads_gaps=reads_gaps(node),
        known_users=known_users(node),
        width=node["width"],
        q_weight=node["q_weight"],
        repeat_share=node["repeat_share"],
    )


def _check_successors(catalogue: Node) -> None:
    """Raise ValueError unless every item has counts, and every successor is an item."""
    counted, size = catalogue["successors"], catalogue["weight"].shape[0]
    items, counts, totals = (counted[name] for name in ("items", "counts", "totals"))
    if items.shape != counts.shape or len(items) != size or totals.shape != (size,) or items.shape[1] == 0:
        shapes = [list(one.shape) for one in (items, counts, totals)]
        raise ValueError(f"counts of successors have shapes {shapes}, expected [{size}, M] twice and [{size}]")
    if items.min() < 0 or items.max() >= size:
        raise ValueError(f"a counted successor is item {items.min()} or {items.max()}, expected 0 to {size - 1}")
    if counted["trust"].shape != (TRUSTS,):
        raise ValueError(f"trust has {counted['trust'].size} groups, expected {TRUSTS}")


def features_of(node: Node) -> int:
    """Return the number of user features."""
    profile = node["reader"]["profile"]
    return 0 if profile is None else profile.shape[0]


def reads_gaps(node: Node) -> bool:
    """Return whether the history encoder reads time gaps."""
    return node["reader"].get("gaps") is not None


def known_users(node: Node) -> int:
    """Return the number of users with a vector of their own."""
    users = node["reader"].get("users")
    return 0 if users is None else users.shape[0] - 1


def reach(node: Node) -> int:
    """Return the number of events of a history."""
    return int(node["history"] if node["repeats"] is None else node["repeats"]["length"])


def age_groups(longest: int) -> np.ndarray[Any, Any]:
    """Return the group of each age 0 .. longest, in numbers of events; the last event has age 1."""
    ages = np.maximum(np.arange(longest + 1), 1)
    return np.minimum(np.floor(4 * np.log2(ages) + 1e-9), AGES - 1).astype(np.int32)


def gap_groups(gaps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the group of each time gap [...], in seconds or the log's own unit: 0 for NaN (unknown), 1 for no gap.

    Groups are on a logarithmic scale, two for each doubling, so one scale serves every unit; each has an embedding, as
    the intervals of Li, Wang and McAuley 2020 (TiSASRec, doi:10.1145/3336191.3371786).
    """
    gaps = np.asarray(gaps, np.float64)
    there = gaps > 0
    steps = np.floor(2.0 * np.log2(np.where(there, gaps, 1.0)))
    groups = np.where(there, np.clip(steps + 2 - 2 * SHORTEST, 2, GAPS - 1), 1)
    return np.where(np.isnan(gaps), 0, groups).astype(np.int8)


def rows(xp: Any, node: Node) -> Array:
    """Return the search rows [N + 1, D + 1]: directions of length 1, and the items' bias."""
    vectors, bias = _items(xp, node, slice(None))
    return xp.concatenate([vectors, bias[:, None]], axis=1)


def item_queries(xp: Any, node: Node, states: Array) -> Array:
    """Return queries [B, 1 + n, D + 1] in states [B, D]: likelihood, then generated vectors."""
    ones = xp.ones((states.shape[0], 1), xp.float32)
    likely = xp.concatenate([states, ones], axis=1)[:, None]
    idea = node["generation"]
    if idea is None:
        return likely
    beside = states[:, None]
    vectors = _directed(xp, _pair(xp, idea["outward"], beside, idea["latents"][None]))
    direction = xp.tanh(_pair(xp, idea["perturbation"], beside, vectors))
    generated = _directed(xp, vectors + idea["phi"] / math.sqrt(vectors.shape[-1]) * direction)
    return xp.concatenate([likely, xp.concatenate([generated, xp.zeros_like(generated[..., :1])], axis=-1)], axis=1)


def has_places(node: Node) -> bool:
    """Return whether items have scores beside the catalogue's."""
    return node["repeats"] is not None or "successors" in node["catalogue"]


def places(xp: Any, node: Node, states: Array, seen: Histories) -> tuple[Array, Array]:
    """Return items and scores [B, P] of the events of histories, and of the last item's successors; states [B, D]."""
    repeats, successors = node["repeats"], node["catalogue"].get("successors")
    found = [] if repeats is None else [(seen.items, _repeats(xp, node, states, seen))]
    if successors is not None:
        found.append(_successors(xp, node, states, seen))
    items, scores = zip(*found, strict=True)
    return xp.concatenate(items, axis=1), xp.concatenate(scores, axis=1)


def _repeats(xp: Any, node: Node, states: Array, seen: Histories) -> Array:
    """Return the scores [B, H] of the events of histories for their items being repeated."""
    part, length = node["repeats"], seen.items.shape[1]
    vectors, _ = _items(xp, node["catalogue"], seen.items)
    match = (
        xp.sum(vectors * (states @ part["match"])[:, None], axis=-1) + xp.sum(states * part["gate"], axis=-1)[:, None]
    )
    ages = part["age"][age_groups(length)[np.arange(length, 0, -1)]]
    return xp.where(seen.events > 0, match + ages + part["event"][seen.events], NO_PLACE)


def _successors(xp: Any, node: Node, states: Array, seen: Histories) -> tuple[Array, Array]:
    """Return the counted successors [B, M] of the last items of histories, and their scores."""
    part, last = node["catalogue"]["successors"], seen.items[:, -1]
    items, counts, totals = part["items"][last], part["counts"][last], xp.maximum(part["totals"][last], 1.0)
    trust = part["trust"][xp.clip(xp.log2(totals) + 1e-4, 0, TRUSTS - 1).astype(xp.int32)]
    trust = trust + part["event"][seen.events[:, -1]] + xp.sum(states * part["gate"], axis=-1) - xp.log(totals)
    vectors, bias = _items(xp, node["catalogue"], items)
    logits = xp.sum(states[:, None] * vectors, axis=-1) + bias
    there = (items > 0) & (counts > 0.5)
    return items, xp.where(there, logits + trust[:, None] + xp.log(xp.where(there, counts, 1.0)), NO_PLACE)


def item_scores(xp: Any, node: Node, states: Array, found: Array, logits: Array, ideas: Array) -> tuple[Array, ...]:
    """Return likelihood, value and support of found items [B, K]; `logits` -inf for none, `ideas` bool."""
    valid = logits > -math.inf
    known = xp.where(valid, logits, -1e30)
    best = xp.max(known, axis=-1, keepdims=True)
    threshold = node["threshold"]
    likely = known - best >= (math.log(threshold) if threshold > 0 else -math.inf)
    first = valid & (likely if node["generation"] is None else ideas)
    vectors, _ = _items(xp, node["catalogue"], found)
    values = _pair(xp, node["critic"], states[:, None], vectors)[..., 0]
    return xp.where(valid, known - best, -math.inf), _standardised(xp, values, first), first


def scan_steps(step: Step, carry: Array, inputs: tuple[Array, ...]) -> Array:
    """Return the recurrent state [B, ...] after all steps [L, B, ...]."""
    for now in zip(*inputs, strict=True):
        carry = step(carry, *now)
    return carry


def states(xp: Any, node: Node, seen: Histories, loop: Loop = scan_steps) -> Array:
    """Return the states [B, D] at the end of histories, of which the encoder reads the last events."""
    items, events = seen.items[:, -node["history"] :], seen.events[:, -node["history"] :]
    reader, real = node["reader"], events > 0
    vectors, _ = _items(xp, node["catalogue"], items)
    steps = math.sqrt(vectors.shape[-1]) * vectors + reader["events"][events]
    if reads_gaps(node):
        steps = steps + reader["gaps"][seen.gaps[:, -node["history"] :]]
    body = reader["body"]
    state = BODIES[body["kind"]](xp, body, xp.where(real[..., None], steps, 0.0), real, loop)
    state = xp.where(real[:, -1:], state, reader["empty"])
    if reader["profile"] is not None:
        state = state + seen.users @ reader["profile"]
    if known_users(node):
        own = reader["users"][seen.user_index]
        state = state + reader["users"][0] + xp.where(seen.user_index[:, None] > 0, own, 0.0)
    return layer_norm(xp, reader["norm"], state)


def _mean(xp: Any, node: Node, x: Array, real: Array, loop: Loop) -> Array:
    count = xp.maximum(xp.sum(real.astype(xp.float32), axis=1), 1.0)
    return linear(node["linear"], xp.sum(x, axis=1) / count[:, None])


def _recurrent(xp: Any, node: Node, x: Array, real: Array, loop: Loop) -> Array:
    unit = node["unit"]
    start = xp.zeros_like(x[:, 0, :1]) + xp.zeros((1, unit["recurrent"].shape[0]), xp.float32)

    def step(carry: Array, now: Array, valid: Array) -> Array:
        return xp.where(valid[:, None], gru(xp, unit, carry, now), 0.0)

    return linear(node["linear"], loop(step, start, (xp.swapaxes(x, 0, 1), xp.swapaxes(real, 0, 1))))


def _attention(xp: Any, node: Node, x: Array, real: Array, loop: Loop) -> Array:
    steps = x.shape[1]
    x = x + node["positions"][:steps]
    causal, own = np.tril(np.ones((steps, steps), bool)), np.eye(steps, dtype=bool)
    seen = (real[:, None, :] & xp.asarray(causal)) | xp.asarray(own)
    for block in node["blocks"]:
        x = x + _attended(xp, block, layer_norm(xp, block["before"], x), seen)
        wide = xp.maximum(linear(block["wide"], layer_norm(xp, block["between"], x)), 0.0)
        x = x + linear(block["narrow"], wide)
    return x[:, -1]


def _attended(xp: Any, node: Node, x: Array, seen: Array) -> Array:
    batch, steps, size = x.shape
    heads = node["heads"]

    def split(layer: Node) -> Array:  # [B, heads, steps, size / heads]
        return xp.transpose(linear(layer, x).reshape(batch, steps, heads, size // heads), (0, 2, 1, 3))

    queries, keys, values = (split(node[name]) for name in ("queries", "keys", "values"))
    match = xp.matmul(queries, xp.transpose(keys, (0, 1, 3, 2))) / math.sqrt(size / heads)
    match = xp.where(seen[:, None], match, -math.inf)
    raised = xp.exp(match - xp.max(match, axis=-1, keepdims=True))
    output = xp.matmul(raised / xp.sum(raised, axis=-1, keepdims=True), values)
    return linear(node["out"], xp.transpose(output, (0, 2, 1, 3)).reshape(batch, steps, size))


BODIES: Mapping[str, Callable[[Any, Node, Array, Array, Loop], Array]] = {
    "mean": _mean,
    "recurrent": _recurrent,
    "attention": _attention,
}


def _items(xp: Any, node: Node, items: Array) -> tuple[Array, Array]:
    """Return directions [..., D] and biases [...] of items [...]."""
    weight, bias = node["weight"][items], node["bias"][items]
    if node["tower"] is not None:
        outputs = mlp(xp, node["tower"], node["features"][items])
        weight, bias = weight + outputs[..., :-1], bias + outputs[..., -1]
    return _directed(xp, weight), bias


def _pair(xp: Any, node: Node, states: Array, vectors: Array) -> Array:
    return mlp(xp, node["body"], xp.maximum(linear(node["state"], states) + linear(node["item"], vectors), 0.0))


def _directed(xp: Any, vectors: Array) -> Array:
    return vectors / xp.sqrt(xp.sum(xp.square(vectors), axis=-1, keepdims=True) + 1e-12)


def _standardised(xp: Any, values: Array, among: Array) -> Array:
    """Return marked values standardised over the marked ones; 0 for others, and where all are equal."""
    share = among / xp.maximum(xp.sum(among.astype(xp.float32), axis=-1, keepdims=True), 1.0)
    away = values - xp.sum(values * share, axis=-1, keepdims=True)
    variance = xp.sum(xp.square(away) * share, axis=-1, keepdims=True)
    standardised = xp.where(among & (variance > 1e-12), away / xp.sqrt(xp.maximum(variance, 1e-12)), 0.0)
    return standardised.astype(xp.float32)
