"""Validation losses: the losses of the update on held-out episodes, without a step. Letters: `B` batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.sampling import Sampler, Stored
from tidelog.recommend.next_item import StoredInteractions
from tidelog.training.engine.learner import as_arrays

MOST_BATCHES = 64
MOST_OF_INTERACTIONS = 8  # batches of windows, each with several events: 64 take as long as about 40 updates


class Validation:
    """Mean losses over the held-out part; every call uses the same rows, therefore curves are comparable."""

    def __init__(self, stores: Mapping[str, Stored | StoredInteractions]) -> None:
        self.stores = stores
        windows = any(isinstance(store, StoredInteractions) for store in stores.values())
        self._most = MOST_OF_INTERACTIONS if windows else MOST_BATCHES
        self._rows: dict[int, Any] = {}

    def losses(self, algorithm: Any, state: Any) -> dict[str, float]:
        """Return `{"held_out/<loss>": mean}` for every phase of one member."""
        means = jax.device_get(self._over_phases(_mean_losses, algorithm, state))
        return {name: float(value) for name, value in means.items()}

    def names(self, algorithm: Any, state: Any) -> list[str]:
        """Return the names in `losses`, without computing them."""
        return list(self._over_phases(partial(eqx.filter_eval_shape, _mean_losses), algorithm, state))

    def _over_phases(self, means: Callable[..., dict[str, Any]], algorithm: Any, state: Any) -> dict[str, Any]:
        numbers, metrics = as_arrays(algorithm), dict[str, Any]()
        phases = algorithm.phases()
        for index, phase in enumerate(phases):
            if index not in self._rows:
                self._rows[index] = jax.tree.map(
                    self._batches, phase.samplers, is_leaf=lambda d: isinstance(d, Sampler)
                )
            prefix = "held_out/" if len(phases) == 1 else f"held_out/{phase.name}/"
            losses = means(index, numbers, state, self.stores, self._rows[index])
            metrics |= {prefix + name: value for name, value in losses.items()}
        return metrics

    def _batches(self, draw: Sampler) -> jax.Array:
        count, rows = draw.unit.rows(self.stores[draw.store])
        batches = min(-(-count // draw.size), self._most)
        size = min(draw.size, count // batches)  # no row twice, fewer than `batches` rows left out
        order = np.random.default_rng(0).permutation(count)[: batches * size].reshape(batches, size)
        return jnp.asarray(order if rows is None else np.asarray(rows)[order], jnp.int32)


@eqx.filter_jit
def _mean_losses(
    index: int, algorithm: Any, state: Any, stores: Mapping[str, Stored | StoredInteractions], rows: Any
) -> dict[str, jax.Array]:
    phase = algorithm.phases()[index]

    def one(rows: Any) -> dict[str, jax.Array]:
        batch = jax.tree.map(
            lambda draw, r: draw.at(stores[draw.store], r),
            phase.samplers,
            rows,
            is_leaf=lambda d: isinstance(d, Sampler),
        )
        losses: dict[str, jax.Array] = phase.losses(algorithm, state, batch, jax.random.key(0))
        return losses

    return {name: jnp.mean(values) for name, values in jax.lax.map(one, rows).items()}
