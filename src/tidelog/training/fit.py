"""`fit` and `resume`: from an algorithm and a log to a run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from tidelog.algorithms import check_fit, check_source
from tidelog.algorithms.core.hyperparameters import same_program
from tidelog.algorithms.core.optimisation import copied
from tidelog.data.log import Log
from tidelog.data.overlap import Sketch
from tidelog.data.scaling import Scaler
from tidelog.errors import CheckpointError, ConfigError, LogError, nearest
from tidelog.policies.named_arrays import fill, named_arrays
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.interactions.reopen import reopen_any
from tidelog.training.engine.cache import use_cache
from tidelog.training.engine.learner import LearnerState, reported
from tidelog.training.engine.stores import check_rewards
from tidelog.training.engine.trainer import Member, Trainer, fresh_learners
from tidelog.training.engine.validation import Validation
from tidelog.training.finetune import reopened_tuning
from tidelog.training.learn import reopened
from tidelog.training.runs.checkpoints import Checkpoints, read_part
from tidelog.training.runs.episode_split import EpisodeSplit
from tidelog.training.runs.evaluation import check_playable, evaluated
from tidelog.training.runs.preparing import as_algorithms, as_path, evaluators, new_folder
from tidelog.training.runs.progress import Screen
from tidelog.training.runs.record import Record
from tidelog.training.runs.run import Run
from tidelog.training.runs.selection import Selection
from tidelog.training.runs.settings import Evaluator, Settings, as_members, as_seeds, whole
from tidelog.training.runs.sinks import Sink, rows_until
from tidelog.training.runs.time_split import LISTS, TimeSplit, refuse_what_lists_lack
from tidelog.types import Vector

REPORTS = 50  # reports a run makes unless it is told otherwise,
CLOSEST = 50  # and how many updates they are apart at least


def fit(
    algorithm: Any,
    log: Log | Interactions,
    steps: int,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    *,
    progress: bool | None = None,
    **options: Any,
) -> Run:
    """Learn from a log for `steps` updates a member; a list of algorithms is a population, trained side by side.

    Options: `held_out` share of episodes for validation losses, `evaluate` as `{environment: episodes}` or `{name:
    function of the policy}`, `every` updates between reports, `scale` "standard" or "none" (default: standard for
    tables), `best` a metric, `patience` in reports, `sinks`, `warm_start` `{part: run folder}` (a target network starts
    as the network that it follows), `save_seconds`, `keep`, `together` (members under one `vmap`). Without `out`
    nothing is written. Raises ConfigError, SpecError, LogError, DivergenceError.
    """
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(f"fit has no option '{name}': {nearest(name, _OPTIONS)}")
    run = prepare(algorithm, log, steps, seeds, out, **options)
    return finish(run, progress)


def finish(run: Run, progress: bool | None = None) -> Run:
    """Train a prepared run to its end, with a live line on a terminal."""
    with Screen(run.record.algorithm, progress) as screen:
        for now in run.stream():
            screen.show(now)
    return run


def prepare(
    algorithm: Any,
    log: Log | Interactions,
    steps: int,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    *,
    held_out: float = 0.0,
    split_seed: int = 0,
    evaluate: Mapping[str, Evaluator] | None = None,
    every: int | None = None,
    scale: str | None = None,
    best: str | None = None,
    patience: int | None = None,
    sinks: Sequence[Sink] = (),
    warm_start: Mapping[str, str | Path] | None = None,
    save_seconds: float = 30.0,
    keep: int = 3,
    together: bool | None = None,
) -> Run:
    """Check everything and make a run that has not taken a step; `run.stream()` trains it chunk by chunk."""
    use_cache()
    algorithms = as_algorithms(algorithm)
    if not isinstance(log, Log | Interactions):
        raise ConfigError(
            f"expected a log, found {type(log).__name__}: read it first, as in tl.read_log(path, columns)"
        )
    same_program(algorithms)
    check_source(algorithms[0], False)
    for one in algorithms:
        check_fit(one, log.spec)
    out = as_path("out", out)
    episodes, own_evaluators = evaluators(evaluate or {})
    if isinstance(log, Interactions):
        refuse_what_lists_lack(scale, split_seed, episodes)
    settings = Settings(
        steps=steps,
        seeds=as_seeds(seeds),
        every=max(CLOSEST, whole("steps", steps) // REPORTS) if every is None else every,
        held_out=held_out,
        split_seed=split_seed,
        scale=_standardise(scale, log),
        best=best,
        patience=patience,
        episodes=episodes,
        own_evaluators=tuple(own_evaluators),
        save_seconds=save_seconds,
        keep=keep,
        together=together,
    )
    parts = parts_of(log, settings.held_out, settings.split_seed)
    scaler = parts.scaler(settings.scale, getattr(algorithms[0], "reward_scaling", None))
    members = as_members(algorithms, settings.seeds)
    stores = parts.stores(algorithms[0], scaler)
    learners = fresh_learners(members, log.spec, stores, settings.steps)
    if isinstance(parts, TimeSplit):
        learners = [furnished(member, learner, parts.train) for member, learner in zip(members, learners, strict=True)]
    else:
        check_rewards(algorithms[0], parts.log)
    if warm_start:
        learners = [warm_started(algorithms[0], learner, warm_start) for learner in learners]
    check_playable(Policy(algorithms[0], log.spec, scaler, algorithms[0].policy_params(learners[0].state)), episodes)
    validation = _validation(parts, algorithms[0], scaler)
    if best is not None:
        losses = validation.names(algorithms[0], learners[0].state) if validation else []
        losses += LISTS if validation and isinstance(parts, TimeSplit) else ()
        Selection(settings).check([*reported(learners[0]), *losses, *evaluated(episodes, own_evaluators)])
    trainer = Trainer(members, stores, learners, settings.steps, together=together)
    record = Record.of(algorithms, settings, log, scaler, parts.held_out_ids, _sketches(parts, warm_start))
    folder = new_folder(out, record)
    return Run(
        record,
        trainer,
        folder,
        validation=validation,
        evaluators=own_evaluators,
        sinks=sinks,
        weighing=parts.weighing() if isinstance(parts, TimeSplit) else None,
    )


_OPTIONS = tuple(inspect.signature(prepare).parameters)


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
    """Go on with an interrupted run, bit-equal to one never interrupted (same versions, device and thread count).

    `log` where the run's log was made in memory, `env` where its environment has no name, `algorithm` where it had
    parts of your own, `evaluate` where it had evaluators of your own, `checkpoint` for an older one than the last.
    """
    found = load(folder, log, env=env, algorithm=algorithm, evaluate=evaluate, sinks=sinks, checkpoint=checkpoint)
    return finish(found, progress)


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
    """A run as its checkpoint left it; `run.stream()` goes on, `run.policy()` acts."""
    use_cache()
    path = Path(folder)
    record = Record.read(path)
    _, own = evaluators(evaluate or {})
    lacking = sorted(set(record.settings.own_evaluators) - set(own))
    if lacking:
        raise ConfigError(f"the run had evaluators of your own, {', '.join(lacking)}: pass them again in evaluate=...")
    if record.environment is not None and record.tuning is None:
        return reopened(path, record, env, algorithm, own, sinks, checkpoint, together)
    log = _same_log(log, record)
    settings, algorithms = record.settings, record.algorithms(algorithm)
    parts = parts_of(log, settings.held_out, settings.split_seed)
    members = as_members(algorithms, settings.seeds)
    stores = parts.stores(algorithms[0], record.scaler)
    if record.tuning is not None:
        validation = _validation(parts, algorithms[0], record.scaler)
        return reopened_tuning(path, record, algorithms, stores, validation, env, own, sinks, checkpoint, together)
    templates = fresh_learners(members, record.spec, stores, settings.steps)
    found = Checkpoints(path / "checkpoints", settings.keep).load(templates, checkpoint)
    together = settings.together if together is None else together
    trainer = Trainer(members, stores, found.learners, settings.steps, found.position, together)
    validation = _validation(parts, algorithms[0], record.scaler)
    return Run(
        record,
        trainer,
        path,
        validation=validation,
        evaluators=own,
        sinks=sinks,
        metrics=rows_until(path, trainer.update),
        memory=found.memory,
        weighing=parts.weighing() if isinstance(parts, TimeSplit) else None,
    )


def parts_of(log: Log | Interactions, held_out: float, seed: int) -> EpisodeSplit | TimeSplit:
    """What is learnt from and what is held out: by episode, or by time."""
    return TimeSplit(log, held_out) if isinstance(log, Interactions) else EpisodeSplit(log, held_out, seed)


def furnished(member: Member, learner: LearnerState, log: Interactions) -> LearnerState:
    """A fresh learner with what the interactions say of their items."""
    return learner._replace(state=member.algorithm.furnish(learner.state, log, member.seed))


def _validation(parts: EpisodeSplit | TimeSplit, algorithm: Any, scaler: Scaler) -> Validation | None:
    stores = parts.validation_stores(algorithm, scaler)
    return None if stores is None else Validation(stores)


def _standardise(scale: str | None, log: Log | Interactions) -> bool:
    if scale not in (None, "standard", "none"):
        raise ConfigError(f"scale = {scale!r}: expected 'standard' or 'none'")
    if scale is not None:
        return scale == "standard"
    return any(isinstance(leaf, Vector) and bool(leaf.names) for leaf in log.spec.observation.values())


def _same_log(log: Log | Interactions | None, record: Record) -> Log | Interactions:
    if log is None:
        if record.data["origin"] is None:
            raise CheckpointError("the run's log was made in memory: pass it again, as in resume(folder, log=log)")
        log = reopen_any(record.data["origin"])
    if log.fingerprint() != record.data["fingerprint"]:
        raise LogError(
            f"this is not the log that the run was trained on: it has {log.steps} steps and fingerprint "
            f"{log.fingerprint()[:12]}, the run's had {record.data['steps']} and {record.data['fingerprint'][:12]}"
        )
    return log


def _sketches(parts: EpisodeSplit | TimeSplit, warm_start: Mapping[str, str | Path] | None) -> dict[str, Any]:
    """What was learnt from, the episodes of runs that parts come from among it; nothing where one does not know."""
    sketches = parts.sketches()
    for source in (warm_start or {}).values() if sketches else ():
        theirs = Record.read(Path(source)).sketches.get("learnt_from")
        mine = Sketch.from_json(sketches["learnt_from"])
        joined = None if theirs is None else mine.joined(Sketch.from_json(theirs))
        if joined is None:
            return {}
        sketches["learnt_from"] = joined.to_json()
    return sketches


def warm_started(algorithm: Any, learner: LearnerState, warm_start: Mapping[str, str | Path]) -> LearnerState:
    """A fresh learner with the named parts of other runs' last checkpoints.

    A target network that is not named itself starts as a copy of the network that it follows, if that was named.
    Raises ConfigError, CheckpointError.
    """
    for part, source in warm_start.items():
        learner = _warmed(learner, part, source)
    state = learner.state
    unnamed = [target for target in target_names(state) if target not in warm_start]
    for target, path in followed_parts(algorithm, state, unnamed).items():
        if path.split(".")[0] in warm_start:
            state = state._replace(**{target: copied(attrgetter(path)(state))})
    return learner._replace(state=state)


def target_names(state: Any) -> list[str]:
    """The target networks of a state: its parts called `target_...` that are there."""
    return [part for part in state._fields if part.startswith("target_") and getattr(state, part) is not None]


def followed_parts(algorithm: Any, state: Any, targets: Sequence[str]) -> dict[str, str]:
    """By target network, the dotted path of the network that it follows; ConfigError where that is not known.

    `target_critic` follows `critic`, unless the algorithm's `target_sources` names another path.
    """
    named = getattr(algorithm, "target_sources", {})
    found = {target: named.get(target, target.removeprefix("target_")) for target in targets}
    for target, path in found.items():
        if path.split(".")[0] not in state._fields:
            raise ConfigError(
                f"warm_start: '{target}' follows no part that is known: name it too, as in warm_start={{'{target}': "
                f"run}}, or say what it follows in {type(algorithm).__name__}.target_sources"
            )
    return found


def _warmed(learner: LearnerState, part: str, source: str | Path) -> LearnerState:
    if part not in getattr(learner.state, "_fields", ()):
        raise ConfigError(f"warm_start: the state has no part '{part}'; parts: {', '.join(learner.state._fields)}")
    template = getattr(learner.state, part)
    found = read_part(source, part)
    wanted = named_arrays(template)
    if set(found) != set(wanted):
        raise CheckpointError(
            f"warm_start: '{part}' of {source} has {len(found)} arrays, this algorithm's has {len(wanted)}"
        )
    return learner._replace(state=learner.state._replace(**{part: fill(template, found, f"'{part}' of {source}")}))
