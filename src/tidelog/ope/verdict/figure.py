"""A figure about a verdict: every estimate with its interval, beside the logger's mean return."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from tidelog.figures import as_written, panels
from tidelog.number_text import NOTHING, in_unit, with_ends

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tidelog.ope.estimators.support import Estimates
    from tidelog.policies.statistics import Interval

GUESSES = "guesses outside the log: do not use them"
ROW = 0.6  # inches of a row
ROOM = 6.0  # largest width of the axis, relative to the range of the deciding estimate and the logger
TITLE = 72  # characters of a line


def verdict_figure(
    title: str, estimates: Estimates, deciding: str, logger: Interval, unit: str | None, *, guesses: bool
) -> Figure:
    """Draw one row for each estimate and one for the logger; the deciding estimate is thick and named.

    `guesses` says that the estimates are not supported by the log: they are grey.
    """
    rows = [(row.name, row.interval, row.name == deciding) for row in estimates]
    rows.append(("logger, as recorded", logger, False))
    figure, (drawn,) = panels(["\n".join(textwrap.wrap(title, TITLE))])
    figure.set_size_inches(7.5, 2.0 + ROW * len(rows))
    for place, (name, interval, decides) in enumerate(rows):
        colour = "C1" if place == len(rows) - 1 else "0.6" if guesses or not decides else "C0"
        middle, low, high = interval
        drawn.plot([low, high], [place, place], color=colour, linewidth=4.0 if decides else 1.8, gid=name)
        drawn.plot([middle], [place], "o", color=colour, markersize=8 if decides else 5)
    if np.isfinite(logger.estimate):
        drawn.axvline(logger.estimate, color="0.3", linewidth=0.8)
    strong = [end for _, interval, decides in rows for end in interval if decides or interval is logger]
    strong = [end for end in strong if np.isfinite(end)]
    ends = [end for _, interval, _ in rows for end in interval if np.isfinite(end)]
    if strong and max(strong) > min(strong) and max(ends) - min(ends) > ROOM * (max(strong) - min(strong)):
        reach = (ROOM - 1) / 2 * (max(strong) - min(strong))
        drawn.set_xlim(min(strong) - reach, max(strong) + reach)
    names = [
        as_written(f"{name} (decides)" if decides else name)
        + f"\n{with_ends(interval) if np.isfinite(interval[0]) else NOTHING}"
        for name, interval, decides in rows
    ]
    drawn.set_yticks(range(len(rows)), names, fontsize="small")
    drawn.invert_yaxis()
    across = f"mean return per episode{in_unit(unit, 'in ')}"
    drawn.set_xlabel(as_written(f"{across} ({GUESSES})" if guesses else across))
    return figure
