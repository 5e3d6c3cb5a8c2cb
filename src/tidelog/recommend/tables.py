"""Recommendation lists for the users of a table: their events in, one row per recommended item out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from tidelog._text import shorten
from tidelog.data import parse
from tidelog.data.parse import ParsedTable
from tidelog.data.read import Source, table_of, table_with
from tidelog.errors import SpecError, nearest
from tidelog.recommend.read import id_text, word_lists
from tidelog.runtime.recommender import Histories, Profiles, Recommends
from tidelog.types import Catalogue, Profile

if TYPE_CHECKING:
    from tidelog.policies.policy import Policy


def recommend_for_table(
    policy: Recommends,
    source: Source | pl.DataFrame,
    *,
    user: str,
    item: str,
    time: str | None = None,
    event: str | None = None,
    user_features: Path | pl.DataFrame | None = None,
    k: int = 10,
    unknown: Literal["error", "skip"] = "error",
    explain: bool = False,
    **choices: Any,
) -> pl.DataFrame:
    """Return a table of user, rank, item and score, users in order of their first rows, without rows that lack an item.

    With `explain` there are two more columns: the item of the history on which a recommendation depends most, and how
    many times likelier it makes it (`Policy.explain`). A policy with a user embedding knows its users by `user`.
    `user_features` is a table with one row per user; `choices` are those of `Policy.recommend`. Raises LogError where a
    table cannot be read, SpecError for a missing column, a missing user or time, or an unknown item, event or user.
    """
    table = table_with(source, [name for name in (user, item, time, event) if name is not None])
    users, items = id_text(_column(table, user)), id_text(_column(table, item))
    _check_complete(user, users.is_null().to_numpy())
    if not len(users):
        raise SpecError(f"{table.source} has no rows", "at least one user", "add rows")
    rows = _ordered(table, time)
    kinds = None if event is None else id_text(_column(table, event))
    names = list(dict.fromkeys(users.to_list()))
    histories: dict[str, list[str]] = {name: [] for name in names}
    done: dict[str, list[str | None]] = {name: [] for name in names}
    for row in rows:
        if items[int(row)] is not None:
            histories[users[int(row)]].append(items[int(row)])
            done[users[int(row)]].append(None if kinds is None else kinds[int(row)])
    events = None if kinds is None else [done[name] for name in names]
    who = None if user_features is None else _user_features(policy, table_of(user_features), user, names, unknown)
    user_ids = names if policy.ranker().known_users else None
    asked = Histories([histories[name] for name in names], events, who, user_ids, unknown)
    lists = policy.recommend(asked, k, **choices)
    kind = _column(table, user).dtype
    whole = kind.is_integer() or (kind.is_float() and all(name.lstrip("-").isdigit() for name in names))
    who_took = np.repeat(np.asarray([int(name) for name in names] if whole else names), k)
    ranks, item = np.tile(np.arange(1, k + 1), len(names)), _free(item, user)
    places, scores = _free("rank", user, item), _free("score", user, item)
    columns: dict[str, Any] = {
        user: who_took,
        places: ranks,
        item: lists.items.reshape(-1),
        scores: lists.scores.reshape(-1),
    }
    if explain:
        reasons = policy.explain(asked, lists.items)
        columns[_free("explain", user, item)] = reasons.items.reshape(-1).tolist()
        columns[_free("times_likelier", user, item)] = reasons.times.reshape(-1)
    return pl.DataFrame(columns)


def _free(name: str, *used: str) -> str:
    """Return a column name that is not in use."""
    while name in used:
        name += "_"
    return name


def _user_features(
    policy: Recommends, table: ParsedTable, user: str, names: Sequence[str], unknown: str
) -> list[dict[str, Any] | None]:
    """Return the table's features of each user, None for a missing user with unknown='skip'."""
    profile = policy.spec.observation.get("user")
    if not isinstance(profile, Profile):
        raise SpecError("this policy was trained without user features", fix="drop user_features (--user-features)")
    ids, features = _described(profile, table, user, "user")
    position = dict(zip(ids, features, strict=True))
    missing = [name for name in names if name not in position]
    if missing and unknown != "skip":
        found = f"{table.source} has no row for {len(missing)} users ({shorten(missing, 5)})"
        raise SpecError(found, fix="add rows, or set unknown to 'skip'")
    return [position.get(name) for name in names]


def new_items(policy: Policy, source: Source | pl.DataFrame, item: str) -> Policy:
    """Return a policy that also ranks the items of a table with one row per item and the log's feature columns.

    Rows of items that the policy knows are passed over. Raises SpecError as `Policy.with_items`, for a missing column,
    and for a table without a new item.
    """
    catalogue: Any = policy.spec.action
    if not isinstance(catalogue, Catalogue) or catalogue.profile is None:
        return policy.with_items([], [])  # refuses, and says why
    table = table_of(source)
    ids, features = _described(catalogue.profile, table, item, "item")
    known = {str(one) for one in catalogue.ids}
    added = [row for row, one in enumerate(ids) if one not in known]
    if not added:
        raise SpecError(f"{table.source} has no new item: the policy knows all of them", fix="drop it (--new-items)")
    kind = type(catalogue.ids[0])
    return policy.with_items([kind(ids[row]) for row in added], [features[row] for row in added])


def _described(profile: Profile, table: ParsedTable, key: str, what: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the ids of a table with one row per user or item, and the columns of its features in each row."""
    ids = id_text(_column(table, key)).to_list()
    known = {one for one in ids if one is not None}
    if len(known) < len(ids):
        raise SpecError(
            f"{table.source} has {len(ids)} rows for {len(known)} {what}s", f"one per {what}", "drop repeated rows"
        )
    profiles = Profiles(profile)
    columns = {name: _cells(_column(table, name), profiles.is_number(name), table.source) for name in profiles.columns}
    return ids, [{name: cells[row] for name, cells in columns.items()} for row in range(len(ids))]


def _cells(series: pl.Series, numbers: bool, source: str) -> list[Any]:
    """Return the cells of one column as `Policy.recommend` accepts them."""
    if not numbers:
        return word_lists(series).to_list()
    column = parse.number(series)
    if len(column.unreadable):
        row, text = int(column.unreadable[0]), column.texts[0] if column.texts else ""
        raise SpecError(f"{source}, row {row + 1}: '{series.name}' is '{text}'", "a number", "correct the cell")
    return [float(value) if there else None for value, there in zip(column.values, column.usable, strict=True)]


def _column(table: ParsedTable, name: str) -> pl.Series:
    if name in table.uneven:
        raise SpecError(table.uneven[name], "the same column in every file", "export the files alike")
    if not table.has(name):
        raise SpecError(f"{table.source} has no column '{name}': {nearest(name, table.columns)}")
    return table.series(name)


def _ordered(table: ParsedTable, time: str | None) -> Any:
    """Return the rows by time, or in their order."""
    if time is None:
        return np.arange(table.rows)
    column = parse.moment(_column(table, time))
    _check_complete(time, ~(column.usable & np.isfinite(column.values)))  # of dates too: NaT is not finite
    return np.argsort(column.values, kind="stable")


def _check_complete(name: str, bad: Any) -> None:
    at = np.flatnonzero(bad)
    if len(at):
        rows = shorten(at + 1, 10)
        raise SpecError(f"column '{name}' has no valid value in {len(at)} row(s): {rows}", fix="fill or drop them")
