"""Windows of interactions: every event is a target once, and no later event is read."""

from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest

from tests.algorithms.recommenders import described
from tidelog.recommend.next_item import StoredInteractions, Windows, most_items_of_a_user, store_interactions


@eqx.filter_jit
def gathered(unit, store, rows):
    """Return the windows of these rows, as one program."""
    return unit.gather(store, rows)


def columns(log, length, targets):
    store = store_interactions(log, targets, ["slate", "user"])
    unit = Windows(length, targets, 0.9)
    count, rows = unit.rows(store)
    return np.asarray(rows), gathered(unit, store, rows), count


@pytest.mark.sample("4-4")
@pytest.mark.parametrize(("length", "targets"), [(6, 3), (4, 4), (5, 1), (50, 7)])
def test_every_event_counts_in_exactly_one_window_with_what_came_before(length, targets):
    log = described()
    assert 0 < log.terminated.sum() < len(log) / 2
    rows, (data, weight, valid, *_), count = columns(log, length, targets)
    assert weight is None
    assert count == len(rows)
    grid = rows[:, None] + np.arange(1 - targets, 1)
    valid = np.asarray(valid)
    np.testing.assert_array_equal(np.sort(grid[valid]), np.arange(len(log)))
    np.testing.assert_array_equal(np.asarray(data.chosen)[valid], log.item[grid[valid]])
    np.testing.assert_allclose(np.asarray(data.reward)[valid], log.reward[grid[valid]])
    np.testing.assert_allclose(np.asarray(data.discount)[valid], 0.9 * ~log.terminated[grid[valid]])
    np.testing.assert_array_equal(np.asarray(data.slate)[valid], log.slate[grid[valid]])
    np.testing.assert_array_equal(data.user, log.user_features[log.user[rows]])
    for window, row in enumerate(rows):
        expected = [*log.histories([row], length).items[0].tolist(), log.item[row]]
        assert np.asarray(data.items)[window].tolist() == expected
    np.testing.assert_array_equal(np.asarray(data.items) > 0, np.asarray(data.events) > 0)


def test_only_scored_events_count_and_earlier_ones_are_their_history():
    log = described().split().test
    rows, (data, _, valid, *_), _ = columns(log, 6, 3)
    grid = rows[:, None] + np.arange(-2, 1)
    np.testing.assert_array_equal(np.sort(grid[np.asarray(valid)]), log.targets)
    assert (np.asarray(data.items)[:, 0] > 0).any()


def test_states_stand_before_what_was_taken_and_following_ones_behind_it():
    _, (data, *_), count = columns(described(), 6, 3)
    around = np.broadcast_to(np.arange(3.0, 7.0)[None, :, None], (count, 4, 1))
    assert data.before(around)[0, :, 0].tolist() == [3.0, 4.0, 5.0]
    assert data.following(around)[0, :, 0].tolist() == [4.0, 5.0, 6.0]


def test_a_log_without_slates_has_none_in_its_windows():
    assert columns(replace(described(), slate=None), 6, 3)[1].data.slate is None


@pytest.mark.parametrize(("least", "expected"), [(0, 3), (5, 3), (6, 6), (9, 6)])
def test_the_most_items_of_a_user_are_counted_once_each(least, expected):
    """Six events of one user have three items; a bound is enough where nobody has more than `least` events."""
    item, start = np.array([1, 1, 2, 3, 3, 3, 4, 5]), np.array([0, 0, 0, 0, 0, 0, 6, 6])
    store = StoredInteractions(item, item, item, item, start, item)
    assert most_items_of_a_user(store, least) == expected
