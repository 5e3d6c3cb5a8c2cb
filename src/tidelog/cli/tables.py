"""Printed output of commands: tables and next steps."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidelog.cli.flags import OutputFlags
from tidelog.cli.next_lists import lists_advice, next_command
from tidelog.cli.wrapping import wrapped
from tidelog.errors import CheckpointError
from tidelog.runtime.observations import feature_names
from tidelog.terminal_text import printable
from tidelog.training.runs.run import Run
from tidelog.types import Catalogue

_is_quiet: ContextVar[bool] = ContextVar("_is_quiet", default=False)


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    table = Table(title=_cell(title), title_justify="left")
    for i, name in enumerate(head):
        table.add_column(_cell(name), justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*map(_cell, row))
    Console().print(table)


def _cell(text: str) -> Text:
    """Plain text: names of users are no markup."""
    return Text(printable(text))


def json_only(wanted: bool) -> AbstractContextManager[Any]:
    """A context in which all printed lines and tables go to standard error, if standard output is for JSON."""
    return contextlib.redirect_stdout(sys.stderr) if wanted else contextlib.nullcontext()


def present(options: OutputFlags, work: Callable[[], Any]) -> int:
    """Do the work of a command, print what it returns as JSON if that is wanted, and return exit code 0.

    With `--quiet`, `print_details` and `print_notes` print nothing in it.
    """
    outer = _is_quiet.set(options.quiet)
    try:
        with json_only(options.json):
            result = work()
    finally:
        _is_quiet.reset(outer)
    if options.json:
        print_json(result)
    return 0


def print_json(result: Any) -> None:
    """Print a result as one JSON document; a number that is not finite is null."""
    print(printable(json.dumps(_finite(result), indent=1, allow_nan=False)), flush=True)  # noqa: T201


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_line(text: str) -> None:
    """Print plain text: on a terminal its lines are broken between words, elsewhere they stay whole."""
    print(wrapped(text, sys.stdout), flush=True)  # noqa: T201


def print_details(*lines: str) -> None:
    """Print lines that are not the result of a command: nothing with `--quiet`."""
    for line in lines if not _is_quiet.get() else ():
        print_line(line)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes for the user, one per line: nothing with `--quiet`."""
    print_details(*(f"note: {note}" for note in notes))


def train_and_show(run: Run, quiet: bool = False, as_json: bool = False) -> int:
    """Train a run to its end and print the result; with `quiet`, only the run folder.

    The exit code is 4 if a checkpoint cannot be written; the previous one is intact.
    """
    try:
        with json_only(as_json):
            run.train(progress=False if quiet else None)
            if not quiet:
                show_run(run)
        if as_json:
            print_json(run_facts(run))
        elif quiet:
            print_line(f"run folder: {run.folder}")
    except CheckpointError as error:
        print(wrapped(f"tidelog: {error}", sys.stderr), file=sys.stderr)  # noqa: T201
        return 4
    except (KeyboardInterrupt, SystemExit):  # the progress is saved; the signal is raised again
        again = run.record.resume_command(Path(str(run.folder)))
        where = f"saved at {run.unit[:-1]} {run.done:,}; `{again}` continues it"
        print(f"tidelog: {where}", file=sys.stderr)  # noqa: T201
        raise
    return 0


def run_facts(run: Run) -> dict[str, Any]:
    """The result of a run for scripts: its folder, what is done, and the last metrics of each member."""
    return {
        "run": str(run.folder),
        "algorithm": run.name,
        "done": run.done,
        "unit": run.unit,
        "finished": run.finished,
        "metrics": list({row["member"]: row for row in run.metrics}.values()),
    }


def show_run(run: Run) -> None:
    """Print the last metrics of each member, and the next commands."""
    last = {row["member"]: row for row in run.metrics}
    names = [name for name in next(iter(last.values()), {}) if name not in ("update", "member", "seed")]
    head = ["metric", *(f"seed {last[m]['seed']}" for m in sorted(last))]
    rows = [[name, *(_number(last[m].get(name)) for m in sorted(last))] for name in names]
    table(f"{run.name}: last metrics, update {run.update:,}", head, rows)
    print_line(f"run folder: {run.folder}")
    if isinstance(run.record.spec.action, Catalogue):
        print_notes(run.policy().notes())
        for line in lists_advice(run):
            print_line(line)
        print_line(f"next: {next_command(run)}")
        return
    for place, command in enumerate(_next_commands(run)):
        print_line(f"{'then' if place else 'next'}: {command}")


def _next_commands(run: Run) -> list[str]:
    """What to do with a policy: play it if its environment is known, judge it if it learnt from a log, then use it."""
    record, folder = run.record, shlex.quote(str(run.folder))
    commands = []
    if record.environment is not None:
        commands.append(f"tidelog evaluate {folder} --env {shlex.quote(record.environment)}")
    if record.environment is None or record.is_finetuned:
        commands.append(record.judge_command(Path(str(run.folder))))
    if feature_names(record.spec):
        mapping = " --columns MAPPING.toml" if record.spec.masked or run.policy().is_recurrent else ""
        commands.append(f"tidelog act {folder} --data NEW_ROWS.csv --out actions.csv{mapping}")
    elif record.environment is None:
        commands.append(f"tidelog evaluate {folder} --env NAME")
    return commands


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"
