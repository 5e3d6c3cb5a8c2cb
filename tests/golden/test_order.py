"""The inputs of each part of an IQL update: recomputed outside the update, with the old and the new networks."""

import dataclasses
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import compiled, drawn, small, world
from tests.golden.lines import batch as line_batch
from tests.golden.lines import plain
from tests.golden.test_iql import HAND, start
from tidelog.algorithms.short_form import step

LOG = world("discrete")
H = small("iql", optimiser=plain, actor_schedule="constant", value_learning_rate=1.0, tau=0.25)


@cache
def sampled():
    with jax.ensure_compile_time_eval():  # also where a program asks first
        return drawn(H, LOG)


@pytest.fixture(scope="module")
def before():
    """Return a state whose target critics differ from its critics."""
    state = H.init(LOG.spec, jax.random.key(0), 100)
    return state._replace(target_critic=H.init(LOG.spec, jax.random.key(1), 100).critic)


@pytest.fixture(scope="module")
def after(before):
    return compiled(step)(H, before, sampled())[0]


def at_actions(values):
    return jnp.take_along_axis(values, sampled().data.action[:, None], axis=1)[:, 0]


@eqx.filter_jit
def smallest_q(critics):
    return jnp.min(jnp.stack([at_actions(c.all_actions(sampled().data.observation)) for c in critics.members]), axis=0)


def descended(loss, network, rate):
    return jax.tree.map(lambda leaf, slope: leaf - rate * slope, network, jax.grad(loss)(network))


@eqx.filter_jit
def expected_value(before, q):
    def loss(value):
        u = q - value(sampled().data.observation)
        return jnp.mean(jnp.where(u > 0, H.expectile, 1 - H.expectile) * u**2)

    return descended(loss, before.value, H.value_learning_rate)


@eqx.filter_jit
def expected_actor(before, value):
    advantage = smallest_q(before.target_critic) - value(sampled().data.observation)
    weight = jnp.minimum(jnp.exp(H.temperature * advantage), H.max_weight)

    def loss(actor):
        logits = actor.head(actor.trunk(actor.encoder(sampled().data.observation)))
        chances = jnp.where(sampled().data.mask, jnp.exp(logits), 0.0)
        return -jnp.mean(weight * jnp.log(at_actions(chances) / chances.sum(1)))

    return descended(loss, before.actor, H.actor_learning_rate)


@eqx.filter_jit
def expected_critic(before, value):
    target = sampled().data.reward + sampled().data.discount * value(sampled().data.next_observation)

    def loss(critic):
        errors = [at_actions(c.all_actions(sampled().data.observation)) - target for c in critic.members]
        return sum(jnp.mean(e**2) for e in errors)

    return descended(loss, before.critic, H.critic_learning_rate)


def distance(one, two):
    """Return the largest difference between two networks of one shape."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def test_value_reads_the_smallest_of_the_target_critics(before, after):
    assert distance(after.value, expected_value(before, smallest_q(before.target_critic))) < 1e-5
    assert distance(after.value, expected_value(before, smallest_q(before.critic))) > 1e-2
    largest = np.max(eqx.filter_jit(before.target_critic)(sampled().data.observation, sampled().data.action), axis=0)
    assert distance(after.value, expected_value(before, largest)) > 1e-2


def test_actor_reads_the_new_value(before, after):
    assert distance(after.actor, expected_actor(before, after.value)) < 1e-5
    assert distance(after.actor, expected_actor(before, before.value)) > 1e-3


def test_critics_read_the_new_value(before, after):
    assert distance(after.critic, expected_critic(before, after.value)) < 1e-5
    assert distance(after.critic, expected_critic(before, before.value)) > 1e-3


def test_target_critics_move_by_their_share_of_the_gap_to_the_new_critics(before, after):
    def towards(critic):
        def one(t, c):
            return np.asarray(t) + H.tau * (np.asarray(c) - np.asarray(t))

        return jax.tree.map(one, before.target_critic, critic)

    assert distance(after.target_critic, towards(after.critic)) < 1e-6
    assert distance(after.target_critic, towards(before.critic)) > 1e-4


@pytest.mark.parametrize("period", [1, 3])
def test_target_critics_move_once_a_period(period):
    h, state, moved = dataclasses.replace(HAND, target_update_period=period), start(), []
    stepped = compiled(step)
    for update in range(1, 8):
        new, _ = stepped(h, state, line_batch())
        if distance(new.target_critic, state.target_critic) > 0:
            moved.append(update)
        state = new
    assert moved == [update for update in range(1, 8) if update % period == 0]


def test_a_fresh_target_is_a_copy_of_the_critics():
    state = H.init(LOG.spec, jax.random.key(0), 100)
    assert distance(state.target_critic, state.critic) == 0.0
    pointers = {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state.critic)}
    assert pointers.isdisjoint({leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state.target_critic)})
