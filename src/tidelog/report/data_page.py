"""A log, and what the door says of it, as one HTML file: no network, no script, for screens, phones and paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.inspect import Description
from tidelog.data.log import Log
from tidelog.data.order import Values
from tidelog.data.report import LEVELS, Problem, Report
from tidelog.data.statistics import Statistics, episode_returns
from tidelog.errors import ConfigError
from tidelog.report.svg import bars, histogram

_MOST_VALUES = 200_000
_MOST_FEATURES = 60
_MOST_WORDS = 10
_FIRST_ROWS = 10
_FIRST_COLUMNS = 12


def write_data_page(path: str | Path, report: Report, log: Log | None = None, table: Description | None = None) -> Path:
    """Write `data_page` to a new file and return its path; ConfigError where the path exists or cannot be written."""
    target = Path(path)
    content = data_page(report, log, table).encode()
    try:
        with target.open("xb") as stream:
            stream.write(content)
    except FileExistsError as error:
        raise ConfigError(f"{target} exists: choose another name, nothing was written") from error
    except OSError as error:
        target.unlink(missing_ok=True)
        raise ConfigError(f"{target} cannot be written: {error}") from error
    return target


def data_page(report: Report, log: Log | None = None, table: Description | None = None) -> str:
    """The page as text: verdict, problems, and, of a log that was read, its distributions and first rows."""
    sections = [_verdict(report), _problems(report)]
    sections += [] if table is None else [_columns(table)]
    sections += [] if log is None else _log_sections(log)
    name = escape(Path(report.source).name or report.source)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{name} - tidelog</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<header><h1>{name}</h1>"
        f"<p>{escape(report.source)}</p></header>\n<main>\n" + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )


def _verdict(report: Report) -> str:
    counts = (("error", report.errors), ("warning", report.warnings), ("note", report.notes))
    said = ", ".join(f"{len(found):,} {level}{'' if len(found) == 1 else 's'}" for level, found in counts)
    word, meaning = ("Accepted", "a log can be made of it") if report.ok else ("Refused", "mend the errors first")
    level = "error" if not report.ok else "warning" if report.warnings else "good"
    body = f'<p class="verdict {level}"><strong>{word}</strong> {meaning}</p><p>{report.rows:,} rows read; {said}.</p>'
    return _section("The door", body)


def _problems(report: Report) -> str:
    ordered = sorted(report.problems, key=lambda problem: LEVELS.index(problem.level))
    return _section("Problems", "".join(map(_problem, ordered)) or "<p>None.</p>")


def _problem(problem: Problem) -> str:
    where = f" in <code>{escape(problem.column)}</code>" if problem.column else ""
    said = (("found", problem.found), ("expected", problem.expected), ("mend", problem.advice))
    rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in (*_places(problem), *said))
    badge = f'<span class="badge {problem.level}">{problem.level}</span>'
    return f'<article class="{problem.level}"><h3>{badge} {escape(problem.check)}{where}</h3><dl>{rows}</dl></article>'


def _places(problem: Problem) -> Iterator[tuple[str, str]]:
    more = ", …" if problem.count > len(problem.rows) else ""
    if problem.rows:
        yield f"{problem.count:,} row{'' if problem.count == 1 else 's'}", ", ".join(map(str, problem.rows)) + more
    if problem.lines:
        yield "lines", ", ".join(map(str, problem.lines)) + more


def _columns(table: Description) -> str:
    head = ("column", "kind", "role", "different", "empty", "examples")
    rows = [
        (one.name, one.kind, one.role or "", f"{one.unique:,}", f"{one.empty:,}", ", ".join(one.examples)[:60])
        for one in table.fields
    ]
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    mapping = f'<h3 class="apart">Proposed mapping</h3><pre>{escape(table.toml)}</pre>'
    return _section("Columns", _table(head, rows) + mapping + (f"<ul>{notes}</ul>" if notes else ""))


def _log_sections(log: Log) -> list[str]:
    statistics = log.statistics()
    return [
        _section("Episodes and returns", _tiles(statistics) + _grid([*_lengths(log), *_rewards(log)])),
        _section("Actions and propensities", _grid([*_actions(log, statistics), *_propensities(log)])),
        _section("What was seen", _features(log, statistics)),
        _section("First rows", _first_rows(log)),
    ]


def _tiles(statistics: Statistics) -> str:
    shown = (("episodes", statistics.episodes), ("steps", statistics.steps), ("terminated", statistics.terminated),
             ("truncated", statistics.truncated), ("without a target", statistics.without_target))  # fmt: skip
    return '<ul class="tiles">' + "".join(f"<li><b>{n:,}</b> {name}</li>" for name, n in shown) + "</ul>"


def _lengths(log: Log) -> Iterator[str]:
    yield _numbers("length of an episode", np.diff(log.starts))


def _rewards(log: Log) -> Iterator[str]:
    returns = episode_returns(log)
    if log.reward is None or returns is None:
        yield _figure("returns", "", "the log has no reward")
        return
    for name, values in (("return of an episode", returns), ("reward of a step", log.reward)):
        wide = values.reshape(len(values), -1)
        for place in range(wide.shape[1]):
            yield _numbers(name if wide.shape[1] == 1 else f"{name} [{place}]", wide[:, place])


def _actions(log: Log, statistics: Statistics) -> Iterator[str]:
    counts = statistics.actions.get("counts")
    if counts is None:
        names = getattr(log.spec.action, "names", ()) or ()
        for place in range(log.action.shape[1]):
            yield _numbers(names[place] if names else f"action[{place}]", log.action[:, place])
    elif log.action.ndim == 1:
        yield _counts("action", counts)
    else:
        for place, column in counts.items():
            yield _counts(f"action[{place}]", dict(zip(map(str, range(len(column))), column, strict=True)))


def _propensities(log: Log) -> Iterator[str]:
    if log.propensity is None:
        yield _figure("propensities", "", "none logged: how likely the logger was to act as it did is not known")
    else:
        yield _numbers("propensity of the logged action", log.propensity)


def _features(log: Log, statistics: Statistics) -> str:
    drawn = []
    for name, leaf in log.observation.items():
        if leaf.ndim != 2 or leaf.dtype.kind != "f":
            continue
        labels = getattr(log.spec.observation[name], "names", ()) or [f"{name}[{i}]" for i in range(leaf.shape[1])]
        drawn += [(label, leaf[:, place]) for place, label in enumerate(labels)]
    figures = [_numbers(label, values) for label, values in drawn[:_MOST_FEATURES]]
    words = list(statistics.categories.items())
    figures += [_counts(label, counts) for label, counts in words[:_MOST_FEATURES]]
    hidden = len(drawn) + len(words) - len(figures)
    pictures = [f"<p>{name}: {leaf.shape[1:]} a step, not drawn.</p>" for name, leaf in log.observation.items()
                if leaf.ndim > 2]  # fmt: skip
    return _grid(figures) + "".join(pictures) + (f"<p>{hidden:,} more columns are not drawn.</p>" if hidden else "")


def _first_rows(log: Log) -> str:
    count = min(_FIRST_ROWS, log.steps)
    columns: dict[str, Iterable[Any]] = {"episode": log.episode_ids[log.episode[:count]], "step": log.step[:count]}
    for name, leaf in log.observation.items():
        if leaf.ndim == 2:
            columns |= dict(_spoken(log, name, leaf[log.position[:count]]))
    hidden = max(0, len(columns) - _FIRST_COLUMNS)
    columns = dict(list(columns.items())[:_FIRST_COLUMNS]) | {"action": _acted(log, count)}
    columns |= {} if log.reward is None else {"reward": log.reward[:count]}
    columns |= {"ends": np.where(log.terminated, "terminated", np.where(log.truncated, "truncated", ""))[:count]}
    columns |= {} if log.propensity is None else {"propensity": log.propensity[:count]}
    rows = list(zip(*(map(_cell, values) for values in columns.values()), strict=True))
    return _table(tuple(columns), rows) + (f"<p>{hidden:,} more columns.</p>" if hidden else "")


def _spoken(log: Log, name: str, values: Values) -> Iterator[tuple[str, Iterable[Any]]]:
    """Columns of one leaf, codes as their words."""
    spec = log.spec.observation[name]
    labels = getattr(spec, "names", ()) or [f"{name}[{place}]" for place in range(values.shape[1])]
    vocabularies = getattr(spec, "vocabularies", ())
    for place, label in enumerate(labels):
        column = values[:, place]
        yield label, [vocabularies[place][code] for code in column] if vocabularies else column


def _acted(log: Log, count: int) -> Iterable[Any]:
    names = getattr(log.spec.action, "names", ())
    return [names[action] for action in log.action[:count]] if names and log.action.ndim == 1 else log.action[:count]


def _cell(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return ", ".join(map(_cell, value))
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def _numbers(name: str, values: Values) -> str:
    """A figure of numbers [N], of evenly taken ones where there are many, over their mean and spread."""
    shown = values[:: max(1, len(values) // _MOST_VALUES)]
    wide = shown.astype(np.float64)
    said = f"mean {wide.mean():.4g}, std {wide.std():.4g}, median {np.median(wide):.4g}"
    return _figure(name, histogram(name, wide), said)


def _counts(name: str, counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    never = sum(count == 0 for count in counts.values())
    said = f"{len(counts):,} different" + (f", {never:,} never" if never else "")
    return _figure(name, bars(name, ordered[:_MOST_WORDS], max(0, len(ordered) - _MOST_WORDS)), said)


def _figure(name: str, picture: str, said: str) -> str:
    return f"<figure><figcaption><b>{escape(name)}</b></figcaption>{picture}<p>{escape(said)}</p></figure>"


def _grid(figures: Iterable[str]) -> str:
    drawn = "".join(figures)
    return f'<div class="grid">{drawn}</div>' if drawn else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (f'<div class="wide" tabindex="0"><table><thead><tr>{top}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")  # fmt: skip


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


_STYLE = """
:root { --ink: #1c2733; --soft: #5b6b7a; --line: #d8dfe6; --bar: #2f7f93; --paper: #fff; --good: #1f7a4d;
  --error: #b3261e; --warning: #8a5a00; --note: #3c5a78; color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 1.2rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { margin: 0; font-size: 1.7rem; overflow-wrap: anywhere; }
header p { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); font-size: 1.2rem; }
h3 { margin: 0; font-size: 1rem; overflow-wrap: anywhere; }
.apart { margin-top: 1rem; }
p { margin: .4rem 0; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .9em; }
pre { overflow-x: auto; padding: .7rem; background: #f4f7f9; border-radius: 6px; }
.verdict { padding: .7rem 1rem; border-radius: 8px; border-left: 6px solid; font-size: 1.1rem; background: #f4f7f9; }
.verdict.good { border-color: var(--good); } .verdict.error { border-color: var(--error); }
.verdict.warning { border-color: var(--warning); }
article { margin: .7rem 0; padding: .6rem .9rem; border: 1px solid var(--line); border-left: 4px solid;
  border-radius: 6px; break-inside: avoid; }
article.error { border-left-color: var(--error); } article.warning { border-left-color: var(--warning); }
article.note { border-left-color: var(--note); }
.badge { padding: .05rem .5rem; border-radius: 1rem; color: #fff; font-size: .8rem; font-weight: 600; }
.badge.error { background: var(--error); } .badge.warning { background: var(--warning); }
.badge.note { background: var(--note); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; margin: .4rem 0 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 0 0 .8rem; padding: 0; list-style: none; }
.tiles li { padding: .4rem .9rem; border: 1px solid var(--line); border-radius: 8px; color: var(--soft); }
.tiles b { display: block; color: var(--ink); font-size: 1.25rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: .8rem; }
figure { margin: 0; padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 8px; break-inside: avoid; }
figcaption { margin-bottom: .3rem; overflow-wrap: anywhere; }
figure p { margin: .2rem 0 0; color: var(--soft); font-size: .85rem; }
svg { display: block; width: 100%; height: auto; max-width: 420px; }
svg rect { fill: var(--bar); } svg line { stroke: var(--line); } svg text { font-size: 11px; fill: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
@media (max-width: 560px) { body { padding: .8rem; } h1 { font-size: 1.35rem; } dl { grid-template-columns: 1fr; }
  dd { margin-bottom: .3rem; } }
@media print { body { max-width: none; padding: 0; font-size: 11px; } .wide { overflow: visible; }
  th, td { padding: .1rem .25rem; white-space: normal; overflow-wrap: anywhere; font-size: 9px; }
  .badge { border: 1px solid; color: inherit; background: none !important; } h2 { break-after: avoid; } }
"""
