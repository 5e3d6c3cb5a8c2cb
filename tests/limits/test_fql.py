"""FQL at the limits of its hyper-parameters: the flow's distillation, and what a flow is for."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from tests.algorithms.worlds import compiled, drawn, small, world
from tests.limits.test_dials import distance, fresh
from tidelog import FQL, Log, Policy, SpecError, fit
from tidelog.algorithms.fql import integrated
from tidelog.algorithms.short_form import step
from tidelog.networks.layers import normal
from tidelog.ope.policies import target_of
from tidelog.runtime.load import load

stepped = compiled(step)
LOG = world("continuous")


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


def test_presets_are_those_of_the_paper():
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
