"""Read a table of interactions into validated `Interactions`, or into a report of every problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.registry import report_of
from tidelog.data.core.report import Report
from tidelog.data.io.readers import open_log, read_any
from tidelog.data.log import Log
from tidelog.data.sources import is_table_file, table_with
from tidelog.data.sources.files import recorded_source, source_text
from tidelog.data.validation.quarantine import csv_path, delete_older, write_rows
from tidelog.errors import LogError
from tidelog.recommend.interactions.checks import event_reward, examine, findings, pauses
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.interactions.saved_fields import INTERACTIONS, saved_fields
from tidelog.recommend.interactions.tables import FeatureTable, RawInteractions, Roles, raw_interactions
from tidelog.schema import typed

ONE_KIND = ("event",)  # the name of events if no column names their kind


def read_interactions(source: Any, *, user: str, item: str, time: str, **roles: Any) -> Interactions:
    """Read a table of who chose which item when: a path (CSV, Parquet, JSON lines, Arrow) or a frame.

    A folder of tables, a glob, or a list of these is one log of several files, read in the order of their names.

    `event`: the column of event kinds. `reward`: a column, or the reward of each kind; by default each event has reward
    1. `reward_unit`: the unit of rewards, such as "EUR", which reports show. `session`, `session_gap`: ends of
    sessions. `propensity`, `slate`: the probability of the item, and the shown items. `item_features`, `user_features`:
    tables with one row per id. Raises LogError with the report of every problem, ConfigError for an invalid argument.

    Example:
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> tl.read_interactions(table, user="user", item="item", time="time")
        Interactions(3 events of 2 users, 2 items; event)
    """
    return read_by_roles(source, Roles(user=user, item=item, time=time, **roles))


def read_by_roles(source: Any, roles: Roles) -> Interactions:
    """Read interactions with the arguments in one value; those from files can be read again."""
    raw = raw_interactions(source, roles)
    report = examine(raw)
    if not report.ok:
        raise LogError(report.text(), report)
    interactions = _build(raw, report)
    named = roles.to_json()
    recorded = recorded_source(source, is_table_file)
    if recorded is None or named is None:
        return interactions
    return replace(interactions, origin={"source": recorded, "columns": None, "roles": named})


def open_interactions(path: str | Path) -> Interactions:
    """Read a folder of `Interactions.save`; LogError names a foreign, truncated or changed file.

    Example:
        >>> table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["tea", "cup", "tea"], "time": [1, 2, 1]})
        >>> tl.read_interactions(table, user="user", item="item", time="time").save("clicks.tidelog")
        >>> tl.open_interactions("clicks.tidelog")
        Interactions(3 events of 2 users, 2 items; event)
    """
    return Interactions(**saved_fields(path))


def validate_interactions(source: Any, *, user: str, item: str, time: str, **roles: Any) -> Report:
    """Validate a table of interactions and return the report; does not raise for bad data.

    Example:
        >>> table = pl.DataFrame({"user": ["a", "a"], "item": ["tea", None], "time": [1, 2]})
        >>> report = tl.validate_interactions(table, user="user", item="item", time="time")
        >>> print(report.text().splitlines()[1])
        error: empty cell in 'item', 1 row: 2
    """
    return validate_by_roles(source, Roles(user=user, item=item, time=time, **roles))


def validate_by_roles(
    source: Any,
    roles: Roles,
    quarantine: str | Path | None = None,
    csv_safe: bool = False,
    overwrite: bool = False,
    keep: str | Path | None = None,
) -> Report:
    """Validate with the arguments in one value; the rows of every error go to a new CSV file `quarantine`.

    With `overwrite` that file is replaced, or deleted if no error names a row. `keep`: also write the other rows to
    this new CSV file; the other events of a user stay, in their order.
    """
    target = None if quarantine is None else csv_path(quarantine, overwrite)
    kept = None if keep is None else csv_path(keep, overwrite)
    try:
        raw = raw_interactions(source, roles)
    except LogError as error:
        report: Report = error.report
        if target is not None:
            delete_older(target)
        return report
    results, named = findings(raw), list(roles.used().values())
    if target is not None or kept is not None:
        write_rows(table_with(source, named), results, target, kept, None, csv_safe)
    return report_of(raw, results)


def _build(raw: RawInteractions, report: Report) -> Interactions:
    """Order events and build `Interactions`; the raw log must be valid."""
    order, worth = raw.order, event_reward(raw)
    if raw.item is None or raw.time is None or worth is None:
        raise LogError("the interactions have no user, item or time. fix: name all three columns", report)
    kinds = ONE_KIND if raw.event is None else raw.event.vocabulary or ()
    event = np.ones(raw.rows, np.int32) if raw.event is None else order.sort(raw.event.values) + 1
    terminated = _session_ends(raw)
    time = order.sort(raw.time.values)
    return Interactions(
        users=order.ids,
        items=raw.catalogue,
        events=tuple(kinds),
        user=order.episode,
        item=(order.sort(raw.item.values) + 1).astype(np.int32),
        event=event.astype(np.int32),
        reward=order.sort(worth),
        time=time if time.dtype.kind == "M" else time.astype(np.float64),
        terminated=terminated,
        truncated=order.last & ~terminated,
        propensity=None if raw.propensity is None else order.sort(raw.propensity.values).astype(np.float32),
        slate=None if raw.slate is None else order.sort(raw.slate),
        item_features=_features(raw.item_features, raw.catalogue, 1),
        user_features=_features(raw.user_features, order.ids, 0),
        feature_names=() if raw.item_features is None else raw.item_features.profile.names,
        profile=None if raw.user_features is None else raw.user_features.profile,
        item_profile=None if raw.item_features is None else raw.item_features.profile,
        scored=None,
        report=report,
        reward_unit=raw.roles.reward_unit,
        session_gap=raw.session_gap,
    )


def _session_ends(raw: RawInteractions) -> Values:
    """[M] bool: the last events of sessions, before another session of the user or a pause longer than the gap."""
    order = raw.order
    ends = np.zeros(raw.rows, bool)
    if raw.session_gap is not None and order.key is not None:
        ends |= pauses(order.key, order.last) > raw.session_gap
    if raw.session is not None:
        session = order.sort(raw.session.values)
        ends[:-1] |= ~order.last[:-1] & (session[1:] != session[:-1])
    return ends


def _features(described: FeatureTable | None, ids: Values, before: int) -> Values | None:
    """[before + ids, F] float32: one row per id in their order, after rows of zeros."""
    if described is None:
        return None
    place = {word: row for row, word in enumerate(described.ids.to_list())}
    rows = np.asarray([place[str(one)] for one in ids.tolist()])
    padding = np.zeros((before, described.values.shape[1]), np.float32)
    features: Values = np.concatenate([padding, described.values[rows]])
    return features


class Origin(msgspec.Struct):
    """Where a log was read from, and how."""

    source: Any  # a path, several, or the name of a data set
    columns: Any
    memory_map: bool = False
    roles: dict[str, Any] | None = None
    parts: list[dict[str, Any]] = []


def reopen(origin: Mapping[str, Any]) -> Log:
    """Read a log again from its origin; LogError if the origin holds interactions."""
    log = reopen_any(origin)
    if isinstance(log, Interactions):
        raise LogError(f"{source_text(origin)} holds interactions: expected a log with observations", log.report)
    return log


def reopen_any(origin: Mapping[str, Any]) -> Log | Interactions:
    """Read a log or interactions again from their origin, and take the same parts of it."""
    about = typed(origin, Origin, "the origin of the log", LogError)
    log = _reopen_source(about)
    for part in about.parts:
        if isinstance(log, Interactions):
            raise LogError(f"{about.source} holds interactions: expected a log with observations", log.report)
        log = log.part_again(part)
    return log


def _reopen_source(origin: Origin) -> Log | Interactions:
    source = origin.source
    if origin.roles is not None:
        return read_by_roles(source, Roles(**origin.roles))
    if isinstance(source, str) and INTERACTIONS.is_at(Path(source)):
        return open_interactions(source)
    return open_log(str(source), memory_map=True) if origin.memory_map else read_any(source, origin.columns)
