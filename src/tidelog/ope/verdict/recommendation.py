"""Which of the judged policies to use: a learnt one that beats the simple rules, else a simple rule, else a learnt one.

Pure functions of decisions and simultaneous intervals. Only what is *better* than the logger is recommended. Among that
a simple rule has the advantage, because it can be read and checked: a learnt policy is recommended where the log shows
that it beats the rule. That difference is one more interval that holds simultaneously with the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tidelog.policies.statistics import Interval

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
