"""A bounded correction of an action. Letters: `B` batch, `A` action size."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.encode import Encoder, EncoderConfig, Seen
from tidelog.networks.mlp import MLP, Linear
from tidelog.types import Continuous, Spec


class Perturbation(eqx.Module):
    """The direction of an action's perturbation: observation and action [B, A] -> [B, A] within [-1, 1]."""

    encoder: Encoder
    body: MLP

    @classmethod
    def create(
        cls, generator: np.random.Generator, spec: Spec, *, hidden: tuple[int, ...], encoder_config: EncoderConfig
    ) -> Perturbation:
        """Return a network of widths `hidden`."""
        if not isinstance(spec.action, Continuous):
            raise TypeError(
                f"a perturbation supports Continuous actions, got {type(spec.action).__name__}. fix: use these"
            )
        sizes = (encoder_config.size(spec) + spec.action.size, *hidden, spec.action.size)
        return cls(Encoder.create(generator, spec, encoder_config), MLP.create(generator, sizes, linear=Linear.uniform))

    def __call__(self, observation: Seen, action: jax.Array) -> jax.Array:
        return jnp.tanh(self.body(jnp.concatenate([self.encoder(observation), action], axis=-1)))


def perturb(action: jax.Array, direction: jax.Array, reach: jax.Array | float) -> jax.Array:
    """Return actions moved by `reach` times a direction, clipped at the bounds [-1, 1]: all [..., A]."""
    if action.shape != direction.shape:
        raise TypeError(
            f"action {action.shape} and direction {direction.shape} have different shapes. fix: give both one shape"
        )
    return jnp.clip(action + reach * direction, -1.0, 1.0)
