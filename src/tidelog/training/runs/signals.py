"""Deferred SIGINT and SIGTERM: the loop finishes its chunk, saves, and then exits."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

CAUGHT = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """In this context the first signal is stored in `received`; a second SIGINT interrupts at once.

    Outside the main thread no signal is caught. One of `several` processes that has received a signal, which may be
    that of another one, ignores those that come after this context: its own may be late, and all end together.
    """

    def __init__(self, several: bool = False) -> None:
        self.received: int | None = None
        self._several = several
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._remember) for number in CAUGHT}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = self._several and self.received is not None
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if ending else handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number

    def leave(self) -> None:
        """Raise KeyboardInterrupt (SIGINT) or SystemExit(143) (SIGTERM) for a received signal."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is not None:
            raise SystemExit(128 + self.received)
