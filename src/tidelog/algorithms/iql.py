"""Implicit Q-learning, continuous and discrete.

Kostrikov, Nair, Levine 2021, arXiv:2110.06169; reference behaviour: ikostrikov/implicit_q_learning.

One update, in this order (`new` marks networks that this update has already moved):

| step | loss (per sample) | reads |
|---|---|---|
| value | expectile error of `u = q - V(s)`, `q = min_e Qtarget_e(s, a)` | old target critics |
| actor | `-min(exp(temperature (q - newV(s))), max_weight) log pi(a given s)` | the same q, **new** value |
| critic | `sum_e (Q_e(s, a) - r - discount newV(s'))**2` | **new** value |
| target | moves by `target_rate` of its gap | **new** critics |

At the ends of its dials: expectile 1/2 makes V the mean of the logged actions' values; expectile near 1 their maximum;
temperature 0 is behaviour cloning.

Deliberate differences from the reference: actions are scaled to [-1, 1] before any network sees them (there they are
assumed to be); the state-dependent spread starts near 1; with discrete actions the actor is categorical and masks are
honoured; the critic's loss is summed over the ensemble, not averaged.

With several rewards, critics and V predict all `K` of them; the smallest critic, the expectile's side and the advantage
are decided by the weighted sum, so that it has exactly the scalar fixed point; errors are averaged over components.

With a memory, the losses run over windows [B, T]; each network unrolls its own from zeros, and what followed a step is
encoded from that step's state.

Letters: `B` batch (`B, T` in windows), `E` ensemble, `A` number of actions or action size, `K` reward components.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.choose import choose, sampled, start
from tidelog.algorithms.contract import Batch, Feedback, Keep, Phase, check_components
from tidelog.algorithms.draws import Draw, Row, Window
from tidelog.algorithms.hyper import chosen_preset, hyper, number, own, static
from tidelog.algorithms.optim import (
    OPTIMISERS,
    SCHEDULES,
    Schedule,
    Transformation,
    constant,
    copied,
    cosine,
    descend,
    follow,
    optimiser_memory,
)
from tidelog.algorithms.priorities import ordered
from tidelog.data.scaling import REWARD_SCALINGS, RewardScaling
from tidelog.losses.components import average, smallest, spread, weigh
from tidelog.losses.expectile import expectile_error
from tidelog.losses.policy import advantage_weight
from tidelog.losses.td import POINT_LOSSES, PointLoss, ensemble_error, squared
from tidelog.networks.actor import HEADS, Actor, HeadFactory, gaussian
from tidelog.networks.convolution import LAYERS, Layers, by_size
from tidelog.networks.critic import Critic, Ensemble, Value, now_and_after
from tidelog.networks.distributions import Distribution
from tidelog.networks.encode import Sight
from tidelog.networks.mlp import host_generator
from tidelog.types import Act, Continuous, Discrete, Observation, Spec, Transition


class Optimisers(NamedTuple):
    """What the optimisers remember, one for each network."""

    actor: Any
    critic: Any
    value: Any


class State(NamedTuple):
    """Everything that a resumed run needs."""

    actor: Actor
    critic: Ensemble
    target_critic: Ensemble
    value: Value
    optimisers: Optimisers
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedules
    key: jax.Array


class Acting(NamedTuple):
    """What acting and rating read."""

    actor: Actor
    critic: Ensemble


# Losses: each returns the mean over the batch and what the next step or the metrics read.


def value_loss(
    value: Value, h: IQL, batch: Batch, q: jax.Array, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Expectile error of V against the target critics' q [B]; also V(s) [B]."""
    v = value(batch.data.observation, **batch.data.window)
    side = spread(weigh(q - v, weights), weights)
    return batch.mean(average(expectile_error(q - v, h.expectile, side), weights)), v


def actor_loss(
    actor: Actor, h: IQL, batch: Batch, advantage: jax.Array, key: jax.Array | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Weighted cloning of the logged actions; also its metrics."""
    row: Transition = batch.data
    weight = advantage_weight(advantage, h.temperature, h.max_weight)
    policy = actor(row.observation, mask=row.mask, dropout=h.dropout, key=key, **row.window)
    entropy = policy.entropy()
    metrics = {"capped_share": batch.average(weight >= h.max_weight)}
    if entropy is not None:
        metrics["entropy"] = batch.average(entropy)
    return batch.mean(weight * policy.imitation_error(row.action)), metrics


def critic_loss(
    critic: Ensemble, h: IQL, batch: Batch, target: jax.Array, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Squared (or other) error of every critic against the target [B]; also Q(s, a) [E, B]."""
    q = critic(batch.data.observation, batch.data.action, **batch.data.window)
    return batch.mean(average(ensemble_error(q, target, h.critic_loss), weights)), q


# The update.


def step(h: IQL, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of value, actor, critics and target critics, in this order."""
    row: Transition = batch.data
    weights = component_weights(h, row)
    progress = state.step / jnp.maximum(state.updates, 1)
    target_q = state.target_critic(row.observation, row.action, **row.window)  # [E, B]
    q = smallest(target_q, weights)

    (v_loss, v), slope = _gradient(value_loss)(state.value, h, batch, q, weights)
    rate = h.value_learning_rate * h.value_schedule(progress)
    value, value_memory = descend(h.optimiser, state.value, slope, state.optimisers.value, rate, h.gradient_clip)

    new_v, new_next_v = now_and_after(value, row)
    advantage = weigh(q - new_v, weights)
    key = None if h.dropout is None else jax.random.fold_in(state.key, state.step)
    (a_loss, actor_metrics), slope = _gradient(actor_loss)(state.actor, h, batch, advantage, key)
    rate = h.actor_learning_rate * h.actor_schedule(progress)
    actor, actor_memory = descend(h.optimiser, state.actor, slope, state.optimisers.actor, rate, h.gradient_clip)

    target = row.reward + spread(row.discount, weights) * new_next_v
    (q_loss, logged_q), slope = _gradient(critic_loss)(state.critic, h, batch, target, weights)
    rate = h.critic_learning_rate * h.critic_schedule(progress)
    critic, critic_memory = descend(h.optimiser, state.critic, slope, state.optimisers.critic, rate, h.gradient_clip)

    due = (state.step + 1) % h.target_update_period == 0
    target_critic = follow(state.target_critic, critic, jnp.where(due, h.target_rate, 0.0))

    mean = batch.average(advantage)
    metrics = {
        "value_loss": v_loss,
        "actor_loss": a_loss,
        "critic_loss": q_loss,
        "advantage_mean": mean,
        "advantage_std": jnp.sqrt(batch.average(jnp.square(advantage - mean))),
        "q_mean": batch.average(jnp.mean(weigh(logged_q, weights), axis=0)),
        "v_mean": batch.average(weigh(v, weights)),
        "target_gap": batch.average(jnp.mean(jnp.abs(weigh(logged_q - target_q, weights)), axis=0)),
        **actor_metrics,
    }
    moved = State(
        actor,
        critic,
        target_critic,
        value,
        Optimisers(actor_memory, critic_memory, value_memory),
        state.step + 1,
        state.updates,
        state.key,
    )
    error = jnp.mean(jnp.abs(weigh(logged_q - target, weights)), axis=0)
    return moved, Feedback(metrics, priority=batch.per_sample(error))


def losses(h: IQL, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The three losses of the networks as they stand, without a step and without dropout."""
    row: Transition = batch.data
    weights = component_weights(h, row)
    q = smallest(state.target_critic(row.observation, row.action, **row.window), weights)
    v_loss, _ = value_loss(state.value, h, batch, q, weights)
    v, next_v = now_and_after(state.value, row)
    a_loss, _ = actor_loss(state.actor, h, batch, weigh(q - v, weights), None)
    target = row.reward + spread(row.discount, weights) * next_v
    q_loss, _ = critic_loss(state.critic, h, batch, target, weights)
    return {"value_loss": v_loss, "actor_loss": a_loss, "critic_loss": q_loss}


def component_weights(h: IQL, row: Transition) -> jax.Array | None:
    """The weights [K] of several rewards, None where there is one."""
    if row.reward.ndim == row.discount.ndim:
        return None
    return jnp.ones(row.reward.shape[-1]) if h.reward_weights is None else jnp.asarray(h.reward_weights)


def _gradient(loss: Callable[..., Any]) -> Callable[..., Any]:
    return eqx.filter_value_and_grad(loss, has_aux=True)


# A fresh state.


def init(h: IQL, spec: Spec, key: jax.Array, updates: int) -> State:
    """Fresh networks; the target critics start as the critics."""
    generator = host_generator(key)
    sight = Sight(h.embedding, h.hidden[0], h.convolutions, h.memory)
    shape: dict[str, Any] = {"hidden": h.hidden, "layer_norm": h.layer_norm, "sight": sight}
    own = jax.random.split(key, h.critics + 3)
    actor = (
        copied(h.actor_network(spec, own[0]))
        if h.actor_network
        else Actor.create(generator, spec, head=h.actor_head, **shape)
    )
    critic = (
        Ensemble(tuple(copied(h.critic_network(spec, k)) for k in own[3:]))
        if h.critic_network
        else Ensemble.create(h.critics, lambda: Critic.create(generator, spec, **shape))
    )
    value = copied(h.value_network(spec, own[1])) if h.value_network else Value.create(generator, spec, **shape)
    memories = Optimisers(*(optimiser_memory(h.optimiser, network) for network in (actor, critic, value)))
    return State(actor, critic, copied(critic), value, memories, jnp.int32(0), jnp.int32(updates), own[2])


PRESETS: dict[str, dict[str, Any]] = {
    # Kostrikov et al. 2021, section 5 and appendix B; the reward rules are the reference implementation's.
    "locomotion": {"expectile": 0.7, "temperature": 3.0, "reward_scaling": "return-range"},
    "antmaze": {"expectile": 0.9, "temperature": 10.0, "reward_scaling": "minus-one"},
    "adroit": {"expectile": 0.7, "temperature": 0.5, "dropout": 0.1},
    "kitchen": {"expectile": 0.7, "temperature": 0.5, "dropout": 0.1},
}


@hyper
class IQL:
    """Implicit Q-learning: in-sample expectile values, advantage-weighted policy (arXiv:2110.06169)."""

    expectile: float = number(0.7, least=0.0, most=1.0, open_ends=True, help="which expectile of Q the value learns")
    temperature: float = number(3.0, least=0.0, help="inverse temperature: multiplies the advantage; 0 clones the log")
    max_weight: float = number(100.0, least=0.0, help="cap on exp(temperature * advantage)")
    discount: float = number(0.99, least=0.0, most=1.0)
    target_rate: float = number(0.005, least=0.0, most=1.0, help="share of the gap that target critics move")
    target_update_period: int = static(1, least=1, help="updates between two moves of the target critics")
    critics: int = static(2, least=1, help="size of the critic ensemble")
    critic_loss: PointLoss = static(squared, choices=POINT_LOSSES)
    n_step: int = static(1, least=1, help="rewards summed before bootstrapping")
    batch_size: int = static(256, least=1)
    actor_learning_rate: float = number(3e-4, least=0.0)
    critic_learning_rate: float = number(3e-4, least=0.0)
    value_learning_rate: float = number(3e-4, least=0.0)
    actor_schedule: Schedule = static(cosine, choices=SCHEDULES, help="factor on the rate, over the run's progress")
    critic_schedule: Schedule = static(constant, choices=SCHEDULES)
    value_schedule: Schedule = static(constant, choices=SCHEDULES)
    optimiser: Transformation = static(OPTIMISERS["adam"], choices=OPTIMISERS, help="makes the direction of a step")
    gradient_clip: float | None = number(
        None, least=0.0, open_ends=True, help="largest norm of each network's gradient"
    )
    dropout: float | None = number(None, least=0.0, most=0.99, help="in the actor's trunk, while training")
    hidden: tuple[int, ...] = static((256, 256), help="widths of hidden layers")
    embedding: int = static(32, least=1, help="width of a categorical column's table")
    convolutions: Layers = static(by_size, choices=LAYERS, help="layers that look at pictures")
    memory: int | None = static(None, least=1, help="width of a recurrent unit in every network")
    window: int = static(16, least=1, help="with a memory: steps in a row that a loss is about")
    burn_in: int = static(0, least=0, help="with a memory: steps before them that only warm it up")
    priority_exponent: float | None = number(
        None, least=0.0, most=1.0, help="prioritised sampling: 0 is uniform, 1 proportional"
    )
    priority_correction: float = number(0.4, least=0.0, most=1.0, help="where the importance exponent begins")
    reward_weights: tuple[float, ...] | None = static(None, help="of several rewards; default: ones")
    layer_norm: bool = static(False)
    actor_head: HeadFactory = static(gaussian, choices=HEADS, help="for continuous actions")
    epsilon: float | None = number(None, least=0.0, most=1.0, help="sampling: a sample this often, else the mode")
    reward_scaling: RewardScaling = static(REWARD_SCALINGS["none"], choices=REWARD_SCALINGS)
    actor_network: Callable[[Spec, jax.Array], Any] | None = own("makes a module of your own")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("one for each critic")
    value_network: Callable[[Spec, jax.Array], Any] | None = own("makes a module of your own")

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete)
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    @classmethod
    def preset(cls, name: str) -> IQL:
        """The authors' settings for a family of D4RL tasks: locomotion, antmaze, adroit or kitchen."""
        return cls(**chosen_preset("IQL", PRESETS, name))

    def stores(self, spec: Spec) -> dict[str, Keep]:
        """The log with its rewards."""
        check_components(self.reward_weights, spec)
        return {"log": Keep(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase over transitions of the log, or over windows of them with a memory."""
        row = Row(self.n_step, self.discount)
        unit = row if self.memory is None else Window(row, self.window, self.burn_in)
        order = ordered(self.priority_exponent, self.priority_correction)
        return (Phase("iql", Draw("log", self.batch_size, unit, order), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Fresh networks for a run of `updates` steps."""
        return init(self, spec, key, updates)

    def acting(self, state: State) -> Acting:
        """Actor and critics."""
        return Acting(state.actor, state.critic)

    def start(self, acting: Acting, batch: int) -> Any:
        """What the actor's memory holds before anything was seen."""
        return start(acting.actor, batch)

    def act(
        self,
        acting: Acting,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """The actor's mode, or with a key a sample."""
        return choose(acting.actor, observation, mask, carry, key, self.epsilon)

    def distribution(
        self, acting: Acting, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> Distribution:
        """The sampled policy."""
        return sampled(acting.actor, observation, mask, carry, self.epsilon)[0]

    def q_values(self, acting: Acting, observation: Observation) -> jax.Array | None:
        """The smallest critic's values [B, A] of discrete actions; None for continuous ones or with a memory."""
        rates_all = all(getattr(member, "actions", None) for member in acting.critic.members)
        if not rates_all or self.memory is not None:
            return None
        found = acting.critic.all_actions(observation)
        if found.ndim == 3:
            return jnp.min(found, axis=0)
        weights = jnp.ones(found.shape[2]) if self.reward_weights is None else jnp.asarray(self.reward_weights)
        return jnp.min(jnp.sum(found * weights[:, None], axis=2), axis=0)
