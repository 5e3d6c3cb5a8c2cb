"""Binary cross-entropies of sampled choices. Letters: `K` sampled negatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tidelog.types import same_shape


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
