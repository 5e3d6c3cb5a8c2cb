"""Procgen: by itself where its package is installed; what is said where it is not."""

import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest

from examples import procgen_games
from examples.procgen_games import procgen
from tidelog.errors import ConfigError

MISSING = [name for name in ("procgen", "gym3") if importlib.util.find_spec(name) is None]
played = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed: {procgen_games.INSTALL}")
# The package leaves a file of its own open when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def moves(steps, count, seed=0):
    return np.random.default_rng(seed).integers(0, 15, (steps, count))


def taken(environment, actions):
    return [environment.step(action) for action in actions]


def same(one, other):
    np.testing.assert_array_equal(
        one.current_observation.observation["observation"], other.current_observation.observation["observation"]
    )
    np.testing.assert_array_equal(one.reward, other.reward)
    np.testing.assert_array_equal(one.terminated, other.terminated)


def test_without_the_package_the_line_that_installs_it_is_said(monkeypatch):
    monkeypatch.delitem(sys.modules, "procgen.env", raising=False)
    monkeypatch.setitem(sys.modules, "procgen", None)
    with pytest.raises(ConfigError, match="pip install --no-deps procgen-mirror gym3"):
        procgen("coinrun-easy", 2)


def test_the_stand_in_for_gym_is_gone_afterwards(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", ModuleType("gym"))  # one that is installed stays
    before, path = {name: sys.modules.get(name) for name in procgen_games._STAND_INS}, list(sys.path)
    with procgen_games._gym_stub():
        from gym.envs.registration import register

        register(id="none")
        sys.path.append("elsewhere")
    assert {name: sys.modules.get(name) for name in procgen_games._STAND_INS} == before
    assert sys.path == path


@played
def test_it_goes_on_exactly_where_it_was_across_ends_of_episodes():
    first, second = procgen("bigfish-easy", 8), procgen("bigfish-easy", 8)
    first.reset(3)
    taken(first, moves(30, 8))
    saved = first.save_state()
    assert all(array.dtype != object for array in saved.values())
    shown = second.restore_state(saved).observation["observation"]
    np.testing.assert_array_equal(shown, first._shown.observation["observation"])
    ends = 0
    for a, b in zip(taken(first, moves(300, 8, 1)), taken(second, moves(300, 8, 1)), strict=True):
        same(a, b)
        ends += a.terminated.sum()
        if a.terminated.any():
            before, after = (
                shown.observation["observation"][a.terminated] for shown in (a.next_observation, a.current_observation)
            )
            assert (before != after).any()
    assert ends > 8
    with pytest.raises(ConfigError, match="saved games have"):
        second.restore_state({**saved, "games": saved["games"][:-1]})
    with pytest.raises(ConfigError, match="lengths"):
        procgen("bigfish-easy", 2).restore_state(saved)
