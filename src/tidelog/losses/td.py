"""Value learning: temporal-difference errors, expectiles, several rewards, returns of rollouts, V-trace.

Letters: `B` batch, `E` ensemble, `K` reward components, `T` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.types import same_shape

# Temporal-difference errors of a critic ensemble. Letters: `B` batch, `E` ensemble.

PointLoss = Callable[[jax.Array], jax.Array]


def squared(difference: jax.Array) -> jax.Array:
    """`difference**2`, of the shape of `difference`."""
    return jnp.square(difference)


def huber(difference: jax.Array) -> jax.Array:
    """Half the square up to 1, beyond that the absolute value minus a half, of the shape of `difference`."""
    size = jnp.abs(difference)
    return jnp.where(size <= 1.0, 0.5 * jnp.square(difference), size - 0.5)


POINT_LOSSES: Mapping[str, PointLoss] = {"squared": squared, "huber": huber}


def between(values: jax.Array, share: jax.Array | float) -> jax.Array:
    """`share` of the smallest member's value plus `1 - share` of the largest: [E, B, ...] -> [B, ...].

    Source: Fujimoto, Meger, Precup 2019, arXiv:1812.02900; at 1 the clipped double minimum.
    """
    return share * jnp.min(values, axis=0) + (1.0 - share) * jnp.max(values, axis=0)


def ensemble_error(values: jax.Array, target: jax.Array, loss: PointLoss = squared) -> jax.Array:
    """Sum over the ensemble of `loss(values - target)`: [E, B, ...] and [B, ...] (without gradient) -> [B, ...]."""
    if values.ndim < 2 or values.shape[1:] != target.shape:
        raise TypeError(
            f"values have shape {values.shape} and target {target.shape}, expected [E, B, ...] and [B, ...]. "
            "fix: return one target per sample"
        )
    return jnp.sum(loss(values - jax.lax.stop_gradient(target)), axis=0)


# Expectile regression. Letters: `B` batch.


def expectile_error(difference: jax.Array, expectile: jax.Array | float, side: jax.Array | None = None) -> jax.Array:
    """Asymmetric squared error `|expectile - 1(side < 0)| difference**2`, of the shape of `difference`.

    `side` selects the side; by default it is the difference itself. At 1/2 the error is half the squared error.
    Source: Newey and Powell 1987; Kostrikov et al. 2021, equation 5.
    """
    weight = jnp.where((difference if side is None else side) < 0, 1.0 - expectile, expectile)
    return jax.lax.stop_gradient(weight) * jnp.square(difference)


# Several rewards: values with a last axis of components, and their weighted sum.
#
# Letters: `B` batch, `E` ensemble, `K` reward components.


class Components(NamedTuple):
    """The reward components and their weights [K]; with weights None (one reward) every method is the identity."""

    weights: jax.Array | None

    @classmethod
    def of(cls, reward: jax.Array, scalar: jax.Array, weights: tuple[float, ...] | None) -> Components:
        """Return the components of rewards [B, K], or of one reward [B] as `scalar` has; weights None means ones."""
        if reward.ndim == scalar.ndim:
            return cls(None)
        return cls(jnp.ones(reward.shape[-1]) if weights is None else jnp.asarray(weights))

    def total(self, values: jax.Array) -> jax.Array:
        """Return the weighted sum over components: [..., K] -> [...]."""
        return values if self.weights is None else jnp.sum(values * self.weights, axis=-1)

    def average(self, errors: jax.Array) -> jax.Array:
        """Return the mean of per-component errors: [..., K] -> [...]."""
        return errors if self.weights is None else jnp.mean(errors, axis=-1)

    def expand(self, scalars: jax.Array) -> jax.Array:
        """Broadcast scalars [...] against values [..., K]."""
        return scalars if self.weights is None else scalars[..., None]

    def smallest(self, values: jax.Array) -> jax.Array:
        """Return the values of the ensemble member with the smallest total: [E, B] -> [B], [E, B, K] -> [B, K]."""
        if self.weights is None:
            return jnp.min(values, axis=0)
        member = jnp.argmin(self.total(values), axis=0)
        return jnp.take_along_axis(values, member[None, ..., None], axis=0)[0]


# Returns and advantages along segments. Letters: `W` segments, `T` steps; time is the last axis.


def discount_of(discount: jax.Array | float, elapsed: jax.Array | None) -> jax.Array | float:
    """`discount ** elapsed` of each step, exactly the discount where that is 1 or None: elapsed times [W, T]."""
    return discount if elapsed is None else jnp.where(elapsed == 1.0, discount, discount**elapsed)


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
    last step's chain ends with the segment. A discount [W, T] is that of each step; `trace` decays with every decision.
    Source: Schulman et al. 2016, arXiv:1506.02438, equation 16.
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
    elapsed: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """The discounted sum of rewards up to each step [W, T], 0 after an episode's end, and the last sum [W].

    `earlier` [W] is the last sum of the segment before; an invalid step adds nothing and changes nothing. With elapsed
    times [W, T] a sum is discounted by the time that follows it, before the next segment too.
    """
    factor = None if elapsed is None else jnp.where(valid, discount_of(discount, elapsed), 1.0).T

    def one(sums: jax.Array, step: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
        step_reward, has_ended, is_valid, after = step
        now = jnp.where(is_valid, (discount if after is None else 1.0) * sums + step_reward, sums)
        return jnp.where(has_ended, 0.0, now if after is None else after * now), now

    last, sums = jax.lax.scan(one, earlier, (reward.T, ended.T, valid.T, factor))
    return sums.T, last


def backwards(addend: jax.Array, factor: jax.Array) -> jax.Array:
    """`y_t = addend_t + factor_t * y_(t+1)` with `y_T = 0`: [W, T] and [W, T] -> [W, T]."""

    def one(after: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        now = step[0] + step[1] * after
        return now, now

    _, sums = jax.lax.scan(one, jnp.zeros_like(addend[:, 0]), (addend.T, factor.T), reverse=True)
    return sums.T


# Targets of action values along windows of logged steps. Letters: `B` windows, `T` steps, `K` reward components.

RETURNS: Mapping[str, str] = {name: name for name in ("n-step", "td-lambda", "retrace")}


def lambda_returns(
    reward: jax.Array, next_value: jax.Array, control: jax.Array, discount: jax.Array, trace: jax.Array
) -> jax.Array:
    """Targets `G_t = r_t + discount_t (V'_t + c_t (G_(t+1) - control_t))` of Q; all [B, T] or all [B, T, K].

    `trace` is c, 0 where the next step is not in the window: the target then bootstraps from `next_value`. With c =
    lambda and `control` = V' these are lambda-returns (Sutton 1988); with c = lambda min(1, pi / mu) and `control` = Q
    of the next logged step they are those of Retrace. Source: Munos et al. 2016, arXiv:1606.02647, equation 4.
    """
    same_shape(reward=reward, discount=discount, next_value=next_value, control=control, trace=trace)
    addend, factor = reward + discount * (next_value - trace * control), discount * trace
    if reward.ndim == 2:
        return backwards(addend, factor)
    along: jax.Array = jax.vmap(backwards, in_axes=-1, out_axes=-1)(addend, factor)
    return along


def value_error(value: jax.Array, target: jax.Array, old: jax.Array, clip: jax.Array | float | None) -> jax.Array:
    """Squared error to the target, all of one shape; with a clip at least that of the value clipped near `old`."""
    same_shape(value=value, target=target, old=old)
    error = jnp.square(value - target)
    if clip is None:
        return error
    return jnp.maximum(error, jnp.square(old + jnp.clip(value - old, -clip, clip) - target))


# V-trace value targets and advantages of another policy's decisions. Letters: `W` segments, `T` steps.


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
    lambda-returns and generalised advantages. A discount [W, T] is that of each step.
    Source: Espeholt et al. 2018, arXiv:1802.01561, equation 1.
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
