"""What the log does not show about a policy: bounds of its value, and actions more frequent than in any episode.

An action that the logger never takes does not appear in importance weights: self-normalised estimates give its share to
the logged actions. Its value is not identified, only bounded (Manski 1990, "Nonparametric bounds on treatment
effects"). Here each such action earns, from then on, the worst return to go of any logged episode at that step or
later; other actions have the model's value. Sequential doubly robust estimation with these values,

    sum_t discount^t (rho_t (r_t - Q_t) + rho_t-1 V_t),

corrects Q for every action that the logger takes, for any Q, and leaves it unchanged for all others. Its mean is
therefore the bound. An action counts as shown only if other folds hold it often enough: treating a shown action as
unshown costs precision but not validity. Weights are not normalised: 1 minus their mean is the missing part.

Occupancy ratios need an observation that is a Markov state. A test on the log can find only effects of histories in the
log: if every logged episode sends nine times, nothing shows the effect of a twentieth send. Therefore the target's
number of each action per episode is compared with those of logged episodes.

Letters: `N` steps, `E` episodes, `A` actions, `T` steps of the longest episode.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tidelog.ope.estimators.ratios import required_part
from tidelog.ope.evidence.evidence import Evidence, Floats

UNKNOWN = 0.5  # share of logged actions that other episodes do not show, from which support counts as unknown
TIMES = 1.5  # ratio of frequencies from which a policy outside the logged range is refused
ENDS = (0.01, 0.99)  # quantiles over logged episodes


def unshown_share(evidence: Evidence) -> float:
    """Mean share of the target's actions that other episodes do not show the logger taking; 1 if unknown."""
    if evidence.supported is None:
        return 1.0
    if evidence.supported.shape[1] == 1 or evidence.target_all is None:
        return float(1.0 - evidence.supported.mean())
    return float(np.where(evidence.supported, 0.0, evidence.target_all).sum(1).mean())


def excess_unshown(evidence: Evidence) -> float:
    """Excess of the target over the logger in the share of actions that other episodes do not show; 0 if unknown.

    The logger also takes actions that are in no other episode, more often in rare contexts. A lack of rows does not
    explain the target's excess over that share.
    """
    if evidence.supported is None or evidence.target_all is None or evidence.action is None:
        return 0.0
    own = 1.0 - float(evidence.supported[np.arange(len(evidence.action)), evidence.action].mean())
    return max(unshown_share(evidence) - own, 0.0) if own < UNKNOWN else 0.0


def extreme_values(evidence: Evidence, *, best: bool = False, known: float | None = None) -> Evidence:
    """The same evidence with the worst (or `best`) return instead of the model's value for unshown actions.

    `known` is the lowest (or highest) possible return of an episode, if known; None: that of the log.
    """
    step = np.arange(len(evidence.reward)) - np.repeat(evidence.starts[:-1], evidence.lengths)
    extreme = extreme_returns(evidence, best)[step] if known is None else np.full(len(step), float(known))
    supported = evidence.supported
    if supported is not None and supported.all():
        return evidence
    if supported is None:
        return replace(evidence, model=extreme, model_target=extreme, model_all=None)
    if supported.shape[1] == 1 or evidence.model_all is None or evidence.target_all is None or evidence.action is None:
        shown = supported[:, 0] if supported.shape[1] == 1 else np.zeros(len(step), bool)
        value, rated = required_part(evidence, "model_target"), required_part(evidence, "model")
        return replace(
            evidence,
            model=np.where(shown, rated, extreme),
            model_target=np.where(shown, value, extreme),
            model_all=None,
        )
    values = np.where(supported, evidence.model_all, extreme[:, None])
    return replace(
        evidence,
        model=values[np.arange(len(step)), evidence.action],
        model_target=(evidence.target_all * values).sum(1),
        model_all=values,
    )


def extreme_returns(evidence: Evidence, best: bool = False) -> Floats:
    """[T]: lowest (or highest) return to go of any episode at each step or a later one."""
    returns, lengths = np.array(evidence.reward, np.float64), evidence.lengths
    for before in range(1, evidence.horizon):
        rows = evidence.starts[1:][lengths > before] - 1 - before
        returns[rows] += evidence.discount * returns[rows + 1]
    sign = -1.0 if best else 1.0
    step = np.arange(len(returns)) - np.repeat(evidence.starts[:-1], lengths)
    least = np.full(evidence.horizon, np.inf)
    np.minimum.at(least, step, sign * returns)
    return sign * np.minimum.accumulate(least[::-1])[::-1]


class ActionCount(NamedTuple):
    """The action whose frequency is furthest from the log's."""

    action: int
    mean: float  # count per episode of the target, by occupancy ratios
    low: float  # 1% quantile of the count in logged episodes
    high: float  # 99% quantile
    outside: bool  # whether the mean is outside this range
    beyond: bool  # whether its frequency (or that of not taking it) also differs by a factor of at least `TIMES`


def unusual_action_count(evidence: Evidence) -> ActionCount:
    """The discrete action whose count per episode differs most from logged episodes."""
    usual = ActionCount(0, 0.0, 0.0, 0.0, outside=False, beyond=False)
    if evidence.occupancy is None or evidence.action is None:
        return usual
    weights, first = required_part(evidence, "occupancy"), evidence.starts[:-1]
    steps = float(np.add.reduceat(weights, first).mean())  # per episode of the target
    furthest, habit = 0.0, usual
    for action in np.unique(evidence.action):
        indicator = (evidence.action == action).astype(np.float64)
        logged = np.add.reduceat(indicator, first)
        mean = float(np.add.reduceat(indicator * weights, first).mean())
        low, high = (float(x) for x in np.quantile(logged, ENDS))
        away = max(mean - high, low - mean) / max(float(logged.std()), 1e-9)
        if away > furthest:
            near, logged_steps = (high if mean > high else low), float(evidence.lengths.mean())
            shares = mean / max(steps, 1e-9), near / logged_steps
            one, two = (np.clip(share, 1e-9, 1.0 - 1e-9) for share in shares)
            apart = max(one / two, two / one) >= TIMES or max((1 - one) / (1 - two), (1 - two) / (1 - one)) >= TIMES
            furthest, habit = away, ActionCount(int(action), mean, low, high, outside=True, beyond=bool(apart))
    return habit
