"""The list of checks: each is one small function that yields findings, registered under a name and a level."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Finding, RawLog
from tidelog.data.core.report import LEVELS, Level, Problem, Report

CheckFunction: TypeAlias = Callable[[Any], Iterable[Finding]]
_SHOWN_ROWS = 10


class Numbered(Protocol):
    """What a report needs to know of what was examined."""

    @property
    def source(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def numbers(self) -> Values: ...
    @property
    def has_lines(self) -> bool: ...


@dataclass(frozen=True)
class Check:
    """A rule of the door; `run` is None where readers and parsers report it themselves."""

    name: str
    level: Level
    meaning: str
    run: CheckFunction | None = None


CHECKS: dict[str, Check] = {}


def rule(name: str, level: Level, meaning: str) -> None:
    """Register a rule that is found while a source is read."""
    CHECKS[name] = Check(name, level, meaning)


def check(name: str, level: Level, among: dict[str, Check] = CHECKS) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function `(raw) -> findings` under a name; its docstring is the rule's meaning in the docs."""

    def register(run: CheckFunction) -> CheckFunction:
        among[name] = Check(name, level, (run.__doc__ or "").strip(), run)
        return run

    return register


def examine(raw: RawLog) -> Report:
    """Run every check and return one report; without rows only that is said."""
    return report_of(raw, findings(raw))


def findings(raw: RawLog) -> list[tuple[Check, Finding]]:
    """What the reader found and what every check finds, each with all its rows."""
    found = [(CHECKS[name], finding) for name, finding in raw.found]
    for one in CHECKS.values():
        if one.run is not None and (raw.rows or (one.name == "empty log" and not raw.found)):
            found += [(one, finding) for finding in one.run(raw)]
    return found


def report_of(raw: Numbered, found: Iterable[tuple[Check, Finding]]) -> Report:
    """The report of findings: the first ten rows of each, and their count."""
    return Report(raw.source, raw.rows, tuple(_problem(raw, one, finding) for one, finding in found))


def as_table(checks: dict[str, Check] = CHECKS) -> str:
    """Registered checks as a Markdown table, errors before warnings before notes."""
    ordered = sorted(checks.values(), key=lambda one: LEVELS.index(one.level))
    rows = [f"| {one.name} | {one.level} | {one.meaning} |" for one in ordered]
    return "\n".join(["| check | level | meaning |", "|---|---|---|", *rows])


def refusal(source: str, name: str, found: str, expected: str, advice: str) -> Report:
    """A report of the one error that kept a source from being read at all."""
    return Report(source, 0, (Problem(CHECKS[name].level, name, None, (), 0, found, expected, advice),))


def _problem(raw: Numbered, one: Check, finding: Finding) -> Problem:
    at = np.sort(finding.at)[:_SHOWN_ROWS] if finding.at is not None else np.zeros(0, int)
    rows = tuple(int(number) for number in raw.numbers[at])
    lines = tuple(row + 1 for row in rows) if raw.has_lines else ()
    count = 0 if finding.at is None else len(finding.at)
    return Problem(
        one.level, one.name, finding.column, rows, count, finding.found, finding.expected, finding.advice, lines
    )


rule("unreadable file", "error", "The file is missing, cut off, empty, or not what its name says.")
rule("unknown mapping key", "error", "The mapping holds a key that no column or setting is called.")
rule("bad mapping", "error", "The mapping contradicts itself or holds a value that cannot be meant.")
rule("missing column", "error", "The mapping names a column that the log does not have.")
rule("ragged rows", "error", "Rows of a text file have more or fewer fields than its header.")
rule("duplicate column name", "error", "A column that the mapping names stands twice in the header.")
rule("wrong length", "error", "An array, a mask or a list of bounds has another length than the log needs.")
rule("changing shapes", "error", "Rows of one column have different shapes, or more axes than a log can hold.")
rule("unknown word", "error", "A categorical column holds a word that its declared vocabulary lacks.")
rule("unreadable picture", "error", "A picture file is missing, damaged, or of a kind that is not read.")
rule("filled", "note", "Empty cells of observations were filled as the mapping says.")
rule("blank lines", "note", "Lines without any value were passed over.")
rule(
    "converted",
    "note",
    "A source's convention was translated, such as actions that are counted from another number than 0.",
)
