"""One policy against the logger before the decision: the violated preconditions, or the evidence.

Several policies share folds, propensities and, with tabular values, behaviour cloning: these do not depend on the
policy. Letter: `E` episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tidelog.algorithms.names import algorithm_name
from tidelog.data.log import Log
from tidelog.errors import ConfigError
from tidelog.ope.estimators.estimate import Supports
from tidelog.ope.estimators.risk import ALPHA
from tidelog.ope.evidence.estimator_policy import EstimatorPolicy
from tidelog.ope.evidence.evidence import Evidence, Floats
from tidelog.ope.evidence.policy_evidence import (
    LoggerModel,
    OneStepValues,
    PolicyEvidence,
    choose_model,
    evidence_of,
    logger_model,
)
from tidelog.ope.evidence.target import ExternalPolicy, is_sampled
from tidelog.ope.verdict.checks import (
    NOT_CLOSER,
    Finding,
    Reuse,
    closer_advice,
    overlap_finding,
    reuse_of,
    support_findings,
    violated_preconditions,
)
from tidelog.ope.verdict.decide import Case
from tidelog.ope.verdict.limits import Limits
from tidelog.ope.verdict.shorter_question import has_no_support
from tidelog.policies.policy import has_density
from tidelog.runtime.rule import Rule
from tidelog.types import Continuous

Progress = Callable[[str, float], None]
RULE_KIND = "rule"  # in the facts of a simple rule


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
    first_steps: int | None = None  # number of judged decisions of an episode; None: all
    declared: str | None = None  # propensities that the call declared, in place of those of the log


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
        if isinstance(self.policy, ExternalPolicy | EstimatorPolicy):
            return {"algorithm": None, "kind": self.policy.kind}
        origin = {name: value for name, value in self.policy.origin.items() if name not in ("learnt_from", "held_out")}
        if isinstance(self.policy, Rule):
            return {"algorithm": None, "kind": RULE_KIND, "rule": self.policy.sentence, **origin}
        return {"algorithm": algorithm_name(self.policy.algorithm), **origin}

    @property
    def is_rule(self) -> bool:
        """Whether the policy is a simple rule."""
        return isinstance(self.policy, Rule)

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
            without_support=self.gathered.without_support,
            declared=self.gathered.declared is not None,
            balance=self.gathered.balance,
            if_randomised=self.gathered.if_randomised,
        )
        clone = case.cloning
        copied = clone is None or not support_findings(Supports(clone).of(case.deciding), settings.limits)
        return case._replace(closer=closer_advice(self.policy) if copied else NOT_CLOSER)


def comparisons_of(
    policies: Mapping[str, Any],
    log: Log,
    settings: Settings,
    returns: Floats,
    progress: Progress | None = None,
    whole: Log | None = None,
) -> list[Comparison]:
    """Evidence about each policy, or the reasons for its absence; `returns` [E] are the logger's.

    `whole` has the whole episodes, by which it is known what a policy learnt from, if `log` has their first steps.
    """
    comparisons: list[Comparison] = []
    shared: LoggerModel | None = None
    values: OneStepValues = {}
    cloned: set[bool] = set()  # by whether the clone is sampled
    propensities, densities = settings.propensities, isinstance(log.spec.action, Continuous)
    for position, (name, policy) in enumerate(policies.items()):
        sample = is_sampled(policy, settings.sample)
        reuse = reuse_of(policy, log if whole is None else whole)
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
        how: dict[str, Any] = {
            "sample": sample,
            "discount": settings.discount,
            "propensities": propensities if shared is None else shared,
            "model": settings.model,
            "seed": settings.seed,
            "bandwidth": settings.bandwidth,
            "cloning": sample not in cloned,
            "lacks_support": lambda weighed: has_no_support(weighed, settings.limits),
        }
        part = _part_of(progress, name, position, len(policies))
        evidence = evidence_of(policy, log, **how, progress=part, one_step=values)
        if not _has_own_clone(evidence):
            cloned.add(sample)
        can_sample = has_density(policy, log.spec) if densities else getattr(policy, "can_sample", True)
        comparisons.append(Comparison(name, policy, sample, reuse, (), evidence, densities, can_sample))
    return _with_clones(comparisons)


def contrasts_of(comparisons: Sequence[Comparison]) -> list[tuple[int, int]]:
    """Pairs of a learnt policy and a simple rule, by their positions, of which there is evidence."""
    known = [place for place, one in enumerate(comparisons) if one.gathered is not None]
    rules = [place for place in known if comparisons[place].is_rule]
    return [(place, rule) for place in known if not comparisons[place].is_rule for rule in rules]


def _has_own_clone(evidence: PolicyEvidence) -> bool:
    """Whether a policy does not share its clone: a network values both, and without support there is none."""
    return evidence.model == "neural" or evidence.without_support


def _with_clones(comparisons: list[Comparison]) -> list[Comparison]:
    """Each comparison with a clone: its own, or that of the first policy that acts in the same way."""
    clones: dict[bool, Evidence | None] = {}
    completed = []
    for one in comparisons:
        if one.gathered is not None and not _has_own_clone(one.gathered):
            clone = clones.setdefault(one.sample, one.gathered.cloning)
            one = replace(one, gathered=replace(one.gathered, cloning=clone))
        completed.append(one)
    return completed


def _part_of(progress: Progress | None, name: str, position: int, count: int) -> Progress | None:
    if progress is None or count == 1:
        return progress
    return lambda what, share: progress(f"{name}: {what}", (position + share) / count)
