"""One policy against the logger before the decision: the violated preconditions, or the evidence.

Several policies share folds, propensities and, with tabular values, behaviour cloning: these do not depend on the
policy. Letter: `E` episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tidelog.algorithms.names import algorithm_name
from tidelog.data.log import Log
from tidelog.errors import ConfigError
from tidelog.ope.estimators.estimate import Supports
from tidelog.ope.estimators.risk import ALPHA
from tidelog.ope.evidence.estimator_policy import EstimatorPolicy
from tidelog.ope.evidence.evidence import Evidence, Floats
from tidelog.ope.evidence.policy_evidence import LoggerModel, PolicyEvidence, choose_model, evidence_of, logger_model
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
from tidelog.types import Continuous

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
    first_steps: int | None = None  # number of judged decisions of an episode; None: all


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
            without_support=self.gathered.without_support,
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
    clones: dict[bool, Evidence | None] = {}  # by whether the clone is sampled
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
            lacks_support=lambda weighed: has_no_support(weighed, settings.limits),
            progress=_part_of(progress, name, position, len(policies)),
        )
        # one network values a policy and the clone, so each policy has its own; without support there is none
        if gathered.model != "neural" and not gathered.without_support:
            gathered = replace(gathered, cloning=clones.setdefault(sample, gathered.cloning))
        can_sample = has_density(policy, log.spec) if densities else getattr(policy, "can_sample", True)
        comparisons.append(Comparison(name, policy, sample, reuse, (), gathered, densities, can_sample))
    return comparisons


def _part_of(progress: Progress | None, name: str, position: int, count: int) -> Progress | None:
    if progress is None or count == 1:
        return progress
    return lambda what, share: progress(f"{name}: {what}", (position + share) / count)
