"""Elapsed times at their limits: all 1 is a log without them, all 2 is the square of the discount."""

from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.worlds import drawn, small, world
from tidelog.algorithms.contract import StoreSpec
from tidelog.data.statistics import LoggedRewards, Scaler, by_return_deviation
from tidelog.policies.policy import fingerprint
from tidelog.training.stores import stored

LOG, MOVES = world("discrete"), world("continuous")
KEEP = StoreSpec(("reward", "terminated"))


def timed(log, elapsed):
    return replace(log, elapsed=np.broadcast_to(np.float32(elapsed), log.steps).copy(), elapsed_unit="hour")


def some_times(log, seed=0):
    return timed(log, np.random.default_rng(seed).gamma(2.0, size=log.steps))


def target_parts(algorithm, log):
    """Rewards and discounts of a batch: all that elapsed times may change."""
    row = drawn(algorithm, log).data
    return np.asarray(row.reward), np.asarray(row.discount)


SAMPLERS = [
    ("iql", LOG, {"n_step": 3}),
    ("discrete-bcq", LOG, {"n_step": 2}),
    ("iql", LOG, {"returns": "td-lambda", "window": 4}),
    ("bcq", MOVES, {}),
    ("iql", LOG, {"n_step": 2, "recurrent_size": 4, "window": 4}),
]


@pytest.mark.parametrize(("name", "log", "settings"), SAMPLERS, ids=lambda one: one if isinstance(one, str) else "")
def test_two_hours_everywhere_are_the_square_of_the_discount(name, log, settings):
    hourly, squared = small(name, discount=0.9, **settings), small(name, discount=0.81, **settings)
    for one, two in zip(target_parts(hourly, timed(log, 2.0)), target_parts(squared, log), strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-6)
    assert not np.allclose(*(target_parts(hourly, one)[1] for one in (log, some_times(log))))


def test_one_hour_everywhere_learns_to_the_bit_as_without():
    hourly = timed(LOG, 1.0)
    odd = timed(LOG, np.where(hourly.continues, 1.0, 7.0))  # times that nothing follows have no effect
    weights = [
        fingerprint(tl.fit(small("iql", n_step=3), log, steps=3, progress=False).policy().params)
        for log in (LOG, hourly, odd, some_times(LOG))
    ]
    assert weights[0] == weights[1] == weights[2] != weights[3]


def test_a_log_without_times_has_no_array_of_them():
    assert stored(LOG, KEEP, Scaler()).elapsed is None
    assert stored(some_times(LOG), StoreSpec(()), Scaler()).elapsed is None  # cloning reads none
    assert stored(some_times(LOG), KEEP, Scaler()).elapsed is not None


def test_values_start_at_the_mean_discounted_return():
    """By the definition: the mean over steps of the scaled rewards to come, each discounted by the time until it."""
    log = some_times(LOG)
    rewards, wanted = LoggedRewards.of(log), []
    for first, end in zip(log.starts[:-1], log.starts[1:], strict=True):
        for row in range(first, end):
            until = np.append(0.0, np.cumsum(np.asarray(log.elapsed, float)[row : end - 1]))
            wanted.append(0.9**until @ np.asarray(log.reward, float)[row:end])
    scaler = Scaler(reward_scale=2.0, starts_at_mean=True)
    assert scaler.initial_value(rewards, 0.9) == pytest.approx(2.0 * np.mean(wanted))
    several = rewards._replace(reward=np.stack([rewards.reward, rewards.reward], axis=1))
    assert scaler.initial_value(several, (0.9, 0.9)) == pytest.approx([2.0 * np.mean(wanted)] * 2)
    assert scaler.initial_value(several, 0.9) == pytest.approx([2.0 * np.mean(wanted)] * 2)


def test_no_constant_is_subtracted_where_times_differ():
    """A policy that decides sooner collects a constant more often in a unit of time: it changes the ranking."""
    arrays = {name: value for name, value in LOG.to_arrays().items() if name not in ("terminated", "truncated")}
    endless = tl.Log.from_arrays(**arrays, truncated=np.append(np.diff(LOG.episode) > 0, True))
    assert by_return_deviation(LoggedRewards.of(endless)).steps is not None
    assert by_return_deviation(LoggedRewards.of(timed(endless, 1.0))).steps is not None
    assert by_return_deviation(LoggedRewards.of(some_times(endless))).steps is None
