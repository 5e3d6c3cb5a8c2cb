"""Parse a table and its roles into `RawInteractions`: columns in file order, before the checks.

Letters: `M` events, `N` items, `S` items in a slate, `F` features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cached_property
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from tidelog.data.core.columns import declared_unit
from tidelog.data.core.order import Order, Values, episode_order
from tidelog.data.core.raw import Column, FileRows, Finding
from tidelog.data.core.registry import unreadable
from tidelog.data.parsing import column as parse
from tidelog.data.parsing.tables import Table, duplicates, lacking
from tidelog.data.sources import is_table_file, table_of, table_with
from tidelog.data.sources.files import recorded_source
from tidelog.errors import ConfigError, nearest
from tidelog.memory import shortage
from tidelog.recommend.interactions.session_gap import checked_gap, gap_in_times
from tidelog.types import Profile

NAMED = ("user", "item", "time", "event", "session", "propensity", "slate")


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The column of each role; ConfigError for invalid values.

    `reward`: a column of numbers, or the reward of each kind of event; None: every event has reward 1. `reward_unit`:
    the unit of rewards, such as "EUR", which reports show. A session ends where `session` changes, and after a pause
    longer than `session_gap` (in the unit of numeric times, in seconds for dates; for dates and epoch times also
    `"30min"` or a timedelta). `slate`: a column of lists (or text such as `a|b|c`) of the shown items. `item_features`,
    `user_features`: tables with one row per id, in a column of the same name; numbers, words, or words such as
    `cheap|quiet`.
    """

    user: str
    item: str
    time: str
    event: str | None = None
    reward: Mapping[str, float] | str | None = None
    reward_unit: str | None = None
    session: str | None = None
    session_gap: float | str | timedelta | None = None
    propensity: str | None = None
    slate: str | None = None
    item_features: Any = None
    user_features: Any = None

    def __new__(cls, **options: Any) -> Roles:
        """Refuse unknown names before the fields are set."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise ConfigError(f"read_interactions has no argument '{name}': {nearest(name, known)}")
        missing = [name for name in ("user", "item", "time") if options.get(name) is None]
        if missing:
            raise ConfigError(f"{' and '.join(missing)} is not set. fix: name a column of the interactions")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for role in NAMED:
            value = getattr(self, role)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"{role} = {value!r}: expected the name of one column")
        object.__setattr__(self, "session_gap", checked_gap(self.session_gap))
        object.__setattr__(self, "reward_unit", declared_unit(self.reward_unit))
        self._check_reward()

    def _check_reward(self) -> None:
        if self.reward is None or (isinstance(self.reward, str) and self.reward):
            return
        if not isinstance(self.reward, Mapping) or not self.reward:
            raise ConfigError(f"reward = {self.reward!r}: expected a column, or the reward of each kind of event")
        if self.event is None:
            raise ConfigError(
                "reward maps kinds of events to rewards: the column event= is missing. fix: name it, with event= or "
                "--event"
            )
        for kind, worth in self.reward.items():
            usable = isinstance(worth, Real) and not isinstance(worth, bool) and math.isfinite(worth)
            if not isinstance(kind, str):
                raise ConfigError(f"reward has the kind {kind!r}: expected text. fix: write {str(kind)!r}")
            if not usable:
                raise ConfigError(f"reward[{kind!r}] = {worth!r}: expected a finite number for each kind of event")

    def used(self) -> dict[str, str]:
        """Role -> its column."""
        named = {role: getattr(self, role) for role in NAMED}
        if isinstance(self.reward, str):
            named["reward"] = self.reward
        return {role: name for role, name in named.items() if name is not None}

    def to_json(self) -> dict[str, Any] | None:
        """Plain values that rebuild the roles; None if features are frames, which have no path."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("item_features", "user_features"):
            if plain[name] is not None and not isinstance(plain[name], str | Path | list | tuple):
                return None
            plain[name] = None if plain[name] is None else recorded_source(plain[name], is_table_file)
        plain["reward"] = dict(self.reward) if isinstance(self.reward, Mapping) else self.reward
        return {name: value for name, value in plain.items() if value is not None}


_LARGEST = float(np.finfo(np.float32).max)
MOST_WORDS = 1_000  # limit of different words in a feature column
_Entry: TypeAlias = tuple[str | None, float, float]  # an entry of a `Profile`: a word or None, mean, standard deviation


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features by id: values [R, F], the ids [R] as text, the names of the features, and their source."""

    source: str
    ids: pl.Series
    values: Values
    profile: Profile


@dataclass(frozen=True, eq=False)
class RawInteractions:
    """Columns in file order before the checks; an unusable column is None and has a finding in `found`.

    `item` holds codes into `catalogue`, the ids of all items in the log, in its slates and in the item features.
    """

    source: str
    rows: int
    numbers: Values  # [M] row numbers from 1, as the user counts
    has_lines: bool
    roles: Roles
    user: Column | None
    item: Column | None
    time: Column | None
    event: Column | None
    reward: Column | None
    session: Column | None
    propensity: Column | None
    slate: Values | None  # [M, S] int32: codes + 1, padded with 0
    catalogue: Values  # [N] ids, integers or text
    item_features: FeatureTable | None = None
    user_features: FeatureTable | None = None
    files: FileRows | None = None  # None for one file
    session_gap: float | None = None  # in the unit of numeric times, in seconds for dates
    found: tuple[tuple[str, Finding], ...] = field(default=())

    def columns(self) -> list[Column]:
        """All usable columns."""
        named = (self.user, self.item, self.time, self.event, self.reward, self.session, self.propensity)
        return [column for column in named if column is not None]

    @cached_property
    def order(self) -> Order:
        """Rows by user and time; ties keep file order, and a time with missing values is not used."""
        usable = self.time is not None and bool(self.time.usable.all())
        key = self.time.values if usable and self.time is not None else None
        users = None if self.user is None else self.user.values
        return episode_order(self.rows, users, None if self.user is None else self.user.vocabulary, key)


def raw_interactions(source: Any, roles: Roles) -> RawInteractions:
    """Parse the columns of the roles; LogError if a source cannot be read."""
    table = table_with(source, list(roles.used().values()))
    _check_words(table, roles.used().values())
    columns = {name: role for role, name in roles.used().items()}
    found = [*table.found, *lacking(table, columns)]
    found += [(name, one) for name, one in duplicates(table.columns) if one.column in roles.used().values()]
    described = _feature_table(roles.item_features, roles.item, found)
    item, slate, catalogue = _items(table, roles, described)
    time = _read(table, roles.time, parse.moment)
    gap, unclear = gap_in_times(checked_gap(roles.session_gap), time)
    found += [] if unclear is None else [("bad mapping", unclear)]
    return RawInteractions(
        source=table.source,
        rows=table.rows,
        numbers=table.numbers,
        has_lines=table.has_lines,
        roles=roles,
        user=_read(table, roles.user, parse.identity),
        item=item,
        time=time,
        event=_read(table, roles.event, lambda series: parse.categories(series)[0]),
        reward=_read(table, roles.reward if isinstance(roles.reward, str) else None, parse.number),
        session=_read(table, roles.session, parse.identity),
        propensity=_read(table, roles.propensity, parse.narrow),
        slate=slate,
        catalogue=catalogue,
        item_features=described,
        user_features=_feature_table(roles.user_features, roles.user, found),
        files=table.files,
        session_gap=gap,
        found=tuple(found),
    )


def _check_words(table: Table, names: Iterable[str]) -> None:
    """LogError for a NUL in a word: NumPy ends words there, and two ids would become one."""
    for name in names:
        words = table.series(name) if table.has(name) else pl.Series([], dtype=pl.String)
        words = words.explode() if words.dtype == pl.List else words
        if words.dtype == pl.String and words.str.contains("\0", literal=True).any():
            raise unreadable(table.source, f"a NUL character in '{name}'", "words without it", "remove it")


def _read(table: Table, name: str | None, read: Callable[[pl.Series], Column]) -> Column | None:
    if name is None or not table.has(name):
        return None
    series = table.series(name)
    return read(parse.spelled(series) if isinstance(series.dtype, pl.List | pl.Array) else series)


def id_text(series: pl.Series) -> pl.Series:
    """Ids as text for matching: whole numbers as integers, text stripped; NaN and empty text are null."""
    if isinstance(series.dtype, pl.List | pl.Array):
        series = parse.spelled(series)
    if series.dtype.is_float():
        series = series.fill_nan(None)
        whole = series.cast(pl.Int64, strict=False)
        series = whole if (whole.cast(series.dtype) == series).fill_null(series.is_null()).all() else series
    text = series.cast(pl.String).str.strip_chars()
    return text.set(text == "", None)


def word_lists(series: pl.Series) -> pl.Series:
    """Lists of words [M], from a column of lists or of text such as `a|b|c`, `a, b` or `["a", "b"]`.

    Text is split by the first of `|`, `;` and `,` that occurs anywhere in the column. Brackets and quotes are removed
    from a cell that is completely in brackets, and belong to the words in other cells.
    """
    if isinstance(series.dtype, pl.List | pl.Array):
        inner = series.cast(pl.List(series.dtype.inner)) if isinstance(series.dtype, pl.Array) else series
        lengths = inner.list.len().fill_null(0)
        words = id_text(inner.filter(lengths > 0).explode()).to_list()
        ends = lengths.cum_sum().to_list()
        lists = [[word for word in words[a:b] if word is not None] for a, b in pairwise([0, *ends])]
        return pl.Series(series.name, lists, pl.List(pl.String))
    text = series.cast(pl.String).str.strip_chars().fill_null("")
    bracketed = text.str.contains(r"^(\[[^\[\]]*\]|\([^()]*\))$")
    bare = pl.select(pl.when(bracketed).then(text.str.slice(1, text.str.len_chars() - 2)).otherwise(text)).to_series()
    sign = next((one for one in "|;," if bare.str.contains(one, literal=True).any()), "|")
    quotes = pl.select(pl.when(bracketed).then(pl.lit(" \"'")).otherwise(pl.lit(" "))).to_series()
    cells = pl.DataFrame({"words": bare.str.split(sign), "quotes": quotes}).with_row_index("row").explode("words")
    plain = cells.with_columns(pl.col("words").str.strip_chars().str.strip_chars(pl.col("quotes")))
    nonempty = pl.col("words").filter(pl.col("words") != "")
    return plain.group_by("row", maintain_order=True).agg(nonempty)["words"].rename(series.name)


def _items(table: Table, roles: Roles, described: FeatureTable | None) -> tuple[Column | None, Values | None, Values]:
    """The items and slates as codes into one catalogue, and the catalogue."""
    if not table.has(roles.item):
        return None, None, np.zeros(0, np.int64)
    chosen = id_text(table.series(roles.item))
    shown = word_lists(table.series(roles.slate)) if roles.slate is not None and table.has(roles.slate) else None
    parts = [chosen.rename("word")]
    if shown is not None:
        parts.append(shown.explode().drop_nulls().rename("word").cast(pl.String))
    if described is not None:
        parts.append(described.ids.rename("word"))
    known = parse.identity(pl.concat(parts).drop_nulls())
    catalogue = np.unique(known.values) if known.vocabulary is None else np.asarray(known.vocabulary)
    words = pl.Series([str(word) for word in catalogue.tolist()], dtype=pl.String)
    missing = np.flatnonzero(chosen.is_null().to_numpy())
    column = Column(roles.item, _codes(chosen, words).fill_null(0).to_numpy(), missing=missing)
    return column, None if shown is None else _padded(table, shown, words), catalogue


def _codes(series: pl.Series, words: pl.Series) -> pl.Series:
    numbers = pl.Series(range(len(words)), dtype=pl.Int32)
    return series.replace_strict(words, numbers, default=None, return_dtype=pl.Int32)


def _padded(table: Table, shown: pl.Series, words: pl.Series) -> Values:
    """[M, S] int32: codes + 1 of each list, padded with 0; LogError if the longest list makes that too large."""
    lengths = shown.list.len().to_numpy().astype(np.int64)
    longest = max(1, int(lengths.max(initial=0)))
    problem = shortage(2 * np.dtype(np.int32).itemsize * len(shown) * longest)
    if problem is not None:
        rows = table.numbers[lengths == longest].tolist()
        found = f"{problem}: {len(shown):,} rows, the longest with {longest:,} entries in '{shown.name}'"
        raise unreadable(table.source, found, "lists of similar lengths", "split the longest lists", rows=rows[:10],
                         count=len(rows))  # fmt: skip
    slate = np.zeros((len(shown), longest), np.int32)
    flat = _codes(shown.explode().drop_nulls().cast(pl.String), words).to_numpy()
    ends = np.cumsum(lengths)
    rows = np.repeat(np.arange(len(shown)), lengths)
    slate[rows, np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)] = flat + 1
    return slate


def _feature_table(source: Any, key: str, found: list[tuple[str, Finding]]) -> FeatureTable | None:
    """Read the features of a table with one row per id; problems are findings."""
    if source is None:
        return None
    table = table_of(source)
    found += table.found if table.parts else []
    _check_words(table, table.columns)
    if not table.has(key):
        found += lacking(table, {key: f"the ids of {table.source}"})
        return None
    ids = id_text(table.series(key))
    parts: list[Values] = []
    columns: list[str] = []
    entries: list[_Entry] = []
    for name in table.columns:
        if name != key and table.has(name):
            values, new = _feature(table, name, found)
            parts.append(values)
            columns += [name] * len(new)
            entries += new
    if not entries:
        wrong = Finding(key, None, f"no feature besides the ids in {table.source}", "a column of features", "add one")
        found.append(("unusable features", wrong))
        return None
    profile = Profile(tuple(columns), *zip(*entries, strict=True))
    return FeatureTable(table.source, ids, np.concatenate(parts, axis=1), profile)


def _feature(table: Table, name: str, found: list[tuple[str, Finding]]) -> tuple[Values, list[_Entry]]:
    """One column as numbers [R, F]: standardised, or one flag per word; and the entry of each number."""
    series, source = table.series(name), table.source
    if isinstance(series.dtype, pl.List | pl.Array) or parse.is_categorical(series):
        lists = word_lists(series)
        words = lists.explode().drop_nulls().unique().sort()
        if len(words) > MOST_WORDS:
            message = f"{len(words):,} different words in {source}"
            advice = "drop the column, or group its words into classes"
            found.append(("unusable features", Finding(series.name, None, message, f"at most {MOST_WORDS:,}", advice)))
            return np.zeros((len(series), 0), np.float32), []
        codes = _padded(table, lists, words)
        flags = np.zeros((len(series), len(words) + 1), np.float32)
        np.put_along_axis(flags, codes.astype(np.int64), 1.0, axis=1)
        return flags[:, 1:], [(word, 0.0, 1.0) for word in words]
    column = parse.number(series)
    usable = column.usable & (np.abs(column.values) <= _LARGEST)
    if not usable.all():
        message = f"{int((~usable).sum()):,} cells without a number in {source}"
        wrong = Finding(series.name, None, message, "a number in every row", "fill the cells")
        found.append(("unusable features", wrong))
    values = np.where(usable, column.values, 0.0).astype(np.float64)
    mean, std = (float(values.mean()), float(values.std())) if len(values) else (0.0, 1.0)
    std = std if std > 1e-9 else 1.0
    return ((values - mean) / std).astype(np.float32)[:, None], [(None, mean, std)]
