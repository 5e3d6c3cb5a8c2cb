import json
import re

import numpy as np
import pytest

from benchmarks import real_events
from benchmarks.recommender import interactions
from tests.algorithms.recommenders import described
from tests.ope.events import events_of
from tests.shared import shared
from tidelog.errors import ConfigError, SpecError
from tidelog.ope.intervals import Confidence
from tidelog.recommend.evaluate import (
    Markov,
    OwnFrequency,
    Popularity,
    compare,
    diversity,
    list_measures,
    lists,
    unseen,
)
from tidelog.recommend.interactions import Cases, histories, next_baskets, next_events
from tidelog.types import HistoryArrays

FEW = Confidence(replicates=100)
LOG = events_of(
    [
        (0, 1, 1, 1, 0), (0, 2, 1, 0, 1), (0, 3, 2, 5, 2),
        (1, 2, 1, 1, 0), (1, 4, 2, 2, 7), (1, 3, 2, 3, 7), (1, 4, 1, 4, 7), (1, 1, 1, 1, 9),
    ],
    items=4,
)  # fmt: skip


class Says:
    """A ranker that answers what it was told, whatever it is asked."""

    def __init__(self, answer):
        self.answer = np.array(answer)

    def rank(self, histories, k, allowed=None):
        return self.answer[: len(histories.items)], np.zeros((len(histories.items), k), np.float32)


def cases_of(targets, rewards=None, user=None, kind=None):
    targets = np.array(targets, np.int32)
    number = len(targets)
    return Cases(
        np.array(user or range(number), np.int32),
        HistoryArrays(np.ones((number, 1), np.int32), np.ones((number, 1), np.int32)),
        targets,
        np.array(rewards or np.zeros(targets.shape), np.float32),
        np.array(kind or [1] * number, np.int32),
    )


def test_what_was_seen_long_ago_is_not_forgotten_silently():
    log = events_of([(0, 3, 1, 0, 0), *[(0, 1, 1, 0, time) for time in range(1, 5)]], items=4)
    cut, whole = (next_events(log, np.array([4]), length) for length in (3, None))
    with pytest.raises(ConfigError, match="the histories of 1 cases are cut to 3 events"):
        lists(Popularity.of(log), cut, 1, 5, exclude_seen=True)
    assert lists(Popularity.of(log), whole, 1, 5, exclude_seen=True).tolist() == [[2]]
    assert lists(Popularity.of(log), cut, 1, 5).tolist() == [[1]]


def test_rankers_are_told_who_the_user_of_each_case_is():
    asked = []

    class Asks(Says):
        def rank(self, histories, k, allowed=None):
            asked.append(histories.users)
            return super().rank(histories, k)

    log = described()
    for cases in (next_events(log, np.arange(40)), next_baskets(log, np.arange(40))):
        owners = np.arange(len(log.users))[::-1]  # whose case it is changes intervals, and not who the user is
        lists(Asks([[1, 2]] * 40), cases.grouped_by(owners).select(np.arange(1, len(cases))), 2, 11)
        np.testing.assert_array_equal(asked.pop(), log.user_features[cases.user[1:]])


def test_histories_hold_what_came_before_and_nothing_of_anybody_else():
    items, events = histories(LOG, np.array([0, 2, 5]), 2)[:2]
    assert items.tolist() == [[0, 0], [1, 2], [2, 4]]
    assert events.tolist() == [[0, 0], [1, 1], [1, 2]]
    longest = histories(LOG, np.array([2, 7]), None).items
    assert longest.tolist() == [[0, 0, 1, 2], [2, 4, 3, 4]]


def test_next_events_are_one_case_each():
    cases = next_events(LOG, LOG.time >= 2)
    assert cases.user.tolist() == [0, 1, 1, 1, 1]
    assert cases.targets.tolist() == [[3], [4], [3], [4], [1]]
    assert cases.rewards.tolist() == [[5], [2], [3], [4], [1]]
    assert cases.kind.tolist() == [2, 2, 2, 1, 1]
    assert cases.histories.items[-1, -4:].tolist() == [2, 4, 3, 4]
    assert len(next_events(LOG, np.array([0, 1])).with_history) == 1
    assert cases.grouped_by(np.array([7, 7])).user.tolist() == [7] * 5


def test_a_basket_is_all_that_was_taken_at_the_users_first_moment():
    cases = next_baskets(LOG, LOG.time >= 2)
    # User 1 took 4, 3 and 4 again at time 7: two items, 2 + 4 for item 4, both kinds. Time 9 is another basket.
    assert cases.targets.tolist() == [[3, 0], [3, 4]]
    assert cases.rewards.tolist() == [[5, 0], [3, 6]]
    assert cases.kind.tolist() == [2, 0]
    assert cases.histories.items[:, -1].tolist() == [2, 2]


def test_measures_of_hand_made_lists():
    # Case 0: one target, second place. Case 1: three targets, hits in places 1 and 3. Case 2: nothing found.
    cases = cases_of([[4, 0, 0], [1, 2, 5], [6, 0, 0]], rewards=[[2, 0, 0], [1, 10, 100], [7, 0, 0]])
    counts = np.array([0, 8, 4, 2, 2, 1, 0], float)
    found = list_measures(np.array([[3, 4, 6], [2, 3, 5], [1, 0, 0]], np.int32), cases, counts)
    second, third = 1 / np.log2(3), 1 / 2
    assert found["hit rate"].numerator.tolist() == [1, 1, 0]
    assert found["hit all"].numerator.tolist() == [1, 0, 0]
    assert found["ndcg"].numerator == pytest.approx([second, (1 + third) / (1 + second + third), 0])
    assert found["mrr"].numerator.tolist() == [0.5, 1, 0]
    assert found["reward"].numerator.tolist() == [2, 110, 0]
    assert found["discounted reward"].numerator == pytest.approx([2 * second, 10 + 100 * third, 0])
    # Popularity: lists (2 + 2 + 0) / 3, (4 + 2 + 1) / 3, 8; targets 2, (8 + 4 + 1) / 3, 0.
    assert found["popularity lift"].numerator == pytest.approx([4 / 3, 7 / 3, 8])
    assert found["popularity lift"].denominator == pytest.approx([2, 13 / 3, 0])
    assert found["cold share"].numerator.tolist() == [1, 0, 0]  # item 6 was never taken
    assert found["cold share"].denominator.tolist() == [3, 3, 1]
    # Novelty: 17 events and one more for each of six items; items 3, 4, 6 then have 3, 3 and 1 of 23.
    bits = [2 * np.log2(23 / 3) + np.log2(23), np.log2(23 / 5) + np.log2(23 / 3) + np.log2(23 / 2), np.log2(23 / 9)]
    assert found["novelty"].numerator == pytest.approx(bits)
    assert found["novelty"].denominator.tolist() == [3, 3, 1]


def test_coverage_and_entropy_describe_all_lists_together():
    assert diversity(np.array([[1, 2], [1, 2]]), 5) == pytest.approx({"coverage": 0.5, "entropy": 0.5})  # ln 2 / ln 4
    assert diversity(np.array([[3], [3], [0]]), 5) == pytest.approx({"coverage": 0.25, "entropy": 0.0})


def test_users_and_not_cases_are_resampled():
    # One user owns 99 hits, another one miss: with two users the interval must reach from 0 to 1.
    cases = cases_of([[1]] * 100, user=[0] * 99 + [1])
    ranker = Says([[1]] * 99 + [[2]])
    row = compare({"it": ranker}, cases, np.ones(4), k=1, confidence=FEW).row("it")
    assert (row.cases, row.users) == (100, 2)
    assert row.scores["hit rate"] == pytest.approx((0.99, 0.0, 1.0))


def test_kinds_of_events_have_rows_of_their_own():
    cases = cases_of([[1], [2], [1]], kind=[1, 2, 2])
    found = compare({"a": Says([[1]] * 3), "b": Says([[2]] * 3)}, cases, np.ones(4), 1, ("look", "buy"), confidence=FEW)
    rates = {(row.ranker, row.kind): row.scores["hit rate"].estimate for row in found.rows}
    half, third = 0.5, pytest.approx(1 / 3)
    assert rates == {
        ("a", "all"): pytest.approx(2 / 3), ("a", "look"): 1, ("a", "buy"): half,
        ("b", "all"): third, ("b", "look"): 0, ("b", "buy"): half,
    }  # fmt: skip
    assert len(found.text().splitlines()) == 2 + 6
    assert json.loads(json.dumps(found.to_json()))["rows"][0]["scores"]["hit rate"][0] == pytest.approx(2 / 3)


def test_a_difference_is_taken_on_the_same_users():
    # b hits where a does, and on one user more: every resampling agrees that it is not worse.
    cases = cases_of([[1]] * 20)
    a = Says([[1]] * 10 + [[2]] * 10)
    b = Says([[1]] * 15 + [[2]] * 5)
    found = compare({"a": a, "b": b}, cases, np.ones(4), k=1, confidence=FEW)
    difference = found.difference("b", "a", "hit rate")
    assert difference.estimate == pytest.approx(0.25)
    assert difference.low > 0
    with pytest.raises(ConfigError, match="unknown row 'c, all'"):
        found.row("c")


def test_all_differences_hold_together():
    """A and B hit in half of the cases, C in three quarters: the joint intervals are wider, and C's are above 0."""
    rng = np.random.default_rng(0)
    cases = cases_of([[1]] * 200)
    said = {
        name: Says((2 - (rng.random((200, 1)) < rate)).tolist())
        for name, rate in zip("abc", (0.5, 0.5, 0.75), strict=True)
    }
    found = compare(said, cases, np.ones(4), k=1, confidence=Confidence(replicates=400))
    together = found.differences("c", ("hit rate", "mrr"))
    assert sorted(together) == [("a", "hit rate"), ("a", "mrr"), ("b", "hit rate"), ("b", "mrr")]
    for (other, measure), joint in together.items():
        alone = found.difference("c", other, measure)
        assert joint.estimate == pytest.approx(alone.estimate)
        assert joint.low < alone.low  # wider than one interval for itself
        assert joint.low > 0
    (noise,) = (gain for (other, _), gain in found.differences("a", ("hit rate",)).items() if other == "b")
    assert noise.low < 0 < noise.high


def test_seen_items_are_left_out_on_request():
    cases = next_events(LOG, np.array([6]))  # user 1 after 2, 4, 3
    popularity = Popularity.of(LOG)
    assert lists(popularity, cases, 3, 5).tolist() == [[1, 2, 3]]
    assert lists(popularity, cases, 3, 5, exclude_seen=True).tolist() == [[1, 0, 0]]
    assert unseen(cases.histories.items, 5).nonzero()[1].tolist() == [1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([[1, 1]], "the same item twice"),
        ([[1, 5]], "returned items 1 .. 5: expected items 1 .. 4"),
        ([[1, 2, 3]], r"returned int64 [1, 3]: expected whole numbers [1, 2]"),
        ([[1.0, 2.0]], "returned float64"),
    ],
)
def test_lists_that_are_none_are_refused(answer, words):
    with pytest.raises(SpecError, match=re.escape(words)):
        lists(Says(answer), cases_of([[1]]), 2, 5)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="k = 5: expected a number between 1 and 4"):
        lists(Says([[1]]), cases_of([[1]]), 5, 5)
    with pytest.raises(ConfigError, match="no held-out events"):
        next_events(LOG, LOG.time > 99)
    with pytest.raises(ConfigError, match="at least 1 event"):
        next_events(LOG, np.array([0]), 0)


@pytest.mark.full
def test_entree_is_as_published():
    log = interactions(real_events.entree(shared("data/uci_entree/sessions.csv.gz")))
    late = log.time[np.searchsorted(log.user, log.user)] >= np.datetime64(real_events.CUTS["entree"])
    before = log.select(~late)
    accepted = late & (log.event == log.events.index(real_events.ACCEPT) + 1)
    popularity = Popularity.of(before)
    rankers = {"popularity": popularity, "markov": Markov.of(before, by_event=True)}
    found = compare(rankers, next_events(log, accepted), popularity.counts, confidence=FEW)
    scores = {name: [found.row(name).scores[one].estimate for one in ("hit rate", "ndcg")] for name in rankers}
    assert found.row("markov").cases == 6919
    assert scores["popularity"] == pytest.approx([0.089, 0.034], abs=5e-4)
    # Published .739 / .505. Ties at the end of the list decide the rest: here they go to the lowest item.
    assert scores["markov"] == pytest.approx([0.744, 0.507], abs=1e-3)


@pytest.mark.full
def test_online_retail_is_as_published():
    path = shared("data/online_retail_cc0/online_retail_2010_2011.parquet")
    log = interactions(real_events.online_retail(path))
    late = log.time >= np.datetime64(real_events.CUTS["online_retail"])
    before = log.select(~late)
    popularity = Popularity.of(before)
    cases = next_baskets(log, late)
    with_history = cases.with_history
    assert len(cases) - len(with_history) == 364
    assert ((with_history.targets > 0) & (popularity.counts[with_history.targets] == 0)).sum() == 291
    rankers = {"popularity": popularity, "own frequency": OwnFrequency.of(before)}
    found = compare(rankers, with_history, popularity.counts, confidence=FEW)
    scores = {name: [found.row(name).scores[one].estimate for one in ("hit rate", "ndcg")] for name in rankers}
    assert scores["own frequency"] == pytest.approx([0.740, 0.256], abs=5e-4)
    assert scores["popularity"] == pytest.approx([0.389, 0.071], abs=2e-3)  # here 0.3873 and 0.0705
