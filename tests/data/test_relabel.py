"""Goals in hindsight: parts by hand, exact values in a maze for every goal, and what is refused."""

from collections import deque
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tidelog.types import Image, Vector

# Cells of a maze, numbered row by row; # is a wall. Moves: up, down, left, right; one into a wall stays.
MAZE = ["..#...", "..#.#.", "....#.", "##.##.", "......"]
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
CELLS = [(row, column) for row, line in enumerate(MAZE) for column, cell in enumerate(line) if cell == "."]


def moved(cell, move):
    to = (cell[0] + move[0], cell[1] + move[1])
    return CELLS.index(to if to in CELLS else cell)


NEXT = np.asarray([[moved(cell, move) for move in MOVES] for cell in CELLS])


def distances():
    """[S, S]: moves from a cell to another, by breadth-first search; 0 to itself."""
    found = np.full((len(CELLS), len(CELLS)), -1)
    for start in range(len(CELLS)):
        found[start, start], left = 0, deque([start])
        while left:
            cell = left.popleft()
            for after in NEXT[cell]:
                if found[start, after] < 0:
                    found[start, after] = found[start, cell] + 1
                    left.append(after)
    return found


def walks(episodes=150, steps=40, seed=0, **more):
    """Random walks from random cells, cut off after so many steps."""
    rng = np.random.default_rng(seed)
    cell = rng.integers(0, len(CELLS), episodes)
    seen, acted = [cell], []
    for _ in range(steps):
        acted.append(rng.integers(0, 4, episodes))
        seen.append(NEXT[seen[-1], acted[-1]])
    seen, acted = np.stack(seen, 1), np.stack(acted, 1)
    ends = np.tile(np.arange(steps) == steps - 1, episodes)
    return tl.Log.from_arrays(
        observation=seen[:, :-1].ravel(), next_observation=seen[:, 1:].ravel(), action=acted.ravel(), reward=None,
        actions=4, episode=np.repeat(np.arange(episodes), steps), truncated=ends,
        propensity=np.full(episodes * steps, 0.25), sizes={"observation": (len(CELLS),)}, **more,
    )  # fmt: skip


def rows_of(log):
    one = log.transitions
    return (one.observation["observation"][:, 0], one.observation["goal"][:, 0], log.action,
            one.next_observation["observation"][:, 0], log.reward, log.terminated)  # fmt: skip


LINE = {
    "observation": np.asarray([[0.0, 9.0], [1.0, 9.0], [2.0, 9.0], [1.0, 9.0], [5.0, 9.0]], np.float32),
    "next_observation": np.asarray([[1.0, 9.0], [2.0, 9.0], [1.0, 9.0], [3.0, 9.0], [6.0, 9.0]], np.float32),
    "action": [0, 1, 0, 1, 0], "reward": [5.0] * 5, "episode": [0, 0, 0, 0, 1], "truncated": [0, 0, 0, 1, 0],
    "terminated": [0, 0, 0, 0, 1],
}  # fmt: skip


def test_the_last_observation_as_the_goal_by_hand():
    """Walks 0, 1, 2, 1, 3 and 5, 6: the goals are 3 and 6, and only the last decisions reach them."""
    log = tl.relabel(tl.Log.from_arrays(**LINE), {"observation": [0]}, "final")
    assert log.transitions.observation["goal"][:, 0].tolist() == [3.0, 3.0, 3.0, 3.0, 6.0]
    assert log.reward.tolist() == [-1.0, -1.0, -1.0, 0.0, 0.0]
    assert log.terminated.tolist() == [False, False, False, True, True]
    assert log.spec.observation["goal"] == Vector(1)
    assert [len(episode) for episode in log.episodes] == [4, 1]
    assert log.episodes[0].observation["observation"][:, 0].tolist() == [0.0, 1.0, 2.0, 1.0, 3.0]


@pytest.mark.parametrize("strategy", ["future", "geometric"])
def test_every_row_has_a_goal_of_its_future_as_often_as_the_strategy_says(strategy):
    """Cells are numbered by time, so that the goal of row t says how far it is: t + 1 to T, alike or geometrically."""
    steps, episodes = 6, 4_000
    time = np.tile(np.arange(steps), episodes)
    log = tl.Log.from_arrays(
        observation=time, next_observation=time + 1, action=time % 2, reward=None,
        episode=np.repeat(np.arange(episodes), steps), truncated=time == steps - 1,
    )  # fmt: skip
    found = tl.relabel(log, "observation", strategy, mean_steps=2.0)
    cell, goal, *_ = rows_of(found)
    assert found.steps == log.steps
    assert np.bincount(cell).tolist() == [episodes] * steps
    for t in range(steps):
        ahead = steps - t
        wanted = np.full(ahead, 1 / ahead) if strategy == "future" else 0.5 ** np.arange(1, ahead + 1)
        wanted[-1] += 1 - wanted.sum()
        shares = np.bincount(goal[cell == t] - t - 1, minlength=ahead) / episodes
        assert shares == pytest.approx(wanted, abs=4.5 * np.sqrt(0.25 / episodes))


def test_the_values_of_every_goal_are_the_shortest_paths_of_the_maze():
    """At discount 1 the best decision's value is minus the moves that are left after it; nothing is estimated."""
    cell, goal, action, after, reward, terminated = rows_of(tl.relabel(walks(400, 120), "observation", copies=12))
    count, away = len(CELLS), distances()
    assert (terminated == (after == goal)).all()
    assert (reward == np.where(terminated, 0.0, -1.0)).all()
    values = np.full((count, count, 4), -np.inf)
    values[cell, goal, action] = 0.0
    shown = np.isfinite(values)
    assert shown.all()
    for _ in range(60):
        target = np.where(terminated, reward, reward + values.max(axis=2)[after, goal])
        values[cell, goal, action] = target
    wanted = -away[NEXT[:, None, :].repeat(count, 1), np.arange(count)[None, :, None]]
    np.testing.assert_array_equal(values, wanted)


@pytest.mark.slow
def test_a_policy_learns_the_shortest_path_to_every_goal():
    log = tl.relabel(walks(400, 120), "observation", copies=4)
    algorithm = tl.DiscreteBCQ(hidden=(128, 128), discount=0.9, threshold=0.0, batch_size=256, reward_scaling="none")
    policy = tl.fit(algorithm, log, steps=6_000, held_out=0.0, progress=False).policy()
    cell, goal = (part.ravel() for part in np.meshgrid(np.arange(len(CELLS)), np.arange(len(CELLS)), indexing="ij"))
    apart = cell != goal
    action = np.asarray(policy.act({"observation": cell[apart, None], "goal": goal[apart, None]})[0])
    away = distances()
    closer = away[NEXT[cell[apart], action], goal[apart]] < away[cell[apart], goal[apart]]
    assert closer.mean() > 0.97


def test_a_log_in_hindsight_is_never_judged(tmp_path):
    log = tl.relabel(walks(30), "observation")
    refused = "goals and rewards were chosen by what happened after the decisions"

    class Even:
        def probabilities(self, observation, mask=None):
            return np.full((len(observation["goal"]), 4), 0.25)

    for judged in (log, log.take_episodes(range(20))):
        with pytest.raises(tl.SpecError, match=refused):
            tl.judge(Even(), judged, sample=True, ledger=False, progress=False, learnt_from="other data")
    with pytest.raises(tl.SpecError, match=refused):
        tl.estimate(Even(), log, ["wis"], sample=True)
    with pytest.raises(tl.SpecError, match=refused):
        tl.simple_rules(log)
    log.save(tmp_path / "log")
    again = tl.Log.load(tmp_path / "log")
    assert (again.hindsight, again.facts()["goals"]) == ("future", "in hindsight (future): not to be judged")
    with pytest.raises(tl.SpecError, match=refused):
        tl.simple_rules(again)
    for write in (
        lambda: log.to_npz(tmp_path / "a.npz"),
        lambda: log.to_parquet(tmp_path / "a.parquet"),
        log.to_arrays,
    ):
        with pytest.raises(tl.LogError, match="goals in hindsight cannot be written as arrays"):
            write()
    with pytest.raises(tl.LogError, match=r"hindsight is absent in log 0 .* but future in log 1"):
        tl.Log.concat([replace(log, hindsight=None), log])


def test_columns_by_name_and_a_leaf_that_is_replaced():
    table = {
        "e": [0, 0, 0],
        "x": [0.0, 1.0, 2.0],
        "y": [5.0, 6.0, 7.0],
        "a": [0, 1, 0],
        "then": [1.0, 2.0, 3.0],
        "up": [6.0, 7.0, 8.0],
    }
    log = tl.read_log(pl.DataFrame(table), tl.Columns(
        episode="e", observation=["x", "y"], next_observation=["then", "up"], action="a", reward=None))  # fmt: skip
    one = tl.relabel(log, "y", "final")
    assert one.spec.observation["goal"] == Vector(1, ("goal y",))
    assert one.transitions.observation["goal"][:, 0].tolist() == [8.0] * 3
    again = tl.relabel(one, "x", "final")  # the goal of before is replaced
    assert again.transitions.observation["goal"][:, 0].tolist() == [3.0] * 3
    with pytest.raises(tl.ConfigError, match="into = 'goal', a leaf of another kind"):
        tl.relabel(one, ["y", "x"], "final")
    both = tl.relabel(one, ["y", "x"], "final", into="aim")
    assert both.spec.observation["aim"].names == ("aim y", "aim x")


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"goal": "observaton"}, tl.ConfigError, "did you mean 'observation'"),
        ({"goal": {"observation": [1]}}, tl.ConfigError, "one leaf and positions of its columns"),
        ({"into": "observation"}, tl.ConfigError, "the leaf that says where one is.*into='aim'"),
        ({"goal": []}, tl.ConfigError, "a leaf of the observation, or columns of one leaf"),
        ({"strategy": "futur"}, tl.ConfigError, "did you mean 'future'"),
        ({"tolerance": -1.0}, tl.ConfigError, "tolerance = -1.0"),
        ({"mean_steps": 0.5}, tl.ConfigError, "mean_steps = 0.5"),
        ({"copies": 0}, tl.ConfigError, "copies = 0"),
        ({"rewards": (0.0, 0.0)}, tl.ConfigError, "the second larger"),
        ({"seed": -1}, tl.ConfigError, "seed"),
    ],
)
def test_settings_out_of_range_are_refused(settings, error, said):
    with pytest.raises(error, match=said):
        tl.relabel(walks(2), **{"goal": "observation", **settings})


def test_logs_without_goals_are_refused():
    one = tl.Log.from_arrays(observation=[0, 1], action=[0, 1], reward=None, terminated=True)
    with pytest.raises(tl.LogError, match="no row has a known next observation"):
        tl.relabel(one, "observation")
    pictures = tl.Log.from_arrays(observation=np.zeros((2, 4, 4, 1), np.uint8), action=[0, 1], reward=None)
    assert isinstance(pictures.spec.observation["observation"], Image)
    with pytest.raises(tl.SpecError, match="a leaf of pictures"):
        tl.relabel(pictures, "observation")
