"""The mistake of published recommender ports, kept out of the library: what the rewards of logged items teach wrongly.

There the critic is trained on the item that the policy proposes, with the reward and the next state that the *logged*
item led to. All else is recommender BCQ's own.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import tidelog as tl
from tidelog.algorithms.contract import Feedback, Phase
from tidelog.algorithms.hyperparameters import hyperparameters
from tidelog.algorithms.optimisation import gradient_step
from tidelog.algorithms.sampling import Batch
from tidelog.recommend import recommender_bcq
from tidelog.recommend.recommender_bcq import critic_inputs


def step(h: Any, state: Any, batch: Batch) -> tuple[Any, Feedback]:
    """One update of critics and targets; the items that are rated are those that the target critic likes best."""
    key = jax.random.fold_in(state.key, state.step)
    seen = critic_inputs(h, state, batch.data)
    value, chosen = recommender_bcq.values(h, state, seen, key)
    target = recommender_bcq.target_value(batch.data, value)
    proposed = seen._replace(vectors=seen.items.vectors[chosen[:, :-1]])
    memory, rate = state.opt_states.critic, h.critic_learning_rate
    critic, memory, loss, _ = gradient_step(
        recommender_bcq.critic_loss, state.critic, memory, rate, h, batch, proposed, target, None
    )
    state = state._replace(critic=critic, opt_states=state.opt_states._replace(critic=memory))
    return recommender_bcq.update_targets(h, state, jnp.float32(h.tau)), Feedback({"critic_loss": loss})


@hyperparameters
class Mistaken(tl.RecommenderBCQ):  # type: ignore[misc]
    """Recommender BCQ with that mistake; table and reader rest in the main phase."""

    def phases(self) -> tuple[Phase, ...]:
        """The same phases, the main one with the mistake."""
        first, main = super().phases()
        return (first, replace(main, step=step))
