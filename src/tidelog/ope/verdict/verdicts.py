"""Table of verdicts on several policies that were judged together; their intervals hold simultaneously."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.errors import ConfigError, nearest
from tidelog.ope.verdict.results import Verdict


@dataclass(frozen=True, eq=False)
class Verdicts(Sequence[Verdict]):
    """Verdicts in the order of the policies, by position or by name."""

    names: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    level: float  # confidence with which the intervals cover all differences simultaneously

    def __len__(self) -> int:
        return len(self.verdicts)

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, str):
            return self.verdicts[which]
        if which not in self.names:
            raise ConfigError(f"unknown policy '{which}': {nearest(which, self.names)}")
        return self.verdicts[self.names.index(which)]

    def items(self) -> Iterator[tuple[str, Verdict]]:
        """Pairs of name and verdict."""
        return zip(self.names, self.verdicts, strict=True)

    @property
    def better(self) -> tuple[str, ...]:
        """Policies that are better than the logger, simultaneously."""
        return tuple(name for name, one in self.items() if one.decision == "better")

    @property
    def best(self) -> str | None:
        """Supported policy with the highest lower end of the difference from the logger; None if there is none."""
        low = {name: one.difference.low for name, one in self.items() if one.decision != "unsupported"}
        return max(low, key=lambda name: low[name]) if low else None

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row per policy: name, decision, difference from the logger with its simultaneous interval."""
        return [table_row(name, one) for name, one in self.items()]

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists: level, best, better and every verdict."""
        return {
            "level": self.level,
            "best": self.best,
            "better": list(self.better),
            "verdicts": {name: one.to_json() for name, one in self.items()},
        }


def table_row(name: str, verdict: Verdict) -> dict[str, Any]:
    """Row of one policy in the table of several."""
    return {
        "name": name,
        "decision": verdict.decision,
        "difference": verdict.difference.estimate,
        "low": verdict.difference.low,
        "high": verdict.difference.high,
        "effective_sample_size": verdict.support.effective_sample_size,
    }


def combine_verdicts(names: tuple[str, ...], verdicts: Sequence[Verdict], level: float) -> Verdicts:
    """Combine verdicts; each one stores the table in its context."""
    rows = [table_row(name, one) for name, one in zip(names, verdicts, strict=True)]
    combined = [replace(one, context={**one.context, "together": {"level": level, "rows": rows}}) for one in verdicts]
    return Verdicts(names, tuple(combined), level)


def named_policies(policy: Any) -> dict[str, Any] | None:
    """Several policies by name, None for one policy; sequences are named by position. ConfigError for equal names."""
    if isinstance(policy, Mapping):
        policies = {str(name): one for name, one in policy.items()}
    elif isinstance(policy, list | tuple):
        policies = {f"policy {position}": one for position, one in enumerate(policy)}
    else:
        return None
    if not policies:
        raise ConfigError("no policy to judge: expected one policy, or a list or mapping with at least one")
    if len(policies) < len(policy):
        raise ConfigError(f"policy names = {list(policy)}: expected names that differ as text")
    return policies
