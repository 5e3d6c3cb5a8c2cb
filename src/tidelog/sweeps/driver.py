"""The driver of a sweep: it gives attempts to a pool of processes until no trial has anything left to do.

The state is in the folder: trials that stand at their step, and decided rungs. A driver that was killed is replaced by
another one, which reads the same state and takes the same decisions.
"""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog._files import checksum, make_folders, tidy
from tidelog._machine import Interrupts
from tidelog.algorithms.short_form import ALGORITHMS
from tidelog.errors import ConfigError
from tidelog.parallel import Pool, ending
from tidelog.sinks import JSON_LINES
from tidelog.sweeps.job import PLAN, Job, installed, run_job, trial_folder
from tidelog.sweeps.plan import (
    Plan,
    RungDecision,
    Status,
    append_decision,
    begin_attempt,
    decide,
    read_decisions,
    read_status,
    write_status,
)
from tidelog.training.checkpoints import locked
from tidelog.training.metrics import Screen
from tidelog.training.record import PACKAGES

POLL_SECONDS = 0.5
LOOKS_PER_SECOND = 100  # at running trials, which may be on a slow file system
MOST_SHOWN = 4
MOST_LOSSES = 3  # attempts in a row that end without progress, until the trial has failed

Sign = tuple[str, int]  # the last checkpoint of a run, and the bytes of its reports


@dataclass
class _Running:
    """A job, what its run had when it began, and when that last changed."""

    job: Job
    future: Future[Any]
    begin: Sign
    last: Sign
    since: float


class Driver:
    """Brings the trials of a sweep's folder to their ends with a pool of processes."""

    def __init__(self, folder: Path, pool: Pool) -> None:
        self.folder, self.pool, self.plan = folder.absolute(), pool, Plan.read(folder)
        trials = range(len(self.plan.trials))
        self.decisions = read_decisions(self.folder)
        promoted = [set(decision.promoted) for decision in self.decisions]
        self._stopped = {trial for trial in trials if any(trial not in one for one in promoted)}  # by a decision
        self.statuses: dict[int, Status] = {}
        for trial in trials:
            status = read_status(self._of(trial))
            # a failed one is tried again
            if status is not None and (status.state != "failed" or trial in self._stopped):
                self.statuses[trial] = status
        self._running: dict[int, _Running] = {}
        self._losses: dict[int, int] = {}
        self._next_look = 0.0
        self._open: list[int] | None = None  # `_unfinished`, until a status or a decision changes it
        modules = {cls.__module__ for cls in ALGORITHMS.values()}
        self._modules = tuple(sorted(name for name in modules if name.split(".")[0] != "tidelog"))
        self._sha256, self._versions = checksum(folder / PLAN), installed(PACKAGES)

    def run(self, progress: bool | None = None) -> None:
        """Train until nothing is left to do.

        After a signal all attempts save, then KeyboardInterrupt or SystemExit(143) is raised. ConfigError where a
        process does not see the folder, or has other versions.
        """
        with locked(self.folder), Interrupts() as interrupts, Screen("sweep", progress) as screen:
            tidy(self.folder)
            try:
                while True:
                    self._decide(screen)
                    if self.pool.free():
                        waiting = (trial for trial in self._unfinished() if trial not in self._running)
                        while self.pool.free() and (trial := next(waiting, None)) is not None:
                            self._submit(trial)
                    if not self._running and not self._unfinished():
                        return
                    self._collect(screen)
                    self._cancel_stalled(screen)
                    self._show_progress(screen)
                    interrupts.leave()
            finally:
                self.pool.close()

    def _of(self, trial: int) -> Path:
        return trial_folder(self.folder, trial)

    def _target(self) -> int:
        """The step to which the trials that go on are trained now: the next rung, or the end."""
        rung = self._rung()
        return self.plan.options.steps if rung is None else rung

    def _rung(self) -> int | None:
        """The next rung that has something to decide, None without one."""
        rungs, decided = self.plan.rungs(), len(self.decisions)
        last = bool(self.decisions) and len(self.decisions[-1].promoted) <= 1
        return None if last or decided >= len(rungs) else rungs[decided]

    def _unfinished(self) -> list[int]:
        """The trials that have something to do before the next decision."""
        if self._open is None:
            target = self._target()

            def stands(trial: int) -> bool:
                status = self.statuses.get(trial)
                return status is not None and (status.state != "standing" or status.update >= target)

            trials = range(len(self.plan.trials))
            self._open = [trial for trial in trials if trial not in self._stopped and not stands(trial)]
        return self._open

    def _set_status(self, trial: int, status: Status) -> None:
        self.statuses[trial] = status
        if self._open is not None and (status.state != "standing" or status.update >= self._target()):
            self._open.remove(trial)

    def _decide(self, screen: Screen) -> None:
        """Decide rungs as long as all their trials stand there."""
        while (rung := self._rung()) is not None and not self._unfinished():
            compared = [trial for trial in range(len(self.plan.trials)) if trial not in self._stopped]
            out = {trial for trial in compared if self.statuses[trial].state in ("diverged", "failed")}
            decision: RungDecision = decide(self.folder, self.plan, rung, compared, out)
            append_decision(self.folder, decision)
            self.decisions.append(decision)
            self._stopped |= set(compared) - set(decision.promoted)
            self._open = None
            names = ", ".join(map(str, decision.promoted)) or "none"
            screen.note(
                f"step {decision.step:,}: {len(decision.promoted):,} of {len(compared):,} trials go on by "
                f"{decision.metric}: {names}"
            )

    def _submit(self, trial: int) -> None:
        folder = self._of(trial)
        make_folders(folder)
        job = Job(str(self.folder), trial, begin_attempt(folder), self._target(), self._modules)
        sign = self._sign(trial)
        future = self.pool.submit(run_job, job, self._sha256, self._versions)
        self._running[trial] = _Running(job, future, sign, sign, time.monotonic())

    def _collect(self, screen: Screen) -> None:
        """Wait until an attempt ends, for a moment at most, and read how its trial stands."""
        if not self._running:  # the pool is not ready
            time.sleep(POLL_SECONDS)
            return
        trials = {one.future: trial for trial, one in self._running.items()}
        for future in sorted(wait(trials, POLL_SECONDS, FIRST_COMPLETED).done, key=lambda future: trials[future]):
            error = future.exception()
            if isinstance(error, ConfigError):
                raise error
            self._end(self._running.pop(trials[future]), ending(error), screen)

    def _sign(self, trial: int) -> Sign:
        """What shows that a run goes on: its last checkpoint and its reports."""
        run = self._of(trial) / "run"
        checkpoints = run / "checkpoints"
        names = [path.name for path in checkpoints.iterdir() if path.name.isdigit()] if checkpoints.is_dir() else []
        reports = run / JSON_LINES
        return max(names, default=""), reports.stat().st_size if reports.is_file() else 0

    def _end(self, one: _Running, how: str, screen: Screen) -> None:
        """Read how a trial stands after an attempt has ended."""
        trial, status = one.job.number, read_status(self._of(one.job.number))
        if status is None or status.attempt != one.job.attempt:
            self._lose(one, how, screen)
            return
        self._set_status(trial, status)
        self._losses[trial] = 0
        if status.state in ("diverged", "failed"):
            screen.note(f"trial {trial} {status.state} at update {status.update:,}: {status.reason}")

    def _lose(self, one: _Running, how: str, screen: Screen) -> None:
        """Count an attempt that ended without a status; too many without progress are a failure of the trial."""
        trial = one.job.number
        lost = 1 if self._sign(trial) != one.begin else self._losses.get(trial, 0) + 1
        self._losses[trial] = lost
        if lost < MOST_LOSSES:
            screen.note(f"trial {trial}: attempt {one.job.attempt} was lost ({how}), another one follows")
            return
        reason = (
            f"its process was lost {lost} times without a new report or checkpoint, the last time: {how}. fix: read "
            f"{one.job.output}, then resume the sweep"
        )
        status = Status(one.job.attempt, "failed", int(self._sign(trial)[0] or 0), reason)
        write_status(self._of(trial), status)
        self._set_status(trial, status)
        screen.note(f"trial {trial} failed: {reason}")

    def _cancel_stalled(self, screen: Screen) -> None:
        """End jobs by force that have neither reported nor saved for too long."""
        if time.monotonic() < self._next_look:
            return
        pause = min(len(self._running) / LOOKS_PER_SECOND, self.plan.stall_seconds / 10)
        self._next_look = time.monotonic() + pause
        for trial, one in list(self._running.items()):
            sign = self._sign(trial)
            if sign != one.last:
                one.last, one.since = sign, time.monotonic()
            elif time.monotonic() - one.since > self.plan.stall_seconds:
                self.pool.cancel(one.future)
                del self._running[trial]
                self._lose(one, f"no report and no checkpoint for {self.plan.stall_seconds:g} seconds", screen)

    def _show_progress(self, screen: Screen) -> None:
        """Say how many trials have nothing to do any more, and where some of the running ones are."""
        ended = sum(status.state != "standing" for trial, status in self.statuses.items() if trial not in self._stopped)
        ended, count = ended + len(self._stopped), len(self.plan.trials)
        shown = sorted(self._running.items())[:MOST_SHOWN]
        at = [f"trial {trial} at {int(one.last[0] or 0):,}" for trial, one in shown]
        at += [f"{len(self._running) - len(shown):,} more"] if len(self._running) > len(shown) else []
        where = f"; {', '.join(at)} of {self._target():,} updates" if at else ""
        screen.tell(f"{ended:,} of {count:,} trials ended{where}", ended / count)
