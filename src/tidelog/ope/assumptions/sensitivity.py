"""The worst that an estimate can be if one unrecorded cause swayed one decision of each episode.

The logger's true propensity `mu'` of a logged action may differ from the `mu` that was estimated by a factor of up to
`odds` in odds: `1 / mu'` lies in `[1 + (1 / mu - 1) / odds, 1 + (1 / mu - 1) odds]` (Tan 2006; Zhao, Small &
Bhattacharya 2019, arXiv:1711.11286). One decision an episode is swayed, nobody knows which (Namkoong et al. 2020,
arXiv:2003.05623): the episode's weights are multiplied by one factor between the smallest and the largest `mu / mu'` of
its steps. For weights of whole episodes that is exact; in stepwise estimators it moves the weights before the swayed
decision too. Of densities no odds can be taken; their ratio lies in `[1 / odds, odds]`.

An estimate falls most if an episode gets its largest factor where it pulls the estimate down, and its smallest where it
pulls it up. Which way it pulls depends on the estimate, so the two are alternated until nothing changes; for a
self-normalised mean that is exact (Dinkelbach 1967), for sums of several ratios it is the worst of a search that may
miss worse ones.

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
        raise ConfigError(f"odds must be at least 1 (nothing unrecorded), found {odds}")
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
    """Factors of the episodes' weights, [E], that make the estimate as low (or as high) as it can be.

    `estimator` may be a difference of estimates; it must use weights as they are, neither cut nor shrunk.
    """
    low, high = factor_bounds(evidence, odds, densities=densities)
    fixed, given = estimator(shifted(evidence, np.zeros(len(low)))), estimator(evidence)
    if len(given) != evidence.episodes:
        raise SpecError(f"factors need an estimate by episode, found {len(given)} groups; judge fewer episodes")
    numerators, denominators = given.numerators - fixed.numerators, given.denominators - fixed.denominators
    weighted = numerators.any(0) | denominators.any(0)  # the other ratios do not move
    numerators, denominators = numerators[:, weighted], denominators[:, weighted]
    still = fixed.numerators[:, weighted].sum(0), fixed.denominators[:, weighted].sum(0)
    factors = worst = np.ones(len(low))
    value = np.inf
    for _ in range(ROUNDS):
        totals = still[1] + factors @ denominators  # [K]
        ratios = quotients(still[0] + factors @ numerators, totals)
        found = -ratios.sum() if highest else ratios.sum()
        if found < value:
            worst, value = factors, found
        pull = numerators @ quotients(1.0, totals) - denominators @ quotients(ratios, totals)  # [E]
        new = np.where((pull > 0) == highest, high, low)
        if (new == factors).all():
            break
        factors = new
    return worst


def shifted(evidence: Evidence, factors: Floats) -> Evidence:
    """The same evidence with every weight of episode i multiplied by `factors[i]`, [E]."""
    target = np.array(evidence.target, np.float64)
    target[evidence.starts[:-1]] *= factors
    return replace(evidence, target=target)
