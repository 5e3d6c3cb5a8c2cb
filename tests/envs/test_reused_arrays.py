"""An environment may write each observation into the same arrays: what was read before is learnt from and kept."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

import tidelog as tl
from tests.envs.corridor import idle
from tidelog.envs import make, play
from tidelog.envs.protocol import BatchObservation

LENGTH = 3


class Picture(gymnasium.Env):
    """Three steps; the picture is the number of the step, in one array; the last mask forbids action 1."""

    observation_space = spaces.Box(0, 255, (8, 8, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.picture, self.mask = np.zeros((8, 8, 1), np.uint8), np.ones(2, np.int8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.shown()

    def shown(self):
        self.picture[:] = self.age
        self.mask[:] = (1, self.age < LENGTH)
        return self.picture, {"action_mask": self.mask}

    def step(self, action):
        self.age += 1
        picture, info = self.shown()
        return picture, 1.0, False, self.age == LENGTH, info


class Pictures(VectorEnv):
    """Copies of the same with one array of pictures and one of masks."""

    def __init__(self, mode):
        self.num_envs, self.metadata = 2, {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = Picture.observation_space, Picture.action_space
        self.pictures, self.masks = np.zeros((2, 8, 8, 1), np.uint8), np.ones((2, 2), bool)

    def reset(self, *, seed=None, options=None):
        self.age, self.waiting = 0, False
        return self.shown()

    def shown(self):
        self.pictures[:] = self.age
        self.masks[:, 1] = self.age < LENGTH
        return self.pictures, {"action_mask": self.masks}

    def step(self, action):
        mode, restarting = self.metadata["autoreset_mode"], self.waiting
        self.age = 0 if restarting else self.age + 1
        end = self.age == LENGTH
        self.waiting = end and mode is AutoresetMode.NEXT_STEP
        pictures, info = self.shown()
        if end and mode is AutoresetMode.SAME_STEP:
            info = {"final_obs": pictures.copy(), "final_info": {"action_mask": self.masks.copy()}}
            self.age = 0
            info |= self.shown()[1]
        return pictures, np.ones(2), np.zeros(2, bool), np.full(2, end), info


@pytest.mark.parametrize("source", [Picture, *(mode for mode in AutoresetMode)], ids=str)
def test_gymnasium_environments_with_one_array_of_pictures_and_masks(source):
    environment = make(Picture, 2) if source is Picture else make(Pictures(source), 2)
    played = play(environment, idle, episodes=4, seed=0)
    assert played.observation["observation"][:, 0, 0, 0].tolist() == [0, 1, 2] * 4
    assert played.next_observation["observation"][:, 0, 0, 0].tolist() == [1, 2, 3] * 4
    assert played.action_mask[:, 1].all()
    assert played.next_action_mask[:, 1].tolist() == [True, True, False] * 4


class Reusing:
    """An environment that writes every observation and mask into the same arrays."""

    def __init__(self, source):
        self.source, self.name, self.spec, self.count = source, source.name, source.spec, source.count
        self.arrays = None

    def reset(self, seed):
        return self.in_place(self.source.reset(seed))

    def step(self, action):
        outcome = self.source.step(action)
        following = outcome.next_observation.copied()  # `current_observation` may be another one
        return outcome._replace(
            next_observation=following, current_observation=self.in_place(outcome.current_observation)
        )

    def in_place(self, observed):
        leaves, mask = observed.observation, observed.action_mask
        if self.arrays is None:
            self.arrays = observed.copied()
        for name, leaf in leaves.items():
            self.arrays.observation[name][:] = leaf
        if mask is not None:
            self.arrays.action_mask[:] = mask
        return BatchObservation(self.arrays.observation, self.arrays.action_mask)

    def close(self):
        self.source.close()


def test_environments_of_the_protocol_may_write_into_their_arrays_again():
    """`play`, `rollout` and `learn` give what they give with new arrays."""
    small = tl.PPG(num_envs=4, rollout_steps=8, minibatches=2, hidden=(8,), policy_iterations=1)

    def everything(wrapped):
        played = play(wrapped(make("treatment", 4)), lambda o, g: (g.integers(0, 6, 4), None), episodes=8, seed=0)
        run = tl.learn(small, wrapped(make("treatment", 4)), 64, progress=False)
        returns = tl.rollout(run.policy(), wrapped(make("treatment", 4)), 8, seed=1, num_envs=4)
        return jax.tree.leaves([played.columns(), run.policy().params, returns])

    for one, other in zip(everything(lambda source: source), everything(Reusing), strict=True):
        np.testing.assert_array_equal(one, other)
