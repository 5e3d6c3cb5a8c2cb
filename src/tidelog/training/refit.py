"""`refit`: the settings of a chosen policy once more, on the whole log.

A run holds episodes out to choose a policy and to judge it. Before the policy is used, the same settings may learn from
these episodes too: `refit` takes the member's algorithm, seed, schedules and number of updates. For lists of items it
also takes over the weight of Q that the held-out period chose. The result has no verdict: nothing is left to judge it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidelog.algorithms.names import check_fit
from tidelog.data.log import Log
from tidelog.errors import CheckpointError, ConfigError, SpecError
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.interactions.readers import reopen_any
from tidelog.runtime.way_of_acting import verdict_line
from tidelog.sinks import Sink
from tidelog.training.engine.cache import use_cache
from tidelog.training.fit import begin, spec_of
from tidelog.training.runs.options import as_path
from tidelog.training.runs.policies import policy_of_run
from tidelog.training.runs.record import Record, RefitOf
from tidelog.training.runs.run import Run
from tidelog.types import Spec


def refit(
    run: Run | str | Path,
    out: str | Path | None = None,
    *,
    log: Log | Interactions | None = None,
    member: int | None = None,
    algorithm: Any = None,
    overwrite: bool = False,
    sinks: Sequence[Sink] = (),
    progress: bool | None = None,
    train: bool = True,
) -> Run:
    """Learn from all episodes with the settings of a run's policy: its best one if it has one, else of `member`.

    `run` is a run or its folder. `log`: a newer log with the same columns, or the run's own log if it was created in
    memory; default: the run's log, read again from where it was read. `algorithm`: of a folder, if the run has custom
    parts. The number of updates is that of the policy; nothing is held out, chosen or evaluated. Without `out` nothing
    is written; `overwrite` replaces the run in `out`; `train=False` returns the run before its first update. Raises
    ConfigError, CheckpointError, SpecError, LogError, DivergenceError.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> run = tl.fit(tl.BC(hidden=(16,)), log, steps=20, held_out=0.5)
        >>> tl.refit(run, log=log).update
        20
    """
    use_cache()
    record, policy, folder = _chosen(run, member, algorithm)
    if record.environment is not None:
        raise ConfigError(
            f"run: it learns in the environment {record.environment}, expected a run that learned from a log. fix: "
            "pass a run of tl.fit or tidelog train"
        )
    target = as_path("out", out)
    if target is not None and folder is not None and target.exists() and target.samefile(folder):
        raise ConfigError(f"out = {target} is the run that is repeated. fix: choose another folder")
    update = int(policy.origin["update"])
    if update < 1:
        raise ConfigError("run: it has taken no update yet. fix: continue it with tl.resume, then refit it")
    log = _log_of(record) if log is None else log
    if not isinstance(log, Log | Interactions):
        raise ConfigError(f"log: expected a tl.Log, found {type(log).__name__}. fix: read it first with tl.read_log")
    _check_same_columns(record.spec, spec_of(policy.algorithm, log))
    check_fit(policy.algorithm, log.spec)
    options = replace(
        record.options,
        seeds=(_seed(record, policy),),
        stop_after=update,
        held_out=0.0,
        selection_share=1.0,
        data_share=1.0,
        best=None,
        patience=None,
        evaluate={},
        own_evaluators=(),
    )
    before = None if policy.verdict is None else verdict_line(policy.verdict)
    source = RefitOf(run=None if folder is None else str(folder.resolve()), verdict=before, acting=policy.acting)
    again = begin([policy.algorithm], log, options, target, sinks=sinks, overwrite=overwrite, refit_of=source)
    again.take_over(policy)
    return again.train(progress) if train else again


def _chosen(run: Run | str | Path, member: int | None, algorithm: Any) -> tuple[Record, Policy, Path | None]:
    """Return the record of a run, its policy and its folder."""
    if not isinstance(run, Run):
        folder = as_path("run", run)
        if folder is None:
            raise ConfigError("run = None: expected a run or its folder. fix: pass tl.load(folder)")
        return Record.read(folder), policy_of_run(folder, member, algorithm), folder
    best = member is None and run.record.options.best is not None
    return run.record, run.best_policy() if best else run.policy(member=member), run.folder


def _seed(record: Record, policy: Policy) -> int:
    """The seed of the member that a policy is from."""
    seeds = record.options.seeds
    return int(policy.origin["seed"]) if "seed" in policy.origin else seeds[policy.origin["member"] % len(seeds)]


def _log_of(record: Record) -> Log | Interactions:
    """Read the run's log again; it may have grown since."""
    if record.data.origin is None:
        raise CheckpointError(
            "the run's log was created in memory and is not saved. fix: pass it, as in refit(run, out, log=log)"
        )
    return reopen_any(record.data.origin)


def _check_same_columns(before: Spec, now: Spec) -> None:
    """Raise SpecError unless a log has the observations and the kind of actions of the run's log."""
    kinds = [{name: type(leaf).__name__ for name, leaf in spec.observation.items()} for spec in (before, now)]
    actions = [type(spec.action).__name__ for spec in (before, now)]
    for what, (then, found) in (("observations", kinds), ("actions", actions)):
        if then != found:
            raise SpecError(
                f"log: its {what} are {found}, those of the run's log {then}. fix: read it with the mapping of the run"
            )
