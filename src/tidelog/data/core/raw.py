"""The raw log that every source produces: named columns in file order, the input of the checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from tidelog.data.core.columns import Bounds
from tidelog.data.core.declared import Declaration
from tidelog.data.core.order import Order, Values, episode_order, number_by_appearance

Kind: TypeAlias = Literal["vector", "codes", "image"]


def _no_rows() -> Values:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Column:
    """Values of one column, [N], [N, D] or [N, H, W, C]; rows that are not usable hold a placeholder.

    `odd` rows hold a list whose length differs from most; `reported` rows have a finding of the reader already.
    `vocabulary` is set if `values` are codes, `joined` are the labels in few rows that have one code; `texts` are the
    first unreadable texts, and `expects` names the expected format.
    """

    name: str
    values: Values
    vocabulary: tuple[str, ...] | None = None
    missing: Values = field(default_factory=_no_rows)
    unreadable: Values = field(default_factory=_no_rows)
    odd: Values = field(default_factory=_no_rows)
    texts: tuple[str, ...] = ()
    expects: str = "a number"
    reported: Values = field(default_factory=_no_rows)
    rare_labels: tuple[str, ...] = ()

    @cached_property
    def usable(self) -> Values:
        """[N] bool: rows with a value; read-only."""
        without = [rows for rows in (self.missing, self.unreadable, self.odd, self.reported) if len(rows)]
        if not without:
            return np.broadcast_to(np.True_, len(self.values))
        usable = np.ones(len(self.values), bool)
        for rows in without:
            usable[rows] = False
        return usable


@dataclass(frozen=True, eq=False)
class Feature:
    """The columns of one observation leaf; `sizes` are the declared numbers of codes, if any.

    An image is one column of values [N, H, W, C] uint8. `fills` are the replacement values of missing cells.
    `block` [N, D] float32 is the array that the columns are views of, if there is one.
    """

    kind: Kind
    columns: tuple[Column, ...]
    sizes: tuple[int, ...] | None = None
    fills: tuple[tuple[str, float], ...] = ()
    block: Values | None = None


@dataclass(frozen=True, eq=False)
class RawAction:
    """The logged action with its declared sizes or bounds."""

    kind: Literal["discrete", "multi", "continuous"]
    columns: tuple[Column, ...]
    sizes: tuple[int, ...] | None = None
    bounds: Bounds | None = None

    @cached_property
    def values(self) -> Values:
        """[N, D]: all dimensions as numbers."""
        return side_by_side(self.columns)

    @cached_property
    def usable(self) -> Values:
        """[N] bool: every dimension has a finite value."""
        usable: Values = np.asarray(np.isfinite(self.values).all(axis=1))
        for column in self.columns:
            usable = usable & column.usable
        return usable


class Finding(NamedTuple):
    """One finding of a check: `at` are rows in file order from 0; the registry adds the check's name and level."""

    column: str | None
    at: Values | None
    found: str
    expected: str
    fix: str


class FileRows(NamedTuple):
    """Several files whose rows stand one after another: their names, and the number of rows up to the end of each."""

    names: tuple[str, ...]
    ends: Values  # [F] int64

    def of(self, at: Values) -> list[str]:
        """The file of each row, from 0."""
        return [self.names[place] for place in np.searchsorted(self.ends, at, side="right").tolist()]

    def crossed(self, episode: Values, rows: Values) -> Values:
        """[N] bool: places at which a sorted log goes on with the same episode in another file."""
        file = np.searchsorted(self.ends, rows, side="right")
        return np.append(False, (episode[1:] == episode[:-1]) & (file[1:] != file[:-1]))


class Flags(NamedTuple):
    """[N] bool each, in episode order: ends of episodes, which of them were assumed, and which have both flags."""

    terminated: Values
    truncated: Values
    assumed: Values
    both: Values


@dataclass(frozen=True, eq=False)
class RawLog:
    """Columns in file order before the checks; an unusable column is None and has a finding in `found`."""

    source: str
    rows: int
    numbers: Values  # [N] row numbers from 1, as the user counts; in several files those in the row's own file
    has_lines: bool  # row r is on line r + 1
    observation: dict[str, Feature]
    action: RawAction | None
    reward: tuple[Column, ...] | None
    episode: Column | None = None
    step: Column | None = None
    time: Column | None = None
    cluster: Column | None = None
    terminated: Column | None = None
    truncated: Column | None = None
    propensity: Column | None = None
    declared: Declaration | None = None  # how decisions were drawn, in place of a column of propensities
    strata: tuple[Column, ...] = ()  # columns of its strata
    weight: Column | None = None
    action_mask: Column | None = None
    next_action_mask: Column | None = None
    next_observation: dict[str, Feature] = field(default_factory=dict)
    extra: tuple[Column, ...] = ()
    unused: tuple[Column, ...] = ()  # columns without a role, named like clusters; never an error
    terminations: str = "stop"
    reward_unit: str | None = None
    atoms: tuple[float, ...] = ()  # values of continuous actions with a probability of their own
    always_terminated: bool = False
    from_table: bool = True
    files: FileRows | None = None  # None for one file
    left_out: Values = field(default_factory=_no_rows)  # places in the source, from 0, of the rows that were left out
    found: tuple[tuple[str, Finding], ...] = ()

    def columns(self) -> Iterator[Column]:
        """All columns except next observations, which may be empty where the next row holds them."""
        for feature in self.observation.values():
            yield from feature.columns
        if self.action is not None:
            yield from self.action.columns
        yield from self.reward or ()
        named = (self.episode, self.step, self.time, self.terminated, self.truncated, self.propensity, self.weight)
        others = (self.cluster, self.action_mask, self.next_action_mask)
        yield from (column for column in (*named, *others) if column is not None)
        yield from (*self.strata, *self.extra)

    @cached_property
    def order(self) -> Order:
        """The episode order of rows; each row in `unplaced` is an episode of its own, so that it moves no other row."""
        key = self.step or self.time
        if self.episode is None:
            return episode_order(self.rows, None, None, None)
        keys = None if key is None else key.values
        if not self.unplaced.any():
            return episode_order(self.rows, self.episode.values, self.episode.vocabulary, keys)
        episode = number_by_appearance(self.episode.values)[0]
        episode[self.unplaced] = self.rows + np.arange(self.unplaced.sum())
        keys = None if keys is None else np.where(self.unplaced, keys[:1], keys)
        return episode_order(self.rows, episode, None, keys)

    @property
    def source_rows(self) -> Values:
        """[N]: the place of each row in the source, from 0, where some of its rows were left out."""
        return np.delete(np.arange(self.rows + len(self.left_out)), self.left_out)

    @cached_property
    def unplaced(self) -> Values:
        """[N] bool in file order: rows of a log of episodes without a usable episode, step or time to sort by."""
        key = self.step or self.time
        unplaced = np.zeros(self.rows, bool)
        if self.episode is None:
            return unplaced
        if key is not None:
            unplaced |= ~key.usable
            if key.values.dtype.kind in "fM":
                unplaced |= ~np.isfinite(key.values)
        return unplaced | ~self.episode.usable

    @cached_property
    def flags(self) -> Flags:
        """The end flags of rows in episode order, after `terminations` and assumed ends."""
        terminated = self._flag(self.terminated) | (self.order.last & self.always_terminated)
        truncated = self._flag(self.truncated)
        if self.terminations == "ignore":
            truncated, terminated = truncated | (terminated & self.order.last), np.zeros_like(terminated)
        assumed = self.order.last & ~terminated & ~truncated
        both = terminated & truncated
        return Flags(terminated, (truncated & ~both) | assumed, assumed, both)

    @cached_property
    def followed(self) -> Values:
        """[N] bool in file order: rows with a next observation of their own."""
        known = np.zeros(self.rows, bool)
        for feature in self.next_observation.values():
            for column in feature.columns:
                present = np.ones(self.rows, bool)
                present[column.missing] = False
                known |= present
        return known

    def _flag(self, column: Column | None) -> Values:
        if column is None:
            return np.zeros(self.rows, bool)
        return self.order.sort((column.values == 1) & column.usable)


def side_by_side(columns: tuple[Column, ...]) -> Values:
    """[N, D]: concatenate columns of shape [N] or [N, D]."""
    parts = [column.values.reshape(len(column.values), -1) for column in columns]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
