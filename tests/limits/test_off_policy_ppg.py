"""Limits of off-policy PPG: on new segments it is PPG, and its average has the stated weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.players import (
    AUXILIARY_UPDATES,
    ENV,
    POLICY_UPDATES,
    ROUNDS,
    moved,
    players,
    replayed,
    replaying,
    tiny,
)
from tests.conformance.cases import differ, same
from tidelog import OffPolicyPPG
from tidelog.algorithms.contract import Collecting
from tidelog.algorithms.off_policy_ppg import (
    Proximal,
    averaged,
    policy_loss,
    restarted,
    with_policy_inputs,
    with_vtrace,
)
from tidelog.algorithms.ppg_common import segment_starts
from tidelog.envs.registry import functional
from tidelog.losses.td import advantages

ALIKE = {"auxiliary_epochs": 0, "entropy_bonus": 0.02, "value_weight": 0.3, "gae_lambda": 0.8}
ONCE = {"update_per_collect": 1, "policy_capacity": 4, "value_capacity": 4, "policy_max_use": 1, "value_max_use": 1}


def batches(h, learner):
    """Return a minibatch of each store."""
    samplers = h.phases()[0].samplers
    return {
        name: gathered(draw, learner.segments[name], jax.random.key(i))
        for i, (name, draw) in enumerate(samplers.items())
    }


@eqx.filter_jit
def gathered(draw, segments, key):
    return draw.batch(segments, None, key, jnp.zeros(()))[0]


def test_the_defaults_are_the_specs():
    h = OffPolicyPPG()
    assert isinstance(h, Collecting)
    assert (h.learning_rate, h.minibatch, h.update_per_collect, h.clip, h.value_weight) == (5e-4, 64, 5, 0.2, 0.5)
    assert (h.entropy_bonus, h.aux_every, h.auxiliary_epochs, h.beta_clone) == (0.01, 32, 6, 1.0)
    assert (h.discount, h.gae_lambda, h.rho_bar, h.c_bar, h.proximal_decay) == (0.99, 0.95, 1.0, 1.0, 8 / 9)
    assert (h.policy_max_use, h.value_max_use, h.most_weight) == (10, 100, 100.0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("env", "more"),
    [
        ("jax:CartPole-v1", {}),
        ("jax:Pendulum-v1", {"value_normalisation": True}),
        ("jax:CartPole-v1", {"recurrent_size": 3, "value_clip": 0.1, "policy_hidden": (5,)}),
    ],
    ids=["plain", "values normalised", "recurrent"],
)
def test_on_a_fresh_rollout_the_first_update_is_ppgs(env, more):
    ours = replaying(**ONCE, **ALIKE, **more)
    theirs = tiny(policy_epochs=1, value_epochs=1, minibatches=1, **ALIKE, **more)
    one, two = (moved(players((h, 0), env=env), 1).learners[0].state for h in (ours, theirs))
    same(one.network, two.network, rtol=1e-4, atol=2e-5)
    same(one.rewards, two.rewards, rtol=1e-6)
    same(one.opt_states.policy, two.opt_states.policy, rtol=1e-3, atol=1e-5)
    assert differ(one.network, ours.init(players((ours, 0), env=env)._assignment.spec, jax.random.key(0), 1).network)


@pytest.mark.full
@pytest.mark.parametrize("architecture", ["dual", "shared"])
def test_segments_keep_the_values_and_states_of_the_networks_that_collected_them(architecture):
    """The second collection begins in the middle of episodes, with networks that have learnt."""
    h = replaying(recurrent_size=3, value_clip=0.5, architecture=architecture)
    learner = moved(players((h, 0)), 2 * POLICY_UPDATES).learners[0]
    first = h.init(functional(ENV).spec, jax.random.key(0), 1)
    columns = learner.segments["value"].columns
    assert "old_value" not in learner.segments["policy"].columns

    @eqx.filter_jit
    def values(network, half):
        data = jax.tree.map(lambda leaf: leaf.reshape(2, 4, *leaf.shape[1:])[half], columns)
        return network.values_of_segment(data["observation"], data["following"], *segment_starts(data))[0]

    early, late = slice(0, 4), slice(4, 8)  # the second collection has the second four slots
    np.testing.assert_allclose(values(first.network, 0), columns["old_value"][early], atol=1e-6)
    assert differ(values(first.network, 1), columns["old_value"][late], by=1e-3)
    state = columns["value_carry" if architecture == "dual" else "carry"]
    assert not state[early].any()
    assert state[late].any()


@pytest.mark.full
def test_targets_read_the_networks_as_they_stand():
    h, learner = replaying(), replayed(2 * POLICY_UPDATES)
    batch = batches(h, learner)["value"]
    run = eqx.filter_jit(lambda state: with_vtrace(h, state, batch).data)
    now = run(learner.state)
    later = run(replayed(2 * POLICY_UPDATES + AUXILIARY_UPDATES).state)
    assert differ(now["target"], later["target"], by=1e-3)
    assert differ(now["log_behaviour"], later["log_behaviour"], by=1e-4)
    data, played = batch.data, learner.state._replace(rewards=None)
    stood = eqx.filter_jit(lambda: with_vtrace(h, played, batch).data)()
    value, following = (played.network.value_of(data[name]) for name in ("observation", "following"))
    flags = data["terminated"], data["truncated"], data["valid"]
    alike = advantages(data["reward"], value, following, *flags, h.discount, h.gae_lambda)
    assert differ(stood["advantage"], alike, by=1e-4)  # collected by another policy
    fresh = batch._replace(data=data | {"log_probability": data["log_probability"] + stood["log_behaviour"]})
    again = eqx.filter_jit(lambda: with_vtrace(h, played, fresh).data)()
    np.testing.assert_allclose(again["advantage"], alike, rtol=1e-4, atol=1e-5)


def test_the_average_is_divided_by_the_weight_that_it_has_gathered():
    # decay 1/2: after 4 and 7, (4 + 1/2 * 2) / 1.5 and (7 + 4/2 + 2/4) / 1.75
    average = averaged(restarted(jnp.asarray(2.0)), jnp.asarray(4.0), 0.5)
    np.testing.assert_allclose(average, Proximal(10 / 3, 1.5), rtol=1e-6)
    np.testing.assert_allclose(averaged(average, jnp.asarray(7.0), 0.5), Proximal(9.5 / 1.75, 1.75), rtol=1e-6)
    np.testing.assert_allclose(averaged(average, jnp.asarray(7.0), 0.0), Proximal(7.0, 1.0))


@pytest.mark.full
def test_the_average_steps_with_the_policy_and_begins_anew_in_the_auxiliary_phase():
    early, late = replayed(2).state, replayed(2 * POLICY_UPDATES).state
    assert float(early.proximal.weight) == pytest.approx(1 + 8 / 9 + (8 / 9) ** 2)
    assert differ(late.proximal.network, late.network, by=1e-3)
    after = replayed(ROUNDS).state
    same(after.proximal.network, after.network)
    assert float(after.proximal.weight) == 1.0
    assert float(replayed(ROUNDS + 1).state.proximal.weight) == pytest.approx(1 + 8 / 9)


@pytest.mark.full
def test_with_decay_0_the_clip_never_binds_and_the_gradient_is_the_weighted_one():
    h, learner = replaying(proximal_decay=0.0, entropy_bonus=0.0), replayed(2 * POLICY_UPDATES, proximal_decay=0.0)
    same(learner.state.proximal.network, learner.state.network)
    batch = eqx.filter_jit(with_policy_inputs)(h, learner.state, batches(h, learner)["policy"])
    data, clipped = batch.data, eqx.filter_grad(lambda n: policy_loss(n, h, batch)[0])(learner.state.network)

    def weighted(network):
        chosen = network.policy(data["observation"]).log_probability(data["action"])
        ratio = jnp.exp(jax.lax.stop_gradient(chosen) - data["log_probability"])
        return -batch.mean(ratio * data["advantage"] * chosen)

    same(clipped, eqx.filter_grad(weighted)(learner.state.network), rtol=1e-3, atol=1e-6)
    assert float(policy_loss(learner.state.network, h, batch)[1]["clip_fraction"]) == 0.0
    assert float(policy_loss(learner.state.network, h, batch)[1]["ratio_mean"]) != 1.0


@pytest.mark.full
def test_with_the_average_at_who_played_the_loss_is_ppos():
    h, learner = replaying(entropy_bonus=0.0), replayed(2 * POLICY_UPDATES)
    batch = eqx.filter_jit(with_policy_inputs)(h, learner.state, batches(h, learner)["policy"])
    batch = batch._replace(data=batch.data | {"log_proximal": np.zeros_like(batch.data["log_proximal"])})

    def stated(network, batch):
        return policy_loss(network, h, batch)[0]

    def textbook(network, batch):
        data = batch.data
        log_ratio = network.policy(data["observation"]).log_probability(data["action"]) - data["log_probability"]
        ratio, a = jnp.exp(log_ratio), data["advantage"]
        return -batch.mean(jnp.minimum(ratio * a, jnp.clip(ratio, 0.8, 1.2) * a))

    (one, ours), (two, theirs) = (
        eqx.filter_jit(eqx.filter_value_and_grad(loss))(learner.state.network, batch) for loss in (stated, textbook)
    )
    same(ours, theirs, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.full
def test_policy_and_value_draw_apart_and_every_store_keeps_count():
    learner = replayed(2 * POLICY_UPDATES)
    policy, value = learner.segments["policy"], learner.segments["value"]
    assert policy.live.shape == (6,)
    assert value.live.shape == (8,)
    assert int(value.lives.uses.sum()) == 4 * 2 * POLICY_UPDATES  # none was replaced, each minibatch has four
    assert sorted(value.lives.ages.tolist()) == [4] * 4 + [8] * 4
    assert sorted(policy.lives.ages.tolist()) == [4] * 4 + [8] * 2
    assert policy.lives.uses.tolist() != value.lives.uses.tolist()[:6]
    same(value.columns["reward"][4:], learner.segments["fresh"].columns["reward"])
    after = replayed(ROUNDS).segments["value"]  # the auxiliary phase neither uses up nor ages
    same(after.lives, value.lives)


@pytest.mark.full
def test_the_losses_of_the_auxiliary_phase_are_those_that_its_update_reports():
    h, learner = replaying(), replayed(2 * POLICY_UPDATES)
    (_, phase) = h.phases()
    store, key = learner.segments["value"], jax.random.key(0)
    _, columns = eqx.filter_jit(phase.prepare)(h, learner.state, store.columns)
    order = phase.samplers.order.init(8, key)
    batch, _ = phase.samplers.batch(store._replace(columns=store.columns | columns), order, key, jnp.zeros(()))
    found = eqx.filter_jit(phase.losses)(h, learner.state, batch, key)
    _, feedback = eqx.filter_jit(phase.step)(h, learner.state, batch)
    assert set(found) == {"aux_value_loss", "value_loss"}
    for name, value in found.items():
        np.testing.assert_allclose(value, feedback.metrics[name], rtol=1e-4)
