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
    """Actions like the logged ones, given what was seen (observations, or features that its encoder made of them)."""

    encoder: Encoder
    inward: MLP
    outward: MLP

    @classmethod
    def create(
        cls, generator: np.random.Generator, spec: Spec, *, hidden: tuple[int, ...], latent: int, sight: EncoderConfig
    ) -> Generator:
        """Two networks of widths `hidden`, between them `latent` numbers."""
        if not isinstance(spec.action, Continuous):
            raise TypeError(f"a generator makes Continuous actions, found {type(spec.action).__name__}")
        features, actions = sight.size(spec), spec.action.size
        encoder = Encoder.create(generator, spec, sight)
        inward = MLP.create(generator, (features + actions, *hidden, 2 * latent), linear=Linear.uniform)
        outward = MLP.create(generator, (features + latent, *hidden, actions), linear=Linear.uniform)
        return cls(encoder, inward, outward)

    def encode(self, observation: Seen, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and log-std [B, L] of the latents that stand for an action [B, A]."""
        made = self.inward(jnp.concatenate([self.encoder(observation), action], axis=-1))
        mean, log_std = jnp.split(made, 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)

    def decode(self, observation: Seen, latent: jax.Array) -> jax.Array:
        """The action [B, A] within [-1, 1] that latents [B, L] stand for."""
        return jnp.tanh(self.outward(jnp.concatenate([self.encoder(observation), latent], axis=-1)))
