"""Warnings and notes: said, and passed over. One function a check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Column, Finding, RawLog
from tidelog.data.core.registry import check
from tidelog.data.validation.errors import action_count, some, tame

_FEW_EPISODES = 10
_LARGE = 1e4
_SMALL = 1e-4
_MANY_WORDS = 100
_MOST_ACTIONS = 2**31
_RARE_ROWS = 10
_RARE_SHARE = 0.001
_LONG = 10.0
_ENOUGH = 10
_SAMPLE = 1_000


@check("both flags set", "warning")
def both_flags(raw: RawLog) -> Iterable[Finding]:
    """A row is terminated and truncated; terminated wins."""
    if raw.flags.both.any():
        at = raw.order.rows[raw.flags.both]
        advice = "nothing, if the world did end there; terminated wins, and nothing is bootstrapped from"
        yield Finding(None, at, "terminated and truncated on one row", "one of them", advice)


@check("unordered rows", "warning")
def unordered_rows(raw: RawLog) -> Iterable[Finding]:
    """Rows were sorted by episode and step."""
    moved = raw.order.rows != np.arange(raw.rows)
    if moved.any():
        found, expected = "rows out of order, which were sorted", "episodes one after another, steps rising"
        yield Finding(None, np.flatnonzero(moved), found, expected, "nothing, if episode= and step= are right")


@check("no end flag", "warning")
def no_end_flag(raw: RawLog) -> Iterable[Finding]:
    """An episode stops without either flag, and counts as truncated at its last row."""
    if raw.flags.assumed.any():
        at = raw.order.rows[raw.flags.assumed]
        found = f"{len(at):,} of {len(raw.order.ids):,} episodes stop without a flag; truncated is assumed"
        advice = "name terminated= or truncated=; terminated=True says that the world ended every episode"
        yield Finding(None, at, found, "terminated or truncated on each last row", advice)


@check("no bootstrap target", "warning")
def no_bootstrap_target(raw: RawLog) -> Iterable[Finding]:
    """Nothing is known after a truncated last row: it is kept for cloning and statistics, not for value learning."""
    followed = raw.order.sort(raw.followed)
    lost = raw.order.last & ~raw.flags.terminated & ~followed
    if lost.any():
        found = f"{int(lost.sum()):,} rows are kept for cloning and statistics, not used as targets of value learning"
        advice = "add a next_observation column, or the following row"
        yield Finding(None, raw.order.rows[lost], found, "what was seen after a truncated row", advice)


@check("terminations ignored", "warning")
def terminations_ignored(raw: RawLog) -> Iterable[Finding]:
    """The mapping says that terminated rows count as truncated."""
    if raw.terminations == "ignore" and raw.terminated is not None:
        at = np.flatnonzero((raw.terminated.values == 1) & raw.terminated.usable)
        found = f"terminations='ignore': {len(at):,} terminated flags do not stop bootstrapping"
        yield Finding(
            raw.terminated.name, at, found, "a task of fixed length", "terminations='stop' if the world ends episodes"
        )


@check("no reward", "note")
def no_reward(raw: RawLog) -> Iterable[Finding]:
    """The mapping names no reward: only cloning can learn from the log."""
    if raw.reward is None and all(finding.column != "reward" for _, finding in raw.found):
        yield Finding(None, None, "no reward", "a reward, for all but cloning", "name reward= if there is one")


@check("constant reward", "warning")
def constant_reward(raw: RawLog) -> Iterable[Finding]:
    """Every reward is the same number."""
    for name, values in _numbers(raw.reward or ()):
        if _constant(values):
            yield Finding(
                name, None, f"every reward is {values[0]:g}", "rewards that differ", "check which column is named"
            )


@check("equal episode returns", "warning")
def equal_returns(raw: RawLog) -> Iterable[Finding]:
    """Rewards differ, but they sum to the same number in every episode of several steps."""
    count = len(raw.order.ids)
    if raw.episode is None or count < 2:
        return
    starts = np.flatnonzero(np.append(True, raw.order.last[:-1]))
    for column in raw.reward or ():
        rewards = tame(raw.order.sort(column.values)).reshape(raw.rows, -1)
        returns = np.add.reduceat(rewards, starts, axis=0)
        sizes = np.add.reduceat(np.abs(rewards), starts, axis=0).max(axis=0)
        same = np.ptp(returns, axis=0) <= 1e-9 * sizes
        if (same & (np.ptp(rewards, axis=0) > 0)).any():
            found = f"all {count:,} episodes return {some(returns[0])}"
            advice = "check the reward: episodes that all end equally well teach only by when they are rewarded"
            yield Finding(column.name, None, found, "returns that differ", advice)


@check("one action only", "warning")
def one_action_only(raw: RawLog) -> Iterable[Finding]:
    """Every action, or every value of one action dimension, is the same."""
    for name, values in _numbers(raw.action.columns if raw.action else ()):
        if _constant(values):
            found = f"every action is {values[0]:g}"
            yield Finding(name, None, found, "actions that differ", "nothing can be learned about other actions")


@check("constant observation column", "warning")
def constant_column(raw: RawLog) -> Iterable[Finding]:
    """An observation column never changes."""
    constant = [name for name, values in _observed(raw) if _constant(values)]
    if constant:
        found = f"{len(constant)} of {len(list(_observed(raw)))} columns never change: {_named(constant)}"
        yield Finding(_named(constant), None, found, "columns that vary", "leave them out, or check the export")


@check("duplicated observation columns", "warning")
def duplicated_columns(raw: RawLog) -> Iterable[Finding]:
    """Two observation columns hold the same values in every row."""
    groups: dict[bytes, list[tuple[str, Values]]] = {}
    for name, values in _observed(raw):
        if not _constant(values):
            groups.setdefault(_sample(values).tobytes(), []).append((name, values))
    for (original, first), *others in groups.values():
        copies = [name for name, values in others if np.array_equal(values, first)]
        if copies:
            found = f"the same values as in '{original}'"
            yield Finding(_named(copies), None, found, "columns that say different things", "leave the copies out")


@check("extreme scale", "warning")
def extreme_scale(raw: RawLog) -> Iterable[Finding]:
    """An observation column reaches beyond 10,000, or never beyond 0.0001."""
    reach = {name: _reach(values) for name, values in _observed(raw, codes=False)}
    large = [name for name, top in reach.items() if top > _LARGE]
    small = [name for name, top in reach.items() if 0 < top < _SMALL]
    for names, said in ((large, f"beyond {_LARGE:,.0f}"), (small, f"no further than {_SMALL:g}")):
        if names:
            found, advice = f"columns that reach {said}", "standardise observations (scale=) or choose other units"
            yield Finding(_named(names), None, f"{len(names)} {found}", "numbers of about one", advice)


@check("suspicious leak", "warning")
def suspicious_leak(raw: RawLog) -> Iterable[Finding]:
    """An observation column is the row's reward or action in every row, or the reward of the row before."""
    before = np.flatnonzero(~raw.order.last)
    expected = "what was seen before the action"
    for role, told, column in _outcomes(raw):
        for name, values in _whole(one for one in _observed_columns(raw) if one.words == column.words):
            if _equal(values, told, raw.order.rows, raw.order.rows):
                found = f"the same values as {role} '{column.name}' of the same row"
                yield Finding(name, None, found, expected, "leave the column out")
            elif role == "reward" and _equal(values, told, raw.order.rows[1:], raw.order.rows, before):
                found = f"reward '{column.name}' of the row before"
                yield Finding(name, None, found, expected, "leave the column out, unless the policy sees it in time")


@check("unbalanced actions", "warning")
def unbalanced_actions(raw: RawLog) -> Iterable[Finding]:
    """An action is never taken, or far less often than others: in fewer than 10 rows or 0.1 % of them."""
    if raw.action is None or raw.action.kind == "continuous":
        return
    sizes = raw.action.sizes if raw.action.kind == "multi" else (action_count(raw),)
    for place, (name, values) in enumerate(_numbers(raw.action.columns)):
        known = tame(values)
        size = sizes[place] if sizes and place < len(sizes) else int(known.max(initial=0)) + 1
        taken = known[(known >= 0) & (known < min(size, _MOST_ACTIONS))].astype(np.int64)
        if len(taken) and taken.min() < taken.max():
            yield from _unbalanced(name, *np.unique(taken, return_counts=True), size, raw.action.columns[0].words)


@check("few episodes", "warning")
def few_episodes(raw: RawLog) -> Iterable[Finding]:
    """There are fewer than ten episodes."""
    count = len(raw.order.ids)
    if 0 < count < _FEW_EPISODES:
        advice = "name episode= if rows belong together differently; intervals over so few episodes are wide"
        yield Finding(None, None, f"{count} episodes", f"at least {_FEW_EPISODES}", advice)


@check("gap in steps", "warning")
def gap_in_steps(raw: RawLog) -> Iterable[Finding]:
    """Steps within an episode jump by more than usual, as if rows were missing."""
    if raw.step is None or raw.episode is None or raw.order.key is None or raw.rows < 2:
        return
    jump = np.diff(tame(raw.order.key))
    inside = ~raw.order.last[:-1]
    usual = np.median(jump[inside]) if inside.any() else 0.0
    gap = inside & (jump > 1.5 * usual)
    if gap.any():
        found, expected = f"jumps of {some(jump[gap])}", f"steps of {usual:g}"
        advice = "add the missing rows; what follows such a gap counts as the next observation"
        yield Finding(raw.step.name, raw.order.rows[1:][gap], found, expected, advice)


@check("gap in time", "warning")
def gap_in_time(raw: RawLog) -> Iterable[Finding]:
    """A step within an episode took ten times longer than the median step."""
    jump, inside = _elapsed(raw)
    usual = float(np.median(jump[inside & (jump > 0)])) if (inside & (jump > 0)).any() else 0.0
    long = inside & (jump > _LONG * usual) & (usual > 0)
    if raw.time is not None and long.any():
        found, expected = f"steps of up to {_spoken(raw, jump[long].max())}", f"about {_spoken(raw, usual)} as usual"
        advice = "add the missing rows, or split the episodes there; one decision counts as one step of discount"
        yield Finding(raw.time.name, raw.order.rows[1:][long], found, expected, advice)


@check("time runs backwards", "warning")
def time_backwards(raw: RawLog) -> Iterable[Finding]:
    """A row is later in its episode by step, and earlier by time."""
    jump, inside = _elapsed(raw)
    back = inside & (jump < 0)
    if raw.time is not None and back.any():
        advice = "correct step= or time=; the rows stand in the order of the steps"
        yield Finding(raw.time.name, raw.order.rows[1:][back], "earlier than the row before", "times that rise", advice)


@check("many words", "warning")
def many_words(raw: RawLog) -> Iterable[Finding]:
    """A categorical column has almost as many words as there are rows."""
    for feature in raw.observation.values():
        for column in feature.columns:
            count = len(column.words or ())
            if count > _MANY_WORDS and count > raw.rows / 2:
                found, expected = f"{count:,} different words in {raw.rows:,} rows", "words that come again"
                yield Finding(column.name, None, found, expected, "leave out identities, dates and free text")


@check("actions inferred", "note")
def actions_inferred(raw: RawLog) -> Iterable[Finding]:
    """The number of actions was not declared; it is one more than the largest seen, or the number of words."""
    if raw.action is None or raw.action.sizes is not None or raw.action.kind == "continuous" or raw.rows == 0:
        return
    values = tame(raw.action.values)
    sizes = [action_count(raw)] if raw.action.kind == "discrete" else (values.max(axis=0).astype(int) + 1).tolist()
    found = f"{', '.join(map(str, sizes))} actions, inferred from the log"
    yield Finding(
        _action_columns(raw), None, found, "a declared number of actions", "declare actions= if there are more"
    )


@check("bounds inferred", "note")
def bounds_inferred(raw: RawLog) -> Iterable[Finding]:
    """Bounds were not declared; they are the smallest and the largest action seen."""
    if raw.action is None or raw.action.bounds is not None or raw.action.kind != "continuous" or raw.rows == 0:
        return
    values = tame(raw.action.values)
    found = f"actions from {some(values.min(axis=0))} to {some(values.max(axis=0))}, taken as the bounds"
    yield Finding(
        _action_columns(raw), None, found, "declared bounds", "declare bounds=(low, high) if more is possible"
    )


@check("rounded to 32 bits", "note")
def rounded(raw: RawLog) -> Iterable[Finding]:
    """Arrays of 64-bit numbers were rounded to 32 bits."""
    if raw.from_table:
        return
    wide = [column.name for column in _float_columns(raw) if column.values.dtype == np.float64]
    if wide:
        found = "64-bit numbers, rounded to 32 bits"
        yield Finding(_named(wide), None, found, "32-bit numbers", "nothing, unless digits beyond the seventh matter")


def _unbalanced(
    name: str, taken: Values, counts: Values, size: int, words: tuple[str, ...] | None
) -> Iterator[Finding]:
    """Actions of one dimension that were never taken (of `size`), and those `taken` that are rare by `counts`."""
    spoken = (lambda action: words[action]) if words else str
    rows = int(counts.sum())
    rare = taken[((counts < _RARE_ROWS) | (counts < _RARE_SHARE * rows)) & (counts < 0.1 * rows / size)]
    lacking = size - len(taken)
    if lacking:
        first = np.setdiff1d(np.arange(min(size, len(taken) + 6)), taken)[:6].tolist()
        found = f"{lacking:,} of {size:,} actions never taken: {_named(list(map(spoken, first)), lacking)}"
        advice = "declare only actions that the log shows, mask the others, or stay near the log"
        yield Finding(name, None, found, "every action in the log", advice)
    if len(rare):
        found = f"{len(rare):,} of {size:,} actions in very few rows: {_named(list(map(spoken, rare.tolist())))}"
        yield Finding(name, None, found, "at least ten rows of each", "join rare actions, or do not trust their values")


def _outcomes(raw: RawLog) -> Iterator[tuple[str, Values, Column]]:
    """Role, numbers [N] and column of each reward and of a single action."""
    single = raw.action.columns if raw.action is not None and raw.action.values.shape[1] == 1 else ()
    for role, columns in (("reward", raw.reward or ()), ("action", single)):
        for column in columns:
            for _, values in _whole((column,)):
                yield role, values, column


def _equal(values: Values, told: Values, after: Values, before: Values, chosen: Values | None = None) -> bool:
    """Whether values at rows `after` are those told at `before`, in at least ten of the chosen, and not constant."""
    if len(before if chosen is None else chosen) < _ENOUGH:
        return False
    for few in (slice(_SAMPLE), slice(None)):
        at = few if chosen is None else chosen[few]
        if not np.array_equal(values[after[at]], told[before[at]]):
            return False
    return not _constant(told[before[at]])


def _elapsed(raw: RawLog) -> tuple[Values, Values]:
    """[N - 1] time from each row to the following, in episode order, and whether both are known and of one episode."""
    if raw.time is None or raw.rows < 2:
        return np.zeros(0), np.zeros(0, bool)
    known = raw.order.sort(raw.time.usable)
    return np.diff(tame(raw.order.sort(raw.time.values))), ~raw.order.last[:-1] & known[1:] & known[:-1]


def _spoken(raw: RawLog, elapsed: float) -> str:
    dates = raw.time is not None and raw.time.values.dtype.kind == "M"
    return str(timedelta(microseconds=elapsed)) if dates else f"{elapsed:g}"


def _float_columns(raw: RawLog) -> Iterator[Column]:
    for feature in raw.observation.values():
        yield from feature.columns
    yield from raw.action.columns if raw.action is not None else ()
    yield from raw.reward or ()


def _observed(raw: RawLog, codes: bool = True) -> Iterator[tuple[str, Values]]:
    yield from _numbers(_observed_columns(raw, codes))


def _observed_columns(raw: RawLog, codes: bool = True) -> Iterator[Column]:
    """Observation columns of numbers and codes; pictures are none."""
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
        for place in range(wide.shape[1]):
            yield f"{column.name}[{place}]" if wide.shape[1] > 1 else column.name, wide[:, place]


def _reach(values: Values) -> float:
    return max(-float(values.min()), float(values.max())) if len(values) else 0.0


def _sample(values: Values) -> Values:
    """About a thousand values, evenly taken, as float64: equal for equal columns."""
    return values[:: max(1, len(values) // _SAMPLE)].astype(np.float64)


def _constant(values: Values) -> bool:
    return len(values) > 1 and bool(values.min() == values.max())


def _named(names: list[str], count: int | None = None) -> str:
    more = (count or len(names)) - 5
    return ", ".join(names[:5]) + (f" and {more:,} more" if more > 0 else "")


def _action_columns(raw: RawLog) -> str:
    return ", ".join(column.name for column in raw.action.columns) if raw.action else "action"
