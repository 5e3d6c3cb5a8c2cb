"""Losses and their gradients on tiny tensors, against arithmetic by hand."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.golden.lines import numbers
from tidelog.algorithms.optimisation import cosine, descend, linear, polyak_update
from tidelog.losses.imitation import (
    categorical_log_probability,
    gaussian_log_probability,
    pick,
    squared_distance,
)
from tidelog.losses.policy import advantage_weight
from tidelog.losses.td import POINT_LOSSES, Components, ensemble_error, expectile_error, huber, squared
from tidelog.networks.actors import Categorical, Gaussian
from tidelog.support import allow

close = np.testing.assert_allclose
HALF_LOG_TWO_PI = 0.9189385332


def slope(function, at):
    return jax.jit(jax.grad(lambda x: jnp.sum(function(x))))(at)


def test_expectile_error():
    u = numbers(2.0, -1.0, 0.0)
    close(jax.jit(expectile_error)(u, 0.7), [2.8, 0.3, 0.0], rtol=1e-6)  # 0.7 * 4, 0.3 * 1, 0
    close(slope(lambda u: expectile_error(u, 0.7), u), [2.8, -0.6, 0.0], rtol=1e-6)  # 2 * 0.7 * 2, 2 * 0.3 * -1


def test_huber():
    x = numbers(0.5, -1.0, -3.0)
    close(jax.jit(huber)(x), [0.125, 0.5, 2.5])  # x^2 / 2 up to 1, then |x| - 1/2
    close(slope(huber, x), [0.5, -1.0, -1.0])


def test_ensemble_error_sums_over_critics_and_holds_the_target_fixed():
    values, target = numbers([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]), numbers(0.0, 2.0, 1.0)
    error = eqx.filter_jit(ensemble_error)
    close(error(values, target, squared), [1.0, 4.0, 5.0])  # 1 + 0, 0 + 4, 4 + 1
    close(error(values, target, huber), [0.5, 1.5, 2.0])  # 0.5 + 0, 0 + 1.5, 1.5 + 0.5
    close(slope(lambda v: ensemble_error(v, target), values), [[2.0, 0.0, 4.0], [0.0, -4.0, -2.0]])
    close(slope(lambda t: ensemble_error(values, t), target), [0.0, 0.0, 0.0])


def test_advantage_weight_is_capped_and_held_fixed():
    advantage, weight = numbers(-1.0, 0.5, 10.0), jax.jit(advantage_weight)
    # exp(-2) = 0.1353353, exp(1) = 2.7182818, exp(20) is cut at 100
    close(weight(advantage, 2.0, 100.0), [0.1353353, 2.7182818, 100.0], rtol=1e-6)
    close(slope(lambda a: advantage_weight(a, 2.0, 100.0), advantage), [0.0, 0.0, 0.0])
    assert float(weight(np.float32(1e30), 10.0, 100.0)) == 100.0


def test_gaussian_log_density():
    mean, log_std, action = numbers([0.0, 1.0]), numbers(0.0, math.log(2.0)), numbers([1.0, 0.0])
    # -(1^2)/2 - 0 - c, and z = (0 - 1) / 2: -1/8 - ln 2 - c; together -0.625 - 0.6931472 - 1.8378771
    close(jax.jit(gaussian_log_probability)(mean, log_std, action), [-3.1560243], rtol=1e-6)
    # (a - m) / sigma^2 = 1 / 1 and -1 / 4
    close(slope(lambda m: gaussian_log_probability(m, log_std, action), mean), [[1.0, -0.25]])
    # z^2 - 1 = 0 and 1/4 - 1
    close(slope(lambda s: gaussian_log_probability(mean, s, action), log_std), [0.0, -0.75], atol=1e-7)
    # entropy: one half and c a dimension, and the log-stds 0 + ln 2
    close(jax.jit(Gaussian.entropy)(Gaussian(mean, log_std)), [1.0 + 2 * HALF_LOG_TWO_PI + math.log(2.0)], rtol=1e-6)


def test_categorical_with_a_mask_spreads_over_what_is_allowed():
    mask = np.array([[True, True, False]])

    def log_probability(logits):
        return categorical_log_probability(allow(logits, mask), np.array([1]))

    logits = np.log(numbers([1.0, 3.0, 100.0]))
    close(jax.jit(log_probability)(logits), [math.log(0.75)], rtol=1e-6)  # 3 / (1 + 3)
    close(slope(log_probability, logits), [[-0.25, 0.25, 0.0]], atol=1e-7)  # 1(a) - p, nothing for the forbidden

    @jax.jit
    def said(logits):
        policy = Categorical(allow(logits, mask))
        return policy.probabilities(), policy.entropy(), policy.mode()

    probabilities, entropy, mode = said(logits)
    close(probabilities, [[0.25, 0.75, 0.0]], rtol=1e-6)
    close(entropy, [0.5623351], rtol=1e-6)  # 0.25 ln 4 + 0.75 ln (4 / 3)
    assert int(np.asarray(mode)[0]) == 1


def test_squared_distance():
    mean, action = numbers([0.5, -0.5]), numbers([0.0, 0.5])
    close(jax.jit(squared_distance)(mean, action), [1.25])  # 0.25 + 1
    close(slope(lambda m: squared_distance(m, action), mean), [[1.0, -2.0]])


def test_schedules_at_known_points():
    progress = numbers(0.0, 0.25, 0.5, 1.0, 2.0)
    close(jax.jit(cosine)(progress), [1.0, 0.8535534, 0.5, 0.0, 0.0], atol=1e-7)  # (1 + cos(pi / 4)) / 2
    close(jax.jit(linear)(progress), [1.0, 0.75, 0.5, 0.0, 0.0])


@pytest.mark.parametrize(("clip", "moved"), [(None, [0.7, 0.6]), (10.0, [0.7, 0.6]), (1.0, [0.94, 0.92])])
def test_descent_clips_the_norm_of_the_gradient(clip, moved):
    # From (1, 1) by a tenth of (3, 4), whose norm is 5; clipped to norm 1 it is (0.6, 0.8).
    descended = eqx.filter_jit(descend)
    found, _ = descended(optax.identity, numbers(1.0, 1.0), numbers(3.0, 4.0), optax.EmptyState(), 0.1, clip)
    close(found, moved, rtol=1e-6)


def test_following_moves_by_a_share_of_the_gap():
    moved = jax.jit(polyak_update)(numbers(1.0, -2.0), numbers(3.0, 2.0), 0.25)
    close(moved, [1.5, -1.0])  # a quarter of 2 and of 4


# Common properties of all losses: one error per sample, refused shapes, agreement with plain NumPy.


RNG = np.random.default_rng(0)


def test_shapes_that_do_not_fit_are_refused():
    three, column = jnp.ones(3), jnp.ones((3, 1))
    for call in (
        lambda: ensemble_error(jnp.ones((2, 3)), column),
        lambda: ensemble_error(three, three),
        lambda: ensemble_error(jnp.ones((2, 3)), jnp.ones(2)),
        lambda: gaussian_log_probability(column, jnp.zeros(1), three),
        lambda: squared_distance(column, jnp.ones((3, 2))),
        lambda: categorical_log_probability(column, jnp.zeros((3, 1), int)),
        lambda: allow(jnp.ones((3, 2)), jnp.ones((3, 1), bool)),
    ):
        with pytest.raises(TypeError, match="shape"):
            call()


@pytest.mark.parametrize("name", POINT_LOSSES)
def test_a_point_loss_is_even_0_at_0_and_grows(name):
    x, point = np.linspace(0.0, 5.0, 51, dtype=np.float32), jax.jit(POINT_LOSSES[name])
    loss = np.asarray(point(x))
    np.testing.assert_array_equal(loss, point(-x))
    assert float(loss[0]) == 0.0
    assert (np.diff(loss) > 0).all()
    error = eqx.filter_eval_shape(ensemble_error, jnp.ones((2, 3)), jnp.zeros(3), POINT_LOSSES[name])
    assert error.shape == (3,)


def test_picking_takes_the_entry_of_the_action_and_sends_the_slope_there():
    values, action = RNG.normal(size=(2, 5, 3)).astype(np.float32), np.array([0, 1, 2, 1, 0])
    both, picked = np.tile(action, (2, 1)), jax.jit(pick)
    np.testing.assert_allclose(picked(values, both), values[:, np.arange(5), action])
    slope = jax.jit(jax.grad(lambda v: pick(v, both).sum()))(values)
    np.testing.assert_array_equal(slope, np.broadcast_to(np.eye(3)[action], (2, 5, 3)))
    assert float(picked(np.array([-np.inf, 2.0], np.float32), np.array(1))) == 2.0


def test_without_a_mask_everything_is_allowed():
    values = jnp.ones((2, 3))
    assert allow(values, None) is values


# Several rewards: the weighted sum selects, the components are learnt.


def test_the_smallest_member_is_found_by_the_weighted_sum_and_keeps_its_components() -> None:
    # E = 2, B = 2, K = 2; weights (1, 10)
    values = np.asarray([[[5.0, 0.0], [1.0, 1.0]], [[0.0, 1.0], [2.0, 0.5]]], np.float32)
    # sums: sample 0: 5 and 10 -> member 0; sample 1: 11 and 7 -> member 1
    found = jax.jit(Components(jnp.asarray([1.0, 10.0])).smallest)(values)
    assert np.asarray(found).tolist() == [[5.0, 0.0], [2.0, 0.5]]
    assert np.asarray(jax.jit(Components(None).smallest)(values[..., 0])).tolist() == [0.0, 1.0]


def test_the_weighted_advantage_decides_the_side_of_every_component() -> None:
    # u = (2, -1) with weights (1, 3): the sum is -1, so both components count with 1 - 0.9
    u, rewards = np.asarray([[2.0, -1.0]], np.float32), Components(jnp.asarray([1.0, 3.0]))
    error = jax.jit(lambda u: expectile_error(u, 0.9, rewards.expand(rewards.total(u))))(u)
    assert np.asarray(error)[0] == pytest.approx([0.1 * 4.0, 0.1 * 1.0])
    assert float(np.asarray(jax.jit(rewards.average)(error))[0]) == pytest.approx(0.25)


def test_one_reward_passes_through() -> None:
    x = jnp.asarray([1.0, -2.0])
    one = Components(None)
    assert one.total(x) is one.average(x) is one.expand(x) is x
