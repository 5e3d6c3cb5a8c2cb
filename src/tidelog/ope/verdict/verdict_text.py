"""The verdict as text, for a decision maker: reasons, a paragraph, and the assumptions that no test can rule out.

Letters: `E` episodes, `N` steps, `A` actions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.data.validation.balance import Balance
from tidelog.number_text import amount, three_digits
from tidelog.ope.assumptions.independence import ENDS, NEXT, REWARDS, failing
from tidelog.ope.assumptions.partial_identification import extreme_returns, unusual_action_count
from tidelog.ope.estimators.risk import RULE_OF_THREE
from tidelog.ope.estimators.sequential import returns
from tidelog.ope.evidence.propensities import Fit
from tidelog.ope.evidence.propensity_file import FilePropensities
from tidelog.ope.verdict.checks import Finding, unshown_text
from tidelog.ope.verdict.decide import IF_RANDOMISED, Case, Outcome
from tidelog.ope.verdict.results import NEXT_STEP, OVERLAP_UNKNOWN, Decision, percent
from tidelog.policies.statistics import Interval
from tidelog.runtime.way_of_acting import first_decisions

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


def paragraph(decision: Decision, findings: Sequence[Finding], facts: VerdictFacts) -> str:
    """Paragraph with the comparison, its result, its reliability and the next step."""
    decisions = f" ({facts.steps:,} decisions)" if facts.steps != facts.episodes else ""
    part = "" if facts.first_steps is None else f"the {first_decisions(facts.first_steps)} of "
    comparison = f"The policy was compared with the logger on {part}{facts.episodes:,} recorded episodes{decisions}."
    if facts.first_steps is not None:
        comparison += f" {_sentence(later(facts.first_steps, facts.left_out, facts.steps))}."
    parts = [comparison, _outcome(decision, findings, facts), *_reliability(decision, facts)]
    advice = _next(decision, findings, facts)
    return " ".join(part for part in parts if part) + (f"{NEXT_STEP}{'; '.join(advice)}." if advice else "")


def reasons(decision: Decision, findings: Sequence[Finding], facts: VerdictFacts) -> tuple[str, ...]:
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


def _outcome(decision: Decision, findings: Sequence[Finding], facts: VerdictFacts) -> str:
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


def _next(decision: Decision, findings: Sequence[Finding], facts: VerdictFacts) -> list[str]:
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


def _sentences(findings: Sequence[Finding]) -> list[str]:
    return [f"{_sentence(finding.sentence)}." for finding in findings]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


FEWEST = 0.001  # smallest share of unshown decisions that is reported


def caveats(case: Case, outcome: Outcome) -> tuple[str, ...]:
    """Sentences without a full stop, the most important first; only those that concern this verdict."""
    if outcome.decision == "unsupported":
        return ()
    sentences = [*_unshown(case, outcome), *_markov(case), *_drift(case)]
    sentences += [] if outcome.decision == "no difference shown" else _rare_outcomes(case, outcome)
    return (*sentences, _assumptions(case, outcome))


def _unshown(case: Case, outcome: Outcome) -> list[str]:
    """Share of the policy's decisions that the log does not show, and the assumption about them."""
    share = outcome.unshown or 0.0
    if outcome.bound is None or share < FEWEST:
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


def _rare_outcomes(case: Case, outcome: Outcome) -> list[str]:
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


def _assumptions(case: Case, outcome: Outcome) -> str:
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
