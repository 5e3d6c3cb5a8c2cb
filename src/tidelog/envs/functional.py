"""Environments as pure functions: a whole rollout compiles into one program.

A functional environment describes one copy. Its `World` is any pytree of arrays; `start`, `observe`, `mask` and `step`
are pure, so that callers `vmap` them over copies and `scan` them over time. Nothing inside resets: `advance` does, in
the same step, for all copies at once, and keeps what truly followed apart from what to act on next.
`Hosted` (hosted.py) steps one under the protocol of host environments, for everything that is not compiled.

Letters in shapes: `W` copies, `A` action size or number of actions.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp

from tidelog.types import Array, Observation, Spec

World: TypeAlias = Any  # a pytree of arrays


class Moved(NamedTuple):
    """What one step of one copy brought; scalars, and with a leading `[W]` where callers vmap."""

    world: World  # after the step, never reset
    reward: Array  # [] float32
    terminated: Array  # [] bool
    truncated: Array  # [] bool


@runtime_checkable
class Functional(Protocol):
    """One copy of a problem as pure functions of its world."""

    @property
    def name(self) -> str:
        """How people call it."""

    @property
    def spec(self) -> Spec:
        """What is seen and what can be done."""

    def start(self, key: Array) -> World:
        """A fresh world."""

    def observe(self, world: World) -> Observation:
        """What the copy shows: leaves without a batch axis (Vector float32, Codes int32)."""

    def mask(self, world: World) -> Array | None:
        """The allowed actions, `[A]` bool; None: every action, always."""

    def step(self, world: World, action: Array, key: Array) -> Moved:
        """Act: action `[]` int32, `[M]` int32 or `[A]` float32 in the environment's own units."""


class Advanced(NamedTuple):
    """What one step of all copies brought, as `Outcome` says it, with the worlds to go on from."""

    world: World  # leaves [W, ...]: after the reset of copies that ended
    reward: Array  # [W]
    terminated: Array  # [W]
    truncated: Array  # [W]
    following: Observation  # leaves [W, ...]: before any reset
    current: Observation  # leaves [W, ...]: after the reset of copies that ended
    following_mask: Array | None  # [W, A]
    mask: Array | None  # [W, A]: of `current`


def begin(functional: Functional, count: int, key: Array) -> World:
    """`count` fresh worlds, leaves `[W, ...]`."""
    return jax.vmap(functional.start)(jax.random.split(key, count))


def advance(functional: Functional, world: World, action: Array, key: Array) -> Advanced:
    """Act in every copy and restart those that ended; pure, for `jit` and `scan`. `action` is `[W, ...]`."""
    moving, starting = jax.random.split(key)
    count = action.shape[0]
    moved = jax.vmap(functional.step)(world, action, jax.random.split(moving, count))
    ended = moved.terminated | moved.truncated
    after = jax.tree.map(partial(_where, ended), begin(functional, count, starting), moved.world)
    following, following_mask = look(functional, moved.world)
    current, mask = look(functional, after)
    flags = (moved.terminated, moved.truncated)
    return Advanced(after, moved.reward, *flags, following, current, following_mask, mask)


def look(functional: Functional, world: World) -> tuple[Observation, Array | None]:
    """What every copy shows and allows: leaves `[W, ...]` and `[W, A]`."""
    return jax.vmap(functional.observe)(world), jax.vmap(functional.mask)(world)


def _where(ended: Array, fresh: Array, moved: Array) -> Array:
    return jnp.where(ended.reshape(ended.shape + (1,) * (moved.ndim - 1)), fresh, moved)
