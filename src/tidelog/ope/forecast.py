"""What would let a log answer, in closed form: the last line of a verdict that shows nothing.

An interval of half-width `h` on `n` episodes has half-width `h sqrt(n / m)` on `m`, so that a difference `d` is shown
with probability `p` on `m = n ((z + z_p) h / (z d))^2` episodes, the sample size of a test of two means. The numbers of
episodes that support counts grow with `n`; shares do not, and only other decisions change them: a share of decisions
that is drawn evenly over the actions gives every action a probability. `plan` simulates what is approximated here.

Letters: `N` steps, `A` actions.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.special import ndtri

from tidelog.ope.decide import Assessment
from tidelog.ope.estimators import RARE
from tidelog.ope.evidence import Evidence, Floats
from tidelog.ope.intervals import normal_deviate
from tidelog.ope.verdict import PlanLine

PROBABILITY = 0.8  # of showing the difference, the usual power of a planned test
EFFECT = 0.2  # standard deviations of logged returns, a small effect (Cohen 1988), where no gain is estimated
SHARES = np.geomspace(0.01, 1.0, 21)  # of decisions drawn evenly over the actions
LARGEST = 1e9  # episodes: more are no plan
# rules whose number grows with the number of episodes, and those that only other decisions change
BY_EPISODES = ("episodes", "effective_sample_size", "largest_weight", "earning_episodes", "carrying_episodes")
BY_EXPLORATION = (
    "unsupported_mass", "effective_sample_size", "largest_weight", "pareto_k", "mean_weight", "unshown_share",
    "unshown", "weight",
)  # fmt: skip


def factor_of_error(level: float, probability: float) -> float:
    """`(z + z_p) / z`: by how much a difference exceeds the half-width of its interval to be shown so often."""
    deviate = normal_deviate(1.0 - level)
    return float((deviate + ndtri(probability)) / deviate)


def planned_effect(estimate: float, half: float, returns: Floats) -> float:
    """The gain that is planned for: the estimate if it is one, else a small share of the returns' deviation [E]."""
    small = EFFECT * float(returns.std())
    return estimate if math.isfinite(estimate) and estimate > 0.0 and half <= 30.0 * estimate else small


def episodes_to_show(a: Assessment, effect: float, probability: float) -> float:
    """The episodes on which a first look shows this difference with this probability; infinite without an interval."""
    half = (a.interval.high - a.interval.low) / 2.0 / a.widening
    needed = a.evidence.episodes * (factor_of_error(a.limits.level, probability) * half / effect) ** 2
    return needed if math.isfinite(needed) else math.inf


def allowed_actions(evidence: Evidence) -> Floats | None:
    """Even probabilities over the actions that a step may take, [N, A]; None if actions cannot be listed."""
    if evidence.target_all is None or evidence.behaviour_all is None:
        return None
    allowed = (evidence.behaviour_all > 0.0) | (evidence.target_all > 0.0)
    return np.asarray(allowed / allowed.sum(axis=1, keepdims=True))


def explored(evidence: Evidence, share: float) -> Floats | None:
    """The logging [N, A] that draws a share of its decisions evenly over the actions; None for sequences."""
    even = allowed_actions(evidence)
    if evidence.horizon > 1 or even is None or evidence.behaviour_all is None:
        return None
    practice = evidence.behaviour_all / evidence.behaviour_all.sum(axis=1, keepdims=True)
    return np.asarray((1.0 - share) * practice + share * even)


def least_share(a: Assessment) -> float | None:
    """The smallest share of decisions, drawn evenly, with which this many episodes have support; None if there is none.

    The weights' mean square under a logging `m` is `sum_a p_a^2 / m_a` on average over the steps.
    """
    evidence, limits = a.evidence, a.limits
    even = allowed_actions(evidence)
    for share in SHARES if even is not None else ():
        logging = explored(evidence, float(share))
        if logging is None or even is None or evidence.target_all is None:
            return None
        target, known = evidence.target_all, logging > 0.0
        ratio = np.divide(target, logging, out=np.zeros_like(target), where=known)
        squares = float((target * ratio).sum(axis=1).mean())
        rare = float(np.where(logging < RARE * even, target, 0.0).sum(axis=1).mean())
        size, largest = evidence.episodes / squares, float(ratio.max()) / evidence.episodes
        needed = max(limits.effective_episodes, limits.effective_share * evidence.episodes)
        mass = min(limits.unsupported_mass, limits.unshown_share) / 2.0
        if size >= needed and largest <= limits.largest_weight and rare <= mass:
            return float(share)
    return None


def plan_of(a: Assessment, returns: Floats) -> PlanLine | None:
    """What would let the log answer about this policy; None for an answer, or a policy that is the practice itself.

    `returns` are those of the judged episodes, [E].
    """
    if a.decision not in ("unsupported", "no difference shown"):
        return None
    rules = [finding.rule for finding in a.findings]
    if a.decision == "no difference shown":
        return None if a.same else _to_show(a, rules, returns)
    times = [finding.check.times for finding in a.findings]
    if all(map(math.isfinite, times)):
        episodes = len(returns) * max(times)
        if episodes <= LARGEST:
            return PlanLine("support", math.ceil(episodes))
    if set(rules) <= {*BY_EPISODES, *BY_EXPLORATION} and a.policy_evidence is not None:
        if a.evidence.horizon > 1:
            return PlanLine("sequence")
        share = least_share(a)
        if share is not None:
            return PlanLine("exploration", len(returns), share=share)
    return PlanLine("none")


def _to_show(a: Assessment, rules: list[str], returns: Floats) -> PlanLine:
    """The plan of a difference that was not shown, alone or because of a rule."""
    if rules and rules[0] == "unshown":
        if a.evidence.horizon > 1:
            return PlanLine("sequence")
        share = least_share(a)
        return PlanLine("none") if share is None else PlanLine("exploration", len(returns), share=share)
    half = (a.interval.high - a.interval.low) / 2.0
    effect = planned_effect(a.interval.estimate, half, returns)
    episodes = episodes_to_show(a, effect, PROBABILITY) if effect > 0.0 else math.inf
    kind: Literal["episodes", "enough", "propensities"] = "episodes"
    if rules and rules[0] == "sensitivity":
        kind = "propensities"
    elif not rules and episodes <= len(returns):
        kind = "enough"
    elif rules and rules[0] != "chosen":
        return PlanLine("none")
    return PlanLine("none") if episodes > LARGEST else PlanLine(kind, math.ceil(episodes), PROBABILITY, effect)
