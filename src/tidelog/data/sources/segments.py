"""Helpers of transition sources: ends of episodes, and notes on conversions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Finding
from tidelog.data.validation.errors import differences

_SHOWN = 8
_AT_ONCE = 1_000_000


def before(ends: Values) -> Values:
    """[N]: the number of ends before each row, which is the number of the row's episode."""
    number: Values = np.cumsum(ends) - ends
    return number


def broken_off(observation: Values, next_observation: Values) -> Values:
    """[N] bool: rows whose next observation [N, ...] differs from the following row's observation, and the last row."""
    chunk = max(1, _AT_ONCE // max(1, observation[0:1].size))
    inner = [
        differences(next_observation[at : at + chunk][: len(observation) - 1 - at], observation[at + 1 :][:chunk])
        for at in range(0, len(observation) - 1, chunk)
    ]
    return np.append(np.concatenate(inner), True) if inner else np.ones(len(observation), bool)


def converted(found: str, expected: str, advice: str, column: str | None = None) -> tuple[str, Finding]:
    """A note on a converted convention of the source."""
    return "converted", Finding(column, None, found, expected, advice)


def passed_over(names: Iterable[str]) -> list[tuple[str, Finding]]:
    """A note on the parts of a file that were not read; empty if everything was read."""
    listed = sorted(names)
    if not listed:
        return []
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return [converted(f"not read: {', '.join(listed[:_SHOWN])}{more}", "decisions", "nothing, if they are not needed")]
