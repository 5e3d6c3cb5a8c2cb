"""Flags for the columns of interaction tables."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tidelog.cli.flags import Column, File, pairs
from tidelog.data.io.readers import Source, is_table
from tidelog.errors import ConfigError
from tidelog.folders import MANIFEST
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.interactions.readers import open_interactions, read_by_roles
from tidelog.recommend.interactions.saved_fields import INTERACTIONS
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


def roles_of(options: InteractionFlags) -> Roles | None:
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
    return Roles(**roles)


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
    roles = roles_of(options)
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
