"""What both phasic algorithms do alike: how a state begins, one step down a loss, and acting by the policy's network.

`h` are the hyper-parameters of either; their states have `network`, `optimisers`, `rewards`, `values`, `step` and
`updates`. The contract's functions stand in the classes as they stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.contract import DistillationTarget, Feedback, one_reward
from tidelog.algorithms.core.optimisation import build_or_default, gradient_step
from tidelog.algorithms.core.running_statistics import Running, nothing_seen
from tidelog.algorithms.phasic.auxiliary_phase import Rewards, value_unit
from tidelog.algorithms.phasic.distillation import cloned
from tidelog.errors import ConfigError
from tidelog.networks import phasic, recipe
from tidelog.networks.distributions import Distribution
from tidelog.networks.encode import EncoderConfig
from tidelog.networks.mlp import host_generator
from tidelog.networks.phasic import Phasic, Shape
from tidelog.types import Act, Observation, Spec

# A fresh state.


def fresh_network(h: Any, spec: Spec, key: jax.Array, memory: int | None = None) -> Any:
    """The user's network, or one of the named architecture, with a `memory` of that width or None.

    SpecError where there are several rewards, ConfigError where the user's has a memory.
    """
    one_reward(type(h).__name__, spec)
    sight = EncoderConfig(h.embedding, h.picture_width, h.convolutions, memory)
    shape = Shape(h.hidden, h.activation, h.layer_norm, sight)
    generator = host_generator(key)
    network = build_or_default(h.network, lambda: phasic.create(h.architecture, generator, spec, shape), spec, key)
    if memory is None and isinstance(network, Phasic) and network.start(1) is not None:
        raise ConfigError(
            f"{type(h).__name__}.network makes a network with a memory, which it learns nothing by: leave the memory "
            "away there, or network, as in PPG(memory=64)"
        )
    return network


def unseen_rewards(h: Any) -> Rewards | None:
    """Nothing seen of rewards, or None where they are taken as they are."""
    return Rewards(nothing_seen(), jnp.zeros(h.environments)) if h.reward_normalisation else None


def unseen_values(h: Any) -> Running | None:
    """Nothing seen of value targets, or None where values are in their own units."""
    return nothing_seen() if h.value_normalisation else None


def taught(h: Any, state: Any, lesson: DistillationTarget, key: jax.Array, updates: int) -> tuple[Any, jax.Array]:
    """A fresh state whose policy does what a lesson says, and its mean divergence from that; values begin fresh."""
    network, divergence = cloned(h, state.network, lesson, key, updates)
    return state._replace(network=network), divergence


def begun_anew(h: Any, state: Any) -> Any:
    """The state where all copies begin new episodes: what their returns were so far is forgotten."""
    if state.rewards is None:
        return state
    return state._replace(rewards=state.rewards._replace(sums=jnp.zeros_like(state.rewards.sums)))


# One step.


def descended(
    h: Any, state: Any, seen: Any, loss: Callable[..., Any], optimiser: str, rate: Any
) -> tuple[Any, Feedback]:
    """The state one step down `loss(network, h, seen, unit)`, by the optimiser of this name and the schedule's rate."""
    rate = rate * h.schedule(state.step / jnp.maximum(state.updates, 1))
    memory = getattr(state.optimisers, optimiser)
    found = gradient_step(loss, state.network, memory, rate, h, seen, value_unit(state))
    optimisers = state.optimisers._replace(**{optimiser: found.memory})
    moved = state._replace(network=found.network, optimisers=optimisers, step=state.step + 1)
    return moved, Feedback({**found.told, "learning_rate": rate})


# What the contract asks for.


def acting(h: Any, state: Any) -> Any:
    """The network."""
    return state.network


def start(h: Any, acting: Any, batch: int) -> Any:
    """What the policy's memory carries before anything was seen; None without one."""
    return acting.start(batch) if isinstance(acting, Phasic) else None


def act(
    h: Any,
    acting: Any,
    observation: Observation,
    *,
    mask: jax.Array | None = None,
    carry: Any = None,
    key: jax.Array | None = None,
) -> Act:
    """The policy's mode, or with a key a sample."""
    policy, carry = _seen(acting, observation, mask, carry)
    action = policy.mode() if key is None else policy.sample(key)
    return Act(action, policy.log_probability(action), carry)


def distribution(
    h: Any, acting: Any, observation: Observation, mask: jax.Array | None = None, carry: Any = None
) -> Distribution:
    """The sampled policy."""
    return _seen(acting, observation, mask, carry)[0]


def _seen(acting: Any, observation: Observation, mask: jax.Array | None, carry: Any) -> tuple[Distribution, Any]:
    """The sampled policy, and what is carried on."""
    if not isinstance(acting, Phasic):
        return acting.policy(observation, mask), carry
    carry = acting.start(len(jax.tree.leaves(observation)[0])) if carry is None else carry
    return acting.step(observation, mask, carry)


def q_values(h: Any, acting: Any, observation: Observation) -> None:
    """None: it rates states, not actions."""


def recipe_of(h: Any, acting: Any) -> dict[str, Any]:
    """How the policy acts, as plain nodes."""
    carry = start(h, acting, 1)
    return recipe.whole(recipe.likely(acting), carry=None if carry is None else carry.shape[1])
