"""Parse a table and its mapping into a `RawLog`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import polars as pl

from tidelog.data.core.columns import LEAVES, Columns, declared_actions, declared_atoms, names
from tidelog.data.core.declared import SHARES, SHARES_BY, Declaration
from tidelog.data.core.ends import LASTS, STARTS, TERMINATIONS, TRUNCATIONS
from tidelog.data.core.order import Values
from tidelog.data.core.raw import Column, Feature, FileRows, Finding, Kind, RawAction, RawLog
from tidelog.data.core.registry import unreadable
from tidelog.data.core.rounding import rounded_rewards
from tidelog.data.parsing import column as parse
from tidelog.data.parsing.actions import decide_action
from tidelog.data.parsing.missing import fill_missing
from tidelog.data.validation.clusters import unused_names
from tidelog.errors import nearest
from tidelog.number_text import count_of


@dataclass(frozen=True, eq=False)
class Table:
    """A frame as read from its source; `numbers` [N] are the user's row numbers, `columns` all names in the source.

    A lazy frame yields one column at a time; the whole table is never in memory at once. A table of several files has
    their tables in `parts`; a column that differs between them is in `uneven`, with the difference, and is not read.
    Rows of `data` that are False in `chosen` are left out everywhere else.
    """

    source: str
    data: pl.DataFrame | pl.LazyFrame
    numbers: Values
    columns: Sequence[str]
    has_lines: bool = False
    found: list[tuple[str, Finding]] = field(default_factory=list)
    parts: tuple[Table, ...] = ()
    uneven: Mapping[str, str] = field(default_factory=dict)
    chosen: pl.Series | None = None

    @classmethod
    def of(cls, data: pl.DataFrame | pl.LazyFrame, source: str, columns: Sequence[str] | None = None) -> Table:
        """Build a table whose rows are counted from 1."""
        rows = data.height if isinstance(data, pl.DataFrame) else data.select(pl.len()).collect().item()
        return cls(source, data, np.arange(1, rows + 1, dtype=np.int32), columns or data.collect_schema().names())

    @cached_property
    def names(self) -> frozenset[str]:
        """The columns that were read."""
        return frozenset(self.data.collect_schema().names()) - self.uneven.keys()

    @cached_property
    def files(self) -> FileRows | None:
        """The files of the rows; None for one file."""
        ends = np.cumsum([part.rows for part in self.parts], dtype=np.int64)
        return FileRows(tuple(part.source for part in self.parts), ends) if self.parts else None

    @property
    def rows(self) -> int:
        """Number of rows N."""
        return len(self.numbers)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All columns at once; LogError if the file is damaged."""
        frame = self.data if isinstance(self.data, pl.DataFrame) else self._collected(self.data)
        return frame if self.chosen is None else frame.filter(self.chosen)

    def series(self, name: str) -> pl.Series:
        """One column; LogError if the file is damaged."""
        frame = self.data if isinstance(self.data, pl.DataFrame) else self._collected(self.data.select(name))
        return parse.plain(frame[name] if self.chosen is None else frame[name].filter(self.chosen))

    def _collected(self, data: pl.LazyFrame) -> pl.DataFrame:
        try:
            frame = data.collect()
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            for part in self.parts:
                _ = part.frame  # raises for the damaged file, by its name
            raise unreadable(self.source, first_error_line(error), "a whole table") from error
        counted = self.rows if self.chosen is None else len(self.chosen)
        if frame.height != counted:
            found = f"{frame.height:,} rows in '{frame.columns[0]}', and {counted:,} in the file's own count"
            raise unreadable(self.source, found, "a whole table", "export or copy the file again")
        return frame

    def has(self, name: str) -> bool:
        """Whether the column was read."""
        return name in self.names

    def paths(self, series: pl.Series) -> pl.Series:
        """Names of files in a column, relative to their table, as paths; empty cells stay empty."""
        ends = [self.rows] if self.files is None else self.files.ends.tolist()
        below = []
        for part, end in zip(self.parts or (self,), ends, strict=True):
            folder, text = Path(part.source).parent, series[end - part.rows : end].cast(pl.String).str.strip_chars()
            words = [word for word in text.unique().to_list() if word]
            below.append(text.replace(words, [str(folder / word) for word in words]))
        return pl.concat(below).rename(series.name)


def first_error_line(error: BaseException) -> str:
    """The first line of an error's message; a fixed text for a panic, whose message names threads."""
    return "damaged contents" if isinstance(error, pl.exceptions.PanicException) else str(error).split("\n")[0]


def from_table(table: Table, columns: Columns) -> RawLog:
    """Parse every column that the mapping names; a missing column is a finding, not an exception."""
    table = without_empty(table, columns)
    if columns.na_values:
        table = without_na(table, columns)
    observation, following, image_findings = _features(table, columns)
    selections = (columns.action_mask, columns.next_action_mask)
    listed = [parse.mask_tokens(_present(table, selected)) for selected in selections]
    action = _action(table, columns, [one for one in listed if one is not None])
    labels = _labels(action) if any(one is not None for one in listed) else ()
    masks = [
        parse.named_mask(one.name, one, labels) if one is not None and labels else _mask(table, selected)
        for one, selected in zip(listed, selections, strict=True)
    ]
    rewards, rounded = _rewards(table, columns)
    episode, cluster = (_one(table, name, parse.identity) for name in (columns.episode, columns.cluster))
    time = _one(table, columns.time, partial(parse.moment, date_format=columns.date_format))
    if columns.episode_gap is not None and episode is not None and time is not None:
        cluster = episode if columns.cluster is None else cluster  # parts of one episode are dependent
        episode = _split_at_gaps(episode, time, columns.episode_gap)
    roles = {name: role for role, several in columns.used().items() for name in several}
    found = table.found + [(check, one) for check, one in duplicates(table.columns) if one.column in roles]
    roles |= dict.fromkeys(names(columns.categorical), "categorical")
    found += [*lacking(table, roles), *_two_meanings(table, columns), *_possible_ends(table, columns)]
    raw = RawLog(
        source=table.source,
        rows=table.rows,
        numbers=table.numbers,
        has_lines=table.has_lines,
        observation=observation,
        next_observation=following,
        action=action,
        reward=None if columns.reward is None else tuple(rewards),
        episode=episode,
        step=_one(table, columns.step, parse.number),
        time=time,
        terminated=_one(table, None if columns.terminated is True else columns.terminated, parse.flag),
        truncated=_one(table, columns.truncated, parse.flag),
        propensity=_one(table, columns.recorded, parse.narrow),
        declared=columns.declared,
        strata=tuple(parse.identity(_single(one)) for one in _present(table, (columns.declared or NOT_DECLARED).by)),
        weight=_one(table, columns.weight, parse.narrow),
        cluster=cluster,
        action_mask=masks[0],
        next_action_mask=masks[1],
        extra=tuple(_extra(series, columns) for series in _present(table, columns.extra)),
        unused=_unused(table, columns),
        terminations=columns.terminations,
        reward_unit=columns.reward_unit,
        atoms=declared_atoms(columns.atoms),
        always_terminated=columns.terminated is True,
        files=table.files,
        left_out=np.zeros(0, np.int64) if table.chosen is None else np.flatnonzero(~table.chosen.to_numpy()),
        found=(*found, *image_findings, *rounded),
    )
    return fill_missing(_report_unknown_values(raw), columns.rules)


def _split_at_gaps(episode: Column, time: Column, gap: float) -> Column:
    """The identifiers of episodes that end before a pause longer than `gap` (seconds for dates): `id/0`, `id/1`, ..."""
    order = np.lexsort((time.values, episode.values))
    pauses = np.diff(time.values[order])
    if pauses.dtype.kind == "m":
        pauses = pauses / np.timedelta64(1, "s")
    same = episode.values[order][1:] == episode.values[order][:-1]
    parts = np.concatenate([[0], np.cumsum(same & (pauses > gap))]) if len(order) else order
    first = np.concatenate([[0], np.where(~same, np.arange(1, len(order)), 0)]) if len(order) else order
    parts = parts - parts[np.maximum.accumulate(first)]  # counted from 0 in each episode
    pairs = np.stack([episode.values[order].astype(np.int64), parts.astype(np.int64)], axis=1)
    distinct, codes = np.unique(pairs, axis=0, return_inverse=True)
    words = episode.vocabulary
    names = tuple(f"{one if words is None else words[one]}/{part}" for one, part in distinct.tolist())
    values = np.empty(len(order), np.int32)
    values[order] = codes.reshape(-1)
    return replace(episode, values=values, vocabulary=names)


def without_na(table: Table, columns: Columns) -> Table:
    """The table with null in cells of the used columns whose text is one of `na_values`."""
    absent, schema = list(columns.na_values), table.data.collect_schema()
    numbers = pl.Series(absent, dtype=pl.String).cast(pl.Float64, strict=False).drop_nulls()
    used = dict.fromkeys(name for several in columns.used().values() for name in several if name in schema)

    def is_absent(name: str) -> pl.Expr:
        if schema[name].is_numeric():
            return pl.col(name).cast(pl.Float64, strict=False).is_in(numbers.implode())
        return pl.col(name).cast(pl.String).str.strip_chars().is_in(absent)

    cells = (
        pl.when(~is_absent(name).fill_null(False)).then(pl.col(name)).alias(name)
        for name in used
        if not schema[name].is_nested() and not schema[name].is_temporal()
    )
    return replace(table, data=table.data.with_columns(cells))


def without_empty(table: Table, columns: Columns) -> Table:
    """The table without the rows in which a column of `drop_rows_without` is empty, and a note that counts them."""
    named = [name for name in names(columns.drop_rows_without) if table.has(name)]
    if not named or table.chosen is not None:
        return table
    read = without_na(table, columns) if columns.na_values else table
    empty = {name: parse.is_empty(read.series(name)).to_numpy() for name in named}
    dropped = np.any(list(empty.values()), axis=0)
    if not dropped.any():
        return table
    each = ", ".join(f"'{name}' in {int(rows.sum()):,}" for name, rows in empty.items() if rows.any())
    listed = ", ".join(str(row) for row in table.numbers[dropped][:10]) + (", ..." if dropped.sum() > 10 else "")
    counted = f"{count_of(int(dropped.sum()), 'row')} of {table.rows:,} left out: empty is {each}; rows {listed}"
    fix = "nothing, if these rows say nothing about the decisions; the mapping drops them by `drop_rows_without`"
    notes = [("rows left out", Finding(None, None, counted, "a value in these columns", fix))]
    if columns.episode is not None and table.has(columns.episode):
        ids = read.series(columns.episode)
        several = ids.filter(pl.Series(dropped)).unique()
        several = several.filter(several.is_in(ids.filter(pl.Series(~dropped)).unique().implode()))
        cut = f"{count_of(len(several), 'episode')} with rows left out and others that remain: {several[:3].to_list()}"
        fix = "leave out whole episodes, or fill the cells; nothing, if what remains are the first rows of each"
        if len(several):
            notes.append(("incomplete episodes", Finding(columns.episode, None, cut, "whole episodes", fix)))
    ends = np.cumsum([part.rows for part in table.parts], dtype=np.int64).tolist()
    parts = (
        replace(part, numbers=part.numbers[~dropped[end - part.rows : end]])
        for part, end in zip(table.parts, ends, strict=True)
    )
    numbers, found = table.numbers[~dropped], [*table.found, *notes]
    return replace(table, numbers=numbers, chosen=pl.Series(~dropped), parts=tuple(parts), found=found)


def _labels(action: RawAction | None) -> tuple[str, ...]:
    """The names of discrete actions; of numbered ones the numbers."""
    if action is None or action.kind != "discrete":
        return ()
    (column,) = action.columns
    if column.vocabulary is not None:
        return column.vocabulary
    codes = column.values[column.usable & np.isfinite(column.values)]
    most = int(codes.max(initial=-1)) + 1 if action.sizes is None else action.sizes[0]
    return tuple(map(str, range(most))) if most <= MOST_MASKED else ()


_FEW, _WIDE = 100, 10  # codes that are plausible, whatever their number, and for each different one
MOST_MASKED = 10_000  # numbered actions of a mask
NOT_DECLARED = Declaration()


def _two_meanings(table: Table, columns: Columns) -> list[tuple[str, Finding]]:
    """A finding if "shares" could be the column of that name, or each action's own share."""
    if columns.propensity != SHARES or SHARES not in table.columns:
        return []
    found = f'propensity = "{SHARES}", which means each action\'s own share, and a column of that name'
    fix = (
        f"write propensity = {{ {SHARES_BY} = [] }} for each action's own share; if the column holds recorded "
        "probabilities, rename it"
    )
    return [("bad mapping", Finding(SHARES, None, found, "one of them", fix))]


def _possible_ends(table: Table, columns: Columns) -> list[tuple[str, Finding]]:
    """Findings on columns named like ends or beginnings of episodes, where the mapping names none and no episode."""
    used = {name for several in columns.used().values() for name in several}
    expected = "a role for each column of ends or beginnings"
    roles = [("terminated", TERMINATIONS), ("truncated", TRUNCATIONS)]
    fixes = {
        name: f"{role} = {json.dumps(name, ensure_ascii=False)} in the mapping"
        for role, known in roles
        if getattr(columns, role) is None and columns.episode is not None
        for name in table.columns
        if name.lower() in known
    }
    if columns.episode is None:
        number = "every row is an episode of one step: number the episodes in a column, and name it in `episode`"
        fixes |= {name: number for name in table.columns if name.lower() in (*STARTS, *LASTS)}
    return [
        ("possible end column", Finding(name, None, f"a column '{name}' that is not read", expected,
                                        f"{fix}; nothing, if '{name}' means something else"))
        for name, fix in fixes.items()
        if name not in used
    ]  # fmt: skip


def _rewards(table: Table, columns: Columns) -> tuple[list[Column], list[tuple[str, Finding]]]:
    """The columns of rewards: words as their values, the weighted sum if there are weights, within the limits.

    And findings about those that 32 bits change.
    """
    worth = {word: float(value) for word, value in dict(columns.reward_values).items()}
    empty = worth.pop("", None)  # the reward of a row without one

    def read(series: pl.Series) -> Column:
        if worth and isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
            text = series.cast(pl.String).str.strip_chars()
            series = text.replace(list(worth), [str(value) for value in worth.values()]).rename(series.name)
        column = parse.number(series)
        if empty is None or not len(column.missing):
            return column
        values = np.array(column.values)
        values[column.missing] = empty
        return replace(column, values=values, missing=column.missing[:0])

    rewards = [read(series) for series in _present(table, columns.reward)]
    weights = columns.reward_weights
    if weights is not None and len(rewards) == len(weights) and all(one.values.ndim == 1 for one in rewards):
        weighted = [weight * np.asarray(one.values, np.float64) for weight, one in zip(weights, rewards, strict=True)]
        rewards = [
            Column(
                " + ".join(one.name for one in rewards),
                np.asarray(np.sum(weighted, axis=0), np.float64),
                missing=np.unique(np.concatenate([one.missing for one in rewards])),
                unreadable=np.unique(np.concatenate([one.unreadable for one in rewards])),
                texts=tuple(text for one in rewards for text in one.texts),
            )
        ]
    if columns.reward_clip is not None:
        low, high = columns.reward_clip
        rewards = [replace(one, values=np.clip(one.values, low, high)) for one in rewards]
    found = [finding for one in rewards for finding in rounded_rewards(one)]
    with np.errstate(over="ignore"):  # infinite rewards are refused later
        return [replace(one, values=one.values.astype(np.float32)) for one in rewards], found


def unique(header: Sequence[str]) -> list[str]:
    """Distinct names, as Polars requires; the first of equal names stays unchanged."""
    known: set[str] = set()
    names = []
    for place, name in enumerate(header):
        names.append(f"{name}\x00{place}" if name in known else name)
        known.add(name)
    return names


def duplicates(header: Sequence[str]) -> list[tuple[str, Finding]]:
    """The names that appear twice in a header, as findings."""
    twice = sorted((name, count) for name, count in Counter(header).items() if count > 1)
    return [
        ("duplicate column name",
         Finding(name, None, f"{count} columns named '{name}'", "distinct names", "rename one of them"))
        for name, count in twice
    ]  # fmt: skip


def lacking(table: Table, roles: Mapping[str, str]) -> list[tuple[str, Finding]]:
    """The columns with a role that the table, or one of its files, does not have; `roles` maps columns to roles."""
    known = [name for name in table.columns if name]
    shown = ", ".join(map(repr, list(table.columns)[:8])) + (", ..." if len(table.columns) > 8 else "")
    present = frozenset(table.columns)
    near = {name: nearest(name, known) for name in roles if name not in present}
    fixes = {
        name: f"correct the name in the mapping: {text}" if text.startswith("did you mean")
        else "correct the name in the mapping, or add the column to the file"
        for name, text in near.items()
    }  # fmt: skip
    found = [
        ("missing column", Finding(name, None, f"no column '{name}' for {role}; the columns are {shown}",
                                   f"a column '{name}'", fixes[name]))
        for name, role in roles.items() if name not in present
    ]  # fmt: skip
    fix = "export the files alike, or read them apart and join the logs with tidelog.concat"
    return found + [
        ("files differ", Finding(name, None, table.uneven[name], "the same columns and types in every file", fix))
        for name in roles
        if name in table.uneven
    ]


def _present(table: Table, selected: str | Sequence[str] | bool | None) -> list[pl.Series]:
    return [table.series(name) for name in names(selected) if table.has(name)]


def _one(table: Table, name: str | bool | None, read: Callable[[pl.Series], Column]) -> Column | None:
    series = _present(table, name)
    return read(_single(series[0])) if series else None


def _single(series: pl.Series) -> pl.Series:
    """One value per row: lists become text, which is neither a number, a flag nor a time."""
    return parse.spelled(series) if isinstance(series.dtype, pl.List | pl.Array) else series


def _mask(table: Table, selected: str | Sequence[str] | None) -> Column | None:
    series = _present(table, selected)
    return parse.mask(series) if series and len(series) == len(names(selected)) else None


def _extra(series: pl.Series, columns: Columns) -> Column:
    series = _single(series)
    return parse.categories(series)[0] if _is_word(series, columns) else parse.moment(series)


def _unused(table: Table, columns: Columns) -> tuple[Column, ...]:
    """Columns without a role, named like clusters, as codes; a row without a value is in `missing`."""
    if columns.cluster is not None:
        return ()
    used = {name for several in columns.used().values() for name in several}
    several_series = [table.series(name) for name in unused_names(sorted(table.names), used) if "\x00" not in name]
    return tuple(_codes(one) for one in several_series if not one.dtype.is_nested())


def _codes(series: pl.Series) -> Column:
    """Numbers and days unchanged, text as hashes; faster than categories, which sort their vocabulary."""
    if series.dtype.is_float() or series.dtype.is_decimal():
        return Column(series.name, series.cast(pl.Float64).fill_null(float("nan")).to_numpy())
    if series.dtype.is_temporal():
        series = (series.dt.date() if isinstance(series.dtype, pl.Datetime) else series).to_physical()
    missing = series.is_null()
    if not series.dtype.is_integer():
        text = series.cast(pl.String)
        missing |= (text == "").fill_null(True)
        series = text.hash() // 4
    values = series.cast(pl.Int64, strict=False).fill_null(0).to_numpy()
    return Column(series.name, values, missing=np.flatnonzero(missing.to_numpy()))


def _is_word(series: pl.Series, columns: Columns) -> bool:
    return series.name in columns.categorical_names or parse.is_categorical(series)


def _action(table: Table, columns: Columns, listed: Sequence[pl.Series] = ()) -> RawAction | None:
    """The logged actions; `listed` are masks as lists of names, whose names are actions as well."""
    selected = names(columns.action)
    series = _present(table, columns.action)
    if len(series) != len(selected):
        return None
    sizes, bounds = declared_actions(columns.actions, columns.bounds)
    words = columns.vocabulary_of.get(selected[0])
    series = [one if words or one.name in columns.categorical_names else parse.as_lists(one) for one in series]
    if len(series) == 1 and (words or (sizes is None and bounds is None and _is_word(series[0], columns))):
        if words is None and listed:
            every = [series[0].cast(pl.String).str.strip_chars(), *(one.explode() for one in listed)]
            unique_words = pl.concat([one.rename("name") for one in every]).drop_nulls().unique().sort()
            words = tuple(unique_words.filter(unique_words != ""))
        count = None if words is None else (len(words),)
        return RawAction("discrete", tuple(parse.categories(series[0], words=words)), count)
    numbers = tuple(map(parse.number, series))
    if len(series) == 1 and sizes is None and bounds is None and not listed:
        labelled = counted_from_one(numbers[0], len(names(columns.action_mask)))
        if labelled is not None:
            return RawAction("discrete", (labelled,))
    return decide_action(numbers, sizes, bounds)


def counted_from_one(column: Column, flags: int = 0) -> Column | None:
    """The same actions with labels, where the codes [N] count from 1 to the largest; None for any other column.

    `flags` is the number of columns of an action mask, which counts the actions: codes from 1 have as many.
    """
    values = column.values
    if values.ndim != 1 or len(column.unreadable) or not column.usable.any():
        return None
    codes = np.unique(values[column.usable])
    top = float(codes[-1])
    if codes[0] != 1 or len(codes) < 2 or not np.all(codes % 1 == 0) or top > max(_FEW, _WIDE * len(codes)):
        return None
    if flags and flags != top:
        return None
    words = tuple(str(code) for code in range(1, int(top) + 1))
    return replace(column, values=np.where(column.usable, values, 1).astype(np.int32) - 1, vocabulary=words)


def _features(
    table: Table, columns: Columns
) -> tuple[dict[str, Feature], dict[str, Feature], list[tuple[str, Finding]]]:
    """Leaves of observations, leaves of next observations, and findings about images and rare labels."""
    following = dict(zip(names(columns.observation), names(columns.next_observation), strict=False))
    kinds: dict[str, list[list[Column]]] = {name: [] for name in LEAVES}
    found: list[tuple[str, Finding]] = []
    block = _Block(table, columns)
    images = frozenset(names(columns.image))
    for name in names(columns.observation):
        pair = [*_present(table, name), *_present(table, following.get(name))]
        if not table.has(name):
            continue
        words = columns.vocabulary_of.get(name)
        if name not in images and not words and name not in columns.categorical_names:
            lists = list(map(parse.as_lists, pair))
            pair = lists if isinstance(lists[0].dtype, pl.List) else pair
        if name in images:
            pictures, wrong = parse.read_images([table.paths(series) for series in pair])
            kinds[name] = [pictures]
            found += wrong
        elif words or _is_word(pair[0], columns):
            coded = parse.categories(*pair, words=words)
            joined, note = parse.join_rare(coded, columns.rows_of_a_label(name))
            kinds["categorical"].append(joined)
            found += note
        else:
            kinds["numeric"].append([block.take(parse.narrow(pair[0])), *map(parse.narrow, pair[1:])])
    now = _side(kinds, 0)
    if "numeric" in now:
        now["numeric"] = replace(now["numeric"], block=block.whole(now["numeric"].columns))
    return now, _side(kinds, 1), found


class _Block:
    """One array [N, D] for numeric columns, filled while they are read; avoids a second copy."""

    def __init__(self, table: Table, columns: Columns) -> None:
        other = {*names(columns.categorical), *names(columns.image), *columns.vocabulary_of}
        schema = table.data.collect_schema()
        self.names = [
            name
            for name in names(columns.observation)
            if name in schema and name not in other and schema[name].is_numeric()
        ]
        self.values = np.empty((table.rows, len(self.names)), np.float32)
        self.filled = 0

    def take(self, column: Column) -> Column:
        """The column as a view of the block, if it is the next one there."""
        if column.name not in self.names[self.filled : self.filled + 1]:
            return column
        view = self.values[:, self.filled]
        view[:] = column.values
        self.filled += 1
        return replace(column, values=view)

    def whole(self, columns: tuple[Column, ...]) -> Values | None:
        """The block, if it holds exactly these columns."""
        return self.values if [column.name for column in columns] == self.names else None


def _side(kinds: dict[str, list[list[Column]]], side: int) -> dict[str, Feature]:
    """Leaves of observations (side 0) or next observations (side 1), if every column has that side."""
    leaves = {}
    for name, pairs in kinds.items():
        if pairs and all(len(pair) > side for pair in pairs):
            kind: Kind = "codes" if name == "categorical" else "vector" if name == "numeric" else "image"
            leaves[name] = Feature(kind, tuple(pair[side] for pair in pairs))
    return leaves


def _report_unknown_values(raw: RawLog) -> RawLog:
    """Report values outside a declared vocabulary as unknown categories instead of as text among numbers."""
    found = list(raw.found)

    def known(column: Column) -> Column:
        if column.vocabulary is None or not len(column.unreadable):
            return column
        texts, expected = ", ".join(map(repr, column.texts)), f"one of {', '.join(map(repr, column.vocabulary[:8]))}"
        advice = "correct the cells, or add the values to vocabularies="
        found.append(("unknown category", Finding(column.name, column.unreadable, texts, expected, advice)))
        return replace(column, unreadable=column.unreadable[:0], reported=column.unreadable)

    sides = [
        {name: replace(leaf, columns=tuple(map(known, leaf.columns))) for name, leaf in side.items()}
        for side in (raw.observation, raw.next_observation)
    ]
    action = raw.action and replace(raw.action, columns=tuple(map(known, raw.action.columns)))
    return replace(raw, observation=sides[0], next_observation=sides[1], action=action, found=tuple(found))
