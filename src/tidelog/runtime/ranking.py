"""Ranking items of a catalogue after histories, in numbers: exact search, then the order that an algorithm gives.

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
ROWS = 1024  # histories read at once
MARKS = 1 << 26  # marks of allowed items held at once


class Found(NamedTuple):
    """Items found for histories; `likelihood` is -inf where there is no item."""

    items: NumpyArray  # [B, K] int32
    likelihood: NumpyArray  # [B, K]: its logarithm, relative to the likeliest
    rating: NumpyArray  # [B, K]: standardised Q
    first: NumpyArray  # [B, K] bool: supported by the log


class Reading(NamedTuple):
    """How a policy reads histories: rows to search among, queries after histories, and what the items found are worth.

    `seek(histories)` gives queries [B, 1 + n, Q]; the first finds the likeliest items, the others what is imagined.
    `weigh(histories, found, logits, ideas)` gives likelihood, rating and support of found items, [B, K] each.
    """

    table: NumpyArray  # [N + 1, Q] float32
    seek: Callable[..., Any]
    weigh: Callable[..., Any]
    history: int  # H: how many steps are read
    kinds: int  # of events
    features: int  # F: how many numbers are read of a user
    width: int  # K: items that are looked at, at least
    q_weight: float  # of the rating in the score


class Ranker:
    """Ranks item indices after histories [B, H] of item indices, counted from 1 and left-padded with 0.

    `supervised` ranks by likelihood alone, as the reader of histories does without reinforcement learning.
    """

    def __init__(self, reading: Reading, supervised: bool = False) -> None:
        self._reading, self._supervised = reading, supervised

    @property
    def items(self) -> int:
        """N."""
        return len(self._reading.table) - 1

    @property
    def history(self) -> int:
        """H: how many steps are read."""
        return self._reading.history

    @property
    def features(self) -> int:
        """F: how many numbers are read of a user, 0 where nothing is."""
        return self._reading.features

    @property
    def width(self) -> int:
        """How many items are looked at for a list, at least."""
        return self._reading.width

    def rank(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        k: int,
        allowed: NumpyArray | None = None,
        users: NumpyArray | None = None,
    ) -> tuple[NumpyArray, NumpyArray]:
        """The best `k` items and their scores, [B, k] each; `allowed` [B, N + 1] bool. SpecError where there are fewer.

        `users` [B, F] describes them; without it nothing is known of anybody. Supported items come first, by
        likelihood and Q; the others follow by likelihood.
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
        """The likeliest allowed items and the nearest to what is imagined, with what they are worth."""
        seen, done = (fitted(part, self.history) for part in (histories, events))
        whole = Histories(seen, done, described(users, len(histories), self.features))
        parts = [
            self._find(Histories(*(part[i : i + ROWS] for part in whole)), k, allowed[i : i + ROWS])
            for i in range(0, len(histories), ROWS)
        ]
        return Found(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _find(self, seen: Histories, k: int, allowed: NumpyArray) -> Found:
        reading = self._reading
        queries = np.asarray(reading.seek(seen))
        found, ideas = self._search(queries, min(max(k, reading.width), self.items), allowed)
        there = np.take_along_axis(allowed, found, axis=1)
        vectors = reading.table[found]  # [B, K, Q]
        logits = np.where(there, np.einsum("bkq,bq->bk", vectors, queries[:, 0]), -np.inf).astype(np.float32)
        logits[_again(found)] = -np.inf
        likelihood, rating, first = (np.asarray(part) for part in reading.weigh(seen, found, logits, ideas))
        return Found(found, likelihood, rating, first)

    def _search(self, queries: NumpyArray, width: int, allowed: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        """Items [B, K] found by all queries, and which of them an idea has found (all, where there are none)."""
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
    """The best `k` of found items by likelihood plus `weight` times Q, supported ones first: items, scores [B, k].

    Scores fall along a list: those of items without support are lowered below those with it.
    """
    first = np.isfinite(found.likelihood) if supervised else found.first
    score = found.likelihood if supervised else found.likelihood + np.where(first, weight * found.rating, 0.0)
    least = np.min(np.where(first, score, np.inf), axis=1, keepdims=True)
    rest = np.where(first, -np.inf, score)
    gap = np.max(rest, axis=1, keepdims=True) - least
    lower = np.where(np.isfinite(gap), np.maximum(gap, 0.0), 0.0)
    score = np.where(first, score, np.minimum(score - lower, least))  # rounding lifts nothing above
    order = np.lexsort((found.items, -score, ~first), axis=1)[:, :k]
    items = np.take_along_axis(found.items, order, axis=1).astype(np.int32)
    return items, np.take_along_axis(score, order, axis=1).astype(np.float32)


def refuse_too_few(allowed: NumpyArray, k: int, before: int = 0) -> None:
    """SpecError unless every history has at least `k` items that may be recommended: allowed [B, N + 1]."""
    if k < 1:
        raise SpecError(f"k = {k}: expected a list of at least 1 item")
    counts = allowed[:, 1:].sum(axis=1)
    short = np.flatnonzero(counts < k)
    if len(short):
        raise SpecError(
            f"k = {k} items were asked for, history {before + int(short[0])} has {int(counts[short[0]])} candidates "
            f"({len(short)} histories have fewer than {k}): ask for fewer, allow more candidates, or exclude_seen=False"
        )


def check_histories(
    histories: NumpyArray, events: NumpyArray, allowed: NumpyArray | None, items: int, kinds: int
) -> None:
    """SpecError unless histories hold items and events that there are, padded alike, and `allowed` fits them."""
    if histories.ndim != 2 or histories.shape != events.shape:
        raise SpecError(f"histories and events must both be [B, H], found {histories.shape} and {events.shape}")
    if len(histories) == 0:
        raise SpecError("no history was handed in")
    if histories.size and (histories.min() < 0 or histories.max() > items):
        raise SpecError(f"histories hold item indices from 0 (none) to {items}, found {histories.max()}")
    if events.size and (events.min() < 0 or events.max() > kinds):
        raise SpecError(f"events are kinds of events from 0 (none) to {kinds}, found {events.max()}")
    if ((histories > 0) != (events > 0)).any():
        raise SpecError("where a history has an item it has a kind of event, and only there")
    if allowed is not None and allowed.shape != (len(histories), items + 1):
        raise SpecError(f"allowed must be [{len(histories)}, {items + 1}], found {list(allowed.shape)}")


def described(users: NumpyArray | None, rows: int, features: int) -> NumpyArray:
    """What describes users [B, F], zeros where nothing was said; SpecError where it does not fit what is read."""
    if users is None or not features:
        return np.zeros((rows, features), np.float32)
    if users.shape != (rows, features) or not np.isfinite(users).all():
        raise SpecError(f"users must be finite numbers [{rows}, {features}], found {list(users.shape)}")
    return users.astype(np.float32)


def _again(items: NumpyArray) -> NumpyArray:
    """[B, K] bool: items that stand further left in their row already."""
    order = np.argsort(items, axis=1, kind="stable")
    placed = np.take_along_axis(items, order, axis=1)
    same = np.concatenate([np.zeros((len(items), 1), bool), placed[:, 1:] == placed[:, :-1]], axis=1)
    again = np.zeros(items.shape, bool)
    np.put_along_axis(again, order, same, axis=1)
    return again


def fitted(histories: NumpyArray, length: int) -> NumpyArray:
    """The last `length` steps, left-padded."""
    kept = histories[:, -length:].astype(np.int32)
    return np.pad(kept, ((0, 0), (length - kept.shape[1], 0)))
