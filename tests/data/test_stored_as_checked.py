"""A log owns its arrays, is checked as it is stored, keeps exact orders, and refuses what `np.asarray` would hide."""

from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tidelog as tl
from tidelog.data.parse import moment

N = 40
BASE = {
    "observation": np.arange(2.0 * N).reshape(N, 2),
    "action": np.arange(N) % 2,
    "reward": np.arange(N) / N,
    "episode": np.arange(N) // 4,
    "terminated": np.arange(N) % 4 == 3,
}


def log(**arrays):
    return tl.Log.from_arrays(**(BASE | arrays))


def first(value, others=0.5):
    return np.concatenate([[value], np.full(N - 1, others)])


def test_no_array_of_a_log_is_shared_with_the_caller():
    names = ("observation", "action", "reward", "propensity", "weight", "time", "action_mask")
    given = {"propensity": first(0.5), "weight": first(1.0), "time": np.arange(N), "action_mask": np.ones((N, 2), bool)}
    arrays = {name: np.array(array) for name, array in (BASE | given).items()}
    note = np.arange(N)
    kept = tl.Log.from_arrays(**arrays, extra={"note": note})
    before = {name: np.array(getattr(kept, name)) for name in names[1:]} | {"note": np.array(kept.extra["note"])}
    for array in (*arrays.values(), note):
        array[:] = 0
    np.testing.assert_array_equal(kept.observation["observation"], BASE["observation"])
    for name, values in before.items():
        np.testing.assert_array_equal(kept.extra["note"] if name == "note" else getattr(kept, name), values)
    assert kept.time[3] == 3


@pytest.mark.parametrize("name", ["reward", "action", "terminated", "episode", "propensity", "weight", "time"])
def test_one_number_a_row_in_an_array_of_one_column_means_the_same(name):
    arrays = BASE | {"propensity": first(0.5), "weight": first(1.0), "time": np.arange(N)}
    flat, wide = log(**arrays), log(**(arrays | {name: np.asarray(arrays[name])[:, None]}))
    assert wide.spec == flat.spec
    np.testing.assert_array_equal(getattr(wide, name), getattr(flat, name))


def test_a_propensity_that_rounding_puts_above_one_is_one():
    assert log(propensity=first(1.0000000000000002)).propensity[0] == 1.0


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"propensity": first(1.0000001)}, "propensity out of range .*found: 1.0000001"),
        ({"propensity": first(1e-50)}, "propensity out of range .*found: 1e-50"),
        ({"weight": first(1e-50)}, "negative weight .*found: 1e-50"),
        (
            {"action": np.stack([first(1.0000001), first(0.0)], axis=1), "bounds": (-1, 1)},
            "action out of bounds .*found: 1.0000001.*expected: between -1 and 1",
        ),
        ({"reward": np.ma.masked_array(BASE["reward"], mask=np.arange(N) < 4)}, "missing value in 'reward'.*masked"),
        (
            {"observation": np.ma.masked_less(BASE["observation"], 1)},
            "missing value in 'observation'.*found: masked values.*fix: leave out these rows",
        ),
    ],
)
def test_what_32_bits_or_a_mask_change_is_refused_with_the_digits_that_decide(arrays, words):
    with pytest.raises(tl.LogError, match=rf"(?s){words}"):
        log(**arrays)


def test_a_masked_array_without_masked_values_is_data():
    assert log(reward=np.ma.masked_array(BASE["reward"])).reward[4] == np.float32(0.1)


def test_policies_refuse_masked_observations():
    policy = tl.fit(tl.BC(hidden=(8,)), log(), 1, progress=False).policy()
    for hidden in (np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]]), [np.ma.masked_array([1.0, 2.0], mask=True)]):
        with pytest.raises(tl.SpecError, match="masked in some places"):
            policy(hidden)


LARGE = [2**53 + 2, 2**53, 2**53 + 1]
COLUMNS = tl.Columns(observation=["x"], action="a", reward="r", episode="ep", step="t", terminated=True)


def source_of(frame, kind, folder):
    """The rows as a file or a frame of that kind."""
    if kind == "pandas":
        return pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns})
    if kind in ("csv", "parquet"):
        getattr(frame, f"write_{kind}")(folder / f"rows.{kind}")
        return folder / f"rows.{kind}"
    return frame


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet", "text"])
def test_steps_beyond_2_to_the_53_keep_their_order_in_every_source(kind, tmp_path):
    frame = pl.DataFrame({"ep": [1] * 3, "t": LARGE, "x": [2.5, 0.5, 1.5], "a": [0, 1, 0], "r": [1.0, 0, 1]})
    frame = frame.with_columns(pl.col("t").cast(pl.String)) if kind == "text" else frame
    assert tl.read_log(source_of(frame, kind, tmp_path), COLUMNS).observation["numeric"][:, 0].tolist() == [
        0.5,
        1.5,
        2.5,
    ]


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet", "pandas"])
def test_nanoseconds_keep_their_order_in_every_source(kind, tmp_path):
    frame = pl.DataFrame({"u": [1] * 3, "i": ["c", "a", "b"], "t": [1_700_000_000_000_000_000 + n for n in (3, 1, 2)]})
    dates = frame.with_columns(pl.col("t").cast(pl.Datetime("ns")))
    events = tl.read_interactions(source_of(dates, kind, tmp_path), user="u", item="i", time="t")
    assert [str(events.items[number - 1]) for number in events.item] == ["a", "b", "c"]


def test_nanoseconds_of_another_time_zone_are_utc():
    hours = [datetime(2024, 10, 27, 0, 30), datetime(2024, 10, 27, 1, 10)]  # the clock goes back between them
    utc = pl.Series("t", hours).cast(pl.Datetime("ns")).dt.replace_time_zone("UTC")
    expected = moment(pl.Series("t", hours)).values
    np.testing.assert_array_equal(moment(utc.dt.convert_time_zone("Europe/Berlin")).values, expected)


@pytest.mark.parametrize("last", ["9999-12-31T23:59:59.9999999", "0001-01-01T00:00:00.0000000"])
def test_a_date_that_nanoseconds_do_not_hold_stays_what_it_is(last):
    times = moment(pl.Series("t", ["2024-01-01T00:00:00.1234567", last])).values
    assert times.astype("datetime64[D]").astype(str).tolist() == ["2024-01-01", last[:10]]


def test_logs_with_times_of_other_units_are_joined_without_a_wrap():
    early = log(time=np.datetime64("1500-01-01", "us") + np.arange(N))
    fine = log(time=np.datetime64("2024-01-01", "ns") + np.arange(N))
    assert tl.Log.concat([early, fine]).time.astype("datetime64[Y]").astype(str).tolist() == ["1500"] * N + ["2024"] * N


def test_decimal_identifiers_that_lose_digits_are_a_warning():
    frame = pl.DataFrame({"ep": [2.0**53, 2.0**53 + 1], "x": [0.1, 0.2], "a": [0, 1], "r": [0.0, 1]})
    columns = tl.Columns(observation=["x"], action="a", reward="r", episode="ep", terminated=True)
    assert "rounded identifiers" in [warning.check for warning in tl.check(frame, columns).warnings]
    small = frame.with_columns(ep=pl.Series([1.0, 2.0]))
    assert "rounded identifiers" not in [warning.check for warning in tl.check(small, columns).warnings]
