"""Lists of items for the users of a table: what they took so far goes in, one row an item comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog.acting.policy import Policy
from tidelog.data import parse
from tidelog.data.interaction_tables import words_of
from tidelog.data.sources import table_of
from tidelog.data.tables import Table
from tidelog.errors import SpecError, nearest


def recommend_for_table(
    policy: Policy,
    source: Path | pl.DataFrame,
    *,
    user: str,
    item: str,
    time: str | None = None,
    event: str | None = None,
    k: int = 10,
    **choices: Any,
) -> pl.DataFrame:
    """A table of user, rank, item and score, users in order of their first rows; a row without an item adds nothing.

    `choices` are those of `Policy.recommend`. Raises LogError where the table cannot be read, SpecError where a column
    is lacking, a user or time is missing, or an item or event is not known.
    """
    table = table_of(source, [name for name in (user, item, time, event) if name is not None])
    users, items = words_of(_column(table, user)), words_of(_column(table, item))
    _refuse_holes(user, users.is_null().to_numpy())
    if not len(users):
        raise SpecError(f"{table.source} has no rows: there is nobody to recommend for")
    rows = _ordered(table, time)
    kinds = None if event is None else _column(table, event).cast(pl.String)
    names = list(dict.fromkeys(users.to_list()))
    histories: dict[str, list[str]] = {name: [] for name in names}
    done: dict[str, list[str | None]] = {name: [] for name in names}
    for row in rows:
        if items[int(row)] is not None:
            histories[users[int(row)]].append(items[int(row)])
            done[users[int(row)]].append(None if kinds is None else kinds[int(row)])
    events = None if kinds is None else [done[name] for name in names]
    lists = policy.recommend([histories[name] for name in names], k, events=events, **choices)
    return pl.DataFrame(
        {
            user: np.repeat(np.asarray(names), k),
            "rank" if user != "rank" else "place": np.tile(np.arange(1, k + 1), len(names)),
            item if item != user else "item": lists.items.reshape(-1),
            "score": lists.scores.reshape(-1),
        }
    )


def _column(table: Table, name: str) -> pl.Series:
    if not table.has(name):
        raise SpecError(f"{table.source} lacks the column '{name}': {nearest(name, table.columns)}")
    return table.series(name)


def _ordered(table: Table, time: str | None) -> Any:
    """Rows by time, or as they stand."""
    if time is None:
        return np.arange(table.rows)
    column = parse.moment(_column(table, time))
    _refuse_holes(time, ~column.usable)
    return np.argsort(column.values, kind="stable")


def _refuse_holes(name: str, bad: Any) -> None:
    at = np.flatnonzero(bad)
    if len(at):
        listed = ", ".join(str(row + 1) for row in at[:10]) + (", ..." if len(at) > 10 else "")
        raise SpecError(f"column '{name}' has no value that can be read in {len(at)} row(s): {listed}")
