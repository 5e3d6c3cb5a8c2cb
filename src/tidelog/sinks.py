"""Where the metrics of a run go: a file in its folder, and experiment trackers, each an extra.

A row holds the metrics of one member at one update: `{"update", "member", "seed", <metric>: <number>, ...}`. The file
of JSON lines is the record, which `resume` reads back. A tracker shows the run as well; `sinks.json` in the run folder
says which run of a tracker that is, and the last row that it has.
"""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import msgspec

from tidelog import _files
from tidelog._files import AppendOnlyFile, parse_saved, write_file, write_json
from tidelog.errors import CheckpointError, ConfigError, import_extra, nearest
from tidelog.schema import decode_file

MetricsRow = Mapping[str, Any]
Value = str | int | float | bool
Verdicts = Mapping[str, Mapping[str, Value]]  # by the name of their policy: values by name, with a "decision"
KEYS = ("update", "member", "seed")  # of a row; the others are metrics
JSON_LINES = "metrics.jsonl"
TRACKER_RUNS = "sinks.json"
PROJECT = "tidelog"  # of W&B, and MLflow's experiment
LONGEST = 500  # characters of a parameter, the least that a tracker allows


class Sink(Protocol):
    """A receiver of rows of metrics during a run."""

    def write(self, row: MetricsRow) -> None:
        """Write one row."""

    def close(self) -> None:
        """Finish writing."""


# The file of the run folder.


class MetricsFile:
    """The file of JSON lines in a run folder, to which rows are appended."""

    def __init__(self, folder: Path) -> None:
        self._file = AppendOnlyFile(folder / JSON_LINES)

    def write(self, row: MetricsRow) -> None:
        """Append one row, which is written at once and durable after `sync`."""
        self._file.append(f"{json.dumps(row)}\n".encode())

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
                raise CheckpointError(where, fix="restore the file, or remove that line") from error
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
            f"{path} differs from what it was at the checkpoint ({len(content):,} of {durable:,} bytes)",
            fix="restore the file",
        )
    return read_rows(path, durable)[: content.count(b"\n")]


def _row(line: bytes) -> dict[str, Any]:
    row = parse_saved(line, nan=True)
    whole = isinstance(row, dict) and all(type(row.get(key)) is int and row[key] >= 0 for key in KEYS)
    if not whole or not all(isinstance(value, Real) for value in row.values()):
        raise ValueError(f"expected an update, a member, a seed and numbers, found {json.dumps(row)[:80]}")
    return dict(row)


def rewind(folder: Path, metrics: Mapping[str, int]) -> None:
    """Remove what follows these bytes from the file of metrics; CheckpointError if some of them are lost."""
    path, length = folder / JSON_LINES, metrics.get(JSON_LINES, 0)
    size = path.stat().st_size if path.exists() else 0
    if size > length:
        _files.DISK.cut(path, length)
        _files.DISK.sync(path)
    elif size < length:
        rows_at(folder, metrics)


# Experiment trackers.


class RunFacts(NamedTuple):
    """A run as a tracker shows it."""

    name: str  # of its folder, or of its algorithm
    folder: Path | None
    parameters: Mapping[str, Value]
    rows: Sequence[MetricsRow]  # of all reports so far


class TrackerRun(msgspec.Struct, forbid_unknown_fields=True):
    """The run of a tracker that shows a run folder, and the update and member of the last row that it has."""

    run: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    last: tuple[int, int] = (-1, -1)


class SinkWarning(UserWarning):
    """A tracker failed; the run goes on, and the file in its folder has every row."""


class Tracker(ABC):
    """A sink that shows a run in an experiment tracker: parameters, metrics, the verdict and the report page."""

    name: ClassVar[str]  # in `--sink` and of the extra

    def __init__(self, target: str) -> None:
        self.target = target  # a folder, an address without its password, or a project
        self.failed = False
        self._facts = RunFacts("", None, {}, ())
        self._shown: TrackerRun | None = None

    # What a subclass says about its tracker.

    @abstractmethod
    def _open(self, run: str | None) -> str:
        """Create a tracker run with `self._facts`, or continue the one of this id; return its id."""

    @abstractmethod
    def _log(self, row: MetricsRow) -> None:
        """Write the metrics of one row."""

    @abstractmethod
    def _publish(self, verdicts: Verdicts, page: Path | None) -> None:
        """Write verdicts, and a report page."""

    @abstractmethod
    def _end(self, finished: bool | None) -> None:
        """Close the tracker run."""

    # What a run calls.

    def begin(self, facts: RunFacts) -> None:
        """Open the tracker run, and write the rows that it lacks; ConfigError if the tracker does not answer."""
        self._facts, self.failed = facts, False
        if facts.folder is not None:
            self._shown = read_tracker_runs(facts.folder).get(self._key)
        elif not facts.rows:  # otherwise a run in memory that is streamed in parts
            self._shown = None
        before = self._shown
        try:
            run = self._open(None if before is None else before.run)
        except Exception as error:  # a tracker has exceptions of its own
            new = "" if before is None else f", remove {facts.folder}/{TRACKER_RUNS} for a new run there"
            raise ConfigError(
                f"the sink {self._key} cannot be opened: {_first_line(error)}",
                fix=f"check its address and that its server runs{new}, or go on without it",
            ) from error
        self._shown = TrackerRun(run) if before is None else before
        self._remember()
        for row in facts.rows:
            self.write(row)

    def write(self, row: MetricsRow) -> None:
        """Write one row, unless the tracker has it; a tracker that fails is left out with a warning."""
        index, shown = (row["update"], row["member"]), self._shown
        if shown is not None and index > shown.last and not self.failed and self._tries(self._log, row):
            shown.last = index
            self._remember()

    def publish(self, verdicts: Verdicts, page: Path | None = None) -> None:
        """Write verdicts, and a report page; a tracker that fails is left out with a warning."""
        if not self.failed:
            self._tries(self._publish, verdicts, page)

    def close(self, finished: bool | None = True) -> None:
        """Finish the tracker run; `finished` False: it was interrupted, None: it stays as it was."""
        self._tries(self._end, finished)

    @property
    def _key(self) -> str:
        return f"{self.name}:{self.target}"

    def _remember(self) -> None:
        if self._facts.folder is not None:
            known = {**read_tracker_runs(self._facts.folder), self._key: self._shown}
            write_json(self._facts.folder / TRACKER_RUNS, msgspec.to_builtins(known))

    def _tries(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Do it and return whether it worked; the first failure is a warning."""
        try:
            action(*arguments)
        except Exception as error:  # a tracker has exceptions of its own
            if self.failed:
                return False
            self.failed = True
            folder = self._facts.folder
            again = f", then `tidelog resume {folder} --sink {self._key}` sends what it lacks" if folder else ""
            after = "" if self._shown is None else f" after update {max(self._shown.last[0], 0):,}"
            warnings.warn(
                f"the sink {self._key} failed{after}: {_first_line(error)}. The run goes on without it"
                f"{f', and {folder / JSON_LINES} has every row' if folder else ''}. fix: repair the tracker{again}",
                SinkWarning,
                stacklevel=3,
            )
            return False
        return True


class MLflow(Tracker):
    """An MLflow run; `uri` is a tracking server or database, by default what MLflow itself uses.

    Needs the extra `mlflow`. `experiment` is created if it does not exist.
    """

    name: ClassVar[str] = "mlflow"

    def __init__(self, uri: str | None = None, *, experiment: str = PROJECT) -> None:
        self._module = import_extra("mlflow", self.name)
        self._uri, self._experiment, self._status = uri or self._module.get_tracking_uri(), experiment, "FINISHED"
        super().__init__(_without_password(self._uri))

    def _open(self, run: str | None) -> str:
        self._client = self._module.MlflowClient(self._uri)
        if run is not None:
            self._status = self._client.get_run(run).info.status
            self._client.update_run(run, status="RUNNING")
        else:
            known = self._client.get_experiment_by_name(self._experiment)
            experiment = known.experiment_id if known else self._client.create_experiment(self._experiment)
            run = str(self._client.create_run(experiment, run_name=self._facts.name).info.run_id)
            values = [(_allowed(name), str(value)) for name, value in self._facts.parameters.items()]
            for begin in range(0, len(values), 100):  # in one request, MLflow's limit
                parameters = [self._module.entities.Param(*pair) for pair in values[begin : begin + 100]]
                self._client.log_batch(run, params=parameters)
        self._run = run
        return run

    def _log(self, row: MetricsRow) -> None:
        now, metric = int(1000 * time.time()), self._module.entities.Metric
        metrics = [metric(_allowed(name), value, now, row["update"]) for name, value in _named_metrics(row).items()]
        self._client.log_batch(self._run, metrics=metrics)

    def _publish(self, verdicts: Verdicts, page: Path | None) -> None:
        tag = self._module.entities.RunTag
        for name, verdict in verdicts.items():
            values = _verdict_values({name: verdict}, ".")
            self._client.log_batch(self._run, tags=[tag(_allowed(key), str(value)) for key, value in values.items()])
        if page is not None:
            self._client.log_artifact(self._run, str(page))

    def _end(self, finished: bool | None) -> None:
        if self._facts.folder is not None:
            for name in ("run.json", JSON_LINES):
                self._client.log_artifact(self._run, str(self._facts.folder / name))
        self._client.set_terminated(self._run, {True: "FINISHED", False: "KILLED", None: self._status}[finished])


class TensorBoard(Tracker):
    """Event files in a folder, which `tensorboard --logdir` shows. Needs the extra `tensorboard`."""

    name: ClassVar[str] = "tensorboard"

    def __init__(self, folder: str | Path) -> None:
        self._module = import_extra("tensorboardX", self.name)
        self._folder = Path(folder)
        self._writers = dict[str, Any]()  # one of each member, and "" for text
        super().__init__(str(folder))

    def _open(self, run: str | None) -> str:
        if run is None:
            self._writer("").add_text("parameters", _table(self._facts.parameters), 0)
        return str(self._folder)

    def _writer(self, name: str) -> Any:
        if name not in self._writers:
            folder = self._folder / name
            suffix = f".{len(list(folder.glob('events*'))):06d}"  # two files of one second would have the same name
            self._writers[name] = self._module.SummaryWriter(str(folder), flush_secs=1, filename_suffix=suffix)
        return self._writers[name]

    def _log(self, row: MetricsRow) -> None:
        for name, value in metrics_of(row).items():
            self._writer(f"member-{row['member']}").add_scalar(name, value, row["update"])

    def _publish(self, verdicts: Verdicts, page: Path | None) -> None:
        update = self._facts.rows[-1]["update"] if self._facts.rows else 0
        for name, verdict in verdicts.items():
            self._writer("").add_text(f"verdict/{name}", _table(verdict), update)
        if page is not None:
            write_file(self._folder / page.name, page.read_bytes(), ConfigError, parents=True)
            self._writer("").add_text("report", f"The report page is {self._folder / page.name}", update)

    def _end(self, finished: bool | None) -> None:
        while self._writers:
            self._writers.popitem()[1].close()


class WandB(Tracker):
    """A Weights & Biases run; further keywords are passed to `wandb.init`. Needs the extra `wandb`.

    Its files are in the run folder, unless `WANDB_DIR` names another one. With `WANDB_MODE=offline` nothing is sent;
    `wandb sync` uploads the files later.
    """

    name: ClassVar[str] = "wandb"

    def __init__(self, project: str = PROJECT, **settings: Any) -> None:
        self._module = import_extra("wandb", self.name)
        self._settings = {"project": project, **settings}
        super().__init__(str(project))

    def _open(self, run: str | None) -> str:
        folder = self._facts.folder
        settings: dict[str, Any] = {"name": self._facts.name, "config": dict(self._facts.parameters)}
        settings |= {} if run is None else {"id": run, "resume": "allow"}
        settings |= {} if folder is None or "WANDB_DIR" in os.environ else {"dir": str(folder)}
        self._run = self._module.init(**{**settings, **self._settings})
        return str(self._run.id)

    def _log(self, row: MetricsRow) -> None:
        self._run.log({**_named_metrics(row), "update": row["update"]}, step=row["update"])

    def _publish(self, verdicts: Verdicts, page: Path | None) -> None:
        self._run.summary.update(_verdict_values(verdicts, "/"))
        if page is not None:
            folder = Path(self._run.dir)  # a file has no step; W&B refuses values of an earlier step
            write_file(folder / page.name, page.read_bytes(), ConfigError)
            self._run.save(str(folder / page.name), base_path=str(folder), policy="now")

    def _end(self, finished: bool | None) -> None:
        self._run.finish(exit_code=int(finished is False))


# By name: make a sink from the text after the colon, and from the run folder.
SINKS: Mapping[str, Callable[[str | None, Path], Tracker]] = {
    "mlflow": lambda target, folder: MLflow(target),
    "tensorboard": lambda target, folder: TensorBoard(target or folder / "tensorboard"),
    "wandb": lambda target, folder: WandB(target or PROJECT),
}


def open_sink(word: str, folder: Path) -> Tracker:
    """Make a sink from `NAME` or `NAME:TARGET`; ConfigError for an unknown name, and without the sink's package."""
    name, _, target = word.partition(":")
    if name not in SINKS:
        raise ConfigError(f"unknown sink '{name}': {nearest(name, SINKS)}")
    return SINKS[name](target or None, folder)


def read_tracker_runs(folder: Path) -> dict[str, TrackerRun]:
    """Read the tracker runs of a run folder by sink; CheckpointError if the file is damaged."""
    path = folder / TRACKER_RUNS
    if not path.is_file():
        return {}
    return decode_file(path, dict[str, TrackerRun], fix="remove it; the sinks then begin new runs")


def metrics_of(row: MetricsRow) -> dict[str, float]:
    """Return the metrics of a row by name."""
    return {name: value for name, value in row.items() if name not in KEYS}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Return nested settings by dotted names; lists and long text become short text."""
    settings: dict[str, Value] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            settings |= flat(value, f"{prefix}{name}.")
        elif value is not None:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            settings[f"{prefix}{name}"] = value if isinstance(value, bool | int | float) else text[:LONGEST]
    return settings


def _named_metrics(row: MetricsRow) -> dict[str, float]:
    """Return the metrics of a row with the member as prefix: trackers have one run for all members."""
    return {f"member-{row['member']}/{name}": float(value) for name, value in metrics_of(row).items()}


def _verdict_values(verdicts: Verdicts, separator: str) -> dict[str, Value]:
    """Return each decision under `verdict/NAME`, and the other values of its verdict below that name."""
    return {
        separator.join(("verdict", name) if key == "decision" else ("verdict", name, key)): value
        for name, verdict in verdicts.items()
        for key, value in verdict.items()
    }


def _table(values: Mapping[str, Any]) -> str:
    """Return values as a table of Markdown."""
    rows = [f"| {name} | {str(value).replace('|', chr(92) + '|')} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])


def _allowed(name: str) -> str:
    """Return a name without the characters that names in MLflow do not have."""
    return re.sub(r"[^\w\-. /:]", "_", name)


def _without_password(text: str) -> str:
    """Return text whose addresses have no user and no password."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def _first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its message, without passwords."""
    text = _without_password(str(error).strip().split("\n")[0])
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
