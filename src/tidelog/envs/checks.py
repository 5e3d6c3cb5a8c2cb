"""Checks of a whole batch of copies at once: fast if all is valid, and precise about the first invalid copy.

Letters in shapes: `W` copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import Leaves
from tidelog.errors import EnvironmentFailure
from tidelog.types import Codes, Leaf, Vector

_LARGEST = float(np.finfo(np.float32).max)


class Batch:
    """The values that the copies of one environment returned in one step; each method checks and converts them.

    EnvironmentFailure, with environment, copy and step, for a wrong shape, NaN, infinite or out-of-range values.
    """

    def __init__(self, name: str, count: int, step: int, copies: NDArray[np.int64] | None = None) -> None:
        self.name, self.count, self.step, self.copies = name, count, step, copies

    def leaf(self, what: str, value: Any, leaf: Leaf) -> NDArray[Any]:
        """One observation leaf: `[W, size]` float32, `[W, C]` int32, or an image `[W, ..., C]` uint8."""
        if isinstance(leaf, Vector):
            return self.numbers(what, value, (leaf.size,))
        if isinstance(leaf, Codes):
            return self._codes(what, value, np.asarray(leaf.sizes))
        return self._bytes(what, value, (leaf.height, leaf.width, leaf.channels))

    def numbers(self, what: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Finite numbers `[W, *shape]` as a new float32 array."""
        array = self.shaped(what, value, shape)
        if array.dtype.kind not in "fiub":
            raise self.failure(None, f"{what} has type {array.dtype}: expected numbers")
        if array.dtype.kind == "f" and not np.abs(array).max(initial=0.0) <= _LARGEST:
            place = tuple(int(index) for index in np.argwhere(~(np.abs(array) <= _LARGEST))[0])
            entry = f"entry {place[1]} of {what}" if len(place) > 1 else what
            raise self.failure(place[0], f"{entry} is {array[place]}: expected a finite number")
        return array.astype(np.float32)

    def flags(self, what: str, value: Any, shape: tuple[int, ...] = ()) -> NDArray[np.bool_]:
        """Truth values `[W, *shape]`."""
        array = self.shaped(what, value, shape)
        if array.dtype != np.bool_ and not (np.issubdtype(array.dtype, np.number) and np.isin(array, (0, 1)).all()):
            raise self.failure(None, f"{what} has type {array.dtype}: expected true or false")
        return array.astype(bool)

    def failure(self, copy: int | None, what: str) -> EnvironmentFailure:
        """The error for one row, with the number of its copy, or for all copies if the copy is unknown."""
        number = copy if copy is None or self.copies is None else self.copies[copy]
        where = "all copies" if number is None else f"copy {number}"
        return EnvironmentFailure(f"{self.name}, {where}, step {self.step}: {what}")

    def _codes(self, what: str, value: Any, sizes: NDArray[Any]) -> NDArray[np.int32]:
        array = self.shaped(what, value, sizes.shape)
        if not np.issubdtype(array.dtype, np.integer):
            raise self.failure(None, f"{what} has type {array.dtype}: expected whole numbers")
        outside = (array < 0) | (array >= sizes)
        if outside.any():
            copy, column = (int(index) for index in np.argwhere(outside)[0])
            raise self.failure(copy, f"{what} is {array[copy, column]}: expected 0 to {sizes[column] - 1}")
        return array.astype(np.int32)

    def _bytes(self, what: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        array = self.shaped(what, value, shape)
        if array.dtype != np.uint8:
            raise self.failure(None, f"{what} has type {array.dtype}: expected uint8 (0 to 255)")
        return array

    def shaped(self, what: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """An array `[W, *shape]` of any type."""
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise self.failure(None, f"{what} is not an array: {error}") from error
        if array.shape != (self.count, *shape):
            raise self.failure(None, f"{what} has shape {array.shape}: expected {(self.count, *shape)}")
        return array


def leaves(batch: Batch, seen: Leaves, expected: dict[str, Leaf]) -> Leaves:
    """All leaves of an observation."""
    if set(seen) != set(expected):
        raise batch.failure(None, f"the observation has the leaves {sorted(seen)}: expected {sorted(expected)}")
    return {name: batch.leaf(f"observation {name!r}", seen[name], leaf) for name, leaf in expected.items()}
