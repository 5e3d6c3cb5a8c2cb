"""Estimates that weigh steps by ratios of visits, for episodes too long for products of probabilities.

`occupancy` w is how much oftener than the log the target comes to a state and does what was done there. With a model's
Q and V: the mean of `sum_t w_t r_t` (Uehara, Huang & Jiang 2020, arXiv:1910.12809), and `V_0 + sum_t w_t (r_t + gamma
V_t+1 - Q_t)` (Kallus & Uehara 2020, arXiv:1908.08526), where V is 0 after an episode's recorded end.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidelog.judging.evidence import Evidence, Floats
from tidelog.judging.ratios import Ratios, means, wanted
from tidelog.judging.results import Support
from tidelog.judging.weights import support_of


def weighted_visits(evidence: Evidence) -> Ratios:
    """Mean over episodes of rewards times ratios of visits."""
    return means(_added_up(evidence, wanted(evidence, "occupancy") * evidence.reward))


def double_rl(evidence: Evidence) -> Ratios:
    """The model's value of beginnings, corrected by its errors weighted by visits."""
    value = wanted(evidence, "model_target")
    errors = evidence.reward + evidence.discount * _next(evidence, value) - wanted(evidence, "model")
    corrections = _added_up(evidence, wanted(evidence, "occupancy") * errors)
    return means(value[evidence.starts[:-1]] + corrections)


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
    return replace(
        found, mean_weight=float(ends.mean()), mean_weight_error=float(ends.std(ddof=1) / np.sqrt(len(ends)))
    )


def _next(evidence: Evidence, value: Floats) -> Floats:
    following = np.append(value[1:], 0.0)
    following[evidence.starts[1:] - 1] = 0.0
    return following


def _added_up(evidence: Evidence, values: Floats) -> Floats:
    return np.asarray(np.add.reduceat(values, evidence.starts[:-1]))
