"""Actors: an encoder, a trunk, and a distribution head. Letters: `B` batch, `A` actions or action size.

Continuous actions are in [-1, 1]. A function creates the head; a new kind of head is a new function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.arrays import zeros
from tidelog.networks.distributions import Categorical, Distribution, Gaussian, Point
from tidelog.networks.encode import DEFAULT_ENCODER, Encoder, EncoderConfig
from tidelog.networks.mlp import MLP, Linear, MakeLinear
from tidelog.support import allow
from tidelog.types import Continuous, Discrete, Observation, Spec, Transition

LOG_STD_RANGE = (-5.0, 2.0)


class GaussianHead(eqx.Module):
    """Mean `tanh(linear)`, one log-std per dimension, independent of observations: [B, F] -> Gaussian, not squashed."""

    mean: Linear
    log_std: jax.Array  # [A]

    def __call__(self, features: jax.Array) -> Gaussian:
        return Gaussian(jnp.tanh(self.mean(features)), jnp.clip(self.log_std, *LOG_STD_RANGE))


class StateGaussianHead(eqx.Module):
    """Mean `tanh(linear)` and a log-std that depends on the observation: [B, F] -> Gaussian."""

    mean: Linear
    log_std: Linear

    def __call__(self, features: jax.Array) -> Gaussian:
        return Gaussian(jnp.tanh(self.mean(features)), jnp.clip(self.log_std(features), *LOG_STD_RANGE))


class PointHead(eqx.Module):
    """A deterministic action `tanh(linear)`: [B, F] -> Point."""

    mean: Linear

    def __call__(self, features: jax.Array) -> Point:
        return Point(jnp.tanh(self.mean(features)))


Head = GaussianHead | StateGaussianHead | PointHead
HeadFactory = Callable[[np.random.Generator, int, int], Head]


def gaussian(generator: np.random.Generator, features: int, actions: int) -> GaussianHead:
    """Return a Gaussian with one learnt standard deviation for all observations, starting at 1."""
    return GaussianHead(Linear.create(generator, features, actions), zeros(actions))


def state_gaussian(generator: np.random.Generator, features: int, actions: int) -> StateGaussianHead:
    """Return a Gaussian whose standard deviation depends on the observation, starting near 1."""
    log_std = Linear.create(generator, features, actions, gain=1e-3 * math.sqrt(2.0))
    return StateGaussianHead(Linear.create(generator, features, actions), log_std)


def deterministic(generator: np.random.Generator, features: int, actions: int) -> PointHead:
    """Return a point: cloning becomes (weighted) regression."""
    return PointHead(Linear.create(generator, features, actions))


HEADS: Mapping[str, HeadFactory] = {
    "gaussian": gaussian,
    "state-gaussian": state_gaussian,
    "deterministic": deterministic,
}


class Actor(eqx.Module):
    """Observation -> distribution over actions."""

    encoder: Encoder
    trunk: MLP
    head: Head | Linear

    @classmethod
    def create(
        cls,
        generator: np.random.Generator,
        spec: Spec,
        *,
        hidden: tuple[int, ...] = (256, 256),
        layer_norm: bool = False,
        encoder_config: EncoderConfig = DEFAULT_ENCODER,
        head: HeadFactory = gaussian,
        linear: MakeLinear | None = None,
    ) -> Actor:
        """Return a network of widths `hidden`; `head` is for continuous actions, discrete actions have logits.

        `linear` creates the dense layers of the trunk and of logits (default: orthogonal).
        """
        sizes = (encoder_config.size(spec), *hidden)
        encoder = Encoder.create(generator, spec, encoder_config)
        trunk = MLP.create(generator, sizes, layer_norm=layer_norm, activate_last=True, linear=linear)
        if isinstance(spec.action, Discrete):
            return cls(encoder, trunk, (linear or Linear.create)(generator, sizes[-1], spec.action.n))
        if not isinstance(spec.action, Continuous):
            raise TypeError(
                f"an actor supports Discrete or Continuous actions, got {type(spec.action).__name__}. fix: use one"
            )
        return cls(encoder, trunk, head(generator, sizes[-1], spec.action.size))

    def __call__(
        self,
        observation: Observation,
        real: jax.Array | None = None,
        *,
        mask: jax.Array | None = None,
        dropout: jax.Array | float | None = None,
        key: jax.Array | None = None,
    ) -> Distribution:
        return self._act(self.encoder(observation, real), mask, dropout, key)

    def after(self, row: Transition) -> Distribution:
        """Return the distribution for next observations, without mask; recurrent: from the previous step's state."""
        return self._act(self.encoder.both(row)[1], None, None, None)

    def start(self, batch: int) -> jax.Array | None:
        """Return the initial recurrent state, or None for a feed-forward network."""
        return self.encoder.start(batch)

    def step(
        self, observation: Observation, carry: jax.Array | None, mask: jax.Array | None
    ) -> tuple[Distribution, jax.Array | None]:
        """Return the distribution for one more observation [B, ...], and the new recurrent state."""
        features, carry = self.encoder.step(observation, carry)
        return self._act(features, mask, None, None), carry

    def _act(
        self,
        features: jax.Array,
        mask: jax.Array | None,
        dropout: jax.Array | float | None,
        key: jax.Array | None,
    ) -> Distribution:
        outputs = self.head(self.trunk(features, dropout=dropout, key=key))
        return Categorical(allow(outputs, mask)) if isinstance(outputs, jax.Array) else outputs


def policy_after(actor: Any, row: Transition) -> Any:
    """Return the distribution for next observations, without mask, for an Actor or a custom module."""
    return actor.after(row) if isinstance(actor, Actor) else actor(row.next_observation)
