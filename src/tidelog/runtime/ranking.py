"""Ranking items of a catalogue for histories, by index: exact search, then the order of an algorithm.

The search returns the rows of a table with the highest inner products, in chunks of the table. A block of scores is one
matrix product that stays in the processor's cache. Only scores above a query's k-th best score so far are stored: in
random order about `k` candidates each time the number of read rows doubles. Candidates are merged then, or when there
are many: the memory is bounded for every order.

Letters: `B` histories or queries, `H` history length, `N` items or rows of the table, `K` items found, `Q` or `D` width
of queries and rows, `C` rows of a chunk, `F` features of users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, SpecError
from tidelog.runtime.stopping import check
from tidelog.types import Histories

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
QUERIES = 256  # queries whose scores are in memory at once
CANDIDATES = 500_000  # largest number of candidates before a merge
NumpyArray = np.ndarray[Any, Any]
ROWS = 1024  # histories encoded at once
GAPS = 128  # groups of time gaps: unknown, none, then two for each doubling from 2**-20 units to 2**42
MARKS = 1 << 26  # entries of the mask of allowed items in memory at once


class Found(NamedTuple):
    """Items found for histories; `likelihood` is -inf where there is no item."""

    items: NumpyArray  # [B, K] int32
    likelihood: NumpyArray  # [B, K]: its logarithm, relative to the most likely item
    rating: NumpyArray  # [B, K]: standardised Q
    first: NumpyArray  # [B, K] bool: supported by the log


class RankingFunctions(NamedTuple):
    """The functions of a ranking policy: rows for the search, queries for histories, and scores of the items found.

    `queries(histories)` returns queries [B, 1 + n, Q]; the first finds the most likely items, the others generated
    ones.
    `score_items(histories, found, logits, ideas)` returns likelihood, value and support of found items, [B, K] each.
    `places(histories)` returns items and scores [B, P] of places beside the catalogue: events whose items can be
    repeated, and counted successors of the last one; None: there are none.
    """

    table: NumpyArray  # [N + 1, Q] float32
    queries: Callable[..., Any]
    score_items: Callable[..., Any]
    places: Callable[..., tuple[Any, Any]] | None
    history: int  # H: number of steps of a history
    kinds: int  # number of event kinds
    features: int  # F: number of user features
    width: int  # K: smallest number of scored items
    q_weight: float  # weight of the value in the score
    repeat_share: float  # share of the log's events whose item the user had before
    reads_gaps: bool = False  # whether histories need time gaps
    known_users: int = 0  # number of users with a vector of their own


class Ranker:
    """Ranks item indices for histories [B, H] of item indices, counted from 1 and left-padded with 0.

    `supervised` ranks by likelihood only, as the history encoder without reinforcement learning.
    """

    def __init__(self, functions: RankingFunctions, supervised: bool = False) -> None:
        self._functions, self._supervised = functions, supervised

    @property
    def items(self) -> int:
        """N."""
        return len(self._functions.table) - 1

    @property
    def history(self) -> int:
        """H: the number of steps of a history."""
        return self._functions.history

    @property
    def features(self) -> int:
        """F: the number of user features, 0 for none."""
        return self._functions.features

    @property
    def reads_gaps(self) -> bool:
        """Whether lists depend on the times between events, and until now."""
        return self._functions.reads_gaps

    @property
    def known_users(self) -> int:
        """The number of users with a vector of their own; 0: who the user is has no effect."""
        return self._functions.known_users

    @property
    def repeat_share(self) -> float:
        """The share of the log's events whose item the user had before."""
        return self._functions.repeat_share

    @property
    def width(self) -> int:
        """The smallest number of scored items for a list."""
        return self._functions.width

    def rank(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        k: int,
        allowed: NumpyArray | None = None,
        users: NumpyArray | None = None,
        gaps: NumpyArray | None = None,
        user_index: NumpyArray | None = None,
    ) -> tuple[NumpyArray, NumpyArray]:
        """Return the best `k` items and their scores, [B, k] each; `allowed` [B, N + 1] bool. SpecError for fewer.

        `users` [B, F] are user features, `gaps` [B, H] groups of time gaps, `user_index` [B] places of users among the
        policy's, counted from 1; None means nothing is known. Supported items come first, by likelihood and Q; the
        others follow by likelihood.
        """
        check_histories(histories, events, allowed, self.items, self._functions.kinds)
        who = user_array(users, len(histories), self.features)
        places = user_places(user_index, len(histories), self.known_users)
        most = max(1, MARKS // (self.items + 1))
        parts = []
        for begin in range(0, len(histories), most):
            rows = slice(begin, begin + most)
            marks = np.ones((len(histories[rows]), self.items + 1), bool) if allowed is None else allowed[rows].copy()
            marks[:, 0] = False
            refuse_too_few(marks, k, begin)
            later = None if gaps is None else gaps[rows]
            found = self.find(histories[rows], events[rows], k, marks, who[rows], later, places[rows])
            parts.append(order_found(found, k, 0.0 if self._supervised else self._functions.q_weight, self._supervised))
        items, scores = zip(*parts, strict=True)
        return np.concatenate(items), np.concatenate(scores)

    def whole(self) -> Ranker:
        """Return this ranker: it has item vectors, likelihoods, and lists of any length."""
        return self

    @property
    def vectors(self) -> NumpyArray:
        """The items' vectors [N + 1, D] of length 1; row 0 is no item."""
        return self._functions.table[:, :-1]

    def log_likelihood(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        items: NumpyArray,
        users: NumpyArray | None = None,
        gaps: NumpyArray | None = None,
        user_index: NumpyArray | None = None,
    ) -> NumpyArray:
        """Return the log-likelihood of items [B, K] after histories [B, H], over the whole catalogue."""
        check_histories(histories, events, None, self.items, self._functions.kinds)
        whole = self._whole(histories, events, users, gaps, user_index)
        parts = [
            self._log_likelihood(whole.part(slice(i, i + QUERIES)), items[i : i + QUERIES])
            for i in range(0, len(histories), QUERIES)
        ]
        return np.concatenate(parts)

    def _log_likelihood(self, seen: Histories, items: NumpyArray) -> NumpyArray:
        queries = np.asarray(self._functions.queries(seen))
        places = self._places(seen)
        logits = queries[:, 0] @ self._functions.table[1:].T  # [B, N]
        if places is not None:
            logits = np.concatenate([logits, places[1]], axis=1)
        top = logits.max(axis=1, keepdims=True)
        total = top + np.log(np.exp(logits - top, dtype=np.float64).sum(axis=1, keepdims=True))
        own = np.einsum("bkq,bq->bk", self._functions.table[items], queries[:, 0])
        if places is not None:
            own = np.logaddexp(own, sums_of_places(items, *places, self.items))
        return np.asarray(own - total)

    def _places(self, seen: Histories) -> tuple[NumpyArray, NumpyArray] | None:
        """Return items and scores [B, P] of the places beside the catalogue; None where there are none."""
        places = self._functions.places
        if places is None:
            return None
        items, scores = places(seen)
        return np.asarray(items), np.asarray(scores)

    def find(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        k: int,
        allowed: NumpyArray,
        users: NumpyArray | None = None,
        gaps: NumpyArray | None = None,
        user_index: NumpyArray | None = None,
    ) -> Found:
        """Return the most likely allowed items and the nearest to generated vectors, with their scores."""
        whole = self._whole(histories, events, users, gaps, user_index)
        parts = [
            self._find(whole.part(slice(i, i + ROWS)), k, allowed[i : i + ROWS]) for i in range(0, len(histories), ROWS)
        ]
        return Found(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _whole(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        users: NumpyArray | None,
        gaps: NumpyArray | None,
        user_index: NumpyArray | None,
    ) -> Histories:
        """Return the last `history` steps of histories, left-padded."""
        seen, done = (fit_length(part, self.history) for part in (histories, events))
        later = fit_length(gap_array(gaps, histories), self.history) if self.reads_gaps else None
        who = user_places(user_index, len(histories), self.known_users) if self.known_users else None
        return Histories(seen, done, user_array(users, len(histories), self.features), later, who)

    def _find(self, seen: Histories, k: int, allowed: NumpyArray) -> Found:
        functions = self._functions
        queries, width = np.asarray(functions.queries(seen)), min(max(k, functions.width), self.items)
        places = self._places(seen)
        found, _ = top_k(queries[:, 0], functions.table, width, allowed)
        if places is not None:  # an item outside of both is not among the best
            found = np.concatenate([places[0], found], axis=1)
            logits = self._logits(queries, found, allowed, places)
            found = np.take_along_axis(found, np.lexsort((found, -logits), axis=1)[:, :width], axis=1)
        ideas = np.ones(found.shape, bool)
        if queries.shape[1] > 1:
            generated = self._generated(queries[:, 1:], width, allowed)
            ideas = np.pad(np.ones(generated.shape, bool), ((0, 0), (0, found.shape[1])))
            found = np.concatenate([generated, found], axis=1)
        logits = self._logits(queries, found, allowed, places)
        likelihood, rating, first = (np.asarray(part) for part in functions.score_items(seen, found, logits, ideas))
        return Found(found, likelihood, rating, first)

    def _logits(
        self,
        queries: NumpyArray,
        found: NumpyArray,
        allowed: NumpyArray,
        places: tuple[NumpyArray, NumpyArray] | None,
    ) -> NumpyArray:
        """Return the logits [B, K] of found items; -inf for forbidden ones, and for all but the first of a row."""
        valid = np.take_along_axis(allowed, found, axis=1) & ~_again(found)
        logits = np.einsum("bkq,bq->bk", self._functions.table[found], queries[:, 0])
        if places is not None:
            logits = np.logaddexp(logits, sums_of_places(found, *places, self.items))
        return np.where(valid, logits, -np.inf).astype(np.float32)

    def _generated(self, queries: NumpyArray, width: int, allowed: NumpyArray) -> NumpyArray:
        """Return the nearest items to generated vectors [B, n, Q], at least `width` of them."""
        near = max(1, -(-width // queries.shape[1]))
        parts = [top_k(queries[:, i], self._functions.table, near, allowed)[0] for i in range(queries.shape[1])]
        return np.concatenate(parts, axis=1)


def sums_of_places(found: NumpyArray, items: NumpyArray, scores: NumpyArray, count: int) -> NumpyArray:
    """Return the log of the summed exponentials of found items' scores [B, K] over places, items and scores [B, P].

    -inf for items without a place; items are 0 .. `count`.
    """
    top = scores.max(axis=1, keepdims=True)
    row = np.arange(len(items), dtype=np.int64)[:, None] * (count + 1)
    keys, place = np.unique(row + items, return_inverse=True)
    sums = np.bincount(place.ravel(), np.exp(scores - top, dtype=np.float64).ravel())
    at = np.minimum(np.searchsorted(keys, row + found), len(keys) - 1)
    there = keys[at] == row + found
    return np.where(there, top + np.log(np.maximum(sums[at], 1e-300)), -np.inf)


def order_found(found: Found, k: int, weight: float, supervised: bool = False) -> tuple[NumpyArray, NumpyArray]:
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
        several = "1 history has" if len(short) == 1 else f"{len(short)} histories have"
        raise SpecError(
            f"k = {k}, but history {before + int(short[0])} has only {int(counts[short[0]])} candidates "
            f"({several} fewer than {k}). fix: lower k, allow more candidates, or exclude_seen=False "
            "(--exclude-seen no)"
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


def user_array(users: NumpyArray | None, rows: int, features: int) -> NumpyArray:
    """Return user features [B, F], zeros where nothing is known; SpecError for another shape."""
    if users is None or not features:
        return np.zeros((rows, features), np.float32)
    if users.shape != (rows, features) or not np.isfinite(users).all():
        raise SpecError(
            f"users have shape {list(users.shape)}, expected finite [{rows}, {features}]. fix: reshape them"
        )
    return users.astype(np.float32)


def user_places(user_index: NumpyArray | None, rows: int, known: int) -> NumpyArray:
    """Return places of users [B] int32, zeros where nothing is known; SpecError for another shape or place."""
    if user_index is None or not known:
        return np.zeros(rows, np.int32)
    if user_index.shape != (rows,) or (rows and (user_index.min() < 0 or user_index.max() > known)):
        raise SpecError(
            f"user_index has shape {list(user_index.shape)} and values up to {user_index.max(initial=0)}: expected "
            f"[{rows}] of 0 (unknown) to {known}. fix: use the places of the policy's own users"
        )
    return user_index.astype(np.int32)


def gap_array(gaps: NumpyArray | None, histories: NumpyArray) -> NumpyArray:
    """Return groups of time gaps [B, H], zeros where nothing is known; SpecError for another shape or group."""
    if gaps is None:
        return np.zeros(histories.shape, np.int32)
    if gaps.shape != histories.shape or (gaps.size and (gaps.min() < 0 or gaps.max() >= GAPS)):
        raise SpecError(
            f"gaps have shape {list(gaps.shape)}: expected {list(histories.shape)} of groups 0 to {GAPS - 1}. "
            "fix: use gap_groups"
        )
    return gaps


def _again(items: NumpyArray) -> NumpyArray:
    """[B, K] bool: items that are also further left in their row."""
    order = np.argsort(items, axis=1, kind="stable")
    placed = np.take_along_axis(items, order, axis=1)
    same = np.concatenate([np.zeros((len(items), 1), bool), placed[:, 1:] == placed[:, :-1]], axis=1)
    again = np.zeros(items.shape, bool)
    np.put_along_axis(again, order, same, axis=1)
    return again


def fit_length(histories: NumpyArray, length: int) -> NumpyArray:
    """Return the last `length` steps, left-padded."""
    steps = histories[:, -length:].astype(np.int32)
    return np.pad(steps, ((0, 0), (length - steps.shape[1], 0)))


# Exact search.


def top_k(
    queries: Floats, table: Floats, k: int, allowed: Bools | None = None, chunk: int = 2048
) -> tuple[Integers, Floats]:
    """Return the rows of the table with the highest inner products, best first, ties by the lowest row: both [B, K].

    `queries` is [B, D], `table` [N, D], float32; `allowed` is [N] or [B, N]. Where fewer than `k` rows are allowed the
    rest is row 0 with a score of minus infinity. ConfigError where the table is smaller than `k`, SpecError where
    numbers are not finite.
    """
    queries, table = _check_search(queries, table, k, allowed, chunk)
    results = [np.zeros((0, k), np.int64)], [np.zeros((0, k), np.float32)]
    for begin in range(0, len(queries), QUERIES):
        part = slice(begin, begin + QUERIES)
        mine = allowed[part] if allowed is not None and allowed.ndim == 2 else allowed
        best = _Best(len(queries[part]), k)
        _scan(queries[part], table, mine, chunk, best)
        results[0].append(best.places)
        results[1].append(best.scores)
    return np.concatenate(results[0]), np.concatenate(results[1])


class _Best:
    """The best `k` scores so far, [B, K], and candidates before their merge."""

    def __init__(self, rows: int, k: int) -> None:
        self.places = np.zeros((rows, k), np.int64)
        self.scores = np.full((rows, k), -np.inf, np.float32)
        self._candidates: list[tuple[Integers, Integers, Floats]] = []
        self._many = 0

    def offer(self, scores: Floats, first: int) -> None:
        """Add scores [B, C] of the rows of the table from `first` on; the earlier row wins a tie."""
        rows, k = self.scores.shape
        better = scores > self.scores[:, -1:]
        at = np.flatnonzero(better)
        if len(at) > 8 * rows * k and scores.shape[1] > k:
            least = np.partition(scores, -k, axis=1)[:, -k:][:, :1]
            at = np.flatnonzero(better & (scores >= least))
        if len(at):
            self._candidates.append((at // scores.shape[1], at % scores.shape[1] + first, scores.ravel()[at]))
            self._many += len(at)
        if self._many > CANDIDATES:
            self.merge()

    def merge(self) -> None:
        """Merge the candidates into the best scores."""
        if not self._candidates:
            return
        rows, k = self.scores.shape
        known = (np.repeat(np.arange(rows), k), self.places.ravel(), self.scores.ravel())
        row, place, score = (np.concatenate(parts) for parts in zip(known, *self._candidates, strict=True))
        order = np.lexsort((place, -score, row))
        within = np.arange(len(row)) - np.searchsorted(row[order], row[order])
        order = order[within < k]
        self.places, self.scores = place[order].reshape(rows, k), score[order].reshape(rows, k)
        self._candidates, self._many = [], 0


def _scan(queries: Floats, table: Floats, allowed: Bools | None, chunk: int, best: _Best) -> None:
    buffer = np.empty((len(queries), min(chunk, len(table))), np.float32)
    due = chunk
    for first in range(0, len(table), chunk):
        check()
        part = table[first : first + chunk]
        with np.errstate(over="ignore", invalid="ignore"):  # finite rows may still have an infinite sum
            total = part.sum()
        if not np.isfinite(total):
            wrong = np.flatnonzero(~np.isfinite(part).all(1))
            if len(wrong):
                raise SpecError(f"row {first + int(wrong[0])} of the table is not finite. fix: use finite numbers")
        scores = np.matmul(queries, part.T, out=buffer[:, : len(part)] if len(part) == chunk else None)
        if allowed is not None:
            scores = np.where(allowed[..., first : first + chunk], scores, -np.inf).astype(np.float32)
        best.offer(scores, first)
        if first + chunk >= due:
            best.merge()
            due = 2 * (first + chunk)
    best.merge()


def _check_search(queries: Any, table: Any, k: int, allowed: Bools | None, chunk: int) -> tuple[Floats, Floats]:
    """Return queries and table as float32; SpecError or ConfigError for invalid arguments of a search."""
    queries, table = np.asarray(queries, np.float32), np.asarray(table, np.float32)
    if queries.ndim != 2 or table.ndim != 2 or queries.shape[1] != table.shape[1]:
        raise SpecError(
            f"queries {queries.shape} and table {table.shape}: expected [B, D] and [N, D]. fix: reshape them"
        )
    if not np.isfinite(queries).all():
        raise SpecError(
            f"query {int(np.flatnonzero(~np.isfinite(queries).all(1))[0])} is not finite. fix: use finite numbers"
        )
    if chunk < 1:
        raise ConfigError(f"chunk = {chunk}: expected at least 1. fix: use 2048")
    if allowed is not None and (
        allowed.dtype != bool or allowed.shape not in {(len(table),), (len(queries), len(table))}
    ):
        raise SpecError(
            f"allowed is {allowed.dtype} {allowed.shape}, expected bool [{len(table)}] or "
            f"[{len(queries)}, {len(table)}]. fix: pass a mask"
        )
    if not 1 <= k <= len(table):
        raise ConfigError(f"k = {k}: expected 1 to {len(table)}, the number of rows. fix: lower k")
    return queries, table
