"""Policy losses: advantage weights, clipped ratios, and divergences.

Letters: `B` batch, `A` action size or number of actions.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tidelog.types import same_shape


def advantage_weight(advantage: jax.Array, temperature: jax.Array | float, largest: jax.Array | float) -> jax.Array:
    """`min(exp(temperature * advantage), largest)` without gradient, of the shape of `advantage`.

    The temperature multiplies. At 0 every weight is 1, which is behaviour cloning.
    Source: Kostrikov et al. 2021, equation 7.
    """
    return jax.lax.stop_gradient(jnp.minimum(jnp.exp(temperature * advantage), largest))


def surrogate(log_ratio: jax.Array, advantage: jax.Array, clip: jax.Array | float | None) -> jax.Array:
    """`-min(r A, clip(r, 1 - c, 1 + c) A)` with `r = exp(log_ratio)`, or `-r A` without a clip; all of one shape.

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.
    """
    same_shape(log_ratio=log_ratio, advantage=advantage)
    ratio = jnp.exp(log_ratio)
    if clip is None:
        return -ratio * advantage
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def decoupled_surrogate(
    log_ratio: jax.Array,
    log_weight: jax.Array,
    advantage: jax.Array,
    clip: jax.Array | float | None,
    most: jax.Array | float,
) -> jax.Array:
    """`-w min(r A, clip(r, 1 - c, 1 + c) A)`, or `-w r A` without a clip; all of one shape.

    `r = exp(log_ratio)` is the policy over the proximal one, the constant `w = exp(log_weight)` the proximal over the
    behaviour policy. `w` and `w r` are at most `most`; the limit applies before the exponential.
    Source: Hilton et al. 2021, arXiv:2110.00641, equation 2.
    """
    same_shape(log_ratio=log_ratio, log_weight=log_weight, advantage=advantage)
    log_weight = truncated_weight(log_ratio, log_weight, most)
    gain = jnp.exp(log_weight + log_ratio) * advantage
    if clip is None:
        return -gain
    within = jnp.clip(log_ratio, jnp.log(jnp.maximum(1.0 - clip, 1e-8)), jnp.log1p(clip))
    return -jnp.minimum(gain, jnp.exp(log_weight + within) * advantage)


def truncated_weight(log_ratio: jax.Array, log_weight: jax.Array, most: jax.Array | float) -> jax.Array:
    """The log of the constant weight `w` with `w <= most` and `w exp(log_ratio) <= most`; all of one shape."""
    return jax.lax.stop_gradient(jnp.minimum(log_weight, jnp.log(most) - jnp.maximum(log_ratio, 0.0)))


def ratio_divergence(log_ratio: jax.Array) -> jax.Array:
    """`0.5 log_ratio**2`, of the shape of `log_ratio`: the second-order divergence of two close policies."""
    return 0.5 * jnp.square(log_ratio)


def categorical_divergence(old: jax.Array, new: jax.Array) -> jax.Array:
    """`KL(old || new)` over the full distributions: logits [..., A] -> [...]; forbidden actions (-inf) add nothing.

    Where old and new are equal to the bit, the gradient is exactly 0: its rounding, of size 1e-9, would move the
    weights of an unchanged policy by a part of a learning rate, because Adam divides it by its own size.
    """
    same_shape(old=old, new=new)
    new = jnp.where(jnp.all(old == new, axis=-1, keepdims=True), jax.lax.stop_gradient(new), new)
    old_log, new_log = jax.nn.log_softmax(old), jax.nn.log_softmax(new)
    allowed = jnp.isfinite(old_log)
    gap = jnp.where(allowed, old_log, 0.0) - jnp.where(allowed, new_log, 0.0)
    return jnp.sum(jnp.exp(old_log) * gap, axis=-1)


def gaussian_divergence(
    old_mean: jax.Array, old_log_std: jax.Array, new_mean: jax.Array, new_log_std: jax.Array
) -> jax.Array:
    """`KL(old || new)` of diagonal Gaussians, summed over dimensions: means [..., A], log-stds [..., A] or [A]."""
    same_shape(old_mean=old_mean, new_mean=new_mean)
    log_std_gap = new_log_std - old_log_std
    gap = (old_mean - new_mean) * jnp.exp(-new_log_std)
    return jnp.sum(log_std_gap + 0.5 * (jnp.exp(-2.0 * log_std_gap) + jnp.square(gap) - 1.0), axis=-1)
