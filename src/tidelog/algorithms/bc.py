"""Behaviour cloning (BC): the baseline for every comparison.

Pomerleau 1991. A network that imitates the policy of the log: a Gaussian or a point for continuous actions, a
categorical for discrete actions. One loss, `-log pi(a | s)` (squared distance for the point), on the logged
actions; rewards are never read.

Letters: `B` batch, `A` number of actions or action size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.core import fields, samplers
from tidelog.algorithms.core.choosing_actions import choose, sampled, start
from tidelog.algorithms.core.contract import Feedback, Phase, StoreSpec
from tidelog.algorithms.core.hyperparameters import MAIN, hyperparameters, own
from tidelog.algorithms.core.optimisation import (
    Schedule,
    Transformation,
    build_or_default,
    constant,
    gradient_step,
    init_opt_state,
)
from tidelog.algorithms.core.registry import register
from tidelog.algorithms.core.sampling import Batch
from tidelog.networks import recipe
from tidelog.networks.actor import Actor, HeadFactory, gaussian
from tidelog.networks.arrays import scalar
from tidelog.networks.convolution import Layers, by_size
from tidelog.networks.distributions import Distribution
from tidelog.networks.encode import EncoderConfig
from tidelog.networks.keys import split_keys
from tidelog.networks.mlp import host_generator
from tidelog.types import Act, Continuous, Decision, Discrete, Observation, Spec


class State(NamedTuple):
    """Everything that a resumed run needs."""

    actor: Actor
    opt_state: Any  # of the optimiser
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedule
    key: jax.Array


class PolicyParams(NamedTuple):
    """The arrays that acting reads."""

    actor: Actor


def imitation_loss(
    actor: Actor, config: BC, batch: Batch, key: jax.Array | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the mean imitation error of the logged actions and its metrics."""
    row: Decision = batch.data
    policy = actor(row.observation, mask=row.mask, dropout=config.dropout, key=key, **row.window)
    entropy = policy.entropy()
    metrics = {} if entropy is None else {"entropy": batch.average(entropy)}
    return batch.mean(policy.imitation_error(row.action)), metrics


def step(config: BC, state: State, batch: Batch) -> tuple[State, Feedback]:
    """Do one update of the actor."""
    key = None if config.dropout is None else jax.random.fold_in(state.key, state.step)
    rate = config.learning_rate * config.schedule(state.step / jnp.maximum(state.updates, 1))
    actor, opt_state, loss, metrics = gradient_step(
        imitation_loss, state.actor, state.opt_state, rate, config, batch, key
    )
    updated = State(actor, opt_state, state.step + 1, state.updates, state.key)
    return updated, Feedback({"imitation_loss": loss, **metrics})


def losses(config: BC, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """Return the loss of the current actor, without an update and without dropout."""
    return {"imitation_loss": imitation_loss(state.actor, config, batch, None)[0]}


def init(config: BC, spec: Spec, key: jax.Array, updates: int) -> State:
    """Return a new state with a new actor."""
    network_key, training_key = split_keys(key, 2)
    encoder_config = EncoderConfig(config.embedding, config.hidden[0], config.convolutions, config.recurrent_size)
    shape: dict[str, Any] = {
        "hidden": config.hidden,
        "layer_norm": config.layer_norm,
        "encoder_config": encoder_config,
        "head": config.actor_head,
    }

    def new_actor() -> Actor:
        return Actor.create(host_generator(network_key), spec, **shape)

    actor = build_or_default(config.actor_network, new_actor, spec, network_key)
    opt_state = init_opt_state(config.optimiser, actor)
    return State(actor, opt_state, scalar(0), scalar(updates), training_key)


@register("bc")
@hyperparameters
class BC:
    """Behaviour cloning: imitates the logged actions, reads no reward.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> policy = tl.fit(tl.BC(hidden=(16,)), log, steps=20).policy()
        >>> policy.probabilities(log.features()).shape == (len(log.action), 6)
        True
    """

    batch_size: int = fields.batch_size(256)
    learning_rate: float = fields.learning_rate(3e-4, group=MAIN)
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "the gradient")
    products: str = fields.products()
    dropout: float | None = fields.dropout(None)
    hidden: tuple[int, ...] = fields.widths((256, 256), "hidden layers")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    recurrent_size: int | None = fields.recurrent_size(None)
    window: int = fields.window(16)
    burn_in: int = fields.burn_in(0)
    layer_norm: bool = fields.layer_norm(False)
    actor_head: HeadFactory = fields.actor_head(gaussian)
    epsilon: float | None = fields.epsilon(None, "sampling: probability of a sample, else the mode")
    actor_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete)

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Return the log without rewards."""
        return {"log": StoreSpec(())}

    def phases(self) -> tuple[Phase, ...]:
        """Return one phase over decisions of the log, or over windows of them for recurrent networks."""
        return (Phase("bc", samplers.decisions(self), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Return a new state for a run of `updates` updates."""
        return init(self, spec, key, updates)

    def policy_params(self, state: State) -> PolicyParams:
        """Return the actor."""
        return PolicyParams(state.actor)

    def start(self, params: PolicyParams, batch: int) -> Any:
        """Return the initial recurrent state of the actor."""
        return start(params.actor, batch)

    def act(
        self,
        params: PolicyParams,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """Return the mode of the actor's distribution, or a sample with a key."""
        return choose(params.actor, observation, mask, carry, key, self.epsilon)

    def distribution(
        self, params: PolicyParams, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> Distribution:
        """Return the distribution of the sampled policy."""
        return sampled(params.actor, observation, mask, carry, self.epsilon)[0]

    def recipe(self, params: PolicyParams) -> dict[str, Any]:
        """Return the acting computation as plain nodes."""
        return recipe.whole(recipe.likely(params.actor, self.epsilon), carry=self.recurrent_size)
