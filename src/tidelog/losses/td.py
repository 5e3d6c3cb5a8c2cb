"""Temporal-difference errors of a critic ensemble. Letters: `B` batch, `E` ensemble."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

PointLoss = Callable[[jax.Array], jax.Array]


def squared(difference: jax.Array) -> jax.Array:
    """`difference**2`, of the shape of `difference`."""
    return jnp.square(difference)


def huber(difference: jax.Array) -> jax.Array:
    """Half the square up to 1, beyond that the absolute value minus a half, of the shape of `difference`."""
    size = jnp.abs(difference)
    return jnp.where(size <= 1.0, 0.5 * jnp.square(difference), size - 0.5)


POINT_LOSSES: Mapping[str, PointLoss] = {"squared": squared, "huber": huber}


def between(values: jax.Array, share: jax.Array | float) -> jax.Array:
    """`share` of the smallest member's value plus `1 - share` of the largest: [E, B, ...] -> [B, ...].

    Source: Fujimoto, Meger, Precup 2019, arXiv:1812.02900; at 1 the clipped double minimum.
    """
    return share * jnp.min(values, axis=0) + (1.0 - share) * jnp.max(values, axis=0)


def ensemble_error(values: jax.Array, target: jax.Array, loss: PointLoss = squared) -> jax.Array:
    """Sum over the ensemble of `loss(values - target)`: [E, B, ...] and [B, ...] (without gradient) -> [B, ...]."""
    if values.ndim < 2 or values.shape[1:] != target.shape:
        raise TypeError(
            f"values have shape {values.shape} and target {target.shape}, expected [E, B, ...] and [B, ...]. "
            "fix: return one target per sample"
        )
    return jnp.sum(loss(values - jax.lax.stop_gradient(target)), axis=0)
