"""Policies that are not tidelog's own: whatever tells the probabilities of discrete actions can be judged.

Letters: `B` batch, `A` number of actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.errors import ConfigError, SpecError
from tidelog.ope.evidence.target import target_of
from tidelog.policies.policy import Policy
from tidelog.types import Discrete, Spec


@runtime_checkable
class Tells(Protocol):
    """A policy of any make: `probabilities(observation, mask)` [B, A] for observations by leaf and a mask or None."""

    def probabilities(self, observation: Mapping[str, NDArray[Any]], mask: NDArray[np.bool_] | None) -> NDArray[Any]:
        """How likely each action is in each row."""
        ...


class Foreign:
    """A policy of any make as the judge asks one of tidelog's; it is judged by its probabilities as they are."""

    is_recurrent = False

    def __init__(self, tells: Tells, spec: Spec) -> None:
        if not isinstance(spec.action, Discrete):
            raise SpecError(
                f"a policy that only tells probabilities is for discrete actions, this log has "
                f"{type(spec.action).__name__} ones"
            )
        self._tells, self.spec, self.origin = tells, spec, dict[str, Any]()
        self.actions, self.kind = spec.action.n, type(tells).__name__

    def probabilities(self, leaves: Mapping[str, NDArray[Any]], mask: Any = None, memory: Any = None) -> NDArray[Any]:
        """Probabilities [B, A] as they were told; SpecError where they are none."""
        found = np.asarray(self._tells.probabilities(leaves, mask), np.float64)
        wanted = (len(next(iter(leaves.values()))), self.actions)
        if found.shape != wanted:
            raise SpecError(f"the policy's probabilities have shape {found.shape}, expected [rows, actions] = {wanted}")
        sums = found.sum(axis=1)
        if not (found >= 0).all() or not np.allclose(sums, 1.0, atol=1e-3):
            row = int(np.flatnonzero(~((found >= 0).all(axis=1) & np.isclose(sums, 1.0, atol=1e-3)))[0])
            raise SpecError(f"the policy's probabilities must be at least 0 and add up to 1, row {row} is {found[row]}")
        return found

    def __call__(self, leaves: Mapping[str, NDArray[Any]], mask: Any = None, memory: Any = None) -> NDArray[Any]:
        """The likeliest action [B]."""
        return np.asarray(self.probabilities(leaves, mask).argmax(axis=1))


def as_policy(policy: Any, spec: Spec) -> Any:
    """The policy itself, or one of another make made askable; SpecError where it is no policy."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, type) or not isinstance(policy, Tells):
        found = policy.__name__ if isinstance(policy, type) else type(policy).__name__
        raise SpecError(
            f"expected a policy, found {found}: pass run.policy(), tl.load_policy(...), or an object with "
            "probabilities(observation, mask)"
        )
    return Foreign(policy, spec)


def check_log(log: Log, discount: float) -> None:
    """Raise SpecError where a log has no reward or several, ConfigError where the discount is none."""
    if log.reward is None:
        raise SpecError("this log has no rewards, so there is nothing to judge by: map a reward column")
    if log.spec.rewards is not None:
        raise SpecError(
            f"this log has {log.spec.rewards} rewards and a judgement is about one: name one column as reward in the "
            'mapping, as in reward = "survived", or add up a weighted one before the log is read'
        )
    if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0.0 <= discount <= 1.0:
        raise ConfigError(f"discount = {discount!r}: expected a number in [0, 1]")


def check_fit(policy: Any, log: Log) -> None:
    """Raise SpecError where the policy sees or does something else than the log shows, tried on its first episode."""
    target_of(policy, log.take_episodes([0]))
