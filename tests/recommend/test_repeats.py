"""Repeated items: every earlier event is a place of its item, and one softmax goes over catalogue and places."""

import equinox as eqx
import jax
import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.algorithms.recommenders import after, batch, compiled, described, fresh, policy, small
from tests.recommend.test_next_item import gathered
from tidelog.recommend.evaluate import OwnFrequency, Popularity, compare
from tidelog.recommend.interactions import next_baskets
from tidelog.recommend.networks import Places, Repeats, log_score, log_total, with_places
from tidelog.recommend.next_item import Windows, next_item_loss, read_windows, store_interactions
from tidelog.runtime.ranking import NO_PLACE, age_groups, sums_of_places
from tidelog.training.loop import as_arrays

ITEMS, SCORES = np.array([[0, 2, 1, 2]]), np.array([[NO_PLACE, 1.0, -1.0, 0.5]], np.float32)


def test_an_item_has_the_sum_of_its_places_by_hand():
    # item 2 has logit 0 in the catalogue and two places: log(e^0 + e^1 + e^0.5); item 3 is in the catalogue only
    places = Places(ITEMS, SCORES)
    found = eqx.filter_jit(log_score)(np.array([0.0, 0.25], np.float32), np.array([2, 3]), places)
    np.testing.assert_allclose(found, [np.log(1 + np.e + np.exp(0.5)), 0.25], rtol=1e-6)
    total = eqx.filter_jit(log_total)(np.array([[0.0, 0.0, 0.25]], np.float32), places)
    np.testing.assert_allclose(total, np.log(2 + np.exp(0.25) + np.e + np.exp(-1) + np.exp(0.5)), rtol=1e-6)
    every = eqx.filter_jit(with_places)(np.array([[-np.inf, 0.0, 0.0, 0.25]], np.float32), places)
    np.testing.assert_allclose(np.exp(every[0]), [0, 1 + np.exp(-1), 1 + np.e + np.exp(0.5), np.exp(0.25)], rtol=1e-6)
    np.testing.assert_allclose(
        sums_of_places(np.array([[2, 1, 3]]), ITEMS, SCORES, 3),
        [[np.log(np.e + np.exp(0.5)), -1.0, -np.inf]],
        rtol=1e-6,
    )


def test_ages_are_grouped_four_to_a_doubling():
    groups = age_groups(64)
    assert groups[[1, 2, 4, 8, 64]].tolist() == [0, 4, 8, 12, 24]
    assert (np.diff(groups[1:]) >= 0).all()
    assert age_groups(10**6)[-1] == 55


def test_a_state_repeats_earlier_events_only():
    """In a window of single events the state before a target sees the events before it, with their ages."""
    h, log = small(), described()
    state, row = fresh(h, log), batch(h, log)
    model = state.next_item._replace(
        repeats=Repeats.create(h.size, 1)
    )  # kinds do not matter: every score is the age's number
    ages = np.arange(56, dtype=np.float32)
    model = eqx.tree_at(lambda one: one.repeats.age, model, ages)
    model = eqx.tree_at(lambda one: one.repeats.kind, model, np.zeros(9, np.float32))
    seen = eqx.filter_jit(read_windows)(model, state.facts, h, row.data, around=True)
    items, scores = np.asarray(row.data.items), np.asarray(seen.places.scores)
    width = items.shape[1]
    for column in range(h.targets + 1):
        last = width - h.targets - 1 + column  # the last event before this state
        there = (items > 0) & (np.arange(width) <= last)
        np.testing.assert_array_equal(scores[:, column] > NO_PLACE, there)
        age = np.maximum(last + 1 - np.arange(width), 1)
        np.testing.assert_allclose(scores[:, column][there], np.broadcast_to(age_groups(99)[age], items.shape)[there])


def purchases(users: int = 60, seed: int = 0) -> pl.DataFrame:
    """Every user has three favourites of 30 items and buys them again and again, with other items beside them."""
    dice, rows = np.random.default_rng(seed), []
    for user in range(users):
        favourites = dice.permutation(30)[:3]
        for visit in range(8):
            basket = [*dice.permutation(favourites)[:2], *dice.permutation(30)[:1]]
            time = 10.0 * visit + (60.0 if visit >= 4 else 0.0)  # a long pause ends a session
            rows += [(f"u{user:03}", f"i{item}", time) for item in dict.fromkeys(basket)]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


@pytest.fixture(scope="module")
def baskets():
    log = tl.read_interactions(purchases(), user="user", item="item", time="time", session_gap=30.0)
    assert log.has_baskets
    assert 0 < log.terminated.sum() < len(log) / 4
    return log


def test_baskets_are_the_events_of_one_time(baskets):
    first, last = baskets.baskets
    for row in range(len(baskets)):
        same = np.flatnonzero((baskets.user == baskets.user[row]) & (baskets.time == baskets.time[row]))
        assert (first[row], last[row]) == (same[0], same[-1])


@pytest.mark.parametrize("targets", [2, 5])
def test_every_event_of_a_basket_is_a_target_once_and_no_event_of_the_basket_is_its_history(baskets, targets):
    store = store_interactions(baskets, targets)
    unit = Windows(7, targets, 0.9)
    _, rows = unit.rows(store)
    data, _, valid = gathered(unit, store, rows)[:3]
    valid, rows, (first, last) = np.asarray(valid), np.asarray(rows), baskets.baskets
    grid = rows[:, None] + np.arange(1 - targets, 1)
    np.testing.assert_array_equal(np.sort(grid[valid]), np.arange(len(baskets)))
    np.testing.assert_array_equal(np.asarray(data.chosen)[valid], baskets.item[grid[valid]])
    for window, row in enumerate(rows):
        before = baskets.histories([first[row]], 7).items
        assert np.asarray(data.items)[window].tolist() == before[0].tolist()
        until = baskets.item[max(baskets.starts[baskets.user[row]], last[row] - 6) : last[row] + 1]
        np.testing.assert_array_equal(np.asarray(data.after.items)[window][7 - len(until) :], until)
    np.testing.assert_allclose(np.asarray(data.discount)[valid], 0.9 * ~baskets.terminated[last[grid[valid]]])


@pytest.mark.full
def test_what_is_repeated_is_listed_first_and_an_encoder_alone_cannot_know_it(baskets):
    """Favourites are random: only a score for a user's own items knows them. Own frequency is the best possible."""
    split = baskets.split(at=120.0)
    cases = next_baskets(baskets, split.test.targets)
    settings = {"size": 8, "history": 20, "targets": 4, "batch_size": 64, "encoder": "mean", "learning_rate": 1e-2,
                "hidden": (8,), "pretrain_share": 1.0, "dropout": None}  # fmt: skip
    found = {
        str(memory): tl.fit(tl.RecommenderBCQ(memory=memory, **settings), split.train, 200, progress=False).policy()
        for memory in (0, 20)
    }
    rankers = {name: one.ranker() for name, one in found.items()} | {"own": OwnFrequency.of(split.train, filled=True)}
    table = compare(rankers, cases, Popularity.of(split.train).counts, 2)
    hits = {name: table.row(name).scores["ndcg"].estimate for name in rankers}
    assert hits["20"] > hits["0"] + 0.1
    assert hits["20"] > hits["own"] - 0.05


@pytest.mark.full
def test_critics_of_baskets_read_the_states_before_and_after_it(baskets):
    h = small(targets=2, profile=False)
    state = fresh(h, baskets)
    row = batch(h, baskets)
    after_two = after(h, baskets)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(after_two.critic, eqx.is_inexact_array)))
    loss, _ = compiled(next_item_loss)(state.next_item, as_arrays(h), row, state.facts, None)
    assert np.isfinite(loss)
    around = np.broadcast_to(np.arange(2.0)[None, :, None], (len(row.rows), 2, 1))
    assert row.data.before(around)[0, :, 0].tolist() == [0.0, 0.0]
    assert row.data.following(around)[0, :, 0].tolist() == [1.0, 1.0]


@pytest.mark.full
@pytest.mark.parametrize("successors", [0, 3])
def test_lists_are_the_best_of_all_items_by_the_probability_of_training(successors):
    """The search finds the most likely items of the whole catalogue, also repeated ones and counted successors."""
    h, log = small(memory=8, threshold=0.0, q_weight=0.0, successors=successors), described()
    state = after(h, log, updates=3, phase=0)
    state = eqx.tree_at(lambda one: one.next_item.repeats.age, state, np.linspace(2.0, -2.0, 56, dtype=np.float32))
    rows = np.arange(3, len(log), 7)
    found, scores = policy(h, log, state).ranker().rank(log.histories(rows, h.reach), 4)
    store = store_interactions(log, 1, ["user"])
    window = gathered(Windows(h.reach, 1), store, rows)[0]
    seen = eqx.filter_jit(read_windows)(state.next_item, state.facts, h, window)
    table = state.next_item.table(None, state.facts.features)
    logits = np.asarray(seen.states)[:, 0] @ np.asarray(table.vectors).T + np.asarray(table.bias)
    logits[:, 0] = -np.inf
    items = seen.places.items if successors else seen.items
    whole = np.asarray(with_places(logits, Places(items[:, 0], seen.places.scores[:, 0])))
    best = np.sort(whole, axis=1)[:, ::-1][:, :4]
    np.testing.assert_allclose(scores, best - best[:, :1], atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(whole, found, axis=1), best, atol=1e-4)


def test_lists_follow_the_log_unless_they_are_told_otherwise(baskets):
    """Where users take the same items again, lists may contain items of the history."""
    assert 0.5 < baskets.repeat_share == baskets.statistics()["repeats"]
    rare = tl.read_interactions(
        pl.DataFrame({"u": [0, 0, 0, 1, 1], "i": ["a", "b", "c", "a", "b"], "t": [1, 2, 3, 1, 2]}),
        user="u", item="i", time="t",
    )  # fmt: skip
    assert rare.repeat_share == 0.0
    h = small(profile=False)
    history = [[str(item) for item in baskets.items[:3]]]
    state = fresh(h, baskets)
    state = eqx.tree_at(lambda one: one.next_item.repeats.age, state, np.full(56, 9.0, np.float32))
    asked = policy(h, baskets, state)
    assert set(asked.recommend(history, 3).items[0]) == set(history[0])
    assert not set(asked.recommend(history, 3, exclude_seen=True).items[0]) & set(history[0])
    facts = fresh(h, baskets).facts._replace(repeat_share=np.float32(0.05))
    seldom = policy(h, baskets, fresh(h, baskets)._replace(facts=facts))
    assert not set(seldom.recommend(history, 3).items[0]) & set(history[0])


def test_an_item_twice_in_one_basket_is_no_repeat():
    log = tl.read_interactions(
        pl.DataFrame({"u": [0] * 5, "i": ["a", "b", "b", "b", "a"], "t": [1, 2, 2, 3, 3]}),
        user="u", item="i", time="t",
    )  # fmt: skip
    assert log.repeat_share == 0.4  # of a | b b | b a: the last two
