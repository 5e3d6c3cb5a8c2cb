"""pandas frames, without importing pandas."""

from __future__ import annotations

from typing import Any

import polars as pl

from tidelog.data.parsing.tables import unique


def is_pandas(source: Any) -> bool:
    """Whether this is a pandas frame, by its class."""
    return type(source).__module__.split(".")[0] == "pandas" and type(source).__name__ == "DataFrame"


def polars_of(frame: Any) -> pl.DataFrame:
    """The same columns in Polars; missing values of any pandas type become null."""
    labels = unique([str(label) for label in frame.columns])
    return pl.DataFrame([_series(label, frame.iloc[:, place]) for place, label in enumerate(labels)])


def _series(label: str, column: Any) -> pl.Series:
    kind = str(column.dtype)
    if kind.startswith("datetime64"):
        naive = column if column.dt.tz is None else column.dt.tz_convert("UTC").dt.tz_localize(None)
        return pl.Series(label, naive.to_numpy().astype("datetime64[us]"))
    if column.dtype.kind in "biuf" and not hasattr(column.dtype, "na_value"):
        return pl.Series(label, column.to_numpy())
    empty = column.isna().to_numpy()
    values = [None if absent else value for value, absent in zip(column.tolist(), empty, strict=True)]
    kinds = {type(value) for value in values if value is not None}
    mixed = len(kinds) > 1 and not kinds <= {int, float, bool}
    return pl.Series(
        label, [None if value is None else str(value) for value in values] if mixed else values, strict=False
    )
