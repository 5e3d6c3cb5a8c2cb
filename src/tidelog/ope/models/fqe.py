"""Fitted Q evaluation with networks: what following given policies is worth, learnt on the loop that trains policies.

Le, Voloshin, Yue 2019, "Batch Policy Learning under Constraints" (FQE); Voloshin et al. 2021, "Empirical Study of
Off-Policy Policy Evaluation for Reinforcement Learning". One update moves one critic with a head a policy:

| step | loss (per sample) | reads |
|---|---|---|
| critic | mean over policies `p` of `(Q_p(s, a) - r - discount V_p(s'))**2` | V: old target critic |
| target | moves by `target_rate` of its gap | **new** critic |

`V_p(s')` is the mean of `Qtarget_p(s', a')` over the actions `a'` that policy `p` takes in `s'`.

What each policy would do was computed beforehand for every stored observation and rides along as one more leaf of a
derived log, so that the loop needs to know nothing: probabilities of discrete actions, or `K` continuous actions, of
which each update reads one.

From a log to values: judging/values.py, which says what the values are values of.

Letters: `B` batch, `A` number of actions or action size, `P` policies, `K` draws.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.core.contract import Feedback, Phase, StoreSpec
from tidelog.algorithms.core.hyperparameters import hyper, number, static
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

ANSWERS = "what the policies do"  # a leaf of the derived log


class State(NamedTuple):
    """Everything that a resumed run needs."""

    critic: Critic
    target_critic: Critic
    opt_state: Any  # the optimiser's
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedule
    key: jax.Array


class PolicyParams(NamedTuple):
    """What rating reads."""

    critic: Critic


def followed_value(critic: Critic, row: Transition, policies: int, key: jax.Array) -> jax.Array:
    """What following each policy from what came next is worth by a critic, [B, P]."""
    answers = row.next_observation[ANSWERS]
    if critic.actions is not None:
        chances = answers.reshape(len(answers), policies, critic.actions)
        return jnp.sum(chances * critic.all_actions(row.next_observation), axis=-1)
    draws = answers.reshape(len(answers), policies, -1, row.action.shape[-1])  # [B, P, K, A]
    which = jax.random.randint(key, (len(answers), 1, 1, 1), 0, draws.shape[2])
    chosen = jnp.take_along_axis(draws, which, axis=2)[:, :, 0]
    worth = [critic(row.next_observation, chosen[:, p])[:, p] for p in range(policies)]
    return jnp.stack(worth, axis=-1)


def evaluation_loss(critic: Critic, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Squared error against the targets [B, P], averaged over policies; also the values [B, P]."""
    q = critic(batch.data.observation, batch.data.action)
    if q.shape != target.shape:
        raise TypeError(f"values and targets must have one shape, found {q.shape} and {target.shape}")
    return batch.mean(jnp.mean(jnp.square(q - jax.lax.stop_gradient(target)), axis=-1)), q


def targets(config: FQE, state: State, row: Transition, key: jax.Array) -> jax.Array:
    """`r + discount V(s')` of the old target critic, less what all values start from: [B, P]."""
    later = config.centre + followed_value(state.target_critic, row, config.policies, key)
    return row.reward[:, None] + row.discount[:, None] * later - config.centre


def step(config: FQE, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of the critic and its slow copy."""
    target = targets(config, state, batch.data, jax.random.fold_in(state.key, state.step))
    (loss, q), slope = eqx.filter_value_and_grad(evaluation_loss, has_aux=True)(state.critic, batch, target)
    rate = config.learning_rate * config.schedule(state.step / jnp.maximum(state.updates, 1))
    critic, opt_state = descend(config.optimiser, state.critic, slope, state.opt_state, rate, None)
    target_critic = polyak_update(state.target_critic, critic, config.target_rate)
    moved = State(critic, target_critic, opt_state, state.step + 1, state.updates, state.key)
    return moved, Feedback({"evaluation_loss": loss, "q_mean": batch.average(jnp.mean(q, axis=-1)) + config.centre})


def losses(config: FQE, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The loss of the critic as it stands, without a step."""
    return {"evaluation_loss": evaluation_loss(state.critic, batch, targets(config, state, batch.data, key))[0]}


def init(config: FQE, spec: Spec, key: jax.Array, updates: int) -> State:
    """A fresh critic, which does not see what the policies would do, and its copy."""
    network_key, training_key = jax.random.split(key)
    seen = {name: leaf for name, leaf in spec.observation.items() if name != ANSWERS}
    rated = replace(spec, observation=seen, rewards=config.policies)
    sight = EncoderConfig(config.embedding, config.hidden[0])
    critic = Critic.create(
        host_generator(network_key), rated, hidden=config.hidden, layer_norm=config.layer_norm, sight=sight
    )
    opt_state = init_opt_state(config.optimiser, critic)
    return State(critic, copied(critic), opt_state, jnp.int32(0), jnp.int32(updates), training_key)


@hyper
class FQE:
    """Fitted Q evaluation of policies whose answers ride along in the log; learns no policy of its own."""

    discount: float = number(1.0, least=0.0, most=1.0)
    centre: float = number(0.0, help="what all values start from")
    policies: int = static(1, least=1, help="how many policies are evaluated at once, one head each")
    batch_size: int = static(256, least=1)
    learning_rate: float = number(1e-3, least=0.0)
    schedule: Schedule = static(cosine, choices=SCHEDULES, help="factor on the rate, over the run's progress")
    optimiser: Transformation = static(OPTIMISERS["adam"], choices=OPTIMISERS, help="makes the direction of a step")
    target_rate: float = number(0.01, least=0.0, most=1.0, help="share of the gap that the target critic moves")
    hidden: tuple[int, ...] = static((128, 128), help="widths of hidden layers")
    embedding: int = static(16, least=1, help="width of a categorical column's table")
    layer_norm: bool = static(False)

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete)

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """The log with its rewards."""
        return {"log": StoreSpec(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase over transitions of the derived log."""
        return (Phase("fqe", Sampler("log", self.batch_size, NStep(1, self.discount)), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """A fresh critic for a run of `updates` steps."""
        return init(self, spec, key, updates)

    def policy_params(self, state: State) -> PolicyParams:
        """The critic."""
        return PolicyParams(state.critic)

    def start(self, params: PolicyParams, batch: int) -> None:
        """None: there is no memory."""

    def act(self, params: PolicyParams, observation: Observation, **how: Any) -> Any:
        """TypeError: this learns what policies are worth, and has none itself."""
        raise TypeError("fitted Q evaluation rates policies and is none: it cannot act")

    def distribution(self, params: PolicyParams, observation: Observation, mask: Any = None, carry: Any = None) -> None:
        """None: there is no policy."""

    def q_values(self, params: PolicyParams, observation: Observation) -> jax.Array | None:
        """Values of all actions under the first policy, [B, A]; None for continuous ones."""
        return None if params.critic.actions is None else params.critic.all_actions(observation)[:, 0] + self.centre
