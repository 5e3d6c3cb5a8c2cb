"""Action counts per episode of the target, compared with those of logged episodes.

Occupancy ratios need an observation that is a Markov state. A test on the log can find only effects of histories in the
log: if every logged episode sends nine times, nothing shows the effect of a twentieth send.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidelog.ope.estimators.ratios import required_part
from tidelog.ope.evidence.evidence import Evidence

TIMES = 1.5  # ratio of frequencies from which a policy outside the logged range is refused
ENDS = (0.01, 0.99)  # quantiles over logged episodes


class ActionCount(NamedTuple):
    """The action whose frequency is furthest from the log's."""

    action: int
    mean: float  # count per episode of the target, by occupancy ratios
    low: float  # 1 % quantile of the count in logged episodes
    high: float  # 99 % quantile
    outside: bool  # whether the mean is outside this range
    beyond: bool  # whether its frequency (or that of not taking it) also differs by a factor of at least `TIMES`


def unusual_action_count(evidence: Evidence) -> ActionCount:
    """The discrete action whose count per episode differs most from logged episodes."""
    usual = ActionCount(0, 0.0, 0.0, 0.0, outside=False, beyond=False)
    if evidence.occupancy is None or evidence.action is None:
        return usual
    weights, first = required_part(evidence, "occupancy"), evidence.starts[:-1]
    steps = float(np.add.reduceat(weights, first).mean())  # per episode of the target
    furthest, habit = 0.0, usual
    for action in np.unique(evidence.action):
        indicator = (evidence.action == action).astype(np.float64)
        logged = np.add.reduceat(indicator, first)
        mean = float(np.add.reduceat(indicator * weights, first).mean())
        low, high = (float(x) for x in np.quantile(logged, ENDS))
        away = max(mean - high, low - mean) / max(float(logged.std()), 1e-9)
        if away > furthest:
            near, logged_steps = (high if mean > high else low), float(evidence.lengths.mean())
            shares = mean / max(steps, 1e-9), near / logged_steps
            one, two = (np.clip(share, 1e-9, 1.0 - 1e-9) for share in shares)
            apart = max(one / two, two / one) >= TIMES or max((1 - one) / (1 - two), (1 - two) / (1 - one)) >= TIMES
            furthest, habit = away, ActionCount(int(action), mean, low, high, outside=True, beyond=bool(apart))
    return habit
