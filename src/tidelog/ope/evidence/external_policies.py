"""Policies from outside tidelog: any object with probabilities of discrete actions can be judged.

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
class ProbabilityPolicy(Protocol):
    """An external policy: `probabilities(observation, mask)` [B, A] for observations by leaf and a mask or None."""

    def probabilities(self, observation: Mapping[str, NDArray[Any]], mask: NDArray[np.bool_] | None) -> NDArray[Any]:
        """Probability of each action in each row."""
        ...


class ExternalPolicy:
    """An external policy with the interface of a tidelog policy; it is judged by its unchanged probabilities."""

    is_recurrent = False

    def __init__(self, tells: ProbabilityPolicy, spec: Spec) -> None:
        if not isinstance(spec.action, Discrete):
            raise SpecError(
                f"an external policy supports only discrete actions; this log has {type(spec.action).__name__} actions"
            )
        self._tells, self.spec, self.origin = tells, spec, dict[str, Any]()
        self.actions, self.kind = spec.action.n, type(tells).__name__

    def probabilities(self, leaves: Mapping[str, NDArray[Any]], mask: Any = None, memory: Any = None) -> NDArray[Any]:
        """The external policy's probabilities [B, A]; SpecError if they are invalid."""
        chances = np.asarray(self._tells.probabilities(leaves, mask), np.float64)
        expected = (len(next(iter(leaves.values()))), self.actions)
        if chances.shape != expected:
            raise SpecError(
                f"the policy's probabilities have shape {chances.shape}: expected [rows, actions] = {expected}"
            )
        sums = chances.sum(axis=1)
        if not (chances >= 0).all() or not np.allclose(sums, 1.0, atol=1e-3):
            row = int(np.flatnonzero(~((chances >= 0).all(axis=1) & np.isclose(sums, 1.0, atol=1e-3)))[0])
            raise SpecError(
                f"the policy's probabilities in row {row} are {chances[row]}: expected numbers of at least 0 that add "
                "up to 1"
            )
        return chances

    def __call__(self, leaves: Mapping[str, NDArray[Any]], mask: Any = None, memory: Any = None) -> NDArray[Any]:
        """The most likely action [B]."""
        return np.asarray(self.probabilities(leaves, mask).argmax(axis=1))


def as_policy(policy: Any, spec: Spec) -> Any:
    """The policy itself, or an external policy wrapped as `ExternalPolicy`; SpecError if it is not a policy."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, type) or not isinstance(policy, ProbabilityPolicy):
        kind = policy.__name__ if isinstance(policy, type) else type(policy).__name__
        raise SpecError(
            f"expected a policy, found {kind}. fix: pass run.policy(), tl.load_policy(...), or an object with "
            "probabilities(observation, mask)"
        )
    return ExternalPolicy(policy, spec)


def check_log(log: Log, discount: float) -> None:
    """Raise SpecError if a log has no reward or several, ConfigError for an invalid discount."""
    if log.reward is None:
        raise SpecError("this log has no rewards: expected one reward column. fix: map a reward column")
    if log.spec.rewards is not None:
        raise SpecError(
            f"this log has {log.spec.rewards} rewards: expected one. fix: name one column as reward in the mapping, as "
            'in reward = "survived", or compute a weighted sum before reading the log'
        )
    if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0.0 <= discount <= 1.0:
        raise ConfigError(f"discount = {discount!r}: expected a number in [0, 1]. fix: use 0.99")


def check_fit(policy: Any, log: Log) -> None:
    """Raise SpecError if the policy's observations or actions differ from the log's; checks the first episode."""
    target_of(policy, log.take_episodes([0]))
