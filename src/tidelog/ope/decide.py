"""The decision: the limits of a verdict, and the rules that make it unsupported or leave no difference shown.

`Limits` are the numbers. `preconditions_of` are checked before any model is fitted. `UNSUPPORTED` and `AGAINST`
list every rule in the order in which it is asked: one that fails in the first list makes a verdict *unsupported*, one
in the second *no difference shown*. Without any, the interval of the difference decides. A rule answers with findings,
also where it passes: each has its check, which is the number and the limit that it was compared with. `text` has the
sentence and the advice of those that fail.

Nothing here fits a model; `look_at` writes to the ledger. Letter: `E` episodes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tidelog.algorithms.names import algorithm_name
from tidelog.data.columns import SHARES
from tidelog.data.log import Log
from tidelog.data.statistics import Overlap, Sketch
from tidelog.errors import ConfigError
from tidelog.ope.assumptions import (
    BEHAVIOR,
    ENDS,
    LEAST,
    LEVEL,
    NEXT,
    REWARDS,
    Dependence,
    Tail,
    adverse_tails,
    excess_unshown,
    extreme_values,
    failing,
    unshown_share,
    unusual_action_count,
    with_weight_factors,
    worst_ratios,
)
from tidelog.ope.estimators import (
    CELLS,
    ESTIMATORS,
    LONGEST_PRODUCT,
    RARE,
    Estimates,
    Ratios,
    Support,
    Supports,
    effective_number,
    episode_weights,
    is_listed,
    logged_return,
)
from tidelog.ope.evidence import Evidence, Floats, atoms_of, clusters_of
from tidelog.ope.intervals import (
    MOST_GROUPS,
    Confidence,
    adaptive_deviate,
    bca,
    critical_values,
    normal_deviate,
    permutation_arms,
    spent_error,
)
from tidelog.ope.ledger import Ledger, RecordedLook, hashed, policy_identity
from tidelog.ope.missing_rewards import MissingRewards, extreme_rewards, hardly_known, known_factors
from tidelog.ope.policies import EstimatorPolicy, ExternalPolicy, target_of
from tidelog.ope.policy_evidence import PolicyEvidence, table
from tidelog.ope.propensities import FilePropensities, cut_evidence, is_by_classifier
from tidelog.ope.risk import ALPHA
from tidelog.ope.verdict import IF_RANDOMISED, Decision, PlanLine, RuleCheck
from tidelog.policies.policy import has_density
from tidelog.policies.statistics import Interval
from tidelog.runtime.rule import Rule
from tidelog.types import Continuous, Hybrid, MultiDiscrete, has_densities

# Limits on the support that a verdict needs. Every number is a default that the caller may change.
#
# `benchmarks/choose_limits.py` (in the history) chose the first eight; docs/judging-appendix.md has the results.


@dataclass(frozen=True)
class Limits:
    """Conditions that a log must meet before a policy is called better or worse; ConfigError for invalid numbers.

    Example:
        >>> tl.Limits(effective_episodes=100.0, lowest_return=-10.0).looser()
        []
        >>> tl.Limits(effective_episodes=10.0).looser()
        ['effective_episodes 10 (default 50)']
    """

    effective_episodes: float = 50.0  # smallest effective sample size, in episodes
    effective_share: float = 0.01  # smallest effective sample size, as a share of all episodes
    largest_weight: float = 0.10  # largest share of the total weight on one episode
    pareto_k: float = 1.0  # largest tail index of the weights; above 1 the weights have no mean
    mean_weight_errors: float = 2.0  # largest distance of the mean weight from 1, in its standard errors
    unsupported_mass: float = 0.10  # largest share of the target's actions that the behaviour policy hardly took
    unshown_share: float = 0.10  # largest excess over the share of logged actions that no other episode shows
    earning_episodes: float = 4.0  # smallest number of episodes that carry the difference, where rewards are rare
    carrying_episodes: float = 10.0  # smallest such number where occupancy ratios decide
    horizon: int = LONGEST_PRODUCT  # longer episodes are judged by occupancy ratios, not by products of ratios
    odds_ratio: float = 1.5  # estimated propensities may be wrong by this factor in the odds; "better" must still hold
    overlap: float = 0.01  # largest share of the judged episodes that the policy may have learnt from
    margin: float = 0.05  # a simple rule is "no worse" if it loses less, in standard deviations of logged returns
    lowest_return: float | None = None  # lowest possible return of an episode; None: the lowest in the log
    highest_return: float | None = None  # highest possible return; both bound what the log does not show
    level: float = 0.95  # of all intervals, two-sided
    replicates: int = 2000  # bootstrap samples
    groups: int = MOST_GROUPS  # largest number of groups of episodes that the bootstrap resamples

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is None and limit.name in OPTIONAL:
                continue
            whole = limit.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or value != value:
                raise ConfigError(f"{limit.name} = {value!r}", f"a {'whole ' * whole}number")
            low, high = _RANGES[limit.name]
            if not low <= value <= high:
                raise ConfigError(f"{limit.name} = {value}", f"{low:g} to {high:g}")

    def looser(self) -> list[str]:
        """Return the limits that allow more than the defaults do, each with both numbers."""
        looser = []
        for name in (*FLOORS, *CEILINGS):
            own, usual = getattr(self, name), getattr(DEFAULTS, name)
            if own < usual if name in FLOORS else own > usual:
                shown, default = (f"{100 * one:g}%" if name == "level" else f"{one:g}" for one in (own, usual))
                looser.append(f"{name} {shown} (default {default})")
        return looser


OPTIONAL = ("lowest_return", "highest_return")
FLOORS = ("effective_episodes", "effective_share", "earning_episodes", "carrying_episodes", "odds_ratio", "level")
CEILINGS = ("largest_weight", "pareto_k", "mean_weight_errors", "unsupported_mass", "unshown_share", "overlap")
_ANY = float("inf")
_RANGES: dict[str, tuple[float, Any]] = {
    "effective_episodes": (1.0, _ANY),
    "effective_share": (0.0, 1.0),
    "largest_weight": (0.0, 1.0),
    "pareto_k": (-_ANY, _ANY),
    "mean_weight_errors": (0.0, _ANY),
    "unsupported_mass": (0.0, 1.0),
    "unshown_share": (0.0, 1.0),
    "earning_episodes": (0.0, _ANY),
    "carrying_episodes": (0.0, _ANY),
    "horizon": (1, _ANY),
    "odds_ratio": (1.0, 1e6),
    "overlap": (0.0, 1.0),
    "margin": (0.0, _ANY),
    "lowest_return": (-1e300, 1e300),
    "highest_return": (-1e300, 1e300),
    "level": (0.5, 0.9999),
    "replicates": (1000, 1_000_000),
    "groups": (100, MOST_GROUPS),
}
DEFAULTS = Limits()


# One question to a log, and one policy's way from evidence to a decision.


@dataclass(frozen=True, eq=False)
class JudgeQuestion:
    """What is asked about every policy: of which decisions, by which models, under which limits."""

    policies: Mapping[str, Any]  # by name, as the judge asks them
    named: bool  # whether several were asked about, or a list of one
    log: Log  # the judged decisions; dependent episodes are in clusters
    whole: Log  # the same with all decisions of each episode
    sample: bool | None = None  # None: each policy in its declared way of acting
    propensities: Any = None  # as `propensities_of` reads them, one for each judged decision
    seed: int = 0
    discount: float = 1.0
    bandwidth: float | None = None
    model: str | None = None  # None: chosen by the log
    cvar: float = ALPHA  # share of worst episodes whose mean return is reported
    bad_outcome: float | None = None  # a return at or below this is bad
    first_steps: int | None = None  # number of judged decisions of an episode; None: all
    train: Log | Callable[[], Log] | None = None  # training episodes: they fix a ladder of parts, without support
    limits: Limits = DEFAULTS
    other_data: bool = False  # whether the caller states that no policy learnt from these episodes
    ledger: Ledger | None = None  # None: looks are not counted
    about: Mapping[str, Any] = field(default_factory=dict)  # the log for the verdict's context
    dependence: tuple[str, ...] = ()  # notes on clusters that were detected
    missing: MissingRewards | None = None  # unknown rewards, for which those of `log` stand in; None: all are known
    context: Mapping[str, Any] = field(default_factory=dict)  # stored with each verdict
    progress: Callable[[str, float], None] | bool | None = False
    groups: Any = None  # of episodes (`groups.EpisodeGroups`), if a column was named

    @cached_property
    def returns(self) -> Floats:
        """The behaviour policy's discounted returns of the judged decisions, [E]."""
        factors = self.log.discounts(self.discount)
        return np.asarray(np.add.reduceat(factors * np.asarray(self.log.reward, np.float64), self.log.starts[:-1]))

    @property
    def look_settings(self) -> dict[str, Any]:
        """Settings that distinguish looks: those that change the estimate, not the limits."""
        propensities, first = self.propensities, self.first_steps
        declared = self.log.declared if propensities is None else None
        if declared is not None:
            is_plain = declared.probabilities is None and not declared.by
            propensities = SHARES if is_plain else f"declared {hashed(declared.to_json())[:32]}"
        elif not isinstance(propensities, str) and is_by_classifier(propensities):
            propensities = f"classifier {hashed(repr(propensities))[:32]}"
        elif isinstance(propensities, FilePropensities):
            estimated = "estimated " if propensities.estimated else ""
            propensities = f"{estimated}{hashed(propensities.values.tolist())[:32]}"
        elif not (propensities is None or isinstance(propensities, str)):
            propensities = hashed(np.asarray(propensities).tolist())[:32]
        return {
            "propensities": propensities,
            "seed": self.seed,
            "discount": self.discount,
            "bandwidth": self.bandwidth,
            "model": self.model,
            "horizon": self.limits.horizon,
            **({} if first is None else {"first_steps": first}),  # absent as in ledgers of before
            **({} if self.missing is None else {"missing_at_random": self.missing.at_random}),
            **({} if self.groups is None else {"by": self.groups.column}),  # of many columns one shows a loss by luck
        }


class Reuse(NamedTuple):
    """Overlaps with the judged episodes; None if unknown."""

    learnt_from: Overlap | None  # share that the policy was trained on
    chosen_by: str | None  # held-out metric that selected the checkpoint, if any
    held_out: Overlap | None  # share that this metric was measured on

    @classmethod
    def of(cls, policy: Any, log: Log) -> Reuse:
        """Earlier use of these episodes, from the policy's origin."""
        origin = policy.origin
        learnt_from, held_out = (
            None if origin.get(name) is None else Sketch.from_json(origin[name]).overlap(log)
            for name in ("learnt_from", "held_out")
        )
        return cls(learnt_from, origin.get("chosen_by"), held_out)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a verdict's context."""
        content = self._asdict()
        for name in ("learnt_from", "held_out"):
            if content[name] is not None:
                content[name] = {"share": content[name].share, **content[name]._asdict()}
        return content


class RuleFinding:
    """What a rule finds: its check, and the numbers that `text` puts into the sentence of one that fails."""

    def __init__(self, rule: str, check: RuleCheck | None = None, **numbers: Any) -> None:
        self.rule, self.numbers = rule, numbers
        self.check = RuleCheck(rule, "failed") if check is None else check
        self.sampled = False  # whether the policy could be sampled instead, which is advised first
        self.first_steps: int | None = None  # how many first decisions the log can weigh, which is advised before that


_COMPARISONS = {"at least": operator.ge, "at most": operator.le, "above": operator.gt, "below": operator.lt}


def compare(
    rule: str,
    number: float,
    compared: str,
    limit: float,
    limit_name: str | None = None,
    *,
    subject: str = "",
    passed: bool | None = None,
    times: float = math.nan,
) -> RuleCheck:
    """The check of a number: "at least", "at most", "above" or "below" a limit; `passed` where a test decides."""
    is_passed = bool(_COMPARISONS[compared](number, limit)) if passed is None else passed
    outcome: Any = "passed" if is_passed else "failed"
    return RuleCheck(rule, outcome, float(number), compared, float(limit), limit_name, subject, times=float(times))


def not_asked(rule: str, why: str, subject: str = "") -> RuleFinding:
    """The finding of a rule that has no question here."""
    return RuleFinding(rule, RuleCheck(rule, "not asked", subject=subject, why=why))


def broken(findings: Sequence[RuleFinding]) -> list[RuleFinding]:
    """Those that fail."""
    return [one for one in findings if one.check.outcome == "failed"]


NOTHING_KNOWN = Reuse(None, None, None)
RARE_RETURNS = 0.1  # share of episodes (effective number) whose returns differ from most: below it, rewards are rare
NOTHING = Interval(np.nan, np.nan, np.nan)
RULE_KIND = "rule"  # in the facts of a simple rule


@dataclass(eq=False)
class Assessment:
    """One policy against the behaviour policy, from its evidence to the decision; fields are filled from top to bottom.

    What rules and words read is computed when it is first read, after `widening` is known.
    """

    limits: Limits
    seed: int = 0
    name: str = "policy"
    policy: Any = None
    sample: bool = True  # whether the sampled policy is judged
    can_sample: bool = True  # whether judging it by sampled actions could be an answer
    densities: bool = False  # whether actions are continuous
    leaks: tuple[str, ...] = ()  # observation columns that tell the reward
    late: str = ""  # that the newest rewards are empty more often than others, if they are
    reuse: Reuse = NOTHING_KNOWN
    preconditions: list[RuleFinding] = field(default_factory=list)  # what was asked before any model was fitted
    policy_evidence: PolicyEvidence | None = None  # None: `findings` were known before
    missing: MissingRewards | None = None  # unknown rewards of the log
    ladder: Any = None  # of parts (`ladder.Ladder`), where the whole has no support
    no_ladder: str = ""  # why there is none although it was wanted
    first_part: Assessment | None = None  # the part that is asked about first, in place of the whole
    widening: float = 1.0  # of the deciding interval, for earlier looks and other policies
    shift: float = 0.0  # of every interval, in a plan: as if the effect had the planned size
    decision: Decision = field(default="unsupported", init=False)  # as it stays where a precondition fails
    findings: list[RuleFinding] = field(default_factory=list, init=False)  # that fail
    asked: list[RuleFinding] = field(default_factory=list, init=False)  # all, after the preconditions

    @property
    def checks(self) -> tuple[RuleCheck, ...]:
        """Every check in the order in which it was asked."""
        asked = self.asked or asked_of((*UNSUPPORTED, *INTERVAL, *AGAINST), self, "a precondition fails")
        once: dict[tuple[str, str], RuleCheck] = {}
        for one in (*self.preconditions, *asked):  # one rule is among both
            once.setdefault((one.check.rule, one.check.subject), one.check)
        return tuple(once.values())

    @property
    def facts(self) -> dict[str, Any]:
        """Description of the policy."""
        if isinstance(self.policy, ExternalPolicy | EstimatorPolicy):
            return {"algorithm": None, "kind": self.policy.kind}
        origin = {name: value for name, value in self.policy.origin.items() if name not in ("learnt_from", "held_out")}
        if self.is_rule:
            return {"algorithm": None, "kind": RULE_KIND, "rule": self.policy.sentence, **origin}
        return {"algorithm": algorithm_name(self.policy.algorithm), **origin}

    @property
    def is_rule(self) -> bool:
        """Whether the policy is a simple rule."""
        return isinstance(self.policy, Rule)

    @property
    def basis(self) -> PolicyEvidence:
        """The evidence; ConfigError if none was gathered."""
        if self.policy_evidence is None:
            raise ConfigError(f"no evidence was gathered for {self.name}")
        return self.policy_evidence

    @property
    def evidence(self) -> Evidence:
        """The policy's steps, probabilities and values."""
        return self.basis.policy

    @property
    def estimated(self) -> bool:
        """Whether propensities were estimated."""
        return self.evidence.estimated

    @property
    def deciding(self) -> str:
        """The estimator that decides; it depends only on the length of episodes."""
        return "wdr" if self.evidence.horizon <= self.limits.horizon else "drl"

    @property
    def visits(self) -> bool:
        """Whether occupancy ratios decide."""
        return ESTIMATORS[self.deciding].uses_occupancy

    @property
    def able(self) -> bool:
        """Whether the evidence has everything that the deciding estimator reads."""
        return is_listed(self.deciding, self.evidence)

    @cached_property
    def supports(self) -> Supports:
        """The support of each estimator."""
        return Supports(self.evidence)

    @property
    def support(self) -> Support:
        """The support of the deciding estimator."""
        return self.supports.of(self.deciding)

    @property
    def support_findings(self) -> list[RuleFinding]:
        """The deciding weights against each limit on support; no reward has a part in it."""
        tested = self.basis.behavior_policy.balance is not None and not self.estimated  # by all actions of the log
        return support_findings(
            self.support,
            self.limits,
            visits=self.visits,
            estimated=self.estimated,
            tested=tested,
            policy_share=self.evidence.policy_share,
        )

    @property
    def broken_support(self) -> list[RuleFinding]:
        """The limits on support that the deciding weights break."""
        return broken(self.support_findings)

    @property
    def has_support(self) -> bool:
        """Whether there is a deciding estimate whose weights are within the limits, or need no limits."""
        return self.able and (self.needs_no_visits or not self.broken_support)

    @property
    def needs_no_visits(self) -> bool:
        """Whether ratios of visits would decide, which are noise around 1 where the policy decides as it was done."""
        return self.visits and self.same

    @property
    def lacks_support(self) -> bool:
        """Whether the whole policy has no support, by what no reward has a part in."""
        if not self.has_support:
            return True
        return upper_limit(excess_unshown(self.evidence), self.evidence.units) > self.limits.unshown_share

    @cached_property
    def copy_has_support(self) -> bool:
        """Whether cloned behaviour is within the limits on support, or there is none."""
        clone = self.basis.cloning
        return clone is None or not broken(support_findings(Supports(clone).of(self.deciding), self.limits))

    @property
    def confidence(self) -> Confidence:
        """Settings of the intervals."""
        return Confidence(self.limits.level, self.limits.replicates, self.seed)

    # Intervals.

    @property
    def same(self) -> bool:
        """Whether every known weight is 1 up to rounding: the policy decides as the behaviour policy did."""
        evidence = self.evidence
        return not evidence.estimated and bool(np.allclose(evidence.target, evidence.behaviour, rtol=SAME, atol=0.0))

    @cached_property
    def interval(self) -> Interval:
        """The deciding estimator's difference from the behaviour policy; exactly 0 for the behaviour policy itself."""
        if self.able and self.same:
            return Interval(0.0, 0.0, 0.0)
        return self.difference_by(self.deciding) if self.able else NOTHING

    @property
    def side(self) -> Decision:
        """Side of 0 on which the deciding interval lies."""
        difference = self.interval
        return "better" if difference.low > 0 else "worse" if difference.high < 0 else "no difference shown"

    def near_end(self, interval: Interval) -> float:
        """The end of an interval that is nearer to 0, if the difference is on the side of the deciding one."""
        return interval.low if self.side == "better" else interval.high

    def clears_0(self, rule: str, interval: Interval, *, by: bool = False) -> RuleCheck:
        """The check that an interval lies on that side of 0; `by`: a limit of `Limits` on returns sets its end."""
        side, name = ("above", "lowest_return") if self.side == "better" else ("below", "highest_return")
        return compare(rule, self.near_end(interval), side, 0.0, name if by else None)

    @cached_property
    def unshown(self) -> float:
        """Share of the policy's decisions that no other episode shows the behaviour policy taking."""
        return unshown_share(self.evidence)

    @cached_property
    def bound(self) -> Interval | None:
        """The difference if unshown decisions earn from the worst to the best logged (or stated) return."""
        if self.side == "no difference shown" or not self.unshown:
            return None
        worst, best = self._with_extremes(best=False), self._with_extremes(best=True)
        low, high = min(worst.low, self.interval.low), max(best.high, self.interval.high)
        return Interval(self.interval.estimate, low, high)

    @cached_property
    def missing_bound(self) -> Interval | None:
        """The difference if unknown rewards are those that lower it most, up to those that raise it most.

        Its ends are at least as far from their estimates as those of the deciding interval. None if all are known.
        """
        if self.missing is None or not self.able or self.same:
            return None
        return self._whatever_unknown(self.interval, None, self.widening)

    def _whatever_unknown(self, own: Interval, other: Assessment | None, widening: float) -> Interval:
        """A difference, from the behaviour policy or from another one, whatever unknown rewards are."""
        low, high, estimate = own.low, own.high, ESTIMATORS[self.deciding].ratios
        for best in (False, True):
            reward = extreme_rewards(
                self.evidence,
                self.limits.lowest_return,
                self.limits.highest_return,
                best=best,
                visits=self.visits,
                other=None if other is None else other.evidence,
            )
            filled = replace(self.evidence, reward=reward)
            base = logged_return(filled) if other is None else estimate(replace(other.evidence, reward=reward))
            found = self.between(estimate(filled).minus(base), widening)
            low = min(low, found.low, found.estimate - (own.estimate - own.low))
            high = max(high, found.high, found.estimate + (own.high - own.estimate))
        return Interval(own.estimate, low, high)

    @cached_property
    def with_hidden_cause(self) -> float | None:
        """Lower end of "better" if an unrecorded cause changed one decision per episode; None where it is not asked."""
        asked = self.side == "better" and self.estimated and self.limits.odds_ratio != 1.0
        return worst_case(self) if asked else None

    @cached_property
    def tails(self) -> list[Tail]:
        """Heavy tails of returns that could undo the difference; none with occupancy ratios, which weigh no returns."""
        if self.side == "no difference shown" or self.visits:
            return []
        known = {"lowest": self.limits.lowest_return, "highest": self.limits.highest_return}
        return adverse_tails(self.evidence, better=self.side == "better", **known)

    @property
    def costs(self) -> dict[str, float]:
        """By how much each thing that the log leaves open could bring the interval's near end closer to 0."""
        near, sign = self.near_end(self.interval), 1.0 if self.side == "better" else -1.0
        known = self.missing is None or self.missing.at_random
        ends = {
            "unshown decisions": None if self.bound is None else self.near_end(self.bound),
            "unknown rewards": None if known or self.missing_bound is None else self.near_end(self.missing_bound),
            "an unrecorded cause": self.with_hidden_cause,
        }
        costs = {name: sign * (near - end) for name, end in ends.items() if end is not None}
        # both doubt the behaviour policy's probabilities: the larger counts
        doubts = sorted(costs.keys() & {"unshown decisions", "an unrecorded cause"}, key=costs.__getitem__)
        for smaller in doubts[:-1]:
            del costs[smaller]
        costs["heavy tails"] = sum(tail.missing for tail in self.tails)
        return {name: cost for name, cost in costs.items() if cost > 0.0}

    @property
    def all_at_once(self) -> Interval:
        """The difference if all that the log leaves open comes together: what each could cost, added."""
        near, cost = self.interval, sum(self.costs.values())
        if self.side == "better":
            return near._replace(low=near.low - cost)
        return near._replace(high=near.high + cost)

    @property
    def difference(self) -> Interval:
        """The difference that is reported with the decision: the bound if the verdict fails under it."""
        if self.decision != "no difference shown":
            return self.interval
        if self.missing_bound is not None and broken(fails_missing(self)):
            return self.missing_bound
        if self.bound is not None and broken(fails_unshown(self)):
            return self.bound
        return self.all_at_once if [one.rule for one in self.findings] == ["together"] else self.interval

    @cached_property
    def behavior_policy(self) -> Interval:
        """The behaviour policy's mean return."""
        return self.between(logged_return(self.evidence))

    @cached_property
    def estimates(self) -> Estimates:
        """Every estimate with its interval and support."""
        return table(self.evidence, None, self.confidence, self.limits.groups, self.supports)

    @cached_property
    def from_cloning(self) -> Interval | None:
        """The deciding estimator's difference from cloned behaviour, widened in the same way, if both have evidence."""
        estimator, cloning = ESTIMATORS[self.deciding], self.basis.cloning
        if not self.able or cloning is None or any(getattr(cloning, one) is None for one in estimator.needs):
            return None
        found = self._with_chance(self.minus(cloning), cloning)
        return found if np.isfinite(found.estimate) else None

    def minus(self, other: Evidence | None = None) -> Ratios:
        """The deciding estimate minus that of another policy; None: minus the behaviour policy's mean return."""
        estimate = ESTIMATORS[self.deciding].ratios
        return estimate(self.evidence).minus(logged_return(self.evidence) if other is None else estimate(other))

    @property
    def deciding_ratios(self) -> Ratios:
        """The deciding estimator's difference from the behaviour policy, over the rows that the bootstrap resamples."""
        return self._resampled(self.minus())

    def ratios_against(self, other: Assessment) -> Ratios | None:
        """The same difference from another policy; None without an estimate of one of them."""
        return self._resampled(self.minus(other.evidence)) if self.able and other.able else None

    def against(self, other: Assessment, widening: float) -> Interval:
        """Interval of the difference from another policy, widened so; whatever unknown rewards are."""
        found = self._with_chance(self.minus(other.evidence), other.evidence, widening)
        is_whole = self.missing is None or self.missing.at_random
        return found if is_whole else self._whatever_unknown(found, other, widening)

    def difference_by(self, name: str) -> Interval:
        """An estimator's difference from the behaviour policy on the same episodes.

        The deciding one is widened, and reaches as far as chance does where weights and residuals are unrelated; with
        occupancy ratios only where rewards are rare, which is where the bootstrap alone fails.
        """
        ratios = ESTIMATORS[name].ratios(self.evidence).minus(logged_return(self.evidence))
        return self._with_chance(ratios) if name == self.deciding else self.between(ratios)

    def between(self, ratios: Ratios, widening: float = 1.0) -> Interval:
        """Interval of an estimate, over at most `limits.groups` groups of episodes; rounding errors become 0."""
        found = self._without_rounding(*bca(self._resampled(ratios), replace(self.confidence, widening=widening)))
        return Interval(*(end + self.shift for end in found))

    def _resampled(self, ratios: Ratios) -> Ratios:
        return ratios.clustered(self.evidence.clusters).grouped(self.limits.groups)

    def _without_rounding(self, *ends: float) -> Interval:
        """An interval in which numbers that rounding may have made are 0."""
        least = self.evidence.rounding
        return Interval(*(0.0 if abs(number) <= least else number for number in ends))

    def _with_chance(self, ratios: Ratios, against: Evidence | None = None, widening: float | None = None) -> Interval:
        """Widened interval of a difference by the deciding estimator, at least as long as permutations make it."""
        confidence = replace(self.confidence, widening=self.widening if widening is None else widening)
        found, visits = self.between(ratios, confidence.widening), self.visits
        if not np.isfinite(found.estimate) or (visits and not self.rare_rewards):
            return found
        below, above = permutation_arms(self.evidence, confidence, against, visits=visits)
        low, high = min(found.low, found.estimate - below), max(found.high, found.estimate + above)
        return self._without_rounding(found.estimate, low, high)

    def _with_extremes(self, *, best: bool) -> Interval:
        known = self.limits.highest_return if best else self.limits.lowest_return
        evidence = extreme_values(self.evidence, best=best, known=known)
        estimator = ESTIMATORS["dr" if self.deciding == "wdr" else self.deciding]
        return self.between(estimator.ratios(evidence).minus(logged_return(self.evidence)), self.widening)

    # Episodes that carry the difference.

    def earning(self, effective_episodes: float) -> float:
        """How many episodes carry the difference, where rewards are rare: the smaller of two effective numbers.

        One is of the difference's influences. The other is of the returns that make the behaviour policy's variance: as
        many of them as the effective sample size lets expect under the policy, or as it has seen there if these are
        more. Without it a policy under which no rare reward was seen yet would be worse, where hardly one was to be
        expected.
        """
        evidence, logged = self.evidence, logged_return(self.evidence)
        difference = self._effective_influences(self.minus())
        if difference == 0.0:
            return np.inf  # every return is the same
        farther = 1.0  # how far returns lie from the behaviour policy's mean under the policy over those under itself
        squares = np.square(logged.contributions - logged.estimate)
        if not self.visits and squares.any():
            farther = float(np.average(squares, weights=episode_weights(evidence)) / squares.mean())
        expected = self._effective_influences(logged) * effective_episodes / evidence.units
        return min(difference, expected * max(1.0, farther))

    @cached_property
    def rare_rewards(self) -> bool:
        """Whether few logged returns differ from most."""
        return self._effective_influences(logged_return(self.evidence)) < RARE_RETURNS * self.evidence.units

    def _effective_influences(self, ratios: Ratios) -> float:
        """The effective number of episodes, or clusters, that move an estimate by more than rounding does."""
        ratios = ratios.clustered(self.evidence.clusters)
        influences = np.nan_to_num(ratios.contributions - ratios.estimate)
        return effective_number(np.where(np.abs(influences) <= self.evidence.rounding, 0.0, influences))


# Preconditions: where one is violated, no model is fitted, and the verdict is unsupported.

FEWEST = 10  # episodes (or clusters) below which no model is fitted
FEWEST_CUT, SHARE_CUT = 5, 0.005  # tolerated: actions on one bound, and share of rows; some always reach the ends
LEAK, LATE = "outcome among observations", "late rewards unread"  # check names of the readers' warnings
DEFAULTED, YOUNG = "empty rewards", "late rewards"  # and of their notes


def preconditions_of(
    policy: Any,
    log: Log,
    returns: NDArray[Any],
    *,
    sample: bool,
    bandwidth: float | None,
    propensities: Any,
    effective: float = 0.0,
) -> list[RuleFinding]:
    """The findings on every precondition; an estimate can be computed if none fails.

    `effective` is the limit on the effective sample size; fewer episodes, or clusters, cannot reach it.
    """
    clusters, needed = clusters_of(log), max(FEWEST, math.ceil(effective))
    count = len(log.episode_ids) if clusters is None else int(clusters.max()) + 1
    name, several = None if effective <= FEWEST else "effective_episodes", clusters is not None
    check = compare("episodes", count, "at least", needed, name, times=needed / max(count, 1))
    findings = [RuleFinding("episodes", check, count=count, needed=needed, in_clusters=several)]
    if len(returns) > 1:
        span = compare("rewards", np.ptp(returns), "above", 0.0)
        findings.append(RuleFinding("rewards", span, earned=float(returns[0])))
    density = not_asked("density", "the probability of each action is known")
    if has_densities(log.spec.action) and bandwidth is None:
        known = has_density(policy, log.spec)
        density = RuleFinding("density", RuleCheck("density", "passed" if sample and known else "failed"))
        density.numbers = {"sample": sample, "known": known, "parts": isinstance(log.spec.action, Hybrid)}
    cut = _cut_actions(log)
    if len(broken([density, cut])) == 2:  # neither advice is sufficient alone
        density.numbers["with_cut"], cut.numbers["density"] = True, density
    findings += [density, cut]
    estimated = is_by_classifier(propensities) or (isinstance(propensities, str) and propensities == "estimated")
    recorded = log.propensity is not None and not estimated
    passed = propensities is not None and not isinstance(propensities, str) and not estimated
    repeated = atoms_of(log, declared=False) if recorded or passed else None
    if repeated is not None:  # values that recorded propensities are not said to be probabilities of
        action = np.asarray(log.action)
        on = repeated.lie_on(action) & ~np.isin(action, np.asarray(log.atoms, np.float32))
        share = compare("atoms", on.any(axis=1).mean(), "at most", 0.0)
        findings.append(RuleFinding("atoms", share, share=on.any(axis=1).mean(), values=np.unique(action[on])))
    if not broken([density]):
        findings += _off_atoms(policy, log, sample, bandwidth, needed)
    space = log.spec.action
    constant = isinstance(space, Continuous) and bool((np.ptp(np.asarray(log.action), axis=0) == 0).any())
    several = isinstance(space, MultiDiscrete | Hybrid)
    unknown = not (recorded or passed) and (several or constant)
    check = RuleCheck("propensities", "failed" if unknown else "passed")
    return [*findings, RuleFinding("propensities", check, several=several)]


def _cut_actions(log: Log) -> RuleFinding:
    """Continuous actions that were clipped at their bounds, where there is a probability and no density."""
    space = log.spec.action
    if not isinstance(space, Continuous | Hybrid) or not has_densities(space):
        return not_asked("cut_actions", "actions are not continuous")
    action, low, high = np.asarray(log.action), np.asarray(space.low), np.asarray(space.high)
    on_bound = ((action <= low) | (action >= high)) & (high > low)
    on_bound &= np.equal(space.codes, 0) if isinstance(space, Hybrid) else True
    share, rows = float(on_bound.any(axis=1).mean()), int(on_bound.sum(axis=0).max())
    check = compare("cut_actions", share, "below", SHARE_CUT)
    if rows < FEWEST_CUT:
        check = compare("cut_actions", rows, "below", FEWEST_CUT, subject="rows")
    return RuleFinding("cut_actions", check, share=share)


def _off_atoms(policy: Any, log: Log, sample: bool, bandwidth: float | None, needed: int) -> list[RuleFinding]:
    """Whether a policy that takes no atom can be judged by the few actions off all atoms."""
    atoms = atoms_of(log)
    if atoms is None:
        return []
    on = atoms.lie_on(np.asarray(log.action)).any(axis=1)
    off = int((~on).sum())
    if off < needed and target_of(policy, log, sample=sample, bandwidth=bandwidth).logged[on].any():
        return [not_asked("atoms", "the policy takes repeated values itself", "rows")]
    check = compare("atoms", off, "at least", needed, subject="rows")
    return [RuleFinding("atoms", check, share=on.mean(), of=atoms.text, off=off, needed=needed)]


# Rules that make a verdict unsupported: earlier use of the episodes, no estimate, contradicted assumptions, support.

SAME = 1e-5  # relative difference of probabilities that 32 bits and another order of sums may make
LOST = 0.1  # deficit of the mean weight that hardly logged actions explain if their mass is at least half of it
UPPER_95 = 1.645  # standard errors to the one-sided upper 95% confidence limit of a share
TESTED = 1.3  # factor on the limit for the mean weight where the log's propensities were tested once, for all policies
FIT_LEVEL, FIT_LEAST = 0.01, 1e-3  # of that test: p-value, and explained share of the actions' residuals
HARMLESS = 0.01  # distance of a whole's mean weight from 1 that is always accepted, however small its standard error
NO_ESTIMATE = "there is no deciding estimate"  # why a rule is not asked, as the next ones
BOTH_SIDES = "the interval lies on both sides of 0"
ONLY_BETTER = "only *better* is asked"
KNOWN_REWARDS = "all rewards are known"
RECORDED_ONES = "propensities were not estimated"
SAME_DECISIONS = "every weight is 1: the policy decides as the behaviour policy did"


def learnt_from_them(a: Assessment) -> list[RuleFinding]:
    """Whether the policy learnt from the judged episodes."""
    overlap, most = a.reuse.learnt_from, a.limits.overlap
    if overlap is None:
        return [not_asked("overlap", "the episodes that the policy learnt from are unknown")]
    check = compare("overlap", overlap.share, "at most", most, "overlap", passed=not overlap.exceeds(most))
    return [RuleFinding("overlap", check, overlap=overlap)]


def no_estimate(a: Assessment) -> list[RuleFinding]:
    """Whether there is no deciding estimate."""
    if a.able and np.isfinite(a.interval.low) and np.isfinite(a.interval.high):
        return [RuleFinding("estimate", RuleCheck("estimate", "passed"))]
    if a.basis.without_support:
        return [not_asked("estimate", "weights alone show that there is no support")]
    why = "weight" if a.able else "horizon" if a.deciding == "drl" else "model"
    return [RuleFinding(why, RuleCheck("estimate", "failed"))]


def out_of_range(a: Assessment) -> list[RuleFinding]:
    """Whether the policy's estimated mean return is above or below the returns of all episodes in the log."""
    if not (a.able and np.isfinite(a.interval.low) and np.isfinite(a.interval.high)):
        return [not_asked("range", NO_ESTIMATE)]
    logged, limits, slack = logged_return(a.evidence), a.limits, a.evidence.rounding
    recorded = logged_return(replace(a.evidence, reward=a.evidence.recorded_reward)).contributions
    low, high = float(recorded.min()), float(recorded.max())
    low = (low if limits.lowest_return is None else min(low, limits.lowest_return)) - slack
    high = (high if limits.highest_return is None else max(high, limits.highest_return)) + slack
    estimate = logged.estimate + a.interval.estimate
    check = compare("range", estimate, "at most", high, "highest_return")
    if estimate - low < high - estimate:  # the nearer end
        check = compare("range", estimate, "at least", low, "lowest_return")
    return [RuleFinding("range", check, estimate=estimate, low=low, high=high)]


def contradicted_assumptions(a: Assessment) -> list[RuleFinding]:
    """Assumptions of the deciding estimator that the log contradicts.

    With occupancy ratios an observation must be a Markov state. Propensities that were estimated from the observation
    (and the time) need a behaviour policy that used nothing else.
    """
    history, drift = a.basis.behavior_policy.history, a.basis.behavior_policy.drift
    needless = SAME_DECISIONS if a.same else "" if a.visits else "products of ratios need no Markov state"
    tests: tuple[tuple[str, Sequence[Dependence], tuple[str, ...], str], ...] = (
        ("markov", history, (REWARDS, NEXT, ENDS), needless),
        ("behavior_history", history, (BEHAVIOR,), "" if a.estimated else RECORDED_ONES),
        ("drift", drift, (BEHAVIOR,), "" if a.estimated else RECORDED_ONES),
    )
    findings = []
    for rule, results, outcomes, why in tests:
        of = [one for one in results if one.outcome in outcomes]
        if why or not of:
            findings.append(not_asked(rule, why or "the log has nothing to test"))
            continue
        one = next(iter(failing(of, outcomes)), min(of, key=lambda test: test.p_value))
        findings.append(RuleFinding(rule, _tested(rule, one.p_value, LEVEL, one.added, LEAST, one.fails), test=one))
    return findings


def _tested(rule: str, p_value: float, level: float, explained: float, least: float, fails: bool) -> RuleCheck:
    """The check of a test that fails where its p-value is small and its effect is not."""
    if p_value < level and not fails:
        return compare(rule, explained, "below", least, subject="effect", passed=True)
    return compare(rule, p_value, "at least", level, passed=not fails)


def propensities_misfit(a: Assessment) -> list[RuleFinding]:
    """Whether the log's actions contradict its recorded, or declared, propensities; the same for every policy."""
    balance = a.basis.behavior_policy.balance
    if balance is None or a.estimated:
        why = "propensities were estimated" if a.estimated else "the log has nothing to test"
        return [not_asked("propensities_fit", why)]
    p_value, explained = balance.p_value, balance.explained
    fails = p_value < FIT_LEVEL and explained >= FIT_LEAST
    check = _tested("propensities_fit", p_value, FIT_LEVEL, explained, FIT_LEAST, fails)
    return [RuleFinding("propensities_fit", check, balance=balance)]


def unusual_habit(a: Assessment) -> list[RuleFinding]:
    """Whether the policy takes an action more, or less, often per episode than nearly all logged episodes."""
    if not a.visits or a.same:
        return [not_asked("habit", SAME_DECISIONS if a.same else "products of ratios decide")]
    habit = unusual_action_count(a.evidence)
    above = habit.mean > habit.high
    end, side = (habit.high, "at most") if above else (habit.low, "at least")
    return [RuleFinding("habit", compare("habit", habit.mean, side, end, passed=not habit.beyond), habit=habit)]


def weak_support(a: Assessment) -> list[RuleFinding]:
    """Every limit on support, worst kind first."""
    is_possible = a.able or a.basis.without_support
    if not is_possible or a.needs_no_visits:
        return [not_asked(rule, SAME_DECISIONS if is_possible else NO_ESTIMATE) for rule in SUPPORT]
    findings = a.support_findings
    for one in broken(findings)[:1]:
        one.sampled = a.can_sample and not a.sample
    return findings


def support_findings(
    support: Support,
    limits: Limits,
    *,
    visits: bool = False,
    estimated: bool = False,
    tested: bool = False,
    policy_share: float = 1.0,
) -> list[RuleFinding]:
    """Weights against every limit on support.

    `visits`: the support is that of occupancy ratios. `estimated`: propensities were estimated. `tested`: the log's own
    ones fitted all of its actions. `policy_share`: that of a part; its weights may lack no more than
    this share of what a whole's may.
    """
    mass, size, share = support.unsupported_mass, support.effective_sample_size, limits.effective_share
    needed = max(limits.effective_episodes, share * support.episodes)
    name = "effective_episodes" if needed == limits.effective_episodes else "effective_share"
    times = needed / size if size >= max(1.0, share * support.episodes) else math.nan  # a share does not grow
    largest = support.largest_weight
    spread = largest / limits.largest_weight if largest < 1.0 and limits.largest_weight > 0.0 else math.nan
    checks = [
        compare("effective_sample_size", size, "at least", needed, name, times=times),
        compare("largest_weight", largest, "at most", limits.largest_weight, "largest_weight", times=spread),
        compare("pareto_k", support.pareto_k, "at most", limits.pareto_k, "pareto_k"),
    ]
    if mass is not None:
        checks.insert(0, compare("unsupported_mass", mass, "at most", limits.unsupported_mass, "unsupported_mass"))
    findings = [RuleFinding(one.rule, one, support=support, needed=needed) for one in checks]
    findings += [not_asked("unsupported_mass", "actions cannot be listed")] if mass is None else []
    # The mean weight is 1; for estimated propensities the odds ratio sets the tolerance.
    mean, error, odds = support.mean_weight, support.mean_weight_error, limits.odds_ratio
    off = abs(mean - 1.0)
    lost = mean < 1.0 - LOST and (mass or 0.0) > 0.5 * off  # weight of actions not in the log
    forgiven = estimated and 1.0 / odds <= mean <= odds and not lost
    most = limits.mean_weight_errors * (TESTED if tested and not (visits or lost) else 1.0)
    check = compare("mean_weight", off, "at most", most * error, "mean_weight_errors")
    harmless = HARMLESS * policy_share
    if off <= harmless:
        check = compare("mean_weight", off, "at most", harmless)
    elif check.outcome == "failed" and forgiven:
        factor = max(mean, 1.0 / mean)
        check = compare("mean_weight", factor, "at most", odds, "odds_ratio", subject="factor", passed=True)
    return [*findings, RuleFinding("mean_weight", check, support=support, most=most, lost=lost, visits=visits)]


def weak_support_of_rewards(a: Assessment) -> list[RuleFinding]:
    """Whether known rewards are too few for the policy: hardly known after some decisions, or of uneven weights."""
    names = ("hardly_known", "known_weights")
    if a.missing is None:
        return [not_asked(name, KNOWN_REWARDS) for name in names]
    if not a.has_support:
        return [not_asked(name, NO_ESTIMATE if not a.able else "the policy's own weights fail") for name in names]
    share, said = hardly_known(a.evidence, visits=a.visits), a.missing.sentence
    known = compare(names[0], share, "at most", a.limits.unsupported_mass, "unsupported_mass")
    findings = [RuleFinding(names[0], known, said=said, share=share)]
    if known.outcome == "failed" or a.visits:
        return [*findings, not_asked(names[1], "ratios of visits decide" if a.visits else "the check before fails")]
    support = Supports(with_weight_factors(a.evidence, known_factors(a.evidence))).of(a.deciding)
    needed = max(a.limits.effective_episodes, a.limits.effective_share * support.episodes)
    limit = "effective_episodes" if needed == a.limits.effective_episodes else "effective_share"
    check = compare(names[1], support.effective_sample_size, "at least", needed, limit)
    if support.largest_weight > a.limits.largest_weight:
        check = compare(names[1], support.largest_weight, "at most", a.limits.largest_weight, "largest_weight")
    return [*findings, RuleFinding(names[1], check, said=said, support=support, needed=needed)]


def few_episodes(a: Assessment) -> list[RuleFinding]:
    """Whether enough episodes carry the difference.

    Products of ratios are short of episodes if rewards are rare, occupancy ratios if states are. The latter need more
    episodes, because no logged return bounds what they estimate.
    """
    rule = "carrying_episodes" if a.visits else "earning_episodes"
    if not a.able or a.same:
        return [not_asked(rule, SAME_DECISIONS if a.able else NO_ESTIMATE)]
    least, earning = getattr(a.limits, rule), a.earning(a.support.effective_sample_size)
    check = compare(rule, earning, "at least", least, rule, times=least / earning if earning > 0 else math.nan)
    return [RuleFinding(rule, check, episodes=earning, least=least, rare=a.rare_rewards)]


def unshown_excess(a: Assessment) -> list[RuleFinding]:
    """Whether the upper confidence limit of the share of unshown decisions, beyond the practice's own, is too high."""
    if not a.able or a.side == "no difference shown":
        return [not_asked("unshown_share", BOTH_SIDES if a.able else NO_ESTIMATE)]
    excess = excess_unshown(a.evidence)
    high = upper_limit(excess, a.evidence.units)
    check = compare("unshown_share", high, "at most", a.limits.unshown_share, "unshown_share")
    return [RuleFinding("unshown_share", check, excess=excess, high=high)]


def upper_limit(excess: float, units: int) -> float:
    """The one-sided upper 95% confidence limit of a share of so many episodes, or clusters."""
    return min(excess + UPPER_95 * math.sqrt(excess * (1.0 - excess) / units), 1.0)


def shown_side(a: Assessment) -> list[RuleFinding]:
    """Whether the interval of the difference lies on one side of 0."""
    upper = a.side == "worse" or (a.side == "no difference shown" and a.interval.estimate < 0)
    end, side, subject = (a.interval.high, "below", "upper") if upper else (a.interval.low, "above", "lower")
    # The half-width of an interval falls with the square root of the episodes; NaN: a real difference needs too many.
    gap, half = abs(a.interval.estimate), (a.interval.high - a.interval.low) / 2
    times = 1.5 * (half / gap) ** 2 if gap and half / gap <= 30 else math.nan
    return [RuleFinding("interval", compare("interval", end, side, 0.0, subject=subject, times=times))]


# Rules that leave no difference shown: other estimators, unshown decisions, selection, unrecorded causes, heavy tails.


def contradictions(a: Assessment, *, kind: str) -> list[RuleFinding]:
    """Estimators on the other side of 0, those with products of long episodes, with occupancy ratios, or all others.

    The first two count only if they have support of their own. Only estimators whose difference does not change when a
    constant is added to every reward.
    """
    findings = []
    for name, estimator in ESTIMATORS.items():
        if name == a.deciding or not is_listed(name, a.evidence) or not estimator.vetoes:
            continue
        weighs = estimator.ratios is not ESTIMATORS["fqe"].ratios
        long = weighs and a.evidence.horizon > a.limits.horizon
        if kind != ("visits" if estimator.uses_occupancy else "products" if long else "others"):
            continue
        if kind != "others":
            weights, visits = a.supports.of("wis" if kind == "products" else "drl"), kind == "visits"
            if broken(support_findings(weights, a.limits, visits=visits, estimated=a.estimated)):
                findings.append(not_asked("contradiction", "its own weights have no support", name))
                continue
        other = a.difference_by(name)
        end, side = (other.high, "at least") if a.side == "better" else (other.low, "at most")
        passed = not (end < 0 if a.side == "better" else end > 0)  # NaN contradicts nothing
        check = compare("contradiction", end, side, 0.0, subject=name, passed=passed)
        findings.append(RuleFinding("contradiction", check, name=name, other=other))
    return findings


def fails_unshown(a: Assessment) -> list[RuleFinding]:
    """Whether the verdict fails if unshown decisions earn the worst, or the best, return of the log."""
    if a.bound is None:
        return [not_asked("unshown", "the log shows every decision of the policy")]
    return [RuleFinding("unshown", a.clears_0("unshown", a.bound, by=True))]


def fails_missing(a: Assessment) -> list[RuleFinding]:
    """Whether the verdict fails if unknown rewards are the lowest, or the highest, that they can be."""
    bound = a.missing_bound
    if a.missing is None or bound is None:
        return [not_asked("unknown_rewards", KNOWN_REWARDS)]
    if a.missing.at_random:
        return [not_asked("unknown_rewards", "the mapping states that rewards are missing at random")]
    return [RuleFinding("unknown_rewards", a.clears_0("unknown_rewards", bound, by=True), said=a.missing.sentence)]


def late_rewards(a: Assessment) -> list[RuleFinding]:
    """Whether empty rewards that count as a number are more frequent among the newest decisions."""
    if not a.late:
        return [not_asked("late", "the newest rewards are not empty more often than others")]
    return [RuleFinding("late", found=a.late)]


def chosen_here(a: Assessment) -> list[RuleFinding]:
    """Whether the judged episodes selected the policy among its checkpoints."""
    overlap, most = a.reuse.held_out, a.limits.overlap
    if a.side != "better":
        return [not_asked("chosen", ONLY_BETTER)]
    if a.reuse.chosen_by is None or overlap is None:
        return [not_asked("chosen", "no metric on held-out episodes chose the checkpoint")]
    check = compare("chosen", overlap.share, "at most", most, "overlap", passed=not overlap.exceeds(most))
    return [RuleFinding("chosen", check, metric=a.reuse.chosen_by)]


def hidden_cause(a: Assessment) -> list[RuleFinding]:
    """With estimated propensities: whether "better" holds if an unrecorded cause changed one decision per episode."""
    low = a.with_hidden_cause
    if low is None:
        why = ONLY_BETTER if a.side != "better" else RECORDED_ONES if not a.estimated else "odds_ratio = 1 asks nothing"
        return [not_asked("sensitivity", why)]
    check, holds, fails = compare("sensitivity", low, "above", 0.0), 1.0, a.limits.odds_ratio
    while check.outcome == "failed" and fails - holds > 0.01:  # bisection for the largest odds that it withstands
        middle = (holds + fails) / 2.0
        holds, fails = (middle, fails) if worst_case(a, middle) > 0.0 else (holds, middle)
    return [RuleFinding("sensitivity", check, low=low, holds=holds)]


def heavy_tails(a: Assessment) -> list[RuleFinding]:
    """Whether a heavy tail of returns that the log hardly shows could undo a shown difference."""
    if a.side == "no difference shown" or a.visits:
        return [not_asked("heavy_tail", "ratios of visits weigh no returns" if a.visits else BOTH_SIDES)]
    room = abs(a.near_end(a.interval))
    if not a.tails:
        return [RuleFinding("heavy_tail", compare("heavy_tail", 0.0, "below", room))]
    findings = []
    for tail in a.tails:
        name, subject = "highest_return" if tail.high else "lowest_return", "left" if tail.left else "taken"
        check = compare("heavy_tail", tail.missing, "below", room, name, subject=f"{subject} decisions")
        findings.append(RuleFinding("heavy_tail", check, tail=tail))
    return findings


def all_at_once(a: Assessment) -> list[RuleFinding]:
    """Whether the verdict fails if several things come together that it withstands one by one."""
    if a.side == "no difference shown" or len(a.costs) < 2:
        why = BOTH_SIDES if a.side == "no difference shown" else "the log leaves at most one thing open"
        return [not_asked("together", why)]
    if max(a.costs.values()) >= abs(a.near_end(a.interval)):
        return [not_asked("together", "one thing alone is too much")]
    return [RuleFinding("together", a.clears_0("together", a.all_at_once))]


# The decision. Every rule stands in one of these lists, in the order in which it is asked.


class DecisionRule(NamedTuple):
    """A rule, and the names of the checks that its findings have."""

    checks: tuple[str, ...]
    findings: Callable[[Assessment], list[RuleFinding]]


SUPPORT = ("unsupported_mass", "effective_sample_size", "largest_weight", "pareto_k", "mean_weight")
UNSUPPORTED: tuple[DecisionRule, ...] = (
    DecisionRule(("overlap",), learnt_from_them),
    DecisionRule(("estimate",), no_estimate),
    DecisionRule(("range",), out_of_range),
    DecisionRule(("markov", "behavior_history", "drift"), contradicted_assumptions),
    DecisionRule(("propensities_fit",), propensities_misfit),
    DecisionRule(("habit",), unusual_habit),
    DecisionRule(SUPPORT, weak_support),
    DecisionRule(("hardly_known", "known_weights"), weak_support_of_rewards),
    DecisionRule(("earning_episodes", "carrying_episodes"), few_episodes),  # one of them
    DecisionRule(("unshown_share",), unshown_excess),
)
INTERVAL = (DecisionRule(("interval",), shown_side),)
AGAINST: tuple[DecisionRule, ...] = (  # where the interval lies on one side of 0
    DecisionRule(("contradiction",), partial(contradictions, kind="products")),
    DecisionRule(("contradiction",), partial(contradictions, kind="visits")),
    DecisionRule(("unshown",), fails_unshown),
    DecisionRule(("unknown_rewards",), fails_missing),
    DecisionRule(("late",), late_rewards),
    DecisionRule(("contradiction",), partial(contradictions, kind="others")),
    DecisionRule(("chosen",), chosen_here),
    DecisionRule(("sensitivity",), hidden_cause),
    DecisionRule(("heavy_tail",), heavy_tails),
    DecisionRule(("together",), all_at_once),
)


def asked_of(rules: Sequence[DecisionRule], a: Assessment, why_not: str = "") -> list[RuleFinding]:
    """The findings of rules in their order; with `why_not` none of them is asked."""
    if why_not:
        return [not_asked(name, why_not) for rule in rules for name in rule.checks]
    return [finding for rule in rules for finding in rule.findings(a)]


def decide(a: Assessment) -> Assessment:
    """Fill in the decision and its findings, and return the same assessment."""
    asked = asked_of(UNSUPPORTED, a)
    a.findings = broken(asked)
    if a.findings:
        a.decision = "unsupported"
        a.asked = [*asked, *asked_of((*INTERVAL, *AGAINST), a, "a check before fails")]
        return a
    against = asked_of(AGAINST, a, BOTH_SIDES if a.side == "no difference shown" else "")
    a.asked = [*asked, *asked_of(INTERVAL, a), *against]
    a.findings = broken(against)
    a.decision = "no difference shown" if a.findings else a.side
    return a


def decide_if_randomised(a: Assessment) -> Assessment:
    """The decision; *better if randomised* where only declared shares in place of estimates would decide.

    The log has no propensities, and observations do not predict its actions. If nothing unrecorded decided either, each
    action's share is its propensity, and the verdict is that of a log that declares it.
    """
    if a.policy_evidence is None:
        return a
    decide(a)
    if a.basis.if_randomised is None or a.decision not in ("no difference shown", "unsupported"):
        return a
    shares = replace(a.basis, policy=a.basis.if_randomised, if_randomised=None)
    drawn = replace(a, policy_evidence=shares, ladder=None)  # parts would be better without that condition
    if drawn.deciding != "wdr" or not drawn.able or decide(drawn).decision != "better":
        return a
    drawn.decision, drawn.findings = IF_RANDOMISED, [RuleFinding("randomised", balance=a.basis.behavior_policy.balance)]
    drawn.asked += drawn.findings
    return drawn


def worst_case(a: Assessment, odds: float | None = None) -> float:
    """Lower end of the difference's interval under the worst unrecorded cause; `odds`: the limit's, if None."""
    evidence = _at_most(a.evidence, a.seed)
    estimator, occupancy = ESTIMATORS[a.deciding], evidence.occupancy
    by_visits = estimator.uses_occupancy and occupancy is not None
    base = replace(evidence, target=np.ones(len(evidence.reward))) if by_visits else evidence

    def difference(changed: Evidence) -> Ratios:
        if by_visits and occupancy is not None:  # which have the factors that other weights have
            factors = np.repeat(changed.target[evidence.starts[:-1]], evidence.lengths)
            changed = replace(evidence, occupancy=occupancy * factors)
        return estimator.ratios(changed).minus(logged_return(evidence))

    odds = a.limits.odds_ratio if odds is None else odds
    return a.between(worst_ratios(base, difference, odds, densities=a.densities), a.widening).low


def _at_most(evidence: Evidence, seed: int) -> Evidence:
    """Random episodes, as many as an estimate by episode can hold; all or none of each cluster."""
    most = max(CELLS // evidence.horizon, 2)
    if evidence.episodes <= most:
        return evidence
    sizes = np.bincount(evidence.unit_of)
    order = np.random.default_rng([seed, 7]).permutation(len(sizes))
    count = max(int(np.searchsorted(np.cumsum(sizes[order]), most, "right")), 1)
    return evidence.of_episodes(np.isin(evidence.unit_of, order[:count]))


# Which steps of episodes weights can judge: the advice on the first ones, and whether there are none at all.

OF_PRODUCTS = ("effective_sample_size", "largest_weight", "pareto_k", "weight", "horizon")
# Rare rewards too can be seen often enough where weights are even. A mean weight that is wrong by itself points to
# wrong propensities, which fewer steps would only hide.
WITH_THEM = ("carrying_episodes", "earning_episodes", "mean_weight")


def advise_first_steps(a: Assessment) -> None:
    """Let the first finding advise a shorter question, where the only reasons are weights of whole episodes."""
    rules = {finding.rule for finding in a.findings}
    if rules & {*OF_PRODUCTS} and not rules - {*OF_PRODUCTS, *WITH_THEM}:
        a.findings[0].first_steps = supported_steps(a)


def supported_steps(a: Assessment) -> int | None:
    """A large number of first steps that the log can decide, by bisection; None if there is none.

    The values of actions are those of whole episodes, so that this is a forecast of the verdict on these steps. The
    largest number with even weights is tried first, then halves of what is left: fewer steps have more support.
    """
    most = min(a.evidence.horizon - 1, a.limits.horizon)
    even = [steps for steps in range(1, most + 1) if _has_support(a.evidence, a.limits, steps)]
    found, low, high = None, 0, len(even)  # those below `low` can be decided, those from `high` on cannot
    middle = len(even) - 1
    while low < high:
        part = cut_evidence(a.evidence, even[middle])
        shorter = replace(a, policy_evidence=replace(a.basis, policy=part, cloning=None))
        if decide(shorter).decision != "unsupported":
            found, low = part.horizon, middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return found


def has_no_support(evidence: Evidence, limits: Limits) -> bool:
    """Whether weights break a limit for whole episodes and for every number of first steps, whatever values are.

    False for episodes that are longer than `limits.horizon`, where ratios of visits decide.
    """
    numbers = range(evidence.horizon, 0, -1)
    return evidence.horizon <= limits.horizon and not any(_has_support(evidence, limits, steps) for steps in numbers)


def _has_support(evidence: Evidence, limits: Limits, steps: int) -> bool:
    support = Supports(cut_evidence(evidence, steps)).of("wdr")
    # by the looser limit on the mean weight: what breaks it breaks the other one too
    return not broken(support_findings(support, limits, estimated=evidence.estimated, tested=not evidence.estimated))


# The look of a verdict at its episodes: its number among all looks, and the width of the intervals for it.
#
# Letter: `P` policies of the look.


@dataclass(frozen=True, eq=False)
class LookResult:
    """The look at the episodes, for one verdict or a table of verdicts."""

    names: tuple[str, ...]  # [P]
    look: RecordedLook | None  # None if looks are not counted
    ledger: Ledger | None
    error: float  # two-sided, of all policies together
    level: float  # requested level
    widenings: Floats  # [P]: length of the arms of each deciding interval, relative to that level
    together: Floats  # [P]: the part of it that is due to the other policies of the look
    of_contrasts: float = 1.0  # length of the arms of the intervals between two policies, relative to that level

    @property
    def policies(self) -> int:
        """Number of policies of the look."""
        return len(self.names) if self.look is None else self.look.policies

    @property
    def own_file(self) -> Path | None:
        """The one ledger that was named."""
        return None if self.ledger is None or self.ledger.optional else self.ledger.files[0]

    @property
    def context(self) -> dict[str, Any]:
        """Entries for the verdicts' context."""
        before = 0 if self.look is None else self.look.before
        facts = {"policies": self.policies, "level": 1.0 - self.error, "counted": self.look is not None}
        if self.look is not None:
            facts |= {"number": self.look.number, "elsewhere": self.look.elsewhere, "recorded": self.look.recorded}
            facts |= {"policies_before": self.look.policies_before}
        return {"judged_before": before, "looks": {"before": before, **facts}}

    def record(self, decisions: Sequence[Decision]) -> None:
        """Record the decisions [P] in the ledger."""
        if self.ledger is not None and self.look is not None:
            by_name = dict(zip(self.names, decisions, strict=True))
            self.ledger.record_decisions(self.look, by_name, dict(zip(self.names, self.together.tolist(), strict=True)))


def look_at(
    assessments: Sequence[Assessment], question: JudgeQuestion, contrasts: Sequence[tuple[Assessment, Assessment]] = ()
) -> LookResult:
    """Count the look, and fill in how wide intervals are for earlier looks, other policies and their contrasts.

    `contrasts` are pairs of policies whose differences hold simultaneously with those from the behaviour policy.
    Policies whose weights have no support get no decision, whatever they earned: the others' intervals do not grow by
    them.
    """
    look, limits, count = None, question.limits, len(assessments)
    with_evidence = [one.policy_evidence is not None for one in assessments]
    if question.ledger is not None:
        policies = []
        for one in assessments:
            identity = hashed(one.facts)[:32] if one.policy_evidence is None else policy_identity(one.evidence)
            policies.append({"name": one.name, "algorithm": one.facts["algorithm"], "identity": identity})
        ways = [one.sample for one in assessments]
        sampled = ways[0] if len(set(ways)) == 1 else ways
        settings = {"sample": sampled, **question.look_settings}
        look = question.ledger.record_look(policies, settings, counted=any(with_evidence))
    error = spent_error(limits.level, 1 if look is None else look.number)
    shared = (count if look is None else look.policies) + len(contrasts)
    before = 0 if look is None else look.policies_before
    usual = normal_deviate(error)
    least = adaptive_deviate(error / shared, before) if before else usual
    together, of_contrasts = np.ones(count), least / usual
    if look is not None and look.together is not None:
        together = np.asarray(look.together)
        of_contrasts = max(float(together.max()), of_contrasts)
    if look is None or look.together is None or look.stated:
        known = zip(assessments, with_evidence, strict=True)
        asked = [(one.first_part or one, there) for one, there in known]
        differences = [one.deciding_ratios if there and one.able else None for one, there in asked]
        every = [*differences, *(one.ratios_against(other) for one, other in contrasts)]
        ready = [there and one.has_support for one, there in asked]
        ready += [one.has_support and other.has_support for one, other in contrasts]
        reach = np.full(len(every), normal_deviate(error / len(every)))
        if any(ready):
            confidence = Confidence(limits.level, limits.replicates, question.seed)
            chosen = [ratios for ratios, is_ready in zip(every, ready, strict=True) if is_ready]
            reach[np.flatnonzero(ready)] = critical_values(chosen, confidence, error)
        reach = np.maximum(reach, least if contrasts else usual)
        together = np.maximum(together, reach[:count] / usual)
        of_contrasts = max(of_contrasts, float(reach[count:].max(initial=least)) / usual)
    plain = normal_deviate(1.0 - limits.level)
    widenings = np.maximum(np.maximum(together * usual, least) / plain, 1.0)
    for one, widening in zip(assessments, widenings.tolist(), strict=True):
        one.widening = widening
    names = tuple(one.name for one in assessments)
    widest = max(of_contrasts * usual / plain, 1.0)
    return LookResult(names, look, question.ledger, error, limits.level, widenings, together, widest)


# What would let a log answer, in closed form: the last line of a verdict that shows nothing.
#
# An interval of half-width `h` on `n` episodes has half-width `h sqrt(n / m)` on `m`, so that a difference `d` is shown
# with probability `p` on `m = n ((z + z_p) h / (z d))^2` episodes, the sample size of a test of two means. The numbers
# of episodes that support counts grow with `n`; shares do not, and only other decisions change them: a share of those
# that is drawn evenly over the actions gives every action a probability. `plan` simulates what is approximated here.
#
# Letters: `N` steps, `A` actions.

PROBABILITY = 0.8  # of showing the difference, the usual power of a planned test
EFFECT = 0.2  # standard deviations of logged returns, a small effect (Cohen 1988), where no gain is estimated
EXPLORATIONS = np.geomspace(0.01, 1.0, 21)  # of decisions drawn evenly over the actions
LARGEST = 1e9  # episodes: more are no plan
# rules whose number grows with the number of episodes, and those that only other decisions change
BY_EPISODES = ("episodes", "effective_sample_size", "largest_weight", "earning_episodes", "carrying_episodes")
BY_EXPLORATION = (
    "unsupported_mass", "effective_sample_size", "largest_weight", "pareto_k", "mean_weight", "unshown_share",
    "unshown", "weight",
)  # fmt: skip


def planned_effect(interval: Interval, returns: Floats) -> float:
    """The gain that is planned for: the estimate if it is one, else a small share of the returns' deviation [E]."""
    estimate, half = interval.estimate, (interval.high - interval.low) / 2.0
    small = EFFECT * float(returns.std())
    return estimate if math.isfinite(estimate) and estimate > 0.0 and half <= 30.0 * estimate else small


def episodes_to_show(a: Assessment, effect: float, probability: float) -> float:
    """The episodes on which a first look shows this difference with this probability; infinite without an interval."""
    half, deviate = (a.interval.high - a.interval.low) / 2.0 / a.widening, normal_deviate(1.0 - a.limits.level)
    needed = a.evidence.episodes * (float((deviate + ndtri(probability)) / deviate) * half / effect) ** 2
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
    for share in EXPLORATIONS if even is not None else ():
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
    """What would let the log answer, by the judged returns [E]; None for an answer, or the practice itself."""
    if a.decision not in ("unsupported", "no difference shown"):
        return None
    rules = [finding.rule for finding in a.findings]
    asks_exploration = rules[:1] == ["unshown"]
    if a.decision == "no difference shown" and not asks_exploration:
        return None if a.same else _to_show(a, rules, returns)
    times = [finding.check.times for finding in a.findings]
    if all(map(math.isfinite, times)):
        episodes = len(returns) * max(times)
        if episodes <= LARGEST:
            return PlanLine("support", math.ceil(episodes))
    asks_exploration |= set(rules) <= {*BY_EPISODES, *BY_EXPLORATION} and a.policy_evidence is not None
    if asks_exploration and a.evidence.horizon > 1:
        return PlanLine("sequence")
    share = least_share(a) if asks_exploration else None
    return PlanLine("none") if share is None else PlanLine("exploration", len(returns), share=share)


def _to_show(a: Assessment, rules: list[str], returns: Floats) -> PlanLine:
    """The plan of a difference that was not shown, alone or because of a rule."""
    effect = planned_effect(a.interval, returns)
    episodes = episodes_to_show(a, effect, PROBABILITY) if effect > 0.0 else math.inf
    kind: Literal["episodes", "enough", "propensities"] = "episodes"
    if rules and rules[0] == "sensitivity":
        kind = "propensities"
    elif not rules and episodes <= len(returns):
        kind = "enough"
    elif rules and rules[0] != "chosen":
        return PlanLine("none")
    return PlanLine("none") if episodes > LARGEST else PlanLine(kind, math.ceil(episodes), PROBABILITY, effect)
