"""Numbers as text for people: three significant digits, with the unit if there is one.

Every estimate that a person reads is written here, so that pages, verdicts and tables agree. Counts and settings are
exact and not written here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

NOTHING = "no number"
_LARGEST = 1e9  # from here on with a power of ten


def three_digits(value: float, *, sign: bool = False) -> str:
    """Write a number with three significant digits: 0.0123, 4.5, 12,300; 'no number' if it is not finite."""
    if not math.isfinite(value):
        return NOTHING
    rounded = float(f"{value:.2e}")
    if rounded == 0.0:
        return "0"  # has no sign
    plus = "+" if sign else ""
    return f"{rounded:{plus},.0f}" if 1e3 <= abs(rounded) < _LARGEST else f"{rounded:{plus}.3g}"


def count_of(count: int, noun: str) -> str:
    """Write a count and its noun, in the singular for one: 1 row, 2,000 rows."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def amount(value: float, unit: str | None = None, *, sign: bool = False) -> str:
    """Write a number with three significant digits and its unit."""
    return f"{three_digits(value, sign=sign)}{in_unit(unit if math.isfinite(value) else None)}"


def with_ends(interval: Sequence[float], unit: str | None = None, *, sign: bool = False) -> str:
    """Write an estimate and the ends of its interval: 0.08 (0.01 to 0.15), with the unit after the estimate.

    `interval` is (estimate, low, high).
    """
    estimate, low, high = interval
    if not all(map(math.isfinite, interval)):
        return amount(estimate, unit, sign=sign)
    return f"{amount(estimate, unit, sign=sign)} ({three_digits(low, sign=sign)} to {three_digits(high, sign=sign)})"


def in_unit(unit: str | None, before: str = "") -> str:
    """Write a unit after a space and `before`; nothing for None."""
    return f" {before}{unit}" if unit else ""
