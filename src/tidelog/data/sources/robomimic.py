"""robomimic's HDF5 files: one group per demonstration, `data/demo_0`, `data/demo_1`, ...

| member of a demonstration | read as |
|---|---|
| `obs/<name>` [T, ...] | one leaf of the observation each; images are uint8 [T, height, width, channels] |
| `next_obs/<name>` [T, ...] | the same for the next state; without them, that after the last row is unknown |
| `actions` [T, A] | action |
| `rewards` [T] | reward; a file without any is for cloning |
| `dones` [T] | the end of an episode as a termination; a recording that ends without one is truncated |

Demonstrations are read in the order of their numbers. A done inside a recording ends an episode there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.core.ends import refuse_unread_ends
from tidelog.data.core.raw import RawLog
from tidelog.data.core.registry import conversion_note, unread_note, unreadable
from tidelog.data.parsing.arrays import from_arrays
from tidelog.data.sources.hdf5_guard import check_datasets, every_dataset, own_object
from tidelog.input_files import check_regular
from tidelog.number_text import count_of

_BROKEN = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError)
_ARRAYS = ("actions", "rewards", "dones")
_EXPECTED = "an HDF5 file with data/demo_N/obs/..., actions, and perhaps rewards, dones and next_obs"


def is_robomimic(path: Path) -> bool:
    """Whether an HDF5 file has a group `data` with a demonstration; False for a file that cannot be opened."""
    import h5py

    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            data = own_object(file, "data") if "data" in file else None
            return isinstance(data, h5py.Group) and any(name.startswith("demo_") for name in data)
    except _BROKEN:
        return False  # the reader of the format says what is wrong


def raw_robomimic(path: Path) -> RawLog:
    """Read all demonstrations; LogError if they do not have the same arrays, or lie outside the file."""
    demonstrations, ignored = _read(path)
    names = sorted(demonstrations[0])
    leaves, later = ([name for name in names if name.startswith(kind)] for kind in ("obs/", "next_obs/"))
    if not leaves or "actions" not in demonstrations[0]:
        found = f"a demonstration with {', '.join(demonstrations[0]) or 'no array'}"
        fix = "write the observations with robomimic's dataset_states_to_obs.py"
        raise unreadable(path, found, _EXPECTED, fix, "missing column")
    lengths = np.asarray([len(one["actions"]) for one in demonstrations])
    joined = {name: np.concatenate([one[name] for one in demonstrations]) for name in demonstrations[0]}
    last = np.zeros(int(lengths.sum()), bool)
    last[np.cumsum(lengths) - 1] = True
    done = joined["dones"].reshape(-1) != 0 if "dones" in joined else np.zeros(len(last), bool)
    observation = {name.removeprefix("obs/"): joined[name] for name in leaves}
    next_observation = {name.removeprefix("next_obs/"): joined[name] for name in later}
    refuse_unread_ends(path, ignored, "dones, as in robomimic")
    notes = unread_note(ignored)
    inside = int((done & ~last).sum())
    if inside:
        found = f"{count_of(inside, 'row')} with dones inside a demonstration; each ends an episode"
        fix = "nothing, if the task is done there; else drop dones"
        notes.append(conversion_note(found, "episodes that end when the task is done", fix))
    elif len(demonstrations) > 1 and done[last].all():
        found = "every demonstration ends with dones 1: read as a termination"
        fix = "nothing, if each ends with the task done; drop dones if some were cut by a time limit"
        notes.append(conversion_note(found, "a termination where the task is done", fix))
    raw = from_arrays(
        str(path),
        observation=observation,
        next_observation=next_observation or None,
        action=joined["actions"],
        reward=joined["rewards"].reshape(-1) if "rewards" in joined else None,
        terminated=done,
        truncated=last & ~done,
        episode=np.cumsum(last | done) - (last | done),
        categorical=False,
    )
    return replace(raw, found=(*raw.found, *notes))


def _read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The arrays of each demonstration by their names, and the names of members that are not read."""
    import h5py

    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            found: dict[int, dict[str, Any]] = {}
            ignored = set[str]()
            for name, dataset in every_dataset(file):
                group, demonstration, member = [*name.split("/", 2), "", ""][:3]
                number = demonstration.removeprefix("demo_")
                known = member in _ARRAYS or member.partition("/")[0] in ("obs", "next_obs")
                if group != "data" or not number.isdecimal() or not known:
                    ignored.add(member.partition("/")[0] or group)
                    continue
                found.setdefault(int(number), {})[member] = dataset
            if not found:
                raise KeyError("data/demo_N has no obs, actions, rewards or dones")
            listed = [(number, name, one) for number, members in found.items() for name, one in members.items()]
            check_datasets(path, ((f"data/demo_{number}/{name}", one) for number, name, one in listed))
            _check_equal(path, found)
            order = sorted(found)
            arrays = [{name: h5py.Dataset(one)[()] for name, one in found[number].items()} for number in order]
    except _BROKEN as error:
        raise unreadable(path, str(error).split("\n")[0], _EXPECTED, "download or create it again") from error
    return arrays, sorted(ignored)


def _check_equal(path: Path, found: dict[int, dict[str, Any]]) -> None:
    """LogError if a demonstration has other arrays or shapes than the first, or arrays of different lengths."""
    first = {name: one.shape[1:] for name, one in found[min(found)].items()}
    for number, members in found.items():
        shapes = {name: one.shape[1:] for name, one in members.items()}
        lengths = {one.shape[0] if one.shape else 0 for one in members.values()}
        if shapes != first:
            other = sorted(name for name in {*first, *shapes} if first.get(name) != shapes.get(name))
            what = f"demo_{number} differs from demo_{min(found)} in {', '.join(other[:6])}"
            raise unreadable(path, what, "the same arrays in each", "leave it out", "missing column")
        if len(lengths) > 1 or 0 in lengths:
            what = f"demo_{number} has arrays of {', '.join(f'{one:,}' for one in sorted(lengths))} rows"
            raise unreadable(path, what, "arrays of one length", "save the demonstration again", "wrong length")
