"""Distributions of several sources on a common axis, as inline SVG: returns, shares of actions, weights.

Letters: `N` numbers, `B` bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidelog.report.axes import Axis, Values, short
from tidelog.report.svg import Bins, bins, picture, shortened, text

WIDTH = 340
_TALL, _GAP = 44, 22
_LINE = 12


@dataclass(frozen=True, eq=False)
class Source:
    """A named source of numbers [N]; `colour` is a class of the style sheet."""

    name: str
    colour: str
    values: Values


def ridges(description: str, sources: Sequence[Source]) -> str:
    """One histogram per source, stacked over a common axis, each with a tick at its mean."""
    shared = bins(np.concatenate([one.values for one in sources]))
    along = _over(shared)
    content = []
    for place, one in enumerate(sources):
        foot = (place + 1) * (_TALL + _GAP)
        content.append(text(2, foot - _TALL - 6, shortened(one.name, 50)))
        content += _bars(_counts(one.values, shared), shared, along, foot, _TALL, f"{one.colour}")
        mean = float(along.at(float(np.mean(one.values))))
        content.append(f'<line x1="2" x2="{WIDTH - 2}" y1="{foot}" y2="{foot}"/>')
        content.append(f'<line class="ink" x1="{mean:.1f}" x2="{mean:.1f}" y1="{foot - _TALL}" y2="{foot + 4}"/>')
    foot = len(sources) * (_TALL + _GAP)
    return picture(description, WIDTH, foot + 20, "".join([*content, _numbers(along, foot + 16, shared.whole)]))


def overlaid(description: str, sources: Sequence[Source]) -> str:
    """One histogram of shares: the first source is filled, the others are outlines."""
    shared = bins(np.concatenate([one.values for one in sources]))
    along, tall = _over(shared), 100
    shares = [_counts(one.values, shared) / len(one.values) for one in sources]
    top = max(float(share.max()) for share in shares)
    content = _bars(
        shares[0], shared, along, tall + 4, tall * float(shares[0].max()) / top, f"ghost {sources[0].colour}"
    )
    edges = along.at(shared.edges) if len(shared.counts) > 1 else np.array([WIDTH / 2 - 20, WIDTH / 2 + 20])
    for one, share in zip(sources[1:], shares[1:], strict=True):
        heights = tall + 4 - share / top * tall
        points = "L".join(
            f"{a:.1f} {h:.1f}L{b:.1f} {h:.1f}" for a, b, h in zip(edges, edges[1:], heights, strict=False)
        )
        content.append(f'<path class="curve {one.colour}" d="M{points}"/>')
    content.append(f'<line x1="2" x2="{WIDTH - 2}" y1="{tall + 4.5}" y2="{tall + 4.5}"/>')
    return picture(description, WIDTH, tall + 22, "".join([*content, _numbers(along, tall + 18, shared.whole)]))


def shares(description: str, names: Sequence[str], sources: Sequence[tuple[str, Values]]) -> str:
    """Bars of shares: for every name one bar per source, `(colour, shares [names])`."""
    tall = len(sources) * _LINE + 10
    top = max(float(values.max()) for _, values in sources) or 1.0
    content = []
    for place, name in enumerate(names):
        y = place * tall + 4
        content.append(text(112, y + tall / 2, shortened(name, 17), "end"))
        for line, (colour, values) in enumerate(sources):
            width, here = values[place] / top * 172, y + line * _LINE
            content.append(f'<rect class="{colour}" x="118" y="{here}" width="{width:.1f}" height="{_LINE - 2}"/>')
            content.append(text(122 + width, here + _LINE - 1, f"{values[place]:.1%}"))
    return picture(description, WIDTH, len(names) * tall + 6, "".join(content))


def binned(description: str, counts: Values, edges: Values, labels: Sequence[tuple[float, str]]) -> str:
    """A histogram of counts [B] between edges [B + 1], with labels at some numbers."""
    shared, tall = Bins(counts, edges, False), 90
    along = _over(shared)
    content = _bars(counts, shared, along, tall + 4, tall, "c0")
    content.append(f'<line x1="2" x2="{WIDTH - 2}" y1="{tall + 4.5}" y2="{tall + 4.5}"/>')
    places = [float(np.clip(along.at(value), 18, WIDTH - 18)) for value, _ in labels]
    content += [text(x, tall + 18, word, "middle") for x, (_, word) in zip(places, labels, strict=True)]
    return picture(description, WIDTH, tall + 22, "".join(content))


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
    return "".join(text(float(along.at(value)), y, short(value), "middle") for value in ticks)
