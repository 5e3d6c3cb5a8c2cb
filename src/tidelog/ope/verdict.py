"""The verdict: its figure, its limits, its contents, and its file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from tidelog._files import parse_saved, read_text, write_json
from tidelog._text import amount, facts_table, in_unit, rows_table, with_ends
from tidelog.data.columns import declared_unit
from tidelog.data.log import Log
from tidelog.data.raw import source_text
from tidelog.errors import CheckpointError, ConfigError, LogError, nearest
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
    """Draw one row for each estimate and one for the behaviour policy; the deciding estimate is in colour and named.

    If the log does not support the estimates, all of them are grey.
    """
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
    """Recommend one of the candidates, or none; `margin` is the loss below which a rule is no worse.

    Of several better ones of a kind, that with the highest lower end is the best.
    """
    better = [one for one in candidates if one.decision == "better"]
    kinds = ([one for one in better if (one.rule is not None) == is_rule] for is_rule in (False, True))
    learnt, rule = (max(kind, key=lambda one: one.difference.low, default=None) for kind in kinds)
    if rule is None:
        return (
            Recommendation(None, "nothing is better")
            if learnt is None
            else Recommendation(learnt.name, "the only kind")
        )
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
        conditional = [one for one in rows if one.decision == "better if randomised"]
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
        number = (
            "" if row.decision == "unsupported" else f"{with_ends(row.difference, self.unit, sign=True)} per episode"
        )
        why = ""
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


class LadderStep(NamedTuple):
    """A part of a policy that was judged in place of the whole; the others of its decisions stay as they are."""

    by: str  # "support": where the log shows its actions; "share": in each decision with a probability
    level: float  # largest ratio of an action's probability to that of the present practice; or the probability
    share: float  # of the judged decisions that are the policy's
    decision: Decision
    difference: Interval  # mean return per episode minus that of the behaviour policy

    @property
    def where(self) -> str:
        """Which decisions are the policy's, in words."""
        if self.by == "share":
            return f"with probability {self.level:g} in each decision"
        return f"where the log shows its actions ({self.share:.0%} of decisions)"


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
        step = self.safe
        gain, least = (
            amount(one, self.reward_unit, sign=True) for one in (step.difference.estimate, step.difference.low)
        )
        rest = "in the other decisions" if step.by == "support" else "with larger probabilities"
        number = f"{gain} per episode (lower limit {least}, {percent(self.level)} confidence)"
        return f"It is better {step.where}: {number}; {rest} the log cannot tell."

    @property
    def first_steps(self) -> int | None:
        """The number of decisions of an episode that were judged; None: all."""
        return self.context.get("first_steps")

    @property
    def advice(self) -> str:
        """What to do with the policy, in one sentence."""
        known = not self.context.get("overlap_unknown")
        advice = advice_on(self.decision, None if self.is_rule else self.acting, known, self.first_steps)
        return advice if self.safe is None else f"Use it only {self.safe.where}, and keep what you have elsewhere."

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
        """Return a matplotlib figure: every estimate with its interval, and the behaviour policy; the deciding one is
        marked.

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
        "sample": step.by == "share" or verdict.acting == "sample",
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

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

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
        """Supported policy with the highest lower end of the difference from the behaviour policy; None if there is
        none.
        """
        low = {name: one.difference.low for name, one in self.items() if one.decision != "unsupported"}
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
        """What to do with these policies, in a few sentences."""
        return self.answer.text

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
        origin: Any = record.data.origin
        if origin is None:
            raise ConfigError(f"the log of {folder} was in memory only", fix="pass it, or another log, with --data")
        log = reopen(origin)
        if log.fingerprint() != record.data.fingerprint:
            raise LogError(
                f"{source_text(origin)} is no longer the log that {folder} was trained on: its content has changed",
                fix="pass the log to judge on with --data",
            )
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


def training_part(record: Record) -> Log:
    """The episodes that a run learnt from; LogError where its log is no longer there, or has changed."""
    origin: Any = record.data.origin
    if origin is None:
        raise LogError("the log of the run was in memory only", fix="pass the training episodes to tl.judge(train=...)")
    log = reopen(origin)
    if log.fingerprint() != record.data.fingerprint:
        raise LogError(f"{source_text(origin)} is no longer the log that the run was trained on")
    return log.take_episodes(np.flatnonzero(~np.isin(log.episode_ids, np.asarray(record.held_out))))


def store_verdict(verdict: Verdict, folder: Path, name: str) -> Path:
    """Write a verdict atomically into a run folder, under a name and the next free number.

    The policy of its safe part is saved beside it (`safe_path`).
    """
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
        context, sample = self.verdict.context, self.verdict.context.get("sample")
        how = (
            ("sampled" if sample else "deterministic") if isinstance(sample, bool) and not self.verdict.is_rule else ""
        )
        return ", ".join(filter(None, [str(context.get("name") or ""), how])) or self.path.stem

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
    try:
        content = parse_saved(read_text(path))
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
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise CheckpointError(
            f"{path} is not a verdict, or it is damaged: {error!r}", fix="remove it and judge the run again"
        ) from error
