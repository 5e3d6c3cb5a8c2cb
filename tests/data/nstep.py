"""n-step windows in plain NumPy: the reference that compiled samplers are tested against."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidelog.data.log_columns import LogColumns
from tidelog.data.raw import Values
from tidelog.errors import LogError


class Windows(NamedTuple):
    """Sums over a window of m <= n steps from each row."""

    reward: Values  # [B] or [B, K] float32: sum of gamma**k * reward over the m steps
    discount: Values  # [B] float32: gamma**m * (1 - terminated at the window's last row); 0 where m is 0
    next_position: Values  # [B] int32: position of the observation after the window
    m: Values  # [B] int32: steps summed; 0 for a row without a target (`log.has_target`)


def n_step(log: LogColumns, rows: Values, n: int, gamma: float) -> Windows:
    """Windows of up to n steps from `rows` [B], ending at `log.reach`; LogError without rewards."""
    if log.reward is None:
        raise LogError("the log has no rewards: n-step windows need them", log.report)
    rows = np.asarray(rows)
    last = np.minimum(rows + n - 1, log.reach[rows])
    m = np.maximum(last - rows + 1, 0)
    reward = np.zeros((len(rows), *log.reward.shape[1:]), np.float64)
    for k in range(n):
        within = np.flatnonzero(k < m)
        reward[within] += gamma**k * log.reward[rows[within] + k]
    last = np.maximum(last, rows)
    discount = np.where(m > 0, gamma ** m.astype(np.float64) * ~log.terminated[last], 0.0)
    next_position = np.where(m > 0, log.next_position[last], log.position[rows])
    return Windows(
        reward.astype(np.float32), discount.astype(np.float32), next_position.astype(np.int32), m.astype(np.int32)
    )
