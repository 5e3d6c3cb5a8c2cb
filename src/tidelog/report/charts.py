"""Charts of runs as inline SVG: curves with bands, intervals with a reference line. Letters: `S` seeds, `T` reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidelog.policies.statistics import Interval
from tidelog.report.axes import Axis, Values, axis, short
from tidelog.report.svg import picture, text

WIDTH = 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 330, 8, 150
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


def curves(description: str, drawn: Sequence[Curve]) -> str:
    """A chart of curves over updates; its vertical axis is logarithmic if positive numbers span decades."""
    across = axis(np.concatenate([one.updates for one in drawn]), _LEFT, _RIGHT)
    numbers = np.concatenate([np.ravel(part) for one in drawn for part in (one.seeds, one.mean)])
    up = axis(numbers, _BOTTOM, _TOP, positive=True)
    content = [_frame(across, up)]
    for one in drawn:
        content += _one_curve(one, across, up)
    scale = ", logarithmic axis" if up.logarithmic else ""
    return picture(f"{description}{scale}", WIDTH, _BOTTOM + 22, "".join(content))


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
    for value in up.ticks():
        y = float(up.at(value))
        lines.append(f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(text(_LEFT - 5, y + 4, short(value), "end"))
    for value in across.ticks(6):
        lines.append(text(float(across.at(value)), _BOTTOM + 16, short(value), "middle"))
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


def intervals(description: str, rows: Sequence[Reach], line: float | None, sides: tuple[str, str] = ("", "")) -> str:
    """Estimates with their intervals and a vertical line; `sides` are the labels on its left and right.

    Arrows mark ends outside the chart.
    """
    along = _along(rows, line)
    foot = len(rows) * _ROW + 8
    content = []
    if line is not None:
        x = float(along.at(line))
        content.append(f'<line class="ink" x1="{x:.1f}" x2="{x:.1f}" y1="2" y2="{foot}"/>')
    for place, row in enumerate(rows):
        content += _one_interval(row, along, place * _ROW)
    content += [text(float(along.at(v)), foot + 13, short(v), "middle") for v in along.ticks(4)]
    content.append(f'<line x1="6" x2="{WIDTH - 6}" y1="{foot}" y2="{foot}"/>')
    if any(sides):
        content += [text(6, foot + 29, f"◂ {sides[0]}"), text(WIDTH - 6, foot + 29, f"{sides[1]} ▸", "end")]
    return picture(description, WIDTH, foot + (34 if any(sides) else 18), "".join(content))


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
    name = text(6, top + 13, row.name, kind="haloed strong" if row.strong else "haloed")
    if not np.isfinite([estimate, low, high]).all():
        return [name, text(6, y + 4, "no number: the log does not support it", kind="haloed")]
    left, middle, right = (float(place) for place in along.at([low, estimate, high]))
    shapes = [name, f'<line class="reach {row.colour}" x1="{left:.1f}" x2="{right:.1f}" y1="{y}" y2="{y}"/>']
    shapes += [text(left - 2, y + 4, "◂", "end")] if low < along.low else []
    shapes += [text(right + 2, y + 4, "▸")] if high > along.high else []
    if along.low <= estimate <= along.high:
        shapes.append(f'<circle class="dot {row.colour}" cx="{middle:.1f}" cy="{y}" r="4.5"/>')
    return shapes
