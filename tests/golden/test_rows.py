"""Windows of n steps over a log of six rows, computed by hand."""

from functools import cache

import equinox as eqx
import numpy as np
import polars as pl
import pytest

from tidelog import Columns, Log, read_log
from tidelog.algorithms.contract import StoreSpec
from tidelog.algorithms.sampling import Batch, LoggedAction, NStep, Sampler
from tidelog.data.statistics import Scaler
from tidelog.training.stores import stored

# Episode 0: rewards 1, 2, 4, terminated. Episode 1: rewards 8, 16, truncated, next observation unknown.
# Episode 2: reward 32, truncated, next observation known (observation 60).
LOG = read_log(
    pl.DataFrame(
        {
            "episode": [0, 0, 0, 1, 1, 2],
            "seen": [0.0, 10.0, 20.0, 30.0, 40.0, 50.0],
            "then": [10.0, 20.0, None, 40.0, None, 60.0],
            "action": [0, 1, 0, 1, 0, 1],
            "reward": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            "died": [0, 0, 1, 0, 0, 0],
            "left": [0, 0, 0, 0, 1, 1],
        }
    ),
    Columns(
        episode="episode", observation=["seen"], next_observation=["then"], action="action", reward="reward",
        terminated="died", truncated="left",
    ),
)  # fmt: skip

TIMED = Log.from_arrays(**LOG.to_arrays(), elapsed=[0.5, 2.0, np.nan, 1.0, np.nan, 0.5], elapsed_unit="hour")


@cache
def kept():
    return stored(LOG, StoreSpec(("reward", "terminated")), Scaler())


@pytest.mark.parametrize(
    ("n", "reward", "discount", "following"),
    [
        (1, [1, 2, 4, 8, 32], [0.5, 0.5, 0, 0.5, 0.5], {0: 10, 1: 20, 3: 40, 5: 60}),
        # 1 + 2/2, 2 + 4/2, 4, 8 (the window stops before the unknown end), 32
        (2, [2, 4, 4, 8, 32], [0.25, 0, 0, 0.5, 0.5], {0: 20, 3: 40, 5: 60}),
        # 1 + 2/2 + 4/4, 2 + 4/2, 4, 8, 32
        (3, [3, 4, 4, 8, 32], [0, 0, 0, 0.5, 0.5], {3: 40, 5: 60}),
    ],
)
def test_windows_stop_at_the_end_of_an_episode(n, reward, discount, following):
    rows = np.array([0, 1, 2, 3, 5])  # row 4 is no target: not terminated, and the next observation is unknown
    found = eqx.filter_jit(NStep(n, 0.5).gather)(kept(), rows).data
    np.testing.assert_array_equal(found.reward, reward)
    np.testing.assert_array_equal(found.discount, discount)
    np.testing.assert_array_equal(np.asarray(found.observation["numeric"])[:, 0], rows * 10.0)
    np.testing.assert_array_equal(found.action, rows % 2)
    seen = dict(zip(rows.tolist(), np.asarray(found.next_observation["numeric"])[:, 0].tolist(), strict=True))
    assert {row: seen[row] for row in following} == following


@pytest.mark.parametrize(("n", "following"), [(1, [1, 2, None, 4, None]), (2, [2, None, None, 4, None])])
def test_the_next_logged_action_is_the_one_after_the_summed_steps(n, following):
    # Rows 0 to 2 are an episode that ends; the next one ends at row 4 without a target; row 5 is the last of its own.
    rows = np.array([0, 1, 2, 3, 5])
    found = eqx.filter_jit(NStep(n, 0.5, next_action=True).gather)(kept()._replace(action=np.arange(6)), rows).data
    given = zip(np.asarray(found.next_action).tolist(), np.asarray(found.has_next_action).tolist(), strict=True)
    assert [action if known else None for action, known in given] == following
    assert eqx.filter_jit(NStep(n, 0.5).gather)(kept(), rows).data.next_action is None


@pytest.mark.parametrize(
    ("n", "reward", "discount"),
    [
        # 1/4 per hour: 1/4**0.5 = 1/2 for half an hour, 1/16 for two hours; 0 where the episode terminated
        (1, [1, 2, 4, 8, 32], [1 / 2, 1 / 16, 0, 1 / 4, 1 / 2]),
        # 1 + 2/2, 2 + 4/16, 4, 8, 32; 2.5 hours are 1/32; the last row counts the time to where it was cut off
        (2, [2, 2.25, 4, 8, 32], [1 / 32, 0, 0, 1 / 4, 1 / 2]),
        # 1 + 2/2 + 4/32
        (3, [2.125, 2.25, 4, 8, 32], [0, 0, 0, 1 / 4, 1 / 2]),
    ],
)
def test_unequal_times_discount_by_their_sum(n, reward, discount):
    store = stored(TIMED, StoreSpec(("reward", "terminated")), Scaler())
    rows = np.array([0, 1, 2, 3, 5])
    found = eqx.filter_jit(NStep(n, 0.25).gather)(store, rows).data
    np.testing.assert_allclose(found.reward, reward, rtol=1e-6)
    np.testing.assert_allclose(found.discount, discount, rtol=1e-6)
    both = store._replace(reward=np.stack([store.reward, np.ones(6, np.float32)], axis=1))
    found = eqx.filter_jit(NStep(n, (0.25, 0.0)).gather)(both, rows).data  # each reward has its own discount
    np.testing.assert_allclose(found.reward, np.stack([reward, np.ones(5)], axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.discount, np.stack([discount, np.zeros(5)], axis=1), rtol=1e-6)


def test_a_row_without_a_target_is_never_drawn_but_can_be_cloned():
    np.testing.assert_array_equal(NStep(2, 0.5).rows(kept())[1], [0, 1, 2, 3, 5])
    assert LoggedAction().rows(stored(LOG, StoreSpec(()), Scaler())) == (6, None)


def test_the_weight_of_a_sample_is_the_logs_times_the_orders():
    store = kept()._replace(weight=np.array([1, 2, 3, 4, 5, 6], np.float32))
    drawn = eqx.filter_jit(Sampler("log", 2, NStep(1, 0.5)).at)
    batch = drawn(store, np.array([1, 5]), importance=np.array([0.5, 0.1], np.float32))
    np.testing.assert_allclose(batch.weight, [1.0, 0.6], rtol=1e-6)
    # errors 3 and 10: (3 * 1 + 10 * 0.6) / 2
    mean = eqx.filter_jit(Batch.mean)(batch, np.array([3.0, 10.0], np.float32))
    np.testing.assert_allclose(mean, 4.5, rtol=1e-6)
