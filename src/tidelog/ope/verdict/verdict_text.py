"""The verdict as text, for a decision maker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidelog.data.log import Log
from tidelog.ope.verdict.results import OVERLAP_UNKNOWN, Decision, percent
from tidelog.ope.verdict.support_checks import Finding
from tidelog.policies.statistics import Interval

HOW = {
    "counts": "by counting the logger's actions at equal observations",
    "network": "by a network that was trained to imitate the logger",
}


class VerdictFacts(NamedTuple):
    """Facts for the paragraph."""

    episodes: int
    steps: int
    level: float
    difference: Interval
    logger: Interval
    from_bc: Interval | None
    estimated_by: str | None  # how propensities were estimated, if they were
    overlap_known: bool
    notes: tuple[str, ...] = ()  # on the evidence
    tail: str = ""  # sentence if the worst episodes disagree with the mean
    caveats: tuple[str, ...] = ()  # assumptions of the answer, as sentences without a full stop


def paragraph(decision: Decision, findings: Sequence[Finding], facts: VerdictFacts) -> str:
    """Paragraph with the comparison, its result, its reliability and the next step."""
    parts = [_comparison(facts), _outcome(decision, findings, facts), *_reliability(decision, facts)]
    parts += [f"Next: {_listed(advice)}." for advice in [_next(decision, findings, facts)] if advice]
    return " ".join(part for part in parts if part)


def reasons(decision: Decision, findings: Sequence[Finding], facts: VerdictFacts) -> tuple[str, ...]:
    """Reasons, one sentence each, the deciding one first; then the assumptions."""
    assumed = facts.caveats if facts.overlap_known else (*facts.caveats, OVERLAP_UNKNOWN)
    if findings:
        return (*(finding.sentence for finding in findings), *assumed)
    where = {"better": "above 0", "worse": "below 0", "no difference shown": "on both sides of 0"}[decision]
    return (f"the {percent(facts.level)} interval of the difference, {_span(facts.difference)}, lies {where}", *assumed)


def estimand(log: Log, discount: float, sample: bool, bandwidth: float | None) -> str:
    """Description of the estimated quantity."""
    lengths = np.diff(log.starts)
    cut = int(np.asarray(log.truncated)[log.starts[1:] - 1].sum())
    what = "the sum of an episode's rewards" if discount == 1.0 else f"the sum of rewards discounted by {discount:g}"
    until = (
        "from its one decision" if lengths.max() == 1 else f"up to its recorded end ({lengths.max():,} steps at most)"
    )
    after = f"; {cut:,} episodes were cut off, and rewards after that are not counted" if cut else ""
    acts = "samples its actions" if sample else "always takes its most likely action"
    noise = f", with noise of {bandwidth:g} of half of each action's range" if bandwidth is not None else ""
    return f"mean of {what} {until}{after}; the policy {acts}{noise}"


def _comparison(facts: VerdictFacts) -> str:
    decisions = f" ({facts.steps:,} decisions)" if facts.steps != facts.episodes else ""
    return f"The policy was compared with the logger on {facts.episodes:,} recorded episodes{decisions}."


def _outcome(decision: Decision, findings: Sequence[Finding], facts: VerdictFacts) -> str:
    if decision == "unsupported":
        first, more = findings[0].sentence, len(findings) - 1
        rest = "" if not more else f" (and {more} more reason{'s' if more > 1 else ''}, listed with the verdict)"
        return f"The log cannot show how well the policy would do: {first}{rest}. Any number for it would be a guess."
    sides = {"better": "more", "worse": "less"}
    mean = f"the logger's mean is {facts.logger.estimate:.3g}"
    number = f"{_span(facts.difference)} with {percent(facts.level)} confidence; {mean}"
    if decision == "no difference shown" and facts.difference == (0.0, 0.0, 0.0):
        return f"By every measure the policy does what the logger did ({mean})."
    if decision == "no difference shown":
        gap = f"The estimated difference is {facts.difference.estimate:+.3g} per episode ({number})"
        sentences = [finding.sentence for finding in findings]
        return f"{gap}. {_sentence(_listed(sentences))}." if sentences else f"{gap}, which chance alone can explain."
    return (
        f"The policy would earn about {abs(facts.difference.estimate):.3g} {sides[decision]} per episode than the "
        f"logger did (difference {number})."
    )


def _reliability(decision: Decision, facts: VerdictFacts) -> list[str]:
    sentences = []
    if decision == "better":
        sentences.append("Every check agrees with this.")
    if decision != "unsupported" and facts.from_bc is not None and math.isfinite(facts.from_bc.estimate):
        low, high = facts.from_bc.low, facts.from_bc.high
        than = "more than" if low > 0 else "less than" if high < 0 else "not clearly more or less than"
        sentences.append(
            f"This is {than} a copy of the logger (behaviour cloning) would earn (difference {_span(facts.from_bc)})."
        )
    sentences += [facts.tail] if facts.tail else []
    sentences += [f"{_sentence(note)}." for note in (*facts.notes, *facts.caveats)]
    if facts.estimated_by is not None:
        how = HOW[facts.estimated_by]
        sentences.append(f"The probabilities of the recorded decisions were estimated {how}, so this is less certain.")
    if not facts.overlap_known:
        sentences.append(f"{_sentence(OVERLAP_UNKNOWN)}.")
    return sentences


def _next(decision: Decision, findings: Sequence[Finding], facts: VerdictFacts) -> list[str]:
    advice = list(dict.fromkeys(part for finding in findings for part in finding.advice.split("; ") if part))[:3]
    if decision == "better":
        return ["try it on a small share of new cases alongside the current practice, and record the results"]
    if decision == "worse":
        return ["do not use it; train with other settings, and keep the current practice meanwhile"]
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


def _span(interval: Interval) -> str:
    return f"between {interval.low:+.3g} and {interval.high:+.3g}"


def _listed(sentences: Sequence[str]) -> str:
    return "; ".join(sentences)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
