"""The best rows of a large table for each query: exact inner products, in chunks of the table.

A block of scores is one matrix product that stays in the processor's cache. Only scores above a query's k-th best score
so far are kept: in random order about `k` candidates each time the number of read rows doubles. Candidates are merged
then, or when there are many: the memory is bounded for every order.

Letters: `B` queries, `N` rows of the table, `D` width of vectors, `K` results, `C` rows of a chunk.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, SpecError

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
QUERIES = 256  # queries whose scores are in memory at once
CANDIDATES = 500_000  # largest number of candidates before a merge


def top_k(
    queries: Floats, table: Floats, k: int, allowed: Bools | None = None, chunk: int = 2048
) -> tuple[Integers, Floats]:
    """Return the rows of the table with the highest inner products, best first, ties by the lowest row: both [B, K].

    `queries` is [B, D], `table` [N, D], float32; `allowed` is [N] or [B, N]. Where fewer than `k` rows are allowed the
    rest is row 0 with a score of minus infinity. ConfigError where the table is smaller than `k`, SpecError where
    numbers are not finite.
    """
    queries, table = _checked(queries, table)
    _check_size(k, len(queries), len(table), allowed, chunk)
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
        part = table[first : first + chunk]
        if not np.isfinite(part.sum()):
            _check_finite(part, first)
        scores = np.matmul(queries, part.T, out=buffer[:, : len(part)] if len(part) == chunk else None)
        if allowed is not None:
            scores = np.where(allowed[..., first : first + chunk], scores, -np.inf).astype(np.float32)
        best.offer(scores, first)
        if first + chunk >= due:
            best.merge()
            due = 2 * (first + chunk)
    best.merge()


def _checked(queries: Any, table: Any) -> tuple[Floats, Floats]:
    queries, table = np.asarray(queries, np.float32), np.asarray(table, np.float32)
    if queries.ndim != 2 or table.ndim != 2 or queries.shape[1] != table.shape[1]:
        raise SpecError(
            f"queries {queries.shape} and table {table.shape}: expected [B, D] and [N, D]. fix: reshape them"
        )
    if not np.isfinite(queries).all():
        raise SpecError(
            f"query {int(np.flatnonzero(~np.isfinite(queries).all(1))[0])} is not finite. fix: use finite numbers"
        )
    return queries, table


def _check_size(k: int, queries: int, rows: int, allowed: Bools | None, chunk: int) -> None:
    if chunk < 1:
        raise ConfigError(f"chunk = {chunk}: expected at least 1. fix: use 2048")
    if allowed is not None and (allowed.dtype != bool or allowed.shape not in {(rows,), (queries, rows)}):
        raise SpecError(
            f"allowed is {allowed.dtype} {allowed.shape}, expected bool [{rows}] or [{queries}, {rows}]. "
            "fix: pass a mask"
        )
    if not 1 <= k <= rows:
        raise ConfigError(f"k = {k}: expected 1 to {rows}, the number of rows. fix: lower k")


def _check_finite(part: Floats, first: int) -> None:
    wrong = np.flatnonzero(~np.isfinite(part).all(1))
    if len(wrong):
        raise SpecError(f"row {first + int(wrong[0])} of the table is not finite. fix: use finite numbers")
