"""`learn`: learn in an environment, and `finetune`: continue in one after a log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.contract import Distillable
from tidelog.algorithms.finetune import FinetuneConfig, FinetunedAlgorithm, Scales, check_tunable, with_constant_rates
from tidelog.algorithms.hyperparameters import same_program
from tidelog.algorithms.names import as_algorithms, check_fit, check_source, names
from tidelog.data.log import Log
from tidelog.data.statistics import Scaler, Sketch
from tidelog.envs.functional import Hosted
from tidelog.errors import ConfigError, DivergenceError, SpecError
from tidelog.networks.layers import fold_in, new_key
from tidelog.policies.policy import Policy
from tidelog.policies.rollout import distillation_target
from tidelog.recommend.interactions import Interactions
from tidelog.sinks import Sink
from tidelog.training.collect import CollectedLog, EnvAssignment, assign_environments, environment_name
from tidelog.training.engine import Engine, cores_as_devices, fresh_collectors, initial_learners, planned_updates
from tidelog.training.loop import LearnerState, Member, as_members, metric_labels, use_cache
from tidelog.training.metrics import Selection
from tidelog.training.options import FinetuneOptions, LearnOptions, Options, as_path, as_seeds, option_values, whole
from tidelog.training.processes import check_alone, check_processes, devices_of_all, shared_folder
from tidelog.training.record import (
    Distillation,
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


# The start policy of a run in an environment: it collects decisions first, and fresh members are distilled from it.
#
# These decisions are not counted in the run's steps. All members use the same collection, therefore a member starts
# equally alone and with others.

SEED = 0  # of the start policy's collection, for all members


@dataclass(frozen=True)
class Start:
    """The start policy and the size of its distillation; ConfigError for an invalid number or something else."""

    policy: Policy
    decisions: int = 16_384  # that the policy collects
    updates: int = 3_000  # on minibatches of them

    @classmethod
    def of(cls, policy: Any, **numbers: int | None) -> Start | None:
        """Create a start from the arguments of `learn`, or None without a start policy."""
        settings = {name: value for name, value in numbers.items() if value is not None}
        if policy is None:
            if settings:
                names = ", ".join(f"start_{name}" for name in settings)
                raise ConfigError(
                    f"{names}: has no effect without a start policy", fix=f"set start= too, or drop {names}"
                )
            return None
        start_policy = policy.policy() if isinstance(policy, Run) else policy
        if not isinstance(start_policy, Policy):
            raise ConfigError(
                "start",
                f"a policy or a run, found {type(policy).__name__}",
                "read it first, as in start=tl.load_policy(path) or start=tl.load_run(run)",
            )
        return cls(start_policy, **settings)

    def __post_init__(self) -> None:
        for name in ("decisions", "updates"):
            if whole(f"start_{name}", getattr(self, name)) < 1:
                raise ConfigError(f"start_{name} = {getattr(self, name)}", "at least 1", "use 1000")


def check_begins(algorithm: Any) -> None:
    """Raise ConfigError unless the algorithm supports a start policy."""
    if not isinstance(algorithm, Distillable):
        raise ConfigError(
            f"start: {type(algorithm).__name__} does not support a start policy",
            fix="use PPG or OffPolicyPPG, or drop start=",
        )


def begun_as(
    start: Start, members: Sequence[Member], learners: Sequence[LearnerState], assignment: EnvAssignment
) -> tuple[list[LearnerState], Distillation]:
    """Distill fresh learners from the start policy; return them, and the facts for the record.

    ConfigError for recurrent learners, because the distillation reads single decisions. DivergenceError if the
    divergence is not finite.
    """
    first = members[0].algorithm
    if first.start(first.policy_params(learners[0].state), 1) is not None:
        raise ConfigError(
            f"start: {type(first).__name__} is recurrent here, and start= supports only feed-forward policies",
            fix="drop recurrent_size or start=",
        )
    count = members[0].algorithm.collection().num_envs
    environment = assignment.hosts[0].environment if assignment.source is None else Hosted(assignment.source, count)
    target = distillation_target(start.policy, environment, start.decisions, SEED)
    target = jax.tree.map(jax.numpy.asarray, target)
    distilled, divergences = [], []
    for member, learner in zip(members, learners, strict=True):
        key = fold_in(new_key(member.seed), 3)
        state, divergence = member.algorithm.distilled(learner.state, target, key, start.updates)
        distilled.append(learner._replace(state=state))
        divergences.append(float(divergence))
        if not math.isfinite(divergences[-1]):
            raise DivergenceError(
                f"the divergence of {type(first).__name__} with seed {member.seed} from the start policy "
                "became NaN or infinite",
                "a finite number",
                "check the start policy and the environment's observations",
            )
    facts = Distillation(
        algorithm=type(start.policy.algorithm).__name__,
        decisions=int(np.shape(jax.tree.leaves(target.observation)[0])[0]),
        updates=start.updates,
        divergence=divergences,
    )
    return distilled, facts


def learnt_through(policy: Policy) -> dict[str, Any]:
    """Return the sketches for the record of a distilled run: the data of its start policy count as its own."""
    origin = policy.origin
    if origin.get("learnt_from") is None:
        return {}
    if not origin.get("chosen_by") or origin.get("held_out") is None:
        return {"learnt_from": origin["learnt_from"]}
    union = Sketch.from_json(origin["learnt_from"]).joined(Sketch.from_json(origin["held_out"]))
    return {} if union is None else {"learnt_from": union.to_json()}


def learn(
    algorithm: Any,
    env: Any,
    steps: int,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    *,
    start: Policy | Run | None = None,
    overwrite: bool = False,
    sinks: Sequence[Sink] = (),
    progress: bool | None = None,
    train: bool = True,
    **options: Unpack[LearnOptions],
) -> Run:
    """Learn in an environment from `steps` decisions per seed, rounded up to whole rollouts.

    `env` is any argument of `tidelog.envs.make`; functional environments ("jax:...") run inside the compiled loop. A
    list of algorithms is a population of members that differ in numbers. `tidelog.training.options.LearnOptions`
    describes the options. `overwrite` replaces the run in `out`. `start` is a policy (or a run): it collects decisions
    first, and fresh members are distilled from it on these. `evaluate` acts deterministically; `"sampled:NAME"` samples
    the actions. `train=False` returns the run before its first decision. Raises ConfigError, SpecError, SpaceError,
    EnvironmentFailure, DivergenceError.

    Example:
        >>> algorithm = tl.PPO(num_envs=8, rollout_steps=16, hidden=(16,))
        >>> run = tl.learn(algorithm, "jax:treatment", steps=1_024)
        >>> run.metrics[-1]["decisions"]
        1024
    """
    use_cache()
    out, log_out = as_path("out", out), as_path("log_out", options.get("log_out"))
    numbers = {"decisions": options.get("start_decisions"), "updates": options.get("start_updates")}
    start_from = Start.of(start, **numbers)
    if isinstance(algorithm, Run):
        raise ConfigError("learn takes an algorithm, found a run", fix="use tl.finetune(run, env, steps)")
    algorithms = as_algorithms(algorithm)
    same_program(algorithms)
    check_source(algorithms[0], True)
    _check_environment(env, algorithms[0])
    if start_from is not None:
        check_begins(algorithms[0])
    devices = devices_of_all(options.get("devices"))
    values, own = option_values(
        "learn", LearnOptions, options, steps, seeds=as_seeds(seeds), log_out=absolute(log_out), devices=devices
    )
    settings = Options(**values)
    cores_as_devices(settings.devices)
    if start_from is not None or log_out is not None:
        check_alone("learn with start or log_out")
    members = as_members(algorithms, settings.seeds)
    count = algorithms[0].collection().num_envs
    assignment = assign_environments(env, count, [member.seed for member in members], log_out is not None)
    name, spec = environment_name(env, assignment), assignment.spec
    if settings.ahead and assignment.source is not None:
        raise ConfigError(
            f"ahead=True needs a host environment; {name} already runs inside the compiled loop", fix="drop ahead"
        )
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
    distillation = None
    if start_from is not None:
        learners, distillation = begun_as(start_from, members, learners, assignment)
    engine = Engine(
        members,
        learners,
        settings.steps,
        assignment=assignment,
        together=settings.together,
        devices=settings.devices,
        collected_log=collected_log,
        ahead=settings.ahead,
    )
    data = TrainingData(environment=name, named=isinstance(env, str), start=distillation)
    record = Record.online(algorithms, settings, spec, data)
    if start_from is not None:
        record = replace(record, sketches=learnt_through(start_from.policy))
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
        fix=(
            f"learn from the log with {alternatives} (tl.fit); then, with an environment, start from that "
            f"run (tl.learn({name}(...), env, start=run))"
        ),
    )
