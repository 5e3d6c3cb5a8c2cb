"""Several rewards: values with a last axis of components, and their weighted sum.

Every function is the identity for one reward with `weights` None. Letters: `B` batch, `E` ensemble, `K` reward
components.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def weighted_sum(values: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Return the weighted sum over components: [..., K] and [K] -> [...]."""
    return values if weights is None else jnp.sum(values * weights, axis=-1)


def average(errors: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Return the mean of per-component errors: [..., K] -> [...]."""
    return errors if weights is None else jnp.mean(errors, axis=-1)


def expand(scalars: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Broadcast scalars [...] against values [..., K]."""
    return scalars if weights is None else scalars[..., None]


def smallest(values: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Return the values of the ensemble member with the smallest weighted sum: [E, B] -> [B], [E, B, K] -> [B, K]."""
    if weights is None:
        return jnp.min(values, axis=0)
    member = jnp.argmin(weighted_sum(values, weights), axis=0)
    return jnp.take_along_axis(values, member[None, ..., None], axis=0)[0]
