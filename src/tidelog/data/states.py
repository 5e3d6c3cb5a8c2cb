"""States of a log: its different observations, numbered, and whether tables of counts suit them better than networks.

A table suits few different observations that are visited often. If observations consist of labels alone, distances
between them mean nothing, so a network needs almost as many visits as a table: there, few visits of a pair of state and
action are no obstacle, and a single column of labels is always a table.

Letters: `M` stored observations, `S` states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.types import Codes, Discrete

VISITS_A_STATE, VISITS_A_PAIR = 20, 5  # smallest mean visits in a tabular log
LARGEST = 20_000  # states of the largest table


class States(NamedTuple):
    """Numbers of the different observations."""

    stored: NDArray[np.int64]  # [M]
    size: int  # S


def number_observations(log: Log) -> States:
    """Number the different stored observations of a log; different masks are different observations."""
    columns = [np.asarray(leaf) for _, leaf in sorted(log.observation.items())]
    columns += [] if log.action_mask is None else [np.asarray(log.action_mask)]
    flat = [np.ascontiguousarray((c + 0.0 if c.dtype.kind == "f" else c).reshape(len(c), -1)) for c in columns]
    rows = np.concatenate([c.view(np.uint8).reshape(len(c), -1) for c in flat], axis=1)
    keys = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}")[:, 0]
    unique, states = np.unique(keys, return_inverse=True)
    return States(states.astype(np.int64), len(unique))


def is_tabular(log: Log, states: States | None = None) -> bool:
    """Whether a log has discrete actions and few different observations, each visited often enough for a table."""
    if not isinstance(log.spec.action, Discrete):
        return False
    states = states or number_observations(log)
    if states.size > LARGEST:
        return False
    here = states.stored[np.asarray(log.position)]
    visited = len(np.unique(here))
    leaves = log.spec.observation.values()
    labels = sum(len(leaf.sizes) for leaf in leaves if isinstance(leaf, Codes))
    if all(isinstance(leaf, Codes) for leaf in leaves):
        return labels == 1 or log.steps >= VISITS_A_STATE * visited
    pairs = len(np.unique(here * log.spec.action.n + np.asarray(log.action)))
    return log.steps >= VISITS_A_STATE * visited and log.steps >= VISITS_A_PAIR * pairs
