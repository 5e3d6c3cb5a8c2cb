"""The report page of a sweep: all trials, what halving decided, and the judgement of all complete trials at once."""

from __future__ import annotations

from pathlib import Path

from tidelog._files import write_file
from tidelog._text import three_digits
from tidelog.errors import ConfigError
from tidelog.ope.verdict import FOLDER, SavedVerdict, percent, read_verdicts
from tidelog.report.frame import bullets, command, page, paragraph, section, table
from tidelog.report.page import check_target
from tidelog.sweeps.plan import REPORT
from tidelog.sweeps.sweep import Sweep

KIND = "report"


def write_page(sweep: Sweep, out: str | Path | None = None) -> Path:
    """Write the report page of a sweep, by default into its folder, and return its path; replaces an older report."""
    target = sweep.folder / REPORT if out is None else Path(out)
    check_target(target)
    write_file(target, sweep_page(sweep).encode(), ConfigError)
    return target


def sweep_page(sweep: Sweep) -> str:
    """The page as text."""
    options, count = sweep.plan.options, len(sweep.plan.trials)
    seeds = f"{len(options.seeds):,} seed{'' if len(options.seeds) == 1 else 's'}"
    lead = f"{count:,} trials of {seeds} and up to {options.steps:,} updates."
    judged = _judgement(sweep)
    trials = paragraph(sweep.caution, "short") + table(sweep.head, sweep.rows(), "All trials", named=True)
    reasons = [f"trial {row['trial']}, {row['state']}: {row['reason']}" for row in sweep.table if row["reason"]]
    parts = {"judgement": ("Judgement", judged), "trials": ("Trials", trials)}
    if sweep.plan.halving is not None:
        parts["halving"] = ("Halving", _halving(sweep))
    if reasons:
        parts["failures"] = ("Diverged and failed trials", bullets(reasons))
    sections = [section(title, body, anchor) for anchor, (title, body) in parts.items()]
    return page(f"Sweep {sweep.folder.name}", lead, sections, KIND, [(name, one[0]) for name, one in parts.items()])


def judgement_of(sweep: Sweep) -> SavedVerdict | None:
    """Return a verdict of the newest judgement that holds for all complete trials at once; None without one."""
    complete = sweep.complete()
    saved = [one for trial in complete for one in read_verdicts(sweep.run_folder(trial) / FOLDER)]
    covering = [one for one in saved if (1 if one.together is None else len(one.together.rows)) >= len(complete)]
    return max(covering, key=lambda one: one.date, default=None)


def _judgement(sweep: Sweep) -> str:
    newest = judgement_of(sweep)
    if newest is None:
        nobody = "No judgement holds for all complete trials at once, so none of them is shown to be better than the "
        line = sweep.judge_command
        more = "" if line is None else " This command judges them, with intervals that hold for all of them:"
        text = f"{nobody}decisions of the log.{more}"
        return paragraph(text, "short") + ("" if line is None else command(line))
    if newest.together is None:
        return paragraph(f"{newest.verdict.decision}: {newest.verdict.advice}", "short")
    rows = [
        [row.name, row.decision, *(_number(row.decision, value) for value in row.difference)]
        for row in newest.together.rows
    ]
    head = ("policy", "verdict", "difference from the logger", "low", "high")
    caption = f"Judged at once; the intervals hold for all of them with {percent(newest.together.level)}"
    return paragraph(newest.together.answer.text, "short") + table(head, rows, caption, named=True)


def _number(decision: str, value: float) -> str:
    """Return a number of a judgement; those of an unsupported policy are guesses outside the log."""
    return "unknown" if decision == "unsupported" or value != value else three_digits(value, sign=True)


def _halving(sweep: Sweep) -> str:
    rows = []
    for one in sweep.decisions:
        promoted = ", ".join(map(str, one.promoted)) or "none"
        values = [
            f"{trial}: {'none' if value is None else f'{value:.4g}'}"
            for trial, value in zip(one.compared, one.values, strict=True)
        ]
        rows.append([f"{one.step:,}", str(len(one.compared)), promoted, ", ".join(values)])
    text = f"At each step the trials are compared by {sweep.metric}, the mean over their seeds; ties go by number."
    return paragraph(text) + table(("step", "compared", "go on", "values by trial"), rows, "Decisions", named=True)
