"""`learn`: from an algorithm and an environment to a run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidelog.algorithms import OFFLINE, RANKING, check_fit, check_source
from tidelog.algorithms.core.hyperparameters import same_program
from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.errors import CheckpointError, ConfigError, SpecError, nearest
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions.log import Interactions
from tidelog.training.engine.cache import use_cache
from tidelog.training.engine.learner import reported
from tidelog.training.engine.offload_storage import Storage, storage_for
from tidelog.training.engine.rounds import Rounds
from tidelog.training.engine.trainer import Member
from tidelog.training.finetune import FinetuneSettings, prepare_tuning, tuned_by
from tidelog.training.online.collected_log import CollectedLog
from tidelog.training.online.distillation import Start, begun_as, check_begins, learnt_through
from tidelog.training.online.env_assignment import EnvAssignment, place_name, places_for, restored
from tidelog.training.online.initial_learners import fresh_players
from tidelog.training.runs.checkpoints import Checkpoints
from tidelog.training.runs.evaluation import check_playable, evaluated
from tidelog.training.runs.preparing import as_algorithms, as_path, check_free, evaluators, new_folder
from tidelog.training.runs.progress import Screen
from tidelog.training.runs.record import Record
from tidelog.training.runs.run import Run
from tidelog.training.runs.selection import Selection
from tidelog.training.runs.settings import Evaluator, Settings, as_members, as_seeds, whole
from tidelog.training.runs.sinks import Sink, rows_until

REPORTS = 50  # reports a run makes unless it is told otherwise


def learn(
    algorithm: Any,
    env: Any,
    steps: int,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    *,
    progress: bool | None = None,
    **options: Any,
) -> Run:
    """Learn in an environment from `steps` decisions a seed, rounded up to whole rollouts.

    `algorithm` is one that learns in an environment, several of them that differ in numbers, or a run that learnt from
    a log and now goes on in the environment: every seed of it, on minibatches mixed of the log and of its own play.

    `env` is what `tidelog.envs.make` takes; functional environments ("jax:...") run compiled. Options: `evaluate` as
    `{environment: episodes}` (deterministic; `"sampled:NAME"` draws actions) or `{name: function of the policy}`,
    `every` decisions between reports, `best` a metric, `patience` in reports, `sinks`, `log_out` a folder for the log
    of all that was collected, `save_seconds`, `keep`, `together` (seeds under one `vmap`, functional environments).
    `start` is a policy (or a run) that fresh members begin as: `start_updates` steps (3,000) down their divergence from
    it on `start_decisions` (16,384) that it plays first, uncounted.
    `ahead` lets a thread play an environment on the host one round before what it plays is learnt from.
    `phase_buffer` "device", "host" or "disk" says where segments wait for the auxiliary phase (the results are the
    same, but for rounding where they are too many to be looked at at once), `phase_buffer_limit` how many GB they may
    take.
    Of a run also `offline`, the share of a minibatch that comes from its log (0.5), `updates` a decision (1), and
    `collect_every`, how many decisions are made before updates follow (10). Learning rates are constant there, or with
    `restart_schedules` follow the algorithm's schedules anew, over the updates to come.
    Raises ConfigError, SpecError, SpaceError, EnvironmentFailure, DivergenceError.
    """
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(f"learn has no option '{name}': {nearest(name, _OPTIONS)}")
    run = prepare_learning(algorithm, env, steps, seeds, out, **options)
    with Screen(run.record.algorithm, progress) as screen:
        for now in run.stream():
            screen.show(now)
    return run


def prepare_learning(
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
    sinks: Sequence[Sink] = (),
    log_out: str | Path | None = None,
    save_seconds: float = 30.0,
    keep: int = 3,
    together: bool | None = None,
    offline: float | None = None,
    updates: float | None = None,
    collect_every: int | None = None,
    restart_schedules: bool | None = None,
    start: Policy | Run | None = None,
    start_decisions: int | None = None,
    start_updates: int | None = None,
    ahead: bool = False,
    phase_buffer: str = "device",
    phase_buffer_limit: float | None = None,
) -> Run:
    """Check everything and make a run that has not played a step; `run.stream()` trains it chunk by chunk."""
    use_cache()
    out, log_out = as_path("out", out), as_path("log_out", log_out)
    mix: dict[str, Any] = {"offline": offline, "updates": updates, "collect_every": collect_every}
    mix["restart_schedules"] = restart_schedules
    begin = Start.of(start, decisions=start_decisions, updates=start_updates)
    if isinstance(algorithm, Run):
        _check_goes_on(algorithm, seeds, begin, ahead)
        if phase_buffer != "device" or phase_buffer_limit is not None:
            raise ConfigError("phase_buffer: a run that goes on from a log has no phases; leave it away")
        plan = FinetuneSettings(evaluate or {}, every, best, patience, sinks, log_out, save_seconds, keep, together)
        return prepare_tuning(algorithm, env, steps, out, tuned_by(mix), plan)
    given = [name for name, value in mix.items() if value is not None]
    if given:
        raise ConfigError(f"{', '.join(given)}: only for a run that learnt from a log and goes on in an environment")
    algorithms = as_algorithms(algorithm)
    same_program(algorithms)
    check_source(algorithms[0], True)
    _check_plays(env, algorithms[0])
    if begin is not None:
        check_begins(algorithms[0])
    episodes, own = evaluators(evaluate or {})
    settings = Settings(
        steps=steps,
        seeds=as_seeds(seeds),
        every=max(1, whole("steps", steps) // REPORTS) if every is None else every,
        best=best,
        patience=patience,
        episodes=episodes,
        own_evaluators=tuple(own),
        save_seconds=save_seconds,
        keep=keep,
        together=together,
        ahead=ahead,
        phase_buffer=phase_buffer,
        phase_buffer_limit=phase_buffer_limit,
    )
    members = as_members(algorithms, settings.seeds)
    storage = _storage(settings, out, algorithms[0])
    places = _places(env, members, log_out is not None)
    if ahead and places.source is not None:
        raise ConfigError(
            f"ahead: {place_name(env, places)} is a function that runs compiled with what learns, there is nothing to "
            "overlap; it is for environments on the host"
        )
    for one in algorithms:
        check_fit(one, places.spec, "environment")
    learners = fresh_players(members, places.spec, places.source, settings.steps, log_out is not None, storage)
    check_playable(
        Policy(algorithms[0], places.spec, Scaler(), algorithms[0].policy_params(learners[0].state)), episodes
    )
    if best is not None:
        Selection(settings).check([*reported(learners[0]), *evaluated(episodes, own)])
    recorder = None if log_out is None else CollectedLog(log_out, places.spec, len(members))
    if recorder is not None:
        recorder.check_free()
    check_free(out)
    learners, told = (learners, None) if begin is None else begun_as(begin, members, learners, places)
    trainer = Rounds(
        members,
        places,
        learners,
        settings.steps,
        together=together,
        recorder=recorder,
        ahead=ahead,
        storage=storage,
    )
    data = {
        "environment": place_name(env, places),
        "named": isinstance(env, str),
        "log_out": None if log_out is None else str(log_out.resolve()),
    }
    if told is not None:
        data["start"] = told
    record = Record.online(algorithms, settings, places.spec, data)
    if begin is not None:
        record = replace(record, sketches=learnt_through(begin.policy))
    return Run(record, trainer, new_folder(out, record), evaluators=own, sinks=sinks)


def _check_goes_on(run: Run, seeds: Any, begin: Start | None, ahead: bool) -> None:
    """Raise ConfigError where a run that goes on was asked for what it has of its own."""
    if seeds != 1:
        raise ConfigError(f"seeds = {seeds!r}: a run goes on with its own seeds, {list(run.record.settings.seeds)}")
    if begin is not None:
        raise ConfigError("start: a run goes on as its own policy; to begin as it with another algorithm, pass that")
    if ahead:
        raise ConfigError("ahead: a run that goes on plays a few decisions at a time, which leaves nothing to overlap")


_OPTIONS = tuple(inspect.signature(prepare_learning).parameters)


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
    """A run that learns in an environment, as its checkpoint left it."""
    settings, algorithms = record.settings, record.algorithms(algorithm)
    settings = settings if together is None else replace(settings, together=together)
    log_out = record.data["log_out"]
    members = as_members(algorithms, settings.seeds)
    if env is None and not record.data["named"]:
        raise CheckpointError(
            f"the run's environment, {record.environment}, has no name: pass it again, as in resume(folder, env=env)"
        )
    places = _places(record.environment if env is None else env, members, log_out is not None)
    if places.spec != record.spec:
        raise CheckpointError(f"this is not the run's environment: it has {places.spec}, the run's had {record.spec}")
    storage = _storage(settings, path, algorithms[0])
    templates = fresh_players(members, record.spec, places.source, settings.steps, log_out is not None, storage)
    params = (
        [m.algorithm.policy_params(t.state) for m, t in zip(members, templates, strict=True)] if settings.ahead else []
    )
    found = Checkpoints(path / "checkpoints", settings.keep).load(templates, checkpoint, params)
    recorder = None if log_out is None else CollectedLog(log_out, record.spec, len(members))
    if recorder is not None:
        recorder.go_on(int(found.learners[0].played.rounds))
    learners = restored(places, [member.algorithm for member in members], found.learners, found.environments)
    trainer = Rounds(
        members,
        places,
        learners,
        settings.steps,
        found.position,
        settings.together,
        recorder,
        ahead=settings.ahead,
        waiting=found.waiting,
        storage=storage,
    )
    trainer.put_back(found.deposited)
    rows = rows_until(path, trainer.update)
    return Run(record, trainer, path, evaluators=own, sinks=sinks, metrics=rows, memory=found.memory)


def _check_plays(env: Any, algorithm: Any) -> None:
    """Raise SpecError, with what is offered instead, where a log was given in place of an environment."""
    if not isinstance(env, Log | Interactions):
        return
    name, able = type(algorithm).__name__, ", ".join(OFFLINE if isinstance(env, Log) else RANKING)
    lacks = "" if isinstance(env, Interactions) or env.propensity is not None else " without propensities"
    raise SpecError(
        f"{name} learns from its own play and the probability of every action in it, found a log of {env.steps:,} "
        f"steps{lacks} in place of an environment: learn from that by {able} (tl.fit), and where there is an "
        f"environment begin as what they learnt (tl.learn({name}(...), env, start=run))"
    )


def _storage(settings: Settings, out: str | Path | None, algorithm: Any) -> Storage:
    where, limit = settings.phase_buffer, settings.phase_buffer_limit
    return storage_for(where, out, limit, settings.keep, algorithm, settings.together)


def _places(env: Any, members: list[Member], recorded: bool) -> EnvAssignment:
    count = members[0].algorithm.collection().environments
    return places_for(env, count, [member.seed for member in members], recorded)
