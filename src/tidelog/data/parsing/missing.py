"""Fill empty cells of observations by the mapping's rule: the mean with a flag, or the last known value.

Letters: `N` rows. Rules apply to rows in episode order; no value crosses from one episode to another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from tidelog.data.core.order import Order, Values
from tidelog.data.core.raw import Column, Feature, Finding, RawLog

Rule: TypeAlias = Callable[[Values, Values, Order], tuple[Values, Values]]
Filled: TypeAlias = tuple[Column, Column | None]  # a column and its next-observation column
_NONE = np.zeros(0, np.int64)


def fill_missing(raw: RawLog, rules: Mapping[str, str]) -> RawLog:
    """Fill empty cells of observation columns that have a rule; each filled column is a note in `found`.

    A row without a next observation has nothing filled in its next-observation columns.
    """
    with_rule = {name for name, rule in rules.items() if rule != "error"}
    if raw.rows == 0 or not with_rule:
        return raw
    raw = _mark_nan(raw, with_rule)
    observation, following, found = dict(raw.observation), dict(raw.next_observation), list(raw.found)
    for name, feature in raw.observation.items():
        later = raw.next_observation.get(name)
        if feature.kind == "image" or not _has_holes(feature, later, raw.followed, with_rule):
            continue
        filling = _Filling(raw.order, raw.followed, rules)
        pairs = zip(feature.columns, later.columns if later else [None] * len(feature.columns), strict=True)
        columns = [one for pair in pairs for one in filling.fill(*pair)] + filling.flags
        observation[name] = replace(
            feature, columns=tuple(now for now, _ in columns), fills=tuple(filling.fills), block=None
        )
        if later:
            following[name] = replace(later, columns=tuple(then for _, then in columns if then is not None))
        found += filling.found
    return replace(raw, observation=observation, next_observation=following, found=tuple(found))


def _mark_nan(raw: RawLog, with_rule: set[str]) -> RawLog:
    """Treat NaN as an empty cell in columns with a rule, and in their next-observation columns."""
    observation, following = dict(raw.observation), dict(raw.next_observation)
    for name, feature in raw.observation.items():
        marks = [column.name in with_rule for column in feature.columns]
        for side in (observation, following):
            if name in side:
                columns = zip(side[name].columns, marks, strict=True)
                opened = tuple(_nan_is_missing(column) if marked else column for column, marked in columns)
                side[name] = replace(side[name], columns=opened)
    return replace(raw, observation=observation, next_observation=following)


def _has_holes(feature: Feature, later: Feature | None, followed: Values, with_rule: set[str]) -> bool:
    after = later.columns if later else (None,) * len(feature.columns)
    return any(
        len(now.missing) > 0 or (then is not None and bool(followed[then.missing].any()))
        for now, then in zip(feature.columns, after, strict=True)
        if now.name in with_rule
    )


class _Filling:
    """The state of filling one leaf: its columns, flags, fill values and findings."""

    def __init__(self, order: Order, followed: Values, rules: Mapping[str, str]) -> None:
        self.order = order
        self.followed = followed
        self.rules = rules
        self.flags: list[Filled] = []
        self.fills: list[tuple[str, float]] = []
        self.found: list[tuple[str, Finding]] = []

    def fill(self, now: Column, then: Column | None) -> list[Filled]:
        """Fill a column; a column of lists becomes one column per dimension."""
        rule = self.rules.get(now.name, "error")
        absent, after = self._empty(now), self._empty(then)
        after &= self.followed
        if rule == "error" or not (absent.any() or after.any()) or not (~absent & now.usable).any():
            return [(now, then)]
        if now.vocabulary is not None:
            return [self._codes(now, then, absent, after, rule)]
        message = f"{int(absent.sum() + after.sum()):,} empty cells, filled by the rule '{rule}'"
        self._note(now, absent, message)
        if now.values.ndim == 1:
            return [self._numbers(now, then, absent, after, rule)]
        return [
            self._numbers(_dimension(now, place), then and _dimension(then, place), absent, after, rule)
            for place in range(now.values.shape[1])
        ]

    def _empty(self, column: Column | None) -> Values:
        empty = np.zeros(len(self.followed), bool)
        if column is not None:
            empty[column.missing] = True
        return empty

    def _numbers(self, now: Column, then: Column | None, absent: Values, after: Values, rule: str) -> Filled:
        with np.errstate(over="ignore", invalid="ignore"):  # a check reports what is not finite
            mean = float(np.float32(now.values[~absent & now.usable].mean(dtype=np.float64)))
            values = now.values.astype(np.float32)
        self.fills.append((now.name, mean))
        values[absent] = mean
        if rule == "forward":
            values, _ = self._carry_forward(values, absent)
        later, still = self._after(values, absent, then, after, mean, rule)
        if rule == "mean+flag":
            flag = f"{now.name} missing"
            after_flag = then and Column(flag, still.astype(np.float32), missing=self._open)
            self.flags.append((Column(flag, absent.astype(np.float32)), after_flag))
        return replace(now, values=values, missing=_NONE), then and replace(then, values=later, missing=self._open)

    def _codes(self, now: Column, then: Column | None, absent: Values, after: Values, rule: str) -> Filled:
        """Fill codes: the empty text becomes a category, or the last known value of the episode is used."""
        if rule == "forward":
            values, was_filled = self._carry_forward(now.values, absent)
            self._note(now, was_filled, f"{int(was_filled.sum()):,} empty cells, filled by the rule 'forward'")
            left = absent & ~was_filled
            later, unknown = self._after(values, left, then, after, 0.0, rule)
            open_end = np.flatnonzero(unknown | ~self.followed)
            now = replace(now, values=values, missing=np.flatnonzero(left))
            return now, then and replace(then, values=later, missing=open_end)
        words = ("", *(now.vocabulary or ()))
        values = np.where(absent, 0, now.values + 1).astype(np.int32)
        shifted = then and replace(then, values=np.where(self._empty(then), 0, then.values + 1).astype(np.int32))
        later, _ = self._after(values, absent, shifted, after, 0.0, rule)
        self._note(now, absent, f"{int(absent.sum() + after.sum()):,} empty cells, which form a separate category")
        return (
            replace(now, values=values, vocabulary=words, missing=_NONE),
            then and replace(then, values=later, vocabulary=words, missing=self._open),
        )

    @property
    def _open(self) -> Values:
        """Rows without a known next observation."""
        return np.flatnonzero(~self.followed)

    def _carry_forward(self, values: Values, absent: Values) -> tuple[Values, Values]:
        """The last known value within the episode, and a mask of the cells it fills."""
        rows, empty = self.order.rows, absent[self.order.rows]
        places = np.arange(len(rows))
        known = np.maximum.accumulate(np.where(empty, -1, places))
        starts = places - self.order.step
        has_value = empty & (known >= starts)
        carried, marked = values.copy(), np.zeros(len(rows), bool)
        carried[rows[has_value]] = values[rows[known[has_value]]]
        marked[rows[has_value]] = True
        return carried, marked

    def _after(
        self, values: Values, absent: Values, then: Column | None, after: Values, mean: float, rule: str
    ) -> tuple[Values, Values]:
        """Fill next observations with the value of the next row, or at the end of an episode by the rule.

        The second array marks the cells that count as missing.
        """
        if then is None:
            return values, absent
        later, still = then.values.astype(values.dtype), after.copy()
        rows, inner = self.order.rows, np.flatnonzero(~self.order.last)
        here, next_row = rows[inner], rows[inner + 1]
        holes = after[here]
        later[here[holes]] = values[next_row[holes]]
        still[here[holes]] = absent[next_row[holes]]
        ends = np.zeros(len(after), bool)
        ends[rows[self.order.last]] = True
        ends &= after
        later[ends] = values[ends] if rule == "forward" else mean
        if rule == "forward":
            still[ends] = absent[ends]
        return later, still

    def _note(self, column: Column, at: Values, found: str) -> None:
        advice = "nothing, if the cells are empty for a reason; else change the rule `missing` in the mapping"
        finding = Finding(column.name, np.flatnonzero(at), found, "a value in every row", advice)
        self.found.append(("filled", finding))


def _nan_is_missing(column: Column) -> Column:
    if column.values.dtype.kind != "f":
        return column
    nan = np.isnan(column.values).reshape(len(column.values), -1).any(axis=1) & column.usable
    return replace(column, missing=np.union1d(column.missing, np.flatnonzero(nan))) if nan.any() else column


def _dimension(column: Column, place: int) -> Column:
    return replace(column, name=f"{column.name}[{place}]", values=column.values[:, place])
