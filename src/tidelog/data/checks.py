"""Errors, which make a log unusable: one function per check; all checks run and give one report."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from tidelog.data.declared import DeclarationError, check_strata, probabilities_of, strata_of
from tidelog.data.raw import Column, Finding, RawLog, Values, check

_LARGEST = float(np.finfo(np.float32).max)
_AT_ONCE = 1_000_000  # numbers compared at once
_PLAUSIBLE = 100_000
_PER_CODE = 100
CODES_FIX = "correct the code, or write the codes as text, which are numbered"


@check("empty log", "error")
def empty_log(raw: RawLog) -> Iterable[Finding]:
    """There is no row."""
    if raw.rows == 0:
        yield Finding(None, None, "no rows", "at least one decision", "check the path and how the log was exported")


@check("wrong length", "error")
def wrong_length(raw: RawLog) -> Iterable[Finding]:
    """An array, a mask or a list of bounds has a length that does not fit the log."""
    if raw.action is None or raw.rows == 0:
        return
    width = raw.action.values.shape[1]
    declared = len(raw.action.sizes or ()) or len((raw.action.bounds or ((),))[0])
    if declared and declared != width:
        found = f"{width} action columns, but {declared} were declared"
        yield Finding("action", None, found, "as many as declared", "correct actions= or bounds=")
    for name, mask in _masks(raw):
        allowed = mask.values.shape[1] if mask.values.ndim == 2 else 1
        count = action_count(raw) if raw.action.kind == "discrete" else allowed
        if raw.action.kind != "discrete" or allowed != count:
            found = f"{allowed} flags per row for a {raw.action.kind} action" + (
                f" of {count}" if count != allowed else ""
            )
            yield Finding(name, None, found, "one flag for each discrete action", "give one flag per action or no mask")


@check("changing shapes", "error")
def changing_shapes(raw: RawLog) -> Iterable[Finding]:
    """Rows of one column have different shapes, or too many axes."""
    for column in (*raw.columns(), *_next_columns(raw)):
        if len(column.odd):
            yield Finding(
                column.name, column.odd, "lists of another length", column.expects, "give every row the same shape"
            )
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
    observed = [column for feature in raw.observation.values() for column in feature.columns]
    for column in raw.columns():
        if len(column.missing) and column is not raw.next_action_mask:
            drop = f"drop_rows_without = {json.dumps([column.name], ensure_ascii=False)} in the mapping"
            fix = f"fill the cells, or leave these rows out: {drop}" if raw.from_table else advice
            if any(column is one for one in raw.reward or ()):
                fix = (
                    'if they earn nothing, add "" = 0.0 to `reward_values`; else fill them; '
                    "to clone the decisions only (algorithm bc), leave reward out of the mapping"
                )
            if any(column is one for one in observed):
                name = json.dumps(column.name, ensure_ascii=False)
                fix = f'set missing = {{ {name} = "mean+flag" }} in the mapping, or "forward"; or {advice}'
            yield Finding(column.name, column.missing, "empty cells", "a value in every row", fix)
    for column in _next_columns(raw):
        partial = column.missing[raw.followed[column.missing]]
        if len(partial):
            expected = "a complete next observation, or none"
            yield Finding(column.name, partial, "empty cells in a partly filled next observation", expected, advice)


@check("non-numeric text", "error")
def non_numeric_text(raw: RawLog) -> Iterable[Finding]:
    """A column of numbers, flags or times holds other text."""
    acted = raw.action.columns if raw.action is not None else ()
    for column in (*raw.columns(), *_next_columns(raw)):
        if len(column.unreadable):
            found = ", ".join(map(repr, dict.fromkeys(column.texts[:3])))
            advice = "correct the cells"
            if column is raw.time:
                advice = 'set the format of the times in the mapping, as in date_format = "%d.%m.%Y %H:%M"'
            elif any(column is one for one in acted):
                advice = "correct the cells; if they are codes, some of them numbers, name it in `categorical`"
            elif any(column is one for one in raw.reward or ()):
                advice = "correct the cells; give words a reward in `reward_values`, as in { good = 1.0, bad = 0.0 }"
            elif column is not raw.propensity and column is not raw.weight:
                advice = "correct the cells; if the column holds categories, name it in `categorical`"
            yield Finding(column.name, column.unreadable, found, column.expects, advice)


@check("NaN or infinity", "error")
def not_finite(raw: RawLog) -> Iterable[Finding]:
    """A number is NaN, infinite, or too large for 32 bits."""
    for column in (*raw.columns(), *_next_columns(raw)):
        if column.values.dtype.kind not in "fM":
            continue
        values = column.values
        if values.dtype.kind == "M":
            finite = ~np.isnat(values)
        else:  # every finite number of 16 bits is one of 32 bits
            finite = np.isfinite(values) if values.itemsize == 2 else np.abs(values) <= _LARGEST
        bad = ~finite.reshape(raw.rows, -1).all(axis=1) & column.usable
        if bad.any():
            found = first_values(column.values[bad][~finite[bad]])
            advice = "correct the values or their export"
            yield Finding(column.name, np.flatnonzero(bad), found, "finite numbers", advice)


@check("flag neither true nor false", "error")
def bad_flag(raw: RawLog) -> Iterable[Finding]:
    """A flag of an end or of a mask is a number other than 0 and 1."""
    for column in (raw.terminated, raw.truncated, raw.action_mask, raw.next_action_mask):
        if column is None:
            continue
        values = column.values.reshape(len(column.values), -1)
        bad = ~np.isin(values, (0, 1)).all(axis=1) & np.isfinite(values.astype(np.float64)).all(axis=1) & column.usable
        if bad.any():
            odd = values[bad][~np.isin(values[bad], (0, 1))]
            yield Finding(column.name, np.flatnonzero(bad), first_values(odd), "0 or 1", "give flags, not counts")


@check("code out of range", "error")
def code_out_of_range(raw: RawLog) -> Iterable[Finding]:
    """A categorical code is negative, or not below the declared number of categories."""
    for feature in (*raw.observation.values(), *raw.next_observation.values()):
        if feature.kind == "codes":
            for column in feature.columns:
                values = column.values.reshape(len(column.values), -1)
                top = np.asarray(feature.sizes or (np.iinfo(np.int32).max,))
                bad = ((values < 0) | (values >= top)).any(axis=1)
                if bad.any():
                    found = first_values(values[bad].min(axis=1))
                    yield Finding(
                        column.name, np.flatnonzero(bad), found, "codes from 0", "recode, or categorical=False"
                    )


@check("sparse codes", "error")
def sparse_codes(raw: RawLog) -> Iterable[Finding]:
    """Codes without a declared number are far apart, as after a typing error: every code below the largest counts."""
    action = raw.action
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
    for place in range(values.shape[1]):
        codes = values[:, place]
        most = most_codes(codes[column.usable])
        bad = (codes >= most) & column.usable
        if bad.any():
            found = f"codes such as {first_values(np.clip(codes[bad], 0, 2**62).astype(np.int64))}"
            yield Finding(column.name, np.flatnonzero(bad), found, f"codes below {most:,}", advice)


def most_codes(codes: Values) -> int:
    """The number of codes from 0 that is plausible for logged codes [N]: 100,000, or 100 times the different ones."""
    if not len(codes) or codes.max() < _PLAUSIBLE:
        return _PLAUSIBLE
    return max(_PLAUSIBLE, _PER_CODE * len(np.unique(codes)))


@check("action out of range", "error")
def action_out_of_range(raw: RawLog) -> Iterable[Finding]:
    """A discrete action is not a whole number, is negative, or is not below the number of actions."""
    if raw.action is None or raw.action.kind == "continuous" or raw.rows == 0:
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
    if bad.any():
        declared = raw.action.sizes is not None or raw.action_mask is not None
        expected = f"whole numbers from 0 to {first_values(sizes - 1)}" if declared else "whole numbers from 0"
        advice = "count actions from 0 and declare actions=n; for continuous actions declare bounds=(low, high)"
        yield Finding(action_name(raw), np.flatnonzero(bad), first_values(values[bad]), expected, advice)


@check("action out of bounds", "error")
def action_out_of_bounds(raw: RawLog) -> Iterable[Finding]:
    """A continuous action lies outside the declared bounds."""
    if raw.action is None or raw.action.bounds is None or len(raw.action.bounds[0]) != raw.action.values.shape[1]:
        return
    low, high = (np.asarray(end, np.float32) for end in raw.action.bounds)
    values = np.clip(raw.action.values, -_LARGEST, _LARGEST).astype(np.float32)
    outside = (values < low) | (values > high)
    bad = outside.any(axis=1) & raw.action.usable
    if bad.any():
        found, expected = (
            first_values(values[bad][outside[bad]]),
            f"between {first_values(low)} and {first_values(high)}",
        )
        yield Finding(action_name(raw), np.flatnonzero(bad), found, expected, "widen bounds= or correct the actions")


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
    if bad.any():
        found = f"actions {first_values(action.values[bad])} where the mask forbids them"
        yield Finding(
            mask.name, np.flatnonzero(bad), found, "a mask that allows the logged action", "align mask and actions"
        )


@check("mask allows nothing", "error")
def mask_allows_nothing(raw: RawLog) -> Iterable[Finding]:
    """A row's mask forbids every action."""
    for name, mask in _masks(raw):
        bad = (mask.values == 0).reshape(len(mask.values), -1).all(axis=1) & mask.usable
        if name == "next_action_mask":
            terminated = np.zeros(raw.rows, bool)
            terminated[raw.order.rows] = raw.flags.terminated
            bad &= ~terminated
        if bad.any():
            yield Finding(mask.name, np.flatnonzero(bad), "no action allowed", "at least one", "correct the mask")


@check("propensity out of range", "error")
def propensity_out_of_range(raw: RawLog) -> Iterable[Finding]:
    """A propensity is not positive, or above 1 where actions are discrete (a density may be)."""
    if raw.propensity is None:
        return
    values = raw.propensity.values
    discrete = raw.action is not None and raw.action.kind != "continuous"
    bad = ((values <= 0) | (discrete & (values > 1))) & raw.propensity.usable & np.isfinite(values)
    if bad.any():
        expected = "above 0 and at most 1" if discrete else "above 0"
        advice = "log the probability of the logged action under the logging policy"
        yield Finding(raw.propensity.name, np.flatnonzero(bad), first_values(values[bad]), expected, advice)


@check("declared propensities", "error")
def declared_propensities(raw: RawLog) -> Iterable[Finding]:
    """Declared propensities do not fit the actions, do not sum to 1, or are shares in strata of fewer than ten rows."""
    if raw.declared is None or raw.action is None or raw.rows == 0:
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
    elif raw.action.usable.all() and not any(map(_unusable, raw.strata)):
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


def _unusable(column: Column) -> bool:
    return column.values.ndim != 1 or not column.usable.all()


@check("negative weight", "error")
def negative_weight(raw: RawLog) -> Iterable[Finding]:
    """A row's weight is below 0."""
    if raw.weight is not None:
        bad = (raw.weight.values < 0) & raw.weight.usable
        if bad.any():
            found = first_values(raw.weight.values[bad])
            yield Finding(raw.weight.name, np.flatnonzero(bad), found, "0 or more", "correct the weights")


@check("duplicate step", "error")
def duplicate_step(raw: RawLog) -> Iterable[Finding]:
    """Two rows of one episode have the same step."""
    if raw.step is not None and raw.order.tied.any():
        at = raw.order.rows[raw.order.tied]
        found = f"an earlier row has the same episode and step ({first_values(raw.step.values[at])})"
        advice = "remove copied rows, or set step= to a column that counts the rows of each episode"
        yield Finding(raw.step.name, at, found, "one row for each step of an episode", advice)


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
    firsts = np.flatnonzero(np.append(True, raw.order.last[:-1]))[raw.order.episode]
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
    """A row's next observation is not the observation of the row that follows it in the episode."""
    for name, feature in raw.next_observation.items():
        for now, following in zip(raw.observation[name].columns, feature.columns, strict=True):
            if now.values.shape == following.values.shape:
                yield from _contradictions(raw, now, following, following.usable & raw.followed)


@check("next mask contradicts the following row", "error")
def next_mask_contradicts(raw: RawLog) -> Iterable[Finding]:
    """A row's next mask is not the mask of the row that follows it in the episode."""
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
    chunk = max(1, _AT_ONCE // max(1, now.values[0:1].size))
    differing = [
        differences(following.values[rows[at : at + chunk]], now.values[after[at : at + chunk]])
        for at in range(0, len(rows), chunk)
    ]
    bad = np.concatenate(differing) & known
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


def differences(stated: Values, actual: Values) -> Values:
    """[B] bool: rows whose numbers differ by more than rounding errors."""
    stated, actual = clip_finite(stated), clip_finite(actual)
    differs = np.abs(stated - actual) > 1e-6 * np.maximum(1.0, np.abs(actual))
    rows: Values = differs.reshape(len(stated), -1).any(axis=1)
    return rows


def _masks(raw: RawLog) -> Iterable[tuple[str, Column]]:
    both = (("action_mask", raw.action_mask), ("next_action_mask", raw.next_action_mask))
    return [(name, mask) for name, mask in both if mask is not None]


def _next_columns(raw: RawLog) -> Iterable[Column]:
    return [column for feature in raw.next_observation.values() for column in feature.columns]


def action_name(raw: RawLog) -> str:
    """The names of the action's columns as text."""
    return ", ".join(column.name for column in raw.action.columns) if raw.action else "action"


def clip_finite(values: Values) -> Values:
    """Clip to finite float64 numbers; avoids overflow warnings for values that another check reports."""
    return np.clip(np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0), -_LARGEST, _LARGEST)


def first_values(values: Values) -> str:
    """The first three different values as text."""
    flat = np.asarray(values).reshape(-1)
    distinct = list(dict.fromkeys(flat[:1000].tolist()))
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in distinct[:3])
