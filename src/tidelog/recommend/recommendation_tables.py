"""Lists of items for the users of a table: what they took so far goes in, one row an item comes out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog.data.parsing import column as parse
from tidelog.data.parsing.tables import Table
from tidelog.data.sources import table_of
from tidelog.errors import SpecError, nearest
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions.tables import listed, words_of
from tidelog.runtime.profiles import Profiles
from tidelog.types import Profile


def recommend_for_table(
    policy: Policy,
    source: Path | pl.DataFrame,
    *,
    user: str,
    item: str,
    time: str | None = None,
    event: str | None = None,
    user_features: Path | pl.DataFrame | None = None,
    k: int = 10,
    unknown: str = "error",
    **choices: Any,
) -> pl.DataFrame:
    """A table of user, rank, item and score, users in order of their first rows; a row without an item adds nothing.

    `user_features` is a table with a row a user; `choices` are those of `Policy.recommend`. Raises LogError where a
    table cannot be read, SpecError where a column is lacking, a user or time is missing, or an item, event or user is
    not known.
    """
    table = table_of(source, [name for name in (user, item, time, event) if name is not None])
    users, items = words_of(_column(table, user)), words_of(_column(table, item))
    _refuse_holes(user, users.is_null().to_numpy())
    if not len(users):
        raise SpecError(f"{table.source} has no rows: there is nobody to recommend for")
    rows = _ordered(table, time)
    kinds = None if event is None else words_of(_column(table, event))
    names = list(dict.fromkeys(users.to_list()))
    histories: dict[str, list[str]] = {name: [] for name in names}
    done: dict[str, list[str | None]] = {name: [] for name in names}
    for row in rows:
        if items[int(row)] is not None:
            histories[users[int(row)]].append(items[int(row)])
            done[users[int(row)]].append(None if kinds is None else kinds[int(row)])
    events = None if kinds is None else [done[name] for name in names]
    who = None if user_features is None else _described(policy, table_of(user_features), user, names, unknown)
    lists = policy.recommend(
        [histories[name] for name in names], k, events=events, users=who, unknown=unknown, **choices
    )
    who_took = np.repeat(np.asarray(_as_they_were(names, _column(table, user).dtype)), k)
    ranks, item = np.tile(np.arange(1, k + 1), len(names)), _free(item, user)
    places, scores = _free("rank", user, item), _free("score", user, item)
    return pl.DataFrame(
        {user: who_took, places: ranks, item: lists.items.reshape(-1), scores: lists.scores.reshape(-1)}
    )


def _free(name: str, *taken: str) -> str:
    """A name for a column beside others."""
    while name in taken:
        name += "_"
    return name


def _as_they_were(names: list[str], kind: pl.DataType) -> list[Any]:
    """Users as the table had them: numbers where they were whole ones."""
    whole = kind.is_integer() or (kind.is_float() and all(name.lstrip("-").isdigit() for name in names))
    return [int(name) for name in names] if whole else names


def _described(
    policy: Policy, table: Table, user: str, names: Sequence[str], unknown: str
) -> list[dict[str, Any] | None]:
    """What a table says of each user, None of one that it does not have and that may be passed over."""
    profile = policy.spec.observation.get("user")
    if not isinstance(profile, Profile):
        raise SpecError("this policy was not trained with user features: leave the table of them away")
    ids = words_of(_column(table, user)).to_list()
    place = {name: row for row, name in enumerate(ids) if name is not None}
    if len(place) < len(ids):
        raise SpecError(f"{table.source} must have one row a user, found {len(ids)} rows of {len(place)} users")
    lacking = [name for name in names if name not in place]
    if lacking and unknown != "skip":
        said = ", ".join(lacking[:5]) + (", ..." if len(lacking) > 5 else "")
        raise SpecError(f"{table.source} does not describe {len(lacking)} users ({said}); unknown='skip' goes on")
    profiles = Profiles(profile)
    columns = {name: _said(_column(table, name), profiles.is_number(name), table.source) for name in profiles.columns}
    return [
        None if name not in place else {column: said[place[name]] for column, said in columns.items()} for name in names
    ]


def _said(series: pl.Series, numbers: bool, source: str) -> list[Any]:
    """The cells of one column as `Policy.recommend` takes them."""
    if not numbers:
        return listed(series).to_list()
    column = parse.number(series)
    if len(column.unreadable):
        row, text = int(column.unreadable[0]), column.texts[0] if column.texts else ""
        raise SpecError(f"{source}, row {row + 1}: '{series.name}' is '{text}', expected a number")
    return [float(value) if there else None for value, there in zip(column.values, column.usable, strict=True)]


def _column(table: Table, name: str) -> pl.Series:
    if not table.has(name):
        raise SpecError(f"{table.source} lacks the column '{name}': {nearest(name, table.columns)}")
    return table.series(name)


def _ordered(table: Table, time: str | None) -> Any:
    """Rows by time, or as they stand."""
    if time is None:
        return np.arange(table.rows)
    column = parse.moment(_column(table, time))
    known = (
        column.usable & ~np.isnat(column.values)
        if column.values.dtype.kind == "M"
        else (column.usable & np.isfinite(column.values))
    )
    _refuse_holes(time, ~known)
    return np.argsort(column.values, kind="stable")


def _refuse_holes(name: str, bad: Any) -> None:
    at = np.flatnonzero(bad)
    if len(at):
        listed = ", ".join(str(row + 1) for row in at[:10]) + (", ..." if len(at) > 10 else "")
        raise SpecError(f"column '{name}' has no value that can be read in {len(at)} row(s): {listed}")
