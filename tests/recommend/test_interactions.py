"""The door for interactions: what comes in, what is refused, and what a split does."""

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog as tl
from tests.algorithms.recommenders import described, people
from tests.data.clicks import ROLES, clicks, interactions
from tidelog.errors import ConfigError, LogError
from tidelog.recommend.read import INTERACTION_CHECKS, Roles, reopen_any, validate_by_roles
from tidelog.runtime.recommender import Profiles
from tidelog.types import Spec


def put(column: str, *cells: tuple[int, Any]) -> Any:
    """A change that writes cells (row, value) of a column as text."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        values = frame[column].cast(pl.String).to_list()
        for row, value in cells:
            values[row] = value
        return frame.with_columns(pl.Series(column, values, pl.String))

    return change


def with_slate(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(shown=pl.col("i") + "|i0|i1", p=pl.lit(0.5))


# Reading.


def test_events_are_sorted_and_numbered_and_ids_come_back() -> None:
    frame = clicks()
    log = tl.read_interactions(frame.sample(fraction=1.0, shuffle=True, seed=1), **ROLES)
    assert sorted(log.users) == sorted(frame["u"].unique())
    assert list(log.items) == sorted(frame["i"].unique())
    back = pl.DataFrame(
        {
            "u": log.users[log.user],
            "i": log.item_ids(log.item),
            "t": log.time,
            "kind": np.asarray(log.events)[log.event - 1],
        }
    )
    assert back.sort("u", "t").equals(frame.sort("u", "t"))
    assert (np.diff(log.time)[np.diff(log.user) == 0] >= 0).all()
    assert set(log.reward[log.event == log.events.index("buy") + 1]) == {1.0}
    np.testing.assert_array_equal(log.reward[log.event == log.events.index("click") + 1], np.float32(0.2))


def test_ids_that_look_like_numbers_keep_their_zeros_and_numbers_stay_numbers() -> None:
    frame = clicks()
    words = frame.with_columns(i=pl.col("i").str.replace("i", "00"))
    assert list(tl.read_interactions(words, **ROLES).items)[:2] == ["000", "001"]
    numbers = frame.with_columns(i=pl.col("i").str.replace("i", "").cast(pl.Int64))
    assert tl.read_interactions(numbers, **ROLES).items.dtype.kind == "i"


def test_sessions_terminate_and_the_end_of_the_log_truncates() -> None:
    log = interactions(session_gap=59.0)
    last = np.append(log.user[1:] != log.user[:-1], True)
    gone = log.time < log.time.max() - 59.0  # users of whom nothing was heard for longer than a session waits
    assert 0 < (last & gone).sum() < last.sum()
    np.testing.assert_array_equal(log.terminated, ~last | gone)
    np.testing.assert_array_equal(log.truncated, last & ~gone)
    named = tl.read_interactions(clicks().with_columns(s=(pl.col("t") // 120).cast(pl.Int64)), session="s", **ROLES)
    inner = (named.time[1:] // 120 != named.time[:-1] // 120) & ~last[:-1]
    np.testing.assert_array_equal(named.terminated[:-1], inner)
    assert not interactions().terminated.any()


def test_sources_agree(tmp_path: Path) -> None:
    frame = with_slate(clicks())
    roles = {**ROLES, "slate": "shown", "propensity": "p"}
    frame.write_csv(tmp_path / "a.csv")
    frame.write_ndjson(tmp_path / "a.jsonl")
    frame.with_columns(pl.col("shown").str.split("|")).write_parquet(tmp_path / "a.parquet")
    prints = {tl.read_interactions(tmp_path / f"a.{end}", **roles).fingerprint() for end in ("csv", "jsonl", "parquet")}
    prints |= {
        tl.read_interactions(source, **roles).fingerprint()
        for source in (frame, pd.DataFrame(frame.to_dict(as_series=False)))
    }
    assert len(prints) == 1


def test_slates_and_features_share_the_catalogue() -> None:
    described = pl.DataFrame(
        {"i": [f"i{n}" for n in range(10)], "price": np.arange(10.0), "tags": ["a|b", "a", "b"] * 3 + ["c"]}
    )
    log = tl.read_interactions(with_slate(clicks()), slate="shown", item_features=described, **ROLES)
    assert list(log.items) == [f"i{n}" for n in range(10)]  # i9 was never taken
    assert log.feature_names == ("price", "tags=a", "tags=b", "tags=c")
    assert log.item_features.shape == (11, 4)
    np.testing.assert_array_equal(log.item_features[0], 0.0)
    np.testing.assert_array_equal(
        log.item_features[1:, 1:], (np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0]] * 3 + [[0, 0, 1]]))
    )
    assert abs(log.item_features[1:, 0].mean()) < 1e-6
    np.testing.assert_array_equal(log.slate[:, 0], log.item)
    np.testing.assert_array_equal(log.slate[:, 1:], np.tile([1, 2], (len(log), 1)))


def test_users_are_described_as_a_caller_describes_them_later() -> None:
    log, spec = described(), described().spec.observation["user"]
    assert spec.names == ("age", "plan=free", "plan=paid", "likes=a", "likes=b", "likes=c")
    ids = np.asarray(log.users).tolist()
    rows = people().with_columns(pl.col("likes").str.split(";")).to_dicts()
    told = {row.pop("u"): row for row in rows}
    again = Profiles(spec).read([told[one] for one in ids], len(ids))
    np.testing.assert_array_equal(again, log.user_features)
    assert abs(log.user_features[:, 0].mean()) < 1e-6
    assert abs(log.user_features[:, 0].std() - 1.0) < 1e-6
    assert Spec.from_json(json.loads(json.dumps(log.spec.to_json()))) == log.spec
    assert "user" not in interactions().spec.observation


def test_what_is_saved_is_opened_and_what_was_read_is_read_again(tmp_path: Path) -> None:
    with_slate(clicks()).write_csv(tmp_path / "a.csv")
    pl.DataFrame({"i": [f"i{n}" for n in range(9)], "f": range(9)}).write_csv(tmp_path / "items.csv")
    pl.DataFrame({"u": [f"u{n}" for n in range(12)], "age": range(12), "plan": ["a", "b"] * 6}).write_csv(
        tmp_path / "users.csv"
    )
    extra = {"slate": "shown", "propensity": "p"}
    extra |= {"item_features": tmp_path / "items.csv", "user_features": tmp_path / "users.csv"}
    log = tl.read_interactions(tmp_path / "a.csv", **extra, **ROLES)
    log.save(tmp_path / "kept")
    again = tl.Interactions.load(tmp_path / "kept")
    assert again.fingerprint() == log.fingerprint()
    assert again.profile == log.profile
    assert again.report == log.report
    assert reopen_any(log.origin).fingerprint() == reopen_any(again.origin).fingerprint() == log.fingerprint()
    with pytest.raises(LogError, match="exists"):
        log.save(tmp_path / "kept")
    (tmp_path / "kept" / "item.npy").write_bytes(b"cut")
    with pytest.raises(LogError, match=r"item\.npy"):
        tl.Interactions.load(tmp_path / "kept")
    with pytest.raises(LogError, match="unreadable file"):
        tl.Interactions.load(tmp_path)


# Refusing.

BROKEN = [
    ("empty cell", "u", put("u", (3, ""), (5, "")), {}, (4, 6)),
    ("empty cell", "i", put("i", (3, None)), {}, (4,)),
    ("unreadable cell", "t", put("t", (2, "noon")), {}, (3,)),
    ("times in mixed units", "t", put("t", (2, "1000000120000")), {}, (3,)),
    ("number not finite", "t", put("t", (7, "inf")), {}, (8,)),
    ("unknown event", "kind", put("kind", (1, "view")), {}, (2,)),
    ("rewards lost in 32 bits", "kind", lambda frame: frame, {"reward": {"click": 1e8, "buy": 1e8 + 1}}, ()),
    ("propensity not in (0, 1]", "p", lambda frame: put("p", (0, "1.5"))(with_slate(frame)), {"propensity": "p"}, (1,)),
    ("item not in its slate", "shown", lambda frame: put("shown", (4, "i7;i8"))(with_slate(frame)),
     {"slate": "shown"}, (5,)),
    ("missing column", "v", lambda frame: frame, {"propensity": "v"}, ()),
    ("one item only", "i", lambda frame: frame.with_columns(i=pl.lit("x")), {}, ()),
    ("no events", None, lambda frame: frame.head(0), {}, ()),
    ("ids without features", "i", lambda frame: frame, {"item_features": pl.DataFrame({"i": ["i0"], "f": [1.0]})}, ()),
    ("unusable features", "f", lambda frame: frame,
     {"item_features": pl.DataFrame({"i": [f"i{n}" for n in range(9)], "f": ["1", "x", *"3456789"]})}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("check", "column", "change", "roles", "rows"), BROKEN, ids=[case[0] for case in BROKEN])
def test_each_broken_table_is_refused_with_its_rows(
    check: str, column: str | None, change: Any, roles: dict[str, Any], rows: tuple[int, ...], tmp_path: Path
) -> None:
    path = tmp_path / "broken.csv"
    change(clicks()).write_csv(path)
    with pytest.raises(LogError) as refused:
        tl.read_interactions(path, **{**ROLES, **roles})
    (problem,) = [one for one in refused.value.report.errors if one.check == check]
    assert problem.column == column
    assert problem.rows == rows
    assert problem.lines == tuple(row + 1 for row in rows)
    assert all((problem.found, problem.expected, problem.fix))
    assert tl.check(path, **{**ROLES, **roles}) == refused.value.report


def test_all_errors_stand_in_one_report_and_their_rows_in_quarantine(tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    put("u", (3, ""))(put("t", (3, "noon"), (5, "dusk"))(clicks())).write_csv(path)
    report = validate_by_roles(path, Roles(**ROLES), tmp_path / "aside.csv")
    assert {one.check for one in report.errors} == {"empty cell", "unreadable cell"}
    aside = pl.read_csv(tmp_path / "aside.csv", infer_schema=False)
    assert aside["quarantine_row"].to_list() == ["4", "6"]
    assert aside["quarantine_problems"][0] == "empty cell in 'u'; unreadable cell in 't'"
    assert len(tl.read_interactions(clicks(), **ROLES)) == clicks().height  # nothing is dropped without a word


@pytest.mark.parametrize(("check", "change", "roles"), [
    ("several items in a cell", lambda frame: frame.with_columns(i=pl.Series(["7 12", "7", "9"] * 40).head(len(frame))),
     {}),
    ("repeated event", lambda frame: pl.concat([frame, frame.head(1)]), {}),
    ("unordered events", lambda frame: frame.reverse(), {}),
    ("times far outside", put("t", (0, "-6e10")), {}),
    ("times far outside", put("t", (3, "9e10")), {}),
    ("events at one time", lambda frame: frame.with_columns(t=pl.lit(5.0)), {}),
    ("rewards all equal", lambda frame: frame, {"reward": {"click": 1.0, "buy": 1.0}}),
    ("reward of unknown event", lambda frame: frame, {"reward": {"click": 1.0, "buy": 2.0, "bui": 3.0}}),
    ("users without history", lambda frame: put("u", (0, "once"))(frame).with_columns(pl.col("t")), {}),
    ("no pause ends a session", lambda frame: frame, {"session_gap": 1e7}),
])  # fmt: skip
def test_each_remark_is_said(check: str, change: Any, roles: dict[str, Any]) -> None:
    assert check not in {one.check for one in interactions().report.warnings}
    log = tl.read_interactions(change(clicks()), **{**ROLES, **roles})
    assert check in {one.check for one in log.report.warnings}


@pytest.mark.parametrize(
    ("times", "rows"),
    [
        ([0.0, 5.0, *range(1000, 1400), 9e5, 8e5], (1, 2, 403, 404)),  # both ends, each with a second gap among its own
        ([*range(400), 795.0], ()),  # a pause as long as all the rest, without two events at each end
        ([*range(400), 796.0], (401,)),
        ([*range(400), 2000.0, 2001.0, 2002.0], ()),  # more than 0.5% of the events
        ([*[5.0] * 400, 9.0], ()),  # the others have no length
        ([*range(18), 99.0], ()),  # too few to say
    ],
)
def test_times_far_outside_are_a_few_behind_a_long_gap(times: list[float], rows: tuple[int, ...]) -> None:
    times = [float(time) for time in times]
    frame = pl.DataFrame({"u": ["a"] * len(times), "i": ["x", "y"] * (len(times) // 2) + ["x"] * (len(times) % 2)})
    for column in (pl.Series("t", times), pl.Series("t", times).cast(pl.Int64).cast(pl.Datetime("us"))):
        report = tl.check(frame.with_columns(column), user="u", item="i", time="t")
        found = [one for one in report.warnings if one.check == "times far outside"]
        assert sum((one.rows for one in found), ()) == rows


def test_every_check_is_described_and_tested() -> None:
    assert all(one.meaning.endswith(".") for one in INTERACTION_CHECKS.values())
    tested = {case[0] for case in BROKEN}
    assert {one.name for one in INTERACTION_CHECKS.values() if one.level == "error"} <= tested


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ({"itm": "i"}, "did you mean 'item'"),
        ({"user": None}, "user is not set. fix: name a column"),
        ({"reward": {"click": float("nan")}}, "expected a finite number"),
        ({"event": None}, "the column event= is missing"),
        ({"session_gap": -1}, "expected a positive number"),
        ({"session_gap": "30 weeks"}, "expected a positive number"),
        ({"session_gap": timedelta(0)}, "expected a positive number"),
        ({"session_gap": True}, "expected a positive number"),
        ({"time": ["t"]}, "expected the name of one column"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(roles: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        tl.read_interactions(clicks(), **{**ROLES, **roles})


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "", "07", "7"]),
            st.sampled_from(["x", "y", "x|y", " ", "1", "01"]),
            st.sampled_from(["1", "2.5", "1e9", "1e12", "2020-01-01", "", "nan", "-3"]),
            st.sampled_from(["click", "buy", "?"]),
        ),
        max_size=6,
    )
)
def test_random_tables_are_read_or_refused_but_never_break(rows: list[tuple[str, str, str, str]]) -> None:
    frame = pl.DataFrame(rows, schema=dict.fromkeys(("u", "i", "t", "kind"), pl.String), orient="row")
    report = tl.check(frame, **ROLES)
    if report.ok:
        log = tl.read_interactions(frame, **ROLES)
        assert len(log) == len(rows)
        assert sorted(map(str, log.item_ids(log.item))) == sorted(item.strip() for _, item, _, _ in rows)
    else:
        with pytest.raises(LogError):
            tl.read_interactions(frame, **ROLES)


# Splitting.


def test_a_split_by_time_keeps_the_future_out_of_the_past() -> None:
    log = interactions()
    split = log.split(at=1e9 + 120)  # an event happens at that very moment
    assert split.train.time.max() < 1e9 + 120 == split.test.time[split.test.targets].min()
    assert len(split.train) + len(split.test.targets) == len(log) == len(split.test)
    np.testing.assert_array_equal(split.train.items, split.test.items)
    last = np.append(split.train.user[1:] != split.train.user[:-1], True)
    np.testing.assert_array_equal(split.train.truncated, last)
    assert log.split().at == pytest.approx(log.time.min() + 0.8 * np.ptp(log.time))
    dated = tl.read_interactions(clicks().with_columns(pl.from_epoch(pl.col("t").cast(pl.Int64))), **ROLES)
    assert str(dated.split("2001-09-09 01:50").at) == "2001-09-09T01:50:00.000000"


def test_text_without_a_header_is_read_by_the_numbers_of_its_columns(tmp_path):
    frame = clicks().select("u", "i", "t")
    frame.write_csv(tmp_path / "bare.csv", include_header=False)
    frame.write_csv(tmp_path / "named.csv")
    roles = {"user": "column_1", "item": "column_2", "time": "column_3"}
    log = tl.read_interactions(tmp_path / "bare.csv", **roles)
    named = tl.read_interactions(tmp_path / "named.csv", user="u", item="i", time="t")
    assert log.fingerprint() == named.fingerprint()
    assert reopen_any(log.origin).fingerprint() == named.fingerprint()
    renamed = frame.rename({"u": "column_1", "i": "column_2", "t": "column_3"})
    renamed.write_csv(tmp_path / "numbered.csv")
    assert tl.read_interactions(tmp_path / "numbered.csv", **roles).fingerprint() == named.fingerprint()
    report = tl.check(tmp_path / "named.csv", **{**roles, "time": "t"})
    assert {one.column for one in report.errors} == {"column_1", "column_2"}


@pytest.mark.parametrize("gap", ["30min", "1800s", "0.5h", timedelta(minutes=30), 1_800_000])
def test_a_gap_with_a_unit_is_the_same_pause_in_every_unit_of_the_times(gap: Any) -> None:
    minutes = [0, 10, 50, 55, 0, 31]
    frame = pl.DataFrame({"u": [1, 1, 1, 1, 2, 2], "i": list("abcabc"), "t": [1.7e12 + 6e4 * one for one in minutes]})
    log = tl.read_interactions(frame, user="u", item="i", time="t", session_gap=gap)
    assert log.terminated.tolist() == [False, True, False, False, True, False]
    assert log.session_gap == 1.8e6


def test_a_gap_in_another_unit_than_the_times_is_refused() -> None:
    frame = pl.DataFrame({"u": [1, 1], "i": ["a", "b"], "t": [1.7e12, 1.7e12 + 1]})
    roles = {"user": "u", "item": "i", "time": "t"}
    (error,) = tl.check(frame, **roles, session_gap=1800).errors
    assert error.found == "epoch milliseconds, so session_gap = 1800 means 1.8 seconds"
    assert error.fix == "write session_gap '1800s' for seconds, or '1.8s' if you mean that"
    counted = frame.with_columns(t=pl.Series([0.0, 5.0]))
    with pytest.raises(LogError, match="neither dates nor epoch times"):
        tl.read_interactions(counted, **roles, session_gap=timedelta(minutes=30))


def test_a_session_ended_at_the_cut_only_if_its_gap_had_passed_by_then() -> None:
    rows = [
        (1, "a", 0.0),
        (1, "b", 99.0),
        (1, "a", 200.0),
        (2, "a", 10.0),
        (2, "b", 220.0),
        (3, "a", 0.0),
        (3, "b", 1.0),
    ]
    frame = pl.DataFrame(rows, schema=["u", "i", "t"], orient="row")
    log = tl.read_interactions(frame, user="u", item="i", time="t", session_gap=50)
    assert log.terminated.tolist() == [True, True, False, True, False, False, True]
    train = log.split(at=100).train
    assert train.terminated.tolist() == [True, False, True, False, True]  # user 1 was there a moment ago
    assert train.truncated.tolist() == [False, True, False, False, False]
    dated = frame.with_columns(pl.from_epoch(pl.col("t").cast(pl.Int64)))
    split = tl.read_interactions(dated, user="u", item="i", time="t", session_gap=50).split("1970-01-01T00:01:40")
    np.testing.assert_array_equal(split.train.terminated, train.terminated)
    sessions = frame.with_columns(s=pl.col("t") // 50)
    plain = tl.read_interactions(sessions, user="u", item="i", time="t", session="s").split(at=100).train
    assert plain.terminated.tolist() == [True, False, False, False, False]  # nothing says when one is over


def test_a_moment_is_read_in_its_own_zone_and_a_number_is_no_date() -> None:
    dated = tl.read_interactions(clicks().with_columns(pl.from_epoch(pl.col("t").cast(pl.Int64))), **ROLES)
    zone = timezone(timedelta(hours=2))
    for at in ("2001-09-09T03:50:00+02:00", datetime(2001, 9, 9, 3, 50, tzinfo=zone), datetime(2001, 9, 9, 1, 50)):
        assert str(dated.split(at).at) == "2001-09-09T01:50:00.000000"
    with pytest.raises(ConfigError, match="at = 20010909: expected a date"):
        dated.split(20010909)


def test_fractions_of_a_time_are_not_the_same_moment() -> None:
    frame = pl.DataFrame({"u": [1, 1, 1], "i": ["a", "a", "b"], "t": [0.1, 0.6, 0.7]})
    split = tl.read_interactions(frame, user="u", item="i", time="t").split(at=0.5)
    assert not [one for one in split.report.warnings if one.check == "leakage between periods"]


def test_slates_in_text_lists_and_numbers_name_the_same_items() -> None:
    def read(items: list[Any], slates: list[Any]) -> list[list[Any]]:
        frame = pl.DataFrame({"u": [1] * len(items), "i": items, "t": range(len(items)), "s": slates})
        log = tl.read_interactions(frame, user="u", item="i", time="t", slate="s")
        return [[log.items[place - 1] for place in row if place] for row in log.slate]

    films = ["X (2000)", "a, b", "'q'"]
    assert read(films, ["X (2000)|Film (1999)", "a, b|X (2000)", "'q'|a, b"])[0] == ["X (2000)", "Film (1999)"]
    assert read(["a", "b"], ["['a', 'b']", "(b, a)"]) == [["a", "b"], ["b", "a"]]
    assert read([1.0, 2.0], [[1.0, 2.0], [2.0]]) == [[1, 2], [2]]
    assert read(["a", "b"], [[" a", "", "b "], ["b", None]]) == [["a", "b"], ["b"]]


def test_a_number_that_is_none_is_an_empty_cell_and_changes_no_other_id() -> None:
    frame = pl.DataFrame({"u": [1.0, 1.0, 2.0, 2.0], "i": [1.0, float("nan"), 2.0, 1.0], "t": range(4)})
    roles = {"user": "u", "item": "i", "time": "t"}
    for column in ("i", "u"):
        broken = frame.rename({"u": "i", "i": "u"}) if column == "u" else frame
        (error,) = tl.check(broken, **roles).errors
        assert (error.check, error.column, list(error.rows)) == ("empty cell", column, [2])


def test_leaving_one_out_holds_out_nothing_that_was_history_only() -> None:
    test = interactions().split().test
    split = test.leave_one_out()
    assert set(split.test.targets) <= set(test.targets)
    for row in split.test.targets:  # the last of those of its user that count
        assert row == test.targets[test.user[test.targets] == test.user[row]][-1]
    assert len(split.train) + len(split.test.targets) == len(test.targets)


def test_cold_items_and_users_are_named() -> None:
    late = pl.DataFrame({"u": ["new"], "i": ["novel"], "t": [2e9], "kind": ["buy"]})
    split = tl.read_interactions(pl.concat([clicks(), late]), **ROLES).split(at=1.5e9)
    said = {one.check: one.found for one in split.report.problems}
    assert "novel" in said["cold items"]
    assert "new" in said["cold users"]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("few", "warns"), [(1, True), (3, False)])
def test_a_split_warns_of_a_period_with_few_of_the_events(first: bool, few: int, warns: bool) -> None:
    times = np.concatenate([np.arange(100.0), 200.0 - np.arange(few)])
    frame = pl.DataFrame({"u": "a", "i": ["x", "y"] * 50 + ["x"] * few, "t": 200.0 - times if first else times})
    log = tl.read_interactions(frame, user="u", item="i", time="t")
    uneven = [one for one in log.split(share=0.8 if first else 0.2).report.warnings if one.check == "uneven periods"]
    assert bool(uneven) == warns
    assert all(f"({100 / 101 if first else 1 / 101:.2%})" in one.found for one in uneven)
    assert "uneven periods" not in {one.check for one in log.split(at=100.5).report.warnings}


@pytest.mark.parametrize(("later", "named"), [(5, True), (13, False), (40, False), (70, True)])
def test_a_split_names_a_share_of_events_far_from_that_of_the_time(later: int, named: bool) -> None:
    times = np.concatenate([np.linspace(0.0, 79.0, 100), np.linspace(80.0, 100.0, later)])
    frame = pl.DataFrame({"u": "a", "i": np.arange(len(times)) % 3, "t": times})
    split = tl.read_interactions(frame, user="u", item="i", time="t").split(share=0.2)
    found = [one for one in split.report.warnings if one.check == "another share of events"]
    assert bool(found) == named
    assert all(one.found == f"the last 20% of the time has {later} of {len(times)} events ({later / len(times):.2%})"
               for one in found)  # fmt: skip


def test_a_split_by_the_numbers_of_clicks_asks_for_a_column_of_times() -> None:
    lengths = [20, *[2] * 200]
    users = np.repeat(np.arange(201), lengths)
    clicks = np.concatenate([np.arange(length) for length in lengths])
    frame = pl.DataFrame({"u": users, "i": (users + clicks) % 7, "click": clicks})
    log = tl.read_interactions(frame, user="u", item="i", time="click")
    (uneven,) = [one for one in log.split(share=0.5).report.warnings if one.check == "uneven periods"]
    assert uneven.fix.startswith("name a column of dates or times: 201 of 201 users begin at 0, so this column counts")


def test_leaving_one_out_warns_of_the_leak() -> None:
    split = interactions().leave_one_out()
    assert len(split.test.targets) == len(np.unique(split.test.user))
    (leak,) = [one for one in split.report.warnings if one.check == "leakage between periods"]
    assert "happened after the first held-out event" in leak.found
    assert not [one for one in interactions().split().report.warnings if one.check == "leakage between periods"]


def test_a_moment_outside_the_log_is_refused() -> None:
    for at in (0.0, 3e9):
        with pytest.raises(LogError, match="choose a moment between"):
            interactions().split(at=at)
    with pytest.raises(ConfigError, match="expected a number"):
        interactions().split(at="yesterday")
    with pytest.raises(ConfigError, match="between 0 and 1"):
        interactions().split(share=1.0)


def test_interactions_are_a_table_in_a_notebook() -> None:
    log = interactions()
    shown = log._repr_html_()
    assert "<b>Interactions</b>" in shown
    times = f"2001-09-09 01:46:40 to {np.datetime64(int(log.time.max()), 's')}".replace("T", " ")  # from 1e9 on
    kinds = f"{len(log):,}: {', '.join(log.events)}"
    for name, value in (("events", kinds), ("users", "12"), ("items", "9"), ("time", times)):
        assert re.search(rf">{name}</th><td[^>]*>{re.escape(value)}</td>", shown), name
    assert re.search(rf">sessions</th><td[^>]*>{len(log.episodes)}</td>", shown)
