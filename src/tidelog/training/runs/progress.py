"""The progress line: the current activity, its rate, the remaining time, and the key metrics."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

MOST_METRICS = 4


@dataclass(frozen=True)
class Progress:
    """The progress of a run after each chunk; `rows` are its new reports."""

    doing: str  # "compiling", "training" or "done"
    update: int  # steps done, in `unit`
    steps: int
    rate: float = 0.0  # steps per second, all members together
    left: float = 0.0  # remaining seconds
    metrics: dict[str, float] = field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()
    unit: str = "updates"

    def line(self, name: str) -> str:
        """Return one line for a terminal."""
        head = f"{name}  {self.update:,} / {self.steps:,} {self.unit}"
        if self.doing == "compiling":
            return f"{head}  compiling ..."
        metrics = "  ".join(f"{k} {v:.4g}" for k, v in list(self.metrics.items())[:MOST_METRICS])
        return f"{head}  {self.rate:,.0f}/s  {_clock(self.left)} left  {metrics}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Screen:
    """A live line on standard error if that is a terminal, otherwise nothing."""

    def __init__(self, name: str, show: bool | None = None) -> None:
        self._name = name
        self._show = sys.stderr.isatty() if show is None else show
        self._status: Any = None

    def __enter__(self) -> Screen:
        if self._show:
            from rich.console import Console

            self._status = Console(stderr=True).status(self._name)
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def tell(self, doing: str, share: float) -> None:
        """Show the current activity, and the share of it that is done."""
        if self._status is not None:
            self._status.update(f"{self._name}  {doing}  {share:.0%}")

    def show(self, progress: Progress) -> None:
        """Redraw the line."""
        if self._status is not None:
            self._status.update(progress.line(self._name))
