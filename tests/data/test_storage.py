"""A saved log is the same log, and a damaged one is refused by the name of the damaged file."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.data.visits import NEXT, mapping, visits, with_next
from tidelog.data.io.readers import open_log, read_log
from tidelog.data.log import Log
from tidelog.errors import LogError


@pytest.fixture
def log() -> Log:
    return read_log(with_next(visits()), mapping(next_observation=NEXT, extra=["age", "ward"], time="hour"))


def test_round_trip_in_memory_and_mapped(log: Log, tmp_path: Path) -> None:
    log.save(tmp_path / "a.tidelog")
    for memory_map in (False, True):
        again = open_log(tmp_path / "a.tidelog", memory_map=memory_map)
        assert again.fingerprint() == log.fingerprint()
        assert again.spec == log.spec
        assert again.report == log.report
        assert all(isinstance(values, np.memmap) == memory_map for values in again.columns().values())
        assert again.split(0.5)[0].fingerprint() == log.split(0.5)[0].fingerprint()
        assert again.statistics() == log.statistics()


def test_the_fingerprint_is_the_same_in_another_process(log: Log, tmp_path: Path) -> None:
    log.save(tmp_path / "a")
    code = f"from tidelog import open_log; print(open_log({str(tmp_path / 'a')!r}).fingerprint())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == log.fingerprint()


def test_an_existing_target_is_refused_and_left_alone(log: Log, tmp_path: Path) -> None:
    log.save(tmp_path / "a")
    other = log.take_episodes([0])
    with pytest.raises(LogError, match="exists"):
        other.save(tmp_path / "a")
    assert open_log(tmp_path / "a").steps == log.steps
    other.save(tmp_path / "a", overwrite=True)
    assert open_log(tmp_path / "a").steps == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(LogError, match="not a tidelog log"):
        log.save(tmp_path / "mine", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "mine"]


def test_nothing_is_left_behind_where_the_target_cannot_be_written(log: Log, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="cannot be written"):
        log.save(tmp_path / "file" / "a")


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("damage", ["cut", "missing", "longer"])
def test_damaged_columns_are_named(log: Log, tmp_path: Path, damage: str, memory_map: bool) -> None:
    log.save(tmp_path / "a")
    for file in sorted((tmp_path / "a").glob("*.npy")):
        content = file.read_bytes()
        file.unlink()
        if damage != "missing":
            file.write_bytes(content[:-1] if damage == "cut" else content + b"\0")
        with pytest.raises(LogError, match=file.name):
            open_log(tmp_path / "a", memory_map=memory_map)
        file.write_bytes(content)
    assert open_log(tmp_path / "a", memory_map=memory_map).fingerprint() == log.fingerprint()


def test_one_changed_bit_is_noticed(log: Log, tmp_path: Path) -> None:
    log.save(tmp_path / "a")
    for file in sorted((tmp_path / "a").iterdir()):
        content = bytearray(file.read_bytes())
        content[-20] ^= 1
        original = file.read_bytes()
        file.write_bytes(bytes(content))
        with pytest.raises(LogError, match=file.name):
            open_log(tmp_path / "a")
        file.write_bytes(original)


def test_foreign_folders_and_other_versions_are_refused(log: Log, tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"manifest\.json"):
        open_log(tmp_path / "nothing")
    log.save(tmp_path / "a")
    file = tmp_path / "a" / "manifest.json"
    manifest = json.loads(file.read_text())
    for change, said in (
        ({"schema": 3}, r"schema\s+version 3"),
        ({"kind": "x"}, r"its\s+kind\s+is\s+'x'"),
        ({"spec": {}}, r"checksum\s+differs"),
    ):
        file.write_text(json.dumps({**manifest, **change}))
        with pytest.raises(LogError, match=said):
            open_log(tmp_path / "a")
    file.write_text(json.dumps(manifest)[:-50])
    with pytest.raises(LogError, match=r"is\s+incomplete"):
        open_log(tmp_path / "a")
