"""Warnings and notes: said, and passed over. One function a check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tidelog.data.checks import action_count, some, tame
from tidelog.data.order import Values
from tidelog.data.raw import Column, Finding, RawLog
from tidelog.data.registry import check

_FEW_EPISODES = 10
_LARGE = 1e4
_MANY_WORDS = 100


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


@check("extreme scale", "warning")
def extreme_scale(raw: RawLog) -> Iterable[Finding]:
    """An observation column reaches beyond 10,000."""
    large = [name for name, values in _observed(raw, codes=False) if values.size and np.abs(values).max() > _LARGE]
    if large:
        found, expected = f"{len(large)} columns reach beyond {_LARGE:,.0f}", "numbers of about one"
        yield Finding(_named(large), None, found, expected, "standardise observations (scale=) or choose other units")


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


def _float_columns(raw: RawLog) -> Iterator[Column]:
    for feature in raw.observation.values():
        yield from feature.columns
    yield from raw.action.columns if raw.action is not None else ()
    yield from raw.reward or ()


def _observed(raw: RawLog, codes: bool = True) -> Iterator[tuple[str, Values]]:
    for feature in raw.observation.values():
        if codes or feature.kind == "vector":
            yield from _numbers(feature.columns)


def _numbers(columns: Iterable[Column]) -> Iterator[tuple[str, Values]]:
    """Name and finite values of each column, or of each dimension of a wide one."""
    for column in columns:
        wide = column.values.reshape(len(column.values), -1)
        for place in range(wide.shape[1]):
            values = wide[column.usable, place]
            name = f"{column.name}[{place}]" if wide.shape[1] > 1 else column.name
            yield name, values[np.isfinite(values)] if values.dtype.kind == "f" else values


def _constant(values: Values) -> bool:
    return len(values) > 1 and bool(values.min() == values.max())


def _named(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _action_columns(raw: RawLog) -> str:
    return ", ".join(column.name for column in raw.action.columns) if raw.action else "action"
