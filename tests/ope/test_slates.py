"""Slates: by hand and at the ends of a dial; tables of estimates, and logs that are assembled from slots."""

import json

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.ope.made import evidence_of
from tests.shared import shared
from tidelog import ConfigError
from tidelog.errors import SpecError
from tidelog.ope.estimators.bandit import direct_method, doubly_robust, ips, snips
from tidelog.ope.estimators.sequential import per_decision_is, sequential_dr, weighted_dr
from tidelog.ope.estimators.slates import cascade_dr, independent_ips, reward_interaction_ips


def test_whole_slates_by_hand():
    found = json.loads(shared("oracles/ope_examples.json").read_text())["slate_by_hand"]
    logged = found["logged"]

    def column(name):
        return [row[name] for row in logged]

    rest = {
        "reward": column("reward"),
        "behaviour": column("propensity"),
        "model": column("model_on_logged"),
        "model_target": column("model_on_target"),
    }
    greedy = evidence_of([1] * 3, target=column("matches"), **rest)
    stochastic = evidence_of([1] * 3, target=column("target_probability"), **rest)
    assert direct_method(greedy).estimate == pytest.approx(found["direct_method"], abs=1e-12)  # (1 + 4 + 5) / 3
    assert ips(greedy).estimate == pytest.approx(found["ips_greedy"], abs=1e-12)  # 5 / 0.5 / 3
    assert doubly_robust(greedy).estimate == pytest.approx(found["doubly_robust_greedy"], abs=1e-12)
    assert ips(stochastic).estimate == pytest.approx(found["ips_stochastic"], abs=1e-12)  # (8 + 3 + 12.25) / 3


REWARD = np.array([[1.0, 2.0], [0.0, 4.0]])
TARGET, LOGGER = np.array([[0.5, 0.2], [0.1, 0.9]]), np.array([[0.25, 0.4], [0.2, 0.3]])  # weights 2, 1/2; 1/2, 3


def test_slots_by_hand():
    # alone: 2 * 1 + 1/2 * 2 = 3;  1/2 * 0 + 3 * 4 = 12
    assert independent_ips(REWARD, TARGET, LOGGER).contributions == pytest.approx([3.0, 12.0])
    # with those above: 2 * 1 + 1 * 2 = 4;  1/2 * 0 + 3/2 * 4 = 6
    assert reward_interaction_ips(REWARD, TARGET, LOGGER).contributions == pytest.approx([4.0, 6.0])
    # slot by slot: 2 / 2.5 + 13 / 3.5, and 2 / 2.5 + 8 / 2.5
    assert independent_ips(REWARD, TARGET, LOGGER, self_normalised=True).estimate == pytest.approx(2 / 2.5 + 13 / 3.5)
    assert reward_interaction_ips(REWARD, TARGET, LOGGER, self_normalised=True).estimate == pytest.approx(10 / 2.5)


def test_slates_of_one_slot_are_bandits_and_slots_are_steps():
    one = evidence_of([1, 1], reward=REWARD[:, 0], target=TARGET[:, 0], behaviour=LOGGER[:, 0])
    first = REWARD[:, :1], TARGET[:, :1], LOGGER[:, :1]
    for estimator in (independent_ips, reward_interaction_ips):
        assert estimator(*first).estimate == pytest.approx(ips(one).estimate)
        assert estimator(*first, self_normalised=True).estimate == pytest.approx(snips(one).estimate)
    steps = evidence_of([2, 2], reward=REWARD.ravel(), target=TARGET.ravel(), behaviour=LOGGER.ravel())
    assert reward_interaction_ips(REWARD, TARGET, LOGGER).estimate == pytest.approx(per_decision_is(steps).estimate)


def test_the_loggers_own_slates_are_worth_the_mean_reward():
    for estimator in (independent_ips, reward_interaction_ips):
        for self_normalised in (False, True):
            assert estimator(REWARD, LOGGER, LOGGER, self_normalised=self_normalised).estimate == pytest.approx(3.5)


def test_wrong_slates_are_refused():
    with pytest.raises(SpecError, match=r"expected equal shapes \[slates, slots\]"):
        independent_ips(REWARD, TARGET[:, :1], LOGGER)
    with pytest.raises(SpecError, match="behaviour > 0 in every slot"):
        reward_interaction_ips(REWARD, TARGET, LOGGER * 0)


MODEL, MODEL_TARGET = np.array([[1.0, 0.5], [2.0, 3.0]]), np.array([[1.5, 1.0], [2.5, 2.0]])


def test_cascade_by_hand():
    # weights 2, 1/2; 1/2, 3, so down the list 2, 1; 1/2, 3/2
    # 2 (1 - 1) + 1.5 + 1 (2 - 0.5) + 2 * 1 = 5;  0.5 (0 - 2) + 2.5 + 1.5 (4 - 3) + 0.5 * 2 = 4
    found = cascade_dr(REWARD, TARGET, LOGGER, MODEL, MODEL_TARGET)
    assert found.contributions == pytest.approx([5.0, 4.0])
    # (0 - 1) / 2.5 + 4 / 2 + (1.5 + 1.5) / 2.5 + (2 + 1) / 2.5
    normalised = cascade_dr(REWARD, TARGET, LOGGER, MODEL, MODEL_TARGET, self_normalised=True)
    assert normalised.estimate == pytest.approx(-0.4 + 2.0 + 1.2 + 1.2)


def test_cascade_is_other_estimators_at_its_ends():
    nothing = np.zeros((2, 2))
    for self_normalised in (False, True):
        plain = reward_interaction_ips(REWARD, TARGET, LOGGER, self_normalised=self_normalised)
        found = cascade_dr(REWARD, TARGET, LOGGER, nothing, nothing, self_normalised=self_normalised)
        assert found.estimate == pytest.approx(plain.estimate)
    one = [part[:, :1] for part in (REWARD, TARGET, LOGGER, MODEL, MODEL_TARGET)]
    names = ("reward", "target", "behaviour", "model", "model_target")
    bandit = evidence_of([1, 1], **{name: part.ravel() for name, part in zip(names, one, strict=True)})
    assert cascade_dr(*one).estimate == pytest.approx(doubly_robust(bandit).estimate)
    steps = (REWARD, TARGET, LOGGER, MODEL, MODEL_TARGET)
    sequence = evidence_of([2, 2], **{name: part.ravel() for name, part in zip(names, steps, strict=True)})
    assert cascade_dr(*steps).estimate == pytest.approx(sequential_dr(sequence).estimate)
    assert cascade_dr(*steps, self_normalised=True).estimate == pytest.approx(weighted_dr(sequence).estimate)


def test_the_slate_worked_by_hand():
    found = json.loads(shared("oracles/ope_examples.json").read_text())["slate_by_hand"]
    column = lambda name: np.array([[row[name]] for row in found["logged"]], float)  # noqa: E731
    arrays = {"reward": column("reward"), "behaviour": column("propensity")}
    model = {"model": column("model_on_logged"), "model_target": column("model_on_target")}
    greedy = tl.estimate_slates(target=column("matches"), **arrays, **model)
    assert greedy["independent"].estimate == pytest.approx(found["ips_greedy"], abs=1e-12)
    assert greedy["cascade_dr"].estimate == pytest.approx(found["doubly_robust_greedy"], abs=1e-12)
    drawn = tl.estimate_slates(target=column("target_probability"), **arrays)
    assert drawn["reward_interaction"].estimate == pytest.approx(found["ips_stochastic"], abs=1e-12)


def cascade(lists=4000, seed=0, slots=3, items=4):
    """Lists of independent choices; an item earns more below an item of the same kind. With the truth of the target."""
    generator = np.random.default_rng(seed)
    logger, target = np.full((slots, items), 1 / items), np.tile([0.6, 0.1, 0.2, 0.1], (slots, 1))
    item = generator.integers(items, size=(lists, slots))
    above = np.hstack([np.full((lists, 1), -1), item[:, :-1]])
    mean = item / items + 0.5 * (item % 2 == above % 2) * (above >= 0)
    earned = mean + 0.3 * generator.standard_normal(item.shape)
    same = sum(target[0, i] * target[0, j] for i in range(items) for j in range(items) if i % 2 == j % 2)
    truth = slots * float(target[0] @ np.arange(items) / items) + 0.5 * same * (slots - 1)
    at = np.arange(slots)
    chances = np.tile(target, (lists, 1, 1))
    return earned, target[at, item], logger[at, item], item, chances, truth


def test_a_cascade_is_found_by_those_who_look_above():
    earned, target, logger, item, chances, truth = cascade()
    model, model_target = tl.slot_model(earned, item, chances)
    found = tl.estimate_slates(earned, target, logger, model=model, model_target=model_target)
    assert [row.name for row in found] == [
        "independent", "sn_independent", "reward_interaction", "sn_reward_interaction", "cascade_dr", "sn_cascade_dr"
    ]  # fmt: skip
    for name in ("reward_interaction", "sn_reward_interaction", "cascade_dr", "sn_cascade_dr"):
        assert found[name].low < truth < found[name].high, name  # 3 of 40 other seeds fail: four intervals of 95%
    for name in ("independent", "sn_independent"):
        # 0 of 40 other seeds fail, here and below
        assert found[name].high < truth, "what stood above matters, and the logger put other things there"
    width = {row.name: row.high - row.low for row in found}
    assert width["cascade_dr"] < 0.9 * width["reward_interaction"], "the model takes noise away"
    assert found["cascade_dr"].support == found["reward_interaction"].support
    assert found["independent"].support.effective_sample_size > found["cascade_dr"].support.effective_sample_size
    assert "support is that of slot" in found["independent"].note


@pytest.mark.full
def test_intervals_cover():
    kept = {"cascade_dr": 0, "sn_cascade_dr": 0, "sn_reward_interaction": 0}
    for seed in range(60):
        earned, target, logger, item, chances, truth = cascade(2000, seed)
        model, model_target = tl.slot_model(earned, item, chances, seed=seed)
        found = tl.estimate_slates(
            earned, target, logger, list(kept), model=model, model_target=model_target, replicates=300
        )
        for name in kept:
            kept[name] += found[name].low <= truth <= found[name].high
    assert min(kept.values()) >= 51, kept  # of 60 at 95%: fewer once in 500


def test_the_model_never_sees_the_list_it_rates():
    earned, _, _, item, chances, _ = cascade(50)
    model, model_target = tl.slot_model(earned, item, chances)
    changed = earned.copy()
    changed[7] += 100.0
    other, _ = tl.slot_model(changed, item, chances)
    assert other[7] == pytest.approx(model[7])
    assert not np.allclose(other, model)
    assert model_target.shape == model.shape == earned.shape
    last = np.unique(model[:, -1])
    assert len(last) <= 5 * 4, "five folds of four items"


def test_incomplete_lists_leave_the_independent_estimators():
    logged = np.array([[True, True], [True, False]])
    found = tl.estimate_slates(REWARD, TARGET, LOGGER, logged=logged)
    assert [row.name for row in found] == ["independent", "sn_independent"]
    # slot 1: (2 * 1 + 1/2 * 0) / 2; slot 2: 1/2 * 2 of one list
    assert found["independent"].estimate == pytest.approx(1.0 + 1.0)
    assert found["sn_independent"].estimate == pytest.approx(2 / 2.5 + 2.0)
    hidden = np.where(logged, REWARD, np.nan)
    assert tl.estimate_slates(hidden, TARGET, LOGGER, logged=logged)["independent"].estimate == pytest.approx(2.0)
    with pytest.raises(SpecError, match="'cascade_dr' cannot be computed: some slots were not logged"):
        tl.estimate_slates(REWARD, TARGET, LOGGER, "cascade_dr", logged=logged, model=MODEL, model_target=MODEL_TARGET)
    whole = tl.estimate_slates(REWARD, TARGET, LOGGER, logged=np.ones((2, 2), bool))
    assert whole["independent"].estimate == pytest.approx(independent_ips(REWARD, TARGET, LOGGER).estimate)


def test_rows_become_lists():
    # two lists, b and a; rows in any order
    ids, position = np.array(["b", "a", "b", "a"]), np.array([2, 1, 1, 2])
    found = tl.assemble_slates(ids, position, [1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4], np.array([5, 6, 7, 8]))
    assert found.lists.tolist() == ["a", "b"]
    assert found.reward.tolist() == [[2.0, 4.0], [3.0, 1.0]]
    assert found.behaviour.tolist() == [[0.2, 0.4], [0.3, 0.1]]
    assert found.item.tolist() == [[6, 8], [7, 5]]
    assert found.logged.all()
    chances = np.arange(8).reshape(4, 2)
    assert found.arrange(chances).tolist() == [[[2, 3], [6, 7]], [[4, 5], [0, 1]]]


@pytest.mark.parametrize(("changes", "said"), [
    ({"position": [1, 2, 1, 1]}, r"list b has position 1 2 times: expected once \(1 lists have this problem\). fix: "),
    ({"position": [1, 2, 1, 3]}, r"list a lacks position 3: expected all of \[1, 2, 3\] .*2 of 2 lists lack some"),
    ({"list_id": None}, "list_id = None: each row is one slot"),
    ({"reward": [1.0, 2.0, np.nan, 1.0]}, "reward is nan in row 2: expected a finite number"),
    ({"propensity": [0.5, 0.0, 0.5, 0.5]}, "propensity is 0.0 in row 1: expected above 0 and at most 1"),
    ({"propensity": [0.5, 1.5, 0.5, 0.5]}, "propensity is 1.5 in row 1"),
    ({"propensity": [0.5]}, "columns have shapes .*: expected the same number of rows"),
    ({"item": [1, 2]}, "columns have shapes .*: expected the same number of rows"),
])  # fmt: skip
def test_wrong_rows_are_refused(changes, said):
    right = {"list_id": ["a", "a", "b", "b"], "position": [1, 2, 1, 2], "reward": [0.0] * 4, "propensity": [0.5] * 4}
    assert tl.assemble_slates(**right).reward.shape == (2, 2)
    with pytest.raises(SpecError, match=said):
        tl.assemble_slates(**{**right, **changes})


def test_wrong_arguments_are_refused():
    arrays = (REWARD, TARGET, LOGGER)
    with pytest.raises(ConfigError, match="unknown slate estimator 'cascade'"):
        tl.estimate_slates(*arrays, "cascade")
    with pytest.raises(SpecError, match="'cascade_dr' cannot be computed: it needs model="):
        tl.estimate_slates(*arrays, "cascade_dr")
    with pytest.raises(SpecError, match="expected both or none"):
        tl.estimate_slates(*arrays, model=MODEL)
    with pytest.raises(SpecError, match=r"expected equal shapes \[lists, slots\]"):
        tl.estimate_slates(REWARD, TARGET[:, :1], LOGGER)
    with pytest.raises(SpecError, match="reward is nan in list 0, slot 2"):
        tl.estimate_slates(np.array([[1.0, np.nan], [1.0, 1.0]]), TARGET, LOGGER)
    with pytest.raises(SpecError, match=r"expected behaviour in \(0, 1\]"):
        tl.estimate_slates(REWARD, TARGET, 0 * LOGGER)
    with pytest.raises(SpecError, match="slot 2 was never logged"):
        tl.estimate_slates(*arrays, logged=np.array([[True, False], [True, False]]))
    with pytest.raises(SpecError, match=r"model has shape \(2, 1\)"):
        tl.estimate_slates(*arrays, model=MODEL[:, :1], model_target=MODEL_TARGET)
    with pytest.raises(ConfigError, match="method = 'bernstein'"):
        tl.estimate_slates(*arrays, method="bernstein")
    earned, _, _, item, chances, _ = cascade(20)
    with pytest.raises(SpecError, match="whole numbers from 0 to 3"):
        tl.slot_model(earned, item + 1, chances)
    with pytest.raises(SpecError, match="sum to 1"):
        tl.slot_model(earned, item, chances * 0.5)


def test_open_bandit_positions():
    """One row a slot without list ids: a list of three is worth the sum of its slots' means."""
    path = shared("data/obd_small/random/men/men.csv.gz")
    other = shared("data/obd_small/bts/men/men.csv.gz")
    names = ["item_id", "position", "click", "propensity_score"]
    log, bts = (pl.read_csv(one, columns=names) for one in (path, other))
    shares = np.zeros((4, 34))
    np.add.at(shares, (bts["position"].to_numpy(), bts["item_id"].to_numpy()), 1.0)
    shares[1:] /= shares[1:].sum(1, keepdims=True)
    item, position = log["item_id"].to_numpy(), log["position"].to_numpy()
    with pytest.raises(SpecError, match="list_id = None"):
        tl.assemble_slates(None, position, log["click"].to_numpy(), log["propensity_score"].to_numpy())
    found = tl.assemble_slates(
        None, position, log["click"].to_numpy(), log["propensity_score"].to_numpy(), item, incomplete=True
    )
    target = shares[position, item]
    table = tl.estimate_slates(found.reward, found.arrange(target, 1.0), found.behaviour, logged=found.logged)
    weighed = log.with_columns(weight=pl.Series(target) / pl.col("propensity_score"))
    slots = weighed.group_by("position").agg(
        plain=(pl.col("weight") * pl.col("click")).mean(),
        normalised=(pl.col("weight") * pl.col("click")).sum() / pl.col("weight").sum(),
    )
    assert table["independent"].estimate == pytest.approx(slots["plain"].sum())
    assert table["sn_independent"].estimate == pytest.approx(slots["normalised"].sum())
    assert table["sn_independent"].low < 3 * 0.0069 < table["sn_independent"].high, "what Thompson sampling earned"
