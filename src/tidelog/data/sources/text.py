"""Separated text: every column is read as text; one odd cell cannot change the type of a column silently."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from tidelog.data.core.raw import Finding
from tidelog.data.core.registry import refusal
from tidelog.data.core.report import Report
from tidelog.data.parsing.tables import Table, unique
from tidelog.data.sources.content import content, unreadable
from tidelog.errors import LogError

_EXPECTED = "text in UTF-8 with one header line"


def read_separated(path: Path, separator: str) -> Table:
    """Read a table of text columns; LogError for files that are truncated, ragged, empty or not in UTF-8."""
    data = content(path, _EXPECTED)
    header = _header(path, data, separator)
    try:
        frame = pl.read_csv(data, separator=separator, infer_schema=False, new_columns=unique(header))
    except pl.exceptions.PolarsError as error:
        raise _explained(path, data, separator, str(error)) from error
    if frame.height and frame[:, -1].null_count():
        _refuse_ragged(path, data, separator)
    return _numbered(path, data, frame, header)


def _header(path: Path, data: bytes, separator: str) -> list[str]:
    try:
        return next(_records(data, separator))[1]
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"bytes that are not UTF-8 ({error})", "save the file as UTF-8") from error
    except csv.Error as error:
        raise _unreadable(path, f"a header that cannot be read ({error})") from error


def _numbered(path: Path, data: bytes, frame: pl.DataFrame, header: list[str]) -> Table:
    """Count rows from 1, skip blank lines (with a note), and detect whether each row has its own line."""
    numbers = np.arange(1, frame.height + 1)
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    has_lines = lines == frame.height + 1
    found = []
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
    if blank.any() and frame.width > 1:
        listed = ", ".join(map(str, numbers[blank][:10]))
        counted = f"{int(blank.sum()):,} lines without any value (rows {listed}), skipped"
        found.append(
            ("blank lines", Finding(None, None, counted, "a decision on every line", "nothing, if they are accidental"))
        )
        frame, numbers = frame.filter(~pl.Series(blank)), numbers[~blank]
    return Table(str(path), frame, numbers, header, has_lines, found)


def _explained(path: Path, data: bytes, separator: str, message: str) -> LogError:
    """The cause of a Polars error: ragged rows if there are any, else the first line of its message."""
    try:
        _refuse_ragged(path, data, separator)
    except LogError as error:
        return error
    return _unreadable(path, message.split("\n")[0])


def _refuse_ragged(path: Path, data: bytes, separator: str) -> None:
    """Name the records of another width; called only after an error, because it reads the whole file."""
    rows: list[int] = []
    lines: list[int] = []
    width = count = 0
    try:
        for row, (line, record) in enumerate(_records(data, separator)):
            width = width or len(record)
            if record and len(record) != width:
                count += 1
                rows, lines = [*rows, row][:10], [*lines, line][:10]
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"bytes that are not UTF-8 ({error})", "save the file as UTF-8") from error
    except csv.Error as error:
        raise _unreadable(path, f"an unclosed or misplaced quote ({error})") from error
    if count:
        raise _ragged(path, rows, lines, count, width)


def _ragged(path: Path, rows: list[int], lines: list[int], count: int, width: int) -> LogError:
    advice = "correct these lines, or quote fields with the separator; an incomplete last line means a truncated file"
    found = "rows with more or fewer fields than the header"
    problem = refusal(str(path), "ragged rows", found, f"{width} fields in every row", advice).problems[0]
    report = Report(str(path), 0, (replace(problem, rows=tuple(rows), count=count, lines=tuple(lines)),))
    return LogError(report.text(), report)


def _records(data: bytes, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each record; the header is record 0."""
    with io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="") as text:
        reader = csv.reader(text, delimiter=separator, strict=True)
        before = 0
        for record in reader:
            yield before + 1, record
            before = reader.line_num


def _unreadable(path: Path, found: str, advice: str = "export or copy the file again") -> LogError:
    return unreadable(path, found, _EXPECTED, advice)
