"""Segments that wait between rounds off the device: arrays of the host, or files in the run's folder.

What one round brings is a piece, and a piece never changes. What a phase prepares is a piece of its own beside it. So
checkpoints hold the names of pieces instead of the segments, a piece is written once however many checkpoints name it,
and a run goes on from any of those that are kept. What is drawn is copied out of files that are opened for that alone,
so that no more of them is resident than one block of updates reads.

Letters: `C` segments in a store, `W` segments of a piece, `T` steps, `R` rows drawn.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog.algorithms.core.sampling import Sampler, Unit
from tidelog.algorithms.core.segments import Columns, Segments
from tidelog.errors import CheckpointError
from tidelog.folders import ASIDE, Kind
from tidelog.training.engine.log_streaming import LONGEST_BLOCK, MOST_BYTES

PIECE = Kind("piece of a phase memory", 2)
BROUGHT, PREPARED = "brought", "prepared"
OURS = re.compile(rf"\d+-({BROUGHT}|{PREPARED})$|{re.escape(ASIDE)}")  # what a piece, and one half written, is called
Rows = NDArray[np.int64]
Leaves = dict[str, NDArray[Any]]  # by their files' names


class Fetched(NamedTuple):
    """What a block reads: a small store, and where the drawn rows stand in it, [R] int32."""

    store: Segments
    slots: NDArray[np.int32]


class OffloadedStore:
    """A store of `C` segments that come `W` at a time and lie off the device; `shapes` are those of its columns.

    With a folder every piece is a file there: at once if it is `on_disk`, else when a checkpoint asks for it.
    """

    def __init__(self, shapes: Columns, capacity: int, width: int, folder: Path | None, on_disk: bool) -> None:
        self._shapes, self.capacity, self._width = shapes, capacity, width
        paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(shapes)[0]]
        self._files = {path: str(i) for i, path in enumerate(paths)}  # of leaves: their numbers, whatever their names
        self._folder, self._on_disk = folder, on_disk
        self._rounds: list[int] = []  # of the pieces, in the order in which they came
        self._prepared = False
        self._here: dict[str, Leaves] = {}  # pieces in the host's memory
        self._written: set[str] = set()
        self._needed: set[str] = set()  # pieces that checkpoints name

    # What an update draws from it.

    def count(self, unit: Unit) -> int:
        """How many samples there are when it is full."""
        return unit.rows(self._blank(self.capacity))[0]

    def rows(self, unit: Unit, indices: NDArray[Any]) -> Rows:
        """Samples are their own rows."""
        return np.asarray(indices, np.int64)

    def block(self, draw: Sampler) -> int:
        """How many updates are fetched at once."""
        return max(1, min(LONGEST_BLOCK, MOST_BYTES // (draw.size * self.segment_bytes)))

    def chunk(self) -> int:
        """How many segments a phase looks at at once, before and after a visit."""
        return max(1, min(self.capacity, MOST_BYTES // self.segment_bytes))

    def example(self, draw: Sampler) -> Segments:
        """A store of the right shapes, for tracing."""
        found: Segments = jax.tree.map(jnp.asarray, self._blank(draw.size))
        return found

    def fetch(self, rows: Rows, unit: Unit) -> Fetched:
        """The segments at rows [R], in their order."""
        return Fetched(self._segments(self._at(rows, self._shapes)), np.arange(len(rows), dtype=np.int32))

    def _segments(self, columns: Columns) -> Segments:
        arrays = jax.tree.map(jnp.asarray, columns)
        return Segments(arrays, jnp.int32(len(jax.tree.leaves(columns)[0])))

    # What goes in.

    @property
    def filled(self) -> int:
        """Segments that are there."""
        return len(self._rounds) * self._width

    def add(self, round: int, columns: Mapping[str, Any]) -> None:
        """One more piece: of these columns [W, T, ...] those that the store keeps."""
        kept = {name: columns[name] for name in self._shapes if name in columns}
        self._put(_name(round, BROUGHT), jax.device_get(kept))
        self._rounds.append(round)

    def prepare(self, function: Callable[[Columns], Columns]) -> None:
        """Put beside every segment what a phase makes of it, a chunk of them at a time."""
        found: dict[int, list[Columns]] = {}
        for rows, columns in self._chunks():
            made = jax.device_get(function(columns))
            for place in np.unique(rows // self._width):
                found.setdefault(int(place), []).append(_taken(made, rows // self._width == place))
            for place in [p for p, parts in found.items() if sum(map(_length, parts)) == self._width]:
                self._put(_name(self._rounds[place], PREPARED), _joined(found.pop(place)))
        self._prepared = True

    def conclude(self, function: Callable[[Columns], dict[str, jax.Array]]) -> tuple[dict[str, jax.Array], jax.Array]:
        """What a phase says of every step [C, T] afterwards, and which of them count."""
        told, valid = [], []
        for rows, columns in self._chunks():
            told.append(_taken(jax.device_get(function(columns)), np.arange(len(rows))))
            valid.append(np.asarray(columns["valid"])[: len(rows)])
        return jax.tree.map(jnp.asarray, _joined(told)), jnp.asarray(np.concatenate(valid))

    def clear(self) -> None:
        """Forget all segments; files go as soon as no checkpoint names them."""
        self._rounds, self._prepared, self._here = [], False, {}
        self._tidy()

    def _chunks(self) -> Iterable[tuple[Rows, Columns]]:
        """Rows and their columns, always of one size: the last ones are repeated where some are missing."""
        size, known = self.chunk(), self._known()
        for begin in range(0, self.filled, size):
            rows = np.arange(begin, min(begin + size, self.filled), dtype=np.int64)
            padded = np.append(rows, np.repeat(rows[-1:], size - len(rows)))
            yield rows, jax.tree.map(jnp.asarray, self._at(padded, known))

    # Where it lies.

    def notes(self, name: str, members: int) -> list[str]:
        """How large it is, where it lies, and how much of it is on the device."""
        whole, block = self.capacity * self.segment_bytes, max(MOST_BYTES, 4 * self.segment_bytes)
        each = f" for each of {members} members" if members > 1 else ""
        there = f"on disk in {self._folder}" if self._on_disk else "in the host's memory"
        return [
            f"the phase memory '{name}' takes {size(whole)}{each} {there}; "
            f"of it at most two blocks of {size(block)} are on the device at once"
        ]

    @property
    def segment_bytes(self) -> int:
        """What one segment takes."""
        return sum(int(np.prod(leaf.shape[1:])) * leaf.dtype.itemsize for leaf in jax.tree.leaves(self._shapes))

    def _known(self) -> Columns:
        """The shapes of the columns that are there by now."""
        piece = self._piece(_name(self._rounds[0], BROUGHT))
        names = {path[0].key for path, file in self._files.items() if file in piece}
        return {name: shape for name, shape in self._shapes.items() if self._prepared or name in names}

    def _at(self, rows: Rows, shapes: Columns) -> Columns:
        """Columns [R, T, ...] of these shapes at rows [R]."""
        places, within = rows // self._width, rows % self._width
        leaves, form = jax.tree_util.tree_flatten_with_path(shapes)
        found = [np.empty((len(rows), *leaf.shape[1:]), leaf.dtype) for _, leaf in leaves]
        for place in np.unique(places):
            here = np.flatnonzero(places == place)
            piece = self._all_of(self._rounds[place])
            for (path, _), array in zip(leaves, found, strict=True):
                array[here] = piece[self._files[path]][within[here]]
        columns: Columns = jax.tree.unflatten(form, found)
        return columns

    def _all_of(self, round: int) -> Leaves:
        parts = (BROUGHT, PREPARED) if self._prepared else (BROUGHT,)
        return {file: leaf for part in parts for file, leaf in self._piece(_name(round, part)).items()}

    def _piece(self, name: str) -> Leaves:
        """The leaves of a piece; those on disk are mapped until the caller lets go of them."""
        if name in self._here:
            return self._here[name]
        paths = list(self._path(name).glob("*.npy"))
        if not paths:
            raise CheckpointError(f"{self._path(name)} is gone while the run needs it: resume from an older checkpoint")
        return {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in paths}

    def _path(self, name: str) -> Path:
        if self._folder is None:
            raise CheckpointError("pieces of a phase memory lie in a run's folder, and this run has none")
        return self._folder / name

    def _put(self, name: str, columns: Columns) -> None:
        leaves = jax.tree_util.tree_flatten_with_path(columns)[0]
        piece = {self._files[path]: np.asarray(leaf) for path, leaf in leaves}
        if self._on_disk:
            self._write(name, piece)
        else:
            self._here[name] = {file: leaf.copy() for file, leaf in piece.items()}

    def _write(self, name: str, piece: Leaves) -> None:
        files = {f"{file}.npy": partial(_save, leaf) for file, leaf in piece.items()}
        PIECE.write(self._path(name), files, {"name": name})
        self._written.add(name)

    # Checkpoints.

    def saved(self) -> list[str]:
        """The names of all pieces, which are files from now on."""
        names = [_name(round, part) for round in self._rounds for part in self._parts()]
        for name in names:
            if self._folder is not None and name not in self._written:
                self._write(name, self._here[name])
        return names

    def _parts(self) -> tuple[str, ...]:
        return (BROUGHT, PREPARED) if self._prepared else (BROUGHT,)

    def put_back(self, names: Iterable[str]) -> None:
        """Go on with pieces that a checkpoint names; CheckpointError where one is missing, cut or changed."""
        names = list(names)
        self._rounds = sorted(int(name.split("-")[0]) for name in names if name.endswith(BROUGHT))
        self._prepared = any(name.endswith(PREPARED) for name in names)
        for name in names:
            manifest = PIECE.manifest(self._path(name))
            for file in manifest["files"]:
                PIECE.file(self._path(name), file, manifest)
            self._written.add(name)
            if not self._on_disk:
                self._here[name] = {file: np.array(leaf) for file, leaf in self._piece(name).items()}
        self._needed = set(names)

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget the files of pieces that neither these names nor the store itself need."""
        self._needed = set(names)
        self._tidy()

    def _tidy(self) -> None:
        if self._folder is None or not self._folder.is_dir():
            return
        needed = self._needed | {_name(round, part) for round in self._rounds for part in (BROUGHT, PREPARED)}
        for path in self._folder.iterdir():
            if OURS.match(path.name) and path.name not in needed:
                shutil.rmtree(path)
                self._written.discard(path.name)

    def _blank(self, count: int) -> Segments:
        """A store of the right shapes that takes no room."""

        def made(leaf: Any) -> Any:
            return np.broadcast_to(np.zeros((), leaf.dtype), (count, *leaf.shape[1:]))

        return Segments(jax.tree.map(made, self._shapes), np.int32(0))  # type: ignore[arg-type]


def size(count: float) -> str:
    """A number of bytes for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count / 1e3:.1f} kB"


def _name(round: int, part: str) -> str:
    return f"{round:08d}-{part}"


def _save(leaf: NDArray[Any], path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, leaf, allow_pickle=False)


def _taken(columns: Any, which: Any) -> Any:
    """The segments that are meant; a mask may be shorter than what was padded."""
    places = np.flatnonzero(which) if np.asarray(which).dtype == bool else which
    return jax.tree.map(lambda leaf: np.asarray(leaf)[places], columns)


def _length(columns: Any) -> int:
    return len(jax.tree.leaves(columns)[0])


def _joined(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
