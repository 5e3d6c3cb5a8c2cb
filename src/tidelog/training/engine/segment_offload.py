"""Segments that are stored off the device between rounds: as host arrays, or as files in the run's folder.

The segments of one round form a piece, and a piece never changes. The columns that a phase prepares form a second
piece. Checkpoints hold the names of pieces instead of the segments: each piece is written once, however many
checkpoints name it, and a run can continue from any stored checkpoint. Drawn segments are copied from files that are
opened only for this, therefore at most one block of updates is in memory.

Letters: `C` segments in a store, `W` segments of a piece, `T` steps, `R` rows drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog import disk
from tidelog.algorithms.core.sampling import Sampler, Unit
from tidelog.algorithms.core.segments import Columns, Segments
from tidelog.errors import CheckpointError
from tidelog.folders import Kind
from tidelog.networks.arrays import from_host
from tidelog.training.engine.log_streaming import LONGEST_BLOCK, MOST_BYTES

PIECE = Kind("piece of a phase buffer", 3)
COLLECTED, PREPARED = "collected", "prepared"
OURS = re.compile(
    rf"\d+-({COLLECTED}|{PREPARED})$|{'|'.join(map(re.escape, (disk.WRITING, disk.DELETING, disk.REPLACED)))}"
)  # folder names of pieces, also half-written ones
Rows = NDArray[np.int64]
Leaves = dict[str, NDArray[Any]]  # by file name


class Fetched(NamedTuple):
    """The data of a block: a small store, and the positions of the drawn rows in it, [R] int32."""

    store: Segments
    slots: NDArray[np.int32]


class OffloadedStore:
    """A store of `C` segments off the device, filled `W` at a time; `shapes` are the shapes of its columns.

    With a folder, every piece becomes a file there: at once if `on_disk`, otherwise at the next checkpoint.
    """

    def __init__(self, shapes: Columns, capacity: int, width: int, folder: Path | None, on_disk: bool) -> None:
        self._shapes, self.capacity, self._width = shapes, capacity, width
        paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(shapes)[0]]
        self._files = {path: str(i) for i, path in enumerate(paths)}  # file names of leaves: their numbers
        self._folder, self._on_disk = folder, on_disk
        self._rounds: list[int] = []  # rounds of the pieces, in order of arrival
        self._prepared = False
        self._in_memory: dict[str, Leaves] = {}  # pieces in host memory
        self._written: set[str] = set()
        self._needed: set[str] = set()  # pieces that checkpoints name

    # Sampling.

    def count(self, unit: Unit) -> int:
        """Return the number of samples in a full store."""
        return unit.rows(self._blank(self.capacity))[0]

    def rows(self, unit: Unit, indices: NDArray[Any]) -> Rows:
        """Return the rows of samples, which are their indices."""
        return np.asarray(indices, np.int64)

    def block(self, draw: Sampler) -> int:
        """Return the number of updates in one block."""
        return max(1, min(LONGEST_BLOCK, MOST_BYTES // (draw.size * self.segment_bytes)))

    def chunk(self) -> int:
        """Return the number of segments that `prepare` and `conclude` read at once."""
        return max(1, min(self.capacity, MOST_BYTES // self.segment_bytes))

    def example(self, draw: Sampler) -> Segments:
        """Return a store with the right shapes, for tracing."""
        segments: Segments = jax.tree.map(from_host, self._blank(draw.size))
        return segments

    def fetch(self, rows: Rows, unit: Unit) -> Fetched:
        """Return the segments at rows [R], in their order."""
        return Fetched(self._segments(self._at(rows, self._shapes)), np.arange(len(rows), dtype=np.int32))

    def _segments(self, columns: Columns) -> Segments:
        arrays = jax.tree.map(from_host, columns)
        return Segments(arrays, jnp.int32(len(jax.tree.leaves(columns)[0])))

    # Filling.

    @property
    def filled(self) -> int:
        """The number of segments in the store."""
        return len(self._rounds) * self._width

    def add(self, round: int, columns: Mapping[str, Any]) -> None:
        """Add one piece with those of the columns [W, T, ...] that belong to the store."""
        own = {name: columns[name] for name in self._shapes if name in columns}
        self._put(_name(round, COLLECTED), jax.device_get(own))
        self._rounds.append(round)

    def prepare(self, function: Callable[[Columns], Columns]) -> None:
        """Add the prepared columns to every segment, one chunk at a time."""
        unfinished: dict[int, list[Columns]] = {}
        for rows, columns in self._chunks():
            prepared = jax.device_get(function(columns))
            for piece in np.unique(rows // self._width):
                unfinished.setdefault(int(piece), []).append(_select(prepared, rows // self._width == piece))
            for piece in [p for p, parts in unfinished.items() if sum(map(_length, parts)) == self._width]:
                self._put(_name(self._rounds[piece], PREPARED), _concatenate(unfinished.pop(piece)))
        self._prepared = True

    def conclude(self, function: Callable[[Columns], dict[str, jax.Array]]) -> tuple[dict[str, jax.Array], jax.Array]:
        """Return the metrics of `conclude` for every step [C, T], and which steps are valid."""
        metrics, valid = [], []
        for rows, columns in self._chunks():
            metrics.append(_select(jax.device_get(function(columns)), np.arange(len(rows))))
            valid.append(np.asarray(columns["valid"])[: len(rows)])
        return jax.tree.map(from_host, _concatenate(metrics)), from_host(np.concatenate(valid))

    def clear(self) -> None:
        """Empty the store; files are deleted as soon as no checkpoint names them."""
        self._rounds, self._prepared, self._in_memory = [], False, {}
        self._tidy()

    def _chunks(self) -> Iterable[tuple[Rows, Columns]]:
        """Yield rows and their columns, always of one size; the last row is repeated as padding."""
        size, shapes = self.chunk(), self._present_shapes()
        for begin in range(0, self.filled, size):
            rows = np.arange(begin, min(begin + size, self.filled), dtype=np.int64)
            padded = np.append(rows, np.repeat(rows[-1:], size - len(rows)))
            yield rows, jax.tree.map(from_host, self._at(padded, shapes))

    # Location.

    def notes(self, name: str, members: int) -> list[str]:
        """Return its size, its location, and the part of it that is on the device."""
        whole, block = self.capacity * self.segment_bytes, max(MOST_BYTES, 4 * self.segment_bytes)
        each = f" for each of {members} members" if members > 1 else ""
        location = f"on disk in {self._folder}" if self._on_disk else "in host memory"
        return [
            f"the phase buffer '{name}' takes {size(whole)}{each} {location}; "
            f"at most two blocks of {size(block)} are on the device at once"
        ]

    @property
    def segment_bytes(self) -> int:
        """The bytes of one segment."""
        return sum(int(np.prod(leaf.shape[1:])) * leaf.dtype.itemsize for leaf in jax.tree.leaves(self._shapes))

    def _present_shapes(self) -> Columns:
        """Return the shapes of the columns that the store has now."""
        piece = self._piece(_name(self._rounds[0], COLLECTED))
        names = {path[0].key for path, file in self._files.items() if file in piece}
        return {name: shape for name, shape in self._shapes.items() if self._prepared or name in names}

    def _at(self, rows: Rows, shapes: Columns) -> Columns:
        """Return the columns [R, T, ...] of these shapes at rows [R]."""
        pieces, within = rows // self._width, rows % self._width
        leaves, form = jax.tree_util.tree_flatten_with_path(shapes)
        arrays = [np.empty((len(rows), *leaf.shape[1:]), leaf.dtype) for _, leaf in leaves]
        for index in np.unique(pieces):
            positions = np.flatnonzero(pieces == index)
            piece = self._all_of(self._rounds[index])
            for (path, _), array in zip(leaves, arrays, strict=True):
                array[positions] = piece[self._files[path]][within[positions]]
        columns: Columns = jax.tree.unflatten(form, arrays)
        return columns

    def _all_of(self, round: int) -> Leaves:
        parts = (COLLECTED, PREPARED) if self._prepared else (COLLECTED,)
        return {file: leaf for part in parts for file, leaf in self._piece(_name(round, part)).items()}

    def _piece(self, name: str) -> Leaves:
        """Return the leaves of a piece; leaves on disk are memory-mapped until the caller drops them."""
        if name in self._in_memory:
            return self._in_memory[name]
        paths = list(self._path(name).glob("*.npy"))
        if not paths:
            raise CheckpointError(
                f"{self._path(name)} is missing, but the run needs it. fix: resume from an older checkpoint"
            )
        try:
            return {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in paths}
        except (OSError, ValueError, EOFError) as error:
            raise CheckpointError(
                f"{self._path(name)} is damaged: {error}. fix: resume from an older checkpoint"
            ) from error

    def _path(self, name: str) -> Path:
        if self._folder is None:
            raise CheckpointError("pieces of a phase buffer need a run folder, and this run has none. fix: set out=")
        return self._folder / name

    def _put(self, name: str, columns: Columns) -> None:
        leaves = jax.tree_util.tree_flatten_with_path(columns)[0]
        piece = {self._files[path]: np.asarray(leaf) for path, leaf in leaves}
        if self._on_disk:
            self._write(name, piece)
        else:
            self._in_memory[name] = {file: leaf.copy() for file, leaf in piece.items()}

    def _write(self, name: str, piece: Leaves) -> None:
        files = {f"{file}.npy": partial(_save, leaf) for file, leaf in piece.items()}
        PIECE.write(self._path(name), files, {"name": name})
        self._written.add(name)

    # Checkpoints.

    def saved(self) -> list[str]:
        """Write all pieces to files, and return their names."""
        names = [_name(round, part) for round in self._rounds for part in self._parts()]
        for name in names:
            if self._folder is not None and name not in self._written:
                self._write(name, self._in_memory[name])
        return names

    def _parts(self) -> tuple[str, ...]:
        return (COLLECTED, PREPARED) if self._prepared else (COLLECTED,)

    def restore_pieces(self, names: Iterable[str]) -> None:
        """Restore the pieces that a checkpoint names; CheckpointError if one is missing, truncated or changed."""
        names = list(names)
        self._rounds = sorted(int(name.split("-")[0]) for name in names if name.endswith(COLLECTED))
        self._prepared = any(name.endswith(PREPARED) for name in names)
        for name in names:
            manifest = PIECE.manifest(self._path(name))
            for file in manifest["files"]:
                PIECE.file(self._path(name), file, manifest)
            self._written.add(name)
            if not self._on_disk:
                self._in_memory[name] = {file: np.array(leaf) for file, leaf in self._piece(name).items()}
        self._needed = set(names)

    def delete_other_pieces(self, names: Iterable[str]) -> None:
        """Delete the files of pieces that neither these names nor the store itself need."""
        self._needed = set(names)
        self._tidy()

    def _tidy(self) -> None:
        if self._folder is None or not self._folder.is_dir():
            return
        needed = self._needed | {_name(round, part) for round in self._rounds for part in (COLLECTED, PREPARED)}
        for path in self._folder.iterdir():
            if OURS.match(path.name) and path.name not in needed:
                disk.delete(path)
                self._written.discard(path.name)

    def _blank(self, count: int) -> Segments:
        """Return a store with the right shapes that takes no memory."""

        def blank(leaf: Any) -> Any:
            return np.broadcast_to(np.zeros((), leaf.dtype), (count, *leaf.shape[1:]))

        return Segments(jax.tree.map(blank, self._shapes), np.int32(0))  # type: ignore[arg-type]


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count / 1e3:.1f} kB"


def _name(round: int, part: str) -> str:
    return f"{round:08d}-{part}"


def _save(leaf: NDArray[Any], path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, leaf, allow_pickle=False)


def _select(columns: Any, which: Any) -> Any:
    """Select segments by a mask or by indices; a mask may be shorter than the padded columns."""
    indices = np.flatnonzero(which) if np.asarray(which).dtype == bool else which
    return jax.tree.map(lambda leaf: np.asarray(leaf)[indices], columns)


def _length(columns: Any) -> int:
    return len(jax.tree.leaves(columns)[0])


def _concatenate(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
