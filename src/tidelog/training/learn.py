"""`learn`: learn in an environment; `finetune`: continue in one after a log; `load_run`: go on with any saved run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np

from tidelog._machine import this_machine, use_cache
from tidelog.algorithms.contract import without_scale
from tidelog.algorithms.finetune import FinetuneConfig, FinetunedAlgorithm, Scales, check_tunable, with_constant_rates
from tidelog.algorithms.hyperparameters import same_program
from tidelog.algorithms.names import as_algorithms, check_fit, check_source, names
from tidelog.data.log import Log
from tidelog.data.statistics import Scaler
from tidelog.errors import CheckpointError, ConfigError, LogError, SpecError
from tidelog.networks import native
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.read import reopen_any
from tidelog.sinks import Sink
from tidelog.training.collect import (
    CollectedLog,
    EnvAssignment,
    assign_environments,
    environment_name,
    restore_environments,
)
from tidelog.training.engine import Engine, cores_as_devices, fresh_collectors, initial_learners, planned_updates
from tidelog.training.fit import parts_of, validation_of
from tidelog.training.loop import LearnerState, as_members, fresh_learners, metric_labels
from tidelog.training.metrics import Selection
from tidelog.training.options import (
    Evaluator,
    FinetuneOptions,
    LearnOptions,
    Options,
    RunOptions,
    as_path,
    as_seeds,
    evaluators,
    option_values,
)
from tidelog.training.processes import check_alone, check_processes, devices_of_all, shared_folder
from tidelog.training.record import (
    Checkpoints,
    Record,
    TrainingData,
    check_environments,
    check_free,
    evaluated,
    new_folder,
)
from tidelog.training.run import Run
from tidelog.training.stores import check_memory
from tidelog.types import Codes, Continuous, Discrete, Hybrid, Spec, Vector

TUNING = ("offline", "updates", "collect_every", "restart_schedules")  # the fields of `FinetuneConfig`

# `finetune`: a run that learned from a log continues in an environment, with the learner state of every member.
#
# Minibatches mix rows of the log and the member's own decisions. The held-out part of the log stays held out. Learning
# rates are constant, unless the schedules restart over the remaining updates.


def finetune(
    run: Run,
    env: Any,
    steps: int,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    sinks: Sequence[Sink] = (),
    progress: bool | None = None,
    train: bool = True,
    **options: Unpack[FinetuneOptions],
) -> Run:
    """Continue every seed of a run that learned from a log in an environment, for `steps` decisions per seed.

    `tidelog.training.options.FinetuneOptions` describes the options, such as `offline`, the share of a minibatch that
    comes from the log. `overwrite` replaces the run in `out`. `train=False` returns the run before its first decision.
    Raises ConfigError, SpecError, MemoryLimitError, EnvironmentFailure, DivergenceError.

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
        raise ConfigError(f"finetune takes a run, found {type(run).__name__}", fix="pass tl.load_run(folder)")
    out, log_out = as_path("out", out), as_path("log_out", options.get("log_out"))
    record, (stores, validation) = run.record, run.learnt_from()
    if record.environment is not None:
        raise ConfigError(
            f"run: this run learns in the environment {record.environment} already",
            "a run that learned from a log",
            "resume this run, or pass a run of tl.fit",
        )
    of_run: dict[str, Any] = {
        one.name: one.default for one in fields(Options) if one.name in RunOptions.__annotations__
    }
    values, own = option_values("finetune", FinetuneOptions, options, steps, log_out=absolute(log_out))
    tuning = FinetuneConfig(**{name: values[name] for name in TUNING if name in values})
    settings = replace(record.options, **of_run | values | asdict(tuning))
    vmap, episodes = settings.vmap, settings.evaluate
    algorithms = [member.algorithm for member in run.members]
    for algorithm in algorithms:
        check_tunable(algorithm, record.spec)
    check_memory(algorithms, 1, record.spec, None)
    assignment = assign_environments(env, 1, [member.seed for member in run.members], log_out is not None)
    name = environment_name(env, assignment)
    check_same_spaces(record.spec, assignment.spec, name, record.data.discount_unit)
    collectors = collectors_of(algorithms, record.scaler, tuning, steps)
    planned = planned_updates(collectors[0], steps)
    states = [  # the schedules are at their start
        learner.state._replace(step=jnp.int32(0), updates=jnp.int32(planned)) for learner in run.learners()
    ]
    pairs = [(collector, member.seed) for collector, member in zip(collectors, run.members, strict=True)]
    learners = initial_learners(pairs, states, assignment.spec, assignment.source, log_out is not None, stores)
    check_environments(run.policy(), episodes)
    if settings.best_metric is not None:
        losses = validation.names(algorithms[0], states[0]) if validation else []
        Selection(settings).check([*metric_labels(learners[0]), *losses, *evaluated(episodes, own)])
    collected_log = new_collected_log(log_out, assignment.spec, len(run.members))
    data = replace(
        record.data,
        environment=name,
        named=isinstance(env, str),
        finetuned=True,
        finetuned_from=None if run.folder is None else str(run.folder.resolve()),
    )
    engine = Engine(
        run.members,
        learners,
        steps,
        stores=stores,
        assignment=assignment,
        collectors=collectors,
        vmap=vmap,
        collected_log=collected_log,
    )
    machine = {**this_machine(), "products": engine.products}
    begun = replace(record, options=settings, data=data, machine=machine)
    tuned = Run(begun, engine, new_folder(out, begun, overwrite), validation=validation, evaluators=own, sinks=sinks)
    return tuned.train(progress) if train else tuned


def check_same_spaces(ours: Spec, theirs: Spec, name: str, unit: str | None = None) -> None:
    """Raise SpecError, with the difference, unless an environment has the spaces and the unit of time of the log."""
    fix = "fine-tune in an environment with the spaces of the log"
    if set(ours.observation) != set(theirs.observation):
        raise SpecError(
            f"{name} has the observations {sorted(theirs.observation)}",
            f"those of the log, {sorted(ours.observation)}",
            fix,
        )
    pairs = [(f"observation '{leaf}'", ours.observation[leaf], theirs.observation[leaf]) for leaf in ours.observation]
    for what, one, two in (*pairs, ("the action", ours.action, theirs.action)):
        if _comparable(one, two) != _comparable(two, one):
            raise SpecError(f"{what} of the log is {one}, but that of {name} is {two}", fix=fix)
    if ours.masked != theirs.masked:
        has = {True: "has action masks", False: "has no action masks"}
        raise SpecError(f"the log {has[ours.masked]}, but {name} {has[theirs.masked]}", fix=fix)
    if unit != theirs.elapsed_unit:
        raise SpecError(
            f"the run learned from the log with a discount per {unit or 'step'}",
            f"one per {theirs.elapsed_unit or 'step'}, as {name} counts time",
            "give log and environment one elapsed_unit, or neither elapsed times",
        )


def _comparable(space: Any, other: Any) -> Any:
    """Return a space without the names that the other space lacks, and with bounds rounded to float32."""
    changes: dict[str, Any] = {}
    if isinstance(space, Hybrid) and isinstance(other, Hybrid) and len(space.parts) == len(other.parts):
        pairs = zip(space.parts, other.parts, strict=True)
        return replace(space, parts=tuple((name, _comparable(part, its)) for (name, part), (_, its) in pairs))
    if isinstance(space, Vector | Discrete | Continuous | Codes) and not getattr(other, "names", ()):
        changes["names"] = ()
    if isinstance(space, Codes) and not any(getattr(other, "vocabularies", ())):
        changes["vocabularies"] = ()
    if isinstance(space, Continuous):
        changes |= {bound: tuple(np.asarray(getattr(space, bound), np.float32).tolist()) for bound in ("low", "high")}
    return replace(space, **changes)


def collectors_of(algorithms: list[Any], scaler: Scaler, tuning: FinetuneConfig, steps: int) -> list[Any]:
    """Return the algorithms that collect and learn in fine-tuning, in the scale of the log."""
    centre = 0.0 - np.asarray(scaler.reward_shift, np.float64) / scaler.reward_scale
    scales = Scales(dict(scaler.mean), dict(scaler.std), np.float32(scaler.reward_scale), np.float32(centre))
    rounds = -(-steps // tuning.collect_every)
    if not tuning.restart_schedules:
        algorithms = [with_constant_rates(algorithm) for algorithm in algorithms]
    return [FinetunedAlgorithm(algorithm, scales, tuning, rounds) for algorithm in algorithms]


def learn(
    algorithm: Any,
    env: Any,
    steps: int,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    sinks: Sequence[Sink] = (),
    progress: bool | None = None,
    train: bool = True,
    **options: Unpack[LearnOptions],
) -> Run:
    """Learn in an environment from `steps` decisions per seed, rounded up to whole rollouts.

    `env` is any argument of `tidelog.envs.make`; functional environments ("jax:...") run inside the compiled loop. A
    list of algorithms is a population of members that differ in numbers. `tidelog.training.options.LearnOptions`
    describes the options. `overwrite` replaces the run in `out`. `evaluate` acts deterministically; `"sampled:NAME"`
    samples the actions. `train=False` returns the run before its first decision. Raises ConfigError, SpecError,
    MemoryLimitError, EnvironmentFailure, DivergenceError.

    Example:
        >>> algorithm = tl.PPO(num_envs=8, rollout_steps=16, hidden=(16,))
        >>> run = tl.learn(algorithm, "jax:treatment", steps=1_024)
        >>> run.metrics[-1]["decisions"]
        1024
    """
    use_cache()
    out, log_out = as_path("out", out), as_path("log_out", options.get("log_out"))
    if isinstance(algorithm, Run):
        raise ConfigError("learn takes an algorithm, found a run", fix="use tl.finetune(run, env, steps)")
    algorithms = as_algorithms(algorithm)
    same_program(algorithms)
    check_source(algorithms[0], True)
    _check_environment(env, algorithms[0])
    devices = devices_of_all(options.get("devices"))
    values, own = option_values(
        "learn", LearnOptions, options, steps, seeds=as_seeds(seeds), log_out=absolute(log_out), devices=devices
    )
    settings = Options(**values)
    cores_as_devices(settings.devices)
    if log_out is not None:
        check_alone("learn with log_out")
    members = as_members(algorithms, settings.seeds)
    count = algorithms[0].collection().num_envs
    assignment = assign_environments(env, count, [member.seed for member in members], log_out is not None)
    name, spec = environment_name(env, assignment), assignment.spec
    for one in algorithms:
        check_fit(one, spec, "environment")
    check_memory(algorithms, len(settings.seeds), spec, None)
    learners = fresh_collectors(
        members, spec, assignment.source, settings.steps, log_out is not None, vmap=settings.vmap
    )
    params, scaler = without_scale(algorithms[0].policy_params(learners[0].state), Scaler())
    policy = Policy(algorithms[0], spec, scaler, params)
    check_environments(policy, settings.evaluate)
    if settings.best_metric is not None:
        Selection(settings).check([*metric_labels(learners[0]), *evaluated(settings.evaluate, own)])
    collected_log = new_collected_log(log_out, spec, len(members))
    check_free(out, overwrite)
    engine = Engine(
        members,
        learners,
        settings.steps,
        assignment=assignment,
        vmap=settings.vmap,
        devices=settings.devices,
        collected_log=collected_log,
    )
    data = TrainingData(environment=name, named=isinstance(env, str), discount_unit=spec.elapsed_unit)
    record = Record.of(algorithms, settings, spec, data, Scaler(), products=engine.products)
    check_processes(record, learners)
    run = Run(record, engine, shared_folder(out, record, overwrite), evaluators=own, sinks=sinks)
    return run.train(progress) if train else run


def absolute(path: Path | None) -> str | None:
    """Return a path as a run's record holds it."""
    return None if path is None else str(path.resolve())


def new_collected_log(target: Path | None, spec: Spec, members: int) -> CollectedLog | None:
    """Return the log of all decisions of a run, or None without a target; ConfigError if that exists."""
    log = None if target is None else CollectedLog(target, spec, members)
    if log is not None:
        log.check_free()
    return log


def _check_environment(env: Any, algorithm: Any) -> None:
    """Raise SpecError, with the alternatives, if a log is passed as the environment."""
    if not isinstance(env, Log | Interactions):
        return
    name = type(algorithm).__name__
    alternatives = ", ".join(names("a log" if isinstance(env, Log) else "interactions"))
    without = "" if isinstance(env, Interactions) or env.propensity is not None else " without propensities"
    raise SpecError(
        f"env: {name} needs an environment, because it learns from its own decisions and their "
        f"probabilities; found a log of {env.steps:,} steps{without}",
        fix=f"learn from the log with {alternatives} (tl.fit); then, in an environment, go on with tl.finetune",
    )


# `load_run`: a run as it stands in its folder, to continue it or to read its policies. `tl.resume` continues it.


def load_run(
    folder: str | Path,
    log: Log | Interactions | None = None,
    *,
    env: Any = None,
    algorithm: Any = None,
    evaluate: Mapping[str, Evaluator] | None = None,
    sinks: Sequence[Sink] = (),
    checkpoint: int | None = None,
    vmap: bool | None = None,
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
    vmap = options.vmap if vmap is None else vmap
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
        parts = parts_of(log, options, algorithms[0])
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
            players, spec, assignment.source, options.steps, recorded, stores, None if tuned else vmap
        )
        if options.log_out is not None:
            collected_log = CollectedLog(options.log_out, spec, len(members))
    snapshot = Checkpoints(path / "checkpoints", options.keep_checkpoints).load(templates, checkpoint)
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
        vmap=vmap,
        devices=devices,
        collected_log=collected_log,
        kernels=native.resumes(record.products),
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
        name = environment_name(env, assignment)
        check_same_spaces(record.spec, assignment.spec, name, record.data.discount_unit)
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
