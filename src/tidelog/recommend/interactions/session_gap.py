"""Times of a log: the pause that ends a session, in their unit, and epoch times as dates."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from numbers import Real
from typing import Any

import numpy as np

from tidelog.data.core.raw import Column, Finding
from tidelog.errors import ConfigError

_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}  # ticks in a second
_YEARS = 1e8, 1e10  # seconds since 1970 of times that are likely: from 1973 to 2286
_SHORT = 60.0  # seconds; a gap that is shorter is likely meant in another unit
_TEXT = re.compile(r"(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*([a-z]*)")
_EXPECTED = "a positive number, one with a unit, such as '30min' (ms, s, min, h, d), or a timedelta"


def checked_gap(gap: Any) -> float | str | None:
    """Return a gap as a number without a unit or as text with one; ConfigError for anything else."""
    if gap is None:
        return None
    if isinstance(gap, timedelta):
        gap = f"{gap.total_seconds()!r}s"
    if isinstance(gap, str):
        match = _TEXT.fullmatch(gap.strip())
        if match is not None and match[2] in ("", *_SECONDS) and 0 < float(match[1]) < math.inf:
            return f"{match[1]}{match[2]}" if match[2] else float(match[1])
    elif isinstance(gap, Real) and not isinstance(gap, bool) and 0 < float(gap) < math.inf:
        return float(gap)
    raise ConfigError(f"session_gap = {gap!r}: expected {_EXPECTED}. fix: write 1800, or '30min'")


def gap_in_times(gap: float | str | None, time: Column | None) -> tuple[float | None, Finding | None]:
    """Return a checked gap in the unit of the times, in seconds for dates; or a finding where its unit is unclear."""
    if gap is None or time is None or not time.usable.any():
        return None, None
    text, unit = (str(gap), "") if isinstance(gap, float) else _parts(gap)
    number = float(text)
    if time.values.dtype.kind == "M":
        return number * _SECONDS.get(unit, 1.0), None
    middle = float(np.median(time.values[time.usable]))
    epoch = _epoch_of(middle)
    if unit and epoch is None:
        found = f"times such as {middle:g}, neither dates nor epoch times, and session_gap = {gap!r} with a unit"
        fix = "give session_gap as a number, in the unit of this column"
        return None, Finding(time.name, None, found, "dates or epoch times where session_gap has a unit", fix)
    ticks = _EPOCH[epoch] if epoch else 1.0
    if not unit and ticks > 1.0 and number < _SHORT * ticks:
        found = f"epoch {epoch}, so session_gap = {number:g} means {number / ticks:g} seconds"
        fix = f"write session_gap '{number:g}s' for seconds, or '{number / ticks:g}s' if you mean that"
        return None, Finding(time.name, None, found, "a session_gap of a minute or more, or one with a unit", fix)
    return number * (_SECONDS[unit] * ticks if unit else 1.0), None


def moment_text(moment: Any) -> str:
    """Write a moment of a log: dates and likely epoch times as dates, other numbers without an empty fraction."""
    if isinstance(moment, np.datetime64):
        return str(moment)
    epoch = _epoch_of(float(moment))
    if epoch is None:
        return f"{float(moment):.10g}"
    return str(np.datetime64(round(float(moment) / _EPOCH[epoch]), "s")).replace("T", " ")


def _epoch_of(moment: float) -> str | None:
    """Return the unit in which a number is a likely time since 1970, None if there is none."""
    return next((name for name, many in _EPOCH.items() if _YEARS[0] * many <= moment < _YEARS[1] * many), None)


def _parts(gap: str) -> tuple[str, str]:
    number = gap.rstrip("".join(sorted(set("".join(_SECONDS)))))
    return number, gap[len(number) :]
