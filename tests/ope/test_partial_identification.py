"""The bound on what a log cannot show: by hand, at its ends, and as a limit of the estimators that it is made of."""

from dataclasses import replace

import numpy as np
import pytest

from tests.ope.cases import QUICK, bandit, episodes, outcome, rules, said
from tests.ope.made import evidence_of
from tidelog.ope.assumptions import (
    excess_unshown,
    extreme_returns,
    extreme_values,
    unshown_share,
)
from tidelog.ope.decide import upper_limit
from tidelog.ope.estimators import per_decision_is, sequential_dr


def test_one_step_by_hand():
    """Two actions at even odds, the target takes the second; the second is never shown.

    Returns 1, 3: the worst is 1. Rows: w = 0 and 2. Bound: mean of 1 + w (r - 1) = (1 + 1 + 2 * 2) / 2 = 3.
    """
    evidence = evidence_of(
        [1, 1], reward=[1, 3], target=[0, 1], behaviour=[0.5, 0.5], model=[9, 9], model_target=[9, 9],
        target_all=[[0, 1], [0, 1]], behaviour_all=[[0.5, 0.5]] * 2, model_all=[[9, 9], [9, 9]],
    )  # fmt: skip
    evidence = replace(evidence, action=np.array([0, 1]), supported=np.array([[True, False]] * 2))
    assert unshown_share(evidence) == 1.0
    assert sequential_dr(extreme_values(evidence)).estimate == pytest.approx(3.0)
    assert sequential_dr(extreme_values(evidence, best=True)).estimate == pytest.approx((3 + 3) / 2)
    assert sequential_dr(extreme_values(evidence, known=-1.0)).estimate == pytest.approx((-1 + (-1 + 2 * 4)) / 2)


def test_nothing_shown_is_importance_sampling_of_what_exceeds_the_worst():
    evidence = bandit(0.5)
    worst = evidence.reward.min()
    bound = sequential_dr(extreme_values(replace(evidence, supported=None))).estimate
    lifted = per_decision_is(replace(evidence, reward=evidence.reward - worst)).estimate + worst
    assert bound == pytest.approx(lifted)


def test_everything_shown_changes_nothing():
    evidence = episodes(0.5)
    assert extreme_values(evidence) is evidence
    assert excess_unshown(evidence) == unshown_share(evidence) == 0.0


def test_the_extreme_at_a_step_is_that_of_the_step_or_a_later_one():
    evidence = evidence_of([3, 1], reward=[1, 5, -2, -1], target=np.ones(4), behaviour=np.ones(4), discount=0.5)
    # returns to go: 1 + 0.5 * 4 = 3, 5 - 1 = 4, -2; and -1
    assert extreme_returns(evidence).tolist() == [-2, -2, -2]
    assert extreme_returns(evidence, best=True).tolist() == [4, 4, -2]


def test_better_falls_with_its_bound_and_says_so():
    missing = np.arange(600) % 2 == 0
    action = np.where(missing, 0, np.arange(600) // 2 % 2)
    shown = np.stack([np.ones(600, bool), ~missing], axis=1)
    once = bandit(0.5, action=action, supported=shown, behaviour=np.where(missing, 1.0, 0.5))
    found = outcome(once, replace(QUICK, unshown_share=1.0, mean_weight_errors=1e9))
    assert (found.decision, rules(found)) == ("no difference shown", ["unshown"])
    assert "does not show 40.0% of the policy's decisions" in said(found)[0].sentence
    assert found.difference == found.bound
    assert found.bound.low < 0 < found.estimates["wdr"].interval.low < found.bound.high
    few = np.tile([True, True], (600, 1))
    few[:3] = False
    assert outcome(bandit(0.5, supported=few)).decision == "better"


def test_the_limit_on_what_is_not_shown():
    missing = (
        np.arange(600) % 5 == 0
    )  # the behaviour policy's own actions are shown, the other one is not in a fifth of the rows
    action = np.where(missing, 0, np.arange(600) % 2)
    shown = np.stack([np.ones(600, bool), ~missing], axis=1)
    evidence = bandit(5.0, chance=0.9, action=action, supported=shown)
    assert excess_unshown(evidence) == pytest.approx(0.18)
    assert "unshown_share" in rules(outcome(evidence))
    rare = shown.copy()
    rare[1:61:5] = False  # of 12 rows no action is shown: the behaviour policy's own neither
    mixed = bandit(5.0, chance=0.9, action=action, supported=rare)
    (told,) = [one.sentence for one in said(outcome(mixed)) if one.rule == "unshown_share"]
    assert (
        f"does not show {unshown_share(mixed):.1%} of the policy's decisions, and 2.0% of the behaviour policy's own"
        in told
    )
    assert "unshown_share" not in rules(outcome(evidence, replace(QUICK, unshown_share=0.21)))


def test_the_share_is_judged_by_what_it_may_be():
    """With 600 episodes a share of 0.18 can be 0.206, with 6,000 hardly more than 0.188; clusters are fewer."""
    assert upper_limit(0.18, 600) == pytest.approx(0.206, abs=5e-4)
    assert upper_limit(0.18, 6_000) == pytest.approx(0.188, abs=5e-4)
    missing = np.arange(600) % 10 == 0
    shown = np.stack([np.ones(600, bool), ~missing], axis=1)
    action = np.where(missing, 0, np.arange(600) % 2)
    evidence = bandit(5.0, chance=0.8, action=action, supported=shown)
    loose = replace(QUICK, unshown_share=0.12, effective_episodes=1.0)
    assert "unshown_share" not in rules(outcome(evidence, loose))
    clustered = outcome(replace(evidence, clusters=np.arange(600) // 10), loose)
    sentence = next(one.sentence for one in said(clustered) if one.rule == "unshown_share")
    assert f"upper 95% limit {upper_limit(0.08, 60):.1%}" in sentence


def test_a_stated_lowest_return_is_used():
    few = np.tile([True, True], (600, 1))
    few[::40] = False
    loose = replace(QUICK, unshown_share=1.0)
    assert outcome(bandit(0.5, supported=few), loose).decision == "better"
    assert outcome(bandit(0.5, supported=few), replace(loose, lowest_return=-1e4)).decision == "no difference shown"


def test_actions_that_are_rated_together_have_the_worst_return_where_a_step_is_not_shown():
    """Continuous actions: one column says whether a step is shown, and only what is not shown has the worst return."""
    evidence = evidence_of([1, 1], reward=[1, 3], target=[1, 1], behaviour=[1, 1], model=[7, 8], model_target=[5, 6])
    worst = extreme_values(replace(evidence, supported=np.array([[True], [False]])))
    assert (worst.model.tolist(), worst.model_target.tolist(), worst.model_all) == ([7, 1], [5, 1], None)
    unknown = extreme_values(replace(evidence, supported=np.array([[True, False]] * 2)), best=True)
    assert (unknown.model.tolist(), unknown.model_target.tolist()) == ([3, 3], [3, 3])
