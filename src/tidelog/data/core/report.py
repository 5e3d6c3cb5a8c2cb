"""The report of the checks of a log: every problem with its rows, what was found, what was expected, how to fix it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from tidelog.errors import LogError

Level: TypeAlias = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
_WIDTH = 100
_WRAP = textwrap.TextWrapper(_WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)


@dataclass(frozen=True)
class Problem:
    """One finding: `rows` are the first ten of `count`, counted from 1; `lines` are their lines in a text file.

    In a log of several files `files` names the file of each row, and rows and lines are counted in that file.
    """

    level: Level
    check: str
    column: str | None
    rows: tuple[int, ...]
    count: int
    found: str
    expected: str
    fix: str
    lines: tuple[int, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def places(self) -> str:
        """The rows as text, with their lines and files if known."""
        if not self.files:
            word = "line" if self.count == 1 else "lines"
            lines = f" ({word} {_listed(self.lines, self.count)})" if self.lines else ""
            return f"{_listed(self.rows, self.count)}{lines}"
        parts = []
        for file in dict.fromkeys(self.files):
            at = [place for place, one in enumerate(self.files) if one == file]
            word = "line" if len(at) == 1 else "lines"
            lines = f" ({word} {', '.join(str(self.lines[place]) for place in at)})" if self.lines else ""
            parts.append(f"{', '.join(str(self.rows[place]) for place in at)} in {file}{lines}")
        return "; ".join(parts) + ("; ..." if self.count > len(self.rows) else "")

    @property
    def heading(self) -> list[str]:
        """Level, name and place of the problem, in lines at most 100 columns wide."""
        text = f"{self.level}: {self.check}" + (f" in '{self.column}'" if self.column else "")
        if self.rows:
            text += f", {_counted(self.count, 'row')}: {self.places}"
        return _WRAP.wrap(text)

    def text(self) -> str:
        """The problem as text, at most 100 columns wide."""
        parts = [f"  found: {self.found}", f"  expected: {self.expected}", f"  fix: {self.fix}"]
        return "\n".join([*self.heading, *(line for part in parts for line in _WRAP.wrap(part))])


@dataclass(frozen=True)
class Report:
    """The result of all checks of `source`, which has `rows` rows."""

    source: str
    rows: int
    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Problems that make the log unusable."""
        return tuple(problem for problem in self.problems if problem.level == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Problems that are reported without refusing the log."""
        return tuple(problem for problem in self.problems if problem.level == "warning")

    @property
    def notes(self) -> tuple[Problem, ...]:
        """Inferred or converted facts."""
        return tuple(problem for problem in self.problems if problem.level == "note")

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    @property
    def lines(self) -> list[str]:
        """The lines of the report: a summary, then errors, warnings and notes."""
        counts = [_counted(len(self.errors), "error"), _counted(len(self.warnings), "warning")]
        counts += [_counted(len(self.notes), "note"), f"{_counted(self.rows, 'row')} read"]
        ordered = sorted(self.problems, key=lambda problem: LEVELS.index(problem.level))
        return [f"{self.source}: {', '.join(counts)}", *(line for one in ordered for line in one.text().split("\n"))]

    def text(self) -> str:
        """The whole report as plain text."""
        return "\n".join(self.lines)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists that `from_json` reads back."""
        problems = [asdict(problem) for problem in self.problems]
        for problem in problems:
            if not problem["files"]:  # one file: `source`
                del problem["files"]
        return {"source": self.source, "rows": self.rows, "ok": self.ok, "problems": problems}

    @classmethod
    def from_json(cls, data: Any) -> Report:
        """Rebuild a report from `to_json`; LogError for a field of another type."""
        from tidelog.schema import typed

        return typed(data, cls, "a saved report is invalid", LogError, "validate the log again")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _listed(numbers: Iterable[int], count: int) -> str:
    numbers = list(numbers)
    return ", ".join(map(str, numbers)) + (", ..." if count > len(numbers) else "")
