"""V-trace value targets and advantages of another policy's decisions. Letters: `W` segments, `T` steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tidelog.losses.returns import backwards
from tidelog.types import same_shape


def vtrace(
    log_ratio: jax.Array,
    reward: jax.Array,
    value: jax.Array,
    following_value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    valid: jax.Array,
    discount: jax.Array | float,
    trace: jax.Array | float,
    rho_bar: jax.Array | float = 1.0,
    c_bar: jax.Array | float = 1.0,
) -> tuple[jax.Array, jax.Array]:
    """Targets of V and advantages of the policy, all [W, T]; `log_ratio` is the policy over the behaviour policy.

    Targets are `v = V + rho (r + discount V' - V) + discount c (v' - V')`, with `rho = min(rho_bar, ratio)` and
    `c = trace min(c_bar, ratio)`. Advantages are `r + discount ((1 - trace) V' + trace v') - V`, without `rho`: losses
    weighted by the ratio include it already. `following_value` is V of the true next observation, before any reset. A
    termination does not bootstrap; a truncation and the segment's end bootstrap from the next observation and end the
    trace; an invalid step has target V and advantage 0, and ends the trace before it. Where the ratio is 1 these are
    lambda-returns and generalised advantages. Source: Espeholt et al. 2018, arXiv:1802.01561, equation 1.
    """
    same_shape(
        log_ratio=log_ratio, reward=reward, value=value, following_value=following_value, terminated=terminated,
        truncated=truncated, valid=valid,
    )  # fmt: skip
    td_error = jnp.where(valid, reward + discount * jnp.where(terminated, 0.0, following_value) - value, 0.0)
    decay = jnp.where(valid & ~(terminated | truncated), discount * trace, 0.0)
    weight, trace_weight = (
        jnp.where(valid, jnp.exp(jnp.minimum(log_ratio, jnp.log(bar))), 0.0) for bar in (rho_bar, c_bar)
    )
    excess = backwards(weight * td_error, decay * trace_weight)
    after = jnp.concatenate([excess[:, 1:], jnp.zeros_like(excess[:, :1])], axis=1)
    return value + excess, td_error + decay * after
