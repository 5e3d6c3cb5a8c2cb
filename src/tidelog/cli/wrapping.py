"""Text for a terminal, broken between words; text for a pipe or a file stays as it is."""

from __future__ import annotations

import shutil
import textwrap
from typing import TextIO

from tidelog.terminal_text import printable

WHOLE = ("next:", "then:", "tidelog ", "fix: tidelog ")  # lines that begin so hold a command to copy


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
