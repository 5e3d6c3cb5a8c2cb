"""One attempt at a trial: begin or continue its run, train it for a number of updates, and write how it stands.

Only the newest attempt writes: each save and each report of an older one is refused, for example of a process that was
frozen and goes on after another one took its trial over.
"""

from __future__ import annotations

import traceback
from functools import lru_cache
from pathlib import Path

import msgspec

from tidelog._files import delete, tidy
from tidelog.algorithms.hyperparameters import from_config
from tidelog.algorithms.names import algorithm_class, load_plugin
from tidelog.data.log import Log
from tidelog.errors import CheckpointError, DivergenceError, LogError, TidelogError
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.read import reopen_any
from tidelog.sweeps.job import Job, trial_folder
from tidelog.sweeps.plan import Plan, Status, newest_attempt, write_status
from tidelog.training.checkpoints import LOCK, Checkpoints
from tidelog.training.fit import fit
from tidelog.training.record import FILE
from tidelog.training.resume import load_run
from tidelog.training.run import Run


def run_attempt(job: Job) -> None:
    """Run one attempt and write how the trial stands; CheckpointError if a newer attempt has taken it over."""
    folder = trial_folder(Path(job.folder), job.number)

    def check_writer() -> None:
        newest = newest_attempt(folder)
        if newest > job.attempt:
            raise CheckpointError(
                f"{folder}: attempt {newest} has taken this trial over, and this is attempt {job.attempt}: "
                "nothing was saved",
                fix="nothing is to be done, the newer attempt goes on",
            )

    try:
        check_writer()
        run = _run(job, folder)
        run.check_writer = check_writer
        for _ in run.stream(job.until):
            pass
        status = Status(job.attempt, "complete" if run.finished else "standing", run.done)
    except DivergenceError as error:
        status = Status(job.attempt, "diverged", _updates(folder), str(error))
    except Exception as error:  # whatever it is: a row of the table, and the other trials go on
        traceback.print_exc()
        reason = str(error) if isinstance(error, TidelogError) else f"{type(error).__name__}: {error}"
        status = Status(job.attempt, "failed", _updates(folder), reason)
    check_writer()
    write_status(folder, status)


def _updates(folder: Path) -> int:
    return max(Checkpoints(folder / "run" / "checkpoints", 1).updates(), default=0)


def _run(job: Job, folder: Path) -> Run:
    """Return the trial's run where it stands, or a new one."""
    for module in job.modules:
        load_plugin(module, "the sweep")
    plan = Plan.read(Path(job.folder))
    trial, out = plan.trials[job.number], folder / "run"
    log = _log(msgspec.json.encode(plan.origin), plan.fingerprint)
    tidy(folder)
    delete(out / LOCK)  # of an older attempt that may be frozen and hold it: this one has taken the trial over
    if Checkpoints(out / "checkpoints", 1).updates():
        return load_run(out, log, together=plan.options.together)
    algorithm = from_config(algorithm_class(trial.algorithm), trial.config)
    begun = (out / FILE).exists()
    return fit(algorithm, log, out=out, overwrite=begun, train=False, **plan.options.keywords(trial.data_share))


@lru_cache(maxsize=1)  # a process trains one trial after another, most often from the same log
def _log(origin: bytes, fingerprint: str) -> Log | Interactions:
    log = reopen_any(msgspec.json.decode(origin))
    if log.fingerprint() != fingerprint:
        raise LogError(
            f"the log has fingerprint {log.fingerprint()[:12]}",
            f"{fingerprint[:12]}: its content has changed since the sweep began",
            "restore it, and resume the sweep",
        )
    return log
