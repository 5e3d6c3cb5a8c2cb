"""Scales of observations and rewards, computed from a log and saved with the policy. Letter: `O` features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import numpy as np

from tidelog.data.core.log_columns import LogColumns
from tidelog.data.core.order import Values
from tidelog.data.statistics import Statistics, describe, moments
from tidelog.errors import CheckpointError, ConfigError
from tidelog.schema import typed
from tidelog.types import Vector

RewardScaling: TypeAlias = Callable[[Statistics], tuple[float, float]]
_SMALLEST_STD = 1e-6


def unscaled(statistics: Statistics) -> tuple[float, float]:
    """Leave rewards unchanged: scale 1, shift 0."""
    return 1.0, 0.0


def by_return_range(statistics: Statistics) -> tuple[float, float]:
    """1000 / (largest - smallest episode return), IQL's locomotion rule; ConfigError if all returns are equal."""
    returns = statistics.returns
    if returns is None or isinstance(returns["max"], list) or returns["max"] <= returns["min"]:
        raise ConfigError(
            "by_return_range needs one reward and different episode returns. fix: use unscaled or minus_one"
        )
    return 1000.0 / (returns["max"] - returns["min"]), 0.0


def minus_one(statistics: Statistics) -> tuple[float, float]:
    """Rewards minus 1, IQL's rule for sparse goals."""
    return 1.0, -1.0


REWARD_SCALINGS: Mapping[str, RewardScaling] = {
    "none": unscaled,
    "return-range": by_return_range,
    "minus-one": minus_one,
}


@dataclass(frozen=True, eq=False)
class Scaler:
    """The inputs of networks: `(observation - mean) / std` and `reward * reward_scale + reward_shift`.

    `mean` and `std` hold `[size]` float32 for each standardised Vector leaf; other leaves stay unchanged.
    """

    mean: dict[str, Values] = field(default_factory=dict)
    std: dict[str, Values] = field(default_factory=dict)
    reward_scale: float = 1.0
    reward_shift: float = 0.0

    @classmethod
    def fit(
        cls,
        log: LogColumns,
        observations: bool = True,
        rewards: RewardScaling | None = None,
        episodes: Values | None = None,
    ) -> Scaler:
        """Compute the scales from all stored observations of a log, or of the `episodes` with these ordinals.

        A column with std below 1e-6 is only centred. Reward rules use the whole log.
        """
        scale, shift = (1.0, 0.0) if rewards is None else rewards(describe(log))
        mean, std = {}, {}
        for name, leaf in log.spec.observation.items():
            if observations and isinstance(leaf, Vector):
                stored = log.observation[name]
                centre, std_dev = moments(stored if episodes is None else _Rows(stored, log.stored_rows(episodes)))
                mean[name] = centre.astype(np.float32)
                std[name] = np.where(std_dev < _SMALLEST_STD, 1.0, std_dev).astype(np.float32)
        return cls(mean, std, float(scale), float(shift))

    def observation(self, observation: Mapping[str, Values]) -> dict[str, Values]:
        """Scale leaves `[..., size]` to network inputs, float32."""
        return {
            name: (leaf - self.mean[name]) / self.std[name] if name in self.mean else leaf
            for name, leaf in observation.items()
        }

    def reward(self, reward: Values) -> Values:
        """Scale rewards to network inputs, float32."""
        scaled: Values = reward * np.float32(self.reward_scale) + np.float32(self.reward_shift)
        return scaled

    def to_json(self) -> dict[str, Any]:
        """Plain numbers that `from_json` reads back exactly."""
        leaves = {name: {"mean": self.mean[name].tolist(), "std": self.std[name].tolist()} for name in self.mean}
        return {"observation": leaves, "reward_scale": self.reward_scale, "reward_shift": self.reward_shift}

    @classmethod
    def from_json(cls, data: Any) -> Scaler:
        """Rebuild a scaler from `to_json`; CheckpointError for a field of another type, or unusable numbers."""
        file = typed(data, _ScalerFile, "the scaler is invalid", fix="write it again")
        with np.errstate(over="ignore"):  # infinite values are refused below
            mean = {name: np.asarray(leaf.mean, np.float32) for name, leaf in file.observation.items()}
            std = {name: np.asarray(leaf.std, np.float32) for name, leaf in file.observation.items()}
        for name in mean:
            usable = np.isfinite(mean[name]).all() and np.isfinite(std[name]).all() and (std[name] > 0).all()
            if len(mean[name]) != len(std[name]) or not usable:
                raise CheckpointError(
                    f"the scaler of '{name}' is invalid: expected finite numbers, std above 0. fix: write it again"
                )
        if not (np.isfinite(file.reward_scale) and np.isfinite(file.reward_shift)):
            raise CheckpointError("the scaler of rewards is invalid: expected finite numbers. fix: write it again")
        return cls(mean, std, file.reward_scale, file.reward_shift)


class _ScalesFile(msgspec.Struct, forbid_unknown_fields=True):
    mean: list[float]
    std: list[float]


class _ScalerFile(msgspec.Struct, forbid_unknown_fields=True):
    observation: dict[str, _ScalesFile]
    reward_scale: float
    reward_shift: float


class _Rows:
    """Some rows of a leaf, read slice by slice, which leaves a log on disk."""

    def __init__(self, leaf: Values, rows: Values) -> None:
        self._leaf, self._rows = leaf, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice) -> Values:
        rows: Values = self._leaf[self._rows[part]]
        return rows
