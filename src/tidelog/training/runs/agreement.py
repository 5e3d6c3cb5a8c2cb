"""Agreement of a policy's actions with those of a log; this does not estimate the policy's value. Letter: `N` steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.errors import SpecError
from tidelog.policies.policy import Policy
from tidelog.runtime.replay import replay_actions, replay_log_probability
from tidelog.types import ActionSpace, Continuous, Discrete


def agreement(policy: Policy, log: Log) -> dict[str, float]:
    """Return the share of equal actions (or the mean distance of continuous ones), and the mean log-probability.

    The log-probability is that of the logged actions. Raises SpecError if the log's spaces are not those of the policy.
    """
    return {name: float(np.mean(values)) for name, values in agreement_by_step(policy, log).items()}


def agreement_by_step(policy: Policy, log: Log) -> dict[str, NDArray[Any]]:
    """Return the measures of `agreement` at every step, [N] each."""
    if log.spec.observation != policy.spec.observation or not _comparable(log.spec.action, policy.spec.action):
        raise SpecError(
            f"log: found {log.spec}, expected the policy's {policy.spec}. fix: use a log with the spaces of the policy"
        )
    rows = log.transitions
    chosen = replay_actions(policy, rows.observation, log.starts, rows.mask)
    if isinstance(log.spec.action, Discrete):
        measures: dict[str, NDArray[Any]] = {"share of equal actions": np.asarray(chosen == log.action)}
    else:
        measures = {"mean distance to logged actions": np.linalg.norm(chosen - log.action, axis=-1)}
    likely = replay_log_probability(policy, rows.observation, log.action, log.starts, rows.mask)
    return measures if likely is None else measures | {"mean log-probability of logged actions": np.asarray(likely)}


def _comparable(one: ActionSpace, two: ActionSpace) -> bool:
    """Return whether actions of both spaces mean the same; bounds may differ, because they may come from the data."""
    if isinstance(one, Continuous) and isinstance(two, Continuous):
        return one.size == two.size and one.names == two.names
    return one == two
