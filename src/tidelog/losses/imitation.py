"""Likelihoods of logged actions, and the losses of probabilities.

Letters: `B` batch, `A` number of actions or action size.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from tidelog.types import same_shape

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


# Binary cross-entropies of sampled choices. Letters: `K` sampled negatives.


def calibrated_binary_error(
    positive: jax.Array, negative: jax.Array, counted: jax.Array, rate: Any, calibration: Any
) -> jax.Array:
    """Calibrated binary cross-entropy of a choice against uniformly sampled ones (gBCE): [...].

    `positive` [...] is the logit of the choice, `negative` [..., K] those of the sampled ones, of which `counted`
    [..., K] bool count: a sample that equals the choice does not. `rate` is the expected number of times that each
    other choice is in the sample. The error is `-(beta log sigmoid(s+) + sum_k log(1 - sigmoid(s-_k))) / (K + 1)` with
    `beta = rate (t (1 - 1 / rate) + 1 / rate)`. At calibration `t = 1` the smallest error has `sigmoid(s) = p`, the
    probability of the choice; `t = 0` is the plain error, whose sigmoids are too large because most negatives are not
    in the sample (Petrov and Macdonald 2023, gSASRec, arXiv:2308.07192).
    """
    same_shape(negative=negative, counted=counted)
    beta = calibration * (rate - 1.0) + 1.0
    others = jnp.sum(jnp.where(counted, jax.nn.softplus(negative), 0.0), axis=-1)
    error: jax.Array = (beta * jax.nn.softplus(-positive) + others) / (negative.shape[-1] + 1.0)
    return error
