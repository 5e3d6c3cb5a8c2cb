"""Read files of arrays: npz archives with the names of `Log.from_arrays`, D4RL's HDF5 and OGBench's npz.

D4RL, in HDF5 or npz: consecutive transitions with `terminals` and `timeouts`; d4rl itself is not needed. OGBench: one
of three layouts.

| layout | detected by | contents |
|---|---|---|
| as downloaded | neither of the following | T + 1 rows per episode; the last is an observation without a decision |
| compact | `valids` | the same, with `valids` 0 on the last row and `terminals` 1 on the last two |
| regular | `next_observations` | T rows per episode |

`terminals` of OGBench marks the end of a recording, which is a truncation. `masks` is 0 where the task was completed
and there is no bootstrapping, which is a termination; recordings continue after it, therefore the episode is split
there. Files as downloaded have neither rewards nor masks; these come with a task (`singletask`).
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tidelog.data.core.ends import (
    ENDS,
    OGBENCH_MASKS,
    TERMINATIONS,
    refuse_unread_ends,
    termination_name,
    truncations,
)
from tidelog.data.core.npy import holds_objects, read_array
from tidelog.data.core.order import Values
from tidelog.data.core.raw import Finding, RawLog
from tidelog.data.core.registry import conversion_note, unread_note, unreadable
from tidelog.data.parsing.arrays import ROLES, from_arrays
from tidelog.data.sources.hdf5_datasets import check_memory, own_datasets
from tidelog.data.validation.errors import differences
from tidelog.errors import nearest
from tidelog.input_files import check_regular, open_regular
from tidelog.memory import shortage
from tidelog.number_text import count_of

T = TypeVar("T")
_BROKEN = (OSError, ValueError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError)
_DAMAGED = (struct.error, zipfile.BadZipFile, zlib.error)
_LEAVES = ("observation", "next_observation")
_D4RL = ("observations", "actions", "rewards")
_D4RL_READ = (*_D4RL, "next_observations", *(name for name in ENDS if name not in OGBENCH_MASKS))
_D4RL_FILE = "arrays named observations, actions, rewards and terminals"
_OGBENCH = ("observations", "actions", "terminals")
_OGBENCH_READ = (*_OGBENCH, "next_observations", "rewards", "masks", "valids")
_OGBENCH_FILE = "an npz file with observations, actions and terminals"
_DEMONSTRATIONS = ("obs", "acts", "actions", "rews", "rewards")
_FLAGS = ("terminals", "masks", "valids")
_AT_ONCE = 1_000_000  # numbers compared at once
_MOST_PACKED = 1100  # deflate packs at most 1,032 bytes into one
_COPIES = 3  # of the arrays in memory while a log is built


def raw_archive(path: Path) -> RawLog:
    """Read the arrays of D4RL or OGBench, or else those of `raw_npz`.

    OGBench's rewards come with `masks`; with rewards and an end, but without them, the names are those of D4RL.
    """
    names = set(_names(path))
    if names >= set(_D4RL) and names & set(TERMINATIONS) and not names & set(OGBENCH_MASKS):
        return raw_d4rl(path)
    return raw_ogbench(path) if names >= set(_OGBENCH) else raw_npz(path)


def raw_npz(path: str | Path) -> RawLog:
    """Read named arrays, `observation/<leaf>` for several leaves, or demonstrations of imitation or Stable-Baselines.

    LogError for other files or unknown names.
    """
    present = set(_names(Path(path)))
    if "obs" in present and ("acts" in present or {"actions", "episode_starts"} <= present):
        return raw_demonstrations(path)
    arrays, objects = named_arrays(path)
    unknown = [name for name in arrays if name.split("/")[0] not in ROLES]
    if unknown:
        found = "; ".join(f"'{name}' ({nearest(name, ROLES)})" for name in unknown)
        expected = f"arrays named {', '.join(ROLES)}"
        raise unreadable(path, f"arrays {found}", expected, "rename them", "unknown mapping key")
    if "action" not in arrays or not any(name.split("/")[0] == "observation" for name in arrays):
        found = f"arrays {', '.join(arrays)}"
        raise unreadable(path, found, "observation and action", "add or rename", "missing column")
    arguments: dict[str, Any] = {"reward": None, **{name: value for name, value in arrays.items() if "/" not in name}}
    for role in _LEAVES:
        leaves = {name.partition("/")[2]: value for name, value in arrays.items() if name.startswith(f"{role}/")}
        arguments |= {role: leaves} if leaves else {}
    for name in ("actions", "bounds", "atoms", "reward_unit"):
        arguments |= {name: arrays[name].tolist()} if name in arrays else {}
    refuse_unread_ends(path, objects, "arrays of numbers")
    raw = from_arrays(str(path), **arguments)
    return replace(raw, found=(*raw.found, *unread_note(objects)))


def _names(path: Path) -> list[str]:
    return _read_npz(path, lambda archive, members: list(members))


def named_arrays(path: str | Path, needed: Collection[str] = ROLES) -> tuple[dict[str, Any], list[str]]:
    """Return the arrays of an npz file, and the names of arrays of objects outside `needed`, which are not read.

    LogError if the file is not an archive of arrays, declares more than it holds, or needs too much memory.
    """

    def read(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> tuple[dict[str, Any], list[str]]:
        arrays, objects = {}, []
        for name, member in members.items():
            with archive.open(member) as stream:
                if name.split("/")[0] not in needed and holds_objects(stream):
                    objects.append(name)
                    continue
            with archive.open(member) as stream:
                arrays[name] = read_array(stream, member.file_size)
        return arrays, objects

    return _read_npz(Path(path), read)


def _read_npz(path: Path, take: Callable[[zipfile.ZipFile, Mapping[str, zipfile.ZipInfo]], T]) -> T:
    """Take something from an archive by the names of its arrays; LogError if the file is not an archive of arrays."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            return take(archive, _members(archive, path.stat().st_size))
    except (*_BROKEN, *_DAMAGED) as error:
        raise unreadable(path, str(error).split("\n")[0], "an npz file", "save it again") from error


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members of an archive of `size` bytes by the names of their arrays.

    ValueError if one is doubled, is not an array, or declares more than its packed bytes can hold.
    """
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise ValueError(f"two arrays are named '{name}'")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"'{name}' is encrypted or packed in an unusual way")
        if info.file_size > _MOST_PACKED * info.compress_size:
            raise ValueError(f"'{name}' declares {info.file_size:,} bytes in {info.compress_size:,} packed bytes")
        members[name] = info
    if sum(info.compress_size for info in members.values()) > size:
        raise ValueError("the arrays declare more packed bytes than the file has")
    problem = shortage(_COPIES * sum(info.file_size for info in members.values()))
    if problem is not None:
        raise ValueError(problem)
    return members


def raw_d4rl(path: str | Path) -> RawLog:
    """Read episodes that end at `terminals` or `timeouts`, from HDF5 or npz; LogError for another layout.

    Without `next_observations`, the observation after a timeout is unknown. Ends may have other names (`ENDS`): flags
    of last or first rows, or an episode id. Without any, an episode also ends where the next observation differs from
    the observation of the following row.
    """
    arrays, ignored = _d4rl_arrays(Path(path))
    termination = termination_name(path, arrays)
    missing = [name for name in _D4RL if name not in arrays] + ["terminals"] * (termination is None)
    if missing:
        found = f"no {', '.join(missing)}; the file holds {', '.join(sorted([*arrays, *ignored]))}"
        fix = "rename the arrays, or read them with Log.from_arrays"
        raise unreadable(path, found, _D4RL_FILE, fix, "missing column")
    refuse_unread_ends(path, ignored, "terminals, timeouts, flags of first or last rows, and ids of episodes")
    next_observation = arrays.get("next_observations")
    terminated = _single_column(arrays[str(termination)])
    truncated = truncations(path, arrays, terminated)
    notes: list[tuple[str, Finding]] = unread_note(ignored)
    if truncated is None:
        truncated, note = _missing_timeouts(arrays["observations"], next_observation, terminated)
        notes.append(note)
    raw = from_arrays(
        str(path),
        observation=arrays["observations"],
        action=_single_column(arrays["actions"]) if arrays["actions"].dtype.kind in "iu" else arrays["actions"],
        reward=_single_column(arrays["rewards"]),
        next_observation=next_observation,
        terminated=terminated,
        truncated=truncated,
        episode=segment_index(_is_set(terminated) | _is_set(truncated)),
        categorical=False,
    )
    return replace(raw, found=(*raw.found, *notes))


def _d4rl_arrays(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The arrays of D4RL in an HDF5 or npz file, and the names of what is not read."""
    if path.suffix.lower() == ".npz":
        arrays, objects = named_arrays(path, _D4RL_READ)
        read = {name: np.atleast_1d(values) for name, values in arrays.items() if name in _D4RL_READ}
        return read, [name for name in (*arrays, *objects) if name not in read]
    import h5py

    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            datasets = {name: dataset for name, dataset in own_datasets(file).items() if name in _D4RL_READ}
            check_memory(datasets.values())
            values = {name: np.atleast_1d(h5py.Dataset(dataset)[()]) for name, dataset in datasets.items()}
            return values, [str(name) for name in file if name not in datasets]
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError) as error:
        raise unreadable(path, str(error).split("\n")[0], _D4RL_FILE, "download or create it again") from error


def _missing_timeouts(
    observation: Values, next_observation: Values | None, terminated: Values
) -> tuple[Values, tuple[str, Finding]]:
    """The timeouts [N] of a file without them: discontinuous rows; and a note on where they were set."""
    if next_observation is None or next_observation.shape != observation.shape or len(terminated) != len(observation):
        found, fix = "no timeouts: only terminals end an episode", "use a version with timeouts if there is one"
        return np.zeros(len(terminated), bool), conversion_note(found, "timeouts", fix, "timeouts")
    cut = is_discontinuous(observation, next_observation) & ~_is_set(terminated)
    found = f"no timeouts: next_observations are discontinuous at the end of {count_of(int(cut.sum()), 'episode')}"
    return cut, conversion_note(found, "timeouts", "nothing, if these are resets of the environment", "timeouts")


def is_discontinuous(observation: Values, next_observation: Values) -> Values:
    """[N] bool: rows whose next observation [N, ...] differs from the following row's observation, and the last row."""
    chunk = max(1, _AT_ONCE // max(1, observation[0:1].size))
    inner = [
        differences(next_observation[at : at + chunk][: len(observation) - 1 - at], observation[at + 1 :][:chunk])
        for at in range(0, len(observation) - 1, chunk)
    ]
    return np.append(np.concatenate(inner), True) if inner else np.ones(len(observation), bool)


def segment_index(ends: Values) -> Values:
    """[N]: the number of ends before each row, which is the number of the row's episode."""
    number: Values = np.cumsum(ends) - ends
    return number


def _single_column(values: Values) -> Values:
    """[N] from [N] or [N, 1]."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _is_set(flags: Values) -> Values:
    """[N] bool; all False for text, which another check reports."""
    if flags.dtype.kind not in "biuf":
        return np.zeros(len(flags), bool)
    return np.asarray(np.asarray(flags != 0).reshape(len(flags), math.prod(flags.shape[1:])).any(axis=1))


def raw_ogbench(path: str | Path) -> RawLog:
    """Read episodes that end at `terminals` and are split where `masks` is 0; LogError for another kind of file."""
    arrays, objects = named_arrays(path, _OGBENCH_READ)
    _check_ogbench(path, arrays)
    ignored = [name for name in (*arrays, *objects) if name not in _OGBENCH_READ]
    refuse_unread_ends(path, ignored, "terminals, masks and valids, as in OGBench")
    steps, next_observation, ended, notes = _ogbench_layout(arrays)
    terminated = np.zeros(int(steps.sum()), bool) if "masks" not in arrays else arrays["masks"].reshape(-1)[steps] == 0
    inside = terminated & ~ended
    if inside.any():
        found = f"{count_of(int(inside.sum()), 'row')} with masks 0 inside a recording; each ends an episode"
        expected = "episodes that end when the task is done"
        notes.append(conversion_note(found, expected, "nothing: no window may cross them"))
    raw = from_arrays(
        str(path),
        observation=arrays["observations"][steps],
        next_observation=next_observation,
        action=arrays["actions"][steps],
        reward=None if "rewards" not in arrays else arrays["rewards"][steps],
        terminated=terminated,
        truncated=ended & ~terminated,
        episode=segment_index(ended | terminated),
        categorical=False,
    )
    return replace(raw, found=(*raw.found, *notes, *unread_note(ignored)))


def raw_demonstrations(path: str | Path) -> RawLog:
    """Read demonstrations of imitation (`obs`, `acts`) or Stable-Baselines (`obs`, `actions`, `episode_starts`).

    imitation: T + 1 rows of `obs` an episode; `indices` are the rows of `acts` at which the second and later episodes
    begin, and `terminal` says whether each terminated. Stable-Baselines: T rows, ends unknown. LogError for arrays that
    do not fit together.
    """
    arrays, objects = named_arrays(path, (*_DEMONSTRATIONS, "indices", "terminal", "episode_starts"))
    marks = ["indices", "terminal"] if "acts" in arrays else ["episode_starts"]
    ignored = [name for name in (*arrays, *objects) if name not in (*_DEMONSTRATIONS, *marks)]
    refuse_unread_ends(path, ignored, " and ".join(marks))
    arrays = {name: np.atleast_1d(values) for name, values in arrays.items()}
    whole = [name for name in ("indices", "terminal", "episode_starts") if name in arrays]
    text = [name for name in whole if arrays[name].dtype.kind not in ("iu" if name == "indices" else "biuf")]
    if text:
        found, expected = f"{text[0]} of {arrays[text[0]].dtype}", "whole numbers" if text[0] == "indices" else "flags"
        raise unreadable(path, found, expected, "save the file again", "non-numeric text")
    action = _single_column(arrays["acts" if "acts" in arrays else "actions"])
    rows, observation, next_observation, terminated = len(action), arrays["obs"], None, None
    if "acts" in arrays:
        starts = np.unique(np.concatenate([[0], arrays.get("indices", np.zeros(0)).reshape(-1).astype(np.int64)]))
        first = np.isin(np.arange(rows), starts)
        ends = np.zeros(len(starts), bool) if "terminal" not in arrays else arrays["terminal"].reshape(-1) != 0
        if len(observation) != rows + len(starts) or len(ends) != len(starts):
            found = f"{len(observation):,} rows of obs and {len(ends):,} of terminal for {rows:,} acts"
            expected = f"{rows + len(starts):,} and {len(starts):,}, as {len(starts):,} episodes have"
            raise unreadable(path, found, expected, "save the trajectories again", "wrong length")
        place = np.arange(rows) + np.cumsum(first) - 1
        observation, next_observation = observation[place], observation[place + 1]
        terminated = np.append(first[1:], True)[:rows] & ends[np.cumsum(first) - 1]
    else:
        first = arrays["episode_starts"].reshape(-1) != 0
    if not rows == len(first) == len(observation):
        found = f"{len(observation):,} rows of obs and {len(first):,} of episode_starts for {rows:,} actions"
        raise unreadable(path, found, "arrays of one length", "save the file again", "wrong length")
    reward = arrays.get("rews", arrays.get("rewards"))
    raw = from_arrays(
        str(path),
        observation=observation,
        next_observation=next_observation,
        action=action,
        reward=None if reward is None else _single_column(reward),
        terminated=terminated,
        episode=np.maximum(np.cumsum(first) - 1, 0),
        categorical=False,
    )
    return replace(raw, found=(*raw.found, *unread_note(ignored)))


def _check_ogbench(path: str | Path, arrays: Mapping[str, Values]) -> None:
    """LogError for a missing array, flags of text, or arrays of different lengths."""
    missing = [name for name in _OGBENCH if name not in arrays]
    if missing:
        found = f"no {', '.join(missing)}; the file holds {', '.join(sorted(arrays))}"
        fix = "read arrays of other names with read_npz or Log.from_arrays"
        raise unreadable(path, found, _OGBENCH_FILE, fix, "missing column")
    text = [name for name in _FLAGS if name in arrays and arrays[name].dtype.kind not in "biuf"]
    if text:
        raise unreadable(path, f"{text[0]} of {arrays[text[0]].dtype}", "0 and 1", "give flags", "non-numeric text")
    lengths = {}
    for name in _OGBENCH_READ:
        if name in arrays:  # the number of rows; for flags, the number of values
            values = arrays[name]
            lengths[name] = values.size if name in _FLAGS else len(values) if values.ndim else 0
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name}: {length:,} rows" for name, length in lengths.items())
        raise unreadable(path, found, "arrays of one length", "save the file again", "wrong length")


def _ogbench_layout(arrays: Mapping[str, Values]) -> tuple[Values, Values, Values, list[tuple[str, Finding]]]:
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
    return steps, observations[after], ended, [conversion_note(found, "T + 1 rows per episode", "nothing")]
