"""Parts of a log: periods of interactions, the weight of Q that they choose, and a share of the episodes."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.algorithms.recommenders import described, fresh, small
from tests.data.clicks import ROLES, clicks
from tests.training.runs import bc, begin
from tidelog import ConfigError, fit
from tidelog.data.read import read_log
from tidelog.data.statistics import Scaler
from tidelog.policies.policy import Policy
from tidelog.recommend.held_out import LEAST_USERS, QWeightSelection, TimeSplit, check_list_options, rewards_if_shown
from tidelog.recommend.interactions import next_events
from tidelog.runtime.ranking import FoundItems
from tidelog.training.fit import EpisodeSplit, user_selection_share
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


# The weight of Q in a score, chosen by what follows: rewards until the session's end, weighed by propensities.


LOUD, KIND = 1, 2
VISITS = 1500


def visits(number=VISITS, propensity=True):
    """Visits of two steps, items shown at random: the loud item earns 1 and ends the visit, the kind one 0.4.

    The second step earns 1 for both.
    """
    generator = np.random.default_rng(0)
    rows = []
    for user in range(number):
        for step in range(2):
            item = int(generator.integers(2)) + 1
            rows.append(
                (user, 10.0 * user + step, "loud" if item == LOUD else "tame", 1.0 if step or item == LOUD else 0.4)
            )
            if item == LOUD:
                break
    table = pl.DataFrame(rows, ["user", "time", "item", "reward"], orient="row").with_columns(p=pl.lit(0.5))
    roles = {"propensity": "p"} if propensity else {}
    return tl.read_interactions(table, user="user", item="item", time="time", reward="reward", session_gap=5.0, **roles)


def selected(log, discount=1.0):
    """The weight that is chosen where likelihood prefers the loud item, and Q the tame one."""

    def find(history, *_):
        both = np.tile([LOUD, KIND], (len(history.items), 1)).astype(np.int32)
        numbers = np.tile([0.0, -0.3], (len(history.items), 1)), np.tile([0.0, 1.0], (len(history.items), 1))
        return FoundItems(items=both, likelihood=numbers[0], rating=numbers[1], first=np.ones(both.shape, bool))

    algorithm = SimpleNamespace(reach=2, discount=discount, q_weight=None, policy_metrics=lambda _: {"q_updates": 1.0})
    policy = SimpleNamespace(algorithm=algorithm, params=None, ranker=lambda: SimpleNamespace(items=2, find=find))
    return QWeightSelection(log.split(share=0.9).test).measure(policy)[0]


def test_rewards_to_the_end_stop_where_the_session_does():
    table = pl.DataFrame(
        {"u": [1, 1, 1, 2], "i": ["a", "b", "a", "b"], "t": [0.0, 1.0, 90.0, 5.0], "r": [1.0, 2.0, 4.0, 8.0]}
    )
    log = tl.read_interactions(table, user="u", item="i", time="t", reward="r", session_gap=10.0)
    assert log.rewards_to_end(0.5).tolist() == [2.0, 2.0, 4.0, 8.0]


def test_the_mean_of_rewards_if_shown_is_that_of_the_item():
    """Tame earns 0.4 and 1 after it in a first step, and every second step earns 1."""
    log = visits()
    cases = next_events(log, np.flatnonzero(log.position == 0))
    loud, tame = (np.full(len(cases), item) for item in (LOUD, KIND))
    first, then = rewards_if_shown(log, cases, [loud, tame], 1.0)
    gain = then - first
    assert abs(gain.mean() - 0.4) < 4 * gain.std() / np.sqrt(len(gain))
    again = rewards_if_shown(log, cases, [loud, np.where(cases.user < LEAST_USERS - 1, KIND, LOUD)], 1.0)
    assert (again[1] == again[0]).all(), "too few users have another item"


@pytest.mark.parametrize(("propensity", "chosen"), [(True, True), (False, False)])
def test_a_reward_that_comes_later_counts_where_propensities_are_known(propensity, chosen):
    assert (selected(visits(propensity=propensity)) > 0) == chosen


def test_a_later_reward_that_is_discounted_away_does_not_count():
    assert selected(visits(), discount=0.0) == 0.0


# A share of the training episodes is read; the held-out episodes stay the same.


@pytest.mark.parametrize("held_out", [0.0, 0.2])
def test_less_data_are_a_part_of_more_and_the_held_out_part_stays(held_out, origin, saved):
    splits = {share: EpisodeSplit(origin, held_out, 0, 1.0, share) for share in (0.25, 0.5, 1.0)}
    whole = EpisodeSplit(origin, held_out, 0)
    count = len(origin.episode_ids) - len(whole.held_out_ids)
    read = {share: set(split.training_log.episode_ids.tolist()) for share, split in splits.items()}
    assert [len(one) for one in read.values()] == [round(0.25 * count), round(0.5 * count), count]
    assert read[0.25] < read[0.5] < read[1.0]
    assert all(split.held_out_ids == whole.held_out_ids for split in splits.values())
    assert not read[1.0] & set(whole.held_out_ids)
    run = begin(bc(), read_log(saved, memory_map=True), held_out=held_out, data_share=0.5)
    assert run.record.options.data_share == 0.5
    assert run.record.sketches["learnt_from"]["episodes"] == len(read[0.5])
    assert begin(bc(), origin, held_out=held_out, data_share=0.5).record.sketches == run.record.sketches


def test_shares_that_are_none_are_refused(origin):
    for share in (0.0, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="data_share"):
            fit(bc(), origin, 2, data_share=share)
    with pytest.raises(ConfigError, match=r"data_share = 0\.5: interactions are split by time"):
        check_list_options({"data_share": 0.5}, {})
