"""Tests of randomised decisions: balance, and recorded probabilities."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tidelog.data.checks import action_count, action_labels, action_name, clip_finite
from tidelog.data.declared import (
    SHARES_BY,
    Declaration,
    DeclarationError,
    check_strata,
    known_probabilities,
    probabilities_of,
    share_counts,
    strata_of,
)
from tidelog.data.raw import Column, Finding, RawLog, check

# Balance: can the observations predict the logged action beyond the probabilities that it was drawn with?
#
# If decisions were drawn with known probabilities `P`, nothing that was recorded before them predicts their residuals.
# Each action has one residual: with actions in a fixed order, `q_k = P_k / S_k` and `S_k = sum_{j >= k} P_j`,
#
#     z_k = (1{a = k} - q_k 1{a >= k}) / sqrt(S_k q_k (1 - q_k)),   k < A,
#
# has mean 0, variance 1, and no correlation with the others, whatever the probabilities of the row. A column of
# observations gives features `X`: its levels, or the rank of its numbers and the square of it. Under balance
# `tr(s' (X'X)^+ s)` with `s = X'z` is chi-squared with `rank(X) (A - 1)` degrees of freedom. Where shares of actions
# stand for unknown probabilities, residuals and features are centred in each stratum, as in the generalised test of
# Cochran, Mantel and Haenszel (Landis, Heyman & Koch 1978, "Average partial association in three-way contingency
# tables"). Dependent rows divide it by their design effect (Rao & Scott 1981, "The analysis of categorical data from
# complex sample surveys"). All columns together are one more candidate, and one p-value holds for all candidates
# (Bonferroni).
#
# How much better the action is predicted than by its probabilities is cross-fitted, leaving one row out: the share of
# the residuals' squares that a linear regression on the features explains in rows that it did not see.
#
# Letters: `N` rows, `A` actions, `D` features, `C` clusters.

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


# Checks of propensities: whether the logged actions look as if they were drawn with them.
#
# Declared propensities, and recorded ones that determine the probabilities of all actions, are tested as in `balance`.
# Other recorded ones say only that each action has a mean weight of at most 1, whatever the observation.
#
# Letters: `N` rows, `A` actions.

DOUBTFUL_PROPENSITIES = 0.01  # p-value below which propensities are said to be doubtful
BALANCED = 0.05  # p-value from which decisions look as if they had been drawn
MOST_BALANCED = 20  # actions of a log that looks so
MOST_STATED, STATED = 3, "the size of the probabilities"  # recorded probabilities of so many actions are tested
ROUNDED = 0.015  # difference of probabilities that rounding to two digits may make


@check("contradicted propensities", "error")
def contradicted_propensities(raw: RawLog) -> Iterable[Finding]:
    """Observations predict the action much better than declared propensities do (p < 0.001)."""
    found = _declared_balance(raw)
    if found is not None and found.is_broken:
        yield _finding(raw, found)


@check("doubtful propensities", "warning")
def doubtful_propensities(raw: RawLog) -> Iterable[Finding]:
    """Observations predict the action better than recorded, or declared, propensities do (p < 0.01)."""
    found = _declared_balance(raw)
    if found is not None and not found.is_broken and found.p_value < DOUBTFUL_PROPENSITIES:
        yield _finding(raw, found)
    fit = _recorded_fit(raw)
    if raw.propensity is not None and fit is not None and fit.p_value < DOUBTFUL_PROPENSITIES:
        advice = "record the probability that the logged action had when it was drawn"
        if [one.name for one in fit.named] not in ([TOTALS], [EVERYTHING], [STATED]):
            advice = f"if an outcome is among the observations, drop it; else {advice}"
        yield Finding(raw.propensity.name, None, sentence(fit, "recorded"), "actions as often as they say", advice)


def _finding(raw: RawLog, found: Balance) -> Finding:
    expected = "decisions that nothing recorded before them predicts"
    return Finding("propensity", None, sentence(found, "declared"), expected, _advice(raw, found))


def sentence(balance: Balance, what: str) -> str:
    """What predicts the action, how well and how surely; `what` the propensities are: declared or recorded."""
    names = [one.name for one in balance.named]
    if names == [TOTALS]:
        return f"actions are not logged as often as {what} propensities say ({balance.p_text})"
    listed = ", ".join(one if one in (BEFORE, EVERYTHING, STATED) else f"'{one}'" for one in dict.fromkeys(names[:5]))
    listed = listed.replace(STATED, f"the size of {what} probabilities")
    listed += f" and {len(names) - 5} more" if len(names) > 5 else ""
    verb = "predicts" if len(names) == 1 and names != [EVERYTHING] else "predict"
    return (
        f"{listed} {verb} the action beyond {what} propensities ({balance.p_text}; {max(balance.explained, 0.0):.1%} "
        "of what they leave open is explained in other rows)"
    )


def _advice(raw: RawLog, balance: Balance) -> str:
    named = [one.name for one in balance.named]
    if named == [TOTALS]:
        return 'correct the probabilities, or write propensity = "shares"'
    if BEFORE in named:
        return (
            "if one decision was drawn for a whole episode, keep one row for each episode, with the sum of its "
            "rewards; else leave propensity out"
        )
    words = {column.name for one in raw.observation.values() if one.kind == "codes" for column in one.columns}
    drawn = [name for name in named if name in words]
    by = f"propensity = {{ {SHARES_BY} = {json.dumps(drawn, ensure_ascii=False)} }}"
    first = f"if {action_name(raw)} was drawn within each {' and '.join(drawn)}, {by}; " if drawn else ""
    was, them = ("it was", "it") if len(named) == 1 else ("they were", "them")
    return (
        f"{first}if {was} recorded after the decision, drop {them} from `observation`; if decisions were not drawn at "
        "random, leave propensity out"
    )


def raw_balance(raw: RawLog, declaration: Declaration) -> Balance | None:
    """The balance of a raw log under a declaration; None if it does not fit, or there is nothing to test."""
    action = raw.action
    if action is None or action.kind != "discrete" or raw.action_mask is not None or not action.usable.all():
        return None
    if any(not column.usable.all() or column.values.ndim != 1 for column in raw.strata):
        return None
    codes, count = _codes(raw), action_count(raw)
    if codes is None:
        return None
    try:
        chances = probabilities_of(declaration, action_labels(raw))[0]
        stratum = strata_of([column.values for column in raw.strata]) if raw.strata else None
        if stratum is not None:
            check_strata(stratum, declaration.by or ())
    except DeclarationError:
        return None  # an error, which another check reports
    before = None
    if len(raw.order.ids) < raw.rows:
        before = np.full(raw.rows, -1)
        inside = np.flatnonzero(~raw.order.last)
        before[raw.order.rows[inside + 1]] = codes[raw.order.rows[inside]]
    return balance_of(
        _observed(raw, raw.strata),
        codes,
        count,
        chances=None if chances is None else np.asarray(chances),
        stratum=stratum,
        clusters=_clusters(raw),
        before=before,
    )


def _codes(raw: RawLog) -> NDArray[np.int64] | None:
    """[N]: the discrete actions, None if one of them is out of range."""
    values = clip_finite(raw.action.values[:, 0]) if raw.action is not None else np.zeros(0)
    inside = len(values) and values.min() >= 0 and values.max() < min(action_count(raw), 2**31)
    return values.astype(np.int64) if inside else None


_BALANCES = WeakKeyDictionary[RawLog, "Balance | None"]()  # two checks, an error and a warning, read one result


def _declared_balance(raw: RawLog) -> Balance | None:
    if raw.declared is None:
        return None
    if raw not in _BALANCES:
        _BALANCES[raw] = raw_balance(raw, raw.declared)
    return _BALANCES[raw]


def _recorded_fit(raw: RawLog) -> Balance | None:
    action, recorded = raw.action, raw.propensity
    if action is None or recorded is None or action.kind != "discrete" or not action.usable.all():
        return None
    values = recorded.values
    if not recorded.usable.all() or values.ndim != 1 or not ((values > 0) & (values <= 1)).all():
        return None
    codes, count = _codes(raw), action_count(raw)
    if codes is None:
        return None
    return fit_of(
        _observed(raw), codes, np.asarray(values, np.float64), count, _clusters(raw), masked=raw.action_mask is not None
    )


def fit_of(
    columns: Sequence[Observed],
    action: NDArray[Any],
    recorded: NDArray[Any],
    actions: int,
    clusters: NDArray[Any] | None = None,
    *,
    masked: bool = False,
) -> Balance | None:
    """Whether recorded propensities [N] fit the logged actions [N], in the whole log and in strata of each column.

    None where they do not tell the probabilities of all actions: mean weights alone have too heavy tails for a test,
    and each policy's own is limited (`checks._mean_weight`).
    """
    if len(action) > MOST_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(len(action), MOST_ROWS, replace=False))
        columns = [one._replace(values=one.values[chosen]) for one in columns]
        action, recorded = action[chosen], recorded[chosen]
        clusters = None if clusters is None else clusters[chosen]
    words = [one.values for one in columns if one.is_words]
    known = None if masked else known_probabilities(action, recorded, actions, words)
    if known is None:
        return None
    # where the probability of an action is high, it must be taken that often
    frequent = np.argsort(-known.mean(axis=0), kind="stable")[: min(actions - 1, MOST_STATED)]
    stated = [Observed(STATED, _without_rounding(known[:, one]), False) for one in frequent]
    return balance_of([*stated, *columns], action, actions, chances=known, clusters=clusters)


def _without_rounding(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """[N]: probabilities with one value for those that rounding may have made different.

    A probability comes from that of the logged action, and is one minus it in other rows: rounded, its digits would
    tell the action. Where values lie so close that rounding cannot be told from differences, they stay.
    """
    distinct, codes = np.unique(chances, return_inverse=True)
    group = np.concatenate([[0], np.cumsum(np.diff(distinct) > ROUNDED)])
    low, high = np.full(group[-1] + 1, np.inf), np.full(group[-1] + 1, -np.inf)
    np.minimum.at(low, group, distinct)
    np.maximum.at(high, group, distinct)
    return chances if (high - low > 2.0 * ROUNDED).any() else low[group][codes]


def _clusters(raw: RawLog) -> NDArray[Any] | None:
    usable = raw.cluster is not None and raw.cluster.usable.all() and raw.cluster.values.ndim == 1
    return raw.cluster.values if usable and raw.cluster is not None else None


def _observed(raw: RawLog, without: Sequence[Column] = ()) -> list[Observed]:
    """Observation columns without pictures and without unusable cells."""
    left_out = {column.name for column in without}
    columns = []
    for feature in raw.observation.values():
        for column in feature.columns if feature.kind != "image" else ():
            wide = column.values.reshape(len(column.values), -1)
            if column.name in left_out or not column.usable.all() or not np.isfinite(wide).all():
                continue
            for place in range(min(wide.shape[1], MOST_COLUMNS)):
                name = column.name if wide.shape[1] == 1 else f"{column.name}[{place}]"
                columns.append(Observed(name, wide[:, place], feature.kind == "codes"))
    if raw.time is not None and raw.time.usable.all():
        when = as_number(raw.time.values)
        columns += [Observed(raw.time.name, when, False)] * bool(np.isfinite(when).all())
    return columns[:MOST_COLUMNS]


def as_number(time: NDArray[Any]) -> NDArray[np.float64]:
    """Times [N] as numbers, NaN for those that are none."""
    if time.dtype.kind != "M":
        return np.asarray(time, np.float64)
    return np.where(np.isnat(time), np.nan, time.astype("datetime64[us]").astype(np.int64).astype(np.float64))
