"""Preconditions of an estimate, checked before any model is fitted.

A violated precondition gives an "unsupported" verdict with advice, not a number and not an error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.ope.evidence.folds import clusters_of
from tidelog.ope.verdict.support_checks import RECORDED, SAMPLED, VARIED, Finding
from tidelog.types import Continuous, MultiDiscrete

FEWEST = 10  # episodes (or clusters) below which no model is fitted
FEWEST_CUT, SHARE_CUT = 5, 0.005  # tolerated: actions on one bound, and share of rows; some always reach the ends


def violated_preconditions(
    policy: Any,
    log: Log,
    returns: NDArray[Any],
    *,
    sample: bool,
    bandwidth: float | None,
    propensities: Any,
    effective: float = 0.0,
) -> list[Finding]:
    """All violated preconditions; empty if an estimate can be computed.

    `effective` is the limit on the effective sample size; fewer episodes, or clusters, cannot reach it.
    """
    findings = [
        *_too_few(log, effective),
        *_all_the_same(returns),
        *_no_density(policy, log, sample, bandwidth),
        *_cut_actions(log),
    ]
    recorded = log.propensity is not None and not (isinstance(propensities, str) and propensities == "estimated")
    passed = propensities is not None and not isinstance(propensities, str)
    return findings if recorded or passed else [*findings, *_no_propensities(log)]


def _too_few(log: Log, effective: float) -> list[Finding]:
    clusters = clusters_of(log)
    count = len(log.episode_ids) if clusters is None else int(clusters.max()) + 1
    needed = max(FEWEST, math.ceil(effective))
    if count >= needed:
        return []
    one, several = ("episode", "episodes") if clusters is None else ("cluster", "clusters of episodes")
    episodes = f"{one} is" if count == 1 else f"{several} are"
    sentence = f"{count} {episodes} too few; at least {needed:,} are needed"
    return [Finding("episodes", sentence, "judge it on more episodes: hold out a larger share, or use a larger log")]


def _all_the_same(returns: NDArray[Any]) -> list[Finding]:
    if len(returns) < 2 or returns.max() > returns.min():
        return []
    sentence = f"every episode earned exactly {returns[0]:.6g}, so this log cannot show which decisions are better"
    return [Finding("rewards", sentence, "check that the reward column is the right one")]


def _no_density(policy: Any, log: Log, sample: bool, bandwidth: float | None) -> list[Finding]:
    if not isinstance(log.spec.action, Continuous) or bandwidth is not None:
        return []
    with_noise = "judge it with small noise added to its actions (bandwidth=0.2, --bandwidth 0.2)"
    if not sample:
        sentence = "a deterministic continuous action has no probability: no logged action is exactly equal to it"
        return [Finding("density", sentence, f"{SAMPLED}; or {with_noise}")]
    if _has_density(policy, log):
        return []
    sentence = "this policy has no density: it cannot compute the probability of an action"
    return [Finding("density", sentence, with_noise)]


def _cut_actions(log: Log) -> list[Finding]:
    """Continuous actions that were clipped at their bounds; there the logger has a probability and no density."""
    space = log.spec.action
    if not isinstance(space, Continuous):
        return []
    action, low, high = np.asarray(log.action), np.asarray(space.low), np.asarray(space.high)
    on_bound = ((action <= low) | (action >= high)) & (high > low)
    share = float(on_bound.any(axis=1).mean())
    if on_bound.sum(axis=0).max() < FEWEST_CUT or share < SHARE_CUT:
        return []
    sentence = (
        f"{share:.1%} of the logged actions lie exactly on a bound: they were clipped there, and the density of an "
        "action before clipping is not the probability of the bound"
    )
    advice = (
        "record each action before clipping, with wider bounds; or round the actions to a few levels and judge them "
        "as discrete actions"
    )
    return [Finding("cut_actions", sentence, advice)]


def _has_density(policy: Any, log: Log) -> bool:
    first = {name: np.asarray(leaf[:1]) for name, leaf in log.observation.items()}
    memory = policy.start(1) if policy.is_recurrent else None
    return policy.log_probability(first, np.asarray(log.action[:1]), None, memory) is not None


def _no_propensities(log: Log) -> list[Finding]:
    space = log.spec.action
    unknown = "the probabilities of the recorded decisions are unknown, and cannot be estimated"
    if isinstance(space, MultiDiscrete):
        return [Finding("propensities", f"{unknown} for several simultaneous choices", RECORDED)]
    if isinstance(space, Continuous) and (np.ptp(np.asarray(log.action), axis=0) == 0).any():
        sentence = f"{unknown}: the logger always chose the same value of at least one action"
        return [Finding("propensities", sentence, VARIED)]
    return []
