"""IQL at the limits of its other hyper-parameters; offline training changes every part."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import KINDS, compiled, drawn, small, stores, world
from tidelog.algorithms.sampling import NStep
from tidelog.algorithms.short_form import step
from tidelog.networks.actors import HEADS, Categorical, EpsilonMode
from tidelog.types import Hybrid

stepped = compiled(step)
LOG = world("discrete")


def same(one, two, atol=0.0):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def distance(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def fresh(h, spec=LOG.spec, seed=0):
    return h.init(spec, jax.random.key(seed), 10)


@pytest.mark.sample("discrete")
@pytest.mark.parametrize("kind", KINDS)
def test_temperature_0_is_behaviour_cloning(kind):
    log = world(kind)
    iql, bc = small("iql", temperature=0.0), small("bc", schedule="cosine")
    one, two = fresh(iql, log.spec), fresh(bc, log.spec)
    start, two = one.actor, two._replace(actor=one.actor)
    for seed in range(5):
        batch = drawn(iql, log, seed)
        one, found = stepped(iql, one, batch)
        two, wanted = stepped(bc, two, batch)
        np.testing.assert_allclose(found.metrics["actor_loss"], wanted.metrics["imitation_loss"], rtol=1e-6)
    same(one.actor, two.actor, atol=1e-6)
    assert distance(one.actor, start) > 1e-2


@pytest.mark.parametrize("name", ["bc", pytest.param("iql", marks=pytest.mark.full)])
def test_an_action_of_one_continuous_part_is_that_part(name):
    log, h = world("continuous"), small(name)
    space = log.spec.action
    spec = dataclasses.replace(log.spec, action=Hybrid((("dose", space),)))
    one, two = fresh(h, log.spec), fresh(h, spec)
    for seed in range(3):
        one, found = stepped(h, one, drawn(h, log, seed))
        two, wanted = stepped(h, two, drawn(h, dataclasses.replace(log, spec=spec), seed))
        assert {key: float(value) for key, value in found.metrics.items()} == pytest.approx(
            {key: float(value) for key, value in wanted.metrics.items()}, rel=1e-6
        )
    networks = [(getattr(one, part), getattr(two, part)) for part in ("actor", "critic") if hasattr(one, part)]
    same(*zip(*networks, strict=True), atol=1e-6)


def test_another_temperature_is_not_behaviour_cloning():
    cold = small("iql", temperature=0.0)
    warm = dataclasses.replace(cold, temperature=1.0)
    batch = drawn(cold, LOG)
    assert distance(stepped(cold, fresh(cold), batch)[0].actor, stepped(warm, fresh(warm), batch)[0].actor) > 1e-3


def test_ten_offline_updates_move_value_critics_and_target():
    h = small("iql")
    start = state = fresh(h)
    for seed in range(10):
        state, _ = stepped(h, state, drawn(h, LOG, seed))
    for part in ("actor", "critic", "target_critic", "value"):
        for before, after in zip(
            jax.tree.leaves(getattr(start, part)), jax.tree.leaves(getattr(state, part)), strict=True
        ):
            assert float(np.abs(np.asarray(before) - np.asarray(after)).max()) > 1e-5, part
    assert int(state.step) == 10


def test_target_rate_0_holds_the_target_and_1_copies_the_critics():
    held, copied = small("iql", tau=0.0), small("iql", tau=1.0)
    batch = drawn(held, LOG)
    same(stepped(held, fresh(held), batch)[0].target_critic, fresh(held).target_critic)
    state, _ = stepped(copied, fresh(copied), batch)
    same(state.target_critic, state.critic, atol=1e-7)


@pytest.mark.sample("deterministic")
@pytest.mark.parametrize("head", HEADS)
def test_every_head_clones_one_action_of_one_state(head):
    h, log = small("bc", actor_head=head, learning_rate=0.05), world("continuous")
    state, batch = fresh(h, log.spec), drawn(h, log)
    one = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[:1], len(leaf), axis=0), batch)
    for _ in range(60):
        state, _ = stepped(h, state, one)
    found = eqx.filter_jit(h.act)(h.policy_params(state), one.data.observation).action
    # other seeds: 1, 7 and 2 of 20 fail (gaussian, state-gaussian, deterministic)
    np.testing.assert_allclose(found, one.data.action, atol=0.1)


def test_max_weight_0_leaves_the_actor_alone():
    h = small("iql", max_weight=0.0)
    same(stepped(h, fresh(h), drawn(h, LOG))[0].actor, fresh(h).actor)


def test_a_rate_of_0_leaves_its_network_alone():
    for part in ("actor", "critic", "value"):
        h = small("iql", **{f"{part}_learning_rate": 0.0})
        state, _ = stepped(h, fresh(h), drawn(h, LOG))
        for other in ("actor", "critic", "value"):
            assert (distance(getattr(state, other), getattr(fresh(h), other)) == 0.0) == (other == part)


def test_discount_0_looks_no_further_than_the_reward():
    h = small("iql", discount=0.0)
    batch = drawn(h, LOG)
    elsewhere = jax.tree.map(lambda leaf: np.asarray(leaf)[::-1], batch.data.next_observation)
    other = batch._replace(data=batch.data._replace(next_observation=elsewhere))
    same(stepped(h, fresh(h), batch)[0].critic, stepped(h, fresh(h), other)[0].critic)
    far = small("iql", discount=0.9)
    batch = drawn(far, LOG)
    other = batch._replace(data=batch.data._replace(next_observation=elsewhere))
    assert distance(stepped(far, fresh(far), batch)[0].critic, stepped(far, fresh(far), other)[0].critic) > 1e-4


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_schedule_ends_at_next_to_nothing(schedule):
    h = small("bc", schedule=schedule)
    state = fresh(h)._replace(step=jnp.int32(10))
    assert distance(stepped(h, state, drawn(h, LOG))[0].actor, state.actor) == 0.0


def test_one_step_windows_are_what_longer_windows_are_on_one_step_episodes():
    rows = len(LOG)
    single = world("discrete", episode=None, terminated=np.arange(rows) % 2 == 0, truncated=np.arange(rows) % 2 == 1)
    store = stores(small("iql"), single)["log"]
    usable = jnp.asarray(NStep(1, 0.9).rows(store)[1])
    one, five = (eqx.filter_jit(NStep(n, 0.9).gather)(store, usable).data for n in (1, 5))
    same(one, five)


def test_dropout_0_and_a_wide_clip_are_neither():
    plain, idle = small("bc"), small("bc", dropout=0.0, gradient_clip=1e6)
    batch = drawn(plain, LOG)
    same(stepped(plain, fresh(plain), batch)[0].actor, stepped(idle, fresh(idle), batch)[0].actor, atol=1e-6)


def test_dropout_differs_from_update_to_update():
    h = small("bc", dropout=0.5)
    later = fresh(h)._replace(step=jnp.int32(1))
    batch = drawn(h, LOG)
    assert distance(stepped(h, fresh(h), batch)[0].actor, stepped(h, later, batch)[0].actor) > 1e-3


def test_epsilon_1_is_the_policy_and_epsilon_0_its_mode():
    base = Categorical(np.array([[0.0, 1.0, 2.0]] * 500, np.float32))

    @eqx.filter_jit
    def said(base, epsilon):
        policy = EpsilonMode(base, epsilon)
        return policy.probabilities(), policy.sample(jax.random.key(0)), base.probabilities()

    (whole, sampled, of_base), (modes, chosen, _) = (map(np.asarray, said(base, jnp.float32(e))) for e in (1.0, 0.0))
    np.testing.assert_allclose(whole, of_base, rtol=1e-6)
    np.testing.assert_array_equal(modes[0], [0.0, 0.0, 1.0])
    assert set(sampled.tolist()) == {0, 1, 2}
    assert set(chosen.tolist()) == {2}
