"""The random keys of `jax.random`, computed on the host.

`jax.random.key`, `split` and `fold_in` outside a program compile a program each: 0.4 s of a start with an empty
compilation cache, 0.1 s with a filled one. The keys are equal to the last bit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def new_key(seed: int) -> jax.Array:
    """Return `jax.random.key(seed)`."""
    config: Any = jax.config
    usual = config.jax_default_prng_impl == "threefry2x32" and not config.jax_random_seed_offset
    return _wrapped(np.array([0, seed], np.uint32)) if usual and 0 <= seed < 2**31 else jax.random.key(seed)


def split_keys(key: jax.Array, count: int) -> tuple[jax.Array, ...]:
    """Return the keys of `jax.random.split`."""
    if not _is_computed_here(key):
        split: tuple[jax.Array, ...] = _split(key, count)
        return split
    pairs = _threefry(key, np.array([np.zeros(count), np.arange(count)], np.uint32)).T
    return tuple(_wrapped(pair) for pair in pairs)


def fold_in(key: jax.Array, number: int) -> jax.Array:
    """Return `jax.random.fold_in(key, number)`."""
    if not _is_computed_here(key):
        return jax.random.fold_in(key, number)
    return _wrapped(_threefry(key, np.array([[0], [number]], np.uint32)).ravel())


def _is_computed_here(key: jax.Array) -> bool:
    """Return whether a key is known to the host, and of JAX's default generator."""
    partitionable = jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
    return not isinstance(key, jax.core.Tracer) and partitionable and str(jax.random.key_impl(key)) == "threefry2x32"


def _wrapped(data: NDArray[np.uint32]) -> jax.Array:
    key: jax.Array = jax.random.wrap_key_data(jax.device_put(np.array(data)))
    return key


def _threefry(key: jax.Array, counts: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the hash [2, N] of counts [2, N]: Threefry-2x32 with 20 rounds (Salmon et al. 2011)."""
    first, second = np.asarray(jax.random.key_data(key))[:, None]  # [1] each: the sums of scalars would warn
    keys = (first, second, first ^ second ^ np.uint32(PARITY))
    x, y = counts[0] + first, counts[1] + second
    for i in range(5):
        for rotation in ROTATIONS[i % 2]:
            x = x + y
            y = x ^ (y << np.uint32(rotation) | y >> np.uint32(32 - rotation))
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return np.stack([x, y])


@partial(jax.jit, static_argnums=1)
def _split(key: jax.Array, count: int) -> tuple[jax.Array, ...]:
    return tuple(jax.random.split(key, count))
