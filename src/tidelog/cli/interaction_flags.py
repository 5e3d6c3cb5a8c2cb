"""Flags that say which column of a table of interactions is what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.cli.flags import pairs
from tidelog.data.io.readers import is_table
from tidelog.errors import ConfigError
from tidelog.folders import MANIFEST
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.interactions.readers import open_interactions, read_by_roles
from tidelog.recommend.interactions.roles import NAMED, Roles
from tidelog.recommend.interactions.storage import INTERACTIONS


@dataclass(kw_only=True)
class Taken:
    """For tables of interactions."""

    user: str | None = None
    """interactions: the column of users"""
    item: str | None = None
    """interactions: the column of items"""
    time: str | None = None
    """interactions: the column of times, numbers or dates"""
    event: str | None = None
    """interactions: the column of the kind of event"""
    reward: tuple[str, ...] = ()
    """interactions: a column, or what each kind of event is worth, as KIND=NUMBER"""
    session: str | None = None
    """interactions: a column that changes where a session ends"""
    session_gap: float | None = None
    """interactions: a longer pause ends a session; in seconds for dates, else in the unit of the times"""
    propensity: str | None = None
    """interactions: the column of the probability with which the item was shown"""
    slate: str | None = None
    """interactions: the column of lists (or text such as a|b|c) of the items that were shown"""
    item_features: str | None = None
    """interactions: a table with one row an item"""
    user_features: str | None = None
    """interactions: a table with one row a user"""


def roles_of(options: Taken) -> Roles | None:
    """The roles that flags name; None where none does, ConfigError where some lack or contradict each other."""
    named: dict[str, Any] = {name: getattr(options, name) for name in (*NAMED, "item_features", "user_features")}
    named["session_gap"] = options.session_gap
    named["reward"] = _reward(options.reward)
    given = {name: value for name, value in named.items() if value is not None}
    if not given:
        return None
    lacking = [f"--{name}" for name in ("user", "item", "time") if name not in given]
    if lacking:
        raise ConfigError(f"a table of interactions has users, items and times: name {' and '.join(lacking)} too")
    return Roles(**given)


def _reward(words: tuple[str, ...]) -> str | dict[str, float] | None:
    if not words:
        return None
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    expected = "one column, or KIND=NUMBER for each kind of event, as in click=0.2 buy=1"
    found = pairs(words, expected)
    try:
        return {kind: float(worth) for kind, worth in found.items()}
    except ValueError as error:
        raise ConfigError(f"--reward {' '.join(words)}: expected {expected}") from error


def stand_at(source: str) -> bool:
    """Whether a folder holds saved interactions."""
    return (Path(source) / MANIFEST).exists() and INTERACTIONS.stands_at(Path(source))


def read_taken(source: str, options: Taken) -> Interactions:
    """The interactions of a table, or of a saved folder; ConfigError where flags lack or are superfluous."""
    roles = roles_of(options)
    if roles is not None:
        return read_by_roles(source, roles)
    if is_table(source):
        raise ConfigError(
            f"{source} is a table, and no flag says which column is what: --user U --item I --time T "
            f"(`tidelog data inspect {source}` shows its columns)"
        )
    return open_interactions(source)
