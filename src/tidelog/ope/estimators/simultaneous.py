"""Critical values for several comparisons with the logger, and for repeated looks at the same episodes.

One number contains two corrections. Policies that are judged together share their episodes, so their estimates are
correlated: the distribution of the largest studentised bootstrap error gives the width at which all intervals cover all
differences simultaneously (the max-t method: Westfall & Young 1993; Hothorn, Bretz & Westfall 2008). Successive
verdicts share an error of `1 - level`; each look spends a part that is fixed in advance (alpha spending).

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

RESOLVED = 20  # smallest number of replicates beyond a quantile for a bootstrap estimate of it


def spent_error(level: float, number: int) -> float:
    """Two-sided error of the look with this number, counted from 1: `e`, then `e / (number (number - 1))`.

    The first look has the requested level. The errors of later looks sum to the same again, 1/2 + 1/6 + 1/12 + ... = 1.
    Over any number of looks each side is therefore wrong with a probability of at most `e = 1 - level`.
    """
    return (1.0 - level) / max(1, number * (number - 1))


def critical_values(differences: Sequence[Ratios | None], confidence: Confidence, error: float) -> Floats:
    """Normal deviates [P] for the intervals of all differences, with this simultaneous error.

    `differences` holds None for a policy without an estimate; it keeps its share of the error. A policy whose bootstrap
    has no variance or lost all weight in a replicate also keeps its share: these use Bonferroni's value.
    """
    deviates = np.full(len(differences), normal_deviate(error / len(differences)))
    if len(differences) == 1:
        return deviates
    drawn = {at: _studentised(one, confidence) for at, one in enumerate(differences) if one is not None}
    joint = {at: errors for at, errors in drawn.items() if errors is not None}
    share = error * len(joint) / len(differences)
    if share * confidence.replicates >= RESOLVED:
        largest = np.max(np.abs(list(joint.values())), axis=0)  # [B]
        deviates[list(joint)] = max(float(np.quantile(largest, 1.0 - share)), normal_deviate(error))
    return deviates


def normal_deviate(error: float) -> float:
    """Half-width of a two-sided normal interval with this error, in standard errors."""
    return float(-ndtri(error / 2.0))


def _studentised(ratios: Ratios, confidence: Confidence) -> NDArray[np.float64] | None:
    """Bootstrap errors divided by their standard deviation, [B]; all policies use the same resampled episodes."""
    drawn = replicates(ratios, replace(confidence, widening=1.0))
    error = float(drawn.std())
    if not np.isfinite(error) or error <= 0.0:
        return None
    return np.asarray((drawn - ratios.estimate) / error)
