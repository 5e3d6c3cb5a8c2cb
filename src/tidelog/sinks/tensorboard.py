"""TensorBoard: event files for each member; settings and the verdict are text, the page is a file."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from tidelog.disk import write_file
from tidelog.errors import ConfigError
from tidelog.sinks.tracker import Judged, MetricsRow, Tracker, metrics_of, verdict_values

EVENTS = "events*"  # files that tensorboardX writes
MEMBER = "member-"
PAGE = "report.html"
_LENGTH, _CHECK = struct.Struct("<Q"), 4  # before a record: its bytes and their check sum; after it another one


class TensorBoard(Tracker):
    """Event files in a folder, which `tensorboard --logdir` shows. Needs the extra `tensorboard`."""

    name: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboardX"

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._writers = dict[str, Any]()  # by folder, below that of the sink
        self._last = dict[tuple[str, str], int]()  # the last update of each folder and metric

    @property
    def target(self) -> str:
        """The folder."""
        return str(self._folder)

    def _open(self, run: str | None) -> str:
        self._last = {}
        for path in sorted(self._folder.rglob(EVENTS)):
            for tag, update in self._events(path):
                key = (path.parent.name, tag)
                self._last[key] = max(update, self._last.get(key, -1))
        if not self._last and self._facts.parameters:
            self._writer("").add_text("parameters", _table(self._facts.parameters), 0)
        return str(self._folder)

    def _last_updates(self) -> dict[int, int]:
        """Ask the event files: a process that was killed lost what it had not flushed."""
        updates: dict[int, int] = {}
        for (folder, _), update in self._last.items():
            if folder.startswith(MEMBER):
                member = int(folder.removeprefix(MEMBER))
                updates[member] = min(update, updates.get(member, update))
        return updates

    def _log(self, row: MetricsRow) -> None:
        folder, update = f"{MEMBER}{row['member']}", row["update"]
        writer = self._writer(folder)
        for name, value in metrics_of(row):
            if update > self._last.get((folder, name), -1):
                writer.add_scalar(name, value, update)
                self._last[folder, name] = update

    def _show(self, name: str, verdict: Judged) -> None:
        text = f"{verdict.paragraph}\n\n{_table(verdict_values(name, verdict, '/'))}"
        self._writer("").add_text(f"verdict/{name}", text, max(self._last.values(), default=0))

    def _attach(self, page: Path) -> None:
        copy = self._folder / PAGE
        write_file(copy, page.read_bytes(), ConfigError, parents=True)
        self._writer("").add_text("report", f"The report page is {copy}", max(self._last.values(), default=0))

    def _end(self, finished: bool | None) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _writer(self, folder: str) -> Any:
        if folder not in self._writers:
            place = self._folder / folder
            suffix = f".{len(list(place.glob(EVENTS))):06d}"  # two files of one second would have the same name
            self._writers[folder] = self._module.SummaryWriter(str(place), filename_suffix=suffix)
        return self._writers[folder]

    def _events(self, path: Path) -> Iterator[tuple[str, int]]:
        """Return the tag and the update of every value in an event file, up to a record that was cut off."""
        event = importlib.import_module("tensorboardX.proto.event_pb2").Event()
        content, begin = path.read_bytes(), 0
        while begin + _LENGTH.size + _CHECK <= len(content):
            (length,) = _LENGTH.unpack_from(content, begin)
            begin += _LENGTH.size + _CHECK
            if begin + length + _CHECK > len(content):
                break
            event.ParseFromString(content[begin : begin + length])
            yield from ((value.tag, event.step) for value in event.summary.value)
            begin += length + _CHECK


def _table(values: Mapping[str, Any]) -> str:
    """Return values as a table of Markdown."""
    rows = [f"| {name} | {str(value).replace('|', chr(92) + '|')} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])
