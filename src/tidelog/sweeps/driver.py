"""The driver of a sweep: it submits attempts to an engine until no trial has anything left to do.

The state is in the folder: trials that stand at their step, and decided rungs. A driver that was killed is replaced by
another one, which reads the same state and takes the same decisions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tidelog.algorithms.core.registry import ALGORITHMS
from tidelog.disk import make_folders, tidy
from tidelog.sweeps.engines import Engine, Job, trial_folder
from tidelog.sweeps.plan import (
    Decision,
    Plan,
    Status,
    append_decision,
    begin_attempt,
    decide,
    read_decisions,
    read_status,
    write_status,
)
from tidelog.training.runs.lock import locked
from tidelog.training.runs.progress import Screen
from tidelog.training.runs.signals import Interrupts
from tidelog.training.runs.sinks import JSON_LINES

POLL_SECONDS = 0.5
MOST_LOSSES = 3  # attempts in a row that end without progress, until the trial has failed

Sign = tuple[str, int]  # the last checkpoint of a run, and the bytes of its reports


@dataclass
class _Running:
    """A job, what its run had when it began, and when that last changed."""

    job: Job
    begin: Sign
    last: Sign
    since: float


class Driver:
    """Brings the trials of a sweep's folder to their ends with an engine."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder, self.engine, self.plan = folder.absolute(), engine, Plan.read(folder)
        trials = range(len(self.plan.trials))
        self.decisions = read_decisions(self.folder)
        self.statuses: dict[int, Status] = {}
        for trial in trials:
            status = read_status(self._of(trial))
            if status is not None and (status.state != "failed" or self._stopped(trial)):  # a failed one is tried again
                self.statuses[trial] = status
        self._running: dict[int, _Running] = {}
        self._losses: dict[int, int] = {}
        modules = {cls.__module__ for cls in ALGORITHMS.values()}
        self._modules = sorted(name for name in modules if name.split(".")[0] != "tidelog")

    def run(self, progress: bool | None = None) -> None:
        """Train until nothing is left to do.

        After a signal all jobs save, then KeyboardInterrupt or SystemExit(143) is raised.
        """
        with locked(self.folder), Interrupts() as interrupts, Screen("sweep", progress) as screen:
            tidy(self.folder)
            try:
                while True:
                    self._decide(screen)
                    waiting = [trial for trial in self._unfinished() if trial not in self._running]
                    while waiting and self.engine.free():
                        self._submit(waiting.pop(0))
                    if not self._running and not waiting:
                        return
                    for ended in self.engine.wait(POLL_SECONDS):
                        self._end(ended.job, ended.how, screen)
                    self._cancel_stalled(screen)
                    screen.tell(self._doing(), len(self._ended()) / len(self.plan.trials))
                    interrupts.leave()
            finally:
                self.engine.close()

    def _of(self, trial: int) -> Path:
        return trial_folder(self.folder, trial)

    def _stopped(self, trial: int) -> bool:
        """Whether a decision has stopped a trial."""
        return any(trial not in decision.promoted for decision in self.decisions)

    def _target(self) -> int:
        """The step to which the trials that go on are trained now: the next rung, or the end."""
        rung = self._rung()
        return self.plan.options.steps if rung is None else rung

    def _rung(self) -> int | None:
        """The next rung that has something to decide, None without one."""
        rungs, decided = self.plan.rungs(), len(self.decisions)
        last = bool(self.decisions) and len(self.decisions[-1].promoted) <= 1
        return None if last or decided >= len(rungs) else rungs[decided]

    def _stands(self, trial: int) -> bool:
        """Whether a trial has nothing to do before the next decision."""
        status = self.statuses.get(trial)
        return status is not None and (status.state != "standing" or status.update >= self._target())

    def _unfinished(self) -> list[int]:
        return [trial for trial in range(len(self.plan.trials)) if not self._stopped(trial) and not self._stands(trial)]

    def _ended(self) -> list[int]:
        done = ("complete", "diverged", "failed")
        return [
            trial
            for trial in range(len(self.plan.trials))
            if self._stopped(trial) or (trial in self.statuses and self.statuses[trial].state in done)
        ]

    def _decide(self, screen: Screen) -> None:
        """Decide rungs as long as all their trials stand there."""
        while (rung := self._rung()) is not None and not self._unfinished():
            compared = [trial for trial in range(len(self.plan.trials)) if not self._stopped(trial)]
            out = {trial for trial in compared if self.statuses[trial].state in ("diverged", "failed")}
            decision: Decision = decide(self.folder, self.plan, rung, compared, out)
            append_decision(self.folder, decision)
            self.decisions.append(decision)
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
        self._running[trial] = _Running(job, sign, sign, time.monotonic())
        self.engine.submit(job)

    def _sign(self, trial: int) -> Sign:
        """What shows that a run goes on: its last checkpoint and its reports."""
        run = self._of(trial) / "run"
        checkpoints = run / "checkpoints"
        names = [path.name for path in checkpoints.iterdir() if path.name.isdigit()] if checkpoints.is_dir() else []
        reports = run / JSON_LINES
        return max(names, default=""), reports.stat().st_size if reports.is_file() else 0

    def _end(self, job: Job, how: str, screen: Screen) -> None:
        """Read how a trial stands after its job has ended."""
        one = self._running.get(job.trial)
        if one is None or one.job.attempt != job.attempt:
            return  # it was taken over
        status = read_status(self._of(job.trial))
        del self._running[job.trial]
        if status is None or status.attempt != job.attempt:
            self._lose(one, how, screen)
            return
        self.statuses[job.trial] = status
        self._losses[job.trial] = 0
        if status.state in ("diverged", "failed"):
            screen.note(f"trial {job.trial} {status.state} at update {status.update:,}: {status.reason}")

    def _lose(self, one: _Running, how: str, screen: Screen) -> None:
        """Count an attempt that ended without a status; too many without progress are a failure of the trial."""
        trial = one.job.trial
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
        self.statuses[trial] = status
        screen.note(f"trial {trial} failed: {reason}")

    def _cancel_stalled(self, screen: Screen) -> None:
        """End jobs by force that have neither reported nor saved for too long."""
        for trial, one in list(self._running.items()):
            sign = self._sign(trial)
            if sign != one.last:
                one.last, one.since = sign, time.monotonic()
            elif time.monotonic() - one.since > self.plan.stall_seconds:
                self.engine.cancel(one.job)
                del self._running[trial]
                self._lose(one, f"no report and no checkpoint for {self.plan.stall_seconds:g} seconds", screen)

    def _doing(self) -> str:
        ended = f"{len(self._ended()):,} of {len(self.plan.trials):,} trials ended"
        at = [f"trial {trial} at {int(one.last[0] or 0):,}" for trial, one in sorted(self._running.items())]
        return f"{ended}; {', '.join(at)} of {self._target():,} updates" if at else ended
