"""How well policies imitate logged decisions: all that a log without rewards can show.

Letters: `N` steps, `E` episodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from tidelog._text import three_digits
from tidelog.data.log import Log
from tidelog.runtime.policy import replay_actions
from tidelog.types import Continuous, Discrete

LEVEL = 0.95

Values = NDArray[Any]


class Imitation(NamedTuple):
    """A policy's most likely actions, and one constant action, compared with the logged ones."""

    policy: Values  # [N]: as `likeness` of its actions
    constant: Values  # [N]: the same for the most common action, or the mean of continuous ones
    constant_name: str
    is_distance: bool
    starts: Values  # [E + 1]: first rows of the episodes, and N

    @classmethod
    def of(cls, log: Log, actions: Values, starts: Values) -> Imitation:
        """Compare actions [N, ...] with those of the first N rows of a log, whose episodes begin at `starts`.

        The constant action is that of these rows themselves, which favours it.
        """
        logged, space = np.asarray(log.action[: starts[-1]]), log.spec.action
        if isinstance(space, Continuous):
            constant, name = logged.mean(axis=0), "the mean action"
        else:
            different, counts = np.unique(logged, axis=0, return_counts=True)
            constant = different[counts.argmax()]
            label = space.names[int(constant)] if isinstance(space, Discrete) and space.names else constant
            name = f"the most common action ({label})"
        always = likeness(log, np.broadcast_to(constant, logged.shape), starts)
        return cls(likeness(log, actions, starts), always, name, isinstance(space, Continuous), starts)

    @property
    def difference(self) -> tuple[float, float, float]:
        """Mean over steps of the policy's likeness minus the constant's, and its 95% interval.

        The interval is Student's t over episodes, whose steps are not independent; no number for one episode.
        """
        more, lengths = self.policy - self.constant, np.diff(self.starts)
        mean, count = float(more.mean()), len(lengths)
        if count < 2:
            return mean, np.nan, np.nan
        apart = np.add.reduceat(more, self.starts[:-1]) - mean * lengths
        error = np.sqrt(count / (count - 1) * np.square(apart).sum()) / lengths.sum()
        half = float(stdtrit(count - 1, (1.0 + LEVEL) / 2.0) * error)
        return mean, mean - half, mean + half

    @property
    def sentence(self) -> str:
        """What the policy predicts, beside the constant action; the name of the policy comes before it."""
        scale, unit = (1.0, "") if self.is_distance else (100.0, " points")
        mean, low, high = (three_digits(scale * one, sign=True) for one in self.difference)
        ends = "" if np.isnan(self.difference[1]) else f" ({LEVEL:.0%} interval {low} to {high})"
        own, always = float(self.policy.mean()), float(self.constant.mean())
        if self.is_distance:
            compared = f"has a mean distance to the logged actions of {three_digits(own)}"
            beside = f"{self.constant_name} one of {three_digits(always)}"
        else:
            compared = f"chooses the logged action at {own:.1%} of the steps"
            beside = f"{self.constant_name} is right at {always:.1%}"
        return f"{compared}, {beside}: a difference of {mean}{unit}{ends}"


def likeness(log: Log, actions: Values, starts: Values) -> Values:
    """Compare actions [N, ...] with those of the first N rows of a log.

    [N] float64: 1 where all choices of a step are the logged ones, else 0; for continuous actions their distance.
    """
    logged = np.asarray(log.action[: starts[-1]])
    if isinstance(log.spec.action, Continuous):
        distance: Values = np.linalg.norm(actions.astype(np.float64) - logged, axis=-1)
        return distance
    same: Values = (actions == logged).reshape(len(logged), -1).all(axis=-1).astype(np.float64)
    return same


def imitation_of(policy: Any, log: Log) -> Imitation:
    """Compare a policy's most likely actions with the logged ones at all steps of a log."""
    rows = log.transitions
    actions = replay_actions(policy, rows.observation, log.starts, rows.mask)
    return Imitation.of(log, actions, log.starts)
