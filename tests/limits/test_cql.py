"""CQL at the limits of its hyper-parameters: SAC, double Q-learning, and cloning."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import compiled, drawn, small, world
from tests.limits.test_dials import distance, fresh, same
from tidelog.algorithms.cql import several_samples, soft_maximum, weightless_beyond
from tidelog.algorithms.short_form import step
from tidelog.networks.actors import Gaussian

stepped = compiled(step)
MOVES, LOG = world("continuous"), world("discrete")


def test_discrete_cql_with_alpha_0_is_double_q_learning():
    own = small("discrete-cql", alpha=0.0)
    other = small("discrete-bcq", threshold=0.0, logit_penalty=0.0)
    one, two = fresh(own), fresh(other)
    two = two._replace(critic=one.critic, target_critic=one.target_critic)
    for seed in range(3):
        batch = drawn(own, LOG, seed)
        one, two = stepped(own, one, batch)[0], stepped(other, two, batch)[0]
    same(one.critic, two.critic, atol=1e-6)
    same(one.target_critic, two.target_critic, atol=1e-6)
    held = stepped(dataclasses.replace(own, alpha=1.0), fresh(own), drawn(own, LOG))[0]
    assert distance(held.critic, stepped(own, fresh(own), drawn(own, LOG))[0].critic) > 1e-4


def test_discrete_cql_with_a_large_alpha_clones():
    own, bc = small("discrete-cql", alpha=1e6, learning_rate=0.05), small("bc", learning_rate=0.05)
    one, two = fresh(own), fresh(bc)
    batch = drawn(own, LOG)
    for _ in range(150):
        one, two = stepped(own, one, batch)[0], stepped(bc, two, batch)[0]
    row = batch.data
    values = np.where(row.mask, eqx.filter_jit(one.critic.all_actions)(row.observation), -np.inf)
    policy = eqx.filter_jit(two.actor)(row.observation, mask=row.mask)
    assert (values.argmax(axis=1) == np.asarray(row.action)).mean() > 0.9
    np.testing.assert_array_equal(values.argmax(axis=1), policy.mode())


def test_cql_with_alpha_0_is_sac():
    h = small("cql", alpha=0.0, entropy_weight=0.3, samples=1)
    state, batch = fresh(h, MOVES.spec), drawn(h, MOVES)
    row = batch.data

    @jax.jit
    def by_hand(critics, actor, key):
        now_key, next_key, _ = jax.random.split(key, 3)
        following = actor(row.next_observation)
        actions, _ = several_samples(following, next_key, 2)
        next_q = jnp.min(state.target_critic(row.next_observation, jnp.clip(actions[0], -1.0, 1.0)), axis=0)
        target = row.reward + row.discount * next_q
        return jnp.mean(jnp.sum(jnp.square(critics(row.observation, row.action) - target), axis=0)), now_key

    moved, feedback = stepped(h, state, batch)
    loss, key = by_hand(state.critic, moved.actor, jax.random.fold_in(state.key, 0))
    np.testing.assert_allclose(feedback.metrics["critic_loss"], loss, rtol=1e-5)
    policy = eqx.filter_jit(state.actor)(row.observation)
    actions, logs = several_samples(policy, key, 2)
    likely = jnp.maximum(logs[0], -MOVES.spec.action.size * np.log(2.0))  # of the uniform distribution
    wanted = jnp.mean(0.3 * likely - jnp.min(state.critic(row.observation, jnp.clip(actions[0], -1.0, 1.0)), axis=0))
    np.testing.assert_allclose(feedback.metrics["actor_loss"], wanted, rtol=1e-5)


@pytest.mark.parametrize("weight", [None, 0.3])
def test_a_fixed_weight_of_the_entropy_stays(weight):
    h = small("cql", entropy_weight=weight, samples=2)
    state, feedback = stepped(h, fresh(h, MOVES.spec), drawn(h, MOVES))
    assert (float(state.entropy) == 0.0) == (weight is not None)
    assert ("entropy_loss" in feedback.metrics) == (weight is None)
    expected = float(jnp.exp(state.entropy)) if weight is None else weight
    assert float(feedback.metrics["entropy_weight"]) == pytest.approx(expected, rel=1e-6)


def test_many_samples_estimate_the_integral_by_any_density():
    """Of `exp(2 a)` over [-1, 1], by uniform samples, and by a narrow policy within the bounds."""
    truth = np.log((np.exp(2.0) - np.exp(-2.0)) / 2)
    uniform = jax.random.uniform(jax.random.key(0), (20_000,), minval=-1.0, maxval=1.0)
    found = soft_maximum(2.0 * uniform[None, :, None], jnp.full((20_000, 1), -np.log(2.0)))
    assert float(found[0, 0]) == pytest.approx(truth, abs=0.03)
    policy = Gaussian(jnp.full((1, 1), 0.1), jnp.asarray([-0.5]))
    actions, logs = several_samples(policy, jax.random.key(1), 50_000)
    inside = weightless_beyond(actions, logs)
    assert 0.05 < float(jnp.isinf(inside).mean()) < 0.2
    assert float(soft_maximum(2.0 * actions[None, ..., 0], inside)[0, 0]) == pytest.approx(truth, abs=0.05)


def test_samples_that_the_bounds_cut_have_no_part_in_the_integral():
    """Of `exp(0)` over [-1, 1]^6 it is 6 log 2, also by a policy nine tenths of whose samples are beyond the bounds."""
    policy = Gaussian(jnp.zeros((1, 6)), jnp.zeros(6))
    actions, logs = several_samples(policy, jax.random.key(0), 50_000)
    inside = weightless_beyond(actions, logs)
    assert 0.85 < float(jnp.isinf(inside).mean()) < 0.95
    assert float(soft_maximum(jnp.zeros((1, 50_000, 1)), inside)[0, 0]) == pytest.approx(6 * np.log(2.0), abs=0.05)


def test_the_conservative_term_lowers_values_at_the_bounds():
    row = drawn(small("cql"), MOVES).data
    gaps = []
    for alpha in (0.0, 10.0):
        h = small("cql", alpha=alpha, samples=4, entropy_weight=0.1)
        state = fresh(h, MOVES.spec)
        for seed in range(150):
            state, _ = stepped(h, state, drawn(h, MOVES, seed))
        bound = np.sign(np.random.default_rng(0).standard_normal(row.action.shape)).astype(np.float32)
        q = [np.asarray(eqx.filter_jit(state.critic)(row.observation, a)) for a in (row.action, bound)]
        gaps.append(float((q[0] - q[1]).mean()))
    assert gaps[1] > gaps[0] + 0.2  # 0.04 and 0.38; the integral gives corners no more weight than the rest
