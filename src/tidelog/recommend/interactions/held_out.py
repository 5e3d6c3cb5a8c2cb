"""Held-out questions for a recommender: what came before an event, and what was taken then.

Two protocols make the same `Cases`. *Next event*: each held-out event is one case, and all that the user did before it
is its history, held-out events included. *Next basket*: each user's first held-out purchase is one case, all items that
were taken at that moment are its targets.

Letters: `M` events of a log, `N` items, `U` users, `C` cases, `H` history length, `G` items of the largest basket,
`F` features of users.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError

Ints: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]


class Events(Protocol):
    """What is read of an interaction log: arrays sorted by user and time; item 0 and event 0 mean "none"."""

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
        """[M] numbers or moments, sorted within a user."""

    @property
    def terminated(self) -> Any:
        """[M] bool: the session ended with this event."""

    @property
    def truncated(self) -> Any:
        """[M] bool: the log ended with this event."""

    @property
    def user_features(self) -> Any:
        """[U, F] float32: what describes each user; None where nothing does."""


@dataclass(frozen=True, eq=False)
class Cases:
    """`C` questions with their answers; a case of one event has one target, a basket has as many as it holds items."""

    user: Ints  # [C]: whose case it is; intervals are over users
    history: Ints  # [C, H] items, the most recent last, 0 before the first
    events: Ints  # [C, H] kinds of the history's events, 0 before the first
    targets: Ints  # [C, G] the items that were taken, each once, 0 after the last
    rewards: NDArray[np.float32]  # [C, G] what taking them brought
    kind: Ints  # [C] kind of the event; 0 for a basket of several kinds
    about: NDArray[np.float32] | None = None  # [C, F] what describes the user
    earlier: Ints | None = None  # [C] how many events came before, more than a cut history holds

    def __len__(self) -> int:
        return len(self.user)

    @property
    def warm(self) -> Cases:
        """The cases that have a history."""
        return self.take(self.history[:, -1] > 0)

    def take(self, rows: NDArray[Any]) -> Cases:
        """These cases, by number or by a mask [C]."""
        held: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        kept: dict[str, Any] = {name: None if values is None else values[rows] for name, values in held.items()}
        return Cases(**kept)

    def by(self, owner: NDArray[Any]) -> Cases:
        """The same cases, owned by somebody else than the log's users: `owner` is [U] whole numbers."""
        return replace(self, user=np.asarray(owner)[self.user].astype(np.int32))


def next_events(log: Events, rows: NDArray[Any], length: int | None = 50) -> Cases:
    """Each of the given events (numbers or a mask [M]) as one case, with the last `length` events before it.

    `length=None` keeps the longest history whole.
    """
    rows = _numbers(rows)
    history, events = histories(log, rows, length)
    items, rewards = log.item[rows, None], log.reward[rows, None]
    return Cases(log.user[rows], history, events, items, rewards, log.event[rows], *_beside(log, rows))


def next_baskets(log: Events, rows: NDArray[Any], length: int | None = None) -> Cases:
    """Each user's first basket among the given events (numbers or a mask [M]): all of them at the user's first time.

    Of an item that was taken twice in one basket the rewards are added up.
    """
    rows = _numbers(rows)
    opens = np.append(True, log.user[rows][1:] != log.user[rows][:-1])
    case = np.cumsum(opens) - 1
    basket = log.time[rows] == log.time[rows[opens]][case]
    rows, case = rows[basket], case[basket]
    keys, place = np.unique(np.stack([case, log.item[rows]]), axis=1, return_inverse=True)
    number, found = len(opens[opens]), keys[0]
    within = np.arange(len(found)) - np.searchsorted(found, found)
    targets = np.zeros((number, within.max() + 1), np.int32)
    rewards = np.zeros(targets.shape, np.float32)
    targets[found, within] = keys[1]
    rewards[found, within] = np.bincount(place.ravel(), log.reward[rows])
    first = rows[np.searchsorted(case, np.arange(number))]
    mixed = np.zeros(number, bool)
    np.logical_or.at(mixed, case, log.event[rows] != log.event[first][case])
    history, events = histories(log, first, length)
    kind = np.where(mixed, 0, log.event[first])
    return Cases(log.user[first], history, events, targets, rewards, kind, *_beside(log, first))


def histories(log: Events, rows: NDArray[Any], length: int | None = 50) -> tuple[Ints, Ints]:
    """Items and kinds of the events before the given ones, both [C, H], the most recent last, 0 before the first."""
    if length is not None and length < 1:
        raise ConfigError(f"a history holds at least 1 event, found length {length}")
    earlier = _earlier(log, rows)
    longest = max(1, int(earlier.max(initial=0)))
    back = np.arange(longest if length is None else length, 0, -1)
    there = back <= earlier[:, None]
    place = np.where(there, rows[:, None] - back, 0)
    return np.where(there, log.item[place], 0).astype(np.int32), np.where(there, log.event[place], 0).astype(np.int32)


def _beside(log: Events, rows: NDArray[Any]) -> tuple[NDArray[np.float32] | None, Ints]:
    """What describes the users of events [C, F], and how many events of theirs came before [C]."""
    about = None if log.user_features is None else log.user_features[log.user[rows]]
    return about, _earlier(log, rows)


def _earlier(log: Events, rows: NDArray[Any]) -> Ints:
    earlier: Ints = (rows - np.searchsorted(log.user, log.user[rows])).astype(np.int32)
    return earlier


def _numbers(rows: NDArray[Any]) -> NDArray[np.int64]:
    numbers = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.sort(np.asarray(rows, np.int64))
    if not len(numbers):
        raise ConfigError("there are no held-out events; choose an earlier cut")
    return numbers
