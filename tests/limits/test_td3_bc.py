"""TD3+BC and ReBRAC at the limits of their hyper-parameters, and against each other."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from tests.algorithms.worlds import compiled, drawn, small, world
from tests.limits.test_dials import distance, fresh, same
from tidelog import ReBRAC
from tidelog.algorithms.short_form import step
from tidelog.algorithms.td3_bc import smoothed_action
from tidelog.training.loop import as_arrays

stepped = compiled(step)
LOG = world("continuous")


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
