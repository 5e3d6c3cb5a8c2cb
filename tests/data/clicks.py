"""One small clean table of interactions, that tests read, break and compare."""

import numpy as np
import polars as pl

from tidelog.recommend.interactions import Interactions
from tidelog.recommend.read import read_interactions

ROLES = {"user": "u", "item": "i", "time": "t", "event": "kind", "reward": {"click": 0.2, "buy": 1.0}}


def clicks(users: int = 12, items: int = 9, seed: int = 0) -> pl.DataFrame:
    """Users walk around a ring of items, mostly to the next one; every third item is bought. In order of time."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        place = user % items
        for step in range(3 + user % 5):
            rows.append((f"u{user}", f"i{place}", 1e9 + 60.0 * step + user, "buy" if place % 3 == 0 else "click"))
            place = (place + (1 if rng.random() < 0.8 else 2)) % items
    return pl.DataFrame(rows, schema=["u", "i", "t", "kind"], orient="row")


def interactions(**changes: object) -> Interactions:
    return read_interactions(clicks(), **{**ROLES, **changes})
