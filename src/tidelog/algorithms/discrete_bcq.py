"""Discrete BCQ: double Q-learning over the actions that an imitation model of the log supports.

Fujimoto, Conti, Ghavamzadeh, Pineau 2019, arXiv:1910.01708; reference implementation: sfujim/BCQ, discrete_BCQ.

One update, of Q and the imitator together:

| step | loss (per sample) | reads |
|---|---|---|
| Q | `huber(Q(s, a) - r - discount Qtarget(s', a*))` | old target critic |
| | `a* = argmax of Q(s', .) over the actions that the imitator supports in s'` | old critic, old imitator |
| imitator | `-log pi(a | s) + logit_penalty mean(logits**2)` | |
| target | Polyak update by `tau`, or a copy every `copy_period` updates | **new** critic |

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

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.hyperparameters import MAIN, chosen_preset, field, own
from tidelog.algorithms.optimisation import Schedule, Transformation, constant, frozen
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import NetworkMaker, algorithm
from tidelog.data.statistics import RewardScaling
from tidelog.errors import ConfigError
from tidelog.losses.imitation import categorical_log_probability, mean_square, pick
from tidelog.losses.td import PointLoss, ensemble_error, huber
from tidelog.networks import recipe
from tidelog.networks.actors import Actor, EpsilonGreedy, gaussian, policy_after
from tidelog.networks.critics import Critic, ratings_after
from tidelog.networks.encoder import SHARING, Sharing, with_pictures
from tidelog.networks.layers import Activation, Linear
from tidelog.networks.pictures import Layers, by_size
from tidelog.support import allow, best, supported
from tidelog.types import Act, Discrete, Observation, Spec, Transition, same_shape


class DiscreteBCQState(NamedTuple):
    """The networks; optimiser states, the numbers of updates and the key are added.

    An imitator without an encoder uses the critic's encoder.
    """

    critic: Critic
    imitator: Actor
    target_critic: Critic | None  # None: the critic is its own target


# Network outputs.


def seeing(networks: Any) -> Any:
    """Return the imitator of a state or of a policy with the encoder that it uses."""
    without_encoder = isinstance(networks.imitator, Actor) and networks.imitator.encoder is None
    if not without_encoder:
        return networks.imitator
    return eqx.tree_at(
        lambda actor: actor.encoder, networks.imitator, networks.critic.encoder, is_leaf=lambda leaf: leaf is None
    )


def step_along(params: Any, observation: Observation, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
    """Return Q and logits [B, A] of one more observation, and the new recurrent state."""
    critic: Any = params.critic
    imitator = seeing(params)
    if carry is None:
        return critic.all_actions(observation), imitator(observation).logits, None
    values, one = critic.step(observation, carry[:, : carry.shape[1] // 2])
    policy, two = imitator.step(observation, carry[:, carry.shape[1] // 2 :], None)
    return values, policy.logits, jnp.concatenate([one, two], axis=1)


# The update.


def target_value(config: DiscreteBCQ, state: Any, row: Transition) -> jax.Array:
    """`r + discount Qtarget(s', a*)` [B], a* the best supported action."""
    target_critic = state.critic if state.target_critic is None else state.target_critic
    logits = policy_after(seeing(state), row).logits
    rated = ratings_after(target_critic, row)
    values = ratings_after(state.critic, row) if config.double else rated
    following = pick(rated, best(values, supported(logits, config.threshold, row.next_mask)))
    same_shape(reward=row.reward, discount=row.discount, value=following)
    return row.reward + row.discount * following


PRESETS: dict[str, dict[str, Any]] = {
    # Fujimoto et al. 2019 (arXiv:1910.01708); sfujim/BCQ, discrete_BCQ/main.py, atari_parameters.
    "atari": {
        "learning_rate": 6.25e-5,
        "optimiser": "adam-atari",
        "batch_size": 32,
        "tau": None,
        "copy_period": 8000,
        "epsilon": 0.001,
        "convolutions": "nature",
        "hidden": (512,),
        "reward_scaling": "none",
    },
}


@algorithm("discrete-bcq")
class DiscreteBCQ:
    """Discrete batch-constrained Q-learning: the best of the actions that the log supports (arXiv:1910.01708).

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> run = tl.fit(tl.DiscreteBCQ(threshold=0.3, hidden=(16,)), log, steps=20)
        >>> set(run.policy().mode(log.features()).labels) <= set(log.spec.action.names)
        True
    """

    threshold: float = field(
        0.3,
        least=0.0,
        most=1.0,
        help="smallest probability relative to the most likely action",
        group=MAIN,
        role="support threshold",
    )
    logit_penalty: float = field(0.01, least=0.0, help="weight of the imitator's mean squared logit")
    discount: float = fields.discount(0.99)
    tau: float | None = fields.tau(0.005, "the target critic moves per update; none with copy_period")
    copy_period: int | None = field(
        None, least=1, help="updates between two copies into the target critic", group="value"
    )
    double: bool = field(True, help="the critic chooses the target's action, not the target critic")
    critic_loss: PointLoss = fields.critic_loss(huber)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(64)
    learning_rate: float = fields.learning_rate(3e-4, group=MAIN)
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "both networks' gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    matmul_precision: str = fields.matmul_precision()
    hidden: tuple[int, ...] = fields.widths((256, 256), "hidden layers")
    shared: Sharing = field(with_pictures, choices=SHARING, help="when the imitator uses the critic's encoder")
    layer_norm: bool = fields.layer_norm(False)
    activation: Activation = fields.activation("relu")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_shift: int = fields.picture_shift(0)
    recurrent_size: int | None = fields.recurrent_size(None)
    window: int = fields.window(16)
    burn_in: int = fields.burn_in(0)
    epsilon: float = fields.epsilon(0.0, help="sampling: probability of a random supported action")
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float | None = fields.priority_correction(0.4)
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns a module with all_actions")
    imitator_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")

    takes: ClassVar[tuple[type, ...]] = (Discrete,)
    suits: ClassVar[str] = "a varied behaviour policy: `threshold` controls the trust in Q"
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS
    loss_names: ClassVar[dict[Any, str]] = {("critic", "imitator"): "loss"}

    @classmethod
    def preset(cls, name: str) -> DiscreteBCQ:
        """Return the authors' settings for a family of tasks: atari."""
        return cls(**chosen_preset("DiscreteBCQ", PRESETS, name))

    def check(self) -> None:
        """Raise ConfigError where two fields contradict each other."""
        if self.tau is not None and self.copy_period is not None:
            raise ConfigError(
                f"DiscreteBCQ.tau = {self.tau:g} and DiscreteBCQ.copy_period = "
                f"{self.copy_period}: only one of them can move the target critic",
                fix="make one of them None, or both",
            )
        if self.recurrent_size is not None and (self.critic_network or self.imitator_network):
            raise ConfigError(
                f"DiscreteBCQ.recurrent_size = {self.recurrent_size} does not support networks of your own",
                fix="drop recurrent_size or your networks",
            )

    def init(self, spec: Spec, key: jax.Array) -> DiscreteBCQState:
        """Return new networks; the target critic starts as a copy of the critic."""
        make = NetworkMaker(self, spec, key)
        critic = make(Critic, self.critic_network, linear=Linear.uniform)
        imitator = make(Actor, self.imitator_network, head=gaussian, linear=Linear.uniform)
        if self.shared(spec) and not (self.recurrent_size or self.critic_network or self.imitator_network):
            imitator = eqx.tree_at(lambda actor: actor.encoder, imitator, None)
        has_target = self.tau is not None or self.copy_period is not None
        return DiscreteBCQState(critic, imitator, critic if has_target else None)

    def loss(self, state: Any, batch: Batch, key: jax.Array) -> tuple[dict[Any, jax.Array], dict[str, Any]]:
        """Return the sum of TD error, imitation error and logit penalty, and the metrics."""
        row: Transition = batch.data
        target = target_value(self, frozen(state), row)  # [B]
        values = state.critic.all_actions(row.observation, **row.window)  # [B, A]
        logits = seeing(state)(row.observation, **row.window).logits  # [B, A]
        q = pick(values, row.action)
        q_loss = batch.mean(ensemble_error(q[None], target, self.critic_loss))
        imitation_loss = -batch.mean(categorical_log_probability(allow(logits, row.mask), row.action))
        logit_loss = batch.mean(mean_square(logits, row.mask))

        allowed = supported(logits, self.threshold, row.mask)
        greedy = jnp.argmax(allow(values, row.mask), axis=-1)[..., None]
        metrics = {
            "q_loss": q_loss,
            "imitation_loss": imitation_loss,
            "logit_loss": logit_loss,
            "q_mean": batch.average(q),
            "target_q": batch.average(target),
            "supported_actions": batch.average(jnp.sum(allowed, axis=-1).astype(jnp.float32)),
            "filtered_share": batch.average(~jnp.take_along_axis(allowed, greedy, axis=-1)[..., 0]),
            "priority": batch.per_sample(jnp.abs(q - target)),
        }
        return {("critic", "imitator"): q_loss + imitation_loss + self.logit_penalty * logit_loss}, metrics

    def initial_state(self, params: Any, batch: int) -> jax.Array | None:
        """Return both initial recurrent states, concatenated; None for feed-forward networks."""
        return None if self.recurrent_size is None else jnp.zeros((batch, 2 * self.recurrent_size))

    def act(
        self,
        params: Any,
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
        self, params: Any, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> EpsilonGreedy:
        """Return the distribution of the sampled policy."""
        return self._policy(params, observation, mask, carry)[0]

    def imitation_logits(self, params: Any, observation: Observation, carry: Any = None) -> jax.Array:
        """Return the imitator's logits [B, A], without a mask."""
        carry = self.initial_state(params, len(next(iter(observation.values())))) if carry is None else carry
        return step_along(params, observation, carry)[1]

    def _policy(
        self, params: Any, observation: Observation, mask: jax.Array | None, carry: Any
    ) -> tuple[EpsilonGreedy, Any]:
        carry = self.initial_state(params, len(next(iter(observation.values())))) if carry is None else carry
        values, logits, carry = step_along(params, observation, carry)
        return EpsilonGreedy(values, supported(logits, self.threshold, mask), self.epsilon), carry

    def recipe(self, params: Any) -> dict[str, Any]:
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
