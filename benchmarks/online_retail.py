"""The Online Retail log as events: which customer bought what, and for how much.

Rows without a customer, returns (quantity below 0) and gifts (price 0) are no purchases and are left out: 144,025 of
541,909.
"""

from pathlib import Path

import polars as pl

CUT = "2011-11-01"


def read(path: Path) -> pl.DataFrame:
    """Columns user, item, time, event ("buy"), reward (revenue); one row an invoice line.

    All lines of an invoice have the time of its first; a customer's second invoice of the same minute is put one second
    later, so that equal times mean one basket.
    """
    bought = pl.col("CustomerID").is_not_null() & (pl.col("Quantity") > 0) & (pl.col("UnitPrice") > 0)
    lines = pl.read_parquet(path).filter(bought).with_columns(pl.col("InvoiceNo", "StockCode").cast(pl.String))
    opened = pl.col("ts").min().over("InvoiceNo")
    nth = pl.col("InvoiceNo").rank("dense").over("CustomerID", opened).cast(pl.Int64) - 1
    return lines.select(
        pl.col("CustomerID").cast(pl.Int64).alias("user"),
        pl.col("StockCode").alias("item"),
        (opened + pl.duration(seconds=nth)).alias("time"),
        pl.lit("buy").alias("event"),
        (pl.col("Quantity") * pl.col("UnitPrice")).alias("reward"),
    ).sort("user", "time", "item")
