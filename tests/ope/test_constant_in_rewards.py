"""A constant added to every reward of equally long episodes changes no verdict, no test and no note."""

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import Always
from tidelog.data.log import number_observations
from tidelog.ope.assumptions import history_dependence
from tidelog.ope.estimators import ESTIMATORS
from tidelog.ope.evidence import episode_folds

LARGEST = 1.5e7  # 0 and 1 above it are exact in 32 bits


def log_with(constant, steps, gain=0.15, episodes=600):
    """Rewards 0 or 1 plus a constant; later actions earn more, and the previous action adds to the reward."""
    random, n = np.random.default_rng(0), episodes * steps
    action, seen = random.integers(3, size=n), random.integers(4, size=(n, 1))
    before = np.where(np.arange(n) % steps == 0, 0, np.roll(action, 1))
    reward = (random.random(n) < 0.2 + gain * action + 0.15 * before).astype(float)
    return tl.Log.from_arrays(
        observation=seen,
        action=action,
        reward=(reward + constant).astype("f4"),
        episode=np.arange(n) // steps,
        terminated=np.arange(n) % steps == steps - 1,
        propensity=np.full(n, 1 / 3),
        actions=3,
    )


def verdict(log, *chances):
    settings = {"ledger": False, "progress": False, "learnt_from": "other data", "model": "tabular"}
    return tl.judge(Always(*chances), log, sample=True, **settings)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("constant", [-1e5, 1e6, LARGEST])
@pytest.mark.parametrize(("steps", "chances"), [(1, (0.2, 0.3, 0.5)), (3, (0.2, 0.3, 0.5)), (1, (0.5, 0.3, 0.2))])
def test_the_verdict_is_that_without_it(constant, steps, chances):
    plain, moved = (verdict(log_with(one, steps), *chances) for one in (0.0, constant))
    assert plain.decision == moved.decision == ("better" if chances[2] > chances[0] else "worse")
    np.testing.assert_allclose(moved.difference, plain.difference, rtol=1e-5)
    unmoved = [name for name, one in ESTIMATORS.items() if one.vetoes]  # in the others a constant has a weight
    notes = [{one.name: one.note for one in judged.estimates if one.name in unmoved} for judged in (plain, moved)]
    assert notes[0] == notes[1]
    np.testing.assert_allclose(
        moved.behavior_policy.estimate - steps * constant, plain.behavior_policy.estimate, atol=1e-6 * abs(constant)
    )


def test_the_test_of_memory_finds_what_it_finds_without_it():
    one, other = (log_with(constant, 4, episodes=1_500) for constant in (0.0, 1e6))
    tests = [history_dependence(log, episode_folds(log, 5, 0), number_observations(log)) for log in (one, other)]
    assert [test.fails for test in tests[0]] == [test.fails for test in tests[1]]
    assert tests[0][0].fails
    np.testing.assert_allclose([t.p_value for t in tests[1]], [t.p_value for t in tests[0]], rtol=1e-3)


@pytest.mark.parametrize("equal", [0.1, 1e9])
def test_equal_rewards_are_within_their_own_range(equal):
    log = log_with(0.0, 3)
    log = tl.Log.from_arrays(**{**arrays(log), "reward": np.full(log.steps, equal, "f4")})
    estimates = tl.estimate(Always(0.2, 0.3, 0.5), log, ["wis", "wpdis", "wdr"], model="tabular")
    assert [one.note for one in estimates] == ["", "", ""]


def arrays(log):
    episode = np.repeat(np.arange(len(log.episode_ids)), np.diff(log.starts))
    leaf = next(iter(log.observation.values()))[log.position]
    columns = {"observation": leaf, "action": log.action, "terminated": log.terminated, "propensity": log.propensity}
    return {**columns, "episode": episode, "actions": 3}
