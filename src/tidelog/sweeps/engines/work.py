"""What a job is: an attempt at a trial, or files of a command that works on many."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tidelog.disk import create_missing, make_folders, open_own
from tidelog.garbage import import_without_gc
from tidelog.sweeps.engines import Job

TRIAL = "tidelog.sweeps.attempt"


def run_job(job: Job) -> int:
    """Do a job in this process; the exit code is 0 if what it did is in its folder.

    JAX is imported only by what needs it: a command that reads a saved policy starts in a fraction of the time.
    """
    # by its name, as what runs is above the engines: a trial of a sweep, or what a command chooses
    if job.module is None:
        return int(import_without_gc(TRIAL).run_attempt(job))
    if job.modules:
        from tidelog.algorithms.names import load_plugin

        for module in job.modules:
            load_plugin(module, "the command")
    work: Callable[[Path, list[int]], None] = importlib.import_module(job.module).work_on
    work(Path(job.folder), job.files)
    return 0


def print_to_file(job: Job) -> None:
    """Let all that this process prints from now on go to the job's file."""
    make_folders(job.output.parent)
    create_missing(job.output)
    output = open_own(job.output, os.O_WRONLY | os.O_APPEND)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        stream.flush()
        os.dup2(output, number)
    os.close(output)
