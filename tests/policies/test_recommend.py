"""Lists: never padding, never excluded items, exactly k, unchanged ids; and invalid input is named."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.recommenders import described, policy, small
from tests.runtime.cases import listing
from tidelog.errors import SpecError
from tidelog.recommend.tables import recommend_for_table
from tidelog.runtime.ranking import FoundItems, order_found
from tidelog.runtime.recommender import Histories
from tidelog.types import HistoryArrays, HistoryNames

ITEMS = [f"i{n}" for n in range(10)]


@pytest.fixture(scope="module", params=["likelihood", "vae"])
def recommender(request):
    return policy(small(generator=request.param), described())


histories = st.lists(st.lists(st.sampled_from(ITEMS), max_size=9), min_size=1, max_size=5)


@pytest.mark.sample("likelihood")
@given(
    taken=histories,
    k=st.integers(1, 4),
    exclude=st.lists(st.sampled_from(ITEMS), max_size=3),
    candidates=st.one_of(st.none(), st.lists(st.sampled_from(ITEMS), min_size=1, unique=True)),
    exclude_seen=st.booleans(),
)
def test_exactly_k_items_that_are_allowed_or_a_word_about_how_many_there_are(
    recommender, taken, k, exclude, candidates, exclude_seen
):
    offered = set(candidates or ITEMS) - set(exclude)
    allowed = [offered - set(history) if exclude_seen else offered for history in taken]
    short = [i for i, one in enumerate(allowed) if len(one) < k]
    if short:
        with pytest.raises(SpecError, match=f"history {short[0]} has only {len(allowed[short[0]])} candidates"):
            recommender.recommend(taken, k, exclude_seen, candidates, exclude)
        return
    found = recommender.recommend(taken, k, exclude_seen, candidates, exclude)
    assert found.items.shape == found.scores.shape == (len(taken), k)
    for row, one in zip(found.items, allowed, strict=True):
        assert len(set(row)) == k
        assert set(row) <= one
    assert np.isfinite(found.scores).all()
    assert (np.diff(found.scores, axis=1) <= 0).all()


def test_the_same_histories_have_the_same_lists_alone_and_together(recommender):
    taken = [["i1", "i2"], [], ["i9"]]
    both, again = (recommender.recommend(taken, 3) for _ in range(2))
    np.testing.assert_array_equal(both.items, again.items)
    np.testing.assert_array_equal(both.scores, again.scores)
    for i, history in enumerate(taken):
        alone = recommender.recommend([history], 3)
        np.testing.assert_array_equal(alone.items[0], both.items[i])
        np.testing.assert_allclose(alone.scores[0], both.scores[i], atol=1e-5)


@pytest.mark.sample("likelihood")
def test_a_ranker_speaks_in_indices(recommender):
    taken = np.array([[0, 0, 4, 5]], np.int32)
    names = HistoryNames(ITEMS, ("buy", "click"))
    seen = HistoryArrays(taken, (taken > 0).astype(np.int32) * 2, names=names)
    items, _ = recommender.ranker().rank(seen, 10)
    assert items.dtype == np.int32
    assert sorted(items[0]) == list(range(1, 11))
    likely, _ = recommender.ranker(supervised=True).rank(seen, 10)
    assert sorted(likely[0]) == list(range(1, 11))
    named = recommender.recommend(Histories([["i3", "i4"]], events=[["click", "click"]]), 10, exclude_seen=False)
    assert named.items[0].tolist() == [f"i{n - 1}" for n in items[0]]


def test_what_is_not_said_of_a_user_counts_as_nothing_known():
    told = listing("lists, gru")
    nobody = told.recommend([["i1"]], 4).scores
    for user in (None, {}, {"age": None, "plan": None, "likes": []}, {"age": float("nan"), "plan": ""}):
        np.testing.assert_array_equal(told.recommend(Histories([["i1"]], users=[user]), 4).scores, nobody)
    skipped = told.recommend(Histories([["i1"]], users=[{"plan": "gold"}], unknown="skip"), 4).scores
    np.testing.assert_array_equal(skipped, nobody)
    assert np.abs(told.recommend(Histories([["i1"]], users=[{"plan": " paid "}]), 4).scores - nobody).max() > 1e-5


def test_users_are_refused_by_a_policy_that_reads_nothing_of_them():
    deaf = policy(small(profile=False), described())
    with pytest.raises(SpecError, match="this policy has no user features"):
        deaf.recommend(Histories([["i1"]], users=[{"age": 3}]))


@pytest.mark.sample("likelihood")
def test_only_the_last_steps_of_a_long_history_are_read_but_all_are_left_out(recommender):
    long = ["i0"] + ["i1", "i2"] * 5
    assert "i0" not in recommender.recommend([long], 7).items
    short = recommender.recommend([long[-6:]], 7, exclude=["i0"])
    np.testing.assert_array_equal(recommender.recommend([long], 7).items, short.items)


@pytest.mark.parametrize(("call", "said"), [
    ({"histories": [["i1", "j2"]]}, "history 0 has the unknown item 'j2'"),
    ({"histories": [["i1"]], "candidates": ["i77"]}, "candidates has the unknown item 'i77'"),
    ({"histories": [["i1"]], "exclude": "i1"}, "exclude is .*: expected a list"),
    ({"histories": [["i1"]], "exclude": ["i77"]}, "exclude has the unknown item 'i77'"),
    ({"histories": [["i1"]], "candidates": ["i2", "i2"], "k": 2}, "history 0 has only 1 candidates"),
    ({"histories": [["i1"]], "candidates": [], "k": 1}, "history 0 has only 0 candidates"),
    ({"histories": []}, "no history: expected at least one"),
    ({"histories": "i1"}, "histories has the type str: expected lists"),
    ({"histories": ["i1"]}, "history 0 is 'i1': expected a list"),
    ({"histories": [["i1"]], "k": 0}, "at least 1"),
    ({"histories": [["i1"]], "k": 11}, "k = 11, but history 0 has only 9 candidates"),
    ({"histories": [["i1"]], "k": 2.5}, "expected a whole number"),
    ({"histories": [["i1"]], "events": [["view"]]}, "history 0 has the unknown event 'view'"),
    ({"histories": [["i1"]], "events": [[]]}, "1 items and 0 events"),
    ({"histories": [["i1"]], "unknown": "drop"}, "expected 'error' or 'skip'"),
    ({"histories": [["i1"]], "unknown": np.array(["skip", "error"])}, "expected 'error' or 'skip'"),
    ({"histories": [["i1"]], "exclude_seen": "no"}, "exclude_seen = 'no': expected True, False or None"),
    ({"histories": [["i1"]], "events": 5}, "events has the type int: expected lists"),
    ({"histories": [["i1"]], "events": [None]}, "events of history 0: None: expected a list"),
    ({"histories": [["i1"]], "events": ["view"]}, "events of history 0: 'view': expected a list"),
    ({"histories": [["i1"]], "events": {0: ["buy"]}}, "events has the type dict: expected lists"),
    ({"histories": np.array(3)}, "histories has the type ndarray: expected lists"),
    ({"histories": [["i1"]], "exclude": np.array(3)}, "exclude is .*: expected a list"),
    ({"histories": [["i1"]], "users": {"age": 3}},
     "users has the type dict: expected a list. fix: pass one mapping per history"),
    ({"histories": [["i1"]], "users": [{}, {}]}, "1 histories with 2 users"),
    ({"histories": [["i1"]], "users": ["u1"]}, r"users\[0\] is 'u1': expected a mapping"),
    ({"histories": [["i1"]], "users": [{"ages": 3}]}, r"\['ages'\] is an unknown column: did you mean 'age'"),
    ({"histories": [["i1"]], "users": [{"age": "old"}]}, r"users\[0\]\['age'\] is 'old': expected a number"),
    ({"histories": [["i1"]], "users": [{"age": float("inf")}]}, "expected a finite number"),
    ({"histories": [["i1"]], "users": [{"age": 1e300}]}, "expected a finite number"),
    ({"histories": [["i1"]], "users": [{"age": 10**400}]}, "expected a finite number"),
    ({"histories": [["i1"]], "users": [{"plan": "pad"}]}, "has 'pad', unknown in the log; did you mean 'paid'"),
    ({"histories": [["i1"]], "users": [{"plan": 3}]}, "expected text or a list of texts"),
    ({"histories": [["i1"]], "users": [{"likes": ["a", 3]}]}, "has 3: expected text"),
])  # fmt: skip
def test_what_is_handed_in_wrong_is_named(recommender, call, said):
    asked = Histories(
        call["histories"], **{name: call[name] for name in ("events", "users", "unknown") if name in call}
    )
    choices = {name: call[name] for name in ("k", "candidates", "exclude", "exclude_seen") if name in call}
    with pytest.raises(SpecError, match=said):
        recommender.recommend(asked, **choices)


def test_lists_keep_the_columns_of_the_table_whatever_they_are_called(recommender):
    frame = pl.DataFrame({"score": [7, 7, 3], "rank": ["i1", "i2", "i5"]})
    lists = recommend_for_table(recommender, frame, user="score", item="rank", k=2)
    assert lists.columns == ["score", "rank_", "rank", "score_"]
    assert lists["score"].to_list() == [7, 7, 3, 3]
    assert lists["rank_"].to_list() == [1, 2, 1, 2]
    assert set(lists["rank"]) <= set(ITEMS)
    other = recommend_for_table(recommender, frame.rename({"rank": "x"}), user="x", item="x", k=1)
    assert other.columns == ["x", "rank", "x_", "score"]


def test_a_table_is_read_as_the_log_was(recommender):
    frame = pl.DataFrame({"u": [1.0, 1.0], "i": [" i1", "i2"], "kind": [" buy", "click "], "t": [1.0, float("nan")]})
    lists = recommend_for_table(recommender, frame, user="u", item="i", event="kind", k=2)
    wanted = recommender.recommend(Histories([["i1", "i2"]], events=[["buy", "click"]]), 2)
    assert lists["i"].to_list() == wanted.items[0].tolist()
    assert lists["u"].to_list() == [1, 1]
    with pytest.raises(SpecError, match=r"column 't' has no valid value in 1 row\(s\): 2"):
        recommend_for_table(recommender, frame, user="u", item="i", time="t", k=2)


def test_unknown_items_are_passed_over_only_when_that_is_asked_for(recommender):
    skipped = recommender.recommend(Histories([["i1", "new", "i2"]], unknown="skip"), 3)
    np.testing.assert_array_equal(skipped.items, recommender.recommend([["i1", "i2"]], 3).items)


def test_lists_of_ids_are_histories_of_which_nothing_else_is_known(recommender):
    asked = Histories([["i1", "i2"], []])
    assert Histories.of(asked) is asked
    assert Histories.of(asked.items).items is asked.items
    lists = recommender.recommend(asked, 3)
    np.testing.assert_array_equal(lists.items, recommender.recommend(asked.items, 3).items)
    np.testing.assert_array_equal(
        recommender.explain(asked, lists.items).items, recommender.explain(asked.items, lists.items).items
    )


def test_a_ranking_policy_says_so_when_it_is_asked_for_an_action(recommender):
    with pytest.raises(SpecError, match=r"policy\.recommend"):
        recommender([1.0])


def test_supported_items_come_first_and_scores_fall():
    found = FoundItems(
        items=np.array([[4, 2, 7, 9]]),
        likelihood=np.array([[-3.0, 0.0, -1.0, -np.inf]]),
        rating=np.array([[5.0, -5.0, 0.0, 0.0]]),
        first=np.array([[True, True, False, False]]),
    )
    items, scores = order_found(found, 3, 0.5)
    assert items.tolist() == [[4, 2, 7]]  # -3 + 2.5 = -0.5; 0 - 2.5 = -2.5; then -1, lowered below -2.5
    np.testing.assert_allclose(scores, [[-0.5, -2.5, -2.5]])
    assert order_found(found, 3, 0.0)[0].tolist() == [[2, 4, 7]]
    assert order_found(found, 3, 0.5, supervised=True)[0].tolist() == [[2, 7, 4]]


def test_a_table_of_histories_becomes_a_table_of_lists(recommender):
    frame = pl.DataFrame({"who": ["b", "a", "b", "c"], "what": ["i2", "i5", "i1", None], "at": [2, 1, 1, 3]})
    lists = recommend_for_table(recommender, frame, user="who", item="what", time="at", k=3)
    assert lists.columns == ["who", "rank", "what", "score"]
    assert lists["who"].to_list() == ["b"] * 3 + ["a"] * 3 + ["c"] * 3
    by_hand = recommender.recommend([["i1", "i2"], ["i5"], []], 3)
    assert lists["what"].to_list() == by_hand.items.reshape(-1).tolist()
    with pytest.raises(SpecError, match="has no column 'whoo': did you mean 'who'"):
        recommend_for_table(recommender, frame, user="whoo", item="what")
    with pytest.raises(SpecError, match="no valid value in 1 row"):
        recommend_for_table(
            recommender, frame.with_columns(who=pl.Series(["a", "b", None, "c"])), user="who", item="what"
        )
