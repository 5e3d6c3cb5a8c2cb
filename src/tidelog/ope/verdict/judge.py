"""The verdict: a policy is better than the logger, worse, not shown to differ, or the log cannot decide.

Its parts are `comparisons` (several policies on the same episodes), `gather` (evidence), `ledger` (earlier looks),
`simultaneous` (width of intervals), `decide` (the decision), `limits` (support it needs), `preconditions` (conditions
of any estimate) and `verdict_text` (the sentences); docs/judging.md describes them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.errors import ConfigError
from tidelog.ope.assumptions.dependence import with_detected_clusters
from tidelog.ope.estimators.estimate import ESTIMATORS, IMPOSSIBLE, check_kind, model_of
from tidelog.ope.estimators.intervals import Confidence, interval
from tidelog.ope.estimators.ratios import means
from tidelog.ope.estimators.risk import ALPHA, UNSUPPORTED, Risk, check_risk, tail_sentence, verdict_risk
from tidelog.ope.evidence.external_policies import as_policy, check_fit, check_log
from tidelog.ope.evidence.folds import check_seed
from tidelog.ope.verdict import verdict_text
from tidelog.ope.verdict.caveats import caveats
from tidelog.ope.verdict.comparisons import Comparison, LookResult, Settings, comparisons_of, look_at
from tidelog.ope.verdict.decide import METHOD, NOTHING, Outcome, decide
from tidelog.ope.verdict.ledger import Ledger
from tidelog.ope.verdict.limits import Limits
from tidelog.ope.verdict.results import Estimates, Support, Verdict
from tidelog.ope.verdict.support_checks import overlap_finding
from tidelog.ope.verdict.verdicts import Verdicts, named_policies, combine_verdicts
from tidelog.policies.statistics import Interval
from tidelog.training.runs.record import this_machine
from tidelog.types import Continuous

OTHER_DATA = "other data"


class Tail(NamedTuple):
    """Settings for the worst episodes."""

    alpha: float  # share of worst episodes whose mean return is reported
    bad_outcome: float | None  # a return at or below this is bad


@overload
def judge(
    policy: Sequence[Any] | Mapping[str, Any],
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
    learnt_from: Literal["other data"] | None = None,
    ledger: Ledger | str | Path | Literal[False] | None = None,
    context: Mapping[str, Any] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Verdicts: ...


@overload
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
    learnt_from: Literal["other data"] | None = None,
    ledger: Ledger | str | Path | Literal[False] | None = None,
    context: Mapping[str, Any] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Verdict: ...


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
    learnt_from: Literal["other data"] | None = None,
    ledger: Ledger | str | Path | Literal[False] | None = None,
    context: Mapping[str, Any] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Verdict | Verdicts:
    """Judge whether a policy is better than the logger, on episodes that the policy never saw.

    `policy` is a tidelog policy, judged by its most likely actions or with `sample` by sampled actions, or any object
    with `probabilities(observation, mask)` [B, A], judged by these. A list of policies, or a mapping from names to
    policies, gives `Verdicts` with simultaneous intervals. `propensities` None uses the log's own or estimates missing
    ones; "estimated" always estimates; or numbers [N]. `bandwidth`, as a share of half of each action's range, adds
    noise to deterministic continuous actions. `verdict.risk` holds the distribution of returns: `cvar` is the share of
    worst episodes whose mean is reported, `bad_outcome` a return whose probability is reported. `ledger` is the file
    that counts looks at these episodes, None for the default files, False for none; later looks use a stricter level.
    `learnt_from="other data"` states that the policy never learnt from these episodes if no record shows it. `context`
    is stored with the verdict. A question that the log cannot answer gives "unsupported" with reasons. Raises
    SpecError if policy and log do not fit, ConfigError for numbers out of range, CheckpointError for a damaged ledger.
    """
    check_kind(log)
    check_seed(seed)
    check_risk(cvar, bad_outcome)
    if bandwidth is not None and not isinstance(log.spec.action, Continuous):
        raise ConfigError(f"bandwidth = {bandwidth!r}: expected continuous actions. fix: remove bandwidth")
    if learnt_from not in (None, OTHER_DATA):
        raise ConfigError(
            f"learnt_from = {learnt_from!r}: expected None or '{OTHER_DATA}'. fix: leave it out if unknown"
        )
    limits = limits or Limits()
    limits = limits if level is None else replace(limits, level=level)
    several = named_policies(policy)
    name = str((context or {}).get("name", "policy"))
    policies = {one: as_policy(each, log.spec) for one, each in (several or {name: policy}).items()}
    check_log(log, discount)
    for known in policies.values():
        check_fit(known, log)
    settings = Settings(sample, propensities, seed, float(discount), limits, bandwidth, model_of(model, needed=True))
    tail = Tail(cvar, bad_outcome)
    counting = _ledger(ledger, log)
    fingerprint = log.fingerprint() if counting is None else counting.fingerprint
    facts = {"fingerprint": fingerprint, "steps": log.steps, "episodes": len(log.episode_ids)}
    log, dependence = with_detected_clusters(log)
    returns = _returns(log, discount)
    comparisons = comparisons_of(policies, log, settings, returns, progress)
    looked = look_at(comparisons, log, settings, counting)
    verdicts = []
    for one, widening in zip(comparisons, looked.widenings.tolist(), strict=True):
        entries = _context(one, facts, settings) | looked.context | dict(context or {})
        entries |= {"overlap_unknown": one.reuse.learnt_from is None and learnt_from is None, "dependence": dependence}
        entries |= {} if several is None else {"name": one.name}
        verdicts.append(_verdict(one, log, settings, looked, widening, returns, entries, tail))
    if counting is not None and looked.look is not None:
        counting.record_decisions(
            looked.look, {one.name: v.decision for one, v in zip(comparisons, verdicts, strict=True)}
        )
    return verdicts[0] if several is None else combine_verdicts(tuple(policies), verdicts, 1.0 - looked.error)


def _ledger(ledger: Ledger | str | Path | bool | None, log: Log) -> Ledger | None:
    if ledger is False:
        return None
    if not isinstance(ledger, Ledger):
        return Ledger.of(log, ledger)  # type: ignore[arg-type]  # True is refused there
    if ledger.fingerprint != log.fingerprint():
        raise ConfigError("ledger = the ledger of another log: expected one of the judged log. fix: use Ledger.of(log)")
    return ledger


def _context(one: Comparison, log: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Context of a verdict: its subject and settings."""
    entries = {
        "policy": one.facts,
        "log": dict(log),
        "seed": settings.seed,
        "sample": one.sample,
        "discount": settings.discount,
        "bandwidth": settings.bandwidth,
        "overlap": one.reuse.to_json(),
        "limits": asdict(settings.limits),
        "versions": this_machine(),
    }
    gathered = one.gathered
    if gathered is None:
        return entries
    entries |= {"notes": list(gathered.notes), "smoothing": gathered.smoothing, "bandwidth": gathered.bandwidth}
    entries |= {"propensities": "estimated" if gathered.policy.estimated else "recorded", "model": gathered.model}
    entries |= {"history": [test._asdict() for test in gathered.history]}
    entries |= {"drift": [test._asdict() for test in gathered.drift]}
    return entries | {"propensities_by": gathered.propensities_by}


def _verdict(
    one: Comparison,
    log: Log,
    settings: Settings,
    looked: LookResult,
    widening: float,
    returns: NDArray[np.float64],
    context: Mapping[str, Any],
    tail: Tail,
) -> Verdict:
    limits, level = settings.limits, settings.limits.level if one.gathered is None else 1.0 - looked.error
    risk: Risk | None = None
    risk_reason: str | None = UNSUPPORTED
    assumed: tuple[str, ...] = ()
    if one.gathered is None:
        findings = [*overlap_finding(one.reuse.learnt_from, limits), *one.refused]
        outcome, deciding = _without_numbers(returns, findings, log, limits, settings.seed), "none"
    else:
        case = one.case(log, settings, widening)
        outcome, deciding = decide(case), case.deciding
        assumed = caveats(case, outcome)
        risk, risk_reason = verdict_risk(
            case.policy,
            outcome.decision,
            visits=ESTIMATORS[deciding].uses_occupancy,
            alpha=tail.alpha,
            bad_outcome=tail.bad_outcome,
            limits=limits,
            seed=settings.seed,
        )
    notes = (*context.get("notes", ()), *context["dependence"], *_impossible(outcome.estimates), *looked.notes)
    facts = verdict_text.VerdictFacts(
        episodes=len(log.episode_ids),
        steps=log.steps,
        level=level,
        difference=outcome.difference,
        logger=outcome.logger,
        from_bc=outcome.from_bc,
        estimated_by=context.get("propensities_by"),
        notes=notes,
        overlap_known=not context["overlap_unknown"],
        caveats=assumed,
        tail=tail_sentence(outcome.decision, risk),
    )
    return Verdict(
        decision=outcome.decision,
        reasons=(*verdict_text.reasons(outcome.decision, outcome.findings, facts), *looked.reasons),
        paragraph=verdict_text.paragraph(outcome.decision, outcome.findings, facts),
        estimand=verdict_text.estimand(log, context["discount"], context["sample"], context["bandwidth"]),
        deciding=deciding,
        difference=outcome.difference,
        logger=outcome.logger,
        difference_from_bc=outcome.from_bc,
        estimates=outcome.estimates,
        support=outcome.support,
        bound=outcome.bound,
        risk=risk,
        risk_reason=None if risk is not None else risk_reason,
        level=level,
        episodes=facts.episodes,
        weights=outcome.weights,
        context=dict(context),
    )


def _impossible(estimates: Estimates) -> list[str]:
    """Note on estimates that no episode can earn."""
    names = [f"'{one.name}'" for one in estimates if one.note.startswith(IMPOSSIBLE)]
    return [f"the estimate of {', '.join(names)} is {IMPOSSIBLE}: do not use it"] if names else []


def _without_numbers(returns: Any, findings: list[Any], log: Log, limits: Limits, seed: int) -> Outcome:
    """Outcome without estimates: only the logger's own mean."""
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
