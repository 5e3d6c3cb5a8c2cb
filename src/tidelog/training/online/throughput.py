"""Throughput of rounds, and the share of time of each stage."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tidelog.training.engine.plan import RoundStep


class Throughput:
    """Decisions per second, and the time of each stage: one visit of each stage per report is timed alone."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}  # per update or rollout, at the last timed visit
        self._amounts: dict[str, int] = {}  # updates or rollouts since the last report
        self._fresh: set[str] = set()  # stages timed since the last report
        self._active, self._decisions = 0.0, 0  # seconds in chunks, and completed decisions, since the last report
        self._rate = 0.0

    def add_chunk(self, seconds: float, decisions: int) -> None:
        """Add a chunk's seconds and completed decisions."""
        self._active += seconds
        self._decisions += decisions
        if self._decisions:
            self._rate = self._decisions / max(self._active, 1e-9)

    def rate(self) -> float:
        """Return decisions per second, without the time of reports and checkpoints."""
        return self._rate

    def count(self, steps: list[RoundStep], names: tuple[str, ...]) -> None:
        """Add the updates and rollouts of round steps that are about to run."""
        for name, part in [stage for step in steps for stage in step.stages(names)]:
            self._amounts[name] = self._amounts.get(name, 0) + (sum(part.updates) or 1)

    def needs_timing(self, steps: list[RoundStep], names: tuple[str, ...]) -> bool:
        """Return whether these round steps have a stage that was not timed since the last report."""
        return any(name not in self._fresh for step in steps for name, _ in step.stages(names))

    def time_stage(self, name: str, amount: int, function: Callable[[], Any]) -> Any:
        """Return the result of a function, and record its time per update or rollout; `amount` is their number."""
        begin = time.monotonic()
        result = function()
        self._seconds[name] = (time.monotonic() - begin) / amount
        self._fresh.add(name)
        return result

    def report(self, members: int) -> dict[str, float]:
        """Return decisions per second of all members, and the share of time of each stage."""
        times = {name: self._seconds[name] * self._amounts.get(name, 0) for name in self._seconds}
        total = sum(times.values()) or 1.0
        rate = {"time/decisions_per_second": members * self.rate()}
        self._amounts, self._fresh = {}, set()
        self._active, self._decisions = 0.0, 0
        return rate | {f"time/{name}_share": seconds / total for name, seconds in times.items()}
