"""Limits of PPG: PPO without the auxiliary phase, a clone term without effect, stopped gradients."""

from functools import cache
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tidelog as tl
from tests.algorithms.players import AUXILIARY_UPDATES, POLICY_UPDATES, after, moved, players, tiny
from tests.conformance.cases import differ, same
from tidelog import PPG, PPO
from tidelog.algorithms.contract import Collecting
from tidelog.algorithms.ppg import estimate, joint_loss, policy_loss, value_loss
from tidelog.algorithms.ppg_common import Running, auxiliary_loss, record_old_policy, value_unit
from tidelog.algorithms.sampling import Batch
from tidelog.envs.registry import functional
from tidelog.networks.phasic import ARCHITECTURES
from tidelog.ope.decide import NOTHING
from tidelog.ope.ladder import LadderStep, safe_policy
from tidelog.runtime.load import load
from tidelog.training.loop import as_arrays

SPEC = functional("jax:CartPole-v1").spec


def phase(h, name):
    return next(phase for phase in h.phases() if phase.name == name)


def batch(h, learner, name):
    """Return the first minibatch of a phase."""
    draw = phase(h, name).samplers
    return gathered(draw, learner.segments[draw.store], learner.orders[name])


@eqx.filter_jit
def gathered(draw, segments, order):
    return draw.batch(segments, order, jax.random.key(0), jnp.zeros(()))[0]


@cache
def remembered(env="jax:CartPole-v1", **changes):
    """Return the learner before its first auxiliary phase, with the phase prepared."""
    h, learner = tiny(**changes), after(2 * POLICY_UPDATES, env=env, **changes)
    memory = learner.segments["phase_buffer"]
    columns = memory.columns | eqx.filter_jit(record_old_policy)(as_arrays(h), learner.state, memory.columns)[1]
    return learner._replace(segments=learner.segments | {"phase_buffer": memory._replace(columns=columns)})


def clone_loss(network, data):
    return jnp.mean(data["old"].divergence(network.policy(data["observation"], data.get("mask"))))


# The counts of the paper.


def updates(h, rounds):
    return {phase.name: sum(phase.updates(h, round) for round in range(rounds)) for phase in h.phases()}


def test_a_phase_at_paper_size_is_256_policy_and_3072_auxiliary_updates():
    assert updates(PPG(), 32) == {"policy": 256, "auxiliary": 3072}
    assert updates(PPG(), 31) == {"policy": 31 * 8, "auxiliary": 0}
    assert updates(PPG(value_epochs=2), 32) == {"value": 512, "policy": 256, "auxiliary": 3072}
    assert updates(PPO(), 32) == {"policy": 3 * 256}
    assert updates(PPG.preset("procgen"), 32) == {"policy": 256, "auxiliary": 3072}
    assert PPG().collection().num_envs * PPG().collection().steps == 16_384
    assert [phase.name for phase in PPG(value_epochs=2).phases()] == ["value", "policy", "auxiliary"]


def test_it_is_an_algorithm_that_collects():
    assert isinstance(PPG(), Collecting)


def test_the_defaults_are_the_papers():
    h = PPG()
    assert (h.policy_iterations, h.policy_epochs, h.value_epochs, h.auxiliary_epochs) == (32, 1, 1, 6)
    assert (h.beta_clone, h.clip, h.entropy_bonus, h.discount, h.gae_lambda) == (1.0, 0.2, 0.01, 0.999, 0.95)
    assert (h.learning_rate, h.auxiliary_learning_rate, h.num_envs, h.rollout_steps) == (5e-4, 5e-4, 64, 256)
    assert (h.minibatches, h.auxiliary_minibatch, h.reward_discount, h.reward_clip) == (8, 4, 0.99, 10.0)
    assert (h.reward_normalisation, h.value_normalisation, h.advantage_normalisation) == (True, False, True)
    assert (h.gradient_clip, h.value_clip, h.divergence_weight) == (None, None, None)
    assert PPG.preset("procgen") == PPG(hidden=(), convolutions="impala")
    assert PPO() == PPG(architecture="shared", policy_epochs=3, value_epochs=3, auxiliary_epochs=0)


# The clone.


@pytest.mark.sample("jax:CartPole-v1")
@pytest.mark.parametrize("env", ["jax:CartPole-v1", "jax:Pendulum-v1", "jax:treatment"])
def test_at_the_first_auxiliary_minibatch_the_clone_neither_costs_nor_pulls(env):
    data = batch(tiny(), remembered(env), "auxiliary").data
    value, slope = eqx.filter_jit(eqx.filter_value_and_grad(clone_loss))(remembered(env).state.network, data)
    assert abs(float(value)) < 1e-6
    assert max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(slope)) < 1e-6


@pytest.mark.full
def test_beta_holds_the_policy_while_the_auxiliary_value_is_learnt():
    changes, gone = {"auxiliary_learning_rate": 2e-2, "auxiliary_epochs": 10}, {}
    for beta in (0.0, 10.0):
        training = moved(players((tiny(beta_clone=beta, **changes), 0)), 2 * POLICY_UPDATES)
        (learner,) = training.learners
        firm = eqx.tree_at(lambda n: n.head.linear.weight, learner.state.network, replace_fn=lambda w: 100.0 * w)
        training._learners = [learner._replace(state=learner.state._replace(network=firm))]  # a policy far from uniform
        before = eqx.filter_jit(estimate_of)(training.learners[0])
        training.report()
        moved(training, 5 * AUXILIARY_UPDATES)
        assert eqx.filter_jit(estimate_of)(training.learners[0]) < 0.9 * before
        gone[beta] = training.report()[0]["after auxiliary/clone_kl_after"]
    assert gone[0.0] > 1e-2  # 1 of 20 other seeds fails
    assert gone[10.0] < gone[0.0] / 10  # 0 of 20 other seeds fail


def estimate_of(learner):
    """The auxiliary value's mean squared error over the memory."""
    data = learner.segments["phase_buffer"].columns
    return jnp.mean(jnp.square(learner.state.network.both_values(data["observation"])[2] - data["target"]))


# Gradients and inputs.


def moves(slope):
    return any(float(np.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(slope))


@pytest.fixture(scope="module", params=ARCHITECTURES)
def slopes(request):
    """Gradients of value, policy and joint losses of the policy phase, and of the auxiliary phase without its clone."""
    h = tiny(architecture=request.param, entropy_bonus=0.0)
    learner = remembered()
    fresh, memory = batch(tiny(), learner, "policy"), batch(tiny(), learner, "auxiliary")
    network = h.init(SPEC, jax.random.key(0), 1).network
    free = tiny(architecture=request.param, beta_clone=0.0)

    @eqx.filter_jit
    def found(network):
        def of(loss, h, data):
            return eqx.filter_grad(lambda n: loss(n, h, data, 1.0)[0])(network)

        return (
            of(value_loss, h, fresh),
            of(policy_loss, h, fresh),
            of(joint_loss, h, fresh),
            of(auxiliary_loss, free, memory),
        )

    return request.param, *found(network)


@pytest.mark.sample("detach")
def test_the_values_gradient_stops_where_the_architecture_says(slopes):
    name, value, policy, _, auxiliary = slopes
    assert moves(value.value)
    assert moves(value.trunk) == (name == "shared")
    assert moves(policy.trunk)
    assert moves(policy.head)
    assert not moves(policy.value)
    assert (value.value_trunk is not None) == (name == "dual")
    assert moves(auxiliary.trunk)
    assert moves(auxiliary.value)
    if name == "dual":
        assert moves(value.value_trunk)
        assert not moves(policy.value_trunk)


def test_the_policy_phase_sends_nothing_into_the_auxiliary_head(slopes):
    name, value, policy, joint, auxiliary = slopes
    assert (joint.auxiliary is not None) == (name in ("dual", "detach"))
    if joint.auxiliary is not None:
        assert not any(moves(slope.auxiliary) for slope in (value, policy, joint))
        assert moves(auxiliary.auxiliary)


def test_detach_moves_the_trunk_by_the_auxiliary_head_alone(slopes):
    name = slopes[0]
    if name != "detach":
        return
    data = batch(tiny(), remembered(), "auxiliary").data
    network = tiny(architecture="detach").init(SPEC, jax.random.key(0), 1).network

    def error(network):
        return jnp.mean(jnp.square(network.both_values(data["observation"])[1] - data["target"]))

    slope = eqx.filter_jit(eqx.filter_grad(error))(network)
    assert not moves(slope.trunk)
    assert moves(slope.value)


def test_over_a_policy_phase_the_auxiliary_head_stays_to_the_bit():
    before, learner = tiny().init(SPEC, jax.random.key(0), 1).network, after(2 * POLICY_UPDATES)
    same(learner.state.network.auxiliary, before.auxiliary)
    assert differ(learner.state.network.value, before.value)
    assert differ(learner.state.network.head, before.head)


def test_advantages_read_the_value_network_and_not_the_auxiliary_head():
    learner, h = after(2 * POLICY_UPDATES), tiny(advantage_normalisation=False)
    columns, network = learner.segments["fresh"].columns, learner.state.network
    run = eqx.filter_jit(lambda network: estimate(h, learner.state._replace(network=network), columns)[1])
    found = run(network)
    shifted = run(eqx.tree_at(lambda n: n.auxiliary.bias, network, network.auxiliary.bias + 5.0))
    same(found, shifted)
    other = run(eqx.tree_at(lambda n: n.value.bias, network, network.value.bias + 5.0))
    assert differ(found["value"], other["value"], by=4.9)
    assert differ(found["advantage"], other["advantage"], by=0.1)


def test_the_discount_of_the_returns_that_scale_rewards_is_read_by_nothing_else():
    learner = after(2 * POLICY_UPDATES)
    state, columns = learner.state._replace(rewards=None), learner.segments["fresh"].columns
    plain = {"reward_normalisation": False, "advantage_normalisation": False}
    near, far = eqx.filter_jit(lambda: [estimate(tiny(reward_discount=d, **plain), state, columns)[1]
                                        for d in (0.5, 0.99)])()  # fmt: skip
    same(near, far)


def test_before_an_update_no_value_is_clipped_whatever_its_unit():
    learner, columns = after(2 * POLICY_UPDATES), after(2 * POLICY_UPDATES).segments["fresh"].columns
    state = learner.state._replace(values=Running(jnp.float32(9.0), jnp.float32(0.0), jnp.float32(25.0)))

    def loss(**changes):
        h = tiny(value_normalisation=True, **changes)
        moved, found = estimate(h, state, columns)
        whole = Batch(columns | found, jnp.arange(4), None, columns["valid"])
        return value_unit(moved), joint_loss(moved.network, h, whole, value_unit(moved))[1]["value_loss"]

    (unit, free), (_, clipped) = eqx.filter_jit(lambda: (loss(), loss(value_clip=1e-6)))()
    assert abs(float(unit) - 5.0) > 0.1  # it moved with these targets
    same(clipped, free, rtol=1e-4)


# PPO.


@pytest.mark.full
def test_one_update_without_an_auxiliary_phase_is_the_textbooks():
    """Schulman et al. 2017, written out: two networks, one Adam, clipped ratios, squared values, entropy."""
    h, learner = tiny(auxiliary_epochs=0), after(0 + POLICY_UPDATES, auxiliary_epochs=0)
    data = batch(h, learner, "policy").data
    state, network = learner.state, learner.state.network

    def textbook(network):
        logits, value = network(data["observation"])
        logits = logits.logits
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), data["action"][..., None], axis=-1)[..., 0]
        ratio, a = jnp.exp(chosen - data["log_probability"]), data["advantage"]
        gain = jnp.minimum(ratio * a, jnp.clip(ratio, 0.8, 1.2) * a).mean()
        entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(-1).mean()
        return -gain - 0.01 * entropy + 0.5 * jnp.square(value - data["target"]).mean()

    adam = optax.scale_by_adam()
    step, _ = jax.jit(adam.update)(jax.jit(jax.grad(textbook))(network), state.opt_states.policy)
    expected = jax.tree.map(lambda leaf, d: leaf - 1e-2 * d, network, step)
    found, _ = eqx.filter_jit(phase(h, "policy").step)(as_arrays(h), state, batch(h, learner, "policy"))
    same(found.network, expected, rtol=1e-4, atol=1e-6)
    assert differ(found.network, network)


@pytest.mark.bits(across_programs=True)
def test_until_its_first_auxiliary_phase_ppg_is_ppo_to_the_bit():
    ours, theirs = after(2 * POLICY_UPDATES), after(2 * POLICY_UPDATES, auxiliary_epochs=0)
    same(ours.state.network, theirs.state.network)
    same(ours.state.opt_states.policy, theirs.state.opt_states.policy)
    assert "phase_buffer" not in theirs.segments
    assert theirs.state.opt_states.auxiliary is None


def test_a_target_divergence_ends_a_rounds_updates_at_the_first_minibatch_beyond_it():
    learner = after(POLICY_UPDATES, target_kl=1e-9)
    same(learner.state.network, after(1).state.network, atol=1e-7)  # the first minibatch has no divergence
    same(after(POLICY_UPDATES, target_kl=1e9).state.network, after(POLICY_UPDATES).state.network, atol=1e-7)
    np.testing.assert_allclose(learner.tallies["policy"].sums["stopped_share"], POLICY_UPDATES - 1)
    assert bool(learner.state.stopped)
    assert not bool(after(POLICY_UPDATES + 1, target_kl=1e-9).state.stopped)  # the next round begins anew


@pytest.mark.parametrize("env", ["jax:CartPole-v1", pytest.param("CartPole-v1", marks=pytest.mark.full)])
def test_a_policy_keeps_the_scale_of_observations_in_every_runtime(env, tmp_path):
    h = tiny(observation_normalisation=True)
    run = tl.learn(h, env, steps=192, seeds=[0], out=tmp_path / "run", log_out=tmp_path / "log", progress=False)
    log, policy = tl.read_log(tmp_path / "log"), run.policy()
    seen = np.asarray(log.transitions.observation["observation"], np.float64)
    np.testing.assert_allclose(policy.scaler.mean["observation"], seen.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(policy.scaler.std["observation"], seen.std(axis=0), rtol=1e-4)
    assert np.abs(seen).max() > 0.3  # the log has the environment's own numbers
    policy.save(tmp_path / "policy")
    saved, stored = tl.load_policy(tmp_path / "policy"), load(tmp_path / "policy")
    some = {"observation": seen[:50].astype(np.float32)}
    own = policy.probabilities(some)
    np.testing.assert_array_equal(saved.probabilities(some), own)
    np.testing.assert_allclose(stored.probabilities(some), own, atol=1e-6)
    part = safe_policy(  # a step of a ladder
        SimpleNamespace(policy=policy, sample=True, ladder=SimpleNamespace(practice=None)),
        LadderStep("share", 0.5, 0.5, "better", NOTHING),
    )
    part.save(tmp_path / "part")
    chances = tl.load_policy(tmp_path / "part").probabilities(some)
    np.testing.assert_allclose(chances, np.concatenate([0.5 * own, np.full((50, 1), 0.5)], axis=1), atol=1e-6)
    scaled = policy.scaler.observation(some)
    network = run.learners()[0].state.network
    np.testing.assert_allclose(np.asarray(network.policy(scaled).probabilities()), own, atol=1e-6)
