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
    """Which way to move an action, one number a dimension: observation and action [B, A] -> [B, A] within [-1, 1]."""

    encoder: Encoder
    body: MLP

    @classmethod
    def create(
        cls, generator: np.random.Generator, spec: Spec, *, hidden: tuple[int, ...], sight: EncoderConfig
    ) -> Perturbation:
        """A network of widths `hidden`."""
        if not isinstance(spec.action, Continuous):
            raise TypeError(f"a perturbation moves Continuous actions, found {type(spec.action).__name__}")
        sizes = (sight.size(spec) + spec.action.size, *hidden, spec.action.size)
        return cls(Encoder.create(generator, spec, sight), MLP.create(generator, sizes, linear=Linear.uniform))

    def __call__(self, observation: Seen, action: jax.Array) -> jax.Array:
        return jnp.tanh(self.body(jnp.concatenate([self.encoder(observation), action], axis=-1)))


def moved(action: jax.Array, direction: jax.Array, reach: jax.Array | float) -> jax.Array:
    """Actions moved by `reach` times a direction, cut at the bounds [-1, 1]: all [..., A]."""
    if action.shape != direction.shape:
        raise TypeError(f"action and direction must have one shape, found {action.shape} and {direction.shape}")
    return jnp.clip(action + reach * direction, -1.0, 1.0)
