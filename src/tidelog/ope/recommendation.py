"""Which of the judged policies to use: a learnt one that beats the simple rules, else a simple rule, else a learnt one.

Pure functions of decisions and simultaneous intervals. Only what is *better* than the logger is recommended. Among that
a simple rule has the advantage, because it can be read and checked: a learnt policy is recommended where the log shows
that it beats the rule. That difference is one more interval that holds simultaneously with the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tidelog._text import amount, with_ends
from tidelog.policies.statistics import Interval
from tidelog.runtime.way_of_acting import ADVICE

Ground = Literal["nothing is better", "the only kind", "beats the rule", "simpler", "no learnt policy is better"]


class Candidate(NamedTuple):
    """One judged policy."""

    name: str
    decision: str
    low: float  # lower end of the difference from the logger
    is_rule: bool


class Contrast(NamedTuple):
    """A learnt policy against a simple rule, on the same episodes."""

    policy: str
    rule: str
    difference: Interval  # mean return of the policy minus that of the rule, simultaneous with all other intervals

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Contrast:
        """Read `to_json`."""
        ends = (content["difference"][name] for name in Interval._fields)
        return cls(content["policy"], content["rule"], Interval(*(math.nan if end is None else end for end in ends)))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"policy": self.policy, "rule": self.rule, "difference": self.difference._asdict()}


class Recommendation(NamedTuple):
    """What to use, and why."""

    name: str | None  # None: nothing is better than the logger
    ground: Ground
    contrast: Contrast | None = None  # of the best learnt policy and the best rule, if both are better
    no_worse: bool = False  # whether the log shows that the rule loses less than the margin against that policy


def recommend(candidates: Sequence[Candidate], contrasts: Sequence[Contrast], margin: float) -> Recommendation:
    """Recommend one of the candidates, or none; `margin` is the loss below which a rule is no worse.

    Of several better ones of a kind, that with the highest lower end is the best.
    """
    learnt, rule = (_best([one for one in candidates if one.is_rule == is_rule]) for is_rule in (False, True))
    if learnt is None and rule is None:
        return Recommendation(None, "nothing is better")
    if rule is None and learnt is not None:
        return Recommendation(learnt.name, "the only kind")
    if learnt is None and rule is not None:
        others = any(not one.is_rule for one in candidates)
        return Recommendation(rule.name, "no learnt policy is better" if others else "the only kind")
    names = (learnt.name, rule.name) if learnt is not None and rule is not None else ("", "")
    found = next((one for one in contrasts if (one.policy, one.rule) == names), None)
    if found is not None and found.difference.low > 0.0:
        return Recommendation(names[0], "beats the rule", found)
    no_worse = found is not None and found.difference.high < margin
    return Recommendation(names[1], "simpler", found, no_worse)


def _best(candidates: Sequence[Candidate]) -> Candidate | None:
    """The better candidate with the highest lower end, the first of equal ones."""
    return max((one for one in candidates if one.decision == "better"), key=lambda one: one.low, default=None)


# One answer over all candidates: what to do, by how much, and why. The terminal, the report and Python write this one.
#
# The rows may come from one judgement, whose intervals hold simultaneously, or from the newest ones of several runs.


class Row(NamedTuple):
    """One judged candidate: a policy in one way of acting, or a simple rule."""

    name: str
    decision: str
    difference: Interval  # mean return per episode minus that of the logger
    acting: str | None = None  # "mode" or "sample"; None: not recorded
    rule: str | None = None  # a simple rule as a sentence
    advice: str = ""  # what to do with it, in one sentence
    effective_sample_size: float = math.nan
    episodes: int | None = None

    @property
    def title(self) -> str:
        """The name, and the rule if it is one."""
        return self.name if self.rule is None else f"{self.name} ({self.rule})"

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Row:
        """Read `to_json`, whose numbers that are not finite may be null; ValueError or TypeError for other content."""
        numbers = [content[name] for name in ("difference", "low", "high")]
        size, episodes = content.get("effective_sample_size"), content.get("episodes")
        texts = [content["name"], content["decision"], content.get("advice", "")]
        acting, rule = content.get("acting"), content.get("rule")
        for value in (*texts, *(one for one in (acting, rule) if one is not None)):
            if not isinstance(value, str):
                raise TypeError(f"expected text, found {value!r}")
        for value in (*numbers, size, episodes):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise TypeError(f"expected a number, found {value!r}")
        difference = Interval(*(math.nan if number is None else float(number) for number in numbers))
        share = math.nan if size is None else size
        return cls(texts[0], texts[1], difference, acting, rule, texts[2], share, episodes)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        content = self._asdict() | self.difference._asdict()
        content["difference"] = content.pop("estimate")
        return content


class OverallAnswer(NamedTuple):
    """What to do with all candidates."""

    recommendation: Recommendation
    row: Row | None  # the candidate that the headline is about; None: about all of them
    decision: str  # of that candidate; of all of them: what most of them have
    headline: str  # what to do, one sentence
    number: str  # the difference of that candidate with its interval; empty without one
    why: str  # why this candidate and no other; empty where there is no other

    @property
    def text(self) -> str:
        """The answer in a few sentences."""
        return " ".join(filter(None, [self.headline, self.why]))


def answer_of(
    rows: Sequence[Row],
    contrasts: Sequence[Contrast] = (),
    margin: float = 0.0,
    unit: str | None = None,
    *,
    simultaneous: bool = True,
) -> OverallAnswer:
    """Return the answer; `simultaneous`: the intervals of all rows hold at once.

    `margin` is the loss of return below which a simple rule is no worse than a learnt policy.
    """
    candidates = [Candidate(row.name, row.decision, row.difference.low, row.rule is not None) for row in rows]
    recommendation = recommend(candidates, contrasts, margin)
    if recommendation.name is None:
        return _nothing(rows, recommendation, unit)
    row = next(row for row in rows if row.name == recommendation.name)
    headline = row.advice.replace("Use it", f"Use {row.title}", 1) if len(rows) > 1 else row.advice
    why = _why(rows, row, recommendation, margin, unit) if len(rows) > 1 else ""
    if len(rows) > 1 and simultaneous:
        why += f" The intervals hold for all {len(rows):,} at once, so it may be chosen by them."
    return OverallAnswer(recommendation, row, row.decision, headline, _number(row, unit), why.strip())


def _nothing(rows: Sequence[Row], recommendation: Recommendation, unit: str | None) -> OverallAnswer:
    """The answer where no candidate is better: the one that is better under a condition, or what all have in common."""
    conditional = [row for row in rows if row.decision == "better if randomised"]
    if conditional:
        row = max(conditional, key=lambda one: one.difference.low)
        headline = row.advice.replace("Use it", f"Use {row.title}", 1) if len(rows) > 1 else row.advice
        return OverallAnswer(recommendation, row, row.decision, headline, _number(row, unit), "")
    counts = Counter(row.decision for row in rows)
    (decision, most), *_ = counts.most_common(1)
    if len(rows) == 1:
        number = "" if decision == "unsupported" else _number(rows[0], unit)
        return OverallAnswer(recommendation, rows[0], decision, rows[0].advice, number, "")
    decisions = ", ".join(f"{counts[one]:,} {one}" for one in ADVICE if counts[one])
    shown = "none of them is shown to be better"
    if most == len(rows) and decision == "unsupported":
        shown = "the log cannot show how good any of them is"
    return OverallAnswer(recommendation, None, decision, f"Keep what you have: {shown} ({decisions}).", "", "")


def _number(row: Row, unit: str | None) -> str:
    return f"{with_ends(row.difference, unit, sign=True)} per episode"


def _why(rows: Sequence[Row], row: Row, recommendation: Recommendation, margin: float, unit: str | None) -> str:
    """Why this candidate: of several better ones the highest lower limit, or a learnt policy against a rule."""
    contrast, better = recommendation.contrast, sum(one.decision == "better" for one in rows)
    if recommendation.ground == "the only kind":
        lower = amount(row.difference.low, unit, sign=True)
        if better > 1:
            return f"{better:,} of {len(rows):,} policies are better, and its lower limit, {lower}, is the highest."
        return f"It is the only one of {len(rows):,} that is better (lower limit {lower})."
    if recommendation.ground == "no learnt policy is better":
        return "No learnt policy is shown to be better than the logged decisions."
    if contrast is None:
        return "It is simpler; the log does not show that the learnt policy is better."
    difference = contrast.difference
    by = f"the difference is {with_ends(difference, unit, sign=True)}"
    if recommendation.ground == "beats the rule":
        return f"It is shown to beat the simple rule ({contrast.rule}): {by}."
    if difference.high < 0.0:
        gain = with_ends(Interval(-difference.estimate, -difference.high, -difference.low), unit, sign=True)
        return f"It is simpler, and shown to be better than the learnt policy ({contrast.policy}) by {gain}."
    loss = f", and the rule loses less than {amount(margin, unit)} against it" if recommendation.no_worse else ""
    return f"It is simpler; the log does not show that the learnt policy ({contrast.policy}) is better: {by}{loss}."
