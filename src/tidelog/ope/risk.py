"""Risk: the distribution of episode returns under a policy, from a log, with simultaneous intervals.

The distribution functions and their band give quantiles, CVaR and the probability of a bad outcome
with intervals, so one confidence level covers all of them (Chandak et al. 2021, "Universal Off-Policy Evaluation").

The distribution contains only returns of the log: intervals end at the lowest and the highest of them, and
`Risk.unseen` is the largest plausible probability of a worse outcome.

Letters: `E` episodes, `M` different returns, `P` points of a chart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import ndtri, xlogy

from tidelog._text import in_unit, with_ends
from tidelog.data.columns import declared_unit
from tidelog.errors import ConfigError, SpecError
from tidelog.ope.estimators import LARGEST_LOG, log_weights, returns, standard_error
from tidelog.ope.evidence import Evidence, Floats, check_risk
from tidelog.ope.intervals import MOST_GROUPS, Confidence, resampled_counts
from tidelog.policies.statistics import Interval
from tidelog.schema import from_plain, to_plain

# Simultaneous bands of distribution functions of episode returns, for policy, behaviour policy and their difference.
#
# The distribution function is the self-normalised form of UnO (Chandak, Niekum, da Silva, Learned-Miller, Brunskill &
# Thomas 2021, "Universal Off-Policy Evaluation", arXiv:2104.12820): the weight of an episode is the product of its
# probability ratios. It rises from 0 to 1 by construction.
#
# The band differs from the paper's: bounds at key points need a bound on the weights and are several times wider on
# logs of usual size (`benchmarks/risk_bands.py` measures how often this band holds). Here a bootstrap over
# episodes, or clusters of them, gives the distribution of the largest standardised error over all returns, for policy,
# behaviour policy, difference and CVaR together; its upper quantile `c` is the half-width of the band. The error of a
# distribution function is standardised by the binomial likelihood ratio `sqrt(2 m KL(estimate, truth))` (Owen 1995,
# "Nonparametric likelihood confidence bands for a distribution function"), where `m` is the effective sample size at
# that return. This keeps the band valid in the tails, where a normal standard error is 0. The difference of two
# distribution functions, and CVaR, are standardised by their standard errors.
#
# Letters: `E` episodes, `C` clusters, `M` different returns, `L` levels of the bootstrap, `B` replicates, `P` points of
# a chart. Level `m` of a distribution function is its value between the m-th and the next return.

PSEUDO = 4.0  # pseudo-episodes that shrink local effective sample sizes towards the overall one
MOST_RETURNS = 10_000  # more different returns are rounded to this number
LEVELS = 150  # levels at which the bootstrap evaluates errors, for policy and behaviour policy each
CHANCE = 1.96  # standard errors by which the mean weight may be below 1 before weight counts as missing
RESAMPLED = 1.0 / 3.0  # share of the allowed error for resampled returns
TAIL = 10.0  # effective episodes in the worst share, below which its mean has no lower end in the log
CERTAIN = 1e-12  # a smaller standard error is rounding: policy and behaviour policy have equal weights

Integers = NDArray[np.int64]


class Band(NamedTuple):
    """A distribution function, or a difference of two, with its simultaneous band over all returns, each [P]."""

    estimate: Floats
    low: Floats
    high: Floats


class Sample(NamedTuple):
    """Episodes sorted by return; a distribution function has `M + 1` levels, the first 0, the last 1."""

    values: Floats  # [M]: different returns, rising
    position: Integers  # [E]: index of each episode's return in `values`
    policy: Floats  # [E]: shares of the policy's weight; they sum to 1
    behavior_policy: Floats  # [E]: shares of the behaviour policy's weight; all equal
    unit: Integers  # [E]: cluster of each episode, 0 to C - 1
    clusters: int
    groups: int  # number of resampled groups of neighbouring clusters
    policy_cdf: Floats  # [M + 1]
    behavior_cdf: Floats
    size: float  # effective sample size of the policy's weights, over clusters
    heavy: tuple[float, float, float]  # plausible weight of an unseen cluster: policy, behaviour policy, difference
    missing: float  # share of the policy's weight that the log lacks
    estimated: bool  # whether propensities were estimated

    @classmethod
    def of(cls, evidence: Evidence, groups: int = MOST_GROUPS) -> Sample:
        """Weigh and sort episodes; arguments and errors as in `risk_of`."""
        if groups < 2:
            raise ConfigError(f"groups = {groups}", "at least 2 groups to resample", "remove groups")
        logs, unit = log_weights(evidence), evidence.unit_of
        if not np.isfinite(logs.max()):
            raise SpecError("all episodes of the log have probability 0 under the policy", "at least one above 0")
        weight = np.exp(logs - logs.max())
        policy = weight / weight.sum()
        values, position = np.unique(shortened(returns(evidence)), return_inverse=True)
        if len(values) > MOST_RETURNS:
            grid = np.unique(np.linspace(0, len(values) - 1, MOST_RETURNS).round().astype(np.int64))
            nearest = np.searchsorted((grid[1:] + grid[:-1]) / 2, np.arange(len(values)))
            values, position = values[grid], nearest[position]
        behavior_policy = np.full(evidence.episodes, 1.0 / evidence.episodes)
        whole = [np.asarray(np.bincount(unit, share), np.float64) for share in (policy, behavior_policy)]  # [C] each
        apart = _heavy(np.abs(whole[0] - whole[1]), np.maximum(*whole))
        plain = np.exp(np.minimum(logs, LARGEST_LOG))
        missing = 1.0 - float(plain.mean())
        return cls(
            values=values,
            position=position,
            policy=policy,
            behavior_policy=behavior_policy,
            unit=unit,
            clusters=len(whole[0]),
            groups=min(groups, len(whole[0])),
            policy_cdf=_risen(position, policy, len(values)),
            behavior_cdf=_risen(position, behavior_policy, len(values)),
            size=float(1.0 / np.square(whole[0]).sum()),
            heavy=(_heavy(whole[0], whole[0]), _heavy(whole[1], whole[1]), apart),
            missing=missing if missing > max(CHANCE * standard_error(plain, unit), 1e-6) else 0.0,  # else by chance
            estimated=evidence.estimated,
        )

    def variance(self, of_policy: float, of_behavior: float) -> Floats:
        """Variance [M + 1] over clusters of `of_policy` times the policy's curve plus `of_behavior` times the other.

        `a` [E] is the weighted sum of both shares. A cluster's influence at a level is its `a` up to that level minus
        its part of the curves' values there; sums of squares run along the sorted returns.
        """
        if self.clusters < 2:
            return np.full(len(self.values) + 1, np.inf)
        signed = of_policy * self.policy + of_behavior * self.behavior_policy
        level = of_policy * self.policy_cdf, of_behavior * self.behavior_cdf  # [M + 1] each
        whole = np.bincount(self.unit, self.policy), np.bincount(self.unit, self.behavior_policy)  # [C] each
        order = np.lexsort((self.position, self.unit))
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
        return np.concatenate([[0.0], np.cumsum(np.bincount(self.position[order], values, len(self.values)))])


class Bands(NamedTuple):
    """Bands over all levels, [M + 1] each."""

    policy: Band
    behavior_policy: Band
    difference: Band
    critical: float
    cvar_errors: tuple[float, float, float]  # standard errors of CVaR: policy, behaviour policy, difference


def bands_of(sample: Sample, alpha: float, confidence: Confidence) -> Bands:
    """Simultaneous bands of both distribution functions and their difference; missing weight may lie at any return."""
    curves, which = (sample.policy_cdf, sample.behavior_cdf), ((1.0, 0.0), (0.0, 1.0))
    # Effective numbers of episodes at each level. The tails have few episodes, which may have small weights by chance:
    # `PSEUDO` of a large weight are added.
    sizes = [
        np.asarray((curve * (1.0 - curve) + PSEUDO * heavy) / (sample.variance(*of) + PSEUDO * heavy**2))
        for curve, of, heavy in zip(curves, which, sample.heavy, strict=False)
    ]
    error = np.sqrt(sample.variance(1.0, -1.0) + PSEUDO * sample.heavy[2] ** 2)
    critical, cvar_errors = _critical(sample, alpha, sizes, error, confidence)
    policy, behavior_policy = (
        Band(cdf, *_likelihood_band(cdf, size, critical))
        for cdf, size in zip((sample.policy_cdf, sample.behavior_cdf), sizes, strict=True)
    )
    middle = sample.policy_cdf - sample.behavior_cdf
    missing, half = sample.missing, np.where(error > CERTAIN, critical * np.maximum(error, CERTAIN), 0.0)
    low = np.maximum(middle - half, policy.low - behavior_policy.high) - missing
    high = np.minimum(middle + half, policy.high - behavior_policy.low) + missing
    difference = Band(middle, np.maximum(low, -1.0), np.minimum(high, 1.0))
    policy = Band(policy.estimate, (1.0 - missing) * policy.low, (1.0 - missing) * policy.high + missing)
    return Bands(policy, behavior_policy, difference, critical, cvar_errors)


def _risen(position: Integers, share: Floats, many: int) -> Floats:
    """Distribution function of shares of weight, [M + 1]."""
    rising = np.minimum(np.cumsum(np.bincount(position, share, many)), 1.0)
    rising[-1] = 1.0
    return np.concatenate([[0.0], rising])


def _heavy(values: Floats, weight: Floats) -> float:
    """Weighted 95% quantile of the weights: a plausible weight of an episode that the log does not contain."""
    order = np.argsort(values)
    reached = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reached, 0.95 * reached[-1])])


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
    cell = np.searchsorted(levels, sample.position, side="right")
    shape, shares = (len(levels) + 1, sample.groups), (sample.policy, sample.behavior_policy)
    tables = [csr_array((share, (cell, group)), shape) for share in shares]  # [L + 1, G], mostly 0
    curves = [cdf[levels] for cdf in (sample.policy_cdf, sample.behavior_cdf)]
    nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, np.arange(1, len(sample.values)))
    width = np.bincount(nearest, np.diff(sample.values), len(levels))  # [L]: range of returns at each level
    known = error[levels] > CERTAIN  # else policy and behaviour policy have equal weights
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
    far = [(quantile_of(sample, cdf, share) - low) / alpha for cdf in (sample.policy_cdf, sample.behavior_cdf)]
    return [heavy * reach for heavy, reach in zip(sample.heavy, (*far, max(far)), strict=True)]


def _bootstrap_levels(sample: Sample) -> Integers:
    """Levels between 0 and 1, evenly spaced in shares and denser in the lower tail, [L]."""
    shares = np.concatenate([np.linspace(0.0, 1.0, LEVELS * 2 // 3), np.geomspace(1e-4, 0.2, LEVELS // 3)])
    candidates = [np.searchsorted(cdf, shares) for cdf in (sample.policy_cdf, sample.behavior_cdf)]
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


def shortened(values: Any) -> Floats:
    """Numbers rounded to twelve digits; returns summed in another order become equal."""
    values = np.asarray(values, np.float64)
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa, 12), exponent)) + 0.0


def quantile_of(sample: Sample, curve: Floats, share: float) -> float:
    """Smallest return at which a curve [M + 1] reaches a share, or the nearest one in the log."""
    level = int(np.searchsorted(curve, share - 1e-12))
    return float(sample.values[min(max(level, 1), len(sample.values)) - 1])


QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
ALPHA = 0.1
POINTS = 100  # of a chart
RULE_OF_THREE = 3.0  # an outcome of probability 3 / m is absent from m episodes with probability 1 / 20


class Comparison(NamedTuple):
    """One number for the policy, for the behaviour policy, and their difference, with intervals."""

    policy: Interval
    behavior_policy: Interval
    difference: Interval


class Quantile(NamedTuple):
    """The smallest return that a share of episodes does not exceed."""

    share: float
    policy: Interval
    behavior_policy: Interval
    difference: Interval


@dataclass(frozen=True, eq=False)
class Risk:
    """Distribution of episode returns under a policy and under the behaviour policy. All intervals hold simultaneously.

    Returns are discounted sums of an episode's rewards. CVaR at `alpha` is the mean return of the worst share `alpha`
    of episodes. Returns below `lowest` or above `highest`, which the log does not contain, count as these.
    """

    alpha: float  # share of episodes for CVaR
    level: float  # simultaneous confidence level
    cvar: Comparison
    quantiles: tuple[Quantile, ...]  # of the shares `QUANTILES`
    bad_outcome: float | None  # largest return that counts as bad, if set
    probability: Comparison | None  # of a bad outcome
    points: Floats  # [P]: returns, rising
    policy: Band  # P(return <= point) under the policy
    behavior_policy: Band  # P(return <= point) under the behaviour policy
    difference: Band  # policy minus behaviour policy
    lowest: float  # lowest return in the log
    highest: float
    unseen: float  # probability under the policy up to which outcomes below `lowest` cannot be excluded
    missing: float  # share of the policy's weight that the log lacks beyond chance; it may lie at any return
    episodes: int
    effective_sample_size: float
    clusters: int  # number of resampled units
    critical: float  # half-width of the band, in standard errors
    estimated: bool  # whether the behaviour policy's propensities were estimated
    reward_unit: str | None = None  # of returns

    @property
    def sentences(self) -> tuple[str, ...]:
        """Summary for a reader, one fact per sentence."""
        return tuple(_sentences(self))

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists of finite numbers."""
        content: dict[str, Any] = to_plain(self) | {"sentences": list(self.sentences)}
        return {name: value for name, value in content.items() if name != "reward_unit" or value is not None}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Risk:
        """Read the output of `to_json`; KeyError, TypeError or ValueError if it is damaged."""
        risk: Risk = from_plain(cls, {**content, "reward_unit": declared_unit(content.get("reward_unit"))})
        parts = [risk.points, *risk.policy, *risk.behavior_policy, *risk.difference]
        curves = np.array(parts)  # ValueError for other lengths
        if not np.isfinite(curves).all():
            raise ValueError("a distribution holds no number")
        return risk


def risk_of(
    evidence: Evidence,
    *,
    alpha: float = ALPHA,
    bad_outcome: float | None = None,
    confidence: Confidence | None = None,
    groups: int = MOST_GROUPS,
    lowest: float | None = None,
) -> Risk:
    """Risk of the evidence's target policy and of the behaviour policy.

    `alpha` is the share of episodes for CVaR; an episode with a return of at most `bad_outcome` is bad. At most
    `groups` groups of neighbouring clusters are resampled. `lowest` is the lowest possible return, if known. Raises
    ConfigError for numbers out of range, SpecError if no episode has weight under the policy.
    """
    check_risk(alpha, bad_outcome)
    confidence = confidence or Confidence()
    sample = Sample.of(evidence, groups)
    bands = bands_of(sample, alpha, confidence)
    bad = None if bad_outcome is None else int(np.searchsorted(sample.values, shortened(bad_outcome), side="right"))
    shown = _picture_levels(sample, bad)
    curves = (bands.policy, bands.behavior_policy, bands.difference)
    pictures = [Band(*(part[shown] for part in band)) for band in curves]
    probability = None
    if bad is not None:
        probability = Comparison(*(Interval(*(float(part[bad]) for part in band)) for band in curves))
    return Risk(
        alpha=float(alpha),
        level=confidence.level,
        cvar=_cvar(sample, bands, alpha, lowest),
        quantiles=tuple(_quantile(sample, bands, share) for share in QUANTILES),
        bad_outcome=None if bad_outcome is None else float(bad_outcome),
        probability=probability,
        points=sample.values[shown - 1],
        policy=pictures[0],
        behavior_policy=pictures[1],
        difference=pictures[2],
        lowest=float(sample.values[0]),
        highest=float(sample.values[-1]),
        unseen=min(1.0, RULE_OF_THREE / sample.size + sample.missing),
        missing=sample.missing,
        episodes=len(sample.position),
        effective_sample_size=sample.size,
        clusters=sample.clusters,
        critical=bands.critical,
        estimated=sample.estimated,
    )


def _quantile(sample: Sample, bands: Bands, share: float) -> Quantile:
    """Smallest return that a share of episodes does not exceed; a high curve means a low quantile."""
    policy, behavior_policy = (
        Interval(*(quantile_of(sample, curve, share) for curve in (band.estimate, band.high, band.low)))
        for band in bands[:2]
    )
    difference = Interval(0.0, 0.0, 0.0)
    if bands.difference.low.any() or bands.difference.high.any():
        low, high = policy.low - behavior_policy.high, policy.high - behavior_policy.low
        difference = Interval(policy.estimate - behavior_policy.estimate, low, high)
    return Quantile(share, policy, behavior_policy, difference)


def _cvar(sample: Sample, bands: Bands, alpha: float, lowest: float | None) -> Comparison:
    """Mean return of the worst share alpha of episodes; intervals from the bands and from standard errors.

    `CVaR(F) = max_t (t - 1/alpha * integral of F up to t)`, attained at the quantile of alpha (Rockafellar & Uryasev
    2000). With D the policy's curve minus the behaviour policy's, `- 1/alpha * integral of D` up to the policy's
    quantile is at least the difference of both CVaR, and up to the behaviour policy's quantile at most. The
    difference's interval therefore follows from the band of D, which accounts for the dependence of policy and
    behaviour policy, and from the intervals of both quantiles. The errors of CVaR belong to the family whose largest
    error is bounded, so all intervals hold simultaneously. With missing weight only the bands are used. Where the worst
    share is fewer than `TAIL` effective episodes, a lower return than all logged ones would change its mean: its lower
    end is `lowest`, the lowest possible return, or minus infinity.
    """
    width = np.diff(sample.values)  # [M - 1]: level m lasts from value m to value m + 1

    def of(curve: Floats) -> float:
        mass = np.diff(np.minimum(curve, alpha), prepend=0.0)[1:]
        mass[0] += min(float(curve[0]), alpha)
        rest = alpha - float(mass.sum())
        return float((mass @ sample.values + rest * sample.values[-1]) / alpha)

    def least_and_most(of_band: Band, curve: Floats) -> tuple[float, float]:
        """Range of minus the integral of a curve over alpha, up to each plausible quantile."""
        risen = np.concatenate([[0.0], np.cumsum(curve[1:-1] * width)])
        first, last = (np.searchsorted(part, alpha - 1e-12) for part in (of_band.high, of_band.low))
        most = len(sample.values)
        within = 0.0 - risen[min(max(int(first), 1), most) - 1 : min(max(int(last), 1), most)] / alpha
        return float(within.min()), float(within.max())

    policy, behavior_policy = (Interval(*map(of, (band.estimate, band.high, band.low))) for band in bands[:2])
    few = alpha * sample.size < TAIL, alpha * sample.clusters < TAIL  # of the policy, of the behaviour policy
    low = max(least_and_most(bands.behavior_policy, bands.difference.high)[0], policy.low - behavior_policy.high)
    high = min(least_and_most(bands.policy, bands.difference.low)[1], policy.high - behavior_policy.low)
    difference = Interval(policy.estimate - behavior_policy.estimate, low, high)
    halves = [bands.critical * error if error > 0 else 0.0 for error in bands.cvar_errors]
    narrower = [
        Interval(middle, max(low, middle - half), min(high, middle + half))
        for (middle, low, high), half in zip((policy, behavior_policy, difference), halves, strict=True)
    ]
    policy, behavior_policy, difference = [policy, narrower[1], difference] if sample.missing else narrower
    if difference == (0.0, 0.0, 0.0):
        return Comparison(policy, behavior_policy, difference)
    least = -np.inf if lowest is None else lowest
    if few[0]:
        policy = policy._replace(low=min(policy.low, least))
        difference = difference._replace(low=min(difference.low, least - behavior_policy.high))
    if few[1]:
        behavior_policy = behavior_policy._replace(low=min(behavior_policy.low, least))
        difference = difference._replace(high=max(difference.high, policy.high - least))
    return Comparison(policy, behavior_policy, difference)


def _picture_levels(sample: Sample, bad: int | None) -> Integers:
    """At most about a hundred levels: all, or levels evenly spaced in shares and returns, [P]."""
    count = len(sample.values)
    if count <= POINTS:
        return np.arange(1, count + 1)
    shares = np.linspace(0.0, 1.0, POINTS // 3)
    candidates = [np.searchsorted(cdf, shares) for cdf in (sample.policy_cdf, sample.behavior_cdf)]
    candidates.append(np.searchsorted(sample.values, np.linspace(sample.values[0], sample.values[-1], POINTS // 4)) + 1)
    levels = np.concatenate([*candidates, [1, count], [] if bad is None else [bad]])
    return np.unique(np.clip(levels, 1, count)).astype(np.int64)


def tail_refusal(risk: Risk | None, reason: str | None) -> str | None:
    """Why a gate that also checks the tail stays closed, or None: CVaR's estimate, and its upper end, are not worse.

    A lower end above 0 is a better tail, which few logs can show; the upper end alone lets a wide interval open it.
    """
    if risk is None:
        return f"the tail cannot be judged: {reason or 'the log does not support it'}"
    share, difference = f"{100 * risk.alpha:.4g}%", risk.cvar.difference
    number = f"the CVaR difference of the worst {share} is {with_ends(difference, risk.reward_unit, sign=True)}"
    if difference.high < 0:
        return (
            f"{number}: the policy's tail is shown to be worse than the behaviour policy's; expected an upper end of "
            "at least 0"
        )
    if difference.estimate < 0.0:
        return (
            f"{number}: the estimate is worse than the behaviour policy's. fix: judge on more episodes, or drop --cvar"
        )
    return None


def _sentences(risk: Risk) -> list[str]:
    share, cvar, unit = f"{100 * risk.alpha:.4g}%", risk.cvar, risk.reward_unit
    difference, compared = cvar.difference, "are the same as"
    if difference != (0.0, 0.0, 0.0):
        compared = "are better than" if difference.low > 0 else "are worse than" if difference.high < 0 else ""
    sentences = [
        f"In the worst {share} of its episodes the policy earns {with_ends(cvar.policy, unit)} on average, the "
        f"behaviour policy {with_ends(cvar.behavior_policy, unit)}; the difference is "
        f"{with_ends(cvar.difference, unit, sign=True)}."
    ]
    unknown = (
        f"The log does not show whether the policy's worst {share} are better or worse than the behaviour policy's."
    )
    sentences.append(f"The policy's worst {share} {compared} the behaviour policy's." if compared else unknown)
    if risk.probability is not None:
        bad = risk.probability
        sentences.append(
            f"A return of {risk.bad_outcome:.6g}{in_unit(unit)} or less has a probability of {_percent(bad.policy)} "
            f"under the policy and of {_percent(bad.behavior_policy)} under the behaviour policy."
        )
    size = f"{risk.episodes:,} episodes"
    if risk.effective_sample_size < 0.95 * risk.episodes:
        size += f" (effective sample size {risk.effective_sample_size:,.0f})"
    sentences.append(
        f"No return below {risk.lowest:.6g}{in_unit(unit)} was seen in {size}; a worse outcome with a probability of "
        f"up to {100 * risk.unseen:.2g}% under the policy cannot be excluded, and no number here includes it."
    )
    tail = risk.alpha * risk.effective_sample_size
    if tail < TAIL:
        sentences.append(
            f"The policy's worst {share} are {tail:.2g} effective episodes, and fewer than {TAIL:g} show no tail: the "
            "log sets no lower end to its mean there."
        )
    if risk.missing:
        sentences.append(
            f"The log lacks {100 * risk.missing:.2g}% of the policy's weight; the intervals count it as the lowest "
            "return at one end and as the highest at the other."
        )
    if risk.estimated:
        sentences.append(
            "The behaviour policy's probabilities were estimated; the intervals do not include that error."
        )
    sentences.append(f"With {100 * risk.level:.4g}% confidence all intervals of this part hold simultaneously.")
    return sentences


def _percent(interval: Interval) -> str:
    return f"{100 * interval.estimate:.3g}% ({100 * interval.low:.3g} to {100 * interval.high:.3g}%)"
