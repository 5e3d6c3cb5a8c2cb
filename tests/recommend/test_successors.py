"""Counted successors: counts by hand, without the targets of an update; a list starts where the Markov rule stands."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save

import tidelog as tl
from tests.algorithms.recommenders import batch, compiled, described, fresh, small
from tests.runtime.cases import listing
from tidelog import runtime
from tidelog.errors import CheckpointError
from tidelog.recommend.evaluate import Markov, Popularity, compare
from tidelog.recommend.interactions import next_events
from tidelog.recommend.networks import (
    Items,
    Places,
    SuccessorCounts,
    Successors,
    log_score,
    log_total,
    with_new_rows,
    with_places,
)
from tidelog.recommend.next_item import next_item_loss, read_windows, targets_of
from tidelog.recommend.recommender_bcq import critic_inputs
from tidelog.runtime.artefact import WEIGHTS, SavedPolicy, write
from tidelog.runtime.ranking import NO_PLACE, TRUSTS
from tidelog.training.loop import as_arrays

ROLES = {"user": "u", "item": "i", "time": "t"}


def visits(*users: str, times: list[int] | None = None) -> tl.Interactions:
    """Users with one event for each letter."""
    rows = [(f"u{n}", letter, place) for n, letters in enumerate(users) for place, letter in enumerate(letters)]
    frame = pl.DataFrame(rows, schema=["u", "i", "t"], orient="row")
    frame = frame if times is None else frame.with_columns(t=pl.Series(times))
    return tl.read_interactions(frame, **ROLES)


def named(log: tl.Interactions, counted: SuccessorCounts, item: str) -> dict[str, float]:
    row = log.items.tolist().index(item) + 1
    items, counts = np.asarray(counted.items)[row], np.asarray(counted.counts)[row]
    return {str(log.items[one - 1]): float(count) for one, count in zip(items, counts, strict=True) if one}


def test_counts_by_hand():
    log = visits("abab", "aca", "b")
    counted = SuccessorCounts.of(log, 2)
    assert named(log, counted, "a") == {"b": 2.0, "c": 1.0}
    assert named(log, counted, "b") == {"a": 1.0}  # no event of another user follows
    assert np.asarray(counted.totals).tolist() == [0.0, 3.0, 1.0, 1.0]
    short = SuccessorCounts.of(log, 1)
    assert named(log, short, "a") == {"b": 2.0}
    assert np.asarray(short.totals)[1] == 3.0  # a share is one of all that followed


def test_every_item_of_a_basket_follows_the_event_before_it():
    log = visits("abc", "ab", times=[0, 1, 1, 0, 0])
    assert log.has_baskets
    counted = SuccessorCounts.of(log, 3)
    assert named(log, counted, "a") == {"b": 1.0, "c": 1.0}
    assert np.asarray(counted.totals)[1] == 2.0


def scored(counted, last, targets=None, gate=0.0):
    """Scores in one state [1, 2]: trust is the group's number, a kind counts 0.5, an item's bias is a quarter of it."""
    part = Successors(jnp.arange(TRUSTS, dtype=jnp.float32), jnp.array([0.0, 0.5]), jnp.full(2, gate, jnp.float32))
    targets = None if targets is None else jnp.array([[targets]])
    return part(jnp.array([[[1.0, 2.0]]]), jnp.array([[last]]), jnp.array([[1]]), counted, vectors, targets)


def vectors(items):
    return Items(jnp.ones((*items.shape, 2)), 0.25 * items)


def test_a_score_is_the_logit_plus_the_share_and_its_trust_by_hand():
    log = visits("abab", "aca", "b")
    items, scores = scored(SuccessorCounts.of(log, 2), 1, gate=0.1)
    assert items.tolist() == [[[2, 3]]]
    # 3 counts: group 1; the kind of event 0.5; the state 0.3; logits 3 + 0.25 times the item
    rest = 1.0 + 0.5 + 0.3 + 3.0
    np.testing.assert_allclose(scores[0, 0], [rest + 0.5 + np.log(2 / 3), rest + 0.75 + np.log(1 / 3)], rtol=1e-6)


def test_targets_of_an_update_are_taken_out_of_their_counts():
    log = visits("abab", "aca", "b")
    counted = SuccessorCounts.of(log, 2)
    one, two = scored(counted, 1, [2]), scored(counted, 1, [3])
    assert (one.scores[0, 0] > NO_PLACE).tolist() == [True, True]
    np.testing.assert_allclose(one.scores[0, 0, 0], 1.0 + 0.5 + 3.0 + 0.5 + np.log(1 / 2), rtol=1e-6)
    assert (two.scores[0, 0] > NO_PLACE).tolist() == [True, False]  # c followed a only there
    none = scored(counted, 1, [0])
    np.testing.assert_array_equal(none.scores, scored(counted, 1).scores)


def test_an_item_that_nothing_followed_and_no_item_have_no_place():
    log = visits("ab", "ab", "c")
    counted = SuccessorCounts.of(log, 2)
    for last in (0, 2, 3):
        assert (np.asarray(scored(counted, last).scores) == np.float32(NO_PLACE)).all()


def test_the_probability_of_a_successor_is_multiplied():
    logits = np.random.default_rng(0).standard_normal((1, 6)).astype(np.float32)
    logits[0, 0] = -np.inf
    x = np.array([[0.7, -0.4]], np.float32)
    places = Places(np.array([[2, 5]]), logits[:, [2, 5]] + x)
    raised = np.exp(np.asarray(with_places(logits, places))[0, 1:] - logits[0, 1:])
    np.testing.assert_allclose(raised, [1, 1 + np.exp(0.7), 1, 1, 1 + np.exp(-0.4)], rtol=1e-5)
    own = log_score(logits[:, 2:3], np.array([[2]]), places) - log_total(logits, places)
    np.testing.assert_allclose(np.exp(with_places(logits, places) - log_total(logits, places)).sum(), 1.0, rtol=1e-5)
    assert own[0, 0] > logits[0, 2] - log_total(logits, None)[0]


@pytest.mark.parametrize("around", [False, True])
def test_each_state_of_a_window_has_the_successors_of_its_last_event_without_its_own_target(around):
    h, log = small(successors=3, memory=0), described()
    state, row = fresh(h, log), batch(h, log)
    chosen = targets_of(row)
    seen = eqx.filter_jit(read_windows)(state.next_item, state.facts, h, row.data, around=around, counted=chosen)
    items, valid = np.asarray(row.data.items), np.asarray(row.valid)
    counted, width = state.facts.successors, items.shape[1]
    for window, column in np.argwhere(valid):
        last = items[window, width - h.targets - 1 + column]
        np.testing.assert_array_equal(seen.places.items[window, column], counted.items[last])
        target = int(chosen[window, column])
        alone = np.asarray(counted.counts)[last] - (np.asarray(counted.items)[last] == target)
        there = (np.asarray(counted.items)[last] > 0) & (alone > 0)
        scores = np.asarray(seen.places.scores[window, column])
        np.testing.assert_array_equal(scores > NO_PLACE, there)
    if around:  # what follows the last target is not known to the update
        final = items[:, -1]
        np.testing.assert_array_equal(seen.places.items[:, -1], np.asarray(counted.items)[final])
        whole = np.asarray(counted.counts)[final] > 0
        np.testing.assert_array_equal(np.asarray(seen.places.scores[:, -1]) > NO_PLACE, whole)


def losses_of(h, state, row):
    """The loss of pretraining, as one program for all calls with the same shapes."""
    return float(compiled(h.phases()[0].losses)(as_arrays(h), state, row, jax.random.key(0))["imitation_loss"])


def test_a_held_out_loss_takes_nothing_out():
    h, log = small(successors=3), described()
    state, row = fresh(h, log), batch(h, log)
    nothing = state.facts.successors._replace(counts=jnp.zeros_like(state.facts.successors.counts))
    without = state._replace(facts=state.facts._replace(successors=nothing))
    assert losses_of(h, state, row) < losses_of(h, without, row)
    unseen = row._replace(valid=jnp.zeros_like(row.valid)) if row.valid is not None else row
    assert np.isfinite(losses_of(h, state, unseen))


@pytest.mark.full
def test_critics_read_all_places():
    h, log = small(successors=3), described()
    stepped, _ = compiled(h.phases()[1].step)(h, fresh(h, log), batch(h, log))
    assert np.isfinite(np.asarray(jax.tree.leaves(stepped.critic)[0])).all()


def test_an_update_does_not_learn_from_counts_of_its_own_targets():
    h, log = small(successors=3, memory=0, dropout=None), described()
    state, row = fresh(h, log), batch(h, log)
    held_out, learnt = (
        compiled(next_item_loss)(state.next_item, as_arrays(h), row, state.facts, key)[0]
        for key in (None, jax.random.key(0))
    )
    assert learnt > held_out + 0.1
    inputs = eqx.filter_jit(critic_inputs)
    places, others = (inputs(h, state, row.data, one).around.places for one in (targets_of(row), None))
    assert (np.asarray(places.scores) < np.asarray(others.scores)).any()


def chain(users: int, items: int, seed: int = 0) -> tl.Interactions:
    """Users on fixed chains through a catalogue, with one random step in four."""
    dice, rows = np.random.default_rng(seed), []
    follows = dice.permutation(items)
    for user in range(users):
        item = int(dice.integers(items))
        for place in range(8):
            rows.append((user, item, place + user / users))
            item = int(dice.integers(items)) if dice.random() < 0.25 else int(follows[item])
    return tl.read_interactions(pl.DataFrame(rows, schema=["u", "i", "t"], orient="row"), **ROLES)


@pytest.mark.full
def test_a_large_catalogue_is_no_worse_than_the_markov_rule_after_few_updates():
    """Without counts the lists of the same training are near chance; counts that kept their targets mislead."""
    log = chain(600, 1_500)
    split = log.split(at=6.0)
    cases = next_events(log, split.test.targets)
    h = small(successors=5, memory=0, full_softmax=0, sampled_items=64, pretrain_share=1.0, batch_size=64)
    rankers = {
        name: tl.fit(one, split.train, steps=60, progress=False).policy().ranker()
        for name, one in {"counted": h, "without": replace(h, successors=0)}.items()
    } | {"markov": Markov.of(split.train)}
    found = compare(rankers, cases, Popularity.of(split.train).counts, 5)
    hits = {name: found.row(name).scores["ndcg"].estimate for name in rankers}
    assert hits["counted"] > hits["markov"] - 0.03
    assert hits["counted"] > hits["without"] + 0.2


def test_the_default_counts_in_large_catalogues_only():
    h = tl.RecommenderBCQ()
    assert h.counted_successors(h.full_softmax) == 0
    assert h.counted_successors(h.full_softmax + 1) == 20
    assert replace(h, successors=0).counted_successors(10**6) == 0
    assert replace(h, successors=7).counted_successors(10) == 7


def test_new_items_have_no_counts_and_can_be_listed():
    counted = with_new_rows(SuccessorCounts.of(visits("abab"), 2), 3)
    assert counted.items.shape == (6, 2)
    assert not np.asarray(counted.items)[3:].any()
    assert not np.asarray(counted.totals)[3:].any()


def test_counts_of_a_saved_policy_that_do_not_fit_are_refused(tmp_path):
    saved = SavedPolicy(listing("lists, counted").save(tmp_path / "policy"))
    kept = {key: value for key, value in saved.manifest.items() if key not in ("kind", "schema", "files")}
    arrays = dict(saved.arrays())
    (name,) = [one for one in arrays if arrays[one].dtype == np.int32 and arrays[one].ndim == 2]
    for label, change, said in (
        ("item", lambda items: items + 9, "expected 0 to 10"),
        ("negative", lambda items: items - 1, "a counted successor is item -1"),
        ("short", lambda items: items[:-1], "counts of successors have shapes"),
    ):
        write(tmp_path / label, {WEIGHTS: save(arrays | {name: change(arrays[name])})}, kept | {"onnx": None})
        with pytest.raises(CheckpointError, match=said):
            runtime.load(tmp_path / label)
