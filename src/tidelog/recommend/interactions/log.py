"""The canonical interaction log: who took which item, when, and what came of it.

Letters: `M` events, `U` users, `N` items, `H` history length, `S` items of a slate, `F` features, `B` rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.report import Report
from tidelog.errors import LogError
from tidelog.types import Catalogue, History, Profile, Spec

if TYPE_CHECKING:
    from tidelog.recommend.interactions.time_split import Split

ARRAYS = (
    "users", "items", "user", "item", "event", "reward", "time", "terminated", "truncated", "propensity", "slate",
    "item_features", "user_features", "scored",
)  # fmt: skip
OPTIONAL = ("propensity", "slate", "item_features", "user_features", "scored")


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
    origin: Mapping[str, Any] | None = None  # what `tidelog.data.io.origin.reopen` reads it from again

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
        from tidelog.recommend.interactions.statistics import describe

        return describe(self)

    def split(self, at: Any = None, share: float = 0.2) -> Split:
        """What came before a moment and what came after; without `at` the last `share` of the time is after.

        The second part keeps earlier events as history only. LogError where one part would be empty.
        """
        from tidelog.recommend.interactions.time_split import split_at

        return split_at(self, at, share)

    def leave_one_out(self) -> Split:
        """Each user's last event against all before it; its report warns that the past has seen the future."""
        from tidelog.recommend.interactions.time_split import leave_one_out

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
        from tidelog.recommend.interactions.storage import save

        save(self, Path(path), overwrite)
