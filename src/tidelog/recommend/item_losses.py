"""Losses of next-item prediction: the cross-entropy over all items or over a sample, and the calibrated binary one.

Letters: `B` batch, `A` states of a window, `T` targets, `N` items, `D` item vector size, `S` items of a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.sampling import Batch
from tidelog.losses.binary import calibrated_binary_error
from tidelog.recommend.networks import Items
from tidelog.recommend.next_item import ItemFacts, NextItemModel, read_windows, targets_of
from tidelog.recommend.repeats import Places, log_score, log_total, sampled_scores


@jax.custom_vjp
def catalogue_scores(
    states: jax.Array, vectors: jax.Array, bias: jax.Array, chosen: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the log of the summed exponentials of all logits, and the logits of chosen items.

    States [B, A, D] and chosen items [B, T], with `A = T` or `A = 1` -> [B, A], [B, T]. The gradient is written out:
    automatic differentiation makes several more passes over arrays of the size [B, A, N + 1]. With respect to the
    items it is one product, so that devices that share a batch add it up once.
    """
    found: tuple[jax.Array, jax.Array] = _scores_forward(states, vectors, bias, chosen)[0]
    return found


def _scores_forward(states: jax.Array, vectors: jax.Array, bias: jax.Array, chosen: jax.Array) -> tuple[Any, Any]:
    items = jnp.concatenate([vectors, bias.at[0].set(-jnp.inf)[:, None]], axis=-1)
    logits = _with_ones(states) @ items.T  # an added bias would be one more pass
    largest = jnp.max(logits, axis=-1, keepdims=True)
    exponentials = jnp.exp(logits - largest)
    total = jnp.sum(exponentials, axis=-1)
    logit = jnp.sum(states * vectors[chosen], axis=-1) + bias[chosen]
    return (largest[..., 0] + jnp.log(total), logit), (states, vectors, exponentials, total, chosen)


def _scores_backward(saved: Any, slopes: Any) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    states, vectors, exponentials, total, chosen = saved
    places = jnp.arange(states.shape[1]) if states.shape[1] == chosen.shape[1] else 0
    weights = jax.vmap(lambda row, item, slope: row.at[places, item].add(slope))(
        (slopes[0] / total)[..., None] * exponentials, chosen, slopes[1]
    )
    rows = _with_ones(states)
    # in the other order the weights would be transposed first
    to_items = rows.reshape(-1, rows.shape[-1]).T @ weights.reshape(-1, weights.shape[-1])
    return weights @ vectors, to_items[:-1].T, to_items[-1], None


def _with_ones(states: jax.Array) -> jax.Array:
    """States [..., D + 1]: what the last column is multiplied with is a bias."""
    return jnp.concatenate([states, jnp.ones_like(states[..., :1])], axis=-1)


catalogue_scores.defvjp(_scores_forward, _scores_backward)


def next_item_error(states: jax.Array, items: Items, chosen: jax.Array, places: Places | None = None) -> jax.Array:
    """Negative log-likelihood of the chosen items [B, T], counted from 1.

    The states [B, A, D] are those before each item (`A = T`), or one before all (`A = 1`); `items` are all. Index 0 is
    no item: its logit is excluded from the sum.
    """
    total, logit = catalogue_scores(states, *items, chosen)
    return log_total(total[..., None], places) - log_score(logit, chosen, places)


def sampled_error(
    logit: jax.Array,
    others: jax.Array,
    log_expected: jax.Array,
    hit: jax.Array,
    items: jax.Array,
    places: Places | None = None,
) -> jax.Array:
    """Sampled negative log-likelihood of items [..., T]: their logits, those of sampled items [..., A, S] -> [..., T].

    `log_expected` [S] is the log of the expected count of each sampled item in the sample; it is subtracted, and the
    sum then estimates the whole catalogue (Bengio and Senecal 2008). `hit` [..., T, S] marks sampled items that equal
    the item; they count only once.
    """
    corrected = jnp.where(hit, -jnp.inf, others - log_expected)
    catalogue = jnp.concatenate([logit[..., None], corrected], axis=-1)
    return log_total(catalogue, places) - log_score(logit, items, places)


ItemLoss: TypeAlias = Callable[..., jax.Array]  # (model, config, batch, facts, states, places, key) -> errors [B, T]


def softmax(
    model: NextItemModel,
    config: Any,
    batch: Batch,
    facts: ItemFacts,
    states: jax.Array,
    places: Places | None,
    key: jax.Array,
) -> jax.Array:
    """Return the cross-entropy over all items, or in a catalogue above `full_softmax` items over a sample."""
    chosen = batch.data.chosen
    if len(facts.cumulative) <= config.full_softmax:
        return next_item_error(states, model.table(None, facts.features), chosen, places)
    drawn = facts.draw(key, (config.sampled_items,))
    positive, negative = (model.table(items, facts.features) for items in (chosen, drawn))
    logit = jnp.sum(states * positive.vectors, axis=-1) + positive.bias
    expected = facts.log_drawn[drawn] + jnp.log(float(config.sampled_items))
    others = states @ negative.vectors.T + negative.bias
    hit = chosen[..., None] == drawn
    return sampled_error(logit, others, expected, hit, chosen, places)


def gbce(
    model: NextItemModel,
    config: Any,
    batch: Batch,
    facts: ItemFacts,
    states: jax.Array,
    places: Places | None,
    key: jax.Array,
) -> jax.Array:
    """Return the calibrated binary cross-entropy against `gbce_negatives` uniformly sampled items, one sample a batch.

    An item's logit is its score over all its places, as in the softmax.
    """
    chosen, count = batch.data.chosen, len(facts.cumulative)
    number = min(config.gbce_negatives, max(1, count - 1))
    drawn = jax.random.randint(key, (number,), 1, count + 1)
    positive, negative = (model.table(items, facts.features) for items in (chosen, drawn))
    logit = log_score(jnp.sum(states * positive.vectors, axis=-1) + positive.bias, chosen, places)
    others = sampled_scores(states @ negative.vectors.T + negative.bias, drawn, places, count)
    others = jnp.broadcast_to(others, (*chosen.shape, number))
    counted = chosen[..., None] != drawn
    return calibrated_binary_error(logit, others, counted, number / count, config.gbce_calibration)


ITEM_LOSSES: Mapping[str, ItemLoss] = {"softmax": softmax, "gbce": gbce}


def next_item_loss(
    model: NextItemModel, config: Any, batch: Batch, facts: ItemFacts, key: jax.Array | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the error of the next items by `item_loss`; also the metrics."""
    noise, sample = (None, jax.random.key(0)) if key is None else jax.random.split(key)
    counted = None if key is None else targets_of(batch)  # an update learns from the log that was counted
    states, _, places = read_windows(model, facts, config, batch.data, config.dropout, noise, counted=counted)
    loss = batch.mean(config.item_loss(model, config, batch, facts, states, places, sample))
    return loss, {"imitation_loss": loss}
