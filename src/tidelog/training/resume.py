"""`resume` and `load`: read a run from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelog.data.log import Log
from tidelog.errors import CheckpointError, ConfigError, LogError
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.interactions.readers import reopen_any
from tidelog.sinks import Sink
from tidelog.training.engine.cache import use_cache
from tidelog.training.engine.engine import Engine
from tidelog.training.engine.members import as_members, fresh_learners
from tidelog.training.engine.memory_need import check_memory
from tidelog.training.engine.placement import cores_as_devices
from tidelog.training.finetune import reopened_finetuning
from tidelog.training.fit import parts_of, validation_of
from tidelog.training.learn import reopened
from tidelog.training.runs.checkpoints import Checkpoints
from tidelog.training.runs.lock import check_unlocked
from tidelog.training.runs.options import Evaluator, evaluators
from tidelog.training.runs.processes import check_processes, devices_of_all
from tidelog.training.runs.record import Record
from tidelog.training.runs.run import Run
from tidelog.training.runs.time_split import TimeSplit


def resume(
    folder: str | Path,
    log: Log | Interactions | None = None,
    *,
    env: Any = None,
    algorithm: Any = None,
    evaluate: Mapping[str, Evaluator] | None = None,
    sinks: Sequence[Sink] = (),
    checkpoint: int | None = None,
    progress: bool | None = None,
) -> Run:
    """Continue an interrupted run, bit-equal to an uninterrupted one (same versions, device and thread count).

    Pass `log` if the run's log was created in memory, `env` if its environment has no registered name, `algorithm` if
    it has custom parts, `evaluate` if it has custom evaluators, `checkpoint` to start from an older checkpoint than the
    last.
    """
    check_unlocked(Path(folder))
    options: dict[str, Any] = {"sinks": sinks, "checkpoint": checkpoint}
    run = load(folder, log, env=env, algorithm=algorithm, evaluate=evaluate, **options)
    return run.train(progress)


def load(
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
        >>> tl.load("runs/bc", log=log).update  # a log that was read from a file is found again without `log=`
        20
    """
    use_cache()
    path = Path(folder)
    record = Record.read(path)
    cores_as_devices(record.options.devices)
    _, own = evaluators(evaluate or {})
    missing = sorted(set(record.options.own_evaluators) - set(own))
    if missing:
        raise ConfigError(f"the run's custom evaluators are missing: {', '.join(missing)}. fix: pass them in evaluate=")
    if record.environment is not None and not record.is_finetuned:
        return reopened(path, record, env, algorithm, own, sinks, checkpoint, together)
    log = _same_log(log, record)
    options, algorithms = record.options, record.algorithms(algorithm)
    check_memory(algorithms, len(options.seeds), record.spec, log)
    parts = parts_of(log, options)
    members = as_members(algorithms, options.seeds)
    stores = parts.stores(algorithms[0], record.scaler)
    if record.is_finetuned:
        validation = validation_of(parts, algorithms[0], record.scaler)
        return reopened_finetuning(path, record, algorithms, stores, validation, env, own, sinks, checkpoint, together)
    templates = fresh_learners(members, record.spec, stores, options.steps)
    snapshot = Checkpoints(path / "checkpoints", options.keep).load(templates, checkpoint)
    together = options.together if together is None else together
    engine = Engine(
        members,
        snapshot.learners,
        options.steps,
        stores=stores,
        position=snapshot.position,
        together=together,
        devices=devices_of_all(options.devices),
    )
    check_processes(record, snapshot.learners)
    validation = validation_of(parts, algorithms[0], record.scaler)
    return Run(
        record,
        engine,
        path,
        validation=validation,
        evaluators=own,
        sinks=sinks,
        checkpoint=snapshot,
        q_weight_selection=parts.q_weight_selection() if isinstance(parts, TimeSplit) else None,
    )


def _same_log(log: Log | Interactions | None, record: Record) -> Log | Interactions:
    if log is None:
        if record.data.origin is None:
            raise CheckpointError(
                "the run's log was created in memory and is not saved. fix: pass it, as in resume(folder, log=log)"
            )
        log = reopen_any(record.data.origin)
    if log.fingerprint() != record.data.fingerprint:
        raise LogError(
            f"log: found {log.steps} steps with fingerprint {log.fingerprint()[:12]}, expected the run's "
            f"{record.data.steps} steps with fingerprint {(record.data.fingerprint or '')[:12]}. fix: pass the log "
            "that the run was trained on"
        )
    return log
