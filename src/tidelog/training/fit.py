"""`fit`: learn from a log, and `refit`: learn from the whole log with the settings of a run's policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from tidelog._machine import use_cache
from tidelog.algorithms.contract import Algorithm, Ranking
from tidelog.algorithms.hyperparameters import same_program
from tidelog.algorithms.names import as_algorithms, check_fit, check_source
from tidelog.algorithms.optimisation import copied
from tidelog.algorithms.sampling import StoredLog
from tidelog.algorithms.short_form import discount_of
from tidelog.data.log import Log
from tidelog.data.statistics import LoggedRewards, RewardScaling, Scaler, Sketch
from tidelog.errors import CheckpointError, ConfigError, LogError, SpecError
from tidelog.networks.critics import with_values
from tidelog.policies.policy import Policy, fill, named_arrays
from tidelog.recommend.held_out import (
    REPORTS_OF_LISTS,
    SELECTION_OF_USERS,
    TimeSplit,
    check_list_options,
    held_out_users,
)
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.read import reopen_any
from tidelog.runtime.way_of_acting import verdict_line
from tidelog.sinks import Sink
from tidelog.training.engine import Engine, cores_as_devices
from tidelog.training.loop import (
    MOST_BATCHES,
    LearnerState,
    Member,
    Stores,
    Validation,
    as_members,
    fresh_learners,
    metric_labels,
)
from tidelog.training.metrics import Selection
from tidelog.training.options import REPORTS, FitOptions, Options, as_path, as_seeds, option_values
from tidelog.training.processes import check_processes, devices_of_all, shared_folder
from tidelog.training.record import Record, RefitOf, TrainingData, check_environments, evaluated, read_part
from tidelog.training.run import Run, policy_of_run
from tidelog.training.stores import Stream, check_differences, check_memory, is_mapped, stores_of
from tidelog.types import Spec

# The split of a log into training and held-out episodes, in memory or on disk.
#
# Where held-out losses choose the policy, some of the held-out episodes choose it and the others stay for the judge: an
# episode that chose a policy cannot show that it is better. From a log on disk, only the held-out episodes for
# validation are read into memory.

Ordinals = np.ndarray[Any, Any]
SELECTION = 0.25  # share of the held-out episodes that choose the policy, by default
ENOUGH = 100  # smallest number of episodes that are left for the judge
VALIDATION_STEPS = MOST_BATCHES * 1024  # approximate limit of the held-out steps in memory


class EpisodeSplit:
    """A log split by episode; with `held_out` 0 nothing is held out.

    Of the held-out episodes, the share `selection` is for validation losses, and the others are only for the judge.
    With 1, all of them are for both. Of the training episodes, a share `data` is read; the held-out ones do not depend
    on it. With `rewards`, training and validation leave out the episodes with an unknown reward; the judge gets them.
    """

    metrics = ()  # in reports, besides losses

    def __init__(
        self, log: Log, held_out: float, seed: int, selection: float = 1.0, data: float = 1.0, *, rewards: bool = False
    ) -> None:
        self.log, self.mapped = log, is_mapped(log)
        self._validation: Ordinals | None = None
        self._train: Ordinals | None = None
        self._held_out: Ordinals | None = None
        if held_out > 0:
            self._train, self._held_out = log.split_ordinals(1.0 - held_out, seed)
            self._validation = self._held_out
            if selection < 1.0:
                self._validation, self._held_out = log.split_ordinals(selection, seed, self._held_out)
        if data < 1.0:
            self._train = log.split_ordinals(data, seed, self._train)[0]
        if rewards and log.reward_known is not None:
            self._train = _with_returns(log, self._train, "training")
            self._validation = None if held_out == 0 else _with_returns(log, self._validation, "validation")

    def prepared(self, member: Member, learner: LearnerState, policy: Policy | None = None) -> LearnerState:
        """Return a fresh learner as it is: a log of episodes has no facts for its state."""
        return learner

    @property
    def chooser(self) -> None:
        """Nothing: held-out episodes choose no part of a member's state."""

    @property
    def held_out_ids(self) -> list[Any]:
        """The user's ids of the held-out episodes that are left for the judge."""
        return [] if self._held_out is None else np.asarray(self.log.episode_ids[self._held_out]).tolist()

    @cached_property
    def training_log(self) -> Log:
        """The training episodes, in memory."""
        return self.log if self._train is None else self.log.take_episodes(self._train)

    def sketches(self) -> dict[str, Any]:
        """Return JSON sketches of the training and the validation episodes, which identify these episodes later."""
        sketches = {"learnt_from": Sketch.of(self.log, self._train).to_json()}
        if self._validation is not None:
            sketches["held_out"] = Sketch.of(self.log, self._validation).to_json()
        return sketches

    def scaler(self, observations: bool, algorithm: Any) -> Scaler:
        """Fit scales on the training episodes only, of rewards by the algorithm's `reward_scaling` if it has one."""
        rule: RewardScaling | None = getattr(algorithm, "reward_scaling", None)
        scale = None if rule is None or self.log.reward is None else rule(self.rewards(algorithm))
        if not self.mapped:
            return Scaler.fit(self.training_log, observations=observations, rewards=scale)
        return Scaler.fit(self.log, observations=observations, rewards=scale, episodes=self._train)

    def rewards(self, algorithm: Any) -> LoggedRewards:
        """Return the rewards of the training episodes, with the weights of an algorithm for several rewards."""
        weights: Sequence[float] | None = getattr(algorithm, "reward_weights", None)
        spec = replace(self.log.spec, observation={})
        slim = replace(self.log, observation={}, spec=spec, action_mask=None, extra={})  # no observation is read
        return LoggedRewards.of(slim if self._train is None else slim.take_episodes(self._train), weights)

    def stores(self, algorithm: Algorithm, scaler: Scaler) -> Stores:
        """Return the stores that training reads."""
        if not self.mapped:
            return stores_of(algorithm, self.training_log, scaler)
        store_specs = algorithm.stores(self.log.spec).items()
        return {name: Stream(self.log, store_spec, scaler, self._train) for name, store_spec in store_specs}

    def validation_stores(self, algorithm: Algorithm, scaler: Scaler) -> dict[str, StoredLog] | None:
        """Return the stores that validation reads, or None if nothing is held out."""
        if self._validation is None:
            return None
        held_out = self._validation
        if self.mapped:
            lengths = np.diff(self.log.starts)[held_out]
            held_out = held_out[: max(1, int(np.searchsorted(lengths.cumsum(), VALIDATION_STEPS)))]
        return stores_of(algorithm, self.log.take_episodes(held_out), scaler)


def _with_returns(log: Log, episodes: Ordinals | None, what: str) -> Ordinals:
    """Those of the episodes, or of all, whose rewards are all known; LogError without one."""
    episodes = np.arange(len(log.episode_ids)) if episodes is None else episodes
    known: Ordinals = episodes[log.has_return[episodes]]
    if not len(known):
        fix = "learn from more episodes, or imitate the decisions only (bc)"
        raise LogError(f"every one of the {len(episodes):,} episodes for {what} has an unknown reward", fix=fix)
    return known


def reads_rewards(algorithm: Any, spec: Spec) -> bool:
    """Whether an algorithm learns from the rewards of a log; imitation does not."""
    return any("reward" in one.columns for one in algorithm.stores(spec).values())


def selection_share(
    share: float | None, best: str | None, held_out: float, episodes: float, default: float = SELECTION
) -> float:
    """Return the share of the held-out episodes, or users, that choose the policy: `share`, or `default` of many.

    1 where no held-out metric chooses it, or where fewer than `ENOUGH` of them would be left for the judge.
    """
    chooses = (best or "").removeprefix("max:").removeprefix("min:").startswith("held_out/") and held_out > 0.0
    if share is not None and not chooses:
        raise ConfigError(
            f"selection_share = {share}: no held-out metric chooses the policy",
            fix="set best_metric='held_out/...' and held_out=0.5, or drop selection_share",
        )
    if share is not None:
        return share
    return default if chooses and (1.0 - default) * held_out * episodes >= ENOUGH else 1.0


def user_selection_share(share: float | None, best: str | None, held_out: float, log: Interactions) -> float:
    """Return the share of the held-out users that choose the policy: `share`, or by default half of many."""
    counted = best is not None and share is None and held_out > 0
    users = held_out_users(log, held_out) if counted else 0
    return selection_share(share, best, held_out, users / (held_out or 1.0), SELECTION_OF_USERS)


CLOSEST = 50  # default minimum of updates between two reports


def fit(
    algorithm: Any,
    log: Log | Interactions,
    steps: int,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    sinks: Sequence[Sink] = (),
    progress: bool | None = None,
    train: bool = True,
    **options: Unpack[FitOptions],
) -> Run:
    """Learn from a log for `steps` updates per member; a list of algorithms is a population, trained side by side.

    `tidelog.training.options.FitOptions` describes the options. `evaluate` maps environments to episodes, or names to
    functions of the policy. `warm_start` maps parts of the state to run folders; a target network starts as a copy of
    its online network. Without `out` nothing is written; `overwrite` replaces the run in `out`. `train=False` returns
    the run before its first update; `run.stream()` trains it chunk by chunk. Raises ConfigError, SpecError,
    MemoryLimitError, LogError, DivergenceError.

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
            "log", f"a tl.Log, found {type(log).__name__}", "read it first, as in tl.read_log(path, columns)"
        )
    same_program(algorithms)
    check_source(algorithms[0], False)
    for one in algorithms:
        check_fit(one, log.spec)
    warm_start, scale = options.get("warm_start"), options.get("scale")
    reports = REPORTS_OF_LISTS if isinstance(log, Interactions) else REPORTS
    values, own_evaluators = option_values(
        "fit",
        FitOptions,
        options,
        steps,
        CLOSEST,
        reports,
        seeds=as_seeds(seeds),
        scale="standard" if scale is None else scale,
        warm_start=None if not warm_start else {part: str(run) for part, run in warm_start.items()},
        devices=devices_of_all(options.get("devices")),
    )
    choosing = options.get("selection_share"), options.get("best_metric"), options.get("held_out", 0.0)
    if isinstance(log, Interactions):
        check_list_options(options, values["evaluate"])
        values["selection_share"] = user_selection_share(*choosing, log)
    else:
        values["selection_share"] = selection_share(*choosing, len(log.episodes))
    run = begin(
        algorithms,
        log,
        Options(**values),
        as_path("out", out),
        own_evaluators=own_evaluators,
        sinks=sinks,
        overwrite=overwrite,
    )
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
    policy: Policy | None = None,
    refit_of: RefitOf | None = None,
) -> Run:
    """Return a run over a log before its first update, with its folder if `out` is set.

    It takes over from a `policy` what the held-out data of another run chose.
    """
    cores_as_devices(options.devices)
    own_evaluators = dict(own_evaluators or {})
    first = algorithms[0]
    spec = spec_of(first, log)
    check_memory(algorithms, len(options.seeds), spec, log)
    parts = parts_of(log, options, first)
    if isinstance(parts, TimeSplit):
        parts.check_periods()
    scaler = parts.scaler(options.scale == "standard", first)
    members = as_members(algorithms, options.seeds)
    stores = parts.stores(first, scaler)
    learners = fresh_learners(members, spec, stores, options.steps)
    if scaler.starts_at_mean:
        rewards = parts.rewards(first)
        starts = (scaler.initial_value(rewards, discount_of(member.algorithm)) for member in members)
        learners = [with_initial_values(learner, start) for learner, start in zip(learners, starts, strict=True)]
    learners = [parts.prepared(member, learner, policy) for member, learner in zip(members, learners, strict=True)]
    if isinstance(log, Log):
        check_differences(first, log)
    if options.warm_start:
        learners = [
            load_warm_start(member.algorithm, learner, options.warm_start, scaler)
            for member, learner in zip(members, learners, strict=True)
        ]
    if options.evaluate:
        check_environments(Policy(first, spec, scaler, first.policy_params(learners[0].state)), options.evaluate)
    validation = validation_of(parts, first, scaler)
    if options.best_metric is not None:
        losses = [*validation.names(first, learners[0].state), *parts.metrics] if validation else []
        Selection(options).check([*metric_labels(learners[0]), *losses, *evaluated(options.evaluate, own_evaluators)])
    engine = Engine(members, learners, options.steps, stores=stores, vmap=options.vmap, devices=options.devices)
    sketches = _sketches(parts, options.warm_start)
    data = TrainingData.of(log, refit_of)
    record = Record.of(algorithms, options, spec, data, scaler, parts.held_out_ids, sketches, engine.products)
    check_processes(record, learners)
    return Run(
        record,
        engine,
        shared_folder(out, record, overwrite),
        validation=validation,
        evaluators=own_evaluators,
        sinks=sinks,
        chooser=parts.chooser,
    )


def spec_of(algorithm: Any, log: Log | Interactions) -> Spec:
    """Return the spec of a log as the algorithm reads it."""
    return algorithm.spec_of(log) if isinstance(log, Interactions) and isinstance(algorithm, Ranking) else log.spec


def parts_of(log: Log | Interactions, options: Options, algorithm: Any) -> EpisodeSplit | TimeSplit:
    """Split a log into training and held-out parts: by episode, or by time for interactions."""
    if isinstance(log, Interactions):
        return TimeSplit(log, options.held_out, options.selection_share)
    share, rewards = options.selection_share, reads_rewards(algorithm, log.spec)
    return EpisodeSplit(log, options.held_out, options.split_seed, share, options.data_share, rewards=rewards)


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
                f"warm_start: the online network of '{target}' is unknown; the state has no part '{path}'",
                fix=(
                    f"name the target too, as in warm_start={{'{target}': run}}, or set "
                    f"{type(algorithm).__name__}.target_sources"
                ),
            )
    return paths


def _load_part(learner: LearnerState, part: str, source: str | Path) -> LearnerState:
    if part not in getattr(learner.state, "_fields", ()):
        raise ConfigError(
            f"warm_start: the state has no part '{part}'", fix=f"use one of {', '.join(learner.state._fields)}"
        )
    template = getattr(learner.state, part)
    arrays = read_part(source, part)
    expected = named_arrays(template)
    if set(arrays) != set(expected):
        raise CheckpointError(
            f"warm_start: '{part}' of {source} has {len(arrays)} arrays",
            f"the {len(expected)} of this algorithm",
            "use a run with the same network sizes",
        )
    return learner._replace(state=learner.state._replace(**{part: fill(template, arrays, f"'{part}' of {source}")}))


# `refit`: the settings of a chosen policy once more, on the whole log.
#
# A run holds episodes out to choose a policy and to judge it. Before the policy is used, the same settings may learn
# from these episodes too: `refit` takes the member's algorithm, seed, schedules and number of updates. For lists of
# items it also takes over the weight of Q that the held-out period chose. The result has no verdict: nothing is left to
# judge it.


def refit(
    run: Run | str | Path,
    out: str | Path | None = None,
    *,
    log: Log | Interactions | None = None,
    member: int | None = None,
    algorithm: Any = None,
    overwrite: bool = False,
    sinks: Sequence[Sink] = (),
    progress: bool | None = None,
    train: bool = True,
) -> Run:
    """Learn from all episodes with the settings of a run's policy: its best one if it has one, else of `member`.

    `run` is a run or its folder. `log`: a newer log with the same columns, or the run's own log if it was created in
    memory; default: the run's log, read again from where it was read. `algorithm`: of a folder, if the run has custom
    parts. The number of updates is that of the policy; nothing is held out, chosen or evaluated. Without `out` nothing
    is written; `overwrite` replaces the run in `out`; `train=False` returns the run before its first update. Raises
    ConfigError, CheckpointError, SpecError, LogError, DivergenceError.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> run = tl.fit(tl.BC(hidden=(16,)), log, steps=20, held_out=0.5)
        >>> tl.refit(run, log=log).update
        20
    """
    use_cache()
    record, policy, folder = _chosen(run, member, algorithm)
    if record.environment is not None:
        raise ConfigError(
            f"run: it learns in the environment {record.environment}",
            "a run that learned from a log",
            "pass a run of tl.fit or tidelog train",
        )
    target = as_path("out", out)
    if target is not None and folder is not None and target.exists() and target.samefile(folder):
        raise ConfigError(f"out = {target} is the run that is repeated", fix="choose another folder")
    update = int(policy.origin["update"])
    if update < 1:
        raise ConfigError("run: it has taken no update yet", fix="continue it with tl.resume, then refit it")
    log = _log_of(record) if log is None else log
    if not isinstance(log, Log | Interactions):
        raise ConfigError("log", f"a tl.Log, found {type(log).__name__}", "read it first with tl.read_log")
    _check_same_columns(record.spec, spec_of(policy.algorithm, log))
    check_fit(policy.algorithm, log.spec)
    options = replace(
        record.options,
        seeds=(_seed(record, policy),),
        stop_after=update,
        held_out=0.0,
        selection_share=1.0,
        data_share=1.0,
        best_metric=None,
        patience=None,
        evaluate={},
        own_evaluators=(),
    )
    before = None if policy.verdict is None else verdict_line(policy.verdict)
    source = RefitOf(run=None if folder is None else str(folder.resolve()), verdict=before, acting=policy.acting)
    again = begin(
        [policy.algorithm], log, options, target, sinks=sinks, overwrite=overwrite, policy=policy, refit_of=source
    )
    return again.train(progress) if train else again


def _chosen(run: Run | str | Path, member: int | None, algorithm: Any) -> tuple[Record, Policy, Path | None]:
    """Return the record of a run, its policy and its folder."""
    if not isinstance(run, Run):
        folder = as_path("run", run)
        if folder is None:
            raise ConfigError("run = None", "a run or its folder", "pass tl.load_run(folder)")
        return Record.read(folder), policy_of_run(folder, member, algorithm), folder
    best = member is None and run.record.options.best_metric is not None
    return run.record, run.best_policy() if best else run.policy(member=member), run.folder


def _seed(record: Record, policy: Policy) -> int:
    """The seed of the member that a policy is from."""
    seeds = record.options.seeds
    return int(policy.origin["seed"]) if "seed" in policy.origin else seeds[policy.origin["member"] % len(seeds)]


def _log_of(record: Record) -> Log | Interactions:
    """Read the run's log again; it may have grown since."""
    if record.data.origin is None:
        raise CheckpointError(
            "the run's log was created in memory and is not saved", fix="pass it, as in refit(run, out, log=log)"
        )
    return reopen_any(record.data.origin)


def _check_same_columns(before: Spec, now: Spec) -> None:
    """Raise SpecError unless a log has the observations and the kind of actions of the run's log."""
    kinds = [{name: type(leaf).__name__ for name, leaf in spec.observation.items()} for spec in (before, now)]
    actions = [type(spec.action).__name__ for spec in (before, now)]
    for what, (then, found) in (("observations", kinds), ("actions", actions)):
        if then != found:
            raise SpecError(
                f"log: its {what} are {found}, those of the run's log {then}", fix="read it with the mapping of the run"
            )
