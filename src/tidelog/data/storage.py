"""Saved logs: folders with one array for each column."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import msgspec
import numpy as np

from tidelog._files import MANIFEST, Kind, open_regular, stream_to
from tidelog._machine import shortage
from tidelog.data.columns import DeclaredPropensities, declared_atoms, declared_missing, declared_unit
from tidelog.data.log_columns import OPTIONAL, PLAIN, LogColumns
from tidelog.data.raw import Report, Values, unreadable
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.schema import typed
from tidelog.types import Codes, Continuous, Discrete, Hybrid, Image, MultiDiscrete, Spec, Vector

# Read arrays in NumPy's format after a check of their header: sizes first, then memory.

_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_ARRAY_KINDS = "biufcSUMm"
_MALFORMED = (SyntaxError, TokenError, RecursionError, MemoryError, OverflowError, TypeError, Warning)


def read_header(stream: IO[bytes], size: int) -> None:
    """Read the header of an array that has `size` bytes with it.

    ValueError for a damaged header, for objects and records, and for an array of another size.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]} of the .npy format: expected 1.0 or 2.0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            shape, _, kind = _HEADERS[version](stream)
    except _MALFORMED as error:
        raise ValueError(f"the header is damaged ({type(error).__name__}: {error})") from error
    if kind.kind not in _ARRAY_KINDS or not kind.itemsize:
        raise ValueError(f"values of type {kind}: expected numbers, flags, text or times")
    held, declared = size - stream.tell(), math.prod(shape) * kind.itemsize
    if min(shape, default=0) < 0 or declared != held:
        raise ValueError(f"the header declares {list(shape)} {kind} = {declared:,} bytes, the file holds {held:,}")


def holds_objects(stream: IO[bytes]) -> bool:
    """Whether an array in NumPy's format holds Python objects, by its header alone."""
    try:
        version = np.lib.format.read_magic(stream)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return version in _HEADERS and _HEADERS[version](stream)[2].hasobject
    except (ValueError, *_MALFORMED):
        return False


def read_array(stream: IO[bytes], size: int) -> Values:
    """Read an array of `size` bytes with its header; ValueError as `read_header`, or if the contents end early."""
    read_header(stream, size)
    stream.seek(0)
    values: Values = np.lib.format.read_array(stream, allow_pickle=False)
    return values


# Check the columns of a saved log again: a manifest with right checksums may have been written by anyone.
#
# Letters: `N` rows, `E` episodes, `M` stored observations.

_KINDS = {  # of the columns [N]
    "position": "i", "next_position": "i", "episode": "i", "step": "i", "terminated": "b", "truncated": "b",
    "reward_known": "b", "propensity": "f", "stratum": "i", "weight": "f", "time": "iufM", "cluster": "i",
    "elapsed": "f",
}  # fmt: skip
Plain = Mapping[str, Any]  # arrays, None for absent columns
MOST_STRATA = 2**24


def check_structure(
    spec: Spec,
    observation: Mapping[str, Values],
    plain: Plain,
    extra: Mapping[str, Values],
    declared: DeclaredPropensities | None = None,
) -> None:
    """Raise LogError unless every column has the type and the number of rows of its role; reads no contents."""
    count, stored = len(plain["position"]), len(next(iter(observation.values())))
    if not count:
        raise LogError("the log has no rows")
    columns = dict(plain) | {f"extra/{name}": values for name, values in extra.items()}
    columns |= {f"observation/{name}": values for name, values in observation.items()}
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {name: (kinds, (count,)) for name, kinds in _KINDS.items()}
    shapes |= {f"extra/{name}": ("biufMU", (count,)) for name in extra}
    action = spec.action
    if isinstance(action, Discrete):
        shapes["action"] = ("i", (count,))
    elif isinstance(action, MultiDiscrete):
        shapes["action"] = ("i", (count, len(action.sizes)))
    elif isinstance(action, Continuous | Hybrid):
        shapes["action"] = ("f", (count, action.size))
    else:
        raise LogError(f"actions of kind {type(action).__name__} in a log")
    shapes["reward"] = ("f", (count,) if spec.rewards is None else (count, spec.rewards))
    shapes["episode_ids"] = ("iufUM", (len(plain["episode_ids"]),))
    for name, leaf in spec.observation.items():
        if isinstance(leaf, Vector):
            shapes[f"observation/{name}"] = ("f", (stored, leaf.size))
        elif isinstance(leaf, Codes):
            shapes[f"observation/{name}"] = ("i", (stored, len(leaf.sizes)))
        elif isinstance(leaf, Image):
            shapes[f"observation/{name}"] = ("u", (stored, leaf.height, leaf.width, leaf.channels))
        else:
            raise LogError(f"observations of kind {type(leaf).__name__} in a log")
    if spec.masked != (plain.get("action_mask") is not None):
        raise LogError("the spec and the columns differ about masks")
    if spec.masked and not isinstance(action, Discrete):
        raise LogError(f"masks of actions of kind {type(action).__name__}")
    if isinstance(action, Discrete):
        shapes["action_mask"] = ("b", (stored, action.n))
    for name, (kinds, shape) in shapes.items():
        if columns.get(name) is not None:
            expect_array(name.removeprefix("extra/"), columns[name], kinds, shape)
        elif name in PLAIN and name not in OPTIONAL and name in columns:
            raise LogError(f"the column '{name}' is missing")
    if declared is not None:
        _check_declared(declared, spec, plain)


def _check_declared(declared: DeclaredPropensities, spec: Spec, plain: Plain) -> None:
    """Raise LogError unless declared propensities fit the actions and have their columns."""
    chances, action = declared.probabilities, spec.action
    if not isinstance(action, Discrete) or plain.get("propensity") is None:
        raise LogError("propensities are declared, but actions are not discrete or have none")
    if chances is not None and not (len(chances) == action.n and min(chances) > 0 and abs(sum(chances) - 1) < 1e-6):
        raise LogError(f"declared propensities of {action.n} actions are {list(chances)}")
    if bool(declared.by) != (plain.get("stratum") is not None):
        raise LogError("declared strata and the column of strata differ")


def check_contents(spec: Spec, observation: Mapping[str, Values], plain: Plain) -> None:
    """Raise LogError unless episodes and positions are in order, codes in range, and numbers finite."""
    episode, position, after = (plain[name] for name in ("episode", "position", "next_position"))
    last = np.append(episode[1:] != episode[:-1], True)
    inside = ~last[:-1]
    starts = np.flatnonzero(np.append(True, last[:-1]))
    stored = len(next(iter(observation.values())))
    ordered = episode[0] == 0 and (episode[1:] == episode[:-1] + last[:-1]).all()
    _expect(ordered and int(episode[-1]) + 1 == len(plain["episode_ids"]), "episodes are not numbered in order")
    steps = np.arange(len(episode)) - np.repeat(starts, np.diff(np.append(starts, len(episode))))
    _expect((plain["step"] == steps).all(), "steps are not numbered in order")
    places = position[0] == 0 and (position[1:] == after[:-1] + last[:-1]).all()
    moves = after - position
    known = (moves[:-1][inside] == 1).all() and ((moves == 0) | (moves == 1)).all()
    _expect(places and known and int(after[-1]) + 1 == stored, "positions do not match the stored observations")
    for name in ("terminated", "truncated"):
        _expect(not (plain[name] & ~last).any(), f"{name} is set before the last row of an episode")
    action = plain["action"]
    if isinstance(spec.action, Discrete | MultiDiscrete):
        sizes = spec.action.n if isinstance(spec.action, Discrete) else np.asarray(spec.action.sizes)
        _expect(((action >= 0) & (action < sizes)).all(), "actions are out of range")
    if isinstance(spec.action, Hybrid):
        for column in np.flatnonzero(spec.action.codes):
            codes, most = action[:, column], spec.action.codes[column]
            _expect(((codes >= 0) & (codes < most) & (codes % 1 == 0)).all(), "actions are out of range")
    if spec.masked:
        allowed = plain["action_mask"][position, action]
        _expect(allowed.all(), "a logged action is masked out")
    for name, leaf in spec.observation.items():
        if isinstance(leaf, Codes):
            codes, sizes = observation[name], np.asarray(leaf.sizes)
            _expect(((codes >= 0) & (codes < sizes)).all(), f"codes of '{name}' are out of range")
    finite = ("action", "reward", "propensity", "weight", "elapsed")
    numbers: dict[str, Any] = {name: plain[name] for name in finite}
    rewarded = plain["reward_known"]
    if rewarded is not None:
        _expect(plain["reward"] is not None, "rewards are known, but there are none")
        _expect(np.isnan(plain["reward"][~rewarded]).all(), "an unknown reward has a value")
        numbers["reward"] = plain["reward"][rewarded]
    for name, values in (*numbers.items(), *observation.items()):
        if values is not None and values.dtype.kind == "f":
            _expect(np.isfinite(values).all(), f"'{name}' holds a number that is not finite")
    propensity, cluster, elapsed, stratum = (plain[name] for name in ("propensity", "cluster", "elapsed", "stratum"))
    _expect(elapsed is None or (elapsed >= 0).all(), "elapsed times are negative")
    _expect(propensity is None or (propensity > 0).all(), "propensities are not positive")
    _expect(cluster is None or (cluster >= 0).all(), "clusters are negative")
    _expect(stratum is None or ((stratum >= 0) & (stratum < MOST_STRATA)).all(), "strata are out of range")


def expect_array(name: str, values: Values, kinds: str, shape: tuple[int, ...]) -> None:
    """Raise LogError unless an array has one of these kinds of types, and this shape."""
    if values.dtype.kind not in kinds or values.shape != shape:
        raise LogError(f"'{name}' holds {values.dtype} {list(values.shape)}", f"{list(shape)} of kind '{kinds}'")


def _expect(holds: Any, found: str) -> None:
    if not holds:
        raise LogError(found)


# A log saved as a folder: one `.npy` file per column and a manifest with sizes and checksums.

LOG = Kind("log", 2, LogError)
_EXTRA = "extra/"
_FOLDER, _FIX = "a folder that Log.save wrote", "copy the folder again from the original, or save the log again"


def save(log: LogColumns, path: Path, overwrite: bool = False) -> None:
    """Write a log as a whole or not at all; LogError if the path exists and may not be overwritten."""
    refuse_target(path, overwrite, LOG)
    columns = {}
    for position, (name, values) in enumerate(log.columns().items()):
        safe = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)[:60]
        columns[name] = (f"{position:03d}-{safe}.npy", values)
    counts = {"steps": log.steps, "episodes": len(log.episode_ids)}
    body: dict[str, Any] = {"counts": counts, "spec": log.spec.to_json(), "report": log.report.to_json()}
    body |= log.optional("reward_unit", "hindsight", "elapsed_unit", "missing_reward")
    body |= {"atoms": list(log.atoms)} if log.atoms else {}
    body |= {} if log.declared is None else {"declared": log.declared.to_json()}
    write_columns(LOG, path, columns, body)


def saved_columns(path: str | Path, memory_map: bool = False) -> dict[str, Any]:
    """Read the fields of a log from a folder of `Log.save`; LogError names a foreign, truncated or changed file.

    `memory_map=True` leaves columns on disk and checks sizes only, not checksums and contents.
    """
    folder = Path(path)
    try:
        manifest = LOG.manifest(folder)
        about = typed(manifest, LogManifest, MANIFEST, LogError)
        columns = read_columns(LOG, folder, about.columns, manifest, memory_map)
        spec, report = Spec.from_json(about.spec), Report.from_json(about.report)
        unit, atoms = declared_unit(about.reward_unit), declared_atoms(about.atoms)
        plain = {name: columns.get(name) if name in OPTIONAL else columns[name] for name in PLAIN}
        observation = {name: columns[f"observation/{name}"] for name in spec.observation}
        extra = {name.removeprefix(_EXTRA): values for name, values in columns.items() if name.startswith(_EXTRA)}
        check_structure(spec, observation, plain, extra, about.declared)
        if not memory_map:
            check_contents(spec, observation, plain)
    except (KeyError, ConfigError) as error:
        malformed = error.problem if isinstance(error, ConfigError) else error
        raise unreadable(folder / MANIFEST, f"an entry is missing or malformed ({malformed})", _FOLDER, _FIX) from error
    except (LogError, SpecError) as error:
        if getattr(error, "report", None) is not None:  # it has a fix of its own
            raise
        raise unreadable(folder, error.problem, _FOLDER, _FIX) from error
    origin = {"source": str(folder.absolute()), "columns": None, "memory_map": memory_map}
    known = {"spec": spec, "observation": observation, "extra": extra, "report": report, "origin": origin}
    known |= {"reward_unit": unit, "atoms": atoms, "declared": about.declared}
    known |= {"elapsed_unit": declared_unit(about.elapsed_unit, "elapsed_unit"), "hindsight": about.hindsight}
    return {**known, **plain, "missing_reward": declared_missing(about.missing_reward)}


class ColumnEntry(msgspec.Struct, forbid_unknown_fields=True):
    """The file, type and shape of one column."""

    column: str
    file: str
    dtype: str
    shape: list[int]


class LogManifest(msgspec.Struct, kw_only=True):
    """The fields of a log's manifest, besides those of every folder."""

    columns: list[ColumnEntry]
    spec: dict[str, Any]
    report: dict[str, Any]
    reward_unit: str | None = None
    elapsed_unit: str | None = None
    hindsight: str | None = None
    atoms: list[float] = []
    missing_reward: str | None = None
    declared: DeclaredPropensities | None = None


def is_saved_log(path: Path) -> bool:
    """Whether a folder is a saved log."""
    return LOG.is_at(path)


def refuse_target(path: Path, overwrite: bool, kind: Kind) -> None:
    """Raise LogError unless the path is free, or holds a folder of this kind and `overwrite` is True."""
    if not path.exists():
        return
    if not overwrite:
        raise LogError(
            f"{path} exists",
            fix=f"choose another, or overwrite=True (--overwrite) if it is a {kind.name} to replace",
        )
    if not kind.is_at(path):
        raise LogError(f"{path} exists and is not a tidelog {kind.name}: not overwritten", fix="choose another path")


def write_array(values: Values, path: Path) -> None:
    """Write one array as an .npy file."""
    with stream_to(path) as stream:
        np.lib.format.write_array(stream, np.ascontiguousarray(values), allow_pickle=False)


def write_columns(kind: Kind, folder: Path, columns: Mapping[str, tuple[str, Values]], body: dict[str, Any]) -> None:
    """Write arrays as .npy files, each under the name of its file, and a manifest of them and the body."""

    entries = [
        {"column": name, "file": file, "dtype": values.dtype.str, "shape": list(values.shape)}
        for name, (file, values) in columns.items()
    ]
    files = {file: partial(write_array, values) for file, values in columns.values()}
    kind.write(folder, files, body | {"columns": entries})


def read_columns(
    kind: Kind,
    folder: Path,
    entries: Sequence[ColumnEntry],
    manifest: Mapping[str, Any],
    memory_map: bool = False,
) -> dict[str, Values]:
    """Read the arrays of a folder; LogError if one is named twice, or its type or shape differs from the manifest."""
    names = [entry.column for entry in entries]
    if len(set(names)) < len(names):
        raise LogError("a column is listed twice")
    return {entry.column: _read_column(kind, folder, entry, manifest, memory_map) for entry in entries}


def _read_column(kind: Kind, folder: Path, entry: ColumnEntry, manifest: Mapping[str, Any], memory_map: bool) -> Values:
    file = kind.file(folder, entry.file, manifest, whole=not memory_map)
    try:
        with open_regular(file) as stream:
            size = file.stat().st_size
            problem = None if memory_map else shortage(size)
            if problem is not None:
                fix = (
                    "open it with memory_map=True (--memory-map)"
                    if kind is LOG
                    else "free memory, or save fewer events"
                )
                raise unreadable(file, problem, "a column that fits into memory", fix)
            if memory_map:
                read_header(stream, size)
            values: Values = (
                read_array(stream, size) if not memory_map else np.load(file, mmap_mode="r", allow_pickle=False)
            )
    except (ValueError, OSError, EOFError, OverflowError) as error:
        raise LogError(f"{file}: not a readable array ({error})") from error
    if values.dtype.str != entry.dtype or list(values.shape) != entry.shape:
        raise LogError(f"{file} holds {values.dtype} {values.shape}", f"{entry.dtype} {entry.shape}")
    return values
