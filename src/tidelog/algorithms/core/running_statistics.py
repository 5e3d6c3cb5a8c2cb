"""Running mean and variance during training: part of the state, so a resumed run continues them.

Chan, Golub, LeVeque 1979: batches are merged exactly. The state holds the variance, not the sum of squares, to avoid
drift when the count exceeds the precision of float32. Letters: `B` batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.sampling import Batch


class Running(NamedTuple):
    """Statistics of all numbers so far, each counted by its weight."""

    seen: jax.Array  # sum of the weights
    mean: jax.Array
    variance: jax.Array


def empty_statistics() -> Running:
    """Return the statistics of no numbers."""
    return Running(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def add_batch(running: Running, batch: Batch) -> Running:
    """Add the rewards of one batch [B], or of the valid steps of its windows."""
    reward = batch.data.reward
    weight = jnp.ones_like(reward) if batch.weight is None else batch.weight
    if batch.valid is None:
        return add_values(running, reward, weight)
    if batch.valid_steps is not None:  # windows are drawn in proportion to them, so every step counts equally
        weight = weight / batch.valid_steps[:, None]
    return add_values(running, reward, jnp.where(batch.valid, weight, 0.0))


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
    """Return the standard deviation, or 1 while all numbers are equal."""
    std = jnp.sqrt(running.variance)
    return jnp.where(std > 1e-8, std, 1.0)
