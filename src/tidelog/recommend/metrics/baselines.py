"""Baseline recommenders without a network: popularity, Markov, item-kNN, own frequency, TIFU-kNN, EASE.

All of them use sparse counts and are exact: ties go to the lowest item. Popularity fills the rest of a list, below all
items with a score. Items are 1 .. N; 0 is padding and is never recommended. A list that cannot be filled ends in zeros,
with scores of minus infinity.

Item-kNN is the cosine form of Sarwar et al. 2001, doi:10.1145/371920.372071; TIFU-kNN is Hu et al. 2020,
arXiv:2006.00556; EASE is Steck 2019, arXiv:1905.03375.

Letters: `B` rows, `H` history length, `N` items, `K` length of a list, `M` events of a log.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tidelog.errors import ConfigError
from tidelog.recommend.interactions.held_out import Bools, Events, Ints

Scores: TypeAlias = NDArray[np.float32]
Lists: TypeAlias = tuple[Ints, Scores]
_CHUNK = 4096  # number of items whose co-occurrences are in memory together


class Ranker(Protocol):
    """Any object that returns ranked lists for histories."""

    def rank(self, histories: Ints, events: Ints, k: int, allowed: Bools | None = None, users: Any = None) -> Lists:
        """Items and scores [B, K], the best first.

        `histories` and `events` are [B, H], the most recent last, padded with 0 on the left; `allowed` is [B, N + 1],
        `users` [B, F] are user features (these baselines ignore them).
        """


@dataclass(frozen=True, eq=False)
class Popularity:
    """Recommends the most frequent items to every user.

    Example:
        >>> from tidelog.recommend.metrics.baselines import Popularity
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = Popularity.of(log).rank(*log.histories([1]), k=2)
        >>> log.item_ids(items[0]).tolist()
        ['tea', 'cup']
    """

    counts: NDArray[np.float64]  # [N + 1]
    order: NDArray[np.int64]  # [N] items, the most popular first

    @classmethod
    def of(cls, log: Events) -> Popularity:
        """Count the events of each item."""
        counts = np.bincount(log.item, minlength=len(log.items) + 1).astype(np.float64)
        return cls(counts, np.argsort(-counts[1:], kind="stable") + 1)

    def rank(self, histories: Ints, events: Ints, k: int, allowed: Bools | None = None, users: Any = None) -> Lists:
        """The same list for every history [B, H], without items that are not allowed."""
        items, _ = self.fill(*_empty(len(histories), k), allowed)
        return items, np.where(items > 0, self.counts[items], -np.inf).astype(np.float32)

    def fill(self, items: Ints, scores: Scores, allowed: Bools | None) -> Lists:
        """Complete lists [B, K] that end in zeros; an added item's score is its share of all events minus 1."""
        short = np.flatnonzero(items[:, -1] == 0)
        width = min(2 * items.shape[1], len(self.order))
        place = np.full(len(self.counts), len(self.order))
        place[self.order] = np.arange(len(self.order))
        while len(short):
            head = self.order[:width]
            free = np.ones((len(short), width), bool) if allowed is None else allowed[short[:, None], head]
            row, column = np.nonzero(place[items[short]] < width)
            free[row, place[items[short[row], column]]] = False
            known = (items[short] > 0).sum(1)
            rank = known[:, None] + np.cumsum(free, axis=1) - 1
            complete = rank[:, -1] >= items.shape[1] - 1
            final = complete | (width == len(self.order))
            row, column = np.nonzero(free & (rank < items.shape[1]) & final[:, None])
            to = (short[row], rank[row, column])
            items[to] = head[column]
            scores[to] = self.counts[head[column]] / self.counts.sum() - 1.0
            short, width = short[~final], min(4 * width, len(self.order))
        return items, scores


@dataclass(frozen=True, eq=False)
class Markov:
    """Ranks items by how often they followed the last item; with `kinds`, the last item and its kind of event.

    Example:
        >>> from tidelog.recommend.metrics.baselines import Markov
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = Markov.of(log).rank(*log.histories([1]), k=1)  # what followed tea
        >>> log.item_ids(items[0]).tolist()
        ['cup']
    """

    follows: Any  # sparse [keys, N + 1] counts
    kinds: int  # number of distinguished kinds of events, 0 for none
    popularity: Popularity

    @classmethod
    def of(cls, log: Events, by_event: bool = False) -> Markov:
        """Count the item that followed each item, within sessions."""
        joined = (log.user[1:] == log.user[:-1]) & ~log.terminated[:-1] & ~log.truncated[:-1]
        kinds = int(log.event.max(initial=0)) if by_event else 0
        keys = _keys(log.item[:-1][joined], log.event[:-1][joined], kinds)
        size = len(log.items) + 1
        follows = _count_matrix(keys, log.item[1:][joined], (size * (kinds + 1), size))
        return cls(follows, kinds, Popularity.of(log))

    def rank(self, histories: Ints, events: Ints, k: int, allowed: Bools | None = None, users: Any = None) -> Lists:
        """By the last item of each history [B, H]; if there is none, or it is unknown, by popularity."""
        last = events[:, -1]
        unknown = (last > self.kinds) & (self.kinds > 0)
        keys = _keys(np.where(unknown, 0, histories[:, -1]), np.where(unknown, 0, last), self.kinds)
        return self.popularity.fill(*best(self.follows[keys], k, allowed), allowed)


@dataclass(frozen=True, eq=False)
class ItemKNN:
    """Ranks items by the sum of their cosine similarities with the items of the history, over users who took both.

    Example:
        >>> from tidelog.recommend.metrics.baselines import ItemKNN
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = ItemKNN.of(log, neighbours=10).rank(*log.histories([1]), k=1)
        >>> log.item_ids(items[0]).tolist()
        ['cup']
    """

    similarity: Any  # sparse [N + 1, N + 1], zero diagonal
    window: int  # number of last events that count
    popularity: Popularity

    @classmethod
    def of(cls, log: Events, neighbours: int = 200, window: int = 50) -> ItemKNN:
        """Compute the `neighbours` most similar items of each item."""
        size = len(log.items) + 1
        user_items = _count_matrix(log.user, log.item, (int(log.user.max(initial=0)) + 1, size))
        user_items.data[:] = 1.0
        norms = np.sqrt(np.asarray(user_items.sum(0)).ravel())
        unit = (user_items @ sparse.diags_array(1.0 / np.maximum(norms, 1.0))).tocsc()
        rows = [_nearest(unit, begin, min(begin + _CHUNK, size), neighbours) for begin in range(0, size, _CHUNK)]
        return cls(sparse.vstack(rows, format="csr"), window, Popularity.of(log))

    def rank(self, histories: Ints, events: Ints, k: int, allowed: Bools | None = None, users: Any = None) -> Lists:
        """By the last `window` items of each history [B, H], each counted once."""
        profile = _profile(histories[:, -self.window :], self.similarity.shape[0])
        profile.data[:] = 1.0
        return self.popularity.fill(*best((profile @ self.similarity).tocsr(), k, allowed), allowed)


@dataclass(frozen=True, eq=False)
class OwnFrequency:
    """Ranks items by how often this user took them before; filled by popularity only if it is set.

    Example:
        >>> from tidelog.recommend.metrics.baselines import OwnFrequency
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = OwnFrequency.of(log).rank(*log.histories([1]), k=1)
        >>> log.item_ids(items[0]).tolist()
        ['tea']
    """

    size: int  # N + 1
    popularity: Popularity | None = None

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int | np.integer) or self.size < 2:
            raise ConfigError(
                f"OwnFrequency.size is {self.size!r:.80}: expected the number of items plus 1. fix: build it from a "
                "log, as in OwnFrequency.of(split.train)"
            )

    @classmethod
    def of(cls, log: Events, filled: bool = False) -> OwnFrequency:
        """For the catalogue of a log; `filled`: by its popularity."""
        return cls(len(log.items) + 1, Popularity.of(log) if filled else None)

    def rank(self, histories: Ints, events: Ints, k: int, allowed: Bools | None = None, users: Any = None) -> Lists:
        """By the counts within each history [B, H]; ConfigError for items of another catalogue."""
        largest = int(histories.max(initial=0))
        width = self.size if allowed is None else allowed.shape[1]
        if largest >= self.size or width != self.size:
            found = f"a history has item {largest}" if largest >= self.size else f"allowed has {width} columns"
            raise ConfigError(
                f"OwnFrequency.size = {self.size:,}, but {found}: expected the catalogue of the histories, its number "
                "of items plus 1. fix: build it from their log, as in OwnFrequency.of(split.train)"
            )
        lists = best(_profile(histories, self.size), k, allowed)
        return lists if self.popularity is None else self.popularity.fill(*lists, allowed)


@dataclass(frozen=True, eq=False)
class TifuKNN:
    """Ranks items by decayed frequency: of this user, and of the users whose frequencies are nearest.

    A history is cut into groups of equal length. An event counts less the older it is in its group, and a group the
    older it is. The published method decays by baskets; histories here are events, so this one decays by events.

    Example:
        >>> from tidelog.recommend.metrics.baselines import TifuKNN
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = TifuKNN.of(log).rank(*log.histories([1]), k=1)
        >>> log.item_ids(items[0]).tolist()
        ['tea']
    """

    vectors: Any  # sparse [U, N + 1]: users of the log
    norms: NDArray[np.float64]  # [U]: squared lengths
    neighbours: int
    own: float  # weight of the user's own frequencies
    decay: tuple[int, float, float]  # number of groups, decay within a group, decay of groups
    popularity: Popularity

    @classmethod
    def of(
        cls,
        log: Events,
        neighbours: int = 300,
        own: float = 0.7,
        groups: int = 7,
        within: float = 0.98,
        between: float = 0.9,
    ) -> TifuKNN:
        """Compute the frequencies of the log's users."""
        decay = (groups, within, between)
        begins = np.flatnonzero(np.append(True, log.user[1:] != log.user[:-1]))
        lengths = np.diff(np.append(begins, len(log.user)))
        owner = np.repeat(np.arange(len(begins)), lengths)
        age = np.repeat(lengths, lengths) - (np.arange(len(owner)) - begins[owner]) - 1
        vectors = _decayed(owner, log.item, age, lengths, len(log.items) + 1, decay)
        norms = np.asarray(vectors.multiply(vectors).sum(1), np.float64).ravel()
        return cls(vectors, norms, min(neighbours, len(begins)), own, decay, Popularity.of(log))

    def rank(self, histories: Ints, events: Ints, k: int, allowed: Bools | None = None, users: Any = None) -> Lists:
        """By the frequencies of each history [B, H] and of its neighbours, who have the least squared distance."""
        row, place = np.nonzero(histories)
        lengths = np.bincount(row, minlength=len(histories))
        age = histories.shape[1] - 1 - place
        profile = _decayed(row, histories[row, place], age, lengths, self.vectors.shape[1], self.decay)
        parts = []
        for begin in range(0, len(histories), 512):
            mine = profile[begin : begin + 512]
            distance = self.norms - 2.0 * (mine @ self.vectors.T).toarray()
            near = np.argpartition(distance, self.neighbours - 1, axis=1)[:, : self.neighbours]
            who = np.repeat(np.arange(len(near)), self.neighbours)
            share = np.full(near.size, 1.0 / self.neighbours)
            mean = sparse.csr_array((share, (who, near.ravel())), shape=(len(near), len(self.norms))) @ self.vectors
            parts.append(self.own * mine + (1.0 - self.own) * mean)
        return self.popularity.fill(*best(sparse.vstack(parts, format="csr"), k, allowed), allowed)


def _decayed(
    row: NDArray[Any],
    item: NDArray[Any],
    age: NDArray[Any],
    lengths: NDArray[Any],
    size: int,
    decay: tuple[int, float, float],
) -> Any:
    """Frequencies [rows, size] of events, `age` events before the last one of rows of these lengths."""
    groups, within, between = decay
    long = np.maximum(-(-lengths // groups), 1)[row]
    weight = within ** (age % long) / long * between ** (age // long) / groups
    return sparse.coo_array((weight, (row, item)), shape=(len(lengths), size)).tocsr()


@dataclass(frozen=True, eq=False)
class EASE:
    """Ranks items by a linear model of the items in the history, solved exactly; for catalogues of some thousands.

    Example:
        >>> from tidelog.recommend.metrics.baselines import EASE
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = EASE.of(log, regularisation=1.0).rank(*log.histories([1]), k=2)
        >>> items.shape
        (1, 2)
    """

    weights: NDArray[np.float32]  # [N + 1, N + 1], zero diagonal
    window: int  # number of last events that count
    popularity: Popularity

    @classmethod
    def of(cls, log: Events, regularisation: float = 200.0, window: int = 10_000, most: int = 20_000) -> EASE:
        """Invert the items' co-occurrences [N, N]; ConfigError for a catalogue of more than `most` items."""
        size = len(log.items) + 1
        if size > most:
            raise ConfigError(
                f"EASE inverts a matrix of {size - 1:,} x {size - 1:,} items: expected at most {most - 1:,}. "
                "fix: use ItemKNN, or raise `most` if the memory is there (8 bytes x N x N, three times)"
            )
        taken = _count_matrix(log.user, log.item, (int(log.user.max(initial=0)) + 1, size))
        taken.data[:] = 1.0
        together = (taken.T @ taken).toarray()[1:, 1:] + regularisation * np.eye(size - 1)
        inverse = np.linalg.inv(together)
        weights = np.zeros((size, size), np.float32)
        weights[1:, 1:] = -inverse / np.diag(inverse)
        np.fill_diagonal(weights, 0.0)
        return cls(weights, window, Popularity.of(log))

    def rank(self, histories: Ints, events: Ints, k: int, allowed: Bools | None = None, users: Any = None) -> Lists:
        """By the last `window` items of each history [B, H], each counted once."""
        profile = _profile(histories[:, -self.window :], len(self.weights))
        profile.data[:] = 1.0
        scores = np.asarray(profile @ self.weights)
        scores[:, 0] = 0.0
        floor = np.minimum(scores.min(axis=1, keepdims=True), 0.0)  # `best` keeps positive scores
        nobody = histories.max(axis=1, initial=0) == 0
        positive = np.where(nobody[:, None], 0.0, scores - floor + 1e-6)
        items, values = best(sparse.coo_array(positive), k, allowed)
        values = np.where(items > 0, values + floor - 1e-6, values).astype(np.float32)
        return self.popularity.fill(items, values, allowed)


def best(scores: Any, k: int, allowed: Bools | None = None) -> Lists:
    """The `k` highest positive entries of each row of a sparse [B, N + 1], ties by the lowest item, then zeros."""
    scores = scores.tocsr()
    row, item, value = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr)), scores.indices, scores.data
    eligible = (value > 0) & (item > 0)
    if allowed is not None:
        eligible &= allowed[row, item]
    row, item, value = row[eligible], item[eligible], value[eligible]
    begins = np.searchsorted(row, np.arange(scores.shape[0] + 1))
    among = np.ones(len(row), bool)  # only these are sorted: a row has far more entries than its list
    for begin, end in itertools.pairwise(begins):
        if end - begin > k:
            among[begin:end] = value[begin:end] >= np.partition(value[begin:end], end - begin - k)[end - begin - k]
    row, item, value = row[among], item[among], value[among]
    order = np.lexsort((item, -value, row))
    row, item, value = row[order], item[order], value[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    first = place < k
    items, values = _empty(scores.shape[0], k)
    items[row[first], place[first]] = item[first]
    values[row[first], place[first]] = value[first]
    return items, values


def _nearest(unit: Any, begin: int, end: int, neighbours: int) -> Any:
    near = (unit[:, begin:end].T @ unit).tocoo()
    other = near.row + begin != near.col
    near = sparse.coo_array((near.data[other], (near.row[other], near.col[other])), shape=near.shape)
    items, values = best(near.tocsr(), min(neighbours, unit.shape[1]))
    row, place = np.nonzero(items)
    return sparse.csr_array((values[row, place], (row, items[row, place])), shape=near.shape)


def _profile(histories: Ints, size: int) -> Any:
    row, place = np.nonzero(histories)
    return _count_matrix(row, histories[row, place], (len(histories), size))


def _count_matrix(row: NDArray[Any], column: NDArray[Any], shape: tuple[int, int]) -> Any:
    return sparse.coo_array((np.ones(len(row)), (row, column)), shape=shape).tocsr()


def _keys(item: NDArray[Any], event: NDArray[Any], kinds: int) -> NDArray[np.int64]:
    return item.astype(np.int64) * (kinds + 1) + (event if kinds else 0)


def _empty(rows: int, k: int) -> Lists:
    return np.zeros((rows, k), np.int32), np.full((rows, k), -np.inf, np.float32)
