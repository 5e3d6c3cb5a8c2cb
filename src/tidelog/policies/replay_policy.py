"""A policy along recorded episodes: what it would do at every step, its memory moving on with what was seen.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tidelog.policies.policy import Policy
from tidelog.runtime.memory import Memory

Leaves = dict[str, NDArray[Any]]
Mask = NDArray[np.bool_] | None
Answer = Callable[[Leaves, Mask, NDArray[Any] | slice, Memory | None], NDArray[Any] | None]


def act_along(policy: Policy, leaves: Leaves, starts: NDArray[Any], mask: Mask = None) -> NDArray[Any]:
    """Deterministic actions [N, ...] for observations [N, ...] in episode order; `starts` [E + 1]: first rows, N."""
    acted = answers_along(
        policy, leaves, starts, mask, lambda seen, allowed, rows, memory: policy(seen, allowed, memory)
    )
    return cast("NDArray[Any]", acted)


def log_probability_along(
    policy: Policy, leaves: Leaves, action: NDArray[Any], starts: NDArray[Any], mask: Mask = None
) -> NDArray[Any] | None:
    """Log-probabilities [N] of logged actions, or None without a density."""
    return answers_along(
        policy,
        leaves,
        starts,
        mask,
        lambda seen, allowed, rows, memory: policy.log_probability(seen, action[rows], allowed, memory),
    )


def answers_along(
    policy: Policy, leaves: Leaves, starts: NDArray[Any], mask: Mask, answer: Answer
) -> NDArray[Any] | None:
    """What `answer(leaves, mask, rows, memory)` says at every step, [N, ...], or None as soon as it says None.

    Without a memory it is asked once about all rows. With one it is asked step by step, for all episodes that go on;
    where asking does not move the memory on, acting does.
    """
    if not policy.is_recurrent:
        return answer(leaves, mask, slice(None), None)
    lengths = np.diff(starts)
    order = np.argsort(-lengths, kind="stable")  # long ones first, so that those that go on are always the first ones
    memory, found = policy.start(len(order)), dict[int, NDArray[Any]]()
    for t in range(int(lengths.max())):
        rows = starts[order[: int((lengths > t).sum())]] + t
        seen, allowed = {name: leaf[rows] for name, leaf in leaves.items()}, None if mask is None else mask[rows]
        memory = memory.of(slice(len(rows)))
        before = memory.carry
        said = answer(seen, allowed, rows, memory)
        if said is None:
            return None
        if memory.carry is before:
            policy(seen, allowed, memory)
        found |= zip(rows.tolist(), said, strict=True)
    return np.stack([found[row] for row in range(len(found))])
