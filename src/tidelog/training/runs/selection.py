"""Selection of the best report, and early stopping."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tidelog.errors import ConfigError, nearest
from tidelog.schema import Count, Finite
from tidelog.sinks import KEYS
from tidelog.training.runs.options import Options


class SelectionMemory(msgspec.Struct, forbid_unknown_fields=True):
    """The state of a selection in a checkpoint."""

    best: dict[Count, Finite]  # by member
    waited: dict[Count, Count]  # reports since the best one, by member


class Chosen(NamedTuple):
    """The report whose policy a run keeps as its best."""

    metric: str
    update: int
    value: float


class Selection:
    """The best value of one metric per member; a smaller loss is better, a larger value of any other metric.

    The prefix `max:` or `min:` of the metric's name sets the direction.
    """

    def __init__(self, options: Options, memory: SelectionMemory | None = None) -> None:
        self._name, self._sign = direction(options.best)
        self._patience, self._members = options.patience, 0
        self.best: dict[int, float] = {} if memory is None else dict(memory.best)
        self._waited: dict[int, int] = {} if memory is None else dict(memory.waited)

    def check(self, metrics: Collection[str]) -> None:
        """Raise ConfigError if the metric of `best` is not one of these."""
        if self._name is not None and self._name not in metrics:
            known = [name for name in metrics if name not in KEYS]
            raise ConfigError(f"best = '{self._name}': this run has no such metric; {nearest(self._name, known)}")

    def take(self, member: int, row: Mapping[str, Any]) -> bool:
        """Read a report; return True if it is the member's best so far."""
        if self._name is None:
            return False
        value = float(row.get(self._name, math.nan))  # a report may lack it, for example if no episode ended
        better = math.isfinite(value) and (
            member not in self.best or self._sign * value > self._sign * self.best[member]
        )
        if better:
            self.best[member] = value
        self._waited[member] = 0 if better else self._waited.get(member, 0) + 1
        return better

    @property
    def exhausted(self) -> bool:
        """Whether no member has had a better report for `patience` reports."""
        return self._patience is not None and bool(self._waited) and min(self._waited.values()) >= self._patience

    def best_member(self) -> int | None:
        """Return the member with the best report of all members."""
        return max(self.best, key=lambda m: self._sign * self.best[m]) if self.best else None

    def chosen(self, rows: Sequence[Mapping[str, Any]]) -> Chosen | None:
        """Return the best report of all members among the metrics of a run; None without `best=`."""
        name, member = self._name, self.best_member()
        if name is None or member is None:
            return None
        mine = (row for row in rows if row["member"] == member and row.get(name) == self.best[member])
        return next((Chosen(name, row["update"], self.best[member]) for row in mine), None)

    def memory(self) -> SelectionMemory:
        """Return the state for a checkpoint."""
        return SelectionMemory(self.best, self._waited)


def direction(best: str | None) -> tuple[str | None, float]:
    """Return the name of the metric of `best`, and 1 if a larger value is better or -1 if a smaller one is."""
    if best is None:
        return None, 1.0
    for word, sign in (("max:", 1.0), ("min:", -1.0)):
        if best.startswith(word):
            return best[len(word) :], sign
    return best, -1.0 if best.endswith("loss") else 1.0
