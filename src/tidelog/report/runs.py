"""What a report reads from saved runs, and its part about settings."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from tidelog._text import count_of, three_digits
from tidelog.algorithms.hyperparameters import to_config
from tidelog.algorithms.short_form import ALGORITHMS
from tidelog.data.log import Log
from tidelog.data.raw import several_as_text, source_text
from tidelog.errors import CheckpointError, ConfigError, LogError, TidelogError
from tidelog.ope.verdict import SavedVerdict, read_verdicts
from tidelog.recommend.interactions import Interactions, text
from tidelog.recommend.read import reopen_any
from tidelog.report.data_page import log_tiles, problem
from tidelog.report.frame import bullets, command, definitions, folded, heading, paragraph, section, table, tiles
from tidelog.schema import Finite, decode_file
from tidelog.sinks import JSON_LINES, read_rows
from tidelog.training.metrics import Selection
from tidelog.training.record import Checkpoints, Record
from tidelog.training.stores import is_mapped
from tidelog.types import Catalogue

# Read run folders for the report, and reopen their logs; invalid content is an error with its file and line.
#
# A report is also possible without the logs.

_MOST_NAMED = 2  # numbers in the name of one algorithm of a population


Returns = Annotated[list[Finite], msgspec.Meta(min_length=1)]


class EvaluationReturns(msgspec.Struct):
    """The file of an evaluation, as far as reports read it."""

    env: str
    sampled: bool
    returns: Annotated[list[Returns], msgspec.Meta(min_length=1)]  # of each member

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
        raise ConfigError("no run folder", "at least one", "name a run folder")
    absolute = [path.resolve() for path in paths]
    for position, path in enumerate(absolute):
        if path in absolute[:position]:
            raise ConfigError(f"{paths[position]} is named twice", "each run once", "remove one")
    return [_read(path, name) for path, name in zip(paths, _names(absolute), strict=True)]


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, and as many parts before it as make the names unique."""
    counts = range(1, max(len(path.parts) for path in paths) + 1)
    names = (["/".join(path.parts[-parts:]) for path in paths] for parts in counts)
    return next(some for some in names if len(set(some)) == len(some))  # whole paths are all different


def _read(path: Path, name: str) -> SavedRun:
    record = Record.read(path)
    origin, in_environment = record.data.origin, record.environment is not None and not record.is_finetuned
    unnamed = record.data.fingerprint is None and not in_environment
    if unnamed or (origin is not None and not {"source", "columns"} <= set(origin)):
        raise CheckpointError(
            f"{path / 'run.json'} does not name the log that the run learnt from", fix="restore the file"
        )
    checkpoints, file = Checkpoints(path / "checkpoints", 1), path / JSON_LINES
    rows, members = read_rows(file, checkpoints.metrics().get(JSON_LINES, 0)), len(record.configs)
    members *= len(record.options.seeds)
    for line, row in enumerate(rows, 1):
        if row["member"] >= members:
            raise CheckpointError(
                f"{file}, line {line}: member = {row['member']}",
                f"a number below {members}, the number of the run's members",
                "remove that line",
            )
    if not rows:
        raise ConfigError(
            f"{path} has no metrics yet, so there is nothing to show: its first report is at update "
            f"{min(record.options.eval_every, record.options.steps):,}",
            fix=f"continue with `{record.resume_command(path)}`",
        )
    evaluations = tuple(map(read_evaluation, sorted((path / "evaluations").glob("*.json"))))
    return SavedRun(path, name, record, rows, evaluations, read_verdicts(path / "verdicts"), checkpoints.updates())


def read_evaluation(path: Path) -> EvaluationReturns:
    """Read the file of an evaluation; CheckpointError if it is damaged."""
    where = f"{path} is not an evaluation, or it is damaged"
    return decode_file(path, EvaluationReturns, fix="remove it and evaluate the run again", where=where)


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
            theirs = "they learnt in environments"
            if other is not None:
                theirs = f"the log of {other.path} had {other.record.data.steps:,} and {other.record.data.episodes:,}"
            raise LogError(
                f"no run of the report learnt from this log of {log.steps:,} steps, {len(log.episodes):,} "
                f"episodes: {theirs}",
                fix="omit the log, or pass the run's own",
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


# Data, hyper-parameters, versions and checkpoints of runs.

_MOST_PROBLEMS = 20
_MOST_OPEN = 3  # warnings that are not folded


def data(runs: Sequence[SavedRun], logs: Mapping[str, LogSource]) -> str:
    """The section about each log: its size and data checks."""
    body = []
    for mark, found in logs.items():
        whose = [run for run in runs if fingerprint(run) == mark]
        body += [heading(", ".join(run.name for run in whose))] if len(logs) > 1 else []
        record = whose[0].record
        steps, episodes = ("events", "sessions") if ranks(whose[0]) else ("steps", "episodes")
        size = f"{record.data.steps:,} {steps}, {record.data.episodes:,} {episodes}, from {source(record)}."
        body.append(paragraph(size) + definitions([("fingerprint", mark)]))
        body.append(_data_checks(found.log) if found.log is not None else paragraph(found.reason))
    return section("Data", "".join(body), "data")


def _data_checks(log: Log | Interactions) -> str:
    warnings = [one for one in log.report.problems if one.level != "note"]
    summary = f"Data checks: {count_of(len(warnings), 'warning')}, {count_of(len(log.report.notes), 'note')}."
    summary += f" The first {_MOST_PROBLEMS} are shown." if len(warnings) > _MOST_PROBLEMS else ""
    boxes = [problem(one) for one in warnings[:_MOST_PROBLEMS]]
    problems = paragraph(summary) + "".join(boxes[:_MOST_OPEN])
    if len(boxes) > _MOST_OPEN:
        problems += folded(f"{len(boxes) - _MOST_OPEN:,} more warnings", "".join(boxes[_MOST_OPEN:]))
    return _numbers(log, problems) if isinstance(log, Log) else problems + bullets(text(log).splitlines())


def _numbers(log: Log, problems: str) -> str:
    statistics = log.statistics()
    rows = [
        (name, *(_short(measures[key]) for key in ("min", "mean", "median", "max")))
        for name, measures in (("length of an episode", statistics.lengths), ("return", statistics.returns),
                               ("reward of a step", statistics.rewards), ("propensity", statistics.propensities))
        if measures is not None
    ]  # fmt: skip
    features = [
        (name, *(three_digits(m[key]) for key in ("min", "mean", "std", "max")))
        for name, m in statistics.features.items()
    ]
    body = [log_tiles(statistics), problems]
    body.append(table(("", "min", "mean", "median", "max"), rows, "The log in numbers", named=True))
    if features:
        head = ("feature", "min", "mean", "std", "max")
        wide = table(head, features[:_MOST_FEATURES], "Numeric features, over all stored observations", named=True)
        body.append(folded(f"{len(features):,} numeric features", wide))
    hidden = len(features) - _MOST_FEATURES
    return "".join(body) + (paragraph(f"{hidden:,} more features are not listed.") if hidden > 0 else "")


_MOST_FEATURES = 40


def _short(value: Any) -> str:
    return ", ".join(map(_short, value)) if isinstance(value, list) else three_digits(value)


def facts(run: SavedRun) -> str:
    """Tiles with the size of a run and of its log."""
    record = run.record
    shown = [
        (record.algorithm, "algorithm"),
        (f"{len(record.options.seeds):,}", "seeds"),
        (f"{run.done:,}", f"of {record.options.steps:,} {run.unit}"),
    ]
    if run.has_log:
        shown.append((f"{record.data.episodes:,}", "sessions in the log" if ranks(run) else "episodes in the log"))
        shown.append((f"{record.data.steps:,}", "events in the log" if ranks(run) else "steps in the log"))
        held = (f"{record.options.held_out:.0%}", "of the time held out")
        shown.append(held if ranks(run) else (f"{len(record.held_out):,}", "episodes held out"))
    return tiles(shown)


def settings(runs: Sequence[SavedRun]) -> str:
    """The section about each run: its hyper-parameters with their defaults, and its training options."""
    body = []
    if sum(len(run.record.configs) for run in runs) > 1:
        body.append(_differences(runs))
    for run in runs:
        fields = dataclasses.fields(run.record.options)
        other = [one.name for one in fields if run.record.environment is None and "fit" not in one.metadata["verbs"]]
        options = [(name, value) for name, value in _trained(run, other) if value != "none"]
        trained = table(("setting", "value"), options, f"How {run.name} was trained", named=True)
        body.append(folded(f"{run.name}: hyper-parameters, and how it was trained", _hyper(run) + trained))
    return section("Settings", "".join(body), "settings", printed=len(runs) > 1)


def _differences(runs: Sequence[SavedRun]) -> str:
    """Table of the fields whose values differ between the algorithms that have them."""
    columns = {
        run.label(position): {"algorithm": run.record.algorithm, **config, **dict(_trained(run))}
        for run in runs
        for position, config in enumerate(run.record.configs)
    }
    names = dict.fromkeys(name for values in columns.values() for name in values)
    rows = []
    for name in names:
        values_of = {label: plain(values[name]) for label, values in columns.items() if name in values}
        if len(set(values_of.values())) > 1:
            rows.append((name, *(values_of.get(label, "has none") for label in columns)))
    if not rows:
        return paragraph("All common settings are equal.")
    return table(("", *columns), rows, "Common settings that differ", named=True)


def _hyper(run: SavedRun) -> str:
    """The hyper-parameters of the first algorithm that are set; changed ones are marked, also in the text."""
    config, name_of = run.record.configs[0], run.record.algorithm
    defaults = to_config(ALGORITHMS[name_of]()) if name_of in ALGORITHMS else {}
    rows: list[tuple[str, str, str]] = []
    marked: list[int] = []
    for name, value in config.items():
        known = name in defaults
        changed = known and defaults[name] != value
        if value is None and not changed:
            continue
        marked += [len(rows)] if changed else []
        default = plain(defaults[name]) if known else "unknown"
        rows.append((name, plain(value), default if not changed else f"{default} (changed)"))
    more = len(run.record.configs) - 1
    caption = f"{run.record.algorithm}: hyper-parameters" + (f" of the first of {more + 1} algorithms" if more else "")
    return table(("hyper-parameter", "value", "default"), rows, caption, marked=marked, named=True)


def _trained(run: SavedRun, without: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    for field in dataclasses.fields(run.record.options):
        if field.name not in without:
            yield field.name.replace("_", " "), plain(getattr(run.record.options, field.name))


def machine(runs: Sequence[SavedRun]) -> str:
    """The section about versions, machine and checkpoints."""
    names = list(dict.fromkeys(name for run in runs for name in run.record.machine))
    rows = [(name, *(plain(run.record.machine.get(name)) for run in runs)) for name in names]
    versions = table(("", *(run.name for run in runs)), rows, "Versions and machine", named=True)
    versions = folded("Versions and machine", versions)
    return section("Versions, machine and checkpoints", "".join(map(_state, runs)) + versions, "machine", printed=False)


def _state(run: SavedRun) -> str:
    steps, saved = run.record.options.steps, ", ".join(f"{update:,}" for update in run.checkpoints)
    where = f"{run.name}: last report at {run.unit[:-1]} {run.done:,} of {steps:,}; "
    where += f"complete checkpoints at {saved}." if saved else "no complete checkpoint."
    try:
        memory = Checkpoints(run.path / "checkpoints", 1).memory() if run.checkpoints else None
    except TidelogError as error:
        return paragraph(f"{where} The last one cannot be read: {error}")
    selection = Selection(run.record.options, memory)
    best = selection.best_member()
    if best is not None:
        where += f" Best {run.record.options.best_metric}: {three_digits(selection.best[best])}, member {best}."
    if run.done >= steps:
        return paragraph(where + " It is complete.")
    if selection.exhausted:
        return paragraph(where + " It stopped early, because its reports no longer improved.")
    return paragraph(where + " Continue with:") + command(run.record.resume_command(run.path))
