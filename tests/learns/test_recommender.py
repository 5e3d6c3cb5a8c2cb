"""A shop where the likelier item pays at once and the rarer one pays later, and more: Q must prefer the rarer one."""

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tidelog.types import HistoryArrays


def shop(users: int = 150, rounds: int = 4) -> tl.Interactions:
    """After `door` most select `toffee` (reward 0.4, then `crumbs`), others `oven` (0, then `bread`, reward 2)."""
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
        size=16, history=6, targets=6, hidden=(32,), candidates=5, pretrain_share=0.3, batch_size=64,
        learning_rate=1e-2, critic_learning_rate=3e-3, tau=0.05, discount=0.9, q_weight=2.0, dropout=None,
    )  # fmt: skip
    return tl.fit(algorithm, shop(), steps=500, eval_every=500).policy()


def club(users: int = 60) -> tl.Interactions:
    """Even users select `tea` and then `milk`, odd ones `coffee` and then `milk`; a table has the user's parity."""
    rows = [(user, item, 10.0 * user + step) for user in range(users)
            for step, item in enumerate((("tea", "coffee")[user % 2], "milk"))]  # fmt: skip
    frame = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    who = pl.DataFrame({"user": range(users), "club": ["even", "odd"] * (users // 2)})
    return tl.read_interactions(frame, user="user", item="item", time="time", user_features=who)


@pytest.mark.full
@pytest.mark.parametrize("told", [True, False])
def test_a_user_without_a_history_is_known_by_features_alone(told: bool) -> None:
    algorithm = tl.RecommenderBCQ(
        size=8, history=2, targets=2, hidden=(8,), candidates=3, pretrain_share=100 / 120, batch_size=16,
        learning_rate=3e-2, profile=told, q_weight=0.0,
    )  # fmt: skip
    policy = tl.fit(algorithm, club(), steps=120, eval_every=120).policy()
    if not told:
        with pytest.raises(tl.SpecError, match="policy has no user features"):
            policy.recommend(tl.Histories([[]], users=[{"club": "odd"}]))
        return
    asked = tl.Histories([[], [], ["tea"], ["coffee"]], users=[{"club": one} for one in ("even", "odd") * 2])
    found = policy.recommend(asked, 1)
    assert found.items[:, 0].tolist() == ["tea", "coffee", "milk", "milk"]  # 0 of 20 other seeds fail


@pytest.mark.full
def test_a_user_without_a_history_is_known_by_id_and_a_stranger_gets_what_half_of_the_users_take() -> None:
    algorithm = tl.RecommenderBCQ(
        size=8, history=2, targets=2, hidden=(8,), candidates=3, pretrain_share=1.0, batch_size=16,
        learning_rate=3e-2, profile=False, user_embedding=True, user_dropout=0.5,
    )  # fmt: skip
    policy = tl.fit(algorithm, club(), steps=200, eval_every=200).policy()
    found = policy.recommend(tl.Histories([[], [], [], []], user_ids=[20, 31, None, "stranger"]), 2)
    assert found.items[:2, 0].tolist() == ["tea", "coffee"]
    assert set(found.items[2]) == {"tea", "coffee"}
    own, stranger = (found.scores[row, 0] - found.scores[row, 1] for row in (0, 2))
    assert own > 3.0  # nats between the first and the second item; 0 of 8 seeds fail, here and below
    assert stranger < 1.5
    np.testing.assert_array_equal(found.scores[2], found.scores[3])


@pytest.mark.slow
@pytest.mark.full
def test_likelihood_names_what_most_take_and_q_what_pays_later(policy: tl.Policy) -> None:
    items = np.asarray(policy.spec.action.ids)
    history = np.array([[1 + list(items).index("door")]], np.int32)
    likely, _ = policy.ranker(supervised=True).rank(HistoryArrays(history, np.ones_like(history)), 2)
    assert items[likely[0] - 1].tolist() == ["toffee", "oven"]  # 0 of 20 other seeds fail, here and below
    assert policy.recommend([["door"]], k=2).items[0].tolist() == ["oven", "toffee"]
    assert policy.recommend([["door", "oven"]], k=1).items[0, 0] == "bread"
    assert policy.recommend([["door", "toffee"]], k=1).items[0, 0] == "crumbs"  # nothing else is supported
