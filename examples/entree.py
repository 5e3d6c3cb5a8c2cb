"""Entree sessions, one a line, as a table of steps: `python examples/entree.py sessions.csv.gz steps.parquet`."""

import sys
from pathlib import Path

import polars as pl


def steps(path: str | Path) -> pl.DataFrame:
    """One row for each restaurant that was rated, with the operation that the user chose there."""
    sessions = pl.read_csv(path, infer_schema=False).with_columns(
        item=pl.col("items").str.split(" "), op=pl.col("ops").str.extract_all(".")
    )
    rows = sessions.explode("item", "op").with_columns(step=pl.int_range(pl.len()).over("session_id"))
    last = pl.col("session_id") != pl.col("session_id").shift(-1).fill_null("")
    return rows.with_columns(found=(last & (pl.col("end_id") != "-1")).cast(pl.Int8))


if __name__ == "__main__":
    steps(sys.argv[1]).write_parquet(sys.argv[2])
