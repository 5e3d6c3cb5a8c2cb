"""Lists of items by name: what a user of a policy hands in, and what comes back.

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
LONGEST = 128  # letters of ids that are kept in an array of text
MOST_GUESSES = 2_000  # items among which a misspelt one is looked for


class Recommendations(NamedTuple):
    """Lists, best first: the log's own ids, and scores that fall along each list."""

    items: NumpyArray  # [B, k]
    scores: NumpyArray  # [B, k] float32


class Ranks(Protocol):
    """What ranks item indices after histories [B, H] of item indices and kinds of events, left-padded with 0."""

    @property
    def items(self) -> int:
        """N."""

    @property
    def history(self) -> int:
        """H: how many steps are read."""

    @property
    def features(self) -> int:
        """F: how many numbers are read of a user, 0 where nothing is."""

    @property
    def width(self) -> int:
        """How many items are looked at for a list, at least."""

    def rank(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        k: int,
        allowed: NumpyArray | None = None,
        users: NumpyArray | None = None,
    ) -> tuple[NumpyArray, NumpyArray]:
        """The best `k` items and their scores, [B, k] each; `allowed` [B, N + 1] bool, `users` [B, F]."""


class Vocabulary:
    """Items, kinds of events and what describes users, by name."""

    def __init__(self, spec: Spec) -> None:
        if not isinstance(spec.action, Catalogue):
            raise SpecError("this policy chooses one action, it ranks no items: call it with an observation")
        history: Any = spec.observation["history"]
        kinds: History = history
        self.ids = _named(spec.action.ids)
        self.kinds, self.usual = kinds.events, kinds.usual
        self._place = {str(one): i + 1 for i, one in enumerate(spec.action.ids)}
        self._kind = {word: i + 1 for i, word in enumerate(kinds.events)}
        who: Any = spec.observation.get("user")
        self.users = None if who is None else Profiles(who)

    def items(self, ids: Iterable[Any], where: str, skip: bool = False) -> list[int]:
        """Indices of ids; SpecError names one that the log never had, unless they are to be passed over (0)."""
        found = []
        for one in ids:
            place = self._place.get(str(one), 0)
            if not place and not skip:
                raise SpecError(f"{where} names the item {one!r}, which the log never had; {self._guess(str(one))}")
            found.append(place)
        return found

    def events(self, words: Sequence[Any], where: str) -> list[int]:
        """Indices of kinds of events."""
        for word in words:
            if str(word) not in self._kind:
                raise SpecError(f"{where} has the event {word!r}: {nearest(str(word), self.kinds)}")
        return [self._kind[str(word)] for word in words]

    def _guess(self, word: str) -> str:
        if len(self._place) > MOST_GUESSES:
            return "unknown='skip' passes over such items"
        return f"{nearest(word, self._place) if len(self._place) < 50 else nearest_or_nothing(word, self._place)}"


def nearest_or_nothing(word: str, known: Iterable[str]) -> str:
    """The nearest known word, without a list of all of them."""
    guess = nearest(word, known)
    return f"{guess} unknown='skip' passes over such items" if guess.startswith("did") else "unknown='skip' passes over"


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
    """The best `k` items after each history; see `Policy.recommend`."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise SpecError(f"k = {k!r}: expected a whole number")
    if not isinstance(exclude_seen, bool | np.bool_):
        raise SpecError(f"exclude_seen = {exclude_seen!r:.80}: expected True or False")
    if not isinstance(unknown, str) or unknown not in ("error", "skip"):
        raise SpecError(f"unknown = {unknown!r}: expected 'error' or 'skip'")
    items, kinds = encoded(vocabulary, histories, events, unknown == "skip")
    who = _described(ranker, vocabulary, users, len(items), unknown == "skip")
    offered = _offered(vocabulary, candidates, exclude)
    most = max(1, MARKS // (ranker.items + 1))
    parts = []
    for begin in range(0, len(items), most):
        rows = slice(begin, begin + most)
        allowed = np.repeat(offered[None], len(items[rows]), axis=0)
        for i, taken in enumerate(items[rows] if exclude_seen else ()):
            allowed[i, taken] = False
        refuse_too_few(allowed, int(k), begin)
        read, done = (_left_padded(part[rows], ranker.history) for part in (items, kinds))
        parts.append(ranker.rank(read, done, int(k), allowed, None if who is None else who[rows]))
    found, scores = zip(*parts, strict=True)
    return Recommendations(vocabulary.ids[np.concatenate(found) - 1], np.concatenate(scores))


def encoded(
    vocabulary: Vocabulary, histories: Any, events: Any = None, skip: bool = False
) -> tuple[list[list[int]], list[list[int]]]:
    """Histories by name as indices, each as long as it is: items and kinds of events."""
    if not _is_list(histories):
        raise SpecError(f"histories must be a list of lists of item ids, found {type(histories).__name__}")
    if len(histories) == 0:
        raise SpecError("no history was handed in; a user without one is an empty list: [[]]")
    if events is not None and not _is_list(events):
        raise SpecError(f"events must be a list of lists of kinds of events, found {type(events).__name__}")
    if events is not None and len(events) != len(histories):
        raise SpecError(f"{len(histories)} histories and {len(events)} lists of events were handed in")
    rows, kinds = [], []
    for i, history in enumerate(histories):
        if not _is_list(history):
            raise SpecError(f"history {i} must be a list of item ids, found {history!r:.80}")
        if events is not None and not _is_list(events[i]):
            raise SpecError(f"the events of history {i} must be a list of kinds of events, found {events[i]!r:.80}")
        found = vocabulary.items(history, f"history {i}", skip)
        done = [vocabulary.usual] * len(found) if events is None else vocabulary.events(events[i], f"history {i}")
        if len(done) != len(found):
            raise SpecError(f"history {i} has {len(found)} items and {len(done)} events")
        pairs = [(item, kind) for item, kind in zip(found, done, strict=True) if item]
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
        raise SpecError("this policy reads nothing of users: leave `users` away, or train with user_features=...")
    return vocabulary.users.read(users, rows, skip)


def _named(ids: tuple[str | int, ...]) -> NumpyArray:
    """The ids [N]; where one is very long, not every one in as much room."""
    found = np.empty(len(ids), object)
    found[:] = ids
    return np.asarray(ids) if all(type(one) is int or len(str(one)) <= LONGEST for one in ids) else found


def _offered(vocabulary: Vocabulary, candidates: Iterable[Any] | None, exclude: Iterable[Any] | None) -> NumpyArray:
    """[N + 1] bool: the items that may be recommended to anybody."""
    offered = np.full(len(vocabulary.ids) + 1, candidates is None)
    if candidates is not None:
        offered[vocabulary.items(_listed(candidates, "candidates"), "candidates")] = True
    if exclude is not None:
        offered[vocabulary.items(_listed(exclude, "exclude"), "exclude")] = False
    offered[0] = False
    return offered


def _listed(ids: Any, name: str) -> Iterable[Any]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) or (isinstance(ids, np.ndarray) and not ids.ndim):
        raise SpecError(f"{name} must be a list of item ids, found {ids!r}")
    return ids


def _left_padded(rows: list[list[int]], most: int) -> NumpyArray:
    """The last steps of each row, `most` at most: [B, H] int32, left-padded with 0."""
    length = max(1, min(most, max(map(len, rows))))
    found = np.zeros((len(rows), length), np.int32)
    for i, row in enumerate(rows):
        if row:
            found[i, -len(row[-length:]) :] = row[-length:]
    return found
