"""Support of estimators with occupancy ratios, for episodes that are too long for products of probabilities.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidelog.ope.estimators.ratios import required_part
from tidelog.ope.evidence.evidence import Evidence, Floats
from tidelog.ope.evidence.weights import standard_error, support_of
from tidelog.ope.verdict.results import Support


def occupancy_support(evidence: Evidence) -> Support:
    """Support with occupancy ratios: an episode's weight is the sum of its steps' ratios.

    The mean weight is replaced by the occupancy-weighted terminations, whose mean over episodes must also be 1 (at
    discount 1, the sum of ratios over last steps; else also of `w (1 - gamma)` over the other steps).
    """
    visits = required_part(evidence, "occupancy")
    support = support_of(evidence, weights=np.maximum(_episode_sums(evidence, visits), 0.0))
    last = np.zeros(len(visits))
    last[evidence.starts[1:] - 1] = 1.0
    ends = _episode_sums(evidence, visits * (1.0 - evidence.discount * (1.0 - last)))
    return replace(support, mean_weight=float(ends.mean()), mean_weight_error=standard_error(ends, evidence.clusters))


def _episode_sums(evidence: Evidence, values: Floats) -> Floats:
    return np.asarray(np.add.reduceat(values, evidence.starts[:-1]))
