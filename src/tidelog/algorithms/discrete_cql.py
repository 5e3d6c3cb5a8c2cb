"""Discrete CQL: double Q-learning whose values are low at actions other than the logged ones.

Kumar, Zhou, Tucker, Levine 2020, arXiv:2006.04779, equation 4 with the H regulariser; double Q-learning: van Hasselt,
Guez, Silver 2016, arXiv:1509.06461.

One update:

| step | loss (per sample) | reads |
|---|---|---|
| Q | `huber(Q(s, a) - r - discount Qtarget(s', a*)) + alpha (log sum_b exp Q(s, b) - Q(s, a))` | old target critic |
| | `a* = argmax of Q(s', .)` | old critic |
| target | Polyak update by `tau` | **new** critic |

Maximum and sum are over the actions that the row's mask allows. The policy is greedy; samples are uniform at rate
`epsilon`.

Limits: alpha 0 is double Q-learning, as discrete BCQ with threshold 0 is. The conservative term alone is the cloning
loss of a softmax over Q: large alpha imitates the most frequent action.

Deliberate differences from the reference: its Q-learning on Atari is distributional (quantile regression), this one is
not, so its settings for Atari are no preset; masks are applied.

Letters: `B` batch, `A` number of actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.hyperparameters import MAIN, field, own
from tidelog.algorithms.optimisation import Schedule, Transformation, constant, frozen
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import NetworkMaker, algorithm
from tidelog.algorithms.td3_bc import critic_metrics
from tidelog.data.statistics import RewardScaling
from tidelog.losses.imitation import categorical_log_probability, pick
from tidelog.losses.td import PointLoss, ensemble_error, huber
from tidelog.networks import recipe
from tidelog.networks.actors import EpsilonGreedy
from tidelog.networks.critics import Critic, ratings_after
from tidelog.networks.layers import Activation
from tidelog.networks.pictures import Layers, by_size
from tidelog.support import allow
from tidelog.types import Discrete, Observation, Spec, Transition


class DiscreteCQLState(NamedTuple):
    """The networks; optimiser states, the numbers of updates and the key are added."""

    critic: Critic
    target_critic: Critic


@algorithm("discrete-cql")
class DiscreteCQL:
    """Conservative Q-learning for discrete actions, on double Q-learning (arXiv:2006.04779).

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> run = tl.fit(tl.DiscreteCQL(alpha=1.0, hidden=(16,)), log, steps=20)
        >>> set(run.policy().mode(log.features()).labels) <= set(log.spec.action.names)
        True
    """

    alpha: float = field(1.0, least=0.0, help="weight of the conservative term; 0 is double Q-learning", group=MAIN)
    discount: float = fields.discount(0.99)
    tau: float = fields.tau(0.005, "the target critic moves per update")
    critic_loss: PointLoss = fields.critic_loss(huber)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(256)
    learning_rate: float = fields.learning_rate(3e-4, group=MAIN)
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "the gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    matmul_precision: str = fields.matmul_precision()
    hidden: tuple[int, ...] = fields.widths((256, 256), "hidden layers")
    layer_norm: bool = fields.layer_norm(False)
    activation: Activation = fields.activation("relu")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_shift: int = fields.picture_shift(0)
    epsilon: float = fields.epsilon(0.0, help="sampling: probability of a random allowed action")
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float | None = fields.priority_correction(0.4)
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns a module with all_actions")

    takes: ClassVar[tuple[type, ...]] = (Discrete,)
    suits: ClassVar[str] = "values that are low at actions unlike the logged ones"

    def init(self, spec: Spec, key: jax.Array) -> DiscreteCQLState:
        """Return a new critic; its target starts as a copy."""
        critic = NetworkMaker(self, spec, key)(Critic, self.critic_network)
        return DiscreteCQLState(critic, critic)

    def loss(self, state: Any, batch: Batch, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        """Return the critic's loss, and metrics."""
        row: Transition = batch.data
        best = jnp.argmax(allow(ratings_after(frozen(state.critic), row), row.next_mask), axis=-1)  # [B]
        target = row.reward + row.discount * pick(ratings_after(state.target_critic, row), best)  # [B]
        values = state.critic.all_actions(row.observation)  # [B, A]
        q = pick(values, row.action)
        gap = -categorical_log_probability(allow(values, row.mask), row.action)  # log sum_b exp Q(s, b) - Q(s, a)
        error = ensemble_error(q[None], target, self.critic_loss)
        metrics = {"conservative_gap": batch.average(gap)} | critic_metrics(batch, q[None], target)
        return {"critic": batch.mean(error + self.alpha * gap)}, metrics

    def distribution(self, params: Any, observation: Observation, mask: jax.Array | None = None) -> EpsilonGreedy:
        """Return the best allowed action, or at rate epsilon a random allowed one."""
        values = params.critic.all_actions(observation)
        return EpsilonGreedy(values, jnp.ones(values.shape, bool) if mask is None else mask, self.epsilon)

    def recipe(self, params: Any) -> dict[str, Any]:
        """Return the policy and the values as plain nodes."""
        return recipe.whole(recipe.greedy([params.critic], self.epsilon), recipe.smallest([params.critic]))
