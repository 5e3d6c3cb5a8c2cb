"""Diverse lists, and the reason of each recommendation."""

import numpy as np
import pytest

from tests.algorithms.recommenders import described, fresh, small
from tests.runtime.cases import LISTS, listing
from tidelog import SpecError, runtime
from tidelog.data.statistics import Scaler
from tidelog.policies.policy import Policy
from tidelog.runtime import recommender
from tidelog.runtime.ranking import Ranker, RankingFunctions
from tidelog.runtime.recommender import diverse, pool_size
from tidelog.types import HistoryArrays, HistoryNames

HISTORIES = [["i3"], ["i1", "i2", "i1"], [f"i{n % 10}" for n in range(14)], []]
NAMES = HistoryNames(described().items, described().events)
VECTORS = np.array([[0, 0], [1, 0], [0.96, 0.28], [0, 1], [-1, 0]], np.float32)  # of no item, then of four


def test_a_diverse_list_is_chosen_one_item_after_the_other():
    """Items 1 and 2 are alike, 3 is at a right angle, 4 opposite; scores 0, -1, -2, -4."""
    pool, scores = np.array([[1, 2, 3, 4]]), np.array([[0.0, -1.0, -2.0, -4.0]])
    # At 0.5, after item 1: 0.5 * 0.75 - 0.5 * 0.96 = -0.105 for item 2; 0.25 for item 3; 0 + 0.5 for item 4.
    for weight, listed in ((0.0, [1, 2, 3]), (0.5, [1, 4, 3]), (0.3, [1, 3, 2]), (1.0, [1, 4, 3])):
        items, ordered = diverse(pool, scores, VECTORS, 3, weight)
        assert items.tolist() == [listed], weight
        assert ordered.tolist() == [[float(scores[0, item - 1]) for item in listed]]
    assert diverse(pool, np.zeros((1, 4)), VECTORS, 2, 0.5)[0].tolist() == [[1, 4]]  # scores alike: only vectors count


def test_lists_of_a_thousand_items_are_the_best_thousand():
    generator = np.random.default_rng(1)
    table, query = generator.standard_normal((1_501, 4)).astype(np.float32), np.ones(4, np.float32)
    table[:, :3] /= np.linalg.norm(table[:, :3], axis=1, keepdims=True)

    def scored(seen, found, logits, ideas):
        return logits, np.zeros_like(logits), np.isfinite(logits)

    ranker = Ranker(
        RankingFunctions(
            table, lambda seen: np.tile(query, (len(seen.items), 1, 1)), scored, None, 3, 1, 0, 20, 0.0, 0.0
        )
    )
    ones, allowed = np.ones((2, 3), np.int32), np.ones((2, 1_501), bool)
    seen = HistoryArrays(ones, ones)
    allowed[1, 1:501] = False  # exactly a thousand are left
    items, scores = ranker.rank(seen, 1_000, allowed)
    order = 1 + np.argsort(-(table[1:] @ query), kind="stable")
    assert items[0].tolist() == order[:1_000].tolist()
    assert items[1].tolist() == [item for item in order.tolist() if item > 500]
    assert (np.diff(scores, axis=1) <= 0).all()
    pool = ranker.rank(seen, pool_size(1_000, allowed), allowed)
    diverse_items, _ = diverse(*pool, ranker.vectors, 1_000, 0.3)
    assert all(len(set(row)) == 1_000 for row in diverse_items.tolist())
    with pytest.raises(SpecError, match="k = 1001, but history 1 has only 1000 candidates"):
        ranker.rank(seen, 1_001, allowed)


def test_diverse_lists_are_the_same_however_many_are_in_memory(monkeypatch):
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((41, 3))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    pool = np.stack([generator.permutation(40) + 1 for _ in range(7)])
    scores = -np.sort(generator.random((7, 40)), axis=1)
    whole = diverse(pool, scores, vectors, 10, 0.4)
    monkeypatch.setattr(recommender, "NUMBERS", 240)  # two rows at once
    for one, two in zip(diverse(pool, scores, vectors, 10, 0.4), whole, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.sample("lists, gru")
@pytest.mark.parametrize("name", LISTS)
def test_likelihoods_are_those_of_the_cross_entropy(name):
    """They sum to 1 over the catalogue, and order it as the ranker by likelihood alone does."""
    ranker = listing(name).ranker(supervised=True)
    items = np.array([[0, 0, 0], [0, 3, 4], [5, 5, 1]], np.int32)
    seen = HistoryArrays(items, np.minimum(items, 1), names=NAMES)
    found = ranker.log_likelihood(seen, np.tile(np.arange(1, 11), (3, 1)))
    np.testing.assert_allclose(np.exp(found).sum(1), 1.0, atol=1e-5)
    listed, scores = ranker.rank(seen, 4)
    own = np.take_along_axis(found, listed - 1, axis=1)
    np.testing.assert_allclose(own - own[:, :1], scores, atol=1e-4)


def test_diverse_lists_are_less_alike_and_the_same_without_jax(tmp_path):
    policy = listing("lists, gru")
    plain = runtime.load(policy.save(tmp_path / "policy"))
    vectors = policy.ranker().vectors
    place = {str(one): i + 1 for i, one in enumerate(policy.spec.action.ids)}

    def alike(items):
        numbers = np.array([[place[str(one)] for one in row] for row in items])
        each = vectors[numbers]
        return float(np.einsum("bkd,bld->bkl", each, each).sum() - numbers.size) / numbers.size

    shown = {share: policy.recommend(HISTORIES, 4, False, diversity=share) for share in (0.0, 0.6, 1.0)}
    np.testing.assert_array_equal(shown[0.0].items, policy.recommend(HISTORIES, 4, False).items)
    assert alike(shown[0.0].items) > alike(shown[0.6].items) >= alike(shown[1.0].items) - 1e-6
    assert (shown[1.0].items[:, 0] == shown[0.0].items[:, 0]).all()  # nothing is chosen before the first item
    for share, lists in shown.items():
        np.testing.assert_array_equal(plain.recommend(HISTORIES, 4, False, diversity=share).items, lists.items)
    assert "i1" not in policy.recommend(HISTORIES, 4, False, exclude=["i1"], diversity=0.9).items
    for wrong in (-0.1, 1.1, True, "0.3", float("nan")):
        with pytest.raises(SpecError, match=r"diversity = .*: expected a number from 0 to 1. fix: use 0.3"):
            policy.recommend(HISTORIES, 4, diversity=wrong)


def test_candidates_may_be_a_function_of_an_item():
    policy = listing("lists, gru")
    even = policy.recommend(HISTORIES, 3, False, candidates=lambda item: int(item[1:]) % 2 == 0)
    wanted = policy.recommend(HISTORIES, 3, False, candidates=[f"i{n}" for n in range(0, 10, 2)])
    np.testing.assert_array_equal(even.items, wanted.items)


def test_candidates_may_be_a_mask_for_all_histories_or_for_each(monkeypatch):
    policy = listing("lists, gru")
    even = np.array([int(item[1:]) % 2 == 0 for item in policy.spec.action.ids])
    wanted = policy.recommend(HISTORIES, 3, False, candidates=[f"i{n}" for n in range(0, 10, 2)], exclude=["i4"])
    np.testing.assert_array_equal(
        policy.recommend(HISTORIES, 3, False, candidates=even, exclude=["i4"]).items, wanted.items
    )
    each = np.stack([even, ~even, even, ~even])
    for most in (1 << 26, 11):  # all histories at once, and one after the other
        monkeypatch.setattr(recommender, "MARKS", most)
        found = policy.recommend(HISTORIES, 3, False, candidates=each, exclude=["i4"])
        np.testing.assert_array_equal(found.items[[0, 2]], wanted.items[[0, 2]])
        assert {int(item[1:]) % 2 for item in found.items[[1, 3]].ravel()} == {1}
    assert each[0, list(policy.spec.action.ids).index("i4")]  # the caller's mask is as it was
    with pytest.raises(SpecError, match=r"history 1 has only 5 candidates"):
        policy.recommend(HISTORIES, 6, False, candidates=np.stack([np.ones(10, bool), even, even, even]))
    with pytest.raises(SpecError, match=r"candidates is a mask \[3, 10\]: expected \[10\] or \[4, 10\]"):
        policy.recommend(HISTORIES, 3, candidates=each[:3])


def test_a_reason_is_the_item_without_which_the_likelihood_is_lowest(tmp_path):
    policy = listing("lists, mean")
    lists = policy.recommend(HISTORIES, 3, False)
    found = policy.explain(HISTORIES, lists.items)
    place = {str(one): i + 1 for i, one in enumerate(policy.spec.action.ids)}
    ranker, usual = policy.ranker(), policy.spec.observation["history"].usual

    def likelihood(history, item):
        seen = np.array([[place[one] for one in history] or [0]], np.int32)
        asked = HistoryArrays(seen, usual * np.minimum(seen, 1), names=NAMES)
        return ranker.log_likelihood(asked, np.array([[place[item]]]))[0, 0]

    for history, items, reasons, times in zip(HISTORIES, lists.items, *found, strict=True):
        kept = history[-ranker.history :]
        for item, reason, factor in zip(items, reasons, times, strict=True):
            lost = {one: likelihood(kept, item) - likelihood([x for x in kept if x != one], item) for one in set(kept)}
            largest = max(lost.values(), default=0.0)
            assert factor == pytest.approx(np.exp(max(largest, 0.0)), rel=1e-3)
            assert reason is None if largest <= 0 else lost[reason] == pytest.approx(largest, abs=1e-4)
    assert found.items[-1].tolist() == [None] * 3
    assert any(one is not None for one in found.items[:3].ravel())
    plain = runtime.load(policy.save(tmp_path / "policy")).explain(HISTORIES, lists.items)
    np.testing.assert_array_equal(plain.items, found.items)
    np.testing.assert_allclose(plain.times, found.times, rtol=1e-3)


def test_an_item_that_a_user_takes_again_and_again_is_its_own_reason():
    """With scores for repeated items alone the history matters only through them."""
    h, log = small(memory=8), described()
    policy = Policy(h, log.spec, Scaler(), h.policy_params(fresh(h, log)))
    found = policy.explain([["i4", "i7", "i4"]], [["i4", "i7"]])
    assert found.items.tolist() == [["i4", "i7"]]
    assert (found.times > 1.2).all()


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([["i1"]], "2 histories with lists of [1] items: expected one list for each history"),
        ([["i1"], ["i1", "i2"]], "2 histories with lists of [1, 2] items"),
        ([[], []], "2 histories with lists of [0, 0] items"),
        ([["i1"], ["i99"]], "items[1] has the unknown item 'i99'"),
        ("i1", "items is 'i1': expected a list of item ids"),
    ],
)
def test_lists_that_do_not_fit_the_histories_are_refused(items, words):
    with pytest.raises(SpecError) as refused:
        listing("lists, gru").explain([["i1"], []], items)
    assert words in str(refused.value)
