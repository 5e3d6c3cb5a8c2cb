"""Atari's games by themselves where the extra is installed, the turn of their pictures, and what is said without it.

The example for envpool by a look-alike that restarts in the next step and is seeded when made, and by itself where
installed.
"""

import importlib.util
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from tests.envs.corridor import idle
from tidelog.envs import make, play
from tidelog.envs.gym import ChannelsLast, channels_last
from tidelog.errors import ConfigError
from tidelog.types import Discrete, Image

played = pytest.mark.skipif(
    importlib.util.find_spec("ale_py") is None, reason="ale-py is not installed: pip install ale-py"
)


class Frames:
    """Two copies whose frame `c` shows the number 10 * c + row."""

    single_observation_space = spaces.Box(0, 255, (3, 6, 5), np.uint8)
    single_action_space, num_envs, metadata = spaces.Discrete(2), 2, {}

    def shown(self):
        rows = 10 * np.arange(3)[:, None, None] + np.arange(6)[:, None]
        return np.broadcast_to(rows, (2, 3, 6, 5)).astype(np.uint8)

    closed = False

    def close(self):
        self.closed = True

    def reset(self, seed=None):
        return self.shown(), {"seed": seed}

    def step(self, action):
        return self.shown(), np.ones(2), np.zeros(2, bool), np.zeros(2, bool), {}


def test_channels_are_turned_and_nothing_else():
    source = channels_last(Frames())
    assert isinstance(source, ChannelsLast)
    assert source.single_observation_space.shape == (6, 5, 3)
    shown, info = source.reset(seed=4)
    assert info == {"seed": 4}
    assert shown[1, 2, 4].tolist() == [2, 12, 22]
    assert source.step(None)[1].tolist() == [1, 1]
    source.close()
    assert source._source.closed
    assert channels_last(source) is source
    for shape, turned in (((12, 64, 64), True), ((4, 10, 10), True), ((64, 64, 12), False), ((10, 10, 6), False)):
        stack = SimpleNamespace(
            single_observation_space=spaces.Box(0, 255, shape, np.uint8), single_action_space=None, num_envs=1,
            metadata={},
        )  # fmt: skip
        assert (channels_last(stack) is not stack) == turned, shape


def test_without_the_extra_the_line_that_installs_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ConfigError, match=r"pip install 'ale-py"):
        make("ALE/Pong-v5", 2)


@played
def test_a_game_shows_four_grey_frames_and_restarts_are_no_decisions():
    environment = make("ALE/Pong-v5", 2)
    assert environment.spec.observation == {"observation": Image(84, 84, 4)}
    assert environment.spec.action == Discrete(6)
    seen = environment.reset(2**31).observation["observation"]
    assert (seen.shape, seen.dtype) == ((2, 84, 84, 4), np.uint8)
    rows = [environment.step(np.array([2, 3])) for _ in range(1100)]
    ended = np.asarray([row.terminated | row.truncated for row in rows])
    assert ended.any()
    valid = np.asarray([np.ones(2, bool) if row.valid is None else row.valid for row in rows])
    np.testing.assert_array_equal(~valid[1:], ended[:-1])
    environment.close()


@played
def test_unknown_games_are_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'ALE/Pong-v5'"):
        make("ALE/Pog-v5", 1)


class Lookalike:
    """Copy `w` shows (a random mark of the episode, the step) and ends after 2 + w steps."""

    single_observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs, seed):
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs, self.seed, self.closed = num_envs, seed, False
        self.generator = np.random.default_rng(seed)

    def reset(self):  # envpool warns where it is given a seed
        self.mark, self.age = self.generator.random(self.num_envs), np.zeros(self.num_envs, int)
        self.ended = np.zeros(self.num_envs, bool)
        return self.shown(), {}

    def shown(self):
        return np.stack([self.mark, self.age], 1).astype(np.float32)

    def step(self, action):
        assert action.dtype == np.int64
        restarting = self.ended
        self.age = np.where(restarting, 0, self.age + 1)
        self.mark[restarting] = self.generator.random(restarting.sum())
        self.ended = self.age == 2 + np.arange(self.num_envs)
        reward = np.where(restarting, 0, 1).astype(np.float32)
        return self.shown(), reward, self.ended, np.zeros_like(self.ended), {}

    def close(self):
        self.closed = True


def test_the_pool_of_the_example_repeats_seeds_and_its_restarts_are_no_decisions(monkeypatch):
    made = []

    def maker(name, num_envs, seed):
        made.append(Lookalike(num_envs, seed))
        return made[-1]

    monkeypatch.setitem(sys.modules, "envpool", SimpleNamespace(make_gymnasium=maker))
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples/envpool_games.py"))
    environment = make(example["pool"]("CartPole-v1", 3), 3)
    first, again, other = (play(environment, idle, episodes=9, seed=seed) for seed in (1, 1, 2))
    assert first.lengths.tolist() == [2, 3, 4] * 3
    assert (first.reward == 1).all()
    np.testing.assert_array_equal(first.observation["observation"], again.observation["observation"])
    assert not set(first.observation["observation"][:, 0]) & set(other.observation["observation"][:, 0])
    joined = first.episode[1:] == first.episode[:-1]
    following = first.next_observation["observation"][:-1][joined]
    np.testing.assert_array_equal(following, first.observation["observation"][1:][joined])
    assert [one.closed for one in made] == [True] * (len(made) - 1) + [False]
    assert all(0 <= one.seed < 2**31 for one in made)


def test_envpool_itself_loses_and_invents_nothing():
    pytest.importorskip("envpool", reason="envpool is not installed: pip install envpool")
    pool = runpy.run_path(str(Path(__file__).parents[2] / "examples/envpool_games.py"))["pool"]
    played, again = (play(make(pool("CartPole-v1", 6), 6), idle, episodes=40, seed=3) for _ in range(2))
    np.testing.assert_array_equal(played.observation["observation"], again.observation["observation"])
    joined = played.episode[1:] == played.episode[:-1]
    seen, followed = played.observation["observation"], played.next_observation["observation"]
    np.testing.assert_array_equal(followed[:-1][joined], seen[1:][joined])
    assert (played.reward == 1).all()
