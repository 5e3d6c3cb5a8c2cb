"""Read run folders for the report, and reopen their logs; invalid content is an error with its file and line.

A report is also possible without the logs.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from tidelog.data.log import Log
from tidelog.data.sources.files import several_as_text, source_text
from tidelog.errors import CheckpointError, ConfigError, LogError, TidelogError
from tidelog.ope.verdict.verdict_store import SavedVerdict, read_verdicts
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.interactions.readers import reopen_any
from tidelog.schema import Finite, decode_file
from tidelog.sinks import JSON_LINES, read_rows
from tidelog.training.engine.log_streaming import is_mapped
from tidelog.training.runs.checkpoints import Checkpoints
from tidelog.training.runs.record import Record
from tidelog.types import Catalogue

Values = np.ndarray[Any, Any]
_MOST_NAMED = 2  # numbers in the name of one algorithm of a population


Returns = Annotated[list[Finite], msgspec.Meta(min_length=1)]


class EvaluationFile(msgspec.Struct):
    """The file of an evaluation, as far as reports read it."""

    env: str
    sampled: bool
    returns: Annotated[list[Returns], msgspec.Meta(min_length=1)]  # of each member


@dataclass(frozen=True, eq=False)
class EvaluationReturns:
    """Returns of one evaluation, one row per member."""

    env: str
    sampled: bool
    returns: tuple[Values, ...]  # [episodes] per member

    @property
    def name(self) -> str:
        """The environment, and whether actions were sampled."""
        return f"{self.env}, {'sampled' if self.sampled else 'deterministic'}"


@dataclass(frozen=True, eq=False)
class SavedRun:
    """One run folder."""

    path: Path
    name: str  # unique in the report
    record: Record
    rows: list[dict[str, Any]]
    evaluations: tuple[EvaluationReturns, ...]
    verdicts: tuple[SavedVerdict, ...]  # the newest first
    checkpoints: list[int]  # updates of the checkpoints
    subject: SavedVerdict | None = None  # what the page is about; None: what is recommended

    @property
    def update(self) -> int:
        """Update of the last report."""
        return int(max(row["update"] for row in self.rows))

    @property
    def unit(self) -> str:
        """The unit of the run's steps: updates over a log, decisions in an environment."""
        return "updates" if self.record.environment is None else "decisions"

    @property
    def done(self) -> int:
        """Steps of each member at the last report."""
        return self.update if self.unit == "updates" else int(max(row.get("decisions", 0) for row in self.rows))

    @property
    def has_log(self) -> bool:
        """Whether the run learnt from a log, alone or before an environment."""
        return self.record.data.fingerprint is not None

    def label(self, config: int) -> str:
        """Name of one algorithm of a population, by its differing settings; the run's name if it has one algorithm."""
        configs = self.record.configs
        if len(configs) == 1:
            return self.name
        mine = configs[config]
        differs = [f"{key} {plain(value)}" for key, value in mine.items() if any(one[key] != value for one in configs)]
        suffix = ", ".join(differs) if 0 < len(differs) <= _MOST_NAMED else str(config)
        return f"{self.name} [{suffix}]"


def ranks(run: SavedRun) -> bool:
    """Whether a run's policies rank items."""
    return isinstance(run.record.spec.action, Catalogue)


def read_runs(folders: Sequence[str | Path]) -> list[SavedRun]:
    """Read run folders, in this order; ConfigError if there is none, or one of them twice."""
    paths = [Path(folder) for folder in folders]
    if not paths:
        raise ConfigError("no run folder: expected at least one. fix: name a run folder")
    absolute = [path.resolve() for path in paths]
    for place, path in enumerate(absolute):
        if path in absolute[:place]:
            raise ConfigError(f"{paths[place]} is named twice: expected each run once. fix: remove one")
    return [_read(path, name) for path, name in zip(paths, _names(absolute), strict=True)]


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, and as many parts before it as make the names unique."""
    counts = range(1, max(len(path.parts) for path in paths) + 1)
    names = (["/".join(path.parts[-parts:]) for path in paths] for parts in counts)
    return next(some for some in names if len(set(some)) == len(some))  # whole paths are all different


def _read(path: Path, name: str) -> SavedRun:
    record = _checked_record(path, Record.read(path))
    members = len(record.configs) * len(record.options.seeds)
    checkpoints = Checkpoints(path / "checkpoints", 1)
    file = path / JSON_LINES
    rows = _checked_rows(file, read_rows(file, checkpoints.metrics().get(JSON_LINES, 0)), members)
    if not rows:
        raise ConfigError(
            f"{path} has no metrics yet, so there is nothing to show: its first report is at update "
            f"{min(record.options.every, record.options.steps):,}. fix: continue with "
            f"`{record.resume_command(path)}`"
        )
    evaluations = tuple(_played(file) for file in sorted((path / "evaluations").glob("*.json")))
    verdicts = read_verdicts(path / "verdicts")
    return SavedRun(path, name, record, rows, evaluations, verdicts, checkpoints.updates())


def _checked_record(path: Path, record: Record) -> Record:
    origin = record.data.origin
    in_environment = record.environment is not None and not record.is_finetuned
    if (record.data.fingerprint is None and not in_environment) or (
        origin is not None and not {"source", "columns"} <= set(origin)
    ):
        raise CheckpointError(
            f"{path / 'run.json'} does not name the log that the run learnt from. fix: restore the file"
        )
    return record


def _checked_rows(path: Path, rows: list[dict[str, Any]], members: int) -> list[dict[str, Any]]:
    for line, row in enumerate(rows, 1):
        if row["member"] >= members:
            raise CheckpointError(
                f"{path}, line {line}: member = {row['member']}: expected a number below {members}, the number of the "
                "run's members. fix: remove that line"
            )
    return rows


def _played(path: Path) -> EvaluationReturns:
    where = f"{path} is not an evaluation, or it is damaged"
    file = decode_file(path, EvaluationFile, fix="remove it and evaluate the run again", where=where)
    return EvaluationReturns(file.env, file.sampled, tuple(np.asarray(one, np.float64) for one in file.returns))


def plain(value: Any) -> str:
    """A setting as readable text."""
    if isinstance(value, Mapping) and set(value) == {"own"}:
        return f"{value['own']} (your own)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {plain(item)}" for name, item in value.items()) or "none"
    return str(value)


def quoted(path: Path) -> str:
    """A path, quoted for a shell command."""
    return shlex.quote(str(path))


def evaluate_command(run: SavedRun) -> str:
    """The command that plays a run's policies in its environment, or in one that the reader names."""
    data = run.record.data
    name = shlex.quote(data.environment) if data.environment is not None and data.named else "NAME"
    return f"tidelog evaluate {quoted(run.path)} --env {name}"


class LogSource(NamedTuple):
    """A log, or the reason why there is none."""

    log: Log | Interactions | None
    reason: str


def logs_of(runs: Sequence[SavedRun], log: Log | Interactions | None = None) -> dict[str, LogSource]:
    """Logs by fingerprint, each once; `log` replaces the run's source, LogError if no run learnt from it."""
    logs: dict[str, LogSource] = {}
    if log is not None:
        mine = [run for run in runs if _same(log, run.record)]
        if not mine:
            other = next((run for run in runs if run.has_log), None)
            theirs = (
                "they learnt in environments"
                if other is None
                else (f"the log of {other.path} had {other.record.data.steps:,} and {other.record.data.episodes:,}")
            )
            raise LogError(
                f"no run of the report learnt from this log of {log.steps:,} steps, {len(log.episodes):,} episodes: "
                f"{theirs}. fix: omit the log, or pass the run's own"
            )
        logs[fingerprint(mine[0])] = LogSource(log, "")
    for run in runs:
        if not run.has_log:
            continue
        mark = fingerprint(run)
        if mark not in logs or logs[mark].log is None:
            logs[mark] = _reopened(run.record)
    return logs


def fingerprint(run: SavedRun) -> str:
    """Fingerprint of a run's log."""
    return str(run.record.data.fingerprint)


def source(record: Record, *, short: bool = False) -> str:
    """Source of a run's log, as text: its files, and which part of them; `short` leaves out the folder."""
    origin = record.data.origin
    if record.data.fingerprint is None:
        return f"the environment {record.environment}"
    if origin is None:
        return "a log in memory"
    files = source_text(origin)
    return ", ".join([file_name(files) if short else files, *map(_part, origin.get("parts", ()))])


def file_name(path: str) -> str:
    """The last part of a path, or of a text that begins with one."""
    return Path(path).name or path


def _part(part: Mapping[str, Any]) -> str:
    """A part of a log, as its origin describes it."""
    if "split" in part:
        fraction, seed = part["split"]
        return f"the {('first', 'second')[part['part']]} part of its split ({fraction:g}, seed {seed})"
    return f"{len(part['episodes']):,} of its episodes" if "episodes" in part else "a part of it"


def _reopened(record: Record) -> LogSource:
    origin: Mapping[str, Any] | None = record.data.origin
    if origin is None:
        return LogSource(
            None,
            "The run's log was in memory only and cannot be reopened. fix: pass it with --data (in Python log=...).",
        )
    source = origin["source"]
    paths = [Path(str(one)) for one in (source if isinstance(source, list) else [source])]
    gone = [path for path in paths if path.is_absolute() and not path.exists()]
    if gone:
        return LogSource(None, f"The run's log is no longer at {several_as_text(map(str, gone))}.")
    try:
        log = reopen_any(origin)
    except TidelogError as error:
        return LogSource(None, f"The run's log cannot be reopened: {error}")
    if _same(log, record):
        return LogSource(log, "")
    return LogSource(None, f"The log at {source_text(origin)} is not the run's log.")


def _same(log: Log | Interactions, record: Record) -> bool:
    """Whether this is the run's log; for a log that stays on disk only the size is compared."""
    if (log.steps, len(log.episodes)) != (record.data.steps, record.data.episodes):
        return False
    return (isinstance(log, Log) and is_mapped(log)) or log.fingerprint() == record.data.fingerprint
