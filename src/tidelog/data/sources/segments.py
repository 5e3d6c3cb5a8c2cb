"""What sources of transitions have in common: where one piece of experience ends, and what was not read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Finding
from tidelog.data.validation.errors import differences

_SHOWN = 8
_AT_ONCE = 1_000_000


def before(ends: Values) -> Values:
    """[N]: how many pieces ended before each row; the number of the row's own piece."""
    number: Values = np.cumsum(ends) - ends
    return number


def broken_off(observation: Values, next_observation: Values) -> Values:
    """[N] bool: rows whose next observation [N, ...] is not the observation of the following row, and the last row."""
    chunk = max(1, _AT_ONCE // max(1, observation[0:1].size))
    inner = [
        differences(next_observation[at : at + chunk][: len(observation) - 1 - at], observation[at + 1 :][:chunk])
        for at in range(0, len(observation) - 1, chunk)
    ]
    return np.append(np.concatenate(inner), True) if inner else np.ones(len(observation), bool)


def converted(found: str, expected: str, advice: str, column: str | None = None) -> tuple[str, Finding]:
    """The note that a source's convention was translated."""
    return "converted", Finding(column, None, found, expected, advice)


def passed_over(names: Iterable[str]) -> list[tuple[str, Finding]]:
    """The note that parts of a file were not read, where there are any."""
    listed = sorted(names)
    if not listed:
        return []
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return [converted(f"not read: {', '.join(listed[:_SHOWN])}{more}", "decisions", "nothing, if they are not needed")]
