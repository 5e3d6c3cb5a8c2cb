"""The running scales of rewards and observations in PPG and PPO, by hand."""

import jax
import numpy as np
import pytest

from tests.golden.lines import numbers
from tidelog import PPG
from tidelog.algorithms.ppg_common import (
    Rewards,
    Running,
    add_values,
    deviation,
    empty_statistics,
    initial_observations,
    initial_rewards,
    scale_observations,
    scale_rewards,
)
from tidelog.types import Codes, Discrete, Spec, Vector

close, equal = np.testing.assert_allclose, np.testing.assert_array_equal
added, spread_of = jax.jit(add_values), jax.jit(deviation)


def ones(*values):
    return np.ones(len(values), np.float32)


def test_batches_are_merged_to_the_deviation_of_all_numbers():
    # 1, 3: mean 2, variance 1. With 5, 7: mean 4, variance (9 + 1 + 1 + 9) / 4 = 5.
    first = added(empty_statistics(), numbers(1.0, 3.0), ones(1, 3))
    close(first, [2.0, 2.0, 1.0])
    close(added(first, numbers(5.0, 7.0), ones(5, 7)), [4.0, 4.0, 5.0], rtol=1e-6)
    rng, running, seen = np.random.default_rng(0), empty_statistics(), []
    for size in (1, 7, 2, 64):
        seen += (values := list(rng.normal(100.0, 3.0, size)))
        running = added(running, numbers(*values), ones(*values))
    close(spread_of(running), np.std(seen), rtol=1e-3)


def test_weights_count():
    # 1 once, 3 three times: mean 2.5, variance (2.25 + 3 * 0.25) / 4 = 0.75. The rest does not count.
    close(added(empty_statistics(), numbers(1.0, 3.0, 9.0), numbers(1.0, 3.0, 0.0)), [4.0, 2.5, 0.75])
    assert np.isfinite(added(empty_statistics(), numbers(1.0), numbers(0.0))).all()


@pytest.mark.parametrize(
    ("running", "expected"),
    [(empty_statistics(), 1.0), (Running(*numbers(9.0, -1.0, 0.0)), 1.0), (Running(*numbers(9.0, 1e6, 1e-2)), 1.0),
     (Running(*numbers(9.0, 0.0, 1e-20)), 1e-10)],
)  # fmt: skip
def test_numbers_that_do_not_differ_have_the_deviation_1_in_every_unit(running, expected):
    close(spread_of(running), expected, rtol=1e-5)


class State:
    """The part of a state that scales rewards."""

    def __init__(self, rewards):
        self.rewards = rewards

    def _replace(self, rewards):
        return State(rewards)


def columns(rewards, ended):
    flags = np.asarray(ended, bool)
    return {
        "reward": numbers(*rewards)[None], "terminated": flags[None], "truncated": np.zeros_like(flags)[None],
        "valid": np.ones_like(flags)[None],
    }  # fmt: skip


def test_ppg_divides_rewards_by_the_deviation_of_discounted_returns_and_clips_them():
    config = PPG(num_envs=1, minibatches=1, reward_normalisation=True, reward_discount=0.5, reward_clip=1.5)
    # returns 1, 0.5 + 3 = 3.5 | 2: mean 13/6, variance (1 + 12.25 + 4) / 3 - (13 / 6)^2
    spread = np.sqrt(17.25 / 3 - (6.5 / 3) ** 2)
    state, scaled = scale_rewards(config, State(initial_rewards(config)), columns([1.0, 3.0, 2.0], [0, 1, 1]))
    close(scaled[0], np.clip(np.asarray([1.0, 3.0, 2.0]) / spread, -1.5, 1.5), rtol=1e-5)
    assert float(scaled[0, 1]) == 1.5
    # the sum of an episode that goes on is carried into the next rollout: 4, then 0.5 * 4 + 1 = 3
    state, _ = scale_rewards(config, state, columns([4.0], [0]))
    close(state.rewards.sums, [4.0])
    state, _ = scale_rewards(config, state, columns([1.0], [1]))
    close(spread_of(state.rewards.returns), np.std([1.0, 3.5, 2.0, 4.0, 3.0]), rtol=1e-5)


def test_ppg_learns_from_equal_rewards_in_every_unit():
    config, rng = PPG(num_envs=1, minibatches=1, reward_normalisation=True), np.random.default_rng(0)
    rewards, ended = rng.normal(1.0, 2.0, 50), rng.random(50) < 0.1
    of = {b: scale_rewards(config, State(initial_rewards(config)), columns(b * rewards, ended))[1] for b in (1, 4, 100)}
    equal(of[1], of[4])
    close(of[1], of[100], rtol=1e-4)
    plain = PPG(num_envs=1, minibatches=1, reward_normalisation=False)
    assert initial_rewards(plain) is None
    equal(scale_rewards(plain, State(None), columns(rewards, ended))[1][0], numbers(*rewards))
    assert isinstance(initial_rewards(config), Rewards)


class Looked:
    """The part of a state that scales observations."""

    def __init__(self, observations):
        self.observations = observations

    def _replace(self, observations):
        return Looked(observations)


def test_a_rollout_is_scaled_by_what_was_known_when_its_policy_acted():
    spec = Spec({"numbers": Vector(2), "codes": Codes((3,))}, Discrete(2))
    codes = np.ones((1, 2, 1), np.int32)

    def rollout(first, second, valid=(True, True)):
        seen = {"numbers": np.asarray([[first, second]], np.float32), "codes": codes}
        return {"observation": seen, "following": seen, "valid": np.asarray([valid])}

    config = PPG(observation_normalisation=True)
    step = jax.jit(lambda statistics, columns: [one.observations if isinstance(one, Looked) else one for one in
                   scale_observations(config, Looked(statistics), columns)])  # fmt: skip
    statistics, first = step(initial_observations(config, spec), rollout([0.0, 10.0], [2.0, 10.0]))
    equal(first["observation"]["numbers"], [[[0.0, 10.0], [2.0, 10.0]]])  # nothing was known
    # columns 0, 2: mean 1, deviation 1; 10, 10: mean 10, no deviation, which is 1
    statistics, second = step(statistics, rollout([4.0, 10.0], [6.0, 11.0], (True, False)))
    for name in ("observation", "following"):
        close(second[name]["numbers"], [[[3.0, 0.0], [5.0, 1.0]]])
        equal(second[name]["codes"], codes)
    # the row that is not valid does not count: 0, 2, 4 and 10, 10, 10
    close(statistics["numbers"].mean, [2.0, 10.0])
    close(statistics["numbers"].variance, [8.0 / 3.0, 0.0], rtol=1e-6)
    assert initial_observations(PPG(), spec) is None
