"""Read tables: separated text, JSON lines, Parquet and Arrow files, and frames in memory.

Separated text is read as text; one odd cell cannot change the type of a column silently. A header of one field that
another usual separator divides, as in tables from some spreadsheets, sets the separator. In JSON lines and documents,
inner objects become columns with dots in their names.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib
import io
import json
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeAlias

import numpy as np
import polars as pl

from tidelog.data.core.columns import USUAL_FORM, TextForm
from tidelog.data.core.raw import Finding
from tidelog.data.core.registry import conversion_note, unreadable
from tidelog.data.parsing.tables import Table, first_error_line, unique
from tidelog.data.sources.parquet_guard import refuse_contradictions
from tidelog.data.validation.clusters import kind_of
from tidelog.errors import LogError, install, nearest
from tidelog.folders import MANIFEST
from tidelog.input_files import NotRegularError, check_regular, open_regular, parse_json, read_regular
from tidelog.memory import available_memory, in_units, shortage

Reader: TypeAlias = Callable[[Path, Sequence[str] | None], Table]  # (path, column names or None for all) -> table
_TEXT = "text in UTF-8 with one header line"
_LINES = "one JSON object per line, in UTF-8"
_DOCUMENT = "one JSON document: a list of objects, or an object with one list of objects"
_HEAD = 1 << 16  # bytes of a JSON file that tell its kind
_REAGENT = (b'"mdp_id"', b'"sequence_number"', b'"state_features"')
_SHOWN = 10
_SCALARS = {int, float, bool}
_BOM = b"\xef\xbb\xbf"
_ZLIB = (b"x\x01", b"x^")  # begin compressed data, so Polars would decompress text that begins with them
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
_ARROW = b"ARROW1"
DIVIDED = "fields that are separated by "
_COMMA_NUMBER = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?$"
_LOCAL_NUMBER = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?$"  # also without a fraction
OTHER_SEPARATORS = (";", "\t", "|")
UNUSUAL_SEPARATORS = ("\x01", "~", "^", "#", "!", ":", " ")  # the first is that of Hive


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


_PACKED: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zip": _only_member,
    ".zst": _zstandard,
}
_DAMAGED = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)
_AT_ONCE = 1 << 22  # decompressed bytes
_CELL = 24  # bytes of memory of one cell, beside its text
_NUMBER = 8
_ENTRY = 100  # of one value of a JSON object
MOST_COLUMNS = 10_000
FIX_MEMORY = "split the file, read a part of it, or use a machine with more memory"


def one_table(source: Any, columns: Sequence[str] | None = None, form: TextForm = USUAL_FORM) -> Table:
    """Read a table from one path, a Polars frame or a pandas frame; LogError if it cannot be read.

    Without a header, the columns of separated text are `column_1`, `column_2`, ... With a separator, a file with an
    unknown ending is separated text.
    """
    if isinstance(source, pl.DataFrame | pl.LazyFrame):
        frame = source.collect() if isinstance(source, pl.LazyFrame) else source
        return Table.of(frame, "the frame")
    kind = type(source)
    if kind.__module__.split(".")[0] == "pandas" and kind.__name__ == "DataFrame":  # without importing pandas
        labels = [str(label) for label in source.columns]
        series = [_pandas_series(label, source.iloc[:, place]) for place, label in enumerate(unique(labels))]
        return Table.of(pl.DataFrame(series), "the frame", labels)
    if not isinstance(source, str | Path):
        raise _not_a_table(
            repr(kind.__name__), "neither a path nor a frame", "pass a path, or a Polars or pandas frame"
        )
    path = Path(source)
    ending = ending_of(path, SOURCES)
    try:
        if (path / MANIFEST).is_file():
            raise _not_a_table(str(path), "a saved log, which needs no mapping", "use tidelog.open_log")
        if ending is None and form.separator is None:
            unknown = "".join(path.suffixes[-2:]) or path.name
            known = f"{nearest(unknown, SOURCES)}; tidelog.read_npz and read_minari read arrays"
            fix = f"for text, set separator in the mapping; {known}"
            raise _not_a_table(str(path), f"an unknown file ending: '{unknown}'", fix)
        if not os.path.exists(path):
            remote = re.match(r"([a-z0-9]{2,}):/", str(source))
            fix = f"download it first: paths of {remote[1]}: are not read" if remote else "check the path"
            raise _not_a_table(str(source), "the file does not exist", fix)
        problem = shortage(check_regular(path).st_size)
        if problem is not None:
            raise _not_a_table(str(path), problem, FIX_MEMORY)
        reader = read_csv if ending is None else SOURCES[ending]
        refused = _unfit_setting(form, reader)
        if refused is not None:
            setting, found = refused
            raise _not_a_table(str(path), found, f"drop {setting} from the mapping")
        if form.explode is not None:
            table = read_objects(path, explode=form.explode, document=reader is read_document)
        else:
            table = reader(path, columns) if form == USUAL_FORM else read_separated(path, SEPARATORS[reader], form)
    except NotRegularError as error:
        raise _not_a_table(str(path), str(error), "name a regular file") from error
    except (OSError, EOFError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _not_a_table(str(path), first_error_line(error), "export or copy the file again") from error
    return table


def _unfit_setting(form: TextForm, reader: Reader) -> tuple[str, str] | None:
    """The first setting that a file of this kind cannot have, and what was found; None if all fit."""
    is_text = reader in (read_csv, read_tsv)
    settings = (
        ("header", not form.header and not is_text, "header = false for a file with names"),
        ("separator", form.separator is not None and not is_text, "a separator for a file that is no text"),
        ("decimal", form.decimal != "." and not is_text, "a decimal comma for a file that is no text"),
        ("explode", form.explode is not None and reader not in _OF_JSON, "explode for a file that is not JSON"),
    )
    return next(((setting, found) for setting, unfit, found in settings if unfit), None)


def ending_of(path: str | Path, known: Iterable[str]) -> str | None:
    """The longest known ending of a path; None if there is none."""
    name = Path(path).name.lower()
    return max((ending for ending in known if name.endswith(ending)), key=len, default=None)


def _not_a_table(source: str, found: str, fix: str) -> LogError:
    return unreadable(source, found, f"a table: {ENDINGS_TEXT}, or a frame", fix)


def _pandas_series(label: str, column: Any) -> pl.Series:
    """The same column in Polars; missing values of any pandas type become null."""
    if str(column.dtype).startswith("datetime64"):
        naive = column if column.dt.tz is None else column.dt.tz_convert("UTC").dt.tz_localize(None)
        return pl.Series(label, naive.to_numpy().astype("datetime64[us]"))
    if column.dtype.kind in "biuf" and not hasattr(column.dtype, "na_value"):
        return pl.Series(label, column.to_numpy())
    empty = column.isna().to_numpy()
    values = [None if absent else value for value, absent in zip(column.tolist(), empty, strict=True)]
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1 and not kinds <= {int, float, bool}:
        values = [None if value is None else str(value) for value in values]
    return pl.Series(label, values, strict=False)


def read_csv(path: Path, columns: Sequence[str] | None) -> Table:
    """Read comma-separated text, compressed or not."""
    return read_separated(path, ",")


def read_tsv(path: Path, columns: Sequence[str] | None) -> Table:
    """Read tab-separated text, compressed or not."""
    return read_separated(path, "\t")


def read_parquet(path: Path, columns: Sequence[str] | None) -> Table:
    """Read the named columns of a Parquet file, one at a time."""
    rows, largest = refuse_contradictions(path)
    return _selected(pl.scan_parquet(path, low_memory=True), path, columns, rows, largest)


def read_arrow(path: Path, columns: Sequence[str] | None) -> Table:
    """Read the named columns of an Arrow file (Feather) or stream."""
    with open_regular(path) as stream:
        whole = stream.read(len(_ARROW)) == _ARROW
    frame = pl.scan_ipc(path) if whole else pl.read_ipc_stream(path).lazy()
    return _selected(frame, path, columns, int(frame.select(pl.len()).collect().item()))


def _selected(frame: pl.LazyFrame, path: Path, columns: Sequence[str] | None, rows: int, unpacked: int = 0) -> Table:
    """The named columns, and those named like clusters, or else the first column; LogError if they do not fit."""
    present = frame.collect_schema().names()
    refuse_wide(path, len(present))
    named = set(present if columns is None else columns)
    used = [name for name in present if name in named or kind_of(name) is not None] or present[:1]
    _refuse_large(path, unpacked + _NUMBER * rows * len(used), "a table that fits into memory")
    return Table.of(frame.select(used), str(path), present)


def read_bytes(path: Path, expected: str) -> bytes:
    """Read the text of a file, decompressed and without a byte order mark.

    LogError if it is truncated, empty or in UTF-16.
    """
    try:
        data = read_regular(path)
    except OSError as error:
        raise unreadable(path, str(error), expected, "check the path") from error
    unpack = _PACKED.get(path.suffix.lower())
    if unpack is not None:
        try:
            with unpack(io.BytesIO(data)) as stream:
                data = _unpacked(path, stream, expected)
        except ModuleNotFoundError as error:
            raise unreadable(path, str(error), expected, install("zst")) from error
        except Exception as error:  # ZstdError is of a module that may be absent
            if not isinstance(error, _DAMAGED) and type(error).__name__ != "ZstdError":
                raise
            raise unreadable(path, f"the compressed file is truncated or damaged ({error})", expected) from error
    if data.startswith(_WIDE_BOMS):
        raise unreadable(path, "text in UTF-16", expected, "save the file as UTF-8")
    data = data.removeprefix(_BOM)
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


def _refuse_large(path: Path, size: int, expected: str) -> None:
    problem = shortage(size)
    if problem is not None:
        raise unreadable(path, problem, expected, FIX_MEMORY)


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
    _refuse_large(path, len(data) + _CELL * cells, _TEXT)
    try:
        frame = pl.read_csv(
            _BOM + data if data.startswith(_ZLIB) else data,
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
    divided = separator is not None or table.source.lower().endswith(_TSV) or any(
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
    ending = ending_of(path, SOURCES)
    if ending is None or SOURCES[ending] not in (read_csv, read_tsv):
        return None
    data = read_bytes(path, _TEXT)
    usual = SEPARATORS[SOURCES[ending]]
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
            unpack = _PACKED.get(path.suffix.lower())
            if unpack is None:
                head = stream.read(_HEAD)
            else:
                with unpack(stream) as unpacked:
                    head = unpacked.read(_HEAD)
    except (*_DAMAGED, ModuleNotFoundError):
        return False  # the reader says what is wrong
    head = head.removeprefix(_BOM).lstrip()
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
    _refuse_large(path, len(data) + _ENTRY * (data.count(b",") + data.count(b"\n") + data.count(b"{")), expected)
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
            broken.append((number, str(error)))
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
    _refuse_large(path, _CELL * len(numbers) * len(columns), expected)
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


_OF_TEXT: dict[str, Reader] = {".csv": read_csv, ".tsv": read_tsv, ".jsonl": read_lines, ".ndjson": read_lines}
_OF_JSON = (read_lines, read_document)
DOCUMENTS = tuple(f".json{packed}" for packed in ("", *_PACKED))
_LISTED = re.compile(rb":\s*\[\s*\{")
SEPARATORS: dict[Reader, str] = {read_csv: ",", read_tsv: "\t"}
_TSV = (".tsv", *(f".tsv{packed}" for packed in _PACKED))
SOURCES: dict[str, Reader] = {
    **_OF_TEXT,
    **{f"{ending}{packed}": reader for ending, reader in _OF_TEXT.items() for packed in _PACKED},
    **dict.fromkeys(DOCUMENTS, read_document),
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
    ".ipc": read_arrow,
}
TEXT_ENDINGS = tuple(ending for ending in SOURCES if ending.startswith((".csv", ".tsv")))
ENDINGS_TEXT = (
    f"{', '.join([*_OF_TEXT, DOCUMENTS[0]])} (each also {', '.join(_PACKED)}), "
    f"{', '.join(ending for ending in SOURCES if ending.count('.') == 1 and ending not in (*_OF_TEXT, DOCUMENTS[0]))}"
)
