"""The canonical log, whose columns stand in `log_columns.py`: from arrays or any valid `RawLog`, joined, declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tidelog._text import facts_table, in_unit, three_digits
from tidelog.data.checks import action_count
from tidelog.data.columns import (
    AT_RANDOM,
    UNKNOWN,
    DeclarationError,
    DeclaredPropensities,
    check_strata,
    declaration_of,
    frozen,
    labels_of,
    probabilities_of,
    propensity_column,
    strata_of,
)
from tidelog.data.dependence import Balance, ObservedColumn, as_number, balance_of, fit_of
from tidelog.data.export import feature_table, save_npz, to_arrays, to_parquet
from tidelog.data.log_columns import OPTIONAL, LogColumns
from tidelog.data.parse import LogArrays, from_arrays
from tidelog.data.raw import (
    CHECKS,
    Column,
    Feature,
    Problem,
    RawLog,
    Report,
    Values,
    examine,
    number_by_appearance,
    several_as_text,
    side_by_side,
)
from tidelog.data.statistics import Statistics, describe, elapsed_times, labels_of_leaf, log_figure
from tidelog.data.storage import save, saved_columns
from tidelog.errors import ConfigError, LogError, SpecError, nearest
from tidelog.types import (
    ActionSpace,
    Codes,
    Continuous,
    Discrete,
    Hybrid,
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
    def from_arrays(cls, **arrays: Unpack[LogArrays]) -> Log:
        """Validate arrays of N rows and build a log from them; LogError (with its report) if there is any error.

        Needed are `observation` (`[N]` or `[N, O]`: floats are a Vector, integers or text are Codes unless
        `categorical=False`; `[N, height, width, channels]` uint8 is an Image; a mapping from leaf names to such arrays
        may hold mappings, which become leaves "outer/inner"), `action` (`[N]` integers, `[N, D]` integers, `[N, A]`
        floats, or a mapping from parts to these, which may hold mappings: `tl.types.Hybrid`) and `reward` (`[N]`, `[N,
        K]` or None). `episode=None`: every row is an episode of one step. `terminated=True`: every episode terminated
        at its end; else `terminated` and `truncated` are `[N]` flags. `cluster` [N] text or integers: groups of
        dependent episodes (of one person, store or day), the same value in every row of an episode. `propensity` is
        `[N]`, or declared: a probability of every action, a mapping from each action to its own, "shares" (each
        action's own share), or `{"shares_by": strata [N]}`. `atoms`: values of continuous actions that the behaviour
        policy took with a probability of their own; a recorded propensity is that there. `followed` [N] bool: rows with
        a known `next_observation`; None: all rows. `actions` counts discrete actions, `bounds` are (low, high) of
        continuous ones, both by part where the action has parts. `missing_reward`: what NaN among rewards is, as in
        `Columns`; without it, NaN is an error. `reward_unit`: the unit of rewards, such as "EUR", which verdicts and
        reports show. `elapsed` [N]: the time to the next decision, or to the end of the episode, in units of which
        `elapsed_unit` names one ("hour"): discounts are per unit, as in `Columns`; NaN is empty. Also `step`, `time`,
        `weight` [N], `action_mask`, `next_action_mask` [N, actions],
        `terminations="ignore"`, `sizes`, the numbers of codes of leaves of the observation, and `extra`, further
        columns by name. ConfigError names the nearest known name of a misspelt one.
        """
        return cls.from_raw(from_arrays(**arrays))

    def facts(self) -> dict[str, str]:
        """Return a summary by name: steps, ends, observation, action, mean reward, propensities and warnings."""
        known = slice(None) if self.reward_known is None else self.reward_known
        means = None if self.reward is None else np.atleast_1d(np.mean(self.reward[known], axis=0, dtype=np.float64))
        times, elapsed = elapsed_times(self), dict[str, str]()
        if times is not None:
            low, mean, high = (three_digits(times[name]) for name in ("min", "mean", "max"))
            unit = in_unit(self.elapsed_unit, "in units of 1 ")
            elapsed = {"time to the next decision": f"{low} to {high}, mean {mean}{unit}"}
        return {
            "steps": f"{self.steps:,} in {len(self.episodes):,} episodes",
            "ends": f"{int(self.terminated.sum()):,} terminated, {int(self.truncated.sum()):,} truncated",
            "observation": "\n".join(f"{name}: {in_words(leaf)}" for name, leaf in self.spec.observation.items()),
            "action": in_words(self.spec.action),
            "mean reward of a step": "no rewards"
            if means is None
            else ", ".join(map(three_digits, means)) + in_unit(self.reward_unit),
            **({} if self.reward_known is None else {"unknown rewards": f"{int((~self.reward_known).sum()):,}"}),
            "propensities": "none" if self.propensity is None else self.declared.text if self.declared else "logged",
            **elapsed,
            **({} if self.hindsight is None else {"goals": f"in hindsight ({self.hindsight}): not to be judged"}),
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

    @staticmethod
    def concat(logs: Sequence[Log]) -> Log:
        """Join logs with equal specs into one log, the episodes of the first first; LogError names what differs.

        An identifier that several logs use stands for different episodes: then all episodes are numbered anew from 0,
        with a note. Clusters have no names in a log: those of different logs are different clusters. To continue
        episodes or clusters from one file in another, read the files together: `read_log([first, second], columns)`.

        Example:
            >>> logs = [tl.collect("treatment", episodes=200, seed=seed) for seed in (0, 1)]
            >>> len(tl.Log.concat(logs).starts) - 1
            400
        """
        return _concat(logs)

    @classmethod
    def load(cls, path: str | Path, memory_map: bool = False) -> Log:
        """Read a folder of `save`; LogError names the file that is foreign, truncated or changed.

        `memory_map=True` leaves columns on disk and checks sizes only, not checksums.

        Example:
            >>> tl.collect("treatment", episodes=200, seed=0).save("visits.tidelog")
            >>> log = tl.Log.load("visits.tidelog", memory_map=True)
            >>> type(log.action).__name__
            'memmap'
        """
        return cls(**saved_columns(path, memory_map))

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a folder that `load` reads; LogError if the path exists (with `overwrite`: if it is not a log)."""
        save(self, Path(path), overwrite)

    def to_parquet(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write a table and, next to it, its mapping for `read_log` (.toml); return the path of the mapping."""
        return to_parquet(self, path, overwrite)

    def to_arrays(self) -> dict[str, Any]:
        """The arguments of `Log.from_arrays` that give the same columns."""
        return to_arrays(self)

    def to_npz(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the arrays of `to_arrays` to a file that `read_log` reads."""
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
    reward_known = None
    if reward is not None and raw.missing_reward is not None:
        present = ~np.any([one.is_missing for one in raw.reward or ()], axis=0)
        reward_known = None if present.all() else order.sort(present)
        if reward_known is not None:
            reward = np.where(reward_known[:, None], reward, np.float32(np.nan))
    if reward is not None and reward.shape[1] == 1:
        reward = reward[:, 0]
    if raw.cluster is None:
        cluster = None
    else:  # numbered by first appearance; an episode has the cluster of its first row
        firsts = order.firsts
        cluster = number_by_appearance(order.sort(raw.cluster.values)[firsts])[0][order.episode]
    extra = {}
    for column in raw.extra:
        values = _own(raw, column.values, column.values.dtype)
        extra[column.name] = values if column.vocabulary is None else np.asarray(column.vocabulary)[values]
    components = reward.shape[1] if reward is not None and reward.ndim == 2 else None
    elapsed = None
    if raw.elapsed is not None:  # 0 where none is known because nothing that counts follows
        elapsed = _own(raw, np.where(raw.elapsed.usable, raw.elapsed.values, 0.0), np.float32)
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
        "time": None if raw.time is None else _own(raw, raw.time.values, raw.time.values.dtype),
        "elapsed": elapsed,
        "cluster": cluster,
        "extra": extra,
        "episode_ids": order.ids,
        "report": report,
        "reward_unit": raw.reward_unit,
        "elapsed_unit": raw.elapsed_unit,
        "reward_known": reward_known,
        "missing_reward": None if reward_known is None else raw.missing_reward,
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
    if action.parts:
        spaces: list[Any] = [_action_space(part) for part in raw.action_parts()]
        return Hybrid(tuple((name, space) for (name, _), space in zip(action.parts, spaces, strict=True)))
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
    kind = np.float32 if raw.action.kind in ("continuous", "hybrid") else np.int32
    values = _own(raw, raw.action.values, kind)
    return values[:, 0] if raw.action.kind == "discrete" else values


def _leaf(raw: RawLog, name: str, position: Values, stored_last: Values) -> Values:
    """[M, ...]: observations by position; a known next observation follows the last one of its episode."""
    feature, rows = raw.observation[name], raw.rows + len(stored_last)
    following = raw.next_observation[name].columns if len(stored_last) else feature.columns
    if feature.kind == "image":
        leaf = np.empty((rows, *feature.columns[0].values.shape[1:]), np.uint8)
        _place(raw, leaf, feature.columns[0], following[0], position, stored_last)
        return leaf
    leaf, stop = np.empty((rows, _width(feature)), np.float32 if feature.kind == "vector" else np.int32), 0
    for now, later in zip(feature.columns, following, strict=True):
        start, stop = stop, stop + now.values[0:1].size
        _place(raw, leaf[:, start:stop], now, later, position, stored_last)
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


def _own(raw: RawLog, values: Values, kind: DTypeLike) -> Values:
    """Values in episode order as a new array; values of a table are not copied again."""
    return raw.order.sort(values).astype(kind, copy=not raw.from_table)


# Join logs in memory: the episodes of one after those of another.

# States of a log: its different observations, numbered, and whether tables of counts suit them better than networks.
#
# A table suits few different observations that are visited often. If observations consist of labels alone, distances
# between them mean nothing, so a network needs almost as many visits as a table: there, few visits of a pair of state
# and action are no obstacle, and a single column of labels is always a table.
#
# Letters: `M` stored observations, `S` states.

VISITS_A_STATE, VISITS_A_PAIR = 20, 5  # smallest mean visits in a tabular log
LARGEST = 20_000  # states of the largest table


class States(NamedTuple):
    """Numbers of the different observations."""

    stored: NDArray[np.int64]  # [M]
    size: int  # S


def number_observations(log: Log) -> States:
    """Number the different stored observations of a log; different masks are different observations."""
    columns = [np.asarray(leaf) for _, leaf in sorted(log.observation.items())]
    columns += [] if log.action_mask is None else [np.asarray(log.action_mask)]
    flat = [np.ascontiguousarray((c + 0.0 if c.dtype.kind == "f" else c).reshape(len(c), -1)) for c in columns]
    rows = np.concatenate([c.view(np.uint8).reshape(len(c), -1) for c in flat], axis=1)
    keys = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}")[:, 0]
    unique, states = np.unique(keys, return_inverse=True)
    return States(states.astype(np.int64), len(unique))


def is_tabular(log: Log, states: States | None = None) -> bool:
    """Whether a log has discrete actions and few different observations, each visited often enough for a table."""
    if not isinstance(log.spec.action, Discrete):
        return False
    states = states or number_observations(log)
    if states.size > LARGEST:
        return False
    here = states.stored[np.asarray(log.position)]
    visited = len(np.unique(here))
    leaves = log.spec.observation.values()
    labels = sum(len(leaf.sizes) for leaf in leaves if isinstance(leaf, Codes))
    if all(isinstance(leaf, Codes) for leaf in leaves):
        return labels == 1 or log.steps >= VISITS_A_STATE * visited
    pairs = len(np.unique(here * log.spec.action.n + np.asarray(log.action)))
    return log.steps >= VISITS_A_STATE * visited and log.steps >= VISITS_A_PAIR * pairs


KNOWN = "reward_known"  # absent where all rewards are known
_ROWS = ("action", "terminated", "truncated", "step", "reward", "propensity", "weight", "time", "elapsed")


def _concat(logs: Sequence[Log]) -> Log:
    if isinstance(logs, Log):
        raise LogError("concat needs a list of logs", fix="write tl.Log.concat([log, other])")
    logs = list(logs)
    if not logs:
        raise LogError("there are no logs to join", fix="pass at least one log")
    for position, log in enumerate(logs):
        if not isinstance(log, Log):
            kind = type(log).__name__
            raise LogError(f"log {position} is of the type {kind}", "a Log", "read the files together")
    check_alike(logs)
    first = logs[0]
    if len(logs) == 1:
        return first
    ids, notes = _episode_ids(logs)
    columns: dict[str, Any] = {name: _joined([getattr(log, name) for log in logs]) for name in _ROWS}
    columns |= {
        "observation": {name: _joined([log.observation[name] for log in logs]) for name in first.observation},
        "extra": {name: _joined([log.extra[name] for log in logs]) for name in first.extra},
        "action_mask": _joined([log.action_mask for log in logs]),
        "episode": _shifted(logs, "episode", [len(log.episode_ids) for log in logs]),
        "episode_ids": ids,
    }
    if first.cluster is not None:
        before = np.cumsum([0, *(int(log.clusters.max()) + 1 for log in logs[:-1])])
        columns["cluster"] = np.concatenate(
            [(log.clusters + start)[log.episode].astype(np.int32) for log, start in zip(logs, before, strict=True)]
        )
    if any(log.reward_known is not None for log in logs):
        columns[KNOWN] = np.concatenate(
            [np.ones(log.steps, bool) if log.reward_known is None else log.reward_known for log in logs]
        )
        stated = {log.missing_reward for log in logs if log.reward_known is not None}
        columns["missing_reward"] = AT_RANDOM if stated == {AT_RANDOM} else UNKNOWN
    if first.stratum is not None:  # strata have no names in a log: those of different logs are different strata
        columns["stratum"] = _shifted(logs, "stratum", [int(np.max(np.asarray(log.stratum))) + 1 for log in logs])
    stored = [len(next(iter(log.observation.values()))) for log in logs]
    columns |= {name: _shifted(logs, name, stored) for name in ("position", "next_position")}
    return replace(first, **columns, report=joined_report(logs, notes), origin=None)


def check_alike(logs: Sequence[Log]) -> None:
    """Raise LogError, with the first difference, unless the logs have one spec, the same columns and one unit."""
    first, *facts = (_facts(log) for log in logs)
    for position, (log, other) in enumerate(zip(logs[1:], facts, strict=True), 1):
        for name in dict.fromkeys((*first, *other)):
            one, another = first.get(name, "absent"), other.get(name, "absent")
            if one != another:
                raise LogError(
                    f"{name} is {one:.60} in log 0 ({logs[0].report.source}), but {another:.60} in log {position} "
                    f"({log.report.source})",
                    "the same",
                    _fix(name),
                )


def _facts(log: Log) -> dict[str, str]:
    """What must be equal in logs that are joined, by name."""
    declared = {"declared": "not declared"} if log.declared is None else log.declared.to_json()
    flat = dict(_flat("spec", log.spec.to_json())) | dict(_flat("propensity", declared))
    flat |= {f"column '{name}'": "absent" if getattr(log, name) is None else "present" for name in OPTIONAL
             if name != KNOWN}  # fmt: skip
    columns = {f"extra column '{name}'": values for name, values in log.extra.items()}
    columns |= {} if log.time is None else {"the type of 'time'": log.time}
    flat |= {name: {"U": "text", "M": "dates"}.get(values.dtype.kind, "numbers") for name, values in columns.items()}
    units = {name: getattr(log, name) or "absent" for name in ("reward_unit", "elapsed_unit", "hindsight")}
    return flat | units | {"atoms": str(list(log.atoms))}


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Names with dots, and texts, of all values of a mapping of mappings."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _flat(f"{name}.{key}", one)
    else:
        yield name, str(list(value) if isinstance(value, tuple) else value)


def _fix(name: str) -> str:
    """How to make a fact equal in two logs."""
    if name in ("reward_unit", "elapsed_unit", "atoms") or name.startswith("propensity"):
        return f"declare the same {name.partition('.')[0]}= in both mappings"
    if name == "hindsight":
        return "relabel both logs by the same strategy, or neither"
    if not name.startswith("spec."):
        return "give both logs this column, or neither"
    declared = {"n": "actions=", "low": "bounds=", "high": "bounds=", "sizes": "actions= or vocabularies=",
                "vocabularies": "vocabularies="}  # fmt: skip
    option = declared.get(name.rpartition(".")[2], "the same columns")
    return f"read the files together, or declare {option} in the mapping of each"


def _joined(parts: Sequence[Values | None]) -> Values | None:
    present = [part for part in parts if part is not None]
    if len({part.dtype for part in present if part.dtype.kind == "M"}) > 1:
        present = [part.astype("datetime64[us]") for part in present]  # nanoseconds hold no year after 2262
    return np.concatenate(present) if present else None


def _shifted(logs: Sequence[Log], name: str, sizes: Sequence[int]) -> Values:
    """Codes or positions of all logs, each counted on from the log before."""
    before = np.cumsum([0, *sizes[:-1]])
    return np.concatenate([getattr(log, name) + np.int32(start) for log, start in zip(logs, before, strict=True)])


def _episode_ids(logs: Sequence[Log]) -> tuple[Values, list[Problem]]:
    """The identifiers of all episodes, numbers from 0 if logs share some, with a note."""
    total = sum(len(log.episode_ids) for log in logs)
    ids = [one for log in logs for one in log.episode_ids.tolist()]
    if len(set(ids)) == total and len({log.episode_ids.dtype.kind for log in logs}) == 1:
        return np.concatenate([log.episode_ids for log in logs]), []
    found = f"{total - len(set(ids)):,} identifiers of episodes that several logs use, or of two types"
    fix = "nothing, if they are different episodes; else read the files together"
    note = Problem(CHECKS["converted"].level, "converted", None, (), 0, found, "one identifier per episode", fix)
    return np.arange(total), [note]


def joined_report(logs: Sequence[Log], notes: Sequence[Problem] = ()) -> Report:
    """The problems of all logs, each with its source."""
    problems = [
        replace(problem, files=problem.files or (log.report.source,) * len(problem.rows),
                found=problem.found if problem.rows else f"{log.report.source}: {problem.found}")
        for log in logs for problem in log.report.problems
    ]  # fmt: skip
    source = several_as_text(log.report.source for log in logs)
    return Report(source, sum(log.report.rows for log in logs), (*problems, *notes))


# Declare how the decisions of a log were drawn, and test a log against its propensities.
#
# Letters: `N` rows, `A` actions.

TIME = "the time of the row"


def is_declaration(value: Any) -> bool:
    """Whether a value declares propensities, and is no array or name."""
    return isinstance(value, str | int | float | dict) and declaration_of(frozen(value)) is not None


def with_declaration(log: Log, propensities: Any) -> tuple[Log, Any]:
    """The log with the propensities that a call declares, and None in their place; else both unchanged."""
    return (declare(log, propensities), None) if is_declaration(propensities) else (log, propensities)


def declare(log: Log, value: Any) -> Log:
    """The log with declared propensities, as `propensity` of `Columns` declares them, in place of its own.

    Columns of strata are those of the observation and the extra columns. ConfigError if the declaration does not fit
    the actions, SpecError for actions that have no declared propensities.
    """
    declaration, space = declaration_of(frozen(value)), log.spec.action
    if declaration is None:
        raise ConfigError(f"propensities = {value!r}", "a declaration", "write 'shares', or probabilities")
    if not isinstance(space, Discrete) or log.action_mask is not None:
        found = "a mask of actions" if isinstance(space, Discrete) else f"{type(space).__name__} actions"
        raise SpecError(
            f"propensities = {value!r}",
            f"one discrete action without a mask, found {found}",
            "record the probability of each decision",
        )
    try:
        chances, _ = probabilities_of(declaration, labels_of(space))
        by, stratum = declaration.by or (), None
        if by:
            columns = {one.name: one.values for one in observed_columns(log)} | log.extra
            unknown = [name for name in by if name not in columns]
            if unknown:
                raise ConfigError(
                    f"propensities = {value!r}: no column '{unknown[0]}' among observations and extra columns",
                    fix=f"{nearest(unknown[0], list(columns))}, or declare it in the mapping",
                )
            stratum = strata_of([np.asarray(columns[name]) for name in by])
            check_strata(stratum, by)
    except DeclarationError as error:
        raise ConfigError(f"propensities = {value!r}: {error.found}", error.expected, error.fix) from error
    declared = DeclaredPropensities(chances, by)
    column = propensity_column(declared, np.asarray(log.action), stratum, space.n)
    return replace(log, propensity=column, declared=declared, stratum=stratum)


def observed_columns(log: Log) -> list[ObservedColumn]:
    """The columns [N] of the observation that hold words or numbers, and the time of the row."""
    position, columns = np.asarray(log.position), list[ObservedColumn]()
    for name, leaf in log.spec.observation.items():
        if isinstance(leaf, Image):
            continue
        values = np.asarray(log.observation[name])[position]
        labels = labels_of_leaf(log, name)
        columns += [
            ObservedColumn(one, column, isinstance(leaf, Codes)) for one, column in zip(labels, values.T, strict=True)
        ]
    when = None if log.time is None else as_number(np.asarray(log.time))
    if when is not None and np.isfinite(when).all():
        columns.append(ObservedColumn(TIME, when, False))
    return columns


def log_balance(log: Log) -> Balance | None:
    """Whether observations predict the action beyond declared propensities, or without any beyond its shares."""
    if not isinstance(log.spec.action, Discrete) or log.action_mask is not None:
        return None
    declared, action = log.declared, np.asarray(log.action)
    before = np.where(np.asarray(log.step) > 0, np.roll(action, 1), -1)
    by = () if declared is None else declared.by
    return balance_of(
        [one for one in observed_columns(log) if one.name not in by],
        action,
        log.spec.action.n,
        chances=None if declared is None or declared.probabilities is None else np.asarray(declared.probabilities),
        stratum=None if log.stratum is None else np.asarray(log.stratum),
        clusters=None if log.cluster is None else np.asarray(log.cluster),
        before=before,
    )


def recorded_fit(log: Log, recorded: NDArray[Any]) -> Balance | None:
    """Whether recorded propensities [N] of discrete actions fit the logged actions."""
    if not isinstance(log.spec.action, Discrete) or (np.asarray(recorded) > 1).any():
        return None
    return fit_of(
        observed_columns(log),
        np.asarray(log.action, np.int64),
        np.asarray(recorded, np.float64),
        log.spec.action.n,
        None if log.cluster is None else np.asarray(log.cluster),
        masked=log.action_mask is not None,
    )
