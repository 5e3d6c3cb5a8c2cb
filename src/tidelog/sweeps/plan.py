"""The files of a sweep: `sweep.json`, which freezes its trials, the decisions of halving, and how each trial stands.

sweep.json                  trials and settings, written before the first trial and never changed
decisions.json              the rungs that are decided, in order
log/                        the log, if it was in memory only
trials/0003/run/            the run folder of a trial
trials/0003/attempt.json    the number of its newest attempt
trials/0003/status.json     how it stands, written by the attempt at its end
trials/0003/output.txt      what its processes printed
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgspec

from tidelog._files import check_own, digest, parse_saved, read_regular, write_file, write_json
from tidelog.errors import CheckpointError, ConfigError
from tidelog.schema import Count, Finite, Share, decode_file, typed
from tidelog.sinks import JSON_LINES, read_rows
from tidelog.sweeps.job import trial_folder
from tidelog.training.metrics import direction
from tidelog.training.options import Scale

FILE, SCHEMA = "sweep.json", 1
DECISIONS, ATTEMPT, STATUS, LOG, REPORT = "decisions.json", "attempt.json", "status.json", "log", "report.html"
State = Literal["standing", "complete", "diverged", "failed"]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One algorithm with its settings, and the share of the training episodes that it reads; all seeds together."""

    algorithm: str
    config: dict[str, Any]
    data_share: Share = 1.0


class FitOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of `fit` that all trials share."""

    steps: AtLeastOne
    seeds: list[int]
    every: AtLeastOne
    held_out: Share
    selection_share: Share | None
    split_seed: Count
    evaluate: dict[str, int]
    scale: Scale | None
    best: str | None
    patience: AtLeastOne | None
    warm_start: dict[str, str] | None
    save_seconds: Finite
    keep: AtLeastOne
    together: bool | None

    def keywords(self, data_share: float) -> dict[str, Any]:
        """Return the keyword arguments of `fit`."""
        return {**msgspec.structs.asdict(self), "data_share": data_share}


class Halving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Synchronous successive halving: at each rung the best one in `factor` trials go on."""

    factor: Annotated[int, msgspec.Meta(ge=2)]
    steps: AtLeastOne  # of the first rung; each further rung has `factor` times as many


class _PlanFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    schema: int
    trials: Annotated[list[Trial], msgspec.Meta(min_length=1)]
    options: FitOptions
    halving: Halving | None
    origin: dict[str, Any]
    fingerprint: str
    cpus: AtLeastOne
    stall_seconds: Finite


class Plan(msgspec.Struct, frozen=True):
    """The content of `sweep.json`."""

    trials: list[Trial]
    options: FitOptions
    halving: Halving | None
    origin: dict[str, Any]  # of the log, as every worker opens it
    fingerprint: str  # of the log
    cpus: int  # of each trial: the last bits depend on them
    stall_seconds: float

    def write(self, folder: Path) -> None:
        """Write `sweep.json`."""
        content = _PlanFile(schema=SCHEMA, **msgspec.structs.asdict(self))
        body = msgspec.to_builtins(content)
        text = json.dumps({**body, "sha256": digest(body)}, indent=1, allow_nan=False)
        write_file(folder / FILE, text.encode(), ConfigError, parents=True)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read `sweep.json`; CheckpointError if it is missing, damaged or of another schema."""
        path = folder / FILE
        if not path.is_file():
            raise CheckpointError(f"{folder} is no sweep: it has no {FILE}", fix="name the folder of a sweep")
        check_own(folder)
        try:
            body = parse_saved(read_regular(path))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}", fix="restore the file") from error
        if not isinstance(body, dict) or body.get("schema") != SCHEMA:
            found = body.get("schema") if isinstance(body, dict) else None
            raise CheckpointError(
                f"{path} has schema {found!r}", f"{SCHEMA}", "use the version of tidelog that wrote it"
            )
        if body.pop("sha256", None) != digest(body):
            raise CheckpointError(f"{path} was changed after it was written: its checksum differs", fix="restore it")
        file = typed(body, _PlanFile, str(path))
        fields = {name: getattr(file, name) for name in cls.__struct_fields__}
        return cls(**fields)

    def rungs(self) -> list[int]:
        """Return the steps at which trials are compared and some of them stop."""
        rungs: list[int] = []
        step = self.options.steps if self.halving is None else self.halving.steps
        while self.halving is not None and step < self.options.steps:
            rungs.append(step)
            step *= self.halving.factor
        return rungs


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was decided at a rung."""

    step: Count
    metric: str
    values: list[Finite | None]  # of each trial that was compared; None: diverged, failed or not finite
    compared: list[Count]  # trials
    promoted: list[Count]  # trials that go on, in the order of their indices


class Status(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a trial stands after an attempt."""

    attempt: Count
    state: State
    update: Count
    reason: str = ""


class _Attempt(msgspec.Struct, forbid_unknown_fields=True):
    attempt: Count


def newest_attempt(folder: Path) -> int:
    """Return the number of the newest attempt at a trial, 0 without one."""
    path = folder / ATTEMPT
    return decode_file(path, _Attempt).attempt if path.is_file() else 0


def begin_attempt(folder: Path) -> int:
    """Write and return the number of a new attempt: from now on no older one saves."""
    attempt = newest_attempt(folder) + 1
    write_json(folder / ATTEMPT, {"attempt": attempt})
    return attempt


def read_status(folder: Path) -> Status | None:
    """Return how a trial stands, None before the end of its first attempt."""
    path = folder / STATUS
    return decode_file(path, Status) if path.is_file() else None


def write_status(folder: Path, status: Status) -> None:
    """Write how a trial stands."""
    write_json(folder / STATUS, msgspec.to_builtins(status))


def read_decisions(folder: Path) -> list[Decision]:
    """Return the decided rungs of a sweep, in order."""
    path = folder / DECISIONS
    return decode_file(path, list[Decision]) if path.is_file() else []


def append_decision(folder: Path, decision: Decision) -> None:
    """Append a decision; it is durable before any trial goes on."""
    write_json(folder / DECISIONS, [msgspec.to_builtins(one) for one in [*read_decisions(folder), decision]])


def values_at(folder: Path, metric: str, step: int | None = None) -> list[float]:
    """Return a metric of each seed of a trial's run, at the report of a step or at the last one; [] without it."""
    path = folder / "run" / JSON_LINES
    rows = [row for row in read_rows(path) if metric in row] if path.is_file() else []
    last = max((row["update"] for row in rows), default=0) if step is None else step
    return [float(row[metric]) for row in rows if row["update"] == last]


def decide(folder: Path, plan: Plan, step: int, compared: list[int], out: set[int]) -> Decision:
    """Decide a rung: the best one in `factor` of the compared trials go on, at least one; ties by index.

    `out` are those of them that diverged or failed. The value of a trial is the mean of its seeds.
    """
    name, sign = direction(plan.options.best)
    factor = 2 if plan.halving is None else plan.halving.factor
    values: dict[int, float | None] = {}
    for trial in compared:
        of_seeds = [] if trial in out else values_at(trial_folder(folder, trial), str(name), step)
        mean = sum(of_seeds) / len(of_seeds) if of_seeds else math.nan
        values[trial] = mean if math.isfinite(mean) else None
    ranked = sorted((-sign * value, trial) for trial, value in values.items() if value is not None)
    promoted = sorted(trial for _, trial in ranked[: max(1, len(compared) // factor)])
    return Decision(step, str(name), [values[trial] for trial in compared], compared, promoted)
