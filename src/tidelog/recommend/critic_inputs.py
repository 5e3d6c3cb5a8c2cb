"""The inputs of one critic update, and the negative items.

Letters: `B` batch, `T` targets, `D` item vector size, `S` items of a slate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.losses.next_item_losses import importance
from tidelog.recommend.networks.catalogue import Items
from tidelog.recommend.networks.sequence import Reader
from tidelog.recommend.next_item import ItemFacts, NextItemModel, read
from tidelog.recommend.windows import Visit


class CriticInputs(NamedTuple):
    """Inputs of one update: states [B, T, D] before and columns [B, T + 1, D] around the steps that count."""

    states: jax.Array
    around: jax.Array  # states before the first and after every step
    target_around: jax.Array  # the same from the target history encoder
    items: Items  # all
    vectors: jax.Array  # [B, T, D]: of the logged items


class Negatives(NamedTuple):
    """Items [B, T] that were not selected, and their weights."""

    vectors: jax.Array  # [B, T, D]
    target: jax.Array  # [B, T]
    weight: jax.Array  # [B, T]


def scene(recall: NextItemModel, target: Reader, known: ItemFacts, visit: Visit) -> CriticInputs:
    """Return the inputs, without gradient to the table or a history encoder."""
    items = recall.table(None, known.features)
    seen = read(recall, known, visit)
    later = read(NextItemModel(recall.table, target), known, visit)
    columns = visit.reward.shape[1] + 1
    inputs = CriticInputs(
        visit.states(seen), seen[:, -columns:], later[:, -columns:], items, items.vectors[visit.chosen]
    )
    result: CriticInputs = jax.tree.map(jax.lax.stop_gradient, inputs)
    return result


def passed_over(
    config: Any, state: Any, visit: Visit, seen: CriticInputs, value: jax.Array, key: jax.Array
) -> Negatives:
    """Return one item per step that was shown but not selected, or a random one; with `r = 0, s' = s`."""
    target = config.discount * value[:, :-1]
    if visit.slate is None:
        items = state.known.draw(key, visit.chosen.shape)
        weight = importance(state.known.log_share[items], state.known.log_drawn[items])
        valid = items != visit.chosen
    else:
        ignored = (visit.slate > 0) & (visit.slate != visit.chosen[..., None])
        valid = jnp.any(ignored, axis=-1)
        place = jax.random.categorical(key, jnp.where(ignored | ~valid[..., None], 0.0, -jnp.inf))
        items = jnp.take_along_axis(visit.slate, place[..., None], axis=-1)[..., 0]
        weight = jnp.ones_like(target)
    return Negatives(seen.items.vectors[items], target, jnp.where(valid, config.negative_weight * weight, 0.0))
