"""Environments as pure functions: a whole rollout compiles into one program.

A functional environment describes one copy. Its `World` is any pytree of arrays; `start`, `observe`, `mask` and `step`
are pure: callers `vmap` them over copies and `scan` them over time. They do not reset; `advance` resets ended copies
in the same step, and returns the true next observations separately from the inputs of the next actions.
`Hosted` (hosted.py) adapts a functional environment to the protocol of host environments.

Letters in shapes: `W` copies, `A` action size or number of actions.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp

from tidelog.types import Array, Observation, Spec

World: TypeAlias = Any  # a pytree of arrays


class CopyStep(NamedTuple):
    """The result of one step of one copy; scalars, with a leading `[W]` under vmap."""

    world: World  # after the step, never reset
    reward: Array  # [] float32
    terminated: Array  # [] bool
    truncated: Array  # [] bool


@runtime_checkable
class Functional(Protocol):
    """One copy of a problem as pure functions of its state (`World`)."""

    @property
    def name(self) -> str:
        """The name of the environment."""

    @property
    def spec(self) -> Spec:
        """The observations and actions."""

    def start(self, key: Array) -> World:
        """A new world."""

    def observe(self, world: World) -> Observation:
        """The observation of the copy: leaves without a batch axis (Vector float32, Codes int32)."""

    def mask(self, world: World) -> Array | None:
        """The allowed actions, `[A]` bool; None: always all actions."""

    def step(self, world: World, action: Array, key: Array) -> CopyStep:
        """Step with an action `[]` int32, `[M]` int32 or `[A]` float32 in the environment's own units."""


class BatchStep(NamedTuple):
    """The result of one step of all copies, like `Outcome`, with the next worlds."""

    world: World  # leaves [W, ...]: after the reset of copies that ended
    reward: Array  # [W]
    terminated: Array  # [W]
    truncated: Array  # [W]
    following: Observation  # leaves [W, ...]: before any reset
    current: Observation  # leaves [W, ...]: after the reset of copies that ended
    following_mask: Array | None  # [W, A]
    mask: Array | None  # [W, A]: of `current`


def begin(functional: Functional, count: int, key: Array) -> World:
    """Make `count` new worlds, leaves `[W, ...]`."""
    return jax.vmap(functional.start)(jax.random.split(key, count))


def advance(functional: Functional, world: World, action: Array, key: Array) -> BatchStep:
    """Step every copy and restart ended copies; pure, for `jit` and `scan`. `action` is `[W, ...]`."""
    moving, starting = jax.random.split(key)
    count = action.shape[0]
    moved = jax.vmap(functional.step)(world, action, jax.random.split(moving, count))
    ended = moved.terminated | moved.truncated
    after = jax.tree.map(partial(_where, ended), begin(functional, count, starting), moved.world)
    following, following_mask = look(functional, moved.world)
    current, mask = look(functional, after)
    flags = (moved.terminated, moved.truncated)
    return BatchStep(after, moved.reward, *flags, following, current, following_mask, mask)


def look(functional: Functional, world: World) -> tuple[Observation, Array | None]:
    """The observations and masks of all copies: leaves `[W, ...]` and `[W, A]`."""
    return jax.vmap(functional.observe)(world), jax.vmap(functional.mask)(world)


def _where(ended: Array, fresh: Array, moved: Array) -> Array:
    return jnp.where(ended.reshape(ended.shape + (1,) * (moved.ndim - 1)), fresh, moved)
