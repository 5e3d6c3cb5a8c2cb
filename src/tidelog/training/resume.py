"""`load_run`: a run as it stands in its folder, to continue it or to read its policies. `tl.resume` continues it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from tidelog.algorithms.finetune import FinetuneConfig
from tidelog.data.log import Log
from tidelog.errors import CheckpointError, ConfigError, LogError
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.read import reopen_any
from tidelog.sinks import Sink
from tidelog.training.checkpoints import Checkpoints
from tidelog.training.collect import (
    CollectedLog,
    EnvAssignment,
    assign_environments,
    environment_name,
    restore_environments,
)
from tidelog.training.engine import Engine, cores_as_devices, fresh_collectors
from tidelog.training.fit import parts_of, validation_of
from tidelog.training.learn import TUNING, check_same_spaces, collectors_of
from tidelog.training.loop import LearnerState, as_members, fresh_learners, use_cache
from tidelog.training.options import Evaluator, evaluators
from tidelog.training.processes import check_processes, devices_of_all
from tidelog.training.record import Record
from tidelog.training.run import Run
from tidelog.training.stores import check_memory


def load_run(
    folder: str | Path,
    log: Log | Interactions | None = None,
    *,
    env: Any = None,
    algorithm: Any = None,
    evaluate: Mapping[str, Evaluator] | None = None,
    sinks: Sequence[Sink] = (),
    checkpoint: int | None = None,
    together: bool | None = None,
) -> Run:
    """Return a run in the state of its checkpoint; `run.stream()` continues it, `run.policy()` returns its policy.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> run = tl.fit(tl.BC(hidden=(16,)), log, steps=20, out="runs/bc")
        >>> tl.load_run("runs/bc", log=log).update  # a log that was read from a file is found again without `log=`
        20
    """
    use_cache()
    path = Path(folder)
    record = Record.read(path)
    options, tuned = record.options, record.is_finetuned
    together = options.together if together is None else together
    cores_as_devices(options.devices)
    _, own = evaluators(evaluate or {})
    missing = sorted(set(options.own_evaluators) - set(own))
    if missing:
        raise ConfigError(
            f"the run's custom evaluators are missing: {', '.join(missing)}", fix="pass them in evaluate="
        )
    algorithms, reads_log = record.algorithms(algorithm), record.environment is None or tuned
    members = as_members(algorithms, options.seeds)
    log = _same_log(log, record) if reads_log else None
    check_memory(algorithms, len(options.seeds), record.spec, log)
    stores, parts = None, None
    if log is not None:
        parts = parts_of(log, options)
        stores = parts.stores(algorithms[0], record.scaler)
    assignment = _environments_of(path, record, env, [member.seed for member in members], algorithms[0])
    collectors = [member.algorithm for member in members]
    if tuned:
        tuning = FinetuneConfig(**{name: getattr(options, name) for name in TUNING})
        collectors = collectors_of(collectors, record.scaler, tuning, options.steps)
    collected_log, devices = None, None if tuned else options.devices
    if assignment is None:
        devices = devices_of_all(devices)
        templates = fresh_learners(members, record.spec, stores or {}, options.steps)
    else:
        spec, recorded = assignment.spec, options.log_out is not None
        players = [replace(member, algorithm=one) for member, one in zip(members, collectors, strict=True)]
        templates = fresh_collectors(
            players, spec, assignment.source, options.steps, recorded, stores, None if tuned else together
        )
        if options.log_out is not None:
            collected_log = CollectedLog(options.log_out, spec, len(members))
    snapshot = Checkpoints(path / "checkpoints", options.keep).load(templates, checkpoint)
    learners = snapshot.learners
    if assignment is not None:
        learners = restore_environments(assignment, collectors, learners, snapshot.environments)
        if tuned and assignment.source is None:
            saved = snapshot.environments
            learners = [one if saved[i] else _with_truncated_end(one) for i, one in enumerate(learners)]
    engine = Engine(
        members,
        learners,
        options.steps,
        stores=stores,
        assignment=assignment,
        collectors=collectors,
        position=snapshot.position,
        together=together,
        devices=devices,
        collected_log=collected_log,
    )
    if not tuned:
        check_processes(record, learners)
    return Run(
        record,
        engine,
        path,
        validation=None if parts is None else validation_of(parts, algorithms[0], record.scaler),
        evaluators=own,
        sinks=sinks,
        checkpoint=snapshot,
        chooser=None if parts is None else parts.chooser,
    )


def _environments_of(
    path: Path, record: Record, env: Any, seeds: Sequence[int], algorithm: Any
) -> EnvAssignment | None:
    """Return the environments of a run, one for each seed; None for a run over a log.

    `env` is the environment that is passed; without one the recorded name is. CheckpointError without a name, and for
    another environment.
    """
    if record.environment is None:
        return None
    if env is None:
        if not record.data.named:
            raise CheckpointError(
                f"the run's environment {record.environment} has no registered name",
                fix="pass it again, as in resume(folder, env=env)",
            )
        record.check_imported(path, [record.environment])
        env = record.environment
    count = 1 if record.is_finetuned else algorithm.collection().num_envs
    assignment = assign_environments(env, count, seeds, record.options.log_out is not None)
    if record.is_finetuned:
        check_same_spaces(record.spec, assignment.spec, environment_name(env, assignment))
    elif assignment.spec != record.spec:
        raise CheckpointError(
            f"env: found an environment with {assignment.spec}",
            f"the run's {record.spec}",
            "pass the environment of the run",
        )
    return assignment


def _same_log(log: Log | Interactions | None, record: Record) -> Log | Interactions:
    if log is None:
        if record.data.origin is None:
            raise CheckpointError(
                "the run's log was created in memory and is not saved", fix="pass it, as in resume(folder, log=log)"
            )
        log = reopen_any(record.data.origin)
    if log.fingerprint() != record.data.fingerprint:
        raise LogError(
            f"log: found {log.steps} steps with fingerprint {log.fingerprint()[:12]}",
            f"the run's {record.data.steps} steps with fingerprint {(record.data.fingerprint or '')[:12]}",
            "pass the log that the run was trained on",
        )
    return log


def _with_truncated_end(learner: LearnerState) -> LearnerState:
    """Mark the last stored decision of a learner as truncated, because its environment restarts."""
    own = learner.segments["own"]
    last = jnp.maximum(own.filled - 1, 0)
    truncated = own.columns["truncated"].at[last, -1].set(True)
    return learner._replace(
        segments={**learner.segments, "own": own._replace(columns={**own.columns, "truncated": truncated})}
    )
