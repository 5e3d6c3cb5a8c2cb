"""A run that learnt from a log, going on in an environment: every member from where it stands, with its own play.

The part of the log that was held out stays held out. Learning rates are constant, unless schedules are to begin anew
over the updates that are to come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.finetune import Scales, Tuned, Tuning, check_tunable, with_constant_rates
from tidelog.data.scaling import Scaler
from tidelog.errors import CheckpointError, ConfigError, SpecError
from tidelog.training.engine.learner import LearnerState, Stores, reported
from tidelog.training.engine.rounds import Rounds
from tidelog.training.engine.validation import Validation
from tidelog.training.online.collected_log import CollectedLog
from tidelog.training.online.env_assignment import EnvAssignment, place_name, places_for, restored
from tidelog.training.online.initial_learners import beginners, planned_updates
from tidelog.training.runs.checkpoints import Checkpoints
from tidelog.training.runs.evaluation import check_playable, evaluated
from tidelog.training.runs.preparing import evaluators, new_folder
from tidelog.training.runs.record import Record, this_machine
from tidelog.training.runs.run import Run
from tidelog.training.runs.selection import Selection
from tidelog.training.runs.settings import Evaluator, Settings, as_members, whole
from tidelog.training.runs.sinks import Sink, rows_until
from tidelog.types import Codes, Continuous, Discrete, Spec, Vector

REPORTS = 50  # reports a run makes unless it is told otherwise


@dataclass(frozen=True)
class FinetuneSettings:
    """What is asked of a run besides its mix, as `learn` takes it."""

    evaluate: Mapping[str, Evaluator]
    every: int | None
    best: str | None
    patience: int | None
    sinks: Sequence[Sink]
    log_out: str | Path | None
    save_seconds: float
    keep: int
    together: bool | None


def tuned_by(mix: Mapping[str, Any]) -> Tuning:
    """The mix, with defaults for what is None."""
    return Tuning(**{name: value for name, value in mix.items() if value is not None})


def prepare_tuning(
    run: Run, env: Any, steps: int, out: str | Path | None, tuning: Tuning, plan: FinetuneSettings
) -> Run:
    """Check everything and make a run that goes on in an environment where another ended on a log."""
    record, (stores, validation) = run.record, run.learnt_from()
    _check_offline(record)
    episodes, own = evaluators(plan.evaluate)
    settings = replace(
        record.settings,
        steps=steps,
        every=max(1, whole("steps", steps) // REPORTS) if plan.every is None else plan.every,
        best=plan.best,
        patience=plan.patience,
        episodes=episodes,
        own_evaluators=tuple(own),
        save_seconds=plan.save_seconds,
        keep=plan.keep,
        together=plan.together,
    )
    for member in run.members:
        check_tunable(member.algorithm, record.spec)
    places = places_for(env, 1, [member.seed for member in run.members], plan.log_out is not None)
    check_same_spaces(record.spec, places.spec, place_name(env, places))
    players = _players([member.algorithm for member in run.members], record.scaler, tuning, settings.steps)
    planned = planned_updates(players[0], settings.steps)
    states = [began_anew(learner.state, planned) for learner in run.learners()]
    learners = _learners(players, states, settings, places, plan.log_out, stores)
    check_playable(run.policy(), episodes)
    if plan.best is not None:
        losses = validation.names(run.members[0].algorithm, states[0]) if validation else []
        Selection(settings).check([*reported(learners[0]), *losses, *evaluated(episodes, own)])
    recorder = None if plan.log_out is None else CollectedLog(plan.log_out, places.spec, len(run.members))
    if recorder is not None:
        recorder.check_free()
    data = {
        **record.data,
        "environment": place_name(env, places),
        "named": isinstance(env, str),
        "log_out": None if plan.log_out is None else str(Path(plan.log_out).resolve()),
        "tuning": asdict(tuning),
        "tuned_from": None if run.folder is None else str(run.folder.resolve()),
    }
    begun = replace(record, settings=settings, data=data, machine=this_machine())
    trainer = Rounds(
        run.members, places, learners, settings.steps, None, plan.together, recorder, stores=stores, players=players
    )
    return Run(begun, trainer, new_folder(out, begun), validation=validation, evaluators=own, sinks=plan.sinks)


def reopened_tuning(
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
    """A run that goes on in an environment, as its checkpoint left it."""
    settings, tuning, log_out = record.settings, Tuning(**(record.tuning or {})), record.data["log_out"]
    members = as_members(algorithms, settings.seeds)
    if env is None and not record.data["named"]:
        raise CheckpointError(
            f"the run's environment, {record.environment}, has no name: pass it again, as in resume(folder, env=env)"
        )
    env = record.environment if env is None else env
    places = places_for(env, 1, [member.seed for member in members], log_out is not None)
    check_same_spaces(record.spec, places.spec, place_name(env, places))
    players = _players([member.algorithm for member in members], record.scaler, tuning, settings.steps)
    planned = planned_updates(players[0], settings.steps)
    states = [player.init(record.spec, jax.random.key(0), planned) for player in players]
    templates = _learners(players, states, settings, places, log_out, stores)
    found = Checkpoints(path / "checkpoints", settings.keep).load(templates, checkpoint)
    recorder = None if log_out is None else CollectedLog(log_out, places.spec, len(members))
    if recorder is not None:
        recorder.go_on(int(found.learners[0].played.rounds))
    learners = [
        learner if places.source or found.environments[i] else _cut(learner)
        for i, learner in enumerate(restored(places, players, found.learners, found.environments))
    ]
    together = settings.together if together is None else together
    trainer = Rounds(
        members, places, learners, settings.steps, found.position, together, recorder, stores=stores, players=players
    )
    rows = rows_until(path, trainer.update)
    return Run(
        record, trainer, path, validation=validation, evaluators=own, sinks=sinks, metrics=rows, memory=found.memory
    )


def began_anew(state: Any, updates: int) -> Any:
    """The state with all of its schedules at their beginning, for so many updates to come."""
    return state._replace(step=jnp.int32(0), updates=jnp.int32(updates))


def check_same_spaces(ours: Spec, theirs: Spec, name: str) -> None:
    """Raise SpecError, with what is different, unless an environment shows and takes what the log does."""
    if set(ours.observation) != set(theirs.observation):
        raise SpecError(f"{name} shows {sorted(theirs.observation)}, the log has {sorted(ours.observation)}")
    pairs = [(f"observation '{leaf}'", ours.observation[leaf], theirs.observation[leaf]) for leaf in ours.observation]
    for what, one, two in (*pairs, ("the action", ours.action, theirs.action)):
        if _bare(one, two) != _bare(two, one):
            raise SpecError(
                f"{what} of the log is {one}, that of {name} is {two}: a run goes on where the spaces are the same"
            )
    if ours.masked != theirs.masked:
        has = {True: "says which actions are allowed", False: "does not say which actions are allowed"}
        raise SpecError(f"the log {has[ours.masked]}, {name} {has[theirs.masked]}")


def _bare(space: Any, other: Any) -> Any:
    """A space without words that the other has none of, and with bounds that rounding does not tell apart."""
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
            f"this run learns in {record.environment} already: resume it, or begin from a run that learnt from a log"
        )


def _players(algorithms: list[Any], scaler: Scaler, tuning: Tuning, steps: int) -> list[Any]:
    scales = Scales(
        dict(scaler.mean), dict(scaler.std), np.float32(scaler.reward_scale), np.float32(scaler.reward_shift)
    )
    rounds = -(-steps // tuning.collect_every)
    if not tuning.restart_schedules:
        algorithms = [with_constant_rates(algorithm) for algorithm in algorithms]
    return [Tuned(algorithm, scales, tuning, rounds) for algorithm in algorithms]


def _learners(
    players: list[Any],
    states: list[Any],
    settings: Settings,
    places: EnvAssignment,
    log_out: Any,
    stores: Stores,
) -> list[LearnerState]:
    seeds = list(settings.seeds) * (len(players) // len(settings.seeds))
    pairs = list(zip(players, seeds, strict=True))
    return beginners(pairs, states, places.spec, places.source, log_out is not None, stores)


def _cut(learner: LearnerState) -> LearnerState:
    """The learner whose environment starts anew: its last decision is followed by nothing that comes."""
    own = learner.segments["own"]
    last = jnp.maximum(own.filled - 1, 0)
    truncated = own.columns["truncated"].at[last, -1].set(True)
    return learner._replace(
        segments={**learner.segments, "own": own._replace(columns={**own.columns, "truncated": truncated})}
    )
