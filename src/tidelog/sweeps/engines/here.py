"""The engine of one machine: a process per job, each on processor cores of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import IO, NamedTuple, cast

import msgspec

from tidelog.disk import create_missing, make_folders
from tidelog.errors import ConfigError
from tidelog.sweeps.engines import Ended, Job

POLL_SECONDS = 0.05
SAVE_SECONDS = 30.0  # for a job to save after it is asked to end


class _Running(NamedTuple):
    job: Job
    process: subprocess.Popen[bytes]
    cores: list[int] | None

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe to the process."""
        return cast("IO[bytes]", self.process.stdin)


class Here:
    """Processes of this machine, on its processors: `cpus` cores for each job, as many jobs at once as there are cores.

    The cores of a job are set before its process imports JAX, which sizes its threads by them. A process ends when the
    process that started it has ended.
    """

    def __init__(self, cpus: int = 1, workers: int | None = None) -> None:
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        count = len(cores) if cores is not None else os.cpu_count() or 1
        if cpus > count:
            raise ConfigError(f"cpus = {cpus}: this process may use {count} core(s). fix: use at most {count}")
        most = count // cpus
        if workers is not None and workers > most:
            raise ConfigError(
                f"workers = {workers}: {count} core(s) are enough for {most} job(s) of {cpus} core(s). fix: use at "
                f"most {most}"
            )
        places = range(most if workers is None else workers)
        self._idle = [None if cores is None else cores[place * cpus : (place + 1) * cpus] for place in places]
        self._running: dict[tuple[int, int], _Running] = {}

    def free(self) -> bool:
        """Whether another job can start now."""
        return bool(self._idle)

    def submit(self, job: Job) -> None:
        """Start a process for a job."""
        cores = self._idle.pop(0)
        job = msgspec.structs.replace(job, cores=cores)
        paths = [path for path in sys.path if path]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
        make_folders(job.output.parent)
        create_missing(job.output)
        output = os.open(job.output, os.O_WRONLY | os.O_APPEND)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "tidelog.sweeps.worker"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the driver, which then asks its jobs to save
            )
        finally:
            os.close(output)
        one = _Running(job, process, cores)
        self._running[job.number, job.attempt] = one
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which `wait` reports
            one.stdin.write(msgspec.json.encode(job) + b"\n")
            one.stdin.flush()  # and stays open: its end tells the process that this one has ended

    def wait(self, seconds: float) -> list[Ended]:
        """Return the jobs that have ended since the last call, after at most some seconds."""
        until = time.monotonic() + seconds
        while True:
            codes = {key: one.process.poll() for key, one in self._running.items()}
            ended = [Ended(self._remove(key), _exit_text(code)) for key, code in codes.items() if code is not None]
            if ended or time.monotonic() >= until:
                return ended
            time.sleep(POLL_SECONDS)

    def cancel(self, job: Job) -> None:
        """Kill a job's process, which ends a stopped one too."""
        key = (job.number, job.attempt)
        if key in self._running:
            self._running[key].process.kill()
            self._remove(key)

    def close(self) -> None:
        """Ask all jobs to save and end, then kill what is left."""
        for one in self._running.values():
            one.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + SAVE_SECONDS
        while self._running and time.monotonic() < until:
            self.wait(max(0.0, until - time.monotonic()))
        for one in list(self._running.values()):
            self.cancel(one.job)

    def _remove(self, key: tuple[int, int]) -> Job:
        one = self._running.pop(key)
        with contextlib.suppress(BrokenPipeError):
            one.stdin.close()
        one.process.wait()
        self._idle.append(one.cores)
        return one.job


def _exit_text(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
