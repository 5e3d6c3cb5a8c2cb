"""The checks of a log: errors, which make it unusable, warnings and notes; one function each, all of them run."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tidelog._text import count_of
from tidelog.data.columns import (
    AT_RANDOM,
    SHARES_BY,
    Declaration,
    DeclarationError,
    check_strata,
    probabilities_of,
    strata_of,
)
from tidelog.data.dependence import (
    BEFORE,
    EVERYTHING,
    MOST_COLUMNS,
    STATED,
    TOTALS,
    Balance,
    DecisionRewards,
    ObservedColumn,
    action_columns,
    as_number,
    balance_of,
    candidates,
    day_labels,
    find_copies,
    fit_of,
    is_after,
    labels_of,
    leak_of,
    unknown_predictors,
    unknown_sentence,
)
from tidelog.data.raw import CheckFunction, Column, Finding, RawLog, Values, check, side_by_side
from tidelog.types import OTHER

_LARGEST = float(np.finfo(np.float32).max)
_AT_ONCE = 1_000_000  # numbers compared at once
_PLAUSIBLE = 100_000
_PER_CODE = 100
CODES_FIX = "correct the code, or write the codes as text, which are numbered"


def for_each_part(run: CheckFunction) -> CheckFunction:
    """Run a check on each part of an action."""

    @wraps(run)
    def parts(raw: RawLog) -> Iterable[Finding]:
        return [finding for part in raw.action_parts() for finding in run(part)]

    return parts


def in_rows(name: str | None, at: Any, found: str, expected: str, fix: str) -> Iterable[Finding]:
    """A finding about rows of a column, marked [N] or listed; none without any."""
    rows = np.flatnonzero(at) if at.dtype == bool else at
    return [Finding(name, rows, found, expected, fix)] if len(rows) else []


@check("empty log", "error")
def empty_log(raw: RawLog) -> Iterable[Finding]:
    """There is no row."""
    if raw.rows == 0:
        yield Finding(None, None, "no rows", "at least one decision", "check the path and how the log was exported")


@check("wrong length", "error")
def wrong_length(raw: RawLog) -> Iterable[Finding]:
    """An array, a mask or a list of bounds does not fit the log's length."""
    if raw.action is None:
        return
    for part in raw.action_parts():
        action: Any = part.action
        width, declared = action.values.shape[1], len(action.sizes or ()) or len((action.bounds or ((),))[0])
        if declared and declared != width:
            found = f"{width} action columns, but {declared} were declared"
            name = action_name(part) if action.columns[0].name.startswith("action/") else "action"
            yield Finding(name, None, found, "as many as declared", "correct actions= or bounds=")
    for name, mask in _masks(raw):
        allowed = mask.values.shape[1] if mask.values.ndim == 2 else 1
        count = action_count(raw) if raw.action.kind == "discrete" else allowed
        if raw.action.kind != "discrete" or allowed != count:
            of = f" of {count}" if count != allowed else ""
            found = f"{allowed} flags per row for a {raw.action.kind} action{of}"
            yield Finding(name, None, found, "one flag for each discrete action", "give one flag per action or no mask")


@check("changing shapes", "error")
def changing_shapes(raw: RawLog) -> Iterable[Finding]:
    """Rows of one column have different shapes, or too many axes."""
    for column in (*raw.columns(), *raw.next_columns):
        fix = "give every row the same shape"
        yield from in_rows(column.name, column.odd, "lists of another length", column.expects, fix)
    for name, feature in raw.next_observation.items():
        for now, then in zip(raw.observation[name].columns, feature.columns, strict=True):
            if now.values.shape != then.values.shape and not len(then.odd):
                found = f"rows of shape {list(then.values.shape[1:])}"
                expected = f"rows of shape {list(now.values.shape[1:])}, as in '{now.name}'"
                yield Finding(then.name, None, found, expected, "give both the same shape")


@check("missing value", "error")
def missing_value(raw: RawLog) -> Iterable[Finding]:
    """A cell is empty, null, NA or none."""
    advice = "fill the cells, or remove these rows before reading"
    for column in raw.columns():
        is_reward = any(column is one for one in raw.reward or ())
        if is_reward and raw.missing_reward is not None and len(column.missing) < raw.rows:
            continue
        if len(column.missing) and column is not raw.next_action_mask and column is not raw.elapsed:
            drop = f"drop_rows_without = {json.dumps([column.name], ensure_ascii=False)} in the mapping"
            fix = f"fill the cells, or leave these rows out: {drop}" if raw.from_table else advice
            if is_reward:
                fix = (
                    'set missing_reward = 0 in the mapping if they earned nothing, "unknown" if what they earned was '
                    'not recorded; add reward_horizon = "30d" if rewards come up to 30 days after the decision; '
                    "to clone the decisions only (algorithm bc), leave reward out"
                )
            if any(column is one for one in raw.observed):
                name = json.dumps(column.name, ensure_ascii=False)
                fix = f'set missing = {{ {name} = "mean+flag" }} in the mapping, or {advice}'
            yield Finding(column.name, column.missing, "empty cells", "a value in every row", fix)
    for column in raw.next_columns:
        partial = column.missing[raw.followed[column.missing]]
        found, expected = "empty cells in a partly filled next observation", "a complete next observation, or none"
        yield from in_rows(column.name, partial, found, expected, advice)


@check("non-numeric text", "error")
def non_numeric_text(raw: RawLog) -> Iterable[Finding]:
    """A column of numbers, flags or times holds text."""
    acted = raw.action.columns if raw.action is not None else ()
    for column in (*raw.columns(), *raw.next_columns):
        if len(column.unreadable):
            found = ", ".join(map(repr, dict.fromkeys(column.texts[:3])))
            advice = "correct the cells"
            if column is raw.time:
                advice = 'set the format of the times in the mapping, as in date_format = "%d.%m.%Y %H:%M"'
            elif column is raw.step:
                advice = "correct the cells; a column of dates is the `time`, not the `step`"
            elif any(column is one for one in acted):
                advice = "correct the cells; if they are codes, some of them numbers, name it in `categorical`"
            elif any(column is one for one in raw.reward or ()):
                advice = "correct the cells; give words a reward in `reward_values`, as in { good = 1.0, bad = 0.0 }"
            elif not any(column is one for one in (raw.propensity, raw.weight, raw.elapsed)):
                advice = "correct the cells; if the column holds categories, name it in `categorical`"
            yield Finding(column.name, column.unreadable, found, column.expects, advice)


@check("NaN or infinity", "error")
def not_finite(raw: RawLog) -> Iterable[Finding]:
    """A number is NaN, infinite, or too large for 32 bits."""
    for column in (*raw.columns(), *raw.next_columns):
        if column.values.dtype.kind not in "fM":
            continue
        values = column.values
        if values.dtype.kind == "M":
            finite = ~np.isnat(values)
        else:  # every finite number of 16 bits is one of 32 bits
            finite = np.isfinite(values) if values.itemsize == 2 else np.abs(values) <= _LARGEST
        bad = ~finite.reshape(raw.rows, -1).all(axis=1) & column.usable
        found, fix = first_values(column.values[bad][~finite[bad]]), "correct the values or their export"
        yield from in_rows(column.name, bad, found, "finite numbers", fix)


@check("flag neither true nor false", "error")
def bad_flag(raw: RawLog) -> Iterable[Finding]:
    """A flag of an end or of a mask is a number other than 0 and 1."""
    for column in (raw.terminated, raw.truncated, raw.action_mask, raw.next_action_mask):
        if column is None:
            continue
        values = column.values.reshape(len(column.values), -1)
        bad = ~np.isin(values, (0, 1)).all(axis=1) & np.isfinite(values.astype(np.float64)).all(axis=1) & column.usable
        odd = values[bad][~np.isin(values[bad], (0, 1))]
        yield from in_rows(column.name, bad, first_values(odd), "0 or 1", "give flags, not counts")


@check("code out of range", "error")
def code_out_of_range(raw: RawLog) -> Iterable[Finding]:
    """A categorical code is negative, or not below the declared number of categories."""
    for feature in (*raw.observation.values(), *raw.next_observation.values()):
        for column in feature.columns if feature.kind == "codes" else ():
            values = column.values.reshape(len(column.values), -1)
            top = np.asarray(feature.sizes or (np.iinfo(np.int32).max,))
            bad = ((values < 0) | (values >= top)).any(axis=1)
            found = first_values(values[bad].min(axis=1))
            yield from in_rows(column.name, bad, found, "codes from 0", "recode, or categorical=False")


@check("sparse codes", "error")
def sparse_codes(raw: RawLog) -> Iterable[Finding]:
    """Codes without a declared number are far apart, as after a typing error: every code below the largest counts."""
    for action in [part.action for part in raw.action_parts()]:
        if action is not None and action.kind != "continuous" and action.sizes is None and raw.action_mask is None:
            for column in action.columns:
                yield from _sparse(column, "count actions from 0, write them as text, or declare actions=n")
    for feature in (*raw.observation.values(), *raw.next_observation.values()):
        if feature.kind == "codes" and feature.sizes is None:
            for column in feature.columns:
                yield from _sparse(column, CODES_FIX)


def _sparse(column: Column, advice: str) -> Iterable[Finding]:
    """A finding for each dimension of a column whose codes exceed what their number makes plausible."""
    if column.vocabulary is not None:
        return
    values = clip_finite(column.values).reshape(len(column.values), -1)
    for position in range(values.shape[1]):
        codes = values[:, position]
        most = most_codes(codes[column.usable])
        bad = (codes >= most) & column.usable
        found = f"codes such as {first_values(np.clip(codes[bad], 0, 2**62).astype(np.int64))}"
        yield from in_rows(column.name, bad, found, f"codes below {most:,}", advice)


def most_codes(codes: Values) -> int:
    """The number of codes from 0 that is plausible for logged codes [N]: 100,000, or 100 times the different ones."""
    if not len(codes) or codes.max() < _PLAUSIBLE:
        return _PLAUSIBLE
    return max(_PLAUSIBLE, _PER_CODE * len(np.unique(codes)))


@check("action out of range", "error")
@for_each_part
def action_out_of_range(raw: RawLog) -> Iterable[Finding]:
    """A discrete action is not a whole number, is negative, or is not below the number of actions."""
    if raw.action is None or raw.action.kind == "continuous":
        return
    values = clip_finite(raw.action.values)
    sizes = np.asarray([np.iinfo(np.int32).max])  # unlimited
    if raw.action.sizes is not None:
        sizes = np.asarray(raw.action.sizes)
    elif raw.action.kind == "discrete" and raw.action_mask is not None:
        sizes = np.asarray([action_count(raw)])
    if sizes.size not in (1, values.shape[1]):
        return
    bad = ((values % 1 != 0) | (values < 0) | (values >= sizes)).any(axis=1) & raw.action.usable
    declared = raw.action.sizes is not None or raw.action_mask is not None
    expected = f"whole numbers from 0 to {first_values(sizes - 1)}" if declared else "whole numbers from 0"
    advice = "count actions from 0 and declare actions=n; for continuous actions declare bounds=(low, high)"
    yield from in_rows(action_name(raw), bad, first_values(values[bad]), expected, advice)


@check("action out of bounds", "error")
@for_each_part
def action_out_of_bounds(raw: RawLog) -> Iterable[Finding]:
    """A continuous action lies outside the declared bounds."""
    if raw.action is None or raw.action.bounds is None or len(raw.action.bounds[0]) != raw.action.values.shape[1]:
        return
    low, high = (np.asarray(end, np.float32) for end in raw.action.bounds)
    values = np.clip(raw.action.values, -_LARGEST, _LARGEST).astype(np.float32)
    outside = (values < low) | (values > high)
    bad = outside.any(axis=1) & raw.action.usable
    found = first_values(values[bad][outside[bad]], *low.tolist(), *high.tolist())
    expected = f"between {first_values(low)} and {first_values(high)}"
    yield from in_rows(action_name(raw), bad, found, expected, "widen bounds= or correct the actions")


@check("logged action masked out", "error")
def action_masked_out(raw: RawLog) -> Iterable[Finding]:
    """The mask forbids the logged action."""
    mask, action = raw.action_mask, raw.action
    if mask is None or action is None or action.kind != "discrete" or mask.values.ndim != 2 or not mask.values.size:
        return
    usable = action.usable & mask.usable
    within = usable & (action.values[:, 0] >= 0) & (action.values[:, 0] < mask.values.shape[1])
    chosen = np.where(within, action.values[:, 0], 0).astype(np.int64)
    bad = within & (mask.values[np.arange(raw.rows), chosen] == 0)
    found = f"actions {first_values(action.values[bad])} where the mask forbids them"
    yield from in_rows(mask.name, bad, found, "a mask that allows the logged action", "align mask and actions")


@check("mask allows nothing", "error")
def mask_allows_nothing(raw: RawLog) -> Iterable[Finding]:
    """A row's mask forbids every action."""
    for name, mask in _masks(raw):
        bad = (mask.values == 0).reshape(len(mask.values), -1).all(axis=1) & mask.usable
        if name == "next_action_mask":
            terminated = np.zeros(raw.rows, bool)
            terminated[raw.order.rows] = raw.flags.terminated
            bad &= ~terminated
        yield from in_rows(mask.name, bad, "no action allowed", "at least one", "correct the mask")


@check("propensity out of range", "error")
def propensity_out_of_range(raw: RawLog) -> Iterable[Finding]:
    """A propensity is not positive, or above 1 where actions are discrete (a density may be)."""
    if raw.propensity is None:
        return
    with np.errstate(over="ignore"):
        values = raw.propensity.values.astype(np.float32)  # as they are stored
    discrete = raw.action is not None and raw.action.has_probabilities
    bad = ((values <= 0) | (discrete & (values > 1))) & raw.propensity.usable & np.isfinite(values)
    found, expected = (
        first_values(raw.propensity.values[bad], 0.0, 1.0),
        "above 0 and at most 1" if discrete else "above 0",
    )
    advice = "log the probability of the logged action under the logging policy"
    yield from in_rows(raw.propensity.name, bad, found, expected, advice)


@check("declared propensities", "error")
def declared_propensities(raw: RawLog) -> Iterable[Finding]:
    """Declared propensities do not fit the actions, do not sum to 1, or are shares in strata of fewer than ten rows."""
    if raw.declared is None or raw.action is None:
        return
    recorded = "record the probability of each decision in a column"
    if raw.action.kind != "discrete":
        found, fix = f"declared propensities of {raw.action.kind} actions", recorded
        if raw.action.kind == "multi":
            fix = f"join the columns of the action to one, or {recorded}"
        yield Finding("propensity", None, found, "one discrete action", fix)
    elif raw.action_mask is not None:
        found = "declared propensities and a mask, which changes the probabilities of a decision"
        yield Finding("propensity", None, found, "one of them", f"drop the mask, or {recorded}")
    elif raw.action.usable.all() and all(one.values.ndim == 1 and one.usable.all() for one in raw.strata):
        try:
            probabilities_of(raw.declared, action_labels(raw))
            if raw.strata:
                check_strata(strata_of([column.values for column in raw.strata]), raw.declared.by or ())
        except DeclarationError as error:
            yield Finding("propensity", None, error.found, error.expected, error.fix)


@check("atoms", "error")
def atoms(raw: RawLog) -> Iterable[Finding]:
    """Atoms are declared, and the action is not continuous."""
    if raw.atoms and raw.action is not None and raw.action.kind != "continuous":
        found = f"atoms {', '.join(f'{one:g}' for one in raw.atoms)} of {raw.action.kind} actions"
        yield Finding("action", None, found, "continuous actions", "set bounds=(low, high), or drop atoms")


@check("negative weight", "error")
def negative_weight(raw: RawLog) -> Iterable[Finding]:
    """A row's weight is below 0, or so small that 32 bits make it 0."""
    if raw.weight is not None:
        weights = raw.weight.values
        with np.errstate(over="ignore"):  # infinite numbers are another check's
            lost = (weights > 0) & (weights.astype(np.float32) == 0)
        bad = ((weights < 0) | lost) & raw.weight.usable
        expected = "0 or more, and not so small that 32 bits make it 0"
        advice = "correct the weights, or multiply all by one number"
        yield from in_rows(raw.weight.name, bad, first_values(weights[bad]), expected, advice)


@check("elapsed time", "error")
def elapsed_time(raw: RawLog) -> Iterable[Finding]:
    """An elapsed time is below 0, or empty although something known follows."""
    if raw.elapsed is None:
        return
    bad = raw.elapsed.usable & (raw.elapsed.values < 0)
    advice = "correct the times, or the order of the rows (step, time)"
    yield from in_rows(raw.elapsed.name, bad, first_values(raw.elapsed.values[bad]), "0 or more", advice)
    counts = np.zeros(raw.rows, bool)
    counts[raw.order.rows] = ~raw.flags.terminated & (~raw.order.last | raw.order.sort(raw.followed))
    empty = raw.elapsed.missing[counts[raw.elapsed.missing]]
    expected = "the time to the next decision, or to the observation at which the episode was cut off"
    advice = "fill the cells; only rows that terminated, or that nothing known follows, may be empty"
    yield from in_rows(raw.elapsed.name, empty, "empty cells", expected, advice)


@check("duplicate step", "error")
def duplicate_step(raw: RawLog) -> Iterable[Finding]:
    """Two rows of one episode have the same step."""
    if raw.step is not None:
        at = raw.order.rows[raw.order.tied]
        found = f"an earlier row has the same episode and step ({first_values(raw.step.values[at])})"
        advice = "remove copied rows, or set step= to a column that counts the rows of each episode"
        yield from in_rows(raw.step.name, at, found, "one row for each step of an episode", advice)


@check("steps cannot be ordered", "error")
def unorderable_steps(raw: RawLog) -> Iterable[Finding]:
    """Rows of one episode have the same time and no step, or an empty step or time."""
    key = raw.step or raw.time
    if key is None or raw.episode is None:
        return
    without = np.setdiff1d(np.flatnonzero(~key.usable), key.unreadable)  # unreadable cells have their own check
    cases = [(without, "rows without a step to sort by")]
    if raw.step is None:
        cases.append((raw.order.rows[raw.order.tied], "the same time as another row of the episode"))
    named = [(at, found) for at, found in cases if len(at)]
    if named:
        at, found = np.concatenate([at for at, _ in named]), "; ".join(found for _, found in named)
        copies = "remove copies, or " if len(at) > len(without) else ""
        fix = f"{copies}set step= to their numbers"
        yield Finding(key.name, at, found, "a unique order of the rows of each episode", fix)


@check("cluster changes within an episode", "error")
def cluster_changes(raw: RawLog) -> Iterable[Finding]:
    """Rows of one episode have different clusters."""
    if raw.cluster is None or raw.episode is None:
        return
    values, usable = raw.order.sort(raw.cluster.values), raw.order.sort(raw.cluster.usable)
    firsts = raw.order.firsts[raw.order.episode]
    bad = (values != values[firsts]) & usable & usable[firsts]
    bad &= values == values  # NaN has its own check
    if bad.any():
        later, first = values[bad], values[firsts[bad]]
        if raw.cluster.vocabulary is not None:
            names = np.asarray(raw.cluster.vocabulary)
            later, first = names[later], names[first]
        found = f"{first_values(later)} in episodes whose first row has {first_values(first)}"
        advice = "correct the cells, or use a column that is constant within an episode"
        yield Finding(raw.cluster.name, raw.order.rows[bad], found, "one cluster for all rows of an episode", advice)


@check("terminated before the last row", "error")
def terminated_early(raw: RawLog) -> Iterable[Finding]:
    """An episode continues after a row that terminated it."""
    yield from _ended_early(raw, raw.terminated, raw.flags.terminated)


@check("truncated before the last row", "error")
def truncated_early(raw: RawLog) -> Iterable[Finding]:
    """An episode continues after a row that truncated it."""
    yield from _ended_early(raw, raw.truncated, raw.flags.truncated)


@check("next observation contradicts the following row", "error")
def next_observation_contradicts(raw: RawLog) -> Iterable[Finding]:
    """A row's next observation is not that of the following row."""
    for name, feature in raw.next_observation.items():
        for now, following in zip(raw.observation[name].columns, feature.columns, strict=True):
            if now.values.shape == following.values.shape:
                yield from _contradictions(raw, now, following, following.usable & raw.followed)


@check("next mask contradicts the following row", "error")
def next_mask_contradicts(raw: RawLog) -> Iterable[Finding]:
    """A row's next mask is not that of the following row."""
    now, following = raw.action_mask, raw.next_action_mask
    if now is not None and following is not None and now.values.shape == following.values.shape:
        yield from _contradictions(raw, now, following, following.usable)


def action_count(raw: RawLog) -> int:
    """The number of discrete actions: declared, or the width of the mask, or one more than the largest logged."""
    action = raw.action
    if action is None or action.kind != "discrete":
        return 0
    if action.sizes is not None:
        return action.sizes[0]
    if raw.action_mask is not None and raw.action_mask.values.ndim == 2:
        return int(raw.action_mask.values.shape[1])
    words = action.columns[0].vocabulary
    return len(words) if words is not None else int(clip_finite(action.values).max(initial=0)) + 1


def action_labels(raw: RawLog) -> tuple[str, ...]:
    """The labels of discrete actions; of numbered ones the numbers."""
    words = None if raw.action is None else raw.action.columns[0].vocabulary
    return words or tuple(map(str, range(action_count(raw))))


def _ended_early(raw: RawLog, column: Column | None, flags: Values) -> Iterable[Finding]:
    early = flags & ~raw.order.last
    if column is not None and early.any():
        found = "more rows of the same episode after it"
        advice = "split the episode there, or correct the flag or the order of the rows"
        yield Finding(column.name, raw.order.rows[early], found, "an end only at the last row", advice)


def _contradictions(raw: RawLog, now: Column, following: Column, known: Values) -> Iterable[Finding]:
    inner = np.flatnonzero(~raw.order.last)
    if not len(inner):
        return
    rows, after = raw.order.rows[inner], raw.order.rows[inner + 1]
    known = known[rows] & now.usable[after] & ~_interrupted(raw, rows, after)
    bad = differences(following.values, now.values, rows, after) & known
    bad[bad] &= _finite(following.values[rows[bad]]) & _finite(now.values[after[bad]])
    if bad.any():
        shown = np.flatnonzero(bad)[:10]
        stated, actual = clip_finite(following.values[rows[shown]]), clip_finite(now.values[after[shown]])
        differs = stated != actual
        found = f"{first_values(stated[differs])}, but the following row has {first_values(actual[differs])}"
        advice = "correct step=, episode= or the columns; or drop next_observation="
        yield Finding(following.name, rows[bad], found, "the following row's value", advice)


def _interrupted(raw: RawLog, rows: Values, after: Values) -> Values:
    """[B] bool: pairs of rows between which a row may be missing: one that cannot be placed (`RawLog.unplaced`)."""
    if not raw.unplaced.any() or raw.episode is None:
        return np.zeros(len(rows), bool)
    incomplete = raw.episode.values[raw.unplaced & raw.episode.usable]
    interrupted: Values = np.isin(raw.episode.values[rows], incomplete)
    key = raw.step or raw.time
    if key is None:  # the row may belong between its neighbours in the file
        before = np.cumsum(raw.unplaced)
        between = before[after] - before[rows]
        interrupted |= (between > 0) & (after - rows == between + 1)
        return interrupted
    keys = np.sort(key.values[raw.unplaced & key.usable])  # the row may belong to any episode with a gap at its step
    interrupted |= np.searchsorted(keys, key.values[after]) > np.searchsorted(keys, key.values[rows], side="right")
    return interrupted


def _finite(values: Values) -> Values:
    """[B] bool: rows whose numbers are all finite."""
    return np.asarray(np.isfinite(values).all(axis=tuple(range(1, values.ndim))))


def differences(stated: Values, actual: Values, rows: Values | None = None, others: Values | None = None) -> Values:
    """[B] bool: rows whose numbers differ by more than rounding errors; all of both arrays, or `rows` and `others`."""
    chunk = max(1, _AT_ONCE // max(1, actual[0:1].size))
    parts = [np.zeros(0, bool)]
    for at in range(0, len(stated) if rows is None else len(rows), chunk):
        part = slice(at, at + chunk)
        one = clip_finite(stated[part if rows is None else rows[part]])
        other = clip_finite(actual[part if others is None else others[part]])
        differs = np.abs(one - other) > 1e-6 * np.maximum(1.0, np.abs(other))
        parts.append(differs.reshape(len(one), -1).any(axis=1))
    return np.concatenate(parts)


def _masks(raw: RawLog) -> Iterable[tuple[str, Column]]:
    both = (("action_mask", raw.action_mask), ("next_action_mask", raw.next_action_mask))
    return [(name, mask) for name, mask in both if mask is not None]


def action_name(raw: RawLog) -> str:
    """The names of the action's columns as text."""
    return ", ".join(column.name for column in raw.action.columns) if raw.action else "action"


def clip_finite(values: Values) -> Values:
    """Clip to finite float64 numbers; avoids overflow warnings for values that another check reports."""
    return np.clip(np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0), -_LARGEST, _LARGEST)


def first_values(values: Values, *limits: float) -> str:
    """The first three different values as text, with all the digits that tell them from limits."""
    flat = np.asarray(values).reshape(-1)
    distinct = list(dict.fromkeys(flat[:1000].tolist()))
    exact = {f"{limit:g}" for limit in limits}
    rounded = [f"{value:g}" if isinstance(value, float) else str(value) for value in distinct[:3]]
    pairs = zip(rounded, distinct, strict=False)
    return ", ".join(str(flat.dtype.type(value)) if text in exact else text for text, value in pairs)


# Checks of propensities: whether the logged actions look as if they were drawn with them.
#
# Declared propensities, and recorded ones that determine the probabilities of all actions, are tested as in `balance`.
# Other recorded ones say only that each action has a mean weight of at most 1, whatever the observation.
#
# Letters: `N` rows, `A` actions.

DOUBTFUL_PROPENSITIES = 0.01  # p-value below which propensities are said to be doubtful
BALANCED = 0.05  # p-value from which decisions look as if they had been drawn
MOST_BALANCED = 20  # actions of a log that looks so


@check("contradicted propensities", "error")
def contradicted_propensities(raw: RawLog) -> Iterable[Finding]:
    """Observations predict actions much better than declared propensities do (p < 0.001)."""
    found = _declared_balance(raw)
    if found is not None and found.is_broken:
        yield _finding(raw, found)


@check("doubtful propensities", "warning")
def doubtful_propensities(raw: RawLog) -> Iterable[Finding]:
    """Observations predict the action better than recorded, or declared, propensities do (p < 0.01)."""
    found = _declared_balance(raw)
    if found is not None and not found.is_broken and found.p_value < DOUBTFUL_PROPENSITIES:
        yield _finding(raw, found)
    fit = _recorded_fit(raw)
    if raw.propensity is not None and fit is not None and fit.p_value < DOUBTFUL_PROPENSITIES:
        advice = "record the probability that the logged action had when it was drawn"
        if [one.name for one in fit.named] not in ([TOTALS], [EVERYTHING], [STATED]):
            advice = f"if an outcome is among the observations, drop it; else {advice}"
        said = balance_sentence(fit, "recorded")
        yield Finding(raw.propensity.name, None, said, "actions as often as they say", advice)


def _finding(raw: RawLog, found: Balance) -> Finding:
    expected = "decisions that nothing recorded before them predicts"
    return Finding("propensity", None, balance_sentence(found, "declared"), expected, _advice(raw, found))


def balance_sentence(balance: Balance, what: str) -> str:
    """What predicts the action, how well and how surely; `what` the propensities are: declared or recorded."""
    names = [one.name for one in balance.named]
    if names == [TOTALS]:
        return f"actions are not logged as often as {what} propensities say ({balance.p_text})"
    listed = ", ".join(one if one in (BEFORE, EVERYTHING, STATED) else f"'{one}'" for one in dict.fromkeys(names[:5]))
    listed = listed.replace(STATED, f"the size of {what} probabilities")
    listed += f" and {len(names) - 5} more" if len(names) > 5 else ""
    verb = "predicts" if len(names) == 1 and names != [EVERYTHING] else "predict"
    return (
        f"{listed} {verb} the action beyond {what} propensities ({balance.p_text}; {max(balance.explained, 0.0):.1%} "
        "of what they leave open is explained in other rows)"
    )


def _advice(raw: RawLog, balance: Balance) -> str:
    named = [one.name for one in balance.named]
    if named == [TOTALS]:
        return 'correct the probabilities, or write propensity = "shares"'
    if BEFORE in named:
        return (
            "if one decision was drawn for a whole episode, keep one row for each episode, with the sum of its "
            "rewards; else leave propensity out"
        )
    words = {column.name for one in raw.observation.values() if one.kind == "codes" for column in one.columns}
    drawn = [name for name in named if name in words]
    by = f"propensity = {{ {SHARES_BY} = {json.dumps(drawn, ensure_ascii=False)} }}"
    first = f"if {action_name(raw)} was drawn within each {' and '.join(drawn)}, {by}; " if drawn else ""
    was, them = ("it was", "it") if len(named) == 1 else ("they were", "them")
    return (
        f"{first}if {was} recorded after the decision, drop {them} from `observation`; if decisions were not drawn at "
        "random, leave propensity out"
    )


def raw_balance(raw: RawLog, declaration: Declaration) -> Balance | None:
    """The balance of a raw log under a declaration; None if it does not fit, or there is nothing to test."""
    action = raw.action
    if action is None or action.kind != "discrete" or raw.action_mask is not None or not action.usable.all():
        return None
    if any(not column.usable.all() or column.values.ndim != 1 for column in raw.strata):
        return None
    codes, count = _action_codes(raw), action_count(raw)
    if codes is None:
        return None
    try:
        chances = probabilities_of(declaration, action_labels(raw))[0]
        stratum = strata_of([column.values for column in raw.strata]) if raw.strata else None
        if stratum is not None:
            check_strata(stratum, declaration.by or ())
    except DeclarationError:
        return None  # an error, which another check reports
    before = None
    if len(raw.order.ids) < raw.rows:
        before = np.full(raw.rows, -1)
        inside = np.flatnonzero(~raw.order.last)
        before[raw.order.rows[inside + 1]] = codes[raw.order.rows[inside]]
    return balance_of(
        _balance_observed(raw, raw.strata),
        codes,
        count,
        chances=None if chances is None else np.asarray(chances),
        stratum=stratum,
        clusters=_clusters(raw),
        before=before,
    )


def _action_codes(raw: RawLog) -> NDArray[np.int64] | None:
    """[N]: the discrete actions, None if one of them is out of range, or so large that it is taken for an error."""
    values = clip_finite(raw.action.values[:, 0]) if raw.action is not None else np.zeros(0)
    inside = len(values) and values.min() >= 0 and values.max() < min(action_count(raw), most_codes(values), 2**31)
    return values.astype(np.int64) if inside else None


_BALANCES = WeakKeyDictionary[RawLog, "Balance | None"]()  # two checks, an error and a warning, read one result


def _declared_balance(raw: RawLog) -> Balance | None:
    if raw.declared is None:
        return None
    if raw not in _BALANCES:
        _BALANCES[raw] = raw_balance(raw, raw.declared)
    return _BALANCES[raw]


def _recorded_fit(raw: RawLog) -> Balance | None:
    action, recorded = raw.action, raw.propensity
    if action is None or recorded is None or action.kind != "discrete" or not action.usable.all():
        return None
    values = recorded.values
    if not recorded.usable.all() or values.ndim != 1 or not ((values > 0) & (values <= 1)).all():
        return None
    codes, count = _action_codes(raw), action_count(raw)
    if codes is None:
        return None
    return fit_of(
        _balance_observed(raw),
        codes,
        np.asarray(values, np.float64),
        count,
        _clusters(raw),
        masked=raw.action_mask is not None,
    )


def _clusters(raw: RawLog) -> NDArray[Any] | None:
    usable = raw.cluster is not None and raw.cluster.usable.all() and raw.cluster.values.ndim == 1
    return raw.cluster.values if usable and raw.cluster is not None else None


def _balance_observed(raw: RawLog, without: Sequence[Column] = ()) -> list[ObservedColumn]:
    """Observation columns without pictures and without unusable cells."""
    left_out, columns = {column.name for column in without}, list[ObservedColumn]()
    for feature in raw.observation.values():
        for column in feature.columns if feature.kind != "image" else ():
            if column.name not in left_out and column.usable.all() and np.isfinite(column.values).all():
                some = itertools.islice(_whole((column,)), MOST_COLUMNS)
                columns += [ObservedColumn(name, values, feature.kind == "codes") for name, values in some]
    if raw.time is not None and raw.time.usable.all():
        when = as_number(raw.time.values)
        columns += [ObservedColumn(raw.time.name, when, False)] * bool(np.isfinite(when).all())
    return columns[:MOST_COLUMNS]


# Warnings and notes, which do not make a log unusable: one function per check.

_FEW_EPISODES = 10
_LARGE = 1e4
_SMALL = 1e-4
_MANY_CATEGORIES = 100
_MANY_ACTIONS = 20
_MOST_ACTIONS = 2**31
_RARE_ROWS = 10
_RARE_SHARE = 0.001
_LONG = 10.0
_ENOUGH = 10
_SAMPLE = 1_000
_ROUNDING = 1e-9
_MOST_CODES = 100_000


@check("duplicated rows", "warning")
def duplicated_rows(raw: RawLog) -> Iterable[Finding]:
    """Rows of a one-step log, or whole episodes, are exact copies of others more often than by chance."""
    copies = find_copies(raw)
    if copies is None:
        return
    units = "rows" if copies.total == raw.rows else "episodes"
    often = f"most repeated {units} occur {copies.often} times"
    found = f"{copies.units:,} of {copies.total:,} {units} are exact copies of earlier ones; {often}"
    advice = f"remove the copies; if such {units} are dependent, set cluster= to the column of their group"
    yield Finding(None, copies.rows, found, f"independent {units}", advice)


@check("possible cluster column", "warning")
def possible_cluster(raw: RawLog) -> Iterable[Finding]:
    """A column looks like persons, sessions, stores or days, and is not mapped as cluster."""
    if raw.cluster is not None or not (raw.unused or raw.extra or raw.time):
        return
    firsts = raw.order.firsts
    used = {one.name for one in (*raw.observed, *(raw.action.columns if raw.action else ()), *(raw.reward or ()))}
    labels = []
    for column in (*raw.unused, *raw.extra):
        if column.name in used or column.values.ndim != 1 or column.values.dtype.kind not in "iufM":
            continue
        values, is_text = raw.order.sort(column.values), column.vocabulary is not None
        for label in labels_of(column.name, values, is_text, raw.order.episode, firsts):
            usable = raw.order.sort(column.usable)[firsts]
            labels.append(label if usable.all() else label._replace(codes=np.where(usable, label.codes, -1)))
    if raw.time is not None and raw.time.usable.all():
        labels += day_labels(raw.time.name, raw.time.values[raw.order.rows[firsts]])
    rewards = None if not raw.reward else side_by_side(raw.reward)
    if rewards is not None:  # unusable rewards count as 0
        rewards = raw.order.sort(rewards.astype(np.float64) if np.isfinite(rewards).all() else clip_finite(rewards))
    actions = None
    if raw.action is not None and raw.action.kind == "discrete" and len(raw.order.ids) == raw.rows:
        action = raw.action.values[:, 0]
        ordered = raw.order.sort(action if action.dtype.kind in "iu" else np.clip(clip_finite(action), -1, 2**53))
        actions = np.asarray(ordered.astype(np.int64))
    for one in candidates(labels, rewards, actions, firsts):
        yield Finding(one.name, None, one.found, "independent episodes, or a cluster column", one.fix)


@check("both flags set", "warning")
def both_flags(raw: RawLog) -> Iterable[Finding]:
    """A row is terminated and truncated; terminated wins."""
    advice = "nothing, if the episode terminated there; terminated wins, and there is no bootstrapping"
    at = raw.order.rows[raw.flags.both]
    yield from in_rows(None, at, "terminated and truncated on one row", "one of them", advice)


@check("unordered rows", "warning")
def unordered_rows(raw: RawLog) -> Iterable[Finding]:
    """Rows were sorted by episode and step."""
    found, expected = "rows out of order, now sorted", "episodes one after another, with increasing steps"
    moved = raw.order.rows != np.arange(raw.rows)
    yield from in_rows(None, moved, found, expected, "nothing, if episode= and step= are right")


@check("episode in several files", "warning")
def crossed_files(raw: RawLog) -> Iterable[Finding]:
    """Rows of one episode are in several files, and only the order of the files orders them."""
    if raw.files is None or raw.episode is None or raw.step is not None or raw.time is not None:
        return
    crossed = raw.order.rows[raw.files.crossed(raw.order.episode, raw.order.rows)]
    expected = "each episode in one file, or a step or time that orders its rows"
    advice = "name the column of the step; if files count their episodes anew, make the identifiers different"
    yield from in_rows(raw.episode.name, crossed, "episodes that go on in another file", expected, advice)


@check("no end flag", "warning")
def no_end_flag(raw: RawLog) -> Iterable[Finding]:
    """An episode ends without either flag; it counts as truncated at its last row."""
    placed = ~raw.unplaced[raw.order.rows]  # a row that cannot be ordered has an error of its own
    at = raw.order.rows[raw.flags.assumed & placed]
    episodes = len(raw.order.ids) - int(raw.unplaced.sum())
    if len(at):
        found = f"{len(at):,} of {count_of(episodes, 'episode')} without a flag at the end; truncated is assumed"
        advice = "set terminated= or truncated=; terminated=True if every episode terminated"
        yield Finding(None, at, found, "terminated or truncated on each last row", advice)


@check("ends without episodes", "warning")
def ends_without_episodes(raw: RawLog) -> Iterable[Finding]:
    """Rows have end flags, but no episode is mapped: each is an episode of one step."""
    # transitions with their next observations are no such log
    named = [column for column in (raw.terminated, raw.truncated) if column is not None]
    ended = raw.flags.terminated | (raw.flags.truncated & ~raw.flags.assumed)
    if raw.episode is None and not raw.followed.any() and ended.any() and not ended.all():
        flags = " and ".join(f"'{column.name}'" for column in named)
        found = f"{flags} end {count_of(int(ended.sum()), 'row')} of {raw.rows:,}; each row is an episode of one step"
        fix = f"number the episodes in a column, as the count of earlier rows with {flags} 1, and name it in `episode`"
        yield Finding(None, None, found, "a column of episodes", fix)


@check("no bootstrap target", "warning")
def no_bootstrap_target(raw: RawLog) -> Iterable[Finding]:
    """A truncated last row has no next observation: value learning cannot use it."""
    followed = raw.order.sort(raw.followed)
    unknown = raw.order.last & ~raw.flags.terminated & ~followed & ~raw.unplaced[raw.order.rows]
    if unknown.any():
        found = f"{count_of(int(unknown.sum()), 'row')} for cloning and statistics only, not for value learning"
        advice = "add a next_observation column, or the following row"
        rewards = raw.order.sort(clip_finite(side_by_side(raw.reward))) if raw.reward else np.zeros((raw.rows, 1))
        rewarded = (rewards != 0).any(axis=1)
        if rewarded.any() and not (rewarded & ~unknown).any():
            found += "; every reward other than 0 is in one of them, so value learning sees none"
            advice = f"if nothing followed, name that flag as terminated= (or terminated=True); else {advice}"
        yield Finding(None, raw.order.rows[unknown], found, "the observation after a truncated row", advice)


@check("terminations ignored", "warning")
def terminations_ignored(raw: RawLog) -> Iterable[Finding]:
    """The mapping counts terminated rows as truncated."""
    if raw.terminations == "ignore" and raw.terminated is not None:
        at = np.flatnonzero((raw.terminated.values == 1) & raw.terminated.usable)
        found = f"terminations='ignore': {len(at):,} terminated flags do not stop bootstrapping"
        yield Finding(
            raw.terminated.name, at, found, "a task of fixed length", "terminations='stop' if terminations are real"
        )


@check("no reward", "note")
def no_reward(raw: RawLog) -> Iterable[Finding]:
    """The mapping names no reward: only behaviour cloning can learn from the log."""
    if raw.reward is None and all(finding.column != "reward" for _, finding in raw.found):
        yield Finding(None, None, "no reward", "a reward, except for cloning", "set reward= if there is one")


@check("unknown rewards", "warning")
def unknown_rewards(raw: RawLog) -> Iterable[Finding]:
    """Some rewards are unknown, as the mapping allows; what predicts which ones."""
    if raw.missing_reward is None or raw.action is None:
        return
    unknown = np.any([np.zeros(raw.rows, bool), *(column.is_missing for column in raw.reward or ())], axis=0)
    if not unknown.any() or unknown.all():
        return
    usable, clusters = raw.action.usable, None
    if raw.cluster is not None and raw.cluster.usable.all():
        clusters = raw.cluster.values
    elif raw.episode is not None and raw.episode.usable.all():
        clusters = raw.episode.values
    labels = (raw.action.columns[0].vocabulary or ()) if raw.action.kind == "discrete" else ()
    found = unknown_sentence(unknown, raw.action.values if usable.all() else None, labels)
    if usable.all():
        acted = action_columns(raw.action.values, is_words=raw.action.kind == "discrete")
        balance = balance_of([*acted, *_balance_observed(raw)], unknown, 2, clusters=clusters)
        found += f"; {unknown_predictors(balance)}"
    assumed = "values in every row; training leaves their episodes out unless it only imitates, and a verdict "
    assumed += (
        "takes them to be missing at random, as the mapping states"
        if raw.missing_reward == AT_RANDOM
        else "must hold whatever they are"
    )
    fix = 'record them; missing_reward = "at random" only if nothing but the observation and the action decides'
    yield Finding(None, np.flatnonzero(unknown), found, assumed, fix)


@check("constant reward", "warning")
def constant_reward(raw: RawLog) -> Iterable[Finding]:
    """Every reward is the same number."""
    for name, values in _numbers(raw.reward or ()):
        if _constant(values):
            yield Finding(
                name, None, f"every reward is {values[0]:g}", "different rewards", "check the column of reward="
            )


@check("equal episode returns", "warning")
def equal_returns(raw: RawLog) -> Iterable[Finding]:
    """Rewards differ, but every episode of several steps has the same return."""
    count = len(raw.order.ids)
    if raw.episode is None or count < 2:
        return
    starts = raw.order.firsts
    for column in raw.reward or ():
        rewards = clip_finite(raw.order.sort(column.values)).reshape(raw.rows, -1)
        returns = np.add.reduceat(rewards, starts, axis=0)
        sizes = np.add.reduceat(np.abs(rewards), starts, axis=0).max(axis=0)
        same = np.ptp(returns, axis=0) <= 1e-9 * sizes
        if (same & (np.ptp(rewards, axis=0) > 0)).any():
            found = f"all {count:,} episodes have the return {first_values(returns[0])}"
            advice = "check the reward: with equal returns, only the timing of rewards carries information"
            yield Finding(column.name, None, found, "different returns", advice)


@check("one action only", "warning")
def one_action_only(raw: RawLog) -> Iterable[Finding]:
    """Every action, or every value of one action dimension, is the same."""
    labels = {one.name: one.vocabulary for one in raw.action.columns} if raw.action else {}
    for name, values in _numbers(raw.action.columns if raw.action else ()):
        if _constant(values):
            label = labels.get(name)
            shown = f"{values[0]:g}" if label is None else f"'{label[int(values[0])]}'"
            advice = "check the column of action=; a log with one action cannot show which action is better"
            yield Finding(name, None, f"every action is {shown}", "different actions", advice)


@check("constant observation column", "warning")
def constant_column(raw: RawLog) -> Iterable[Finding]:
    """An observation column is constant."""
    columns = [(name, _constant(values)) for name, values in _numbers(_observed_columns(raw))]
    constant = [name for name, is_constant in columns if is_constant]
    if constant:
        found = f"{len(constant)} of {len(columns)} columns are constant: {_named(constant)}"
        yield Finding(_named(constant), None, found, "columns that vary", "drop them, or check the export")


@check("duplicated observation columns", "warning")
def duplicated_columns(raw: RawLog) -> Iterable[Finding]:
    """Two observation columns hold the same values in every row."""
    groups: dict[bytes, list[tuple[str, Values]]] = {}
    for name, values in _numbers(_observed_columns(raw)):
        if not _constant(values):
            sample = values[:: max(1, len(values) // _SAMPLE)].astype(np.float64)  # equal for equal columns
            groups.setdefault(sample.tobytes(), []).append((name, values))
    for (original, first), *others in groups.values():
        copies = [name for name, values in others if np.array_equal(values, first)]
        if copies:
            found = f"the same values as in '{original}'"
            yield Finding(_named(copies), None, found, "different columns", "drop the copies")


@check("extreme scale", "warning")
def extreme_scale(raw: RawLog) -> Iterable[Finding]:
    """An observation column has its largest magnitude above 10,000 or below 0.0001."""
    observed = _numbers(_observed_columns(raw, codes=False))
    reach = {name: max(-float(one.min()), float(one.max())) if len(one) else 0.0 for name, one in observed}
    large = [name for name, top in reach.items() if top > _LARGE]
    small = [name for name, top in reach.items() if 0 < top < _SMALL]
    for names, size in ((large, f"above {_LARGE:,.0f}"), (small, f"below {_SMALL:g}")):
        if names:
            found, advice = f"columns with magnitudes {size}", "standardise observations (scale=) or choose other units"
            yield Finding(_named(names), None, f"{len(names)} {found}", "magnitudes near 1", advice)


@check("suspicious leak", "warning")
def suspicious_leak(raw: RawLog) -> Iterable[Finding]:
    """An observation column equals the action of the same row, or the reward of the row before."""
    for role, before, name, outcome in _copied_outcomes(raw):
        if role == "action" and not before:
            found = f"the same values as action '{outcome}' of the same row"
            yield Finding(name, None, found, KNOWN_BEFORE, "drop the column")
        elif role == "reward" and before:
            advice = "drop the column, unless the policy has it in time"
            yield Finding(name, None, f"reward '{outcome}' of the row before", KNOWN_BEFORE, advice)


@check("outcome among observations", "warning")
def outcome_among_observations(raw: RawLog) -> Iterable[Finding]:
    """An observation column is the reward of the same row, tells it, or is named as from after the decision."""
    same = {name: f"the same values as reward '{outcome}' of the same row"
            for role, before, name, outcome in _copied_outcomes(raw) if role == "reward" and not before}  # fmt: skip
    named = {reward.name: "the column of the reward" for reward in raw.reward or ()}
    if raw.elapsed is not None and (raw.time is None or raw.elapsed.name != raw.time.name):
        named[raw.elapsed.name] = "the time until the next decision"
    doubtful = {}
    for one in _observed_columns(raw):
        if raw.from_table and one.name in named:
            same[one.name] = named[one.name]
        if is_after(one.name):
            doubtful[one.name] = "named like what follows the decision"
    for name, found in same.items():
        yield Finding(name, None, found, KNOWN_BEFORE, "drop the column")
    for name, found in (doubtful | dict(_tellers(raw))).items():
        if name not in same:
            yield Finding(name, None, found, KNOWN_BEFORE, DROP_TELLER)


def _tellers(raw: RawLog) -> Iterator[tuple[str, str]]:
    """Names of the observation columns that tell a reward, and how."""
    columns = [(name, one, column) for column in _observed_columns(raw) for name, one in _whole((column,))]
    action, discrete = raw.action, raw.action is not None and raw.action.kind == "discrete"
    for reward in [one for one in raw.reward or () if one.values.ndim == 1]:
        usable = reward.usable & np.isfinite(reward.values)
        rows = slice(None) if usable.all() else np.flatnonzero(usable)
        codes = np.zeros(raw.rows, np.int64)
        if action is not None and discrete:
            known = clip_finite(action.values[:, 0])
            small = not len(known) or (known.min() >= 0 and known.max() < _MOST_CODES)
            codes = known.astype(np.int64) if small else np.unique(known, return_inverse=True)[1].astype(np.int64)
        rewards = DecisionRewards.of(reward.values[rows], codes[rows], single=len(raw.order.ids) == raw.rows)
        if (
            action is not None
            and not discrete
            and any(leak_of(one[rows], rewards) for _, one in _whole(action.columns))
        ):
            continue  # the action decides the reward, and an observation may decide the action
        for name, values, column in columns:
            how = leak_of(values[rows], rewards, words=column.vocabulary is not None)
            if how is not None:
                yield name, f"it tells the reward '{reward.name}': {how}"


KNOWN_BEFORE = "only information from before the action"
DROP_TELLER = "drop it if it is recorded after the decision; keep it if it is known before"


@check("unbalanced actions", "warning")
@for_each_part
def unbalanced_actions(raw: RawLog) -> Iterable[Finding]:
    """An action is never taken, or is rare: in fewer than 10 rows or 0.1% of them."""
    if raw.action is None or raw.action.kind == "continuous":
        return
    sizes = raw.action.sizes if raw.action.kind == "multi" else (action_count(raw),)
    for position, (name, values) in enumerate(_numbers(raw.action.columns)):
        known = clip_finite(values)
        size = sizes[position] if sizes and position < len(sizes) else int(known.max(initial=0)) + 1
        codes = known[(known >= 0) & (known < min(size, _MOST_ACTIONS))].astype(np.int64)
        if len(codes) and codes.min() < codes.max():
            present, counts = np.unique(codes, return_counts=True)
            words = raw.action.columns[0].vocabulary
            label = words.__getitem__ if words else str
            is_rare = ((counts < _RARE_ROWS) | (counts < _RARE_SHARE * len(codes))) & (counts < 0.1 * len(codes) / size)
            rare, missing = present[is_rare], size - len(present)
            if missing:
                first = np.setdiff1d(np.arange(min(size, len(present) + 6)), present)[:6].tolist()
                found = f"{missing:,} of {size:,} actions never present: {_named(list(map(label, first)), missing)}"
                advice = "declare only actions in the log, mask the others, or use an algorithm that stays near the log"
                yield Finding(name, None, found, "every action in the log", advice)
            if len(rare):
                listed = _named(list(map(label, rare.tolist())))
                found = f"{len(rare):,} of {size:,} actions in very few rows: {listed}"
                advice = "merge rare actions, or distrust their values"
                yield Finding(name, None, found, "at least ten rows of each", advice)


@check("rounded propensities", "note")
def rounded_propensities(raw: RawLog) -> Iterable[Finding]:
    """Declared propensities sum to nearly 1, as rounded numbers do; they are divided by their sum."""
    if raw.declared is None or raw.action is None or raw.action.kind != "discrete" or not raw.action.usable.all():
        return
    try:
        total = probabilities_of(raw.declared, action_labels(raw))[1]
    except DeclarationError:
        return  # an error, which another check reports
    if abs(total - 1.0) > _ROUNDING:
        found = f"declared propensities that sum to {total:.6g} and are divided by this sum"
        yield Finding("propensity", None, found, "a sum of 1", "nothing, if they are rounded")


@check("few episodes", "warning")
def few_episodes(raw: RawLog) -> Iterable[Finding]:
    """There are fewer than ten episodes."""
    count = len(raw.order.ids)
    if 0 < count < _FEW_EPISODES:
        advice = "set episode= if rows form other episodes; intervals over so few episodes are wide"
        yield Finding(None, None, count_of(count, "episode"), f"at least {_FEW_EPISODES}", advice)


@check("gap in steps", "warning")
def gap_in_steps(raw: RawLog) -> Iterable[Finding]:
    """Steps within an episode jump by more than usual; rows may be missing."""
    if raw.step is None or raw.episode is None or raw.order.key is None or raw.rows < 2:
        return
    jump = np.diff(clip_finite(raw.order.key))
    inside = ~raw.order.last[:-1]
    usual = np.median(jump[inside]) if inside.any() else 0.0
    gap = inside & (jump > 1.5 * usual)
    found, expected = f"jumps of {first_values(jump[gap])}", f"steps of {usual:g}"
    advice = "add the missing rows; the row after a gap counts as the next observation"
    yield from in_rows(raw.step.name, raw.order.rows[1:][gap], found, expected, advice)


@check("gap in time", "warning")
def gap_in_time(raw: RawLog) -> Iterable[Finding]:
    """A step within an episode took ten times longer than the median step."""
    jump, inside = _elapsed(raw)
    usual = float(np.median(jump[inside & (jump > 0)])) if (inside & (jump > 0)).any() else 0.0
    long = inside & (jump > _LONG * usual) & (usual > 0)
    if raw.time is not None and long.any():
        found, expected = f"steps of up to {_spoken(raw, jump[long].max())}", f"about {_spoken(raw, usual)} as usual"
        advice = "add the missing rows, or split the episodes there"
        if raw.elapsed is None:
            advice += "; each decision is discounted as one step (`elapsed` discounts by time)"
        yield Finding(raw.time.name, raw.order.rows[1:][long], found, expected, advice)


@check("time runs backwards", "warning")
def time_backwards(raw: RawLog) -> Iterable[Finding]:
    """A row has a later step but an earlier time than the row before."""
    jump, inside = _elapsed(raw)
    if raw.time is not None:
        at, advice = raw.order.rows[1:][inside & (jump < 0)], "correct step= or time=; rows are in the order of steps"
        yield from in_rows(raw.time.name, at, "earlier than the row before", "rising times", advice)


@check("many categories", "warning")
def many_categories(raw: RawLog) -> Iterable[Finding]:
    """A categorical column has almost as many different values as rows."""
    for column in raw.observed:
        count = len(column.vocabulary or ())
        if count > _MANY_CATEGORIES and count > raw.rows / 2:
            found, expected = f"{count:,} different values in {raw.rows:,} rows", "values that repeat"
            yield Finding(column.name, None, found, expected, "drop identifiers, dates and free text")


_NUMBER_TEXT = re.compile(
    r"[+-]?(\d{1,3}([,' ]\d{3})+(\.\d+)?|\d{1,3}(\.\d{3})+(,\d+)?|\d+,\d+|\d+([.,]\d+)?\s?%)"  # 1,234.5 1.234,5 0,5 12%
)


@check("numbers as text", "warning")
def numbers_as_text(raw: RawLog) -> Iterable[Finding]:
    """Labels are numbers with a sign of thousands, a decimal comma or a per cent sign."""
    for column in raw.observed:
        words = [word for word in column.vocabulary or () if word not in ("", OTHER)]
        pairs = all(re.fullmatch("[01],[01]", word) for word in words)
        if all(re.fullmatch(r"\d+,\d+", word) for word in words):  # pairs of codes, unless some are such as 0,5
            pairs |= not any(word.startswith("0,") for word in words)
        if len(words) > 1 and not pairs and all(_NUMBER_TEXT.fullmatch(word) for word in words):
            found = f"labels such as {words[0]!r} and {words[-1]!r}, of which nothing knows the order"
            advice = "write numbers as 1234.5 and 0.12, or set `decimal` in the mapping; keep it if they are labels"
            yield Finding(column.name, None, found, "numbers", advice)


@check("many actions", "warning")
def many_actions(raw: RawLog) -> Iterable[Finding]:
    """Almost every row has an action of its own."""
    action = raw.action
    if action is None or action.kind != "discrete" or not raw.rows:
        return
    count = len(np.unique(action.values))
    if count > _MANY_ACTIONS and count > raw.rows / 2:
        found = f"{count:,} different actions in {raw.rows:,} rows"
        fix = (
            "name the column of decisions in `action`; a text that holds amounts is no action: make it numbers or lists"
        )
        yield Finding(action.columns[0].name, None, found, "actions that repeat", fix)


@check("actions inferred", "note")
@for_each_part
def actions_inferred(raw: RawLog) -> Iterable[Finding]:
    """The number of actions was not declared; it is one more than the largest logged, or the number of labels."""
    if raw.action is None or raw.action.sizes is not None or raw.action.kind == "continuous":
        return
    values = clip_finite(raw.action.values)
    sizes = [action_count(raw)] if raw.action.kind == "discrete" else [int(top) + 1 for top in values.max(axis=0)]
    found = f"{', '.join(map(str, sizes))} {'action' if sizes == [1] else 'actions'}, inferred from the log"
    yield Finding(action_name(raw), None, found, "a declared number of actions", "declare actions= if there are more")


@check("bounds inferred", "note")
@for_each_part
def bounds_inferred(raw: RawLog) -> Iterable[Finding]:
    """Bounds were not declared; they are the smallest and the largest logged action."""
    if raw.action is None or raw.action.bounds is not None or raw.action.kind != "continuous":
        return
    values = clip_finite(raw.action.values)
    found = f"actions from {first_values(values.min(axis=0))} to {first_values(values.max(axis=0))}, used as the bounds"
    yield Finding(action_name(raw), None, found, "declared bounds", "declare bounds=(low, high) if more is possible")


def _copied_outcomes(raw: RawLog) -> Iterator[tuple[str, bool, str, str]]:
    """Observation columns that equal a reward or a single action, of the same row or the row before.

    The role of the outcome, whether it is of the row before, and the names of the column and of the outcome.
    """
    order, inner = raw.order, np.flatnonzero(~raw.order.last)
    single = raw.action.columns if raw.action is not None and raw.action.values.shape[1] == 1 else ()
    for role, outcomes in (("reward", raw.reward or ()), ("action", single)):
        for outcome in outcomes:
            alike = [one for one in _observed_columns(raw) if one.vocabulary == outcome.vocabulary]
            for (_, earned), (name, values) in itertools.product(_whole((outcome,)), list(_whole(alike))):
                if _equal(values, earned, order.rows, order.rows):
                    yield role, False, name, outcome.name
                elif role == "reward" and _equal(values, earned, order.rows[1:], order.rows, inner):
                    yield role, True, name, outcome.name


def _equal(values: Values, outcome: Values, after: Values, before: Values, chosen: Values | None = None) -> bool:
    """Whether `values[after]` equal `outcome[before]`, in at least ten chosen rows, and are not constant."""
    if len(before if chosen is None else chosen) < _ENOUGH:
        return False
    for few in (slice(_SAMPLE), slice(None)):
        at = few if chosen is None else chosen[few]
        if not np.array_equal(values[after[at]], outcome[before[at]]):
            return False
    return not _constant(outcome[before[at]])


def _elapsed(raw: RawLog) -> tuple[Values, Values]:
    """[N - 1] time from each row to the next, in episode order, and whether both are known and of one episode."""
    if raw.time is None or raw.rows < 2:
        return np.zeros(0), np.zeros(0, bool)
    known = raw.order.sort(raw.time.usable)
    return np.diff(clip_finite(raw.order.sort(raw.time.values))), ~raw.order.last[:-1] & known[1:] & known[:-1]


def _spoken(raw: RawLog, elapsed: float) -> str:
    dates = raw.time is not None and raw.time.values.dtype.kind == "M"
    return str(timedelta(microseconds=elapsed)) if dates else f"{elapsed:g}"


def _observed_columns(raw: RawLog, codes: bool = True) -> Iterator[Column]:
    """Observation columns of numbers and codes, without images."""
    for feature in raw.observation.values():
        if feature.kind == "vector" or (codes and feature.kind == "codes"):
            yield from feature.columns


def _numbers(columns: Iterable[Column]) -> Iterator[tuple[str, Values]]:
    """Name and finite values of each column, or of each dimension of a wide one."""
    for column in columns:
        usable = None if column.usable.all() else column.usable
        for name, whole in _whole((column,)):
            values = whole if usable is None else whole[usable]
            finite = np.isfinite(values)
            yield name, values if finite.all() else values[finite]


def _whole(columns: Iterable[Column]) -> Iterator[tuple[str, Values]]:
    """Name and values [N] of each column, or of each dimension of a wide one."""
    for column in columns:
        wide = column.values.reshape(len(column.values), -1)
        for position in range(wide.shape[1]):
            yield f"{column.name}[{position}]" if wide.shape[1] > 1 else column.name, wide[:, position]


def _constant(values: Values) -> bool:
    return len(values) > 1 and bool(values.min() == values.max())


def _named(names: list[str], count: int | None = None) -> str:
    more = (count or len(names)) - 5
    return ", ".join(names[:5]) + (f" and {more:,} more" if more > 0 else "")
