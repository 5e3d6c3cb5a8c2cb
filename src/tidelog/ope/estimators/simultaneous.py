"""Critical values of several comparisons with the logger, and of a look that comes after other looks.

Two corrections, one number. Policies that are judged at once share their episodes, so that their estimates move
together: the largest of their studentised bootstrap errors says how far all intervals must reach to cover all
differences at the same time (the max-t method: Westfall & Young 1993; Hothorn, Bretz & Westfall 2008). Verdicts that
are given one after the other share an error of `1 - level`, of which each look spends a part that was fixed in advance
(alpha spending).

Letters: `P` policies, `B` bootstrap replicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tidelog.ope.estimators.intervals import Confidence, replicates
from tidelog.ope.estimators.ratios import Ratios
from tidelog.ope.evidence.evidence import Floats

RESOLVED = 20  # replicates beyond a quantile, below which the bootstrap is not asked for it


def spent_error(level: float, number: int) -> float:
    """The two-sided error of the look with this number, counted from 1: `e`, then `e / (number (number - 1))`.

    The first look has the level that was asked for. Later ones add up to as much again, 1/2 + 1/6 + 1/12 + ... = 1, so
    that over any number of looks each side is wrong with a probability of at most `e = 1 - level`.
    """
    return (1.0 - level) / max(1, number * (number - 1))


def critical_values(differences: Sequence[Ratios | None], confidence: Confidence, error: float) -> Floats:
    """Normal deviates [P] that the intervals of all differences reach, so that together they miss with this error.

    `differences` holds None for a policy without a number; it keeps its share of the error, and so does one whose
    bootstrap has no spread or lost all weight in a replicate: these are held to Bonferroni's value.
    """
    found = np.full(len(differences), normal_deviate(error / len(differences)))
    if len(differences) == 1:
        return found
    drawn = {at: _studentised(one, confidence) for at, one in enumerate(differences) if one is not None}
    joint = {at: errors for at, errors in drawn.items() if errors is not None}
    share = error * len(joint) / len(differences)
    if share * confidence.replicates >= RESOLVED:
        largest = np.max(np.abs(list(joint.values())), axis=0)  # [B]
        found[list(joint)] = max(float(np.quantile(largest, 1.0 - share)), normal_deviate(error))
    return found


def normal_deviate(error: float) -> float:
    """How many standard errors a two-sided normal interval with this error reaches."""
    return float(-ndtri(error / 2.0))


def _studentised(ratios: Ratios, confidence: Confidence) -> NDArray[np.float64] | None:
    """Bootstrap errors over their standard deviation, [B], with the counts of episodes that all policies share."""
    drawn = replicates(ratios, replace(confidence, widening=1.0))
    spread = float(drawn.std())
    if not np.isfinite(spread) or spread <= 0.0:
        return None
    return np.asarray((drawn - ratios.estimate) / spread)
