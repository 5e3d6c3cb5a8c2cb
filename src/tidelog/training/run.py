"""A run: members that train on a log or in an environment, their metrics, and the run folder."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import msgspec
import numpy as np
from numpy.typing import NDArray

from tidelog._files import tidy
from tidelog._machine import Interrupts
from tidelog._text import facts_table
from tidelog.algorithms.contract import DIFFERENCES, VALUES, Chooser, without_scale
from tidelog.algorithms.names import shown_name
from tidelog.data.log import Log
from tidelog.errors import CheckpointError, ConfigError, DivergenceError, EnvironmentFailure, SpecError
from tidelog.networks.layers import duplicate, new_key
from tidelog.policies.policy import Policy, as_declared, fill, load_learnt_policy, value_unit
from tidelog.runtime.policy import likeness, replay_actions, replay_log_probability
from tidelog.sinks import (
    JSON_LINES,
    MetricsFile,
    MetricsRow,
    RunFacts,
    Sink,
    Tracker,
    Value,
    flat,
    metrics_of,
    read_rows,
    rewind,
    rows_at,
)
from tidelog.training.engine import Engine
from tidelog.training.loop import BLOCK, Member, Validation
from tidelog.training.metrics import (
    LONG_SECONDS,
    MOST_METRICS,
    SETTLED_SECONDS,
    BestReport,
    Progress,
    Selection,
    TrainingProgress,
    config_name,
    is_loss,
    run_figure,
)
from tidelog.training.processes import connected
from tidelog.training.record import Checkpoint, Checkpoints, Record, evaluate, locked, products_note, read_member
from tidelog.types import has_densities, same_choices

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Agreement of a policy's actions with those of a log; this does not estimate the policy's value. Letter: `N` steps.


def agreement(policy: Policy, log: Log) -> dict[str, float]:
    """Return the share of equal actions (or the mean distance of continuous ones), and the mean log-probability.

    The log-probability is that of the logged actions. Raises SpecError if the log's spaces are not those of the policy.
    """
    return {name: float(np.mean(values)) for name, values in agreement_by_step(policy, log).items()}


def agreement_by_step(policy: Policy, log: Log) -> dict[str, NDArray[Any]]:
    """Return the measures of `agreement` at every step, [N] each."""
    if log.spec.observation != policy.spec.observation or not same_choices(log.spec.action, policy.spec.action):
        raise SpecError(
            f"log: found {log.spec}", f"the policy's {policy.spec}", "use a log with the spaces of the policy"
        )
    rows = log.transitions
    chosen = replay_actions(policy, rows.observation, log.starts, rows.mask)
    measure = "mean distance to logged actions" if has_densities(log.spec.action) else "share of equal actions"
    measures: dict[str, NDArray[Any]] = {measure: likeness(log.spec.action, chosen, np.asarray(log.action))}
    likely = replay_log_probability(policy, rows.observation, log.action, log.starts, rows.mask)
    return measures if likely is None else measures | {"mean log-probability of logged actions": np.asarray(likely)}


# Policies from a run folder, without the log of the run.


def policy_of_run(folder: str | Path, member: int | None = None, algorithm: Any = None) -> Policy:
    """Return the policy of a run's last checkpoint; the best one if the run has `best_metric` and no member is named.

    It acts as it was judged, if it was.
    """
    path = Path(folder)
    record = Record.read(path)
    if member is None and record.options.best_metric is not None:
        best = Selection(record.options, Checkpoints(path / "checkpoints", 1).memory()).best_member()
        if best is not None:
            return as_declared(path, load_learnt_policy(path / "best" / f"member-{best}", algorithm))
    count = len(record.configs) * len(record.options.seeds)
    if member is not None and not 0 <= member < count:
        raise ConfigError(f"member = {member}: {path} has {count} member(s)", fix=f"use 0 to {count - 1}")
    return member_policy(path, record, member or 0, algorithm)


def member_policy(path: Path, record: Record, index: int, algorithm: Any = None) -> Policy:
    """Return the policy of one member from the last checkpoint; it acts as it was judged, if it was."""
    update, file, arrays = read_member(path, index)
    own_algorithm = record.algorithms(algorithm)[index // len(record.options.seeds)]
    state = fill(own_algorithm.init(record.spec, new_key(0), record.options.steps), arrays, str(file))
    origin = record.origin(run=path.name, update=update, member=index)
    params, scaler = without_scale(own_algorithm.policy_params(state), record.scaler)
    policy = Policy(own_algorithm, record.spec, scaler, params, origin, record.acting)
    return as_declared(path, policy)


# A run in experiment trackers: the facts that they show, and verdicts that come after training.


def tracker_facts(record: Record, folder: Path | None, rows: Sequence[MetricsRow]) -> RunFacts:
    """Return what a tracker shows about a run: its name, its settings, its data and the rows of all reports."""
    several = len(record.configs) > 1
    data = {name: value for name, value in msgspec.to_builtins(record.data).items() if name != "origin"}
    parameters: dict[str, Value] = {"algorithm": record.algorithm}
    for index, config in enumerate(record.configs):
        parameters |= flat(config, f"config-{index}." if several else "")
    parameters |= flat(msgspec.to_builtins(record.options), "run.") | flat(data, "data.")
    parameters |= flat(record.machine, "machine.")
    return RunFacts(record.algorithm if folder is None else folder.resolve().name, folder, parameters, rows)


def publish(run: str | Path, verdict: Any, sinks: Sequence[Tracker], page: str | Path | None = None) -> None:
    """Show verdicts on a run, and its report page, in the trackers that show the run; one that lacks the run gets it.

    `verdict` is one `tl.Verdict`, or several by name (`dict(verdicts.items())`). Raises CheckpointError where `run` is
    no run folder, ConfigError where a tracker does not answer or `page` is no file; one that fails later is a warning.
    """
    folder, file = Path(run), None if page is None else Path(page)
    record = Record.read(folder)
    if file is not None and not file.is_file():
        raise ConfigError(f"{file} is not a file", "a report page", f"tidelog report {folder} --out {file}")
    verdicts = verdict if isinstance(verdict, Mapping) else {"policy": verdict}
    facts = {name: {**one.summary, "paragraph": one.paragraph} for name, one in verdicts.items()}
    values = {name: {key: fact for key, fact in one.items() if fact not in (None, "")} for name, one in facts.items()}
    for sink in sinks:
        sink.begin(tracker_facts(record, folder, read_rows(folder / JSON_LINES)))
        try:
            sink.publish(values, file)
        finally:
            sink.close(None)


T = TypeVar("T")
COLLAPSE_SHARE = 0.25  # share of its best value; below it, the coverage has collapsed
LIKELIHOODS = ("held_out/imitation_loss", "held_out/actor_loss")  # in nats a decision; the second one weighs decisions
NEAR_LOGGER = 0.9  # smallest effective share of the weights of logged actions
OVERFITTED = 0.1  # nats, or share of a larger loss
DIVERGED = (  # the fix where a loss is no longer finite, of an algorithm without its own
    "lower the learning rates; use scale='standard' or a reward_scaling if rewards or features have an extreme scale; "
    "use a discount below 1 if episodes never end"
)
CHUNK_SECONDS = 0.5  # target length of a chunk: short enough for a live line and a fast reaction to signals


class Run:
    """The result of `fit`, `learn` and `resume`: metrics, policies, and a folder if `out` is set.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> run = tl.fit(tl.BC(hidden=(16,)), log, steps=20, seeds=2, train=False)
        >>> for now in run.stream():  # trains it, chunk by chunk
        ...     pass
        >>> run.update, run.finished
        (20, True)
        >>> policies = [run.policy(seed=0), run.policy(seed=1)]
    """

    def __init__(
        self,
        record: Record,
        engine: Engine,
        folder: Path | None = None,
        *,
        validation: Validation | None = None,
        evaluators: Mapping[str, Any] | None = None,
        sinks: Sequence[Sink] = (),
        checkpoint: Checkpoint | None = None,
        chooser: Chooser | None = None,
    ) -> None:
        self.record, self.folder, self.chooser = record, folder, chooser
        self._metric_sizes: Mapping[str, int] = {} if checkpoint is None else checkpoint.metrics
        self.metrics: list[dict[str, Any]] = [] if folder is None else rows_at(folder, self._metric_sizes)
        self._engine, self._validation = engine, validation
        self._evaluators, self._sinks = dict(evaluators or {}), list(sinks)
        self._selection = Selection(record.options, None if checkpoint is None else checkpoint.memory)
        self._best: dict[int, Policy] = {}
        self._processes = connected()
        self._saved: Any = None
        self._files: list[MetricsFile] = []
        self._screen: Progress | None = None  # while `train` shows one
        self._updates_on_disk = [] if folder is None else self._checkpoints().updates()

    @property
    def members(self) -> list[Member]:
        """Every algorithm of the population with every seed."""
        return self._engine.members

    @property
    def update(self) -> int:
        """Updates taken by each member."""
        return self._engine.update

    @property
    def done(self) -> int:
        """The steps done by each member: updates over a log, decisions in an environment."""
        return self._engine.done

    @property
    def unit(self) -> str:
        """The unit of the run's steps: "updates" or "decisions"."""
        return self._engine.unit

    @property
    def name(self) -> str:
        """The name of the algorithm, or of its configuration, such as "ppo"."""
        return shown_name(self.members[0].algorithm)

    def __repr__(self) -> str:
        return f"Run of {self.name}, {', '.join(self._facts().values())}"

    def _repr_html_(self) -> str:
        """Return a table for notebooks, with the last metrics of the first member."""
        last = [*self._named_first(metrics_of(self._last_row()), {}).items()][:MOST_METRICS]
        metrics = {f"last {name}": f"{value:.4g}" for name, value in last}
        return facts_table(f"Run of {self.name}", {**self._facts(), **metrics})

    def plot(self, metrics: Sequence[str] = ()) -> Figure:
        """Return a matplotlib figure: losses and returns over updates, all members, the chosen checkpoint.

        `metrics` names other ones; ConfigError for a metric that no report has.
        """
        configs, seeds = self.record.configs, len(self.record.options.seeds)
        names = [config_name(self.name, configs, place) for place in range(len(configs))]
        own = self.record.options.own_evaluators
        return run_figure(self.metrics, names, seeds, own, self.best_report(), metrics)

    def _facts(self) -> dict[str, str]:
        seeds, options = len(self.record.options.seeds), self.record.options
        members = f"{len(self.members)} members" if len(self.members) > 1 else "1 member"
        return {
            "members": f"{members} ({seeds} seed{'s' if seeds > 1 else ''})",
            "done": f"{self.done:,} of {options.last:,} {self.unit}",
            "where": "in memory" if self.folder is None else f"in {self.folder}",
        }

    def notes(self) -> list[str]:
        """Return notes for the user about the run; a finished run also has those of its policy."""
        algorithm = self.members[0].algorithm
        slow = products_note(getattr(algorithm, "matmul_precision", "float32"))
        notes = [*self._engine.notes(), slow, self.record.refit_note]
        settings: list[str] = getattr(algorithm, "run_notes", list)()
        if not settings and self.finished:
            settings = (self.best_policy() if self._selection.best else self.policy()).notes()
        return list(dict.fromkeys(note for note in (*notes, *settings) if note is not None))

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or patience ended the run."""
        return self.done >= self.record.options.last or self._selection.exhausted

    def policy(self, seed: int | None = None, member: int | None = None) -> Policy:
        """Return the current policy of a member: by its number as in the metrics, or by its seed; default: the first.

        ConfigError for both, and for a seed of several members (a population).
        """
        return self._policy_of(self._find(seed, member))

    def best_policy(self, seed: int | None = None, member: int | None = None) -> Policy:
        """Return the policy at the best report, of all members unless one is named; ConfigError without a metric."""
        unnamed = seed is None and member is None
        index = self._selection.best_member() if unnamed else self._find(seed, member).index
        if index is None or index not in self._selection.best:
            raise ConfigError(
                "this run has no best policy",
                fix=f"name a metric for it, as in fit(..., best_metric='{self._example()}')",
            )
        if index not in self._best:
            best = load_learnt_policy(self._best_folder(index), self.members[index].algorithm)
            self._best[index] = best if self.folder is None else as_declared(self.folder, best)
        return self._best[index]

    def best_report(self) -> BestReport | None:
        """Return the metric, the update and the value of the best report; None without `best_metric=`."""
        return self._selection.chosen(self.metrics)

    def _example(self) -> str:
        """Return the name of a metric on held-out data, of this run if it has one."""
        names = (name for row in self.metrics for name in row if name.startswith("held_out/"))
        return next(names, "held_out/value_loss")

    def _last_row(self) -> dict[str, Any]:
        """Return the last report of the first member, {} before it."""
        return next((row for row in reversed(self.metrics) if row["member"] == 0), {})

    def _named_first(self, metrics: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
        """Return metrics for a place with room for few: those that the user has named come first.

        These are `best_metric`, the user's own evaluators, and what an algorithm of the user's own measures besides its
        losses; then come the losses. What was not measured since the `last` report is from there.
        """
        named = [self._selection.metric, *self.record.options.own_evaluators]
        if not type(self.members[0].algorithm).__module__.startswith("tidelog."):
            named += [name for name in metrics if not is_loss(name)]
        values = {**last, **metrics}
        ordered = sorted(metrics, key=lambda name: not name.endswith("loss"))  # `critic_loss_1` is a part of one
        return {name: values[name] for name in [*named, *ordered] if name is not None and name in values}

    def learners(self) -> list[Any]:
        """Return copies of the learner states of all members."""
        return [_copy(learner) for learner in self._engine.learners]

    def learnt_from(self) -> tuple[Any, Validation | None]:
        """Return the constant stores that training reads, and the validation of the held-out part."""
        return self._engine.stores, self._validation

    def _find(self, seed: int | None, member: int | None) -> Member:
        if seed is not None and member is not None:
            raise ConfigError(f"seed = {seed}, member = {member}: each names a member", fix="set only one of them")
        if seed is None:
            number, count = member or 0, len(self.members)
            if not 0 <= number < count:
                raise ConfigError(f"member = {number}: this run has {count} member(s)", fix=f"use 0 to {count - 1}")
            return self.members[number]
        found = [one for one in self.members if one.seed == seed]
        if not found:
            seeds = list(self.record.options.seeds)
            raise ConfigError(f"seed = {seed}: no member has this seed", fix=f"use one of {seeds}")
        if len(found) > 1:
            numbers = ", ".join(str(one.index) for one in found)
            raise ConfigError(
                f"seed = {seed}: the members {numbers} of this population have it", fix="name one of them with member="
            )
        return found[0]

    def _policy_of(self, member: Member, *, best: bool = False) -> Policy:
        params = member.algorithm.policy_params(self._engine.state(member.index))
        params, scaler = without_scale(params, self.record.scaler)
        origin = self.record.origin(best=best, update=self.update, seed=member.seed)
        policy = Policy(member.algorithm, self.record.spec, scaler, _copy(params), origin, self.record.acting)
        return policy if self.folder is None else as_declared(self.folder, policy)

    def train(self, progress: bool | None = None) -> Run:
        """Train to the end, and show the progress and the run's notes; `progress` False shows nothing.

        The expected duration is said as soon as the rate is measured. Progress is a live line on a terminal, a bar in a
        notebook, and elsewhere a line every few seconds on standard error; `progress` True asks for the live line.
        """
        with Progress(self.name, progress if self._processes.rank == 0 else False) as screen:
            for note in (*self.notes(), *(() if self.chooser is None else self.chooser.notes)):
                screen.note(note)
            announce, unmeasured = None, 0
            self._screen = screen
            for now in self.stream():
                screen.show(now)
                if now.doing == "training" and announce is None:
                    announce = time.monotonic() + SETTLED_SECONDS
                measured = unmeasured > 0 and now.unmeasured_reports == 0
                due = announce is not None and (time.monotonic() >= announce or measured)
                if due and not now.includes_compiling:
                    announce, unmeasured = math.inf, now.unmeasured_reports
                    if now.left >= LONG_SECONDS:
                        screen.note(now.expected())
            for note in (*overfitting(self.metrics), *near_behavior_policy(self.metrics)):
                screen.note(note)
        self._screen = None
        return self

    def stream(self, until: int | None = None) -> Iterator[TrainingProgress]:
        """Train to the end, or for `until` steps in all, and yield after every chunk.

        The run is saved where it stops. Raises DivergenceError at a non-finite metric, KeyboardInterrupt and
        SystemExit(143) after a signal; the run can be resumed in all three cases.
        """
        if self.folder is not None:
            self.record.check_imported(self.folder)
        if until is not None and until < 1:
            raise ConfigError(f"until = {until}", "at least 1 step")
        with ExitStack() as stack:
            interrupts = stack.enter_context(Interrupts(several=self._processes.count > 1))
            sinks = self._processes.on_first(partial(self._open, stack), alone=True) or []
            yield from self._train(interrupts, sinks, self.record.options.last if until is None else until)
            self._processes.decide(None, len)  # none ends before process 0 has saved
            interrupts.leave()
        yield TrainingProgress("done", self.done, self.record.options.last, unit=self.unit)

    def _open(self, stack: ExitStack) -> list[Sink]:
        """Lock and prepare the folder, if there is one, and open the sinks."""
        if self.folder is not None:
            stack.enter_context(locked(self.folder))
            self._prepare_folder(self.folder)
        return self._open_sinks(stack)

    def _prepare_folder(self, folder: Path) -> None:
        """Delete checkpoints of later updates, then what only they need, and half-written files.

        CheckpointError if another process trained the run since it was loaded.
        """
        checkpoints = self._checkpoints()
        if checkpoints.updates() != self._updates_on_disk:
            raise CheckpointError(
                f"{folder} was trained by another process since it was loaded", fix="load it again with tl.load_run"
            )
        for parent in (folder, folder / "best", folder / "checkpoints"):
            tidy(parent)
        later = [update for update in reversed(self._updates_on_disk) if update > self.update]
        checkpoints.forget(later)
        rewind(folder, self._metric_sizes)
        self._engine.discard_later_rollouts()
        if not checkpoints.updates():
            self._save()
        self._updates_on_disk = checkpoints.updates()

    def _open_sinks(self, stack: ExitStack) -> list[Sink]:
        self._files = [] if self.folder is None else [MetricsFile(self.folder)]
        for sink in self._files:
            stack.callback(sink.close)
        for one in self._sinks:
            if isinstance(one, Tracker):
                one.begin(tracker_facts(self.record, self.folder, self.metrics))
                stack.callback(lambda tracker: tracker.close(self.finished), one)
            else:
                stack.callback(one.close)
        return [*self._files, *self._sinks]

    def _train(self, interrupts: Interrupts, sinks: list[Sink], until: int) -> Iterator[TrainingProgress]:
        settings, pace = self.record.options, _Pace(settings_steps=self.record.options.last)
        saved, reporting = time.monotonic(), _Reporting()
        if self.finished:  # the process may have ended between the last checkpoint and `close`
            self._engine.close()
        while not self.finished and self.done < until:
            if self._engine.needs_compiling():
                yield TrainingProgress("compiling", self.done, settings.last, unit=self.unit)
                self._computed(self._engine.compile)
                pace.restart()
            boundary = min(settings.last, (self.done // settings.eval_every + 1) * settings.eval_every)
            taken = self._advance(pace.chunk, min(boundary, until) - self.done)
            self._check_finite()
            pace.add_chunk(taken)
            live = self._in_own_unit(self.members[0], self._engine.peek())
            live = self._named_first(live, self._last_row())
            rows: tuple[dict[str, Any], ...] = ()
            if self.done >= boundary:
                if self._screen is not None and self._measures:
                    self._screen.show(TrainingProgress("validating", self.done, settings.last, unit=self.unit))
                with reporting:
                    rows = self._report(sinks)
            due = time.monotonic() - saved >= settings.save_seconds
            pace.chunk, due, received = self._processes.decide([pace.chunk, due, interrupts.received], _decision)
            stops = self.finished or self.done >= until or received is not None
            if self.folder is not None and (due or stops):
                self._processes.on_first(self._save)
                saved = time.monotonic()
            if self.finished:
                self._engine.close()
            rate = self._engine.rate(pace.rate)
            reports = (
                0
                if self.finished
                else math.ceil(settings.last / settings.eval_every) - self.done // settings.eval_every
            )
            left = ((settings.last - self.done) / rate if rate else 0.0) + reports * reporting.seconds
            every = rate * len(self.members)
            unmeasured = 0 if reporting.count or not self._measures else reports
            first = self._measures and reports > 0 and reporting.count == 1
            yield TrainingProgress(
                "training", self.done, settings.last, every, left, live, rows, self.unit, unmeasured, first
            )
            if received is not None:  # one that arrives after the decision waits for the next one
                interrupts.received = received
                interrupts.leave()
            pace.restart()

    @property
    def _measures(self) -> bool:
        """Whether a report takes time of its own: for validation, a choice, environments or functions."""
        return bool(self._validation or self.chooser or self.record.options.evaluate or self._evaluators)

    def _advance(self, most: int, until: int) -> int:
        """Run one chunk; if an environment fails, save a checkpoint first."""
        try:
            return self._computed(partial(self._engine.advance, most, until))
        except EnvironmentFailure as error:
            if self.folder is None:
                raise
            self._save(self._engine.environments_before())
            repair = error.fix or "repair the environment"
            again = f"{repair}, then continue with `{self.record.resume_command(self.folder)}`"
            raise EnvironmentFailure(
                f"{error.problem}; the progress until then is saved in {self.folder}", fix=again
            ) from error

    def _computed(self, function: Callable[[], T]) -> T:
        """Return what a function computes on the devices; ProcessError where another process is lost meanwhile."""
        try:
            return function()
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            if self._processes.count == 1:
                raise
            raise self._processes.lost(error) from error

    def _check_finite(self) -> None:
        failures = self._engine.failures()
        if failures:
            member, update = failures[0]
            block = str(update) if update < BLOCK else f"{update} to {update + BLOCK - 1}"
            last = "The run has no folder, therefore there is no checkpoint"
            if self.folder is not None:
                last = f"The last good checkpoint, at update {self._checkpoints().updates()[-1]}, is in {self.folder}"
            raise DivergenceError(
                f"a loss of {type(member.algorithm).__name__} with seed {member.seed} became NaN or infinite "
                f"at update {block}",
                "finite numbers",
                f"{getattr(member.algorithm, 'divergence_fix', DIVERGED)}. {last}",
            )

    def _choose(self) -> list[dict[str, float]]:
        """Let held-out data choose a part of each member's state; return the metrics of the choice and the policy."""
        metrics = []
        for member in self.members:
            chosen: dict[str, float] = {}
            if self.chooser is not None:
                choice, chosen = self._processes.on_first(partial(self.chooser.measure, self._policy_of(member)))
                state = self.chooser.apply(member.algorithm, self._engine.state(member.index), choice)
                self._engine.replace_state(member.index, state)
            of_policy = getattr(member.algorithm, "policy_metrics", None)
            params = member.algorithm.policy_params(self._engine.state(member.index)) if of_policy else None
            metrics.append({**(of_policy(params) if of_policy else {}), **chosen})
        return metrics

    def _report(self, sinks: list[Sink]) -> tuple[dict[str, Any], ...]:
        """Choose, measure, and write a metrics row of each member."""
        chosen = self._choose()
        self._processes.on_first(self._check_folder)
        rows = []
        for member, training, measured in zip(self.members, self._engine.report(), chosen, strict=True):
            before = {**self._in_own_unit(member, training), **measured}
            row = self._processes.on_first(partial(self._measured, member, before))
            rows.append(row)
            if self._selection.take(member.index, row):
                best = self._best[member.index] = self._policy_of(member, best=True)
                if self.folder is not None:
                    self._processes.on_first(partial(best.save, self._best_folder(member.index)), alone=True)
        if self._processes.rank == 0:
            self._warn_of_collapse(rows)
        for row in rows:
            for sink in sinks:
                sink.write(row)
        self.metrics += rows
        return tuple(rows)

    def _in_own_unit(self, member: Member, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return metrics with values and their differences in the unit of the log's rewards."""
        unit = value_unit(member.algorithm, self.record.scaler)
        if unit == (1.0, 0.0):
            return dict(metrics)
        constants = {**dict.fromkeys(VALUES, unit.constant), **dict.fromkeys(DIFFERENCES, 0.0)}
        kinds = {name: name.rpartition("/")[2].rstrip("_0123456789") for name in metrics}  # of critics: q_mean_1
        return {
            name: value * unit.factor + constants[kinds[name]] if kinds[name] in constants else value
            for name, value in metrics.items()
        }

    def _measured(self, member: Member, before: Mapping[str, float]) -> dict[str, Any]:
        """Return the metrics row of a member: those before it, losses on held-out data, and evaluations."""
        state, options = self._engine.state(member.index), self.record.options
        held_out = self._validation.losses(member.algorithm, state) if self._validation else {}
        evaluates = options.evaluate or self._evaluators
        evaluation = evaluate(self._policy_of(member), options.evaluate, self._evaluators) if evaluates else {}
        row: dict[str, Any] = {"update": self.update, "member": member.index, "seed": member.seed}
        return row | {**before, **held_out, **evaluation}

    def _warn_of_collapse(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Warn if a watched metric of a member is below a quarter of its best value."""
        for member, row in zip(self.members, rows, strict=True):
            advice = getattr(member.algorithm, "collapse_advice", lambda name, row: "look at its curve")
            for name in collapsed_metrics(getattr(member.algorithm, "watched_metrics", ()), row, self.metrics):
                warnings.warn(
                    f"{name} of {type(member.algorithm).__name__} with seed {member.seed} fell to {row[name]:.3g}, "
                    f"below a quarter of its best value: {advice(name, row)}",
                    CollapseWarning,
                    stacklevel=2,
                )

    @property
    def _own_folder(self) -> Path:
        if self.folder is None:
            raise CheckpointError("this run has no folder", fix="set one, as in fit(..., out='runs/name')")
        return self.folder

    def _best_folder(self, index: int) -> Path:
        return self._own_folder / "best" / f"member-{index}"

    def _check_folder(self) -> None:
        """Raise CheckpointError if the run folder is gone: a moved or deleted run is not created again."""
        if self.folder is not None and not self.folder.is_dir():
            raise CheckpointError(
                f"{self.folder} was moved or deleted while the run was training",
                fix=f"move it back, then continue with `{self.record.resume_command(self.folder)}`",
            )

    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self._own_folder / "checkpoints", self.record.options.keep_checkpoints)

    def _save(self, environments: list[Any] | None = None) -> None:
        self._check_folder()
        if self._saved != (self.update, self._engine.position):  # a round may have no update
            states = self._engine.environments() if environments is None else environments
            memory, engine = self._selection.memory(), self._engine
            self._metric_sizes = dict(file.sync() for file in self._files)  # rows are durable before their checkpoint
            checkpoint = Checkpoint(engine.learners, engine.position, memory, states, self._metric_sizes)
            self._checkpoints().save(self.update, checkpoint)
            self._updates_on_disk = self._checkpoints().updates()
            self._saved = (self.update, engine.position)


def _decision(values: Sequence[tuple[int, bool, int | None]]) -> tuple[int, bool, int | None]:
    """Return the next chunk and whether to save, as process 0 has them, and the first signal of all processes."""
    chunk, due, _ = values[0]
    return chunk, due, next((received for *_, received in values if received is not None), None)


class CollapseWarning(UserWarning):
    """A metric that an algorithm watches, such as the diversity of its lists, is much lower than before."""


def collapsed_metrics(
    watched_metrics: Sequence[str], row: Mapping[str, Any], before: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the watched metrics that are below a quarter of their best value for the first time in this report."""
    names = []
    for name in (name for name in row if name in watched_metrics):
        values = [old[name] for old in before if name in old and old["member"] == row["member"]]
        if values and row[name] < COLLAPSE_SHARE * max(values) <= values[-1]:
            names.append(name)
    return names


def near_behavior_policy(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note if the last policy is close to the behaviour policy, for the member of which that is least true.

    Its logged actions were then imitated with weights that hardly differ: `effective_share` is their squared mean over
    the mean of their squares, 1 for equal ones.
    """
    last = {row["member"]: row["effective_share"] for row in rows if "effective_share" in row}
    least = min(last.values(), default=0.0)
    if any("decisions" in row for row in rows) or not least >= NEAR_LOGGER:
        return []
    return [
        "this policy is close to the behaviour policy: it imitates logged actions with weights that hardly differ "
        f"(their effective share is {least:.2f}, 1 for equal ones). A higher temperature departs further from the log"
    ]


def overfitting(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note if held-out decisions became clearly less likely after the best report, for the worst member.

    The same loss in training must have fallen since then, and be clearly lower now: one that rises in both is no sign
    of overfitting, as the weights of decisions change while the critics learn; the first losses in training are means
    over networks that knew nothing. A run in an environment has no
    note: its policy leaves the decisions of the log by its own experience.
    """
    if any("decisions" in row for row in rows):
        return []
    rises = []
    for member, metric in {(row["member"], metric) for row in rows for metric in LIKELIHOODS if metric in row}:
        reports = [row for row in rows if row["member"] == member and metric in row]
        best, end = min(reports, key=lambda row: (row[metric], row["update"])), reports[-1]
        least, last, training = best[metric], end[metric], metric.removeprefix("held_out/")
        margin, now = OVERFITTED * max(1.0, abs(least)), end.get(training, -math.inf)
        fits_better = now < best.get(training, math.inf) and last - now > margin
        if fits_better and last - least > margin:
            rises.append((last - least, least, best["update"], last, metric))
    if not rises:
        return []
    _, least, update, last, metric = max(rises)
    return [
        f"{metric} rose from {least:.3g} at update {update:,} to {last:.3g}: the policy fits the training episodes "
        f"better and better, and others worse. fix: train for {update:,} steps, or keep the best policy with "
        f"--best-metric {metric} (best_metric='{metric}'): a part of the held-out episodes then chooses it, and the "
        "others stay for the judge; of few held-out episodes all choose it, so judge it on other episodes "
        "(tidelog judge --data)"
    ]


class _Reporting:
    """The mean time of a report: validation, lists of held-out events, evaluation. The first one also compiles."""

    def __init__(self) -> None:
        self.count, self._total, self._first = 0, 0.0, 0.0

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *error: object) -> None:
        seconds = time.monotonic() - self._since
        self.count += 1
        if self.count == 1:
            self._first = seconds
        else:
            self._total += seconds

    @property
    def seconds(self) -> float:
        """Seconds of a later report, as far as it is measured."""
        return self._total / (self.count - 1) if self.count > 1 else self._first


class _Pace:
    """The number of updates per chunk, and their rate."""

    def __init__(self, settings_steps: int) -> None:
        self.chunk, self.rate = min(10, settings_steps), 0.0
        self._since = time.monotonic()

    def restart(self) -> None:
        """Restart the clock after a compilation."""
        self._since = time.monotonic()

    def add_chunk(self, updates: int) -> None:
        """Update the rate and the chunk size after a chunk."""
        seconds = max(time.monotonic() - self._since, 1e-6)
        self.rate = updates / seconds
        if updates >= self.chunk:
            self.chunk = max(1, min(2 * self.chunk, int(self.rate * CHUNK_SECONDS)))
        self._since = time.monotonic()


def _copy(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: duplicate(leaf) if isinstance(leaf, jax.Array) else leaf, tree)
