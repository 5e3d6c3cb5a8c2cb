"""Flags for the columns of interaction tables."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from tidelog.cli.flags import Column, File, pairs
from tidelog.data.io.readers import Source, is_table
from tidelog.data.parsing.column import moment
from tidelog.data.sources import table_of
from tidelog.errors import ConfigError
from tidelog.folders import MANIFEST
from tidelog.recommend.interactions.log import INTERACTIONS, Interactions
from tidelog.recommend.interactions.readers import open_interactions, read_by_roles
from tidelog.recommend.interactions.tables import NAMED, Roles


@dataclass(kw_only=True)
class InteractionFlags:
    """Flags of interaction tables."""

    user: Column | None = None
    """the column of users"""
    item: Column | None = None
    """the column of items"""
    time: Column | None = None
    """the column of times, numbers or dates"""
    event: Column | None = None
    """the column of the kind of event"""
    reward: tuple[Annotated[str, "COLUMN|KIND=NUMBER"], ...] = ()
    """a column, or the reward of each kind of event, as KIND=NUMBER"""
    reward_unit: Annotated[str, "UNIT"] | None = None
    """the unit of rewards, such as EUR, which reports show"""
    session: Column | None = None
    """a column whose change marks a new session"""
    session_gap: Annotated[str, "NUMBER|30min"] | None = None
    """a longer pause ends a session: with a unit (s, min, h, d) for dates and epoch times; a number is in seconds for
    dates, else in the unit of the times"""
    propensity: Column | None = None
    """the column of the probability of showing the item"""
    slate: Column | None = None
    """the column of lists (or text such as a|b|c) of the shown items"""
    item_features: File | None = None
    """a table with one row per item"""
    user_features: File | None = None
    """a table with one row per user"""


_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}  # ticks in a second
_YEARS = 1e8, 1e10  # seconds since 1970 of times that are likely: from 1973 to 2286
_SHORT = 60.0  # seconds; a gap that is shorter is likely meant in another unit


def roles_of(options: InteractionFlags, source: Source) -> Roles | None:
    """The roles in the flags; None without such flags, ConfigError if some are missing or contradict each other."""
    named: dict[str, Any] = {name: getattr(options, name) for name in (*NAMED, "item_features", "user_features")}
    named |= {"session_gap": options.session_gap, "reward_unit": options.reward_unit}
    named["reward"] = _reward(options.reward)
    roles = {name: value for name, value in named.items() if value is not None}
    if not roles:
        return None
    missing = [f"--{name}" for name in ("user", "item", "time") if name not in roles]
    if missing:
        raise ConfigError(f"an interaction table needs --user, --item and --time. fix: add {' and '.join(missing)}")
    if options.session_gap is not None:
        roles["session_gap"] = _gap(options.session_gap, source, str(options.time))
    return Roles(**roles)


def _gap(text: str, source: Source, time: str) -> float:
    """The gap in the unit of the times; ConfigError if the unit is unknown, or likely not the one that is meant."""
    match = re.fullmatch(r"([\d.]+(?:[eE][+-]?\d+)?)\s*([a-z]*)", text.strip())
    expected = "expected a number, or one with a unit, such as 30min (ms, s, min, h, d)"
    if match is None or match[2] not in ("", *_SECONDS):
        raise ConfigError(f"--session-gap {text}: {expected}")
    try:
        number = float(match[1])
    except ValueError as error:
        raise ConfigError(f"--session-gap {text}: {expected}") from error
    table = table_of(source)
    times = moment(table.series(time)) if table.has(time) else None
    if times is None or not times.usable.any():
        return number  # reading the table reports the column
    ticks = 1.0
    if times.values.dtype.kind != "M":
        middle = float(np.median(times.values[times.usable]))
        units = [unit for unit, many in _EPOCH.items() if _YEARS[0] * many <= middle < _YEARS[1] * many]
        if match[2] and not units:
            raise ConfigError(
                f"--session-gap {text}: the times in '{time}' are numbers such as {middle:g}, neither dates nor epoch "
                f"times, so their unit is unknown. fix: give the gap in the unit of '{time}'"
            )
        ticks = _EPOCH[units[0]] if units else 1.0
        if not match[2] and units and number < _SHORT * ticks and ticks > 1.0:
            raise ConfigError(
                f"--session-gap {text}: the times in '{time}' are epoch {units[0]}, so this means "
                f"{number / ticks:g} seconds. fix: write --session-gap {match[1]}s for seconds, or "
                f"--session-gap {number / ticks:g}s if you mean that"
            )
    return number * _SECONDS[match[2]] * ticks if match[2] else number


def _reward(words: tuple[str, ...]) -> str | dict[str, float] | None:
    if not words:
        return None
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    expected = "one column, or KIND=NUMBER for each kind of event, such as click=0.2 buy=1"
    rewards = pairs(words, expected)
    try:
        return {kind: float(worth) for kind, worth in rewards.items()}
    except ValueError as error:
        raise ConfigError(f"--reward {' '.join(words)}: expected {expected}") from error


def is_saved_interactions(source: Source) -> bool:
    """Whether a folder holds saved interactions."""
    return isinstance(source, str | Path) and (Path(source) / MANIFEST).exists() and INTERACTIONS.is_at(Path(source))


def read_from_flags(source: Source, options: InteractionFlags) -> Interactions:
    """Read interactions from a table or a saved folder; ConfigError if flags are missing or not needed."""
    roles = roles_of(options, source)
    if roles is not None:
        return read_by_roles(source, roles)
    paths = [str(source)] if isinstance(source, str | Path) else [str(path) for path in source]
    shown = " ".join(paths)
    if is_table(source):
        raise ConfigError(
            f"{shown} is a table without flags for its columns. fix: add --user U --item I --time T "
            f"(`tidelog data inspect --data {shlex.join(paths)}` proposes them)"
        )
    return open_interactions(shown)
