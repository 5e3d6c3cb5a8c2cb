"""A process that does jobs, `python -m tidelog.sweeps.worker`: one after another, each a line of standard input.

The cores are set before JAX is imported. What a job prints goes to the job's own file, and a byte on the first standard
output says that it is done. A job that fails ends the process. Standard input stays open as long as the driver lives;
at its end the process saves and ends.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading

from tidelog.disk import create_missing, make_folders
from tidelog.schema import decode
from tidelog.sweeps.engines import Job


def main() -> int:
    """Do jobs until there are no more, and return the exit code."""
    answers, jobs = os.dup(1), queue.SimpleQueue[bytes | None]()
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    while (line := jobs.get()) is not None:
        job = decode(line, Job, "the job")
        if job.cores is not None:
            os.sched_setaffinity(0, job.cores)
        print_to_file(job)
        from tidelog.sweeps.engines.work import run_job

        code = run_job(job)
        if code != 0:
            return code
        os.write(answers, b"1")
    return 0


def print_to_file(job: Job) -> None:
    """Let all that this process prints from now on go to the job's file."""
    make_folders(job.output.parent)
    create_missing(job.output)
    output = os.open(job.output, os.O_WRONLY | os.O_APPEND)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        stream.flush()
        os.dup2(output, number)
    os.close(output)


def _read_jobs(jobs: queue.SimpleQueue[bytes | None]) -> None:
    """Put each line into the queue, and end this process when the driver has ended."""
    rest = b""
    while more := os.read(0, 1 << 16):  # not `sys.stdin`, whose lock a thread must not hold when the interpreter ends
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            jobs.put(line)
    jobs.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
