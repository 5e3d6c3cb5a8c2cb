"""What a policy would do along a log: in the log's words, with its recurrent state, and as a density of continuous
actions.
"""

from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.worlds import world
from tests.ope.played import better, policy_of, treated
from tests.policies.permuted import ACTIONS, permuted
from tidelog import ConfigError, SpecError
from tidelog.data.log import number_observations
from tidelog.envs import play
from tidelog.envs.tabular import PointMass
from tidelog.envs.treatment import treatment
from tidelog.ope.evidence import elapsed_share
from tidelog.ope.policies import as_policy, common_bounds, kernel_density, kernel_draws, stored_starts, target_of
from tidelog.ope.tabular import by_state
from tidelog.runtime.policy import replay_actions
from tidelog.types import Continuous, Discrete, Spec


@pytest.fixture(scope="module")
def log():
    return treated().take_episodes(range(60))


def test_sampled_and_deterministic_probabilities(log):
    policy = policy_of(treatment(), better())
    sampled, chosen = (target_of(policy, log, sample=sample) for sample in (True, False))
    leaves = {name: leaf[log.position] for name, leaf in log.observation.items()}
    assert sampled.logged == pytest.approx(np.exp(policy.log_probability(leaves, log.action)), rel=1e-5)
    assert sampled.probabilities.sum(1) == pytest.approx(1.0)
    assert (chosen.probabilities[log.position].argmax(1) == policy.act(leaves)[0]).all()
    assert set(np.unique(chosen.probabilities)) == {0.0, 1.0}
    assert (chosen.logged == (policy.act(leaves)[0] == log.action)).all()


def test_actions_and_features_are_matched_by_their_words(log):
    policy = policy_of(treatment(), better())
    one, two = (target_of(policy, each, sample=True) for each in (log, permuted(log)))
    assert two.probabilities == pytest.approx(one.probabilities[:, ACTIONS])
    assert two.logged == pytest.approx(one.logged)


def test_masks_are_read_in_the_logs_order(log):
    mask = np.random.default_rng(0).random((len(log.observation["numeric"]), 6)) < 0.6
    mask[log.position, log.action] = mask[:, 0] = True
    masked = replace(log, action_mask=mask, spec=replace(log.spec, masked=True))
    other = replace(permuted(masked), action_mask=mask[:, ACTIONS])
    policy = policy_of(treatment(), better())
    one, two = (target_of(policy, each, sample=True) for each in (masked, other))
    assert (two.probabilities[~mask[:, ACTIONS]] == 0).all()
    assert two.probabilities == pytest.approx(one.probabilities[:, ACTIONS])


def test_a_table_is_asked_only_where_a_decision_was_taken(log):
    """A policy of another make may know nothing of what is seen after the end."""
    decided = np.zeros(len(log.observation["numeric"]), bool)
    decided[log.position] = True

    class ParsedRequest:
        def probabilities(self, observation, mask=None):
            np.testing.assert_array_equal(observation["numeric"], log.observation["numeric"][decided])
            return np.tile([0.5, 0.1, 0.1, 0.1, 0.1, 0.1], (len(observation["numeric"]), 1))

    found = target_of(as_policy(ParsedRequest(), log.spec), log, sample=True)
    assert found.probabilities[decided] == pytest.approx(np.tile([0.5] + [0.1] * 5, (log.steps, 1)))
    assert found.probabilities[~decided] == pytest.approx(1 / 6)
    states = number_observations(log)
    chances = by_state(found, states, log.position)
    asked = np.isin(np.arange(states.size), states.stored[log.position])
    assert chances[asked, 0] == pytest.approx(0.5)
    assert chances[~asked, 0] == pytest.approx(1 / 6)
    assert (~asked).any()


@pytest.mark.full
def test_a_memory_goes_along_each_episode_and_sees_what_followed_its_end():
    log = world("discrete", 3)
    policy = tl.fit(tl.BC(hidden=(8,), embedding=2, recurrent_size=6, window=4, batch_size=8), log, 5).policy()
    found = target_of(policy, log, sample=True)
    starts = stored_starts(log)
    assert starts[-1] == len(found.probabilities)
    episode = int(np.argmax(np.diff(starts)))
    state = policy.initial_state(1)
    for at in range(starts[episode], starts[episode + 1]):
        seen = {name: leaf[[at]] for name, leaf in log.observation.items()}
        wanted = policy.probabilities(seen, log.action_mask[[at]], state)
        assert found.probabilities[at] == pytest.approx(wanted[0], abs=1e-6)
        policy(seen, log.action_mask[[at]], state)
    chosen = target_of(policy, log)
    acted = replay_actions(policy, log.transitions.observation, log.starts, log.transitions.mask)
    assert (chosen.probabilities[log.position].argmax(1) == acted).all()


# Continuous actions.

BOUNDS = Continuous((-1.0, 0.0), (1.0, 10.0))


@pytest.mark.parametrize("middle", [(0.0, 5.0), (-1.0, 9.5)])
def test_the_kernel_is_a_density(middle):
    """It integrates to 1 within the bounds, at their corner too, and is nothing beyond."""
    x, y = (np.linspace(low, high, 401) for low, high in zip(BOUNDS.low, BOUNDS.high, strict=True))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    density = kernel_density(grid, np.broadcast_to(middle, grid.shape), BOUNDS, 0.2).reshape(401, 401)
    assert np.trapezoid(np.trapezoid(density, x, axis=1), y) == pytest.approx(1.0, abs=1e-3)
    assert kernel_density(np.asarray([[0.0, 10.1]]), np.asarray([middle]), BOUNDS, 0.2) == 0.0


def test_kernel_draws_follow_the_kernel():
    middle = np.tile(np.asarray([[0.9, 5.0]]), (4_000, 1))
    drawn = kernel_draws(middle, BOUNDS, 0.3, 8, 0).reshape(-1, 2)
    x = np.linspace(-1, 1, 4_001)
    density = kernel_density(np.stack([x, np.full(4_001, 5.0)], 1), np.tile([[0.9, 5.0]], (4_001, 1)), BOUNDS, 0.3)
    mean = np.trapezoid(x * density, x) / np.trapezoid(density, x)
    assert drawn[:, 0].mean() == pytest.approx(mean, abs=0.005)  # 18 standard errors
    assert (np.abs(drawn[:, 0]) <= 1).all()


def test_a_dimension_without_room_does_not_count():
    flat = Continuous((-1.0, 3.0), (1.0, 3.0))
    action, middle = np.asarray([[0.1, 3.0]]), np.asarray([[0.0, 3.0]])
    one = Continuous((-1.0,), (1.0,))
    wanted = kernel_density(action[:, :1], middle[:, :1], one, 0.2)
    assert kernel_density(action, middle, flat, 0.2) == pytest.approx(wanted)


@pytest.fixture(scope="module")
def moved():
    """Steps of a point, at random."""
    env = PointMass(20)
    rng = np.random.default_rng(0)
    found = play(env, lambda seen, _: (rng.uniform(-1, 1, (20, 1)).astype(np.float32), np.full(20, 0.5)), 20)
    return tl.Log.from_arrays(**found.columns(), bounds=(-1.0, 1.0))


def test_continuous_targets(moved):
    policy = tl.fit(tl.BC(hidden=(8,)), moved, 20).policy()
    leaves = moved.transitions.observation
    sampled = target_of(policy, moved, sample=True)
    assert sampled.logged == pytest.approx(np.exp(policy.log_probability(leaves, moved.action)), rel=1e-5)
    assert sampled.actions.shape == (len(moved.observation["observation"]), 8, 1)
    assert len(np.unique(sampled.actions[0])) > 1
    exact = target_of(policy, moved)
    assert not exact.logged.any()
    assert exact.actions[:, 0] == pytest.approx(policy(moved.observation), abs=1e-6)
    smooth = target_of(policy, moved, bandwidth=0.1)
    assert smooth.bandwidth == 0.1
    assert smooth.logged.max() > 0.5
    assert np.abs(smooth.actions.mean(1) - exact.actions[:, 0]).max() < 0.15  # 0 of 19 other seeds fail
    with pytest.raises(ConfigError, match="bandwidth = -1"):
        target_of(policy, moved, bandwidth=-1.0)


@pytest.mark.full
def test_without_a_density_sampling_falls_back_to_the_kernel(moved):
    policy = tl.fit(tl.BC(hidden=(8,), actor_head="deterministic"), moved, 3).policy()
    assert target_of(policy, moved, sample=True, bandwidth=0.2).bandwidth == 0.2


def test_time_passed_is_that_of_each_stored_observation(moved):
    found = elapsed_share(moved)
    assert found[:21, 0] == pytest.approx(np.arange(21) / 20)


def test_bounds_of_two_logs_are_held_by_their_hull():
    assert common_bounds(Continuous((-1.0,), (2.0,)), Continuous((-2.0,), (1.0,))) == Continuous((-2.0,), (2.0,))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (Spec(treatment().spec.observation, Discrete(3)), r"this log has the actions Discrete\(n=6"),
        (
            Spec({"other": treatment().spec.observation["numeric"]}, Discrete(6)),
            r"has the observations \['categorical', 'numeric'\]",
        ),
        (Spec(treatment().spec.observation, Continuous((0.0,), (1.0,))), "this log has the actions"),
        (
            Spec(treatment().spec.observation, Discrete(6, ("a", "b", "c", "d", "e", "f"))),
            "only the policy or only this log has",
        ),
    ],
)
def test_policies_and_logs_that_do_not_fit_are_refused(log, spec, said):
    policy = policy_of(treatment(), better())
    policy.spec = spec
    with pytest.raises(SpecError, match=said):
        target_of(policy, log)
