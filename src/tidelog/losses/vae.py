"""Losses of a conditional variational autoencoder. Letters: `B` batch, `A` action size, `L` latent size."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from tidelog.types import same_shape

Reduction = Callable[[jax.Array], jax.Array]


def reconstruction_error(decoded: jax.Array, action: jax.Array) -> jax.Array:
    """Squared distance averaged over dimensions: decoded and action [..., A] -> [...]."""
    same_shape(decoded=decoded, action=action)
    return jnp.mean(jnp.square(decoded - action), axis=-1)


def normal_divergence(mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """KL divergence in nats of each normal from the standard one: mean and log_std [..., L] -> [..., L].

    Source: Kingma and Welling 2014, appendix B.
    """
    same_shape(mean=mean, log_std=log_std)
    return -0.5 * (1.0 + 2.0 * log_std - jnp.square(mean) - jnp.exp(2.0 * log_std))


def mean_over_latents(divergence: jax.Array) -> jax.Array:
    """[..., L] -> [...], divided by L."""
    return jnp.mean(divergence, axis=-1)


def sum_over_latents(divergence: jax.Array) -> jax.Array:
    """[..., L] -> [...], not divided: the exact KL divergence."""
    return jnp.sum(divergence, axis=-1)


REDUCTIONS: Mapping[str, Reduction] = {"mean": mean_over_latents, "sum": sum_over_latents}
