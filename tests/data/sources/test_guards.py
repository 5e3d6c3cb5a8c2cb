"""Single refusals of the readers: what one damaged or unusual part of a file says."""

import io
import math
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pytest

from tidelog.data import formats
from tidelog.data import read as files
from tidelog.data.formats import own_datasets
from tidelog.data.storage import read_array, read_header
from tidelog.errors import LogError

SPACES = gymnasium.spaces


# Parquet and Arrow.


def table_bytes(form: str) -> bytes:
    """A table of 300 rows."""
    frame, target = pl.DataFrame({"a": range(300)}), io.BytesIO()
    if form == "parquet":
        frame.write_parquet(target, compression="uncompressed", statistics=False)
    else:
        (frame.write_ipc if form == "file" else frame.write_ipc_stream)(target, compression="lz4")
    return target.getvalue()


def table_refusal(path: Path, content: bytes) -> Any:
    """The error of a log of these bytes."""
    path.write_bytes(content)
    problem = files.validate(path, {"observation": "a", "action": "a"}).errors[0]
    assert (problem.check, problem.fix) == ("unreadable file", "export or copy the file again")
    return problem


@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
@pytest.mark.parametrize("damage", [lambda one: one[:-200], lambda one: one[:20], lambda one: one[:6] + one[90:]])
def test_a_damaged_table_is_refused_by_the_error_of_the_library(form: str, damage: Any, tmp_path: Path) -> None:
    path = tmp_path / f"log.{'parquet' if form == 'parquet' else 'arrow'}"
    assert table_refusal(path, damage(table_bytes(form))).found
    with pytest.raises(LogError, match=re.escape(str(path))):
        files.read_log(path, {"observation": "a", "action": "a"})


def test_a_column_with_other_rows_than_the_file_counts_is_refused(tmp_path: Path) -> None:
    content = bytearray(table_bytes("parquet"))
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[content.index(b"\xd8\x04", footer)] = 0xDA  # 300 as a Thrift number, first the file's own count: 301
    problem = table_refusal(tmp_path / "log.parquet", bytes(content))
    assert problem.found == "300 rows in 'a', and 301 in the file's own count"


def test_the_data_sets_of_an_hdf5_file_have_their_paths(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "log.h5", "w") as file:
        file["one"], file["two/three"], file["two/four/five"] = 1, 2, 3
        file["kind"] = np.dtype("f4")  # neither a group nor a data set
        file["same"] = file["one"]
        assert sorted(own_datasets(file)) == ["one", "same", "two/four/five", "two/three"]


# HDF5 and arrays.


def test_arrays_that_numpy_does_not_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"version 3\.0 of the \.npy format: expected 1\.0 or 2\.0"):
        read_header(io.BytesIO(b"\x93NUMPY\x03\x00" + bytes(100)), 108)
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.arange(10.0))
    size = len(stream.getvalue())
    with pytest.raises(ValueError, match="expected 80 bytes got 30"):
        read_array(io.BytesIO(stream.getvalue()[:-50]), size)
    for method, archive_size, words in (
        (zipfile.ZIP_BZIP2, 10_000, "'a' is encrypted or packed in an unusual way"),
        (zipfile.ZIP_STORED, 10, "the arrays declare more packed bytes than the file has"),
    ):
        with zipfile.ZipFile(tmp_path / "log.npz", "w", method) as archive:
            archive.writestr("a.npy", stream.getvalue())
            with pytest.raises(ValueError, match=words):
                formats._members(archive, archive_size)


# Minari.


def data_set(action: Any = None, observation: Any = None, episodes: Any = ()) -> Any:
    return SimpleNamespace(
        id="made-v0",
        action_space=action or SPACES.Discrete(2),
        observation_space=observation or SPACES.Box(0, 1, (1,)),
        iterate_episodes=lambda: iter(episodes),
    )


def test_data_sets_that_are_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    short = SimpleNamespace(id=3, observations=np.zeros((2, 1)), rewards=np.zeros(2), actions=np.zeros(2))
    for found, words in (
        (data_set(SPACES.Box(0, 1, (2, 2))), "actions of type Box"),
        (data_set(SPACES.Tuple((SPACES.Box(0, 1, (2, 2)),))), "actions of type Box in '0'"),
        (data_set(), "episodes that cannot be read (the data set is empty)"),
        (data_set(episodes=[short]), "cannot be read (episode 3: 2 observations for 2 steps in 'observation')"),
        (data_set(observation=SPACES.Discrete(2**31 + 1)), "Discrete(2147483649) in 'observation'"),
    ):
        monkeypatch.setattr(formats, "_dataset", lambda source, found=found: found)
        with pytest.raises(LogError) as caught:
            formats.raw_minari("made-v0")
        assert words in caught.value.report.errors[0].found


def test_pictures_of_minari_are_refused_by_their_size_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    member: Any = {(): [b"no picture"]}
    monkeypatch.setattr(formats, "MOST_PIXELS", 10)
    with pytest.raises(ValueError, match=r"pictures of shape \[32, 32, 3\]: expected at most 10 pixels"):
        formats._check_pictures(member, SPACES.Box(0, 255, (32, 32, 3), np.uint8))


# Folders and tables.


def test_a_folder_that_cannot_be_listed_is_refused_and_an_empty_one_is_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files._folder(tmp_path) is None

    def listing(folder: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", listing)
    with pytest.raises(LogError) as caught:
        files._folder(tmp_path)
    problem = caught.value.report.errors[0]
    assert ("Permission denied" in problem.found, problem.fix) == (True, "check the permissions of the folder")


def test_columns_of_several_files_have_the_widest_type() -> None:
    assert files._widest([pl.Float32(), pl.Float64()], False) == pl.Float64()
    assert files._widest([pl.Int8(), pl.Int32()], False) == pl.Int32()
    assert files._widest([pl.Int8(), pl.Float64()], False) is None


def test_objects_of_pandas_of_several_kinds_are_text() -> None:
    found = files._pandas_series("x", pd.Series(["a", 3, None, 2.5], dtype=object))
    assert found.to_list() == ["a", "3", None, "2.5"]


def refused(read: Any) -> Any:
    with pytest.raises(LogError) as caught:
        read()
    return caught.value.report.errors[0]


def refusal(read: Any) -> str:
    return str(refused(read).found)


def test_text_that_cannot_be_parsed_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.csv"
    path.write_text("a" * 200_000 + ",b\n1,2\n")
    assert "a header that cannot be read (field larger" in refusal(lambda: formats.read_separated(path))
    assert "UTF-8" in refusal(lambda: formats._refuse_ragged(path, b"a,b\n1,\xff\n", ","))
    path.write_text("a,b\n1,2\n")

    def failing(*args: Any, **options: Any) -> Any:
        raise pl.exceptions.ComputeError("no idea\nand more")

    monkeypatch.setattr(formats.pl, "read_csv", failing)
    assert refusal(lambda: formats.read_separated(path)) == "no idea"
    tower: list[Any] = []
    for _ in range(100_000):
        tower = [tower]
    assert "lists in 'x' that are nested too deeply" in refusal(lambda: formats._series(path, "x", [tower, 1]))
    assert math.isinf(formats._series(path, "x", [10**400, 1])[0])
