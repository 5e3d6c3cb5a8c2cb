"""The words of a verdict: sentences and advice of its findings, reasons, paragraph, notes and caveats.

Everything that a verdict says stands here, for a decision maker; `decide` has the numbers and the rules. No text is
read back: what follows from a finding follows from its name and numbers.

Letters: `E` episodes, `N` steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog._text import amount, three_digits, with_ends
from tidelog.data.checks import balance_sentence as predicted
from tidelog.data.dependence import Balance
from tidelog.data.log import Log
from tidelog.ope.assumptions import (
    ENDS,
    NEXT,
    REWARDS,
    extreme_returns,
    failing,
    unusual_action_count,
)
from tidelog.ope.decide import (
    DEFAULTED,
    LATE,
    YOUNG,
    Assessment,
    JudgeQuestion,
    LookResult,
    RuleFinding,
)
from tidelog.ope.estimators import episode_weights, is_possible, returns
from tidelog.ope.evidence import atoms_of
from tidelog.ope.missing_rewards import HARDLY
from tidelog.ope.policies import EstimatorPolicy
from tidelog.ope.policy_evidence import IMPOSSIBLE, PolicyEvidence
from tidelog.ope.propensities import FilePropensities, Fit
from tidelog.ope.risk import RULE_OF_THREE, Risk
from tidelog.ope.verdict import (
    CAVEAT,
    IF_RANDOMISED,
    OVERLAP_UNKNOWN,
    GroupDifference,
    PlanLine,
    Verdict,
    groups_sentences,
    percent,
)
from tidelog.runtime.way_of_acting import first_decisions
from tidelog.types import Continuous

SAMPLED = "judge the policy with sampled actions (sample=True, --sample), which stays closer to the log"
RECORDED = "record the probability of each decision (the `propensity` column)"
CHECKED = "check the propensity column against the behaviour policy's code"
NOISE = "judge it with small noise added to its actions (bandwidth=0.2, --bandwidth 0.2)"
SHORTER = (
    "give less weight to late rewards, about which the log says little (discount=0.9, --discount 0.9): this asks "
    "another question, the value of early rewards, and is another look at these episodes, with a wider interval"
)
VARY = "let the behaviour policy vary its decisions more"
VARIED = f"{VARY}, and record the probability of each decision"
CLOSER = "judge a policy that stays closer to the behaviour policy's decisions"
NOT_CLOSER = (
    "a policy closer to the behaviour policy does not help, because even a copy of it (behaviour cloning) breaks a "
    "limit on support: the log is too small for its states and actions, or the behaviour policy changed while it "
    "recorded. Judge on more episodes, of one behaviour policy"
)
UNKNOWN_PROPENSITIES = "the probabilities of the recorded decisions are unknown, and cannot be estimated"


class FindingText(NamedTuple):
    """A finding in words."""

    sentence: str
    advice: tuple[str, ...] = ()  # what to do, the best first; or one of the others


def words(finding: RuleFinding, a: Assessment) -> FindingText:
    """The sentence of a finding, without a full stop, and the advice."""
    said = WORDS[finding.rule](a, **finding.numbers)
    first: list[str] = []
    if finding.first_steps is not None:
        steps = finding.first_steps
        part = "the first decision" if steps == 1 else f"only the first {steps} decisions"
        first.append(
            f"judge {part} of each episode, which the log can weigh and which says nothing about later ones "
            f"(first_steps={steps}, --first-steps {steps})"
        )
    first += [SAMPLED] if finding.sampled else []
    return said._replace(advice=(*first, *said.advice))


# Preconditions.


def _episodes(a: Assessment, count: int, needed: int, in_clusters: bool) -> FindingText:
    one, several = ("cluster", "clusters of episodes") if in_clusters else ("episode", "episodes")
    units = f"{one} is" if count == 1 else f"{several} are"
    sentence = f"{count} {units} too few; at least {needed:,} are needed"
    if not in_clusters:
        return FindingText(sentence, ("judge it on more episodes: hold out a larger share, or use a larger log",))
    more = "judge it on more clusters: hold out a larger share, or use a log with more of them"
    apart = "leave `cluster` out of the mapping only if episodes of one cluster do not affect one another"
    return FindingText(sentence, (more, apart))


def _density(a: Assessment, sample: bool, known: bool, with_cut: bool = False, parts: bool = False) -> FindingText:
    sentence = "this policy has no density: it cannot compute the probability of an action"
    if not sample:
        sentence = "a deterministic continuous action has no probability: no logged action is exactly equal to it"
    return FindingText(sentence, () if with_cut else _with_density(sample, known, parts))


def _with_density(sample: bool, known: bool, parts: bool) -> tuple[str, ...]:
    if parts:  # noise for some parts of an action is not offered
        has_one = "judge a policy whose continuous parts have a density (actor_head='gaussian', epsilon=None)"
        return (SAMPLED,) if known and not sample else (has_one,)
    return (SAMPLED, f"or {NOISE}") if known and not sample else (NOISE,)


def _cut_actions(a: Assessment, share: float, density: RuleFinding | None = None) -> FindingText:
    sentence = (
        f"{share:.1%} of the logged actions lie exactly on a bound: they were clipped there, and the density of an "
        "action before clipping is not the probability of the bound"
    )
    wider = "record each action before clipping, with wider bounds"
    levels = "or round the actions to a few levels and judge them as discrete actions"
    if density is not None:
        numbers = density.numbers
        ways = _with_density(numbers["sample"], numbers["known"], numbers.get("parts", False))
        wider += f", and then {', '.join(ways)}"
    return FindingText(sentence, (wider, levels))


def _atoms(
    a: Assessment,
    share: float,
    values: NDArray[Any] | None = None,
    of: str = "",
    off: int = 0,
    needed: int = 0,
) -> FindingText:
    if values is None:
        return FindingText(
            f"{share:.1%} of the logged actions are {of}, and the policy never takes exactly these: other "
            f"actions are in {off:,} rows, at least {needed:,} are needed",
            ("judge a policy that chooses among these values, as discrete actions (actions=)",),
        )
    shown = ", ".join(f"{one:.4g}" for one in values[:3]) + (", ..." if len(values) > 3 else "")
    sentence = (
        f"{share:.1%} of the logged actions are exactly {shown}: such a value has a probability and "
        "no density, and the recorded propensities are taken for densities"
    )
    declared = (
        f"if they are probabilities there and densities elsewhere, declare it (atoms = [{shown}] in the mapping or in "
        "Log.from_arrays)"
    )
    return FindingText(sentence, (declared, "or estimate them (propensities='estimated', --propensities estimated)"))


# Advice on what to judge instead.


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _unshown_text(share: float) -> str:
    """The share of the policy's decisions that the log does not show; 1 where it shows none, or where it is unknown."""
    if share < 1.0:
        return f"the log does not show {share:.1%} of the policy's decisions"
    return "none of the policy's decisions is known to be in the log"


def closer_advice(policy: Any) -> str:
    """Advice to train the policy closer to the behaviour policy, by the hyper-parameter that does this."""
    algorithm = getattr(policy, "algorithm", None)
    for field in dataclasses.fields(algorithm) if dataclasses.is_dataclass(algorithm) else ():
        role, value, flag = field.metadata.get("role"), getattr(algorithm, field.name), _flag(field.name)
        if role == "inverse temperature" and value > 0:
            change, other = "lower", value / 3
        elif role == "support threshold" and value < 1:
            change, other = "raise", value + (1.0 - value) / 3
        else:
            continue
        return f"train it closer to the behaviour policy: {change} {field.name}, now {value:g} ({flag} {other:.2g})"
    return CLOSER


def _closer(a: Assessment) -> str:
    """How to train the policy closer to the behaviour policy, unless even a copy of that breaks a limit on support."""
    return closer_advice(a.policy) if a.copy_has_support else NOT_CLOSER


def _varied(a: Assessment) -> str:
    """Advice for a log that shows too little; probabilities that are recorded need not be asked for."""
    return VARIED if a.estimated else VARY


def _closer_or_varied(a: Assessment) -> tuple[str, str]:
    return _closer(a), f"or {_varied(a)}"


# What makes a verdict unsupported.


def _range(a: Assessment, estimate: float, low: float, high: float) -> FindingText:
    side, word, end = ("highest", "above", high) if estimate > high else ("lowest", "below", low)
    name = f"{side}_return"
    shown, limit = three_digits(estimate), three_digits(end)
    if shown == limit:
        shown, limit = f"{estimate:.7g}", f"{end:.7g}"
    sentence = (
        f"the estimated mean return of the policy, {shown}, is {word} the {side} return of any episode in the log, "
        f"{limit}: the estimate is not credible"
    )
    possible = f"if such returns are possible, set Limits({name}=...) ({_flag(name)})"
    return FindingText(sentence, ("judge a policy closer to the behaviour policy", possible))


def _propensities_fit(a: Assessment, balance: Balance) -> FindingText:
    declared = a.basis.behavior_policy.propensities.declared is not None
    what = "declared" if declared else "recorded"
    sentence = f"the {what} probabilities of the decisions do not fit the logged actions: {predicted(balance, what)}"
    advice: tuple[str, ...] = (CHECKED,)
    if declared:
        advice = ("correct the declaration", "`tidelog log check` says how")
    if any(one.name in a.leaks for one in balance.named):  # the first cause
        sentence += f"; {leak_sentence(a.leaks)}"
        advice = (f"take {listed(a.leaks)} out of the observations, unless known before the decision, and train again",)
    return FindingText(sentence, advice)


def leak_sentence(leaks: Sequence[str]) -> str:
    """That columns of the observation may be outcomes of the decision; empty without any."""
    if len(leaks) == 1:
        return f"{listed(leaks)} looks like an outcome of the decision (`tidelog log check` says why)"
    return f"{listed(leaks)} look like outcomes of the decision (`tidelog log check` says why)" if leaks else ""


def listed(names: Sequence[str]) -> str:
    """Names of columns in a sentence."""
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _mean_weight(a: Assessment, support: Any, most: float, lost: bool, visits: bool) -> FindingText:
    mean, error = support.mean_weight, support.mean_weight_error
    off = abs(mean - 1.0)
    chance = math.erfc(off / error / math.sqrt(2.0)) if error > 0 else 0.0
    away = f"{off / error:.1f} standard errors away" if error > 0 else "with a standard error of 0"
    limit = f"at most {most:g}"
    if a.estimated:
        limit = f"{limit}, or a factor of {a.limits.odds_ratio:g} where propensities are estimated"
    check = RECORDED if a.estimated else CHECKED
    wrong = "the behaviour policy's probabilities are wrong, or the policy takes actions that it never took"
    if lost:
        wrong = f"{support.unsupported_mass:.1%} of the policy's actions are hardly in the log"
        check = _closer(a)
    wrong += f", or this is chance (p = {chance:.2g})" if chance >= 0.001 else ""
    if visits:
        sentence = (
            f"occupancy-weighted terminations average {three_digits(mean)} (expected 1.00), {away} ({limit}): small "
            f"errors in each probability add up over up to {support.horizon:,} decisions, or {wrong}"
        )
        return FindingText(sentence, (check, SHORTER))
    return FindingText(
        f"the episodes' mean weight is {three_digits(mean)} (expected 1.00), {away} ({limit}): {wrong}", (check,)
    )


def _heavy_tail(a: Assessment, tail: Any) -> FindingText:
    side, most, name = ("above", "highest", "highest_return") if tail.high else ("below", "lowest", "lowest_return")
    bound = a.limits.highest_return if tail.high else a.limits.lowest_return
    decisions = "the policy leaves" if tail.left else "the policy takes more often"
    advice: tuple[str, ...] = ("judge on many more episodes",)
    if bound is None:
        rest = "a log of this size does not show how much of this tail it lacks"
        known = f"state the {most} possible return of an episode, if it is known (Limits({name}=...), {_flag(name)})"
        advice = (known, *advice)
    else:
        rest = (
            f"with returns of up to {three_digits(bound)} a log of this size may lack {three_digits(tail.missing)} per "
            "episode of this tail"
        )
    sentence = (
        f"the difference rests on decisions that {decisions} and whose returns are heavy-tailed {side} (Pareto k = "
        f"{tail.shape:.2f}; above 0.5 they have no variance): the {most}, "
        f"{three_digits(tail.extreme)}, has {tail.share:.1%} of their sum, and {rest}"
    )
    return FindingText(sentence, advice)


def _together(a: Assessment) -> FindingText:
    costs = ", ".join(f"{name} ({three_digits(cost)})" for name, cost in a.costs.items())
    sentence = (
        f"each of these alone leaves the difference on its side of 0, and all together may not: {costs}; then it could "
        f"be {three_digits(a.near_end(a.all_at_once), sign=True)}"
    )
    advice = {
        "unshown decisions": _closer(a),
        "unknown rewards": "record the unknown rewards",
        "an unrecorded cause": RECORDED,
        "heavy tails": "state the possible returns of an episode, if they are known (Limits(lowest_return=..., "
        f"highest_return=...), {_flag('lowest_return')}, {_flag('highest_return')})",
    }
    return FindingText(sentence, tuple(advice[name] for name in a.costs))


WORDS: dict[str, Callable[..., FindingText]] = {
    "episodes": _episodes,
    "rewards": lambda a, earned: FindingText(
        f"every episode earned exactly {earned:.6g}, so this log cannot show which decisions are better",
        ("check that the reward column is the right one",),
    ),
    "density": _density,
    "cut_actions": _cut_actions,
    "atoms": _atoms,
    "propensities": lambda a, several: FindingText(
        f"{UNKNOWN_PROPENSITIES} for several simultaneous choices"
        if several
        else f"{UNKNOWN_PROPENSITIES}: the behaviour policy always chose the same value of at least one action",
        (RECORDED if several else VARIED,),
    ),
    "overlap": lambda a, overlap: FindingText(
        f"the policy learnt from {'' if overlap.exact else 'about '}{overlap.share:.1%} of the episodes that it is "
        f"judged on; at most {a.limits.overlap:.1%} is allowed, because memorised episodes look like skill",
        ("judge it on episodes that it never saw: hold some out, or use a new log",),
    ),
    "horizon": lambda a: FindingText(
        f"episodes have up to {a.evidence.horizon:,} decisions: products of probabilities carry no information "
        f"beyond {a.limits.horizon}, and how often the policy visits each state cannot be estimated here",
        (_closer(a),),
    ),
    "model": lambda a: FindingText(
        "there is no model of action values (model='none' was set, or no model supports such actions)",
        ("remove model='none' if it was set",),
    ),
    "weight": lambda a: FindingText(
        "at some step no recorded episode agrees with the policy's decisions so far", (_closer(a),)
    ),
    "range": _range,
    "markov": lambda a, test: FindingText(
        f"episodes of up to {a.evidence.horizon:,} decisions can be judged only if an observation contains everything "
        f"that matters (a Markov state), but it does not: {test.sentence}",
        (f"add {test.cause} to the observation as a column, train again and judge again", SHORTER),
    ),
    "behavior_history": lambda a, test: FindingText(
        f"propensities were estimated from the observation alone, but {test.sentence}",
        (RECORDED, f"or add {test.cause} as a column"),
    ),
    "drift": lambda a, test: FindingText(
        f"the behaviour policy changed over time, and its estimated propensities miss this: {test.sentence}",
        (RECORDED, "or judge on a period in which the behaviour policy did not change"),
    ),
    "propensities_fit": _propensities_fit,
    "habit": lambda a, habit: FindingText(
        f"the policy takes action {habit.action} about {three_digits(habit.mean)} times per episode, logged episodes "
        f"{habit.low:.0f} to {habit.high:.0f} times: the log does not show the effect of so many, or so few",
        (_varied(a), SHORTER),
    ),
    "unsupported_mass": lambda a, support, needed: FindingText(
        f"{support.unsupported_mass:.1%} of the policy's actions are hardly in the log (the behaviour policy took them "
        f"with less than a tenth of the probability of a uniform choice); at most {a.limits.unsupported_mass:.1%} is "
        "allowed",
        _closer_or_varied(a),
    ),
    "effective_sample_size": lambda a, support, needed: FindingText(
        "the log has too little information about this policy: effective sample size "
        f"{support.effective_sample_size:,.1f} of {support.episodes:,} episodes; at least {needed:,.0f} are needed",
        _closer_or_varied(a)
        if support.effective_sample_size < a.limits.effective_share * support.episodes
        else (_closer(a),),
    ),
    "largest_weight": lambda a, support, needed: FindingText(
        f"a single episode has {support.largest_weight:.1%} of the total weight; at most "
        f"{a.limits.largest_weight:.1%} is allowed",
        _closer_or_varied(a),
    ),
    "pareto_k": lambda a, support, needed: FindingText(
        f"a few episodes have very large weights, so the average is unreliable: the weights are heavy-tailed "
        f"(Pareto k = {support.pareto_k:.2f}, limit {a.limits.pareto_k:g})",
        _closer_or_varied(a),
    ),
    "mean_weight": _mean_weight,
    "carrying_episodes": lambda a, episodes, least, rare: FindingText(
        f"the difference rests on about {episodes:.1f} episodes, because the policy often visits states that the log "
        f"rarely contains; at least {least:g} are needed",
        (_closer(a),),
    ),
    "earning_episodes": lambda a, episodes, least, rare: FindingText(
        f"the difference rests on about {episodes:.1f} episodes whose return is unlike most others; at least {least:g} "
        "are needed",
        ("judge on more episodes, because rare rewards occur too seldom here" if rare else _closer(a),),
    ),
    "unshown_share": lambda a, excess, high: FindingText(
        f"the log does not show {a.unshown:.1%} of the policy's decisions, and {a.unshown - excess:.1%} of the "
        f"behaviour policy's own (rare actions): {excess:.1%} more (upper 95% limit {high:.1%}); the limit is "
        f"{a.limits.unshown_share:.1%}",
        _closer_or_varied(a),
    ),
    "contradiction": lambda a, name, other: FindingText(
        f"the estimators contradict each other: '{a.deciding}' finds the policy {a.side}, '{name}' finds it "
        f"{'worse' if a.side == 'better' else 'better'} ({three_digits(other.low, sign=True)} to "
        f"{three_digits(other.high, sign=True)})",
        ("look at the table of estimates, and judge on more episodes",),
    ),
    "unshown": lambda a: FindingText(
        f"{_unshown_text(a.unshown)}; if they earned the {'worst' if a.side == 'better' else 'best'} return in these "
        f"{a.support.episodes:,} episodes, the difference could be {three_digits(a.near_end(a.bound), sign=True)}",
        _closer_or_varied(a),
    ),
    "unknown_rewards": lambda a, said: FindingText(
        f"{said}; if they are those that {'lower' if a.side == 'better' else 'raise'} it most, the difference could be "
        f"{three_digits(a.near_end(a.missing_bound), sign=True)}",
        (
            "record these rewards",
            "if only the observation and the action decide which rewards are known, as by design, state it "
            '(missing_reward = "at random" in the mapping); if they lie in a narrower range, set '
            "Limits(lowest_return=..., highest_return=...) (--lowest-return, --highest-return)",
        ),
    ),
    "late": lambda a, found: FindingText(
        found, ("set reward_horizon in the mapping, the longest time after which a reward comes",)
    ),
    "hardly_known": lambda a, said, share: FindingText(
        f"{said}; {share:.1%} of the decisions have a reward that is known in less than {HARDLY:.0%} of "
        f"cases like them; at most {a.limits.unsupported_mass:.1%} is allowed",
        ("record the rewards after these decisions",),
    ),
    "known_weights": lambda a, said, support, needed: FindingText(
        f"{said}; the known ones say too little about this policy: effective sample size "
        f"{support.effective_sample_size:,.1f} of {support.episodes:,} episodes, at least {needed:,.0f} are needed; "
        f"the largest weight is {support.largest_weight:.1%} of all, at most {a.limits.largest_weight:.1%} is allowed",
        ("record more of the rewards", f"or {_closer(a)}"),
    ),
    "chosen": lambda a, metric: FindingText(
        f"the checkpoint was chosen by '{metric}' on these same episodes, so they cannot show that it is better",
        ("judge it on other episodes, or judge the last checkpoint",),
    ),
    "sensitivity": lambda a, low, holds: FindingText(
        "the behaviour policy's probabilities were estimated; if something that is not in the log changed one "
        f"decision of each episode by odds of {a.limits.odds_ratio:g}, the policy may not be better (the difference "
        f"could be {three_digits(low, sign=True)}); it is up to odds of {holds:.2f}",
        (f"{RECORDED}, which removes this doubt",),
    ),
    "heavy_tail": _heavy_tail,
    "together": _together,
    "randomised": lambda a, balance: FindingText(
        "the policy is better if nothing unrecorded decided who got what; the log has no propensities, and its "
        "decisions look as if they were drawn at random"
        + (
            ""
            if balance is None
            else f": no observation predicts them ({balance.p_text}), but where an action's share differs by less than "
            f"{balance.points} between two halves of the episodes, a log of this size may not show it"
        ),
        (
            'if decisions were drawn at random, say so (propensity = "shares" in the mapping, or --randomised) and '
            "judge again",
        ),
    ),
}


# Reasons and paragraph.


def with_words(verdict: Verdict, a: Assessment, question: JudgeQuestion, look: LookResult) -> Verdict:
    """The verdict with its reasons and its paragraph."""
    said = [words(one, a) for one in a.findings]
    read, leaks = question.propensities, leak_sentence(a.leaks)
    of_file = list[str]()
    if isinstance(read, FilePropensities):
        kind = "estimated by a model that is not known here" if read.estimated else "as recorded"
        others = f"; rows about other episodes: {read.unused:,}" if read.unused else ""
        of_file = [f"the probabilities of the recorded decisions were read from {read.file}, {kind}{others}"]
    if leaks and not any(leaks in one.sentence for one in said):
        of_file = [f"{leaks}: a policy does not know them in time, and then this verdict is void", *of_file]
    read_as = {one.check for one in question.log.report.problems}
    if DEFAULTED in read_as and not read_as & {YOUNG, LATE}:
        of_file = ["empty rewards count as a number, as the mapping states: none of them may still come", *of_file]
    widened, looser, of_weights = look_reasons(look), a.limits.looser(), list[str]()
    if a.policy_evidence is not None:
        concentrated = {"largest_weight", "effective_sample_size"} & {finding.rule for finding in a.findings}
        if concentrated and not a.visits:  # products of ratios
            log = question.log
            of_weights += dominating(log.episode_ids, np.diff(log.starts), episode_weights(a.evidence))
        names = [f"'{one.name}'" for one in a.estimates if not is_possible(one.estimate, a.evidence)]
        of_weights += [f"the estimate of {', '.join(names)} is {IMPOSSIBLE}: do not use it"] if names else []
    notes = (
        *verdict.context.get("notes", ()),
        *filter(None, [question.groups and question.groups.note]),
        *of_file,
        *question.dependence,
        *of_weights,
        *look_notes(look),
        *([f"limits are looser than the defaults: {', '.join(looser)}"] if looser else []),
    )
    assumed = caveats(a)
    why = (*reasons(verdict, said, assumed, question), *of_file, *widened)
    sentences = paragraph(verdict, a, said, (*notes, *assumed), question)
    step = next_step(verdict, said)
    repeated = {f"{_sentence(reason)}." for reason in why}
    return dataclasses.replace(
        verdict,
        reasons=why,
        outcome=" ".join(one for one in sentences if one not in repeated),
        next_step=step,
        paragraph=" ".join(filter(None, [*sentences, step])),
    )


def conditions(
    a: Assessment,
    question: JudgeQuestion,
    look: LookResult,
    overlap_unknown: bool,
    groups: Sequence[GroupDifference] = (),
) -> list[str]:
    """What the reader of a short form of the verdict has to know."""
    first, looser = question.first_steps, a.limits.looser()
    worse = [one for one in groups if one.decision == "worse"]
    by_group = groups_sentences(a.decision, worse, question.groups.column if worse else "", question.log.reward_unit)
    return [
        *(one[:1].lower() + one[1:].rstrip(".") for one in by_group),
        *([] if first is None else [f"of an episode, only the {first_decisions(first)} counted"]),
        *([CAVEAT] if overlap_unknown else []),
        *(["earlier verdicts on these episodes were not counted"] if look.look is None else []),
        *([] if look.own_file is None else [f"earlier verdicts were counted in {look.own_file.name} alone"]),
        *([f"limits looser than the defaults: {len(looser)}"] if looser else []),
    ]


def paragraph(
    verdict: Verdict, a: Assessment, said: Sequence[FindingText], notes: Sequence[str], question: JudgeQuestion
) -> list[str]:
    """Sentences: the comparison, its result, and its reliability."""
    steps, first = question.log.steps, question.first_steps
    decisions = f" ({steps:,} decisions)" if steps != verdict.episodes else ""
    part = "" if first is None else f"the {first_decisions(first)} of "
    parts = [
        f"The policy was compared with the behaviour policy on {part}{verdict.episodes:,} recorded episodes{decisions}."
    ]
    parts += [f"{_sentence(_later(question))}."] if first is not None else []
    return [
        *parts,
        *_outcome(verdict, [f"{_sentence(one.sentence)}." for one in said]),
        *filter(None, [verdict.ladder_sentence or (a.no_ladder and f"No part of it was judged: {a.no_ladder}.")]),
        *_reliability(verdict, a, notes),
    ]


SAME_POLICY = "keep what you have: only a policy that decides otherwise can be better"


def next_step(verdict: Verdict, said: Sequence[FindingText]) -> str:
    """What to do after the advice of the verdict, and what would let the log answer; empty if there is nothing."""
    advice = list(dict.fromkeys(one for finding in said for one in finding.advice))[:3]
    if verdict.safe is not None:  # and what would let the log judge the whole
        saved = "" if verdict.safe_policy is None else " (verdict.safe_policy)"
        part = f"deploy that part{saved} on a small share of new cases, and record what it decides"
        advice = [part, *(one if one.startswith("or ") else f"or {one}" for one in advice[:1])]
    elif verdict.decision == "better":
        advice = ["try it on a small share of new cases alongside the current practice, and record the results"]
    elif verdict.decision == "worse":
        advice = ["train with other settings, and keep the current practice meanwhile"]
    elif verdict.decision == "no difference shown" and not said:
        advice = [SAME_POLICY] if verdict.plan is None else []
    said_plan = "" if verdict.plan is None else f"Plan: {plan_sentence(verdict.plan, verdict.reward_unit)}."
    return " ".join(filter(None, [f"Next: {'; '.join(advice)}." if advice else "", said_plan]))


def reasons(
    verdict: Verdict, said: Sequence[FindingText], caveats: Sequence[str], question: JudgeQuestion
) -> tuple[str, ...]:
    """Explanations, one sentence each, the deciding one first; then the assumptions."""
    assumed = (*caveats, OVERLAP_UNKNOWN) if verdict.context["overlap_unknown"] else tuple(caveats)
    if question.first_steps is not None:
        assumed = (_later(question), *assumed)
    if said:
        return (*(one.sentence for one in said), *assumed)
    if verdict.difference == (0.0, 0.0, 0.0):
        return ("every weight is 1: the policy decides as the behaviour policy did", *assumed)
    where = {"better": "above 0", "worse": "below 0", "no difference shown": "on both sides of 0"}[verdict.decision]
    return (f"the {percent(verdict.level)} interval of the difference lies {where}", *assumed)


def _outcome(verdict: Verdict, findings: list[str]) -> list[str]:
    """What was found, in sentences; `findings` are those of the findings."""
    decision, unit, difference = verdict.decision, verdict.reward_unit, verdict.difference
    if decision == "unsupported":
        return ["Any number for it would be a guess.", *findings]
    first = verdict.first_steps
    per = "per episode" if first is None else f"in the {first_decisions(first)} of an episode"
    mean = f"the behaviour policy's mean is {amount(verdict.behavior_policy.estimate, unit)}"
    span = f"between {three_digits(difference.low, sign=True)} and {amount(difference.high, unit, sign=True)}"
    number = f"{span} with {percent(verdict.level)} confidence; {mean}"
    about = amount(abs(difference.estimate), unit)
    if decision == "no difference shown":
        if difference == (0.0, 0.0, 0.0):
            return [f"By every measure the policy does what the behaviour policy did ({mean})."]
        gap = f"The estimated difference is {amount(difference.estimate, unit, sign=True)} {per} ({number})"
        return [f"{gap}.", *findings] if findings else [f"{gap}, which chance alone can explain."]
    if decision == IF_RANDOMISED:
        condition = "If nothing unrecorded decided who got what, the policy would earn"
        return [f"{condition} about {about} more {per} than the behaviour policy did (difference {number}).", *findings]
    side = "more" if decision == "better" else "less"
    return [f"The policy would earn about {about} {side} {per} than the behaviour policy did (difference {number})."]


HOW = {
    "counts": "by counting the behaviour policy's actions at equal observations",
    "network": "by a network that was trained to imitate the behaviour policy",
    "trees": "by boosted trees that were trained to imitate the behaviour policy",
    "classifier": "by a classifier, {name}, that was trained to imitate the behaviour policy",
    "file": "elsewhere",
}


def _reliability(verdict: Verdict, a: Assessment, notes: Sequence[str]) -> list[str]:
    sentences = ["Every check agrees with this."] if verdict.decision == "better" else []
    sentences += verdict.groups_sentences
    tail = tail_sentence(verdict.decision, verdict.risk)
    sentences += [tail] if tail else []
    if a.missing is not None and a.missing.at_random and verdict.decision in ("better", "worse"):
        share = float(np.isnan(a.missing.reward).mean())
        sentences.append(f"It rests on the statement of the mapping that rewards ({share:.1%}) are missing at random.")
    sentences += [f"{_sentence(note)}." for note in notes]
    known = None if a.policy_evidence is None else a.policy_evidence.behavior_policy.propensities
    if known is not None and known.declared is not None:
        balance, test = a.basis.behavior_policy.balance, ""
        if balance is not None:
            test = (
                f"; the logged actions do not contradict this ({balance.p_text}; a difference of {balance.points} in "
                "an action's share between two halves of the episodes would probably have been noticed)"
            )
        sentences.append(f"The probabilities of the recorded decisions were {known.declared}{test}.")
    elif known is not None and known.by is not None and verdict.decision != IF_RANDOMISED:
        how = HOW[known.by].format(name=known.classifier)
        sentences.append(f"The probabilities of the recorded decisions were estimated {how}, so this is less certain.")
        sentences += [] if known.fit is None else [f"{_sentence(quality(known.fit, known.by))}."]
    if verdict.context["overlap_unknown"]:
        sentences.append(f"{_sentence(OVERLAP_UNKNOWN)}.")
    return sentences


def tail_sentence(decision: str, risk: Risk | None) -> str:
    """Sentence on the worst episodes if they disagree with the verdict on the mean; else empty."""
    is_better = decision in ("better", "better if randomised")
    if risk is None or not (is_better or decision == "no difference shown"):
        return ""
    difference = risk.cvar.difference
    mean = "The policy is better on average" if is_better else "No difference of means is shown"
    worst = f"its worst {100 * risk.alpha:.4g}% of episodes"
    earn = f"{worst} earn {with_ends(difference, risk.reward_unit, sign=True)} compared with the behaviour policy's"
    rounding = 1e-6 * max(abs(risk.lowest), abs(risk.highest))  # of returns, sums of numbers in 32 bits
    if difference.high < -rounding:
        return f"{mean}, but its bad episodes are worse: {earn}."
    if difference.low > rounding and not is_better:
        return f"{mean}, but its bad episodes are better: {earn}."
    if difference.estimate < -rounding and is_better:
        number = with_ends(difference, risk.reward_unit, sign=True)
        return f"{mean}, but {worst} may be worse: the difference there is {number}."
    return ""


def quality(fit: Fit, by: str) -> str:
    """How well estimated probabilities predict the logged decisions in episodes that their model never saw."""
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


def _later(question: JudgeQuestion) -> str:
    """What a verdict on the first steps says about the other ones."""
    left_out = question.whole.steps - question.log.steps
    return (
        f"{left_out:,} later decisions ({left_out / question.whole.steps:.1%} of all) and what follows from them are "
        f"in no number: the policy may be worse after the {first_decisions(question.first_steps or 0)}"
    )


EVENLY = "of decisions drawn evenly over the actions, each with its recorded probability"
SEQUENCE = "exploration cannot be planned from this log, because it leads to states that are not in it"


def plan_sentence(plan: PlanLine, unit: str | None) -> str:
    """What would let the log answer, without a full stop."""
    count = f"{round_up(plan.episodes or 0):,}"
    gain, chance = amount(plan.effect or 0.0, unit, sign=True), f"{plan.probability or 0.0:.0%}"
    said = {
        "episodes": f"about {count} new episodes would show a gain of {gain} with probability {chance}, if it is real; "
        "otherwise choose by cost",
        "enough": f"a gain of {gain} needs about {count} episodes to be shown with probability {chance}: these were "
        "enough, so choose by cost",
        "propensities": f"more episodes alone do not change this; with recorded probabilities about {count} would show "
        f"a gain of {gain} with probability {chance}",
        "support": f"about {count} episodes of this kind would have enough support",
        "exploration": "more episodes of this kind do not help; as many with a share of "
        f"{plan.share or 0.0:.0%} {EVENLY}, would",
        "sequence": f"more episodes of this kind do not help, and {SEQUENCE}",
        "none": "more episodes of this kind alone do not change this",
    }
    simulated = "; `tidelog plan` simulates this" if plan.kind in ("episodes", "propensities", "exploration") else ""
    return f"{said[plan.kind]}{simulated}"


def round_up(count: int) -> int:
    """A number of episodes with two significant digits, not below it."""
    unit = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // unit) * unit


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def estimand(
    lengths: NDArray[np.int64],
    cut: int,
    discount: float,
    sample: bool,
    bandwidth: float | None,
    first_steps: int | None = None,
    discount_unit: str | None = None,
) -> str:
    """Description of the estimated quantity; `lengths` [E] of the episodes, `cut` of them truncated."""
    per = "" if discount_unit is None else f" per {discount_unit}"
    what = "the sum of an episode's rewards"
    if discount != 1.0:
        what = f"the sum of rewards discounted by {discount:g}{per}"
    until = f"up to its recorded end ({lengths.max():,} steps at most)"
    ends = "1 episode was" if cut == 1 else f"{cut:,} episodes were"
    after = f"; {ends} cut off, and rewards after that are not counted" if cut else ""
    if lengths.max() == 1:
        until = "from its one decision"
    if first_steps is not None:
        until = f"over its {first_decisions(first_steps)}"
        after = "; an episode that ends before has fewer, and rewards after them are not counted"
    acts = "samples its actions" if sample else "always takes its most likely action"
    noise = f", with noise of {bandwidth:g} of half of each action's range" if bandwidth is not None else ""
    return f"mean of {what} {until}{after}; the policy {acts}{noise}"


UNSUPPORTED_RISK = "the verdict is unsupported: a log that cannot show the mean cannot show the worst episodes either"


def no_risk(a: Assessment) -> str | None:
    """Why a verdict has no distribution of returns; None if it can have one."""
    if a.decision == "unsupported":
        return UNSUPPORTED_RISK
    if a.missing is not None:
        return "some rewards are unknown, and the distribution of returns needs all of them"
    if a.visits:
        return (
            f"episodes have up to {a.evidence.horizon:,} decisions; the distribution of returns needs products of "
            f"ratios over whole episodes, which carry no information beyond {a.limits.horizon} decisions"
        )
    return None


# Notes on the evidence, on earlier looks, and on episodes that dominate.

WEAK = 0.5  # share of the networks' values below which the reader is told
DOMINATING = 3  # largest number of episodes that are named


def evidence_notes(found: PolicyEvidence, policy: Any, log: Log, sample: bool) -> tuple[str, ...]:
    """For the reader of the numbers: how the judged policy and the evidence differ from what was asked."""
    evidence, notes = found.policy, list[str]()
    if isinstance(policy, EstimatorPolicy):
        notes += policy.notes(log.transitions.observation, log.transitions.mask, sample)
    notes += ["the log's weights are not used: each episode counts once"] if log.weight is not None else []
    if found.bandwidth is not None:
        by = "by an unknown amount"
        if found.smoothing is not None:
            by = f"by {three_digits(found.smoothing, sign=True)} (model estimate)"
        notes.append(
            f"the deterministic policy is judged with noise of {found.bandwidth:g} half-ranges around its actions, "
            f"which changes its value {by}"
        )
    if found.value_share < WEAK:
        used = "not used" if found.value_share < 0.005 else f"used at {found.value_share:.0%} of their size"
        notes.append(
            f"the networks' values of actions are {used}: with more of them the difference from the behaviour policy "
            "would be less precise"
        )
    if isinstance(log.spec.action, Continuous) and found.bandwidth is None and not evidence.target.any():
        notes.append("a deterministic continuous action has no density. fix: set bandwidth=0.2, or sample=True")
    atoms = atoms_of(log)
    if atoms is not None:
        on = atoms.lie_on(np.asarray(log.action)).any(axis=1)
        recorded = "recorded, as declared" if log.atoms else "taken from the recorded propensities (not declared)"
        estimated = found.behavior_policy.propensities.estimated
        source = "estimated apart from the density of the others" if estimated else recorded
        never = "" if evidence.target[on].any() else "; the policy never takes exactly these, so they have no weight"
        notes.append(
            f"{on.mean():.1%} of the logged actions are {atoms.text}: the behaviour policy's probabilities of these "
            f"were {source}{never}"
        )
    if found.without_support:
        notes.append("values of actions were not modelled: the weights alone show that the log cannot judge it")
    return tuple(notes)


def earlier_looks(look: LookResult) -> str:
    """How earlier looks at these episodes made the interval wider; empty at the first look."""
    seen = look.look
    if seen is None or seen.number <= 1:
        return ""
    times = "once" if seen.before == 1 else f"{seen.before:,} times"
    different, results = seen.different_before, seen.policies_before
    policies = "one policy" if different == 1 else f"{different:,} policies"
    policies += f" ({results:,} results)" if results > different else ""
    return (
        f"these episodes were judged {times} before, with {policies}: the interval is "
        f"{look.widenings.max():.2g} times as long as at a first look, because it holds for "
        f"{percent(1.0 - look.error)} instead of {percent(look.level)} and for any policy that the earlier "
        "results led to (`tidelog judge --looks` lists them)"
    )


def look_reasons(look: LookResult) -> tuple[str, ...]:
    """Why the interval is wider than that of one policy at the first look."""
    together = ""
    if look.policies > 1:
        together = (
            f"{look.policies:,} policies were judged together: the intervals of all differences hold "
            f"simultaneously with {percent(1.0 - look.error)} confidence"
        )
    return tuple(filter(None, [earlier_looks(look), together]))


def look_notes(look: LookResult) -> list[str]:
    """Notes on the look, which follow the reasons for wider intervals."""
    sentences = [*look_reasons(look)]
    if look.look is None:
        return [*sentences, "the number of times these episodes were judged before is unknown (ledger=False)"]
    if look.own_file is not None:
        sentences.append(f"looks that are not in {look.own_file} are unknown and do not widen the interval")
    if look.look.elsewhere:
        sentences.append(
            f"{look.look.elsewhere:.1%} of these episodes were judged before as part of another set; the wider "
            "interval does not cover judging a growing log again and again until the verdict is favourable"
        )
    if not look.look.recorded:
        sentences.append("this look could not be recorded in any ledger: later verdicts will not count it")
    return sentences


def dominating(ids: NDArray[Any], lengths: NDArray[np.int64], weights: NDArray[np.float64]) -> list[str]:
    """A sentence that names the episodes with most of the weight [E], which may be a few long ones; else []."""
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
    sentence += f"; half of all episodes have at most {middle:,}"
    if lengths[first].min() > max(2 * middle, 1):
        sentence += "; the weight of an episode is a product over its decisions, so the longest have the largest"
    return [sentence]


# Caveats: assumptions that no test can rule out.

LEAST_SHARE = 0.001  # smallest share of unshown decisions that is reported


def caveats(a: Assessment) -> tuple[str, ...]:
    """Sentences without a full stop, the most important first; only those that concern this verdict."""
    if a.decision == "unsupported":
        return ()
    sentences = [*_missing(a), *_unshown(a), *_markov(a)]
    changed = failing(a.basis.behavior_policy.drift, (REWARDS,))
    if changed:
        when = f"rewards changed during the time of the log ({changed[0].sentence})"
        sentences.append(f"{when}: the answer is an average over that time")
    sentences += [] if a.decision == "no difference shown" else _rare_outcomes(a)
    units = "episodes" if a.evidence.clusters is None else "clusters"
    declared = a.basis.behavior_policy.propensities.declared is not None
    propensities = f"the {'declared' if declared else 'recorded'} propensities are right, "
    if a.decision == IF_RANDOMISED:
        propensities = "decisions were drawn with each action's share, "
    elif a.evidence.estimated:
        propensities = ""
    sentences.append(
        f"no log can confirm these assumptions of the answer: {propensities}nothing unrecorded affects both decisions "
        f"and rewards, observations were recorded before the decision, {units} are independent and do not affect one "
        "another, and no episodes are missing or cut off because of their outcome"
    )
    return tuple(sentences)


def _missing(a: Assessment) -> list[str]:
    """The unknown rewards, and the assumption about them."""
    if a.missing is None or any(finding.rule == "unknown_rewards" for finding in a.findings):
        return []
    weighed = f"{a.missing.sentence}; the estimate weighs each known one by how rarely such a reward is known"
    bound = a.missing_bound
    ends = "none" if bound is None else " to ".join(three_digits(end, sign=True) for end in (bound.low, bound.high))
    whatever = f"whatever the unknown ones are, from the lowest to the highest known (or stated) one: {ends}"
    if a.missing.at_random:
        return [
            f"{weighed}. The answer assumes, as the mapping states, that nothing but the observation and the action "
            f"decides which ones are known. Without this, the difference would be, {whatever}"
        ]
    if a.decision in ("better", "worse"):
        return [f"{weighed}. The verdict holds {whatever}"]
    return [f"{weighed}. The difference is, {whatever}"]


def _unshown(a: Assessment) -> list[str]:
    """Share of the policy's decisions that the log does not show, and the assumption about them."""
    share = a.unshown
    if a.bound is None or share < LEAST_SHARE:
        return []
    assumed = {}  # by the field of `Limits` that states one end of their returns
    for than, end, field, unless in (
        ("less than", "worst", "lowest_return", "worse"),
        ("more than", "best", "highest_return", "better"),
    ):
        if a.decision != unless:
            known = getattr(a.limits, field)
            limit = float(extreme_returns(a.evidence, end == "best")[0]) if known is None else known
            source = f"the {end} in the log" if known is None else f"the stated {field}"
            assumed[field] = f"{than} {three_digits(limit)} ({source})"
    unshown = _unshown_text(1.0 if a.evidence.supported is None else share)
    return [
        f"{unshown}, and the answer assumes that none of them returns {' or '.join(assumed.values())}; if one can, set "
        f"Limits({', '.join(f'{field}=...' for field in assumed)}) ({', '.join(map(_flag, assumed))})"
    ]


def _markov(a: Assessment) -> list[str]:
    """Whether an observation is a Markov state: result of the tests, and how far the policy leaves the log."""
    past = failing(a.basis.behavior_policy.history, (REWARDS, NEXT, ENDS))
    if a.deciding != "drl":
        names = "'fqe', 'mwl' and 'drl'"
        return [f"the observation is not a Markov state, so do not rely on {names}: {past[0].sentence}"] if past else []
    sentences = [
        "the answer assumes that the observation contains everything that affects later events (a Markov state); the "
        "tests on this log found no effect of the history of an episode, but they can miss weak effects"
    ]
    habit = unusual_action_count(a.evidence)
    if habit.outside:
        sentences.append(
            f"the policy takes action {habit.action} about {three_digits(habit.mean)} times per episode, logged "
            f"episodes {habit.low:.0f} to {habit.high:.0f} times: the effect of this is assumed, not observed"
        )
    return sentences


def _rare_outcomes(a: Assessment) -> list[str]:
    """Outcomes that are too rare for a log of this size to exclude them: under the policy, and where it is left.

    Both would make the difference smaller; each sentence tells the return from which such outcomes would undo it.
    """
    earned = returns(dataclasses.replace(a.evidence, reward=a.evidence.recorded_reward))
    worse, units = a.decision == "worse", float(a.evidence.units)
    effective = max(min(a.support.effective_sample_size, units), 1.0)
    behavior_policy, counted = a.behavior_policy.estimate, "episodes" if a.evidence.clusters is None else "clusters"
    left = f"which the policy would {'avoid' if worse else 'give up'}, "
    tails = (
        (worse, behavior_policy + a.difference.estimate, effective, "effective sample size", ""),
        (not worse, behavior_policy, units, counted, left),
    )
    sentences = []
    for high, mean, count, name, where in tails:
        than, what, sign = ("more", "rare gain", 1.0) if high else ("less", "rare harm", -1.0)
        chance, end = min(RULE_OF_THREE / count, 1.0), float(earned.max() if high else earned.min())
        undone = mean + sign * abs(a.difference.high if worse else a.difference.low) / chance
        known = a.limits.highest_return if high else a.limits.lowest_return
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
