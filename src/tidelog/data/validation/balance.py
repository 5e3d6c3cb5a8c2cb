"""Balance: can the observations predict the logged action beyond the probabilities that it was drawn with?

If decisions were drawn with known probabilities `P`, nothing that was recorded before them predicts their residuals.
Each action has one residual: with actions in a fixed order, `q_k = P_k / S_k` and `S_k = sum_{j >= k} P_j`,

    z_k = (1{a = k} - q_k 1{a >= k}) / sqrt(S_k q_k (1 - q_k)),   k < A,

has mean 0, variance 1, and no correlation with the others, whatever the probabilities of the row. A column of
observations gives features `X`: its levels, or the rank of its numbers and the square of it. Under balance
`tr(s' (X'X)^+ s)` with `s = X'z` is chi-squared with `rank(X) (A - 1)` degrees of freedom. Where shares of actions
stand for unknown probabilities, residuals and features are centred in each stratum, as in the generalised test of
Cochran, Mantel and Haenszel (Landis, Heyman & Koch 1978, "Average partial association in three-way contingency
tables"). Dependent rows divide it by their design effect (Rao & Scott 1981, "The analysis of categorical data from
complex sample surveys"). All columns together are one more candidate, and one p-value holds for all candidates
(Bonferroni).

How much better the action is predicted than by its probabilities is cross-fitted, leaving one row out: the share of the
residuals' squares that a linear regression on the features explains in rows that it did not see.

Letters: `N` rows, `A` actions, `D` features, `C` clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.data.core.declared import share_counts

Floats = NDArray[np.float64]
SURE, DOUBTFUL = 0.001, 0.05  # p-values below which actions are predicted for certain, and perhaps
MATERIAL = 0.01  # smallest explained share of the residuals' squares that matters
MOST_ROWS = 50_000
MOST_ACTIONS, MOST_LEVELS, MOST_TOGETHER, MOST_COLUMNS = 12, 60, 120, 60
FEWEST = 20  # rows of an action, or of a level, below which it is joined to others
EXPECTED, INFLATED = 5.0, 0.15  # rows of the rarest action in a level; larger variance than that of chi-squared
FEW_VALUES = 10  # different numbers that count as levels
POWER = 0.8  # chance to find the imbalance that is named
EXACT = 1e-9
BEFORE = "the decision before"
EVERYTHING = "all columns together"
TOTALS = "the shares of the actions"


class Observed(NamedTuple):
    """One column of observations: codes of words, or numbers."""

    name: str
    values: NDArray[Any]  # [N]
    is_words: bool


class Predictor(NamedTuple):
    """How well one column predicts the action."""

    name: str
    p_value: float  # of this column alone
    explained: float  # cross-fitted share of the residuals' squares


class Balance(NamedTuple):
    """Whether observations predict the logged action beyond its probabilities."""

    p_value: float  # one for all columns
    predictors: tuple[Predictor, ...]  # all candidates, the smallest p-value first
    detectable: float  # difference of an action's share between two halves of the rows that would have been found
    rows: int
    candidates: int

    @property
    def named(self) -> tuple[Predictor, ...]:
        """The columns that predict the action; without any, the candidate with the smallest p-value."""
        sure = [one for one in self.predictors if one.p_value * self.candidates < DOUBTFUL]
        columns = [one for one in sure if one.name not in (EVERYTHING, TOTALS)]
        return tuple(columns or sure or self.predictors[:1])

    @property
    def explained(self) -> float:
        """The largest cross-fitted share of the residuals' squares that a named candidate explains."""
        sure = [one for one in self.predictors if one.p_value * self.candidates < DOUBTFUL]
        return max((one.explained for one in sure), default=0.0)

    @property
    def is_broken(self) -> bool:
        """Whether the action is predicted for certain, and materially better than by its probabilities."""
        return self.p_value < SURE and self.explained >= MATERIAL

    def to_json(self) -> dict[str, Any]:
        """Plain values: the p-value, the named predictors, and the imbalance that could have been found."""
        named = [one._asdict() for one in self.named]
        return {"p_value": self.p_value, "named": named, "explained": self.explained, "detectable": self.detectable}

    @property
    def points(self) -> str:
        """The difference of shares that would have been found, as text."""
        return f"{max(100.0 * self.detectable, 1.0):.0f} percentage points"

    @property
    def p_text(self) -> str:
        """The p-value as text."""
        return "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.2g}"


def balance_of(
    columns: Sequence[Observed],
    action: NDArray[Any],
    actions: int,
    *,
    chances: NDArray[Any] | None = None,
    stratum: NDArray[Any] | None = None,
    clusters: NDArray[Any] | None = None,
    before: NDArray[Any] | None = None,
) -> Balance | None:
    """Test whether columns predict the action [N]; None if one action was logged, or there is nothing to test.

    `chances` are known probabilities [A] or [N, A], None: shares, in each `stratum` [N] if there are some. `clusters`
    [N] number dependent rows. `before` [N] is the decision before in the episode, -1 for none.
    """
    rows = len(action)
    if rows > MOST_ROWS:  # random rows, the same ones for equal logs
        chosen = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
        columns = [one._replace(values=one.values[chosen]) for one in columns]
        action = np.asarray(action)[chosen]
        stratum, clusters, before = (
            None if one is None else np.asarray(one)[chosen] for one in (stratum, clusters, before)
        )
        chances = chances if chances is None or np.ndim(chances) == 1 else chances[chosen]
        rows = MOST_ROWS
    action = np.asarray(action, np.int64)
    counts = np.bincount(action, minlength=actions)
    if (counts > 0).sum() < 2 or rows < FEWEST:
        return None
    stratum = np.zeros(rows, np.int64) if stratum is None else np.unique(stratum, return_inverse=True)[1]
    if chances is None:
        table = share_counts(action, stratum, actions)
        probabilities = (table / table.sum(1, keepdims=True))[stratum]
    else:
        probabilities = np.broadcast_to(np.asarray(chances, np.float64), (rows, actions))
    codes, probabilities = _common_actions(action, probabilities)
    residuals, kurtosis = _residuals(codes, probabilities)
    shares = chances is None
    units = None if clusters is None else np.unique(clusters, return_inverse=True)[1]
    if units is not None and int(units.max()) + 1 == rows:
        units = None
    free = 1.0 - (int(stratum.max()) + 1) / rows if shares else 1.0
    if before is not None and (before >= 0).any():
        columns = [*columns, Observed(BEFORE, np.asarray(before, np.int64) + 1, True)]
    within = stratum if shares else np.zeros(rows, np.int64)
    rarest = max(float(probabilities.mean(axis=0).min()), EXPECTED / rows)
    least = max(FEWEST, int(np.ceil(EXPECTED / rarest)))
    bases, parts = list[tuple[str, Floats]](), list[Floats]()
    for one in columns[:MOST_COLUMNS]:
        for features in _features(one, MOST_LEVELS, least):
            basis = _basis(_centred(features, within)) if features.shape[1] else None
            if basis is not None and _inflation(basis, kurtosis) <= INFLATED:
                bases.append((one.name, basis))
                parts.append(basis[:, : MOST_TOGETHER // 10])
                break
    if len(parts) > 1:
        together = _basis(np.concatenate(parts, axis=1)[:, :MOST_TOGETHER])
        if together is not None and _inflation(together, kurtosis) <= INFLATED:
            bases.append((EVERYTHING, together))
    if not shares:
        bases.append((TOTALS, np.full((rows, 1), 1.0 / np.sqrt(rows))))
    tested = [_predictor(name, basis, residuals, units, free) for name, basis in bases]
    predictors = sorted(tested, key=lambda one: (one.p_value, -one.explained))
    if not predictors:
        return None
    effect = max(1.0, _design_effect(residuals, units))
    count = len(predictors)
    return Balance(
        min(1.0, count * predictors[0].p_value),
        tuple(predictors),
        _detectable(probabilities, rows / effect, count),
        rows,
        count,
    )


def _common_actions(action: NDArray[Any], probabilities: Floats) -> tuple[NDArray[Any], Floats]:
    """Codes of the probable actions in order, the most probable first, and one last code for all others.

    Probabilities decide, not counts: the most frequent ones are those that chance favoured.
    """
    expected = probabilities.sum(axis=0)
    order = np.argsort(-expected, kind="stable")
    common = order[: MOST_ACTIONS - 1][expected[order[: MOST_ACTIONS - 1]] >= FEWEST]
    while len(common) > 1 and expected.sum() - expected[common].sum() < FEWEST:
        common = common[:-1]  # all others together would be too rare
    common = common if len(common) else order[:1]
    place = np.full(len(expected), len(common))
    place[common] = np.arange(len(common))
    known = probabilities[:, common]
    return place[action], np.concatenate([known, np.maximum(1.0 - known.sum(1, keepdims=True), 0.0)], axis=1)


def _residuals(action: NDArray[Any], probabilities: Floats) -> tuple[Floats, float]:
    """[N, A - 1]: residuals with variance 1 and no correlation, 0 where nothing was to be drawn; their kurtosis."""
    left = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1]
    parts, fourth = [], []
    for one in range(probabilities.shape[1] - 1):
        share = probabilities[:, one] / np.maximum(left[:, one], EXACT)
        variance = left[:, one] * share * (1.0 - share)
        raw = (action == one) - share * (action >= one)
        drawn = variance > EXACT
        parts.append(np.where(drawn, raw / np.sqrt(np.maximum(variance, EXACT)), 0.0))
        moment = variance * ((1.0 - share) ** 3 + share**3)
        fourth.append(float((moment[drawn] / np.square(variance[drawn])).mean()) if drawn.any() else 0.0)
    return np.stack(parts, axis=1), float(np.mean(fourth))


def _features(column: Observed, most: int, least: int) -> Iterator[Floats]:
    """[N, D]: the levels of words; of numbers the rank and its square, else whether they are the most frequent one.

    Levels of fewer rows than `least` are joined to one, and left out if they are still too few.
    """
    distinct, codes, count = np.unique(column.values, return_inverse=True, return_counts=True)
    if column.is_words or len(distinct) <= FEW_VALUES:
        order = np.argsort(-count, kind="stable")[: most - 1]
        common = order[count[order] >= least]
        place = np.full(len(distinct), len(common))
        place[common] = np.arange(len(common))
        levels = np.eye(len(common) + 1)[place[codes]]
        yield np.asarray(levels if levels[:, -1].sum() >= least else levels[:, :-1])
        return
    rank = (np.cumsum(count) - 0.5 * (count + 1.0)) / max(len(codes) - 1, 1) * 2.0 - 1.0
    yield np.stack([rank, np.square(rank)], axis=1)[codes]
    usual = codes == count.argmax()
    if min(int(usual.sum()), int((~usual).sum())) >= least:
        yield usual[:, None].astype(np.float64)


def _centred(x: Floats, stratum: NDArray[Any]) -> Floats:
    """Features minus their means in each stratum."""
    sizes = np.bincount(stratum)
    means = np.stack([np.bincount(stratum, column) for column in x.T], axis=1) / np.maximum(sizes, 1)[:, None]
    return np.asarray(x - means[stratum])


def _basis(x: Floats) -> Floats | None:
    """[N, rank]: orthonormal columns that span features; None if they are constant, or as many as the rows."""
    values, vectors = np.linalg.eigh(x.T @ x)
    used = values > EXACT * max(float(values.max(initial=0.0)), 1.0)
    if not used.any() or int(used.sum()) >= len(x) - 1:
        return None
    return np.asarray(x @ (vectors[:, used] / np.sqrt(values[used])))


def _inflation(basis: Floats, kurtosis: float) -> float:
    """How much larger the variance of the statistic is than that of chi-squared, because few rows carry features."""
    leverage = np.square(basis).sum(axis=1)
    return float(np.square(leverage).sum() * max(kurtosis - 3.0, 0.0) / (2.0 * basis.shape[1]))


def _predictor(name: str, basis: Floats, residuals: Floats, units: NDArray[Any] | None, free: float) -> Predictor:
    """The test of one group of features; `free` is the share of free rows."""
    from scipy.special import fdtrc  # reading a log without propensities needs no SciPy

    rows, weights = len(basis), basis.T @ residuals
    size = weights.size
    statistic, left = float(np.square(weights).sum()) * free, rows - 1
    if units is not None:
        products = [np.bincount(units, b * r) for b in basis.T for r in residuals.T]  # [C] each
        statistic /= max(1.0, float(np.square(products).sum()) / size)
        left = max(len(products[0]) - 1, 1)
    p_value = float(fdtrc(size, left, statistic / size))
    leverage = np.square(basis).sum(axis=1, keepdims=True)
    misses = np.square((residuals - basis @ weights) / np.maximum(1.0 - leverage, EXACT)).sum()
    alone = np.square(residuals * rows / (rows - 1)).sum()
    return Predictor(name, p_value, float(1.0 - misses / alone) if alone > 0 else 0.0)


def _design_effect(residuals: Floats, units: NDArray[Any] | None) -> float:
    """Variance of sums over clusters, in units of that of independent rows."""
    if units is None:
        return 1.0
    sums = np.stack([np.bincount(units, column) for column in residuals.T], axis=1)
    return float(np.square(sums).sum() / max(np.square(residuals).sum(), EXACT))


def _detectable(probabilities: Floats, rows: float, count: int) -> float:
    """Difference of an action's share between two halves of the rows that is found with a chance of `POWER`."""
    share = probabilities.mean(axis=0)
    largest = float(np.sqrt(share * (1.0 - share)).max())
    normal = NormalDist()
    reach = -normal.inv_cdf(0.5 * DOUBTFUL / count) + normal.inv_cdf(POWER)
    return min(1.0, reach * 2.0 * largest / float(np.sqrt(rows)))
