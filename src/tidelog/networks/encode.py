"""Observations of named leaves -> one feature vector a row. Letters: `B` batch, `C` categorical columns."""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.types import Codes, Leaf, Observation, Vector


class Encoder(eqx.Module):
    """Numeric leaves pass through, categorical codes are looked up in tables; all are concatenated: -> [B, features].

    The tables start standard normal, the scale that standardised numeric features have.
    """

    tables: dict[str, tuple[jax.Array, ...]]  # one [size, embedding] a categorical column
    leaves: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def create(cls, generator: np.random.Generator, leaves: Mapping[str, Leaf], embedding: int) -> Encoder:
        """Tables of width `embedding` for each categorical column of `leaves`."""
        tables = {
            name: tuple(jnp.asarray(generator.standard_normal((size, embedding)), jnp.float32) for size in leaf.sizes)
            for name, leaf in sorted(leaves.items())
            if isinstance(leaf, Codes)
        }
        return cls(tables, tuple(sorted(leaves)))

    def __call__(self, observation: Observation) -> jax.Array:
        parts: list[jax.Array] = []
        for name in self.leaves:
            leaf = jnp.asarray(observation[name])
            if name in self.tables:
                parts += [table[leaf[..., c]] for c, table in enumerate(self.tables[name])]
            else:
                parts.append(leaf)
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def encoded_size(leaves: Mapping[str, Leaf], embedding: int) -> int:
    """How many features an Encoder makes of these leaves."""
    return sum(leaf.size if isinstance(leaf, Vector) else embedding * len(leaf.sizes) for leaf in leaves.values())
