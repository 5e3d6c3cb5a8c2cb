from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.ope.made import evidence_of, random_log
from tidelog.ope import estimators
from tidelog.ope.estimators import (
    ips,
    logged_return,
    per_decision_is,
    returns,
    sequential_dr,
    snips,
    trajectory_is,
    weighted_dr,
    weighted_per_decision_is,
    wis,
)

LENGTHS = [3, 1, 2, 5, 4, 1, 1, 2, 3, 4] * 3


def by_hand():
    """Three episodes, discount 1/2.

    | episode | w         | rho     | r       | Q       | V       |
    | A       | 2, 1/2, 2 | 2, 1, 2 | 1, 2, 3 | 1, 1, 2 | 1, 2, 1 |
    | B       | 1/2       | 1/2     | 4       | 2       | 3       |
    | C       | 1, 2      | 1, 2    | 0, 1    | 1, 0    | 2, 1    |
    """
    return evidence_of(
        [3, 1, 2],
        reward=[1, 2, 3, 4, 0, 1],
        target=[0.5, 0.25, 0.5, 0.25, 0.5, 1.0],
        behaviour=[0.25, 0.5, 0.25, 0.5, 0.5, 0.5],
        model=[1, 1, 2, 2, 1, 0],
        model_target=[1, 2, 1, 3, 2, 1],
        discount=0.5,
    )


def test_returns_by_hand():
    # A: 1 + 2 / 2 + 3 / 4; B: 4; C: 0 + 1 / 2
    assert returns(by_hand()).tolist() == [2.75, 4.0, 0.5]
    assert logged_return(by_hand()).estimate == pytest.approx(7.25 / 3)


def test_trajectory_weights_by_hand():
    # A: 2 * 2.75 = 5.5; B: 4 / 2 = 2; C: 2 * 0.5 = 1; weights 2 + 1/2 + 2
    assert trajectory_is(by_hand()).estimate == pytest.approx(8.5 / 3)
    assert wis(by_hand()).estimate == pytest.approx(8.5 / 4.5)


def test_per_decision_by_hand():
    # A: 2 * 1 + 1/2 * 1 * 2 + 1/4 * 2 * 3 = 4.5; B: 1/2 * 4 = 2; C: 1 * 0 + 1/2 * 2 * 1 = 1
    assert per_decision_is(by_hand()).contributions == pytest.approx([4.5, 2.0, 1.0])


def test_weighted_per_decision_by_hand():
    # step 0: (2 * 1 + 1/2 * 4 + 1 * 0) / (2 + 1/2 + 1) = 4 / 3.5
    # step 1: 1/2 (1 * 2 + 2 * 1) / (1 + 1/2 + 2) = 2 / 3.5: B ended, its weight of 1/2 is still there
    # step 2: 1/4 (2 * 3) / (2 + 1/2 + 2) = 1.5 / 4.5
    right = 4 / 3.5 + 2 / 3.5 + 1.5 / 4.5
    forgetting_the_ended = 4 / 3.5 + 2 / 3.0 + 1.5 / 2.0
    assert weighted_per_decision_is(by_hand()).estimate == pytest.approx(right)
    assert abs(right - forgetting_the_ended) > 0.5


def test_doubly_robust_by_hand():
    # A: [2 (1 - 1) + 1] + 1/2 [1 (2 - 1) + 2 * 2] + 1/4 [2 (3 - 2) + 1 * 1] = 1 + 2.5 + 0.75
    # B: 1/2 (4 - 2) + 3 = 4;   C: [1 (0 - 1) + 2] + 1/2 [2 (1 - 0) + 1 * 1] = 1 + 1.5
    assert sequential_dr(by_hand()).contributions == pytest.approx([4.25, 4.0, 2.5])


def test_weighted_doubly_robust_by_hand():
    # step 0: residuals (2 * 0 + 1/2 * 2 + 1 * -1) / 3.5 = 0;  values (1 + 3 + 2) / 3 = 2
    # step 1: 1/2 (1 * 1 + 2 * 1) / (1 + 1/2 + 2) = 1.5 / 3.5;  1/2 (2 * 2 + 1 * 1) / (2 + 1/2 + 1) = 2.5 / 3.5
    # step 2: 1/4 (2 * 1) / (2 + 1/2 + 2) = 0.5 / 4.5;          1/4 (1 * 1) / (1 + 1/2 + 2) = 0.25 / 3.5
    right = 0 + 2 + 1.5 / 3.5 + 2.5 / 3.5 + 0.5 / 4.5 + 0.25 / 3.5
    # without what ended: step 1 residuals over 3, values over 3; step 2 over 2 and over 1
    forgetting_the_ended = 0 + 2 + 1.5 / 3 + 2.5 / 3 + 0.5 / 2 + 0.25 / 1
    assert weighted_dr(by_hand()).estimate == pytest.approx(right)
    assert abs(right - forgetting_the_ended) > 0.3


def test_the_behaviors_own_policy_is_worth_what_it_earned():
    evidence = random_log(LENGTHS, discount=0.9)
    same = replace(evidence, target=evidence.behaviour)
    mean = logged_return(evidence).estimate
    for estimator in (trajectory_is, wis, per_decision_is, weighted_per_decision_is):
        assert estimator(same).estimate == pytest.approx(mean, abs=1e-12), estimator


def test_at_horizon_1_each_is_its_bandit_estimator():
    evidence = random_log([1] * 50)
    pairs = [
        (trajectory_is, ips),
        (per_decision_is, ips),
        (wis, snips),
        (weighted_per_decision_is, snips),
    ]
    for one, other in pairs:
        assert one(evidence).estimate == pytest.approx(other(evidence).estimate, abs=1e-12)
        assert one(evidence).contributions == pytest.approx(other(evidence).contributions, abs=1e-11)


def test_without_a_model_doubly_robust_is_per_decision_importance_sampling():
    nothing = np.zeros(sum(LENGTHS))
    evidence = random_log(LENGTHS, discount=0.9, model=nothing, model_target=nothing)
    for robust, plain in ((sequential_dr, per_decision_is), (weighted_dr, weighted_per_decision_is)):
        assert robust(evidence).estimate == pytest.approx(plain(evidence).estimate, abs=1e-12)
        assert robust(evidence).contributions == pytest.approx(plain(evidence).contributions, abs=1e-11)


def test_a_model_that_knows_what_follows_is_all_that_doubly_robust_needs():
    # Q_t = r_t + gamma V_t+1 along each episode: corrections cancel and V_0 remains, whatever the weights are.
    evidence = random_log([3] * 20, discount=0.9)
    value = evidence.model_target
    following = np.append(value[1:], 0.0) * (np.arange(60) % 3 < 2)
    known = replace(evidence, model=evidence.reward + 0.9 * following)
    for robust in (sequential_dr, weighted_dr):
        assert robust(known).estimate == pytest.approx(value[::3].mean(), abs=1e-12)


def test_a_constant_reward_moves_weighted_estimates_by_itself_and_plain_ones_otherwise():
    evidence, c, length = random_log([4] * 30), -7.0, 4
    moved = replace(evidence, reward=evidence.reward + c)
    for name in (wis, weighted_per_decision_is, weighted_dr):
        before, after = name(evidence), name(moved)
        assert after.estimate - before.estimate == pytest.approx(c * length, abs=1e-10), name
        difference = [r.minus(logged_return(e)) for r, e in ((before, evidence), (after, moved))]
        assert difference[0].estimate == pytest.approx(difference[1].estimate, abs=1e-10), name
        assert difference[0].contributions == pytest.approx(difference[1].contributions, abs=1e-9), name
    assert abs(trajectory_is(moved).estimate - trajectory_is(evidence).estimate - c * length) > 1.0


# Two states, two actions, at most three decisions; state 1 ends the episode after action 1.
POLICY = np.array([[0.75, 0.25], [0.5, 0.5]])
BEHAVIOR = np.array([[0.5, 0.5], [0.25, 0.75]])
NEXT = np.array([[[0.75, 0.25], [0.25, 0.75]], [[0.5, 0.5], [0.0, 1.0]]])  # [state, action, next state]
REWARD = np.array([[1.0, -2.0], [0.5, 3.0]])
GAMMA, HORIZON = 0.9, 3


def exact_value():
    value = np.zeros(2)
    for _ in range(HORIZON):
        q = REWARD + GAMMA * (NEXT @ value)
        q[1, 1] = REWARD[1, 1]
        value = (POLICY * q).sum(1)
    return value.mean()  # both states are equally likely at first


def every_episode():
    """All episodes that can be, and how likely the behaviour policy makes each."""
    found, chances = [], []
    for states, actions in product(product((0, 1), repeat=HORIZON), product((0, 1), repeat=HORIZON)):
        ends = [t for t in range(HORIZON) if (states[t], actions[t]) == (1, 1)]
        length = min([*ends, HORIZON - 1]) + 1
        episode = tuple(zip(states[:length], actions[:length], strict=True))
        if episode in found:
            continue
        chance = 0.5 * np.prod([BEHAVIOR[pair] for pair in episode])
        chance *= np.prod([NEXT[(*episode[t], episode[t + 1][0])] for t in range(length - 1)])
        found.append(episode)
        chances.append(chance)
    return found, np.array(chances)


def enumerated():
    episodes, chances = every_episode()
    model = np.random.default_rng(0).normal(size=(HORIZON, 2, 2))  # any model will do
    steps = [(t, *pair) for episode in episodes for t, pair in enumerate(episode)]
    time, state, action = np.array(steps).T
    evidence = evidence_of(
        [len(episode) for episode in episodes],
        reward=REWARD[state, action],
        target=POLICY[state, action],
        behaviour=BEHAVIOR[state, action],
        model=model[time, state, action],
        model_target=(POLICY[state] * model[time, state]).sum(1),
        discount=GAMMA,
    )
    return evidence, chances


@pytest.mark.parametrize("estimator", [trajectory_is, per_decision_is, sequential_dr])
def test_plain_estimates_are_right_on_average_over_everything_that_can_happen(estimator):
    evidence, chances = enumerated()
    assert chances.sum() == pytest.approx(1.0, abs=1e-15)
    assert chances @ estimator(evidence).contributions == pytest.approx(exact_value(), abs=1e-12)


@pytest.mark.parametrize("estimator", [wis, weighted_per_decision_is, weighted_dr])
def test_weighted_estimates_are_right_on_a_log_of_everything_in_proportion(estimator):
    # Exact only because the weights of ended episodes are carried forward: the mean weight is 1 at every step.
    evidence, chances = enumerated()
    ratios = estimator(evidence)
    in_proportion = type(ratios)(ratios.numerators * chances[:, None], ratios.denominators * chances[:, None])
    assert in_proportion.estimate == pytest.approx(exact_value(), abs=1e-12)


def test_blocks_change_nothing(monkeypatch):
    evidence = random_log(LENGTHS, discount=0.9)
    six = (trajectory_is, wis, per_decision_is, weighted_per_decision_is, sequential_dr, weighted_dr)
    whole = [estimator(evidence).contributions for estimator in six]
    for block in (1, 12):
        monkeypatch.setattr(estimators, "BLOCK", block)
        for estimator, contributions in zip(six, whole, strict=True):
            assert estimator(evidence).contributions == pytest.approx(contributions, abs=1e-11), estimator


@pytest.mark.parametrize("block", [1, 30, 1 << 20])
def test_too_many_cells_are_added_up_over_neighbouring_episodes(monkeypatch, block):
    lengths = [1 + i % 3 for i in range(1000)]
    evidence = random_log(lengths)
    whole = weighted_dr(evidence)
    monkeypatch.setattr(estimators, "CELLS", 1200)
    monkeypatch.setattr(estimators, "BLOCK", block)
    fewer = weighted_dr(evidence)
    assert len(fewer) == 400  # 1200 cells / 3 steps
    assert fewer.episodes == 1000
    assert fewer.estimate == pytest.approx(whole.estimate, abs=1e-11)
    assert fewer.contributions == pytest.approx(whole.grouped(400).contributions, abs=1e-10)
    assert fewer.minus(logged_return(evidence)).estimate == pytest.approx(
        whole.minus(logged_return(evidence)).estimate, abs=1e-11
    )


@pytest.mark.parametrize("likelier", [3.0, 1 / 3])
def test_thousands_of_steps_neither_overflow_nor_vanish(likelier):
    steps = 2000
    reward = np.concatenate([np.ones(steps), np.full(steps, 2.0)])
    target = np.concatenate(
        [np.full(steps, 0.3 * likelier), np.full(steps, 0.3)]
    )  # weights of 3^2000 or 3^-2000, and 1
    evidence = evidence_of([steps, steps], reward=reward, target=target, behaviour=np.full(2 * steps, 0.3))
    assert wis(evidence).estimate == (steps if likelier > 1 else 2 * steps)
    assert np.isfinite(weighted_per_decision_is(evidence).estimate)
    assert np.isfinite([trajectory_is(evidence).estimate, per_decision_is(evidence).contributions.std()]).all()
