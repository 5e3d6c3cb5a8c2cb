"""Requirements of every policy: allowed actions only, correct probabilities, and correct mixtures."""

import equinox as eqx
import numpy as np
import pytest

from tests.algorithms.worlds import ACTIONS
from tests.conformance.cases import CASES, DETERMINISTIC

ROWS = 4000
DISCRETE = [case for case in CASES if case.kind == "discrete"]
discrete = pytest.mark.parametrize("case", DISCRETE, ids=lambda case: case.name)
MIXED = [None, 0.3]


def many(case):
    """Observations and random masks [ROWS, ...]; every row allows one to three of four actions."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, len(case.log), ROWS)
    mask = rng.random((ROWS, ACTIONS)) < 0.5
    mask[np.arange(ROWS), rng.integers(0, ACTIONS, ROWS)] = True
    mask[mask.all(1), 0] = False
    return {name: leaf[rows] for name, leaf in case.observation.items()}, mask


@eqx.filter_jit
def modes(policy):
    """Return the most likely action of every row."""
    return policy.mode()


@eqx.filter_jit
def probabilities(policy):
    """Return the probability of every action."""
    return policy.probabilities()


def mixing(case, epsilon):
    """Return the case with that epsilon, or unchanged."""
    return case if epsilon is None else case.but(epsilon=epsilon)


@discrete
@pytest.mark.parametrize("epsilon", MIXED)
@pytest.mark.sample(every=3)
def test_forbidden_actions_are_never_taken(case, epsilon):
    case = mixing(case, epsilon)
    observation, mask = many(case)
    for seed in (None, 0):
        act = case.chosen(case.init(), observation, mask, seed)
        assert mask[np.arange(ROWS), act.action].all()
        assert np.isfinite(act.log_probability).all()
    free = case.chosen(case.init(), observation, np.ones_like(mask)).action
    assert not mask[np.arange(ROWS), free].all()


@discrete
@pytest.mark.parametrize("epsilon", MIXED)
@pytest.mark.sample(every=3)
def test_probabilities_are_0_where_forbidden_and_sum_to_1(case, epsilon):
    case = mixing(case, epsilon)
    observation, mask = many(case)
    chances = np.asarray(probabilities(case.policy(case.init(), observation, mask)))
    assert (chances[~mask] == 0.0).all()
    np.testing.assert_allclose(chances.sum(1), 1.0, rtol=1e-5)


@discrete
def test_epsilon_0_samples_the_mode_and_mixtures_are_exact(case):
    observation, mask = many(case)
    plain = case.policy(case.init(), observation, mask)
    never, mixed = case.but(epsilon=0.0), case.but(epsilon=0.3)
    sampled = never.chosen(case.init(), observation, mask, seed=0).action
    np.testing.assert_array_equal(sampled, modes(plain))
    found = mixed.policy(case.init(), observation, mask)
    wanted = 0.3 * np.asarray(probabilities(plain)) + 0.7 * np.eye(ACTIONS)[modes(plain)]
    np.testing.assert_allclose(probabilities(found), wanted, rtol=1e-5, atol=1e-7)
    act = mixed.chosen(case.init(), observation, mask, seed=1)
    np.testing.assert_allclose(
        np.exp(act.log_probability), wanted[np.arange(ROWS), act.action], rtol=1e-5, err_msg="of the mixture"
    )


@discrete
@pytest.mark.parametrize("epsilon", MIXED)
def test_samples_are_as_frequent_as_probabilities_say(case, epsilon):
    case = mixing(case, epsilon)
    row = {name: np.repeat(leaf[:1], ROWS, axis=0) for name, leaf in case.observation.items()}
    mask = np.ones((ROWS, ACTIONS), bool)
    chances = np.asarray(probabilities(case.policy(case.init(), row, mask)))[0]
    sampled = np.asarray(case.chosen(case.init(), row, mask, seed=2).action)
    share = np.bincount(sampled, minlength=ACTIONS) / ROWS
    # a right sampler fails for 3 in 100,000 seeds
    assert (np.abs(share - chances) < 4.5 * np.sqrt(chances * (1 - chances) / ROWS) + 1e-9).all()
    assert (chances > 0.01).sum() > 1


@discrete
def test_q_values_rate_every_action_or_there_are_none(case):
    found = eqx.filter_jit(case.algorithm.q_values)(case.algorithm.policy_params(case.init()), case.observation)
    assert found is None or found.shape == (len(case.log), ACTIONS)
    if hasattr(case.init(), "critic"):
        critic = case.init().critic
        members = getattr(critic, "members", (critic,))
        values = eqx.filter_jit(lambda members, seen: [member.all_actions(seen) for member in members])
        np.testing.assert_allclose(found, np.min(values(members, case.observation), axis=0), rtol=1e-5)


def test_without_a_key_acting_repeats_itself_and_keys_decide_samples(case):
    state = case.init()
    np.testing.assert_array_equal(case.act(state).action, case.act(state).action)
    np.testing.assert_array_equal(case.act(state, 5).action, case.act(state, 5).action)
    differs = (np.asarray(case.act(state, 5).action) != np.asarray(case.act(state, 6).action)).any()
    assert differs == (case.name not in DETERMINISTIC)


def test_actions_have_the_logs_shape(case):
    act = case.act(case.init(), 0)
    assert act.action.shape == case.log.action.shape
    has_density = case.name not in ("bcq", "fql", *DETERMINISTIC)
    assert has_density == (act.log_probability is not None)
    if has_density:
        assert act.log_probability.shape == (len(case.log),)


def test_continuous_epsilon_mixes_samples_with_the_mean_and_has_no_density(case):
    if case.kind in ("discrete", "multi") or not hasattr(case.algorithm, "epsilon"):
        return
    mixed = case.but(epsilon=0.5)
    act, mean = mixed.act(mixed.init(), 0), mixed.act(mixed.init()).action
    at_mean = np.isclose(act.action, mean, rtol=0.0, atol=1e-6)  # of two programs: their last bits can differ
    numbers = at_mean[:, :1] if case.kind == "hybrid" else at_mean
    at_mode = numbers.all(axis=1)
    assert act.log_probability is None
    assert at_mean[at_mode].all()  # one draw decides for all parts
    assert 0.25 < at_mode.mean() < 0.75  # of 65 rows; a right mixture fails for 5 in 100,000 seeds
    assert not numbers.any(axis=1)[~at_mode].any()


def test_epsilon_mixes_samples_of_several_choices_with_their_mode(case):
    if case.kind != "multi" or not hasattr(case.algorithm, "epsilon"):
        return
    rows, every = slice(0, 5), np.stack(np.divmod(np.arange(9), 3), axis=1)
    mixed, observation = case.but(epsilon=0.25), {name: leaf[:5] for name, leaf in case.observation.items()}
    state = mixed.init()
    policy, plain = mixed.policy(state, observation), case.policy(state, observation)
    chances = np.exp([policy.log_probability(np.tile(choice, (5, 1))) for choice in every])
    pure = np.exp([plain.log_probability(np.tile(choice, (5, 1))) for choice in every])
    at_mode = (every[:, None] == np.asarray(mixed.act(state).action)[None, rows]).all(axis=2)
    np.testing.assert_allclose(chances, 0.25 * pure + 0.75 * at_mode, atol=1e-6)
    np.testing.assert_allclose(pure.sum(axis=0), 1.0, atol=1e-5)
