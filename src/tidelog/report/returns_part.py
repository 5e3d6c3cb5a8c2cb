"""Returns of episodes: of the runs' policies in evaluations, and of the logger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tidelog._text import in_unit, three_digits
from tidelog.data.log import Log
from tidelog.data.statistics import episode_returns
from tidelog.policies.statistics import Interval, bootstrap_interval, iqm, mean
from tidelog.report.frame import Source, Values, command, figure, grid, paragraph, ridges, section, table
from tidelog.report.learning_part import Line, lines_of
from tidelog.report.runs import EvaluationReturns, LogSource, SavedRun, evaluate_command, fingerprint

_MOST_RESAMPLED = 10_000  # returns
_HEAD = ("", "episodes", "mean", "95% interval", "median", "mean of the middle half (IQM)", "5% to 95%")


def returns(runs: Sequence[SavedRun], logs: Mapping[str, LogSource]) -> str:
    """The section: a chart and a table for every evaluated environment, each with the logger's returns."""
    lines, loggers = lines_of(runs), list(_loggers(runs, logs))
    reasons = [found.reason for found in logs.values() if found.log is None]
    body = [paragraph(f"{reason} The logger's returns are not shown.") for reason in reasons]
    envs = sorted({played.name for run in runs for played in run.evaluations})
    units = {found.log.reward_unit for found in logs.values() if isinstance(found.log, Log)}
    across_axis = f"return of an episode{in_unit(units.pop() if len(units) == 1 else None, 'in ')}"
    for env in envs:
        body.append(_environment(env, lines, loggers, across_axis))
    if envs and loggers:
        body.append(
            paragraph(
                "The logger's returns are those of the whole log. They are comparable with evaluated returns only if "
                "the log came from the same environment.",
                "soft",
            )
        )
    if not envs:
        body += [_only_logged(loggers, across_axis)] if loggers else []
        advice = "No policy was evaluated. If there is an environment, this command adds its returns:"
        body += [paragraph(advice), command(evaluate_command(runs[0]))]
    return section("Returns", "".join(body), "returns")


def _loggers(runs: Sequence[SavedRun], logs: Mapping[str, LogSource]) -> Iterator[Source]:
    for mark, found in logs.items():
        values = episode_returns(found.log) if isinstance(found.log, Log) else None
        if values is None or values.ndim != 1 or not np.isfinite(values).all():
            continue
        whose = [run.name for run in runs if fingerprint(run) == mark]
        yield Source("logger" if len(logs) == 1 else f"logger of {', '.join(whose)}", "log", values)


def _environment(env: str, lines: Sequence[Line], loggers: Sequence[Source], across_axis: str) -> str:
    sources, rows = list(loggers), [_row(one.name, [one.values]) for one in loggers]
    for line in lines:
        members = _members(line, [played for played in line.run.evaluations if played.name == env])
        if members:
            name = f"{line.name} ({len(members)} seed{'' if len(members) == 1 else 's'})"
            sources.append(Source(name, f"c{line.colour}", np.concatenate(members)))
            rows.append(_row(name, members))
    title = f"Distributions of returns, {env}: " + ", ".join(f"{row[0]} mean {row[2]}" for row in rows)
    picture = figure(env, ridges(title, sources, across_axis), "Vertical lines: means.")
    return grid([picture], broad=True) + table(_HEAD, rows, f"Returns, {env}", named=True)


def _only_logged(loggers: Sequence[Source], across_axis: str) -> str:
    rows = [_row(one.name, [one.values]) for one in loggers]
    title = "Distributions of the returns in the log: " + ", ".join(f"{row[0]} mean {row[2]}" for row in rows)
    picture = figure("as recorded", ridges(title, loggers, across_axis), "Vertical lines: means.")
    return grid([picture], broad=True) + table(_HEAD, rows, "Returns in the log", named=True)


def _members(line: Line, evaluations: Sequence[EvaluationReturns]) -> list[Values]:
    """Returns of each seed over all evaluations."""
    members = []
    for member in line.members:
        mine = [played.returns[member] for played in evaluations if member < len(played.returns)]
        members += [np.concatenate(mine)] if mine else []
    return members


def _row(name: str, members: Sequence[Values]) -> list[str]:
    """Cells of a row of the returns table, from the returns of each seed."""
    values, ends = np.concatenate(members), _interval(members)
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    return [
        name,
        f"{len(values):,}",
        three_digits(ends.estimate),
        f"{three_digits(ends.low)} to {three_digits(ends.high)}",
        three_digits(middle),
        three_digits(iqm(values)),
        f"{three_digits(low)} to {three_digits(high)}",
    ]


def _interval(members: Sequence[Values]) -> Interval:
    """Interval of the mean: resamples seeds, or the episodes of a single seed; for many episodes it is normal."""
    if len(members) > 1:
        return bootstrap_interval(np.array([one.mean() for one in members]), mean)
    (values,) = members
    if len(values) <= _MOST_RESAMPLED:
        return bootstrap_interval(values, mean)
    average, half = float(values.mean()), 1.96 * float(values.std()) / len(values) ** 0.5
    return Interval(average, average - half, average + half)
