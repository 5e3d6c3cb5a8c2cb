"""Logs and policies about which nothing can be computed, told before anything is fitted.

Each answers with an "unsupported" verdict and what could be done, not with a number and not with an error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.ope.evidence.folds import clusters_of
from tidelog.ope.verdict.support_checks import SAMPLED, VARIED, Finding
from tidelog.types import Continuous, MultiDiscrete

FEWEST = 10  # episodes (or clusters) below which nothing is fitted
FEWEST_CUT, SHARE_CUT = 5, 0.005  # actions on one bound, and share of rows: the ends of a range are always reached


def hopeless(
    policy: Any,
    log: Log,
    returns: NDArray[Any],
    *,
    sample: bool,
    bandwidth: float | None,
    propensities: Any,
    effective: float = 0.0,
) -> list[Finding]:
    """Everything because of which no estimate is worth computing; empty where one can be tried.

    `effective` is the limit on the effective sample size: with fewer episodes, or clusters, it cannot be reached.
    """
    found = [
        *_too_few(log, effective),
        *_all_the_same(returns),
        *_no_density(policy, log, sample, bandwidth),
        *_cut_actions(log),
    ]
    recorded = log.propensity is not None and not (isinstance(propensities, str) and propensities == "estimated")
    given = propensities is not None and not isinstance(propensities, str)
    return found if recorded or given else [*found, *_no_propensities(log)]


def _too_few(log: Log, effective: float) -> list[Finding]:
    clusters = clusters_of(log)
    count = len(log.episode_ids) if clusters is None else int(clusters.max()) + 1
    needed = max(FEWEST, math.ceil(effective))
    if count >= needed:
        return []
    one, several = ("episode", "episodes") if clusters is None else ("cluster", "clusters of episodes")
    episodes = f"{one} is" if count == 1 else f"{several} are"
    sentence = f"{count} {episodes} too few to tell anything from; at least {needed:,} are needed"
    return [Finding("episodes", sentence, "judge it on more episodes: hold out a larger share, or bring a larger log")]


def _all_the_same(returns: NDArray[Any]) -> list[Finding]:
    if len(returns) < 2 or returns.max() > returns.min():
        return []
    sentence = f"every episode earned exactly {returns[0]:.6g}: nothing in this log can tell one decision from another"
    return [Finding("rewards", sentence, "check that the reward column is the right one")]


def _no_density(policy: Any, log: Log, sample: bool, bandwidth: float | None) -> list[Finding]:
    if not isinstance(log.spec.action, Continuous) or bandwidth is not None:
        return []
    blurred = "judge it blurred by a small noise (bandwidth=0.2, --bandwidth 0.2)"
    if not sample:
        sentence = (
            "a single choice among continuous actions has no probability: no logged action is ever exactly that one"
        )
        return [Finding("density", sentence, f"{SAMPLED}; or {blurred}")]
    if _has_density(policy, log):
        return []
    sentence = "this policy cannot say how likely it is to take a given action (it has no density)"
    return [Finding("density", sentence, blurred)]


def _cut_actions(log: Log) -> list[Finding]:
    """Continuous actions that were cut at their bounds: there the logger has a probability and no density."""
    space = log.spec.action
    if not isinstance(space, Continuous):
        return []
    action, low, high = np.asarray(log.action), np.asarray(space.low), np.asarray(space.high)
    on_bound = ((action <= low) | (action >= high)) & (high > low)
    share = float(on_bound.any(axis=1).mean())
    if on_bound.sum(axis=0).max() < FEWEST_CUT or share < SHARE_CUT:
        return []
    sentence = (
        f"{share:.1%} of the logged actions lie exactly on a bound: they were cut there, and the density of an action "
        "before the cut is not the probability of the bound"
    )
    advice = (
        "record each action as it was drawn, before the cut, with wider bounds; or round the actions to a few levels "
        "and judge them as discrete ones"
    )
    return [Finding("cut_actions", sentence, advice)]


def _has_density(policy: Any, log: Log) -> bool:
    first = {name: np.asarray(leaf[:1]) for name, leaf in log.observation.items()}
    memory = policy.start(1) if policy.is_recurrent else None
    return policy.log_probability(first, np.asarray(log.action[:1]), None, memory) is not None


def _no_propensities(log: Log) -> list[Finding]:
    space, recording = log.spec.action, "record how likely each decision was (the `propensity` column)"
    if isinstance(space, MultiDiscrete):
        sentence = (
            "how likely each recorded decision was is not known, and cannot be estimated for several choices at once"
        )
        return [Finding("propensities", sentence, recording)]
    if isinstance(space, Continuous) and (np.ptp(np.asarray(log.action), axis=0) == 0).any():
        sentence = (
            "how likely each recorded decision was is not known, and cannot be estimated: the logger always chose the "
            "same value of at least one action"
        )
        return [Finding("propensities", sentence, VARIED)]
    return []
