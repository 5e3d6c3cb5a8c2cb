"""Pictures from arrays, from files that a table names, and from Minari."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image as Picture

from tidelog.data.columns import Columns
from tidelog.data.inspect import inspect_log
from tidelog.data.log import Log
from tidelog.data.read import read_log, validate
from tidelog.errors import LogError
from tidelog.types import Image, Vector

PICTURES = np.random.default_rng(0).integers(0, 256, (6, 5, 7, 3), np.uint8)
COLUMNS = {
    "observation": ["x", "photo"], "image": "photo", "action": "a", "reward": None, "episode": "e", "terminated": True,
}  # fmt: skip


def frame(folder: Path, pictures: np.ndarray = PICTURES) -> pl.DataFrame:
    (folder / "shots").mkdir(exist_ok=True)
    for place, picture in enumerate(pictures):
        Picture.fromarray(picture.squeeze()).save(folder / "shots" / f"{place}.png")
    names = [f"shots/{place}.png" for place in range(len(pictures) - 1)]
    names.append(str((folder / "shots" / f"{len(pictures) - 1}.png").absolute()))
    return pl.DataFrame({"e": [1, 1, 1, 2, 2, 2], "x": np.arange(6.0), "a": [0, 1] * 3, "photo": names})


def table(folder: Path, **changes: Any) -> Path:
    frame(folder).with_columns(**changes).write_csv(folder / "a.csv")
    return folder / "a.csv"


def test_file_names_relative_to_the_table_and_absolute(tmp_path: Path) -> None:
    log = read_log(table(tmp_path), COLUMNS)
    assert log.spec.observation == {"numeric": Vector(1, ("x",)), "photo": Image(5, 7, 3)}
    assert log.observation["photo"].dtype == np.uint8
    np.testing.assert_array_equal(log.transitions.observation["photo"], PICTURES)
    measured = log.statistics().features["photo"]
    np.testing.assert_allclose(measured["mean"], PICTURES.mean())
    np.testing.assert_allclose(measured["std"], PICTURES.std())
    assert (measured["min"], measured["max"]) == (PICTURES.min(), PICTURES.max())
    assert "photo" in inspect_log(log).text()


def test_what_follows_an_episode_is_a_picture_too(tmp_path: Path) -> None:
    names = pl.Series([f"shots/{place}.png" for place in (1, 2, 0, 4, 5, 3)])
    path = table(tmp_path, later=names, nx=pl.Series([1.0, 2, 9, 4, 5, 9]))
    log = read_log(path, {**COLUMNS, "next_observation": ["nx", "later"]})
    np.testing.assert_array_equal(log.transitions.next_observation["photo"], PICTURES[[1, 2, 0, 4, 5, 3]])
    report = validate(
        table(tmp_path, later=names[[1, 0, 2, 3, 4, 5]], nx=pl.Series([1.0, 2, 9, 4, 5, 9])),
        {**COLUMNS, "next_observation": ["nx", "later"]},
    )
    found = [(one.check, one.column, one.rows) for one in report.errors]
    assert found == [("next observation contradicts the following row", "later", (1, 2))]


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (4, "RGBA")])
def test_grey_and_transparent_pictures(channels: int, mode: str, tmp_path: Path) -> None:
    pictures = np.random.default_rng(1).integers(0, 256, (6, 5, 4, channels), np.uint8)
    log = read_log(_written(frame(tmp_path, pictures), tmp_path), COLUMNS)
    np.testing.assert_array_equal(log.observation["photo"], pictures)
    with Picture.open(tmp_path / "shots" / "0.png") as picture:
        assert picture.mode == mode


def _written(made: pl.DataFrame, folder: Path) -> Path:
    made.write_csv(folder / "a.csv")
    return folder / "a.csv"


def test_missing_and_corrupt_files_and_odd_sizes_are_named_by_row(tmp_path: Path) -> None:
    path = table(tmp_path)
    (tmp_path / "shots" / "1.png").unlink()
    (tmp_path / "shots" / "2.png").write_bytes(b"not a picture")
    (tmp_path / "shots" / "3.png").write_bytes((tmp_path / "shots" / "4.png").read_bytes()[:60])
    Picture.fromarray(PICTURES[0, :3]).save(tmp_path / "shots" / "4.png")
    found = {one.check: (one.column, one.rows, one.lines) for one in validate(path, COLUMNS).errors}
    assert found == {
        "unreadable image": ("photo", (2, 3, 4), (3, 4, 5)), "changing shapes": ("photo", (5,), (6,)),
    }  # fmt: skip
    with pytest.raises(LogError, match="unreadable image"):
        read_log(path, COLUMNS)
    Picture.fromarray(np.zeros((5, 4), np.uint16)).save(tmp_path / "shots" / "deep.png")
    odd = pl.read_csv(path).with_columns(photo=pl.lit("shots/deep.png"))
    assert "mode I" in validate(_written(odd, tmp_path), COLUMNS).errors[0].found


def test_an_empty_name_is_a_missing_value(tmp_path: Path) -> None:
    path = _written(
        frame(tmp_path).with_columns(photo=pl.Series(["", *[f"shots/{k}.png" for k in range(5)]])), tmp_path
    )
    report = validate(path, {**COLUMNS, "missing": "mean+flag"})
    assert [(one.check, one.column, one.rows) for one in report.errors] == [("missing value", "photo", (1,))]
    assert Columns.from_mapping(COLUMNS).image == "photo"


def test_arrays_of_bytes_are_pictures(tmp_path: Path) -> None:
    given = {"action": [0, 1] * 3, "reward": np.arange(6.0), "episode": [1, 1, 1, 2, 2, 2], "terminated": [0, 0, 1] * 2}
    log = Log.from_arrays(observation={"camera": {"left": PICTURES}, "x": np.zeros(6)}, **given)
    assert log.spec.observation == {"camera/left": Image(5, 7, 3), "x": Vector(1)}
    np.testing.assert_array_equal(log.observation["camera/left"], PICTURES)
    log.save(tmp_path / "a.tidelog")
    assert Log.load(tmp_path / "a.tidelog", memory_map=True).fingerprint() == log.fingerprint()
    assert log.take_episodes([0, 1]).fingerprint() == log.fingerprint()
    log.to_npz(tmp_path / "a.npz")
    assert read_log(tmp_path / "a.npz").fingerprint() == log.fingerprint()
    with pytest.raises(LogError, match=r"does not support images .'camera/left'"):
        log.to_parquet(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("pictures", "said"),
    [(PICTURES.transpose(0, 3, 1, 2), "transpose"), (PICTURES[..., 0], "height, width, channels"),
     (PICTURES.astype(np.float32), "of uint8"), (PICTURES[:4], "wrong length")],
)  # fmt: skip
def test_arrays_that_are_no_pictures(pictures: np.ndarray, said: str) -> None:
    with pytest.raises(LogError, match=said):
        Log.from_arrays(observation=pictures, action=[0, 1] * 3, reward=np.arange(6.0))
