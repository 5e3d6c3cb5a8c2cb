"""Held-out test cases for a recommender: the history before an event, and the items chosen then.

Two protocols give `Cases`. *Next event*: each held-out event is one case, and all earlier events of the user are its
history, held-out events included. *Next basket*: each user's first held-out purchase is one case, and all items
chosen at that moment are its targets.

Letters: `M` events of a log, `N` items, `U` users, `C` cases, `H` history length, `G` items of the largest basket,
`F` features of users.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError
from tidelog.recommend.interactions.log import Interactions, following_gaps

Ints: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]
LONGEST, LONGEST_OF_EVENTS = 10_000, 50  # last events of a history, of baskets and of single events


class Events(Protocol):
    """The interface of an interaction log: arrays sorted by user and time; item 0 and event 0 mean "none"."""

    @property
    def items(self) -> Any:
        """[N] ids; item i is `items[i - 1]`."""

    @property
    def user(self) -> Any:
        """[M] int32, sorted."""

    @property
    def item(self) -> Any:
        """[M] int32: 1 .. N."""

    @property
    def event(self) -> Any:
        """[M] int32: the kind of event, counted from 1."""

    @property
    def reward(self) -> Any:
        """[M] float32."""

    @property
    def time(self) -> Any:
        """[M] numbers or datetimes, sorted within a user."""

    @property
    def terminated(self) -> Any:
        """[M] bool: the session ends with this event."""

    @property
    def truncated(self) -> Any:
        """[M] bool: the log ends with this event."""

    @property
    def user_features(self) -> Any:
        """[U, F] float32: the features of each user; None without features."""


@dataclass(frozen=True, eq=False)
class Cases:
    """`C` test cases with their targets: one target for an event, one per item for a basket."""

    user: Ints  # [C]: the user of each case; intervals resample users
    history: Ints  # [C, H] items, latest last, padded with 0
    events: Ints  # [C, H] kinds of the history's events, padded with 0
    targets: Ints  # [C, G] the chosen items, each once, padded with 0
    rewards: NDArray[np.float32]  # [C, G] their rewards
    kind: Ints  # [C] kind of the event; 0 for a basket of several kinds
    user_features: NDArray[np.float32] | None = None  # [C, F] user features
    history_counts: Ints | None = None  # [C] number of earlier events, also beyond the history length
    gaps: NDArray[np.int8] | None = None  # [C, H] groups of the times after the history's events, 0 for none
    user_index: Ints | None = None  # [C] the place of the case's user in the log, counted from 1
    row: NDArray[np.int64] | None = None  # [C] the place of the case's event in the log

    def __len__(self) -> int:
        return len(self.user)

    @property
    def with_history(self) -> Cases:
        """The cases with a history."""
        return self.select(self.history[:, -1] > 0)

    def select(self, rows: NDArray[Any]) -> Cases:
        """Select cases by number or by a mask [C]."""
        columns: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        selected: dict[str, Any] = {name: None if values is None else values[rows] for name, values in columns.items()}
        return Cases(**selected)

    def grouped_by(self, owner: NDArray[Any]) -> Cases:
        """The same cases with other groups than the log's users: `owner` is [U] whole numbers."""
        return replace(self, user=np.asarray(owner)[self.user].astype(np.int32))


def next_events(log: Events, rows: NDArray[Any], length: int | None = 50) -> Cases:
    """Build a case from each of the events (numbers or a mask [M]), with the last `length` events before it.

    `length=None` uses complete histories.
    """
    rows = _numbers(rows)
    history, events = histories(log, rows, length)
    items, rewards = log.item[rows, None], log.reward[rows, None]
    return Cases(
        log.user[rows],
        history,
        events,
        items,
        rewards,
        log.event[rows],
        *_user_columns(log, rows, history.shape[1]),
        rows,
    )


def next_baskets(log: Events, rows: NDArray[Any], length: int | None = None) -> Cases:
    """Build a case from each user's first basket among the events (numbers or a mask [M]): those at the first time.

    The rewards of an item that occurs twice in one basket are summed.
    """
    rows = _numbers(rows)
    opens = np.append(True, log.user[rows][1:] != log.user[rows][:-1])
    case = np.cumsum(opens) - 1
    basket = log.time[rows] == log.time[rows[opens]][case]
    rows, case = rows[basket], case[basket]
    keys, place = np.unique(np.stack([case, log.item[rows]]), axis=1, return_inverse=True)
    number, owner = len(opens[opens]), keys[0]
    within = np.arange(len(owner)) - np.searchsorted(owner, owner)
    targets = np.zeros((number, within.max() + 1), np.int32)
    rewards = np.zeros(targets.shape, np.float32)
    targets[owner, within] = keys[1]
    rewards[owner, within] = np.bincount(place.ravel(), log.reward[rows])
    first = rows[np.searchsorted(case, np.arange(number))]
    mixed = np.zeros(number, bool)
    np.logical_or.at(mixed, case, log.event[rows] != log.event[first][case])
    history, events = histories(log, first, length)
    kind = np.where(mixed, 0, log.event[first])
    columns = _user_columns(log, first, history.shape[1])
    return Cases(log.user[first], history, events, targets, rewards, kind, *columns, first)


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


def histories(log: Events, rows: NDArray[Any], length: int | None = 50) -> tuple[Ints, Ints]:
    """Items and kinds of the events before the given ones, both [C, H], latest last, padded with 0 at the beginning."""
    if length is not None and length < 1:
        raise ConfigError(f"length = {length}: expected a history of at least 1 event. fix: use 50")
    history_counts = _earlier(log, rows)
    longest = max(1, int(history_counts.max(initial=0)))
    back = np.arange(longest if length is None else length, 0, -1)
    exists = back <= history_counts[:, None]
    place = np.where(exists, rows[:, None] - back, 0)
    return np.where(exists, log.item[place], 0).astype(np.int32), np.where(exists, log.event[place], 0).astype(np.int32)


def _user_columns(
    log: Events, rows: NDArray[Any], length: int
) -> tuple[NDArray[np.float32] | None, Ints, NDArray[np.int8], Ints]:
    """User features of events [C, F], the number of the user's earlier events [C], their gaps [C, H], the user [C]."""
    user_features = None if log.user_features is None else log.user_features[log.user[rows]]
    count, back = _earlier(log, rows), np.arange(length, 0, -1)
    exists = back <= count[:, None]
    gaps = following_gaps(np.asarray(log.user), np.asarray(log.time))
    known = np.where(exists, gaps[np.where(exists, rows[:, None] - back, 0)], 0).astype(np.int8)
    return user_features, count, known, (log.user[rows] + 1).astype(np.int32)


def _earlier(log: Events, rows: NDArray[Any]) -> Ints:
    history_counts: Ints = (rows - np.searchsorted(log.user, log.user[rows])).astype(np.int32)
    return history_counts


def _numbers(rows: NDArray[Any]) -> NDArray[np.int64]:
    numbers = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.sort(np.asarray(rows, np.int64))
    if not len(numbers):
        raise ConfigError("there are no held-out events. fix: choose an earlier moment for the split")
    return numbers
