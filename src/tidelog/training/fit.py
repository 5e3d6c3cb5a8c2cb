"""`fit`: learn from a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.algorithms.core.contract import Ranking
from tidelog.algorithms.core.hyperparameters import same_program
from tidelog.algorithms.core.optimisation import copied
from tidelog.algorithms.core.short_form import discount_of
from tidelog.algorithms.names import as_algorithms, check_fit, check_source
from tidelog.data.log import Log
from tidelog.data.overlap import Sketch
from tidelog.data.scaling import Scaler
from tidelog.errors import CheckpointError, ConfigError
from tidelog.networks.critic import with_values
from tidelog.policies.named_arrays import fill, named_arrays
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions.log import Interactions
from tidelog.sinks import Sink
from tidelog.training.engine.cache import use_cache
from tidelog.training.engine.engine import Engine
from tidelog.training.engine.learner import LearnerState, metric_labels
from tidelog.training.engine.members import Member, as_members, fresh_learners
from tidelog.training.engine.memory_need import check_memory
from tidelog.training.engine.placement import cores_as_devices
from tidelog.training.engine.stores import check_differences
from tidelog.training.engine.validation import Validation
from tidelog.training.runs.checkpoints import read_part
from tidelog.training.runs.episode_split import EpisodeSplit
from tidelog.training.runs.episode_split import selection_share as selection_of
from tidelog.training.runs.evaluation import check_environments, evaluated
from tidelog.training.runs.options import (
    Evaluator,
    Options,
    Scale,
    as_path,
    as_seeds,
    evaluators,
    reports_every,
)
from tidelog.training.runs.processes import check_processes, devices_of_all, shared_folder
from tidelog.training.runs.q_weight import LISTS
from tidelog.training.runs.record import Record, RefitOf
from tidelog.training.runs.run import Run
from tidelog.training.runs.selection import Selection
from tidelog.training.runs.time_split import REPORTS, TimeSplit, check_list_options, user_selection_share
from tidelog.types import Spec

CLOSEST = 50  # default minimum of updates between two reports


def fit(
    algorithm: Any,
    log: Log | Interactions,
    steps: int,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    *,
    held_out: float = 0.0,
    selection_share: float | None = None,
    data_share: float = 1.0,
    split_seed: int = 0,
    evaluate: Mapping[str, Evaluator] | None = None,
    every: int | None = None,
    scale: Scale | None = None,
    best: str | None = None,
    patience: int | None = None,
    warm_start: Mapping[str, str | Path] | None = None,
    overwrite: bool = False,
    sinks: Sequence[Sink] = (),
    save_seconds: float = 30.0,
    keep: int = 3,
    together: bool | None = None,
    devices: int | Mapping[str, int] | None = None,
    progress: bool | None = None,
    train: bool = True,
) -> Run:
    """Learn from a log for `steps` updates per member; a list of algorithms is a population, trained side by side.

    `training/runs/options.py` describes every option. `evaluate` maps environments to episodes, or names to functions
    of the policy. `warm_start` maps parts of the state to run folders; a target network starts as a copy of its online
    network. Without `out` nothing is written; `overwrite` replaces the run in `out`. `train=False` returns the run
    before its first update; `run.stream()` trains it chunk by chunk. Raises ConfigError, SpecError, SpaceError,
    LogError, DivergenceError.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> population = [tl.BC(hidden=(16,), learning_rate=rate) for rate in (1e-3, 1e-4)]
        >>> run = tl.fit(population, log, steps=20, seeds=2, held_out=0.2)
        >>> len(run.members)
        4
    """
    use_cache()
    algorithms = as_algorithms(algorithm)
    if not isinstance(log, Log | Interactions):
        raise ConfigError(
            f"log: expected a tl.Log, found {type(log).__name__}. fix: read it first, as in tl.read_log(path, columns)"
        )
    same_program(algorithms)
    check_source(algorithms[0], False)
    for one in algorithms:
        check_fit(one, log.spec)
    out = as_path("out", out)
    episodes, own_evaluators = evaluators(evaluate or {})
    if isinstance(log, Interactions):
        check_list_options(scale, split_seed, episodes, data_share)
    options = Options(
        steps=steps,
        seeds=as_seeds(seeds),
        every=reports_every(every, steps, CLOSEST, *([REPORTS] if isinstance(log, Interactions) else [])),
        held_out=held_out,
        selection_share=user_selection_share(selection_share, best, held_out, log)
        if isinstance(log, Interactions)
        else selection_of(selection_share, best, held_out, len(log.episodes)),
        data_share=data_share,
        split_seed=split_seed,
        scale="standard" if scale is None else scale,
        best=best,
        patience=patience,
        evaluate=episodes,
        own_evaluators=tuple(own_evaluators),
        warm_start=None if not warm_start else {part: str(run) for part, run in warm_start.items()},
        save_seconds=save_seconds,
        keep=keep,
        together=together,
        devices=devices_of_all(devices),
    )
    run = begin(algorithms, log, options, out, own_evaluators=own_evaluators, sinks=sinks, overwrite=overwrite)
    return run.train(progress) if train else run


def begin(
    algorithms: list[Any],
    log: Log | Interactions,
    options: Options,
    out: Path | None,
    *,
    own_evaluators: Mapping[str, Any] | None = None,
    sinks: Sequence[Sink] = (),
    overwrite: bool = False,
    refit_of: RefitOf | None = None,
) -> Run:
    """Return a run over a log before its first update, with its folder if `out` is set."""
    cores_as_devices(options.devices)
    own_evaluators = dict(own_evaluators or {})
    spec = spec_of(algorithms[0], log)
    check_memory(algorithms, len(options.seeds), spec, log)
    parts = parts_of(log, options)
    if isinstance(parts, TimeSplit):
        parts.check_periods()
    scaler = parts.scaler(options.scale == "standard", algorithms[0])
    members = as_members(algorithms, options.seeds)
    stores = parts.stores(algorithms[0], scaler)
    learners = fresh_learners(members, spec, stores, options.steps)
    if scaler.starts_at_mean:
        rewards = parts.rewards(algorithms[0])
        starts = (scaler.initial_value(rewards, discount_of(member.algorithm)) for member in members)
        learners = [with_initial_values(learner, start) for learner, start in zip(learners, starts, strict=True)]
    if isinstance(parts, TimeSplit):
        learners = [
            add_item_facts(member, learner, parts.train) for member, learner in zip(members, learners, strict=True)
        ]
    else:
        check_differences(algorithms[0], parts.log)
    if options.warm_start:
        learners = [
            load_warm_start(member.algorithm, learner, options.warm_start, scaler)
            for member, learner in zip(members, learners, strict=True)
        ]
    check_environments(
        Policy(algorithms[0], spec, scaler, algorithms[0].policy_params(learners[0].state)), options.evaluate
    )
    validation = validation_of(parts, algorithms[0], scaler)
    if options.best is not None:
        losses = validation.names(algorithms[0], learners[0].state) if validation else []
        losses += LISTS if validation and isinstance(parts, TimeSplit) else ()
        Selection(options).check([*metric_labels(learners[0]), *losses, *evaluated(options.evaluate, own_evaluators)])
    engine = Engine(members, learners, options.steps, stores=stores, together=options.together, devices=options.devices)
    sketches = _sketches(parts, options.warm_start)
    record = Record.of(algorithms, options, log, spec, scaler, parts.held_out_ids, sketches, refit_of)
    check_processes(record, learners)
    folder = shared_folder(out, record, overwrite)
    return Run(
        record,
        engine,
        folder,
        validation=validation,
        evaluators=own_evaluators,
        sinks=sinks,
        q_weight_selection=parts.q_weight_selection() if isinstance(parts, TimeSplit) else None,
    )


def spec_of(algorithm: Any, log: Log | Interactions) -> Spec:
    """Return the spec of a log as the algorithm reads it."""
    return algorithm.spec_of(log) if isinstance(log, Interactions) and isinstance(algorithm, Ranking) else log.spec


def parts_of(log: Log | Interactions, options: Options) -> EpisodeSplit | TimeSplit:
    """Split a log into training and held-out parts: by episode, or by time for interactions."""
    if isinstance(log, Interactions):
        return TimeSplit(log, options.held_out, options.selection_share)
    return EpisodeSplit(log, options.held_out, options.split_seed, options.selection_share, options.data_share)


def add_item_facts(member: Member, learner: LearnerState, log: Interactions) -> LearnerState:
    """Add the item statistics of the interactions to a fresh learner."""
    return learner._replace(state=member.algorithm.with_item_facts(learner.state, log, member.seed))


def validation_of(parts: EpisodeSplit | TimeSplit, algorithm: Any, scaler: Scaler) -> Validation | None:
    """Return the validation of the held-out part, or None if nothing is held out."""
    stores = parts.validation_stores(algorithm, scaler)
    return None if stores is None else Validation(stores)


def _sketches(parts: EpisodeSplit | TimeSplit, warm_start: Mapping[str, str | Path] | None) -> dict[str, Any]:
    """Return sketches of the training episodes, with those of the warm-start runs; empty if any of them is unknown."""
    sketches = parts.sketches()
    for source in (warm_start or {}).values() if sketches else ():
        other = Record.read(Path(source)).sketches.get("learnt_from")
        own = Sketch.from_json(sketches["learnt_from"])
        union = None if other is None else own.joined(Sketch.from_json(other))
        if union is None:
            return {}
        sketches["learnt_from"] = union.to_json()
    return sketches


def with_initial_values(learner: LearnerState, start: Any) -> LearnerState:
    """Return a fresh learner whose critics and value networks, targets too, start at a number or [K]."""
    state = learner.state
    fields = getattr(state, "_fields", ())  # of a state that is no named tuple, networks stay as they are
    networks = {name: getattr(state, name) for name in fields if not name.startswith("opt_state")}
    changed = {name: with_values(part, 1.0, start) for name, part in networks.items()}
    return learner._replace(state=state._replace(**changed)) if changed else learner


def load_warm_start(
    algorithm: Any, learner: LearnerState, warm_start: Mapping[str, str | Path], scaler: Scaler
) -> LearnerState:
    """Load the named parts of a fresh learner from the last checkpoints of other runs.

    Values are converted from the scaled rewards of their run to those of `scaler`. A target network that is not named
    starts as a copy of its online network, if that network is named. Raises ConfigError, CheckpointError.
    """
    discount = discount_of(algorithm)
    for part, source in warm_start.items():
        learner = _load_part(learner, part, source)
        theirs = Record.read(Path(source)).scaler
        factor = scaler.reward_scale / theirs.reward_scale
        constant = (theirs.value_constant(discount) - scaler.value_constant(discount)) * scaler.reward_scale
        if factor != 1.0 or np.any(constant):
            loaded = with_values(getattr(learner.state, part), factor, constant)
            learner = learner._replace(state=learner.state._replace(**{part: loaded}))
    state = learner.state
    unnamed = [target for target in target_names(state) if target not in warm_start]
    for target, path in online_network_paths(algorithm, state, unnamed).items():
        if path.split(".")[0] in warm_start:
            state = state._replace(**{target: copied(attrgetter(path)(state))})
    return learner._replace(state=state)


def target_names(state: Any) -> list[str]:
    """Return the names of the target networks in a state: all parts called `target_...` that are not None."""
    return [part for part in state._fields if part.startswith("target_") and getattr(state, part) is not None]


def online_network_paths(algorithm: Any, state: Any, targets: Sequence[str]) -> dict[str, str]:
    """Map each target network to the dotted path of its online network; ConfigError if that network is unknown.

    The online network of `target_critic` is `critic`, unless the algorithm's `target_sources` names another path.
    """
    named = getattr(algorithm, "target_sources", {})
    paths = {target: named.get(target, target.removeprefix("target_")) for target in targets}
    for target, path in paths.items():
        if path.split(".")[0] not in state._fields:
            raise ConfigError(
                f"warm_start: the online network of '{target}' is unknown; the state has no part '{path}'. fix: name "
                f"the target too, as in warm_start={{'{target}': run}}, or set "
                f"{type(algorithm).__name__}.target_sources"
            )
    return paths


def _load_part(learner: LearnerState, part: str, source: str | Path) -> LearnerState:
    if part not in getattr(learner.state, "_fields", ()):
        raise ConfigError(
            f"warm_start: the state has no part '{part}'. fix: use one of {', '.join(learner.state._fields)}"
        )
    template = getattr(learner.state, part)
    arrays = read_part(source, part)
    expected = named_arrays(template)
    if set(arrays) != set(expected):
        raise CheckpointError(
            f"warm_start: '{part}' of {source} has {len(arrays)} arrays, expected the {len(expected)} of this "
            "algorithm. fix: use a run with the same network sizes"
        )
    return learner._replace(state=learner.state._replace(**{part: fill(template, arrays, f"'{part}' of {source}")}))
