"""`tidelog report`: one HTML page about one run, or about several for comparison: no network, no script.

The order is by importance: the verdict, or a recommender's lists; then the estimates behind it, the policies' actions
compared with the log's, returns and learning curves; then data and settings. Details are folded; paper shows none of
them, so that the page of one run fits on three sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog._files import write_file
from tidelog.data.log import Log
from tidelog.errors import ConfigError
from tidelog.recommend.interactions import Interactions
from tidelog.report.frame import REPORT_KIND, check_target, heading, page, paragraph, section, table
from tidelog.report.lists import lists
from tidelog.report.policies import coverage, learning, returns
from tidelog.report.runs import (
    SavedRun,
    data,
    facts,
    fingerprint,
    logs_of,
    machine,
    ranks,
    read_runs,
    settings,
    source,
)
from tidelog.report.verdict import (
    answer_section,
    answer_title,
    candidates_of,
    estimates,
    headline,
    verdict_section,
)


def report_of(
    runs: Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    log: Log | Interactions | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Path:
    """Write the report of run folders to a file and return its path; replaces an older report.

    `log` is needed if the runs' log was in memory only or has moved. `progress` gets the current part of the page and
    the share of parts that are done.

    ConfigError if the file is not a report or cannot be written, or if a run has no metrics yet or is named twice;
    CheckpointError if a folder is not a run or is damaged; LogError if no run learnt from `log`. Errors leave the file
    unchanged.
    """
    target = Path(out)
    check_target(target)
    write_file(target, run_page(read_runs(runs), log, progress).encode(), ConfigError)
    return target


def run_page(
    runs: Sequence[SavedRun],
    log: Log | Interactions | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> str:
    """The page as text."""
    tell = progress or (lambda doing, share: None)
    tell("the runs' log", 0.0)
    logs = logs_of(runs, log)
    decide = [run for run in runs if not ranks(run)]
    logged = [run for run in decide if run.has_log]
    theirs = {mark: found for mark, found in logs.items() if mark in map(fingerprint, logged)}
    judged = [run for run in decide if run.has_log or run.verdicts]
    candidates = candidates_of(runs)  # one answer over all runs and rules

    def answer() -> str:
        if not decide:
            return ""
        apart = (f'<div class="run">{verdict_section(run)}</div>' for run in decide)
        return section("The answer", "".join(apart) if candidates is None else answer_section(candidates), "verdict")

    parts: dict[str, Callable[[], str]] = {
        "verdict": answer,
        "lists": lambda: lists(runs, logs, within("lists")),
        "words": lambda: _judgements(runs) if decide or len(runs) > 1 else "",
        "estimates": lambda: estimates(judged) if judged else "",
        "actions": lambda: coverage(decide, theirs) if logged else "",
        "returns": lambda: returns(decide, theirs) if decide else "",
        "learning": lambda: learning(runs),
        "data": lambda: data(runs, logs) if logs else "",
        "settings": lambda: settings(runs),
        "machine": lambda: machine(runs),
    }
    sections: dict[str, str] = {}

    def within(name: str) -> Callable[[str, float], None]:
        return lambda doing, share: tell(f"{_LINKS[name].lower()}: {doing}", (len(sections) + share) / len(parts))

    for number, (name, make) in enumerate(parts.items()):
        tell(_LINKS[name].lower(), number / len(parts))
        sections[name] = make()
    rewards = any(run.record.has_rewards for run in decide)
    title = answer_title(candidates, rewards) if decide else ", ".join(run.name for run in runs)
    lead = f"{', '.join(run.name for run in runs)}: {len(runs)} runs."
    if len(runs) == 1:
        run = runs[0]
        options = run.record.options
        seeds = f"{len(options.seeds):,} seed{'' if len(options.seeds) == 1 else 's'}"
        done = f"{run.done:,} of {options.steps:,} {run.unit}"
        lead = f"{run.name}: {run.record.algorithm}, {seeds}, {done}, from {source(run.record, short=True)}."
    if not decide:  # lists are the results
        sections = {"lists": sections["lists"], **sections}
    links = [(name, _LINKS[name]) for name, text in sections.items() if text]
    shown = [text for text in sections.values() if text]
    more = _ON_SCREEN if decide else _ON_SCREEN_LISTS
    return page(title, lead, [*shown, paragraph(more, "soft paper")], REPORT_KIND, links)


_LINKS = {
    "verdict": "The answer", "lists": "Lists", "words": "In words",
    "estimates": "Estimates", "actions": "Actions", "returns": "Returns",
    "learning": "Learning curves", "data": "Data", "settings": "Settings",
    "machine": "Versions",
}  # fmt: skip
_ON_SCREEN = "On a screen this page shows more: how it was judged, every estimator, all metrics, settings and versions."
_ON_SCREEN_LISTS = "On a screen this page shows more: every measure, all metrics, settings and versions."


def _judgements(runs: Sequence[SavedRun]) -> str:
    """The verdict on each run in words, and the table of the runs."""
    body = []
    if len(runs) > 1:
        body.append(table(_HEAD, map(_row, runs), "The runs of this report", named=True))
    alone = len(runs) == 1 and not runs[0].verdicts  # the first screen has its command
    for run in runs:
        if not ranks(run) and not alone:
            name = heading(run.name) if len(runs) > 1 else ""
            body.append(f'<div class="run">{name}{verdict_section(run)}</div>')
    body += [facts(runs[0])] if len(runs) == 1 else []
    return section("Runs" if all(map(ranks, runs)) else "In words", "".join(body), "words") if body else ""


_NONE = {True: "none yet", False: "none: learnt in an environment"}
_HEAD = ("run", "verdict", "algorithm", "seeds", "updates", "held out", "log")


def _row(run: SavedRun) -> list[str]:
    settings = run.record.options
    decision = headline(run).verdict.decision if run.verdicts else "lists" if ranks(run) else _NONE[run.has_log]
    done = f"{run.done:,} of {settings.steps:,}{'' if run.unit == 'updates' else f' {run.unit}'}"
    held_out = f"{settings.held_out:.0%} of the time" if ranks(run) else f"{len(run.record.held_out):,}"
    seeds = f"{len(settings.seeds):,}"
    return [run.name, decision, run.record.algorithm, seeds, done, held_out, source(run.record, short=True)]
