"""Implicit Q-learning (IQL), continuous and discrete.

Kostrikov, Nair, Levine 2021, arXiv:2110.06169; reference implementation: ikostrikov/implicit_q_learning.

One update, in this order (`new` marks networks that this update has already changed):

| step | loss (per sample) | reads |
|---|---|---|
| value | expectile error of `u = q - V(s)`, `q = min_e Qtarget_e(s, a)` | old target critics |
| actor | `-min(exp(temperature (q - newV(s))), max_weight) log pi(a | s)` | the same q, **new** value |
| critic | `sum_e (Q_e(s, a) - r - discount newV(s'))**2` | **new** value |
| target | Polyak update by `target_rate` | **new** critics |

Limits: expectile 1/2 makes V the mean of the logged actions' values; expectile near 1 makes it their maximum;
temperature 0 is behaviour cloning.

Deliberate differences from the reference: actions are scaled to [-1, 1] before any network reads them (the reference
assumes this range); the state-dependent standard deviation starts near 1; with discrete actions the actor is
categorical and masks are applied. As in the reference, the critic's loss is summed over the ensemble.

With several rewards, critics and V predict all `K` of them. The weighted sum selects the smallest critic, the side of
the expectile and the advantage, so the fixed point equals the scalar one; errors are averaged over components.

With recurrent networks, the losses run over windows [B, T]. Each network unrolls its own recurrent state from zeros.
The next observation of a step is encoded from that step's recurrent state.

Letters: `B` batch (`B, T` in windows), `E` ensemble, `A` number of actions or action size, `K` reward components.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.core import fields, samplers
from tidelog.algorithms.core.choosing_actions import choose, sampled, start
from tidelog.algorithms.core.contract import Feedback, Phase, StoreSpec, check_components
from tidelog.algorithms.core.hyperparameters import MAIN, chosen_preset, hyperparameters, number, own, static
from tidelog.algorithms.core.optimisation import (
    Schedule,
    Transformation,
    build_or_default,
    constant,
    copied,
    cosine,
    gradient_step,
    init_opt_state,
    polyak_update,
)
from tidelog.algorithms.core.registry import register
from tidelog.algorithms.core.sampling import Batch
from tidelog.data.scaling import RewardScaling
from tidelog.losses.components import Components
from tidelog.losses.expectile import expectile_error
from tidelog.losses.policy import advantage_weight
from tidelog.losses.td import PointLoss, ensemble_error, squared
from tidelog.networks import recipe
from tidelog.networks.actor import Actor, HeadFactory, gaussian
from tidelog.networks.arrays import scalar
from tidelog.networks.convolution import Layers, by_size
from tidelog.networks.critic import Critic, Ensemble, Value, value_and_next_value
from tidelog.networks.distributions import Distribution
from tidelog.networks.encode import EncoderConfig
from tidelog.networks.keys import split_keys
from tidelog.networks.mlp import host_generator
from tidelog.types import Act, Continuous, Discrete, Observation, Spec, Transition


class OptStates(NamedTuple):
    """The optimiser states, one for each network."""

    actor: Any
    critic: Any
    value: Any


class State(NamedTuple):
    """Everything that a resumed run needs."""

    actor: Actor
    critic: Ensemble
    target_critic: Ensemble
    value: Value
    opt_states: OptStates
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedules
    key: jax.Array


class PolicyParams(NamedTuple):
    """The arrays that acting and Q-values read."""

    actor: Actor
    critic: Ensemble


# Losses: each returns the mean over the batch and the input of the next step or the metrics.


def value_loss(value: Value, config: IQL, batch: Batch, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the expectile error of V against the target critics' q [B], and V(s) [B]."""
    rewards = components(config, batch.data)
    v = value(batch.data.observation, **batch.data.window)
    side = rewards.expand(rewards.total(q - v))
    return batch.mean(rewards.average(expectile_error(q - v, config.expectile, side))), v


def actor_loss(
    actor: Actor, config: IQL, batch: Batch, advantage: jax.Array, key: jax.Array | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the advantage-weighted imitation error of the logged actions, and its metrics."""
    row: Transition = batch.data
    weight = advantage_weight(advantage, config.temperature, config.max_weight)
    policy = actor(row.observation, mask=row.mask, dropout=config.dropout, key=key, **row.window)
    entropy = policy.entropy()
    share = jnp.square(batch.average(weight)) / jnp.maximum(batch.average(jnp.square(weight)), 1e-30)
    metrics = {"capped_share": batch.average(weight >= config.max_weight), "effective_share": share}
    if entropy is not None:
        metrics["entropy"] = batch.average(entropy)
    return batch.mean(weight * policy.imitation_error(row.action)), metrics


def critic_loss(critic: Ensemble, config: IQL, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the squared (or other) error of every critic against the target [B], and Q(s, a) [E, B]."""
    q = critic(batch.data.observation, batch.data.action, **batch.data.window)
    errors = ensemble_error(q, target, config.critic_loss)
    return batch.mean(components(config, batch.data).average(errors)), q


# The inputs of these losses.


def target_critic_value(config: IQL, state: State, row: Transition) -> tuple[jax.Array, jax.Array]:
    """Return the smallest target critic's value [B] of the logged action, and all of them [E, B]."""
    values = state.target_critic(row.observation, row.action, **row.window)
    return components(config, row).smallest(values), values


def advantage_and_target(value: Value, config: IQL, row: Transition, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the advantage `q - V(s)` [B] and the critics' target `r + discount V(s')` [B]."""
    rewards = components(config, row)
    v, next_v = value_and_next_value(value, row)
    return rewards.total(q - v), row.reward + rewards.expand(row.discount) * next_v


def components(config: IQL, row: Transition) -> Components:
    """Return the reward components, and their weights where the log has several."""
    if row.reward.ndim == row.discount.ndim:
        return Components(None)
    weights = config.reward_weights
    return Components(jnp.ones(row.reward.shape[-1]) if weights is None else jnp.asarray(weights))


# The update.


def step(config: IQL, state: State, batch: Batch) -> tuple[State, Feedback]:
    """Do one update of value, actor, critics and target critics, in this order."""
    row: Transition = batch.data
    opt_states, progress = state.opt_states, state.step / jnp.maximum(state.updates, 1)
    q, target_q = target_critic_value(config, state, row)

    rate = config.value_learning_rate * config.value_schedule(progress)
    value, value_opt_state, v_loss, v = gradient_step(value_loss, state.value, opt_states.value, rate, config, batch, q)

    advantage, target = advantage_and_target(value, config, row, q)
    key = None if config.dropout is None else jax.random.fold_in(state.key, state.step)
    rate = config.actor_learning_rate * config.actor_schedule(progress)
    actor, actor_opt_state, a_loss, actor_metrics = gradient_step(
        actor_loss, state.actor, opt_states.actor, rate, config, batch, advantage, key
    )

    rate = config.critic_learning_rate * config.critic_schedule(progress)
    critic, critic_opt_state, q_loss, logged_q = gradient_step(
        critic_loss, state.critic, opt_states.critic, rate, config, batch, target
    )

    due = (state.step + 1) % config.target_update_period == 0
    target_critic = polyak_update(state.target_critic, critic, jnp.where(due, config.target_rate, 0.0))

    total, mean = components(config, row).total, batch.average(advantage)
    metrics = {
        "value_loss": v_loss,
        "actor_loss": a_loss,
        "critic_loss": q_loss,
        "advantage_mean": mean,
        "advantage_std": jnp.sqrt(batch.average(jnp.square(advantage - mean))),
        "q_mean": batch.average(jnp.mean(total(logged_q), axis=0)),
        "v_mean": batch.average(total(v)),
        "target_gap": batch.average(jnp.mean(jnp.abs(total(logged_q - target_q)), axis=0)),
        **actor_metrics,
    }
    opt_states = OptStates(actor_opt_state, critic_opt_state, value_opt_state)
    updated = State(actor, critic, target_critic, value, opt_states, state.step + 1, state.updates, state.key)
    error = jnp.mean(jnp.abs(total(logged_q - target)), axis=0)
    return updated, Feedback(metrics, priority=batch.per_sample(error))


def losses(config: IQL, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """Return the three losses of the current networks, without an update and without dropout."""
    q, _ = target_critic_value(config, state, batch.data)
    advantage, target = advantage_and_target(state.value, config, batch.data, q)
    return {
        "value_loss": value_loss(state.value, config, batch, q)[0],
        "actor_loss": actor_loss(state.actor, config, batch, advantage, None)[0],
        "critic_loss": critic_loss(state.critic, config, batch, target)[0],
    }


# Initial state.


def init(config: IQL, spec: Spec, key: jax.Array, updates: int) -> State:
    """Return new networks; the target critics start as copies of the critics."""
    generator = host_generator(key)
    encoder_config = EncoderConfig(config.embedding, config.hidden[0], config.convolutions, config.recurrent_size)
    shape: dict[str, Any] = {"hidden": config.hidden, "layer_norm": config.layer_norm, "encoder_config": encoder_config}
    own = split_keys(key, config.critics + 3)

    def new_critic() -> Critic:
        return Critic.create(generator, spec, **shape)

    actor = build_or_default(
        config.actor_network, lambda: Actor.create(generator, spec, head=config.actor_head, **shape), spec, own[0]
    )
    critic = Ensemble(tuple(build_or_default(config.critic_network, new_critic, spec, k) for k in own[3:]))
    value = build_or_default(config.value_network, lambda: Value.create(generator, spec, **shape), spec, own[1])
    opt_states = OptStates(*(init_opt_state(config.optimiser, network) for network in (actor, critic, value)))
    return State(actor, critic, copied(critic), value, opt_states, scalar(0), scalar(updates), own[2])


PRESETS: dict[str, dict[str, Any]] = {
    # Kostrikov et al. 2021, section 5 and appendix B; the reward scalings are from the reference implementation.
    "locomotion": {"expectile": 0.7, "temperature": 3.0, "reward_scaling": "return-range"},
    "antmaze": {"expectile": 0.9, "temperature": 10.0, "reward_scaling": "minus-one"},
    "adroit": {"expectile": 0.7, "temperature": 0.5, "dropout": 0.1, "reward_scaling": "none"},
    "kitchen": {"expectile": 0.7, "temperature": 0.5, "dropout": 0.1, "reward_scaling": "none"},
}


@register("iql")
@hyperparameters
class IQL:
    """Implicit Q-learning: in-sample expectile values, advantage-weighted policy (arXiv:2110.06169).

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> policy = tl.fit(tl.IQL(temperature=10.0, hidden=(16,)), log, steps=20).policy()
        >>> policy.q_values(log.features()).shape == (len(log.action), 6)
        True
    """

    expectile: float = number(
        0.7, least=0.0, most=1.0, open_ends=True, help="expectile of Q that the value learns", group=MAIN
    )
    temperature: float = fields.inverse_temperature(3.0)
    max_weight: float = number(100.0, least=0.0, help="cap on exp(temperature * advantage)", role="weight cap")
    discount: float = fields.discount(0.99)
    target_rate: float = fields.target_rate(0.005, "target critics move per update")
    target_update_period: int = static(
        1, least=1, help="updates between two updates of the target critics", group="value"
    )
    critics: int = fields.critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(256)
    actor_learning_rate: float = fields.learning_rate(3e-4, "the actor")
    critic_learning_rate: float = fields.learning_rate(3e-4, "the critics")
    value_learning_rate: float = fields.learning_rate(3e-4, "the value network")
    actor_schedule: Schedule = fields.schedule(cosine)
    critic_schedule: Schedule = fields.schedule(constant)
    value_schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    products: str = fields.products()
    dropout: float | None = fields.dropout(None)
    hidden: tuple[int, ...] = fields.widths((256, 256), "hidden layers")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    recurrent_size: int | None = fields.recurrent_size(None)
    window: int = fields.window(16)
    burn_in: int = fields.burn_in(0)
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float = fields.priority_correction(0.4)
    reward_weights: tuple[float, ...] | None = static(None, help="weights of several rewards; default: ones")
    layer_norm: bool = fields.layer_norm(False)
    actor_head: HeadFactory = fields.actor_head(gaussian)
    epsilon: float | None = fields.epsilon(None, "sampling: probability of a sample, else the mode")
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    actor_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns one critic module")
    value_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete)
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    @classmethod
    def preset(cls, name: str) -> IQL:
        """Return the authors' settings for a family of D4RL tasks: locomotion, antmaze, adroit or kitchen."""
        return cls(**chosen_preset("IQL", PRESETS, name))

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Return the log with its rewards."""
        check_components(self.reward_weights, spec)
        return {"log": StoreSpec(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """Return one phase over transitions of the log, or over windows of them for recurrent networks."""
        return (Phase("iql", samplers.transitions(self), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Return new networks for a run of `updates` updates."""
        return init(self, spec, key, updates)

    def policy_params(self, state: State) -> PolicyParams:
        """Return actor and critics."""
        return PolicyParams(state.actor, state.critic)

    def start(self, params: PolicyParams, batch: int) -> Any:
        """Return the actor's initial recurrent state."""
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
        """Return the actor's mode, or a sample with a key."""
        return choose(params.actor, observation, mask, carry, key, self.epsilon)

    def distribution(
        self, params: PolicyParams, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> Distribution:
        """Return the distribution of the sampled policy."""
        return sampled(params.actor, observation, mask, carry, self.epsilon)[0]

    def q_values(self, params: PolicyParams, observation: Observation) -> jax.Array | None:
        """Return the smallest critic's values [B, A] of discrete actions; None for continuous or recurrent networks."""
        has_all_actions = all(getattr(member, "actions", None) for member in params.critic.members)
        if not has_all_actions or self.recurrent_size is not None:
            return None
        values = params.critic.all_actions(observation)
        if values.ndim == 3:
            return jnp.min(values, axis=0)
        weights = jnp.ones(values.shape[2]) if self.reward_weights is None else jnp.asarray(self.reward_weights)
        return jnp.min(jnp.sum(values * weights[:, None], axis=2), axis=0)

    def recipe(self, params: PolicyParams) -> dict[str, Any]:
        """Return the acting computation and the Q-values of discrete actions as plain nodes."""
        members, values = params.critic.members, None
        if all(getattr(member, "actions", None) for member in members) and self.recurrent_size is None:
            ones = None if members[0].rewards is None else [1.0] * members[0].rewards
            values = recipe.smallest(members, list(self.reward_weights) if ones and self.reward_weights else ones)
        return recipe.whole(recipe.likely(params.actor, self.epsilon), values, self.recurrent_size)
