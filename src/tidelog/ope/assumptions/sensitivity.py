"""Sensitivity analysis: the worst estimate if one unrecorded cause changed one decision of each episode.

The logger's true propensity `mu'` of a logged action may differ from the estimated `mu` by a factor of up to `odds` in
odds: `1 / mu'` lies in `[1 + (1 / mu - 1) / odds, 1 + (1 / mu - 1) odds]` (Tan 2006; Zhao, Small & Bhattacharya 2019,
arXiv:1711.11286). One unknown decision per episode is affected (Namkoong et al. 2020, arXiv:2003.05623): the episode's
weights are multiplied by one factor between the smallest and the largest `mu / mu'` of its steps. For weights of whole
episodes this is exact; in stepwise estimators it also changes the weights before the affected decision. Densities have
no odds; their ratio lies in `[1 / odds, odds]`.

The estimate is lowest if each episode that lowers it has its largest factor, and each episode that raises it its
smallest. The direction of an episode's effect depends on the estimate, so the two steps alternate until nothing
changes. For a self-normalised mean this is exact (Dinkelbach 1967); for sums of several ratios the search may miss
worse values.

Letters: `E` episodes, `N` steps, `K` ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tidelog.errors import ConfigError, SpecError
from tidelog.ope.estimators.ratios import Ratios, quotients
from tidelog.ope.evidence.evidence import Evidence, Floats

Estimator = Callable[[Evidence], Ratios]
ROUNDS = 100


def factor_bounds(evidence: Evidence, odds: float, *, densities: bool = False) -> tuple[Floats, Floats]:
    """Smallest and largest factor of each episode's weights, [E] and [E]."""
    if not (np.isfinite(odds) and odds >= 1.0):
        raise ConfigError(f"odds = {odds}: expected a finite number of at least 1 (1: no unrecorded cause)")
    if densities:
        return np.full(evidence.episodes, 1.0 / odds), np.full(evidence.episodes, float(odds))
    behaviour = np.minimum(np.asarray(evidence.behaviour, np.float64), 1.0)
    first = evidence.starts[:-1]
    low = np.minimum.reduceat(behaviour + (1.0 - behaviour) / odds, first)
    high = np.maximum.reduceat(behaviour + (1.0 - behaviour) * odds, first)
    return low, high


def worst_factors(
    evidence: Evidence, estimator: Estimator, odds: float, *, highest: bool = False, densities: bool = False
) -> Floats:
    """Factors of the episodes' weights, [E], that minimise (or maximise) the estimate.

    `estimator` may be a difference of estimates; it must use unchanged weights, neither clipped nor shrunk.
    """
    low, high = factor_bounds(evidence, odds, densities=densities)
    fixed, plain = estimator(with_weight_factors(evidence, np.zeros(len(low)))), estimator(evidence)
    if len(plain) != evidence.episodes:
        raise SpecError(f"found {len(plain)} groups: expected one row per episode. fix: judge fewer episodes")
    numerators, denominators = plain.numerators - fixed.numerators, plain.denominators - fixed.denominators
    weighted = numerators.any(0) | denominators.any(0)  # the other ratios do not change
    numerators, denominators = numerators[:, weighted], denominators[:, weighted]
    still = fixed.numerators[:, weighted].sum(0), fixed.denominators[:, weighted].sum(0)
    factors = worst = np.ones(len(low))
    value = np.inf
    for _ in range(ROUNDS):
        totals = still[1] + factors @ denominators  # [K]
        ratios = quotients(still[0] + factors @ numerators, totals)
        current = -ratios.sum() if highest else ratios.sum()
        if current < value:
            worst, value = factors, current
        pull = numerators @ quotients(1.0, totals) - denominators @ quotients(ratios, totals)  # [E]
        new = np.where((pull > 0) == highest, high, low)
        if (new == factors).all():
            break
        factors = new
    return worst


def with_weight_factors(evidence: Evidence, factors: Floats) -> Evidence:
    """The same evidence with every weight of episode i multiplied by `factors[i]`, [E]."""
    target = np.array(evidence.target, np.float64)
    target[evidence.starts[:-1]] *= factors
    return replace(evidence, target=target)
