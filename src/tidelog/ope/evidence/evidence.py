"""Input of the estimators: a log's steps, the logger's and the target's probabilities, and a model's values.

Letters: `N` steps, `M` stored observations, `E` episodes, `A` number of actions or action size, `K` draws, `T` steps of
the longest episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import SpecError

Floats = NDArray[np.float64]
MODEL_ROUNDING, SUM_ROUNDING = 1e-6, 1e-12  # of 32-bit models, relative to their targets; of 64-bit sums
BY_STEP = (  # fields of `Evidence` with one row per step
    "reward", "target", "behaviour", "model", "model_target", "target_all", "behaviour_all", "model_all", "occupancy",
    "action", "supported",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Target:
    """A policy on a log."""

    logged: Floats  # [N]: probability or density of the logged action
    probabilities: Floats | None = None  # [M, A]: of discrete actions, at every stored observation
    actions: NDArray[np.float32] | None = None  # [M, K, A]: continuous actions that represent the policy
    bandwidth: float | None = None  # of the kernel, if there is one


@dataclass(frozen=True, eq=False)
class Evidence:
    """Steps in episode order under one target policy; densities where actions are continuous.

    `target_all`, `behaviour_all` and `model_all` exist only for discrete actions. Model values are cross-fitted: an
    episode's values come from a model that never saw it. None means not requested or not known.
    """

    starts: NDArray[np.int64]  # [E + 1]: first row of each episode, then N
    reward: Floats  # [N]
    target: Floats  # [N]: probability or density of the logged action under the target policy
    behaviour: Floats  # [N]: the same under the logger
    discount: float = 1.0
    model: Floats | None = None  # [N]: model value of the logged action
    model_target: Floats | None = None  # [N]: mean model value over the target's actions
    target_all: Floats | None = None  # [N, A]
    behaviour_all: Floats | None = None  # [N, A], always estimated, also for recorded propensities
    model_all: Floats | None = None  # [N, A]
    estimated: bool = False  # whether `behaviour` was estimated from the log
    occupancy: Floats | None = None  # [N]: cross-fitted occupancy ratio of (state, action), target over log
    action: NDArray[np.int64] | None = None  # [N]: the logged action, if actions are discrete
    supported: NDArray[np.bool_] | None = None  # [N, A]: other episodes show the logger taking it; [N, 1]: all of them
    clusters: NDArray[np.int64] | None = None  # [E]: cluster of each episode, 0 .. C-1; None: each is its own cluster

    def __post_init__(self) -> None:
        steps = len(self.reward)
        if len(self.starts) < 2 or self.starts[0] != 0 or self.starts[-1] != steps or (np.diff(self.starts) < 1).any():
            raise SpecError(f"invalid starts: expected numbers rising from 0 to {steps} (the number of steps)")
        for name in ("reward", "target", "behaviour", "model", "model_target", "occupancy"):
            _check(name, getattr(self, name), (steps,))
        for name in ("target_all", "behaviour_all", "model_all"):
            values = getattr(self, name)
            _check(name, values, (steps, *np.shape(values)[1:2]))
        for name, rows in (("action", steps), ("supported", steps), ("clusters", len(self.starts) - 1)):
            values = getattr(self, name)
            if values is not None and len(values) != rows:
                raise SpecError(f"{name} has {len(values)} rows: expected {rows}")
        if (self.target < 0).any() or not (self.behaviour > 0).all():
            raise SpecError("target or behaviour is out of range: expected target >= 0 and behaviour > 0 in every step")

    @property
    def episodes(self) -> int:
        """Number of episodes `E`."""
        return len(self.starts) - 1

    @property
    def units(self) -> int:
        """Number of independent units: clusters if there are any, else episodes."""
        return self.episodes if self.clusters is None else int(self.clusters.max()) + 1

    @cached_property
    def rounding(self) -> float:
        """The largest difference between returns that rounding may have made.

        Models and weights are 32-bit: their errors are a share of what they are fitted to, the rewards as
        `centred_rewards` returns them. Sums are 64-bit: their errors are a share of the rewards as they are.
        """
        reward, lengths = np.asarray(self.reward, np.float64), self.lengths
        fitted = reward - reward.mean() if lengths.min() == lengths.max() else reward
        of_models, of_sums = (np.add.reduceat(np.abs(size), self.starts[:-1]).max() for size in (fitted, reward))
        return float(MODEL_ROUNDING * of_models + SUM_ROUNDING * of_sums)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each episode, [E]."""
        return np.diff(self.starts)

    @property
    def horizon(self) -> int:
        """Steps of the longest episode, `T`."""
        return int(self.lengths.max())


def _check(name: str, values: Any, shape: tuple[int, ...]) -> None:
    if values is None:
        return
    if np.shape(values) != shape:
        raise SpecError(f"{name} has shape {np.shape(values)}: expected {shape}")
    if not np.isfinite(values).all():
        raise SpecError(f"{name} contains {values[~np.isfinite(values)][0]}: expected finite numbers")
