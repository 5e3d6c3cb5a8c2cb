"""Periods of interactions: what is held out came later, and a collapse of variety is said once."""

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.algorithms.recommenders import described, fresh, small
from tests.data.clicks import ROLES, clicks
from tidelog.data.statistics import Scaler
from tidelog.policies.policy import Policy
from tidelog.recommend.held_out import QWeightSelection, TimeSplit
from tidelog.training.fit import user_selection_share
from tidelog.training.run import CollapseWarning, Run, collapsed_metrics


def row(coverage, member=0):
    return {"update": 0, "member": member, "seed": 0, "main/coverage": coverage, "main/critic_loss": coverage}


def test_a_fall_below_a_quarter_of_the_best_is_told_when_it_happens():
    watched_metrics = small().watched_metrics
    early = {"update": 0, "member": 0, "pretrain/coverage": 0.1}  # a fresh reader names anything
    assert collapsed_metrics(watched_metrics, early, [early | {"pretrain/coverage": 0.9}]) == []
    assert collapsed_metrics(watched_metrics, row(0.1), [row(0.2), row(0.5), row(0.3)]) == ["main/coverage"]
    assert collapsed_metrics(watched_metrics, row(0.2), [row(0.5)]) == []
    assert collapsed_metrics(watched_metrics, row(0.1), [row(0.5), row(0.11)]) == []  # told already
    assert collapsed_metrics(watched_metrics, row(0.1), [row(0.5, member=1)]) == []
    assert collapsed_metrics(watched_metrics, row(0.1), []) == []
    assert collapsed_metrics((), row(0.1), [row(0.5)]) == []


@pytest.mark.parametrize(
    ("name", "q_weight", "fix"),
    [
        ("held_out/coverage", 0.0, "fix: lower the learning rate; the weight of Q is 0"),
        ("held_out/coverage", 0.5, "fix: lower the weight of Q or its learning rate"),
        ("main/coverage", 0.0, "fix: lower the weight of Q or its learning rate"),  # of the items that Q chooses
    ],
)
def test_a_run_warns_of_a_collapse_and_names_q_only_where_q_has_a_part(name, q_weight, fix):
    class Half:
        members = (type("Member", (), {"index": 0, "seed": 3, "algorithm": small()}),)
        metrics = ({"update": 0, "member": 0, "seed": 0, name: 0.5},)

    with pytest.warns(CollapseWarning, match=f"{name} of RecommenderBCQ with seed 3 fell to 0.1, .*{fix}"):
        Run._warn_of_collapse(Half(), [{"update": 1, "member": 0, "seed": 0, name: 0.1, "q_weight": q_weight}])
    Run._warn_of_collapse(Half(), [{"update": 1, "member": 0, "seed": 0, name: 0.4}])  # no warning


@pytest.mark.full
def test_the_advice_on_a_divergence_can_be_followed():
    with pytest.raises(tl.errors.DivergenceError, match="fix: lower the learning rates") as error:
        tl.fit(small(critic_learning_rate=1e30, pretrain_share=0.0), described(), 6)
    for refused in ("scale=", "reward_scaling", "episodes"):
        assert refused not in str(error.value)


def test_notes_of_training_name_a_share_of_events_far_from_that_of_the_time():
    lengths = np.arange(2, 42)
    users = np.repeat(np.arange(40), lengths)
    clicks = np.concatenate([np.arange(length) for length in lengths])
    frame = pl.DataFrame({"u": users, "i": (users + clicks) % 7, "click": clicks})
    log = tl.read_interactions(frame, user="u", item="i", time="click")
    held_out, said = TimeSplit(log, 0.2).notes()
    assert "(5.2%)" in held_out
    assert said.startswith(
        "the last 20% of the time has 45 of 860 events (5.23%), expected about 20% of the events: name"
    )
    assert len(TimeSplit(log, 0.5).notes()) == 1


def test_what_is_held_out_came_later_and_nothing_else_is_learnt_from():
    periods = TimeSplit(described(), 0.3)
    stores = periods.stores(small(), Scaler())
    kept = periods.validation_stores(small(), Scaler())
    cut = np.float64(periods.held_out_ids[0].removeprefix("from "))
    assert stores["log"].item.shape[0] == (described().time < cut).sum()
    assert int(kept["log"].scored.sum()) == (described().time >= cut).sum()
    assert TimeSplit(described(), 0.0).validation_stores(small(), Scaler()) is None
    assert TimeSplit(described(), 0.0).chooser is None


def test_a_split_says_what_it_holds_out():
    held = int(described().split(share=0.3).test.scored.sum())
    note = TimeSplit(described(), 0.3).notes()[0]
    assert f"held out: {held} events ({held / len(described()):.1%}) from 2001-09-09 01:51:02 on" in note
    assert "measured by the next event" in note
    assert TimeSplit(described(), 0.0).notes() == []


def test_a_period_with_hardly_an_event_is_refused(tmp_path):
    wrong = pl.concat([clicks(users=60), clicks().head(1).with_columns(t=pl.lit(3e9))])
    log = tl.read_interactions(wrong, **ROLES)
    with pytest.raises(tl.ConfigError, match=r"held_out: the last 20% of the time has 1 of 301 events .*fix: correct"):
        tl.fit(small(), log, 1, held_out=0.2, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    tl.fit(small(), log, 1, train=False)  # holds out nothing


def baskets(seed=0):
    """Ten baskets of two to four items of each user, one a day, in an order without meaning."""
    rng = np.random.default_rng(seed)
    rows = [(f"u{u}", f"i{i}", float(day), 2.0 + i) for u in range(8) for day in range(10)
            for i in rng.permutation(9)[: 2 + u % 3]]  # fmt: skip
    return pl.DataFrame(rows, schema=["u", "i", "t", "worth"], orient="row")


def test_a_log_of_baskets_is_validated_by_the_first_basket_of_each_user():
    roles = {"user": "u", "item": "i", "time": "t", "reward": "worth"}
    log = tl.read_interactions(baskets(), **roles)
    assert log.basket_share == 1.0
    parts = TimeSplit(log, 0.3)
    assert "each user's first basket" in parts.notes()[0]
    h = small()
    policy = Policy(h, log.spec, Scaler(), h.policy_params(fresh(h, log)))
    _, metrics = parts.chooser.measure(policy)
    hits, gains, rewards = [], [], []
    gain = 1 / np.log2(np.arange(9) + 2.0)  # the lists hold all nine items
    for user in range(8):
        mine = np.flatnonzero((log.user == user) & (log.time >= parts._split.at))
        basket = mine[log.time[mine] == log.time[mine[0]]]
        seen = log.histories(mine[:1], h.reach)._replace(users=None)
        listed, _ = policy.ranker().rank(seen, 9)
        taken = np.isin(listed[0], log.item[basket])
        hits.append(taken.any())
        gains.append((taken * gain).sum() / gain[: len(basket)].sum())
        rewards.append(log.reward[basket].sum())
    wanted = {"held_out/hit@10": hits, "held_out/ndcg@10": gains, "held_out/reward@10": rewards}
    for name, values in wanted.items():
        assert metrics[name] == pytest.approx(np.mean(values), rel=1e-6), name
    shuffled = tl.read_interactions(baskets().sample(fraction=1.0, shuffle=True, seed=1), **roles)
    held = QWeightSelection(shuffled.split(share=0.3).test).measure(policy)[1]
    assert held["held_out/reward@10"] == pytest.approx(metrics["held_out/reward@10"])


def test_few_events_at_one_time_are_no_baskets():
    frame = baskets().with_columns(t=pl.col("t") + pl.int_range(pl.len()) / 1000)
    tied = frame.with_columns(t=pl.when(pl.col("u").is_in(["u0", "u1", "u2"])).then(baskets()["t"]).otherwise("t"))
    log = tl.read_interactions(tied, user="u", item="i", time="t")
    assert 0.2 < log.basket_share < 0.5
    assert not log.has_baskets
    users = pl.DataFrame({"u": ["a", "a", "b", "b"], "i": ["x", "y", "x", "y"], "t": [0.0, 1.0, 1.0, 2.0]})
    assert tl.read_interactions(users, user="u", item="i", time="t").basket_share == 0.0


def test_the_users_that_choose_the_policy_are_not_those_that_measure_it():
    log = described()
    apart = TimeSplit(log, 0.3, 0.5)
    selection = apart.chooser
    chose, reported = (np.unique(one.user[one.targets]) for one in (selection.log, selection.reported))
    held_out = log.split(share=0.3).test
    assert len(chose) > 0
    assert not np.intersect1d(chose, reported).size
    assert np.array_equal(np.union1d(chose, reported), np.unique(held_out.user[held_out.targets]))
    kept = apart.validation_stores(small(), Scaler())["log"]
    assert int(kept.scored.sum()) == len(selection.log.targets)
    assert "50% of its users choose the policy, the others measure it" in apart.notes()[0]
    whole = TimeSplit(log, 0.3).chooser
    assert whole.reported is whole.log


def test_half_of_many_held_out_users_choose_a_policy_that_is_kept():
    few, many = (tl.read_interactions(clicks(users=users), **ROLES) for users in (60, 900))
    assert user_selection_share(None, "held_out/ndcg@10", 0.3, many) == 0.5
    assert user_selection_share(None, "held_out/ndcg@10", 0.3, few) == 1.0  # too few would be left
    assert user_selection_share(None, None, 0.3, many) == 1.0
    assert user_selection_share(0.2, "held_out/ndcg@10", 0.3, few) == 0.2
    with pytest.raises(tl.ConfigError, match=r"selection_share = 0.2: no held-out metric chooses"):
        user_selection_share(0.2, None, 0.3, many)
