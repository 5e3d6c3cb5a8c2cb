"""What the environments share in saving where they are: generators as arrays, and one check of what is read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, EnvironmentFailure

Saved: TypeAlias = dict[str, NDArray[Any]]
Expected: TypeAlias = dict[str, NDArray[Any] | None]


def generators_to_array(generators: Sequence[np.random.Generator]) -> NDArray[np.uint8]:
    """The whole states of some generators as the bytes of their JSON."""
    states = [generator.bit_generator.state for generator in generators]
    return np.frombuffer(json.dumps(states, default=lambda array: array.tolist()).encode(), np.uint8).copy()


def generators_from_array(array: NDArray[np.uint8], count: int, what: str) -> list[np.random.Generator]:
    """The generators that `generators_to_array` wrote down; ConfigError where they are not so many."""
    try:
        states = json.loads(array.tobytes())
        generators = [np.random.Generator(getattr(np.random, state["bit_generator"])()) for state in states]
        for generator, state in zip(generators, states, strict=True):
            generator.bit_generator.state = state
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{what}: the saved random numbers cannot be read: {error}") from error
    if len(generators) != count:
        raise ConfigError(f"{what}: expected the random numbers of {count} generators, found {len(generators)}")
    return generators


def started(generator: np.random.Generator | None, name: str) -> np.random.Generator:
    """The generator that the first reset makes; EnvironmentFailure before that."""
    if generator is None:
        raise EnvironmentFailure(f"{name}: reset it before the first step")
    return generator


def checked(saved: Mapping[str, NDArray[Any]], expected: Expected, name: str) -> Saved:
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
