"""Scales of observations and rewards, computed from a log and saved with the policy.

Letters: `N` steps, `E` episodes, `K` rewards of a step, `O` features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from tidelog.data.log_columns import LogColumns
from tidelog.data.raw import Values
from tidelog.data.statistics import moments, whole_columns
from tidelog.errors import CheckpointError, ConfigError
from tidelog.schema import typed
from tidelog.types import Vector

_SMALLEST_STD = 1e-6
_EQUAL = 1e-12  # largest range of equal numbers, relative to the largest of them: sums round
ENDLESS = 0  # `RewardScale.steps` where no episode ends by itself


class LoggedRewards(NamedTuple):
    """The rewards of the training episodes, in the log's unit."""

    reward: Values  # [N] or [N, K] float64
    starts: Values  # [E + 1] int64: the first row of each episode, and N
    ended: Values  # [E] bool: the environment ended it
    weights: Values | None = None  # [K] float64: of several rewards
    absolute: bool = False  # a reward of 0 has a meaning of its own, so that no constant may be subtracted

    @classmethod
    def of(cls, log: LogColumns, weights: Sequence[float] | None = None) -> LoggedRewards:
        """Return the rewards of a log; weights of several ones are 1 by default."""
        reward, starts = np.asarray(log.reward, np.float64), np.asarray(log.starts, np.int64)
        several = None if reward.ndim == 1 else np.ones(reward.shape[1])
        weigh = several if weights is None or several is None else np.asarray(weights, np.float64)
        return cls(reward, starts, np.asarray(log.terminated)[starts[1:] - 1], weigh)

    @property
    def total(self) -> Values:
        """[N]: the weighted sum of the rewards of each step."""
        total: Values = self.reward if self.reward.ndim == 1 else self.reward @ self.weights
        return total

    @property
    def returns(self) -> Values:
        """[E]: the undiscounted sum of each episode's rewards."""
        returns: Values = np.add.reduceat(self.total, self.starts[:-1])
        return returns

    @property
    def constant_steps(self) -> int | None:
        """The number of decisions over which a constant in the rewards is summed, the same for every policy.

        `ENDLESS` if no episode ends by itself: value learning continues after a truncated one. Else the common length
        of all episodes, 1 for single decisions: all actions of a step have the same number of rewards to come. None
        where neither holds: there a policy that ends episodes later collects the constant more often.
        """
        if self.absolute:
            return None
        lengths = np.diff(self.starts)
        if not self.ended.any():
            return ENDLESS
        return int(lengths[0]) if lengths.min() == lengths.max() else None


class RewardScale(NamedTuple):
    """Rewards in the unit of the networks: `reward * scale + shift`."""

    scale: float = 1.0
    shift: float | tuple[float, ...] = 0.0  # one number for each of several rewards
    steps: int | None = None  # `LoggedRewards.constant_steps`; None: the shift is not undone in values
    starts_at_mean: bool = False  # Q and V start at the mean return to come


RewardScaling: TypeAlias = Callable[[LoggedRewards], RewardScale]


def unscaled(rewards: LoggedRewards) -> RewardScale:
    """Leave rewards unchanged: scale 1, shift 0."""
    return RewardScale()


def by_return_deviation(rewards: LoggedRewards) -> RewardScale:
    """Rewards in deviations: the standard deviation of episode returns over the mean length of an episode.

    Where a constant in the rewards cannot change the ranking of policies (`LoggedRewards.constant_steps`), their mean
    is subtracted; elsewhere Q and V start at the mean return to come. Rewards in another unit are thus the same to the
    networks. Where all returns are equal, the deviation is that of the rewards of single steps; 1 if these are equal.
    """
    steps, lengths = rewards.constant_steps, np.diff(rewards.starts)
    mean = rewards.reward.mean(axis=0) if steps is not None else np.zeros(rewards.reward.shape[1:])
    centred = rewards._replace(reward=rewards.reward - mean)  # else the lengths of truncated episodes would count
    of_returns, of_steps = _deviation(centred.returns, rewards.returns), _deviation(centred.total, rewards.total)
    unit = of_returns / float(lengths.mean()) or of_steps or 1.0
    shift = 0.0 - mean / unit
    return RewardScale(1.0 / unit, tuple(shift.tolist()) if shift.ndim else float(shift), steps, steps is None)


def by_return_range(rewards: LoggedRewards) -> RewardScale:
    """1000 / (largest - smallest episode return), IQL's locomotion rule; ConfigError if all returns are equal."""
    returns = rewards.returns
    if rewards.reward.ndim > 1 or returns.max() <= returns.min():
        raise ConfigError(
            "by_return_range needs one reward and different episode returns", fix="use unscaled or minus_one"
        )
    return RewardScale(1000.0 / float(returns.max() - returns.min()))


def minus_one(rewards: LoggedRewards) -> RewardScale:
    """Rewards minus 1, IQL's rule for sparse goals."""
    return RewardScale(1.0, -1.0, rewards.constant_steps)


REWARD_SCALINGS: Mapping[str, RewardScaling] = {
    "none": unscaled,
    "return-deviation": by_return_deviation,
    "return-range": by_return_range,
    "minus-one": minus_one,
}


def _deviation(centred: Values, values: Values) -> float:
    """The standard deviation of centred values; 0 if they differ by the rounding of `values` only."""
    return 0.0 if np.ptp(centred) <= _EQUAL * np.abs(values).max() else float(centred.std())


@dataclass(frozen=True, eq=False)
class Scaler:
    """The inputs of networks: `(observation - mean) / std` and `reward * reward_scale + reward_shift`.

    `mean` and `std` hold `[size]` float32 for each standardised Vector leaf; other leaves stay unchanged. `whole` holds
    the indices of the columns of a leaf that have whole numbers only, for examples of observations.
    """

    mean: dict[str, Values] = field(default_factory=dict)
    std: dict[str, Values] = field(default_factory=dict)
    reward_scale: float = 1.0
    reward_shift: float | tuple[float, ...] = 0.0  # one number for each of several rewards
    reward_steps: int | None = None  # as in `RewardScale`
    starts_at_mean: bool = False  # as in `RewardScale`
    whole: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        log: LogColumns,
        observations: bool = True,
        rewards: RewardScale | None = None,
        episodes: Values | None = None,
    ) -> Scaler:
        """Compute the scales from all stored observations of a log, or of the `episodes` with these ordinals.

        A column with std below 1e-6 is only centred. `rewards` is the scale of the rewards; None leaves them unchanged.
        """
        mean, std, whole = {}, {}, {}
        for name, leaf in log.spec.observation.items():
            if observations and isinstance(leaf, Vector):
                stored: Any = log.observation[name]
                stored = stored if episodes is None else _Rows(stored, log.stored_rows(episodes))
                centre, std_dev = moments(stored)
                mean[name] = centre.astype(np.float32)
                std[name] = np.where(std_dev < _SMALLEST_STD, 1.0, std_dev).astype(np.float32)
                fills = dict(leaf.fills)
                known = [fills.get(column, 0.0) for column in leaf.names or [""] * leaf.size]
                whole[name] = whole_columns(stored, np.asarray(known, np.float32))
        return cls(mean, std, *(RewardScale() if rewards is None else rewards), whole=whole)

    def observation(self, observation: Mapping[str, Values]) -> dict[str, Values]:
        """Scale leaves `[..., size]` to network inputs, float32."""
        return {
            name: (leaf - self.mean[name]) / self.std[name] if name in self.mean else leaf
            for name, leaf in observation.items()
        }

    def reward(self, reward: Values) -> Values:
        """Scale rewards [N] or [N, K] to network inputs, float32; in float64, so that a large mean costs no digits."""
        if self.reward_scale == 1.0 and not np.any(self.reward_shift):
            return np.asarray(reward, np.float32)
        scaled: Values = np.asarray(reward, np.float64) * self.reward_scale + np.asarray(self.reward_shift)
        return scaled.astype(np.float32)

    def value_unit(self, discount: float, weights: Sequence[float] | None = None) -> ValueUnit:
        """Return the unit of values of scaled rewards, at a discount; `weights` are those of several rewards."""
        constant = self.value_constant(discount)
        if constant.ndim:
            constant = constant @ (np.ones(len(constant)) if weights is None else np.asarray(weights, np.float64))
        return ValueUnit(1.0 / self.reward_scale, float(constant))

    def value_constant(self, discount: float) -> Values:
        """The value of what was subtracted from rewards, in their unit: a number or [K] float64.

        It counts once for each discounted reward that is to come: exact for single decisions, and for episodes that do
        not end by themselves (a discount of 1 has no such sum, and it is 0). In episodes of one length the number of
        decisions that are left is not part of the state; the mean over the episode is used.
        """
        subtracted = 0.0 - np.asarray(self.reward_shift, np.float64) / self.reward_scale
        if self.reward_steps is None:
            return np.zeros_like(subtracted)
        if self.reward_steps == ENDLESS:
            times = 1.0 / (1.0 - discount) if discount < 1.0 else 0.0
        else:
            times = float(np.cumsum(discount ** np.arange(self.reward_steps, dtype=np.float64)).mean())
        constant: Values = np.asarray(subtracted * times)
        return constant

    def initial_value(self, rewards: LoggedRewards, discount: float) -> Values:
        """The value at which Q and V start, a number or [K] float64: the mean over steps of the scaled return to come.

        0 unless `starts_at_mean`.
        """
        if not self.starts_at_mean:
            return np.zeros(rewards.reward.shape[1:])
        scaled = rewards.reward * self.reward_scale + np.asarray(self.reward_shift)
        begun = np.arange(1, len(scaled) + 1) - np.repeat(rewards.starts[:-1], np.diff(rewards.starts))
        # a reward is part of the return of every step of its episode until its own
        parts = begun if discount == 1.0 else (1.0 - discount**begun) / (1.0 - discount)
        start: Values = parts @ scaled / len(scaled)
        return start

    def to_json(self) -> dict[str, Any]:
        """Plain numbers that `from_json` reads back exactly."""
        leaves = {
            name: {"mean": self.mean[name].tolist(), "std": self.std[name].tolist()}
            | ({"whole": self.whole[name]} if self.whole.get(name) else {})
            for name in self.mean
        }
        shift = list(self.reward_shift) if isinstance(self.reward_shift, tuple) else self.reward_shift
        return {
            "observation": leaves,
            "reward_scale": self.reward_scale,
            "reward_shift": shift,
            "reward_steps": self.reward_steps,
            "starts_at_mean": self.starts_at_mean,
        }

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
                    f"the scaler of '{name}' is invalid", "finite numbers, std above 0", "write it again"
                )
        shift = tuple(file.reward_shift) if isinstance(file.reward_shift, list) else file.reward_shift
        finite = bool(np.isfinite(file.reward_scale) and np.isfinite(shift).all())
        if not finite or file.reward_scale <= 0 or (file.reward_steps is not None and file.reward_steps < 0):
            raise CheckpointError(
                "the scaler of rewards is invalid", "finite numbers, a scale above 0", "write it again"
            )
        whole = {name: leaf.whole for name, leaf in file.observation.items()}
        return cls(mean, std, file.reward_scale, shift, file.reward_steps, file.starts_at_mean, whole)


class ValueUnit(NamedTuple):
    """The unit of values in a log: `value * factor + constant`; differences of values have the factor alone."""

    factor: float
    constant: float

    def __call__(self, values: Any) -> Values:
        """Return values of any shape in the log's unit, float64."""
        return np.asarray(values, np.float64) * self.factor + self.constant


class _ScalesFile(msgspec.Struct, forbid_unknown_fields=True):
    mean: list[float]
    std: list[float]
    whole: list[int] = []


class _ScalerFile(msgspec.Struct, forbid_unknown_fields=True):
    observation: dict[str, _ScalesFile]
    reward_scale: float
    reward_shift: float | list[float]
    reward_steps: int | None = None
    starts_at_mean: bool = False


class _Rows:
    """Some rows of a leaf, read slice by slice, which leaves a log on disk."""

    def __init__(self, leaf: Values, rows: Values) -> None:
        self._leaf, self._rows = leaf, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice) -> Values:
        rows: Values = self._leaf[self._rows[part]]
        return rows
