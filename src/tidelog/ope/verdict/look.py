"""The look of a verdict at its episodes: its number among all looks, and the width of the intervals for it.

Letter: `P` policies of the look.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidelog.ope.estimators.intervals import Confidence, adaptive_deviate, critical_values, normal_deviate, spent_error
from tidelog.ope.evidence.classifiers import is_classifier
from tidelog.ope.evidence.evidence import Floats
from tidelog.ope.evidence.propensity_file import FilePropensities
from tidelog.ope.verdict.comparison import Comparison, Settings
from tidelog.ope.verdict.ledger import Ledger, RecordedLook, hashed, policy_identity
from tidelog.ope.verdict.results import percent


class LookResult(NamedTuple):
    """The look at the episodes, for one verdict or a table of verdicts."""

    look: RecordedLook | None  # None if looks are not counted
    error: float  # two-sided, of all policies together
    level: float  # requested level
    widenings: Floats  # [P]: length of the arms of each deciding interval, relative to that level
    together: list[float]  # [P]: the part of it that is due to the other policies of the look
    own_file: Path | None = None  # the one ledger that was named
    of_contrasts: float = 1.0  # length of the arms of the intervals between two policies, relative to that level

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


def look_at(
    found: Sequence[Comparison],
    settings: Settings,
    ledger: Ledger | None,
    contrasts: Sequence[tuple[int, int]] = (),
) -> LookResult:
    """Count the look, and compute the width of intervals for earlier looks, other policies and their contrasts.

    `contrasts` are pairs of policies, by position, whose differences hold simultaneously with those from the logger.
    Policies whose weights have no support get no decision, whatever they earned: the others' intervals do not grow by
    them.
    """
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
    count = (len(found) if look is None else look.policies) + len(contrasts)
    before = 0 if look is None else look.policies_before
    usual = normal_deviate(error)
    least = adaptive_deviate(error / count, before) if before else usual
    if look is not None and look.together is not None:
        together = np.asarray(look.together)
        of_contrasts = max(float(together.max()), least / usual)
    else:
        pairs = [(cases[one], cases[other]) for one, other in contrasts]
        between = [None if one is None or other is None else one.ratios_against(other) for one, other in pairs]
        confidence = Confidence(limits.level, limits.replicates, settings.seed)
        ready = [case is not None and case.has_support for case in cases]
        ready += [ready[one] and ready[other] for one, other in contrasts]
        together, every = np.flatnonzero(ready), [*differences, *between]
        reach = np.full(len(every), normal_deviate(error / len(every)))
        if len(together):
            reach[together] = critical_values([every[at] for at in together], confidence, error)
        reach = np.maximum(reach, least if contrasts else usual)
        together = reach[: len(found)] / usual
        of_contrasts = float(reach[len(found) :].max(initial=least)) / usual
    widenings = np.maximum(together * usual, least) / normal_deviate(1.0 - limits.level)
    own_file = None if ledger is None or ledger.optional else ledger.files[0]
    of_contrasts = max(of_contrasts * usual / normal_deviate(1.0 - limits.level), 1.0)
    return LookResult(look, error, limits.level, np.maximum(widenings, 1.0), together.tolist(), own_file, of_contrasts)


def _look_settings(settings: Settings) -> dict[str, Any]:
    """Settings that distinguish looks: those that change the estimate, not the limits."""
    propensities, first = settings.propensities, settings.first_steps
    if settings.declared is not None:
        propensities = f"declared {hashed(settings.declared)[:32]}"
    elif is_classifier(propensities):
        propensities = f"classifier {hashed(repr(propensities))[:32]}"
    elif isinstance(propensities, FilePropensities):
        estimated = "estimated " if propensities.estimated else ""
        propensities = f"{estimated}{hashed(propensities.values.tolist())[:32]}"
    elif not (propensities is None or isinstance(propensities, str)):
        propensities = hashed(np.asarray(propensities).tolist())[:32]
    return {
        "propensities": propensities,
        "seed": settings.seed,
        "discount": settings.discount,
        "bandwidth": settings.bandwidth,
        "model": settings.model,
        "horizon": settings.limits.horizon,
        **({} if first is None else {"first_steps": first}),  # absent as in ledgers of before
    }
