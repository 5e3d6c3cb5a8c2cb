"""Demonstrations in HDF5 files, one group each: robomimic's `data/demo_0`, `data/demo_1`, ..., or groups at the root.

| member of a demonstration | read as |
|---|---|
| `obs/<name>` [T, ...] | one leaf of the observation each; images are uint8 [T, height, width, channels] |
| `next_obs/<name>` [T, ...] | the same for the next state; without them, that after the last row is unknown |
| `actions` [T, A] | action |
| `rewards` [T] | reward; a file without any is for cloning |
| `dones` [T] | the end of an episode as a termination; a recording that ends without one is truncated |

`obs` may be one array, with T + 1 rows if the last is an observation after the last decision. The usual other names are
read too (`observation`, `action`, `reward`, `terminated`, `truncated`, ...), and groups at the root may have any name
that ends with a number. Demonstrations are read in the order of their numbers. A done inside one ends an episode there.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.core.ends import TERMINATIONS, is_end, refuse_unread_ends, truncations
from tidelog.data.core.raw import RawLog
from tidelog.data.core.registry import conversion_note, unread_note, unreadable
from tidelog.data.parsing.arrays import from_arrays
from tidelog.data.sources.hdf5_datasets import check_memory, own_datasets
from tidelog.input_files import check_regular
from tidelog.number_text import count_of

_BROKEN = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError)
_NAMES = {
    "obs": ("obs", "observation", "observations"),
    "next_obs": ("next_obs", "next_observation", "next_observations"),
    "actions": ("actions", "action", "acts"),
    "rewards": ("rewards", "reward", "rews"),
    "dones": TERMINATIONS,
}  # of a member -> the names under which it is read
_NUMBERED = re.compile(r"(?P<name>.*?)[_-]?(?P<number>[0-9]{1,9})")
_EXPECTED = "an HDF5 file with demo_N/obs, actions, and perhaps rewards, dones and next_obs, below data or at its root"


def is_robomimic(path: Path) -> bool:
    """Whether an HDF5 file has demonstrations, in a group `data` or at its root; False if it cannot be opened."""
    import h5py

    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            paths = [name.split("/") for name in own_datasets(file)]
            below_data = any(path[0] == "data" and path[1].startswith("demo_") for path in paths if len(path) > 2)
            at_root = [path[1] for path in paths if len(path) == 2 and _NUMBERED.fullmatch(path[0])]
            return below_data or any(name in _NAMES["actions"] for name in at_root)
    except _BROKEN:
        return False  # the reader of the format says what is wrong


def raw_robomimic(path: Path) -> RawLog:
    """Read all demonstrations; LogError if they do not have the same arrays, or lie outside the file."""
    demonstrations, ignored = _read(path)
    first = demonstrations[0]
    leaves, later = (sorted(_below(kind, first)) for kind in ("obs", "next_obs"))
    if not leaves or "actions" not in first:
        found = f"a demonstration with {', '.join(first) or 'no array'}"
        fix = "write the observations with robomimic's dataset_states_to_obs.py"
        raise unreadable(path, found, _EXPECTED, fix, "missing column")
    lengths = np.asarray([len(one["actions"]) for one in demonstrations])
    parts = [one | _both_sides(one, leaves, later, len(one["actions"])) for one in demonstrations]
    joined = {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}
    last = np.zeros(int(lengths.sum()), bool)
    last[np.cumsum(lengths) - 1] = True
    done = joined["dones"].reshape(-1) != 0 if "dones" in joined else np.zeros(len(last), bool)
    cut = truncations(path, joined, done)
    cut = last if cut is None else last | (cut != 0)
    observation, next_observation = (
        joined[kind]
        if kind in joined
        else {name.removeprefix(f"{kind}/"): joined[name] for name in _below(kind, joined)}
        for kind in ("obs", "next_obs")
    )
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
        next_observation=next_observation if len(next_observation) else None,
        action=joined["actions"],
        reward=joined["rewards"].reshape(-1) if "rewards" in joined else None,
        terminated=done,
        truncated=cut & ~done,
        episode=np.cumsum(cut | done) - (cut | done),
        categorical=False,
    )
    return replace(raw, found=(*raw.found, *notes))


def _below(kind: str, members: dict[str, Any]) -> list[str]:
    """The members that are observations of a kind: the array of that name, or those below it."""
    return [name for name in members if name.partition("/")[0] == kind]


def _both_sides(one: dict[str, Any], leaves: list[str], later: list[str], steps: int) -> dict[str, Any]:
    """Observations of the T steps, and the next ones where T + 1 are stored."""
    if later or len(one[leaves[0]]) == steps:
        return {}
    return {name: one[name][:-1] for name in leaves} | {f"next_{name}": one[name][1:] for name in leaves}


def _read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The arrays of each demonstration by the names of robomimic, and the names of members that are not read."""
    import h5py

    try:
        check_regular(path)
        with h5py.File(path, "r") as file:
            found: dict[int, dict[str, Any]] = {}
            ignored = set[str]()
            top = "" if "data" in file else "data/"
            for name, dataset in own_datasets(file).items():
                group, demonstration, member = [*f"{top}{name}".split("/", 2), "", ""][:3]
                matched = _NUMBERED.fullmatch(demonstration)
                known = _member(member)
                if group != "data" or matched is None or known is None:
                    ignored.add(member.partition("/")[0] or demonstration if group == "data" else group)
                    continue
                members = found.setdefault(int(matched["number"]), {})
                if known in members:
                    raise KeyError(f"'{name}' is the second array of {known} in its demonstration")
                members[known] = dataset
            if not found:
                raise KeyError("data/demo_N has no obs, actions, rewards or dones")
            check_memory(one for members in found.values() for one in members.values())
            _check_equal(path, found)
            order = sorted(found)
            arrays = [{name: h5py.Dataset(one)[()] for name, one in found[number].items()} for number in order]
    except _BROKEN as error:
        raise unreadable(path, str(error).split("\n")[0], _EXPECTED, "download or create it again") from error
    return arrays, sorted(ignored)


def _member(name: str) -> str | None:
    """The name of robomimic for a member of a demonstration; other ends keep theirs, and None is not read."""
    top, _, below = name.partition("/")
    kind = next((kind for kind, names in _NAMES.items() if top in names), None)
    if kind in ("obs", "next_obs"):
        return f"{kind}/{below}" if below else kind
    return kind if kind is not None and not below else name if is_end(name) else None


def _check_equal(path: Path, found: dict[int, dict[str, Any]]) -> None:
    """LogError if a demonstration has other arrays or shapes than the first, or arrays of different lengths.

    Observations may have one row more, in all demonstrations of a file without next observations.
    """
    first = {name: one.shape[1:] for name, one in found[min(found)].items()}
    more = 0 if _below("next_obs", first) else _rows_more(found[min(found)])
    for number, members in found.items():
        shapes = {name: one.shape[1:] for name, one in members.items()}
        rows = {name: one.shape[0] if one.shape else 0 for name, one in members.items()}
        lengths = {count - more if name in _below("obs", rows) else count for name, count in rows.items()}
        if shapes != first:
            other = sorted(name for name in {*first, *shapes} if first.get(name) != shapes.get(name))
            what = f"demo_{number} differs from demo_{min(found)} in {', '.join(other[:6])}"
            raise unreadable(path, what, "the same arrays in each", "leave it out", "missing column")
        if len(lengths) > 1 or 0 in lengths:
            what = f"demo_{number} has arrays of {', '.join(f'{one:,}' for one in sorted(set(rows.values())))} rows"
            raise unreadable(path, what, "arrays of one length", "save the demonstration again", "wrong length")


def _rows_more(members: dict[str, Any]) -> int:
    """1 if the observations of a demonstration have a row more than its actions, else 0."""
    steps = {members[name].shape[:1] for name in ("actions",) if name in members}
    stored = {members[name].shape[:1] for name in _below("obs", members)}
    return int(len(steps) == len(stored) == 1 and all(one and two and two[0] == one[0] + 1
                                                      for one in steps for two in stored))  # fmt: skip
