"""Random keys that the host computes: those of JAX, without a program."""

import jax
import numpy as np
import pytest

from tidelog.networks.layers import fold_in, new_key, split_keys

COMPILED: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **facts: COMPILED.append(event) if "backend_compile" in event else None
)
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


def test_keys_compile_nothing():
    before = len(COMPILED)
    split_keys(fold_in(new_key(11), 13), 17)
    assert len(COMPILED) == before
