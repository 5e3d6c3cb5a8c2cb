"""The best rule of at most two questions for scores of actions: an exact search over trees of depth two.

A score says how good each action is in each row; the value of a rule is the sum of the scores of its actions. Questions
about a number compare it with one of 32 quantiles (all values, if there are fewer); questions about words ask for one
of the 32 most frequent words. Every first question is tried with every second one on both sides: sums of scores by the
bins of two columns hold everything that is needed, so that rows are read once for each pair of columns (exact policy
trees: Zhou, Athey & Wager 2023, "Offline Multi-Action Policy Learning").

How many questions are asked is chosen by cross-validation, ties by fewer: the best tree of the training rows is always
at least as good there as a simpler one.

Letters: `N` rows, `A` actions, `K` bins of a column, `S` questions about it, `F` folds, `G = F + 1` sets of rows (all
rows, then all but one fold each).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.runtime.rule import Place, Question, Tree, columns_of, follow
from tidelog.types import Codes, Spec

Floats = NDArray[np.float64]
QUESTIONS = 32  # most questions about one column
MOST_COLUMNS = 32  # searched in pairs: those with the best single questions
SMALLEST = 0.01  # least share of the rows of an action of a tree
ROUNDING = 1e-9  # of the sum of absolute scores: a difference below it is a tie


class BinnedColumn(NamedTuple):
    """One column of the observation, in bins."""

    position: Place
    bins: NDArray[np.int64]  # [N]
    size: int  # K
    cuts: tuple[float, ...]  # [S] thresholds of numbers; () of words
    codes: tuple[int, ...]  # [S] of words; () of numbers

    def yes_sums(self, sums: Floats, axis: int) -> Floats:
        """Sums on the side of yes of each question, from sums by bin: the axis of K becomes one of S.

        A number is below a threshold in all bins up to one; a word has a bin of its own.
        """
        sums = sums.cumsum(axis) if self.cuts else sums
        return sums[(slice(None),) * axis + (slice(len(self.cuts or self.codes)),)]

    def question(self, number: int, yes: Tree, no: Tree) -> Question:
        """The question with this number, and what follows its answers."""
        below = self.cuts[number] if self.cuts else None
        return Question(self.position, below, None if self.cuts else self.codes[number], yes, no)


def best_trees(
    leaves: Mapping[str, NDArray[Any]], spec: Spec, scores: Floats, folds: NDArray[np.int64]
) -> tuple[Tree, Tree]:
    """The best single action, and the best tree of as many questions as cross-validation asks, at most two.

    `leaves` [N, ...] are raw observations, `scores` is [N, A], `folds` [N] from 0.
    """
    columns = [
        binned for position in columns_of(spec).values() if (binned := bin_column(leaves, spec, position)) is not None
    ]
    search = _Search(scores, folds)
    if len(columns) > MOST_COLUMNS:
        gains = [search.single_gain(column) for column in columns]
        columns = [columns[at] for at in sorted(np.argsort(gains)[::-1][:MOST_COLUMNS].tolist())]
    by_depth = search.trees(columns)  # [depth][G]
    least = ROUNDING * float(np.abs(scores).sum())
    values = [0.0, 0.0, 0.0]
    for fold in range(int(folds.max()) + 1):
        rows = np.flatnonzero(folds == fold)
        there = {name: leaf[rows] for name, leaf in leaves.items()}
        for depth, trees in enumerate(by_depth):
            chosen = follow(trees[fold + 1], there, len(rows))
            values[depth] += float(scores[rows, chosen].sum())
    depth = 0
    for deeper in (1, 2):
        depth = deeper if values[deeper] > values[depth] + least else depth
    return by_depth[0][0], by_depth[depth][0]


def bin_column(leaves: Mapping[str, NDArray[Any]], spec: Spec, position: Place) -> BinnedColumn | None:
    """The column in bins with its questions; None if its values are all equal."""
    values = leaves[position[0]][:, position[1]]
    if isinstance(spec.observation[position[0]], Codes):
        codes, counts = np.unique(values, return_counts=True)
        if len(codes) < 2:
            return None
        frequent = codes[np.argsort(-counts, kind="stable")][:QUESTIONS]
        bins = np.full(int(codes.max()) + 1, len(frequent), np.int64)
        bins[frequent] = np.arange(len(frequent))
        asked = frequent[:1] if len(codes) == 2 else frequent  # the other question about two words is the same
        return BinnedColumn(position, bins[values], len(frequent) + 1, (), tuple(asked.tolist()))
    cuts = thresholds(values.astype(np.float64))
    if not cuts:
        return None
    bins = np.searchsorted(np.asarray(cuts), values.astype(np.float64), side="right")
    return BinnedColumn(position, bins, len(cuts) + 1, cuts, ())


def thresholds(values: Floats) -> tuple[float, ...]:
    """Thresholds between values [N]: at most 32 quantiles, each the shortest number that separates its neighbours."""
    ordered = np.sort(values)
    different = np.unique(ordered)
    if len(different) <= QUESTIONS + 1:
        above = different[1:]
    else:
        at = (np.arange(1, QUESTIONS + 1) * len(ordered)) // (QUESTIONS + 1)
        above = np.unique(ordered[at])
        above = above[above > different[0]]
    below = different[np.searchsorted(different, above) - 1]
    return tuple(shortest_between(low, high) for low, high in zip(below.tolist(), above.tolist(), strict=True))


def shortest_between(low: float, high: float) -> float:
    """The number with the fewest digits that is above `low` and at most `high`."""
    largest = max(abs(low), abs(high))
    start = 1 - int(np.floor(np.log10(largest))) - 2 if largest > 0 else 0
    for digits in range(start, start + 20):
        number = float(np.floor(high * 10.0**digits)) / 10.0**digits if abs(digits) < 300 else high
        if low < number <= high:
            return float(number)
    return high


class _Best(NamedTuple):
    """The best that can follow an answer, for each set of rows and each first question, [G, S]."""

    value: Floats
    asked: Floats  # 1 where it is a question, 0 where it is an action
    tree: list[list[Tree]]


class _Search:
    """Sums of scores by the bins of columns, over all rows and over all but each fold."""

    def __init__(self, scores: Floats, folds: NDArray[np.int64]) -> None:
        self._scores, self._folds = scores, folds
        self._count = int(folds.max()) + 1
        rows = np.bincount(folds, minlength=self._count)
        self._least_rows = np.maximum(SMALLEST * np.append(len(scores), len(scores) - rows), 1.0)  # [G]
        self._least_gain = ROUNDING * float(np.abs(scores).sum())

    def single_gain(self, column: BinnedColumn) -> float:
        """How much the best single question about a column adds to the best single action."""
        value, _, _ = self._split(self._sums(column, None)[:1, None], column, self._least_rows[:1])
        return float(value.max())

    def trees(self, columns: Sequence[BinnedColumn]) -> list[list[Tree]]:
        """The best tree of at most 0, 1 and 2 questions in each set of rows, [3][G]."""
        totals = self._sums(None, None)[:, 0]  # [G, A + 1]
        constant: list[Tree] = totals[:, :-1].argmax(-1).tolist()
        zero = totals[:, :-1].max(-1)
        singles = [_sides(self._sums(column, None), column) for column in columns]  # [2, G, S, A + 1]
        one = self._first(columns, [_leaves_of(sides) for sides in singles], singles, constant, zero, zero)
        best = [_leaves_of(sides) for sides in singles]
        for i, first in enumerate(columns):
            for j, second in enumerate(columns[i:], i):
                sums = self._sums(first, second)  # [G, K, L, A + 1]
                self._improve(best[i], _sides(sums, first), second)
                if i != j:
                    self._improve(best[j], _sides(sums.swapaxes(1, 2), second), first)
        two = self._first(columns, best, singles, one[0], one[1], one[1])
        return [constant, one[0], two[0]]

    def _first(
        self,
        columns: Sequence[BinnedColumn],
        best: Sequence[tuple[_Best, _Best]],
        singles: Sequence[Floats],
        trees: list[Tree],
        values: Floats,
        simpler: Floats,
    ) -> tuple[list[Tree], Floats]:
        """The best first questions, with what follows them, where they are better than the simpler trees.

        Of equally good trees the one with fewer questions is taken.
        """
        trees, values, reached = list(trees), values.copy(), np.full(len(values), -np.inf)
        for column, (yes, no), sides in zip(columns, best, singles, strict=True):
            enough = (sides[..., -1] >= self._least_rows[:, None]).all(0)  # [G, S]
            total = np.where(enough, yes.value + no.value, -np.inf)
            weighed = total - self._least_gain * (yes.asked + no.asked)
            at = weighed.argmax(-1)
            for g, number in enumerate(at.tolist()):
                if weighed[g, number] > reached[g] and total[g, number] > simpler[g] + self._least_gain:
                    reached[g], values[g] = weighed[g, number], total[g, number]
                    trees[g] = column.question(number, yes.tree[g][number], no.tree[g][number])
        return trees, values

    def _improve(self, best: tuple[_Best, _Best], sides: Floats, second: BinnedColumn) -> None:
        """Take second questions where they are better than what is known; `sides` is [2, G, S, L, A + 1]."""
        for known, side in zip(best, sides, strict=True):
            value, number, actions = self._split(side, second, self._least_rows)
            better = value > known.value + self._least_gain
            for g, s in zip(*(part.tolist() for part in np.nonzero(better)), strict=True):
                known.value[g, s], known.asked[g, s] = value[g, s], 1.0
                known.tree[g][s] = second.question(int(number[g, s]), int(actions[0, g, s]), int(actions[1, g, s]))

    def _split(
        self, sums: Floats, column: BinnedColumn, least: Floats
    ) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """The value of the best question for sums [G, S, L, A + 1], its number, and its two actions [2, G, S]."""
        yes = column.yes_sums(sums, 2)  # [G, S of the first, S of this one, A + 1]
        sides = np.stack([yes, sums.sum(2)[:, :, None] - yes])
        enough = (sides[..., -1] >= least[:, None, None]).all(0)
        value = np.where(enough, sides[..., :-1].max(-1).sum(0), -np.inf)
        number = value.argmax(-1)
        at = np.take_along_axis(sides[..., :-1].argmax(-1), number[None, ..., None], -1)[..., 0]
        return np.take_along_axis(value, number[..., None], -1)[..., 0], number, at

    def _sums(self, first: BinnedColumn | None, second: BinnedColumn | None) -> Floats:
        """Sums of scores, and last the number of rows, by set of rows and bins: [G, K, (L,) A + 1]."""
        of, shape = self._folds, [self._count]
        for column in (first, second):
            if column is not None:
                of = of * column.size + column.bins
                shape.append(column.size)
        if first is None:
            shape.append(1)
        size = int(np.prod(shape))
        parts = [np.bincount(of, weights=score, minlength=size) for score in self._scores.T]
        parts.append(np.bincount(of, minlength=size).astype(np.float64))
        by_fold = np.stack(parts, axis=-1).reshape(*shape, len(parts))
        whole = by_fold.sum(0, keepdims=True)
        return np.concatenate([whole, whole - by_fold])


def _sides(sums: Floats, column: BinnedColumn) -> Floats:
    """Sums of both sides of each question, [2, G, S, (L,) A + 1], of sums by bin [G, K, (L,) A + 1]."""
    yes = column.yes_sums(sums, 1)
    return np.stack([yes, sums.sum(1)[:, None] - yes])


def _leaves_of(sides: Floats) -> tuple[_Best, _Best]:
    """The best single action on each side, for each set of rows and question; `sides` is [2, G, S, A + 1]."""
    actions = sides[..., :-1]
    yes, no = (_Best(side.max(-1), np.zeros(side.shape[:2]), side.argmax(-1).tolist()) for side in actions)
    return yes, no
