"""Join logs in memory: the episodes of one after those of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.data.log_columns import OPTIONAL
from tidelog.data.raw import CHECKS, Problem, Report, Values
from tidelog.data.sources import several_as_text
from tidelog.errors import LogError
from tidelog.types import Codes, Discrete

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


_ROWS = ("action", "terminated", "truncated", "step", "reward", "propensity", "weight", "time")


def concat(logs: Sequence[Log]) -> Log:
    """Join logs with equal specs into one log, the episodes of the first first; LogError names what differs.

    An identifier that several logs use stands for different episodes: then all episodes are numbered anew from 0, with
    a note. Clusters have no names in a log: those of different logs are different clusters. To continue episodes or
    clusters from one file in another, read the files together, as in `read_log([first, second], columns)`.

    Example:
        >>> logs = [tl.collect("treatment", episodes=200, seed=seed) for seed in (0, 1)]
        >>> len(tl.concat(logs).starts) - 1
        400
    """
    if isinstance(logs, Log):
        raise LogError("concat needs a list of logs", fix="write concat([log, other])")
    logs = list(logs)
    if not logs:
        raise LogError("there are no logs to join", fix="pass at least one log")
    for place, log in enumerate(logs):
        if not isinstance(log, Log):
            kind = type(log).__name__
            raise LogError(f"log {place} is of the type {kind}", "a Log", "read the files together")
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
    if first.stratum is not None:  # strata have no names in a log: those of different logs are different strata
        before = np.cumsum([0, *(int(log.stratum.max()) + 1 for log in logs[:-1] if log.stratum is not None)])
        columns["stratum"] = _shifted(logs, "stratum", np.diff(before, append=before[-1]).tolist())
    stored = [len(next(iter(log.observation.values()))) for log in logs]
    columns |= {name: _shifted(logs, name, stored) for name in ("position", "next_position")}
    return replace(first, **columns, report=joined_report(logs, notes), origin=None)


def check_alike(logs: Sequence[Log]) -> None:
    """Raise LogError, with the first difference, unless the logs have one spec, the same columns and one unit."""
    first = logs[0]
    for place, log in enumerate(logs[1:], 1):
        difference = _difference(_facts(first), _facts(log))
        if difference is not None:
            name, one, other = difference
            raise LogError(
                f"{name} is {one} in log 0 ({first.report.source}), but {other} in log {place} ({log.report.source})",
                "the same",
                _fix(name),
            )


def _facts(log: Log) -> dict[str, Any]:
    """What must be equal in logs that are joined."""
    optional = {f"column '{name}'": "present" if getattr(log, name) is not None else "absent" for name in OPTIONAL}
    kinds = {f"extra column '{name}'": _kind(values) for name, values in log.extra.items()}
    time = {} if log.time is None else {"the type of 'time'": _kind(log.time)}
    unit = "absent" if log.reward_unit is None else log.reward_unit
    declared = "not declared" if log.declared is None else log.declared.to_json()
    of_rows = {"reward_unit": unit, "atoms": log.atoms, "propensity": declared}
    return {"spec": log.spec.to_json(), **optional, **time, **kinds, **of_rows}


def _kind(values: Values) -> str:
    return "text" if values.dtype.kind == "U" else "dates" if values.dtype.kind == "M" else "numbers"


def _difference(one: Any, other: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The name of the first different part, and both parts; None for equal values."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            inner = f"{name}.{key}" if name else str(key)
            found = _difference(one.get(key, "absent"), other.get(key, "absent"), inner)
            if found is not None:
                return found
        return None
    return None if one == other else (name, _short(one), _short(other))


def _short(value: Any) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _fix(name: str) -> str:
    if name in ("reward_unit", "atoms"):
        return f"declare the same {name}= in both mappings"
    if name.startswith("propensity"):
        return "declare the same propensity= in both mappings"
    if not name.startswith("spec."):
        return "give both logs this column, or neither"
    declared = {"n": "actions=", "low": "bounds=", "high": "bounds=", "sizes": "actions= or vocabularies=",
                "vocabularies": "vocabularies="}  # fmt: skip
    option = declared.get(name.rpartition(".")[2], "the same columns")
    return f"read the files together, or declare {option} in the mapping of each"


def _joined(parts: Sequence[Values | None]) -> Values | None:
    present = [part for part in parts if part is not None]
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
