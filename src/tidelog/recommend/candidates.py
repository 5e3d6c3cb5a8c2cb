"""Candidates of the recommender's targets: items that the log supports in a state.

Q is never computed between items or for excluded items. The candidates are the most likely items, or those nearest to
generated vectors.

Letters: `P` states, `C` candidates, `D` item vector size, `N` items, `L` earlier events.
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


class Candidates(NamedTuple):
    """Candidates of states."""

    items: jax.Array  # [P, C] int32
    is_valid: jax.Array  # [P, C] bool


Propose: TypeAlias = Callable[..., Candidates]  # (config, generation, states, items, places, excluded, key)


def most_likely(
    config: Any,
    generation: None,
    states: jax.Array,
    items: Items,
    places: Places | None,
    excluded: jax.Array | None,
    key: jax.Array,
) -> Candidates:
    """Return the `candidates` most likely items, above the threshold: states [P, D], excluded [P, L] (0: none)."""
    count = min(config.candidates, len(items.bias) - 1)

    def top(state: jax.Array, places: Places | None, excluded: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        logits = exclude_items(with_places(item_logits(state, items), places), excluded)
        best: tuple[jax.Array, jax.Array] = jax.lax.top_k(logits, count)
        return best

    logits, found = map_states(top, len(items.bias), states, places, excluded)
    valid = jnp.isfinite(logits)
    return Candidates(found.astype(jnp.int32), supported(jnp.where(valid, logits, -1e30), config.threshold, valid))


def generated_candidates(
    config: Any,
    generation: ItemGeneration,
    states: jax.Array,
    items: Items,
    places: Places | None,
    excluded: jax.Array | None,
    key: jax.Array,
) -> Candidates:
    """Return the items nearest to `target_samples` vectors from the generator, moved by the perturbation."""
    shape = (config.target_samples, len(states), config.latent_size)
    latents = jnp.swapaxes(clipped_latents(key, shape, config.latent_clip), 0, 1)

    def nearest(state: jax.Array, latent: jax.Array, excluded: jax.Array | None) -> Candidates:
        vectors = decode_items(generation, state[..., None, :], latent, config.phi)
        near = exclude_items(vectors @ items.vectors.T, None if excluded is None else excluded[..., None, :])
        return Candidates(jnp.argmax(near, axis=-1).astype(jnp.int32), jnp.isfinite(jnp.max(near, axis=-1)))

    return map_states(nearest, config.target_samples * len(items.bias), states, latents, excluded)  # type: ignore[no-any-return]


def exclude_items(scores: jax.Array, excluded: jax.Array | None) -> jax.Array:
    """Return scores [..., N + 1] with -inf for no item and for excluded ones [..., H] (0: none)."""
    scores = scores.at[..., 0].set(-jnp.inf)
    if excluded is None:
        return scores
    excluded = jnp.broadcast_to(excluded, (*scores.shape[:-1], excluded.shape[-1]))
    return jnp.put_along_axis(scores, excluded, -jnp.inf, axis=-1, inplace=False)


def map_states(function: Callable[..., Any], cells: int, states: jax.Array, *more: Any) -> Any:
    """Call `function` on states [P, D] and their arrays, in batches that bound the memory, at `cells` per state."""
    if len(states) * cells <= CELLS:
        return function(states, *more)

    def one(parts: Any) -> Any:  # `jax.lax.map` gives each state alone
        found = function(*jax.tree.map(lambda values: values[None], parts))
        return jax.tree.map(lambda values: values[0], found)

    return jax.lax.map(one, (states, *more), batch_size=max(1, CELLS // cells))


GENERATORS: Mapping[str, Propose] = {"likelihood": most_likely, "vae": generated_candidates}
