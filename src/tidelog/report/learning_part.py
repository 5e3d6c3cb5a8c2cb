"""Learning curves of runs, one chart per metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidelog._text import three_digits
from tidelog.report.frame import Curve, Values, curves, figure, folded, grid, heading, legend, paragraph, section
from tidelog.report.runs import SavedRun, ranks
from tidelog.training.metrics import HELD_OUT, LEVEL, MOST_POINTS, MOST_SEEDS, kinds_of, over_seeds, series, thin
from tidelog.training.run import overfitting

MOST_LINES = 8  # algorithms with their own colour
_MOST_NAMED = 4  # largest number of curves in a chart whose last values are listed


@dataclass(frozen=True, eq=False)
class Line:
    """One algorithm of one run, with all its seeds and its colour on the whole page."""

    run: SavedRun
    config: int
    colour: int

    @property
    def name(self) -> str:
        """Name on the page."""
        return self.run.label(self.config)

    @property
    def members(self) -> range:
        """Members of the run that are its seeds."""
        seeds = len(self.run.record.options.seeds)
        return range(self.config * seeds, (self.config + 1) * seeds)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Reports of its seeds."""
        return [row for row in self.run.rows if row["member"] in self.members]


def lines_of(runs: Sequence[SavedRun]) -> list[Line]:
    """The first `MOST_LINES` algorithms of all runs, each with a colour."""
    pairs = [(run, config) for run in runs for config in range(len(run.record.configs))]
    return [Line(run, config, place) for place, (run, config) in enumerate(pairs[:MOST_LINES])]


def colours(lines: Iterable[Line]) -> str:
    """Legend of the colours."""
    return legend((f"c{line.colour}", line.name) for line in lines)


def learning(runs: Sequence[SavedRun]) -> str:
    """The section: training and held-out losses, then evaluations, then all other metrics."""
    lines = lines_of(runs)
    own = {name for run in runs for name in run.record.options.own_evaluators}
    seen = [name for line in lines for row in line.rows[:1] + line.rows[-1:] for name in row]
    losses, evaluations, others = kinds_of(seen, own)
    held_out = "events" if all(map(ranks, runs)) else "episodes"
    kinds = {
        f"Losses in training and on held-out {held_out}": losses,
        "Evaluations during training": evaluations,
        "Other training metrics": others,
    }
    more = sum(len(run.record.configs) for run in runs) - len(lines)
    body = [paragraph(_explained(lines, held_out), "soft"), colours(lines) if len(lines) > 1 else ""]
    body += [paragraph(f"{more:,} more algorithms of the population are not shown.")] if more else []
    for line in lines:
        body += [paragraph(f"{line.name}: {note}" if len(lines) > 1 else note) for note in overfitting(line.rows)]
    for title, metrics in kinds.items():
        charts = grid((_chart(metric, lines) for metric in metrics), broad=True)
        if metrics is others and metrics:
            body.append(folded(f"{len(metrics):,} other training metrics, for a closer look", charts))
        elif metrics:
            body.append(heading(title) + charts)
    return section("Learning curves", "".join(body), "learning")


def _explained(lines: Sequence[Line], held_out: str) -> str:
    counts = sorted({len(line.members) for line in lines})
    text = f"Solid lines: training. Dashed lines: the same loss on held-out {held_out}."
    if counts == [1]:
        return f"{text} There is only one seed, so the effect of chance is unknown. fix: train several seeds."
    text += f" Thick: the mean over seeds; thin: each seed; the band: a {LEVEL:.0%} bootstrap interval of the mean."
    return text + (" With fewer than five seeds such a band is too narrow for its level." if counts[0] < 5 else "")


def _chart(metric: str, lines: Sequence[Line]) -> str:
    drawn = [curve for line in lines for curve in _curves(metric, line, alone=len(lines) == 1)]
    ends = "; ".join(f"{one.name} {_last(one.mean)}" for one in drawn) if len(drawn) > 1 else _last(drawn[0].mean)
    ends = f"At the end: {ends}." if len(drawn) <= _MOST_NAMED else ""
    reports = max(len({row["update"] for row in line.rows}) for line in lines)
    thinned = f" {reports:,} reports, shown as means of neighbours." if reports > MOST_POINTS else ""
    lost = sum(int((~np.isfinite(one.seeds)).sum()) for one in drawn)
    gaps = " Gaps: values that are not finite, or seeds without a report." if lost else ""
    title = f"{metric} over updates: {', '.join(dict.fromkeys(one.name for one in drawn))}"
    return figure(metric, curves(title, drawn, metric), f"{ends}{thinned}{gaps}".strip())


def _curves(metric: str, line: Line, *, alone: bool) -> Iterator[Curve]:
    for name, dashed in ((metric, False), (f"{HELD_OUT}{metric}", True)):
        if not any(name in row for row in line.rows):
            continue
        updates, values = thin(*series(line.rows, name))
        mean, low, high = over_seeds(values)
        shown = values if len(values) <= MOST_SEEDS else values[:0]
        label = f"{line.name}, held out" if dashed else line.name
        if alone:
            label = "held out" if dashed else "in training"
        yield Curve(label, line.colour, updates, mean, low, high, shown, dashed)


def _last(mean: Values) -> str:
    finite = mean[np.isfinite(mean)]
    return three_digits(float(finite[-1])) if len(finite) else "never finite"
