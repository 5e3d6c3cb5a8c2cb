"""Which report was the best, and whether it is time to stop."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from tidelog.errors import ConfigError, nearest
from tidelog.training.runs.options import Options
from tidelog.training.runs.sinks import KEYS


class Selection:
    """Remembers the best value of one metric a member; a loss is better when smaller, all else when larger.

    `max:` or `min:` before the metric's name says it outright.
    """

    def __init__(self, options: Options, memory: Mapping[str, Any] | None = None) -> None:
        self._name, self._sign = _direction(options.best)
        self._patience, self._members = options.patience, 0
        memory = memory or {}
        self.best: dict[int, float] = {int(k): v for k, v in memory.get("best", {}).items()}
        self._waited: dict[int, int] = {int(k): v for k, v in memory.get("waited", {}).items()}

    def check(self, metrics: Collection[str]) -> None:
        """Raise ConfigError where the metric that picks the best is none of these."""
        if self._name is not None and self._name not in metrics:
            known = [name for name in metrics if name not in KEYS]
            raise ConfigError(f"best = '{self._name}' is no metric of this run: {nearest(self._name, known)}")

    def take(self, member: int, row: Mapping[str, Any]) -> bool:
        """Look at a report; True where it is the member's best so far."""
        if self._name is None:
            return False
        value = float(row.get(self._name, math.nan))  # a report may lack it: say, where no episode ended
        better = math.isfinite(value) and (
            member not in self.best or self._sign * value > self._sign * self.best[member]
        )
        if better:
            self.best[member] = value
        self._waited[member] = 0 if better else self._waited.get(member, 0) + 1
        return better

    @property
    def exhausted(self) -> bool:
        """Whether every member has gone without a better report for as long as patience lasts."""
        return self._patience is not None and bool(self._waited) and min(self._waited.values()) >= self._patience

    def best_member(self) -> int | None:
        """The member whose best report is the best of all."""
        return max(self.best, key=lambda m: self._sign * self.best[m]) if self.best else None

    def memory(self) -> dict[str, Any]:
        """What a checkpoint has to hold."""
        return {"best": self.best, "waited": self._waited}


def _direction(best: str | None) -> tuple[str | None, float]:
    if best is None:
        return None, 1.0
    for word, sign in (("max:", 1.0), ("min:", -1.0)):
        if best.startswith(word):
            return best[len(word) :], sign
    return best, -1.0 if best.endswith("loss") else 1.0
