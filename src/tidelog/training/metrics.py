"""Metrics of a run: curves, the selection of the best policy, the figure, progress.

A metric is a name in what an algorithm's `loss` returns (`algorithms/short_form.py:gradient_steps` collects them). The
compiled loop sums them (`loop.py:Tally`), its `report` makes means of the sums, and `run.py:Run._report` keeps these,
sends them to sinks, and shows `MOST_METRICS`: first those that the user has named (`Run._named_first`), then losses.
"""

from __future__ import annotations

import html
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
import numpy as np

from tidelog._text import printable
from tidelog.errors import ConfigError, nearest
from tidelog.plots import Curve, curves, figure
from tidelog.schema import Count, Finite
from tidelog.sinks import KEYS
from tidelog.training.options import Options

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Learning curves from the metrics of a run, for reports and figures.
#
# Letters: `S` seeds, `T` reports, `R` resamples.

HELD_OUT = "held_out/"
MOST_POINTS = 120  # points of a curve; more than a chart of this width can show
MOST_SEEDS = 10  # largest number of seeds that are drawn separately
LEVEL = 0.95  # of the intervals over seeds
_RESAMPLES = 4000

Rows = Sequence[Mapping[str, Any]]
Values = np.ndarray[Any, Any]


class Kinds(NamedTuple):
    """Names of metrics by kind; a loss has the name that it has in training."""

    losses: list[str]
    evaluations: list[str]
    others: list[str]


def is_loss(metric: str) -> bool:
    """Return whether a metric is a loss by its name, which ends in `loss`, or in `loss_1` as that of one of several."""
    return re.search(r"loss(_\d+)?$", metric) is not None


def kinds_of(names: Iterable[str], own: Collection[str]) -> Kinds:
    """Sort the names of metrics by kind, each once; `own` are the names of the user's own evaluators."""
    kinds = Kinds([], [], [])
    for metric in dict.fromkeys(name.removeprefix(HELD_OUT) for name in names if name not in KEYS):
        evaluated = metric.startswith(("play/", "collect/return")) or metric in own
        (kinds.evaluations if evaluated else kinds.losses if is_loss(metric) else kinds.others).append(metric)
    return kinds


def series(rows: Rows, metric: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Updates [T] and values [S, T] of one metric; ConfigError if no report has it."""
    reports = [row for row in rows if metric in row]
    if not reports:
        raise ConfigError(f"no report has the metric '{metric}': {nearest(metric, rows[0] if rows else ())}")
    members = sorted({row["member"] for row in reports})
    updates = sorted({row["update"] for row in reports})
    table = {(row["member"], row["update"]): row[metric] for row in reports}
    return np.asarray(updates), np.asarray([[table.get((m, u), np.nan) for u in updates] for m in members])


def thin(updates: Values, values: Values) -> tuple[Values, Values]:
    """At most `MOST_POINTS` of [T] and [S, T]: means of neighbours, over finite values."""
    values = np.where(np.isfinite(values), values, np.nan)
    if len(updates) <= MOST_POINTS:
        return updates, values
    groups = np.array_split(np.arange(len(updates)), MOST_POINTS)
    means = np.stack([_mean(values[:, group]) for group in groups], axis=1)
    return np.array([updates[group].mean() for group in groups]), means


def over_seeds(values: Values) -> tuple[Values, Values | None, Values | None]:
    """Mean [T] over seeds [S, T], and the ends of its percentile bootstrap interval (None for one seed)."""
    mean = _mean(values.T)
    if len(values) < 2:
        return mean, None, None
    generator = np.random.default_rng(0)
    seeds = len(values)
    counts = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=_RESAMPLES).astype(np.float64)  # [R, S]
    there = np.isfinite(values)
    total, size = counts @ np.where(there, values, 0.0), counts @ there
    drawn = np.where(size > 0, total / np.maximum(size, 1), mean)  # a resample of missing seeds only: use the mean
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return mean, low, high


def _mean(values: Values) -> Values:
    """Mean [S] of the finite values in [S, T]; NaN if none is finite."""
    there = np.isfinite(values)
    size = there.sum(axis=1)
    return np.where(size > 0, np.where(there, values, 0.0).sum(axis=1) / np.maximum(size, 1), np.nan)


# Selection of the best report, and early stopping.


class SelectionMemory(msgspec.Struct, forbid_unknown_fields=True):
    """The state of a selection in a checkpoint."""

    best: dict[Count, Finite]  # by member
    waited: dict[Count, Count]  # reports since the best one, by member


class BestReport(NamedTuple):
    """The report whose policy a run keeps as its best."""

    metric: str
    update: int
    value: float


class Selection:
    """The best value of one metric per member; a smaller loss is better, a larger value of any other metric.

    The prefix `max:` or `min:` of the metric's name sets the direction.
    """

    def __init__(self, options: Options, memory: SelectionMemory | None = None) -> None:
        self.metric, self._sign = direction(options.best_metric)
        self._patience, self._members = options.patience, 0
        self.best: dict[int, float] = {} if memory is None else dict(memory.best)
        self._waited: dict[int, int] = {} if memory is None else dict(memory.waited)

    def check(self, metrics: Collection[str]) -> None:
        """Raise ConfigError if the metric of `best_metric` is not one of these."""
        if self.metric is not None and self.metric not in metrics:
            known = [name for name in metrics if name not in KEYS]
            raise ConfigError(
                f"best_metric = '{self.metric}': this run has no such metric; {nearest(self.metric, known)}"
            )

    def take(self, member: int, row: Mapping[str, Any]) -> bool:
        """Read a report; return True if it is the member's best so far."""
        if self.metric is None:
            return False
        value = float(row.get(self.metric, math.nan))  # a report may lack it, for example if no episode ended
        better = math.isfinite(value) and (
            member not in self.best or self._sign * value > self._sign * self.best[member]
        )
        if better:
            self.best[member] = value
        self._waited[member] = 0 if better else self._waited.get(member, 0) + 1
        return better

    @property
    def exhausted(self) -> bool:
        """Whether no member has had a better report for `patience` reports."""
        return self._patience is not None and bool(self._waited) and min(self._waited.values()) >= self._patience

    def best_member(self) -> int | None:
        """Return the member with the best report of all members."""
        return max(self.best, key=lambda m: self._sign * self.best[m]) if self.best else None

    def chosen(self, rows: Sequence[Mapping[str, Any]]) -> BestReport | None:
        """Return the best report of all members among the metrics of a run; None without `best_metric=`."""
        name, member = self.metric, self.best_member()
        if name is None or member is None:
            return None
        mine = (row for row in rows if row["member"] == member and row.get(name) == self.best[member])
        return next((BestReport(name, row["update"], self.best[member]) for row in mine), None)

    def memory(self) -> SelectionMemory:
        """Return the state for a checkpoint."""
        return SelectionMemory(self.best, self._waited)


def direction(best: str | None) -> tuple[str | None, float]:
    """Return the name of the metric of `best_metric`, and 1 if a larger value is better or -1 if a smaller one is."""
    if best is None:
        return None, 1.0
    for word, sign in (("max:", 1.0), ("min:", -1.0)):
        if best.startswith(word):
            return best[len(word) :], sign
    return best, -1.0 if is_loss(best) else 1.0


# A figure about a run: its learning curves. Letters: `S` seeds, `T` reports.


def config_name(name: str, configs: Sequence[Mapping[str, Any]], position: int) -> str:
    """Return the name of one algorithm of a population: the settings that differ; of one algorithm, the run's name."""
    mine = configs[position]
    differs = [f"{key} {value}" for key, value in mine.items() if any(one[key] != value for one in configs)]
    return f"{name} [{', '.join(differs)}]" if differs else name


def run_figure(
    rows: Rows, names: Sequence[str], seeds: int, own: Sequence[str], chosen: BestReport | None, metrics: Sequence[str]
) -> Figure:
    """Draw one picture for each metric; `names` are those of the algorithms, each with `seeds` members.

    Training is a solid line, held-out data a dashed line; a thin line is one seed, a thick line the mean over seeds,
    the band its bootstrap interval. ConfigError for a metric that no report has.
    """
    found = kinds_of((name for row in rows for name in row), own)
    shown = [one.removeprefix(HELD_OUT) for one in metrics] or [*found.losses, *found.evaluations] or found.others
    if not rows or not shown:
        raise ConfigError("the run has no report yet, so there is nothing to draw", fix="train it first")
    for metric in shown:
        if metric not in [*found.losses, *found.evaluations, *found.others]:
            series(rows, metric)  # refuses it by name
    pictures = []
    for metric in dict.fromkeys(shown):
        point = None
        if chosen is not None and chosen.metric.removeprefix(HELD_OUT) == metric:
            point = (chosen.update, chosen.value)
        drawn = [
            curve
            for config, name in enumerate(names)
            for curve in curves_of([row for row in rows if row["member"] // seeds == config], metric, name, config)
        ]
        pictures.append(curves(f"{metric} over updates", drawn, metric, chosen=point, has_legend=True))
    return figure(pictures)


def curves_of(rows: Rows, metric: str, name: str, colour: int) -> Iterator[Curve]:
    """The curve of one metric in training and, dashed, that of the same metric on held-out data, where reports have it.

    `rows` are the reports of the seeds of one algorithm.
    """
    for key, held_out in ((metric, False), (f"{HELD_OUT}{metric}", True)):
        if any(key in row for row in rows):
            updates, values = thin(*series(rows, key))
            mean, low, high = over_seeds(values)
            each = values if len(values) <= MOST_SEEDS else values[:0]
            yield Curve(f"{name}, held out" if held_out else name, colour, updates, mean, low, high, each, held_out)


# The progress line: the current activity, its rate, the remaining time, and the key metrics.

MOST_METRICS = 4
QUIET_SECONDS = 3.0  # before the first line, and between two lines at first
LONGEST_PAUSE = 60.0  # seconds between two lines of work that takes hours
BAR_SECONDS = 0.5
LONG_SECONDS = 30.0  # of work whose expected duration is said
SETTLED_SECONDS = 5.0  # of training, until its rate is near the later one


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a run after each chunk; `rows` are its new reports."""

    doing: str  # "compiling", "training", "validating" or "done"
    update: int  # steps done, in `unit`
    steps: int
    rate: float = 0.0  # steps per second, all members together
    left: float = 0.0  # remaining seconds
    metrics: dict[str, float] = field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()
    unit: str = "updates"
    unmeasured_reports: int = 0  # whose time is not yet part of `left`
    includes_compiling: bool = False  # `left` counts every later report like the first one, which also compiled

    def line(self, name: str) -> str:
        """Return one line for a terminal."""
        head = f"{name}  {self.update:,} / {self.steps:,} {self.unit}"
        if self.doing in ("compiling", "validating"):
            return f"{head}  {self.doing} ..."
        metrics = "  ".join(f"{k} {v:.4g}" for k, v in list(self.metrics.items())[:MOST_METRICS])
        return f"{head}  {self.rate:,.0f}/s  {_clock(self.left)} left  {metrics}"

    def expected(self) -> str:
        """Return what the rest of the run will take, by the rates that were measured."""
        text = f"about {_words(self.left)} for {self.steps - self.update:,} {self.unit} at {self.rate:,.0f}/s"
        if self.unmeasured_reports:
            return f"{text} on this machine, and {self.unmeasured_reports:,} validations whose time is not known yet"
        return f"{text} on this machine"


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{round(seconds, -1):.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """What long work shows: a live line on a terminal, a bar in a notebook, elsewhere a line every few seconds.

    All of it goes to standard error, except the notebook's bar. Work that ends within `QUIET_SECONDS` writes no line.
    """

    def __init__(self, name: str, show: bool | None = None) -> None:
        """`show` True asks for the live line, False for silence; None decides by where the program runs."""
        self._name = name
        self._view = _View() if show is False else _view(name, live=show is True)

    def __enter__(self) -> Progress:
        self._view.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.end()

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self._view.note(f"note: {text}")

    def update(self, doing: str, share: float) -> None:
        """Show the current activity, and the share of it that is done."""
        self._view.show(f"{self._name}  {doing}  {share:.0%}", share)

    def show(self, progress: TrainingProgress) -> None:
        """Show the progress of a run."""
        self._view.show(progress.line(self._name), progress.update / max(progress.steps, 1))


class _View:
    """Nothing is shown."""

    def begin(self) -> None: ...
    def end(self) -> None: ...
    def note(self, text: str) -> None: ...
    def show(self, line: str, share: float) -> None: ...


def _view(name: str, *, live: bool) -> _View:
    if live or sys.stderr.isatty():
        return _Live(name)
    display = _notebook_display()
    return _Lines() if display is None else _Bar(display)


class _Live(_View):
    """One line of a terminal, drawn again and again."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.text import Text

        self._console, self._text = Console(stderr=True), Text
        self._status = self._console.status(Text(name))

    def begin(self) -> None:
        self._status.start()

    def end(self) -> None:
        self._status.stop()

    def note(self, text: str) -> None:
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def show(self, line: str, share: float) -> None:
        self._status.update(self._text(printable(line)))


class _Lines(_View):
    """Lines with the time of day, for a pipe, a file or a service's log; the longer the work takes, the fewer.

    A thread writes them: work that is silent for minutes (a compilation, a fit) still shows that it goes on. A line
    that stays the same is written again after pauses that double.
    """

    def __init__(self) -> None:
        self._line, self._ended = "", threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def note(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)  # noqa: T201

    def show(self, line: str, share: float) -> None:
        self._line = printable(line)

    def _write(self) -> None:
        start = time.monotonic()
        written, pause, again = "", 0.0, 0.0  # the last line, and when the same line is written again
        while not self._ended.wait(min(max(QUIET_SECONDS, 0.05 * (time.monotonic() - start)), LONGEST_PAUSE)):
            line, now = self._line, time.monotonic()
            if not line or (line == written and now < again):
                continue
            pause = min(2.0 * pause, LONGEST_PAUSE) if line == written else 1.5 * QUIET_SECONDS
            print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)  # noqa: T201
            written, again = line, now + pause


class _Bar(_View):
    """A bar of plain HTML in a notebook, without widgets."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display, self._handle, self._last = display, None, 0.0

    def end(self) -> None:
        if self._handle is not None:
            self._handle.update({"text/html": self._html, "text/plain": self._line}, raw=True)

    def note(self, text: str) -> None:
        print(text)  # noqa: T201

    def show(self, line: str, share: float) -> None:
        self._line, now = line, time.monotonic()
        self._html = f'<progress max="1" value="{share:.4f}"></progress> <code>{html.escape(line)}</code>'
        if self._handle is None:
            self._handle = self._display({"text/html": self._html, "text/plain": line}, raw=True, display_id=True)
        elif now - self._last >= BAR_SECONDS:
            self._handle.update({"text/html": self._html, "text/plain": line}, raw=True)
            self._last = now


def _notebook_display() -> Callable[..., Any] | None:
    """Return IPython's `display` in a notebook's kernel, None elsewhere; nothing is imported for it."""
    ipython, display = sys.modules.get("IPython"), sys.modules.get("IPython.display")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or display is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    return cast("Callable[..., Any]", display.display)
