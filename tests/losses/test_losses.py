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
from tidelog.losses.td import POINT_LOSSES, ensemble_error
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
