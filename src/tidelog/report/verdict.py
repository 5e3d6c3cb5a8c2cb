"""The answer over all runs of a report, the verdict on each in words, and the estimates behind it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from tidelog._text import amount, in_unit, three_digits, with_ends
from tidelog.ope.risk import Band, Risk
from tidelog.ope.verdict import (
    DECIDING,
    UNKNOWN,
    CandidateTable,
    Contrast,
    OverallAnswer,
    Row,
    SavedVerdict,
    Verdict,
    estimates_picture,
    percent,
    safe_path,
)
from tidelog.plots import Curve, Reach, Values, curves, intervals, svg
from tidelog.report.frame import (
    banner,
    beside,
    bullets,
    command,
    definitions,
    figure,
    folded,
    grid,
    heading,
    legend,
    paragraph,
    section,
    table,
)
from tidelog.report.runs import SavedRun, evaluate_command, file_name, plain, ranks, source

# The first screen: one answer over all runs and rules, all candidates on one axis, and their table.

MOST_PICTURED = 8  # candidates on the first screen
SAME = "no difference shown"
# decision -> class of the style sheet, sign, label
WORDS = {
    "better": ("better", "▲", "Better"),
    "better if randomised": ("unknown", "△", "Better if randomised"),
    "worse": ("worse", "▼", "Worse"),
    SAME: ("same", "≈", "No difference shown"),
    "unsupported": ("unknown", "?", "Unsupported"),
}
_SHORT = 60  # characters of a rule that fits into the heading


class JudgedCandidates(NamedTuple):
    """Everything that was judged, as it was judged last."""

    candidates: CandidateTable
    saved: dict[str, SavedVerdict]  # verdicts by the names of their rows

    @property
    def part(self) -> tuple[str, SavedVerdict] | None:
        """The name and verdict of the best safe part, if no whole policy is better."""
        low = {name: one.verdict.safe.difference.low for name, one in self.saved.items() if one.verdict.safe}
        if self.candidates.answer.decision == "better" or not low:
            return None
        name = max(low, key=lambda one: low[one])
        return name, self.saved[name]


def candidates_of(runs: Sequence[SavedRun]) -> JudgedCandidates | None:
    """The newest judgement of each run, and what was judged alone later; None if nothing was judged.

    Each policy acts as it was judged last, so that a later verdict replaces its row. Several looks at the same episodes
    are held to stricter levels, so that rows of several judgements can be compared.
    """
    sets: dict[str, tuple[CandidateTable, dict[str, SavedVerdict]]] = {}  # runs that were judged at once share one
    alone: dict[str, SavedVerdict] = {}
    replaced: set[tuple[str, str]] = set()
    judged = [run for run in runs if run.verdicts and not ranks(run)]
    for run in judged:
        position = next((i for i, one in enumerate(run.verdicts) if one.together is not None), len(run.verdicts))
        later = {one.name: one for one in reversed(run.verdicts[:position])}
        alone |= {(f"{run.name}: " if len(judged) > 1 else "") + one.policy: one for one in later.values()}
        newest = run.verdicts[position].together if position < len(run.verdicts) else None
        if newest is not None:
            mark = repr(newest.rows)  # numbers that are not known are not equal
            same = [one for one in reversed(run.verdicts) if one.together and repr(one.together.rows) == mark]
            sets.setdefault(mark, (newest, {}))[1].update({one.name: one for one in same})
            replaced |= {(mark, name) for name in later}
    if not judged:
        return None
    one_set = len(sets) == 1
    rows: list[Row] = []
    saved, contrasts, margins = dict(alone), list[Contrast](), [0.0]
    for mark, (together, verdicts) in sets.items():
        name = next(run.name for run in judged if set(verdicts.values()) & set(run.verdicts))
        before = "" if one_set else f"{name}: "
        rows += [row._replace(name=before + row.name) for row in together.rows if (mark, row.name) not in replaced]
        saved |= {before + name: one for name, one in verdicts.items()}
        contrasts += [c._replace(policy=before + c.policy, rule=before + c.rule) for c in together.contrasts]
        margins.append(together.margin)
    rows += [Row.of(name, one.verdict) for name, one in alone.items()]
    first = next(iter(saved.values()))
    level = first.verdict.level if first.together is None else first.together.level
    at_once, unit = len(sets) + len(alone) == 1, first.verdict.reward_unit
    return JudgedCandidates(CandidateTable(tuple(rows), tuple(contrasts), max(margins), level, unit, at_once), saved)


def answer_title(judged: JudgedCandidates | None, rewards: bool = True) -> str:
    """The answer in a few words, the heading of the page; `rewards`: whether a log has any."""
    if judged is None:
        return "Not judged yet" if rewards else "No rewards, no verdict"
    candidates, answer = judged.candidates, judged.candidates.answer
    if answer.decision == "better" and answer.row is not None:
        if answer.row.rule is not None and len(answer.row.rule) <= _SHORT:
            return answer.row.rule[:1].upper() + answer.row.rule[1:]
        return f"Use {answer.row.name}" if len(candidates.rows) > 1 else "Use it"
    if answer.decision == "better if randomised":
        return "Better if the decisions were randomised"
    if judged.part is not None:
        return "Use a part of it"
    return "Keep what you have"


def answer_section(judged: JudgedCandidates) -> str:
    """The answer in a sentence, all candidates on one axis, why and what next, and the table of all."""
    candidates, answer = judged.candidates, judged.candidates.answer
    kind, sign, label = WORDS[answer.decision]
    headline, number, following = answer.headline, answer.number or label, _next(judged, answer)
    if judged.part is not None:
        name, saved = judged.part
        following = saved.verdict.next_step
        kind, sign, label = WORDS["better"]
        headline, number = f"{name}: {saved.verdict.advice}", saved.verdict.ladder_sentence
    parts = [
        banner(kind, sign, headline, number),
        _picture(candidates, answer),
        paragraph(" ".join(filter(None, [answer.why, following])), "short"),
    ]
    if answer.row is not None and answer.decision == "better" and answer.row.name in judged.saved:
        deploy = judged.saved[answer.row.name].verdict.context.get("deploy")  # as the judge recorded it
        parts += [command(deploy)] if isinstance(deploy, str) else []
    if judged.part is not None:
        path = safe_path(judged.part[1].path)
        parts += [command(f"tidelog export {shlex.quote(str(path))} --to zip")] if path.exists() else []
    return "".join([*parts, _table(candidates, answer)])


def _picture(candidates: CandidateTable, answer: OverallAnswer) -> str:
    """A forest plot of candidates' intervals, 0 marked, the recommended one in colour; of many, the highest ones."""
    chosen, rows = answer.row, candidates.rows
    if len(rows) > MOST_PICTURED:
        order = sorted(rows, key=lambda row: (row is chosen, row.decision != "unsupported", row.difference.low))
        rows = tuple(row for row in rows if any(row is one for one in order[-MOST_PICTURED:]))
    reaches = [
        Reach(row.name, row.difference if row.decision != "unsupported" else row.difference._replace(estimate=np.nan),
              WORDS[row.decision][0] if row is chosen else "log", strong=row is chosen)
        for row in rows
    ]  # fmt: skip
    described = "Difference from the logged decisions: " + "; ".join(
        f"{row.name} {'no number' if row.decision == 'unsupported' else with_ends(row.difference, sign=True)}"
        for row in rows
    )
    left = len(candidates.rows) - len(rows)
    rest = paragraph(f"{left:,} more are in the table.", "soft") if left else ""
    across_axis = f"difference from the logged decisions{in_unit(candidates.unit, 'in ')}"
    drawn = svg(intervals(described, reaches, 0.0, across_axis, ("worse", "better")))
    return f'<div class="answer">{drawn}</div>{rest}'


def _next(judged: JudgedCandidates, answer: OverallAnswer) -> str:
    """The next step of the verdict that the headline is about, and what the candidates do not have in common."""
    texts = []
    if len({one.episodes for one in judged.saved.values()}) > 1:
        texts.append("The candidates were judged on different episodes; judge them at once to compare them.")
    elif not judged.candidates.simultaneous:
        texts.append("The candidates were judged apart, each look at a stricter level; judge them at once to compare.")
    chosen = None if answer.row is None else judged.saved.get(answer.row.name)
    if chosen is None and answer.row is None:
        supported = [row for row in judged.candidates.rows if math.isfinite(row.effective_sample_size)]
        most = max(supported, key=lambda row: row.effective_sample_size, default=None)
        chosen = None if most is None else judged.saved.get(most.name)
    if chosen is not None and chosen.verdict.next_step:
        texts.append(chosen.verdict.next_step)
    return " ".join(texts)


def _table(candidates: CandidateTable, answer: OverallAnswer) -> str:
    rows = [(row.title, WORDS[row.decision][2].lower(), *row.cells) for row in candidates.rows]
    marked = [position for position, row in enumerate(candidates.rows) if row is answer.row]
    level = f", {percent(candidates.level)}" if candidates.simultaneous else ""
    level += " for all at once" if level and len(candidates.rows) > 1 else ""
    head = (
        "candidate", "decision", f"difference from the logged decisions{in_unit(candidates.unit, 'in ')}",
        f"interval{level}", "part of the episodes that speaks for it",
    )  # fmt: skip
    return table(head, rows, f"All {len(rows):,} candidates" if len(rows) > 1 else "The candidate", marked=marked,
                 named=True)  # fmt: skip


# The verdict on each run: banner, reasons, difference from the behaviour policy, worst episodes, and the table of
# estimates.


def headline(run: SavedRun) -> SavedVerdict:
    """The verdict that the page begins with.

    Of each policy its newest verdict counts, because it acts in the way in which it was judged last. The first is the
    recommended one of the newest set of policies that were judged together; else the best of those that are better
    (several looks at the same episodes are held to stricter levels, so that it is not better by luck); else the one
    with the best safe part; else, of that set, the supported one with the highest lower end; else the newest verdict.
    """
    newest = {one.name: one for one in reversed(run.verdicts)}
    better = [one for one in newest.values() if one.verdict.decision == "better"]
    together = next((one.together for one in run.verdicts if one.together is not None), None)
    recommended = None if together is None else newest.get(str(together.answer.recommendation.name))
    if recommended in better:
        return recommended
    names = [] if together is None else [row.name for row in together.rows]
    supported = [one for one in newest.values() if one.name in names and one.verdict.decision != "unsupported"]
    partly = [one for one in newest.values() if one.verdict.safe is not None]
    if partly and not better:
        return max(partly, key=lambda one: one.verdict.safe.difference.low if one.verdict.safe else 0.0)
    first = better or supported
    if first:
        return max(first, key=lambda one: one.verdict.difference.low)
    return next((newest[name] for name in names if name in newest), run.verdicts[0])


def verdict_section(run: SavedRun) -> str:
    """The headline's verdict in words with its interval, how it was judged, and all others."""
    if not run.verdicts:
        return _none(run)
    shown = headline(run)
    verdict = shown.verdict
    first, *others = verdict.reasons
    assumed = folded("What this answer rests on", bullets(others)) if others else ""
    parts = "".join([paragraph(verdict.outcome), bullets([first]), assumed])
    body = [paragraph(_in_short(run, shown), "soft")]
    if verdict.decision == "unsupported":
        body += [parts, folded("The numbers, which are guesses outside the log", _difference(verdict))]
    else:
        body.append(beside(parts, _difference(verdict)))
    if verdict.ladder:  # parts of a policy without support, from the one that is easiest to judge
        rows = [Reach(one.title, one.difference, WORDS[one.decision][0], strong=True) for one in verdict.ladder]
        text = f"{verdict.ladder_sentence} The next part is asked about only if the one before is better."
        body.append(_differences("Parts of the policy, with {} intervals", verdict, rows, text))
    if verdict.groups:
        rows = [
            Reach(f"{one.name} ({one.episodes:,} episodes)", one.difference, WORDS[one.decision][0], strong=True)
            for one in verdict.groups
        ]
        name = f"For whom: the difference by {verdict.by}, with {{}} intervals for all groups at once"
        body.append(_differences(name, verdict, rows, " ".join(verdict.groups_sentences)))
    body += [folded("How it was judged", _judging_method(shown)), _worst_episodes(verdict.risk, verdict.risk_reason)]
    if len(run.verdicts) > 1:
        listed_rows = [
            [one.path.stem, one.policy, one.verdict.decision,
             UNKNOWN if one.verdict.decision == "unsupported" else with_ends(one.verdict.difference, sign=True),
             one.verdict.deciding, f"{one.verdict.episodes:,}", _day(one)]
            for one in run.verdicts
        ]  # fmt: skip
        difference = f"difference from the behaviour policy{in_unit(verdict.reward_unit, 'in ')}"
        head = ("file", "policy", "decision", difference, "deciding estimator", "episodes", "date")
        marked = [position for position, one in enumerate(run.verdicts) if one is shown]
        listed = table(head, listed_rows, "All verdicts on this run, the newest first", named=True, marked=marked)
        body.append(folded(f"All {len(run.verdicts):,} verdicts on this run", listed))
    return "".join(body)


def _in_short(run: SavedRun, shown: SavedVerdict) -> str:
    """The judged policy with its difference, the date, and the file of the judged episodes, in two sentences."""
    verdict = shown.verdict
    number = "the log shows no reliable number for it"
    if verdict.decision != "unsupported" and np.isfinite(verdict.difference.estimate):
        low, high = (three_digits(end, sign=True) for end in verdict.difference[1:])
        number = (
            f"{amount(verdict.difference.estimate, verdict.reward_unit, sign=True)} per episode compared with the "
            f"behaviour policy ({percent(verdict.level)} interval: {low} to {high})"
        )
    log = verdict.context.get("log")
    file = log.get("source") if isinstance(log, Mapping) else None
    where = file_name(str(file)) if file else source(run.record, short=True)
    return f"{shown.policy}: {number}. Judged on {_day(shown)} on {verdict.episodes:,} episodes of {where}."


def _day(saved: SavedVerdict) -> str:
    return datetime.fromtimestamp(saved.date, UTC).date().isoformat()


def _none(run: SavedRun) -> str:
    if not run.has_log:
        text = (
            f"This run learnt in the environment {run.record.environment}, so there is no log to judge it on. Its "
            "returns there show how good it is; this command plays its policies:"
        )
        return paragraph(text) + command(evaluate_command(run))
    held_out = len(run.record.held_out)
    if not run.record.has_rewards:
        text = (
            "The log has no rewards, so no policy can be judged better or worse than its decisions. How well the "
            f"policy imitates them is said below, under Actions{' (of its held-out episodes)' if held_out else ''}. "
            "To judge policies, name a reward in the mapping and train again."
        )
        return paragraph(text)
    text = f"This run was not judged yet. This command judges it on its {held_out:,} held-out episodes:"
    if not held_out:
        text = (
            "This run was not judged yet, and it held no episodes out. Judging needs a log that it did not learn from:"
        )
    return paragraph(text) + command(run.record.judge_command(run.path))


def _difference(verdict: Verdict) -> str:
    kind = WORDS[verdict.decision][0]
    rows = [Reach("policy minus behaviour policy", verdict.difference, kind, strong=True)]
    if verdict.difference_from_bc is not None:
        rows.append(Reach("policy minus clone", verdict.difference_from_bc, "log", strong=True))
    guess = verdict.decision == "unsupported"
    warning = "Do not use these numbers: the log has too little support for them. " if guess else ""
    clone = " The clone is a policy that imitates the behaviour policy (behaviour cloning)." if len(rows) > 1 else ""
    mean = f"The behaviour policy's mean return is {with_ends(verdict.behavior_policy, verdict.reward_unit)}."
    return _differences("Difference in mean return, with {} intervals", verdict, rows, f"{warning}{mean}{clone}")


def _differences(name: str, verdict: Verdict, rows: Sequence[Reach], text: str) -> str:
    """A picture of differences from the behaviour policy; its name has the level of the intervals."""
    name = name.format(percent(verdict.level))
    texts = []
    for row in rows:
        ends = with_ends(row.interval, sign=True) if math.isfinite(row.interval[0]) else "cannot tell"
        texts.append(f"{row.name} {ends}")
    described = f"{name}: {'; '.join(texts)}"
    across_axis = f"difference in mean return per episode{in_unit(verdict.reward_unit, 'in ')}"
    return figure(name, intervals(described, rows, 0.0, across_axis, ("worse", "better")), text)


def _judging_method(shown: SavedVerdict) -> str:
    """The explanation of the verdict, and every setting."""
    explanation = shown.verdict.explanation
    facts = {name: value for name, value in shown.verdict.context.items() if name not in ("together", "earlier_looks")}
    pairs = ((name, plain(value)) for name, value in _flat(facts))
    texts = ("".join(paragraph(one, "soft") for one in part) for part in (explanation.basis, explanation.end))
    return bullets(explanation.lines).join(texts) + definitions(pairs, tight=True)


_YES_OR_NO = 2  # different returns


def _worst_episodes(risk: Risk | None, reason: str | None) -> str:
    """The part, or the reason for its absence; empty for old verdicts without distributions."""
    if risk is None:
        text = f"No distribution of returns: {reason}."
        return "" if reason is None else heading("Worst episodes") + paragraph(text, "soft")
    if len(np.unique(risk.points)) <= _YES_OR_NO:  # the mean says it all
        return ""
    worst = f"mean of the worst {100 * risk.alpha:.4g}% (CVaR)"
    rows = [[worst, *(with_ends(interval) for interval in risk.cvar)]]
    if risk.probability is not None and risk.bad_outcome is not None:
        name = f"probability of {three_digits(risk.bad_outcome)} or less"
        rows.append([name, *(with_ends(interval) for interval in risk.probability)])
    rows += [
        [f"{100 * share:.4g}% of episodes earn at most", *(with_ends(interval) for interval in intervals)]
        for share, *intervals in risk.quantiles
    ]
    head = (f"return{in_unit(risk.reward_unit, 'in ')}", "policy", "behavior_policy", "difference")
    numbers = table(head, rows, "Worst episodes and quantiles, with simultaneous intervals", named=True)
    return heading("Worst episodes") + beside(bullets(risk.sentences) + numbers, _distribution(risk))


def _distribution(risk: Risk) -> str:
    """Both distribution functions as step functions with their bands."""
    drawn = [
        _step_curve("policy", 0, risk.points, risk.policy),
        _step_curve("behavior_policy", 1, risk.points, risk.behavior_policy, dashed=True),
    ]
    cvar = risk.cvar
    title = (
        f"Share of episodes with at most each return, from {three_digits(risk.lowest)} to {three_digits(risk.highest)}"
        f", policy and behaviour policy; mean of the worst episodes {with_ends(cvar.policy)} and "
        f"{with_ends(cvar.behavior_policy)}"
    )
    explanation = (
        f"Share of episodes that earn at most each return: a curve further to the right is better. The bands hold "
        f"simultaneously at all returns, with {percent(risk.level)} confidence."
    )
    keys = legend([("c0", "policy"), ("c1", "behaviour policy (dashed)")])
    across_axis = f"return of an episode{in_unit(risk.reward_unit, 'in ')}"
    picture = curves(title, drawn, "share of episodes with at most this return", across_axis)
    return figure("Distribution of returns", picture, explanation, keys)


def _step_curve(name: str, colour: int, points: Values, band: Band, dashed: bool = False) -> Curve:
    """A distribution function as steps at its points, from 0."""
    across = np.repeat(points, 2)
    low, middle, high = (np.append(0.0, np.repeat(part, 2)[:-1]) for part in (band.low, band.estimate, band.high))
    return Curve(name, colour, across, middle, low, high, middle[None], dashed)


def estimates(runs: Sequence[SavedRun]) -> str:
    """The section: every estimator with its interval and support."""
    body = []
    for run in runs:
        body += [heading(run.name)] if len(runs) > 1 else []
        if run.verdicts:
            body.append(_one(headline(run).verdict))
        else:
            body.append(paragraph("No verdict, so no estimates."))
    return section("Estimates and their support", "".join(body), "estimates")


def _one(verdict: Verdict) -> str:
    if not verdict.estimates:
        return paragraph("No estimate was computed; see the reasons of the verdict.")
    text = (
        f"{verdict.deciding} decides. The line is the behaviour policy's mean return; arrows point to ends outside the "
        "chart."
    )
    picture = figure("Mean return, estimated", estimates_picture(verdict), text)
    size = f"{three_digits(verdict.support.effective_sample_size)} of {verdict.support.episodes:,}"
    meaning = paragraph(
        f"Effective sample size {size}: weighted for this policy, the log is as informative as that many episodes made "
        "by the policy."
    )
    level = f"interval, {percent(verdict.estimates[0].level)}"
    head = ("estimator", "estimate", level, "effective sample size", "largest weight", "note")
    rows = verdict.estimates.rows()
    wide = table(head, rows, "Every estimator with its support", named=True)
    if verdict.decision == "unsupported":
        guesses = "".join([picture, _deciding_table(verdict), wide])
        return meaning + folded("Guesses outside the log: do not use them", guesses)
    closer = folded(f"All {len(rows):,} estimators with their support, for a closer look", wide)
    return "".join([grid([picture], broad=True), meaning, _deciding_table(verdict), closer])


def _deciding_table(verdict: Verdict) -> str:
    """The deciding estimator with its difference, which is the verdict's, and the policies it is compared with."""
    deciding = [row for row in verdict.estimates if row.name == verdict.deciding]
    rows = [
        (f"policy, by {DECIDING.get(row.name, row.name)}", with_ends(row.interval),
         f"{with_ends(verdict.difference, sign=True)}, {percent(verdict.level)} interval",
         f"{three_digits(row.support.effective_sample_size)} of {row.support.episodes:,}")
        for row in deciding
    ]  # fmt: skip
    size = f"{verdict.episodes:,} of {verdict.episodes:,}"
    rows.append(("behaviour policy, as recorded", with_ends(verdict.behavior_policy), "0", size))
    unit = in_unit(verdict.reward_unit, "in ")
    head = ("", f"mean return{unit}", "difference from the behaviour policy", "effective sample size")
    marked = range(len(deciding))
    return table(head, rows, "The deciding estimator and its difference", named=True, marked=marked)


def _flat(context: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in context.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name} ")
        else:
            yield f"{before}{str(name).replace('_', ' ')}", value
