"""Lists after the ranking: more diverse ones, and the item of the history that each recommendation depends on most.

Letters: `B` histories, `P` items of a pool, `K` length of a list, `D` item vector size, `V` variants of a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tidelog.runtime.ranking import Ranker
from tidelog.runtime.stopping import check

NumpyArray = np.ndarray[Any, Any]
NUMBERS = 1 << 24  # numbers of the vectors of pools in memory at once
POOL, LEAST_POOL = 4, 50  # a more diverse list is chosen among so many times its length, and at least so many items
MOST_REASONS = 50  # last different items of a history that can be a reason


class Reasons(NamedTuple):
    """For each recommended item the item of the history without which it would be least likely; None without one."""

    items: NumpyArray  # [B, K] objects
    times: NumpyArray  # [B, K] float32: how many times likelier the recommended item is with it, 1 without a reason


def pool_size(k: int, allowed: NumpyArray) -> int:
    """Return the number of items that a diverse list of `k` is chosen among: allowed [B, N + 1] bool."""
    return int(min(max(POOL * k, LEAST_POOL), allowed[:, 1:].sum(axis=1).min()))


def diverse(items: NumpyArray, scores: NumpyArray, vectors: NumpyArray, k: int, weight: float) -> tuple[Any, Any]:
    """Return `k` of the items [B, P] and their scores, [B, K] each, one after the other by marginal relevance.

    It is `(1 - weight) relevance - weight s`, the score scaled to [0, 1] over the pool, and `s` the largest inner
    product of the item's vector [D] of length 1 with those chosen before (Carbonell and Goldstein 1998,
    doi:10.1145/290941.291025). `vectors` [N + 1, D] belong to all items.
    """
    most = max(1, NUMBERS // max(1, items.shape[1] * vectors.shape[1]))
    parts = [
        _diverse(items[begin : begin + most], scores[begin : begin + most], vectors, k, weight)
        for begin in range(0, len(items), most)
    ]
    chosen, kept = zip(*parts, strict=True)
    return np.concatenate(chosen), np.concatenate(kept)


def _diverse(items: NumpyArray, scores: NumpyArray, vectors: NumpyArray, k: int, weight: float) -> tuple[Any, Any]:
    """Return the lists of some rows; see `diverse`."""
    rows = np.arange(len(items))
    width = scores[:, :1] - scores[:, -1:]
    relevance = (scores - scores[:, -1:]) / np.where(width > 0.0, width, 1.0)
    near = np.full(items.shape, -1.0)  # the largest similarity to an item of the list; no item: the smallest possible
    free = np.ones(items.shape, bool)
    order = np.zeros((len(items), k), np.int64)
    directions = vectors[items]  # [B, P, D]
    for place in range(k):
        check()
        value = np.where(free, (1.0 - weight) * relevance - weight * near, -np.inf)
        order[:, place] = best = value.argmax(axis=1)
        free[rows, best] = False
        near = np.maximum(near, np.einsum("bpd,bd->bp", directions, directions[rows, best]))
    return np.take_along_axis(items, order, axis=1), np.take_along_axis(scores, order, axis=1)


def reasons(
    ranker: Ranker,
    histories: Sequence[Sequence[int]],
    kinds: Sequence[Sequence[int]],
    items: NumpyArray,
    users: Any,
    gaps: Sequence[Sequence[int]] | None = None,
    user_index: NumpyArray | None = None,
) -> tuple[NumpyArray, NumpyArray]:
    """Return an item of each history, 0 for none, and how many times likelier it makes recommended items [B, K].

    Each item of the history is left out in turn, with all of its events: the reason is the one without which the
    recommended item has the lowest likelihood, if it is lower than with it. Q is not part of it. `users` is [B, F] or
    None, `user_index` [B] or None; an event that stays keeps its group of `gaps`.
    """
    found, times = np.zeros(items.shape, np.int64), np.ones(items.shape, np.float32)
    for i, (history, kind) in enumerate(zip(histories, kinds, strict=True)):
        check()
        seen, done = np.asarray(history[-ranker.history :], np.int32), np.asarray(kind[-ranker.history :], np.int32)
        latest = list(dict.fromkeys(seen[::-1].tolist()))[:MOST_REASONS]
        if not latest:
            continue
        later = np.zeros(len(seen), np.int32) if gaps is None else np.asarray(gaps[i][-ranker.history :], np.int32)
        variants = [np.zeros((1 + len(latest), len(seen)), np.int32) for _ in range(3)]
        for row, left_out in enumerate((0, *latest)):
            others = seen != left_out
            count = int(others.sum())
            for to, values in zip(variants, (seen, done, later), strict=True):
                to[row, len(seen) - count :] = values[others]
        who, place = (
            None if one is None else np.repeat(one[i : i + 1], len(variants[0]), axis=0) for one in (users, user_index)
        )
        listed = np.repeat(items[i : i + 1], len(variants[0]), axis=0)
        likelihood = ranker.log_likelihood(variants[0], variants[1], listed, who, variants[2], place)
        loss = likelihood[0] - likelihood[1:]  # [V - 1, K]
        largest = loss.argmax(axis=0)
        gain = np.take_along_axis(loss, largest[None], axis=0)[0]
        found[i] = np.where(gain > 0.0, np.asarray(latest)[largest], 0)
        times[i] = np.exp(np.clip(gain, 0.0, 80.0))
    return found, times
