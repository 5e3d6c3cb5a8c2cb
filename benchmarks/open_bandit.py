"""The clicks of the Open Bandit sample as events (Saito et al. 2021): who clicked on which item, and when.

Both behaviour policies and both campaigns, 10,000 impressions each. The log has no ids of people: a user here is the
four hashed features of a person and the campaign, a group of people. An item of one campaign is none of the other.
"""

from pathlib import Path

import polars as pl

CUT = "2019-11-29"
LOGGERS, CAMPAIGNS = ("random", "bts"), ("men", "women")


def read(folder: Path) -> pl.DataFrame:
    """Columns user, item, time, event ("click"), reward (1); one row for each click."""
    features = [f"user_feature_{number}" for number in range(4)]
    clicks = [
        pl.read_csv(folder / behavior_policy / campaign / f"{campaign}.csv.gz", infer_schema=False)
        .filter(pl.col("click") == "1")
        .select(
            pl.concat_str(pl.lit(campaign), *features, separator="/").alias("user"),
            pl.concat_str(pl.lit(campaign), "item_id", separator="/").alias("item"),
            pl.col("timestamp").str.to_datetime(time_zone="UTC").dt.replace_time_zone(None).alias("time"),
        )
        for behavior_policy in LOGGERS
        for campaign in CAMPAIGNS
    ]
    return pl.concat(clicks).with_columns(event=pl.lit("click"), reward=pl.lit(1.0)).sort("user", "time")
