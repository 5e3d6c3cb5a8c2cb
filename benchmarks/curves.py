"""Learning curves as image files: seeds as thin lines, their mean as a thick line."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tidelog.training.metrics import Rows, series


def draw_curves(
    runs: Mapping[str, Rows], metric: str, path: Path, *, levels: Mapping[str, float] | None = None, title: str = ""
) -> Path:
    """Draw a metric of several runs, with named horizontal reference levels, into an image file; returns the path."""
    figure = Figure(figsize=(7.5, 4.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, (name, rows) in enumerate(runs.items()):
        updates, values = series(rows, metric)
        axes.plot(updates, values.T, color=f"C{i}", linewidth=0.8, alpha=0.45)
        axes.plot(updates, values.mean(axis=0), color=f"C{i}", linewidth=2.2, label=f"{name} (mean of {len(values)})")
    for i, (name, level) in enumerate((levels or {}).items()):
        axes.axhline(level, color="0.35", linewidth=1.0, linestyle=("--", ":", "-.")[i % 3], label=name)
    axes.set(xlabel="updates", ylabel=metric, title=title)
    axes.grid(alpha=0.25)
    axes.legend(loc="best", fontsize=8)
    figure.savefig(path)
    return path
