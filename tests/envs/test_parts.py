"""Nested spaces: observations become leaves `outer/inner`, actions with parts reach the environment as its own."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import tidelog as tl
from tests.algorithms.players import replaying, tiny
from tidelog.envs.gym import Gymnasium, action_space, columns
from tidelog.envs.protocol import play
from tidelog.envs.registry import make
from tidelog.errors import SpecError
from tidelog.policies.rollout import uniform_actor
from tidelog.types import Codes, Continuous, Discrete, Hybrid, MultiDiscrete, Vector

SEEN = spaces.Dict(
    {
        "car": spaces.Dict({"place": spaces.Box(-9, 9, (2,), np.float32), "gear": spaces.Discrete(3, start=1)}),
        "more": spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([3, 2]))),
    }
)
DOES = spaces.Dict(
    {
        "lights": spaces.MultiDiscrete([2, 3], start=[1, 0]),
        "move": spaces.Tuple((spaces.Box(-2, 2, (1,), np.float32), spaces.Discrete(3, start=5))),
    }
)
PARTS = Hybrid((("lights", MultiDiscrete((2, 3))), ("move/0", Continuous((-2.0,), (2.0,))), ("move/1", Discrete(3))))


class Drive(gymnasium.Env):
    """Four steps; worth 1 where the chosen gear is the shown one, less the distance of steering to the place."""

    observation_space, action_space = SEEN, DOES

    def _shown(self):
        self.place, gear = self.np_random.uniform(-1, 1, 2).astype(np.float32), int(self.np_random.integers(3))
        self.gear, self.age = gear, getattr(self, "age", 0)
        more = (int(self.place[0] > 0), np.array([self.age % 3, gear % 2]))
        return {"car": {"place": self.place, "gear": 1 + gear}, "more": more}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self._shown(), {}

    def step(self, action):
        assert DOES.contains(action), action
        self.last = action
        reward = float(action["move"][1] - 5 == self.gear) - abs(float(action["move"][0][0]) - float(self.place[0]))
        self.age += 1
        return self._shown(), reward, self.age == 4, False, {}


def test_nested_spaces_are_leaves_and_parts_named_as_a_log_names_them():
    assert {name: column.leaf for name, column in columns(SEEN).items()} == {
        "car/gear": Codes((3,)), "car/place": Vector(2), "more/0": Codes((2,)), "more/1": Codes((3, 2))
    }  # fmt: skip
    assert action_space(DOES) == PARTS
    assert action_space(spaces.Tuple((spaces.Discrete(2),))) == Hybrid((("0", Discrete(2)),))
    nested = {"car": {"gear": np.zeros(1, int), "place": np.zeros((1, 2))}, "more": {"0": [1], "1": [[2, 1]]}}
    log = tl.Log.from_arrays(observation=nested, action=[0], reward=[1.0], terminated=True)
    assert list(log.spec.observation) == list(columns(SEEN))
    with pytest.raises(SpecError, match=r"the observation is Dict.*each with its own name.*rename its keys"):
        columns(spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)}), "a/b": spaces.Discrete(2)}))
    with pytest.raises(SpecError, match=r"the action is Dict\(\).*TransformAction"):
        action_space(spaces.Dict({}))
    with pytest.raises(SpecError, match="finite bounds"):
        action_space(spaces.Dict({"a": spaces.Box(-np.inf, 1, (1,))}))


def test_a_copy_gets_the_action_of_its_space_and_shows_its_leaves():
    environment = Gymnasium(Drive, 2)
    observed = environment.reset(0).observation
    assert {name: leaf.shape for name, leaf in observed.items()} == {
        "car/gear": (2, 1), "car/place": (2, 2), "more/0": (2, 1), "more/1": (2, 2)
    }  # fmt: skip
    first = environment._copies[0]
    np.testing.assert_array_equal(observed["car/place"][0], first.place)
    assert observed["car/gear"][0] == first.gear  # counted from 0
    environment.step(np.array([[1.0, 2.0, -0.5, 2.0], [0.0, 0.0, 2.0, 0.0]]))
    assert first.last["lights"].tolist() == [2, 2]
    assert (first.last["move"][0].tolist(), first.last["move"][1]) == ([-0.5], 7)
    environment.step({"lights": [[0, 0], [1, 1]], "move": {"0": [[0.0], [1.0]], "1": [0, 1]}})
    assert environment._copies[1].last["move"][1] == 6
    for wrong, text in (
        ([[1.0, 2.0, 0.0, 3.0]] * 2, "the part 'move/1' of the action has values from 3 to 3: expected whole numbers"),
        ([[0.5, 2.0, 0.0, 0.0]] * 2, r"the part 'lights\[0\]' of the action has"),
        ([[1.0, 2.0, np.nan, 0.0]] * 2, "the action holds nan"),
        ([[1.0, 2.0, 0.0]] * 2, r"the action has shape \(2, 3\)"),
    ):
        with pytest.raises(SpecError, match=text):
            environment.step(np.array(wrong))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_environment_plays_the_same_episodes(mode):
    source = SyncVectorEnv([Drive] * 2, autoreset_mode=mode)
    environment = make(source, 2)
    assert environment.spec == Gymnasium(Drive, 2).spec
    played = play(environment, uniform_actor(environment.spec), 4, seed=3, keep=True)
    found = played.columns()
    assert found["action"].shape[1] == 4
    expected = (found["action"][:, 3] == found["observation"]["car/gear"][:, 0]) - np.abs(
        found["action"][:, 2] - found["observation"]["car/place"][:, 0]
    )
    np.testing.assert_allclose(found["reward"], expected, atol=1e-6)


def test_random_actions_have_the_product_of_the_chances_of_their_parts():
    log = tl.collect(Drive, episodes=6, seed=0)
    assert log.spec.action == PARTS
    np.testing.assert_allclose(log.propensity, 1 / (2 * 3 * 4 * 3))
    gear = log.spec.action.unpack(log.action)["move"]["1"]
    steer, place = log.action[:, 2], log.observation["car/place"][log.position, 0]
    expected = (gear == log.observation["car/gear"][log.position, 0]) - np.abs(steer - place)
    np.testing.assert_allclose(log.reward, expected, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("learner", [tiny, replaying])
def test_a_phasic_policy_learns_acts_and_logs_and_its_log_teaches_others(learner, tmp_path):
    path = tmp_path / "played.tidelog"
    policy = tl.learn(learner(), Drive, 128, log_out=path, progress=False).policy()
    log = tl.Log.load(path)
    assert log.spec.action == PARTS
    assert log.extra["cut"].mean() < 0.5
    assert (log.propensity > 0).all()
    steer, place = log.action[:, 1 + 1], log.observation["car/place"][log.position, 0]
    codes = log.action[:, 3] == log.observation["car/gear"][log.position, 0]
    np.testing.assert_allclose(log.reward, codes - np.abs(steer - place), atol=1e-5)
    clone = tl.fit(tl.BC(hidden=(8,)), log, steps=5, progress=False).policy()
    assert tl.rollout(clone, Drive, episodes=3, sample=True).shape == (3,)
    kept = tl.collect(Drive, policy, episodes=3, sample=True)
    density = policy.log_probability(kept.transitions.observation, kept.action)
    np.testing.assert_allclose(kept.propensity, np.exp(density), rtol=1e-4)


@pytest.mark.slow
def test_ppg_finds_gear_and_steering():
    learner = tl.PPG(num_envs=16, rollout_steps=32, hidden=(32,), policy_iterations=4, learning_rate=2e-3, discount=0.5)
    run = tl.learn(learner, Drive, 16_000, progress=False)
    assert tl.rollout(run.policy(), Drive, episodes=100, num_envs=10).mean() > 1.5  # of 4; chance: -3
