"""Returns whose tail a log of its size cannot show, where a difference rests on them.

A difference from the logger is the mean of `(w - 1) r` over episodes of weight `w` and return `r`. It is overestimated
where high returns of decisions that the policy leaves (`w < 1`), or low returns of those that it takes more often
(`w > 1`), are rarer than a log of its size shows, and underestimated in the opposite two tails. Resampling cannot show
what was never drawn: an interval is too short where such a tail is heavy. Each tail gets a generalised Pareto
distribution (Pickands 1975), fitted to returns far from the middle of their own side of the weights.

Letters: `E` episodes, `U` episodes or clusters of one side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidelog.ope.estimators.ratios import cluster_sums
from tidelog.ope.estimators.risk import RULE_OF_THREE
from tidelog.ope.estimators.sequential import returns
from tidelog.ope.estimators.support import episode_weights, generalised_pareto_shape
from tidelog.ope.evidence.evidence import Evidence, Floats

FAR = 5.0  # times the median distance from the middle: returns further away make the tail
RARE_SHARE, FEWEST = 0.7, 5  # share of these that is fitted where most returns are equal; the smallest number of them
ROUNDING = 1e-5  # of the largest distance: smaller differences make no tail
HEAVY = 0.6  # smallest tail index of a heavy tail; above 1/2 returns have no variance


class Tail(NamedTuple):
    """One tail of the returns on one side of the weights."""

    left: bool  # whether of decisions that the policy leaves; else of those that it takes more often
    high: bool  # whether of the highest returns; else of the lowest
    shape: float  # tail index
    extreme: float  # the highest (lowest) logged return of that side
    share: float  # of the summed distances from the middle in this direction, that of the furthest episode or cluster
    missing: float  # how much of the mean difference the log may lack; infinite without a bound of returns


def adverse_tails(
    evidence: Evidence, *, better: bool, lowest: float | None = None, highest: float | None = None
) -> list[Tail]:
    """The heavy tails that could undo a positive (`better`) or a negative difference.

    `lowest` and `highest` are the possible returns of an episode, if they are known: they limit what may be missing.
    """
    weights, earned = episode_weights(evidence), returns(evidence)
    sides = ((True, better), (False, not better))  # of decisions that the policy leaves, and of those that it takes
    tails = [_tail(evidence, weights, earned, left, high, highest if high else lowest) for left, high in sides]
    return [tail for tail in tails if tail is not None]


def _tail(
    evidence: Evidence, weights: Floats, earned: Floats, left: bool, high: bool, bound: float | None
) -> Tail | None:
    """One tail if it is heavy, else None; `weights` and `earned` [E]."""
    chosen = weights < 1.0 if left else weights > 1.0
    if chosen.sum() < 2:
        return None
    sign = 1.0 if high else -1.0
    distance = sign * (earned - np.median(earned[chosen]))  # [E]
    if tail_shape(distance[chosen]) <= HEAVY:
        return None  # a tail of the weights alone is for the checks of support
    change = np.where(chosen, np.abs(weights - 1.0), 0.0)
    away = change * distance  # [E]
    if evidence.clusters is None:
        away = away[chosen]
    else:
        there = cluster_sums(chosen.astype(np.float64), evidence.clusters) > 0
        away = cluster_sums(away, evidence.clusters)[there]
    shape = tail_shape(away)
    if shape <= HEAVY:
        return None
    beyond = np.maximum(away, 0.0)
    extreme = sign * float((sign * earned[chosen]).max())
    missing = np.inf
    if bound is not None:
        missing = RULE_OF_THREE / evidence.units * float(change.max()) * max(sign * (bound - extreme), 0.0)
    return Tail(left, high, shape, extreme, float(beyond.max() / beyond.sum()), missing)


def tail_shape(away: Floats) -> float:
    """Tail index of distances from a middle, [U]; 0 where too few lie far away, or where the furthest are all alike.

    Where most are equal, as zeros are, the far ones are a distribution of their own, of which the largest are the tail.
    """
    usual = float(np.median(np.abs(away)))
    far, most = int((away > FAR * usual).sum()), 3.0 * np.sqrt(len(away))
    size = int(min(far, most, len(away) / 3) if usual > 0 else min(RARE_SHARE * far, most, len(away) / 5))
    if size < FEWEST:
        return 0.0
    ordered = np.sort(np.maximum(away, 0.0))
    exceeding = ordered[-size:] - ordered[-size - 1]
    exceeding = exceeding[exceeding > ROUNDING * ordered[-1]]
    if len(exceeding) < FEWEST or exceeding[-1] - exceeding[0] <= ROUNDING * ordered[-1]:
        return 0.0
    return generalised_pareto_shape(exceeding)
