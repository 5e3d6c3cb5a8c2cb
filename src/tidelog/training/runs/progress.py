"""The progress line: the current activity, its rate, the remaining time, and the key metrics."""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, cast

from tidelog.terminal_text import printable

MOST_METRICS = 4
QUIET_SECONDS = 3.0  # before the first line, and between two lines at first
LONGEST_PAUSE = 60.0  # seconds between two lines of work that takes hours
BAR_SECONDS = 0.5
LONG_SECONDS = 30.0  # of work whose expected duration is said
SETTLED_SECONDS = 5.0  # of training, until its rate is near the later one


@dataclass(frozen=True)
class Progress:
    """The progress of a run after each chunk; `rows` are its new reports."""

    doing: str  # "compiling", "training", "validating" or "done"
    update: int  # steps done, in `unit`
    steps: int
    rate: float = 0.0  # steps per second, all members together
    left: float = 0.0  # remaining seconds
    metrics: dict[str, float] = field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()
    unit: str = "updates"
    unmeasured_reports: int = 0  # whose time is not yet part of `left`
    includes_compiling: bool = False  # `left` counts every later report like the first one, which also compiled

    def line(self, name: str) -> str:
        """Return one line for a terminal."""
        head = f"{name}  {self.update:,} / {self.steps:,} {self.unit}"
        if self.doing in ("compiling", "validating"):
            return f"{head}  {self.doing} ..."
        metrics = "  ".join(f"{k} {v:.4g}" for k, v in list(self.metrics.items())[:MOST_METRICS])
        return f"{head}  {self.rate:,.0f}/s  {_clock(self.left)} left  {metrics}"

    def expected(self) -> str:
        """Return what the rest of the run will take, by the rates that were measured."""
        text = f"about {_words(self.left)} for {self.steps - self.update:,} {self.unit} at {self.rate:,.0f}/s"
        if self.unmeasured_reports:
            return f"{text} on this machine, and {self.unmeasured_reports:,} validations whose time is not known yet"
        return f"{text} on this machine"


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{round(seconds, -1):.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Screen:
    """What long work shows: a live line on a terminal, a bar in a notebook, elsewhere a line every few seconds.

    All of it goes to standard error, except the notebook's bar. Work that ends within `QUIET_SECONDS` writes no line.
    """

    def __init__(self, name: str, show: bool | None = None) -> None:
        """`show` True asks for the live line, False for silence; None decides by where the program runs."""
        self._name = name
        self._view: _View = _Silent() if show is False else _view(name, live=show is True)

    def __enter__(self) -> Screen:
        self._view.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.end()

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self._view.note(f"note: {text}")

    def tell(self, doing: str, share: float) -> None:
        """Show the current activity, and the share of it that is done."""
        self._view.show(f"{self._name}  {doing}  {share:.0%}", share)

    def show(self, progress: Progress) -> None:
        """Show the progress of a run."""
        self._view.show(progress.line(self._name), progress.update / max(progress.steps, 1))


class _View(Protocol):
    def begin(self) -> None: ...
    def end(self) -> None: ...
    def note(self, text: str) -> None: ...
    def show(self, line: str, share: float) -> None: ...


def _view(name: str, *, live: bool) -> _View:
    if live or sys.stderr.isatty():
        return _Live(name)
    display = _notebook_display()
    return _Lines() if display is None else _Bar(display)


class _Silent:
    def begin(self) -> None: ...
    def end(self) -> None: ...
    def note(self, text: str) -> None: ...
    def show(self, line: str, share: float) -> None: ...


class _Live:
    """One line of a terminal, drawn again and again."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.text import Text

        self._console, self._text = Console(stderr=True), Text
        self._status = self._console.status(Text(name))

    def begin(self) -> None:
        self._status.start()

    def end(self) -> None:
        self._status.stop()

    def note(self, text: str) -> None:
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def show(self, line: str, share: float) -> None:
        self._status.update(self._text(printable(line)))


class _Lines:
    """Lines with the time of day, for a pipe, a file or a service's log; the longer the work takes, the fewer.

    A thread writes them: work that is silent for minutes (a compilation, a fit) still shows that it goes on. A line
    that stays the same is written again after pauses that double.
    """

    def __init__(self) -> None:
        self._line, self._ended = "", threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def note(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)  # noqa: T201

    def show(self, line: str, share: float) -> None:
        self._line = printable(line)

    def _write(self) -> None:
        start = time.monotonic()
        written, pause, again = "", 0.0, 0.0  # the last line, and when the same line is written again
        while not self._ended.wait(min(max(QUIET_SECONDS, 0.05 * (time.monotonic() - start)), LONGEST_PAUSE)):
            line, now = self._line, time.monotonic()
            if not line or (line == written and now < again):
                continue
            pause = min(2.0 * pause, LONGEST_PAUSE) if line == written else 1.5 * QUIET_SECONDS
            print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)  # noqa: T201
            written, again = line, now + pause


class _Bar:
    """A bar of plain HTML in a notebook, without widgets."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display, self._handle, self._last = display, None, 0.0

    def begin(self) -> None: ...

    def end(self) -> None:
        if self._handle is not None:
            self._handle.update({"text/html": self._html, "text/plain": self._line}, raw=True)

    def note(self, text: str) -> None:
        print(text)  # noqa: T201

    def show(self, line: str, share: float) -> None:
        self._line, now = line, time.monotonic()
        self._html = f'<progress max="1" value="{share:.4f}"></progress> <code>{html.escape(line)}</code>'
        if self._handle is None:
            self._handle = self._display({"text/html": self._html, "text/plain": line}, raw=True, display_id=True)
        elif now - self._last >= BAR_SECONDS:
            self._handle.update({"text/html": self._html, "text/plain": line}, raw=True)
            self._last = now


def _notebook_display() -> Callable[..., Any] | None:
    """Return IPython's `display` in a notebook's kernel, None elsewhere; nothing is imported for it."""
    ipython, display = sys.modules.get("IPython"), sys.modules.get("IPython.display")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or display is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    return cast("Callable[..., Any]", display.display)
