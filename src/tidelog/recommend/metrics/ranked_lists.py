"""Metrics of ranked lists for predicting the next items, with intervals over users.

Every measure is a ratio of sums over cases, summed by user: one bootstrap serves all of them, and two rankers are
compared on the same users. At cut-off `k`, for a case with a set of targets (one event, or a basket):

| measure | of one case |
|---|---|
| hit rate | 1 if any target is in the list |
| hit all | 1 if every target is in the list |
| ndcg | sum of 1 / log2(rank + 1) over the hits, divided by that of the best list: min(k, targets) hits at the top |
| mrr | 1 / rank of the first hit, 0 without one |
| reward | sum of the rewards of the targets in the list |
| discounted reward | the same, each times 1 / log2(rank + 1); training selects the weight of Q by it |
| popularity lift | mean popularity of the listed items divided by that of the targets; above 1: more popular |
| cold share | share of the listed items that nobody took before the split |
| novelty | mean over the list of log2(events / events of the item), each item counted once more; high: rare items |
| list diversity | 1 minus the mean cosine of the vectors of all pairs of listed items; only with `vectors` of items |

*Coverage* is the share of the catalogue that is in any list; *entropy* is that of all listed items, divided by log N: 1
if all are listed equally often. Both describe the lists together, so they have no interval.

Letters: `C` cases, `K` length of a list, `G` items of the largest basket, `N` items, `U` users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.ope.estimators.intervals import Confidence, critical_values, interval, normal_deviate
from tidelog.ope.estimators.ratios import Ratios
from tidelog.ope.evidence.evidence import Floats
from tidelog.policies.statistics import Interval
from tidelog.recommend.interactions.held_out import Bools, Cases, Ints
from tidelog.recommend.metrics.baselines import Ranker

MEASURES = (
    "hit rate", "hit all", "ndcg", "mrr", "reward", "discounted reward", "popularity lift", "cold share", "novelty"
)  # fmt: skip
LIST_DIVERSITY = "list diversity"
DIVERSITY = ("coverage", "entropy")
_CELLS = 20_000_000  # largest number of comparisons of listed items with targets in memory


class UserSums(NamedTuple):
    """A measure as numerators and denominators per case, both [C]."""

    numerator: Floats
    denominator: Floats


@dataclass(frozen=True, eq=False)
class RankingRow:
    """Metrics of one ranker on the cases of one kind of event, or of one group."""

    ranker: str
    kind: str  # "all", or the name of a kind of event or of a group
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
class Comparison:
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
        return _interval(next(ratios)[measure].minus(next(ratios)[measure]), self.confidence)

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
            pair: interval(gain, "bca", replace(self.confidence, widening=max(1.0, float(factor))))
            for (pair, gain), factor in zip(pairs.items(), wide, strict=True)
        }

    def text(self, measures: Sequence[str] | None = None) -> str:
        """A Markdown table of these measures, by default of all."""
        measures = (*self.rows[0].scores, *DIVERSITY) if measures is None else measures
        head = ["ranker", "events", "cases", *(f"{name}" for name in measures)]
        lines = [head, ["---"] * len(head)]
        for row in self.rows:
            cells = (_cell(row, measure) for measure in measures)
            lines.append([row.ranker, row.kind, f"{row.cases:,}", *cells])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def to_json(self) -> dict[str, Any]:
        """The cut-off and every row."""
        return {"k": self.k, "level": self.confidence.level, "rows": [row.to_json() for row in self.rows]}


def compare(
    rankers: Mapping[str, Ranker] | Iterable[tuple[str, Ranker]],
    cases: Cases,
    counts: NDArray[Any],
    k: int = 10,
    kinds: Sequence[str] = (),
    exclude_seen: bool = False,
    confidence: Confidence | None = None,
    groups: Mapping[str, Bools] | None = None,
    vectors: NDArray[Any] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Compare rankers by lists of `k` items in every case; `counts` [N + 1] are the items' counts before the split.

    With more than one of the named `kinds` of events there is one row for each, and one for all cases; each of the
    `groups` of cases, masks [C], has one, too. `vectors` [N + 1, D] of items, such as their features, add the measure
    list diversity. `progress` gets the name of each ranker and the share of them that is done, 0 for pairs. ConfigError
    for a group without cases, and for masks or vectors of another length.

    Example:
        >>> from tidelog.recommend.interactions.held_out import next_events
        >>> from tidelog.recommend.metrics.baselines import Markov, Popularity
        >>> from tidelog.recommend.metrics.ranked_lists import compare
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
    if vectors is not None and (np.ndim(vectors) != 2 or len(vectors) != len(counts)):
        raise ConfigError(
            f"vectors have shape {list(np.shape(vectors))}: expected [{len(counts)}, D]. fix: one per item"
        )
    several = [kind for kind in range(1, len(kinds) + 1) if (cases.kind == kind).any()]
    parts = {"all": np.ones(len(cases), bool)}
    if len(several) > 1:
        parts |= {kinds[kind - 1]: cases.kind == kind for kind in several}
    for name, chosen in (groups or {}).items():
        mask = np.asarray(chosen)
        if mask.dtype != bool or mask.shape != (len(cases),) or not mask.any() or name in parts:
            raise ConfigError(
                f"group '{name}' is {mask.dtype}{list(mask.shape)}: expected a mask of {len(cases)} cases with at "
                "least one of them, and a new name. fix: leave out empty groups; a kind of event has its own row"
            )
        parts[name] = mask
    listed = {}
    pairs, count = (rankers.items(), len(rankers)) if isinstance(rankers, Mapping) else (rankers, 0)
    for number, (name, ranker) in enumerate(pairs):
        if progress is not None:
            progress(name, number / count if count else 0.0)
        listed[name] = lists(ranker, cases, k, len(counts), exclude_seen)
    rows = [
        _row(name, kind, items[chosen], cases.select(chosen), np.asarray(counts, np.float64), confidence, vectors)
        for kind, chosen in parts.items()
        for name, items in listed.items()
    ]
    return Comparison(k, tuple(rows), confidence)


def lists(ranker: Ranker, cases: Cases, k: int, size: int, exclude_seen: bool = False, batch: int = 512) -> Ints:
    """A ranker's recommendations in every case, [C, K] of items below `size`; SpecError for invalid lists."""
    if not 1 <= k < size:
        raise ConfigError(f"k = {k}: expected a number between 1 and {size - 1} (the number of items)")
    cut = 0 if cases.history_counts is None else int((cases.history_counts > cases.history.shape[1]).sum())
    if exclude_seen and cut:
        raise ConfigError(
            f"exclude_seen = True, but the histories of {cut:,} cases are cut to {cases.history.shape[1]} events, so "
            "earlier items could be listed. fix: use next_events(..., length=None), which keeps whole histories"
        )
    parts = []
    for begin in range(0, len(cases), batch):
        rows = slice(begin, begin + batch)
        history, events = cases.history[rows], cases.events[rows]
        allowed = unseen(history, size) if exclude_seen else None
        who = None if cases.user_features is None else cases.user_features[rows]
        known: dict[str, Any] = {"gaps": cases.gaps} if getattr(ranker, "reads_gaps", False) else {}
        known |= {"user_index": cases.user_index} if getattr(ranker, "known_users", 0) else {}
        of_rows = {name: values[rows] for name, values in known.items() if values is not None}
        items, _ = ranker.rank(history, events, k, allowed, who, **of_rows)
        parts.append(_check_lists(np.asarray(items), len(history), k, size, allowed))
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
    hit, earned = _hits(items, cases)
    ideal = np.cumsum(gain)[np.minimum(count, k) - 1]
    first = np.where(hit.any(1), 1.0 / (hit.argmax(1) + 1.0), 0.0)
    one = np.ones(len(items))
    listed = items > 0
    rarity = np.log2((counts.sum() + len(counts) - 1) / (counts + 1.0))  # [N + 1] bits
    return {
        "hit rate": UserSums(hit.any(1).astype(float), one),
        "hit all": UserSums((hit.sum(1) == count).astype(float), one),
        "ndcg": UserSums(hit @ gain / ideal, one),
        "mrr": UserSums(first, one),
        "reward": UserSums(earned.sum(1), one),
        "discounted reward": UserSums(earned @ gain, one),
        "popularity lift": UserSums(_mean(counts[items], listed), _mean(counts[cases.targets], cases.targets > 0)),
        "novelty": UserSums((rarity[items] * listed).sum(1), listed.sum(1).astype(float)),
        "cold share": UserSums((listed & (counts[items] == 0)).sum(1).astype(float), listed.sum(1).astype(float)),
    }


def by_history(cases: Cases) -> dict[str, Bools]:
    """Groups of cases with a short, a middle and a long history, about a third each, as masks [C] by name.

    Thirds of equal lengths are one group.
    """
    count = (cases.history > 0).sum(1) if cases.history_counts is None else cases.history_counts
    ends = np.unique(np.quantile(count, (1 / 3, 2 / 3, 1.0), method="inverted_cdf").astype(int))
    begins = np.append(int(count.min()), ends[:-1] + 1)
    names = [
        f"{a:,} to {b:,} earlier events" if a < b else f"{a:,} earlier events"
        for a, b in zip(begins, ends, strict=True)
    ]
    return {name: (count >= a) & (count <= b) for name, a, b in zip(names, begins, ends, strict=True)}


def diversity(items: Ints, size: int) -> dict[str, float]:
    """Coverage and entropy of lists [C, K] over a catalogue of `size` - 1 items."""
    counts = np.bincount(items.ravel(), minlength=size)[1:]
    share = counts[counts > 0] / max(int(counts.sum()), 1)
    most = np.log(size - 1) if size > 2 else 1.0
    return {"coverage": float((counts > 0).mean()), "entropy": float(-(share * np.log(share)).sum() / most) + 0.0}


def list_diversity(items: Ints, vectors: NDArray[Any]) -> UserSums:
    """1 minus the mean cosine of all pairs of items of each list [C, K], whose vectors are [N + 1, D].

    Smyth and McClave 2001, doi:10.1007/3-540-44593-5_25. A list of one item has no pair and does not count; a vector of
    zeros has the cosine 0 with all others.
    """
    rows = np.asarray(vectors, np.float64)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.where(length > 0.0, rows / np.where(length > 0.0, length, 1.0), 0.0)
    listed = items > 0
    total, own = np.zeros((len(items), rows.shape[1])), np.zeros(len(items))
    for place, there in zip(items.T, listed.T, strict=True):  # the sum over pairs is that of a square
        total += rows[place] * there[:, None]
        own += (rows[place] ** 2).sum(1) * there
    count = listed.sum(1)
    pairs = count * (count - 1.0)
    alike = np.square(total).sum(1) - own
    some = pairs > 0.0
    return UserSums(np.where(some, 1.0 - alike / np.where(some, pairs, 1.0), 0.0), some.astype(float))


def _row(
    name: str,
    kind: str,
    items: Ints,
    cases: Cases,
    counts: Floats,
    confidence: Confidence,
    vectors: NDArray[Any] | None,
) -> RankingRow:
    users, owner = np.unique(cases.user, return_inverse=True)
    sums = list_measures(items, cases, counts)
    sums |= {} if vectors is None else {LIST_DIVERSITY: list_diversity(items, vectors)}
    ratios = {
        measure: Ratios(
            _user_sums(parts.numerator, owner, len(users)), _user_sums(parts.denominator, owner, len(users))
        )
        for measure, parts in sums.items()
    }
    scores = {measure: _interval(one, confidence) for measure, one in ratios.items()}
    return RankingRow(name, kind, len(cases), len(users), scores, diversity(items, len(counts)), ratios)


def _user_sums(values: Floats, owner: NDArray[Any], users: int) -> Floats:
    return np.bincount(owner, values, users).astype(np.float64)[:, None]


def _interval(ratios: Ratios, confidence: Confidence) -> Interval:
    return interval(ratios, "percentile", confidence)


def _hits(items: Ints, cases: Cases) -> tuple[Bools, Floats]:
    """Which listed items are targets, and the rewards of these, both [C, K]."""
    hit, earned = np.zeros(items.shape, bool), np.zeros(items.shape)
    step = max(1, _CELLS // (items.shape[1] * cases.targets.shape[1]))
    for begin in range(0, len(items), step):
        part = slice(begin, begin + step)
        targets = cases.targets[part]
        same = (items[part, :, None] == targets[:, None, :]) & (targets > 0)[:, None, :]
        hit[part] = same.any(2)
        earned[part] = (same * cases.rewards[part, None, :]).sum(2)
    return hit, earned


def _mean(values: Floats, there: Bools) -> Floats:
    return np.asarray((values * there).sum(1) / np.maximum(there.sum(1), 1))


def _check_lists(items: NDArray[Any], rows: int, k: int, size: int, allowed: Bools | None) -> Ints:
    if items.shape != (rows, k) or not np.issubdtype(items.dtype, np.integer):
        raise SpecError(f"the ranker returned {items.dtype} {list(items.shape)}: expected whole numbers [{rows}, {k}]")
    if items.min() < 0 or items.max() >= size:
        raise SpecError(f"the ranker returned items {items.min()} .. {items.max()}: expected items 1 .. {size - 1}")
    ordered = np.sort(items, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] > 0)).any():
        raise SpecError("the ranker returned the same item twice in one list: expected each item at most once")
    if allowed is not None and not (allowed[np.arange(rows)[:, None], items] | (items == 0)).all():
        raise SpecError("the ranker returned an item that is not allowed")
    return items.astype(np.int32)


def _cell(row: RankingRow, measure: str) -> str:
    if measure in row.diversity:
        return f"{row.diversity[measure]:.3f}"
    if measure not in row.scores:
        raise ConfigError(
            f"unknown measure '{measure}': {nearest(measure, dict.fromkeys((*MEASURES, *row.scores, *DIVERSITY)))}"
        )
    estimate, low, high = row.scores[measure]
    return f"{estimate:.3f} [{low:.3f}, {high:.3f}]"
