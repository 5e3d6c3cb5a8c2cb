"""The item critics: values of states over supported items, and errors on logged items.

Letters: `B` batch, `T` targets, `E` ensemble.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.running_statistics import deviation
from tidelog.algorithms.core.sampling import Batch
from tidelog.losses.td import between, ensemble_error
from tidelog.recommend.candidate_generation import ItemGeneration, taken_before
from tidelog.recommend.critic_inputs import CriticInputs, Negatives
from tidelog.recommend.networks.catalogue import ItemCritics
from tidelog.recommend.windows import Visit
from tidelog.types import same_shape


def values(config: Any, state: Any, batch: Batch, seen: CriticInputs, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the value of the best supported item around every step [B, T + 1], and this item."""
    flat, later = (around.reshape(-1, around.shape[-1]) for around in (seen.around, seen.target_around))
    barred = None
    if config.exclude_seen:
        barred = taken_before(batch.data.items, seen.around.shape[1]).reshape(len(flat), -1)
    imagination = state.imagination and ItemGeneration(state.imagination.generator, state.target_perturbation)
    proposed = config.generator(config, imagination, flat, seen.items, barred, key)
    worth = between(state.target_critic.among(later, seen.items.vectors, proposed.items), config.mix)
    best = jnp.argmax(jnp.where(proposed.kept, worth, -jnp.inf), axis=-1)[:, None]
    some = jnp.any(proposed.kept, axis=-1)
    value = jnp.where(some, jnp.take_along_axis(worth, best, axis=-1)[:, 0], 0.0)  # no supported item: 0, as at the end
    chosen = jnp.where(some, jnp.take_along_axis(proposed.items, best, axis=-1)[:, 0], 0)
    return value.reshape(seen.around.shape[:2]), chosen.reshape(seen.around.shape[:2])


def target_value(config: Any, state: Any, visit: Visit, value: jax.Array) -> jax.Array:
    """`r + discount V(s')` [B, T]; r over its deviation with `normalise_rewards`."""
    reward = visit.reward if state.rewards is None else visit.reward / deviation(state.rewards)
    same_shape(reward=reward, discount=visit.discount, value=value[:, 1:])
    return reward + visit.discount * value[:, 1:]


def critic_loss(
    critic: ItemCritics, config: Any, batch: Batch, seen: CriticInputs, target: jax.Array, negatives: Negatives | None
) -> tuple[jax.Array, jax.Array]:
    """Return the critics' error on logged items against the target [B, T] and on negatives; also Q [E, B, T]."""
    q = critic(seen.states, seen.vectors)
    error = ensemble_error(q, target, config.critic_loss)
    if negatives is not None:
        off = ensemble_error(critic(seen.states, negatives.vectors), negatives.target, config.critic_loss)
        error = error + negatives.weight * off
    return batch.mean(error), q
