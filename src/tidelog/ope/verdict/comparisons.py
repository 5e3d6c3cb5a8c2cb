"""Policies that are judged together on the same episodes: their evidence, the look, and the width of their intervals.

One policy is the smallest case. Folds, propensities and, with tabular values, behaviour cloning do not depend on the
policy and are computed once. The evidence of all policies is in memory at the same time.

Letters: `E` episodes, `P` policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tidelog.algorithms import algorithm_name
from tidelog.data.log import Log
from tidelog.errors import ConfigError
from tidelog.ope.estimators.intervals import Confidence
from tidelog.ope.estimators.simultaneous import critical_values, normal_deviate, spent_error
from tidelog.ope.evidence.evidence import Evidence, Floats
from tidelog.ope.evidence.external_policies import ExternalPolicy
from tidelog.ope.evidence.gather import PolicyEvidence, LoggerModel, gather, logger_model, choose_model
from tidelog.ope.verdict.decide import Case
from tidelog.ope.verdict.held_out_reuse import Reuse, reuse_of
from tidelog.ope.verdict.ledger import RecordedLook, Ledger, hashed, policy_identity
from tidelog.ope.verdict.limits import Limits
from tidelog.ope.verdict.preconditions import violated_preconditions
from tidelog.ope.verdict.results import percent
from tidelog.ope.verdict.support_checks import Finding
from tidelog.types import Continuous

Progress = Callable[[str, float], None]


class Settings(NamedTuple):
    """Settings of a judgement."""

    sample: bool
    propensities: Any
    seed: int
    discount: float
    limits: Limits
    bandwidth: float | None
    model: str | None


@dataclass(frozen=True, eq=False)
class Comparison:
    """One policy against the logger, before the decision."""

    name: str
    policy: Any
    sample: bool  # whether the sampled policy is judged
    reuse: Reuse
    refused: tuple[Finding, ...]  # reasons why no evidence was gathered
    gathered: PolicyEvidence | None

    @property
    def facts(self) -> dict[str, Any]:
        """Description of the policy."""
        if isinstance(self.policy, ExternalPolicy):
            return {"algorithm": None, "kind": self.policy.kind}
        origin = {name: value for name, value in self.policy.origin.items() if name not in ("learnt_from", "held_out")}
        return {"algorithm": algorithm_name(self.policy.algorithm), **origin}

    def case(self, log: Log, settings: Settings, widening: float = 1.0) -> Case:
        """Input of the decision; ConfigError if no evidence was gathered."""
        if self.gathered is None:
            raise ConfigError(f"no evidence was gathered for {self.name}")
        densities = isinstance(log.spec.action, Continuous)
        gathered, limits, seed = self.gathered, settings.limits, settings.seed
        case = Case(gathered.policy, gathered.cloning, self.reuse, limits, seed, not self.sample, densities)
        return case._replace(widening=widening, history=gathered.history, drift=gathered.drift)


class LookResult(NamedTuple):
    """The look at the episodes, for one verdict or a table of verdicts."""

    look: RecordedLook | None  # None if looks are not counted
    error: float  # two-sided, of all policies together
    level: float  # requested level
    widenings: Floats  # [P]: length of the arms of each deciding interval, relative to that level

    @property
    def context(self) -> dict[str, Any]:
        """Entries for the verdicts' context."""
        before = 0 if self.look is None else self.look.before
        facts = {"policies": len(self.widenings), "level": 1.0 - self.error, "counted": self.look is not None}
        if self.look is not None:
            facts |= {"number": self.look.number, "elsewhere": self.look.elsewhere, "recorded": self.look.recorded}
        return {"judged_before": before, "looks": {"before": before, **facts}}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the interval is wider than that of one policy at the first look."""
        sentences = []
        if self.look is not None and self.look.number > 1:
            times = "once" if self.look.before == 1 else f"{self.look.before:,} times"
            wider = f"widened from {percent(self.level)} to {percent(1.0 - self.error)}"
            sentences.append(f"these episodes were judged {times} before: the interval is {wider}")
        if len(self.widenings) > 1:
            sentences.append(
                f"{len(self.widenings):,} policies were judged together: the intervals of all differences hold "
                f"simultaneously with {percent(1.0 - self.error)} confidence"
            )
        return tuple(sentences)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader of the verdict."""
        if self.look is None:
            return (*self.reasons, "the number of times these episodes were judged before is unknown (ledger=False)")
        sentences = [*self.reasons]
        if self.look.elsewhere:
            sentences.append(
                f"{self.look.elsewhere:.1%} of these episodes were judged before as part of another set; the wider "
                "interval does not cover judging a growing log again and again until the verdict is favourable"
            )
        if not self.look.recorded:
            sentences.append("this look could not be recorded in any ledger: later verdicts will not count it")
        return tuple(sentences)


def comparisons_of(
    policies: Mapping[str, Any], log: Log, settings: Settings, returns: Floats, progress: Progress | None = None
) -> list[Comparison]:
    """Evidence about each policy, or the reasons for its absence; `returns` [E] are the logger's."""
    comparisons: list[Comparison] = []
    shared: LoggerModel | None = None
    clones: dict[bool, Evidence | None] = {}  # by whether the clone is sampled
    propensities = settings.propensities
    for position, (name, policy) in enumerate(policies.items()):
        sample = settings.sample or isinstance(policy, ExternalPolicy)
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
        if refused:
            comparisons.append(Comparison(name, policy, sample, reuse, tuple(refused), None))
            continue
        if shared is None and len(policies) > 1:
            shared = shared_logger(log, settings)
        gathered = gather(
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
        comparisons.append(Comparison(name, policy, sample, reuse, (), gathered))
    return comparisons


def shared_logger(log: Log, settings: Settings) -> LoggerModel:
    """Model of the logger, computed once for several policies, on the folds that `gather` uses for this log."""
    log = replace(log, weight=None)
    plan = choose_model(log, settings.model, None, settings.seed)
    return logger_model(log, plan, settings.propensities, settings.seed)


def look_at(found: Sequence[Comparison], log: Log, settings: Settings, ledger: Ledger | None) -> LookResult:
    """Count the look, and compute the width of intervals for earlier looks and other policies."""
    look, limits = None, settings.limits
    counted = any(one.gathered is not None for one in found)
    if ledger is not None:
        policies = [_ledger_entry(one) for one in found]
        look = ledger.record_look(policies, _look_settings(settings), counted=counted)
    error = spent_error(limits.level, 1 if look is None else look.number)
    cases = [None if one.gathered is None else one.case(log, settings) for one in found]
    differences = [None if case is None or not case.able else case.deciding_ratios for case in cases]
    reach = critical_values(differences, Confidence(limits.level, limits.replicates, settings.seed), error)
    return LookResult(look, error, limits.level, np.maximum(reach / normal_deviate(1.0 - limits.level), 1.0))


def _ledger_entry(one: Comparison) -> dict[str, Any]:
    facts = one.facts
    identity = hashed(facts)[:32] if one.gathered is None else policy_identity(one.gathered.policy)
    return {"name": one.name, "algorithm": facts["algorithm"], "identity": identity}


def _look_settings(settings: Settings) -> dict[str, Any]:
    """Settings that distinguish looks: those that change the estimate, not the limits."""
    propensities = settings.propensities
    numbers = None if propensities is None or isinstance(propensities, str) else np.asarray(propensities)
    return {
        "sample": settings.sample,
        "propensities": propensities if numbers is None else hashed(numbers.tolist())[:32],
        "seed": settings.seed,
        "discount": settings.discount,
        "bandwidth": settings.bandwidth,
        "model": settings.model,
        "horizon": settings.limits.horizon,
    }


def _part_of(progress: Progress | None, name: str, position: int, count: int) -> Progress | None:
    if progress is None or count == 1:
        return progress
    return lambda what, share: progress(f"{name}: {what}", (position + share) / count)
