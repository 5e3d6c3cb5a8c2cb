"""`learn`: learn in an environment, and `finetune`: continue in one after a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.finetune import FinetuneConfig, FinetunedAlgorithm, Scales, check_tunable, with_constant_rates
from tidelog.algorithms.hyperparameters import same_program
from tidelog.algorithms.names import as_algorithms, check_fit, check_source, names
from tidelog.data.log import Log
from tidelog.data.statistics import Scaler
from tidelog.errors import ConfigError, SpecError
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions import Interactions
from tidelog.sinks import Sink
from tidelog.training.collect import CollectedLog, assign_environments, environment_name
from tidelog.training.engine import Engine, cores_as_devices, fresh_collectors, initial_learners, planned_updates
from tidelog.training.loop import as_members, metric_labels, use_cache
from tidelog.training.metrics import Selection
from tidelog.training.options import FinetuneOptions, LearnOptions, Options, as_path, as_seeds, option_values
from tidelog.training.processes import check_alone, check_processes, devices_of_all, shared_folder
from tidelog.training.record import (
    Record,
    TrainingData,
    check_environments,
    check_free,
    evaluated,
    new_folder,
    this_machine,
)
from tidelog.training.run import Run
from tidelog.training.stores import check_memory
from tidelog.types import Codes, Continuous, Discrete, Spec, Vector

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
    Raises ConfigError, SpecError, SpaceError, EnvironmentFailure, DivergenceError.

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
    of_run: dict[str, Any] = {"best": None, "patience": None, "together": None, "save_seconds": 30.0, "keep": 3}
    values, own = option_values("finetune", FinetuneOptions, options, steps, log_out=absolute(log_out))
    tuning = FinetuneConfig(**{name: values[name] for name in TUNING if name in values})
    settings = replace(record.options, **of_run | values | asdict(tuning))
    together, episodes = settings.together, settings.evaluate
    algorithms = [member.algorithm for member in run.members]
    for algorithm in algorithms:
        check_tunable(algorithm, record.spec)
    check_memory(algorithms, 1, record.spec, None)
    assignment = assign_environments(env, 1, [member.seed for member in run.members], log_out is not None)
    name = environment_name(env, assignment)
    check_same_spaces(record.spec, assignment.spec, name)
    collectors = collectors_of(algorithms, record.scaler, tuning, steps)
    planned = planned_updates(collectors[0], steps)
    states = [with_restarted_schedules(learner.state, planned) for learner in run.learners()]
    pairs = [(collector, member.seed) for collector, member in zip(collectors, run.members, strict=True)]
    learners = initial_learners(pairs, states, assignment.spec, assignment.source, log_out is not None, stores)
    check_environments(run.policy(), episodes)
    if settings.best is not None:
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
    begun = replace(record, options=settings, data=data, machine=this_machine())
    engine = Engine(
        run.members,
        learners,
        steps,
        stores=stores,
        assignment=assignment,
        collectors=collectors,
        together=together,
        collected_log=collected_log,
    )
    tuned = Run(begun, engine, new_folder(out, begun, overwrite), validation=validation, evaluators=own, sinks=sinks)
    return tuned.train(progress) if train else tuned


def with_restarted_schedules(state: Any, updates: int) -> Any:
    """Return the state with all schedules at their start, for `updates` more updates."""
    return state._replace(step=jnp.int32(0), updates=jnp.int32(updates))


def check_same_spaces(ours: Spec, theirs: Spec, name: str) -> None:
    """Raise SpecError, with the difference, unless an environment has the observations and actions of the log."""
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
    SpaceError, EnvironmentFailure, DivergenceError.

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
        members, spec, assignment.source, settings.steps, log_out is not None, together=settings.together
    )
    policy = Policy(algorithms[0], spec, Scaler(), algorithms[0].policy_params(learners[0].state))
    check_environments(policy, settings.evaluate)
    if settings.best is not None:
        Selection(settings).check([*metric_labels(learners[0]), *evaluated(settings.evaluate, own)])
    collected_log = new_collected_log(log_out, spec, len(members))
    check_free(out, overwrite)
    engine = Engine(
        members,
        learners,
        settings.steps,
        assignment=assignment,
        together=settings.together,
        devices=settings.devices,
        collected_log=collected_log,
    )
    data = TrainingData(environment=name, named=isinstance(env, str))
    record = Record.online(algorithms, settings, spec, data)
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
