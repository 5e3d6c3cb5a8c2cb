"""The canonical interaction log: who took which item, when, and what came of it.

Letters: `M` events, `U` users, `N` items, `H` history length, `S` items of a slate, `F` features, `B` rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.report import Level, Problem, Report
from tidelog.errors import ConfigError, LogError
from tidelog.recommend.interactions.storage import ARRAYS, save
from tidelog.types import Catalogue, History, Profile, Spec

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Interactions:
    """`M` events of `U` users over a catalogue of `N` items, sorted by user and time; never changed in place.

    Items are counted from 1 and kinds of events too; 0 stands for "none". A session that ends terminates at its last
    event; a user's last event is truncated where the log ends before the session could be known to have ended.
    """

    users: Values  # [U] ids, integers or words
    items: Values  # [N] ids; item i of `item` is items[i - 1]
    events: tuple[str, ...]  # kinds of events; kind e of `event` is events[e - 1]
    user: Values  # [M] int32: 0 .. U-1, sorted
    item: Values  # [M] int32: 1 .. N
    event: Values  # [M] int32: 1 .. kinds
    reward: Values  # [M] float32
    time: Values  # [M] float64 or datetime64[us], sorted within a user
    terminated: Values  # [M] bool
    truncated: Values  # [M] bool
    propensity: Values | None  # [M] float32
    slate: Values | None  # [M, S] int32: what was shown, 0 where it ends
    item_features: Values | None  # [N + 1, F] float32; row 0 is zeros
    user_features: Values | None  # [U, F] float32
    feature_names: tuple[str, ...]
    profile: Profile | None  # what the user features are
    scored: Values | None  # [M] bool: events to learn from or to be judged by; the others are history only; None: all
    report: Report
    session_gap: float | None = None  # a longer pause ended a session; dates: seconds
    origin: Mapping[str, Any] | None = None  # what `tidelog.recommend.interactions.reopen` reads it from again

    def __len__(self) -> int:
        return len(self.item)

    def __repr__(self) -> str:
        kinds = ", ".join(self.events)
        return f"Interactions({len(self):,} events of {len(self.users):,} users, {len(self.items):,} items; {kinds})"

    @property
    def spec(self) -> Spec:
        """A history is seen, and who the user is where that is described; an item of the catalogue is chosen."""
        items = Catalogue(tuple(self.items.tolist()), self.feature_names)
        usual = int(np.bincount(self.event, minlength=2)[1:].argmax()) + 1
        seen: dict[str, Any] = {"history": History(self.events, usual)}
        if self.profile is not None:
            seen["user"] = self.profile
        return Spec(seen, items)  # type: ignore[arg-type]

    @property
    def steps(self) -> int:
        """Number of events M."""
        return len(self.item)

    @property
    def episodes(self) -> Values:
        """The last event of every session."""
        return np.flatnonzero(self.terminated | self.truncated)

    @cached_property
    def starts(self) -> Values:
        """[U + 1] int64: the first event of each user, and M."""
        return np.searchsorted(self.user, np.arange(len(self.users) + 1))

    @cached_property
    def place(self) -> Values:
        """[M] int64: how many events of the same user came before."""
        place: Values = np.arange(len(self)) - self.starts[self.user]
        return place

    @cached_property
    def counts(self) -> Values:
        """[N + 1] int64: how often each item was taken."""
        return np.bincount(self.item, minlength=len(self.items) + 1)

    @property
    def targets(self) -> Values:
        """The events that are to be learnt from or judged by."""
        return np.arange(len(self)) if self.scored is None else np.flatnonzero(self.scored)

    def histories(self, rows: Values, length: int = 50) -> tuple[Values, Values]:
        """Items and events [B, H] int32 that the user of each event took before it, the last one rightmost, else 0."""
        rows = np.asarray(rows, np.int64)
        grid = rows[:, None] + np.arange(-length, 0)
        there = grid >= self.starts[self.user[rows]][:, None]
        within = np.where(there, grid, 0)
        return np.where(there, self.item[within], 0), np.where(there, self.event[within], 0)

    def described(self, users: Values) -> Values:
        """What describes users, by number: [B, F] float32, `F` 0 where nothing does."""
        known = self.user_features
        found: Values = np.zeros((len(users), 0), np.float32) if known is None else known[users]
        return found

    def item_ids(self, indices: Any) -> Values:
        """The ids of item indices [...]; LogError for 0, which is no item."""
        found = np.asarray(indices)
        if found.size and (found.min() < 1 or found.max() > len(self.items)):
            raise LogError(f"item indices are counted from 1 to {len(self.items)}", self.report)
        ids: Values = self.items[found - 1]
        return ids

    def statistics(self) -> dict[str, Any]:
        """Users, items, events, sessions, lengths, rewards and repeats in numbers."""
        return describe(self)

    def split(self, at: Any = None, share: float = 0.2) -> Split:
        """What came before a moment and what came after; without `at` the last `share` of the time is after.

        The second part keeps earlier events as history only. LogError where one part would be empty.
        """
        return split_at(self, at, share)

    def leave_one_out(self) -> Split:
        """Each user's last event against all before it; its report warns that the past has seen the future."""
        return leave_one_out(self)

    def take(self, rows: Values) -> Interactions:
        """These events, which must be in order; users and items keep their numbers."""
        by_row = ("user", "item", "event", "reward", "time", "terminated", "truncated")
        changes: dict[str, Any] = {name: getattr(self, name)[rows] for name in by_row}
        for name in ("propensity", "slate", "scored"):
            held = getattr(self, name)
            changes[name] = None if held is None else held[rows]
        last = np.append(changes["user"][1:] != changes["user"][:-1], True)
        changes["truncated"] = last & ~changes["terminated"]
        return replace(self, **changes, origin=None)

    def columns(self) -> dict[str, Values]:
        """Every array under its name."""
        return {name: getattr(self, name) for name in ARRAYS if getattr(self, name) is not None}

    def names(self) -> dict[str, Any]:
        """What belongs to the arrays, as JSON holds it."""
        return {
            "events": list(self.events),
            "feature_names": list(self.feature_names),
            "session_gap": self.session_gap,
            "profile": None if self.profile is None else asdict(self.profile),
        }

    def fingerprint(self) -> str:
        """sha256 over all names and arrays: equal for equal logs, in any process."""
        digest = hashlib.sha256(json.dumps(self.names(), sort_keys=True).encode())
        for name, values in sorted(self.columns().items()):
            digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values).view(np.uint8).data)
        return digest.hexdigest()

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a folder that `open_interactions` reads; LogError if the path exists (and is no such folder)."""
        save(self.columns(), self.names(), self.report, Path(path), overwrite)


# Before and after: one moment for all users, because a list is learnt from what has happened and shown to whoever
# comes next; holding out each user's last event instead lets the past see the future of others.


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


# In numbers.


def describe(log: Interactions) -> dict[str, Any]:
    """Plain numbers, lists and dictionaries; `repeats` is the share of events whose item the user had taken before."""
    lengths = np.diff(log.starts)
    bounds = np.append(-1, log.episodes)
    used = log.counts[1:]
    return {
        "events": len(log),
        "users": len(log.users),
        "items": len(log.items),
        "items_never_taken": int((used == 0).sum()),
        "sessions": len(log.episodes),
        "density": len(log) / max(1, len(log.users) * len(log.items)),
        "kinds": {name: int((log.event == code + 1).sum()) for code, name in enumerate(log.events)},
        "events_a_user": _spread(lengths),
        "events_a_session": _spread(np.diff(bounds)),
        "events_an_item": _spread(used),
        "users_without_history": int((lengths == 1).sum()),
        "rewards": _spread(log.reward),
        "repeats": float(repeated(log).mean()),
        "largest_share_of_an_item": float(used.max() / len(log)),
        "first": str(log.time.min()),
        "last": str(log.time.max()),
        "propensities": None if log.propensity is None else _spread(log.propensity),
        "shown": None if log.slate is None else _spread((log.slate > 0).sum(axis=1)),
    }


def repeated(log: Interactions) -> Values:
    """[M] bool: events whose item the same user had taken before."""
    pair = log.user.astype(np.int64) * (len(log.items) + 1) + log.item
    _, first = np.unique(pair, return_index=True)
    again = np.ones(len(log), bool)
    again[first] = False
    return again


def text(log: Interactions) -> str:
    """Plain lines for a terminal."""
    numbers = describe(log)
    lines = [
        f"{numbers['events']:,} events of {numbers['users']:,} users in {numbers['sessions']:,} sessions, "
        f"{numbers['items']:,} items ({numbers['items_never_taken']:,} never taken)",
        f"from {numbers['first']} to {numbers['last']}",
        "kinds: " + ", ".join(f"{name} {count:,}" for name, count in numbers["kinds"].items()),
        f"repeats: {numbers['repeats']:.1%} of events; the most frequent item has "
        f"{numbers['largest_share_of_an_item']:.1%} of them",
        f"users without history: {numbers['users_without_history']:,}",
    ]
    for name in ("events_a_user", "events_a_session", "events_an_item", "rewards", "propensities", "shown"):
        if numbers[name] is not None:
            spread = ", ".join(f"{word} {value:.4g}" for word, value in numbers[name].items())
            lines.append(f"{name.replace('_', ' ')}: {spread}")
    return "\n".join(lines)


def _spread(values: Values) -> dict[str, float]:
    return {
        "min": float(np.min(values)),
        "median": float(np.median(values)),
        "mean": float(np.mean(values)),
        "max": float(np.max(values)),
    }
