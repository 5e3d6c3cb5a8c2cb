"""Helpers for saved states of environments: generators as arrays, and one check of the arrays read back."""

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
    """The complete states of generators as the bytes of their JSON."""
    states = [generator.bit_generator.state for generator in generators]
    return np.frombuffer(json.dumps(states, default=lambda array: array.tolist()).encode(), np.uint8).copy()


def generators_from_array(array: NDArray[np.uint8], count: int, what: str) -> list[np.random.Generator]:
    """Rebuild the generators from `generators_to_array`; ConfigError unless there are `count` of them."""
    try:
        states = json.loads(array.tobytes())
        generators = [np.random.Generator(getattr(np.random, state["bit_generator"])()) for state in states]
        for generator, state in zip(generators, states, strict=True):
            generator.bit_generator.state = state
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{what}: the saved random generators cannot be read: {error}") from error
    if len(generators) != count:
        raise ConfigError(f"{what}: the saved state has {len(generators)} random generators: expected {count}")
    return generators


def started(generator: np.random.Generator | None, name: str) -> np.random.Generator:
    """Return the generator; EnvironmentFailure before the first reset, which creates it."""
    if generator is None:
        raise EnvironmentFailure(f"{name} was not reset. fix: call reset(seed) before the first step")
    return generator


def checked(saved: Mapping[str, NDArray[Any]], expected: Expected, name: str) -> Saved:
    """The saved arrays, if names, shapes and types are as expected; None allows any number of bytes."""
    if set(saved) != set(expected):
        raise ConfigError(f"{name}: the saved state holds {sorted(saved)}: expected {sorted(expected)}")
    arrays = {key: np.asarray(saved[key]) for key in expected}
    for key, like in expected.items():
        array = arrays[key]
        if like is not None and (array.shape, array.dtype) != (like.shape, like.dtype):
            actual = f"is {array.dtype} {array.shape}: expected {like.dtype} {like.shape}"
            raise ConfigError(f"{name}: saved {key} {actual}")
    return arrays
