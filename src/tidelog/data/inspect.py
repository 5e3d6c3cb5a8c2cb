"""The output of `tidelog data inspect`: statistics of a log, or a proposed mapping for a table."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidelog.data.balance import BALANCED, MOST_BALANCED, raw_balance
from tidelog.data.checks import action_count, action_name
from tidelog.data.columns import Columns, TextForm
from tidelog.data.declared import SHARES, Declaration
from tidelog.data.infer import Field, Proposal, field_of, infer_columns, roles_of
from tidelog.data.log import Log
from tidelog.data.parse import Table, date_formats, from_table
from tidelog.data.parse import flag as parse_flag
from tidelog.data.parse import number as parse_number
from tidelog.data.raw import RawLog, Report, examine, unreadable
from tidelog.data.sources import SOURCES, TEXT_ENDINGS, table_of
from tidelog.data.statistics import actions_are_equal, rewards_are_equal
from tidelog.data.text import has_decimal_commas, read_document, read_lines, unusual_separator
from tidelog.data.warnings import outcome_among_observations
from tidelog.errors import ConfigError, nearest

_SHOWN = 12
_TERMINAL = 80  # columns of the narrowest terminal
_WIDTH = 100  # of lists in a mapping


@dataclass(frozen=True)
class Inspection:
    """Statistics of a log; `data` is plain JSON."""

    data: dict[str, Any]

    def text(self) -> str:
        """The statistics as lines for a terminal."""
        statistics = self.data["statistics"]
        head = [f"{statistics['episodes']:,} episodes, {statistics['steps']:,} steps, "
                f"{statistics['observations']:,} stored observations",
                f"ends: {statistics['terminated']:,} terminated, {statistics['truncated']:,} truncated; "
                f"{statistics['without_target']:,} rows without a target for value learning"]  # fmt: skip
        summaries = ((name, statistics[name]) for name in ("lengths", "returns", "rewards", "propensities"))
        body = [f"{name}: {_measures(values)}" for name, values in summaries if values]
        missing = f"missing propensities: {statistics['missing_propensities']:.0%} of rows"
        missing = f"propensities {self.data['declared']}" if "declared" in self.data else missing
        return "\n".join([*head, *body, missing, *_action_lines(statistics["actions"]), *_feature_lines(statistics)])

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return self.data


def inspect_log(log: Log) -> Inspection:
    """Measure a log: episodes, lengths, returns, actions, propensities, features, and the report of its checks."""
    data = {"spec": log.spec.to_json(), "statistics": log.statistics().to_json(), "report": log.report.to_json()}
    declared = {} if log.declared is None else {"declared": log.declared.text}
    return Inspection({**data, **declared, "fingerprint": log.fingerprint()})


def training_command(source: Any, columns: str | None, log: Log, flags: Sequence[str] = ()) -> str:
    """The next command for a log that is read with these flags: cloning where rewards or actions are equal."""
    algorithm = "bc" if log.reward is None or rewards_are_equal(log) or actions_are_equal(log) else "iql"
    words = [algorithm, "--data", *([source] if isinstance(source, str) else source)]
    words += [*([] if columns is None else ["--columns", columns]), *flags]
    return f"next: tidelog train {shlex.join(words)}"


@dataclass(frozen=True)
class Description:
    """An unmapped table with a proposed mapping, its report, and the declarations that are still needed."""

    source: str
    rows: int
    fields: tuple[Field, ...]
    proposed: Columns | None
    toml: str
    notes: tuple[str, ...]
    interactions: dict[str, str]
    report: Report | None
    interaction_notes: tuple[str, ...] = ()  # those of the notes that are about interactions
    named: tuple[str, ...] = ()  # the source as it is named on the command line; empty for a frame
    flags: tuple[str, ...] = ()  # those that named roles
    written: str | None = None  # the file that holds the proposed mapping, if it was written
    explode: str | None = None  # the key of lists of objects, each of which is a row here
    ranking: str | None = None  # the algorithm for interactions that the next commands name
    ranking_report: Report | None = None  # of the checks as interactions

    def text(self) -> str:
        """Lines for a terminal: columns, the proposed mapping, open questions, and the next commands."""
        lines = [f"{self.source}: {self.rows:,} rows, {len(self.fields)} columns", ""]
        lines += [_field_line(one) for one in self.fields]
        if self.ranking_report is None:
            lines += ["", f"proposed mapping ({self.written or 'columns.toml'}):", "", self.toml, ""]
            lines += self._remaining()
        else:  # the mapping would make episodes of users: its problems are not those of interactions
            lines += ["", *_wrapped(self.interaction_notes), "", *_summary("as interactions", self.ranking_report)]
        return "\n".join([*lines, "", *self._commands()])

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        fields = [vars(one) | {"examples": list(one.examples)} for one in self.fields]
        report = None if self.report is None else self.report.to_json()
        return {"source": self.source, "rows": self.rows, "fields": fields, "toml": self.toml,
                "notes": list(self.notes), "interactions": self.interactions, "report": report,
                "interactions_report": None if self.ranking_report is None else self.ranking_report.to_json(),
                }  # fmt: skip

    def as_report(self) -> Report:
        """The report of the checks with the proposed mapping; without a mapping, only the number of rows."""
        return Report(self.source, self.rows) if self.report is None else self.report

    def _remaining(self) -> list[str]:
        notes = _wrapped(self.notes)
        if self.report is None:
            return [*notes, "the mapping is not complete: add the entries marked '#' above"]
        return [*notes, "", *_summary("with this mapping", self.report)]

    def interaction_roles(self) -> dict[str, str] | None:
        """Arguments of `read_interactions` for a table of interactions; None without a time or with lists of events."""
        lists = {one.name for one in self.fields if one.kind == "list"}
        if (
            not {"user", "item", "time"} <= self.interactions.keys()
            or self.interactions["item"] in lists
            or self.explode
        ):
            return None
        # a rating is the reward of an event
        return {"reward" if role == "rating" else role: name for role, name in self.interactions.items()}

    def _commands(self) -> list[str]:
        if not self.named:
            return []
        source = shlex.join(self.named)
        roles = self.interaction_roles()
        if roles is not None:
            return ["next:", *self._interaction_commands(source, roles)]
        mapping = "columns.toml" if self.written is None else shlex.quote(self.written)
        again = shlex.join([*self.named, *self.flags])
        write = [f"  tidelog data inspect --data {again} --write {mapping}"] if self.written is None else []
        lines = ["next:", *write, f"  tidelog data validate --data {source} --columns {mapping}"]
        if self.interactions:  # users as episodes would train, but learn nothing about items
            user, item = (shlex.quote(self.interactions[role]) for role in ("user", "item"))
            split = self._splitting()
            if split is not None and "time" in self.interactions:
                when = "" if self.explode else ", each at the time of its row (a basket of items)"
                return [
                    *_hint(f"next: write one item per row{when}:", split),
                    f"  tidelog data inspect --data {ONE_ITEM}",
                ]
            lines += _hint(
                "lists of items need a time for every event, and one item per row; with your column of times for TIME:",
                f"tidelog data validate --data {source} --user {user} --item {item} --time TIME",
            )
        elif not any(one.role == "action" for one in self.fields):
            lines += _hint(
                "name the column of decisions, and others that you know (--reward, --episode, ...), and the rest is "
                "proposed again:",
                f"tidelog data inspect --data {again} --action COLUMN",
            )
            lines += _hint(
                "where a row says who chose which item and no decision was made, name the columns instead (a visit "
                "can be the user):",
                f"tidelog data validate --data {source} --user USER --item ITEM --time TIME",
            )
        elif self.report is not None and self.report.ok and self.proposed is not None:
            alone = all(one.unique == 1 for one in self.fields if one.role == "action")
            algorithm = "bc" if self.proposed.reward is None or alone else "iql"
            lines.append(f"  tidelog train {algorithm} --data {source} --columns {mapping}")
            use = "judge the policy on" if self.proposed.reward is not None else "see how well they are predicted"
            lines.append(f"it holds some episodes out, to {use} (--held-out)")
            if self.proposed.reward is None:
                name = "columns.toml" if self.written is None else self.written
                text = f"bc only imitates the log; for a better policy, set `reward` in {name} and train iql"
                lines += textwrap.wrap(text, _TERMINAL, break_long_words=False, break_on_hyphens=False)
        return lines

    def _splitting(self) -> str | None:
        """A command that writes a row for each item of a list; None for other files, and for no lists."""
        item = next((one for one in self.fields if one.name == self.interactions["item"] and one.kind == "list"), None)
        path = self.named[0] if len(self.named) == 1 else ""
        reader = next((call for ending, call in _READERS.items() if path.lower().endswith(ending)), None)
        if reader is not None and self.explode:
            key = json.dumps(self.explode)
            call = f"pl.{reader.format(json.dumps(path))}.explode({key}).unnest({key})"
            return _python(f"{call}.write_csv({json.dumps(ONE_ITEM)})")
        if item is None or reader is None or not item.examples:
            return None
        split = ""
        if "read_csv" in reader or not item.examples[0].startswith("["):  # text, not a list of the file's own
            sign = next((one for one in "|;," if any(one in example for example in item.examples)), " ")
            split = f'.str.strip_chars("[]() ").str.split("{sign}").list.eval(pl.element().str.strip_chars())'
        call, name = reader.format(json.dumps(path)), json.dumps(item.name)
        each = f'pl.{call}.with_columns(pl.col({name}){split}).explode({name}).write_csv("{ONE_ITEM}")'
        return _python(each)

    def _interaction_commands(self, source: str, roles: dict[str, str]) -> list[str]:
        """Commands for interactions: training, or a copy without the rows of errors."""
        flags = " ".join(f"--{role} {shlex.quote(name)}" for role, name in roles.items())
        validate = f"  tidelog data validate --data {source} {flags}"
        if self.ranking is None or self.ranking_report is None:
            return [validate]
        if self.ranking_report.ok:
            return [validate, f"  tidelog train {self.ranking} --data {source} {flags}"]
        if any(not problem.count for problem in self.ranking_report.errors):
            return [validate]
        return [
            f"{validate} --quarantine {BAD_ROWS} --keep {GOOD_ROWS}",
            f"  tidelog data inspect --data {GOOD_ROWS}",
            f"{BAD_ROWS} has the rows with errors, {GOOD_ROWS} all others",
        ]


LINE_ENDINGS = tuple(ending for ending, reader in SOURCES.items() if reader in (read_lines, read_document))
ABSENT_WORDS = ["?", "\\N", "#N/A", "-"]
BAD_ROWS = "bad.csv"
GOOD_ROWS = "good.csv"
ONE_ITEM = "one_item_per_row.csv"
_TEXT_CALL = "read_csv({}, infer_schema=False)"
_READERS = {
    **dict.fromkeys((".csv", ".csv.gz", ".csv.zst"), _TEXT_CALL),
    ".parquet": "read_parquet({})",
    **dict.fromkeys((".jsonl", ".ndjson", ".dsjson"), "read_ndjson({})"),
}  # of Polars, by the ending of a file


def _python(call: str) -> str:
    return f"python -c {shlex.quote(f'import polars as pl; {call}')}"


def _wrapped(notes: Sequence[str]) -> list[str]:
    return [line for note in notes for line in textwrap.wrap(f"- {note}", _TERMINAL, subsequent_indent="  ")]


def _hint(text: str, command: str) -> list[str]:
    """A sentence that fits any terminal, and the command after it, whole."""
    return [*textwrap.wrap(text, _TERMINAL, break_long_words=False, break_on_hyphens=False), f"  {command}"]


def _summary(title: str, report: Report) -> list[str]:
    """The number of problems of a report, its errors, and the names of its warnings."""
    errors = replace(report, problems=report.errors).lines[1:]
    named = [line for problem in report.warnings for line in problem.heading]
    return [f"{title}: {report.lines[0].removeprefix(f'{report.source}: ')}", *errors, *named]


def describe_table(source: Any, roles: Mapping[str, Any] | None = None) -> Description:
    """Infer the roles of a table's columns from names and values; LogError if the table cannot be read.

    The `roles` are taken as they are, and the others are inferred; ConfigError for a column that does not exist.
    """
    separator = unusual_separator(source)
    settings: dict[str, Any] = {} if separator is None else {"separator": separator}
    table = table_of(source, form=TextForm(separator=separator))
    if not table.rows:
        fix = "check the path and how the log was exported"
        raise unreadable(table.source, "column names, but no rows", "at least one decision", fix, "empty log")
    if all(map(_lacks_header, table.parts or (table,))):
        settings = {"header": False} | settings
    if has_decimal_commas(table, separator):
        settings["decimal"] = ","
    nested_rows = _lists_of_objects(table)
    decisions = _decision_roles(table)
    if len(nested_rows) == 1 and not decisions:
        settings["explode"] = nested_rows[0]
    if settings:
        table = table_of(source, form=TextForm(**settings))
    columns = [table.series(name) for name in table.data.collect_schema().names() if table.has(name)]
    _check_roles(roles or {}, [series.name for series in columns])
    own_roles = roles if not decisions else decisions | dict(roles or {})
    absent = _absent_words(columns)
    if absent:
        settings["na_values"] = absent
        columns = [_without(series, absent) for series in columns]
    measured = [field_of(series) for series in columns]
    formats = {series.name: date_formats(series) for series, one in zip(columns, measured, strict=True)
               if one.kind == "word"}  # fmt: skip
    measured = [replace(one, kind="time") if formats.get(one.name) else one for one in measured]

    def nested(episode: str, column: str) -> bool:
        pairs = pl.DataFrame({"episode": table.series(episode), "column": table.series(column)})
        return pairs.n_unique() == pairs["episode"].n_unique()

    def ends(episode: str, step: str | None, column: str) -> float:
        flags = parse_flag(table.series(column))
        flag = (parse_number(table.series(column)) if len(flags.unreadable) else flags).values != 0
        order = pl.int_range(table.rows, eager=True) if step is None else parse_number(table.series(step)).values
        rows = pl.DataFrame({"episode": table.series(episode), "order": order, "flag": flag})
        last = rows.sort("order", maintain_order=True).group_by("episode").last()
        count = int(last["flag"].sum())
        return count / len(last) if count == flag.sum() and len(last) < table.rows else 0.0

    def repeats(episode: str, step: str) -> int:
        pairs = pl.DataFrame({"episode": table.series(episode), "step": table.series(step)})
        return pairs.height - pairs.n_unique()

    def counts(episode: str, column: str) -> bool:
        values = parse_number(table.series(column)).values
        return _counts_rows(pl.DataFrame({"episode": table.series(episode), "value": values}))

    def weighed(action: str, propensity: str) -> float:
        return _share_explained(table.series(action), parse_number(table.series(propensity)).values)

    proposal = infer_columns(measured, table.rows, nested, ends, repeats, weighed, counts, own_roles)
    proposal.mapping |= settings
    _add_date_format(formats.get(proposal.mapping.get("time", ""), []), proposal)
    if "header" in settings:
        proposal.notes.insert(0, "the first line is a row like the others, not a header: columns have numbers as names")
    if table.uneven:
        listed = ", ".join(map(repr, list(table.uneven)[:_SHOWN])) + (", ..." if len(table.uneven) > _SHOWN else "")
        proposal.notes.insert(0, f"not read, because files differ in them: {listed}")
    if "decimal" in settings:
        proposal.notes.insert(0, "numbers have a comma before their fraction: drop `decimal` if they are lists")
    if decisions:
        proposal.notes.insert(0, _DECISIONS)
    if "explode" in settings:
        rows = f"each object in the lists of '{settings['explode']}' is a row: change `explode` if wrong"
        proposal.notes.insert(0, rows)
    if separator is not None:
        proposal.notes.insert(0, f"{separator!r} divides the fields of every line: change `separator` if wrong")
    if absent:
        proposal.notes.insert(
            0, f"{', '.join(map(repr, absent))} is read as an empty cell: change `na_values` if wrong"
        )
    _leave_out_leaks(table, proposal)
    roles = roles_of(proposal.mapping)
    fields = tuple(replace(one, role=roles.get(one.name)) for one in measured)
    proposed = Columns.from_mapping(proposal.mapping) if {"observation", "action"} <= proposal.mapping.keys() else None
    source_name = str(Path(source)) if isinstance(source, str | Path) else table.source
    several = map(str, source) if isinstance(source, list | tuple) else [source_name] * isinstance(source, str | Path)
    raw = None if proposed is None else from_table(table, proposed)
    report = None if raw is None else examine(raw)
    if raw is not None and report is not None and report.ok and not proposal.interactions:
        proposal.hints += _randomised_hints(raw)
    notes, named = tuple(proposal.notes), tuple(several)
    return Description(
        source_name,
        table.rows,
        fields,
        proposed,
        _toml(proposal),
        notes,
        proposal.interactions,
        report,
        tuple(proposal.interaction_notes),
        named,
        explode=settings.get("explode"),
    )


def _check_roles(roles: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise ConfigError for a column that the table does not have, or that has two roles."""
    named = Columns.from_mapping({"observation": "", "action": "", **roles}).used()
    columns = [(name, role) for role, names in named.items() if role in roles for name in names]
    for place, (name, role) in enumerate(columns):
        if name not in known:
            raise ConfigError(f"--{role} {name}: there is no such column", fix=nearest(name, known))
        twice = [other for before, other in columns[:place] if before == name]
        if twice:
            raise ConfigError(f"'{name}' is named for --{twice[0]} and --{role}", fix="name each column once")


def _leave_out_leaks(table: Table, proposal: Proposal) -> None:
    """Take columns out of the proposed observations that tell the reward, and note why.

    In episodes of several decisions they stay where nothing else is observed: being in a state may earn the reward.
    """
    if not {"observation", "action", "reward"} <= proposal.mapping.keys():
        return
    raw = from_table(table, Columns.from_mapping(proposal.mapping))
    found = {one.column: one.found for one in outcome_among_observations(raw)}
    observed = proposal.mapping["observation"]
    leaks = {name: found[name] for name in observed if name in found}
    if len(leaks) == len(observed) and len(raw.order.ids) < raw.rows:
        return
    for name in leaks:
        proposal.leave_out(name)
        proposal.notes.append(
            f"'{name}' is not proposed as an observation: {leaks[name]}; add it if it is known before the decision"
        )


def _randomised_hints(raw: RawLog) -> list[str]:
    """Comment lines that propose each action's share as its propensity, for a log that looks randomised; else none."""
    balance = raw_balance(raw, Declaration(by=())) if raw.propensity is None is raw.declared else None
    if balance is None or balance.p_value < BALANCED or action_count(raw) > MOST_BALANCED:
        return []
    action = action_name(raw)
    return [
        f'propensity = "{SHARES}"   # only if {action} was drawn at random: no observation predicts it '
        f"({balance.p_text});",
        f"  a log of this size would have shown a difference of {balance.points} in its share between two halves",
    ]


def _counts_rows(rows: pl.DataFrame) -> bool:
    """Whether the column `value` counts the rows of each `episode`, which are in the order of the file or scattered.

    In the order of the file it rises by 1, by one amount from one start, or over all whole numbers from 0 or 1.
    Scattered rows say no order: each episode then has different values, from 0 or 1. A number that falls counts what
    remains.
    """
    rises = rows.select(pl.col("value").diff().over("episode"))["value"].drop_nulls()
    if not len(rises) or bool((rises < 0).all()) or bool(rows["value"].is_nan().any()):
        return False
    each = rows.group_by("episode").agg(
        first=pl.col("value").min(), different=pl.col("value").n_unique(), rows=pl.len()
    )
    different, first = np.unique(rows["value"].to_numpy()), np.unique(each["first"].to_numpy())
    dense = len(first) == 1 and first[0] in (0, 1) and len(different) == different[-1] - first[0] + 1
    if (rises > 0).all():
        even = rises.n_unique() == 1 and (len(first) == 1 or rises[0] == 1.0)
        return bool(even or dense)
    scattered = rows["episode"].rle_id().n_unique() > len(each)
    return bool(scattered and dense and (each["different"] == each["rows"]).all())


def _lists_of_objects(table: Table) -> list[str]:
    """The columns of JSON lines whose cells are lists of objects."""
    if not isinstance(table.data, pl.DataFrame) or not table.source.lower().endswith(LINE_ENDINGS):
        return []
    listed = [series for series in table.data.iter_columns() if series.dtype == pl.List(pl.String)]
    cells = {series.name: series.explode().drop_nulls() for series in listed if not series.has_nulls()}
    return [name for name, texts in cells.items() if len(texts) and texts.str.contains(r"^\{.*\}$").all()]


def _decision_roles(table: Table) -> dict[str, Any]:
    """The roles of the columns of Vowpal Wabbit's DSJSON, one decision a line; none for any other table.

    The index of the chosen action counts from 0, a cost is a negative reward, and `c` is the context.
    """
    if not {"_label_cost", "_label_probability"} <= table.names or not table.names & {"_labelIndex", "_label_Action"}:
        return {}
    context = [name for name in table.columns if name.startswith("c.") and field_of(table.series(name)).kind in _SINGLE]
    action = "_labelIndex" if table.has("_labelIndex") else "_label_Action"
    roles: dict[str, Any] = {"action": action, "reward": "_label_cost", "reward_weights": [-1.0],
                             "propensity": "_label_probability"}  # fmt: skip
    if table.has("p") and isinstance(table.series("p").dtype, pl.List) and action == "_labelIndex":
        roles["actions"] = int(table.series("p").list.len().fill_null(0).to_numpy().max(initial=1))
    if context:
        roles["observation"] = context
    if any(table.series(name).null_count() for name in context):
        roles["missing"] = "mean+flag"  # a feature is on a line, or it is not
    return roles


_SINGLE = ("flag", "whole number", "number", "word")
_DECISIONS = (
    "these are decisions in DSJSON: the action is the index of the chosen one, the reward is the cost times -1, the "
    "observation is the context; the features of the actions (`c._multi`) are not read"
)


def _share_explained(values: pl.Series, probabilities: NDArray[Any]) -> float:
    """The share of the variance of probabilities that a column of logged actions explains; below 0 for other columns.

    Weighted by 1 / probability, rows hold each logged action once a row in expectation.
    """
    code = np.unique(values.cast(pl.String).fill_null("").to_numpy(), return_inverse=True)[1]
    usable = np.isfinite(probabilities) & (probabilities > 0) & (probabilities <= 1)
    if not usable.all():
        return -1.0
    mean, square = (np.bincount(code, probabilities**-power) / len(code) for power in (1.0, 2.0))
    errors = np.sqrt(np.maximum(square - mean**2, 0) / len(code))
    if not (np.abs(mean - 1) <= _FARTHEST * errors).all():
        return -1.0
    within = np.bincount(code, probabilities) / np.bincount(code)
    return float(np.var(within[code]) / max(np.var(probabilities), _TINY))


_FARTHEST = 4  # standard errors
_TINY = 1e-12


def _add_date_format(formats: Sequence[str], proposal: Proposal) -> None:
    """Set the format of the times if there is one; suggest two, without a time, if the values fit both."""
    if len(formats) == 1:
        proposal.mapping["date_format"] = formats[0]
    elif formats:
        proposal.hints.append(f"time = {_value(proposal.mapping.pop('time'))}")
        proposal.hints.append(f"date_format = {_value(formats[0])}   # or {_value(formats[1])}: the times fit both")


def _lacks_header(table: Table) -> bool:
    """Whether the header of a text file looks like its rows: mostly numbers or words of the columns below."""
    frame = table.data
    if not isinstance(frame, pl.DataFrame) or not table.source.lower().endswith(TEXT_ENDINGS) or table.rows < 2:
        return False
    names = [name.partition("\x00")[0] for name in frame.columns]
    if names in ([str(place) for place in range(first, first + len(names))] for first in (0, 1)):
        return False  # numbers of columns, as some frames write them
    alike = 0
    for name, label in zip(frame.columns, names, strict=True):
        cells = frame[name].drop_nulls()
        number = pl.Series([label]).cast(pl.Float64, strict=False)[0] is not None
        numbers = number and not cells.cast(pl.Float64, strict=False).is_null().any()
        alike += 1 if numbers or bool((cells == label).any()) else 0
    return alike > len(names) / 2


def _absent_words(columns: Sequence[pl.Series]) -> list[str]:
    """The words for an empty cell that occur in columns of text with other values."""
    found = set[str]()
    for series in columns:
        if isinstance(series.dtype, pl.String):
            words = series.str.strip_chars().unique().drop_nulls()
            found |= set(words.filter(words.is_in(ABSENT_WORDS)).to_list()) if len(words) > 1 else set()
    return sorted(found)


def _without(series: pl.Series, absent: Sequence[str]) -> pl.Series:
    if not isinstance(series.dtype, pl.String):
        return series
    return series.set(series.str.strip_chars().is_in(list(absent)).fill_null(False), None)


def _field_line(one: Field) -> str:
    examples = ", ".join(one.examples)[:40]
    empty = f", {one.empty:,} empty" if one.empty else ""
    return f"{one.name[:28]:28} {one.kind:12} {one.unique:>9,} different{empty}  {examples}"


def _toml(proposal: Proposal) -> str:
    """The mapping as TOML; suggested and missing entries are comments."""
    lines = [f"{role} = {_value(value)}" for role, value in proposal.mapping.items()]
    missing = (role for role in ("observation", "action") if role not in proposal.mapping)
    lines += [f"# {role} = ...   (no column fits)" for role in missing]
    lines += [f"# {hint}" for hint in proposal.hints]
    known = "reward" in proposal.mapping or any(hint.startswith("reward = ") for hint in proposal.hints)
    return "\n".join([*lines, *([] if known else [_NO_REWARD])])


_NO_REWARD = "# reward = ...   (without one, only behaviour cloning can learn)"


def _value(value: Any) -> str:
    """A TOML value; long lists are split over several lines. TOML forbids a control character that JSON allows."""

    def text(part: Any) -> str:
        return json.dumps(part, ensure_ascii=False).replace("\x7f", r"\u007f")

    if isinstance(value, dict):
        return "{ " + ", ".join(f"{text(key)} = {text(part)}" for key, part in value.items()) + " }"
    line = text(value)
    if len(line) <= _WIDTH - 20 or isinstance(value, str):
        return line
    lines = [""]
    for word in (text(word) + "," for word in value):
        full = len(lines[-1]) + len(word) > _WIDTH - 4
        lines = [*lines, word] if full else [*lines[:-1], f"{lines[-1]} {word}".strip()]
    return "[\n" + "\n".join(f"  {one}" for one in lines) + "\n]"


def _measures(values: dict[str, Any]) -> str:
    def short(value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(short, value))}]"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{name} {short(value)}" for name, value in values.items())


def _action_lines(actions: dict[str, Any]) -> list[str]:
    if "counts" not in actions:
        return [f"actions: {_measures(actions)}"]
    counts = list(actions["counts"].items())
    if all(isinstance(count, int) for _, count in counts):
        counts = sorted(counts, key=lambda item: -item[1])
    more = f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else ""
    return ["actions: " + ", ".join(f"{name}: {count}" for name, count in counts[:_SHOWN]) + more]


def _feature_lines(statistics: dict[str, Any]) -> list[str]:
    lines = [f"  {name}: {_measures(values)}" for name, values in statistics["features"].items()]
    for name, counts in statistics["categories"].items():
        common = sorted(counts.items(), key=lambda item: -item[1])[:5]
        lines.append(
            f"  {name}: {len(counts)} categories, most often "
            + ", ".join(f"{word[:14]} ({count})" for word, count in common)
        )
    return ["observations:", *lines]
