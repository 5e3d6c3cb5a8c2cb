"""NumPy arrays on the device without a compilation: `jax.numpy.asarray` compiles a program for every new shape.

Seen with JAX 0.10.2: `asarray`, `array` and `zeros` of NumPy values each compile such a program, `device_put` does not.
It keeps the memory of a NumPy array that is aligned, so what is put there is always a copy that nobody else holds.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np


def from_host(values: Any) -> jax.Array:
    """Return a copy of an array on the device; float64 becomes float32, as everywhere in JAX."""
    array: jax.Array = jax.device_put(np.array(values))
    return array


def float32(values: np.ndarray[Any, Any]) -> jax.Array:
    """Return a copy of an array on the device as float32, cast on the host."""
    array: jax.Array = jax.device_put(values.astype(np.float32))
    return array


def int32(values: np.ndarray[Any, Any]) -> jax.Array:
    """Return a copy of an array on the device as int32, cast on the host."""
    array: jax.Array = jax.device_put(values.astype(np.int32))
    return array


def zeros(*shape: int) -> jax.Array:
    """Return float32 zeros of a shape on the device."""
    array: jax.Array = jax.device_put(np.zeros(shape, np.float32))
    return array


def scalar(value: int) -> jax.Array:
    """Return an int32 scalar on the device."""
    array: jax.Array = jax.device_put(np.int32(value))
    return array


def duplicate(array: jax.Array) -> jax.Array:
    """Return a copy of an array of the device in its own buffer; keys too."""
    copy: jax.Array = jax.device_put(array, may_alias=False)
    return copy


def normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return the numbers of `jax.random.normal`, drawn as one row.

    XLA unrolls the loops over small last axes on CPU: the noise of one update of BCQ took 5 s to compile.
    """
    return jax.random.normal(key, (math.prod(shape),)).reshape(shape)
