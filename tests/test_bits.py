"""The net under the redesign: a changed bit shows, a changed name or order does not."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.bits import CASES, differences, floats, hashes, numbers
from tidelog.algorithms.names import ALGORITHMS


def test_names_and_order_do_not_matter():
    one = {"a": np.arange(3.0), "b": [1.5, "better"]}
    assert hashes(one) == hashes([{"x": ("better", 1.5)}, np.arange(3.0)])


def test_a_bit_a_type_and_a_shape_matter():
    array = np.arange(6.0, dtype=np.float32)
    moved = array.copy()
    moved[3] = np.nextafter(moved[3], np.float32(9.0))
    assert len({*hashes(array), *hashes(moved), *hashes(array.astype(float)), *hashes(array.reshape(2, 3))}) == 4


def test_counters_and_keys_are_left_out():
    tree = {"weights": jnp.ones(3), "step": jnp.int32(4), "key": jax.random.key(0), "none": None}
    assert [array.tolist() for array in floats(tree)] == [[1.0, 1.0, 1.0]]
    assert list(numbers({"a": [1.5, "x"], "b": {"c": 2, "d": 0.5}})) == [1.5, 0.5]


def test_differences_are_named():
    before, after = {"a": ["1", "2"], "b": ["3"]}, {"a": ["1", "4"], "b": ["3"], "c": []}
    assert differences(before, after) == ["a: 1 of 2 are gone, 1 are new", "c: is not in the file"]


def test_every_algorithm_has_cases():
    named = " ".join(CASES)
    families = {"ppo": "ppg: ppo", "discrete-bcq": "discrete bcq", "off-policy-ppg": "off-policy ppg"}
    assert all(families.get(name, name.split("-")[0]) in named for name in ALGORITHMS), named
