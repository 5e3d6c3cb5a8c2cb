"""Distributions of actions, actors, and the choice of actions. Letters: `B` batch, `A` number of actions or action
size.

Continuous actions are in [-1, 1]. A function creates the head of an actor; a new kind of head is a new function.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.losses.imitation import categorical_log_probability, gaussian_log_probability, squared_distance
from tidelog.losses.policy import categorical_divergence, gaussian_divergence
from tidelog.networks.encoder import DEFAULT_ENCODER, Encoder, EncoderConfig
from tidelog.networks.layers import MLP, Activation, Linear, MakeLinear, normal, zeros
from tidelog.support import allow, best
from tidelog.types import (
    Act,
    ActionSpace,
    Continuous,
    Discrete,
    Hybrid,
    MultiDiscrete,
    Observation,
    Spec,
    Transition,
)

# Distributions over actions, the outputs of actors: all have the same methods; `log_probability` and `entropy` are None
# where there is no density. Those with a density also have the `divergence` to another distribution of their kind.


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


class Joint(NamedTuple):
    """The independent parts of a `Hybrid` action, rows [B, W]; every quantity of an action is the sum over them."""

    parts: tuple[Any, ...]  # each a Categorical, Several, Gaussian or Point

    def mode(self) -> jax.Array:
        """The most likely action [B, W]."""
        return self._row(part.mode() for part in self.parts)

    def sample(self, key: jax.Array) -> jax.Array:
        """A random action [B, W]."""
        keys = jax.random.split(key, len(self.parts))
        return self._row(part.sample(k) for part, k in zip(self.parts, keys, strict=True))

    def log_probability(self, action: jax.Array) -> jax.Array | None:
        """Log-probability or log-density [B]; None if a part has none."""
        return self._total([part.log_probability(own) for part, own in self._each(action)])

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """The cloning loss [B]."""
        return sum_of(part.imitation_error(own) for part, own in self._each(action))

    def entropy(self) -> jax.Array | None:
        """Entropy [B]; None if a part has none."""
        return self._total([part.entropy() for part in self.parts])

    def divergence(self, to: Joint) -> jax.Array:
        """KL divergence [B] from this distribution to another."""
        return sum_of(one.divergence(two) for one, two in zip(self.parts, to.parts, strict=True))

    def _row(self, actions: Iterable[jax.Array]) -> jax.Array:
        columns = [a[..., None] if isinstance(p, Categorical) else a for p, a in zip(self.parts, actions, strict=True)]
        return jnp.concatenate([column.astype(jnp.float32) for column in columns], axis=-1)

    def _each(self, action: jax.Array) -> Iterator[tuple[Any, jax.Array]]:
        start = 0
        for part in self.parts:
            coded = isinstance(part, Categorical | Several)
            width = len(getattr(part, "choices", "1")) if coded else part.mean.shape[-1]
            own = action[..., start : start + width]
            own = own.astype(jnp.int32) if coded else own
            yield part, own[..., 0] if isinstance(part, Categorical) else own
            start += width

    def _total(self, terms: list[jax.Array | None]) -> jax.Array | None:
        known = [term for term in terms if term is not None]
        return sum_of(known) if len(known) == len(terms) else None


def has_codes_only(policy: Any) -> bool:
    """Whether every part of a distribution's actions is a choice: a likelihood is then a probability."""
    parts = policy.parts if isinstance(policy, Joint) else (policy,)
    return all(isinstance(part, Categorical | Several) for part in parts)


# Actors: an encoder, a trunk, and a distribution head.

LOG_STD_RANGE = (-5.0, 2.0)


class GaussianHead(eqx.Module):
    """Mean `tanh(linear)`, one log-std per dimension, independent of observations: [B, F] -> Gaussian, not squashed."""

    mean: Linear
    log_std: jax.Array  # [A]

    def __call__(self, features: jax.Array) -> Gaussian:
        return self.of(self.mean(features))

    def of(self, outputs: jax.Array) -> Gaussian:
        """Return the distribution of the layer's outputs [B, A]."""
        return Gaussian(jnp.tanh(outputs), jnp.clip(self.log_std, *LOG_STD_RANGE))


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
        return self.of(self.mean(features))

    def of(self, outputs: jax.Array) -> Point:
        """Return the action of the layer's outputs [B, A]."""
        return Point(jnp.tanh(outputs))


class LogitsHead(eqx.Module):
    """Features -> one choice (`sizes` has one number) or several choices."""

    linear: Linear
    sizes: tuple[int, ...] = eqx.field(static=True)
    several: bool = eqx.field(static=True)

    def __call__(self, features: jax.Array, mask: jax.Array | None = None) -> Categorical | Several:
        logits = self.linear(features)
        if not self.several:
            return Categorical(allow(logits, mask))
        parts = jnp.split(logits, np.cumsum(self.sizes)[:-1].tolist(), axis=-1)
        return Several(tuple(Categorical(part) for part in parts))


class JointHead(eqx.Module):
    """Features -> the parts of a `Hybrid` action, each by its own head."""

    heads: tuple[Any, ...]

    def __call__(self, features: jax.Array, mask: jax.Array | None = None) -> Joint:
        return Joint(tuple(head(features) for head in self.heads))


def head_of(space: ActionSpace, logits: Callable[[int], Linear], continuous: Callable[[int], Any]) -> Any:
    """Return the head of an action space from those of `n` logits and of `A` continuous numbers."""
    if isinstance(space, Hybrid):
        return JointHead(tuple(head_of(part, logits, continuous) for _, part in space.parts))
    if isinstance(space, Continuous):
        return continuous(space.size)
    sizes = (space.n,) if isinstance(space, Discrete) else space.sizes
    return LogitsHead(logits(sum(sizes)), sizes, isinstance(space, MultiDiscrete))


Head = GaussianHead | StateGaussianHead | PointHead | LogitsHead | JointHead
HeadFactory = Callable[[np.random.Generator, int, int], Head]


def gaussian(generator: np.random.Generator, features: int, actions: int) -> GaussianHead:
    """Return a Gaussian with one learnt standard deviation for all observations, starting at 1."""
    return GaussianHead(Linear.create(generator, features, actions), zeros(actions))


def state_gaussian(generator: np.random.Generator, features: int, actions: int) -> StateGaussianHead:
    """Return a Gaussian whose standard deviation depends on the observation, starting near 1.

    The gain is that of IQL's authors (ikostrikov/implicit_q_learning).
    """
    log_std = Linear.create(generator, features, actions, gain=1e-3)
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
        activation: Activation = jax.nn.relu,
        encoder_config: EncoderConfig = DEFAULT_ENCODER,
        head: HeadFactory = gaussian,
        linear: MakeLinear | None = None,
    ) -> Actor:
        """Return a network of widths `hidden`; `head` is for continuous numbers, choices have logits.

        `linear` creates the dense layers of the trunk and of logits (default: orthogonal).
        """
        sizes = (encoder_config.size(spec), *hidden)
        encoder = Encoder.create(generator, spec, encoder_config)
        trunk = MLP.create(
            generator, sizes, layer_norm=layer_norm, activate_last=True, linear=linear, activation=activation
        )
        logits = functools.partial(linear or Linear.create, generator, sizes[-1])
        if isinstance(spec.action, Discrete):
            return cls(encoder, trunk, logits(spec.action.n))
        return cls(encoder, trunk, head_of(spec.action, logits, functools.partial(head, generator, sizes[-1])))

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

    def initial_state(self, batch: int) -> jax.Array | None:
        """Return the initial recurrent state, or None for a feed-forward network."""
        return self.encoder.initial_state(batch)

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
        head, dropping = self.head, dict[str, Any](dropout=dropout, key=key)
        if isinstance(head, Linear):
            outputs = self.trunk.then(head, features, **dropping)
            return Categorical(allow(outputs, mask))
        if isinstance(head, GaussianHead | PointHead):
            return head.of(self.trunk.then(head.mean, features, **dropping))
        policy: Distribution = head(self.trunk(features, **dropping))
        return policy


def policy_after(actor: Any, row: Transition) -> Any:
    """Return the distribution for next observations, without mask, for an Actor or a custom module."""
    return actor.after(row) if isinstance(actor, Actor) else actor(row.next_observation)


# Action choice from an actor's distribution.


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

    Mixtures of choices have exact probabilities; with continuous numbers they have no density, because the mode has a
    point mass.
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
        """Return log-probabilities [B], or None with continuous numbers."""
        if not has_codes_only(self.base):
            return None
        if not isinstance(self.base, Categorical):
            likely = jnp.exp(self.base.log_probability(action))  # type: ignore[arg-type]
            return jnp.log(self.epsilon * likely + (1.0 - self.epsilon) * jnp.all(action == self.base.mode(), axis=-1))
        return jnp.log(jnp.take_along_axis(self.probabilities(), action[:, None], axis=-1)[:, 0])

    def imitation_error(self, action: jax.Array) -> jax.Array:
        """Return the base distribution's imitation error [B]."""
        return self.base.imitation_error(action)

    def entropy(self) -> jax.Array | None:
        """Return the base distribution's entropy [B]."""
        return self.base.entropy()


def initial_state(actor: Any, batch: int) -> Any:
    """Return an actor's initial recurrent state, or None for a feed-forward actor."""
    return actor.initial_state(batch) if isinstance(actor, Actor) else None


def sampled(
    actor: Any, observation: Observation, mask: jax.Array | None, carry: Any, epsilon: jax.Array | float | None
) -> tuple[Distribution, Any]:
    """Return the sampled policy, mixed with its own mode where there is an epsilon, and the new recurrent state."""
    if isinstance(actor, Actor):
        carry = actor.initial_state(len(next(iter(observation.values())))) if carry is None else carry
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
