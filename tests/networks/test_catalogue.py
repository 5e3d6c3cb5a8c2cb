"""Item critics: one by one, paired, or selected from a catalogue, the values are equal."""

import jax
import numpy as np
import pytest

from tidelog.recommend.networks import ItemCritics, Pair, unit_vectors


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
