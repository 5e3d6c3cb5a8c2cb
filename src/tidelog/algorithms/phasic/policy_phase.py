"""The policy phase of PPG: inputs from a rollout, and losses.

The table in `ppg.py` lists the inputs of each loss. Letters: `B` segments of a minibatch, `T` steps, `C` segments of a
store.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.running_statistics import merged
from tidelog.algorithms.core.sampling import Batch
from tidelog.algorithms.core.segments import Columns
from tidelog.algorithms.phasic.auxiliary_phase import (
    explained,
    past_of,
    scale_rewards,
    seen_by,
    standardised,
    value_unit,
)
from tidelog.losses.policy import ratio_divergence, surrogate
from tidelog.losses.returns import advantages, value_error

# Before the policy phase: scaled rewards, advantages, value targets.


def estimate(config: Any, state: Any, columns: Columns) -> tuple[Any, Columns]:
    """Return advantages, value targets and values [C, T] of a new rollout, by the value network.

    With value normalisation these targets change the value unit; `value` is then in the new unit, as the losses use it.
    """
    state, reward = scale_rewards(config, state, columns)
    unit = value_unit(state)
    state, value, following, begins = valued(config, state, columns)
    value, following = unit * value, unit * following
    flags = columns["terminated"], columns["truncated"], columns["valid"]
    advantage = advantages(reward, value, following, *flags, config.discount, config.gae_lambda)
    target = value + advantage
    if state.values is not None:
        state = state._replace(values=merged(state.values, target, columns["valid"].astype(jnp.float32)))
        value = value * (value_unit(state) / unit)
    if config.advantage_normalisation:
        advantage = standardised(advantage, columns["valid"])
    return state, {"advantage": advantage, "target": target, "value": value, **begins}


def valued(config: Any, state: Any, columns: Columns) -> tuple[Any, jax.Array, jax.Array, Columns]:
    """Return the network's values [C, T] of all steps and of their next observations, in its own units.

    A recurrent value network also updates its recurrent state in `state`, and the column `value_carry` [C, P, H] holds
    it at the start of each of `P` pieces.
    """
    seen, later = columns["observation"], columns["following"]
    if "first" not in columns:
        value, following = (seen_by(state.network.worth, leaf) for leaf in (seen, later))
        return state, value, following, {}
    (past,) = past_of(columns)
    value, following, carries = seen_by(state.network.worth_along, seen, later, past._replace(value=state.carry))
    if state.carry is None:
        return state, value, following, {}
    each = carries.shape[1] // config.pieces
    into = jnp.concatenate([state.carry[:, None], carries[:, each - 1 : -1 : each]], axis=1)
    return state._replace(carry=carries[:, -1]), value, following, {"value_carry": into}


# Losses of the policy phase: each returns the mean over the minibatch and its metrics.


def policy_loss(
    network: Any, config: Any, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the clipped surrogate with entropy bonus, plus the weighted ratio divergence where it has a weight."""
    data = batch.data
    return _policy_loss(network.policy(data["observation"], data.get("mask"), *past_of(data)), config, batch)


def value_loss(
    network: Any, config: Any, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the weighted squared error of the value, in units of the value network."""
    data = batch.data
    return _value_loss(network(data["observation"], data.get("mask"), *past_of(data))[1], config, batch, unit)


def joint_loss(
    network: Any, config: Any, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the sum of the policy loss and the value loss."""
    policy, value = network(batch.data["observation"], batch.data.get("mask"), *past_of(batch.data))
    (p_loss, policy_metrics), (v_loss, value_metrics) = (
        _policy_loss(policy, config, batch),
        _value_loss(value, config, batch, unit),
    )
    return p_loss + v_loss, policy_metrics | value_metrics


def _policy_loss(policy: Any, config: Any, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
    log_ratio = policy.log_probability(batch.data["action"]) - batch.data["log_probability"]
    gain, entropy = batch.mean(surrogate(log_ratio, batch.data["advantage"], config.clip)), batch.mean(policy.entropy())
    divergence = batch.mean(ratio_divergence(log_ratio))
    loss = gain - config.entropy_bonus * entropy
    beyond = 0.0 if config.clip is None else jnp.abs(jnp.exp(log_ratio) - 1.0) > config.clip
    return loss if config.divergence_weight is None else loss + config.divergence_weight * divergence, {
        "policy_loss": gain,
        "entropy": entropy,
        "approx_kl": divergence,
        "clip_fraction": batch.average(jnp.broadcast_to(beyond, log_ratio.shape)),
        "advantage_max": jnp.max(jnp.abs(batch.data["advantage"])),
    }


def _value_loss(
    value: jax.Array, config: Any, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    target, old = batch.data["target"] / unit, batch.data["value"] / unit
    error = batch.mean(value_error(value, target, old, config.value_clip))
    metrics = {"value_loss": 0.5 * error, "explained_variance": explained(target, old, batch)}
    return config.value_weight * error, metrics
