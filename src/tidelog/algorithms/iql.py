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

Letters: `B` batch, `E` ensemble, `A` number of actions or action size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.choose import choose, with_epsilon
from tidelog.algorithms.contract import Batch, Feedback, Keep, Phase
from tidelog.algorithms.draws import Draw, Row
from tidelog.algorithms.hyper import chosen_preset, hyper, number, static
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
from tidelog.data.scaling import REWARD_SCALINGS, RewardScaling
from tidelog.losses.expectile import expectile_error
from tidelog.losses.policy import advantage_weight
from tidelog.losses.td import POINT_LOSSES, PointLoss, ensemble_error, squared
from tidelog.networks.actor import HEADS, Actor, HeadFactory, gaussian
from tidelog.networks.critic import Critic, Ensemble, Value
from tidelog.networks.distributions import Distribution
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


def value_loss(value: Value, h: IQL, batch: Batch, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Expectile error of V against the target critics' q [B]; also V(s) [B]."""
    v = value(batch.data.observation)
    return batch.mean(expectile_error(q - v, h.expectile)), v


def actor_loss(
    actor: Actor, h: IQL, batch: Batch, advantage: jax.Array, key: jax.Array | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Weighted cloning of the logged actions; also its metrics."""
    weight = advantage_weight(advantage, h.temperature, h.max_weight)
    policy = actor(batch.data.observation, mask=batch.data.mask, dropout=h.dropout, key=key)
    entropy = policy.entropy()
    metrics = {"capped_share": jnp.mean(weight >= h.max_weight)}
    if entropy is not None:
        metrics["entropy"] = jnp.mean(entropy)
    return batch.mean(weight * policy.imitation_error(batch.data.action)), metrics


def critic_loss(critic: Ensemble, h: IQL, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Squared (or other) error of every critic against the target [B]; also Q(s, a) [E, B]."""
    q = critic(batch.data.observation, batch.data.action)
    return batch.mean(ensemble_error(q, target, h.critic_loss)), q


# The update.


def step(h: IQL, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of value, actor, critics and target critics, in this order."""
    row: Transition = batch.data
    progress = state.step / jnp.maximum(state.updates, 1)
    target_q = state.target_critic(row.observation, row.action)  # [E, B]
    q = jnp.min(target_q, axis=0)

    (v_loss, v), slope = _gradient(value_loss)(state.value, h, batch, q)
    rate = h.value_learning_rate * h.value_schedule(progress)
    value, value_memory = descend(h.optimiser, state.value, slope, state.optimisers.value, rate, h.gradient_clip)

    advantage = q - value(row.observation)
    key = None if h.dropout is None else jax.random.fold_in(state.key, state.step)
    (a_loss, actor_metrics), slope = _gradient(actor_loss)(state.actor, h, batch, advantage, key)
    rate = h.actor_learning_rate * h.actor_schedule(progress)
    actor, actor_memory = descend(h.optimiser, state.actor, slope, state.optimisers.actor, rate, h.gradient_clip)

    target = row.reward + row.discount * value(row.next_observation)
    (q_loss, logged_q), slope = _gradient(critic_loss)(state.critic, h, batch, target)
    rate = h.critic_learning_rate * h.critic_schedule(progress)
    critic, critic_memory = descend(h.optimiser, state.critic, slope, state.optimisers.critic, rate, h.gradient_clip)

    due = (state.step + 1) % h.target_update_period == 0
    target_critic = follow(state.target_critic, critic, jnp.where(due, h.target_rate, 0.0))

    metrics = {
        "value_loss": v_loss,
        "actor_loss": a_loss,
        "critic_loss": q_loss,
        "advantage_mean": jnp.mean(advantage),
        "advantage_std": jnp.std(advantage),
        "q_mean": jnp.mean(logged_q),
        "v_mean": jnp.mean(v),
        "target_gap": jnp.mean(jnp.abs(logged_q - target_q)),
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
    return moved, Feedback(metrics, priority=jnp.mean(jnp.abs(logged_q - target), axis=0))


def losses(h: IQL, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The three losses of the networks as they stand, without a step and without dropout."""
    row: Transition = batch.data
    q = jnp.min(state.target_critic(row.observation, row.action), axis=0)
    v_loss, v = value_loss(state.value, h, batch, q)
    a_loss, _ = actor_loss(state.actor, h, batch, q - v, None)
    target = row.reward + row.discount * state.value(row.next_observation)
    q_loss, _ = critic_loss(state.critic, h, batch, target)
    return {"value_loss": v_loss, "actor_loss": a_loss, "critic_loss": q_loss}


def _gradient(loss: Callable[..., Any]) -> Callable[..., Any]:
    return eqx.filter_value_and_grad(loss, has_aux=True)


# Acting.


def distribution(h: IQL, acting: Acting, observation: Observation, mask: jax.Array | None) -> Distribution:
    """The sampled policy."""
    return with_epsilon(acting.actor(observation, mask=mask), h.epsilon)


# A fresh state.


def init(h: IQL, spec: Spec, key: jax.Array, updates: int) -> State:
    """Fresh networks; the target critics start as the critics."""
    generator = host_generator(key)
    shape: dict[str, Any] = {"hidden": h.hidden, "embedding": h.embedding, "layer_norm": h.layer_norm}
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
    gradient_clip: float | None = number(None, least=0.0, help="largest norm of each network's gradient")
    dropout: float | None = number(None, least=0.0, most=0.99, help="in the actor's trunk, while training")
    hidden: tuple[int, ...] = static((256, 256), help="widths of hidden layers")
    embedding: int = static(32, least=1, help="width of a categorical column's table")
    layer_norm: bool = static(False)
    actor_head: HeadFactory = static(gaussian, choices=HEADS, help="for continuous actions")
    epsilon: float | None = number(None, least=0.0, most=1.0, help="sampling: a sample this often, else the mode")
    reward_scaling: RewardScaling = static(REWARD_SCALINGS["none"], choices=REWARD_SCALINGS)
    actor_network: Callable[[Spec, jax.Array], Any] | None = static(None, help="makes a module of your own")
    critic_network: Callable[[Spec, jax.Array], Any] | None = static(None)
    value_network: Callable[[Spec, jax.Array], Any] | None = static(None)

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete)
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    @classmethod
    def preset(cls, name: str) -> IQL:
        """The authors' settings for a family of D4RL tasks: locomotion, antmaze, adroit or kitchen."""
        return cls(**chosen_preset("IQL", PRESETS, name))

    def stores(self, spec: Spec) -> dict[str, Keep]:
        """The log with its rewards."""
        return {"log": Keep(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase over transitions of the log."""
        return (Phase("iql", Draw("log", self.batch_size, Row(self.n_step, self.discount)), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Fresh networks for a run of `updates` steps."""
        return init(self, spec, key, updates)

    def acting(self, state: State) -> Acting:
        """Actor and critics."""
        return Acting(state.actor, state.critic)

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
        return choose(distribution(self, acting, observation, mask), key)

    def distribution(self, acting: Acting, observation: Observation, mask: jax.Array | None = None) -> Distribution:
        """The sampled policy."""
        return distribution(self, acting, observation, mask)

    def q_values(self, acting: Acting, observation: Observation) -> jax.Array | None:
        """The smallest of the critics' values [B, A] of discrete actions, else None."""
        discrete = all(getattr(member, "discrete", False) for member in acting.critic.members)
        return jnp.min(acting.critic.all_actions(observation), axis=0) if discrete else None
