"""Checks of interactions: errors, which make them unusable, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Column, Finding
from tidelog.data.core.registry import CHECKS, Check, check, report_of
from tidelog.data.core.report import Report
from tidelog.data.core.rounding import LOST, ROUNDED, rounded_rewards
from tidelog.data.io.table_fields import holds_several_numbers
from tidelog.data.validation.errors import first_values
from tidelog.recommend.interactions.tables import RawInteractions

INTERACTION_CHECKS: dict[str, Check] = {}
_LARGEST = float(np.finfo(np.float32).max)
_EPOCH = 1e8  # larger numbers are seconds since 1970, or fractions of seconds
_OUTSIDE = 0.005  # largest share of events that counts as far outside the others, at each end
_FEWEST_TIMES = 20  # times from which on some can be far outside the others
_UNITS = 300.0  # largest ratio of two such numbers of one unit
INTERACTION_CHECKS["unusable features"] = Check(
    "unusable features", "error", "A feature table of items or users has unusable cells or columns."
)


def examine(raw: RawInteractions) -> Report:
    """Run every check and return one report; for an empty log only the check for rows runs."""
    return report_of(raw, findings(raw))


def findings(raw: RawInteractions) -> list[tuple[Check, Finding]]:
    """The findings of the reader and of every check, each with all its rows."""
    known = CHECKS | INTERACTION_CHECKS
    results = [(known[name], finding) for name, finding in raw.found]
    for one in INTERACTION_CHECKS.values():
        if one.run is not None and (raw.rows or (one.name == "no events" and not raw.found)):
            results += [(one, finding) for finding in one.run(raw)]
    return results


# Errors.


@check("no events", "error", INTERACTION_CHECKS)
def no_events(raw: RawInteractions) -> Iterable[Finding]:
    """There is no row."""
    if raw.rows == 0:
        yield Finding(None, None, "no rows", "at least one event", "check the path and how the log was exported")


@check("empty cell", "error", INTERACTION_CHECKS)
def empty_cell(raw: RawInteractions) -> Iterable[Finding]:
    """A user, an item, a time, or another named column has an empty cell."""
    for column in raw.columns():
        if len(column.missing):
            advice = "fill the cells, or remove these rows before reading"
            yield Finding(column.name, column.missing, "empty cells", "a value in every row", advice)


@check("unreadable cell", "error", INTERACTION_CHECKS)
def unreadable_cell(raw: RawInteractions) -> Iterable[Finding]:
    """A time, a reward or a propensity is text of another format."""
    for column in raw.columns():
        if len(column.unreadable):
            found = ", ".join(repr(text) for text in column.texts[:3])
            yield Finding(column.name, column.unreadable, found, column.expects, "correct the cells")


@check("number not finite", "error", INTERACTION_CHECKS)
def number_not_finite(raw: RawInteractions) -> Iterable[Finding]:
    """A time, a reward or a propensity is NaN, infinite, or too large for 32 bits."""
    for column in (raw.time, raw.reward, raw.propensity):
        if column is None or column.values.dtype.kind not in "fM":
            continue
        finite = ~np.isnat(column.values) if column.values.dtype.kind == "M" else np.isfinite(column.values)
        if column is raw.reward:
            finite = finite & (np.abs(column.values) <= _LARGEST)
        bad = ~finite & column.usable
        if bad.any():
            advice = "correct the values or their export"
            yield Finding(column.name, np.flatnonzero(bad), first_values(column.values[bad]), "finite numbers", advice)


@check(LOST, "error", INTERACTION_CHECKS)
def rewards_lost(raw: RawInteractions) -> Iterable[Finding]:
    """Storage in 32 bits changes rewards by a tenth of their spread or more."""
    yield from (finding for name, finding in _rounded(raw) if name == LOST)


@check(ROUNDED, "warning", INTERACTION_CHECKS)
def rewards_rounded(raw: RawInteractions) -> Iterable[Finding]:
    """Storage in 32 bits changes rewards by a hundredth of their spread or more."""
    yield from (finding for name, finding in _rounded(raw) if name == ROUNDED)


def _rounded(raw: RawInteractions) -> list[tuple[str, Finding]]:
    if isinstance(raw.roles.reward, Mapping):
        named = raw.event
        if named is None or not named.vocabulary:
            return []
        worth = np.asarray([raw.roles.reward.get(word, 0.0) for word in named.vocabulary], np.float64)
        return rounded_rewards(replace(named, values=worth[named.values]))
    return [] if raw.reward is None else rounded_rewards(raw.reward)


@check("times in mixed units", "error", INTERACTION_CHECKS)
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


@check("unknown event", "error", INTERACTION_CHECKS)
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


@check("propensity not in (0, 1]", "error", INTERACTION_CHECKS)
def bad_propensity(raw: RawInteractions) -> Iterable[Finding]:
    """A propensity is not positive, or above 1."""
    if raw.propensity is not None:
        values = raw.propensity.values
        bad = ((values <= 0) | (values > 1)) & raw.propensity.usable & np.isfinite(values)
        if bad.any():
            advice = "log the probability of showing this item"
            found = first_values(values[bad])
            yield Finding(raw.propensity.name, np.flatnonzero(bad), found, "above 0 and at most 1", advice)


@check("item not in its slate", "error", INTERACTION_CHECKS)
def item_not_shown(raw: RawInteractions) -> Iterable[Finding]:
    """The slate does not contain the chosen item."""
    if raw.slate is None or raw.item is None:
        return
    bad = ~(raw.slate == raw.item.values[:, None] + 1).any(axis=1) & raw.item.usable
    if bad.any():
        found = f"item {first_values(raw.catalogue[raw.item.values[bad]])} is not in its slate"
        advice = "align items and slates; a slate holds all shown items, including the chosen one"
        yield Finding(raw.roles.slate, np.flatnonzero(bad), found, "the item among the shown items", advice)


@check("one item only", "error", INTERACTION_CHECKS)
def one_item_only(raw: RawInteractions) -> Iterable[Finding]:
    """Every event has the same item: there is no choice."""
    if raw.item is not None and len(raw.catalogue) == 1 and raw.rows:
        found = f"one item only, {raw.catalogue[0]!s}"
        yield Finding(raw.item.name, None, found, "at least two items", "check the column of the item")


@check("ids without features", "error", INTERACTION_CHECKS)
def ids_without_features(raw: RawInteractions) -> Iterable[Finding]:
    """A feature table has no row for an item or user of the log, or two rows."""
    pairs = ((raw.item_features, raw.catalogue, raw.item), (raw.user_features, _users(raw), raw.user))
    for described, ids, column in pairs:
        if described is None or column is None:
            continue
        known = set(described.ids.drop_nulls().to_list())
        missing = [one for one in map(str, ids.tolist()) if one not in known]
        twice = described.ids.drop_nulls().filter(described.ids.drop_nulls().is_duplicated()).unique().sort().to_list()
        for odd, state in ((missing, "have no row"), (twice, "have two rows")):
            if odd:
                found = f"{len(odd):,} ids {state} in {described.source}: {', '.join(odd[:5])}"
                yield Finding(column.name, None, found, "one row of features per id", "correct the feature table")


# Warnings.


@check("several items in a cell", "warning", INTERACTION_CHECKS)
def several_items(raw: RawInteractions) -> Iterable[Finding]:
    """Cells of items hold several numbers each: every different list counts as one item."""
    words = pl.Series(raw.catalogue.tolist(), dtype=pl.String, strict=False)
    if raw.item is None or not holds_several_numbers(words):
        return
    several = words.str.contains(r"\d\D+\d").to_numpy()
    rows = np.flatnonzero(several[raw.item.values] & raw.item.usable)
    advice = "write one row per item; `tidelog data inspect` prints the command"
    found = f"{words.filter(several)[0]!r} counts as one item"
    yield Finding(raw.item.name, rows, found, "one item in a cell", advice)


@check("repeated event", "warning", INTERACTION_CHECKS)
def repeated_event(raw: RawInteractions) -> Iterable[Finding]:
    """The same user has the same kind of event with the same item at the same time more than once; all are used."""
    if raw.user is None or raw.item is None or raw.time is None:
        return
    keys = [raw.time.values, raw.item.values, raw.user.values]
    keys += [] if raw.event is None else [raw.event.values]
    order = np.lexsort([np.arange(raw.rows), *keys])
    again = np.zeros(raw.rows, bool)
    again[order[1:]] = np.logical_and.reduce([key[order[1:]] == key[order[:-1]] for key in keys])
    again &= np.logical_and.reduce([column.usable for column in (raw.user, raw.item, raw.time)])
    if again.any():
        advice = "remove them if the export wrote rows twice; otherwise each counts"
        yield Finding(raw.item.name, np.flatnonzero(again), "copies of another event", "different events", advice)


@check("repeated in a slate", "warning", INTERACTION_CHECKS)
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


@check("unordered events", "warning", INTERACTION_CHECKS)
def unordered_events(raw: RawInteractions) -> Iterable[Finding]:
    """Events of a user are not in order of time; they were sorted."""
    if raw.time is None or raw.user is None or not raw.time.usable.all():
        return
    late = np.zeros(raw.rows, bool)
    by_user = np.argsort(raw.user.values, kind="stable")
    same = raw.user.values[by_user][1:] == raw.user.values[by_user][:-1]
    late[by_user[1:]] = same & (raw.time.values[by_user][1:] < raw.time.values[by_user][:-1])
    if late.any():
        found = "events earlier than the row above"
        yield Finding(raw.time.name, np.flatnonzero(late), found, "rising times", "nothing, if the times are right")


@check("times far outside", "warning", INTERACTION_CHECKS)
def times_far_outside(raw: RawInteractions) -> Iterable[Finding]:
    """A few events are separated from all others by a longer time than the others cover: wrong dates, as a rule."""
    if raw.time is None:
        return
    times = raw.time.values
    finite = ~np.isnat(times) if times.dtype.kind == "M" else np.isfinite(times)
    rows = np.flatnonzero(raw.time.usable & finite)
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
    for odd in (early, late):
        if len(odd):
            expected = f"times near the {len(inside):,} others, {inside[0]} to {inside[-1]}"
            found = f"{len(odd):,} of {len(rows):,} events: {first_values(times[np.sort(odd)])}"
            yield Finding(raw.time.name, np.sort(odd), found, expected, advice)


@check("events at one time", "warning", INTERACTION_CHECKS)
def events_at_one_time(raw: RawInteractions) -> Iterable[Finding]:
    """A user has several events at the same time; they keep the order of the file."""
    tied = raw.order.tied
    if raw.time is not None and tied.any():
        advice = "for a basket, the order within it has no meaning; lists are then measured by whole baskets"
        found = "the same time as another event of the user"
        yield Finding(raw.time.name, raw.order.rows[tied], found, "an order of each user's events", advice)


@check("rewards all equal", "warning", INTERACTION_CHECKS)
def rewards_all_equal(raw: RawInteractions) -> Iterable[Finding]:
    """Every event has the same reward: only the choice of items carries information."""
    worth = event_reward(raw)
    if raw.rows > 1 and worth is not None and worth.min() == worth.max():
        advice = "set reward= (a column, or the reward of each kind of event) if some events are worth more"
        yield Finding(_reward_name(raw), None, f"{worth[0]:g} in every row", "different rewards", advice)


@check("reward of unknown event", "warning", INTERACTION_CHECKS)
def reward_of_unknown_event(raw: RawInteractions) -> Iterable[Finding]:
    """The rewards name a kind of event that the log does not have."""
    if isinstance(raw.roles.reward, Mapping) and raw.event is not None and raw.event.vocabulary is not None:
        unseen = [kind for kind in raw.roles.reward if kind not in raw.event.vocabulary]
        if unseen:
            expected = f"kinds of the log: {', '.join(map(repr, raw.event.vocabulary[:8]))}"
            yield Finding(raw.event.name, None, f"no event {', '.join(map(repr, unseen))}", expected, "check its name")


@check("users without history", "warning", INTERACTION_CHECKS)
def users_without_history(raw: RawInteractions) -> Iterable[Finding]:
    """A user has only one event: there is no history to predict it from."""
    if raw.user is None or not raw.rows:
        return
    _, where, counts = np.unique(raw.user.values, return_inverse=True, return_counts=True)
    single = np.flatnonzero((counts[where] == 1) & raw.user.usable)
    if len(single):
        advice = "nothing, if they are new users; else check the column of the user"
        yield Finding(raw.user.name, single, "users with only one event", "at least two events per user", advice)


@check("no pause ends a session", "warning", INTERACTION_CHECKS)
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
    if isinstance(raw.roles.reward, str):
        return None if raw.reward is None else raw.reward.values.astype(np.float32)
    if raw.roles.reward is None:
        return np.ones(raw.rows, np.float32)
    if raw.event is None or raw.event.vocabulary is None or not raw.event.vocabulary:
        return None
    table = np.asarray([raw.roles.reward.get(word, 0.0) for word in raw.event.vocabulary], np.float32)
    worth: Values = table[raw.event.values]
    return worth


def pauses(times: Values, last: Values) -> Values:
    """[M] float64: time from each event to the user's next one, or to the end of the log; seconds for dates."""
    times = times if times.dtype.kind == "M" else times.astype(np.float64)
    steps = np.where(last, times.max(), np.roll(times, -1)) - times
    waits: Values = steps / np.timedelta64(1, "s") if times.dtype.kind == "M" else steps.astype(np.float64)
    return waits


def _reward_name(raw: RawInteractions) -> str | None:
    named: Column | None = raw.reward or (raw.event if isinstance(raw.roles.reward, Mapping) else None)
    return None if named is None else named.name


def _users(raw: RawInteractions) -> Values:
    if raw.user is None:
        return np.zeros(0, np.int64)
    return np.unique(raw.user.values) if raw.user.vocabulary is None else np.asarray(raw.user.vocabulary)
