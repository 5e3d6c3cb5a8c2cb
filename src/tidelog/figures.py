"""Figures of matplotlib, an extra: no pyplot, so that no window opens and no setting of the user changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.errors import ConfigError, install

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 2
PANEL = (5.2, 3.2)  # width and height in inches


def panels(titles: Sequence[str]) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, one for each title, in two columns; ConfigError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(f"figures need the package matplotlib ({error})", fix=install("plot")) from error
    columns = min(COLUMNS, len(titles))
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, place + 1) for place in range(len(titles))]
    for one, title in zip(axes, titles, strict=True):
        one.set_title(as_written(title), fontsize="medium")
    return figure, axes


def as_written(words: str) -> str:
    """Return words that matplotlib shows as they are: a dollar sign begins no formula."""
    return words.replace("$", r"\$")
