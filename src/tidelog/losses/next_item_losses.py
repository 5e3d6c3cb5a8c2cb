"""What learning to tell the next item minimises. Letters: `P` states, `N` items, `S` sampled items, `H` candidates."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tidelog.losses.imitation import pick
from tidelog.types import same_shape


def next_item_error(logits: jax.Array, item: jax.Array) -> jax.Array:
    """Negative log-likelihood of the item that came next: logits [..., N + 1], item [...] counted from 1 -> [...].

    Index 0 is no item: its logit is left out of the sum.
    """
    items = logits.at[..., 0].set(-jnp.inf)
    return jax.nn.logsumexp(items, axis=-1) - pick(logits, item)


def sampled_error(logit: jax.Array, others: jax.Array, log_expected: jax.Array, hit: jax.Array) -> jax.Array:
    """The same against a sample: the item's logit [...], those of drawn items [..., S] -> [...].

    `log_expected` [S] is the log of how often each drawn item was to be expected in the sample; it is subtracted, so
    that the sum stands for the whole catalogue (Bengio and Senecal 2008). `hit` [..., S] marks drawn items that are
    the item itself and count once only.
    """
    same_shape(others=others, hit=hit)
    corrected = jnp.where(hit, -jnp.inf, others - log_expected)
    return jnp.logaddexp(logit, jax.nn.logsumexp(corrected, axis=-1)) - logit


def importance(log_wanted: jax.Array, log_drawn: jax.Array) -> jax.Array:
    """Weights of mean 1 of items drawn from one distribution to stand for another: log-probabilities [...] -> [...]."""
    same_shape(log_wanted=log_wanted, log_drawn=log_drawn)
    return jax.nn.softmax((log_wanted - log_drawn).reshape(-1)).reshape(log_drawn.shape) * log_drawn.size


def standardised(values: jax.Array, among: jax.Array) -> jax.Array:
    """Values [..., K] less their mean, over their deviation, both of marked ones [..., K]; 0 where all are equal."""
    same_shape(values=values, among=among)
    count = jnp.maximum(jnp.sum(among, axis=-1, keepdims=True), 1)
    mean = jnp.sum(values, axis=-1, keepdims=True, where=among) / count
    variance = jnp.sum(jnp.square(values - mean), axis=-1, keepdims=True, where=among) / count
    return jnp.where(among & (variance > 1e-12), (values - mean) * jax.lax.rsqrt(jnp.maximum(variance, 1e-12)), 0.0)
