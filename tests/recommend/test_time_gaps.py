"""Time gaps: one scale for every unit; training, evaluation and lists read the same groups."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.recommenders import after, described, fresh, policy, small
from tests.recommend.test_next_item import gathered
from tests.runtime.cases import listing
from tests.serving.test_app import asked
from tidelog import SpecError, runtime
from tidelog.policies.policy import Policy
from tidelog.recommend.evaluate import lists
from tidelog.recommend.interactions import next_baskets, next_events
from tidelog.recommend.next_item import Windows, store_interactions
from tidelog.runtime.ranking import gap_groups
from tidelog.runtime.recommender import Histories


def paced():
    """The small log with longer pauses the longer a user is there."""
    log = described()
    return replace(log, time=log.time + 50.0 * log.place**2)


TIMES = {"times": [[0.0, 40.0]], "now": 100.0}


def test_groups_by_hand():
    # unknown, none, 2**-20 and less, 1: 2 * 20 + 2; twice as long is two groups on; the last group has no end
    found = gap_groups(np.array([np.nan, 0.0, 2.0**-20, 1e-9, 1.0, 1.5, 2.0, 3600.0, 1e300]))
    assert found.tolist() == [0, 1, 2, 2, 42, 43, 44, 42 + int(2 * np.log2(3600)), 127]


def test_a_log_has_the_time_until_each_next_event_in_seconds_or_its_own_unit():
    log = paced()
    last = np.append(log.user[1:] != log.user[:-1], True)
    assert (log.gaps[last] == 0).all()
    np.testing.assert_array_equal(log.gaps[:-1][~last[:-1]], gap_groups(np.diff(log.time))[~last[:-1]])
    assert len(np.unique(log.gaps)) > 3
    dates = replace(log, time=np.datetime64("2026-01-01", "us") + (log.time * 1e6).astype("timedelta64[us]"))
    np.testing.assert_array_equal(dates.gaps, log.gaps)
    assert (log.spec.observation["history"].times, dates.spec.observation["history"].times) == ("numbers", "dates")


def test_windows_and_cases_have_the_gap_that_ends_at_the_target():
    log = paced()
    store = store_interactions(log, 3, ["time"])
    rows = np.asarray(Windows(6, 3, 0.9).rows(store)[1])
    data = gathered(Windows(6, 3, 0.9), store, rows).data
    found, cases = np.asarray(data.gaps), next_events(log, rows, 6)
    np.testing.assert_array_equal(found[:, :-1], cases.histories.gaps)
    np.testing.assert_array_equal(found[:, :-1], log.histories(rows, 6).gaps)
    known = cases.histories.items[:, -1] > 0
    np.testing.assert_array_equal(
        cases.histories.gaps[known, -1], gap_groups(log.time[rows] - log.time[rows - 1])[known]
    )
    baskets = replace(log, time=np.floor(log.time / 40))
    case = next_baskets(baskets, np.arange(len(log)) >= 0, 9)
    assert (case.histories.gaps == 0).all()  # the first basket of each user has no history


@pytest.mark.full
def test_the_reader_learns_from_gaps_and_lists_depend_on_them():
    h, log = small(time_gaps=True, learning_rate=0.1), paced()
    state = after(h, log, updates=3)
    assert np.abs(np.asarray(state.next_item.reader.gaps)).max() > 0.0
    assert (np.asarray(state.next_item.reader.gaps)[0] == 0).all()  # unknown adds nothing
    whole = policy(h, log, state)
    one, two = (whole.recommend(Histories([["i1", "i2"]], times=[[0.0, 40.0]], now=now), 3) for now in (140.0, 1e6))
    assert np.abs(one.scores - two.scores).max() > 1e-6
    reasons = whole.because(Histories([["i1", "i2"]], **TIMES), one.items)
    assert reasons.times.shape == (1, 3)


def test_evaluation_gives_the_reader_the_times_that_recommend_reads():
    whole, log = listing("lists, gaps"), paced()
    rows = np.flatnonzero(log.place == 4)[:5]
    cases = next_events(log, rows, 8)
    before = [list(log.item_ids(log.item[row - 4 : row])) for row in rows]
    events = [[log.events[kind - 1] for kind in log.event[row - 4 : row]] for row in rows]
    times, now = [log.time[row - 4 : row].tolist() for row in rows], log.time[rows].tolist()
    seen = cases.histories._replace(users=None)
    mine = whole.recommend(Histories(before, events=events, times=times, now=now), 3, exclude_seen=False)
    others = lists(whole.ranker(), replace(cases, histories=seen), 3, len(log.items) + 1)
    np.testing.assert_array_equal(mine.items, log.items[others - 1])
    ignored = lists(whole.ranker(), replace(cases, histories=seen._replace(gaps=None)), 3, len(log.items) + 1)
    assert (ignored != others).any()


def test_http_answers_as_numpy_does_and_says_what_is_missing(tmp_path):
    plain = runtime.load(listing("lists, gaps").save(tmp_path / "policy"))
    wanted = plain.recommend(Histories([["i1", "i2"]], **TIMES), 3)

    def answer(**more):
        return asked(plain, ("POST", "/recommend", {"json": {"history": ["i1", "i2"], "k": 3, **more}}))[0]

    assert answer(times=TIMES["times"][0], now=100.0).json()["items"] == wanted.items[0].tolist()
    missing = answer()
    assert missing.status_code == 422
    assert "this policy reads time gaps, and times is missing" in missing.text
    assert answer(times=[True, 2], now=3).status_code == 422


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "times is missing. fix: pass times, one"),
        ({"times": [[1, 2]]}, "now is missing"),
        ({"times": [[1]], "now": 3}, "times of history 0 are not 2 times"),
        ({"times": [[2, 1]], "now": 3}, "times of history 0 decrease"),
        ({"times": [[1, 2]], "now": 1}, "later than now"),
        ({"times": [[1, "2026-01-01"]], "now": 3}, "expected a finite number in the log's unit"),
        ({"times": [[1, float("nan")]], "now": 3}, "expected a finite number"),
        ({"times": [[1, 2]], "now": [3, 4]}, "now has 2 times for 1 histories"),
        ({"times": 1, "now": 3}, "times is not a list of 1 lists"),
        ({"times": [[1, 2], [1, 2]], "now": 3}, "times is not a list of 1 lists"),
    ],
)
def test_times_that_do_not_fit_are_refused(more, said):
    with pytest.raises(SpecError, match=said):
        listing("lists, gaps").recommend(Histories([["i1", "i2"]], **more), 3)


def test_a_policy_without_gaps_refuses_times():
    with pytest.raises(SpecError, match="does not read times"):
        listing("lists, gru").recommend(Histories([["i1"]], times=[[1]], now=2), 3)


def test_unknown_items_are_left_out_with_their_times():
    whole = listing("lists, gaps")
    one = whole.recommend(Histories([["i1", "i77", "i2"]], unknown="skip", times=[[0.0, 20.0, 40.0]], now=100.0), 3)
    np.testing.assert_array_equal(one.scores, whole.recommend(Histories([["i1", "i2"]], **TIMES), 3).scores)


def test_dates_are_read_with_their_zones():
    log = described()
    dated = replace(log, time=np.datetime64("2026-01-01", "us") + (log.time * 1e6).astype("timedelta64[us]"))
    numbered = listing("lists, gaps")
    whole = Policy(numbered.algorithm, dated.spec, numbered.scaler, numbered.params)
    numbers = numbered.recommend(Histories([["i1", "i2"]], **TIMES), 3)
    times = [["2026-01-01T00:00:00", np.datetime64("2026-01-01T00:00:40")]]
    found = whole.recommend(Histories([["i1", "i2"]], times=times, now="2026-01-01T01:01:40+01:00"), 3)
    np.testing.assert_array_equal(found.scores, numbers.scores)
    with pytest.raises(SpecError, match="expected a date"):
        whole.recommend(Histories([["i1", "i2"]], **TIMES), 3)
    for now in ("soon", "NaT", np.datetime64("NaT", "s")):
        with pytest.raises(
            SpecError, match=r"have .*expected a date, as 2026-01-31T12:00:00\. fix: use the log's kind"
        ):
            whole.recommend(Histories([["i1", "i2"]], times=times, now=now), 3)


@pytest.mark.full
@pytest.mark.parametrize(
    "settings", [{"time_gaps": True, "item_loss": "gbce", "gbce_negatives": 4}, {"user_embedding": True}]
)
def test_a_resumed_run_with_gaps_or_vectors_of_users_equals_one_that_was_not_cut(settings, tmp_path):
    h = small(**settings)
    paced().save(tmp_path / "log")
    log = tl.Interactions.load(tmp_path / "log")
    whole = tl.fit(h, log, 6, eval_every=3, out=tmp_path / "run", held_out=0.4, save_seconds=0.0)
    resumed = tl.resume(tmp_path / "run", checkpoint=3)
    for one, two in zip(whole.learners(), resumed.learners(), strict=True):
        for mine, other in zip(jax.tree.leaves(one.state), jax.tree.leaves(two.state), strict=True):
            np.testing.assert_array_equal(_data(mine), _data(other))
    next_item = whole.learners()[0].state.next_item
    learnt = next_item.reader.gaps if h.time_gaps else next_item.users.weight
    assert np.abs(np.asarray(learnt)).max() > 0.0
    assert resumed.metrics == whole.metrics
    for again in (tl.load_run, tl.refit) if h.user_embedding else ():
        assert again(tmp_path / "run").policy().spec == whole.policy().spec


def _data(leaf):
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def test_the_reader_refuses_gaps_that_it_has_no_vectors_for_and_the_lack_of_those_it_reads():
    events, vectors = jnp.array([[1, 2]]), jnp.zeros((1, 2, 8))
    for reads in (True, False):
        reader = fresh(small(time_gaps=reads), paced()).next_item.reader
        with pytest.raises(TypeError, match="the encoder's gaps are"):
            reader(vectors, events, gaps=None if reads else jnp.array([[0, 1]]))


def test_every_history_ends_at_a_time_of_its_own():
    """What a history reads does not depend on the time of another one's lists."""
    whole, ends = listing("lists, gaps"), [100.0, 1e6]
    both = whole.recommend(Histories([["i1", "i2"]] * 2, times=TIMES["times"] * 2, now=ends), 3)
    for row, end in enumerate(ends):
        alone = whole.recommend(Histories([["i1", "i2"]], times=TIMES["times"], now=end), 3)
        np.testing.assert_allclose(both.scores[row], alone.scores[0], atol=1e-5)
    assert np.abs(both.scores[0] - both.scores[1]).max() > 1e-3
