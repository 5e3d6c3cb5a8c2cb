"""A job's process, `python -m tidelog.sweeps.worker`: it reads the job from standard input and does it.

The cores are set before JAX is imported. Standard input stays open as long as the driver lives; at its end the process
saves and ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from tidelog.schema import decode
from tidelog.sweeps.engines import Job


def main() -> int:
    """Do one job and return the exit code."""
    job = decode(sys.stdin.buffer.readline(), Job, "the job")
    if job.cores is not None:
        os.sched_setaffinity(0, job.cores)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    from tidelog.sweeps.engines.work import run_job

    return run_job(job)


def _end_with_driver() -> None:
    os.read(0, 1)  # not `sys.stdin`, whose lock a thread must not hold when the interpreter ends
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
