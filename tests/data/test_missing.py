"""Empty cells: by the mean with a flag, and never where nothing says so."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tidelog.data.columns import Columns
from tidelog.data.read import read_log, validate
from tidelog.types import Codes, Vector

FRAME = pl.DataFrame(
    {
        "e": [1, 1, 1, 2, 2, 2],
        "x": [None, 2.0, None, None, 6.0, 10.0],
        "y": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "w": ["a", None, "b", None, "a", None],
        "a": [0, 1, 0, 1, 0, 1],
        "r": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    }
)


def mapping(**changes: Any) -> Columns:
    given = {"observation": ["x", "y"], "action": "a", "reward": "r", "episode": "e", "terminated": True}
    return Columns.from_mapping({**given, **changes})


def said(log: Any) -> dict[str, tuple[int, ...]]:
    return {one.column: one.rows for one in log.report.notes if one.check == "filled"}


def test_an_error_by_default() -> None:
    for columns in (
        mapping(),
        mapping(missing={"y": "mean+flag"}),
        mapping(observation=["x", "w"], missing={"w": "mean+flag"}),
    ):
        found = [(one.check, one.column, one.rows) for one in validate(FRAME, columns).errors]
        assert found == [("missing value", "x", (1, 3, 4))]


def test_the_mean_with_a_flag() -> None:
    log = read_log(FRAME, mapping(missing="mean+flag"))
    assert log.spec.observation["numeric"] == Vector(3, ("x", "y", "x missing"), (("x", 6.0),))
    expected = [[6, 1, 1], [2, 2, 0], [6, 3, 1], [6, 4, 1], [6, 5, 0], [10, 6, 0]]
    np.testing.assert_array_equal(log.observation["numeric"], expected)
    assert said(log) == {"x": (1, 3, 4)}
    assert read_log(FRAME, mapping(missing={"x": "mean+flag"})).fingerprint() == log.fingerprint()
    assert not said(read_log(FRAME, mapping(observation="y", missing="mean+flag")))


def test_words_are_a_category_of_their_own() -> None:
    log = read_log(FRAME, mapping(observation=["y", "w"], missing="mean+flag"))
    assert log.spec.observation["categorical"] == Codes((3,), ("w",), (("", "a", "b"),))
    np.testing.assert_array_equal(log.observation["categorical"][:, 0], [1, 0, 2, 0, 1, 0])
    assert said(log) == {"w": (2, 4, 6)}


def with_next() -> pl.DataFrame:
    return FRAME.with_columns(
        nx=pl.Series([2.0, None, None, None, 10.0, None]),
        ny=pl.Series([2.0, 3.0, 30.0, 5.0, 6.0, None]),
        nw=pl.Series([None, "b", None, "a", None, None], dtype=pl.String),
    )


def test_the_next_side_says_what_the_following_row_says() -> None:
    columns = mapping(next_observation=["nx", "ny"], terminated=None, missing="mean+flag")
    frame = with_next().with_columns(nx=pl.Series([2.0, None, None, 6.0, 10.0, None]))
    log = read_log(frame, columns)
    after = log.transitions.next_observation["numeric"]
    np.testing.assert_array_equal(after[:5], [[2, 2, 0], [6, 3, 1], [6, 30, 1], [6, 5, 0], [10, 6, 0]])
    np.testing.assert_array_equal(log.transitions.followed, [True] * 5 + [False])  # nothing was known there
    report = validate(with_next(), mapping(next_observation=["nx", "ny"], missing={"y": "mean+flag"}))
    assert "missing value" in {one.check for one in report.errors}


def test_a_hole_on_the_next_side_takes_the_following_row() -> None:
    frame = with_next().with_columns(x=pl.Series([None, 2.0, None, None, 9.0, 10.0]))  # of which the mean is 7
    log = read_log(frame, mapping(next_observation=["nx", "ny"], terminated=None, missing="mean+flag"))
    assert log.transitions.next_observation["numeric"][3].tolist() == [9, 5, 0]  # the following row has a value
    words = mapping(observation=["y", "w"], next_observation=["ny", "nw"], terminated=None, missing="mean+flag")
    codes = read_log(with_next(), words).transitions.next_observation["categorical"][:5, 0]
    np.testing.assert_array_equal(codes, [0, 2, 0, 1, 0])


def test_lists_are_filled_by_dimension() -> None:
    frame = FRAME.with_columns(v=pl.Series([[1.0, 2.0], None, [3.0, 6.0], [5.0, None], [1.0, 2.0], [5.0, 10.0]]))
    log = read_log(frame, mapping(observation=["y", "v"], missing={"v": "mean+flag"}))
    leaf = log.spec.observation["numeric"]
    assert isinstance(leaf, Vector)
    assert leaf.names == ("y", "v[0]", "v[1]", "v[0] missing", "v[1] missing")
    assert leaf.fills == (("v[0]", 2.5), ("v[1]", 5.0))
    np.testing.assert_array_equal(log.observation["numeric"][1], [2, 2.5, 5, 1, 1])
    np.testing.assert_array_equal(log.observation["numeric"][3], [4, 2.5, 5, 1, 1])


def test_nan_is_missing_where_a_rule_fills_and_an_error_elsewhere() -> None:
    frame = pd.DataFrame(FRAME["e", "x", "y", "a", "r"].to_dict(as_series=False))
    frame["x"] = frame["x"].astype(float)
    assert validate(frame, mapping()).errors[0].check == "NaN or infinity"
    log = read_log(frame, mapping(missing="mean+flag"))
    assert log.fingerprint() == read_log(FRAME, mapping(missing="mean+flag")).fingerprint()


def test_a_column_without_any_value_is_an_error() -> None:
    frame = FRAME.with_columns(x=pl.lit(None, pl.Float64))
    found = [(one.check, one.column) for one in validate(frame, mapping(missing="mean+flag")).errors]
    assert found == [("missing value", "x")]
    assert not validate(FRAME.head(0), mapping(missing="mean+flag")).ok


@pytest.mark.parametrize(
    ("cells", "check"),
    [
        ([None, "x", "y", "1", "z", None], "non-numeric text"),
        ([None, "x", "nan", "x", "z", None], "non-numeric text"),
        ([None, "x", "y", "x", "z", "x"], "next observation contradicts the following row"),
        ([None, "1e39", "2", "1", "1", None], "NaN or infinity"),
        ([None, "inf", "-inf", "1", "1", None], "NaN or infinity"),
    ],
)
def test_a_column_that_cannot_be_filled_is_reported(cells: list[str | None], check: str) -> None:
    frame = FRAME.with_columns(x=pl.Series(cells), z=pl.Series(["1", None, *cells[2:]]))
    report = validate(frame, mapping(missing="mean+flag", next_observation=["z", "y"]))
    assert check in [one.check for one in report.errors]


def test_declared_words_keep_their_codes() -> None:
    frame = FRAME.with_columns(w=pl.Series(list("abaaba")))
    words = ["b", "never", "a"]
    log = read_log(frame, mapping(observation=["y", "w"], vocabularies={"w": words}))
    assert log.spec.observation["categorical"] == Codes((3,), ("w",), (tuple(words),))
    np.testing.assert_array_equal(log.observation["categorical"][:, 0], [2, 0, 2, 2, 0, 2])
    report = validate(frame, mapping(observation=["y", "w"], vocabularies={"w": ["a"]}))
    assert [(one.check, one.column, one.rows) for one in report.errors] == [("unknown category", "w", (2, 5))]
    spoken = frame.with_columns(a=pl.Series(["up", "down"] * 3))
    log = read_log(spoken, mapping(vocabularies={"a": ["up", "stay", "down"]}, observation="y"))
    assert repr(log.spec.action) == "Discrete(n=3, names=('up', 'stay', 'down'))"
    np.testing.assert_array_equal(log.action, [0, 2] * 3)
    report = validate(spoken, mapping(vocabularies={"a": ["up"]}, observation="y"))
    assert [(one.check, one.column) for one in report.errors] == [("unknown category", "a")]


@pytest.mark.parametrize("seed", range(10))
def test_holes_on_both_sides_never_contradict_each_other(seed: int) -> None:
    """Cells x and w with random holes, and the same cells of the following row as next observations."""
    rng = np.random.default_rng(seed)
    episode = np.repeat(np.arange(8), rng.integers(1, 6, 8))
    rows = len(episode)
    x = pl.Series(rng.normal(size=rows)).set(pl.Series(rng.random(rows) < 0.4), None)
    w = pl.Series(rng.choice(["a", "b"], rows)).set(pl.Series(rng.random(rows) < 0.4), None)
    y = pl.Series(rng.normal(size=rows))
    frame = pl.DataFrame({"e": episode, "x": x, "y": y, "w": w, "a": np.arange(rows) % 2, "r": rng.normal(size=rows)})
    frame = frame.with_columns(nx=x.shift(-1), ny=y.shift(-1).fill_null(0.5), nw=w.shift(-1))
    ends = pl.Series(np.append(np.diff(episode) != 0, True))
    for name in ("nx", "ny"):
        frame = frame.with_columns(frame[name].set(ends, 0.25))
    columns = mapping(
        observation=["x", "y", "w"], next_observation=["nx", "ny", "nw"], terminated=None, missing="mean+flag"
    )
    log = read_log(frame, columns)
    inner = np.flatnonzero(~ends.to_numpy())
    for name, leaf in log.transitions.next_observation.items():
        np.testing.assert_array_equal(leaf[inner], log.transitions.observation[name][inner + 1])
    assert log.transitions.followed.all()
    flags = log.transitions.observation["numeric"][:, 2]
    np.testing.assert_array_equal(flags, x.is_null().to_numpy())
