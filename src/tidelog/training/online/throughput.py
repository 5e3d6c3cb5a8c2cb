"""How fast rounds go, and where their time goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tidelog.training.engine.plan import RoundStep


class Throughput:
    """How fast it goes, and where the time goes: of each stage one visit a report is timed by itself."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}  # an update, or a rollout, of the last visit that was timed
        self._amounts: dict[str, int] = {}  # updates, or rollouts, since the last report
        self._fresh: set[str] = set()  # timed since then
        self._active, self._decisions = 0.0, 0  # time in chunks, and what was completed in it, since the last report
        self._rate = 0.0

    def took(self, seconds: float, decisions: int) -> None:
        """A chunk took so long and completed so many decisions."""
        self._active += seconds
        self._decisions += decisions
        if self._decisions:
            self._rate = self._decisions / max(self._active, 1e-9)

    def rate(self) -> float:
        """Decisions a second, without the time that reports and checkpoints take."""
        return self._rate

    def count(self, rows: list[RoundStep], names: tuple[str, ...]) -> None:
        """Take note of what is about to run."""
        for name, part in [stage for row in rows for stage in row.stages(names)]:
            self._amounts[name] = self._amounts.get(name, 0) + (sum(part.updates) or 1)

    def wants(self, rows: list[RoundStep], names: tuple[str, ...]) -> bool:
        """Whether these rows have a stage that was not timed since the last report."""
        return any(name not in self._fresh for row in rows for name, _ in row.stages(names))

    def timed(self, name: str, amount: int, function: Callable[[], Any]) -> Any:
        """What a function returns, its time taken down for each of an amount of updates or rollouts."""
        begin = time.monotonic()
        found = function()
        self._seconds[name] = (time.monotonic() - begin) / amount
        self._fresh.add(name)
        return found

    def report(self, members: int) -> dict[str, float]:
        """Decisions a second of all members, and the share of time of each stage."""
        spent = {name: self._seconds[name] * self._amounts.get(name, 0) for name in self._seconds}
        whole = sum(spent.values()) or 1.0
        rate = {"time/decisions_per_second": members * self.rate()}
        self._amounts, self._fresh = {}, set()
        self._active, self._decisions = 0.0, 0
        return rate | {f"time/{name}_share": seconds / whole for name, seconds in spent.items()}
