"""The built-in problems: a treatment with known values, a point mass, and users who are satiated."""

import numpy as np
import pytest

from tidelog.envs.protocol import play
from tidelog.envs.registry import make
from tidelog.envs.satiation import (
    clicks,
    logging_policy,
    policy_of_histories,
    satiation,
    simulate_visits,
    state_of,
    support,
)  # fmt: skip
from tidelog.envs.satiation import exact_value as value_of_visits
from tidelog.envs.tabular import PointMass
from tidelog.envs.treatment import clinician, exact_value, treatment
from tidelog.errors import ConfigError, SpecError
from tidelog.runtime.way_of_acting import LabelledActions


def deterministic(action):
    return np.full(treatment().states, action)


def test_a_policy_is_rated_by_its_labels_in_any_order():
    """Labels of a log in another order than the problem's; codes would be other actions."""
    names = treatment().action_names
    numbers = np.arange(treatment().states) % len(names)
    order = names[::-1]
    answer = LabelledActions(len(names) - 1 - numbers, order)
    assert treatment().value_of(answer) == treatment().value_of(numbers)
    assert treatment().value_of(answer) != treatment().value_of(answer.codes)
    with pytest.raises(ConfigError, match="treatment has no action 'lw': did you mean 'low'"):
        treatment().value_of(LabelledActions(0 * numbers, ("lw",)))


def test_its_values_are_those_that_its_page_states():
    problem, behavior_policy = treatment(), clinician()
    best, policy = problem.optimal()
    assert exact_value(behavior_policy) == pytest.approx(0.625, abs=5e-4)
    assert exact_value(behavior_policy.argmax(1)) == pytest.approx(0.683, abs=5e-4)
    assert exact_value(deterministic(2)) == pytest.approx(0.697, abs=5e-4)
    assert exact_value(np.full((362, 6), 1 / 6)) == pytest.approx(0.487, abs=5e-4)
    assert best == pytest.approx(0.792, abs=5e-4)
    assert exact_value(policy) == pytest.approx(best, abs=1e-12)


def test_play_agrees_with_the_exact_value_and_always_terminates():
    environment, behavior_policy = make("treatment", 1000), clinician()

    def act(observed, generator):
        state = environment._state
        action = (generator.random((len(state), 1)) > behavior_policy[state].cumsum(1)).sum(1)
        return action, behavior_policy[state, action]

    played = play(environment, act, episodes=10_000, seed=3)
    # 4.1 standard errors: right play fails for 3 in 100,000 seeds
    assert played.returns.mean() == pytest.approx(exact_value(behavior_policy), abs=4 * 0.5 / 100)
    assert set(played.returns.tolist()) == {0.0, 1.0}
    assert played.lengths.max() == 5
    assert not played.truncated.any()
    assert played.propensity.min() == pytest.approx(0.02)


# The point mass.


@pytest.mark.parametrize("size", [1, 2])
def test_the_best_controller_earns_the_best_return(size):
    def act(observed, generator):
        return PointMass.best(observed.observation["observation"]), None

    played = play(PointMass(6, size), act, episodes=12, seed=2)
    starts = played.observation["observation"][::20]
    assert played.lengths.tolist() == [20] * 12
    np.testing.assert_allclose(played.returns, PointMass.best_return(starts), atol=1e-4)
    assert played.truncated.sum() == 12
    assert not played.terminated.any()


def test_the_best_return_by_hand():
    # From 0.5: 0.3, 0.1, 0 are left.
    assert PointMass.best_return(np.array([[0.5]])) == pytest.approx(-0.10)
    assert PointMass.best(np.array([[0.5], [-0.1]])).tolist() == [[-1.0], [0.5]]


def test_bounds_cut_and_shapes_are_checked():
    environment = PointMass(1)
    start = environment.reset(0).observation["observation"]
    moved = environment.step(np.array([[7.0]])).next_observation.observation["observation"]
    assert moved - start == pytest.approx(0.2, abs=1e-6)
    for action in (np.zeros(1), np.array([[np.nan]])):
        with pytest.raises(SpecError):
            environment.step(action)


# Satiation.


LOUD_DRAMA, FAIR_DRAMA, QUIET_DRAMA, FILLER = 1, 2, 3, 10
SHOWN, CLICKED = 1, 2


@pytest.fixture(scope="module")
def optimum():
    """The best value, and a best policy [S, A]."""
    return satiation().optimal()


def felt(history, events):
    """Boredom with drama, comedy and sport, tiredness, and whether the last item was clicked."""
    state = state_of(np.array([history], np.int32), np.array([events], np.int32))
    return satiation().observations()["numeric"][state[0]].astype(int).tolist()


def worth(policy, users, seed):
    returns = simulate_visits(policy_of_histories(policy), users, seed).returns
    # 4 standard errors: right visits fail for 6 in 100,000 seeds
    return returns.mean(), 4 * returns.std() / len(returns) ** 0.5


def test_satiations_values_are_those_that_its_page_states(optimum):
    best, policy = optimum
    assert best == pytest.approx(9.93, abs=5e-3)
    assert value_of_visits(policy) == pytest.approx(best, abs=1e-9)
    assert value_of_visits(clicks().argmax(1)) == pytest.approx(6.23, abs=5e-3)
    assert value_of_visits(np.full((218, 12), 1 / 12)) == pytest.approx(6.22, abs=5e-3)
    assert value_of_visits(logging_policy()) == pytest.approx(6.04, abs=5e-3)
    assert value_of_visits(logging_policy().argmax(1)) == pytest.approx(value_of_visits(clicks().argmax(1)), abs=1e-12)


def test_the_best_within_the_support_lies_between_imitation_and_the_optimum(optimum):
    problem, behavior_policy = satiation(), logging_policy()
    values = [problem.optimal(allowed=support(behavior_policy, threshold))[0] for threshold in (0.3, 0.2)]
    assert values == pytest.approx([7.36, 9.64], abs=5e-3)
    assert value_of_visits(behavior_policy.argmax(1)) < values[0] < values[1] < optimum[0]
    assert (support(behavior_policy, 1.0).sum(1)[:216] == 1).all()
    assert support(behavior_policy, 0.0).all()


def test_what_a_user_feels_follows_from_the_history():
    assert felt([0, 0], [0, 0]) == [0, 0, 0, 0, 0]
    assert felt([LOUD_DRAMA], [CLICKED]) == [1, 0, 0, 1, 1]
    assert felt([LOUD_DRAMA], [SHOWN]) == [0, 0, 0, 0, 0]  # only what is clicked bores and tires
    assert felt([0, LOUD_DRAMA, FAIR_DRAMA], [0, CLICKED, CLICKED]) == [2, 0, 0, 1, 1]
    assert felt([LOUD_DRAMA, LOUD_DRAMA, QUIET_DRAMA], [CLICKED, CLICKED, SHOWN]) == [
        1,
        0,
        0,
        1,
        0,
    ]  # a quiet one rests
    assert felt([LOUD_DRAMA, FILLER], [CLICKED, CLICKED]) == [0, 0, 0, 1, 1]
    # Drama, loud, for a user who is twice bored by it and tired once: 0.8 * 1.0 * 0.4 * 0.9.
    state = state_of(np.array([[1, 2]], np.int32), np.array([[2, 2]], np.int32))
    assert clicks()[state[0], 0] == pytest.approx(0.288)


def test_simulated_visits_are_worth_what_the_arrays_say(optimum):
    for seed, policy in enumerate([logging_policy(), optimum[1]]):
        mean, tolerance = worth(policy, 5_000, seed)
        assert mean == pytest.approx(value_of_visits(policy), abs=tolerance)
        assert tolerance < 0.7


def test_a_log_holds_what_was_shown_with_the_chance_of_showing_it():
    log = simulate_visits(policy_of_histories(logging_policy()), 500, seed=3, limit=20)
    assert len(log) == len(log.user) == len(log.propensity)
    assert (np.diff(log.time) > 0).all()
    assert (np.diff(log.user) >= 0).all()
    first = np.flatnonzero(np.append(True, np.diff(log.user) > 0))
    last = np.append(first[1:], len(log)) - 1
    assert np.flatnonzero(log.terminated | log.truncated).tolist() == last.tolist()
    lengths = last - first + 1
    assert (lengths[log.truncated[last]] == 20).all()
    assert 0 < log.truncated.sum() < 300  # 92 expected, with a deviation of 9.4: 22 of them
    np.testing.assert_array_equal(log.reward, log.event - 1)
    # The propensity is the editor's for the state that the history before the event leads to.
    row = next(row for row in first if lengths[np.searchsorted(first, row)] > 6) + 5
    history = np.s_[row - 5 : row]
    state = state_of(log.item[None, history], log.event[None, history])[0]
    assert log.propensity[row] == pytest.approx(logging_policy()[state, log.item[row] - 1])
    assert log.propensity.min() >= 0.025
    np.testing.assert_allclose(log.propensity[first], logging_policy()[0, log.item[first] - 1], rtol=1e-6)
    again = simulate_visits(policy_of_histories(logging_policy()), 500, seed=3, limit=20)
    np.testing.assert_array_equal(log.item, again.item)


def test_a_policy_of_histories_sees_no_more_than_it_is_shown():
    seen = []

    def act(histories, events):
        seen.append((histories.copy(), events.copy()))
        return np.eye(12)[np.zeros(len(histories), int)]

    simulate_visits(act, 5, seed=0, length=3, limit=6)
    assert seen[0][0].tolist() == [[0, 0, 0]] * 5
    assert seen[2][0][0].tolist() == [0, 1, 1]
    assert all(histories.shape == (len(histories), 3) for histories, _ in seen)
    assert all(((events > 0) == (histories > 0)).all() for histories, events in seen)
    with pytest.raises(ConfigError, match=r"shape \[5, 13\]: expected \[5, 12\]"):
        simulate_visits(lambda histories, events: np.ones((5, 13)), 5)
    with pytest.raises(ConfigError, match="sum to 1"):
        simulate_visits(lambda histories, events: np.ones((5, 12)), 5)
