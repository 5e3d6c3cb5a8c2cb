"""Discrete BCQ: double Q-learning over the actions that an imitation model of the log supports.

Fujimoto, Conti, Ghavamzadeh, Pineau 2019, arXiv:1910.01708; reference implementation: sfujim/BCQ, discrete_BCQ.

One update, of Q and the imitator together:

| step | loss (per sample) | reads |
|---|---|---|
| Q | `huber(Q(s, a) - r - discount Qtarget(s', a*))` | old target critic |
| | `a* = argmax of Q(s', .) over the actions that the imitator supports in s'` | old critic, old imitator |
| imitator | `-log pi(a | s) + logit_penalty mean(logits**2)` | |
| target | Polyak update by `target_rate`, or a copy every `copy_period` updates | **new** critic |

An action is supported where the row's mask allows it and its probability is at least `threshold` times that of the
most likely allowed action (`support.py`, shared by learning and acting). With `double` off, the target critic also
chooses a*.

Limits: threshold 0 is double Q-learning; threshold 1 is greedy behaviour cloning, where Q decides exact ties.

Deliberate differences from the reference: the inequality is not strict, so threshold 1 supports at least one action;
masks are applied, and forbidden logits are in no loss; a shared trunk for pictures ends in one dense layer; with
recurrent networks each network has its own hidden state and nothing is shared.

Letters: `B` batch (`B, T` in windows), `A` number of actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.core import fields, samplers
from tidelog.algorithms.core.choosing_actions import EpsilonGreedy
from tidelog.algorithms.core.contract import Feedback, Phase, StoreSpec, one_reward
from tidelog.algorithms.core.hyperparameters import MAIN, chosen_preset, hyperparameters, number, own, static
from tidelog.algorithms.core.optimisation import (
    Schedule,
    Transformation,
    build_or_default,
    constant,
    copied,
    gradient_step,
    init_opt_state,
    polyak_update,
)
from tidelog.algorithms.core.registry import register
from tidelog.algorithms.core.sampling import Batch
from tidelog.data.scaling import RewardScaling
from tidelog.errors import ConfigError
from tidelog.losses.imitation import categorical_log_probability, mean_square, pick
from tidelog.losses.td import PointLoss, ensemble_error, huber
from tidelog.networks import recipe
from tidelog.networks.actor import Actor, gaussian, policy_after
from tidelog.networks.arrays import scalar
from tidelog.networks.convolution import Layers, by_size
from tidelog.networks.critic import Critic, ratings_after
from tidelog.networks.encode import SHARING, EncoderConfig, Sharing, with_pictures
from tidelog.networks.keys import split_keys
from tidelog.networks.mlp import Linear, host_generator
from tidelog.support import allow, best, supported
from tidelog.types import Act, Discrete, Observation, Spec, Transition, same_shape


class Networks(NamedTuple):
    """The networks of one loss. An imitator without an encoder uses the critic's encoder."""

    critic: Critic
    imitator: Actor


class State(NamedTuple):
    """Everything that a resumed run needs."""

    critic: Critic
    imitator: Actor
    target_critic: Critic | None  # None: the critic is its own target
    opt_state: Any  # of the optimiser
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedule
    key: jax.Array


PolicyParams = Networks  # the arrays that acting reads

# Network outputs.


def seeing(networks: Networks) -> Any:
    """Return the imitator with the encoder that it uses."""
    without_encoder = isinstance(networks.imitator, Actor) and networks.imitator.encoder is None
    if not without_encoder:
        return networks.imitator
    return eqx.tree_at(
        lambda actor: actor.encoder, networks.imitator, networks.critic.encoder, is_leaf=lambda leaf: leaf is None
    )


def step_along(params: PolicyParams, observation: Observation, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
    """Return Q and logits [B, A] of one more observation, and the new recurrent state."""
    critic: Any = params.critic
    imitator = seeing(params)
    if carry is None:
        return critic.all_actions(observation), imitator(observation).logits, None
    values, one = critic.step(observation, carry[:, : carry.shape[1] // 2])
    policy, two = imitator.step(observation, carry[:, carry.shape[1] // 2 :], None)
    return values, policy.logits, jnp.concatenate([one, two], axis=1)


# Losses: each returns the mean over the batch and its metrics.


def target_value(config: DiscreteBCQ, state: State, row: Transition) -> jax.Array:
    """`r + discount Qtarget(s', a*)` [B], a* the best supported action."""
    target_critic = state.critic if state.target_critic is None else state.target_critic
    logits = policy_after(seeing(Networks(state.critic, state.imitator)), row).logits
    rated = ratings_after(target_critic, row)
    values = ratings_after(state.critic, row) if config.double else rated
    following = pick(rated, best(values, supported(logits, config.threshold, row.next_mask)))
    same_shape(reward=row.reward, discount=row.discount, value=following)
    return row.reward + row.discount * following


def total_loss(
    networks: Networks, config: DiscreteBCQ, batch: Batch, target: jax.Array
) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array]]:
    """Return the sum of TD error, imitation error and logit penalty; also the metrics and Q(s, a) [B]."""
    row: Transition = batch.data
    values = networks.critic.all_actions(row.observation, **row.window)
    logits = seeing(networks)(row.observation, **row.window).logits
    q = pick(values, row.action)
    q_loss = batch.mean(ensemble_error(q[None], target, config.critic_loss))
    imitation_loss = -batch.mean(categorical_log_probability(allow(logits, row.mask), row.action))
    logit_loss = batch.mean(mean_square(logits, row.mask))
    loss = q_loss + imitation_loss + config.logit_penalty * logit_loss
    allowed = supported(logits, config.threshold, row.mask)
    filtered = ~jnp.take_along_axis(allowed, jnp.argmax(allow(values, row.mask), axis=-1)[..., None], axis=-1)[..., 0]
    metrics = {
        "loss": loss,
        "q_loss": q_loss,
        "imitation_loss": imitation_loss,
        "logit_loss": logit_loss,
        "q_mean": batch.average(q),
        "supported_actions": batch.average(jnp.sum(allowed, axis=-1).astype(jnp.float32)),
        "filtered_share": batch.average(filtered),
    }
    return loss, (metrics, q)


# The update.


def step(config: DiscreteBCQ, state: State, batch: Batch) -> tuple[State, Feedback]:
    """Do one update of critic and imitator together, then of the target."""
    target = target_value(config, state, batch.data)
    networks = Networks(state.critic, state.imitator)
    rate = config.learning_rate * config.schedule(state.step / jnp.maximum(state.updates, 1))
    networks, opt_state, _, (metrics, q) = gradient_step(
        total_loss, networks, state.opt_state, rate, config, batch, target
    )
    target_critic = state.target_critic
    if target_critic is not None:
        target_critic = polyak_update(target_critic, networks.critic, _share(config, state.step + 1))
    updated = state._replace(
        **networks._asdict(), target_critic=target_critic, opt_state=opt_state, step=state.step + 1
    )
    metrics |= {"target_q": batch.average(target)}
    return updated, Feedback(metrics, priority=batch.per_sample(jnp.abs(q - target)))


def losses(config: DiscreteBCQ, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """Return the losses of the current networks, without an update."""
    target = target_value(config, state, batch.data)
    _, (metrics, _) = total_loss(Networks(state.critic, state.imitator), config, batch, target)
    return {name: metrics[name] for name in ("loss", "q_loss", "imitation_loss", "logit_loss")}


def _share(config: DiscreteBCQ, step: jax.Array) -> jax.Array | float:
    """Return the rate of the target's Polyak update after update `step`."""
    if config.copy_period is not None:
        return jnp.where(step % config.copy_period == 0, 1.0, 0.0)
    return 0.0 if config.target_rate is None else config.target_rate


# Initial state.


def init(config: DiscreteBCQ, spec: Spec, key: jax.Array, updates: int) -> State:
    """Return new networks; the target critic starts as a copy of the critic."""
    random = host_generator(key)
    one, two, rest = split_keys(key, 3)
    encoder_config = EncoderConfig(config.embedding, config.hidden[0], config.convolutions, config.recurrent_size)
    shape: dict[str, Any] = {
        "hidden": config.hidden,
        "layer_norm": config.layer_norm,
        "encoder_config": encoder_config,
        "linear": Linear.uniform,
    }

    def new_critic() -> Critic:
        return Critic.create(random, spec, **shape)

    def new_imitator() -> Actor:
        return Actor.create(random, spec, head=gaussian, **shape)

    critic = build_or_default(config.critic_network, new_critic, spec, one)
    imitator = build_or_default(config.imitator_network, new_imitator, spec, two)
    if config.shared(spec) and not (config.recurrent_size or config.critic_network or config.imitator_network):
        imitator = eqx.tree_at(lambda actor: actor.encoder, imitator, None)
    target = None if config.target_rate is None and config.copy_period is None else copied(critic)
    opt_state = init_opt_state(config.optimiser, Networks(critic, imitator))
    return State(critic, imitator, target, opt_state, scalar(0), scalar(updates), rest)


PRESETS: dict[str, dict[str, Any]] = {
    # Fujimoto et al. 2019 (arXiv:1910.01708); sfujim/BCQ, discrete_BCQ/main.py, atari_parameters.
    "atari": {
        "learning_rate": 6.25e-5,
        "optimiser": "adam-atari",
        "batch_size": 32,
        "target_rate": None,
        "copy_period": 8000,
        "epsilon": 0.001,
        "convolutions": "nature",
        "hidden": (512,),
        "reward_scaling": "none",
    },
}


@register("discrete-bcq")
@hyperparameters
class DiscreteBCQ:
    """Discrete batch-constrained Q-learning: the best of the actions that the log supports (arXiv:1910.01708).

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> run = tl.fit(tl.DiscreteBCQ(threshold=0.3, hidden=(16,)), log, steps=20)
        >>> set(run.policy().mode(log.features()).labels) <= set(log.spec.action.names)
        True
    """

    threshold: float = number(
        0.3,
        least=0.0,
        most=1.0,
        help="smallest probability relative to the most likely action",
        group=MAIN,
        role="support threshold",
    )
    logit_penalty: float = number(0.01, least=0.0, help="weight of the imitator's mean squared logit")
    discount: float = fields.discount(0.99)
    target_rate: float | None = fields.target_rate(0.005, "the target critic moves per update; none with copy_period")
    copy_period: int | None = static(
        None, least=1, help="updates between two copies into the target critic", group="value"
    )
    double: bool = static(True, help="the critic chooses the target's action, not the target critic")
    critic_loss: PointLoss = fields.critic_loss(huber)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(64)
    learning_rate: float = fields.learning_rate(3e-4, group=MAIN)
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "both networks' gradient")
    products: str = fields.products()
    hidden: tuple[int, ...] = fields.widths((256, 256), "hidden layers")
    shared: Sharing = static(with_pictures, choices=SHARING, help="when the imitator uses the critic's encoder")
    layer_norm: bool = fields.layer_norm(False)
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    recurrent_size: int | None = fields.recurrent_size(None)
    window: int = fields.window(16)
    burn_in: int = fields.burn_in(0)
    epsilon: float = fields.epsilon(0.0, "sampling: probability of a random supported action")
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float = fields.priority_correction(0.4)
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns a module with all_actions")
    imitator_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")

    takes: ClassVar[tuple[type, ...]] = (Discrete,)
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    @classmethod
    def preset(cls, name: str) -> DiscreteBCQ:
        """Return the authors' settings for a family of tasks: atari."""
        return cls(**chosen_preset("DiscreteBCQ", PRESETS, name))

    def check(self) -> None:
        """Raise ConfigError where two fields contradict each other."""
        if self.target_rate is not None and self.copy_period is not None:
            raise ConfigError(
                f"DiscreteBCQ.target_rate = {self.target_rate:g} and DiscreteBCQ.copy_period = {self.copy_period}: "
                "only one of them can move the target critic. fix: make one of them None, or both"
            )
        if self.recurrent_size is not None and (self.critic_network or self.imitator_network):
            raise ConfigError(
                f"DiscreteBCQ.recurrent_size = {self.recurrent_size} does not support networks of your own. "
                "fix: drop recurrent_size or your networks"
            )

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Return the log with its rewards."""
        one_reward("DiscreteBCQ", spec)
        return {"log": StoreSpec(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """Return one phase over transitions of the log, or over windows of them for recurrent networks."""
        return (Phase("discrete-bcq", samplers.transitions(self), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Return new networks for a run of `updates` updates."""
        return init(self, spec, key, updates)

    def policy_params(self, state: State) -> PolicyParams:
        """Return critic and imitator."""
        return PolicyParams(state.critic, state.imitator)

    def start(self, params: PolicyParams, batch: int) -> jax.Array | None:
        """Return both initial recurrent states, concatenated; None for feed-forward networks."""
        return None if self.recurrent_size is None else jnp.zeros((batch, 2 * self.recurrent_size))

    def act(
        self,
        params: PolicyParams,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """Return the best supported action; with a key, at rate epsilon a random supported one."""
        policy, carry = self._policy(params, observation, mask, carry)
        action = policy.mode() if key is None else policy.sample(key)
        return Act(action, policy.log_probability(action), carry)

    def distribution(
        self, params: PolicyParams, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> EpsilonGreedy:
        """Return the distribution of the sampled policy."""
        return self._policy(params, observation, mask, carry)[0]

    def _policy(
        self, params: PolicyParams, observation: Observation, mask: jax.Array | None, carry: Any
    ) -> tuple[EpsilonGreedy, Any]:
        carry = self.start(params, len(next(iter(observation.values())))) if carry is None else carry
        values, logits, carry = step_along(params, observation, carry)
        return EpsilonGreedy(values, supported(logits, self.threshold, mask), self.epsilon), carry

    def q_values(self, params: PolicyParams, observation: Observation) -> jax.Array | None:
        """Return the critic's values [B, A], also of unsupported actions; None for recurrent networks."""
        return params.critic.all_actions(observation) if self.recurrent_size is None else None

    def recipe(self, params: PolicyParams) -> dict[str, Any]:
        """Return the acting computation of critic and imitator as plain nodes."""
        act = {
            "kind": "supported",
            "critic": recipe.network(params.critic),
            "imitator": recipe.imitator(seeing(params)),
            "threshold": float(self.threshold),
            "epsilon": float(self.epsilon),
        }
        values = recipe.smallest([params.critic]) if self.recurrent_size is None else None
        return recipe.whole(act, values, self.recurrent_size and 2 * self.recurrent_size)
