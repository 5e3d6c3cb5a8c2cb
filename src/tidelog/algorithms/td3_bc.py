"""TD3+BC: TD3 whose actor also imitates the logged actions; continuous actions.

Fujimoto, Gu 2021, arXiv:2106.06860, on TD3 (Fujimoto, van Hoof, Meger 2018, arXiv:1802.09477); reference
implementation: sfujim/TD3_BC.

One update, in this order (`new` marks networks that this update has already changed):

| step | loss (per sample) | reads |
|---|---|---|
| critics | `sum_e (Q_e(s, a) - r - discount min_e Qtarget_e(s', a'))**2` | old target actor and critics |
| | `a' = clip(target_actor(s') + clip(policy_noise z, -noise_clip, noise_clip), -1, 1)` | |
| actor | `mean (pi(s) - a)**2 - alpha / mean abs(Q_1(s, pi(s))) Q_1(s, pi(s))` | **new** Q_1 |
| targets | Polyak update of actor and critics by `tau` | **new** actor and critics |

Actor and targets move in every `policy_delay`-th update only. `mean abs(Q_1)` is over the batch and a constant for the
gradient, so the unit of rewards has no effect on the actor.

Limits: alpha 0 is behaviour cloning with a deterministic head.

Deliberate differences from the reference: actions are scaled to [-1, 1]; the imitation term is a mean over the numbers
of an action, as there. The paper standardises observations: that is `scale="standard"` of `tl.fit`, its default.

Letters: `B` batch, `E` ensemble, `A` action size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.hyperparameters import MAIN, field, own
from tidelog.algorithms.optimisation import Schedule, Transformation, constant
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import NetworkMaker, algorithm
from tidelog.data.statistics import RewardScaling
from tidelog.losses.imitation import squared_distance
from tidelog.losses.td import PointLoss, ensemble_error, squared
from tidelog.networks.actors import Actor, deterministic, policy_after
from tidelog.networks.critics import Critic, Ensemble
from tidelog.networks.layers import Activation, normal
from tidelog.networks.pictures import Layers, by_size
from tidelog.types import Continuous, Spec, Transition


class TD3BCState(NamedTuple):
    """The networks; optimiser states, the numbers of updates and the key are added."""

    actor: Actor
    target_actor: Actor
    critic: Ensemble
    target_critic: Ensemble


def smoothed_action(config: Any, state: Any, row: Transition, key: jax.Array) -> jax.Array:
    """Return the target actor's next action [B, A] with clipped normal noise, within [-1, 1]."""
    action = policy_after(state.target_actor, row).mode()
    noise = jnp.clip(config.policy_noise * normal(key, action.shape), -config.noise_clip, config.noise_clip)
    return jnp.clip(action + noise, -1.0, 1.0)


def inverse_size(batch: Batch, q: jax.Array) -> jax.Array:
    """Return 1 over the mean absolute value of q [B], without gradient."""
    return 1.0 / jnp.maximum(batch.average(jnp.abs(jax.lax.stop_gradient(q))), 1e-6)


def critic_metrics(batch: Batch, q: jax.Array, target: jax.Array) -> dict[str, jax.Array]:
    """Return means of values q [E, B] and targets [B], and the priorities."""
    error = jnp.mean(jnp.abs(q - target), axis=0)
    means = {"q_mean": jnp.mean(q, axis=0), "target_q": target, "td_error": error}
    return {name: batch.average(values) for name, values in means.items()} | {"priority": batch.per_sample(error)}


@algorithm("td3-bc")
class TD3BC:
    """TD3 with a behaviour-cloning term: the actor maximises Q near the logged actions (arXiv:2106.06860).

    Example:
        >>> log = tl.collect("point-mass", episodes=50, seed=0)
        >>> run = tl.fit(tl.TD3BC(alpha=2.5, hidden=(16,)), log, steps=20)
        >>> run.policy().mode(log.observation).shape[1] == log.spec.action.size
        True
    """

    alpha: float = field(2.5, least=0.0, help="weight of Q against imitation; 0 clones the log", group=MAIN)
    policy_noise: float = fields.policy_noise()
    noise_clip: float = fields.noise_clip()
    policy_delay: int = fields.policy_delay()
    discount: float = fields.discount(0.99)
    tau: float = fields.tau(0.005, "targets move per update")
    num_critics: int = fields.num_critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(256)
    actor_learning_rate: float = fields.learning_rate(3e-4, "the actor")
    critic_learning_rate: float = fields.learning_rate(3e-4, "the critics")
    actor_schedule: Schedule = fields.schedule(constant)
    critic_schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    matmul_precision: str = fields.matmul_precision()
    dropout: float | None = fields.dropout(None)
    hidden: tuple[int, ...] = fields.widths((256, 256), "hidden layers")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_shift: int = fields.picture_shift(0)
    layer_norm: bool = fields.layer_norm(False)
    activation: Activation = fields.activation("relu")
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float | None = fields.priority_correction(0.4)
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    actor_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns one critic module")

    takes: ClassVar[tuple[type, ...]] = (Continuous,)
    suits: ClassVar[str] = "a behaviour policy near a good one: an actor-critic with one weight, `alpha`"
    delayed: ClassVar[tuple[str, ...]] = ("actor", "targets")

    def init(self, spec: Spec, key: jax.Array) -> TD3BCState:
        """Return new networks; targets start as copies of their networks."""
        make = NetworkMaker(self, spec, key)
        actor = make(Actor, self.actor_network, head=deterministic)
        critic = Ensemble.create(self.num_critics, lambda: make(Critic, self.critic_network))
        return TD3BCState(actor, actor, critic, critic)

    def loss(self, state: Any, batch: Batch, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        """Return the losses in the order of the update, and the metrics of each."""
        row: Transition = batch.data
        noise_key, dropout_key = jax.random.split(key)
        next_action = smoothed_action(self, state, row, noise_key)
        next_q = jnp.min(state.target_critic(row.next_observation, next_action), axis=0)
        target = row.reward + row.discount * next_q  # [B]
        q = state.critic(row.observation, row.action)  # [E, B]

        action = state.actor(row.observation, dropout=self.dropout, key=dropout_key).mode()  # [B, A]
        policy_q = state.critic.members[0](row.observation, action)  # [B]
        imitation = squared_distance(action, row.action) / action.shape[-1]
        losses = {
            "critic": batch.mean(ensemble_error(q, target, self.critic_loss)),
            "actor": batch.mean(imitation - self.alpha * inverse_size(batch, policy_q) * policy_q),
        }
        actor = {"imitation_error": batch.average(imitation), "policy_q": batch.average(policy_q)}
        return losses, {"critic": critic_metrics(batch, q, target), "actor": actor}
