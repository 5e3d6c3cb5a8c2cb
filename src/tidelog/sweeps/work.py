"""What a job is: an attempt at a trial, or files of a command that works on many."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from tidelog.garbage import import_once
from tidelog.sweeps.engines import Job


def run_job(job: Job) -> int:
    """Do a job in this process; the exit code is 0 if what it did is in its folder.

    JAX is imported only by what needs it: a command that reads a saved policy starts in a fraction of the time.
    """
    if job.module is None:
        code: int = import_once("tidelog.sweeps.attempt").run_attempt(job)
        return code
    if job.modules:
        from tidelog.algorithms.names import load_plugin

        for module in job.modules:
            load_plugin(module, "the command")
    # by its name, as a command is above the engines and chooses what they run
    work: Callable[[Path, list[int]], None] = importlib.import_module(job.module).work_on
    work(Path(job.folder), job.files)
    return 0
