"""The recurrent unit: an unroll equals its steps, a step that is not real resets."""

import equinox as eqx
import numpy as np
import pytest

from tidelog.networks.layers import GRU


@pytest.fixture(scope="module")
def unit() -> GRU:
    return GRU.create(np.random.default_rng(0), 3, 5)


def test_an_unroll_is_one_step_after_another(unit: GRU) -> None:
    x = np.random.default_rng(1).standard_normal((2, 4, 3)).astype(np.float32)
    carries = np.asarray(eqx.filter_jit(unit.unroll)(x, np.ones((2, 4), bool)))
    carry = unit.initial_state(2)
    for t in range(4):
        carry = eqx.filter_jit(unit)(carry, x[:, t])
        assert carries[:, t] == pytest.approx(np.asarray(carry), abs=1e-6)


def test_the_gates_are_those_of_cho(unit: GRU) -> None:
    x, h = np.asarray([0.3, -0.2, 0.5]), np.asarray([0.1, -0.4, 0.2, 0.0, 0.6])

    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    into, from_h = x @ np.asarray(unit.inward), h @ np.asarray(unit.recurrent)
    reset, update = sigmoid(into[:5] + from_h[:5]), sigmoid(into[5:10] + from_h[5:10])
    candidate = np.tanh(into[10:] + reset * from_h[10:])
    found = np.asarray(eqx.filter_jit(unit)(h, x))
    assert found == pytest.approx(update * h + (1 - update) * candidate, abs=1e-6)


def test_an_episode_that_starts_within_the_window_starts_anew(unit: GRU) -> None:
    x = np.random.default_rng(2).standard_normal((1, 5, 3)).astype(np.float32)
    real = np.asarray([[False, False, True, True, True]])
    unroll = eqx.filter_jit(unit.unroll)
    found = np.asarray(unroll(x, real))
    alone = np.asarray(unroll(x[:, 2:], np.ones((1, 3), bool)))
    assert found[:, 2:] == pytest.approx(alone, abs=1e-7)
    assert not found[:, :2].any()


def test_segments_go_on_from_what_was_carried_and_forget_it_where_an_episode_begins(unit: GRU) -> None:
    x = np.random.default_rng(3).standard_normal((2, 6, 3)).astype(np.float32)
    first = np.zeros((2, 6), bool)
    first[0, 3] = first[1, 0] = True
    begin = np.random.default_rng(4).standard_normal((2, 5)).astype(np.float32)
    found = np.asarray(eqx.filter_jit(unit.follow)(begin, x, first))
    carry = begin
    for t in range(6):
        carry = np.where(first[:, t][:, None], np.float32(0.0), carry)
        carry = np.asarray(eqx.filter_jit(unit)(carry, x[:, t]))
        assert found[:, t] == pytest.approx(carry, abs=1e-6)
    fresh = np.asarray(eqx.filter_jit(unit.unroll)(x[1:], np.ones((1, 6), bool)))
    assert found[1:] == pytest.approx(fresh, abs=1e-6)
