"""State values and action values. Letters: `B` batch (or `B, T`), `A` actions, `E` ensemble, `K` rewards.

Outputs have a last axis `K` where the log has several rewards, and none where it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.losses.imitation import pick
from tidelog.networks.encode import Encoder, EncoderConfig, Seen
from tidelog.networks.mlp import MLP, MakeLinear
from tidelog.types import Array, Continuous, Discrete, Observation, Spec, Transition


class Value(eqx.Module):
    """V(s): observation -> [B]."""

    encoder: Encoder
    body: MLP
    rewards: int | None = eqx.field(static=True, default=None)

    @classmethod
    def create(
        cls,
        generator: np.random.Generator,
        spec: Spec,
        *,
        hidden: tuple[int, ...],
        layer_norm: bool,
        sight: EncoderConfig,
    ) -> Value:
        """A network of widths `hidden`."""
        encoder = Encoder.create(generator, spec, sight)
        body = MLP.create(generator, (sight.size(spec), *hidden, spec.rewards or 1), layer_norm=layer_norm)
        return cls(encoder, body, spec.rewards)

    def __call__(self, observation: Observation, real: jax.Array | None = None) -> jax.Array:
        return self._read(self.encoder(observation, real))

    def both(self, row: Transition) -> tuple[jax.Array, jax.Array]:
        """V of what was seen and of what followed, [B] each; with a memory, the latter from its predecessor's state."""
        now, after = self.encoder.both(row)
        return self._read(now), self._read(after)

    def _read(self, features: jax.Array) -> jax.Array:
        made = self.body(features)
        return made[..., 0] if self.rewards is None else made


class Critic(eqx.Module):
    """Q(s, a): observation and action -> [B]; with discrete actions all [B, A] are computed and one is picked."""

    encoder: Encoder
    body: MLP
    actions: int | None = eqx.field(static=True)  # how many discrete ones
    rewards: int | None = eqx.field(static=True, default=None)

    @classmethod
    def create(
        cls,
        generator: np.random.Generator,
        spec: Spec,
        *,
        hidden: tuple[int, ...],
        layer_norm: bool,
        sight: EncoderConfig,
        linear: MakeLinear | None = None,
    ) -> Critic:
        """A network of widths `hidden`; `linear` makes its dense layers (orthogonal unless told)."""
        size, space, each = sight.size(spec), spec.action, spec.rewards or 1
        encoder = Encoder.create(generator, spec, sight)
        if isinstance(space, Discrete):
            body = MLP.create(generator, (size, *hidden, space.n * each), layer_norm=layer_norm, linear=linear)
            return cls(encoder, body, space.n, spec.rewards)
        if not isinstance(space, Continuous):
            raise TypeError(f"a critic rates Discrete or Continuous actions, found {type(space).__name__}")
        body = MLP.create(generator, (size + space.size, *hidden, each), layer_norm=layer_norm, linear=linear)
        return cls(encoder, body, None, spec.rewards)

    def all_actions(self, observation: Seen, real: jax.Array | None = None) -> jax.Array:
        """Values of every discrete action, [B, A], or [B, K, A] for several rewards."""
        return self._rate(self.encoder(observation, real))

    def all_after(self, row: Transition) -> jax.Array:
        """Values of every discrete action in what followed; with a memory, each from its predecessor's state."""
        return self._rate(self.encoder.both(row)[1])

    def step(self, observation: Observation, carry: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
        """Values of every discrete action for one more observation [B, ...], and what is carried on."""
        features, carry = self.encoder.step(observation, carry)
        return self._rate(features), carry

    def _rate(self, features: jax.Array) -> jax.Array:
        made = self.body(features)
        return made if self.rewards is None else made.reshape(*made.shape[:-1], self.rewards, -1)

    def __call__(self, observation: Seen, action: Array, real: jax.Array | None = None) -> jax.Array:
        if self.actions is not None:
            return pick(self.all_actions(observation, real), action if self.rewards is None else action[..., None])
        made = self.body(jnp.concatenate([self.encoder(observation, real), action], axis=-1))
        return made[..., 0] if self.rewards is None else made


class Ensemble(eqx.Module):
    """Several networks on the same input: -> [E, ...].

    They stay apart: one batched product over stacked weights is slower on CPU than one product each.
    """

    members: tuple[Any, ...]

    @classmethod
    def create(cls, size: int, make: Callable[[], Any]) -> Ensemble:
        """`size` networks, each from its own call of `make`."""
        return cls(tuple(make() for _ in range(size)))

    def __call__(self, *inputs: Any, **windows: Any) -> jax.Array:
        return jnp.stack([member(*inputs, **windows) for member in self.members])

    def all_actions(self, observation: Observation) -> jax.Array:
        """Values of every discrete action [E, B, A]."""
        return jnp.stack([member.all_actions(observation) for member in self.members])


def value_and_next_value(value: Any, row: Transition) -> tuple[jax.Array, jax.Array]:
    """V of what was seen and of what followed, [B] each, for a Value or any module that maps observations to [B]."""
    if isinstance(value, Value):
        return value.both(row)
    return value(row.observation, **row.window), value(row.next_observation, **row.window)


def ratings_after(critic: Any, row: Transition) -> jax.Array:
    """Q of every action in what followed [B, A], for a Critic or any module with `all_actions`."""
    rated: jax.Array = critic.all_after(row) if isinstance(critic, Critic) else critic.all_actions(row.next_observation)
    return rated
