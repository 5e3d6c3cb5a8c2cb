"""Sinks of metrics: JSON lines and CSV in every run folder; TensorBoard, Weights & Biases and trackio if installed.

A row holds the metrics of one member at one update: `{"update", "member", "seed", <metric>: <number>, ...}`.
"""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tidelog.errors import CheckpointError, ConfigError

MetricsRow = Mapping[str, Any]
KEYS = ("update", "member", "seed")


class Sink(Protocol):
    """A receiver of rows of metrics during a run."""

    def write(self, row: MetricsRow) -> None:
        """Write one row."""

    def close(self) -> None:
        """Finish writing."""


class JsonLines:
    """One JSON object per line, flushed at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: MetricsRow) -> None:
        """Append one row."""
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Csv:
    """Long format, `update,member,seed,metric,value`; rows may have different metrics."""

    def __init__(self, path: Path) -> None:
        fresh = not path.exists() or path.stat().st_size == 0
        self._file = path.open("a", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        if fresh:
            self._writer.writerow([*KEYS, "metric", "value"])

    def write(self, row: MetricsRow) -> None:
        """Append one line per metric."""
        head = [row[key] for key in KEYS]
        self._writer.writerows([*head, name, value] for name, value in row.items() if name not in KEYS)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Event files for TensorBoard, one folder per member; needs `pip install tensorboardX`."""

    def __init__(self, folder: str | Path) -> None:
        self._make = _module("tensorboardX", "tensorboardX").SummaryWriter
        self._folder, self._writers = Path(folder), dict[int, Any]()

    def write(self, row: MetricsRow) -> None:
        """Add one scalar per metric."""
        member = row["member"]
        if member not in self._writers:
            self._writers[member] = self._make(str(self._folder / f"member-{member}"))
        for name, value in _metrics(row):
            self._writers[member].add_scalar(name, value, row["update"])

    def close(self) -> None:
        """Close all writers."""
        for writer in self._writers.values():
            writer.close()


class WandB:
    """A Weights & Biases run; needs `pip install wandb`. Keywords are passed to `wandb.init`."""

    package = "wandb"

    def __init__(self, **settings: Any) -> None:
        self._module = _module(self.package, self.package)
        self._run = self._module.init(**settings)

    def write(self, row: MetricsRow) -> None:
        """Log one row, with the member as prefix of its metrics."""
        values = {f"member-{row['member']}/{name}": value for name, value in _metrics(row)}
        self._module.log({**values, "update": row["update"]})

    def close(self) -> None:
        """Finish the run."""
        self._module.finish()


class Trackio(WandB):
    """A trackio run; needs `pip install trackio`. Keywords are passed to `trackio.init`."""

    package = "trackio"


def _metrics(row: MetricsRow) -> Iterable[tuple[str, Any]]:
    return ((name, value) for name, value in row.items() if name not in KEYS)


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(f"this sink needs the package {package}. fix: pip install {package}") from None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON-lines file without an incomplete last line; CheckpointError for a damaged line."""
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            rows += [json.loads(line)] if line else []
        except ValueError as error:
            raise CheckpointError(
                f"{path}, line {number} is damaged ({error}). fix: restore the file, or remove that line"
            ) from error
    return rows


def rows_until(folder: Path, update: int) -> list[dict[str, Any]]:
    """Return the rows of a run folder up to an update."""
    return [row for row in read_rows(folder / "metrics.jsonl") if row["update"] <= update]


def rewind(folder: Path, update: int) -> None:
    """Remove rows after `update` from both files of a run folder; each file is replaced as a whole."""
    rows = rows_until(folder, update)
    for name, sink in (("metrics.csv", Csv), ("metrics.jsonl", JsonLines)):  # last the file that the rows are read from
        aside = folder / f".{name}"
        aside.unlink(missing_ok=True)
        writer: Sink = sink(aside)
        for row in rows:
            writer.write(row)
        writer.close()
        aside.replace(folder / name)
