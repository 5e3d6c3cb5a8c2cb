import numpy as np
import pytest

from tidelog.envs.protocol import play
from tidelog.envs.registry import make
from tidelog.envs.treatment import clinician, exact_value, treatment
from tidelog.errors import ConfigError
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
