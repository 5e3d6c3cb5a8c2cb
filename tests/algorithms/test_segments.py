"""Stores of segments: adding, drawing, lifetimes, and that epochs use every sample once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog import PPG, ConfigError, OffPolicyPPG
from tidelog.algorithms import segments
from tidelog.algorithms.contract import StoreSpec
from tidelog.algorithms.sampling import Sampler
from tidelog.algorithms.segments import MOST, Epochs, LivePasses, LiveUniform, Whole, empty

SHAPE = {"seen": {"x": np.zeros((2, 6, 3), np.float32)}, "valid": np.zeros((2, 6), bool)}
added, drawn, looked_at = (jax.jit(change) for change in (segments.added, segments.drawn, segments.looked_at))


@eqx.filter_jit
def one_batch(draw, store, state, key):
    """Return a batch, and the state of the order after it, as one program."""
    batch, indices = draw.batch(store, state, key, jnp.zeros(()))
    return batch, draw.order.learn(state, indices, None)


@eqx.filter_jit
def begun(order, count, key):
    """Return the first state of an order."""
    return order.init(count, key)


def rollout(start):
    """Two segments of six steps, each step with its own number, three times."""
    steps = np.arange(start, start + 12, dtype=np.float32).reshape(2, 6)
    return {"seen": {"x": np.repeat(steps[..., None], 3, axis=2)}, "valid": np.ones((2, 6), bool), "other": steps}


@jax.jit
def full():
    store = empty(SHAPE, StoreSpec((), 4))
    for start in (0, 12):
        store = added(store, rollout(start))
    return store


def test_segments_stand_in_the_order_they_came_in():
    store = full()
    assert int(store.filled) == 4
    assert set(store.columns) == {"seen", "valid"}
    np.testing.assert_array_equal(np.asarray(store.columns["seen"]["x"])[:, :, 0].ravel(), np.arange(24))


def test_a_full_store_begins_anew():
    store = added(full(), rollout(100))
    assert int(store.filled) == 2
    np.testing.assert_array_equal(np.asarray(store.columns["seen"]["x"])[:, 0, 0], [100, 106, 12, 18])


@pytest.mark.parametrize("num_chunks", [1, 3])
def test_samples_are_whole_segments_or_equal_parts_of_them(num_chunks):
    unit = Whole(num_chunks)
    assert unit.rows(full()) == (4 * num_chunks, None)
    data, _, valid, *_ = eqx.filter_jit(unit.gather)(full(), np.asarray([1, 2]))
    begin = [6, 12] if num_chunks == 1 else [2, 4]
    np.testing.assert_array_equal(np.asarray(data["seen"]["x"])[:, 0, 1], begin)
    assert valid.shape == (2, 6 // num_chunks)


def test_every_epoch_uses_every_sample_once_in_an_order_of_its_own():
    draw, store = Sampler("memory", 2, Whole(3), Epochs()), full()
    state = begun(draw.order, 12, jax.random.key(3))
    epochs = []
    for _ in range(3):
        rows = []
        for _ in range(6):
            batch, state = one_batch(draw, store, state, jax.random.key(0))
            rows += batch.rows.tolist()
        assert sorted(rows) == list(range(12))
        epochs.append(rows)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    other, same = (begun(draw.order, 12, jax.random.key(seed)).order.tolist() for seed in (4, 3))
    assert other != same


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"minibatches": 7}, "minibatches = 7 does not divide num_envs . num_chunks = 64"),
        ({"num_chunks": 3}, "num_chunks = 3 does not divide rollout_steps = 256"),
        ({"auxiliary_minibatch": 3}, "auxiliary_minibatch = 3 does not divide num_envs . policy_iterations = 2048"),
    ],
)
def test_minibatches_that_would_leave_steps_out_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        PPG(**settings)


# Lifetimes.


@eqx.filter_jit
def ring(capacity=5, max_use=3, max_staleness=4):
    return added(empty(SHAPE, StoreSpec((), capacity, max_use, max_staleness)), rollout(0))


live = jax.jit(lambda store: store.live)


def lives(store):
    return live(store).tolist()


def test_a_ring_takes_the_oldest_ones_places():
    store = ring()
    assert lives(store) == [True, True, False, False, False]
    for start in (12, 24):
        store = added(drawn(store, np.asarray([1])), rollout(start))
    assert int(store.filled) == 1
    np.testing.assert_array_equal(np.asarray(store.columns["seen"]["x"])[:, 0, 0], [30, 6, 12, 18, 24])
    assert store.lives.uses.tolist() == [0, 2, 0, 0, 0]
    assert store.lives.ages.tolist() == [0, 2, 1, 1, 0]
    assert lives(store) == [True] * 5


def test_a_segment_is_dropped_after_so_many_uses():
    store = ring(max_staleness=None)
    for rows in ([0, 0], [1, 0]):
        store = drawn(store, np.asarray(rows))
    assert lives(store) == [False, True, False, False, False]
    assert store.lives.uses.tolist() == [3, 1, *[MOST] * 3]
    assert lives(added(added(store, rollout(12)), rollout(24)))[0]  # a replacement starts with age 0


def test_a_segment_is_dropped_when_it_is_older_than_the_limit():
    store = ring(max_use=None, max_staleness=2)
    for _ in range(2):
        store = drawn(store, np.asarray([0]))
        assert lives(store) == [True, True, False, False, False]
    store = added(store, rollout(12))
    assert lives(drawn(store, np.asarray([0]))) == [False, False, True, True, False]


def batch_of(store, order, size, key=0, state=None):
    return one_batch(Sampler("policy", size, Whole(), order), store, state, jax.random.key(key))[0]


@jax.jit
def some():
    """Six segments, four of them live."""
    store = ring(capacity=6)
    for start in (12, 24):
        store = added(store, rollout(start))
    return drawn(store, np.asarray([1, 4, 1, 1, 4, 4]))


def test_those_that_live_are_drawn_once_a_batch_and_equally_often():
    store = some()
    assert lives(store) == [True, False, True, True, False, True]
    seen = [tuple(batch_of(store, LiveUniform(), 3, key).rows.tolist()) for key in range(100)]
    assert all(len(set(rows)) == 3 for rows in seen)
    counts = np.bincount(np.ravel(seen), minlength=6)
    assert counts[[1, 4]].sum() == 0
    assert (counts[[0, 2, 3, 5]] > 50).all()  # 75 expected; a right sampler fails for 3 in 10 million seeds
    assert sorted(batch_of(store, LiveUniform(), 4).rows.tolist()) == [0, 2, 3, 5]
    assert len(set(seen)) > 20  # of 24; a right sampler fails for 1 in 8,000 seeds


def test_where_fewer_live_than_a_batch_has_all_are_drawn_again():
    counts = np.bincount(batch_of(some(), LiveUniform(), 10).rows, minlength=6)
    assert sorted(counts[[0, 2, 3, 5]].tolist()) == [2, 2, 3, 3]
    assert counts[[1, 4]].sum() == 0


def test_a_batch_says_how_old_its_segments_are():
    store = added(drawn(ring(), np.asarray([0])), rollout(12))
    batch = batch_of(store, LiveUniform(), 4)
    np.testing.assert_array_equal(batch.data["age"], np.where(np.asarray(batch.rows) < 2, 1, 0))


def test_passes_see_all_that_live_once_each():
    draw, store = Sampler("value", 2, Whole(), LivePasses()), some()
    state, passes = begun(draw.order, 6, jax.random.key(3)), []
    for _ in range(4):
        rows = []
        for _ in range(2):
            batch, state = one_batch(draw, store, state, jax.random.key(0))
            rows += batch.rows.tolist()
        assert sorted(rows) == [0, 2, 3, 5]
        passes.append(rows)
    assert len({tuple(rows) for rows in passes}) > 1  # right passes are all alike for 1 in 13,824 seeds


def test_of_a_whole_store_only_what_lives_is_valid():
    valid = np.asarray(looked_at(some())["valid"])
    np.testing.assert_array_equal(valid.all(1), live(some()))
    assert not valid[1].any()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"policy_capacity": 63}, "policy_capacity = 63 is less than num_envs = 64"),
        ({"policy_max_use": 4}, "policy_max_use = 4 and update_per_collect = 5: .* could be empty .* at least 5 uses"),
        (
            {"num_envs": 16},
            "a minibatch has 64 segments and draws each of 16 new segments up to 4 times .* least 17 uses",
        ),
        ({"value_max_use": 5}, "value_max_use = 5 and update_per_collect = 5: .* value store could be empty"),
        ({"value_max_use": 4, "auxiliary_epochs": 0}, "value_max_use = 4 and update_per_collect = 5"),
        ({"policy_max_staleness": 3}, "policy_max_staleness = 3 and update_per_collect = 5: .* at least 4 updates"),
        ({"value_max_staleness": 4}, "value_max_staleness = 4 and update_per_collect = 5: .* at least 5 updates"),
    ],
)
def test_limits_that_would_empty_a_store_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        OffPolicyPPG(**settings)


@pytest.mark.parametrize("order", [Epochs(), LivePasses()])
def test_an_order_at_random_needs_a_key(order):
    with pytest.raises(TypeError, match=r"init needs a key, got None\. fix: pass key=jax\.random\.key\(seed\)"):
        order.init(4)
