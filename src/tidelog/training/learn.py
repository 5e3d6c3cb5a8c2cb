"""`learn`: learn in an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidelog.algorithms.core.hyperparameters import same_program
from tidelog.algorithms.names import as_algorithms, check_fit, check_source, names
from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.errors import CheckpointError, ConfigError, SpecError
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions.log import Interactions
from tidelog.sinks import Sink
from tidelog.training.engine.cache import use_cache
from tidelog.training.engine.engine import Engine
from tidelog.training.engine.learner import metric_labels
from tidelog.training.engine.members import Member, as_members
from tidelog.training.engine.memory_need import check_memory
from tidelog.training.engine.placement import cores_as_devices
from tidelog.training.online.collected_log import CollectedLog
from tidelog.training.online.distillation import Start, begun_as, check_begins, learnt_through
from tidelog.training.online.env_assignment import (
    EnvAssignment,
    assign_environments,
    environment_name,
    restore_environments,
)
from tidelog.training.online.initial_learners import fresh_collectors
from tidelog.training.runs.checkpoints import Checkpoints
from tidelog.training.runs.evaluation import check_environments, evaluated
from tidelog.training.runs.options import (
    Evaluator,
    Options,
    as_path,
    as_seeds,
    evaluators,
    reports_every,
)
from tidelog.training.runs.processes import check_alone, check_processes, devices_of_all, shared_folder
from tidelog.training.runs.record import Record, TrainingData, check_free
from tidelog.training.runs.run import Run
from tidelog.training.runs.selection import Selection


def learn(
    algorithm: Any,
    env: Any,
    steps: int,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    *,
    evaluate: Mapping[str, Evaluator] | None = None,
    every: int | None = None,
    best: str | None = None,
    patience: int | None = None,
    log_out: str | Path | None = None,
    start: Policy | Run | None = None,
    start_decisions: int | None = None,
    start_updates: int | None = None,
    ahead: bool = False,
    overwrite: bool = False,
    sinks: Sequence[Sink] = (),
    save_seconds: float = 30.0,
    keep: int = 3,
    together: bool | None = None,
    devices: int | Mapping[str, int] | None = None,
    progress: bool | None = None,
    train: bool = True,
) -> Run:
    """Learn in an environment from `steps` decisions per seed, rounded up to whole rollouts.

    `env` is any argument of `tidelog.envs.make`; functional environments ("jax:...") run inside the compiled loop. A
    list of algorithms is a population of members that differ in numbers. `training/runs/options.py` describes every
    option. `overwrite` replaces the run in `out`. `start` is a policy (or a
    run): it collects decisions first, and fresh members are distilled from it on these. `evaluate` acts
    deterministically; `"sampled:NAME"` samples the actions. `train=False` returns the run before its first decision.
    Raises ConfigError, SpecError, SpaceError, EnvironmentFailure, DivergenceError.

    Example:
        >>> algorithm = tl.PPO(environments=8, rollout_steps=16, hidden=(16,))
        >>> run = tl.learn(algorithm, "jax:treatment", steps=1_024)
        >>> run.metrics[-1]["decisions"]
        1024
    """
    use_cache()
    out, log_out = as_path("out", out), as_path("log_out", log_out)
    start_from = Start.of(start, decisions=start_decisions, updates=start_updates)
    if isinstance(algorithm, Run):
        raise ConfigError("learn takes an algorithm, found a run. fix: use tl.finetune(run, env, steps)")
    algorithms = as_algorithms(algorithm)
    same_program(algorithms)
    check_source(algorithms[0], True)
    _check_environment(env, algorithms[0])
    if start_from is not None:
        check_begins(algorithms[0])
    episodes, own = evaluators(evaluate or {})
    options = Options(
        steps=steps,
        seeds=as_seeds(seeds),
        every=reports_every(every, steps),
        best=best,
        patience=patience,
        evaluate=episodes,
        own_evaluators=tuple(own),
        log_out=None if log_out is None else str(log_out.resolve()),
        start_decisions=start_decisions,
        start_updates=start_updates,
        ahead=ahead,
        save_seconds=save_seconds,
        keep=keep,
        together=together,
        devices=devices_of_all(devices),
    )
    cores_as_devices(options.devices)
    if start_from is not None or log_out is not None:
        check_alone("learn with start or log_out")
    members = as_members(algorithms, options.seeds)
    assignment = _assign_environments(env, members, log_out is not None)
    if ahead and assignment.source is not None:
        raise ConfigError(
            f"ahead=True needs a host environment; {environment_name(env, assignment)} already runs inside the "
            "compiled loop. fix: drop ahead"
        )
    for one in algorithms:
        check_fit(one, assignment.spec, "environment")
    check_memory(algorithms, len(options.seeds), assignment.spec, None)
    learners = fresh_collectors(
        members, assignment.spec, assignment.source, options.steps, log_out is not None, together
    )
    check_environments(
        Policy(algorithms[0], assignment.spec, Scaler(), algorithms[0].policy_params(learners[0].state)), episodes
    )
    if best is not None:
        Selection(options).check([*metric_labels(learners[0]), *evaluated(episodes, own)])
    collected_log = None if log_out is None else CollectedLog(log_out, assignment.spec, len(members))
    if collected_log is not None:
        collected_log.check_free()
    check_free(out, overwrite)
    learners, distillation = (
        (learners, None) if start_from is None else begun_as(start_from, members, learners, assignment)
    )
    engine = Engine(
        members,
        learners,
        options.steps,
        assignment=assignment,
        together=together,
        devices=options.devices,
        collected_log=collected_log,
        ahead=ahead,
    )
    data = TrainingData(environment=environment_name(env, assignment), named=isinstance(env, str), start=distillation)
    record = Record.online(algorithms, options, assignment.spec, data)
    if start_from is not None:
        record = replace(record, sketches=learnt_through(start_from.policy))
    check_processes(record, learners)
    run = Run(record, engine, shared_folder(out, record, overwrite), evaluators=own, sinks=sinks)
    return run.train(progress) if train else run


def reopened(
    path: Path,
    record: Record,
    env: Any,
    algorithm: Any,
    own: Mapping[str, Any],
    sinks: Sequence[Sink],
    checkpoint: int | None,
    together: bool | None,
) -> Run:
    """Return a run that learns in an environment, in the state of its checkpoint."""
    options, algorithms = record.options, record.algorithms(algorithm)
    options = options if together is None else replace(options, together=together)
    log_out = None if options.log_out is None else Path(options.log_out)
    members = as_members(algorithms, options.seeds)
    if env is None and not record.data.named:
        raise CheckpointError(
            f"the run's environment {record.environment} has no registered name. fix: pass it again, as in "
            "resume(folder, env=env)"
        )
    if env is None:
        record.check_imported(path, [str(record.environment)])
    source = record.environment if env is None else env
    assignment = _assign_environments(source, members, log_out is not None)
    if assignment.spec != record.spec:
        raise CheckpointError(
            f"env: found an environment with {assignment.spec}, expected the run's {record.spec}. fix: pass the "
            "environment of the run"
        )
    check_memory(algorithms, len(options.seeds), record.spec, None)
    templates = fresh_collectors(
        members, record.spec, assignment.source, options.steps, log_out is not None, options.together
    )
    params = (
        [m.algorithm.policy_params(t.state) for m, t in zip(members, templates, strict=True)] if options.ahead else []
    )
    snapshot = Checkpoints(path / "checkpoints", options.keep).load(templates, checkpoint, params)
    collected_log = None if log_out is None else CollectedLog(log_out, record.spec, len(members))
    learners = restore_environments(
        assignment, [member.algorithm for member in members], snapshot.learners, snapshot.environments
    )
    engine = Engine(
        members,
        learners,
        options.steps,
        assignment=assignment,
        position=snapshot.position,
        together=options.together,
        devices=options.devices,
        collected_log=collected_log,
        ahead=options.ahead,
        pending_params=snapshot.pending_params,
    )
    check_processes(record, learners)
    return Run(record, engine, path, evaluators=own, sinks=sinks, checkpoint=snapshot)


def _check_environment(env: Any, algorithm: Any) -> None:
    """Raise SpecError, with the alternatives, if a log is passed as the environment."""
    if not isinstance(env, Log | Interactions):
        return
    name = type(algorithm).__name__
    alternatives = ", ".join(names("a log" if isinstance(env, Log) else "interactions"))
    without = "" if isinstance(env, Interactions) or env.propensity is not None else " without propensities"
    raise SpecError(
        f"env: {name} needs an environment, because it learns from its own decisions and their probabilities; found a "
        f"log of {env.steps:,} steps{without}. fix: learn from the log with {alternatives} (tl.fit); then, with an "
        f"environment, start from that run (tl.learn({name}(...), env, start=run))"
    )


def _assign_environments(env: Any, members: list[Member], recorded: bool) -> EnvAssignment:
    count = members[0].algorithm.collection().environments
    return assign_environments(env, count, [member.seed for member in members], recorded)
