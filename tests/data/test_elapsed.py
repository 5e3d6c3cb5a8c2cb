"""The time to the next decision, from tables and arrays to files and back; what is refused, by row."""

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tidelog.data.inspect import inspect_log

TABLE = pl.DataFrame(
    {
        "who": ["a", "a", "a", "b", "b", "c"],
        "pain": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "dose": ["low", "high", "low", "high", "low", "high"],
        "relief": [0.0, 1.0, 0.0, 1.0, 0.0, 1.0],
        "died": [0, 0, 1, 0, 0, 0],
        "hours": [0.5, 2.0, None, 1.0, None, 4.0],
        "then": [None, None, None, None, None, 7.0],
        "seen": [
            "2026-03-01 08:00", "2026-03-01 20:00", "2026-03-03 08:00", "2026-03-01 00:00", "2026-03-02 00:00",
            "2026-03-01 00:00",
        ],
    }
)  # fmt: skip
ROLES = {"episode": "who", "observation": ["pain"], "action": "dose", "reward": "relief", "terminated": "died"}
TIMES = [0.5, 2.0, 0.0, 1.0, 0.0, 4.0]  # 0 where nothing that counts follows


def read(table=TABLE, **changes):
    roles = {"next_observation": ["then"], "elapsed": "hours", "elapsed_unit": "hour"} | changes
    return tl.read_log(table, tl.Columns(**ROLES, **{name: value for name, value in roles.items() if value}))


def problem(check, table=TABLE, **changes):
    with pytest.raises(tl.LogError) as refusal:
        read(table, **changes)
    return next(one for one in refusal.value.report.errors if one.check == check)


def test_the_time_itself_gives_the_difference_to_the_next_row():
    """Patient a is seen after 12 and 36 hours, b after 24; the next observation of c at its end has no time."""
    changes = {"elapsed": "seen", "time": "seen", "next_observation": None}
    assert read(**changes).elapsed.tolist() == [12.0, 36.0, 0.0, 24.0, 0.0, 0.0]
    assert read(**changes | {"elapsed_unit": "day"}).elapsed.tolist() == [0.5, 1.5, 0.0, 1.0, 0.0, 0.0]
    numbers = TABLE.with_columns(seen=pl.Series([3.0, 5.5, 9.0, 0.0, 1.0, 0.0]))
    assert read(numbers, **changes | {"elapsed_unit": None}).elapsed.tolist() == [2.5, 3.5, 0.0, 1.0, 0.0, 0.0]
    found = problem("bad mapping", **changes | {"elapsed_unit": None})
    assert found.found == "elapsed_unit = None of dates"
    end = problem("elapsed time", **changes | {"next_observation": ["then"]})
    assert (end.rows, end.found) == ((6,), "empty cells")


HOURS = [0.5, 2.0, None, 1.0, None, 4.0]


def test_durations_are_in_the_unit_of_the_mapping():
    hours = pl.Series("hours", [None if one is None else round(one * 3600e6) for one in HOURS]).cast(pl.Duration("us"))
    assert read(TABLE.with_columns(hours)).elapsed.tolist() == TIMES
    days = read(TABLE.with_columns(hours), elapsed_unit="day").elapsed
    np.testing.assert_allclose(days, np.asarray(TIMES) / 24.0, rtol=1e-6)
    since = pl.Series("seen", [0, 43_200, 172_800, 0, 86_400, 0]) * 1_000_000  # 0, 12, 48 | 0, 24 | 0 hours
    table = TABLE.with_columns(since.cast(pl.Duration("us")))
    changes = {"time": "seen", "elapsed": "seen", "next_observation": None}
    assert read(table, **changes).elapsed.tolist() == [12.0, 36.0, 0.0, 24.0, 0.0, 0.0]
    for elapsed, one in (("hours", TABLE.with_columns(hours)), ("seen", table)):
        refusal = problem("bad mapping", one, **(changes | {"elapsed": elapsed, "elapsed_unit": "visit"}))
        assert "elapsed_unit = 'visit' of durations" in refusal.found


def test_the_time_until_the_next_decision_is_no_observation():
    roles = {**ROLES, "observation": ["pain", "hours"]}
    table = TABLE.with_columns(pl.col("hours").fill_null(0.0))
    log = tl.read_log(table, tl.Columns(**roles, elapsed="hours"))
    (warning,) = [one for one in log.report.warnings if one.check == "outcome among observations"]
    assert "the time until the next decision" in warning.found


@pytest.mark.parametrize(
    ("hours", "check", "rows", "said"),
    [
        ([0.5, -2.0, None, 1.0, -1.0, 4.0], "elapsed time", (2, 5), "-2, -1"),
        ([None, 2.0, None, 1.0, None, 4.0], "elapsed time", (1,), "empty cells"),
        ([0.5, 2.0, None, 1.0, None, None], "elapsed time", (6,), "empty cells"),
        ([0.5, float("nan"), None, 1.0, None, 4.0], "elapsed time", (2,), "empty cells"),
        ([0.5, 2.0, float("inf"), 1.0, None, 4.0], "NaN or infinity", (3,), "inf"),
    ],
)
def test_bad_times_are_refused_by_row(hours, check, rows, said):
    table = TABLE.with_columns(hours=pl.Series(hours, dtype=pl.Float64))
    found = problem(check, table)
    assert (found.rows, found.found, found.column) == (rows, said, "hours")
    with pytest.raises(tl.LogError, match=check):
        tl.Log.from_arrays(**read().to_arrays() | {"elapsed": np.asarray(table["hours"].fill_null(np.nan))})


def test_text_is_refused_by_row_and_a_zero_is_a_time():
    words = TABLE.with_columns(hours=pl.Series(["0.5", "soon", "", "1", "", "4"]))
    assert problem("non-numeric text", words).rows == (2,)
    assert read(TABLE.with_columns(hours=pl.Series([0, 0, 0, 0, 0, 0]))).spacing.tolist() == [0.0] * 6


def test_a_mapping_names_the_unit_of_a_column_only():
    with pytest.raises(tl.ConfigError, match="elapsed_unit = 'hour' is set without elapsed"):
        tl.Columns(**ROLES, elapsed_unit="hour")
    with pytest.raises(tl.ConfigError, match=r"elapsed_unit = '': .* such as \"hour\""):
        tl.Columns(**ROLES, elapsed="hours", elapsed_unit="")


def test_a_changed_file_of_times_is_refused(tmp_path):
    log = read()
    object.__setattr__(log, "elapsed", -np.asarray(log.elapsed))
    log.save(tmp_path / "log")
    with pytest.raises(tl.LogError, match="elapsed times are negative"):
        tl.Log.load(tmp_path / "log")


def test_the_log_and_its_inspection_say_the_times():
    log = read()
    assert log.facts()["time to the next decision"] == "0.5 to 4, mean 1.88 in units of 1 hour"
    found = inspect_log(log)
    assert "time to the next decision in units of 1 hour: min 0.5, mean 1.875, median 1.5, max 4" in found.text()
    assert found.to_json()["elapsed_unit"] == "hour"
    plain = read(elapsed=None, elapsed_unit=None)
    assert "time to the next decision" not in plain.facts()
    assert not {"elapsed", "elapsed_unit"} & inspect_log(plain).to_json().keys()


def test_a_gap_in_time_is_no_warning_about_steps_where_times_are_known():
    gap = TABLE.with_columns(seen=pl.Series([0.0, 1.0, 99.0, 0.0, 1.0, 0.0]))
    fixes = [
        next(one for one in read(gap, time="seen", **more).report.warnings if one.check == "gap in time").fix
        for more in ({}, {"elapsed": None, "elapsed_unit": None})
    ]
    assert ["discounted as one step" in fix for fix in fixes] == [False, True]


def test_a_run_and_its_policy_say_what_the_discount_is_per(tmp_path):
    run = tl.fit(tl.IQL(hidden=(4,)), read(), steps=1, out=tmp_path / "run", held_out=0.0, progress=False)
    assert run.policy().origin["discount_unit"] == "hour"
    run.policy().save(tmp_path / "policy")
    assert tl.load_policy(tmp_path / "policy").origin["discount_unit"] == "hour"
    again = tl.load_run(tmp_path / "run", log=read())
    assert again.record.data.discount_unit == "hour"
