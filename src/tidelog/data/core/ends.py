"""Names of columns and arrays that say where episodes end or begin, in the words that logs use.

A reader reads an array with such a name, or refuses its file: an end that is passed over joins two episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.registry import unreadable

TERMINATIONS = (
    "terminated", "terminal", "terminals", "terminations", "termination", "is_terminal", "terminateds", "done", "dones",
    "is_done",
)  # fmt: skip
TRUNCATIONS = (
    "truncated", "truncations", "truncation", "truncateds", "is_truncated", "timeout", "timeouts", "time_limit",
    "time_limits",
)  # fmt: skip
LASTS = ("is_last", "lasts", "episode_terminals", "episode_end", "episode_ends", "dones_float")
STARTS = ("is_first", "firsts", "episode_start", "episode_starts", "is_start")
_EPISODES = (
    "episode", "episodes", "episode_id", "episode_ids", "episode_index", "traj_id", "traj_ids", "trajectory",
    "trajectory_id", "trajectory_ids",
)  # fmt: skip
OGBENCH_MASKS = ("masks", "valids")  # of OGBench: 0 where the task was completed, and where a row has no decision
ENDS = frozenset((*TERMINATIONS, *TRUNCATIONS, *LASTS, *STARTS, *_EPISODES, *OGBENCH_MASKS))


def is_end(name: str) -> bool:
    """Whether `truncations` reads an array of this name."""
    return name in (*TRUNCATIONS, *LASTS, *STARTS, *_EPISODES)


def refuse_unread_ends(path: str | Path, unread: Iterable[str], read: str) -> None:
    """Raise LogError if a name that says where episodes end or begin is not read; `read` names what is."""
    left = sorted(name for name in unread if name.rpartition("/")[2].lower() in ENDS)
    if left:
        found = f"{', '.join(left)}, which would not be read: such names say where episodes end or begin"
        fix = "remove what is not needed, or read the arrays with Log.from_arrays"
        raise unreadable(path, found, f"ends only in {read}", fix, "unread ends")


def termination_name(path: str | Path, names: Iterable[str]) -> str | None:
    """The one array of terminations, under any of its names; LogError for two, None without one."""
    present = [name for name in TERMINATIONS if name in set(names)]
    if len(present) > 1:
        fix = "keep the one that is 1 where the environment ended the episode, and name one of all ends is_last"
        raise unreadable(path, f"{' and '.join(present)}", "one array of terminations", fix, "unread ends")
    return present[0] if present else None


def truncations(path: str | Path, arrays: Mapping[str, Values], terminated: Values) -> Values | None:
    """[N]: where episodes end without a termination, by all arrays that say so; None without one.

    A single array of truncations is returned as it is. LogError for text and for arrays of other lengths.
    """
    flags = {name: arrays[name] for name in (*TRUNCATIONS, *LASTS, *STARTS) if name in arrays}
    marks = flags | {name: arrays[name] for name in _EPISODES if name in arrays}
    for name, values in marks.items():
        if values.size != len(terminated):
            found = f"{len(terminated):,} rows of terminations and {values.size:,} of {name}"
            raise unreadable(path, found, "arrays of one length", "download or create it again", "wrong length")
    if len(marks) == 1 and next(iter(marks)) in TRUNCATIONS:
        return np.reshape(next(iter(marks.values())), -1)
    text = [name for name, values in flags.items() if values.dtype.kind not in "biuf"]
    if text:
        found = f"{text[0]} of {flags[text[0]].dtype}"
        raise unreadable(path, found, "flags", "save the file again", "non-numeric text")
    if not marks:
        return None
    ends = np.zeros(len(terminated), bool)
    for name, values in marks.items():
        column = values.reshape(-1)
        if name in STARTS:
            ends[:-1] |= column[1:] != 0
        elif name in _EPISODES:
            ends[:-1] |= column[1:] != column[:-1]
        else:
            ends |= column != 0
    return np.asarray(ends & (terminated == 0))
