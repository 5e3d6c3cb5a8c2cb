"""`tidelog report RUN [RUN ...]`: the results and the reliability of runs, or of a sweep, in one HTML file.

`tidelog explain VERDICT` says why a saved verdict decides as it does.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from tidelog.cli.flags import (
    File,
    OutputFlags,
    Repeated,
    RunFolder,
    parse,
    present,
    print_line,
)
from tidelog.cli.policies import log_for_runs
from tidelog.errors import ConfigError, nearest
from tidelog.ope.verdict import FOLDER, SavedVerdict, read_judgement, read_verdicts
from tidelog.report.page import report_of
from tidelog.schema import to_plain
from tidelog.sweeps.job import PLAN
from tidelog.sweeps.sweep import Sweep, write_page
from tidelog.training.metrics import Progress
from tidelog.training.record import Record


@dataclass
class ReportFlags(OutputFlags):
    """Write one HTML file about a run, about several for comparison, or about a sweep."""

    runs: tyro.conf.Positional[tuple[RunFolder, ...]]
    """run folders, or the folder of a sweep"""
    out: File = "report.html"
    """the file; an older report is replaced, any other file is not overwritten"""
    data: Repeated = ()
    """the runs' log, if it was moved or existed only in memory; default: the original path"""
    columns: File | None = None
    """for tables: the mapping file; default: the columns of the runs' log"""


def run(words: list[str]) -> int:
    """Write the report and print its path."""
    return present(parse(ReportFlags, words, "report"), _report)


def _report(options: ReportFlags) -> dict[str, Any]:
    """Write the page, and return its path and size."""
    if options.columns is not None and not options.data:
        raise ConfigError("--columns is set without --data: it describes a table", fix="name the table with --data")
    if any((Path(run) / PLAN).is_file() for run in options.runs):
        if len(options.runs) > 1 or options.data:
            raise ConfigError("a sweep has a page of its own", fix="name its folder alone, without --data")
        path = write_page(Sweep(options.runs[0]), options.out)
    else:
        with Progress("report", False if options.quiet else None) as screen:
            log = None
            if options.data:
                screen.update("the runs' log", 0.0)
                records = [Record.read(Path(run)) for run in options.runs]
                log = log_for_runs(options.data, options.columns, records)
            path = report_of(options.runs, options.out, log=log, progress=screen.update)
    size = path.stat().st_size
    print_line(f"report: {path}{'' if options.quiet else f' ({size / 1e3:,.0f} kB)'}")
    return {"report": str(path), "bytes": size}


# `tidelog explain VERDICT`: why a saved verdict decides as it does.


@dataclass
class Explain(OutputFlags):
    """Say why a verdict decides as it does: its checks, with their numbers."""

    verdict: tyro.conf.Positional[Annotated[str, "VERDICT|RUN"]]
    """the file of a verdict, or of a table of several (`tidelog judge --out`); a run folder: its newest verdict"""
    policy: Annotated[str, "NAME"] | None = None
    """of several: the one on this policy alone"""


def run_explain(words: list[str]) -> int:
    """Print the explanation of each verdict."""
    return present(parse(Explain, words, "explain"), _explain)


def _explain(options: Explain) -> dict[str, Any]:
    """Print why each verdict decides so, and return it by the names of the policies."""
    saved = _saved(Path(options.verdict))
    if options.policy is not None and options.policy not in saved:
        raise ConfigError(f"no verdict on '{options.policy}': {nearest(options.policy, saved)}")
    chosen = saved if options.policy is None else {options.policy: saved[options.policy]}
    for position, (name, one) in enumerate(chosen.items()):
        if len(chosen) > 1:
            print_line(f"{'' if position == 0 else chr(10)}{name}")
        print_line(one.verdict.explanation.basis[0] if options.quiet else one.verdict.explain())
    return {"verdicts": {name: _plain(one) for name, one in chosen.items()}}


def _plain(saved: SavedVerdict) -> dict[str, Any]:
    verdict, explanation = saved.verdict, saved.verdict.explanation
    facts: dict[str, Any] = to_plain(explanation)
    return {"decision": verdict.decision, **facts, "checks": to_plain(verdict.checks)}


def _saved(path: Path) -> dict[str, SavedVerdict]:
    """The verdicts of a file, or the newest ones of a run, which were judged at once."""
    if not path.exists():
        raise ConfigError(f"{path} does not exist", "the file of a verdict, or a run folder")
    if not path.is_dir():
        return read_judgement(path)
    verdicts = read_verdicts(path / FOLDER)
    if not verdicts:
        fix = f"judge the run: `tidelog judge {shlex.quote(str(path))}`"
        raise ConfigError(f"{path} has no verdict", "a run that was judged, or the file of a verdict", fix)
    first = verdicts[0]
    if first.together is None:
        return {str(first.verdict.context.get("name") or first.path.stem): first}
    mark = repr(first.together.rows)
    at_once = {one.name: one for one in reversed(verdicts) if one.together and repr(one.together.rows) == mark}
    return {row.name: at_once[row.name] for row in first.together.rows if row.name in at_once}
