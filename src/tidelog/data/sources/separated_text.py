"""Read separated text, such as CSV: every cell as text, so that one odd cell cannot change the type of a column.

A header of one field that another usual separator divides, as in tables from some spreadsheets, sets the separator.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog.data.core.columns import USUAL_FORM, TextForm
from tidelog.data.core.raw import Finding
from tidelog.data.core.registry import conversion_note, unreadable
from tidelog.data.parsing.tables import Table, unique
from tidelog.data.sources.file_bytes import BOM, CELL, PACKED, ending_of, read_bytes, refuse_large, refuse_wide
from tidelog.errors import LogError

SEPARATORS = {f"{ending}{packed}": sign for ending, sign in ((".csv", ","), (".tsv", "\t")) for packed in ("", *PACKED)}
_TABBED = tuple(ending for ending, sign in SEPARATORS.items() if sign == "\t")
DIVIDED = "fields that are separated by "
OTHER_SEPARATORS = (";", "\t", "|")
UNUSUAL_SEPARATORS = ("\x01", "~", "^", "#", "!", ":", " ")  # the first is that of Hive
_TEXT = "text in UTF-8 with one header line"
_SHOWN = 10
_ZLIB = (b"x\x01", b"x^")  # begin compressed data, so Polars would decompress text that begins with them
_COMMA_NUMBER = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?$"
_LOCAL_NUMBER = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?$"  # also without a fraction


def read_csv(path: Path, columns: Sequence[str] | None) -> Table:
    """Read comma-separated text, compressed or not."""
    return read_separated(path, ",")


def read_tsv(path: Path, columns: Sequence[str] | None) -> Table:
    """Read tab-separated text, compressed or not."""
    return read_separated(path, "\t")


def read_separated(path: Path, usual: str, form: TextForm = USUAL_FORM) -> Table:
    """Read a table of text columns; LogError for files that are truncated, ragged, empty or not in UTF-8.

    The `usual` separator of the file's ending gives way to that of the form.

    Rows are counted from 1. Blank lines are skipped, with a note.
    """
    data = read_bytes(path, _TEXT)
    found: list[tuple[str, Finding]] = []
    separator, has_header = form.separator or usual, form.header
    try:
        header = next(_records(data, separator))[1]
        other = _other_separator(data) if len(header) == 1 and form.separator is None else None
        if other is not None:
            separator, header = other, next(_records(data, other))[1]
            divided = f"{DIVIDED}{other!r}"
            found.append(conversion_note(divided, "the usual separator", "nothing, if the columns are right"))
        if not has_header:
            header = [f"column_{place}" for place in range(1, len(header) + 1)]
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error
    except csv.Error as error:
        raise unreadable(path, f"a header that cannot be read ({error})", _TEXT) from error
    refuse_wide(path, len(header))
    cells = data.count(separator.encode()) + data.count(b"\n") + 1
    refuse_large(path, len(data) + CELL * cells, _TEXT)
    try:
        frame = pl.read_csv(
            BOM + data if data.startswith(_ZLIB) else data,
            separator=separator,
            has_header=has_header,
            infer_schema=False,
            new_columns=unique(header),
        )
    except pl.exceptions.PolarsError as error:
        _refuse_ragged(path, data, separator, error, first_row=int(not has_header))
        raise unreadable(path, str(error).split("\n")[0], _TEXT) from error
    if frame.height and frame[:, -1].null_count():
        _refuse_ragged(path, data, separator, first_row=int(not has_header))
    numbers = np.arange(1, frame.height + 1)
    # each row has its own line; messages count them after a header
    has_lines = has_header and data.count(b"\n") + (not data.endswith(b"\n")) == frame.height + 1
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
    if blank.any() and frame.width > 1:
        listed = ", ".join(map(str, numbers[blank][:10]))
        counted = f"{int(blank.sum()):,} lines without any value (rows {listed}), skipped"
        note = Finding(None, None, counted, "a decision on every line", "nothing, if they are accidental")
        found.append(("blank lines", note))
        frame, numbers = frame.filter(~pl.Series(blank)), numbers[~blank]
    frame = _with_points(frame) if form.decimal == "," else frame
    return Table(str(path), frame, numbers, header, has_lines, found)


def _with_points(frame: pl.DataFrame) -> pl.DataFrame:
    """Rewrite numbers such as 1.234,5 as 1234.5, in columns where one has a comma; other cells stay as they are."""
    cells = (pl.col(name).str.strip_chars() for name in frame.columns)
    commas = frame.select(cell.str.contains(_COMMA_NUMBER).any() for cell in cells).row(0)
    points = (
        pl.when(pl.col(name).str.strip_chars().str.contains(_LOCAL_NUMBER))
        .then(pl.col(name).str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True))
        .otherwise(pl.col(name))
        .alias(name)
        for name, has_commas in zip(frame.columns, commas, strict=True)
        if has_commas
    )
    return frame.with_columns(points)


def has_decimal_commas(table: Table, separator: str | None) -> bool:
    """Whether numbers of a text file have a comma before their fraction: a column of such numbers and whole ones.

    A comma must not divide the fields. Pairs of flags such as 1,0 are no fractions.
    """
    divided = separator is not None or table.source.lower().endswith(_TABBED) or any(
        one.found.startswith(DIVIDED) for _, one in table.found
    )  # fmt: skip
    if not divided or not isinstance(table.data, pl.DataFrame):
        return False
    for series in table.data.iter_columns():
        cells = series.cast(pl.String).str.strip_chars().drop_nulls()
        cells = cells.filter(cells.str.contains(r"\d"))  # the others are words for an empty cell
        local = cells.str.contains(_COMMA_NUMBER)
        pairs = cells.str.contains(r"^[01],[01]$").all()
        if local.any() and not pairs and (cells.str.contains(_LOCAL_NUMBER).all()):
            return True
    return False


def _other_separator(data: bytes) -> str | None:
    """The separator that divides the first two records into equally many fields, at least two; None without one."""
    for separator in OTHER_SEPARATORS:
        widths = [len(record) for _, (_, record) in zip(range(2), _records(data, separator), strict=False)]
        if widths[0] > 1 and len(set(widths)) == 1:
            return separator
    return None


def unusual_separator(source: Any) -> str | None:
    """The character that divides the first lines of a text file without a usual separator; None if there is none.

    These lines must have at least three fields each, and equally many.
    """
    if not isinstance(source, str | Path) or not Path(source).is_file():
        return None
    path = Path(source)
    ending = ending_of(path, SEPARATORS)
    if ending is None:
        return None
    data, usual = read_bytes(path, _TEXT), SEPARATORS[ending]
    try:
        if len(next(_records(data, usual))[1]) > 1 or _other_separator(data) is not None:
            return None
        for separator in UNUSUAL_SEPARATORS:
            widths = [len(record) for _, (_, record) in zip(range(20), _records(data, separator), strict=False)]
            if min(widths) > 2 and len(set(widths)) == 1:
                return separator
    except (UnicodeDecodeError, csv.Error):
        pass  # the reader says what is wrong
    return None


def _refuse_ragged(path: Path, data: bytes, separator: str, cause: Exception | None = None, first_row: int = 0) -> None:
    """Raise LogError if records differ in width; called only after an error, because it reads the whole file."""
    rows: list[int] = []
    lines: list[int] = []
    widths: list[int] = []
    width = count = last = 0
    try:
        for row, (line, record) in enumerate(_records(data, separator), first_row):
            width = width or len(record)
            last = row if record else last
            if record and len(record) != width:
                count += 1
                rows, lines, widths = [*rows, row][:_SHOWN], [*lines, line][:_SHOWN], [*widths, len(record)][:_SHOWN]
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from (cause or error)
    except csv.Error as error:
        raise unreadable(path, f"an unclosed or misplaced quote ({error})", _TEXT) from (cause or error)
    if count:
        several = ", ".join(map(str, dict.fromkeys(widths)))
        found, expected = f"{several} field{'' if several == '1' else 's'}", f"{width} fields in every row"
        fix = "correct these lines, or quote fields with the separator"
        if [last] == rows[:count] and widths[0] < width:
            fix = "the last line is incomplete: export or copy the file again"
        raise unreadable(path, found, expected, fix, "ragged rows", rows, count, lines) from cause


def _not_utf8(path: Path, error: UnicodeDecodeError) -> LogError:
    return unreadable(path, f"bytes that are not UTF-8 ({error})", _TEXT, "save the file as UTF-8")


def _records(data: bytes, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each record; the header is record 0."""
    with io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="") as text:
        reader = csv.reader(text, delimiter=separator, strict=True)
        before = 0
        for record in reader:
            yield before + 1, record
            before = reader.line_num
