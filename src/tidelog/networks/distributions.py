"""Distributions over actions, the outputs of actors. Letters: `B` batch, `A` action size or number of actions.

All have the same methods; `log_probability` and `entropy` are None where there is no density. Those with a density also
have the `divergence` to another distribution of their kind.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from tidelog.losses.imitation import categorical_log_probability, gaussian_log_probability, squared_distance
from tidelog.losses.policy import categorical_divergence, gaussian_divergence
from tidelog.networks.arrays import normal


class Distribution(Protocol):
    """A distribution over a batch of actions."""

    def mode(self) -> jax.Array:
        """The most likely action."""

    def sample(self, key: jax.Array) -> jax.Array:
        """A random action."""

    def log_probability(self, action: jax.Array) -> jax.Array | None:
        """Log-probability (density) of given actions [B]."""

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """The cloning loss [B]: the negative log-probability, or the squared distance."""

    def entropy(self) -> jax.Array | None:
        """Entropy in nats [B]."""


class Gaussian(NamedTuple):
    """Independent normals; the executing side clips samples at the bounds [-1, 1]."""

    mean: jax.Array  # [B, A]
    log_std: jax.Array  # [B, A] or [A]

    def mode(self) -> jax.Array:
        """The mean [B, A]."""
        return self.mean

    def sample(self, key: jax.Array) -> jax.Array:
        """A random action [B, A]."""
        return self.mean + jnp.exp(self.log_std) * normal(key, self.mean.shape)

    def log_probability(self, action: jax.Array) -> jax.Array:
        """Log-density [B]."""
        return gaussian_log_probability(self.mean, self.log_std, action)

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """Negative log-density [B]."""
        return -self.log_probability(action)

    def entropy(self) -> jax.Array:
        """Entropy [B]."""
        log_std = jnp.broadcast_to(self.log_std, self.mean.shape)
        return jnp.sum(log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)

    def divergence(self, to: Gaussian) -> jax.Array:
        """KL divergence [B] from this distribution to another."""
        return gaussian_divergence(self.mean, self.log_std, to.mean, to.log_std)


class Point(NamedTuple):
    """All mass on one action: a deterministic policy."""

    mean: jax.Array  # [B, A]

    def mode(self) -> jax.Array:
        """The action [B, A]."""
        return self.mean

    def sample(self, key: jax.Array) -> jax.Array:
        """The same action [B, A] for every key."""
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
        """Entropy [B]; forbidden actions add nothing."""
        log_p = jax.nn.log_softmax(self.logits)
        p = jnp.exp(log_p)
        return -jnp.sum(p * jnp.where(p > 0, log_p, 0.0), axis=-1)

    def divergence(self, to: Categorical) -> jax.Array:
        """KL divergence [B] from this distribution to another with the same forbidden actions."""
        return categorical_divergence(self.logits, to.logits)


class Several(NamedTuple):
    """Several independent choices at once; every quantity of an action is the sum over them."""

    choices: tuple[Categorical, ...]

    def mode(self) -> jax.Array:
        """The most likely choices [B, M]."""
        return jnp.stack([choice.mode() for choice in self.choices], axis=-1)

    def sample(self, key: jax.Array) -> jax.Array:
        """Random choices [B, M]."""
        keys = jax.random.split(key, len(self.choices))
        return jnp.stack([choice.sample(k) for choice, k in zip(self.choices, keys, strict=True)], axis=-1)

    def log_probability(self, action: jax.Array) -> jax.Array:
        """Log-probability [B] of choices [B, M]."""
        return sum_of(choice.log_probability(action[..., i]) for i, choice in enumerate(self.choices))

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """Negative log-probability [B]."""
        return -self.log_probability(action)

    def entropy(self) -> jax.Array:
        """Entropy [B]."""
        return sum_of(choice.entropy() for choice in self.choices)

    def divergence(self, to: Several) -> jax.Array:
        """KL divergence [B] from this distribution to another."""
        return sum_of(one.divergence(two) for one, two in zip(self.choices, to.choices, strict=True))


def sum_of(parts: Iterable[jax.Array]) -> jax.Array:
    """The sum of arrays of one shape."""
    return functools.reduce(jnp.add, parts)
