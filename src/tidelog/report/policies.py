"""What the policies of a report do: their actions beside those of the log, their returns, and how they learnt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidelog._text import in_unit, three_digits
from tidelog.data.log import Log
from tidelog.data.statistics import episode_returns
from tidelog.errors import TidelogError
from tidelog.ope.policies import Imitation
from tidelog.plots import Source, Values, bars, curves, overlaid, ridges
from tidelog.policies.statistics import Interval, bootstrap_interval, iqm, mean
from tidelog.report.frame import (
    command,
    figure,
    folded,
    grid,
    heading,
    legend,
    paragraph,
    section,
    table,
)
from tidelog.report.runs import (
    LogSource,
    SavedRun,
    evaluate_command,
    fingerprint,
    ranks,
)
from tidelog.runtime.policy import replay_actions
from tidelog.training.metrics import LEVEL, MOST_POINTS, curves_of, kinds_of
from tidelog.training.run import member_policy, overfitting
from tidelog.types import Continuous, Discrete, Hybrid, MultiDiscrete

# Learning curves, one chart per metric.

MOST_LINES = 8  # algorithms with their own colour
_MOST_NAMED = 4  # largest number of curves in a chart whose last values are listed


@dataclass(frozen=True, eq=False)
class Line:
    """One algorithm of one run, with all its seeds and its colour on the whole page."""

    run: SavedRun
    config: int
    colour: int

    @property
    def name(self) -> str:
        """Name on the page."""
        return self.run.label(self.config)

    @property
    def members(self) -> range:
        """Members of the run that are its seeds."""
        seeds = len(self.run.record.options.seeds)
        return range(self.config * seeds, (self.config + 1) * seeds)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Reports of its seeds."""
        return [row for row in self.run.rows if row["member"] in self.members]


def lines_of(runs: Sequence[SavedRun]) -> list[Line]:
    """The first `MOST_LINES` algorithms of all runs, each with a colour."""
    pairs = [(run, config) for run in runs for config in range(len(run.record.configs))]
    return [Line(run, config, position) for position, (run, config) in enumerate(pairs[:MOST_LINES])]


def learning(runs: Sequence[SavedRun]) -> str:
    """The section: training and held-out losses, then evaluations, then all other metrics."""
    lines = lines_of(runs)
    own = {name for run in runs for name in run.record.options.own_evaluators}
    seen = [name for line in lines for row in line.rows[:1] + line.rows[-1:] for name in row]
    losses, evaluations, others = kinds_of(seen, own)
    held_out = "events" if all(map(ranks, runs)) else "episodes"
    kinds = {
        f"Losses in training and on held-out {held_out}": losses,
        "Evaluations during training": evaluations,
        "Other training metrics": others,
    }
    more = sum(len(run.record.configs) for run in runs) - len(lines)
    text = f"Solid lines: training. Dashed lines: the same loss on held-out {held_out}."
    counts = {len(line.members) for line in lines}
    if counts == {1}:
        text += " There is only one seed, so the effect of chance is unknown. fix: train several seeds."
    else:
        text += f" Thick: the mean over seeds; thin: each seed; the band: a {LEVEL:.0%} bootstrap interval of the mean."
        text += " With fewer than five seeds such a band is too narrow for its level." if min(counts) < 5 else ""
    body = [
        paragraph(text, "soft"),
        legend((f"c{one.colour}", one.name) for one in lines) if len(lines) > 1 else "",
    ]
    body += [paragraph(f"{more:,} more algorithms of the population are not shown.")] if more else []
    for line in lines:
        body += [paragraph(f"{line.name}: {note}" if len(lines) > 1 else note) for note in overfitting(line.rows)]
    for title, metrics in kinds.items():
        charts = grid((_chart(metric, lines) for metric in metrics), broad=True)
        if metrics is others and metrics:
            body.append(folded(f"{len(metrics):,} other training metrics, for a closer look", charts))
        elif metrics:
            body.append(heading(title) + charts)
    return section("Learning curves", "".join(body), "learning")


def _chart(metric: str, lines: Sequence[Line]) -> str:
    drawn = [curve for line in lines for curve in curves_of(line.rows, metric, line.name, line.colour)]
    if len(lines) == 1:
        drawn = [replace(one, name="held out" if one.dashed else "in training") for one in drawn]
    ends = "; ".join(f"{one.name} {_last(one.mean)}" for one in drawn) if len(drawn) > 1 else _last(drawn[0].mean)
    ends = f"At the end: {ends}." if len(drawn) <= _MOST_NAMED else ""
    reports = max(len({row["update"] for row in line.rows}) for line in lines)
    thinned = f" {reports:,} reports, shown as means of neighbours." if reports > MOST_POINTS else ""
    lost = sum(int((~np.isfinite(one.seeds)).sum()) for one in drawn)
    gaps = " Gaps: values that are not finite, or seeds without a report." if lost else ""
    title = f"{metric} over updates: {', '.join(dict.fromkeys(one.name for one in drawn))}"
    return figure(metric, curves(title, drawn, metric), f"{ends}{thinned}{gaps}".strip())


def _last(mean: Values) -> str:
    finite = mean[np.isfinite(mean)]
    return three_digits(float(finite[-1])) if len(finite) else "never finite"


# Actions of the log, compared with the policies' choices at the same steps.
#
# Letters: `N` compared steps, `A` actions or action size.

MOST_STEPS = 20_000
MOST_MEMBERS = 10  # largest number of seeds per algorithm
_MOST_ACTIONS = 25
_MOST_DIMENSIONS = 24
_MOST_OPEN = 4  # dimensions that are not folded


@dataclass(frozen=True, eq=False)
class ComparedSteps:
    """Compared steps of a log: whole episodes; the last one is cut at the limit."""

    log: Log
    steps: int  # N
    description: str

    @property
    def starts(self) -> Values:
        """First rows of the episodes, then N."""
        return np.append(self.log.starts[self.log.starts < self.steps], self.steps)


Choices = Sequence[tuple[Line, Values]]  # algorithms with the actions of their seeds, [seeds, N, ...]


def coverage(runs: Sequence[SavedRun], logs: Mapping[str, LogSource]) -> str:
    """The section: for every log, its actions and those of the policies that learnt from it."""
    body = [
        _one_log(found, [line for line in lines_of(runs) if fingerprint(line.run) == mark], len(logs) > 1)
        for mark, found in logs.items()
    ]
    return section("Actions of log and policy", "".join(body), "actions")


def _one_log(found: LogSource, lines: Sequence[Line], several: bool) -> str:
    if not isinstance(found.log, Log):
        return paragraph(f"{found.reason} The policies' actions at its steps are not shown.")
    part, notes, chosen = part_of(found.log, lines), [], []
    for line in lines:
        try:
            run, rows = line.run, part.log.transitions[: part.steps]
            policies = [member_policy(run.path, run.record, member) for member in line.members[:MOST_MEMBERS]]
            actions = [replay_actions(policy, rows.observation, part.starts, rows.mask) for policy in policies]
            chosen.append((line, np.stack(actions)))
        except TidelogError as error:
            notes.append(f"{line.name}: its policy cannot be loaded. {error}")
    names = ", ".join(line.name for line in lines)
    head = [paragraph(f"{'The log of ' + names + '. ' if several else ''}{part.description}", "soft")]
    key = legend([("log", "log"), *((f"c{line.colour}", line.name) for line, _ in chosen)])
    likeness = "".join(paragraph(_likeness(line, actions, part)) for line, actions in chosen)
    drawn, space = list(_pictures(part, chosen)), part.log.spec.action
    dimensions = len(space.sizes) if isinstance(space, MultiDiscrete) else 1  # or choices at once
    hidden = (space.size if isinstance(space, Continuous | Hybrid) else dimensions) - _MOST_DIMENSIONS
    pictures = grid(drawn[:_MOST_OPEN], broad=True)
    if len(drawn) > _MOST_OPEN:
        folded_name = f"{len(drawn) - _MOST_OPEN:,} more dimensions of the action"
        pictures += folded(folded_name, grid(drawn[_MOST_OPEN:], broad=True))
    pictures += paragraph(f"{hidden:,} more action dimensions are not shown.") if hidden > 0 else ""
    return "".join([*head, *map(paragraph, notes), key, likeness, pictures])


def part_of(log: Log, lines: Sequence[Line]) -> ComparedSteps:
    """Random episodes that all runs held out (all episodes, if there is none), until there are enough steps."""
    common = np.ones(len(log.episode_ids), bool)
    for line in lines:
        held = line.run.record.held_out
        common &= np.isin(log.episode_ids, np.asarray(held)) if held else False
    held_out = bool(common.any())
    ordinals = np.flatnonzero(common) if held_out else np.arange(len(common))
    mixed = np.random.default_rng(0).permutation(ordinals)
    lengths = np.diff(log.starts)[mixed]
    episodes = mixed[: int(np.searchsorted(lengths.cumsum(), MOST_STEPS)) + 1]
    part = log.take_episodes(episodes)
    steps = min(part.steps, MOST_STEPS)
    scope = f"all {steps:,} steps" if len(episodes) == len(mixed) and steps == part.steps else f"{steps:,} steps"
    whose = "the held-out episodes" if held_out else "the log's episodes"
    sampled = "" if scope.startswith("all") else ", whole random episodes"
    text = f"Actions of the log and the policies' most likely actions, at {scope} of {whose}{sampled}."
    return ComparedSteps(part, steps, text)


def _likeness(line: Line, chosen: Values, part: ComparedSteps) -> str:
    found = [Imitation.of(part.log, actions, part.starts) for actions in chosen]
    if len(found) == 1:
        return f"{line.name} {found[0].sentence}."
    each, constant = np.asarray([seed.policy.mean() for seed in found]), found[0].constant.mean()
    written = three_digits if found[0].is_distance else "{:.1%}".format
    over = f"{written(each.mean())} ({written(each.min())} to {written(each.max())} over {len(each)} seeds)"
    text = f"the same action as the log at {over} of the steps"
    if found[0].is_distance:
        text = f"mean distance to the logged actions {over}"
    return f"{line.name}: {text}; {found[0].constant_name}: {written(constant)}."


def _pictures(part: ComparedSteps, chosen: Choices) -> Iterator[str]:
    space, logged = part.log.spec.action, part.log.action[: part.steps]
    if isinstance(space, Discrete):
        yield _share_bars("action", space.n, space.names, logged, [(line.colour, actions) for line, actions in chosen])
    elif isinstance(space, MultiDiscrete):
        for position, size in enumerate(space.sizes[:_MOST_DIMENSIONS]):
            mine = [(line.colour, actions[..., position]) for line, actions in chosen]
            yield _share_bars(f"action[{position}]", size, (), logged[:, position], mine)
    else:
        names = space.labels if isinstance(space, Hybrid) else space.names
        for position in range(min(space.size, _MOST_DIMENSIONS)):
            name = names[position] if names else f"action[{position}]"
            if isinstance(space, Hybrid) and space.codes[position]:
                codes = [(line.colour, actions[..., position].astype(np.int64)) for line, actions in chosen]
                yield _share_bars(name, space.codes[position], (), logged[:, position].astype(np.int64), codes)
                continue
            sources = [Source("log", "log", logged[:, position].astype(np.float64))]
            sources += [
                Source(line.name, f"c{line.colour}", actions[..., position].ravel().astype(np.float64))
                for line, actions in chosen
            ]
            means = ", ".join(f"{one.name} mean {three_digits(one.values.mean())}" for one in sources)
            yield figure(name, overlaid(f"Distribution of {name}: {means}", sources, name), means)


def _share_bars(
    name: str, count: int, names: Sequence[str], logged: Values, chosen: Sequence[tuple[int, Values]]
) -> str:
    """Shares of each action in the log and among the choices of all seeds; shows the most frequent actions."""
    sources = [("log", np.bincount(logged, minlength=count) / logged.size)]
    sources += [(f"c{colour}", np.bincount(acts.ravel(), minlength=count) / acts.size) for colour, acts in chosen]
    most = np.stack([values for _, values in sources]).max(axis=0)
    order = np.argsort(-most, kind="stable")[:_MOST_ACTIONS]
    order = np.sort(order) if count <= _MOST_ACTIONS else order
    labels = [names[position] if names else str(position) for position in order]
    top = int(np.argmax(sources[0][1]))
    title = f"Shares of each {name}: the log takes {names[top] if names else top} most often, {sources[0][1][top]:.1%}"
    shown = [(colour, values[order]) for colour, values in sources]
    chart = bars(title, labels, shown, "{:.1%}".format, "share of the steps")
    new = [int(((values > 0) & (sources[0][1] == 0)).sum()) for _, values in sources[1:]]
    absent = f" Actions chosen by a policy but absent from these steps of the log: {max(new):,}." if any(new) else ""
    more = f" {count - len(order):,} rarer actions are not shown." if count > len(order) else ""
    return figure(name, chart, f"{absent}{more}".strip())


# Returns of episodes: of the runs' policies in evaluations, and of the behaviour policy.

_MOST_RESAMPLED = 10_000  # returns
_HEAD = ("", "episodes", "mean", "95% interval", "median", "mean of the middle half (IQM)", "5% to 95%")


def returns(runs: Sequence[SavedRun], logs: Mapping[str, LogSource]) -> str:
    """The section: a chart and a table for every evaluated environment, each with the behaviour policy's returns."""
    lines, behavior_policies = lines_of(runs), list(_behavior_policies(runs, logs))
    reasons = [found.reason for found in logs.values() if found.log is None]
    body = [paragraph(f"{reason} The behaviour policy's returns are not shown.") for reason in reasons]
    envs = sorted({played.name for run in runs for played in run.evaluations})
    units = {found.log.reward_unit for found in logs.values() if isinstance(found.log, Log)}
    across_axis = f"return of an episode{in_unit(units.pop() if len(units) == 1 else None, 'in ')}"
    for env in envs:
        body.append(_environment(env, lines, behavior_policies, across_axis))
    if envs and behavior_policies:
        body.append(
            paragraph(
                "The behaviour policy's returns are those of the whole log. They are comparable with evaluated returns "
                "only if the log came from the same environment.",
                "soft",
            )
        )
    if not envs:
        body += [_environment("as recorded", [], behavior_policies, across_axis)] if behavior_policies else []
        advice = "No policy was evaluated. If there is an environment, this command adds its returns:"
        body += [paragraph(advice), command(evaluate_command(runs[0]))]
    return section("Returns", "".join(body), "returns")


def _behavior_policies(runs: Sequence[SavedRun], logs: Mapping[str, LogSource]) -> Iterator[Source]:
    for mark, found in logs.items():
        values = episode_returns(found.log) if isinstance(found.log, Log) else None
        if values is None or values.ndim != 1 or not np.isfinite(values).all():
            continue
        whose = [run.name for run in runs if fingerprint(run) == mark]
        yield Source("behavior_policy" if len(logs) == 1 else f"behaviour policy of {', '.join(whose)}", "log", values)


def _environment(env: str, lines: Sequence[Line], behavior_policies: Sequence[Source], across_axis: str) -> str:
    sources, rows = list(behavior_policies), [_row(one.name, [one.values]) for one in behavior_policies]
    for line in lines:
        evaluations = [played for played in line.run.evaluations if played.name == env]
        each = ([one.returns[member] for one in evaluations if member < len(one.returns)] for member in line.members)
        members = [np.concatenate(mine) for mine in each if mine]  # returns of each seed
        if members:
            name = f"{line.name} ({len(members)} seed{'' if len(members) == 1 else 's'})"
            sources.append(Source(name, f"c{line.colour}", np.concatenate(members)))
            rows.append(_row(name, members))
    where = f"Returns, {env}" if lines else "Returns in the log"
    title = f"{where}, distributions: " + ", ".join(f"{row[0]} mean {row[2]}" for row in rows)
    picture = figure(env, ridges(title, sources, across_axis), "Vertical lines: means.")
    return grid([picture], broad=True) + table(_HEAD, rows, where, named=True)


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
