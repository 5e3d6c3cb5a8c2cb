"""Prioritised sampling inside a compiled step: a sum-tree of width 16, one array for each level.

Schaul, Quan, Antonoglou, Silver 2016, arXiv:1511.05952, algorithm 1. The probability of a sample is
`p_i ** exponent / sum p ** exponent`, where `p = abs(priority) + 1e-6`; one sample comes from each of B equal strata
of the total mass. A sample that was never drawn has the largest p so far, which is 1 at the beginning. The weight of a
sample's loss is `(count * probability) ** -correction`, divided by the batch's largest weight; the correction goes to
1 over the run.

The largest p changes all new samples at once, so every node has two numbers: the sum over its drawn samples, and the
number of its new samples, each of the same mass. Leaves are set and their parents recomputed from their children. A
row that is drawn twice keeps the larger of its values.

Letters: `B` batch, `N` samples, `V` numbers of a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.sampling import Uniform

WIDTH = 16
SMALLEST = 1e-6  # every sample stays possible
LARGEST = 1e12  # the sum stays finite


class SumTree(NamedTuple):
    """Levels from the leaves up: [ceil(N / 16), 16], [ceil(N / 256), 16], ..., [1, 16]; each entry sums a row below.

    Where nodes have several numbers, every level has a last axis `V`.
    """

    levels: tuple[jax.Array, ...]


def full_tree(count: int, value: Any = 1.0) -> SumTree:
    """Return a tree of `count` equal leaves, each a number or [V]."""
    leaf = jnp.asarray(value, jnp.float32)
    levels = [_in_rows(jnp.broadcast_to(leaf, (count, *leaf.shape)))]
    while levels[-1].shape[0] > 1:
        levels.append(_in_rows(levels[-1].sum(axis=1)))
    return SumTree(tuple(levels))


def _in_rows(values: jax.Array) -> jax.Array:
    """Return values [n, ...] as rows [ceil(n / 16), 16, ...], the last one padded with zeros."""
    padding = [(0, -len(values) % WIDTH), *[(0, 0)] * (values.ndim - 1)]
    return jnp.pad(values, padding).reshape(-1, WIDTH, *values.shape[1:])


def total(tree: SumTree) -> jax.Array:
    """Return the sum of all leaves, a number or [V]."""
    return jnp.sum(tree.levels[-1], axis=(0, 1))


class Priorities(NamedTuple):
    """The state of prioritised sampling."""

    tree: SumTree  # V = 2: (p ** exponent, 0) for samples that were drawn before, (0, 1) for new samples
    largest: jax.Array  # the largest p so far, before the exponent; at least 1


def find(tree: SumTree, mass: jax.Array, scale: jax.Array | None = None) -> jax.Array:
    """Find the leaves [B] where the running sum exceeds `mass` [B]; never a leaf without mass.

    Where nodes have several numbers, `scale` [V] is the factor of each.
    """
    node = jnp.zeros(mass.shape, jnp.int32)
    for level in reversed(tree.levels):
        children = level[node] if scale is None else jnp.sum(level[node] * scale, axis=-1)  # [B, 16]
        below = jnp.cumsum(children, axis=1)
        last = WIDTH - 1 - jnp.argmax(children[:, ::-1] > 0, axis=1)  # rounding must not select an empty child
        child = jnp.minimum(jnp.sum(below <= mass[:, None], axis=1), last)
        before = jnp.where(jnp.arange(WIDTH) < child[:, None], children, 0.0).sum(axis=1)
        mass = mass - before
        node = node * WIDTH + child.astype(jnp.int32)
    return node


def put(tree: SumTree, leaves: jax.Array, values: jax.Array) -> SumTree:
    """Set values [B] or [B, V], >= 0, at leaves [B]; a repeated leaf gets the largest value."""
    place = leaves // WIDTH, leaves % WIDTH
    levels = [tree.levels[0].at[place].set(0.0).at[place].max(values)]
    for level in tree.levels[1:]:
        leaves = leaves // WIDTH
        sums = levels[-1][leaves].sum(axis=1)
        levels.append(level.at[leaves // WIDTH, leaves % WIDTH].set(sums))
    return SumTree(tuple(levels))


@dataclass(frozen=True)
class Prioritised:
    """Samples in proportion to their last priority; new samples have the largest priority so far."""

    exponent: Any  # 0: uniform; 1: in proportion. A float, or a tracer in a population
    correction: Any  # 0: weights are 1; 1: the mean is unbiased. The initial value; the final value is 1

    def init(self, count: int, key: jax.Array | None = None) -> Priorities:
        """Return equal priorities for all samples."""
        return Priorities(full_tree(count, (0.0, 1.0)), jnp.ones(()))

    def draw(
        self, state: Priorities, key: jax.Array, size: int, count: int, progress: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return indices [size] and their importance weights, at a share of the run in [0, 1]."""
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
        """Return the state with new priorities [B] of the drawn samples."""
        if priority is None:
            raise TypeError(
                "prioritised sampling: the step returned no priorities. fix: return Feedback(metrics, priority)"
            )
        priority = jnp.abs(priority) + SMALLEST
        seen = jnp.stack([self._mass(priority), jnp.zeros(indices.shape)], axis=1)
        return Priorities(put(state.tree, indices, seen), jnp.maximum(state.largest, jnp.max(priority)))

    def _mass(self, priority: jax.Array) -> jax.Array:
        """Return the unnormalised probability of samples with these priorities."""
        return jnp.clip(priority**self.exponent, SMALLEST, LARGEST)


def ordered(exponent: Any, correction: Any) -> Uniform | Prioritised:
    """Return prioritised sampling, or uniform sampling without an exponent."""
    return Uniform() if exponent is None else Prioritised(exponent, correction)
