"""A column of a sharded log that stays on disk: arrays joined along their first axis, read where they are indexed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tidelog.data.core.order import Values


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
