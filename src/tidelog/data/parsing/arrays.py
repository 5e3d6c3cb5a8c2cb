"""Parse arrays into a `RawLog`: the common part of `Log.from_arrays`, npz files and Minari data sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tidelog.data.core.columns import declared_actions, declared_atoms, declared_unit
from tidelog.data.core.declared import SHARES_BY, Declaration, declaration_of
from tidelog.data.core.order import Values
from tidelog.data.core.raw import Column, Feature, Finding, RawAction, RawLog
from tidelog.data.core.rounding import rounded_rewards
from tidelog.data.parsing.actions import decide_action, widened
from tidelog.errors import ConfigError

SINGLE = ("terminated", "truncated", "episode", "step", "time", "propensity", "weight", "cluster")
ROLES = (
    "observation",
    "action",
    "reward",
    *SINGLE,
    "next_observation",
    "followed",
    "action_mask",
    "next_action_mask",
    "actions",
    "bounds",
    "atoms",
    "reward_unit",
)
_CHANNELS = (1, 3, 4)
_TIMES = "iufM"
_ANY = "biufMU"
_KINDS = {"*": "biuf", "time": _TIMES, "step": _TIMES, "episode": "iufU", "cluster": "iufU", "action": "biufU"}


class _ArrayFindings:
    """Arrays and their findings; N is the length of the action."""

    def __init__(self, action: Any) -> None:
        self.found: list[tuple[str, Finding]] = []
        shape = np.shape(action) if not isinstance(action, list | tuple) else (len(action),)
        self.rows = int(shape[0]) if shape else 0

    def refuse(self, check: str, name: str, found: str, expected: str, advice: str) -> None:
        self.found.append((check, Finding(name, None, found, expected, advice)))

    def array(self, name: str, value: Any, deepest: int = 1) -> Values | None:
        """Convert to an array of N rows and at most `deepest` axes; None and a finding if that fails."""
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.empty(0, object)
        if array.dtype == object or array.ndim > deepest or array.ndim == 0 or (self.rows and not array.size):
            shape = "[N]" if deepest == 1 else "[N] or [N, D]"
            found = "rows of different shapes, or objects" if array.dtype == object else f"shape {list(array.shape)}"
            advice = "give every row the same shape; images are arrays [N, height, width, channels] of uint8"
            self.refuse("changing shapes", name, found, f"one array of shape {shape}", advice)
            return None
        if len(array) != self.rows:
            found, expected = f"{len(array):,} rows", f"{self.rows:,} rows, as many as actions"
            self.refuse("wrong length", name, found, expected, "give one value for every row")
            return None
        return array

    def column(self, name: str, value: Any, deepest: int = 1, kinds: str | None = None) -> Column | None:
        """Convert to a column; None if there is no value, or if it does not fit (with a finding)."""
        if value is None:
            return None
        array = self.array(name, value, deepest)
        if array is None:
            return None
        if array.dtype.kind not in (kinds or _KINDS.get(name, _KINDS["*"])):
            found = f"{array.dtype}, such as {array.reshape(-1)[0]!r}" if array.size else str(array.dtype)
            self.refuse("non-numeric text", name, found, "numbers", "convert the array to numbers")
            return None
        if array.dtype.kind == "U":
            words, codes = np.unique(array, return_inverse=True)
            return Column(name, codes.reshape(array.shape).astype(np.int32), tuple(map(str, words)))
        if array.dtype.kind == "b":
            return Column(name, array.astype(np.float32))
        return Column(name, array.astype("datetime64[us]") if array.dtype.kind == "M" else array)


def from_arrays(
    source: str = "arrays",
    *,
    observation: Any,
    action: Any,
    reward: Any,
    next_observation: Any = None,
    followed: Any = None,
    action_mask: Any = None,
    next_action_mask: Any = None,
    actions: Any = None,
    bounds: Any = None,
    atoms: Any = (),
    categorical: bool = True,
    sizes: Mapping[str, tuple[int, ...]] | None = None,
    terminations: str = "stop",
    reward_unit: str | None = None,
    extra: Mapping[str, Any] | None = None,
    **single: Any,
) -> RawLog:
    """Parse the arrays; a misfit is a finding, not an exception."""
    if next_action_mask is not None and action_mask is None:
        raise ConfigError("next_action_mask is set without action_mask. fix: set both or only action_mask")
    arrays = _ArrayFindings(action)
    always = single.get("terminated") is True
    fields = single | {"terminated": None} if always else single
    declared, strata = _declared(arrays, fields.get("propensity"))
    fields = fields if declared is None else fields | {"propensity": None}
    columns: dict[str, Any] = {name: arrays.column(name, fields.get(name)) for name in SINGLE}
    rewards = arrays.column("reward", reward, 2)
    observed = _features(arrays, "observation", observation, categorical, sizes)
    for name, value in (("observation", observation), ("action", action)):
        if value is None or (isinstance(value, Mapping) and not value):
            arrays.refuse("missing column", name, "no array", "an array of N rows", f"pass {name}=")
    return RawLog(
        source=source,
        rows=arrays.rows,
        numbers=np.arange(1, arrays.rows + 1),
        has_lines=False,
        observation=observed,
        next_observation=_where(arrays, followed, _following(arrays, observed, next_observation, categorical, sizes)),
        action=_action(arrays, action, actions, bounds),
        reward=None if rewards is None else (rewards,),
        action_mask=arrays.column("action_mask", action_mask, 2),
        next_action_mask=arrays.column("next_action_mask", next_action_mask, 2),
        extra=tuple(filter(None, (arrays.column(name, value, 1, _ANY) for name, value in (extra or {}).items()))),
        terminations=terminations,
        reward_unit=declared_unit(reward_unit),
        atoms=declared_atoms(atoms),
        declared=declared,
        strata=strata,
        always_terminated=always,
        from_table=False,
        found=(*arrays.found, *(() if rewards is None else rounded_rewards(rewards))),
        **columns,
    )


def _declared(arrays: _ArrayFindings, value: Any) -> tuple[Declaration | None, tuple[Column, ...]]:
    """What `propensity` declares, and the strata of shares; None for an array of recorded propensities."""
    if isinstance(value, Mapping) and list(value) == [SHARES_BY] and len(np.shape(value[SHARES_BY])) == 1:
        if not len(value[SHARES_BY]):
            return Declaration(by=()), ()
        column = arrays.column("stratum", value[SHARES_BY], 1, "biufU")
        return Declaration(by=("stratum",)), () if column is None else (column,)
    is_declared = isinstance(value, str | Mapping | int | float)
    return (declaration_of(value), ()) if is_declared else (None, ())


def _features(
    arrays: _ArrayFindings, role: str, values: Any, categorical: bool, sizes: Mapping[str, tuple[int, ...]] | None
) -> dict[str, Feature]:
    leaves = dict(flat_leaves("", values)) if isinstance(values, Mapping) else {"observation": values}
    features = {}
    for name, value in leaves.items():
        label = name if isinstance(values, Mapping) and role == "observation" else role
        feature = _image(arrays, label, value) if _is_image(value) else None
        column = None if _is_image(value) else arrays.column(label, value, 2, "biufU")
        if column is not None:
            whole = column.values.dtype.kind in "iu"
            coded = column.vocabulary is not None or (whole and categorical)
            feature = Feature("codes" if coded else "vector", (column,), (sizes or {}).get(name))
        if feature is not None:
            features[name] = feature
    return features


def flat_leaves(prefix: str, values: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings, named `a/b`."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_leaves(f"{prefix}{key}/", value)
        else:
            yield f"{prefix}{key}", value


def _is_image(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 4


def _image(arrays: _ArrayFindings, name: str, value: Values) -> Feature | None:
    """Images [N, H, W, C]; a shape like [N, C, H, W] is a finding."""
    array = arrays.array(name, value, 4)
    if array is None:
        return None
    first, last = array.shape[1], array.shape[3]
    if first in _CHANNELS and last not in _CHANNELS:
        advice = "transpose them: images.transpose(0, 2, 3, 1)"
        found = f"shape {list(array.shape)}, with channels before height and width"
        arrays.refuse("changing shapes", name, found, "images [N, height, width, channels]", advice)
        return None
    return Feature("image", (Column(name, array),))


def _following(
    arrays: _ArrayFindings, observed: dict[str, Feature], values: Any, categorical: bool, sizes: Any
) -> dict[str, Feature]:
    """Leaves of the next observation; each must have the kind and width of its leaf in `observed`."""
    if values is None:
        return {}
    following = _features(arrays, "next_observation", values, categorical, sizes)
    fitting = {}
    for name, feature in observed.items():
        other = following.get(name)
        if other is None or _form(other) != _form(feature):
            found = "nothing" if other is None else _form(other)
            expected = f"{_form(feature)}, like the observation"
            advice = "give both the same shape and type"
            arrays.refuse("changing shapes", f"next_observation '{name}'", found, expected, advice)
        else:
            observed[name], fitting[name] = _one_vocabulary(feature, other)
    return fitting


def _where(arrays: _ArrayFindings, followed: Any, following: dict[str, Feature]) -> dict[str, Feature]:
    """Mark next observations as missing in rows where `followed` is not set."""
    known = arrays.column("followed", followed)
    if known is None:
        return following
    unknown = np.flatnonzero(known.values != 1)
    return {
        name: replace(leaf, columns=tuple(replace(column, missing=unknown) for column in leaf.columns))
        for name, leaf in following.items()
    }


def _form(feature: Feature) -> str:
    return f"{feature.kind} of shape {list(feature.columns[0].values.shape)}"


def _one_vocabulary(feature: Feature, other: Feature) -> tuple[Feature, Feature]:
    """Recode both features to the union of their vocabularies; features without a vocabulary stay unchanged."""
    words = sorted({*(feature.columns[0].vocabulary or ()), *(other.columns[0].vocabulary or ())})
    if not words:
        return feature, other
    recoded = []
    for one in (feature, other):
        column = one.columns[0]
        places = np.searchsorted(words, column.vocabulary or ()).astype(np.int32)
        recoded.append(replace(one, columns=(replace(column, values=places[column.values], vocabulary=tuple(words)),)))
    return recoded[0], recoded[1]


def _action(arrays: _ArrayFindings, action: Any, actions: Any, bounds: Any) -> RawAction | None:
    column = arrays.column("action", action, 2)
    if column is None:
        return None
    sizes, limits = declared_actions(actions, bounds)
    if column.vocabulary is not None:
        return RawAction("discrete", (column,))
    if sizes is not None:
        return decide_action((column,), sizes, None)
    if limits is not None or np.asarray(action).dtype.kind == "f":
        return RawAction("continuous", (column,), None, widened(limits, column.values[0:1].size))
    return RawAction("multi" if column.values.ndim == 2 else "discrete", (column,))
