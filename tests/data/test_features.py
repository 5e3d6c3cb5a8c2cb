"""The raw columns of observations, as estimators of scikit-learn are fitted on them."""

import numpy as np
import polars as pl
import pytest

import tidelog as tl

TABLE = pl.DataFrame(
    {
        "visit": [0, 0, 1, 2], "hour": [0, 1, 0, 0], "age": [30.0, None, 50.0, 41.5], "ward": ["b", "a", "c", "a"],
        "zip": ["01", "2", "2", "2"], "kind": [3, -1, 3, 3], "pulse": [60.0, 70.0, 80.0, 90.0], "act": [0, 1, 1, 0],
        "reward": [0.0, 1.0, 0.0, 1.0], "age_after": [None, 31.0, 51.0, 42.0],
    }
)  # fmt: skip


def test_numbers_of_lists_have_names_without_brackets() -> None:
    """XGBoost and LightGBM refuse brackets; a column that has such a name already keeps it."""
    frame = pl.DataFrame({"v": [[1.0, 2.0], [3.0, 4.0]], "v_1": [5.0, 6.0], "a": [0, 1], "r": [0.0, 1.0]})
    mapping = {"observation": ["v", "v_1"], "action": "a", "reward": "r", "terminated": True}
    features = tl.read_log(frame, mapping).features()
    assert features.to_dict(as_series=False) == {"v_0": [1.0, 3.0], "v[1]": [2.0, 4.0], "v_1": [5.0, 6.0]}


def test_features_are_the_raw_columns_of_the_decisions():
    log = tl.read_log(
        TABLE.drop("age_after"),
        tl.Columns(
            episode="visit", step="hour", observation=["age", "ward", "zip", "kind", "pulse"], action="act",
            categorical=["ward", "zip", "kind"], reward="reward", missing={"age": "mean+flag"},
        ),
    )  # fmt: skip
    found = log.features()
    assert found.columns == ["age", "pulse", "ward", "zip", "kind"]
    assert log.spec.observation["numeric"].names == ("age", "pulse", "age missing")
    np.testing.assert_array_equal(found["age"], [30.0, np.nan, 50.0, 41.5])
    assert found["ward"].to_list() == TABLE["ward"].to_list()
    assert found["zip"].to_list() == TABLE["zip"].to_list()  # "01" is no number
    assert found["kind"].to_list() == TABLE["kind"].to_list()
    assert [str(kind) for kind in found.dtypes] == ["Float64", "Float64", "String", "String", "Int64"]
    second = log.take_episodes([2, 0]).features()
    assert second["pulse"].to_list() == [90.0, 60.0, 70.0]
    assert second["ward"].to_list() == ["a", "b", "a"]


def test_arrays_have_the_names_of_their_leaves_and_only_rows_of_decisions():
    log = tl.Log.from_arrays(
        observation={"z": np.arange(8.0).reshape(4, 2), "a": np.asarray([1, 0, 2, 1]), "z_0": np.arange(4.0) + 10},
        next_observation={"z": -np.ones((4, 2)), "a": np.zeros(4, int), "z_0": np.zeros(4)},
        action=[0, 1, 0, 1], reward=np.zeros(4), terminated=True,
    )  # fmt: skip
    assert len(log.observation["z"]) == 8
    found = log.features()
    assert found.columns == ["z_0", "z_1", "a", "z_0_"]
    assert found.to_numpy().tolist() == [[0, 1, 1, 10], [2, 3, 0, 11], [4, 5, 2, 12], [6, 7, 1, 13]]


def test_a_picture_is_no_table():
    log = tl.Log.from_arrays(
        observation=np.zeros((3, 4, 4, 1), np.uint8), action=[0, 1, 0], reward=np.zeros(3), terminated=True
    )
    with pytest.raises(tl.SpecError, match=r"'observation' is a picture: expected columns of a table. fix: pass an"):
        log.features()
