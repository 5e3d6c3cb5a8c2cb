"""CQL: soft actor-critic whose critics are lower at the policy's actions than at the logged ones; continuous actions.

Kumar, Zhou, Tucker, Levine 2020, arXiv:2006.04779, CQL(H), on SAC (Haarnoja et al. 2018, arXiv:1812.05905); reference
implementation: aviralkumar2907/CQL, d4rl.

One update, in this order (`new` marks networks that this update has already changed):

| step | loss (per sample) | reads |
|---|---|---|
| entropy | `-log w (log pi(b | s) + target_entropy)`, w the weight of the entropy, b from the policy | |
| actor | `w log pi(b | s) - min_e Q_e(s, b)` | **new** w, old critics |
| critics | `sum_e (Q_e(s, a) - r - discount min_e Qtarget_e(s', b'))**2 + alpha sum_e gap_e` | **new** actor |
| | `gap_e = log mean_k exp(Q_e(s, a_k) - log mu(a_k)) - Q_e(s, a)` | **new** actor |
| targets | Polyak update of the critics by `tau` | **new** critics |

`a_k` are `samples` actions each from the uniform distribution, from the policy in s and from the policy in s'; `mu` is
the density of the one that drew it: an estimate of `log integral exp Q_e(s, .)` over [-1, 1]. A sample of the policy
beyond these bounds has no weight there. The target has no entropy term.

Limits: alpha 0 is SAC. For discrete actions: `discrete_cql.py`.

Deliberate differences from the reference: the policy is a Gaussian with a mean in [-1, 1], whose actions are clipped at
the bounds, not squashed; `log pi` is at least that of the uniform distribution: a wide policy, all of whose samples are
clipped, would else become wider still. The log of a mean replaces that of a sum, which moves the gap by a constant.
There is no cloning before the first updates of the actor, and alpha is fixed (no Lagrange form).

Letters: `B` batch, `E` ensemble, `A` action size, `K` sampled actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.bcq import values_of_all
from tidelog.algorithms.hyperparameters import MAIN, chosen_preset, field, own
from tidelog.algorithms.optimisation import Schedule, Transformation, constant
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import NetworkMaker, algorithm
from tidelog.algorithms.td3_bc import critic_metrics
from tidelog.data.statistics import RewardScaling
from tidelog.errors import ConfigError
from tidelog.losses.td import PointLoss, ensemble_error, squared
from tidelog.networks.actors import Actor, HeadFactory, deterministic, policy_after, state_gaussian
from tidelog.networks.critics import Critic, Ensemble
from tidelog.networks.encoder import now
from tidelog.networks.layers import Activation, zeros
from tidelog.networks.pictures import Layers, by_size
from tidelog.types import Continuous, Spec, Transition


class CQLState(NamedTuple):
    """The networks; optimiser states, the numbers of updates and the key are added."""

    actor: Actor
    critic: Ensemble
    target_critic: Ensemble
    entropy: jax.Array  # []: the log of the entropy's weight


def several_samples(policy: Any, key: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Return samples [K, B, A] of a Gaussian, within the bounds or not, and their log-densities [K, B]."""
    actions = jax.vmap(policy.sample)(jax.random.split(key, count))
    return actions, jax.vmap(policy.log_probability)(actions)


def weightless_beyond(actions: jax.Array, log_density: jax.Array) -> jax.Array:
    """Return the log-densities [K, B], infinite where an action [K, B, A] is beyond [-1, 1]: its `1 / mu` is 0."""
    return jnp.where(jnp.max(jnp.abs(actions), axis=-1) <= 1.0, log_density, jnp.inf)


def soft_maximum(values: jax.Array, log_density: jax.Array) -> jax.Array:
    """Estimate `log integral exp Q` [E, B] from values [E, K, B] of actions drawn with log-densities [K, B]."""
    return jax.nn.logsumexp(values - log_density, axis=1) - math.log(values.shape[1])


PRESETS: dict[str, dict[str, Any]] = {
    # Kumar et al. 2020; the reference implementation names 5 or 10 as alpha without the Lagrange form.
    "locomotion": {"alpha": 5.0, "reward_scaling": "none"},
}


@algorithm("cql")
class CQL:
    """Conservative Q-learning: soft actor-critic with low values of actions unlike the logged ones (arXiv:2006.04779).

    Example:
        >>> log = tl.collect("point-mass", episodes=50, seed=0)
        >>> run = tl.fit(tl.CQL(alpha=1.0, samples=2, hidden=(16,)), log, steps=20)
        >>> run.policy().mode(log.observation).shape[1] == log.spec.action.size
        True
    """

    alpha: float = field(5.0, least=0.0, help="weight of the conservative term; 0 is SAC", group=MAIN)
    samples: int = field(10, least=1, help="actions from each of three distributions in the conservative term")
    entropy_weight: float | None = field(None, least=0.0, help="weight of the policy's entropy; none: it is learnt")
    target_entropy: float | None = field(None, help="entropy that the learnt weight keeps; none: minus the action size")
    discount: float = fields.discount(0.99)
    tau: float = fields.tau(0.005, "target critics move per update")
    num_critics: int = fields.num_critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(256)
    actor_learning_rate: float = fields.learning_rate(1e-4, "the actor")
    critic_learning_rate: float = fields.learning_rate(3e-4, "the critics")
    entropy_learning_rate: float = fields.learning_rate(1e-4, "the entropy's weight")
    actor_schedule: Schedule = fields.schedule(constant)
    critic_schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    matmul_precision: str = fields.matmul_precision()
    hidden: tuple[int, ...] = fields.widths((256, 256, 256), "hidden layers")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_shift: int = fields.picture_shift(0)
    layer_norm: bool = fields.layer_norm(False)
    activation: Activation = fields.activation("relu")
    actor_head: HeadFactory = fields.actor_head(state_gaussian)
    epsilon: float | None = fields.epsilon(None, help="sampling: probability of a sample, else the mode")
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float | None = fields.priority_correction(0.4)
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    actor_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns one critic module")

    takes: ClassVar[tuple[type, ...]] = (Continuous,)
    suits: ClassVar[str] = "values that are low where the log is silent; its updates cost the most"
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    def check(self) -> None:
        """Raise ConfigError for a policy without a density."""
        if self.actor_head is deterministic:
            raise ConfigError(
                "CQL.actor_head = 'deterministic'", "a policy with a density", "use 'state-gaussian' or TD3+BC"
            )

    @classmethod
    def preset(cls, name: str) -> CQL:
        """Return the authors' settings for a family of D4RL tasks: locomotion."""
        return cls(**chosen_preset("CQL", PRESETS, name))

    def init(self, spec: Spec, key: jax.Array) -> CQLState:
        """Return new networks; the target critics start as copies of the critics, the entropy's weight at 1."""
        make = NetworkMaker(self, spec, key)
        actor = make(Actor, self.actor_network, head=self.actor_head)
        critic = Ensemble.create(self.num_critics, lambda: make(Critic, self.critic_network))
        return CQLState(actor, critic, critic, zeros())

    def loss(self, state: Any, batch: Batch, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        """Return the losses in the order of the update, and the metrics of each."""
        row: Transition = batch.data
        size = row.action.shape[-1]
        keys = jax.random.split(key, 3)
        actions, log_density = several_samples(state.actor(row.observation), keys[0], self.samples + 1)
        next_actions, next_density = several_samples(policy_after(state.actor, row), keys[1], self.samples + 1)
        uniform = jax.random.uniform(keys[2], actions[1:].shape, minval=-1.0, maxval=1.0)  # [K, B, A]
        log_uniform = jnp.full(log_density[1:].shape, -size * math.log(2.0))

        executed = jnp.clip(actions[0], -1.0, 1.0)
        own_q = jnp.min(state.critic(row.observation, executed), axis=0)  # [B]
        target_entropy = -float(size) if self.target_entropy is None else self.target_entropy
        weight = jnp.exp(jax.lax.stop_gradient(state.entropy)) if self.entropy_weight is None else self.entropy_weight

        next_q = jnp.min(state.target_critic(row.next_observation, jnp.clip(next_actions[0], -1.0, 1.0)), axis=0)
        target = row.reward + row.discount * next_q  # [B]
        q = state.critic(row.observation, row.action)  # [E, B]
        others = jnp.concatenate([uniform, actions[1:], next_actions[1:]])  # [3 K, B, A]
        drawn_by = weightless_beyond(others, jnp.concatenate([log_uniform, log_density[1:], next_density[1:]]))
        others = jnp.clip(others, -1.0, 1.0)
        values = values_of_all(state.critic, [now(critic, row) for critic in state.critic.members], others)
        gap = soft_maximum(values, drawn_by) - q  # [E, B]

        likely = jnp.maximum(log_density[0], log_uniform[0])  # no policy within the bounds has more entropy
        excess = jax.lax.stop_gradient(likely + target_entropy)
        learnt = {"entropy": -state.entropy * batch.mean(excess)} if self.entropy_weight is None else {}
        errors = ensemble_error(q, target, self.critic_loss) + self.alpha * jnp.sum(gap, axis=0)
        losses = {
            **learnt,
            "actor": batch.mean(weight * likely - own_q),
            "critic": batch.mean(errors),
        }
        actor = {"entropy": -batch.average(likely), "entropy_weight": jnp.asarray(weight, jnp.float32)}
        critic = {"conservative_gap": batch.average(jnp.mean(gap, axis=0))}
        return losses, {"actor": actor, "critic": critic | critic_metrics(batch, q, target)}
