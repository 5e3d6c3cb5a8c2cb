"""Rewards whose differences are small beside their size: refused where 32 bits lose them, at every entrance."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tidelog.data.raw import LOST, ROUNDED, rounded_share
from tidelog.data.read import read_log

ROWS = 60
RNG = np.random.default_rng(0)
SMALL = np.arange(ROWS) % 2.0
MAPPING = {"observation": "o", "action": "a", "reward": "r", "terminated": True}


def frame(rewards: Any) -> pl.DataFrame:
    return pl.DataFrame({"o": RNG.random(ROWS), "a": np.arange(ROWS) % 3, "r": rewards})


def arrays(rewards: Any, folder: Path) -> tl.Log:
    observation, action = RNG.random((ROWS, 2)).astype(np.float32), np.arange(ROWS) % 3
    return tl.Log.from_arrays(observation=observation, action=action, reward=rewards, terminated=True)


def csv(rewards: Any, folder: Path) -> tl.Log:
    frame(rewards).write_csv(folder / "a.csv")
    return read_log(folder / "a.csv", MAPPING)


def parquet(rewards: Any, folder: Path) -> tl.Log:
    frame(rewards).write_parquet(folder / "a.parquet")
    return read_log(folder / "a.parquet", MAPPING)


def words(rewards: Any, folder: Path) -> tl.Log:
    values = {f"w{value:.6f}": float(value) for value in np.unique(rewards)}
    table = frame([f"w{value:.6f}" for value in rewards])
    return read_log(table, MAPPING | {"reward_values": values})


def weighted(rewards: Any, folder: Path) -> tl.Log:
    table = frame(rewards).with_columns(s=pl.col("r") * 0 + 1.0)
    return read_log(table, MAPPING | {"reward": ["r", "s"], "reward_weights": [1.0, 2.0]})


def npz(rewards: Any, folder: Path) -> tl.Log:
    np.savez(folder / "a.npz", observation=RNG.random((ROWS, 2)), action=np.arange(ROWS) % 3, reward=rewards)
    return read_log(folder / "a.npz")


def d4rl(rewards: Any, folder: Path) -> tl.Log:
    with h5py.File(folder / "a.hdf5", "w") as file:
        file["observations"], file["actions"] = RNG.random((ROWS, 2)), RNG.random((ROWS, 1))
        file["rewards"], file["terminals"] = rewards, np.arange(ROWS) % 6 == 5
    return read_log(folder / "a.hdf5")


def interactions(rewards: Any, folder: Path) -> Any:
    table = pl.DataFrame({"u": np.arange(ROWS) // 4, "i": np.arange(ROWS) % 5, "t": np.arange(ROWS), "r": rewards})
    return tl.read_interactions(table, user="u", item="i", time="t", reward="r")


def kinds(rewards: Any, folder: Path) -> Any:
    table = pl.DataFrame({"u": np.arange(ROWS) // 4, "i": np.arange(ROWS) % 5, "t": np.arange(ROWS)})
    table = table.with_columns(e=pl.Series(np.where(rewards > rewards.min(), "buy", "click")))
    worth = {"buy": float(rewards.max()), "click": float(rewards.min())}
    return tl.read_interactions(table, user="u", item="i", time="t", event="e", reward=worth)


@pytest.mark.parametrize(
    "entrance",
    [arrays, csv, parquet, words, weighted, npz, d4rl, interactions, kinds],
    ids=lambda one: one.__name__,
)
def test_rewards_that_are_lost_are_refused_at_every_entrance(entrance: Any, tmp_path: Path) -> None:
    with pytest.raises(tl.LogError, match=LOST) as refused:
        entrance(1e8 + SMALL, tmp_path)
    (problem,) = [one for one in refused.value.report.errors if one.check == LOST]
    assert "rewards are stored in 32 bits" in problem.found
    assert problem.fix.startswith("subtract a constant")
    log = entrance(1e6 + SMALL, tmp_path)  # the differences fit
    assert sorted({float(one) for one in np.asarray(log.reward)}) == [
        1e6 + 2.0 * (entrance is weighted) + one for one in (0, 1)
    ]
    assert not {LOST, ROUNDED} & {one.check for one in log.report.problems}
    log = entrance(1e6 + 0.7 * SMALL, tmp_path)
    assert ROUNDED in {one.check for one in log.report.warnings}


def test_the_share_is_that_of_the_spread_by_hand() -> None:
    """Beside 2**27, neighbours are 16 apart in 32 bits (8 below): 2**27 + 1 is rounded by 1, and 2**27 by nothing.

    The spread of 0 and 1 in equal parts is 1/2, and the root mean square of the errors sqrt(1/2).
    """
    assert rounded_share(2.0**27 + SMALL) == pytest.approx(np.sqrt(2.0))
    assert rounded_share(2.0**27 + 16.0 * SMALL) == 0.0
    assert rounded_share(np.full(ROWS, 1e8 + 1.0)) == 0.0  # equal rewards have no differences to lose
    one_other = np.append(2.0**27 + SMALL, 0.0)
    assert rounded_share(one_other) > 0.4  # a single other reward does not hide it
    large = np.append(SMALL, 123456789.0)
    assert rounded_share(large) < 1e-6  # and a single large one loses nothing for the others
