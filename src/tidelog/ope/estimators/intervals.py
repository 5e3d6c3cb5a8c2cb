"""Intervals of an estimate, alone or with others: bootstrap, Student's t, a bound for every sample size.

The bootstrap resamples at most 10,000 groups of neighbouring episodes; one matrix product gives all replicates. A
replicate in which a ratio has no weight has no value. It counts as lower than all others for the lower end and as
higher for the upper end; so weak support widens the interval and never narrows it.

The critical value for several comparisons with the logger contains three corrections. Policies that are judged together
share their episodes, so their estimates are correlated: the distribution of the largest studentised bootstrap error
gives the width at which all intervals cover all differences simultaneously (the max-t method: Westfall & Young 1993;
Hothorn, Bretz & Westfall 2008). Successive verdicts share an error of `1 - level`; each look at the same episodes
spends a part that is fixed in advance (alpha spending). The policies of a later look may follow from the results of
earlier ones; their intervals hold for every such choice (as Scheffé's, 1953, for all contrasts).

Letters: `R` rows of an estimate, `K` ratios, `P` policies, `B` replicates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaincc, ndtr, ndtri, stdtrit

from tidelog.errors import ConfigError, nearest
from tidelog.ope.estimators.ratios import Ratios, quotients
from tidelog.ope.evidence.evidence import Floats
from tidelog.policies.statistics import Interval

MOST_GROUPS = 10_000
CHUNK = 250  # replicates whose counts are in memory together
LARGEST_INFLUENCE = 1e90  # sums of cubes of larger ones may exceed the range of a double
RESOLVED = 20  # smallest number of replicates beyond a quantile for a bootstrap estimate of it


@dataclass(frozen=True)
class Confidence:
    """Confidence level of an interval, and the settings of its method."""

    level: float = 0.95
    replicates: int = 1000  # percentile, bca
    seed: int = 0  # percentile, bca
    bounds: tuple[float, float] | None = None  # bernstein: certain bounds of every episode's contribution
    widening: float = 1.0  # bca: factor on the distance of both ends from the estimate, relative to `level`

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ConfigError(f"level = {self.level}: expected a number between 0 and 1. fix: use 0.95")
        if self.replicates < 1:
            raise ConfigError(f"replicates = {self.replicates}: expected at least 1. fix: use 1000")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ConfigError(f"bounds = {self.bounds}: expected (low, high) with low < high")
        if not self.widening >= 1.0:
            raise ConfigError(f"widening = {self.widening}: expected at least 1. fix: use 1.0")


def interval(ratios: Ratios, method: str = "bca", confidence: Confidence | None = None) -> Interval:
    """Two-sided interval of an estimate, by a named method of `METHODS`."""
    if method not in METHODS:
        raise ConfigError(f"unknown interval method '{method}': {nearest(method, METHODS)}")
    return METHODS[method](ratios, confidence or Confidence())


def percentile(ratios: Ratios, confidence: Confidence) -> Interval:
    """Bootstrap over episodes: quantiles of the replicates."""
    half = (1.0 - confidence.level) / 2.0
    return _between(ratios.estimate, replicates(ratios, confidence), half, 1.0 - half)


def bca(ratios: Ratios, confidence: Confidence) -> Interval:
    """Bootstrap over episodes, corrected for bias and acceleration (Efron 1987) and for few rows.

    A widened interval is that of `level` with longer arms, because more extreme quantiles lie beyond the replicates.
    Each arm is at least as long as that of an equally widened normal interval with the bootstrap's standard error.
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
    low, high = ndtr(bias + (bias + normal) / (1.0 - acceleration * (bias + normal)))
    plain = _between(estimate, drawn, low, high)
    if confidence.widening == 1.0:
        return plain
    lost = np.isnan(drawn).any()
    least = 0.0 if lost else confidence.widening * float(normal[1]) * float(drawn.std())
    arm_below, arm_above = confidence.widening * (estimate - plain.low), confidence.widening * (plain.high - estimate)
    return Interval(estimate, estimate - max(arm_below, least), estimate + max(arm_above, least))


def _quantiles(rows: int, level: float) -> Floats:
    """Both standard quantiles of a two-sided interval, [2], expanded for few rows.

    The variance of n resampled rows is too small by 1 / n, and the bootstrap ignores Student's t (Hesterberg 2015,
    "What teachers should know about the bootstrap").
    """
    tails = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return np.asarray(stdtrit(rows - 1, tails) * np.sqrt(rows / (rows - 1)) if rows > 1 else ndtri(tails))


def student_t(ratios: Ratios, confidence: Confidence) -> Interval:
    """Mean of the contributions with Student's t; infinite ends for a single row."""
    values, estimate = ratios.contributions, ratios.estimate
    if len(values) < 2:
        return Interval(estimate, -np.inf, np.inf)
    error = values.std(ddof=1) / np.sqrt(len(values))
    half = float(stdtrit(len(values) - 1, (1.0 + confidence.level) / 2.0) * error)
    return Interval(estimate, estimate - half, estimate + half)


def bernstein(ratios: Ratios, confidence: Confidence) -> Interval:
    """Empirical Bernstein bound (Maurer & Pontil 2009, theorem 4, arXiv:0907.3740), half the error on each side.

    It holds for every distribution if each episode's contribution lies within `bounds`: with importance weights of at
    most W and returns in [0, 1], within (0, W). Plain means only; a ratio is not a mean of independent values.
    """
    if confidence.bounds is None:
        raise ConfigError("bounds = None: a Bernstein interval needs bounds of every episode's contribution")
    values = ratios.contributions
    if len(ratios) != ratios.episodes or not (ratios.denominators == ratios.denominators[0]).all():
        raise ConfigError("a Bernstein interval supports only plain means over episodes. fix: use 'bca' for ratios")
    low, high = confidence.bounds
    if values.min() < low or values.max() > high:
        raise ConfigError(
            f"bounds = {confidence.bounds}: the contributions are outside, from {values.min():.6g} to "
            f"{values.max():.6g}"
        )
    if len(values) < 2:
        return Interval(ratios.estimate, low, high)
    risk = np.log(4.0 / (1.0 - confidence.level))  # log(2 / delta), delta half of the error
    half = np.sqrt(2.0 * values.var(ddof=1) * risk / len(values)) + 7.0 * (high - low) * risk / (3 * (len(values) - 1))
    return Interval(ratios.estimate, max(low, ratios.estimate - half), min(high, ratios.estimate + half))


METHODS: dict[str, Callable[[Ratios, Confidence], Interval]] = {
    "percentile": percentile,
    "bca": bca,
    "t": student_t,
    "bernstein": bernstein,
}


def replicates(ratios: Ratios, confidence: Confidence) -> Floats:
    """The estimate on resampled rows, [B]; NaN if a ratio lost all of its weight."""
    ratios = ratios.grouped(MOST_GROUPS)
    stacked = np.hstack([ratios.numerators, ratios.denominators])  # [R, 2 K]
    chunks = []
    for counts in resampled_counts(len(ratios), confidence.replicates, confidence.seed):
        numerators, denominators = np.split(counts.astype(np.float64) @ stacked, 2, axis=1)  # [b, K]
        chunks.append(quotients(numerators, denominators).sum(1))
    return np.concatenate(chunks)


@lru_cache(maxsize=2)
def resampled_counts(rows: int, many: int, seed: int) -> list[NDArray[np.uint16]]:
    """How often each row was drawn, [b, rows] per chunk: `rows` draws with replacement for each of `many` replicates.

    Cached, because one judgement computes many intervals over the same episodes.
    """
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
