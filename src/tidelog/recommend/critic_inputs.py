"""What one update of a recommender's critics sees, and the items that were not taken in it.

Letters: `B` batch, `T` targets, `D` item vector size, `S` items of a slate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.losses.next_item_losses import importance
from tidelog.recommend.networks.catalogue import Items
from tidelog.recommend.networks.sequence import Reader
from tidelog.recommend.next_item import Facts, Recall, read
from tidelog.recommend.windows import Visit


class Scene(NamedTuple):
    """What one update sees: states [B, T, D] before and columns [B, T + 1, D] around the steps that count."""

    states: jax.Array
    around: jax.Array  # what the reader tells before the first and after every step
    target_around: jax.Array  # the same by the target reader
    items: Items  # all
    vectors: jax.Array  # [B, T, D]: of the logged items


class Negatives(NamedTuple):
    """Items [B, T] that were not taken, and how much each counts."""

    vectors: jax.Array  # [B, T, D]
    target: jax.Array  # [B, T]
    weight: jax.Array  # [B, T]


def scene(recall: Recall, target: Reader, known: Facts, visit: Visit) -> Scene:
    """What the networks see, with no gradient to the table or a reader."""
    items = recall.table(None, known.features)
    seen = read(recall, known, visit)
    later = read(Recall(recall.table, target), known, visit)
    columns = visit.reward.shape[1] + 1
    made = Scene(visit.states(seen), seen[:, -columns:], later[:, -columns:], items, items.vectors[visit.chosen])
    held: Scene = jax.tree.map(jax.lax.stop_gradient, made)
    return held


def passed_over(config: Any, state: Any, visit: Visit, seen: Scene, value: jax.Array, key: jax.Array) -> Negatives:
    """For each step one item that was shown and not taken, or else drawn; with `r = 0, s' = s`."""
    target = config.discount * value[:, :-1]
    if visit.slate is None:
        drawn = state.known.draw(key, visit.chosen.shape)
        weight = importance(state.known.log_share[drawn], state.known.log_drawn[drawn])
        there = drawn != visit.chosen
    else:
        ignored = (visit.slate > 0) & (visit.slate != visit.chosen[..., None])
        there = jnp.any(ignored, axis=-1)
        place = jax.random.categorical(key, jnp.where(ignored | ~there[..., None], 0.0, -jnp.inf))
        drawn = jnp.take_along_axis(visit.slate, place[..., None], axis=-1)[..., 0]
        weight = jnp.ones_like(target)
    return Negatives(seen.items.vectors[drawn], target, jnp.where(there, config.negative_weight * weight, 0.0))
