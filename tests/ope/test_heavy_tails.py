"""Tails of returns that a log of its size cannot show, and what a difference that rests on them is worth."""

import numpy as np
import pytest
from scipy.stats import norm

from tests.ope.cases import bandit, outcome, said
from tidelog._text import three_digits
from tidelog.ope.assumptions import adverse_tails, tail_shape
from tidelog.ope.decide import Limits
from tidelog.ope.evidence import Evidence

LEVELS = (np.arange(300) + 0.5) / 300  # of the quantiles that stand for a sample
NORMAL = norm.ppf(LEVELS)
HEAVY = np.exp(3.0 * NORMAL)


def left(returns, sure):
    """Every second episode took action 0, with these returns; the policy takes action 1, which earns a sure amount."""
    action = np.arange(600) % 2
    reward = np.full(600, sure) + 0.1 * np.resize(NORMAL, 600)
    reward[action == 0] = np.random.default_rng(0).permutation(returns)
    means = np.asarray([returns.mean(), sure])
    return bandit(
        count=600, chance=1.0, reward=reward, model=means[action], model_target=np.full(600, sure),
        model_all=np.tile(means, (600, 1)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "heavy"),
    [
        (NORMAL, False),
        (-np.log(1.0 - LEVELS), False),  # exponential
        (np.exp(NORMAL), False),
        ((LEVELS > 0.95).astype(float), False),  # clicks
        (np.where(LEVELS > 0.95, 1.0 + 1e-9 * NORMAL, 0.0), False),  # the same after sums in another order
        (HEAVY, True),
        ((1.0 - LEVELS) ** -1.0, True),  # Pareto without a mean
        (np.where(LEVELS > 0.8, np.exp(4.0 * NORMAL), 0.0), True),  # rare and heavy
    ],
)
def test_a_tail_is_heavy_where_a_mean_tells_little_and_not_where_outcomes_are_rare(values, heavy):
    away = values - np.median(values)
    assert (tail_shape(away) > 0.6) == heavy
    assert tail_shape(1e4 * away) == pytest.approx(tail_shape(away))  # of any unit


def test_a_pareto_tail_has_its_index():
    values = (1.0 - (np.arange(20_000) + 0.5) / 20_000) ** -0.8
    assert tail_shape(values - np.median(values)) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(("better", "sign", "heavy"), [(True, 1, 1), (False, -1, 1), (True, -1, 0), (False, 1, 0)])
def test_only_the_tail_that_could_undo_the_difference_counts(better, sign, heavy):
    """Leaving rare gains makes a policy look better than it is, leaving rare losses worse."""
    tails = adverse_tails(left(sign * HEAVY, sign * 200.0), better=better)
    assert len(tails) == heavy
    for tail in tails:
        assert tail.left
        assert tail.high == better
        assert tail.extreme == sign * HEAVY[-1]
        assert tail.missing == np.inf


def test_a_difference_that_rests_on_leaving_a_heavy_tail_is_none_unless_a_bound_is_given():
    evidence = left(HEAVY, 300.0)
    quick = Limits(replicates=1000, earning_episodes=0.0, pareto_k=9.0)
    found = outcome(evidence, quick)
    assert found.decision == "no difference shown"
    assert found.difference.low > 0
    (finding,) = said(found)
    assert finding.rule == "heavy_tail"
    assert "that the policy leaves and whose returns are heavy-tailed above (Pareto k = " in finding.sentence
    assert f"the highest, {three_digits(float(HEAVY[-1]))}, has " in finding.sentence
    assert "Limits(highest_return=...)" in finding.advice
    known = Limits(replicates=1000, earning_episodes=0.0, pareto_k=9.0, highest_return=float(HEAVY[-1]))
    assert outcome(evidence, known).decision == "better"
    # 3 outcomes of 600 at 100 times the highest would be worth more than the difference
    wide = Limits(replicates=1000, earning_episodes=0.0, pareto_k=9.0, highest_return=100.0 * float(HEAVY[-1]))
    found = outcome(evidence, wide)
    assert found.decision == "no difference shown"
    assert "may lack" in said(found)[0].sentence
    assert "highest_return" not in said(found)[0].advice


def test_what_is_missing_at_most_follows_from_the_bound():
    (tail,) = adverse_tails(left(HEAVY, 150.0), better=True, highest=float(HEAVY[-1]) + 100.0)
    assert tail.missing == pytest.approx(
        3.0 / 600 * 100.0
    )  # 3 of 600 episodes, each 100 more, of weight 0 instead of 1


def test_clusters_count_once():
    """A hundred equal copies of one outcome are one cluster, and no tail."""
    evidence = left(np.where(LEVELS > 0.98, 500.0, NORMAL), 20.0)
    assert adverse_tails(evidence, better=True) == []
    heavy = left(HEAVY, 150.0)
    together = bandit(
        count=600, chance=1.0, reward=heavy.reward, model=heavy.model, model_target=heavy.model_target,
        model_all=heavy.model_all, clusters=np.arange(600) // 60,
    )  # fmt: skip
    assert adverse_tails(together, better=True) == []  # ten clusters have no tail


def test_weights_with_a_heavy_tail_are_none_of_returns():
    """Bounded returns have no tail, however unequal their weights are: that is for the checks of support."""
    generator = np.random.default_rng(0)
    weights = np.exp(1.5 * generator.permutation(np.repeat(NORMAL, 2)))
    reward = (generator.random(600) < 0.7).astype(float)
    evidence = Evidence(np.arange(601), reward, np.minimum(0.01 * weights, 1.0), np.full(600, 0.01))
    assert adverse_tails(evidence, better=True) == adverse_tails(evidence, better=False) == []
    far = Evidence(np.arange(601), reward - np.resize(HEAVY, 600), evidence.target, evidence.behaviour)
    assert adverse_tails(far, better=True)
