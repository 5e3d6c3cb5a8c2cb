"""The actions of a log from their columns: discrete, continuous or several at once."""

from __future__ import annotations

import numpy as np

from tidelog.data.core.columns import Bounds
from tidelog.data.core.raw import Column, RawAction


def decide_action(
    columns: tuple[Column, ...],
    sizes: tuple[int, ...] | None,
    bounds: Bounds | None,
) -> RawAction:
    """Discrete, multi-discrete or continuous: as declared, else discrete for one column of whole numbers."""
    width = sum(int(np.prod(column.values.shape[1:])) for column in columns)
    if sizes is not None:
        return RawAction("discrete" if len(sizes) == 1 and width == 1 else "multi", columns, sizes)
    if bounds is not None or width != 1:
        return RawAction("continuous", columns, None, widened(bounds, width))
    values = columns[0].values[columns[0].usable]
    whole = bool(np.all(values[np.isfinite(values)] % 1 == 0))
    return RawAction("discrete" if whole else "continuous", columns)


def widened(bounds: Bounds | None, width: int) -> Bounds | None:
    """Repeat a single pair of bounds for every dimension."""
    return bounds if bounds is None or len(bounds[0]) != 1 else (bounds[0] * width, bounds[1] * width)
