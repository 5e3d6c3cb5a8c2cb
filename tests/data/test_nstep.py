"""Windows against the definition, row by row."""

import numpy as np
import pytest

from tests.data.nstep import n_step
from tests.data.test_log import small
from tidelog.errors import LogError


def test_windows_stop_at_ends_and_discount_what_was_summed() -> None:
    # rewards 0..5; episode 0-1 terminated; 2-3 truncated, followed by 11; 4-5 truncated, followed by 12
    log = small(next_observation=np.array([1, 10, 3, 11, 5, 12], np.float32))
    windows = n_step(log, np.arange(6), 2, 0.5)
    np.testing.assert_array_equal(windows.m, [2, 1, 2, 1, 2, 1])
    np.testing.assert_array_equal(windows.reward, [0 + 0.5 * 1, 1, 2 + 0.5 * 3, 3, 4 + 0.5 * 5, 5])
    np.testing.assert_array_equal(windows.discount, [0, 0, 0.25, 0.5, 0.25, 0.5])
    after = log.observation["observation"][windows.next_position, 0]
    np.testing.assert_array_equal(after, [10, 10, 11, 11, 12, 12])


def test_a_truncated_end_without_next_observation_is_not_reached() -> None:
    log = small()
    windows = n_step(log, np.arange(6), 3, 0.5)
    np.testing.assert_array_equal(windows.m, [2, 1, 1, 0, 1, 0])
    np.testing.assert_array_equal(windows.reward, [0.5, 1, 2, 0, 4, 0])
    np.testing.assert_array_equal(windows.discount, [0, 0, 0.5, 0, 0.5, 0])
    np.testing.assert_array_equal(windows.next_position, [1, 1, 3, 3, 5, 5])


def test_one_step_is_the_transition() -> None:
    log = small(next_observation=np.array([1, 10, 3, 11, 5, 12], np.float32), reward=np.ones((6, 2)))
    windows = n_step(log, np.array([5, 0]), 1, 0.9)
    np.testing.assert_array_equal(windows.reward, np.ones((2, 2)))
    np.testing.assert_allclose(windows.discount, [0.9, 0.9])
    with pytest.raises(LogError, match="no rewards"):
        n_step(small(reward=None), np.arange(6), 1, 0.9)
