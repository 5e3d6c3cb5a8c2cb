"""Permutation distribution of a doubly robust difference, for rewards that few episodes carry.

A bootstrap over episodes knows weights only where something was earned. If 25 of 5,000 episodes earned, it resamples 25
weights; where these are skewed, most samples of 25 lack the large ones, and their spread is too small: a policy without
any difference is called worse far too often. The weights of all 5,000 episodes are known. If weights and residuals have
nothing to do with each other, every pairing of the weights of one episode with the residuals of another is equally
likely. The difference is linear in the residuals, so the mean, variance and skewness over all pairings have a closed
form; the quantiles are those of the Pearson type III (shifted gamma) distribution with these moments (Mielke & Berry
2007, "Permutation Methods").

With `w_it` the normalised weight of step t (`sum_i w_it = 1`), or 1/E times its occupancy ratio without the discount,
`delta_it = r_it + gamma v_i,t+1 - q_it`, and `v - q` the model's advantage of the target over the logged action:
`difference = sum_it (w_it - 1/E) gamma^t delta_it + mean_i sum_t gamma^t (v_it - q_it)`.
Whole episodes are paired with products of probabilities, single steps with occupancy ratios, which depend on one step.

Letters: `E` episodes, `N` steps, `T` steps of the longest episode.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammainccinv, gammaincinv, ndtr, ndtri

from tidelog.ope.estimators.intervals import Confidence
from tidelog.ope.estimators.ratios import required_part
from tidelog.ope.estimators.sequential import CELLS, discounts, step_weights
from tidelog.ope.evidence.evidence import Evidence, Floats

PRODUCTS = 5_000_000  # products of two steps that are in memory together
SYMMETRIC = 1e-4  # skewness below which the distribution is normal


def permutation_arms(
    evidence: Evidence, confidence: Confidence, against: Evidence | None = None, *, visits: bool = False
) -> tuple[float, float]:
    """Distances of the lower and the upper end from an estimated difference: (below, above), both at least 0.

    The difference is that of the weighted doubly robust estimate, with `visits` of double reinforcement learning, from
    the logger's mean, or from the same estimate of another policy on the same episodes (`against`). If weights and
    residuals are independent, it is above `below` or under `-above` with half the error of `confidence` each. (0, 0)
    where episodes times steps exceed `CELLS`, and for fewer than 3 episodes.
    """
    episodes, horizon = evidence.episodes, evidence.horizon
    if episodes < 3 or episodes * horizon > CELLS:
        return 0.0, 0.0
    weights, residuals, advantages = _parts(evidence, visits)
    if against is not None:  # two columns for each step: the pairs of the other policy count against this one's
        others = _parts(against, visits)
        weights, residuals = np.hstack([weights, others[0]]), np.hstack([residuals, -others[1]])
        advantages = advantages - others[2]
    elif visits:
        weights = weights - discounts(evidence)[:, None] / episodes
    deviation, skewness = _moments(weights - weights.mean(0), residuals - residuals.mean(0))
    error = float(advantages.std(ddof=1)) / np.sqrt(episodes)
    deviate = confidence.widening * float(ndtri((1.0 + confidence.level) / 2.0))
    low, high = pearson_quantiles(skewness, deviate)
    return (
        float(np.hypot(max(high, 0.0) * deviation, deviate * error)),
        float(np.hypot(max(-low, 0.0) * deviation, deviate * error)),
    )


def _parts(evidence: Evidence, visits: bool) -> tuple[Floats, Floats, Floats]:
    """Weights and residuals of one estimate, [E, T] and 0 after the end, with `visits` [N, 1]; its advantages [E]."""
    rated, value = required_part(evidence, "model"), required_part(evidence, "model_target")
    after = np.append(value[1:], 0.0)
    after[evidence.starts[1:] - 1] = 0.0
    discount, gaps = discounts(evidence), evidence.reward + evidence.discount * after - rated
    advantages = np.add.reduceat(discount * (value - rated), evidence.starts[:-1])
    if visits:
        return required_part(evidence, "occupancy")[:, None] / evidence.episodes, gaps[:, None], advantages
    residuals = np.zeros((evidence.episodes, evidence.horizon))
    residuals[np.arange(evidence.horizon) < evidence.lengths[:, None]] = discount * gaps
    return step_weights(evidence), residuals, advantages


def _moments(weights: Floats, residuals: Floats) -> tuple[float, float]:
    """Standard deviation and skewness of `sum_i weights_i . residuals_p(i)` over all permutations p; both centred."""
    many = len(weights)
    variance = float(np.vdot(weights.T @ weights, residuals.T @ residuals)) / (many - 1)
    if not variance > 0.0:
        return 0.0, 0.0
    third = float(np.vdot(_triples(weights), _triples(residuals))) * many / ((many - 1) * (many - 2))
    return float(np.sqrt(variance)), third / variance**1.5


def _triples(values: Floats) -> Floats:
    """Sums over rows of the products of three columns, [T * T, T]."""
    horizon = values.shape[1]
    sums = np.zeros((horizon * horizon, horizon))
    rows = max(1, PRODUCTS // horizon**2)
    for begin in range(0, len(values), rows):
        part = values[begin : begin + rows]
        sums += (part[:, :, None] * part[:, None, :]).reshape(len(part), -1).T @ part
    return sums


def pearson_quantiles(skewness: float, deviate: float) -> tuple[float, float]:
    """Quantiles of the Pearson type III distribution of mean 0 and variance 1, with the tails beyond -/+ `deviate`.

    The tails are those of a standard normal number.
    """
    if abs(skewness) < SYMMETRIC:
        return -deviate, deviate
    shape, tail = 4.0 / skewness**2, float(ndtr(-deviate))
    short = (float(gammaincinv(shape, tail)) - shape) / np.sqrt(shape)
    long = (float(gammainccinv(shape, tail)) - shape) / np.sqrt(shape)
    return (short, long) if skewness > 0 else (-long, -short)
