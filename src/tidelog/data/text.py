"""Text files as tables: bytes, JSON objects, separated values."""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import polars as pl

from tidelog._files import open_regular, parse_json, read_regular
from tidelog._machine import available_memory, in_units, shortage
from tidelog.data.columns import USUAL_FORM, TextForm
from tidelog.data.parse import Table, unique
from tidelog.data.raw import Finding, conversion_note, unreadable
from tidelog.errors import LogError, install

# The bytes of a file, compressed or not, within the memory that is available.

BOM = b"\xef\xbb\xbf"
MOST_COLUMNS = 10_000
CELL = 24  # bytes of memory of one cell, beside its text
FIX_MEMORY = "split the file, read a part of it, or use a machine with more memory"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
_AT_ONCE = 1 << 22  # decompressed bytes


def _only_member(stream: BinaryIO) -> Any:
    """The one file of a zip archive; ValueError for several."""
    archive = zipfile.ZipFile(stream)
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise ValueError(f"{len(names)} files in the archive, expected one")
    return archive.open(names[0])


def _zstandard(stream: BinaryIO) -> Any:
    """A stream of Zstandard; ModuleNotFoundError where no module reads it (Python below 3.14 needs zstandard)."""
    for module, name in (("compression.zstd", "ZstdFile"), ("zstandard", "ZstdDecompressor")):
        try:
            opened = getattr(importlib.import_module(module), name)
        except ImportError:
            continue
        return opened(stream) if name == "ZstdFile" else opened().stream_reader(stream, read_across_frames=True)
    raise ModuleNotFoundError("there is no module that reads .zst")


PACKED: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zip": _only_member,
    ".zst": _zstandard,
}
DAMAGED = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)


def ending_of(path: str | Path, known: Iterable[str]) -> str | None:
    """The longest known ending of a path; None if there is none."""
    name = Path(path).name.lower()
    return max((ending for ending in known if name.endswith(ending)), key=len, default=None)


def read_bytes(path: Path, expected: str) -> bytes:
    """Read the text of a file, decompressed and without a byte order mark.

    LogError if it is truncated, empty or in UTF-16.
    """
    try:
        data = read_regular(path)
    except OSError as error:
        raise unreadable(path, str(error), expected, "check the path") from error
    unpack = PACKED.get(path.suffix.lower())
    if unpack is not None:
        try:
            with unpack(io.BytesIO(data)) as stream:
                data = _unpacked(path, stream, expected)
        except ModuleNotFoundError as error:
            raise unreadable(path, str(error), expected, install("zst")) from error
        except Exception as error:  # ZstdError is of a module that may be absent
            if not isinstance(error, DAMAGED) and type(error).__name__ != "ZstdError":
                raise
            raise unreadable(path, f"the compressed file is truncated or damaged ({error})", expected) from error
    if data.startswith(_WIDE_BOMS):
        raise unreadable(path, "text in UTF-16", expected, "save the file as UTF-8")
    data = data.removeprefix(BOM)
    if not data.strip():
        raise unreadable(path, "an empty file", expected)
    return data


def _unpacked(path: Path, stream: IO[bytes], expected: str) -> bytes:
    """The contents of a compressed stream; LogError once they take half of the memory that was available."""
    free = available_memory()
    most = None if free is None else free // 2
    content = bytearray()
    while part := stream.read(_AT_ONCE):
        content += part
        if most is not None and len(content) > most:
            found = f"more than {in_units(most)} of decompressed text; {in_units(free or 0)} of memory are available"
            raise unreadable(path, found, expected, FIX_MEMORY)
    return bytes(content)


def refuse_wide(path: Path, columns: int) -> None:
    """Raise LogError for a table of too many columns, which would take memory and time for each."""
    if columns > MOST_COLUMNS:
        fix = "keep a feature vector as one column of lists, or in an npz file"
        raise unreadable(path, f"{columns:,} columns", f"at most {MOST_COLUMNS:,}", fix)


def refuse_large(path: Path, size: int, expected: str) -> None:
    """Raise LogError if this many bytes are more than the memory that is available."""
    problem = shortage(size)
    if problem is not None:
        raise unreadable(path, problem, expected, FIX_MEMORY)


# Read JSON objects, one a line or in one document; inner objects become columns with dots in their names.

DOCUMENTS = tuple(f".json{packed}" for packed in ("", *PACKED))
_LINES = "one JSON object per line, in UTF-8"
_DOCUMENT = "one JSON document: a list of objects, or an object with one list of objects"
_HEAD = 1 << 16  # bytes of a JSON file that tell its kind
_REAGENT = (b'"mdp_id"', b'"sequence_number"', b'"state_features"')
_LISTED = re.compile(rb":\s*\[\s*\{")
_SHOWN = 10
_SCALARS = {int, float, bool}
_ENTRY = 100  # bytes of memory of one value of a JSON object


def read_lines(path: Path, columns: Sequence[str] | None) -> Table:
    """Read a table of JSON lines, compressed or not; rows are numbered by line, and a missing key is null."""
    return read_objects(path)


def read_document(path: Path, columns: Sequence[str] | None) -> Table:
    """Read the list of objects in one JSON document, compressed or not; rows are counted from 1."""
    return read_objects(path, document=True)


def is_document(path: Path) -> bool:
    """Whether a .json file begins like one document with a list of objects, and not like ReAgent's lines.

    False for a file that cannot be opened; what is beyond its first 64 KiB is not looked at.
    """
    try:
        with open_regular(path) as stream:
            unpack = PACKED.get(path.suffix.lower())
            if unpack is None:
                head = stream.read(_HEAD)
            else:
                with unpack(stream) as unpacked:
                    head = unpacked.read(_HEAD)
    except (*DAMAGED, ModuleNotFoundError):
        return False  # the reader says what is wrong
    head = head.removeprefix(BOM).lstrip()
    return head.startswith(b"[") or (
        head.startswith(b"{") and bool(_LISTED.search(head)) and not any(key in head for key in _REAGENT)
    )


def _document_objects(path: Path, data: bytes) -> tuple[list[dict[str, Any]], list[tuple[str, Finding]]]:
    """The objects of a document, and a note on other keys; LogError if it has no list of objects, or several."""
    try:
        value = parse_json(data)
    except ValueError as error:
        fix = "export or copy the file again; objects one a line are read from a file that ends in .jsonl"
        raise unreadable(path, f"text that is not one JSON value: {error}", _DOCUMENT, fix) from error
    lists = {"": value} if isinstance(value, list) else value if isinstance(value, dict) else {}
    found = {
        name: entries
        for name, entries in lists.items()
        if isinstance(entries, list) and entries and all(isinstance(one, dict) for one in entries)
    }
    if len(found) != 1:
        what = f"{len(found):,} lists of objects" + (f": {', '.join(list(found)[:_SHOWN])}" if found else "")
        fix = "write the decisions alone as one list of objects, or one object a line into a .jsonl file"
        raise unreadable(path, what, _DOCUMENT, fix)
    ((name, objects),) = found.items()
    others = [key for key in lists if key != name]
    if not others:
        return objects, []
    counted = f"the objects of '{name}' are rows; not read: {', '.join(others[:_SHOWN])}"
    return objects, [conversion_note(counted, "a list of objects", "nothing, if the others are not about decisions")]


def read_objects(
    path: Path, keep: Callable[[str], bool] = bool, explode: str | None = None, document: bool = False
) -> Table:
    """Read JSON objects by flat name, for outer keys with `keep(key)`; LogError for broken lines.

    The objects are one a line, or those of the list in one `document`, whose rows are counted from 1. With `explode`,
    each object of the list under this name is a row, which repeats the other keys of its line; a key that both have is
    `<explode>.<key>`. Rows are then counted from 1.
    """
    inner: set[str] = set()  # names of the keys of exploded objects
    without = 0  # lines whose list is empty
    columns: dict[str, tuple[list[int], list[Any]]] = {}  # the rows and the values of each name
    numbers: list[int] = []
    broken: list[tuple[int, str]] = []
    expected = _DOCUMENT if document else _LINES
    data = read_bytes(path, expected)
    refuse_large(path, len(data) + _ENTRY * (data.count(b",") + data.count(b"\n") + data.count(b"{")), expected)
    objects, note = _document_objects(path, data) if document else (data.split(b"\n"), [])
    for number, text in enumerate(objects, 1):
        if isinstance(text, bytes) and not text.strip():
            continue
        try:
            value = parse_json(text) if isinstance(text, bytes) else text
            if not isinstance(value, dict):
                raise ValueError(f"{type(value).__name__} instead of an object")
            entries = list(_flat("", {key: one for key, one in value.items() if keep(key)}))
            records = [entries] if explode is None else _exploded(entries, explode, inner)
            if any(len({name for name, _ in record}) < len(record) for record in records):
                raise ValueError("the same name twice: with dots and as an inner object")
        except (ValueError, RecursionError) as error:
            deep = "its values are nested too deeply"
            broken.append((number, deep if isinstance(error, RecursionError) else str(error)))
            continue
        without += not records
        for record in records:
            for name, entry in record:
                rows, values = columns.setdefault(name, ([], []))
                rows.append(len(numbers))
                values.append(entry)
            numbers.append(number if explode is None else len(numbers) + 1)
        refuse_wide(path, len(columns))
    if broken:
        lines = [number for number, _ in broken[:_SHOWN]]
        fix = "correct these lines; an incomplete last line means a truncated file"
        if not document and (not numbers or data.lstrip().startswith(b"[")):
            fix = "a list of objects in one .json document is a table: `tidelog data inspect` proposes its mapping"
        found = f"{'objects that cannot be read' if document else 'lines that are not a JSON object'}: {broken[0][1]}"
        raise unreadable(path, found, expected, fix, rows=lines, count=len(broken))
    if not columns:
        raise unreadable(path, "objects without known keys", expected, "a file for this reader has other keys")
    refuse_large(path, CELL * len(numbers) * len(columns), expected)
    series = []
    for name, (rows, values) in columns.items():
        if len(rows) < len(numbers):
            complete: list[Any] = [None] * len(numbers)
            for row, entry in zip(rows, values, strict=True):
                complete[row] = entry
            values = complete
        series.append(_series(path, name, values))
    frame = pl.DataFrame(series)
    if explode is None:
        return Table(str(path), frame, np.asarray(numbers), frame.columns, found=note)
    frame = frame.rename({name: short for name in inner if (short := name[len(explode) + 1 :]) not in columns})
    counted = f"{without:,} lines whose list '{explode}' is empty: they have no row"
    if without:
        note.append(conversion_note(counted, "a list of objects", "nothing, if nothing was decided there"))
    return Table(str(path), frame, np.asarray(numbers), frame.columns, found=note)


def _exploded(entries: list[tuple[str, Any]], explode: str, inner: set[str]) -> list[list[tuple[str, Any]]]:
    """The entries of each object in a list, after those of its line; ValueError if there is no list of objects."""
    listed = dict(entries).get(explode)
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError(f"no list of objects under '{explode}'")
    outer = [(name, value) for name, value in entries if name != explode]
    objects = [list(_flat(f"{explode}.", one)) for one in listed]
    inner.update(name for one in objects for name, _ in one)
    return [[*outer, *one] for one in objects]


def _flat(prefix: str, entries: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in entries.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield prefix + key, value


def _series(path: Path, name: str, values: list[Any]) -> pl.Series:
    """Numbers, flags, text or lists of numbers; a column of mixed types becomes text, which reveals odd cells."""
    kinds = {type(value) for value in values} - {type(None)}
    try:
        if kinds == {list}:
            inner = {type(item) for value in values if value is not None for item in value} - {type(None)}
            convert: Callable[[Any], Any] = _number if inner <= _SCALARS else _as_text
            lists = [None if value is None else _each(convert, value) for value in values]
            return pl.Series(name, lists, pl.List(pl.Float64 if convert is _number else pl.String))
        if len(kinds) <= 1 or kinds == {int, float}:
            return pl.Series(name, values, pl.Float64 if float in kinds else None)
        return pl.Series(name, _each(_as_text, values), pl.String)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):  # whole numbers beyond 64 bits
        return pl.Series(name, _each(_number, values), pl.Float64)
    except UnicodeError as error:
        raise unreadable(path, f"text in {name!a} that is not valid Unicode ({error})", _LINES) from error
    except RecursionError as error:
        raise unreadable(path, f"lists in {name!a} that are nested too deeply", _LINES) from error


def _each(convert: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def _number(value: float) -> float:
    return float(str(value)) if type(value) is int else float(value)  # also beyond 64 bits


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# Read separated text, such as CSV: every cell as text, so that one odd cell cannot change the type of a column.
#
# A header of one field that another usual separator divides, as in tables from some spreadsheets, sets the separator.

SEPARATORS = {f"{ending}{packed}": sign for ending, sign in ((".csv", ","), (".tsv", "\t")) for packed in ("", *PACKED)}
_TABBED = tuple(ending for ending, sign in SEPARATORS.items() if sign == "\t")
DIVIDED = "fields that are separated by "
OTHER_SEPARATORS = (";", "\t", "|")
UNUSUAL_SEPARATORS = ("\x01", "~", "^", "#", "!", ":", " ")  # the first is that of Hive
_TEXT = "text in UTF-8 with one header line"
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
