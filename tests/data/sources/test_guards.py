"""Single refusals of the readers: what one damaged or unusual part of a file says."""

import io
import math
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

from tidelog.data.core.npy import read_array, read_header
from tidelog.data.io import readers
from tidelog.data.sources import (
    arrays,
    arrow_guard,
    files,
    hdf5_guard,
    json_objects,
    minari,
    parquet_guard,
    separated_text,
    several,
    tables,
)
from tidelog.data.sources.parquet_guard import _Thrift
from tidelog.errors import LogError

SPACES = gymnasium.spaces


# Parquet.


@pytest.mark.parametrize(
    ("content", "read", "error", "words"),
    [
        (b"\x1c" * 100, lambda one: one.struct(), OSError, "Parquet structures are nested too deeply"),
        (b"\xf5\xff\xff\x03", lambda one: one.listed(0), OSError, "a Parquet list of 65535 entries is longer than the"),
        (b"ab", lambda one: one.some(5), IndexError, "beyond the end of the file"),
        (b"\x16", lambda one: one.value(14, 0), KeyError, "unknown value type 14"),
    ],
)
def test_structures_of_parquet_that_no_writer_writes(content: bytes, read: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        read(_Thrift(content, 0))


def test_a_list_of_booleans_is_read() -> None:
    assert _Thrift(b"\x31\x01\x02\x01", 0).listed(0) == [True, False, True]


def chunk(expected: int = 4, length: int = 20, start: int = 4) -> Any:
    return {3: ["column"], 5: expected, 6: 1000, 7: length, 9: start}


def test_counts_of_parquet_that_contradict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    data: Any = bytes(100)
    with pytest.raises(OSError, match="a Parquet column of 4 rows declares 5 values in 20 bytes at 4"):
        parquet_guard._check_chunk(data, chunk(expected=5), 4)
    with pytest.raises(OSError, match="a Parquet column of 4 rows declares 4 values in 97 bytes at 4"):
        parquet_guard._check_chunk(data, chunk(length=97), 4)
    page = {1: 0, 2: 10, 3: 10, 5: {1: 3}}
    monkeypatch.setattr(parquet_guard, "_pages", lambda *args: [(0, page)])
    with pytest.raises(OSError, match="Parquet pages hold 3 values, but the footer counts 4"):
        parquet_guard._check_chunk(data, chunk(), 4)
    monkeypatch.undo()
    header = b"\x15\x00\x15\x00\x15\xc8\x01\x00"  # a page of type 0 that declares 100 bytes
    with pytest.raises(OSError, match="a Parquet page of 100 bytes exceeds its column"):
        list(parquet_guard._pages(header + bytes(20), 0, 28))  # type: ignore[arg-type]
    monkeypatch.setattr(_Thrift, "struct", lambda self: {3: 5, 4: [{1: [], 3: 4}]})
    with pytest.raises(OSError, match="the Parquet footer counts 5 rows, its row groups 4"):
        parquet_guard._walk(b"PAR1" + bytes(8) + b"PAR1")  # type: ignore[arg-type]


def test_pages_of_other_kinds_are_passed_over() -> None:
    other, data = b"\x15\x02\x15\x00\x15\x04\x00", b"\x15\x00\x15\x00\x15\x00\x00"  # an index of two bytes, data
    pages = list(parquet_guard._pages(other + bytes(2) + data, 0, 16))  # type: ignore[arg-type]
    assert [kind for kind, _ in pages] == [0]


# Arrow.


def arrow(compression: Any = "lz4", stream: bool = False, level: Any = None) -> bytes:
    """A file of 50 rows with numbers, lists, structures, and a dictionary."""
    frame = pl.DataFrame({
        "a": range(50), "b": [None, "x"] * 25, "l": [[1, 2], []] * 25, "s": [{"u": 1}] * 50,
        "c": pl.Series(["u", "v"] * 25, dtype=pl.Categorical),
    })  # fmt: skip
    target = io.BytesIO()
    write = frame.write_ipc_stream if stream else frame.write_ipc
    write(target, compression=compression, compat_level=level)
    return target.getvalue()


def arrow_refusal(tmp_path: Path, content: bytes) -> str:
    """What a log of these bytes is refused for."""
    (tmp_path / "log.arrow").write_bytes(content)
    problem = readers.validate(tmp_path / "log.arrow", {"observation": "a", "action": "a"}).errors[0]
    assert problem.check == "unreadable file"
    return problem.found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("level", [pl.CompatLevel.newest(), pl.CompatLevel.oldest()])
def test_sound_arrow_of_every_make_passes(stream: bool, compression: str, level: Any, tmp_path: Path) -> None:
    content = arrow(compression, stream, level)
    (tmp_path / "log.arrow").write_bytes(content)
    largest = arrow_guard.largest_batch(tmp_path / "log.arrow")
    assert largest == 0 if compression == "uncompressed" else 50 * 8 < largest < 4_000
    table = tables.read_arrow(tmp_path / "log.arrow", ["a"])
    assert table.rows == 50


@pytest.mark.parametrize("stream", [False, True])
def test_an_arrow_buffer_that_declares_more_than_the_memory_is_refused_before_it_is_read(
    stream: bool, tmp_path: Path
) -> None:
    """Polars reserves what a packed buffer declares; 2^61 bytes ended the process."""
    declared = (400).to_bytes(8, "little")  # 50 numbers
    content = arrow(stream=stream)
    assert "2305843009.2 GB of memory are needed" in arrow_refusal(
        tmp_path, content.replace(declared, (1 << 61).to_bytes(8, "little"), 1)
    )
    assert "a packed Arrow buffer declares -2 bytes" in arrow_refusal(
        tmp_path, content.replace(declared, (-2).to_bytes(8, "little", signed=True), 1)
    )


def test_arrow_whose_places_and_sizes_contradict_each_other_is_refused(tmp_path: Path) -> None:
    content, packed = arrow(), arrow(stream=True)
    footer = len(content) - 10 - int.from_bytes(content[-10:-6], "little")
    table = arrow_guard._Table.root(content[footer:])
    last = max(int(at) for vector in (2, 3) for at in table.structs(vector, arrow_guard._BLOCK)["at"])
    block = content.index(last.to_bytes(8, "little"), footer)
    body = block + 16  # after its place and the size of its metadata
    nodes = (50).to_bytes(8, "little") + (0).to_bytes(8, "little")
    metadata = int.from_bytes(packed[4:8], "little")
    for found, words in (
        (content[:-20], "its last bytes are not a footer"),
        (b"ARROW1", "too short to be Arrow"),
        (content.replace(nodes, nodes[:8] + (99).to_bytes(8, "little"), 1), "more nulls than rows"),
        (content[:footer] + b"\xff" * (len(content) - 10 - footer) + content[-10:], "metadata are damaged"),
        (packed[:4] + (1 << 30).to_bytes(4, "little") + packed[8:], "an Arrow message of 1073741824 bytes at 0"),
        (packed[: metadata + 100], "an Arrow message of .* exceeds the file"),
        (packed[:-100], "an Arrow message at .* declares a body of"),
        (content[:body] + (1 << 40).to_bytes(8, "little") + content[body + 8 :], "outside of its place"),
        (content[: block + 4] + b"\xff" * 4 + content[block + 8 :], "outside of its place"),
    ):
        (tmp_path / "log.arrow").write_bytes(found)
        with pytest.raises(OSError, match=words):
            arrow_guard.largest_batch(tmp_path / "log.arrow")
        assert arrow_refusal(tmp_path, found)


# HDF5 and arrays.


def test_members_of_hdf5_that_are_not_there_or_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "log.h5", "w") as file:
        file["one"], file["two"], file["three"] = 1, 2, 3
        with pytest.raises(KeyError, match="none"):
            hdf5_guard.own_object(file, "none")
        file["kind"] = np.dtype("f4")  # neither a group nor a data set
        assert [name for name, _ in hdf5_guard.every_dataset(file)] == ["one", "three", "two"]
        monkeypatch.setattr(hdf5_guard, "_MOST_OBJECTS", 2)
        with pytest.raises(OSError, match="more than 2 groups and data sets"):
            list(hdf5_guard.every_dataset(file))


def test_arrays_that_numpy_does_not_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"version 3\.0 of the \.npy format: expected 1\.0 or 2\.0"):
        read_header(io.BytesIO(b"\x93NUMPY\x03\x00" + bytes(100)), 108)
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.arange(10.0))
    size = len(stream.getvalue())
    with pytest.raises(ValueError, match="the contents end after 30 of 80 bytes"):
        read_array(io.BytesIO(stream.getvalue()[:-50]), size)
    for method, archive_size, words in (
        (zipfile.ZIP_BZIP2, 10_000, "'a' is encrypted or packed in an unusual way"),
        (zipfile.ZIP_STORED, 10, "the arrays declare more packed bytes than the file has"),
    ):
        with zipfile.ZipFile(tmp_path / "log.npz", "w", method) as archive:
            archive.writestr("a.npy", stream.getvalue())
            with pytest.raises(ValueError, match=words):
                arrays._members(archive, archive_size)


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
        (data_set(SPACES.Tuple((SPACES.Discrete(2),))), "actions of type Tuple"),
        (data_set(), "episodes that cannot be read (the data set is empty)"),
        (data_set(episodes=[short]), "cannot be read (episode 3: 2 observations for 2 steps in 'observation')"),
        (data_set(observation=SPACES.Discrete(2**31 + 1)), "Discrete(2147483649) in 'observation'"),
    ):
        monkeypatch.setattr(minari, "_dataset", lambda source, found=found: found)
        with pytest.raises(LogError) as caught:
            minari.raw_minari("made-v0")
        assert words in caught.value.report.errors[0].found


def test_pictures_of_minari_are_refused_by_their_size_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    member: Any = {(): [b"no picture"]}
    monkeypatch.setattr(minari, "MOST_PIXELS", 10)
    with pytest.raises(ValueError, match=r"pictures of shape \[32, 32, 3\]: expected at most 10 pixels"):
        minari._check_pictures(member, SPACES.Box(0, 255, (32, 32, 3), np.uint8))


# Folders and tables.


def test_a_folder_that_cannot_be_listed_is_refused_and_an_empty_one_is_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files._folder(tmp_path, lambda path: True) is None

    def listing(folder: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", listing)
    with pytest.raises(LogError) as caught:
        files._folder(tmp_path, lambda path: True)
    problem = caught.value.report.errors[0]
    assert ("Permission denied" in problem.found, problem.fix) == (True, "check the permissions of the folder")


def test_several_files_without_a_mapping_are_refused(tmp_path: Path) -> None:
    problem = refused(lambda: readers._raw_file([str(tmp_path / "one.csv"), str(tmp_path / "two.csv")]))
    assert (problem.found, problem.fix) == ("several files without a mapping", "pass columns=")


def test_columns_of_several_files_have_the_widest_type() -> None:
    assert several._widest([pl.Float32(), pl.Float64()], False) == pl.Float64()
    assert several._widest([pl.Int8(), pl.Int32()], False) == pl.Int32()
    assert several._widest([pl.Int8(), pl.Float64()], False) is None


def test_objects_of_pandas_of_several_kinds_are_text() -> None:
    found = tables._pandas_series("x", pd.Series(["a", 3, None, 2.5], dtype=object))
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
    assert "a header that cannot be read (field larger" in refusal(lambda: separated_text.read_separated(path, ","))
    assert "UTF-8" in refusal(lambda: separated_text._refuse_ragged(path, b"a,b\n1,\xff\n", ","))
    path.write_text("a,b\n1,2\n")

    def failing(*args: Any, **options: Any) -> Any:
        raise pl.exceptions.ComputeError("no idea\nand more")

    monkeypatch.setattr(separated_text.pl, "read_csv", failing)
    assert refusal(lambda: separated_text.read_separated(path, ",")) == "no idea"
    tower: list[Any] = []
    for _ in range(100_000):
        tower = [tower]
    assert "lists in 'x' that are nested too deeply" in refusal(lambda: json_objects._series(path, "x", [tower, 1]))
    assert math.isinf(json_objects._series(path, "x", [10**400, 1])[0])
