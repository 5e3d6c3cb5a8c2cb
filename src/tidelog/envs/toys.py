"""Small problems with known optima, for tests of learning, and a hand-written controller for Pendulum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import (
    BatchObservation,
    Outcome,
    Saved,
    check_action,
    check_saved,
    generators_from_array,
    generators_to_array,
    positive,
    require_reset,
)
from tidelog.envs.tabular import Tabular
from tidelog.errors import ConfigError
from tidelog.types import Continuous, Spec, Vector


class PointMass:
    """Move a point in `size` dimensions to the origin and keep it there, for 20 steps.

    The start is uniform within [-1, 1]; `position += 0.2 * action`, action in [-1, 1]; the reward is minus the squared
    distance after the step. The twentieth step truncates. The leaf "observation" is the position, `[W, size]`.
    Dimensions are independent and waiting never helps; therefore `best` is optimal at every discount.
    """

    REACH = 0.2
    HORIZON = 20

    def __init__(self, count: int, size: int = 1) -> None:
        self.name = "point-mass"
        self.count = positive("count", count)
        self.size = positive("size", size)
        self.spec = Spec({"observation": Vector(size)}, Continuous((-1.0,) * size, (1.0,) * size))
        self._generator: np.random.Generator | None = None
        self._position = np.zeros((count, size))
        self._age = 0

    def reset(self, seed: int) -> BatchObservation:
        """Start every copy at a random position."""
        self._generator = np.random.default_rng(seed)
        return self._begin(self._generator)

    def step(self, action: NDArray[Any]) -> Outcome:
        """Move every copy, `[W, size]`; actions are clipped to the bounds; EnvironmentFailure before a reset."""
        generator = require_reset(self._generator, self.name)
        self._position = self._position + self.REACH * np.clip(check_action(self.spec, action, self.count), -1, 1)
        self._age += 1
        reward = -np.square(self._position).sum(1).astype(np.float32)
        following = self._observed()
        truncated = np.full(self.count, self._age == self.HORIZON)
        current = self._begin(generator) if truncated[0] else following
        return Outcome(reward, np.zeros(self.count, bool), truncated, following, current)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def save_state(self) -> Saved:
        """The positions, the age and the random generator."""
        generator = require_reset(self._generator, self.name)
        age, numbers = np.asarray(self._age), generators_to_array([generator])
        return {"position": self._position.copy(), "age": age, "generator": numbers}

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> BatchObservation:
        """Restore a state of `save_state`; ConfigError for the state of another problem or count."""
        expected = {"position": self._position, "age": np.asarray(self._age), "generator": None}
        arrays = check_saved(saved, expected, self.name)
        (self._generator,) = generators_from_array(arrays["generator"], 1, self.name)
        self._position, self._age = arrays["position"].copy(), int(arrays["age"])
        return self._observed()

    @classmethod
    def best(cls, position: NDArray[Any]) -> NDArray[np.float32]:
        """The optimal action, straight to the origin: `[..., size]` to `[..., size]`."""
        return np.clip(-position / cls.REACH, -1.0, 1.0).astype(np.float32)

    @classmethod
    def best_return(cls, position: NDArray[Any]) -> NDArray[np.float64]:
        """The optimal undiscounted return from the given starts, `[..., size]` to `[...]`."""
        steps = np.arange(1, cls.HORIZON + 1)
        left = np.maximum(np.abs(position)[..., None] - cls.REACH * steps, 0.0)
        return np.asarray(-np.square(left).sum((-1, -2)))

    def _begin(self, generator: np.random.Generator) -> BatchObservation:
        self._position = generator.uniform(-1.0, 1.0, (self.count, self.size))
        self._age = 0
        return self._observed()

    def _observed(self) -> BatchObservation:
        return BatchObservation({"observation": self._position.astype(np.float32)})


def chain(length: int, slip: float = 0.0) -> Tabular:
    """A corridor of `length` states; moves left (0) or right (1) from the left end; leaving on the right has reward 1.

    Each move is reversed with probability `slip`; the left end is a wall. Without slip the optimal value is
    `discount ** (length - 1)`. ConfigError for fewer than one state or a slip outside [0, 1).
    """
    if length < 1 or not 0.0 <= slip < 1.0:
        raise ConfigError(f"length = {length}, slip = {slip}: expected length of at least 1 and slip in [0, 1)")
    transition = np.zeros((length + 1, 2, length + 1))
    for state in range(length):
        for action, right in ((0, slip), (1, 1.0 - slip)):
            transition[state, action, state + 1] += right
            transition[state, action, max(state - 1, 0)] += 1.0 - right
    transition[length, :, length] = 1.0
    reward = np.broadcast_to(np.eye(length + 1)[length], transition.shape)
    initial, final = np.eye(length + 1)[0], np.arange(length + 1) == length
    return Tabular(transition, reward, initial, final, name="chain", action_names=("left", "right"))


def pendulum_controller(observation: NDArray[Any], strength: float = 1.0) -> NDArray[np.float32]:
    """Torque for gymnasium's Pendulum-v1: `[W, 3]` (cosine, sine, angular speed) to `[W, 1]` newton metres in [-2, 2].

    Swings up by energy pumping and holds upright by a proportional-derivative law; `strength` scales the torque:
    1 is good (mean return above -300), 0 does nothing, and values between them give logs of mixed quality.
    """
    cosine, sine, speed = (observation[:, column].astype(np.float64) for column in range(3))
    angle = np.arctan2(sine, cosine)
    missing = 30.0 * (1.0 - cosine) / 2.0 - speed**2 / 2.0
    pump = 2.0 * np.where(speed == 0.0, 1.0, np.sign(speed)) * np.sign(missing)
    hold = -(16.0 * angle + 4.0 * speed)
    torque = np.where(np.abs(angle) < 0.6, hold, pump)
    return (strength * np.clip(torque, -2.0, 2.0)).astype(np.float32)[:, None]
