"""A user's own Equinox modules in place of ours, through the whole loop."""

import jax
import numpy as np
import pytest

from tests.algorithms.own import OwnActor, OwnCritic, OwnValue, own_actor, own_critic, own_value
from tests.algorithms.worlds import KINDS, small, world
from tidelog import fit

OWN = {"actor_network": own_actor, "critic_network": own_critic, "value_network": own_value}


@pytest.mark.parametrize("kind", KINDS)
def test_own_networks_train_in_iql(kind):
    log = world(kind)
    run = fit(small("iql", **OWN), log, 20, scale="none", every=10, progress=False)
    state = run.learners()[0].state
    assert isinstance(state.actor, OwnActor)
    assert isinstance(state.value, OwnValue)
    assert all(isinstance(member, OwnCritic) for member in state.target_critic.members)
    fresh = small("iql", **OWN).init(log.spec, jax.random.key(0), 20)
    for part in ("actor", "critic", "target_critic", "value"):
        leaves = zip(jax.tree.leaves(getattr(state, part)), jax.tree.leaves(getattr(fresh, part)), strict=True)
        assert all((np.asarray(a) != np.asarray(b)).any() for a, b in leaves if hasattr(a, "dtype")), part
    assert all(np.isfinite(list(row.values())).all() for row in run.metrics)
    assert len(run.policy()({name: leaf[:3] for name, leaf in log.observation.items()})) == 3


def test_own_critics_differ_from_each_other():
    members = small("iql", **OWN).init(world("discrete").spec, jax.random.key(0), 1).critic.members
    assert (members[0].net.layers[0].weight != members[1].net.layers[0].weight).any()


@pytest.mark.parametrize(("name", "part", "make"), [("bc", "actor", own_actor), ("iql", "critic", own_critic)])
def test_a_module_made_beforehand_stays_the_users(name, part, make):
    log = world("discrete")
    module = make(log.spec, jax.random.key(1))
    before = np.array(module.net.layers[0].weight)
    algorithm = small(name, **{f"{part}_network": lambda spec, key: module})
    run = fit(algorithm, log, 2, seeds=2, scale="none", progress=False)
    np.testing.assert_array_equal(module.net.layers[0].weight, before)
    assert len(run.learners()) == 2


def test_discrete_own_critics_rate_no_actions_unless_they_say_how():
    log = world("discrete")
    h = small("iql", critic_network=own_critic)
    state = h.init(log.spec, jax.random.key(0), 1)
    assert h.q_values(h.acting(state), log.observation) is None
