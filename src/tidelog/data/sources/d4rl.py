"""D4RL files: consecutive transitions in HDF5, with `terminals` and `timeouts`; d4rl itself is not needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Finding, RawLog
from tidelog.data.parsing.arrays import from_arrays
from tidelog.data.sources.content import unreadable
from tidelog.data.sources.segments import before, broken_off, converted, passed_over

_NEEDED = ("observations", "actions", "rewards", "terminals")
_READ = (*_NEEDED, "timeouts", "next_observations")
_EXPECTED = "an HDF5 file with observations, actions, rewards and terminals"


def raw_d4rl(path: str | Path) -> RawLog:
    """Read episodes that end at `terminals` or `timeouts`; LogError if the file is not in the layout of D4RL.

    Without `next_observations`, the observation after a timeout is unknown. Without `timeouts`, an episode also ends
    where the next observation differs from the observation of the following row.
    """
    arrays, ignored = _load(Path(path))
    missing = [name for name in _NEEDED if name not in arrays]
    if missing:
        message = f"no {', '.join(missing)}; the file holds {', '.join(sorted([*arrays, *ignored]))}"
        raise unreadable(
            path, message, _EXPECTED, "rename the arrays, or read them with Log.from_arrays", "missing column"
        )
    following = arrays.get("next_observations")
    terminated, truncated = _flat(arrays["terminals"]), arrays.get("timeouts")
    found: list[tuple[str, Finding]] = passed_over(ignored)
    if truncated is None:
        truncated, note = _cut(arrays["observations"], following, terminated)
        found.append(note)
    raw = from_arrays(
        str(path),
        observation=arrays["observations"],
        action=_flat(arrays["actions"]) if arrays["actions"].dtype.kind in "iu" else arrays["actions"],
        reward=_flat(arrays["rewards"]),
        next_observation=following,
        terminated=terminated,
        truncated=_flat(truncated),
        episode=before(_true(terminated) | _true(_flat(truncated))),
        categorical=False,
    )
    return replace(raw, found=(*raw.found, *found))


def _cut(observation: Values, following: Values | None, terminated: Values) -> tuple[Values, tuple[str, Finding]]:
    """The missing timeouts of a file, and a note on where they were set."""
    if following is None or following.shape != observation.shape or len(terminated) != len(observation):
        found, advice = "no timeouts: only terminals end an episode", "use a version with timeouts if there is one"
        return np.zeros(len(terminated), bool), converted(found, "timeouts", advice, "timeouts")
    cut = broken_off(observation, following) & ~_true(terminated)
    found = f"no timeouts: {int(cut.sum()):,} episodes end where next_observations are discontinuous"
    return cut, converted(found, "timeouts", "nothing, if these are resets of the environment", "timeouts")


def _load(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Load the known arrays; also return the names of the others."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            read = [name for name in _READ if isinstance(file.get(name), h5py.Dataset)]
            return {name: np.atleast_1d(file[name][()]) for name in read}, [
                str(name) for name in file if name not in read
            ]
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        raise unreadable(path, str(error).split("\n")[0], _EXPECTED, "download or create it again") from error


def _flat(values: Values) -> Values:
    """[N] from [N] or [N, 1]."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _true(flags: Values) -> Values:
    """[N] bool; all False for text, which another check reports."""
    if flags.dtype.kind not in "biuf":
        return np.zeros(len(flags), bool)
    return np.asarray(np.asarray(flags != 0).reshape(len(flags), -1).any(axis=1))
