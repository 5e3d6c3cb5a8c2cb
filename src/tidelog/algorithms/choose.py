"""Choosing actions from an actor's distribution. Letters: `B` batch, `A` number of actions or action size."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tidelog.networks.distributions import Categorical, Distribution
from tidelog.types import Act


class Mixed(NamedTuple):
    """A sample of the base distribution with probability `epsilon`, else its mode.

    Discrete mixtures have exact probabilities; with continuous actions the mode carries mass, so there is no density.
    """

    base: Distribution
    epsilon: jax.Array | float

    def mode(self) -> jax.Array:
        """The base distribution's mode."""
        return self.base.mode()

    def sample(self, key: jax.Array) -> jax.Array:
        """A random action [B] or [B, A]."""
        coin, inner = jax.random.split(key)
        mode, sample = self.base.mode(), self.base.sample(inner)
        draw = jax.random.uniform(coin, mode.shape[:1]) < self.epsilon
        return jnp.where(draw.reshape(-1, *[1] * (mode.ndim - 1)), sample, mode)

    def probabilities(self) -> jax.Array:
        """Probabilities [B, A] of discrete actions."""
        if not isinstance(self.base, Categorical):
            raise TypeError("only discrete actions have probabilities")
        greedy = jax.nn.one_hot(self.base.mode(), self.base.logits.shape[-1])
        return self.epsilon * self.base.probabilities() + (1.0 - self.epsilon) * greedy

    def log_probability(self, action: jax.Array) -> jax.Array | None:
        """Log-probability [B], or None with continuous actions."""
        if not isinstance(self.base, Categorical):
            return None
        return jnp.log(jnp.take_along_axis(self.probabilities(), action[:, None], axis=-1)[:, 0])

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """The base distribution's imitation error [B]."""
        return self.base.imitation_error(action)

    def entropy(self) -> jax.Array | None:
        """The base distribution's entropy [B]."""
        return self.base.entropy()


def with_epsilon(base: Distribution, epsilon: jax.Array | float | None) -> Distribution:
    """The distribution itself, or its mixture with its own mode."""
    return base if epsilon is None else Mixed(base, epsilon)


def choose(policy: Distribution, key: jax.Array | None) -> Act:
    """The mode without a key, a sample with one; the log-probability is the sampled policy's."""
    action = policy.mode() if key is None else policy.sample(key)
    return Act(action, policy.log_probability(action))
