"""`tidelog report`: one run, or several side by side, as one HTML file: no network, no script.

What a reader has to know first stands first: the verdict and what it rests on; then how the policies learnt, what they
returned, how each estimator sees them, what they would do where the log did something else; then data and settings.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tidelog.data.log import Log
from tidelog.errors import ConfigError
from tidelog.recommend.interactions.log import Interactions
from tidelog.report.coverage_part import coverage
from tidelog.report.frame import heading, mark, page, section, table, tiles
from tidelog.report.learning_part import learning
from tidelog.report.lists_part import lists
from tidelog.report.logs import fingerprint, logs_of, source
from tidelog.report.returns_part import returns
from tidelog.report.saved import SavedRun, ranks, read_runs
from tidelog.report.settings_part import data, machine, settings
from tidelog.report.verdict_part import banner, estimates, judged

KIND = "report"


def report_of(
    runs: Sequence[str | Path], out: str | Path = "report.html", *, log: Log | Interactions | None = None
) -> Path:
    """Write the report of run folders to a file and return its path; an older report there is replaced.

    `log` is given where the runs' log was made in memory or has moved.

    ConfigError where the file is something else or cannot be written, where a run made no report yet or is named twice;
    CheckpointError where a folder is no run or what it holds is damaged; LogError where no run learnt from `log`.
    Then nothing is written.
    """
    target = Path(out)
    _check_target(target)
    _put(target, run_page(read_runs(runs), log))
    return target


def run_page(runs: Sequence[SavedRun], log: Log | Interactions | None = None) -> str:
    """The page as text."""
    logs = logs_of(runs, log)
    decide = [run for run in runs if not ranks(run)]
    theirs = {mark: found for mark, found in logs.items() if mark in map(fingerprint, decide)}
    sections = {
        "verdict": _summary(runs),
        "lists": lists(runs, logs),
        "learning": learning(runs),
        "returns": returns(decide, theirs) if decide else "",
        "estimates": estimates(decide) if decide else "",
        "actions": coverage(decide, theirs) if decide else "",
        "data": data(runs, logs),
        "settings": settings(runs),
        "machine": machine(runs),
    }
    title = ", ".join(run.name for run in runs)
    lead = _sentence(runs[0]) if len(runs) == 1 else "Runs side by side."
    links = [link for link in _LINKS if sections[link[0]]]
    return page(title, lead, [text for text in sections.values() if text], KIND, links)


_LINKS = (
    ("verdict", "Verdict"), ("lists", "Lists"), ("learning", "Learning curves"), ("returns", "Returns"),
    ("estimates", "Estimates"), ("actions", "Actions"), ("data", "Data"), ("settings", "Settings"),
    ("machine", "Versions"),
)  # fmt: skip


def _sentence(run: SavedRun) -> str:
    settings = run.record.options
    seeds = f"{len(settings.seeds):,} seed{'' if len(settings.seeds) == 1 else 's'}"
    return f"{run.record.algorithm}, {seeds}, {run.update:,} of {settings.steps:,} updates, from {source(run.record)}."


def _summary(runs: Sequence[SavedRun]) -> str:
    if len(runs) == 1:
        return section("Verdict", banner(runs[0]) + judged(runs[0]) + _facts(runs[0]), "verdict")
    body = [table(_HEAD, map(_row, runs), "The runs of this report", named=True)]
    body += [f'<div class="run">{heading(run.name)}{banner(run)}{judged(run)}</div>' for run in runs]
    return section("Verdicts", "".join(body), "verdict")


_HEAD = ("run", "verdict", "algorithm", "seeds", "updates", "held out", "log")


def _row(run: SavedRun) -> list[str]:
    settings = run.record.options
    decision = run.verdicts[0].verdict.decision if run.verdicts else "lists" if ranks(run) else "none yet"
    updates = f"{run.update:,} of {settings.steps:,}"
    kept = f"{settings.held_out:.0%} of the time" if ranks(run) else f"{len(run.record.held_out):,}"
    return [run.name, decision, run.record.algorithm, f"{len(settings.seeds):,}", updates, kept, source(run.record)]


_HELD = {True: "of the time held out", False: "episodes held out"}


def _facts(run: SavedRun) -> str:
    record = run.record
    return tiles(
        [
            (record.algorithm, "algorithm"),
            (f"{len(record.options.seeds):,}", "seeds"),
            (f"{run.update:,}", f"of {record.options.steps:,} updates"),
            (f"{record.data['episodes']:,}", "sessions in the log" if ranks(run) else "episodes in the log"),
            (f"{record.data['steps']:,}", "events in the log" if ranks(run) else "steps in the log"),
            (f"{record.options.held_out:.0%}" if ranks(run) else f"{len(record.held_out):,}", _HELD[ranks(run)]),
        ]
    )


def _check_target(target: Path) -> None:
    if target.is_dir():
        raise ConfigError(f"{target} is a folder: name a file, as in --out report.html; nothing was written")
    if not target.parent.is_dir():
        raise ConfigError(f"{target.parent} is no folder: make it first, or choose another name; nothing was written")
    if target.exists() and not _is_ours(target):
        raise ConfigError(f"{target} exists and is no report of tidelog: choose another name, nothing was written")


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return mark(KIND).encode() in file.read(1000)
    except OSError as error:
        raise ConfigError(f"{path} exists and cannot be read: {error}; choose another name") from error


def _put(target: Path, text: str) -> None:
    """Write beside the target and rename, so that it is whole or as it was."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error}") from error
    aside = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        aside.chmod(0o666 & ~_umask())
        aside.replace(target)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error}") from error
    finally:
        aside.unlink(missing_ok=True)


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now
