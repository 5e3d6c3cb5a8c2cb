"""HTML page about a log and its data checks: one file, no network, no script, for screens, phones and paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from tidelog._files import write_file
from tidelog._text import count_of, in_unit, three_digits
from tidelog.data.inspect import Description
from tidelog.data.log import Log
from tidelog.data.raw import LEVELS, Problem, Report, Values
from tidelog.data.statistics import Statistics, episode_returns, labels_of_leaf
from tidelog.errors import ConfigError
from tidelog.plots import bars, histogram
from tidelog.report.frame import bullets, command, figure, grid, heading, page, section, table, tiles
from tidelog.types import Hybrid

_MOST_VALUES = 200_000
_MOST_FEATURES = 60
_MOST_WORDS = 10
_FIRST_ROWS = 10
_FIRST_COLUMNS = 12


def write_data_page(
    path: str | Path,
    report: Report,
    log: Log | None = None,
    table: Description | None = None,
    overwrite: bool = False,
) -> Path:
    """Write `data_page` to a file and return its path; ConfigError if it exists (without `overwrite`) or cannot be."""
    target = Path(path)
    if target.exists() and not overwrite:
        raise ConfigError(f"{target} exists; nothing was written", fix="choose another name")
    write_file(target, data_page(report, log, table).encode(), ConfigError)
    return target


def data_page(report: Report, log: Log | None = None, table: Description | None = None) -> str:
    """The page as text: verdict and problems; for a log also its distributions and first rows."""
    ordered = sorted(report.problems, key=lambda problem: LEVELS.index(problem.level))
    counts = (("error", report.errors), ("warning", report.warnings), ("note", report.notes))
    summary = ", ".join(count_of(len(problems), level) for level, problems in counts)
    word, meaning = ("Accepted", "the data can be used as a log") if report.ok else ("Refused", "fix the errors first")
    level = "error" if not report.ok else "warning" if report.warnings else "good"
    verdict = f'<p class="verdict {level}"><strong>{word}</strong> {meaning}</p>'
    sections = [
        section("Data checks", f"{verdict}<p>{report.rows:,} rows read; {summary}.</p>"),
        section("Problems", "".join(map(problem, ordered)) or "<p>None.</p>"),
    ]
    sections += [] if table is None else [_columns(table)]
    sections += [] if log is None else _log_sections(log)
    return page(Path(report.source).name or report.source, report.source, sections, "data")


def problem(problem: Problem) -> str:
    """Box with a problem from the data checks."""
    where = f" in <code>{escape(problem.column)}</code>" if problem.column else ""
    parts = (("found", problem.found), ("expected", problem.expected), ("fix", problem.fix))
    rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in (*_places(problem), *parts))
    badge = f'<span class="badge {problem.level}">{problem.level}</span>'
    return f'<article class="{problem.level}"><h3>{badge} {escape(problem.check)}{where}</h3><dl>{rows}</dl></article>'


def _places(problem: Problem) -> Iterator[tuple[str, str]]:
    more = ", …" if problem.count > len(problem.rows) else ""
    if problem.files:
        yield count_of(problem.count, "row"), problem.places
        return
    if problem.rows:
        yield count_of(problem.count, "row"), ", ".join(map(str, problem.rows)) + more
    if problem.lines:
        yield "line" if problem.count == 1 else "lines", ", ".join(map(str, problem.lines)) + more


def _columns(description: Description) -> str:
    head = ("column", "kind", "role", "different", "empty", "examples")
    rows = [
        (one.name, one.kind, one.role or "", f"{one.unique:,}", f"{one.empty:,}", ", ".join(one.examples)[:60])
        for one in description.fields
    ]
    proposed = heading("Proposed mapping") + command(description.toml)
    return section("Columns", table(head, rows) + proposed + bullets(description.notes))


def _log_sections(log: Log) -> list[str]:
    statistics = log.statistics()
    if log.propensity is None:
        propensities = figure("propensities", None, "none logged: the probabilities of the logged actions are unknown")
    else:
        how = "" if log.declared is None else f", {log.declared.text}"
        propensities = _numbers(f"propensity of the logged action{how}", log.propensity)
    lengths = _numbers("length of an episode", np.diff(log.starts), "episodes")
    return [
        section("Episodes and returns", log_tiles(statistics) + grid([lengths, *_rewards(log)])),
        section("Actions and propensities", grid([*_actions(log, statistics), propensities])),
        section("Observations", _features(log, statistics)),
        section("First rows", _first_rows(log)),
    ]


def log_tiles(statistics: Statistics) -> str:
    """Tiles with the size of a log."""
    shown = (("episodes", statistics.episodes), ("steps", statistics.steps), ("terminated", statistics.terminated),
             ("truncated", statistics.truncated), ("without a target", statistics.without_target))  # fmt: skip
    return tiles((f"{n:,}", name) for name, n in shown)


def _rewards(log: Log) -> Iterator[str]:
    returns = episode_returns(log)
    if log.reward is None or returns is None:
        yield figure("returns", None, "the log has no rewards")
        return
    unit = in_unit(log.reward_unit, "in ")
    reward = log.reward if log.reward_known is None else log.reward[log.reward_known]
    sources = (("return of an episode", returns, "episodes"), ("reward of a step", reward, "rows"))
    for name, values, counted in sources:
        wide = values.reshape(len(values), -1)
        for position in range(wide.shape[1]):
            place = "" if wide.shape[1] == 1 else f" [{position}]"
            yield _numbers(f"{name}{place}{unit}", wide[:, position], counted)


def _actions(log: Log, statistics: Statistics) -> Iterator[str]:
    counts, space = statistics.actions.get("counts"), log.spec.action
    if isinstance(space, Hybrid):
        for position, label in enumerate(space.labels):
            column = (counts or {}).get(label)
            coded = None if column is None else dict(zip(map(str, range(len(column))), column, strict=True))
            yield _numbers(label, log.action[:, position]) if coded is None else _counts(label, coded)
    elif counts is None:
        names = getattr(log.spec.action, "names", ()) or ()
        for position in range(log.action.shape[1]):
            yield _numbers(names[position] if names else f"action[{position}]", log.action[:, position])
    elif log.action.ndim == 1:
        yield _counts("action", counts)
    else:
        for position, column in counts.items():
            yield _counts(f"action[{position}]", dict(zip(map(str, range(len(column))), column, strict=True)))


def _features(log: Log, statistics: Statistics) -> str:
    drawn: list[tuple[str, Values]] = []
    for name, leaf in log.observation.items():
        if leaf.ndim != 2 or leaf.dtype.kind != "f":
            continue
        drawn += zip(labels_of_leaf(log, name), leaf.T, strict=True)
    figures = [_numbers(label, values) for label, values in drawn[:_MOST_FEATURES]]
    categories = list(statistics.categories.items())
    figures += [_counts(label, counts) for label, counts in categories[:_MOST_FEATURES]]
    hidden = len(drawn) + len(categories) - len(figures)
    images = [f"<p>{name}: shape {leaf.shape[1:]} per step, not shown.</p>" for name, leaf in log.observation.items()
              if leaf.ndim > 2]  # fmt: skip
    return grid(figures) + "".join(images) + (f"<p>{hidden:,} more columns are not shown.</p>" if hidden else "")


def _first_rows(log: Log) -> str:
    count = min(_FIRST_ROWS, log.steps)
    columns: dict[str, Iterable[Any]] = {"episode": log.episode_ids[log.episode[:count]], "step": log.step[:count]}
    for name, leaf in log.observation.items():
        if leaf.ndim != 2:
            continue
        labels = labels_of_leaf(log, name)
        words = getattr(log.spec.observation[name], "vocabularies", ()) or [None] * len(labels)  # instead of codes
        for label, codes, word_of in zip(labels, leaf[log.position[:count]].T, words, strict=True):
            columns[label] = codes if word_of is None else [word_of[code] for code in codes]
    hidden, names = max(0, len(columns) - _FIRST_COLUMNS), getattr(log.spec.action, "names", ())
    actions: Iterable[Any] = log.action[:count]
    if names and log.action.ndim == 1:
        actions = [names[action] for action in actions]
    columns = dict(list(columns.items())[:_FIRST_COLUMNS]) | {"action": actions}
    columns |= {} if log.reward is None else {"reward": log.reward[:count]}
    columns |= {"ends": np.where(log.terminated, "terminated", np.where(log.truncated, "truncated", ""))[:count]}
    columns |= {} if log.propensity is None else {"propensity": log.propensity[:count]}
    columns |= {} if log.cluster is None else {"cluster": log.cluster[:count]}
    rows = list(zip(*(map(_cell, values) for values in columns.values()), strict=True))
    return table(tuple(columns), rows) + (f"<p>{hidden:,} more columns.</p>" if hidden else "")


def _cell(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return ", ".join(map(_cell, value))
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)  # data, not an estimate


def _numbers(name: str, values: Values, counted: str = "rows") -> str:
    """Histogram of numbers [N] with mean and standard deviation; large arrays are thinned evenly."""
    shown = values[:: max(1, len(values) // _MOST_VALUES)]
    wide = shown.astype(np.float64)
    summary = f"mean {three_digits(wide.mean())}, standard deviation {three_digits(wide.std())}, "
    summary += f"median {three_digits(float(np.median(wide)))}"
    return figure(name, histogram(name, wide, counted), summary)


def _counts(name: str, counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    never = sum(count == 0 for count in counts.values())
    summary = f"{len(counts):,} different" + (f", {never:,} never" if never else "")
    most, count = ordered[0] if ordered else ("nothing", 0)
    shown = ordered[:_MOST_WORDS]
    values = np.array([number for _, number in shown], np.float64)
    total = int(values.sum())
    title = f"Counts of {name}: {len(counts):,} different, most often {most} ({count:,} of {total:,} shown)"
    names = [word for word, _ in shown]
    picture = bars(title, names, [("bar", values)], "{:,.0f}".format, "rows", len(ordered) - len(shown))
    return figure(name, picture, summary)
