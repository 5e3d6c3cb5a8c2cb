"""Action choice from an actor's distribution. Letters: `B` batch, `A` number of actions or action size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.networks.actor import Actor
from tidelog.networks.distributions import Categorical, Distribution
from tidelog.support import best
from tidelog.types import Act, Observation


class EpsilonGreedy(NamedTuple):
    """The best of the marked actions with probability `1 - epsilon`, else a uniform one of them."""

    values: jax.Array  # [B, A]
    marked: jax.Array  # [B, A] bool
    epsilon: jax.Array | float

    def mode(self) -> jax.Array:
        """Return the marked action [B] of highest value."""
        return best(self.values, self.marked)

    def sample(self, key: jax.Array) -> jax.Array:
        """Return a random action [B]."""
        coin, inner = jax.random.split(key)
        uniform = jax.random.categorical(inner, jnp.where(self.marked, 0.0, -jnp.inf))
        return jnp.where(jax.random.uniform(coin, uniform.shape) < self.epsilon, uniform, self.mode())

    def probabilities(self) -> jax.Array:
        """Return probabilities [B, A]."""
        uniform = self.marked / jnp.sum(self.marked, axis=-1, keepdims=True)
        return self.epsilon * uniform + (1.0 - self.epsilon) * jax.nn.one_hot(self.mode(), self.values.shape[-1])

    def log_probability(self, action: jax.Array) -> jax.Array:
        """Return log-probabilities [B]; -inf for actions of probability 0."""
        return jnp.log(jnp.take_along_axis(self.probabilities(), action[:, None], axis=-1)[:, 0])

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """Return negative log-probabilities [B]."""
        return -self.log_probability(action)

    def entropy(self) -> jax.Array:
        """Return entropies in nats [B]."""
        p = self.probabilities()
        return -jnp.sum(jax.scipy.special.xlogy(p, p), axis=-1)


class EpsilonMode(NamedTuple):
    """A sample of the base distribution with probability `epsilon`, else its mode.

    Discrete mixtures have exact probabilities; continuous ones have no density, because the mode has a point mass.
    """

    base: Distribution
    epsilon: jax.Array | float

    def mode(self) -> jax.Array:
        """Return the base distribution's mode."""
        return self.base.mode()

    def sample(self, key: jax.Array) -> jax.Array:
        """Return a random action [B] or [B, A]."""
        coin, inner = jax.random.split(key)
        mode, sample = self.base.mode(), self.base.sample(inner)
        draw = jax.random.uniform(coin, mode.shape[:1]) < self.epsilon
        return jnp.where(draw.reshape(-1, *[1] * (mode.ndim - 1)), sample, mode)

    def probabilities(self) -> jax.Array:
        """Return probabilities [B, A] of discrete actions."""
        if not isinstance(self.base, Categorical):
            raise TypeError("continuous actions have no probabilities. fix: use sample() or discrete actions")
        greedy = jax.nn.one_hot(self.base.mode(), self.base.logits.shape[-1])
        return self.epsilon * self.base.probabilities() + (1.0 - self.epsilon) * greedy

    def log_probability(self, action: jax.Array) -> jax.Array | None:
        """Return log-probabilities [B], or None with continuous actions."""
        if not isinstance(self.base, Categorical):
            return None
        return jnp.log(jnp.take_along_axis(self.probabilities(), action[:, None], axis=-1)[:, 0])

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """Return the base distribution's imitation error [B]."""
        return self.base.imitation_error(action)

    def entropy(self) -> jax.Array | None:
        """Return the base distribution's entropy [B]."""
        return self.base.entropy()


def start(actor: Any, batch: int) -> Any:
    """Return an actor's initial recurrent state, or None for a feed-forward actor."""
    return actor.start(batch) if isinstance(actor, Actor) else None


def sampled(
    actor: Any, observation: Observation, mask: jax.Array | None, carry: Any, epsilon: jax.Array | float | None
) -> tuple[Distribution, Any]:
    """Return the sampled policy, mixed with its own mode where there is an epsilon, and the new recurrent state."""
    if isinstance(actor, Actor):
        carry = actor.start(_rows(observation)) if carry is None else carry
        base, carry = actor.step(observation, carry, mask)
    else:
        base = actor(observation, mask=mask)
    return (base if epsilon is None else EpsilonMode(base, epsilon)), carry


def choose(
    actor: Any,
    observation: Observation,
    mask: jax.Array | None,
    carry: Any,
    key: jax.Array | None,
    epsilon: jax.Array | float | None,
) -> Act:
    """Return the mode without a key or a sample with one; the log-probability is the sampled policy's."""
    policy, carry = sampled(actor, observation, mask, carry, epsilon)
    action = policy.mode() if key is None else policy.sample(key)
    return Act(action, policy.log_probability(action), carry)


def in_blocks(function: Callable[[Any], Any], rows: Any, size: int) -> Any:
    """Apply `function` to leaves [B, ...] in blocks of at most `size` rows, to limit the memory use."""
    count = len(jax.tree.leaves(rows)[0])
    if count <= size:
        return function(rows)
    blocks = -(-count // size)

    def to_blocks(leaf: jax.Array) -> jax.Array:
        padded = jnp.concatenate([leaf, jnp.repeat(leaf[-1:], blocks * size - count, axis=0)])
        return padded.reshape(blocks, size, *leaf.shape[1:])

    outputs = jax.lax.map(function, jax.tree.map(to_blocks, rows))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], outputs)


def _rows(observation: Observation) -> int:
    return len(next(iter(observation.values())))
