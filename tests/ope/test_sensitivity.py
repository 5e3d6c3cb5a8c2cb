from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from tests.ope.made import evidence_of, random_log
from tidelog.errors import ConfigError, SpecError
from tidelog.ope import estimators
from tidelog.ope.assumptions import factor_bounds, with_weight_factors, worst_ratios
from tidelog.ope.estimators import logged_return, weighted_dr, weighted_per_decision_is, wis

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


def least(evidence, estimator, odds, cells=None):
    """The smallest sum over episodes that factors reach whose weights add up to those of the log, in all and by cell.

    By linear programming; `cells` [E] numbers the cases and actions.
    """
    low, high = factor_bounds(evidence, odds)
    still, plain = estimator(with_weight_factors(evidence, np.zeros(len(low)))), estimator(evidence)
    totals = plain.denominators.sum(0)
    residual = ((plain.numerators - still.numerators) / totals).sum(1)
    weight = ((plain.denominators - still.denominators) / totals).sum(1)
    cells = np.zeros(len(low), int) if cells is None else cells
    within = [np.where(cells == cell, weight, 0.0) for cell in np.unique(cells)]
    found = linprog(residual, A_eq=within, b_eq=np.sum(within, axis=1), bounds=np.stack([low, high], axis=1))
    return found.fun + (still.numerators.sum(0) / totals).sum()


@pytest.mark.parametrize("estimator", [wis, weighted_per_decision_is, weighted_dr, against_behavior])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 4))])
def test_the_threshold_is_the_best_of_its_kind(estimator, seed):
    evidence = random_log(LENGTHS, seed, discount=0.9)
    alone = worst_ratios(replace(evidence, model=np.zeros_like(evidence.model)), estimator, 1.5).estimate
    if estimator in (wis, weighted_per_decision_is):
        assert alone == pytest.approx(least(evidence, estimator, 1.5))
    assert worst_ratios(evidence, estimator, 1.5).estimate >= least(evidence, estimator, 1.5) - 1e-9


def test_a_rare_reward_is_lowered_once():
    # 30 of 100 earn 1 under propensities of 1/2; factors are 5/6 to 5/4: at least 5/6 of it. Weights that need not keep
    # their sum give .3 * 5/6 / (.3 * 5/6 + .7 * 5/4) = .222
    reward = np.repeat([1.0, 0.0], [30, 70])
    for model in (0.0, 0.3, np.linspace(0.1, 0.5, 100)):
        evidence = evidence_of([1] * 100, reward=reward, target=[1] * 100, behaviour=[0.5] * 100)
        evidence = replace(evidence, model=np.full(100, model), model_target=np.full(100, 0.3))
        assert worst_ratios(evidence, wis, 1.5).estimate == pytest.approx(0.25)
        middle = 0.3 - float(np.mean(evidence.model))  # what the model's error adds, with or without a cause
        assert worst_ratios(evidence, weighted_dr, 1.5).estimate == pytest.approx(0.25 + middle)


def test_no_cause_that_averages_to_the_propensities_is_worse():
    generator, cells = np.random.default_rng(3), np.repeat([0, 1, 2], 40)
    chance = np.array([0.1, 0.4, 0.2])[cells]
    steps = {"reward": generator.random(120) < chance, "behaviour": np.array([0.5, 0.3, 0.8])[cells]}
    evidence = evidence_of([1] * 120, target=[1] * 120, model=chance, model_target=chance, **steps)
    bound = worst_ratios(evidence, weighted_dr, 1.5).estimate
    assert least(evidence, weighted_dr, 1.5) < bound < least(evidence, weighted_dr, 1.5, cells) + 1e-9
    assert bound == pytest.approx(least(evidence, weighted_dr, 1.5, cells), abs=0.01)


def test_a_policy_without_weight_stays_nan():
    evidence = random_log([2] * 5)
    nowhere = replace(evidence, target=np.zeros(10))
    assert np.isnan(worst_ratios(nowhere, wis, 1.5).estimate)


def test_wrong_odds_and_groups_are_refused(monkeypatch):
    evidence = random_log([1 + i % 3 for i in range(500)])
    with pytest.raises(ConfigError, match=r"odds = 0\.5: expected a finite number of at least 1"):
        worst_ratios(evidence, wis, 0.5)
    monkeypatch.setattr(estimators, "CELLS", 300)
    with pytest.raises(SpecError, match=r"found 100 groups: expected one row per episode\. fix: judge fewer episodes"):
        worst_ratios(evidence, weighted_dr, 1.5)
