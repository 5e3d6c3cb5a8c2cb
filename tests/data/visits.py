"""One small clean log, as a table and as a mapping, that tests read, break and compare."""

import numpy as np
import polars as pl

from tidelog.data.columns import Columns

LENGTHS = (3, 5, 1, 4) * 3
MASKS = ["m0", "m1", "m2"]
COLUMNS = {
    "episode": "patient", "step": "hour", "observation": ["age", "sofa", "ward"], "action": "dose", "actions": 3,
    "reward": "r", "terminated": "died", "truncated": "left", "propensity": "p", "action_mask": MASKS,
}  # fmt: skip
NEXT = ["next_age", "next_sofa", "next_ward"]


def mapping(**changes: object) -> Columns:
    return Columns.from_mapping({**COLUMNS, **changes})


def visits() -> pl.DataFrame:
    """12 episodes, 39 rows; even episodes end in a termination, odd ones are truncated; ready in episode order."""
    rng = np.random.default_rng(0)
    rows = sum(LENGTHS)
    last = np.cumsum(LENGTHS) - 1
    even = np.repeat(np.arange(len(LENGTHS)) % 2 == 0, LENGTHS)
    ends = np.isin(np.arange(rows), last)
    dose = np.arange(rows) % 3
    mask = rng.random((rows, 3)) < 0.7
    mask[np.arange(rows), dose] = True
    return pl.DataFrame(
        {
            "patient": [f"p{ordinal}" for ordinal, length in enumerate(LENGTHS) for _ in range(length)],
            "hour": [step for length in LENGTHS for step in range(length)],
            "age": np.round(rng.normal(60, 10, rows), 2),
            "sofa": rng.integers(0, 24, rows).astype(float),
            "ward": [("icu", "er", "hall, east")[code] for code in rng.integers(0, 3, rows)],
            "dose": dose,
            "r": np.round(rng.normal(size=rows), 3),
            "died": (ends & even).astype(int),
            "left": (ends & ~even).astype(int),
            "p": np.round(rng.uniform(0.1, 1, rows), 3),
        }
        | {name: mask[:, place].astype(int) for place, name in enumerate(MASKS)}
    )


def with_next(frame: pl.DataFrame) -> pl.DataFrame:
    """The same with next observations: the following row's, and at the end of an episode something new."""
    ends = pl.col("patient") != pl.col("patient").shift(-1).fill_null("")
    fresh = {"age": pl.col("age") + 1.0, "sofa": pl.col("sofa") + 1.0, "ward": pl.lit("home")}
    return frame.with_columns(
        pl.when(ends).then(fresh[name]).otherwise(pl.col(name).shift(-1)).alias(f"next_{name}") for name in fresh
    )
