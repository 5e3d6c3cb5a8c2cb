"""Which steps of episodes weights can judge: the advice on the first ones, and whether there are none at all."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.ope.estimators.estimate import Supports
from tidelog.ope.evidence.evidence import Evidence
from tidelog.ope.evidence.first_steps import cut_evidence
from tidelog.ope.verdict.checks import Finding, support_findings
from tidelog.ope.verdict.decide import Case, apply_limits, evaluate
from tidelog.ope.verdict.limits import Limits

OF_PRODUCTS = ("effective_sample_size", "largest_weight", "pareto_k", "weight", "horizon")
# Rare rewards too can be seen often enough where weights are even. A mean weight that is wrong by itself points to
# wrong propensities, which fewer steps would only hide.
WITH_THEM = ("carrying_episodes", "earning_episodes", "mean_weight")


def with_shorter_question(findings: Sequence[Finding], case: Case) -> list[Finding]:
    """The findings, with this advice first where their only reasons are weights of whole episodes."""
    found, rules = list(findings), {finding.rule for finding in findings}
    if not rules & {*OF_PRODUCTS} or rules - {*OF_PRODUCTS, *WITH_THEM}:
        return found
    steps = supported_steps(case)
    if steps is None:
        return found
    part = "the first decision" if steps == 1 else f"only the first {steps} decisions"
    advice = (
        f"judge {part} of each episode, which the log can weigh and which says nothing about later ones "
        f"(first_steps={steps}, --first-steps {steps})"
    )
    return [found[0]._replace(advice=f"{advice}; {found[0].advice}"), *found[1:]]


def supported_steps(case: Case) -> int | None:
    """A large number of first steps that the log can decide, by bisection; None if there is none.

    The values of actions are those of whole episodes, so that this is a forecast of the verdict on these steps. The
    largest number with even weights is tried first, then halves of what is left: fewer steps have more support.
    """
    most = min(case.policy.horizon - 1, case.limits.horizon)
    even = [steps for steps in range(1, most + 1) if _has_support(case.policy, case.limits, steps)]
    found, low, high = None, 0, len(even)  # those below `low` can be decided, those from `high` on cannot
    middle = len(even) - 1
    while low < high:
        part = cut_evidence(case.policy, even[middle])
        shorter = case._replace(policy=part, cloning=None)
        if apply_limits(evaluate(shorter, Supports(part)), case.limits, case.reuse)[0] != "unsupported":
            found, low = part.horizon, middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return found


def has_no_support(evidence: Evidence, limits: Limits) -> bool:
    """Whether weights break a limit for whole episodes and for every number of first steps, whatever values are.

    False for episodes that are longer than `limits.horizon`, where ratios of visits decide.
    """
    return evidence.horizon <= limits.horizon and not any(
        _has_support(evidence, limits, steps) for steps in range(evidence.horizon, 0, -1)
    )


def _has_support(evidence: Evidence, limits: Limits, steps: int) -> bool:
    support = Supports(cut_evidence(evidence, steps)).of("wdr")
    # by the looser limit on the mean weight: what breaks it breaks the other one too
    return not support_findings(support, limits, estimated=evidence.estimated, tested=not evidence.estimated)
