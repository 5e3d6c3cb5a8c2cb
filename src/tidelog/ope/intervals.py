"""Intervals of an estimate by the bootstrap, alone or with others.

A verdict's interval is that of `bca` over clusters of episodes, and at least as long as `permutation_arms`
(`decide.py:Assessment._with_chance` puts it together).

The bootstrap resamples at most 10,000 groups of neighbouring episodes; one matrix product gives all replicates. A
replicate in which a ratio has no weight has no value. It counts as lower than all others for the lower end and as
higher for the upper end; so weak support widens the interval and never narrows it.

The critical value for several comparisons with the behaviour policy contains three corrections. Policies that are
judged together share their episodes, so their estimates are correlated: the distribution of the largest studentised
bootstrap error gives the width at which all intervals cover all differences simultaneously (the max-t method: Westfall
& Young 1993; Hothorn, Bretz & Westfall 2008). Successive verdicts share an error of `1 - level`; each look at the same
episodes spends a part that is fixed in advance (alpha spending). The policies of a later look may follow from the
results of earlier ones; their intervals hold for every such choice (as Scheffé's, 1953, for all contrasts).

Letters: `E` episodes, `N` steps, `T` steps of the longest episode, `R` rows of an estimate, or rows that are paired
(episodes or steps), `C` clusters of rows, `K` ratios, `P` policies, `B` replicates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaincc, gammainccinv, gammaincinv, ndtr, ndtri, stdtrit

from tidelog.errors import ConfigError
from tidelog.ope.estimators import (
    CELLS,
    Ratios,
    cluster_sums,
    discounts,
    effective_number,
    quotients,
    required_part,
    step_weights,
    td_gaps,
)
from tidelog.ope.evidence import Evidence, Floats
from tidelog.policies.statistics import Interval

MOST_GROUPS = 10_000
CHUNK = 250  # replicates whose counts are in memory together
LARGEST_INFLUENCE = 1e90  # sums of cubes of larger ones may exceed the range of a double
NORMAL = 3.0  # normal influences for each effective one: their kurtosis
RESOLVED = 20  # smallest number of replicates beyond a quantile for a bootstrap estimate of it


@dataclass(frozen=True)
class Confidence:
    """Confidence level of an interval, and the settings of its method."""

    level: float = 0.95
    replicates: int = 1000
    seed: int = 0
    widening: float = 1.0  # bca: factor on the distance of both ends from the estimate, relative to `level`

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ConfigError(f"level = {self.level}", "a number between 0 and 1", "use 0.95")
        if self.replicates < 1:
            raise ConfigError(f"replicates = {self.replicates}", "at least 1", "use 1000")
        if not self.widening >= 1.0:
            raise ConfigError(f"widening = {self.widening}", "at least 1", "use 1.0")


def percentile(ratios: Ratios, confidence: Confidence) -> Interval:
    """Two-sided interval by a bootstrap over episodes: quantiles of the replicates."""
    half = (1.0 - confidence.level) / 2.0
    return _between(ratios.estimate, replicates(ratios, confidence), half, 1.0 - half)


def bca(ratios: Ratios, confidence: Confidence) -> Interval:
    """Two-sided interval by a bootstrap, corrected for bias and acceleration (Efron 1987) and for few rows.

    A widened interval is that of `level` with longer arms, because more extreme quantiles lie beyond the replicates.
    Each arm is at least as long as that of an equally widened normal interval with the bootstrap's standard error. Of
    rows that hardly move the estimate, as where the behaviour policy hardly ever varied, only so many count as normal
    influences of the same effective number would be: arms are as much longer as Student's quantile is.
    """
    ratios = ratios.grouped(MOST_GROUPS)
    estimate, drawn = ratios.estimate, replicates(ratios, confidence)
    below = (np.mean(drawn < estimate) + np.mean(drawn <= estimate)) / 2.0
    bias = ndtri(np.clip(below, 1.0 / (len(drawn) + 1), len(drawn) / (len(drawn) + 1)))
    influence = ratios.contributions - estimate
    largest = float(np.abs(influence).max())
    if largest > LARGEST_INFLUENCE:  # the acceleration is a ratio of cubes: the unit of the influences has no effect
        influence = influence / largest
    scale = float((influence**2).sum()) ** 1.5
    acceleration = float((influence**3).sum()) / (6.0 * scale) if scale > 0 else 0.0
    normal = _quantiles(len(ratios), confidence.level)
    carriers = effective_number(np.nan_to_num(influence)) or len(ratios)
    times = float(_quantiles(min(len(ratios), NORMAL * carriers), confidence.level)[1] / normal[1])
    low, high = ndtr(bias + (bias + normal) / (1.0 - acceleration * (bias + normal)))
    plain, longer = _between(estimate, drawn, low, high), confidence.widening * times
    has_least = confidence.widening > 1.0 and not np.isnan(drawn).any()
    least = longer * float(normal[1]) * float(drawn.std()) if has_least else -np.inf
    arm_below, arm_above = longer * (estimate - plain.low), longer * (plain.high - estimate)
    return Interval(estimate, estimate - max(arm_below, least), estimate + max(arm_above, least))


def _quantiles(rows: float, level: float) -> Floats:
    """Both standard quantiles of a two-sided interval, [2], expanded for few rows.

    The variance of n resampled rows is too small by 1 / n, and the bootstrap ignores Student's t (Hesterberg 2015,
    "What teachers should know about the bootstrap").
    """
    tails = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return np.asarray(stdtrit(rows - 1, tails) * np.sqrt(rows / (rows - 1)) if rows > 1 else ndtri(tails))


def replicates(ratios: Ratios, confidence: Confidence) -> Floats:
    """The estimate on resampled rows, [B]; NaN if a ratio lost all of its weight."""
    ratios = ratios.grouped(MOST_GROUPS)
    stacked = np.hstack([ratios.numerators, ratios.denominators])  # [R, 2 K]
    chunks = []
    for counts in resampled_counts(len(ratios), confidence.replicates, confidence.seed):
        numerators, denominators = np.split(counts.astype(np.float64) @ stacked, 2, axis=1)  # [b, K]
        chunks.append(quotients(numerators, denominators).sum(1))
    return np.concatenate(chunks)


@lru_cache(maxsize=2)  # one judgement computes many intervals over the same episodes
def resampled_counts(rows: int, many: int, seed: int) -> list[NDArray[np.uint16]]:
    """How often each row was drawn, [b, rows] a chunk: `rows` draws with replacement in each of `many` replicates."""
    generator = np.random.default_rng(seed)
    counts = np.empty((many, rows), np.uint16)  # before the draws, so that the memory of these is free again
    for begin in range(0, many, CHUNK):
        size = min(CHUNK, many - begin)
        drawn = generator.integers(rows, size=(size, rows)) + np.arange(size)[:, None] * rows
        counts[begin : begin + size] = np.bincount(drawn.ravel(), minlength=size * rows).reshape(size, rows)
    return [counts[begin : begin + CHUNK] for begin in range(0, many, CHUNK)]


def _between(estimate: float, drawn: Floats, low: float, high: float) -> Interval:
    """Quantiles of the replicates, interpolated as in NumPy; lost replicates lie beyond both ends."""
    if np.isnan(estimate):
        return Interval(estimate, np.nan, np.nan)
    lost = np.isnan(drawn)
    if not lost.any():
        ends = np.quantile(drawn, [low, high])
        return Interval(estimate, float(ends[0]), float(ends[1]))
    last = len(drawn) - 1
    lower = np.sort(np.where(lost, -np.inf, drawn))[int(np.floor(low * last))]
    upper = np.sort(np.where(lost, np.inf, drawn))[int(np.ceil(high * last))]
    return Interval(estimate, float(lower), float(upper))


def spent_error(level: float, number: int) -> float:
    """Two-sided error of the look with this number, counted from 1: `e`, then `e / (number (number - 1))`.

    The first look has the requested level. The errors of later looks sum to the same again, 1/2 + 1/6 + 1/12 + ... = 1.
    Over any number of looks each side is therefore wrong with a probability of at most `e = 1 - level`.
    """
    return (1.0 - level) / max(1, number * (number - 1))


def adaptive_deviate(error: float, policies_before: int) -> float:
    """Half-width, in standard errors, of an interval for a policy that the results of earlier policies led to.

    The errors of `D` earlier results are standard normal numbers, known to the one who chooses. The error
    of a new policy is a part in their span and an independent part: the most harmful choice exceeds `c` on one side
    with the probability `(P(chi_D > c) + P(chi_{D+1} > c)) / 2`. Without earlier policies it is the normal interval's.
    """
    if policies_before == 0:
        return normal_deviate(error)

    def excess(deviate: float) -> float:
        degrees = np.array([policies_before, policies_before + 1])
        return float(gammaincc(degrees / 2.0, deviate**2 / 2.0).sum()) - error

    return float(brentq(excess, 0.0, 50.0 + 2.0 * math.sqrt(policies_before), xtol=1e-9))


def critical_values(differences: Sequence[Ratios | None], confidence: Confidence, error: float) -> Floats:
    """Normal deviates [P] for the intervals of all differences, with this simultaneous error.

    `differences` holds None for a policy without an estimate; it keeps its share of the error. A policy whose bootstrap
    has no variance or lost all weight in a replicate also keeps its share: these use Bonferroni's value.
    """
    deviates = np.full(len(differences), normal_deviate(error / len(differences)))
    if len(differences) == 1:
        return deviates
    joint: dict[int, Floats] = {}  # bootstrap errors over their standard deviation, [B]; all resample the same episodes
    for at, one in enumerate(differences):
        if one is not None:
            drawn = replicates(one, replace(confidence, widening=1.0))
            deviation = float(drawn.std())
            if np.isfinite(deviation) and deviation > 0.0:
                joint[at] = np.asarray((drawn - one.estimate) / deviation)
    share = error * len(joint) / len(differences)
    if share * confidence.replicates >= RESOLVED:
        largest = np.max(np.abs(list(joint.values())), axis=0)  # [B]
        deviates[list(joint)] = max(float(np.quantile(largest, 1.0 - share)), normal_deviate(error))
    return deviates


def normal_deviate(error: float) -> float:
    """Half-width of a two-sided normal interval with this error, in standard errors."""
    return float(-ndtri(error / 2.0))


# Permutation distribution of a doubly robust difference, for rewards that few episodes or clusters carry.
#
# A bootstrap over episodes knows weights only where something was earned. If 25 of 5,000 episodes earned, it resamples
# 25 weights; where these are skewed, most samples of 25 lack the large ones, and their spread is too small: a policy
# without any difference is called worse far too often. The weights of all 5,000 episodes are known. If weights and
# residuals have nothing to do with each other, every pairing of the weights of one episode with the residuals of
# another is equally likely. The difference is linear in the residuals, so the mean, variance and skewness over all
# pairings have a closed form; the quantiles are those of the Pearson type III (shifted gamma) distribution with these
# moments (Mielke & Berry 2007, "Permutation Methods").
#
# This distribution has a hard end on its short side, which long-tailed weights pass: the sum of 26 weights with a
# skewness of 12 is below its 2.5% point in 7% of pairings. Where the moments are skewed, pairings are therefore drawn
# as well, and the arms reach as far as either. Rows with large residuals meet random weights; the others' sum is
# normal.
#
# With `w_it` the normalised weight of step t (`sum_i w_it = 1`), or 1/E times its occupancy ratio without the discount,
# `delta_it = r_it + gamma v_i,t+1 - q_it`, and `v - q` the model's advantage of the target over the logged action:
# `difference = sum_it (w_it - 1/E) gamma^t delta_it + mean_i sum_t gamma^t (v_it - q_it)`. Whole episodes are paired
# with products of probabilities, single steps with occupancy ratios, which depend on one step.
#
# Weights of one cluster are alike, and so are its residuals: the episodes of a user, the steps of an episode. Then
# whole clusters are paired, and within them the rows. A moment over these pairings is a sum over tuples of rows, of
# which some are the same row, some of the same cluster: tuples of one pattern have the same mean on both sides. With
# clusters of one size this is exact. With unequal sizes a pattern has one mean for all of them.

PRODUCTS = 5_000_000  # products of two steps that are in memory together
SYMMETRIC = 1e-4  # skewness below which the distribution is normal
SKEWED = 0.25  # skewness from which pairings are drawn, too
DRAWS, LEAST_TAIL = 4_000, 0.005  # pairings; smallest tail that they can show
DRAWN_NUMBERS = 1_000  # residuals that meet weights at random in each of them; the others are a normal number


def permutation_arms(
    evidence: Evidence, confidence: Confidence, against: Evidence | None = None, *, visits: bool = False
) -> tuple[float, float]:
    """Distances of the lower and the upper end from an estimated difference: (below, above), both at least 0.

    The difference is that of the weighted doubly robust estimate, with `visits` of double reinforcement learning, from
    the behaviour policy's mean, or from the same estimate of another policy on the same episodes (`against`). If
    weights and residuals are independent, it is above `below` or under `-above` with half the error of `confidence`
    each. (0, 0) where episodes times steps exceed `CELLS`, and for fewer than 3 episodes.
    """
    episodes, horizon = evidence.episodes, evidence.horizon
    if evidence.units < 3 or episodes * horizon > CELLS:
        return 0.0, 0.0
    weights, residuals, advantages = _parts(evidence, visits)
    if against is not None:  # two columns for each step: the pairs of the other policy count against this one's
        others = _parts(against, visits)
        weights, residuals = np.hstack([weights, others[0]]), np.hstack([residuals, -others[1]])
        advantages = advantages - others[2]
    elif visits:
        weights = weights - discounts(evidence)[:, None] / episodes
    units = evidence.unit_of
    clusters = np.repeat(units, evidence.lengths) if visits else units
    deviation, skewness = _moments(weights - weights.mean(0), residuals - residuals.mean(0), clusters)
    deviate = confidence.widening * float(ndtri((1.0 + confidence.level) / 2.0))
    low, high = (deviation * end for end in pearson_quantiles(skewness, deviate))
    if abs(skewness) > SKEWED:
        generator = np.random.default_rng([confidence.seed, DRAWS])
        sums = _drawn_sums(weights - weights.mean(0), residuals - residuals.mean(0), clusters, deviation, generator)
        tail = max(float(ndtr(-deviate)), LEAST_TAIL)
        farther = deviate / -float(ndtri(tail))  # tails beyond the drawn ones are as long as normal ones
        drawn_low, drawn_high = farther * np.quantile(sums, [tail, 1.0 - tail])
        low, high = min(low, float(drawn_low)), max(high, float(drawn_high))
    sums = cluster_sums(advantages - advantages.mean(), units)
    error = deviate * np.sqrt(np.square(sums).sum() * len(sums) / (len(sums) - 1)) / episodes
    return float(np.hypot(max(high, 0.0), error)), float(np.hypot(max(-low, 0.0), error))


def _parts(evidence: Evidence, visits: bool) -> tuple[Floats, Floats, Floats]:
    """Weights and residuals of one estimate, [E, T] and 0 after the end, with `visits` [N, 1]; its advantages [E]."""
    rated, value = required_part(evidence, "model"), required_part(evidence, "model_target")
    discount, gaps = discounts(evidence), td_gaps(evidence)
    advantages = np.add.reduceat(discount * (value - rated), evidence.starts[:-1])
    if visits:
        return required_part(evidence, "occupancy")[:, None] / evidence.episodes, gaps[:, None], advantages
    residuals = np.zeros((evidence.episodes, evidence.horizon))
    residuals[np.arange(evidence.horizon) < evidence.lengths[:, None]] = discount * gaps
    return step_weights(evidence), residuals, advantages


def _moments(weights: Floats, residuals: Floats, clusters: NDArray[np.int64]) -> tuple[float, float]:
    """Deviation and skewness of `sum_i weights_i . residuals_p(i)` over all pairings p; both centred [R, T]."""
    pairs, triples = _tuples(np.bincount(clusters).astype(np.float64))
    patterns = zip(_sums(weights, clusters), _sums(residuals, clusters), (pairs, triples), strict=True)
    variance, third = (
        sum(float(np.vdot(*sums)) / number for *sums, number in zip(ours, theirs, numbers, strict=True) if number > 0)
        for ours, theirs, numbers in patterns
    )
    return (np.sqrt(variance), third / variance**1.5) if variance > 0.0 else (0.0, 0.0)


def _drawn_sums(
    weights: Floats, residuals: Floats, clusters: NDArray[np.int64], deviation: float, generator: np.random.Generator
) -> Floats:
    """`DRAWS` centred sums over pairings, whose standard deviation is `deviation`: weights and residuals [R, T].

    Each cluster with large residuals meets the weights of a random cluster, from a random one of its rows on.
    """
    order = np.argsort(clusters, kind="stable")
    sizes = np.bincount(clusters)
    first = np.cumsum(sizes) - sizes
    size_of_residuals = cluster_sums(np.square(residuals).sum(1), clusters)
    largest = np.argsort(-size_of_residuals, kind="stable")
    count = max(1, int(np.searchsorted(np.cumsum(sizes[largest]) * weights.shape[1], DRAWN_NUMBERS, "right")))
    chosen = largest[:count]
    own = np.concatenate([order[first[one] : first[one] + sizes[one]] for one in chosen])
    position = np.concatenate([np.arange(sizes[one]) for one in chosen])
    met = np.repeat(np.arange(count), sizes[chosen])
    sums = np.empty(DRAWS)
    step = max(1, PRODUCTS // (len(own) * weights.shape[1]))
    for begin in range(0, DRAWS, step):
        some = min(step, DRAWS - begin)
        donors = generator.integers(len(sizes), size=(some, count))
        if len(order) == len(sizes):  # one row in each cluster: nothing is left to draw
            rows = order[donors]
        else:
            shift = generator.integers(sizes[donors])
            rows = order[first[donors][:, met] + (shift[:, met] + position) % sizes[donors][:, met]]
        sums[begin : begin + some] = np.einsum("brt,rt->b", weights[rows], residuals[own])
    rest = max(deviation**2 - float(sums.var()), 0.0)
    return np.asarray(sums - sums.mean() + np.sqrt(rest) * generator.standard_normal(DRAWS))


def _tuples(sizes: Floats) -> tuple[list[float], list[float]]:
    """How many pairs and triples of rows have each pattern of `_sums`; two equal ones can stand in three places."""
    rows, squares, cubes = sizes.sum(), (sizes**2).sum(), (sizes**3).sum()
    same_cluster, apart = squares - rows, rows**2 - squares
    three = (sizes * (sizes - 1) * (sizes - 2)).sum()
    two_apart = rows * squares - cubes - apart
    return (
        [rows, same_cluster, apart],
        [rows, same_cluster / 3, three, apart / 3, two_apart / 3, rows**3 - 3 * rows * squares + 2 * cubes],
    )


def _sums(values: Floats, clusters: NDArray[np.int64]) -> tuple[list[Floats], list[Floats]]:
    """Sums of the products of two columns, [T, T], and of three, [T * T, T], over all pairs and triples of a pattern.

    Pairs are one row, two of a cluster, or of two clusters. Triples are one row; one row and another of its cluster;
    three of a cluster; one row and one of another cluster; two of a cluster and one of another; of three clusters.
    """
    totals = cluster_sums(values, clusters)
    row, within = values.T @ values, totals.T @ totals
    one = mixed = cluster = _triples(values, values)
    if len(totals) < len(values):
        mixed, cluster = _triples(values, totals[clusters]), _triples(totals, totals)
    same_cluster = mixed - one
    cube = same_cluster.reshape(len(row), len(row), -1)  # the third column in each of the three places
    each = (cube + cube.transpose(0, 2, 1) + cube.transpose(2, 1, 0)).reshape(one.shape)
    return (
        [row, within - row, -within],
        [one, same_cluster, cluster - one - each, -mixed, mixed - cluster, 2.0 * cluster],
    )


def _triples(values: Floats, others: Floats) -> Floats:
    """Sums over rows of the products of two columns of `values` and one of `others`, [T * T, T]."""
    width = values.shape[1]
    sums = np.zeros((width * width, width))
    rows = max(1, PRODUCTS // width**2)
    for begin in range(0, len(values), rows):
        part = values[begin : begin + rows]
        sums += (part[:, :, None] * part[:, None, :]).reshape(len(part), -1).T @ others[begin : begin + rows]
    return sums


def pearson_quantiles(skewness: float, deviate: float) -> tuple[float, float]:
    """Quantiles of the Pearson type III distribution of mean 0 and variance 1, at normal tails beyond -/+ `deviate`."""
    if abs(skewness) < SYMMETRIC:
        return -deviate, deviate
    shape, tail = 4.0 / skewness**2, float(ndtr(-deviate))
    short = (float(gammaincinv(shape, tail)) - shape) / np.sqrt(shape)
    long = (float(gammainccinv(shape, tail)) - shape) / np.sqrt(shape)
    return (short, long) if skewness > 0 else (-long, -short)
