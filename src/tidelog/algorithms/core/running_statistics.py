"""How far numbers spread, counted while training: a part of the state, so that a resumed run goes on with it.

Chan, Golub, LeVeque 1979: batches are merged exactly. The variance is kept, not the sum of squares, so that nothing
drifts when the count has outgrown float32. Letters: `B` batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.sampling import Batch


class Running(NamedTuple):
    """Of all numbers seen so far, each as often as its weight says."""

    seen: jax.Array  # how many
    mean: jax.Array
    variance: jax.Array


def nothing_seen() -> Running:
    """Before the first number."""
    return Running(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def counted(running: Running, batch: Batch) -> Running:
    """With the rewards of one more batch [B], or of the valid steps of its windows."""
    reward = batch.data.reward
    weight = jnp.ones_like(reward) if batch.weight is None else batch.weight
    if batch.valid is None:
        return merged(running, reward, weight)
    if batch.valid_steps is not None:  # windows were drawn in proportion to them: every step counts equally
        weight = weight / batch.valid_steps[:, None]
    return merged(running, reward, jnp.where(batch.valid, weight, 0.0))


def merged(running: Running, values: jax.Array, weight: jax.Array) -> Running:
    """With more values, each as often as its weight of the same shape says."""
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
    """The standard deviation, or 1 while all numbers were the same."""
    spread = jnp.sqrt(running.variance)
    return jnp.where(spread > 1e-8, spread, 1.0)
