"""Environments of envpool, compiled and on several threads: a file to copy.

    pip install envpool
    python examples/envpool_games.py CartPole-v1

A pool is seeded when it is made, so that each seeded reset makes it again. Its state cannot be saved: a resumed run
starts new episodes.
"""

import sys
from typing import Any

import envpool

import tidelog as tl
from tidelog.envs.gym import channels_last


class Pool:
    """`count` copies of one environment of envpool, as a vector environment of gymnasium."""

    def __init__(self, name: str, count: int) -> None:
        self.name, self.num_envs, self.spec = name, count, None
        self._pool = self._make(0)
        self.metadata = self._pool.metadata
        self.single_observation_space = self._pool.single_observation_space
        self.single_action_space = self._pool.single_action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Start new episodes, with another seed where there is one."""
        if seed is not None:
            self.close()
            self._pool = self._make(seed % 2**31)  # seeds of envpool are 32-bit and signed
        return self._pool.reset()

    def step(self, action: Any) -> Any:
        """Step every copy."""
        return self._pool.step(action)

    def close(self) -> None:
        """Close the pool."""
        self._pool.close()

    def _make(self, seed: int) -> Any:
        return envpool.make_gymnasium(self.name, num_envs=self.num_envs, seed=seed)


def pool(name: str, count: int) -> Any:
    """Copies for `tl.learn(..., pool(NAME, 16))`; pictures have their channels last."""
    return channels_last(Pool(name, count))


if __name__ == "__main__":
    (name,) = sys.argv[1:]
    tl.learn(tl.PPG(num_envs=16), pool(name, 16), steps=50_000)
