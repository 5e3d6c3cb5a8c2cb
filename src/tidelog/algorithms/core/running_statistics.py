"""Running mean and variance during training: part of the state, so a resumed run continues them.

Chan, Golub, LeVeque 1979: batches are merged exactly. The state holds the variance, not the sum of squares, to avoid
drift when the count exceeds the precision of float32.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Running(NamedTuple):
    """Statistics of all numbers so far, each counted by its weight."""

    seen: jax.Array  # sum of the weights
    mean: jax.Array
    variance: jax.Array


def empty_statistics() -> Running:
    """Return the statistics of no numbers."""
    return Running(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def add_values(running: Running, values: jax.Array, weight: jax.Array) -> Running:
    """Add values, each counted by its weight of the same shape."""
    count = jnp.sum(weight)
    mean = jnp.sum(weight * values) / jnp.maximum(count, 1e-12)
    variance = jnp.sum(weight * jnp.square(values - mean)) / jnp.maximum(count, 1e-12)
    share = count / jnp.maximum(running.seen + count, 1e-12)
    gap = mean - running.mean
    return Running(
        running.seen + count,
        running.mean + share * gap,
        running.variance + share * (variance - running.variance) + share * (1.0 - share) * jnp.square(gap),
    )


def deviation(running: Running) -> jax.Array:
    """Return the standard deviation, or 1 while all numbers are equal, as far as float32 tells them apart."""
    std = jnp.sqrt(running.variance)
    return jnp.where(std > 1e-6 * jnp.abs(running.mean), std, 1.0)
