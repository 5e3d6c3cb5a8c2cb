"""Ranked lists compared on held-out interactions: counting rules, measures, advice, rules of one's own."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tidelog._text import three_digits
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.ope.estimators import Ratios
from tidelog.ope.evidence import Floats
from tidelog.ope.intervals import Confidence, bca, critical_values, normal_deviate, percentile
from tidelog.policies.statistics import Interval
from tidelog.recommend.interactions import (
    LONGEST,
    LONGEST_OF_EVENTS,
    Bools,
    Cases,
    Events,
    Interactions,
    Ints,
    held_out_cases,
)
from tidelog.runtime.ranking import Ranker, Ranks, renumbered
from tidelog.runtime.recommender import Recommender, Vocabulary
from tidelog.types import HistoryArrays

# Baseline recommenders without a network: popularity, Markov, item-kNN, own frequency, TIFU-kNN.
#
# All of them use sparse counts and are exact: ties go to the lowest item. Popularity fills the rest of a list, below
# all items with a score. Items are 1 .. N; 0 is padding and is never recommended. A list that cannot be filled ends in
# zeros, with scores of minus infinity.
#
# Item-kNN is the cosine form of Sarwar et al. 2001, doi:10.1145/371920.372071; TIFU-kNN is Hu et al. 2020,
# arXiv:2006.00556.
#
# Letters: `B` rows, `H` history length, `N` items, `K` length of a list, `M` events of a log.

Scores: TypeAlias = NDArray[np.float32]
Lists: TypeAlias = tuple[Ints, Scores]
_CHUNK = 4096  # number of items whose co-occurrences are in memory together


@dataclass(frozen=True, eq=False)
class Popularity:
    """Recommends the most frequent items to every user.

    Example:
        >>> from tidelog.recommend.evaluate import Popularity
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = Popularity.of(log).rank(log.histories([1]), k=2)
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

    def rank(self, histories: HistoryArrays, k: int, allowed: Bools | None = None) -> Lists:
        """The same list for every history [B, H], without items that are not allowed."""
        items, _ = self.fill(*_empty(len(histories.items), k), allowed)
        return items, np.where(items > 0, self.counts[items], -np.inf).astype(np.float32)

    def fill(self, items: Ints, scores: Scores, allowed: Bools | None) -> Lists:
        """Complete lists [B, K] that end in zeros; an added item's score is its share of all events minus 1."""
        short = np.flatnonzero(items[:, -1] == 0)
        width = min(2 * items.shape[1], len(self.order))
        position = np.full(len(self.counts), len(self.order))
        position[self.order] = np.arange(len(self.order))
        while len(short):
            head = self.order[:width]
            free = np.ones((len(short), width), bool) if allowed is None else allowed[short[:, None], head]
            row, column = np.nonzero(position[items[short]] < width)
            free[row, position[items[short[row], column]]] = False
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
        >>> from tidelog.recommend.evaluate import Markov
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = Markov.of(log).rank(log.histories([1]), k=1)  # what followed tea
        >>> log.item_ids(items[0]).tolist()
        ['cup']
    """

    follows: Any  # sparse [keys, N + 1] counts
    kinds: int  # number of distinguished kinds of events, 0 for none
    popularity: Popularity
    words: tuple[str, ...] = ()  # of these kinds

    @classmethod
    def of(cls, log: Events, by_event: bool = False) -> Markov:
        """Count the item that followed each item, within sessions."""
        joined = (log.user[1:] == log.user[:-1]) & ~log.terminated[:-1] & ~log.truncated[:-1]
        kinds = int(log.event.max(initial=0)) if by_event else 0
        keys = _keys(log.item[:-1][joined], log.event[:-1][joined], kinds)
        size = len(log.items) + 1
        follows = _count_matrix(keys, log.item[1:][joined], (size * (kinds + 1), size))
        return cls(follows, kinds, Popularity.of(log), log.events[:kinds])

    def rank(self, histories: HistoryArrays, k: int, allowed: Bools | None = None) -> Lists:
        """By the last item of each history [B, H]; if there is none, or it is unknown, by popularity."""
        item, kind = histories.items[:, -1], histories.events[:, -1]
        if self.kinds and histories.names is not None:
            kind = renumbered(kind, histories.names.events, self.words)
        unknown = (kind > self.kinds) & (self.kinds > 0)
        keys = _keys(np.where(unknown, 0, item), np.where(unknown, 0, kind), self.kinds)
        return self.popularity.fill(*best(self.follows[keys], k, allowed), allowed)


@dataclass(frozen=True, eq=False)
class ItemKNN:
    """Ranks items by the sum of their cosine similarities with the items of the history, over users who took both.

    Example:
        >>> from tidelog.recommend.evaluate import ItemKNN
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = ItemKNN.of(log, neighbours=10).rank(log.histories([1]), k=1)
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
        rows = []
        for begin in range(0, size, _CHUNK):
            near = (unit[:, begin : begin + _CHUNK].T @ unit).tocoo()
            other = near.row + begin != near.col
            near = sparse.coo_array((near.data[other], (near.row[other], near.col[other])), shape=near.shape)
            items, values = best(near.tocsr(), min(neighbours, size))
            row, position = np.nonzero(items)
            rows.append(sparse.csr_array((values[row, position], (row, items[row, position])), shape=near.shape))
        return cls(sparse.vstack(rows, format="csr"), window, Popularity.of(log))

    def rank(self, histories: HistoryArrays, k: int, allowed: Bools | None = None) -> Lists:
        """By the last `window` items of each history [B, H], each counted once."""
        profile = _profile(histories.items[:, -self.window :], self.similarity.shape[0])
        profile.data[:] = 1.0
        return self.popularity.fill(*best((profile @ self.similarity).tocsr(), k, allowed), allowed)


@dataclass(frozen=True, eq=False)
class OwnFrequency:
    """Ranks items by how often this user took them before; filled by popularity only if it is set.

    Example:
        >>> from tidelog.recommend.evaluate import OwnFrequency
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = OwnFrequency.of(log).rank(log.histories([1]), k=1)
        >>> log.item_ids(items[0]).tolist()
        ['tea']
    """

    size: int  # N + 1
    popularity: Popularity | None = None

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int | np.integer) or self.size < 2:
            raise ConfigError(
                f"OwnFrequency.size is {self.size!r:.80}",
                "the number of items plus 1",
                "build it from a log, as in OwnFrequency.of(split.train)",
            )

    @classmethod
    def of(cls, log: Events, filled: bool = False) -> OwnFrequency:
        """For the catalogue of a log; `filled`: by its popularity."""
        return cls(len(log.items) + 1, Popularity.of(log) if filled else None)

    def rank(self, histories: HistoryArrays, k: int, allowed: Bools | None = None) -> Lists:
        """By the counts within each history [B, H]; ConfigError for items of another catalogue."""
        largest = int(histories.items.max(initial=0))
        width = self.size if allowed is None else allowed.shape[1]
        if largest >= self.size or width != self.size:
            found = f"a history has item {largest}" if largest >= self.size else f"allowed has {width} columns"
            raise ConfigError(
                f"OwnFrequency.size = {self.size:,}, but {found}",
                "the catalogue of the histories, its number of items plus 1",
                "build it from their log, as in OwnFrequency.of(split.train)",
            )
        lists = best(_profile(histories.items, self.size), k, allowed)
        return lists if self.popularity is None else self.popularity.fill(*lists, allowed)


@dataclass(frozen=True, eq=False)
class TifuKNN:
    """Ranks items by decayed frequency: of this user, and of the users whose frequencies are nearest.

    A history is cut into groups of equal length. An event counts less the older it is in its group, and a group the
    older it is. The published method decays by baskets; histories here are events, so this one decays by events.

    Example:
        >>> from tidelog.recommend.evaluate import TifuKNN
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> items, scores = TifuKNN.of(log).rank(log.histories([1]), k=1)
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

    def rank(self, histories: HistoryArrays, k: int, allowed: Bools | None = None) -> Lists:
        """By the frequencies of each history [B, H] and of its neighbours, who have the least squared distance."""
        items = histories.items
        row, position = np.nonzero(items)
        lengths = np.bincount(row, minlength=len(items))
        age = items.shape[1] - 1 - position
        profile = _decayed(row, items[row, position], age, lengths, self.vectors.shape[1], self.decay)
        parts = []
        for begin in range(0, len(items), 512):
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
    position = np.arange(len(row)) - np.searchsorted(row, row)
    first = position < k
    items, values = _empty(scores.shape[0], k)
    items[row[first], position[first]] = item[first]
    values[row[first], position[first]] = value[first]
    return items, values


def _profile(histories: Ints, size: int) -> Any:
    row, position = np.nonzero(histories)
    return _count_matrix(row, histories[row, position], (len(histories), size))


def _count_matrix(row: NDArray[Any], column: NDArray[Any], shape: tuple[int, int]) -> Any:
    return sparse.coo_array((np.ones(len(row)), (row, column)), shape=shape).tocsr()


def _keys(item: NDArray[Any], event: NDArray[Any], kinds: int) -> NDArray[np.int64]:
    return item.astype(np.int64) * (kinds + 1) + (event if kinds else 0)


def _empty(rows: int, k: int) -> Lists:
    return np.zeros((rows, k), np.int32), np.full((rows, k), -np.inf, np.float32)


# Metrics of ranked lists for predicting the next items, with intervals over users.
#
# Every measure is a ratio of sums over cases, summed by user: one bootstrap serves all of them, and two rankers are
# compared on the same users. At cut-off `k`, for a case with a set of targets (one event, or a basket):
#
# | measure | of one case |
# |---|---|
# | hit rate | 1 if any target is in the list |
# | hit all | 1 if every target is in the list |
# | ndcg | sum of 1 / log2(rank + 1) over the hits, divided by that of the best list: min(k, targets) hits at the top |
# | mrr | 1 / rank of the first hit, 0 without one |
# | reward | sum of the rewards of the targets in the list |
# | discounted reward | the same, each times 1 / log2(rank + 1); training selects the weight of Q by it |
# | popularity lift | mean popularity of the listed items divided by that of the targets; above 1: more popular |
# | cold share | share of the listed items that nobody took before the split |
# | novelty | mean over the list of log2(events / events of the item), each item counted once more; high: rare items |
#
# *Coverage* is the share of the catalogue that is in any list; *entropy* is that of all listed items, divided by log N:
# 1 if all are listed equally often. Both describe the lists together, so they have no interval.
#
# Letters: `C` cases, `K` length of a list, `G` items of the largest basket, `N` items, `U` users.

MEASURES = (
    "hit rate", "hit all", "ndcg", "mrr", "reward", "discounted reward", "popularity lift", "cold share", "novelty"
)  # fmt: skip
DIVERSITY = ("coverage", "entropy")
_CELLS = 20_000_000  # largest number of comparisons of listed items with targets in memory


class UserSums(NamedTuple):
    """A measure as numerators and denominators per case, both [C]."""

    numerator: Floats
    denominator: Floats


@dataclass(frozen=True, eq=False)
class RankingRow:
    """Metrics of one ranker on the cases of one kind of event."""

    ranker: str
    kind: str  # "all", or the name of a kind of event
    cases: int
    users: int
    scores: Mapping[str, Interval]
    diversity: Mapping[str, float]  # coverage and entropy
    ratios: Mapping[str, Ratios]  # each measure by user, for differences

    def to_json(self) -> dict[str, Any]:
        """All fields except the contributions of users."""
        scores = {name: list(score) for name, score in self.scores.items()}
        counts = {"ranker": self.ranker, "kind": self.kind, "cases": self.cases, "users": self.users}
        return {**counts, "scores": scores, **self.diversity}


@dataclass(frozen=True, eq=False)
class RankerComparison:
    """Metrics of several rankers on the same cases."""

    k: int
    rows: tuple[RankingRow, ...]
    confidence: Confidence

    def row(self, ranker: str, kind: str = "all") -> RankingRow:
        """One row; ConfigError for unknown names."""
        for row in self.rows:
            if (row.ranker, row.kind) == (ranker, kind):
                return row
        known = [f"{row.ranker}, {row.kind}" for row in self.rows]
        raise ConfigError(f"unknown row '{ranker}, {kind}': {nearest(f'{ranker}, {kind}', known)}")

    def difference(self, one: str, other: str, measure: str, kind: str = "all") -> Interval:
        """`one` minus `other`, with an interval from resampling the same users for both."""
        ratios = (self.row(name, kind).ratios for name in (one, other))
        return percentile(next(ratios)[measure].minus(next(ratios)[measure]), self.confidence)

    def differences(
        self, one: str, measures: Sequence[str] = MEASURES, kind: str = "all"
    ) -> dict[tuple[str, str], Interval]:
        """`one` minus every other ranker in every measure, by (ranker, measure); all intervals hold together.

        The same users are resampled for all; the bootstrap error that all intervals together have to cover is the
        largest one of each replicate (`critical_values`). Infinite ends: the bootstrap of this difference lost a ratio.
        """
        mine = self.row(one, kind).ratios
        others = [row for row in self.rows if row.kind == kind and row.ranker != one]
        pairs = {(row.ranker, name): mine[name].minus(row.ratios[name]) for row in others for name in measures}
        error = 1.0 - self.confidence.level
        wide = critical_values(list(pairs.values()), self.confidence, error) / normal_deviate(error)
        return {
            pair: bca(gain, replace(self.confidence, widening=max(1.0, float(factor))))
            for (pair, gain), factor in zip(pairs.items(), wide, strict=True)
        }

    def text(self, measures: Sequence[str] | None = None) -> str:
        """A Markdown table of these measures, by default of all."""
        measures = (*self.rows[0].scores, *DIVERSITY) if measures is None else measures
        head = ["ranker", "events", "cases", *(f"{name}" for name in measures)]
        lines = [head, ["---"] * len(head)]
        for row in self.rows:
            lines.append([row.ranker, row.kind, f"{row.cases:,}"])
            for measure in measures:
                if measure in row.diversity:
                    lines[-1].append(f"{row.diversity[measure]:.3f}")
                    continue
                if measure not in row.scores:
                    near = nearest(measure, dict.fromkeys((*MEASURES, *row.scores, *DIVERSITY)))
                    raise ConfigError(f"unknown measure '{measure}': {near}")
                estimate, low, high = row.scores[measure]
                lines[-1].append(f"{estimate:.3f} [{low:.3f}, {high:.3f}]")
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def to_json(self) -> dict[str, Any]:
        """The cut-off and every row."""
        return {"k": self.k, "level": self.confidence.level, "rows": [row.to_json() for row in self.rows]}


def compare(
    rankers: Mapping[str, Ranks] | Iterable[tuple[str, Ranks]],
    cases: Cases,
    counts: NDArray[Any],
    k: int = 10,
    kinds: Sequence[str] = (),
    exclude_seen: bool = False,
    confidence: Confidence | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> RankerComparison:
    """Compare rankers by lists of `k` items in every case; `counts` [N + 1] are the items' counts before the split.

    With more than one of the named `kinds` of events there is one row for each, and one for all cases. `progress` gets
    the name of each ranker and the share of them that is done, 0 for pairs.

    Example:
        >>> from tidelog.recommend.interactions import next_events
        >>> from tidelog.recommend.evaluate import Markov, Popularity
        >>> from tidelog.recommend.evaluate import compare
        >>> users, items = np.repeat(range(40), 25), np.mod(7 * np.arange(1_000), 12)
        >>> table = pl.DataFrame({"user": users, "item": items, "time": np.tile(range(25), 40)})
        >>> split = tl.read_interactions(table, user="user", item="item", time="time").split()
        >>> rules = {"popularity": Popularity.of(split.train), "Markov": Markov.of(split.train)}
        >>> cases = next_events(split.test, split.test.targets).with_history
        >>> found = compare(rules, cases, split.train.counts, k=3)
        >>> found.difference("Markov", "popularity", "hit rate").low > 0
        True
    """
    confidence = confidence or Confidence()
    several = [kind for kind in range(1, len(kinds) + 1) if (cases.kind == kind).any()]
    parts = {"all": np.ones(len(cases), bool)}
    if len(several) > 1:
        parts |= {kinds[kind - 1]: cases.kind == kind for kind in several}
    listed = {}
    pairs, count = (rankers.items(), len(rankers)) if isinstance(rankers, Mapping) else (rankers, 0)
    for number, (name, ranker) in enumerate(pairs):
        if progress is not None:
            progress(name, number / count if count else 0.0)
        listed[name] = lists(ranker, cases, k, len(counts), exclude_seen)
    rows = []
    for kind, chosen in parts.items():
        some = cases.select(chosen)
        users, owner = np.unique(some.user, return_inverse=True)
        for name, every in listed.items():
            items, ratios = every[chosen], dict[str, Ratios]()
            for measure, sums in list_measures(items, some, np.asarray(counts, np.float64)).items():
                above, below = (np.bincount(owner, part, len(users)).astype(np.float64)[:, None] for part in sums)
                ratios[measure] = Ratios(above, below)
            scores = {measure: percentile(one, confidence) for measure, one in ratios.items()}
            spread = diversity(items, len(counts))
            rows.append(RankingRow(name, kind, len(some), len(users), scores, spread, ratios))
    return RankerComparison(k, tuple(rows), confidence)


def lists(ranker: Ranks, cases: Cases, k: int, size: int, exclude_seen: bool = False, batch: int = 512) -> Ints:
    """A ranker's recommendations in every case, [C, K] of items below `size`; SpecError for invalid lists."""
    if not 1 <= k < size:
        raise ConfigError(f"k = {k}", f"a number between 1 and {size - 1} (the number of items)")
    length = cases.histories.items.shape[1]
    cut = 0 if cases.history_counts is None else int((cases.history_counts > length).sum())
    if exclude_seen and cut:
        raise ConfigError(
            f"exclude_seen = True, but the histories of {cut:,} cases are cut to {length} events, so "
            "earlier items could be listed",
            fix="use next_events(..., length=None), which keeps whole histories",
        )
    parts = []
    for begin in range(0, len(cases), batch):
        histories = cases.histories.part(slice(begin, begin + batch))
        allowed = unseen(histories.items, size) if exclude_seen else None
        items, _ = ranker.rank(histories, k, allowed)
        parts.append(_check_lists(np.asarray(items), len(histories.items), k, size, allowed))
    return np.concatenate(parts)


def unseen(history: Ints, size: int) -> Bools:
    """Mask [C, N + 1] of all items except padding and those of the history [C, H]."""
    allowed = np.ones((len(history), size), bool)
    allowed[np.arange(len(history))[:, None], history] = False
    allowed[:, 0] = False
    return allowed


def list_measures(items: Ints, cases: Cases, counts: Floats) -> dict[str, UserSums]:
    """Every measure of lists [C, K], per case."""
    k, count = items.shape[1], (cases.targets > 0).sum(1)
    gain = 1.0 / np.log2(np.arange(k) + 2.0)
    hit, earned = np.zeros(items.shape, bool), np.zeros(items.shape)  # which listed items are targets; their rewards
    step = max(1, _CELLS // (k * cases.targets.shape[1]))
    for begin in range(0, len(items), step):
        part = slice(begin, begin + step)
        same = (items[part, :, None] == cases.targets[part, None, :]) & (cases.targets[part] > 0)[:, None, :]
        hit[part], earned[part] = same.any(2), (same * cases.rewards[part, None, :]).sum(2)
    ideal = np.cumsum(gain)[np.minimum(count, k) - 1]
    first = np.where(hit.any(1), 1.0 / (hit.argmax(1) + 1.0), 0.0)
    one = np.ones(len(items))
    listed = items > 0
    popular, wanted = (
        np.asarray((counts[of] * there).sum(1) / np.maximum(there.sum(1), 1))
        for of, there in ((items, listed), (cases.targets, cases.targets > 0))
    )
    rarity = np.log2((counts.sum() + len(counts) - 1) / (counts + 1.0))  # [N + 1] bits
    return {
        "hit rate": UserSums(hit.any(1).astype(float), one),
        "hit all": UserSums((hit.sum(1) == count).astype(float), one),
        "ndcg": UserSums(hit @ gain / ideal, one),
        "mrr": UserSums(first, one),
        "reward": UserSums(earned.sum(1), one),
        "discounted reward": UserSums(earned @ gain, one),
        "popularity lift": UserSums(popular, wanted),
        "novelty": UserSums((rarity[items] * listed).sum(1), listed.sum(1).astype(float)),
        "cold share": UserSums((listed & (counts[items] == 0)).sum(1).astype(float), listed.sum(1).astype(float)),
    }


def diversity(items: Ints, size: int) -> dict[str, float]:
    """Coverage and entropy of lists [C, K] over a catalogue of `size` - 1 items."""
    counts = np.bincount(items.ravel(), minlength=size)[1:]
    share = counts[counts > 0] / max(int(counts.sum()), 1)
    most = np.log(size - 1) if size > 2 else 1.0
    return {"coverage": float((counts > 0).mean()), "entropy": float(-(share * np.log(share)).sum() / most) + 0.0}


def _check_lists(items: NDArray[Any], rows: int, k: int, size: int, allowed: Bools | None) -> Ints:
    if items.shape != (rows, k) or not np.issubdtype(items.dtype, np.integer):
        raise SpecError(f"the ranker returned {items.dtype} {list(items.shape)}", f"whole numbers [{rows}, {k}]")
    if items.min() < 0 or items.max() >= size:
        raise SpecError(f"the ranker returned items {items.min()} .. {items.max()}", f"items 1 .. {size - 1}")
    ordered = np.sort(items, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] > 0)).any():
        raise SpecError("the ranker returned the same item twice in one list", "each item at most once")
    if allowed is not None and not (allowed[np.arange(rows)[:, None], items] | (items == 0)).all():
        raise SpecError("the ranker returned an item that is not allowed")
    return items.astype(np.int32)


# Whether to use a policy's lists: beside the best rule that only counts, on the same held-out cases.
#
# Letters: `C` cases.

LEADING = "hit rate"  # the measure of the sentence
MOST_CASES, K = 1_000, 10  # held-out cases that are compared, and the length of their lists
POPULAR, NEXT, NEIGHBOURS, OWN, TIFU = "popularity", "last-item Markov", "item-kNN", "own frequency", "TIFU-kNN"
NEXT_BY_EVENT = "last-event Markov"
RULES = {
    POPULAR: "the most frequent items of the log", NEXT: "what followed the last item",
    NEXT_BY_EVENT: "what followed the last item with its kind of event", NEIGHBOURS: "items of the same users",
    OWN: "the most frequent items of the user", TIFU: "frequent items of the user and of similar users",
}  # fmt: skip
SUBJECTS = {
    "events": ("the item that was taken", "whose item is"),
    "baskets": ("an item of the basket", "with an item"),
}  # for each unit: what a list contains, and which of them have it


MAKERS: Mapping[str, Callable[[Interactions], Ranks]] = {
    POPULAR: Popularity.of,
    NEXT: Markov.of,
    NEXT_BY_EVENT: partial(Markov.of, by_event=True),
    NEIGHBOURS: ItemKNN.of,
    OWN: partial(OwnFrequency.of, filled=True),
    TIFU: TifuKNN.of,
}
QUICK_FIRST = (POPULAR, OWN, NEXT, NEXT_BY_EVENT, NEIGHBOURS, TIFU)


class Advice(NamedTuple):
    """A policy's lists beside those of the best counting rule."""

    rule: str  # the name of the rule
    difference: Interval  # of the hit rates, policy minus rule
    sentence: str  # both, and their difference
    decision: str  # what to do
    use_policy: bool  # whether to use the policy's lists, else those of the rule
    left_out: tuple[str, ...] = ()  # rules that were not compared, for lack of time


def rules_for(log: Interactions) -> list[str]:
    """Return the names of the rules that fit a log.

    The two Markov rules are left out in a log of baskets, and the one by events where all events are of one kind.
    """
    left_out = [NEXT, NEXT_BY_EVENT] if log.has_baskets else [NEXT_BY_EVENT] if log.event.max(initial=0) <= 1 else []
    return [name for name in MAKERS if name not in left_out]


def counting_rules(train: Interactions) -> dict[str, Ranks]:
    """Return the rules that fit a log, over its events, by name."""
    return {name: MAKERS[name](train) for name in rules_for(train)}


def best_rule(compared: RankerComparison, names: Iterable[str] = RULES) -> str:
    """Return the compared rule with the highest hit rate over all cases."""
    rates = {row.ranker: row.scores[LEADING].estimate for row in compared.rows if row.kind == "all"}
    return max((name for name in names if name in rates), key=lambda name: (rates[name], name))


def advise_lists(
    ranker: Ranks,
    train: Interactions,
    test: Interactions,
    name: str = "this policy",
    *,
    seconds: float = math.inf,
    progress: Callable[[str, float], None] | None = None,
) -> Advice:
    """Return whether to use the lists of a ranker, beside those of the rules that count the events of `train`.

    `test` has the held-out events, as in `interactions.split()`; at most 1,000 of them, or of its users' first baskets,
    are compared, in lists of 10 items. They must not have chosen the policy. Quick rules come first; none but the first
    begins after so many `seconds`. `progress` gets the name of whose lists are made, and the share of the rules that is
    done. ConfigError without held-out events.

    Example:
        >>> from tidelog.recommend.evaluate import advise_lists
        >>> from tidelog.recommend.evaluate import Popularity
        >>> users, items = np.repeat(range(40), 25), np.mod(7 * np.arange(1_000), 12)
        >>> table = pl.DataFrame({"user": users, "item": items, "time": np.tile(range(25), 40)})
        >>> split = tl.read_interactions(table, user="user", item="item", time="time").split()
        >>> advise_lists(Popularity.of(split.train), split.train, split.test).decision
        'Do not use these lists: the counting rule last-item Markov is better than this policy. Use that rule.'
    """
    cases = held_out_cases(test, MOST_CASES)
    began, left_out = time.monotonic(), list[str]()
    rules = sorted(rules_for(train), key=QUICK_FIRST.index)

    def rankers() -> Iterator[tuple[str, Ranks]]:
        yield name, ranker
        for number, rule in enumerate(rules):
            if number and time.monotonic() - began > seconds:
                left_out.append(rule)
                continue
            if progress is not None:
                progress(rule, number / len(rules))
            yield rule, MAKERS[rule](train)

    compared = compare(rankers(), cases, train.counts, min(K, len(train.items) - 1))
    return advise(compared, name, "baskets" if test.has_baskets else "events")._replace(left_out=tuple(left_out))


def advise(compared: RankerComparison, name: str, unit: str) -> Advice:
    """Return the advice on the lists of the policy `name`; `unit` is "events" or "baskets"."""
    rule, thing = best_rule(compared), SUBJECTS[unit][0]
    mine, rules = (compared.row(one).scores[LEADING].estimate for one in (name, rule))
    gain = compared.difference(name, rule, LEADING)
    low, high = (f"{three_digits(100 * end, sign=True)}" for end in gain[1:])
    sentence = (
        f"In {three_digits(100 * mine)}% of {compared.row(name).cases:,} held-out {unit} the list of {compared.k} "
        f"items by {name} contains {thing}, and in {three_digits(100 * rules)}% that of the best counting rule, {rule} "
        f"({RULES[rule]}): a difference of {three_digits(100 * gain.estimate, sign=True)} percentage points ({low} to "
        f"{high})."
    )
    if gain.high < 0:
        decision = f"Do not use these lists: the counting rule {rule} is better than {name}. Use that rule."
    elif gain.low > 0:
        decision = (
            f"Use these lists: they contain {SUBJECTS[unit][0]} more often than those of the counting rule {rule}."
        )
    else:
        decision = (
            f"Do not use these lists yet: no gain over the counting rule {rule} is shown. Use that rule: it is simpler."
        )
    return Advice(rule, gain, sentence, decision, gain.low > 0)


# Lists by a counting rule, with the methods of a policy: for where the advice on lists prefers the rule.


class RuleRanker:
    """Ranks item indices by a counting rule; it reads nothing of users."""

    features, known_users = 0, 0

    def __init__(self, rule: Ranks, log: Interactions, name: str) -> None:
        self._rule, self._name, self._vocabulary = rule, name, Vocabulary(log.spec)
        self.items = len(log.items)
        self.history = LONGEST if log.has_baskets else LONGEST_OF_EVENTS  # as the advice compares them
        self.repeat_share = float(log.repeat_share)

    def rank(self, histories: Any, k: int, allowed: Bools | None = None) -> Lists:
        """Return the best `k` items and their scores, [B, k] each; `allowed` is [B, N + 1]; see `Ranker.rank`."""
        return self._rule.rank(self._vocabulary.arrays(histories, self), k, allowed)

    def whole(self) -> Ranker:
        """Raise SpecError: a rule has no item vectors and no likelihoods."""
        raise SpecError(
            f"{self._name} only counts: it has no reasons and no similarity of items",
            fix="drop --explain and --diversity (explain(), diversity=)",
        )


class RuleLists(Recommender):
    """Lists by a counting rule; the same methods as `Policy.recommend`."""

    def __init__(self, log: Interactions, name: str) -> None:
        self.spec, self.name = log.spec, rule_name(log, name)
        algorithm, data = f"counting rule {self.name}", log.fingerprint()
        self.manifest = {"algorithm": algorithm, "spec": self.spec.to_json(), "data": data}
        self._made_by = RuleRanker(MAKERS[self.name](log), log, self.name)
        self._events = log.steps

    def notes(self) -> list[str]:
        """Return what is counted: the rule, and the number of events."""
        return [f"lists by the counting rule {self.name} ({RULES[self.name]}), over {self._events:,} events"]


def word_of(rule: str) -> str:
    """Return the name of a rule as a word of a command: last-event-markov for last-event Markov."""
    return rule.lower().replace(" ", "-")


def rule_name(log: Interactions, word: str) -> str:
    """Return the name of a rule from its name or its word; ConfigError for one that does not fit the log."""
    known = {word_of(name): name for name in rules_for(log)}
    name = known.get(word_of(word))
    if name is not None:
        return name
    if word_of(word) in map(word_of, RULES):
        why = "its baskets have no order" if log.has_baskets else "all of its events are of one kind"
        raise ConfigError(f"the rule {word} does not fit this log: {why}", fix=f"use one of {', '.join(known)}")
    raise ConfigError(f"the rule '{word}' is unknown: {nearest(word_of(word), known)}")
