"""Several rewards: the weighted sum selects, the components are learnt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog.losses.td import Components, expectile_error


def test_the_smallest_member_is_found_by_the_weighted_sum_and_keeps_its_components() -> None:
    # E = 2, B = 2, K = 2; weights (1, 10)
    values = np.asarray([[[5.0, 0.0], [1.0, 1.0]], [[0.0, 1.0], [2.0, 0.5]]], np.float32)
    # sums: sample 0: 5 and 10 -> member 0; sample 1: 11 and 7 -> member 1
    found = jax.jit(Components(jnp.asarray([1.0, 10.0])).smallest)(values)
    assert np.asarray(found).tolist() == [[5.0, 0.0], [2.0, 0.5]]
    assert np.asarray(jax.jit(Components(None).smallest)(values[..., 0])).tolist() == [0.0, 1.0]


def test_the_weighted_advantage_decides_the_side_of_every_component() -> None:
    # u = (2, -1) with weights (1, 3): the sum is -1, so both components count with 1 - 0.9
    u, rewards = np.asarray([[2.0, -1.0]], np.float32), Components(jnp.asarray([1.0, 3.0]))
    error = jax.jit(lambda u: expectile_error(u, 0.9, rewards.expand(rewards.total(u))))(u)
    assert np.asarray(error)[0] == pytest.approx([0.1 * 4.0, 0.1 * 1.0])
    assert float(np.asarray(jax.jit(rewards.average)(error))[0]) == pytest.approx(0.25)


def test_one_reward_passes_through() -> None:
    x = jnp.asarray([1.0, -2.0])
    one = Components(None)
    assert one.total(x) is one.average(x) is one.expand(x) is x
