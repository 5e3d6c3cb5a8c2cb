"""How a policy's actions compare with those of a log: no estimate of worth, only of likeness. Letter: `N` steps."""

from __future__ import annotations

import numpy as np

from tidelog.data.log import Log
from tidelog.errors import SpecError
from tidelog.policies.policy import Policy
from tidelog.policies.replay_policy import act_along, log_probability_along
from tidelog.types import ActionSpace, Continuous, Discrete


def agreement(policy: Policy, log: Log) -> dict[str, float]:
    """Share of equal actions (or mean distance of continuous ones), and mean log-probability of the logged actions.

    Raises SpecError where the log does not show what the policy was trained to see.
    """
    if log.spec.observation != policy.spec.observation or not _comparable(log.spec.action, policy.spec.action):
        raise SpecError(f"the policy was trained on {policy.spec}, this log has {log.spec}")
    rows = log.transitions
    chosen = act_along(policy, rows.observation, log.starts, rows.mask)
    if isinstance(log.spec.action, Discrete):
        found = {"share of equal actions": float(np.mean(chosen == log.action))}
    else:
        found = {"mean distance to logged actions": float(np.mean(np.linalg.norm(chosen - log.action, axis=-1)))}
    likely = log_probability_along(policy, rows.observation, log.action, log.starts, rows.mask)
    return found if likely is None else found | {"mean log-probability of logged actions": float(likely.mean())}


def _comparable(one: ActionSpace, two: ActionSpace) -> bool:
    """Whether actions of both mean the same; bounds may differ, since they may be those of what was seen."""
    if isinstance(one, Continuous) and isinstance(two, Continuous):
        return one.size == two.size and one.names == two.names
    return one == two
