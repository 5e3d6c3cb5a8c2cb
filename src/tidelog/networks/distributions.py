"""What an actor returns: a distribution over actions. Letters: `B` batch, `A` action size or number of actions.

All three answer the same calls; `log_probability` and `entropy` are None where there is no density.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from tidelog.losses.imitation import categorical_log_probability, gaussian_log_probability, squared_distance


class Distribution(Protocol):
    """A distribution over a batch of actions."""

    def mode(self) -> jax.Array:
        """The most likely action."""

    def sample(self, key: jax.Array) -> jax.Array:
        """A random action."""

    def log_probability(self, action: jax.Array) -> jax.Array | None:
        """Log-probability (density) of given actions [B]."""

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """What cloning minimises [B]: the negative log-probability, or the squared distance."""

    def entropy(self) -> jax.Array | None:
        """Entropy in nats [B]."""


class Gaussian(NamedTuple):
    """Independent normals; samples are cut at the bounds [-1, 1] by whoever executes them."""

    mean: jax.Array  # [B, A]
    log_std: jax.Array  # [B, A] or [A]

    def mode(self) -> jax.Array:
        """The mean [B, A]."""
        return self.mean

    def sample(self, key: jax.Array) -> jax.Array:
        """A random action [B, A]."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def log_probability(self, action: jax.Array) -> jax.Array:
        """Log-density [B]."""
        return gaussian_log_probability(self.mean, self.log_std, action)

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """Negative log-density [B]."""
        return -self.log_probability(action)

    def entropy(self) -> jax.Array:
        """Entropy [B]."""
        spread = jnp.broadcast_to(self.log_std, self.mean.shape)
        return jnp.sum(spread + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


class Point(NamedTuple):
    """All mass on one action: a deterministic policy."""

    mean: jax.Array  # [B, A]

    def mode(self) -> jax.Array:
        """The action [B, A]."""
        return self.mean

    def sample(self, key: jax.Array) -> jax.Array:
        """The same action [B, A], whatever the key."""
        return self.mean

    def log_probability(self, action: jax.Array) -> None:
        """None: there is no density."""

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """Squared distance [B]."""
        return squared_distance(self.mean, action)

    def entropy(self) -> None:
        """None: there is no density."""


class Categorical(NamedTuple):
    """A choice among `A` actions; forbidden ones have logit -inf."""

    logits: jax.Array  # [B, A]

    def mode(self) -> jax.Array:
        """The most likely action [B]."""
        return jnp.argmax(self.logits, axis=-1)

    def sample(self, key: jax.Array) -> jax.Array:
        """A random action [B]."""
        return jax.random.categorical(key, self.logits)

    def probabilities(self) -> jax.Array:
        """Probabilities [B, A]."""
        return jax.nn.softmax(self.logits)

    def log_probability(self, action: jax.Array) -> jax.Array:
        """Log-probability [B]."""
        return categorical_log_probability(self.logits, action)

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """Negative log-probability [B]."""
        return -self.log_probability(action)

    def entropy(self) -> jax.Array:
        """Entropy [B]; forbidden actions contribute nothing."""
        log_p = jax.nn.log_softmax(self.logits)
        p = jnp.exp(log_p)
        return -jnp.sum(jnp.where(p > 0, p * log_p, 0.0), axis=-1)
