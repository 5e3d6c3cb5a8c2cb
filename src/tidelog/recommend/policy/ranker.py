"""Compiled ranking of a catalogue by an algorithm: search and order for `tidelog.runtime.ranking`."""

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
    """Return a ranker of item indices for histories; `supervised`: by likelihood only."""
    numbers = jax.tree.map(jnp.float32, algorithm)
    reading = Reading(
        table=np.asarray(_items(numbers, params), np.float32),
        queries=partial(_padded, partial(_seek, numbers, params)),
        score_items=partial(_padded, partial(_weigh, numbers, params)),
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
    return algorithm.queries(params, seen)


@eqx.filter_jit
def _weigh(algorithm: Any, params: Any, seen: Histories, found: Any, logits: Any, ideas: Any) -> Any:
    return algorithm.score_items(params, seen, found, logits, ideas)


def _padded(function: Callable[..., Any], seen: Histories, *arrays: NumpyArray) -> Any:
    """Call a compiled function of arrays [B, ...] with a padded batch, to reuse a compiled batch size."""
    count = len(seen.items)
    rows = min(ROWS, 1 << max(3, (count - 1).bit_length()))

    def padded(part: NumpyArray) -> NumpyArray:
        return np.concatenate([part, np.repeat(part[-1:], rows - count, axis=0)])

    return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], function(*jax.tree.map(padded, (seen, *arrays))))
