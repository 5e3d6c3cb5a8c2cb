"""History encoders are causal and ignore padding; items have length 1; critics return the same values in every form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog.recommend.networks import (
    HISTORY_ENCODERS,
    HistoryEncoder,
    ItemCritics,
    Pair,
    Table,
    perturb_vectors,
    unit_vectors,
)

B, L, D = 3, 5, 8


def reader(name):
    return HistoryEncoder.create(np.random.default_rng(0), HISTORY_ENCODERS[name], D, 2, L, 2, 2)


@pytest.fixture(scope="module")
def vectors():
    return unit_vectors(jax.random.normal(jax.random.key(0), (B, L, D)))


@pytest.mark.parametrize("name", HISTORY_ENCODERS)
def test_the_future_changes_nothing_before_it(name, vectors):
    events = jnp.ones((B, L), jnp.int32)
    told = reader(name)(vectors, events)
    other = reader(name)(vectors.at[:, 3].set(vectors[:, 0]), events.at[:, 4].set(2))
    np.testing.assert_allclose(told[:, :3], other[:, :3], atol=1e-6)
    assert np.abs(told[:, 3:] - other[:, 3:]).max(axis=(0, 2)).min() > 1e-3


@pytest.mark.parametrize("name", HISTORY_ENCODERS)
def test_padding_is_read_by_nobody_and_tells_what_an_empty_history_tells(name, vectors):
    events = jnp.ones((B, L), jnp.int32).at[:, :2].set(0)
    told = reader(name)(vectors, events)
    other = reader(name)(vectors.at[:, :2].set(7.0), events)
    np.testing.assert_allclose(told, other, atol=1e-6)
    np.testing.assert_allclose(told[:, :2], jnp.broadcast_to(told[:1, :1], (B, 2, D)), atol=1e-6)


@pytest.mark.parametrize("name", HISTORY_ENCODERS)
def test_who_the_user_is_is_told_in_every_state_and_zeros_tell_nothing(name, vectors):
    events = jnp.ones((B, L), jnp.int32).at[0].set(0)
    plain = HistoryEncoder.create(np.random.default_rng(0), HISTORY_ENCODERS[name], D, 2, L, 2, 2, 3)
    np.testing.assert_array_equal(plain.profile, 0.0)
    told = eqx.tree_at(lambda one: one.profile, plain, jax.random.normal(jax.random.key(2), (3, D)))
    user = jnp.array([[1.0, 0.0, -2.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    away = np.abs(told(vectors, events, user=user) - plain(vectors, events)).max(axis=-1)
    assert away[[0, 2]].min() > 1e-2
    np.testing.assert_allclose(away[1], 0.0, atol=1e-6)


@pytest.mark.parametrize("name", ["gru", "attention"])
def test_order_matters_to_readers_that_keep_it(name, vectors):
    events = jnp.ones((B, L), jnp.int32)
    swapped = vectors[:, jnp.array([1, 0, 2, 3, 4])]
    assert jnp.abs(reader(name)(vectors, events)[:, -1] - reader(name)(swapped, events)[:, -1]).max() > 1e-3


def test_the_mean_forgets_order(vectors):
    events = jnp.ones((B, L), jnp.int32)
    swapped = vectors[:, jnp.array([1, 0, 2, 3, 4])]
    np.testing.assert_allclose(
        reader("mean")(vectors, events)[:, -1], reader("mean")(swapped, events)[:, -1], atol=1e-5
    )


@pytest.mark.parametrize("name", HISTORY_ENCODERS)
def test_the_kind_of_event_is_read(name, vectors):
    events = jnp.ones((B, L), jnp.int32)
    assert jnp.abs(reader(name)(vectors, events) - reader(name)(vectors, 2 * events))[:, -1].max() > 1e-3


def test_items_have_length_1_and_their_moves_are_bounded():
    table = Table.create(np.random.default_rng(0), 6, D, 3, (4,))
    features = jax.random.normal(jax.random.key(1), (7, 3))
    items = table(None, features)
    np.testing.assert_allclose(jnp.linalg.norm(items.vectors, axis=-1), 1.0, atol=1e-5)
    some = table(jnp.array([2, 5]), features)
    np.testing.assert_allclose(some.vectors, items.vectors[jnp.array([2, 5])], atol=1e-6)
    np.testing.assert_array_equal(table.weight, 0.0)  # a new item depends on its features only
    moved = perturb_vectors(items.vectors, jnp.ones((7, D)), 0.05)
    np.testing.assert_allclose(jnp.linalg.norm(moved, axis=-1), 1.0, atol=1e-5)
    assert 0.0 < jnp.linalg.norm(moved - items.vectors, axis=-1).max() <= 0.05 + 1e-5
    np.testing.assert_allclose(perturb_vectors(items.vectors, jnp.ones((7, D)), 0.0), items.vectors, atol=1e-6)


@pytest.mark.parametrize("items", [5, 50])
def test_chosen_items_are_rated_as_they_are_alone(items):
    """Of 5 items all are encoded once, of 50 only the 24 selected ones."""
    random = np.random.default_rng(0)
    raters = ItemCritics(tuple(Pair.create(random, 4, 6, (8, 8), 1) for _ in range(2)))
    states, vectors = (
        jax.random.normal(jax.random.key(0), (8, 4)),
        unit_vectors(jax.random.normal(jax.random.key(1), (items, 6))),
    )
    chosen = jax.random.randint(jax.random.key(2), (8, 3), 0, items)
    alone = raters(states[:, None], vectors[chosen])
    assert alone.shape == (2, 8, 3)
    np.testing.assert_allclose(raters.among(states, vectors, chosen), alone, atol=1e-5)
