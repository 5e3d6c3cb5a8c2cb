"""Before and after: interactions split by time, and what the split does to them.

The default is one moment for all users, because that is how a list is used: it is learnt from what has happened and
shown to whoever comes next. Holding out each user's last event instead lets the past see the future of others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from numbers import Real
from typing import Any

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.report import Level, Problem, Report
from tidelog.errors import ConfigError, LogError
from tidelog.recommend.interactions.log import Interactions

_SHOWN = 5


@dataclass(frozen=True)
class Split:
    """`train` happened before `at`; of `test` the events from then on count, earlier ones are their history.

    Both number users and items alike. `report` says what the split does: cold items and users, leakage.
    """

    train: Interactions
    test: Interactions
    at: Any
    report: Report

    @property
    def cold_items(self) -> Values:
        """[C] indices of items that are taken in the test period and never before."""
        after = np.unique(self.test.item[self.test.targets])
        cold: Values = after[self.train.counts[after] == 0]
        return cold


def split_at(log: Interactions, at: Any = None, share: float = 0.2) -> Split:
    """Events before the moment `at`, and those from it on; see `Interactions.split`."""
    moment = _moment(log, at, share)
    before = log.time < moment
    counted = ~before if log.scored is None else ~before & log.scored
    if not before.any() or not counted.any():
        empty = "before" if not before.any() else "from then on"
        raise LogError(
            f"no event happened {empty}: the split is at {moment}, the log goes from {log.time.min()} to "
            f"{log.time.max()}; choose a moment between them",
            log.report,
        )
    return _split(log, before, counted, moment, [])


def leave_one_out(log: Interactions) -> Split:
    """Each user's last event against all before it; see `Interactions.leave_one_out`."""
    rows = log.targets  # of those events that count, each user's last
    last_one = np.append(log.user[rows][1:] != log.user[rows][:-1], True)
    counted = np.zeros(len(log), bool)
    counted[rows[last_one]] = True
    counted &= log.place > 0
    if not counted.any():
        raise LogError("no user has two events: there is nothing to hold out", log.report)
    ends = np.full(len(log.users), len(log))
    ends[log.user[counted]] = np.flatnonzero(counted)
    before = np.arange(len(log)) < ends[log.user]
    first, last = log.time[counted].min(), log.time[before].max()
    seen = int((log.time[before] > first).sum())
    leak = _warning(
        "leakage between periods",
        f"{seen:,} events to learn from happened after the first held-out event ({first}; the last is of {last})",
        "everything to learn from happens before everything held out",
        "split by time instead: interactions.split(at=...)",
    )
    return _split(log, before, counted, None, [leak])


def _split(log: Interactions, before: Values, counted: Values, at: Any, found: list[Problem]) -> Split:
    if log.scored is not None:
        before = before & log.scored
    train = replace(log.take(np.flatnonzero(before)), scored=None)
    if at is not None:
        train = _as_known(train, at)
    test = replace(log, scored=counted, origin=None)
    problems = [*found, *_cold(train, test), *_copies(log, before, counted)]
    report = Report(f"{log.report.source}, split at {at}", len(log), tuple(problems))
    return Split(train, test, at, report)


def _as_known(train: Interactions, at: Any) -> Interactions:
    """What was known of sessions at that moment: a user's last one ended only if its gap had passed by then."""
    last = np.append(train.user[1:] != train.user[:-1], True)
    away = np.full(len(train), at) - train.time
    away = away / np.timedelta64(1, "s") if train.time.dtype.kind == "M" else away
    ended = np.zeros(len(train), bool) if train.session_gap is None else away > train.session_gap
    terminated = np.where(last, ended, train.terminated)
    return replace(train, terminated=terminated, truncated=last & ~terminated)


def _moment(log: Interactions, at: Any, share: float) -> Any:
    """The moment to split at, in the kind of the log's times."""
    if at is None:
        if not 0.0 < share < 1.0:
            raise ConfigError(f"share = {share}: expected a share of the time between 0 and 1")
        times = log.time if log.scored is None else log.time[log.scored]
        return times.min() + (times.max() - times.min()) * (1.0 - share)
    dates = log.time.dtype.kind == "M"
    try:
        moment = _date(at) if dates else float(at)
    except (ValueError, TypeError) as error:
        kind = "a date such as 1999-01-01" if dates else "a number, as the log's times are"
        raise ConfigError(f"at = {at!r}: expected {kind}") from error
    if moment != moment:
        raise ConfigError(f"at = {at!r} is no moment")
    return moment


def _date(at: Any) -> np.datetime64:
    """A moment in UTC, of a date, a time (one without a zone is UTC) or their text."""
    if isinstance(at, Real):
        raise TypeError("a number is no date")
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at.strip())
        except ValueError:
            return np.datetime64(at.strip().replace(" ", "T"), "us")
    if isinstance(at, datetime) and at.tzinfo is not None:
        at = at.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(at, "us")


def _cold(train: Interactions, test: Interactions) -> list[Problem]:
    """What the test period has that nothing was learnt about."""
    rows = test.targets
    unseen = train.counts[test.item[rows]] == 0
    found = []
    if unseen.any():
        items = np.unique(test.item[rows][unseen])
        said = (
            f"{int(unseen.sum()):,} of {len(rows):,} events of the test period are about {len(items):,} items never "
            f"taken before: {_some(test.item_ids(items))}"
        )
        advice = "describe items by item_features, or expect these events to be missed"
        found.append(_warning("cold items", said, "items that were taken before", advice))
    new = np.setdiff1d(test.user[rows], train.user)
    if len(new):
        users = len(np.unique(test.user[rows]))
        said = f"{len(new):,} of {users:,} users have no event before: {_some(test.users[new])}"
        advice = "nothing; their first events are told from an empty history"
        found.append(_problem("note", "cold users", said, "users with a history", advice))
    return found


def _copies(log: Interactions, before: Values, counted: Values) -> list[Problem]:
    """Events of the test period that also stand, to the letter, among those to learn from."""
    moments = np.unique(log.time, return_inverse=True)[1]
    keys = np.stack([log.user.astype(np.int64), log.item.astype(np.int64), moments.astype(np.int64)], axis=1)
    past, future = np.unique(keys[before], axis=0), keys[counted]
    joined, inverse = np.unique(np.concatenate([past, future]), axis=0, return_inverse=True)
    known = np.zeros(len(joined), bool)
    known[inverse.reshape(-1)[: len(past)]] = True
    copies = int(known[inverse.reshape(-1)[len(past) :]].sum())
    if not copies:
        return []
    said = f"{copies:,} held-out events have the user, item and time of one to learn from"
    return [_warning("leakage between periods", said, "events of one period only", "remove copies from the log")]


def _some(ids: Values) -> str:
    return ", ".join(map(str, ids[:_SHOWN].tolist())) + (", ..." if len(ids) > _SHOWN else "")


def _warning(name: str, found: str, expected: str, advice: str) -> Problem:
    return _problem("warning", name, found, expected, advice)


def _problem(level: Level, name: str, found: str, expected: str, advice: str) -> Problem:
    return Problem(level, name, None, (), 0, found, expected, advice)
