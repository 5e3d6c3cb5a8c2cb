"""Axes of charts: positions of numbers, and round tick values. Letter: `T` numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
_DECADES = 100.0  # ratio of the largest to the smallest positive number from which an axis is logarithmic


@dataclass(frozen=True)
class Axis:
    """Map from a range of numbers to a range of positions."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, values: Any) -> Values:
        """Positions [T] of numbers [T]; numbers outside the range map to the nearer end, NaN stays NaN."""
        numbers = np.asarray(values, np.float64)
        low, high = self.low, self.high
        if self.logarithmic:
            numbers, low, high = np.log10(np.maximum(numbers, self.low)), math.log10(low), math.log10(high)
        share = np.clip(numbers / 2 - low / 2, 0.0, high / 2 - low / 2) / (high / 2 - low / 2)  # halves avoid overflow
        return np.asarray(self.start + share * (self.end - self.start))

    def ticks(self, most: int = 5) -> list[float]:
        """About `most` round numbers within the range."""
        if self.logarithmic:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            chosen = list(powers)[:: max(1, math.ceil(len(powers) / most))]
            return [10.0**power for power in chosen]
        step = _round_step((self.high / most) - (self.low / most))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]


def axis(values: Any, start: float, end: float, *, also: Sequence[float] = (), positive: bool = False) -> Axis:
    """Axis over the finite numbers of `values` and over `also`; logarithmic if `positive` and they span decades.

    A single number, or none, gets a range around it.
    """
    numbers = np.concatenate([np.ravel(np.asarray(values, np.float64)), np.asarray(also, np.float64)])
    numbers = numbers[np.isfinite(numbers)]
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    if positive and low > 0 and high / low > _DECADES:
        return Axis(low, high, start, end, logarithmic=True)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        room = abs(low) * 0.1 or 0.5
        return Axis(low - room, high + room, start, end)
    room = 0.04 * high - 0.04 * low
    return Axis(low - room, high + room, start, end)


def short(value: float) -> str:
    """Short form of a number for an axis: 20k, 1.5M, 0.25."""
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if limit <= size < 1e12:
            power = {"G": 1e9, "M": 1e6, "k": 1e3}[unit]
            return f"{value / power:.4g}{unit}"
    return f"{value:.4g}" if size > 1e-12 else "0"


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))
