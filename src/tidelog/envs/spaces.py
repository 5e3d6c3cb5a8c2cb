"""Conversion of gymnasium spaces to the types of tidelog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import SpecError
from tidelog.types import ActionSpace, Codes, Continuous, Discrete, Image, Leaf, MultiDiscrete, Vector

_SUPPORTED = (
    "a one-dimensional Box, an image (a uint8 Box [height, width, channels]), a Discrete, a one-dimensional "
    "MultiDiscrete, or a Dict of these"
)
_CHANNELS = 4  # a first axis of at most this size counts as channels

_LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True)
class Reader:
    """Conversion of one leaf from one copy's observation; `read` raises ValueError for a value outside the space."""

    leaf: Leaf
    convert: Callable[[NDArray[Any]], NDArray[Any]]
    key: str | None = None  # within a Dict

    def read(self, raw: Any) -> NDArray[Any]:
        """Read one leaf, `[size]` float32, `[C]` int32, or `[height, width, channels]` uint8."""
        return self.convert(np.asarray(raw if self.key is None else raw[self.key]))


def readers(space: Any) -> dict[str, Reader]:
    """Build a reader for every leaf; a space other than Dict is the leaf "observation". SpecError if not supported."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {name: _reader(inner, f"observation {name!r}", name) for name, inner in space.spaces.items()}
    return {"observation": _reader(space, "the observation", None)}


def action_space(space: Any) -> ActionSpace:
    """Convert a gymnasium action space; SpecError, with a fix, if it is not supported."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiDiscrete(tuple(int(n) for n in space.nvec))
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return bounds(space.low, space.high, space)
    raise SpecError(
        f"the action space is {space}: expected a Discrete, a one-dimensional MultiDiscrete, or a one-dimensional Box. "
        "fix: wrap the environment with gymnasium.wrappers.TransformAction"
    )


def action_start(space: Any) -> NDArray[np.int64]:
    """The offset of actions counted from 0, `[]` or `[M]`."""
    return np.asarray(getattr(space, "start", 0), np.int64)


def bounds(low: NDArray[Any], high: NDArray[Any], source: Any) -> Continuous:
    """Actions between bounds `[A]`; SpecError, naming the source space, unless the bounds are finite."""
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise SpecError(
            f"the action space is {source}: expected finite bounds. fix: use "
            "gymnasium.wrappers.RescaleAction or TransformAction, or a Box with finite low and high"
        )
    return Continuous(tuple(low.tolist()), tuple(high.tolist()))


def _reader(space: Any, what: str, key: str | None) -> Reader:
    from gymnasium import spaces

    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        size = int(space.shape[0])
        return Reader(Vector(size), partial(_numbers, size=size), key)
    if isinstance(space, spaces.Box) and len(space.shape) in (2, 3):
        return _image_reader(space, what, key)
    if isinstance(space, spaces.Discrete):
        return _codes_reader(np.asarray([space.n]), np.asarray([space.start]), key)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return _codes_reader(space.nvec, action_start(space), key)
    raise SpecError(
        f"{what} is {space}: expected {_SUPPORTED}. fix: wrap it with gymnasium.wrappers.FlattenObservation"
    )


def _image_reader(space: Any, what: str, key: str | None) -> Reader:
    """Build the reader of an image; SpecError, with the wrapper to use, for another layout or type."""
    if space.dtype == np.uint8 and len(space.shape) == 3 and not (space.shape[0] <= _CHANNELS < space.shape[2]):
        leaf = Image(*(int(side) for side in space.shape))
        return Reader(leaf, partial(_bytes, shape=tuple(space.shape)), key)
    if len(space.shape) == 3 and space.shape[0] <= _CHANNELS < space.shape[2]:
        found, fix = "its channels are first", "np.moveaxis(x, 0, -1)"
    elif space.dtype != np.uint8:
        found, fix = f"it has type {space.dtype}", "(255 * x).astype(np.uint8) for values in [0, 1]"
    else:
        found, fix = "it has no channels", "x[..., None]"
    wrapped = "gymnasium.wrappers.TransformObservation"
    if space.dtype != np.uint8:
        wrapped += " (or FlattenObservation, if it is not an image)"
    raise SpecError(f"{what} is {space}, {found}: expected {_SUPPORTED}. fix: for an image apply {fix} with {wrapped}")


def _bytes(value: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    if value.shape != shape or value.dtype != np.uint8:
        raise ValueError(f"found {value.shape} of {value.dtype}, expected an image {shape} of uint8")
    return value


def _codes_reader(sizes: NDArray[Any], start: NDArray[Any], key: str | None) -> Reader:
    sizes, start = sizes.astype(np.int64), np.broadcast_to(start, sizes.shape).astype(np.int64)
    return Reader(Codes(tuple(int(size) for size in sizes)), partial(_codes, sizes=sizes, start=start), key)


def _numbers(value: NDArray[Any], size: int) -> NDArray[np.float32]:
    if value.shape != (size,):
        raise ValueError(f"found shape {value.shape}, expected ({size},)")
    unusable = np.flatnonzero(~(np.abs(value) <= _LARGEST))
    if unusable.size:
        raise ValueError(f"entry {unusable[0]} is {value[unusable[0]]}; expected finite numbers")
    return value.astype(np.float32)


def _codes(value: NDArray[Any], sizes: NDArray[np.int64], start: NDArray[np.int64]) -> NDArray[np.int32]:
    if value.size != sizes.size or not np.issubdtype(value.dtype, np.integer):
        raise ValueError(f"found {value!r}, expected {sizes.size} whole numbers")
    codes = value.reshape(sizes.shape) - start
    if (codes < 0).any() or (codes >= sizes).any():
        raise ValueError(f"{value} is outside {start} .. {start + sizes - 1}")
    return codes.astype(np.int32)
