"""Discrete CQL as an algorithm of your own (Kumar et al. 2020, arXiv:2006.04779, equation 4, with the H regulariser).

`tidelog --plugin examples.cql train cql --data LOG --columns MAPPING`

The update is the default: one gradient step on the loss named `critic`, then the target moves.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import tidelog as tl
from tidelog.losses.td import huber
from tidelog.networks import recipe
from tidelog.networks.actors import EpsilonGreedy
from tidelog.networks.critics import Critic, ratings_after
from tidelog.networks.layers import host_generator
from tidelog.support import allow


class State(NamedTuple):
    """The networks; optimiser states, the update number and the key are added."""

    critic: Critic
    target_critic: Critic


@tl.algorithm("cql")
class CQL:
    """Conservative Q-learning for discrete actions, on double Q-learning."""

    alpha: float = tl.field(1.0, least=0.0, help="weight of the conservative term; 0 is double Q-learning")
    epsilon: float = tl.field(0.1, least=0.0, most=1.0, help="sampling: probability of a uniform action")
    discount: float = tl.field(0.99, least=0.0, most=1.0)
    tau: float = tl.field(0.005, least=0.0, most=1.0, help="share of the gap that the target moves")
    learning_rate: float = tl.field(3e-4, least=0.0)
    batch_size: int = tl.field(256, least=1)
    hidden: tuple[int, ...] = (256, 256)

    takes = (tl.types.Discrete,)

    def init(self, spec: Any, key: jax.Array) -> State:
        """Return a new critic; its target starts as a copy."""
        critic = Critic.create(host_generator(key), spec, hidden=self.hidden)
        return State(critic, critic)

    def loss(self, state: Any, batch: Any, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Return the critic's loss and metrics; values of all actions are [B, A], rewards are [B]."""
        row = batch.data
        next_values = jax.lax.stop_gradient(ratings_after(state.critic, row))
        best = jnp.argmax(allow(next_values, row.next_mask), axis=-1, keepdims=True)
        next_q = jnp.take_along_axis(ratings_after(state.target_critic, row), best, axis=-1)[:, 0]
        values = state.critic.all_actions(row.observation)
        q = jnp.take_along_axis(values, row.action[:, None], axis=-1)[:, 0]
        error = huber(q - row.reward - row.discount * next_q)
        gap = jax.nn.logsumexp(allow(values, row.mask), axis=-1) - q
        return {"critic": batch.mean(error + self.alpha * gap)}, {"conservative_gap": batch.average(gap)}

    def distribution(self, params: Any, observation: Any, mask: jax.Array | None = None) -> EpsilonGreedy:
        """Return the best allowed action, or a uniform one with probability `epsilon`."""
        values = params.critic.all_actions(observation)
        allowed = jnp.ones(values.shape, bool) if mask is None else mask
        return EpsilonGreedy(values, allowed, self.epsilon)

    def recipe(self, params: Any) -> dict[str, Any]:
        """Return the policy as plain nodes, so that it runs without JAX and exports to ONNX."""
        return recipe.whole(recipe.greedy([params.critic], self.epsilon), recipe.smallest([params.critic]))

    def q_values(self, params: Any, observation: Any) -> jax.Array:
        """Return the values [B, A]."""
        return params.critic.all_actions(observation)
