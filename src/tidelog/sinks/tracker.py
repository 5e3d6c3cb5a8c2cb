"""What every sink to an experiment tracker shares: one tracker run for each run folder, and no row twice.

A tracker run is found again by `sinks.json` in the run folder. At the beginning a tracker gets the rows of all earlier
reports and writes those that it does not have: of an interrupted run, and of a time when its server was not reachable.
"""

from __future__ import annotations

import importlib
import json
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import msgspec

from tidelog.disk import write_json
from tidelog.errors import ConfigError, install
from tidelog.schema import Count, decode_file

MetricsRow = Mapping[str, Any]
Value = str | int | float | bool
FILE = "sinks.json"
KEYS = ("update", "member", "seed")  # of a row; the others are metrics
LONGEST = 500  # characters of a parameter, the least that a tracker allows


class RunFacts(NamedTuple):
    """A run as a tracker shows it."""

    name: str  # of its folder, or of its algorithm
    folder: Path | None
    parameters: Mapping[str, Value]
    rows: Sequence[MetricsRow]  # of all reports so far


class Judged(Protocol):
    """A verdict, as far as a tracker shows it (`tl.Verdict`)."""

    @property
    def summary(self) -> dict[str, Any]:
        """The decision, the way of acting, the difference and its interval."""

    @property
    def paragraph(self) -> str:
        """The verdict in words."""


class TrackerRun(msgspec.Struct, forbid_unknown_fields=True):
    """The run of a tracker that shows a run folder, and the last update of each member that it has."""

    run: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    written: dict[int, Count]


class SinkWarning(UserWarning):
    """A sink failed; the run goes on, and the files of its folder have every row."""


class Tracker(ABC):
    """A sink that shows a run in an experiment tracker: parameters, metrics, the verdict and the report page."""

    name: ClassVar[str]  # in `--sink` and of the extra
    package: ClassVar[str]

    def __init__(self) -> None:
        self._module: Any = import_package(self.package, self.name)
        self.word = self.name  # on the command line
        self._facts = RunFacts("", None, {}, ())
        self._written: dict[int, int] = {}
        self._run = ""
        self.failed = False

    # What a subclass says about its tracker.

    @property
    @abstractmethod
    def target(self) -> str:
        """Where the tracker keeps its runs: a folder, an address or a project."""

    @abstractmethod
    def _open(self, run: str | None) -> str:
        """Create a tracker run with `self._facts`, or continue the one of this id; return its id."""

    @abstractmethod
    def _log(self, row: MetricsRow) -> None:
        """Write the metrics of one row."""

    @abstractmethod
    def _show(self, name: str, verdict: Judged) -> None:
        """Write the verdict on one policy."""

    @abstractmethod
    def _attach(self, page: Path) -> None:
        """Write a report page."""

    @abstractmethod
    def _end(self, finished: bool | None) -> None:
        """Close the tracker run."""

    def _last_updates(self) -> dict[int, int] | None:
        """Return the last update of each member that the tracker has; None: it cannot say."""
        return None

    # What a run calls.

    def begin(self, facts: RunFacts) -> None:
        """Open the tracker run, and write the rows that it lacks; ConfigError if the tracker does not answer."""
        self._facts, self.failed = facts, False
        known = {} if facts.folder is None else read_runs(facts.folder)
        before = known.get(self._key)
        again = self._run if facts.folder is None and facts.rows else None  # a run in memory is streamed in parts
        try:
            self._run = self._open(again or None if before is None else before.run)
            updates = self._last_updates()
        except Exception as error:  # a tracker has exceptions of its own
            new = "" if before is None else f", remove {facts.folder}/{FILE} for a new run there"
            raise ConfigError(
                f"the sink {self.name} ({self.target}) cannot be opened: {first_line(error)}. fix: check its address "
                f"and that its server runs{new}, or go on without it"
            ) from error
        self._written = ({} if before is None else before.written) if updates is None else updates
        self._remember()
        for row in facts.rows:
            self.write(row)

    def write(self, row: MetricsRow) -> None:
        """Write one row, unless the tracker has it; a tracker that fails is left out with a warning."""
        if self.failed or row["update"] <= self._written.get(row["member"], -1):
            return
        if self._tries(lambda: self._log(row), f"update {row['update']:,}"):
            self._written[row["member"]] = row["update"]
            self._remember()

    def publish(self, verdicts: Mapping[str, Judged], page: Path | None = None) -> None:
        """Write verdicts by the name of their policy, and a report page."""
        for name, verdict in verdicts.items():
            self._tries(lambda name=name, verdict=verdict: self._show(name, verdict), f"the verdict on {name}")  # type: ignore[misc]
        if page is not None:
            self._tries(lambda: self._attach(page), "the report page")

    def close(self, finished: bool | None = True) -> None:
        """Finish the tracker run; `finished` False: it was interrupted, None: it stays as it was."""
        self._tries(lambda: self._end(finished), "its end")

    @property
    def _key(self) -> str:
        return f"{self.name}:{self.target}"

    def _remember(self) -> None:
        if self._facts.folder is not None:
            known = {**read_runs(self._facts.folder), self._key: TrackerRun(self._run, self._written)}
            write_json(self._facts.folder / FILE, msgspec.to_builtins(known, str_keys=True))

    def _tries(self, action: Callable[[], None], what: str) -> bool:
        """Do it and return whether it worked; a failure is a warning, and the tracker is left out from there on."""
        if self.failed:
            return False
        try:
            action()
        except Exception as error:  # a tracker has exceptions of its own
            self.failed = True
            folder = self._facts.folder
            again = "" if folder is None else f", then `tidelog resume {folder} --sink {self.word}` sends what it lacks"
            warnings.warn(
                f"the sink {self.name} ({self.target}) failed at {what}: {first_line(error)}. The run goes on without "
                f"it{'' if folder is None else ', and its folder has every row'}. fix: repair the tracker{again}",
                SinkWarning,
                stacklevel=2,
            )
        return not self.failed


def read_runs(folder: Path) -> dict[str, TrackerRun]:
    """Read the tracker runs of a run folder by sink; CheckpointError if the file is damaged."""
    path = folder / FILE
    if not path.is_file():
        return {}
    return decode_file(path, dict[str, TrackerRun], fix="remove it; the sinks then begin new runs")


def import_package(package: str, extra: str) -> Any:
    """Import a tracker's package; ConfigError with the command that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"this needs the package {package} ({error}). fix: {install(extra)}") from None


def metrics_of(row: MetricsRow) -> Iterator[tuple[str, float]]:
    """Return the metrics of a row by name."""
    return ((name, value) for name, value in row.items() if name not in KEYS)


def named_metrics(row: MetricsRow) -> dict[str, float]:
    """Return the metrics of a row with the member as prefix: trackers have one run for all members."""
    return {f"member-{row['member']}/{name}": float(value) for name, value in metrics_of(row)}


def last_updates(metrics: Iterable[tuple[str, int]]) -> dict[int, int]:
    """Return the last update of each member, of pairs of a metric's name and an update."""
    last: dict[int, int] = {}
    for name, update in metrics:
        found = re.match(r"member-(\d+)/", name)
        if found is not None:
            last[int(found[1])] = max(update, last.get(int(found[1]), -1))
    return last


def verdict_values(name: str, verdict: Judged, separator: str) -> dict[str, Value]:
    """Return a verdict as flat values: its decision under `verdict/NAME`, the rest below that name."""
    head = f"verdict{separator}{name}"
    summary = {key: value for key, value in verdict.summary.items() if value is not None and value != ""}
    return {head: summary.pop("decision"), **{f"{head}{separator}{key}": value for key, value in summary.items()}}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Return nested settings by dotted names; lists and long text become short text."""
    found: dict[str, Value] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{key}.")
        elif value is not None:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            found[key] = value if isinstance(value, bool | int | float) else text[:LONGEST]
    return found


def without_password(text: str) -> str:
    """Return text whose addresses have no user and no password."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its message, without passwords."""
    text = without_password(str(error).strip().split("\n")[0])
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
