"""The roles of columns, proposed from their names, types and values."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from tidelog.data import parse
from tidelog.data.dependence import LEAST_REPEATS, LEAST_VALUES, kind_of, name_words
from tidelog.data.leaks import is_after
from tidelog.data.raw import LASTS, STARTS, TERMINATIONS, TRUNCATIONS
from tidelog.types import OTHER

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
        few, width = counts.filter(counts < FEW_ROWS), _width(listed) if kind == "list" else 0
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


def _width(series: pl.Series) -> int:
    """The number of numbers in every cell of a column of lists; 0 if cells differ, or hold other values."""
    if not isinstance(series.dtype, pl.List | pl.Array) or not series.dtype.inner.is_numeric():
        return 0
    lists = series.cast(pl.List(series.dtype.inner)).drop_nulls()
    lengths = lists.list.len().unique().to_list()
    return int(lengths[0]) if len(lengths) == 1 else 0


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
    "trial",
)  # fmt: skip
EPISODE = (
    *(f"{case}{number}" for case in _CASES for number in ("", "_id", "_no", "_nr", "_number", "_key", "_index")),
    "traj", "traj_id", "rollout", "mdp_id", "icustay_id", "hadm_id", "conversation_id", "ep", "eps", "ep_id",
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
             "success", "payoff", "utility"}  # fmt: skip
_DOUBTFUL = {"clicks", "purchases", "sales", "score", "gain", "gains", "loss", "losses", "margin", "spend", "rating",
             "response", "result", "results", "quality", "points", "yield", "output"}  # fmt: skip
_PAST = {"last", "past", "previous", "prev", "prior", "history", "historic", "since", "before", "ago", "avg", "average",
         "mean", "expected", "budget"}  # fmt: skip
ACTION = (
    "action", "actions", "a", "act", "action_id", "treatment", "intervention", "arm", "arm_id", "dose", "decision",
    "choice", "control", *ITEM, "coupon", "offer", "therapy", "medication", "drug", "variant", "banner",
)  # fmt: skip
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


def may_be_outcome(one: Field) -> bool:
    """Whether a column is named like what follows a decision, or else like what came before it."""
    return _has_word(one, _DOUBTFUL) and not is_outcome(one)


def _has_word(one: Field, known: set[str]) -> bool:
    words = set(name_words(one.name))
    return bool(words & known) and not words & _PAST and one.kind not in ("time", "empty", "list", "objects")


def names_interactions(named: Sequence[Field]) -> bool:
    """Whether a name says users, items or kinds of event."""
    return not {plain_name(one) for one in named}.isdisjoint((*USER, *ITEM, *EVENT))


def counts_rows(one: Field) -> bool:
    """Whether a column has every whole number from 0 or 1 to its largest."""
    return one.kind == "whole number" and one.low in (0.0, 1.0) and one.unique == (one.high or 0.0) - one.low + 1


def list_names(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "")


# A proposed mapping of a table, which each inference adds to.


@dataclass
class Proposal:
    """A proposed mapping with notes, and the roles of an interaction table if the table looks like one."""

    mapping: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)  # suggested lines of TOML
    interactions: dict[str, str] = field(default_factory=dict)
    interaction_notes: list[str] = field(default_factory=list)  # those of the notes that are about interactions
    actions: list[str] = field(default_factory=list)  # columns of which any may be the action
    own_roles: frozenset[str] = frozenset()  # roles that somebody named
    ends: list[str] = field(default_factory=list)  # flags that are 1 on last rows of episodes only, without a role

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


def own_columns(named: Iterable[Field], proposal: Proposal, role: str) -> list[Field]:
    """The columns that somebody named for a role, in that order."""
    by_name, names = {one.name: one for one in named}, proposal.mapping[role]
    return [by_name[name] for name in ([names] if isinstance(names, str) else names)]


def unused_columns(
    named: Iterable[Field], proposal: Proposal, belongs: Callable[[list[str], Field], bool]
) -> list[Field]:
    """The columns without a role to which something belongs, by the words of their names and their values."""
    used = roles_of(proposal.mapping)
    return [one for one in named if one.name not in used and belongs(name_words(one.name), one)]


# Infer actions with their masks, and rewards.

_LARGEST = 3e38
_WIDE = 10
_LIST = re.compile(r"\w\s*[,;|]\s*\w|^\[.*\]$|^\(.*\)$")  # names of allowed actions in one cell
_MASK = {"mask", "allowed", "available", "legal", "admissible", "feasible", "valid", "possible"}
_MOST_ACTIONS = 100  # different values of a column
_DEPENDS, _FREE = 0.5, 0.1  # shares of the variance of propensities
_FEW_WORDS = 20  # actions
_MOSTLY = 0.5  # of the rows


def assign_masks(named: Sequence[Field], proposal: Proposal) -> None:
    """Assign the allowed actions of a row, and of the next one."""

    def allowed(words: list[str], one: Field) -> bool:
        named = one.kind == "word" and all(_LIST.search(example) for example in one.examples)
        return bool(_MASK & set(words)) and (one.kind in ("flag", "list") or named)

    masks = unused_columns(named, proposal, allowed)
    later = [one for one in masks if NEXT & set(name_words(one.name))]
    now = [one for one in masks if one not in later]
    for role, several in (("action_mask", now), ("next_action_mask", later if now else [])):
        if several:
            proposal.mapping[role] = several[0].name if len(several) == 1 else [one.name for one in several]


def assign_actions(named: Sequence[Field], weighed: Callable[[str, str], float], proposal: Proposal) -> None:
    """Assign the action by its name, else by the probabilities of the logged actions."""

    def acted(words: list[str], one: Field) -> bool:
        numbered = len(words) == 2 and words[0] in ("action", "actions", "act", "control", "a") and words[1].isdigit()
        is_set = not {"setpoint", "setpoints"}.isdisjoint(words) or "_set_point" in f"_{'_'.join(words)}"
        return (numbered or is_set) and one.kind in NUMERIC

    if "action" in proposal.own_roles:
        _declare(own_columns(named, proposal, "action"), proposal)
        return
    several = unused_columns(named, proposal, acted)
    called = [one for one in unused_columns(named, proposal, lambda words, one: "_".join(words) in ACTION)
              if one.kind in ("word", *NUMERIC) or (one.width and plain_name(one) not in ITEM)]  # fmt: skip
    called.sort(key=lambda one: ACTION.index(plain_name(one)))
    if called:
        proposal.mapping["action"] = called[0].name
        _declare(called[:1], proposal)
    elif several:
        proposal.mapping["action"] = [one.name for one in several]
        _declare(several, proposal)
    elif isinstance(proposal.mapping.get("propensity"), str):
        _by_propensity(named, weighed, proposal.mapping["propensity"], proposal)


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


def _by_propensity(
    named: Sequence[Field], weighed: Callable[[str, str], float], propensity: str, proposal: Proposal
) -> None:
    """Assign the action to the one column whose values are as frequent as the probabilities of the actions say.

    Of several, the one on which the probabilities depend.
    """
    kinds = ("word", "flag", "whole number")
    left = [one for one in unused_columns(named, proposal, lambda words, one: one.kind in kinds)
            if not one.empty and 2 <= one.unique <= _MOST_ACTIONS]  # fmt: skip
    shares = {one.name: weighed(one.name, propensity) for one in left if not is_outcome(one)}
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
    amounts = one.kind == "whole number" and (low < 0 or high + 1 > max(_WIDE * one.unique, 100))
    amounts = amounts and max(-low, high) < _LARGEST
    if one.kind in ("word", "list") or one.words:
        return
    if one.kind == "number" or amounts:
        limits = [low, high]
        (proposal.mapping if amounts else {})["bounds"] = limits
        proposal.hints += [] if amounts else [f"bounds = {limits}   # the logged range; change it if more is possible"]
        proposal.notes.append(f"'{one.name}' is read as an amount from {low:g} to {high:g}: change `bounds` if wrong")
    elif low == 1 < high and _number_of_flags(proposal) in (None, high):
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


def _number_of_flags(proposal: Proposal) -> int | None:
    """The number of columns of the action mask; None without one, 0 for one column of lists."""
    mask = proposal.mapping.get("action_mask")
    return mask if mask is None else len(mask) if isinstance(mask, list) else 0


def assign_by_values(
    named: Sequence[Field],
    rows: int,
    nested: Callable[[str, str], bool],
    ends: Callable[[str, str | None, str], float],
    proposal: Proposal,
) -> None:
    """Propose action and reward of a table with episodes by values alone, where no name says the action.

    The action is the one column of words that changes within
    episodes, or else the one amount that is mostly 0, such as a dose. The reward is 1 on some last rows alone. Tables
    with users, items or kinds of event may be interactions, and get no proposal.
    """
    episode = proposal.mapping.get("episode")
    if episode is None or names_interactions(named):
        return
    used = roles_of(proposal.mapping)
    left = [one for one in named if one.name not in used and not one.empty and not is_outcome(one)]
    changing = [one for one in left if one.unique > 1 and not nested(episode, one.name)]
    step = proposal.mapping.get("step")
    if "reward" not in proposal.mapping:
        final = [one for one in changing if one.kind == "flag" and ends(episode, step, one.name)]
        if len(final) == 1:
            proposal.mapping["reward"] = final[0].name
            note = "is 1 on last rows of episodes only and is read as the reward: change `reward` if wrong"
            proposal.notes.append(f"'{final[0].name}' {note}")
            changing.remove(final[0])
    if "action" in proposal.own_roles:
        return
    changing = [one for one in changing if one.name not in proposal.ends]  # outcomes
    words = [one for one in changing if one.kind == "word" and one.unique <= _FEW_WORDS]
    amounts = [one for one in changing if one.kind in ("whole number", "number") and one.unique > 2
               and (one.low or 0.0) >= 0 and one.zeros >= _MOSTLY * rows]  # fmt: skip
    if len(words) == 1:
        proposal.mapping["action"] = words[0].name
        proposal.notes.append(
            f"'{words[0].name}' is read as the action, because no other words change within episodes: change `action` "
            "if wrong"
        )
    elif len(amounts) == 1 and not words:
        one = amounts[0]
        proposal.mapping |= {"action": one.name, "bounds": [0.0, one.high]}
        proposal.notes.append(
            f"'{one.name}' is 0 in {one.zeros / rows:.0%} of rows and is read as the action, a dose from 0 to "
            f"{one.high:g}: change `action` or `bounds` if wrong; for a few levels instead of an amount, add a column "
            f"of words to the table, such as none, up to {(one.high or 0.0) / 2:g}, more"
        )
    elif words or amounts:
        several = [one.name for one in (words or amounts)]
        proposal.hints.append(f"action = {json.dumps(several[0], ensure_ascii=False)}   # or {list_names(several[1:])}")
        proposal.actions = several
        note = (
            "any may be the action; name it in `action`, and the others in `observation` if they were known before it"
        )
        proposal.notes.append(f"{list_names(several)}: {note}")


def suggest_rewards(outcomes: Sequence[Field], proposal: Proposal) -> None:
    """Suggest the outcomes as rewards; numbers for the words of one, and weights of several."""
    words = next((one for one in outcomes if one.kind == "word"), None)
    rewards = [one.name for one in outcomes if one.kind != "word" or one is words]
    proposal.hints.append(f"reward = {json.dumps(rewards if len(rewards) > 1 else rewards[0], ensure_ascii=False)}")
    if len(rewards) > 1:
        ones = ", ".join(["1.0"] * len(rewards))
        proposal.hints.append(f"reward_weights = [{ones}]   # with your numbers, below 0 for costs")
    if words is not None:
        several = [*sorted(words.examples), *[""] * bool(words.empty)]
        listed = ", ".join(f"{json.dumps(word, ensure_ascii=False)} = 0.0" for word in several)
        more = ", ..." if words.unique > len(words.examples) else ""
        proposal.hints.append(f"reward_values = {{ {listed}{more} }}   # with your numbers")


# Infer episodes, steps, ends and clusters, and the other roles of one column each.

_FEWEST_EPISODES = 10
_MOST_COPIES = 0.02  # share of rows; more rows with the same step are no copies
_MOST_ENDS = 0.5  # share of episodes
_FEWEST_ENDS = 5  # last rows with a flag that no other row has, from which on it is no chance


def assign_single_roles(
    named: Sequence[Field],
    rows: int,
    ends: Callable[[str, str | None, str], float],
    repeats: Callable[[str, str], int],
    counts: Callable[[str, str], bool],
    proposal: Proposal,
) -> None:
    """Assign the roles of one column each."""
    for role, known in SINGLE.items():
        if role in proposal.own_roles:
            continue
        called = [one for one in named if plain_name(one) in known]
        called.sort(key=lambda one: known.index(plain_name(one)))
        fitting = [one for one in called if _fits(role, one, rows) and one.name not in roles_of(proposal.mapping)]
        if fitting:
            proposal.mapping[role] = fitting[0].name
        proposal.notes += [_misfit(role, one) for one in called if not _fits(role, one, rows)]
    times = [one for one in named if one.kind == "time"]
    if "time" not in proposal.mapping and len(times) == 1:
        proposal.mapping["time"] = times[0].name
    _episode_by_time(named, rows, repeats, proposal)
    _episode_by_count(named, rows, counts, proposal)
    _by_content(named, ends, proposal)
    if "episode" not in proposal.mapping:
        one_step = "no column marks which rows belong together: every row is an episode of one step"
        recording = "time" in proposal.mapping and "propensity" not in proposal.mapping
        recording = recording and not names_interactions(named)
        flags = [f"'{one.name}'" for one in named if one.kind == "flag" and one.unique == 2 and (
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


def _misfit(role: str, one: Field) -> str:
    if role == "episode":
        return f"'{one.name}' differs in every row or is not an identifier: it cannot mark which rows belong together"
    held = "has no value" if one.kind == "empty" else f"holds {one.kind.removesuffix('s')}s"
    return f"'{one.name}' has the name of a {role}, but {held}"


def _episode_by_time(named: Sequence[Field], rows: int, repeats: Callable[[str, str], int], proposal: Proposal) -> None:
    """Assign the one column with at most one row for each of its values and times, where the times of rows repeat."""
    when = proposal.mapping.get("time")  # a step by its name may be the number of an episode
    times = {one.name: one.unique for one in named}.get(str(when), rows)
    if "episode" in proposal.mapping or 2 * times > rows:
        return
    left = [
        one.name
        for one in named
        if one.name not in roles_of(proposal.mapping)
        and one.kind in ("whole number", "word")
        and not one.empty
        and 2 * one.unique <= rows
        and plain_name(one) not in ACTION
    ]
    found = [name for name in left if not repeats(name, str(when))]
    if len(found) == 1:
        proposal.mapping["episode"] = found[0]
        proposal.notes.append(
            f"rows with the same '{found[0]}' form an episode, because no '{when}' repeats among them: change "
            "`episode` if wrong"
        )


def _episode_by_count(
    named: Sequence[Field], rows: int, counts: Callable[[str, str], bool], proposal: Proposal
) -> None:
    """Assign the one column within whose values another column counts the rows from 0 or 1, with few left out."""
    if "episode" in proposal.mapping or names_interactions(named):
        return
    used = roles_of(proposal.mapping)
    whole = [one for one in named if not one.empty and one.kind in ("flag", "whole number") and one.unique > 1
             and used.get(one.name, "step") == "step"]  # fmt: skip
    steps = [one for one in whole if one.kind == "flag" or counts_rows(one)]
    keys = [one for one in named if one.kind in ("whole number", "word") and not one.empty and one.name not in used]
    pairs = [
        (key, step)
        for key in keys
        for step in steps
        if key is not step and key.unique >= _FEWEST_EPISODES and 2 * key.unique <= rows
        and step.unique <= key.unique <= 2 * rows / step.unique and counts(key.name, step.name)
    ]  # fmt: skip
    if len(pairs) == 1:
        key, step = (one.name for one in pairs[0])
        proposal.mapping |= {"episode": key, "step": step}
        proposal.notes.append(f"'{key}' is read as the episode, because '{step}' counts its rows: change `episode` and "
                              "`step` if wrong")  # fmt: skip


def assign_step(
    named: Sequence[Field],
    rows: int,
    repeats: Callable[[str, str], int],
    counts: Callable[[str, str], bool],
    proposal: Proposal,
) -> None:
    """Drop a step that does not count the rows of an episode; without step and time, assign the column that does."""
    step, episode = proposal.mapping.get("step"), proposal.mapping.get("episode")
    if "step" in proposal.own_roles:
        return
    if step is None:
        time = proposal.mapping.get("time")
        if episode is None or (time is not None and not repeats(episode, time)):
            return
        if "_".join(name_words(episode)) in USER:  # events of users need a time; a count of rows is none
            return
        left = [one for one in named if one.kind == "whole number" and one.name not in roles_of(proposal.mapping)]
        left = [one for one in left if not one.empty and not is_outcome(one)]
        found = [one.name for one in left if counts(episode, one.name)]
        if len(found) == 1:
            proposal.mapping["step"] = found[0]
            proposal.notes.append(
                f"'{found[0]}' counts the rows of each '{episode}' and is read as the step: change `step` if wrong"
            )
        return
    if episode is None:
        del proposal.mapping["step"]
        proposal.notes.append(f"'{step}' is not used as step: no column says which rows form an episode")
        return
    count = repeats(episode, step)
    if not count:
        return
    those = f"{count:,} {'row repeats' if count == 1 else 'rows repeat'} a step of their '{episode}'"
    if count <= _MOST_COPIES * rows:
        proposal.notes.append(f"{those}: remove copied rows, or change `step` if it is no count of rows")
        return
    del proposal.mapping["step"]
    proposal.notes.append(f"'{step}' is not used as step: {those}")


def _by_content(named: Sequence[Field], ends: Callable[[str, str | None, str], float], proposal: Proposal) -> None:
    """Assign the end of episodes and the propensity to the one column whose values show it, whatever its exact name.

    A flag of the last rows of some episodes only may be a reward at their end: it needs a reward elsewhere. An amount
    that is 0 except on such rows is no end.
    """
    left = [one for one in named if one.name not in roles_of(proposal.mapping) and not one.empty]
    episode, step = proposal.mapping.get("episode"), proposal.mapping.get("step")
    least = _MOST_ENDS if "reward" in proposal.mapping else 1.0
    flags = [one for one in left if one.kind == "flag" and one.unique == 2]
    shares = {one.name: ends(episode, step, one.name) for one in flags} if episode is not None else {}
    last = [name for name, share in shares.items() if share >= least]
    amounts = (
        [one for one in left if one.kind in ("whole number", "number") and one.zeros] if episode is not None else []
    )
    shares |= {one.name: ends(str(episode), step, one.name) for one in amounts}
    names_of_columns = {*map(plain_name, named), *ACTION}
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
            proposal.mapping[role] = names[0]
            proposal.notes.append(f"'{names[0]}' {why}: change `{role}` if wrong")
    episodes = {one.name: one.unique for one in named}.get(str(episode), 0)
    proposal.ends = [
        name
        for name, share in shares.items()
        if name != proposal.mapping.get("terminated") and share * episodes >= _FEWEST_ENDS
    ]


def assign_cluster(named: Sequence[Field], rows: int, nested: Callable[[str, str], bool], proposal: Proposal) -> None:
    """Assign the first unused column with the name of a person, session or store that repeats over episodes."""
    if "cluster" in proposal.own_roles:
        return
    used = roles_of(proposal.mapping)
    episodes = {one.name: one.unique for one in named}.get(proposal.mapping.get("episode", ""), rows)
    called = [
        one
        for one in named
        if one.name not in used
        and kind_of(one.name) == "group"
        and one.kind in ("whole number", "word")
        and not one.empty
        and LEAST_VALUES <= one.unique <= episodes / LEAST_REPEATS
        and ("episode" not in proposal.mapping or nested(proposal.mapping["episode"], one.name))
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


def detect_interactions(named: Sequence[Field], proposal: Proposal) -> None:
    """Detect tables of interactions (users and items, without propensities and masks)."""
    if "propensity" in proposal.mapping or "action_mask" in proposal.mapping:
        return
    kinds = ("whole number", "word", "flag")
    users = [one for one in named if plain_name(one) in USER and one.kind in kinds]
    items = [one for one in named if plain_name(one) in ITEM]
    if not users and items and "time" in proposal.mapping and "reward" not in proposal.mapping:
        users = [one for one in named if plain_name(one) in SESSION and one.kind in kinds]
    guessed = _items_by_content(named, proposal) if users and not items else []
    items = items or guessed
    if not (users and items):
        return
    roles = {"user": users[0].name, "item": items[0].name}
    sessions = [one.name for one in named if plain_name(one) in SESSION]
    roles |= {"session": sessions[0]} if sessions and sessions[0] != users[0].name and items[0].kind != "list" else {}
    dated = [one.name for one in named if one.kind == "time"]
    time = proposal.mapping.get("time") or (dated[0] if dated else proposal.mapping.get("step"))
    roles |= {"time": time} if time else {}
    unfit = [(one, _unfit_reward(one)) for one in named if plain_name(one) in RATING]
    for role, called in (
        ("rating", [one.name for one, reason in unfit if reason is None]),
        (
            "event",
            [one.name for kinds_of_event in (EVENT, ("type",)) for one in named if plain_name(one) in kinds_of_event],
        ),
    ):
        roles |= dict.fromkeys([role], called[0]) if called else {}
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
    about += _rewards_of_events(named, roles)
    if "rating" not in roles:
        about += [f"'{one.name}' is not proposed as reward: {reason}" for one, reason in unfit if reason]
    proposal.notes[:0] = about


def _items_by_content(named: Sequence[Field], proposal: Proposal) -> list[Field]:
    """Return the one column whose values repeat, and are too many for a feature, in sessions or events of users.

    Empty if there are several such columns, an action, or no column of sessions or of kinds of event.
    """
    names = {plain_name(one) for one in named}
    if "action" in proposal.mapping or names.isdisjoint((*SESSION, *EVENT)):
        return []
    other = (*EPISODE, *USER, *EVENT, *RATING)
    used = {proposal.mapping.get(role) for role in ("time", "step", "reward")}
    fitting = [one for one in named if one.kind in ("whole number", "word") and not one.empty
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


def _rewards_of_events(named: Sequence[Field], roles: dict[str, str]) -> list[str]:
    """Return a note on how to set the reward of each kind of event, where no column holds rewards."""
    kinds = [one for one in named if one.name == roles.get("event")]
    if not kinds or "rating" in roles:
        return []
    more = " ..." if kinds[0].unique > len(kinds[0].examples) else ""
    pairs = " ".join(shlex.quote(f"{kind}=1") for kind in kinds[0].examples)
    return [f"every event has reward 1; `--reward {pairs}{more}`, with your numbers, sets the reward of each kind of "
            f"'{kinds[0].name}'"]  # fmt: skip


# Infer observations and next observations.


def assign_observations(named: Sequence[Field], rows: int, proposal: Proposal) -> None:
    """Assign the columns named as observations, else all unused columns except times and identifiers."""
    outcomes = [one for one in named if is_outcome(one) and one.name not in roles_of(proposal.mapping)]
    last = [one for one in named if one.name in proposal.ends and one not in outcomes]
    readable = [
        one
        for one in named
        if (one.kind not in ("time", "empty", "list", "objects") or (one.width and plain_name(one) not in ITEM))
        and one not in outcomes
        and one not in last
        and not is_after(one.name)
        and one.name not in proposal.actions
        and not (one.consecutive and is_identity(one, rows))  # row numbers
    ]
    if "reward" not in proposal.mapping and (outcomes or last):
        suggest_rewards(outcomes or last, proposal)
    for one in last:
        if "terminated" not in proposal.mapping and one.kind == "flag":
            proposal.hints.append(f"terminated = {json.dumps(one.name, ensure_ascii=False)}")
        values = "is 1 on last rows of episodes only" if one.kind == "flag" else "is 0 except on last rows of episodes"
        what = "an end or an outcome" if one.kind == "flag" else "an outcome"
        proposal.notes.append(f"'{one.name}' {values}: {what}, which is not known before the decision")
    if outcomes:
        named_outcomes = list_names([f"'{one.name}'" for one in outcomes])
        proposal.notes.append(f"{named_outcomes}: named like an outcome, which is not known before the decision")
    later = unused_columns(
        readable, proposal, lambda words, one: bool(NEXT & {*words[:1], *words[-1:]}) and len(words) > 1
    )
    now = [one for one in unused_columns(readable, proposal, lambda words, one: is_observed(words)) if one not in later]
    if not now:
        left = unused_columns(readable, proposal, lambda words, one: not is_identity(one, rows) and not is_person(one))
        now = [one for one in left if one not in later]
    if "observation" in proposal.own_roles:
        now = own_columns(named, proposal, "observation")
    if now:
        proposal.mapping["observation"] = [one.name for one in now]
        coded = [
            one.name
            for one in now
            if one.kind == "word"
            or (one.kind == "whole number" and last_word(one.name) in CODED and (one.low or 0.0) >= 0)
        ]
        proposal.mapping |= {"categorical": coded} if coded else {}
        _join_rare_labels([one for one in now if one.kind == "word"], proposal)
        doubtful = [f"'{one.name}'" for one in now if may_be_outcome(one)]
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
        _following(now, later, proposal)
    _ask_about_endings(named, now, proposal)


def _join_rare_labels(words: Sequence[Field], proposal: Proposal) -> None:
    """Propose one label for rare ones, where they have enough rows together and others are frequent."""
    joined = [one for one in words if one.rare_rows >= FEW_ROWS and one.rare < one.unique]
    if joined:
        proposal.mapping["other"] = {one.name: FEW_ROWS for one in joined}
        listed = list_names([f"{one.rare:,} of {one.unique:,} labels of '{one.name}' ({one.rare_rows:,} rows)"
                             for one in joined])  # fmt: skip
        proposal.notes.append(
            f"{listed} are in fewer than {FEW_ROWS} rows each: they are learnt as one, '{OTHER}', as which labels that "
            "the log does not have count, too; drop `other` to keep them apart"
        )


def _ask_about_endings(named: Sequence[Field], now: Sequence[Field], proposal: Proposal) -> None:
    """Note columns that are named as from after the decision, and those whose names end as the reward's does."""
    roles = roles_of(proposal.mapping)
    after = [f"'{one.name}'" for one in named if is_after(one.name) and one.name not in roles]
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


def _following(now: Sequence[Field], later: Sequence[Field], proposal: Proposal) -> None:
    next_columns = {"_".join(word for word in name_words(one.name) if word not in NEXT): one.name for one in later}
    partners = [next_columns.get(plain_name(one)) for one in now]
    if all(partners):
        proposal.mapping["next_observation"] = partners
    elif later:
        missing = [one.name for one, partner in zip(now, partners, strict=True) if not partner]
        proposal.notes.append(f"next observations are not used: {list_names(missing)} has no next column")


# Infer the roles of the columns of a table from their names and values.

_RULES = 4  # columns that each have a rule of their own


def infer_columns(
    fields: Sequence[Field],
    rows: int,
    nested: Callable[[str, str], bool] = lambda inner, outer: True,
    ends: Callable[[str, str | None, str], float] = lambda episode, step, column: 0.0,
    repeats: Callable[[str, str], int] = lambda episode, step: 0,
    weighed: Callable[[str, str], float] = lambda action, propensity: -1.0,
    counts: Callable[[str, str], bool] = lambda episode, column: False,
    own_roles: Mapping[str, Any] | None = None,
) -> Proposal:
    """Infer a mapping from names and values; the notes list unused, undeclared and unclear columns.

    `nested(episode, column)` says whether a column has one value in each episode. `ends(episode, step, flag)` is the
    share of episodes whose last row has a flag, or a number other than 0, that no other row has; 0 for other columns.
    `repeats(episode, step)` is the number of rows that repeat a step of their episode. `weighed(action, propensity)` is
    the share of the variance of propensities that a column explains; below 0 where its values, weighted by 1 /
    propensity, are not as frequent as those of logged actions. `counts(episode, column)` says whether a column counts
    the rows of every episode. `own_roles` are roles that somebody named: they are kept, and the others are inferred.
    """
    proposal = Proposal(dict(own_roles or {}), own_roles=frozenset(own_roles or {}))
    kept = roles_of(proposal.mapping)
    named = [one for one in fields if one.name and (one.name in kept or not numbers_rows(one, rows))]
    assign_single_roles(named, rows, ends, repeats, counts, proposal)
    assign_step(named, rows, repeats, counts, proposal)
    assign_cluster(named, rows, nested, proposal)
    assign_masks(named, proposal)
    assign_actions(named, weighed, proposal)
    if "action" not in proposal.mapping or "action" in proposal.own_roles:
        assign_by_values(named, rows, nested, ends, proposal)
    assign_observations(named, rows, proposal)
    if not proposal.own_roles:  # roles of a mapping were named
        detect_interactions(named, proposal)
    _note_the_rest([one for one in fields if one.name], rows, proposal)
    return proposal


def _note_the_rest(named: Sequence[Field], rows: int, proposal: Proposal) -> None:
    used = roles_of(proposal.mapping)
    elsewhere = {*proposal.interactions.values(), *proposal.actions}
    unused = [one for one in named if one.name not in used and one.name not in elsewhere]
    if unused:
        listed = list_names([f"{one.name}{_why_unused(one, rows)}" for one in unused])
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
    if any(used[one.name] == "reward" for one in empty):
        proposal.hints.append('reward_values = { "" = 0.0 }   # if rows without a reward earn nothing')
    needed = [one.name for one in empty if used[one.name] in ("action", "reward", "propensity")]
    if needed:
        proposal.hints.append(
            f"drop_rows_without = {json.dumps(needed, ensure_ascii=False)}   # if they are missing by chance"
        )
    observed = [one for one in empty if used[one.name] == "observation"]
    if observed:
        rules = ", ".join(f'{json.dumps(one.name, ensure_ascii=False)} = "mean+flag"' for one in observed[:_RULES])
        each = f"missing = {{ {rules} }}" if len(observed) <= _RULES else 'missing = "mean+flag"'
        proposal.hints += [] if "missing" in proposal.mapping else [f'{each}   # or "forward": the last known value']
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
