"""`sweep`: train many algorithms over one log, each in its own run folder; `Sweep` is the result, with a page.

A trial is `fit(out=)`, and continues as `resume` does. The driver gives trials to a pool of processes until none has
anything left to do. The state is in the folder: run folders, how each trial stands, and decided rungs. A driver that
was killed is replaced by another one, which reads the same state and takes the same decisions.
"""

from __future__ import annotations

import math
import shlex
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import lru_cache
from pathlib import Path
from typing import Any, Unpack

import msgspec

from tidelog._files import checksum, make_folders, tidy, write_file
from tidelog._machine import Interrupts, versions
from tidelog._text import rows_table, three_digits
from tidelog.algorithms.hyperparameters import from_config, same_program, to_config
from tidelog.algorithms.names import (
    algorithm_class,
    algorithm_name,
    as_algorithms,
    check_fit,
    check_source,
    load_plugin,
)
from tidelog.algorithms.short_form import ALGORITHMS
from tidelog.data.log import Log
from tidelog.envs.registry import module_of
from tidelog.errors import CheckpointError, ConfigError, DivergenceError, LogError, TidelogError
from tidelog.ope.verdict import FOLDER, SavedVerdict, held_out_part, percent, read_verdicts
from tidelog.parallel import Pool, ending, pool_of
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.read import reopen_any
from tidelog.report.frame import REPORT_KIND, bullets, check_target, command, page, paragraph, section, table
from tidelog.sinks import JSON_LINES, Sink
from tidelog.sweeps.job import PLAN, Job, run_job, trial_folder
from tidelog.sweeps.plan import (
    LOG,
    MOST_TRIALS,
    REPORT,
    Halving,
    Plan,
    RungDecision,
    Status,
    Trial,
    TrialOptions,
    append_decision,
    decide,
    differing_settings,
    read_decisions,
    read_status,
    values_at,
    write_status,
)
from tidelog.training.fit import CLOSEST, SELECTION, fit
from tidelog.training.learn import load_run
from tidelog.training.metrics import Progress, direction
from tidelog.training.options import OF_SWEEPS, Evaluator, SweepOptions, as_path, as_seeds, option_values, whole
from tidelog.training.record import FILE as RUN
from tidelog.training.record import Checkpoints, Record, check_free, check_unlocked, locked
from tidelog.training.run import Run, policy_of_run
from tidelog.types import Catalogue, Discrete


class Sweep:
    """The trials of a sweep's folder: how each stands, its held-out metric, and the policies of the complete ones."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.plan = Plan.read(self.folder)

    def __repr__(self) -> str:
        return f"Sweep of {len(self.plan.trials):,} trials, {self._counts()}, in {self.folder}"

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return rows_table(f"Sweep: {self._counts()}. {self.caution}", self.head, self.rows())

    def _counts(self) -> str:
        states = [row["state"] for row in self.table]
        return ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))

    @property
    def metric(self) -> str | None:
        """The metric by which trials are compared, None without `best_metric`."""
        return direction(self.plan.options.best_metric)[0]

    @property
    def decisions(self) -> list[RungDecision]:
        """What halving decided, rung by rung."""
        return read_decisions(self.folder)

    def run_folder(self, trial: int) -> Path:
        """Return the run folder of a trial, which `tl.load_run` opens."""
        if not 0 <= trial < len(self.plan.trials):
            raise ConfigError(f"trial = {trial}: this sweep has {len(self.plan.trials):,}", fix="count them from 0")
        return trial_folder(self.folder, trial) / "run"

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The settings of each trial that are not the same in all trials of its algorithm."""
        trials = self.plan.trials
        shares = {trial.data_share for trial in trials}
        differing = {
            name: differing_settings([trial.config for trial in trials if trial.algorithm == name])
            for name in {trial.algorithm for trial in trials}
        }
        return [
            {name: trial.config[name] for name in differing[trial.algorithm] if name in trial.config}
            | ({"data_share": trial.data_share} if len(shares) > 1 else {})
            for trial in trials
        ]

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row per trial: its settings, state, updates, and the metric at its last report: mean and ends over seeds.

        States: waiting, standing (between two parts of its training), complete, stopped (by halving), diverged, failed.
        """
        rows, promoted = [], [set(one.promoted) for one in self.decisions]
        for number, (trial, settings) in enumerate(zip(self.plan.trials, self.settings, strict=True)):
            folder = trial_folder(self.folder, number)
            status = read_status(folder)
            state = "waiting" if status is None else str(status.state)
            if state in ("waiting", "standing") and any(number not in one for one in promoted):
                state = "stopped"
            values = [] if self.metric is None else values_at(folder, self.metric)
            finite = bool(values) and all(map(math.isfinite, values))
            rows.append(
                {
                    "trial": number,
                    "algorithm": trial.algorithm,
                    "settings": settings,
                    "state": state,
                    "update": 0 if status is None else status.update,
                    "metric": sum(values) / len(values) if finite else None,
                    "least": min(values) if finite else None,
                    "most": max(values) if finite else None,
                    "seeds": len(self.plan.options.seeds),
                    "reason": "" if status is None else status.reason,
                }
            )
        return rows

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """The rows of the table: complete trials first, the best metric first among equals; ties by number."""
        _, sign = direction(self.plan.options.best_metric)

        def rank(row: Mapping[str, Any]) -> tuple[bool, int, float, int]:
            metric = math.inf if row["metric"] is None else -sign * row["metric"]
            return row["state"] != "complete", -row["update"], metric, row["trial"]

        return sorted(self.table, key=rank)

    @property
    def head(self) -> list[str]:
        """The heads of the columns of `rows`."""
        several = ["algorithm"] if len({trial.algorithm for trial in self.plan.trials}) > 1 else []
        shown = [] if self.metric is None else [self.metric]
        shown += ["of its seeds"] if shown and len(self.plan.options.seeds) > 1 else []
        return ["trial", *several, *self._names, "state", "updates", *shown]

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for settings in self.settings for name in settings))

    def rows(self) -> list[list[str]]:
        """Return the ranked table as text."""
        rows, names, head = [], self._names, self.head
        for row in self.ranked:
            cells = [str(row["trial"]), *([row["algorithm"]] if "algorithm" in head else [])]
            for value in (row["settings"].get(name, "") for name in names):
                cells.append(f"{value:.4g}" if isinstance(value, float) else str(value).replace(" ", ""))
            cells += [row["state"], f"{row['update']:,}"]
            if row["metric"] is not None:
                cells += [f"{row['metric']:.4g}", f"{row['least']:.4g} to {row['most']:.4g}"]
            rows.append([*cells, "", ""][: len(head)])
        return rows

    @property
    def caution(self) -> str:
        """What the order of the table shows, and what it does not."""
        if self.metric is None:
            return "No metric was named (best_metric=...), so the trials have no order."
        where = "held-out data" if self.metric.startswith("held_out/") else "no held-out data"
        return (
            f"The order is by {self.metric} at the last report, on {where}. It does not show that a trial is better "
            "than the decisions of the log: only a judgement of all complete trials at once does."
        )

    @property
    def failed(self) -> bool:
        """Whether a trial diverged or failed."""
        return any(row["state"] in ("diverged", "failed") for row in self.table)

    def complete(self) -> list[int]:
        """Return the numbers of the complete trials."""
        return [row["trial"] for row in self.table if row["state"] == "complete"]

    def run_record(self, trial: int) -> Record:
        """Return the record of a trial's run."""
        return Record.read(self.run_folder(trial))

    @property
    def judge_command(self) -> str | None:
        """The command that judges all complete trials at once; None if there is none, or nothing is held out."""
        complete = self.complete()
        if not complete or not self.plan.options.held_out > 0.0:
            return None
        record = self.run_record(complete[0])
        if isinstance(record.spec.action, Catalogue):  # lists have measures, and no verdict
            return None
        sample = " --sample" if isinstance(record.spec.action, Discrete) else ""
        return f"tidelog judge {shlex.quote(str(self.folder))}{sample}"

    def policies(self) -> dict[str, Policy]:
        """Return the policy of each complete trial by name, for `tl.judge`, which then corrects for their number.

        The policy of a trial is the one at the best report of its seeds; without `best_metric`, that of the first seed.
        """
        return {f"trial {number}": policy_of_run(self.run_folder(number)) for number in self.complete()}

    def held_out(self, log: Log | None = None) -> Log:
        """Return the episodes that no trial has learnt from or was chosen by, for `tl.judge`; `log` if it has moved."""
        complete = self.complete()
        if not complete:
            raise CheckpointError(f"{self.folder} has no complete trial", fix="resume the sweep")
        return held_out_part(self.run_folder(complete[0]), self.run_record(complete[0]), log)[0]


def sweep(
    algorithms: Any,
    log: Log | Interactions,
    steps: int,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    *,
    on: str | Pool = "here",
    halving: tuple[int, int] | None = None,
    progress: bool | None = None,
    train: bool = True,
    **options: Unpack[SweepOptions],
) -> Sweep:
    """Train each algorithm with all seeds in its own run folder below `out`, several at once, and compare them.

    A trial is an algorithm with a share of the training episodes (`data_share`, one or several); it ends as `tl.fit`
    with the same options would. `tidelog.training.options.SweepOptions` describes the options; `held_out` is 0.2 by
    default. `tl.grid` and `tl.random_search` make lists of algorithms. `on="here"` trains in processes of this machine,
    each on `cpus` processor cores of its own. `on="ray"` trains in a Ray cluster, the one of RAY_ADDRESS or one of this
    machine, with `cpus` processors for each trial. `best_metric` orders the trials; with a held-out metric a quarter of
    the held-out episodes chooses and the others are left for `tl.judge`. `halving=(3, 10_000)` stops all but the best
    third after 10,000 updates, of these all but a third after 30,000, and so on; it needs
    `best_metric="held_out/..."`. A trial that diverges or fails is a row of the table and does not end the sweep.
    `tl.resume(out)` continues a sweep that was interrupted, or begins one that was only written (`train=False`). Raises
    ConfigError, SpecError, MemoryLimitError, LogError before anything is written.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> sweep = tl.sweep(tl.grid(tl.BC(hidden=(16,)), learning_rate=(1e-3, 1e-4)), log, steps=20, out="sweeps/bc")
        >>> [row["state"] for row in sweep.table]
        ['complete', 'complete']
    """
    values, functions = option_values("sweep", SweepOptions, options, steps, CLOSEST, seeds=as_seeds(seeds))
    cpus = options.get("cpus", OF_SWEEPS["cpus"][1])
    folder, listed, shares = _checked(algorithms, log, out, options.get("data_share", 1.0))
    foreign = [*functions, *(name for name in values["evaluate"] if module_of(name) is not None)]
    if foreign:
        raise ConfigError(
            f"evaluate: {foreign[0]!r} is your own function or environment, which the processes of a sweep do not have",
            fix="evaluate the policies after the sweep",
        )
    values["held_out"] = options.get("held_out", 0.2)
    rungs = None if halving is None else _halving(halving, values, isinstance(log, Interactions))
    if rungs is not None:
        values["eval_every"] = _every(options.get("eval_every"), values["eval_every"], rungs)
    chooses = direction(options.get("best_metric"))[0] or ""
    if options.get("selection_share") is None and chooses.startswith("held_out/") and isinstance(log, Log):
        values["selection_share"] = SELECTION  # what compares the trials cannot judge them
    if values.get("warm_start"):
        values["warm_start"] = {part: str(Path(run).absolute()) for part, run in values["warm_start"].items()}
    shared = {name: values[name] for name in TrialOptions.__struct_fields__ if name in values}
    trial_options = TrialOptions(**shared | {"seeds": list(as_seeds(seeds))})
    pool = pool_of(on, cpus, options.get("workers"), options.get("insecure", False))
    try:
        _check_programs(listed, log, trial_options, shares)
        origin = log.origin
        if origin is None:
            log.save(folder / LOG)
            origin = {"source": str((folder / LOG).absolute()), "columns": None}
        plan = Plan(
            trials=[Trial(algorithm_name(one), to_config(one), share) for one in listed for share in shares],
            options=trial_options,
            halving=rungs,
            origin=dict(origin),
            fingerprint=log.fingerprint(),
            cpus=cpus,
        )
        plan.write(folder)
        if train:
            Driver(folder, pool).run(progress)
    finally:
        if isinstance(on, str):
            pool.close()
    return Sweep(folder)


def _checked(
    algorithms: Any, log: Any, out: str | Path | None, data_share: float | Sequence[float]
) -> tuple[Path, list[Any], list[float]]:
    """Return the folder, the algorithms and the shares of the data; ConfigError for what no sweep can train."""
    listed = as_algorithms(algorithms)
    if not isinstance(log, Log | Interactions):
        raise ConfigError("log", f"a tl.Log, found {type(log).__name__}", "read it first with tl.read_log")
    numbers: dict[tuple[str, str], int] = {}
    for number, one in enumerate(listed):
        check_source(one, False)
        check_fit(one, log.spec)
        name, config = type(one).__name__, to_config(one)
        if type(one).__module__ == "__main__":
            raise ConfigError(
                f"{name} is defined in the script that runs, which other processes cannot import",
                fix="move it to a module and import it",
            )
        for setting, value in config.items():
            if isinstance(value, Mapping):
                raise ConfigError(
                    f"{name}.{setting} is your own function, and the processes of a sweep read settings from a file",
                    fix="give it a name among the choices of an algorithm of your own",
                )
        first = numbers.setdefault((algorithm_name(one), str(config)), number)
        if first != number:
            raise ConfigError(
                f"algorithms {first} and {number} are equal ({one!r})",
                "each once",
                "drop one of them; seeds= repeats a trial",
            )
    shares = list(data_share) if isinstance(data_share, Sequence) else [data_share]
    if not shares or len(set(shares)) < len(shares):
        raise ConfigError(f"data_share = {data_share!r}", "a share, or several that differ", "use (0.5, 1.0)")
    count = len(listed) * len(shares)
    if count > MOST_TRIALS:
        raise ConfigError(f"the sweep has {count:,} trials", f"at most {MOST_TRIALS:,}")
    folder = as_path("out", out)
    if folder is None:
        raise ConfigError("out", "a folder, as the trials are on disk", "name one, as in out='sweeps/a'")
    check_free(folder, file=PLAN)
    return folder, listed, shares


def _halving(halving: tuple[int, int], options: Mapping[str, Any], interactions: bool) -> Halving:
    """Return the rungs of a sweep with these options; ConfigError where they could compare or judge nothing."""
    if not isinstance(halving, tuple | list) or len(halving) != 2:
        raise ConfigError(f"halving = {halving!r}", "(factor, steps of the first rung)", "use (3, 10_000)")
    factor, first, steps = whole("halving", halving[0]), whole("halving", halving[1]), options["steps"]
    best, held_out, patience = options.get("best_metric"), options["held_out"], options.get("patience")
    if factor < 2:
        raise ConfigError(f"halving = {halving!r}", "a factor of at least 2", f"use (3, {first})")
    if not 1 <= first < steps:
        raise ConfigError(
            f"halving = {halving!r}",
            f"a first rung of at least 1 and below the {steps:,} steps",
            f"use ({factor}, {max(1, steps // factor**2)})",
        )
    if not (direction(best)[0] or "").startswith("held_out/"):
        raise ConfigError(
            f"halving needs a held-out metric that compares the trials, found best_metric = {best!r}",
            fix="name one, as in best_metric='held_out/imitation_loss'",
        )
    if not held_out > 0.0:
        raise ConfigError(f"halving needs held-out data, found held_out = {held_out}", fix="use held_out=0.2")
    if options.get("selection_share") == 1.0 and not interactions:
        raise ConfigError(
            "halving with selection_share = 1.0 leaves no episode that could judge the trials", fix="drop it"
        )
    if patience is not None:
        raise ConfigError(
            f"patience = {patience}: trials of halving stop at its rungs, all at the same step", fix="drop patience"
        )
    return Halving(factor, first)


def _every(every: int | None, usual: int, halving: Halving) -> int:
    """Return the steps between two reports, such that each rung has a report: `eval_every`, or about as usual."""
    if every is None:
        return next(size for size in range(min(usual, halving.steps), 0, -1) if halving.steps % size == 0)
    if every < 1 or halving.steps % every:
        raise ConfigError(
            f"eval_every = {every}: the first rung of halving, {halving.steps}, is not the step of a report",
            fix="use a divisor of it, or drop eval_every",
        )
    return every


def _check_programs(
    algorithms: Sequence[Any], log: Log | Interactions, options: TrialOptions, shares: list[float]
) -> None:
    """Prepare one run of each program, and one of each share of the data, which refuses what no trial could train."""
    prepared: list[Any] = []
    for one in algorithms:
        for other in prepared:
            try:
                same_program([other, one])
                break
            except ConfigError:
                continue
        else:
            for share in shares if not prepared else shares[:1]:
                settings = msgspec.structs.asdict(options) | {"data_share": share, "seeds": options.seeds[:1]}
                fit(one, log, train=False, **settings)
            prepared.append(one)


def resume(
    folder: str | Path,
    log: Log | Interactions | None = None,
    *,
    env: Any = None,
    algorithm: Any = None,
    evaluate: Mapping[str, Evaluator] | None = None,
    sinks: Sequence[Sink] = (),
    checkpoint: int | None = None,
    on: str | Pool = "here",
    workers: int | None = None,
    insecure: bool = False,
    progress: bool | None = None,
) -> Run | Sweep:
    """Continue an interrupted run or sweep, bit-equal to an uninterrupted one (same versions, device, thread count).

    A run: pass `log` if its log was created in memory, `env` if its environment has no registered name, `algorithm` if
    it has custom parts, `evaluate` if it has custom evaluators, `checkpoint` to start from an older checkpoint than the
    last. A sweep, `on` this machine or Ray with `workers` trials at once, as in `tl.sweep`: trials that failed are
    tried again; a diverged or stopped trial stays as it is.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> run = tl.fit(tl.BC(hidden=(16,)), log, steps=20, eval_every=5, out="runs/bc", train=False)
        >>> for now in run.stream():
        ...     if now.update == 10:
        ...         break
        >>> tl.resume("runs/bc", log=log).update  # a log that was read from a file is found again without `log=`
        20
    """
    if not (Path(folder) / PLAN).is_file():
        is_run = (Path(folder) / RUN).is_file()
        if is_run and (on != "here" or workers is not None or insecure):
            raise ConfigError(f"on, workers and insecure are for a sweep, and {folder} is a run", fix="drop them")
        check_unlocked(Path(folder))
        run = load_run(folder, log, env=env, algorithm=algorithm, evaluate=evaluate, sinks=sinks, checkpoint=checkpoint)
        return run.train(progress)
    of_runs = {"log": log, "env": env, "algorithm": algorithm, "evaluate": evaluate, "checkpoint": checkpoint}
    named = [name for name, value in of_runs.items() if value is not None] + (["sinks"] if sinks else [])
    if named:
        raise ConfigError(f"{folder} is a sweep, and {named[0]}= is for a run", fix=f"drop {named[0]}")
    plan = Plan.read(Path(folder))
    pool = pool_of(on, plan.cpus, workers, insecure)
    try:
        Driver(Path(folder), pool).run(progress)
    finally:
        if isinstance(on, str):
            pool.close()
    return Sweep(folder)


# The driver, and what it has a process do with a trial.

POLL_SECONDS = 0.5
LOCK_SECONDS = 120.0  # for the process of a node that was lost: it may hold the lock of its run until then
MOST_SHOWN = 4
MOST_LOSSES = 3  # processes in a row that are lost without progress, until the trial has failed

Sign = tuple[str, int]  # the last checkpoint of a run, and the bytes of its reports


class Driver:
    """Brings the trials of a sweep's folder to their ends with a pool of processes."""

    def __init__(self, folder: Path, pool: Pool) -> None:
        self.folder, self.pool, self.plan = folder.absolute(), pool, Plan.read(folder)
        self._trials = range(len(self.plan.trials))
        self.decisions = read_decisions(self.folder)
        promoted = [set(decision.promoted) for decision in self.decisions]
        self._stopped = {trial for trial in self._trials if any(trial not in one for one in promoted)}  # by a decision
        self.statuses: dict[int, Status] = {}
        for trial in self._trials:
            status = read_status(trial_folder(self.folder, trial))
            # a failed one is tried again
            if status is not None and (status.state != "failed" or trial in self._stopped):
                self.statuses[trial] = status
        self._running: dict[Future[Any], tuple[Job, Sign]] = {}  # with what the run had when its process began
        self._losses: dict[int, int] = {}
        modules = {cls.__module__ for cls in ALGORITHMS.values()}
        self._modules = tuple(sorted(name for name in modules if name.split(".")[0] != "tidelog"))

    def run(self, progress: bool | None = None) -> None:
        """Train until nothing is left to do.

        After a signal all runs are saved, then KeyboardInterrupt or SystemExit(143) is raised. ConfigError where a
        process does not see the folder, or has other versions.
        """
        with locked(self.folder), Interrupts() as interrupts, Progress("sweep", progress) as screen:
            tidy(self.folder)
            sha256, packages = checksum(self.folder / PLAN), dict(versions())
            try:
                while unfinished := self._unfinished(screen):
                    at_work = {job.number for job, _ in self._running.values()}
                    waiting = [trial for trial in unfinished if trial not in at_work]
                    while waiting and self.pool.free():
                        job = Job(str(self.folder), waiting.pop(0), self._target(), self._modules)
                        make_folders(job.output.parent)
                        sign = _sign(job)
                        self._running[self.pool.submit(run_job, job, sha256, packages)] = job, sign
                    self._collect(screen)
                    self._show_progress(screen)
                    interrupts.leave()
            finally:
                self.pool.close()

    def _target(self) -> int:
        """The step to which the trials that go on are trained now: the next rung that has a decision, or the end."""
        rungs, decided = self.plan.rungs(), len(self.decisions)
        last = bool(self.decisions) and len(self.decisions[-1].promoted) <= 1
        return self.plan.options.steps if last or decided >= len(rungs) else rungs[decided]

    def _unfinished(self, screen: Progress) -> list[int]:
        """The trials that have something to do; rungs at which all trials stand are decided first."""
        while True:
            target, compared = self._target(), [trial for trial in self._trials if trial not in self._stopped]

            def stands(trial: int, target: int = target) -> bool:
                status = self.statuses.get(trial)
                return status is not None and (status.state != "standing" or status.update >= target)

            unfinished = [trial for trial in compared if not stands(trial)]
            if unfinished or target == self.plan.options.steps:
                return unfinished
            out = {trial for trial in compared if self.statuses[trial].state in ("diverged", "failed")}
            decision = decide(self.folder, self.plan, target, compared, out)
            append_decision(self.folder, decision)
            self.decisions.append(decision)
            self._stopped |= set(compared) - set(decision.promoted)
            names = ", ".join(map(str, decision.promoted)) or "none"
            screen.note(
                f"step {decision.step:,}: {len(decision.promoted):,} of {len(compared):,} trials go on by "
                f"{decision.metric}: {names}"
            )

    def _collect(self, screen: Progress) -> None:
        """Wait until a process ends, for a moment at most, and note how its trial stands."""
        if not self._running:  # the pool is not ready
            time.sleep(POLL_SECONDS)
            return
        done = wait(self._running, POLL_SECONDS, FIRST_COMPLETED).done
        for future in sorted(done, key=lambda future: self._running[future][0].number):
            (job, begin), error = self._running.pop(future), future.exception()
            if isinstance(error, ConfigError):
                raise error
            trial = job.number
            if error is None:
                status: Status = future.result()
                self._losses[trial] = 0
            else:
                how = ending(error)
                self._losses[trial] = lost = 1 if _sign(job) != begin else self._losses.get(trial, 0) + 1
                if lost < MOST_LOSSES:
                    screen.note(f"trial {trial}: its process was lost ({how}), another one follows")
                    continue
                reason = (
                    f"its process was lost {lost} times without a new report or checkpoint, the last time: {how}. "
                    f"fix: read {job.output}, then resume the sweep"
                )
                status = Status("failed", int(_sign(job)[0] or 0), reason)
            write_status(trial_folder(self.folder, trial), status)
            self.statuses[trial] = status
            if status.state in ("diverged", "failed"):
                screen.note(f"trial {trial} {status.state} at update {status.update:,}: {status.reason}")

    def _show_progress(self, screen: Progress) -> None:
        """Say how many trials have nothing to do any more, and where some of the running ones are."""
        ended = sum(status.state != "standing" for trial, status in self.statuses.items() if trial not in self._stopped)
        ended, count = ended + len(self._stopped), len(self._trials)
        jobs = sorted((job for job, _ in self._running.values()), key=lambda job: job.number)
        at = [f"trial {job.number} at {int(_sign(job)[0] or 0):,}" for job in jobs[:MOST_SHOWN]]
        at += [f"{len(jobs) - MOST_SHOWN:,} more"] if len(jobs) > MOST_SHOWN else []
        where = f"; {', '.join(at)} of {self._target():,} updates" if at else ""
        screen.update(f"{ended:,} of {count:,} trials ended{where}", ended / count)


def _sign(job: Job) -> Sign:
    """What shows that a run goes on: its last checkpoint and its reports."""
    run = trial_folder(Path(job.folder), job.number) / "run"
    checkpoints, reports = run / "checkpoints", run / JSON_LINES
    names = [path.name for path in checkpoints.iterdir() if path.name.isdigit()] if checkpoints.is_dir() else []
    return max(names, default=""), reports.stat().st_size if reports.is_file() else 0


def train_trial(job: Job) -> Status:
    """Begin or continue the run of a trial, train it for a number of updates, and return how it stands."""
    folder = trial_folder(Path(job.folder), job.number)
    try:
        run = _run_of(job, folder)
        for _ in run.stream(job.until):
            pass
        return Status("complete" if run.finished else "standing", run.done)
    except Exception as error:  # whatever it is: a row of the table, and the other trials go on
        update = max(Checkpoints(folder / "run" / "checkpoints", 1).updates(), default=0)
        if isinstance(error, DivergenceError):
            return Status("diverged", update, str(error))
        traceback.print_exc()
        return Status(
            "failed", update, str(error) if isinstance(error, TidelogError) else f"{type(error).__name__}: {error}"
        )


def _run_of(job: Job, folder: Path) -> Run:
    """Return the trial's run where it stands, or a new one."""
    for module in job.modules:
        load_plugin(module, "the sweep")
    plan = Plan.read(Path(job.folder))
    trial, out = plan.trials[job.number], folder / "run"
    log = _same_log(msgspec.json.encode(plan.origin), plan.fingerprint)
    tidy(folder)
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            check_unlocked(out)
            break
        except CheckpointError:
            if time.monotonic() > until:
                raise
            time.sleep(POLL_SECONDS)
    if Checkpoints(out / "checkpoints", 1).updates():
        return load_run(out, log, vmap=plan.options.vmap)
    algorithm = from_config(algorithm_class(trial.algorithm), trial.config)
    options = {**msgspec.structs.asdict(plan.options), "data_share": trial.data_share}
    return fit(algorithm, log, out=out, overwrite=(out / RUN).exists(), train=False, **options)


@lru_cache(maxsize=1)  # a process trains one trial after another, most often from the same log
def _same_log(origin: bytes, fingerprint: str) -> Log | Interactions:
    log = reopen_any(msgspec.json.decode(origin))
    if log.fingerprint() != fingerprint:
        raise LogError(
            f"the log has fingerprint {log.fingerprint()[:12]}",
            f"{fingerprint[:12]}: its content has changed since the sweep began",
            "restore it, and resume the sweep",
        )
    return log


# The report page of a sweep: all trials, what halving decided, and the judgement of all complete trials at once.


def write_page(sweep: Sweep, out: str | Path | None = None) -> Path:
    """Write the report page of a sweep, by default into its folder, and return its path; replaces an older report."""
    target = sweep.folder / REPORT if out is None else Path(out)
    check_target(target)
    write_file(target, sweep_page(sweep).encode(), ConfigError)
    return target


def sweep_page(sweep: Sweep) -> str:
    """The page as text."""
    options, count = sweep.plan.options, len(sweep.plan.trials)
    seeds = f"{len(options.seeds):,} seed{'' if len(options.seeds) == 1 else 's'}"
    lead = f"{count:,} trials of {seeds} and up to {options.steps:,} updates."
    judged = _judgement(sweep)
    trials = paragraph(sweep.caution, "short") + table(sweep.head, sweep.rows(), "All trials", named=True)
    reasons = [f"trial {row['trial']}, {row['state']}: {row['reason']}" for row in sweep.table if row["reason"]]
    parts = {"judgement": ("Judgement", judged), "trials": ("Trials", trials)}
    if sweep.plan.halving is not None:
        parts["halving"] = ("Halving", _decisions(sweep))
    if reasons:
        parts["failures"] = ("Diverged and failed trials", bullets(reasons))
    sections = [section(title, body, anchor) for anchor, (title, body) in parts.items()]
    return page(
        f"Sweep {sweep.folder.name}", lead, sections, REPORT_KIND, [(name, one[0]) for name, one in parts.items()]
    )


def judgement_of(sweep: Sweep) -> SavedVerdict | None:
    """Return a verdict of the newest judgement that holds for all complete trials at once; None without one."""
    complete = sweep.complete()
    saved = [one for trial in complete for one in read_verdicts(sweep.run_folder(trial) / FOLDER)]
    covering = [one for one in saved if (1 if one.together is None else len(one.together.rows)) >= len(complete)]
    return max(covering, key=lambda one: one.date, default=None)


def _judgement(sweep: Sweep) -> str:
    newest = judgement_of(sweep)
    if newest is None:
        nobody = "No judgement holds for all complete trials at once, so none of them is shown to be better than the "
        line = sweep.judge_command
        more = "" if line is None else " This command judges them, with intervals that hold for all of them:"
        text = f"{nobody}decisions of the log.{more}"
        return paragraph(text, "short") + ("" if line is None else command(line))
    if newest.together is None:
        return paragraph(f"{newest.verdict.decision}: {newest.verdict.advice}", "short")
    rows = []
    for row in newest.together.rows:  # the numbers of an unsupported policy are guesses outside the log
        known = [row.decision != "unsupported" and not math.isnan(value) for value in row.difference]
        numbers = zip(row.difference, known, strict=True)
        shown = (three_digits(value, sign=True) if is_known else "unknown" for value, is_known in numbers)
        rows.append([row.name, row.decision, *shown])
    head = ("policy", "verdict", "difference from the behaviour policy", "low", "high")
    caption = f"Judged at once; the intervals hold for all of them with {percent(newest.together.level)}"
    return paragraph(newest.together.answer.text, "short") + table(head, rows, caption, named=True)


def _decisions(sweep: Sweep) -> str:
    rows = []
    for one in sweep.decisions:
        promoted = ", ".join(map(str, one.promoted)) or "none"
        values = [
            f"{trial}: {'none' if value is None else f'{value:.4g}'}"
            for trial, value in zip(one.compared, one.values, strict=True)
        ]
        rows.append([f"{one.step:,}", str(len(one.compared)), promoted, ", ".join(values)])
    text = f"At each step the trials are compared by {sweep.metric}, the mean over their seeds; ties go by number."
    return paragraph(text) + table(("step", "compared", "go on", "values by trial"), rows, "Decisions", named=True)
