"""TD3+BC as an algorithm of your own (Fujimoto & Gu 2021, arXiv:2106.06860): `docs/write-your-own.md` explains it.

`tidelog --plugin examples.td3_bc train td3-bc --data LOG --columns MAPPING --scale standard`

Critics learn the smaller of two target critics at the target actor's action with clipped noise (TD3, arXiv:1802.09477).
The actor maximises the first critic, divided by its mean size, and stays close to the logged actions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import tidelog as tl
from tidelog.losses.td import ensemble_error
from tidelog.networks import recipe
from tidelog.networks.actors import Actor, deterministic
from tidelog.networks.critics import Critic, Ensemble
from tidelog.networks.layers import host_generator


class State(NamedTuple):
    """The networks; optimiser states, the update number and the key are added."""

    actor: Actor
    critic: Ensemble
    target_actor: Actor
    target_critic: Ensemble


@tl.algorithm("td3-bc")
class TD3BC:
    """TD3 with a behaviour-cloning term (arXiv:2106.06860); the defaults are the paper's."""

    alpha: float = tl.field(2.5, least=0.0, help="weight of Q against imitation; 0 clones the log")
    noise: float = tl.field(0.2, least=0.0, help="standard deviation of the noise on target actions")
    noise_limit: float = tl.field(0.5, least=0.0, help="largest size of that noise")
    policy_delay: int = tl.field(2, least=1, help="updates of the critics for one of the actor and the targets")
    discount: float = tl.field(0.99, least=0.0, most=1.0)
    tau: float = tl.field(0.005, least=0.0, most=1.0, help="share of the gap that targets move")
    learning_rate: float = tl.field(3e-4, least=0.0)
    batch_size: int = tl.field(256, least=1)
    hidden: tuple[int, ...] = (256, 256)

    takes = (tl.types.Continuous,)
    delayed = ("actor", "targets")

    def init(self, spec: Any, key: jax.Array) -> State:
        """Return new networks; the targets start as copies."""
        generator = host_generator(key)
        actor = Actor.create(generator, spec, hidden=self.hidden, head=deterministic)
        critic = Ensemble.create(2, lambda: Critic.create(generator, spec, hidden=self.hidden))
        return State(actor, critic, actor, critic)

    def loss(self, state: Any, batch: Any, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Return the losses of critics and actor, and metrics; `Q` is [2, B], rewards are [B]."""
        row = batch.data
        target_action = state.target_actor(row.next_observation).mode()  # [B, A] in [-1, 1]
        noise = jnp.clip(self.noise * jax.random.normal(key, target_action.shape), -self.noise_limit, self.noise_limit)
        next_q = state.target_critic(row.next_observation, jnp.clip(target_action + noise, -1.0, 1.0))
        target = row.reward + row.discount * jnp.min(next_q, axis=0)
        q = state.critic(row.observation, row.action)

        action = state.actor(row.observation).mode()
        policy_q = state.critic.members[0](row.observation, action)
        weight = self.alpha / jnp.maximum(jnp.mean(jnp.abs(jax.lax.stop_gradient(policy_q))), 1e-6)
        imitation = jnp.mean(jnp.square(action - row.action), axis=-1)
        losses = {
            "critic": batch.mean(ensemble_error(q, target)),
            "actor": batch.mean(imitation - weight * policy_q),
        }
        return losses, {"q_mean": batch.average(q[0]), "imitation_error": batch.average(imitation)}

    def act(self, params: Any, observation: Any) -> jax.Array:
        """Return the actor's actions [B, A]."""
        return params.actor(observation).mode()

    def recipe(self, params: Any) -> dict[str, Any]:
        """Return the actor as plain nodes, so that the policy runs without JAX and exports to ONNX."""
        return recipe.whole(recipe.likely(params.actor))
