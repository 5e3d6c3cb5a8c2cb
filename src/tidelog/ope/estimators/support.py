"""An estimate with its support: measures of the episodes' weights, and of actions that were never tried.

Effective sample size, largest share and tail index are computed on weights divided by the largest, which changes none
of them and avoids overflow and underflow of products over long episodes.

Letters: `E` episodes, `N` steps, `A` actions, `M` weights in the tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.notebooks import rows_table
from tidelog.number_text import three_digits
from tidelog.ope.estimators.ratios import cluster_sums, required_part
from tidelog.ope.estimators.sequential import LARGEST_LOG, log_weights
from tidelog.ope.evidence.evidence import Evidence, Floats
from tidelog.policies.statistics import Interval


@dataclass(frozen=True)
class Support:
    """How much information the log has about the target policy."""

    episodes: int
    effective_sample_size: float  # (sum w)**2 / sum w**2 over episode weights
    largest_weight: float  # the largest share of one episode in the sum of weights
    mean_weight: float  # close to 1 if propensities are right and support is complete
    mean_weight_error: float  # its standard error
    pareto_k: float  # tail index of the weights; above 1/2 they have no variance, above 0.7 no useful mean
    clipped_share: float  # share of episodes whose weight was clipped
    unsupported_mass: float | None  # mean share of the target's actions that the logger (nearly) never took
    horizon: int  # steps of the longest episode


@dataclass(frozen=True, eq=False)
class Estimate:
    """Result of one estimator; the mean of `contributions` [E] is the estimate."""

    name: str
    estimate: float
    low: float
    high: float
    method: str  # of the interval
    level: float
    support: Support
    estimated: bool  # whether propensities were estimated
    contributions: NDArray[np.float64]
    note: str = ""

    @property
    def interval(self) -> Interval:
        """The estimate with the ends of its interval."""
        return Interval(self.estimate, self.low, self.high)

    def to_json(self) -> dict[str, Any]:
        """All fields except the contributions."""
        content = asdict(self)
        del content["contributions"]
        return content


class Estimates(Sequence[Estimate]):
    """Table of estimates, by position or by name."""

    def __init__(self, rows: Sequence[Estimate]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self._rows)

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, str):
            return self._rows[which]
        by_name = {row.name: row for row in self._rows}
        if which not in by_name:
            raise ConfigError(f"unknown estimate '{which}': {nearest(which, by_name)}")
        return by_name[which]

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        title = f"Estimates on {self._rows[0].support.episodes:,} episodes" if self._rows else "No estimates"
        head = ("estimator", "estimate", "interval", "effective sample size", "largest weight", "note")
        return rows_table(title, head, self.rows())

    def rows(self) -> list[list[str]]:
        """Cells of a printed table: name, estimate, interval, effective sample size, largest weight, note."""
        return [
            [
                row.name,
                three_digits(row.estimate),
                f"{three_digits(row.low)} to {three_digits(row.high)}",
                f"{row.support.effective_sample_size:,.1f}",
                f"{row.support.largest_weight:.1%}",
                row.note,
            ]
            for row in self._rows
        ]


RARE = 0.1  # share of the uniform probability below which an action of the logger counts as (nearly) never taken


def episode_weights(evidence: Evidence) -> Floats:
    """Product of target over behaviour of each episode, [E], at most `e^300`."""
    return np.exp(np.minimum(log_weights(evidence), LARGEST_LOG))


def support_of(
    evidence: Evidence,
    *,
    weights: NDArray[Any] | None = None,
    largest: float = np.inf,
    allowed: NDArray[Any] | None = None,
) -> Support:
    """All measures of support.

    `weights` [E] are the weights of an estimator that does not use products along episodes; None: products. `largest`
    is the largest weight of an estimator that clips; `allowed` [N, A] marks the available actions, None: all with a
    positive probability of the logger.
    """
    if weights is None:
        logs = log_weights(evidence)
    else:
        values = np.asarray(weights, np.float64)
        logs = np.log(values, out=np.full(len(values), -np.inf), where=values > 0)
    if len(logs) != evidence.episodes:
        raise SpecError(f"found {len(logs)} weights: expected one per episode ({evidence.episodes})")
    most = float(logs.max())
    relative = np.exp(logs - most) if np.isfinite(most) else np.zeros(len(logs))
    plain = np.exp(np.minimum(logs, LARGEST_LOG))
    if evidence.clusters is not None:
        relative = cluster_sums(relative, evidence.clusters)
    return Support(
        episodes=evidence.units,
        effective_sample_size=effective_sample_size(relative),
        largest_weight=largest_share(relative),
        mean_weight=float(plain.mean()),
        mean_weight_error=standard_error(plain, evidence.clusters),
        pareto_k=pareto_k(relative),
        clipped_share=float(np.mean(plain > largest)),
        unsupported_mass=unsupported_mass(evidence, allowed),
        horizon=evidence.horizon,
    )


def occupancy_support(evidence: Evidence) -> Support:
    """Support with occupancy ratios: an episode's weight is the sum of its steps' ratios.

    The mean weight is replaced by the occupancy-weighted terminations, whose mean over episodes must also be 1 (at
    discount 1, the sum of ratios over last steps; else also of `w (1 - gamma)` over the other steps).
    """
    visits = required_part(evidence, "occupancy")
    support = support_of(evidence, weights=np.maximum(np.add.reduceat(visits, evidence.starts[:-1]), 0.0))
    last = np.zeros(len(visits))
    last[evidence.starts[1:] - 1] = 1.0
    terminations = visits * (1.0 - evidence.discount * (1.0 - last))
    ends = np.asarray(np.add.reduceat(terminations, evidence.starts[:-1]))
    return replace(support, mean_weight=float(ends.mean()), mean_weight_error=standard_error(ends, evidence.clusters))


def standard_error(values: Floats, clusters: NDArray[np.int64] | None = None) -> float:
    """Standard error of the mean of one value per episode [E]; episodes of one cluster are dependent."""
    off = values - values.mean()
    sums = off if clusters is None else cluster_sums(off, clusters)
    units = len(sums)
    if units < 2:
        return float("inf")
    return float(np.sqrt(np.square(sums).sum() * units / (units - 1)) / len(values))


def effective_sample_size(weights: NDArray[Any]) -> float:
    """`(sum w)^2 / sum w^2` (Kish); 0 if no weight is above 0."""
    relative = _scaled(weights)
    squares = float((relative**2).sum())
    return float(relative.sum()) ** 2 / squares if squares > 0 else 0.0


def effective_number(influences: NDArray[Any]) -> float:
    """How many of influences [U] make their sum of squares: `(sum i^2)^2 / sum i^4`; 0 where all are 0."""
    squares = np.square(_scaled(np.abs(influences)))
    fourth = float(np.square(squares).sum())
    return float(squares.sum()) ** 2 / fourth if fourth > 0 else 0.0


def largest_share(weights: NDArray[Any]) -> float:
    """Share of the largest weight in the sum of weights; 1 if no weight is above 0."""
    relative = _scaled(weights)
    total = float(relative.sum())
    return float(relative.max()) / total if total > 0 else 1.0


def pareto_k(weights: NDArray[Any]) -> float:
    """Tail index of the weights (Vehtari et al. 2024, arXiv:1507.02646); moments above the 1/k-th do not exist.

    Fits a generalised Pareto distribution to the excess of the largest `min(n / 5, 3 sqrt n)` weights over the next
    smaller one; ties belong to the tail. 0 if the largest are all equal, infinite if fewer than 5 remain.
    """
    mantissa, exponent = np.frexp(_scaled(weights))
    weights = np.ldexp(np.round(mantissa, 5), exponent)  # equal products with other rounding become ties
    size = int(np.ceil(min(len(weights) / 5, 3 * np.sqrt(len(weights)))))
    if size < 5 or not weights.any():
        return float("inf")
    smallest = np.partition(weights, -size)[-size]
    if smallest == weights.max():
        return 0.0
    lower = weights[weights < smallest]
    exceeding = weights[weights >= smallest] - (lower.max() if len(lower) else 0.0)
    exceeding = np.sort(exceeding[exceeding > 0])
    if exceeding[0] == exceeding[-1]:
        return 0.0
    return generalised_pareto_shape(exceeding) if len(exceeding) >= 5 else float("inf")


def generalised_pareto_shape(exceeding: Floats) -> float:
    """Shape k of a generalised Pareto distribution from ordered values above 0, [M].

    The posterior mean of Zhang & Stephens (2009), shrunk towards 1/2 by ten pseudo-values as in Vehtari et al.
    """
    many = len(exceeding)
    points = 30 + int(np.sqrt(many))
    quartile = exceeding[int(many / 4 + 0.5) - 1]
    steps = 1.0 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    candidates = 1.0 / exceeding[-1] + steps / (3.0 * quartile)  # [points]
    shapes = np.array([np.log1p(-one * exceeding).mean() for one in candidates])
    exponential = np.abs(candidates) * exceeding[-1] < 1e-9  # at 0 the distribution is exponential with rate 1 / mean
    rates = np.where(exponential, 1.0 / exceeding.mean(), -candidates / np.where(exponential, 1.0, shapes))
    likelihoods = many * (np.log(rates) - shapes - 1.0)
    posterior = np.exp(likelihoods - likelihoods.max())
    best = float((candidates * posterior).sum() / posterior.sum())
    shape = float(np.log1p(-best * exceeding).mean())
    return (shape * many + 0.5 * 10) / (many + 10)


def unsupported_mass(evidence: Evidence, allowed: NDArray[Any] | None = None) -> float | None:
    """Mean share of the target's actions that the logger took with less than a tenth of the uniform probability.

    Uniform over the allowed actions of each step. None if the actions cannot be listed.
    """
    if evidence.target_all is None or evidence.behaviour_all is None:
        return None
    possible = evidence.behaviour_all > 0 if allowed is None else np.asarray(allowed, bool)
    rare = evidence.behaviour_all * possible.sum(1, keepdims=True) < RARE
    return float(np.where(rare, evidence.target_all, 0.0).sum(1).mean())


def _scaled(weights: NDArray[Any]) -> Floats:
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 1 or not len(weights) or not (weights >= 0).all() or not np.isfinite(weights).all():
        raise SpecError("invalid weights: expected a vector of finite numbers, none below 0")
    largest = float(weights.max())
    return np.asarray(weights / largest) if largest > 0 else weights
