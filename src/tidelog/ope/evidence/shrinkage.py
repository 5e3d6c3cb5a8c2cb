"""Values of networks, shrunk towards their mean where this cannot bias the estimate.

A doubly robust estimate with right propensities is consistent with any values, but poor ones add noise: networks that
learn from few rare rewards predict worse than a constant, and then another seed of the judge could be another verdict.
Here `value = mean + share (network - mean)`. The mean is that of the policy's values at the same step of an episode, so
it contains no logged reward. The share is from 0 to 1; at 0 the estimate is importance sampling with a baseline.

- Recorded propensities, products of weights: the share minimises the variance of the policy's estimated difference from
  the logger. It is the coefficient of a control variate (Vlassis et al. 2019, "On the Design of Estimators for Bandit
  Off-Policy Evaluation"; Farajtabar et al. 2018, arXiv:1802.03493, choose the whole model so).
- Estimated propensities, one step: right values must be able to repair wrong weights, so the share is the slope of the
  logged rewards on the values, which is 1 for right values and near 0 for noise.
- Otherwise nothing is shrunk: estimated weights over several steps, and occupancy ratios, need the values.

One number is chosen on many episodes: its bias is of order 1 / E.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidelog.ope.estimators.ratios import required_part
from tidelog.ope.estimators.sequential import LONGEST_PRODUCT, logged_return, weighted_dr
from tidelog.ope.evidence.evidence import Evidence, Floats


def shrunk(evidence: Evidence) -> tuple[Evidence, float]:
    """The evidence with shrunk values, and their share; unchanged, with 1, where shrinkage could bias the estimate."""
    if evidence.model is None or evidence.model_target is None:
        return evidence, 1.0
    if evidence.horizon > (1 if evidence.estimated else LONGEST_PRODUCT):
        return evidence, 1.0
    mean = _mean_by_step(evidence)
    if evidence.estimated:
        share = _slope(required_part(evidence, "model") - mean, np.asarray(evidence.reward, np.float64))
    else:
        without = _differences(replace(evidence, model=mean, model_target=mean))
        share = _slope(_differences(evidence) - without, -without)
    if share == 1.0:
        return evidence, 1.0
    return replace(
        evidence,
        model=mean + share * (required_part(evidence, "model") - mean),
        model_target=mean + share * (required_part(evidence, "model_target") - mean),
        model_all=None if evidence.model_all is None else mean[:, None] + share * (evidence.model_all - mean[:, None]),
    ), share


def _mean_by_step(evidence: Evidence) -> Floats:
    """The policy's mean value at the same step of all episodes, [N]."""
    step = np.arange(len(evidence.reward)) - np.repeat(evidence.starts[:-1], evidence.lengths)
    sums = np.bincount(step, weights=required_part(evidence, "model_target"))
    return np.asarray((sums / np.bincount(step))[step])


def _differences(evidence: Evidence) -> Floats:
    """Contributions to the estimate minus the logged returns, [E] (or clusters)."""
    return weighted_dr(evidence).minus(logged_return(evidence)).clustered(evidence.clusters).contributions


def _slope(cause: Floats, outcome: Floats) -> float:
    """The slope of a least-squares line, from 0 to 1; 1 if it is unknown."""
    centred = cause - cause.mean()
    squares = float(centred @ centred)
    if not squares > 0:  # also NaN: no weight is left at some step
        return 1.0
    return float(np.clip(centred @ (outcome - outcome.mean()) / squares, 0.0, 1.0))
