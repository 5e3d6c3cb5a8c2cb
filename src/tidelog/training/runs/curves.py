"""Learning curves from the metrics of a run, for reports and figures.

Letters: `S` seeds, `T` reports, `R` resamples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tidelog.errors import ConfigError, nearest
from tidelog.sinks import KEYS

HELD_OUT = "held_out/"
MOST_POINTS = 120  # points of a curve; more than a chart of this width can show
MOST_SEEDS = 10  # largest number of seeds that are drawn separately
LEVEL = 0.95  # of the intervals over seeds
_RESAMPLES = 4000

Rows = Sequence[Mapping[str, Any]]
Values = np.ndarray[Any, Any]


class Kinds(NamedTuple):
    """Names of metrics by kind; a loss has the name that it has in training."""

    losses: list[str]
    evaluations: list[str]
    others: list[str]


def kinds_of(names: Iterable[str], own: Collection[str]) -> Kinds:
    """Sort the names of metrics by kind, each once; `own` are the names of the user's own evaluators."""
    kinds = Kinds([], [], [])
    for metric in dict.fromkeys(name.removeprefix(HELD_OUT) for name in names if name not in KEYS):
        evaluated = metric.startswith(("play/", "collect/return")) or metric in own
        (kinds.evaluations if evaluated else kinds.losses if "loss" in metric else kinds.others).append(metric)
    return kinds


def series(rows: Rows, metric: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Updates [T] and values [S, T] of one metric; ConfigError if no report has it."""
    reports = [row for row in rows if metric in row]
    if not reports:
        raise ConfigError(f"no report has the metric '{metric}': {nearest(metric, rows[0] if rows else ())}")
    members = sorted({row["member"] for row in reports})
    updates = sorted({row["update"] for row in reports})
    table = {(row["member"], row["update"]): row[metric] for row in reports}
    return np.asarray(updates), np.asarray([[table.get((m, u), np.nan) for u in updates] for m in members])


def thin(updates: Values, values: Values) -> tuple[Values, Values]:
    """At most `MOST_POINTS` of [T] and [S, T]: means of neighbours, over finite values."""
    values = np.where(np.isfinite(values), values, np.nan)
    if len(updates) <= MOST_POINTS:
        return updates, values
    groups = np.array_split(np.arange(len(updates)), MOST_POINTS)
    means = np.stack([_mean(values[:, group]) for group in groups], axis=1)
    return np.array([updates[group].mean() for group in groups]), means


def over_seeds(values: Values) -> tuple[Values, Values | None, Values | None]:
    """Mean [T] over seeds [S, T], and the ends of its percentile bootstrap interval (None for one seed)."""
    mean = _mean(values.T)
    if len(values) < 2:
        return mean, None, None
    generator = np.random.default_rng(0)
    seeds = len(values)
    counts = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=_RESAMPLES).astype(np.float64)  # [R, S]
    there = np.isfinite(values)
    total, size = counts @ np.where(there, values, 0.0), counts @ there
    drawn = np.where(size > 0, total / np.maximum(size, 1), mean)  # a resample of missing seeds only: use the mean
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return mean, low, high


def _mean(values: Values) -> Values:
    """Mean [S] of the finite values in [S, T]; NaN if none is finite."""
    there = np.isfinite(values)
    size = there.sum(axis=1)
    return np.where(size > 0, np.where(there, values, 0.0).sum(axis=1) / np.maximum(size, 1), np.nan)
