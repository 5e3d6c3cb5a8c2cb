"""Candidates of a target: items that the log supports in a state, from one of two generators.

Both return items [P, C] of the catalogue and a mask of valid ones: Q is never computed between items or for barred
items. Letters: `P` states, `C` candidates, `N` items, `D` item vector size, `L` latent size, `H` history length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from tidelog.recommend.networks.catalogue import Correction, ItemGenerator, Items, turned
from tidelog.recommend.next_item import likelihoods
from tidelog.support import supported


class Proposed(NamedTuple):
    """Candidates of states."""

    items: jax.Array  # [P, C] int32
    kept: jax.Array  # [P, C] bool


class ItemGeneration(NamedTuple):
    """The networks that propose items similar to logged ones, where candidates are not the most likely items."""

    generator: ItemGenerator
    perturbation: Correction


CELLS = 1 << 23  # item scores in memory at once

Propose: TypeAlias = Callable[..., Proposed]  # (h, imagination, states, items, barred, key) -> candidates


def most_likely(
    config: Any, imagination: None, states: jax.Array, items: Items, barred: jax.Array | None, key: jax.Array
) -> Proposed:
    """Return the `candidates` most likely items, above the threshold: states [P, D], barred items [P, H] (0: none)."""
    count = min(config.candidates, len(items.bias) - 1)

    def some(state: jax.Array, barred: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        top: tuple[jax.Array, jax.Array] = jax.lax.top_k(without(likelihoods(state, items), barred), count)
        return top

    logits, top = _a_few_at_a_time(some, len(items.bias), states, barred)
    valid = jnp.isfinite(logits)
    return Proposed(top.astype(jnp.int32), supported(jnp.where(valid, logits, -1e30), config.threshold, valid))


def imagined(
    config: Any, imagination: ItemGeneration, states: jax.Array, items: Items, barred: jax.Array | None, key: jax.Array
) -> Proposed:
    """Return the items nearest to `target_samples` vectors from the generator, moved by the perturbation."""
    latents = jnp.swapaxes(clipped(config, key, (config.target_samples, len(states), config.latent_size)), 0, 1)

    def nearest(state: jax.Array, latent: jax.Array, barred: jax.Array | None) -> Proposed:
        near = decode_items(config, imagination, state[..., None, :], latent) @ items.vectors.T  # [..., C, N + 1]
        near = without(near, None if barred is None else barred[..., None, :])
        return Proposed(jnp.argmax(near, axis=-1).astype(jnp.int32), jnp.isfinite(jnp.max(near, axis=-1)))

    return _a_few_at_a_time(nearest, config.target_samples * len(items.bias), states, latents, barred)  # type: ignore[no-any-return]


def without(scores: jax.Array, barred: jax.Array | None) -> jax.Array:
    """Return scores [..., N + 1] with -inf for no item and for barred ones [..., H] (0: none)."""
    scores = scores.at[..., 0].set(-jnp.inf)
    if barred is None:
        return scores
    barred = jnp.broadcast_to(barred, (*scores.shape[:-1], barred.shape[-1]))
    return jnp.put_along_axis(scores, barred, -jnp.inf, axis=-1, inplace=False)


def _a_few_at_a_time(find: Callable[..., Any], cells: int, states: jax.Array, *more: jax.Array | None) -> Any:
    """Call `find` on states [P, D] and their arrays, in batches that bound the memory, at `cells` per state."""
    if len(states) * cells <= CELLS:
        return find(states, *more)
    return jax.lax.map(lambda parts: find(*parts), (states, *more), batch_size=max(1, CELLS // cells))


def decode_items(config: Any, imagination: ItemGeneration, states: jax.Array, latent: jax.Array) -> jax.Array:
    """Decode latents [..., L] into directions [..., D], moved by at most `phi`."""
    vector = imagination.generator.decode(states, latent)
    return turned(vector, imagination.perturbation(states, vector), config.phi)


def clipped(config: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return standard normal latents, clipped at `latent_clip` on both sides."""
    return jnp.clip(jax.random.normal(key, shape), -config.latent_clip, config.latent_clip)


def taken_before(items: jax.Array, columns: int) -> jax.Array:
    """Return the items up to each of the last columns of windows [B, H + 1]: [B, columns, H + 1], 0 for none."""
    steps = items.shape[1]
    upto = jnp.arange(steps)[None, :] <= jnp.arange(steps - columns, steps)[:, None]  # [columns, H + 1]
    return jnp.where(upto[None], items[:, None, :], 0)


GENERATORS: Mapping[str, Propose] = {"likelihood": most_likely, "vae": imagined}
