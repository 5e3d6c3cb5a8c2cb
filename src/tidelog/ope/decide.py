"""From estimates to a decision and its words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog._text import amount, three_digits
from tidelog.data.checks import balance_sentence as predicted
from tidelog.data.dependence import Balance
from tidelog.data.log import Log
from tidelog.data.statistics import Overlap, Sketch
from tidelog.ope.assumptions import (
    ENDS,
    LOGGER,
    NEXT,
    REWARDS,
    ActionCount,
    Dependence,
    Tail,
    adverse_tails,
    excess_unshown,
    extreme_returns,
    extreme_values,
    failing,
    unshown_share,
    unusual_action_count,
    with_weight_factors,
    worst_factors,
)
from tidelog.ope.estimate import ESTIMATORS, Supports, is_listed, row
from tidelog.ope.estimators import (
    CELLS,
    Estimates,
    Ratios,
    Support,
    effective_number,
    episode_weights,
    logged_return,
    returns,
)
from tidelog.ope.evidence import BY_STEP, Evidence, Floats, atoms_of, clusters_of
from tidelog.ope.intervals import Confidence, interval, permutation_arms
from tidelog.ope.policies import target_of
from tidelog.ope.propensities import FilePropensities, Fit, cut_evidence, estimates_by_classifier
from tidelog.ope.risk import RULE_OF_THREE
from tidelog.ope.verdict import NEXT_STEP, OVERLAP_UNKNOWN, Decision, Limits, percent
from tidelog.policies.policy import has_density
from tidelog.policies.statistics import Interval
from tidelog.runtime.way_of_acting import first_decisions
from tidelog.types import Continuous, MultiDiscrete

# Checks of a verdict; each violated condition is a finding: a sentence with its number, and advice.
#
# Preconditions are checked before any model is fitted; a violated one gives an "unsupported" verdict, not a number and
# not an error. Then come the limits on support, the estimators' assumptions, and earlier use of the judged episodes: to
# train the policy, or to select its checkpoint.
#
# Letters: `E` episodes.

SAMPLED = "judge the policy with sampled actions (sample=True, --sample), which stays closer to the log"
RECORDED = "record the probability of each decision (the `propensity` column)"
DECLARE = (
    'if decisions were drawn at random, say so (propensity = "shares" in the mapping, or --randomised) and judge again'
)
LEAK = "outcome among observations"  # check name of the readers' warning
CHECKED = "check the propensity column against the logger's code"
SHORTER = (
    "give less weight to late rewards, about which the log says little (discount=0.9, --discount 0.9): this asks "
    "another question, the value of early rewards, and is another look at these episodes, with a wider interval"
)
VARY = "let the logger vary its decisions more"
CLOSER = "judge a policy that stays closer to the logger's decisions"
NOT_CLOSER = (
    "a policy closer to the logger does not help, because even a copy of it (behaviour cloning) breaks a limit on "
    "support: the log is too small for its states and actions, or the logger changed while it recorded. Judge on more "
    "episodes, of one logger"
)
VARIED = f"{VARY}, and record the probability of each decision"
FEWEST = 10  # episodes (or clusters) below which no model is fitted
FEWEST_CUT, SHARE_CUT = 5, 0.005  # tolerated: actions on one bound, and share of rows; some always reach the ends
LOST = 0.1  # deficit of the mean weight that hardly logged actions explain if their mass is at least half of it
UPPER_95 = 1.645  # standard errors to the one-sided upper 95% confidence limit of a share
TESTED = 1.3  # factor on the limit for the mean weight where the log's propensities were tested once, for all policies
FIT_LEVEL, FIT_LEAST = 0.01, 1e-3  # of that test: p-value, and explained share of the actions' residuals
HARMLESS = 0.01  # distance of the mean weight from 1 that is always accepted, however small its standard error


class Reason(NamedTuple):
    """One finding: the name of its rule, a sentence, and advice."""

    rule: str
    sentence: str
    advice: str = ""


def violated_preconditions(
    policy: Any,
    log: Log,
    returns: NDArray[Any],
    *,
    sample: bool,
    bandwidth: float | None,
    propensities: Any,
    effective: float = 0.0,
) -> list[Reason]:
    """All violated preconditions; empty if an estimate can be computed.

    `effective` is the limit on the effective sample size; fewer episodes, or clusters, cannot reach it.
    """
    findings = []
    clusters = clusters_of(log)
    count = len(log.episode_ids) if clusters is None else int(clusters.max()) + 1
    needed = max(FEWEST, math.ceil(effective))
    if count < needed:
        one, several = ("episode", "episodes") if clusters is None else ("cluster", "clusters of episodes")
        episodes = f"{one} is" if count == 1 else f"{several} are"
        sentence = f"{count} {episodes} too few; at least {needed:,} are needed"
        advice = "judge it on more episodes: hold out a larger share, or use a larger log"
        if clusters is not None:
            advice = (
                "judge it on more clusters: hold out a larger share, or use a log with more of them; leave `cluster` "
                "out of the mapping only if episodes of one cluster do not affect one another"
            )
        findings.append(Reason("episodes", sentence, advice))
    if len(returns) > 1 and not returns.max() > returns.min():
        sentence = f"every episode earned exactly {returns[0]:.6g}, so this log cannot show which decisions are better"
        findings.append(Reason("rewards", sentence, "check that the reward column is the right one"))
    density = _no_density(policy, log, sample, bandwidth)
    findings += _with_one_advice(density, _cut_actions(log))
    estimated = estimates_by_classifier(propensities) or (isinstance(propensities, str) and propensities == "estimated")
    recorded = log.propensity is not None and not estimated
    passed = propensities is not None and not isinstance(propensities, str) and not estimated
    findings += _undeclared_atoms(log) if recorded or passed else []
    findings += [] if density else _off_atoms(policy, log, sample, bandwidth, needed)
    return findings if recorded or passed else [*findings, *_no_propensities(log)]


def _no_density(policy: Any, log: Log, sample: bool, bandwidth: float | None) -> list[Reason]:
    if not isinstance(log.spec.action, Continuous) or bandwidth is not None:
        return []
    with_noise = "judge it with small noise added to its actions (bandwidth=0.2, --bandwidth 0.2)"
    known = has_density(policy, log.spec)
    if not sample:
        sentence = "a deterministic continuous action has no probability: no logged action is exactly equal to it"
        return [Reason("density", sentence, f"{SAMPLED}; or {with_noise}" if known else with_noise)]
    if known:
        return []
    sentence = "this policy has no density: it cannot compute the probability of an action"
    return [Reason("density", sentence, with_noise)]


def _with_one_advice(density: list[Reason], cut: list[Reason]) -> list[Reason]:
    """Return all findings; where both kinds occur, with one advice for both, because neither is sufficient alone."""
    if not (density and cut):
        return [*density, *cut]
    wider, levels = cut[0].advice.split("; or ")
    together = f"{wider}, and then {density[0].advice.replace('; or', ', or')}; or {levels}"
    return [density[0]._replace(advice=""), cut[0]._replace(advice=together)]


def _cut_actions(log: Log) -> list[Reason]:
    """Continuous actions that were clipped at their bounds; there the logger has a probability and no density."""
    space = log.spec.action
    if not isinstance(space, Continuous):
        return []
    action, low, high = np.asarray(log.action), np.asarray(space.low), np.asarray(space.high)
    on_bound = ((action <= low) | (action >= high)) & (high > low)
    share = float(on_bound.any(axis=1).mean())
    if on_bound.sum(axis=0).max() < FEWEST_CUT or share < SHARE_CUT:
        return []
    sentence = (
        f"{share:.1%} of the logged actions lie exactly on a bound: they were clipped there, and the density of an "
        "action before clipping is not the probability of the bound"
    )
    advice = (
        "record each action before clipping, with wider bounds; or round the actions to a few levels and judge them "
        "as discrete actions"
    )
    return [Reason("cut_actions", sentence, advice)]


def _undeclared_atoms(log: Log) -> list[Reason]:
    """Repeated values of continuous actions that recorded propensities are not said to be probabilities of."""
    atoms = atoms_of(log, declared=False)
    if atoms is None:
        return []
    action, declared = np.asarray(log.action), np.asarray(log.atoms, np.float32)
    on = atoms.lie_on(action) & ~np.isin(action, declared)
    if not on.any():
        return []
    values = np.unique(action[on])
    listed = ", ".join(f"{one:.4g}" for one in values[:3]) + (", ..." if len(values) > 3 else "")
    sentence = (
        f"{on.any(axis=1).mean():.1%} of the logged actions are exactly {listed}: such a value has a probability and "
        "no density, and the recorded propensities are taken for densities"
    )
    advice = (
        f"if they are probabilities there and densities elsewhere, declare it (atoms = [{listed}] in the mapping or in "
        "Log.from_arrays); or estimate them (propensities='estimated', --propensities estimated)"
    )
    return [Reason("atoms", sentence, advice)]


def _off_atoms(policy: Any, log: Log, sample: bool, bandwidth: float | None, needed: int) -> list[Reason]:
    """Whether a policy that takes no atom can be judged by the few actions off all atoms."""
    atoms = atoms_of(log)
    if atoms is None:
        return []
    on = atoms.lie_on(np.asarray(log.action)).any(axis=1)
    off = int((~on).sum())
    if off >= needed or target_of(policy, log, sample=sample, bandwidth=bandwidth).logged[on].any():
        return []
    sentence = (
        f"{on.mean():.1%} of the logged actions are {atoms.text}, and the policy never takes exactly these: other "
        f"actions are in {off:,} rows, at least {needed:,} are needed"
    )
    return [Reason("atoms", sentence, "judge a policy that chooses among these values, as discrete actions (actions=)")]


def _no_propensities(log: Log) -> list[Reason]:
    space = log.spec.action
    unknown = "the probabilities of the recorded decisions are unknown, and cannot be estimated"
    if isinstance(space, MultiDiscrete):
        return [Reason("propensities", f"{unknown} for several simultaneous choices", RECORDED)]
    if isinstance(space, Continuous) and (np.ptp(np.asarray(log.action), axis=0) == 0).any():
        sentence = f"{unknown}: the logger always chose the same value of at least one action"
        return [Reason("propensities", sentence, VARIED)]
    return []


def closer_advice(policy: Any) -> str:
    """Advice to train the policy closer to the logger, by the hyper-parameter of its algorithm that does this."""
    algorithm = getattr(policy, "algorithm", None)
    for field in dataclasses.fields(algorithm) if dataclasses.is_dataclass(algorithm) else ():
        role, value = (
            field.metadata.get("role"),
            getattr(algorithm, field.name),
        )
        flag = f"--{field.name.replace('_', '-')}"
        if role == "inverse temperature" and value > 0:
            return f"train it closer to the logger: lower {field.name}, now {value:g} ({flag} {value / 3:.2g})"
        if role == "support threshold" and value < 1:
            higher = value + (1.0 - value) / 3
            return f"train it closer to the logger: raise {field.name}, now {value:g} ({flag} {higher:.2g})"
    return CLOSER


def _varied(estimated: bool) -> str:
    """Advice for a log that shows too little; probabilities that are recorded need not be asked for."""
    return VARIED if estimated else VARY


def support_findings(
    support: Support,
    limits: Limits,
    *,
    deterministic: bool = False,
    visits: bool = False,
    estimated: bool = False,
    tested: bool = False,
    closer: str = CLOSER,
) -> list[Reason]:
    """Every violated limit on support, worst kind first.

    `deterministic`: the policy could be sampled instead. `visits`: the support is that of occupancy ratios.
    `estimated`: propensities were estimated. `tested`: the log's own ones fitted all of its actions. `closer`: how to
    train the policy closer to the logger.
    """
    vary = f"{closer}; or {_varied(estimated)}"
    findings, mass, size = [], support.unsupported_mass, support.effective_sample_size
    if not (mass is None or mass <= limits.unsupported_mass):
        sentence = (
            f"{mass:.1%} of the policy's actions are hardly in the log (the logger took them with less than a tenth of "
            f"the probability of a uniform choice); at most {limits.unsupported_mass:.1%} is allowed"
        )
        findings.append(Reason("unsupported_mass", sentence, vary))
    needed = max(limits.effective_episodes, limits.effective_share * support.episodes)
    if not size >= needed:
        sentence = (
            f"the log has too little information about this policy: effective sample size {size:,.1f} of "
            f"{support.episodes:,} episodes; at least {needed:,.0f} are needed"
        )
        times = f"about {math.ceil(needed / size):,} times as many episodes" if size >= 1 else "many more episodes"
        more = f"collect {times} of this kind"
        advice = vary if size < limits.effective_share * support.episodes else f"{closer}; or {more}"
        findings.append(Reason("effective_sample_size", sentence, advice))
    if not support.largest_weight <= limits.largest_weight:
        sentence = (
            f"a single episode has {support.largest_weight:.1%} of the total weight; at most "
            f"{limits.largest_weight:.1%} is allowed"
        )
        findings.append(Reason("largest_weight", sentence, vary))
    if not support.pareto_k <= limits.pareto_k:
        sentence = (
            f"a few episodes have very large weights, so the average is unreliable: the weights are heavy-tailed "
            f"(Pareto k = {support.pareto_k:.2f}, limit {limits.pareto_k:g})"
        )
        findings.append(Reason("pareto_k", sentence, vary))
    findings += _mean_weight(support, limits, visits, estimated, tested, closer)
    if findings and deterministic:
        findings[0] = findings[0]._replace(advice=f"{SAMPLED}; {findings[0].advice}")
    return findings


def _mean_weight(
    support: Support, limits: Limits, visits: bool, estimated: bool, tested: bool, closer: str
) -> list[Reason]:
    """Whether the mean weight is 1; for estimated propensities the odds ratio sets the tolerance."""
    mean, error = support.mean_weight, support.mean_weight_error
    off, odds = abs(mean - 1.0), limits.odds_ratio
    lost = mean < 1.0 - LOST and (support.unsupported_mass or 0.0) > 0.5 * off  # weight of actions not in the log
    forgiven = estimated and 1.0 / odds <= mean <= odds and not lost
    most = limits.mean_weight_errors * (TESTED if tested and not (visits or lost) else 1.0)
    if off <= HARMLESS or off <= most * error or forgiven:
        return []
    chance = math.erfc(off / error / math.sqrt(2.0)) if error > 0 else 0.0
    away = f"{off / error:.1f} standard errors away" if error > 0 else "with a standard error of 0"
    limit = f"at most {most:g}"
    limit = f"{limit}, or a factor of {odds:g} where propensities are estimated" if estimated else limit
    check = RECORDED if estimated else CHECKED
    wrong = "the logger's probabilities are wrong, or the policy takes actions that the logger never took"
    if lost:
        wrong = f"{support.unsupported_mass:.1%} of the policy's actions are hardly in the log"
        check = closer
    wrong += f", or this is chance (p = {chance:.2g})" if chance >= 0.001 else ""
    if visits:
        sentence = (
            f"occupancy-weighted terminations average {three_digits(mean)} (expected 1.00), {away} ({limit}): small "
            f"errors in each probability add up over up to {support.horizon:,} decisions, or {wrong}"
        )
        return [Reason("mean_weight", sentence, f"{check}; {SHORTER}")]
    sentence = f"the episodes' mean weight is {three_digits(mean)} (expected 1.00), {away} ({limit}): {wrong}"
    return [Reason("mean_weight", sentence, check)]


def propensity_findings(
    balance: Balance | None, declared: bool, estimated: bool, leaks: Sequence[str] = ()
) -> list[Reason]:
    """Whether the log's actions contradict its recorded, or declared, propensities; the same for every policy.

    `leaks` are the observation columns that tell the reward: if one of them predicts the action, it is the first cause.
    """
    if balance is None or estimated or not (balance.p_value < FIT_LEVEL and balance.explained >= FIT_LEAST):
        return []
    what = "declared" if declared else "recorded"
    wrong = f"the {what} probabilities of the decisions do not fit the logged actions: {predicted(balance, what)}"
    fix = "correct the declaration; `tidelog data validate` says how" if declared else CHECKED
    if any(one.name in leaks for one in balance.named):
        wrong += f"; {leak_sentence(leaks)}"
        fix = f"take {listed(leaks)} out of the observations, unless known before the decision, and train again"
    return [Reason("propensities_fit", wrong, fix)]


def leaks_of(log: Log) -> tuple[str, ...]:
    """The observation columns that look like outcomes of the decision, by the checks of the log."""
    return tuple(one.column for one in log.report.warnings if one.check == LEAK and one.column is not None)


def leak_sentence(leaks: Sequence[str]) -> str:
    """That columns of the observation may be outcomes of the decision; empty without any."""
    if len(leaks) == 1:
        return f"{listed(leaks)} looks like an outcome of the decision (`tidelog data validate` says why)"
    return f"{listed(leaks)} look like outcomes of the decision (`tidelog data validate` says why)" if leaks else ""


def listed(names: Sequence[str]) -> str:
    """Names of columns in a sentence."""
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def randomised_finding(balance: Balance | None) -> Reason:
    """Why a verdict holds only if the log was randomised, and what settles it."""
    test = ""
    if balance is not None:
        test = (
            f": no observation predicts them ({balance.p_text}), but where an action's share differs by less than "
            f"{balance.points} between two halves of the episodes, a log of this size may not show it"
        )
    sentence = (
        "the policy is better if nothing unrecorded decided who got what; the log has no propensities, and its "
        f"decisions look as if they were drawn at random{test}"
    )
    return Reason("randomised", sentence, DECLARE)


def excess_finding(
    share: float, excess: float, units: int, limits: Limits, *, estimated: bool, closer: str = CLOSER
) -> list[Reason]:
    """Whether the upper confidence limit of the share of unshown decisions exceeds the limit.

    `share` is the whole share, `excess` that without the logger's own rare actions, `units` the number of episodes, or
    of clusters.
    """
    high = min(excess + UPPER_95 * math.sqrt(excess * (1.0 - excess) / units), 1.0)
    if high <= limits.unshown_share:
        return []
    sentence = (
        f"the log does not show {share:.1%} of the policy's decisions, and {share - excess:.1%} of the logger's own "
        f"(rare actions): {excess:.1%} more (upper 95% limit {high:.1%}); the limit is {limits.unshown_share:.1%}"
    )
    return [Reason("unshown_share", sentence, f"{closer}; or {_varied(estimated)}")]


def habit_finding(habit: ActionCount, *, estimated: bool) -> list[Reason]:
    """Whether the policy takes an action more, or less, often per episode than nearly all logged episodes."""
    if not habit.beyond:
        return []
    sentence = (
        f"the policy takes action {habit.action} about {three_digits(habit.mean)} times per episode, logged episodes "
        f"{habit.low:.0f} to {habit.high:.0f} times: the log does not show the effect of so many, or so few"
    )
    return [Reason("habit", sentence, f"{_varied(estimated)}; {SHORTER}")]


def unshown_text(share: float) -> str:
    """The share of the policy's decisions that the log does not show; 1 where it shows none, or where it is unknown."""
    if share < 1.0:
        return f"the log does not show {share:.1%} of the policy's decisions"
    return "none of the policy's decisions is known to be in the log"


def unshown_finding(
    share: float, bound: Interval, side: str, episodes: int, *, estimated: bool, closer: str = CLOSER
) -> Reason:
    """The verdict fails if the decisions that the log does not show earn the worst (or best) return."""
    which, end = ("worst", bound.low) if side == "better" else ("best", bound.high)
    sentence = (
        f"{unshown_text(share)}; if they earned the {which} return in these {episodes:,} episodes, the "
        f"difference could be {three_digits(end, sign=True)}"
    )
    return Reason("unshown", sentence, f"{closer}; or {_varied(estimated)}")


def assumption_findings(
    history: Sequence[Dependence], drift: Sequence[Dependence], *, visits: bool, estimated: bool, horizon: int
) -> list[Reason]:
    """Assumptions of the deciding estimator that the log contradicts.

    `visits`: it uses occupancy ratios, so an observation must be a Markov state. `estimated`: propensities were
    estimated from the observation (and the time), so the logger must have used nothing else.
    """
    findings = []
    past = failing(history, (REWARDS, NEXT, ENDS)) if visits else []
    if past:
        sentence = (
            f"episodes of up to {horizon:,} decisions can be judged only if an observation contains everything that "
            f"matters (a Markov state), but it does not: {past[0].sentence}"
        )
        advice = f"add {past[0].cause} to the observation as a column, train again and judge again; {SHORTER}"
        findings.append(Reason("markov", sentence, advice))
    habits = failing(history, (LOGGER,)) if estimated else []
    if habits:
        sentence = f"propensities were estimated from the observation alone, but {habits[0].sentence}"
        findings.append(Reason("logger_history", sentence, f"{RECORDED}; or add {habits[0].cause} as a column"))
    changed = failing(drift, (LOGGER,)) if estimated else []
    if changed:
        sentence = f"the logger changed over time, and its estimated propensities miss this: {changed[0].sentence}"
        advice = f"{RECORDED}; or judge on a period in which the logger did not change"
        findings.append(Reason("drift", sentence, advice))
    return findings


def few_episodes_finding(
    episodes: float, limits: Limits, *, visits: bool, rare: bool, closer: str = CLOSER
) -> list[Reason]:
    """Whether enough episodes carry the difference; `visits`: whether occupancy ratios estimate it.

    Products of ratios are short of episodes if rewards are rare, occupancy ratios if states are. The latter need more
    episodes, because no logged return bounds what they estimate. `rare`: whether few logged returns differ from most.
    """
    least = limits.carrying_episodes if visits else limits.earning_episodes
    if not episodes < least:
        return []
    rests = f"the difference rests on about {episodes:.1f} episodes"
    if visits:
        sentence = (
            f"{rests}, because the policy often visits states that the log rarely contains; at least {least:g} are "
            "needed"
        )
        return [Reason("carrying_episodes", sentence, f"{closer}; or collect more episodes")]
    advice = "collect more episodes, because rare rewards occur too seldom here"
    if not rare:
        advice = f"{closer}; or collect more episodes"
    sentence = f"{rests} whose return is unlike most others; at least {least:g} are needed"
    return [Reason("earning_episodes", sentence, advice)]


def heavy_tail_finding(tail: Tail, difference: Interval, limits: Limits) -> list[Reason]:
    """Whether the difference could be undone by returns of a heavy tail that are too rare for this log."""
    room = difference.low if difference.low > 0 else -difference.high
    if tail.missing < room:
        return []
    side, most, name = ("above", "highest", "highest_return") if tail.high else ("below", "lowest", "lowest_return")
    bound = limits.highest_return if tail.high else limits.lowest_return
    decisions = "the policy leaves" if tail.left else "the policy takes more often"
    if bound is None:
        rest = "a log of this size does not show how much of this tail it lacks"
        flag = f"--{name.replace('_', '-')}"
        known = f"state the {most} possible return of an episode, if it is known (Limits({name}=...), {flag}); "
    else:
        known = ""
        rest = (
            f"with returns of up to {three_digits(bound)} a log of this size may lack {three_digits(tail.missing)} per "
            "episode of this tail"
        )
    sentence = (
        f"the difference rests on decisions that {decisions} and whose returns are heavy-tailed {side} (Pareto k = "
        f"{tail.shape:.2f}; above 0.5 they have no variance): the {most}, "
        f"{three_digits(tail.extreme)}, has {tail.share:.1%} of their sum, and {rest}"
    )
    advice = f"{known}judge on many more episodes"
    return [Reason("heavy_tail", sentence, advice)]


def range_finding(estimate: float, low: float, high: float) -> list[Reason]:
    """Whether the policy's estimated mean return is within the returns of the log."""
    if low <= estimate <= high:
        return []
    side, word, name, end = (
        ("highest", "above", "highest_return", high) if estimate > high else ("lowest", "below", "lowest_return", low)
    )
    shown, limit = three_digits(estimate), three_digits(end)
    if shown == limit:
        shown, limit = f"{estimate:.7g}", f"{end:.7g}"
    sentence = (
        f"the estimated mean return of the policy, {shown}, is {word} the {side} return of any episode in the log, "
        f"{limit}: the estimate is not credible"
    )
    flag = f"--{name.replace('_', '-')}"
    advice = f"judge a policy closer to the logger; if such returns are possible, set Limits({name}=...) ({flag})"
    return [Reason("range", sentence, advice)]


class Reuse(NamedTuple):
    """Overlaps with the judged episodes; None if unknown."""

    learnt_from: Overlap | None  # share that the policy was trained on
    chosen_by: str | None  # held-out metric that selected the checkpoint, if any
    held_out: Overlap | None  # share that this metric was measured on

    def to_json(self) -> dict[str, Any]:
        """Plain values for a verdict's context."""
        one, two = self.learnt_from, self.held_out
        return {
            "learnt_from": None if one is None else {"share": one.share, **one._asdict()},
            "chosen_by": self.chosen_by,
            "held_out": None if two is None else {"share": two.share, **two._asdict()},
        }


def reuse_of(policy: Any, log: Log) -> Reuse:
    """Earlier use of these episodes, from the policy's origin."""
    origin = policy.origin
    return Reuse(
        _overlap(origin.get("learnt_from"), log), origin.get("chosen_by"), _overlap(origin.get("held_out"), log)
    )


def _overlap(sketch: Any, log: Log) -> Overlap | None:
    return None if sketch is None else Sketch.from_json(sketch).overlap(log)


def overlap_finding(overlap: Overlap | None, limits: Limits) -> list[Reason]:
    """Whether the policy learnt from the judged episodes."""
    if overlap is None or not overlap.exceeds(limits.overlap):
        return []
    about = "" if overlap.exact else "about "
    sentence = (
        f"the policy learnt from {about}{overlap.share:.1%} of the episodes that it is judged on; at most "
        f"{limits.overlap:.1%} is allowed, because memorised episodes look like skill"
    )
    return [Reason("overlap", sentence, "judge it on episodes that it never saw: hold some out, or use a new log")]


def chosen_finding(metric: str | None, overlap: Overlap | None, limits: Limits) -> list[Reason]:
    """Whether the judged episodes selected the policy among its checkpoints."""
    if metric is None or overlap is None or not overlap.exceeds(limits.overlap):
        return []
    sentence = f"the checkpoint was chosen by '{metric}' on these same episodes, so they cannot show that it is better"
    return [Reason("chosen", sentence, "judge it on other episodes, or judge the last checkpoint")]


# Decision from evidence: check the limits on support, then one estimator decides, then others may contradict it.
#
# Pure functions; they fit no model and read no file. Letters: `E` episodes.

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


class Assessment(NamedTuple):
    """Result of a case."""

    decision: Decision
    findings: list[Reason]
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
    against: list[Reason]
    against_by_visits: list[Reason]  # count only if occupancy ratios have support of their own
    able: bool  # whether there is a deciding estimate
    unable: list[Reason]  # why there is none
    support: Support
    by_visits: Support | None  # support of occupancy ratios, if there are any
    visits: bool  # whether occupancy ratios decide
    estimated: bool  # whether propensities were estimated
    against_by_products: Sequence[Reason] = ()  # of long episodes: count only if products have support of their own
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


def decide(case: Case) -> Assessment:
    """Decide a case."""
    evidence, supports = case.policy, Supports(case.policy)
    result = evaluate(case, supports)
    decision, findings = apply_limits(result, case.limits, case.reuse, deterministic=case.deterministic)
    names = [name for name in ESTIMATORS if is_listed(name, evidence)]
    rows = [row(name, evidence, supports, METHOD, case.confidence, case.limits.groups) for name in names]
    return Assessment(
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


def decide_if_randomised(case: Case, outcome: Assessment) -> tuple[Case, Assessment]:
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
) -> tuple[Decision, list[Reason]]:
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


def unshown_share_findings(found: Undecided, limits: Limits) -> list[Reason]:
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


def _bound_findings(found: Undecided) -> list[Reason]:
    """Whether the verdict fails if unshown decisions earn the worst, or the best, return of the log."""
    if found.bound is None or (found.bound.low > 0 if found.side == "better" else found.bound.high < 0):
        return []
    episodes, closer = found.support.episodes, found.closer
    return [unshown_finding(found.unshown, found.bound, found.side, episodes, estimated=found.estimated, closer=closer)]


def _unable(case: Case, difference: Interval) -> list[Reason]:
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
        return [Reason("horizon", sentence, advice)]
    if not case.able:
        return [
            Reason(
                "model",
                "there is no model of action values (model='none' was set, or no model supports such actions)",
                "remove model='none' if it was set",
            )
        ]
    return [Reason("weight", "at some step no recorded episode agrees with the policy's decisions so far", advice)]


def _out_of_range(case: Case, difference: Interval) -> list[Reason]:
    """Whether the policy's estimated mean return is above or below the returns of all episodes in the log."""
    logged, limits = logged_return(case.policy).contributions, case.limits
    low, high = float(logged.min()), float(logged.max())
    low = low if limits.lowest_return is None else min(low, limits.lowest_return)
    high = high if limits.highest_return is None else max(high, limits.highest_return)
    slack = case.policy.rounding
    return range_finding(logged_return(case.policy).estimate + difference.estimate, low - slack, high + slack)


def _heavy_tails(case: Case, side: Decision, difference: Interval) -> list[Reason]:
    """Whether a heavy tail of returns that the log hardly shows could undo a shown difference.

    Not with occupancy ratios, which weigh steps and no returns.
    """
    if side == "no difference shown" or ESTIMATORS[case.deciding].uses_occupancy:
        return []
    known = {"lowest": case.limits.lowest_return, "highest": case.limits.highest_return}
    tails = adverse_tails(case.policy, better=side == "better", **known)
    return [finding for tail in tails for finding in heavy_tail_finding(tail, difference, case.limits)]


def _contradictions(case: Case, side: float) -> tuple[list[Reason], list[Reason], list[Reason]]:
    """Estimators on the other side of 0: those that always count, with occupancy ratios, and with long products.

    Only estimators whose difference does not change when a constant is added to every reward.
    """
    plain, visits, products = list[Reason](), list[Reason](), list[Reason]()
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
            finding = Reason("contradiction", sentence, "look at the table of estimates, and judge on more episodes")
            weighs = estimator.ratios is not ESTIMATORS["fqe"].ratios
            long = weighs and case.policy.horizon > case.limits.horizon
            (visits if estimator.uses_occupancy else products if long else plain).append(finding)
    return plain, visits, products


def _hidden_cause(case: Case) -> list[Reason]:
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
    return [Reason("sensitivity", sentence, advice)]


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


# Which steps of episodes weights can judge: the advice on the first ones, and whether there are none at all.

OF_PRODUCTS = ("effective_sample_size", "largest_weight", "pareto_k", "weight", "horizon")
# Rare rewards too can be seen often enough where weights are even. A mean weight that is wrong by itself points to
# wrong propensities, which fewer steps would only hide.
WITH_THEM = ("carrying_episodes", "earning_episodes", "mean_weight")


def with_shorter_question(findings: Sequence[Reason], case: Case) -> list[Reason]:
    """The findings, with this advice first where their only reasons are weights of whole episodes."""
    found, rules = list(findings), {finding.rule for finding in findings}
    if not rules & {*OF_PRODUCTS} or rules - {*OF_PRODUCTS, *WITH_THEM}:
        return found
    steps = supported_steps(case)
    if steps is None:
        return found
    part = "the first decision" if steps == 1 else f"only the first {steps} decisions"
    advice = (
        f"judge {part} of each episode, which the log can weigh and which says nothing about later ones "
        f"(first_steps={steps}, --first-steps {steps})"
    )
    return [found[0]._replace(advice=f"{advice}; {found[0].advice}"), *found[1:]]


def supported_steps(case: Case) -> int | None:
    """A large number of first steps that the log can decide, by bisection; None if there is none.

    The values of actions are those of whole episodes, so that this is a forecast of the verdict on these steps. The
    largest number with even weights is tried first, then halves of what is left: fewer steps have more support.
    """
    most = min(case.policy.horizon - 1, case.limits.horizon)
    even = [steps for steps in range(1, most + 1) if _has_support(case.policy, case.limits, steps)]
    found, low, high = None, 0, len(even)  # those below `low` can be decided, those from `high` on cannot
    middle = len(even) - 1
    while low < high:
        part = cut_evidence(case.policy, even[middle])
        shorter = case._replace(policy=part, cloning=None)
        if apply_limits(evaluate(shorter, Supports(part)), case.limits, case.reuse)[0] != "unsupported":
            found, low = part.horizon, middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return found


def has_no_support(evidence: Evidence, limits: Limits) -> bool:
    """Whether weights break a limit for whole episodes and for every number of first steps, whatever values are.

    False for episodes that are longer than `limits.horizon`, where ratios of visits decide.
    """
    return evidence.horizon <= limits.horizon and not any(
        _has_support(evidence, limits, steps) for steps in range(evidence.horizon, 0, -1)
    )


def _has_support(evidence: Evidence, limits: Limits, steps: int) -> bool:
    support = Supports(cut_evidence(evidence, steps)).of("wdr")
    # by the looser limit on the mean weight: what breaks it breaks the other one too
    return not support_findings(support, limits, estimated=evidence.estimated, tested=not evidence.estimated)


# The verdict as text, for a decision maker: reasons, a paragraph, and the assumptions that no test can rule out.
#
# Letters: `E` episodes, `N` steps, `A` actions.

HOW = {
    "counts": "by counting the logger's actions at equal observations",
    "network": "by a network that was trained to imitate the logger",
    "trees": "by boosted trees that were trained to imitate the logger",
    "classifier": "by a classifier, {name}, that was trained to imitate the logger",
    "file": "elsewhere",
}


class VerdictFacts(NamedTuple):
    """Facts for the paragraph."""

    episodes: int
    steps: int
    level: float
    difference: Interval
    logger: Interval
    estimated_by: str | None  # how propensities were estimated, if they were
    overlap_known: bool
    notes: tuple[str, ...] = ()  # on the evidence
    tail: str = ""  # sentence if the worst episodes disagree with the mean
    caveats: tuple[str, ...] = ()  # assumptions of the answer, as sentences without a full stop
    unit: str | None = None  # of rewards
    first_steps: int | None = None  # judged decisions of an episode; None: all
    left_out: int = 0  # later decisions
    propensities_fit: Fit | None = None  # how well estimated propensities predict discrete actions
    classifier: str | None = None  # the name of the user's classifier that estimated them
    declared: str | None = None  # how propensities were declared, if they were
    balance: Balance | None = None  # whether observations predict the actions beyond their propensities, or shares


def paragraph(decision: Decision, findings: Sequence[Reason], facts: VerdictFacts) -> str:
    """Paragraph with the comparison, its result, its reliability and the next step."""
    decisions = f" ({facts.steps:,} decisions)" if facts.steps != facts.episodes else ""
    part = "" if facts.first_steps is None else f"the {first_decisions(facts.first_steps)} of "
    comparison = f"The policy was compared with the logger on {part}{facts.episodes:,} recorded episodes{decisions}."
    if facts.first_steps is not None:
        comparison += f" {_sentence(later(facts.first_steps, facts.left_out, facts.steps))}."
    parts = [comparison, _outcome(decision, findings, facts), *_reliability(decision, facts)]
    advice = _next(decision, findings, facts)
    return " ".join(part for part in parts if part) + (f"{NEXT_STEP}{'; '.join(advice)}." if advice else "")


def reasons(decision: Decision, findings: Sequence[Reason], facts: VerdictFacts) -> tuple[str, ...]:
    """Reasons, one sentence each, the deciding one first; then the assumptions."""
    assumed = facts.caveats if facts.overlap_known else (*facts.caveats, OVERLAP_UNKNOWN)
    if facts.first_steps is not None:
        assumed = (later(facts.first_steps, facts.left_out, facts.steps), *assumed)
    if findings:
        return (*(finding.sentence for finding in findings), *assumed)
    where = {"better": "above 0", "worse": "below 0", "no difference shown": "on both sides of 0"}[decision]
    return (
        f"the {percent(facts.level)} interval of the difference lies {where}",
        *assumed,
    )


def quality(fit: Fit, by: str) -> str:
    """How well estimated probabilities predict the logger's decisions in episodes that their model never saw."""
    wrong = ""
    if not fit.calibrated:
        wrong = (
            f"; with them a uniform choice has a mean weight of {three_digits(fit.mean_weight)} (expected at most 1.00)"
        )
        other = ": propensities='best' (--propensities best) also tries boosted trees"
        wrong += other if by in ("counts", "network") else ""
    share = 1.0 - fit.loss / fit.constant if fit.constant > 0.0 else 0.0
    known = f"{share:.0%} less than" if share > 0.0 else "no less than"
    where = "they miss the logged decisions, which their model may have seen," if by == "file" else ""
    return (
        f"{where or 'in other episodes they miss the logged decisions'} by {fit.loss:.2f} nats on average, {known} the "
        f"{fit.constant:.2f} of always stating the same shares{wrong}"
    )


def propensities_from(read: FilePropensities) -> str:
    """The file of the logger's probabilities, what they are, and how many of its rows are about other episodes."""
    kind = "estimated by a model that is not known here" if read.estimated else "as recorded"
    others = f"; rows about other episodes: {read.unused:,}" if read.unused else ""
    return f"the probabilities of the recorded decisions were read from {read.file}, {kind}{others}"


def later(first_steps: int, left_out: int, judged: int) -> str:
    """What a verdict on the first steps says about the other ones."""
    share = left_out / (left_out + judged)
    return (
        f"{left_out:,} later decisions ({share:.1%} of all) and what follows from them are in no number: the policy "
        f"may be worse after the {first_decisions(first_steps)}"
    )


def estimand(
    lengths: NDArray[np.int64],
    cut: int,
    discount: float,
    sample: bool,
    bandwidth: float | None,
    first_steps: int | None = None,
) -> str:
    """Description of the estimated quantity; `lengths` [E] of the episodes, `cut` of them truncated."""
    what = "the sum of an episode's rewards" if discount == 1.0 else f"the sum of rewards discounted by {discount:g}"
    until = (
        "from its one decision" if lengths.max() == 1 else f"up to its recorded end ({lengths.max():,} steps at most)"
    )
    ends = "1 episode was" if cut == 1 else f"{cut:,} episodes were"
    after = f"; {ends} cut off, and rewards after that are not counted" if cut else ""
    if first_steps is not None:
        until = f"over its {first_decisions(first_steps)}"
        after = "; an episode that ends before has fewer, and rewards after them are not counted"
    acts = "samples its actions" if sample else "always takes its most likely action"
    noise = f", with noise of {bandwidth:g} of half of each action's range" if bandwidth is not None else ""
    return f"mean of {what} {until}{after}; the policy {acts}{noise}"


DOMINATING = 3  # largest number of episodes that are named


def dominating(ids: NDArray[Any], lengths: NDArray[np.int64], weights: NDArray[np.float64]) -> list[str]:
    """A sentence that names the episodes with most of the weight, [] if more than a few share it.

    `ids`, `lengths` and `weights` [E] are those of the episodes. Products of ratios grow along an episode: a few long
    episodes can have all of the weight of a log of short ones.
    """
    largest = float(weights.max(initial=0.0))
    if not 0.0 < largest < np.inf:
        return []
    shares = weights / largest
    shares /= shares.sum()
    first = np.argsort(-shares, kind="stable")[:DOMINATING]
    first = first[: int(np.searchsorted(np.cumsum(shares[first]), 0.5)) + 1]
    if shares[first].sum() < 0.5 or len(lengths) < 2 * DOMINATING:
        return []
    named = [
        f"'{ids[one]}' with {shares[one]:.1%} of the weight and {lengths[one]:,} "
        f"{'decision' if lengths[one] == 1 else 'decisions'}"
        for one in first.tolist()
    ]
    middle = int(np.median(lengths))
    sentence = f"the episode {named[0]} dominates" if len(named) == 1 else f"the episodes {', '.join(named)} dominate"
    longer = lengths[first].min() > max(2 * middle, 1)
    cause = (
        "; the weight of an episode is a product over its decisions, so the longest have the largest" if longer else ""
    )
    return [f"{sentence}; half of all episodes have at most {middle:,}{cause}"]


def _outcome(decision: Decision, findings: Sequence[Reason], facts: VerdictFacts) -> str:
    if decision == "unsupported":
        return " ".join(["Any number for it would be a guess.", *_sentences(findings)])
    sides = {"better": "more", IF_RANDOMISED: "more", "worse": "less"}
    first = facts.first_steps
    per = "per episode" if first is None else f"in the {first_decisions(first)} of an episode"
    mean = f"the logger's mean is {amount(facts.logger.estimate, facts.unit)}"
    number = f"{_span(facts.difference, facts.unit)} with {percent(facts.level)} confidence; {mean}"
    if decision == "no difference shown" and facts.difference == (0.0, 0.0, 0.0):
        return f"By every measure the policy does what the logger did ({mean})."
    if decision == "no difference shown":
        difference = amount(facts.difference.estimate, facts.unit, sign=True)
        gap = f"The estimated difference is {difference} {per} ({number})"
        return " ".join([f"{gap}.", *_sentences(findings)]) if findings else f"{gap}, which chance alone can explain."
    if decision == IF_RANDOMISED:
        return (
            "If nothing unrecorded decided who got what, the policy would earn about "
            f"{amount(abs(facts.difference.estimate), facts.unit)} more {per} than the logger did (difference "
            f"{number}). {' '.join(_sentences(findings))}"
        )
    return (
        f"The policy would earn about {amount(abs(facts.difference.estimate), facts.unit)} {sides[decision]} {per} "
        f"than the logger did (difference {number})."
    )


def _reliability(decision: Decision, facts: VerdictFacts) -> list[str]:
    sentences = []
    if decision == "better":
        sentences.append("Every check agrees with this.")
    sentences += [facts.tail] if facts.tail else []
    sentences += [f"{_sentence(note)}." for note in (*facts.notes, *facts.caveats)]
    if facts.declared is not None:
        sentences.append(f"The probabilities of the recorded decisions were {facts.declared}{_fitting(facts.balance)}.")
    if facts.estimated_by is not None and decision != IF_RANDOMISED:
        how = HOW[facts.estimated_by].format(name=facts.classifier)
        sentences.append(f"The probabilities of the recorded decisions were estimated {how}, so this is less certain.")
        sentences += (
            []
            if facts.propensities_fit is None
            else [f"{_sentence(quality(facts.propensities_fit, facts.estimated_by))}."]
        )
    if not facts.overlap_known:
        sentences.append(f"{_sentence(OVERLAP_UNKNOWN)}.")
    return sentences


def _fitting(balance: Balance | None) -> str:
    """What the test of declared probabilities found, and what it could have found."""
    if balance is None:
        return ""
    return (
        f"; the logged actions do not contradict this ({balance.p_text}; a difference of {balance.points} in an "
        "action's share between two halves of the episodes would probably have been noticed)"
    )


def _next(decision: Decision, findings: Sequence[Reason], facts: VerdictFacts) -> list[str]:
    advice = list(dict.fromkeys(part for finding in findings for part in finding.advice.split("; ") if part))[:3]
    if decision == "better":
        return ["try it on a small share of new cases alongside the current practice, and record the results"]
    if decision == "worse":
        return ["train with other settings, and keep the current practice meanwhile"]
    if decision == "no difference shown" and not findings:
        return [_more_episodes(facts)]
    return advice


def _more_episodes(facts: VerdictFacts) -> str:
    gap, half = abs(facts.difference.estimate), (facts.difference.high - facts.difference.low) / 2
    if not gap or half / gap > 30:
        return "if both are equally good, choose by cost; otherwise judge on many more episodes"
    times = math.ceil(1.5 * (half / gap) ** 2)  # the interval then clears 0 by a margin
    return (
        f"about {times:,} times as many held-out episodes would show a difference of this size, if it is real; "
        "otherwise choose by cost"
    )


def _span(interval: Interval, unit: str | None) -> str:
    return f"between {three_digits(interval.low, sign=True)} and {amount(interval.high, unit, sign=True)}"


def _sentences(findings: Sequence[Reason]) -> list[str]:
    return [f"{_sentence(finding.sentence)}." for finding in findings]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


LEAST_SHARE = 0.001  # smallest share of unshown decisions that is reported


def caveats(case: Case, outcome: Assessment) -> tuple[str, ...]:
    """Sentences without a full stop, the most important first; only those that concern this verdict."""
    if outcome.decision == "unsupported":
        return ()
    sentences = [*_unshown(case, outcome), *_markov(case), *_drift(case)]
    sentences += [] if outcome.decision == "no difference shown" else _rare_outcomes(case, outcome)
    return (*sentences, _assumptions(case, outcome))


def _unshown(case: Case, outcome: Assessment) -> list[str]:
    """Share of the policy's decisions that the log does not show, and the assumption about them."""
    share = outcome.unshown or 0.0
    if outcome.bound is None or share < LEAST_SHARE:
        return []
    limits, unshown = case.limits, unshown_text(1.0 if case.policy.supported is None else share)
    assumed = []
    if outcome.decision != "worse":
        assumed.append(_extreme("less than", case, limits.lowest_return, "worst", "lowest_return"))
    if outcome.decision != "better":
        assumed.append(_extreme("more than", case, limits.highest_return, "best", "highest_return"))
    fields = ", ".join(f"{field}=..." for _, field in assumed)
    flags = ", ".join(f"--{field.replace('_', '-')}" for _, field in assumed)
    return [
        f"{unshown}, and the answer assumes that none of them returns "
        f"{' or '.join(text for text, _ in assumed)}; if one can, set Limits({fields}) ({flags})"
    ]


def _extreme(than: str, case: Case, known: float | None, end: str, field: str) -> tuple[str, str]:
    """One end of the assumed returns of unshown decisions, and the field of `Limits` that states it."""
    limit = float(extreme_returns(case.policy, end == "best")[0]) if known is None else known
    source = f"the {end} in the log" if known is None else f"the stated {field}"
    return f"{than} {three_digits(limit)} ({source})", field


def _markov(case: Case) -> list[str]:
    """Whether an observation is a Markov state: result of the tests, and how far the policy leaves the log."""
    past = failing(case.history, (REWARDS, NEXT, ENDS))
    if case.deciding != "drl":
        names = "'fqe', 'mwl' and 'drl'"
        return [f"the observation is not a Markov state, so do not rely on {names}: {past[0].sentence}"] if past else []
    sentences = [
        "the answer assumes that the observation contains everything that affects later events (a Markov state); the "
        "tests on this log found no effect of the history of an episode, but they can miss weak effects"
    ]
    habit = unusual_action_count(case.policy)
    if habit.outside:
        sentences.append(
            f"the policy takes action {habit.action} about {three_digits(habit.mean)} times per episode, logged "
            f"episodes {habit.low:.0f} to {habit.high:.0f} times: the effect of this is assumed, not observed"
        )
    return sentences


def _drift(case: Case) -> list[str]:
    """Rewards that changed during the time of the log."""
    changed = failing(case.drift, (REWARDS,))
    if not changed:
        return []
    return [
        f"rewards changed during the time of the log ({changed[0].sentence}): the answer is an average over that time"
    ]


def _rare_outcomes(case: Case, outcome: Assessment) -> list[str]:
    """Outcomes that are too rare for a log of this size to exclude them: under the policy, and where it is left.

    Both would make the difference smaller; each sentence tells the return from which such outcomes would undo it.
    """
    earned, worse, units = returns(case.policy), outcome.decision == "worse", float(case.policy.units)
    effective = max(min(outcome.support.effective_sample_size, units), 1.0)
    logger, counted = outcome.logger.estimate, "episodes" if case.policy.clusters is None else "clusters"
    left = f"which the policy would {'avoid' if worse else 'give up'}, "
    tails = (
        (worse, logger + outcome.difference.estimate, effective, "effective sample size", ""),
        (not worse, logger, units, counted, left),
    )
    sentences = []
    for high, mean, count, name, where in tails:
        than, what, sign = ("more", "rare gain", 1.0) if high else ("less", "rare harm", -1.0)
        chance, end = min(RULE_OF_THREE / count, 1.0), float(earned.max() if high else earned.min())
        undone = mean + sign * abs(outcome.difference.high if worse else outcome.difference.low) / chance
        known = case.limits.highest_return if high else case.limits.lowest_return
        if known is not None and sign * known < max(sign * undone, sign * end):
            continue  # no possible outcome of this kind undoes the difference
        if sign * undone > sign * end:
            reverses = f", and would undo the difference if it returned {three_digits(undone)} or {than}"
        else:
            reverses = ", and would undo the difference"
        sentences.append(
            f"no recorded episode returned {than} than {three_digits(end)}; {what} beyond that, {where}with a "
            f"probability of up to {chance:.2g} per episode (3 / {name}), cannot be excluded{reverses}"
        )
    return sentences


def _assumptions(case: Case, outcome: Assessment) -> str:
    """Assumptions that no log can test."""
    units = "episodes" if case.policy.clusters is None else "clusters"
    propensities = f"the {'declared' if case.declared else 'recorded'} propensities are right, "
    if outcome.decision == IF_RANDOMISED:
        propensities = "decisions were drawn with each action's share, "
    elif case.policy.estimated:
        propensities = ""
    return (
        f"no log can confirm these assumptions of the answer: {propensities}nothing unrecorded affects both decisions "
        f"and rewards, observations were recorded before the decision, {units} are independent and do not affect one "
        "another, and no episodes are missing or cut off because of their outcome"
    )
