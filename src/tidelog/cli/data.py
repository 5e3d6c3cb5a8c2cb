"""`tidelog data inspect|validate`: look at a log before anything is learnt from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import tyro

from tidelog.cli.options import parse
from tidelog.data.door import validate
from tidelog.data.inspect import describe_table, inspect_log
from tidelog.data.origin import is_table, read_any
from tidelog.data.report import Report
from tidelog.errors import ConfigError, LogError, nearest

COMMANDS = {
    "inspect": "what a log holds; without a mapping, a proposal for one",
    "validate": "everything wrong with it",
}


@dataclass
class Inspect:
    """Show what a log holds; for a table without a mapping, describe its columns and propose one."""

    data: tyro.conf.Positional[str]
    """a table (.csv, .csv.gz, .parquet), a saved log, an .npz file, or the id of a Minari data set"""
    columns: str | None = None
    """for tables: the mapping file"""


@dataclass
class Validate:
    """Report everything that is wrong with a log or worth saying about it; exit code 2 if it cannot be used."""

    data: tyro.conf.Positional[str]
    """a table (.csv, .csv.gz, .parquet), a saved log, an .npz file, or the id of a Minari data set"""
    columns: str | None = None
    """for tables: the mapping file"""
    format: Literal["text", "json"] = "text"
    """how to print the report"""


def run(words: list[str]) -> int:
    """Inspect or validate."""
    if not words or words[0] in ("-h", "--help"):
        print("\n".join(f"  tidelog data {name:<9} {what}" for name, what in COMMANDS.items()))  # noqa: T201
        return 0 if words else 2
    if words[0] not in COMMANDS:
        raise ConfigError(f"no command 'data {words[0]}': {nearest(words[0], COMMANDS)}")
    return {"inspect": _inspect, "validate": _validate}[words[0]](words[1:])


def _inspect(words: list[str]) -> int:
    options = parse(Inspect, words, "data inspect")
    if options.columns is None and is_table(options.data):
        print(describe_table(options.data).text())  # noqa: T201
        return 0
    print(inspect_log(read_any(options.data, options.columns)).text())  # noqa: T201
    return 0


def _validate(words: list[str]) -> int:
    options = parse(Validate, words, "data validate")
    report = _report(options.data, options.columns)
    print(json.dumps(report.to_json(), indent=1) if options.format == "json" else report.text())  # noqa: T201
    return 0 if report.ok else 2


def _report(source: str, columns: str | None) -> Report:
    """The report on any source, good or bad; ConfigError where a table comes without a mapping."""
    if columns is not None or Path(source).suffix == ".npz":
        return validate(source, columns)
    try:
        return read_any(source).report
    except LogError as error:
        if error.report is None:
            raise
        return cast("Report", error.report)
