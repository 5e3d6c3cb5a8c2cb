"""Requirements of every algorithm's update and policy."""

import equinox as eqx
import jax
import numpy as np
import pytest

from tests.algorithms.worlds import ACTIONS, world
from tests.conformance.cases import CASES, DETERMINISTIC, differ, finite, last_layer, same
from tidelog.algorithms.contract import Algorithm
from tidelog.training.loop import as_arrays


def test_it_is_an_algorithm(case):
    assert isinstance(case.algorithm, Algorithm)
    assert set(case.algorithm.stores(case.log.spec)) == {case.phase.samplers.store}


@pytest.mark.full
@pytest.mark.sample(every=2, others="slow")
def test_compiled_is_what_is_not_compiled(case):
    state, feedback = case.step(case.init(), case.batch())
    plain_state, plain_feedback = case.phase.step(as_arrays(case.algorithm), case.init(), case.batch())
    same(state, plain_state, rtol=1e-4, atol=1e-5)
    same(feedback, plain_feedback, rtol=1e-4, atol=1e-5)


def test_the_same_seed_is_the_same_state_and_another_is_another(case):
    same(case.init(3), case.init(3))
    params = case.algorithm.policy_params
    assert differ(params(case.init(3)), params(case.init(4)), by=0.1)


@pytest.mark.sample("bc-discrete", "discrete-bcq-discrete")
def test_a_batch_of_one(case):
    one = case.but(batch_size=1)
    assert one.batch().rows.shape == (1,)
    state, feedback = one.step(one.init(), one.batch())
    assert finite((state, feedback))
    assert differ(state, one.init())
    row = jax.tree.map(lambda leaf: leaf[:1], case.observation)
    assert case.chosen(state, row, seed=0).action.shape[0] == 1


def test_three_updates_move_every_network_and_stay_finite(case):
    state = case.after(3)
    assert finite(state)
    assert int(state.step) == 3
    networks = [part for part in state._fields if isinstance(getattr(state, part), eqx.Module)]
    assert networks
    for part in networks:
        least = 1e-5 if part.startswith("target_") else 1e-4  # a target moves by a small share
        assert differ(getattr(state, part), getattr(case.init(), part), by=least), part


def test_every_target_network_is_read_and_moves(case):
    state, batch = case.init(), case.batch()
    moved, _ = case.step(state, batch)
    for name in (field for field in state._fields if field.startswith("target_")):
        shifted = jax.tree.map(lambda leaf: np.asarray(leaf) + np.float32(0.5), getattr(state, name))
        other, _ = case.step(state._replace(**{name: shifted}), batch)
        rest = [field for field in state._fields if field != name]
        assert differ([getattr(moved, f) for f in rest], [getattr(other, f) for f in rest], by=1e-4), f"{name} unread"
        assert differ(getattr(moved, name), getattr(state, name), by=1e-6), f"{name} stands still"


@pytest.mark.sample(every=2)
def test_losses_without_a_step_are_finite_numbers_and_need_no_key(case):
    losses = eqx.filter_jit(case.phase.losses)
    found = losses(case.algorithm, case.init(), case.batch(), jax.random.key(0))
    again = losses(case.algorithm, case.init(), case.batch(), jax.random.key(1))
    assert found
    assert all(value.shape == () and np.isfinite(value) for value in found.values())
    same(found, again)


@pytest.mark.sample("iql-discrete", "bcq-continuous", "discrete-bcq-discrete")
def test_a_row_of_weight_0_has_no_influence(case):
    if case.name == "rebrac":
        case = case.but(critic_penalty=0.0)  # it reads the action of the next row, whatever that row's weight
    log = case.log
    silent = np.arange(len(log)) % 2 == 0
    weighted = world(case.kind, weight=np.where(silent, 0.0, 1.5))
    action = np.roll(log.action[silent], 1, axis=0)
    if log.action_mask is not None:
        action = log.action_mask[log.position[silent]].argmax(1)  # some other action that is allowed there
    changes = {"action": log.action.copy(), "reward": log.reward.copy()}
    changes["action"][silent], changes["reward"][silent] = action, 100.0
    same(case.after(3, weighted), case.after(3, world(case.kind, weight=weighted.weight, **changes)))
    assert differ(case.after(3, weighted), case.after(3, world(case.kind, weight=1.0 + weighted.weight, **changes)))


@pytest.mark.sample("iql-discrete", "bcq-continuous")
def test_equal_weights_of_one_are_no_weights(case):
    same(case.after(3, world(case.kind, weight=np.ones(len(case.log)))), case.after(3), atol=1e-6)


@pytest.mark.sample(every=3)
def test_a_constant_factor_on_all_weights_changes_nothing(case):
    weight = np.random.default_rng(0).gamma(2.0, size=len(case.log)).astype(np.float32)
    found = case.after(3, world(case.kind, weight=weight))
    same(found, case.after(3, world(case.kind, weight=np.float32(1024.0) * weight)))  # a power of 2: to the last bit
    same(found, case.after(3, world(case.kind, weight=np.float32(0.013) * weight)), rtol=1e-3, atol=1e-4)
    assert differ(found, case.after(3), by=1e-4)


def test_forbidden_actions_pull_at_nothing(case):
    if case.log.action_mask is None:
        return
    forbidden = ACTIONS - 1
    mask = case.log.action_mask.copy()
    mask[:, forbidden], mask[:, 0] = False, True
    action = np.where(case.log.action == forbidden, 0, case.log.action)
    barred = world(case.kind, action=action, action_mask=mask[case.log.position])
    before, after = last_layer(case.init()), last_layer(case.after(3, barred))
    old, new = np.asarray(before.weight), np.asarray(after.weight)
    np.testing.assert_array_equal(new[:, forbidden], old[:, forbidden])
    assert np.abs(new[:, :forbidden] - old[:, :forbidden]).max() > 1e-3
    assert finite(after)


# Requirements of every policy: allowed actions only, correct probabilities, and correct mixtures.


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
