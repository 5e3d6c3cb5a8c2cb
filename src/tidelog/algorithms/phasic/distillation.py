"""Distillation: a phasic policy starts as a copy of another policy, by gradient steps on PPG's clone term.

| loss (per decision) | reads |
|---|---|
| `KL(old, new)` over the full distribution | the target's distributions, which are data; the new network's policy |

Values are not trained here. Letters: `N` decisions of the target, `B` minibatch, `A` number of actions or action size.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.core.choosing_actions import in_blocks
from tidelog.algorithms.core.contract import DistillationTarget
from tidelog.algorithms.core.optimisation import gradient_step, init_opt_state, linear

MINIBATCH = 256
RATE = 3e-3  # initial learning rate; it decreases linearly to 0
BLOCK = 4_096  # decisions per network call


def clone_loss(network: Any, config: Any, target: DistillationTarget) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the mean divergence from the target to the network's policy."""
    divergence = jnp.mean(target.old.divergence(network.policy(target.observation, target.mask)))
    return divergence, {}


def cloned(
    config: Any, network: Any, target: DistillationTarget, key: jax.Array, updates: int
) -> tuple[Any, jax.Array]:
    """Return the network after `updates` updates on minibatches of the target, and the mean divergence over all."""
    numbers = jax.tree.map(jnp.float32, config)
    result: tuple[Any, jax.Array] = _cloned(
        numbers, network, init_opt_state(config.optimiser, network), target, key, jnp.int32(updates)
    )
    return result


@eqx.filter_jit
def _cloned(
    config: Any, network: Any, opt_state: Any, target: DistillationTarget, key: jax.Array, updates: jax.Array
) -> Any:
    arrays, rest = eqx.partition((network, opt_state), eqx.is_array)
    count = len(jax.tree.leaves(target.observation)[0])

    def one(update: jax.Array, arrays: Any) -> Any:
        network, opt_state = eqx.combine(arrays, rest)
        rows = jax.random.randint(jax.random.fold_in(key, update), (MINIBATCH,), 0, count)
        rate = RATE * linear(update / updates)
        step = gradient_step(
            clone_loss, network, opt_state, rate, config, jax.tree.map(lambda leaf: leaf[rows], target)
        )
        return eqx.filter((step.network, step.opt_state), eqx.is_array)

    network, _ = eqx.combine(jax.lax.fori_loop(0, updates, one, arrays), rest)

    def divergence_of(part: DistillationTarget) -> jax.Array:
        divergence: jax.Array = part.old.divergence(network.policy(part.observation, part.mask))
        return divergence

    return network, jnp.mean(in_blocks(divergence_of, target, BLOCK))
