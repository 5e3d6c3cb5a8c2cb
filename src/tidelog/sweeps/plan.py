"""The trials of a sweep, and its files: `sweep.json`, which freezes them, the decisions of halving, how each stands.

sweep.json                  trials and settings, written before the first trial and never changed
decisions.json              the rungs that are decided, in order
log/                        the log, if it was in memory only
trials/0003/run/            the run folder of a trial
trials/0003/status.json     how it stands, after it has ended or reached a rung
trials/0003/output.txt      what its processes printed
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgspec
import numpy as np

from tidelog._files import write_file, write_json
from tidelog.algorithms.names import as_algorithms
from tidelog.errors import CheckpointError, ConfigError
from tidelog.schema import Count, Finite, Share, decode_file, renamed, typed
from tidelog.sinks import JSON_LINES, read_rows
from tidelog.sweeps.job import PLAN, trial_folder
from tidelog.training.metrics import direction
from tidelog.training.options import Scale, whole
from tidelog.training.record import read_sealed, sealed
from tidelog.types import check_seed

# Lists of settings: grids, random draws, and the settings in which trials differ.

MOST_TRIALS = 10_000


def grid(algorithm: Any, **axes: Sequence[Any]) -> list[Any]:
    """Return an algorithm with every combination of settings, for `tl.sweep`; the last axis varies fastest.

    An axis is a hyper-parameter with the list of its values: `tl.grid(tl.IQL(), temperature=(1, 3, 10))`. Raises
    ConfigError for an unknown hyper-parameter, an invalid value, and an axis without values.

    Example:
        >>> trials = tl.grid(tl.IQL(), temperature=(1.0, 3.0), hidden=((32,), (64, 64)))
        >>> [(float(one.temperature), one.hidden) for one in trials]
        [(1.0, (32,)), (1.0, (64, 64)), (3.0, (32,)), (3.0, (64, 64))]
    """
    (base,) = as_algorithms(algorithm)
    for name, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise ConfigError(f"{name} = {values!r}", "a list of values", f"write {name}=({values!r},)")
    count = math.prod(len(values) for values in axes.values())
    if count > MOST_TRIALS:
        raise ConfigError(f"the grid has {count:,} points", f"at most {MOST_TRIALS:,}", "use tl.random_search")
    return [
        dataclasses.replace(base, **dict(zip(axes, point, strict=True))) for point in itertools.product(*axes.values())
    ]


def random_search(algorithm: Any, count: int, seed: int = 0, **ranges: Sequence[Any]) -> list[Any]:
    """Return an algorithm with `count` random draws of settings, for `tl.sweep`; equal seeds give equal draws.

    A range is `(low, high)`, `(low, high, "log")` for a uniform logarithm, or a list (in square brackets) of values
    that are equally likely. Whole numbers are drawn for settings that hold them, both ends included. Raises
    ConfigError for an unknown hyper-parameter and an invalid range or value.

    Example:
        >>> trials = tl.random_search(tl.IQL(), 3, seed=0, temperature=(0.3, 30.0, "log"), hidden=[(32,), (64, 64)])
        >>> [round(float(one.temperature), 1) for one in trials]
        [5.6, 0.4, 0.3]
    """
    (base,) = as_algorithms(algorithm)
    count = whole("count", count)
    if not 1 <= count <= MOST_TRIALS:
        raise ConfigError(f"count = {count}", f"1 to {MOST_TRIALS:,} draws")
    if not ranges:
        raise ConfigError("ranges: found none", "at least one", "pass one, as in temperature=(1, 10)")
    kinds = {field.name: field.metadata.get("type") for field in dataclasses.fields(base)}
    random = np.random.default_rng(check_seed(seed))
    return [
        dataclasses.replace(base, **{name: _draw(random, name, one, kinds.get(name)) for name, one in ranges.items()})
        for _ in range(count)
    ]


def _draw(random: np.random.Generator, name: str, values: Sequence[Any], kind: Any) -> Any:
    if isinstance(values, list) and values:
        return values[int(random.integers(len(values)))]
    ends = values[:2] if isinstance(values, tuple) and len(values) in (2, 3) else ()
    numbers = [float(end) for end in ends if isinstance(end, Real) and not isinstance(end, bool)]
    logarithmic = len(values) == 3 and values[2] == "log"
    if len(numbers) != 2 or (len(values) == 3 and not logarithmic):
        raise ConfigError(
            f"{name} = {values!r}",
            "(low, high), (low, high, 'log') or a list of values",
            f"write {name}=(1, 10, 'log')",
        )
    low, high = numbers
    if not (math.isfinite(low) and math.isfinite(high) and low < high and (low > 0 or not logarithmic)):
        above = "above 0, " if logarithmic else ""
        raise ConfigError(f"{name} = {values!r}", f"finite numbers {above}the first one smaller")
    if kind is int:
        if not all(isinstance(end, Integral) for end in ends):
            raise ConfigError(f"{name} = {values!r}", "whole numbers as ends", f"write {name}=(64, 256)")
        if not logarithmic:
            return int(random.integers(int(low), int(high) + 1))
        return int(min(high, round(math.exp(random.uniform(math.log(low), math.log(high))))))
    return math.exp(random.uniform(math.log(low), math.log(high))) if logarithmic else float(random.uniform(low, high))


def differing_settings(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of the settings that are not equal in all of these configurations, in their order."""
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if any(config.get(name) != configs[0].get(name) for config in configs)]


# The files.

SCHEMA = 1  # of `sweep.json`
DECISIONS, STATUS, LOG, REPORT = "decisions.json", "status.json", "log", "report.html"
State = Literal["standing", "complete", "diverged", "failed"]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One algorithm with its settings, and the share of the training episodes that it reads; all seeds together."""

    algorithm: str
    config: dict[str, Any]
    data_share: Share = 1.0


class TrialOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `fit` that all trials share."""

    steps: AtLeastOne
    seeds: list[int]
    eval_every: AtLeastOne
    held_out: Share
    selection_share: Share | None = None
    split_seed: Count = 0
    evaluate: dict[str, int]
    scale: Scale | None = None
    best_metric: str | None = None
    patience: AtLeastOne | None = None
    warm_start: dict[str, str] | None = None
    save_seconds: Finite = 30.0
    keep_checkpoints: AtLeastOne = 3
    vmap: bool | None = None


class Halving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Synchronous successive halving: at each rung the best one in `factor` trials go on."""

    factor: Annotated[int, msgspec.Meta(ge=2)]
    steps: AtLeastOne  # of the first rung; each further rung has `factor` times as many


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `sweep.json`."""

    schema: int = SCHEMA
    trials: Annotated[list[Trial], msgspec.Meta(min_length=1)]
    options: TrialOptions
    halving: Halving | None
    origin: dict[str, Any]  # of the log, as every worker opens it
    fingerprint: str  # of the log
    cpus: AtLeastOne  # of each trial: the last bits depend on them

    def write(self, folder: Path) -> None:
        """Write `sweep.json`."""
        write_file(folder / PLAN, sealed(msgspec.to_builtins(self)), ConfigError, parents=True)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read `sweep.json`; CheckpointError if it is missing, damaged or of another schema."""
        path = folder / PLAN
        if not path.is_file():
            raise CheckpointError(f"{folder} is no sweep: it has no {PLAN}", fix="name the folder of a sweep")
        body = read_sealed(path, SCHEMA)
        if isinstance(body.get("options"), dict):
            body["options"] = renamed(body["options"], TrialOptions.__struct_fields__)
        return typed(body, cls, str(path))

    def rungs(self) -> list[int]:
        """Return the steps at which trials are compared and some of them stop."""
        rungs: list[int] = []
        step = self.options.steps if self.halving is None else self.halving.steps
        while self.halving is not None and step < self.options.steps:
            rungs.append(step)
            step *= self.halving.factor
        return rungs


class RungDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was decided at a rung."""

    step: Count
    metric: str
    values: list[Finite | None]  # of each trial that was compared; None: diverged, failed or not finite
    compared: list[Count]  # trials
    promoted: list[Count]  # trials that go on, in the order of their indices


class Status(msgspec.Struct, frozen=True):
    """How a trial stands."""

    state: State
    update: Count
    reason: str = ""


def read_status(folder: Path) -> Status | None:
    """Return how a trial stands, None before it has ended or reached a rung."""
    path = folder / STATUS
    return decode_file(path, Status) if path.is_file() else None


def write_status(folder: Path, status: Status) -> None:
    """Write how a trial stands."""
    write_json(folder / STATUS, msgspec.to_builtins(status))


def read_decisions(folder: Path) -> list[RungDecision]:
    """Return the decided rungs of a sweep, in order."""
    path = folder / DECISIONS
    return decode_file(path, list[RungDecision]) if path.is_file() else []


def append_decision(folder: Path, decision: RungDecision) -> None:
    """Append a decision; it is durable before any trial goes on."""
    write_json(folder / DECISIONS, [msgspec.to_builtins(one) for one in [*read_decisions(folder), decision]])


def values_at(folder: Path, metric: str, step: int | None = None) -> list[float]:
    """Return a metric of each seed of a trial's run, at the report of a step or at the last one; [] without it."""
    path = folder / "run" / JSON_LINES
    rows = [row for row in read_rows(path) if metric in row] if path.is_file() else []
    last = max((row["update"] for row in rows), default=0) if step is None else step
    return [float(row[metric]) for row in rows if row["update"] == last]


def decide(folder: Path, plan: Plan, step: int, compared: list[int], out: set[int]) -> RungDecision:
    """Decide a rung: the best one in `factor` of the compared trials go on, at least one; ties by index.

    `out` are those of them that diverged or failed. The value of a trial is the mean of its seeds.
    """
    name, sign = direction(plan.options.best_metric)
    factor = 2 if plan.halving is None else plan.halving.factor
    values: dict[int, float | None] = {}
    for trial in compared:
        of_seeds = [] if trial in out else values_at(trial_folder(folder, trial), str(name), step)
        mean = sum(of_seeds) / len(of_seeds) if of_seeds else math.nan
        values[trial] = mean if math.isfinite(mean) else None
    ranked = sorted((-sign * value, trial) for trial, value in values.items() if value is not None)
    promoted = sorted(trial for _, trial in ranked[: max(1, len(compared) // factor)])
    return RungDecision(step, str(name), [values[trial] for trial in compared], compared, promoted)
