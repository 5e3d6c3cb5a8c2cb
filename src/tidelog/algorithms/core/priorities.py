"""Prioritised sampling inside a compiled step: a sum-tree of width 16, one array a level.

Schaul, Quan, Antonoglou, Silver 2016, arXiv:1511.05952, algorithm 1. A sample is drawn with probability
`p_i ** exponent / sum p ** exponent`, where `p = abs(priority) + 1e-6`, one from each of B equal strata of the total
mass. A sample that was never drawn has the largest p so far, which is 1 at the beginning. The loss of a sample is
weighted by `(count * probability) ** -correction`, divided by the batch's largest weight; the correction goes to 1 over
the run.

The largest p changes all unseen samples at once, so every node has two numbers: the sum over its seen samples, and how
many unseen ones it has, each of the same mass. Leaves are set and their parents recomputed from their children, so that
a row drawn twice does no harm: it keeps the larger of its values.

Letters: `B` batch, `N` samples, `V` numbers of a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.sampling import Uniform

WIDTH = 16
SMALLEST = 1e-6  # no sample ever becomes impossible,
LARGEST = 1e12  # and none makes the sum infinite


class SumTree(NamedTuple):
    """Levels from the leaves up: [ceil(N / 16), 16], [ceil(N / 256), 16], ..., [1, 16]; each entry sums a row below.

    Where nodes have several numbers, every level has a last axis `V`.
    """

    levels: tuple[jax.Array, ...]


def full_tree(count: int, value: Any = 1.0) -> SumTree:
    """A tree of `count` equal leaves, each a number or [V]."""
    leaf = jnp.asarray(value, jnp.float32)
    levels = [_in_rows(jnp.broadcast_to(leaf, (count, *leaf.shape)))]
    while levels[-1].shape[0] > 1:
        levels.append(_in_rows(levels[-1].sum(axis=1)))
    return SumTree(tuple(levels))


def _in_rows(values: jax.Array) -> jax.Array:
    """Values [n, ...] as rows [ceil(n / 16), 16, ...], the last one filled up with zeros."""
    padding = [(0, -len(values) % WIDTH), *[(0, 0)] * (values.ndim - 1)]
    return jnp.pad(values, padding).reshape(-1, WIDTH, *values.shape[1:])


def total(tree: SumTree) -> jax.Array:
    """The sum of all leaves, a number or [V]."""
    return jnp.sum(tree.levels[-1], axis=(0, 1))


class Priorities(NamedTuple):
    """What prioritised sampling knows of all samples."""

    tree: SumTree  # V = 2: (p ** exponent, 0) for samples that were drawn before, (0, 1) for the others
    largest: jax.Array  # the largest p so far, before the exponent; at least 1


def find(tree: SumTree, mass: jax.Array, scale: jax.Array | None = None) -> jax.Array:
    """The leaves [B] at which the running sum passes `mass` [B]; never one without mass.

    Where nodes have several numbers, `scale` [V] is what each of them counts.
    """
    node = jnp.zeros(mass.shape, jnp.int32)
    for level in reversed(tree.levels):
        children = level[node] if scale is None else jnp.sum(level[node] * scale, axis=-1)  # [B, 16]
        below = jnp.cumsum(children, axis=1)
        last = WIDTH - 1 - jnp.argmax(children[:, ::-1] > 0, axis=1)  # rounding must not lead into an empty child
        child = jnp.minimum(jnp.sum(below <= mass[:, None], axis=1), last)
        before = jnp.where(jnp.arange(WIDTH) < child[:, None], children, 0.0).sum(axis=1)
        mass = mass - before
        node = node * WIDTH + child.astype(jnp.int32)
    return node


def put(tree: SumTree, leaves: jax.Array, values: jax.Array) -> SumTree:
    """The tree with new values [B] or [B, V], >= 0, at leaves [B]; one that stands there twice gets the largest."""
    place = leaves // WIDTH, leaves % WIDTH
    levels = [tree.levels[0].at[place].set(0.0).at[place].max(values)]
    for level in tree.levels[1:]:
        leaves = leaves // WIDTH
        sums = levels[-1][leaves].sum(axis=1)
        levels.append(level.at[leaves // WIDTH, leaves % WIDTH].set(sums))
    return SumTree(tuple(levels))


@dataclass(frozen=True)
class Prioritised:
    """Samples in proportion to what the last step thought of them; unseen ones have the largest priority so far."""

    exponent: Any  # 0: uniform; 1: in proportion. A float, or a tracer in a population
    correction: Any  # 0: weights are 1; 1: the mean is unbiased. Where it begins; it ends at 1

    def init(self, count: int, key: jax.Array | None = None) -> Priorities:
        """Every sample as likely as any other."""
        return Priorities(full_tree(count, (0.0, 1.0)), jnp.ones(()))

    def draw(
        self, state: Priorities, key: jax.Array, size: int, count: int, progress: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Indices [size] and their importance weights, at a share of the run in [0, 1]."""
        strata = (jnp.arange(size) + jax.random.uniform(key, (size,))) / size
        scale = jnp.stack([jnp.ones(()), self._mass(state.largest)])
        mass = jnp.sum(total(state.tree) * scale)
        indices = jnp.minimum(find(state.tree, strata * mass, scale), count - 1)
        leaves = state.tree.levels[0][indices // WIDTH, indices % WIDTH]  # [B, 2]
        probability = jnp.sum(leaves * scale, axis=1) / mass
        correction = self.correction + (1.0 - self.correction) * progress
        weight = (count * probability) ** -correction
        return indices, weight / jnp.max(weight)

    def learn(self, state: Priorities, indices: jax.Array, priority: jax.Array | None) -> Priorities:
        """The priorities after a step gave new ones [B] to its samples."""
        if priority is None:
            raise TypeError("prioritised sampling needs a step that returns priorities")
        priority = jnp.abs(priority) + SMALLEST
        seen = jnp.stack([self._mass(priority), jnp.zeros(indices.shape)], axis=1)
        return Priorities(put(state.tree, indices, seen), jnp.maximum(state.largest, jnp.max(priority)))

    def _mass(self, priority: jax.Array) -> jax.Array:
        """What samples of these priorities are drawn in proportion to."""
        return jnp.clip(priority**self.exponent, SMALLEST, LARGEST)


def ordered(exponent: Any, correction: Any) -> Uniform | Prioritised:
    """Prioritised sampling, or uniform where there is no exponent."""
    return Uniform() if exponent is None else Prioritised(exponent, correction)
