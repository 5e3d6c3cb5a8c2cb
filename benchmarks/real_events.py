"""Three real logs as events: a frame with the columns user, item, time, event and reward, and the time that a study
cuts it at."""

import gzip
from pathlib import Path

import polars as pl

CUTS = {"entree": "1999-01-01", "online_retail": "2011-11-01", "open_bandit": "2019-11-29"}
ACCEPT = "accept"
OPERATIONS = {"L": "browse", "M": "cheaper", "N": "nicer", "O": "closer", "P": "more traditional", "Q": "more creative",
              "R": "livelier", "S": "quieter", "T": "change cuisine"}  # fmt: skip


def entree(path: Path) -> pl.DataFrame:
    """Which restaurant was shown, what the visitor asked for next, which one was accepted (reward 1, all others 0).

    A session is a user: the next restaurant depends on the one that is being looked at. Visitors (salted addresses) are
    the column `visitor`. Sessions have one moment, so events get it plus their place in seconds. The end point -1 (not
    known) is no event. Entry points are left out: most are restaurants of other cities.
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


def online_retail(path: Path) -> pl.DataFrame:
    """Which customer bought what, and for how much: an event an invoice line, its revenue the reward.

    Rows without a customer, returns (quantity below 0) and gifts (price 0) are left out: 144,025 of 541,909. All lines
    of an invoice have the time of its first; a customer's second invoice of the same minute is put one second later, so
    equal times mean one basket.
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


def open_bandit(folder: Path) -> pl.DataFrame:
    """The clicks of the Open Bandit sample (Saito et al. 2021): both behaviour policies and both campaigns.

    The log has no ids of people: a user is the four hashed features of a person and the campaign, a group of people. An
    item of one campaign is none of the other.
    """
    features = [f"user_feature_{number}" for number in range(4)]
    clicks = [
        pl.read_csv(folder / behavior_policy / campaign / f"{campaign}.csv.gz", infer_schema=False)
        .filter(pl.col("click") == "1")
        .select(
            pl.concat_str(pl.lit(campaign), *features, separator="/").alias("user"),
            pl.concat_str(pl.lit(campaign), "item_id", separator="/").alias("item"),
            pl.col("timestamp").str.to_datetime(time_zone="UTC").dt.replace_time_zone(None).alias("time"),
        )
        for behavior_policy in ("random", "bts")
        for campaign in ("men", "women")
    ]
    return pl.concat(clicks).with_columns(event=pl.lit("click"), reward=pl.lit(1.0)).sort("user", "time")
