"""Ranking items of a catalogue for histories, by index: exact search, then the order of an algorithm.

Letters: `B` histories, `H` history length, `N` items, `K` items found, `Q` query size, `F` features of users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import SpecError
from tidelog.runtime.retrieval import top_k
from tidelog.types import Histories

NumpyArray = np.ndarray[Any, Any]
ROWS = 1024  # histories encoded at once
MARKS = 1 << 26  # entries of the mask of allowed items in memory at once


class Found(NamedTuple):
    """Items found for histories; `likelihood` is -inf where there is no item."""

    items: NumpyArray  # [B, K] int32
    likelihood: NumpyArray  # [B, K]: its logarithm, relative to the most likely item
    rating: NumpyArray  # [B, K]: standardised Q
    first: NumpyArray  # [B, K] bool: supported by the log


class Reading(NamedTuple):
    """The functions of a ranking policy: rows for the search, queries for histories, and scores of the items found.

    `queries(histories)` returns queries [B, 1 + n, Q]; the first finds the most likely items, the others generated
    ones.
    `score_items(histories, found, logits, ideas)` returns likelihood, value and support of found items, [B, K] each.
    """

    table: NumpyArray  # [N + 1, Q] float32
    queries: Callable[..., Any]
    score_items: Callable[..., Any]
    history: int  # H: number of steps of a history
    kinds: int  # number of event kinds
    features: int  # F: number of user features
    width: int  # K: smallest number of scored items
    q_weight: float  # weight of the value in the score


class Ranker:
    """Ranks item indices for histories [B, H] of item indices, counted from 1 and left-padded with 0.

    `supervised` ranks by likelihood only, as the history encoder without reinforcement learning.
    """

    def __init__(self, reading: Reading, supervised: bool = False) -> None:
        self._reading, self._supervised = reading, supervised

    @property
    def items(self) -> int:
        """N."""
        return len(self._reading.table) - 1

    @property
    def history(self) -> int:
        """H: the number of steps of a history."""
        return self._reading.history

    @property
    def features(self) -> int:
        """F: the number of user features, 0 for none."""
        return self._reading.features

    @property
    def width(self) -> int:
        """The smallest number of scored items for a list."""
        return self._reading.width

    def rank(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        k: int,
        allowed: NumpyArray | None = None,
        users: NumpyArray | None = None,
    ) -> tuple[NumpyArray, NumpyArray]:
        """Return the best `k` items and their scores, [B, k] each; `allowed` [B, N + 1] bool. SpecError for fewer.

        `users` [B, F] are user features; None means nothing is known. Supported items come first, by likelihood and Q;
        the others follow by likelihood.
        """
        check_histories(histories, events, allowed, self.items, self._reading.kinds)
        who = described(users, len(histories), self.features)
        most = max(1, MARKS // (self.items + 1))
        parts = []
        for begin in range(0, len(histories), most):
            rows = slice(begin, begin + most)
            marks = np.ones((len(histories[rows]), self.items + 1), bool) if allowed is None else allowed[rows].copy()
            marks[:, 0] = False
            refuse_too_few(marks, k, begin)
            found = self.find(histories[rows], events[rows], k, marks, who[rows])
            parts.append(ordered(found, k, 0.0 if self._supervised else self._reading.q_weight, self._supervised))
        items, scores = zip(*parts, strict=True)
        return np.concatenate(items), np.concatenate(scores)

    def find(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        k: int,
        allowed: NumpyArray,
        users: NumpyArray | None = None,
    ) -> Found:
        """Return the most likely allowed items and the nearest to generated vectors, with their scores."""
        seen, done = (fitted(part, self.history) for part in (histories, events))
        whole = Histories(seen, done, described(users, len(histories), self.features))
        parts = [
            self._find(Histories(*(part[i : i + ROWS] for part in whole)), k, allowed[i : i + ROWS])
            for i in range(0, len(histories), ROWS)
        ]
        return Found(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _find(self, seen: Histories, k: int, allowed: NumpyArray) -> Found:
        reading = self._reading
        queries = np.asarray(reading.queries(seen))
        found, ideas = self._search(queries, min(max(k, reading.width), self.items), allowed)
        valid = np.take_along_axis(allowed, found, axis=1)
        vectors = reading.table[found]  # [B, K, Q]
        logits = np.where(valid, np.einsum("bkq,bq->bk", vectors, queries[:, 0]), -np.inf).astype(np.float32)
        logits[_again(found)] = -np.inf
        likelihood, rating, first = (np.asarray(part) for part in reading.score_items(seen, found, logits, ideas))
        return Found(found, likelihood, rating, first)

    def _search(self, queries: NumpyArray, width: int, allowed: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        """Return items [B, K] of all queries, and which of them a generated vector found (all, without these)."""
        found, _ = top_k(queries[:, 0], self._reading.table, width, allowed)
        ideas = queries.shape[1] - 1
        if not ideas:
            return found, np.ones(found.shape, bool)
        near = max(1, -(-width // ideas))
        others = [top_k(queries[:, 1 + i], self._reading.table, near, allowed)[0] for i in range(ideas)]
        imagined = np.concatenate(others, axis=1)
        marks = np.repeat(np.asarray([True, False]), [imagined.shape[1], found.shape[1]])
        return np.concatenate([imagined, found], axis=1), np.broadcast_to(marks, (len(found), len(marks)))


def ordered(found: Found, k: int, weight: float, supervised: bool = False) -> tuple[NumpyArray, NumpyArray]:
    """Return the best `k` found items by likelihood plus `weight` times Q, supported ones first: items, scores [B, k].

    Scores decrease along a list: those of unsupported items are lowered below the supported ones.
    """
    first = np.isfinite(found.likelihood) if supervised else found.first
    score = found.likelihood if supervised else found.likelihood + np.where(first, weight * found.rating, 0.0)
    least = np.min(np.where(first, score, np.inf), axis=1, keepdims=True)
    rest = np.where(first, -np.inf, score)
    gap = np.max(rest, axis=1, keepdims=True) - least
    lower = np.where(np.isfinite(gap), np.maximum(gap, 0.0), 0.0)
    score = np.where(first, score, np.minimum(score - lower, least))  # rounding must not lift a score above
    order = np.lexsort((found.items, -score, ~first), axis=1)[:, :k]
    items = np.take_along_axis(found.items, order, axis=1).astype(np.int32)
    return items, np.take_along_axis(score, order, axis=1).astype(np.float32)


def refuse_too_few(allowed: NumpyArray, k: int, before: int = 0) -> None:
    """Raise SpecError unless every history has at least `k` allowed items: allowed [B, N + 1]."""
    if k < 1:
        raise SpecError(f"k = {k}: expected at least 1. fix: use k=10")
    counts = allowed[:, 1:].sum(axis=1)
    short = np.flatnonzero(counts < k)
    if len(short):
        raise SpecError(
            f"k = {k}, but history {before + int(short[0])} has only {int(counts[short[0]])} candidates "
            f"({len(short)} histories have fewer than {k}). fix: lower k, allow more candidates, or exclude_seen=False"
        )


def check_histories(
    histories: NumpyArray, events: NumpyArray, allowed: NumpyArray | None, items: int, kinds: int
) -> None:
    """Raise SpecError unless histories hold valid items and events, padded alike, and `allowed` has their shape."""
    if histories.ndim != 2 or histories.shape != events.shape:
        raise SpecError(
            f"histories and events have shapes {histories.shape} and {events.shape}, expected [B, H]. fix: reshape them"
        )
    if len(histories) == 0:
        raise SpecError("no history, expected at least one. fix: pass a history")
    if histories.size and (histories.min() < 0 or histories.max() > items):
        raise SpecError(f"histories have {histories.max()}, expected item indices 0 (none) to {items}. fix: use these")
    if events.size and (events.min() < 0 or events.max() > kinds):
        raise SpecError(f"events have {events.max()}, expected kinds 0 (none) to {kinds}. fix: use these")
    if ((histories > 0) != (events > 0)).any():
        raise SpecError("items and events have different padding. fix: one kind of event for each item")
    if allowed is not None and allowed.shape != (len(histories), items + 1):
        raise SpecError(
            f"allowed has shape {list(allowed.shape)}, expected [{len(histories)}, {items + 1}]. fix: reshape it"
        )


def described(users: NumpyArray | None, rows: int, features: int) -> NumpyArray:
    """Return user features [B, F], zeros where nothing is known; SpecError for another shape."""
    if users is None or not features:
        return np.zeros((rows, features), np.float32)
    if users.shape != (rows, features) or not np.isfinite(users).all():
        raise SpecError(
            f"users have shape {list(users.shape)}, expected finite [{rows}, {features}]. fix: reshape them"
        )
    return users.astype(np.float32)


def _again(items: NumpyArray) -> NumpyArray:
    """[B, K] bool: items that are also further left in their row."""
    order = np.argsort(items, axis=1, kind="stable")
    placed = np.take_along_axis(items, order, axis=1)
    same = np.concatenate([np.zeros((len(items), 1), bool), placed[:, 1:] == placed[:, :-1]], axis=1)
    again = np.zeros(items.shape, bool)
    np.put_along_axis(again, order, same, axis=1)
    return again


def fitted(histories: NumpyArray, length: int) -> NumpyArray:
    """Return the last `length` steps, left-padded."""
    steps = histories[:, -length:].astype(np.int32)
    return np.pad(steps, ((0, 0), (length - steps.shape[1], 0)))
