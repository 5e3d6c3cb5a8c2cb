"""What every kind of environment promises: seeds repeat, and what is saved has the same future, bit for bit."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from tests.envs.corridor import chain
from tidelog.envs import Resumable, make
from tidelog.envs.tabular import PointMass
from tidelog.errors import ConfigError, EnvironmentFailure
from tidelog.types import Discrete

CLASSIC = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"]
MUJOCO = [
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5"),
    *("InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
]
SOURCES = {
    "treatment": lambda count: make("treatment", count),
    "chain": lambda count: make(replace(chain(9, 0.2), horizon=17), count),
    "point-mass": lambda count: PointMass(count, 2),
    **{name: lambda count, name=name: make(name, count) for name in (*CLASSIC, *MUJOCO)},
    **{f"jax:{name}": lambda count, name=name: make(f"jax:{name}", count) for name in ("CartPole-v1", "treatment")},
    "CartPole-v1 alone": lambda count: make(lambda: gymnasium.make("CartPole-v1"), count),
}
FAST = [*SOURCES.keys() - {*MUJOCO}, "Hopper-v5", "Ant-v5", "Humanoid-v5"]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """MuJoCo writes its remarks on some models into a file where it runs."""
    monkeypatch.chdir(tmp_path)


def future(environment, steps, seed):
    """What follows from here under random actions."""
    generator, space, rows = np.random.default_rng(seed), environment.spec.action, []
    for _ in range(steps):
        if isinstance(space, Discrete):
            action = generator.integers(space.n, size=environment.count)
        else:
            action = generator.uniform(space.low, space.high, (environment.count, space.size))
        outcome = environment.step(action)
        rows.append(
            [
                *(outcome.reward.tobytes(), outcome.terminated.tobytes(), outcome.truncated.tobytes()),
                *(leaf.tobytes() for leaf in outcome.next_observation.observation.values()),
                *(leaf.tobytes() for leaf in outcome.current_observation.observation.values()),
            ]
        )
    return rows, outcome.current_observation


def same_future(name, before, after):
    first, second = SOURCES[name](3), SOURCES[name](3)
    assert isinstance(first, Resumable)
    first.reset(5)
    _, seen = future(first, before, 0)
    saved = {key: np.array(value) for key, value in first.save_state().items()}
    second.reset(6)
    future(second, 3, 1)  # a past that has to be forgotten
    shown = second.restore_state(saved)
    for leaf, value in seen.observation.items():
        np.testing.assert_array_equal(shown.observation[leaf], value)
        assert shown.observation[leaf].dtype == value.dtype
    expected, found = future(first, after, 2)[0], future(second, after, 2)[0]
    assert found == expected
    assert second.restore_state(saved) is not None
    assert future(second, after, 2)[0] == expected, "what was saved does not change with the environment"
    again = SOURCES[name](3)
    again.restore_state(saved)  # one that was never reset
    assert future(again, after, 2)[0] == expected
    for one in (first, second, again):
        one.close()


@pytest.mark.sample("CartPole-v1", "Pendulum-v1", "jax:CartPole-v1", "treatment")
@pytest.mark.parametrize("name", sorted(FAST))
def test_what_is_restored_has_the_same_future(name):
    if name in MUJOCO:
        pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'gymnasium[mujoco]'")
    same_future(name, before=11, after=230 if name in {"Pendulum-v1", "jax:CartPole-v1"} else 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUJOCO)
def test_every_mujoco_problem_has_the_same_future(name):
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'gymnasium[mujoco]'")
    same_future(name, before=37, after=300)


KINDS = ["treatment", "point-mass", "CartPole-v1", "CartPole-v1 alone", "jax:CartPole-v1", "jax:treatment"]


@pytest.mark.parametrize("name", KINDS)
def test_seeds_repeat_and_differ_and_copies_differ(name):
    def played(seed):
        environment = SOURCES[name](3)
        with pytest.raises(EnvironmentFailure, match="was not reset"):
            environment.step(np.zeros(3, int))
        seen = environment.reset(seed).observation
        return [leaf.tolist() for leaf in seen.values()], future(environment, 12, 0)[0]

    assert played(1) == played(1)
    assert played(1) != played(2)
    if name in ("point-mass", "CartPole-v1", "CartPole-v1 alone", "jax:CartPole-v1"):
        (rows,) = played(1)[0]
        assert len({tuple(row) for row in rows}) == 3
    with pytest.raises(ConfigError, match="at least 1"):
        make("treatment", 0)


@pytest.mark.parametrize("name", ["treatment", "point-mass", "CartPole-v1", "CartPole-v1 alone", "jax:CartPole-v1"])
def test_arrays_of_something_else_are_refused(name):
    environment = SOURCES[name](3)
    with pytest.raises(EnvironmentFailure, match="was not reset"):
        environment.save_state()
    environment.reset(0)
    saved = environment.save_state()
    with pytest.raises(ConfigError, match="saved"):
        SOURCES[name](2).restore_state(saved)
    with pytest.raises(ConfigError, match="holds"):
        environment.restore_state({})
    some = next(key for key in saved if key != "generator")
    with pytest.raises(ConfigError, match="saved"):
        environment.restore_state({**saved, some: np.zeros((1, 1, 7))})
    if "generator" in saved:
        with pytest.raises(ConfigError, match="random generators"):
            environment.restore_state({**saved, "generator": np.frombuffer(b"[7]", np.uint8)})


def test_states_that_no_environment_saves_are_refused():
    environment = make("treatment", 3)
    environment.reset(0)
    saved = environment.save_state()
    with pytest.raises(ConfigError, match=r"a saved state is out of range: expected 0 to \d+$"):
        environment.restore_state({**saved, "state": np.full_like(saved["state"], 10**6)})
    one = json.loads(saved["generator"].tobytes())
    kind, inner = one[0]["bit_generator"], one[0]["state"]
    assert kind == "PCG64"
    for states, words in (
        (one + one, "the saved state has 2 random generators: expected 1"),
        (
            [{**one[0], "bit_generator": "default_rng"}],
            "the saved random generators cannot be read: default_rng is not a bit generator",
        ),
        (
            [{**one[0], "bit_generator": "seed"}],
            "the saved random generators cannot be read: seed is not a bit generator",
        ),
        ([{**one[0], "bit_generator": "BitGenerator"}], "cannot be read: BitGenerator is a base class"),
        ([{**one[0], "state": {**inner, "state": 2**200}}], "the saved random generators cannot be read"),
    ):
        text = json.dumps(states).encode()
        with pytest.raises(ConfigError, match=words):
            environment.restore_state({**saved, "generator": np.frombuffer(text, np.uint8)})
    deep = np.frombuffer(b"[" * 100_000, np.uint8)
    with pytest.raises(ConfigError, match="the saved random generators cannot be read"):
        environment.restore_state({**saved, "generator": deep})


def test_environments_that_may_hide_something_do_not_offer_it():
    class Own(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1), {}

    assert not hasattr(make(Own, 1), "save_state")
    counting = make(lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("Pendulum-v1")), 2)
    assert not hasattr(counting, "save_state")
    assert hasattr(
        make(lambda: gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), -1, 1), 2), "save_state"
    )
