"""What a target chooses among: items that the log supports in a state, found in one of two ways.

Both give items [P, C] of the catalogue and which of them count: Q is never read between items, and never for one that
is not allowed. Letters: `P` states, `C` candidates, `N` items, `D` item vector size, `L` latent size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from tidelog.algorithms.next_item import likelihoods
from tidelog.networks.catalogue import Correction, ItemGenerator, Items, turned
from tidelog.support import allow, supported


class Proposed(NamedTuple):
    """Candidates of states."""

    items: jax.Array  # [P, C] int32
    kept: jax.Array  # [P, C] bool


class Imagination(NamedTuple):
    """What proposes items that are like logged ones, where they are not simply the likeliest."""

    generator: ItemGenerator
    perturbation: Correction


CELLS = 1 << 23  # likelihoods that are in memory at once

Propose: TypeAlias = Callable[..., Proposed]  # (h, imagination, states, items, allowed, key) -> candidates


def likeliest(
    h: Any, imagination: None, states: jax.Array, items: Items, allowed: jax.Array, key: jax.Array
) -> Proposed:
    """Of the `candidates` likeliest allowed items those above the threshold: states [P, D], allowed [P, N + 1]."""
    rows = items.bias.shape[0]
    count = min(h.candidates, rows - 1)

    def some(state: jax.Array, allowed: jax.Array) -> tuple[jax.Array, jax.Array]:
        found: tuple[jax.Array, jax.Array] = jax.lax.top_k(allow(likelihoods(state, items), allowed), count)
        return found

    if states.shape[0] * rows <= CELLS:
        logits, found = some(states, allowed)
    else:  # a few states at a time, so that memory is bounded
        logits, found = jax.lax.map(lambda pair: some(*pair), (states, allowed), batch_size=max(1, CELLS // rows))
    there = jnp.isfinite(logits)
    return Proposed(found.astype(jnp.int32), supported(jnp.where(there, logits, -1e30), h.threshold, there))


def imagined(
    h: Any, imagination: Imagination, states: jax.Array, items: Items, allowed: jax.Array, key: jax.Array
) -> Proposed:
    """The allowed items nearest to `target_samples` vectors that the generator makes and the perturbation moves."""
    latents = clipped(h, key, (h.target_samples, len(states), h.latent_size))

    def nearest(latent: jax.Array) -> tuple[jax.Array, jax.Array]:
        near = allow(envisaged(h, imagination, states, latent) @ items.vectors.T, allowed)
        found = jnp.argmax(near, axis=-1)
        return found.astype(jnp.int32), jnp.isfinite(jnp.max(near, axis=-1))

    found, kept = jax.lax.map(nearest, latents)
    return Proposed(found.T, kept.T)


def envisaged(h: Any, imagination: Imagination, states: jax.Array, latent: jax.Array) -> jax.Array:
    """Directions [..., D] that latents [..., L] stand for, moved by at most `phi`."""
    vector = imagination.generator.decode(states, latent)
    return turned(vector, imagination.perturbation(states, vector), h.phi)


def clipped(h: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal latents, cut at `latent_clip` on both sides."""
    return jnp.clip(jax.random.normal(key, shape), -h.latent_clip, h.latent_clip)


def may_choose(items: jax.Array, columns: int, catalogue: int, exclude_seen: bool) -> jax.Array:
    """What may be chosen [B, columns, N + 1] behind each of the last columns of windows [B, H + 1]: never no item."""
    batch, steps = items.shape
    allowed = jnp.ones((batch, columns, catalogue + 1), bool).at[..., 0].set(False)
    if not exclude_seen:
        return allowed
    upto = jnp.arange(steps)[None, :] <= jnp.arange(steps - columns, steps)[:, None]  # [columns, H + 1]
    before = jnp.where(upto[None], items[:, None, :], 0)
    return allowed.at[jnp.arange(batch)[:, None, None], jnp.arange(columns)[None, :, None], before].set(False)


GENERATORS: Mapping[str, Propose] = {"likelihood": likeliest, "vae": imagined}
