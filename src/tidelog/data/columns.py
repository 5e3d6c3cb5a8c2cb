"""The mapping from the columns of a table to the roles of a log."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog._files import parse_json, read_text
from tidelog._text import shorten
from tidelog.errors import ConfigError, nearest
from tidelog.types import Discrete, named_leaves

# Declared propensities: how an experiment drew its decisions, where no column recorded their probabilities.
#
# A mapping declares one probability of every action, one of each action, or that each action was drawn with its own
# share of the log, or of a stratum of it: the rows with equal values of some columns. Shares are estimates of constants
# that the experiment knew; a verdict estimates them again, cross-fitted.
#
# Letters: `N` rows, `A` actions, `S` strata.

SHARES, SHARES_BY = "shares", "shares_by"
CLOSE = 0.01  # distance of the sum of declared probabilities from 1 that rounding explains
FEWEST = 10  # rows of a stratum
_LISTED = 6
_FORMS = (
    'the name of a column, a probability such as 0.5, one for each action such as { A = 0.5, B = 0.5 }, "shares", or '
    '{ shares_by = ["village"] }'
)


class Declaration(NamedTuple):
    """Propensities as a mapping declares them, before the actions are known; one of the fields is set."""

    every: float | None = None  # the probability of every action
    each: tuple[tuple[str, float], ...] = ()  # label of an action -> its probability
    by: tuple[str, ...] | None = None  # each action's share, in strata by these columns; (): of the whole log


@dataclass(frozen=True)
class DeclaredPropensities:
    """How the decisions of a log were drawn, as it was declared."""

    probabilities: tuple[float, ...] | None = None  # [A] in the order of the codes; None: each action's own share
    by: tuple[str, ...] = ()  # columns whose values form strata, each with shares of its own

    @property
    def text(self) -> str:
        """The declaration in words."""
        if self.probabilities is not None:
            return f"declared with probabilities {shorten((f'{one:.4g}' for one in self.probabilities), _LISTED)}"
        among = "" if not self.by else f" among rows with the same {' and '.join(map(repr, self.by))}"
        return f"declared as drawn with each action's own share{among}"

    def to_json(self) -> dict[str, Any]:
        """Plain values that `DeclaredPropensities(**...)` reads back as lists."""
        return asdict(self)


class DeclarationError(ConfigError):
    """A declaration does not fit the actions or the rows."""


def declaration_of(value: Any) -> Declaration | None:
    """Return what `propensity` declares, None for the name of a column or nothing; ConfigError for anything else."""
    if value is None or (isinstance(value, str) and value != SHARES):
        return None
    if isinstance(value, str):
        return Declaration(by=())
    if _is_probability(value):
        return Declaration(every=float(value))
    pairs = tuple(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, tuple) or not pairs or not all(isinstance(one, tuple) and len(one) == 2 for one in pairs):
        raise ConfigError(f"propensity = {value!r}", _FORMS, "write one of these")
    if len(pairs) == 1 and pairs[0][0] == SHARES_BY and not isinstance(pairs[0][1], int | float):
        by = (pairs[0][1],) if isinstance(pairs[0][1], str) else tuple(pairs[0][1])
        if not all(isinstance(name, str) for name in by):
            raise ConfigError(
                f"propensity = {{ {SHARES_BY} = {list(by)!r} }}",
                "names of columns",
                f'write them as in {{ {SHARES_BY} = ["village"] }}',
            )
        return Declaration(by=by)
    for action, probability in pairs:
        if not _is_probability(probability):
            raise ConfigError(
                f"propensity of action '{action}' = {probability!r}",
                "a probability above 0 and at most 1",
                "write the probability with which it was drawn",
            )
    return Declaration(each=tuple((str(action), float(one)) for action, one in pairs))


def _is_probability(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def probabilities_of(declaration: Declaration, labels: Sequence[str]) -> tuple[tuple[float, ...] | None, float]:
    """Probabilities [A] of the actions with these labels, which sum to 1, and their sum as it was declared.

    None for shares; DeclarationError if they do not fit the actions.
    """
    count = len(labels)
    if declaration.by is not None:
        return None, 1.0
    if declaration.every is not None:
        chances = [declaration.every] * count
        found = f"{declaration.every:g} for each of {count:,} actions, {math.fsum(chances):.4g} in all"
        fix = f'write {1 / count:.4g} if all were drawn alike, the probability of each, or "{SHARES}"'
    else:
        named = dict(declaration.each)
        unknown = [label for label in named if label not in labels]
        if unknown:
            actions = shorten(map(repr, labels), _LISTED)
            found = f"a probability of '{unknown[0]}', which is no action; the actions are {actions}"
            fix = f"{nearest(unknown[0], labels)}; list an action that was never drawn in `vocabularies`"
            raise DeclarationError(found, "the labels of actions", fix)
        without = [label for label in labels if label not in named]
        if without:
            found = f"no probability of {', '.join(map(repr, without[:_LISTED]))}"
            raise DeclarationError(found, "one for each action", "add what is missing")
        chances = [named[label] for label in labels]
        found, fix = f"probabilities that sum to {math.fsum(chances):.4g}", "correct the probabilities"
    total = math.fsum(chances)
    if abs(total - 1.0) > CLOSE:
        raise DeclarationError(found, "a sum of 1", fix)
    return tuple(one / total for one in chances), total


def labels_of(space: Discrete) -> tuple[str, ...]:
    """The labels of discrete actions; of numbered ones the numbers."""
    return space.names or tuple(map(str, range(space.n)))


def strata_of(columns: Sequence[NDArray[Any]]) -> NDArray[np.int32]:
    """[N]: number of the stratum of each row, equal where all columns [N] are."""
    codes = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        own = np.unique(values, return_inverse=True)[1]
        codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1]
    return np.asarray(codes, np.int32)


def check_strata(stratum: NDArray[Any], by: Sequence[str]) -> None:
    """Raise DeclarationError if a stratum has so few rows that its shares say nothing."""
    sizes = np.bincount(stratum)
    few = int((sizes < FEWEST).sum())
    if few:
        found = f"{few:,} of {len(sizes):,} strata by {', '.join(map(repr, by))} with fewer than {FEWEST} rows"
        fix = f"use fewer or coarser columns in {SHARES_BY}, or declare the probability of each action"
        raise DeclarationError(found, f"at least {FEWEST} rows in each, from which its shares are counted", fix)


def share_counts(action: NDArray[Any], stratum: NDArray[Any] | None, actions: int) -> NDArray[np.float64]:
    """[S, A]: how often each action was drawn in each stratum; one stratum without `stratum` [N]."""
    codes = np.asarray(action, np.int64)
    strata = 1 if stratum is None else int(np.max(stratum, initial=0)) + 1
    places = codes if stratum is None else np.asarray(stratum, np.int64) * actions + codes
    return np.bincount(places, minlength=strata * actions).reshape(strata, actions).astype(np.float64)


def propensity_column(
    declared: DeclaredPropensities, action: NDArray[Any], stratum: NDArray[Any] | None, actions: int
) -> NDArray[np.float32]:
    """[N]: the declared probability of each logged action, or its share among the rows of its stratum."""
    codes = np.asarray(action, np.int64)
    if declared.probabilities is not None:
        return np.asarray(declared.probabilities, np.float32)[codes]
    counts = share_counts(codes, stratum, actions)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return np.asarray(shares[0 if stratum is None else np.asarray(stratum, np.int64), codes], np.float32)


# What recorded propensities say about the actions that were not logged.
#
# A log has the probability of the logged action only. Those of all actions follow from it where there are two actions,
# or where each action always had the same probability: in the whole log, or among rows with the same words.
#
# Letters: `N` rows, `A` actions.

EQUAL = 1e-4  # difference of recorded probabilities that counts as rounding


def known_probabilities(
    action: NDArray[Any], recorded: NDArray[Any], actions: int, words: Sequence[NDArray[Any]] = ()
) -> NDArray[np.float64] | None:
    """[N, A]: the behaviour policy's probabilities of all actions, None if the recorded ones [N] do not determine them.

    `words` are columns [N] of codes. In each group of rows, every logged action must have one probability, and these
    must sum to 1: an action that is not in the group then has the probability 0.
    """
    action, recorded = np.asarray(action, np.int64), np.asarray(recorded, np.float64)
    rows = len(action)
    if actions < 2 or not rows or not ((recorded > 0) & (recorded <= 1)).all():
        return None
    if actions == 2:
        known = np.empty((rows, 2))
        known[np.arange(rows), action] = recorded
        known[np.arange(rows), 1 - action] = 1.0 - recorded
        return known
    together = [strata_of(words)] if len(words) > 1 else []
    for group in [np.zeros(rows, np.int32), *(strata_of([one]) for one in words), *together]:
        table = _constant_in(group, action, recorded, actions)
        if table is not None:
            return np.asarray(table[group])
    return None


def _constant_in(group: NDArray[Any], action: NDArray[Any], recorded: NDArray[Any], actions: int) -> Any:
    """[G, A]: probabilities of the actions in each group, None unless they are constant and sum to 1."""
    groups = int(group.max()) + 1
    if groups * actions > max(len(action), min(actions, 10_000)):  # too few rows of each action in a group
        return None
    position = group.astype(np.int64) * actions + action
    low, high = np.full(groups * actions, np.inf), np.zeros(groups * actions)
    np.minimum.at(low, position, recorded)
    np.maximum.at(high, position, recorded)
    logged = high > 0
    if (high[logged] - low[logged] > EQUAL).any():
        return None
    table = np.where(logged, high, 0.0).reshape(groups, actions)
    total = table.sum(axis=1, keepdims=True)
    return None if (np.abs(total - 1.0) > CLOSE).any() else table / total


Names: TypeAlias = str | Sequence[str]
Bounds: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
_LARGEST = 3.4028234663852886e38  # the largest 32-bit float
RULES = ("error", "mean+flag")
LEAVES = ("numeric", "categorical")
_SETTINGS = (  # name no columns
    "actions", "bounds", "atoms", "vocabularies", "missing", "other", "terminations", "reward_unit", "header",
    "separator", "decimal", "explode", "na_values", "date_format", "reward_values", "reward_weights", "reward_clip",
    "episode_gap", "missing_reward", "reward_horizon", "export_time", "elapsed_unit",
)  # fmt: skip
_REWARD = {"reward": "the column of rewards"}
_TIME = {"time": "that of the times of decisions"}
_NEEDS: dict[str, dict[str, str]] = {  # the other keys that one needs
    **dict.fromkeys(("reward_unit", "reward_values", "reward_weights", "reward_clip", "missing_reward"), _REWARD),
    "elapsed_unit": {"elapsed": "the column of times between decisions"},
    "next_action_mask": {"action_mask": "the columns of the mask"},
    "episode_gap": {"episode": "the column of episodes"} | _TIME,
    "reward_horizon": _REWARD | _TIME,
    "export_time": {"reward_horizon": "the time after which rewards are known"},
}
_LONGEST_UNIT = 30
_LARGEST_FILE = 1 << 26  # bytes of a mapping
_LARGEST_CODE = 2**31 - 1


class UnknownKeyError(ConfigError):
    """A mapping holds a key that no mapping has."""


class TextForm(NamedTuple):
    """How a text file divides its rows; `separator` None: by its ending, or another usual one that divides it.

    `decimal` is the character before the fraction of a number. `explode` names the key of JSON lines whose list of
    objects has one row each.
    """

    header: bool = True
    separator: str | None = None
    decimal: str = "."
    explode: str | None = None


USUAL_FORM = TextForm()


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The column of a table for each role of a log; ConfigError for invalid values.

    `episode=None`: every row is an episode of one step. `step=None`: steps follow `time`, or else the order of the
    rows. `reward=None`: only behaviour cloning can learn from the log. `terminated=True`: every episode terminated at
    its last row, and no column marks it. `action` and `reward` may be several columns; an action with parts is a
    mapping from their names to their columns, and then `actions` and `bounds` are mappings too. A mask is one column
    per action, or one column of lists, of flags such as `1,0,1` or of names of actions. `actions`: the number of
    actions (a list for several choices at once). `propensity`: the column with the probability of the logged action;
    or, for an experiment without one, a declaration: the probability of every action (0.5), of each one ({"A": 0.5,
    "B": 0.5}), "shares" (each action's own share), or {"shares_by": ["village"]} (its share among rows with the same
    village). `cluster`: groups of dependent episodes (of one person, store or day). `bounds`: `(low, high)`, numbers or
    one per dimension. `atoms`: values of continuous actions that the behaviour policy took with a probability of their
    own, such as [0.0] for "no change"; a recorded propensity is a probability there. `terminations="ignore"`: the task
    has a fixed length, and terminated rows count as truncated. `extra`: further columns of the log. `vocabularies`:
    column -> its labels, in the order of their codes, for observations and actions. `missing`: the rule for empty cells
    of observations, "error" or "mean+flag", or column -> one of these. `other`: labels of observations in fewer rows
    than this become one label, "other", which also stands for labels that the log does not have; a number for all
    columns of words, or column -> number. `reward_unit`: the unit of rewards, such as "EUR", which verdicts and reports
    show.

    `header=False`: a text file without a header line, whose columns are `column_1`, `column_2`, ... `separator`:
    the character between its fields, where it is none of the usual ones. `decimal`: "," where the numbers of a text
    file are written as `1.234,5`. `explode`: the key of JSON lines that holds a list of objects; each is a row, with
    the other keys of its line. `na_values`: texts
    that mean an empty cell in every column, such as "?". `drop_rows_without`: columns; rows in which one of them is
    empty are left out, and the report counts them. `date_format`: of times in text, such as "%d.%m.%Y %H:%M".
    `reward_values`: word -> its reward, "" for empty cells. `reward_weights`: one weight for each column of `reward`;
    the reward is the weighted sum. `reward_clip`: `(low, high)`, which limit the reward. `episode_gap`: a longer pause
    in `time` ends an episode (seconds for dates, else in the unit of the times); without `cluster`, its parts form a
    cluster. `missing_reward`: how an empty reward is read: a number, the reward of what never came; "unknown"; or "at
    random", which also states that whether a reward is known depends on nothing but the observation and the action.
    `reward_horizon`: the time within which a reward is known, such as "30d" (s, m, h, d, w), or a number as of
    `episode_gap`; younger decisions at the newest time of the log, or at `export_time`, are left out, and all episodes
    that began when the first episode with such a decision did, or later.

    `elapsed`: the time from a decision to the next one, or to the end of the episode: discounts are then per unit of
    that time, which `elapsed_unit` names, such as "hour", and not per step. It may be empty where nothing follows that
    counts: where the episode terminated, or its next observation is unknown. The column of `time` itself: the
    difference to the next row's time, of dates in the unit (second, minute, hour, day or week).

    Example:
        >>> columns = tl.Columns(
        ...     episode="patient",
        ...     observation=["severity"],
        ...     action="dose",
        ...     reward="score",
        ...     terminated=True,
        ... )
        >>> table = {"patient": [7, 7, 8], "severity": [3, 2, 4], "dose": ["low", "high", "low"], "score": [0, 1, 0]}
        >>> tl.read_log(pl.DataFrame(table), columns).spec.action.names
        ('high', 'low')
    """

    observation: Names
    action: Names | Mapping[str, Any]
    reward: Names | None
    episode: str | None = None
    step: str | None = None
    terminated: str | bool | None = None
    truncated: str | None = None
    propensity: str | float | Mapping[str, Any] | tuple[tuple[str, Any], ...] | None = None
    action_mask: Names | None = None
    next_action_mask: Names | None = None
    next_observation: Names | None = None
    weight: str | None = None
    time: str | None = None
    elapsed: str | None = None
    cluster: str | None = None
    actions: int | Sequence[int] | Mapping[str, Any] | None = None
    bounds: Sequence[Any] | Mapping[str, Any] | None = None
    atoms: float | Sequence[float] = ()
    categorical: Names = ()
    vocabularies: Mapping[str, Sequence[str]] | tuple[tuple[str, tuple[str, ...]], ...] = ()
    extra: Names = ()
    missing: str | Mapping[str, str] | tuple[tuple[str, str], ...] = "error"
    other: int | Mapping[str, int] | tuple[tuple[str, int], ...] = 0
    terminations: str = "stop"
    reward_unit: str | None = None
    header: bool = True
    separator: str | None = None
    decimal: str = "."
    explode: str | None = None
    na_values: Names = ()
    drop_rows_without: Names = ()
    date_format: str | None = None
    reward_values: Mapping[str, float] | tuple[tuple[str, float], ...] = ()
    reward_weights: Sequence[float] | None = None
    reward_clip: Sequence[float] | None = None
    episode_gap: float | None = None
    missing_reward: float | str | None = None
    reward_horizon: float | str | None = None
    export_time: float | str | None = None
    elapsed_unit: str | None = None

    def __new__(cls, **options: Any) -> Columns:
        """Refuse unknown names before the fields are set."""
        _refuse_unknown(options, [field.name for field in fields(cls)], "Columns")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name in ("observation", "action"):
            if getattr(self, name) is None:
                raise ConfigError(f"{name} is not set", fix="name a column of the log")
        for name in ("action", "actions", "bounds"):
            value = getattr(
                self, name
            )  # by part: in their own order, nested ones as `outer/inner`; lists in a run folder
            by_part_name = tuple(named_leaves(value).items()) if isinstance(value, Mapping) else frozen(value)
            object.__setattr__(self, name, by_part_name if isinstance(value, Mapping | list) else value)
        if self.action == ():
            raise ConfigError("action = {}", "at least one part", 'write action = { dose = "mg", drug = "name" }')
        for field in fields(self):
            value = frozen(getattr(self, field.name))
            if field.name != "propensity" or declaration_of(value) is None:
                _check_names(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        observed = names(self.observation)
        if not isinstance(self.missing, str):
            _pairs("missing", self.missing, str)
            _refuse_unused("missing", dict(self.missing), observed)
        for rule in self.rules.values():
            _one_of("missing", rule, RULES)
        self._check_other(observed)
        _pairs("vocabularies", self.vocabularies, tuple)
        _refuse_unused("vocabularies", self.vocabulary_of, [*observed, *names(self.action)])
        for name, words in self.vocabulary_of.items():
            if not words or len(set(words)) < len(words) or not all(isinstance(word, str) for word in words):
                raise ConfigError(f"vocabularies of '{name}' = {list(words)!r}", "different texts, at least one")
        _one_of("terminations", self.terminations, ("stop", "ignore"))
        for _, declared in by_part(self.parts or {}, self.actions, self.bounds) if self.parts is not None else ():
            declared_actions(*declared)
        if self.parts is None:
            declared_actions(self.actions, self.bounds)
        for unit in ("reward_unit", "elapsed_unit"):
            object.__setattr__(self, unit, declared_unit(getattr(self, unit), unit))
        object.__setattr__(self, "atoms", declared_atoms(self.atoms))
        self._check_reading()
        self._check_rewards()
        for key, needs in _NEEDS.items():
            value = getattr(self, key)
            if value not in (None, ()) and any(getattr(self, need) is None for need in needs):
                shown = f"{key} = {value!r}" if isinstance(value, str) else key
                fix = f"name {' and '.join(needs.values())}, or drop {key}"
                raise ConfigError(f"{shown} is set without {' and '.join(needs)}", fix=fix)
        following = names(self.next_observation)
        if following and len(following) != len(observed):
            raise ConfigError(
                f"next_observation names {len(following)} columns, observation {len(observed)}",
                "equally many",
                "name the next column of each observation column, in the same order",
            )

    @property
    def parts(self) -> dict[str, Names] | None:
        """The columns of each part of the action by name, None where the action is no mapping."""
        return dict(self.action) if _is_parts(self.action) else None  # type: ignore[arg-type]

    def _check_other(self, observed: list[str]) -> None:
        """ConfigError for numbers of rows that are none, for other columns, and for columns with declared labels."""
        named = self.other if isinstance(self.other, tuple) else (("", self.other),)
        if not all(
            isinstance(pair, tuple) and len(pair) == 2 and type(pair[1]) is int and 0 <= pair[1] <= _LARGEST_CODE
            for pair in named
        ):
            raise ConfigError(
                f"other = {self.other!r}",
                "a whole number of rows, or columns mapped to numbers of rows",
                'write other = 10, or other = { "ward" = 10 }',
            )
        if isinstance(self.other, tuple):
            _refuse_unused("other", [str(name) for name, _ in named], observed)
            both = [name for name, _ in named if name in dict(self.vocabularies)]
            if both:
                raise ConfigError(f"other and vocabularies both name '{both[0]}'", fix="name it in one of them")

    def rows_of_a_label(self, name: str) -> int:
        """The number of rows below which a label of a column becomes `other`; 0 for none."""
        if name in self.vocabulary_of:
            return 0
        return self.other if isinstance(self.other, int) else dict(self.other).get(name, 0)

    @property
    def text_form(self) -> TextForm:
        """How text files are divided into rows and fields."""
        return TextForm(self.header, self.separator, self.decimal, self.explode)

    @property
    def declared(self) -> Declaration | None:
        """How the decisions were drawn, if no column says it."""
        return declaration_of(self.propensity)

    @property
    def recorded(self) -> str | None:
        """The column of recorded propensities."""
        return self.propensity if self.declared is None and isinstance(self.propensity, str) else None

    def _check_reading(self) -> None:
        if not isinstance(self.header, bool):
            raise ConfigError(f"header = {self.header!r}", "true or false")
        one = self.separator
        if one is not None and not (isinstance(one, str) and len(one) == 1 and one.isascii() and one not in '"\r\n'):
            raise ConfigError(f"separator = {one!r}", 'one character, such as ";"', "write it as in the file")
        _one_of("decimal", self.decimal, (".", ","))
        if self.explode is not None and not (isinstance(self.explode, str) and self.explode):
            raise ConfigError(f"explode = {self.explode!r}", "the name of one key of the JSON lines")
        if isinstance(self.na_values, str):
            object.__setattr__(self, "na_values", (self.na_values,))
        if not isinstance(self.na_values, tuple) or not all(isinstance(one, str) for one in self.na_values):
            raise ConfigError(f"na_values = {self.na_values!r}", "texts", 'write them as in ["?", "-999"]')
        if self.episode_gap is not None and (not _is_number(self.episode_gap) or self.episode_gap <= 0):
            raise ConfigError(f"episode_gap = {self.episode_gap!r}", "a number above 0")
        if self.date_format is not None and (not isinstance(self.date_format, str) or "%" not in self.date_format):
            raise ConfigError(f"date_format = {self.date_format!r}", 'a format such as "%d.%m.%Y %H:%M"')

    def _check_rewards(self) -> None:
        """ConfigError for values, weights, limits and times of rewards that are none, or that fit no column."""
        pairs = self.reward_values
        is_pairs = isinstance(pairs, tuple) and all(isinstance(one, tuple) and len(one) == 2 for one in pairs)
        numbers = [one[1] for one in pairs] if is_pairs else [math.nan]
        weights = [] if self.reward_weights is None else self.reward_weights
        limits = (0.0, 0.0) if self.reward_clip is None else self.reward_clip
        for field, several in (("reward_values", numbers), ("reward_weights", weights), ("reward_clip", limits)):
            if not isinstance(several, Sequence) or not all(_is_number(one) for one in several):
                raise ConfigError(f"{field} = {getattr(self, field)!r}", "finite numbers")
        columns = len(names(self.reward))
        if self.reward is not None and self.reward_weights is not None and len(weights) != columns:
            found = f"reward_weights has {len(weights)} numbers, reward {columns} columns"
            raise ConfigError(found, "one weight for each column")
        if len(limits) != 2 or not limits[0] <= limits[1]:
            raise ConfigError(f"reward_clip = {self.reward_clip!r}", "(low, high) with low <= high")
        declared_missing(self.missing_reward)
        if self.missing_reward is not None and "" in dict(self.reward_values):
            raise ConfigError("missing_reward and reward_values both say what an empty reward is", fix="drop one")
        if isinstance(self.export_time, datetime | date):  # as TOML reads it
            object.__setattr__(self, "export_time", self.export_time.isoformat())
        stated = self.export_time
        if stated is not None and not (_is_number(stated) or (isinstance(stated, str) and stated.strip())):
            raise ConfigError(f"export_time = {stated!r}", 'a time as in the log, such as "2026-11-01"')
        if self.reward_horizon is not None:
            horizon_of(self.reward_horizon)

    @property
    def rules(self) -> dict[str, str]:
        """Observation column -> the rule for its empty cells."""
        observed = names(self.observation)
        if isinstance(self.missing, str):
            return dict.fromkeys(observed, self.missing)
        return dict.fromkeys(observed, "error") | dict(self.missing)

    @cached_property
    def categorical_names(self) -> frozenset[str]:
        """The columns that are declared as categorical."""
        return frozenset(names(self.categorical))

    @cached_property
    def vocabulary_of(self) -> dict[str, tuple[str, ...]]:
        """Column -> its declared vocabulary."""
        return {name: tuple(words) for name, words in dict(self.vocabularies).items()}

    @classmethod
    def of(cls, columns: Columns | Mapping[str, Any] | str | Path) -> Columns:
        """Build a mapping from a mapping, a dictionary, or the path of a TOML or JSON file."""
        if isinstance(columns, Columns):
            return columns
        return cls.from_mapping(columns) if isinstance(columns, Mapping) else cls.from_file(columns)

    @classmethod
    def from_file(cls, path: str | Path) -> Columns:
        """Read a mapping from a TOML or JSON file; ConfigError if it is unreadable or holds an unknown key."""
        path = Path(path)
        try:
            text = read_text(path, _LARGEST_FILE)
            data = parse_json(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
        except FileNotFoundError as error:
            raise ConfigError(
                f"there is no mapping {path}", fix=f"`tidelog log inspect --data LOG --write {path}` proposes one"
            ) from error
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: the mapping cannot be read ({error})") from error
        if not isinstance(data, dict):
            raise ConfigError(f"{path} holds a {type(data).__name__}", "keys and values")
        return cls.from_mapping(data, str(path))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], source: str = "the mapping") -> Columns:
        """Build from keys and values; ConfigError names unknown and missing keys."""
        _refuse_unknown(data, [field.name for field in fields(cls)], source)
        missing = [key for key in ("observation", "action") if key not in data]
        if missing:
            raise ConfigError(f"{source}: {' and '.join(missing)} is not set", fix="name a column of the log")
        return cls(**{"reward": None, **data})

    def used(self) -> dict[str, list[str]]:
        """Role -> the names of the columns it reads."""
        roles = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.declared is not None:
            roles["propensity"] = self.declared.by or ()
        named = {
            role: names(value)
            for role, value in roles.items()
            if role not in (*_SETTINGS, "categorical") and value is not True
        }
        return {role: columns for role, columns in named.items() if columns}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _is_parts(value: Any) -> bool:
    """Whether a role or a setting is pairs, as mappings are kept: two columns are two texts, and no pairs."""
    return isinstance(value, tuple) and value != () and all(isinstance(one, tuple) and len(one) == 2 for one in value)


def names(value: Any) -> list[str]:
    """One name, several names, those of the parts of an action, or None as a list."""
    if value is None or isinstance(value, bool):
        return []
    if _is_parts(value):
        return [name for _, part in value for name in names(part)]
    return [value] if isinstance(value, str) else list(value)


def by_part(parts: Mapping[str, Any], actions: Any, bounds: Any) -> Iterator[tuple[tuple[str, Any], tuple[Any, Any]]]:
    """Each part of an action with its declared `actions` and `bounds`; ConfigError unless both are by part."""
    declared: list[dict[str, Any]] = []
    for name, value in (("actions", actions), ("bounds", bounds)):
        value = dict(value) if _is_parts(value) and all(isinstance(name, str) for name, _ in value) else value
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError(
                f"{name} = {value!r:.80} of an action with the parts {', '.join(parts)}",
                "a mapping from parts",
                f"write {name}={{{next(iter(parts), 'part')!r}: ...}}",
            )
        declared.append(named_leaves(value or {}))
        for part in declared[-1]:
            if part not in parts:
                raise ConfigError(
                    f"{name} names '{part}', which is no part of the action; {nearest(part, list(parts))}"
                )
    for name, value in parts.items():
        yield (name, value), (declared[0].get(name), declared[1].get(name))


def declared_actions(actions: Any, bounds: Any) -> tuple[tuple[int, ...] | None, Bounds | None]:
    """Check the declared `actions` and `bounds`; return the sizes, and (low, high) of equal length."""
    if actions is not None and bounds is not None:
        raise ConfigError(
            "actions and bounds are both set: actions counts discrete choices, bounds limit continuous actions",
            fix="set only one of them",
        )
    sizes = None
    if actions is not None:
        listed = list(actions) if isinstance(actions, Sequence) and not isinstance(actions, str) else [actions]
        if not listed or not all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in listed):
            raise ConfigError(f"actions = {actions!r}", "a whole number of at least 1, or a list of them")
        sizes = tuple(listed)
        if max(sizes) > _LARGEST_CODE:
            raise ConfigError(f"actions = {actions!r}", f"at most {_LARGEST_CODE:,}", "count the actions")
    if bounds is None:
        return sizes, None
    try:
        plain = (end.tolist() if hasattr(end, "tolist") else end for end in bounds)  # arrays, as in a Box
        low, high = (tuple(map(float, end)) if isinstance(end, Sequence) else (float(end),) for end in plain)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"bounds = {bounds!r}", "(low, high), each a number or one per dimension") from error
    size = max(len(low), len(high))
    low, high = (end * size if len(end) == 1 else end for end in (low, high))
    ordered = all(-_LARGEST <= a <= b <= _LARGEST for a, b in zip(low, high, strict=False))
    if len(low) != len(high) or not ordered:
        raise ConfigError(f"bounds = {bounds!r}", "finite 32-bit low <= high, of equal length")
    return sizes, (low, high)


def declared_atoms(atoms: Any) -> tuple[float, ...]:
    """Check the declared values of continuous actions with a probability of their own; one number or several."""
    plain = atoms.tolist() if hasattr(atoms, "tolist") else atoms
    listed = (plain,) if _is_number(plain) else tuple(plain) if isinstance(plain, Sequence) else (None,)
    if isinstance(plain, str) or not all(_is_number(one) for one in listed):
        raise ConfigError(f"atoms = {atoms!r}", "finite numbers", "write them as in [0.0]")
    return tuple(sorted({float(one) for one in listed if one is not None}))


def declared_unit(unit: Any, name: str = "reward_unit") -> str | None:
    """Check a declared unit, of rewards or of elapsed times, a short text on one line; None if there is none."""
    if unit is None:
        return None
    if not isinstance(unit, str) or not unit.strip() or len(unit) > _LONGEST_UNIT or not unit.isprintable():
        raise ConfigError(
            f"{name} = {unit!r}",
            f"a text of 1 to {_LONGEST_UNIT} characters on one line",
            f'write a short unit, such as "{"EUR" if name == "reward_unit" else "hour"}", or leave it out',
        )
    return unit.strip()


UNKNOWN, AT_RANDOM = "unknown", "at random"
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
TIME_UNITS = {"second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w"}  # of differences of dates


def declared_missing(rule: Any) -> str | None:
    """Check the rule for empty rewards; "unknown" or "at random", and None for a number or no rule."""
    if rule is None or _is_number(rule):
        return None
    if rule not in (UNKNOWN, AT_RANDOM):
        raise ConfigError(
            f"missing_reward = {rule!r}",
            f'a finite number, "{UNKNOWN}" or "{AT_RANDOM}"',
            f'write 0 if an empty reward earned nothing, "{UNKNOWN}" if what it earned was not recorded',
        )
    return str(rule)


def horizon_of(horizon: Any) -> tuple[float, bool]:
    """The length of a declared horizon, and whether it is in seconds; else it is in the unit of the times."""
    length = horizon
    if isinstance(horizon, str) and horizon[-1:] in SECONDS:
        try:
            length = float(horizon[:-1]) * SECONDS[horizon[-1]] if horizon[:1].isdigit() else None
        except ValueError:
            length = None
        length = None if " " in horizon else length
    if not _is_number(length) or length <= 0:
        raise ConfigError(
            f"reward_horizon = {horizon!r}",
            'a number above 0 and its unit, s, m, h, d or w, without a space, such as "30d"',
            "write the longest time after a decision at which its reward may come",
        )
    return float(length), isinstance(horizon, str)


def _refuse_unknown(options: Mapping[str, Any], known: list[str], source: str) -> None:
    unknown = [str(key) for key in options if key not in known]
    if unknown:
        message = "; ".join(f"unknown key '{key}' ({nearest(key, known)})" for key in unknown)
        raise UnknownKeyError(f"{source}: {message}")


def frozen(value: Any) -> Any:
    """Convert lists and mappings to tuples, which compare by value and can be hashed."""
    if isinstance(value, Mapping):
        return tuple(sorted(((name, frozen(one)) for name, one in value.items()), key=lambda pair: str(pair[0])))
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def _pairs(field: str, value: Any, kind: type) -> None:
    fits = value == () or _is_parts(value)
    if not fits or not all(isinstance(name, str) and isinstance(one, kind) for name, one in value):
        raise ConfigError(f"{field} = {value!r}", f"columns mapped to {'lists' if kind is tuple else 'rules'}")


def _refuse_unused(field: str, columns: Iterable[str], known: list[str]) -> None:
    used = frozenset(known)
    for name in columns:
        if name not in used:
            raise ConfigError(f"{field} names '{name}', which the mapping does not use; {nearest(name, known)}")


def _check_names(field: str, value: Any) -> None:
    if field in _SETTINGS or value is None:
        return
    if field == "terminated" and value is True:
        return
    if field == "action" and _is_parts(value):
        for name, part in value:
            if not isinstance(name, str):
                raise ConfigError(f"{field} has a part named {name!r}", "a text", 'write { price = "amount" }')
            _check_names(field, part)
        return
    listed = [value] if isinstance(value, str) else value
    several = field in ("observation", "next_observation", "action", "reward", "action_mask", "next_action_mask")
    if not (several or field in ("categorical", "extra", "drop_rows_without") or isinstance(value, str)):
        raise ConfigError(f"{field} = {value!r}", "the name of one column")
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise ConfigError(f"{field} = {value!r}", "a column or a list of columns")
    if several and not listed:
        raise ConfigError(f"{field} = {value!r}", "at least one column")


def _one_of(field: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{field} = {value!r} is unknown: {nearest(str(value), known)}")
