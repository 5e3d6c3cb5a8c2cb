"""A small continuous problem with a known optimum."""

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
