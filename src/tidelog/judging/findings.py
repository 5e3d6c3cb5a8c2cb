"""What speaks against a verdict: each limit that is not kept, as a sentence with its number and a way out.

Letters: `E` episodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.acting.statistics import Interval
from tidelog.data.overlap import Overlap
from tidelog.judging.assumptions import ENDS, LOGGER, NEXT, REWARDS, Dependence, failing
from tidelog.judging.habits import Habit
from tidelog.judging.limits import Limits
from tidelog.judging.results import Support

SAMPLED = "judge the policy as it draws its actions (sample=True, --sample), which stays closer to the log"
RECORDED = "record how likely each decision was (the `propensity` column)"
CHECKED = "check how the propensities were recorded, against the logger's code"
SHORTER = "judge what comes early (discount=0.9, --discount 0.9): far ahead little can be said"
VARIED = "let the logger vary more, and record the probability of each decision"


LOST = 0.1  # of the mean weight: where actions that were hardly logged explain half of such a lack, it is they
UPPER_95 = 1.645  # standard errors to the one-sided upper 95 % confidence limit of a share
HARMLESS = 0.01  # a mean weight so close to 1 shifts nothing, however small its standard error


class Finding(NamedTuple):
    """One thing that was found: which rule it is about, what is the case, and what can be done."""

    rule: str
    sentence: str
    advice: str = ""


def support_findings(
    support: Support, limits: Limits, *, deterministic: bool = False, visits: bool = False, estimated: bool = False
) -> list[Finding]:
    """Every limit on support that is not kept, worst kind first.

    `deterministic` policies could be sampled instead; `visits` says whether the support is that of ratios of visits,
    `estimated` whether propensities were estimated.
    """
    found = [
        *_unsupported_actions(support, limits),
        *_few_episodes(support, limits),
        *_one_episode(support, limits),
        *_heavy_tail(support, limits),
        *_mean_weight(support, limits, visits, estimated),
    ]
    if found and deterministic:
        found[0] = found[0]._replace(advice=f"{SAMPLED}; {found[0].advice}")
    return found


def _unsupported_actions(support: Support, limits: Limits) -> list[Finding]:
    mass = support.unsupported_mass
    if mass is None or mass <= limits.unsupported_mass:
        return []
    sentence = (
        f"{mass:.1%} of what the policy does is hardly in the log (actions that the logger took with less than a tenth "
        f"of an even chance); at most {limits.unsupported_mass:.1%} may be"
    )
    return [Finding("unsupported_mass", sentence, VARIED)]


def _few_episodes(support: Support, limits: Limits) -> list[Finding]:
    size, needed = (
        support.effective_sample_size,
        max(limits.effective_episodes, limits.effective_share * support.episodes),
    )
    if size >= needed:
        return []
    sentence = (
        f"the log's {support.episodes:,} episodes weigh as much as {size:,.1f} would that the policy had made itself "
        f"(effective sample size); at least {needed:,.0f} are needed"
    )
    times = f"about {math.ceil(needed / size):,} times as many episodes" if size >= 1 else "many more episodes"
    if size < limits.effective_share * support.episodes:
        return [Finding("effective_sample_size", sentence, VARIED)]
    return [Finding("effective_sample_size", sentence, f"collect {times} of this kind")]


def _one_episode(support: Support, limits: Limits) -> list[Finding]:
    if support.largest_weight <= limits.largest_weight:
        return []
    sentence = (
        f"one single episode carries {support.largest_weight:.1%} of all weight; at most {limits.largest_weight:.1%} "
        "may rest on one"
    )
    return [Finding("largest_weight", sentence, VARIED)]


def _heavy_tail(support: Support, limits: Limits) -> list[Finding]:
    if support.pareto_k <= limits.pareto_k:
        return []
    sentence = (
        f"a few weights are so large that yet larger ones must be missing from the log (Pareto tail index "
        f"{support.pareto_k:.2f}, at most {limits.pareto_k:g})"
    )
    return [Finding("pareto_k", sentence, VARIED)]


def _mean_weight(support: Support, limits: Limits, visits: bool, estimated: bool) -> list[Finding]:
    """Estimated propensities are off by more than chance among episodes: by how much is the odds ratio's to limit."""
    mean, error = support.mean_weight, support.mean_weight_error
    off, odds = abs(mean - 1.0), limits.odds_ratio
    lost = mean < 1.0 - LOST and (support.unsupported_mass or 0.0) > 0.5 * off  # it went where the log never is
    forgiven = estimated and 1.0 / odds <= mean <= odds and not lost
    if off <= HARMLESS or off <= limits.mean_weight_errors * error or forgiven:
        return []
    chance = math.erfc(off / error / math.sqrt(2.0)) if error > 0 else 0.0
    away = f"{off / error:.1f} standard errors away" if error > 0 else "without any spread"
    limit = f"at most {limits.mean_weight_errors:g}"
    limit = f"{limit}, or a factor of {odds:g} where propensities are estimated" if estimated else limit
    check = RECORDED if estimated else CHECKED
    wrong = "the logger's probabilities are wrong, or the policy does what the logger never did"
    wrong += f", or this is chance (p = {chance:.2g})" if chance >= 0.001 else ""
    if visits:
        sentence = (
            f"by ratios of visits each of the policy's episodes comes to {mean:.3g} ends where 1 is right, {away} "
            f"({limit}): over up to {support.horizon:,} decisions small errors in each probability add up, "
            f"{wrong}"
        )
        return [Finding("mean_weight", sentence, f"{check}; {SHORTER}")]
    sentence = f"the episodes' mean weight is {mean:.3g} where 1 is right, {away} ({limit}): {wrong}"
    return [Finding("mean_weight", sentence, check)]


def excess_finding(excess: float, units: int, limits: Limits) -> list[Finding]:
    """Whether the upper confidence limit of the share of unshown decisions exceeds the limit.

    `excess` is the share beyond the logger's own rare actions, `units` the number of episodes, or of clusters.
    """
    high = min(excess + UPPER_95 * math.sqrt(excess * (1.0 - excess) / units), 1.0)
    if high <= limits.unshown_share:
        return []
    sentence = (
        f"the log does not show {excess:.1%} of the policy's decisions (upper 95% limit {high:.1%}, without the share "
        f"of the logger's own rare actions); the limit is {limits.unshown_share:.1%}"
    )
    return [Finding("unshown_share", sentence, f"{VARIED}; keep the policy closer to the log")]


def habit_finding(habit: Habit) -> list[Finding]:
    """Whether the policy takes an action so often in an episode that hardly any logged episode shows it."""
    if not habit.beyond:
        return []
    sentence = (
        f"the policy takes action {habit.action} about {habit.mean:.3g} times an episode, logged episodes "
        f"{habit.low:.0f} to {habit.high:.0f} times: the log does not show what so many, or so few, lead to"
    )
    return [Finding("habit", sentence, f"{VARIED}; {SHORTER}")]


def unshown_finding(share: float, bound: Interval, side: str, episodes: int) -> Finding:
    """The verdict does not survive the worst (or best) return for what the log does not show the logger doing."""
    which, end = ("worst", bound.low) if side == "better" else ("best", bound.high)
    much = f"{share:.1%} of what the policy does" if share < 1.0 else "what the policy does"
    sentence = (
        f"the log does not show the logger doing {much}; if that earned the {which} return in these {episodes:,} "
        f"episodes, the difference could be {end:+.3g}"
    )
    return Finding("unshown", sentence, f"{VARIED}; keep the policy closer to the log (a smaller threshold or weight)")


def assumption_findings(
    history: Sequence[Dependence], drift: Sequence[Dependence], *, visits: bool, estimated: bool, horizon: int
) -> list[Finding]:
    """Assumptions of the deciding estimator that the log contradicts.

    `visits`: it counts visits to states, so an observation must be a Markov state. `estimated`: propensities were
    estimated from the observation (and the time), so the logger must have used nothing else.
    """
    found = []
    past = failing(history, (REWARDS, NEXT, ENDS)) if visits else []
    if past:
        sentence = (
            f"episodes of up to {horizon:,} decisions can be judged only if an observation tells all that matters "
            f"(a Markov state), and it does not: {past[0].sentence}"
        )
        advice = f"add {past[0].cause} to the observation as a column, train again and judge again; {SHORTER}"
        found.append(Finding("markov", sentence, advice))
    habits = failing(history, (LOGGER,)) if estimated else []
    if habits:
        sentence = f"propensities were estimated from the observation alone, and {habits[0].sentence}"
        found.append(Finding("logger_history", sentence, f"{RECORDED}; or add {habits[0].cause} as a column"))
    changed = failing(drift, (LOGGER,)) if estimated else []
    if changed:
        sentence = f"the logger changed over time in a way that its estimated propensities miss: {changed[0].sentence}"
        found.append(Finding("drift", sentence, f"{RECORDED}; or judge on a period in which the logger did not change"))
    return found


def few_episodes_finding(episodes: float, limits: Limits, *, visits: bool) -> list[Finding]:
    """Whether enough episodes carry the difference; `visits`: whether ratios of visits decide.

    Products of ratios are short of episodes where rewards are rare, ratios of visits where states are. The latter need
    more episodes, because no return of the log bounds what they estimate.
    """
    least = limits.carrying_episodes if visits else limits.earning_episodes
    if not episodes < least:
        return []
    rests = f"the difference rests on about {episodes:.1f} episodes"
    if visits:
        sentence = f"{rests}, because the policy often comes to states that the log hardly knows; {least:g} are needed"
        return [Finding("carrying_episodes", sentence, "judge a policy closer to the logger, or collect more episodes")]
    sentence = f"{rests} that earned something else than most; {least:g} are needed"
    return [Finding("earning_episodes", sentence, "collect more episodes, so that rare rewards come often enough")]


def range_finding(estimate: float, low: float, high: float) -> list[Finding]:
    """Whether the policy's estimated mean return lies among the returns of the log."""
    if low <= estimate <= high:
        return []
    side, name, end = ("highest", "highest_return", high) if estimate > high else ("lowest", "lowest_return", low)
    sentence = (
        f"the policy's estimated mean return, {estimate:.4g}, is beyond the {side} return of any episode of the log, "
        f"{end:.4g}: the estimate is not credible"
    )
    advice = f"judge a policy closer to the logger; where such returns are possible, set Limits({name}=...)"
    return [Finding("range", sentence, advice)]


def overlap_finding(overlap: Overlap | None, limits: Limits) -> list[Finding]:
    """Whether the policy learnt from the episodes that it is judged on."""
    if overlap is None or not overlap.exceeds(limits.overlap):
        return []
    about = "" if overlap.exact else "about "
    sentence = (
        f"the policy learnt from {about}{overlap.share:.1%} of the episodes that it is judged on; at most "
        f"{limits.overlap:.1%} may be: what it learnt by heart would look like skill"
    )
    return [Finding("overlap", sentence, "judge it on episodes that it never saw: hold some out, or bring a new log")]


def chosen_finding(metric: str | None, overlap: Overlap | None, limits: Limits) -> list[Finding]:
    """Whether these very episodes picked the policy among its checkpoints."""
    if metric is None or overlap is None or not overlap.exceeds(limits.overlap):
        return []
    sentence = (
        f"the checkpoint was chosen by '{metric}' on these very episodes: they cannot also show that it is better"
    )
    return [Finding("chosen", sentence, "judge it on other episodes, or judge the last checkpoint")]
