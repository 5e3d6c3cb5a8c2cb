"""Engines: where jobs run. A job is plain JSON; what it did is read from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

PLAN = "sweep.json"


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attempt at a trial of a sweep, whose run is trained for `until` updates in all."""

    folder: str  # the absolute path of the sweep's folder
    number: int  # of the trial
    attempt: int  # from 1; an attempt with a larger number takes the trial over
    until: int = 0
    modules: list[str] = []  # that register algorithms of the user's own
    cores: list[int] | None = None  # that the process may use, set by the engine

    @property
    def plan(self) -> Path:
        """The file that every process of the work must see."""
        return Path(self.folder) / PLAN

    @property
    def output(self) -> Path:
        """The file for what the process prints."""
        return trial_folder(Path(self.folder), self.number) / "output.txt"


class Ended(NamedTuple):
    """A job whose process has ended."""

    job: Job
    how: str  # for people, such as "ended with code 1"


class Engine(Protocol):
    """Where jobs run."""

    def free(self) -> bool:
        """Whether another job can start now."""

    def submit(self, job: Job) -> None:
        """Start a job; returns at once."""

    def wait(self, seconds: float) -> list[Ended]:
        """Return the jobs that have ended since the last call, after at most some seconds."""

    def cancel(self, job: Job) -> None:
        """End a job by force, even one that does not react."""

    def close(self) -> None:
        """Ask all jobs to save and end, then end them by force."""


def trial_folder(sweep: Path, trial: int) -> Path:
    """Return the folder of a trial."""
    return sweep / "trials" / f"{trial:04d}"
