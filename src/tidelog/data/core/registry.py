"""The registry of checks: each check is a small function that yields findings and has a name and a level."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import FileRows, Finding, RawLog
from tidelog.data.core.report import LEVELS, Level, Problem, Report
from tidelog.errors import LogError

CheckFunction: TypeAlias = Callable[[Any], Iterable[Finding]]
_SHOWN_ROWS = 10
_SHOWN_NAMES = 8


class Numbered(Protocol):
    """The attributes of an examined source that a report needs."""

    @property
    def source(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def numbers(self) -> Values: ...
    @property
    def has_lines(self) -> bool: ...
    @property
    def files(self) -> FileRows | None: ...


@dataclass(frozen=True)
class Check:
    """A check of a log; `run` is None if readers and parsers report it themselves."""

    name: str
    level: Level
    meaning: str
    run: CheckFunction | None = None


CHECKS: dict[str, Check] = {}


def rule(name: str, level: Level, meaning: str) -> None:
    """Register a check that readers run while they read a source."""
    CHECKS[name] = Check(name, level, meaning)


def check(name: str, level: Level, among: dict[str, Check] = CHECKS) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function `(raw) -> findings` under a name; its docstring becomes the check's meaning in the docs."""

    def register(run: CheckFunction) -> CheckFunction:
        among[name] = Check(name, level, (run.__doc__ or "").strip(), run)
        return run

    return register


def examine(raw: RawLog) -> Report:
    """Run every check and return one report; for an empty log only the check for rows runs."""
    return report_of(raw, findings(raw))


def findings(raw: RawLog) -> list[tuple[Check, Finding]]:
    """The findings of the reader and of every check, each with all its rows."""
    results = [(CHECKS[name], finding) for name, finding in raw.found]
    explained = any(one.level == "error" for one, _ in results)  # such as lines without a closing quote
    for one in CHECKS.values():
        if one.run is not None and (raw.rows or (one.name == "empty log" and not explained)):
            results += [(one, finding) for finding in one.run(raw)]
    return results


def report_of(raw: Numbered, found: Iterable[tuple[Check, Finding]]) -> Report:
    """Build the report of findings: the first ten rows of each, and the number of rows."""
    problems = []
    for one, finding in found:
        at = np.sort(finding.at)[:_SHOWN_ROWS] if finding.at is not None else np.zeros(0, int)
        rows = tuple(int(number) for number in raw.numbers[at])
        lines = tuple(row + 1 for row in rows) if raw.has_lines else ()
        files = () if raw.files is None else tuple(raw.files.of(at))
        count = 0 if finding.at is None else len(finding.at)
        column, _, text, expected, fix = finding
        problems.append(Problem(one.level, one.name, column, rows, count, text, expected, fix, lines, files))
    return Report(raw.source, raw.rows, tuple(problems))


def as_table(checks: dict[str, Check] = CHECKS) -> str:
    """Registered checks as a Markdown table, errors before warnings before notes."""
    ordered = sorted(checks.values(), key=lambda one: LEVELS.index(one.level))
    rows = [f"| {one.name} | {one.level} | {one.meaning} |" for one in ordered]
    return "\n".join(["| check | level | meaning |", "|---|---|---|", *rows])


def refusal(source: str, name: str, found: str, expected: str, fix: str) -> Report:
    """Build a report of the one error that made a source unreadable."""
    return Report(source, 0, (Problem(CHECKS[name].level, name, None, (), 0, found, expected, fix),))


def unreadable(
    source: str | Path,
    found: str,
    expected: str,
    fix: str = "export or copy the file again",
    name: str = "unreadable file",
    rows: Sequence[int] = (),
    count: int = 0,
    lines: Sequence[int] = (),
) -> LogError:
    """Build the LogError of a source that cannot be read; `rows` are the first of `count` faulty rows, from 1."""
    problem = Problem(CHECKS[name].level, name, None, tuple(rows), count, found, expected, fix, tuple(lines))
    report = Report(str(source), 0, (problem,))
    return LogError(report.text(), report)


def conversion_note(found: str, expected: str, fix: str, column: str | None = None) -> tuple[str, Finding]:
    """A note on a converted convention of the source."""
    return "converted", Finding(column, None, found, expected, fix)


def unread_note(names: Iterable[str]) -> list[tuple[str, Finding]]:
    """A note on the parts of a file that were not read; empty if everything was read."""
    listed = sorted(names)
    if not listed:
        return []
    more = f" and {len(listed) - _SHOWN_NAMES} more" if len(listed) > _SHOWN_NAMES else ""
    found = f"not read: {', '.join(listed[:_SHOWN_NAMES])}{more}"
    return [conversion_note(found, "decisions", "nothing, if they are not needed")]


rule("unreadable file", "error", "The file is missing, cut off, empty, or not of the format that its name says.")
rule("unknown mapping key", "error", "The mapping holds an unknown key.")
rule("bad mapping", "error", "The mapping contradicts itself or holds an invalid value.")
rule("missing column", "error", "The mapping names a column that the log does not have.")
rule("ragged rows", "error", "Rows of a text file have more or fewer fields than its header.")
rule("duplicate column name", "error", "A column that the mapping names appears twice in the header.")
rule(
    "unread ends", "error", "An array of this format would not be read, but its name says where episodes end or begin."
)
rule("wrong length", "error", "An array, a mask or a list of bounds has a length that does not fit the log.")
rule("changing shapes", "error", "Rows of one column have different shapes, or too many axes.")
rule("unknown category", "error", "A categorical column holds a value that is not in its declared vocabulary.")
rule("unreadable image", "error", "An image file is missing, damaged, or of an unsupported format.")
rule("files differ", "error", "A column that the mapping names is missing in one file, or has another type there.")
rule("possible end column", "warning", "A column is named like ends of episodes, and the mapping names no such column.")
rule(
    "incomplete episodes",
    "warning",
    "Rows of an episode were left out, and others of it remain, as if they followed each other.",
)
rule(
    "rewards lost in 32 bits",
    "error",
    "Storage in 32 bits changes rewards by a tenth of their spread or more, as with 1 beside 100,000,000.",
)
rule(
    "rewards rounded in 32 bits",
    "warning",
    "Storage in 32 bits changes rewards by a hundredth of their spread or more.",
)
rule("several files", "note", "The log was read from several files, in the order of their names.")
rule("filled", "note", "Empty cells of observations were filled by the rule of the mapping.")
rule("rare labels", "note", "Labels in few rows were joined to one, by the rule of the mapping.")
rule("rows left out", "note", "Rows with an empty cell in a column of `drop_rows_without` were left out.")
rule("blank lines", "note", "Lines without any value were skipped.")
rule(
    "converted",
    "note",
    "A convention of the source was converted, such as actions counted from a number other than 0.",
)
