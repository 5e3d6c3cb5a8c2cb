"""Stores of segments: what goes in, what comes out, and that every epoch uses every sample once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog import PPG, ConfigError
from tidelog.algorithms.draws import Draw
from tidelog.algorithms.segments import Epochs, Whole, added, empty

SHAPE = {"seen": {"x": jnp.zeros((2, 6, 3))}, "valid": jnp.zeros((2, 6), bool)}


def rollout(start):
    """Two segments of six steps, each step with a number of its own, three times."""
    steps = jnp.arange(start, start + 12, dtype=jnp.float32).reshape(2, 6)
    return {"seen": {"x": jnp.repeat(steps[..., None], 3, axis=2)}, "valid": jnp.ones((2, 6), bool), "other": steps}


def full():
    store = empty(SHAPE, 4)
    for start in (0, 12):
        store = added(store, rollout(start))
    return store


def test_segments_stand_in_the_order_they_came_in():
    store = full()
    assert int(store.filled) == 4
    assert set(store.columns) == {"seen", "valid"}
    np.testing.assert_array_equal(store.columns["seen"]["x"][:, :, 0].ravel(), np.arange(24))


def test_a_full_store_begins_anew():
    store = added(full(), rollout(100))
    assert int(store.filled) == 2
    np.testing.assert_array_equal(store.columns["seen"]["x"][:, 0, 0], [100, 106, 12, 18])


@pytest.mark.parametrize("pieces", [1, 3])
def test_samples_are_whole_segments_or_equal_parts_of_them(pieces):
    unit = Whole(pieces)
    assert unit.rows(full()) == (4 * pieces, None)
    data, _, valid = unit.gather(full(), jnp.asarray([1, 2]))
    begin = [6, 12] if pieces == 1 else [2, 4]
    np.testing.assert_array_equal(data["seen"]["x"][:, 0, 1], begin)
    assert valid.shape == (2, 6 // pieces)


def test_every_epoch_uses_every_sample_once_in_an_order_of_its_own():
    draw, store = Draw("memory", 2, Whole(3), Epochs()), full()
    state = draw.order.init(12, jax.random.key(3))
    epochs = []
    for _ in range(3):
        rows = []
        for _ in range(6):
            batch, indices = draw.batch(store, state, jax.random.key(0), jnp.zeros(()))
            state = draw.order.learn(state, indices, None)
            rows += batch.rows.tolist()
        assert sorted(rows) == list(range(12))
        epochs.append(rows)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert (
        draw.order.init(12, jax.random.key(4)).order.tolist() != draw.order.init(12, jax.random.key(3)).order.tolist()
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"minibatches": 7}, "minibatches = 7 does not divide environments . pieces = 64"),
        ({"pieces": 3}, "pieces = 3 does not divide rollout_steps = 256"),
        ({"auxiliary_minibatch": 3}, "auxiliary_minibatch = 3 does not divide environments . policy_iterations = 2048"),
    ],
)
def test_minibatches_that_would_leave_steps_out_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        PPG(**settings)
