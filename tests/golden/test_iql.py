"""One update of IQL and of behaviour cloning on three samples and tiny networks, computed by hand."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algorithms.worlds import compiled
from tests.golden.lines import SPEC, LineCritic, batch, make_actor, make_critic, make_value, numbers, plain
from tidelog import BC, IQL
from tidelog.algorithms.short_form import held_out_losses, step
from tidelog.networks.critics import Ensemble

HAND = IQL(
    expectile=0.75, temperature=2.0, max_weight=3.0, tau=0.1, optimiser=plain, actor_schedule="constant",
    value_learning_rate=0.2, actor_learning_rate=0.1, critic_learning_rate=0.1,
    actor_network=make_actor, critic_network=make_critic, value_network=make_value,
)  # fmt: skip


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-6, atol=1e-7)


def start():
    """V = s / 2, actor's mean s / 2, critics s and 2 a, target critics s + a and 2 s."""
    state = HAND.init(SPEC, random.key(0), 100)
    critics = Ensemble((LineCritic(jnp.array(1.0), jnp.array(0.0)), LineCritic(jnp.array(0.0), jnp.array(2.0))))
    targets = Ensemble((LineCritic(jnp.array(1.0), jnp.array(1.0)), LineCritic(jnp.array(2.0), jnp.array(0.0))))
    return state._replace(critic=critics, target_critic=targets)


@pytest.fixture(scope="module")
def moved():
    return compiled(step)(HAND, start(), batch())


def test_value_step(moved):
    # Target critics: 1.5, 2, 0 and 2, 4, -2; smallest q = 1.5, 2, -2. V = 0.5, 1, -0.5. u = q - V = 1, 1, -1.5.
    # Loss: (0.75 * 1 + 0.75 * 1 + 0.25 * 2.25) / 3 = 2.0625 / 3.
    # Slope in w: mean of -2 weight u s = (-1.5 - 3 - 0.75) / 3 = -1.75; w = 0.5 + 0.2 * 1.75.
    state, feedback = moved
    close(feedback.metrics["value_loss"], 0.6875)
    close(state.value.w, 0.85)


def test_actor_step_reads_the_new_value(moved):
    # New V = 0.85, 1.7, -0.85; advantage = 0.65, 0.3, -1.15; exp(2 advantage) = 3.67 -> 3, 1.8221188, 0.1002588.
    # Means 0.5, 1, -0.5; a - mean = 0, -1, 1.5; -log pi = 0.9189385 + 0, 0.5, 1.125.
    # Loss: (3 * 0.9189385 + 1.8221188 * 1.4189385 + 0.1002588 * 2.0439385) / 3
    #     = (2.7568156 + 2.5854745 + 0.2049229) / 3.
    # Slope in p: mean of -weight (a - mean) s = (0 + 3.6442376 + 0.1503883) / 3 = 1.2648753; p = 0.5 - 0.12648753.
    state, feedback = moved
    close(feedback.metrics["actor_loss"], 1.8490710)
    close(state.actor.p, 0.37351247)
    close(feedback.metrics["capped_share"], 1 / 3)


def test_critic_step_reads_the_new_value(moved):
    # New V(s') = 1.7, 0.85, 2.55; y = 1 + 0.85, 0.425, 2 + 0. Critics: 1, 2, -1 and 1, 0, 2.
    # Errors: -0.85, 1.575, -3 and -0.85, -0.425, 0.
    # Loss: (0.7225 + 0.7225 + 2.480625 + 0.180625 + 9 + 0) / 3 = 13.10625 / 3.
    # Slopes 2/3 sum(error s), 2/3 sum(error a): 2/3 * 5.3, 2/3 * -3.425 and 2/3 * -1.7, 2/3 * -0.425; rate 0.1.
    state, feedback = moved
    first, second = state.critic.members
    close(feedback.metrics["critic_loss"], 4.36875)
    close([first.w, first.u], [1 - 0.35333333, 0.22833333])
    close([second.w, second.u], [0.11333333, 2 + 0.02833333])


def test_target_moves_by_its_share_of_the_gap_to_the_new_critics(moved):
    # (1, 1) towards (0.6466667, 0.2283333) and (2, 0) towards (0.1133333, 2.0283333), a tenth of the way.
    first, second = moved[0].target_critic.members
    close([first.w, first.u], [0.96466667, 0.92283333])
    close([second.w, second.u], [1.81133333, 0.20283333])


def test_priority_is_the_mean_size_of_the_critics_errors(moved):
    close(moved[1].priority, [0.85, 1.0, 1.5])  # (0.85 + 0.85) / 2, (1.575 + 0.425) / 2, (3 + 0) / 2


def test_metrics_by_hand(moved):
    metrics = moved[1].metrics
    close(metrics["q_mean"], 5 / 6)  # (1 + 2 - 1 + 1 + 0 + 2) / 6
    close(metrics["v_mean"], 1 / 3)  # (0.5 + 1 - 0.5) / 3, before the step
    close(metrics["advantage_mean"], -0.2 / 3)  # (0.65 + 0.3 - 1.15) / 3
    close(metrics["target_gap"], 10.5 / 6)  # |1-1.5| + |2-2| + |-1-0| + |1-2| + |0-4| + |2+2| = 10.5
    close(metrics["entropy"], 1.4189385)


def test_losses_without_a_step_read_the_networks_as_they_stand():
    # V is old here: advantage 1, 1, -1.5, weights 3, 3, 0.0497871; y = 1 + 0.5, 0.25, 2.
    # Actor: (3 * 0.9189385 + 3 * 1.4189385 + 0.0497871 * 2.0439385) / 3.
    # Critics' errors: -0.5, 1.75, -3 and -0.5, -0.25, 0: (0.25 + 0.25 + 3.0625 + 0.0625 + 9) / 3.
    found = eqx.filter_jit(held_out_losses)(HAND, start(), batch(), random.key(0))
    close(found["value_loss"], 0.6875)
    close(found["actor_loss"], 2.3717977)
    close(found["critic_loss"], 4.2083333)


def test_sample_weights_multiply_every_loss():
    # weights 2, 0, 1: value (2 * 0.75 + 0.5625) / 3; critics (2 * 0.5 + 9) / 3;
    # actor (2 * 2.7568156 + 0.0497871 * 2.0439385) / 3
    found = eqx.filter_jit(held_out_losses)(HAND, start(), batch(numbers(2.0, 0.0, 1.0)), random.key(0))
    close(found["value_loss"], 0.6875)
    close(found["critic_loss"], 10 / 3)
    close(found["actor_loss"], 1.8717976)


def test_metrics_for_debugging_by_hand():
    # Slopes are those above: -1.75, 1.2648753, and for the critics 2/3 (5.3, -3.425, -1.7, -0.425); together
    # sqrt(3.0625 + 1.5999095 + 4/9 (28.09 + 11.730625 + 2.89 + 0.180625)). Weights are those after the step.
    _, feedback = compiled(step)(replace(HAND, debug_metrics=True, gradient_clip=1e9), start(), batch())
    metrics = feedback.metrics
    close(metrics["gradient_norm_value"], 1.75)
    close(metrics["gradient_norm_actor"], 1.2648753)
    close(metrics["gradient_norm_critic"], 4.3660942)
    close(metrics["gradient_norm"], 4.8708508)
    close(metrics["weight_norm_value"], 0.85)
    close(metrics["weight_norm_critic"], np.sqrt(0.64666667**2 + 0.22833333**2 + 0.11333333**2 + 2.02833333**2))
    # Targets 1.85, 0.425, 2; critics 1, 2, -1 and 1, 0, 2; errors 0.85, 1.575, 3 and 0.85, 0.425, 0.
    close([metrics["q_mean_1"], metrics["q_mean_2"], metrics["target_q"]], [2 / 3, 1.0, 4.275 / 3])
    close([metrics["td_error_1"], metrics["td_error_2"]], [5.425 / 3, 1.275 / 3])
    target, second = np.asarray([1.85, 0.425, 2.0]), np.asarray([1.0, 0.0, 2.0])
    close(metrics["explained_variance_2"], 1 - (target - second).var() / target.var())
    assert metrics.keys() - {"gradient_norm"} >= compiled(step)(HAND, start(), batch())[1].metrics.keys()


@pytest.mark.parametrize("period", [1, 3])
def test_target_critics_move_once_a_period(period):
    h, state, moved = replace(HAND, target_update_period=period), start(), []
    for update in range(1, 8):
        new, _ = compiled(step)(h, state, batch())
        if float(new.target_critic.members[0].w) != float(state.target_critic.members[0].w):
            moved.append(update)
        state = new
    assert moved == [update for update in range(1, 8) if update % period == 0]


# One update of behaviour cloning on three samples and a network of one number, computed by hand.


CLONE = BC(optimiser=plain, learning_rate=0.1, actor_network=make_actor)


def cloned(weight=None):
    return compiled(step)(CLONE, CLONE.init(SPEC, random.key(0), 100), batch(weight))


def test_bc_step():
    # Means 0.5, 1, -0.5; a - mean = 0, -1, 1.5; -log pi = 0.9189385 + 0, 0.5, 1.125: mean 0.9189385 + 1.625 / 3.
    # Slope in p: mean of -(a - mean) s = (0 + 2 + 1.5) / 3; p = 0.5 - 0.1 * 3.5 / 3.
    state, feedback = cloned()
    np.testing.assert_allclose(feedback.metrics["imitation_loss"], 1.4606052, rtol=1e-6)
    np.testing.assert_allclose(state.actor.p, 0.38333333, rtol=1e-6)


def test_bc_step_with_sample_weights():
    # weights 0, 1, 2: slope (0 + 2 + 3) / 3; loss (1.4189385 + 2 * 2.0439385) / 3
    state, feedback = cloned(numbers(0.0, 1.0, 2.0))
    np.testing.assert_allclose(feedback.metrics["imitation_loss"], 1.8356052, rtol=1e-6)
    np.testing.assert_allclose(state.actor.p, 0.5 - 0.5 / 3, rtol=1e-6)
