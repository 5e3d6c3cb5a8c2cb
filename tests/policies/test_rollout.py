"""Rollouts: the requested number of episodes, equal for equal seeds, without selection; and logs of rollouts."""

import numpy as np
import pytest

from tests.training.runs import bc, begin, finish
from tidelog import ConfigError, collect, rollout
from tidelog.envs import Tabular
from tidelog.envs.registry import make


@pytest.fixture
def policy(trained):
    return trained


@pytest.fixture(scope="module")
def mover():
    """A policy for points in one dimension."""
    return finish(begin(bc(), collect("point-mass", episodes=4), held_out=0.0)).policy()


def test_there_are_as_many_returns_as_episodes(policy):
    for episodes, copies in ((1, None), (7, None), (7, 1), (20, 16), (33, 64)):
        assert rollout(policy, "treatment", episodes, num_envs=copies).shape == (episodes,)
    with pytest.raises(ConfigError, match="at least 1"):
        rollout(policy, "treatment", 0)


def corridor(length=30):
    """Half of the episodes end at once and earn nothing, half have `length` steps and earn 1."""
    states = length + 2
    transition = np.zeros((states, 1, states))
    transition[0, 0, [1, states - 1]] = 0.5
    for state in range(1, states - 1):
        transition[state, 0, state + 1] = 1.0
    transition[-1, 0, -1] = 1.0
    reward = np.zeros((states, 1, states))
    reward[states - 2] = 1.0
    final = np.arange(states) == states - 1
    return Tabular(transition, reward, np.eye(states)[0], final)


def test_no_episode_is_preferred_for_being_short():
    problem = corridor()
    policy = begin(bc(), collect(problem, episodes=5), held_out=0.0).policy()
    for copies in (16, 400):  # each 4 standard errors: a right rollout fails for 1 in 7,000 pairs of seeds
        returns = rollout(policy, problem, 400, num_envs=copies)
        assert abs(returns.mean() - 0.5) < 4 * 0.5 / np.sqrt(400), copies


def test_a_random_log_has_the_chances_of_chance_and_the_environments_words(log):
    assert log.spec == make("treatment").spec
    np.testing.assert_allclose(log.propensity, 1 / 6, rtol=1e-6)
    assert len(log.episodes) == 30
    assert log.terminated[log.starts[1:] - 1].all()
    assert collect("treatment", episodes=30, seed=0).fingerprint() == log.fingerprint()
    assert collect("treatment", episodes=30, seed=1).fingerprint() != log.fingerprint()
    assert collect("treatment", steps=50).steps >= 50
    with pytest.raises(ConfigError, match="episodes = None, steps = None: expected exactly one"):
        collect("treatment")


def test_a_policys_log_has_the_policys_chances(policy):
    log = collect("treatment", policy, episodes=40, seed=2)
    seen, each = log.transitions.observation, np.arange(log.steps)
    np.testing.assert_allclose(log.propensity, policy.probabilities(seen)[each, log.action], rtol=1e-4)
    assert (log.action != policy(seen).codes).any()
    likely = collect("treatment", policy, episodes=40, seed=2, sample=False)
    np.testing.assert_array_equal(likely.action, policy(likely.transitions.observation).codes)
    np.testing.assert_array_equal(likely.propensity, 1.0)


def test_a_continuous_log_has_densities_in_the_actions_own_units(mover):
    chance = collect("point-mass", episodes=3)
    np.testing.assert_allclose(chance.propensity, 0.5)  # uniform on [-1, 1]
    assert chance.spec == make("point-mass").spec
    log = collect("point-mass", mover, episodes=3)
    likely = mover.log_probability(log.transitions.observation, log.action)
    np.testing.assert_allclose(log.propensity, np.exp(likely), rtol=1e-4)
    assert collect("point-mass", mover, episodes=3, sample=False).propensity is None


def test_masks_of_the_environment_are_kept_and_honoured():
    problem = corridor(3)
    both = Tabular(
        np.repeat(problem.transition, 2, axis=1), np.repeat(problem.reward, 2, axis=1), problem.initial, problem.final,
        allowed=np.asarray([[True, state % 2 == 0] for state in range(5)]),
    )  # fmt: skip
    log = collect(both, episodes=40)
    assert log.spec.masked
    mask = log.transitions.mask
    assert mask[np.arange(log.steps), log.action].all()
    np.testing.assert_allclose(log.propensity, 1 / mask.sum(1))
    policy = begin(bc(), log, held_out=0.0).policy()
    again = collect(both, policy, episodes=40, seed=4)
    assert again.transitions.mask[np.arange(again.steps), again.action].all()
    forced = again.transitions.mask.sum(1) == 1
    np.testing.assert_allclose(again.propensity[forced], 1.0)
