"""Data, hyper-parameters, versions and checkpoints of runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidelog.algorithms.core.hyperparameters import to_config
from tidelog.algorithms.core.registry import ALGORITHMS
from tidelog.data.log import Log
from tidelog.errors import TidelogError
from tidelog.number_text import count_of, three_digits
from tidelog.recommend.interactions.log import Interactions, text
from tidelog.report.data_page import log_tiles, problem
from tidelog.report.frame import bullets, command, definitions, folded, heading, paragraph, section, table, tiles
from tidelog.report.saved import LogSource, SavedRun, fingerprint, plain, ranks, source
from tidelog.training.runs.checkpoints import Checkpoints
from tidelog.training.runs.selection import Selection

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


_HELD = {True: "of the time held out", False: "episodes held out"}


def facts(run: SavedRun) -> str:
    """Tiles with the size of a run and of its log."""
    record = run.record
    return tiles(
        [
            (record.algorithm, "algorithm"),
            (f"{len(record.options.seeds):,}", "seeds"),
            (f"{run.done:,}", f"of {record.options.steps:,} {run.unit}"),
            *(_log_facts(run) if run.has_log else []),
        ]
    )


def _log_facts(run: SavedRun) -> list[tuple[str, str]]:
    record = run.record
    return [
        (f"{record.data.episodes:,}", "sessions in the log" if ranks(run) else "episodes in the log"),
        (f"{record.data.steps:,}", "events in the log" if ranks(run) else "steps in the log"),
        (f"{record.options.held_out:.0%}" if ranks(run) else f"{len(record.held_out):,}", _HELD[ranks(run)]),
    ]


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
        run.label(place): {"algorithm": run.record.algorithm, **config, **dict(_trained(run))}
        for run in runs
        for place, config in enumerate(run.record.configs)
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
        where += f" Best {run.record.options.best}: {three_digits(selection.best[best])}, member {best}."
    if run.done >= steps:
        return paragraph(where + " It is complete.")
    if selection.exhausted:
        return paragraph(where + " It stopped early, because its reports no longer improved.")
    return paragraph(where + " Continue with:") + command(run.record.resume_command(run.path))
