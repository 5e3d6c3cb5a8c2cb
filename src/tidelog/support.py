"""Masks of allowed actions, and the best action among them. Letters: `B` batch, `A` number of actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def allow(values: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Values or logits [..., A] with -inf where the mask [..., A] forbids the action."""
    if mask is None:
        return values
    if mask.shape != values.shape:
        raise TypeError(f"values have shape {values.shape}, mask has shape {mask.shape}: expected equal shapes")
    return jnp.where(mask, values, -jnp.inf)


def supported(logits: jax.Array, threshold: jax.Array | float, mask: jax.Array | None = None) -> jax.Array:
    """Mark allowed actions at least `threshold` times as likely as the most likely one: logits [..., A] -> bool.

    At threshold 0 all allowed actions, at 1 the most likely and its ties; not empty unless all are forbidden.
    Source: Fujimoto, Conti, Ghavamzadeh, Pineau 2019, arXiv:1910.01708; there the inequality is strict.
    """
    allowed = allow(logits, mask)
    likely = logits - jnp.max(allowed, axis=-1, keepdims=True) >= jnp.log(threshold)
    return likely if mask is None else likely & mask


def best(values: jax.Array, among: jax.Array) -> jax.Array:
    """The marked action [...] with the highest value: values and marks [..., A]."""
    return jnp.argmax(allow(values, among), axis=-1)
