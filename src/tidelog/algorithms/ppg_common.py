"""What PPG and off-policy PPG share: running statistics, the initial network, the auxiliary phase, acting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.contract import Feedback, ScaledParams, one_reward
from tidelog.algorithms.optimisation import copied, gradient_step, norms
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.segments import Columns
from tidelog.errors import ConfigError
from tidelog.losses.td import discounted
from tidelog.networks import phasic, recipe
from tidelog.networks.actors import Distribution, in_blocks
from tidelog.networks.encoder import EncoderConfig
from tidelog.networks.layers import host_generator
from tidelog.networks.phasic import Phasic, SegmentStart
from tidelog.types import Act, Observation, Spec, Vector

# Running mean and variance during training: part of the state, so a resumed run continues them.
#
# Chan, Golub, LeVeque 1979: batches are merged exactly. The state holds the variance, not the sum of squares, to avoid
# drift when the count exceeds the precision of float32.


class Running(NamedTuple):
    """Statistics of all numbers so far, each counted by its weight."""

    seen: jax.Array  # sum of the weights
    mean: jax.Array
    variance: jax.Array


def empty_statistics() -> Running:
    """Return the statistics of no numbers."""
    return Running(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def add_values(running: Running, values: jax.Array, weight: jax.Array) -> Running:
    """Add values, each counted by its weight of the same shape."""
    count = jnp.sum(weight)
    mean = jnp.sum(weight * values) / jnp.maximum(count, 1e-12)
    variance = jnp.sum(weight * jnp.square(values - mean)) / jnp.maximum(count, 1e-12)
    share = count / jnp.maximum(running.seen + count, 1e-12)
    gap = mean - running.mean
    return Running(
        running.seen + count,
        running.mean + share * gap,
        running.variance + share * (variance - running.variance) + share * (1.0 - share) * jnp.square(gap),
    )


def add_rows(running: Running, rows: jax.Array, weight: jax.Array) -> Running:
    """Add rows [..., S] to the statistics of each column [S], each row counted by its weight [...]."""
    each: Callable[..., Running] = jax.vmap(add_values, (Running(None, 0, 0), -1, None), Running(None, 0, 0))  # type: ignore[arg-type]
    return each(running, rows, weight)


def deviation(running: Running) -> jax.Array:
    """Return the standard deviation, or 1 while all numbers are equal, as far as float32 tells them apart."""
    std = jnp.sqrt(running.variance)
    return jnp.where(std > 1e-6 * jnp.abs(running.mean), std, 1.0)


# What PPG and off-policy PPG share: the initial network, reward scaling, the auxiliary phase, acting.
#
# `config` are the hyper-parameters of either. Their states have `network`, `opt_states`, `rewards`, `values`, `step`
# and `updates`; their stores have the columns `observation`, `mask`, `valid`, `target`, for recurrent networks `first`,
# `carry` and `value_carry` (a recurrent value network), and in the auxiliary phase `old`.
#
# Letters: `B` segments of a minibatch, `T` steps, `C` segments of a store, `W` copies.

PASS_STEPS = 16_384  # steps per network call in a pass over a whole store


class Rewards(NamedTuple):
    """Statistics of discounted returns, and the current return of every copy [W]."""

    returns: Running
    sums: jax.Array


# Initial state.


def new_network(config: Any, spec: Spec, key: jax.Array) -> Any:
    """Return the user's network or one of the named architecture.

    SpecError where there are several rewards, ConfigError where the user's network is recurrent.
    """
    one_reward(type(config).__name__, spec)
    recurrent_size = config.recurrent_size
    encoder_config = EncoderConfig(config.embedding, config.picture_width, config.convolutions, recurrent_size)
    if config.network is None:
        network = phasic.create(
            config.architecture,
            host_generator(key),
            spec,
            hidden=config.hidden,
            activation=config.activation,
            layer_norm=config.layer_norm,
            encoder_config=encoder_config,
            policy_hidden=config.policy_hidden,
            value_hidden=config.value_hidden,
        )
    else:
        network = copied(config.network(spec, key))
    if recurrent_size is None and isinstance(network, Phasic) and network.initial_state(1) is not None:
        raise ConfigError(
            f"{type(config).__name__}.network is recurrent; custom recurrent networks are not supported",
            fix=f"use {type(config).__name__}(recurrent_size=64)",
        )
    return network


def initial_rewards(config: Any) -> Rewards | None:
    """Return empty statistics of rewards, or None without reward normalisation."""
    return Rewards(empty_statistics(), jnp.zeros(config.num_envs)) if config.reward_normalisation else None


def initial_values(config: Any) -> Running | None:
    """Return empty statistics of value targets, or None without value normalisation."""
    return empty_statistics() if config.value_normalisation else None


def initial_value_carry(config: Any, network: Any) -> jax.Array | None:
    """Return the first recurrent state [W, H] of a value network that has its own; None for others."""
    own = config.recurrent_size is not None and network.value_trunk is not None
    return network.value_trunk.encoder.initial_state(config.num_envs) if own else None


def initial_observations(config: Any, spec: Spec) -> dict[str, Running] | None:
    """Return empty statistics of every leaf of numbers, or None without observation normalisation."""
    if not config.observation_normalisation:
        return None
    sizes = {name: leaf.size for name, leaf in spec.observation.items() if isinstance(leaf, Vector)}
    return {name: Running(jnp.zeros(()), jnp.zeros(size), jnp.zeros(size)) for name, size in sizes.items()}


def check_network(config: Any) -> None:
    """Raise ConfigError where an algorithm has a network of the user and settings that only networks made here have."""
    settings = {name: getattr(config, name) for name in ("recurrent_size", "policy_hidden", "value_hidden")}
    for name, value in settings.items() if config.network is not None else ():
        if value not in (None, ()):
            raise ConfigError(
                f"{type(config).__name__}.{name} = {value} and network=... exclude each other",
                fix="set only one of them",
            )


# Preparation of a rollout.


def scale_observations(config: Any, state: Any, columns: Columns) -> tuple[Any, Columns]:
    """Scale a new rollout's observations by the statistics that its policy acted with; then add them to these.

    So the policy of the updates is the one that acted. The observations of the first rollout stay as they are.
    """
    scaled = {name: scale(state.observations, columns[name]) for name in ("observation", "following")}
    weight = columns["valid"].astype(jnp.float32)
    statistics = {name: add_rows(one, columns["observation"][name], weight) for name, one in state.observations.items()}
    return state._replace(observations=statistics), scaled


def scale(statistics: dict[str, Running], observation: Observation) -> Observation:
    """Return the observation with mean 0 and deviation 1 in the leaves that have statistics."""
    return {
        name: (leaf - statistics[name].mean) / deviation(statistics[name]) if name in statistics else leaf
        for name, leaf in observation.items()
    }


def scale_rewards(config: Any, state: Any, columns: Columns) -> tuple[Any, jax.Array]:
    """Divide rewards [C, T] by the running standard deviation of the discounted return, and clip them."""
    if state.rewards is None:
        return state, columns["reward"]
    ended = columns["terminated"] | columns["truncated"]
    valid = columns["valid"]
    returns, sums = discounted(
        state.rewards.sums, columns["reward"], ended, valid, config.reward_discount, columns.get("elapsed")
    )
    running = add_values(state.rewards.returns, returns, valid.astype(jnp.float32))
    state = state._replace(rewards=Rewards(running, sums))
    return state, scaled(config, state, columns["reward"])


def scaled(config: Any, state: Any, reward: jax.Array) -> jax.Array:
    """Return rewards of any shape in units of their running standard deviation, clipped."""
    if state.rewards is None:
        return reward
    return jnp.clip(reward / deviation(state.rewards.returns), -config.reward_clip, config.reward_clip)


def standardise(values: jax.Array, valid: jax.Array) -> jax.Array:
    """Return values [C, T] with mean 0 and standard deviation 1 over the valid steps."""
    mean = jnp.mean(values, where=valid)
    std = jnp.sqrt(jnp.mean(jnp.square(values - mean), where=valid))
    return (values - mean) / (std + 1e-8)


def value_unit(state: Any) -> jax.Array | float:
    """Return the scale of the value network's output."""
    return 1.0 if state.values is None else deviation(state.values)


def apply_in_blocks(network: Callable[..., Any], *inputs: Any) -> Any:
    """Apply a network to all steps of a store, leaves [C, T, ...], in blocks of bounded size."""
    steps = jax.tree.leaves(inputs)[0].shape[1]
    return in_blocks(lambda rows: network(*rows), inputs, max(1, PASS_STEPS // steps))


def values_of_segments(state: Any, columns: Columns, num_chunks: int = 1) -> tuple[Any, jax.Array, jax.Array, Columns]:
    """Return the network's values [C, T] of all steps and of their next observations, in its own units.

    A recurrent value network also updates its recurrent state in `state`, and the column `value_carry` [C, P, H] holds
    it at the start of each of `P` chunks.
    """
    seen, later = columns["observation"], columns["following"]
    if "first" not in columns:
        value, following = (apply_in_blocks(state.network.value_of, leaf) for leaf in (seen, later))
        return state, value, following, {}
    (past,) = segment_starts(columns)
    value, following, carries = apply_in_blocks(
        state.network.values_of_segment, seen, later, past._replace(value=state.carry)
    )
    if state.carry is None:
        return state, value, following, {}
    each = carries.shape[1] // num_chunks
    into = jnp.concatenate([state.carry[:, None], carries[:, each - 1 : -1 : each]], axis=1)
    return state._replace(carry=carries[:, -1]), value, following, {"value_carry": into}


def segment_starts(columns: Columns) -> tuple[SegmentStart, ...]:
    """Return the start of segments for recurrent networks; nothing for feed-forward networks."""
    if "first" not in columns:
        return ()
    value = columns.get("value_carry")
    return (SegmentStart(columns["first"], columns["carry"][:, 0], None if value is None else value[:, 0]),)


# One step.


def gradient_update(
    config: Any, state: Any, seen: Any, loss: Callable[..., Any], optimiser: str, rate: Any
) -> tuple[Any, Feedback]:
    """Do one update on `loss(network, config, seen, unit)` with the named optimiser and the schedule's rate."""
    rate = rate * config.schedule(state.step / jnp.maximum(state.updates, 1))
    opt_state = getattr(state.opt_states, optimiser)
    update = gradient_step(loss, state.network, opt_state, rate, config, seen, value_unit(state))
    opt_states = state.opt_states._replace(**{optimiser: update.opt_state})
    updated = state._replace(network=update.network, opt_states=opt_states, step=state.step + 1)
    metrics = {**update.metrics, "learning_rate": rate}
    if config.debug_metrics:
        arrays = {name: eqx.filter(part, eqx.is_inexact_array) for name, part in vars(update.gradient).items()}
        gradients = {name: part for name, part in arrays.items() if jax.tree.leaves(part)}
        metrics |= norms({name: getattr(update.network, name) for name in gradients}, gradients)
    return updated, Feedback(metrics)


# Before and after the auxiliary phase: the old policy, and the divergence from it.


def record_old_policy(config: Any, state: Any, columns: Columns) -> tuple[Any, Columns]:
    """Add the policy's distributions over the whole store."""
    return state, {
        "old": apply_in_blocks(
            state.network.policy, columns["observation"], columns.get("mask"), *segment_starts(columns)
        )
    }


def kl_after(config: Any, state: Any, columns: Columns) -> dict[str, jax.Array]:
    """Return the divergence [C, T] from the old policy over the whole store, after the phase."""

    def one(observation: Observation, mask: jax.Array | None, old: Any, *past: SegmentStart) -> jax.Array:
        divergence: jax.Array = old.divergence(state.network.policy(observation, mask, *past))
        return divergence

    divergences = apply_in_blocks(
        one, columns["observation"], columns.get("mask"), columns["old"], *segment_starts(columns)
    )
    return {"clone_kl_after": divergences}


def auxiliary_loss(
    network: Any, config: Any, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return both value errors plus the weighted divergence from the old policy."""
    data = batch.data
    target = data["target"] / unit
    policy, value, auxiliary = network.both_values(data["observation"], data.get("mask"), *segment_starts(data))
    clone = batch.mean(data["old"].divergence(policy))
    error = 0.5 * batch.mean(jnp.square(value - target))
    extra = error if auxiliary is None else 0.5 * batch.mean(jnp.square(auxiliary - target))
    loss = extra + config.beta_clone * clone + (0.0 if auxiliary is None else error)
    return loss, {"aux_value_loss": extra, "value_loss": error, "clone_kl": clone}


def with_new_episodes(config: Any, state: Any) -> Any:
    """Return the state for new episodes in all copies: with returns of 0."""
    if state.rewards is None:
        return state
    return state._replace(rewards=state.rewards._replace(sums=jnp.zeros_like(state.rewards.sums)))


# The contract.


def policy_params(config: Any, state: Any) -> Any:
    """Return the network."""
    return state.network


def scaled_policy_params(config: Any, state: Any) -> Any:
    """Return the network, with the running scale of observations where they have one."""
    if state.observations is None:
        return state.network
    mean = {name: one.mean for name, one in state.observations.items()}
    return ScaledParams(state.network, mean, {name: deviation(one) for name, one in state.observations.items()})


def initial_state(config: Any, params: Any, batch: int) -> Any:
    """Return the policy's initial recurrent state; None for a feed-forward policy."""
    params = params.params if isinstance(params, ScaledParams) else params
    return params.initial_state(batch) if isinstance(params, Phasic) else None


def act(
    config: Any,
    params: Any,
    observation: Observation,
    *,
    mask: jax.Array | None = None,
    carry: Any = None,
    key: jax.Array | None = None,
) -> Act:
    """Return the policy's mode, or a sample with a key."""
    policy, carry = _policy_step(params, observation, mask, carry)
    action = policy.mode() if key is None else policy.sample(key)
    return Act(action, policy.log_probability(action), carry)


def distribution(
    config: Any, params: Any, observation: Observation, mask: jax.Array | None = None, carry: Any = None
) -> Distribution:
    """Return the distribution of the sampled policy."""
    return _policy_step(params, observation, mask, carry)[0]


def _policy_step(params: Any, observation: Observation, mask: jax.Array | None, carry: Any) -> tuple[Distribution, Any]:
    """Return the sampled policy and the new recurrent state."""
    if isinstance(params, ScaledParams):
        params, mean, std = params
        observation = {
            name: (leaf - mean[name]) / std[name] if name in mean else leaf for name, leaf in observation.items()
        }
    if not isinstance(params, Phasic):
        return params.policy(observation, mask), carry
    carry = params.initial_state(len(jax.tree.leaves(observation)[0])) if carry is None else carry
    return params.step(observation, mask, carry)


def recipe_of(config: Any, params: Any) -> dict[str, Any]:
    """Return the acting computation as plain nodes."""
    carry = initial_state(config, params, 1)
    return recipe.whole(recipe.likely(params), carry=None if carry is None else carry.shape[1])
