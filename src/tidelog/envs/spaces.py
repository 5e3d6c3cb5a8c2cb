"""What gymnasium calls spaces, told in our own types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import SpecError
from tidelog.types import ActionSpace, Codes, Continuous, Discrete, Image, Leaf, MultiDiscrete, Vector

_TAKEN = (
    "a one-dimensional Box, a picture (a uint8 Box [height, width, channels]), a Discrete, a one-dimensional "
    "MultiDiscrete, or a Dict of these"
)
_CHANNELS = 4  # the most that a side can have which is taken for channels and no height

_LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True)
class Reader:
    """How one leaf is taken out of one copy's observation; `read` raises ValueError where a promise is broken."""

    leaf: Leaf
    convert: Callable[[NDArray[Any]], NDArray[Any]]
    key: str | None = None  # within a Dict

    def read(self, raw: Any) -> NDArray[Any]:
        """One leaf, `[size]` float32, `[C]` int32, or `[height, width, channels]` uint8."""
        return self.convert(np.asarray(raw if self.key is None else raw[self.key]))


def readers(space: Any) -> dict[str, Reader]:
    """A reader for every leaf; a space that is no Dict is the leaf "observation". SpecError for what is not taken."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {name: _reader(inner, f"observation {name!r}", name) for name, inner in space.spaces.items()}
    return {"observation": _reader(space, "the observation", None)}


def action_space(space: Any) -> ActionSpace:
    """Our words for a gymnasium action space; SpecError, with the mend, for those that no policy here can fill."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiDiscrete(tuple(int(n) for n in space.nvec))
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return bounds(space.low, space.high, space)
    raise SpecError(
        f"actions are {space}; taken are a Discrete, a one-dimensional MultiDiscrete, or a one-dimensional Box: "
        "wrap the environment with gymnasium.wrappers.TransformAction"
    )


def action_start(space: Any) -> NDArray[np.int64]:
    """What has to be added to actions counted from 0, `[]` or `[M]`."""
    return np.asarray(getattr(space, "start", 0), np.int64)


def bounds(low: NDArray[Any], high: NDArray[Any], told: Any) -> Continuous:
    """Actions between bounds `[A]`; SpecError, naming the space as it was told, where those are not finite."""
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise SpecError(
            f"actions are {told}, without finite bounds: give it some with "
            "gymnasium.wrappers.RescaleAction or TransformAction, or a Box with finite low and high"
        )
    return Continuous(tuple(low.tolist()), tuple(high.tolist()))


def _reader(space: Any, what: str, key: str | None) -> Reader:
    from gymnasium import spaces

    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        size = int(space.shape[0])
        return Reader(Vector(size), partial(_numbers, size=size), key)
    if isinstance(space, spaces.Box) and len(space.shape) in (2, 3):
        return _picture_reader(space, what, key)
    if isinstance(space, spaces.Discrete):
        return _codes_reader(np.asarray([space.n]), np.asarray([space.start]), key)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return _codes_reader(space.nvec, action_start(space), key)
    raise SpecError(f"{what} is {space}; taken is {_TAKEN}: wrap it with gymnasium.wrappers.FlattenObservation")


def _picture_reader(space: Any, what: str, key: str | None) -> Reader:
    """A picture's reader; SpecError where its layout or its type is another, with what to wrap it with."""
    if space.dtype == np.uint8 and len(space.shape) == 3 and not (space.shape[0] <= _CHANNELS < space.shape[2]):
        leaf = Image(*(int(side) for side in space.shape))
        return Reader(leaf, partial(_bytes, shape=tuple(space.shape)), key)
    if len(space.shape) == 3 and space.shape[0] <= _CHANNELS < space.shape[2]:
        found, mend = "its channels stand first", "np.moveaxis(x, 0, -1)"
    elif space.dtype != np.uint8:
        found, mend = f"it has numbers of type {space.dtype}", "(255 * x).astype(np.uint8) if they lie in [0, 1]"
    else:
        found, mend = "it has no channels", "x[..., None]"
    wrapped = "gymnasium.wrappers.TransformObservation"
    if space.dtype != np.uint8:
        wrapped += " (or FlattenObservation, where it is no picture)"
    raise SpecError(f"{what} is {space}; {found}: taken is {_TAKEN}; for a picture give {mend}, by {wrapped}")


def _bytes(value: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    if value.shape != shape or value.dtype != np.uint8:
        raise ValueError(f"expected a picture {shape} of uint8, found {value.shape} of {value.dtype}")
    return value


def _codes_reader(sizes: NDArray[Any], start: NDArray[Any], key: str | None) -> Reader:
    sizes, start = sizes.astype(np.int64), np.broadcast_to(start, sizes.shape).astype(np.int64)
    return Reader(Codes(tuple(int(size) for size in sizes)), partial(_codes, sizes=sizes, start=start), key)


def _numbers(value: NDArray[Any], size: int) -> NDArray[np.float32]:
    if value.shape != (size,):
        raise ValueError(f"expected shape ({size},), found {value.shape}")
    unusable = np.flatnonzero(~(np.abs(value) <= _LARGEST))
    if unusable.size:
        raise ValueError(f"entry {unusable[0]} is {value[unusable[0]]}; observations must be finite")
    return value.astype(np.float32)


def _codes(value: NDArray[Any], sizes: NDArray[np.int64], start: NDArray[np.int64]) -> NDArray[np.int32]:
    if value.size != sizes.size or not np.issubdtype(value.dtype, np.integer):
        raise ValueError(f"expected {sizes.size} whole numbers, found {value!r}")
    codes = value.reshape(sizes.shape) - start
    if (codes < 0).any() or (codes >= sizes).any():
        raise ValueError(f"{value} is outside {start} .. {start + sizes - 1}")
    return codes.astype(np.int32)
