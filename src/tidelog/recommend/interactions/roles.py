"""The roles of the columns of an interaction table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from numbers import Real
from pathlib import Path
from typing import Any

from tidelog.errors import ConfigError, nearest

NAMED = ("user", "item", "time", "event", "session", "propensity", "slate")


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The column of each role; ConfigError for invalid values.

    `reward`: a column of numbers, or the reward of each kind of event; None: every event has reward 1. A session ends
    where `session` changes, and after a pause longer than `session_gap` (in the unit of numeric times, in seconds for
    dates, or a timedelta). `slate`: a column of lists (or text such as `a|b|c`) of the shown items.
    `item_features`, `user_features`: tables with one row per id, in a column of the same name; numbers, words, or
    words such as `cheap|quiet`.
    """

    user: str
    item: str
    time: str
    event: str | None = None
    reward: Mapping[str, float] | str | None = None
    session: str | None = None
    session_gap: float | timedelta | None = None
    propensity: str | None = None
    slate: str | None = None
    item_features: Any = None
    user_features: Any = None

    def __new__(cls, **options: Any) -> Roles:
        """Refuse unknown names before the fields are set."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise ConfigError(f"read_interactions has no argument '{name}': {nearest(name, known)}")
        missing = [name for name in ("user", "item", "time") if options.get(name) is None]
        if missing:
            raise ConfigError(f"{' and '.join(missing)} is not set. fix: name a column of the interactions")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for role in NAMED:
            value = getattr(self, role)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"{role} = {value!r}: expected the name of one column")
        object.__setattr__(self, "session_gap", _seconds(self.session_gap))
        self._check_reward()

    def _check_reward(self) -> None:
        if self.reward is None or (isinstance(self.reward, str) and self.reward):
            return
        if not isinstance(self.reward, Mapping) or not self.reward:
            raise ConfigError(f"reward = {self.reward!r}: expected a column, or the reward of each kind of event")
        if self.event is None:
            raise ConfigError("reward maps kinds of events to rewards: the column event= is missing. fix: name it")
        for kind, worth in self.reward.items():
            usable = isinstance(worth, Real) and not isinstance(worth, bool) and math.isfinite(worth)
            if not isinstance(kind, str):
                raise ConfigError(f"reward has the kind {kind!r}: expected text. fix: write {str(kind)!r}")
            if not usable:
                raise ConfigError(f"reward[{kind!r}] = {worth!r}: expected a finite number for each kind of event")

    def used(self) -> dict[str, str]:
        """Role -> its column."""
        named = {role: getattr(self, role) for role in NAMED}
        if isinstance(self.reward, str):
            named["reward"] = self.reward
        return {role: name for role, name in named.items() if name is not None}

    def to_json(self) -> dict[str, Any] | None:
        """Plain values that rebuild the roles; None if features are frames, which have no path."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("item_features", "user_features"):
            if plain[name] is not None and not isinstance(plain[name], str | Path):
                return None
            plain[name] = None if plain[name] is None else str(Path(plain[name]).absolute())
        plain["reward"] = dict(self.reward) if isinstance(self.reward, Mapping) else self.reward
        return {name: value for name, value in plain.items() if value is not None}


def _seconds(gap: Any) -> float | None:
    if gap is None:
        return None
    value: Any = gap.total_seconds() if isinstance(gap, timedelta) else gap
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not (math.isfinite(value) and value > 0):
        raise ConfigError(f"session_gap = {gap!r}: expected a positive number, or a timedelta")
    return float(value)
