"""Saved logs: one folder, or shards."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import IO, Annotated, Any

import msgspec
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tidelog._files import MANIFEST, Content, Kind, checksum, open_regular, stream_to, write_folder
from tidelog._machine import shortage
from tidelog.data.columns import DeclaredPropensities, declared_atoms, declared_unit
from tidelog.data.raw import OPTIONAL, PLAIN, LogColumns, Report, Values, unreadable
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.schema import typed
from tidelog.types import Codes, Continuous, Discrete, Image, MultiDiscrete, Spec, Vector

# A column of a sharded log that stays on disk: arrays joined along their first axis, read where they are indexed.


class ShardedArray(NDArrayOperatorsMixin):
    """Arrays `[n, ...]` of one type that are indexed as their concatenation `[N, ...]`.

    An index reads the rows that it names. NumPy's functions, operators and methods read the whole into memory, except
    `min` and `max`, which read one part after another. It cannot be changed.
    """

    def __init__(self, parts: Sequence[Values]) -> None:
        self.parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in self.parts])
        self.shape: tuple[int, ...] = (int(self._ends[-1]), *self.parts[0].shape[1:])
        self.dtype: np.dtype[Any] = self.parts[0].dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        for part in self.parts:
            yield from part

    def __getitem__(self, key: Any) -> Any:
        first, *rest = key if isinstance(key, tuple) else (key,)
        if isinstance(first, int | np.integer):
            rows = self._rows(np.asarray([first]))[0]
            return rows[tuple(rest)] if rest else rows
        if first is None or first is Ellipsis:
            return np.asarray(self)[key]
        if isinstance(first, slice):
            start, stop, step = first.indices(len(self))
            rows = self._range(start, stop) if step == 1 else self._rows(np.arange(start, stop, step))
        else:
            index = np.asarray(first)
            if index.dtype == bool:
                if index.shape != (len(self),):
                    raise IndexError(f"flags of the shape {index.shape}, expected ({len(self)},)")
                index = np.flatnonzero(index)
            rows = self._rows(index.astype(np.int64))
        if not rest:
            return rows
        by_row = not isinstance(first, slice) and any(isinstance(one, list | np.ndarray) for one in rest)
        return rows[(np.arange(len(rows)) if by_row else slice(None), *rest)]

    def _range(self, start: int, stop: int) -> Values:
        """Rows from `start` to before `stop`; without a copy if they are in one part."""
        pieces = []
        for part, end in zip(self.parts, self._ends.tolist(), strict=True):
            begin = end - len(part)
            if start < end and stop > begin:
                pieces.append(part[max(start, begin) - begin : stop - begin])
        if not pieces:
            return self.parts[0][:0]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _rows(self, index: Values) -> Values:
        """The rows at an index of any shape."""
        count, flat = len(self), index.reshape(-1)
        if len(flat) and (flat.min() < -count or flat.max() >= count):
            raise IndexError(f"an index is out of range: expected {-count} to {count - 1}")
        flat = np.where(flat < 0, flat + count, flat)
        which = np.searchsorted(self._ends, flat, side="right")
        rows = np.empty((len(flat), *self.shape[1:]), self.dtype)
        for number in np.unique(which).tolist():
            wanted = which == number
            part = self.parts[number]
            rows[wanted] = part[flat[wanted] - (int(self._ends[number]) - len(part))]
        return rows.reshape(*index.shape, *self.shape[1:])

    def min(self, axis: int | None = None) -> Any:
        """The smallest values along an axis, or of all."""
        smallest = [part.min(axis=axis) for part in self.parts]
        return np.concatenate(smallest) if axis else np.min(smallest, axis=0)

    def max(self, axis: int | None = None) -> Any:
        """The largest values along an axis, or of all."""
        largest = [part.max(axis=axis) for part in self.parts]
        return np.concatenate(largest) if axis else np.max(largest, axis=0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        if copy is False:
            raise ValueError("a sharded array is copied into memory to become one array")
        whole = np.concatenate(self.parts)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(one, ShardedArray) for one in options.get("out", ())):
            return NotImplemented
        return getattr(function, method)(
            *(np.asarray(one) if isinstance(one, ShardedArray) else one for one in inputs), **options
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "parts":
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


# Read arrays in NumPy's format after a check of their header: sizes first, then memory.

_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_ARRAY_KINDS = "biufcSUMm"
_AT_ONCE = 1 << 24
_MALFORMED = (SyntaxError, TokenError, RecursionError, MemoryError, OverflowError, TypeError, Warning)


def read_header(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, column order and type of an array of `size` bytes with its header.

    ValueError for a damaged header, for objects and records, and for an array of another size.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]} of the .npy format: expected 1.0 or 2.0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            shape, columns_first, kind = _HEADERS[version](stream)
    except _MALFORMED as error:
        raise ValueError(f"the header is damaged ({type(error).__name__}: {error})") from error
    if kind.kind not in _ARRAY_KINDS or not kind.itemsize:
        raise ValueError(f"values of type {kind}: expected numbers, flags, text or times")
    held, declared = size - stream.tell(), math.prod(shape) * kind.itemsize
    if min(shape, default=0) < 0 or declared != held:
        raise ValueError(f"the header declares {list(shape)} {kind} = {declared:,} bytes, the file holds {held:,}")
    return shape, columns_first, kind


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
    shape, columns_first, kind = read_header(stream, size)
    flat = np.empty(math.prod(shape), kind)
    content = flat.view(np.uint8)
    at = 0
    while at < len(content):
        part = stream.read(min(_AT_ONCE, len(content) - at))
        if not part:
            raise ValueError(f"the contents end after {at:,} of {len(content):,} bytes")
        content[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return flat.reshape(shape[::-1]).T if columns_first else flat.reshape(shape)


# Check the columns of a saved log again: a manifest with right checksums may have been written by anyone.
#
# Letters: `N` rows, `E` episodes, `M` stored observations.

_KINDS = {  # of the columns [N]
    "position": "i", "next_position": "i", "episode": "i", "step": "i", "terminated": "b", "truncated": "b",
    "propensity": "f", "stratum": "i", "weight": "f", "time": "iufM", "cluster": "i",
}  # fmt: skip
Plain = Mapping[str, Values | None]
MOST_STRATA = 2**24


def check_structure(
    spec: Spec,
    observation: Mapping[str, Values],
    plain: Plain,
    extra: Mapping[str, Values],
    declared: DeclaredPropensities | None = None,
) -> None:
    """Raise LogError unless every column has the type and the number of rows of its role; reads no contents."""
    count, stored = len(_of(plain, "position")), len(next(iter(observation.values())))
    if not count:
        raise LogError("the log has no rows")
    for name, kinds in _KINDS.items():
        if plain.get(name) is not None:
            expect_array(name, _of(plain, name), kinds, (count,))
    for name, values in extra.items():
        expect_array(name, values, "biufMU", (count,))
    action = spec.action
    if isinstance(action, Discrete):
        expect_array("action", _of(plain, "action"), "i", (count,))
    elif isinstance(action, MultiDiscrete):
        expect_array("action", _of(plain, "action"), "i", (count, len(action.sizes)))
    elif isinstance(action, Continuous):
        expect_array("action", _of(plain, "action"), "f", (count, action.size))
    else:
        raise LogError(f"actions of kind {type(action).__name__} in a log")
    if declared is not None:
        _check_declared(declared, spec, plain)
    if plain.get("reward") is not None:
        expect_array("reward", _of(plain, "reward"), "f", (count,) if spec.rewards is None else (count, spec.rewards))
    if spec.masked != (plain.get("action_mask") is not None):
        raise LogError("the spec and the columns differ about masks")
    if spec.masked:
        if not isinstance(action, Discrete):
            raise LogError(f"masks of actions of kind {type(action).__name__}")
        expect_array("action_mask", _of(plain, "action_mask"), "b", (stored, action.n))
    expect_array("episode_ids", _of(plain, "episode_ids"), "iufUM", (len(_of(plain, "episode_ids")),))
    for name, leaf in spec.observation.items():
        if isinstance(leaf, Vector):
            expect_array(name, observation[name], "f", (stored, leaf.size))
        elif isinstance(leaf, Codes):
            expect_array(name, observation[name], "i", (stored, len(leaf.sizes)))
        elif isinstance(leaf, Image):
            expect_array(name, observation[name], "u", (stored, leaf.height, leaf.width, leaf.channels))
        else:
            raise LogError(f"observations of kind {type(leaf).__name__} in a log")


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
    episode, position, after = (_of(plain, name) for name in ("episode", "position", "next_position"))
    last = np.append(episode[1:] != episode[:-1], True)
    inside = ~last[:-1]
    starts = np.flatnonzero(np.append(True, last[:-1]))
    stored = len(next(iter(observation.values())))
    ordered = episode[0] == 0 and bool((episode[1:] == episode[:-1] + last[:-1]).all())
    _expect(ordered and int(episode[-1]) + 1 == len(_of(plain, "episode_ids")), "episodes are not numbered in order")
    steps = np.arange(len(episode)) - np.repeat(starts, np.diff(np.append(starts, len(episode))))
    _expect(bool((_of(plain, "step") == steps).all()), "steps are not numbered in order")
    places = position[0] == 0 and bool((position[1:] == after[:-1] + last[:-1]).all())
    moves = after - position
    known = bool((moves[:-1][inside] == 1).all()) and bool(((moves == 0) | (moves == 1)).all())
    _expect(places and known and int(after[-1]) + 1 == stored, "positions do not match the stored observations")
    for name in ("terminated", "truncated"):
        _expect(not (_of(plain, name) & ~last).any(), f"{name} is set before the last row of an episode")
    action = _of(plain, "action")
    if isinstance(spec.action, Discrete | MultiDiscrete):
        sizes = spec.action.n if isinstance(spec.action, Discrete) else np.asarray(spec.action.sizes)
        _expect(bool(((action >= 0) & (action < sizes)).all()), "actions are out of range")
    if spec.masked:
        allowed = _of(plain, "action_mask")[position, action]
        _expect(bool(allowed.all()), "a logged action is masked out")
    for name, leaf in spec.observation.items():
        if isinstance(leaf, Codes):
            codes, sizes = observation[name], np.asarray(leaf.sizes)
            _expect(bool(((codes >= 0) & (codes < sizes)).all()), f"codes of '{name}' are out of range")
    numbers: dict[str, Any] = {name: plain.get(name) for name in ("action", "reward", "propensity", "weight")}
    for name, values in {**numbers, **observation}.items():
        if values is not None and values.dtype.kind == "f":
            _expect(bool(np.isfinite(values).all()), f"'{name}' holds a number that is not finite")
    propensity, cluster = plain.get("propensity"), plain.get("cluster")
    _expect(propensity is None or bool((propensity > 0).all()), "propensities are not positive")
    _expect(cluster is None or bool((cluster >= 0).all()), "clusters are negative")
    stratum = plain.get("stratum")
    _expect(stratum is None or bool(((stratum >= 0) & (stratum < MOST_STRATA)).all()), "strata are out of range")


def expect_array(name: str, values: Values, kinds: str, shape: tuple[int, ...]) -> None:
    """Raise LogError unless an array has one of these kinds of types, and this shape."""
    if values.dtype.kind not in kinds or values.shape != shape:
        raise LogError(f"'{name}' holds {values.dtype} {list(values.shape)}", f"{list(shape)} of kind '{kinds}'")


def _expect(holds: bool, found: str) -> None:
    if not holds:
        raise LogError(found)


def _of(plain: Plain, name: str) -> Values:
    values = plain[name]
    if values is None:
        raise LogError(f"the column '{name}' is missing")
    return values


# A log saved as a folder: one `.npy` file per column and a manifest with sizes and checksums.

LOG, SHARDED = Kind("log", 2, LogError), Kind("sharded log", 1, LogError)
_EXTRA = "extra/"
_FOLDER, _FIX = "a folder that Log.save wrote", "copy the folder again from the original, or save the log again"


def save(log: LogColumns, path: Path, overwrite: bool = False) -> None:
    """Write a log as a whole or not at all; LogError if the path exists and may not be overwritten."""
    refuse_target(path, overwrite, LOG, SHARDED)
    files: dict[str, Callable[[Path], None]] = {}
    entries = []
    for place, (name, values) in enumerate(log.columns().items()):
        safe = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)[:60]
        file = f"{place:03d}-{safe}.npy"
        files[file] = partial(write_array, values)
        entries.append({"column": name, "file": file, "dtype": values.dtype.str, "shape": list(values.shape)})
    counts = {"steps": log.steps, "episodes": len(log.episode_ids)}
    body = {"counts": counts, "spec": log.spec.to_json(), "columns": entries, "report": log.report.to_json()}
    LOG.write(path, files, {**body, **described(log)})


def described(log: LogColumns) -> dict[str, Any]:
    """The fields of a manifest that only some logs have: the unit of rewards, atoms, and declared propensities."""
    some: dict[str, Any] = {} if log.reward_unit is None else {"reward_unit": log.reward_unit}
    some |= {"atoms": list(log.atoms)} if log.atoms else {}
    return some | ({} if log.declared is None else {"declared": log.declared.to_json()})


def saved_columns(path: str | Path, memory_map: bool = False, verify: bool | None = None) -> dict[str, Any]:
    """Read the fields of a log from a folder of `Log.save`; LogError names a foreign, truncated or changed file.

    `memory_map=True` leaves columns on disk and checks sizes only, not checksums and contents, unless `verify`.
    """
    verify = not memory_map if verify is None else verify
    folder = Path(path)
    try:
        manifest = LOG.manifest(folder)
        about = typed(manifest, LogManifest, MANIFEST, LogError)
        columns = read_columns(LOG, folder, about.columns, manifest, memory_map, verify)
        spec, report = Spec.from_json(about.spec), Report.from_json(about.report)
        unit, atoms = declared_unit(about.reward_unit), declared_atoms(about.atoms)
        plain = {name: columns.get(name) if name in OPTIONAL else columns[name] for name in PLAIN}
        observation = {name: columns[f"observation/{name}"] for name in spec.observation}
        extra = {name.removeprefix(_EXTRA): values for name, values in columns.items() if name.startswith(_EXTRA)}
        check_structure(spec, observation, plain, extra, about.declared)
        if verify:
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
    return {**known, **plain, "reward_unit": unit, "atoms": atoms, "declared": about.declared}


class ColumnEntry(msgspec.Struct, forbid_unknown_fields=True):
    """The file, type and shape of one column."""

    column: str
    file: str
    dtype: str
    shape: list[int]


class ManifestBase(msgspec.Struct, kw_only=True):
    """What the manifests of a log and of a log in shards say about it."""

    spec: dict[str, Any]
    report: dict[str, Any]
    reward_unit: str | None = None
    atoms: list[float] = []
    declared: DeclaredPropensities | None = None


class LogManifest(ManifestBase, kw_only=True):
    """The fields of a log's manifest, besides those of every folder."""

    columns: list[ColumnEntry]


def is_saved_log(path: Path) -> bool:
    """Whether a folder is a saved log, in one piece or in shards."""
    return LOG.is_at(path) or SHARDED.is_at(path)


def refuse_target(path: Path, overwrite: bool, *kinds: Kind) -> None:
    """Raise LogError unless the path is free, or holds a folder of one of these kinds and `overwrite` is True."""
    if not path.exists():
        return
    if not overwrite:
        raise LogError(
            f"{path} exists",
            fix=f"choose another, or overwrite=True (--overwrite) if it is a {kinds[0].name} to replace",
        )
    if not any(kind.is_at(path) for kind in kinds):
        raise LogError(
            f"{path} exists and is not a tidelog {kinds[0].name}: not overwritten", fix="choose another path"
        )


def write_array(values: Values, path: Path) -> None:
    """Write one array as an .npy file."""
    with stream_to(path) as stream:
        np.lib.format.write_array(stream, np.ascontiguousarray(values), allow_pickle=False)


def read_columns(
    kind: Kind,
    folder: Path,
    entries: Sequence[ColumnEntry],
    manifest: Mapping[str, Any],
    memory_map: bool = False,
    verify: bool = True,
) -> dict[str, Values]:
    """Read the arrays of a folder; LogError if one is named twice, or its type or shape differs from the manifest."""
    names = [entry.column for entry in entries]
    if len(set(names)) < len(names):
        raise LogError("a column is listed twice")
    return {entry.column: _read_column(kind, folder, entry, manifest, memory_map, verify) for entry in entries}


def _read_column(
    kind: Kind, folder: Path, entry: ColumnEntry, manifest: Mapping[str, Any], memory_map: bool, verify: bool
) -> Values:
    file = kind.file(folder, entry.file, manifest, whole=verify)
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


# A log in shards: a folder of saved logs, which are its episodes in order, and a manifest that is written last.
#
# A shard is a log of its own, whose numbers of episodes and positions count from 0. Its clusters have the numbers of
# the whole log. The manifest has the checksum of each shard's manifest, which has those of its files.

MOST_ROWS = 2**31 - 1  # positions are 32-bit integers
_SHIFTED = ("position", "next_position", "episode")
_WHOLE, _FIX_SHARDS = (
    "the shards that were written with it",
    "copy the folder again from the original, or save the log again",
)


class ShardEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A shard: the name of its folder, and the checksum of its manifest."""

    folder: Annotated[str, msgspec.Meta(pattern=r"^[\w-][\w.-]*$")]
    sha256: str


class ShardsManifest(ManifestBase, kw_only=True):
    """The fields of a sharded log's manifest, besides those of every folder."""

    shards: Annotated[list[ShardEntry], msgspec.Meta(min_length=1)]


def save_shards(log: LogColumns, path: Path, shards: int, overwrite: bool = False) -> None:
    """Write a log as a folder of shards with about as many steps each, as a whole or not at all.

    LogError if the path exists and may not be overwritten; ConfigError for a number of shards that is not possible.
    """
    episodes = len(log.episode_ids)
    if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= episodes:
        raise ConfigError(f"shards = {shards!r}", f"1 to {episodes:,}, as episodes are not divided", "use fewer shards")
    refuse_target(path, overwrite, LOG, SHARDED)
    even = np.searchsorted(log.starts, np.linspace(0, log.steps, shards + 1))
    least = np.arange(shards + 1)  # each shard has an episode
    cuts = np.minimum(np.maximum.accumulate(even - least) + least, episodes - least[::-1])
    folders: dict[str, Content] = {
        f"shard-{number:04d}.tidelog": partial(save, _piece(log, int(cuts[number]), int(cuts[number + 1])))
        for number in range(shards)
    }
    body = {"spec": log.spec.to_json(), "report": log.report.to_json(), **described(log)}

    def manifest(aside: Path) -> dict[str, Content]:
        entries = [{"folder": name, "sha256": checksum(aside / name / MANIFEST)} for name in folders]
        return {MANIFEST: SHARDED.text({**body, "shards": entries}, {})}

    write_folder(path, folders, manifest, LogError)


def _piece(log: LogColumns, first: int, after: int) -> LogColumns:
    """The episodes from `first` to before `after` as a log of their own, without a copy of large columns."""
    rows = slice(int(log.starts[first]), int(log.starts[after]))
    stored = slice(int(log.position[rows.start]), int(log.next_position[rows.stop - 1]) + 1)
    columns: dict[str, Any] = {}
    for name in PLAIN:
        values = getattr(log, name)
        columns[name] = None if values is None else values[rows]
    columns |= {name: columns[name] - np.int32(stored.start) for name in ("position", "next_position")}
    columns["episode"] = columns["episode"] - np.int32(first)
    columns["episode_ids"] = log.episode_ids[first:after]
    columns["action_mask"] = None if log.action_mask is None else log.action_mask[stored]
    return replace(
        log,
        observation={name: leaf[stored] for name, leaf in log.observation.items()},
        extra={name: values[rows] for name, values in log.extra.items()},
        report=Report(log.report.source, rows.stop - rows.start),
        origin=None,
        **columns,
    )


def sharded_columns(path: str | Path, memory_map: bool = False) -> dict[str, Any]:
    """Read the fields of a log from a folder of `save_shards`; LogError names what is missing, changed or foreign.

    `memory_map=True` leaves columns with several numbers a row on disk, and checks sizes only. The others are read into
    memory, as everything is without it.
    """
    folder = Path(path)
    about = typed(SHARDED.manifest(folder), ShardsManifest, str(folder / MANIFEST), LogError, _FIX_SHARDS)
    spec, report = Spec.from_json(about.spec), Report.from_json(about.report)
    _check_shards(folder, about.shards)
    shards = [saved_columns(folder / one.folder, memory_map=True, verify=not memory_map) for one in about.shards]
    flat = [_flat(shard) for shard in shards]
    for one, shard, named in zip(about.shards, shards, flat, strict=True):
        if shard["spec"] != spec or named.keys() != flat[0].keys():
            raise unreadable(folder / one.folder, "it has other columns than the sharded log", _WHOLE, _FIX_SHARDS)
    parts = {name: [named[name] for named in flat] for name in flat[0]}
    in_memory = {name for name, values in parts.items() if not memory_map or values[0].ndim == 1}
    problem = shortage(sum(part.nbytes for name in in_memory for part in parts[name]))
    if problem is not None:
        fix = "free memory" if memory_map else "open it with memory_map=True (--memory-map)"
        raise unreadable(folder, problem, "columns that fit into memory", fix)
    stored = [len(next(iter(shard["observation"].values()))) for shard in shards]
    if sum(stored) > MOST_ROWS:
        raise unreadable(folder, f"{sum(stored):,} observations", f"at most {MOST_ROWS:,}", "use fewer shards")
    before = {name: np.cumsum([0, *stored[:-1]]) for name in ("position", "next_position")}
    before["episode"] = np.cumsum([0, *(len(shard["episode_ids"]) for shard in shards[:-1])])
    columns: dict[str, Any] = {}
    for name, values in parts.items():
        kinds = {"text" if part.dtype.kind == "U" else part.dtype.str for part in values}  # of all lengths
        if len(kinds) > 1:
            raise unreadable(folder, f"'{name}' has several types in the shards", _WHOLE, _FIX_SHARDS)
        if name in _SHIFTED:
            shifted = zip(values, before[name], strict=True)
            columns[name] = np.concatenate([part + np.int32(start) for part, start in shifted])
        else:
            columns[name] = np.concatenate(values) if name in in_memory else ShardedArray(values)
    joined: dict[str, Any] = {
        "observation": {name: columns[f"observation/{name}"] for name in spec.observation},
        "extra": {name: columns[f"extra/{name}"] for name in shards[0]["extra"]},
        **{name: columns.get(name) for name in PLAIN},
    }
    check_structure(spec, joined["observation"], joined, joined["extra"], about.declared)
    origin = {"source": str(folder.absolute()), "columns": None, "memory_map": memory_map}
    unit = declared_unit(about.reward_unit)
    known = {"spec": spec, "report": report, "reward_unit": unit, "declared": about.declared, "origin": origin}
    return {**joined, **known, "atoms": declared_atoms(about.atoms)}


def _check_shards(folder: Path, shards: Sequence[ShardEntry]) -> None:
    """Raise LogError unless each shard is there once, as it was when the manifest was written."""
    for number, one in enumerate(shards):
        path = folder / one.folder
        if one.sha256 in [other.sha256 for other in shards[:number]]:
            raise unreadable(path, "the manifest lists this shard twice", _WHOLE, _FIX_SHARDS)
        if not path.is_dir():
            raise unreadable(path, "the shard is missing", _WHOLE, _FIX_SHARDS)
        if not (path / MANIFEST).is_file():
            raise unreadable(path, f"the shard has no {MANIFEST}", _WHOLE, _FIX_SHARDS)
        LOG.manifest(path)
        if checksum(path / MANIFEST) != one.sha256:
            raise unreadable(path, "another log is in the place of this shard", _WHOLE, _FIX_SHARDS)


def _flat(shard: Mapping[str, Any]) -> dict[str, Values]:
    """Every column of a shard under one name, as `LogColumns.columns`."""
    flat = {f"observation/{name}": leaf for name, leaf in shard["observation"].items()}
    flat |= {name: shard[name] for name in PLAIN if name not in OPTIONAL or shard[name] is not None}
    return flat | {f"extra/{name}": values for name, values in shard["extra"].items()}
