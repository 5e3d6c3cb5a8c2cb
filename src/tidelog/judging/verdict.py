"""The verdict: is a policy better than the logger, worse, no different as far as one can see, or can the log not say.

What is behind it stands in `gather` (evidence), `deciding` (the decision), `limits` (how much support it needs),
`refusals` (what nothing can be computed about) and `words` (how it is said); docs/judging.md tells it in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.acting.statistics import Interval
from tidelog.algorithms import algorithm_name
from tidelog.data import Log
from tidelog.errors import ConfigError
from tidelog.judging import words
from tidelog.judging.deciding import METHOD, NOTHING, Case, Outcome, decided
from tidelog.judging.estimate import ESTIMATORS, IMPOSSIBLE, check_kind, model_of
from tidelog.judging.findings import overlap_finding
from tidelog.judging.folds import check_seed
from tidelog.judging.gather import gather
from tidelog.judging.given import Foreign, as_policy, check_fit, check_log
from tidelog.judging.intervals import Confidence, interval
from tidelog.judging.limits import Limits
from tidelog.judging.ratios import means
from tidelog.judging.refusals import hopeless
from tidelog.judging.results import Estimates, Support, Verdict
from tidelog.judging.reuse import Reuse, reuse_of
from tidelog.judging.risk import ALPHA, UNSUPPORTED, Risk, check_risk, risk_beside, tail_sentence
from tidelog.training.record import this_machine
from tidelog.types import Continuous


def judge(
    policy: Any,
    log: Log,
    sample: bool = False,
    propensities: Any = None,
    seed: int = 0,
    *,
    discount: float = 1.0,
    limits: Limits | None = None,
    bandwidth: float | None = None,
    model: str = "auto",
    level: float | None = None,
    cvar: float = ALPHA,
    bad_outcome: float | None = None,
    context: Mapping[str, Any] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Verdict:
    """Whether a policy is better than whoever made the log, judged on episodes that it never saw.

    `policy` is a tidelog policy, judged as it takes its most likely action or with `sample` as it draws, or any object
    with `probabilities(observation, mask)` [B, A], judged by these. `propensities` None uses the log's own, else
    estimates them; "estimated" does so anyway; or numbers [N]. `bandwidth`, a share of half of each action's range,
    blurs deterministic continuous actions. `verdict.risk` holds the distribution of returns: `cvar` is the share of
    worst episodes that it tells the mean of, `bad_outcome` a return whose probability it tells. `context` is kept with
    the verdict. What a log cannot answer is "unsupported" and says why; raises SpecError where policy and log do not
    fit, ConfigError for numbers out of range.
    """
    check_kind(log)
    check_seed(seed)
    check_risk(cvar, bad_outcome)
    if bandwidth is not None and not isinstance(log.spec.action, Continuous):
        raise ConfigError(f"bandwidth = {bandwidth!r} blurs continuous actions, and this log's are none: leave it away")
    limits = limits or Limits()
    limits = limits if level is None else replace(limits, level=level)
    known = as_policy(policy, log.spec)
    foreign = isinstance(known, Foreign)
    sample = sample or foreign
    check_log(log, discount)
    check_fit(known, log)
    reuse = reuse_of(known, log)
    told = {
        "policy": _policy_in_words(known),
        "log": {"fingerprint": log.fingerprint(), "steps": log.steps, "episodes": len(log.episode_ids)},
        "seed": seed,
        "sample": sample,
        "discount": discount,
        "bandwidth": bandwidth,
        "overlap": reuse.to_json(),
        "limits": asdict(limits),
        "versions": this_machine(),
        "judged_before": 0,
        **(context or {}),
    }
    returns = _returns(log, discount)
    refused = hopeless(known, log, returns, sample=sample, bandwidth=bandwidth, propensities=propensities)
    if refused:
        findings = [*overlap_finding(reuse.learnt_from, limits), *refused]
        return _verdict(_without_numbers(returns, findings, log, limits, seed), "none", log, limits, reuse, told)
    found = gather(
        known,
        log,
        sample=sample,
        discount=discount,
        propensities=propensities,
        model=model_of(model, needed=True),
        seed=seed,
        bandwidth=bandwidth,
        progress=progress,
    )
    case = Case(
        found.policy,
        found.cloning,
        reuse,
        limits,
        seed,
        deterministic=not sample,
        densities=isinstance(log.spec.action, Continuous),
    )
    told |= {"notes": list(found.notes), "smoothing": found.smoothing, "bandwidth": found.bandwidth}
    told |= {"propensities": "estimated" if found.policy.estimated else "recorded", "model": found.model}
    told |= {"propensities_by": found.propensities_by}
    outcome = decided(case)
    visits = ESTIMATORS[case.deciding].visits
    risk, reason = risk_beside(
        found.policy, outcome.decision, visits=visits, alpha=cvar, bad_outcome=bad_outcome, limits=limits, seed=seed
    )
    return _verdict(outcome, case.deciding, log, limits, reuse, told, risk, reason)


def _verdict(
    outcome: Outcome,
    deciding: str,
    log: Log,
    limits: Limits,
    reuse: Reuse,
    told: Mapping[str, Any],
    risk: Risk | None = None,
    risk_reason: str | None = UNSUPPORTED,
) -> Verdict:
    facts = words.Facts(
        episodes=len(log.episode_ids),
        steps=log.steps,
        level=limits.level,
        difference=outcome.difference,
        logger=outcome.logger,
        from_bc=outcome.from_bc,
        estimated_by=told.get("propensities_by"),
        judged_before=int(told["judged_before"]),
        notes=(*told.get("notes", ()), *_impossible(outcome.estimates)),
        overlap_known=reuse.learnt_from is not None or told["policy"]["algorithm"] is None,
        tail=tail_sentence(outcome.decision, risk),
    )
    return Verdict(
        decision=outcome.decision,
        reasons=words.reasons(outcome.decision, outcome.findings, facts),
        paragraph=words.paragraph(outcome.decision, outcome.findings, facts),
        estimand=words.estimand(log, told["discount"], told["sample"], told["bandwidth"]),
        deciding=deciding,
        difference=outcome.difference,
        logger=outcome.logger,
        difference_from_bc=outcome.from_bc,
        estimates=outcome.estimates,
        support=outcome.support,
        level=limits.level,
        episodes=facts.episodes,
        weights=outcome.weights,
        context=dict(told),
        risk=risk,
        risk_reason=None if risk is not None else risk_reason,
    )


def _impossible(estimates: Estimates) -> list[str]:
    """Which estimators found what cannot be."""
    names = [f"'{one.name}'" for one in estimates if one.note.startswith(IMPOSSIBLE)]
    return [f"what {', '.join(names)} says is {IMPOSSIBLE}: do not believe it"] if names else []


def _without_numbers(returns: Any, findings: list[Any], log: Log, limits: Limits, seed: int) -> Outcome:
    """What remains to be said where nothing can be estimated: the logger's own mean."""
    nothing = float("nan")
    horizon, count = int(np.diff(log.starts).max()), len(returns)
    support = Support(count, nothing, nothing, nothing, nothing, nothing, nothing, None, horizon)
    logger = Interval(float(returns.mean()), nothing, nothing)
    if count > 1:
        grouped = means(returns).grouped(limits.groups)
        logger = interval(grouped, METHOD, Confidence(limits.level, limits.replicates, seed))
    return Outcome("unsupported", findings, NOTHING, logger, None, Estimates([]), support, np.zeros(0))


def _returns(log: Log, discount: float) -> NDArray[np.float64]:
    """Discounted return of each episode, [E]."""
    factors = float(discount) ** np.asarray(log.step, np.float64)
    return np.asarray(np.add.reduceat(factors * np.asarray(log.reward, np.float64), log.starts[:-1]))


def _policy_in_words(policy: Any) -> dict[str, Any]:
    if isinstance(policy, Foreign):
        return {"algorithm": None, "kind": policy.kind}
    origin = {name: value for name, value in policy.origin.items() if name not in ("learnt_from", "held_out")}
    return {"algorithm": algorithm_name(policy.algorithm), **origin}
