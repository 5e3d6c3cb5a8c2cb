"""A conditional variational autoencoder of actions. Letters: `B` batch, `A` action size, `L` latent size."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.encode import Encoder, EncoderConfig, Seen
from tidelog.networks.mlp import MLP, Linear
from tidelog.types import Continuous, Spec

LOG_STD_RANGE = (-4.0, 15.0)


class Generator(eqx.Module):
    """A model of the logged actions, given observations or encoder features of them."""

    encoder: Encoder
    inward: MLP
    outward: MLP

    @classmethod
    def create(
        cls,
        generator: np.random.Generator,
        spec: Spec,
        *,
        hidden: tuple[int, ...],
        latent: int,
        encoder_config: EncoderConfig,
    ) -> Generator:
        """Return encoder and decoder of widths `hidden`, with `latent` numbers between them."""
        if not isinstance(spec.action, Continuous):
            raise TypeError(
                f"a generator supports Continuous actions, got {type(spec.action).__name__}. fix: use these"
            )
        features, actions = encoder_config.size(spec), spec.action.size
        encoder = Encoder.create(generator, spec, encoder_config)
        inward = MLP.create(generator, (features + actions, *hidden, 2 * latent), linear=Linear.uniform)
        outward = MLP.create(generator, (features + latent, *hidden, actions), linear=Linear.uniform)
        return cls(encoder, inward, outward)

    def encode(self, observation: Seen, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return mean and log-std [B, L] of the latents of an action [B, A]."""
        outputs = self.inward(jnp.concatenate([self.encoder(observation), action], axis=-1))
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)

    def decode(self, observation: Seen, latent: jax.Array) -> jax.Array:
        """Return the action [B, A] within [-1, 1] of latents [B, L]."""
        return jnp.tanh(self.outward(jnp.concatenate([self.encoder(observation), latent], axis=-1)))
