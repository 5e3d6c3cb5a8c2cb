"""A saved policy over a catalogue: histories and user features by name in, lists of items out, without JAX.

Letters: `B` histories, `H` history length, `N` items, `F` features of users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, Protocol

import numpy as np

from tidelog._machine import shortage
from tidelog._text import rows_table
from tidelog.errors import SpaceError, SpecError, nearest
from tidelog.runtime.artefact import Saved, notes_of
from tidelog.runtime.networks import refuse_overflow
from tidelog.runtime.ranking import MARKS, Ranker, gap_groups, refuse_too_few
from tidelog.runtime.stopping import check
from tidelog.types import Catalogue, History, Profile, Spec

# Lists after the ranking: more diverse ones, and the item of the history that each recommendation depends on most.
#
# Letters: `B` histories, `P` items of a pool, `K` length of a list, `D` item vector size, `V` variants of a history.

NumpyArray = np.ndarray[Any, Any]
NUMBERS = 1 << 24  # numbers of the vectors of pools in memory at once
POOL, LEAST_POOL = 4, 50  # a more diverse list is chosen among so many times its length, and at least so many items
MOST_REASONS = 50  # last different items of a history that can be a reason


class Reasons(NamedTuple):
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
    parts = [
        _diverse(items[begin : begin + most], scores[begin : begin + most], vectors, k, weight)
        for begin in range(0, len(items), most)
    ]
    chosen, kept = zip(*parts, strict=True)
    return np.concatenate(chosen), np.concatenate(kept)


def _diverse(items: NumpyArray, scores: NumpyArray, vectors: NumpyArray, k: int, weight: float) -> tuple[Any, Any]:
    """Return the lists of some rows; see `diverse`."""
    rows = np.arange(len(items))
    width = scores[:, :1] - scores[:, -1:]
    relevance = (scores - scores[:, -1:]) / np.where(width > 0.0, width, 1.0)
    near = np.full(items.shape, -1.0)  # the largest similarity to an item of the list; no item: the smallest possible
    free = np.ones(items.shape, bool)
    order = np.zeros((len(items), k), np.int64)
    directions = vectors[items]  # [B, P, D]
    for place in range(k):
        check()
        value = np.where(free, (1.0 - weight) * relevance - weight * near, -np.inf)
        order[:, place] = best = value.argmax(axis=1)
        free[rows, best] = False
        near = np.maximum(near, np.einsum("bpd,bd->bp", directions, directions[rows, best]))
    return np.take_along_axis(items, order, axis=1), np.take_along_axis(scores, order, axis=1)


def reasons(
    ranker: Ranker,
    histories: Sequence[Sequence[int]],
    kinds: Sequence[Sequence[int]],
    items: NumpyArray,
    users: Any,
    gaps: Sequence[Sequence[int]] | None = None,
    user_index: NumpyArray | None = None,
) -> tuple[NumpyArray, NumpyArray]:
    """Return an item of each history, 0 for none, and how many times likelier it makes recommended items [B, K].

    Each item of the history is left out in turn, with all of its events: the reason is the one without which the
    recommended item has the lowest likelihood, if it is lower than with it. Q is not part of it. `users` is [B, F] or
    None, `user_index` [B] or None; an event that stays keeps its group of `gaps`.
    """
    found, times = np.zeros(items.shape, np.int64), np.ones(items.shape, np.float32)
    for i, (history, kind) in enumerate(zip(histories, kinds, strict=True)):
        check()
        seen, done = np.asarray(history[-ranker.history :], np.int32), np.asarray(kind[-ranker.history :], np.int32)
        latest = list(dict.fromkeys(seen[::-1].tolist()))[:MOST_REASONS]
        if not latest:
            continue
        later = np.zeros(len(seen), np.int32) if gaps is None else np.asarray(gaps[i][-ranker.history :], np.int32)
        variants = [np.zeros((1 + len(latest), len(seen)), np.int32) for _ in range(3)]
        for row, left_out in enumerate((0, *latest)):
            others = seen != left_out
            count = int(others.sum())
            for to, values in zip(variants, (seen, done, later), strict=True):
                to[row, len(seen) - count :] = values[others]
        who, place = (
            None if one is None else np.repeat(one[i : i + 1], len(variants[0]), axis=0) for one in (users, user_index)
        )
        listed = np.repeat(items[i : i + 1], len(variants[0]), axis=0)
        likelihood = ranker.log_likelihood(variants[0], variants[1], listed, who, variants[2], place)
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
UNKNOWN_ITEMS = "fix: unknown='skip' (--unknown skip) ignores unknown items"


ENTRY = 24  # bytes of an entry of the lists besides its id: two copies of its index (8) and of its score (4)


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
            (place, *(f"{item} ({score:.3g})" for item, score in zip(items.tolist(), scores.tolist(), strict=True)))
            for place, (items, scores) in enumerate(shown)
        ]
        return rows_table(title, ("list", *map(str, range(1, min(length, MOST_SHOWN) + 1))), rows)


class Ranks(Protocol):
    """A ranker of item indices for histories [B, H] of item indices and kinds of events, left-padded with 0."""

    @property
    def items(self) -> int:
        """N."""

    @property
    def history(self) -> int:
        """H: the number of steps of a history."""

    @property
    def repeat_share(self) -> float:
        """The share of the log's events whose item the user had before."""

    @property
    def features(self) -> int:
        """F: the number of user features, 0 for none."""

    @property
    def width(self) -> int:
        """The smallest number of scored items for a list."""

    @property
    def reads_gaps(self) -> bool:
        """Whether lists depend on the times between events, and until now."""

    @property
    def known_users(self) -> int:
        """The number of users with a vector of their own; 0: who the user is has no effect."""

    def rank(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        k: int,
        allowed: NumpyArray | None = None,
        users: NumpyArray | None = None,
        gaps: NumpyArray | None = None,
        user_index: NumpyArray | None = None,
    ) -> tuple[NumpyArray, NumpyArray]:
        """Return the best `k` items and their scores, [B, k] each; `allowed` [B, N + 1] bool, `users` [B, F].

        `gaps` [B, H] are groups of time gaps, `user_index` [B] places of users, counted from 1.
        """

    def whole(self) -> Ranker:
        """Return a ranker of the same policy with item vectors, likelihoods, and lists of any length."""


class KnownRows(NamedTuple):
    """What is known of some users, by number."""

    items: list[list[int]]  # of each history, as long as it is
    kinds: list[list[int]]
    users: NumpyArray | None  # [B, F] features
    gaps: list[list[int]] | None  # groups of the times after the events
    user_index: NumpyArray | None  # [B] places of the users

    def padded(self, rows: slice, length: int) -> dict[str, Any]:
        """Return the arguments of a ranker for some rows, with the last `length` steps."""
        known: dict[str, Any] = {
            "histories": _left_padded(self.items[rows], length),
            "events": _left_padded(self.kinds[rows], length),
            "users": None if self.users is None else self.users[rows],
        }
        if self.gaps is not None:
            known["gaps"] = _left_padded(self.gaps[rows], length)
        if self.user_index is not None:
            known["user_index"] = self.user_index[rows]
        return known


class Recommends(Protocol):
    """A policy that ranks items, in any runtime."""

    spec: Spec

    def notes(self) -> list[str]:
        """Return notes for the user about this policy."""

    def ranker(self) -> Ranks:
        """Return the ranker of item indices."""

    def recommend(self, histories: Any, k: int = 10, **choices: Any) -> Recommendations:
        """Return the best `k` items after each history."""

    def because(self, histories: Any, items: Any, **choices: Any) -> Reasons:
        """Return for each recommended item the item of the history that makes it likelier than any other does."""


def excludes_seen(ranker: Ranks) -> bool:
    """Return whether lists leave out items of the history by default: fewer than a tenth of the events repeat one."""
    return ranker.repeat_share < REPEATED


class Recommender:
    """Ranks the items of a catalogue; the same methods as `tidelog.Policy.recommend`, and the same answers."""

    is_recurrent = False  # the history is the whole state

    def __init__(self, saved: Saved, ranker: Ranks) -> None:
        self.spec: Spec = saved.spec
        self.manifest: Mapping[str, Any] = saved.manifest
        self._ranker, self._vocabulary = ranker, Vocabulary(saved.spec)

    def recommend(
        self,
        histories: Any,
        k: int = 10,
        exclude_seen: bool | None = None,
        candidates: Any = None,
        exclude: Any = None,
        *,
        events: Any = None,
        users: Any = None,
        unknown: str = "error",
        diversity: float = 0.0,
        times: Any = None,
        now: Any = None,
        user_ids: Any = None,
        progress: Callable[[float], None] | None = None,
    ) -> Recommendations:
        """Return the best `k` items after each history, a list of item ids, the latest last; [] is an empty history.

        `exclude_seen` excludes items of the history (None: unless at least a tenth of the log's events repeat an item);
        `candidates` are the only items to choose from: ids, a function of an id, or a mask [N] or [B, N] in the order
        of `spec.action.ids`; `exclude` are never chosen; `events` lists the kind of each step (default: the most
        frequent one); `users` holds one mapping per history, from columns of the user features to values (None: nothing
        is known); `diversity` from 0 to 1 trades score against similarity within a list. A policy with time gaps needs
        `times`, one for each step (in the unit of the log, or dates), and `now`, the time of the lists: one for all or
        one per history. A policy with a user embedding reads `user_ids`, one per history; None, or an id that the log
        does not have, is an unknown user. `progress` is called with the share of the lists that is made.
        SpecError where fewer than `k` items remain, or another id or value is unknown (`unknown="skip"` ignores it in
        histories and users).
        """
        return recommend(
            self._ranker, self._vocabulary, histories, k, exclude_seen, candidates, exclude, events, users, unknown,
            diversity, times, now, user_ids, progress,
        )  # fmt: skip

    def because(
        self,
        histories: Any,
        items: Any,
        *,
        events: Any = None,
        users: Any = None,
        unknown: str = "error",
        times: Any = None,
        now: Any = None,
        user_ids: Any = None,
    ) -> Reasons:
        """Return for each recommended item [B, k] the item of the history that makes it likelier than any other does.

        Arguments as for `recommend`, and `items` of its lists. `times` says how many times likelier it is than
        without that item. SpecError for an unknown id.
        """
        return because(self._ranker, self._vocabulary, histories, items, events, users, unknown, times, now, user_ids)

    def notes(self) -> list[str]:
        """Return notes for the user about this policy, as they were when it was saved."""
        return notes_of(self.manifest)

    def ranker(self) -> Ranks:
        """Return the ranker of item indices."""
        return self._ranker

    def __call__(self, observation: Any, mask: Any = None, memory: Any = None) -> Any:
        """Raise SpecError: items are ranked, not chosen."""
        raise SpecError("this policy ranks items of a catalogue", fix="call policy.recommend(histories, k)")


def recommend(
    ranker: Ranks,
    vocabulary: Vocabulary,
    histories: Any,
    k: int = 10,
    exclude_seen: bool | None = None,
    candidates: Iterable[Any] | Callable[[Any], bool] | NumpyArray | None = None,
    exclude: Iterable[Any] | None = None,
    events: Any = None,
    users: Any = None,
    unknown: str = "error",
    diversity: float = 0.0,
    times: Any = None,
    now: Any = None,
    user_ids: Any = None,
    progress: Callable[[float], None] | None = None,
) -> Recommendations:
    """Return the best `k` items after each history; see `Policy.recommend`.

    SpaceError if the lists do not fit into free memory.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise SpecError(f"k = {k!r}", "a whole number", "use k=10")
    if exclude_seen is None:
        exclude_seen = excludes_seen(ranker)
    if not isinstance(exclude_seen, bool | np.bool_):
        raise SpecError(f"exclude_seen = {exclude_seen!r:.80}", "True, False or None", "use True")
    if isinstance(diversity, bool) or not isinstance(diversity, int | float) or not 0.0 <= diversity <= 1.0:
        raise SpecError(f"diversity = {diversity!r:.80}", "a number from 0 to 1", "use 0.3")
    known = _read(ranker, vocabulary, histories, events, users, unknown, times, now, user_ids)
    items = known.items
    offered = _offered(vocabulary, candidates, exclude, len(items))
    most = max(1, MARKS // (ranker.items + 1))
    problem = shortage(len(items) * max(0, int(k)) * (vocabulary.ids.itemsize + ENTRY))
    if problem is not None:
        raise SpaceError(f"{len(items):,} lists of {k} items: {problem}", fix="recommend to fewer users at a time")
    parts = []
    for begin in range(0, len(items), most):
        rows = slice(begin, begin + most)
        allowed = np.repeat(offered[None], len(items[rows]), axis=0) if offered.ndim == 1 else offered[rows]
        for i, seen in enumerate(items[rows] if exclude_seen else ()):
            allowed[i, seen] = False
        refuse_too_few(allowed, int(k), begin)
        asked = known.padded(rows, ranker.history)
        with refuse_overflow():
            if diversity:
                whole = ranker.whole()
                pool = whole.rank(**asked, k=pool_size(int(k), allowed), allowed=allowed)
                parts.append(diverse(*pool, whole.vectors, int(k), diversity))
            else:
                parts.append(ranker.rank(**asked, k=int(k), allowed=allowed))
        if progress is not None:
            progress(min(begin + most, len(items)) / len(items))
    recommended, scores = zip(*parts, strict=True)
    return Recommendations(vocabulary.ids[np.concatenate(recommended) - 1], np.concatenate(scores))


def because(
    ranker: Ranks,
    vocabulary: Vocabulary,
    histories: Any,
    items: Any,
    events: Any = None,
    users: Any = None,
    unknown: str = "error",
    times: Any = None,
    now: Any = None,
    user_ids: Any = None,
) -> Reasons:
    """Return the reason of each recommended item [B, k]; see `Recommender.because`."""
    whole = ranker.whole()
    known = _read(ranker, vocabulary, histories, events, users, unknown, times, now, user_ids)
    listed = [vocabulary.items(_id_list(row, "items"), f"items[{i}]") for i, row in enumerate(_id_list(items, "items"))]
    if len(listed) != len(known.items) or len({len(row) for row in listed}) != 1 or not listed[0]:
        raise SpecError(
            f"{len(known.items)} histories with lists of {[len(row) for row in listed][:5]} items",
            "one list for each history, of equal lengths",
            "pass lists.items of recommend(...)",
        )
    wanted = np.asarray(listed, np.int64)
    found, more = reasons(whole, known.items, known.kinds, wanted, known.users, known.gaps, known.user_index)
    return Reasons(np.append(np.array([None], object), vocabulary.ids.astype(object))[found], more)


def _read(
    ranker: Ranks,
    vocabulary: Vocabulary,
    histories: Any,
    events: Any,
    users: Any,
    unknown: str,
    times: Any,
    now: Any,
    user_ids: Any,
) -> KnownRows:
    """Return what is known of the users, by number."""
    if not isinstance(unknown, str) or unknown not in ("error", "skip"):
        raise SpecError(f"unknown = {unknown!r}", "'error' or 'skip'", "use one of them")
    items, kinds = encode_histories(vocabulary, histories, events, unknown == "skip")
    gaps = places = who = None
    if ranker.reads_gaps:
        known = [vocabulary.known(history) for history in histories]
        gaps = history_gaps(known, times, now, vocabulary.times)
    elif times is not None or now is not None:
        raise SpecError("this policy does not read times", fix="drop times= and now=, or train with time_gaps=True")
    if ranker.known_users:
        places = vocabulary.user_places(user_ids, len(items))
    elif user_ids is not None:
        raise SpecError(
            "this policy does not know users by id", fix="drop user_ids=, or train with user_embedding=True"
        )
    if users is not None and (vocabulary.users is None or not ranker.features):
        raise SpecError("this policy has no user features", fix="drop users=, or train with user_features=...")
    if users is not None and vocabulary.users is not None:
        who = vocabulary.users.read(users, len(items), unknown == "skip")
    return KnownRows(items, kinds, who, gaps, places)


def encode_histories(
    vocabulary: Vocabulary, histories: Any, events: Any = None, skip: bool = False
) -> tuple[list[list[int]], list[list[int]]]:
    """Return histories by name as indices of items and kinds of events, each with its own length."""
    if not _is_list(histories):
        raise SpecError(f"histories has the type {type(histories).__name__}", "lists of item ids", "[[id, ...], ...]")
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
        known = vocabulary.items(history, f"history {i}", skip)
        done = [vocabulary.usual] * len(known) if events is None else vocabulary.events(events[i], f"history {i}")
        if len(done) != len(known):
            raise SpecError(
                f"history {i} has {len(known)} items and {len(done)} events", fix="one kind of event per item"
            )
        pairs = [(item, kind) for item, kind in zip(known, done, strict=True) if item]
        rows.append([item for item, _ in pairs])
        kinds.append([kind for _, kind in pairs])
    return rows, kinds


def history_gaps(known: list[list[bool]], times: Any, now: Any, clock: str) -> list[list[int]]:
    """Return the groups of the times after the known events of each history: to its next one, or until now.

    SpecError without times, and for times that are of another kind than the log's, not in order, or after now.
    """
    if times is None or now is None:
        raise SpecError(
            f"this policy reads time gaps, and {'times' if times is None else 'now'} is missing",
            fix=(
                f"pass times=, one time per item ({clock}, as in the log), and now=, the time of the lists "
                "(--time and --now)"
            ),
        )
    if not _is_list(times) or len(times) != len(known):
        raise SpecError(f"times is not a list of {len(known)} lists", fix="pass one list of times per history")
    ends = list(now) if _is_list(now) else [now] * len(known)
    if len(ends) != len(known):
        raise SpecError(
            f"now has {len(ends)} times for {len(known)} histories", fix="pass one time, or one per history"
        )
    groups = []
    for i, (mine, there) in enumerate(zip(times, known, strict=True)):
        if not _is_list(mine) or len(mine) != len(there):
            raise SpecError(f"times of history {i} are not {len(there)} times", fix="one time per item")
        kept = [one for one, is_known in zip(mine, there, strict=True) if is_known]
        moments = [_moment(one, clock, f"times of history {i}") for one in (*kept, ends[i])]
        steps = np.diff(np.asarray(moments, np.dtype("datetime64[us]") if clock == "dates" else np.float64))
        seconds = steps / np.timedelta64(1, "s") if clock == "dates" else steps
        if (seconds < 0).any():
            raise SpecError(
                f"times of history {i} decrease, or are later than now", fix="the latest last, and now= after all"
            )
        groups.append(gap_groups(seconds).tolist())
    return groups


def _moment(value: Any, clock: str, where: str) -> Any:
    """Return a time as a number, or as a date in UTC; SpecError for another kind than the log's."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if clock == "numbers" and number and math.isfinite(value):
        return float(value)
    try:
        if clock == "dates" and isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if clock == "dates" and isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        if clock == "dates" and isinstance(value, date | np.datetime64):
            moment = np.asarray(value, "datetime64[us]")[()]
            if not np.isnat(moment):
                return moment
    except ValueError:
        pass  # refused below, with the value
    expected = "a date, as 2026-01-31T12:00:00" if clock == "dates" else "a finite number in the log's unit of time"
    raise SpecError(f"{where} have {value!r:.80}", expected, "use the log's kind of time")


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
        self.kinds, self.usual, self.times = kinds.events, kinds.usual, kinds.times
        self._place = {str(one): i + 1 for i, one in enumerate(spec.action.ids)}
        self._kind = {word: i + 1 for i, word in enumerate(kinds.events)}
        who: Any = spec.observation.get("user")
        self.users = None if who is None else Profiles(who)
        ids_of_users: Any = spec.observation.get("user_id")
        self._user = {} if ids_of_users is None else {str(one): i + 1 for i, one in enumerate(ids_of_users.ids)}

    def items(self, ids: Iterable[Any], where: str, skip: bool = False) -> list[int]:
        """Return indices of ids; SpecError names an unknown id, or with `skip` its index is 0."""
        indices = []
        for one in ids:
            place = self._place.get(str(one), 0)
            if not place and not skip:
                raise SpecError(f"{where} has the unknown item {one!r}; {self._guess(str(one))}")
            indices.append(place)
        return indices

    def known(self, ids: Iterable[Any]) -> list[bool]:
        """Return whether the log has each item."""
        return [str(one) in self._place for one in ids]

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

    def _guess(self, word: str) -> str:
        """Return the fix for an unknown id: the nearest known one, or all ids of a small catalogue."""
        guess = nearest(word, self._place) if len(self._place) <= MOST_GUESSES else ""
        if len(self._place) < MOST_LISTED:
            return guess
        return f"{guess} unknown='skip' ignores it" if guess.startswith("did") else UNKNOWN_ITEMS


class Profiles:
    """Reads features of users or items; a missing number counts as the mean, a missing category as none."""

    def __init__(
        self, profile: Profile, whose: str = "users", each: tuple[str, str] = ("history", "histories")
    ) -> None:
        self._profile, self._whose, self._each = profile, whose, each
        self.columns: dict[str, dict[str | None, int]] = {}  # the categories of each; for numbers only None
        for place, (column, word) in enumerate(zip(profile.columns, profile.words, strict=True)):
            self.columns.setdefault(column, {})[word] = place

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
                    place = self.columns[column][None]
                    numbers[i, place] = self._number(place, value, where)
                else:
                    numbers[i, self._words(column, value, where, skip)] = 1.0
        return numbers

    def _number(self, place: int, value: Any, where: str) -> float:
        if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
            return 0.0
        if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
            raise SpecError(f"{where} is {value!r:.80}", "a number or None", "convert it")
        number: Any = value
        away = (float(number) - self._profile.mean[place]) / self._profile.spread[place] if abs(number) < MOST else MOST
        if not abs(away) < MOST:
            raise SpecError(f"{where} is {value!r:.80}", "a finite number", "use None")
        return away

    def _words(self, column: str, value: Any, where: str, skip: bool) -> list[int]:
        known = self.columns[column]
        listed = [value] if isinstance(value, str) else [] if value is None else value
        if isinstance(listed, Mapping) or not isinstance(listed, Sequence | np.ndarray):
            raise SpecError(f"{where} is {value!r:.80}", "text, a list of texts, or None", "convert it")
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
                raise SpecError(
                    f"{where} has {word!r:.80}, unknown in the log; {guess}", fix="unknown='skip' ignores it"
                )
        return places
