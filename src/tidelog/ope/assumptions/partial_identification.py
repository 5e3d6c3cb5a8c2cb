"""What a policy is worth if everything that the log cannot show is the worst (or the best) that the log has seen.

An action that the logger never takes leaves no trace in importance weights: self-normalised estimates give its share to
the actions that were logged. Its value is not identified, only bounded (Manski 1990, "Nonparametric bounds on treatment
effects"). Here each such action earns, from then on, the worst return that any logged episode went on to earn at that
step or later; a model's value elsewhere. Sequential doubly robust estimation with these values,

    sum_t discount^t (rho_t (r_t - Q_t) + rho_t-1 V_t),

corrects Q for every action that the logger takes, whatever Q says, and leaves it as it is for all others. So its mean
is the bound. An action counts as shown only where other folds hold it often enough: to take a shown action for an
unshown one costs precision and no validity. Weights are not normalised: what they lack of 1 is the missing part.

Letters: `N` steps, `E` episodes, `A` actions, `T` steps of the longest episode.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidelog.ope.estimators.ratios import wanted
from tidelog.ope.evidence.evidence import Evidence, Floats

UNKNOWN = 0.5  # share of logged actions that other episodes do not show: from there on nothing is known of support


def unshown_share(evidence: Evidence) -> float:
    """Mean share of what the target does that other episodes do not show the logger doing; 1 if nothing is known."""
    if evidence.supported is None:
        return 1.0
    if evidence.supported.shape[1] == 1 or evidence.target_all is None:
        return float(1.0 - evidence.supported.mean())
    return float(np.where(evidence.supported, 0.0, evidence.target_all).sum(1).mean())


def excess_unshown(evidence: Evidence) -> float:
    """By how much the target does more than the logger itself of what other episodes do not show; 0 if unknown.

    The logger, too, takes actions that are in no other episode: the rarer its contexts, the more. What the target does
    beyond that share is not for lack of rows.
    """
    if evidence.supported is None or evidence.target_all is None or evidence.action is None:
        return 0.0
    own = 1.0 - float(evidence.supported[np.arange(len(evidence.action)), evidence.action].mean())
    return max(unshown_share(evidence) - own, 0.0) if own < UNKNOWN else 0.0


def extreme_values(evidence: Evidence, *, best: bool = False, known: float | None = None) -> Evidence:
    """The same evidence with the worst (or `best`) return in place of the model's value where the log shows nothing.

    `known` is the least (or largest) return that an episode can have, where somebody knows it; else the log's own.
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
        value, rated = wanted(evidence, "model_target"), wanted(evidence, "model")
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
    """[T]: the least (or largest) return to go of any episode at each step or a later one."""
    returns, lengths = np.array(evidence.reward, np.float64), evidence.lengths
    for before in range(1, evidence.horizon):
        rows = evidence.starts[1:][lengths > before] - 1 - before
        returns[rows] += evidence.discount * returns[rows + 1]
    sign = -1.0 if best else 1.0
    step = np.arange(len(returns)) - np.repeat(evidence.starts[:-1], lengths)
    least = np.full(evidence.horizon, np.inf)
    np.minimum.at(least, step, sign * returns)
    return sign * np.minimum.accumulate(least[::-1])[::-1]
