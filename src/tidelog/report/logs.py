"""The logs behind runs, read again where that is possible; a report is also made where it is not."""

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


class Found(NamedTuple):
    """A log, or why there is none."""

    log: Log | Interactions | None
    reason: str


def logs_of(runs: Sequence[SavedRun], log: Log | Interactions | None = None) -> dict[str, Found]:
    """By fingerprint, each log once; `log` stands in for where it came from, LogError where no run learnt from it."""
    found: dict[str, Found] = {}
    if log is not None:
        mine = [run for run in runs if _same(log, run.record)]
        if not mine:
            raise LogError(
                f"no run of the report learnt from this log of {log.steps:,} steps, {len(log.episodes):,} episodes: "
                f"the log of {runs[0].path} had {runs[0].record.data['steps']:,} and "
                f"{runs[0].record.data['episodes']:,}; leave it away, or give the run's own"
            )
        found[fingerprint(mine[0])] = Found(log, "")
    for run in runs:
        mark = fingerprint(run)
        if mark not in found or found[mark].log is None:
            found[mark] = _again(run.record)
    return found


def fingerprint(run: SavedRun) -> str:
    """What the log of a run is known by."""
    return str(run.record.data["fingerprint"])


def source(record: Record) -> str:
    """Where the log of a run came from, in words."""
    origin = record.data["origin"]
    return "a log made in memory" if origin is None else str(origin["source"])


def _again(record: Record) -> Found:
    origin: Mapping[str, Any] | None = record.data["origin"]
    if origin is None:
        return Found(
            None, "The run's log was made in memory and cannot be read again: give it with --log (in Python log=...)."
        )
    path = Path(str(origin["source"]))
    if path.is_absolute() and not path.exists():
        return Found(None, f"The run's log is no longer at {path}.")
    try:
        log = reopen_any(origin)
    except TidelogError as error:
        return Found(None, f"The run's log cannot be read again: {error}")
    return Found(log, "") if _same(log, record) else Found(None, f"The log at {path} is another one than the run's.")


def _same(log: Log | Interactions, record: Record) -> bool:
    """Whether it is the log of the run; of one that stays on disk only the size is compared."""
    if (log.steps, len(log.episodes)) != (record.data["steps"], record.data["episodes"]):
        return False
    return (isinstance(log, Log) and is_mapped(log)) or log.fingerprint() == record.data["fingerprint"]
