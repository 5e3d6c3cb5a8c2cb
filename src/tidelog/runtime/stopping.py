"""Work that ends when nobody waits for its result: long loops call `check`, and who starts the work may stop it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HERE = threading.local()


class StoppedError(Exception):
    """The work was stopped; it has no result."""


@contextmanager
def stoppable(stop: threading.Event) -> Iterator[None]:
    """Let `check` raise StoppedError in this thread once the event is set."""
    before = getattr(_HERE, "stop", None)
    _HERE.stop = stop
    try:
        check()
        yield
    finally:
        _HERE.stop = before


def check() -> None:
    """Raise StoppedError if the work of this thread was stopped."""
    stop = getattr(_HERE, "stop", None)
    if stop is not None and stop.is_set():
        raise StoppedError
