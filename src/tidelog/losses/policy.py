"""Weights of advantage-weighted policy extraction. Letters: `B` batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def advantage_weight(advantage: jax.Array, temperature: jax.Array | float, largest: jax.Array | float) -> jax.Array:
    """`min(exp(temperature * advantage), largest)`, held fixed, of the shape of `advantage`.

    The temperature multiplies. At 0 every weight is 1 and what is left is behaviour cloning.
    Source: Kostrikov et al. 2021, equation 7.
    """
    return jax.lax.stop_gradient(jnp.minimum(jnp.exp(temperature * advantage), largest))
