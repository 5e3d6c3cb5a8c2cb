import json

import numpy as np
import pytest

from benchmarks.icu_sepsis import icu_sepsis
from tests.envs.corridor import chain
from tests.shared import shared
from tidelog.envs import tabular
from tidelog.envs.tabular import Tabular, TabularEnvironment, View
from tidelog.errors import ConfigError, SpecError
from tidelog.types import Vector


def coin(**changes):
    """One decision: action 0 earns 1 with probability 1/4 and ends; action 1 earns 0.1 and stays."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0] = [0, 0.25, 0.75]
    transition[0, 1, 0] = transition[1, :, 1] = transition[2, :, 2] = 1
    reward = np.zeros((3, 2, 3))
    reward[0, 0, 1], reward[0, 1, 0] = 1.0, 0.1
    arrays = {
        "transition": transition,
        "reward": reward,
        "initial": np.eye(3)[0],
        "final": np.array([False, True, True]),
    }
    return Tabular(**{**arrays, **changes})


def test_values_by_hand():
    half = np.full((3, 2), 0.5)
    # v = (0.25 + 0.1 + 0.9 v) / 2
    assert coin().value_of(half, discount=0.9) == pytest.approx(0.175 / 0.55, abs=1e-12)
    assert coin().value_of(np.array([0, 0, 0])) == pytest.approx(0.25)
    # q = (0.25, 0.1 + 0.9 v)
    np.testing.assert_allclose(coin().action_values(half, 0.9)[0], [0.25, 0.1 + 0.9 * 0.175 / 0.55])
    value, policy = coin().optimal(0.5)  # staying for ever is worth 0.1 / (1 - 0.5) = 0.2 < 0.25
    assert value == pytest.approx(0.25)
    assert policy[0].tolist() == [1, 0]
    assert coin().optimal(0.9)[0] == pytest.approx(1.0, abs=1e-10)


def test_a_reward_without_successors_means_the_same():
    short = coin(reward=np.array([[0.25, 0.1], [5.0, 5.0], [5.0, 5.0]]))  # final states earn nothing
    half = np.full((3, 2), 0.5)
    assert short.expected_reward.tolist() == [[0.25, 0.1], [0, 0], [0, 0]]
    assert short.value_of(half, 0.9) == pytest.approx(coin().value_of(half, 0.9), abs=1e-12)


def test_a_horizon_counts_that_many_rewards():
    # wait twice, then leave: 0.1 + 0.1 + 0.25
    problem = coin(horizon=3)
    value, policy = problem.optimal()
    assert value == pytest.approx(0.45)
    assert policy.shape == (3, 3, 2)
    assert policy[:, 0, 1].tolist() == [1, 1, 0]
    assert problem.value_of(policy) == pytest.approx(0.45)
    assert problem.value_of(np.array([1, 1, 1])) == pytest.approx(0.3)
    np.testing.assert_allclose(problem.action_values(policy)[:, 0, 1], [0.45, 0.35, 0.1])


def test_only_allowed_actions_are_chosen():
    allowed = np.ones((3, 2), bool)
    allowed[0, 1] = False
    assert coin(allowed=allowed).optimal(0.9)[0] == pytest.approx(0.25)
    assert coin().optimal(0.9, allowed)[0] == pytest.approx(0.25)
    with pytest.raises(ConfigError, match="no action is allowed in state 0"):
        coin(allowed=allowed).optimal(0.9, ~allowed)


def test_the_chain_is_worth_its_discounted_length():
    assert chain(5).optimal(0.9)[0] == pytest.approx(0.9**4)
    # With slip 1/2: v0 = 0.45 v1 + 0.45 v0 and v1 = 0.5 + 0.45 v0.
    assert chain(2, 0.5).optimal(0.9)[0] == pytest.approx(0.225 / (0.55 - 0.45**2))
    assert chain(1, 0.5).value_of(np.full((2, 2), 0.5)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reward": np.zeros((3, 3))}, "reward has shape"),
        ({"initial": np.array([0.5, 0.2, 0.0])}, "initial is negative or does not sum to 1"),
        ({"initial": np.array([0.5, 0.5, 0.0])}, "initial has mass on a final state"),
        ({"transition": np.full((3, 2, 3), 0.5)}, "sum to 1"),
        ({"transition": np.zeros((3, 2))}, r"\[S, A, S\]"),
        ({"horizon": 0}, "horizon"),
        ({"views": {"observation": View(Vector(4), np.zeros((2, 4)))}}, "view observation has 2 rows: expected 3"),
    ],
)
def test_arrays_that_are_no_problem_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        coin(**changes)


@pytest.mark.parametrize("policy", [np.full((3, 2), 0.4), np.zeros(3), np.zeros((2, 3, 2))])
def test_policies_that_are_none_are_refused(policy):
    with pytest.raises(ConfigError, match=r"policy"):
        coin().value_of(policy)


def test_a_policy_that_never_ends_has_no_undiscounted_value():
    with pytest.raises(ConfigError, match="never ends"):
        coin().value_of(np.array([1, 1, 1]))


def test_play_agrees_with_the_arrays():
    environment = TabularEnvironment(coin(), 20_000)
    assert environment.reset(0).observation["observation"].tolist() == [[0]] * 20_000
    outcome = environment.step(np.zeros(20_000, int))
    arrived = outcome.next_observation.observation["observation"][:, 0]
    assert set(arrived.tolist()) == {1, 2}
    # 4.9 standard errors: right play fails for 1 in a million seeds
    assert (arrived == 1).mean() == pytest.approx(0.25, abs=0.015)
    np.testing.assert_array_equal(outcome.reward, (arrived == 1).astype(np.float32))
    assert outcome.terminated.all()
    assert not outcome.truncated.any()
    assert (outcome.current_observation.observation["observation"] == 0).all()
    stayed = environment.step(np.ones(20_000, int))
    assert not stayed.terminated.any()
    np.testing.assert_allclose(stayed.reward, 0.1, rtol=1e-6)


def test_every_row_is_sampled_from_its_own_probabilities():
    generator = np.random.default_rng(0)
    chances = generator.dirichlet(np.full(7, 0.3), size=(6, 3))
    chances[..., 2] = 0.0
    chances /= chances.sum(-1, keepdims=True)
    full = np.zeros((8, 3, 8))
    full[:6, :, :7] = chances
    full[6:, :, 7] = 1.0
    initial = np.r_[np.full(6, 1 / 6), 0.0, 0.0]
    environment = TabularEnvironment(Tabular(full, np.zeros((8, 3)), initial, np.arange(8) >= 6), 60_000)
    before = environment.reset(1).observation["observation"][:, 0]
    action = generator.integers(3, size=60_000)
    after = environment.step(action).next_observation.observation["observation"][:, 0]
    counts = np.zeros((8, 3, 8))
    np.add.at(counts, (before, action, after), 1)
    drawn = counts[:6] / counts[:6].sum(-1, keepdims=True)
    np.testing.assert_allclose(drawn, full[:6], atol=0.04)  # right play fails for 4 in 100,000 seeds
    assert counts[:, :, 2].sum() == 0


def test_the_horizon_truncates_and_shows_what_followed():
    environment = TabularEnvironment(coin(horizon=2), 2)
    environment.reset(0)
    first = environment.step(np.array([1, 1]))
    assert not first.truncated.any()
    second = environment.step(np.array([1, 0]))
    assert second.truncated.tolist() == [True, False]  # the final state was reached just in time: not cut off
    assert second.terminated.tolist() == [False, True]
    assert not environment.step(np.array([1, 1])).truncated.any()
    assert environment.step(np.array([1, 1])).truncated.all()  # the clock started anew with the episode


def test_masks_are_shown_and_kept():
    allowed = np.array([[False, True], [True, True], [True, True]])
    environment = TabularEnvironment(coin(allowed=allowed), 2)
    assert environment.spec.masked
    assert environment.reset(0).action_mask.tolist() == [[False, True]] * 2
    with pytest.raises(SpecError, match="state 0: action 0 is forbidden"):
        environment.step(np.array([1, 0]))


@pytest.mark.parametrize("action", [np.zeros(3, int), np.zeros((2, 1), int), np.array([0, 2]), np.array([0.0, 1.0])])
def test_wrong_actions_are_refused(action):
    environment = TabularEnvironment(coin(), 2)
    environment.reset(0)
    with pytest.raises(SpecError):
        environment.step(action)


@pytest.fixture(scope="module")
def icu():
    return icu_sepsis(shared("data/icu_sepsis/dynamics.npz"))


@pytest.mark.full
def test_icu_sepsis_has_its_published_values(icu):
    problem, expert = icu
    oracle = json.loads(shared("oracles/icu_sepsis.json").read_text())
    known, uniform = oracle["value_gamma_1"], np.full_like(expert, 1 / 25)
    best, policy = problem.optimal()
    # The oracle file prints ten decimals, and six for the half-and-half policy.
    assert problem.value_of(uniform) == pytest.approx(known["uniform_random"], abs=1e-8)
    assert problem.value_of(expert) == pytest.approx(known["expert"], abs=1e-8)
    assert problem.value_of((expert + uniform) / 2) == pytest.approx(known["half_expert_half_uniform"], abs=5e-7)
    assert best == pytest.approx(known["optimal"], abs=1e-8)
    assert problem.value_of(policy) == pytest.approx(known["optimal"], abs=1e-8)


def test_what_never_converges_is_refused(monkeypatch):
    monkeypatch.setattr(tabular, "_SWEEPS", 50)
    with pytest.raises(ConfigError, match=r"no convergence after 50 sweeps\. fix: use a discount below 1"):
        coin().optimal()  # action 1 earns forever
    assert coin().optimal(0.5)[0] == pytest.approx(0.25)  # action 1 earns 0.2
