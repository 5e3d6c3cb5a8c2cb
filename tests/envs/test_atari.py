"""Atari's games by themselves where the extra is installed, the turn of their pictures, and what is said without it."""

import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from tidelog.envs.channels import ChannelsLast, channels_last
from tidelog.envs.registry import make
from tidelog.errors import ConfigError
from tidelog.types import Discrete, Image

played = pytest.mark.skipif(
    importlib.util.find_spec("ale_py") is None, reason="ale-py is not installed: pip install 'tidelog[atari]'"
)


class Frames:
    """Two copies whose frame `c` shows the number 10 * c + row."""

    single_observation_space = spaces.Box(0, 255, (3, 6, 5), np.uint8)
    single_action_space, num_envs, metadata = spaces.Discrete(2), 2, {}

    def shown(self):
        rows = 10 * np.arange(3)[:, None, None] + np.arange(6)[:, None]
        return np.broadcast_to(rows, (2, 3, 6, 5)).astype(np.uint8)

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
    assert channels_last(source) is source
    for shape, turned in (((12, 64, 64), True), ((4, 10, 10), True), ((64, 64, 12), False), ((10, 10, 6), False)):
        stack = SimpleNamespace(
            single_observation_space=spaces.Box(0, 255, shape, np.uint8), single_action_space=None, num_envs=1,
            metadata={},
        )  # fmt: skip
        assert (channels_last(stack) is not stack) == turned, shape


def test_without_the_extra_the_line_that_installs_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidelog\[atari\]'"):
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
