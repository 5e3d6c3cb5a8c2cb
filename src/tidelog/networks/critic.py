"""State values and action values. Letters: `B` batch, `A` actions or action size, `E` ensemble."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.losses.imitation import pick
from tidelog.networks.encode import Encoder, encoded_size
from tidelog.networks.mlp import MLP
from tidelog.types import Array, Continuous, Discrete, Observation, Spec


class Value(eqx.Module):
    """V(s): observation -> [B]."""

    encoder: Encoder
    body: MLP

    @classmethod
    def create(
        cls, generator: np.random.Generator, spec: Spec, *, hidden: tuple[int, ...], embedding: int, layer_norm: bool
    ) -> Value:
        """A network of widths `hidden`."""
        sizes = (encoded_size(spec.observation, embedding), *hidden, 1)
        encoder = Encoder.create(generator, spec.observation, embedding)
        return cls(encoder, MLP.create(generator, sizes, layer_norm=layer_norm))

    def __call__(self, observation: Observation) -> jax.Array:
        return self.body(self.encoder(observation))[..., 0]


class Critic(eqx.Module):
    """Q(s, a): observation and action -> [B]; with discrete actions all [B, A] are computed and one is picked."""

    encoder: Encoder
    body: MLP
    discrete: bool = eqx.field(static=True)

    @classmethod
    def create(
        cls, generator: np.random.Generator, spec: Spec, *, hidden: tuple[int, ...], embedding: int, layer_norm: bool
    ) -> Critic:
        """A network of widths `hidden`."""
        features = encoded_size(spec.observation, embedding)
        encoder = Encoder.create(generator, spec.observation, embedding)
        if isinstance(spec.action, Discrete):
            sizes = (features, *hidden, spec.action.n)
            return cls(encoder, MLP.create(generator, sizes, layer_norm=layer_norm), True)
        if not isinstance(spec.action, Continuous):
            raise TypeError(f"a critic rates Discrete or Continuous actions, found {type(spec.action).__name__}")
        sizes = (features + spec.action.size, *hidden, 1)
        return cls(encoder, MLP.create(generator, sizes, layer_norm=layer_norm), False)

    def all_actions(self, observation: Observation) -> jax.Array:
        """Values of every discrete action [B, A]."""
        return self.body(self.encoder(observation))

    def __call__(self, observation: Observation, action: Array) -> jax.Array:
        if self.discrete:
            return pick(self.all_actions(observation), jnp.asarray(action))
        return self.body(jnp.concatenate([self.encoder(observation), action], axis=-1))[..., 0]


class Ensemble(eqx.Module):
    """Several networks on the same input: -> [E, ...].

    They stay apart: one batched product over stacked weights is slower on CPU than one product each.
    """

    members: tuple[Any, ...]

    @classmethod
    def create(cls, size: int, make: Callable[[], Any]) -> Ensemble:
        """`size` networks, each from its own call of `make`."""
        return cls(tuple(make() for _ in range(size)))

    def __call__(self, *inputs: Any) -> jax.Array:
        return jnp.stack([member(*inputs) for member in self.members])

    def all_actions(self, observation: Observation) -> jax.Array:
        """Values of every discrete action [E, B, A]."""
        return jnp.stack([member.all_actions(observation) for member in self.members])
