"""Prioritised sampling inside a compiled step: a sum-tree of width 16, one array a level.

Schaul, Quan, Antonoglou, Silver 2016, arXiv:1511.05952. A sample is drawn with probability `p_i / sum p`, where
`p = (priority + 1e-6) ** exponent`, one from each of B equal strata of the total mass. Its loss is weighted by
`(count * probability) ** -correction`, divided by the batch's largest weight; the correction goes to 1 over the run.
Leaves are set and their parents recomputed from their children, so that a row drawn twice does no harm.

Letters: `B` batch, `N` samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.draws import Uniform

WIDTH = 16
SMALLEST = 1e-6  # no sample ever becomes impossible,
LARGEST = 1e12  # and none makes the sum infinite


class SumTree(NamedTuple):
    """Levels from the leaves up: [ceil(N / 16), 16], [ceil(N / 256), 16], ..., [1, 16]; each entry sums a row below."""

    levels: tuple[jax.Array, ...]


def full_tree(count: int, value: float = 1.0) -> SumTree:
    """A tree of `count` equal leaves."""
    leaves = jnp.where(jnp.arange(-(-count // WIDTH) * WIDTH) < count, value, 0.0).reshape(-1, WIDTH)
    levels = [leaves]
    while levels[-1].shape[0] > 1:
        sums = levels[-1].sum(axis=1)
        levels.append(jnp.pad(sums, (0, -len(sums) % WIDTH)).reshape(-1, WIDTH))
    return SumTree(tuple(levels))


def total(tree: SumTree) -> jax.Array:
    """The mass of all leaves."""
    return jnp.sum(tree.levels[-1])


def find(tree: SumTree, mass: jax.Array) -> jax.Array:
    """The leaves [B] at which the running sum passes `mass` [B]; never one without mass."""
    node = jnp.zeros(mass.shape, jnp.int32)
    for level in reversed(tree.levels):
        children = level[node]  # [B, 16]
        below = jnp.cumsum(children, axis=1)
        last = WIDTH - 1 - jnp.argmax(children[:, ::-1] > 0, axis=1)  # rounding must not lead into an empty child
        child = jnp.minimum(jnp.sum(below <= mass[:, None], axis=1), last)
        before = jnp.where(jnp.arange(WIDTH) < child[:, None], children, 0.0).sum(axis=1)
        mass = mass - before
        node = node * WIDTH + child.astype(jnp.int32)
    return node


def put(tree: SumTree, leaves: jax.Array, values: jax.Array) -> SumTree:
    """The tree with new values [B] at leaves [B]."""
    levels = []
    for level in tree.levels:
        level = level.at[leaves // WIDTH, leaves % WIDTH].set(values)
        levels.append(level)
        leaves = leaves // WIDTH
        values = level[leaves].sum(axis=1)
    return SumTree(tuple(levels))


@dataclass(frozen=True)
class Prioritised:
    """Samples in proportion to what the last step thought of them; unseen ones count as 1."""

    exponent: Any  # 0: uniform; 1: in proportion. A float, or a tracer in a population
    correction: Any  # 0: weights are 1; 1: the mean is unbiased. Where it begins; it ends at 1

    def init(self, count: int, key: jax.Array | None = None) -> SumTree:
        """Every sample as likely as any other."""
        return full_tree(count)

    def draw(
        self, state: SumTree, key: jax.Array, size: int, count: int, progress: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Indices [size] and their importance weights, at a share of the run in [0, 1]."""
        strata = (jnp.arange(size) + jax.random.uniform(key, (size,))) / size
        mass = total(state)
        indices = jnp.minimum(find(state, strata * mass), count - 1)
        probability = state.levels[0][indices // WIDTH, indices % WIDTH] / mass
        correction = self.correction + (1.0 - self.correction) * progress
        weight = (count * probability) ** -correction
        return indices, weight / jnp.max(weight)

    def learn(self, state: SumTree, indices: jax.Array, priority: jax.Array | None) -> SumTree:
        """The tree after a step gave priorities [B] to its samples."""
        if priority is None:
            raise TypeError("prioritised sampling needs a step that returns priorities")
        return put(state, indices, jnp.clip((jnp.abs(priority) + SMALLEST) ** self.exponent, SMALLEST, LARGEST))


def ordered(exponent: Any, correction: Any) -> Uniform | Prioritised:
    """Prioritised sampling, or uniform where there is no exponent."""
    return Uniform() if exponent is None else Prioritised(exponent, correction)
