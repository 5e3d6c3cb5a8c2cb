"""Small charts of distributions as inline SVG: no library, no script, with descriptions for screen readers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

Values = np.ndarray[Any, Any]
_WIDTH, _HEIGHT, _FOOT = 280, 96, 18
_BINS = 30
_LINE = 17


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
    counts, edges = np.histogram(values / 2, _BINS, (low / 2, high / 2))
    return Bins(counts, edges * 2, False)


def histogram(name: str, values: Values) -> str:
    """Histogram of numbers [N], with the smallest and the largest value below."""
    heights = bins(values)
    top = int(heights.counts.max())
    width = _WIDTH / max(len(heights.counts), 3)
    start = (_WIDTH - width * len(heights.counts)) / 2
    bars = [
        f'<rect x="{start + place * width:.1f}" y="{_HEIGHT - height:.1f}" width="{max(width - 1, 0.5):.1f}" '
        f'height="{height:.1f}"/>'
        for place, height in enumerate(heights.counts / top * _HEIGHT)
        if height
    ]
    low, high = (float(np.min(values)), float(np.max(values)))
    most = int(np.argmax(heights.counts))
    centre = (heights.edges[most] + heights.edges[most + 1]) / 2
    title = f"Distribution of {name}: from {low:.4g} to {high:.4g}, most often about {centre:.4g}"
    axis = text(0, _HEIGHT + 14, f"{low:.4g}") + text(_WIDTH, _HEIGHT + 14, f"{high:.4g}", "end")
    base = f'<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT + 0.5}" y2="{_HEIGHT + 0.5}"/>'
    return picture(title, _WIDTH, _HEIGHT + _FOOT, "".join(bars) + base + axis)


def bars(name: str, counts: Sequence[tuple[str, int]], more: int = 0) -> str:
    """Bar chart of named counts, one line each; `more` is the number of counts that are not shown."""
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
    return picture(title, _WIDTH, (len(counts) + bool(more)) * _LINE + 2, "".join([*lines, *tail]))


def picture(description: str, width: float, height: float, content: str) -> str:
    """An SVG with a text description."""
    description = escape(description, quote=True)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{description}"><title>{description}</title>{content}</svg>'


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    """SVG text at a position; `kind` is a class of the style sheet."""
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{mark}>{escape(words)}</text>'


def shortened(word: str, most: int = 13) -> str:
    """A word, cut to at most `most` characters."""
    return word if len(word) <= most else word[: most - 1] + "…"
