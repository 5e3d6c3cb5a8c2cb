import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tidelog.errors import ConfigError, SpecError
from tidelog.runtime.ranking import top_k

SMALL = st.integers(-2, 2).map(float)  # products are exact, and many are equal


def by_sorting(queries, table, k, allowed=None):
    scores = queries @ table.T
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


@given(st.data())
def test_it_is_what_sorting_all_scores_gives(data):
    rows, number = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 40))
    queries = data.draw(arrays(np.float32, (rows, 3), elements=SMALL))
    table = data.draw(arrays(np.float32, (number, 3), elements=SMALL))
    shape = data.draw(st.sampled_from([None, (number,), (rows, number)]))
    allowed = None if shape is None else data.draw(arrays(bool, shape)) | (np.arange(number) == 0)
    most = number if allowed is None else int(allowed.sum(-1).min())
    k, chunk = data.draw(st.integers(1, most)), data.draw(st.integers(1, 45))
    places, scores = top_k(queries, table, k, allowed, chunk)
    expected, worth = by_sorting(queries, table, k, allowed)
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(scores, worth)


@pytest.mark.parametrize("order", ["random", "rising", "equal"])
def test_any_order_of_the_table_gives_the_same_in_bounded_memory(order, monkeypatch):
    monkeypatch.setattr("tidelog.runtime.ranking.CANDIDATES", 5_000)
    generator = np.random.default_rng(0)
    table = generator.integers(-50, 50, (200_000, 2)).astype(np.float32)
    if order != "random":
        table = np.sort(table, axis=0) if order == "rising" else np.ones_like(table)
    queries = np.abs(generator.integers(1, 9, (16, 2))).astype(np.float32)
    tracemalloc.start()
    places, scores = top_k(queries, table, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    expected, worth = by_sorting(queries, table, 10)
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(scores, worth)
    assert peak < 6e6  # all scores at once would take 12.8 MB


def test_many_queries_go_in_parts():
    generator = np.random.default_rng(1)
    queries = generator.integers(-4, 5, (600, 4)).astype(np.float32)
    table = generator.integers(-4, 5, (300, 4)).astype(np.float32)
    allowed = generator.random((600, 300)) < 0.5
    np.testing.assert_array_equal(top_k(queries, table, 7, allowed)[0], by_sorting(queries, table, 7, allowed)[0])
    assert top_k(queries[:0], table, 7)[0].shape == (0, 7)


def test_where_too_few_are_allowed_the_rest_is_nothing():
    allowed = np.array([[True] * 5, [False, False, True, False, True]])
    places, scores = top_k(np.ones((2, 3), np.float32), np.ones((5, 3), np.float32), 3, allowed)
    assert places.tolist() == [[0, 1, 2], [2, 4, 0]]
    assert scores.tolist() == [[3, 3, 3], [3, 3, -np.inf]]


def test_what_cannot_be_answered_is_refused():
    queries, table = np.ones((2, 3), np.float32), np.ones((5, 3), np.float32)
    with pytest.raises(ConfigError, match="k = 6: expected 1 to 5, the number of rows"):
        top_k(queries, table, 6)
    with pytest.raises(ConfigError, match="k = 0: expected 1 to 5"):
        top_k(queries, table, 0)
    with pytest.raises(ConfigError, match="chunk"):
        top_k(queries, table, 1, chunk=0)
    with pytest.raises(SpecError, match=r"allowed is float64 .*: expected bool"):
        top_k(queries, table, 1, np.ones(5))
    with pytest.raises(SpecError, match=r"queries \(2, 3\) and table \(5, 2\)"):
        top_k(queries, table[:, :2], 1)
    large = np.full((4, 3), 2e38, np.float32)  # finite rows, whose sum is infinite
    assert top_k(np.full((1, 3), 1e-3, np.float32), large, 2)[0].tolist() == [[0, 1]]
    with pytest.raises(SpecError, match="row 1 of the table is not finite"):
        top_k(queries[:1], np.array([[0, 0, 0], [np.inf, -np.inf, 0]], np.float32), 1)
    table[3, 1], queries[1, 0] = np.nan, np.inf
    with pytest.raises(SpecError, match="row 3 of the table"):
        top_k(queries[:1], table, 1, chunk=2)
    with pytest.raises(SpecError, match="query 1 is not finite"):
        top_k(queries, table[:3], 1)
