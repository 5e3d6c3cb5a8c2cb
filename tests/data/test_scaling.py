"""Scalers: what they measure, and that they come back to the last bit."""

import numpy as np
import pytest

from tests.data.test_log import small
from tests.data.visits import mapping, visits
from tidelog.data.read import read_log
from tidelog.data.statistics import LoggedRewards, RewardScale, Scaler, by_return_range, minus_one, unscaled
from tidelog.errors import ConfigError


def test_standardised_columns_have_mean_zero_and_std_one() -> None:
    log = read_log(visits(), mapping())
    scaled = Scaler.fit(log).observation(log.observation)
    np.testing.assert_allclose(scaled["numeric"].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled["numeric"].std(axis=0), 1, atol=1e-5)
    np.testing.assert_array_equal(scaled["categorical"], log.observation["categorical"])
    assert scaled["numeric"].dtype == np.float32
    assert Scaler.fit(log, observations=False).mean == {}


def test_constant_columns_are_only_centred() -> None:
    scaler = Scaler.fit(small(observation=np.full((6, 1), 7.0)))
    assert scaler.std["observation"].tolist() == [1.0]
    assert scaler.observation({"observation": np.full((1, 1), 7.0, np.float32)})["observation"].tolist() == [[0.0]]


def test_reward_scalings() -> None:
    log = small()  # returns 1, 5, 9
    assert Scaler.fit(log).reward_scale == 1.0
    rewards = LoggedRewards.of(log)
    ranged = Scaler.fit(log, rewards=by_return_range(rewards))
    assert (ranged.reward_scale, ranged.reward_shift) == (125.0, 0.0)
    shifted = Scaler.fit(log, rewards=minus_one(rewards))
    np.testing.assert_array_equal(shifted.reward(log.reward), np.arange(6) - 1)
    assert unscaled(rewards) == RewardScale()
    with pytest.raises(ConfigError, match="differ"):
        by_return_range(LoggedRewards.of(small(reward=np.ones(6))))
