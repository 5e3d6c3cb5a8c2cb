"""History encoders are causal and ignore padding; items have length 1; critics return the same values in every form."""

from functools import partial

import equinox as eqx
import jax
import numpy as np
import pytest

from tidelog.recommend.networks import (
    HISTORY_ENCODERS,
    HistoryEncoder,
    ItemCritics,
    ItemTable,
    Pair,
    perturb_vectors,
    unit_vectors,
)

B, L, D = 3, 5, 8


def reader(name):
    return HistoryEncoder.create(np.random.default_rng(0), HISTORY_ENCODERS[name], D, 2, L, 2, 2)


@eqx.filter_jit
def program(encoder, vectors, events, user):
    return encoder(vectors, events, user=user)


def read(encoder, vectors, events, user=None):
    """Return the states [B, L, D], as one program for each kind of encoder."""
    return np.asarray(program(encoder, vectors, events, user))


@partial(jax.jit, static_argnums=(0, 1))
def random_units(seed, shape):
    return unit_vectors(jax.random.normal(jax.random.key(seed), shape))


@pytest.fixture(scope="module")
def vectors():
    return np.asarray(random_units(0, (B, L, D)))


@pytest.mark.sample("gru")
@pytest.mark.parametrize("name", HISTORY_ENCODERS)
def test_the_future_changes_nothing_before_it(name, vectors):
    events = np.ones((B, L), np.int32)
    changed, others = vectors.copy(), events.copy()
    changed[:, 3], others[:, 4] = vectors[:, 0], 2
    told, other = read(reader(name), vectors, events), read(reader(name), changed, others)
    np.testing.assert_allclose(told[:, :3], other[:, :3], atol=1e-6)
    assert np.abs(told[:, 3:] - other[:, 3:]).max(axis=(0, 2)).min() > 1e-3


@pytest.mark.parametrize("name", HISTORY_ENCODERS)
def test_padding_is_read_by_nobody_and_tells_what_an_empty_history_tells(name, vectors):
    events, changed = np.ones((B, L), np.int32), vectors.copy()
    events[:, :2], changed[:, :2] = 0, 7.0
    told, other = read(reader(name), vectors, events), read(reader(name), changed, events)
    np.testing.assert_allclose(told, other, atol=1e-6)
    np.testing.assert_allclose(told[:, :2], np.broadcast_to(told[:1, :1], (B, 2, D)), atol=1e-6)


@pytest.mark.parametrize("name", HISTORY_ENCODERS)
def test_who_the_user_is_is_told_in_every_state_and_zeros_tell_nothing(name, vectors):
    events = np.ones((B, L), np.int32)
    events[0] = 0
    plain = HistoryEncoder.create(np.random.default_rng(0), HISTORY_ENCODERS[name], D, 2, L, 2, 2, 3)
    np.testing.assert_array_equal(plain.profile, 0.0)
    told = eqx.tree_at(lambda one: one.profile, plain, jax.random.normal(jax.random.key(2), (3, D)))
    user = np.array([[1.0, 0.0, -2.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]], np.float32)
    away = np.abs(read(told, vectors, events, user) - read(plain, vectors, events)).max(axis=-1)
    assert away[[0, 2]].min() > 1e-2
    np.testing.assert_allclose(away[1], 0.0, atol=1e-6)


@pytest.mark.parametrize("name", HISTORY_ENCODERS)
def test_states_of_some_steps_are_those_among_all(name, vectors):
    events = np.ones((B, L), np.int32)
    events[0, :3] = 0
    for steps in (slice(2, 4), slice(-1, None)):
        asked = jax.jit(partial(reader(name), steps=steps))(vectors, events)
        np.testing.assert_allclose(asked, read(reader(name), vectors, events)[:, steps], atol=1e-6)


@pytest.mark.parametrize("name", ["gru", "attention"])
def test_order_matters_to_readers_that_keep_it(name, vectors):
    events = np.ones((B, L), np.int32)
    swapped = vectors[:, [1, 0, 2, 3, 4]]
    told, other = read(reader(name), vectors, events), read(reader(name), swapped, events)
    assert np.abs(told[:, -1] - other[:, -1]).max() > 1e-3


def test_the_mean_forgets_order(vectors):
    events = np.ones((B, L), np.int32)
    swapped = vectors[:, [1, 0, 2, 3, 4]]
    told, other = read(reader("mean"), vectors, events), read(reader("mean"), swapped, events)
    np.testing.assert_allclose(told[:, -1], other[:, -1], atol=1e-5)


@pytest.mark.parametrize("name", HISTORY_ENCODERS)
def test_the_kind_of_event_is_read(name, vectors):
    events = np.ones((B, L), np.int32)
    told, other = read(reader(name), vectors, events), read(reader(name), vectors, 2 * events)
    assert np.abs(told - other)[:, -1].max() > 1e-3


def test_items_have_length_1_and_their_moves_are_bounded():
    table = ItemTable.create(np.random.default_rng(0), 6, D, 3, (4,))
    features = jax.random.normal(jax.random.key(1), (7, 3))
    both = eqx.filter_jit(lambda table, some: (table(None, features).vectors, table(some, features).vectors))
    vectors, some = (np.asarray(found) for found in both(table, np.array([2, 5])))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(some, vectors[[2, 5]], atol=1e-6)
    np.testing.assert_array_equal(table.weight, 0.0)  # a new item depends on its features only
    move, ones = jax.jit(perturb_vectors), np.ones((7, D), np.float32)
    moved = np.asarray(move(vectors, ones, 0.05))
    np.testing.assert_allclose(np.linalg.norm(moved, axis=-1), 1.0, atol=1e-5)
    assert 0.0 < np.linalg.norm(moved - vectors, axis=-1).max() <= 0.05 + 1e-5
    np.testing.assert_allclose(move(vectors, ones, 0.0), vectors, atol=1e-6)


@pytest.mark.sample("50")
@pytest.mark.parametrize("items", [5, 50])
def test_chosen_items_are_rated_as_they_are_alone(items):
    """Of 5 items all are encoded once, of 50 only the 24 selected ones."""
    random = np.random.default_rng(0)
    raters = ItemCritics(tuple(Pair.create(random, 4, 6, (8, 8), 1) for _ in range(2)))
    states, vectors = np.random.default_rng(1).standard_normal((8, 4), np.float32), random_units(1, (items, 6))
    chosen = np.random.default_rng(2).integers(0, items, (8, 3))
    alone = eqx.filter_jit(lambda raters: raters(states[:, None], vectors[chosen]))(raters)
    assert alone.shape == (2, 8, 3)
    among = eqx.filter_jit(lambda raters: raters.among(states, vectors, chosen))(raters)
    np.testing.assert_allclose(among, alone, atol=1e-5)
