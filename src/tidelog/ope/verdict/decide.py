"""Decision from evidence: check the limits on support, then one estimator decides, then others may contradict it.

Pure functions; they fit no model and read no file. Letters: `E` episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tidelog.data.validation.balance import Balance
from tidelog.number_text import three_digits
from tidelog.ope.assumptions.heavy_tails import adverse_tails
from tidelog.ope.assumptions.independence import Dependence
from tidelog.ope.assumptions.partial_identification import (
    excess_unshown,
    extreme_values,
    unshown_share,
    unusual_action_count,
)
from tidelog.ope.assumptions.sensitivity import with_weight_factors, worst_factors
from tidelog.ope.estimators.estimate import ESTIMATORS, Supports, is_listed, row
from tidelog.ope.estimators.intervals import Confidence, interval
from tidelog.ope.estimators.permutation import permutation_arms
from tidelog.ope.estimators.ratios import Ratios
from tidelog.ope.estimators.sequential import CELLS, logged_return
from tidelog.ope.estimators.support import Estimates, Support, effective_number, episode_weights
from tidelog.ope.evidence.evidence import BY_STEP, Evidence, Floats
from tidelog.ope.verdict.checks import (
    CLOSER,
    Finding,
    Reuse,
    assumption_findings,
    chosen_finding,
    excess_finding,
    few_episodes_finding,
    habit_finding,
    heavy_tail_finding,
    overlap_finding,
    propensity_findings,
    randomised_finding,
    range_finding,
    support_findings,
    unshown_finding,
)
from tidelog.ope.verdict.limits import Limits
from tidelog.ope.verdict.results import Decision
from tidelog.policies.statistics import Interval

METHOD = "bca"
RARE = 0.1  # share of episodes (effective number) whose returns differ from most: below it, rewards are rare
NOTHING = Interval(np.nan, np.nan, np.nan)
SIDE: dict[Decision, float] = {"better": 1.0, "worse": -1.0}
IF_RANDOMISED: Decision = "better if randomised"


class Case(NamedTuple):
    """Everything that a decision depends on."""

    policy: Evidence
    cloning: Evidence | None
    reuse: Reuse
    limits: Limits
    seed: int = 0
    deterministic: bool = False  # whether the sampled policy could be judged instead
    densities: bool = False  # whether actions are continuous
    history: Sequence[Dependence] = ()  # whether the episode's history adds information to the observation
    drift: Sequence[Dependence] = ()  # whether the time of a row adds information to the observation
    closer: str = CLOSER  # advice to train the policy closer to the logger
    widening: float = 1.0  # of the deciding intervals, for earlier looks and other policies (`simultaneous`)
    without_support: bool = False  # whether no values were modelled, because no weights have support (`has_no_support`)
    declared: bool = False  # whether propensities were declared
    balance: Balance | None = None  # whether observations predict the actions beyond their propensities, or shares
    if_randomised: Evidence | None = None  # if a log without propensities looks randomised: with shares as propensities
    leaks: tuple[str, ...] = ()  # observation columns that tell the reward

    @property
    def deciding(self) -> str:
        """The estimator that decides; it depends only on the length of episodes."""
        return "wdr" if self.policy.horizon <= self.limits.horizon else "drl"

    @property
    def able(self) -> bool:
        """Whether the evidence has everything that the deciding estimator reads."""
        return is_listed(self.deciding, self.policy)

    @property
    def has_support(self) -> bool:
        """Whether there is a deciding estimate whose weights are within the limits; no reward has a part in it."""
        support = Supports(self.policy).of(self.deciding) if self.able else None
        visits = ESTIMATORS[self.deciding].uses_occupancy
        return support is not None and not support_findings(
            support, self.limits, visits=visits, estimated=self.policy.estimated, tested=self.tested
        )

    @property
    def tested(self) -> bool:
        """Whether the log's own propensities were tested against all of its actions."""
        return self.balance is not None and not self.policy.estimated

    @property
    def confidence(self) -> Confidence:
        """Settings of the intervals."""
        return Confidence(self.limits.level, self.limits.replicates, self.seed)

    @property
    def deciding_ratios(self) -> Ratios:
        """The deciding estimator's difference from the logger, over the rows that the bootstrap resamples."""
        ratios = ESTIMATORS[self.deciding].ratios(self.policy).minus(logged_return(self.policy))
        return ratios.clustered(self.policy.clusters).grouped(self.limits.groups)

    def between(self, ratios: Ratios, widening: float = 1.0) -> Interval:
        """Interval of an estimate, over at most `limits.groups` groups of episodes; rounding errors become 0."""
        confidence = replace(self.confidence, widening=widening)
        ends = interval(ratios.clustered(self.policy.clusters).grouped(self.limits.groups), METHOD, confidence)
        return self._without_rounding(*ends)

    def _without_rounding(self, *ends: float) -> Interval:
        """An interval in which numbers that rounding may have made are 0."""
        least = self.policy.rounding
        return Interval(*(0.0 if abs(number) <= least else number for number in ends))

    def difference(self, name: str) -> Interval:
        """An estimator's difference from the logger on the same episodes.

        The deciding one is widened, and reaches as far as chance does where weights and residuals are unrelated; with
        occupancy ratios only where rewards are rare, which is where the bootstrap alone fails.
        """
        ratios = ESTIMATORS[name].ratios(self.policy).minus(logged_return(self.policy))
        return self._with_chance(ratios) if name == self.deciding else self.between(ratios)

    def from_cloning(self) -> Interval | None:
        """The deciding estimator's difference from cloned behaviour, widened in the same way, if both have evidence."""
        estimator = ESTIMATORS[self.deciding]
        if not self.able or self.cloning is None or any(getattr(self.cloning, one) is None for one in estimator.needs):
            return None
        ratios = estimator.ratios(self.policy).minus(estimator.ratios(self.cloning))
        found = self._with_chance(ratios, self.cloning)
        return found if np.isfinite(found.estimate) else None

    def ratios_against(self, other: Case) -> Ratios | None:
        """The deciding estimator's difference from another policy, over the rows that the bootstrap resamples.

        None without evidence about one of them.
        """
        if not (self.able and other.able):
            return None
        estimate = ESTIMATORS[self.deciding].ratios
        ratios = estimate(self.policy).minus(estimate(other.policy))
        return ratios.clustered(self.policy.clusters).grouped(self.limits.groups)

    def against(self, other: Case) -> Interval:
        """The deciding estimator's difference from another policy, widened as the difference from the logger."""
        estimate = ESTIMATORS[self.deciding].ratios
        return self._with_chance(estimate(self.policy).minus(estimate(other.policy)), other.policy)

    def _with_chance(self, ratios: Ratios, against: Evidence | None = None) -> Interval:
        """Widened interval of a difference by the deciding estimator, at least as long as permutations make it."""
        found, visits = self.between(ratios, self.widening), ESTIMATORS[self.deciding].uses_occupancy
        if not np.isfinite(found.estimate) or (visits and not self.rare_rewards):
            return found
        confidence = replace(self.confidence, widening=self.widening)
        below, above = permutation_arms(self.policy, confidence, against, visits=visits)
        low, high = min(found.low, found.estimate - below), max(found.high, found.estimate + above)
        return self._without_rounding(found.estimate, low, high)

    def bound(self, difference: Interval) -> Interval:
        """Bound of the difference: unshown decisions earn from the worst to the best logged (or stated) return."""
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
        return min(difference, expected * max(1.0, self._deviation_ratio(logged)))

    @property
    def rare_rewards(self) -> bool:
        """Whether few logged returns differ from most."""
        return self._effective_influences(logged_return(self.policy)) < RARE * self.policy.units

    def _deviation_ratio(self, logged: Ratios) -> float:
        """How far returns lie from the logger's mean under the policy, over how far they lie under the logger."""
        squares = np.square(logged.contributions - logged.estimate)
        if ESTIMATORS[self.deciding].uses_occupancy or not squares.any():
            return 1.0
        return float(np.average(squares, weights=episode_weights(self.policy)) / squares.mean())

    def _effective_influences(self, ratios: Ratios) -> float:
        """The effective number of episodes, or clusters, that move an estimate by more than rounding does."""
        ratios = ratios.clustered(self.policy.clusters)
        influences = np.nan_to_num(ratios.contributions - ratios.estimate)
        return effective_number(np.where(np.abs(influences) <= self.policy.rounding, 0.0, influences))


class Outcome(NamedTuple):
    """Result of a case."""

    decision: Decision
    findings: list[Finding]
    difference: Interval
    logger: Interval
    from_bc: Interval | None
    estimates: Estimates
    support: Support
    weights: Floats  # [E]
    bound: Interval | None = None  # the difference for the worst to the best return of unshown decisions
    unshown: float | None = None  # share of the policy's decisions that the log does not show


class Undecided(NamedTuple):
    """The deciding interval and the arguments against it, before any limit on support is checked."""

    difference: Interval
    side: Decision  # side of 0 on which the interval lies
    against: list[Finding]
    against_by_visits: list[Finding]  # count only if occupancy ratios have support of their own
    able: bool  # whether there is a deciding estimate
    unable: list[Finding]  # why there is none
    support: Support
    by_visits: Support | None  # support of occupancy ratios, if there are any
    visits: bool  # whether occupancy ratios decide
    estimated: bool  # whether propensities were estimated
    against_by_products: Sequence[Finding] = ()  # of long episodes: count only if products have support of their own
    by_products: Support | None = None  # support of products
    earning: float = np.inf  # number of episodes behind the variance of the difference
    unshown: float = 0.0  # share of the policy's decisions that no other episode shows the logger taking
    bound: Interval | None = None  # the difference for the worst to the best logged return of that share
    excess: float = 0.0  # that share minus the logger's own
    rare: bool = True  # whether few logged returns differ from most
    closer: str = CLOSER
    units: int | None = None  # number of episodes, or of clusters; None: the support's episodes
    without_support: bool = False  # as in the case
    tested: bool = False  # as in the case


def decide(case: Case) -> Outcome:
    """Decide a case."""
    evidence, supports = case.policy, Supports(case.policy)
    result = evaluate(case, supports)
    decision, findings = apply_limits(result, case.limits, case.reuse, deterministic=case.deterministic)
    names = [name for name in ESTIMATORS if is_listed(name, evidence)]
    rows = [row(name, evidence, supports, METHOD, case.confidence, case.limits.groups) for name in names]
    return Outcome(
        decision,
        findings,
        reported_difference(result, decision),
        case.between(logged_return(evidence)),
        case.from_cloning(),
        Estimates(rows),
        result.support,
        episode_weights(evidence),
        result.bound,
        result.unshown,
    )


def decide_if_randomised(case: Case, outcome: Outcome) -> tuple[Case, Outcome]:
    """The case and its outcome; *better if randomised* where only declared shares in place of estimates would decide.

    The log has no propensities, and observations do not predict its actions. If nothing unrecorded decided either, each
    action's share is its propensity, and the verdict is that of a log that declares it.
    """
    if case.if_randomised is None or outcome.decision not in ("no difference shown", "unsupported"):
        return case, outcome
    drawn = case._replace(policy=case.if_randomised, if_randomised=None)
    if drawn.deciding != "wdr" or not drawn.able:
        return case, outcome
    found = decide(drawn)
    if found.decision != "better":
        return case, outcome
    return drawn, found._replace(decision=IF_RANDOMISED, findings=[randomised_finding(case.balance)])


def evaluate(case: Case, supports: Supports) -> Undecided:
    """Everything that a decision depends on except the limits; `apply_limits` applies any limits to it."""
    difference = case.difference(case.deciding) if case.able else NOTHING
    side: Decision = "better" if difference.low > 0 else "worse" if difference.high < 0 else "no difference shown"
    plain, by_ratios, products = ([], [], []) if side == "no difference shown" else _contradictions(case, SIDE[side])
    if side == "better":
        plain += [*chosen_finding(case.reuse.chosen_by, case.reuse.held_out, case.limits), *_hidden_cause(case)]
    plain += _heavy_tails(case, side, difference)
    by_visits = supports.of("drl") if case.policy.occupancy is not None else None
    visits = ESTIMATORS[case.deciding].uses_occupancy
    estimated = case.policy.estimated
    assumed = assumption_findings(
        case.history, case.drift, visits=visits, estimated=estimated, horizon=case.policy.horizon
    )
    unfit = propensity_findings(case.balance, case.declared, estimated, case.leaks)
    unable = [*_unable(case, difference), *assumed, *unfit]
    unable += habit_finding(unusual_action_count(case.policy), estimated=estimated) if visits else []
    support, unshown = supports.of(case.deciding), unshown_share(case.policy)
    return Undecided(
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
        case.rare_rewards,
        case.closer,
        case.policy.units,
        case.without_support,
        case.tested,
    )


def apply_limits(
    found: Undecided, limits: Limits, reuse: Reuse, *, deterministic: bool = False
) -> tuple[Decision, list[Finding]]:
    """The decision under these limits on support, and the reasons."""
    violations = [*overlap_finding(reuse.learnt_from, limits), *found.unable]
    if found.able or found.without_support:
        violations += support_findings(
            found.support,
            limits,
            deterministic=deterministic,
            visits=found.visits,
            estimated=found.estimated,
            tested=found.tested,
            closer=found.closer,
        )
    if found.able:
        violations += few_episodes_finding(
            found.earning, limits, visits=found.visits, rare=found.rare, closer=found.closer
        )
        violations += unshown_share_findings(found, limits)
    if violations:
        return "unsupported", violations
    against = [*_bound_findings(found), *found.against]
    if found.by_visits is not None and not support_findings(
        found.by_visits, limits, visits=True, estimated=found.estimated
    ):
        against = found.against_by_visits + against
    if found.by_products is not None and not support_findings(found.by_products, limits, estimated=found.estimated):
        against = [*found.against_by_products, *against]
    return ("no difference shown", against) if against else (found.side, [])


def unshown_share_findings(found: Undecided, limits: Limits) -> list[Finding]:
    """The limit on unshown decisions; it applies only to "better" and "worse"."""
    units = found.support.episodes if found.units is None else found.units
    if found.side == "no difference shown":
        return []
    return excess_finding(found.unshown, found.excess, units, limits, estimated=found.estimated, closer=found.closer)


def reported_difference(found: Undecided, decision: Decision) -> Interval:
    """The difference that is reported with a decision: the bound if the verdict fails under it."""
    if found.bound is None or decision != "no difference shown" or not _bound_findings(found):
        return found.difference
    return found.bound


def _bound_findings(found: Undecided) -> list[Finding]:
    """Whether the verdict fails if unshown decisions earn the worst, or the best, return of the log."""
    if found.bound is None or (found.bound.low > 0 if found.side == "better" else found.bound.high < 0):
        return []
    episodes, closer = found.support.episodes, found.closer
    return [unshown_finding(found.unshown, found.bound, found.side, episodes, estimated=found.estimated, closer=closer)]


def _unable(case: Case, difference: Interval) -> list[Finding]:
    if case.able and np.isfinite(difference.low) and np.isfinite(difference.high):
        return _out_of_range(case, difference)
    if case.without_support:
        return []
    advice = case.closer
    if case.deciding == "drl" and not case.able:
        sentence = (
            f"episodes have up to {case.policy.horizon:,} decisions: products of probabilities carry no information "
            f"beyond {case.limits.horizon}, and how often the policy visits each state cannot be estimated here"
        )
        return [Finding("horizon", sentence, advice)]
    if not case.able:
        return [
            Finding(
                "model",
                "there is no model of action values (model='none' was set, or no model supports such actions)",
                "remove model='none' if it was set",
            )
        ]
    return [Finding("weight", "at some step no recorded episode agrees with the policy's decisions so far", advice)]


def _out_of_range(case: Case, difference: Interval) -> list[Finding]:
    """Whether the policy's estimated mean return is above or below the returns of all episodes in the log."""
    logged, limits = logged_return(case.policy).contributions, case.limits
    low, high = float(logged.min()), float(logged.max())
    low = low if limits.lowest_return is None else min(low, limits.lowest_return)
    high = high if limits.highest_return is None else max(high, limits.highest_return)
    slack = case.policy.rounding
    return range_finding(logged_return(case.policy).estimate + difference.estimate, low - slack, high + slack)


def _heavy_tails(case: Case, side: Decision, difference: Interval) -> list[Finding]:
    """Whether a heavy tail of returns that the log hardly shows could undo a shown difference.

    Not with occupancy ratios, which weigh steps and no returns.
    """
    if side == "no difference shown" or ESTIMATORS[case.deciding].uses_occupancy:
        return []
    known = {"lowest": case.limits.lowest_return, "highest": case.limits.highest_return}
    tails = adverse_tails(case.policy, better=side == "better", **known)
    return [finding for tail in tails for finding in heavy_tail_finding(tail, difference, case.limits)]


def _contradictions(case: Case, side: float) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """Estimators on the other side of 0: those that always count, with occupancy ratios, and with long products.

    Only estimators whose difference does not change when a constant is added to every reward.
    """
    plain, visits, products = list[Finding](), list[Finding](), list[Finding]()
    for name, estimator in ESTIMATORS.items():
        if name == case.deciding or not is_listed(name, case.policy) or not estimator.vetoes:
            continue
        other = case.difference(name)
        if (side > 0 and other.high < 0) or (side < 0 and other.low > 0):
            sides = ("better", "worse") if side > 0 else ("worse", "better")
            sentence = (
                f"the estimators contradict each other: '{case.deciding}' finds the policy {sides[0]}, '{name}' finds "
                f"it {sides[1]} ({three_digits(other.low, sign=True)} to {three_digits(other.high, sign=True)})"
            )
            finding = Finding("contradiction", sentence, "look at the table of estimates, and judge on more episodes")
            weighs = estimator.ratios is not ESTIMATORS["fqe"].ratios
            long = weighs and case.policy.horizon > case.limits.horizon
            (visits if estimator.uses_occupancy else products if long else plain).append(finding)
    return plain, visits, products


def _hidden_cause(case: Case) -> list[Finding]:
    """With estimated propensities: whether "better" holds if an unrecorded cause changed one decision per episode."""
    odds = case.limits.odds_ratio
    if not case.policy.estimated or odds == 1.0:
        return []
    low = worst_case(case)
    if low > 0:
        return []
    sentence = (
        f"the logger's probabilities were estimated; if something that is not in the log changed one decision of each "
        f"episode by odds of {odds:g}, the policy may not be better (the difference could be "
        f"{three_digits(low, sign=True)})"
    )
    advice = "record the probability of each decision (the `propensity` column), which removes this doubt"
    return [Finding("sensitivity", sentence, advice)]


def worst_case(case: Case) -> float:
    """Lower end of the difference's interval under the worst unrecorded cause that the odds ratio allows."""
    evidence = _at_most(case.policy, case.seed)
    base, estimator = _by_target(evidence, case.deciding)

    def difference(changed: Evidence) -> Ratios:
        return estimator(changed).minus(logged_return(evidence))

    factors = worst_factors(base, difference, case.limits.odds_ratio, densities=case.densities)
    return case.between(difference(with_weight_factors(base, factors)), case.widening).low


def _by_target(evidence: Evidence, deciding: str) -> tuple[Evidence, Callable[[Evidence], Ratios]]:
    """The deciding estimator as a function of evidence with changed target probabilities."""
    ratios = ESTIMATORS[deciding].ratios
    if not ESTIMATORS[deciding].uses_occupancy or evidence.occupancy is None:
        return evidence, ratios
    occupancy = evidence.occupancy

    def by_visits(changed: Evidence) -> Ratios:
        factors = np.repeat(changed.target[evidence.starts[:-1]], evidence.lengths)
        return ratios(replace(evidence, occupancy=occupancy * factors))

    return replace(evidence, target=np.ones(len(evidence.reward))), by_visits


def _at_most(evidence: Evidence, seed: int) -> Evidence:
    """Random episodes, as many as an estimate by episode can hold; all or none of each cluster."""
    most = max(CELLS // evidence.horizon, 2)
    if evidence.episodes <= most:
        return evidence
    units = np.arange(evidence.episodes) if evidence.clusters is None else evidence.clusters
    sizes = np.bincount(units)
    order = np.random.default_rng([seed, 7]).permutation(len(sizes))
    count = max(int(np.searchsorted(np.cumsum(sizes[order]), most, "right")), 1)
    return take_episodes(evidence, np.flatnonzero(np.isin(units, order[:count])))


def take_episodes(evidence: Evidence, chosen: np.ndarray) -> Evidence:
    """Evidence of some episodes, by their ordinals [E'] in rising order."""
    selected = np.zeros(evidence.episodes, bool)
    selected[chosen] = True
    rows = np.repeat(selected, evidence.lengths)
    arrays = {name: getattr(evidence, name) for name in BY_STEP}
    parts: dict[str, Any] = {name: None if values is None else values[rows] for name, values in arrays.items()}
    clusters = None if evidence.clusters is None else np.unique(evidence.clusters[selected], return_inverse=True)[1]
    starts = np.concatenate([[0], np.cumsum(evidence.lengths[selected])])
    return replace(evidence, starts=starts, clusters=clusters, **parts)
