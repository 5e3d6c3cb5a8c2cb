"""Interactions from tables, and their checks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack

import msgspec
import numpy as np
import polars as pl

from tidelog._files import MANIFEST
from tidelog._machine import shortage
from tidelog.data import parse
from tidelog.data.checks import first_values, in_rows
from tidelog.data.columns import Columns, declared_unit
from tidelog.data.inspect import holds_several_numbers
from tidelog.data.log import Log
from tidelog.data.parse import ParsedTable, column_of, duplicates, lacking
from tidelog.data.raw import (
    Check,
    Column,
    FileRows,
    Finding,
    Report,
    RowOrder,
    Values,
    episode_order,
    findings,
    report_of,
    rounded_rewards,
    source_text,
    unreadable,
)
from tidelog.data.raw import (
    check as validation,
)
from tidelog.data.read import (
    csv_path,
    delete_older,
    read_log,
    recorded_source,
    table_of,
    table_with,
    validate,
    write_rows,
)
from tidelog.errors import ConfigError, LogError, nearest, unknown_name
from tidelog.recommend.interactions import INTERACTIONS, Interactions, checked_gap, gap_in_times
from tidelog.schema import typed
from tidelog.types import Profile

# Parse a table and its roles into `RawInteractions`: columns in file order, before the checks.
#
# Letters: `M` events, `N` items, `S` items in a slate, `F` features.

NAMED = ("user", "item", "time", "event", "session", "propensity", "slate")


class RoleColumns(TypedDict, total=False):
    """The arguments of `read_interactions` about columns; `Roles` describes them."""

    user: str
    item: str
    time: str
    event: str | None
    reward: Mapping[str, float] | str | None
    reward_unit: str | None
    session: str | None
    session_gap: float | str | timedelta | None
    propensity: str | None
    slate: str | None
    item_features: Any
    user_features: Any


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
            raise ConfigError(f"{' and '.join(missing)} is not set", fix="name a column of the interactions")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for role in NAMED:
            value = getattr(self, role)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"{role} = {value!r}", "the name of one column")
        object.__setattr__(self, "session_gap", checked_gap(self.session_gap))
        object.__setattr__(self, "reward_unit", declared_unit(self.reward_unit))
        if self.reward is None or (isinstance(self.reward, str) and self.reward):
            return
        if not isinstance(self.reward, Mapping) or not self.reward:
            raise ConfigError(f"reward = {self.reward!r}", "a column, or the reward of each kind of event")
        if self.event is None:
            raise ConfigError(
                "reward maps kinds of events to rewards: the column event= is missing",
                fix="name it, with event= or --event",
            )
        for kind, worth in self.reward.items():
            usable = isinstance(worth, Real) and not isinstance(worth, bool) and math.isfinite(worth)
            if not isinstance(kind, str):
                raise ConfigError(f"reward has the kind {kind!r}", "text", f"write {str(kind)!r}")
            if not usable:
                raise ConfigError(f"reward[{kind!r}] = {worth!r}", "a finite number for each kind of event")

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
            plain[name] = None if plain[name] is None else recorded_source(plain[name])
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

    @cached_property
    def worth(self) -> Column | None:
        """The rewards of events [M] float64; None where each has reward 1, or where they cannot be read."""
        if not isinstance(self.roles.reward, Mapping):
            return self.reward
        if self.event is None or not self.event.vocabulary:
            return None
        table = np.asarray([self.roles.reward.get(word, 0.0) for word in self.event.vocabulary], np.float64)
        return replace(self.event, values=table[self.event.values])

    def columns(self) -> list[Column]:
        """All usable columns."""
        named = (self.user, self.item, self.time, self.event, self.reward, self.session, self.propensity)
        return [column for column in named if column is not None]

    @cached_property
    def order(self) -> RowOrder:
        """Rows by user and time; ties keep file order, and a time with missing values is not used."""
        usable = self.time is not None and bool(self.time.usable.all())
        key = self.time.values if usable and self.time is not None else None
        users = None if self.user is None else self.user.values
        return episode_order(self.rows, users, None if self.user is None else self.user.vocabulary, key)


def raw_interactions(source: Any, roles: Roles) -> RawInteractions:
    """Parse the columns of the roles; LogError if a source cannot be read."""
    table = table_with(source, list(roles.used().values()))
    copies = {roles.time: 0.0} | ({} if roles.slate is None else {roles.slate: 12.0})
    parse.check_memory(table, roles.used().values(), (roles.user, roles.item, roles.session), copies)
    _check_words(table, roles.used().values())
    columns = {name: role for role, name in roles.used().items()}
    found = [*table.found, *lacking(table, columns)]
    found += [(name, one) for name, one in duplicates(table.columns) if one.column in roles.used().values()]
    described = _feature_table(roles.item_features, roles.item, found)
    item, slate, catalogue = _items(table, roles, described)
    time = column_of(table, roles.time, parse.moment)
    gap, unclear = gap_in_times(checked_gap(roles.session_gap), time)
    found += [] if unclear is None else [("bad mapping", unclear)]
    raw = RawInteractions(
        source=table.source,
        rows=table.rows,
        numbers=table.numbers,
        has_lines=table.has_lines,
        roles=roles,
        user=column_of(table, roles.user, parse.identity),
        item=item,
        time=time,
        event=column_of(table, roles.event, lambda series: parse.categories(series)[0]),
        reward=column_of(table, roles.reward if isinstance(roles.reward, str) else None, parse.number),
        session=column_of(table, roles.session, parse.identity),
        propensity=column_of(table, roles.propensity, parse.narrow),
        slate=slate,
        catalogue=catalogue,
        item_features=described,
        user_features=_feature_table(roles.user_features, roles.user, found),
        files=table.files,
        session_gap=gap,
        found=tuple(found),
    )
    return raw if raw.worth is None else replace(raw, found=(*raw.found, *rounded_rewards(raw.worth)))


def _check_words(table: ParsedTable, names: Iterable[str]) -> None:
    """LogError for a NUL in a word: NumPy ends words there, and two ids would become one."""
    for name in names:
        words = table.series(name) if table.has(name) else pl.Series([], dtype=pl.String)
        words = words.explode() if words.dtype == pl.List else words
        if words.dtype == pl.String and words.str.contains("\0", literal=True).any():
            raise unreadable(table.source, f"a NUL character in '{name}'", "words without it", "remove it")


def id_text(series: pl.Series) -> pl.Series:
    """Ids as text for matching: whole numbers as integers, text stripped; NaN and empty text are null."""
    text = parse.plain_text(parse.spelled(series) if isinstance(series.dtype, pl.List | pl.Array) else series)
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


def _items(
    table: ParsedTable, roles: Roles, described: FeatureTable | None
) -> tuple[Column | None, Values | None, Values]:
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


def _padded(table: ParsedTable, shown: pl.Series, words: pl.Series) -> Values:
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


def _feature(table: ParsedTable, name: str, found: list[tuple[str, Finding]]) -> tuple[Values, list[_Entry]]:
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


# Checks of interactions: errors, which make them unusable, and warnings.

INTERACTION_CHECKS: dict[str, Check] = {}
_EPOCH = 1e8  # larger numbers are seconds since 1970, or fractions of seconds
_OUTSIDE = 0.005  # largest share of events that counts as far outside the others, at each end
_FEWEST_TIMES = 20  # times from which on some can be far outside the others
_UNITS = 300.0  # largest ratio of two such numbers of one unit
INTERACTION_CHECKS["unusable features"] = Check(
    "unusable features", "error", "A feature table of items or users has unusable cells or columns."
)


# Errors.


@validation("no events", "error", INTERACTION_CHECKS)
def no_events(raw: RawInteractions) -> Iterable[Finding]:
    """There is no row."""
    if raw.rows == 0:
        yield Finding(None, None, "no rows", "at least one event", "check the path and how the log was exported")


@validation("empty cell", "error", INTERACTION_CHECKS)
def empty_cell(raw: RawInteractions) -> Iterable[Finding]:
    """A user, an item, a time, or another named column has an empty cell."""
    for column in raw.columns():
        advice = "fill the cells, or remove these rows before reading"
        yield from in_rows(column.name, column.missing, "empty cells", "a value in every row", advice)


@validation("unreadable cell", "error", INTERACTION_CHECKS)
def unreadable_cell(raw: RawInteractions) -> Iterable[Finding]:
    """A time, a reward or a propensity is text of another format."""
    for column in raw.columns():
        found = ", ".join(map(repr, column.texts[:3]))
        yield from in_rows(column.name, column.unreadable, found, column.expects, "correct the cells")


@validation("number not finite", "error", INTERACTION_CHECKS)
def number_not_finite(raw: RawInteractions) -> Iterable[Finding]:
    """A time, a reward or a propensity is NaN, infinite, or too large for 32 bits."""
    for column in (raw.time, raw.reward, raw.propensity):
        if column is None or column.values.dtype.kind not in "fM":
            continue
        finite = np.isfinite(column.values)  # of dates too: NaT is not finite
        if column is raw.reward:
            finite = finite & (np.abs(column.values) <= _LARGEST)
        bad, advice = ~finite & column.usable, "correct the values or their export"
        yield from in_rows(column.name, bad, first_values(column.values[bad]), "finite numbers", advice)


@validation("times in mixed units", "error", INTERACTION_CHECKS)
def mixed_units(raw: RawInteractions) -> Iterable[Finding]:
    """Some times are seconds since 1970, others milliseconds or smaller fractions of a second."""
    if raw.time is None or raw.time.values.dtype.kind == "M":
        return
    values = np.where(raw.time.usable & np.isfinite(raw.time.values), np.abs(raw.time.values), 0.0).astype(np.float64)
    large = values > _EPOCH
    if not large.any() or values[large].max() / values[large].min() < _UNITS:
        return
    unit = np.round(np.log10(np.where(large, values, 1.0) / 1e9) / 3.0)  # 0 for seconds, 1 for milliseconds, ...
    kinds, counts = np.unique(unit[large], return_counts=True)
    odd = large & (unit != kinds[counts.argmax()])
    found = f"{first_values(raw.time.values[odd])} among times such as {first_values(raw.time.values[large & ~odd])}"
    advice = "convert all times to one unit: seconds, milliseconds, or dates"
    yield Finding(raw.time.name, np.flatnonzero(odd), found, "one unit for all times", advice)


@validation("unknown event", "error", INTERACTION_CHECKS)
def unknown_event(raw: RawInteractions) -> Iterable[Finding]:
    """The log has a kind of event that the rewards do not name."""
    if raw.event is None or raw.event.vocabulary is None or not isinstance(raw.roles.reward, Mapping):
        return
    unknown = [word for word in raw.event.vocabulary if word not in raw.roles.reward]
    if unknown:
        codes = [raw.event.vocabulary.index(word) for word in unknown]
        at = np.flatnonzero(np.isin(raw.event.values, codes) & raw.event.usable)
        found, expected = ", ".join(map(repr, unknown[:5])), f"one of {', '.join(map(repr, raw.roles.reward))}"
        yield Finding(raw.event.name, at, found, expected, "set its reward in reward= or --reward (0 for none)")


@validation("propensity not in (0, 1]", "error", INTERACTION_CHECKS)
def bad_propensity(raw: RawInteractions) -> Iterable[Finding]:
    """A propensity is not positive, or above 1."""
    if raw.propensity is not None:
        values = raw.propensity.values
        bad = ((values <= 0) | (values > 1)) & raw.propensity.usable & np.isfinite(values)
        found, advice = first_values(values[bad]), "log the probability of showing this item"
        yield from in_rows(raw.propensity.name, bad, found, "above 0 and at most 1", advice)


@validation("item not in its slate", "error", INTERACTION_CHECKS)
def item_not_shown(raw: RawInteractions) -> Iterable[Finding]:
    """The slate does not contain the chosen item."""
    if raw.slate is None or raw.item is None:
        return
    bad = ~(raw.slate == raw.item.values[:, None] + 1).any(axis=1) & raw.item.usable
    found = f"item {first_values(raw.catalogue[raw.item.values[bad]])} is not in its slate"
    advice = "align items and slates; a slate holds all shown items, including the chosen one"
    yield from in_rows(raw.roles.slate, bad, found, "the item among the shown items", advice)


@validation("one item only", "error", INTERACTION_CHECKS)
def one_item_only(raw: RawInteractions) -> Iterable[Finding]:
    """Every event has the same item: there is no choice."""
    if raw.item is not None and len(raw.catalogue) == 1 and raw.rows:
        found = f"one item only, {raw.catalogue[0]!s}"
        yield Finding(raw.item.name, None, found, "at least two items", "check the column of the item")


@validation("ids without features", "error", INTERACTION_CHECKS)
def ids_without_features(raw: RawInteractions) -> Iterable[Finding]:
    """A feature table has no row for an item or user of the log, or two rows."""
    for described, column in ((raw.item_features, raw.item), (raw.user_features, raw.user)):
        if described is None or column is None:
            continue
        if column is raw.item:
            ids = raw.catalogue
        else:
            ids = np.unique(column.values) if column.vocabulary is None else np.asarray(column.vocabulary)
        known = set(described.ids.drop_nulls().to_list())
        missing = [one for one in map(str, ids.tolist()) if one not in known]
        twice = described.ids.drop_nulls().filter(described.ids.drop_nulls().is_duplicated()).unique().sort().to_list()
        for odd, state in ((missing, "have no row"), (twice, "have two rows")):
            if odd:
                found = f"{len(odd):,} ids {state} in {described.source}: {', '.join(odd[:5])}"
                yield Finding(column.name, None, found, "one row of features per id", "correct the feature table")


# Warnings.


@validation("several items in a cell", "warning", INTERACTION_CHECKS)
def several_items(raw: RawInteractions) -> Iterable[Finding]:
    """Cells of items hold several numbers each: every different list counts as one item."""
    words = pl.Series(raw.catalogue.tolist(), dtype=pl.String, strict=False)
    if raw.item is None or not holds_several_numbers(words):
        return
    several = words.str.contains(r"\d\D+\d").to_numpy()
    rows = np.flatnonzero(several[raw.item.values] & raw.item.usable)
    advice = "write one row per item; `tidelog log inspect` prints the command"
    found = f"{words.filter(several)[0]!r} counts as one item"
    yield Finding(raw.item.name, rows, found, "one item in a cell", advice)


@validation("repeated event", "warning", INTERACTION_CHECKS)
def repeated_event(raw: RawInteractions) -> Iterable[Finding]:
    """The same user has the same kind of event with the same item at the same time more than once; all are used."""
    if raw.user is None or raw.item is None or raw.time is None:
        return
    keys = [one.values for one in (raw.time, raw.item, raw.user, raw.event) if one is not None]
    order = np.lexsort([np.arange(raw.rows), *keys])
    again = np.zeros(raw.rows, bool)
    again[order[1:]] = np.logical_and.reduce([key[order[1:]] == key[order[:-1]] for key in keys])
    again &= np.logical_and.reduce([column.usable for column in (raw.user, raw.item, raw.time)])
    advice = "remove them if the export wrote rows twice; otherwise each counts"
    yield from in_rows(raw.item.name, again, "copies of another event", "different events", advice)


@validation("repeated in a slate", "warning", INTERACTION_CHECKS)
def repeated_in_a_slate(raw: RawInteractions) -> Iterable[Finding]:
    """A slate contains an item more than once, as padded slates do."""
    if raw.slate is None or raw.roles.slate is None:
        return
    placed = np.sort(raw.slate, axis=1)
    twice = (placed[:, 1:] == placed[:, :-1]) & (placed[:, 1:] > 0)
    if twice.any():
        item = raw.catalogue[int(placed[:, 1:][twice][0]) - 1]
        advice = "remove padding items: otherwise they count as items and can be recommended"
        yield Finding(raw.roles.slate, np.flatnonzero(twice.any(axis=1)), f"'{item}' twice", "each item once", advice)


@validation("unordered events", "warning", INTERACTION_CHECKS)
def unordered_events(raw: RawInteractions) -> Iterable[Finding]:
    """Events of a user are not in order of time; they were sorted."""
    if raw.time is None or raw.user is None or not raw.time.usable.all():
        return
    late = np.zeros(raw.rows, bool)
    by_user = np.argsort(raw.user.values, kind="stable")
    same = raw.user.values[by_user][1:] == raw.user.values[by_user][:-1]
    late[by_user[1:]] = same & (raw.time.values[by_user][1:] < raw.time.values[by_user][:-1])
    found, advice = "events earlier than the row above", "nothing, if the times are right"
    yield from in_rows(raw.time.name, late, found, "rising times", advice)


@validation("times far outside", "warning", INTERACTION_CHECKS)
def times_far_outside(raw: RawInteractions) -> Iterable[Finding]:
    """A few events are separated from all others by a longer time than the others cover: wrong dates, as a rule."""
    if raw.time is None:
        return
    times = raw.time.values
    rows = np.flatnonzero(raw.time.usable & np.isfinite(times))
    if len(rows) < _FEWEST_TIMES:
        return
    rows = rows[np.argsort(times[rows], kind="stable")]
    ordered = times[rows] if times.dtype.kind == "M" else times[rows].astype(np.float64)
    most = max(1, round(_OUTSIDE * len(rows)))
    if ordered[-1 - most] == ordered[most]:
        return
    far = np.flatnonzero(np.diff(ordered) > ordered[-1 - most] - ordered[most])
    early = rows[: 1 + int(far[far < most].max(initial=-1))]
    late = rows[1 + int(far[far >= len(rows) - 1 - most].min(initial=len(rows) - 1)) :]
    inside = ordered[len(early) : len(rows) - len(late)]
    advice = (
        "correct these times or remove the rows: a share of the time between the first and the last event is held out"
    )
    expected = f"times near the {len(inside):,} others, {inside[0]} to {inside[-1]}"
    for odd in (np.sort(early), np.sort(late)):
        found = f"{len(odd):,} of {len(rows):,} events: {first_values(times[odd])}"
        yield from in_rows(raw.time.name, odd, found, expected, advice)


@validation("events at one time", "warning", INTERACTION_CHECKS)
def events_at_one_time(raw: RawInteractions) -> Iterable[Finding]:
    """A user has several events at the same time; they keep the order of the file."""
    if raw.time is not None:
        advice = "for a basket, the order within it has no meaning; lists are then measured by whole baskets"
        found, at = "the same time as another event of the user", raw.order.rows[raw.order.tied]
        yield from in_rows(raw.time.name, at, found, "an order of each user's events", advice)


@validation("rewards all equal", "warning", INTERACTION_CHECKS)
def rewards_all_equal(raw: RawInteractions) -> Iterable[Finding]:
    """Every event has the same reward: only the choice of items carries information."""
    worth = event_reward(raw)
    if raw.rows > 1 and worth is not None and worth.min() == worth.max():
        advice = "set reward= (a column, or the reward of each kind of event) if some events are worth more"
        name = None if raw.worth is None else raw.worth.name
        yield Finding(name, None, f"{worth[0]:g} in every row", "different rewards", advice)


@validation("reward of unknown event", "warning", INTERACTION_CHECKS)
def reward_of_unknown_event(raw: RawInteractions) -> Iterable[Finding]:
    """The rewards name a kind of event that the log does not have."""
    if isinstance(raw.roles.reward, Mapping) and raw.event is not None and raw.event.vocabulary is not None:
        unseen = [kind for kind in raw.roles.reward if kind not in raw.event.vocabulary]
        if unseen:
            expected = f"kinds of the log: {', '.join(map(repr, raw.event.vocabulary[:8]))}"
            yield Finding(raw.event.name, None, f"no event {', '.join(map(repr, unseen))}", expected, "check its name")


@validation("users without history", "warning", INTERACTION_CHECKS)
def users_without_history(raw: RawInteractions) -> Iterable[Finding]:
    """A user has only one event: there is no history to predict it from."""
    if raw.user is None:
        return
    _, where, counts = np.unique(raw.user.values, return_inverse=True, return_counts=True)
    single, advice = (
        (counts[where] == 1) & raw.user.usable,
        "nothing, if they are new users; else check the column of the user",
    )
    yield from in_rows(raw.user.name, single, "users with only one event", "at least two events per user", advice)


@validation("no pause ends a session", "warning", INTERACTION_CHECKS)
def no_pause(raw: RawInteractions) -> Iterable[Finding]:
    """No pause is longer than `session_gap`: no session ends within the log."""
    gap = raw.session_gap
    if gap is None or raw.time is None or raw.order.key is None or not raw.rows:
        return
    longest = pauses(raw.order.key, raw.order.last).max()
    if longest <= gap:
        advice = "check its unit: the unit of numeric times, seconds for dates"
        yield Finding(raw.time.name, None, f"no pause above {longest:g}", f"pauses longer than {gap:g}", advice)


def event_reward(raw: RawInteractions) -> Values | None:
    """The reward of each event [M] float32, in file order; None if it cannot be computed."""
    if raw.roles.reward is None:
        return np.ones(raw.rows, np.float32)
    return None if raw.worth is None else raw.worth.values.astype(np.float32)


def pauses(times: Values, last: Values) -> Values:
    """[M] float64: time from each event to the user's next one, or to the end of the log; seconds for dates."""
    times = times if times.dtype.kind == "M" else times.astype(np.float64)
    steps = np.where(last, times.max(), np.roll(times, -1)) - times
    waits: Values = steps / np.timedelta64(1, "s") if times.dtype.kind == "M" else steps.astype(np.float64)
    return waits


# Read a table of interactions into validated `Interactions`, or into a report of every problem.

ONE_KIND = ("event",)  # the name of events if no column names their kind


def read_interactions(source: Any, *, user: str, item: str, time: str, **roles: Any) -> Interactions:
    """Read a table of who chose which item when: a path (CSV, Parquet, JSON lines, Arrow) or a frame.

    A folder of tables, a glob, or a list of these is one log of several files, read in the order of their names.

    `event`: the column of event kinds. `reward`: a column, or the reward of each kind; by default each event has reward
    1. `reward_unit`: the unit of rewards, such as "EUR", which reports show. `session`, `session_gap`: ends of
    sessions. `propensity`, `slate`: the probability of the item, and the shown items. `item_features`, `user_features`:
    tables with one row per id. Raises LogError with the report of every problem, ConfigError for an invalid argument.

    Example:
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> tl.read_interactions(table, user="user", item="item", time="time")
        Interactions(3 events of 2 users, 2 items; event)
    """
    return read_by_roles(source, Roles(user=user, item=item, time=time, **roles))


def read_by_roles(source: Any, roles: Roles) -> Interactions:
    """Read interactions with the arguments in one value; those from files can be read again."""
    raw = raw_interactions(source, roles)
    report = report_of(raw, findings(raw, INTERACTION_CHECKS, "no events"))
    if not report.ok:
        raise LogError(report.text(), report=report)
    interactions = _build(raw, report)
    named = roles.to_json()
    recorded = recorded_source(source)
    if recorded is None or named is None:
        return interactions
    return replace(interactions, origin={"source": recorded, "columns": None, "roles": named})


def check(
    source: Any,
    columns: Columns | Mapping[str, Any] | str | Path | None = None,
    *,
    format: str | None = None,
    **roles: Unpack[RoleColumns],
) -> Report:
    """Check a log and return the report of every problem with its rows; does not raise for bad data.

    The arguments are those of `read_log`, or, with `user=`, `item=` and `time=`, those of `read_interactions`.

    Example:
        >>> table = pl.DataFrame({"patient": [7, 7], "severity": [3, None], "dose": [0, 1], "cured": [0, 1]})
        >>> columns = tl.Columns(
        ...     episode="patient", observation=["severity"], action="dose", reward="cured", terminated=True
        ... )
        >>> report = tl.check(table, columns)
        >>> print(report.text().splitlines()[1])
        error: missing value in 'severity', 1 row: 2
        >>> clicks = pl.DataFrame({"user": ["a", "a"], "item": ["tea", None], "time": [1, 2]})
        >>> print(tl.check(clicks, user="user", item="item", time="time").text().splitlines()[1])
        error: empty cell in 'item', 1 row: 2
    """
    if isinstance(source, Log | Interactions):
        return source.report
    if is_saved_interactions(source):
        return Interactions.load(source).report
    if not roles:
        return validate(source, columns, format=format)
    for name in roles:
        if name not in Roles.__dataclass_fields__:
            known = ["columns", "format", *Roles.__dataclass_fields__]
            raise unknown_name("check", "argument", name, known)
    if columns is not None or format is not None:
        raise ConfigError("columns and roles of interactions", "one of them", "leave out columns and format")
    return validate_by_roles(source, Roles(**roles))


def is_saved_interactions(source: Any) -> bool:
    """Whether a folder holds saved interactions."""
    return isinstance(source, str | Path) and (Path(source) / MANIFEST).exists() and INTERACTIONS.is_at(Path(source))


def validate_by_roles(
    source: Any,
    roles: Roles,
    quarantine: str | Path | None = None,
    csv_safe: bool = False,
    overwrite: bool = False,
    keep: str | Path | None = None,
) -> Report:
    """Validate with the arguments in one value; the rows of every error go to a new CSV file `quarantine`.

    With `overwrite` that file is replaced, or deleted if no error names a row. `keep`: also write the other rows to
    this new CSV file; the other events of a user stay, in their order.
    """
    target = None if quarantine is None else csv_path(quarantine, overwrite)
    kept = None if keep is None else csv_path(keep, overwrite)
    try:
        raw = raw_interactions(source, roles)
    except LogError as error:
        report: Report = error.report
        if target is not None:
            delete_older(target)
        return report
    results, named = findings(raw, INTERACTION_CHECKS, "no events"), list(roles.used().values())
    if target is not None or kept is not None:
        write_rows(table_with(source, named), results, target, kept, None, csv_safe)
    return report_of(raw, results)


def _build(raw: RawInteractions, report: Report) -> Interactions:
    """Order events and build `Interactions`; the raw log must be valid."""
    order, worth = raw.order, event_reward(raw)
    if raw.item is None or raw.time is None or worth is None:
        raise LogError("the interactions have no user, item or time", fix="name all three columns", report=report)
    kinds = ONE_KIND if raw.event is None else raw.event.vocabulary or ()
    event = np.ones(raw.rows, np.int32) if raw.event is None else order.sort(raw.event.values) + 1
    terminated = np.zeros(raw.rows, bool)  # the last events of sessions
    if raw.session_gap is not None and order.key is not None:
        terminated |= pauses(order.key, order.last) > raw.session_gap
    if raw.session is not None:
        session = order.sort(raw.session.values)
        terminated[:-1] |= ~order.last[:-1] & (session[1:] != session[:-1])
    time = order.sort(raw.time.values)
    return Interactions(
        users=order.ids,
        items=raw.catalogue,
        events=tuple(kinds),
        user=order.episode,
        item=(order.sort(raw.item.values) + 1).astype(np.int32),
        event=event.astype(np.int32),
        reward=order.sort(worth),
        time=time if time.dtype.kind == "M" else time.astype(np.float64),
        terminated=terminated,
        truncated=order.last & ~terminated,
        propensity=None if raw.propensity is None else order.sort(raw.propensity.values).astype(np.float32),
        slate=None if raw.slate is None else order.sort(raw.slate),
        item_features=_features(raw.item_features, raw.catalogue, 1),
        user_features=_features(raw.user_features, order.ids, 0),
        feature_names=() if raw.item_features is None else raw.item_features.profile.names,
        profile=None if raw.user_features is None else raw.user_features.profile,
        item_profile=None if raw.item_features is None else raw.item_features.profile,
        scored=None,
        report=report,
        reward_unit=raw.roles.reward_unit,
        session_gap=raw.session_gap,
    )


def _features(described: FeatureTable | None, ids: Values, before: int) -> Values | None:
    """[before + ids, F] float32: one row per id in their order, after rows of zeros."""
    if described is None:
        return None
    position = {word: row for row, word in enumerate(described.ids.to_list())}
    rows = np.asarray([position[str(one)] for one in ids.tolist()])
    padding = np.zeros((before, described.values.shape[1]), np.float32)
    features: Values = np.concatenate([padding, described.values[rows]])
    return features


class Origin(msgspec.Struct):
    """Where a log was read from, and how."""

    source: str | list[str]  # a path, several, or the name of a data set
    columns: dict[str, Any] | str | None  # the mapping, or its file
    memory_map: bool = False
    format: str | None = None
    roles: dict[str, Any] | None = None
    parts: list[dict[str, Any]] = []


def reopen(origin: Mapping[str, Any]) -> Log:
    """Read a log again from its origin; LogError if the origin holds interactions."""
    log = reopen_any(origin)
    if isinstance(log, Interactions):
        raise LogError(f"{source_text(origin)} holds interactions", "a log with observations", report=log.report)
    return log


def reopen_any(origin: Mapping[str, Any]) -> Log | Interactions:
    """Read a log or interactions again from their origin, and take the same parts of it."""
    about = typed(origin, Origin, "the origin of the log", LogError)
    log: Log | Interactions
    if about.roles is not None:
        log = read_by_roles(about.source, Roles(**about.roles))
    elif isinstance(about.source, str) and INTERACTIONS.is_at(Path(about.source)):
        log = Interactions.load(about.source)
    else:
        log = read_log(about.source, about.columns, format=about.format, memory_map=about.memory_map)
    for part in about.parts:
        if isinstance(log, Interactions):
            raise LogError(f"{about.source} holds interactions", "a log with observations", report=log.report)
        log = log.part_again(part)
    return log
