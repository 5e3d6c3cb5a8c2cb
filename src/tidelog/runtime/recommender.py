"""A saved policy over a catalogue: histories and user features by name in, lists of items out, without JAX.

Letters: `B` histories, `H` history length, `N` items, `F` features of users.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from tidelog._machine import shortage
from tidelog._text import rows_table
from tidelog.errors import MemoryLimitError, SpecError, nearest
from tidelog.runtime.artefact import SavedPolicy, notes_of
from tidelog.runtime.networks import FiniteNumbers, end_if_stopped
from tidelog.runtime.ranking import MARKS, Ranker, Ranks, refuse_too_few, renumbered
from tidelog.types import Catalogue, History, HistoryArrays, HistoryNames, Profile, Spec

# Lists after the ranking: more diverse ones, and the item of the history that each recommendation depends on most.
#
# Letters: `B` histories, `P` items of a pool, `K` length of a list, `D` item vector size, `V` variants of a history.

NumpyArray = np.ndarray[Any, Any]
NUMBERS = 1 << 24  # numbers of the vectors of pools in memory at once
POOL, LEAST_POOL = 4, 50  # a more diverse list is chosen among so many times its length, and at least so many items
MOST_REASONS = 50  # last different items of a history that can be a reason


class Explanations(NamedTuple):
    """For each recommended item the item of the history without which it would be least likely; None without one."""

    items: NumpyArray  # [B, K] objects
    times: NumpyArray  # [B, K] float32: how many times likelier the recommended item is with it, 1 without a reason


def pool_size(k: int, allowed: NumpyArray) -> int:
    """Return the number of items that a diverse list of `k` is chosen among: allowed [B, N + 1] bool."""
    return int(min(max(POOL * k, LEAST_POOL), allowed[:, 1:].sum(axis=1).min()))


def diverse(items: NumpyArray, scores: NumpyArray, vectors: NumpyArray, k: int, weight: float) -> tuple[Any, Any]:
    """Return `k` of the items [B, P] and their scores, [B, K] each, one after the other by marginal relevance.

    It is `(1 - weight) relevance - weight s`, the score scaled to [0, 1] over the pool, and `s` the largest inner
    product of the item's vector [D] of length 1 with those chosen before (Carbonell and Goldstein 1998,
    doi:10.1145/290941.291025). `vectors` [N + 1, D] belong to all items.
    """
    most = max(1, NUMBERS // max(1, items.shape[1] * vectors.shape[1]))
    width = scores[:, :1] - scores[:, -1:]
    relevance = (scores - scores[:, -1:]) / np.where(width > 0.0, width, 1.0)
    order = np.zeros((len(items), k), np.int64)
    for begin in range(0, len(items), most):
        part = slice(begin, begin + most)
        directions = vectors[items[part]]  # [B, P, D]
        rows, free = np.arange(len(directions)), np.ones(directions.shape[:2], bool)
        near = np.full(free.shape, -1.0)  # the largest similarity to an item of the list; no item: the smallest one
        for position in range(k):
            end_if_stopped()
            value = np.where(free, (1.0 - weight) * relevance[part] - weight * near, -np.inf)
            order[part, position] = best = value.argmax(axis=1)
            free[rows, best] = False
            near = np.maximum(near, np.einsum("bpd,bd->bp", directions, directions[rows, best]))
    return np.take_along_axis(items, order, axis=1), np.take_along_axis(scores, order, axis=1)


def reasons(ranker: Ranker, known: IndexedHistories, items: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
    """Return an item of each history, 0 for none, and how many times likelier it makes recommended items [B, K].

    Each item of the history is left out in turn, with all of its events: the reason is the one without which the
    recommended item has the lowest likelihood, if it is lower than with it. Q is not part of it.
    """
    found, times = np.zeros(items.shape, np.int64), np.ones(items.shape, np.float32)
    for i in range(len(items)):
        end_if_stopped()
        seen = known.arrays(slice(i, i + 1), ranker.history)
        latest = list(dict.fromkeys(seen.items[0][seen.items[0] > 0][::-1].tolist()))[:MOST_REASONS]
        if not latest:
            continue
        variants = seen.part(np.zeros(1 + len(latest), np.int64))
        for row, left_out in enumerate(latest, 1):
            others = seen.items[0] != left_out
            count = int(others.sum())
            for to, values in zip(variants[:2], seen[:2], strict=True):
                to[row] = 0
                to[row, len(others) - count :] = values[0][others]
        likelihood = ranker.log_likelihood(variants, np.repeat(items[i : i + 1], 1 + len(latest), axis=0))
        loss = likelihood[0] - likelihood[1:]  # [V - 1, K]
        largest = loss.argmax(axis=0)
        gain = np.take_along_axis(loss, largest[None], axis=0)[0]
        found[i] = np.where(gain > 0.0, np.asarray(latest)[largest], 0)
        times[i] = np.exp(np.clip(gain, 0.0, 80.0))
    return found, times


REPEATED = 0.1  # share of repeated items in a log from which on lists may contain items of the history
MOST = 1e38  # largest 32-bit number, about
FEW = 20  # values that an error lists
LONGEST = 128  # largest number of characters of ids in a text array
MOST_GUESSES = 2_000  # largest catalogue with a search for the nearest id
MOST_SHOWN = 10  # lists, and items of each, in a table of a notebook
MOST_LISTED = 50  # items from which on an error does not list all ids
SKIP = "set unknown to 'skip' to ignore it"


ENTRY = 24  # bytes of an entry of the lists besides its id: two copies of its index (8) and of its score (4)


@dataclass(frozen=True, eq=False)
class Histories:
    """What a ranking policy is asked: histories of users by item id, and what else is known of these users.

    A policy refuses what it does not read.

    Example:
        >>> from tidelog import Histories
        >>> shop = tl.read_interactions(
        ...     pl.DataFrame({"user": [1, 1, 2], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]}),
        ...     user="user", item="item", time="time")
        >>> policy = tl.fit(tl.RecommenderBCQ(history=2, targets=2), shop, steps=2, progress=False).policy()
        >>> asked = Histories([["tea", "mug"], []], unknown="skip")
        >>> policy.recommend(asked, k=1).items.shape
        (2, 1)
    """

    items: Any  # [B] lists of item ids, the latest last; [] is an empty history
    events: Any = None  # [B] lists with the kind of event of each item; None: the most frequent kind
    users: Any = None  # [B] mappings from columns of the user features to values; None: nothing is known
    user_ids: Any = None  # [B] ids; None, or an id that the log does not have, is an unknown user
    unknown: Literal["error", "skip"] = "error"  # "skip" ignores unknown items and unknown words of users

    @classmethod
    def of(cls, histories: Any) -> Histories:
        """Return histories as they are, and lists of ids as histories of which nothing else is known."""
        return histories if isinstance(histories, cls) else cls(histories)


class IndexedHistories(NamedTuple):
    """Histories by item index, each as long as it is, and what is known of their users."""

    items: list[list[int]]
    events: list[list[int]]
    users: NumpyArray | None  # [B, F] features
    user_index: NumpyArray | None  # [B] places of the users
    names: HistoryNames  # of the policy

    def arrays(self, rows: slice, length: int) -> HistoryArrays:
        """Return the last `length` steps of some rows at most, left-padded with 0."""
        items, events = (_left_padded(part[rows], length) for part in (self.items, self.events))
        users, index = (None if part is None else part[rows] for part in (self.users, self.user_index))
        return HistoryArrays(items, events, users, index, self.names)


class Recommendations(NamedTuple):
    """Lists, best first: the log's own ids, and scores that decrease along each list."""

    items: NumpyArray  # [B, k]
    scores: NumpyArray  # [B, k] float32

    def _repr_html_(self) -> str:
        """Return a table for notebooks, with the first lists and the first items of each."""
        lists, length = self.items.shape
        more = [f"the first {MOST_SHOWN} items" if length > MOST_SHOWN else "",
                f"the first {MOST_SHOWN} lists" if lists > MOST_SHOWN else ""]  # fmt: skip
        title = "; ".join([f"Recommendations: {lists:,} lists of {length:,} items", *filter(None, more)])
        shown = zip(self.items[:MOST_SHOWN, :MOST_SHOWN], self.scores[:MOST_SHOWN, :MOST_SHOWN], strict=True)
        rows = [
            (position, *(f"{item} ({score:.3g})" for item, score in zip(items.tolist(), scores.tolist(), strict=True)))
            for position, (items, scores) in enumerate(shown)
        ]
        return rows_table(title, ("list", *map(str, range(1, min(length, MOST_SHOWN) + 1))), rows)


def excludes_seen(ranker: PolicyRanker) -> bool:
    """Return whether lists leave out items of the history by default: fewer than a tenth of the events repeat one."""
    return ranker.repeat_share < REPEATED


class PolicyRanker(Ranks, Protocol):
    """A ranker of item indices with the facts of its policy; see `Ranker`."""

    items: int
    history: int
    features: int
    known_users: int
    repeat_share: float

    def whole(self) -> Ranker:
        """Return a ranker of the same policy with item vectors, likelihoods, and lists of any length."""


class Recommends(ABC):
    """A policy that ranks the items of a catalogue, in any runtime."""

    spec: Spec

    @abstractmethod
    def ranker(self) -> PolicyRanker:
        """Return the ranker of item indices."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Return notes for the user about this policy."""

    @cached_property
    def _ranker(self) -> PolicyRanker:
        return self.ranker()

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.spec)

    def recommend(
        self,
        histories: Any,
        k: int = 10,
        exclude_seen: bool | None = None,
        candidates: Iterable[Any] | Callable[[Any], bool] | NumpyArray | None = None,
        exclude: Iterable[Any] | None = None,
        *,
        diversity: float = 0.0,
        progress: Callable[[float], None] | None = None,
    ) -> Recommendations:
        """Return the best `k` items after each history: a list of item ids, the latest last; [] is an empty history.

        `histories` are lists of ids, or `Histories`, which also say what else is known of the users; `exclude_seen`
        excludes items of the history (None: unless at least a tenth of the log's events repeat an item); `candidates`
        are the only items to choose from: ids, a function of an id, or a mask [N] or [B, N] in the order of
        `spec.action.ids`; `exclude` are never chosen; `diversity` from 0 to 1 trades score against similarity within a
        list. `progress` is called with the share of the lists that is made.
        The same input gives the same lists. SpecError where fewer than `k` items remain, or an id or value is unknown;
        MemoryLimitError if the lists do not fit into free memory.
        """
        vocabulary, ranker = self._vocabulary, self._ranker
        if isinstance(k, bool) or not isinstance(k, int | np.integer):
            raise SpecError(f"k = {k!r}", "a whole number", "use k=10")
        if exclude_seen is None:
            exclude_seen = excludes_seen(ranker)
        if not isinstance(exclude_seen, bool | np.bool_):
            raise SpecError(f"exclude_seen = {exclude_seen!r:.80}", "True, False or None", "use True")
        if isinstance(diversity, bool) or not isinstance(diversity, int | float) or not 0.0 <= diversity <= 1.0:
            raise SpecError(f"diversity = {diversity!r:.80}", "a number from 0 to 1", "use 0.3")
        known = vocabulary.read(Histories.of(histories), ranker)
        items = known.items
        offered = _offered(vocabulary, candidates, exclude, len(items))
        most = max(1, MARKS // (ranker.items + 1))
        problem = shortage(len(items) * max(0, int(k)) * (vocabulary.ids.itemsize + ENTRY))
        if problem is not None:
            raise MemoryLimitError(
                f"{len(items):,} lists of {k} items: {problem}", fix="recommend to fewer users at a time"
            )
        parts = []
        for begin in range(0, len(items), most):
            rows = slice(begin, begin + most)
            allowed = np.repeat(offered[None], len(items[rows]), axis=0) if offered.ndim == 1 else offered[rows]
            for i, seen in enumerate(items[rows] if exclude_seen else ()):
                allowed[i, seen] = False
            refuse_too_few(allowed, int(k), begin)
            asked = known.arrays(rows, ranker.history)
            with FiniteNumbers():
                if diversity:
                    whole = ranker.whole()
                    pool = whole.rank(asked, pool_size(int(k), allowed), allowed)
                    parts.append(diverse(*pool, whole.vectors, int(k), diversity))
                else:
                    parts.append(ranker.rank(asked, int(k), allowed))
            if progress is not None:
                progress(min(begin + most, len(items)) / len(items))
        recommended, scores = zip(*parts, strict=True)
        return Recommendations(vocabulary.ids[np.concatenate(recommended) - 1], np.concatenate(scores))

    def explain(self, histories: Any, items: Any) -> Explanations:
        """Return for each recommended item [B, k] the item of the history that makes it likelier than any other does.

        `histories` as for `recommend`, and `items` of its lists. `times` says how many times likelier it is than
        without that item; Q is not part of it. SpecError for an unknown id.
        """
        vocabulary, whole = self._vocabulary, self._ranker.whole()
        known = vocabulary.read(Histories.of(histories), whole)
        lists = [
            vocabulary.items(_id_list(row, "items"), f"items[{i}]") for i, row in enumerate(_id_list(items, "items"))
        ]
        if len(lists) != len(known.items) or len({len(row) for row in lists}) != 1 or not lists[0]:
            raise SpecError(
                f"{len(known.items)} histories with lists of {[len(row) for row in lists][:5]} items",
                "one list for each history, of equal lengths",
                "pass lists.items of recommend(...)",
            )
        found, more = reasons(whole, known, np.asarray(lists, np.int64))
        return Explanations(np.append(np.array([None], object), vocabulary.ids.astype(object))[found], more)


class Recommender(Recommends):
    """A saved policy that ranks items, without JAX; its lists are those of `tidelog.Policy`."""

    is_recurrent = False  # the history is the whole state

    def __init__(self, saved: SavedPolicy, ranker: PolicyRanker) -> None:
        self.spec: Spec = saved.spec
        self.manifest: Mapping[str, Any] = saved.manifest
        self._made_by = ranker

    def ranker(self) -> PolicyRanker:
        """Return the ranker of item indices."""
        return self._made_by

    def notes(self) -> list[str]:
        """Return notes for the user about this policy, as they were when it was saved."""
        return notes_of(self.manifest)

    def __call__(self, observation: Any, mask: Any = None, state: Any = None) -> Any:
        """Raise SpecError: items are ranked, not chosen."""
        raise SpecError("this policy ranks items of a catalogue", fix="call policy.recommend(histories, k)")


def _is_list(value: Any) -> bool:
    several = isinstance(value, np.ndarray) and value.ndim > 0
    return several or (isinstance(value, Sequence) and not isinstance(value, str | bytes))


def _offered(
    vocabulary: Vocabulary,
    candidates: Iterable[Any] | Callable[[Any], bool] | NumpyArray | None,
    exclude: Iterable[Any] | None,
    rows: int,
) -> NumpyArray:
    """Return [N + 1] bool: the items that may be recommended; [B, N + 1] where this depends on the history."""
    count = len(vocabulary.ids)
    offered = np.full(count + 1, candidates is None)
    if isinstance(candidates, np.ndarray) and candidates.dtype == bool:
        if candidates.shape not in ((count,), (rows, count)):
            raise SpecError(
                f"candidates is a mask {list(candidates.shape)}",
                f"[{count}] or [{rows}, {count}], in the order of spec.action.ids",
                "one value for each item",
            )
        offered = np.concatenate([np.zeros((*candidates.shape[:-1], 1), bool), candidates], axis=-1)
    elif callable(candidates):
        offered[1:] = [bool(candidates(one)) for one in vocabulary.ids.tolist()]
    elif candidates is not None:
        offered[vocabulary.items(_id_list(candidates, "candidates"), "candidates")] = True
    if exclude is not None:
        offered[..., vocabulary.items(_id_list(exclude, "exclude"), "exclude")] = False
    offered[..., 0] = False
    return offered


def _id_list(ids: Any, name: str) -> Iterable[Any]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) or (isinstance(ids, np.ndarray) and not ids.ndim):
        raise SpecError(f"{name} is {ids!r}", "a list of item ids", "[id, ...]")
    return ids


def _left_padded(rows: list[list[int]], most: int) -> NumpyArray:
    """Return the last `most` steps of each row at most: [B, H] int32, left-padded with 0."""
    length = max(1, min(most, max(map(len, rows))))
    padded = np.zeros((len(rows), length), np.int32)
    for i, row in enumerate(rows):
        if row:
            padded[i, -len(row[-length:]) :] = row[-length:]
    return padded


class Vocabulary:
    """Items, kinds of events and user features, by name."""

    def __init__(self, spec: Spec) -> None:
        if not isinstance(spec.action, Catalogue):
            raise SpecError("this policy has actions, not items to rank", fix="call it with an observation")
        history: Any = spec.observation["history"]
        kinds: History = history
        ids = np.empty(len(spec.action.ids), object)  # objects where an id is very long
        ids[:] = spec.action.ids
        short = all(type(one) is int or len(str(one)) <= LONGEST for one in spec.action.ids)
        self.ids = np.asarray(spec.action.ids) if short else ids  # [N]
        self.kinds, self.usual = kinds.events, kinds.usual
        self._place = {str(one): i + 1 for i, one in enumerate(spec.action.ids)}
        self._kind = {word: i + 1 for i, word in enumerate(kinds.events)}
        who: Any = spec.observation.get("user")
        self.users = None if who is None else Profiles(who)
        ids_of_users: Any = spec.observation.get("user_id")
        known_users = None if ids_of_users is None else ids_of_users.ids
        self.names = HistoryNames(self.ids, kinds.events, known_users)
        self._compared: tuple[Any, Any] = (self.ids, known_users)  # ids that were found to be these
        self._user = {} if ids_of_users is None else {str(one): i + 1 for i, one in enumerate(ids_of_users.ids)}

    def read(self, asked: Histories, ranker: PolicyRanker) -> IndexedHistories:
        """Return histories by item index; SpecError for what the log does not have, or the policy does not read."""
        if not isinstance(asked.unknown, str) or asked.unknown not in ("error", "skip"):
            raise SpecError(f"unknown = {asked.unknown!r}", "'error' or 'skip'", "use one of them")
        skip = asked.unknown == "skip"
        items, events = self._steps(asked.items, asked.events, skip)
        places = who = None
        if ranker.known_users:
            places = self.user_places(asked.user_ids, len(items))
        elif asked.user_ids is not None:
            raise SpecError(
                "this policy does not know users by id", fix="drop the ids of users, or train with a user embedding"
            )
        if asked.users is not None:
            if self.users is None or not ranker.features:
                raise SpecError("this policy has no user features", fix="drop the users, or train with user features")
            who = self.users.read(asked.users, len(items), skip)
        return IndexedHistories(items, events, who, places, self.names)

    def arrays(self, histories: Any, ranker: PolicyRanker) -> HistoryArrays:
        """Return histories of any origin in the policy's numbers: by name, as `recommend` takes them, or arrays.

        SpecError for arrays whose kinds of events have no names, and for those of another catalogue or other users.
        """
        if not isinstance(histories, HistoryArrays):
            return self.read(Histories.of(histories), ranker).arrays(slice(None), ranker.history)
        names = histories.names
        if names is None:
            if len(self.kinds) > 1 and np.any(histories.events):
                raise SpecError(
                    "the kinds of events of these histories are numbers without names",
                    f"names, of {', '.join(self.kinds)}",
                    'tl.Histories(items, events=[["..."]]), or the histories of a log: log.histories(rows)',
                )
            return histories
        users = names.users if ranker.known_users and histories.user_index is not None else None
        if names.items is not self._compared[0] or (users is not None and users is not self._compared[1]):
            self._check_ids("items", names.items, self.ids)
            if users is not None:
                self._check_ids("users", users, self.names.users)
            self._compared = (names.items, users)
        events = renumbered(np.asarray(histories.events), names.events, self.kinds)
        if events.size and events.max() > len(self.kinds):
            unknown = next(word for word in names.events if word not in self._kind)
            raise SpecError(f"histories have the unknown event {unknown!r}: {nearest(unknown, self.kinds)}")
        return histories._replace(events=events, names=self.names)

    @staticmethod
    def _check_ids(what: str, theirs: Any, own: Any) -> None:
        """Raise SpecError unless these ids are the first ones of the policy, in its order."""
        known = np.asarray(own[: len(theirs)], object)
        if len(theirs) > len(own) or not np.array_equal(np.asarray(theirs, object), known):
            raise SpecError(
                f"the {what} of these histories are not those of the policy",
                f"histories of its own log, with {len(own):,} {what}",
                "pass ids: tl.Histories(items)",
            )

    def _steps(self, histories: Any, events: Any, skip: bool) -> tuple[list[list[int]], list[list[int]]]:
        """Return histories and their kinds of events as indices, each with its own length, without unknown items."""
        if not _is_list(histories):
            raise SpecError(
                f"histories has the type {type(histories).__name__}", "lists of item ids", "[[id, ...], ...]"
            )
        if len(histories) == 0:
            raise SpecError("no history", "at least one", "[[]] for a user without history")
        if events is not None and not _is_list(events):
            raise SpecError(
                f"events has the type {type(events).__name__}", "lists of kinds of events", "one list per history"
            )
        if events is not None and len(events) != len(histories):
            raise SpecError(
                f"{len(histories)} histories with {len(events)} lists of events", fix="pass one list per history"
            )
        rows, kinds = [], []
        for i, history in enumerate(histories):
            if not _is_list(history):
                raise SpecError(f"history {i} is {history!r:.80}", "a list of item ids", "[id, ...]")
            if events is not None and not _is_list(events[i]):
                raise SpecError(f"events of history {i}: {events[i]!r:.80}", "a list", "one kind per item")
            known = self.items(history, f"history {i}", skip)
            done = [self.usual] * len(known) if events is None else self.events(events[i], f"history {i}")
            if len(done) != len(known):
                raise SpecError(
                    f"history {i} has {len(known)} items and {len(done)} events", fix="one kind of event per item"
                )
            pairs = [(item, kind) for item, kind in zip(known, done, strict=True) if item]
            rows.append([item for item, _ in pairs])
            kinds.append([kind for _, kind in pairs])
        return rows, kinds

    def items(self, ids: Iterable[Any], where: str, skip: bool = False) -> list[int]:
        """Return indices of ids; SpecError names an unknown id, or with `skip` its index is 0."""
        indices = []
        for one in ids:
            position = self._place.get(str(one), 0)
            if not position and not skip:
                raise self._unknown(where, one)
            indices.append(position)
        return indices

    def user_places(self, ids: Any, rows: int) -> NumpyArray:
        """Return the places [B] int32 of users, 0 for None and for an id that the log does not have."""
        if ids is None:
            return np.zeros(rows, np.int32)
        if not _is_list(ids):
            raise SpecError(f"user_ids is {ids!r:.80}", "a list of ids", "[id, ...], one per history")
        if len(ids) != rows:
            raise SpecError(f"{rows} histories with {len(ids)} user_ids", fix="pass one id, or None, per history")
        return np.array([0 if one is None else self._user.get(str(one), 0) for one in ids], np.int32)

    def events(self, words: Sequence[Any], where: str) -> list[int]:
        """Return indices of kinds of events."""
        for word in words:
            if str(word) not in self._kind:
                raise SpecError(f"{where} has the unknown event {word!r}: {nearest(str(word), self.kinds)}")
        return [self._kind[str(word)] for word in words]

    def _unknown(self, where: str, word: Any) -> SpecError:
        """Return the error for an unknown id, with the nearest known one, or with all ids of a small catalogue."""
        found = f"{where} has the unknown item {word!r}"
        guess = nearest(str(word), self._place) if len(self._place) <= MOST_GUESSES else ""
        if len(self._place) < MOST_LISTED:
            return SpecError(f"{found}; {guess}")
        return SpecError(f"{found}; {guess}" if guess.startswith("did") else found, fix=SKIP)


class Profiles:
    """Reads features of users or items; a missing number counts as the mean, a missing category as none."""

    def __init__(
        self, profile: Profile, whose: str = "users", each: tuple[str, str] = ("history", "histories")
    ) -> None:
        self._profile, self._whose, self._each = profile, whose, each
        self.columns: dict[str, dict[str | None, int]] = {}  # the categories of each; for numbers only None
        for position, (column, word) in enumerate(zip(profile.columns, profile.words, strict=True)):
            self.columns.setdefault(column, {})[word] = position

    def is_number(self, column: str) -> bool:
        """Return whether a column holds numbers."""
        return None in self.columns[column]

    def read(self, users: Any, rows: int, skip: bool = False) -> NumpyArray:
        """Return [B, F] of one mapping per user or item, None for an unknown one; `skip` ignores unknown categories.

        SpecError names the user or item, the column and the expected value.
        """
        one, several = self._each
        if isinstance(users, str | bytes | Mapping) or not isinstance(users, Sequence | np.ndarray):
            kind = type(users).__name__
            raise SpecError(f"{self._whose} has the type {kind}", "a list", f"pass one mapping per {one}")
        if len(users) != rows:
            raise SpecError(f"{rows} {several} with {len(users)} {self._whose}", fix=f"pass one mapping per {one}")
        numbers = np.zeros((rows, len(self._profile.columns)), np.float32)
        for i, user in enumerate(users):
            if user is not None and not isinstance(user, Mapping):
                raise SpecError(f"{self._whose}[{i}] is {user!r:.80}", "a mapping or None", "columns to values")
            for column, value in (user or {}).items():
                where = f"{self._whose}[{i}]['{column}']"
                if column not in self.columns:
                    raise SpecError(f"{where} is an unknown column: {nearest(str(column), self.columns)}")
                if self.is_number(column):
                    position = self.columns[column][None]
                    numbers[i, position] = self._number(position, value, where)
                else:
                    numbers[i, self._words(column, value, where, skip)] = 1.0
        return numbers

    def _number(self, position: int, value: Any, where: str) -> float:
        if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
            return 0.0
        if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
            raise SpecError(f"{where} is {value!r:.80}", "a number", "convert it, or leave it out")
        number: Any = value
        away = (
            (float(number) - self._profile.mean[position]) / self._profile.spread[position]
            if abs(number) < MOST
            else MOST
        )
        if not abs(away) < MOST:
            raise SpecError(f"{where} is {value!r:.80}", "a finite number", "leave it out")
        return away

    def _words(self, column: str, value: Any, where: str, skip: bool) -> list[int]:
        known = self.columns[column]
        listed = [value] if isinstance(value, str) else [] if value is None else value
        if isinstance(listed, Mapping) or not isinstance(listed, Sequence | np.ndarray):
            raise SpecError(f"{where} is {value!r:.80}", "text or a list of texts", "convert it, or leave it out")
        places = []
        for word in listed:
            plain = word.strip() if isinstance(word, str) else word
            if isinstance(plain, str) and plain in known:
                places.append(known[plain])
            elif not isinstance(plain, str):
                raise SpecError(f"{where} has {word!r:.80}", "text", "convert it")
            elif plain and not skip:
                guess = nearest(plain, [one for one in known if one is not None])
                guess = guess if len(known) < FEW or guess.startswith("did") else f"{len(known)} values are known"
                raise SpecError(f"{where} has {word!r:.80}, unknown in the log; {guess}", fix=SKIP)
        return places
