"""What a process of a sweep does: one attempt at a trial. Does not import JAX before the process has its cores."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from tidelog._files import checksum, create_missing, make_folders, open_own
from tidelog._machine import import_without_gc
from tidelog.errors import ConfigError

PLAN = "sweep.json"
ATTEMPT = "tidelog.sweeps.attempt"


class Job(NamedTuple):
    """One attempt at a trial of a sweep, whose run is trained for `until` updates in all."""

    folder: str  # the absolute path of the sweep's folder
    number: int  # of the trial
    attempt: int  # from 1; an attempt with a larger number takes the trial over
    until: int = 0
    modules: tuple[str, ...] = ()  # that register algorithms of the user's own

    @property
    def plan(self) -> Path:
        """The file that every process of the work must see."""
        return Path(self.folder) / PLAN

    @property
    def output(self) -> Path:
        """The file for what the process prints."""
        return trial_folder(Path(self.folder), self.number) / "output.txt"


def trial_folder(sweep: Path, trial: int) -> Path:
    """Return the folder of a trial."""
    return sweep / "trials" / f"{trial:04d}"


def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of packages."""
    return {name: metadata.version(name) for name in packages}


def run_job(job: Job, sha256: str, versions: dict[str, str]) -> None:
    """Do a job in this process, which prints to the trial's file from now on.

    ConfigError if this machine does not see the same `sweep.json`, or has other versions of packages.
    """
    host = platform.node()
    if not job.plan.is_file() or checksum(job.plan) != sha256 or not os.access(job.folder, os.W_OK):
        raise ConfigError(
            f"node {host} does not see {job.folder} as the sweep's process does, or may not write there",
            fix="use a folder that all nodes share under the same path, and go on there",
        )
    own = installed(tuple(versions))
    different = [f"{name} {own[name]}, expected {versions[name]}" for name in own if own[name] != versions[name]]
    if different:
        raise ConfigError(
            f"node {host} has {'; '.join(different)}",
            fix="install the same versions on all nodes, then resume the sweep",
        )
    _print_to(job.output)
    import_without_gc(ATTEMPT).run_attempt(job)


def _print_to(path: Path) -> None:
    """Let all that this process prints from now on go to a file."""
    make_folders(path.parent)
    create_missing(path)
    output = open_own(path, os.O_WRONLY | os.O_APPEND)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        stream.flush()
        os.dup2(output, number)
    os.close(output)
