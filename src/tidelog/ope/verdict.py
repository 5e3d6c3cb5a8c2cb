"""The verdict: its figure, its limits, its contents, and its file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from tidelog._files import parse_saved, read_text, write_json
from tidelog._text import amount, facts_table, in_unit, rows_table, three_digits, with_ends
from tidelog.data.columns import declared_unit
from tidelog.data.log import Log
from tidelog.data.raw import source_text
from tidelog.errors import CheckpointError, ConfigError, LogError, TidelogError, nearest
from tidelog.ope.estimators import Estimate, Estimates, Support
from tidelog.ope.risk import Risk
from tidelog.plots import WIDTH, Plot, Reach, figure, intervals
from tidelog.policies.statistics import Interval
from tidelog.recommend.read import reopen
from tidelog.runtime.way_of_acting import ADVICE, DOES, advice_on, first_decisions
from tidelog.schema import from_plain, to_plain
from tidelog.training.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# A picture of a verdict: every estimate with its interval, beside the behaviour policy's mean return.

GUESSES = "The estimates are guesses outside the log: do not use them."
FIGURE_WIDTH = 540  # points


def estimates_picture(verdict: Verdict, width: float = WIDTH) -> Plot:
    """Draw a row for each estimate, the deciding one in colour if it has support, and one for the behaviour policy."""
    guesses = verdict.decision == "unsupported"
    rows = [
        Reach(f"{row.name} (decides)", row.interval, "log" if guesses else "c0", strong=True)
        if row.name == verdict.deciding
        else Reach(row.name, row.interval, "log")
        for row in verdict.estimates
    ]
    rows.append(Reach("behaviour policy, as recorded", verdict.behavior_policy, "c1", strong=True))
    title = "Estimated mean returns with intervals: " + "; ".join(f"{r.name} {with_ends(r.interval)}" for r in rows)
    line = verdict.behavior_policy.estimate if np.isfinite(verdict.behavior_policy.estimate) else None
    across = f"mean return per episode{in_unit(verdict.reward_unit, 'in ')}"
    return intervals(title, rows, line, across, width=width)


# Which of the judged policies to use: a learnt one that beats the simple rules, else a simple rule, else a learnt one.
#
# Pure functions of decisions and simultaneous intervals. Only what is *better* than the behaviour policy is
# recommended. Among that a simple rule has the advantage, because it can be read and checked: a learnt policy is
# recommended where the log shows that it beats the rule. That difference is one more interval that holds simultaneously
# with the others.

UNKNOWN = "unknown"  # stands for a number that the log does not show
Ground = Literal["nothing is better", "the only kind", "beats the rule", "simpler", "no learnt policy is better"]


class Row(NamedTuple):
    """One judged candidate: a policy in one way of acting, or a simple rule."""

    name: str
    decision: str
    difference: Interval  # mean return per episode minus that of the behaviour policy
    acting: str | None = None  # "mode" or "sample"; None: not recorded
    rule: str | None = None  # a simple rule as a sentence
    advice: str = ""  # what to do with it, in one sentence
    known_overlap: bool = True  # whether it is known, or stated, that it did not learn from the judged episodes
    first_steps: int | None = None  # number of judged decisions of an episode; None: all
    effective_sample_size: float = math.nan
    episodes: int | None = None

    @property
    def title(self) -> str:
        """The name, and the rule if it is one."""
        return self.name if self.rule is None else f"{self.name} ({self.rule})"

    @property
    def cells(self) -> tuple[str, str, str]:
        """For a table: the difference, the ends of its interval, and the part of the episodes that speaks for it."""
        share = self.effective_sample_size / self.episodes if self.episodes else math.nan
        part = f"{share:.1%}" if math.isfinite(share) else UNKNOWN
        if self.decision == "unsupported":
            return UNKNOWN, UNKNOWN, part
        middle, low, high = (three_digits(one, sign=True) for one in self.difference)
        return middle, f"{low} to {high}", part

    @property
    def headline(self) -> str:
        """The advice with the title in place of "it"."""
        acting = None if self.rule is not None else self.acting
        return advice_on(self.decision, acting, self.known_overlap, self.first_steps, self.title)

    @classmethod
    def of(cls, name: str, verdict: Verdict) -> Row:
        """The row of a policy among several."""
        return cls(
            name,
            verdict.decision,
            verdict.difference,
            verdict.acting,
            verdict.rule,
            verdict.advice,
            not verdict.context.get("overlap_unknown"),
            verdict.first_steps,
            verdict.support.effective_sample_size,
            verdict.episodes,
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Row:
        """Read `to_json`, whose numbers that are not finite may be null; ValueError or TypeError for other content."""
        interval = {"estimate": content["difference"], "low": content["low"], "high": content["high"]}
        row: Row = from_plain(cls, {**content, "difference": interval})
        return row

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        content = self._asdict() | self.difference._asdict()
        content["difference"] = content.pop("estimate")
        return content


class Contrast(NamedTuple):
    """A learnt policy against a simple rule, on the same episodes."""

    policy: str
    rule: str
    difference: Interval  # mean return of the policy minus that of the rule, simultaneous with all other intervals


class Recommendation(NamedTuple):
    """What to use, and why."""

    name: str | None  # None: nothing is better than the behaviour policy
    ground: Ground
    contrast: Contrast | None = None  # of the best learnt policy and the best rule, if both are better
    no_worse: bool = False  # whether the log shows that the rule loses less than the margin against that policy


def recommend(candidates: Sequence[Row], contrasts: Sequence[Contrast], margin: float) -> Recommendation:
    """Recommend one of the candidates, or none; `margin` is the loss below which a rule is no worse."""
    better = [one for one in candidates if one.decision == "better"]
    kinds = ([one for one in better if (one.rule is not None) == is_rule] for is_rule in (False, True))
    learnt, rule = (max(kind, key=lambda one: one.difference.low, default=None) for kind in kinds)
    if rule is None:
        return Recommendation(learnt and learnt.name, "the only kind" if learnt else "nothing is better")
    if learnt is None:
        others = any(one.rule is None for one in candidates)
        return Recommendation(rule.name, "no learnt policy is better" if others else "the only kind")
    contrast = next((one for one in contrasts if (one.policy, one.rule) == (learnt.name, rule.name)), None)
    if contrast is not None and contrast.difference.low > 0.0:
        return Recommendation(learnt.name, "beats the rule", contrast)
    return Recommendation(rule.name, "simpler", contrast, contrast is not None and contrast.difference.high < margin)


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


class CandidateTable(NamedTuple):
    """Judged policies and rules; the terminal, the report and Python write the answer over all of them."""

    rows: tuple[Row, ...]
    contrasts: tuple[Contrast, ...] = ()
    margin: float = 0.0  # loss of return below which a simple rule is no worse than a learnt policy
    level: float = 0.95  # of the intervals
    unit: str | None = None  # of rewards
    simultaneous: bool = True  # whether all intervals hold at once; else the rows are from several judgements

    @property
    def answer(self) -> OverallAnswer:
        """What to do, by how much, and why."""
        rows, recommendation = self.rows, recommend(self.rows, self.contrasts, self.margin)
        conditional = [one for one in rows if one.decision == IF_RANDOMISED]
        counts = Counter(one.decision for one in rows)
        if recommendation.name is not None:
            row = next(one for one in rows if one.name == recommendation.name)
        elif conditional:
            row = max(conditional, key=lambda one: one.difference.low)
        elif len(rows) == 1:
            (row,) = rows
        else:
            decision, most = counts.most_common(1)[0]
            shown = "none of them is shown to be better"
            if most == len(rows) and decision == "unsupported":
                shown = "the log cannot show how good any of them is"
            decisions = ", ".join(f"{counts[one]:,} {one}" for one in ADVICE if counts[one])
            headline = f"Keep what you have: {shown} ({decisions})."
            return OverallAnswer(recommendation, None, decision, headline, "", "")
        number = why = ""
        if row.decision != "unsupported":
            number = f"{with_ends(row.difference, self.unit, sign=True)} per episode"
        if len(rows) > 1 and recommendation.name is not None:
            why = self._why(row, recommendation, counts["better"])
            if self.simultaneous:
                why += f" The intervals hold for all {len(rows):,} at once, so it may be chosen by them."
        headline = row.headline if len(rows) > 1 else row.advice
        return OverallAnswer(recommendation, row, row.decision, headline, number, why)

    def _why(self, row: Row, recommendation: Recommendation, better: int) -> str:
        """Why this candidate: of several better ones the highest lower limit, or a learnt policy against a rule."""
        contrast = recommendation.contrast
        if recommendation.ground == "the only kind":
            lower = amount(row.difference.low, self.unit, sign=True)
            if better > 1:
                all_of = f"{better:,} of {len(self.rows):,} policies are better"
                return f"{all_of}, and its lower limit, {lower}, is the highest."
            return f"It is the only one of {len(self.rows):,} that is better (lower limit {lower})."
        if recommendation.ground == "no learnt policy is better":
            return "No learnt policy is shown to be better than the logged decisions."
        if contrast is None:
            return "It is simpler; the log does not show that the learnt policy is better."
        difference = contrast.difference
        by = f"the difference is {with_ends(difference, self.unit, sign=True)}"
        if recommendation.ground == "beats the rule":
            return f"It is shown to beat the simple rule ({contrast.rule}): {by}."
        if difference.high < 0.0:
            gain = Interval(-difference.estimate, -difference.high, -difference.low)
            return (
                f"It is simpler, and shown to be better than the learnt policy ({contrast.policy}) by "
                f"{with_ends(gain, self.unit, sign=True)}."
            )
        loss = ""
        if recommendation.no_worse:
            loss = f", and the rule loses less than {amount(self.margin, self.unit)} against it"
        return f"It is simpler; the log does not show that the learnt policy ({contrast.policy}) is better: {by}{loss}."


# Results of judging: the verdict on one policy, and the table of verdicts on several; all can be written as JSON.
#
# Letters: `E` episodes.

Decision = Literal["better", "better if randomised", "worse", "no difference shown", "unsupported"]
IF_RANDOMISED: Decision = "better if randomised"


class LadderStep(NamedTuple):
    """A part of a policy that was judged in place of the whole; the others of its decisions stay as they are."""

    by: str  # "support": where the log shows its actions; "share": in each decision with a probability; or "both"
    level: float  # largest ratio of an action's probability to that of the present practice; or the probability
    share: float  # of the judged decisions that are the policy's
    decision: Decision
    difference: Interval  # mean return per episode minus that of the behaviour policy
    largest_ratio: float | None = None  # by both: that ratio

    @property
    def is_drawn(self) -> bool:
        """Whether chance decides if a decision is the policy's."""
        return self.by != "support" and self.level < 1.0

    @property
    def title(self) -> str:
        """A few words for a row of a picture."""
        if not self.is_drawn:
            return f"{self.share:.0%} of decisions"
        return f"probability {self.level:g}" + (" where shown" if self.by == "both" else "")

    @property
    def where(self) -> str:
        """Which decisions are the policy's, in words."""
        drawn = f"with probability {self.level:g} in each decision" if self.is_drawn else ""
        if self.by == "share":
            return drawn
        shown = self.share / self.level if self.is_drawn else self.share
        return f"{drawn} where the log shows its actions ({shown:.0%} of decisions)".strip()

    @property
    def rest(self) -> str:
        """About which decisions the log cannot tell, in words."""
        others = [] if self.by == "share" else ["in the other decisions"]
        return " and ".join([*others, *(["with larger probabilities"] if self.is_drawn else [])])


class GroupDifference(NamedTuple):
    """A group of episodes, and how much more the policy earns there."""

    name: str
    episodes: int
    decision: Decision  # by the rules of a verdict; "unsupported": the log cannot tell
    difference: Interval  # mean return per episode minus that of the behaviour policy, simultaneous over groups
    effective_sample_size: float = math.nan


ON_AVERAGE = {
    "better": "The policy is better on average, and",
    "better if randomised": "The policy is better on average if nothing unrecorded decided, and",
    "worse": "The policy is worse on average, and",
    "no difference shown": "No difference is shown on average, and the policy is",
    "unsupported": "The log cannot tell on average, and the policy is",
}


def groups_sentences(
    decision: str, groups: Sequence[GroupDifference], by: str, unit: str | None, level: float | None = None
) -> list[str]:
    """Which groups differ from the decision about all episodes, and about which the log cannot tell."""

    differ = []
    for word in ("worse", "better", "better if randomised"):
        chosen = [one for one in groups if one.decision == word != decision]
        named = ", ".join(f"'{by}' {one.name}: {with_ends(one.difference, unit, sign=True)}" for one in chosen)
        differ += [f"{word} for {named}"] if named else []
    sentences = [f"{ON_AVERAGE[decision]} {'; '.join(differ)}."] if differ else []
    if level is None:
        return sentences
    unknown = [one.name for one in groups if one.decision == "unsupported"]
    sentences += [f"The log cannot tell for '{by}' {', '.join(unknown)}."] if unknown else []
    at_once = f"The intervals of all groups by '{by}' hold at once, with {percent(level)} confidence."
    return [*sentences, at_once] if len(unknown) < len(groups) else sentences


# The checks of a verdict in the order in which they were asked, and why the decision is what it is.


class RuleCheck(NamedTuple):
    """One check of a verdict: the number that was compared, and its limit."""

    rule: str
    outcome: Literal["passed", "failed", "not asked"]
    number: float = math.nan  # NaN: a question without a number, or a number that is not finite
    compared: str = ""  # with the limit: "at least", "at most", "above" or "below" it
    limit: float = math.nan
    limit_name: str | None = None  # of the field of `Limits` that sets it
    subject: str = ""  # what the number is of, where a rule has several: an estimator, an end
    why: str = ""  # why it was not asked
    times: float = math.nan  # as many episodes of this kind would reach the limit

    @property
    def words(self) -> tuple[str, str]:
        """What is asked, and what its number is: a share, a return, a number of episodes, or neither."""
        general = _LABELS.get(self.rule, (self.rule.replace("_", " "), ""))
        return _LABELS.get(f"{self.rule} {self.subject}", general)

    @property
    def label(self) -> str:
        """What is asked, in words."""
        return self.words[0].format(self.subject)

    def bound(self, unit: str | None = None) -> str:
        """The limit in words: at least 50."""
        return f"{self.compared} {self._text(self.limit, unit)}"

    def value(self, unit: str | None = None) -> str:
        """The number with its unit; `unit` is that of rewards."""
        return self._text(self.number, unit) + (" episodes" if self.words[1] == "episodes" else "")

    def line(self, unit: str | None = None) -> str:
        """The check in one line."""
        if not math.isfinite(self.number):
            return f"{self.label}: {self.outcome}"
        limit = "" if self.limit_name is None else f" ({self.limit_name})"
        return f"{self.label}: {self.value(unit)}, {self.bound(unit)}{limit}: {self.outcome}"

    def _text(self, number: float, unit: str | None) -> str:
        kind = self.words[1]
        return f"{100.0 * number:.3g}%" if kind == "share" else amount(number, unit if kind == "return" else None)


# rule, or rule and subject -> what is asked, and whether its number is a share, in the unit of returns or of episodes
_LABELS = {
    "overlap": ("share of these episodes that the policy learnt from", "share"),
    "episodes": ("number of episodes, or of clusters", ""),
    "rewards": ("range of the logged returns", "return"),
    "density": ("the policy has probabilities of its actions", ""),
    "cut_actions": ("share of actions exactly on a bound", "share"),
    "cut_actions rows": ("rows with an action exactly on a bound", ""),
    "atoms": ("share of actions at repeated values of undeclared probability", "share"),
    "atoms rows": ("rows off the repeated values of actions", ""),
    "propensities": ("propensities are recorded, or can be estimated", ""),
    "estimate": ("the deciding estimate exists", ""),
    "range": ("estimated mean return of the policy", "return"),
    "markov": ("p-value of the test that an observation is a Markov state", ""),
    "markov effect": ("share of outcomes that the history explains beyond the observation", "share"),
    "behavior_history": ("p-value of the test that the history does not drive the behaviour policy", ""),
    "behavior_history effect": ("share of the behaviour policy's actions that the history explains", "share"),
    "drift": ("p-value of the test that the behaviour policy did not change", ""),
    "drift effect": ("share of the behaviour policy's actions that time explains", "share"),
    "propensities_fit": ("p-value of the test that propensities fit the logged actions", ""),
    "propensities_fit effect": ("share of the actions that propensities leave unexplained", "share"),
    "habit": ("times per episode of the policy's most unusual action", ""),
    "unsupported_mass": ("share of the policy's actions that are hardly in the log", "share"),
    "effective_sample_size": ("effective sample size", "episodes"),
    "largest_weight": ("largest share of the weight on one episode", "share"),
    "pareto_k": ("tail index of the weights (Pareto k)", ""),
    "mean_weight": ("distance of the mean weight from 1", ""),
    "mean_weight factor": ("factor by which the mean weight misses 1", ""),
    "earning_episodes": ("effective number that carries the difference", "episodes"),
    "carrying_episodes": ("effective number that carries the difference", "episodes"),
    "unshown_share": ("share of decisions that the log does not show, beyond its own, upper 95% limit", "share"),
    "interval lower": ("lower end of the interval of the difference", "return"),
    "interval upper": ("upper end of the interval of the difference", "return"),
    "interval": ("interval of the difference on one side of 0", "return"),
    "contradiction": ("an end of the interval by '{}'", "return"),
    "contradiction ": ("other estimators do not contradict", "return"),
    "unshown": ("this end if unshown decisions earn the most adverse return", "return"),
    "hardly_known": ("share of decisions whose reward is hardly ever known", "share"),
    "known_weights": ("effective sample size, or largest weight, of what is known", ""),
    "unknown_rewards": ("this end if unknown rewards are the most adverse ones", "return"),
    "late": ("newest rewards are not empty more often", ""),
    "chosen": ("share of these episodes that chose the checkpoint", "share"),
    "sensitivity": ("lower end under an unrecorded cause", "return"),
    "together": ("this end if all of these doubts come together", "return"),
    "heavy_tail": ("loss per episode that heavy tails may hide", "return"),
    "heavy_tail left decisions": ("loss per episode that the tail of decisions left behind may hide", "return"),
    "heavy_tail taken decisions": ("loss per episode that the tail of decisions taken may hide", "return"),
    "randomised": ("the log says how its decisions were drawn", ""),
}
NO_CHECKS = "The checks were not recorded: this verdict is of an earlier version. fix: judge again."
DECIDING = {"wdr": "weighted doubly robust (wdr)", "drl": "double reinforcement learning (drl)"}


def as_many(times: float) -> str:
    """How many times as many, rounded up to a tenth below 10."""
    return f"about {math.ceil(times) if times >= 10.0 else math.ceil(10.0 * times) / 10.0:,.12g} times as many"


class Explanation(NamedTuple):
    """Why a verdict decides as it does, from what its file holds."""

    basis: tuple[str, ...]  # what was estimated, how, and how often these episodes were judged; sentences
    lines: tuple[str, ...]  # the checks in the order in which they were asked
    end: tuple[str, ...]  # the first check that failed, and what would have had to differ; sentences
    next_step: str

    @property
    def text(self) -> str:
        """All of it as text."""
        lines = [*self.basis, *(f"- {one}" for one in self.lines), *self.end, self.next_step]
        return "\n".join(filter(None, lines))


def _lines(checks: Sequence[RuleCheck], unit: str | None) -> Iterator[str]:
    """The checks, one a line; neighbours that were not asked for one reason share a line."""
    for (outcome, why), group in groupby(checks, lambda one: (one.outcome, one.why)):
        if outcome == "not asked":
            yield f"not asked, because {why}: {'; '.join(dict.fromkeys(one.label for one in group))}"
        else:
            yield from (one.line(unit) for one in group)


def _change(check: RuleCheck, difference: Interval, unit: str | None) -> str:
    """What would have had to differ for a check to pass, a sentence; empty for a question without a number."""
    if not math.isfinite(check.limit):
        return ""
    it_is = f"; it is {check.value(unit)}" if math.isfinite(check.number) else ""
    more = ""
    if 0.0 < check.times < math.inf:
        more = f": {as_many(check.times)} episodes of this kind"
        if check.rule == "interval":
            half = (difference.high - difference.low) / 2
            less = amount(half / math.sqrt(check.times), unit)
            more = f": a half-width of {less} in place of {amount(half, unit)}, {as_many(check.times)} episodes"
    return f"What would have had to differ: {check.label} {check.bound(unit)}{it_is}{more}."


class PlanLine(NamedTuple):
    """What would let a log answer, in closed form; `tl.plan` simulates it."""

    kind: Literal["episodes", "enough", "propensities", "support", "exploration", "sequence", "none"]
    episodes: int | None = None  # held-out episodes, judged once
    probability: float | None = None  # with which the difference is then shown
    effect: float | None = None  # that difference
    share: float | None = None  # of decisions drawn evenly over the actions


OVERLAP_UNKNOWN = (
    "it is unknown whether the policy learnt from these episodes; if it did, it looks better than it is. "
    "fix: train it on one part of log.split() and judge it on the other; if it did not learn from these episodes, say "
    "so (learnt_from='other data', --learnt-from 'other data')"
)

LOOKS_UNKNOWN = (
    "the number of times these episodes were judged before is unknown, and one of many looks is better by luck. "
    "fix: judge without ledger=False (--ledger off)"
)


CAVEAT = "it is unknown whether it learnt from these episodes"


@dataclass(frozen=True, eq=False, repr=False)
class Verdict:
    """Conclusion about a policy from held-out episodes of another decision maker."""

    decision: Decision
    reasons: tuple[str, ...]  # one sentence each, the deciding one first
    outcome: str  # summary for a decision maker, without the reasons
    next_step: str  # what to do after the advice, one sentence; empty if there is nothing
    paragraph: str  # the summary with the reasons and the next step
    estimand: str  # the estimated quantity: horizon, discount, truncation, which policy
    deciding: str  # name of the estimate that decides
    difference: Interval  # policy minus behaviour policy, on the same episodes
    behavior_policy: Interval  # the behaviour policy's mean return
    difference_from_bc: Interval | None  # policy minus behaviour cloning
    estimates: Estimates
    support: Support
    level: float
    episodes: int
    weights: NDArray[np.float64]  # [E]: of the episodes; not in the file
    context: Mapping[str, Any] = field(default_factory=dict)  # policy, log, seed, reuse, versions
    risk: Risk | None = None  # return distributions of policy and behaviour policy
    risk_reason: str | None = None  # why there is no risk
    bound: Interval | None = None  # the difference for the worst to the best return of unshown decisions
    reward_unit: str | None = None  # of every return and difference; None if the log does not name one
    ladder: tuple[LadderStep, ...] = ()  # parts of a policy without support, in the order asked about
    groups: tuple[GroupDifference, ...] = ()  # by the column that was named; empty without one
    checks: tuple[RuleCheck, ...] = ()  # in the order in which they were asked; empty in files of earlier versions
    plan: PlanLine | None = None  # what would let the log answer, where it shows nothing
    safe_policy: Any = None  # acts as `safe` says; not in the file

    def __repr__(self) -> str:
        return f"Verdict: {self.decision}. {self.advice} {self.paragraph}"

    @property
    def acting(self) -> Literal["mode", "sample"]:
        """The way of acting that was judged."""
        return "sample" if self.context.get("sample") else "mode"

    @property
    def rule(self) -> str | None:
        """The simple rule that was judged, as a sentence; None for another policy."""
        policy = self.context.get("policy")
        return policy.get("rule") if isinstance(policy, Mapping) and policy.get("kind") == "rule" else None

    @property
    def is_rule(self) -> bool:
        """Whether a simple rule was judged."""
        return self.rule is not None

    @property
    def safe(self) -> LadderStep | None:
        """The largest part of the policy that is better than the behaviour policy, where the whole has no support."""
        return next((one for one in reversed(self.ladder) if one.decision == "better"), None)

    @property
    def ladder_sentence(self) -> str:
        """What the log could say about parts of the policy; empty if none was asked about."""
        if self.safe is None:
            tried = self.ladder[0].where if self.ladder else ""
            return tried and f"Its part that is easiest to judge, {tried}, is not shown to be better either."
        step, (estimate, low, _) = self.safe, self.safe.difference
        gain, least = (amount(one, self.reward_unit, sign=True) for one in (estimate, low))
        number = f"{gain} per episode (lower limit {least}, {percent(self.level)} confidence)"
        return f"It is better {step.where}: {number}; {step.rest} the log cannot tell."

    @property
    def by(self) -> str:
        """The column of the groups; empty without groups."""
        return str(self.context.get("by", ""))

    @property
    def groups_sentences(self) -> list[str]:
        """Which groups differ from the decision about all episodes, and about which the log cannot tell."""
        return groups_sentences(self.decision, self.groups, self.by, self.reward_unit, self.level)

    @property
    def explanation(self) -> Explanation:
        """Why this decision: the checks with their numbers, the first that failed, what would have had to differ."""
        date, times = self.context.get("date"), "once" if self.looks == 1 else f"{self.looks:,} times"
        name = self.context.get("name")
        looks = "This was the first look at these held-out episodes."
        if not self.context.get("looks", {}).get("counted", True):
            looks = "Earlier looks at these held-out episodes were not counted."
        elif self.looks:
            looks = (
                f"These held-out episodes were judged {times} before, so the interval of the difference is stricter: "
                f"it has a level of {percent(self.level)}."
            )
        first = next((one for one in self.checks if one.outcome == "failed"), None)
        later = [one.label for one in self.checks if one.outcome == "failed" and one is not first]
        end = [] if self.checks else [*(f"{one[:1].upper()}{one[1:]}." for one in self.reasons[:1]), NO_CHECKS]
        if first is not None:
            reason = f" {self.reasons[0][:1].upper()}{self.reasons[0][1:]}." if self.reasons else ""
            end += [f"The first that failed: {first.label}.{reason}", _change(first, self.difference, self.reward_unit)]
            end += [f"Also failed: {'; '.join(later)}."] if later else []
        elif self.checks:
            end.append(f"No check failed: {self.reasons[0]}." if self.reasons else "No check failed.")
        return Explanation(
            (
                f"Decision: {self.decision}. {self.advice}",
                f"Policy: {', '.join(filter(None, [name and str(name), DOES[self.acting]]))}, judged on "
                f"{self.episodes:,} episodes{f' on {date[:10]}' if isinstance(date, str) else ''}. {looks}",
                f"Estimated quantity: {self.estimand}.",
                f"Deciding estimator: {DECIDING.get(self.deciding, self.deciding)}.",
            ),
            tuple(_lines(self.checks, self.reward_unit)),
            tuple(filter(None, [*end, self.ladder_sentence])),
            self.next_step,
        )

    def explain(self) -> str:
        """Why this decision: the checks with their numbers, the first that failed, and what would have had to differ.

        Example:
            >>> train, held_out = tl.collect("treatment", episodes=300, seed=0).split(0.5, seed=0)
            >>> rule = tl.simple_rules(train)["best single action"]
            >>> "effective sample size" in tl.judge(rule, held_out, model="tabular").explain()
            True
        """
        return self.explanation.text

    @property
    def first_steps(self) -> int | None:
        """The number of decisions of an episode that were judged; None: all."""
        return self.context.get("first_steps")

    @property
    def advice(self) -> str:
        """What to do with the policy, in one sentence."""
        known = not self.context.get("overlap_unknown")
        advice = advice_on(self.decision, None if self.is_rule else self.acting, known, self.first_steps)
        if self.safe is None:
            return advice
        first = "" if self.first_steps is None else f" for the first {self.first_steps} decisions of an episode"
        use = "Use it" if known else "If it did not learn from the judged episodes, use it"
        return f"{use}{first} only {self.safe.where}, and keep what you have elsewhere."

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        facts = {
            "what to do": self.advice,
            "in words": " ".join(filter(None, [self.outcome, self.next_step])),
            "difference from the behaviour policy": (
                f"{with_ends(self.difference, self.reward_unit, sign=True)}, {percent(self.level)} interval"
            ),
            "the behaviour policy's mean return": with_ends(self.behavior_policy, self.reward_unit),
            "the policy": DOES[self.acting],
            "episodes": f"{self.episodes:,}",
            "reasons": "\n".join(self.reasons),
        }
        return facts_table(f"Verdict: {self.decision}", facts)

    def plot(self) -> Figure:
        """Return a matplotlib figure of every estimate with its interval, the deciding one marked, and of the practice.

        The axis is the mean return per episode, in the log's unit of rewards.
        """
        title = f"Verdict: {self.decision}. {self.advice}"
        guesses = self.decision == "unsupported" and len(self.estimates) > 0
        return figure([estimates_picture(self, FIGURE_WIDTH)], f"{title} {GUESSES}" if guesses else title)

    @property
    def blocks_gate(self) -> tuple[str, ...]:
        """Reasons why a gate stays closed, one sentence each; empty for *better* without objections."""
        if self.decision != "better":
            return (f"the verdict is '{self.decision}'",)
        if self.first_steps is not None:
            judged = first_decisions(self.first_steps)
            was = "was" if self.first_steps == 1 else "were"
            return (f"only the {judged} of an episode {was} judged; what follows may be worse",)
        reasons = (OVERLAP_UNKNOWN,) if self.context.get("overlap_unknown") else ()
        counted = self.context.get("looks", {}).get("counted", True)
        return reasons if counted else (*reasons, LOOKS_UNKNOWN)

    @property
    def looks(self) -> int:
        """Number of earlier looks at these episodes in the ledger."""
        return int(self.context.get("judged_before", 0))

    @property
    def summary(self) -> dict[str, Any]:
        """What a policy carries of its verdict: the decision, the way of acting, the difference and its interval."""
        content = {
            "decision": self.decision,
            "acting": self.acting,
            "advice": self.advice,
            "date": str(self.context.get("date") or datetime.now(UTC).date().isoformat()),
            "caveat": "; ".join(self.context.get("conditions", ())),
            "difference": self.difference.estimate,
            "low": self.difference.low,
            "high": self.difference.high,
            "level": self.level,
            "episodes": self.episodes,
        }
        plain: dict[str, Any] = to_plain(content)
        return plain

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists; numbers that are not finite become None."""
        content = {one.name: getattr(self, one.name) for one in fields(self)}
        content["advice"] = self.advice
        del content["weights"], content["safe_policy"]
        content["estimates"] = [row.to_json() for row in self.estimates]
        content["risk"] = None if self.risk is None else self.risk.to_json()
        if self.reward_unit is None:
            del content["reward_unit"]
        plain: dict[str, Any] = to_plain(content)
        return plain


def part_summary(verdict: Verdict) -> dict[str, Any]:
    """The summary that the policy of `verdict.safe` carries: of a verdict on that part."""
    step: Any = verdict.safe
    left = f"it decides {step.where}; the others stay as they are"
    context = {
        **verdict.context,
        "sample": step.is_drawn or verdict.acting == "sample",
        "conditions": [left, *verdict.context.get("conditions", ())],
    }
    return replace(verdict, decision="better", difference=step.difference, context=context, ladder=()).summary


def percent(level: float) -> str:
    """Level in percent, with two significant digits of its error: 95%, 97.5%, 99.9943%."""
    error = 100.0 * (1.0 - level)
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{100.0 - error:.{digits}f}".rstrip("0").rstrip(".") + "%" if digits else f"{100.0 - error:.0f}%"


@dataclass(frozen=True, eq=False, repr=False)
class Verdicts(Sequence[Verdict]):
    """Verdicts in the order of the policies, by position or by name."""

    names: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    level: float  # confidence with which the intervals cover all differences simultaneously
    contrasts: tuple[Contrast, ...] = ()  # learnt policies against simple rules, simultaneous with the differences
    margin: float = 0.0  # loss of return below which a simple rule is no worse than a learnt policy

    def __repr__(self) -> str:
        rows = [f"  {name}: {one.decision}, {with_ends(one.difference, sign=True)}" for name, one in self.items()]
        unit = next((in_unit(one.reward_unit, "in ") for one in self), "")
        head = f"{self._count()}, differences from the behaviour policy{unit}, {percent(self.level)} simultaneous"
        return "\n".join([self.advice, head, *rows])

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        title = f"{self._count()}, {percent(self.level)} simultaneous"
        rows = [
            (name, one.decision, with_ends(one.difference, one.reward_unit, sign=True), f"{one.episodes:,}")
            for name, one in self.items()
        ]
        return rows_table(title, ("policy", "decision", "difference from the behaviour policy", "episodes"), rows)

    def _count(self) -> str:
        return "Verdict on 1 policy" if len(self) == 1 else f"Verdicts on {len(self)} policies"

    def __len__(self) -> int:
        return len(self.verdicts)

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, str):
            return self.verdicts[which]
        if which not in self.names:
            raise ConfigError(f"unknown policy '{which}': {nearest(which, self.names)}")
        return self.verdicts[self.names.index(which)]

    def items(self) -> Iterator[tuple[str, Verdict]]:
        """Pairs of name and verdict."""
        return zip(self.names, self.verdicts, strict=True)

    @property
    def better(self) -> tuple[str, ...]:
        """Policies that are better than the behaviour policy, simultaneously."""
        return tuple(name for name, one in self.items() if one.decision == "better")

    @property
    def best(self) -> str | None:
        """Supported policy with the highest lower end of the difference from the behaviour policy, if there is one."""
        low = {name: one.difference.low for name, one in self.items() if one.decision != "unsupported"}
        return max(low, key=lambda name: low[name]) if low else None

    @property
    def safest(self) -> str | None:
        """The policy whose safe part has the highest lower end of its difference; None if there is no such part."""
        low = {name: one.safe.difference.low for name, one in self.items() if one.safe is not None}
        return max(low, key=lambda name: low[name]) if low else None

    @property
    def recommended(self) -> str | None:
        """The policy to use; None if no policy is better.

        It is the better one with the highest lower end of the difference, but a learnt one that is not shown to beat a
        better simple rule gives way to that rule.
        """
        return self.recommendation.name

    @property
    def candidates(self) -> CandidateTable:
        """The policies as rows, with their simultaneous intervals."""
        return CandidateTable(self.rows, self.contrasts, self.margin, self.level, self.verdicts[0].reward_unit)

    @property
    def answer(self) -> OverallAnswer:
        """What to do with these policies, by how much, and why."""
        return self.candidates.answer

    @property
    def recommendation(self) -> Recommendation:
        """The policy to use, and the ground for it."""
        return self.answer.recommendation

    @property
    def advice(self) -> str:
        """What to do with these policies, in a few sentences: with a part, if none is shown to be better as a whole."""
        return " ".join(self.part_advice) or self.answer.text

    @property
    def part_advice(self) -> tuple[str, ...]:
        """What to do with the best safe part, in sentences; empty if a whole is recommended, or no part is better."""
        if self.recommended is not None or self.safest is None:
            return ()
        part, whole = self[self.safest], "As a whole, none of the policies is shown to be better."
        return (f"{self.safest}: {part.advice}", part.ladder_sentence, whole)

    @property
    def rows(self) -> tuple[Row, ...]:
        """One row per policy: name, decision, difference from the behaviour policy with its simultaneous interval."""
        return tuple(Row.of(name, one) for name, one in self.items())

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows as plain values."""
        return [row.to_json() for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists: level, advice, the recommended policy, best, better and every verdict."""
        return {
            "level": self.level,
            "advice": self.advice,
            "recommended": self.recommended,
            "best": self.best,
            "better": list(self.better),
            "ground": self.recommendation.ground,
            "contrasts": to_plain(self.contrasts),
            "margin": self.margin,
            "verdicts": {name: one.to_json() for name, one in self.items()},
        }


def combine_verdicts(
    names: tuple[str, ...],
    verdicts: Sequence[Verdict],
    level: float,
    contrasts: tuple[Contrast, ...] = (),
    margin: float = 0.0,
) -> Verdicts:
    """Combine verdicts; each one stores the table in its context."""
    result = Verdicts(names, tuple(verdicts), level, contrasts, margin)
    together = {"level": level, "advice": result.advice, "recommended": result.recommended, "rows": result.table}
    together |= {"ground": result.recommendation.ground, "margin": margin}
    together |= {"contrasts": to_plain(contrasts)}
    combined = [replace(one, context={**one.context, "together": together}) for one in verdicts]
    return replace(result, verdicts=tuple(combined))


def named_policies(policy: Any) -> dict[str, Any] | None:
    """Several policies by name, None for one policy; sequences are named by position. ConfigError for equal names."""
    if isinstance(policy, Mapping):
        policies = {str(name): one for name, one in policy.items()}
    elif isinstance(policy, list | tuple):
        policies = {f"policy {position}": one for position, one in enumerate(policy)}
    else:
        return None
    if not policies:
        raise ConfigError("no policy to judge", "one policy, or a list or mapping with at least one")
    if len(policies) < len(policy):
        raise ConfigError(f"policy names = {list(policy)}", "names that differ as text")
    return policies


# Verdict files: write verdicts, read them again for the report, and find the episodes that a run held out.
#
# A file stores neither contributions nor weights of episodes.

FOLDER = "verdicts"


def held_out_part(folder: Path, record: Record, log: Log | None = None) -> tuple[Log, str]:
    """The episodes to judge a run on, and a description of them.

    Without a log, or with the run's own log: the run's held-out episodes. With another log: all of its episodes.
    """
    if log is not None and log.fingerprint() != record.data.fingerprint:
        return log, f"all {len(log.episode_ids):,} episodes of the log"
    if log is None:
        absent = ConfigError(f"the log of {folder} was in memory only", fix="pass it, or another log, with --data")
        log = log_of_run(record, str(folder), absent, "pass the log to judge on with --data")
    if not record.held_out:
        raise ConfigError(
            f"{folder} held no episodes out, and a policy cannot be judged on episodes that it learnt from",
            fix="use a log with other episodes (--data), or train again with a share held out",
        )
    rows = np.flatnonzero(np.isin(log.episode_ids, np.asarray(record.held_out)))
    if len(rows) != len(record.held_out):
        raise LogError(
            f"only {len(rows):,} of the {len(record.held_out):,} episodes that {folder} held out are in the log",
            fix="name the log that the run learned from, or restore the record of the run",
        )
    return log.take_episodes(rows), f"the {len(rows):,} episodes that the run held out of its own log"


def log_of_run(record: Record, run: str, absent: TidelogError, fix: str) -> Log:
    """A run's log, read again; `absent` is raised if it was in memory only, LogError if its content has changed."""
    origin: Any = record.data.origin
    if origin is None:
        raise absent
    log = reopen(origin)
    if log.fingerprint() != record.data.fingerprint:
        found = f"{source_text(origin)} is no longer the log that {run} was trained on: its content has changed"
        raise LogError(found, fix=fix)
    return log


def training_part(record: Record) -> Log:
    """The episodes that a run learnt from; LogError where its log is no longer there, or has changed."""
    fix = "pass the training episodes to tl.judge(train=...)"
    log = log_of_run(record, "the run", LogError("the log of the run was in memory only", fix=fix), fix)
    return log.take_episodes(np.flatnonzero(~np.isin(log.episode_ids, np.asarray(record.held_out))))


def store_verdict(verdict: Verdict, folder: Path, name: str) -> Path:
    """Write a verdict into a run folder, under a name and the next free number, and the policy of its safe part."""
    number = 1
    while (path := folder / FOLDER / f"{name}-{number}.json").exists():
        number += 1
    if verdict.safe_policy is not None:
        verdict.safe_policy.save(safe_path(path))
    write(verdict, path)
    return path


def safe_path(verdict: Path) -> Path:
    """The folder of the policy that acts as the safe part of a verdict with this file."""
    return verdict.with_suffix(".policy")


def write(verdict: Verdict | Verdicts, path: Path) -> None:
    """Write a verdict, or a table of several, atomically as a JSON file."""
    write_json(path, verdict.to_json())


@dataclass(frozen=True, eq=False)
class SavedVerdict:
    """A verdict from its file, which stores neither contributions nor weights of episodes."""

    path: Path
    verdict: Verdict

    @property
    def before(self) -> int:
        """Number of earlier looks at these episodes; 0 if they were not counted."""
        count = self.verdict.context.get("judged_before")
        return count if isinstance(count, int) and not isinstance(count, bool) else 0

    @property
    def date(self) -> float:
        """Time of the verdict in seconds since 1970; if it was not recorded, the file's modification time."""
        date = self.verdict.context.get("date")
        return datetime.fromisoformat(date).timestamp() if isinstance(date, str) else self.path.stat().st_mtime

    @property
    def together(self) -> CandidateTable | None:
        """The policies that were judged together with this one; None if it was judged alone."""
        content = self.verdict.context.get("together")
        if content is None or len(content["rows"]) < 2:
            return None
        rows = tuple(map(Row.from_json, content["rows"]))
        contrasts = from_plain(tuple[Contrast, ...], content.get("contrasts", []))
        level, margin = from_plain(float, content["level"]), from_plain(float, content.get("margin", 0.0))
        return CandidateTable(rows, contrasts, margin, level, self.verdict.reward_unit)

    @property
    def name(self) -> str:
        """The name of the judged policy in its run, or among all that were judged together."""
        return str(self.verdict.context.get("name"))

    @property
    def policy(self) -> str:
        """The judged policy of the run, and whether it is sampled."""
        sample, parts = self.verdict.context.get("sample"), [str(self.verdict.context.get("name") or "")]
        if isinstance(sample, bool) and not self.verdict.is_rule:
            parts.append("sampled" if sample else "deterministic")
        return ", ".join(filter(None, parts)) or self.path.stem

    @property
    def episodes(self) -> str:
        """Fingerprint of the judged episodes."""
        log = self.verdict.context.get("log")
        return str(log.get("fingerprint") if isinstance(log, Mapping) else log)


def read_verdicts(folder: Path) -> tuple[SavedVerdict, ...]:
    """Read every verdict of a run, the newest first; CheckpointError if one is invalid.

    Without a date, the number of earlier looks at the same episodes determines the order; otherwise the files'
    modification times, which copying may change.
    """
    verdicts = [read_verdict(path) for path in sorted(folder.glob("*.json"))]

    def age(one: SavedVerdict) -> tuple[float, int]:
        if "date" in one.verdict.context:
            return one.date, one.before
        up_to = [other for other in verdicts if other.episodes == one.episodes and other.before <= one.before]
        return max(other.date for other in up_to), one.before

    return tuple(sorted(verdicts, key=age, reverse=True))


def read_verdict(path: Path) -> SavedVerdict:
    """Read one verdict file; CheckpointError if it is invalid."""
    (saved,) = _read(path, several=False).values()
    return saved


def read_judgement(path: Path) -> dict[str, SavedVerdict]:
    """Read a verdict, or a table of several, by the names of the policies; CheckpointError if it is neither."""
    return _read(path, several=True)


def _read(path: Path, several: bool) -> dict[str, SavedVerdict]:
    try:
        content = parse_saved(read_text(path))
        if several and isinstance(content.get("verdicts"), Mapping) and content["verdicts"]:
            return {name: _verdict_of(one, path) for name, one in content["verdicts"].items()}
        saved = _verdict_of(content, path)
        return {str(saved.verdict.context.get("name") or path.stem): saved}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise CheckpointError(
            f"{path} is not a verdict, or it is damaged: {error!r}", fix="remove it and judge the run again"
        ) from error


def _verdict_of(content: Mapping[str, Any], path: Path) -> SavedVerdict:
    """A verdict from its JSON; one of several errors for other content."""
    estimates = [from_plain(Estimate, {**row, "contributions": []}) for row in content["estimates"]]
    risk, unit = content["risk"], declared_unit(content.get("reward_unit"))
    kinds = get_type_hints(Verdict)
    known = {
        name: from_plain(kinds[name], value)
        for name, value in content.items()
        if name in kinds and name not in ("estimates", "weights", "risk", "reward_unit")
    }
    known |= {"estimates": Estimates(estimates), "weights": np.zeros(0), "reward_unit": unit}
    saved = SavedVerdict(path, Verdict(**known, risk=risk and Risk.from_json(risk)))
    _ = (saved.date, saved.together)  # raises now if they are invalid
    return saved
