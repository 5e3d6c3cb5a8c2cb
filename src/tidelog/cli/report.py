"""`tidelog report RUN [RUN ...]`: the results and the reliability of runs, or of a sweep, in one HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from tidelog.cli.flags import (
    File,
    OutputFlags,
    Repeated,
    RunFolder,
    parse,
    present,
    print_line,
    source_of,
)
from tidelog.data.read import read_log
from tidelog.errors import ConfigError
from tidelog.report.page import report_of
from tidelog.sweeps.job import PLAN
from tidelog.sweeps.sweep import Sweep, write_page
from tidelog.training.metrics import Progress


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
    """for tables: the mapping file"""


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
                log = read_log(source_of(options.data, "--data"), options.columns)
            path = report_of(options.runs, options.out, log=log, progress=screen.update)
    size = path.stat().st_size
    print_line(f"report: {path}{'' if options.quiet else f' ({size / 1e3:,.0f} kB)'}")
    return {"report": str(path), "bytes": size}
