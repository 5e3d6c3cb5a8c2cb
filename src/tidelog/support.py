"""Which actions are allowed, and choosing among them. Letters: `B` batch, `A` number of actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def allow(values: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Values or logits [..., A] with -inf where the mask [..., A] forbids the action."""
    if mask is None:
        return values
    if mask.shape != values.shape:
        raise TypeError(f"values and mask must have one shape, found {values.shape} and {mask.shape}")
    return jnp.where(mask, values, -jnp.inf)
