"""Collectors of this machine: a process for each, connected by a pair of sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from multiprocessing import connection
from typing import IO, NamedTuple, cast

from tidelog.training.online.collectors.transport import Lost

MODULE = "tidelog.training.online.collectors.process"
END_SECONDS = 5.0  # for a process whose connection has ended


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    run: connection.Connection

    def end(self) -> int:
        """Kill the process, which ends a stopped one too, and return its exit code."""
        self.process.kill()
        code = self.process.wait()
        self.run.close()
        with contextlib.suppress(BrokenPipeError):
            cast("IO[bytes]", self.process.stdin).close()
        return code


class Here:
    """Processes of this machine, each on one of its cores in turn; they end with this process."""

    def __init__(self, plans: list[bytes], stall_seconds: float) -> None:
        self._plans, self._stall_seconds = plans, stall_seconds
        self._cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        self._running: dict[int, _Running] = {}
        self._lost: dict[int, Lost] = {}

    def cores(self) -> int:
        """The number of processor cores."""
        return os.cpu_count() or 1 if self._cores is None else len(self._cores)

    def start(self, block: int) -> None:
        """Start the process of a block, in place of an earlier one."""
        self.stop(block)
        ours, theirs = socket.socketpair()
        for limit in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # a frozen process neither reads nor writes
            ours.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", max(1, int(self._stall_seconds)), 0))
        core = [] if self._cores is None else [str(self._cores[block % len(self._cores)])]
        paths = os.pathsep.join(path for path in sys.path if path)
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", MODULE, str(theirs.fileno()), *core],
            stdin=subprocess.PIPE,  # stays open: its end tells the process that this one has ended
            stdout=2,  # standard output is the run's
            pass_fds=(theirs.fileno(),),
            env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
            # Ctrl-C is for the run, which saves first; a session would get a share of busy cores apart from the run
            process_group=0,
        )
        theirs.close()
        self._running[block] = _Running(process, connection.Connection(ours.detach()))
        self.send(block, self._plans[block])

    def running(self, block: int) -> bool:
        """Whether the process of a block was started, and not found lost."""
        return block in self._running

    def send(self, block: int, message: bytes) -> None:
        """Send a message to a process; `wait` reports one that is lost."""
        try:
            self._running[block].run.send_bytes(message)
        except OSError:
            self._lose(block)

    def wait(self, seconds: float) -> list[tuple[int, bytes | Lost]]:
        """Return the messages that have come, by block, after at most some seconds."""
        blocks = {one.run: block for block, one in self._running.items()}
        heard: list[tuple[int, bytes | Lost]] = []
        for run in connection.wait(list(blocks), 0.0 if self._lost else seconds):
            block = blocks[cast("connection.Connection", run)]
            try:
                heard.append((block, self._running[block].run.recv_bytes()))
            except (EOFError, OSError):
                self._lose(block)
        lost, self._lost = self._lost, {}
        return [*heard, *lost.items()]

    def stop(self, block: int) -> None:
        """End the process of a block by force."""
        if block in self._running:
            self._running.pop(block).end()

    def close(self) -> None:
        """End all processes."""
        for block in list(self._running):
            self.stop(block)

    def _lose(self, block: int) -> None:
        process = self._running[block].process
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        code = process.returncode
        self._running.pop(block).end()
        how = "does not answer" if code is None else f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        self._lost[block] = Lost(how)
