"""Decisions at unequal times: every estimate is exact on a small world that is enumerated."""

from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from tests.ope.test_fqe import chances
from tidelog.data.log import number_observations
from tidelog.data.statistics import returns_to_go
from tidelog.ope import rules
from tidelog.ope.assumptions import extreme_returns
from tidelog.ope.estimators import discounts, occupancy_support, possible_returns, returns
from tidelog.ope.evidence import Evidence, centred_rewards, episode_folds
from tidelog.ope.networks import network_values, solved_weights
from tidelog.ope.policies import as_policy
from tidelog.ope.policy_evidence import evidence_of
from tidelog.ope.tabular import tabular_ratios, tabular_values

# From state 0, action 0 leads to state 1 after 1 hour; action 1 earns 0.5 and leads to state 1 after 3 hours or to
# state 2 after half an hour, at even odds. In state 1 action 0 earns 1, action 1 earns 3, and the episode ends. In
# state 2 action 0 earns 4 and ends; action 1 earns 2 and leads to state 3 after 2 hours, where 0 earns 1 and 1 earns 5.
# The behaviour policy takes both actions at even odds: every path is in the log as often as it is likely.
TARGET = np.asarray([[0.7, 0.3], [0.2, 0.8], [0.4, 0.6], [0.5, 0.5]])
PATHS = [  # weight, then (state, action, reward, hours to the next decision)
    *((4, [(0, 0, 0.0, 1.0), (1, last, 1.0 + 2.0 * last, 0.0)]) for last in (0, 1)),
    *((2, [(0, 1, 0.5, 3.0), (1, last, 1.0 + 2.0 * last, 0.0)]) for last in (0, 1)),
    (2, [(0, 1, 0.5, 0.5), (2, 0, 4.0, 0.0)]),
    *((1, [(0, 1, 0.5, 0.5), (2, 1, 2.0, 2.0), (3, last, 1.0 + 4.0 * last, 0.0)]) for last in (0, 1)),
]
FOLDS = 5
ALL = ["fqe", "is", "wis", "pdis", "wpdis", "dr", "wdr", "mwl", "drl"]


class Table:
    """The target as a policy."""

    def probabilities(self, observation, mask=None):
        return TARGET[observation["observation"][:, 0]]


def world(longest=3, cut=False, copies=FOLDS, hours=None):
    """Each copy holds all paths, up to so many steps, and is a cluster: folds are then alike."""
    paths = [path[:longest] for weight, path in PATHS for _ in range(weight)] * copies
    rows = np.asarray([step for path in paths for step in path])
    lengths = np.asarray([len(path) for path in paths])
    last = np.zeros(len(rows), bool)
    last[np.cumsum(lengths) - 1] = True
    each = len(paths) // copies
    return tl.Log.from_arrays(
        observation=rows[:, 0].astype(int), action=rows[:, 1].astype(int), reward=rows[:, 2], actions=2,
        episode=np.repeat(np.arange(len(paths)), lengths), terminated=last & (not cut), truncated=last & cut,
        cluster=np.repeat(np.arange(len(paths)) // each, lengths), propensity=np.full(len(rows), 0.5),
        elapsed=rows[:, 3] if hours is None else np.full(len(rows), hours), elapsed_unit="hour",
    )  # fmt: skip


def exact(log, discount):
    """The target's value: paths as likely under it, each reward discounted by the time until it."""
    weight, value = 0.0, 0.0
    for first, end in zip(log.starts[:-1], log.starts[1:], strict=True):
        state, action = log.observation["observation"][first:end, 0], np.asarray(log.action[first:end])
        likely = np.prod(TARGET[state, action] / 0.5)
        until = np.append(0.0, np.cumsum(np.asarray(log.elapsed, float)[first : end - 1]))
        weight, value = weight + likely, value + likely * (discount**until @ np.asarray(log.reward, float)[first:end])
    return value / weight


@pytest.mark.parametrize("ends", [{}, {"longest": 2, "cut": True}], ids=["terminated", "truncated"])
def test_every_estimate_is_exact(ends):
    """Truncated paths have two steps, so that state 2 is the last one; a time limit ends all of them."""
    log = world(**ends)
    found = tl.estimate(Table(), log, ALL, sample=True, discount=0.5, model="tabular", replicates=10)
    likely = exact(log, 0.5)
    assert {row.name: row.estimate for row in found} == pytest.approx(dict.fromkeys(ALL, likely), rel=1e-6)
    assert abs(exact(log, 1.0) - likely) > 0.5


def evidence(log, discount):
    return evidence_of(
        as_policy(Table(), log.spec), log, sample=True, discount=discount, model="tabular", cloning=False, tests=False
    ).policy


@pytest.mark.parametrize("ends", [{}, {"longest": 2, "cut": True}], ids=["terminated", "truncated"])
def test_visits_terminate_once_whatever_the_times(ends):
    """Each discounted visit less the discounted next one: what is left of an episode is 1."""
    assert occupancy_support(evidence(world(**ends), 0.5)).mean_weight == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("ends", [{}, {"longest": 2, "cut": True}], ids=["terminated", "truncated"])
def test_one_hour_everywhere_is_judged_to_the_bit_as_steps(ends):
    timed = world(hours=1.0, **ends)
    plain = replace(timed, elapsed=None, elapsed_unit=None)
    one, two = (
        tl.estimate(Table(), log, ALL, sample=True, discount=0.9, model="tabular", replicates=50)
        for log in (timed, plain)
    )
    assert [(row.estimate, row.low, row.high) for row in one] == [(row.estimate, row.low, row.high) for row in two]
    undiscounted = [evidence(log, 1.0) for log in (world(**ends), replace(world(**ends), elapsed=None))]
    assert (undiscounted[0].model == undiscounted[1].model).all()
    assert (undiscounted[0].occupancy == undiscounted[1].occupancy).all()


def hasty():
    """Action 0 earns 1 after ten hours, action 1 earns 0.9 at once."""
    first = np.arange(400) % 2
    hours = np.stack([np.where(first == 0, 10.0, 0.0), np.zeros(400)], 1).ravel()
    return tl.Log.from_arrays(
        observation=np.stack([np.zeros(400, int), 1 + first], 1).ravel(), action=np.repeat(first, 2), actions=2,
        reward=np.stack([np.zeros(400), np.where(first == 0, 1.0, 0.9)], 1).ravel(),
        episode=np.repeat(np.arange(400), 2), terminated=np.tile([False, True], 400),
        propensity=np.tile([0.5, 1.0], 400), elapsed=hours,
    )  # fmt: skip


def test_a_rule_decides_by_when_rewards_come():
    for discount, best in ((1.0, 0), (0.5, 1)):
        for model in ("tabular", "none"):
            rule = tl.simple_rules(hasty(), discount=discount, model=model)["best single action"]
            assert rule.sentence.split()[1] == str(best)


def test_the_scores_of_a_rule_by_hand(monkeypatch):
    """The table knows the return to come, less the mean of its step; the score discounts it by the time until then."""
    scores = []
    monkeypatch.setattr(rules, "best_trees", lambda leaves, spec, found, folds: scores.append(found) or (0, 0))
    tl.simple_rules(hasty(), discount=0.5, model="none")
    slow, quick = 0.5**10, 0.9
    mean, last = (slow + quick) / 2, (1.0 + quick) / 2
    wanted = [slow - mean, (1.0 - last) * 0.5**10, quick - mean, quick - last]
    assert scores[0][np.arange(4), [0, 0, 1, 1]] == pytest.approx(wanted)


def test_returns_by_hand():
    """Quarter per hour: half an hour is 1/2, the next two hours 1/16 of that. Rewards 8, 16 and 64; then 32 alone."""
    log = tl.Log.from_arrays(
        observation=np.zeros((4, 1), np.float32), action=[0, 1, 0, 1], reward=[8.0, 16.0, 64.0, 32.0],
        episode=[0, 0, 0, 1], terminated=[0, 0, 1, 1], elapsed=[0.5, 2.0, np.nan, np.nan],
    )  # fmt: skip
    assert log.discounts(0.25) == pytest.approx([1.0, 1 / 2, 1 / 32, 1.0])
    assert log.step_discounts(0.25)[:2] == pytest.approx([1 / 2, 1 / 16])
    one = Evidence(
        log.starts, np.asarray(log.reward, float), np.ones(4), np.ones(4), discount=0.25, elapsed=log.spacing
    )
    assert discounts(one) == pytest.approx(log.discounts(0.25))
    assert returns(one) == pytest.approx([8.0 + 8.0 + 2.0, 32.0])
    assert extreme_returns(one) == pytest.approx([18.0, 20.0, 64.0])  # to go: 18, 20 and 64; 32
    assert returns_to_go(one.reward, one.starts, one.step_discount) == pytest.approx([18.0, 20.0, 64.0, 32.0])
    # an episode's discounts sum up to 1 + 1/2 + 1/32 at most, and to 1 at least
    assert possible_returns(one) == pytest.approx((8.0, 64.0 * (1 + 1 / 2 + 1 / 32)))
    part = one.of_rows(np.asarray([True, True, False, False]), np.asarray([2]))
    assert part.elapsed == pytest.approx([0.5, 2.0])


def test_a_mean_reward_has_no_known_value_where_times_differ():
    log = world(longest=2, cut=True)
    assert centred_rewards(log, 0.5)[0] is log
    assert centred_rewards(log, 1.0)[1].any()  # undiscounted, the number of rewards to come is known
    assert centred_rewards(world(longest=2, cut=True, hours=1.0), 0.5)[1].any()


def test_features_that_name_the_state_give_the_ratios_of_the_table():
    log = world()
    states, folds, target = number_observations(log), episode_folds(log, FOLDS, 0), chances(log, TARGET)
    table = tabular_ratios(log, states, folds, [target] * FOLDS, np.asarray(log.propensity), 0.5)
    step, indicators = target.logged / 0.5, np.eye(states.size)
    every = np.arange(len(log.episode_ids))
    alpha = solved_weights(log, lambda stored: indicators[states.stored[stored]], step, every, 0.5, ridge=0.0)
    here = states.stored[log.position]
    assert (1.0 + alpha)[here] * step == pytest.approx(table, rel=1e-6)


@pytest.mark.full
def test_networks_are_near_the_table():
    log = world(copies=40)
    folds, target = episode_folds(log, 2, 0), chances(log, TARGET)
    table = tabular_values(log, number_observations(log), folds, [target] * 2, 0.5)
    (found,) = network_values(log, folds, [[target] * 2], 0.5)
    assert found.all_actions == pytest.approx(table.all_actions, abs=0.05)


def test_a_verdict_says_what_the_discount_is_per():
    quick = {"sample": True, "ledger": False, "progress": False, "learnt_from": "other data", "model": "tabular"}
    log = world(copies=40)
    verdict = tl.judge(Table(), log, discount=0.5, **quick)
    assert "the sum of rewards discounted by 0.5 per hour up to its recorded end" in verdict.estimand
    assert verdict.context["discount_unit"] == "hour"
    assert verdict.behavior_policy.estimate == pytest.approx(np.mean(returns(evidence(log, 0.5))))
    plain = tl.judge(Table(), replace(log, elapsed_unit=None), discount=0.5, **quick)
    assert "discounted by 0.5 per unit of elapsed time" in plain.estimand
    assert "discount_unit" not in tl.judge(Table(), replace(log, elapsed=None), discount=0.5, **quick).context
