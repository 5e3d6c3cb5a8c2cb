"""A run's verdicts on disk, and its held-out episodes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.log import Log
from tidelog.errors import CheckpointError, ConfigError, LogError
from tidelog.ope.verdict.results import Verdict
from tidelog.ope.verdict.verdicts import Verdicts
from tidelog.recommend.interactions.reopen import reopen
from tidelog.training.runs.record import Record

FOLDER = "verdicts"


def held_out_part(folder: Path, record: Record, log: Log | None = None) -> tuple[Log, str]:
    """The episodes to judge a run on, and a description of them.

    Without a log, or with the run's own log: the run's held-out episodes. With another log: all of its episodes.
    """
    if log is not None and log.fingerprint() != record.data["fingerprint"]:
        return log, f"all {len(log.episode_ids):,} episodes of the log"
    if log is None:
        log = _own_log(folder, record)
    if not record.held_out:
        raise ConfigError(
            f"{folder} held no episodes out, and a policy cannot be judged on episodes that it learnt from. fix: use "
            "a log with other episodes (--log), or train again with a share held out"
        )
    rows = np.flatnonzero(np.isin(log.episode_ids, np.asarray(record.held_out)))
    if len(rows) != len(record.held_out):
        raise LogError(
            f"only {len(rows):,} of the {len(record.held_out):,} episodes that {folder} held out are in the log"
        )
    return log.take_episodes(rows), f"the {len(rows):,} episodes that the run held out of its own log"


def store_verdict(verdict: Verdict, folder: Path, name: str) -> Path:
    """Write a verdict atomically into a run folder, under a name and the next free number."""
    number = 1
    while (path := folder / FOLDER / f"{name}-{number}.json").exists():
        number += 1
    write(verdict, path)
    return path


def write(verdict: Verdict | Verdicts, path: Path) -> None:
    """Write a verdict, or a table of several, atomically as a JSON file."""
    temporary = path.with_name(f".{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(verdict.to_json(), file, indent=1, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error}") from error


def _own_log(folder: Path, record: Record) -> Log:
    origin: Any = record.data["origin"]
    if origin is None:
        raise ConfigError(f"the log of {folder} was in memory only. fix: pass it, or another log, with --log")
    log = reopen(origin)
    if log.fingerprint() != record.data["fingerprint"]:
        raise LogError(
            f"{origin['source']} is no longer the log that {folder} was trained on: its content has changed. fix: pass "
            "the log to judge on with --log"
        )
    return log
