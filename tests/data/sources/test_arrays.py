"""D4RL and OGBench files made here from one log: what is known of each step is what was put in."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tidelog.data.log import Log
from tidelog.data.read import read_log, validate
from tidelog.errors import ConfigError, LogError
from tidelog.recommend.read import reopen_any
from tidelog.types import Codes

LENGTHS = (4, 2, 5, 1, 3) * 3
ROWS = sum(LENGTHS)
ENDS = np.isin(np.arange(ROWS), np.cumsum(LENGTHS) - 1)
DIED = ENDS & (np.repeat(np.arange(len(LENGTHS)), LENGTHS) % 3 == 0)


def walk() -> dict[str, np.ndarray]:
    """Observations now and afterwards, where the last of an episode is followed by something of its own."""
    rng = np.random.default_rng(3)
    observation = rng.normal(size=(ROWS, 3)).astype(np.float32)
    following = np.roll(observation, -1, axis=0)
    following[ENDS] = rng.normal(size=(int(ENDS.sum()), 3))
    return {
        "observation": observation, "next_observation": following, "terminated": DIED, "truncated": ENDS & ~DIED,
        "action": rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32), "reward": rng.normal(size=ROWS).astype(np.float32),
        "episode": np.repeat(np.arange(len(LENGTHS)), LENGTHS),
    }  # fmt: skip


WALK = walk()
EXPECTED = Log.from_arrays(**WALK)


def hdf5(path: Path, *left_out: str, **changes: Any) -> Path:
    arrays = {
        "observations": WALK["observation"], "actions": WALK["action"], "rewards": WALK["reward"][:, None],
        "terminals": WALK["terminated"], "timeouts": WALK["truncated"], "next_observations": WALK["next_observation"],
        "infos/qpos": np.zeros((ROWS, 2)), "metadata/algorithm": "SAC", **changes,
    }  # fmt: skip
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            if name not in left_out:
                file[name] = values
    return path


def notes(log: Log) -> str:
    return " ".join(one.found for one in log.report.notes if one.check == "converted")


def d4rl_npz(path: Path, *left_out: str, **changes: Any) -> Path:
    arrays = {
        "observations": WALK["observation"], "actions": WALK["action"], "rewards": WALK["reward"],
        "terminals": WALK["terminated"], "timeouts": WALK["truncated"], "next_observations": WALK["next_observation"],
        "qpos": np.zeros((ROWS, 2)), **changes,
    }  # fmt: skip
    np.savez(path, **{name: values for name, values in arrays.items() if name not in left_out})
    return path


def test_d4rl_names_in_an_npz_file_are_read_as_in_hdf5(tmp_path: Path) -> None:
    """OGBench has these names too, but rewards only with masks, and no timeouts: ten episodes became one."""
    for left_out in ((), ("next_observations",), ("timeouts",), ("timeouts", "next_observations")):
        log = read_log(d4rl_npz(tmp_path / "a.npz", *left_out))
        assert log.fingerprint() == read_log(hdf5(tmp_path / "a.hdf5", *left_out), format="d4rl").fingerprint()
        assert "not read: qpos" in notes(log)
        assert validate(tmp_path / "a.npz").ok
    assert read_log(d4rl_npz(tmp_path / "a.npz"), format="d4rl").fingerprint() == EXPECTED.fingerprint()


FIRSTS = np.append(True, ENDS[:-1])
SPELLINGS = {
    "truncations": WALK["truncated"], "truncated": WALK["truncated"], "is_last": ENDS, "episode_terminals": ENDS,
    "is_first": FIRSTS, "episode_starts": FIRSTS.astype(np.float32), "episode_id": WALK["episode"],
    "trajectory": np.array([b"a", b"b"])[WALK["episode"] % 2],
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("kind", ["hdf5", "npz"])
def test_every_spelling_of_an_end_is_read(name: str, kind: str, tmp_path: Path) -> None:
    write = hdf5 if kind == "hdf5" else d4rl_npz
    log = read_log(write(tmp_path / f"a.{kind}", "timeouts", **{name: SPELLINGS[name]}))
    assert log.fingerprint() == EXPECTED.fingerprint()
    for other in ("dones", "terminations"):
        renamed = {name: SPELLINGS[name], other: WALK["terminated"]}
        log = read_log(write(tmp_path / f"b.{kind}", "timeouts", "terminals", **renamed))
        assert log.fingerprint() == EXPECTED.fingerprint()


@pytest.mark.parametrize(
    ("write", "changes", "names"),
    [
        (hdf5, {"dones": ENDS}, "terminals and dones"),
        (d4rl_npz, {"dones": ENDS}, "terminals and dones"),
        (hdf5, {"masks": 1.0 - DIED}, "masks"),
        (d4rl_npz, {"masks": 1.0 - DIED}, "timeouts, which would not be read"),
        (d4rl_npz, {"timeouts": np.array([None] * ROWS)}, "values of type object"),
    ],
)
def test_ends_that_would_not_be_read_are_refused(
    write: Any, changes: dict[str, Any], names: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"a.{'npz' if write is d4rl_npz else 'hdf5'}", **changes)
    with pytest.raises(LogError, match=names):
        read_log(path)
    assert len(validate(path).errors) == 1


def test_no_reader_of_other_layouts_passes_over_an_end(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **WALK, dones=np.array([None] * ROWS))
    regular(tmp_path / "d.npz", is_last=ENDS)
    for name in ("a.npz", "d.npz"):
        with pytest.raises(LogError, match="unread ends"):
            read_log(tmp_path / name)


def test_d4rl_without_timeouts_breaks_where_next_observations_do(tmp_path: Path) -> None:
    log = read_log(hdf5(tmp_path / "a.hdf5", "timeouts"), format="d4rl")
    assert log.fingerprint() == EXPECTED.fingerprint()
    assert "next_observations are discontinuous at the end of 10 episodes" in notes(log)
    log = read_log(hdf5(tmp_path / "b.hdf5", "timeouts", "next_observations"), format="d4rl")
    np.testing.assert_array_equal(log.terminated, DIED)
    assert "only terminals end an episode" in notes(log)


@pytest.mark.parametrize(
    ("left_out", "changes", "check"),
    [
        (("rewards",), {}, "missing column"),
        (("observations", "observations"), {"obs": 1}, "missing column"),
        ((), {"rewards": np.zeros(3)}, "wrong length"),
        ((), {"terminals": np.full(ROWS, 2)}, "flag neither true nor false"),
        ((), {"observations": np.full((ROWS, 3), np.nan)}, "NaN or infinity"),
        ((), {"next_observations": np.zeros((ROWS, 3))}, "next observation contradicts the following row"),
        ((), {"next_observations": np.zeros((ROWS, 4))}, "changing shapes"),
        ((), {"terminals": np.array(["no"] * ROWS, "S")}, "non-numeric text"),
        ((), {"actions": np.array(["up"] * ROWS, "S")}, "non-numeric text"),
        ((), {"observations": np.zeros((ROWS, 3, 2))}, "changing shapes"),
    ],
)
def test_broken_d4rl_files(left_out: tuple[str, ...], changes: dict[str, Any], check: str, tmp_path: Path) -> None:
    path = hdf5(tmp_path / "a.hdf5", *left_out, **changes)
    with pytest.raises(LogError, match=check):
        read_log(path, format="d4rl")
    assert check in {one.check for one in validate(path).errors}


def regular(path: Path, **changes: Any) -> Path:
    arrays = {
        "observations": WALK["observation"], "next_observations": WALK["next_observation"], "actions": WALK["action"],
        "terminals": ENDS.astype(np.float32), "rewards": WALK["reward"], "masks": 1.0 - DIED, "qpos": np.zeros(ROWS),
    }  # fmt: skip
    np.savez(path, **{**arrays, **changes})
    return path


def downloaded(path: Path, *more: str) -> Path:
    """T + 1 rows an episode: the last observation stands behind each, with an action that led nowhere."""
    after = np.flatnonzero(ENDS) + 1
    rows = {name: np.insert(WALK[name], after, 0, axis=0) for name in ("observation", "action", "reward")}
    last = after + np.arange(len(after))
    rows["observation"][last] = WALK["next_observation"][ENDS]
    terminals = np.zeros(ROWS + len(after), np.float32)
    terminals[last] = 1
    masks = np.insert(1.0 - DIED, after, 1)
    arrays = {"observations": rows["observation"], "actions": rows["action"], "terminals": terminals}
    optional = {"rewards": rows["reward"], "masks": masks}
    np.savez(path, **arrays, **{name: optional[name] for name in more})
    return path


def test_ogbench_in_two_layouts(tmp_path: Path) -> None:
    log = read_log(regular(tmp_path / "a.npz"), format="ogbench")
    assert log.fingerprint() == EXPECTED.fingerprint() == read_log(tmp_path / "a.npz").fingerprint()
    assert "not read: qpos" in notes(log)
    log = read_log(downloaded(tmp_path / "b.npz", "rewards", "masks"), format="ogbench")
    assert log.fingerprint() == EXPECTED.fingerprint()
    assert "15 last rows of recordings" in notes(log)
    regular(tmp_path / "c.npz", valids=1 - ENDS)  # the compact layout, which OGBench makes in memory
    with pytest.raises(LogError, match="unread ends"):
        read_log(tmp_path / "c.npz", format="ogbench")


def test_ogbench_masks_inside_a_recording_split_it(tmp_path: Path) -> None:
    masks = 1.0 - DIED
    masks[1] = 0
    log = read_log(regular(tmp_path / "a.npz", masks=masks), format="ogbench")
    assert len(log.episodes) == len(LENGTHS) + 1
    assert [len(episode) for episode in log.episodes[:3]] == [2, 2, 2]
    np.testing.assert_array_equal(log.terminated, masks == 0)
    np.testing.assert_array_equal(log.transitions.next_observation["observation"], WALK["next_observation"])
    assert "1 row with masks 0 inside a recording" in notes(log)


@pytest.mark.parametrize(
    ("changes", "check"),
    [({"rewards": np.zeros(3)}, "wrong length"), ({"terminals": np.float32(1)}, "wrong length"),
     ({"masks": np.ones((ROWS, 2))}, "wrong length"), ({"terminals": np.array(["no"] * ROWS)}, "non-numeric text"),
     ({"actions": np.array([{}], object)}, "unreadable file"), ({"rewards": np.full(ROWS, np.inf)}, "NaN or infinity")],
)  # fmt: skip
def test_broken_ogbench_files(changes: dict[str, Any], check: str, tmp_path: Path) -> None:
    path = regular(tmp_path / "a.npz", **changes)
    with pytest.raises(LogError, match=check):
        read_log(path, format="ogbench")
    assert validate(path).errors[0].check == check


def test_an_archive_of_other_names_is_read_as_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **WALK)
    assert read_log(tmp_path / "a.npz").fingerprint() == EXPECTED.fingerprint()
    with pytest.raises(LogError, match="missing column"):
        read_log(tmp_path / "a.npz", format="ogbench")
    log = read_log(regular(tmp_path / "b.npz"), format="ogbench")
    assert log.origin is not None
    assert log.origin["format"] == "ogbench"
    assert reopen_any(log.origin).fingerprint() == log.fingerprint()
    with pytest.raises(LogError, match="did you mean 'observation'"):
        read_log(tmp_path / "b.npz", format="npz")
    with pytest.raises(ConfigError, match=r"expected one of npz, d4rl.*did you mean 'd4rl'"):
        read_log(tmp_path / "b.npz", format="d4r")
    with pytest.raises(ConfigError, match="expected one file"):
        read_log(17, format="npz")
    with pytest.raises(ConfigError, match="only tables use a mapping"):
        read_log(tmp_path / "b.npz", {"observation": "x", "action": "a"}, format="d4rl")
    assert validate(tmp_path / "a.npz", format="ogbench").errors[0].check == "missing column"


def test_codes_stay_numbers_where_a_format_has_no_categories(tmp_path: Path) -> None:
    whole = np.arange(ROWS)[:, None]
    log = read_log(hdf5(tmp_path / "a.hdf5", "next_observations", observations=whole), format="d4rl")
    assert not any(isinstance(leaf, Codes) for leaf in log.spec.observation.values())
