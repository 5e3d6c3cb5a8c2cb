"""Returns and advantages along segments. Letters: `W` segments, `T` steps; time is the last axis."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tidelog.types import same_shape


def advantages(
    reward: jax.Array,
    value: jax.Array,
    following_value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    valid: jax.Array,
    discount: jax.Array | float,
    trace: jax.Array | float,
) -> jax.Array:
    """Generalised advantage estimates [W, T]; all arrays are [W, T].

    `following_value` is V of the true next observation of each step, before any reset. A termination does not
    bootstrap; a truncation bootstraps and then ends the chain; an invalid step is 0 and ends the chain before it. The
    last step's chain ends with the segment. Source: Schulman et al. 2016, arXiv:1506.02438, equation 16.
    """
    same_shape(
        reward=reward, value=value, following_value=following_value, terminated=terminated, truncated=truncated,
        valid=valid,
    )  # fmt: skip
    td_error = reward + discount * jnp.where(terminated, 0.0, following_value) - value
    decay = jnp.where(terminated | truncated, 0.0, discount * trace)
    return backwards(jnp.where(valid, td_error, 0.0), jnp.where(valid, decay, 0.0))


def discounted(
    earlier: jax.Array,
    reward: jax.Array,
    ended: jax.Array,
    valid: jax.Array,
    discount: jax.Array | float,
) -> tuple[jax.Array, jax.Array]:
    """The discounted sum of rewards up to each step [W, T], 0 after an episode's end, and the last sum [W].

    `earlier` [W] is the last sum of the segment before; an invalid step adds nothing and changes nothing.
    """

    def one(sums: jax.Array, step: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        step_reward, has_ended, is_valid = step
        now = jnp.where(is_valid, discount * sums + step_reward, sums)
        return jnp.where(has_ended, 0.0, now), now

    last, sums = jax.lax.scan(one, earlier, (reward.T, ended.T, valid.T))
    return sums.T, last


def backwards(addend: jax.Array, factor: jax.Array) -> jax.Array:
    """`y_t = addend_t + factor_t * y_(t+1)` with `y_T = 0`: [W, T] and [W, T] -> [W, T]."""

    def one(after: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        now = step[0] + step[1] * after
        return now, now

    _, sums = jax.lax.scan(one, jnp.zeros_like(addend[:, 0]), (addend.T, factor.T), reverse=True)
    return sums.T


def value_error(value: jax.Array, target: jax.Array, old: jax.Array, clip: jax.Array | float | None) -> jax.Array:
    """Squared error to the target, all of one shape; with a clip at least that of the value clipped near `old`."""
    same_shape(value=value, target=target, old=old)
    error = jnp.square(value - target)
    if clip is None:
        return error
    return jnp.maximum(error, jnp.square(old + jnp.clip(value - old, -clip, clip) - target))
