"""What a policy with a memory carries from step to step, for `B` episodes side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelog.errors import SpecError

NumpyArray = np.ndarray[Any, Any]


class Memory:
    """What a policy with a memory carries from step to step, for `B` episodes side by side."""

    def __init__(self, carry: NumpyArray) -> None:
        self.carry = carry  # [B, width]

    def forget(self, rows: Any) -> None:
        """Start anew in rows (indices or [B] bool) whose episode has ended."""
        self.carry[rows] = 0.0

    def of(self, rows: Any) -> Memory:
        """The memory of some rows."""
        return Memory(self.carry[rows])


def carried(memory: Memory | None, rows: int, is_recurrent: bool) -> NumpyArray | None:
    """What is carried by `rows` observations [B, width]; SpecError where a memory is needed, or of other episodes."""
    if memory is None:
        if is_recurrent:
            raise SpecError(
                "this policy has a memory: memory = policy.start(count), and pass memory=memory at every step"
            )
        return None
    if len(memory.carry) != rows:
        raise SpecError(f"the memory is of {len(memory.carry)} episodes, and {rows} observations were given")
    return memory.carry
