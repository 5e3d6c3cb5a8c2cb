"""Flags that declare how the decisions of a log were drawn, in place of a column of the mapping."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from typing import Annotated, Any

from tidelog.data.columns import Columns
from tidelog.data.declared import SHARES
from tidelog.errors import ConfigError


@dataclass(kw_only=True)
class RandomisedFlag:
    """The flag that declares a randomised log."""

    randomised: bool = False
    """each action was drawn at random with its own share of the log, as with --propensity shares"""


@dataclass(kw_only=True)
class DeclaredFlags(RandomisedFlag):
    """Flags that declare how the decisions of a log were drawn."""

    propensity: Annotated[str, "VALUE"] | None = None
    """how decisions were drawn, if no column says it: 0.5 for every action, "{ A = 0.7, B = 0.3 }", shares (each
    action's own), or "{ shares_by = ['village'] }"; for tables also a column of recorded propensities"""


def declared_value(propensity: str | None, randomised: bool) -> Any:
    """What `--propensity` or `--randomised` declare, None without them; ConfigError for both."""
    if randomised and propensity is not None:
        raise ConfigError("--propensity and --randomised are both set", fix="set only one of them")
    if randomised:
        return SHARES
    if propensity is None:
        return None
    try:
        return tomllib.loads(f"propensity = {propensity}")["propensity"]
    except tomllib.TOMLDecodeError:
        return propensity


def with_declared(columns: str | None, value: Any) -> str | Columns | None:
    """The mapping file, or its content with another `propensity`; ConfigError for a log without a mapping."""
    if value is None:
        return columns
    if columns is None:
        raise ConfigError(
            "--propensity and --randomised are for tables with a mapping",
            fix="add --columns FILE, or judge the log with `tidelog judge --randomised`",
        )
    return replace(Columns.from_file(columns), propensity=value)
