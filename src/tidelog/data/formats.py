"""Formats of files: text, JSON, npz, D4RL and OGBench, Minari, robomimic.

At the end `TABLES`, also with Parquet and Arrow, and `ARRAYS` say what reads which ending.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib
import io
import json
import lzma
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
import polars as pl

from tidelog._files import check_regular, open_regular, parse_json, read_regular
from tidelog._machine import available_memory, in_units, shortage
from tidelog._text import count_of
from tidelog.data.checks import differences
from tidelog.data.columns import USUAL_FORM, TextForm
from tidelog.data.dependence import kind_of
from tidelog.data.parse import ROLES, ParsedTable, from_arrays, unique
from tidelog.data.raw import (
    ENDS,
    FIX_MEMORY,
    OGBENCH_MASKS,
    TERMINATIONS,
    Finding,
    RawLog,
    Values,
    conversion_note,
    is_end,
    refuse_unread_ends,
    termination_name,
    truncations,
    unread_note,
    unreadable,
)
from tidelog.data.storage import holds_objects, read_array
from tidelog.errors import LogError, install, nearest

# Text files as tables: bytes, JSON objects, separated values.

# The bytes of a file, compressed or not, within the memory that is available.

BOM = b"\xef\xbb\xbf"
MOST_COLUMNS = 10_000
CELL = 24  # bytes of memory of one cell, beside its text
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
_UNPACKED_AT_ONCE = 1 << 22  # decompressed bytes


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
                free = available_memory()
                most = math.inf if free is None else free // 2  # a bomb must not take all memory
                content = bytearray()
                while part := stream.read(_UNPACKED_AT_ONCE):
                    content += part
                    if len(content) > most:
                        available = f"{in_units(free or 0)} of memory are available"
                        found = f"more than {in_units(int(most))} of decompressed text; {available}"
                        raise unreadable(path, found, expected, FIX_MEMORY)
                data = bytes(content)
        except ModuleNotFoundError as error:
            raise unreadable(path, str(error), expected, install("zst")) from error
        except Exception as error:  # ZstdError is of a module that may be absent
            if not isinstance(error, DAMAGED) and type(error).__name__ != "ZstdError":
                raise
            raise unreadable(path, f"the compressed file is truncated or damaged ({error})", expected) from error
    if data.startswith(_WIDE_BOMS):
        raise unreadable(path, "text in UTF-16", expected, "save the file as UTF-8")
    data = data.removeprefix(BOM)
    if not data or data.isspace():
        raise unreadable(path, "an empty file", expected)
    return data


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
_LISTED = re.compile(rb":\s*\[\s*\{")
_SHOWN = 10
_SCALARS = {int, float, bool}
_ENTRY = 100  # bytes of memory of one value of a JSON object


def is_document(path: Path) -> bool:
    """Whether a .json file begins like one document with a list of objects.

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
    return head.startswith(b"[") or (head.startswith(b"{") and bool(_LISTED.search(head)))


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


def read_objects(path: Path, explode: str | None = None, document: bool = False) -> ParsedTable:
    """Read JSON objects by flat name; LogError for broken lines.

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
            entries = list(_flat("", value))
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
            fix = "a list of objects in one .json document is a table: `tidelog log inspect` proposes its mapping"
        found = f"{'objects that cannot be read' if document else 'lines that are not a JSON object'}: {broken[0][1]}"
        raise unreadable(path, found, expected, fix, rows=lines, count=len(broken))
    if not columns:
        raise unreadable(path, "objects without keys", expected)
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
        return ParsedTable(str(path), frame, np.asarray(numbers), frame.columns, found=note)
    frame = frame.rename({name: short for name in inner if (short := name[len(explode) + 1 :]) not in columns})
    counted = f"{without:,} lines whose list '{explode}' is empty: they have no row"
    if without:
        note.append(conversion_note(counted, "a list of objects", "nothing, if nothing was decided there"))
    return ParsedTable(str(path), frame, np.asarray(numbers), frame.columns, found=note)


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


def read_separated(path: Path, form: TextForm = USUAL_FORM) -> ParsedTable:
    """Read a table of text columns; LogError for files that are truncated, ragged, empty or not in UTF-8.

    The separator is that of the form, or else that of the file's ending. Rows are counted from 1. Blank lines are
    skipped, with a note.
    """
    data = read_bytes(path, _TEXT)
    if b"\n" not in data and b"\r" in data.rstrip(b"\r"):
        raise unreadable(path, "lines that end with a carriage return alone", _TEXT, "save the file with line feeds")
    found: list[tuple[str, Finding]] = []
    separator = form.separator or SEPARATORS.get(ending_of(path, SEPARATORS) or "", ",")
    has_header = form.header
    try:
        header = next(_records(data, separator))[1]
        other = _other_separator(data) if len(header) == 1 and form.separator is None else None
        if other is not None:
            separator, header = other, next(_records(data, other))[1]
            divided = f"{DIVIDED}{other!r}"
            found.append(conversion_note(divided, "the usual separator", "nothing, if the columns are right"))
        if not has_header:
            header = [f"column_{position}" for position in range(1, len(header) + 1)]
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
    return ParsedTable(str(path), frame, numbers, header, has_lines, found)


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


def has_decimal_commas(table: ParsedTable, separator: str | None) -> bool:
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
    every = set[int]()
    width = count = last = total = 0
    try:
        for row, (line, record) in enumerate(_records(data, separator), first_row):
            width = width or len(record)
            last = row if record else last
            if record and total:
                every.add(len(record))
            total += bool(record)
            if record and len(record) != width:
                count += 1
                rows, lines, widths = [*rows, row][:_SHOWN], [*lines, line][:_SHOWN], [*widths, len(record)][:_SHOWN]
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from (cause or error)
    except csv.Error as error:
        raise unreadable(path, f"an unclosed or misplaced quote ({error})", _TEXT) from (cause or error)
    if count:
        several = ", ".join(map(str, dict.fromkeys(widths)))
        found, expected = f"{several} field{'' if several == '1' else 's'}", f"{count_of(width, 'field')} in every row"
        fix = "correct these lines, or quote fields with the separator"
        if [last] == rows[:count] and widths[0] < width:
            fix = "the last line is incomplete: export or copy the file again"
        if first_row == 0 and count == total - 1 > 1 and len(every) == 1 and (width == 1 or data[:1] == b"#"):
            fix = "line 1 is no header: remove what is above the header"
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


# The data sets of an HDF5 file, all in the file itself.
#
# HDF5 can name other files: by external and soft links, by external storage and by virtual data sets. A reader that
# follows them returns whatever file the path names.

_COPIES = 3  # of the arrays in memory while a log is built


def own_datasets(file: Any) -> dict[str, Any]:
    """The data sets of a file by their path, as h5py's low-level objects, which are opened several times faster.

    OSError if a link or a data set leads out of its group, or a group appears twice.
    """
    from h5py import h5d, h5g, h5l, h5o

    links: list[tuple[bytes, int]] = []
    file.id.links.visit(lambda name, link: links.append((name, link.type)), info=True)
    found: dict[str, Any] = {}
    for encoded, kind in links:
        name = encoded.decode("utf-8", "replace")
        if kind != h5l.TYPE_HARD:
            which = "an external" if kind == h5l.TYPE_EXTERNAL else "a soft"
            raise OSError(f"'{name}' is {which} link: expected contents in the file itself")
        member = h5o.open(file.id, encoded)
        if isinstance(member, h5g.GroupID) and h5o.get_info(member).rc > 1:
            raise OSError(f"the group '{name}' contains itself or appears twice")
        if isinstance(member, h5d.DatasetID):
            plan = member.get_create_plist()
            layout = plan.get_layout()
            if layout == h5d.VIRTUAL or (layout == h5d.CONTIGUOUS and plan.get_external_count()):
                raise OSError(
                    f"'{name}' is a virtual data set or stored in another file: expected contents in the file"
                )
            found[name] = member
    return found


def check_memory(datasets: Iterable[Any]) -> None:
    """Raise OSError if the declared sizes of data sets exceed the memory that is available."""
    problem = shortage(_COPIES * sum(math.prod(one.shape or ()) * one.dtype.itemsize for one in datasets))
    if problem is not None:
        raise OSError(problem)


# Read files of arrays: npz archives with the names of `Log.from_arrays`, D4RL's HDF5 and OGBench's npz.
#
# D4RL, in HDF5 or npz: consecutive transitions with `terminals` and `timeouts`; d4rl itself is not needed. OGBench: T
# rows an episode with `next_observations`, or as downloaded T + 1 rows, of which the last is an observation without a
# decision.
#
# `terminals` of OGBench marks the end of a recording, which is a truncation. `masks` is 0 where the task was completed
# and there is no bootstrapping, which is a termination; recordings continue after it, therefore the episode is split
# there. Files as downloaded have neither rewards nor masks; these come with a task (`singletask`).

T = TypeVar("T")
_BROKEN_ARCHIVE = (OSError, ValueError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError)
_DAMAGED = (struct.error, zipfile.BadZipFile, zlib.error)
_BY_PART = ("observation", "next_observation", "action", "actions", "bounds")
_D4RL = ("observations", "actions", "rewards")
_D4RL_READ = (*_D4RL, "next_observations", *(name for name in ENDS if name not in OGBENCH_MASKS))
_D4RL_FILE = "arrays named observations, actions, rewards and terminals"
_OGBENCH = ("observations", "actions", "terminals")
_OGBENCH_READ = (*_OGBENCH, "next_observations", "rewards", "masks")
_OGBENCH_FILE = "an npz file with observations, actions and terminals"
_MOST_PACKED = 1100  # deflate packs at most 1,032 bytes into one


def raw_archive(path: Path) -> RawLog:
    """Read the arrays of D4RL or OGBench, or else those of `raw_npz`.

    OGBench's rewards come with `masks`; with rewards and an end, but without them, the names are those of D4RL.
    """
    names = set(_read_npz(path, lambda archive, members: list(members)))
    if names >= set(_D4RL) and names & set(TERMINATIONS) and not names & set(OGBENCH_MASKS):
        return raw_d4rl(path)
    return raw_ogbench(path) if names >= set(_OGBENCH) else raw_npz(path)


def raw_npz(path: str | Path) -> RawLog:
    """Read named arrays, `observation/<leaf>` for several leaves, `action/<part>` for those of an action.

    LogError for other files or unknown names.
    """
    arrays, objects = named_arrays(path)
    unknown = [name for name in arrays if name.split("/")[0] not in ROLES]
    if unknown:
        found = "; ".join(f"'{name}' ({nearest(name, ROLES)})" for name in unknown)
        expected = f"arrays named {', '.join(ROLES)}"
        raise unreadable(path, f"arrays {found}", expected, "rename them", "unknown mapping key")
    if not {"action", "observation"} <= {name.split("/")[0] for name in arrays}:
        found = f"arrays {', '.join(arrays)}"
        raise unreadable(path, found, "observation and action", "add or rename", "missing column")
    arguments: dict[str, Any] = {"reward": None}
    for name, array in arrays.items():
        role, _, part = name.partition("/")
        if part and role not in _BY_PART:
            continue
        value = array.tolist() if role in ("actions", "bounds", "atoms", "reward_unit", "elapsed_unit") else array
        if not part:
            arguments[role] = arguments[role] if isinstance(arguments.get(role), dict) else value
        else:
            arguments[role] = {**(arguments[role] if isinstance(arguments.get(role), dict) else {}), part: value}
    refuse_unread_ends(path, objects, "arrays of numbers")
    raw = from_arrays(str(path), **arguments)
    return replace(raw, found=(*raw.found, *unread_note(objects)))


def named_arrays(path: str | Path, needed: Collection[str] = ROLES) -> tuple[dict[str, Any], list[str]]:
    """Return the arrays of an npz file, and the names of arrays of objects outside `needed`, which are not read.

    LogError if the file is not an archive of arrays, declares more than it holds, or needs too much memory.
    """

    def read(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> tuple[dict[str, Any], list[str]]:
        arrays, objects = {}, []
        for name, member in members.items():
            with archive.open(member) as stream:
                if name.split("/")[0] not in needed and holds_objects(stream):
                    objects.append(name)
                    continue
            with archive.open(member) as stream:
                arrays[name] = read_array(stream, member.file_size)
        return arrays, objects

    return _read_npz(Path(path), read)


def _read_npz(path: Path, take: Callable[[zipfile.ZipFile, Mapping[str, zipfile.ZipInfo]], T]) -> T:
    """Take something from an archive by the names of its arrays; LogError if the file is not an archive of arrays."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            return take(archive, _members(archive, path.stat().st_size))
    except (*_BROKEN_ARCHIVE, *_DAMAGED) as error:
        raise unreadable(path, str(error).split("\n")[0], "an npz file", "save it again") from error


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members of an archive of `size` bytes by the names of their arrays.

    ValueError if one is doubled, is not an array, or declares more than its packed bytes can hold.
    """
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise ValueError(f"two arrays are named '{name}'")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"'{name}' is encrypted or packed in an unusual way")
        if info.file_size > _MOST_PACKED * info.compress_size:
            raise ValueError(f"'{name}' declares {info.file_size:,} bytes in {info.compress_size:,} packed bytes")
        members[name] = info
    if sum(info.compress_size for info in members.values()) > size:
        raise ValueError("the arrays declare more packed bytes than the file has")
    problem = shortage(_COPIES * sum(info.file_size for info in members.values()))
    if problem is not None:
        raise ValueError(problem)
    return members


def raw_d4rl(path: str | Path) -> RawLog:
    """Read episodes that end at `terminals` or `timeouts`, from HDF5 or npz; LogError for another layout.

    Without `next_observations`, the observation after a timeout is unknown. Ends may have other names (`ENDS`): flags
    of last or first rows, or an episode id. Without any, an episode also ends where the next observation differs from
    the observation of the following row.
    """
    arrays, ignored = _d4rl_arrays(Path(path))
    termination = termination_name(path, arrays)
    missing = [name for name in _D4RL if name not in arrays] + ["terminals"] * (termination is None)
    if missing:
        found = f"no {', '.join(missing)}; the file holds {', '.join(sorted([*arrays, *ignored]))}"
        fix = "rename the arrays, or read them with Log.from_arrays"
        raise unreadable(path, found, _D4RL_FILE, fix, "missing column")
    refuse_unread_ends(path, ignored, "terminals, timeouts, flags of first or last rows, and ids of episodes")
    next_observation = arrays.get("next_observations")
    terminated = _single_column(arrays[str(termination)])
    truncated = truncations(path, arrays, terminated)
    notes: list[tuple[str, Finding]] = unread_note(ignored)
    if truncated is None:
        observed, ends = arrays["observations"], _is_set(terminated)
        truncated, found = np.zeros(len(terminated), bool), "no timeouts: only terminals end an episode"
        fix = "use a version with timeouts if there is one"
        if next_observation is not None and next_observation.shape == observed.shape and len(ends) == len(observed):
            truncated = np.append(differences(next_observation[:-1], observed[1:]), True)[: len(ends)] & ~ends
            cuts = count_of(int(truncated.sum()), "episode")
            found = f"no timeouts: next_observations are discontinuous at the end of {cuts}"
            fix = "nothing, if these are resets of the environment"
        notes.append(conversion_note(found, "timeouts", fix, "timeouts"))
    raw = from_arrays(
        str(path),
        observation=arrays["observations"],
        action=_single_column(arrays["actions"]) if arrays["actions"].dtype.kind in "iu" else arrays["actions"],
        reward=_single_column(arrays["rewards"]),
        next_observation=next_observation,
        terminated=terminated,
        truncated=truncated,
        episode=segment_index(_is_set(terminated) | _is_set(truncated)),
        categorical=False,
    )
    return replace(raw, found=(*raw.found, *notes))


def _d4rl_arrays(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The arrays of D4RL in an HDF5 or npz file, and the names of what is not read."""
    if path.suffix.lower() == ".npz":
        arrays, objects = named_arrays(path, _D4RL_READ)
        read = {name: np.atleast_1d(values) for name, values in arrays.items() if name in _D4RL_READ}
        return read, [name for name in (*arrays, *objects) if name not in read]
    import h5py

    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            datasets = {name: dataset for name, dataset in own_datasets(file).items() if name in _D4RL_READ}
            check_memory(datasets.values())
            values = {name: np.atleast_1d(h5py.Dataset(dataset)[()]) for name, dataset in datasets.items()}
            return values, [str(name) for name in file if name not in datasets]
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError) as error:
        raise unreadable(path, str(error).split("\n")[0], _D4RL_FILE, "download or create it again") from error


def segment_index(ends: Values) -> Values:
    """[N]: the number of ends before each row, which is the number of the row's episode."""
    number: Values = np.cumsum(ends) - ends
    return number


def _single_column(values: Values) -> Values:
    """[N] from [N] or [N, 1]."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _is_set(flags: Values) -> Values:
    """[N] bool; all False for text, which another check reports."""
    if flags.dtype.kind not in "biuf":
        return np.zeros(len(flags), bool)
    return np.asarray(np.asarray(flags != 0).reshape(len(flags), math.prod(flags.shape[1:])).any(axis=1))


def raw_ogbench(path: str | Path) -> RawLog:
    """Read episodes that end at `terminals` and are split where `masks` is 0; LogError for another kind of file."""
    arrays, objects = named_arrays(path, _OGBENCH_READ)
    missing = [name for name in _OGBENCH if name not in arrays]
    if missing:
        found = f"no {', '.join(missing)}; the file holds {', '.join(sorted(arrays))}"
        fix = "read arrays of other names with Log.from_arrays"
        raise unreadable(path, found, _OGBENCH_FILE, fix, "missing column")
    flags = {name: arrays[name] for name in ("terminals", "masks") if name in arrays}
    text = [name for name, values in flags.items() if values.dtype.kind not in "biuf"]
    if text:
        raise unreadable(path, f"{text[0]} of {arrays[text[0]].dtype}", "0 and 1", "give flags", "non-numeric text")
    ignored = [name for name in (*arrays, *objects) if name not in _OGBENCH_READ]
    refuse_unread_ends(path, ignored, "terminals and masks, as in OGBench")
    lengths = {name: values.size if name in flags else len(np.atleast_1d(values))
               for name, values in arrays.items() if name in _OGBENCH_READ}  # fmt: skip
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name}: {length:,} rows" for name, length in lengths.items())
        raise unreadable(path, found, "arrays of one length", "save the file again", "wrong length")
    observations, ended, notes = arrays["observations"], arrays["terminals"].reshape(-1) != 0, unread_note(ignored)
    ended[-1:] = True
    steps, next_observation = np.ones(len(ended), bool), arrays.get("next_observations")
    if next_observation is None:
        found = f"{int(ended.sum()):,} last rows of recordings are observations without a decision"
        notes.append(conversion_note(found, "T + 1 rows per episode", "nothing"))
        steps = ~ended
        next_observation = observations[np.append(False, steps[:-1])]
        ended = np.append(ended[1:], True)[steps]
    terminated = np.zeros(len(ended), bool) if "masks" not in arrays else arrays["masks"].reshape(-1)[steps] == 0
    inside = terminated & ~ended
    if inside.any():
        found = f"{count_of(int(inside.sum()), 'row')} with masks 0 inside a recording; each ends an episode"
        expected = "episodes that end when the task is done"
        notes.append(conversion_note(found, expected, "nothing: no window may cross them"))
    raw = from_arrays(
        str(path),
        observation=observations[steps],
        next_observation=next_observation,
        action=arrays["actions"][steps],
        reward=None if "rewards" not in arrays else arrays["rewards"][steps],
        terminated=terminated,
        truncated=ended & ~terminated,
        episode=segment_index(ended | terminated),
        categorical=False,
    )
    return replace(raw, found=(*raw.found, *notes))


# Minari data sets: T + 1 observations per episode, all of them stored.
#
# A folder is checked before Minari opens it: Minari would follow links to other files, open pictures of any format, and
# import the module that a stored environment names.

_BROKEN_MINARI = (
    OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError, ArithmeticError,
    MemoryError, ImportError,
)  # fmt: skip
_DATA_SET = "a Minari data set"
_LARGEST_METADATA = 1 << 26  # bytes
_LARGEST_CODE = 2**31 - 1
MOST_PIXELS = 1 << 25  # of one picture; 7680 x 4320 fits
_FIELDS = {"reward": "rewards", "terminated": "terminations", "truncated": "truncations"}
_INFO_NAMES = ("propensity", "weight", "cluster", "action_mask")


def raw_minari(source: Any) -> RawLog:
    """Read all episodes of a data set as arrays; LogError if it is missing, broken, or of an unsupported kind."""
    dataset = _dataset(source)
    leaves = {name: _leaf(name, space, str(source)) for name, space in _leaves("", dataset.observation_space)}
    parts = dict(_leaves("", dataset.action_space))
    for name, space in parts.items():
        kind = type(space).__name__
        is_vector = kind == "Box" and len(space.shape) <= 1 and space.dtype.kind == "f"
        if not (is_vector or kind == "Discrete" or (kind == "MultiDiscrete" and space.nvec.ndim == 1)):
            fix = "use Discrete, MultiDiscrete, a flat Box of floats, or a Dict or Tuple of these"
            found = f"actions of type {kind}" + (f" in '{name}'" if name else "")
            raise unreadable(source, found, _DATA_SET, fix)
    try:
        episodes = list(dataset.iterate_episodes())
        if not episodes:
            raise ValueError("the data set is empty")
        lengths = [len(episode.rewards) for episode in episodes]
        observed = [dict(_leaves("", episode.observations)) for episode in episodes]
        for episode, steps, named in zip(episodes, lengths, observed, strict=True):
            for name, values in named.items():
                if len(values) != steps + 1:
                    counts = f"{len(values)} observations for {steps} steps in '{name or 'observation'}'"
                    raise ValueError(f"episode {episode.id}: {counts}")
        observation, following = (
            {name or "observation": leaf.column(_joined(one[name][side] for one in observed))
             for name, leaf in leaves.items()}
            for side in (slice(None, -1), slice(1, None))
        )  # fmt: skip
        acted = [dict(_leaves("", episode.actions)) for episode in episodes]
        actions = {name: _joined(one[name] for one in acted) for name in parts}
        columns: dict[str, Any] = {
            name: _joined(getattr(episode, field) for episode in episodes) for name, field in _FIELDS.items()
        }
        columns |= _infos(episodes, lengths)
        for name, values in actions.items():
            if type(parts[name]).__name__ != "Box" and values.dtype.kind not in "iub":
                raise ValueError(f"actions of {values.dtype} in a space of codes")
    except _BROKEN_MINARI as error:
        found = f"episodes that cannot be read ({error})"
        raise unreadable(source, found, _DATA_SET, "download or create it again") from error
    each = {name: _action(space, actions[name], name) for name, space in parts.items()}
    action: Any = {name: values for name, (_, values, _) in each.items()}
    declared: dict[str, Any] = {key: {name: one[key] for name, (one, _, _) in each.items() if one.get(key) is not None}
                                for key in ("actions", "bounds")}  # fmt: skip
    if "" in each:
        declared, action, _ = each[""]
    raw = from_arrays(
        f"minari data set {dataset.id}",
        observation=observation,
        next_observation=following,
        action=action,
        episode=np.repeat([int(episode.id) for episode in episodes], lengths),
        sizes={name or "observation": leaf.sizes for name, leaf in leaves.items() if leaf.sizes},
        **declared,
        **columns,
    )
    notes = [("converted", note) for _, _, note in each.values() if note is not None]
    return replace(raw, found=(*raw.found, *notes))


def _leaves(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a space or of values, named by keys and places joined by '/'; '' of one without parts."""
    inner = tree.spaces if type(tree).__name__ in ("Dict", "Tuple") else tree
    if isinstance(inner, dict | tuple):
        for key, below in inner.items() if isinstance(inner, dict) else enumerate(inner):
            yield from _leaves(f"{name}/{key}" if name else str(key), below)
    else:
        yield name, tree


class _Leaf(NamedTuple):
    """The layout of one leaf: `sizes` and `start` of codes (None for numbers), or the shape of an image."""

    sizes: tuple[int, ...] | None = None
    start: Values | int = 0
    image: tuple[int, ...] | None = None

    def column(self, values: Values) -> Values:
        if values.dtype.kind == "c":
            raise ValueError(f"observations of {values.dtype}, which a space of real numbers or codes cannot hold")
        if self.image is not None:
            return values.reshape(len(values), *self.image)
        if self.sizes is not None:
            return (values.reshape(len(values), -1) - self.start).astype(np.int64)
        return values if values.dtype.kind == "f" else values.astype(np.float64)


def _dataset(source: Any) -> Any:
    if hasattr(source, "iterate_episodes"):
        return source
    import minari
    from gymnasium.error import Error
    from minari.storage import get_dataset_path

    try:
        folder = Path(source) if Path(source).exists() else get_dataset_path(str(source))
        if not folder.exists():
            raise FileNotFoundError(f"no data set at {folder}")
        folder = folder / "data" if (folder / "data").is_dir() else folder
        _check_folder(folder)
        return minari.MinariDataset(folder)
    except FileNotFoundError as error:
        if Path(source).is_dir():
            found, fix = "a folder without tables, and without a Minari data set", "name the files, or check the folder"
            raise unreadable(source, found, "tables in the folder, or a data set", fix) from error
        if not re.search(r"-v\d+$", str(source)):
            found, fix = "there is no such file or folder", "correct the path"
            raise unreadable(source, found, "a path, or a data set of Minari, as D4RL/door/human-v2", fix) from error
        fix = f"run `minari download {source}`, set MINARI_DATASETS_PATH, or pass the path of the folder"
        raise unreadable(source, f"the data set does not exist ({error})", _DATA_SET, fix) from error
    except (*_BROKEN_MINARI, Error) as error:
        found = f"a data set that cannot be opened ({str(error) or type(error).__name__})"
        raise unreadable(source, found, _DATA_SET, "download or create it again") from error


def _check_folder(folder: Path) -> None:
    """OSError or ValueError unless a folder holds all of its data, and declares no more than it has."""
    import h5py
    from minari.serialization import deserialize_space

    metadata = parse_json(read_regular(folder / "metadata.json", _LARGEST_METADATA))
    if not isinstance(metadata, dict):
        raise ValueError("metadata.json is not an object")
    if metadata.get("data_format") != "hdf5":
        raise ValueError(f"data_format = {metadata.get('data_format')!r}: expected 'hdf5'")
    texts = [text for name in ("observation", "action") if isinstance(text := metadata.get(f"{name}_space"), str)]
    if len(texts) < 2:
        # Minari would build the environment of env_spec, which may name any module
        raise ValueError("the metadata do not hold the spaces of observations and actions")
    try:
        with np.errstate(over="raise", invalid="raise"):
            spaces = [deserialize_space(parse_json(text)) for text in texts]
    except FloatingPointError as error:
        raise ValueError(f"a bound of a space is beyond the numbers of its type ({error})") from error
    episodes = metadata.get("total_episodes")
    path = folder / "main_data.hdf5"
    check_regular(path)
    with h5py.File(path, "r") as file:
        if type(episodes) is not int or not 0 <= episodes <= len(file):
            raise ValueError(f"total_episodes = {episodes!r}, but the file holds {len(file):,}")
        check_memory(own_datasets(file).values())
        if metadata.get("jpeg_encoding", True):
            for number in range(episodes):
                episode = file[f"episode_{number}"]
                for name, space in zip(("observations", "actions"), spaces, strict=True):
                    _check_pictures(episode[name], space)


def _check_pictures(member: Any, space: Any) -> None:
    """ValueError unless encoded pictures are JPEG, and of the size of their space."""
    from minari.dataset.minari_storage import is_image_space
    from PIL import Image

    kind = type(space).__name__
    if kind in ("Dict", "Tuple"):
        inner = space.spaces.items() if kind == "Dict" else enumerate(space.spaces)
        for key, below in inner:
            _check_pictures(member[str(key) if kind == "Dict" else f"_index_{key}"], below)
    elif is_image_space(space):
        frames, pixels = member[()], math.prod(space.shape)
        problem = shortage(3 * len(frames) * pixels)
        if pixels > 4 * MOST_PIXELS or problem is not None:
            raise ValueError(problem or f"pictures of shape {list(space.shape)}: expected at most {MOST_PIXELS} pixels")
        for frame in frames:
            with Image.open(io.BytesIO(frame), formats=("JPEG",)) as picture:
                if picture.size != (space.shape[1], space.shape[0]):
                    raise ValueError(f"a picture of size {picture.size} where the space has {list(space.shape)}")


def _leaf(name: str, space: Any, source: str) -> _Leaf:
    """The layout of one leaf of observations; LogError for a space that is not supported."""
    kind = type(space).__name__
    is_codes = kind == "Discrete" or (kind == "MultiDiscrete" and space.nvec.ndim == 1)
    if is_codes and int(np.max(space.n if kind == "Discrete" else space.nvec)) > _LARGEST_CODE:
        fix = "use floats for numbers that are no categories"
        raise unreadable(source, f"{space} in '{name or 'observation'}'", "at most 2^31 - 1 categories", fix)
    if is_codes:
        sizes = (int(space.n),) if kind == "Discrete" else tuple(map(int, space.nvec))
        return _Leaf(sizes, int(space.start) if kind == "Discrete" else np.asarray(space.start))
    if kind == "Box" and len(space.shape) == 3 and space.dtype == np.uint8:
        return _Leaf(image=space.shape)
    if kind in ("Box", "MultiBinary") and len(space.shape) <= 1:
        return _Leaf()
    shape = f" of shape {list(space.shape)}" if getattr(space, "shape", None) else ""
    fix = "use a flat Box, Discrete, Dict, Tuple, or images [H, W, C] of uint8"
    raise unreadable(source, f"observations of type {kind}{shape}", _DATA_SET, fix)


def _infos(episodes: list[Any], lengths: list[int]) -> dict[str, Values]:
    """The columns in the infos of every episode: propensities, weights, clusters, and masks of T + 1 rows."""
    present = [name for name in _INFO_NAMES if all(name in (episode.infos or {}) for episode in episodes)]
    several = {name: [np.asarray(episode.infos[name]) for episode in episodes] for name in present}
    columns = {name: _joined(one[:steps] for one, steps in zip(arrays, lengths, strict=True))
               for name, arrays in several.items()}  # fmt: skip
    masks = several.get("action_mask", [])
    if masks and all(len(mask) == steps + 1 for mask, steps in zip(masks, lengths, strict=True)):
        columns["next_action_mask"] = _joined(mask[1:] for mask in masks)
    return columns


def _action(space: Any, values: Values, part: str = "") -> tuple[dict[str, Any], Values, Finding | None]:
    """The declared sizes or bounds of the action, its values counted from 0, and a note if they were not."""
    if type(space).__name__ == "Box":
        finite = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
        limits = [np.atleast_1d(end).tolist() for end in (space.low, space.high)]
        return {"bounds": limits if finite else None}, values, None
    start = np.asarray(space.start)
    sizes = int(space.n) if start.ndim == 0 else list(map(int, space.nvec))
    name = f"action/{part}" if part else "action"
    note = Finding(name, None, f"actions from {start}", "actions from 0", f"add {start} to the policy's actions")
    return {"actions": sizes}, values - start, note if start.any() else None


def _joined(parts: Any) -> Values:
    return np.concatenate([np.asarray(part) for part in parts])


# Demonstrations in HDF5 files, one group each: robomimic's `data/demo_0`, `data/demo_1`, ..., or groups at the root.
#
# | member of a demonstration | read as |
# |---|---|
# | `obs/<name>` [T, ...] | one leaf of the observation each; images are uint8 [T, height, width, channels] |
# | `next_obs/<name>` [T, ...] | the same for the next state; without them, that after the last row is unknown |
# | `actions` [T, A] | action |
# | `rewards` [T] | reward; a file without any is for cloning |
# | `dones` [T] | the end of an episode as a termination; a recording that ends without one is truncated |
#
# `obs` may be one array, with T + 1 rows if the last is an observation after the last decision. The usual other names
# are read too (`observation`, `action`, `reward`, `terminated`, `truncated`, ...), and groups at the root may have any
# name that ends with a number. Demonstrations are read in the order of their numbers. A done inside one ends an episode
# there.

_BROKEN_DEMONSTRATIONS = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError)
_NAMES = {
    "obs": ("obs", "observation", "observations"),
    "next_obs": ("next_obs", "next_observation", "next_observations"),
    "actions": ("actions", "action", "acts"),
    "rewards": ("rewards", "reward", "rews"),
    "dones": TERMINATIONS,
}  # of a member -> the names under which it is read
_NUMBERED = re.compile(r"(?P<name>.*?)[_-]?(?P<number>[0-9]{1,9})")
_EXPECTED_DEMONSTRATIONS = (
    "an HDF5 file with demo_N/obs, actions, and perhaps rewards, dones and next_obs, below data or at its root"
)


def is_robomimic(path: Path) -> bool:
    """Whether an HDF5 file has demonstrations, in a group `data` or at its root; False if it cannot be opened."""
    import h5py

    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            paths = [name.split("/") for name in own_datasets(file)]
            below_data = any(path[0] == "data" and path[1].startswith("demo_") for path in paths if len(path) > 2)
            at_root = [path[1] for path in paths if len(path) == 2 and _NUMBERED.fullmatch(path[0])]
            return below_data or any(name in _NAMES["actions"] for name in at_root)
    except _BROKEN_DEMONSTRATIONS:
        return False  # the reader of the format says what is wrong


def raw_robomimic(path: Path) -> RawLog:
    """Read all demonstrations; LogError if they do not have the same arrays, or lie outside the file."""
    demonstrations, ignored = _read(path)
    first = demonstrations[0]
    leaves, later = (sorted(_below(kind, first)) for kind in ("obs", "next_obs"))
    if not leaves or "actions" not in first:
        found = f"a demonstration with {', '.join(first) or 'no array'}"
        fix = "write the observations with robomimic's dataset_states_to_obs.py"
        raise unreadable(path, found, _EXPECTED_DEMONSTRATIONS, fix, "missing column")
    lengths = np.asarray([len(one["actions"]) for one in demonstrations])
    for one in demonstrations:
        if not later and len(one[leaves[0]]) > len(one["actions"]):  # T + 1 observations: both sides of the steps
            one |= {f"next_{name}": one[name][1:] for name in leaves} | {name: one[name][:-1] for name in leaves}
    joined = {name: np.concatenate([one[name] for one in demonstrations]) for name in first}
    last = np.zeros(int(lengths.sum()), bool)
    last[np.cumsum(lengths) - 1] = True
    done = joined["dones"].reshape(-1) != 0 if "dones" in joined else np.zeros(len(last), bool)
    cut = truncations(path, joined, done)
    cut = last if cut is None else last | (cut != 0)
    observation, next_observation = (
        joined[kind]
        if kind in joined
        else {name.removeprefix(f"{kind}/"): joined[name] for name in _below(kind, joined)}
        for kind in ("obs", "next_obs")
    )
    refuse_unread_ends(path, ignored, "dones, as in robomimic")
    notes = unread_note(ignored)
    inside = int((done & ~last).sum())
    if inside:
        found = f"{count_of(inside, 'row')} with dones inside a demonstration; each ends an episode"
        fix = "nothing, if the task is done there; else drop dones"
        notes.append(conversion_note(found, "episodes that end when the task is done", fix))
    elif len(demonstrations) > 1 and done[last].all():
        found = "every demonstration ends with dones 1: read as a termination"
        fix = "nothing, if each ends with the task done; drop dones if some were cut by a time limit"
        notes.append(conversion_note(found, "a termination where the task is done", fix))
    raw = from_arrays(
        str(path),
        observation=observation,
        next_observation=next_observation if len(next_observation) else None,
        action=joined["actions"],
        reward=joined["rewards"].reshape(-1) if "rewards" in joined else None,
        terminated=done,
        truncated=cut & ~done,
        episode=segment_index(cut | done),
        categorical=False,
    )
    return replace(raw, found=(*raw.found, *notes))


def _below(kind: str, members: dict[str, Any]) -> list[str]:
    """The members that are observations of a kind: the array of that name, or those below it."""
    return [name for name in members if name.partition("/")[0] == kind]


def _read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The arrays of each demonstration by the names of robomimic, and the names of members that are not read."""
    import h5py

    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            found: dict[int, dict[str, Any]] = {}
            ignored = set[str]()
            top = "" if "data" in file else "data/"
            for name, dataset in own_datasets(file).items():
                group, demonstration, member = [*f"{top}{name}".split("/", 2), "", ""][:3]
                matched = _NUMBERED.fullmatch(demonstration)
                known = _member(member)
                if group != "data" or matched is None or known is None:
                    ignored.add(member.partition("/")[0] or demonstration if group == "data" else group)
                    continue
                members = found.setdefault(int(matched["number"]), {})
                if known in members:
                    raise KeyError(f"'{name}' is the second array of {known} in its demonstration")
                members[known] = dataset
            if not found:
                raise KeyError("data/demo_N has no obs, actions, rewards or dones")
            check_memory(one for members in found.values() for one in members.values())
            _check_equal(path, found)
            order = sorted(found)
            arrays = [{name: h5py.Dataset(one)[()] for name, one in found[number].items()} for number in order]
    except _BROKEN_DEMONSTRATIONS as error:
        raise unreadable(
            path, str(error).split("\n")[0], _EXPECTED_DEMONSTRATIONS, "download or create it again"
        ) from error
    return arrays, sorted(ignored)


def _member(name: str) -> str | None:
    """The name of robomimic for a member of a demonstration; other ends keep theirs, and None is not read."""
    top, _, below = name.partition("/")
    kind = next((kind for kind, names in _NAMES.items() if top in names), None)
    if kind in ("obs", "next_obs"):
        return f"{kind}/{below}" if below else kind
    return kind if kind is not None and not below else name if is_end(name) else None


def _check_equal(path: Path, found: dict[int, dict[str, Any]]) -> None:
    """LogError if a demonstration has other arrays or shapes than the first, or arrays of different lengths.

    Observations may have one row more, in all demonstrations of a file without next observations.
    """
    first = {name: one.shape[1:] for name, one in found[min(found)].items()}
    members = found[min(found)]
    steps = {one.shape[:1] for name, one in members.items() if name == "actions"}
    observed = {one.shape[:1] for name, one in members.items() if name in _below("obs", first)}
    more = int(
        not _below("next_obs", first)
        and len(steps) == len(observed) == 1
        and all(one and two and two[0] == one[0] + 1 for one in steps for two in observed)
    )
    for number, members in found.items():
        shapes = {name: one.shape[1:] for name, one in members.items()}
        rows = {name: one.shape[0] if one.shape else 0 for name, one in members.items()}
        lengths = {count - more if name in _below("obs", rows) else count for name, count in rows.items()}
        if shapes != first:
            other = sorted(name for name in {*first, *shapes} if first.get(name) != shapes.get(name))
            what = f"demo_{number} differs from demo_{min(found)} in {', '.join(other[:6])}"
            raise unreadable(path, what, "the same arrays in each", "leave it out", "missing column")
        if len(lengths) > 1 or 0 in lengths:
            what = f"demo_{number} has arrays of {', '.join(f'{one:,}' for one in sorted(set(rows.values())))} rows"
            raise unreadable(path, what, "arrays of one length", "save the demonstration again", "wrong length")


# What reads which file: tables by their endings, and arrays, which need no mapping.

_ARROW_FILE = b"ARROW1"  # at the start of an Arrow file; a stream has no such mark


def _selected(frame: pl.LazyFrame, path: Path, columns: Sequence[str] | None) -> ParsedTable:
    """The named columns, and those named like clusters, or else the first column; LogError if they do not fit."""
    present = frame.collect_schema().names()
    refuse_wide(path, len(present))
    named = set(present if columns is None else columns)
    used = [name for name in present if name in named or kind_of(name) is not None] or present[:1]
    return ParsedTable.of(frame.select(used), str(path), present)


def _arrow(path: Path, columns: Sequence[str] | None) -> ParsedTable:
    with open_regular(path) as stream:
        whole = stream.read(len(_ARROW_FILE)) == _ARROW_FILE
    return _selected(pl.scan_ipc(path) if whole else pl.read_ipc_stream(path).lazy(), path, columns)


class TableFormat(NamedTuple):
    """How a file of a table is read, and by which settings of the mapping; a new format is one more, in `TABLES`."""

    read: Callable[[Path, Sequence[str] | None, TextForm], ParsedTable]  # the named columns at least, or all
    settings: tuple[str, ...] = ()


UNFIT = {
    "header": "header = false for a file with names",
    "separator": "a separator for a file that is no text",
    "decimal": "a decimal comma for a file that is no text",
    "explode": "explode for a file that is not JSON",
}
TEXT = TableFormat(lambda path, columns, form: read_separated(path, form), ("header", "separator", "decimal"))
_JSON_LINES = TableFormat(lambda path, columns, form: read_objects(path, explode=form.explode), ("explode",))
_JSON = TableFormat(lambda path, columns, form: read_objects(path, explode=form.explode, document=True), ("explode",))
_PARQUET = TableFormat(lambda path, columns, form: _selected(pl.scan_parquet(path, low_memory=True), path, columns))
_ARROW = TableFormat(lambda path, columns, form: _arrow(path, columns))
_LINES_ENDINGS = (".jsonl", ".ndjson", ".dsjson")
_OF_TEXT = (".csv", ".tsv", *_LINES_ENDINGS)
TABLES: dict[str, TableFormat] = {  # by the ending of a table
    **dict.fromkeys((".csv", ".tsv"), TEXT),
    **dict.fromkeys(_LINES_ENDINGS, _JSON_LINES),
    **{f"{ending}{packed}": _JSON_LINES for ending in _LINES_ENDINGS for packed in PACKED},
    **{f"{ending}{packed}": TEXT for ending in (".csv", ".tsv") for packed in PACKED},
    **dict.fromkeys(DOCUMENTS, _JSON),
    ".parquet": _PARQUET,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _ARROW),
}
TEXT_ENDINGS = tuple(SEPARATORS)
ENDINGS_TEXT = (
    f"{', '.join([*_OF_TEXT, DOCUMENTS[0]])} (each also {', '.join(PACKED)}), "
    f"{', '.join(ending for ending in TABLES if ending.count('.') == 1 and ending not in (*_OF_TEXT, DOCUMENTS[0]))}"
)
LINE_ENDINGS = tuple(ending for ending, kind in TABLES.items() if "explode" in kind.settings)


def raw_hdf5(path: Path) -> RawLog:
    """Read demonstrations of robomimic, or else the arrays of D4RL."""
    return raw_robomimic(path) if is_robomimic(path) else raw_d4rl(path)


FORMATS: dict[str, Callable[[Any], RawLog]] = {
    "npz": raw_npz,
    "d4rl": raw_d4rl,
    "ogbench": raw_ogbench,
    "robomimic": raw_robomimic,
    "minari": raw_minari,
}
ARRAYS: dict[str, Callable[[Path], RawLog]] = {
    ".npz": raw_archive,
    ".hdf5": raw_hdf5,
    ".h5": raw_hdf5,
}
