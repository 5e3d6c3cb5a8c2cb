"""Common properties of all losses: one error per sample, refused shapes, agreement with plain NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog.losses.imitation import (
    categorical_log_probability,
    gaussian_log_probability,
    pick,
    squared_distance,
)
from tidelog.losses.policy import advantage_weight
from tidelog.losses.td import POINT_LOSSES, ensemble_error, expectile_error, huber
from tidelog.support import allow

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


def test_huber_has_a_slope_of_at_most_1_and_joins_smoothly():
    slope = jax.jit(jax.vmap(jax.grad(huber)))(np.array([-9.0, -1.001, -0.999, 0.999, 1.001, 9.0], np.float32))
    np.testing.assert_allclose(slope, [-1, -1, -0.999, 0.999, 1, 1], atol=1e-5)


@jax.jit
def mean_expectile_error(u, expectile):
    return jnp.mean(expectile_error(u, expectile))


@pytest.mark.parametrize("expectile", [0.1, 0.5, 0.7, 0.99])
def test_the_minimum_of_the_expectile_error_is_the_expectile(expectile):
    x = RNG.normal(size=500)
    grid = np.linspace(-3, 3, 6001)
    errors = np.array([np.mean(np.where(x < v, 1 - expectile, expectile) * (x - v) ** 2) for v in grid])
    v = grid[errors.argmin()]
    found = [float(mean_expectile_error(x - u, expectile)) for u in (v - 0.01, v, v + 0.01)]
    np.testing.assert_allclose(found[1], errors.min(), rtol=1e-4)
    assert found[1] < min(found[0], found[2])


def test_gaussian_log_density_is_scipys():
    norm = pytest.importorskip("scipy.stats").norm
    mean, action, log_std = RNG.normal(size=(3, 6, 2))
    wanted = norm.logpdf(action, mean, np.exp(log_std)).sum(1)
    np.testing.assert_allclose(jax.jit(gaussian_log_probability)(mean, log_std, action), wanted, rtol=1e-4)


def test_picking_takes_the_entry_of_the_action_and_sends_the_slope_there():
    values, action = RNG.normal(size=(2, 5, 3)).astype(np.float32), np.array([0, 1, 2, 1, 0])
    both, picked = np.tile(action, (2, 1)), jax.jit(pick)
    np.testing.assert_allclose(picked(values, both), values[:, np.arange(5), action])
    slope = jax.jit(jax.grad(lambda v: pick(v, both).sum()))(values)
    np.testing.assert_array_equal(slope, np.broadcast_to(np.eye(3)[action], (2, 5, 3)))
    assert float(picked(np.array([-np.inf, 2.0], np.float32), np.array(1))) == 2.0


def test_weights_rise_with_the_advantage_up_to_the_cap():
    weight = np.asarray(jax.jit(advantage_weight)(np.linspace(-2.0, 2.0, 9, dtype=np.float32), 3.0, 20.0))
    assert (np.diff(weight[:6]) > 0).all()
    assert float(weight[4]) == 1.0
    assert float(weight[-1]) == 20.0


def test_without_a_mask_everything_is_allowed():
    values = jnp.ones((2, 3))
    assert allow(values, None) is values
