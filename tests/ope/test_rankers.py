import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ope.events import events_of
from tidelog.errors import ConfigError
from tidelog.recommend.evaluate import ItemKNN, Markov, OwnFrequency, Popularity, TifuKNN
from tidelog.types import HistoryArrays

# Counts: item 1 four times, 2 three times, 3 and 4 twice each, 5 once, 6 never.
LOG = events_of(
    [
        (0, 1, 1, 0, 0), (0, 2, 1, 0, 1), (0, 1, 2, 0, 2), (0, 3, 1, 0, 3),
        (1, 1, 1, 0, 0), (1, 2, 2, 0, 1), (1, 4, 1, 0, 2),
        (2, 4, 1, 0, 0), (2, 1, 1, 0, 1), (2, 2, 1, 0, 2), (2, 3, 1, 0, 3), (2, 5, 1, 0, 4),
    ],
    items=6,
    terminated=(9,),  # user 2's session ends after item 2: item 3 does not follow it
)  # fmt: skip
RANKERS = {
    "popularity": Popularity.of(LOG),
    "markov": Markov.of(LOG),
    "markov by event": Markov.of(LOG, by_event=True),
    "item-knn": ItemKNN.of(LOG),
    "own": OwnFrequency.of(LOG, filled=True),
    "tifu-knn": TifuKNN.of(LOG, neighbours=2),
}


def rank(ranker, history, k, events=None, allowed=None):
    history = np.array([history], np.int32)
    events = np.where(history > 0, 1, 0).astype(np.int32) if events is None else np.array([events], np.int32)
    items, scores = ranker.rank(HistoryArrays(history, events), k, allowed)
    return items[0].tolist(), scores[0].tolist()


def test_popularity_counts_and_ties_go_to_the_lowest():
    assert rank(RANKERS["popularity"], [0, 0], 6) == ([1, 2, 3, 4, 5, 6], [4, 3, 2, 2, 1, 0])
    allowed = np.ones((1, 7), bool)
    allowed[0, [1, 3]] = False
    assert rank(RANKERS["popularity"], [0, 5], 3, allowed=allowed)[0] == [2, 4, 5]


def test_markov_says_what_followed_the_last_item():
    # After 1: 2 three times, 3 once. Then by popularity, as share of 12 events minus 1: item 1, 4 / 12 - 1.
    items, scores = rank(RANKERS["markov"], [4, 1], 4)
    assert items == [2, 3, 1, 4]
    assert scores == pytest.approx([3, 1, 4 / 12 - 1, 2 / 12 - 1])
    # After 2: 1 once (user 0), 4 once (user 1); user 2's 3 belongs to the next session.
    assert rank(RANKERS["markov"], [2], 2) == ([1, 4], [1, 1])
    assert rank(RANKERS["markov"], [0], 2)[0] == [1, 2]  # no history: popularity


def test_markov_by_event_asks_how_the_last_item_was_met():
    by_event = RANKERS["markov by event"]
    assert rank(by_event, [1], 1, events=[2])[0] == [3]  # user 0: item 1 by event 2, then 3
    assert rank(by_event, [1], 1, events=[1])[0] == [2]
    assert rank(by_event, [2], 2, events=[2])[0] == [4, 1]
    assert rank(by_event, [1], 1, events=[7])[0] == [1]  # a kind never seen: popularity


def test_item_knn_is_the_cosine_of_who_took_both():
    # 1 and 2 by users 0, 1, 2; 3 by 0, 2; 4 by 1, 2; 5 by 2. cos(3, 1) = 2 / sqrt(2 * 3), cos(3, 4) = 1 / 2.
    items, scores = rank(RANKERS["item-knn"], [0, 3], 5)
    assert items == [1, 2, 5, 4, 3]  # 3 itself by popularity alone
    assert scores[:4] == pytest.approx([2 / 6**0.5, 2 / 6**0.5, 1 / 2**0.5, 0.5])
    both = rank(RANKERS["item-knn"], [3, 5, 3], 3)[1]  # each item of the history once
    assert both[0] == pytest.approx(2 / 6**0.5 + 1 / 3**0.5)
    assert rank(ItemKNN.of(LOG, neighbours=1), [3], 2)[1][1] < 0  # only the nearest, then popularity


def test_item_knn_in_chunks_is_item_knn(monkeypatch):
    monkeypatch.setattr("tidelog.recommend.evaluate._CHUNK", 2)
    difference = ItemKNN.of(LOG).similarity - RANKERS["item-knn"].similarity
    assert abs(difference).max() < 1e-12


def test_own_frequency_counts_the_history_and_ends_in_zeros_unless_filled():
    assert rank(OwnFrequency.of(LOG), [5, 4, 5, 2], 5)[0] == [5, 2, 4, 0, 0]
    assert rank(OwnFrequency.of(LOG), [5, 4], 3)[1][2] == -np.inf
    assert rank(RANKERS["own"], [5, 4, 5, 2], 5)[0] == [5, 2, 4, 1, 3]


def test_own_frequency_of_another_catalogue_says_how_to_build_it():
    with pytest.raises(
        ConfigError, match=r"expected the number of items plus 1\. fix: .*OwnFrequency\.of\(split\.train\)"
    ):
        OwnFrequency(LOG)
    with pytest.raises(ConfigError, match=r"OwnFrequency\.size = 6, but a history has item 6: .*fix: build it"):
        rank(OwnFrequency(6), [5, 6], 3)
    with pytest.raises(ConfigError, match="but allowed has 7 columns"):
        rank(OwnFrequency(8), [5, 6], 3, allowed=np.ones((1, 7), bool))


def test_tifu_knn_decays_by_age_and_adds_the_nearest_users():
    # two groups of two events; the newest event of a group counts 1/2, the older one 1/2 * 0.8, the older group half
    ranker = TifuKNN.of(LOG, neighbours=1, own=1.0, groups=2, within=0.8, between=0.5)
    items, scores = rank(ranker, [5, 4, 3, 2], 4)
    assert items == [2, 3, 4, 5]
    assert scores == pytest.approx([1 / 2 / 2, 0.8 / 2 / 2, 0.5 / 2 / 2, 0.5 * 0.8 / 2 / 2])
    # user 1's own history: user 1 is nearest, so a list of neighbours only is the own one
    alone = rank(ranker, [1, 2, 4], 3)
    assert rank(TifuKNN.of(LOG, 1, 0.0, 2, 0.8, 0.5), [1, 2, 4], 3) == alone
    mixed = rank(TifuKNN.of(LOG, 3, 0.0, 1, 1.0, 1.0), [1, 2, 4], 6)  # the mean of all users
    assert mixed[1][0] == pytest.approx((2 / 4 + 1 / 3 + 1 / 5) / 3)  # item 1
    assert mixed[0][0] == 1


@given(st.sampled_from(sorted(RANKERS)), st.data())
def test_never_padding_never_a_forbidden_item_never_twice_and_exactly_k(name, data):
    history = data.draw(st.lists(st.integers(0, 6), min_size=3, max_size=3))
    forbidden = data.draw(st.lists(st.integers(1, 6), max_size=5))
    allowed = np.ones((1, 7), bool)
    allowed[0, forbidden] = False
    k = data.draw(st.integers(1, int(allowed[0, 1:].sum())))
    items, scores = rank(RANKERS[name], history, k, allowed=allowed)
    assert len(set(items)) == k
    assert not set(items) & {0, *forbidden}
    assert scores == sorted(scores, reverse=True)
