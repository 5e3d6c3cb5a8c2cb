"""Single refusals and rare branches of interactions, lists and the recommender."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.algorithms.recommenders import small
from tests.data.clicks import ROLES, clicks, interactions
from tests.runtime.cases import listing
from tidelog.data.raw import Column
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.ope.intervals import Confidence
from tidelog.recommend import read
from tidelog.recommend.evaluate import RankerComparison, RankingRow, _check_lists
from tidelog.recommend.interactions import _check_arrays, _moment, held_out_cases
from tidelog.recommend.read import (
    MOST_WORDS,
    RawInteractions,
    Roles,
    _build,
    id_text,
    reopen,
    reopen_any,
    validate_by_roles,
)
from tidelog.recommend.recommender_bcq import negative_items
from tidelog.recommend.tables import _user_features, recommend_for_table


@pytest.fixture(scope="module")
def log():
    return interactions()


def raw(**changes):
    """Three rows of which nothing could be read."""
    roles = Roles(user="u", item="i", time="t")
    names = ("user", "item", "time", "event", "reward", "session", "propensity", "slate")
    columns = dict.fromkeys(names) | {"source": "made", "rows": 3, "numbers": np.arange(3), "has_lines": False}
    return RawInteractions(**columns | {"roles": roles, "catalogue": np.arange(2)} | changes)


def test_checks_of_columns_that_could_not_be_read_find_nothing():
    for check in (read.repeated_event, read.times_far_outside, read.users_without_history):
        assert list(check(raw())) == []


def test_interactions_say_what_they_hold(log):
    assert repr(log) == f"Interactions({len(log):,} events of 12 users, 9 items; buy, click)"


def test_only_some_users_of_baskets_are_measured():
    frame = clicks().with_columns(t=pl.lit(1e9) + pl.int_range(pl.len()).over("u") // 3)
    log = tl.read_interactions(frame, **ROLES)
    assert log.has_baskets
    cases = held_out_cases(log, 4)
    assert len(np.unique(cases.user)) == 4
    assert len(np.unique(held_out_cases(log, 99).user)) == len(np.unique(log.user[log.targets]))


def test_copies_of_events_on_both_sides_of_a_split_are_named():
    frame = pl.DataFrame({"u": ["a", "a", "a", "b", "b"], "i": ["x", "y", "y", "x", "y"], "t": [1.0, 2, 2, 1, 3]})
    split = tl.read_interactions(frame, user="u", item="i", time="t").leave_one_out()
    found = [one.found for one in split.report.warnings if one.check == "leakage between periods"]
    assert "1 held-out events have the same user, item and time as a training event" in found


REFUSED = {
    "an item index": (LogError, lambda log: log.item_ids([0, 1]), "item index out of range: expected 1 to 9"),
    "no two events": (
        LogError,
        lambda log: tl.read_interactions(
            pl.DataFrame({"u": ["a", "b"], "i": ["x", "y"], "t": [1.0, 2.0]}), user="u", item="i", time="t"
        ).leave_one_out(),
        "no user has two events: there is no event to hold out",
    ),
    "no moment": (ConfigError, lambda log: _moment(log, float("nan"), 0.2), "at = nan is not a valid moment"),
    "missing columns": (
        LogError,
        lambda log: _build(raw(user=Column("u", np.arange(3))), log.report),
        "the interactions have no user, item or time. fix: name all three columns",
    ),
    "a reward of nothing": (
        ConfigError,
        lambda log: Roles(user="u", item="i", time="t", reward=3),
        "reward = 3: expected a column, or the reward of each kind of event",
    ),
    "a kind that is a number": (
        ConfigError,
        lambda log: Roles(user="u", item="i", time="t", event="e", reward={1: 2.0}),
        "reward has the kind 1: expected text. fix: write '1'",
    ),
    "a forbidden item": (
        SpecError,
        lambda log: _check_lists(np.asarray([[1, 2]]), 1, 2, 4, np.asarray([[True, True, False, True]])),
        "the ranker returned an item that is not allowed",
    ),
    "a measure": (
        ConfigError,
        lambda log: RankerComparison(3, (RankingRow("a", "all", 1, 1, {}, {}, {}),), Confidence()).text(["ndgc"]),
        "unknown measure 'ndgc': did you mean 'ndcg'?",
    ),
    "no rows": (
        SpecError,
        lambda log: recommend_for_table(listing("lists, mean"), clicks().head(0), user="u", item="i"),
        "has no rows: expected at least one user. fix: add rows",
    ),
    "no user features": (
        SpecError,
        lambda log: _user_features(SimpleNamespace(spec=log.spec), None, "u", [], "error"),
        "this policy was trained without user features. fix: drop user_features (--user-features)",
    ),
    "acting": (
        SpecError,
        lambda log: small().act(None, None),
        "a policy over a catalogue ranks items and has no act(). fix: call policy.recommend(histories, k)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name, log):
    error, call, words = REFUSED[name]
    with pytest.raises(error, match=re.escape(words)):
        call(log)


def test_a_month_is_a_moment():
    dated = SimpleNamespace(time=np.asarray(["2026-01-05"], "datetime64[us]"), scored=None)
    assert _moment(dated, " 2026-02 ", 0.2) == np.datetime64("2026-02-01T00", "us")
    with pytest.raises(ConfigError, match="expected a date such as 1999-01-01"):
        _moment(dated, "in spring", 0.2)
    with pytest.raises(ConfigError, match="at = 'NaT' is not a valid moment"):
        _moment(dated, "NaT", 0.2)


def test_saved_interactions_without_events_are_refused(log):
    names = ("users", "items", "user", "item", "event", "reward", "time", "terminated", "truncated")
    arrays = dict.fromkeys(("propensity", "scored", "item_features", "user_features", "slate"))
    arrays |= {name: np.asarray(getattr(log, name))[:0] for name in names}
    with pytest.raises(LogError, match="the interactions have no events"):
        _check_arrays(arrays, SimpleNamespace(feature_names=[], profile=None))


def test_a_table_that_cannot_be_read_leaves_no_older_rows_aside(tmp_path):
    old = tmp_path / "aside.csv"
    old.write_text("old")
    report = validate_by_roles(str(tmp_path / "none.csv"), Roles(user="u", item="i", time="t"), str(old), False, True)
    assert not report.ok
    assert not old.exists()


def test_an_origin_of_interactions_is_no_log_of_observations(log, tmp_path):
    log.save(tmp_path / "clicks")
    origin = {"source": str(tmp_path / "clicks"), "columns": None}
    assert len(reopen_any(origin)) == len(log)
    with pytest.raises(LogError, match=r"clicks holds interactions: expected a log with observations"):
        reopen(origin)
    with pytest.raises(LogError, match=r"clicks holds interactions: expected a log with observations"):
        reopen_any({**origin, "parts": [{"episodes": [0]}]})


def test_ids_in_lists_are_text():
    assert id_text(pl.Series([["a"], ["b", "c"], None])).to_list() == ["['a']", "['b', 'c']", None]
    assert id_text(pl.Series([1.0, 2.0, float("nan")])).to_list() == ["1", "2", None]


def test_features_that_are_none_or_too_many_are_errors():
    def problems(features):
        report = tl.check(clicks(), **ROLES, item_features=features)
        return [one.found for one in report.errors if one.check == "unusable features"]

    items = [f"i{n}" for n in range(9)]
    (found,) = problems(pl.DataFrame({"i": items}))
    assert found.startswith("no feature besides the ids in ")
    many = pl.DataFrame({"i": [f"i{n}" for n in range(MOST_WORDS + 2)], "x": [f"w{n}" for n in range(MOST_WORDS + 2)]})
    assert any(one.startswith(f"{MOST_WORDS + 2:,} different words in") for one in problems(many))


def test_without_slates_an_item_at_random_was_not_selected():
    chosen = jnp.asarray([[1, 2]])
    facts = SimpleNamespace(
        draw=lambda key, shape: jnp.asarray([[3, 2]]),
        log_share=jnp.log(jnp.asarray([0.1, 0.2, 0.3, 0.4])),
        log_drawn=jnp.log(jnp.asarray([0.25, 0.25, 0.25, 0.25])),
    )
    windows = SimpleNamespace(slate=None, chosen=chosen, before=lambda value: 10.0 * value)
    inputs = SimpleNamespace(items=SimpleNamespace(vectors=jnp.arange(8.0).reshape(4, 2)))
    config = SimpleNamespace(discount=0.5, negative_weight=3.0)
    found = negative_items(config, SimpleNamespace(facts=facts), windows, inputs, jnp.ones((1, 2)), jax.random.key(0))
    np.testing.assert_array_equal(found.vectors, [[[6.0, 7.0], [4.0, 5.0]]])
    np.testing.assert_allclose(found.target, [[5.0, 5.0]])
    np.testing.assert_allclose(found.weight, [[3.0 * 2 * 0.4 / 0.7, 0.0]], rtol=1e-5)  # 2 was selected
