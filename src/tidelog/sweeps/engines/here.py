"""The engine of one machine: processes that do one job after another, each on processor cores of its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import IO, NamedTuple, cast

import msgspec

from tidelog.disk import create_missing, make_folders, open_own
from tidelog.errors import ConfigError
from tidelog.sweeps.engines import Ended, Job

POLL_SECONDS = 0.05
SAVE_SECONDS = 30.0  # for a job to save after it is asked to end
MOST_JOBS = 100  # of one process: the programs that it has compiled stay in its memory


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    jobs: int  # that it has begun

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe to the process."""
        return cast("IO[bytes]", self.process.stdin)

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe from the process."""
        return cast("IO[bytes]", self.process.stdout)

    def end(self) -> None:
        """End a process that does nothing, or has ended."""
        self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.process.wait()


class _Slot(NamedTuple):
    cores: list[int] | None
    worker: _Worker | None = None  # None: none has started yet, or the last one has ended


class _Running(NamedTuple):
    job: Job
    worker: _Worker
    cores: list[int] | None

    def how_it_ended(self) -> str | None:
        """Return how the job has ended, None if it goes on."""
        ready, _, _ = select.select([self.worker.stdout], [], [], 0)
        if ready and os.read(self.worker.stdout.fileno(), 1):
            return "ended with code 0"
        code = self.worker.process.poll()
        if code is None:
            return None
        return f"killed by signal {-code}" if code < 0 else f"ended with code {code}"


class Here:
    """Processes of this machine, on its processors: `cpus` cores for each job, as many jobs at once as there are cores.

    A process does one job after another, so that the later ones start warm; it is replaced when a job of it fails, is
    killed or is cancelled. Its cores are set before it imports JAX, which sizes its threads by them. It ends when the
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
        cut = [None if cores is None else cores[place * cpus : (place + 1) * cpus] for place in places]
        self._idle = [_Slot(one) for one in cut]
        self._running: dict[tuple[int, int], _Running] = {}

    def free(self) -> bool:
        """Whether another job can start now."""
        return bool(self._idle)

    def submit(self, job: Job) -> None:
        """Give a job to an idle process, or start one for it."""
        cores, worker = self._idle.pop()  # the last one that was used: a short sweep starts no more than it needs
        if worker is not None and (worker.jobs >= MOST_JOBS or worker.process.poll() is not None):
            worker.end()
            worker = None
        job = msgspec.structs.replace(job, cores=cores)
        worker = _started(job) if worker is None else worker._replace(jobs=worker.jobs + 1)
        self._running[job.number, job.attempt] = _Running(job, worker, cores)
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which `wait` reports
            worker.stdin.write(msgspec.json.encode(job) + b"\n")
            worker.stdin.flush()  # and stays open: its end tells the process that this one has ended

    def wait(self, seconds: float) -> list[Ended]:
        """Return the jobs that have ended since the last call, after at most some seconds."""
        until = time.monotonic() + seconds
        while True:
            found = {key: one.how_it_ended() for key, one in self._running.items()}
            ended = [Ended(self._remove(key), how) for key, how in found.items() if how is not None]
            left = until - time.monotonic()
            if ended or left <= 0:
                return ended
            answers = [one.worker.stdout for one in self._running.values()]
            select.select(answers, [], [], min(POLL_SECONDS, left))

    def cancel(self, job: Job) -> None:
        """Kill a job's process, which ends a stopped one too."""
        key = (job.number, job.attempt)
        if key in self._running:
            process = self._running[key].worker.process
            process.kill()
            process.wait()
            self._remove(key)

    def close(self) -> None:
        """Ask all jobs to save and end, then kill what is left."""
        for one in self._running.values():
            one.worker.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + SAVE_SECONDS
        while self._running and time.monotonic() < until:
            self.wait(max(0.0, until - time.monotonic()))
        for one in list(self._running.values()):
            self.cancel(one.job)
        for number, (cores, worker) in enumerate(self._idle):
            if worker is not None:
                worker.end()
            self._idle[number] = _Slot(cores)

    def _remove(self, key: tuple[int, int]) -> Job:
        one = self._running.pop(key)
        worker: _Worker | None = one.worker
        if one.worker.process.poll() is not None:
            one.worker.end()
            worker = None
        self._idle.append(_Slot(one.cores, worker))
        return one.job


def _started(job: Job) -> _Worker:
    """Start a process; what it prints before it reads its first job goes to that job's file."""
    paths = [path for path in sys.path if path]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    make_folders(job.output.parent)
    create_missing(job.output)
    output = open_own(job.output, os.O_WRONLY | os.O_APPEND)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog.sweeps.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the driver, which then asks its jobs to save
        )
    finally:
        os.close(output)
    return _Worker(process, 1)
