"""What the environments share in saving where they are: generators as arrays, and one check of what is read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, EnvironmentFailure

Saved = dict[str, NDArray[Any]]


def generator_to_array(generator: np.random.Generator) -> NDArray[np.uint8]:
    """A generator's whole state as the bytes of its JSON."""
    state = json.dumps(generator.bit_generator.state, default=lambda array: array.tolist())
    return np.frombuffer(state.encode(), np.uint8).copy()


def generator_from_array(array: NDArray[np.uint8], what: str) -> np.random.Generator:
    """The generator that `generator_to_array` wrote down; ConfigError where it is none."""
    try:
        state = json.loads(array.tobytes())
        kind = getattr(np.random, state["bit_generator"])
        generator = np.random.Generator(kind())
        generator.bit_generator.state = state
    except (ValueError, TypeError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: the saved random numbers cannot be read: {error}") from error
    return generator


def started(generator: np.random.Generator | None, name: str) -> np.random.Generator:
    """The generator that the first reset makes; EnvironmentFailure before that."""
    if generator is None:
        raise EnvironmentFailure(f"{name}: reset it before the first step")
    return generator


def checked(saved: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any] | None], name: str) -> Saved:
    """The saved arrays, if they are named, shaped and typed as expected; None stands for any shape of bytes."""
    if set(saved) != set(expected):
        raise ConfigError(f"{name}: a saved state holds {sorted(expected)}, found {sorted(saved)}")
    arrays = {key: np.asarray(saved[key]) for key in expected}
    for key, like in expected.items():
        found = arrays[key]
        if like is not None and (found.shape, found.dtype) != (like.shape, like.dtype):
            told = f"is {found.dtype} {found.shape}, and this environment's is {like.dtype} {like.shape}"
            raise ConfigError(f"{name}: saved {key} {told}")
    return arrays
