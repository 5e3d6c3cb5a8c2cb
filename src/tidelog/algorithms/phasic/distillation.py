"""How a phasic policy begins as another one: steps down PPG's clone term, before anything is learnt.

| loss (per decision) | reads |
|---|---|
| `KL(old, new)` over the full distribution | the teacher's distributions, which are data; the fresh network's policy |

Values learn nothing here. Letters: `N` decisions of the teacher, `B` minibatch, `A` number of actions or action size.
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
RATE = 3e-3  # of the first step; it falls to 0 along a line
BLOCK = 4_096  # decisions that a network looks at once


def clone_loss(network: Any, config: Any, lesson: DistillationTarget) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The mean divergence from the teacher to the network's policy."""
    divergence = jnp.mean(lesson.old.divergence(network.policy(lesson.observation, lesson.mask)))
    return divergence, {}


def cloned(
    config: Any, network: Any, lesson: DistillationTarget, key: jax.Array, updates: int
) -> tuple[Any, jax.Array]:
    """The network after `updates` steps on minibatches of a lesson, and its mean divergence over the whole of it."""
    numbers = jax.tree.map(jnp.float32, config)
    found: tuple[Any, jax.Array] = _cloned(
        numbers, network, init_opt_state(config.optimiser, network), lesson, key, jnp.int32(updates)
    )
    return found


@eqx.filter_jit
def _cloned(
    config: Any, network: Any, opt_state: Any, lesson: DistillationTarget, key: jax.Array, updates: jax.Array
) -> Any:
    moving, fixed = eqx.partition((network, opt_state), eqx.is_array)
    count = len(jax.tree.leaves(lesson.observation)[0])

    def one(update: jax.Array, moving: Any) -> Any:
        network, opt_state = eqx.combine(moving, fixed)
        rows = jax.random.randint(jax.random.fold_in(key, update), (MINIBATCH,), 0, count)
        rate = RATE * linear(update / updates)
        found = gradient_step(
            clone_loss, network, opt_state, rate, config, jax.tree.map(lambda leaf: leaf[rows], lesson)
        )
        return eqx.filter((found.network, found.opt_state), eqx.is_array)

    network, _ = eqx.combine(jax.lax.fori_loop(0, updates, one, moving), fixed)

    def apart(part: DistillationTarget) -> jax.Array:
        divergence: jax.Array = part.old.divergence(network.policy(part.observation, part.mask))
        return divergence

    return network, jnp.mean(in_blocks(apart, lesson, BLOCK))
