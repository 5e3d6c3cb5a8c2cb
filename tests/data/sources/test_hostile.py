"""Files that were made to harm: every reader answers with a report, soon, with little memory, from that file alone."""

import gzip
import json
import os
import socket
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pytest
from PIL import Image as Picture

from tidelog import _files, _machine
from tidelog.data import formats
from tidelog.data.log import Log
from tidelog.data.parse import duplicates, unique
from tidelog.data.read import read_log, validate
from tidelog.errors import ConfigError, LogError, TidelogError
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.read import check
from tidelog.runtime.load import load

MAPPING = {"observation": "o", "action": "a", "reward": "r", "episode": "e"}
FRAME = pl.DataFrame({"o": [0.0, 1.5, 2.0, 3.0], "a": [0, 1, 0, 1], "r": [0.0, 1.0, 1.0, 0.0], "e": [0, 0, 1, 1]})
TABLES = (".csv", ".csv.gz", ".tsv", ".parquet", ".jsonl", ".jsonl.gz", ".json", ".json.bz2", ".arrow")
ARRAYS = (".npz", ".hdf5")


def refused(path: Path | str, mapping: Any = None) -> str:
    """What the one error of a report says."""
    report = validate(path, mapping)
    assert not report.ok
    return report.errors[0].found


# Contents of other files.


def hdf5(path: Path, observations: Callable[[h5py.File], None]) -> Path:
    with h5py.File(path, "w") as file:
        file["actions"], file["rewards"] = np.zeros((10, 2), np.float32), np.zeros(10, np.float32)
        file["terminals"], file["timeouts"] = np.zeros(10, bool), np.ones(10, bool)
        observations(file)
    return path


def elsewhere(folder: Path) -> Path:
    with h5py.File(folder / "other.h5", "w") as file:
        file["x"] = np.ones((10, 3), np.float32)
        file["group/observations"] = np.ones((10, 3), np.float32)
    (folder / "secret").write_bytes(b"A" * 4096)
    return folder


def external_storage(file: h5py.File, folder: Path) -> None:
    file.create_dataset("observations", (10, 8), np.uint8, external=[(str(folder / "secret"), 0, 80)])


def external_link(file: h5py.File, folder: Path) -> None:
    file["observations"] = h5py.ExternalLink(str(folder / "other.h5"), "x")


def soft_link_through_an_external_one(file: h5py.File, folder: Path) -> None:
    file["way"] = h5py.ExternalLink(str(folder / "other.h5"), "group")
    file["observations"] = h5py.SoftLink("/way/observations")


def virtual(file: h5py.File, folder: Path) -> None:
    layout = h5py.VirtualLayout((10, 3), np.float32)
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "x", (10, 3))
    file.create_virtual_dataset("observations", layout)


OUTSIDE = {
    external_storage: "another file", external_link: "an external link", virtual: "virtual",
    soft_link_through_an_external_one: "a soft link",
}  # fmt: skip


@pytest.mark.parametrize("way", OUTSIDE, ids=lambda way: way.__name__)
def test_hdf5_reads_no_other_file(way: Callable[..., None], tmp_path: Path) -> None:
    folder = elsewhere(tmp_path)
    assert OUTSIDE[way] in refused(hdf5(tmp_path / "log.hdf5", lambda file: way(file, folder)))


@pytest.mark.parametrize("way", OUTSIDE, ids=lambda way: way.__name__)
def test_minari_reads_no_other_file(way: Callable[..., None], tmp_path: Path) -> None:
    folder = minari_folder(tmp_path)
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_0/observations"]
        way(file["episode_0"], elsewhere(tmp_path))
    assert OUTSIDE[way] in refused(folder)


def minari_folder(folder: Path, **metadata: Any) -> Path:
    """A data set of one episode of three steps, as Minari writes it."""
    box = {"type": "Box", "dtype": "float32", "shape": [3], "low": [-1.0] * 3, "high": [1.0] * 3}
    about = {
        "total_episodes": 1, "total_steps": 3, "data_format": "hdf5", "jpeg_encoding": True, "dataset_id": "x/y-v0",
        "minari_version": "0.5.4", "observation_space": json.dumps(box),
        "action_space": json.dumps({"type": "Discrete", "dtype": "int64", "start": 0, "n": 2}),
    }  # fmt: skip
    data = folder / "data"
    data.mkdir()
    (data / "metadata.json").write_text(json.dumps({**about, **metadata}))
    with h5py.File(data / "main_data.hdf5", "w") as file:
        one = file.create_group("episode_0")
        one["observations"], one["actions"] = np.zeros((4, 3), np.float32), np.asarray([0, 1, 0])
        one["rewards"], one["terminations"] = np.arange(3.0), np.asarray([False, False, True])
        one["truncations"] = np.zeros(3, bool)
    return data


def test_a_group_that_contains_itself_is_refused(tmp_path: Path) -> None:
    folder = minari_folder(tmp_path)
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        file["episode_0/infos/inner"] = np.zeros(3)
        file["episode_0/infos/again"] = file["episode_0"]
    assert "contains itself" in refused(folder)


def test_groups_that_double_at_every_level_are_refused_at_once(tmp_path: Path) -> None:
    folder = minari_folder(tmp_path)
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        group = file["episode_0"]
        for _ in range(40):
            group["one"] = group.file.create_group(None)
            group["two"] = group["one"]
            group = group["one"]
    begun = time.perf_counter()
    assert "appears twice" in refused(folder)
    assert time.perf_counter() - begun < 2


def test_a_minari_folder_imports_no_module_of_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap_module.py").write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()")
    monkeypatch.syspath_prepend(tmp_path)
    spec = {
        "id": "Trap-v0", "entry_point": "trap_module:Trap", "reward_threshold": None, "nondeterministic": False,
        "max_episode_steps": None, "order_enforce": True, "disable_env_checker": False, "kwargs": {},
        "additional_wrappers": [], "vector_entry_point": None,
    }  # fmt: skip
    folder = minari_folder(tmp_path, observation_space=None, env_spec=json.dumps(spec))
    assert "spaces" in refused(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"total_episodes": 10**12}, "total_episodes"),
        ({"total_episodes": "1"}, "total_episodes"),
        ({"data_format": "arrow"}, "data_format"),
        ({"observation_space": '{"type": "Box"}'}, "shape"),
        ({"action_space": json.dumps({"type": "Discrete", "start": 0, "n": 0})}, "cannot be opened"),
    ],
)
def test_minari_metadata_that_lie(metadata: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert message in refused(minari_folder(tmp_path, **metadata))


def test_encoded_pictures_of_minari_are_jpeg_of_their_space(tmp_path: Path) -> None:
    import io

    space = {"type": "Box", "dtype": "uint8", "shape": [40, 50, 3], "low": np.zeros((40, 50, 3), int).tolist(),
             "high": np.full((40, 50, 3), 255).tolist()}  # fmt: skip
    folder = minari_folder(tmp_path, observation_space=json.dumps(space))

    def encoded(size: tuple[int, int], form: str) -> np.ndarray:
        content = io.BytesIO()
        Picture.new("RGB", size).save(content, form)
        return np.frombuffer(content.getvalue(), np.uint8)

    for frame, message in ((encoded((50, 40), "JPEG"), None), (encoded((50, 40), "EPS"), "cannot identify"),
                           (encoded((500, 400), "JPEG"), "a picture of size")):  # fmt: skip
        with h5py.File(folder / "main_data.hdf5", "a") as file:
            del file["episode_0/observations"]
            file["episode_0/observations"] = np.stack([frame] * 4)
        assert validate(folder).ok if message is None else message in refused(folder)


# Declared sizes.


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 200,000 free bytes."""
    monkeypatch.setattr(_machine, "available_memory", lambda: 200_000)
    monkeypatch.setattr(formats, "available_memory", lambda: 200_000)


def test_readers_refuse_what_does_not_fit_with_the_numbers(tmp_path: Path, little_memory: None) -> None:
    message = r"are needed, 0\.2 MB are available"
    wide = np.zeros((10, 100_000), np.uint8)
    contents: list[tuple[str, Any]] = []
    FRAME.sample(20_000, with_replacement=True).write_csv(tmp_path / "log.csv")
    (tmp_path / "small.csv").write_text("a,o\n" + "1,2\n" * 10_000)  # its text fits, its cells do not
    FRAME.sample(100_000, with_replacement=True).with_columns(pl.lit(0).alias("o")).write_parquet(
        tmp_path / "l.parquet"
    )
    FRAME.sample(100_000, with_replacement=True).with_columns(pl.lit(0).alias("o")).write_ipc(
        tmp_path / "log.arrow", compression="zstd"
    )
    (tmp_path / "log.jsonl").write_text('{"a": 1, "o": 2}\n' * 4_000)
    np.savez_compressed(tmp_path / "log.npz", observation=wide, action=np.zeros(10, int))
    hdf5(tmp_path / "log.hdf5", lambda file: file.create_dataset("observations", data=wide, compression="gzip"))
    contents = [("log.csv", MAPPING), ("small.csv", {"observation": "o", "action": "a"}), ("l.parquet", MAPPING),
                ("log.arrow", MAPPING),
                ("log.jsonl", MAPPING), ("log.npz", None), ("log.hdf5", None)]  # fmt: skip
    for name, mapping in contents:
        with pytest.raises(LogError, match=message):
            read_log(tmp_path / name, mapping)


def test_one_long_slate_does_not_widen_every_row(tmp_path: Path, little_memory: None) -> None:
    frame = pl.DataFrame({"u": [1] * 300, "i": ["a", "b"] * 150, "t": range(300), "l": ["a|b"] * 299 + ["a|b" * 300]})
    problem = check(frame, user="u", item="i", time="t", slate="l").errors[0]
    assert "memory are needed" in problem.found
    assert problem.rows == (300,)


@pytest.mark.parametrize("features", [[], [1e300, 1.0], [None, 1.0], [float("nan"), 2.0]])
def test_features_that_cannot_be_scaled_are_reported(features: list[float | None]) -> None:
    table = pl.DataFrame({"i": ["a", "b"][: len(features)], "f": pl.Series(features, dtype=pl.Float64)})
    frame = pl.DataFrame({"u": [1, 1], "i": ["a", "b"], "t": [1, 2]})
    report = check(frame, user="u", item="i", time="t", item_features=table)
    assert report.errors[0].check == ("unusable features" if features else "ids without features")


@pytest.mark.parametrize("ending", [".csv.gz", ".json.gz"])
def test_a_gzip_bomb_is_refused_by_its_decompressed_size(ending: str, tmp_path: Path, little_memory: None) -> None:
    path = tmp_path / f"bomb{ending}"
    path.write_bytes(gzip.compress(b"o,a\n" + b" " * 50_000_000))
    assert path.stat().st_size < 100_000
    found = refused(path, MAPPING)
    assert found == "more than 0.1 MB of decompressed text; 0.2 MB of memory are available"


def header_of(shape: str, kind: str = "<f4") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


NPZ = {
    "(1000000000000,)": "the header declares", "(-4,)": "the header declares", "(2,": "the header is damaged",
    "(" * 50 + "1," * 9: "the header is damaged",
}  # fmt: skip


@pytest.mark.parametrize("shape", NPZ)
def test_npz_declares_no_more_than_it_holds(shape: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "log.npz", "w") as archive:
        archive.writestr("action.npy", header_of(shape) + bytes(40))
    assert NPZ[shape] in refused(tmp_path / "log.npz")


def test_npz_with_doubled_members_objects_or_false_sizes(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("action.npy", header_of("(10,)") + bytes(40))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("action.npy", header_of("(10,)") + bytes(40))
    assert refused(path) == "two arrays are named 'action'"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("action.npy", header_of("(5,)", "|O") + bytes(40))
    assert "values of type object" in refused(path)
    content = bytearray(zipped("action.npy", header_of("(10,)") + bytes(40)))
    for place in (content.find(b"PK\x01\x02") + 24, 22):
        content[place : place + 4] = struct.pack("<I", 2**31)  # the size after unpacking
    path.write_bytes(content)
    assert "packed bytes" in refused(path)


def zipped(name: str, content: bytes) -> bytes:
    import io

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


# What is not a file.


@contextmanager
def odd_files(folder: Path, name: str) -> Iterator[list[Path]]:
    """A FIFO, a socket, and links to a device and to a FIFO, all by that name."""
    paths = [folder / kind / name for kind in ("fifo", "socket", "device", "link")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(paths[0])
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(paths[1].parent)  # a socket's name has at most 107 characters
        server.bind(name)
        os.chdir(here)
        paths[2].symlink_to("/dev/zero")
        paths[3].symlink_to(paths[0])
        yield paths


@pytest.mark.parametrize("ending", TABLES + ARRAYS)
def test_no_reader_waits_for_a_fifo_or_reads_a_device(ending: str, tmp_path: Path) -> None:
    with odd_files(tmp_path, f"log{ending}") as paths:
        for path in paths:
            assert "expected a regular file" in refused(path, MAPPING if ending in TABLES else None)


def test_no_other_file_is_waited_for(tmp_path: Path) -> None:
    FRAME.write_csv(tmp_path / "log.csv")
    for name in ("m.toml", "m.json"):
        with odd_files(tmp_path / name, name) as paths:
            for path in paths:
                assert "expected a regular file" in refused(tmp_path / "log.csv", path)
    roles = {"user": "e", "item": "a", "time": "o"}
    with odd_files(tmp_path / "features", "f.csv") as paths:
        for path in paths:
            report = check(tmp_path / "log.csv", **roles, item_features=path)
            assert "expected a regular file" in report.errors[0].found
    with odd_files(tmp_path / "manifest", "manifest.json") as paths:
        for path in paths:
            for read in (Log.load, Interactions.load, load):
                with pytest.raises(TidelogError):
                    read(path.parent)  # type: ignore[operator]
    with odd_files(tmp_path / "zip", "policy.zip") as paths:
        for path in paths:
            with pytest.raises(TidelogError):
                load(path)
    for name in ("metadata.json", "main_data.hdf5"):
        with odd_files(tmp_path / name, name) as paths:
            for path in paths:
                folder = minari_folder(path.parent)
                (folder / name).unlink()
                (folder / name).symlink_to(path)
                assert "expected a regular file" in refused(folder)


def test_links_to_regular_files_are_read(tmp_path: Path) -> None:
    FRAME.write_csv(tmp_path / "log.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "log.csv")
    assert validate(tmp_path / "link.csv", MAPPING).ok


# Codes.


@pytest.mark.parametrize("code", [10**6, 10**9, 2**31 - 2, 10**18])
def test_a_mistyped_code_is_an_error_with_its_row(code: int, tmp_path: Path) -> None:
    FRAME.with_columns(a=pl.Series([0, 1, code, 1])).write_csv(tmp_path / "log.csv")
    problem = validate(tmp_path / "log.csv", MAPPING).errors[0]
    assert (problem.check, problem.column, problem.rows, problem.lines) == ("sparse codes", "a", (3,), (4,))
    report = validate_arrays(action=[[0, 0], [1, code], [0, 1]])
    assert [(one.check, one.rows) for one in report.errors][:1] == [("sparse codes", (2,))]
    report = validate_arrays(observation=[0, code, 1])
    assert ("sparse codes", (2,)) in [(one.check, one.rows) for one in report.errors]


def validate_arrays(**changes: Any) -> Any:
    given = {"observation": [0.0, 1.0, 2.0], "action": [0, 1, 0], "reward": [0.0, 1.0, 2.0], **changes}
    with pytest.raises(LogError) as caught:
        Log.from_arrays(**given)
    return caught.value.report


@pytest.mark.parametrize("action", ["1e300", "-1e300", "1e400", "nan"])
@pytest.mark.parametrize("episode", [None, "e"])
def test_a_number_that_is_no_code_is_reported(action: str, episode: str | None) -> None:
    frame = FRAME.with_columns(a=pl.Series(["0", "1", action, "1"]), day_id=pl.Series([1, 1, 2, 2]))
    report = validate(frame, {**MAPPING, "episode": episode})
    assert report.errors[0].rows == (3,)
    validate_arrays(action=np.asarray([[0.0, 1.0], [float(action), 1.0], [1.0, 0.0]]), actions=[2, 2])


def test_many_codes_are_a_log_where_they_are_declared_or_plausible() -> None:
    codes = np.arange(3_000) * 60
    assert Log.from_arrays(observation=codes * 1.0, action=codes, reward=codes * 1.0).spec.action.n == codes[-1] + 1
    log = Log.from_arrays(observation=[0.0, 1.0], action=[0, 2**31 - 2], reward=[0.0, 1.0], actions=2**31 - 1)
    assert log.statistics().actions["counts"] == {"0": 1, "2147483646": 1}
    with pytest.raises(ConfigError, match="at most"):
        Log.from_arrays(observation=[0.0], action=[0], reward=[0.0], actions=2**31)


# JSON.

LINES: dict[str, str | None] = {
    '{"o": 1, "a": 0, "r": 123456789012345678901234567890, "e": 0}': None,
    '{"o": 1, "a": 0, "r": [123456789012345678901234567890], "e": 0}': "lists",
    '{"o": 1, "a": 0, "r": [[1], [2, [3]]], "e": 36893488147419103232}': None,
    '{"o": 1, "a": 0, "r": 1, "e": 36893488147419103232}': None,
    '{"o": 1, "a": 0, "r": 1, "e": ' + "9" * 5000 + "}": "not a JSON object",
    '{"o": ' + "[" * 5000 + "]" * 5000 + ', "a": 0, "r": 1, "e": 0}': "",  # a cell as text, or nested too deeply
    '{"o": ' + '{"k": ' * 5000 + "1" + "}" * 5000 + ', "a": 0, "r": 1, "e": 0}': "nested too deeply",
    '{"o": 1, "a": 0, "a": 1, "r": 1, "e": 0}': "the key 'a' is repeated",
    '{"o": 1, "a": 0, "r": 1, "e": {"x": 1, "x": 2}}': "the key 'x' is repeated",
    '{"o": "\\ud800", "a": 0, "r": 1, "e": 0}': "not valid Unicode",
    '{"\\ud800": 1, "a": 0, "r": 1, "e": 0}': "not valid Unicode",
    "\x00": "not a JSON object",
}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:40])
def test_validate_reports_every_line(line: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"o": 1, "a": 0, "r": 1, "e": 1}\n' + line)
    report = validate(tmp_path / "log.jsonl", MAPPING)
    message = LINES[line]
    if message is not None and message != "lists":
        assert message in report.errors[0].found
    assert (message is None) or not report.ok


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.json", '{"observation": "o", "observation": "r", "action": "a"}', "repeated"),
        ("m.json", "[" * 100_000, "nested too deeply"),
        ("m.toml", "a = " + "[" * 100_000, "recursion"),
        ("m.toml", 'action = "a"\naction = "b"', "overwrite"),
        ("m.toml", "\x00", "cannot be read"),
        ("m.json", '{"observation": "o", "action": null}', "action is not set"),
        ("m.json", '{"observation": null, "action": "a"}', "observation is not set"),
        ("m.json", '{"action": "a", "observation": "o", "actions": 1' + "0" * 5000 + "}", "digits"),
    ],
)
def test_mappings_that_cannot_be_meant(name: str, text: str, message: str, tmp_path: Path) -> None:
    FRAME.write_csv(tmp_path / "log.csv")
    (tmp_path / name).write_text(text)
    assert message in refused(tmp_path / "log.csv", tmp_path / name)


# Pictures.


# Many columns.


def test_a_header_of_many_names_takes_time_in_proportion(tmp_path: Path) -> None:
    class Counted(str):
        """A name that counts how often it is compared."""

        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [Counted(f"c{place % 4_000}") for place in range(5_000)]
    assert len(set(unique(names))) == 5_000
    assert len(duplicates(names)) == 1_000
    assert Counted.compared < 20 * len(names)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".json", ".parquet"])
def test_too_many_columns_are_refused(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MOST_COLUMNS", 50)
    path = tmp_path / f"log{ending}"
    wide = pl.DataFrame({f"c{place}": [1.0] for place in range(60)})
    if ending == ".csv":
        wide.write_csv(path)
    elif ending == ".parquet":
        wide.write_parquet(path)
    else:  # a new key on every line
        rows = [{str(place): 1.0} for place in range(60)]
        path.write_text(json.dumps(rows) if ending == ".json" else "\n".join(map(json.dumps, rows)))
    assert "columns" in refused(path, MAPPING)


def test_new_keys_on_every_line_take_memory_in_proportion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 lines with 5,000 names hold 15,000 values, and would be 50 million cells."""
    (tmp_path / "log.jsonl").write_text(
        "\n".join(json.dumps({"a": 0, f"k{place % 5_000}": 1}) for place in range(10_000))
    )
    monkeypatch.setattr(_machine, "available_memory", lambda: 50_000_000)
    assert "about 1.2 GB of memory are needed" in refused(tmp_path / "log.jsonl", MAPPING)


# The memory that there is.


def test_the_least_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo, groups, mount = tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "fs"
    meminfo.write_text("MemTotal: 16000 kB\nMemAvailable:    8000 kB\n")
    monkeypatch.setattr(_machine, "_MEMINFO", meminfo)
    monkeypatch.setattr(_machine, "_GROUPS", groups)
    monkeypatch.setattr(_machine, "_MOUNT", mount)
    assert _machine.available_memory() == 8_192_000
    groups.write_text("0::/one/two\n")
    for folder, most, used in (("one/two", "max", 10), ("one", "5000", 1000)):
        (mount / folder).mkdir(parents=True, exist_ok=True)
        (mount / folder / "memory.max").write_text(f"{most}\n")
        (mount / folder / "memory.current").write_text(f"{used}\n")
    assert _machine.available_memory() == 4_000
    (mount / "one" / "memory.stat").write_text("anon 5\ninactive_file 300\n")
    assert _machine.available_memory() == 4_300
    for file, value in (("memory.max", 3_000), ("memory.current", 500)):
        (mount / file).write_text(f"{value}\n")
    assert _machine.available_memory() == 2_500  # the limit of a container, which is the root that it sees
    (mount / "memory.max").unlink()
    groups.write_text("4:memory:/one\n3:cpu:/\n")
    (mount / "memory" / "one").mkdir(parents=True)
    (mount / "memory" / "one" / "memory.limit_in_bytes").write_text("900\n")
    (mount / "memory" / "one" / "memory.usage_in_bytes").write_text("100\n")
    assert _machine.available_memory() == 800
    assert _machine.shortage(800) is None
    assert _machine.shortage(2_000_000_000) == "about 2.0 GB of memory are needed, 0.0 MB are available"


def test_the_limit_of_the_process_counts() -> None:
    code = (
        "import resource; from tidelog import _machine; used = _machine._kilobytes(_machine._STATUS, 'VmSize');"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 5_000_000, -1)); print(_machine.available_memory())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 <= int(found.stdout) <= 5_000_000


READ_WITHIN = """
import resource, sys
import tidelog as tl
from tidelog import _machine

def read(path):
    if sys.argv[3] == "interactions":
        return tl.read_interactions(path, user="e", item="i", time="t")
    columns = tl.Columns(episode="e", observation=["x", "i"], action="a", reward="r", terminated="d")
    return tl.read_log(path, columns)

def limited(needed):
    used = _machine._kilobytes(_machine._STATUS, "VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (used + int(needed) + 4096, -1))
    return shortage(needed)

read(sys.argv[2])  # what is loaded once
from tidelog.data import parse
shortage, parse.shortage = _machine.shortage, limited
print(len(read(sys.argv[1]).reward))
"""


@pytest.mark.parametrize("kind", ["log", "interactions"])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_table_needs_no_more_memory_than_the_estimate_says(kind: str, ending: str, tmp_path: Path) -> None:
    """A million rows that compress well are read in a process that may take as much as the estimate, no more.

    Polars reads with one thread: what several hold at once depends on their timing, on a busy machine in a run of 20.
    """
    rows = np.arange(1_000_000)
    frame = pl.DataFrame({"e": rows // 10, "x": rows % 7 / 4, "i": rows % 9, "a": rows % 3, "r": rows % 2 / 1,
                          "d": rows % 10 == 9, "t": rows})  # fmt: skip
    paths = [tmp_path / f"{name}.{ending}" for name in ("large", "small")]
    for path, part in zip(paths, (frame, frame[:1000]), strict=True):
        part.write_parquet(path) if ending == "parquet" else part.write_csv(path)
    done = subprocess.run(
        [sys.executable, "-c", READ_WITHIN, *map(str, paths), kind],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"POLARS_MAX_THREADS": "1"},
    )
    assert done.stdout == "1000000\n", done.stderr[-500:]


def test_json_is_parsed_without_surprises() -> None:
    assert _files.parse_json('{"a": {"b": [1, {"c": 2}]}}') == {"a": {"b": [1, {"c": 2}]}}
    for text, message in (('[{"a": 1, "a": 1}]', "repeated"), ("[" * 100_000, "nested"), ("{", "Expecting")):
        with pytest.raises(ValueError, match=message):
            _files.parse_json(text)
