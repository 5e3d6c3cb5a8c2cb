"""Common parts of the phasic algorithms: reward scaling, passes over a whole store, and the auxiliary phase.

Their states have `network`, `rewards` and `values`; their stores the columns `observation`, `mask`, `valid`, `target`,
for recurrent networks `first`, `carry` and `value_carry` (a recurrent value network); in the auxiliary phase `old`.

Letters: `B` segments of a minibatch, `T` steps, `C` segments of a store, `W` copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.choosing_actions import in_blocks
from tidelog.algorithms.core.running_statistics import Running, deviation, merged
from tidelog.algorithms.core.sampling import Batch
from tidelog.algorithms.core.segments import Columns
from tidelog.losses.returns import discounted
from tidelog.networks.phasic import Past
from tidelog.types import Observation

BLOCK = 16_384  # steps per network call in a pass over a whole store


class Rewards(NamedTuple):
    """Statistics of discounted returns, and the current return of every copy [W]."""

    returns: Running
    sums: jax.Array


# Preparation of a rollout.


def scale_rewards(config: Any, state: Any, columns: Columns) -> tuple[Any, jax.Array]:
    """Divide rewards [C, T] by the running standard deviation of the discounted return, and clip them."""
    if state.rewards is None:
        return state, columns["reward"]
    ended = columns["terminated"] | columns["truncated"]
    valid = columns["valid"]
    returns, sums = discounted(state.rewards.sums, columns["reward"], ended, valid, config.reward_discount)
    running = merged(state.rewards.returns, returns, valid.astype(jnp.float32))
    state = state._replace(rewards=Rewards(running, sums))
    return state, scaled(config, state, columns["reward"])


def scaled(config: Any, state: Any, reward: jax.Array) -> jax.Array:
    """Return rewards of any shape in units of their running standard deviation, clipped."""
    if state.rewards is None:
        return reward
    return jnp.clip(reward / deviation(state.rewards.returns), -config.reward_clip, config.reward_clip)


def standardised(values: jax.Array, valid: jax.Array) -> jax.Array:
    """Return values [C, T] with mean 0 and standard deviation 1 over the valid steps."""
    mean = jnp.mean(values, where=valid)
    std = jnp.sqrt(jnp.mean(jnp.square(values - mean), where=valid))
    return (values - mean) / (std + 1e-8)


def value_unit(state: Any) -> jax.Array | float:
    """Return the scale of the value network's output."""
    return 1.0 if state.values is None else deviation(state.values)


def seen_by(network: Callable[..., Any], *inputs: Any) -> Any:
    """Apply a network to all steps of a store, leaves [C, T, ...], in blocks of bounded size."""
    steps = jax.tree.leaves(inputs)[0].shape[1]
    return in_blocks(lambda rows: network(*rows), inputs, max(1, BLOCK // steps))


def past_of(columns: Columns) -> tuple[Past, ...]:
    """Return the start of segments for recurrent networks; nothing for feed-forward networks."""
    if "first" not in columns:
        return ()
    value = columns.get("value_carry")
    return (Past(columns["first"], columns["carry"][:, 0], None if value is None else value[:, 0]),)


def explained(target: jax.Array, value: jax.Array, batch: Batch) -> jax.Array:
    """Return the share of the targets' variance that values [B, T] explain; 0 where targets do not vary."""

    def variance(values: jax.Array) -> jax.Array:
        return batch.average(jnp.square(values - batch.average(values)))

    total = variance(target)
    return jnp.where(total > 1e-8, 1.0 - variance(target - value) / jnp.maximum(total, 1e-8), 0.0)


# Before and after the auxiliary phase: the old policy, and the divergence from it.


def freeze(config: Any, state: Any, columns: Columns) -> tuple[Any, Columns]:
    """Add the policy's distributions over the whole store."""
    return state, {"old": seen_by(state.network.policy, columns["observation"], columns.get("mask"), *past_of(columns))}


def drift(config: Any, state: Any, columns: Columns) -> dict[str, jax.Array]:
    """Return the divergence [C, T] from the old policy over the whole store, after the phase."""

    def one(observation: Observation, mask: jax.Array | None, old: Any, *past: Past) -> jax.Array:
        divergence: jax.Array = old.divergence(state.network.policy(observation, mask, *past))
        return divergence

    divergences = seen_by(one, columns["observation"], columns.get("mask"), columns["old"], *past_of(columns))
    return {"clone_kl_after": divergences}


def auxiliary_loss(
    network: Any, config: Any, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return both value errors plus the weighted divergence from the old policy."""
    data = batch.data
    target = data["target"] / unit
    policy, value, auxiliary = network.both_values(data["observation"], data.get("mask"), *past_of(data))
    clone = batch.mean(data["old"].divergence(policy))
    error = 0.5 * batch.mean(jnp.square(value - target))
    extra = error if auxiliary is None else 0.5 * batch.mean(jnp.square(auxiliary - target))
    loss = extra + config.beta_clone * clone + (0.0 if auxiliary is None else error)
    return loss, {"aux_value_loss": extra, "value_loss": error, "clone_kl": clone}
