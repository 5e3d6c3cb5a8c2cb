"""The raw log that every source produces, the order and the ends of its rows, and the report of checks on it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tidelog._text import count_of
from tidelog.data.columns import Bounds, Declaration
from tidelog.errors import LogError
from tidelog.schema import typed

# Group rows into episodes and order them within each episode.

Values = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class RowOrder:
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
    def firsts(self) -> Values:
        """[E]: the first row of each episode, in episode order."""
        return np.flatnonzero(np.append(True, self.last[:-1]))[: len(self.last)]

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


def episode_order(count: int, episode: Values | None, words: tuple[str, ...] | None, key: Values | None) -> RowOrder:
    """Group rows by episode (in the order of first appearance) and sort each by key; ties keep file order."""
    if episode is None:
        every = np.arange(count, dtype=np.int32)
        return RowOrder(every, every, np.zeros(count, np.int32), np.ones(count, bool), np.arange(count), None)
    ordinal, ids = number_by_appearance(episode)
    rows = _sorted_rows(ordinal, key)
    moved = bool((rows[1:] < rows[:-1]).any())
    ordinal = ordinal[rows] if moved else ordinal
    last = np.append(ordinal[1:] != ordinal[:-1], True) if count else np.ones(0, bool)
    starts = np.flatnonzero(np.append(True, last[:-1])) if count else np.zeros(0, int)
    step = np.arange(count, dtype=np.int32)
    step -= np.repeat(starts.astype(np.int32), np.diff(np.append(starts, count)))
    named = np.asarray(words or ("",))[ids] if words is not None else ids
    return RowOrder(rows, ordinal, step, last, named, key[rows] if key is not None and moved else key)


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


# The raw log that every source produces: named columns in file order, the input of the checks.

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
    def is_missing(self) -> Values:
        """[N] bool: rows with an empty cell."""
        is_missing = np.zeros(len(self.values), bool)
        is_missing[self.missing] = True
        return is_missing

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
    """

    kind: Kind
    columns: tuple[Column, ...]
    sizes: tuple[int, ...] | None = None
    fills: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, eq=False)
class RawAction:
    """The logged action with its declared sizes or bounds, or its parts by name, whose columns are side by side."""

    kind: Literal["discrete", "multi", "continuous", "hybrid"]
    columns: tuple[Column, ...]
    sizes: tuple[int, ...] | None = None
    bounds: Bounds | None = None
    parts: tuple[tuple[str, RawAction], ...] = ()

    @classmethod
    def of_parts(cls, parts: Mapping[str, RawAction]) -> RawAction:
        """The action with these parts."""
        columns = tuple(column for part in parts.values() for column in part.columns)
        return cls("hybrid", columns, parts=tuple(parts.items()))

    @property
    def has_probabilities(self) -> bool:
        """Whether no part is continuous: then a propensity is a probability, and no density."""
        return self.kind != "continuous" and all(part.has_probabilities for _, part in self.parts)

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
        return [self.names[position] for position in np.searchsorted(self.ends, at, side="right").tolist()]

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
    elapsed: Column | None = None
    action_mask: Column | None = None
    next_action_mask: Column | None = None
    next_observation: dict[str, Feature] = field(default_factory=dict)
    extra: tuple[Column, ...] = ()
    unused: tuple[Column, ...] = ()  # columns without a role, named like clusters; never an error
    terminations: str = "stop"
    reward_unit: str | None = None
    elapsed_unit: str | None = None
    missing_reward: str | None = None  # rows without a reward are no error: it is "unknown", or missing "at random"
    atoms: tuple[float, ...] = ()  # values of continuous actions with a probability of their own
    always_terminated: bool = False
    from_table: bool = True
    files: FileRows | None = None  # None for one file
    found: tuple[tuple[str, Finding], ...] = ()

    def columns(self) -> Iterator[Column]:
        """All columns except next observations, which may be empty where the next row holds them."""
        yield from self.observed
        if self.action is not None:
            yield from self.action.columns
        yield from self.reward or ()
        named = (self.episode, self.step, self.time, self.terminated, self.truncated, self.propensity, self.weight)
        others = (self.cluster, self.elapsed, self.action_mask, self.next_action_mask)
        yield from (column for column in (*named, *others) if column is not None)
        yield from (*self.strata, *self.extra)

    @property
    def observed(self) -> list[Column]:
        """The columns of the observation."""
        return [column for feature in self.observation.values() for column in feature.columns]

    @property
    def next_columns(self) -> list[Column]:
        """The columns of the next observation."""
        return [column for feature in self.next_observation.values() for column in feature.columns]

    def action_parts(self) -> list[RawLog]:
        """The log with each part of its action in place of the action; itself where that has no parts."""
        if self.action is None or not self.action.parts:
            return [self]
        return [replace(self, action=part, action_mask=None) for _, part in self.action.parts]

    @cached_property
    def order(self) -> RowOrder:
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
        for column in self.next_columns:
            known |= ~column.is_missing
        return known

    def _flag(self, column: Column | None) -> Values:
        if column is None:
            return np.zeros(self.rows, bool)
        return self.order.sort((column.values == 1) & column.usable)


def side_by_side(columns: tuple[Column, ...]) -> Values:
    """[N, D]: concatenate columns of shape [N] or [N, D]."""
    parts = [column.values.reshape(len(column.values), -1) for column in columns]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


# The report of the checks of a log: every problem with its rows, what was found, what was expected, how to fix it.

Level: TypeAlias = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
_WIDTH = 100
_WRAP = textwrap.TextWrapper(_WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)


@dataclass(frozen=True)
class Problem:
    """One finding: `rows` are the first ten of `count`, counted from 1; `lines` are their lines in a text file.

    In a log of several files `files` names the file of each row, and rows and lines are counted in that file.
    """

    level: Level
    check: str
    column: str | None
    rows: tuple[int, ...]
    count: int
    found: str
    expected: str
    fix: str
    lines: tuple[int, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def places(self) -> str:
        """The rows as text, with their lines and files if known."""
        if not self.files:
            word = "line" if self.count == 1 else "lines"
            lines = f" ({word} {_listed(self.lines, self.count)})" if self.lines else ""
            return f"{_listed(self.rows, self.count)}{lines}"
        parts = []
        for file in dict.fromkeys(self.files):
            at = [position for position, one in enumerate(self.files) if one == file]
            word = "line" if len(at) == 1 else "lines"
            lines = f" ({word} {', '.join(str(self.lines[position]) for position in at)})" if self.lines else ""
            parts.append(f"{', '.join(str(self.rows[position]) for position in at)} in {file}{lines}")
        return "; ".join(parts) + ("; ..." if self.count > len(self.rows) else "")

    @property
    def heading(self) -> list[str]:
        """Level, name and place of the problem, in lines at most 100 columns wide."""
        text = f"{self.level}: {self.check}" + (f" in '{self.column}'" if self.column else "")
        if self.rows:
            text += f", {count_of(self.count, 'row')}: {self.places}"
        return _WRAP.wrap(text)

    def text(self) -> str:
        """The problem as text, at most 100 columns wide."""
        parts = [f"  found: {self.found}", f"  expected: {self.expected}", f"  fix: {self.fix}"]
        return "\n".join([*self.heading, *(line for part in parts for line in _WRAP.wrap(part))])


@dataclass(frozen=True)
class Report:
    """The result of all checks of `source`, which has `rows` rows."""

    source: str
    rows: int
    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Problems that make the log unusable."""
        return tuple(problem for problem in self.problems if problem.level == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Problems that are reported without refusing the log."""
        return tuple(problem for problem in self.problems if problem.level == "warning")

    @property
    def notes(self) -> tuple[Problem, ...]:
        """Inferred or converted facts."""
        return tuple(problem for problem in self.problems if problem.level == "note")

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    @property
    def lines(self) -> list[str]:
        """The lines of the report: a summary, then errors, warnings and notes."""
        counts = [count_of(len(self.errors), "error"), count_of(len(self.warnings), "warning")]
        counts += [count_of(len(self.notes), "note"), f"{count_of(self.rows, 'row')} read"]
        ordered = sorted(self.problems, key=lambda problem: LEVELS.index(problem.level))
        return [f"{self.source}: {', '.join(counts)}", *(line for one in ordered for line in one.text().split("\n"))]

    def text(self) -> str:
        """The whole report as plain text."""
        return "\n".join(self.lines)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists that `from_json` reads back."""
        problems = [asdict(problem) for problem in self.problems]
        for problem in problems:
            if not problem["files"]:  # one file: `source`
                del problem["files"]
        return {"source": self.source, "rows": self.rows, "ok": self.ok, "problems": problems}

    @classmethod
    def from_json(cls, data: Any) -> Report:
        """Rebuild a report from `to_json`; LogError for a field of another type."""
        return typed(data, cls, "a saved report is invalid", LogError, "validate the log again")


def _listed(numbers: Iterable[int], count: int) -> str:
    numbers = list(numbers)
    return ", ".join(map(str, numbers)) + (", ..." if count > len(numbers) else "")


def several_as_text(names: Iterable[str]) -> str:
    """The first of several names, and the number of the others."""
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{listed[0]} and {len(listed) - 1:,} more"


def source_text(origin: Mapping[str, Any]) -> str:
    """The source in the origin of a log, as text."""
    source = origin["source"]
    return several_as_text(map(str, source)) if isinstance(source, list) else str(source)


# The registry of checks: each check is a small function that yields findings and has a name and a level.

CheckFunction: TypeAlias = Callable[[Any], Iterable[Finding]]
_SHOWN_ROWS = 10
_SHOWN_NAMES = 8


@dataclass(frozen=True)
class Check:
    """A check of a log; `run` is None if readers and parsers report it themselves."""

    name: str
    level: Level
    meaning: str
    run: CheckFunction | None = None


CHECKS: dict[str, Check] = {}


def rule(name: str, level: Level, meaning: str) -> None:
    """Register a check that readers run while they read a source."""
    CHECKS[name] = Check(name, level, meaning)


def check(name: str, level: Level, among: dict[str, Check] = CHECKS) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function `(raw) -> findings` under a name; its docstring becomes the check's meaning in the docs."""

    def register(run: CheckFunction) -> CheckFunction:
        among[name] = Check(name, level, (run.__doc__ or "").strip(), run)
        return run

    return register


def examine(raw: RawLog) -> Report:
    """Run every check and return one report; for an empty log only the check for rows runs."""
    return report_of(raw, findings(raw))


def findings(raw: Any, checks: Mapping[str, Check] = CHECKS, empty: str = "empty log") -> list[tuple[Check, Finding]]:
    """The findings of the reader of a raw log, or of raw interactions, and of every check, each with all its rows.

    `empty` is the check for rows.
    """
    known = {**CHECKS, **checks}
    results = [(known[name], finding) for name, finding in raw.found]
    explained = any(one.level == "error" for one, _ in results)  # such as lines without a closing quote
    for one in checks.values():
        if one.run is not None and (raw.rows or (one.name == empty and not explained)):
            results += [(one, finding) for finding in one.run(raw)]
    return results


def report_of(raw: Any, found: Iterable[tuple[Check, Finding]]) -> Report:
    """Build the report of findings: the first ten rows of each, and the number of rows."""
    problems = []
    for one, finding in found:
        at = np.sort(finding.at)[:_SHOWN_ROWS] if finding.at is not None else np.zeros(0, int)
        rows = tuple(int(number) for number in raw.numbers[at])
        lines = tuple(row + 1 for row in rows) if raw.has_lines else ()
        files = () if raw.files is None else tuple(raw.files.of(at))
        count = 0 if finding.at is None else len(finding.at)
        column, _, text, expected, fix = finding
        problems.append(Problem(one.level, one.name, column, rows, count, text, expected, fix, lines, files))
    return Report(raw.source, raw.rows, tuple(problems))


FIX_MEMORY = "split the file, read a part of it, or use a machine with more memory"


def unreadable(
    source: str | Path,
    found: str,
    expected: str,
    fix: str = "export or copy the file again",
    name: str = "unreadable file",
    rows: Sequence[int] = (),
    count: int = 0,
    lines: Sequence[int] = (),
) -> LogError:
    """Build the LogError of a source that cannot be read; `rows` are the first of `count` faulty rows, from 1."""
    problem = Problem(CHECKS[name].level, name, None, tuple(rows), count, found, expected, fix, tuple(lines))
    report = Report(str(source), 0, (problem,))
    return LogError(report.text(), report=report)


def conversion_note(found: str, expected: str, fix: str, column: str | None = None) -> tuple[str, Finding]:
    """A note on a converted convention of the source."""
    return "converted", Finding(column, None, found, expected, fix)


def unread_note(names: Iterable[str]) -> list[tuple[str, Finding]]:
    """A note on the parts of a file that were not read; empty if everything was read."""
    listed = sorted(names)
    if not listed:
        return []
    more = f" and {len(listed) - _SHOWN_NAMES} more" if len(listed) > _SHOWN_NAMES else ""
    found = f"not read: {', '.join(listed[:_SHOWN_NAMES])}{more}"
    return [conversion_note(found, "decisions", "nothing, if they are not needed")]


rule("unreadable file", "error", "The file is missing, cut off, empty, or not of the format that its name says.")
rule("unknown mapping key", "error", "The mapping holds an unknown key.")
rule("bad mapping", "error", "The mapping contradicts itself or holds an invalid value.")
rule("missing column", "error", "The mapping names a column that the log does not have.")
rule("ragged rows", "error", "Rows of a text file have more or fewer fields than its header.")
rule("duplicate column name", "error", "The header holds a mapped column twice.")
rule("unread ends", "error", "An array that would not be read is named like ends or beginnings of episodes.")
rule("wrong length", "error", "An array, a mask or a list of bounds does not fit the log's length.")
rule("changing shapes", "error", "Rows of one column have different shapes, or too many axes.")
rule("unknown category", "error", "A category is not in its declared vocabulary.")
rule("files differ", "error", "A mapped column is missing in one file, or has another type there.")
rule("rounded identifiers", "warning", "Identifiers are decimal numbers beyond 2^53, where different ones are equal.")
rule("possible end column", "warning", "A column is named like ends of episodes, and is not mapped.")
rule(
    "incomplete episodes",
    "warning",
    "Rows within an episode were left out; the others count as consecutive.",
)
rule(
    "rewards lost in 32 bits",
    "error",
    "Storage in 32 bits changes rewards by a tenth of their spread or more, as with 1 beside 100,000,000.",
)
rule(
    "rewards rounded in 32 bits",
    "warning",
    "Storage in 32 bits changes rewards by a hundredth of their spread or more.",
)
rule("several files", "note", "The log was read from several files, in the order of their names.")
rule("filled", "note", "Empty cells of observations were filled by the rule of the mapping.")
rule("rare labels", "note", "Labels in few rows were joined to one, by the rule of the mapping.")
rule("rows left out", "note", "Rows with an empty cell in a column of `drop_rows_without` were left out.")
rule("late rewards", "note", "Decisions younger than `reward_horizon` were left out: their rewards may still come.")
rule("empty rewards", "note", "Empty rewards count as a number, by `missing_reward`.")
rule(
    "late rewards unread",
    "warning",
    "Empty rewards, which count as a number, are more frequent in the newest decisions: they may still come.",
)
rule("blank lines", "note", "Lines without any value were skipped.")
rule(
    "converted",
    "note",
    "A convention of the source was converted, such as actions counted from a number other than 0.",
)


# Names of columns and arrays that say where episodes end or begin, in the words that logs use.
#
# A reader reads an array with such a name, or refuses its file: an end that is passed over joins two episodes.

TERMINATIONS = (
    "terminated", "terminal", "terminals", "terminations", "termination", "is_terminal", "terminateds", "done", "dones",
    "is_done",
)  # fmt: skip
TRUNCATIONS = (
    "truncated", "truncations", "truncation", "truncateds", "is_truncated", "timeout", "timeouts", "time_limit",
    "time_limits",
)  # fmt: skip
LASTS = ("is_last", "lasts", "episode_terminals", "episode_end", "episode_ends", "dones_float")
STARTS = ("is_first", "firsts", "episode_start", "episode_starts", "is_start")
_EPISODES = (
    "episode", "episodes", "episode_id", "episode_ids", "episode_index", "traj_id", "traj_ids", "trajectory",
    "trajectory_id", "trajectory_ids",
)  # fmt: skip
OGBENCH_MASKS = ("masks", "valids")  # of OGBench: 0 where the task was completed, and where a row has no decision
ENDS = frozenset((*TERMINATIONS, *TRUNCATIONS, *LASTS, *STARTS, *_EPISODES, *OGBENCH_MASKS))


def is_end(name: str) -> bool:
    """Whether `truncations` reads an array of this name."""
    return name in (*TRUNCATIONS, *LASTS, *STARTS, *_EPISODES)


def refuse_unread_ends(path: str | Path, unread: Iterable[str], read: str) -> None:
    """Raise LogError if a name that says where episodes end or begin is not read; `read` names what is."""
    left = sorted(name for name in unread if name.rpartition("/")[2].lower() in ENDS)
    if left:
        found = f"{', '.join(left)}, which would not be read: such names say where episodes end or begin"
        fix = "remove what is not needed, or read the arrays with Log.from_arrays"
        raise unreadable(path, found, f"ends only in {read}", fix, "unread ends")


def termination_name(path: str | Path, names: Iterable[str]) -> str | None:
    """The one array of terminations, under any of its names; LogError for two, None without one."""
    present = [name for name in TERMINATIONS if name in set(names)]
    if len(present) > 1:
        fix = "keep the one that is 1 where the environment ended the episode, and name one of all ends is_last"
        raise unreadable(path, f"{' and '.join(present)}", "one array of terminations", fix, "unread ends")
    return present[0] if present else None


def truncations(path: str | Path, arrays: Mapping[str, Values], terminated: Values) -> Values | None:
    """[N]: where episodes end without a termination, by all arrays that say so; None without one.

    A single array of truncations is returned as it is. LogError for text and for arrays of other lengths.
    """
    flags = {name: arrays[name] for name in (*TRUNCATIONS, *LASTS, *STARTS) if name in arrays}
    marks = flags | {name: arrays[name] for name in _EPISODES if name in arrays}
    for name, values in marks.items():
        if values.size != len(terminated):
            found = f"{len(terminated):,} rows of terminations and {values.size:,} of {name}"
            raise unreadable(path, found, "arrays of one length", "download or create it again", "wrong length")
    if len(marks) == 1 and next(iter(marks)) in TRUNCATIONS:
        return np.reshape(next(iter(marks.values())), -1)
    text = [name for name, values in flags.items() if values.dtype.kind not in "biuf"]
    if text:
        found = f"{text[0]} of {flags[text[0]].dtype}"
        raise unreadable(path, found, "flags", "save the file again", "non-numeric text")
    if not marks:
        return None
    ends = np.zeros(len(terminated), bool)
    for name, values in marks.items():
        column = values.reshape(-1)
        if name in STARTS:
            ends[:-1] |= column[1:] != 0
        elif name in _EPISODES:
            ends[:-1] |= column[1:] != column[:-1]
        else:
            ends |= column != 0
    return np.asarray(ends & (terminated == 0))


# What 32-bit storage takes from rewards: the rounding of their sizes, as a share of their differences.

LOST, ROUNDED = "rewards lost in 32 bits", "rewards rounded in 32 bits"
MOST_LOST, MOST_ROUNDED = 0.1, 0.01  # shares of the spread from which on this is an error, and a warning
_SAMPLE = 100_000  # rows in which the middle half of the rewards is measured


def rounded_share(rewards: Values) -> float:
    """The rounding of rewards [N] to 32 bits as a share of their spread; 0 for equal ones and those that fit.

    Of all rewards the root mean square is compared with the standard deviation, of the middle half the mean with the
    range, so that single large rewards do not hide what the others lose.
    """
    wide = rewards.astype(np.float64)
    wide = wide[np.isfinite(wide)]
    with np.errstate(over="ignore"):
        errors = np.abs(wide - wide.astype(np.float32))
    wide, errors = wide[np.isfinite(errors)], errors[np.isfinite(errors)]
    if not len(wide) or not errors.any():
        return 0.0
    low, middle, high = np.quantile(wide[:: max(1, len(wide) // _SAMPLE)], (0.25, 0.5, 0.75))
    spread = float((wide - middle).std())  # of small numbers, whose squares are exact
    shares = [float(np.sqrt(np.square(errors).mean())) / spread] if spread > 0 else []
    inside = (wide >= low) & (wide <= high)
    shares += [float(errors[inside].mean() / (high - low))] if high > low and inside.any() else []
    return max(shares, default=0.0)


def rounded_rewards(column: Column) -> list[tuple[str, Finding]]:
    """The finding about rewards [N] or [N, K] that 32 bits change, with the name of its check; none for few changes."""
    if column.values.dtype.itemsize <= 4 or column.values.dtype.kind not in "iuf" or not column.values.size:
        return []
    parts = column.values[column.usable].reshape(-1, int(np.prod(column.values.shape[1:], dtype=int)))
    share = max((rounded_share(part) for part in parts.T), default=0.0)
    if share < MOST_ROUNDED:
        return []
    middle = float(np.median(parts[np.isfinite(parts)]))
    found = (
        f"rewards near {middle:.6g} whose differences are small beside them: rewards are stored in 32 bits, and this "
        f"changes them by {share:.2g} times their spread"
    )
    advice = (
        "subtract a constant, such as their mean (where episodes end at different steps, this changes what is best)"
    )
    return [
        (LOST if share >= MOST_LOST else ROUNDED, Finding(column.name, None, found, "differences that fit", advice))
    ]
