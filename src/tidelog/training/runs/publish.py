"""A run in experiment trackers: the facts that they show, and verdicts that come after training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tidelog.errors import ConfigError
from tidelog.sinks import JSON_LINES, MetricsRow, RunFacts, Tracker, Value, flat, read_rows
from tidelog.training.runs.record import Record


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
        raise ConfigError(f"{file} is not a file: expected a report page. fix: tidelog report {folder} --out {file}")
    verdicts = verdict if isinstance(verdict, Mapping) else {"policy": verdict}
    facts = {name: {**one.summary, "paragraph": one.paragraph} for name, one in verdicts.items()}
    values = {name: {key: fact for key, fact in one.items() if fact not in (None, "")} for name, one in facts.items()}
    for sink in sinks:
        sink.begin(tracker_facts(record, folder, read_rows(folder / JSON_LINES)))
        try:
            sink.publish(values, file)
        finally:
            sink.close(None)
