"""Adapter of gymnasium environments to the protocol.

The copies are stepped here and not by gymnasium's `SyncVectorEnv`, which neither names the copy that failed nor checks
what a copy returned, and returns the last observation of an episode in a form that depends on the observation space.
Each copy is seeded once, from the seed of `reset`; later episodes of a copy continue its own random numbers.

Observations: `Box` of one dimension -> Vector, `Box` [height, width, channels] of uint8 -> Image; `Discrete` and
one-dimensional `MultiDiscrete` -> Codes counted from 0; `Dict` of those -> one leaf each. Actions: `Discrete`,
one-dimensional `MultiDiscrete`, `Box` with finite bounds.
An "action_mask" in the info of an observation becomes the action mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import Leaves, Observed, Outcome, check_action, positive
from tidelog.envs.spaces import action_space, action_start, readers
from tidelog.errors import ConfigError, EnvironmentFailure, SpecError
from tidelog.types import Continuous, Discrete, Spec

_LARGEST = float(np.finfo(np.float32).max)


class Gymnasium:
    """`count` copies of a gymnasium environment, stepped one after another in this process.

    `factory` makes one copy. SpecError, with a fix, if its spaces are not supported; EnvironmentFailure, with copy and
    step, if a copy raises or returns a wrong shape, a value out of range, NaN or infinity.
    """

    def __init__(self, factory: Callable[[], Any], count: int, name: str | None = None) -> None:
        self.count = positive("count", count)
        self._copies = [factory() for _ in range(count)]
        first = self._copies[0]
        if not hasattr(first, "observation_space"):
            raise ConfigError(f"the factory made a {type(first).__name__}: expected a gymnasium environment")
        registered = getattr(first, "spec", None)
        self.name = name or (registered.id if registered is not None else type(first).__name__)
        self._readers = readers(first.observation_space)
        self._steps = 0
        self._started = False
        self._shown = Observed({})  # the input of the next action
        self._masked = False
        action = action_space(first.action_space)
        self._start = action_start(first.action_space)
        _, info = self._start_copy(0, 0)
        self._masked = "action_mask" in info
        if self._masked and not isinstance(action, Discrete):
            raise SpecError(f"{self.name} has an action mask for {first.action_space}: expected discrete actions")
        leaves = {name: reader.leaf for name, reader in self._readers.items()}
        self.spec = Spec(leaves, action, masked=self._masked)

    def reset(self, seed: int) -> Observed:
        """Restart every copy, each with its own seed derived from this one."""
        self._steps, self._started = 0, True
        seeds = np.random.SeedSequence(seed).generate_state(self.count)
        self._shown = self._stacked([self._start_copy(copy, int(own)) for copy, own in enumerate(seeds)])
        return self._shown

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy: action `[W]`, `[W, M]` or `[W, A]` in the environment's own units."""
        if not self._started:
            raise EnvironmentFailure(f"{self.name} was not reset. fix: call reset(seed) before the first step")
        orders = self._orders(check_action(self.spec, action, self.count))
        self._steps += 1
        reward = np.zeros(self.count, np.float32)
        terminated, truncated = np.zeros(self.count, bool), np.zeros(self.count, bool)
        following, current = [], []
        for copy, order in enumerate(orders):
            result, earned, terminated[copy], truncated[copy] = self._step_copy(copy, order)
            reward[copy] = earned
            following.append(result)
            ended = terminated[copy] or truncated[copy]
            current.append(self._start_copy(copy, None) if ended else result)
        observed = self._stacked(following)
        self._shown = self._stacked(current) if (terminated | truncated).any() else observed
        return Outcome(reward, terminated, truncated, observed, self._shown)

    def close(self) -> None:
        """Close every copy."""
        for copy in self._copies:
            copy.close()

    def _orders(self, action: NDArray[Any]) -> list[Any]:
        if isinstance(self.spec.action, Continuous):
            return list(action.astype(self._copies[0].action_space.dtype))
        shifted = action + self._start
        return [int(one) for one in shifted] if isinstance(self.spec.action, Discrete) else list(shifted)

    def _start_copy(self, copy: int, seed: int | None) -> tuple[Leaves, dict[str, Any]]:
        try:
            raw, info = self._copies[copy].reset(seed=seed)
        except Exception as error:
            raise self._failure(copy, f"reset raised {type(error).__name__}: {error}") from error
        return self._read(copy, raw, info)

    def _step_copy(self, copy: int, order: Any) -> tuple[tuple[Leaves, dict[str, Any]], float, bool, bool]:
        try:
            raw, reward, terminated, truncated, info = self._copies[copy].step(order)
            earned = float(reward)
        except Exception as error:
            raise self._failure(copy, f"step raised {type(error).__name__}: {error}") from error
        if not abs(earned) <= _LARGEST:
            raise self._failure(copy, f"the reward is {earned}: expected a finite number")
        return self._read(copy, raw, info), earned, bool(terminated), bool(truncated)

    def _read(self, copy: int, raw: Any, info: dict[str, Any]) -> tuple[Leaves, dict[str, Any]]:
        leaves = {}
        for name, reader in self._readers.items():
            try:
                leaves[name] = reader.read(raw)
            except (KeyError, TypeError, ValueError) as error:
                raise self._failure(copy, f"the observation is unusable: {error}") from error
        if self._masked:
            self._check_mask(copy, info)
        return leaves, info

    def _check_mask(self, copy: int, info: dict[str, Any]) -> None:
        shape = np.asarray(info.get("action_mask")).shape
        size = self._copies[copy].action_space.n
        if shape != (size,):
            raise self._failure(copy, f"action_mask in the info has shape {shape}: expected ({size},)")

    def _stacked(self, results: list[tuple[Leaves, dict[str, Any]]]) -> Observed:
        leaves = {name: np.stack([one[name] for one, _ in results]) for name in self._readers}
        masks = [np.asarray(info["action_mask"], bool) for _, info in results] if self._masked else None
        return Observed(leaves, None if masks is None else np.stack(masks))

    def _failure(self, copy: int, what: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"{self.name}, copy {copy}, step {self._steps}: {what}")
