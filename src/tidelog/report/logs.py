"""Reopen the logs of runs; a report is also possible without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.data.log import Log
from tidelog.errors import LogError, TidelogError
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.interactions.reopen import reopen_any
from tidelog.report.saved import SavedRun
from tidelog.training.engine.log_streaming import is_mapped
from tidelog.training.runs.record import Record


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
            raise LogError(
                f"no run of the report learnt from this log of {log.steps:,} steps, {len(log.episodes):,} episodes: "
                f"the log of {runs[0].path} had {runs[0].record.data['steps']:,} and "
                f"{runs[0].record.data['episodes']:,}. fix: omit the log, or pass the run's own"
            )
        logs[fingerprint(mine[0])] = LogSource(log, "")
    for run in runs:
        mark = fingerprint(run)
        if mark not in logs or logs[mark].log is None:
            logs[mark] = _reopened(run.record)
    return logs


def fingerprint(run: SavedRun) -> str:
    """Fingerprint of a run's log."""
    return str(run.record.data["fingerprint"])


def source(record: Record) -> str:
    """Source of a run's log, as text."""
    origin = record.data["origin"]
    return "a log in memory" if origin is None else str(origin["source"])


def _reopened(record: Record) -> LogSource:
    origin: Mapping[str, Any] | None = record.data["origin"]
    if origin is None:
        return LogSource(
            None,
            "The run's log was in memory only and cannot be reopened. fix: pass it with --log (in Python log=...).",
        )
    path = Path(str(origin["source"]))
    if path.is_absolute() and not path.exists():
        return LogSource(None, f"The run's log is no longer at {path}.")
    try:
        log = reopen_any(origin)
    except TidelogError as error:
        return LogSource(None, f"The run's log cannot be reopened: {error}")
    return LogSource(log, "") if _same(log, record) else LogSource(None, f"The log at {path} is not the run's log.")


def _same(log: Log | Interactions, record: Record) -> bool:
    """Whether this is the run's log; for a log that stays on disk only the size is compared."""
    if (log.steps, len(log.episodes)) != (record.data["steps"], record.data["episodes"]):
        return False
    return (isinstance(log, Log) and is_mapped(log)) or log.fingerprint() == record.data["fingerprint"]
