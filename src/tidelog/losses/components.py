"""Several rewards: values with a last axis of components, and their weighted sum.

Letters: `B` batch, `E` ensemble, `K` reward components.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Components(NamedTuple):
    """The reward components and their weights [K]; with weights None (one reward) every method is the identity."""

    weights: jax.Array | None

    @classmethod
    def of(cls, reward: jax.Array, scalar: jax.Array, weights: tuple[float, ...] | None) -> Components:
        """Return the components of rewards [B, K], or of one reward [B] as `scalar` has; weights None means ones."""
        if reward.ndim == scalar.ndim:
            return cls(None)
        return cls(jnp.ones(reward.shape[-1]) if weights is None else jnp.asarray(weights))

    def total(self, values: jax.Array) -> jax.Array:
        """Return the weighted sum over components: [..., K] -> [...]."""
        return values if self.weights is None else jnp.sum(values * self.weights, axis=-1)

    def average(self, errors: jax.Array) -> jax.Array:
        """Return the mean of per-component errors: [..., K] -> [...]."""
        return errors if self.weights is None else jnp.mean(errors, axis=-1)

    def expand(self, scalars: jax.Array) -> jax.Array:
        """Broadcast scalars [...] against values [..., K]."""
        return scalars if self.weights is None else scalars[..., None]

    def smallest(self, values: jax.Array) -> jax.Array:
        """Return the values of the ensemble member with the smallest total: [E, B] -> [B], [E, B, K] -> [B, K]."""
        if self.weights is None:
            return jnp.min(values, axis=0)
        member = jnp.argmin(self.total(values), axis=0)
        return jnp.take_along_axis(values, member[None, ..., None], axis=0)[0]
