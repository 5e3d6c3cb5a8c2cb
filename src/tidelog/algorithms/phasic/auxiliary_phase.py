"""What phasic algorithms share: rewards in units of their spread, looks at a whole store, and the auxiliary phase.

Their states have `network`, `rewards` and `values`; their stores the columns `observation`, `mask`, `valid`, `target`,
with a memory `first`, `carry` and where the value has its own `value_carry`, and while an auxiliary phase runs `old`.

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

BLOCK = 16_384  # steps that a network sees at once where a whole store is looked at


class Rewards(NamedTuple):
    """How far discounted returns spread, and the return so far in every copy [W]."""

    returns: Running
    sums: jax.Array


# What a rollout is turned into.


def scale_rewards(config: Any, state: Any, columns: Columns) -> tuple[Any, jax.Array]:
    """Rewards [C, T] divided by the running deviation of the discounted return, and cut."""
    if state.rewards is None:
        return state, columns["reward"]
    ended = columns["terminated"] | columns["truncated"]
    valid = columns["valid"]
    returns, sums = discounted(state.rewards.sums, columns["reward"], ended, valid, config.reward_discount)
    running = merged(state.rewards.returns, returns, valid.astype(jnp.float32))
    state = state._replace(rewards=Rewards(running, sums))
    return state, scaled(config, state, columns["reward"])


def scaled(config: Any, state: Any, reward: jax.Array) -> jax.Array:
    """Rewards of any shape in units of their spread so far."""
    if state.rewards is None:
        return reward
    return jnp.clip(reward / deviation(state.rewards.returns), -config.reward_clip, config.reward_clip)


def standardised(values: jax.Array, valid: jax.Array) -> jax.Array:
    """Values [C, T] with mean 0 and deviation 1 over the steps that count."""
    mean = jnp.mean(values, where=valid)
    spread = jnp.sqrt(jnp.mean(jnp.square(values - mean), where=valid))
    return (values - mean) / (spread + 1e-8)


def value_unit(state: Any) -> jax.Array | float:
    """What one unit of the value network's output is worth."""
    return 1.0 if state.values is None else deviation(state.values)


def seen_by(network: Callable[..., Any], *inputs: Any) -> Any:
    """What a network makes of all steps of a store, leaves [C, T, ...], a bounded number of them at once."""
    steps = jax.tree.leaves(inputs)[0].shape[1]
    return in_blocks(lambda rows: network(*rows), inputs, max(1, BLOCK // steps))


def past_of(columns: Columns) -> tuple[Past, ...]:
    """Where segments begin, to be told to networks with a memory; nothing where there is none."""
    if "first" not in columns:
        return ()
    value = columns.get("value_carry")
    return (Past(columns["first"], columns["carry"][:, 0], None if value is None else value[:, 0]),)


def explained(target: jax.Array, value: jax.Array, batch: Batch) -> jax.Array:
    """The share of the targets' variance that values [B, T] explain; 0 where targets do not vary."""

    def variance(values: jax.Array) -> jax.Array:
        return batch.average(jnp.square(values - batch.average(values)))

    spread = variance(target)
    return jnp.where(spread > 1e-8, 1.0 - variance(target - value) / jnp.maximum(spread, 1e-8), 0.0)


# Before and after the auxiliary phase: the policy that is to stay, and how far it went.


def freeze(config: Any, state: Any, columns: Columns) -> tuple[Any, Columns]:
    """The policy's distributions over the whole memory."""
    return state, {"old": seen_by(state.network.policy, columns["observation"], columns.get("mask"), *past_of(columns))}


def drift(config: Any, state: Any, columns: Columns) -> dict[str, jax.Array]:
    """The divergence [C, T] from the frozen policy over the whole memory, after the phase."""

    def one(observation: Observation, mask: jax.Array | None, old: Any, *past: Past) -> jax.Array:
        divergence: jax.Array = old.divergence(state.network.policy(observation, mask, *past))
        return divergence

    found = seen_by(one, columns["observation"], columns.get("mask"), columns["old"], *past_of(columns))
    return {"clone_kl_after": found}


def auxiliary_loss(
    network: Any, config: Any, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Both values' errors, and what holds the policy."""
    data = batch.data
    target = data["target"] / unit
    policy, value, auxiliary = network.both_values(data["observation"], data.get("mask"), *past_of(data))
    clone = batch.mean(data["old"].divergence(policy))
    error = 0.5 * batch.mean(jnp.square(value - target))
    extra = error if auxiliary is None else 0.5 * batch.mean(jnp.square(auxiliary - target))
    loss = extra + config.beta_clone * clone + (0.0 if auxiliary is None else error)
    return loss, {"aux_value_loss": extra, "value_loss": error, "clone_kl": clone}
