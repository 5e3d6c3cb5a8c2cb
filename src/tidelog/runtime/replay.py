"""A policy along recorded episodes: its outputs at every step, with its recurrent state.

Letters: `B` batch, `N` recorded steps, `E` episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tidelog.runtime.policy import Memory
from tidelog.runtime.way_of_acting import Acts

Leaves = dict[str, NDArray[Any]]
Mask = NDArray[np.bool_] | None
Answer = Callable[[Leaves, Mask, NDArray[Any] | slice, Memory | None], NDArray[Any] | None]


def replay_actions(policy: Acts, leaves: Leaves, starts: NDArray[Any], mask: Mask = None) -> NDArray[Any]:
    """Return the most likely actions [N, ...] for observations in episode order; `starts` [E + 1]: first rows, N.

    Discrete actions are codes, whatever way of acting is declared.
    """

    def answer(seen: Leaves, allowed: Mask, rows: Any, memory: Memory | None) -> NDArray[Any]:
        return policy.act(seen, mask=allowed, memory=memory)[0]

    return cast("NDArray[Any]", replay(policy, leaves, starts, mask, answer))


def replay_log_probability(
    policy: Any, leaves: Leaves, action: NDArray[Any], starts: NDArray[Any], mask: Mask = None
) -> NDArray[Any] | None:
    """Return log-probabilities [N] of logged actions, or None without a density."""
    return replay(
        policy,
        leaves,
        starts,
        mask,
        lambda seen, allowed, rows, memory: policy.log_probability(seen, action[rows], allowed, memory),
    )


def replay(policy: Acts, leaves: Leaves, starts: NDArray[Any], mask: Mask, answer: Answer) -> NDArray[Any] | None:
    """Return the outputs [N, ...] of `answer(leaves, mask, rows, memory)` at every step, or None after the first None.

    A feed-forward policy is called once for all rows. A recurrent policy is called step by step, for all episodes that
    continue; where the call does not update the memory, acting updates it.
    """
    if not policy.is_recurrent:
        return answer(leaves, mask, slice(None), None)
    lengths = np.diff(starts)
    order = np.argsort(-lengths, kind="stable")  # longest first: the episodes that continue are always the first ones
    memory, outputs = policy.start(len(order)), dict[int, NDArray[Any]]()
    for t in range(int(lengths.max())):
        rows = starts[order[: int((lengths > t).sum())]] + t
        seen, allowed = {name: leaf[rows] for name, leaf in leaves.items()}, None if mask is None else mask[rows]
        memory = memory.of(slice(len(rows)))
        before = memory.carry
        output = answer(seen, allowed, rows, memory)
        if output is None:
            return None
        if memory.carry is before:
            policy.act(seen, mask=allowed, memory=memory)
        outputs |= zip(rows.tolist(), output, strict=True)
    return np.stack([outputs[row] for row in range(len(outputs))])
