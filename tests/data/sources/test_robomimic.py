"""robomimic's HDF5 files: demonstrations in groups of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tidelog as tl
from tests.data.sources.test_hostile import OUTSIDE, elsewhere, refused
from tidelog.data.read import read_log, validate
from tidelog.errors import LogError

LENGTHS = {2: 4, 0: 3, 10: 2}  # in the order of the file; read in the order of their numbers


def demonstrations(path: Path, *, without: tuple[str, ...] = (), dones: dict[int, list[int]] | None = None) -> Path:
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = '{"env_name": "Lift"}'
        for number, length in LENGTHS.items():
            one = data.create_group(f"demo_{number}")
            one.attrs["num_samples"] = length
            rows = 100.0 * number + np.arange(length + 1.0)
            for kind, values in (("obs", rows[:-1]), ("next_obs", rows[1:])):
                one[f"{kind}/eef_pos"] = np.stack([values, -values, values], 1)
                one[f"{kind}/object"] = np.stack([values, values], 1)
            one["actions"] = np.linspace(-1.0, 1.0, length * 2).reshape(length, 2)
            one["rewards"] = (np.arange(length) == length - 1).astype(np.float64)
            one["dones"] = np.asarray((dones or {}).get(number, [0] * (length - 1) + [1]))
            one["states"] = np.zeros((length, 7))
            for name in without:
                del one[name]
        file["mask/train"] = np.asarray([b"demo_0"])
    return path


def test_demonstrations_are_episodes_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    log = read_log(demonstrations(tmp_path / "a.hdf5"))
    assert tl.read_log(tmp_path / "a.hdf5", format="robomimic").fingerprint() == log.fingerprint()
    assert (log.steps, log.starts.tolist()) == (9, [0, 3, 7, 9])
    assert sorted(log.observation) == ["eef_pos", "object"]
    np.testing.assert_allclose(
        log.observation["eef_pos"][log.position][:, 0], [0, 1, 2, 200, 201, 202, 203, 1000, 1001]
    )
    np.testing.assert_allclose(
        log.observation["object"][log.next_position][:, 1], [1, 2, 3, 201, 202, 203, 204, 1001, 1002]
    )
    assert log.terminated.tolist() == [False, False, True, False, False, False, True, False, True]
    assert log.reward.tolist() == [0, 0, 1, 0, 0, 0, 1, 0, 1]
    assert log.action.shape == (9, 2)
    text = log.report.text()
    assert "every demonstration ends with dones 1" in text
    assert "states" in text


def test_a_recording_without_a_done_is_truncated_and_one_inside_ends_an_episode(tmp_path: Path) -> None:
    dones = {0: [0, 0, 0], 2: [0, 1, 1, 1]}
    log = read_log(demonstrations(tmp_path / "a.h5", dones=dones))
    assert log.starts.tolist() == [0, 3, 5, 6, 7, 9]
    assert log.truncated.tolist() == [False, False, True, *[False] * 6]
    assert "2 rows with dones inside a demonstration" in log.report.text()


def at_root(path: Path, name: str = "demo", **changes: Any) -> Path:
    """The same demonstrations without the group `data`, with names as other programs write them."""
    with h5py.File(path, "w") as file:
        for number, length in LENGTHS.items():
            rows = 100.0 * number + np.arange(length + 1.0)
            arrays = {
                "observation": np.stack([rows, -rows], 1),
                "action": np.linspace(-1, 1, length)[:, None],
            } | changes
            one = file.create_group(f"{name}_{number}")
            for member, values in arrays.items():
                if values is not None:
                    one[member] = values(length) if callable(values) else values
        file["version"] = 2
    return path


def test_demonstrations_at_the_root_have_ends_under_their_usual_names(tmp_path: Path) -> None:
    first = {"terminated": lambda n: np.arange(n) == n - 1, "reward": lambda n: np.ones(n)}
    log = read_log(at_root(tmp_path / "a.h5", **first))
    assert log.terminated.sum() == 3
    assert log.reward is not None
    inside = {"truncated": lambda n: np.arange(n) == 0, "obs": lambda n: np.zeros((n, 2)), "observation": None}
    log = read_log(at_root(tmp_path / "b.h5", **inside))
    assert log.starts.tolist() == [0, 1, 3, 4, 7, 8, 9]
    twice = at_root(tmp_path / "c.h5", obs=lambda n: np.zeros((n, 2)))
    assert "is the second array of obs" in refused(twice)
    longer = at_root(tmp_path / "d.h5", observation=lambda n: np.zeros((n + 2, 2)))
    assert "has arrays of " in refused(longer)


def test_a_demonstration_with_an_end_that_is_not_read_is_refused(tmp_path: Path) -> None:
    path = demonstrations(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        for one in file["data"].values():
            one["masks"] = np.ones(len(one["actions"]))
    assert "masks, which would not be read" in refused(path)


def test_files_without_observations_name_the_way_to_them(tmp_path: Path) -> None:
    path = demonstrations(tmp_path / "a.hdf5", without=("obs", "next_obs"))
    with pytest.raises(LogError, match=r"dataset_states_to_obs\.py"):
        read_log(path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda one: one.__delitem__("rewards"), "differs from demo_0 in rewards"),
        (lambda one: one.update({"obs/object": np.zeros((4, 5))}), "differs from demo_0 in obs/object"),
        (lambda one: one.update({"rewards": np.zeros(3)}), "demo_2 has arrays of 3, 4 rows"),
        (lambda one: one.update({"rewards": 1.0}), "demo_2"),
    ],
)
def test_demonstrations_that_differ_are_named(damage: Callable[[Any], None], words: str, tmp_path: Path) -> None:
    path = demonstrations(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        one = file["data/demo_2"]
        if "differs from demo_0 in obs" in words:
            del one["obs/object"]
        elif "rewards" not in words:
            del one["rewards"]
        damage(one)
    assert words in refused(path)


@pytest.mark.parametrize("way", OUTSIDE, ids=lambda way: way.__name__)
def test_they_read_no_other_file(way: Callable[..., None], tmp_path: Path) -> None:
    folder = elsewhere(tmp_path)
    path = demonstrations(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_2/obs"]
        way(file.require_group("data/demo_2/obs"), folder)
    report = validate(path)
    assert not report.ok
    assert OUTSIDE[way] in report.errors[0].found


def test_a_linked_group_of_demonstrations_is_not_followed(tmp_path: Path) -> None:
    demonstrations(tmp_path / "other.hdf5")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["data"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "data")
    assert not validate(tmp_path / "a.hdf5").ok
