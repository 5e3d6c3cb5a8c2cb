"""A log in shards is the log: its numbers, report, split and verdict; and shards that are not its own are refused."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.data.visits import LENGTHS, NEXT, mapping, visits, with_next
from tidelog.data import storage
from tidelog.data.log import Log
from tidelog.data.read import convert, read_log
from tidelog.data.statistics import episode_hashes
from tidelog.data.storage import ShardedArray
from tidelog.errors import ConfigError, LogError
from tidelog.policies.policy import named_arrays
from tidelog.training.stores import is_mapped
from tidelog.types import Image

COUNTS = (1, 3, 7)


@pytest.fixture(scope="module")
def log() -> Log:
    """Episodes of 1 to 5 steps, some with a known end; clusters that return in later shards; a picture and texts."""
    frame = with_next(visits()).with_columns(home=pl.Series(np.repeat(list("abcabdacdbea"), LENGTHS)), x=pl.col("age"))
    columns = mapping(next_observation=NEXT, extra=["ward"], time="hour", cluster="home", weight="x", reward=["r", "x"])
    log = read_log(frame, columns)
    pictures = np.random.default_rng(0).integers(0, 256, (len(log.observation["numeric"]), 2, 2, 1), np.uint8)
    leaves = {**log.spec.observation, "picture": Image(2, 2, 1)}
    spec = replace(log.spec, observation=leaves)
    return replace(log, spec=spec, observation={**log.observation, "picture": pictures}, reward_unit="EUR")


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.sample(every=2)
def test_a_log_in_shards_equals_the_log(log: Log, count: int, memory_map: bool, tmp_path: Path) -> None:
    log.save(tmp_path / "log", shards=count)
    again = Log.load(tmp_path / "log", memory_map=memory_map)
    assert again.fingerprint() == log.fingerprint()
    assert again.statistics() == log.statistics()
    assert again.report == log.report
    assert (again.spec, again.reward_unit) == (log.spec, "EUR")
    for name, values in again.columns().items():
        assert isinstance(values, ShardedArray) == (memory_map and values.ndim > 1), name
        assert np.array_equal(np.asarray(values), log.columns()[name]), name
    for one, other in zip(again.split(0.6, seed=3), log.split(0.6, seed=3), strict=True):
        assert one.fingerprint() == other.fingerprint()
        assert episode_hashes(one).tolist() == episode_hashes(other).tolist()
    shards = [Log.load(path) for path in sorted((tmp_path / "log").glob("shard-*"))]
    assert len(shards) == count
    assert (len({shard.steps for shard in shards}) > 1) == (count == 7), "lengths are unequal"
    plain = [replace(one, cluster=None) for one in shards]
    assert tl.Log.concat(plain).fingerprint() == replace(log, cluster=None).fingerprint()


def test_every_way_to_index_a_column_on_disk() -> None:
    parts = [
        np.arange(first * 6, last * 6, dtype=np.int32).reshape(-1, 2, 3) for first, last in ((0, 4), (4, 5), (5, 9))
    ]
    whole, joined = np.concatenate(parts), ShardedArray(parts)
    flags = np.arange(9) % 2 == 0
    rows, one = np.array([8, -1, 0, 4, 4]), np.int64(4)
    keys: list[Any] = [
        3,
        -1,
        one,
        slice(None),
        slice(3, 6),
        slice(8, 2, -2),
        slice(5, 5),
        [0, 8],
        rows,
        flags,
        None,
        ...,
    ]
    keys += [flags.tolist(), rows.reshape(-1, 1), np.array([], int), (rows, 1), (rows, slice(None), 2), (3, 1, 2)]
    keys += [(slice(2, 7), 0), (..., 2), (rows, np.array([0, 1, 0, 1, 1]))]
    for key in keys:
        np.testing.assert_array_equal(joined[key], whole[key], str(key))
    for wrong in (9, -10, [0, 9], np.ones(8, bool)):
        with pytest.raises(IndexError):
            joined[wrong]
    assert (len(joined), joined.shape, joined.ndim, joined.size, joined.nbytes) == (9, (9, 2, 3), 3, 54, 216)
    for axis in (None, 0, 1):
        assert np.array_equal(joined.min(axis=axis), whole.min(axis=axis))
        assert np.array_equal(joined.max(axis), whole.max(axis))
    assert np.array_equal(joined - 1 > rows[0], whole - 1 > rows[0])
    assert np.array_equal(np.stack(list(joined)), whole)
    assert joined.astype(float).mean() == joined.reshape(-1).mean() == np.mean(joined) == whole.mean()
    assert np.asarray(joined, np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="copied into memory"):
        np.asarray(joined, copy=False)
    with pytest.raises(TypeError):
        np.add(whole, 1, out=joined)


@pytest.mark.parametrize("count", [0, 13, True, 2.0])
def test_more_shards_than_episodes_are_refused(log: Log, count: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"shards = {count}: expected 1 to 12"):
        log.save(tmp_path / "log", shards=count)
    assert not list(tmp_path.iterdir())


def test_each_shard_has_an_episode_whatever_their_lengths(tmp_path: Path) -> None:
    lengths = np.array([50, 1, 1, 1, 40, 1])
    episode = np.repeat(np.arange(6), lengths)
    whole = Log.from_arrays(observation=np.ones(94), action=np.arange(94) % 2, reward=np.ones(94), episode=episode)
    for count in range(1, 7):
        whole.save(tmp_path / str(count), shards=count)
        assert Log.load(tmp_path / str(count)).fingerprint() == whole.fingerprint()


def test_a_saved_log_is_replaced_by_shards_and_back(log: Log, tmp_path: Path) -> None:
    log.save(tmp_path / "log")
    with pytest.raises(LogError, match="exists"):
        log.save(tmp_path / "log", shards=2)
    log.save(tmp_path / "log", overwrite=True, shards=2)
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == [
        "manifest.json", "shard-0000.tidelog", "shard-0001.tidelog",
    ]  # fmt: skip
    assert convert(tmp_path / "log", tmp_path / "three.tidelog", shards=3) == f"{tmp_path}/three.tidelog with 3 shards"
    log.save(tmp_path / "log", overwrite=True)
    assert Log.load(tmp_path / "log").fingerprint() == Log.load(tmp_path / "three.tidelog").fingerprint()
    assert [path.name for path in tmp_path.iterdir()] in (["log", "three.tidelog"], ["three.tidelog", "log"])
    with pytest.raises(ConfigError, match="has no shards"):
        convert(tmp_path / "log", tmp_path / "log.npz", shards=3)


def _change(folder: Path, damage: str) -> None:
    second = folder / "shard-0001.tidelog"
    manifest = json.loads((folder / "manifest.json").read_text())
    if damage in ("missing", "doubled", "foreign", "swapped"):
        shutil.rmtree(second)
    if damage == "doubled":
        shutil.copytree(folder / "shard-0000.tidelog", second)
    elif damage == "swapped":
        (folder / "shard-0002.tidelog").rename(second)
    elif damage == "foreign":
        arrays = {"observation": np.ones(4), "action": np.arange(4) % 2, "reward": np.ones(4)}
        Log.from_arrays(**arrays).save(second)
    elif damage == "empty":
        for path in second.iterdir():
            path.unlink()
    elif damage == "cut":
        file = next(second.glob("*observation_numeric.npy"))
        file.write_bytes(file.read_bytes()[:-4])
    elif damage == "changed":
        file = next(second.glob("*reward.npy"))
        file.write_bytes(file.read_bytes()[:-4] + b"abcd")
    elif damage == "listed twice":
        manifest["shards"][1] = manifest["shards"][0]
    elif damage == "none listed":
        manifest["shards"] = []
    elif damage == "outside":
        manifest["shards"][1]["folder"] = "../shard-0001.tidelog"
    elif damage == "later version":
        manifest["schema"] = 9
    if damage in ("listed twice", "none listed", "outside", "later version"):
        body = {name: value for name, value in manifest.items() if name not in ("kind", "schema", "files", "sha256")}
        text = storage.SHARDED.text(body, {})
        text = text if damage != "later version" else text.replace(b'"schema": 1', b'"schema": 9')
        (folder / "manifest.json").write_bytes(text)
    elif damage == "manifest":
        (folder / "manifest.json").write_text((folder / "manifest.json").read_text().replace("EUR", "USD"))


FOUND = {
    "missing": "shard-0001.tidelog.*the shard is missing",
    "empty": "the shard has no manifest.json",
    "doubled": "another log is in the place of this shard",
    "foreign": "another log is in the place of this shard",
    "swapped": "another log is in the place of this shard",
    "cut": "observation_numeric.npy has [0-9,]+ bytes: expected",
    "changed": "reward.npy was changed after it was written",
    "listed twice": "the manifest lists this shard twice",
    "none listed": "shards: Expected `array` of length >= 1",
    "outside": "Expected `str` matching regex",
    "later version": "has schema version 9, this tidelog reads 1",
    "manifest": "was changed after it was written",
}


@pytest.mark.parametrize("damage", FOUND)
@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.sample(every=3)
def test_shards_that_are_not_those_of_the_log_are_named(
    log: Log, damage: str, memory_map: bool, tmp_path: Path
) -> None:
    log.save(tmp_path / "log", shards=3)
    _change(tmp_path / "log", damage)
    if damage == "changed" and memory_map:  # as of every mapped log, sizes are compared
        Log.load(tmp_path / "log", memory_map=True)
        return
    with pytest.raises(LogError) as caught:
        Log.load(tmp_path / "log", memory_map=memory_map)
    assert re.search(FOUND[damage] + ".* fix: ", " ".join(str(caught.value).split()))


def test_shards_without_a_manifest_are_no_log(log: Log, tmp_path: Path) -> None:
    log.save(tmp_path / "log", shards=2)
    (tmp_path / "log" / "manifest.json").unlink()
    with pytest.raises(LogError, match=r"has no manifest\.json"):
        Log.load(tmp_path / "log")
    with pytest.raises(LogError):
        read_log(tmp_path / "log")


@pytest.mark.parametrize("memory_map", [False, True])
def test_the_memory_is_checked_before_it_is_taken(
    log: Log, memory_map: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.save(tmp_path / "log", shards=2)
    needed: list[int] = []
    monkeypatch.setattr(storage, "shortage", lambda size: needed.append(size) or "too little memory")  # type: ignore[func-returns-value]
    with pytest.raises(LogError, match="too little memory") as caught:
        Log.load(tmp_path / "log", memory_map=memory_map)
    assert ("memory_map=True" in str(caught.value)) == (not memory_map)
    columns = log.columns().values()
    assert needed == [sum(one.nbytes for one in columns if not memory_map or one.ndim == 1)]


@pytest.mark.full
def test_a_policy_and_its_verdict_are_those_of_the_whole_log(tmp_path: Path) -> None:
    """Training reads a mapped log in shards from disk; the judge sees the same numbers in every number of shards."""
    train, held_out = tl.collect("treatment", episodes=400, seed=0).split(0.5, seed=0)
    verdicts, weights = [], []
    for count in (None, *COUNTS):
        parts = []
        for name, part in (("train", train), ("held_out", held_out)):
            part.save(tmp_path / f"{name}-{count}", shards=count)
            parts.append(Log.load(tmp_path / f"{name}-{count}", memory_map=count is not None))
        assert is_mapped(parts[0]) == (count is not None)
        policy = tl.fit(tl.BC(hidden=(8,), batch_size=32), parts[0], steps=20, progress=False).policy()
        verdict = tl.judge(policy, parts[1], sample=True, model="tabular", ledger=False, progress=False)
        told = verdict.to_json()
        told["context"].pop("log"), told["context"].pop("versions")
        verdicts.append(json.dumps(told, default=str))
        weights.append([leaf.tobytes() for leaf in named_arrays(policy.params).values()])
    assert verdicts == [verdicts[0]] * 4
    assert weights == [weights[0]] * 4
