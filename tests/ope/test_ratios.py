from dataclasses import replace

import numpy as np
import pytest

from tests.ope.made import random_log
from tidelog.errors import SpecError
from tidelog.ope.estimators import ESTIMATORS, Ratios, logged_return, means, weighted_dr, wis

LENGTHS = [3, 1, 2, 5, 4, 1, 1, 2, 3, 4] * 4


def test_an_estimate_is_a_sum_of_ratios_of_sums():
    # (1 + 2) / (1 + 1) + (3 + 1) / (4 + 4) = 2
    ratios = Ratios(np.array([[1.0, 3], [2, 1]]), np.array([[1.0, 4], [1, 4]]))
    assert ratios.estimate == 2.0
    # influence of row 0: (1 - 1.5 * 1) / 2 + (3 - 0.5 * 4) / 8 = -0.125, of row 1: 0.25 - 0.125; 2 + 2 * influence.
    assert ratios.contributions.tolist() == [1.75, 2.25]


def test_contributions_of_a_mean_are_its_values():
    values = np.array([3.0, -1, 2, 8])
    assert means(values).contributions == pytest.approx(values, abs=1e-14)


@pytest.mark.parametrize("name", [name for name, one in ESTIMATORS.items() if not one.uses_occupancy])
def test_contributions_have_the_estimate_as_mean_and_are_derivatives(name):
    evidence = random_log([1] * 40 if ESTIMATORS[name].steps == "one" else LENGTHS, discount=0.9)
    ratios = ESTIMATORS[name].ratios(evidence)
    assert ratios.contributions.mean() == pytest.approx(ratios.estimate, abs=1e-12)
    for row in range(0, len(ratios), 7):
        more = np.ones((len(ratios), 1))
        ends = []
        for step in (-1e-6, 1e-6):  # the row counts a little less, a little more
            more[row] = 1 + step
            ends.append(Ratios(ratios.numerators * more, ratios.denominators * more).estimate)
        derivative = (ratios.contributions[row] - ratios.estimate) / len(ratios)
        more[row] = 1
        assert (ends[1] - ends[0]) / 2e-6 == pytest.approx(derivative, abs=1e-7)


def test_a_difference_is_again_ratios_on_the_same_episodes():
    evidence = random_log(LENGTHS)
    policy, behavior_policy = wis(evidence), logged_return(evidence)
    difference = policy.minus(behavior_policy)
    assert difference.estimate == pytest.approx(policy.estimate - behavior_policy.estimate, abs=1e-12)
    assert difference.contributions == pytest.approx(policy.contributions - behavior_policy.contributions, abs=1e-12)
    assert difference.plus(behavior_policy).estimate == pytest.approx(policy.estimate, abs=1e-12)
    with pytest.raises(SpecError, match="found 40 and 39 episodes: expected estimates on the same episodes"):
        policy.minus(means(np.zeros(39)))


def test_groups_add_up_neighbouring_episodes():
    evidence = random_log(LENGTHS)
    ratios, grouped = weighted_dr(evidence), weighted_dr(evidence).grouped(7)
    assert len(grouped) == 7
    assert grouped.episodes == 40
    assert grouped.estimate == pytest.approx(ratios.estimate, abs=1e-12)
    assert grouped.numerators[0] == pytest.approx(ratios.numerators[:5].sum(0), abs=1e-12)  # 40 / 7 = 5.7
    assert grouped.contributions.mean() == pytest.approx(ratios.estimate, abs=1e-12)
    assert ratios.grouped(40) is ratios
    mixed = grouped.minus(logged_return(evidence))  # the finer part is grouped alike
    assert len(mixed) == 7
    assert mixed.estimate == pytest.approx(ratios.estimate - logged_return(evidence).estimate, abs=1e-12)


def test_a_ratio_without_weight_is_nan_and_not_0():
    evidence = random_log([2, 2, 2])
    nowhere = replace(evidence, target=np.array([1.0, 0, 1, 0, 1, 0]))  # nobody has weight at the second step
    assert np.isnan(wis(nowhere).estimate)
    assert np.isnan(weighted_dr(nowhere).estimate)
    assert np.isnan(weighted_dr(nowhere).contributions).all()
    assert ESTIMATORS["is"].ratios(nowhere).estimate == 0.0  # what plain importance sampling makes of it


def test_wrong_shapes_are_refused():
    with pytest.raises(SpecError, match=r"shapes \(3, 1\) and \(3,\): expected equal shapes \[rows, ratios\]"):
        Ratios(np.ones((3, 1)), np.ones(3))
    with pytest.raises(SpecError, match="found 0 episodes: expected at least one"):
        Ratios(np.ones((0, 1)), np.ones((0, 1)))
