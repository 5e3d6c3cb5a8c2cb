"""The output of `tidelog log inspect`: statistics of a log, or a proposed mapping for a table."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidelog._text import in_unit, shorten
from tidelog.data import parse
from tidelog.data.checks import (
    BALANCED,
    MOST_BALANCED,
    action_count,
    action_name,
    outcome_among_observations,
    raw_balance,
)
from tidelog.data.columns import SHARES, Columns, Declaration, TextForm
from tidelog.data.dependence import LEAST_REPEATS, LEAST_VALUES, is_after, kind_of, name_words
from tidelog.data.export import toml_text
from tidelog.data.formats import LINE_ENDINGS, TEXT_ENDINGS, has_decimal_commas, unusual_separator
from tidelog.data.log import Log
from tidelog.data.parse import ParsedTable, date_formats, from_table
from tidelog.data.raw import LASTS, STARTS, TERMINATIONS, TRUNCATIONS, RawLog, Report, examine, unreadable
from tidelog.data.read import table_of
from tidelog.data.statistics import actions_are_equal, elapsed_times, rewards_are_equal
from tidelog.errors import ConfigError, nearest
from tidelog.types import OTHER

# The roles of columns, proposed from their names, types and values.

# Measure the columns of an unmapped table: their kinds, numbers of values and examples.

NUMERIC = ("flag", "whole number", "number")
FEW_ROWS = 10  # from which on a label is learnt by itself
_SAMPLE = 1_000
_MIXED = 0.01


@dataclass(frozen=True)
class Field:
    """One column of an unmapped table: `kind` is number, whole number, flag, word, time, list, objects or empty."""

    name: str
    kind: str
    unique: int
    empty: int
    examples: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    negative: int = 0  # number of values below 0
    usual: float | None = None  # 99% quantile of the values other than 0
    zeros: int = 0  # number of values that are 0
    consecutive: bool = False  # whole numbers that rise by 1 from row to row
    width: int = 0  # numbers in each cell of a column of lists, if there are equally many in all
    words: tuple[tuple[str, float], ...] = ()  # of a flag in words, such as no and yes: each with its value, 0 or 1
    rare: int = 0  # number of labels in fewer than `FEW_ROWS` rows
    rare_rows: int = 0  # number of their rows
    role: str | None = None


def field_of(series: pl.Series) -> Field:
    """Measure one column of a table; empty text is an empty cell."""
    if isinstance(series.dtype, pl.String):
        series = series.set((series.str.strip_chars() == "").fill_null(False), None)
    empty = int(series.is_null().sum())
    unique = int(series.n_unique()) - bool(empty)
    shown = series.drop_nulls().unique(maintain_order=True).head(3).to_list()
    examples = tuple(" ".join(str(one).split()) for one in shown)
    listed = parse.as_lists(series)
    kind = "list" if isinstance(listed.dtype, pl.List) else _kind(series, unique)
    if kind == "list" and examples and examples[0].startswith(("['{", "[{", '["{')):
        kind = "objects"
    if kind != "number":
        counts = series.drop_nulls().value_counts()["count"] if kind == "word" else pl.Series([], dtype=pl.UInt32)
        few, width = counts.filter(counts < FEW_ROWS), 0
        if kind == "list" and isinstance(listed.dtype, pl.List | pl.Array) and listed.dtype.inner.is_numeric():
            lengths = listed.cast(pl.List(listed.dtype.inner)).drop_nulls().list.len().unique().to_list()
            width = int(lengths[0]) if len(lengths) == 1 else 0
        words = _words_of(series) if kind == "flag" else ()
        rows = int(few.sum())
        return Field(
            series.name, kind, unique, empty, examples, width=width, words=words, rare=len(few), rare_rows=rows
        )
    column = parse.number(series)
    values = column.values[column.usable]
    values = values[np.isfinite(values)]
    empty = max(empty, len(column.missing))  # words such as n/a are empty cells among numbers
    if not column.usable.any() and not len(column.unreadable):
        return Field(series.name, "empty", unique, empty, examples)
    if len(column.unreadable) > _MIXED * len(series) or not len(values):
        return Field(series.name, "word", unique, empty, examples)
    whole = "whole number" if bool((values % 1 == 0).all()) else "number"
    low, high, negative = float(values.min()), float(values.max()), int((values < 0).sum())
    usual = float(np.quantile(values[values != 0], 0.99)) if values.any() else None
    zeros = int((values == 0).sum())
    rises = whole == "whole number" and not empty and bool((np.diff(values) == 1).all())
    return Field(series.name, whole, unique, empty, examples, low, high, negative, usual, zeros, rises)


def _words_of(flags: pl.Series) -> tuple[tuple[str, float], ...]:
    """The words of a column of flags with their values; empty if they are numbers, true or false."""
    if not isinstance(flags.dtype, pl.String | pl.Categorical) or not len(parse.number(flags).unreadable):
        return ()
    words = sorted(str(word) for word in flags.drop_nulls().unique().to_list())
    return tuple((word, float(parse.flag(pl.Series([word])).values[0])) for word in words)


def _kind(series: pl.Series, unique: int) -> str:
    if not unique:
        return "empty"
    if isinstance(series.dtype, pl.List | pl.Array) or holds_several_numbers(series):
        return "list"
    if series.dtype.is_temporal():
        return "time"
    flag = parse.flag(series) if unique <= 2 else None
    if flag is not None and not len(flag.unreadable) and not flag.usable.any():
        return "empty"  # words such as none
    if flag is not None and not len(flag.unreadable) and bool(np.isin(flag.values[flag.usable], (0, 1)).all()):
        return "flag"
    if parse.is_categorical(series):
        return "time" if not len(parse.moment(series).unreadable) else "word"
    return "number"


def holds_several_numbers(series: pl.Series) -> bool:
    """Whether cells of text hold several numbers each, such as 1,0,1 or 606 12 7."""
    if not isinstance(series.dtype, pl.String | pl.Categorical):
        return False
    text = series.drop_nulls().head(_SAMPLE).cast(pl.String)
    packed = text.str.contains(r"^[\[(]?\s*-?[\d.]+([,;| ]\s*-?[\d.]+)+\s*[\])]?$")
    return bool(packed.any()) and bool((packed | text.str.contains(r"^[\[(]?\s*-?[\d.]*\s*[\])]?$")).all())


# Names of columns, in the words that logs use, and the roles that they suggest.

_CASES = (
    "episode", "trajectory", "stay", "admission", "encounter", "patient", "subject", "case", "session", "game", "run",
    "trial", "conversation", "dialogue", "dialog", "chat", "thread", "ticket",
)  # fmt: skip
EPISODE = (
    *(f"{case}{number}" for case in _CASES for number in ("", "_id", "_no", "_nr", "_number", "_key", "_index")),
    "traj", "traj_id", "rollout", "mdp_id", "icustay_id", "hadm_id", "ep", "eps", "ep_id",
)  # fmt: skip
USER = (
    "user", "user_id", "uid", "userid", "customer", "customer_id", "visitor", "visitor_id", "visitorid", "client",
    "client_id", "member_id", "account_id", "reviewer_id", "player_id",
)  # fmt: skip
ITEM = (
    "item", "item_id", "items", "itemid", "iid", "product", "product_id", "sku", "stock_code", "movie", "movie_id",
    "article", "article_id", "asin", "business_id", "track_id", "song_id", "isbn", "book_id", "content_id", "video_id",
    "aid",
)  # fmt: skip
_UNITS = {  # what a decision answers; a column that numbers them numbers decisions
    "request", "query", "prompt", "message", "email", "mail", "impression", "auction", "bid", "call", "decision",
}  # fmt: skip
SESSION = ("session", "session_id", "sessionid")
RATING = ("rating", "ratings", "stars", "quantity", "play_count", "count")
EVENT = ("event", "event_type", "behavior", "behaviour", "behavior_type", "interaction", "kind")
SINGLE: dict[str, tuple[str, ...]] = {  # the column with the first name in the list takes the role
    "episode": (*EPISODE, *USER),
    "step": ("step", "steps", "step_id", "step_index", "timestep", "time_step", "frame_index", "t", "sequence_number",
             "seq", "visit", "visit_no", "turn", "round", "stage", "decision_no", "hour", "day", "week"),
    "time": ("time", "timestamp", "datetime", "ts", "date", "event_time", "charttime", "created_at", "logged_at"),
    "reward": ("reward", "rewards", "r", "click", "clicked", "clicks", "conversion", "converted", "purchase",
               "purchased", "bought", "sale", "recovered", "survived", "success", "outcome", "revenue", "profit",
               "rating", "return"),
    "terminated": (*TERMINATIONS, "ended", "end", "is_end", "finished", "final", "died", "dead", "death", "episode_end",
                   "game_over"),
    "truncated": (*TRUNCATIONS, "is_last", "episode_terminals", "censored", "left", "discharged"),
    "propensity": ("propensity", "propensity_score", "pscore", "p_score", "action_prob", "action_probability",
                   "behavior_prob", "behaviour_prob", "behavior_probability", "behaviour_probability", "logging_prob",
                   "logging_probability", "prob_action", "mu", "pi_b", "prob", "probability", "p"),
    "weight": ("weight", "weights", "sample_weight", "importance_weight", "w"),
}  # fmt: skip
_OUTCOMES = {"outcome", "readmitted", "readmission", "died", "death", "mortality", "survived", "survival", "label",
             "target", "churned", "converted", "conversion", "reward", "rewards", "redeemed", "redemption", "responded",
             "feedback", "clicked", "purchased", "bought", "revenue", "profit", "recovered", "satisfaction", "latency",
             "cost", "costs", "savings", "kwh", "discomfort", "benefit", "benefits", "click", "purchase", "sale",
             "success", "payoff", "utility", "opened", "replied", "subscribed", "unsubscribed", "bounced", "complained",
             "escalated", "resolved", "refunded", "sold", "csat", "nps", "thumbs", "correct", "passed",
             "failed", "solved"}  # fmt: skip
_COSTS = {"readmitted", "readmission", "died", "death", "mortality", "churned", "latency", "cost", "costs", "kwh",
          "discomfort", "unsubscribed", "bounced", "complained", "escalated", "refunded", "failed"}  # fmt: skip
_DOUBTFUL = {"clicks", "purchases", "sales", "score", "gain", "gains", "loss", "losses", "margin", "spend", "rating",
             "response", "result", "results", "quality", "points", "yield", "output"}  # fmt: skip
_PAST = {"last", "past", "previous", "prev", "prior", "history", "historic", "since", "before", "ago", "avg", "average",
         "mean", "expected", "budget"}  # fmt: skip
ACTION = (
    "action", "actions", "a", "act", "action_id", "treatment", "treat", "treated", "intervention", "arm", "arm_id",
    "dose", "decision", "choice", "control", *ITEM, "coupon", "offer", "therapy", "medication", "drug", "variant",
    "banner",
)  # fmt: skip
_ACTION_WORDS = {"action", "treatment", "variant", "version", "arm", "offer", "coupon", "banner", "creative",
                 "template", "campaign", "model", "route", "intervention", "therapy", "choice", "decision"}  # fmt: skip
_CHOSEN = {"assigned", "chosen", "selected", "recommended", "offered", "scheduled", "applied", "served"}
_KEYS = {"id", "name", "type", "code", "group", "key", "label"}  # after a word that says what they are of
_ARMS = {"control", "placebo", "treatment", "treated"}  # labels of a trial
_NUMBERED = ("action", "actions", "act", "control", "a", "torque", "command", "cmd")  # with a number
_MACHINES = {"app", "os", "browser", "device", "phone", "car", "vehicle", "software", "firmware", "api", "schema"}
NEXT = {"next", "new", "following"}
_OBSERVATION_WORDS = {"obs", "observation", "observations", "state", "states", "feature", "features", "context",
                      "covariate", "covariates", "affinity"}  # fmt: skip
_LETTERS = ("x", "s")  # names of observations, alone or with a number; elsewhere s are seconds
CODED = {
    "id", "code", "type", "category", "class", "kind", "group", "zip", "zipcode", "sex", "gender", "ward", "state",
    "cell", "tile", "node", "room", "cluster", "bin", "zone", "region", "segment",
}  # fmt: skip
FEW_CODES = 50


def last_word(name: str) -> str:
    """The last word of a name, in lower case; empty if it has none."""
    return (name_words(name) or [""])[-1]


def plain_name(one: Field) -> str:
    """The words of a column's name, joined by underscores."""
    return "_".join(name_words(one.name))


def is_observed(words: Sequence[str]) -> bool:
    """Whether the words of a name say an observation."""
    lettered = bool(words) and words[0] in _LETTERS and all(word.isdigit() for word in words[1:])
    return lettered or not _OBSERVATION_WORDS.isdisjoint(words)


_ROW_NUMBERS = (
    "index", "unnamed", "unnamed_0", "row", "rows", "row_id", "row_index", "row_name", "row_names", "rowname",
    "rownames", "row_number", "row_nr", "row_no", "row_num", "rownum", "rownumber", "rowid", "rowindex",
)  # fmt: skip


def numbers_rows(one: Field, rows: int) -> bool:
    """Whether a column has the name of row numbers, and another value in every row."""
    return plain_name(one) in _ROW_NUMBERS and one.unique == rows


def is_identity(one: Field, rows: int) -> bool:
    """Whether nearly every row has its own value, as numbers of orders and of rows do."""
    many = one.unique > max(rows / 2, FEW_CODES)
    numbered = one.kind == "whole number" and (one.consecutive or last_word(one.name) in ("id", "no"))
    return many and (one.kind == "word" or numbered)


def is_person(one: Field) -> bool:
    """Whether a column numbers persons, of whom there are too many for a label."""
    return kind_of(one.name) == "group" and one.kind in ("whole number", "word") and one.unique > FEW_CODES


def is_outcome(one: Field) -> bool:
    """Whether a column is named like what is known after the decision only."""
    return _has_word(one, _OUTCOMES)


def _has_word(one: Field, known: set[str]) -> bool:
    words = set(name_words(one.name))
    return bool(words & known) and not words & _PAST and one.kind not in ("time", "empty", "list", "objects")


def is_arms(one: Field) -> bool:
    """Whether the labels of a column are arms of a trial: letters of groups, a control, or none of what another has."""
    labels = [example.lower() for example in one.examples] if one.kind == "word" else []
    without = [label.removeprefix("no ") for label in labels if label.startswith("no ")]
    others = [label for label in labels if not label.startswith("no ")]
    letters = last_word(one.name) in ("group", "bucket", "branch") and {*labels} <= {*"abcde"} and len(labels) > 1
    return letters or not _ARMS.isdisjoint(labels) or any(other.endswith(what) for what in without for other in others)


def names_interactions(named: Sequence[Field]) -> bool:
    """Whether a name says users, items or kinds of event."""
    return not {plain_name(one) for one in named}.isdisjoint((*USER, *ITEM, *EVENT))


def list_names(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "")


# A proposed mapping of a table, which each inference adds to.


_FARTHEST = 4  # standard errors
_TINY = 1e-12


@dataclass
class Proposal:
    """A proposed mapping with notes, and the roles of an interaction table if the table looks like one."""

    table: ParsedTable
    fields: Sequence[Field]  # of the columns that may have a role
    mapping: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)  # suggested lines of TOML
    interactions: dict[str, str] = field(default_factory=dict)
    interaction_notes: list[str] = field(default_factory=list)  # those of the notes that are about interactions
    actions: list[str] = field(default_factory=list)  # columns of which any may be the action
    own_roles: frozenset[str] = frozenset()  # roles that somebody named
    ends: list[str] = field(default_factory=list)  # flags that are 1 on last rows of episodes only, without a role

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return self.table.rows

    @property
    def used(self) -> dict[str, str]:
        """Column -> its role."""
        return roles_of(self.mapping)

    def own(self, role: str) -> list[Field]:
        """The columns that somebody named for a role, in that order."""
        by_name, names = {one.name: one for one in self.fields}, self.mapping[role]
        return [by_name[name] for name in ([names] if isinstance(names, str) else names)]

    def unused(self, belongs: Callable[[list[str], Field], bool]) -> list[Field]:
        """The columns without a role to which something belongs, by the words of their names and their values."""
        used = self.used
        return [one for one in self.fields if one.name not in used and belongs(name_words(one.name), one)]

    def with_name(self, known: Iterable[str]) -> list[Field]:
        """The columns that have one of these names."""
        return [one for one in self.fields if plain_name(one) in known]

    def different_values(self, name: Any, default: int) -> int:
        """How many different values a column has."""
        return next((one.unique for one in self.fields if one.name == name), default)

    def propose(self, role: str, name: str, why: str) -> None:
        """Give a column a role that its values show, with a note."""
        self.mapping[role] = name
        self.notes.append(f"'{name}' {why}: change `{role}` if wrong")

    def nested(self, episode: str, column: str) -> bool:
        """Whether a column has one value in each episode."""
        pairs = pl.DataFrame({"episode": self.table.series(episode), "column": self.table.series(column)})
        return pairs.n_unique() == pairs["episode"].n_unique()

    def share_ended(self, episode: str, step: str | None, column: str) -> float:
        """The share of episodes whose last row has a flag, or a number other than 0, that no other row has; else 0."""
        flags = parse.flag(self.table.series(column))
        values = (parse.number(self.table.series(column)) if len(flags.unreadable) else flags).values
        return self.share_last(episode, step, values != 0)

    def share_last(self, episode: str, step: str | None, flag: NDArray[np.bool_]) -> float:
        """The share of episodes whose last row is flagged, if no other row is; else 0."""
        table = self.table
        order = pl.int_range(table.rows, eager=True) if step is None else parse.number(table.series(step)).values
        rows = pl.DataFrame({"episode": table.series(episode), "order": order, "flag": flag})
        last = rows.sort("order", maintain_order=True).group_by("episode").last()
        count = int(last["flag"].sum())
        return count / len(last) if count == flag.sum() and len(last) < table.rows else 0.0

    def is_on_last_rows(self, column: str) -> bool:
        """Whether the last row of every episode has a value in a column, and no other row has."""
        episode, filled = self.mapping.get("episode"), np.ones(self.rows, np.bool_)
        filled[parse.number(self.table.series(column)).missing] = False
        return isinstance(episode, str) and self.share_last(episode, self.mapping.get("step"), filled) == 1.0

    def repeats(self, episode: str, step: str) -> int:
        """The number of rows that repeat a step of their episode."""
        pairs = pl.DataFrame({"episode": self.table.series(episode), "step": self.table.series(step)})
        return pairs.height - pairs.n_unique()

    def counts(self, episode: str, column: str) -> bool:
        """Whether a column counts the rows of each episode, which are in the order of the file or scattered.

        In the order of the file it rises by 1, by one amount from one start, or over all whole numbers from 0 or 1.
        Scattered rows say no order: each episode then has different values, from 0 or 1. A number that falls counts
        what remains.
        """
        values = parse.number(self.table.series(column)).values
        rows = pl.DataFrame({"episode": self.table.series(episode), "value": values})
        rises = rows.select(pl.col("value").diff().over("episode"))["value"].drop_nulls()
        if not len(rises) or bool((rises < 0).all()) or bool(rows["value"].is_nan().any()):
            return False
        each = rows.group_by("episode").agg(
            first=pl.col("value").min(), different=pl.col("value").n_unique(), rows=pl.len()
        )
        different, first = np.unique(rows["value"].to_numpy()), np.unique(each["first"].to_numpy())
        dense = len(first) == 1 and first[0] in (0, 1) and len(different) == different[-1] - first[0] + 1
        if (rises > 0).all():
            even = rises.n_unique() == 1 and (len(first) == 1 or rises[0] == 1.0)
            return bool(even or dense)
        scattered = rows["episode"].rle_id().n_unique() > len(each)
        return bool(scattered and dense and (each["different"] == each["rows"]).all())

    def weighed(self, action: str, propensity: str) -> float:
        """The share of the variance of propensities that a column of logged actions explains; below 0 for others.

        Weighted by 1 / probability, rows hold each logged action once a row in expectation.
        """
        values, probabilities = self.table.series(action), parse.number(self.table.series(propensity)).values
        code = np.unique(values.cast(pl.String).fill_null("").to_numpy(), return_inverse=True)[1]
        usable = np.isfinite(probabilities) & (probabilities > 0) & (probabilities <= 1)
        if not usable.all():
            return -1.0
        mean, square = (np.bincount(code, probabilities**-power) / len(code) for power in (1.0, 2.0))
        errors = np.sqrt(np.maximum(square - mean**2, 0) / len(code))
        if not (np.abs(mean - 1) <= _FARTHEST * errors).all():
            return -1.0
        within = np.bincount(code, probabilities) / np.bincount(code)
        return float(np.var(within[code])) / max(float(np.var(probabilities)), _TINY)

    def leave_out(self, name: str) -> None:
        """Take a column, with its next one, out of the observations."""
        position = self.mapping["observation"].index(name)
        for role in ("observation", "next_observation"):
            self.mapping[role] = [one for i, one in enumerate(self.mapping.get(role, ())) if i != position]
        self.mapping["categorical"] = [one for one in self.mapping.get("categorical", ()) if one != name]
        self.mapping["other"] = {one: rows for one, rows in self.mapping.get("other", {}).items() if one != name}
        for role in ("observation", "next_observation", "categorical", "other"):
            if not self.mapping[role]:
                del self.mapping[role]


_SETTINGS = ("actions", "bounds", "categorical", "na_values", "other")


def roles_of(mapping: dict[str, Any]) -> dict[str, str]:
    """Column -> its role in a mapping."""
    listed = {role: [value] if isinstance(value, str) else value for role, value in mapping.items()}
    return {name: role for role, names in listed.items() if isinstance(names, list) and role not in _SETTINGS
            for name in names}  # fmt: skip


# Infer actions with their masks, and rewards.

_LARGEST = 3e38
_WIDE = 10
_LIST = re.compile(r"\w\s*[,;|]\s*\w|^\[.*\]$|^\(.*\)$")  # names of allowed actions in one cell
_MASK = {"mask", "allowed", "available", "legal", "admissible", "feasible", "valid", "possible"}
_MOST_ACTIONS = 100  # different values of a column
_DEPENDS, _FREE = 0.5, 0.1  # shares of the variance of propensities
_FEW_WORDS = 20  # actions
_MOSTLY = 0.5  # of the rows


def assign_masks(proposal: Proposal) -> None:
    """Assign the allowed actions of a row, and of the next one."""

    def allowed(words: list[str], one: Field) -> bool:
        lists = one.kind == "word" and all(_LIST.search(example) for example in one.examples)
        return bool(_MASK & set(words)) and (one.kind in ("flag", "list") or lists)

    masks = proposal.unused(allowed)
    later = [one for one in masks if NEXT & set(name_words(one.name))]
    now = [one for one in masks if one not in later]
    for role, several in (("action_mask", now), ("next_action_mask", later if now else [])):
        if several:
            proposal.mapping[role] = several[0].name if len(several) == 1 else [one.name for one in several]


def assign_actions(proposal: Proposal) -> None:
    """Assign the action by its name, else by the probabilities of the logged actions."""

    def acted(words: list[str], one: Field) -> bool:
        numbered = len(words) == 2 and words[0] in _NUMBERED and words[1].isdigit()
        is_set = not {"setpoint", "setpoints"}.isdisjoint(words) or "_set_point" in f"_{'_'.join(words)}"
        return (numbered or is_set) and one.kind in NUMERIC

    if "action" in proposal.own_roles:
        _declare(proposal.own("action"), proposal)
        return
    several = proposal.unused(acted)
    called = [one for one in proposal.unused(lambda words, one: "_".join(words) in ACTION)
              if one.kind in ("word", *NUMERIC) or (one.width and plain_name(one) not in ITEM)]  # fmt: skip
    called.sort(key=lambda one: ACTION.index(plain_name(one)))
    prices = proposal.unused(lambda words, one: words == ["price"] and one.kind in NUMERIC)
    if prices and called and plain_name(called[0]) in ITEM and not proposal.with_name(USER):
        called = prices  # what was asked for an item; beside users it would be a property of what they took
    propensity = proposal.mapping.get("propensity")
    stem = [word for word in name_words(str(propensity)) if word != "p" and not word.startswith(("prob", "propens"))]
    by_stem = [one for one in proposal.unused(lambda words, one: words == stem)
               if one.kind in ("word", *NUMERIC) and proposal.weighed(one.name, str(propensity)) >= 0]  # fmt: skip
    if by_stem or called:
        proposal.mapping["action"] = (by_stem or called)[0].name
        _declare((by_stem or called)[:1], proposal)
    elif several:
        proposal.mapping["action"] = [one.name for one in several]
        _declare(several, proposal)
    elif isinstance(propensity, str):
        _by_propensity(proposal, propensity)
    if "action" not in proposal.mapping:
        _by_name_or_labels(proposal)


def _declare(several: Sequence[Field], proposal: Proposal) -> None:
    """Declare the number of actions, or their bounds, from the values of the columns of the action."""
    if not proposal.own_roles.isdisjoint(("actions", "bounds")):
        return
    if len(several) == 1:
        _declare_one(several[0], proposal)
    elif several and all(
        one.kind in ("flag", "whole number") and not one.words and (one.low or 0.0) >= 0 and one.unique <= FEW_CODES
        for one in several
    ):
        proposal.mapping["actions"] = [2 if one.kind == "flag" else int(one.high or 0.0) + 1 for one in several]
        note = "several columns of whole numbers are read as choices: change `actions`, or set `bounds`"
        proposal.notes.append(note)


def _by_name_or_labels(proposal: Proposal) -> None:
    """Assign the action to the one column of few values that is named or labelled as a choice.

    The last word of its name says it, such as `email_version` or `model_name`, or its labels are arms of a trial.
    """

    def chosen(words: list[str], one: Field) -> bool:
        while len(words) > 1 and words[-1] in _KEYS:
            words = words[:-1]
        few = one.kind in ("word", "flag", "whole number") and 2 <= one.unique <= _FEW_WORDS and not one.empty
        says = not _ACTION_WORDS.isdisjoint(words[-1:]) or not _CHOSEN.isdisjoint(words)
        return few and (is_arms(one) or (says and _MACHINES.isdisjoint(words) and not is_outcome(one)))

    called = proposal.unused(chosen)
    if len(called) == 1:
        proposal.propose("action", called[0].name, "is named or labelled like a choice and is read as the action")
        _declare(called, proposal)


def _by_propensity(proposal: Proposal, propensity: str) -> None:
    """Assign the action to the one column whose values are as frequent as the probabilities of the actions say.

    Of several, the one on which the probabilities depend.
    """
    kinds = ("word", "flag", "whole number")
    left = [one for one in proposal.unused(lambda words, one: one.kind in kinds)
            if not one.empty and 2 <= one.unique <= _MOST_ACTIONS]  # fmt: skip
    shares = {one.name: proposal.weighed(one.name, propensity) for one in left if not is_outcome(one)}
    fitting = sorted((one for one in left if shares.get(one.name, -1.0) >= 0), key=lambda one: -shares[one.name])
    if len(fitting) == 1 or (fitting and shares[fitting[0].name] >= _DEPENDS > _FREE >= shares[fitting[1].name]):
        proposal.mapping["action"] = fitting[0].name
        proposal.notes.append(
            f"'{fitting[0].name}' is read as the action: its values are as frequent as '{propensity}' says; change "
            "`action` if wrong"
        )
        _declare(fitting[:1], proposal)


def _declare_one(one: Field, proposal: Proposal) -> None:
    """Note the logged range of the action; whole numbers with many gaps are amounts, not choices."""
    low, high = one.low or 0.0, 1.0 if one.kind == "flag" else one.high or 0.0
    mask = proposal.mapping.get("action_mask")  # its columns count the actions; one column of lists does not
    flags = mask if mask is None else len(mask) if isinstance(mask, list) else 0
    amounts = one.kind == "whole number" and (low < 0 or high + 1 > max(_WIDE * one.unique, 100))
    amounts = amounts and max(-low, high) < _LARGEST
    if one.kind in ("word", "list") or one.words:
        return
    if one.kind == "number" or amounts:
        limits = [low, high]
        (proposal.mapping if amounts else {})["bounds"] = limits
        proposal.hints += [] if amounts else [f"bounds = {limits}   # the logged range; change it if more is possible"]
        proposal.notes.append(f"'{one.name}' is read as an amount from {low:g} to {high:g}: change `bounds` if wrong")
    elif low == 1 < high and flags in (None, high):
        if high <= _FEW_WORDS:  # else they are inferred
            proposal.mapping["vocabularies"] = {one.name: [str(code) for code in range(1, int(high) + 1)]}
        proposal.notes.append(
            f"'{one.name}' is read as one of {int(high)} actions, codes from 1: set `actions = {int(high) + 1}` "
            "instead if there is a code 0 that was never logged"
        )
    elif "action_mask" not in proposal.mapping and high < _LARGEST:
        proposal.mapping["actions"] = int(high) + 1
        proposal.notes.append(
            f"'{one.name}' is read as one of {int(high) + 1} actions, codes from 0; logged are {int(low)} to "
            f"{int(high)}: change `actions` if wrong"
        )


def assign_by_values(proposal: Proposal) -> None:
    """Propose action and reward of a table with episodes by values alone, where no name says the action.

    The action is the one column of words that changes within
    episodes, or else the one amount that is mostly 0, such as a dose. The reward is 1 on some last rows alone. Tables
    with users, items or kinds of event may be interactions, and get no proposal.
    """
    episode = proposal.mapping.get("episode")
    if episode is None or names_interactions(proposal.fields):
        return
    left = proposal.unused(lambda words, one: not one.empty and not is_outcome(one))
    changing = [one for one in left if one.unique > 1 and not proposal.nested(episode, one.name)]
    step = proposal.mapping.get("step")
    if "reward" not in proposal.mapping:
        final = [one for one in changing if one.kind == "flag" and proposal.share_ended(episode, step, one.name)]
        if len(final) == 1:
            proposal.propose("reward", final[0].name, "is 1 on last rows of episodes only and is read as the reward")
            changing.remove(final[0])
    if "action" in proposal.own_roles:
        return
    changing = [one for one in changing if one.name not in proposal.ends]  # outcomes
    words = [one for one in changing if one.kind == "word" and one.unique <= _FEW_WORDS]
    amounts = [one for one in changing if one.kind in ("whole number", "number") and one.unique > 2
               and (one.low or 0.0) >= 0 and one.zeros >= _MOSTLY * proposal.rows]  # fmt: skip
    if len(words) == 1:
        why = "is read as the action, because no other words change within episodes"
        proposal.propose("action", words[0].name, why)
    elif len(amounts) == 1 and not words:
        one = amounts[0]
        proposal.mapping |= {"action": one.name, "bounds": [0.0, one.high]}
        proposal.notes.append(
            f"'{one.name}' is 0 in {one.zeros / proposal.rows:.0%} of rows and is read as the action, a dose from 0 to "
            f"{one.high:g}: change `action` or `bounds` if wrong; for a few levels instead of an amount, add a column "
            f"of words to the table, such as none, up to {(one.high or 0.0) / 2:g}, more"
        )
    elif words or amounts:
        several = [one.name for one in (words or amounts)]
        proposal.hints.append(f"action = {toml_text(several[0])}   # or {list_names(several[1:])}")
        proposal.actions = several
        note = (
            "any may be the action; name it in `action`, and the others in `observation` if they were known before it"
        )
        proposal.notes.append(f"{list_names(several)}: {note}")


_MISSING_REWARD = (
    "missing_reward = 0.0   # if rows without a reward earned nothing",
    'missing_reward = "unknown"   # if what they earned was not recorded',
)


def suggest_rewards(outcomes: Sequence[Field], proposal: Proposal) -> None:
    """Suggest the outcomes as rewards; numbers for the words of one, and weights of several."""
    words = next((one for one in outcomes if one.kind == "word"), None)
    rewards = [one for one in outcomes if one.kind != "word" or one is words]
    names = [one.name for one in rewards]
    proposal.hints.append(f"reward = {toml_text(names if len(names) > 1 else names[0])}")
    costs = [not _COSTS.isdisjoint(name_words(one.name)) and (one.high is None or one.high > 0.0) for one in rewards]
    weights = ["-1.0" if cost else "1.0" for cost in costs]  # costs below 0 have their sign already
    if weights != ["1.0"]:
        proposal.hints.append(f"reward_weights = [{', '.join(weights)}]   # with your numbers, below 0 for costs")
    if words is not None:
        several = [*sorted(words.examples), *[""] * bool(words.empty)]
        listed = ", ".join(f"{toml_text(word)} = 0.0" for word in several)
        more = ", ..." if words.unique > len(words.examples) else ""
        proposal.hints.append(f"reward_values = {{ {listed}{more} }}   # with your numbers")
    if any(one.empty for one in rewards if one is not words):
        proposal.hints += _MISSING_REWARD


# Infer episodes, steps, ends and clusters, and the other roles of one column each.

_FEWEST_EPISODES = 10
_MOST_COPIES = 0.02  # share of rows; more rows with the same step are no copies
_MOST_ENDS = 0.5  # share of episodes
_FEWEST_ENDS = 5  # last rows with a flag that no other row has, from which on it is no chance


def assign_single_roles(proposal: Proposal) -> None:
    """Assign the roles of one column each."""
    one_step = "no column marks which rows belong together: every row is an episode of one step"
    for role, known in SINGLE.items():
        if role in proposal.own_roles:
            continue
        called = proposal.with_name(known)
        called.sort(key=lambda one: known.index(plain_name(one)))
        fitting = [one for one in called if _fits(role, one, proposal.rows) and one.name not in proposal.used]
        units = _numbered_units(proposal) if role == "episode" else []
        if units and fitting and plain_name(fitting[0]) in USER:
            one_step = f"every row has its own '{units[0].name}' and is an episode of one step; set `episode = "
            one_step += f"{toml_text(fitting[0].name)}` if a decision changes what comes later"
            fitting = []
        if fitting:
            proposal.mapping[role] = fitting[0].name
        for one in called:
            held = "has no value" if one.kind == "empty" else f"holds {one.kind.removesuffix('s')}s"
            why = f"has the name of a {role}, but {held}"
            if role == "episode":
                why = "differs in every row or is not an identifier: it cannot mark which rows belong together"
            proposal.notes += [] if _fits(role, one, proposal.rows) else [f"'{one.name}' {why}"]
    times = [one for one in proposal.fields if one.kind == "time"]
    if "time" not in proposal.mapping and len(times) == 1:
        proposal.mapping["time"] = times[0].name
    _episode_by_time(proposal)
    _episode_by_count(proposal)
    _by_content(proposal)
    if "episode" not in proposal.mapping:
        recording = "time" in proposal.mapping and "propensity" not in proposal.mapping
        recording = recording and not names_interactions(proposal.fields)
        flags = [f"'{one.name}'" for one in proposal.fields if one.kind == "flag" and one.unique == 2 and (
            plain_name(one) in (*STARTS, *LASTS)
            or one.name in (proposal.mapping.get("terminated"), proposal.mapping.get("truncated")))]  # fmt: skip
        if flags:
            one_step += (
                f", although {list_names(flags)} says where episodes end or begin: number them in a column first"
            )
        elif recording:
            one_step += "; in one long recording, add a column that names the part of each row, such as the day"
        proposal.notes.append(one_step)
        proposal.mapping.setdefault("terminated", True)
    elif not {"terminated", "truncated"} & proposal.mapping.keys():
        proposal.notes.append("no column marks how episodes end: they count as truncated; "
                          "set `terminated = true` if every episode terminated")  # fmt: skip


def _numbered_units(proposal: Proposal) -> list[Field]:
    """The columns that number what a decision answers, such as requests, with another value in every row."""
    if proposal.with_name(ITEM):
        return []
    return [one for one in proposal.fields if is_identity(one, proposal.rows) and one.unique == proposal.rows
            and not _UNITS.isdisjoint(name_words(one.name))]  # fmt: skip


def _fits(role: str, one: Field, rows: int) -> bool:
    if role == "episode":
        return one.kind in ("flag", "whole number", "word") and (one.unique < rows or rows < 2)
    if role in ("terminated", "truncated"):
        return one.kind == "flag"
    if role == "time":
        return one.kind in ("time", *NUMERIC)
    if role == "propensity" and plain_name(one) in ("p", "mu", "prob", "probability"):
        return one.kind == "flag" or (one.kind == "number" and (one.low or 0.0) >= 0 and (one.high or 0.0) <= 1)
    return one.kind in NUMERIC


def _episode_by_time(proposal: Proposal) -> None:
    """Assign the one column with at most one row for each of its values and times, where the times of rows repeat."""
    when = proposal.mapping.get("time")  # a step by its name may be the number of an episode
    if "episode" in proposal.mapping or 2 * proposal.different_values(when, proposal.rows) > proposal.rows:
        return
    left = proposal.unused(
        lambda words, one: one.kind in ("whole number", "word") and not one.empty and 2 * one.unique <= proposal.rows
    )
    left = [one for one in left if plain_name(one) not in ACTION]
    found = [one.name for one in left if not proposal.repeats(one.name, str(when))]
    if len(found) == 1:
        proposal.mapping["episode"] = found[0]
        proposal.notes.append(
            f"rows with the same '{found[0]}' form an episode, because no '{when}' repeats among them: change "
            "`episode` if wrong"
        )


def _episode_by_count(proposal: Proposal) -> None:
    """Assign the one column within whose values another column counts the rows from 0 or 1."""
    if "episode" in proposal.mapping or names_interactions(proposal.fields):
        return
    used = proposal.used
    whole = [one for one in proposal.fields if not one.empty and one.kind in ("flag", "whole number") and one.unique > 1
             and used.get(one.name, "step") == "step"]  # fmt: skip
    steps = [one for one in whole if one.kind == "flag"  # or every whole number from 0 or 1 to its largest
             or (one.low in (0.0, 1.0) and one.unique == (one.high or 0.0) - one.low + 1)]  # fmt: skip
    keys = proposal.unused(lambda words, one: one.kind in ("whole number", "word") and not one.empty)
    pairs = [
        (key, step)
        for key in keys
        for step in steps
        if key is not step and key.unique >= max(_FEWEST_EPISODES, step.unique) and 2 * key.unique <= proposal.rows
        and proposal.counts(key.name, step.name)
    ]  # fmt: skip
    if len(pairs) == 1:
        key, step = (one.name for one in pairs[0])
        proposal.mapping |= {"episode": key, "step": step}
        proposal.notes.append(f"'{key}' is read as the episode, because '{step}' counts its rows: change `episode` and "
                              "`step` if wrong")  # fmt: skip


def assign_step(proposal: Proposal) -> None:
    """Drop a step that does not count the rows of an episode; without step and time, assign the column that does."""
    step, episode = proposal.mapping.get("step"), proposal.mapping.get("episode")
    if "step" in proposal.own_roles:
        return
    if step is None:
        time = proposal.mapping.get("time")
        if episode is None or (time is not None and not proposal.repeats(episode, time)):
            return
        if "_".join(name_words(episode)) in USER:  # events of users need a time; a count of rows is none
            return
        left = proposal.unused(lambda words, one: one.kind == "whole number" and not one.empty and not is_outcome(one))
        found = [one.name for one in left if proposal.counts(episode, one.name)]
        if len(found) == 1:
            proposal.propose("step", found[0], f"counts the rows of each '{episode}' and is read as the step")
        return
    if episode is None:
        del proposal.mapping["step"]
        proposal.notes.append(f"'{step}' is not used as step: no column says which rows form an episode")
        return
    count = proposal.repeats(episode, step)
    if not count:
        return
    those = f"{count:,} {'row repeats' if count == 1 else 'rows repeat'} a step of their '{episode}'"
    if count <= _MOST_COPIES * proposal.rows:
        proposal.notes.append(f"{those}: remove copied rows, or change `step` if it is no count of rows")
        return
    del proposal.mapping["step"]
    proposal.notes.append(f"'{step}' is not used as step: {those}")


def _by_content(proposal: Proposal) -> None:
    """Assign the end of episodes and the propensity to the one column whose values show it, whatever its exact name.

    A flag of the last rows of some episodes only may be a reward at their end: it needs a reward elsewhere. An amount
    that is 0 except on such rows is no end.
    """
    left = proposal.unused(lambda words, one: not one.empty)
    episode, step = proposal.mapping.get("episode"), proposal.mapping.get("step")
    least = _MOST_ENDS if "reward" in proposal.mapping else 1.0
    flags = [one for one in left if one.kind == "flag" and one.unique == 2]
    shares = {one.name: proposal.share_ended(episode, step, one.name) for one in flags} if episode is not None else {}
    last = [name for name, share in shares.items() if share >= least]
    amounts = (
        [one for one in left if one.kind in ("whole number", "number") and one.zeros] if episode is not None else []
    )
    shares |= {one.name: proposal.share_ended(str(episode), step, one.name) for one in amounts}
    names_of_columns = {*(plain_name(one) for one in proposal.fields if not is_outcome(one)), *ACTION, *_CHOSEN}
    probable = [
        one.name
        for one in left
        if one.kind == "number"
        and 0.0 < (one.low or 0.0) <= (one.high or 0.0) <= 1.0
        and (
            any(word.startswith(("prob", "propens")) for word in name_words(one.name))
            or (name_words(one.name)[:1] == ["p"] and "_".join(name_words(one.name)[1:]) in names_of_columns)  # p(drug)
        )
    ]
    where = {
        "terminated": (last, "is 1 on last rows of episodes only"),
        "propensity": (probable, "is read as the probability of the logged action"),
    }
    for role, (names, why) in where.items():
        if len(names) == 1 and role not in proposal.mapping:
            proposal.propose(role, names[0], why)
    episodes = proposal.different_values(episode, 0)
    proposal.ends = [
        name
        for name, share in shares.items()
        if name != proposal.mapping.get("terminated") and share * episodes >= _FEWEST_ENDS
    ]


def assign_cluster(proposal: Proposal) -> None:
    """Assign the first unused column with the name of a person, session or store that repeats over episodes."""
    if "cluster" in proposal.own_roles:
        return
    episode = proposal.mapping.get("episode")
    most = proposal.different_values(episode, proposal.rows) / LEAST_REPEATS
    called = [
        one
        for one in proposal.unused(lambda words, one: one.kind in ("whole number", "word") and not one.empty)
        if kind_of(one.name) == "group"
        and LEAST_VALUES <= one.unique <= most
        and (episode is None or proposal.nested(episode, one.name))
    ]
    if called:
        proposal.mapping["cluster"] = called[0].name
        proposal.notes.append(f"episodes with the same '{called[0].name}' form a cluster: change `cluster` if wrong")
    if len(called) > 1:
        others = list_names([one.name for one in called[1:]])
        proposal.notes.append(
            f"{others}: could be clusters too; use the column with the fewest values whose episodes are dependent"
        )


# Infer the roles of a table of interactions: who took which item when.

_EXTREME = 100  # largest ratio of the largest reward to the 99% quantile


def detect_interactions(proposal: Proposal) -> None:
    """Detect tables of interactions (users and items, without propensities and masks)."""
    if "propensity" in proposal.mapping or "action_mask" in proposal.mapping:
        return
    kinds = ("whole number", "word", "flag")
    users = [one for one in proposal.with_name(USER) if one.kind in kinds]
    items = proposal.with_name(ITEM)
    if not users and items and "time" in proposal.mapping and "reward" not in proposal.mapping:
        users = [one for one in proposal.with_name(SESSION) if one.kind in kinds]
    guessed = _items_by_content(proposal) if users and not items else []
    items = items or guessed
    if not (users and items):
        return
    roles = {"user": users[0].name, "item": items[0].name}
    sessions = [one.name for one in proposal.with_name(SESSION)]
    roles |= {"session": sessions[0]} if sessions and sessions[0] != users[0].name and items[0].kind != "list" else {}
    dated = [one.name for one in proposal.fields if one.kind == "time"]
    time = proposal.mapping.get("time") or (dated[0] if dated else proposal.mapping.get("step"))
    roles |= {"time": time} if time else {}
    unfit = [(one, _unfit_reward(one)) for one in proposal.with_name(RATING)]
    events = [*proposal.with_name(EVENT), *proposal.with_name(("type",))]
    for role, called in (("rating", [one for one, reason in unfit if reason is None]), ("event", events)):
        roles |= {role: called[0].name} if called else {}
    proposal.interactions = roles
    listed = ", ".join(f"{role} '{name}'" for role, name in roles.items())
    about = proposal.interaction_notes
    about.append(f"this looks like an interaction log ({listed}): it holds who chose what, not what was "
                         "seen, offered or declined; a mapping makes users episodes and items actions")  # fmt: skip
    if guessed:
        about.append(f"'{items[0].name}' is taken as the item, because no other column has many values that "
                                 "repeat; `--item` names another")  # fmt: skip
    if items[0].kind == "list":
        about.append(f"'{items[0].name}' holds several items per row: split them, one item per row")
    if "rating" not in roles:
        for one in events[:1]:
            more = " ..." if one.unique > len(one.examples) else ""
            pairs = " ".join(shlex.quote(f"{kind}=1") for kind in one.examples)
            about.append(f"every event has reward 1; `--reward {pairs}{more}`, with your numbers, sets the reward of "
                         f"each kind of '{one.name}'")  # fmt: skip
        about += [f"'{one.name}' is not proposed as reward: {reason}" for one, reason in unfit if reason]
    proposal.notes[:0] = about


def _items_by_content(proposal: Proposal) -> list[Field]:
    """Return the one column whose values repeat, and are too many for a feature, in sessions or events of users.

    Empty if there are several such columns, an action, or no column of sessions or of kinds of event.
    """
    names = {plain_name(one) for one in proposal.fields}
    if "action" in proposal.mapping or names.isdisjoint((*SESSION, *EVENT)):
        return []
    other = (*EPISODE, *USER, *EVENT, *RATING)
    used = {proposal.mapping.get(role) for role in ("time", "step", "reward")}
    fitting = [one for one in proposal.fields if one.kind in ("whole number", "word") and not one.empty
               and one.unique > FEW_CODES and plain_name(one) not in other and one.name not in used]  # fmt: skip
    return fitting if len(fitting) == 1 else []


def _unfit_reward(one: Field) -> str | None:
    """The reason why a column of ratings or quantities should not be the reward as it is; None if it can be."""
    if one.negative:
        returned = "returned goods? Their rows still count as events: remove them"
        return f"{one.negative:,} values are negative, down to {one.low:,.10g} ({returned})"
    if one.usual and one.high is not None and one.high > _EXTREME * one.usual:
        return f"its largest value is {one.high:,.10g}, and 99% of those other than 0 are at most {one.usual:,.5g}"
    return None


# Infer observations and next observations.


def assign_observations(proposal: Proposal) -> None:
    """Assign the columns named as observations, else all unused columns except times and identifiers."""
    outcomes = proposal.unused(lambda words, one: is_outcome(one))
    last = [one for one in proposal.fields if one.name in proposal.ends and one not in outcomes]
    readable = [
        one
        for one in proposal.fields
        if (one.kind not in ("time", "empty", "list", "objects") or (one.width and plain_name(one) not in ITEM))
        and one not in outcomes
        and one not in last
        and not is_after(one.name)
        and one.name not in proposal.actions
        and not (one.consecutive and is_identity(one, proposal.rows))  # row numbers
    ]
    for one in last:
        if "terminated" not in proposal.mapping and one.kind == "flag":
            proposal.hints.append(f"terminated = {toml_text(one.name)}")
        values = "is 1 on last rows of episodes only" if one.kind == "flag" else "is 0 except on last rows of episodes"
        what = "an end or an outcome" if one.kind == "flag" else "an outcome"
        proposal.notes.append(f"'{one.name}' {values}: {what}, which is not known before the decision")
    if outcomes:
        named_outcomes = list_names([f"'{one.name}'" for one in outcomes])
        proposal.notes.append(f"{named_outcomes}: named like an outcome, which is not known before the decision")
    names = {one.name for one in readable}
    left = proposal.unused(lambda words, one: one.name in names)
    later = [one for one in left if len(words := name_words(one.name)) > 1 and NEXT & {words[0], words[-1]}]
    left = [one for one in left if one not in later]
    now = [one for one in left if is_observed(name_words(one.name))]
    if not now:
        now = [one for one in left if not is_identity(one, proposal.rows) and not is_person(one)]
        after = _after_the_action(proposal, now)
        now, outcomes = [one for one in now if one not in after], [*outcomes, *after]
    if "observation" in proposal.own_roles:
        now = proposal.own("observation")
    ends = [one for one in proposal.fields if one.name == proposal.mapping.get("terminated") and is_outcome(one)]
    if "reward" not in proposal.mapping and (outcomes or last or ends):
        suggest_rewards(outcomes or last or ends, proposal)
    if now:
        proposal.mapping["observation"] = [one.name for one in now]
        coded = [
            one.name
            for one in now
            if one.kind == "word"
            or (one.kind == "whole number" and last_word(one.name) in CODED and (one.low or 0.0) >= 0)
        ]
        proposal.mapping |= {"categorical": coded} if coded else {}
        rare = [one for one in now if one.kind == "word" and one.rare_rows >= FEW_ROWS and one.rare < one.unique]
        if rare:  # rare labels with enough rows together, beside frequent ones
            proposal.mapping["other"] = {one.name: FEW_ROWS for one in rare}
            listed = list_names([f"{one.rare:,} of {one.unique:,} labels of '{one.name}' ({one.rare_rows:,} rows)"
                                 for one in rare])  # fmt: skip
            proposal.notes.append(
                f"{listed} are in fewer than {FEW_ROWS} rows each: they are learnt as one, '{OTHER}', as which labels "
                "that the log does not have count, too; drop `other` to keep them apart"
            )
        doubtful = [f"'{one.name}'" for one in now if _has_word(one, _DOUBTFUL) and not is_outcome(one)]
        if doubtful and "reward" not in proposal.mapping:
            proposal.notes.append(
                f"{list_names(doubtful)}: an outcome by the name, or known before the decision? Take an outcome out of "
                "`observation`, and name it in `reward` if it is what decisions are for"
            )
        proposal.notes += [
            f"'{one.name}' is read as a label: take it out of `categorical` if it is an amount or an order"
            for one in now
            if one.name in coded and one.kind == "whole number"
        ]
        next_columns = {"_".join(word for word in name_words(one.name) if word not in NEXT): one.name for one in later}
        without = [one.name for one in now if plain_name(one) not in next_columns]
        if not without:
            proposal.mapping["next_observation"] = [next_columns[plain_name(one)] for one in now]
        elif later:
            proposal.notes.append(f"next observations are not used: {list_names(without)} has no next column")
    _ask_about_endings(proposal, now)


def _after_the_action(proposal: Proposal, now: Sequence[Field]) -> list[Field]:
    """The columns after the action, of a table that has more of them before it: outcomes often stand there.

    Where nothing else is a reward, as many before it are enough. Names of observations and of the past do not count.
    """
    action, order = proposal.mapping.get("action"), [one.name for one in proposal.fields]
    if action is None or "observation" in proposal.own_roles:
        return []
    positions = [order.index(name) for name in ([action] if isinstance(action, str) else action)]
    after = [one for one in now if order.index(one.name) > max(positions) and _PAST.isdisjoint(name_words(one.name))]
    before = sum(order.index(one.name) < min(positions) for one in now)
    if not after or before < len(after) or (before == len(after) and "reward" in proposal.mapping):
        return []
    listed = list_names([f"'{one.name}'" for one in after])
    proposal.notes.append(
        f"{listed}: after the action in the table, as outcomes are; add to `observation` what was known before it"
    )
    return after


def _ask_about_endings(proposal: Proposal, now: Sequence[Field]) -> None:
    """Note columns that are named as from after the decision, and those whose names end as the reward's does."""
    after = [f"'{one.name}'" for one in proposal.unused(lambda words, one: is_after(one.name))]
    if after:
        proposal.notes.append(
            f"{list_names(after)}: named like what follows the decision; add to `observation` what is known before it"
        )
    reward = proposal.mapping.get("reward")
    endings = {last_word(name) for name in ([reward] if isinstance(reward, str) else reward or [])
               if len(name_words(name)) > 1}  # fmt: skip
    alike = [f"'{one.name}'" for one in now if last_word(one.name) in endings and len(name_words(one.name)) > 1]
    if alike:
        proposal.notes.append(
            f"{list_names(alike)}: the name ends like the reward's; known before the decision, or recorded with the "
            "reward? Take what is not known before out of `observation`"
        )


# Infer the roles of the columns of a table from their names and values.

_RULES = 4  # columns that each have a rule of their own


def infer_columns(fields: Sequence[Field], table: ParsedTable, own_roles: Mapping[str, Any] | None = None) -> Proposal:
    """Infer a mapping from names and values; the notes list unused, undeclared and unclear columns.

    `own_roles` are roles that somebody named: they are kept, and the others are inferred.
    """
    own, named = dict(own_roles or {}), [one for one in fields if one.name]
    kept = roles_of(own)
    several = [one for one in named if one.name in kept or not numbers_rows(one, table.rows)]
    proposal = Proposal(table, several, own, own_roles=frozenset(own))
    assign_single_roles(proposal)
    assign_step(proposal)
    assign_cluster(proposal)
    assign_masks(proposal)
    assign_actions(proposal)
    if "action" not in proposal.mapping or "action" in proposal.own_roles:
        assign_by_values(proposal)
    assign_observations(proposal)
    if not proposal.own_roles:  # roles of a mapping were named
        detect_interactions(proposal)
    _note_the_rest(proposal, named)
    return proposal


def _note_the_rest(proposal: Proposal, named: Sequence[Field]) -> None:
    used = proposal.used
    elsewhere = {*proposal.interactions.values(), *proposal.actions}
    unused = [one for one in named if one.name not in used and one.name not in elsewhere]
    if unused:
        listed = list_names([f"{one.name}{_why_unused(one, proposal.rows)}" for one in unused])
        proposal.notes.append(
            f"not used: {listed}; add to `observation` what was known before the decision; `extra` only keeps columns"
        )
    for one in named:
        if one.words and proposal.mapping.get("reward") == one.name and "reward_values" not in proposal.mapping:
            proposal.mapping["reward_values"] = dict(one.words)
            worth = " and ".join(f"{value:g} for '{word}'" for word, value in one.words)
            proposal.notes.append(f"'{one.name}' is read as a reward of {worth}: change `reward_values` if wrong")
    empty = [one for one in named if one.empty and one.name in used]
    if empty:
        counted = [f"{one.empty:,} in '{one.name}'" for one in empty]
        proposal.notes.append(f"empty cells are errors unless the mapping has a rule for them: {list_names(counted)}")
    unpaid = [one.name for one in empty if used[one.name] == "reward"]
    if len(unpaid) == 1 and "missing_reward" not in proposal.mapping and proposal.is_on_last_rows(unpaid[0]):
        proposal.mapping["missing_reward"] = 0.0
        proposal.notes.append(
            f"'{unpaid[0]}' is on the last row of each episode, and the rows before it earn 0: change `missing_reward` "
            "if wrong"
        )
    elif unpaid:
        proposal.hints += _MISSING_REWARD
    needed = [one.name for one in empty if used[one.name] in ("action", "propensity")]
    if needed:
        proposal.hints.append(f"drop_rows_without = {toml_text(needed)}   # if they are missing by chance")
    observed = [one for one in empty if used[one.name] == "observation"]
    if observed:
        rules = ", ".join(f'{toml_text(one.name)} = "mean+flag"' for one in observed[:_RULES])
        each = f"missing = {{ {rules} }}" if len(observed) <= _RULES else 'missing = "mean+flag"'
        proposal.hints += [] if "missing" in proposal.mapping else [each]
    done = proposal.mapping.get("terminated")
    if isinstance(done, str) and last_word(done) in ("done", "dones") and "truncated" not in proposal.mapping:
        proposal.notes.append(f"'{done}' often also marks time limits: time limits need a separate column `truncated`")
    logarithms = [one.name for one in named if "".join(name_words(one.name)).endswith(("logp", "logprob", "logpi"))]
    if logarithms:
        proposal.notes.append(f"{list_names(logarithms)}: a log-probability; `propensity` needs the probability itself")


def _why_unused(one: Field, rows: int) -> str:
    """Why a column has no role, in brackets, where its kind or its values say so."""
    kinds = {
        "empty": f"only {', '.join(one.examples)}: an empty cell" if one.examples else "has no value",
        "time": "a time",
        "list": "lists of numbers" if one.width else "lists of different lengths, or of other values",
        "objects": "lists of objects: `explode` in the mapping makes each a row of JSON lines; else use explode and "
        "unnest of Polars",
    }
    kinds |= {one.kind: "persons: name it in `cluster`"} if is_person(one) and 2 * one.unique <= rows else {}
    if (one.consecutive and is_identity(one, rows)) or numbers_rows(one, rows):
        return " (row numbers)"
    why = kinds.get(one.kind, "an identifier: nearly every row has its own" if is_identity(one, rows) else "")
    return f" ({why})" if why else ""


_SHOWN = 12
_TERMINAL = 80  # columns of the narrowest terminal
_WIDTH = 100  # of lists in a mapping


@dataclass(frozen=True)
class Inspection:
    """Statistics of a log; `data` is plain JSON."""

    data: dict[str, Any]

    def text(self) -> str:
        """The statistics as lines for a terminal."""
        statistics = self.data["statistics"]
        head = [f"{statistics['episodes']:,} episodes, {statistics['steps']:,} steps, "
                f"{statistics['observations']:,} stored observations",
                f"ends: {statistics['terminated']:,} terminated, {statistics['truncated']:,} truncated; "
                f"{statistics['without_target']:,} rows without a target for value learning"]  # fmt: skip
        summaries = ((name, statistics[name]) for name in ("lengths", "returns", "rewards", "propensities"))
        body = [f"{name}: {_measures(values)}" for name, values in summaries if values]
        if "elapsed" in self.data:
            unit = in_unit(self.data["elapsed_unit"], "in units of 1 ")
            body.append(f"time to the next decision{unit}: {_measures(self.data['elapsed'])}")
        missing = f"missing propensities: {statistics['missing_propensities']:.0%} of rows"
        missing = f"propensities {self.data['declared']}" if "declared" in self.data else missing
        return "\n".join([*head, *body, missing, *_action_lines(statistics["actions"]), *_feature_lines(statistics)])

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return self.data


def inspect_log(log: Log) -> Inspection:
    """Measure a log: episodes, lengths, returns, actions, propensities, features, and the report of its checks."""
    data: dict[str, Any] = {
        "spec": log.spec.to_json(),
        "statistics": log.statistics().to_json(),
        "report": log.report.to_json(),
    }
    data |= {} if log.declared is None else {"declared": log.declared.text}
    times = elapsed_times(log)
    data |= {} if times is None else {"elapsed": times, "elapsed_unit": log.elapsed_unit}
    return Inspection(data | {"fingerprint": log.fingerprint()})


def training_command(source: Any, columns: str | None, log: Log, flags: Sequence[str] = ()) -> str:
    """The next command for a log that is read with these flags: cloning where rewards or actions are equal."""
    algorithm = "bc" if log.reward is None or rewards_are_equal(log) or actions_are_equal(log) else "iql"
    words = [algorithm, "--data", *([source] if isinstance(source, str) else source)]
    words += [*([] if columns is None else ["--columns", columns]), *flags]
    return f"next: tidelog train {shlex.join(words)}"


@dataclass(frozen=True)
class Description:
    """An unmapped table with a proposed mapping, its report, and the declarations that are still needed."""

    source: str
    rows: int
    fields: tuple[Field, ...]
    proposed: Columns | None
    toml: str
    notes: tuple[str, ...]
    interactions: dict[str, str]
    report: Report | None
    interaction_notes: tuple[str, ...] = ()  # those of the notes that are about interactions
    named: tuple[str, ...] = ()  # the source as it is named on the command line; empty for a frame
    flags: tuple[str, ...] = ()  # those that named roles
    written: str | None = None  # the file that holds the proposed mapping, if it was written
    explode: str | None = None  # the key of lists of objects, each of which is a row here
    ranking: str | None = None  # the algorithm for interactions that the next commands name
    ranking_report: Report | None = None  # of the checks as interactions

    def text(self) -> str:
        """Lines for a terminal: columns, the proposed mapping, open questions, and the next commands."""
        lines = [f"{self.source}: {self.rows:,} rows, {len(self.fields)} columns", ""]
        for column in self.fields:
            empty = f", {column.empty:,} empty" if column.empty else ""
            size, examples = f"{column.unique:>9,} different{empty}", ", ".join(column.examples)[:40]
            lines.append(f"{column.name[:28]:28} {column.kind:12} {size}  {examples}")
        if self.ranking_report is None:
            lines += ["", f"proposed mapping ({self.written or 'columns.toml'}):", "", self.toml, ""]
            lines += _wrapped(self.notes)
            if self.report is None:
                lines.append("the mapping is not complete: add the entries marked '#' above")
            else:
                lines += ["", *_summary("with this mapping", self.report)]
        else:  # the mapping would make episodes of users: its problems are not those of interactions
            lines += ["", *_wrapped(self.interaction_notes), "", *_summary("as interactions", self.ranking_report)]
        return "\n".join([*lines, "", *self._commands()])

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        fields = [vars(one) | {"examples": list(one.examples)} for one in self.fields]
        report = None if self.report is None else self.report.to_json()
        return {"source": self.source, "rows": self.rows, "fields": fields, "toml": self.toml,
                "notes": list(self.notes), "interactions": self.interactions, "report": report,
                "interactions_report": None if self.ranking_report is None else self.ranking_report.to_json(),
                }  # fmt: skip

    def as_report(self) -> Report:
        """The report of the checks with the proposed mapping; without a mapping, only the number of rows."""
        return Report(self.source, self.rows) if self.report is None else self.report

    def interaction_roles(self) -> dict[str, str] | None:
        """Arguments of `read_interactions` for a table of interactions; None without a time or with lists of events."""
        lists = {one.name for one in self.fields if one.kind == "list"}
        if (
            not {"user", "item", "time"} <= self.interactions.keys()
            or self.interactions["item"] in lists
            or self.explode
        ):
            return None
        # a rating is the reward of an event
        return {"reward" if role == "rating" else role: name for role, name in self.interactions.items()}

    def _commands(self) -> list[str]:
        if not self.named:
            return []
        source = shlex.join(self.named)
        roles = self.interaction_roles()
        if roles is not None:
            return ["next:", *self._interaction_commands(source, roles)]
        mapping = "columns.toml" if self.written is None else shlex.quote(self.written)
        again = shlex.join([*self.named, *self.flags])
        write = [f"  tidelog log inspect --data {again} --write {mapping}"] if self.written is None else []
        lines = ["next:", *write, f"  tidelog log check --data {source} --columns {mapping}"]
        if self.interactions:  # users as episodes would train, but learn nothing about items
            user, item = (shlex.quote(self.interactions[role]) for role in ("user", "item"))
            lists = any(one.name == self.interactions["item"] and one.kind == "list" for one in self.fields)
            if (lists or self.explode) and "time" in self.interactions:
                when = "" if self.explode else ", each at the time of its row (a basket of items)"
                column = json.dumps(self.explode or self.interactions["item"], ensure_ascii=False)
                inner = f", then unnest({column})" if self.explode else ""
                text = f"next: write one item per row{when}: split text into lists, explode({column}){inner} in Polars:"
                return _hint(text, "tidelog log inspect --data one_item_per_row.csv")
            lines += _hint(
                "lists of items need a time for every event, and one item per row; with your column of times for TIME:",
                f"tidelog log check --data {source} --user {user} --item {item} --time TIME",
            )
        elif not any(one.role == "action" for one in self.fields):
            lines += _hint(
                "name the column of decisions, and others that you know (--reward, --episode, ...), and the rest is "
                "proposed again:",
                f"tidelog log inspect --data {again} --action COLUMN",
            )
            lines += _hint(
                "where a row says who chose which item and no decision was made, name the columns instead (a visit "
                "can be the user):",
                f"tidelog log check --data {source} --user USER --item ITEM --time TIME",
            )
        elif self.report is not None and self.report.ok and self.proposed is not None:
            alone = all(one.unique == 1 for one in self.fields if one.role == "action")
            algorithm = "bc" if self.proposed.reward is None or alone else "iql"
            lines.append(f"  tidelog train {algorithm} --data {source} --columns {mapping}")
            use = "judge the policy on" if self.proposed.reward is not None else "see how well they are predicted"
            lines.append(f"it holds some episodes out, to {use} (--held-out)")
            if self.proposed.reward is None:
                name = "columns.toml" if self.written is None else self.written
                text = f"bc only imitates the log; for a better policy, set `reward` in {name} and train iql"
                lines += textwrap.wrap(text, _TERMINAL, break_long_words=False, break_on_hyphens=False)
        return lines

    def _interaction_commands(self, source: str, roles: dict[str, str]) -> list[str]:
        """Commands for interactions: training, or a copy without the rows of errors."""
        flags = " ".join(f"--{role} {shlex.quote(name)}" for role, name in roles.items())
        validate = f"  tidelog log check --data {source} {flags}"
        if self.ranking is None or self.ranking_report is None:
            return [validate]
        if self.ranking_report.ok:
            return [validate, f"  tidelog train {self.ranking} --data {source} {flags}"]
        if any(not problem.count for problem in self.ranking_report.errors):
            return [validate]
        return [
            f"{validate} --quarantine {BAD_ROWS} --keep {GOOD_ROWS}",
            f"  tidelog log inspect --data {GOOD_ROWS}",
            f"{BAD_ROWS} has the rows with errors, {GOOD_ROWS} all others",
        ]


ABSENT_WORDS = ["?", "\\N", "#N/A", "-"]
BAD_ROWS = "bad.csv"
GOOD_ROWS = "good.csv"


def _wrapped(notes: Sequence[str]) -> list[str]:
    return [line for note in notes for line in textwrap.wrap(f"- {note}", _TERMINAL, subsequent_indent="  ")]


def _hint(text: str, command: str) -> list[str]:
    """A sentence that fits any terminal, and the command after it, whole."""
    return [*textwrap.wrap(text, _TERMINAL, break_long_words=False, break_on_hyphens=False), f"  {command}"]


def _summary(title: str, report: Report) -> list[str]:
    """The number of problems of a report, its errors, and the names of its warnings."""
    errors = replace(report, problems=report.errors).lines[1:]
    named = [line for problem in report.warnings for line in problem.heading]
    return [f"{title}: {report.lines[0].removeprefix(f'{report.source}: ')}", *errors, *named]


def describe_table(source: Any, roles: Mapping[str, Any] | None = None) -> Description:
    """Infer the roles of a table's columns from names and values; LogError if the table cannot be read.

    The `roles` are taken as they are, and the others are inferred; ConfigError for a column that does not exist.
    """
    separator = unusual_separator(source)
    settings: dict[str, Any] = {} if separator is None else {"separator": separator}
    table = table_of(source, form=TextForm(separator=separator))
    if not table.rows:
        fix = "check the path and how the log was exported"
        raise unreadable(table.source, "column names, but no rows", "at least one decision", fix, "empty log")
    if all(map(_lacks_header, table.parts or (table,))):
        settings = {"header": False} | settings
    if has_decimal_commas(table, separator):
        settings["decimal"] = ","
    nested_rows = _lists_of_objects(table)
    decisions = _decision_roles(table)
    if len(nested_rows) == 1 and not decisions:
        settings["explode"] = nested_rows[0]
    if settings:
        table = table_of(source, form=TextForm(**settings))
    columns = [table.series(name) for name in table.data.collect_schema().names() if table.has(name)]
    _check_roles(roles or {}, [series.name for series in columns])
    own_roles = roles if not decisions else decisions | dict(roles or {})
    absent = _absent_words(columns)
    if absent:
        settings["na_values"] = absent
        columns = [
            series.set(series.str.strip_chars().is_in(absent).fill_null(False), None)
            if isinstance(series.dtype, pl.String)
            else series
            for series in columns
        ]
    measured = [field_of(series) for series in columns]
    formats = {series.name: date_formats(series) for series, one in zip(columns, measured, strict=True)
               if one.kind == "word"}  # fmt: skip
    measured = [replace(one, kind="time") if formats.get(one.name) else one for one in measured]

    proposal = infer_columns(measured, table, own_roles)
    proposal.mapping |= settings
    fitting = formats.get(proposal.mapping.get("time", ""), [])
    if len(fitting) == 1:
        proposal.mapping["date_format"] = fitting[0]
    elif fitting:  # no time, if the values fit two formats
        proposal.hints.append(f"time = {_value(proposal.mapping.pop('time'))}")
        proposal.hints.append(f"date_format = {_value(fitting[0])}   # or {_value(fitting[1])}: the times fit both")
    reading = {
        f"{', '.join(map(repr, absent))} is read as an empty cell: change `na_values` if wrong": absent,
        f"{separator!r} divides the fields of every line: change `separator` if wrong": separator,
        f"each object in the lists of '{settings.get('explode')}' is a row: change `explode` if wrong":
            "explode" in settings,
        _DECISIONS: decisions,
        "numbers have a comma before their fraction: drop `decimal` if they are lists": "decimal" in settings,
        f"not read, because files differ in them: {shorten(map(repr, table.uneven), _SHOWN)}": table.uneven,
        "the first line is a row like the others, not a header: columns have numbers as names": "header" in settings,
    }  # fmt: skip
    proposal.notes[:0] = [note for note, holds in reading.items() if holds]
    _leave_out_leaks(table, proposal)
    roles = proposal.used
    fields = tuple(replace(one, role=roles.get(one.name)) for one in measured)
    proposed = Columns.from_mapping(proposal.mapping) if {"observation", "action"} <= proposal.mapping.keys() else None
    report = None
    if proposed is not None:
        raw = from_table(table, proposed)
        report = examine(raw)
        proposal.hints += _randomised_hints(raw) if report.ok and not proposal.interactions else []
    source_name = str(Path(source)) if isinstance(source, str | Path) else table.source
    named = tuple(map(str, source)) if isinstance(source, list | tuple) else ()
    return Description(
        source_name,
        table.rows,
        fields,
        proposed,
        _toml(proposal),
        tuple(proposal.notes),
        proposal.interactions,
        report,
        tuple(proposal.interaction_notes),
        (source_name,) if isinstance(source, str | Path) else named,
        explode=settings.get("explode"),
    )


def _check_roles(roles: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise ConfigError for a column that the table does not have, or that has two roles."""
    named = Columns.from_mapping({"observation": "", "action": "", **roles}).used()
    columns = [(name, role) for role, names in named.items() if role in roles for name in names]
    for position, (name, role) in enumerate(columns):
        if name not in known:
            raise ConfigError(f"--{role} {name}: there is no such column", fix=nearest(name, known))
        twice = [other for before, other in columns[:position] if before == name]
        if twice:
            raise ConfigError(f"'{name}' is named for --{twice[0]} and --{role}", fix="name each column once")


def _leave_out_leaks(table: ParsedTable, proposal: Proposal) -> None:
    """Take columns out of the proposed observations that tell the reward, and note why.

    In episodes of several decisions they stay where nothing else is observed: being in a state may earn the reward.
    """
    if not {"observation", "action", "reward"} <= proposal.mapping.keys():
        return
    raw = from_table(table, Columns.from_mapping(proposal.mapping))
    found = {one.column: one.found for one in outcome_among_observations(raw)}
    observed = proposal.mapping["observation"]
    leaks = {name: found[name] for name in observed if name in found}
    if len(leaks) == len(observed) and len(raw.order.ids) < raw.rows:
        return
    for name in leaks:
        proposal.leave_out(name)
        proposal.notes.append(
            f"'{name}' is not proposed as an observation: {leaks[name]}; add it if it is known before the decision"
        )


def _randomised_hints(raw: RawLog) -> list[str]:
    """Comment lines that propose each action's share as its propensity, for a log that looks randomised; else none."""
    balance = raw_balance(raw, Declaration(by=())) if raw.propensity is None is raw.declared else None
    if balance is None or balance.p_value < BALANCED or action_count(raw) > MOST_BALANCED:
        return []
    action = action_name(raw)
    return [
        f'propensity = "{SHARES}"   # only if {action} was drawn at random: no observation predicts it '
        f"({balance.p_text});",
        f"  a log of this size would have shown a difference of {balance.points} in its share between two halves",
    ]


def _lists_of_objects(table: ParsedTable) -> list[str]:
    """The columns of JSON lines whose cells are lists of objects."""
    if not isinstance(table.data, pl.DataFrame) or not table.source.lower().endswith(LINE_ENDINGS):
        return []
    listed = [series for series in table.data.iter_columns() if series.dtype == pl.List(pl.String)]
    cells = {series.name: series.explode().drop_nulls() for series in listed if not series.has_nulls()}
    return [name for name, texts in cells.items() if len(texts) and texts.str.contains(r"^\{.*\}$").all()]


def _decision_roles(table: ParsedTable) -> dict[str, Any]:
    """The roles of the columns of Vowpal Wabbit's DSJSON, one decision a line; none for any other table.

    The index of the chosen action counts from 0, a cost is a negative reward, and `c` is the context.
    """
    if not {"_label_cost", "_label_probability"} <= table.names or not table.names & {"_labelIndex", "_label_Action"}:
        return {}
    context = [name for name in table.columns if name.startswith("c.") and field_of(table.series(name)).kind in _SINGLE]
    action = "_labelIndex" if table.has("_labelIndex") else "_label_Action"
    roles: dict[str, Any] = {"action": action, "reward": "_label_cost", "reward_weights": [-1.0],
                             "propensity": "_label_probability"}  # fmt: skip
    if table.has("p") and isinstance(table.series("p").dtype, pl.List) and action == "_labelIndex":
        roles["actions"] = int(table.series("p").list.len().fill_null(0).to_numpy().max(initial=1))
    if context:
        roles["observation"] = context
    if any(table.series(name).null_count() for name in context):
        roles["missing"] = "mean+flag"  # a feature is on a line, or it is not
    return roles


_SINGLE = ("flag", "whole number", "number", "word")
_DECISIONS = (
    "these are decisions in DSJSON: the action is the index of the chosen one, the reward is the cost times -1, the "
    "observation is the context; the features of the actions (`c._multi`) are not read"
)


def _lacks_header(table: ParsedTable) -> bool:
    """Whether the header of a text file looks like its rows: mostly numbers or words of the columns below."""
    frame = table.data
    if not isinstance(frame, pl.DataFrame) or not table.source.lower().endswith(TEXT_ENDINGS) or table.rows < 2:
        return False
    names = [name.partition("\x00")[0] for name in frame.columns]
    if names in ([str(position) for position in range(first, first + len(names))] for first in (0, 1)):
        return False  # numbers of columns, as some frames write them
    alike = 0
    for name, label in zip(frame.columns, names, strict=True):
        cells = frame[name].drop_nulls()
        number = pl.Series([label]).cast(pl.Float64, strict=False)[0] is not None
        numbers = number and not cells.cast(pl.Float64, strict=False).is_null().any()
        alike += 1 if numbers or bool((cells == label).any()) else 0
    return alike > len(names) / 2


def _absent_words(columns: Sequence[pl.Series]) -> list[str]:
    """The words for an empty cell that occur in columns of text with other values."""
    found = set[str]()
    for series in columns:
        if isinstance(series.dtype, pl.String):
            words = series.str.strip_chars().unique().drop_nulls()
            found |= set(words.filter(words.is_in(ABSENT_WORDS)).to_list()) if len(words) > 1 else set()
    return sorted(found)


def _toml(proposal: Proposal) -> str:
    """The mapping as TOML; suggested and missing entries are comments."""
    lines = [f"{role} = {_value(value)}" for role, value in proposal.mapping.items()]
    missing = (role for role in ("observation", "action") if role not in proposal.mapping)
    lines += [f"# {role} = ...   (no column fits)" for role in missing]
    lines += [f"# {hint}" for hint in proposal.hints]
    known = "reward" in proposal.mapping or any(hint.startswith("reward = ") for hint in proposal.hints)
    return "\n".join([*lines, *([] if known else [_NO_REWARD])])


_NO_REWARD = "# reward = ...   (without one, only behaviour cloning can learn)"


def _value(value: Any) -> str:
    """A TOML value; long lists are split over several lines."""
    line = toml_text(value)
    if len(line) <= _WIDTH - 20 or not isinstance(value, list | tuple):
        return line
    lines = [""]
    for word in (toml_text(word) + "," for word in value):
        full = len(lines[-1]) + len(word) > _WIDTH - 4
        lines = [*lines, word] if full else [*lines[:-1], f"{lines[-1]} {word}".strip()]
    return "[\n" + "\n".join(f"  {one}" for one in lines) + "\n]"


def _measures(values: dict[str, Any]) -> str:
    def short(value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(short, value))}]"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{name} {short(value)}" for name, value in values.items())


def _action_lines(actions: dict[str, Any]) -> list[str]:
    numbers = {name: values for name, values in actions.items() if name != "counts"}
    if "counts" not in actions:
        return [f"actions: {_measures(actions)}"]
    if numbers:  # of an action with parts
        return [f"continuous actions: {_measures(numbers)}", *_action_lines({"counts": actions["counts"]})]
    counts = list(actions["counts"].items())
    if all(isinstance(count, int) for _, count in counts):
        counts = sorted(counts, key=lambda item: -item[1])
    more = f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else ""
    return ["actions: " + ", ".join(f"{name}: {count}" for name, count in counts[:_SHOWN]) + more]


def _feature_lines(statistics: dict[str, Any]) -> list[str]:
    lines = [f"  {name}: {_measures(values)}" for name, values in statistics["features"].items()]
    for name, counts in statistics["categories"].items():
        common = sorted(counts.items(), key=lambda item: -item[1])[:5]
        lines.append(
            f"  {name}: {len(counts)} categories, most often "
            + ", ".join(f"{word[:14]} ({count})" for word, count in common)
        )
    return ["observations:", *lines]
