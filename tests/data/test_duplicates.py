"""Copies of rows and of episodes are said; rows that repeat because there are few of them are not."""

from typing import Any

import numpy as np
import pytest

from tidelog.data.log import Log

Given = dict[str, Any]


def events(rows: int = 1000, seed: int = 0) -> Given:
    """One-step events with continuous contexts and rewards of 0 and 1."""
    rng = np.random.default_rng(seed)
    return {
        "observation": rng.normal(size=(rows, 3)).astype(np.float32), "action": rng.integers(0, 4, rows),
        "reward": (rng.random(rows) < 0.3).astype(np.float32), "propensity": np.full(rows, 0.25, np.float32),
    }  # fmt: skip


def few(rows: int = 1000, seed: int = 0, cells: int = 5, chances: float = 0.4) -> Given:
    """One-step events with few contexts, two actions and rewards of 0 and 1."""
    rng = np.random.default_rng(seed)
    return {
        "observation": rng.integers(0, cells, rows), "action": rng.integers(0, 2, rows),
        "reward": (rng.random(rows) < chances).astype(np.float32),
    }  # fmt: skip


def taken(given: Given, rows: Any) -> Given:
    return {name: values[rows] for name, values in given.items()}


def said(given: Given, **more: Any) -> list[Any]:
    log = Log.from_arrays(**{"terminated": True, "actions": 4, **given, **more})
    return [one for one in log.report.warnings if one.check == "duplicated rows"]


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("make", [events, lambda: few(200, cells=100_000)])
def test_each_row_repeated_five_times_is_said(make: Any, shuffled: bool) -> None:
    given = make()
    rows = np.repeat(np.arange(len(given["reward"])), 5)
    (problem,) = said(taken(given, np.random.default_rng(1).permutation(rows) if shuffled else rows))
    count = len(rows) // 5
    assert problem.count == 4 * count  # two of the 200 rows are alike by chance for 1 in 20 seeds
    assert problem.found.startswith(f"{4 * count:,} of {5 * count:,} rows are exact copies of earlier ones")
    assert problem.found.endswith("5 times")
    assert "cluster=" in problem.fix
    if not shuffled:
        assert problem.rows == (2, 3, 4, 5, 7, 8, 9, 10, 12, 13)


def test_a_part_of_five_copies_is_said() -> None:
    """Four of five rows of a log whose rows stand there five times: three, four or five are left of most."""
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(400), 5))[:1600]
    assert said(taken(events(), rows))


def test_some_rows_written_twice_are_said() -> None:
    rows = np.concatenate([np.arange(1000), np.arange(250)])
    (problem,) = said(taken(events(), rows))
    assert problem.count == 250
    assert problem.rows[0] == 1001


def test_a_few_copies_are_said_where_rewards_or_times_hardly_repeat() -> None:
    rows, rng = np.concatenate([np.arange(1000), np.arange(8)]), np.random.default_rng(0)
    given = events()
    assert not said(taken(given, rows))  # contexts and 0 or 1 alone may come again
    continuous = given | {"reward": rng.normal(size=1000).astype(np.float32)}
    (problem,) = said(taken(continuous, rows))
    assert problem.count == 8
    moments = given | {"time": np.datetime64("2024-01-01") + rng.integers(0, 10**12, 1000).astype("timedelta64[us]")}
    assert said(taken(moments, rows))[0].count == 8


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "make",
    [
        lambda seed: few(1_000, seed),
        lambda seed: few(200, seed, 3),
        lambda seed: few(20_000, seed, 12, 0.02),
        lambda seed: few(3_000, seed, 2_000),  # few rows a context
        lambda seed: few(1_000, seed, 20_000, 0.0),  # hardly any, and no other reward
        lambda seed: taken(events(400, 1), np.random.default_rng(seed).integers(0, 400, 1000)),  # a pool of contexts
        lambda seed: taken(events(20, 1), np.random.default_rng(seed).integers(0, 20, 1000)),
        lambda seed: taken(events(2_000, 1), np.random.default_rng(seed).zipf(1.3, 3_000) % 2_000),  # unevenly drawn
        lambda seed: {**few(2_000, seed), "time": np.random.default_rng(seed).integers(0, 86_400, 2_000) * 1.0},
        lambda seed: {**few(3_000, seed), "reward": np.random.default_rng(seed).integers(0, 5_000, 3_000) * 0.01},
        lambda seed: events(1000, seed),
        lambda seed: few(60_000, seed, 500),
    ],
    ids=["contexts", "fewer", "rare rewards", "many contexts", "birthdays", "pool", "small pool", "uneven pool",
         "times", "rounded rewards", "continuous", "long"],
)  # fmt: skip
def test_rows_that_repeat_by_chance_are_not_said(make: Any, seed: int) -> None:
    assert not said(make(seed))  # 0 of 3,600 other logs fail


def walk(episodes: int, seed: int = 0, kind: Any = np.float32) -> Given:
    """Episodes of one to six steps."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, episodes)
    rows = int(lengths.sum())
    return {
        "observation": rng.normal(size=(rows, 2)).astype(kind), "action": rng.integers(0, 3, rows),
        "reward": rng.normal(size=rows).astype(np.float32), "lengths": lengths,
    }  # fmt: skip


def repeated(given: Given, ordinals: Any) -> Given:
    """These episodes of a walk one after another, each under a name of its own."""
    starts = np.append(0, np.cumsum(given["lengths"]))
    rows = np.concatenate([np.arange(starts[one], starts[one + 1]) for one in ordinals])
    lengths = given["lengths"][ordinals]
    return taken({name: given[name] for name in ("observation", "action", "reward")}, rows) | {
        "episode": np.repeat(np.arange(len(ordinals)), lengths)
    }


def test_copied_episodes_are_said() -> None:
    given = walk(300)
    ordinals = np.concatenate([np.arange(300), np.arange(30)])
    (problem,) = said(repeated(given, ordinals), terminated=None)
    assert problem.found.startswith("30 of 330 episodes are exact copies of earlier ones")
    assert problem.count == int(given["lengths"][:30].sum())
    (problem,) = said(repeated(given, np.repeat(np.arange(60), 5)), terminated=None)
    assert problem.found.startswith("240 of 300 episodes")
    assert not said(repeated(given, np.arange(300)), terminated=None)


@pytest.mark.parametrize("seed", range(5))
def test_equal_short_episodes_of_a_small_world_are_not_said(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 4, 500)
    rows = int(lengths.sum())
    given = {"observation": rng.integers(0, 3, rows), "action": rng.integers(0, 2, rows),
             "reward": (rng.random(rows) < 0.2).astype(np.float32)}  # fmt: skip
    # 0 of 150 other logs fail
    assert not said(given, terminated=None, episode=np.repeat(np.arange(500), lengths))


def test_copies_within_a_cluster_are_not_said() -> None:
    given = events(200)
    rows = np.repeat(np.arange(200), 5)
    assert not said(taken(given, rows), cluster=rows)
    (problem,) = said(taken(given, rows), cluster=np.tile(np.arange(5), 200))
    assert problem.count == 800


def test_copied_pictures_are_compared_in_every_pixel() -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (100, 16, 16, 3)).astype(np.uint8)
    given = {"observation": pictures, "action": rng.integers(0, 2, 100), "reward": np.zeros(100, np.float32)}
    rows = np.repeat(np.arange(100), 2)
    assert said(taken(given, rows))[0].count == 100
    near = taken(given, rows)
    near["observation"][1::2, 5, 5, 1] ^= 1  # a pixel that no hash looks at
    assert not said(near)


@pytest.mark.parametrize("copied", [False, True])
def test_long_logs_are_looked_at_in_part_and_counted_whole(copied: bool) -> None:
    given = events(150_000)
    rows = np.concatenate([np.arange(150_000), np.arange(30_000 if copied else 0)])
    found = said(taken(given, rows))
    assert [one.count for one in found] == ([30_000] if copied else [])
