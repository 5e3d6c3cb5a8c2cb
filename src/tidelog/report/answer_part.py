"""The first screen of the report: one answer over all runs and rules, all candidates on one axis, and their table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidelog._text import in_unit, three_digits, with_ends
from tidelog.ope.recommendation import Contrast, OverallAnswer, Row, answer_of
from tidelog.ope.verdict import SavedVerdict, Together, percent, row_of
from tidelog.report.frame import Reach, banner, command, intervals, paragraph, table
from tidelog.report.runs import SavedRun, ranks

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
GUESS = "unknown"  # stands for the numbers of an unsupported policy, which the log does not show


class JudgedCandidates(NamedTuple):
    """Everything that was judged, as it was judged last."""

    rows: tuple[Row, ...]
    saved: dict[str, SavedVerdict]  # verdicts by the names of their rows
    contrasts: tuple[Contrast, ...]
    margin: float
    level: float | None  # with which all intervals hold at once; None: the rows are from several judgements
    unit: str | None

    @property
    def answer(self) -> OverallAnswer:
        """What to do."""
        return answer_of(self.rows, self.contrasts, self.margin, self.unit, simultaneous=self.level is not None)


def candidates_of(runs: Sequence[SavedRun]) -> JudgedCandidates | None:
    """The newest judgement of each run, and what was judged alone later; None if nothing was judged.

    Each policy acts as it was judged last, so that a later verdict replaces its row. Several looks at the same episodes
    are held to stricter levels, so that rows of several judgements can be compared.
    """
    sets: dict[str, tuple[Together, dict[str, SavedVerdict]]] = {}  # runs that were judged at once share one
    alone: dict[str, SavedVerdict] = {}
    replaced: set[tuple[str, str]] = set()
    judged = [run for run in runs if run.verdicts and not ranks(run)]
    for run in judged:
        place = next((i for i, one in enumerate(run.verdicts) if one.together is not None), len(run.verdicts))
        later = {one.name: one for one in reversed(run.verdicts[:place])}
        alone |= {(f"{run.name}: " if len(judged) > 1 else "") + one.policy: one for one in later.values()}
        for newest in filter(None, [one.together for one in run.verdicts[place : place + 1]]):
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
        before = (
            "" if one_set else f"{next(run.name for run in judged if set(verdicts.values()) & set(run.verdicts))}: "
        )
        rows += [row._replace(name=before + row.name) for row in together.rows if (mark, row.name) not in replaced]
        saved |= {before + name: one for name, one in verdicts.items()}
        contrasts += [Contrast(before + c.policy, before + c.rule, c.difference) for c in together.contrasts]
        margins.append(together.margin)
    rows += [row_of(name, one.verdict) for name, one in alone.items()]
    first = next(iter(saved.values()))
    level = first.verdict.level if first.together is None else first.together.level
    apart = len(sets) + len(alone) > 1
    unit = first.verdict.reward_unit
    return JudgedCandidates(tuple(rows), saved, tuple(contrasts), max(margins), None if apart else level, unit)


def title(candidates: JudgedCandidates | None, rewards: bool = True) -> str:
    """The answer in a few words, the heading of the page; `rewards`: whether a log has any."""
    if candidates is None:
        return "Not judged yet" if rewards else "No rewards, no verdict"
    answer = candidates.answer
    if answer.decision == "better" and answer.row is not None:
        if answer.row.rule is not None and len(answer.row.rule) <= _SHORT:
            return answer.row.rule[:1].upper() + answer.row.rule[1:]
        return f"Use {answer.row.name}" if len(candidates.rows) > 1 else "Use it"
    if answer.decision == "better if randomised":
        return "Better if the decisions were randomised"
    return "Keep what you have"


def answer_section(candidates: JudgedCandidates) -> str:
    """The answer in a sentence, all candidates on one axis, why and what next, and the table of all."""
    answer = candidates.answer
    kind, sign, label = WORDS[answer.decision]
    parts = [
        banner(kind, sign, answer.headline, answer.number or label),
        _picture(candidates, answer),
        paragraph(" ".join(filter(None, [answer.why, _next(candidates, answer)])), "short"),
    ]
    line = _command(candidates, answer)
    parts += [command(line)] if line else []
    return "".join([*parts, _table(candidates, answer)])


def _picture(candidates: JudgedCandidates, answer: OverallAnswer) -> str:
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
    return f'<div class="answer">{intervals(described, reaches, 0.0, across_axis, ("worse", "better"))}</div>{rest}'


def _next(candidates: JudgedCandidates, answer: OverallAnswer) -> str:
    """The next step of the verdict that the headline is about, and what the candidates do not have in common."""
    texts = []
    if len({one.episodes for one in candidates.saved.values()}) > 1:
        texts.append("The candidates were judged on different episodes; judge them at once to compare them.")
    elif candidates.level is None:
        texts.append("The candidates were judged apart, each look at a stricter level; judge them at once to compare.")
    chosen = None if answer.row is None else candidates.saved.get(answer.row.name)
    if chosen is None and answer.row is None:
        supported = [row for row in candidates.rows if math.isfinite(row.effective_sample_size)]
        most = max(supported, key=lambda row: row.effective_sample_size, default=None)
        chosen = None if most is None else candidates.saved.get(most.name)
    if chosen is not None and chosen.verdict.next_step:
        texts.append(chosen.verdict.next_step)
    return " ".join(texts)


def _command(candidates: JudgedCandidates, answer: OverallAnswer) -> str:
    """The command that deploys the recommended candidate, as the judge recorded it; empty without one."""
    if answer.row is None or answer.decision != "better" or answer.row.name not in candidates.saved:
        return ""
    known = candidates.saved[answer.row.name].verdict.context.get("deploy")
    return known if isinstance(known, str) else ""


def _table(candidates: JudgedCandidates, answer: OverallAnswer) -> str:
    rows, marked = [], []
    for place, row in enumerate(candidates.rows):
        unknown = row.decision == "unsupported"
        share = row.effective_sample_size / row.episodes if row.episodes else math.nan
        rows.append([
            row.title,
            WORDS[row.decision][2].lower(),
            GUESS if unknown else three_digits(row.difference.estimate, sign=True),
            GUESS if unknown else f"{three_digits(row.difference.low, sign=True)} to "
                                  f"{three_digits(row.difference.high, sign=True)}",
            f"{share:.1%}" if math.isfinite(share) else "",
        ])  # fmt: skip
        marked += [place] if row is answer.row else []
    level = "" if candidates.level is None else f", {percent(candidates.level)}"
    level += " for all at once" if level and len(candidates.rows) > 1 else ""
    head = (
        "candidate", "decision", f"difference from the logged decisions{in_unit(candidates.unit, 'in ')}",
        f"interval{level}", "part of the episodes that speaks for it",
    )  # fmt: skip
    return table(head, rows, f"All {len(rows):,} candidates" if len(rows) > 1 else "The candidate", marked=marked,
                 named=True)  # fmt: skip
