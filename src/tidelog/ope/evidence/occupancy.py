"""Support where steps are weighed by ratios of visits, for episodes too long for products of probabilities.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidelog.ope.estimators.ratios import wanted
from tidelog.ope.evidence.evidence import Evidence, Floats
from tidelog.ope.evidence.weights import standard_error, support_of
from tidelog.ope.verdict.results import Support


def visits_support(evidence: Evidence) -> Support:
    """Support where steps are weighed by visits: an episode weighs as much as its steps together.

    In place of the mean weight stands what must be 1 as well: how often the target's episodes end (at discount 1, the
    sum of ratios over last steps; else of `w (1 - gamma)` over the others too), a mean over episodes.
    """
    visits = wanted(evidence, "occupancy")
    found = support_of(evidence, weights=np.maximum(_added_up(evidence, visits), 0.0))
    last = np.zeros(len(visits))
    last[evidence.starts[1:] - 1] = 1.0
    ends = _added_up(evidence, visits * (1.0 - evidence.discount * (1.0 - last)))
    return replace(found, mean_weight=float(ends.mean()), mean_weight_error=standard_error(ends, evidence.clusters))


def _added_up(evidence: Evidence, values: Floats) -> Floats:
    return np.asarray(np.add.reduceat(values, evidence.starts[:-1]))
