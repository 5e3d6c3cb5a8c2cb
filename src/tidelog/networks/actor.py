"""Actors: an encoder, a trunk, and a head that makes a distribution. Letters: `B` batch, `A` actions or action size.

Continuous actions are in [-1, 1]. Heads are chosen by a function, so that a new one is a new function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.distributions import Categorical, Distribution, Gaussian, Point
from tidelog.networks.encode import Encoder, EncoderConfig
from tidelog.networks.mlp import MLP, Linear, MakeLinear, zeros
from tidelog.support import allow
from tidelog.types import Continuous, Discrete, Observation, Spec, Transition

LOG_STD_RANGE = (-5.0, 2.0)


class GaussianHead(eqx.Module):
    """Mean `tanh(linear)`, one log-std a dimension that no observation changes: [B, F] -> Gaussian, not squashed."""

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
    """A Gaussian whose spread is learnt once for all observations, starting at 1."""
    return GaussianHead(Linear.create(generator, features, actions), zeros(actions))


def state_gaussian(generator: np.random.Generator, features: int, actions: int) -> StateGaussianHead:
    """A Gaussian whose spread depends on the observation, starting near 1."""
    spread = Linear.create(generator, features, actions, gain=1e-3 * math.sqrt(2.0))
    return StateGaussianHead(Linear.create(generator, features, actions), spread)


def deterministic(generator: np.random.Generator, features: int, actions: int) -> PointHead:
    """A point: cloning becomes (weighted) regression."""
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
        hidden: tuple[int, ...],
        layer_norm: bool,
        sight: EncoderConfig,
        head: HeadFactory,
        linear: MakeLinear | None = None,
    ) -> Actor:
        """A network of widths `hidden`; `head` counts for continuous actions, discrete ones get logits.

        `linear` makes the dense layers of the trunk and of logits (orthogonal unless told).
        """
        sizes = (sight.size(spec), *hidden)
        encoder = Encoder.create(generator, spec, sight)
        trunk = MLP.create(generator, sizes, layer_norm=layer_norm, activate_last=True, linear=linear)
        if isinstance(spec.action, Discrete):
            return cls(encoder, trunk, (linear or Linear.create)(generator, sizes[-1], spec.action.n))
        if not isinstance(spec.action, Continuous):
            raise TypeError(f"an actor acts on Discrete or Continuous actions, found {type(spec.action).__name__}")
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
        """The distribution for what followed, no mask; with a memory, each from its predecessor's state."""
        return self._act(self.encoder.both(row)[1], None, None, None)

    def start(self, batch: int) -> jax.Array | None:
        """What is carried before anything was seen, or None without a memory."""
        return self.encoder.start(batch)

    def step(
        self, observation: Observation, carry: jax.Array | None, mask: jax.Array | None
    ) -> tuple[Distribution, jax.Array | None]:
        """The distribution for one more observation [B, ...], and what is carried on."""
        features, carry = self.encoder.step(observation, carry)
        return self._act(features, mask, None, None), carry

    def _act(
        self,
        features: jax.Array,
        mask: jax.Array | None,
        dropout: jax.Array | float | None,
        key: jax.Array | None,
    ) -> Distribution:
        made = self.head(self.trunk(features, dropout=dropout, key=key))
        return Categorical(allow(made, mask)) if isinstance(made, jax.Array) else made


def policy_after(actor: Any, row: Transition) -> Any:
    """The distribution for what followed, no mask, for an Actor or any module that maps observations to one."""
    return actor.after(row) if isinstance(actor, Actor) else actor(row.next_observation)
