"""Which column of a table of interactions holds what."""

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
    """Which column holds what; ConfigError for values that cannot be meant.

    `reward`: a column of numbers, or what each kind of event is worth; None: every event is worth 1. A session ends
    where `session` changes, and after a pause longer than `session_gap` (in the unit of numeric times, in seconds for
    dates, or a timedelta). `slate`: a column of lists (or text such as `a|b|c`) of the items that were shown.
    `item_features`, `user_features`: tables with one row an id, in a column of the same name; numbers, words, or
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

    def __new__(cls, **given: Any) -> Roles:
        """Refuse unknown names before the fields are set."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise ConfigError(f"read_interactions has no argument '{name}': {nearest(name, known)}")
        lacking = [name for name in ("user", "item", "time") if given.get(name) is None]
        if lacking:
            raise ConfigError(f"{' and '.join(lacking)} must name a column of the interactions")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for role in NAMED:
            value = getattr(self, role)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"{role} must name one column, found {value!r}")
        object.__setattr__(self, "session_gap", _seconds(self.session_gap))
        self._check_reward()

    def _check_reward(self) -> None:
        if self.reward is None or (isinstance(self.reward, str) and self.reward):
            return
        if not isinstance(self.reward, Mapping) or not self.reward:
            raise ConfigError(
                f"reward must name a column, or say what each kind of event is worth, found {self.reward!r}"
            )
        if self.event is None:
            raise ConfigError("reward says what each kind of event is worth, and no column says the kind: name event=")
        for kind, worth in self.reward.items():
            usable = isinstance(worth, Real) and not isinstance(worth, bool) and math.isfinite(worth)
            if not isinstance(kind, str):
                raise ConfigError(f"reward names the kind {kind!r}: kinds are text, write {str(kind)!r}")
            if not usable:
                raise ConfigError(f"reward[{kind!r}] = {worth!r}: expected a finite number for each kind of event")

    def used(self) -> dict[str, str]:
        """Role -> the column that it reads."""
        named = {role: getattr(self, role) for role in NAMED}
        if isinstance(self.reward, str):
            named["reward"] = self.reward
        return {role: name for role, name in named.items() if name is not None}

    def to_json(self) -> dict[str, Any] | None:
        """Plain values that rebuild it; None where features are frames, which no file can name."""
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
