"""Quality of a recommender's lists on its held-out period, compared with counting baselines.

The table is computed with the report: policies and baselines make lists for the same events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tidelog.algorithms.core.registry import ALGORITHMS
from tidelog.errors import TidelogError
from tidelog.policies.statistics import Interval
from tidelog.recommend.interactions.held_out import next_events
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.metrics.baselines import ItemKNN, Markov, OwnFrequency, Popularity, Ranker
from tidelog.recommend.metrics.ranked_lists import Comparison, compare
from tidelog.report.frame import bullets, heading, paragraph, section, table
from tidelog.report.learning_part import Line, lines_of
from tidelog.report.saved import LogSource, SavedRun, fingerprint, ranks
from tidelog.training.runs.policies import member_policy
from tidelog.training.runs.run import collapsed_metrics

MOST_CASES = 2_000  # largest number of held-out events
MOST_MEMBERS = 5  # largest number of seeds per algorithm
LENGTH = 10  # of lists
MEASURES = ("hit rate", "ndcg", "mrr", "reward", "discounted reward", "popularity lift", "cold share")
ALONE = "encoder alone"


def lists(runs: Sequence[SavedRun], logs: Mapping[str, LogSource]) -> str:
    """The section about recommender runs: for every log a table of its runs and of baselines, and warnings."""
    mine = [run for run in runs if ranks(run)]
    if not mine:
        return ""
    body = []
    for mark, found in logs.items():
        lines = [line for line in lines_of(mine) if fingerprint(line.run) == mark]
        if lines:
            body += [heading(", ".join(line.name for line in lines))] if len(logs) > 1 else []
            body.append(_one_log(found, lines))
    return section("Lists", "".join(body) + _collapses(mine), "lists")


def _one_log(found: LogSource, lines: Sequence[Line]) -> str:
    share = min(line.run.record.options.held_out for line in lines)
    if not isinstance(found.log, Interactions):
        return paragraph(f"{found.reason} The quality of lists is not shown.")
    if not share:
        return paragraph("A run held out no period, so the quality of its lists is unknown. fix: train with held_out.")
    split = found.log.split(share=share)
    cases = next_events(split.test, split.test.targets)
    scope = f"all {len(cases):,} events"
    if len(cases) > MOST_CASES:
        chosen = np.sort(np.random.default_rng(0).permutation(len(cases))[:MOST_CASES])
        cases, scope = cases.select(chosen), f"{MOST_CASES:,} random events"
    notes: list[str] = []
    baselines: tuple[Ranker, ...] = (
        Popularity.of(split.train),
        Markov.of(split.train),
        ItemKNN.of(split.train),
        OwnFrequency.of(split.train, filled=True),
    )
    rankers = dict(zip(_COUNTED, baselines, strict=True)) | dict(_learnt(lines, notes))
    k = min(LENGTH, len(found.log.items) - 1)
    compared = compare(rankers, cases, split.train.counts, k, found.log.events)
    explanation = (
        f"Lists of {k} items for {scope} from {split.at} on. This period selected only the weight of Q; nothing else "
        "was trained on it. The 95 % intervals are over users. Predicting the next item rewards imitation of the log: "
        "it cannot show what is good in the long run."
    )
    head = ("", "events", "cases", *MEASURES, "coverage", "entropy")
    rows = []
    for row in compared.rows:
        scores = [_between(row.scores[measure]) for measure in MEASURES]
        diversity = [f"{value:.3f}" for value in row.diversity.values()]
        rows.append([row.ranker, row.kind, f"{row.cases:,}", *scores, *diversity])
    marked = [
        place for place, row in enumerate(compared.rows) if row.ranker not in _COUNTED and ALONE not in row.ranker
    ]
    body = [paragraph(explanation, "soft"), *map(paragraph, notes)]
    body.append(table(head, rows, "Lists on the held-out period", marked=marked, named=True))
    return "".join(body) + bullets(_gains(compared, rankers))


_COUNTED = ("popularity", "last-item Markov", "item-kNN", "own frequency")


def _learnt(lines: Sequence[Line], notes: list[str]) -> Iterator[tuple[str, Ranker]]:
    """Every policy, and its encoder alone; policies that cannot be loaded are added to `notes`."""
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
            yield f"{name}, {ALONE}", policy.ranker(supervised=True)


def _gains(found: Comparison, rankers: Mapping[str, Ranker]) -> Iterator[str]:
    """Gain of Q over the encoder alone, on the same users."""
    for name in rankers:
        alone = f"{name}, {ALONE}"
        if alone in rankers:
            gain = found.difference(name, alone, "discounted reward")
            side = "higher than" if gain.low > 0 else "lower than" if gain.high < 0 else "no different from"
            yield (
                f"{name}: discounted reward {side} that of its {ALONE}, {gain.estimate:+.4f} ({gain.low:+.4f} to "
                f"{gain.high:+.4f})."
            )


def _between(score: Interval) -> str:
    if not all(np.isfinite(score)):
        return "none"
    return f"{score.estimate:.3f} ({score.low:.3f} to {score.high:.3f})"


def _collapses(runs: Sequence[SavedRun]) -> str:
    """Warnings if coverage or entropy fell far below its best during training; else a sentence that it did not."""
    names = {run.record.algorithm for run in runs}
    watched = {name: getattr(ALGORITHMS.get(name), "watched_metrics", ()) for name in names}
    warnings = [
        f"{run.name}, seed {row['seed']}: {name} fell to {row[name]:.3g} at update {row['update']:,}, below a quarter "
        "of its best: fewer and fewer items are recommended. fix: lower the weight of Q or its learning rate, or raise "
        "the threshold."
        for run in runs
        for place, row in enumerate(run.rows)
        for name in collapsed_metrics(watched[run.record.algorithm], row, run.rows[:place])
    ]
    if not warnings:
        return paragraph("No collapse: coverage and entropy of lists never fell below a quarter of their best.")
    return heading("Collapse") + bullets(warnings)
