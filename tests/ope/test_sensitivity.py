from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.ope.made import evidence_of, random_log
from tidelog.errors import ConfigError, SpecError
from tidelog.ope import estimators
from tidelog.ope.assumptions import factor_bounds, with_weight_factors, worst_factors
from tidelog.ope.estimators import (
    ips,
    logged_return,
    sequential_dr,
    snips,
    weighted_dr,
    weighted_per_decision_is,
    wis,
)

LENGTHS = [2, 1, 3, 1, 2, 3, 2, 1]


def against_behavior(evidence):
    return weighted_dr(evidence).minus(logged_return(evidence))


def test_bounds_by_hand():
    # odds 2 at mu 1/2: 1 / mu' in [1 + 1/2, 1 + 2], so mu / mu' in [0.75, 1.5]; at mu 0.2: [0.6, 1.8]; at mu 1 nothing
    evidence = evidence_of([1, 2, 1], reward=[0] * 4, target=[1] * 4, behaviour=[0.5, 0.5, 0.2, 1.0])
    low, high = factor_bounds(evidence, 2.0)
    assert low == pytest.approx([0.75, 0.6, 1.0])
    assert high == pytest.approx([1.5, 1.8, 1.0])
    low, high = factor_bounds(evidence, 4.0, densities=True)
    assert (low == 0.25).all()
    assert (high == 4.0).all()


def test_a_factor_multiplies_every_weight_of_its_episode():
    evidence, factors = random_log(LENGTHS), np.arange(1.0, 9.0)
    ratios = weighted_per_decision_is(evidence), weighted_per_decision_is(with_weight_factors(evidence, factors))
    scale = ratios[1].denominators / ratios[0].denominators / factors[:, None]  # one number a step
    assert scale == pytest.approx(np.broadcast_to(scale[0], scale.shape))
    assert evidence.target[0] != with_weight_factors(evidence, 2 * factors).target[0]  # the given one is unchanged


@pytest.mark.parametrize("estimator", [wis, sequential_dr, weighted_per_decision_is, weighted_dr, against_behavior])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 4))])
def test_no_choice_of_factors_is_worse(estimator, seed):
    evidence = random_log(LENGTHS, seed, discount=0.9)
    low, high = factor_bounds(evidence, 1.5)
    every = [
        estimator(with_weight_factors(evidence, np.array(choice))).estimate
        for choice in product(*zip(low, high, strict=True))
    ]
    found = estimator(with_weight_factors(evidence, worst_factors(evidence, estimator, 1.5))).estimate
    assert found == pytest.approx(min(every), abs=1e-10)


def test_worst_of_bandits_is_between_the_bounds_of_brute_force():
    evidence = random_log([1] * 8)
    for estimator in (ips, snips, sequential_dr):
        low, high = factor_bounds(evidence, 2.0)
        every = [
            estimator(with_weight_factors(evidence, np.array(c))).estimate
            for c in product(*zip(low, high, strict=True))
        ]
        found = estimator(with_weight_factors(evidence, worst_factors(evidence, estimator, 2.0))).estimate
        assert found == pytest.approx(min(every), abs=1e-12)


def test_odds_of_1_change_nothing_and_more_odds_are_worse():
    evidence = random_log([2] * 50)
    assert worst_factors(evidence, against_behavior, 1.0) == pytest.approx(np.ones(50))
    found = [
        against_behavior(with_weight_factors(evidence, worst_factors(evidence, against_behavior, odds))).estimate
        for odds in (1.0, 1.5, 3.0)
    ]
    assert found[0] > found[1] > found[2]
    assert found[0] == pytest.approx(against_behavior(evidence).estimate)


def test_a_policy_without_weight_stays_nan():
    evidence = random_log([2] * 5)
    nowhere = replace(evidence, target=np.zeros(10))
    assert np.isnan(wis(with_weight_factors(nowhere, worst_factors(nowhere, wis, 1.5))).estimate)


def test_wrong_odds_and_groups_are_refused(monkeypatch):
    evidence = random_log([1 + i % 3 for i in range(500)])
    with pytest.raises(ConfigError, match=r"odds = 0\.5: expected a finite number of at least 1"):
        worst_factors(evidence, wis, 0.5)
    monkeypatch.setattr(estimators, "CELLS", 300)
    with pytest.raises(SpecError, match=r"found 100 groups: expected one row per episode\. fix: judge fewer episodes"):
        worst_factors(evidence, weighted_dr, 1.5)
