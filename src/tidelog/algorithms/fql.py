"""Flow Q-learning (FQL): a one-step policy imitates a flow of the logged actions and maximises Q; continuous actions.

Park, Li, Levine 2025, arXiv:2502.02538; reference implementation: seohongpark/fql.

One update, in this order (`new` marks networks that this update has already changed):

| step | loss (per sample) | reads |
|---|---|---|
| critics | `sum_e (Q_e(s, a) - r - discount aggregate_e Qtarget_e(s', mu(s', z)))**2` | old policy and target critics |
| flow | `mean (v(s, x_t, t) - (a - x_0))**2`, `x_t = (1 - t) x_0 + t a`, t uniform, x_0 normal | |
| policy | `alpha mean (mu(s, z) - flow(s, z))**2 - mean_e Q_e(s, mu(s, z))` | **new** flow, **new** critics |
| targets | Polyak update of the critics by `tau` | **new** critics |

`flow(s, z)` moves z along v by `flow_steps` Euler steps from time 0 to 1; both it and the actions that critics read are
clipped to [-1, 1]. z is normal. With `normalise_q` Q is divided by its mean size, so that the unit of rewards has no
effect. Acting is `mu(s, z)`: z is drawn with a key, and 0 without one. The policy has no density.

Limits: with very large alpha the policy is the flow's distillation: a clone with several modes.

Deliberate differences from the reference: the losses are stepped in turn; layer norm, of the critics alone, comes
before the activation; the critics' loss is a sum over the ensemble.

Letters: `B` batch, `E` ensemble, `A` action size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.hyperparameters import MAIN, chosen_preset, field, own
from tidelog.algorithms.optimisation import Schedule, Transformation, constant
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import NetworkMaker, algorithm
from tidelog.algorithms.td3_bc import critic_metrics, inverse_size
from tidelog.data.statistics import RewardScaling
from tidelog.losses.imitation import squared_distance
from tidelog.losses.td import PointLoss, ensemble_error, squared
from tidelog.networks import recipe
from tidelog.networks.critics import Critic, Ensemble, Flow
from tidelog.networks.encoder import now
from tidelog.networks.layers import Activation, normal, zeros
from tidelog.networks.pictures import Layers, by_size
from tidelog.types import Act, Continuous, Observation, Spec, Transition

Aggregate = Callable[[jax.Array], jax.Array]


def mean_value(values: jax.Array) -> jax.Array:
    """Return the mean over the ensemble: [E, B] -> [B]."""
    return jnp.mean(values, axis=0)


def smallest_value(values: jax.Array) -> jax.Array:
    """Return the smallest of the ensemble: [E, B] -> [B]."""
    return jnp.min(values, axis=0)


AGGREGATES: Mapping[str, Aggregate] = {"mean": mean_value, "min": smallest_value}


class FQLState(NamedTuple):
    """The networks; optimiser states, the numbers of updates and the key are added."""

    critic: Ensemble
    target_critic: Ensemble
    flow: Flow  # v: the velocity from noise to the logged actions
    policy: Flow  # mu: the one-step policy
    origin: jax.Array  # [A]: the noise of acting without a key, 0


class FQLParams(NamedTuple):
    """The arrays that acting and Q-values read."""

    policy: Flow
    critic: Ensemble
    origin: jax.Array


def integrated(flow: Any, row: Transition, noise: jax.Array, steps: int) -> jax.Array:
    """Return the action [B, A] to which a flow moves the noise [B, A] in Euler steps from time 0 to 1."""
    seen, point = now(flow, row), noise
    for step in range(steps):
        point = point + flow(seen, point, jnp.full((*noise.shape[:-1], 1), step / steps)) / steps
    return jnp.clip(point, -1.0, 1.0)


PRESETS: dict[str, dict[str, Any]] = {
    # Park et al. 2025, the commands of the reference implementation for tasks of OGBench from states.
    "antmaze-large": {"q_aggregate": "min", "reward_scaling": "none"},
    "antmaze-giant": {"q_aggregate": "min", "discount": 0.995, "reward_scaling": "none"},
    "humanoidmaze": {"alpha": 30.0, "discount": 0.995, "reward_scaling": "none"},
    "antsoccer": {"alpha": 10.0, "discount": 0.995, "reward_scaling": "none"},
    "cube": {"alpha": 300.0, "reward_scaling": "none"},
    "scene": {"alpha": 300.0, "reward_scaling": "none"},
    "puzzle": {"alpha": 1000.0, "reward_scaling": "none"},
}


@algorithm("fql")
class FQL:
    """Flow Q-learning: a one-step policy near a flow of the logged actions, of high Q (arXiv:2502.02538).

    Example:
        >>> log = tl.collect("point-mass", episodes=50, seed=0)
        >>> run = tl.fit(tl.FQL(alpha=10.0, hidden=(16,)), log, steps=20)
        >>> run.policy().mode(log.observation).shape[1] == log.spec.action.size
        True
    """

    alpha: float = field(10.0, least=0.0, help="weight of the distance to the flow; large values clone", group=MAIN)
    normalise_q: bool = field(False, help="divide Q by its mean size in the policy's loss", group=MAIN)
    flow_steps: int = field(10, least=1, help="Euler steps of the flow")
    q_aggregate: Aggregate = field(mean_value, choices=AGGREGATES, help="target critics' value", group="value")
    discount: float = fields.discount(0.99)
    tau: float = fields.tau(0.005, "target critics move per update")
    num_critics: int = fields.num_critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(256)
    learning_rate: float = fields.learning_rate(3e-4)
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    matmul_precision: str = fields.matmul_precision()
    hidden: tuple[int, ...] = fields.widths((512, 512, 512, 512), "hidden layers")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_shift: int = fields.picture_shift(0)
    layer_norm: bool = field(True, help="layer normalisation in the critics' hidden layers", group="network")
    activation: Activation = fields.activation("gelu")
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float | None = fields.priority_correction(0.4)
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    flow_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns a module of (s, x, t)")
    policy_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns a module of (s, z)")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns one critic module")

    takes: ClassVar[tuple[type, ...]] = (Continuous,)
    suits: ClassVar[str] = "logged actions with several modes, and a fast policy; `alpha` needs a choice for each task"
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    @classmethod
    def preset(cls, name: str) -> FQL:
        """Return the authors' settings for a family of OGBench tasks, such as cube or antmaze-large."""
        return cls(**chosen_preset("FQL", PRESETS, name))

    def init(self, spec: Spec, key: jax.Array) -> FQLState:
        """Return new networks; the target critics start as copies of the critics."""
        make = NetworkMaker(self, spec, key)
        critic = Ensemble.create(self.num_critics, lambda: make(Critic, self.critic_network))
        flow = make(Flow, self.flow_network, timed=True, layer_norm=False)
        policy = make(Flow, self.policy_network, timed=False, layer_norm=False)
        return FQLState(critic, critic, flow, policy, zeros(spec.action.size))  # type: ignore[union-attr]

    def loss(self, state: Any, batch: Batch, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        """Return the losses in the order of the update, and the metrics of each."""
        row: Transition = batch.data
        shape, size = row.action.shape, row.action.shape[-1]
        keys = jax.random.split(key, 4)
        next_action = jnp.clip(state.policy(row.next_observation, normal(keys[0], shape)), -1.0, 1.0)
        next_q = self.q_aggregate(state.target_critic(row.next_observation, next_action))
        target = row.reward + row.discount * next_q  # [B]
        q = state.critic(row.observation, row.action)  # [E, B]

        start, time = normal(keys[1], shape), jax.random.uniform(keys[2], (*shape[:-1], 1))
        velocity = state.flow(row.observation, (1.0 - time) * start + time * row.action, time)
        flow_error = squared_distance(velocity, row.action - start) / size

        noise = normal(keys[3], shape)
        moved = state.policy(row.observation, noise)  # [B, A]
        distance = squared_distance(moved, integrated(state.flow, row, noise, self.flow_steps)) / size
        action = jnp.clip(moved, -1.0, 1.0)
        policy_q = jnp.mean(state.critic(row.observation, action), axis=0)  # [B]
        weight = inverse_size(batch, policy_q) if self.normalise_q else 1.0
        losses = {
            "critic": batch.mean(ensemble_error(q, target, self.critic_loss)),
            "flow": batch.mean(flow_error),
            "policy": batch.mean(self.alpha * distance - weight * policy_q),
        }
        imitation = squared_distance(action, row.action) / size
        means = {"distance_to_flow": distance, "imitation_error": imitation, "policy_q": policy_q}
        policy = {name: batch.average(values) for name, values in means.items()}
        return losses, {"critic": critic_metrics(batch, q, target), "policy": policy}

    def policy_params(self, state: Any) -> FQLParams:
        """Return the one-step policy, the critics and the noise of acting without a key."""
        return FQLParams(state.policy, state.critic, state.origin)

    def act(self, params: FQLParams, observation: Observation, key: jax.Array | None = None) -> Act:
        """Return the actions of the one-step policy: of random noise with a key, of 0 without one."""
        shape = (len(next(iter(observation.values()))), len(params.origin))
        noise = jnp.broadcast_to(params.origin, shape) if key is None else normal(key, shape)
        return Act(jnp.clip(params.policy(observation, noise), -1.0, 1.0))

    def recipe(self, params: FQLParams) -> dict[str, Any]:
        """Return the one-step policy as plain nodes."""
        return recipe.whole({"kind": "one_step", "network": recipe.network(params.policy), "origin": params.origin})
