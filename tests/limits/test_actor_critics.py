"""TD3+BC, ReBRAC, CQL and FQL at the limits of their hyper-parameters, and against each other."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import compiled, drawn, small, world
from tests.limits.test_dials import distance, fresh, same
from tidelog import FQL, Log, Policy, ReBRAC, SpecError, fit
from tidelog.algorithms.cql import several_samples, soft_maximum, weightless_beyond
from tidelog.algorithms.fql import integrated
from tidelog.algorithms.short_form import step
from tidelog.algorithms.td3_bc import smoothed_action
from tidelog.networks.actors import Gaussian
from tidelog.networks.layers import normal
from tidelog.ope.policies import target_of
from tidelog.runtime.load import load
from tidelog.training.loop import as_arrays

stepped = compiled(step)
LOG, CHOICES = world("continuous"), world("discrete")


def test_td3_bc_with_alpha_0_clones():
    own, bc = small("td3-bc", alpha=0.0, policy_delay=1), small("bc", actor_head="deterministic")
    one, two = fresh(own, LOG.spec), fresh(bc, LOG.spec)
    start, two = one.actor, two._replace(actor=one.actor)
    for seed in range(5):
        one, found = stepped(own, one, drawn(own, LOG, seed))
        two, wanted = stepped(bc, two, drawn(own, LOG, seed))
        size = LOG.spec.action.size  # here errors are means over an action's numbers
        np.testing.assert_allclose(size * found.metrics["actor_loss"], wanted.metrics["imitation_loss"], rtol=1e-5)
    same(one.actor, two.actor, atol=1e-5)
    assert distance(one.actor, start) > 1e-2


def test_rebrac_without_penalty_of_the_critics_has_those_of_td3_bc():
    own, td3 = small("rebrac", critic_penalty=0.0, layer_norm=False), small("td3-bc")
    state, batch = fresh(td3, LOG.spec), drawn(own, LOG)
    one, two = (stepped(h, state, batch)[0] for h in (own, td3))
    same(one.critic, two.critic)
    pulled = stepped(dataclasses.replace(own, critic_penalty=1.0), state, batch)[0]
    assert distance(one.critic, pulled.critic) > 1e-4


def test_with_one_critic_rebrac_is_td3_bc():
    sizes = {"num_critics": 1, "layer_norm": False, "policy_delay": 1}
    td3 = small("td3-bc", alpha=2.0, **sizes)
    own = small("rebrac", critic_penalty=0.0, actor_penalty=1 / (2.0 * LOG.spec.action.size), **sizes)
    one = two = fresh(td3, LOG.spec)
    for seed in range(3):
        one, two = (stepped(h, state, drawn(own, LOG, seed))[0] for h, state in ((td3, one), (own, two)))
    same(one[:4], two[:4], atol=1e-5)
    assert distance(one.actor, fresh(td3, LOG.spec).actor) > 1e-2


@pytest.mark.parametrize("name", ["td3-bc", "rebrac"])
def test_actor_and_targets_wait_and_critics_do_not(name):
    h = small(name, policy_delay=2)
    start = state = fresh(h, LOG.spec)
    for update in (1, 2):
        state, _ = stepped(h, state, drawn(h, LOG, update))
        moved = {part: distance(getattr(state, part), getattr(start, part)) > 0.0 for part in state._fields[:4]}
        waits = update == 2
        assert moved == {"actor": waits, "target_actor": waits, "critic": True, "target_critic": waits}


def test_the_noise_of_target_actions_is_clipped_and_stays_in_bounds():
    h = small("td3-bc", policy_noise=0.4, noise_clip=0.3)
    state, row = fresh(h, LOG.spec), drawn(h, LOG).data

    @eqx.filter_jit
    def noisy(h, key):
        return smoothed_action(h, state, row, key)

    still = np.asarray(noisy(as_arrays(dataclasses.replace(h, policy_noise=0.0)), jax.random.key(0)))
    away = np.stack([np.asarray(noisy(as_arrays(h), jax.random.key(seed))) for seed in range(50)])
    free = np.abs(still) < 0.65  # the bounds are out of reach
    apart = (away - still)[:, free]
    assert np.abs(apart).max() == pytest.approx(0.3, abs=1e-6)
    assert apart.std() == pytest.approx(0.2366, abs=0.02)  # of N(0, 0.4) cut at 0.3: by quadrature
    assert np.abs(away).max() <= 1.0


def test_presets_are_those_of_the_paper():
    assert ReBRAC.preset("locomotion").batch_size == 1024
    assert ReBRAC.preset("antmaze").discount == 0.999
    assert ReBRAC.preset("adroit").critic_penalty == 0.5


# CQL at the limits of its hyper-parameters: SAC, double Q-learning, and cloning.


def test_discrete_cql_with_alpha_0_is_double_q_learning():
    own = small("discrete-cql", alpha=0.0)
    other = small("discrete-bcq", threshold=0.0, logit_penalty=0.0)
    one, two = fresh(own), fresh(other)
    two = two._replace(critic=one.critic, target_critic=one.target_critic)
    for seed in range(3):
        batch = drawn(own, CHOICES, seed)
        one, two = stepped(own, one, batch)[0], stepped(other, two, batch)[0]
    same(one.critic, two.critic, atol=1e-6)
    same(one.target_critic, two.target_critic, atol=1e-6)
    held = stepped(dataclasses.replace(own, alpha=1.0), fresh(own), drawn(own, CHOICES))[0]
    assert distance(held.critic, stepped(own, fresh(own), drawn(own, CHOICES))[0].critic) > 1e-4


def test_discrete_cql_with_a_large_alpha_clones():
    own, bc = small("discrete-cql", alpha=1e6, learning_rate=0.05), small("bc", learning_rate=0.05)
    one, two = fresh(own), fresh(bc)
    batch = drawn(own, CHOICES)
    for _ in range(150):
        one, two = stepped(own, one, batch)[0], stepped(bc, two, batch)[0]
    row = batch.data
    values = np.where(row.mask, eqx.filter_jit(one.critic.all_actions)(row.observation), -np.inf)
    policy = eqx.filter_jit(two.actor)(row.observation, mask=row.mask)
    assert (values.argmax(axis=1) == np.asarray(row.action)).mean() > 0.9
    np.testing.assert_array_equal(values.argmax(axis=1), policy.mode())


def test_cql_with_alpha_0_is_sac():
    h = small("cql", alpha=0.0, entropy_weight=0.3, samples=1)
    state, batch = fresh(h, LOG.spec), drawn(h, LOG)
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
    likely = jnp.maximum(logs[0], -LOG.spec.action.size * np.log(2.0))  # of the uniform distribution
    wanted = jnp.mean(0.3 * likely - jnp.min(state.critic(row.observation, jnp.clip(actions[0], -1.0, 1.0)), axis=0))
    np.testing.assert_allclose(feedback.metrics["actor_loss"], wanted, rtol=1e-5)


@pytest.mark.parametrize("weight", [None, 0.3])
def test_a_fixed_weight_of_the_entropy_stays(weight):
    h = small("cql", entropy_weight=weight, samples=2)
    state, feedback = stepped(h, fresh(h, LOG.spec), drawn(h, LOG))
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
    row = drawn(small("cql"), LOG).data
    gaps = []
    for alpha in (0.0, 10.0):
        h = small("cql", alpha=alpha, samples=4, entropy_weight=0.1)
        state = fresh(h, LOG.spec)
        for seed in range(150):
            state, _ = stepped(h, state, drawn(h, LOG, seed))
        bound = np.sign(np.random.default_rng(0).standard_normal(row.action.shape)).astype(np.float32)
        q = [np.asarray(eqx.filter_jit(state.critic)(row.observation, a)) for a in (row.action, bound)]
        gaps.append(float((q[0] - q[1]).mean()))
    assert gaps[1] > gaps[0] + 0.2  # 0.04 and 0.38; the integral gives corners no more weight than the rest


# FQL at the limits of its hyper-parameters: the flow's distillation, and what a flow is for.


def test_with_a_large_alpha_the_policy_is_the_flows_distillation():
    own = small("fql", alpha=1e7, gradient_clip=None)
    batch = drawn(own, LOG)
    state = fresh(own, LOG.spec)
    moved, _ = stepped(own, state, batch)
    worse = state._replace(critic=jax.tree.map(lambda leaf: np.asarray(leaf) + np.float32(1.0), state.critic))
    other, _ = stepped(own, worse, batch)  # other values have no effect
    assert distance(moved.policy, other.policy) < 1e-5 < distance(moved.policy, state.policy)
    free = dataclasses.replace(own, alpha=0.0)
    assert distance(stepped(free, state, batch)[0].policy, stepped(free, worse, batch)[0].policy) > 1e-4
    assert distance(stepped(free, state, batch)[0].flow, moved.flow) == 0.0


@pytest.mark.full
def test_flow_and_policy_have_both_modes_of_a_log_and_not_their_mean():
    rng = np.random.default_rng(0)
    action = (0.6 * rng.choice([-1.0, 1.0], (2000, 1)) + 0.05 * rng.standard_normal((2000, 1))).astype(np.float32)
    seen = rng.uniform(-1, 1, (2000, 1)).astype(np.float32)
    log = Log.from_arrays(
        observation=seen, action=action, reward=rng.standard_normal(2000).astype(np.float32), terminated=True,
        bounds=([-1.0], [1.0]),
    )  # fmt: skip
    h = FQL(alpha=1e4, hidden=(64, 64), batch_size=128, learning_rate=2e-3)
    run = fit(h, log, steps=1500, scale="none", progress=False)
    state = run.learners()[0].state
    row = drawn(dataclasses.replace(h, batch_size=500), log).data
    flowed = np.asarray(eqx.filter_jit(integrated)(state.flow, row, normal(jax.random.key(1), (500, 1)), 10))
    sampled = run.policy().sample(seen[:500], seed=0)
    for actions in (flowed, sampled):
        near = np.abs(np.abs(actions) - 0.6) < 0.2
        assert near.mean() > 0.8
        assert 0.35 < (actions[near] > 0).mean() < 0.65


def test_presets_of_fql_are_those_of_the_paper():
    assert FQL.preset("cube").alpha == 300.0
    assert FQL.preset("antmaze-giant") == FQL(q_aggregate="min", discount=0.995, reward_scaling="none")


def test_samples_without_a_density_are_not_judged_by_the_action_without_noise():
    log = dataclasses.replace(LOG, propensity=np.full(len(LOG), 0.1, np.float32))
    policies = [fit(small(name), log, steps=2, train=False).policy() for name in ("fql", "bcq", "td3-bc")]
    for policy in policies[:2]:
        with pytest.raises(SpecError, match=r"draws its actions and has no density.* fix: judge that one: sample=Fal"):
            target_of(policy, log, sample=True)
    one, two = (target_of(policies[2], log, sample=sample) for sample in (True, False))  # it draws what it would take
    np.testing.assert_array_equal(one.actions, two.actions)


@pytest.mark.full
def test_every_runtime_keeps_actions_within_the_bounds(tmp_path):
    policy = fit(small("fql"), LOG, steps=1, progress=False).policy()
    large = jax.tree.map(lambda leaf: 50.0 * leaf, policy.params.policy)
    far = Policy(policy.algorithm, policy.spec, policy.scaler, policy.params._replace(policy=large), policy.origin)
    seen = {name: np.asarray(leaf)[:40] for name, leaf in LOG.observation.items()}
    own = far.mode(seen)
    assert (own == np.asarray(LOG.spec.action.high)).any()
    far.save(tmp_path / "policy")
    np.testing.assert_allclose(load(tmp_path / "policy").mode(seen), own, atol=1e-5)
