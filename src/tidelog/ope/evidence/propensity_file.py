"""Propensities from a file: recorded or estimated elsewhere, matched to the steps of a log.

The file is a table that `read_log` could read. Its column `propensity` has recorded probabilities of the logged actions
(densities of continuous ones), `estimated_propensity` those of somebody's model, which a verdict trusts less. `episode`
and `step` name the decision; steps are in their order, whatever number the first one has. In a log of episodes of one
step, `step` may be absent. Without `episode`, the rows are those of the source of the log, in its order, of which the
log may be a part; for a log of one step per episode they may also be those of the log.

Letter: `N` steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from tidelog.data.core.order import Values
from tidelog.data.io.readers import rows_in_source
from tidelog.data.log import Log
from tidelog.data.parsing import column as parse
from tidelog.data.parsing.tables import Table
from tidelog.data.sources.files import source_text
from tidelog.data.sources.tables import one_table
from tidelog.errors import SpecError
from tidelog.ope.evidence.evidence import Floats
from tidelog.types import Continuous

RECORDED, ESTIMATED = "propensity", "estimated_propensity"
EPISODE, STEP = "episode", "step"


@dataclass(frozen=True, eq=False)
class FilePropensities:
    """Propensities of the steps of a log from a file."""

    values: Floats  # [N]
    estimated: bool  # whether they are those of a model
    file: str
    unused: int = 0  # rows of episodes that are not in the log


def read_propensities(path: str | Path, log: Log) -> FilePropensities:
    """Read the propensities of a log's steps from a file; LogError for no table, SpecError if it does not fit the log.

    Rows of steps that are not in the log are counted, because a log may be a part of the one that the file is about.
    """
    table = one_table(path)
    name = _column_of(table)
    if not table.rows:
        raise SpecError(f"{table.source}: no row, expected one for each step of the log. fix: write the file again")
    values = _probabilities(table, name, 1.0 if not isinstance(log.spec.action, Continuous) else np.inf)
    rows = _matched_rows(table, log) if EPISODE in table.names else _rows_in_order(table, log)
    return FilePropensities(values[rows], name == ESTIMATED, str(path), table.rows - len(rows))


def _column_of(table: Table) -> str:
    """The column of propensities; SpecError if there is none, or both."""
    named = [name for name in (RECORDED, ESTIMATED) if name in table.names]
    if len(named) == 1:
        return named[0]
    found = "both of them" if named else f"the columns {', '.join(sorted(table.names)[:10])}"
    raise SpecError(
        f"{table.source}: expected one column '{RECORDED}' (recorded) or '{ESTIMATED}' (from a model), found {found}. "
        "fix: rename or remove columns"
    )


def _numbers(table: Table, name: str) -> Floats:
    """A column as numbers, NaN where a cell is none; SpecError for lists."""
    column = parse.number(table.series(name))
    if column.values.ndim != 1:
        raise SpecError(f"{table.source}: '{name}' holds lists, expected one number in each row. fix: split the lists")
    return np.where(column.usable, column.values, np.nan).astype(np.float64)


def _probabilities(table: Table, name: str, highest: float) -> Floats:
    """The column as numbers above 0 and at most `highest`, in the order of the file."""
    values = _numbers(table, name)
    bad = np.flatnonzero(~((values > 0) & (values <= highest) & np.isfinite(values)))
    if len(bad):
        expected = "a number above 0" if highest == np.inf else "a probability above 0 and at most 1"
        cell = table.series(name)[int(bad[0])]
        raise SpecError(
            f"{table.source}: the {name} of row {bad[0] + 1:,} is {'empty' if cell is None else cell} ({len(bad):,} "
            f"such row(s)), expected {expected}. fix: correct the file"
        )
    return values


def _rows_in_order(table: Table, log: Log) -> Values:
    """The rows of the file for the steps [N], by their places in the source of the log; SpecError if there are others.

    A file for a log of single steps may also have a row for each of them. If so, and for logs in memory, the source is
    not read again.
    """
    single = log.steps == len(log.episode_ids)
    if single and table.rows == log.steps:
        return np.arange(log.steps)
    found = rows_in_source(log)
    if found is not None and table.rows == found[1]:
        return found[0]
    fix = f"fix: add the columns '{EPISODE}' and '{STEP}' of the log"
    if found is None and not single:
        raise SpecError(
            f"{table.source}: there is no column '{EPISODE}', and the steps of a log that is in memory only may be in "
            f"another order than the rows of the file. {fix}"
        )
    if single:
        fix = f"fix: add the column '{EPISODE}' of the log (where it has none: the numbers of its rows, from 0)"
    expected = [f"{log.steps:,}, one for each step of the judged log"] * single
    if found is not None and log.origin is not None:
        expected.append(f"{found[1]:,}, one for each row of {source_text(log.origin)}")
    raise SpecError(f"{table.source}: {table.rows:,} rows, expected {' or '.join(expected)}. {fix}")


def _matched_rows(table: Table, log: Log) -> Values:
    """The rows of the file for the steps [N], by episode and step; SpecError unless there is one for each."""
    episodes = parse.identity(table.series(EPISODE))
    names = episodes.values if episodes.vocabulary is None else np.asarray(episodes.vocabulary)[episodes.values]
    moments = _numbers(table, STEP) if STEP in table.names else None
    empty = ~episodes.usable if moments is None else ~(episodes.usable & np.isfinite(moments))
    if empty.any():
        raise SpecError(
            f"{table.source}: row {np.flatnonzero(empty)[0] + 1:,} has no '{EPISODE}' or no number in '{STEP}' "
            f"({empty.sum():,} such row(s)). fix: fill these cells"
        )
    longest = int(np.diff(log.starts).max())
    if moments is None and longest > 1:
        raise SpecError(
            f"{table.source}: there is no column '{STEP}', and episodes have up to {longest:,} steps. fix: add it"
        )
    known = pl.DataFrame({"name": [str(one) for one in log.episode_ids.tolist()]}).with_row_index("place")
    keys = pl.DataFrame({
        "name": pl.Series([str(one) for one in names.tolist()], dtype=pl.String),
        "step": np.zeros(table.rows) if moments is None else moments,
    }).with_row_index("row")  # fmt: skip
    mine = keys.join(known, on="name", how="inner").sort("place", "step", "row")
    if not len(mine):
        raise SpecError(
            f"{table.source}: none of its episodes, such as '{keys['name'][0]}', is in the log, whose first one is "
            f"'{known['name'][0]}'. fix: write the log's own episodes into the column '{EPISODE}'"
        )
    repeated = mine.filter(mine.select("place", "step").is_duplicated())
    if len(repeated):
        raise SpecError(
            f"{table.source}: step {repeated['step'][0]:g} of episode '{repeated['name'][0]}' stands in several rows "
            f"({len(repeated):,} such rows). fix: keep one row for each step"
        )
    counts = np.bincount(mine["place"].to_numpy(), minlength=len(known))
    lengths = np.diff(log.starts)
    wrong = np.flatnonzero(counts != lengths)
    if len(wrong):
        one = int(wrong[0])
        raise SpecError(
            f"{table.source}: {counts[one]:,} row(s) for the {lengths[one]:,} step(s) of episode "
            f"'{known['name'][one]}' ({len(wrong):,} such episode(s)). fix: write one row for each step of the log"
        )
    return mine["row"].to_numpy()
