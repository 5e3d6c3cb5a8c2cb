"""What 32-bit storage takes from rewards: the rounding of their sizes, as a share of their differences."""

from __future__ import annotations

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Column, Finding

LOST, ROUNDED = "rewards lost in 32 bits", "rewards rounded in 32 bits"
MOST_LOST, MOST_ROUNDED = 0.1, 0.01  # shares of the spread from which on this is an error, and a warning
_SAMPLE = 100_000  # rows in which the middle half of the rewards is measured


def rounded_share(rewards: Values) -> float:
    """The rounding of rewards [N] to 32 bits as a share of their spread; 0 for equal ones and those that fit.

    Of all rewards the root mean square is compared with the standard deviation, of the middle half the mean with the
    range, so that single large rewards do not hide what the others lose.
    """
    wide = rewards.astype(np.float64)
    wide = wide[np.isfinite(wide)]
    with np.errstate(over="ignore"):
        errors = np.abs(wide - wide.astype(np.float32))
    wide, errors = wide[np.isfinite(errors)], errors[np.isfinite(errors)]
    if not len(wide) or not errors.any():
        return 0.0
    low, middle, high = np.quantile(wide[:: max(1, len(wide) // _SAMPLE)], (0.25, 0.5, 0.75))
    spread = float((wide - middle).std())  # of small numbers, whose squares are exact
    shares = [float(np.sqrt(np.square(errors).mean())) / spread] if spread > 0 else []
    inside = (wide >= low) & (wide <= high)
    shares += [float(errors[inside].mean() / (high - low))] if high > low and inside.any() else []
    return max(shares, default=0.0)


def rounded_rewards(column: Column) -> list[tuple[str, Finding]]:
    """The finding about rewards [N] or [N, K] that 32 bits change, with the name of its check; none for few changes."""
    if column.values.dtype.itemsize <= 4 or column.values.dtype.kind not in "iuf" or not column.values.size:
        return []
    parts = column.values[column.usable].reshape(-1, int(np.prod(column.values.shape[1:], dtype=int)))
    share = max((rounded_share(part) for part in parts.T), default=0.0)
    if share < MOST_ROUNDED:
        return []
    middle = float(np.median(parts[np.isfinite(parts)]))
    found = (
        f"rewards near {middle:.6g} whose differences are small beside them: rewards are stored in 32 bits, and this "
        f"changes them by {share:.2g} times their spread"
    )
    advice = (
        "subtract a constant, such as their mean (where episodes end at different steps, this changes what is best)"
    )
    return [
        (LOST if share >= MOST_LOST else ROUNDED, Finding(column.name, None, found, "differences that fit", advice))
    ]
