"""The verdict: its figure, its limits, its contents, and its file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

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
from tidelog.training.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# A picture of a verdict: every estimate with its interval, beside the logger's mean return.

GUESSES = "The estimates are guesses outside the log: do not use them."
FIGURE_WIDTH = 540  # points


def estimates_picture(verdict: Verdict, width: float = WIDTH) -> Plot:
    """Draw one row for each estimate and one for the logger; the deciding estimate is in colour and named.

    If the log does not support the estimates, all of them are grey.
    """
    guesses = verdict.decision == "unsupported"
    rows = [
        Reach(f"{row.name} (decides)", row.interval, "log" if guesses else "c0", strong=True)
        if row.name == verdict.deciding
        else Reach(row.name, row.interval, "log")
        for row in verdict.estimates
    ]
    rows.append(Reach("logger, as recorded", verdict.logger, "c1", strong=True))
    title = "Estimated mean returns with intervals: " + "; ".join(f"{r.name} {with_ends(r.interval)}" for r in rows)
    line = verdict.logger.estimate if np.isfinite(verdict.logger.estimate) else None
    across = f"mean return per episode{in_unit(verdict.reward_unit, 'in ')}"
    return intervals(title, rows, line, across, width=width)


# Which of the judged policies to use: a learnt one that beats the simple rules, else a simple rule, else a learnt one.
#
# Pure functions of decisions and simultaneous intervals. Only what is *better* than the logger is recommended. Among
# that a simple rule has the advantage, because it can be read and checked: a learnt policy is recommended where the log
# shows that it beats the rule. That difference is one more interval that holds simultaneously with the others.

Ground = Literal["nothing is better", "the only kind", "beats the rule", "simpler", "no learnt policy is better"]


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


def recommend(candidates: Sequence[Row], contrasts: Sequence[Contrast], margin: float) -> Recommendation:
    """Recommend one of the candidates, or none; `margin` is the loss below which a rule is no worse.

    Of several better ones of a kind, that with the highest lower end is the best.
    """
    better = [one for one in candidates if one.decision == "better"]
    kinds = ([one for one in better if (one.rule is not None) == is_rule] for is_rule in (False, True))
    learnt, rule = (max(kind, key=lambda one: one.difference.low, default=None) for kind in kinds)
    if learnt is None and rule is None:
        return Recommendation(None, "nothing is better")
    if rule is None and learnt is not None:
        return Recommendation(learnt.name, "the only kind")
    if learnt is None and rule is not None:
        others = any(one.rule is None for one in candidates)
        return Recommendation(rule.name, "no learnt policy is better" if others else "the only kind")
    names = (learnt.name, rule.name) if learnt is not None and rule is not None else ("", "")
    found = next((one for one in contrasts if (one.policy, one.rule) == names), None)
    if found is not None and found.difference.low > 0.0:
        return Recommendation(names[0], "beats the rule", found)
    no_worse = found is not None and found.difference.high < margin
    return Recommendation(names[1], "simpler", found, no_worse)


# One answer over all candidates: what to do, by how much, and why. The terminal, the report and Python write this one.
#
# The rows may come from one judgement, whose intervals hold simultaneously, or from the newest ones of several runs.


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
    recommendation = recommend(rows, contrasts, margin)
    if recommendation.name is None:
        return _nothing(rows, recommendation, unit)
    row = next(row for row in rows if row.name == recommendation.name)
    headline = row.advice.replace("Use it", f"Use {row.title}", 1) if len(rows) > 1 else row.advice
    why = _why(rows, row, recommendation, margin, unit) if len(rows) > 1 else ""
    if len(rows) > 1 and simultaneous:
        why += f" The intervals hold for all {len(rows):,} at once, so it may be chosen by them."
    return OverallAnswer(recommendation, row, row.decision, headline, _in_numbers(row, unit), why.strip())


def _nothing(rows: Sequence[Row], recommendation: Recommendation, unit: str | None) -> OverallAnswer:
    """The answer where no candidate is better: the one that is better under a condition, or what all have in common."""
    conditional = [row for row in rows if row.decision == "better if randomised"]
    if conditional:
        row = max(conditional, key=lambda one: one.difference.low)
        headline = row.advice.replace("Use it", f"Use {row.title}", 1) if len(rows) > 1 else row.advice
        return OverallAnswer(recommendation, row, row.decision, headline, _in_numbers(row, unit), "")
    counts = Counter(row.decision for row in rows)
    (decision, most), *_ = counts.most_common(1)
    if len(rows) == 1:
        number = "" if decision == "unsupported" else _in_numbers(rows[0], unit)
        return OverallAnswer(recommendation, rows[0], decision, rows[0].advice, number, "")
    decisions = ", ".join(f"{counts[one]:,} {one}" for one in ADVICE if counts[one])
    shown = "none of them is shown to be better"
    if most == len(rows) and decision == "unsupported":
        shown = "the log cannot show how good any of them is"
    return OverallAnswer(recommendation, None, decision, f"Keep what you have: {shown} ({decisions}).", "", "")


def _in_numbers(row: Row, unit: str | None) -> str:
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


# Results of judging: the verdict on one policy, and the table of verdicts on several; all can be written as JSON.
#
# Letters: `E` episodes.

Decision = Literal["better", "better if randomised", "worse", "no difference shown", "unsupported"]


NEXT_STEP = " Next: "  # begins the last sentence of a paragraph
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
    paragraph: str  # summary for a decision maker
    estimand: str  # the estimated quantity: horizon, discount, truncation, which policy
    deciding: str  # name of the estimate that decides
    difference: Interval  # policy minus logger, on the same episodes
    logger: Interval  # the logger's mean return
    difference_from_bc: Interval | None  # policy minus behaviour cloning
    estimates: Estimates
    support: Support
    level: float
    episodes: int
    weights: NDArray[np.float64]  # [E]: episode weights, for charts
    context: Mapping[str, Any] = field(default_factory=dict)  # policy, log, seed, reuse, versions
    risk: Risk | None = None  # return distributions of policy and logger
    risk_reason: str | None = None  # why there is no risk
    bound: Interval | None = None  # the difference for the worst to the best return of unshown decisions
    reward_unit: str | None = None  # of every return and difference; None if the log does not name one

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
    def first_steps(self) -> int | None:
        """The number of decisions of an episode that were judged; None: all."""
        return self.context.get("first_steps")

    @property
    def advice(self) -> str:
        """What to do with the policy, in one sentence."""
        known = not self.context.get("overlap_unknown")
        return advice_on(self.decision, None if self.is_rule else self.acting, known, self.first_steps)

    @property
    def outcome(self) -> str:
        """The paragraph without the reasons, which a page lists, and without the next step."""
        text = self.paragraph.partition(NEXT_STEP)[0]
        for reason in self.reasons:
            text = text.replace(f" {reason[:1].upper()}{reason[1:]}.", "")
        return text

    @property
    def next_step(self) -> str:
        """The last sentence of the paragraph, what to do after the advice; empty if there is none."""
        return "".join(self.paragraph.partition(NEXT_STEP)[1:]).strip()

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        facts = {
            "what to do": self.advice,
            "in words": " ".join(filter(None, [self.outcome, self.next_step])),
            "difference from the logger": (
                f"{with_ends(self.difference, self.reward_unit, sign=True)}, {percent(self.level)} interval"
            ),
            "the logger's mean return": with_ends(self.logger, self.reward_unit),
            "the policy": DOES[self.acting],
            "episodes": f"{self.episodes:,}",
            "reasons": "\n".join(self.reasons),
        }
        return facts_table(f"Verdict: {self.decision}", facts)

    def plot(self) -> Figure:
        """Return a matplotlib figure: every estimate with its interval, and the logger; the deciding one is marked.

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
        plain: dict[str, Any] = _plain(content)
        return plain

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists; numbers that are not finite become None."""
        content = {
            "decision": self.decision,
            "advice": self.advice,
            "reasons": list(self.reasons),
            "paragraph": self.paragraph,
            "estimand": self.estimand,
            "deciding": self.deciding,
            "difference": self.difference._asdict(),
            "logger": self.logger._asdict(),
            "difference_from_bc": None if self.difference_from_bc is None else self.difference_from_bc._asdict(),
            "estimates": [row.to_json() for row in self.estimates],
            "support": asdict(self.support),
            "bound": None if self.bound is None else self.bound._asdict(),
            "level": self.level,
            "episodes": self.episodes,
            "weights": weight_histogram(self.weights),
            "context": dict(self.context),
            "risk": None if self.risk is None else self.risk.to_json(),
            "risk_reason": self.risk_reason,
        }
        content |= {} if self.reward_unit is None else {"reward_unit": self.reward_unit}
        plain: dict[str, Any] = _plain(content)
        return plain


def percent(level: float) -> str:
    """Level in percent, with two significant digits of its error: 95%, 97.5%, 99.9943%."""
    error = 100.0 * (1.0 - level)
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{100.0 - error:.{digits}f}".rstrip("0").rstrip(".") + "%" if digits else f"{100.0 - error:.0f}%"


NARROW = 1e-4  # decades; narrower ranges would have equal bin edges in 64 bits


def weight_histogram(weights: NDArray[np.float64]) -> dict[str, Any]:
    """Histogram of episode weights: number of exact zeros, and 40 bins of the decimal logarithm of the others."""
    positive = weights[weights > 0]
    if not len(positive):
        return {"zeros": len(weights), "counts": [], "log10_edges": []}
    logs = np.round(np.log10(positive), 6)  # weights that differ only by rounding are equal
    narrow = np.ptp(logs) < NARROW
    limits = (float(logs.min()) - 0.5, float(logs.max()) + 0.5) if narrow else None
    counts, edges = np.histogram(logs, 40, limits)
    return {"zeros": int((weights == 0).sum()), "counts": counts.tolist(), "log10_edges": edges.tolist()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value


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
        head = f"{self._count()}, differences from the logger{unit}, {percent(self.level)} simultaneous"
        return "\n".join([self.advice, head, *rows])

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        title = f"{self._count()}, {percent(self.level)} simultaneous"
        rows = [
            (name, one.decision, with_ends(one.difference, one.reward_unit, sign=True), f"{one.episodes:,}")
            for name, one in self.items()
        ]
        return rows_table(title, ("policy", "decision", "difference from the logger", "episodes"), rows)

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
        """Policies that are better than the logger, simultaneously."""
        return tuple(name for name, one in self.items() if one.decision == "better")

    @property
    def best(self) -> str | None:
        """Supported policy with the highest lower end of the difference from the logger; None if there is none."""
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
    def answer(self) -> OverallAnswer:
        """What to do with these policies, by how much, and why."""
        return answer_of(self.rows, self.contrasts, self.margin, self.verdicts[0].reward_unit)

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
        """One row per policy: name, decision, difference from the logger with its simultaneous interval."""
        return tuple(row_of(name, one) for name, one in self.items())

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
            "contrasts": [one.to_json() for one in self.contrasts],
            "margin": self.margin,
            "verdicts": {name: one.to_json() for name, one in self.items()},
        }


def row_of(name: str, verdict: Verdict) -> Row:
    """Row of one policy in the table of several."""
    support = verdict.support
    return Row(
        name,
        verdict.decision,
        verdict.difference,
        verdict.acting,
        verdict.rule,
        verdict.advice,
        support.effective_sample_size,
        verdict.episodes,
    )


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
    together |= {"contrasts": [one.to_json() for one in contrasts]}
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
# A file stores a histogram of the episodes' weights, but no contributions and no single weights. Letter: `B` bins.

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


def store_verdict(verdict: Verdict, folder: Path, name: str) -> Path:
    """Write a verdict atomically into a run folder, under a name and the next free number."""
    number = 1
    while (path := folder / FOLDER / f"{name}-{number}.json").exists():
        number += 1
    write(verdict, path)
    return path


def write(verdict: Verdict | Verdicts, path: Path) -> None:
    """Write a verdict, or a table of several, atomically as a JSON file."""
    write_json(path, verdict.to_json())


NONE = np.zeros(0)


class Together(NamedTuple):
    """The table of policies that were judged together."""

    level: float
    rows: tuple[Row, ...]
    contrasts: tuple[Contrast, ...]
    margin: float
    unit: str | None  # of rewards

    @property
    def answer(self) -> OverallAnswer:
        """What to do with these policies."""
        return answer_of(self.rows, self.contrasts, self.margin, self.unit)


@dataclass(frozen=True, eq=False)
class SavedVerdict:
    """A verdict from its file, which stores a histogram of the weights but no contributions and no single weights."""

    path: Path
    verdict: Verdict
    zeros: int  # episodes of weight 0
    counts: np.ndarray[Any, Any]  # [B]: episodes by weight
    edges: np.ndarray[Any, Any]  # [B + 1]: decimal logarithms of weights

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
    def together(self) -> Together | None:
        """The policies that were judged together with this one; None if it was judged alone."""
        content = self.verdict.context.get("together")
        if content is None or len(content["rows"]) < 2:
            return None
        rows = tuple(map(Row.from_json, content["rows"]))
        contrasts = tuple(map(Contrast.from_json, content.get("contrasts", ())))
        level, margin = _number(content["level"]), _number(content.get("margin", 0.0))
        return Together(level, rows, contrasts, margin, self.verdict.reward_unit)

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
        counts, edges = (np.asarray(content["weights"][name], np.float64) for name in ("counts", "log10_edges"))
        zeros = _whole(content["weights"]["zeros"])
        histogram = counts.ndim == edges.ndim == 1 and len(edges) == (len(counts) + 1 if len(counts) else 0)
        if not (histogram and np.isfinite(edges).all() and (np.diff(edges) > 0).all() and (counts >= 0).all()):
            raise ValueError("'weights' is not a histogram")
        saved = SavedVerdict(path, _verdict(content), zeros, counts, edges)
        _ = (saved.date, saved.together)  # raises now if they are invalid
        return saved
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise CheckpointError(
            f"{path} is not a verdict, or it is damaged: {error!r}", fix="remove it and judge the run again"
        ) from error


def _verdict(content: Mapping[str, Any]) -> Verdict:
    if content["decision"] not in get_args(Decision):
        raise ValueError(f"decision = {content['decision']!r}: expected one of {', '.join(get_args(Decision))}")
    from_bc, risk, reason = content["difference_from_bc"], content.get("risk"), content.get("risk_reason")
    context = content["context"]
    if not isinstance(context, Mapping):
        raise TypeError("'context' is not a mapping")
    return Verdict(
        decision=content["decision"],
        reasons=tuple(map(_text, content["reasons"])),
        paragraph=_text(content["paragraph"]),
        estimand=_text(content["estimand"]),
        deciding=_text(content["deciding"]),
        difference=_interval(content["difference"]),
        logger=_interval(content["logger"]),
        difference_from_bc=None if from_bc is None else _interval(from_bc),
        estimates=Estimates([_estimate(row) for row in content["estimates"]]),
        support=_support(content["support"]),
        level=_number(content["level"]),
        episodes=_whole(content["episodes"]),
        weights=NONE,
        context=dict(context),
        risk=None if risk is None else Risk.from_json(risk),
        risk_reason=None if reason is None else _text(reason),
        reward_unit=declared_unit(content.get("reward_unit")),
    )


def _estimate(row: Mapping[str, Any]) -> Estimate:
    return Estimate(
        name=_text(row["name"]),
        estimate=_number(row["estimate"]),
        low=_number(row["low"]),
        high=_number(row["high"]),
        method=_text(row["method"]),
        level=_number(row["level"]),
        support=_support(row["support"]),
        estimated=bool(row["estimated"]),
        contributions=NONE,
        note=_text(row.get("note", "")),
    )


def _support(content: Mapping[str, Any]) -> Support:
    known: dict[str, Any] = {}
    for part in fields(Support):
        value, optional = content[part.name], "None" in str(part.type)
        kind = _whole if str(part.type) == "int" else _number
        known[part.name] = None if value is None and optional else kind(value)
    return Support(**known)


def _interval(content: Mapping[str, Any]) -> Interval:
    return Interval(*(_number(content[name]) for name in Interval._fields))


def _number(value: Any) -> float:
    """A number; None means not finite."""
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected a number, found {value!r}")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected a whole number, found {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r}")
    return value
