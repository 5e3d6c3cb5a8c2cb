"""Words and numbers for people: on a terminal, in a notebook, in a message."""

from __future__ import annotations

import math
import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TextIO

# Text from logs, files and names, made safe to print: control characters are shown, not obeyed.

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return the text with escapes such as `\u001b` for control characters and for marks that turn the direction.

    Bytes of a file name that are no UTF-8, which Python has as single surrogates, are escaped, too.
    JSON stays JSON of the same values.
    """
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    r"""Return the text with `\n` in place of the ends of its lines."""
    return text.replace("\n", "\\n")


# Numbers as text for people: three significant digits, with the unit if there is one.
#
# Every estimate that a person reads is written here, so that pages, verdicts and tables agree. Counts and settings are
# exact and not written here.

NOTHING = "no number"
_LARGEST = 1e9  # from here on with a power of ten


def three_digits(value: float, *, sign: bool = False) -> str:
    """Write a number with three significant digits: 0.0123, 4.5, 12,300; 'no number' if it is not finite."""
    if not math.isfinite(value):
        return NOTHING
    rounded = float(f"{value:.2e}")
    if rounded == 0.0:
        return "0"  # has no sign
    plus = "+" if sign else ""
    return f"{rounded:{plus},.0f}" if 1e3 <= abs(rounded) < _LARGEST else f"{rounded:{plus}.3g}"


def count_of(count: int, noun: str) -> str:
    """Write a count and its noun, in the singular for one: 1 row, 2,000 rows."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shorten(words: Iterable[object], most: int, between: str = ", ") -> str:
    """Write the first words, and dots where there are more of them."""
    several = list(words)
    return between.join(map(str, several[:most])) + (f"{between}..." if len(several) > most else "")


def amount(value: float, unit: str | None = None, *, sign: bool = False) -> str:
    """Write a number with three significant digits and its unit."""
    return f"{three_digits(value, sign=sign)}{in_unit(unit if math.isfinite(value) else None)}"


def with_ends(interval: Sequence[float], unit: str | None = None, *, sign: bool = False) -> str:
    """Write an estimate and the ends of its interval: 0.08 (0.01 to 0.15) or, without a lower end, 0.08 (at most 0.15).

    The unit is after the estimate.

    `interval` is (estimate, low, high).
    """
    estimate, low, high = interval
    number = amount(estimate, unit, sign=sign)
    if all(map(math.isfinite, interval)):
        return f"{number} ({three_digits(low, sign=sign)} to {three_digits(high, sign=sign)})"
    return f"{number} (at most {three_digits(high, sign=sign)})" if math.isfinite(high) else number


def in_unit(unit: str | None, before: str = "") -> str:
    """Write a unit after a space and `before`; nothing for None."""
    return f" {before}{unit}" if unit else ""


# Text for a terminal, broken between words; text for a pipe or a file stays as it is.

TO_TEST = "to test the policy beside what you have:"
WHOLE = ("next:", "then:", TO_TEST, "tidelog ", "fix: tidelog ")  # lines that begin so hold a command to copy


def wrapped(text: str, stream: TextIO) -> str:
    """Return printable text with lines that fit the terminal of a stream, broken at spaces; whole for other streams."""
    text = printable(text)
    if not stream.isatty():
        return text
    columns = max(shutil.get_terminal_size((80, 24)).columns, 40)
    return "\n".join(_wrapped_line(line, columns) for line in text.split("\n"))


def _wrapped_line(line: str, columns: int) -> str:
    words = line.lstrip()
    if len(line) <= columns or words.startswith(WHOLE):
        return line
    indent = line[: len(line) - len(words)]
    return textwrap.fill(
        words,
        columns,
        initial_indent=indent,
        subsequent_indent=f"{indent}  " if words.startswith("- ") else indent,
        break_long_words=False,  # a path or a command stays whole
        break_on_hyphens=False,
    )


# Small HTML tables for notebooks: no script, no style sheet, and all text escaped.

LEFT = ' style="text-align: left; white-space: pre-wrap"'


def facts_table(title: str, facts: Mapping[str, object]) -> str:
    """Return a table of two columns, the names of facts and their values; values are written as text."""
    return rows_table(title, (), facts.items())


def rows_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a heading for every column, if there are any; the first cell of a row is its name."""
    top = "".join(f"<th{LEFT}>{escape(name)}</th>" for name in head)
    body = [
        f"<tr><th{LEFT}>{escape(str(name))}</th>{''.join(f'<td{LEFT}>{escape(str(one))}</td>' for one in cells)}</tr>"
        for name, *cells in rows
    ]
    return f"<p><b>{escape(title)}</b></p><table>{f'<tr>{top}</tr>' if top else ''}{''.join(body)}</table>"
