"""Ranking items of a catalogue by an algorithm, compiled: what `tidelog.runtime.ranking` searches and orders with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.runtime.ranking import ROWS, Ranker, Reading
from tidelog.types import Histories

NumpyArray = np.ndarray[Any, Any]


def ranker(algorithm: Any, params: Any, supervised: bool = False) -> Ranker:
    """What ranks item indices after histories; `supervised`: by likelihood alone."""
    numbers = jax.tree.map(jnp.float32, algorithm)
    reading = Reading(
        table=np.asarray(_items(numbers, params), np.float32),
        seek=partial(_padded, partial(_seek, numbers, params)),
        weigh=partial(_padded, partial(_weigh, numbers, params)),
        history=algorithm.history,
        kinds=len(params.recall.reader.events) - 1,
        features=0 if params.recall.reader.about is None else len(params.recall.reader.about),
        width=algorithm.candidates,
        q_weight=float(params.weight),
    )
    return Ranker(reading, supervised)


@eqx.filter_jit
def _items(algorithm: Any, params: Any) -> Any:
    return algorithm.all_items(params)


@eqx.filter_jit
def _seek(algorithm: Any, params: Any, seen: Histories) -> Any:
    return algorithm.seek(params, seen)


@eqx.filter_jit
def _weigh(algorithm: Any, params: Any, seen: Histories, found: Any, logits: Any, ideas: Any) -> Any:
    return algorithm.weigh(params, seen, found, logits, ideas)


def _padded(function: Callable[..., Any], seen: Histories, *arrays: NumpyArray) -> Any:
    """A compiled function of arrays [B, ...], called with a batch size that is compiled already, or will serve many."""
    count = len(seen.items)
    rows = min(ROWS, 1 << max(3, (count - 1).bit_length()))

    def longer(part: NumpyArray) -> NumpyArray:
        return np.concatenate([part, np.repeat(part[-1:], rows - count, axis=0)])

    return jax.tree.map(lambda made: np.asarray(made)[:count], function(*jax.tree.map(longer, (seen, *arrays))))
