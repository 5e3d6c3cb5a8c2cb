"""Printed output of commands: lines, notes, tables and JSON."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from tidelog.cli.flags import OutputFlags
from tidelog.cli.wrapping import wrapped
from tidelog.terminal_text import printable

_is_quiet: ContextVar[bool] = ContextVar("_is_quiet", default=False)


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    from rich.console import Console  # slow to import, and most commands print no table
    from rich.table import Table

    table = Table(title=_cell(title), title_justify="left")
    for i, name in enumerate(head):
        table.add_column(_cell(name), justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*map(_cell, row))
    Console().print(table)


def _cell(text: str) -> Any:
    """Plain text of rich: names of users are no markup."""
    from rich.text import Text

    return Text(printable(text))


def json_only(wanted: bool) -> AbstractContextManager[Any]:
    """A context in which all printed lines and tables go to standard error, if standard output is for JSON.

    A process without standard output, such as a rank after 0, prints them nowhere.
    """
    silent = getattr(sys.stdout, "name", None) == os.devnull
    return contextlib.redirect_stdout(sys.stderr) if wanted and not silent else contextlib.nullcontext()


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
