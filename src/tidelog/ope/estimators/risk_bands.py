"""Simultaneous bands of distribution functions of episode returns, for policy, logger and their difference.

The distribution function is the self-normalised form of UnO (Chandak, Niekum, da Silva, Learned-Miller, Brunskill &
Thomas 2021, "Universal Off-Policy Evaluation", arXiv:2104.12820): the weight of an episode is the product of its
probability ratios. It rises from 0 to 1 by construction.

The band differs from the paper's: bounds at key points need a bound on the weights and are several times wider on logs
of usual size (`benchmarks/risk_bands.py` measures both, and how often this band holds). Here a bootstrap over episodes,
or clusters of them, gives the distribution of the largest standardised error over all returns, for policy, logger,
difference and CVaR together; its upper quantile `c` is the half-width of the band. The error of a distribution
function is standardised by the binomial likelihood ratio `sqrt(2 m KL(estimate, truth))` (Owen 1995, "Nonparametric
likelihood confidence bands for a distribution function"), where `m` is the effective sample size at that return. This
keeps the band valid in the tails, where a normal standard error is 0. The difference of two distribution functions, and
CVaR, are standardised by their standard errors.

Letters: `E` episodes, `C` clusters, `M` different returns, `L` levels of the bootstrap, `B` replicates, `P` points of a
chart. Level `m` of a distribution function is its value between the m-th and the next return.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import ndtri, xlogy

from tidelog.errors import ConfigError, SpecError
from tidelog.ope.estimators.intervals import MOST_GROUPS, Confidence, resampled_counts
from tidelog.ope.estimators.sequential import LARGEST_LOG, log_weights, returns
from tidelog.ope.evidence.evidence import Evidence, Floats

PSEUDO = 4.0  # pseudo-episodes that shrink local effective sample sizes towards the overall one
MOST_RETURNS = 10_000  # more different returns are rounded to this number
LEVELS = 150  # levels at which the bootstrap evaluates errors, for policy and logger each
CHANCE = 1.96  # standard errors by which the mean weight may be below 1 before weight counts as missing
RESAMPLED = 1.0 / 3.0  # share of the allowed error for resampled returns
CERTAIN = 1e-12  # a smaller standard error is rounding: policy and logger have equal weights

Integers = NDArray[np.int64]


class Band(NamedTuple):
    """A distribution function, or a difference of two, with its simultaneous band over all returns, each [P]."""

    estimate: Floats
    low: Floats
    high: Floats


class Sample(NamedTuple):
    """Episodes sorted by return; a distribution function has `M + 1` levels, the first 0, the last 1."""

    values: Floats  # [M]: different returns, rising
    place: Integers  # [E]: index of each episode's return in `values`
    policy: Floats  # [E]: shares of the policy's weight; they sum to 1
    logger: Floats  # [E]: shares of the logger's weight; all equal
    unit: Integers  # [E]: cluster of each episode, 0 to C - 1
    clusters: int
    groups: int  # number of resampled groups of neighbouring clusters
    policy_cdf: Floats  # [M + 1]
    logger_cdf: Floats
    size: float  # effective sample size of the policy's weights, over clusters
    heavy: tuple[float, float, float]  # plausible weight of an unseen cluster: policy, logger, difference
    missing: float  # share of the policy's weight that the log lacks
    estimated: bool  # whether propensities were estimated

    @classmethod
    def of(cls, evidence: Evidence, clusters: NDArray[Any] | None = None, groups: int = MOST_GROUPS) -> Sample:
        """Weigh and sort episodes; arguments and errors as in `risk_of`."""
        if groups < 2:
            raise ConfigError(f"groups = {groups}: expected at least 2 groups to resample. fix: remove groups")
        logs, unit = log_weights(evidence), _units(evidence.episodes, clusters)
        if not np.isfinite(logs.max()):
            raise SpecError(
                "all episodes of the log have probability 0 under the policy: expected at least one above 0"
            )
        weight = np.exp(logs - logs.max())
        policy = weight / weight.sum()
        values, place = np.unique(shortened(returns(evidence)), return_inverse=True)
        if len(values) > MOST_RETURNS:
            grid = np.unique(np.linspace(0, len(values) - 1, MOST_RETURNS).round().astype(np.int64))
            nearest = np.searchsorted((grid[1:] + grid[:-1]) / 2, np.arange(len(values)))
            values, place = values[grid], nearest[place]
        logger = np.full(evidence.episodes, 1.0 / evidence.episodes)
        whole = [np.asarray(np.bincount(unit, share), np.float64) for share in (policy, logger)]  # [C] each
        apart = _heavy(np.abs(whole[0] - whole[1]), np.maximum(*whole))
        return cls(
            values=values,
            place=place,
            policy=policy,
            logger=logger,
            unit=unit,
            clusters=len(whole[0]),
            groups=min(groups, len(whole[0])),
            policy_cdf=_risen(place, policy, len(values)),
            logger_cdf=_risen(place, logger, len(values)),
            size=float(1.0 / np.square(whole[0]).sum()),
            heavy=(_heavy(whole[0], whole[0]), _heavy(whole[1], whole[1]), apart),
            missing=_missing_weight(logs, unit),
            estimated=evidence.estimated,
        )

    def variance(self, of_policy: float, of_logger: float) -> Floats:
        """Variance over clusters of `of_policy` times the policy's curve plus `of_logger` times the logger's, [M + 1].

        `a` [E] is the weighted sum of both shares. A cluster's influence at a level is its `a` up to that level minus
        its part of the curves' values there; sums of squares run along the sorted returns.
        """
        if self.clusters < 2:
            return np.full(len(self.values) + 1, np.inf)
        signed = of_policy * self.policy + of_logger * self.logger
        level = of_policy * self.policy_cdf, of_logger * self.logger_cdf  # [M + 1] each
        whole = np.bincount(self.unit, self.policy), np.bincount(self.unit, self.logger)  # [C] each
        order = np.lexsort((self.place, self.unit))
        sorted_ = signed[order]
        before = np.cumsum(sorted_) - sorted_
        first = np.searchsorted(self.unit[order], np.arange(self.clusters))
        before -= before[first][self.unit[order]]
        variance = self._summed(order, sorted_ * (2.0 * before + sorted_))
        for curve, part in zip(level, whole, strict=True):
            variance -= 2.0 * curve * self._summed(order, sorted_ * part[self.unit[order]])
        for curve, part in zip(level, whole, strict=True):
            variance += sum(curve * other * (part @ also) for other, also in zip(level, whole, strict=True))
        return np.asarray(np.maximum(variance, 0.0) * self.clusters / (self.clusters - 1))

    def _summed(self, order: Integers, values: Floats) -> Floats:
        return np.concatenate([[0.0], np.cumsum(np.bincount(self.place[order], values, len(self.values)))])


class Bands(NamedTuple):
    """Bands over all levels, [M + 1] each."""

    policy: Band
    logger: Band
    difference: Band
    critical: float
    cvar_errors: tuple[float, float, float]  # standard errors of CVaR: policy, logger, difference


def bands_of(sample: Sample, alpha: float, confidence: Confidence) -> Bands:
    """Simultaneous bands of both distribution functions and their difference; missing weight may lie at any return."""
    curves, which = (sample.policy_cdf, sample.logger_cdf), ((1.0, 0.0), (0.0, 1.0))
    sizes = [
        _local_sizes(curve, sample.variance(*of), heavy)
        for curve, of, heavy in zip(curves, which, sample.heavy, strict=False)
    ]
    error = np.sqrt(sample.variance(1.0, -1.0) + PSEUDO * sample.heavy[2] ** 2)
    critical, cvar_errors = _critical(sample, alpha, sizes, error, confidence)
    policy, logger = (
        Band(cdf, *_likelihood_band(cdf, size, critical))
        for cdf, size in zip((sample.policy_cdf, sample.logger_cdf), sizes, strict=True)
    )
    middle = sample.policy_cdf - sample.logger_cdf
    missing, half = sample.missing, np.where(error > CERTAIN, critical * np.maximum(error, CERTAIN), 0.0)
    low = np.maximum(middle - half, policy.low - logger.high) - missing
    high = np.minimum(middle + half, policy.high - logger.low) + missing
    difference = Band(middle, np.maximum(low, -1.0), np.minimum(high, 1.0))
    policy = Band(policy.estimate, (1.0 - missing) * policy.low, (1.0 - missing) * policy.high + missing)
    return Bands(policy, logger, difference, critical, cvar_errors)


def _risen(place: Integers, share: Floats, many: int) -> Floats:
    """Distribution function of shares of weight, [M + 1]."""
    rising = np.minimum(np.cumsum(np.bincount(place, share, many)), 1.0)
    rising[-1] = 1.0
    return np.concatenate([[0.0], rising])


def _heavy(values: Floats, weight: Floats) -> float:
    """Weighted 95% quantile of the weights: a plausible weight of an episode that the log does not contain."""
    order = np.argsort(values)
    reached = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reached, 0.95 * reached[-1])])


def _local_sizes(cdf: Floats, variance: Floats, heavy: float) -> Floats:
    """Effective number of episodes at each level, [M + 1].

    The tails have few episodes, which may have small weights by chance: `PSEUDO` episodes of weight `heavy` are added.
    """
    return np.asarray((cdf * (1.0 - cdf) + PSEUDO * heavy) / (variance + PSEUDO * heavy**2))


def _critical(
    sample: Sample, alpha: float, sizes: list[Floats], error: Floats, confidence: Confidence
) -> tuple[float, tuple[float, float, float]]:
    """Quantile over replicates of the largest standardised error, and the standard errors of CVaR.

    The errors are those of all three curves at all levels, and of CVaR. Two thirds of the error that the level allows
    are reserved for returns between and beyond the logged ones, which resampling never produces;
    `benchmarks/risk_bands.py` chose this share.
    """
    levels = _bootstrap_levels(sample)
    group = sample.unit * sample.groups // sample.clusters
    cell = np.searchsorted(levels, sample.place, side="right")
    shape, shares = (len(levels) + 1, sample.groups), (sample.policy, sample.logger)
    tables = [csr_array((share, (cell, group)), shape) for share in shares]  # [L + 1, G], mostly 0
    curves = [cdf[levels] for cdf in (sample.policy_cdf, sample.logger_cdf)]
    nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, np.arange(1, len(sample.values)))
    width = np.bincount(nearest, np.diff(sample.values), len(levels))  # [L]: range of returns at each level
    known = error[levels] > CERTAIN  # else policy and logger have equal weights
    largest, tails = [], []
    for counts in resampled_counts(sample.groups, confidence.replicates, confidence.seed):
        drawn = []
        times = np.ascontiguousarray(counts.T, np.float64)  # [G, b]
        for table in tables:
            rising = np.cumsum(np.asarray(table @ times).T, axis=1)
            total = np.where(rising[:, -1:] > 0, rising[:, -1:], np.nan)
            drawn.append(np.clip(rising[:, :-1] / total, 0.0, 1.0))
        errors_at = [np.sqrt(2.0 * m[levels] * _divergence(p, q)) for p, q, m in zip(drawn, curves, sizes, strict=True)]
        errors_at.append(np.abs(drawn[0] - drawn[1] - curves[0] + curves[1])[:, known] / error[levels][known])
        largest.append(np.max(np.hstack(errors_at), axis=1, initial=0.0))
        off = [
            (np.minimum(q, alpha) - np.minimum(p, alpha)) @ width / alpha for p, q in zip(drawn, curves, strict=True)
        ]
        tails.append(np.stack([*off, off[0] - off[1]], axis=1))
    cvar = np.concatenate(tails)  # [B, 3]: deviation of each resampled CVaR
    errors = np.sqrt(np.nanmean(np.square(cvar), axis=0) + PSEUDO * np.square(_heavy_tails(sample, alpha)))
    errors[errors <= CERTAIN * np.ptp(sample.values)] = 0.0
    standard = np.abs(cvar) / np.where(errors > 0, errors, np.inf)
    worst = np.maximum(np.concatenate(largest), standard.max(axis=1))
    worst = np.where(np.isnan(worst), np.inf, worst)
    critical = float(np.quantile(worst, 1.0 - RESAMPLED * (1.0 - confidence.level), method="higher"))
    critical = max(critical, float(-ndtri((1.0 - confidence.level) / 4.0)))  # that of a single point
    return critical, (float(errors[0]), float(errors[1]), float(errors[2]))


def _heavy_tails(sample: Sample, alpha: float) -> list[float]:
    """Change of CVaR by one unseen cluster of large weight at the lowest return, [3]."""
    share = min(2.0 * alpha, 1.0)  # a wider tail, because the quantile of alpha may be the lowest return
    low = float(sample.values[0])
    far = [(quantile_of(sample, cdf, share) - low) / alpha for cdf in (sample.policy_cdf, sample.logger_cdf)]
    return [heavy * reach for heavy, reach in zip(sample.heavy, (*far, max(far)), strict=True)]


def _bootstrap_levels(sample: Sample) -> Integers:
    """Levels between 0 and 1, evenly spaced in shares and denser in the lower tail, [L]."""
    shares = np.concatenate([np.linspace(0.0, 1.0, LEVELS * 2 // 3), np.geomspace(1e-4, 0.2, LEVELS // 3)])
    candidates = [np.searchsorted(cdf, shares) for cdf in (sample.policy_cdf, sample.logger_cdf)]
    levels = np.unique(np.concatenate(candidates))
    return levels[(levels > 0) & (levels < len(sample.values))].astype(np.int64)


def _divergence(p: Floats, q: Floats) -> Floats:
    """Elementwise Kullback-Leibler divergence of binary outcomes of probability p from probability q."""
    inner = np.clip(q, 1e-300, 1.0 - 1e-16)
    return np.asarray(np.maximum(xlogy(p, p / inner) + xlogy(1.0 - p, (1.0 - p) / (1.0 - inner)), 0.0))


def _likelihood_band(cdf: Floats, size: Floats, critical: float) -> tuple[Floats, Floats]:
    """Ends [M + 1] of all truths whose likelihood ratio `sqrt(2 m KL)` is at most critical, made monotone."""
    most = critical**2 / (2.0 * size)
    ends = []
    for side in (0.0, 1.0):
        near, far = cdf.copy(), np.full(len(cdf), side)  # the divergence rises from near to far
        for _ in range(45):
            middle = (near + far) / 2.0
            inside = _divergence(cdf, middle) <= most
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        ends.append(far)
    low, high = np.maximum.accumulate(ends[0]), np.minimum.accumulate(ends[1][::-1])[::-1]
    low[0], high[-1] = 0.0, 1.0
    return low, high


def _units(episodes: int, clusters: NDArray[Any] | None) -> Integers:
    """Cluster of each episode, [E], counted from 0."""
    if clusters is None:
        return np.arange(episodes)
    kind = np.asarray(clusters).dtype
    if np.shape(clusters) != (episodes,) or not np.issubdtype(kind, np.integer):
        raise SpecError(
            f"clusters has shape {np.shape(clusters)} and type {kind}: expected one whole number per episode, "
            f"[{episodes}]. fix: use np.unique(names, return_inverse=True)[1]"
        )
    return np.asarray(np.unique(clusters, return_inverse=True)[1], np.int64)


def shortened(values: Any) -> Floats:
    """Numbers rounded to twelve digits; returns summed in another order become equal."""
    values = np.asarray(values, np.float64)
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa, 12), exponent)) + 0.0


def _missing_weight(logs: Floats, unit: Integers) -> float:
    """1 minus the mean weight, if chance among clusters does not explain it; else 0."""
    weight = np.exp(np.minimum(logs, LARGEST_LOG))
    mean, clusters = float(weight.mean()), int(unit.max()) + 1
    if clusters < 2 or mean >= 1.0:
        return 0.0
    apart = np.bincount(unit, weight - mean)
    error = float(np.sqrt(np.square(apart).sum() * clusters / (clusters - 1))) / len(weight)
    return 1.0 - mean if 1.0 - mean > max(CHANCE * error, 1e-6) else 0.0


def quantile_of(sample: Sample, curve: Floats, share: float) -> float:
    """Smallest return at which a curve [M + 1] reaches a share, or the nearest one in the log."""
    level = int(np.searchsorted(curve, share - 1e-12))
    return float(sample.values[min(max(level, 1), len(sample.values)) - 1])
