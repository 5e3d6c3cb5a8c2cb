"""Read JSON objects, one a line or in one document; inner objects become columns with dots in their names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog.data.core.raw import Finding
from tidelog.data.core.registry import conversion_note, unreadable
from tidelog.data.parsing.tables import Table
from tidelog.data.sources.file_bytes import BOM, CELL, DAMAGED, PACKED, read_bytes, refuse_large, refuse_wide
from tidelog.input_files import open_regular, parse_json

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
