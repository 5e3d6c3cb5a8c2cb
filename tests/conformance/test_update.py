"""Requirements of every algorithm's update."""

import equinox as eqx
import jax
import numpy as np
import pytest

from tests.algorithms.worlds import ACTIONS, world
from tests.conformance.cases import differ, finite, last_layer, same
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


@pytest.mark.sample(every=3)
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
