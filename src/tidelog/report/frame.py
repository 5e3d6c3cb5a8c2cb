"""Building blocks of every page: one HTML file without network or script, with sections, tables and figures.

Arguments named `body`, `picture` and `sections` are HTML; all other text is escaped here.

The style sheet covers wide and narrow screens, light and dark, and paper. The line colours `c0` to `c7` are
distinguishable with every form of colour vision (after Okabe & Ito 2008); their meaning is always given as text too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from tidelog._text import printable, three_digits, with_ends
from tidelog.data.statistics import Bins, bins
from tidelog.policies.statistics import Interval

# Charts as inline SVG with descriptions for screen readers: no library, no script.
#
# Every chart names its axes, and says so if one is logarithmic.
#
# From top to bottom: texts and axes; distributions of one source; curves with bands; intervals with a reference line;
# distributions of several sources on a common axis.
#
# Letters: `N` numbers, `B` bins, `S` seeds, `T` reports.

Values = np.ndarray[Any, Any]
_DECADES = 100.0  # ratio of the largest to the smallest positive number from which an axis is logarithmic
WIDTH = 340


def picture(description: str, width: float, height: float, content: str) -> str:
    """An SVG with a text description."""
    description = escape(description, quote=True)
    label = f'role="img" aria-label="{description}"><title>{description}</title>'
    return f'<svg viewBox="0 0 {width} {height}" {label}{content}</svg>'


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    """SVG text at a position; `kind` is a class of the style sheet."""
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{mark}>{escape(words)}</text>'


def across_name(words: str, width: float, y: float) -> str:
    """The name of a horizontal axis, in the middle below it."""
    return text(width / 2, y, shortened(words, 60), "middle", "axis") if words else ""


def up_name(words: str) -> str:
    """The name of a vertical axis, above its upper end."""
    return text(2, 11, shortened(words, 60), kind="axis")


def shortened(word: str, most: int = 13) -> str:
    """A word, cut to at most `most` characters."""
    return word if len(word) <= most else word[: most - 1] + "…"


@dataclass(frozen=True)
class Axis:
    """Map from a range of numbers to a range of positions."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, values: Any) -> Values:
        """Positions [T] of numbers [T]; numbers outside the range map to the nearer end, NaN stays NaN."""
        numbers = np.asarray(values, np.float64)
        low, high = self.low, self.high
        if self.logarithmic:
            numbers, low, high = np.log10(np.maximum(numbers, self.low)), math.log10(low), math.log10(high)
        share = np.clip(numbers / 2 - low / 2, 0.0, high / 2 - low / 2) / (high / 2 - low / 2)  # halves avoid overflow
        return np.asarray(self.start + share * (self.end - self.start))

    def ticks(self, most: int = 5) -> list[float]:
        """About `most` round numbers within the range."""
        if self.logarithmic:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            chosen = list(powers)[:: max(1, math.ceil(len(powers) / most))]
            return [10.0**power for power in chosen]
        rough = (self.high / most) - (self.low / most)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]


def axis(values: Any, start: float, end: float, *, also: Sequence[float] = (), positive: bool = False) -> Axis:
    """Axis over the finite numbers of `values` and over `also`; logarithmic if `positive` and they span decades.

    A single number, or none, gets a range around it.
    """
    numbers = np.concatenate([np.ravel(np.asarray(values, np.float64)), np.asarray(also, np.float64)])
    numbers = numbers[np.isfinite(numbers)]
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    if positive and low > 0 and high / low > _DECADES:
        return Axis(low, high, start, end, logarithmic=True)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        room = abs(low) * 0.1 or 0.5
        return Axis(low - room, high + room, start, end)
    room = 0.04 * high - 0.04 * low
    return Axis(low - room, high + room, start, end)


def short(value: float, digits: int = 4) -> str:
    """Short form of a number for an axis: 20k, 1.5M, 0.25."""
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if limit <= size < 1e12:
            power = {"G": 1e9, "M": 1e6, "k": 1e3}[unit]
            return f"{value / power:.{digits}g}{unit}"
    return f"{value:.{digits}g}" if size > 1e-12 else "0"


def named_ticks(ticks: Sequence[float]) -> list[tuple[float, str]]:
    """Ticks with their short forms, with as many digits as their places need."""
    apart = min((abs(b - a) for a, b in pairwise(ticks)), default=0.0)
    digits = 4
    while digits < 12 and any(abs(float(f"{value:.{digits}g}") - value) > 0.01 * apart for value in ticks):
        digits += 1
    return [(value, short(value, digits)) for value in ticks]


_SMALL, _HEIGHT, _FOOT = 280, 96, 34
_HEAD = 18  # height of the name of a vertical axis
_LINE = 17


def histogram(name: str, values: Values, counted: str = "rows") -> str:
    """Histogram of numbers [N], with the smallest and the largest value below; `counted` names what bars count."""
    heights = bins(values)
    top, foot = int(heights.counts.max()), _HEAD + _HEIGHT
    width = _SMALL / max(len(heights.counts), 3)
    start = (_SMALL - width * len(heights.counts)) / 2
    columns = [
        f'<rect x="{start + place * width:.1f}" y="{foot - height:.1f}" width="{max(width - 1, 0.5):.1f}" '
        f'height="{height:.1f}"/>'
        for place, height in enumerate(heights.counts / top * _HEIGHT)
        if height
    ]
    low, high = (float(np.min(values)), float(np.max(values)))
    most = int(np.argmax(heights.counts))
    centre = (heights.edges[most] + heights.edges[most + 1]) / 2
    least, most_text = three_digits(low), three_digits(high)
    title = f"Distribution of {name}: from {least} to {most_text}, most often about {three_digits(float(centre))}"
    ends = text(start, foot + 14, least) + text(_SMALL - start, foot + 14, most_text, "end")
    names = up_name(f"{counted}, up to {top:,} in a bar") + across_name(name, _SMALL, foot + 29)
    base = f'<line x1="0" x2="{_SMALL}" y1="{foot + 0.5}" y2="{foot + 0.5}"/>'
    return picture(title, _SMALL, foot + _FOOT, "".join(columns) + base + ends + names)


def bars(name: str, counts: Sequence[tuple[str, int]], more: int = 0) -> str:
    """Bar chart of rows by name, one line each; `more` is the number of names that are not shown."""
    top, total = max((count for _, count in counts), default=1) or 1, sum(count for _, count in counts)
    lines = []
    for place, (word, count) in enumerate(counts):
        y = place * _LINE
        lines.append(text(88, y + 12, shortened(word), "end"))
        lines.append(f'<rect x="94" y="{y + 3}" width="{count / top * 124:.1f}" height="{_LINE - 5}"/>')
        lines.append(text(94 + count / top * 124 + 4, y + 12, f"{count:,}"))
    tail = [text(94, len(counts) * _LINE + 12, f"and {more:,} more")] if more else []
    most = max(counts, key=lambda pair: pair[1], default=("nothing", 0))
    title = f"Counts of {name}: {len(counts) + more:,} different, most often {most[0]} ({most[1]:,} of {total:,} shown)"
    foot = (len(counts) + bool(more)) * _LINE
    return picture(title, _SMALL, foot + 20, "".join([*lines, *tail, across_name("rows", _SMALL, foot + 15)]))


_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 330, 22, 164
_ROW = 36
_ROOM = 6.0  # largest width of an axis of intervals, relative to the range of its `strong` rows


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


def curves(description: str, drawn: Sequence[Curve], up_axis: str, across_axis: str = "updates") -> str:
    """A chart of curves; its vertical axis is logarithmic, and says so, if positive numbers span decades."""
    across = axis(np.concatenate([one.updates for one in drawn]), _LEFT, _RIGHT)
    numbers = np.concatenate([np.ravel(part) for one in drawn for part in (one.seeds, one.mean)])
    up = axis(numbers, _BOTTOM, _TOP, positive=True)
    content = [_frame(across, up)]
    for one in drawn:
        content += _one_curve(one, across, up)
    scale = ", logarithmic scale" if up.logarithmic else ""
    content += [up_name(f"{up_axis}{scale}"), across_name(across_axis, _LEFT + _RIGHT, _BOTTOM + 31)]
    return picture(f"{description}{scale}", WIDTH, _BOTTOM + 36, "".join(content))


def _one_curve(one: Curve, across: Axis, up: Axis) -> list[str]:
    dashes = " dashed" if one.dashed else ""
    x, shapes = across.at(one.updates), []
    if one.low is not None and one.high is not None:
        there = np.isfinite(one.low) & np.isfinite(one.high)
        edge = [*zip(x[there], up.at(one.high)[there], strict=True)]
        edge += [*zip(x[there], up.at(one.low)[there], strict=True)][::-1]
        if edge:
            shapes.append(f'<path class="band c{one.colour}" d="{_joined(edge)}Z"/>')
    lines = [(row, "curve thin") for row in one.seeds] if len(one.seeds) > 1 else []
    for values, kind in [*lines, (one.mean, "curve")]:
        path = _path(x, up.at(values))
        shapes.append(f'<path class="{kind}{dashes} c{one.colour}" d="{path}"/>' if path else "")
        if np.isfinite(values).sum() == 1:
            place = int(np.flatnonzero(np.isfinite(values))[0])
            shapes.append(
                f'<circle class="dot c{one.colour}" cx="{x[place]:.1f}" cy="{up.at(values)[place]:.1f}" r="3"/>'
            )
    return shapes


def _frame(across: Axis, up: Axis) -> str:
    lines = []
    for value, name in named_ticks(up.ticks()):
        y = float(up.at(value))
        lines.append(f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(text(_LEFT - 5, y + 4, name, "end"))
    for value, name in named_ticks(across.ticks(6)):
        lines.append(text(float(across.at(value)), _BOTTOM + 16, name, "middle"))
    return "".join(lines)


def _path(x: Values, y: Values) -> str:
    """Straight lines between neighbours, with gaps at numbers that are not finite."""
    runs: list[list[tuple[float, float]]] = [[]]
    for point in zip(x, y, strict=True):
        if np.isfinite(point).all():
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return "".join(_joined(run) for run in runs if run)


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


@dataclass(frozen=True)
class Reach:
    """One row of a chart of intervals; `strong` rows determine the width of the axis."""

    name: str
    interval: Interval
    colour: str = "c0"
    strong: bool = False


def intervals(
    description: str,
    rows: Sequence[Reach],
    line: float | None,
    across_axis: str,
    sides: tuple[str, str] = ("", ""),
) -> str:
    """Estimates with their intervals, as a chart and as numbers, and a vertical line.

    `sides` are the labels on the line's left and right. Arrows mark ends outside the chart.
    """
    along = _along(rows, line)
    foot = len(rows) * _ROW + 8
    content = []
    for place, row in enumerate(rows):
        if line is not None:  # only between the lines of text
            x, top = float(along.at(line)), place * _ROW + 17
            content.append(f'<line class="ink" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + 18}"/>')
        content += _one_interval(row, along, place * _ROW)
    content += [text(float(along.at(v)), foot + 13, name, "middle") for v, name in named_ticks(along.ticks(4))]
    content.append(f'<line x1="6" x2="{WIDTH - 6}" y1="{foot}" y2="{foot}"/>')
    if any(sides):
        content += [text(6, foot + 28, f"◂ {sides[0]}"), text(WIDTH - 6, foot + 28, f"{sides[1]} ▸", "end")]
    named = foot + (43 if any(sides) else 28)
    content.append(across_name(across_axis, WIDTH, named))
    return picture(description, WIDTH, named + 5, "".join(content))


def _along(rows: Sequence[Reach], line: float | None) -> Axis:
    here = [] if line is None else [line]
    strong = [end for row in rows if row.strong for end in row.interval if np.isfinite(end)]
    every = [end for row in rows for end in row.interval if np.isfinite(end)]
    wide = axis(every, 14, WIDTH - 14, also=here)
    if not strong:
        return wide
    close = axis(strong, 14, WIDTH - 14, also=here)
    more = _ROOM / 2 * (close.high - close.low)
    low, high = max(wide.low, close.low - more), min(wide.high, close.high + more)
    return Axis(min(low, close.low), max(high, close.high), 14, WIDTH - 14)


def _one_interval(row: Reach, along: Axis, top: float) -> list[str]:
    estimate, low, high = row.interval
    y = top + 26
    written = with_ends(row.interval)
    letters = int((WIDTH - 12) / 6) - len(written)  # beside the numbers
    name = text(6, top + 13, shortened(row.name, letters), kind="haloed strong" if row.strong else "haloed")
    if not np.isfinite([estimate, low, high]).all():
        return [name, text(6, y + 4, "no number: the log does not support it", kind="haloed")]
    left, middle, right = (float(place) for place in along.at([low, estimate, high]))
    numbers = text(WIDTH - 6, top + 13, written, "end", "haloed")
    shapes = [name, numbers, f'<line class="reach {row.colour}" x1="{left:.1f}" x2="{right:.1f}" y1="{y}" y2="{y}"/>']
    shapes += [text(left - 2, y + 4, "◂", "end")] if low < along.low else []
    shapes += [text(right + 2, y + 4, "▸")] if high > along.high else []
    if along.low <= estimate <= along.high:
        shapes.append(f'<circle class="dot {row.colour}" cx="{middle:.1f}" cy="{y}" r="4.5"/>')
    return shapes


_TALL, _GAP = 44, 22
_SHARE = 12


@dataclass(frozen=True, eq=False)
class Source:
    """A named source of numbers [N]; `colour` is a class of the style sheet."""

    name: str
    colour: str
    values: Values


def ridges(description: str, sources: Sequence[Source], across_axis: str) -> str:
    """One histogram of episodes per source, stacked over a common axis, each with a tick at its mean."""
    shared = bins(np.concatenate([one.values for one in sources]))
    along = _over(shared)
    content = []
    for place, one in enumerate(sources):
        foot = (place + 1) * (_TALL + _GAP)
        counts = _counts(one.values, shared)
        content.append(text(2, foot - _TALL - 6, shortened(one.name, 30)))
        most = f"up to {int(counts.max()):,} episodes in a bar"
        content.append(text(WIDTH - 2, foot - _TALL - 6, most, "end", "axis"))
        content += _bars(counts, shared, along, foot, _TALL, f"{one.colour}")
        mean = float(along.at(float(np.mean(one.values))))
        content.append(f'<line x1="2" x2="{WIDTH - 2}" y1="{foot}" y2="{foot}"/>')
        content.append(f'<line class="ink" x1="{mean:.1f}" x2="{mean:.1f}" y1="{foot - _TALL}" y2="{foot + 4}"/>')
    foot = len(sources) * (_TALL + _GAP)
    content += [_numbers(along, foot + 16, shared.whole), across_name(across_axis, WIDTH, foot + 31)]
    return picture(description, WIDTH, foot + 36, "".join(content))


def overlaid(description: str, sources: Sequence[Source], across_axis: str) -> str:
    """One histogram of shares of steps: the first source is filled, the others are outlines."""
    shared = bins(np.concatenate([one.values for one in sources]))
    along, tall = _over(shared), 100 + _HEAD
    shares = [_counts(one.values, shared) / len(one.values) for one in sources]
    top = max(float(share.max()) for share in shares)
    reach = (tall - _HEAD) / top
    content = [up_name(f"share of the steps, up to {top:.0%} in a bar")]
    content += _bars(shares[0], shared, along, tall + 4, reach * float(shares[0].max()), f"ghost {sources[0].colour}")
    edges = along.at(shared.edges) if len(shared.counts) > 1 else np.array([WIDTH / 2 - 20, WIDTH / 2 + 20])
    for one, share in zip(sources[1:], shares[1:], strict=True):
        heights = tall + 4 - share * reach
        points = "L".join(
            f"{a:.1f} {h:.1f}L{b:.1f} {h:.1f}" for a, b, h in zip(edges, edges[1:], heights, strict=False)
        )
        content.append(f'<path class="curve {one.colour}" d="M{points}"/>')
    content.append(f'<line x1="2" x2="{WIDTH - 2}" y1="{tall + 4.5}" y2="{tall + 4.5}"/>')
    content += [_numbers(along, tall + 18, shared.whole), across_name(across_axis, WIDTH, tall + 33)]
    return picture(description, WIDTH, tall + 38, "".join(content))


def shares(description: str, names: Sequence[str], sources: Sequence[tuple[str, Values]]) -> str:
    """Bars of shares: for every name one bar per source, `(colour, shares [names])`."""
    tall = len(sources) * _SHARE + 10
    top = max(float(values.max()) for _, values in sources) or 1.0
    content = []
    for place, name in enumerate(names):
        y = place * tall + 4
        content.append(text(112, y + tall / 2, shortened(name, 17), "end"))
        for line, (colour, values) in enumerate(sources):
            width, here = values[place] / top * 172, y + line * _SHARE
            content.append(f'<rect class="{colour}" x="118" y="{here}" width="{width:.1f}" height="{_SHARE - 2}"/>')
            content.append(text(122 + width, here + _SHARE - 1, f"{values[place]:.1%}"))
    foot = len(names) * tall
    return picture(
        description, WIDTH, foot + 20, "".join([*content, across_name("share of the steps", WIDTH, foot + 15)])
    )


def binned(
    description: str, counts: Values, edges: Values, labels: Sequence[tuple[float, str]], across_axis: str
) -> str:
    """A histogram of counts [B] of episodes between edges [B + 1], with labels at some numbers."""
    shared, tall = Bins(counts, edges, False), 90 + _HEAD
    along = _over(shared)
    content = [up_name(f"episodes, up to {int(counts.max()):,} in a bar")]
    content += _bars(counts, shared, along, tall + 4, tall - _HEAD, "c0")
    content.append(f'<line x1="2" x2="{WIDTH - 2}" y1="{tall + 4.5}" y2="{tall + 4.5}"/>')
    places = [float(np.clip(along.at(value), 18, WIDTH - 18)) for value, _ in labels]
    content += [text(x, tall + 18, word, "middle") for x, (_, word) in zip(places, labels, strict=True)]
    content.append(across_name(across_axis, WIDTH, tall + 33))
    return picture(description, WIDTH, tall + 38, "".join(content))


def _over(shared: Bins) -> Axis:
    low, high = float(shared.edges[0]), float(shared.edges[-1])
    if low == high:
        low, high = low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
    return Axis(low, high, 12, WIDTH - 12)


def _counts(values: Values, shared: Bins) -> Values:
    """Counts of numbers [N] between the shared edges, [B]."""
    if len(shared.counts) == 1:
        return np.array([len(values)])
    return np.histogram(values / 2, shared.edges / 2)[0]


def _bars(counts: Values, shared: Bins, along: Axis, foot: float, tall: float, colour: str) -> list[str]:
    edges = along.at(shared.edges) if len(counts) > 1 else np.array([WIDTH / 2 - 20, WIDTH / 2 + 20])
    heights = counts / max(float(counts.max()), 1e-300) * tall
    gap = 0.3 * float(edges[1] - edges[0]) if shared.whole else 0.6
    return [
        f'<rect class="{colour}" x="{left + gap / 2:.1f}" y="{foot - height:.1f}" '
        f'width="{max(right - left - gap, 0.6):.1f}" height="{height:.1f}"/>'
        for left, right, height in zip(edges, edges[1:], heights, strict=False)
        if height
    ]


def _numbers(along: Axis, y: float, whole: bool) -> str:
    ticks = [value for value in along.ticks(5) if not whole or value == round(value)]
    return "".join(text(float(along.at(value)), y, name, "middle") for value, name in named_ticks(ticks))


_LONG = 60  # characters from which a cell may wrap
_NARROW = 3  # columns of a table that fits on a phone


def page(title: str, lead: str, sections: Sequence[str], kind: str, links: Sequence[tuple[str, str]] = ()) -> str:
    """A whole page; `kind` is its generator, in the head as `mark(kind)`; `links` point to anchors in the page."""
    name = escape(title)
    inner = "".join(f'<a href="#{escape(anchor, quote=True)}">{escape(label)}</a>' for anchor, label in links)
    nav = f'<nav aria-label="Parts of this page">{inner}</nav>' if links else ""
    return printable(
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{mark(kind)}\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{name} - tidelog</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{name}</h1>"
        f"<p>{escape(lead)}</p>{nav}</header>\n<main>\n" + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )


def mark(kind: str) -> str:
    """The line in a page's head that identifies its generator."""
    return f'<meta name="generator" content="tidelog {escape(kind, quote=True)}">'


def banner(kind: str, sign: str, headline: str, number: str) -> str:
    """The answer of a page: a sentence, and under it a number; `kind` is a class of the style sheet."""
    return (
        f'<p class="banner {kind}"><span class="sign" aria-hidden="true">{sign}</span>'
        f"<span><b>{escape(headline)}</b> {escape(number)}</span></p>"
    )


def section(title: str, body: str, anchor: str = "", *, printed: bool = True) -> str:
    """A section with a heading; `anchor` is the target of links in the page, `printed` whether paper shows it."""
    attribute = f' id="{escape(anchor, quote=True)}"' if anchor else ""
    attribute += "" if printed else ' class="screen"'
    return f"<section{attribute}><h2>{escape(title)}</h2>{body}</section>"


def heading(text: str) -> str:
    """A heading within a section."""
    return f'<h3 class="apart">{escape(text)}</h3>'


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of text; `kind` is a class of the style sheet."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    """A list of texts; empty for no texts."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def tiles(shown: Iterable[tuple[str, str]]) -> str:
    """Numbers with labels, side by side."""
    items = "".join(f"<li><b>{escape(value)}</b> {escape(name)}</li>" for value, name in shown)
    return f'<ul class="tiles">{items}</ul>'


def legend(pairs: Iterable[tuple[str, str]]) -> str:
    """Legend: colour classes of the style sheet with names."""
    items = "".join(f'<li class="{kind}">{escape(name)}</li>' for kind, name in pairs)
    return f'<ul class="legend">{items}</ul>'


def definitions(pairs: Iterable[tuple[str, str]], *, tight: bool = False) -> str:
    """A list of names with descriptions; `tight` keeps two columns on a phone."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs)
    return f'<dl class="tight">{rows}</dl>' if tight else f"<dl>{rows}</dl>"


def command(line: str) -> str:
    """A shell command."""
    return f"<pre>{escape(line)}</pre>"


def figure(name: str, picture: str, description: str) -> str:
    """A picture with its name above and a text below."""
    caption = f"<p>{escape(description)}</p>" if description else ""
    return f"<figure><figcaption><b>{escape(name)}</b></figcaption>{picture}{caption}</figure>"


def grid(figures: Iterable[str], *, broad: bool = False) -> str:
    """Figures in a grid; `broad` figures need more width."""
    drawn, kind = "".join(figures), "grid broad" if broad else "grid"
    return f'<div class="{kind}">{drawn}</div>' if drawn else ""


def folded(summary: str, body: str) -> str:
    """A part behind one line, which opens on request; it is not printed unless it is open."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def with_picture(body: str, picture: str) -> str:
    """Text with a picture on its right, or below on narrow screens."""
    return f'<div class="beside"><div>{body}</div>{picture}</div>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    *,
    marked: Sequence[int] = (),
    named: bool = False,
) -> str:
    """A table; `marked` rows are highlighted, `named` rows begin with a heading.

    A wide table scrolls sideways. On a phone a table of more than three columns has one cell below the other, each with
    the name of its column.
    """
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    stacked = len(head) > _NARROW
    body = "".join(_row(head if stacked else (), row, named, place in marked) for place, row in enumerate(rows))
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    label = f' role="region" aria-label="{escape(caption, quote=True)}"' if caption else ""
    kind = "wide stacked" if stacked else "wide"
    return (f'<div class="{kind}" tabindex="0"{label}><table>{title}<thead><tr>{top}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")  # fmt: skip


def _row(head: Sequence[str], cells: Sequence[str], named: bool, stands_out: bool) -> str:
    """A row; with a `head`, every cell knows the name of its column."""
    first = f'<th scope="row">{escape(cells[0])}</th>' if named else ""
    rest = ""
    for place, cell in list(enumerate(cells))[1 if named else 0 :]:
        kind = ' class="long"' if len(cell) > _LONG else ""
        name = f' data-label="{escape(head[place], quote=True)}"' if head else ""
        rest += f"<td{kind}{name}>{escape(cell)}</td>"
    return f'<tr class="marked">{first}{rest}</tr>' if stands_out else f"<tr>{first}{rest}</tr>"


_LIGHT = """--ink: #1c2733; --soft: #566675; --line: #d8dfe6; --bar: #2f7f93; --paper: #fff; --pale: #f4f7f9;
  --good: #1f7a4d; --error: #b3261e; --warning: #8a5a00; --note: #3c5a78; --on: #fff; --log: #8a97a3; --shade: #b9c4ce;
  --better: #00609a; --worse: #b34700; --same: #566675; --unknown: #6d3f8f;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b5588c; --c4: #a87400; --c5: #3c9bd4; --c6: #7a5aa6;
  --c7: #444f59; color-scheme: light;"""

_DARK = """--ink: #e6ebf0; --soft: #a4b1bd; --line: #38444f; --bar: #5fb3c8; --paper: #12181e; --pale: #1b242c;
  --good: #5cc08d; --error: #ff8f86; --warning: #e2b04a; --note: #9dbcd9; --on: #12181e; --log: #7c8a96;
  --shade: #53616d; --better: #6cb8ec; --worse: #ff9a5a; --same: #a4b1bd; --unknown: #c9a0ea;
  --c0: #57b2ee; --c1: #ff9150; --c2: #3dcfa2; --c3: #eda1c9; --c4: #eec052; --c5: #9bd8ff; --c6: #c3a8f0;
  --c7: #c5ced6; color-scheme: dark;"""

# a class sets one colour; the element decides whether it fills or strokes
_SERIES = "\n".join(f".c{i} {{ --mine: var(--c{i}); }}" for i in range(8))

STYLE = (
    f"""
:root {{ {_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
{_SERIES}
.log {{ --mine: var(--log); }}
"""
    + """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 1.2rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { margin: 0; font-size: 1.7rem; overflow-wrap: anywhere; }
header p { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); font-size: 1.2rem; }
h3 { margin: 0; font-size: 1rem; overflow-wrap: anywhere; }
.apart { margin: 1.2rem 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; overflow-wrap: anywhere; }
ul { margin: .4rem 0; max-width: 46rem; }
li { overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .9em; }
pre { overflow-x: auto; padding: .7rem; background: var(--pale); border-radius: 6px; }
nav { margin-top: .8rem; } nav a { display: inline-block; margin-right: 1rem; color: var(--better); }
.soft { color: var(--soft); font-size: .9rem; }
.short { max-width: 60rem; margin: .6rem 0; font-size: 1.1rem; }
.next { padding-left: .8rem; border-left: 4px solid var(--bar); font-weight: 600; }
.paper { display: none; }
.verdict { max-width: none; padding: .7rem 1rem; border-radius: 8px; border-left: 6px solid; font-size: 1.1rem;
  background: var(--pale); }
.verdict.good { border-color: var(--good); } .verdict.error { border-color: var(--error); }
.verdict.warning { border-color: var(--warning); }
.banner { display: flex; gap: .9rem; align-items: center; max-width: none; margin: .5rem 0; padding: .7rem 1rem;
  border: 2px solid var(--mine); border-left-width: 14px; border-radius: 8px; background: var(--pale); }
.banner b { display: block; color: var(--mine); font-size: 1.5rem; line-height: 1.2; }
.banner .sign { flex: none; width: 2.4rem; font-size: 1.9rem; line-height: 1; text-align: center; color: var(--mine); }
.banner span { overflow-wrap: anywhere; }
.better { --mine: var(--better); } .worse { --mine: var(--worse); }
.same { --mine: var(--same); border-style: dashed dashed dashed solid; }
.unknown { --mine: var(--unknown); border-style: double; border-width: 4px 4px 4px 14px; }
.none { --mine: var(--line); border-style: dotted dotted dotted solid; }
.none b { color: var(--soft); font-size: 1.15rem; }
.run { margin: 1rem 0 1.6rem; }
details { margin: .6rem 0; } summary { padding: .3rem 0; color: var(--better); cursor: pointer; }
article { margin: .7rem 0; padding: .6rem .9rem; border: 1px solid var(--line); border-left: 4px solid;
  border-radius: 6px; break-inside: avoid; }
article.error { border-left-color: var(--error); } article.warning { border-left-color: var(--warning); }
article.note { border-left-color: var(--note); }
.badge { padding: .05rem .5rem; border-radius: 1rem; color: var(--on); font-size: .8rem; font-weight: 600; }
.badge.error { background: var(--error); } .badge.warning { background: var(--warning); }
.badge.note { background: var(--note); }
dl { display: grid; grid-template-columns: fit-content(18rem) minmax(0, 1fr); gap: .1rem .8rem; margin: .4rem 0 0; }
dl.tight { grid-template-columns: fit-content(40%) minmax(0, 1fr); font-size: .85rem; }
dt { color: var(--soft); overflow-wrap: anywhere; } dd { margin: 0; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; max-width: none; margin: .5rem 0 .8rem; padding: 0;
  list-style: none; }
.tiles li { padding: .4rem .9rem; border: 1px solid var(--line); border-radius: 8px; color: var(--soft); }
.tiles b { display: block; color: var(--ink); font-size: 1.25rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(240px, 100%), 1fr)); gap: .8rem;
  align-items: start; }
.grid.broad { grid-template-columns: repeat(auto-fill, minmax(min(310px, 100%), 1fr)); }
figure { margin: 0; padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 8px; break-inside: avoid; }
figcaption { margin-bottom: .3rem; overflow-wrap: anywhere; }
figure p { margin: .2rem 0 0; color: var(--soft); font-size: .85rem; }
svg { display: block; width: 100%; height: auto; max-width: 420px; }
svg.wide-picture { max-width: 620px; } .answer svg { max-width: 500px; }
svg rect { fill: var(--mine, var(--bar)); } svg line { stroke: var(--line); }
svg text { font-size: 11px; fill: var(--soft); } svg .axis { font-style: italic; }
svg .curve { fill: none; stroke: var(--mine); stroke-width: 1.8; stroke-linejoin: round; }
svg .thin { stroke-width: .7; opacity: .4; } svg .dashed { stroke-dasharray: 4 2.5; }
svg .band { fill: var(--mine); opacity: .2; } svg .ghost { fill: var(--mine); opacity: .22; }
svg .ink { stroke: var(--ink); stroke-width: 1.2; } svg .reach { stroke: var(--mine); stroke-width: 3; }
svg .dot { fill: var(--mine); } svg .strong { fill: var(--ink); font-weight: 600; }
svg .haloed { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
.beside { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 390px); gap: 1rem; align-items: start; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; max-width: none; margin: .4rem 0; padding: 0;
  list-style: none; font-size: .9rem; }
.legend li::before { content: ""; display: inline-block; width: 1.1rem; height: .7rem; margin-right: .4rem;
  border-radius: 2px; background: var(--mine); }
.wide { overflow-x: auto; margin: .4rem 0;  /* a shade at the sides says that there is more to scroll to */
  background: linear-gradient(90deg, var(--paper) 50%, transparent) 0 / 24px 100% no-repeat local,
    linear-gradient(270deg, var(--paper) 50%, transparent) 100% / 24px 100% no-repeat local,
    linear-gradient(90deg, var(--shade), transparent) 0 / 10px 100% no-repeat scroll,
    linear-gradient(270deg, var(--shade), transparent) 100% / 10px 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .85rem; }
caption { padding: .2rem 0; color: var(--soft); text-align: left; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
thead th { color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; }
tbody th { font-weight: 400; }
td.long { min-width: 16rem; white-space: normal; }
tr.marked > * { background: var(--pale); font-weight: 600; }
@media screen and (max-width: 820px) { .beside { grid-template-columns: minmax(0, 1fr); } }
@media screen and (max-width: 560px) { body { padding: .8rem; } h1 { font-size: 1.35rem; } .short { font-size: 1rem; }
  th, td { white-space: normal; overflow-wrap: anywhere; }
  .stacked thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .stacked table, .stacked caption, .stacked tbody, .stacked tr, .stacked th, .stacked td { display: block; }
  .stacked tr { padding: .35rem .4rem; border-bottom: 1px solid var(--line); }
  .stacked th, .stacked td { padding: .05rem 0; border: 0; } .stacked tbody th { font-weight: 600; }
  .stacked td { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: .6rem; min-width: 0; }
  .stacked td::before { content: attr(data-label); color: var(--soft); font-weight: 400; }
  .stacked td:empty { display: none; }
  dl:not(.tight) { grid-template-columns: 1fr; }
  dl:not(.tight) dd { margin-bottom: .3rem; } .banner { padding: .6rem .7rem; } .banner b { font-size: 1.25rem; } }
@page { size: A4; margin: 12mm; }
@media print { html { font-size: 10.5px; } body { max-width: none; padding: 0; font-size: 10.5px; line-height: 1.35; }
  p, ul, .short { max-width: none; } h2 { margin: 1rem 0 .4rem; } .banner { padding: .3rem .8rem; }
  .beside { grid-template-columns: minmax(0, 1fr) 250px; } figure { padding: .4rem .5rem; }
  .tiles li { padding: .1rem .6rem; } .tiles b { font-size: 1.05rem; }
  .wide { overflow: visible; background: none; }
  nav, .screen, details:not([open]) { display: none; } .paper { display: block; }
  th, td { padding: .1rem .4rem; white-space: normal; overflow-wrap: anywhere; font-size: 9px; }
  [role=region] th, [role=region] td { overflow-wrap: break-word; }
  .badge { border: 1px solid; color: inherit; background: none !important; }
  h2, h3, .soft, .legend { break-after: avoid; }
  tr, .banner, dl { break-inside: avoid; } thead { display: table-header-group; }
  svg, .banner, .legend { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  #words .beside { grid-template-columns: minmax(0, 1fr); } #words figure { display: none; }
  .answer svg { max-width: 330px; }
  .grid, .grid.broad { grid-template-columns: 1fr 1fr 1fr; gap: .5rem; } pre { white-space: pre-wrap; } }
"""
)
