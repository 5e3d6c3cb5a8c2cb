"""State values, action values, and the two networks of BCQ's actions.

Letters: `B` batch (or `B, T`), `A` actions or action size, `E` ensemble, `K` rewards, `L` latent size. Outputs have
a last axis `K` where the log has several rewards, and none where it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.errors import SpecError
from tidelog.losses.imitation import categorical_log_probability, pick
from tidelog.losses.vae import reconstruction_error
from tidelog.networks.encoder import DEFAULT_ENCODER, Encoder, EncoderConfig, Seen
from tidelog.networks.layers import MLP, Activation, Linear, MakeLinear
from tidelog.types import ActionSpace, Array, Continuous, Discrete, Hybrid, Observation, Spec, Transition


def action_codes(space: ActionSpace) -> tuple[int, ...]:
    """How many codes each number of an action [..., W] has, 0 for a continuous one; () where none has codes."""
    if isinstance(space, Continuous):
        return ()
    return space.codes if isinstance(space, Hybrid) else (space.n,) if isinstance(space, Discrete) else space.sizes


def input_size(space: ActionSpace) -> int:
    """How many numbers `as_input` returns for an action."""
    return space.size if isinstance(space, Continuous) else sum(n or 1 for n in action_codes(space))


def as_input(action: Array, codes: tuple[int, ...]) -> jax.Array:
    """Return an action [..., W] as a network reads it: codes one-hot, continuous numbers unchanged."""
    if not codes:
        return action
    columns = [action[..., i, None] if n == 0 else action[..., i, None] == jnp.arange(n) for i, n in enumerate(codes)]
    return jnp.concatenate([column.astype(jnp.float32) for column in columns], axis=-1)


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
        hidden: tuple[int, ...] = (256, 256),
        layer_norm: bool = False,
        activation: Activation = jax.nn.relu,
        encoder_config: EncoderConfig = DEFAULT_ENCODER,
    ) -> Value:
        """Return a network of widths `hidden`."""
        encoder = Encoder.create(generator, spec, encoder_config)
        sizes = (encoder_config.size(spec), *hidden, spec.rewards or 1)
        body = MLP.create(generator, sizes, layer_norm=layer_norm, activation=activation)
        return cls(encoder, body, spec.rewards)

    def __call__(self, observation: Observation, real: jax.Array | None = None) -> jax.Array:
        return self._read(self.encoder(observation, real))

    def both(self, row: Transition) -> tuple[jax.Array, jax.Array]:
        """V of the observation and of the next one, [B] each; recurrent: the latter from the row's state."""
        now, after = self.encoder.both(row)
        return self._read(now), self._read(after)

    def _read(self, features: jax.Array) -> jax.Array:
        outputs = self.body(features)
        return outputs[..., 0] if self.rewards is None else outputs

    def in_unit(self, factor: float, constant: Any) -> Value:
        """Return the network with values `factor * V + constant`; the constant is a number or [K]."""
        return Value(self.encoder, self.body.with_outputs(factor, constant), self.rewards)


class Critic(eqx.Module):
    """Q(s, a): observation and action -> [B]; discrete actions are computed together as [B, A].

    Several choices and actions with parts are read as one-hot codes and numbers in [-1, 1].
    """

    encoder: Encoder
    body: MLP
    actions: int | None = eqx.field(static=True)  # number of discrete actions
    rewards: int | None = eqx.field(static=True, default=None)
    codes: tuple[int, ...] = eqx.field(static=True, default=())  # of `as_input`

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
        linear: MakeLinear | None = None,
    ) -> Critic:
        """Return a network of widths `hidden`; `linear` creates its dense layers (default: orthogonal)."""
        size, space, each = encoder_config.size(spec), spec.action, spec.rewards or 1
        encoder = Encoder.create(generator, spec, encoder_config)
        layers = partial(MLP.create, generator, layer_norm=layer_norm, linear=linear, activation=activation)
        if isinstance(space, Discrete):
            body = layers((size, *hidden, space.n * each))
            return cls(encoder, body, space.n, spec.rewards)
        body = layers((size + input_size(space), *hidden, each))
        return cls(encoder, body, None, spec.rewards, action_codes(space))

    def all_actions(self, observation: Seen, real: jax.Array | None = None) -> jax.Array:
        """Return the values of every discrete action, [B, A], or [B, K, A] for several rewards."""
        return self._rate(self.encoder(observation, real))

    def all_after(self, row: Transition) -> jax.Array:
        """Return all discrete actions' values of next observations; recurrent: from the previous step's state."""
        return self._rate(self.encoder.both(row)[1])

    def step(self, observation: Observation, carry: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
        """Return the values of every discrete action for one more observation [B, ...], and the new recurrent state."""
        features, carry = self.encoder.step(observation, carry)
        return self._rate(features), carry

    def _rate(self, features: jax.Array) -> jax.Array:
        outputs = self.body(features)
        return outputs if self.rewards is None else outputs.reshape(*outputs.shape[:-1], self.rewards, -1)

    def __call__(self, observation: Seen, action: Array, real: jax.Array | None = None) -> jax.Array:
        if self.actions is not None:
            return pick(self.all_actions(observation, real), action if self.rewards is None else action[..., None])
        features = self.encoder(observation, real)
        outputs = self.body(jnp.concatenate([features, as_input(action, self.codes)], axis=-1))
        return outputs[..., 0] if self.rewards is None else outputs

    def in_unit(self, factor: float, constant: Any) -> Critic:
        """Return the network with values `factor * Q + constant`; the constant is a number or [K]."""
        each = np.repeat(constant, self.actions or 1)  # [K] becomes [K * A], in the order of the outputs
        return Critic(self.encoder, self.body.with_outputs(factor, each), self.actions, self.rewards, self.codes)


class Ensemble(eqx.Module):
    """Several networks on the same input: -> [E, ...].

    They are separate: on CPU one batched product over stacked weights is slower than one product each.
    """

    members: tuple[Any, ...]

    @classmethod
    def create(cls, size: int, make: Callable[[], Any]) -> Ensemble:
        """Return `size` networks, each from its own call of `make`."""
        return cls(tuple(make() for _ in range(size)))

    def __call__(self, *inputs: Any, **windows: Any) -> jax.Array:
        return jnp.stack([member(*inputs, **windows) for member in self.members])

    def all_actions(self, observation: Observation) -> jax.Array:
        """Return the values of every discrete action [E, B, A]."""
        return jnp.stack([member.all_actions(observation) for member in self.members])


def smallest_values(
    critic: Any, observation: Observation, weights: tuple[float, ...] | None, action: Array | None = None
) -> jax.Array | None:
    """Return the smallest critic's values [B, A] of all discrete actions, or None for continuous ones.

    With an `action` these are its values [B], of either kind. `critic` is one network or an ensemble; several rewards
    are summed by `weights` [K] (None: ones).
    """
    if action is not None:
        chosen: jax.Array = critic(observation, action)
        chosen = chosen if isinstance(critic, Ensemble) else chosen[None]
        if chosen.ndim == 3:  # [E, B, K]
            chosen = jnp.sum(chosen if weights is None else chosen * jnp.asarray(weights), axis=2)
        return jnp.min(chosen, axis=0)
    if not all(getattr(member, "actions", None) for member in getattr(critic, "members", (critic,))):
        return None
    values: jax.Array = critic.all_actions(observation)
    if not isinstance(critic, Ensemble):
        values = values[None]
    if values.ndim == 4:  # [E, B, K, A]
        weighing = jnp.ones(values.shape[2]) if weights is None else jnp.asarray(weights)
        values = jnp.sum(values * weighing[:, None], axis=2)
    return jnp.min(values, axis=0)


def with_values(tree: Any, factor: float, constant: Any) -> Any:
    """Return a tree whose critics and value networks have values `factor * value + constant` instead.

    These are the modules with a method `in_unit`; the constant is a number or [K].
    """

    def changed(part: Any) -> Any:
        return part.in_unit(factor, constant) if hasattr(part, "in_unit") else part

    return jax.tree.map(changed, tree, is_leaf=lambda part: hasattr(part, "in_unit"))


def value_and_next_value(value: Any, row: Transition) -> tuple[jax.Array, jax.Array]:
    """Return V of observation and next observation, [B] each, for a Value or a module that maps observations to [B]."""
    if isinstance(value, Value):
        return value.both(row)
    return value(row.observation, **row.window), value(row.next_observation, **row.window)


def ratings_after(critic: Any, row: Transition) -> jax.Array:
    """Return Q [B, A] of every action in the next observation, for a Critic or a module with `all_actions`."""
    values: jax.Array = (
        critic.all_after(row) if isinstance(critic, Critic) else critic.all_actions(row.next_observation)
    )
    return values


# A bounded correction of an action. Letters: `B` batch, `A` action size.


class Perturbation(eqx.Module):
    """The direction of an action's perturbation: observation and action [B, A] -> [B, A] within [-1, 1], 0 of codes."""

    encoder: Encoder
    body: MLP
    codes: tuple[int, ...] = eqx.field(static=True, default=())  # of `as_input`

    @classmethod
    def create(
        cls,
        generator: np.random.Generator,
        spec: Spec,
        *,
        hidden: tuple[int, ...],
        encoder_config: EncoderConfig,
        activation: Activation = jax.nn.relu,
    ) -> Perturbation:
        """Return a network of widths `hidden`; SpecError for an action of codes alone."""
        if not isinstance(spec.action, Continuous | Hybrid):
            raise TypeError(
                f"a perturbation moves Continuous or Hybrid actions, got {type(spec.action).__name__}. fix: use these"
            )
        codes = action_codes(spec.action)
        moved = spec.action.size if not codes else codes.count(0)
        if not moved:
            raise SpecError("BCQ moves continuous numbers, and no part of this action has one", fix="use IQL or BC")
        sizes = (encoder_config.size(spec) + input_size(spec.action), *hidden, moved)
        encoder = Encoder.create(generator, spec, encoder_config)
        return cls(encoder, MLP.create(generator, sizes, linear=Linear.uniform, activation=activation), codes)

    def __call__(self, observation: Seen, action: jax.Array) -> jax.Array:
        features = self.encoder(observation)
        direction = jnp.tanh(self.body(jnp.concatenate([features, as_input(action, self.codes)], axis=-1)))
        if not self.codes:
            return direction
        numbers = iter(range(direction.shape[-1]))
        columns = [jnp.zeros_like(direction[..., 0]) if n else direction[..., next(numbers)] for n in self.codes]
        return jnp.stack(columns, axis=-1)


def perturb(
    action: jax.Array, direction: jax.Array, reach: jax.Array | float, codes: tuple[int, ...] = ()
) -> jax.Array:
    """Return actions moved by `reach` times a direction, clipped at the bounds [-1, 1] but for codes: all [..., A]."""
    if action.shape != direction.shape:
        raise TypeError(
            f"action {action.shape} and direction {direction.shape} have different shapes. fix: give both one shape"
        )
    moved = jnp.clip(action + reach * direction, -1.0, 1.0)
    return jnp.where(np.asarray(codes) > 0, action, moved) if codes else moved


# A conditional variational autoencoder of actions. Letters: `B` batch, `A` action size, `L` latent size.

LOG_STD_RANGE = (-4.0, 15.0)


class Generator(eqx.Module):
    """A model of the logged actions, given observations or encoder features of them: numbers, and logits of codes."""

    encoder: Encoder
    inward: MLP
    outward: MLP
    codes: tuple[int, ...] = eqx.field(static=True, default=())  # of `as_input`

    @classmethod
    def create(
        cls,
        generator: np.random.Generator,
        spec: Spec,
        *,
        hidden: tuple[int, ...],
        latent: int,
        encoder_config: EncoderConfig,
        activation: Activation = jax.nn.relu,
    ) -> Generator:
        """Return encoder and decoder of widths `hidden`, with `latent` numbers between them."""
        if not isinstance(spec.action, Continuous | Hybrid):
            raise TypeError(
                f"a generator makes Continuous or Hybrid actions, got {type(spec.action).__name__}. fix: use these"
            )
        features, actions = encoder_config.size(spec), input_size(spec.action)
        encoder = Encoder.create(generator, spec, encoder_config)
        layers = partial(MLP.create, generator, linear=Linear.uniform, activation=activation)
        inward = layers((features + actions, *hidden, 2 * latent))
        return cls(encoder, inward, layers((features + latent, *hidden, actions)), action_codes(spec.action))

    def encode(self, observation: Seen, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return mean and log-std [B, L] of the latents of an action [B, A]."""
        features = self.encoder(observation)
        outputs = self.inward(jnp.concatenate([features, as_input(action, self.codes)], axis=-1))
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)

    def decode(self, observation: Seen, latent: jax.Array) -> jax.Array:
        """Return the action [B, A] of latents [B, L]: numbers within [-1, 1], and the most likely codes."""
        outputs = self._outputs(observation, latent)
        if not self.codes:
            return jnp.tanh(outputs)
        columns = [
            jnp.argmax(one, axis=-1).astype(jnp.float32) if n else jnp.tanh(one[..., 0])
            for one, n in zip(self._columns(outputs), self.codes, strict=True)
        ]
        return jnp.stack(columns, axis=-1)

    def error(self, observation: Seen, latent: jax.Array, action: jax.Array) -> jax.Array:
        """Return the error [B] of latents [B, L] for actions [B, A], averaged over their numbers.

        It is the squared distance of a continuous number, and the negative log-probability of a code.
        """
        if not self.codes:
            return reconstruction_error(self.decode(observation, latent), action)
        errors = [
            -categorical_log_probability(one, action[..., i].astype(jnp.int32))
            if n
            else jnp.square(jnp.tanh(one[..., 0]) - action[..., i])
            for i, (one, n) in enumerate(
                zip(self._columns(self._outputs(observation, latent)), self.codes, strict=True)
            )
        ]
        return jnp.mean(jnp.stack(errors, axis=-1), axis=-1)

    def _outputs(self, observation: Seen, latent: jax.Array) -> jax.Array:
        return self.outward(jnp.concatenate([self.encoder(observation), latent], axis=-1))

    def _columns(self, outputs: jax.Array) -> list[jax.Array]:
        return jnp.split(outputs, np.cumsum([n or 1 for n in self.codes])[:-1].tolist(), axis=-1)


# Flows from noise to actions. Letters: `B` batch, `A` action size.


class Flow(eqx.Module):
    """A vector [B, A] for an observation and a point [B, A], and with `timed` for a time [B, 1] in [0, 1]."""

    encoder: Encoder
    body: MLP

    @classmethod
    def create(
        cls,
        generator: np.random.Generator,
        spec: Spec,
        *,
        timed: bool,
        hidden: tuple[int, ...],
        encoder_config: EncoderConfig,
        layer_norm: bool = False,
        activation: Activation = jax.nn.relu,
    ) -> Flow:
        """Return a network of widths `hidden`."""
        if not isinstance(spec.action, Continuous):
            raise TypeError(f"a flow supports Continuous actions, got {type(spec.action).__name__}. fix: use these")
        sizes = (encoder_config.size(spec) + spec.action.size + timed, *hidden, spec.action.size)
        encoder = Encoder.create(generator, spec, encoder_config)
        return cls(encoder, MLP.create(generator, sizes, layer_norm=layer_norm, activation=activation))

    def __call__(self, observation: Seen, point: jax.Array, time: jax.Array | None = None) -> jax.Array:
        inputs = [self.encoder(observation), point, *([] if time is None else [time])]
        return self.body(jnp.concatenate(inputs, axis=-1))
