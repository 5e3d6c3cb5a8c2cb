"""Warnings about dependent episodes in logs without a cluster column."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Finding, RawLog, side_by_side
from tidelog.data.core.registry import check
from tidelog.data.validation.clusters import Labels, candidates, codes_of, constant, day_labels, fix_of, kind_of
from tidelog.data.validation.duplicates import find_copies
from tidelog.data.validation.errors import clip_finite


@check("duplicated rows", "warning")
def duplicated_rows(raw: RawLog) -> Iterable[Finding]:
    """Rows of a one-step log, or whole episodes, are exact copies of others more often than by chance."""
    copies = find_copies(raw)
    if copies is None:
        return
    units = "rows" if copies.total == raw.rows else "episodes"
    often = f"most repeated {units} occur {copies.often} times"
    found = f"{copies.units:,} of {copies.total:,} {units} are exact copies of earlier ones; {often}"
    advice = f"remove the copies; if such {units} are dependent, set cluster= to the column of their group"
    yield Finding(None, copies.rows, found, f"independent {units}", advice)


@check("possible cluster column", "warning")
def possible_cluster(raw: RawLog) -> Iterable[Finding]:
    """A column looks like clusters of episodes (persons, sessions, stores or days), but is not named as cluster."""
    if raw.cluster is not None or not (raw.unused or raw.extra or raw.time):
        return
    firsts = np.flatnonzero(np.append(True, raw.order.last[:-1]))
    used = {column.name for feature in raw.observation.values() for column in feature.columns}
    used |= {column.name for column in (*(raw.action.columns if raw.action else ()), *(raw.reward or ()))}
    labels = []
    for column in (*raw.unused, *raw.extra):
        kind = kind_of(column.name, words=column.words is not None)
        if kind is None or column.name in used or column.values.ndim != 1 or column.values.dtype.kind not in "iufM":
            continue
        values = raw.order.sort(column.values)
        if constant(values, raw.order.episode, firsts):
            codes, usable = codes_of(values[firsts]), raw.order.sort(column.usable)[firsts]
            codes = codes if usable.all() else np.where(usable, codes, -1)
            labels.append(Labels(column.name, kind, codes, fix_of(column.name)))
    if raw.time is not None and raw.time.usable.all():
        labels += day_labels(raw.time.name, raw.time.values[raw.order.rows[firsts]])
    for one in candidates(labels, _returns(raw, firsts), _actions(raw)):
        yield Finding(one.name, None, one.found, "independent episodes, or a cluster column", one.fix)


def _returns(raw: RawLog, firsts: Values) -> Values | None:
    """[E, K] sums of the rewards of each episode; unusable rewards count as 0."""
    if not raw.reward:
        return None
    rewards = side_by_side(raw.reward)
    rewards = raw.order.sort(rewards.astype(np.float64) if np.isfinite(rewards).all() else clip_finite(rewards))
    return rewards if len(firsts) == raw.rows else np.add.reduceat(rewards, firsts, axis=0)


def _actions(raw: RawLog) -> Values | None:
    """[E] discrete actions of a one-step log."""
    if raw.action is None or raw.action.kind != "discrete" or len(raw.order.ids) < raw.rows:
        return None
    action = raw.action.values[:, 0]
    return np.asarray(raw.order.sort(action if action.dtype.kind in "iu" else clip_finite(action)).astype(np.int64))
