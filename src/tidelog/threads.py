"""A function on several threads, and native libraries on one for a while, whatever number of threads ask for it.

The limit of the libraries holds for the whole process. Where each Python thread sets it and restores what it found, the
last to leave may restore the limit of another: NumPy then stays on one thread, and later sums round differently.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

from threadpoolctl import ThreadpoolController

Library = Literal["blas", "openmp"]


class _Limit:
    """The limit of one kind of library: set by the first thread that enters, lifted by the last that leaves."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.inside = 0
        self.lock = threading.Lock()
        self.controller: ThreadpoolController | None = None
        self.limiter: Any = None

    def enter(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.controller = self.controller or ThreadpoolController()  # finds the libraries that are loaded now
                self.limiter = self.controller.limit(limits=1, user_api=self.library)
            self.inside += 1

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limiter.restore_original_limits()


_LIMITS: dict[Library, _Limit] = {"blas": _Limit("blas"), "openmp": _Limit("openmp")}


@contextmanager
def one_thread(library: Library) -> Iterator[None]:
    """Run NumPy's linear algebra ("blas") or OpenMP's loops on one thread; also a decorator."""
    limit = _LIMITS[library]
    limit.enter()
    try:
        yield
    finally:
        limit.leave()


def on_threads(function: Callable[[int], Any], count: int, at_once: bool = True) -> list[Any]:
    """Return the results of a function for 0 to `count - 1`; `at_once` runs them on a pool of threads."""
    if count == 1 or not at_once:
        return [function(i) for i in range(count)]
    with ThreadPoolExecutor(min(count, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, range(count)))
