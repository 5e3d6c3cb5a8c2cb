"""An environment that waits 2 ms in every step, as a simulator elsewhere does, by a name that processes find."""

import time

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Slow(CartPoleEnv):
    """A cart pole that answers after 2 ms."""

    def step(self, action):
        """The step, later."""
        time.sleep(2e-3)
        return super().step(action)


gymnasium.register("Slow-v0", Slow, max_episode_steps=500)
