"""Sinks of metrics: JSON lines and CSV in every run folder (those for trackers are in `tidelog.sinks`).

A row holds the metrics of one member at one update: `{"update", "member", "seed", <metric>: <number>, ...}`.
"""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tidelog import disk
from tidelog.data.parsing.formulas import harmless
from tidelog.disk import AppendOnlyFile, write_file
from tidelog.errors import CheckpointError
from tidelog.input_files import parse_saved
from tidelog.sinks.tracker import KEYS, MetricsRow


class Sink(Protocol):
    """A receiver of rows of metrics during a run."""

    def write(self, row: MetricsRow) -> None:
        """Write one row."""

    def close(self) -> None:
        """Finish writing."""


class Format(NamedTuple):
    """How a file of metrics holds rows."""

    header: bytes
    lines: Callable[[MetricsRow], bytes]  # of one row


def _json_line(row: MetricsRow) -> bytes:
    return f"{json.dumps(row)}\n".encode()


def _csv_lines(row: MetricsRow) -> bytes:
    """A line per metric, as rows may have different ones; no name is a formula of a spreadsheet."""
    text = io.StringIO(newline="")
    head = [row[key] for key in KEYS]
    csv.writer(text).writerows([*head, harmless(name), value] for name, value in row.items() if name not in KEYS)
    return text.getvalue().encode()


JSON_LINES = "metrics.jsonl"
FORMATS = {
    JSON_LINES: Format(b"", _json_line),
    "metrics.csv": Format(b"update,member,seed,metric,value\r\n", _csv_lines),
}


class MetricsFile:
    """A file of metrics in a run folder, in the format of its name, to which rows are appended."""

    def __init__(self, path: Path) -> None:
        self._format, self._file = FORMATS[path.name], AppendOnlyFile(path)
        if path.stat().st_size == 0:
            self._file.append(self._format.header)

    def write(self, row: MetricsRow) -> None:
        """Append one row, which is written at once and durable after `sync`."""
        self._file.append(self._format.lines(row))

    def sync(self) -> tuple[str, int]:
        """Make all rows durable; return the name and the bytes of the file."""
        self._file.sync()
        return self._file.path.name, self._file.path.stat().st_size

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_rows(path: Path, durable: int = 0) -> list[dict[str, Any]]:
    """Return the rows of a JSON-lines file; CheckpointError for a damaged line within the first `durable` bytes.

    What follows them was not synced when the machine or the process stopped: there the first damaged line ends the
    rows, with a warning unless it is the last, incomplete one.
    """
    content = path.read_bytes() if path.is_file() else b""
    rows, begin = [], 0
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            rows.append(_row(line))
        except (ValueError, RecursionError) as error:
            where = f"{path}, line {number} is damaged ({error})"
            if begin < durable:
                raise CheckpointError(f"{where}. fix: restore the file, or remove that line") from error
            warnings.warn(f"{where}, after the last checkpoint: rows from there on are left out", stacklevel=2)
            break
        begin += len(line) + 1
    return rows


def rows_at(folder: Path, metrics: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the rows of a run folder at a checkpoint with these bytes of metrics; CheckpointError if some are lost."""
    path, durable = folder / JSON_LINES, metrics.get(JSON_LINES, 0)
    content = path.read_bytes()[:durable] if durable and path.is_file() else b""
    if len(content) < durable or (content and not content.endswith(b"\n")):
        raise CheckpointError(
            f"{path} differs from what it was at the checkpoint ({len(content):,} of {durable:,} bytes). fix: restore "
            "the file"
        )
    return read_rows(path, durable)[: content.count(b"\n")]


def _row(line: bytes) -> dict[str, Any]:
    row = parse_saved(line, nan=True)
    whole = isinstance(row, dict) and all(type(row.get(key)) is int and row[key] >= 0 for key in KEYS)
    if not whole or not all(isinstance(value, Real) for value in row.values()):
        raise ValueError(f"expected an update, a member, a seed and numbers, found {json.dumps(row)[:80]}")
    return dict(row)


def rewind(folder: Path, metrics: Mapping[str, int]) -> None:
    """Remove what follows these bytes from the files of metrics; a CSV file that was changed is written again."""
    for name, form in FORMATS.items():
        path, length = folder / name, metrics.get(name, 0)
        size = path.stat().st_size if path.exists() else 0
        if size > length:
            disk.DISK.cut(path, length)
            disk.DISK.sync(path)
        elif size < length:
            write_file(path, form.header + b"".join(map(form.lines, rows_at(folder, metrics))))
