"""Common functions of the phasic algorithms: initial state, gradient step, and acting.

`config` are the hyper-parameters of either; their states have `network`, `opt_states`, `rewards`, `values`, `step` and
`updates`. The algorithm classes use the contract's functions directly from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.contract import DistillationTarget, Feedback, one_reward
from tidelog.algorithms.core.optimisation import build_or_default, gradient_step
from tidelog.algorithms.core.running_statistics import Running, empty_statistics
from tidelog.algorithms.phasic.auxiliary_phase import Rewards, value_unit
from tidelog.algorithms.phasic.distillation import cloned
from tidelog.errors import ConfigError
from tidelog.networks import phasic, recipe
from tidelog.networks.distributions import Distribution
from tidelog.networks.encode import EncoderConfig
from tidelog.networks.mlp import host_generator
from tidelog.networks.phasic import Phasic, Shape
from tidelog.types import Act, Observation, Spec

# Initial state.


def new_network(config: Any, spec: Spec, key: jax.Array, recurrent_size: int | None = None) -> Any:
    """Return the user's network or one of the named architecture, with a recurrent unit of this size or None.

    SpecError where there are several rewards, ConfigError where the user's network is recurrent.
    """
    one_reward(type(config).__name__, spec)
    encoder_config = EncoderConfig(config.embedding, config.picture_width, config.convolutions, recurrent_size)
    shape = Shape(config.hidden, config.activation, config.layer_norm, encoder_config)
    generator = host_generator(key)
    network = build_or_default(
        config.network, lambda: phasic.create(config.architecture, generator, spec, shape), spec, key
    )
    if recurrent_size is None and isinstance(network, Phasic) and network.start(1) is not None:
        raise ConfigError(
            f"{type(config).__name__}.network is recurrent; custom recurrent networks are not supported. "
            "fix: use PPG(recurrent_size=64)"
        )
    return network


def initial_rewards(config: Any) -> Rewards | None:
    """Return empty statistics of rewards, or None without reward normalisation."""
    return Rewards(empty_statistics(), jnp.zeros(config.environments)) if config.reward_normalisation else None


def initial_values(config: Any) -> Running | None:
    """Return empty statistics of value targets, or None without value normalisation."""
    return empty_statistics() if config.value_normalisation else None


def distilled(
    config: Any, state: Any, target: DistillationTarget, key: jax.Array, updates: int
) -> tuple[Any, jax.Array]:
    """Return a new state whose policy imitates the target, and its mean divergence; value networks start untrained."""
    network, divergence = cloned(config, state.network, target, key, updates)
    return state._replace(network=network), divergence


def with_new_episodes(config: Any, state: Any) -> Any:
    """Return the state for new episodes in all copies: with returns of 0."""
    if state.rewards is None:
        return state
    return state._replace(rewards=state.rewards._replace(sums=jnp.zeros_like(state.rewards.sums)))


# One step.


def descended(
    config: Any, state: Any, seen: Any, loss: Callable[..., Any], optimiser: str, rate: Any
) -> tuple[Any, Feedback]:
    """Do one update on `loss(network, config, seen, unit)` with the named optimiser and the schedule's rate."""
    rate = rate * config.schedule(state.step / jnp.maximum(state.updates, 1))
    opt_state = getattr(state.opt_states, optimiser)
    update = gradient_step(loss, state.network, opt_state, rate, config, seen, value_unit(state))
    opt_states = state.opt_states._replace(**{optimiser: update.opt_state})
    updated = state._replace(network=update.network, opt_states=opt_states, step=state.step + 1)
    return updated, Feedback({**update.metrics, "learning_rate": rate})


# The contract.


def policy_params(config: Any, state: Any) -> Any:
    """Return the network."""
    return state.network


def start(config: Any, params: Any, batch: int) -> Any:
    """Return the policy's initial recurrent state; None for a feed-forward policy."""
    return params.start(batch) if isinstance(params, Phasic) else None


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
    if not isinstance(params, Phasic):
        return params.policy(observation, mask), carry
    carry = params.start(len(jax.tree.leaves(observation)[0])) if carry is None else carry
    return params.step(observation, mask, carry)


def q_values(config: Any, params: Any, observation: Observation) -> None:
    """Return None: the network has state values, not action values."""


def recipe_of(config: Any, params: Any) -> dict[str, Any]:
    """Return the acting computation as plain nodes."""
    carry = start(config, params, 1)
    return recipe.whole(recipe.likely(params), carry=None if carry is None else carry.shape[1])
