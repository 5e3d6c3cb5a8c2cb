"""The driver of jobs that fit models of values and occupancy ratios: one for each policy and fold.

Everything else about a verdict is computed by the process that judges, so that a job needs neither the policy nor the
logger's model, but arrays of what they do. `fold_jobs` is what a job runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tidelog.disk import is_temporary, make_folders, not_written, tidy
from tidelog.errors import ConfigError, ProcessError
from tidelog.ope.evidence.episodes import centred_rewards, fold_of_steps
from tidelog.ope.evidence.evidence import Floats
from tidelog.ope.evidence.policy_evidence import PolicyEvidence, Prepared, evidence_from, unfitted_ratios, with_known
from tidelog.ope.models import fold_jobs
from tidelog.ope.models.fold_jobs import FitPlan, Fitted, FoldFit, read_fitted, write_arrays, write_log
from tidelog.ope.models.tabular import Values, join_folds
from tidelog.ray_cluster import ADDRESS, check_engine_name, installed
from tidelog.sweeps.engines import FILES, Job
from tidelog.sweeps.fan_out import fan_out
from tidelog.training.runs.lock import locked
from tidelog.training.runs.options import whole
from tidelog.training.runs.processor import processor
from tidelog.training.runs.record import PACKAGES

LOCK = "files.lock"
MOST_WORDS = 40  # of what a lost process printed


class Jobs(NamedTuple):
    """Where models are fitted, if not in this process."""

    workers: int | None  # None: as many as there are processors for
    on: str
    insecure: bool
    folder: Path | None  # None: a temporary one


def jobs_of(workers: int | None, on: str, insecure: bool, folder: str | Path | None) -> Jobs | None:
    """The jobs of some settings, None for this process; ConfigError for settings that contradict one another."""
    check_engine_name(on, insecure)
    if workers is not None and whole("workers", workers) < 1:
        raise ConfigError(f"workers = {workers}: expected at least 1. fix: drop workers to fit models in this process")
    if workers is None and on == "here":
        if folder is not None:
            raise ConfigError(f"job_folder = {str(folder)!r} without jobs. fix: add workers=2, or drop job_folder")
        return None
    if on == "here":
        from tidelog.sweeps.engines.named import engine_of

        engine_of(on, 1, workers).close()  # refuses more workers than there are cores, before anything is fitted
    elif folder is None and os.environ.get(ADDRESS, "") not in ("", "local"):
        raise ConfigError(
            "job_folder is not set, and on = 'ray' is a cluster, whose machines have no temporary folder in common. "
            "fix: job_folder='/shared/judging', a folder that all of them see under the same path"
        )
    jobs = Jobs(workers, on, insecure, None if folder is None else Path(folder).absolute())
    if jobs.folder is not None:
        _check(jobs.folder)
    return jobs


def evidence_by_jobs(
    prepared: Sequence[Prepared], jobs: Jobs, tell: Callable[[float], None] = lambda share: None
) -> list[PolicyEvidence]:
    """The evidence about several policies on one log, with models that the jobs of an engine fit.

    `tell` gets the finished share of the models. Raises what a model raises, and ProcessError if processes were lost
    several times in a row.
    """
    fitted = [one for one in prepared if one.is_fitted]
    if not fitted:
        return [_evidence(one, []) for one in prepared]
    with _opened(jobs.folder) as folder:
        plan = _plan(folder, fitted)
        plan.write(folder)
        _run(folder, plan, jobs, tell)
        found = iter([read_fitted(plan, folder, number) for number in range(len(plan.fits))])
    return [_evidence(one, [next(found) for _ in _folds(one)] if one.is_fitted else []) for one in prepared]


def _plan(folder: Path, prepared: Sequence[Prepared]) -> FitPlan:
    """Write what the jobs read, and return what they are to fit."""
    first = prepared[0]
    states = first.plan.states
    given = {"folds": first.plan.folds, "behaviour": first.logger.propensities.logged}
    if states is not None:
        given |= {"states": states.stored, "size": np.asarray([states.size])}
    fits = []
    for one in prepared:
        files: dict[int, str] = {}  # by the identity of a target, which is the same in all folds unless it is a clone
        for target in (target for targets in one.candidates for target in targets):
            if id(target) not in files:
                arrays = {"logged": target.logged, "probabilities": target.probabilities, "actions": target.actions}
                files[id(target)] = write_arrays(folder, "target", arrays)
        ratios = [place < one.judged and one.fits_ratios(targets) for place, targets in enumerate(one.candidates)]
        fits += [
            FoldFit(fold, [files[id(targets[fold])] for targets in one.candidates], ratios) for fold in _folds(one)
        ]
    return FitPlan(
        write_log(folder, replace(first.log, extra={})),
        write_arrays(folder, "given", given),
        "neural" if states is None else "tabular",
        float(first.discount),
        int(first.seed),
        {**installed([*PACKAGES, "scipy"]), "processor": processor()},
        fits,
    )


def _run(folder: Path, plan: FitPlan, jobs: Jobs, tell: Callable[[float], None]) -> None:
    """Fit what is left; each process takes some of the models, one after another."""
    from tidelog.sweeps.engines.named import engine_of

    everything = range(len(plan.fits))
    left = plan.left(folder, everything)
    if not left:
        return
    count = len(left) if jobs.workers is None else min(len(left), jobs.workers)
    groups = [left[place::count] for place in range(count)]
    engine = engine_of(jobs.on, 1, jobs.workers, len(groups), jobs.insecure)
    lost = fan_out(
        folder,
        fold_jobs.__name__,
        groups,
        engine,
        lambda numbers: plan.left(folder, numbers),
        lambda: tell(1.0 - len(plan.left(folder, everything)) / len(plan.fits)),
        modules=(),
    )
    if lost:
        number, reason = next(iter(lost.items()))
        group = next(place for place, numbers in enumerate(groups) if number in numbers)
        output = Job(str(folder), group, 1, module=fold_jobs.__name__).output
        printed = output.read_text(errors="replace").split() if output.exists() else []
        where = "set job_folder, which keeps what the processes print" if jobs.folder is None else f"read {output}"
        raise ProcessError(
            f"{len(lost)} of {len(plan.fits)} models were not fitted, for lack of their process: "
            f"{reason.partition('. fix: ')[0]}. It printed at last: {' '.join(printed[-MOST_WORDS:]) or 'nothing'}. "
            f"fix: {where}"
        )


def _evidence(prepared: Prepared, by_fold: Sequence[Fitted]) -> PolicyEvidence:
    """The evidence with models of each fold; without a model there are none."""
    log, folds = prepared.log, prepared.plan.folds
    if not by_fold:
        return evidence_from(prepared, [None] * len(prepared.candidates), [None] * prepared.judged)
    _, known = centred_rewards(log, prepared.discount)
    of = fold_of_steps(log, folds)
    values: list[Values | None] = []
    ratios: list[Floats | None] = []
    for place, targets in enumerate(prepared.candidates):
        values.append(with_known(join_folds(log, folds, [one.values[place] for one in by_fold]), known))
        if place >= prepared.judged:
            continue
        if not prepared.fits_ratios(targets):
            ratios.append(unfitted_ratios(prepared, targets))
            continue
        joined = np.zeros(log.steps)
        for fold, one in enumerate(by_fold):
            joined[of == fold] = one.ratios[place]
        ratios.append(joined)
    return evidence_from(prepared, values, ratios)


def _folds(prepared: Prepared) -> range:
    return range(int(prepared.plan.folds.max()) + 1)


@contextmanager
def _opened(folder: Path | None) -> Iterator[Path]:
    """The folder of the jobs, locked, or a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="tidelog-judging-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    _check(folder)
    try:
        make_folders(folder)
    except OSError as problem:
        raise not_written(folder, problem, ConfigError) from problem
    with locked(folder, LOCK, "judged"):
        tidy(folder)
        yield folder


def _check(folder: Path) -> None:
    """Raise ConfigError for a folder with anything but jobs of verdicts."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"job_folder = {str(folder)!r} is a file. fix: choose another folder")
    if (folder / FILES).exists():
        FitPlan.read(folder)
    elif folder.exists() and not all(is_temporary(one) or one.name == LOCK for one in folder.iterdir()):
        raise ConfigError(f"job_folder = {str(folder)!r} has other files. fix: choose another folder")
