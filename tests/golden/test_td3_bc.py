"""One update of TD3+BC and of ReBRAC on three samples and networks of one or two numbers, computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import compiled
from tests.golden.lines import SPEC, LineActor, LineCritic, batch, column, make_actor, make_critic, plain
from tidelog import TD3BC, ReBRAC
from tidelog.algorithms.short_form import step
from tidelog.networks.critics import Ensemble

OWN = {
    "policy_noise": 0.0, "policy_delay": 1, "tau": 0.1, "optimiser": plain, "actor_learning_rate": 0.1,
    "critic_learning_rate": 0.1, "actor_network": make_actor, "critic_network": make_critic,
}  # fmt: skip
NEAR, FAR = TD3BC(alpha=1.0, **OWN), ReBRAC(actor_penalty=0.5, critic_penalty=2.0, **OWN)


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-6, atol=1e-7)


def start(algorithm):
    """Actor s / 2, its target s / 4, critics s and 2 a, target critics s + a and 2 s."""
    critics, targets = (
        Ensemble(tuple(LineCritic(jnp.array(w), jnp.array(u)) for w, u in pairs))
        for pairs in (((1.0, 0.0), (0.0, 2.0)), ((1.0, 1.0), (2.0, 0.0)))
    )
    state = algorithm.init(SPEC, jax.random.key(0), 100)
    return state._replace(target_actor=LineActor(jnp.array(0.25)), critic=critics, target_critic=targets)


def logged():
    """The samples with the next logged actions -0.5 (which the log does not have), -0.25 and 0."""
    one = batch()
    known = jnp.array([False, True, True])
    return one._replace(data=one.data._replace(next_action=column(-0.5, -0.25, 0.0), has_next_action=known))


@pytest.fixture(scope="module")
def near():
    return compiled(step)(NEAR, start(NEAR), batch())


@pytest.fixture(scope="module")
def far():
    return compiled(step)(FAR, start(FAR), logged())


def test_critics_of_td3_bc(near):
    # a' = 0.5, 0.25, 0.75. Target critics 2.5, 1.25, 3.75 and 4, 2, 6: the first is smaller.
    # y = 1 + 1.25, 0.625, 2 + 0. Critics 1, 2, -1 and 1, 0, 2; errors -1.25, 1.375, -3 and -1.25, -0.625, 0.
    # Loss: (1.5625 + 1.5625 + 1.890625 + 0.390625 + 9) / 3 = 14.40625 / 3.
    # Slopes 2/3 sum(error s), 2/3 sum(error a): 2/3 * 4.5, 2/3 * -3.625 and 2/3 * -2.5, 2/3 * -0.625; rate 0.1.
    state, feedback = near
    close(feedback.metrics["critic_loss"], 14.40625 / 3)
    close([[one.w, one.u] for one in state.critic.members], [[0.7, 0.24166667], [0.16666667, 2.04166667]])
    close(feedback.priority, [1.25, 1.0, 1.5])
    close([feedback.metrics["q_mean"], feedback.metrics["target_q"]], [2.5 / 3, 4.875 / 3])


def test_actor_of_td3_bc_reads_the_new_first_critic(near):
    # Actions 0.5, 1, -0.5; new Q_1 = 0.7 s + 0.24166667 a = 0.8208333, 1.6416667, -0.8208333; its mean size 1.0944444.
    # Imitation 0, 1, 2.25. Loss: 3.25 / 3 - 0.5472222 / 1.0944444 = 1.0833333 - 0.5.
    # Slope in p: mean of 2 (action - a) s = 7 / 3, less 0.24166667 * (1 + 2 - 1) / 3 / 1.0944444 = 0.1472081.
    state, feedback = near
    close(feedback.metrics["actor_loss"], 0.58333333)
    close(feedback.metrics["imitation_error"], 3.25 / 3)
    close(state.actor.p, 0.5 - 0.1 * (7 / 3 - 0.14720812))


def test_targets_follow_the_new_actor_and_critics(near):
    state, _ = near
    close(state.target_actor.p, 0.9 * 0.25 + 0.1 * 0.28138748)
    first, second = state.target_critic.members
    close([first.w, first.u], [0.97, 0.92416667])
    close([second.w, second.u], [1.81666667, 0.20416667])


def test_critics_of_rebrac_are_pulled_to_the_next_logged_action(far):
    # (a' - b')**2 = 0 (no b'), 0.25, 0.5625; y = 1 + 0.5 * 2.5, 0.5 (1.25 - 2 * 0.25), 2 + 0 (discount 0).
    # Errors -1.25, 1.625, -3 and -1.25, -0.375, 0. Loss: (3.125 + 2.640625 + 0.140625 + 9) / 3.
    # Slopes 2/3 * 5, 2/3 * -3.625 and 2/3 * -2, 2/3 * -0.625.
    state, feedback = far
    close(feedback.metrics["critic_loss"], 4.96875)
    close(feedback.metrics["next_distance"], 0.8125 / 3)
    close([[one.w, one.u] for one in state.critic.members], [[0.66666667, 0.24166667], [0.13333333, 2.04166667]])


def test_actor_of_rebrac_reads_the_smallest_new_critic(far):
    # New critics of 0.5, 1, -0.5: 0.7875, 1.575, -0.7875 and 1.1541667, 2.3083333, -1.1541667; the smallest: the first,
    # the first, the second; mean size 3.5166667 / 3, mean 1.2083333 / 3. Loss: 0.5 * 3.25 / 3 - 0.3436019.
    # Slope in p: 0.5 * 7 / 3 - (0.24166667 * 3 - 2.0416667) / 3 / 1.1722222.
    state, feedback = far
    close(feedback.metrics["actor_loss"], 0.19806477)
    close(state.actor.p, 0.5 - 0.1 * (3.5 / 3 + 0.37440758))


def test_without_normalisation_q_has_its_own_size():
    # 0.5 * 3.25 / 3 - 1.2083333 / 3
    _, feedback = compiled(step)(ReBRAC(**FAR_OWN), start(FAR), logged())
    close(feedback.metrics["actor_loss"], 0.13888889)


FAR_OWN = {"actor_penalty": 0.5, "critic_penalty": 2.0, "normalise_q": False, **OWN}
