"""Recurrent BCQ: one scan per network for all candidates, masked windows, and acting equal to a window."""

import dataclasses
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.own import own_critic
from tests.algorithms.worlds import compiled, drawn, small, world
from tidelog import ConfigError
from tidelog.algorithms.bcq import drawn as noise_of
from tidelog.algorithms.bcq import target_value
from tidelog.algorithms.discrete_bcq import step_along
from tidelog.algorithms.short_form import held_out_losses, step
from tidelog.networks.encoder import now

close, equal = np.testing.assert_allclose, np.testing.assert_array_equal
LOG = world("continuous")
H = small("bcq", recurrent_size=5, window=3, burn_in=1, batch_size=16)


@cache
def sampled():
    with jax.ensure_compile_time_eval():  # also where a program asks first
        return drawn(H, LOG)


def fresh(h=H):
    return h.init(LOG.spec, jax.random.key(0), 9)


def scans(h):
    """Return the carry shapes of every recurrent scan of one update."""
    arrays, rest = eqx.partition((fresh(h), drawn(h, LOG)), eqx.is_array)
    traced = jax.make_jaxpr(lambda a: step(h, *eqx.combine(a, rest))[1].metrics)(arrays)
    found = []

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "scan":
                found.append(equation.outvars[0].aval.shape)
            for parameter in equation.params.values():
                inner = getattr(parameter, "jaxpr", parameter)
                if hasattr(inner, "eqns"):
                    walk(inner)

    walk(traced.jaxpr)
    return found


@pytest.mark.full
def test_candidates_do_not_multiply_the_scan():
    few, many = scans(dataclasses.replace(H, target_samples=2)), scans(dataclasses.replace(H, target_samples=9))
    assert few == many
    assert set(many) == {(16, 5), (5, 15)}  # forward carries; backward, the gradient of their weights


@pytest.mark.full
def test_what_followed_is_rated_from_its_predecessors_state():
    state, row = fresh(), sampled().data
    noise = noise_of(H, state, sampled(), jax.random.key(1))
    found = target_value(H, state, row, noise.after)
    assert found.shape == row.reward.shape == (16, 4)

    def seen(network):
        return network.encoder.both(row)[1]

    made = [state.generator.decode(seen(state.generator), z) for z in noise.after]
    correct = state.target_perturbation
    moved = [jnp.clip(a + 0.05 * correct(seen(correct), a), -1, 1) for a in made]
    rated = jnp.stack([jnp.stack([m(seen(m), a) for m in state.target_critic.members]) for a in moved])
    mixed = 0.75 * rated.min(axis=1) + 0.25 * rated.max(axis=1)
    close(found, row.reward + row.discount * mixed.max(axis=0), rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_steps_that_do_not_count_are_in_no_loss():
    state, row, valid = fresh(), sampled().data, np.asarray(sampled().valid)
    assert not valid.all()
    assert not valid[:, 0].any()
    shifted = row._replace(
        reward=jnp.where(valid, row.reward, 1e3), action=jnp.where(valid[..., None], row.action, 0.77)
    )
    plain, other = (
        held_out_losses(H, state, sampled()._replace(data=data), jax.random.key(0)) for data in (row, shifted)
    )
    jax.tree.map(lambda a, b: close(a, b, rtol=1e-6), plain, other)
    one, told = compiled(step)(H, state, sampled())
    two, _ = compiled(step)(H, state, sampled()._replace(data=shifted))
    for part in ("generator", "critic", "perturbation"):
        jax.tree.map(lambda a, b: close(a, b, atol=1e-6), getattr(one, part), getattr(two, part))
    assert told.priority.shape == (16,)
    everything = sampled()._replace(valid=jnp.ones_like(sampled().valid))
    three, _ = compiled(step)(H, state, everything._replace(data=shifted))
    gaps = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), one.critic, three.critic)
    assert max(jax.tree.leaves(gaps)) > 1e-4


@pytest.mark.sample("None")
@pytest.mark.parametrize("seed", [None, 0])
def test_acting_goes_on_from_what_was_seen(seed):
    params = H.policy_params(fresh())
    rows = [{name: leaf[LOG.position[t : t + 3]] for name, leaf in LOG.observation.items()} for t in range(4)]
    key = None if seed is None else jax.random.key(seed)
    carry = H.initial_state(params, 3)
    assert carry.shape == (3, 15)

    @eqx.filter_jit
    def act(params, row, carry):
        return H.act(params, row, carry=carry, key=key)

    for row in rows:
        done = act(params, row, carry)
        carry = done.carry
    carry = np.asarray(carry)
    forgotten = act(params, rows[-1], None)
    assert float(np.abs(np.asarray(done.action) - np.asarray(forgotten.action)).max()) > 1e-4
    assert done.log_probability is None
    window, real = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}, np.ones((3, 4), bool)
    seen = np.asarray(eqx.filter_jit(params.generator.encoder)(window, real))
    close(carry[:, :5], seen[:, -1], atol=1e-6)
    # each unit is its own network's: a reset of one does not change the others
    for part, network in enumerate((params.generator, params.perturbation, params.critic)):
        alone = np.asarray(eqx.filter_jit(network.encoder)(window, real))[:, -1]
        close(carry[:, 5 * part : 5 * part + 5], alone, atol=1e-6)


@pytest.mark.full
def test_many_rows_act_in_blocks_with_their_memories():
    params = H.policy_params(fresh())
    pick = np.arange(300) % LOG.steps
    many = {name: leaf[LOG.position[pick]] for name, leaf in LOG.observation.items()}
    carry = jax.random.normal(jax.random.key(3), (300, 15))
    done = H.act(params, many, carry=carry)
    for row in (0, 255, 256, 299):
        alone = H.act(params, {n: leaf[row : row + 1] for n, leaf in many.items()}, carry=carry[row : row + 1])
        close(done.action[row], alone.action[0], atol=1e-5)
        close(done.carry[row], alone.carry[0], atol=1e-6)


def test_features_made_before_are_taken_as_they_are():
    state, row = fresh(small("bcq")), drawn(small("bcq"), LOG).data
    critic = state.critic.members[0]
    made = eqx.filter_jit(now)(critic, row)
    rated = eqx.filter_jit(critic)
    close(rated(made, row.action), rated(row.observation, row.action), atol=1e-7)


def test_a_memory_is_for_its_own_networks():
    with pytest.raises(ConfigError, match=r"BCQ\.recurrent_size = 3 does not support networks of your own"):
        small("bcq", recurrent_size=3, critic_network=own_critic)


def test_discrete_networks_go_on_from_what_each_of_them_saw():
    h, log = small("discrete-bcq", recurrent_size=5, window=3), world("discrete")
    params = h.policy_params(h.init(log.spec, jax.random.key(0), 9))
    rows = [{name: leaf[log.position[t : t + 3]] for name, leaf in log.observation.items()} for t in range(4)]
    carry, along = h.initial_state(params, 3), eqx.filter_jit(step_along)
    for row in rows:
        values, logits, carry = along(params, row, carry)
    window, real = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}, np.ones((3, 4), bool)
    every, policy = (eqx.filter_jit(part)(window, real=real) for part in (params.critic.all_actions, params.imitator))
    close(values, np.asarray(every)[:, -1], atol=1e-6)
    close(logits, np.asarray(policy.logits)[:, -1], atol=1e-6)
    first, _, _ = along(params, rows[-1], h.initial_state(params, 3))
    assert float(np.abs(np.asarray(values) - np.asarray(first)).max()) > 1e-4
