"""V-trace and the decoupled surrogate by hand. Letters: `W` segments, `T` steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.golden.lines import numbers
from tidelog.losses.policy import decoupled_surrogate, surrogate, truncated_weight
from tidelog.losses.td import advantages, vtrace

whole_vtrace, whole_advantages = jax.jit(vtrace), jax.jit(advantages)
decoupled = eqx.filter_jit(decoupled_surrogate)

NO = [False] * 4
ALL = [True] * 4
REWARD, VALUE, FOLLOWING = [1, 0, 2, 1], [1, 2, 4, 0], [2, 8, 0, 6]
RATIO = [0.5, 2.0, 0.25, 4.0]
TRUNCATED = [False, True, False, False]


def traced(ratio=RATIO, terminated=NO, truncated=TRUNCATED, valid=ALL, discount=0.5, **dials):
    """Targets and advantages [T] of one segment; trace 1/2."""
    rows = [numbers(row) for row in (np.log(ratio), REWARD, VALUE, FOLLOWING)]
    flags = [np.asarray([row], bool) for row in (terminated, truncated, valid)]
    return [np.asarray(found)[0] for found in whole_vtrace(*rows, *flags, discount, 0.5, **dials)]


def test_a_segment_with_a_truncation_inside():
    # TD errors: 1 + .5*2 - 1 = 1; 0 + .5*8 - 2 = 2 (V of the next observation is 8); 2 + 0 - 4 = -2; 1 + .5*6 - 0 = 4
    # rho = min(1, ratio) = .5, 1, .25, 1; c = rho / 2; a trace decays by .5 c = .125, 0 (truncated), .0625, 0 (the end)
    # excess v - V backwards: 1*4 = 4; .25*-2 + .0625*4 = -.25; 1*2 + 0 = 2; .5*1 + .125*2 = .75
    target, advantage = traced()
    np.testing.assert_allclose(target, [1.75, 4.0, 3.75, 4.0])
    # advantages: TD error + .25 (v' - V') where the trace continues: 1 + .25*2; 2; -2 + .25*4; 4
    np.testing.assert_allclose(advantage, [1.5, 2.0, -1.0, 4.0])


def test_each_step_has_its_own_discount():
    # discounts .25, .5, 1, .125: TD errors 1 + .25*2 - 1 = .5; 2; -2; 1 + .125*6 = 1.75; traces decay by .25*.5*.5 =
    # .0625, 0, 1*.5*.25 = .125, 0. Excess: 1.75; .25*-2 + .125*1.75 = -.28125; 2; .5*.5 + .0625*2 = .375
    target, advantage = traced(discount=numbers([0.25, 0.5, 1.0, 0.125]))
    np.testing.assert_allclose(target, [1.375, 4.0, 3.71875, 1.75])
    np.testing.assert_allclose(advantage, [0.5 + 0.125 * 2, 2.0, -2 + 0.5 * 1.75, 1.75])


def test_a_termination_bootstraps_nothing():
    # the second TD error is 0 - 2 = -2; the first excess .5*1 + .125*-2 = .25
    target, advantage = traced(terminated=TRUNCATED, truncated=NO)
    np.testing.assert_allclose(target, [1.25, 0.0, 3.75, 4.0])
    np.testing.assert_allclose(advantage, [0.5, -2.0, -1.0, 4.0])


def test_a_row_that_only_restarts_is_its_value_with_advantage_0_and_ends_the_trace():
    target, advantage = traced(valid=[True, True, False, True])
    np.testing.assert_allclose(target, [1.75, 4.0, 4.0, 4.0])
    np.testing.assert_allclose(advantage, [1.5, 2.0, 0.0, 4.0])
    alone = traced(valid=[True, False, True, True], truncated=NO)
    np.testing.assert_allclose(alone[0][0], 1 + 0.5 * 1)  # nothing comes from later segments


def test_bars_cut_what_a_surprise_and_a_trace_count():
    # rho up to 2: .5, 2, .25, 2; excess: 8; -.5 + .0625*8 = 0; 4; .5 + .125*4 = 1
    target, _ = traced(rho_bar=2.0)
    np.testing.assert_allclose(target, [2.0, 6.0, 4.0, 8.0])
    # c up to .25: .25, -, .25: decay .0625, 0, .0625: the first excess .5 + .0625*2
    target, _ = traced(c_bar=0.25)
    np.testing.assert_allclose(target, [1.625, 4.0, 3.75, 4.0])


@pytest.mark.parametrize("seed", range(3))
def test_where_the_policy_is_who_played_these_are_lambda_returns_and_generalised_advantages(seed):
    draw = np.random.default_rng(seed)
    reward, value, following = (draw.normal(size=(3, 12)).astype(np.float32) for _ in range(3))
    following[:, :-1] = value[:, 1:]  # where nothing ended, the next step is the next observation
    terminated, truncated, restarts = (draw.random((3, 12)) < 0.15 for _ in range(3))
    rows = reward, value, following, terminated, truncated, ~restarts
    target, advantage = whole_vtrace(np.zeros((3, 12), np.float32), *rows, 0.97, 0.9)
    expected = np.asarray(whole_advantages(*rows, 0.97, 0.9))
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(target, value + expected, rtol=1e-5, atol=1e-5)


def test_a_hopeless_ratio_keeps_everything_finite():
    for huge in (200.0, -200.0):
        rows = [numbers([huge] * 4), *(numbers([1.0] * 4) for _ in range(3))]
        found = whole_vtrace(*rows, *(np.asarray([row]) for row in (NO, NO, ALL)), 0.9, 0.9)
        assert all(np.isfinite(one).all() for one in found)


# The decoupled surrogate.


def test_the_proximal_policy_clips_and_the_behaviour_policy_weighs():
    # r = 1.5 clipped at 1.2: w min(r A, 1.2 A); w = .5, 2, 2; A = 2, -2 (the worse is unclipped), 2 with r = 1.1
    ratio, weight = numbers(1.5, 1.5, 1.1), numbers(0.5, 2.0, 2.0)
    advantage = numbers(2.0, -2.0, 2.0)
    found = decoupled(np.log(ratio), np.log(weight), advantage, 0.2, 100.0)
    np.testing.assert_allclose(found, [-0.5 * 2.4, 2 * 3.0, -2 * 2.2], rtol=1e-5)
    free = decoupled(np.log(ratio), np.log(weight), advantage, None, 100.0)
    np.testing.assert_allclose(free, -weight * ratio * advantage, rtol=1e-5)


def test_with_the_proximal_policy_held_at_who_played_it_is_ppos():
    log_ratio = np.linspace(-0.7, 0.7, 15, dtype=np.float32)
    losses = [
        jax.jit(jax.vmap(jax.value_and_grad(loss)))
        for loss in (
            lambda x, a: surrogate(x, a, 0.2),
            lambda x, a: decoupled_surrogate(x, jnp.zeros_like(x), a, 0.2, 100.0),
        )
    ]
    for sign in (1.0, -1.0):
        advantage = np.float32(sign) * np.linspace(0.5, 2.0, 15, dtype=np.float32)
        both = [loss(log_ratio, advantage) for loss in losses]
        jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6), *both)


def test_where_the_average_is_the_policy_it_is_the_weighted_policy_gradient():
    log_behaviour, advantage = numbers(-1.0, 0.0, 1.5), numbers(2.0, -1.0, 0.5)

    def loss(logp, weight, a):  # of the log-probability, the average held fixed at it
        return decoupled_surrogate(logp - jax.lax.stop_gradient(logp), weight, a, 0.2, 100.0)

    slope = jax.jit(jax.vmap(jax.grad(loss)))(numbers(-0.3, -2.0, -1.0), log_behaviour, advantage)
    np.testing.assert_allclose(slope, -np.exp(log_behaviour) * advantage, rtol=1e-5)


def test_neither_weight_nor_ratio_counts_more_than_the_limit():
    log_ratio, log_weight = np.log(numbers(50.0, 0.5, 2.0, 0.5)), np.log(numbers(50.0, 50.0, 50.0, 500.0))
    weight = np.exp(jax.jit(truncated_weight)(log_ratio, log_weight, 100.0))
    np.testing.assert_allclose(weight, [2.0, 50.0, 50.0, 100.0], rtol=1e-5)  # 50 * 2 is the limit itself
    one = numbers(1.0, 1.0, 1.0, 1.0)
    np.testing.assert_allclose(
        decoupled(log_ratio, log_weight, one, None, 100.0), [-100.0, -25.0, -100.0, -50.0], rtol=1e-5
    )
    slope = jax.jit(jax.grad(lambda x, other: decoupled_surrogate(x, other, jnp.asarray(-1.0), 0.2, 100.0)))
    for huge in (120.0, -120.0):
        for other in (120.0, -120.0):
            assert np.isfinite(slope(huge, other))
