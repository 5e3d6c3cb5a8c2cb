"""Limits on the support that a verdict needs. Every number is a default that the caller may change.

`benchmarks/choose_limits.py` chose the first eight and describes the method; docs/judging.md reports the results.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tidelog.errors import ConfigError
from tidelog.ope.estimators.sequential import LONGEST_PRODUCT


@dataclass(frozen=True)
class Limits:
    """Conditions that a log must meet before a policy is called better or worse; ConfigError for invalid numbers.

    Example:
        >>> tl.Limits(effective_episodes=100.0, lowest_return=-10.0).looser()
        []
        >>> tl.Limits(effective_episodes=10.0).looser()
        ['effective_episodes 10 (default 50)']
    """

    effective_episodes: float = 50.0  # smallest effective sample size, in episodes
    effective_share: float = 0.01  # smallest effective sample size, as a share of all episodes
    largest_weight: float = 0.10  # largest share of the total weight on one episode
    pareto_k: float = 1.0  # largest tail index of the weights; above 1 the weights have no mean
    mean_weight_errors: float = 2.0  # largest distance of the mean weight from 1, in its standard errors
    unsupported_mass: float = 0.10  # largest share of the target's actions that the logger hardly took
    unshown_share: float = 0.10  # largest excess over the logger's share of actions that no other episode shows
    earning_episodes: float = 4.0  # smallest number of episodes that carry the difference, where rewards are rare
    carrying_episodes: float = 10.0  # smallest such number where occupancy ratios decide
    horizon: int = LONGEST_PRODUCT  # longer episodes are judged by occupancy ratios, not by products of ratios
    odds_ratio: float = 1.5  # estimated propensities may be wrong by this factor in the odds; "better" must still hold
    overlap: float = 0.01  # largest share of the judged episodes that the policy may have learnt from
    margin: float = 0.05  # a simple rule is "no worse" if it loses less, in standard deviations of logged returns
    lowest_return: float | None = None  # lowest possible return of an episode; None: the lowest in the log
    highest_return: float | None = None  # highest possible return; both bound what the log does not show
    level: float = 0.95  # of all intervals, two-sided
    replicates: int = 2000  # bootstrap samples
    groups: int = 10_000  # largest number of groups of episodes that the bootstrap resamples

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is None and limit.name in OPTIONAL:
                continue
            whole = limit.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or value != value:
                raise ConfigError(f"{limit.name} = {value!r}: expected a {'whole ' * whole}number")
            low, high = _RANGES[limit.name]
            if not low <= value <= high:
                raise ConfigError(f"{limit.name} = {value}: expected {low:g} to {high:g}")

    def looser(self) -> list[str]:
        """Return the limits that allow more than the defaults do, each with both numbers."""
        changed = {name: (getattr(self, name), getattr(DEFAULTS, name)) for name in (*FLOORS, *CEILINGS)}
        looser = {name: (own < usual) if name in FLOORS else (own > usual) for name, (own, usual) in changed.items()}

        def text(name: str, value: float) -> str:
            return f"{100 * value:g}%" if name == "level" else f"{value:g}"

        return [
            f"{name} {text(name, changed[name][0])} (default {text(name, changed[name][1])})"
            for name, is_looser in looser.items()
            if is_looser
        ]


OPTIONAL = ("lowest_return", "highest_return")
FLOORS = ("effective_episodes", "effective_share", "earning_episodes", "carrying_episodes", "odds_ratio", "level")
CEILINGS = ("largest_weight", "pareto_k", "mean_weight_errors", "unsupported_mass", "unshown_share", "overlap")
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
    "margin": (0.0, _ANY),
    "lowest_return": (-1e300, 1e300),
    "highest_return": (-1e300, 1e300),
    "level": (0.5, 0.9999),
    "replicates": (1000, 1_000_000),
    "groups": (100, 1_000_000),
}
DEFAULTS = Limits()
