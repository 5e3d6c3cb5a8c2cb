"""Environments by name, for collectors, which make them in processes of their own."""

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import PendulumEnv


class Walk(gymnasium.Env):
    """A walk on a line for 20 steps, whose state cannot be saved; one copy of it breaks in its 40th step."""

    observation_space = spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = spaces.Discrete(2)
    breaks = False

    def __init__(self):
        self._steps, self._transport, self._all = 0, 0.0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps, self._transport = 0, float(self.np_random.uniform(-1, 1))
        return self._shown(), {}

    def step(self, action):
        self._steps += 1
        self._all += 1
        if self.breaks and self._all == 40:
            raise RuntimeError("it broke")
        self._transport += (2 * int(action) - 1) * float(self.np_random.uniform(0.1, 1.0))
        return self._shown(), -abs(self._transport), False, self._steps == 20, {}

    def _shown(self):
        return np.asarray([self._transport], np.float32)


class Breaking(Walk):
    breaks = True


class Unbuildable(Walk):
    """An environment that only the process of the run can make."""

    def __init__(self):
        if "tidelog.training.online.collectors.collector" in __import__("sys").modules and _is_collector():
            raise RuntimeError("no display")
        super().__init__()


def _is_collector():
    with open("/proc/self/cmdline", "rb") as file:
        return b"collectors.process" in file.read()


class Slow(PendulumEnv):
    """A pendulum that takes its time."""

    def step(self, action):
        time.sleep(float(os.environ.get("STEP_SECONDS", "0.02")))
        return super().step(action)


for name, kind in {"Walk": Walk, "Breaking": Breaking, "Unbuildable": Unbuildable, "Slow": Slow}.items():
    gymnasium.register(f"Collected{name}-v0", kind, max_episode_steps=20)
