"""Validation losses: the update's own losses on held-out episodes, without a step. Letters: `B` batch."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.draws import Draw
from tidelog.training.learner import Stores, as_arrays

MOST_BATCHES = 64


class Validation:
    """Mean losses over the held-out part; the same rows at every call, so that curves can be compared."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._rows: dict[int, Any] = {}

    def losses(self, algorithm: Any, state: Any) -> dict[str, float]:
        """`{"held_out/<loss>": mean}` for every phase of one member."""
        numbers, found = as_arrays(algorithm), dict[str, float]()
        phases = algorithm.phases()
        for index, phase in enumerate(phases):
            if index not in self._rows:
                self._rows[index] = jax.tree.map(self._batches, phase.reads, is_leaf=lambda d: isinstance(d, Draw))
            means = jax.device_get(_mean_losses(index, numbers, state, self._stores, self._rows[index]))
            prefix = "held_out/" if len(phases) == 1 else f"held_out/{phase.name}/"
            found |= {prefix + name: float(value) for name, value in means.items()}
        return found

    def _batches(self, draw: Draw) -> jax.Array:
        count, rows = draw.unit.rows(self._stores[draw.store])
        batches = min(-(-count // draw.size), MOST_BATCHES)
        order = np.resize(np.random.default_rng(0).permutation(count), (batches, draw.size))
        return jnp.asarray(order if rows is None else np.asarray(rows)[order], jnp.int32)


@eqx.filter_jit
def _mean_losses(index: int, algorithm: Any, state: Any, stores: Stores, rows: Any) -> dict[str, jax.Array]:
    phase = algorithm.phases()[index]

    def one(rows: Any) -> dict[str, jax.Array]:
        batch = jax.tree.map(
            lambda draw, r: draw.at(stores[draw.store], r), phase.reads, rows, is_leaf=lambda d: isinstance(d, Draw)
        )
        found: dict[str, jax.Array] = phase.losses(algorithm, state, batch, jax.random.key(0))
        return found

    return {name: jnp.mean(values) for name, values in jax.lax.map(one, rows).items()}
