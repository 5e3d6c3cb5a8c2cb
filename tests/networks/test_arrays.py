"""Arrays and random keys of the host: copies, of the right type, equal to JAX's, and no program for every new shape."""

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

from tidelog.algorithms.optimisation import OPTIMISERS, init_opt_state
from tidelog.networks.layers import (
    MLP,
    duplicate,
    float32,
    fold_in,
    from_host,
    int32,
    new_key,
    normal,
    split_keys,
    zeros,
)

COMPILED: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **facts: COMPILED.append(event) if "backend_compile" in event else None
)


@pytest.fixture
def programs():
    """Count the programs that a function compiles."""

    def count(function):
        before = len(COMPILED)
        function()
        return len(COMPILED) - before

    return count


@pytest.mark.parametrize("put", [from_host, float32])
def test_the_array_is_a_copy(put):
    values = np.ones((1024, 64), np.float32)  # aligned: `device_put` would keep this memory
    array = put(values)
    values[:] = 0.0
    assert np.asarray(array).min() == 1.0


def test_an_array_on_the_device_is_duplicated_into_its_own_buffer():
    first = from_host(np.arange(5.0))
    second = duplicate(first)
    jax.jit(lambda x: x + 1.0, donate_argnums=0)(first)
    assert first.is_deleted()
    np.testing.assert_array_equal(np.asarray(second), np.arange(5.0, dtype=np.float32))
    key = jax.random.key(3)
    np.testing.assert_array_equal(jax.random.key_data(duplicate(key)), jax.random.key_data(key))


def test_types_are_cast_on_the_host():
    assert float32(np.array([1, 2])).dtype == np.float32
    assert int32(np.array([1, 2])).dtype == np.int32
    assert from_host(np.array([1.5])).dtype == np.float32
    assert from_host(np.array([True])).dtype == bool
    assert zeros(2, 3).shape == (2, 3)


def test_new_shapes_compile_nothing(programs):
    def make():
        generator = np.random.default_rng(0)
        for width in (3, 5, 7, 11):
            MLP.create(generator, (width, width + 1, width + 2))
            duplicate(from_host(np.zeros(width)))
            int32(np.zeros(width))

    assert programs(make) == 0


def test_an_optimiser_starts_in_one_program_or_in_none(programs):
    network = MLP.create(np.random.default_rng(0), (13, 17, 19))
    assert programs(lambda: init_opt_state(lambda: optax.scale_by_adam(), network)) == 1
    assert programs(lambda: [init_opt_state(one, network) for one in OPTIMISERS.values()]) == 0


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_starts_as_optax_starts_it(name):
    network = MLP.create(np.random.default_rng(0), (3, 5, 2))
    expected = OPTIMISERS[name]().init(eqx.filter(network, eqx.is_inexact_array))
    state = init_opt_state(OPTIMISERS[name], network)
    assert jax.tree.structure(state) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_normal_numbers_drawn_as_one_row_are_those_of_jax():
    key = jax.random.key(3)
    for shape in ((7,), (3, 4, 5), (10, 100, 12)):
        assert np.array_equal(normal(key, shape), jax.random.normal(key, shape))


# Keys.

SEEDS = (0, 1, 7, 2**31 - 1, 2**31, -1)


def same(one, other):
    return np.array_equal(jax.random.key_data(one), jax.random.key_data(other))


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_equal_those_of_jax(seed):
    key = jax.random.key(seed)
    assert same(new_key(seed), key)
    for count in (1, 2, 5):
        keys = split_keys(key, count)
        assert all(map(same, keys, jax.random.split(key, count)))
    for number in (0, 1, 3, 2**31 - 2, 2**32 - 1):
        assert same(fold_in(key, number), jax.random.fold_in(key, number))


@pytest.mark.parametrize("change", [{"impl": "rbg"}, {"partitionable": False}])
def test_keys_of_other_generators_are_those_of_jax(change):
    with jax.threefry_partitionable(change.get("partitionable", True)):
        key = jax.random.key(3, impl=change.get("impl"))
        assert all(map(same, split_keys(key, 3), jax.random.split(key, 3)))
        assert same(fold_in(key, 5), jax.random.fold_in(key, 5))


def test_traced_keys_are_split_too():
    one, two = jax.jit(lambda key: split_keys(fold_in(key, 1), 2))(jax.random.key(3))
    assert all(map(same, (one, two), jax.random.split(jax.random.fold_in(jax.random.key(3), 1))))


def test_keys_compile_nothing(programs):
    assert programs(lambda: split_keys(fold_in(new_key(11), 13), 17)) == 0
