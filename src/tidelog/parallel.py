"""Functions in other processes of this machine. Nothing else starts a pool.

A process imports this module before it imports JAX, which sizes its threads by the cores that it may use. It keeps to
cores of its own, prints no signal's traceback, and ends when the process that started it has ended.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any, Protocol

from tidelog.errors import ConfigError

SAVE_SECONDS = 30.0  # for functions to save after they are asked to end
MOST_CALLS = 100  # of one process: the programs that it has compiled stay in its memory
_own_cores: list[socket.socket] = []  # what says to others which cores this process has


class Pool(Protocol):
    """Where functions run, several at once."""

    def free(self) -> bool:
        """Whether another function can start now."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a function that other processes can import; what it raised, or how it was lost, is in the future."""

    def cancel(self, future: Future[Any]) -> None:
        """End a function by force, even one that does not react."""

    def close(self) -> None:
        """Ask all functions to save and end, as by Ctrl-C, then end them by force."""


def pool_of(on: Pool | None, cpus: int = 1, workers: int | None = None) -> Pool:
    """Return the pool, or by default one of processes of this machine.

    Each function has `cpus` processor cores; `workers` are at work at once, by default as many as there are cores for.
    ConfigError for more cores than there are, and for the name of a pool.
    """
    for name, count in {"cpus": cpus, "workers": workers}.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise ConfigError(f"{name} = {count}", "a whole number of at least 1")
    if isinstance(on, str):
        fix = "drop on; examples/ray_tune_search.py searches in a Ray cluster"
        raise ConfigError(f"on = {on!r}", "a tidelog.parallel.Pool, or nothing: processes of this machine", fix)
    return ProcessPool(cpus, workers) if on is None else on


def ending(error: BaseException | None) -> str:
    """Say in a few words how a function ended."""
    if isinstance(error, BrokenProcessPool):
        return "its process was killed"
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "ended by a signal"
    if error is None:
        return "ended"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"ended with {type(error).__name__}: {(lines[-1] if lines else type(error).__name__).rstrip('.')}"


def _keep_to_own_cores(cpus: int) -> None:
    """Keep this process to `cpus` cores that no other process of a pool on this machine has.

    A name of the machine's own, which the system frees when the process ends, says that a core is taken.
    """
    if _own_cores or not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    groups = [cores[first : first + cpus] for first in range(0, len(cores) - cpus + 1, cpus)]
    name = socket.socket(socket.AF_UNIX)
    _own_cores.append(name)
    for group in groups:
        with contextlib.suppress(OSError):  # taken
            name.bind(f"\0tidelog-core-{group[0]}")
            break
    else:
        group = random.choice(groups)  # more processes than cores: some share
    os.sched_setaffinity(0, group)


class _Process(SpawnProcess):
    """A spawned process that does not run the main module of the program again, which may begin another pool there."""

    def start(self) -> None:
        """Start the process."""
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _Spawn(SpawnContext):
    Process = _Process


def _begin(cpus: int) -> None:
    """Begin a process of the pool."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the process that began the pool, which then asks its functions to save
    _keep_to_own_cores(cpus)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of the process that began this one, then ask this one to save and end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    while True:  # the first signal ends the function, the next one the process
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)


class _Worker:
    """A process of this machine, which starts with its first function; another one follows when it is lost."""

    def __init__(self, cpus: int) -> None:
        self._executor = ProcessPoolExecutor(1, _Spawn(), _begin, (cpus,))
        self._process: Future[int] | None = None
        self.calls = 0
        self.future: Future[Any] | None = None  # of the last function

    @property
    def busy(self) -> bool:
        """Whether a function of it goes on."""
        return self.future is not None and not self.future.done()

    @property
    def lost(self) -> bool:
        """Whether its process has ended without being asked to."""
        return self.future is not None and self.future.done() and isinstance(self.future.exception(), BrokenProcessPool)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a function."""
        if self._process is None:
            self._process = self._executor.submit(os.getpid)
        self.calls += 1
        self.future = self._executor.submit(function, *arguments)
        return self.future

    def send(self, number: int) -> None:
        """Send a signal to the process, if it lives."""
        with contextlib.suppress(BrokenProcessPool, ProcessLookupError):
            if self._process is not None and not self.lost:
                os.kill(self._process.result(), number)

    def end(self) -> None:
        """End the process by force."""
        self.send(signal.SIGKILL)
        self._executor.shutdown(cancel_futures=True)


class ProcessPool:
    """Processes of this machine, on its processors; each runs one function after another, and starts warm."""

    def __init__(self, cpus: int = 1, workers: int | None = None) -> None:
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if cpus > count:
            raise ConfigError(f"cpus = {cpus}: this process may use {count} core(s)", fix=f"use at most {count}")
        most = count // cpus
        if workers is not None and workers > most:
            raise ConfigError(
                f"workers = {workers}: {count} core(s) are enough for {most} job(s) of {cpus} core(s)",
                fix=f"use at most {most}",
            )
        self._cpus = cpus
        self._workers = [_Worker(cpus) for _ in range(workers or most)]

    def free(self) -> bool:
        """Whether another function can start now."""
        return not all(worker.busy for worker in self._workers)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Give a function to an idle process, the one with the most calls: a short list starts few."""
        idle = [number for number, worker in enumerate(self._workers) if not worker.busy]
        number = max(idle, key=lambda number: self._workers[number].calls)
        if self._workers[number].lost or self._workers[number].calls >= MOST_CALLS:
            self._replace(number)
        return self._workers[number].submit(function, *arguments)

    def cancel(self, future: Future[Any]) -> None:
        """Kill the process of a function, which ends a stopped one too."""
        for number, worker in enumerate(self._workers):
            if worker.future is future and worker.busy:
                self._replace(number)

    def close(self) -> None:
        """Ask all functions to save and end, then kill what is left."""
        busy = [worker for worker in self._workers if worker.busy]
        for worker in busy:
            worker.send(signal.SIGTERM)
        wait([worker.future for worker in busy if worker.future is not None], SAVE_SECONDS)
        for number in range(len(self._workers)):
            self._replace(number)

    def _replace(self, number: int) -> None:
        """End a process; the next function of its place starts another one."""
        self._workers[number].end()
        self._workers[number] = _Worker(self._cpus)
