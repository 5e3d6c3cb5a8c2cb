"""Verdict files: write verdicts, read them again for the report, and find the episodes that a run held out.

A file stores a histogram of the episodes' weights, but no contributions and no single weights. Letter: `B` bins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from tidelog.data.core.columns import declared_unit
from tidelog.data.log import Log
from tidelog.data.sources.files import source_text
from tidelog.disk import write_json
from tidelog.errors import CheckpointError, ConfigError, LogError
from tidelog.input_files import parse_saved, read_text
from tidelog.ope.estimators.risk import Risk
from tidelog.ope.estimators.support import Estimate, Estimates, Support
from tidelog.ope.verdict.answer import OverallAnswer, Row, answer_of
from tidelog.ope.verdict.recommendation import Contrast
from tidelog.ope.verdict.results import Decision, Verdict, Verdicts
from tidelog.policies.statistics import Interval
from tidelog.recommend.interactions.readers import reopen
from tidelog.training.runs.record import Record

FOLDER = "verdicts"


def held_out_part(folder: Path, record: Record, log: Log | None = None) -> tuple[Log, str]:
    """The episodes to judge a run on, and a description of them.

    Without a log, or with the run's own log: the run's held-out episodes. With another log: all of its episodes.
    """
    if log is not None and log.fingerprint() != record.data.fingerprint:
        return log, f"all {len(log.episode_ids):,} episodes of the log"
    if log is None:
        origin: Any = record.data.origin
        if origin is None:
            raise ConfigError(f"the log of {folder} was in memory only. fix: pass it, or another log, with --data")
        log = reopen(origin)
        if log.fingerprint() != record.data.fingerprint:
            raise LogError(
                f"{source_text(origin)} is no longer the log that {folder} was trained on: its content has changed. "
                "fix: pass the log to judge on with --data"
            )
    if not record.held_out:
        raise ConfigError(
            f"{folder} held no episodes out, and a policy cannot be judged on episodes that it learnt from. fix: use "
            "a log with other episodes (--data), or train again with a share held out"
        )
    rows = np.flatnonzero(np.isin(log.episode_ids, np.asarray(record.held_out)))
    if len(rows) != len(record.held_out):
        raise LogError(
            f"only {len(rows):,} of the {len(record.held_out):,} episodes that {folder} held out are in the log. "
            "fix: name the log that the run learned from, or restore the record of the run"
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
    write_json(path, verdict.to_json())


NONE = np.zeros(0)


class Together(NamedTuple):
    """The table of policies that were judged together."""

    level: float
    rows: tuple[Row, ...]
    contrasts: tuple[Contrast, ...]
    margin: float
    unit: str | None  # of rewards

    @property
    def answer(self) -> OverallAnswer:
        """What to do with these policies."""
        return answer_of(self.rows, self.contrasts, self.margin, self.unit)


@dataclass(frozen=True, eq=False)
class SavedVerdict:
    """A verdict from its file, which stores a histogram of the weights but no contributions and no single weights."""

    path: Path
    verdict: Verdict
    zeros: int  # episodes of weight 0
    counts: np.ndarray[Any, Any]  # [B]: episodes by weight
    edges: np.ndarray[Any, Any]  # [B + 1]: decimal logarithms of weights

    @property
    def before(self) -> int:
        """Number of earlier looks at these episodes; 0 if they were not counted."""
        count = self.verdict.context.get("judged_before")
        return count if isinstance(count, int) and not isinstance(count, bool) else 0

    @property
    def date(self) -> float:
        """Time of the verdict in seconds since 1970; if it was not recorded, the file's modification time."""
        date = self.verdict.context.get("date")
        return datetime.fromisoformat(date).timestamp() if isinstance(date, str) else self.path.stat().st_mtime

    @property
    def together(self) -> Together | None:
        """The policies that were judged together with this one; None if it was judged alone."""
        content = self.verdict.context.get("together")
        if content is None or len(content["rows"]) < 2:
            return None
        rows = tuple(map(Row.from_json, content["rows"]))
        contrasts = tuple(map(Contrast.from_json, content.get("contrasts", ())))
        level, margin = _number(content["level"]), _number(content.get("margin", 0.0))
        return Together(level, rows, contrasts, margin, self.verdict.reward_unit)

    @property
    def name(self) -> str:
        """The name of the judged policy in its run, or among all that were judged together."""
        return str(self.verdict.context.get("name"))

    @property
    def policy(self) -> str:
        """The judged policy of the run, and whether it is sampled."""
        context, sample = self.verdict.context, self.verdict.context.get("sample")
        how = (
            ("sampled" if sample else "deterministic") if isinstance(sample, bool) and not self.verdict.is_rule else ""
        )
        return ", ".join(filter(None, [str(context.get("name") or ""), how])) or self.path.stem

    @property
    def episodes(self) -> str:
        """Fingerprint of the judged episodes."""
        log = self.verdict.context.get("log")
        return str(log.get("fingerprint") if isinstance(log, Mapping) else log)


def read_verdicts(folder: Path) -> tuple[SavedVerdict, ...]:
    """Read every verdict of a run, the newest first; CheckpointError if one is invalid.

    Without a date, the number of earlier looks at the same episodes determines the order; otherwise the files'
    modification times, which copying may change.
    """
    verdicts = [read_verdict(path) for path in sorted(folder.glob("*.json"))]

    def age(one: SavedVerdict) -> tuple[float, int]:
        if "date" in one.verdict.context:
            return one.date, one.before
        up_to = [other for other in verdicts if other.episodes == one.episodes and other.before <= one.before]
        return max(other.date for other in up_to), one.before

    return tuple(sorted(verdicts, key=age, reverse=True))


def read_verdict(path: Path) -> SavedVerdict:
    """Read one verdict file; CheckpointError if it is invalid."""
    try:
        content = parse_saved(read_text(path))
        counts, edges = (np.asarray(content["weights"][name], np.float64) for name in ("counts", "log10_edges"))
        zeros = _whole(content["weights"]["zeros"])
        histogram = counts.ndim == edges.ndim == 1 and len(edges) == (len(counts) + 1 if len(counts) else 0)
        if not (histogram and np.isfinite(edges).all() and (np.diff(edges) > 0).all() and (counts >= 0).all()):
            raise ValueError("'weights' is not a histogram")
        saved = SavedVerdict(path, _verdict(content), zeros, counts, edges)
        _ = (saved.date, saved.together)  # raises now if they are invalid
        return saved
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise CheckpointError(
            f"{path} is not a verdict, or it is damaged: {error!r}. fix: remove it and judge the run again"
        ) from error


def _verdict(content: Mapping[str, Any]) -> Verdict:
    if content["decision"] not in get_args(Decision):
        raise ValueError(f"decision = {content['decision']!r}: expected one of {', '.join(get_args(Decision))}")
    from_bc, risk, reason = content["difference_from_bc"], content.get("risk"), content.get("risk_reason")
    context = content["context"]
    if not isinstance(context, Mapping):
        raise TypeError("'context' is not a mapping")
    return Verdict(
        decision=content["decision"],
        reasons=tuple(map(_text, content["reasons"])),
        paragraph=_text(content["paragraph"]),
        estimand=_text(content["estimand"]),
        deciding=_text(content["deciding"]),
        difference=_interval(content["difference"]),
        logger=_interval(content["logger"]),
        difference_from_bc=None if from_bc is None else _interval(from_bc),
        estimates=Estimates([_estimate(row) for row in content["estimates"]]),
        support=_support(content["support"]),
        level=_number(content["level"]),
        episodes=_whole(content["episodes"]),
        weights=NONE,
        context=dict(context),
        risk=None if risk is None else Risk.from_json(risk),
        risk_reason=None if reason is None else _text(reason),
        reward_unit=declared_unit(content.get("reward_unit")),
    )


def _estimate(row: Mapping[str, Any]) -> Estimate:
    return Estimate(
        name=_text(row["name"]),
        estimate=_number(row["estimate"]),
        low=_number(row["low"]),
        high=_number(row["high"]),
        method=_text(row["method"]),
        level=_number(row["level"]),
        support=_support(row["support"]),
        estimated=bool(row["estimated"]),
        contributions=NONE,
        note=_text(row.get("note", "")),
    )


def _support(content: Mapping[str, Any]) -> Support:
    known: dict[str, Any] = {}
    for part in fields(Support):
        value, optional = content[part.name], "None" in str(part.type)
        kind = _whole if str(part.type) == "int" else _number
        known[part.name] = None if value is None and optional else kind(value)
    return Support(**known)


def _interval(content: Mapping[str, Any]) -> Interval:
    return Interval(*(_number(content[name]) for name in Interval._fields))


def _number(value: Any) -> float:
    """A number; None means not finite."""
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected a number, found {value!r}")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected a whole number, found {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r}")
    return value
