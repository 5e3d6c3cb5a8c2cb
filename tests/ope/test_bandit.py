from dataclasses import replace

import numpy as np
import pytest

from tests.ope.made import bandit, evidence_of, random_log
from tidelog.errors import ConfigError, SpecError
from tidelog.ope.estimators import (
    clipped_ips,
    direct_method,
    dr_optimistic_shrinkage,
    ips,
    sequential_dr,
    snips,
    switch_dr,
)


def by_hand():
    """Weights 4, 1/2, 1 and 0."""
    return evidence_of(
        [1, 1, 1, 1],
        reward=[1, 2, 3, 4],
        target=[0.8, 0.2, 0.5, 0.0],
        behaviour=[0.2, 0.4, 0.5, 0.5],
        model=[0.5, 2, 1, 3],
        model_target=[1, 2, 0, 1],
    )


def test_by_hand():
    evidence = by_hand()
    assert ips(evidence).estimate == pytest.approx((4 + 1 + 3 + 0) / 4)
    assert snips(evidence).estimate == pytest.approx(8 / 5.5)
    assert clipped_ips(evidence, 2.0).estimate == pytest.approx((2 + 1 + 3) / 4)
    assert direct_method(evidence).estimate == pytest.approx(1.0)
    # corrections: 4 * 1/2 = 2, 1/2 * 0 = 0, 1 * 2 = 2, 0
    assert sequential_dr(evidence).contributions == pytest.approx([3.0, 2.0, 2.0, 1.0])
    assert switch_dr(evidence, 2.0).contributions == pytest.approx([1.0, 2.0, 2.0, 1.0])
    # s = 4: 4 * 4 / (16 + 4) = 0.8 in place of 4, and 4 * 1 / (1 + 4) = 0.8 in place of 1
    assert dr_optimistic_shrinkage(evidence, 4.0).contributions == pytest.approx([1.4, 2.0, 1.6, 1.0])


def test_the_ends_of_the_dials():
    evidence = bandit()
    rare = evidence.behaviour.copy()
    rare[0] = evidence.target[0] / 20.0
    evidence = replace(evidence, behaviour=np.maximum(rare, evidence.target / 20.0))
    robust, alone = sequential_dr(evidence).contributions, direct_method(evidence).contributions
    assert (evidence.target / evidence.behaviour).max() == pytest.approx(20.0)  # so that the default cuts
    assert switch_dr(evidence, np.inf).contributions == pytest.approx(robust, abs=1e-12)
    assert switch_dr(evidence, 0.0).contributions == pytest.approx(alone, abs=1e-12)
    assert abs(switch_dr(evidence).estimate - robust.mean()) > 1e-3
    assert dr_optimistic_shrinkage(evidence, np.inf).contributions == pytest.approx(robust, abs=1e-12)
    assert dr_optimistic_shrinkage(evidence, 1e12).contributions == pytest.approx(robust, abs=1e-6)
    assert dr_optimistic_shrinkage(evidence, 0.0).contributions == pytest.approx(alone, abs=1e-12)
    assert clipped_ips(evidence, np.inf).estimate == ips(evidence).estimate
    assert clipped_ips(evidence, 0.0).estimate == 0.0


@pytest.mark.parametrize("estimator", [ips, sequential_dr])
def test_right_on_average_over_everything_that_can_happen(estimator):
    # two contexts, equally likely, three actions; the mean over logged actions in proportion is the exact value
    target, behavior_policy = np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]]), np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    reward, model = np.array([[1.0, 2, 4], [0, -1, 5]]), np.array([[3.0, -1, 2], [1, 1, 1]])
    evidence = evidence_of(
        [1] * 6,
        reward=reward.ravel(),
        target=target.ravel(),
        behaviour=behavior_policy.ravel(),
        model=model.ravel(),
        model_target=np.repeat((target * model).sum(1), 3),
    )
    found = (behavior_policy / 2).ravel() @ estimator(evidence).contributions
    assert found == pytest.approx((target * reward).sum() / 2, abs=1e-12)


@pytest.mark.parametrize("estimator", [ips, snips, clipped_ips, direct_method, switch_dr, dr_optimistic_shrinkage])
def test_longer_episodes_are_refused(estimator):
    with pytest.raises(SpecError, match=r"the longest here has 2\. fix: use a sequential estimator"):
        estimator(random_log([1, 2]))


def test_wrong_dials_are_refused():
    with pytest.raises(ConfigError, match="shrinkage = -1: expected at least 0"):
        dr_optimistic_shrinkage(bandit(), -1)
    with pytest.raises(ConfigError, match="largest = nan: expected at least 0"):
        clipped_ips(bandit(), np.nan)
