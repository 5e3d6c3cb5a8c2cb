"""A policy along recorded episodes: what it would do at every step, its memory moving on with what was seen.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tidelog.acting.policy import Policy

Leaves = dict[str, NDArray[Any]]


def act_along(
    policy: Policy, leaves: Leaves, starts: NDArray[Any], mask: NDArray[np.bool_] | None = None
) -> NDArray[Any]:
    """Deterministic actions [N, ...] for observations [N, ...] in episode order; `starts` [E + 1]: first rows, N."""
    if not policy.remembers:
        return policy(leaves, mask)
    return cast("NDArray[Any]", _along(policy, leaves, starts, mask, None))


def log_probability_along(
    policy: Policy, leaves: Leaves, action: NDArray[Any], starts: NDArray[Any], mask: NDArray[np.bool_] | None = None
) -> NDArray[Any] | None:
    """Log-probabilities [N] of logged actions, or None without a density."""
    if not policy.remembers:
        return policy.log_probability(leaves, action, mask)
    return _along(policy, leaves, starts, mask, action)


def _along(
    policy: Policy,
    leaves: Leaves,
    starts: NDArray[Any],
    mask: NDArray[np.bool_] | None,
    action: NDArray[Any] | None,
) -> NDArray[Any] | None:
    lengths = np.diff(starts)
    order = np.argsort(-lengths, kind="stable")  # long ones first, so that those that go on are always the first ones
    memory, found = policy.start(len(order)), dict[int, NDArray[Any]]()
    for t in range(int(lengths.max())):
        rows = starts[order[: int((lengths > t).sum())]] + t
        seen, allowed = {name: leaf[rows] for name, leaf in leaves.items()}, None if mask is None else mask[rows]
        memory = memory.of(slice(len(rows)))
        likely = None if action is None else policy.log_probability(seen, action[rows], allowed, memory)
        if action is not None and likely is None:
            return None
        done = policy(seen, allowed, memory)
        found |= zip(rows.tolist(), done if likely is None else likely, strict=True)
    return np.stack([found[row] for row in range(len(found))])
