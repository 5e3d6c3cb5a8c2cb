"""Choosing actions from an actor's distribution. Letters: `B` batch, `A` number of actions or action size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.networks.actor import Actor
from tidelog.networks.distributions import Categorical, Distribution
from tidelog.support import best
from tidelog.types import Act, Observation


class Among(NamedTuple):
    """The best of the marked actions with probability `1 - epsilon`, else any of them, equally likely."""

    values: jax.Array  # [B, A]
    marked: jax.Array  # [B, A] bool
    epsilon: jax.Array | float

    def mode(self) -> jax.Array:
        """The marked action [B] of highest value."""
        return best(self.values, self.marked)

    def sample(self, key: jax.Array) -> jax.Array:
        """A random action [B]."""
        coin, inner = jax.random.split(key)
        anyone = jax.random.categorical(inner, jnp.where(self.marked, 0.0, -jnp.inf))
        return jnp.where(jax.random.uniform(coin, anyone.shape) < self.epsilon, anyone, self.mode())

    def probabilities(self) -> jax.Array:
        """Probabilities [B, A]."""
        evenly = self.marked / jnp.sum(self.marked, axis=-1, keepdims=True)
        return self.epsilon * evenly + (1.0 - self.epsilon) * jax.nn.one_hot(self.mode(), self.values.shape[-1])

    def log_probability(self, action: jax.Array) -> jax.Array:
        """Log-probability [B]; -inf of what is never done."""
        return jnp.log(jnp.take_along_axis(self.probabilities(), action[:, None], axis=-1)[:, 0])

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """Negative log-probability [B]."""
        return -self.log_probability(action)

    def entropy(self) -> jax.Array:
        """Entropy in nats [B]."""
        p = self.probabilities()
        return -jnp.sum(jax.scipy.special.xlogy(p, p), axis=-1)


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


def start(actor: Any, batch: int) -> Any:
    """What an actor's memory holds before anything was seen; None without one."""
    return actor.start(batch) if isinstance(actor, Actor) else None


def sampled(
    actor: Any, observation: Observation, mask: jax.Array | None, carry: Any, epsilon: jax.Array | float | None
) -> tuple[Distribution, Any]:
    """The sampled policy, mixed with its own mode where there is an epsilon; and what is carried on."""
    if isinstance(actor, Actor):
        carry = actor.start(_rows(observation)) if carry is None else carry
        base, carry = actor.step(observation, carry, mask)
    else:
        base = actor(observation, mask=mask)
    return (base if epsilon is None else Mixed(base, epsilon)), carry


def choose(
    actor: Any,
    observation: Observation,
    mask: jax.Array | None,
    carry: Any,
    key: jax.Array | None,
    epsilon: jax.Array | float | None,
) -> Act:
    """The mode without a key, a sample with one; the log-probability is the sampled policy's."""
    policy, carry = sampled(actor, observation, mask, carry, epsilon)
    action = policy.mode() if key is None else policy.sample(key)
    return Act(action, policy.log_probability(action), carry)


def in_blocks(function: Callable[[Any], Any], rows: Any, size: int) -> Any:
    """`function` of leaves [B, ...], at most `size` rows at a time, so that large batches need little room."""
    count = len(jax.tree.leaves(rows)[0])
    if count <= size:
        return function(rows)
    blocks = -(-count // size)

    def cut(leaf: jax.Array) -> jax.Array:
        padded = jnp.concatenate([leaf, jnp.repeat(leaf[-1:], blocks * size - count, axis=0)])
        return padded.reshape(blocks, size, *leaf.shape[1:])

    made = jax.lax.map(function, jax.tree.map(cut, rows))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], made)


def _rows(observation: Observation) -> int:
    return len(next(iter(observation.values())))
