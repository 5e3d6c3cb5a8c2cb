"""The counted model is the problem where counts are exact, and near it where they were played."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.icu_sepsis import icu_sepsis
from tests.ope.played import better, played, policy_of, random_policy, random_problem, treated
from tests.shared import shared
from tidelog import Log
from tidelog.data.log import is_tabular, number_observations
from tidelog.envs.treatment import treatment
from tidelog.ope.evidence import episode_folds
from tidelog.ope.policies import target_of
from tidelog.ope.tabular import Counts, count_model, tabular_values, truncations


def exact_counts(problem) -> Counts:
    """Every possible move as one step, weighted by its probability."""
    state, action, following = np.nonzero(problem.transition * ~problem.final[:, None, None])
    return Counts.of(
        state,
        action,
        problem.reward[state, action, following],
        following,
        problem.final[following],
        (problem.states, problem.actions),
        problem.transition[state, action, following],
    )


@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0])
def test_exact_counts_give_exact_values(discount):
    problem = random_problem()
    policy = random_policy(problem)
    found = exact_counts(problem).action_values(policy, discount, 10)
    assert found[:-1] == pytest.approx(problem.action_values(policy, discount)[:-1], abs=1e-12)


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_a_common_time_limit_is_solved_backwards(discount):
    problem = random_problem(horizon=4)
    policy = random_policy(problem)
    wanted = problem.action_values(policy, discount)
    model = exact_counts(problem)
    for step, values in model.layers(policy, discount, np.asarray([0.0, 0.0, 0.0, 1.0])):
        assert values[model.row][:-1] == pytest.approx(wanted[step][:-1], abs=1e-12)


def test_cutting_a_share_of_episodes_is_discounting_by_it():
    problem = random_problem()
    policy, model = random_policy(problem), exact_counts(problem)
    discounted = list(model.layers(policy, 0.7, np.zeros(5)))
    for (step, one), (same, two) in zip(model.layers(policy, 1.0, np.full(5, 0.3)), discounted, strict=True):
        assert step == same
        assert one == pytest.approx(two)


def test_a_policy_that_never_ends_earns_as_long_as_the_longest_episode():
    """State 0: action 0 stays and earns 1, action 1 leaves. Always staying earns 7 in 7 steps."""
    model = Counts.of(
        np.asarray([0, 0]),
        np.asarray([0, 1]),
        np.asarray([1.0, 0.0]),
        np.asarray([0, 0]),
        np.asarray([False, True]),
        (1, 2),
    )
    assert model.action_values(np.asarray([[1.0, 0.0]]), 1.0, 7)[0, 0] == pytest.approx(7.0)
    assert model.action_values(np.asarray([[0.5, 0.5]]), 1.0, 7)[0, 0] == pytest.approx(2.0)  # 1 / 0.5


def test_two_states_by_hand():
    """From 0 on to 1 for 1; there action 0 earns 1, action 1 earns 3, both end. The policy takes 1 in 3 of 4 times.

    Q(1, .) = (1, 3), V(1) = 2.5, Q(0, 0) = 1 + 0.5 * 2.5 = 2.25. Action 1 was never taken in 0: the state's mean step
    stands for it. State 2 was never seen: the mean step of the log does, (1 + 1 + 3) / 3 on, a third of the time to 1.
    """
    model = Counts.of(
        np.asarray([0, 1, 1]), np.asarray([0, 0, 1]), np.asarray([1.0, 1.0, 3.0]), np.asarray([1, -1, -1]),
        np.asarray([False, True, True]), (3, 2),
    )  # fmt: skip
    found = model.action_values(np.asarray([[1.0, 0.0], [0.25, 0.75], [1.0, 0.0]]), 0.5, 2)
    assert found == pytest.approx(np.asarray([[2.25, 2.25], [1.0, 3.0], [5 / 3 + 0.5 * 2.5 / 3] * 2]))


def test_truncated_shares_by_hand():
    """Lengths 1, 2, 2, 3; the first and third are truncated. After decision 0 one of four is cut.

    Of the three that reach decision 1, one terminates there and one of the other two is cut.
    """
    log = Log.from_arrays(
        observation=np.zeros((8, 1), np.float32), action=np.zeros(8, int), reward=np.ones(8, np.float32),
        episode=[0, 1, 1, 2, 2, 3, 3, 3], terminated=[0, 0, 1, 0, 0, 0, 0, 1], truncated=[1, 0, 0, 0, 1, 0, 0, 0],
    )  # fmt: skip
    found = truncations(log, np.arange(4), 4)
    assert found == pytest.approx([1 / 4, 1 / 2, 1.0, 1.0])
    assert truncations(log.take_episodes([1, 3]), np.arange(2), 3) is None


def test_different_observations_are_numbered_by_what_they_hold():
    log = Log.from_arrays(
        observation={"a": np.asarray([[0.0], [-0.0], [1.0], [0.0]], np.float32), "b": np.asarray([[0], [0], [0], [1]])},
        action=[0, 1, 0, 1], reward=np.zeros(4, np.float32), terminated=True,
    )  # fmt: skip
    states = number_observations(log)
    assert states.size == 3
    assert states.stored[0] == states.stored[1]
    masked = replace(log, action_mask=np.asarray([[1, 1], [0, 1], [1, 1], [1, 1]], bool))
    assert number_observations(masked).size == 4


def test_logs_of_few_observations_are_tabular_and_others_are_not():
    assert is_tabular(treated(3_000))
    assert not is_tabular(treated(3_000).take_episodes(range(100)))
    rng = np.random.default_rng(0)
    assert not is_tabular(
        Log.from_arrays(
            observation=rng.standard_normal((500, 2)),
            action=rng.integers(0, 2, 500),
            reward=rng.random(500),
            terminated=True,
        )
    )


def test_labels_alone_are_a_table_with_few_visits_of_each_pair():
    """Distances between labels mean nothing: a network would underfit, and the history would then seem to matter."""
    rng, rows = np.random.default_rng(0), 3_000

    def of(*columns, **others):
        return Log.from_arrays(
            observation={"place": np.stack(columns, axis=1).astype(np.int32), **others},
            action=rng.integers(0, 20, rows), reward=rng.random(rows), terminated=True,
        )  # fmt: skip

    many, few = rng.integers(0, 700, rows), rng.integers(0, 70, rows)
    assert is_tabular(of(many))
    assert is_tabular(of(few, few % 7))
    assert not is_tabular(of(many, many % 7)), "labels of two columns may share what a network learns"
    assert not is_tabular(of(few, few % 7, size=rng.integers(0, 5, (rows, 1)).astype(np.float32)))


def start_value(log, policy, **options) -> float:
    states, folds = number_observations(log), episode_folds(log, 5, 0)
    target = target_of(policy, log, **options)
    return float(tabular_values(log, states, folds, [target] * 5).target[log.starts[:-1]].mean())


@pytest.mark.full
def test_logged_icu_stays_give_nearly_the_exact_value():
    problem, expert = icu_sepsis(shared("data/icu_sepsis/dynamics.npz"))
    log = played(problem, expert, 4_000)
    uniform = np.full((problem.states, problem.actions), 1 / problem.actions)
    found = start_value(log, policy_of(problem, uniform), sample=True)
    assert found == pytest.approx(0.7800709046, abs=0.03)  # oracles/icu_sepsis.json; 0 of 3 other seeds fail


def test_a_time_limit_in_the_log_is_a_time_limit_in_the_values():
    problem = random_problem(horizon=3)
    behavior_policy, policy = random_policy(problem, 3), random_policy(problem, 4)
    log = played(problem, behavior_policy, 30_000)
    assert log.truncated.any()
    # 4.5 deviations of 40 other logs: 3 in a million fail
    assert start_value(log, policy_of(problem, policy), sample=True) == pytest.approx(
        problem.value_of(policy), abs=0.06
    )


def test_an_episode_is_rated_by_models_that_never_saw_it():
    log = treated().take_episodes(range(300))
    folds, states = episode_folds(log, 3, 0), number_observations(log)
    target = target_of(policy_of(treatment(), better()), log, sample=True)
    reward = np.array(log.reward)
    reward[log.starts[7] : log.starts[8]] += 100.0
    one, two = (tabular_values(x, states, folds, [target] * 3) for x in (log, replace(log, reward=reward)))
    of = folds[log.episode]
    assert (one.all_actions[of == folds[7]] == two.all_actions[of == folds[7]]).all()
    assert np.abs(one.all_actions[of != folds[7]] - two.all_actions[of != folds[7]]).max() > 0.1


def test_counted_model_of_some_episodes_counts_them_only():
    log = treated().take_episodes(range(50))
    states = number_observations(log)
    assert count_model(log, states, np.arange(20)).visits.sum() == log.starts[20]
