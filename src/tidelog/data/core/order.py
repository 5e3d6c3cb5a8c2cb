"""Group rows into episodes and order them within each episode."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Order:
    """`rows` [N] maps episode order to file order; `episode`, `step`, `last` [N] are in episode order."""

    rows: Values
    episode: Values
    step: Values
    last: Values
    ids: Values
    key: Values | None

    @cached_property
    def moved(self) -> bool:
        """Whether any row changes its place."""
        return bool((self.rows[1:] < self.rows[:-1]).any())

    @cached_property
    def tied(self) -> Values:
        """[N] bool: rows with the same key as the row before, in the same episode."""
        tied = np.zeros(len(self.rows), bool)
        if self.key is not None and len(tied):
            tied[1:] = (self.key[1:] == self.key[:-1]) & ~self.last[:-1]
        return tied

    def sort(self, values: Values) -> Values:
        """Reorder values from file order to episode order."""
        return values[self.rows] if self.moved else values


def episode_order(count: int, episode: Values | None, words: tuple[str, ...] | None, key: Values | None) -> Order:
    """Group rows by episode (in the order of first appearance) and sort each by key; ties keep file order."""
    if episode is None:
        every = np.arange(count, dtype=np.int32)
        return Order(every, every, np.zeros(count, np.int32), np.ones(count, bool), np.arange(count), None)
    ordinal, ids = number_by_appearance(episode)
    rows = _sorted_rows(ordinal, key)
    moved = bool((rows[1:] < rows[:-1]).any())
    ordinal = ordinal[rows] if moved else ordinal
    last = np.append(ordinal[1:] != ordinal[:-1], True) if count else np.ones(0, bool)
    starts = np.flatnonzero(np.append(True, last[:-1])) if count else np.zeros(0, int)
    step = np.arange(count, dtype=np.int32)
    step -= np.repeat(starts.astype(np.int32), np.diff(np.append(starts, count)))
    named = np.asarray(words or ("",))[ids] if words is not None else ids
    return Order(rows, ordinal, step, last, named, key[rows] if key is not None and moved else key)


def number_by_appearance(values: Values) -> tuple[Values, Values]:
    """Number values [N] from 0 (int32) by first appearance; also return the distinct values in that order."""
    begins = np.append(True, values[1:] != values[:-1]) if len(values) else np.zeros(0, bool)
    runs = values[begins]
    if len(np.unique(runs)) == len(runs):
        return np.cumsum(begins, dtype=np.int32) - np.int32(1), runs
    ids, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    appearance = np.argsort(first, kind="stable")
    rank = np.empty(len(ids), np.int32)
    rank[appearance] = np.arange(len(ids), dtype=np.int32)
    return rank[inverse.reshape(-1)], ids[appearance]


def _sorted_rows(ordinal: Values, key: Values | None) -> Values:
    """Rows sorted by episode and key; no sort if they are in order already."""
    same = ordinal[1:] == ordinal[:-1]
    if bool((ordinal[1:] >= ordinal[:-1]).all()) and (key is None or bool((~same | (key[1:] >= key[:-1])).all())):
        return np.arange(len(ordinal), dtype=np.int32)
    return np.argsort(ordinal, kind="stable") if key is None else np.lexsort((key, ordinal))
