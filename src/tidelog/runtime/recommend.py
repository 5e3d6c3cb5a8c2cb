"""Lists of items by name: the input and output of a ranking policy.

Letters: `B` histories, `H` history length, `N` items.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tidelog.errors import SpecError, nearest
from tidelog.runtime.profiles import Profiles
from tidelog.runtime.ranking import MARKS, refuse_too_few
from tidelog.types import Catalogue, History, Spec

NumpyArray = np.ndarray[Any, Any]
LONGEST = 128  # largest number of characters of ids in a text array
MOST_GUESSES = 2_000  # largest catalogue with a search for the nearest id


class Recommendations(NamedTuple):
    """Lists, best first: the log's own ids, and scores that decrease along each list."""

    items: NumpyArray  # [B, k]
    scores: NumpyArray  # [B, k] float32


class Ranks(Protocol):
    """A ranker of item indices for histories [B, H] of item indices and kinds of events, left-padded with 0."""

    @property
    def items(self) -> int:
        """N."""

    @property
    def history(self) -> int:
        """H: the number of steps of a history."""

    @property
    def features(self) -> int:
        """F: the number of user features, 0 for none."""

    @property
    def width(self) -> int:
        """The smallest number of scored items for a list."""

    def rank(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        k: int,
        allowed: NumpyArray | None = None,
        users: NumpyArray | None = None,
    ) -> tuple[NumpyArray, NumpyArray]:
        """Return the best `k` items and their scores, [B, k] each; `allowed` [B, N + 1] bool, `users` [B, F]."""


class Vocabulary:
    """Items, kinds of events and user features, by name."""

    def __init__(self, spec: Spec) -> None:
        if not isinstance(spec.action, Catalogue):
            raise SpecError("this policy has actions, not items to rank. fix: call it with an observation")
        history: Any = spec.observation["history"]
        kinds: History = history
        self.ids = _named(spec.action.ids)
        self.kinds, self.usual = kinds.events, kinds.usual
        self._place = {str(one): i + 1 for i, one in enumerate(spec.action.ids)}
        self._kind = {word: i + 1 for i, word in enumerate(kinds.events)}
        who: Any = spec.observation.get("user")
        self.users = None if who is None else Profiles(who)

    def items(self, ids: Iterable[Any], where: str, skip: bool = False) -> list[int]:
        """Return indices of ids; SpecError names an unknown id, or with `skip` its index is 0."""
        indices = []
        for one in ids:
            place = self._place.get(str(one), 0)
            if not place and not skip:
                raise SpecError(f"{where} has the unknown item {one!r}; {self._guess(str(one))}")
            indices.append(place)
        return indices

    def events(self, words: Sequence[Any], where: str) -> list[int]:
        """Return indices of kinds of events."""
        for word in words:
            if str(word) not in self._kind:
                raise SpecError(f"{where} has the unknown event {word!r}: {nearest(str(word), self.kinds)}")
        return [self._kind[str(word)] for word in words]

    def _guess(self, word: str) -> str:
        if len(self._place) > MOST_GUESSES:
            return "fix: unknown='skip' ignores unknown items"
        return f"{nearest(word, self._place) if len(self._place) < 50 else nearest_or_nothing(word, self._place)}"


def nearest_or_nothing(word: str, known: Iterable[str]) -> str:
    """Return the nearest known id, without a list of all ids."""
    guess = nearest(word, known)
    return (
        f"{guess} unknown='skip' ignores it" if guess.startswith("did") else "fix: unknown='skip' ignores unknown items"
    )


def recommend(
    ranker: Ranks,
    vocabulary: Vocabulary,
    histories: Any,
    k: int = 10,
    exclude_seen: bool = True,
    candidates: Iterable[Any] | None = None,
    exclude: Iterable[Any] | None = None,
    events: Any = None,
    users: Any = None,
    unknown: str = "error",
) -> Recommendations:
    """Return the best `k` items after each history; see `Policy.recommend`."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise SpecError(f"k = {k!r}: expected a whole number. fix: use k=10")
    if not isinstance(exclude_seen, bool | np.bool_):
        raise SpecError(f"exclude_seen = {exclude_seen!r:.80}: expected True or False. fix: use True")
    if not isinstance(unknown, str) or unknown not in ("error", "skip"):
        raise SpecError(f"unknown = {unknown!r}: expected 'error' or 'skip'. fix: use one of them")
    items, kinds = encoded(vocabulary, histories, events, unknown == "skip")
    who = _described(ranker, vocabulary, users, len(items), unknown == "skip")
    offered = _offered(vocabulary, candidates, exclude)
    most = max(1, MARKS // (ranker.items + 1))
    parts = []
    for begin in range(0, len(items), most):
        rows = slice(begin, begin + most)
        allowed = np.repeat(offered[None], len(items[rows]), axis=0)
        for i, seen in enumerate(items[rows] if exclude_seen else ()):
            allowed[i, seen] = False
        refuse_too_few(allowed, int(k), begin)
        read, done = (_left_padded(part[rows], ranker.history) for part in (items, kinds))
        parts.append(ranker.rank(read, done, int(k), allowed, None if who is None else who[rows]))
    recommended, scores = zip(*parts, strict=True)
    return Recommendations(vocabulary.ids[np.concatenate(recommended) - 1], np.concatenate(scores))


def encoded(
    vocabulary: Vocabulary, histories: Any, events: Any = None, skip: bool = False
) -> tuple[list[list[int]], list[list[int]]]:
    """Return histories by name as indices of items and kinds of events, each with its own length."""
    if not _is_list(histories):
        raise SpecError(
            f"histories has the type {type(histories).__name__}, expected lists of item ids. fix: [[id, ...], ...]"
        )
    if len(histories) == 0:
        raise SpecError("no history, expected at least one. fix: [[]] for a user without history")
    if events is not None and not _is_list(events):
        raise SpecError(
            f"events has the type {type(events).__name__}, expected lists of kinds of events. fix: one list per history"
        )
    if events is not None and len(events) != len(histories):
        raise SpecError(
            f"{len(histories)} histories with {len(events)} lists of events. fix: pass one list per history"
        )
    rows, kinds = [], []
    for i, history in enumerate(histories):
        if not _is_list(history):
            raise SpecError(f"history {i} is {history!r:.80}, expected a list of item ids. fix: [id, ...]")
        if events is not None and not _is_list(events[i]):
            raise SpecError(f"events of history {i}: {events[i]!r:.80}, expected a list. fix: one kind per item")
        known = vocabulary.items(history, f"history {i}", skip)
        done = [vocabulary.usual] * len(known) if events is None else vocabulary.events(events[i], f"history {i}")
        if len(done) != len(known):
            raise SpecError(
                f"history {i} has {len(known)} items and {len(done)} events. fix: one kind of event per item"
            )
        pairs = [(item, kind) for item, kind in zip(known, done, strict=True) if item]
        rows.append([item for item, _ in pairs])
        kinds.append([kind for _, kind in pairs])
    return rows, kinds


def _is_list(value: Any) -> bool:
    several = isinstance(value, np.ndarray) and value.ndim > 0
    return several or (isinstance(value, Sequence) and not isinstance(value, str | bytes))


def _described(ranker: Ranks, vocabulary: Vocabulary, users: Any, rows: int, skip: bool) -> NumpyArray | None:
    if users is None:
        return None
    if vocabulary.users is None or not ranker.features:
        raise SpecError("this policy has no user features. fix: drop users=, or train with user_features=...")
    return vocabulary.users.read(users, rows, skip)


def _named(ids: tuple[str | int, ...]) -> NumpyArray:
    """Return the ids [N]; as objects where one is very long."""
    objects = np.empty(len(ids), object)
    objects[:] = ids
    return np.asarray(ids) if all(type(one) is int or len(str(one)) <= LONGEST for one in ids) else objects


def _offered(vocabulary: Vocabulary, candidates: Iterable[Any] | None, exclude: Iterable[Any] | None) -> NumpyArray:
    """Return [N + 1] bool: the items that may be recommended."""
    offered = np.full(len(vocabulary.ids) + 1, candidates is None)
    if candidates is not None:
        offered[vocabulary.items(_listed(candidates, "candidates"), "candidates")] = True
    if exclude is not None:
        offered[vocabulary.items(_listed(exclude, "exclude"), "exclude")] = False
    offered[0] = False
    return offered


def _listed(ids: Any, name: str) -> Iterable[Any]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) or (isinstance(ids, np.ndarray) and not ids.ndim):
        raise SpecError(f"{name} is {ids!r}, expected a list of item ids. fix: [id, ...]")
    return ids


def _left_padded(rows: list[list[int]], most: int) -> NumpyArray:
    """Return the last `most` steps of each row at most: [B, H] int32, left-padded with 0."""
    length = max(1, min(most, max(map(len, rows))))
    padded = np.zeros((len(rows), length), np.int32)
    for i, row in enumerate(rows):
        if row:
            padded[i, -len(row[-length:]) :] = row[-length:]
    return padded
