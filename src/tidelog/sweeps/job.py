"""What a process of a sweep does: it trains one trial. Does not import JAX before the process has its cores."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from tidelog._files import checksum, create_missing, make_folders, open_own
from tidelog._machine import import_without_gc
from tidelog.errors import ConfigError

PLAN = "sweep.json"
SWEEP = "tidelog.sweeps.sweep"


class Job(NamedTuple):
    """A trial of a sweep, whose run is trained for `until` updates in all."""

    folder: str  # the absolute path of the sweep's folder
    number: int  # of the trial
    until: int
    modules: tuple[str, ...] = ()  # that register algorithms of the user's own

    @property
    def output(self) -> Path:
        """The file for what the process prints."""
        return trial_folder(Path(self.folder), self.number) / "output.txt"


def trial_folder(sweep: Path, trial: int) -> Path:
    """Return the folder of a trial."""
    return sweep / "trials" / f"{trial:04d}"


def run_job(job: Job, sha256: str, versions: dict[str, str]) -> Any:
    """Do a job in this process, which prints to the trial's file from now on; return the `Status` of the trial.

    ConfigError if this machine does not see the same `sweep.json`, or has other versions of packages.
    """
    host, plan = platform.node(), Path(job.folder) / PLAN
    if not plan.is_file() or checksum(plan) != sha256 or not os.access(job.folder, os.W_OK):
        raise ConfigError(
            f"node {host} does not see {job.folder} as the sweep's process does, or may not write there",
            fix="use a folder that all nodes share under the same path, and go on there",
        )
    own = {name: metadata.version(name) for name in versions}
    different = [f"{name} {own[name]}, expected {versions[name]}" for name in own if own[name] != versions[name]]
    if different:
        raise ConfigError(
            f"node {host} has {'; '.join(different)}",
            fix="install the same versions on all nodes, then resume the sweep",
        )
    _print_to(job.output)
    return import_without_gc(SWEEP).train_trial(job)


def _print_to(path: Path) -> None:
    """Let all that this process prints from now on go to a file."""
    make_folders(path.parent)
    create_missing(path)
    output = open_own(path, os.O_WRONLY | os.O_APPEND)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        stream.flush()
        os.dup2(output, number)
    os.close(output)
