"""The verdict: a policy is better than the logger, worse, not shown to differ, or the log cannot decide.

`judge` reads from top to bottom: the checks of its arguments; the evidence about each policy (`evidence_of`) unless a
precondition is violated (`checks`); the look at these episodes (`ledger`) with the width of all intervals
(`intervals`); then for each policy the decision (`decide`), its risk, and its sentences (`verdict_text`).
docs/judging.md describes the parts in order.

Several policies are judged together on the same episodes; one policy is the smallest case. Folds, propensities and,
with tabular values, behaviour cloning do not depend on the policy and are computed once. The evidence of all policies
is in memory at the same time.

Letters: `E` episodes, `P` policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from tidelog.algorithms.names import algorithm_name
from tidelog.data.log import Log
from tidelog.data.sources.files import source_text
from tidelog.errors import ConfigError, SpaceError
from tidelog.memory import shortage
from tidelog.ope.assumptions.independence import with_detected_clusters
from tidelog.ope.estimators.estimate import ESTIMATORS, IMPOSSIBLE, Supports, model_of
from tidelog.ope.estimators.intervals import (
    Confidence,
    adaptive_deviate,
    critical_values,
    interval,
    normal_deviate,
    spent_error,
)
from tidelog.ope.estimators.ratios import means
from tidelog.ope.estimators.risk import ALPHA, Risk, check_risk, risk_of, tail_sentence
from tidelog.ope.estimators.support import Estimates, Support
from tidelog.ope.evidence.episodes import check_kind, check_log, check_seed
from tidelog.ope.evidence.evidence import Evidence, Floats
from tidelog.ope.evidence.policy_evidence import LoggerModel, PolicyEvidence, choose_model, evidence_of, logger_model
from tidelog.ope.evidence.target import DRAWS, ExternalPolicy, as_policy, check_fit, is_sampled
from tidelog.ope.verdict import verdict_text
from tidelog.ope.verdict.checks import (
    NOT_CLOSER,
    Finding,
    Reuse,
    closer_advice,
    has_density,
    overlap_finding,
    reuse_of,
    support_findings,
    violated_preconditions,
)
from tidelog.ope.verdict.decide import METHOD, NOTHING, Case, Outcome, decide
from tidelog.ope.verdict.ledger import Ledger, RecordedLook, hashed, policy_identity
from tidelog.ope.verdict.limits import Limits
from tidelog.ope.verdict.results import CAVEAT, Verdict, Verdicts, combine_verdicts, named_policies, percent
from tidelog.ope.verdict.verdict_text import caveats
from tidelog.policies.policy import Policy
from tidelog.policies.statistics import Interval
from tidelog.training.runs.progress import Screen
from tidelog.training.runs.record import this_machine
from tidelog.types import Continuous, Discrete

UNSUPPORTED = "the verdict is unsupported: a log that cannot show the mean cannot show the worst episodes either"


_OF_POLICY, _OF_LOG = 4, 40  # numbers of 8 bytes: arrays of a policy by action, arrays of the log by step
OTHER_DATA = "other data"


Progress = Callable[[str, float], None]


class Settings(NamedTuple):
    """Settings of a judgement."""

    sample: bool | None  # None: each policy in its declared way of acting
    propensities: Any
    seed: int
    discount: float
    limits: Limits
    bandwidth: float | None
    model: str | None
    alpha: float = ALPHA  # share of worst episodes whose mean return is reported
    bad_outcome: float | None = None  # a return at or below this is bad


@overload
def judge(
    policy: Sequence[Any] | Mapping[str, Any],
    log: Log,
    sample: bool | None = None,
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
    progress: Progress | bool | None = None,
) -> Verdicts: ...


@overload
def judge(
    policy: Any,
    log: Log,
    sample: bool | None = None,
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
    progress: Progress | bool | None = None,
) -> Verdict: ...


def judge(
    policy: Any,
    log: Log,
    sample: bool | None = None,
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
    progress: Progress | bool | None = None,
) -> Verdict | Verdicts:
    """Judge whether a policy is better than the logger, on episodes that the policy never saw.

    `policy` is a tidelog policy, judged by its most likely actions or with `sample` by sampled actions (None: as it was
    declared, else by its most likely actions), or any object with `probabilities(observation, mask)` [B, A], judged by
    these. This declares the way of acting: from now on a tidelog policy acts as it was judged, and carries the verdict.
    A list of policies, or a mapping from names to policies, gives `Verdicts` with simultaneous intervals.
    `propensities` None uses the log's own or estimates missing ones; "estimated" always estimates; or numbers [N].
    `bandwidth`, as a share of half of each action's range, adds noise to deterministic continuous actions.
    `verdict.risk` holds the distribution of returns: `cvar` is the share of worst episodes whose mean is reported,
    `bad_outcome` a return whose probability is reported. `ledger` is the file that counts looks at these episodes, None
    for the default files, False for none; later looks use a stricter level. `learnt_from="other data"` states that the
    policy never learnt from these episodes if no record shows it. `context` is stored with the verdict. A question that
    the log cannot answer gives "unsupported" with reasons. `progress` is a function of the current part and its share,
    False for silence, None for a line on a terminal, a bar in a notebook and lines elsewhere. Raises
    SpecError if policy and log do not fit, SpaceError if memory does not suffice, ConfigError for numbers out of range,
    CheckpointError for a damaged ledger.
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
    _check_memory(log, len(policies))
    kind = model_of(model, needed=True)
    settings = Settings(sample, propensities, seed, float(discount), limits, bandwidth, kind, cvar, bad_outcome)
    counting = _ledger(ledger, log)
    fingerprint = log.fingerprint() if counting is None else counting.fingerprint
    source = log.report.source if log.origin is None else source_text(log.origin)
    facts = {"fingerprint": fingerprint, "source": source, "steps": log.steps, "episodes": len(log.episode_ids)}
    log, dependence = with_detected_clusters(log)
    factors = float(discount) ** np.asarray(log.step, np.float64)
    returns = np.add.reduceat(factors * np.asarray(log.reward, np.float64), log.starts[:-1])
    with Screen("judging", progress if isinstance(progress, bool) else None if progress is None else False) as screen:
        tell = progress if callable(progress) else screen.tell
        comparisons = comparisons_of(policies, log, settings, returns, tell)
    looked = look_at(comparisons, settings, counting)
    verdicts = []
    for one, widening in zip(comparisons, looked.widenings.tolist(), strict=True):
        entries = _context(one, facts, settings) | looked.context | dict(context or {})
        entries |= {"overlap_unknown": one.reuse.learnt_from is None and learnt_from is None, "dependence": dependence}
        entries |= {} if several is None else {"name": one.name}
        verdicts.append(_verdict(one, log, settings, looked, widening, returns, entries))
    for judged, verdict in zip(policies.values(), verdicts, strict=True):
        if isinstance(judged, Policy):
            judged.declare(verdict.summary["acting"], verdict.summary)
    if counting is not None and looked.look is not None:
        names = [one.name for one in comparisons]
        decisions = {name: verdict.decision for name, verdict in zip(names, verdicts, strict=True)}
        counting.record_decisions(looked.look, decisions, dict(zip(names, looked.together, strict=True)))
    return verdicts[0] if several is None else combine_verdicts(tuple(policies), verdicts, 1.0 - looked.error)


def _ledger(ledger: Ledger | str | Path | bool | None, log: Log) -> Ledger | None:
    if ledger is False:
        return None
    if not isinstance(ledger, Ledger):
        ledger = Ledger.of(log, ledger)  # type: ignore[arg-type]  # True is refused there
    elif ledger.fingerprint != log.fingerprint():
        raise ConfigError("ledger = the ledger of another log: expected one of the judged log. fix: use Ledger.of(log)")
    ledger.check()  # before minutes of fitting
    return ledger


@dataclass(frozen=True, eq=False)
class Comparison:
    """One policy against the logger, before the decision."""

    name: str
    policy: Any
    sample: bool  # whether the sampled policy is judged
    reuse: Reuse
    refused: tuple[Finding, ...]  # violated preconditions, because of which no evidence was gathered
    gathered: PolicyEvidence | None
    densities: bool  # whether actions are continuous
    can_sample: bool = True  # whether judging it by sampled actions could be an answer

    @property
    def facts(self) -> dict[str, Any]:
        """Description of the policy."""
        if isinstance(self.policy, ExternalPolicy):
            return {"algorithm": None, "kind": self.policy.kind}
        origin = {name: value for name, value in self.policy.origin.items() if name not in ("learnt_from", "held_out")}
        return {"algorithm": algorithm_name(self.policy.algorithm), **origin}

    def case(self, settings: Settings, widening: float = 1.0) -> Case:
        """Input of the decision; ConfigError if no evidence was gathered."""
        if self.gathered is None:
            raise ConfigError(f"no evidence was gathered for {self.name}")
        case = Case(
            self.gathered.policy,
            self.gathered.cloning,
            self.reuse,
            settings.limits,
            settings.seed,
            deterministic=self.can_sample and not self.sample,
            densities=self.densities,
            history=self.gathered.history,
            drift=self.gathered.drift,
            widening=widening,
        )
        clone = case.cloning
        copied = clone is None or not support_findings(Supports(clone).of(case.deciding), settings.limits)
        return case._replace(closer=closer_advice(self.policy) if copied else NOT_CLOSER)


def comparisons_of(
    policies: Mapping[str, Any], log: Log, settings: Settings, returns: Floats, progress: Progress | None = None
) -> list[Comparison]:
    """Evidence about each policy, or the reasons for its absence; `returns` [E] are the logger's."""
    comparisons: list[Comparison] = []
    shared: LoggerModel | None = None
    clones: dict[bool, Evidence | None] = {}  # by whether the clone is sampled
    propensities, densities = settings.propensities, isinstance(log.spec.action, Continuous)
    for position, (name, policy) in enumerate(policies.items()):
        sample = is_sampled(policy, settings.sample)
        reuse = reuse_of(policy, log)
        refused = violated_preconditions(
            policy,
            log,
            returns,
            sample=sample,
            bandwidth=settings.bandwidth,
            propensities=propensities,
            effective=settings.limits.effective_episodes,
        )
        if refused or overlap_finding(reuse.learnt_from, settings.limits):  # nothing that is fitted could change this
            comparisons.append(Comparison(name, policy, sample, reuse, tuple(refused), None, densities))
            continue
        if shared is None and len(policies) > 1:
            unweighted = replace(log, weight=None)  # as in `evidence_of`, with the same folds
            choice = choose_model(unweighted, settings.model, None, settings.seed)
            shared = logger_model(unweighted, choice, propensities, settings.seed)
        gathered = evidence_of(
            policy,
            log,
            sample=sample,
            discount=settings.discount,
            propensities=propensities if shared is None else shared,
            model=settings.model,
            seed=settings.seed,
            bandwidth=settings.bandwidth,
            cloning=sample not in clones,
            progress=_part_of(progress, name, position, len(policies)),
        )
        if gathered.model != "neural":  # one network values a policy and the clone: each policy has its own
            gathered = replace(gathered, cloning=clones.setdefault(sample, gathered.cloning))
        can_sample = not densities or has_density(policy, log)
        comparisons.append(Comparison(name, policy, sample, reuse, (), gathered, densities, can_sample))
    return comparisons


def _part_of(progress: Progress | None, name: str, position: int, count: int) -> Progress | None:
    if progress is None or count == 1:
        return progress
    return lambda what, share: progress(f"{name}: {what}", (position + share) / count)


class LookResult(NamedTuple):
    """The look at the episodes, for one verdict or a table of verdicts."""

    look: RecordedLook | None  # None if looks are not counted
    error: float  # two-sided, of all policies together
    level: float  # requested level
    widenings: Floats  # [P]: length of the arms of each deciding interval, relative to that level
    together: list[float]  # [P]: the part of it that is due to the other policies of the look
    own_file: Path | None = None  # the one ledger that was named

    @property
    def context(self) -> dict[str, Any]:
        """Entries for the verdicts' context."""
        before = 0 if self.look is None else self.look.before
        facts = {"policies": self.policies, "level": 1.0 - self.error, "counted": self.look is not None}
        if self.look is not None:
            facts |= {"number": self.look.number, "elsewhere": self.look.elsewhere, "recorded": self.look.recorded}
            facts |= {"policies_before": self.look.policies_before}
        return {"judged_before": before, "looks": {"before": before, **facts}}

    @property
    def policies(self) -> int:
        """Number of policies of the look."""
        return len(self.widenings) if self.look is None else self.look.policies

    @property
    def conditions(self) -> list[str]:
        """What the reader of a short form of the verdict has to know about the count of looks."""
        if self.look is None:
            return ["earlier verdicts on these episodes were not counted"]
        return [] if self.own_file is None else [f"earlier verdicts were counted in {self.own_file.name} alone"]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the interval is wider than that of one policy at the first look."""
        sentences = []
        if self.look is not None and self.look.number > 1:
            times = "once" if self.look.before == 1 else f"{self.look.before:,} times"
            different, results = self.look.different_before, self.look.policies_before
            policies = "one policy" if different == 1 else f"{different:,} policies"
            policies += f" ({results:,} results)" if results > different else ""
            sentences.append(
                f"these episodes were judged {times} before, with {policies}: the interval is "
                f"{self.widenings.max():.2g} times as long as at a first look, because it holds for "
                f"{percent(1.0 - self.error)} instead of {percent(self.level)} and for any policy that the earlier "
                "results led to (`tidelog judge --looks` lists them)"
            )
        if self.policies > 1:
            sentences.append(
                f"{self.policies:,} policies were judged together: the intervals of all differences hold "
                f"simultaneously with {percent(1.0 - self.error)} confidence"
            )
        return tuple(sentences)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader of the verdict."""
        if self.look is None:
            return (*self.reasons, "the number of times these episodes were judged before is unknown (ledger=False)")
        sentences = [*self.reasons]
        if self.own_file is not None:
            sentences.append(f"looks that are not in {self.own_file} are unknown and do not widen the interval")
        if self.look.elsewhere:
            sentences.append(
                f"{self.look.elsewhere:.1%} of these episodes were judged before as part of another set; the wider "
                "interval does not cover judging a growing log again and again until the verdict is favourable"
            )
        if not self.look.recorded:
            sentences.append("this look could not be recorded in any ledger: later verdicts will not count it")
        return tuple(sentences)


def look_at(found: Sequence[Comparison], settings: Settings, ledger: Ledger | None) -> LookResult:
    """Count the look, and compute the width of intervals for earlier looks and other policies."""
    look, limits = None, settings.limits
    counted = any(one.gathered is not None for one in found)
    if ledger is not None:
        policies = []
        for one in found:
            facts = one.facts
            identity = hashed(facts)[:32] if one.gathered is None else policy_identity(one.gathered.policy)
            policies.append({"name": one.name, "algorithm": facts["algorithm"], "identity": identity})
        ways = {one.sample for one in found}
        sampled = ways.pop() if len(ways) == 1 else [one.sample for one in found]
        look = ledger.record_look(policies, {"sample": sampled, **_look_settings(settings)}, counted=counted)
    error = spent_error(limits.level, 1 if look is None else look.number)
    cases = [None if one.gathered is None else one.case(settings) for one in found]
    differences = [None if case is None or not case.able else case.deciding_ratios for case in cases]
    if look is not None and look.together is not None:
        together = np.asarray(look.together)
    else:
        reach = critical_values(differences, Confidence(limits.level, limits.replicates, settings.seed), error)
        together = np.maximum(reach / normal_deviate(error), 1.0)
    count = len(found) if look is None else look.policies
    before = 0 if look is None else look.policies_before
    least = adaptive_deviate(error / count, before) if before else normal_deviate(error)
    widenings = np.maximum(together * normal_deviate(error), least) / normal_deviate(1.0 - limits.level)
    own_file = None if ledger is None or ledger.optional else ledger.files[0]
    return LookResult(look, error, limits.level, np.maximum(widenings, 1.0), together.tolist(), own_file)


def _look_settings(settings: Settings) -> dict[str, Any]:
    """Settings that distinguish looks: those that change the estimate, not the limits."""
    propensities = settings.propensities
    numbers = None if propensities is None or isinstance(propensities, str) else np.asarray(propensities)
    return {
        "propensities": propensities if numbers is None else hashed(numbers.tolist())[:32],
        "seed": settings.seed,
        "discount": settings.discount,
        "bandwidth": settings.bandwidth,
        "model": settings.model,
        "horizon": settings.limits.horizon,
    }


def _context(one: Comparison, facts: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Context of a verdict: its subject and settings."""
    entries = {
        "policy": one.facts,
        "log": dict(facts),
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


def _check_memory(log: Log, policies: int) -> None:
    """Raise SpaceError if what judging computes for every stored observation does not fit into free memory."""
    space = log.spec.action
    wide = space.n if isinstance(space, Discrete) else DRAWS * space.size if isinstance(space, Continuous) else 1
    stored = len(next(iter(log.observation.values())))
    numbers = policies * _OF_POLICY * stored * wide + _OF_LOG * log.steps
    columns = sum(column.nbytes for column in log.columns().values())
    problem = shortage(8 * numbers + columns)
    if problem is not None:
        raise SpaceError(
            f"judging {policies} policies on {log.steps:,} steps: {problem}; nothing was recorded. fix: judge fewer "
            "policies at a time, judge fewer episodes (log.split), or free memory"
        )


def _verdict(
    one: Comparison,
    log: Log,
    settings: Settings,
    looked: LookResult,
    widening: float,
    returns: NDArray[np.float64],
    context: Mapping[str, Any],
) -> Verdict:
    limits, level = settings.limits, settings.limits.level if one.gathered is None else 1.0 - looked.error
    unit = log.reward_unit
    risk: Risk | None = None
    risk_reason: str | None = UNSUPPORTED
    assumed: tuple[str, ...] = ()
    if one.gathered is None:
        findings = [*overlap_finding(one.reuse.learnt_from, limits), *one.refused]
        outcome, deciding = _without_numbers(returns, findings, log, limits, settings.seed), "none"
    else:
        case = one.case(settings, widening)
        outcome, deciding = decide(case), case.deciding
        assumed = caveats(case, outcome)
        risk, risk_reason = verdict_risk(
            case.policy,
            outcome.decision,
            visits=ESTIMATORS[deciding].uses_occupancy,
            alpha=settings.alpha,
            bad_outcome=settings.bad_outcome,
            limits=limits,
            seed=settings.seed,
        )
        risk = None if risk is None else replace(risk, reward_unit=unit)
    names = [f"'{row.name}'" for row in outcome.estimates if row.note.startswith(IMPOSSIBLE)]
    impossible = [f"the estimate of {', '.join(names)} is {IMPOSSIBLE}: do not use it"] if names else []
    looser = [f"limits are looser than the defaults: {', '.join(limits.looser())}"] if limits.looser() else []
    lengths = np.diff(log.starts)
    concentrated = {"largest_weight", "effective_sample_size"} & {finding.rule for finding in outcome.findings}
    by_products = concentrated and not ESTIMATORS[deciding].uses_occupancy
    named = verdict_text.dominating(log.episode_ids, lengths, outcome.weights) if by_products else []
    notes = (*context.get("notes", ()), *context["dependence"], *named, *impossible, *looked.notes, *looser)
    unknown = [CAVEAT] if context["overlap_unknown"] else []
    loose = [f"limits looser than the defaults: {len(limits.looser())}"] if looser else []
    context = {**context, "conditions": [*unknown, *looked.conditions, *loose]}
    facts = verdict_text.VerdictFacts(
        episodes=len(log.episode_ids),
        steps=log.steps,
        level=level,
        difference=outcome.difference,
        logger=outcome.logger,
        estimated_by=context.get("propensities_by"),
        notes=notes,
        overlap_known=not context["overlap_unknown"],
        caveats=assumed,
        tail=tail_sentence(outcome.decision, risk),
        unit=unit,
    )
    cut = int(np.asarray(log.truncated)[log.starts[1:] - 1].sum())
    return Verdict(
        decision=outcome.decision,
        reasons=(*verdict_text.reasons(outcome.decision, outcome.findings, facts), *looked.reasons),
        paragraph=verdict_text.paragraph(outcome.decision, outcome.findings, facts),
        estimand=verdict_text.estimand(lengths, cut, context["discount"], context["sample"], context["bandwidth"]),
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
        reward_unit=unit,
    )


def verdict_risk(
    evidence: Evidence,
    decision: str,
    *,
    visits: bool,
    alpha: float,
    bad_outcome: float | None,
    limits: Limits,
    seed: int,
) -> tuple[Risk | None, str | None]:
    """The risk for a verdict, or None and the reason; `visits`: occupancy ratios decided."""
    if decision == "unsupported":
        return None, UNSUPPORTED
    if visits:
        reason = (
            f"episodes have up to {evidence.horizon:,} decisions; the distribution of returns needs products of ratios "
            f"over whole episodes, which carry no information beyond {limits.horizon} decisions"
        )
        return None, reason
    confidence = Confidence(limits.level, limits.replicates, seed)
    risk = risk_of(
        evidence,
        alpha=alpha,
        bad_outcome=bad_outcome,
        clusters=evidence.clusters,
        confidence=confidence,
        groups=limits.groups,
    )
    return risk, None


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
