"""A figure about a run: its learning curves. Letters: `S` seeds, `T` reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.errors import ConfigError
from tidelog.figures import as_written, panels
from tidelog.training.runs.curves import HELD_OUT, LEVEL, MOST_SEEDS, Rows, kinds_of, over_seeds, series, thin
from tidelog.training.runs.selection import Chosen

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_COLOURS = 10


def config_name(name: str, configs: Sequence[Mapping[str, Any]], place: int) -> str:
    """Return the name of one algorithm of a population: the settings that differ; of one algorithm, the run's name."""
    mine = configs[place]
    differs = [f"{key} {value}" for key, value in mine.items() if any(one[key] != value for one in configs)]
    return f"{name} [{', '.join(differs)}]" if differs else name


def run_figure(
    rows: Rows, names: Sequence[str], seeds: int, own: Sequence[str], chosen: Chosen | None, metrics: Sequence[str]
) -> Figure:
    """Draw one panel for each metric; `names` are those of the algorithms, each with `seeds` members.

    Training is a solid line, held-out data a dashed line with a mark at every validation; a thin line is one seed, a
    thick line the mean over seeds, the band its bootstrap interval. ConfigError for a metric that no report has.
    """
    found = kinds_of((name for row in rows for name in row), own)
    shown = [one.removeprefix(HELD_OUT) for one in metrics] or [*found.losses, *found.evaluations] or found.others
    if not rows or not shown:
        raise ConfigError("the run has no report yet, so there is nothing to draw. fix: train it first")
    for metric in shown:
        if metric not in [*found.losses, *found.evaluations, *found.others]:
            series(rows, metric)  # refuses it by name
    figure, axes = panels(list(dict.fromkeys(shown)))
    for drawn, metric in zip(axes, dict.fromkeys(shown), strict=True):
        for config, name in enumerate(names):
            members = range(config * seeds, (config + 1) * seeds)
            mine = [row for row in rows if row["member"] in members]
            for key, held_out in ((metric, False), (f"{HELD_OUT}{metric}", True)):
                if any(key in row for row in mine):
                    label = f"{name}, held out" if held_out else name
                    _curve(drawn, *thin(*series(mine, key)), label, f"C{config % MOST_COLOURS}", dashed=held_out)
        if chosen is not None and chosen.metric.removeprefix(HELD_OUT) == metric:
            drawn.axvline(chosen.update, color="0.4", linewidth=0.8, linestyle=":")
            drawn.plot([chosen.update], [chosen.value], "*", color="black", markersize=11, label="chosen checkpoint")
        drawn.set(xlabel="updates", ylabel=as_written(metric))
        drawn.legend(fontsize="small")
    return figure


def _curve(drawn: Any, updates: Any, values: Any, label: str, colour: str, *, dashed: bool) -> None:
    """Draw the seeds [S, T], their mean, and its band."""
    mean, low, high = over_seeds(values)
    style = {"color": colour, "linestyle": "--" if dashed else "-", "marker": "o" if dashed else None}
    if 1 < len(values) <= MOST_SEEDS:
        for seed in values:
            drawn.plot(updates, seed, linewidth=0.7, alpha=0.5, markersize=2, label=None, **style)
    if low is not None and high is not None:
        there = np.isfinite(low) & np.isfinite(high)
        drawn.fill_between(updates, low, high, where=there, color=colour, alpha=0.15, gid=f"{LEVEL:.0%} interval")
    drawn.plot(updates, mean, linewidth=1.8, markersize=3, label=as_written(label), **style)
