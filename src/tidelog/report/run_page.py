"""`tidelog report`: one HTML page about one run, or about several for comparison: no network, no script.

The order is by importance: the verdict, or a recommender's lists; then the estimates behind it, the policies' actions
compared with the log's, returns and learning curves; then data and settings. Details are folded; paper shows none of
them, so that the page of one run fits on three sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.data.log import Log
from tidelog.disk import write_file
from tidelog.errors import ConfigError
from tidelog.input_files import open_regular
from tidelog.recommend.interactions.log import Interactions
from tidelog.report.coverage_part import coverage
from tidelog.report.frame import heading, mark, page, paragraph, section, table
from tidelog.report.learning_part import learning
from tidelog.report.lists_part import lists
from tidelog.report.population_part import population
from tidelog.report.returns_part import returns
from tidelog.report.saved import SavedRun, fingerprint, logs_of, ranks, read_runs, source
from tidelog.report.settings_part import data, facts, machine, settings
from tidelog.report.verdict_part import banner, estimates, headline, verdict_section

KIND = "report"


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
    parts: dict[str, Callable[[], str]] = {
        "verdict": lambda: _summary(runs) if decide or len(runs) > 1 else "",
        "lists": lambda: lists(runs, logs, within("lists")),
        "estimates": lambda: estimates(judged) if judged else "",
        "actions": lambda: coverage(decide, theirs) if logged else "",
        "returns": lambda: returns(decide, theirs) if decide else "",
        "learning": lambda: learning(runs),
        "population": lambda: population(runs),
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
    title = ", ".join(run.name for run in runs)
    lead = "Comparison of runs."
    if len(runs) == 1:
        run = runs[0]
        options = run.record.options
        seeds = f"{len(options.seeds):,} seed{'' if len(options.seeds) == 1 else 's'}"
        done = f"{run.done:,} of {options.steps:,} {run.unit}"
        lead = f"{run.record.algorithm}, {seeds}, {done}, from {source(run.record, short=True)}."
    if not decide:  # lists are the results
        sections = {"lists": sections["lists"], **sections}
    links = [(name, _LINKS[name]) for name, text in sections.items() if text]
    shown = [text for text in sections.values() if text]
    more = _ON_SCREEN if decide else _ON_SCREEN_LISTS
    return page(title, lead, [*shown, paragraph(more, "soft paper")], KIND, links)


_LINKS = {
    "verdict": "Verdict", "lists": "Lists", "estimates": "Estimates", "actions": "Actions", "returns": "Returns",
    "learning": "Learning curves", "population": "Population", "data": "Data", "settings": "Settings",
    "machine": "Versions",
}  # fmt: skip
_ON_SCREEN = "On a screen this page shows more: how it was judged, every estimator, all metrics, settings and versions."
_ON_SCREEN_LISTS = "On a screen this page shows more: every measure, all metrics, settings and versions."


def _summary(runs: Sequence[SavedRun]) -> str:
    if len(runs) == 1:
        return section("Verdict", banner(runs[0]) + verdict_section(runs[0]) + facts(runs[0]), "verdict")
    sets = [one for run in runs for one in run.verdicts if one.together is not None and one.together.advice]
    newest = max(sets, key=lambda one: one.date, default=None)
    advice = "" if newest is None or newest.together is None else newest.together.advice
    body = [paragraph(advice, "short")] if advice else []
    body.append(table(_HEAD, map(_row, runs), "The runs of this report", named=True))
    body += [
        f'<div class="run">{heading(run.name)}{banner(run)}{verdict_section(run)}</div>'
        for run in runs
        if not ranks(run)
    ]
    title = "Runs" if all(ranks(run) or not (run.has_log or run.verdicts) for run in runs) else "Verdicts"
    return section(title, "".join(body), "verdict")


_NONE = {True: "none yet", False: "none: learnt in an environment"}
_HEAD = ("run", "verdict", "algorithm", "seeds", "updates", "held out", "log")


def _row(run: SavedRun) -> list[str]:
    settings = run.record.options
    decision = headline(run).verdict.decision if run.verdicts else "lists" if ranks(run) else _NONE[run.has_log]
    done = f"{run.done:,} of {settings.steps:,}{'' if run.unit == 'updates' else f' {run.unit}'}"
    held_out = f"{settings.held_out:.0%} of the time" if ranks(run) else f"{len(run.record.held_out):,}"
    seeds = f"{len(settings.seeds):,}"
    return [run.name, decision, run.record.algorithm, seeds, done, held_out, source(run.record, short=True)]


def check_target(target: Path) -> None:
    """Raise ConfigError unless a page can be written there: to a new file, or in place of an older report."""
    if target.is_dir():
        raise ConfigError(f"{target} is a folder; nothing was written. fix: name a file, as in --out report.html")
    if not target.parent.is_dir():
        raise ConfigError(
            f"{target.parent} is not a folder; nothing was written. fix: create it first, or choose another name"
        )
    if not target.exists():
        return
    try:
        with open_regular(target) as file:
            ours = mark(KIND).encode() in file.read(1000)
    except OSError as error:
        raise ConfigError(f"{target} exists and cannot be read: {error}. fix: choose another name") from error
    if not ours:
        raise ConfigError(
            f"{target} exists and is not a report of tidelog; nothing was written. fix: choose another name"
        )
