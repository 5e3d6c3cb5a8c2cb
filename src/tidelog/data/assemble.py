"""Assemble the columns of a log from a validated `RawLog`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tidelog.data.core.order import Values, numbered
from tidelog.data.core.raw import Column, Feature, RawLog, side_by_side
from tidelog.data.core.registry import examine
from tidelog.data.core.report import Report
from tidelog.data.validation import dependence  # noqa: F401 (importing them registers every check)
from tidelog.data.validation import errors as checks  # noqa: F401 (importing them registers every check)
from tidelog.data.validation import warnings as remarks  # noqa: F401 (importing them registers every check)
from tidelog.data.validation.errors import action_count
from tidelog.errors import LogError
from tidelog.types import ActionSpace, Codes, Continuous, Discrete, Image, Leaf, MultiDiscrete, Spec, Vector


def checked(raw: RawLog) -> dict[str, Any]:
    """Validate a raw log and build the fields of a `Log`; LogError with the whole report if there is any error."""
    report = examine(raw)
    if not report.ok:
        raise LogError(report.text(), report)
    return build(raw, report)


def build(raw: RawLog, report: Report) -> dict[str, Any]:
    """Build the fields of a `Log` from a valid raw log; rows in episode order, each observation stored once."""
    order, flags = raw.order, raw.flags
    known = order.last & order.sort(raw.followed)
    stored_last = np.flatnonzero(known)
    position = np.arange(raw.rows, dtype=np.int32)
    if len(stored_last):
        position += np.cumsum(known, dtype=np.int32) - known
    next_position = position + (~order.last | known)
    reward = None if raw.reward is None else _plain(raw, raw.reward)
    mask = _masks(raw, position, stored_last)
    return {
        "spec": _spec(raw, reward),
        "observation": {name: _leaf(raw, name, position, stored_last) for name in raw.observation},
        "position": position,
        "next_position": next_position.astype(np.int32, copy=False),
        "action": _action(raw),
        "reward": reward,
        "terminated": flags.terminated,
        "truncated": flags.truncated,
        "episode": order.episode,
        "step": order.step,
        "propensity": _single(raw, raw.propensity),
        "action_mask": mask,
        "weight": _single(raw, raw.weight),
        "time": None if raw.time is None else order.sort(raw.time.values),
        "cluster": _cluster(raw),
        "extra": {column.name: _decoded(raw, column) for column in raw.extra},
        "episode_ids": order.ids,
        "report": report,
    }


def _spec(raw: RawLog, reward: Values | None) -> Spec:
    leaves = {name: _leaf_spec(raw, name) for name in raw.observation}
    components = reward.shape[1] if reward is not None and reward.ndim == 2 else None
    return Spec(leaves, _action_space(raw), components, raw.action_mask is not None)


def _leaf_spec(raw: RawLog, name: str) -> Leaf:
    feature = raw.observation[name]
    labels = _labels(feature.columns) if raw.from_table else ()
    if feature.kind == "image":
        return Image(*feature.columns[0].values.shape[1:])
    if feature.kind == "vector":
        return Vector(_width(feature), labels, feature.fills)
    both = [feature, *([raw.next_observation[name]] if name in raw.next_observation else [])]
    tops = np.max([_tops(one) for one in both], axis=0)
    words = tuple(column.words for column in feature.columns if column.words is not None)
    width = len(tops)
    vocabularies = tuple(words * width if len(words) == 1 else words)
    sizes = feature.sizes or tuple(len(entry) for entry in vocabularies) or tuple(int(top) + 1 for top in tops)
    return Codes(sizes, labels, vocabularies)


def _width(feature: Feature) -> int:
    return sum(column.values[0:1].size for column in feature.columns)


def _tops(feature: Feature) -> Values:
    tops: Values = side_by_side(feature.columns).max(axis=0)
    return tops


def _labels(columns: tuple[Column, ...]) -> tuple[str, ...]:
    labels: list[str] = []
    for column in columns:
        width = column.values[0:1].size
        labels += [column.name] if column.values.ndim == 1 else [f"{column.name}_{place}" for place in range(width)]
    return tuple(labels)


def _action_space(raw: RawLog) -> ActionSpace:
    action = raw.action
    if action is None:
        raise LogError("the log has no action. fix: name the action column or array")
    if action.kind == "discrete":
        return Discrete(action_count(raw), action.columns[0].words or ())
    values = _action(raw)
    if action.kind == "multi":
        return MultiDiscrete(action.sizes or tuple(int(top) + 1 for top in values.max(axis=0)))
    low, high = action.bounds or (tuple(values.min(axis=0).tolist()), tuple(values.max(axis=0).tolist()))
    return Continuous(low, high, _labels(action.columns) if raw.from_table else ())


def _action(raw: RawLog) -> Values:
    if raw.action is None:
        raise LogError("the log has no action. fix: name the action column or array")
    kind = np.float32 if raw.action.kind == "continuous" else np.int32
    values = _own(raw, raw.action.values, kind)
    return values[:, 0] if raw.action.kind == "discrete" else values


def _leaf(raw: RawLog, name: str, position: Values, stored_last: Values) -> Values:
    """[M, ...]: observations by position; a known next observation follows the last one of its episode."""
    feature = raw.observation[name]
    following = raw.next_observation[name].columns if len(stored_last) else feature.columns
    if feature.kind == "image":
        images = np.empty((raw.rows + len(stored_last), *feature.columns[0].values.shape[1:]), np.uint8)
        _place(raw, images, feature.columns[0], following[0], position, stored_last)
        return images
    if feature.block is not None and not len(stored_last):
        return raw.order.sort(feature.block)
    kind = np.float32 if feature.kind == "vector" else np.int32
    leaf = np.empty((raw.rows + len(stored_last), _width(feature)), kind)
    start = 0
    for now, later in zip(feature.columns, following, strict=True):
        stop = start + now.values[0:1].size
        _place(raw, leaf[:, start:stop], now, later, position, stored_last)
        start = stop
    return leaf


def _place(raw: RawLog, leaf: Values, now: Column, later: Column | None, position: Values, stored_last: Values) -> None:
    """Write the values of one column to their positions in a leaf."""
    where = slice(None) if len(leaf) == raw.rows else position
    leaf[where] = raw.order.sort(now.values).reshape(raw.rows, *leaf.shape[1:])
    if len(stored_last) and later is not None:
        last = later.values[raw.order.rows[stored_last]]
        leaf[position[stored_last] + 1] = last.reshape(len(stored_last), *leaf.shape[1:])


def _masks(raw: RawLog, position: Values, stored_last: Values) -> Values | None:
    """[M, A] bool: masks by position; after an episode with an unknown next mask, all actions are allowed."""
    if raw.action_mask is None:
        return None
    mask = np.ones((raw.rows + len(stored_last), raw.action_mask.values.shape[1]), bool)
    later = raw.next_action_mask
    if later is not None:
        values = later.values.copy()
        values[later.missing] = 1
        later = replace(later, values=values)
    _place(raw, mask, raw.action_mask, later, position, stored_last)
    return mask


def _plain(raw: RawLog, columns: tuple[Column, ...]) -> Values:
    values = _own(raw, side_by_side(columns), np.float32)
    several = len(columns) > 1 or columns[0].values.ndim == 2
    return values if several else values[:, 0]


def _single(raw: RawLog, column: Column | None) -> Values | None:
    return None if column is None else _own(raw, column.values, np.float32)


def _cluster(raw: RawLog) -> Values | None:
    """[N] int32: clusters numbered by first appearance; an episode has the cluster of its first row."""
    if raw.cluster is None:
        return None
    firsts = np.flatnonzero(np.append(True, raw.order.last[:-1]))
    return numbered(raw.order.sort(raw.cluster.values)[firsts])[0][raw.order.episode]


def _own(raw: RawLog, values: Values, kind: type) -> Values:
    """Values in episode order as a new array; values of a table are not copied again."""
    return raw.order.sort(values).astype(kind, copy=not raw.from_table)


def _decoded(raw: RawLog, column: Column) -> Values:
    values = raw.order.sort(column.values)
    return values if column.words is None else np.asarray(column.words)[values]
