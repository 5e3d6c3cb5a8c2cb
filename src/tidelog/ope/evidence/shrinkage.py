"""Values of networks, shrunk towards their mean as far as this makes the estimate more precise.

A doubly robust estimate is consistent with any values, but poor ones add noise: networks that learn from few rare
rewards predict worse than a constant, and then another seed of the judge could be another verdict. Here
`value = mean + share (network - mean)`. The mean is that of the policy's values at the same step of an episode, so it
contains no logged reward. The share, from 0 to 1, minimises the variance of the policy's estimated difference from the
logger: it is the coefficient of a control variate (Vlassis et al. 2019, "On the Design of Estimators for Bandit
Off-Policy Evaluation"; Farajtabar et al. 2018, arXiv:1802.03493, choose the whole model so). At a share of 0 the
estimate is importance sampling with a baseline. One number is chosen on many episodes: its bias is of order 1 / E.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidelog.ope.estimators.ratios import required_part
from tidelog.ope.estimators.sequential import LONGEST_PRODUCT, double_reinforcement, logged_return, weighted_dr
from tidelog.ope.evidence.evidence import Evidence, Floats

WEAK = 0.5  # share below which the reader is told


def shrunk(evidence: Evidence) -> tuple[Evidence, float]:
    """The evidence with shrunk values, and their share; unchanged, with 1, if it has no estimate to improve."""
    long = evidence.horizon > LONGEST_PRODUCT
    if evidence.model is None or evidence.model_target is None or (long and evidence.occupancy is None):
        return evidence, 1.0
    mean = _mean_by_step(evidence)
    without = _differences(replace(evidence, model=mean, model_target=mean), long)
    change = _differences(evidence, long) - without
    change -= change.mean()
    squares = float(change @ change)
    if not squares > 0:  # also if no weight is left at some step
        return evidence, 1.0
    share = float(np.clip(-(change @ (without - without.mean())) / squares, 0.0, 1.0))
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


def _differences(evidence: Evidence, long: bool) -> Floats:
    """Contributions to the estimate of the deciding kind, minus the logged returns."""
    ratios = double_reinforcement(evidence) if long else weighted_dr(evidence)
    return ratios.minus(logged_return(evidence)).clustered(evidence.clusters).contributions
