"""What the door says about interactions: errors, for each of which they are refused, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Column, Finding
from tidelog.data.core.registry import CHECKS, Check, check, report_of
from tidelog.data.core.report import Report
from tidelog.data.validation.errors import some
from tidelog.recommend.interactions.tables import RawInteractions

INTERACTION_CHECKS: dict[str, Check] = {}
_LARGEST = float(np.finfo(np.float32).max)
_EPOCH = 1e8  # numbers above it are taken for seconds, or smaller parts of them, since 1970
_UNITS = 300.0  # how far apart two such numbers may be and still be of one unit
INTERACTION_CHECKS["unusable features"] = Check(
    "unusable features", "error", "A table that describes items or users has cells or columns that say nothing."
)


def examine(raw: RawInteractions) -> Report:
    """Run every check and return one report; without rows only that is said."""
    return report_of(raw, findings(raw))


def findings(raw: RawInteractions) -> list[tuple[Check, Finding]]:
    """What the reader found and what every check finds, each with all its rows."""
    known = CHECKS | INTERACTION_CHECKS
    found = [(known[name], finding) for name, finding in raw.found]
    for one in INTERACTION_CHECKS.values():
        if one.run is not None and (raw.rows or (one.name == "no events" and not raw.found)):
            found += [(one, finding) for finding in one.run(raw)]
    return found


# Errors.


@check("no events", "error", INTERACTION_CHECKS)
def no_events(raw: RawInteractions) -> Iterable[Finding]:
    """There is no row."""
    if raw.rows == 0:
        yield Finding(None, None, "no rows", "at least one event", "check the path and how the log was exported")


@check("empty cell", "error", INTERACTION_CHECKS)
def empty_cell(raw: RawInteractions) -> Iterable[Finding]:
    """A user, an item, a time, or another column that was named has an empty cell."""
    for column in raw.columns():
        if len(column.missing):
            advice = "fill the cells, or leave these rows out before the log is read"
            yield Finding(column.name, column.missing, "empty cells", "a value in every row", advice)


@check("unreadable cell", "error", INTERACTION_CHECKS)
def unreadable_cell(raw: RawInteractions) -> Iterable[Finding]:
    """A time, a reward or a propensity is text that is none."""
    for column in raw.columns():
        if len(column.unreadable):
            found = ", ".join(repr(text) for text in column.texts[:3])
            yield Finding(column.name, column.unreadable, found, column.expects, "mend the cells")


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
            advice = "mend the values or their export"
            yield Finding(column.name, np.flatnonzero(bad), some(column.values[bad]), "finite numbers", advice)


@check("times in mixed units", "error", INTERACTION_CHECKS)
def mixed_units(raw: RawInteractions) -> Iterable[Finding]:
    """Some times are seconds since 1970 and others milliseconds, or smaller parts of a second."""
    if raw.time is None or raw.time.values.dtype.kind == "M":
        return
    values = np.where(raw.time.usable & np.isfinite(raw.time.values), np.abs(raw.time.values), 0.0).astype(np.float64)
    large = values > _EPOCH
    if not large.any() or values[large].max() / values[large].min() < _UNITS:
        return
    unit = np.round(np.log10(np.where(large, values, 1.0) / 1e9) / 3.0)  # 0 for seconds, 1 for milliseconds, ...
    kinds, counts = np.unique(unit[large], return_counts=True)
    odd = large & (unit != kinds[counts.argmax()])
    found = f"{some(raw.time.values[odd])} among times such as {some(raw.time.values[large & ~odd])}"
    advice = "bring all times to one unit: seconds, milliseconds, or dates"
    yield Finding(raw.time.name, np.flatnonzero(odd), found, "one unit for all times", advice)


@check("unknown event", "error", INTERACTION_CHECKS)
def unknown_event(raw: RawInteractions) -> Iterable[Finding]:
    """A kind of event stands in the log that the rewards do not name."""
    if raw.event is None or raw.event.words is None or not isinstance(raw.roles.reward, Mapping):
        return
    strangers = [word for word in raw.event.words if word not in raw.roles.reward]
    if strangers:
        codes = [raw.event.words.index(word) for word in strangers]
        at = np.flatnonzero(np.isin(raw.event.values, codes) & raw.event.usable)
        found, expected = ", ".join(map(repr, strangers[:5])), f"one of {', '.join(map(repr, raw.roles.reward))}"
        yield Finding(raw.event.name, at, found, expected, "say what it is worth in reward= (0 if nothing)")


@check("propensity not in (0, 1]", "error", INTERACTION_CHECKS)
def bad_propensity(raw: RawInteractions) -> Iterable[Finding]:
    """A propensity is not positive, or above 1."""
    if raw.propensity is not None:
        values = raw.propensity.values
        bad = ((values <= 0) | (values > 1)) & raw.propensity.usable & np.isfinite(values)
        if bad.any():
            advice = "log the probability with which this item was shown"
            found = some(values[bad])
            yield Finding(raw.propensity.name, np.flatnonzero(bad), found, "above 0 and at most 1", advice)


@check("item not in its slate", "error", INTERACTION_CHECKS)
def item_not_shown(raw: RawInteractions) -> Iterable[Finding]:
    """The items that were shown do not hold the one that was taken."""
    if raw.slate is None or raw.item is None:
        return
    bad = ~(raw.slate == raw.item.values[:, None] + 1).any(axis=1) & raw.item.usable
    if bad.any():
        found = f"item {some(raw.catalogue[raw.item.values[bad]])} in none of the lists beside it"
        advice = "align items and slates; a slate holds everything that was shown, also what was taken"
        yield Finding(raw.roles.slate, np.flatnonzero(bad), found, "the item among those shown", advice)


@check("one item only", "error", INTERACTION_CHECKS)
def one_item_only(raw: RawInteractions) -> Iterable[Finding]:
    """Every event is about the same item, so that there is nothing to choose."""
    if raw.item is not None and len(raw.catalogue) == 1 and raw.rows:
        found = f"one item only, {raw.catalogue[0]!s}"
        yield Finding(raw.item.name, None, found, "at least two items", "check which column names the item")


@check("ids without features", "error", INTERACTION_CHECKS)
def ids_without_features(raw: RawInteractions) -> Iterable[Finding]:
    """A table of features lacks items or users of the log, or describes one twice."""
    pairs = ((raw.item_features, raw.catalogue, raw.item), (raw.user_features, _users(raw), raw.user))
    for described, ids, column in pairs:
        if described is None or column is None:
            continue
        known = set(described.ids.drop_nulls().to_list())
        lacking = [one for one in map(str, ids.tolist()) if one not in known]
        twice = described.ids.drop_nulls().filter(described.ids.drop_nulls().is_duplicated()).unique().sort().to_list()
        for odd, said in ((lacking, "are not described"), (twice, "are described twice")):
            if odd:
                found = f"{len(odd):,} ids {said} in {described.source}: {', '.join(odd[:5])}"
                yield Finding(column.name, None, found, "one row of features an id", "mend the table of features")


# Warnings.


@check("repeated event", "warning", INTERACTION_CHECKS)
def repeated_event(raw: RawInteractions) -> Iterable[Finding]:
    """The same user took the same item in the same way at the same time, more than once; all are kept."""
    if raw.user is None or raw.item is None or raw.time is None:
        return
    keys = [raw.time.values, raw.item.values, raw.user.values]
    keys += [] if raw.event is None else [raw.event.values]
    order = np.lexsort([np.arange(raw.rows), *keys])
    again = np.zeros(raw.rows, bool)
    again[order[1:]] = np.logical_and.reduce([key[order[1:]] == key[order[:-1]] for key in keys])
    again &= np.logical_and.reduce([column.usable for column in (raw.user, raw.item, raw.time)])
    if again.any():
        advice = "remove them if the export wrote rows twice; as they stand, each counts"
        yield Finding(raw.item.name, np.flatnonzero(again), "copies of another event", "events that differ", advice)


@check("repeated in a slate", "warning", INTERACTION_CHECKS)
def repeated_in_a_slate(raw: RawInteractions) -> Iterable[Finding]:
    """A list of what was shown holds an item more than once, as lists do that are filled up to one length."""
    if raw.slate is None or raw.roles.slate is None:
        return
    placed = np.sort(raw.slate, axis=1)
    twice = (placed[:, 1:] == placed[:, :-1]) & (placed[:, 1:] > 0)
    if twice.any():
        item = raw.catalogue[int(placed[:, 1:][twice][0]) - 1]
        advice = "leave away what fills lists up: it would be an item, and could be recommended"
        yield Finding(raw.roles.slate, np.flatnonzero(twice.any(axis=1)), f"'{item}' twice", "each item once", advice)


@check("unordered events", "warning", INTERACTION_CHECKS)
def unordered_events(raw: RawInteractions) -> Iterable[Finding]:
    """Events of a user do not stand in order of time; they were sorted."""
    if raw.time is None or raw.user is None or not raw.time.usable.all():
        return
    late = np.zeros(raw.rows, bool)
    by_user = np.argsort(raw.user.values, kind="stable")
    same = raw.user.values[by_user][1:] == raw.user.values[by_user][:-1]
    late[by_user[1:]] = same & (raw.time.values[by_user][1:] < raw.time.values[by_user][:-1])
    if late.any():
        found = "events that happened before the one above them"
        yield Finding(raw.time.name, np.flatnonzero(late), found, "rising times", "nothing, if the times are right")


@check("events at one time", "warning", INTERACTION_CHECKS)
def events_at_one_time(raw: RawInteractions) -> Iterable[Finding]:
    """A user took several items at the same time; they keep the order of the file."""
    tied = raw.order.tied
    if raw.time is not None and tied.any():
        advice = "if it is a basket, the order within it means nothing"
        found = "the same time as another event of the user"
        yield Finding(raw.time.name, raw.order.rows[tied], found, "an order of each user's events", advice)


@check("rewards all equal", "warning", INTERACTION_CHECKS)
def rewards_all_equal(raw: RawInteractions) -> Iterable[Finding]:
    """Every event is worth the same: what is learnt is which items are taken, not which are worth more."""
    worth = worth_of(raw)
    if raw.rows > 1 and worth is not None and worth.min() == worth.max():
        advice = "name reward= (a column, or what each kind of event is worth), if some events are worth more"
        yield Finding(_reward_name(raw), None, f"{worth[0]:g} in every row", "rewards that differ", advice)


@check("worth of no event", "warning", INTERACTION_CHECKS)
def worth_of_no_event(raw: RawInteractions) -> Iterable[Finding]:
    """The rewards name a kind of event that the log does not have."""
    if isinstance(raw.roles.reward, Mapping) and raw.event is not None and raw.event.words is not None:
        unseen = [kind for kind in raw.roles.reward if kind not in raw.event.words]
        if unseen:
            expected = f"kinds of the log: {', '.join(map(repr, raw.event.words[:8]))}"
            yield Finding(raw.event.name, None, f"no event {', '.join(map(repr, unseen))}", expected, "check its name")


@check("users without history", "warning", INTERACTION_CHECKS)
def users_without_history(raw: RawInteractions) -> Iterable[Finding]:
    """A user has one event only: nothing came before it from which it could be told."""
    if raw.user is None or not raw.rows:
        return
    _, where, counts = np.unique(raw.user.values, return_inverse=True, return_counts=True)
    single = np.flatnonzero((counts[where] == 1) & raw.user.usable)
    if len(single):
        advice = "nothing, if they are new users; else check which column names the user"
        yield Finding(raw.user.name, single, "users with one event only", "at least two events a user", advice)


@check("no pause ends a session", "warning", INTERACTION_CHECKS)
def no_pause(raw: RawInteractions) -> Iterable[Finding]:
    """No pause is longer than `session_gap`, so that no session ends within the log."""
    gap = raw.roles.session_gap
    if gap is None or raw.time is None or raw.order.key is None or not raw.rows:
        return
    longest = pauses(raw.order.key, raw.order.last).max()
    if longest <= gap:
        advice = "check its unit: that of numeric times, seconds for dates"
        yield Finding(raw.time.name, None, f"no pause above {longest:g}", f"pauses longer than {gap:g}", advice)


def worth_of(raw: RawInteractions) -> Values | None:
    """What each event is worth [M] float32, in file order; None where that cannot be told."""
    if isinstance(raw.roles.reward, str):
        return None if raw.reward is None else raw.reward.values.astype(np.float32)
    if raw.roles.reward is None:
        return np.ones(raw.rows, np.float32)
    if raw.event is None or raw.event.words is None or not raw.event.words:
        return None
    table = np.asarray([raw.roles.reward.get(word, 0.0) for word in raw.event.words], np.float32)
    worth: Values = table[raw.event.values]
    return worth


def pauses(times: Values, last: Values) -> Values:
    """[M] float64: what passes behind each event before its user's next one, or before the log ends; dates: seconds."""
    times = times if times.dtype.kind == "M" else times.astype(np.float64)
    steps = np.where(last, times.max(), np.roll(times, -1)) - times
    found: Values = steps / np.timedelta64(1, "s") if times.dtype.kind == "M" else steps.astype(np.float64)
    return found


def _reward_name(raw: RawInteractions) -> str | None:
    named: Column | None = raw.reward or (raw.event if isinstance(raw.roles.reward, Mapping) else None)
    return None if named is None else named.name


def _users(raw: RawInteractions) -> Values:
    if raw.user is None:
        return np.zeros(0, np.int64)
    return np.unique(raw.user.values) if raw.user.words is None else np.asarray(raw.user.words)
