"""The policy phase of off-policy PPG: inputs from replayed segments, and losses.

The table in `off_policy_ppg.py` lists the inputs of each loss. Letters: `B` segments of a minibatch, `T` steps, `C`
segments of a store.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.sampling import Batch
from tidelog.algorithms.core.segments import Columns
from tidelog.algorithms.phasic.auxiliary_phase import explained, scale_rewards, scaled, standardised, value_unit
from tidelog.losses.policy import decoupled_surrogate, ratio_divergence, truncated_weight
from tidelog.losses.returns import value_error
from tidelog.losses.vtrace import vtrace

# Before every update: value targets and advantages by the current networks.


def count_rewards(config: Any, state: Any, columns: Columns) -> tuple[Any, Columns]:
    """Add a new rollout to the reward statistics."""
    return scale_rewards(config, state, columns)[0], {}


def traced(config: Any, state: Any, batch: Batch) -> Batch:
    """Return the batch with `target`, `advantage`, `value`, and `log_behaviour`, pi over mu; all [B, T]."""
    data, unit = batch.data, value_unit(state)
    value, following = (unit * state.network.worth(data[name]) for name in ("observation", "following"))
    policy = state.network.policy(data["observation"], data.get("mask"))
    log_behaviour = policy.log_probability(data["action"]) - data["log_probability"]
    flags = data["terminated"], data["truncated"], data["valid"]
    settings = config.discount, config.gae_lambda, config.rho_bar, config.c_bar
    target, advantage = vtrace(
        log_behaviour, scaled(config, state, data["reward"]), value, following, *flags, *settings
    )
    columns = {"target": target, "advantage": advantage, "value": value, "log_behaviour": log_behaviour}
    return batch._replace(data=data | columns)


def judged(config: Any, state: Any, batch: Batch) -> Batch:
    """Return the policy's batch with its loss inputs: `log_proximal`, prox over mu, and normalised advantages."""
    batch = traced(config, state, batch)
    data = batch.data
    proximal = state.proximal.network.policy(data["observation"], data.get("mask")).log_probability(data["action"])
    if config.advantage_normalisation:
        data = data | {"advantage": standardised(data["advantage"], data["valid"])}
    return batch._replace(data=data | {"log_proximal": proximal - data["log_probability"]})


# Losses: each returns the mean over the minibatch and its metrics.


def policy_loss(network: Any, config: Any, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the decoupled surrogate with entropy bonus."""
    data = batch.data
    policy = network.policy(data["observation"], data.get("mask"))
    log_weight, advantage = data["log_proximal"], data["advantage"]
    log_ratio = policy.log_probability(data["action"]) - data["log_probability"] - log_weight
    gain = batch.mean(decoupled_surrogate(log_ratio, log_weight, advantage, config.clip, config.most_weight))
    entropy = batch.mean(policy.entropy())
    beyond = 0.0 if config.clip is None else jnp.abs(jnp.exp(log_ratio) - 1.0) > config.clip
    return gain - config.entropy_bonus * entropy, {
        "policy_loss": gain,
        "entropy": entropy,
        "approx_kl": batch.average(ratio_divergence(log_ratio)),
        "clip_fraction": batch.average(jnp.broadcast_to(beyond, log_ratio.shape)),
        "advantage_max": jnp.max(jnp.abs(advantage)),
        **weight_metrics(config, batch, log_ratio, log_weight),
    }


def weight_metrics(config: Any, batch: Batch, log_ratio: jax.Array, log_weight: jax.Array) -> dict[str, jax.Array]:
    """Return the ratio to the behaviour policy and the age of the segments."""
    used = jnp.exp(truncated_weight(log_ratio, log_weight, config.most_weight) + log_ratio)
    cut = (log_weight + jnp.maximum(log_ratio, 0.0)) > jnp.log(config.most_weight)
    mean = batch.average(used)
    return {
        "effective_share": jnp.square(mean) / jnp.maximum(batch.average(jnp.square(used)), 1e-12),
        "ratio_mean": mean,
        "truncated_share": batch.average(cut),
        "staleness": jnp.mean(batch.data["age"].astype(jnp.float32)),
    }


def value_loss(
    network: Any, config: Any, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the weighted squared error of the value, in units of the value network."""
    data = batch.data
    value = network(data["observation"], data.get("mask"))[1]
    target, old = data["target"] / unit, data["value"] / unit
    error = batch.mean(value_error(value, target, old, None))
    metrics = {"value_loss": 0.5 * error, "explained_variance": explained(target, old, batch)}
    return config.value_weight * error, metrics | {"value_staleness": jnp.mean(data["age"].astype(jnp.float32))}
