"""How often the target takes each action in an episode, beside how often logged episodes do.

Ratios of visits need an observation that tells all that matters. A test on the log can only find effects of histories
that the log holds: if every logged episode sends nine times, nothing shows what the twentieth send leads to.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidelog.ope.estimators.ratios import wanted
from tidelog.ope.evidence.evidence import Evidence

TIMES = 1.5  # ratio of frequencies from which a policy outside of the logged range is refused
ENDS = (0.01, 0.99)  # quantiles of logged episodes


class Habit(NamedTuple):
    """The action whose frequency is furthest from the log's."""

    action: int
    mean: float  # times that the target takes it in an episode, by ratios of visits
    low: float  # times in logged episodes, at the 1 % quantile,
    high: float  # and at the 99 % quantile
    outside: bool  # whether the mean is outside of these
    beyond: bool  # and differs from the nearest logged frequency, of taking or of leaving it, by a factor of `TIMES`


def new_habit(evidence: Evidence) -> Habit:
    """The discrete action that the target takes most unusually often, or rarely, in an episode."""
    nothing = Habit(0, 0.0, 0.0, 0.0, outside=False, beyond=False)
    if evidence.occupancy is None or evidence.action is None:
        return nothing
    weights, first = wanted(evidence, "occupancy"), evidence.starts[:-1]
    steps = float(np.add.reduceat(weights, first).mean())  # of the target's episodes
    furthest, found = 0.0, nothing
    for action in np.unique(evidence.action):
        taken = (evidence.action == action).astype(np.float64)
        logged = np.add.reduceat(taken, first)
        mean = float(np.add.reduceat(taken * weights, first).mean())
        low, high = (float(x) for x in np.quantile(logged, ENDS))
        away = max(mean - high, low - mean) / max(float(logged.std()), 1e-9)
        if away > furthest:
            near, logged_steps = (high if mean > high else low), float(evidence.lengths.mean())
            shares = mean / max(steps, 1e-9), near / logged_steps
            one, two = (np.clip(share, 1e-9, 1.0 - 1e-9) for share in shares)
            apart = max(one / two, two / one) >= TIMES or max((1 - one) / (1 - two), (1 - two) / (1 - one)) >= TIMES
            furthest, found = away, Habit(int(action), mean, low, high, outside=True, beyond=bool(apart))
    return found
