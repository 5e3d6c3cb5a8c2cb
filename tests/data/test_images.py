"""Pictures from arrays."""

from pathlib import Path

import numpy as np
import pytest

from tidelog.data.log import Log
from tidelog.data.read import read_log
from tidelog.errors import LogError
from tidelog.types import Image, Vector

PICTURES = np.random.default_rng(0).integers(0, 256, (6, 5, 7, 3), np.uint8)


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
