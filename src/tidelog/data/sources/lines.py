"""JSON lines: one object per line; inner objects become columns with dots in their names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog.data.core.registry import refusal
from tidelog.data.core.report import Report
from tidelog.data.parsing.tables import Table
from tidelog.data.sources.content import content, unreadable
from tidelog.errors import LogError

_EXPECTED = "one JSON object per line, in UTF-8"
_SHOWN = 10
_SCALARS = {int, float, bool}


def read_lines(path: Path, wanted: Sequence[str] | None) -> Table:
    """Read a table of JSON lines, gzipped or not; rows are numbered by line, and a missing key is null."""
    return objects(path)


def objects(path: Path, keep: Callable[[str], bool] = bool) -> Table:
    """Read the objects' values by flat name, for outer keys with `keep(key)`; LogError for broken lines."""
    columns: dict[str, list[Any]] = {}
    numbers: list[int] = []
    broken: list[tuple[int, str]] = []
    for number, text in enumerate(content(path, _EXPECTED).split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            entries = list(_flat("", {key: value for key, value in _object(text).items() if keep(key)}))
            _append(columns, entries, len(numbers))
        except (ValueError, RecursionError) as error:
            broken.append((number, str(error)))
            continue
        numbers.append(number)
    if broken:
        raise _broken(path, broken)
    for values in columns.values():
        values.extend([None] * (len(numbers) - len(values)))
    frame = pl.DataFrame([_series(path, name, values) for name, values in columns.items()])
    if not columns:
        raise unreadable(path, "objects without keys", _EXPECTED)
    return Table(str(path), frame, np.asarray(numbers), frame.columns)


def _object(text: bytes) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} instead of an object")
    return value


def _flat(prefix: str, entries: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in entries.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield prefix + key, value


def _append(columns: dict[str, list[Any]], entries: list[tuple[str, Any]], rows: int) -> None:
    """Append one row; ValueError, with nothing appended, if a name appears twice."""
    if len({name for name, _ in entries}) < len(entries):
        raise ValueError("the same name twice: with dots and as an inner object")
    for name, value in entries:
        column = columns.setdefault(name, [])
        if len(column) < rows:
            column.extend([None] * (rows - len(column)))
        column.append(value)


def _series(path: Path, name: str, values: list[Any]) -> pl.Series:
    """Numbers, flags, text or lists of numbers; a column of mixed types becomes text, which reveals odd cells."""
    kinds = {type(value) for value in values} - {type(None)}
    try:
        if kinds == {list}:
            return pl.Series(name, _lists(values))
        if len(kinds) <= 1 or kinds == {int, float}:
            return pl.Series(name, values, pl.Float64 if float in kinds else None)
        return pl.Series(name, [None if value is None else _as_text(value) for value in values], pl.String)
    except OverflowError:
        return pl.Series(name, [None if value is None else _number(value) for value in values], pl.Float64)
    except UnicodeError as error:
        raise unreadable(path, f"text in '{name}' that is not valid Unicode ({error})", _EXPECTED) from error


def _lists(values: list[Any]) -> list[Any]:
    kinds = {type(item) for value in values if value is not None for item in value} - {type(None)}
    one: Callable[[Any], Any] = _number if kinds <= _SCALARS else _as_text
    return [None if value is None else [None if item is None else one(item) for item in value] for value in values]


def _number(value: float) -> float:
    return float(str(value)) if type(value) is int else float(value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _broken(path: Path, broken: list[tuple[int, str]]) -> LogError:
    lines = tuple(number for number, _ in broken[:_SHOWN])
    advice = "correct these lines; an incomplete last line means a truncated file"
    found = f"lines that are not a JSON object: {broken[0][1]}"
    problem = refusal(str(path), "unreadable file", found, _EXPECTED, advice).problems[0]
    report = Report(str(path), 0, (replace(problem, rows=lines, count=len(broken)),))
    return LogError(report.text(), report)
