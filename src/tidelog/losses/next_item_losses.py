"""Losses of next-item prediction. Letters: `P` states, `N` items, `S` sampled items, `H` candidates."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tidelog.losses.imitation import pick
from tidelog.types import same_shape


def next_item_error(logits: jax.Array, item: jax.Array) -> jax.Array:
    """Negative log-likelihood of the next item: logits [..., N + 1], item [...] counted from 1 -> [...].

    Index 0 is no item: its logit is excluded from the sum.
    """
    items = logits.at[..., 0].set(-jnp.inf)
    return jax.nn.logsumexp(items, axis=-1) - pick(logits, item)


def sampled_error(logit: jax.Array, others: jax.Array, log_expected: jax.Array, hit: jax.Array) -> jax.Array:
    """Sampled negative log-likelihood: the item's logit [...], those of sampled items [..., S] -> [...].

    `log_expected` [S] is the log of the expected count of each sampled item in the sample; it is subtracted, and the
    sum then estimates the whole catalogue (Bengio and Senecal 2008). `hit` [..., S] marks sampled items that equal the
    item; they count only once.
    """
    same_shape(others=others, hit=hit)
    corrected = jnp.where(hit, -jnp.inf, others - log_expected)
    return jnp.logaddexp(logit, jax.nn.logsumexp(corrected, axis=-1)) - logit


def importance(log_wanted: jax.Array, log_drawn: jax.Array) -> jax.Array:
    """Importance weights of mean 1 for items drawn from another distribution: log-probabilities [...] -> [...]."""
    same_shape(log_wanted=log_wanted, log_drawn=log_drawn)
    return jax.nn.softmax((log_wanted - log_drawn).reshape(-1)).reshape(log_drawn.shape) * log_drawn.size


def standardised(values: jax.Array, among: jax.Array) -> jax.Array:
    """Values [..., K] minus mean, over standard deviation, both of marked ones [..., K]; 0 where all are equal."""
    same_shape(values=values, among=among)
    count = jnp.maximum(jnp.sum(among, axis=-1, keepdims=True), 1)
    mean = jnp.sum(values, axis=-1, keepdims=True, where=among) / count
    variance = jnp.sum(jnp.square(values - mean), axis=-1, keepdims=True, where=among) / count
    return jnp.where(among & (variance > 1e-12), (values - mean) * jax.lax.rsqrt(jnp.maximum(variance, 1e-12)), 0.0)
