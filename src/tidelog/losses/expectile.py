"""Expectile regression. Letters: `B` batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def expectile_error(difference: jax.Array, expectile: jax.Array | float, side: jax.Array | None = None) -> jax.Array:
    """Asymmetric squared error `|expectile - 1(side < 0)| difference**2`, of the shape of `difference`.

    `side` selects the side; by default it is the difference itself. At 1/2 the error is half the squared error.
    Source: Newey and Powell 1987; Kostrikov et al. 2021, equation 5.
    """
    weight = jnp.where((difference if side is None else side) < 0, 1.0 - expectile, expectile)
    return jax.lax.stop_gradient(weight) * jnp.square(difference)
