"""The lineage of population-based training: each member's numbers over updates, and who copied whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidelog.number_text import three_digits
from tidelog.report.charts import Curve, curves
from tidelog.report.frame import figure, folded, grid, paragraph, section, table
from tidelog.report.saved import SavedRun
from tidelog.training.runs.checkpoints import Checkpoints
from tidelog.training.runs.curves import series, thin
from tidelog.training.runs.exploit import Copy, number_names, number_schedule

MOST_COPIES = 200  # rows of the folded table
MOST_MEMBERS = 50  # rows of the table of members
_COLOURS = 8


def population(runs: Sequence[SavedRun]) -> str:
    """The section; empty if no run trained with a population."""
    body = [_one(run) for run in runs if run.record.options.population is not None]
    return section("Population", "".join(body), "population") if body else ""


def _one(run: SavedRun) -> str:
    """One run: its rule, a chart for each number, the members at the end, and all copies."""
    options, settings = run.record.options, run.record.options.population
    copies = Checkpoints(run.path / "checkpoints", 1).copies() if run.checkpoints else []
    names = number_names(run.record.configs, () if settings is None else settings.vary)
    members = len(run.record.configs) * len(options.seeds)
    if settings is None:
        return ""
    rule = (
        f"{run.name}: every {settings.every:,} updates the worst of {members:,} members by {settings.metric} copied "
        f"one of the best, and {', '.join(settings.vary)} changed by the factors "
        f"{', '.join(map(str, settings.factors))}. Copies: {len(copies):,}. The members are not "
        "independent, so their spread says nothing about the effect of chance, and the best of them looks too "
        "good by this metric: it was chosen by it."
    )
    charts = grid((_chart(run, name, members) for name in names), broad=True)
    head = ("member", "seed", *names, "trained under")
    shown = table(head, [_member(run, copies, names, index) for index in range(min(members, MOST_MEMBERS))],
                  "The members at the last checkpoint", named=True)  # fmt: skip
    rows = [_copy(copy, names) for copy in copies[-MOST_COPIES:]]
    head = ("update", "member", "copied", settings.metric, "of the source", *names)
    return paragraph(rule) + charts + shown + (folded("All copies" if len(rows) == len(copies) else
        f"The last {len(rows):,} of {len(copies):,} copies", table(head, rows, "Copies")) if rows else "")  # fmt: skip


def _chart(run: SavedRun, name: str, members: int) -> str:
    """One number of every member over updates, as steps between reports."""
    updates, values = thin(*series(run.rows, f"number/{name}"))
    drawn = [
        Curve(f"member {index}", index % _COLOURS, updates, one, None, None, values[:0])
        for index, one in enumerate(values)
    ]
    ends = f"At the last report from {three_digits(float(np.min(values[:, -1])))} to "
    ends += f"{three_digits(float(np.max(values[:, -1])))} among {members:,} members."
    return figure(name, curves(f"{name} over updates, a line for each member", drawn, name), ends)


def _member(run: SavedRun, copies: Sequence[Copy], names: Sequence[str], index: int) -> list[str]:
    options = run.record.options
    schedule = number_schedule(run.record.configs, options, copies, index)
    sources = [copy for copy in copies if copy.member == index]
    line = "its own start" if len(schedule) == 1 else f"{len(schedule)} settings, the first from update 0"
    line += f"; copied member {sources[-1].source} at update {sources[-1].update:,}" if sources else ""
    seed = options.seeds[index % len(options.seeds)]
    return [str(index), str(seed), *(three_digits(schedule[-1][name]) for name in names), line]


def _copy(copy: Copy, names: Sequence[str]) -> list[str]:
    value = "diverged, or no value" if copy.value is None else three_digits(copy.value)
    numbers = [three_digits(copy.numbers[name]) for name in names]
    return [f"{copy.update:,}", str(copy.member), str(copy.source), value, three_digits(copy.source_value), *numbers]
