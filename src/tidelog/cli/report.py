"""`tidelog report RUN [RUN ...]`: what runs learnt and how far it can be trusted, as one HTML file."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass

import tyro

from tidelog.cli.flags import parse
from tidelog.cli.tables import say
from tidelog.data.io.readers import read_any
from tidelog.errors import ConfigError
from tidelog.report.run_page import report_of


@dataclass
class Report:
    """Write one HTML file about a run, or about several side by side; it needs no network and no script."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """run folders"""
    out: str = "report.html"
    """the file; an older report there is replaced, anything else is left alone"""
    log: str | None = None
    """the runs' log, where it has moved or was made in memory; else it is read from where it was"""
    columns: str | None = None
    """for tables: the mapping file"""
    open: bool = False
    """show it in a browser"""


def run(words: list[str]) -> int:
    """Write the report, and say where it is."""
    options = parse(Report, words, "report")
    if options.columns is not None and options.log is None:
        raise ConfigError("--columns says what is in a table: name the table with --log")
    log = None if options.log is None else read_any(options.log, options.columns)
    path = report_of(options.runs, options.out, log=log)
    say(f"report: {path} ({path.stat().st_size / 1e3:,.0f} kB)")
    if options.open and not webbrowser.open(path.absolute().as_uri()):
        say("no browser was found to show it in")
    return 0
