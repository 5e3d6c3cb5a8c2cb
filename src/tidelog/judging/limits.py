"""How much support a verdict needs. Every number here is a default that the caller may change, and says why it stands.

The first eight were chosen by `benchmarks/choose_limits.py`, whose page says how; docs/judging.md says what came of it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tidelog.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """What a log must show before a policy is called better or worse; ConfigError where a number cannot be meant."""

    effective_episodes: float = 50.0  # the effective sample size is at least so many episodes,
    effective_share: float = 0.01  # and at least this share of all of them
    largest_weight: float = 0.10  # no episode has more than this share of all weight
    pareto_k: float = 1.0  # the tail index of the weights; above it they have no mean
    mean_weight_errors: float = 2.0  # the mean weight is 1 within so many of its standard errors
    unsupported_mass: float = 0.10  # at most this share of the target's actions is one that the logger hardly took
    unshown_share: float = 0.10  # of the policy's actions that no other episode shows, beyond the logger's own
    earning_episodes: float = 4.0  # so many episodes, at least, carry the difference where rewards are rare,
    carrying_episodes: float = 10.0  # and so many where ratios of visits decide
    horizon: int = 50  # longer episodes are judged by ratios of visits and not by products of ratios
    odds_ratio: float = 1.5  # estimated propensities may be wrong by this factor in the odds, and "better" must stand
    overlap: float = 0.01  # at most this share of the judged episodes was learnt from
    lowest_return: float | None = None  # the least that an episode can return, if known; None: the least in the log,
    highest_return: float | None = None  # and the most: what the policy does and the log never shows may earn either
    level: float = 0.95  # of all intervals, two-sided
    replicates: int = 2000  # bootstrap samples
    groups: int = 10_000  # the bootstrap runs over at most so many groups of episodes

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in OPTIONAL:
                continue
            whole = field.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or value != value:
                raise ConfigError(f"{field.name} = {value!r}: expected a {'whole ' * whole}number")
            low, high = _RANGES[field.name]
            if not low <= value <= high:
                raise ConfigError(f"{field.name} = {value}: expected {low:g} to {high:g}")


OPTIONAL = ("lowest_return", "highest_return")
_ANY = float("inf")
_RANGES: dict[str, tuple[float, Any]] = {
    "effective_episodes": (1.0, _ANY),
    "effective_share": (0.0, 1.0),
    "largest_weight": (0.0, 1.0),
    "pareto_k": (-_ANY, _ANY),
    "mean_weight_errors": (0.0, _ANY),
    "unsupported_mass": (0.0, 1.0),
    "unshown_share": (0.0, 1.0),
    "earning_episodes": (0.0, _ANY),
    "carrying_episodes": (0.0, _ANY),
    "horizon": (1, _ANY),
    "odds_ratio": (1.0, 1e6),
    "overlap": (0.0, 1.0),
    "lowest_return": (-1e300, 1e300),
    "highest_return": (-1e300, 1e300),
    "level": (0.5, 0.9999),
    "replicates": (1000, 1_000_000),
    "groups": (100, 1_000_000),
}
