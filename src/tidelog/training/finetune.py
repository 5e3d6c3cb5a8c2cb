"""`finetune`: a run that learned from a log continues in an environment, with the learner state of every member.

Minibatches mix rows of the log and the member's own decisions. The held-out part of the log stays held out. Learning
rates are constant, unless the schedules restart over the remaining updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.finetune import (
    FinetuneConfig,
    FinetunedAlgorithm,
    Scales,
    check_tunable,
    with_constant_rates,
)
from tidelog.data.scaling import Scaler
from tidelog.errors import CheckpointError, ConfigError, SpecError
from tidelog.networks.keys import new_key
from tidelog.sinks import Sink
from tidelog.training.engine.cache import use_cache
from tidelog.training.engine.engine import Engine
from tidelog.training.engine.learner import LearnerState, Stores, metric_labels
from tidelog.training.engine.members import as_members
from tidelog.training.engine.memory_need import check_memory
from tidelog.training.engine.validation import Validation
from tidelog.training.online.collected_log import CollectedLog
from tidelog.training.online.env_assignment import (
    EnvAssignment,
    assign_environments,
    environment_name,
    restore_environments,
)
from tidelog.training.online.initial_learners import initial_learners, planned_updates
from tidelog.training.runs.checkpoints import Checkpoints
from tidelog.training.runs.evaluation import check_environments, evaluated
from tidelog.training.runs.options import Evaluator, Options, as_path, evaluators, reports_every
from tidelog.training.runs.processes import check_alone
from tidelog.training.runs.record import Record, new_folder, this_machine
from tidelog.training.runs.run import Run
from tidelog.training.runs.selection import Selection
from tidelog.types import Codes, Continuous, Discrete, Spec, Vector


def finetune(
    run: Run,
    env: Any,
    steps: int,
    out: str | Path | None = None,
    *,
    offline: float = 0.5,
    updates: float = 1.0,
    collect_every: int = 10,
    restart_schedules: bool = False,
    evaluate: Mapping[str, Evaluator] | None = None,
    every: int | None = None,
    best: str | None = None,
    patience: int | None = None,
    log_out: str | Path | None = None,
    overwrite: bool = False,
    sinks: Sequence[Sink] = (),
    save_seconds: float = 30.0,
    keep: int = 3,
    together: bool | None = None,
    progress: bool | None = None,
    train: bool = True,
) -> Run:
    """Continue every seed of a run that learned from a log in an environment, for `steps` decisions per seed.

    `offline` is the share of a minibatch that comes from the log, `updates` the updates per decision, `collect_every`
    the decisions between updates. `training/runs/options.py` describes the other options. `overwrite` replaces the run
    in `out`. `train=False` returns the run
    before its first decision. Raises ConfigError, SpecError, SpaceError, EnvironmentFailure, DivergenceError.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> run = tl.fit(tl.IQL(hidden=(16,)), log, steps=20)
        >>> tuned = tl.finetune(run, "treatment", steps=70)
        >>> tuned.done, tuned.unit
        (70, 'decisions')
    """
    use_cache()
    check_alone("finetune")
    if not isinstance(run, Run):
        raise ConfigError(f"finetune takes a run, found {type(run).__name__}. fix: pass tl.load(folder)")
    out, log_out = as_path("out", out), as_path("log_out", log_out)
    tuning = FinetuneConfig(offline, updates, collect_every, restart_schedules)
    record, (stores, validation) = run.record, run.learnt_from()
    _check_offline(record)
    episodes, own = evaluators(evaluate or {})
    options = replace(
        record.options,
        **asdict(tuning),
        steps=steps,
        every=reports_every(every, steps),
        best=best,
        patience=patience,
        evaluate=episodes,
        own_evaluators=tuple(own),
        log_out=None if log_out is None else str(log_out.resolve()),
        save_seconds=save_seconds,
        keep=keep,
        together=together,
    )
    for member in run.members:
        check_tunable(member.algorithm, record.spec)
    check_memory([member.algorithm for member in run.members], 1, record.spec, None)
    assignment = assign_environments(env, 1, [member.seed for member in run.members], log_out is not None)
    check_same_spaces(record.spec, assignment.spec, environment_name(env, assignment))
    collectors = _collectors_of([member.algorithm for member in run.members], record.scaler, tuning, options.steps)
    planned = planned_updates(collectors[0], options.steps)
    states = [with_restarted_schedules(learner.state, planned) for learner in run.learners()]
    learners = _learners(collectors, states, options, assignment, log_out, stores)
    check_environments(run.policy(), episodes)
    if best is not None:
        losses = validation.names(run.members[0].algorithm, states[0]) if validation else []
        Selection(options).check([*metric_labels(learners[0]), *losses, *evaluated(episodes, own)])
    collected_log = None if log_out is None else CollectedLog(log_out, assignment.spec, len(run.members))
    if collected_log is not None:
        collected_log.check_free()
    data = replace(
        record.data,
        environment=environment_name(env, assignment),
        named=isinstance(env, str),
        finetuned=True,
        finetuned_from=None if run.folder is None else str(run.folder.resolve()),
    )
    begun = replace(record, options=options, data=data, machine=this_machine())
    engine = Engine(
        run.members,
        learners,
        options.steps,
        stores=stores,
        assignment=assignment,
        collectors=collectors,
        together=together,
        collected_log=collected_log,
    )
    tuned = Run(begun, engine, new_folder(out, begun, overwrite), validation=validation, evaluators=own, sinks=sinks)
    return tuned.train(progress) if train else tuned


def _settings_of(options: Options) -> FinetuneConfig:
    """Return the fine-tuning settings of a run from its options."""
    names = ("offline", "updates", "collect_every", "restart_schedules")
    return FinetuneConfig(**{name: getattr(options, name) for name in names})


def reopened_finetuning(
    path: Path,
    record: Record,
    algorithms: list[Any],
    stores: Stores,
    validation: Validation | None,
    env: Any,
    own: Mapping[str, Any],
    sinks: Sequence[Sink],
    checkpoint: int | None,
    together: bool | None,
) -> Run:
    """Return a run that is being fine-tuned in an environment, in the state of its checkpoint."""
    options, tuning = record.options, _settings_of(record.options)
    log_out = None if options.log_out is None else Path(options.log_out)
    members = as_members(algorithms, options.seeds)
    if env is None and not record.data.named:
        raise CheckpointError(
            f"the run's environment {record.environment} has no registered name. fix: pass it again, as in "
            "resume(folder, env=env)"
        )
    if env is None:
        record.check_imported(path, [str(record.environment)])
    env = record.environment if env is None else env
    assignment = assign_environments(env, 1, [member.seed for member in members], log_out is not None)
    check_same_spaces(record.spec, assignment.spec, environment_name(env, assignment))
    collectors = _collectors_of([member.algorithm for member in members], record.scaler, tuning, options.steps)
    planned = planned_updates(collectors[0], options.steps)
    states = [player.init(record.spec, new_key(0), planned) for player in collectors]
    templates = _learners(collectors, states, options, assignment, log_out, stores)
    snapshot = Checkpoints(path / "checkpoints", options.keep).load(templates, checkpoint)
    collected_log = None if log_out is None else CollectedLog(log_out, assignment.spec, len(members))
    learners = [
        learner if assignment.source or snapshot.environments[i] else _with_truncated_end(learner)
        for i, learner in enumerate(
            restore_environments(assignment, collectors, snapshot.learners, snapshot.environments)
        )
    ]
    together = options.together if together is None else together
    engine = Engine(
        members,
        learners,
        options.steps,
        stores=stores,
        assignment=assignment,
        collectors=collectors,
        position=snapshot.position,
        together=together,
        collected_log=collected_log,
    )
    return Run(
        record,
        engine,
        path,
        validation=validation,
        evaluators=own,
        sinks=sinks,
        checkpoint=snapshot,
    )


def with_restarted_schedules(state: Any, updates: int) -> Any:
    """Return the state with all schedules at their start, for `updates` more updates."""
    return state._replace(step=jnp.int32(0), updates=jnp.int32(updates))


def check_same_spaces(ours: Spec, theirs: Spec, name: str) -> None:
    """Raise SpecError, with the difference, unless an environment has the observations and actions of the log."""
    fix = "fix: fine-tune in an environment with the spaces of the log"
    if set(ours.observation) != set(theirs.observation):
        raise SpecError(
            f"{name} has the observations {sorted(theirs.observation)}, expected those of the log, "
            f"{sorted(ours.observation)}. {fix}"
        )
    pairs = [(f"observation '{leaf}'", ours.observation[leaf], theirs.observation[leaf]) for leaf in ours.observation]
    for what, one, two in (*pairs, ("the action", ours.action, theirs.action)):
        if _comparable(one, two) != _comparable(two, one):
            raise SpecError(f"{what} of the log is {one}, but that of {name} is {two}. {fix}")
    if ours.masked != theirs.masked:
        has = {True: "has action masks", False: "has no action masks"}
        raise SpecError(f"the log {has[ours.masked]}, but {name} {has[theirs.masked]}. {fix}")


def _comparable(space: Any, other: Any) -> Any:
    """Return a space without the names that the other space lacks, and with bounds rounded to float32."""
    changes: dict[str, Any] = {}
    if isinstance(space, Vector | Discrete | Continuous | Codes) and not getattr(other, "names", ()):
        changes["names"] = ()
    if isinstance(space, Codes) and not any(getattr(other, "vocabularies", ())):
        changes["vocabularies"] = ()
    if isinstance(space, Continuous):
        changes |= {bound: tuple(np.asarray(getattr(space, bound), np.float32).tolist()) for bound in ("low", "high")}
    return replace(space, **changes)


def _check_offline(record: Record) -> None:
    if record.environment is not None:
        raise ConfigError(
            f"run: this run learns in the environment {record.environment} already, expected a run that learned from a "
            "log. fix: resume this run, or pass a run of tl.fit"
        )


def _collectors_of(algorithms: list[Any], scaler: Scaler, tuning: FinetuneConfig, steps: int) -> list[Any]:
    centre = 0.0 - np.asarray(scaler.reward_shift, np.float64) / scaler.reward_scale
    scales = Scales(dict(scaler.mean), dict(scaler.std), np.float32(scaler.reward_scale), np.float32(centre))
    rounds = -(-steps // tuning.collect_every)
    if not tuning.restart_schedules:
        algorithms = [with_constant_rates(algorithm) for algorithm in algorithms]
    return [FinetunedAlgorithm(algorithm, scales, tuning, rounds) for algorithm in algorithms]


def _learners(
    collectors: list[Any],
    states: list[Any],
    options: Options,
    assignment: EnvAssignment,
    log_out: Any,
    stores: Stores,
) -> list[LearnerState]:
    seeds = list(options.seeds) * (len(collectors) // len(options.seeds))
    pairs = list(zip(collectors, seeds, strict=True))
    return initial_learners(pairs, states, assignment.spec, assignment.source, log_out is not None, stores)


def _with_truncated_end(learner: LearnerState) -> LearnerState:
    """Mark the last stored decision of a learner as truncated, because its environment restarts."""
    own = learner.segments["own"]
    last = jnp.maximum(own.filled - 1, 0)
    truncated = own.columns["truncated"].at[last, -1].set(True)
    return learner._replace(
        segments={**learner.segments, "own": own._replace(columns={**own.columns, "truncated": truncated})}
    )
