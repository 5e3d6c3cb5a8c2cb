"""The Entree log as events: which restaurant was shown, what the visitor asked for next, which one was accepted.

A session is a user here: the next restaurant depends on the one that is being looked at. Visitors (salted addresses)
stand in a column of their own. Sessions have one moment, so events get it plus their place in seconds.
"""

import gzip
from pathlib import Path

import polars as pl

CUT = "1999-01-01"
OPERATIONS = {"L": "browse", "M": "cheaper", "N": "nicer", "O": "closer", "P": "more traditional", "Q": "more creative",
              "R": "livelier", "S": "quieter", "T": "change cuisine"}  # fmt: skip
ACCEPT = "accept"


def read(path: Path) -> pl.DataFrame:
    """Columns user (session), visitor, item, time, event, reward: 1 for the restaurant seen last, 0 for all others.

    The end point -1 (not known) is no event. Entry points are left out: most are restaurants of other cities.
    """
    with gzip.open(path) as file:
        raw = pl.read_csv(file, infer_schema=False)
    base = raw.select(
        pl.col("session_id").cast(pl.Int64).alias("user"),
        pl.col("user").cast(pl.Int64).alias("visitor"),
        pl.col("ts").str.to_datetime().alias("start"),
        pl.col("items").fill_null("").str.split(" "),
        pl.col("ops").fill_null("").str.split(""),
        "end_id",
    )
    shown = base.filter(pl.col("ops").list.len() > 0).explode("items", "ops")
    shown = shown.with_columns(place=pl.int_range(pl.len()).over("user"), reward=pl.lit(0.0))
    shown = shown.with_columns(event=pl.col("ops").replace_strict(OPERATIONS), item=pl.col("items"))
    ended = base.filter(pl.col("end_id") != "-1").with_columns(
        place=pl.col("ops").list.len().cast(pl.Int64), event=pl.lit(ACCEPT), reward=pl.lit(1.0), item=pl.col("end_id")
    )
    time = pl.col("start") + pl.duration(seconds=pl.col("place"))
    columns = ["user", "visitor", pl.col("item").cast(pl.Int64), time.alias("time"), "event", "reward"]
    return pl.concat([shown.select(columns), ended.select(columns)]).sort("user", "time")
