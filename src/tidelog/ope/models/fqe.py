"""Fitted Q evaluation with networks: values of fixed policies, trained by the same loop as policies.

Le, Voloshin, Yue 2019, "Batch Policy Learning under Constraints" (FQE); Voloshin et al. 2021, "Empirical Study of
Off-Policy Policy Evaluation for Reinforcement Learning". One update trains one critic with one head per policy:

| step | loss (per sample) | reads |
|---|---|---|
| critic | mean over policies `p` of `(Q_p(s, a) - r - discount V_p(s'))**2` | V: old target critic |
| target | moves by `target_rate` of its gap | **new** critic |

`V_p(s')` is the mean of `Qtarget_p(s', a')` over the actions `a'` that policy `p` takes in `s'`.

Each policy's actions are computed in advance for every stored observation and stored as an additional leaf of a
prepared log: probabilities of discrete actions, or `K` continuous actions (each update reads one of them).

`function_approximation.py` prepares that log, trains on it, and defines the estimand.

Letters: `B` batch, `A` number of actions or action size, `P` policies, `K` draws.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.core.contract import Feedback, Phase, StoreSpec
from tidelog.algorithms.core.hyperparameters import hyperparameters, number, static
from tidelog.algorithms.core.optimisation import (
    OPTIMISERS,
    SCHEDULES,
    Schedule,
    Transformation,
    copied,
    cosine,
    descend,
    init_opt_state,
    polyak_update,
)
from tidelog.algorithms.core.sampling import Batch, NStep, Sampler
from tidelog.networks.critic import Critic
from tidelog.networks.encode import EncoderConfig
from tidelog.networks.mlp import host_generator
from tidelog.types import Continuous, Discrete, Observation, Spec, Transition

POLICY_ACTIONS = "what the policies do"  # leaf of the prepared log


class State(NamedTuple):
    """Complete training state."""

    critic: Critic
    target_critic: Critic
    opt_state: Any
    step: jax.Array  # int32: updates done
    updates: jax.Array  # int32: updates planned, for the schedule
    key: jax.Array


class PolicyParams(NamedTuple):
    """Parameters for evaluation."""

    critic: Critic


def next_value(critic: Critic, row: Transition, policies: int, key: jax.Array) -> jax.Array:
    """The critic's value of the next observation under each policy, [B, P]."""
    answers = row.next_observation[POLICY_ACTIONS]
    if critic.actions is not None:
        chances = answers.reshape(len(answers), policies, critic.actions)
        return jnp.sum(chances * critic.all_actions(row.next_observation), axis=-1)
    draws = answers.reshape(len(answers), policies, -1, row.action.shape[-1])  # [B, P, K, A]
    which = jax.random.randint(key, (len(answers), 1, 1, 1), 0, draws.shape[2])
    chosen = jnp.take_along_axis(draws, which, axis=2)[:, :, 0]
    values = [critic(row.next_observation, chosen[:, p])[:, p] for p in range(policies)]
    return jnp.stack(values, axis=-1)


def evaluation_loss(critic: Critic, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Squared error against the targets [B, P], averaged over policies; also the values [B, P]."""
    q = critic(batch.data.observation, batch.data.action)
    if q.shape != target.shape:
        raise TypeError(f"values and targets have shapes {q.shape} and {target.shape}: expected equal shapes")
    return batch.mean(jnp.mean(jnp.square(q - jax.lax.stop_gradient(target)), axis=-1)), q


def targets(config: FQE, state: State, row: Transition, key: jax.Array) -> jax.Array:
    """`r + discount V(s')` with the old target critic, minus `centre`: [B, P]."""
    later = config.centre + next_value(state.target_critic, row, config.policies, key)
    return row.reward[:, None] + row.discount[:, None] * later - config.centre


def step(config: FQE, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of the critic and the target critic."""
    target = targets(config, state, batch.data, jax.random.fold_in(state.key, state.step))
    (loss, q), slope = eqx.filter_value_and_grad(evaluation_loss, has_aux=True)(state.critic, batch, target)
    rate = config.learning_rate * config.schedule(state.step / jnp.maximum(state.updates, 1))
    critic, opt_state = descend(config.optimiser, state.critic, slope, state.opt_state, rate, None)
    target_critic = polyak_update(state.target_critic, critic, config.target_rate)
    moved = State(critic, target_critic, opt_state, state.step + 1, state.updates, state.key)
    return moved, Feedback({"evaluation_loss": loss, "q_mean": batch.average(jnp.mean(q, axis=-1)) + config.centre})


def losses(config: FQE, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The critic's loss, without an update."""
    return {"evaluation_loss": evaluation_loss(state.critic, batch, targets(config, state, batch.data, key))[0]}


def init(config: FQE, spec: Spec, key: jax.Array, updates: int) -> State:
    """Initial critic, which does not read the policies' actions, and its copy."""
    network_key, training_key = jax.random.split(key)
    seen = {name: leaf for name, leaf in spec.observation.items() if name != POLICY_ACTIONS}
    rated = replace(spec, observation=seen, rewards=config.policies)
    encoder_config = EncoderConfig(config.embedding, config.hidden[0])
    critic = Critic.create(
        host_generator(network_key),
        rated,
        hidden=config.hidden,
        layer_norm=config.layer_norm,
        encoder_config=encoder_config,
    )
    opt_state = init_opt_state(config.optimiser, critic)
    return State(critic, copied(critic), opt_state, jnp.int32(0), jnp.int32(updates), training_key)


@hyperparameters
class FQE:
    """Fitted Q evaluation of policies whose actions are stored in the log; it trains no policy."""

    discount: float = number(1.0, least=0.0, most=1.0)
    centre: float = number(0.0, help="constant added to all values")
    policies: int = static(1, least=1, help="number of policies evaluated together, one head each")
    batch_size: int = static(256, least=1)
    learning_rate: float = number(1e-3, least=0.0)
    schedule: Schedule = static(cosine, choices=SCHEDULES, help="learning rate schedule over the run's progress")
    optimiser: Transformation = static(OPTIMISERS["adam"], choices=OPTIMISERS, help="optimiser")
    target_rate: float = number(0.01, least=0.0, most=1.0, help="Polyak rate of the target critic")
    hidden: tuple[int, ...] = static((128, 128), help="widths of hidden layers")
    embedding: int = static(16, least=1, help="width of a categorical column's embedding")
    layer_norm: bool = static(False)

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete)

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """The log with its rewards."""
        return {"log": StoreSpec(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase over transitions of the prepared log."""
        return (Phase("fqe", Sampler("log", self.batch_size, NStep(1, self.discount)), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Initial state of a run of `updates` steps."""
        return init(self, spec, key, updates)

    def policy_params(self, state: State) -> PolicyParams:
        """The critic."""
        return PolicyParams(state.critic)

    def start(self, params: PolicyParams, batch: int) -> None:
        """None: the critic is not recurrent."""

    def act(self, params: PolicyParams, observation: Observation, **how: Any) -> Any:
        """TypeError: fitted Q evaluation has no policy."""
        raise TypeError("fitted Q evaluation evaluates policies and has no policy of its own: it cannot act")

    def distribution(self, params: PolicyParams, observation: Observation, mask: Any = None, carry: Any = None) -> None:
        """None: there is no policy."""

    def q_values(self, params: PolicyParams, observation: Observation) -> jax.Array | None:
        """Values of all actions under the first policy, [B, A]; None for continuous ones."""
        return None if params.critic.actions is None else params.critic.all_actions(observation)[:, 0] + self.centre
