"""What recorded propensities say about the actions that were not logged.

A log has the probability of the logged action only. Those of all actions follow from it where there are two actions, or
where each action always had the same probability: in the whole log, or among rows with the same words.

Letters: `N` rows, `A` actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.core.declared import CLOSE, strata_of

EQUAL = 1e-4  # difference of recorded probabilities that counts as rounding


def known_probabilities(
    action: NDArray[Any], recorded: NDArray[Any], actions: int, words: Sequence[NDArray[Any]] = ()
) -> NDArray[np.float64] | None:
    """[N, A]: the logger's probabilities of all actions, None if the recorded ones [N] do not determine them.

    `words` are columns [N] of codes. In each group of rows, every logged action must have one probability, and these
    must sum to 1: an action that is not in the group then has the probability 0.
    """
    action, recorded = np.asarray(action, np.int64), np.asarray(recorded, np.float64)
    rows = len(action)
    if actions < 2 or not rows or not ((recorded > 0) & (recorded <= 1)).all():
        return None
    if actions == 2:
        known = np.empty((rows, 2))
        known[np.arange(rows), action] = recorded
        known[np.arange(rows), 1 - action] = 1.0 - recorded
        return known
    together = [strata_of(words)] if len(words) > 1 else []
    for group in [np.zeros(rows, np.int32), *(strata_of([one]) for one in words), *together]:
        table = _constant_in(group, action, recorded, actions)
        if table is not None:
            return np.asarray(table[group])
    return None


def _constant_in(group: NDArray[Any], action: NDArray[Any], recorded: NDArray[Any], actions: int) -> Any:
    """[G, A]: probabilities of the actions in each group, None unless they are constant and sum to 1."""
    groups = int(group.max()) + 1
    if groups * actions > max(len(action), actions):  # too few rows of each action in a group
        return None
    place = group.astype(np.int64) * actions + action
    low, high = np.full(groups * actions, np.inf), np.zeros(groups * actions)
    np.minimum.at(low, place, recorded)
    np.maximum.at(high, place, recorded)
    logged = high > 0
    if (high[logged] - low[logged] > EQUAL).any():
        return None
    table = np.where(logged, high, 0.0).reshape(groups, actions)
    total = table.sum(axis=1, keepdims=True)
    return None if (np.abs(total - 1.0) > CLOSE).any() else table / total
