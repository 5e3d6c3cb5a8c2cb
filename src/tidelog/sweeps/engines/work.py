"""What a process does with a job: an attempt at a trial."""

from __future__ import annotations

import os
import sys

from tidelog.disk import create_missing, make_folders, open_own
from tidelog.garbage import import_without_gc
from tidelog.sweeps.engines import Job

TRIAL = "tidelog.sweeps.attempt"


def run_job(job: Job) -> int:
    """Do a job in this process; the exit code is 0 if what it did is in its folder."""
    return int(import_without_gc(TRIAL).run_attempt(job))  # by its name, as a trial is above the engines


def print_to_file(job: Job) -> None:
    """Let all that this process prints from now on go to the job's file."""
    make_folders(job.output.parent)
    create_missing(job.output)
    output = open_own(job.output, os.O_WRONLY | os.O_APPEND)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        stream.flush()
        os.dup2(output, number)
    os.close(output)
