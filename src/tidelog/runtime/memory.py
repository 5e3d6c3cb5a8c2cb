"""The recurrent state of a policy for `B` parallel episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelog.errors import SpecError

NumpyArray = np.ndarray[Any, Any]


class Memory:
    """The recurrent state of a policy for `B` parallel episodes."""

    def __init__(self, carry: NumpyArray) -> None:
        self.carry = carry  # [B, width]

    def forget(self, rows: Any) -> None:
        """Reset rows (indices or [B] bool) whose episode has ended."""
        self.carry[rows] = 0.0

    def of(self, rows: Any) -> Memory:
        """Return the memory of some rows."""
        return Memory(self.carry[rows])


def carried(memory: Memory | None, rows: int, is_recurrent: bool) -> NumpyArray | None:
    """Return the recurrent state [B, width] for `rows` observations; SpecError for a missing or different memory."""
    if memory is None:
        if is_recurrent:
            raise SpecError(
                "this policy is recurrent. fix: memory = policy.start(count), then memory=memory at every step"
            )
        return None
    if len(memory.carry) != rows:
        raise SpecError(
            f"the memory has {len(memory.carry)} episodes for {rows} observations. fix: policy.start({rows})"
        )
    return memory.carry
