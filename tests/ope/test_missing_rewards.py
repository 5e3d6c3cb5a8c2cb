"""Unknown rewards in a verdict: what stands in for them, the sharp bounds whatever they are, and what is said."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from benchmarks import adversarial_worlds as worlds
from tidelog.ope.decide import Assessment, Limits, broken, fails_missing
from tidelog.ope.estimators import ESTIMATORS, logged_return
from tidelog.ope.evidence import Evidence
from tidelog.ope.missing_rewards import extreme_rewards, hardly_known, known_factors, with_stand_ins
from tidelog.policies.statistics import Interval
from tidelog.types import Discrete

UNKNOWN = np.nan


def evidence(reward, ratio, lengths, **more):
    """Steps with these logged rewards and ratios of probabilities; the stand-ins are 7, so that a use of them shows."""
    reward, ratio = np.asarray(reward, float), np.asarray(ratio, float)
    known = {"logged_reward": reward, "known_chance": np.full(len(reward), 0.5)}
    return Evidence(
        starts=np.append(0, np.cumsum(lengths)),
        reward=np.where(np.isnan(reward), 7.0, reward),
        target=0.25 * ratio,
        behaviour=np.full(len(ratio), 0.25),
        **{**known, "model": np.zeros(len(ratio)), "model_target": np.zeros(len(ratio)), **more},
    )


@pytest.mark.parametrize(
    ("lengths", "estimator"), [([1] * 6, "wdr"), ([2, 2, 2], "wdr"), ([1, 3, 2], "wdr"), ([1, 3, 2], "drl")]
)
def test_bounds_are_the_extremes_over_everything_that_unknown_rewards_can_be(lengths, estimator):
    ratio, occupancy = [0.5, 1.6, 1.2, 0.4, 2.0, 0.7], np.array([0.5, 1.6, 1.2, 0.4, 2.0, 0.7])
    reward = np.array([UNKNOWN, 1.0, UNKNOWN, UNKNOWN, -2.0, UNKNOWN])
    seen = evidence(reward, ratio, lengths, occupancy=occupancy)
    every = []
    for values in itertools.product((-2.0, 1.0), repeat=4):
        filled = reward.copy()
        filled[np.isnan(filled)] = values
        one = replace(seen, reward=filled)
        every.append(ESTIMATORS[estimator].ratios(one).minus(logged_return(one)).estimate)
    for best, expected in ((False, min(every)), (True, max(every))):
        bound = replace(seen, reward=extreme_rewards(seen, None, None, best=best, visits=estimator == "drl"))
        found = ESTIMATORS[estimator].ratios(bound).minus(logged_return(bound)).estimate
        assert found == pytest.approx(expected, abs=1e-12)


def test_bounds_of_the_difference_between_two_policies():
    one = evidence([UNKNOWN, 1.0, UNKNOWN, 0.0], [0.5, 1.5, 1.5, 0.5], [1, 1, 1, 1])
    other = replace(one, target=0.25 * np.array([0.1, 1.9, 1.9, 0.1]))
    worst = extreme_rewards(one, None, None, best=False, other=other)
    assert worst.tolist() == [0.0, 1.0, 1.0, 0.0]  # 0.5 > 0.1 is raised by a reward, 1.5 < 1.9 is lowered
    drawn = worlds.unknown(np.random.default_rng(3), 2_500, worlds.UNHAPPY, "unknown")
    less, rule = (
        worlds.Table([[0.5, 0.5]] * 2),
        tl.simple_rules(drawn.log.split(0.5)[0], origin={})["best single action"],
    )
    both = {"whole": less, "rule": rule}
    found = {stated: tl.judge(both, replace(drawn.log, missing_reward=stated), ledger=False, model="tabular",
                              learnt_from="other data") for stated in ("unknown", "at random")}  # fmt: skip
    wide, narrow = (found[stated].contrasts[0].difference for stated in ("unknown", "at random"))
    assert wide.estimate == narrow.estimate
    assert wide.high - wide.low > 1.3 * (narrow.high - narrow.low)


def test_stated_returns_bound_single_decisions():
    seen = evidence([UNKNOWN, 1.0, UNKNOWN, 0.0], [0.5, 1.5, 1.5, 0.5], [1, 1, 1, 1])
    assert extreme_rewards(seen, -3.0, 9.0, best=False).tolist() == [9.0, 1.0, -3.0, 0.0]
    assert extreme_rewards(seen, -3.0, 9.0, best=True).tolist() == [-3.0, 1.0, 9.0, 0.0]
    assert extreme_rewards(seen, None, None, best=True).tolist() == [0.0, 1.0, 1.0, 0.0]


def test_weights_of_known_rewards():
    seen = evidence([UNKNOWN, 1.0, 3.0], [1.0, 1.0, 1.0], [2, 1])
    assert known_factors(seen).tolist() == [1.0, 2.0]  # (0 + 1 / 0.5) / 2, and 1 / 0.5
    rare = replace(seen, known_chance=np.array([0.05, 0.5, 0.5]), target=np.array([0.5, 0.25, 0.25]))
    assert hardly_known(rare, visits=False) == pytest.approx(0.4)  # weights 2, 2 and 1
    assert hardly_known(replace(rare, occupancy=np.array([1.0, 0.5, 0.5])), visits=True) == pytest.approx(0.5)
    single = evidence([UNKNOWN, 1.0], [3.0, 1.0], [1, 1], known_chance=np.array([0.05, 0.5]))
    assert hardly_known(single, visits=False) == pytest.approx(3 / 4)


def test_recorded_rewards_lie_among_the_known_ones():
    seen = evidence([UNKNOWN, 1.0, 3.0], [1.0, 1.0, 1.0], [1, 1, 1])
    assert seen.recorded_reward.tolist() == [3.0, 1.0, 3.0]


# Stand-ins.


def numbers(rows=6_000, seed=0, stated="at random"):
    """Two numbers decide the reward and, with the action, whether it is known; the mean of all rewards is 0.5."""
    generator = np.random.default_rng(seed)
    x, action = generator.standard_normal((rows, 2)), generator.integers(0, 2, rows)
    reward = x[:, 0] + action + 0.1 * generator.standard_normal(rows)
    known = generator.random(rows) < 1.0 / (1.0 + np.exp(-(1.0 + x[:, 0] - 2.0 * action)))
    log = tl.Log.from_arrays(
        observation=x.astype(np.float32), action=action, reward=np.where(known, reward, np.nan), terminated=True,
        actions=2, propensity=0.5, missing_reward=stated,
    )  # fmt: skip
    return log, reward


def test_stand_ins_repair_means_of_rewards_that_are_missing_at_random():
    log, _ = numbers()
    found, missing = with_stand_ins(log, 0)
    assert found.reward_known is None
    for action in (0, 1):
        rows = np.asarray(log.action) == action
        naive, error = np.nanmean(log.reward[rows]), np.std(found.reward[rows]) / np.sqrt(rows.sum())
        assert abs(found.reward[rows].mean() - action) < 4 * error
        assert abs(naive - action) > 8 * error
    assert np.array_equal(np.isnan(missing.reward), ~log.reward_known)
    assert "the action" in missing.sentence


def test_chances_are_those_that_rewards_were_known_with_in_tables_and_numbers():
    log, _ = numbers()
    missing = with_stand_ins(log, 0)[1]
    x, action = np.asarray(log.observation["observation"], np.float64), np.asarray(log.action)
    truth = 1.0 / (1.0 + np.exp(-(1.0 + x[:, 0] - 2.0 * action)))
    assert np.abs(missing.chance - truth).mean() < 0.02
    drawn = worlds.unknown(np.random.default_rng(0), 8_000, worlds.CENSORED, "at random", by="context").log
    missing = with_stand_ins(drawn, 0)[1]
    cell = drawn.observation["context"][:, 0], drawn.action
    assert np.abs(missing.chance - (1.0 - worlds.CENSORED[cell[1], cell[0]])).max() < 0.05


def test_stand_ins_of_an_episode_come_from_models_that_never_saw_it():
    log, _ = numbers(rows=500)
    changed = np.array(log.reward)
    row = int(np.flatnonzero(log.reward_known)[0])
    changed[row] += 100.0
    before, after = (with_stand_ins(one, 0)[0].reward for one in (log, replace(log, reward=changed)))
    missing = with_stand_ins(log, 0)[1]
    assert after[row] - before[row] == pytest.approx(100.0 / missing.chance[row], rel=1e-4)


def test_a_billion_declared_actions_take_no_table():
    tabular = worlds.unknown(np.random.default_rng(0), 2_000, worlds.CENSORED, "unknown").log
    for log in (tabular, numbers(rows=2_000)[0]):
        wide = replace(log, spec=replace(log.spec, action=Discrete(10**9)), propensity=None)
        (few, missing), (many, same) = with_stand_ins(log, 0), with_stand_ins(wide, 0)
        assert np.array_equal(few.reward, many.reward)
        assert missing.sentence == same.sentence


def test_log_with_all_rewards_is_the_same_object():
    log = numbers()[0].with_known_rewards()
    assert with_stand_ins(log, 0) == (log, None)


# Verdicts.


def verdict(drawn, **more):
    return tl.judge(drawn.policies[0], drawn.log, ledger=False, **{"model": "tabular", **drawn.arguments, **more})


def test_rewards_missing_by_their_value_block_better_and_the_verdict_says_why():
    drawn = worlds.unknown(np.random.default_rng(3), 2_500, worlds.UNHAPPY, "unknown")
    found = verdict(drawn)
    assert found.decision == "no difference shown"
    assert found.difference.low < 0 < found.difference.high
    assert "rewards are unknown" in found.reasons[0]
    assert "after '1'" in found.reasons[0]
    assert "could be -0.0" in found.reasons[0]
    assert 'missing_reward = "at random"' in found.next_step
    context = found.context["missing_rewards"]
    assert context["at_random"] is False
    assert 0.1 < context["share"] < 0.3


def test_stated_at_random_weighs_and_names_the_assumption():
    drawn = worlds.unknown(np.random.default_rng(3), 2_500, worlds.UNHAPPY, "at random")
    found = verdict(drawn)
    assert found.decision == "better"
    assert any("The answer assumes, as the mapping states" in reason for reason in found.reasons)
    assert "It rests on the statement of the mapping that rewards (2" in found.paragraph
    assert found.risk is None
    assert "some rewards are unknown" in found.risk_reason


def test_few_unknown_rewards_do_not_block_a_large_difference_and_the_verdict_says_that_it_holds():
    drawn = worlds.unknown(np.random.default_rng(4), 2_500, worlds.CENSORED / 10, "unknown", gain=0.25)
    found = verdict(drawn)
    assert found.decision == "better"
    assert any("The verdict holds whatever the unknown ones are" in reason for reason in found.reasons)
    low, high = found.context["missing_rewards"]["bound"][1:]
    assert 0 < low < found.difference.low < found.difference.high < high


def test_decisions_whose_reward_is_hardly_ever_known_are_unsupported():
    odds = np.array([[0.05, 0.05], [0.05, 0.97]])
    drawn = worlds.unknown(np.random.default_rng(5), 2_500, odds, "at random", by="context", gain=0.3)
    found = verdict(drawn)
    assert found.decision == "unsupported"
    assert "known in less than 10% of cases" in found.reasons[0]


def test_weights_of_known_rewards_count_for_support():
    drawn = worlds.unknown(np.random.default_rng(6), 300, np.full((2, 2), 0.8), "at random", gain=0.3)
    found = verdict(drawn)
    assert found.decision == "unsupported"
    assert "the known ones say too little" in found.reasons[0]
    (check,) = (one for one in found.checks if one.rule == "known_weights")
    assert (check.outcome, check.limit, check.limit_name) == ("failed", 50, "effective_episodes")
    stricter = verdict(drawn, limits=tl.Limits(effective_share=0.2))
    (check,) = (one for one in stricter.checks if one.rule == "known_weights")
    assert (check.outcome, check.limit_name) == ("failed", "effective_share")
    whole = worlds.unknown(np.random.default_rng(6), 300, np.zeros((2, 2)), "at random", gain=0.3)
    assert verdict(whole).decision != "unsupported"


def test_late_rewards_that_count_as_nothing_block_a_verdict():
    ignored = verdict(worlds.late(np.random.default_rng(7), 2_500, None))
    assert ignored.decision == "no difference shown"
    assert "may still come" in ignored.reasons[0]
    assert "reward_horizon" in ignored.next_step
    right = verdict(worlds.late(np.random.default_rng(7), 2_500, "30d", gain=0.3))
    assert right.decision == "better"
    assert not any("may still come" in reason for reason in right.reasons)


def test_policy_that_learnt_from_the_judged_episodes_is_recognised():
    log, _ = numbers(rows=600, stated="unknown")
    learnt = tl.fit(tl.IQL(hidden=(8,)), log, steps=3).policy()
    cloned = tl.fit(tl.BC(hidden=(8,)), log.take_episodes(np.flatnonzero(~log.has_return)), steps=3).policy()
    for policy in (learnt, cloned):  # from the known rewards, and from the decisions without one
        found = tl.judge(policy, log, ledger=False, model="none")
        assert found.decision == "unsupported"
        assert "learnt from" in found.reasons[0]


def test_sequences_with_unknown_rewards_are_judged_step_by_step():
    generator = np.random.default_rng(8)
    episodes, steps = 1_500, 3
    action = generator.integers(0, 2, episodes * steps)
    reward = (generator.random(len(action)) < 0.3 + 0.3 * action).astype(float)
    unknown = generator.random(len(action)) < np.where(action == 1, 0.4, 0.1)
    log = tl.Log.from_arrays(
        observation={"context": np.zeros(len(action), np.int64)}, action=action, actions=2, propensity=0.5,
        reward=np.where(unknown, np.nan, reward), episode=np.repeat(np.arange(episodes), steps), terminated=True,
        missing_reward="at random",
    )  # fmt: skip
    found = tl.judge(worlds.Table([[0.2, 0.8]]), log, ledger=False, model="tabular", learnt_from="other data")
    assert found.decision == "better"
    assert found.difference.low < 3 * 0.3 * 0.3 < found.difference.high
    assert (
        tl.judge(
            worlds.Table([[0.2, 0.8]]), replace(log, missing_reward="unknown"), ledger=False, model="tabular"
        ).context["missing_rewards"]["bound"][1]
        < 0
    )
    first = tl.judge(worlds.Table([[0.2, 0.8]]), log, ledger=False, model="tabular", first_steps=1)
    assert first.difference.low < 0.09 < first.difference.high


def test_rule_reads_the_bound_and_not_the_interval():
    missing = with_stand_ins(numbers(rows=300, stated="unknown")[0], 0)[1]

    def found(interval, bound, **stated):
        a = Assessment(Limits(), missing=missing._replace(**stated))
        a.__dict__ |= {"interval": Interval(*interval), "missing_bound": Interval(*bound)}
        return [one.rule for one in broken(fails_missing(a))]

    assert found((1.0, 0.5, 1.5), (1.0, -0.1, 2.0)) == ["unknown_rewards"]
    assert found((1.0, 0.5, 1.5), (1.0, -0.1, 2.0), at_random=True) == []
    assert found((1.0, 0.5, 1.5), (1.0, 0.1, 2.0)) == []
    assert found((-1.0, -1.5, -0.5), (-1.0, -2.0, 0.1)) == ["unknown_rewards"]
    assert found((-1.0, -1.5, -0.5), (-1.0, -2.0, -0.1)) == []


def test_estimates_count_unknown_rewards_as_missing_at_random():
    drawn = worlds.unknown(np.random.default_rng(9), 4_000, worlds.CENSORED, "unknown", by="context")
    found = tl.estimate(drawn.policies[0], drawn.log, ["wdr"], model="tabular")["wdr"]
    assert found.low < 0.4 < found.high


def test_doubts_that_are_small_one_by_one_add_up():
    """Unknown rewards of unknown cause, and probabilities that had to be estimated."""
    drawn = worlds.unknown(np.random.default_rng(4), 2_500, worlds.CENSORED / 10, "unknown", gain=0.25)
    log = replace(drawn.log, propensity=None)

    def under(odds, judged=log):
        return tl.judge(drawn.policies[0], judged, ledger=False, model="tabular", learnt_from="other data",
                        limits=tl.Limits(odds_ratio=odds))  # fmt: skip

    def failed(found):
        return [one.rule for one in found.checks if one.outcome == "failed"]

    low, high = 1.0, 8.0
    for _ in range(6):
        middle = (low + high) / 2.0
        low, high = (low, middle) if "sensitivity" in failed(under(middle)) else (middle, high)
    found = under(low)
    assert failed(found) == ["together"]
    assert found.decision == "no difference shown"
    assert found.difference.low <= 0.0 < found.difference.estimate
    assert "each of these alone leaves" in found.reasons[0]
    assert "unknown rewards (" in found.reasons[0]
    assert "an unrecorded cause (" in found.reasons[0]
    assert "record the probability of each decision" in found.next_step
    assert failed(under(high)) == ["sensitivity"]
    assert under(1.02).decision == "better"
    assert under(low, replace(log, missing_reward="at random")).decision == "better"  # one doubt alone
