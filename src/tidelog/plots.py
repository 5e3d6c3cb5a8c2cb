"""Pictures of logs, runs and verdicts, drawn by matplotlib: the same ones in figures of a user and in pages.

One function makes one `Plot`. `figure` puts pictures side by side into a matplotlib figure without pyplot: no
window opens, and no setting of the user changes. `svg` draws one for a page, which says its colours and its font.
matplotlib is imported when something is drawn.

Every picture names its axes, and says so if one is logarithmic. The colours `c0` to `c7` are distinguishable with every
form of colour vision (after Okabe & Ito 2008); their meaning is always given as text too.

Letters: `N` numbers, `B` bins, `S` seeds, `T` reports.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tidelog._text import printable, three_digits, with_ends

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = np.ndarray[Any, Any]

LIGHT = {  # by the names that a page gives them
    "ink": "#1c2733", "soft": "#566675", "line": "#d8dfe6", "bar": "#2f7f93", "log": "#8a97a3",
    "better": "#00609a", "worse": "#b34700", "same": "#566675", "unknown": "#6d3f8f",
    "c0": "#0072b2", "c1": "#d55e00", "c2": "#009e73", "c3": "#b5588c", "c4": "#a87400", "c5": "#3c9bd4",
    "c6": "#7a5aa6", "c7": "#444f59",
}  # fmt: skip
SERIES = 8  # colours of series
WIDTH = 340  # of a picture, in points
_SMALL = 280
_LETTER = 6.4  # width of a letter, in points; of most letters less
_TEXT = 11  # size of letters, in points
_BINS = 30
_DECADES = 100.0  # ratio of the largest to the smallest positive number from which an axis is logarithmic
_ROOM = 6.0  # largest width of an axis of intervals, relative to the range of its `strong` rows
_COLUMNS = 2  # of pictures in a figure


class Margins(NamedTuple):
    """What a picture leaves around its axes, in points."""

    left: float
    right: float
    top: float
    bottom: float


@dataclass(frozen=True)
class Plot:
    """A picture that is not drawn yet: its text for screen readers, its size in points, and what draws its axes."""

    description: str
    width: float
    height: float
    margins: Margins
    draw: Callable[[Any], None]


# Drawing: a figure for the user, or SVG for a page.


def figure(pictures: Sequence[Plot], title: str = "") -> Figure:
    """Return a matplotlib figure with pictures in two columns, row by row."""
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(pictures))
    rows = [pictures[first : first + columns] for first in range(0, len(pictures), columns)]
    width = max(sum(one.width for one in row) for row in rows)
    lines = textwrap.wrap(title, int(width / 7))
    head = 18.0 * len(lines) + 8.0 * bool(lines)
    height = head + sum(max(one.height for one in row) for row in rows)
    made = Figure(figsize=(width / 72, height / 72))
    if lines:
        words = _label("\n".join(lines), len(title) + len(lines))
        made.suptitle(words, y=1 - 6 / height, fontsize=13, color=LIGHT["ink"])
    top = height - head
    for row in rows:
        left = 0.0
        for one in row:
            at, margins = (left, top - one.height), one.margins
            inner = (one.width - margins.left - margins.right, one.height - margins.top - margins.bottom)
            corner = ((at[0] + margins.left) / width, (at[1] + margins.bottom) / height)
            axes = made.add_axes((*corner, inner[0] / width, inner[1] / height))
            axes.tick_params(length=0, labelsize=_TEXT, labelcolor=LIGHT["soft"], pad=4)
            for side in ("top", "left", "right"):
                axes.spines[side].set_visible(False)
            axes.spines["bottom"].set_color(LIGHT["line"])
            axes.set_yticks([])
            one.draw(axes)
            left += one.width
        top -= max(one.height for one in row)
    return made


_COLOURS = {colour: f"var(--{name})" for name, colour in reversed(LIGHT.items())}
_INHERITED = ("font-family", "font-size", "stroke-linecap", "stroke-linejoin", "stroke-miterlimit")  # from the page


def svg(picture: Plot) -> str:
    """Return a picture as SVG with a text description; equal pictures have equal bytes.

    Colours are those of the page, `var(--c0)`, so that it decides between light and dark; letters are text.
    """
    from matplotlib import rc_context, rcParamsDefault
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    written = io.StringIO()
    settings = {name: value for name, value in rcParamsDefault.items() if not name.startswith("backend")}
    with (
        rc_context({**settings, "svg.fonttype": "none", "svg.hashsalt": picture.description}),
        warnings.catch_warnings(),
    ):
        # of matplotlib's own font, which draws nothing here: letters stay text, and the reader's browser has the glyphs
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        drawn = figure([picture])
        drawn.patch.set_visible(False)
        for axes in drawn.axes:
            axes.patch.set_visible(False)
            for artist in (*axes.get_children(), *axes.get_ygridlines()):
                artist.set_clip_on(False)
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(drawn).print_svg(written, metadata=metadata)  # type: ignore[no-untyped-call]
    content = written.getvalue()
    content = content[
        content.index("</defs>") + len("</defs>") : content.rindex("</svg>")
    ]  # the first is a style sheet
    content = re.sub(r">\s+<", "><", re.sub(r"<[^>]*>", _tag, content))
    content = re.sub(r"</?g/?>", "", content)  # groups without attributes
    description = escape(printable(picture.description), quote=True)
    label = f'role="img" aria-label="{description}"><title>{description}</title>'
    return f'<svg viewBox="0 0 {picture.width:g} {picture.height:g}" {label}{content.strip()}</svg>'


def _tag(found: re.Match[str]) -> str:
    """A tag with attributes for its style, which need no permission of a page's security policy, and short numbers."""

    def attributes(style: re.Match[str]) -> str:
        pairs = dict(pair.split(": ", 1) for pair in style[1].split("; "))
        for word in pairs.pop("font", "").split():  # up to matplotlib 3.10 all about letters is one entry
            pairs |= {"font-style": word} if word == "italic" else {"font-weight": word} if word.isdigit() else {}
        shown = ((name, _COLOURS.get(value, value)) for name, value in pairs.items() if name not in _INHERITED)
        return " ".join(f'{name}="{value}"' for name, value in shown)

    tag = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.4g}", re.sub(r"\s+", " ", found[0]))
    if tag.startswith(("<g", "<text")):
        tag = re.sub(r' id="[^"]*"| transform="rotate\(-0 [^"]*\)"', "", tag)
    return re.sub(r'style="([^"]*)"', attributes, tag)


# Parts of pictures: axes, labels, bars.


def _label(words: str, letters: int = 13) -> str:
    """Words as matplotlib shows them unchanged, cut to so many letters: a dollar sign begins no formula."""
    words = printable(words)
    cut = words if len(words) <= letters else words[: letters - 1] + "…"
    return cut.replace("$", r"\$")


def short(value: float, digits: int = 4) -> str:
    """Short form of a number for an axis: 20k, 1.5M, 0.25."""
    size = abs(value)
    for limit, power, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if limit <= size < 1e12:
            return f"{value / power:.{digits}g}{unit}"
    return f"{value:.{digits}g}" if size > 1e-12 else "0"


def named_ticks(ticks: Sequence[float]) -> list[str]:
    """Short forms of the ticks of an axis, with as many digits as tell them apart."""
    apart = min((abs(b - a) for a, b in pairwise(ticks)), default=0.0)
    digits = 4
    while digits < 12 and any(abs(float(f"{value:.{digits}g}") - value) > 0.01 * apart for value in ticks):
        digits += 1
    return [short(value, digits) for value in ticks]


class Range(NamedTuple):
    """The numbers from one end of an axis to the other."""

    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def of(cls, values: Any, *, also: Sequence[float] = (), positive: bool = False) -> Range:
        """A range over the finite numbers of `values` and over `also`, with room beyond them.

        It is logarithmic if `positive` and they are positive and span decades. A single number, or none, gets a range
        around it.
        """
        numbers = np.concatenate([np.ravel(np.asarray(values, np.float64)), np.asarray(also, np.float64)])
        numbers = numbers[np.isfinite(numbers)]
        low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
        if positive and low > 0 and high / low > _DECADES:
            return cls(low, high, True)
        if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
            room = abs(low) * 0.1 or 0.5
        else:
            room = 0.04 * high - 0.04 * low
        return cls(low - room, high + room)

    def ticks(self, most: int = 5) -> list[float]:
        """About `most` round numbers within the range."""
        if self.logarithmic:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            return [10.0**power for power in powers[:: max(1, math.ceil(len(powers) / most))]]
        rough = (self.high / most) - (self.low / most)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def _name_axes(picture: Any, across: str, up: str = "", below: float = 29.0) -> None:
    """Write the name of the horizontal axis `below` it, and that of the vertical one above its upper end."""
    box = picture.get_position()
    points = 72 * picture.figure.get_size_inches() * (box.width, box.height)
    style: dict[str, Any] = {"style": "italic", "color": LIGHT["soft"], "fontsize": _TEXT}
    picture.set_xlabel(_label(across, int((points[0] + 24) / _LETTER)), **style)
    picture.xaxis.set_label_coords(0.5, -below / points[1])
    picture.xaxis.label.set_verticalalignment("baseline")
    if up:
        picture.set_title(_label(up, int(points[0] / _LETTER)), loc="left", y=1.0, pad=4, **style)


def _note(
    axes: Any,
    words: str,
    point: tuple[float, float],
    offset: tuple[float, float],
    coordinates: str = "axes fraction",
    **style: Any,
) -> None:
    """Write words at a point and an offset in points from it."""
    style = {"fontsize": _TEXT, "color": LIGHT["soft"], **style}
    axes.annotate(words, point, xycoords=coordinates, xytext=offset, textcoords="offset points", **style)


def _write(axes: Any, x: float, y: float, words: str, **style: Any) -> None:
    """Write words at a height of the data, and a share of the width of the axes."""
    style = {"fontsize": _TEXT, "color": LIGHT["soft"], **style}
    axes.text(x, y, words, transform=axes.get_yaxis_transform(), **style)


def _name_numbers(axes: Any, ticks: Sequence[float], names: Sequence[str] | None = None) -> None:
    """Write numbers, or their names, below the horizontal axis; those at its ends stay within the picture."""
    names = named_ticks(ticks) if names is None else [_label(name) for name in names]
    axes.set_xticks(ticks, names)
    low, high = axes.get_xlim()
    inner = 72 * axes.figure.get_size_inches()[0] * axes.get_position().width
    for value, name, label in zip(ticks, names, axes.get_xticklabels(), strict=True):
        half, point = len(name) * _LETTER / 2, (value / (high - low) - low / (high - low)) * inner
        label.set_horizontalalignment("left" if point + 6 < half else "right" if point > inner + 6 - half else "center")


class Bins(NamedTuple):
    """Counts [B] between edges [B + 1]; `whole` if every bin is one whole number."""

    counts: Values
    edges: Values
    whole: bool


def bins(values: Values) -> Bins:
    """Bins of finite numbers: one per whole number if there are few, else thirty of equal width."""
    values = np.asarray(values, np.float64)
    low, high = float(values.min()), float(values.max())
    if low == high:
        return Bins(np.array([len(values)]), np.array([low, high]), low % 1 == 0)
    if high - low < _BINS and bool((values % 1 == 0).all()):
        edges = np.arange(low, high + 2) - 0.5
        return Bins(np.bincount((values - low).astype(np.int64)), edges, True)
    counts, edges = np.histogram(values / 2, _BINS, (low / 2, high / 2))  # halves do not overflow
    return Bins(counts, edges * 2, False)


def _shared(values: Values, common: Bins) -> Values:
    """Counts of numbers [N] between the edges of common bins, [B]."""
    if len(common.counts) == 1:
        return np.array([len(values)])
    return np.histogram(values / 2, common.edges / 2)[0]


def _spread(axes: Any, common: Bins) -> Values:
    """Set the range of an axis of bins, where a bar takes a third at most, and return the edges of the bars."""
    edges = common.edges
    low, high = float(edges[0]), float(edges[-1])
    if low == high:
        room = abs(low) * 0.1 or 0.5
        low, high, edges = low - room, high + room, np.array([low - room / 3, low + room / 3])
    elif len(common.counts) < 3:
        room = (3 - len(common.counts)) * (high - low) / len(common.counts) / 2
        low, high = low - room, high + room
    axes.set_xlim(low, high)
    return edges


def _bars(axes: Any, heights: Values, edges: Values, whole: bool, foot: float = 0.0, **style: Any) -> None:
    """Draw bars [B] between edges [B + 1] as one path, with gaps where every bar is a whole number."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    there = heights > 0
    middle, half = edges[:-1] / 2 + edges[1:] / 2, np.diff(edges) * (0.35 if whole else 0.46)
    left, right = (middle - half)[there], (middle + half)[there]
    low, high = np.full(len(left), foot), foot + heights[there]
    corners = np.stack([left, low, left, high, right, high, right, low, left, low], axis=1).reshape(-1, 2)
    codes = np.tile([Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY], len(left))
    axes.add_artist(PathPatch(Path(corners, codes), linewidth=0, **style))


# The pictures.


def histogram(name: str, values: Values, counted: str = "rows", width: float = _SMALL) -> Plot:
    """Histogram of numbers [N], with the smallest and the largest value below; `counted` names what bars count."""
    heights = bins(values)
    ends = float(np.min(values)), float(np.max(values))
    most = int(np.argmax(heights.counts))
    middle = three_digits(float(heights.edges[most] / 2 + heights.edges[most + 1] / 2))
    low, high = map(three_digits, ends)
    description = f"Distribution of {name}: from {low} to {high}, most often about {middle}"
    labels = [(ends[0], low), (ends[1], high)] if ends[0] < ends[1] else [(ends[0], low)]
    return binned(description, heights, labels, name, counted, "bar", width)


def binned(
    description: str,
    heights: Bins,
    labels: Sequence[tuple[float, str]],
    across: str,
    counted: str = "episodes",
    colour: str = "c0",
    width: float = WIDTH,
) -> Plot:
    """A histogram of counts, with labels at some numbers."""

    def draw(axes: Any) -> None:
        edges = _spread(axes, heights)
        _bars(axes, heights.counts, edges, heights.whole, color=LIGHT[colour])
        axes.set_ylim(0, max(1, heights.counts.max()))
        _name_axes(axes, across, f"{counted}, up to {int(heights.counts.max()):,} in a bar")
        _name_numbers(axes, [value for value, _ in labels], [name for _, name in labels])

    return Plot(description, width, 150, Margins(6, 6, 18, 36), draw)


def bars(
    description: str,
    names: Sequence[str],
    sources: Sequence[tuple[str, Values]],
    written: Callable[[float], str],
    across: str,
    more: int = 0,
) -> Plot:
    """Bars: for every name one of each source, `(colour, numbers [names])`; `more` names are not shown."""
    thick, width, letters, gap = (12, WIDTH, 17, 8) if len(sources) > 1 else (17, _SMALL, 13, 0)
    tall = thick * len(sources) + gap

    def draw(axes: Any) -> None:
        top = max((float(values.max()) for _, values in sources if len(values)), default=1.0) or 1.0
        for line, (colour, values) in enumerate(sources):
            places = np.arange(len(names)) * tall + (line + 0.5) * thick
            axes.barh(places, values, thick - 3, color=LIGHT[colour])
            for position, value in zip(places, values, strict=True):
                _note(axes, written(value), (value, position), (4, 0), coordinates="data", va="center_baseline")
        axes.set_xlim(0, top)
        axes.set_ylim(max(1, len(names)) * tall, 0)
        centres = np.arange(len(names)) * tall + len(sources) * thick / 2
        axes.set_yticks(centres, [_label(name, letters) for name in names])
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        _name_axes(axes, across, below=15.0)
        if more:
            _note(axes, f"and {more:,} more", (0, 0), (0, -12))
            axes.xaxis.set_label_coords(0.5, -29.0 / (max(1, len(names)) * tall))

    left = letters * _LETTER + 16
    foot = 20 + 14 * bool(more)
    return Plot(description, width, max(1, len(names)) * tall + 4 + foot, Margins(left, 62, 4, foot), draw)


@dataclass(frozen=True, eq=False)
class Curve:
    """One metric of one run: the mean over its seeds, its interval, and every seed."""

    name: str
    colour: int
    updates: Values  # [T]
    mean: Values  # [T]
    low: Values | None  # [T], None for one seed
    high: Values | None
    seeds: Values  # [S, T], drawn separately; empty for many seeds
    dashed: bool = False


def curves(
    description: str,
    drawn: Sequence[Curve],
    up_name: str,
    across_name: str = "updates",
    *,
    chosen: tuple[float, float] | None = None,
    has_legend: bool = False,
) -> Plot:
    """A chart of means (thick), seeds (thin) and intervals (bands), logarithmic over decades; `chosen` gets a star."""
    across = Range.of(np.concatenate([one.updates for one in drawn]))
    numbers = np.concatenate([np.ravel(part) for one in drawn for part in (one.seeds, one.mean)])
    up = Range.of(numbers, positive=True)
    scale = ", logarithmic scale" if up.logarithmic else ""

    def draw(axes: Any) -> None:
        axes.set_yscale("log" if up.logarithmic else "linear")
        axes.minorticks_off()
        axes.set_xlim(across.low, across.high)
        axes.set_ylim(up.low, up.high)
        _name_numbers(axes, across.ticks(6))
        axes.set_yticks(up.ticks(), named_ticks(up.ticks()))
        axes.grid(axis="y", color=LIGHT["line"], linewidth=1)
        axes.set_axisbelow(True)
        axes.spines["bottom"].set_visible(False)
        for one in drawn:
            style = {"color": LIGHT[f"c{one.colour % SERIES}"], "linestyle": (0, (4, 2.5)) if one.dashed else "-"}
            if one.low is not None and one.high is not None:
                there = np.isfinite(one.low) & np.isfinite(one.high)
                low, high = (np.clip(end, up.low, up.high) for end in (one.low, one.high))
                axes.fill_between(one.updates, low, high, where=there, color=style["color"], alpha=0.2, linewidth=0)
            for seed in one.seeds if len(one.seeds) > 1 else ():
                axes.plot(one.updates, seed, linewidth=0.7, alpha=0.4, **style)
            style |= {"marker": "o" if np.isfinite(one.mean).sum() == 1 else "", "label": _label(one.name, 40)}
            axes.plot(one.updates, one.mean, linewidth=1.8, markersize=6, **style)
        if chosen is not None:
            axes.plot(*([end] for end in chosen), "*", color=LIGHT["ink"], markersize=11, label="chosen checkpoint")
        _name_axes(axes, across_name, f"{up_name}{scale}", 31.0)
        if has_legend:
            axes.legend(fontsize="small")

    return Plot(f"{description}{scale}", WIDTH, 240 if has_legend else 200, Margins(44, 12, 22, 36), draw)


@dataclass(frozen=True)
class Reach:
    """One row of a chart of intervals (estimate, low, high); `strong` rows determine the width of the axis."""

    name: str
    interval: tuple[float, float, float]
    colour: str = "c0"
    strong: bool = False


_ROW = 36


def intervals(
    description: str,
    rows: Sequence[Reach],
    line: float | None,
    across_name: str,
    sides: tuple[str, str] = ("", ""),
    width: float = WIDTH,
) -> Plot:
    """Estimates with their intervals, as a chart and as numbers, and a vertical line between two labelled `sides`."""
    also = [] if line is None else [line]
    along = Range.of([row.interval for row in rows], also=also)
    strong = [row.interval for row in rows if row.strong and np.isfinite(row.interval).any()]
    if strong:
        close = Range.of(strong, also=also)
        more = _ROOM / 2 * (close.high - close.low)
        low, high = max(along.low, close.low - more), min(along.high, close.high + more)
        along = Range(min(low, close.low), max(high, close.high))

    def draw(axes: Any) -> None:
        axes.set_xlim(along.low, along.high)
        axes.set_ylim(len(rows) * _ROW + 8, 0)
        for index, row in enumerate(rows):
            if line is not None and np.isfinite(row.interval).all():  # only between the lines of text
                axes.plot([line, line], [index * _ROW + 17, index * _ROW + 35], color=LIGHT["ink"], linewidth=1.2)
            _interval(axes, row, along, index * _ROW)
        _name_numbers(axes, along.ticks(4))
        if any(sides):
            _note(axes, f"◂ {sides[0]}", (0, 0), (0, -28))
            _note(axes, f"{sides[1]} ▸", (1, 0), (0, -28), ha="right")
        _name_axes(axes, across_name, below=43.0 if any(sides) else 28.0)

    foot = 48 if any(sides) else 33
    return Plot(description, width, len(rows) * _ROW + 8 + foot, Margins(12, 12, 0, foot), draw)


def _interval(axes: Any, row: Reach, along: Range, top: float) -> None:
    """Draw the name, the numbers, the line and the point of one row, whose upper edge is at `top`."""
    estimate, low, high = row.interval
    known = bool(np.isfinite(row.interval).all())
    written = with_ends(row.interval) if known else ""
    box = axes.get_position()
    letters = int(72 * axes.figure.get_size_inches()[0] * box.width / 6) - len(written)
    strong = {"color": LIGHT["ink"], "fontweight": "bold"} if row.strong else {}
    _write(axes, 0, top + 13, _label(row.name, letters), **strong)
    if not known:
        _write(axes, 0, top + 30, "no number: the log does not support it")
        return
    _write(axes, 1, top + 13, written, ha="right")
    ends = np.clip([low, high], along.low, along.high)
    axes.plot(ends, [top + 26] * 2, color=LIGHT[row.colour], linewidth=3, solid_capstyle="butt", label=row.name)
    for outside, x, words, side in ((low < along.low, 0, "◂", "right"), (high > along.high, 1, "▸", "left")):
        if outside:
            _write(axes, x, top + 30, words, ha=side)
    if along.low <= estimate <= along.high:
        axes.plot([estimate], [top + 26], "o", color=LIGHT[row.colour], markersize=9, markeredgewidth=0)


@dataclass(frozen=True, eq=False)
class Source:
    """A named source of numbers [N], with the name of its colour."""

    name: str
    colour: str
    values: Values


_TALL, _GAP = 44, 22


def ridges(description: str, sources: Sequence[Source], across_name: str) -> Plot:
    """One histogram of episodes per source, stacked over a common axis, each with a tick at its mean."""
    common = bins(np.concatenate([one.values for one in sources]))
    height = len(sources) * (_TALL + _GAP)

    def draw(axes: Any) -> None:
        edges = _spread(axes, common)
        axes.set_ylim(0, height)
        for index, one in enumerate(sources):
            foot = height - (index + 1) * (_TALL + _GAP)
            counts = _shared(one.values, common)
            most = f"up to {int(counts.max()):,} episodes in a bar"
            _write(axes, 0, foot + _TALL + 6, _label(one.name, 30))
            _write(axes, 1, foot + _TALL + 6, most, ha="right", style="italic")
            _bars(axes, counts / max(1, counts.max()) * _TALL, edges, common.whole, foot, color=LIGHT[one.colour])
            axes.axhline(foot, color=LIGHT["line"], linewidth=1)
            axes.plot([np.mean(one.values)] * 2, [foot - 4, foot + _TALL], color=LIGHT["ink"], linewidth=1.2)
        _name_bins(axes, common)
        _name_axes(axes, across_name)

    return Plot(description, WIDTH, height + 36, Margins(12, 12, 0, 36), draw)


def _name_bins(axes: Any, common: Bins) -> None:
    low, high = float(common.edges[0]), float(common.edges[-1])
    ticks = [low] if low == high else Range(low, high).ticks()
    _name_numbers(axes, [value for value in ticks if not common.whole or value == round(value)])


def overlaid(description: str, sources: Sequence[Source], across_name: str) -> Plot:
    """One histogram of shares of steps: the first source is filled, the others are outlines."""
    common = bins(np.concatenate([one.values for one in sources]))
    shares = [_shared(one.values, common) / len(one.values) for one in sources]
    top = max(float(share.max()) for share in shares)

    def draw(axes: Any) -> None:
        edges = _spread(axes, common)
        axes.set_ylim(0, top)
        _bars(axes, shares[0], edges, common.whole, color=LIGHT[sources[0].colour], alpha=0.3)
        for one, share in zip(sources[1:], shares[1:], strict=True):
            axes.stairs(share, edges, baseline=None, color=LIGHT[one.colour], linewidth=1.8, label=_label(one.name))
        _name_bins(axes, common)
        _name_axes(axes, across_name, f"share of the steps, up to {top:.0%} in a bar")

    return Plot(description, WIDTH, 156, Margins(12, 12, 18, 36), draw)
