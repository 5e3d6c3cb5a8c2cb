"""CRR as an algorithm of your own (Wang et al. 2020, arXiv:2006.15134): `docs/write-your-own.md` explains it.

`tidelog --plugin examples.crr train crr --data LOG --columns MAPPING --scale standard`

Critics learn the value of the target actor's samples. The actor imitates the logged actions with weights that grow with
their advantage over the mean value of its own samples (CRR exp; the paper's critics are distributional, these are not).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import tidelog as tl
from tidelog.losses.policy import advantage_weight
from tidelog.losses.td import ensemble_error
from tidelog.networks import recipe
from tidelog.networks.actors import Actor, Gaussian, state_gaussian
from tidelog.networks.critics import Critic, Ensemble
from tidelog.networks.layers import host_generator


class State(NamedTuple):
    """The networks; optimiser states, the update number and the key are added."""

    actor: Actor
    critic: Ensemble
    target_actor: Actor
    target_critic: Ensemble


@tl.algorithm("crr")
class CRR:
    """Critic-regularised regression with exponential weights (arXiv:2006.15134)."""

    beta: float = tl.field(1.0, least=0.0, open_ends=True, help="divides the advantage; large values clone the log")
    max_weight: float = tl.field(20.0, least=0.0, help="cap on exp(advantage / beta)")
    samples: int = tl.field(4, least=1, help="actions of the policy whose mean value is the baseline")
    policy_delay: int = tl.field(1, least=1, help="updates of the critics for one of the targets")
    discount: float = tl.field(0.99, least=0.0, most=1.0)
    tau: float = tl.field(0.005, least=0.0, most=1.0, help="share of the gap that targets move")
    learning_rate: float = tl.field(3e-4, least=0.0)
    batch_size: int = tl.field(256, least=1)
    hidden: tuple[int, ...] = (256, 256)

    takes = (tl.types.Continuous,)
    delayed = ("targets",)

    def init(self, spec: Any, key: jax.Array) -> State:
        """Return new networks; the targets start as copies."""
        generator = host_generator(key)
        actor = Actor.create(generator, spec, hidden=self.hidden, head=state_gaussian)
        critic = Ensemble.create(2, lambda: Critic.create(generator, spec, hidden=self.hidden))
        return State(actor, critic, actor, critic)

    def loss(self, state: Any, batch: Any, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Return the losses of critics and actor, and metrics; `Q` is [2, B], rewards are [B]."""
        row = batch.data
        next_key, *keys = jax.random.split(key, self.samples + 1)
        next_action = jnp.clip(state.target_actor(row.next_observation).sample(next_key), -1.0, 1.0)  # [B, A]
        next_q = jnp.min(state.target_critic(row.next_observation, next_action), axis=0)
        target = row.reward + row.discount * next_q
        q = state.critic(row.observation, row.action)

        policy = state.actor(row.observation)
        own_q = [state.critic(row.observation, jnp.clip(policy.sample(one), -1.0, 1.0)) for one in keys]
        advantage = jnp.min(q, axis=0) - jnp.mean(jnp.min(jnp.stack(own_q), axis=1), axis=0)
        weight = advantage_weight(advantage, 1.0 / self.beta, self.max_weight)  # without gradient
        losses = {
            "critic": batch.mean(ensemble_error(q, target)),
            "actor": batch.mean(weight * policy.imitation_error(row.action)),
        }
        return losses, {"q_mean": batch.average(q[0]), "weight_mean": batch.average(weight)}

    def distribution(self, params: Any, observation: Any) -> Gaussian:
        """Return the distribution of the actor's actions [B, A]."""
        return params.actor(observation)

    def recipe(self, params: Any) -> dict[str, Any]:
        """Return the actor as plain nodes, so that the policy runs without JAX and exports to ONNX."""
        return recipe.whole(recipe.likely(params.actor))
