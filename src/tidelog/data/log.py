"""The canonical log: construction from arrays or from any validated `RawLog`, export and statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog._text import facts_table, in_unit, three_digits
from tidelog.data import warnings  # noqa: F401 (importing it registers every check)
from tidelog.data.checks import action_count
from tidelog.data.declared import (
    DeclaredPropensities,
    labels_of,
    probabilities_of,
    propensity_column,
    strata_of,
)
from tidelog.data.export import feature_table
from tidelog.data.log_columns import LogColumns
from tidelog.data.parse import from_arrays
from tidelog.data.raw import Column, Feature, RawLog, Report, Values, examine, number_by_appearance, side_by_side
from tidelog.data.statistics import Statistics, describe, log_figure
from tidelog.data.storage import save, save_shards
from tidelog.errors import LogError
from tidelog.types import (
    ActionSpace,
    Codes,
    Continuous,
    Discrete,
    Image,
    Leaf,
    MultiDiscrete,
    Spec,
    Vector,
    in_words,
    list_labels,
)

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Log(LogColumns):
    """Recorded decisions: `N` steps of `E` episodes over `M` stored observations. Never changed in place.

    Example:
        >>> log = tl.Log.from_arrays(
        ...     observation=np.array([[3.0], [2.0], [4.0]], np.float32),
        ...     action=np.array([0, 1, 0]),
        ...     reward=np.array([0.0, 1.0, 0.0], np.float32),
        ...     episode=np.array([7, 7, 8]),
        ...     terminated=np.array([False, True, True]),
        ... )
        >>> log
        Log(3 steps, 2 episodes, observation {observation: Vector}, action Discrete)
        >>> train, held_out = log.split(0.5, seed=0)
    """

    @classmethod
    def from_raw(cls, raw: RawLog) -> Log:
        """Validate a raw log and build a log from it; LogError with the whole report if there is any error."""
        report = examine(raw)
        if not report.ok:
            raise LogError(report.text(), report=report)
        return cls(**assemble(raw, report))

    @classmethod
    def from_arrays(
        cls,
        *,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any = None,
        truncated: Any = None,
        episode: Any = None,
        next_observation: Any = None,
        followed: Any = None,
        propensity: Any = None,
        action_mask: Any = None,
        next_action_mask: Any = None,
        actions: int | Sequence[int] | None = None,
        bounds: Sequence[Any] | None = None,
        atoms: float | Sequence[float] = (),
        weight: Any = None,
        step: Any = None,
        time: Any = None,
        cluster: Any = None,
        categorical: bool = True,
        terminations: str = "stop",
        reward_unit: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Log:
        """Validate arrays of N rows and build a log from them; LogError (with its report) if there is any error.

        `observation` is `[N]` or `[N, O]` (floats: a Vector; integers or text: Codes, unless `categorical=False`),
        `[N, height, width, channels]` uint8 (an Image), or a mapping from leaf names to such arrays, in which inner
        mappings become leaves "outer/inner"; `action` is `[N]` integers, `[N, D]` integers or `[N, A]` floats.
        `episode=None`: every row is an episode of one step. `terminated=True`: every episode terminated at its end.
        `cluster` [N] text or integers: groups of dependent episodes (of one person, store or day), the same value in
        every row of an episode. `propensity` is `[N]`, or declared: a probability of every action, a mapping from each
        action to its own, "shares" (each action's own share), or `{"shares_by": strata [N]}`. `atoms`: values of
        continuous actions that the logger took with a probability of their own; a recorded propensity is that there.
        `followed` [N] bool: rows with a known `next_observation`; None: all rows. `reward_unit`: the unit of rewards,
        such as "EUR", which verdicts and reports show.
        """
        return cls.from_raw(
            from_arrays(
                observation=observation, action=action, reward=reward, terminated=terminated, truncated=truncated,
                episode=episode, next_observation=next_observation, followed=followed, propensity=propensity,
                action_mask=action_mask, next_action_mask=next_action_mask, actions=actions, bounds=bounds, atoms=atoms,
                weight=weight, step=step, time=time, cluster=cluster, categorical=categorical,
                terminations=terminations, reward_unit=reward_unit, extra=extra,
            )
        )  # fmt: skip

    def facts(self) -> dict[str, str]:
        """Return a summary by name: steps, ends, observation, action, mean reward, propensities and warnings."""
        means = None if self.reward is None else np.atleast_1d(np.mean(self.reward, axis=0, dtype=np.float64))
        return {
            "steps": f"{self.steps:,} in {len(self.episodes):,} episodes",
            "ends": f"{int(self.terminated.sum()):,} terminated, {int(self.truncated.sum()):,} truncated",
            "observation": "\n".join(f"{name}: {in_words(leaf)}" for name, leaf in self.spec.observation.items()),
            "action": in_words(self.spec.action),
            "mean reward of a step": "no rewards"
            if means is None
            else ", ".join(map(three_digits, means)) + in_unit(self.reward_unit),
            "propensities": "none" if self.propensity is None else self.declared.text if self.declared else "logged",
            "warnings": f"{len(self.report.warnings):,}",
        }

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return facts_table("Log", self.facts())

    def plot(self) -> Figure:
        """Return a matplotlib figure: histograms of returns and episode lengths, and the actions."""
        return log_figure(self)

    def statistics(self) -> Statistics:
        """Compute statistics of lengths, returns, actions, propensities and features."""
        return describe(self)

    def features(self) -> pl.DataFrame:
        """The columns of the observation as a table [N, C], one row a decision, for estimators of scikit-learn.

        Columns are in the order of `spec.observation`, with the labels and units of the source. Numbers are float64, a
        missing one is NaN; codes with labels are text, or whole numbers if every label is one. SpecError for a picture.
        """
        return feature_table(self.spec, self.transitions.observation)

    def save(self, path: str | Path, overwrite: bool = False, shards: int | None = None) -> None:
        """Write a folder that `open_log` reads; LogError if the path exists (with `overwrite`: if it is not a log).

        `shards` divides the log into so many saved logs in that folder, between episodes (docs/scale.md).
        """
        if shards is None:
            save(self, Path(path), overwrite)
        else:
            save_shards(self, Path(path), shards, overwrite)

    def to_parquet(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write a table and, next to it, its mapping for `read_log` (.toml); return the path of the mapping."""
        from tidelog.data.export import to_parquet

        return to_parquet(self, path, overwrite)

    def to_minari(self, dataset_id: str, overwrite: bool = False) -> None:
        """Write a Minari data set; LogError if it exists, or if the observation after a truncation is not known."""
        from tidelog.data.export import to_minari

        to_minari(self, dataset_id, overwrite)

    def to_arrays(self) -> dict[str, Any]:
        """The arguments of `Log.from_arrays` that give the same columns."""
        from tidelog.data.export import to_arrays

        return to_arrays(self)

    def to_npz(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the arrays of `to_arrays` to a file that `read_npz` reads."""
        from tidelog.data.export import save_npz

        save_npz(self, path, overwrite)


def assemble(raw: RawLog, report: Report) -> dict[str, Any]:
    """Build the fields of a `Log` from a valid raw log; rows in episode order, each observation stored once."""
    order, flags = raw.order, raw.flags
    known = order.last & order.sort(raw.followed)
    stored_last = np.flatnonzero(known)
    position = np.arange(raw.rows, dtype=np.int32)
    if len(stored_last):
        position += np.cumsum(known, dtype=np.int32) - known
    next_position = position + (~order.last | known)
    reward = None if raw.reward is None else _own(raw, side_by_side(raw.reward), np.float32)
    if reward is not None and raw.reward is not None and len(raw.reward) == 1 and raw.reward[0].values.ndim != 2:
        reward = reward[:, 0]
    if raw.cluster is None:
        cluster = None
    else:  # numbered by first appearance; an episode has the cluster of its first row
        firsts = np.flatnonzero(np.append(True, order.last[:-1]))
        cluster = number_by_appearance(order.sort(raw.cluster.values)[firsts])[0][order.episode]
    extra = {}
    for column in raw.extra:
        values = order.sort(column.values)
        extra[column.name] = values if column.vocabulary is None else np.asarray(column.vocabulary)[values]
    components = reward.shape[1] if reward is not None and reward.ndim == 2 else None
    leaves = {name: _leaf_spec(raw, name) for name in raw.observation}
    mask = _masks(raw, position, stored_last)
    propensity = None if raw.propensity is None else _own(raw, raw.propensity.values, np.float32)
    action, space, declared, stratum = _action(raw), _action_space(raw), None, None
    if raw.declared is not None and isinstance(space, Discrete):
        declared = DeclaredPropensities(probabilities_of(raw.declared, labels_of(space))[0], raw.declared.by or ())
        stratum = strata_of([raw.order.sort(column.values) for column in raw.strata]) if raw.strata else None
        propensity = propensity_column(declared, action, stratum, space.n)
    return {
        "spec": Spec(leaves, space, components, raw.action_mask is not None),
        "observation": {name: _leaf(raw, name, position, stored_last) for name in raw.observation},
        "position": position,
        "next_position": next_position.astype(np.int32, copy=False),
        "action": action,
        "reward": reward,
        "terminated": flags.terminated,
        "truncated": flags.truncated,
        "episode": order.episode,
        "step": order.step,
        "propensity": propensity,
        "declared": declared,
        "stratum": stratum,
        "action_mask": mask,
        "weight": None if raw.weight is None else _own(raw, raw.weight.values, np.float32),
        "time": None if raw.time is None else order.sort(raw.time.values),
        "cluster": cluster,
        "extra": extra,
        "episode_ids": order.ids,
        "report": report,
        "reward_unit": raw.reward_unit,
        "atoms": raw.atoms,
    }


def _leaf_spec(raw: RawLog, name: str) -> Leaf:
    feature = raw.observation[name]
    labels = _labels(feature.columns) if raw.from_table else ()
    if feature.kind == "image":
        return Image(*feature.columns[0].values.shape[1:])
    if feature.kind == "vector":
        return Vector(_width(feature), labels, feature.fills)
    both = [feature, *([raw.next_observation[name]] if name in raw.next_observation else [])]
    tops = np.max([side_by_side(one.columns).max(axis=0) for one in both], axis=0)
    words = tuple(column.vocabulary for column in feature.columns if column.vocabulary is not None)
    width = len(tops)
    vocabularies = tuple(words * width if len(words) == 1 else words)
    sizes = feature.sizes or tuple(len(entry) for entry in vocabularies) or tuple(int(top) + 1 for top in tops)
    rare = tuple(column.rare_labels for column in feature.columns)
    return Codes(sizes, labels, vocabularies, rare if any(rare) else ())


def _width(feature: Feature) -> int:
    return sum(column.values[0:1].size for column in feature.columns)


def _labels(columns: tuple[Column, ...]) -> tuple[str, ...]:
    labels: list[str] = []
    for column in columns:
        width = column.values[0:1].size
        labels += [column.name] if column.values.ndim == 1 else list_labels(column.name, width)
    return tuple(labels)


def _action_space(raw: RawLog) -> ActionSpace:
    action = raw.action
    if action is None:
        raise LogError("the log has no action", fix="name the action column or array")
    if action.kind == "discrete":
        return Discrete(action_count(raw), action.columns[0].vocabulary or ())
    values = _action(raw)
    if action.kind == "multi":
        return MultiDiscrete(action.sizes or tuple(int(top) + 1 for top in values.max(axis=0)))
    low, high = action.bounds or (tuple(values.min(axis=0).tolist()), tuple(values.max(axis=0).tolist()))
    return Continuous(low, high, _labels(action.columns) if raw.from_table else ())


def _action(raw: RawLog) -> Values:
    if raw.action is None:
        raise LogError("the log has no action", fix="name the action column or array")
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


def _own(raw: RawLog, values: Values, kind: type) -> Values:
    """Values in episode order as a new array; values of a table are not copied again."""
    return raw.order.sort(values).astype(kind, copy=not raw.from_table)
