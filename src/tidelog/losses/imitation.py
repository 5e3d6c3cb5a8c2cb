"""Likelihoods of logged actions, and the losses of probabilities.

Letters: `B` batch, `A` number of actions or action size.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

# Log-probabilities and distances for cloning. Letters: `B` batch, `A` action size or number of actions.


def gaussian_log_probability(mean: jax.Array, log_std: jax.Array, action: jax.Array) -> jax.Array:
    """Log-density of a diagonal Gaussian: mean and action [..., A], log_std [..., A] or [A] -> [...]."""
    if mean.shape != action.shape:
        raise TypeError(
            f"mean {mean.shape} and action {action.shape} have different shapes. fix: give both one shape [..., A]"
        )
    z = (action - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * jnp.square(z) - log_std - 0.5 * math.log(2 * math.pi), axis=-1)


def categorical_log_probability(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Log-probability of a choice: logits [..., A] (forbidden ones -inf), action [...] int -> [...]."""
    if logits.shape[:-1] != action.shape:
        raise TypeError(
            f"logits have shape {logits.shape} and action {action.shape}, expected [..., A] and [...]. "
            "fix: one action per row"
        )
    return pick(jax.nn.log_softmax(logits), action)


def squared_distance(mean: jax.Array, action: jax.Array) -> jax.Array:
    """Squared distance summed over dimensions: mean and action [..., A] -> [...]."""
    if mean.shape != action.shape:
        raise TypeError(
            f"mean {mean.shape} and action {action.shape} have different shapes. fix: give both one shape [..., A]"
        )
    return jnp.sum(jnp.square(mean - action), axis=-1)


def pick(values: jax.Array, action: jax.Array) -> jax.Array:
    """`values[..., action]`: values [..., A], action [...] int -> [...].

    The sum over a mask has a faster gradient on CPU than a scatter.
    """
    chosen = jnp.arange(values.shape[-1]) == action[..., None]
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=-1)


def mean_square(logits: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Mean of squared logits over the allowed actions: logits and mask [..., A] -> [...]."""
    squares = jnp.square(logits)
    if mask is None:
        return jnp.mean(squares, axis=-1)
    return jnp.sum(squares, axis=-1, where=mask) / jnp.sum(mask, axis=-1)
