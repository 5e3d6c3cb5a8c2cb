"""Candidates of the recommender's targets: items that the log supports in a state; how varied the chosen ones are.

Q is never computed between items or for excluded items. The candidates are the most likely items, or those nearest to
generated vectors.

In a large catalogue the most likely items are found in blocks of items: the best items of a state are in the blocks
with the largest maxima, so only those blocks are sorted. An earlier event can only raise the score of its own item, so
the scores of the catalogue and of the earlier items are computed apart. The result is exact; of items with equal
scores at the limit, any may be chosen.

Letters: `P` states, `C` candidates, `D` item vector size, `N` items, `L` earlier events, `K` blocks of items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from tidelog.recommend.networks import ItemGeneration, Items, clipped_latents, decode_items
from tidelog.recommend.next_item import item_logits
from tidelog.recommend.repeats import Places, with_places
from tidelog.support import supported

CELLS = 1 << 23  # item scores in memory at once
STATES, CHUNK, BLOCK = 128, 4_096, 32  # of a large catalogue: states and items of one matrix product, items of a block


class Candidates(NamedTuple):
    """Candidates of states."""

    items: jax.Array  # [P, C] int32
    is_valid: jax.Array  # [P, C] bool


Propose: TypeAlias = Callable[..., Candidates]  # (config, generation, states, items, places, excluded, key, needed)


def most_likely(
    config: Any,
    generation: None,
    states: jax.Array,
    items: Items,
    places: Places | None,
    excluded: jax.Array | None,
    key: jax.Array,
    needed: jax.Array | None = None,
) -> Candidates:
    """Return the `candidates` most likely items, above the threshold: states [P, D], excluded [P, L] (0: none).

    States that are not `needed` [P] have no candidates in a large catalogue.
    """
    number = len(items.bias)
    count = min(config.candidates, number - 1)

    def top(state: jax.Array, places: Places | None, excluded: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        logits = exclude_items(with_places(item_logits(state, items), places), excluded)
        best: tuple[jax.Array, jax.Array] = jax.lax.top_k(logits, count)
        return best

    if excluded is None and len(states) * number > CELLS:
        blocks = in_blocks(items)
        logits, found = map_states(lambda *of: top_of_blocks(blocks, count, *of), None, needed, states, places)
    else:
        logits, found = map_states(top, number, needed, states, places, excluded)
    valid = (found > 0) & jnp.isfinite(logits)
    return Candidates(found.astype(jnp.int32), supported(jnp.where(valid, logits, -1e30), config.threshold, valid))


def in_blocks(items: Items) -> Items:
    """Return items as blocks: vectors [K, BLOCK, D], bias [K, BLOCK]; -inf for no item and after the last one."""
    number, size = items.vectors.shape
    more = -number % min(CHUNK, number + -number % BLOCK)
    bias = jnp.pad(items.bias, (0, more), constant_values=-jnp.inf).at[0].set(-jnp.inf)
    return Items(jnp.pad(items.vectors, ((0, more), (0, 0))).reshape(-1, BLOCK, size), bias.reshape(-1, BLOCK))


def top_of_blocks(blocks: Items, count: int, states: jax.Array, places: Places | None) -> tuple[jax.Array, jax.Array]:
    """Return logits and indices [P, count] of the most likely items of blocks, with the scores of earlier events."""
    number, _, size = blocks.vectors.shape
    step = min(CHUNK // BLOCK, number)

    def maxima(carry: None, chunk: Items) -> tuple[None, jax.Array]:
        logits = chunk.vectors.reshape(-1, size) @ states.T + chunk.bias.reshape(-1, 1)
        return carry, jnp.max(logits.reshape(step, BLOCK, -1), axis=1)

    chunks = jax.tree.map(lambda part: part.reshape(-1, step, *part.shape[1:]), blocks)
    _, largest = jax.lax.scan(maxima, None, chunks)
    _, best = jax.lax.top_k(largest.reshape(number, -1).T, min(count, number))  # [P, C]
    found = (best[..., None] * BLOCK + jnp.arange(BLOCK)).reshape(len(states), -1)
    logits = jnp.einsum("pckd,pd->pck", blocks.vectors[best], states) + blocks.bias[best]
    logits, place = jax.lax.top_k(logits.reshape(len(states), -1), count)
    found = jnp.take_along_axis(found, place, axis=1)
    if places is None:
        return logits, found
    repeated = repeated_scores(blocks, states, places)
    logits = jnp.where(jnp.any(found[..., None] == places.items[:, None], axis=-1), -jnp.inf, logits)
    logits, found = (jnp.concatenate(pair, axis=1) for pair in ((logits, repeated), (found, places.items)))
    logits, place = jax.lax.top_k(logits, count)
    return logits, jnp.take_along_axis(found, place, axis=1)


def repeated_scores(blocks: Items, states: jax.Array, places: Places) -> jax.Array:
    """Return the scores [P, L] of earlier items over all their places; -inf for no item and for an item once more."""
    block, within = places.items // BLOCK, places.items % BLOCK
    logits = jnp.einsum("pld,pd->pl", blocks.vectors[block, within], states) + blocks.bias[block, within]
    number = jnp.arange(places.items.shape[1])
    same = places.items[:, :, None] == places.items[:, None]  # [P, L, L]
    first = jnp.min(jnp.where(same, number[:, None], len(number)), axis=1)  # the item's first place
    top = jnp.max(places.scores, axis=-1, keepdims=True)
    weight = jnp.exp(places.scores - top)
    total = jnp.zeros_like(weight).at[jnp.arange(len(weight))[:, None], first].add(weight)
    scores = jnp.logaddexp(logits, top + jnp.log(total))
    return jnp.where((places.items > 0) & (first == number), scores, -jnp.inf)


def generated_candidates(
    config: Any,
    generation: ItemGeneration,
    states: jax.Array,
    items: Items,
    places: Places | None,
    excluded: jax.Array | None,
    key: jax.Array,
    needed: jax.Array | None = None,
) -> Candidates:
    """Return the items nearest to `target_samples` vectors from the generator, moved by the perturbation.

    States that are not `needed` [P] have no candidates in a large catalogue.
    """
    shape = (config.target_samples, len(states), config.latent_size)
    latents = jnp.swapaxes(clipped_latents(key, shape, config.latent_clip), 0, 1)

    def nearest(state: jax.Array, latent: jax.Array, excluded: jax.Array | None) -> Candidates:
        vectors = decode_items(generation, state[..., None, :], latent, config.phi)
        near = exclude_items(vectors @ items.vectors.T, None if excluded is None else excluded[..., None, :])
        return Candidates(jnp.argmax(near, axis=-1).astype(jnp.int32), jnp.isfinite(jnp.max(near, axis=-1)))

    cells = config.target_samples * len(items.bias)
    return map_states(nearest, cells, needed, states, latents, excluded)  # type: ignore[no-any-return]


def exclude_items(scores: jax.Array, excluded: jax.Array | None) -> jax.Array:
    """Return scores [..., N + 1] with -inf for no item and for excluded ones [..., H] (0: none)."""
    scores = scores.at[..., 0].set(-jnp.inf)
    if excluded is None:
        return scores
    excluded = jnp.broadcast_to(excluded, (*scores.shape[:-1], excluded.shape[-1]))
    return jnp.put_along_axis(scores, excluded, -jnp.inf, axis=-1, inplace=False)


def map_states(
    function: Callable[..., Any], cells: int | None, needed: jax.Array | None, states: jax.Array, *more: Any
) -> Any:
    """Call `function` on states [P, D] and their arrays, in batches that bound the memory, at `cells` per state.

    In batches, only the `needed` [P] states are computed; the others have zeros. Without `cells` a batch has `STATES`.
    """
    number = len(states)
    if cells is not None and number * cells <= CELLS:
        return function(states, *more)
    size = STATES if cells is None else max(1, CELLS // cells)
    count = number if needed is None else jnp.sum(needed)
    order = jnp.arange(number) if needed is None else jnp.argsort(~needed, stable=True)
    order = jnp.pad(order, (0, -number % size))

    def batch(place: jax.Array) -> tuple[jax.Array, Any]:
        rows = jax.lax.dynamic_slice(order, (place * size,), (size,))
        counted = place * size + jnp.arange(size) < count
        return jnp.where(counted, rows, number), function(*jax.tree.map(lambda part: part[rows], (states, *more)))

    def add(place: jax.Array, results: Any) -> Any:
        rows, found = batch(place)
        return jax.tree.map(lambda all_of, some: all_of.at[rows].set(some, mode="drop"), results, found)

    shapes = jax.eval_shape(batch, 0)[1]
    none = jax.tree.map(lambda part: jnp.zeros((number, *part.shape[1:]), part.dtype), shapes)
    return jax.lax.fori_loop(0, (count + size - 1) // size, add, none)


GENERATORS: Mapping[str, Propose] = {"likelihood": most_likely, "vae": generated_candidates}


def coverage_and_entropy(items: jax.Array, counted: jax.Array | None, catalogue: int) -> tuple[jax.Array, jax.Array]:
    """Return the number of different counted items as a share of the possible number, and their entropy in nats."""
    counts = jnp.ones_like(items, bool) if counted is None else counted
    often = jnp.zeros(catalogue + 1).at[items.reshape(-1)].add(counts.reshape(-1).astype(jnp.float32)).at[0].set(0.0)
    total = jnp.maximum(jnp.sum(often), 1.0)
    entropy = -jnp.sum(jax.scipy.special.xlogy(often / total, often / total))
    return jnp.sum(often > 0) / jnp.minimum(total, catalogue), entropy
