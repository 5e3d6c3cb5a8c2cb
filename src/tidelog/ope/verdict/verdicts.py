"""Verdicts on several policies that were judged at once, as one table: their intervals hold together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.errors import ConfigError, nearest
from tidelog.ope.verdict.results import Verdict


@dataclass(frozen=True, eq=False)
class Verdicts(Sequence[Verdict]):
    """Verdicts in the order in which the policies were given; by position or by name."""

    names: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    level: float  # with which the intervals cover all differences at the same time

    def __len__(self) -> int:
        return len(self.verdicts)

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, str):
            return self.verdicts[which]
        if which not in self.names:
            raise ConfigError(f"there is no policy '{which}': {nearest(which, self.names)}")
        return self.verdicts[self.names.index(which)]

    def items(self) -> Iterator[tuple[str, Verdict]]:
        """Names with their verdicts."""
        return zip(self.names, self.verdicts, strict=True)

    @property
    def better(self) -> tuple[str, ...]:
        """The policies that are better than the logger, all of them at the same time."""
        return tuple(name for name, one in self.items() if one.decision == "better")

    @property
    def best(self) -> str | None:
        """The supported policy whose difference from the logger has the highest lower end; None without any."""
        low = {name: one.difference.low for name, one in self.items() if one.decision != "unsupported"}
        return max(low, key=lambda name: low[name]) if low else None

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row a policy: name, decision, the difference from the logger and its simultaneous interval."""
        return [table_row(name, one) for name, one in self.items()]

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists: level, best, the table and every verdict."""
        return {
            "level": self.level,
            "best": self.best,
            "better": list(self.better),
            "verdicts": {name: one.to_json() for name, one in self.items()},
        }


def table_row(name: str, verdict: Verdict) -> dict[str, Any]:
    """What a table of several policies says about one."""
    return {
        "name": name,
        "decision": verdict.decision,
        "difference": verdict.difference.estimate,
        "low": verdict.difference.low,
        "high": verdict.difference.high,
        "effective_sample_size": verdict.support.effective_sample_size,
    }


def together(names: tuple[str, ...], verdicts: Sequence[Verdict], level: float) -> Verdicts:
    """The table of verdicts, each of which keeps it in its context."""
    rows = [table_row(name, one) for name, one in zip(names, verdicts, strict=True)]
    kept = [replace(one, context={**one.context, "together": {"level": level, "rows": rows}}) for one in verdicts]
    return Verdicts(names, tuple(kept), level)


def named_policies(policy: Any) -> dict[str, Any] | None:
    """Several policies by name, None for one; a sequence is named by position. ConfigError for names that repeat."""
    if isinstance(policy, Mapping):
        found = {str(name): one for name, one in policy.items()}
    elif isinstance(policy, list | tuple):
        found = {f"policy {position}": one for position, one in enumerate(policy)}
    else:
        return None
    if not found:
        raise ConfigError("there is no policy to judge: pass one policy, or a list or mapping that holds some")
    if len(found) < len(policy):
        raise ConfigError(f"names of policies must differ as text, found {list(policy)}")
    return found
