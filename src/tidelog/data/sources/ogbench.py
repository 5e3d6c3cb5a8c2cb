"""OGBench files: npz archives in one of three layouts.

| layout | detected by | contents |
|---|---|---|
| as downloaded | neither of the following | T + 1 rows per episode; the last is an observation without a decision |
| compact | `valids` | the same, with `valids` 0 on the last row and `terminals` 1 on the last two |
| regular | `next_observations` | T rows per episode |

`terminals` marks the end of a recording, which is a truncation. `masks` is 0 where the task was completed and there
is no bootstrapping, which is a termination; recordings continue after it, therefore the episode is split
there. Files as downloaded have neither rewards nor masks; these come with a task (`singletask`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Finding, RawLog
from tidelog.data.parsing.arrays import from_arrays
from tidelog.data.sources.content import unreadable
from tidelog.data.sources.npz import load
from tidelog.data.sources.segments import before, converted, passed_over

NEEDED = ("observations", "actions", "terminals")
_READ = (*NEEDED, "next_observations", "rewards", "masks", "valids")
_FLAGS = ("terminals", "masks", "valids")
_EXPECTED = "an npz file with observations, actions and terminals"


def raw_ogbench(path: str | Path) -> RawLog:
    """Read episodes that end at `terminals` and are split where `masks` is 0; LogError for another kind of file."""
    arrays = load(Path(path))
    missing = [name for name in NEEDED if name not in arrays]
    if missing:
        found = f"no {', '.join(missing)}; the file holds {', '.join(sorted(arrays))}"
        advice = "read arrays of other names with read_npz or Log.from_arrays"
        raise unreadable(path, found, _EXPECTED, advice, "missing column")
    _check_sizes(path, arrays)
    return _raw(str(path), arrays)


def _check_sizes(path: str | Path, arrays: Mapping[str, Values]) -> None:
    text = [name for name in _FLAGS if name in arrays and arrays[name].dtype.kind not in "biuf"]
    if text:
        raise unreadable(path, f"{text[0]} of {arrays[text[0]].dtype}", "0 and 1", "give flags", "non-numeric text")
    lengths = {name: _length(name, arrays[name]) for name in _READ if name in arrays}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name}: {length:,} rows" for name, length in lengths.items())
        raise unreadable(path, found, "arrays of one length", "save the file again", "wrong length")


def _length(name: str, values: Values) -> int:
    """The number of rows; for flags, the number of values."""
    return values.size if name in _FLAGS else len(values) if values.ndim else 0


def _raw(source: str, arrays: Mapping[str, Values]) -> RawLog:
    steps, following, ended, found = _layout(arrays)
    terminated = np.zeros(int(steps.sum()), bool) if "masks" not in arrays else arrays["masks"].reshape(-1)[steps] == 0
    inside = terminated & ~ended
    if inside.any():
        message = f"{int(inside.sum()):,} rows with masks 0 inside a recording; each ends an episode"
        found.append(converted(message, "episodes that end when the task is done", "nothing: no window may cross them"))
    raw = from_arrays(
        source,
        observation=arrays["observations"][steps],
        next_observation=following,
        action=arrays["actions"][steps],
        reward=None if "rewards" not in arrays else arrays["rewards"][steps],
        terminated=terminated,
        truncated=ended & ~terminated,
        episode=before(ended | terminated),
        categorical=False,
    )
    ignored = [name for name in arrays if name not in _READ]
    return replace(raw, found=(*raw.found, *found, *passed_over(ignored)))


def _layout(arrays: Mapping[str, Values]) -> tuple[Values, Values, Values, list[tuple[str, Finding]]]:
    """Find the rows that are steps [N], their next observations, the ends of recordings, and conversion notes."""
    observations, terminals = arrays["observations"], arrays["terminals"].reshape(-1) != 0
    if "next_observations" in arrays:
        ended = terminals.copy()
        ended[-1:] = True
        return np.ones(len(terminals), bool), arrays["next_observations"], ended, []
    last = arrays["valids"].reshape(-1) == 0 if "valids" in arrays else terminals.copy()
    last[-1:] = True
    steps = ~last
    after = np.append(False, steps[:-1])
    ended = np.append(last[1:], True)[steps]
    found = f"{int(last.sum()):,} last rows of recordings are observations without a decision"
    return steps, observations[after], ended, [converted(found, "T + 1 rows per episode", "nothing")]


def is_ogbench(arrays: Any) -> bool:
    """Whether the names of an archive are those of OGBench."""
    return set(NEEDED) <= set(arrays)
