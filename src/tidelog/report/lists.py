"""Quality of a recommender's lists on its held-out period, compared with counting baselines.

The table is computed with the report: policies and baselines make lists for the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tidelog._text import in_unit, three_digits, with_ends
from tidelog.algorithms.short_form import ALGORITHMS
from tidelog.errors import TidelogError
from tidelog.plots import Reach, intervals
from tidelog.policies.statistics import Interval
from tidelog.recommend.evaluate import (
    LEADING,
    RULES,
    SUBJECTS,
    RankerComparison,
    advise,
    best_rule,
    compare,
    counting_rules,
)
from tidelog.recommend.interactions import Interactions, held_out_cases, split_users
from tidelog.report.frame import (
    banner,
    bullets,
    definitions,
    figure,
    folded,
    heading,
    paragraph,
    section,
    table,
)
from tidelog.report.policies import Line, lines_of
from tidelog.report.runs import LogSource, SavedRun, facts, fingerprint, ranks, source
from tidelog.report.verdict import SAME, WORDS
from tidelog.runtime.ranking import Ranks
from tidelog.runtime.recommender import REPEATED
from tidelog.training.run import collapsed_metrics, member_policy, policy_of_run

MOST_CASES = 2_000  # largest number of held-out events
MOST_MEMBERS = 5  # largest number of seeds per algorithm
LENGTH = 10  # of lists
REWARDS = ("reward", "discounted reward")
SHOWN = (LEADING, "ndcg", "discounted reward", "coverage")  # measures that are not folded
MEANINGS = {
    "hit rate": "share of the events whose item is in the list",
    "ndcg": "the same, where a hit counts less the further down it is: 1 at the top, 0.63 in second place",
    "mrr": "mean of 1 / place of the item in the list, 0 if it is not there",
    "reward": "mean reward of the events whose item is in the list, 0 for the others",
    "discounted reward": "the same, where a hit counts less the further down it is",
    "popularity lift": "popularity of the listed items relative to the items taken; above 1: more popular",
    "cold share": "share of the listed items that nobody took before the held-out period",
    "novelty": "how rare the listed items are: bits of surprise, 1 more for items half as frequent",
    "coverage": "share of all items that are in any list",
    "entropy": "how evenly items are listed: 1 if all are listed equally often, 0 for one list for everybody",
}
OF_BASKETS = {  # what else these measures mean for baskets
    "hit rate": "share of the baskets with an item in the list",
    "ndcg": "the same, for every item of the basket: a hit counts less the further down it is; 1 for the best list",
    "mrr": "mean of 1 / place of the first item of the basket in the list, 0 if none is there",
    "reward": "mean reward of the items of a basket that are in the list",
}
ALONE = "encoder alone"


def lists(
    runs: Sequence[SavedRun], logs: Mapping[str, LogSource], progress: Callable[[str, float], None] | None = None
) -> str:
    """The section about recommender runs: a sentence and a picture, a table with baselines, and warnings.

    `progress` gets the ranker whose lists are made, and the share of the section that is done.
    """
    mine = [run for run in runs if ranks(run)]
    if not mine:
        return ""
    body = []
    for number, (mark, found) in enumerate(logs.items()):
        lines = [line for line in lines_of(mine) if fingerprint(line.run) == mark]

        def tell(doing: str, share: float, before: int = number) -> None:
            if progress is not None:
                progress(doing, (before + share) / len(logs))

        if lines:
            body += [heading(", ".join(line.name for line in lines))] if len(logs) > 1 else []
            body.append(_one_log(found, lines, tell))
    body += [facts(mine[0])] if len(runs) == 1 else []
    return section("Lists", "".join(body) + _collapses(mine), "lists")


def _one_log(found: LogSource, lines: Sequence[Line], progress: Callable[[str, float], None]) -> str:
    share = min(line.run.record.options.held_out for line in lines)
    if not isinstance(found.log, Interactions):
        return paragraph(f"{found.reason} The quality of lists is not shown.")
    if not share:
        return paragraph("A run held out no period, so the quality of its lists is unknown. fix: train with held_out.")
    split = found.log.split(share=share)
    shares = (line.run.record.options.selection_share for line in lines)
    chose = max((share for share in shares if share < 1.0), default=0.0)  # where only some held-out users choose
    test = split_users(split.test, chose)[1] if chose else split.test
    baskets, rows = found.log.has_baskets, test.targets
    cases = held_out_cases(test, MOST_CASES)
    number = len(np.unique(found.log.user[rows])) if baskets else len(rows)
    scope = f"all {len(cases):,}" if len(cases) == number else f"{len(cases):,} random"
    scope = f"the first held-out baskets of {scope} users" if baskets else f"{scope} events"
    notes: list[str] = []
    learnt = dict(_learnt(lines, notes))
    progress("rules that count", 0.0)
    rankers = learnt | counting_rules(split.train)
    k = min(LENGTH, len(found.log.items) - 1)
    compared = compare(rankers, cases, split.train.counts, k, found.log.events, progress=progress)
    explanation = (
        f"Lists of {k} items for {scope} from {split.at} on, in {source(lines[0].run.record, short=True)}. "
        f"{_SELECTED[bool(chose)]} Nothing was trained on this period. The 95% intervals are over users. Predicting "
        "the next item rewards imitation of the log: it cannot show what is good in the long run."
    )
    if baskets:
        explanation += (
            f" {found.log.basket_share:.1%} of the log's events have the same time as another event of their user. The "
            "order within such a basket has no meaning, so all items of a basket count alike, and no rule reads the "
            "last item."
        )
    share = found.log.repeat_share
    repeats = _EARLIER_ITEMS + _REPEATS[share < REPEATED].format(share=share)
    body = [_lead(compared, learnt, "baskets" if baskets else "events"), *map(paragraph, notes)]
    body += [paragraph(repeats, "soft"), paragraph(explanation, "soft")]
    unit = found.log.reward_unit
    body.append(_measures_table(compared, SHOWN, "Lists on the held-out period", unit, every_kind=False))
    wide = _measures_table(compared, tuple(MEANINGS), "Every measure, by kind of event", unit, every_kind=True)
    meanings = definitions((MEANINGS | (OF_BASKETS if baskets else {})).items())
    body += [folded("Every measure, and what it means", meanings + wide), bullets(_gains(compared, rankers, unit))]
    return "".join(body)


_SELECTED = (  # by whether some users choose the policy and the others are reported
    "This period selected one number only, the weight of the learnt values (Q), 0 unless a gain is shown.",
    "Other users of this period chose the update that is kept and the weight of the learnt values (Q), 0 unless a gain "
    "is shown.",
)
_EARLIER_ITEMS = "The measured lists may contain items that the user took before. "
_REPEATS = (  # by whether such items are left out by default
    "Users take the same items again in {share:.0%} of the events, so the lists of `tidelog act` and "
    "`tidelog serve` may contain them, too (`--exclude-seen yes` leaves them out).",
    "Users do so in {share:.0%} of the events only, so `tidelog act` and `tidelog serve` leave these items out "
    "(`--exclude-seen no` keeps them).",
)


def _lead(compared: RankerComparison, learnt: Mapping[str, Ranks], unit: str) -> str:
    """What to do, one sentence and one picture: the first policy's hit rate and that of the best counting rule."""
    rates = {row.ranker: row for row in compared.rows if row.kind == "all"}
    rule, (taken, hit) = best_rule(compared), SUBJECTS[unit]
    highest = rates[rule].scores[LEADING].estimate
    advice = advise(compared, next(iter(learnt)), unit) if learnt else None
    reaches = [
        Reach(name, Interval(*(100 * end for end in row.scores[LEADING])), "c0" if name in learnt else "log")
        for name, row in rates.items()
    ]
    title = f"{LEADING} in percent: " + "; ".join(f"{one.name} {with_ends(one.interval)}" for one in reaches)
    across_axis = f"% of held-out {unit} {hit} among the {compared.k} listed"
    drawn = intervals(title, reaches, 100 * highest, across_axis, ("fewer", "more"))
    text = f"Blue: policies that learnt. Grey: counting rules without learning; the line is the best of them, {rule}."
    shown = figure(f"How often {taken} is in the list", drawn, text)
    if advice is None:
        return shown
    kind, sign, _ = WORDS["better" if advice.use_policy else "worse" if advice.difference.high < 0 else SAME]
    points = Interval(*(100 * end for end in advice.difference))
    said = banner(kind, sign, advice.decision, f"{with_ends(points, sign=True)} percentage points")
    return said + paragraph(advice.sentence, "short") + shown


def _measures_table(
    compared: RankerComparison, measures: Sequence[str], caption: str, unit: str | None, *, every_kind: bool
) -> str:
    """A table of measures; `every_kind`: with a row for each kind of event, else for all events together."""
    shown = [row for row in compared.rows if every_kind or row.kind == "all"]
    rows = []
    for row in shown:
        cells = [
            three_digits(row.diversity[name]) if name in row.diversity else _between(row.scores[name])
            for name in measures
        ]
        rows.append([row.ranker, *([row.kind] if every_kind else []), f"{row.cases:,}", *cells])
    marked = [position for position, row in enumerate(shown) if row.ranker not in RULES and ALONE not in row.ranker]
    named = (f"{name}{in_unit(unit, 'in ')}" if name in REWARDS else name for name in measures)
    head = ("", *(["events"] if every_kind else []), "cases", *named)
    return table(head, rows, caption, marked=marked, named=True)


def _learnt(lines: Sequence[Line], notes: list[str]) -> Iterator[tuple[str, Ranks]]:
    """Every policy, a run's best one first, and its encoder alone where Q has a part in the lists.

    `notes` say where it has none in those used, and which policies cannot be loaded.
    """
    for run in dict.fromkeys(line.run for line in lines):
        if run.record.options.best_metric is not None:
            try:
                best = policy_of_run(run.path)
            except TidelogError as error:
                notes.append(f"{run.name}: its best policy cannot be loaded. {error}")
                continue
            yield f"{run.name}, best policy", best.ranker()
            notes += [f"{run.name}, best policy: {one}." for one in best.notes()]
    for line in lines:
        seeds = line.run.record.options.seeds
        for member in line.members[:MOST_MEMBERS]:
            name = line.name + (f", seed {seeds[member % len(seeds)]}" if len(seeds) > 1 else "")
            try:
                policy = member_policy(line.run.path, line.run.record, member)
            except TidelogError as error:
                notes.append(f"{name}: its policy cannot be loaded. {error}")
                continue
            yield name, policy.ranker()
            unused = policy.notes()  # Q has no part in the lists: they are those of the encoder alone
            if unused and line.run.record.options.best_metric is None:  # else every command uses the best policy
                notes += [f"{name}: {one}." for one in unused]
            if not unused:
                yield f"{name}, {ALONE}", policy.ranker(supervised=True)


def _gains(found: RankerComparison, rankers: Mapping[str, Ranks], unit: str | None) -> Iterator[str]:
    """Gain of Q over the encoder alone, on the same users."""
    for name in rankers:
        alone = f"{name}, {ALONE}"
        if alone in rankers:
            gain = found.difference(name, alone, "discounted reward")
            side = "higher than" if gain.low > 0 else "lower than" if gain.high < 0 else "no different from"
            yield (f"{name}: discounted reward {side} that of its {ALONE}, {with_ends(gain, unit, sign=True)}.")


def _between(score: Interval) -> str:
    if not all(np.isfinite(score)):
        return "none"
    return with_ends(score)


def _collapses(runs: Sequence[SavedRun]) -> str:
    """Warnings if coverage or entropy fell far below its best during training; else a sentence that it did not."""
    names = {run.record.algorithm for run in runs}
    watched = {name: getattr(ALGORITHMS.get(name), "watched_metrics", ()) for name in names}
    warnings = [
        f"{run.name}, seed {row['seed']}: {name} fell to {three_digits(row[name])} at update {row['update']:,}, below "
        "a quarter of its best: fewer and fewer items are recommended. fix: lower the weight of Q or its "
        "learning rate, or raise the threshold."
        for run in runs
        for position, row in enumerate(run.rows)
        for name in collapsed_metrics(watched[run.record.algorithm], row, run.rows[:position])
    ]
    if not warnings:
        return paragraph("No collapse: coverage and entropy of lists never fell below a quarter of their best.")
    return heading("Collapse") + bullets(warnings)
