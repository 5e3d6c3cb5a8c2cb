"""Policy and value networks for phasic training: shared trunks, and the stops of the value's gradient.

| architecture | trunks | value's gradient, policy phase | value's gradient, auxiliary phase | auxiliary value |
|---|---|---|---|---|
| `dual` | two | into its own | into its own | a head on the policy's trunk |
| `detach` | one | stops at the trunk | stops at the trunk | a head on the trunk |
| `single` | one | stops at the trunk | into the trunk | the value itself |
| `shared` | one | into the trunk | into the trunk | the value itself |

In recurrent networks both trunks have their own recurrent unit. Their inputs are segments [B, T] and the start of each
segment: the recurrent state before its first step, and the steps that begin an episode.

Letters: `B` batch (or `B, T`), `T` steps, `A` number of actions or action size, `H` width of a recurrent unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.actors import Distribution, Gaussian, JointHead, LogitsHead, head_of
from tidelog.networks.encoder import Encoder, EncoderConfig, with_pictures
from tidelog.networks.layers import MLP, Activation, Linear, zeros
from tidelog.types import Observation, Spec

SMALL_HEAD = 0.01  # the initial policy is nearly equal for all observations
PICTURE_HEAD = 0.1  # with pictures, initial norm of head weights (openai/phasic-policy-gradient)
LOG_STD_RANGE = (-5.0, 2.0)


class SegmentStart(NamedTuple):
    """The start of segments, for recurrent networks."""

    first: jax.Array  # [B, T] bool: the steps that begin an episode
    policy: jax.Array  # [B, H]: the policy's recurrent state before the first step
    value: jax.Array | None = None  # [B, H]: the value's own recurrent state, where it has one


class Trunk(eqx.Module):
    """Observation -> features [B, F]; recurrent: features [B, T, F], from `carry` [B, H] and with `first` [B, T]."""

    encoder: Encoder
    body: MLP

    def __call__(
        self, observation: Observation, carry: jax.Array | None = None, first: jax.Array | None = None
    ) -> jax.Array:
        if carry is None or first is None:
            return self.body(self.encoder(observation))
        return self.body(self.encoder.follow(observation, carry, first))


class MeanHead(eqx.Module):
    """Features -> a Gaussian: a linear mean, not squashed, and one log-std per dimension for all observations."""

    mean: Linear
    log_std: jax.Array  # [A]

    def __call__(self, features: jax.Array, mask: jax.Array | None = None) -> Gaussian:
        mean = self.mean(features)
        return Gaussian(mean, jnp.broadcast_to(jnp.clip(self.log_std, *LOG_STD_RANGE), mean.shape))


PhasicHead: TypeAlias = LogitsHead | MeanHead | JointHead


class Phasic(eqx.Module):
    """A policy, its value, and an auxiliary value where the value's gradient does not reach the policy's trunk."""

    trunk: Trunk
    head: PhasicHead
    auxiliary: Linear | MLP | None
    value_trunk: Trunk | None  # None: the value uses the policy's trunk
    value: Linear | MLP
    stops: bool = eqx.field(static=True)  # in the policy phase the value's gradient stops at the shared trunk
    stops_always: bool = eqx.field(static=True)
    policy_body: MLP | None = None  # the policy's own layers between trunk and head

    def __call__(
        self, observation: Observation, mask: jax.Array | None = None, past: SegmentStart | None = None
    ) -> tuple[Distribution, jax.Array]:
        """Return the policy and its value [B], as the policy phase trains them."""
        features = self._features(observation, past)
        return self._policy(features, mask), self._value(observation, features, self.stops, past)

    def both_values(
        self, observation: Observation, mask: jax.Array | None = None, past: SegmentStart | None = None
    ) -> tuple[Distribution, jax.Array, jax.Array | None]:
        """Return the policy, its value [B] and its auxiliary value [B] or None, as the auxiliary phase trains them."""
        features = self._features(observation, past)
        auxiliary = None if self.auxiliary is None else self.auxiliary(features)[..., 0]
        return self._policy(features, mask), self._value(observation, features, self.stops_always, past), auxiliary

    def policy(
        self, observation: Observation, mask: jax.Array | None = None, past: SegmentStart | None = None
    ) -> Distribution:
        """Return the policy alone."""
        return self._policy(self._features(observation, past), mask)

    def value_of(self, observation: Observation) -> jax.Array:
        """Return the value alone [B]."""
        return self._value(observation, None, False, None)

    def values_of_segment(
        self, observation: Observation, following: Observation, past: SegmentStart
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the recurrent values [B, T] of every step and of its next observation, and the carries [B, T, H]."""
        trunk, begin = (self.trunk, past.policy) if self.value_trunk is None else (self.value_trunk, past.value)
        if begin is None:
            raise TypeError(
                "the value network has its own recurrent unit, got no state. fix: pass SegmentStart(value=...)"
            )
        carries = trunk.encoder.follow(observation, begin, past.first)
        after = trunk.encoder.further(carries, following)
        value, later = (self.value(trunk.body(seen))[..., 0] for seen in (carries, after))
        return value, later, carries

    def initial_state(self, batch: int) -> jax.Array | None:
        """Return the policy's initial recurrent state [B, H], or None for a feed-forward network."""
        return self.trunk.encoder.initial_state(batch)

    def step(
        self, observation: Observation, mask: jax.Array | None, carry: jax.Array | None
    ) -> tuple[Distribution, jax.Array | None]:
        """Return the policy at one more observation, and the new recurrent state [B, H]."""
        seen, carry = self.trunk.encoder.step(observation, carry)
        return self._policy(self.trunk.body(seen), mask), carry

    def _policy(self, features: jax.Array, mask: jax.Array | None) -> Distribution:
        return self.head(features if self.policy_body is None else self.policy_body(features), mask)

    def _features(self, observation: Observation, past: SegmentStart | None) -> jax.Array:
        return self.trunk(observation) if past is None else self.trunk(observation, past.policy, past.first)

    def _value(
        self, observation: Observation, features: jax.Array | None, stop: bool, past: SegmentStart | None
    ) -> jax.Array:
        if self.value_trunk is not None:
            begin = () if past is None else (past.value, past.first)
            seen = self.value_trunk(observation, *begin)
        else:
            seen = self._features(observation, past) if features is None else features
            seen = jax.lax.stop_gradient(seen) if stop else seen
        return self.value(seen)[..., 0]


class PhasicParts(NamedTuple):
    """Constructors of the parts of an architecture; each call creates a new part."""

    trunk: Callable[[], Trunk]
    head: Callable[[], PhasicHead]
    value: Callable[[], Linear | MLP]


Architecture = Callable[[PhasicParts], Phasic]


def dual(parts: PhasicParts) -> Phasic:
    """Two networks; the policy's has the auxiliary value head."""
    return Phasic(parts.trunk(), parts.head(), parts.value(), parts.trunk(), parts.value(), False, False)


def detach(parts: PhasicParts) -> Phasic:
    """One network; the value never trains the trunk, the auxiliary value does."""
    return Phasic(parts.trunk(), parts.head(), parts.value(), None, parts.value(), True, True)


def single(parts: PhasicParts) -> Phasic:
    """One network; the value trains the trunk in the auxiliary phase only."""
    return Phasic(parts.trunk(), parts.head(), None, None, parts.value(), True, False)


def shared(parts: PhasicParts) -> Phasic:
    """One network, trained by policy and value."""
    return Phasic(parts.trunk(), parts.head(), None, None, parts.value(), False, False)


ARCHITECTURES: Mapping[str, Architecture] = {"dual": dual, "detach": detach, "single": single, "shared": shared}


def create(
    architecture: Architecture,
    generator: np.random.Generator,
    spec: Spec,
    *,
    hidden: tuple[int, ...],
    activation: Activation,
    layer_norm: bool,
    encoder_config: EncoderConfig,
    policy_hidden: tuple[int, ...] = (),
    value_hidden: tuple[int, ...] = (),
) -> Phasic:
    """Return a network of that architecture for a spec's observations and actions.

    `policy_hidden` and `value_hidden` are widths of layers between the trunk and the head of policy and values.
    """
    sizes = (encoder_config.size(spec), *hidden)
    layers = partial(MLP.create, generator, layer_norm=layer_norm, activate_last=True, activation=activation)

    def trunk() -> Trunk:
        return Trunk(Encoder.create(generator, spec, encoder_config), layers(sizes))

    def value() -> Linear | MLP:
        if not value_hidden:
            return _initial_linear(generator, spec, sizes[-1], 1, 1.0)
        body, last = layers((sizes[-1], *value_hidden)), _initial_linear(generator, spec, value_hidden[-1], 1, 1.0)
        return MLP((*body.layers, last), body.norms, activation)

    head_width = (sizes[-1], *policy_hidden)[-1]
    network = architecture(PhasicParts(trunk, lambda: _head(generator, spec, head_width), value))
    if not policy_hidden:
        return network
    own = layers((sizes[-1], *policy_hidden))
    whole: Phasic = eqx.tree_at(lambda part: part.policy_body, network, own, is_leaf=lambda leaf: leaf is None)
    return whole


def _initial_linear(generator: np.random.Generator, spec: Spec, inputs: int, outputs: int, gain: float) -> Linear:
    if with_pictures(spec):
        return Linear.normed(generator, inputs, outputs, PICTURE_HEAD)
    return Linear.create(generator, inputs, outputs, gain)


def _head(generator: np.random.Generator, spec: Spec, width: int) -> PhasicHead:
    def linear(size: int) -> Linear:
        return _initial_linear(generator, spec, width, size, SMALL_HEAD)

    head: PhasicHead = head_of(spec.action, linear, lambda size: MeanHead(linear(size), zeros(size)))
    return head
