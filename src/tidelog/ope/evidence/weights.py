"""Support of a target policy on a log: measures of the episodes' weights, and of actions that were never tried.

Effective sample size, largest share and tail index are computed on weights divided by the largest, which changes none
of them and avoids overflow and underflow of products over long episodes.

Letters: `E` episodes, `N` steps, `A` actions, `M` weights in the tail.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import SpecError
from tidelog.ope.estimators.ratios import cluster_sums
from tidelog.ope.estimators.sequential import LARGEST_LOG, log_weights
from tidelog.ope.evidence.evidence import Evidence, Floats
from tidelog.ope.verdict.results import Support

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
    logs = log_weights(evidence) if weights is None else _logarithms(weights)
    if len(logs) != evidence.episodes:
        raise SpecError(f"found {len(logs)} weights: expected one per episode ({evidence.episodes})")
    relative, plain = _relative(logs), np.exp(np.minimum(logs, LARGEST_LOG))
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
    weights = _shortened(_scaled(weights))
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


def _shortened(weights: Floats) -> Floats:
    """Weights rounded to five digits; equal products with other rounding become ties."""
    mantissa, exponent = np.frexp(weights)
    return np.asarray(np.ldexp(np.round(mantissa, 5), exponent))


def _logarithms(weights: NDArray[Any]) -> Floats:
    weights = np.asarray(weights, np.float64)
    return np.asarray(np.log(weights, out=np.full(len(weights), -np.inf), where=weights > 0))


def _relative(logs: Floats) -> Floats:
    largest = float(logs.max())
    return np.asarray(np.exp(logs - largest)) if np.isfinite(largest) else np.zeros(len(logs))
