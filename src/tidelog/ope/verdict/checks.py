"""Checks of a verdict; each violated condition is a finding: a sentence with its number, and advice.

Preconditions are checked before any model is fitted; a violated one gives an "unsupported" verdict, not a number and
not an error. Then come the limits on support, the estimators' assumptions, and earlier use of the judged episodes: to
train the policy, or to select its checkpoint.

Letters: `E` episodes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.data.overlap import Overlap, Sketch
from tidelog.data.validation.balance import Balance
from tidelog.data.validation.randomisation import sentence as predicted
from tidelog.number_text import three_digits
from tidelog.ope.assumptions.heavy_tails import Tail
from tidelog.ope.assumptions.independence import ENDS, LOGGER, NEXT, REWARDS, Dependence, failing
from tidelog.ope.assumptions.partial_identification import ActionCount
from tidelog.ope.estimators.support import Support
from tidelog.ope.evidence.atoms import atoms_of
from tidelog.ope.evidence.episodes import clusters_of
from tidelog.ope.evidence.propensities import estimates_by_classifier
from tidelog.ope.evidence.target import target_of
from tidelog.ope.verdict.limits import Limits
from tidelog.policies.policy import has_density
from tidelog.policies.statistics import Interval
from tidelog.types import Continuous, MultiDiscrete

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


class Finding(NamedTuple):
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
) -> list[Finding]:
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
        findings.append(Finding("episodes", sentence, advice))
    if len(returns) > 1 and not returns.max() > returns.min():
        sentence = f"every episode earned exactly {returns[0]:.6g}, so this log cannot show which decisions are better"
        findings.append(Finding("rewards", sentence, "check that the reward column is the right one"))
    density = _no_density(policy, log, sample, bandwidth)
    findings += _with_one_advice(density, _cut_actions(log))
    estimated = estimates_by_classifier(propensities) or (isinstance(propensities, str) and propensities == "estimated")
    recorded = log.propensity is not None and not estimated
    passed = propensities is not None and not isinstance(propensities, str) and not estimated
    findings += _undeclared_atoms(log) if recorded or passed else []
    findings += [] if density else _off_atoms(policy, log, sample, bandwidth, needed)
    return findings if recorded or passed else [*findings, *_no_propensities(log)]


def _no_density(policy: Any, log: Log, sample: bool, bandwidth: float | None) -> list[Finding]:
    if not isinstance(log.spec.action, Continuous) or bandwidth is not None:
        return []
    with_noise = "judge it with small noise added to its actions (bandwidth=0.2, --bandwidth 0.2)"
    known = has_density(policy, log.spec)
    if not sample:
        sentence = "a deterministic continuous action has no probability: no logged action is exactly equal to it"
        return [Finding("density", sentence, f"{SAMPLED}; or {with_noise}" if known else with_noise)]
    if known:
        return []
    sentence = "this policy has no density: it cannot compute the probability of an action"
    return [Finding("density", sentence, with_noise)]


def _with_one_advice(density: list[Finding], cut: list[Finding]) -> list[Finding]:
    """Return all findings; where both kinds occur, with one advice for both, because neither is sufficient alone."""
    if not (density and cut):
        return [*density, *cut]
    wider, levels = cut[0].advice.split("; or ")
    together = f"{wider}, and then {density[0].advice.replace('; or', ', or')}; or {levels}"
    return [density[0]._replace(advice=""), cut[0]._replace(advice=together)]


def _cut_actions(log: Log) -> list[Finding]:
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
    return [Finding("cut_actions", sentence, advice)]


def _undeclared_atoms(log: Log) -> list[Finding]:
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
    return [Finding("atoms", sentence, advice)]


def _off_atoms(policy: Any, log: Log, sample: bool, bandwidth: float | None, needed: int) -> list[Finding]:
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
    return [
        Finding("atoms", sentence, "judge a policy that chooses among these values, as discrete actions (actions=)")
    ]


def _no_propensities(log: Log) -> list[Finding]:
    space = log.spec.action
    unknown = "the probabilities of the recorded decisions are unknown, and cannot be estimated"
    if isinstance(space, MultiDiscrete):
        return [Finding("propensities", f"{unknown} for several simultaneous choices", RECORDED)]
    if isinstance(space, Continuous) and (np.ptp(np.asarray(log.action), axis=0) == 0).any():
        sentence = f"{unknown}: the logger always chose the same value of at least one action"
        return [Finding("propensities", sentence, VARIED)]
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
) -> list[Finding]:
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
        findings.append(Finding("unsupported_mass", sentence, vary))
    needed = max(limits.effective_episodes, limits.effective_share * support.episodes)
    if not size >= needed:
        sentence = (
            f"the log has too little information about this policy: effective sample size {size:,.1f} of "
            f"{support.episodes:,} episodes; at least {needed:,.0f} are needed"
        )
        times = f"about {math.ceil(needed / size):,} times as many episodes" if size >= 1 else "many more episodes"
        more = f"collect {times} of this kind"
        advice = vary if size < limits.effective_share * support.episodes else f"{closer}; or {more}"
        findings.append(Finding("effective_sample_size", sentence, advice))
    if not support.largest_weight <= limits.largest_weight:
        sentence = (
            f"a single episode has {support.largest_weight:.1%} of the total weight; at most "
            f"{limits.largest_weight:.1%} is allowed"
        )
        findings.append(Finding("largest_weight", sentence, vary))
    if not support.pareto_k <= limits.pareto_k:
        sentence = (
            f"a few episodes have very large weights, so the average is unreliable: the weights are heavy-tailed "
            f"(Pareto k = {support.pareto_k:.2f}, limit {limits.pareto_k:g})"
        )
        findings.append(Finding("pareto_k", sentence, vary))
    findings += _mean_weight(support, limits, visits, estimated, tested, closer)
    if findings and deterministic:
        findings[0] = findings[0]._replace(advice=f"{SAMPLED}; {findings[0].advice}")
    return findings


def _mean_weight(
    support: Support, limits: Limits, visits: bool, estimated: bool, tested: bool, closer: str
) -> list[Finding]:
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
        return [Finding("mean_weight", sentence, f"{check}; {SHORTER}")]
    sentence = f"the episodes' mean weight is {three_digits(mean)} (expected 1.00), {away} ({limit}): {wrong}"
    return [Finding("mean_weight", sentence, check)]


def propensity_findings(
    balance: Balance | None, declared: bool, estimated: bool, leaks: Sequence[str] = ()
) -> list[Finding]:
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
    return [Finding("propensities_fit", wrong, fix)]


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


def randomised_finding(balance: Balance | None) -> Finding:
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
    return Finding("randomised", sentence, DECLARE)


def excess_finding(
    share: float, excess: float, units: int, limits: Limits, *, estimated: bool, closer: str = CLOSER
) -> list[Finding]:
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
    return [Finding("unshown_share", sentence, f"{closer}; or {_varied(estimated)}")]


def habit_finding(habit: ActionCount, *, estimated: bool) -> list[Finding]:
    """Whether the policy takes an action more, or less, often per episode than nearly all logged episodes."""
    if not habit.beyond:
        return []
    sentence = (
        f"the policy takes action {habit.action} about {three_digits(habit.mean)} times per episode, logged episodes "
        f"{habit.low:.0f} to {habit.high:.0f} times: the log does not show the effect of so many, or so few"
    )
    return [Finding("habit", sentence, f"{_varied(estimated)}; {SHORTER}")]


def unshown_text(share: float) -> str:
    """The share of the policy's decisions that the log does not show; 1 where it shows none, or where it is unknown."""
    if share < 1.0:
        return f"the log does not show {share:.1%} of the policy's decisions"
    return "none of the policy's decisions is known to be in the log"


def unshown_finding(
    share: float, bound: Interval, side: str, episodes: int, *, estimated: bool, closer: str = CLOSER
) -> Finding:
    """The verdict fails if the decisions that the log does not show earn the worst (or best) return."""
    which, end = ("worst", bound.low) if side == "better" else ("best", bound.high)
    sentence = (
        f"{unshown_text(share)}; if they earned the {which} return in these {episodes:,} episodes, the "
        f"difference could be {three_digits(end, sign=True)}"
    )
    return Finding("unshown", sentence, f"{closer}; or {_varied(estimated)}")


def assumption_findings(
    history: Sequence[Dependence], drift: Sequence[Dependence], *, visits: bool, estimated: bool, horizon: int
) -> list[Finding]:
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
        findings.append(Finding("markov", sentence, advice))
    habits = failing(history, (LOGGER,)) if estimated else []
    if habits:
        sentence = f"propensities were estimated from the observation alone, but {habits[0].sentence}"
        findings.append(Finding("logger_history", sentence, f"{RECORDED}; or add {habits[0].cause} as a column"))
    changed = failing(drift, (LOGGER,)) if estimated else []
    if changed:
        sentence = f"the logger changed over time, and its estimated propensities miss this: {changed[0].sentence}"
        advice = f"{RECORDED}; or judge on a period in which the logger did not change"
        findings.append(Finding("drift", sentence, advice))
    return findings


def few_episodes_finding(
    episodes: float, limits: Limits, *, visits: bool, rare: bool, closer: str = CLOSER
) -> list[Finding]:
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
        return [Finding("carrying_episodes", sentence, f"{closer}; or collect more episodes")]
    advice = "collect more episodes, because rare rewards occur too seldom here"
    if not rare:
        advice = f"{closer}; or collect more episodes"
    sentence = f"{rests} whose return is unlike most others; at least {least:g} are needed"
    return [Finding("earning_episodes", sentence, advice)]


def heavy_tail_finding(tail: Tail, difference: Interval, limits: Limits) -> list[Finding]:
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
    return [Finding("heavy_tail", sentence, advice)]


def range_finding(estimate: float, low: float, high: float) -> list[Finding]:
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
    return [Finding("range", sentence, advice)]


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


def overlap_finding(overlap: Overlap | None, limits: Limits) -> list[Finding]:
    """Whether the policy learnt from the judged episodes."""
    if overlap is None or not overlap.exceeds(limits.overlap):
        return []
    about = "" if overlap.exact else "about "
    sentence = (
        f"the policy learnt from {about}{overlap.share:.1%} of the episodes that it is judged on; at most "
        f"{limits.overlap:.1%} is allowed, because memorised episodes look like skill"
    )
    return [Finding("overlap", sentence, "judge it on episodes that it never saw: hold some out, or use a new log")]


def chosen_finding(metric: str | None, overlap: Overlap | None, limits: Limits) -> list[Finding]:
    """Whether the judged episodes selected the policy among its checkpoints."""
    if metric is None or overlap is None or not overlap.exceeds(limits.overlap):
        return []
    sentence = f"the checkpoint was chosen by '{metric}' on these same episodes, so they cannot show that it is better"
    return [Finding("chosen", sentence, "judge it on other episodes, or judge the last checkpoint")]
