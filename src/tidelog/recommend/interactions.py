"""Interactions: the log of a recommender, saved and opened, cut into sessions, with a held-out part."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidelog._files import MANIFEST, Kind
from tidelog._text import facts_table, in_unit, shorten, three_digits
from tidelog.data.columns import declared_unit
from tidelog.data.log_columns import sha256_of
from tidelog.data.raw import Column, Finding, Level, Problem, Report, Values, unreadable
from tidelog.data.statistics import returns_to_go
from tidelog.data.storage import ColumnEntry, expect_array, read_columns, refuse_target, write_columns
from tidelog.errors import ConfigError, LogError, SpecError, TidelogError
from tidelog.schema import typed
from tidelog.types import Catalogue, History, HistoryArrays, HistoryNames, Profile, Spec, Users

# Read the fields of saved interactions from their folder, with checks of every array.

ARRAYS = (
    "users", "items", "user", "item", "event", "reward", "time", "terminated", "truncated", "propensity", "slate",
    "item_features", "user_features", "scored",
)  # fmt: skip
OPTIONAL = ("propensity", "slate", "item_features", "user_features", "scored")
INTERACTIONS = Kind("interactions", 3, LogError)


def saved_fields(path: str | Path) -> dict[str, Any]:
    """Read the fields of `Interactions` from a folder of `save`; LogError names a foreign, cut or changed file."""
    folder = Path(path)
    try:
        manifest = INTERACTIONS.manifest(folder)
        file = typed(manifest, InteractionsManifest, MANIFEST, LogError)
        columns = read_columns(INTERACTIONS, folder, file.columns, manifest)
        arrays: dict[str, Any] = {name: columns.get(name) if name in OPTIONAL else columns[name] for name in ARRAYS}
        names = file.names
        about: dict[str, Any] = {"events": tuple(names.events), "feature_names": tuple(names.feature_names)}
        about |= {"session_gap": names.session_gap, "profile": names.profile, "item_profile": names.item_profile}
        about["reward_unit"] = declared_unit(names.reward_unit)
        report = Report.from_json(file.report)
        _check_arrays(arrays, names)
    except (LogError, SpecError, ConfigError, KeyError) as error:
        if getattr(error, "report", None) is not None:  # it has a fix of its own
            raise
        missing = f"an entry is missing or malformed ({error})"
        message = error.problem if isinstance(error, TidelogError) else missing
        advice = "copy the folder again from the original, or save the interactions again"
        raise unreadable(folder, message, "a folder that Interactions.save wrote", advice) from error
    origin = {"source": str(folder.absolute()), "columns": None}
    return {**arrays, **about, "report": report, "origin": origin}


class NamesFile(msgspec.Struct, forbid_unknown_fields=True):
    """The metadata of the arrays of saved interactions."""

    events: list[str]
    feature_names: list[str]
    session_gap: float | None
    profile: Profile | None
    reward_unit: str | None = None
    item_profile: Profile | None = None


class InteractionsManifest(msgspec.Struct):
    """The fields of the manifest of interactions, besides those of every folder."""

    columns: list[ColumnEntry]
    names: NamesFile
    report: dict[str, Any]


def _check_arrays(arrays: Mapping[str, Any], names: NamesFile) -> None:
    """Raise LogError unless arrays have the types and lengths of their roles, in order and in range."""
    rows, users, items = (len(arrays[name]) for name in ("item", "users", "items"))
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "users": ("iuU", (users,)), "items": ("iuU", (items,)), "user": ("i", (rows,)), "item": ("i", (rows,)),
        "event": ("i", (rows,)), "reward": ("f", (rows,)), "time": ("fM", (rows,)), "terminated": ("b", (rows,)),
        "truncated": ("b", (rows,)), "propensity": ("f", (rows,)), "scored": ("b", (rows,)),
        "item_features": ("f", (items + 1, len(names.feature_names))),
        "user_features": ("f", (users, 0 if names.profile is None else len(names.profile.columns))),
    }  # fmt: skip
    for name, (kinds, shape) in shapes.items():
        if arrays[name] is not None:
            expect_array(name, arrays[name], kinds, shape)
    slate = arrays["slate"]
    if slate is not None:
        expect_array("slate", slate, "i", (rows, slate.shape[1] if slate.ndim == 2 else 0))
    about = names.profile
    if about is not None and len({len(about.columns), len(about.words), len(about.mean), len(about.spread)}) > 1:
        raise LogError("the parts of the profile have different lengths")
    if not rows:
        raise LogError("the interactions have no events")
    user, event, item, time = arrays["user"], arrays["event"], arrays["item"], arrays["time"]
    same = user[1:] == user[:-1]
    finite = [one for one in arrays.values() if one is not None and one.dtype.kind == "f"]
    checks = {
        "users are not numbered in order": user[0] >= 0 and user[-1] < users and (user[1:] >= user[:-1]).all(),
        "items are out of range": ((item >= 1) & (item <= items)).all(),
        "events are out of range": ((event >= 1) & (event <= len(names.events))).all(),
        "slates are out of range": slate is None or ((slate >= 0) & (slate <= items)).all(),
        "numbers are not finite": all(np.isfinite(one).all() for one in (*finite, time)),  # NaT is not finite
        "times of a user fall": (time[1:][same] >= time[:-1][same]).all(),
        "ids are repeated": all(len(np.unique(arrays[name])) == len(arrays[name]) for name in ("users", "items")),
    }  # fmt: skip
    for found, holds in checks.items():
        if not holds:
            raise LogError(found)


# Times of a log: the pause that ends a session, in their unit, and epoch times as dates.

_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}  # ticks in a second
_YEARS = 1e8, 1e10  # seconds since 1970 of times that are likely: from 1973 to 2286
_SHORT = 60.0  # seconds; a gap that is shorter is likely meant in another unit
_TEXT = re.compile(r"(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*([a-z]*)")
_EXPECTED = "a positive number, one with a unit, such as '30min' (ms, s, min, h, d), or a timedelta"


def checked_gap(gap: Any) -> float | str | None:
    """Return a gap as a number without a unit or as text with one; ConfigError for anything else."""
    if gap is None:
        return None
    if isinstance(gap, timedelta):
        gap = f"{gap.total_seconds()!r}s"
    if isinstance(gap, str):
        match = _TEXT.fullmatch(gap.strip())
        if match is not None and match[2] in ("", *_SECONDS) and 0 < float(match[1]) < math.inf:
            return f"{match[1]}{match[2]}" if match[2] else float(match[1])
    elif isinstance(gap, Real) and not isinstance(gap, bool) and 0 < float(gap) < math.inf:
        return float(gap)
    raise ConfigError(f"session_gap = {gap!r}", _EXPECTED, "write 1800, or '30min'")


def gap_in_times(gap: float | str | None, time: Column | None) -> tuple[float | None, Finding | None]:
    """Return a checked gap in the unit of the times, in seconds for dates; or a finding where its unit is unclear."""
    if gap is None or time is None or not time.usable.any():
        return None, None
    match = _TEXT.fullmatch(str(gap))
    number, unit = (float(gap), "") if isinstance(gap, float) or match is None else (float(match[1]), match[2])
    if time.values.dtype.kind == "M":
        return number * _SECONDS.get(unit, 1.0), None
    middle = float(np.median(time.values[time.usable]))
    epoch = _epoch_of(middle)
    if unit and epoch is None:
        found = f"times such as {middle:g}, neither dates nor epoch times, and session_gap = {gap!r} with a unit"
        fix = "give session_gap as a number, in the unit of this column"
        return None, Finding(time.name, None, found, "dates or epoch times where session_gap has a unit", fix)
    ticks = _EPOCH[epoch] if epoch else 1.0
    if not unit and ticks > 1.0 and number < _SHORT * ticks:
        found = f"epoch {epoch}, so session_gap = {number:g} means {number / ticks:g} seconds"
        fix = f"write session_gap '{number:g}s' for seconds, or '{number / ticks:g}s' if you mean that"
        return None, Finding(time.name, None, found, "a session_gap of a minute or more, or one with a unit", fix)
    return number * (_SECONDS[unit] * ticks if unit else 1.0), None


def moment_text(moment: Any) -> str:
    """Write a moment of a log: dates and likely epoch times as dates, other numbers without an empty fraction."""
    if isinstance(moment, np.datetime64):
        return str(moment)
    epoch = _epoch_of(float(moment))
    if epoch is None:
        return f"{float(moment):.10g}"
    return str(np.datetime64(round(float(moment) / _EPOCH[epoch]), "s")).replace("T", " ")


def _epoch_of(moment: float) -> str | None:
    """Return the unit in which a number is a likely time since 1970, None if there is none."""
    return next((name for name, many in _EPOCH.items() if _YEARS[0] * many <= moment < _YEARS[1] * many), None)


# The canonical interaction log: who chose which item, when, and with what reward.
#
# Letters: `M` events, `U` users, `N` items, `H` history length, `S` items in a slate, `F` features, `B` rows.

MOST_IN_BASKETS = 0.5  # share of events in baskets above which a log is one of baskets
LEAST_OF_SHARE = 0.1  # of the events that a period of a split would have if events were evenly spread
UNEVEN = "uneven periods"
FAR_FROM_SHARE = 2.0  # times as many or as few events as the asked share, from which on a period is named
OTHER_SHARE = "another share of events"
MOST_FIRST = 0.5  # share of the users with the same first time, from which on times are counts of events
_SHOWN = 5  # ids that a message lists


@dataclass(frozen=True, eq=False)
class Interactions:
    """`M` events of `U` users over a catalogue of `N` items, sorted by user and time; never changed in place.

    Items and kinds of events are counted from 1; 0 means "none". A session that ends terminates at its last event; a
    user's last event is truncated if the log ends before the end of the session is certain.

    Example:
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> log.item_ids(log.item).tolist()
        ['tea', 'cup', 'tea']
    """

    users: Values  # [U] ids, integers or text
    items: Values  # [N] ids; item i of `item` is items[i - 1]
    events: tuple[str, ...]  # kinds of events; kind e of `event` is events[e - 1]
    user: Values  # [M] int32: 0 .. U-1, sorted
    item: Values  # [M] int32: 1 .. N
    event: Values  # [M] int32: 1 .. kinds
    reward: Values  # [M] float32
    time: Values  # [M] float64, int64 or datetime64, sorted within a user
    terminated: Values  # [M] bool
    truncated: Values  # [M] bool
    propensity: Values | None  # [M] float32
    slate: Values | None  # [M, S] int32: the shown items, padded with 0
    item_features: Values | None  # [N + 1, F] float32; row 0 is zeros
    user_features: Values | None  # [U, F] float32
    feature_names: tuple[str, ...]
    profile: Profile | None  # the columns of the user features
    scored: Values | None  # [M] bool: events for training or evaluation; the others are history only; None: all
    report: Report
    session_gap: float | None = None  # a longer pause ends a session; in seconds for dates
    item_profile: Profile | None = None  # the columns of the item features; it changes no fingerprint
    reward_unit: str | None = None  # for people; it changes no number and no fingerprint
    origin: Mapping[str, Any] | None = None  # where `tidelog.recommend.read.reopen` reads it again

    def __len__(self) -> int:
        return len(self.item)

    def __repr__(self) -> str:
        kinds = ", ".join(self.events)
        return f"Interactions({len(self):,} events of {len(self.users):,} users, {len(self.items):,} items; {kinds})"

    def facts(self) -> dict[str, str]:
        """Return a summary by name: events, users, items, sessions and the time."""
        return {
            "events": f"{len(self):,}: " + ", ".join(self.events),
            "users": f"{len(self.users):,}",
            "items": f"{len(self.items):,}",
            "sessions": f"{len(self.episodes):,}",
            "time": f"{moment_text(self.time.min())} to {moment_text(self.time.max())}",
        }

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return facts_table("Interactions", self.facts())

    @property
    def spec(self) -> Spec:
        """The observation is a history, plus user features if there are any; the action is an item of the catalogue."""
        items = Catalogue(tuple(self.items.tolist()), self.feature_names, self.item_profile)
        usual = int(np.bincount(self.event, minlength=2)[1:].argmax()) + 1
        observation: dict[str, Any] = {"history": History(self.events, usual)}
        if self.profile is not None:
            observation["user"] = self.profile
        return Spec(observation, items)  # type: ignore[arg-type]

    @property
    def spec_with_users(self) -> Spec:
        """The spec with the ids of the users, which a policy needs to know them again."""
        known: Any = {**self.spec.observation, "user_id": Users(tuple(self.users.tolist()))}
        return replace(self.spec, observation=known)

    @property
    def steps(self) -> int:
        """Number of events M."""
        return len(self.item)

    @property
    def episodes(self) -> Values:
        """The last event of every session."""
        return np.flatnonzero(self.terminated | self.truncated)

    def rewards_to_end(self, discount: float) -> Values:
        """[M] float64: discounted rewards from each event to the end of its session, as far as the log has it."""
        return returns_to_go(self.reward.astype(np.float64), np.append(0, self.episodes + 1), discount)

    @cached_property
    def starts(self) -> Values:
        """[U + 1] int64: the first event of each user, and M."""
        return np.searchsorted(self.user, np.arange(len(self.users) + 1))

    @cached_property
    def position(self) -> Values:
        """[M] int64: the number of earlier events of the same user."""
        position: Values = np.arange(len(self)) - self.starts[self.user]
        return position

    @cached_property
    def counts(self) -> Values:
        """[N + 1] int64: the number of events of each item."""
        return np.bincount(self.item, minlength=len(self.items) + 1)

    @cached_property
    def basket_share(self) -> float:
        """Share of events at the same time as another event of the user, where the order has no meaning."""
        same = (self.user[1:] == self.user[:-1]) & (self.time[1:] == self.time[:-1])
        return float((np.append(same, False) | np.append(False, same)).mean())

    @cached_property
    def repeat_share(self) -> float:
        """Share of events whose item the same user had at an earlier time."""
        first, _ = self.baskets
        pairs = self.user.astype(np.int64) * (len(self.items) + 1) + self.item
        _, earliest, pair = np.unique(pairs, return_index=True, return_inverse=True)
        return float((earliest[pair] < first).mean()) if len(self) else 0.0

    @property
    def has_baskets(self) -> bool:
        """Whether most events are in baskets: then lists are measured by next baskets, not by next events."""
        return self.basket_share > MOST_IN_BASKETS

    @property
    def has_item_propensities(self) -> bool:
        """Whether each event has the propensity of its item alone, not of a slate or a basket."""
        return self.propensity is not None and self.slate is None and not self.has_baskets

    @cached_property
    def baskets(self) -> tuple[Values, Values]:
        """The first and the last event of each event's basket, both [M] int64: the user's events at the same time."""
        opens = np.append(True, (self.user[1:] != self.user[:-1]) | (self.time[1:] != self.time[:-1]))
        first = np.flatnonzero(opens)
        basket = np.cumsum(opens) - 1
        return first[basket], np.append(first[1:], len(self))[basket] - 1

    @property
    def targets(self) -> Values:
        """The events for training or evaluation."""
        return np.arange(len(self)) if self.scored is None else np.flatnonzero(self.scored)

    def histories(self, rows: Values, length: int = 50) -> HistoryArrays:
        """The last `length` events of the user before each event, and the user's features and place in the log."""
        return histories(self, np.asarray(rows, np.int64), length)

    def item_ids(self, indices: Any) -> Values:
        """The ids of item indices [...]; LogError for indices outside 1 .. N."""
        numbers = np.asarray(indices)
        if numbers.size and (numbers.min() < 1 or numbers.max() > len(self.items)):
            raise LogError("item index out of range", f"1 to {len(self.items)}", report=self.report)
        ids: Values = self.items[numbers - 1]
        return ids

    def statistics(self) -> dict[str, Any]:
        """Compute statistics of users, items, events, sessions, lengths, rewards and repeats."""
        return describe(self)

    def split(self, at: Any = None, share: float = 0.2) -> Split:
        """Split at a moment; without `at`, the last `share` of the time goes to the second part.

        The second part uses earlier events as history only. LogError if a part would be empty.
        """
        moment = _moment(self, at, share)
        before = self.time < moment
        counted = ~before if self.scored is None else ~before & self.scored
        if not before.any() or not counted.any():
            empty = "before" if not before.any() else "at or after"
            raise LogError(
                f"the split at {moment} has no event {empty} this moment: the log covers {self.time.min()} to "
                f"{self.time.max()}",
                fix="choose a moment between them",
                report=self.report,
            )
        return _split(self, before, counted, moment, [] if at is not None else _uneven(self, before, counted, share))

    def leave_one_out(self) -> Split:
        """Hold out each user's last event; the report warns that training events follow test events of other users."""
        rows = self.targets  # each user's last scored event
        counted = np.zeros(len(self), bool)
        counted[rows[np.append(self.user[rows][1:] != self.user[rows][:-1], True)]] = True
        counted &= self.position > 0
        if not counted.any():
            raise LogError("no user has two events: there is no event to hold out", report=self.report)
        ends = np.full(len(self.users), len(self))
        ends[self.user[counted]] = np.flatnonzero(counted)
        before = np.arange(len(self)) < ends[self.user]
        first, last = self.time[counted].min(), self.time[before].max()
        later = int((self.time[before] > first).sum())
        leak = _warning(
            "leakage between periods",
            f"{later:,} training events happened after the first held-out event ({first}; the last is at {last})",
            "all training events before all held-out events",
            "split by time: interactions.split(at=...)",
        )
        return _split(self, before, counted, None, [leak])

    def select(self, rows: Values) -> Interactions:
        """Select events, which must be in order; users and items keep their numbers."""
        by_row = ("user", "item", "event", "reward", "time", "terminated", "truncated")
        changes: dict[str, Any] = {name: getattr(self, name)[rows] for name in by_row}
        for name in ("propensity", "slate", "scored"):
            values = getattr(self, name)
            changes[name] = None if values is None else values[rows]
        last = np.append(changes["user"][1:] != changes["user"][:-1], True)
        changes["truncated"] = last & ~changes["terminated"]
        return replace(self, **changes, origin=None)

    def columns(self) -> dict[str, Values]:
        """All arrays by name."""
        return {name: getattr(self, name) for name in ARRAYS if getattr(self, name) is not None}

    def names(self) -> dict[str, Any]:
        """The metadata of the arrays, as plain JSON."""
        return {
            "events": list(self.events),
            "feature_names": list(self.feature_names),
            "session_gap": self.session_gap,
            "profile": None if self.profile is None else asdict(self.profile),
        }

    def fingerprint(self) -> str:
        """SHA-256 over all names and arrays: equal for equal logs, in any process."""
        return sha256_of(json.dumps(self.names(), sort_keys=True), self.columns())

    @classmethod
    def load(cls, path: str | Path) -> Interactions:
        """Read a folder of `save`; LogError names a foreign, truncated or changed file.

        Example:
            >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
            >>> tl.read_interactions(table, user="user", item="item", time="time").save("clicks.tidelog")
            >>> tl.Interactions.load("clicks.tidelog")
            Interactions(3 events of 2 users, 2 items; event)
        """
        return cls(**saved_fields(path))

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a folder for `load`, as a whole or not at all: a `.npy` file per column, a manifest.

        LogError if the path exists (and is not such a folder).
        """
        refuse_target(Path(path), overwrite, INTERACTIONS)
        unit = {} if self.reward_unit is None else {"reward_unit": self.reward_unit}
        described = {} if self.item_profile is None else {"item_profile": asdict(self.item_profile)}
        body = {"names": self.names() | unit | described, "report": self.report.to_json()}
        columns = {name: (f"{name}.npy", values) for name, values in self.columns().items()}
        write_columns(INTERACTIONS, Path(path), columns, body)


# A split uses one moment for all users: in use, a model learns from the past and serves later users.
# Holding out each user's last event instead trains on events after the test events of other users.


@dataclass(frozen=True)
class Split:
    """`train` are events before `at`; `test` scores the events from `at` on, with earlier ones as history.

    Both use the same numbers of users and items. `report` holds the findings: cold items and users, leakage.
    """

    train: Interactions
    test: Interactions
    at: Any
    report: Report


def _uneven(log: Interactions, before: Values, counted: Values, share: float) -> list[Problem]:
    """Warn of a split by a share of the time where a period has another share of the events.

    `UNEVEN`: less than a tenth of the share of the time; `OTHER_SHARE`: the later period has at most half of it, or at
    least twice as much.
    """
    past, later = int(before.sum()), int(counted.sum())
    part = later / (past + later)
    enough = part >= LEAST_OF_SHARE * share and 1.0 - part >= LEAST_OF_SHARE * (1.0 - share)
    if enough and 1.0 / FAR_FROM_SHARE < part / share < FAR_FROM_SHARE:
        return []
    message = f"the last {share:.0%} of the time has {later:,} of {past + later:,} events ({part:.2%})"
    first, count = np.unique(log.time[log.starts[:-1]], return_counts=True)
    if log.time.dtype.kind != "M" and count.max() > max(1, MOST_FIRST * len(log.users)):
        advice = (
            f"name a column of dates or times: {count.max():,} of {len(log.users):,} users begin at "
            f"{first[count.argmax()]:g}, so this column counts the events of each user; without a column of times, "
            "hold out nothing (held_out 0)"
        )
    else:
        advice = (
            "correct or remove events with wrong times (the check 'times far outside' of `tidelog log check` names "
            "their rows), or choose another share of the time"
        )
    return [_warning(OTHER_SHARE if enough else UNEVEN, message, f"about {share:.0%} of the events", advice)]


def _split(log: Interactions, before: Values, counted: Values, at: Any, found: list[Problem]) -> Split:
    if log.scored is not None:
        before = before & log.scored
    train = replace(log.select(np.flatnonzero(before)), scored=None)
    if at is not None:
        train = _as_known(train, at)
    test = replace(log, scored=counted, origin=None)
    problems = [*found, *_cold(train, test), *_copies(log, before, counted)]
    report = Report(f"{log.report.source}, split at {at}", len(log), tuple(problems))
    return Split(train, test, at, report)


def _as_known(train: Interactions, at: Any) -> Interactions:
    """Set session ends as known at that moment: a user's last session ended only if its gap had passed by then."""
    last = np.append(train.user[1:] != train.user[:-1], True)
    away = np.full(len(train), at) - train.time
    away = away / np.timedelta64(1, "s") if train.time.dtype.kind == "M" else away
    ended = np.zeros(len(train), bool) if train.session_gap is None else away > train.session_gap
    terminated = np.where(last, ended, train.terminated)
    return replace(train, terminated=terminated, truncated=last & ~terminated)


def _moment(log: Interactions, at: Any, share: float) -> Any:
    """The moment of the split, in the type of the log's times."""
    if at is None:
        if not 0.0 < share < 1.0:
            raise ConfigError(f"share = {share}", "a share of the time between 0 and 1", "use 0.2")
        times = log.time if log.scored is None else log.time[log.scored]
        return times.min() + (times.max() - times.min()) * (1.0 - share)
    dates = log.time.dtype.kind == "M"
    try:
        moment = _date(at) if dates else float(at)
    except (ValueError, TypeError) as error:
        kind = "a date such as 1999-01-01" if dates else "a number, like the times of the log"
        raise ConfigError(f"at = {at!r}", kind) from error
    if moment != moment:
        raise ConfigError(f"at = {at!r} is not a valid moment")
    return moment


def _date(at: Any) -> np.datetime64:
    """Convert a date, a time (UTC if it has no zone) or their text to a moment in UTC."""
    if isinstance(at, Real):
        raise TypeError("a number is not a date")
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at.strip())
        except ValueError:
            return np.datetime64(at.strip().replace(" ", "T"), "us")
    if isinstance(at, datetime) and at.tzinfo is not None:
        at = at.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(at, "us")


def _cold(train: Interactions, test: Interactions) -> list[Problem]:
    """Problems with items and users that the training period does not contain."""
    rows = test.targets
    unseen = train.counts[test.item[rows]] == 0
    problems = []
    if unseen.any():
        items = np.unique(test.item[rows][unseen])
        message = (
            f"{int(unseen.sum()):,} of {len(rows):,} events of the test period have one of {len(items):,} items that "
            f"never occur before: {shorten(test.item_ids(items), _SHOWN)}"
        )
        advice = "describe items by item_features, or expect misses for these events"
        problems.append(_warning("cold items", message, "items with earlier events", advice))
    new = np.setdiff1d(test.user[rows], train.user)
    if len(new):
        users = len(np.unique(test.user[rows]))
        message = f"{len(new):,} of {users:,} users have no earlier event: {shorten(test.users[new], _SHOWN)}"
        advice = "nothing; their first events are predicted from an empty history"
        problems.append(_warning("cold users", message, "users with a history", advice, "note"))
    return problems


def _copies(log: Interactions, before: Values, counted: Values) -> list[Problem]:
    """Count test events with exactly the user, item and time of a training event."""
    events = pl.DataFrame({"user": log.user, "item": log.item, "time": log.time})
    copies = events.filter(counted).join(events.filter(before), on=events.columns, how="semi").height
    if not copies:
        return []
    message = f"{copies:,} held-out events have the same user, item and time as a training event"
    return [_warning("leakage between periods", message, "events of one period only", "remove copies from the log")]


def _warning(name: str, found: str, expected: str, advice: str, level: Level = "warning") -> Problem:
    return Problem(level, name, None, (), 0, found, expected, advice)


# Statistics.


def describe(log: Interactions) -> dict[str, Any]:
    """Plain numbers, lists and dictionaries; `repeats` is the share of events that repeat an item of their user."""
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
        "events_per_user": _spread(lengths),
        "events_per_session": _spread(np.diff(bounds)),
        "events_per_item": _spread(used),
        "users_without_history": int((lengths == 1).sum()),
        "rewards": _spread(log.reward),
        "reward_unit": log.reward_unit,
        "repeats": log.repeat_share,
        "largest_share_of_an_item": float(used.max() / len(log)),
        "first": moment_text(log.time.min()),
        "last": moment_text(log.time.max()),
        "propensities": None if log.propensity is None else _spread(log.propensity),
        "shown": None if log.slate is None else _spread((log.slate > 0).sum(axis=1)),
    }


def text(log: Interactions) -> str:
    """The statistics as lines for a terminal."""
    numbers = describe(log)
    lines = [
        f"{numbers['events']:,} events of {numbers['users']:,} users in {numbers['sessions']:,} sessions, "
        f"{numbers['items']:,} items ({numbers['items_never_taken']:,} never chosen)",
        f"from {numbers['first']} to {numbers['last']}",
        "kinds: " + ", ".join(f"{name} {count:,}" for name, count in numbers["kinds"].items()),
        f"repeats: {numbers['repeats']:.1%} of events; the most frequent item has "
        f"{numbers['largest_share_of_an_item']:.1%} of them",
        f"users without history: {numbers['users_without_history']:,}",
    ]
    for name in ("events_per_user", "events_per_session", "events_per_item", "rewards", "propensities", "shown"):
        if numbers[name] is not None:
            measures = ", ".join(f"{word} {three_digits(value)}" for word, value in numbers[name].items())
            unit = in_unit(log.reward_unit, "in ") if name == "rewards" else ""
            lines.append(f"{name.replace('_', ' ')}{unit}: {measures}")
    return "\n".join(lines)


def _spread(values: Values) -> dict[str, float]:
    return {name: float(getattr(np, name)(values)) for name in ("min", "median", "mean", "max")}


# Held-out test cases for a recommender: the history before an event, and the items chosen then.
#
# Two protocols give `Cases`. *Next event*: each held-out event is one case, and all earlier events of the user are its
# history, held-out events included. *Next basket*: each user's first held-out purchase is one case, and all items
# chosen at that moment are its targets.
#
# Letters: `M` events of a log, `N` items, `U` users, `C` cases, `H` history length, `G` items of the largest basket,
# `F` features of users.

Ints: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]
LONGEST, LONGEST_OF_EVENTS = 10_000, 50  # last events of a history, of baskets and of single events


Events: TypeAlias = Any  # `Interactions`, or other arrays with these names, sorted by user and time


@dataclass(frozen=True, eq=False)
class Cases:
    """`C` test cases with their targets: one target for an event, one per item for a basket."""

    user: Ints  # [C]: the user of each case; intervals resample users
    histories: HistoryArrays  # [C, H] what came before each case
    targets: Ints  # [C, G] the chosen items, each once, padded with 0
    rewards: NDArray[np.float32]  # [C, G] their rewards
    kind: Ints  # [C] kind of the event; 0 for a basket of several kinds
    history_counts: Ints | None = None  # [C] number of earlier events, also beyond the history length
    row: NDArray[np.int64] | None = None  # [C] the place of the case's event in the log

    def __len__(self) -> int:
        return len(self.user)

    @property
    def with_history(self) -> Cases:
        """The cases with a history."""
        return self.select(self.histories.items[:, -1] > 0)

    def select(self, rows: NDArray[Any]) -> Cases:
        """Select cases by number or by a mask [C]."""
        columns = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "histories"}
        selected: dict[str, Any] = {name: None if values is None else values[rows] for name, values in columns.items()}
        return Cases(histories=self.histories.part(rows), **selected)

    def grouped_by(self, owner: NDArray[Any]) -> Cases:
        """The same cases with other groups than the log's users: `owner` is [U] whole numbers."""
        return replace(self, user=np.asarray(owner)[self.user].astype(np.int32))


def next_events(log: Events, rows: NDArray[Any], length: int | None = 50) -> Cases:
    """Build a case from each of the events (numbers or a mask [M]), with the last `length` events before it.

    `length=None` uses complete histories.
    """
    rows = _numbers(rows)
    before, items, rewards = histories(log, rows, length), log.item[rows, None], log.reward[rows, None]
    return Cases(log.user[rows], before, items, rewards, log.event[rows], _earlier(log, rows), rows)


def next_baskets(log: Events, rows: NDArray[Any], length: int | None = None) -> Cases:
    """Build a case from each user's first basket among the events (numbers or a mask [M]): those at the first time.

    The rewards of an item that occurs twice in one basket are summed.
    """
    rows = _numbers(rows)
    opens = np.append(True, log.user[rows][1:] != log.user[rows][:-1])
    case = np.cumsum(opens) - 1
    basket = log.time[rows] == log.time[rows[opens]][case]
    rows, case = rows[basket], case[basket]
    keys, position = np.unique(np.stack([case, log.item[rows]]), axis=1, return_inverse=True)
    number, owner = len(opens[opens]), keys[0]
    within = np.arange(len(owner)) - np.searchsorted(owner, owner)
    targets = np.zeros((number, within.max() + 1), np.int32)
    rewards = np.zeros(targets.shape, np.float32)
    targets[owner, within] = keys[1]
    rewards[owner, within] = np.bincount(position.ravel(), log.reward[rows])
    first = rows[np.searchsorted(case, np.arange(number))]
    mixed = np.zeros(number, bool)
    np.logical_or.at(mixed, case, log.event[rows] != log.event[first][case])
    before, kind = histories(log, first, length), np.where(mixed, 0, log.event[first])
    return Cases(log.user[first], before, targets, rewards, kind, _earlier(log, first), first)


def held_out_cases(log: Interactions, most: int, length: int | None = None) -> Cases:
    """Build at most `most` cases from the events for evaluation; a larger number is a random sample, always the same.

    Next baskets where most events of the log are in baskets, with the last 10,000 events before each; else next events,
    with the last 50. `length` replaces both numbers.
    """
    rows, draw = log.targets, np.random.default_rng(0)
    if not log.has_baskets:
        rows = rows if len(rows) <= most else np.sort(draw.permutation(rows)[:most])
        return next_events(log, rows, length or LONGEST_OF_EVENTS)
    users = np.unique(log.user[rows])
    if len(users) > most:
        rows = rows[np.isin(log.user[rows], draw.permutation(users)[:most])]
    return next_baskets(log, rows, length or min(LONGEST, int(np.diff(log.starts).max())))


def split_users(log: Interactions, share: float) -> tuple[Interactions, Interactions]:
    """Split the users of the events for evaluation at random, always alike: a share of them, and all others.

    Both logs have all events; only the events for evaluation are those of their users. The users of a smaller share are
    among those of a larger one.
    """
    users = np.random.default_rng(0).permutation(np.unique(log.user[log.targets]))
    first, scored = np.isin(log.user, users[: round(share * len(users))]), np.zeros(len(log.user), bool)
    scored[log.targets] = True
    return replace(log, scored=scored & first), replace(log, scored=scored & ~first)


def histories(log: Events, rows: NDArray[Any], length: int | None = 50) -> HistoryArrays:
    """The events of the user before the given ones, with the user's features and place in the log."""
    if length is not None and length < 1:
        raise ConfigError(f"length = {length}", "a history of at least 1 event", "use 50")
    history_counts, user = _earlier(log, rows), log.user[rows]
    longest = max(1, int(history_counts.max(initial=0)))
    back = np.arange(longest if length is None else length, 0, -1)
    exists = back <= history_counts[:, None]
    position = np.where(exists, rows[:, None] - back, 0)
    items, events = (np.where(exists, column[position], 0).astype(np.int32) for column in (log.item, log.event))
    features = None if log.user_features is None else log.user_features[user]
    names = HistoryNames(log.items, log.events, log.users)
    return HistoryArrays(items, events, features, (user + 1).astype(np.int32), names)


def _earlier(log: Events, rows: NDArray[Any]) -> Ints:
    history_counts: Ints = (rows - np.searchsorted(log.user, log.user[rows])).astype(np.int32)
    return history_counts


def _numbers(rows: NDArray[Any]) -> NDArray[np.int64]:
    numbers = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.sort(np.asarray(rows, np.int64))
    if not len(numbers):
        raise ConfigError("there are no held-out events", fix="choose an earlier moment for the split")
    return numbers
