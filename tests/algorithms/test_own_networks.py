"""Custom Equinox modules instead of the built-in ones, through the whole loop."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.algorithms.own import OwnActor, OwnCritic, OwnValue, own_actor, own_critic, own_value
from tests.algorithms.worlds import small, world
from tidelog import PPG, ConfigError, fit
from tidelog.algorithms.optimisation import init_opt_state
from tidelog.algorithms.ppg_common import Rewards
from tidelog.networks.actors import Categorical
from tidelog.support import allow

OWN = {"actor_network": own_actor, "critic_network": own_critic, "value_network": own_value}
PARTS = ("actor", "critic", "target_critic", "value")
LOG = world("discrete")


def arrays(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]


@pytest.mark.full
def test_own_networks_train_in_iql_and_act():
    run = fit(small("iql", **OWN), LOG, 20, scale="none", eval_every=10, progress=False)
    state, fresh = run.learners()[0].state, small("iql", **OWN).init(LOG.spec, jax.random.key(0), 20)
    assert isinstance(state.actor, OwnActor)
    assert isinstance(state.value, OwnValue)
    assert all(isinstance(member, OwnCritic) for member in state.target_critic.members)
    for part in PARTS:
        pairs = zip(arrays(getattr(state, part)), arrays(getattr(fresh, part)), strict=True)
        assert all((after != before).any() for after, before in pairs), part
    assert all(np.isfinite(list(row.values())).all() for row in run.metrics)
    assert len(run.policy()({name: leaf[:3] for name, leaf in LOG.observation.items()})) == 3


def test_an_own_actor_trains_in_bc_on_continuous_actions():
    log = world("continuous")
    run = fit(small("bc", actor_network=own_actor), log, 200, scale="none", eval_every=100, progress=False)
    assert run.metrics[1]["imitation_loss"] < run.metrics[0]["imitation_loss"]  # 0 of 40 other seeds fail


def test_own_critics_differ_from_each_other():
    members = small("iql", **OWN).init(LOG.spec, jax.random.key(0), 1).critic.members
    first, second = (np.asarray(member.net.layers[0].weight) for member in members)
    assert (first != second).any()


def test_a_module_made_beforehand_stays_the_users():
    module = own_actor(LOG.spec, jax.random.key(1))
    before = np.array(module.net.layers[0].weight)
    run = fit(
        small("bc", actor_network=lambda spec, key: module), LOG, 2, seeds=2, scale="none", eval_every=1, progress=False
    )
    np.testing.assert_array_equal(module.net.layers[0].weight, before)
    assert len(run.learners()) == 2


@pytest.mark.parametrize(("part", "make"), [("actor", own_actor), ("critic", own_critic), ("value", own_value)])
def test_no_two_networks_of_a_state_share_a_buffer(part, make):
    module = make(LOG.spec, jax.random.key(1))
    state = small("iql", **{f"{part}_network": lambda spec, key: module}).init(LOG.spec, jax.random.key(0), 1)
    places = [
        leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((state[:4], module)) if isinstance(leaf, jax.Array)
    ]
    assert len(places) == len(set(places))
    for one, two in zip(arrays(state.target_critic), arrays(state.critic), strict=True):
        np.testing.assert_array_equal(one, two)  # a fresh target is a copy


def test_an_optimiser_that_remembers_parameters_shares_no_buffer_with_the_network():
    network = own_value(LOG.spec, jax.random.key(0))
    memory = init_opt_state(lambda: optax.GradientTransformation(lambda arrays: (arrays, arrays), None), network)
    arrays = [leaf for leaf in jax.tree.leaves((network, *memory)) if isinstance(leaf, jax.Array)]
    places = [leaf.unsafe_buffer_pointer() for leaf in arrays]
    assert len(places) == len(set(places)) == 3 * len(jax.tree.leaves(memory[0]))


def test_a_recurrent_algorithm_refuses_networks_of_ones_own():
    for part in ("critic_network", "imitator_network"):
        with pytest.raises(
            ConfigError, match=r"recurrent_size = 4 does not support networks of your own\. fix: drop recurrent_size or"
        ):
            small("discrete-bcq", recurrent_size=4, **{part: own_actor})


class OwnPhasic(eqx.Module):
    def policy(self, observation, mask=None):
        return Categorical(allow(observation["vitals"], mask))


def test_an_own_phasic_network_acts_with_its_policy():
    observation, mask = {"vitals": np.asarray([[0.0, 3.0, 1.0]])}, np.asarray([[True, False, True]])
    assert PPG().act(OwnPhasic(), observation).action.tolist() == [1]
    found = PPG().act(OwnPhasic(), observation, mask=mask, carry="kept")
    assert found.action.tolist() == [2]
    assert found.carry == "kept"
    assert PPG().initial_state(OwnPhasic(), 1) is None


def test_new_episodes_begin_with_returns_of_0():
    for normalised in (True, False):
        state = SimpleNamespace(rewards=Rewards(None, jnp.ones(2)) if normalised else None, _replace=SimpleNamespace)
        rewards = PPG().with_new_episodes(state).rewards
        assert (None if rewards is None else rewards.sums.tolist()) == ([0.0, 0.0] if normalised else None)
