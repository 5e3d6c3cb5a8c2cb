"""A shop in which the likelier item pays at once and the rarer one pays later, and more: Q has to prefer the rarer."""

import numpy as np
import polars as pl
import pytest

import tidelog as tl


def shop(users: int = 150, rounds: int = 4) -> tl.Interactions:
    """Behind `door` most take `toffee` (worth 0.4, then `crumbs`), others `oven` (worth 0, then `bread`, worth 2)."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(users):
        clock = float(user)
        for _ in range(rounds):
            later = rng.random() < 0.4
            path = (("door", 0.0), ("oven", 0.0), ("bread", 2.0)) if later else (
                ("door", 0.0), ("toffee", 0.4), ("crumbs", 0.0))  # fmt: skip
            for item, worth in path:
                clock += 1.0
                rows.append((user, item, clock, worth))
    frame = pl.DataFrame(rows, schema=["user", "item", "time", "worth"], orient="row")
    return tl.read_interactions(frame, user="user", item="item", time="time", reward="worth")


@pytest.fixture(scope="module")
def policy() -> tl.Policy:
    algorithm = tl.RecommenderBCQ(
        size=16, history=6, targets=6, hidden=(32,), candidates=5, pretrain=150, batch_size=64, learning_rate=1e-2,
        critic_learning_rate=3e-3, target_rate=0.05, discount=0.9, q_weight=2.0, dropout=None,
    )  # fmt: skip
    return tl.fit(algorithm, shop(), steps=500, every=500).policy()


def test_likelihood_names_what_most_take_and_q_what_pays_later(policy: tl.Policy) -> None:
    items = np.asarray(policy.spec.action.ids)
    history = np.array([[1 + list(items).index("door")]], np.int32)
    likely, _ = policy.ranker(supervised=True).rank(history, np.ones_like(history), 2)
    assert items[likely[0] - 1].tolist() == ["toffee", "oven"]
    assert policy.recommend([["door"]], k=2).items[0].tolist() == ["oven", "toffee"]
    assert policy.recommend([["door", "oven"]], k=1).items[0, 0] == "bread"
    assert policy.recommend([["door", "toffee"]], k=1).items[0, 0] == "crumbs"  # nothing else is supported
