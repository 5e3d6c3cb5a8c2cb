"""Ranking items of a catalogue for histories, by index: exact search, then the order of an algorithm.

The search returns the rows of a table with the highest inner products, in chunks of the table. A block of scores is one
matrix product that stays in the processor's cache. Only scores above a query's k-th best score so far are stored: in
random order about `k` candidates each time the number of read rows doubles. Candidates are merged then, or when there
are many: the memory is bounded for every order.

Letters: `B` histories or queries, `H` history length, `N` items or rows of the table, `K` items found, `Q` or `D` width
of queries and rows, `C` rows of a chunk, `F` features of users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, SpecError
from tidelog.runtime.networks import Array, Node, end_if_stopped, gru, layer_norm, linear, mlp, softmax
from tidelog.types import HistoryArrays, HistoryNames

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
QUERIES = 256  # queries whose scores are in memory at once
CANDIDATES = 500_000  # largest number of candidates before a merge
NumpyArray = np.ndarray[Any, Any]
ItemLists: TypeAlias = tuple[NumpyArray, NumpyArray]  # items and their scores, [B, k] each, the best first
ROWS = 1024  # histories encoded at once
MARKS = 1 << 26  # entries of the mask of allowed items in memory at once


class FoundItems(NamedTuple):
    """Items found for histories; `likelihood` is -inf where there is no item."""

    items: NumpyArray  # [B, K] int32
    likelihood: NumpyArray  # [B, K]: its logarithm, relative to the most likely item
    rating: NumpyArray  # [B, K]: standardised Q
    first: NumpyArray  # [B, K] bool: supported by the log


class RankingFunctions(NamedTuple):
    """The functions of a ranking policy: rows for the search, queries for histories, and scores of the items found.

    `queries(histories)` returns queries [B, 1 + n, Q]; the first finds the most likely items, the others generated
    ones.
    `score_items(histories, found, logits, ideas)` returns likelihood, value and support of found items, [B, K] each.
    `places(histories)` returns items and scores [B, P] of places beside the catalogue: events whose items can be
    repeated, and counted successors of the last one; None: there are none.
    """

    table: NumpyArray  # [N + 1, Q] float32
    queries: Callable[..., Any]
    score_items: Callable[..., Any]
    places: Callable[..., tuple[Any, Any]] | None
    history: int  # H: number of steps of a history
    kinds: int  # number of event kinds
    features: int  # F: number of user features
    width: int  # K: smallest number of scored items
    q_weight: float  # weight of the value in the score
    repeat_share: float  # share of the log's events whose item the user had before
    known_users: int = 0  # number of users with a vector of their own


class ReadsHistories(Protocol):
    """The names of a policy: they turn histories of any origin into its own numbers."""

    names: HistoryNames

    def arrays(self, histories: Any, ranker: Any) -> HistoryArrays:
        """Return histories in the policy's numbers; SpecError where it cannot know what they mean."""


class Ranks(Protocol):
    """Anything that ranks item indices for histories."""

    def rank(self, histories: HistoryArrays, k: int, allowed: NumpyArray | None = None) -> ItemLists:
        """Return the best `k` items and their scores, [B, k] each, best first; `allowed` [B, N + 1] bool."""


class Ranker:
    """Ranks item indices for histories.

    `supervised` ranks by likelihood only, as the history encoder without reinforcement learning. With a `vocabulary`
    histories have names, as those of `recommend`, or of a log, which may count kinds of events in another order.
    """

    def __init__(
        self, functions: RankingFunctions, supervised: bool = False, vocabulary: ReadsHistories | None = None
    ) -> None:
        self._functions, self._supervised, self._vocabulary = functions, supervised, vocabulary
        self.items = len(functions.table) - 1  # N
        self.history = functions.history  # H: the number of steps of a history
        self.features = functions.features  # F: the number of user features, 0 for none
        self.known_users = functions.known_users  # users with a vector of their own; 0: who the user is has no effect
        self.width = functions.width  # the smallest number of scored items for a list
        self.repeat_share = functions.repeat_share  # share of the log's events whose item the user had before

    def rank(self, histories: Any, k: int, allowed: NumpyArray | None = None) -> ItemLists:
        """Return the best `k` items and their scores, [B, k] each; `allowed` [B, N + 1] bool. SpecError for fewer.

        Supported items come first, by likelihood and Q; the others follow by likelihood. Histories are lists of item
        ids, `Histories`, or arrays with names (`log.histories`); SpecError for kinds of events by number alone.
        """
        seen = self._read(histories, allowed)
        most = max(1, MARKS // (self.items + 1))
        parts = []
        for begin in range(0, len(seen.items), most):
            rows = slice(begin, begin + most)
            marks = np.ones((len(seen.items[rows]), self.items + 1), bool) if allowed is None else allowed[rows].copy()
            marks[:, 0] = False
            refuse_too_few(marks, k, begin)
            found = self._found(seen.part(rows), k, marks)
            parts.append(order_found(found, k, 0.0 if self._supervised else self._functions.q_weight, self._supervised))
        items, scores = zip(*parts, strict=True)
        return np.concatenate(items), np.concatenate(scores)

    def whole(self) -> Ranker:
        """Return this ranker: it has item vectors, likelihoods, and lists of any length."""
        return self

    @property
    def vectors(self) -> NumpyArray:
        """The items' vectors [N + 1, D] of length 1; row 0 is no item."""
        return self._functions.table[:, :-1]

    def log_likelihood(self, histories: Any, items: NumpyArray) -> NumpyArray:
        """Return the log-likelihood of items [B, K] after histories, over the whole catalogue."""
        whole, parts = self._read(histories), []
        for begin in range(0, len(whole.items), QUERIES):
            rows = slice(begin, begin + QUERIES)
            seen = whole.part(rows)
            queries, places = np.asarray(self._functions.queries(seen)), self._places(seen)
            logits = queries[:, 0] @ self._functions.table[1:].T  # [B, N]
            if places is not None:
                logits = np.concatenate([logits, places[1]], axis=1)
            top = logits.max(axis=1, keepdims=True)
            total = top + np.log(np.exp(logits - top, dtype=np.float64).sum(axis=1, keepdims=True))
            own = np.einsum("bkq,bq->bk", self._functions.table[items[rows]], queries[:, 0])
            if places is not None:
                own = np.logaddexp(own, sums_of_places(items[rows], *places, self.items))
            parts.append(np.asarray(own - total))
        return np.concatenate(parts)

    def _places(self, seen: HistoryArrays) -> tuple[NumpyArray, NumpyArray] | None:
        """Return items and scores [B, P] of the places beside the catalogue; None where there are none."""
        places = self._functions.places
        if places is None:
            return None
        items, scores = places(seen)
        return np.asarray(items), np.asarray(scores)

    def find(self, histories: Any, k: int, allowed: NumpyArray) -> FoundItems:
        """Return the most likely allowed items and the nearest to generated vectors, with their scores."""
        return self._found(self._read(histories), k, allowed)

    def _found(self, seen: HistoryArrays, k: int, allowed: NumpyArray) -> FoundItems:
        parts = [
            self._find(seen.part(slice(i, i + ROWS)), k, allowed[i : i + ROWS]) for i in range(0, len(seen.items), ROWS)
        ]
        return FoundItems(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _read(self, histories: Any, allowed: NumpyArray | None = None) -> HistoryArrays:
        named = histories if self._vocabulary is None else self._vocabulary.arrays(histories, self)
        return fit_histories(named, self._functions, allowed)

    def _find(self, seen: HistoryArrays, k: int, allowed: NumpyArray) -> FoundItems:
        functions = self._functions
        queries, width = np.asarray(functions.queries(seen)), min(max(k, functions.width), self.items)
        places = self._places(seen)
        found, _ = top_k(queries[:, 0], functions.table, width, allowed)
        if places is not None:  # an item outside of both is not among the best
            found = np.concatenate([places[0], found], axis=1)
            logits = self._logits(queries, found, allowed, places)
            found = np.take_along_axis(found, np.lexsort((found, -logits), axis=1)[:, :width], axis=1)
        ideas = np.ones(found.shape, bool)
        if queries.shape[1] > 1:
            near = max(1, -(-width // (queries.shape[1] - 1)))  # to each generated vector: at least `width` in all
            parts = [top_k(queries[:, i], functions.table, near, allowed)[0] for i in range(1, queries.shape[1])]
            generated = np.concatenate(parts, axis=1)
            ideas = np.pad(np.ones(generated.shape, bool), ((0, 0), (0, found.shape[1])))
            found = np.concatenate([generated, found], axis=1)
        logits = self._logits(queries, found, allowed, places)
        likelihood, rating, first = (np.asarray(part) for part in functions.score_items(seen, found, logits, ideas))
        return FoundItems(found, likelihood, rating, first)

    def _logits(
        self,
        queries: NumpyArray,
        found: NumpyArray,
        allowed: NumpyArray,
        places: tuple[NumpyArray, NumpyArray] | None,
    ) -> NumpyArray:
        """Return the logits [B, K] of found items; -inf for forbidden ones, and for all but the first of a row."""
        valid = np.take_along_axis(allowed, found, axis=1) & ~_again(found)
        logits = np.einsum("bkq,bq->bk", self._functions.table[found], queries[:, 0])
        if places is not None:
            logits = np.logaddexp(logits, sums_of_places(found, *places, self.items))
        return np.where(valid, logits, -np.inf).astype(np.float32)


def sums_of_places(found: NumpyArray, items: NumpyArray, scores: NumpyArray, count: int) -> NumpyArray:
    """Return the log of the summed exponentials of found items' scores [B, K] over places, items and scores [B, P].

    -inf for items without a place; items are 0 .. `count`.
    """
    top = scores.max(axis=1, keepdims=True)
    row = np.arange(len(items), dtype=np.int64)[:, None] * (count + 1)
    keys, position = np.unique(row + items, return_inverse=True)
    sums = np.bincount(position.ravel(), np.exp(scores - top, dtype=np.float64).ravel())
    at = np.minimum(np.searchsorted(keys, row + found), len(keys) - 1)
    there = keys[at] == row + found
    return np.where(there, top + np.log(np.maximum(sums[at], 1e-300)), -np.inf)


def order_found(found: FoundItems, k: int, weight: float, supervised: bool = False) -> tuple[NumpyArray, NumpyArray]:
    """Return the best `k` found items by likelihood plus `weight` times Q, supported ones first: items, scores [B, k].

    Scores decrease along a list: those of unsupported items are lowered below the supported ones.
    """
    first = np.isfinite(found.likelihood) if supervised else found.first
    score = found.likelihood if supervised else found.likelihood + np.where(first, weight * found.rating, 0.0)
    least = np.min(np.where(first, score, np.inf), axis=1, keepdims=True)
    rest = np.where(first, -np.inf, score)
    gap = np.max(rest, axis=1, keepdims=True) - least
    lower = np.where(np.isfinite(gap), np.maximum(gap, 0.0), 0.0)
    score = np.where(first, score, np.minimum(score - lower, least))  # rounding must not lift a score above
    order = np.lexsort((found.items, -score, ~first), axis=1)[:, :k]
    items = np.take_along_axis(found.items, order, axis=1).astype(np.int32)
    return items, np.take_along_axis(score, order, axis=1).astype(np.float32)


def refuse_too_few(allowed: NumpyArray, k: int, before: int = 0) -> None:
    """Raise SpecError unless every history has at least `k` allowed items: allowed [B, N + 1]."""
    if k < 1:
        raise SpecError(f"k = {k}", "at least 1", "use k=10")
    counts = allowed[:, 1:].sum(axis=1)
    short = np.flatnonzero(counts < k)
    if len(short):
        several = "1 history has" if len(short) == 1 else f"{len(short)} histories have"
        raise SpecError(
            f"k = {k}, but history {before + int(short[0])} has only {int(counts[short[0]])} candidates "
            f"({several} fewer than {k})",
            fix="lower k, allow more candidates, or let lists contain items of the history (exclude_seen)",
        )


def renumbered(events: NumpyArray, words: tuple[str, ...], own: tuple[str, ...]) -> NumpyArray:
    """Return kinds of events [...], numbers of `words`, as numbers of `own` words; a word not in `own` is one more."""
    if events.size and (events.min() < 0 or events.max() > len(words)):
        raise SpecError(f"events have {events.max()}", f"kinds 0 (none) to {len(words)}", "use these")
    if words == own:
        return events
    known = {word: number for number, word in enumerate(own, 1)}
    return np.array([0, *(known.get(word, len(own) + 1) for word in words)], np.int32)[events]


def fit_histories(
    histories: HistoryArrays, functions: RankingFunctions, allowed: NumpyArray | None = None
) -> HistoryArrays:
    """Return what a ranking policy reads of histories: the last steps, and 0 where nothing is known.

    SpecError unless items, events and users are those of the policy, padded alike, and `allowed` is [B, N + 1].
    """
    items, events, users, who, _ = histories
    count, kinds, features = len(functions.table) - 1, functions.kinds, functions.features
    if items.ndim != 2 or items.shape != events.shape:
        raise SpecError(f"histories and events have shapes {items.shape} and {events.shape}", "[B, H]", "reshape them")
    rows = len(items)
    if rows == 0:
        raise SpecError("no history", "at least one", "pass a history")
    if items.size and (items.min() < 0 or items.max() > count):
        raise SpecError(f"histories have {items.max()}", f"item indices 0 (none) to {count}", "use these")
    if events.size and (events.min() < 0 or events.max() > kinds):
        raise SpecError(f"events have {events.max()}", f"kinds 0 (none) to {kinds}", "use these")
    if ((items > 0) != (events > 0)).any():
        raise SpecError("items and events have different padding", fix="one kind of event for each item")
    if allowed is not None and allowed.shape != (rows, count + 1):
        raise SpecError(f"allowed has shape {list(allowed.shape)}", f"[{rows}, {count + 1}]", "reshape it")
    if users is None or not features:
        users = np.zeros((rows, features), np.float32)
    elif users.shape != (rows, features) or not np.isfinite(users).all():
        raise SpecError(f"users have shape {list(users.shape)}", f"finite [{rows}, {features}]", "reshape them")
    if functions.known_users:
        who = np.zeros(rows, np.int32) if who is None else who
        if who.shape != (rows,) or who.min() < 0 or who.max() > functions.known_users:
            raise SpecError(
                f"user_index has shape {list(who.shape)} and values up to {who.max(initial=0)}",
                f"[{rows}] of 0 (unknown) to {functions.known_users}",
                "use the places of the policy's own users",
            )
    items, events = (fit_length(part, functions.history) for part in (items, events))
    known = who.astype(np.int32) if functions.known_users else None
    return HistoryArrays(items, events, users.astype(np.float32), known)


def _again(items: NumpyArray) -> NumpyArray:
    """[B, K] bool: items that are also further left in their row."""
    order = np.argsort(items, axis=1, kind="stable")
    placed = np.take_along_axis(items, order, axis=1)
    same = np.concatenate([np.zeros((len(items), 1), bool), placed[:, 1:] == placed[:, :-1]], axis=1)
    again = np.zeros(items.shape, bool)
    np.put_along_axis(again, order, same, axis=1)
    return again


def fit_length(histories: NumpyArray, length: int) -> NumpyArray:
    """Return the last `length` steps, left-padded."""
    steps = histories[:, -length:].astype(np.int32)
    return np.pad(steps, ((0, 0), (length - steps.shape[1], 0)))


# Exact search.


def top_k(
    queries: Floats, table: Floats, k: int, allowed: Bools | None = None, chunk: int = 2048
) -> tuple[Integers, Floats]:
    """Return the rows of the table with the highest inner products, best first, ties by the lowest row: both [B, K].

    `queries` is [B, D], `table` [N, D], float32; `allowed` is [N] or [B, N]. Where fewer than `k` rows are allowed the
    rest is row 0 with a score of minus infinity. ConfigError where the table is smaller than `k`, SpecError where
    numbers are not finite.
    """
    queries, table = np.asarray(queries, np.float32), np.asarray(table, np.float32)
    if queries.ndim != 2 or table.ndim != 2 or queries.shape[1] != table.shape[1]:
        raise SpecError(f"queries {queries.shape} and table {table.shape}", "[B, D] and [N, D]", "reshape them")
    if not np.isfinite(queries).all():
        wrong = int(np.flatnonzero(~np.isfinite(queries).all(1))[0])
        raise SpecError(f"query {wrong} is not finite", fix="use finite numbers")
    if chunk < 1:
        raise ConfigError(f"chunk = {chunk}", "at least 1", "use 2048")
    shapes = [(len(table),), (len(queries), len(table))]
    if allowed is not None and (allowed.dtype != bool or allowed.shape not in shapes):
        expected = f"bool {' or '.join(str(list(shape)) for shape in shapes)}"
        raise SpecError(f"allowed is {allowed.dtype} {allowed.shape}", expected, "pass a mask")
    if not 1 <= k <= len(table):
        raise ConfigError(f"k = {k}", f"1 to {len(table)}, the number of rows", "lower k")
    results = [np.zeros((0, k), np.int64)], [np.zeros((0, k), np.float32)]
    for begin in range(0, len(queries), QUERIES):
        part = slice(begin, begin + QUERIES)
        mine = allowed[part] if allowed is not None and allowed.ndim == 2 else allowed
        best = _BestSoFar(len(queries[part]), k)
        _scan(queries[part], table, mine, chunk, best)
        results[0].append(best.places)
        results[1].append(best.scores)
    return np.concatenate(results[0]), np.concatenate(results[1])


class _BestSoFar:
    """The best `k` scores so far, [B, K], and candidates before their merge."""

    def __init__(self, rows: int, k: int) -> None:
        self.places = np.zeros((rows, k), np.int64)
        self.scores = np.full((rows, k), -np.inf, np.float32)
        self._candidates: list[tuple[Integers, Integers, Floats]] = []
        self._many = 0

    def offer(self, scores: Floats, first: int) -> None:
        """Add scores [B, C] of the rows of the table from `first` on; the earlier row wins a tie."""
        rows, k = self.scores.shape
        better = scores > self.scores[:, -1:]
        at = np.flatnonzero(better)
        if len(at) > 8 * rows * k and scores.shape[1] > k:
            least = np.partition(scores, -k, axis=1)[:, -k:][:, :1]
            at = np.flatnonzero(better & (scores >= least))
        if len(at):
            self._candidates.append((at // scores.shape[1], at % scores.shape[1] + first, scores.ravel()[at]))
            self._many += len(at)
        if self._many > CANDIDATES:
            self.merge()

    def merge(self) -> None:
        """Merge the candidates into the best scores."""
        if not self._candidates:
            return
        rows, k = self.scores.shape
        known = (np.repeat(np.arange(rows), k), self.places.ravel(), self.scores.ravel())
        row, position, score = (np.concatenate(parts) for parts in zip(known, *self._candidates, strict=True))
        order = np.lexsort((position, -score, row))
        within = np.arange(len(row)) - np.searchsorted(row[order], row[order])
        order = order[within < k]
        self.places, self.scores = position[order].reshape(rows, k), score[order].reshape(rows, k)
        self._candidates, self._many = [], 0


def _scan(queries: Floats, table: Floats, allowed: Bools | None, chunk: int, best: _BestSoFar) -> None:
    buffer = np.empty((len(queries), min(chunk, len(table))), np.float32)
    due = chunk
    for first in range(0, len(table), chunk):
        end_if_stopped()
        part = table[first : first + chunk]
        with np.errstate(over="ignore", invalid="ignore"):  # finite rows may still have an infinite sum
            total = part.sum()
        if not np.isfinite(total):
            wrong = np.flatnonzero(~np.isfinite(part).all(1))
            if len(wrong):
                raise SpecError(f"row {first + int(wrong[0])} of the table is not finite", fix="use finite numbers")
        scores = np.matmul(queries, part.T, out=buffer[:, : len(part)] if len(part) == chunk else None)
        if allowed is not None:
            scores = np.where(allowed[..., first : first + chunk], scores, -np.inf).astype(np.float32)
        best.offer(scores, first)
        if first + chunk >= due:
            best.merge()
            due = 2 * (first + chunk)
    best.merge()


# History encoding of a policy over a catalogue, from a recipe's nodes: search queries and scores of found items.
#
# `xp` is NumPy, or `jax.numpy` where the same lines are traced for ONNX. Letters: `B` histories, `H` steps, `N` items,
# `D` item vector size, `n` generated vectors, `K` items found, `L` latent size.

Step: TypeAlias = Callable[..., Array]  # (carry, *now) -> carry
Loop: TypeAlias = Callable[[Step, Array, tuple[Array, ...]], Array]
RANKING = "ranking"  # node kind of a ranking policy
AGES = 56  # groups of ages: four for each doubling; an age of 2**14 events and more is in the last
NO_PLACE = -1e30  # score of no event
TRUSTS = 32  # groups of numbers of counted successors, one for each doubling


def ranking_functions(node: Node) -> RankingFunctions:
    """Return the NumPy functions of a node for reading histories; ValueError for invalid counts of successors."""
    if "successors" in node["catalogue"]:
        _check_successors(node["catalogue"])
    return RankingFunctions(
        table=np.asarray(rows(np, node["catalogue"]), np.float32),
        queries=lambda seen: item_queries(np, node, states(np, node, seen)),
        score_items=lambda seen, *found: item_scores(np, node, states(np, node, seen), *found),
        places=(lambda seen: places(np, node, states(np, node, seen), seen)) if has_places(node) else None,
        history=reach(node),
        kinds=len(node["encoder"]["events"]) - 1,
        features=features_of(node),
        known_users=known_users(node),
        width=node["width"],
        q_weight=node["q_weight"],
        repeat_share=node["repeat_share"],
    )


def _check_successors(catalogue: Node) -> None:
    """Raise ValueError unless every item has counts, and every successor is an item."""
    counted, size = catalogue["successors"], catalogue["weight"].shape[0]
    items, counts, totals = (counted[name] for name in ("items", "counts", "totals"))
    if items.shape != counts.shape or len(items) != size or totals.shape != (size,) or items.shape[1] == 0:
        shapes = [list(one.shape) for one in (items, counts, totals)]
        raise ValueError(f"counts of successors have shapes {shapes}, expected [{size}, M] twice and [{size}]")
    if items.min() < 0 or items.max() >= size:
        raise ValueError(f"a counted successor is item {items.min()} or {items.max()}, expected 0 to {size - 1}")
    if counted["trust"].shape != (TRUSTS,):
        raise ValueError(f"trust has {counted['trust'].size} groups, expected {TRUSTS}")


def features_of(node: Node) -> int:
    """Return the number of user features."""
    profile = node["encoder"]["profile"]
    return 0 if profile is None else profile.shape[0]


def known_users(node: Node) -> int:
    """Return the number of users with a vector of their own."""
    users = node["encoder"].get("users")
    return 0 if users is None else users.shape[0] - 1


def reach(node: Node) -> int:
    """Return the number of events of a history."""
    return int(node["history"] if node["repeats"] is None else node["repeats"]["length"])


def age_groups(longest: int) -> np.ndarray[Any, Any]:
    """Return the group of each age 0 .. longest, in numbers of events; the last event has age 1."""
    ages = np.maximum(np.arange(longest + 1), 1)
    return np.minimum(np.floor(4 * np.log2(ages) + 1e-9), AGES - 1).astype(np.int32)


def rows(xp: Any, node: Node) -> Array:
    """Return the search rows [N + 1, D + 1]: directions of length 1, and the items' bias."""
    vectors, bias = _items(xp, node, slice(None))
    return xp.concatenate([vectors, bias[:, None]], axis=1)


def item_queries(xp: Any, node: Node, states: Array) -> Array:
    """Return queries [B, 1 + n, D + 1] in states [B, D]: likelihood, then generated vectors."""
    ones = xp.ones((states.shape[0], 1), xp.float32)
    likely = xp.concatenate([states, ones], axis=1)[:, None]
    idea = node["generation"]
    if idea is None:
        return likely
    beside = states[:, None]
    vectors = _directed(xp, _pair(xp, idea["outward"], beside, idea["latents"][None]))
    direction = xp.tanh(_pair(xp, idea["perturbation"], beside, vectors))
    generated = _directed(xp, vectors + idea["phi"] / math.sqrt(vectors.shape[-1]) * direction)
    return xp.concatenate([likely, xp.concatenate([generated, xp.zeros_like(generated[..., :1])], axis=-1)], axis=1)


def has_places(node: Node) -> bool:
    """Return whether items have scores beside the catalogue's."""
    return node["repeats"] is not None or "successors" in node["catalogue"]


def places(xp: Any, node: Node, states: Array, seen: HistoryArrays) -> tuple[Array, Array]:
    """Return items and scores [B, P] of the events of histories, and of the last item's successors; states [B, D]."""
    repeats, successors = node["repeats"], node["catalogue"].get("successors")
    found = [] if repeats is None else [(seen.items, _repeats(xp, node, states, seen))]
    if successors is not None:
        found.append(_successors(xp, node, states, seen))
    items, scores = zip(*found, strict=True)
    return xp.concatenate(items, axis=1), xp.concatenate(scores, axis=1)


def _repeats(xp: Any, node: Node, states: Array, seen: HistoryArrays) -> Array:
    """Return the scores [B, H] of the events of histories for their items being repeated."""
    part, length = node["repeats"], seen.items.shape[1]
    vectors, _ = _items(xp, node["catalogue"], seen.items)
    match = (
        xp.sum(vectors * (states @ part["match"])[:, None], axis=-1) + xp.sum(states * part["gate"], axis=-1)[:, None]
    )
    ages = part["age"][age_groups(length)[np.arange(length, 0, -1)]]
    return xp.where(seen.events > 0, match + ages + part["event"][seen.events], NO_PLACE)


def _successors(xp: Any, node: Node, states: Array, seen: HistoryArrays) -> tuple[Array, Array]:
    """Return the counted successors [B, M] of the last items of histories, and their scores."""
    part, last = node["catalogue"]["successors"], seen.items[:, -1]
    items, counts, totals = part["items"][last], part["counts"][last], xp.maximum(part["totals"][last], 1.0)
    trust = part["trust"][xp.clip(xp.log2(totals) + 1e-4, 0, TRUSTS - 1).astype(xp.int32)]
    trust = trust + part["event"][seen.events[:, -1]] + xp.sum(states * part["gate"], axis=-1) - xp.log(totals)
    vectors, bias = _items(xp, node["catalogue"], items)
    logits = xp.sum(states[:, None] * vectors, axis=-1) + bias
    there = (items > 0) & (counts > 0.5)
    return items, xp.where(there, logits + trust[:, None] + xp.log(xp.where(there, counts, 1.0)), NO_PLACE)


def item_scores(xp: Any, node: Node, states: Array, found: Array, logits: Array, ideas: Array) -> tuple[Array, ...]:
    """Return likelihood, value and support of found items [B, K]; `logits` -inf for none, `ideas` bool."""
    valid = logits > -math.inf
    known = xp.where(valid, logits, -1e30)
    best = xp.max(known, axis=-1, keepdims=True)
    threshold = node["threshold"]
    likely = known - best >= (math.log(threshold) if threshold > 0 else -math.inf)
    first = valid & (likely if node["generation"] is None else ideas)
    vectors, _ = _items(xp, node["catalogue"], found)
    values = _pair(xp, node["critic"], states[:, None], vectors)[..., 0]
    return xp.where(valid, known - best, -math.inf), _standardised(xp, values, first), first


def scan_steps(step: Step, carry: Array, inputs: tuple[Array, ...]) -> Array:
    """Return the recurrent state [B, ...] after all steps [L, B, ...]."""
    for now in zip(*inputs, strict=True):
        carry = step(carry, *now)
    return carry


def states(xp: Any, node: Node, seen: HistoryArrays, loop: Loop = scan_steps) -> Array:
    """Return the states [B, D] at the end of histories, of which the encoder reads the last events."""
    items, events = seen.items[:, -node["history"] :], seen.events[:, -node["history"] :]
    encoder, real = node["encoder"], events > 0
    vectors, _ = _items(xp, node["catalogue"], items)
    steps = math.sqrt(vectors.shape[-1]) * vectors + encoder["events"][events]
    body = encoder["body"]
    state = BODIES[body["kind"]](xp, body, xp.where(real[..., None], steps, 0.0), real, loop)
    state = xp.where(real[:, -1:], state, encoder["empty"])
    if encoder["profile"] is not None:
        state = state + seen.users @ encoder["profile"]
    if known_users(node):
        own = encoder["users"][seen.user_index]
        state = state + encoder["users"][0] + xp.where(seen.user_index[:, None] > 0, own, 0.0)
    return layer_norm(xp, encoder["norm"], state)


def _mean(xp: Any, node: Node, x: Array, real: Array, loop: Loop) -> Array:
    count = xp.maximum(xp.sum(real.astype(xp.float32), axis=1), 1.0)
    return linear(node["linear"], xp.sum(x, axis=1) / count[:, None])


def _recurrent(xp: Any, node: Node, x: Array, real: Array, loop: Loop) -> Array:
    unit = node["unit"]
    start = xp.zeros_like(x[:, 0, :1]) + xp.zeros((1, unit["recurrent"].shape[0]), xp.float32)

    def step(carry: Array, now: Array, valid: Array) -> Array:
        return xp.where(valid[:, None], gru(xp, unit, carry, now), 0.0)

    return linear(node["linear"], loop(step, start, (xp.swapaxes(x, 0, 1), xp.swapaxes(real, 0, 1))))


def _attention(xp: Any, node: Node, x: Array, real: Array, loop: Loop) -> Array:
    steps = x.shape[1]
    x = x + node["positions"][:steps]
    causal, own = np.tril(np.ones((steps, steps), bool)), np.eye(steps, dtype=bool)
    seen = (real[:, None, :] & xp.asarray(causal)) | xp.asarray(own)
    for block in node["blocks"]:
        x = x + _attended(xp, block, layer_norm(xp, block["before"], x), seen)
        wide = xp.maximum(linear(block["wide"], layer_norm(xp, block["between"], x)), 0.0)
        x = x + linear(block["narrow"], wide)
    return x[:, -1]


def _attended(xp: Any, node: Node, x: Array, seen: Array) -> Array:
    batch, steps, size = x.shape
    heads = node["heads"]

    def split(layer: Node) -> Array:  # [B, heads, steps, size / heads]
        return xp.transpose(linear(layer, x).reshape(batch, steps, heads, size // heads), (0, 2, 1, 3))

    queries, keys, values = (split(node[name]) for name in ("queries", "keys", "values"))
    match = xp.matmul(queries, xp.transpose(keys, (0, 1, 3, 2))) / math.sqrt(size / heads)
    output = xp.matmul(softmax(xp, xp.where(seen[:, None], match, -math.inf)), values)
    return linear(node["out"], xp.transpose(output, (0, 2, 1, 3)).reshape(batch, steps, size))


BODIES: Mapping[str, Callable[[Any, Node, Array, Array, Loop], Array]] = {
    "mean": _mean,
    "recurrent": _recurrent,
    "attention": _attention,
}


def _items(xp: Any, node: Node, items: Array) -> tuple[Array, Array]:
    """Return directions [..., D] and biases [...] of items [...]."""
    weight, bias = node["weight"][items], node["bias"][items]
    if node["tower"] is not None:
        outputs = mlp(xp, node["tower"], node["features"][items])
        weight, bias = weight + outputs[..., :-1], bias + outputs[..., -1]
    return _directed(xp, weight), bias


def _pair(xp: Any, node: Node, states: Array, vectors: Array) -> Array:
    return mlp(xp, node["body"], xp.maximum(linear(node["state"], states) + linear(node["item"], vectors), 0.0))


def _directed(xp: Any, vectors: Array) -> Array:
    return vectors / xp.sqrt(xp.sum(xp.square(vectors), axis=-1, keepdims=True) + 1e-12)


def _standardised(xp: Any, values: Array, among: Array) -> Array:
    """Return marked values standardised over the marked ones; 0 for others, and where all are equal."""
    share = among / xp.maximum(xp.sum(among.astype(xp.float32), axis=-1, keepdims=True), 1.0)
    away = values - xp.sum(values * share, axis=-1, keepdims=True)
    variance = xp.sum(xp.square(away) * share, axis=-1, keepdims=True)
    standardised = xp.where(among & (variance > 1e-12), away / xp.sqrt(xp.maximum(variance, 1e-12)), 0.0)
    return standardised.astype(xp.float32)
