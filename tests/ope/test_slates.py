import json

import numpy as np
import pytest

from tests.ope.made import evidence_of
from tests.shared import shared
from tidelog.errors import SpecError
from tidelog.ope.estimators.bandit import direct_method, doubly_robust, ips, snips
from tidelog.ope.estimators.sequential import per_decision_is
from tidelog.ope.estimators.slates import independent_ips, reward_interaction_ips


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
