"""Implicit Q-learning (IQL), continuous, discrete, several choices at once, and actions with parts.

Kostrikov, Nair, Levine 2021, arXiv:2110.06169; reference implementation: ikostrikov/implicit_q_learning.

One update, in this order (`new` marks networks that this update has already changed):

| step | loss (per sample) | reads |
|---|---|---|
| value | expectile error of `u = q - V(s)`, `q = min_e Qtarget_e(s, a)` | old target critics |
| actor | `-min(exp(temperature (q - newV(s))), max_weight) log pi(a | s)` | the same q, **new** value |
| critic | `sum_e (Q_e(s, a) - r - discount newV(s'))**2` | **new** value |
| target | Polyak update by `tau` | **new** critics |

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

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.hyperparameters import MAIN, chosen_preset, field, own
from tidelog.algorithms.optimisation import Schedule, Transformation, constant, cosine
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import NetworkMaker, algorithm
from tidelog.data.statistics import RewardScaling
from tidelog.losses.policy import advantage_weight
from tidelog.losses.td import Components, PointLoss, ensemble_error, expectile_error, squared
from tidelog.networks.actors import Actor, HeadFactory, gaussian
from tidelog.networks.critics import Critic, Ensemble, Value, value_and_next_value
from tidelog.networks.pictures import Layers, by_size
from tidelog.types import Continuous, Discrete, Hybrid, MultiDiscrete, Spec, Transition


class IQLState(NamedTuple):
    """The networks; optimiser states, the numbers of updates and the key are added."""

    actor: Actor
    critic: Ensemble
    target_critic: Ensemble
    value: Value


class PolicyParams(NamedTuple):
    """The arrays that acting and Q-values read."""

    actor: Actor
    critic: Ensemble


PRESETS: dict[str, dict[str, Any]] = {
    # Kostrikov et al. 2021, section 5 and appendix B; the reward scalings are from the reference implementation.
    "locomotion": {"expectile": 0.7, "temperature": 3.0, "reward_scaling": "return-range"},
    "antmaze": {"expectile": 0.9, "temperature": 10.0, "reward_scaling": "minus-one"},
    "adroit": {"expectile": 0.7, "temperature": 0.5, "dropout": 0.1, "reward_scaling": "none"},
    "kitchen": {"expectile": 0.7, "temperature": 0.5, "dropout": 0.1, "reward_scaling": "none"},
}


@algorithm("iql")
class IQL:
    """Implicit Q-learning: in-sample expectile values, advantage-weighted policy (arXiv:2110.06169).

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> policy = tl.fit(tl.IQL(temperature=10.0, hidden=(16,)), log, steps=20).policy()
        >>> policy.q_values(log.features()).shape == (len(log.action), 6)
        True
    """

    expectile: float = field(
        0.7, least=0.0, most=1.0, open_ends=True, help="expectile of Q that the value learns", group=MAIN
    )
    temperature: float = fields.inverse_temperature(3.0)
    max_weight: float = field(100.0, least=0.0, help="cap on exp(temperature * advantage)", role="weight cap")
    discount: float = fields.discount(0.99)
    tau: float = fields.tau(0.005, "target critics move per update")
    target_update_period: int = field(
        1, least=1, help="updates between two updates of the target critics", group="value"
    )
    num_critics: int = fields.num_critics(2)
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
    matmul_precision: str = fields.matmul_precision()
    dropout: float | None = fields.dropout(None)
    hidden: tuple[int, ...] = fields.widths((256, 256), "hidden layers")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    recurrent_size: int | None = fields.recurrent_size(None)
    window: int = fields.window(16)
    burn_in: int = fields.burn_in(0)
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float = fields.priority_correction(0.4)
    reward_weights: tuple[float, ...] | None = field(None, help="weights of several rewards; default: ones")
    layer_norm: bool = fields.layer_norm(False)
    actor_head: HeadFactory = fields.actor_head(gaussian)
    epsilon: float | None = fields.epsilon(None, help="sampling: probability of a sample, else the mode")
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    actor_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns one critic module")
    value_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete, MultiDiscrete, Hybrid)
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    @classmethod
    def preset(cls, name: str) -> IQL:
        """Return the authors' settings for a family of D4RL tasks: locomotion, antmaze, adroit or kitchen."""
        return cls(**chosen_preset("IQL", PRESETS, name))

    def init(self, spec: Spec, key: jax.Array) -> IQLState:
        """Return new networks; the target critics start as copies of the critics."""
        make = NetworkMaker(self, spec, key)
        actor = make(Actor, self.actor_network, head=self.actor_head)
        critic = Ensemble.create(self.num_critics, lambda: make(Critic, self.critic_network))
        return IQLState(actor, critic, critic, make(Value, self.value_network))

    def loss(self, state: Any, batch: Batch, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        """Return the losses in the order of the update, and the metrics of each."""
        row: Transition = batch.data
        rewards = Components.of(row.reward, row.discount, self.reward_weights)
        targets = state.target_critic(row.observation, row.action, **row.window)  # [E, B]
        q = rewards.smallest(targets)  # [B]
        v, next_v = value_and_next_value(state.value, row)  # [B]
        advantage = rewards.total(q - v)
        weight = advantage_weight(advantage, self.temperature, self.max_weight)
        policy = state.actor(row.observation, mask=row.mask, dropout=self.dropout, key=key, **row.window)
        target = row.reward + rewards.expand(row.discount) * next_v
        logged_q = state.critic(row.observation, row.action, **row.window)  # [E, B]

        value_errors = expectile_error(q - v, self.expectile, rewards.expand(advantage))
        losses = {
            "value": batch.mean(rewards.average(value_errors)),
            "actor": batch.mean(weight * policy.imitation_error(row.action)),
            "critic": batch.mean(rewards.average(ensemble_error(logged_q, target, self.critic_loss))),
        }
        mean, entropy = batch.average(advantage), policy.entropy()
        share = jnp.square(batch.average(weight)) / jnp.maximum(batch.average(jnp.square(weight)), 1e-30)
        actor = {"capped_share": batch.average(weight >= self.max_weight), "effective_share": share}
        critic = {
            "advantage_mean": mean,
            "advantage_std": jnp.sqrt(batch.average(jnp.square(advantage - mean))),
            "q_mean": batch.average(jnp.mean(rewards.total(logged_q), axis=0)),
            "target_gap": batch.average(jnp.mean(jnp.abs(rewards.total(logged_q - targets)), axis=0)),
            "priority": batch.per_sample(jnp.mean(jnp.abs(rewards.total(logged_q - target)), axis=0)),
        }
        return losses, {
            "value": {"v_mean": batch.average(rewards.total(v))},
            "actor": actor if entropy is None else actor | {"entropy": batch.average(entropy)},
            "critic": critic,
        }

    def policy_params(self, state: Any) -> PolicyParams:
        """Return actor and critics."""
        return PolicyParams(state.actor, state.critic)
