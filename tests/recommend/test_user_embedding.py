"""Vectors of users: known ones have their own, all others share one; training, evaluation and lists agree."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from tests.algorithms.recommenders import after, batch, compiled, described, fresh, policy, small
from tests.recommend.test_next_item import gathered
from tests.runtime.cases import SCORES, listing
from tests.serving.test_app import asked
from tidelog import SpecError, runtime
from tidelog.algorithms.optimisation import gradient_step, init_opt_state
from tidelog.algorithms.sampling import Batch
from tidelog.errors import CheckpointError
from tidelog.recommend.evaluate import lists
from tidelog.recommend.interactions import next_baskets, next_events
from tidelog.recommend.networks import UserTable
from tidelog.recommend.next_item import Windows, next_item_loss, store_interactions
from tidelog.recommend.recommender_bcq import next_item_step, pretrain_step, progress
from tidelog.recommend.tables import recommend_for_table
from tidelog.runtime.artefact import WEIGHTS, SavedPolicy, write
from tidelog.runtime.recommender import Histories
from tidelog.training.loop import as_arrays
from tidelog.types import Spec, Users

LEARNS = {"user_embedding": True, "learning_rate": 0.1}


def test_a_vector_is_the_shared_one_plus_its_own_by_hand():
    table = UserTable(jnp.array([[1.0, 0.0], [2.0, 3.0], [0.0, 0.0]]))
    # unknown: the shared vector alone; the second user had no events: the shared vector, too
    assert table(jnp.array([0, 1, 2])).tolist() == [[1.0, 0.0], [3.0, 3.0], [1.0, 0.0]]


def test_windows_and_cases_name_the_user_of_each_row():
    log = described()
    store = store_interactions(log, 3, ["user_id"])
    rows = np.asarray(Windows(6, 3).rows(store)[1])
    np.testing.assert_array_equal(gathered(Windows(6, 3), store, rows).data.user_index, log.user[rows] + 1)
    assert gathered(Windows(6, 3), store_interactions(log, 3), rows).data.user_index is None
    cases = next_events(log, rows)
    np.testing.assert_array_equal(cases.histories.user_index, log.user[rows] + 1)
    grouped = cases.grouped_by(np.zeros(16, int))
    np.testing.assert_array_equal(grouped.histories.user_index, cases.histories.user_index)
    baskets = next_baskets(log, np.ones(len(log), bool))
    np.testing.assert_array_equal(baskets.histories.user_index, np.arange(16) + 1)


@pytest.mark.full
def test_vectors_of_zeros_are_no_vectors_and_leave_all_other_random_numbers_alone():
    log = described()
    with_users, without = (
        _loss(small(user_embedding=one), fresh(small(user_embedding=one), log), batch(small(user_embedding=True), log))
        for one in (True, False)
    )
    assert with_users == without


def _loss(h, state, rows):
    return float(compiled(next_item_loss)(state.next_item, as_arrays(h), rows, state.facts, jax.random.key(3))[0])


@pytest.mark.full
def test_the_state_is_that_of_the_own_vector():
    """Rows of one batch whose users are exchanged exchange their errors with the vectors, and only then."""
    h, log = small(user_embedding=True, dropout=None, user_dropout=0.0), described()
    state, rows = fresh(h, log), batch(h, log)
    weight = np.random.default_rng(0).standard_normal((17, 8)).astype(np.float32)
    moved = state._replace(next_item=state.next_item._replace(users=UserTable(jnp.asarray(weight))))
    own = _loss(h, moved, rows)
    unknown = Batch(rows.data._replace(user_index=jnp.zeros_like(rows.data.user_index)), *rows[1:])
    assert abs(own - _loss(h, moved, unknown)) > 1e-3
    shared = np.where(np.arange(17)[:, None] > 0, 0.0, weight).astype(np.float32)
    alike = state._replace(next_item=state.next_item._replace(users=UserTable(jnp.asarray(shared))))
    assert _loss(h, moved, unknown) == _loss(h, alike, rows)


@pytest.mark.full
def test_dropout_trains_the_shared_vector_alone_and_users_without_events_keep_it():
    log = described()
    half = log.select(np.flatnonzero(log.user < 8))
    every = np.asarray(after(small(**LEARNS, user_dropout=1.0), half).next_item.users.weight)
    assert np.abs(every[0]).max() > 0.0
    assert (every[1:] == 0.0).all()
    some = np.asarray(after(small(**LEARNS, user_dropout=0.0), half, updates=3).next_item.users.weight)
    assert (np.abs(some[:9]).max(axis=1) > 0.0).any()
    assert (np.abs(some[1:9]).max(axis=1) > 0.0).sum() >= 4
    assert (some[9:] == 0.0).all()


def _of_users(rows, users):
    """The batch, as if its windows were these users'."""
    return rows._replace(data=rows.data._replace(user_index=jnp.asarray(users, jnp.int32)))


def _dense_step(config, state, rows, key):
    """The update of table and reader in which Adam moves every row of the table of users."""
    rate = config.learning_rate * config.schedule(progress(state))
    next_item, opt_state, *_ = gradient_step(
        next_item_loss, state.next_item, state.opt_states.next_item, rate, config, rows, state.facts, key
    )
    return state._replace(next_item=next_item, opt_states=state.opt_states._replace(next_item=opt_state))


@pytest.mark.sample("0.01")
@pytest.mark.parametrize("clip", [None, 0.01])
def test_an_update_that_reads_every_user_is_dense_adam(clip):
    h, log = small(**LEARNS, batch_size=24, gradient_clip=clip), described()
    numbers, users = as_arrays(h), np.r_[:16, :8] + 1
    lazy = dense = fresh(h, log)
    for update in range(3):
        rows = _of_users(batch(h, log, update), np.random.default_rng(update).permutation(users))
        lazy, _ = compiled(next_item_step)(numbers, lazy, rows, jax.random.key(update))
        dense = compiled(_dense_step)(numbers, dense, rows, jax.random.key(update))
    assert (np.abs(lazy.next_item.users.weight).max(axis=1) > 0.0).sum() >= 12  # others were hidden each time
    for part in ("next_item", "opt_states"):
        jax.tree.map(
            lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5),
            getattr(lazy, part), getattr(dense, part),
        )  # fmt: skip


def test_rows_and_moments_of_users_outside_the_batch_stay_the_same_bits():
    h, log = small(**LEARNS, user_dropout=0.0), described()
    step, numbers = compiled(next_item_step), as_arrays(h)
    state = fresh(h, log)
    for first in (1, 9):  # everyone has moments, with which dense Adam would move on
        rows = _of_users(batch(h, log, first), np.arange(first, first + 8))
        state, _ = step(numbers, state, rows, jax.random.key(first))
    after, _ = step(numbers, state, _of_users(batch(h, log), [5, 2, 2, 16, 5, 5, 2, 16]), jax.random.key(2))
    for one, two in zip(_user_tables(state), _user_tables(after), strict=True):
        assert np.flatnonzero((one != two).any(axis=1)).tolist() == [0, 2, 5, 16]


def _user_tables(state):
    """The table of users, then its two moments."""
    adam = state.opt_states.next_item
    return [np.asarray(one.users.weight) for one in (state.next_item, adam.mu, adam.nu)]


@pytest.mark.full
def test_updates_hold_no_second_table_of_users():
    """Neither a gradient of its shape nor a copy: in a loop whose state is donated, temporaries are smaller than it."""
    h, log, users = small(user_embedding=True), described(), 100_000
    state, rows = fresh(h, log), batch(h, log)
    next_item = state.next_item._replace(users=UserTable(jnp.zeros((users + 1, 8))))
    opt_state = init_opt_state(h.optimiser, next_item)
    state = state._replace(next_item=next_item, opt_states=state.opt_states._replace(next_item=opt_state))

    def updates(numbers, state, rows):
        return jax.lax.fori_loop(0, 3, lambda i, now: pretrain_step(numbers, now, rows)[0], state)

    program = jax.jit(updates, donate_argnums=1).lower(as_arrays(h), state, rows).compile()
    assert program.memory_analysis().temp_size_in_bytes < next_item.users.weight.nbytes


def test_evaluation_reads_the_users_that_recommend_reads():
    whole, log = listing("lists, users"), described()
    rows = np.flatnonzero(log.position == 4)[:6]
    cases = next_events(log, rows, 8)
    seen = cases.histories._replace(users=None)
    before = [list(log.item_ids(log.item[row - 4 : row])) for row in rows]
    events = [[log.events[kind - 1] for kind in log.event[row - 4 : row]] for row in rows]
    asked = Histories(before, events=events, user_ids=log.users[log.user[rows]].tolist())
    mine = whole.recommend(asked, 3, exclude_seen=False)
    others = lists(whole.ranker(), replace(cases, histories=seen), 3, len(log.items) + 1)
    np.testing.assert_array_equal(mine.items, log.items[others - 1])
    unknown = lists(whole.ranker(), replace(cases, histories=seen._replace(user_index=None)), 3, len(log.items) + 1)
    assert (unknown != others).any()


def test_every_reader_knows_the_same_users_and_the_others_share_one_vector(tmp_path):
    whole = listing("lists, users")
    path = whole.save(tmp_path / "policy")
    plain = runtime.load(path)
    ids, histories = ["u0", "u15", None, "nobody"], [["i1", "i2"]] * 4
    known = Histories(histories, user_ids=ids)
    one, two = (reader.recommend(known, 3) for reader in (whole, plain))
    np.testing.assert_array_equal(one.items, two.items)
    np.testing.assert_allclose(one.scores, two.scores, atol=1e-4)
    assert np.abs(one.scores[0] - one.scores[1]).max() > 1e-3
    np.testing.assert_array_equal(two.scores[2], two.scores[3])
    np.testing.assert_array_equal(plain.recommend(histories, 3).scores[0], two.scores[2])
    explanations = plain.explain(known, two.items)
    np.testing.assert_allclose(whole.explain(known, two.items).times, explanations.times, rtol=1e-3)
    alone = plain.explain(histories[:1], two.items[:1])
    assert np.abs(alone.times - explanations.times[0]).max() > 1e-4
    diverse = plain.recommend(known, 3, diversity=0.3)
    assert np.abs(diverse.scores[0] - plain.recommend(histories, 3, diversity=0.3).scores[0]).max() > 1e-4
    listed = recommend_for_table(plain, _table(), user="u", item="i", k=3)
    np.testing.assert_allclose(listed["score"].to_numpy()[:3], two.scores[0], **SCORES)
    np.testing.assert_allclose(listed["score"].to_numpy()[3:], two.scores[3], **SCORES)


def _table():
    return pl.DataFrame({"u": ["u0", "u0", "stranger", "stranger"], "i": ["i1", "i2"] * 2})


def test_http_answers_as_numpy_does(tmp_path):
    plain = runtime.load(listing("lists, users").save(tmp_path / "policy"))
    wanted = plain.recommend(Histories([["i1", "i2"]] * 2, user_ids=["u3", None]), 3)

    def answer(**body):
        return asked(plain, ("POST", "/recommend", {"json": {"k": 3, **body}}))[0]

    one = answer(history=["i1", "i2"], user_id="u3", explain=True).json()
    np.testing.assert_allclose(one["scores"], wanted.scores[0], **SCORES)
    reasons = plain.explain(Histories([["i1", "i2"]], user_ids=["u3"]), wanted.items[:1])
    np.testing.assert_allclose(one["times_likelier"], reasons.times[0], **SCORES)
    many = answer(histories=[["i1", "i2"]] * 2, user_ids=["u3", None]).json()
    np.testing.assert_allclose(many["scores"], wanted.scores, **SCORES)
    for wrong in ({"user_ids": "u3"}, {"user_ids": [1.5, None]}, {"user_ids": ["u3"]}):
        found = answer(histories=[["i1", "i2"]] * 2, **wrong)
        assert found.status_code == 422, wrong
    other = runtime.load(listing("lists, plain").save(tmp_path / "other"))
    refused = asked(other, ("POST", "/recommend", {"json": {"history": ["i1"], "user_id": "u3"}}))[0]
    assert "does not know users by id. fix: drop the ids of users" in refused.json()["error"]


def test_ids_are_in_a_policy_only_if_each_has_a_vector_and_nothing_else_fits(tmp_path):
    log, whole = described(), listing("lists, users")
    assert "the policy holds the ids of all 16 users of its log: share its file accordingly" in whole.notes()
    assert not any("ids" in note for note in policy(small(), log).notes())
    assert "user_id" not in policy(small(), log).spec.observation
    assert whole.spec.observation["user_id"] == Users(tuple(log.users.tolist()))
    assert Spec.from_json(whole.spec.to_json()) == whole.spec
    saved = SavedPolicy(whole.save(tmp_path / "policy"))
    kept = {key: value for key, value in saved.manifest.items() if key not in ("kind", "schema", "files")}
    ids = kept["spec"]["observation"]["user_id"]["ids"]
    for name, wrong, said in (
        ("fewer", ids[:-1], "vectors of 16 users, unlike the spec"),
        ("twice", [*ids[:-1], ids[0]], "is invalid"),
        ("mixed", [*ids[:-1], 3], "is invalid"),
    ):
        kept["spec"]["observation"]["user_id"]["ids"] = wrong
        write(tmp_path / name, {WEIGHTS: saved.read(WEIGHTS)}, kept | {"onnx": None})
        with pytest.raises(CheckpointError, match=said):
            runtime.load(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "ids", "said"),
    [
        ("lists, plain", ["u1"], r"does not know users by id\. fix: drop the ids of users"),
        ("lists, users", "u1", r"user_ids is 'u1': expected a list of ids"),
        ("lists, users", ["u1", "u2"], r"1 histories with 2 user_ids"),
    ],
)
def test_ids_that_do_not_fit_are_refused(name, ids, said):
    with pytest.raises(SpecError, match=said):
        listing(name).recommend(Histories([["i1"]], user_ids=ids), 3)
