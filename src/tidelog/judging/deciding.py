"""From evidence to a decision: one estimator decides, limits on support come first, the others may contradict.

Pure: nothing is fitted and nothing is read here. Letters: `E` episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tidelog.acting.statistics import Interval
from tidelog.judging.assumptions import Dependence
from tidelog.judging.estimate import ESTIMATORS, Supports, is_listed, row
from tidelog.judging.evidence import Evidence, Floats
from tidelog.judging.findings import (
    Finding,
    assumption_findings,
    chosen_finding,
    excess_finding,
    few_episodes_finding,
    habit_finding,
    overlap_finding,
    range_finding,
    support_findings,
    unshown_finding,
)
from tidelog.judging.habits import new_habit
from tidelog.judging.intervals import Confidence, interval
from tidelog.judging.limits import Limits
from tidelog.judging.partial_identification import excess_unshown, extreme_values, unshown_share
from tidelog.judging.ratios import Ratios
from tidelog.judging.results import Decision, Estimates, Support
from tidelog.judging.reuse import Reuse
from tidelog.judging.sensitivity import shifted, worst_factors
from tidelog.judging.sequential import CELLS, logged_return
from tidelog.judging.weights import effective_number, episode_weights

METHOD = "bca"
NOTHING = Interval(np.nan, np.nan, np.nan)
ROUNDING = 1e-6  # of the largest sum of an episode's absolute rewards: models are 32-bit
BY_STEP = (
    "reward", "target", "behaviour", "model", "model_target", "target_all", "behaviour_all", "model_all", "occupancy",
    "action", "supported",
)  # fmt: skip
SIDE: dict[Decision, float] = {"better": 1.0, "worse": -1.0}


class Case(NamedTuple):
    """All that a decision rests on."""

    policy: Evidence
    cloning: Evidence | None
    reuse: Reuse
    limits: Limits
    seed: int = 0
    deterministic: bool = False  # whether a sampled form of the policy could be judged instead
    densities: bool = False  # whether actions are continuous
    history: Sequence[Dependence] = ()  # whether the history of an episode adds to what is seen,
    drift: Sequence[Dependence] = ()  # and whether the time of a row does
    widening: float = 1.0  # of the deciding intervals, for other looks and other policies (`simultaneous`)

    @property
    def deciding(self) -> str:
        """The estimator that decides: its choice rests on the length of episodes alone."""
        return "wdr" if self.policy.horizon <= self.limits.horizon else "drl"

    @property
    def able(self) -> bool:
        """Whether what the deciding estimator reads is there."""
        return is_listed(self.deciding, self.policy)

    @property
    def confidence(self) -> Confidence:
        """How intervals are made."""
        return Confidence(self.limits.level, self.limits.replicates, self.seed)

    @property
    def deciding_ratios(self) -> Ratios:
        """The deciding estimator's difference from the logger, over the rows that the bootstrap draws."""
        ratios = ESTIMATORS[self.deciding].ratios(self.policy).minus(logged_return(self.policy))
        return ratios.clustered(self.policy.clusters).grouped(self.limits.groups)

    def between(self, ratios: Ratios, widening: float = 1.0) -> Interval:
        """The interval of an estimate, over at most so many groups of episodes; what rounding can make is 0."""
        confidence = replace(self.confidence, widening=widening)
        found = interval(ratios.clustered(self.policy.clusters).grouped(self.limits.groups), METHOD, confidence)
        earned = np.add.reduceat(np.abs(np.asarray(self.policy.reward, np.float64)), self.policy.starts[:-1])
        least = ROUNDING * float(earned.max())
        return Interval(*(0.0 if abs(number) <= least else number for number in found))

    def difference(self, name: str) -> Interval:
        """An estimator's difference from the logger on the same episodes; the deciding one is widened."""
        ratios = ESTIMATORS[name].ratios(self.policy).minus(logged_return(self.policy))
        return self.between(ratios, self.widening if name == self.deciding else 1.0)

    def bound(self, difference: Interval) -> Interval:
        """The difference, from the worst to the best logged return for every decision that the log does not show."""
        worst, best = self._with_extremes(best=False), self._with_extremes(best=True)
        return Interval(difference.estimate, min(worst.low, difference.low), max(best.high, difference.high))

    def _with_extremes(self, *, best: bool) -> Interval:
        known = self.limits.highest_return if best else self.limits.lowest_return
        evidence = extreme_values(self.policy, best=best, known=known)
        estimator = ESTIMATORS["dr" if self.deciding == "wdr" else self.deciding]
        return self.between(estimator.ratios(evidence).minus(logged_return(self.policy)), self.widening)

    def earning(self, effective_episodes: float) -> float:
        """How many episodes carry the difference, where rewards are rare: the smaller of two effective numbers.

        One is of the difference's influences. The other is of the returns that make the logger's variance: as many of
        them as the effective sample size lets expect under the policy, or as it has seen there if these are more.
        Without it a policy under which no rare reward was seen yet would be worse, where hardly one was to be expected.
        """
        evidence, logged = self.policy, logged_return(self.policy)
        difference = self._effective_influences(ESTIMATORS[self.deciding].ratios(evidence).minus(logged))
        if difference == 0.0:
            return np.inf  # every return is the same
        expected = self._effective_influences(logged) * effective_episodes / evidence.units
        return min(difference, expected * max(1.0, self._spread_ratio(logged)))

    def _spread_ratio(self, logged: Ratios) -> float:
        """How far returns lie from the logger's mean under the policy, over how far they lie under the logger."""
        squares = np.square(logged.contributions - logged.estimate)
        if ESTIMATORS[self.deciding].visits or not squares.any():
            return 1.0
        return float(np.average(squares, weights=episode_weights(self.policy)) / squares.mean())

    def _effective_influences(self, ratios: Ratios) -> float:
        """The effective number of episodes, or clusters, that move an estimate by more than rounding does."""
        ratios = ratios.clustered(self.policy.clusters)
        influences = np.nan_to_num(ratios.contributions - ratios.estimate)
        least = ROUNDING * float(np.abs(np.nan_to_num(ratios.contributions)).max())
        return effective_number(np.where(np.abs(influences) <= least, 0.0, influences))


class Outcome(NamedTuple):
    """What came of a case."""

    decision: Decision
    findings: list[Finding]
    difference: Interval
    logger: Interval
    from_bc: Interval | None
    estimates: Estimates
    support: Support
    weights: Floats  # [E]
    bound: Interval | None = None  # the difference under the worst to the best return of unshown decisions
    unshown: float | None = None  # share of what the policy does that the log does not show


class Shown(NamedTuple):
    """What the deciding interval shows and what speaks against it; no limit on support has been asked yet."""

    difference: Interval
    side: Decision  # of 0 on which the interval lies
    against: list[Finding]
    against_by_visits: list[Finding]  # which count only where ratios of visits have support of their own
    able: bool  # whether there is a deciding estimate,
    unable: list[Finding]  # and why not
    support: Support
    by_visits: Support | None  # the support of ratios of visits, where there are any
    visits: bool  # whether these decide
    estimated: bool  # whether propensities were estimated
    against_by_products: Sequence[Finding] = ()  # of long episodes: they count only where products have support
    by_products: Support | None = None  # their support
    earning: float = np.inf  # how many episodes carry the difference, where rewards are rare
    unshown: float = 0.0  # share of what the policy does that other episodes do not show the logger doing,
    bound: Interval | None = None  # and the difference under the worst to the best logged return of that share
    excess: float = 0.0  # by how much the target does more of that than the logger
    units: int | None = None  # number of episodes, or of clusters; None: the support's episodes


def decided(case: Case) -> Outcome:
    """Decide a case."""
    evidence, supports = case.policy, Supports(case.policy)
    found = shown(case, supports)
    decision, findings = ruled(found, case.limits, case.reuse, deterministic=case.deterministic)
    names = [name for name in ESTIMATORS if is_listed(name, evidence)]
    rows = [row(name, evidence, supports, METHOD, case.confidence, case.limits.groups) for name in names]
    return Outcome(
        decision,
        findings,
        reported_difference(found, decision),
        case.between(logged_return(evidence)),
        _from_bc(case) if case.able else None,
        Estimates(rows),
        found.support,
        episode_weights(evidence),
        found.bound,
        found.unshown,
    )


def shown(case: Case, supports: Supports) -> Shown:
    """Everything that a decision rests on except the limits on support, which can be `ruled` by again and again."""
    difference = case.difference(case.deciding) if case.able else NOTHING
    side: Decision = "better" if difference.low > 0 else "worse" if difference.high < 0 else "no difference shown"
    plain, by_ratios, products = ([], [], []) if side == "no difference shown" else _contradictions(case, SIDE[side])
    if side == "better":
        plain += [*chosen_finding(case.reuse.chosen_by, case.reuse.held_out, case.limits), *_hidden_cause(case)]
    by_visits = supports.of("drl") if case.policy.occupancy is not None else None
    visits = ESTIMATORS[case.deciding].visits
    estimated = case.policy.estimated
    assumed = assumption_findings(
        case.history, case.drift, visits=visits, estimated=estimated, horizon=case.policy.horizon
    )
    unable = [*_unable(case, difference), *assumed]
    unable += habit_finding(new_habit(case.policy)) if visits else []
    support, unshown = supports.of(case.deciding), unshown_share(case.policy)
    return Shown(
        difference,
        side,
        plain,
        by_ratios,
        case.able,
        unable,
        support,
        by_visits,
        visits,
        estimated,
        products,
        supports.of("wis"),
        case.earning(support.effective_sample_size) if case.able else np.inf,
        unshown,
        None if side == "no difference shown" or not unshown else case.bound(difference),
        excess_unshown(case.policy),
        case.policy.units,
    )


def ruled(found: Shown, limits: Limits, reuse: Reuse, *, deterministic: bool = False) -> tuple[Decision, list[Finding]]:
    """The decision under these limits on support, and why."""
    lacking = [*overlap_finding(reuse.learnt_from, limits), *found.unable]
    if found.able:
        lacking += support_findings(
            found.support, limits, deterministic=deterministic, visits=found.visits, estimated=found.estimated
        )
        lacking += few_episodes_finding(found.earning, limits, visits=found.visits)
        lacking += unshown_share_findings(found, limits)
    if lacking:
        return "unsupported", lacking
    against = [*_bound_findings(found), *found.against]
    if found.by_visits is not None and not support_findings(
        found.by_visits, limits, visits=True, estimated=found.estimated
    ):
        against = found.against_by_visits + against
    if found.by_products is not None and not support_findings(found.by_products, limits, estimated=found.estimated):
        against = [*found.against_by_products, *against]
    return ("no difference shown", against) if against else (found.side, [])


def unshown_share_findings(found: Shown, limits: Limits) -> list[Finding]:
    """The limit on unshown decisions; it applies to "better" and "worse" alone."""
    units = found.support.episodes if found.units is None else found.units
    return [] if found.side == "no difference shown" else excess_finding(found.excess, units, limits)


def reported_difference(found: Shown, decision: Decision) -> Interval:
    """The difference that is reported with a decision: the bound where the verdict does not survive it."""
    if found.bound is None or decision != "no difference shown" or not _bound_findings(found):
        return found.difference
    return found.bound


def _bound_findings(found: Shown) -> list[Finding]:
    """Whether the verdict falls if what the log does not show is the worst, or the best, that it holds."""
    if found.bound is None or (found.bound.low > 0 if found.side == "better" else found.bound.high < 0):
        return []
    return [unshown_finding(found.unshown, found.bound, found.side, found.support.episodes)]


def _unable(case: Case, difference: Interval) -> list[Finding]:
    if case.able and np.isfinite(difference.low) and np.isfinite(difference.high):
        return _out_of_range(case, difference)
    advice = "judge a policy that stays closer to what the logger did"
    if case.deciding == "drl" and not case.able:
        sentence = (
            f"episodes have up to {case.policy.horizon:,} decisions: beyond {case.limits.horizon} products of "
            "probabilities say nothing, and how often the policy would come where cannot be estimated here"
        )
        return [Finding("horizon", sentence, advice)]
    if not case.able:
        return [
            Finding(
                "model",
                "there is no model of what actions are worth (none was asked for, or there is none of such actions)",
                "leave model='none' away, if it was given",
            )
        ]
    return [Finding("weight", "at some step no recorded episode has gone on as the policy would have", advice)]


def _out_of_range(case: Case, difference: Interval) -> list[Finding]:
    """Whether the policy would return more, or less, on average than any episode of the log did."""
    logged, limits = logged_return(case.policy).contributions, case.limits
    low, high = float(logged.min()), float(logged.max())
    low = low if limits.lowest_return is None else min(low, limits.lowest_return)
    high = high if limits.highest_return is None else max(high, limits.highest_return)
    slack = ROUNDING * max(abs(low), abs(high))
    return range_finding(logged_return(case.policy).estimate + difference.estimate, low - slack, high + slack)


def _contradictions(case: Case, side: float) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """Estimators on the other side of 0: those that always count, by ratios of visits, and by long products.

    Only estimators that a constant on every reward leaves alone.
    """
    plain, visits, products = list[Finding](), list[Finding](), list[Finding]()
    for name, estimator in ESTIMATORS.items():
        if name == case.deciding or not is_listed(name, case.policy) or not estimator.vetoes:
            continue
        other = case.difference(name)
        if (side > 0 and other.high < 0) or (side < 0 and other.low > 0):
            words = ("better", "worse") if side > 0 else ("worse", "better")
            sentence = (
                f"the estimators contradict each other: '{case.deciding}' finds the policy {words[0]}, '{name}' finds "
                f"it {words[1]} ({other.low:+.3g} to {other.high:+.3g})"
            )
            found = Finding("contradiction", sentence, "look at the table of estimates, and judge on more episodes")
            weighs = estimator.ratios is not ESTIMATORS["fqe"].ratios
            long = weighs and case.policy.horizon > case.limits.horizon
            (visits if estimator.visits else products if long else plain).append(found)
    return plain, visits, products


def _hidden_cause(case: Case) -> list[Finding]:
    """With estimated propensities: does "better" stand if something unrecorded swayed one decision an episode."""
    odds = case.limits.odds_ratio
    if not case.policy.estimated or odds == 1.0:
        return []
    low = worst_case(case)
    if low > 0:
        return []
    sentence = (
        f"the logger's probabilities were estimated, and if something that is not in the log swayed one decision of "
        f"each episode by odds of {odds:g}, the policy need not be better (the difference could be {low:+.3g})"
    )
    advice = "record how likely each decision was (the `propensity` column): then this question does not arise"
    return [Finding("sensitivity", sentence, advice)]


def worst_case(case: Case) -> float:
    """The lower end of the difference's interval under the worst cause that the odds ratio allows."""
    evidence = _at_most(case.policy, case.seed)
    base, estimator = _by_target(evidence, case.deciding)

    def difference(swayed: Evidence) -> Ratios:
        return estimator(swayed).minus(logged_return(evidence))

    factors = worst_factors(base, difference, case.limits.odds_ratio, densities=case.densities)
    return case.between(difference(shifted(base, factors)), case.widening).low


def _by_target(evidence: Evidence, deciding: str) -> tuple[Evidence, Callable[[Evidence], Ratios]]:
    """The deciding estimator as a function of evidence whose target probabilities are swayed."""
    ratios = ESTIMATORS[deciding].ratios
    if not ESTIMATORS[deciding].visits or evidence.occupancy is None:
        return evidence, ratios
    occupancy = evidence.occupancy

    def by_visits(swayed: Evidence) -> Ratios:
        factors = np.repeat(swayed.target[evidence.starts[:-1]], evidence.lengths)
        return ratios(replace(evidence, occupancy=occupancy * factors))

    return replace(evidence, target=np.ones(len(evidence.reward))), by_visits


def _at_most(evidence: Evidence, seed: int) -> Evidence:
    """As many episodes, drawn at random, as an estimate by episode can hold; of a cluster all or none."""
    most = max(CELLS // evidence.horizon, 2)
    if evidence.episodes <= most:
        return evidence
    units = np.arange(evidence.episodes) if evidence.clusters is None else evidence.clusters
    sizes = np.bincount(units)
    order = np.random.default_rng([seed, 7]).permutation(len(sizes))
    count = max(int(np.searchsorted(np.cumsum(sizes[order]), most, "right")), 1)
    return some(evidence, np.flatnonzero(np.isin(units, order[:count])))


def some(evidence: Evidence, chosen: np.ndarray) -> Evidence:
    """Evidence of some episodes, by their ordinals [E'] in rising order."""
    kept = np.zeros(evidence.episodes, bool)
    kept[chosen] = True
    rows = np.repeat(kept, evidence.lengths)
    taken = {name: getattr(evidence, name) for name in BY_STEP}
    parts: dict[str, Any] = {name: None if values is None else values[rows] for name, values in taken.items()}
    clusters = None if evidence.clusters is None else np.unique(evidence.clusters[kept], return_inverse=True)[1]
    starts = np.concatenate([[0], np.cumsum(evidence.lengths[kept])])
    return replace(evidence, starts=starts, clusters=clusters, **parts)


def _from_bc(case: Case) -> Interval | None:
    """The difference from behaviour cloning, by the same estimator on the same episodes."""
    if case.cloning is None or any(getattr(case.cloning, part) is None for part in ESTIMATORS[case.deciding].needs):
        return None
    ratios = ESTIMATORS[case.deciding].ratios
    found = case.between(ratios(case.policy).minus(ratios(case.cloning)), case.widening)
    return found if np.isfinite(found.estimate) else None
