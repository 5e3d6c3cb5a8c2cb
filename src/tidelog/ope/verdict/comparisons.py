"""Policies that are judged at once on the same episodes: their evidence, the look, and how far intervals reach.

One policy is the smallest case. Folds, propensities and, where values are tables, behaviour cloning do not depend on
the policy and are made once for all. Evidence of all policies is held in memory together.

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
from tidelog.ope.evidence.external_policies import Foreign
from tidelog.ope.evidence.gather import Gathered, LoggerModel, gather, logger_model, planned
from tidelog.ope.verdict.decide import Case
from tidelog.ope.verdict.held_out_reuse import Reuse, reuse_of
from tidelog.ope.verdict.ledger import Ledger, Taken, hashed, policy_identity
from tidelog.ope.verdict.limits import Limits
from tidelog.ope.verdict.preconditions import hopeless
from tidelog.ope.verdict.results import percent
from tidelog.ope.verdict.support_checks import Finding
from tidelog.types import Continuous

Progress = Callable[[str, float], None]


class Settings(NamedTuple):
    """How policies are judged."""

    sample: bool
    propensities: Any
    seed: int
    discount: float
    limits: Limits
    bandwidth: float | None
    model: str | None


@dataclass(frozen=True, eq=False)
class Comparison:
    """One policy beside the logger: what is known before anything is decided."""

    name: str
    policy: Any
    sample: bool  # whether it is judged as it draws its actions
    reuse: Reuse
    refused: tuple[Finding, ...]  # because of which nothing was gathered
    gathered: Gathered | None

    @property
    def facts(self) -> dict[str, Any]:
        """What the policy is, in words."""
        if isinstance(self.policy, Foreign):
            return {"algorithm": None, "kind": self.policy.kind}
        origin = {name: value for name, value in self.policy.origin.items() if name not in ("learnt_from", "held_out")}
        return {"algorithm": algorithm_name(self.policy.algorithm), **origin}

    def case(self, log: Log, settings: Settings, widening: float = 1.0) -> Case:
        """What a decision rests on; ConfigError where nothing was gathered."""
        if self.gathered is None:
            raise ConfigError(f"nothing was gathered about {self.name}")
        densities = isinstance(log.spec.action, Continuous)
        found, limits, seed = self.gathered, settings.limits, settings.seed
        case = Case(found.policy, found.cloning, self.reuse, limits, seed, not self.sample, densities)
        return case._replace(widening=widening, history=found.history, drift=found.drift)


class Looked(NamedTuple):
    """The look at the episodes that a verdict or a table of verdicts is."""

    taken: Taken | None  # None where looks are not counted
    error: float  # two-sided, of all policies together
    level: float  # that was asked for
    widenings: Floats  # [P]: how much longer the arms of each deciding interval are than at that level

    @property
    def context(self) -> dict[str, Any]:
        """What verdicts keep about it."""
        before = 0 if self.taken is None else self.taken.before
        facts = {"policies": len(self.widenings), "level": 1.0 - self.error, "counted": self.taken is not None}
        if self.taken is not None:
            facts |= {"number": self.taken.number, "elsewhere": self.taken.elsewhere, "kept": self.taken.kept}
        return {"judged_before": before, "looks": {"before": before, **facts}}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the interval is wider than that of one policy at the first look."""
        found = []
        if self.taken is not None and self.taken.number > 1:
            times = "once" if self.taken.before == 1 else f"{self.taken.before:,} times"
            wider = f"widened from {percent(self.level)} to {percent(1.0 - self.error)}"
            found.append(f"these episodes were looked at {times} before: the interval is {wider}")
        if len(self.widenings) > 1:
            found.append(
                f"{len(self.widenings):,} policies were judged at once: the intervals of all differences hold together "
                f"with {percent(1.0 - self.error)} confidence"
            )
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the verdict has to know about it."""
        if self.taken is None:
            return (*self.reasons, "how often these episodes were judged before was not counted (ledger=False)")
        found = [*self.reasons]
        if self.taken.elsewhere:
            found.append(
                f"{self.taken.elsewhere:.1%} of these episodes were judged before as part of another set; judging a "
                "log again and again while it grows, until the verdict is liked, is not covered by the wider interval"
            )
        if not self.taken.kept:
            found.append("this look could not be written down anywhere: later verdicts will not count it")
        return tuple(found)


def comparisons_of(
    policies: Mapping[str, Any], log: Log, settings: Settings, returns: Floats, progress: Progress | None = None
) -> list[Comparison]:
    """Evidence about each policy, or why there is none; `returns` [E] are those of the logger."""
    found: list[Comparison] = []
    shared: LoggerModel | None = None
    clones: dict[bool, Evidence | None] = {}  # by whether it is sampled
    asked = settings.propensities
    for position, (name, policy) in enumerate(policies.items()):
        sample = settings.sample or isinstance(policy, Foreign)
        reuse = reuse_of(policy, log)
        refused = hopeless(
            policy,
            log,
            returns,
            sample=sample,
            bandwidth=settings.bandwidth,
            propensities=asked,
            effective=settings.limits.effective_episodes,
        )
        if refused:
            found.append(Comparison(name, policy, sample, reuse, tuple(refused), None))
            continue
        if shared is None and len(policies) > 1:
            shared = shared_logger(log, settings)
        gathered = gather(
            policy,
            log,
            sample=sample,
            discount=settings.discount,
            propensities=asked if shared is None else shared,
            model=settings.model,
            seed=settings.seed,
            bandwidth=settings.bandwidth,
            cloning=sample not in clones,
            progress=_part_of(progress, name, position, len(policies)),
        )
        if gathered.model != "neural":  # networks rate a policy and the clone together: each policy has its own
            gathered = replace(gathered, cloning=clones.setdefault(sample, gathered.cloning))
        found.append(Comparison(name, policy, sample, reuse, (), gathered))
    return found


def shared_logger(log: Log, settings: Settings) -> LoggerModel:
    """What is known of the logger, made once for several policies, on the folds that `gather` makes of this log."""
    log = replace(log, weight=None)
    plan = planned(log, settings.model, None, settings.seed)
    return logger_model(log, plan, settings.propensities, settings.seed)


def look_at(found: Sequence[Comparison], log: Log, settings: Settings, ledger: Ledger | None) -> Looked:
    """Count the look, and say how far intervals reach because of earlier looks and of the other policies."""
    taken, limits = None, settings.limits
    counted = any(one.gathered is not None for one in found)
    if ledger is not None:
        policies = [_written(one) for one in found]
        taken = ledger.take(policies, _same_look(settings), counted=counted)
    error = spent_error(limits.level, 1 if taken is None else taken.number)
    cases = [None if one.gathered is None else one.case(log, settings) for one in found]
    differences = [None if case is None or not case.able else case.deciding_ratios for case in cases]
    reach = critical_values(differences, Confidence(limits.level, limits.replicates, settings.seed), error)
    return Looked(taken, error, limits.level, np.maximum(reach / normal_deviate(1.0 - limits.level), 1.0))


def _written(one: Comparison) -> dict[str, Any]:
    facts = one.facts
    identity = hashed(facts)[:32] if one.gathered is None else policy_identity(one.gathered.policy)
    return {"name": one.name, "algorithm": facts["algorithm"], "identity": identity}


def _same_look(settings: Settings) -> dict[str, Any]:
    """The settings by which two looks differ: those that move the estimate, not the limits that it is held to."""
    asked = settings.propensities
    numbers = None if asked is None or isinstance(asked, str) else np.asarray(asked)
    return {
        "sample": settings.sample,
        "propensities": asked if numbers is None else hashed(numbers.tolist())[:32],
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
