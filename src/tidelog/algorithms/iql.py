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

With `returns` "td-lambda" or "retrace" the losses run over windows. The critic's target is then
`G = r + discount (newV(s') + c (G' - b))`, where G' is that of the next logged step, and c is 0 at the end of the
window or episode. TD(lambda): c = lambda, b = newV(s'); as n-step returns it learns in part the behaviour policy's
values. Retrace (Munos et al. 2016): c = lambda min(1, pi(a' | s') / mu(a' | s')), b = q of the next step, with the
**new** actor and recorded propensities mu; its correction has mean 0 at the fixed point of the one-step target.

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
from tidelog.errors import ConfigError
from tidelog.losses.policy import advantage_weight
from tidelog.losses.td import (
    RETURNS,
    Components,
    PointLoss,
    ensemble_error,
    expectile_error,
    lambda_returns,
    squared,
)
from tidelog.networks.actors import Actor, HeadFactory, gaussian
from tidelog.networks.critics import Critic, Ensemble, Value, value_and_next_value
from tidelog.networks.layers import Activation
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


def following(values: jax.Array) -> jax.Array:
    """Return the values [B, T, ...] of the next step, 0 at the end of the window."""
    return jnp.concatenate([values[:, 1:], jnp.zeros_like(values[:, :1])], axis=1)


def traces(config: IQL, state: Any, row: Transition, real: Any) -> jax.Array:
    """Return the factor [B, T] of the next step's target: lambda, for Retrace times `min(1, pi / mu)`; 0 at an end."""
    weight = real.astype(jnp.float32)
    if config.returns == "retrace":
        likely = state.actor(row.observation, mask=row.mask, **row.window).log_probability(row.action)
        if likely is None:
            raise ConfigError("IQL.returns = 'retrace'", "a policy with a density", "use actor_head='gaussian'")
        weight = weight * jnp.exp(jnp.minimum(likely - row.log_propensity, 0.0))
    return config.trace_lambda * following(weight)


def summaries(batch: Batch, values: jax.Array, target: jax.Array) -> dict[str, jax.Array]:
    """Return the mean target and, of each critic from 1 on, its mean value, absolute error and explained variance."""
    metrics = {"target_q": batch.average(target)}
    for number, value in enumerate(values, start=1):
        metrics |= {
            f"q_mean_{number}": batch.average(value),
            f"td_error_{number}": batch.average(jnp.abs(value - target)),
            f"explained_variance_{number}": batch.explained_variance(target, value),
        }
    return metrics


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
    returns: str = field("n-step", choices=RETURNS, help="targets of the critics; others along a window", group="value")
    trace_lambda: float = field(0.95, least=0.0, most=1.0, help="lambda of td-lambda and retrace", group="value")
    batch_size: int = fields.batch_size(256)
    actor_learning_rate: float = fields.learning_rate(3e-4, "the actor")
    critic_learning_rate: float = fields.learning_rate(3e-4, "the critics")
    value_learning_rate: float = fields.learning_rate(3e-4, "the value network")
    actor_schedule: Schedule = fields.schedule(cosine)
    critic_schedule: Schedule = fields.schedule(constant)
    value_schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    matmul_precision: str = fields.matmul_precision()
    dropout: float | None = fields.dropout(None)
    hidden: tuple[int, ...] = fields.widths((256, 256), "hidden layers")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_shift: int = fields.picture_shift(0)
    recurrent_size: int | None = fields.recurrent_size(None)
    window: int = fields.window(16)
    burn_in: int = fields.burn_in(0)
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float | None = fields.priority_correction(0.4)
    reward_weights: tuple[float, ...] | None = field(None, help="weights of several rewards; default: ones")
    discounts: tuple[float, ...] | None = field(None, help="a discount for each of several rewards, not one for all")
    layer_norm: bool = fields.layer_norm(False)
    activation: Activation = fields.activation("relu")
    actor_head: HeadFactory = fields.actor_head(gaussian)
    epsilon: float | None = fields.epsilon(None, help="sampling: probability of a sample, else the mode")
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    actor_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns one critic module")
    value_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete, MultiDiscrete, Hybrid)
    suits: ClassVar[str] = "good decisions among bad ones: it prefers these, and never trusts an action outside the log"
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log that the losses read."""
        return ("reward", "terminated", *(("propensity",) if self.returns == "retrace" else ()))

    def check(self) -> None:
        """Raise ConfigError where two fields contradict each other, or a discount is not in [0, 1]."""
        if self.returns != "n-step" and self.n_step != 1:
            raise ConfigError(
                f"IQL.returns = '{self.returns}' and IQL.n_step = {self.n_step}",
                "one of them",
                "set n_step=1: these returns reach to the end of the window",
            )
        if self.discounts is not None and not all(0.0 <= one <= 1.0 for one in self.discounts):
            raise ConfigError(f"IQL.discounts = {self.discounts}", "numbers in [0, 1]", "as discounts=(0.99, 0.9)")

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
        row, real = batch.data, batch.data.real
        if self.recurrent_size is None:
            row = row._replace(real=None)  # networks without a recurrent unit read steps
        discount = row.discount if self.discounts is None else row.discount[..., 0]
        rewards = Components.of(row.reward, discount, self.reward_weights)
        discount = rewards.expand(discount) if self.discounts is None else row.discount
        targets = state.target_critic(row.observation, row.action, **row.window)  # [E, B]
        q = rewards.smallest(targets)  # [B]
        v, next_v = value_and_next_value(state.value, row)  # [B]
        advantage = rewards.total(q - v)
        weight = advantage_weight(advantage, self.temperature, self.max_weight)
        policy = state.actor(row.observation, mask=row.mask, dropout=self.dropout, key=key, **row.window)
        target = row.reward + discount * next_v
        if self.returns != "n-step":
            trace, control = traces(self, state, row, real), following(q) if self.returns == "retrace" else next_v
            factors = (jnp.broadcast_to(one, next_v.shape) for one in (discount, rewards.expand(trace)))
            target = lambda_returns(row.reward, next_v, control, *factors)
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
        if self.debug_metrics:
            critic |= summaries(batch, rewards.total(logged_q), rewards.total(target))
        return losses, {
            "value": {"v_mean": batch.average(rewards.total(v))},
            "actor": actor if entropy is None else actor | {"entropy": batch.average(entropy)},
            "critic": critic,
        }

    def policy_params(self, state: Any) -> PolicyParams:
        """Return actor and critics."""
        return PolicyParams(state.actor, state.critic)
