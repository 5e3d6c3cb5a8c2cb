"""Environments as pure functions: a whole rollout compiles into one program.

A functional environment describes one copy. Its `World` is any pytree of arrays; `start`, `observe`, `mask` and `step`
are pure: callers `vmap` them over copies and `scan` them over time. They do not reset; `advance` resets ended copies
in the same step, and returns the true next observations separately from the inputs of the next actions.
`Hosted` adapts a functional environment to the protocol of host environments, for evaluation, rollouts and logs: each
step is one compiled call, and the same functional object compiles once for all adapters.

Letters in shapes: `W` copies, `A` action size or number of actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import Batch, BatchObservation, Expected, Outcome, Saved, check_action, check_saved, positive
from tidelog.errors import ConfigError, EnvironmentFailure, SpecError
from tidelog.types import Array, Discrete, Observation, Spec

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
    next_observation: Observation  # leaves [W, ...]: before any reset
    current_observation: Observation  # leaves [W, ...]: after the reset of copies that ended
    next_mask: Array | None  # [W, A]
    mask: Array | None  # [W, A]: of `current_observation`


def begin(functional: Functional, count: int, key: Array) -> World:
    """Make `count` new worlds, leaves `[W, ...]`."""
    return jax.vmap(functional.start)(jax.random.split(key, count))


def advance(functional: Functional, world: World, action: Array, key: Array) -> BatchStep:
    """Step every copy and restart ended copies; pure, for `jit` and `scan`. `action` is `[W, ...]`.

    Example:
        >>> import jax
        >>> from tidelog.envs import functional
        >>> from tidelog.envs.functional_problems import CartPole
        >>> cart, key = CartPole(), jax.random.key(0)
        >>> world = functional.begin(cart, 8, key)
        >>> step = functional.advance(cart, world, np.ones(8, np.int32), key)
        >>> step.reward.shape
        (8,)
    """
    moving, starting = jax.random.split(key)
    count = action.shape[0]
    moved = jax.vmap(functional.step)(world, action, jax.random.split(moving, count))
    ended = moved.terminated | moved.truncated
    after = jax.tree.map(partial(_where, ended), begin(functional, count, starting), moved.world)
    next_observation, next_mask = look(functional, moved.world)
    observation, mask = look(functional, after)
    flags = (moved.terminated, moved.truncated)
    return BatchStep(after, moved.reward, *flags, next_observation, observation, next_mask, mask)


def look(functional: Functional, world: World) -> tuple[Observation, Array | None]:
    """The observations and masks of all copies: leaves `[W, ...]` and `[W, A]`."""
    return jax.vmap(functional.observe)(world), jax.vmap(functional.mask)(world)


def _where(ended: Array, fresh: Array, moved: Array) -> Array:
    return jnp.where(ended.reshape(ended.shape + (1,) * (moved.ndim - 1)), fresh, moved)


_begin = jax.jit(begin, static_argnums=(0, 1))
_look = jax.jit(look, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _advance(functional: Functional, world: World, action: Array, key: Array) -> tuple[Array, World, BatchStep]:
    next_key, step_key = jax.random.split(key)
    advanced = advance(functional, world, action, step_key)
    return next_key, advanced.world, advanced._replace(world=None)


class Hosted:
    """`count` copies of a functional environment, stepped together in one compiled call.

    SpecError if the observations differ from its spec; EnvironmentFailure, with copy and step, for NaN, infinite or
    out-of-range values. Equal seeds and actions give bitwise equal futures.
    """

    def __init__(self, functional: Functional, count: int) -> None:
        self.functional = functional
        self.name = functional.name
        self.spec = functional.spec
        self.count = positive("count", count)
        try:
            hash(functional)
        except TypeError as error:
            raise ConfigError(f"{self.name}: the environment is not hashable. fix: use a frozen dataclass") from error
        self._world: World = None
        self._key: Array | None = None
        self._mask: NDArray[np.bool_] | None = None
        self._steps = 0
        self._check_spec()

    def reset(self, seed: int) -> BatchObservation:
        """Restart every copy; the seed is a whole number from 0 to 2**63 - 1."""
        starting, self._key = jax.random.split(jax.random.key(seed))
        self._world, self._steps = _begin(self.functional, self.count, starting), 0
        return self._observed(*_look(self.functional, self._world))

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy: action `[W]`, `[W, M]` or `[W, A]`; SpecError for an invalid action."""
        action = check_action(self.spec, action, self.count)
        key = self._started()
        wrong = np.flatnonzero(~self._mask[np.arange(self.count), action]) if self._mask is not None else np.zeros(0)
        if wrong.size:
            where = f"{self.name}: action {action[wrong[0]]} is forbidden in copy {wrong[0]}"
            raise SpecError(f"{where}. fix: use the action mask")
        self._key, self._world, advanced = _advance(self.functional, self._world, action, key)
        self._steps += 1
        moved = jax.device_get(advanced)
        batch = self._batch()
        reward = batch.numbers("the reward", moved.reward, ())
        terminated = batch.flags("terminated", moved.terminated)
        truncated = batch.flags("truncated", moved.truncated)
        following = self._observed(moved.next_observation, moved.next_mask)
        ended = (terminated | truncated).any()
        current = self._observed(moved.current_observation, moved.mask) if ended else following
        return Outcome(reward, terminated, truncated, following, current)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def save_state(self) -> Saved:
        """The worlds, the random key and the step."""
        key = self._started()
        arrays = {f"world.{place}": _plain(leaf) for place, leaf in enumerate(jax.tree.leaves(self._world))}
        return {**arrays, "key": _plain(key), "steps": np.asarray(self._steps)}

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> BatchObservation:
        """Restore a state of `save_state`; ConfigError for the state of another problem or count."""
        shapes, form = jax.tree.flatten(jax.eval_shape(partial(begin, self.functional, self.count), jax.random.key(0)))
        expected: Expected = {f"world.{place}": _plain_form(leaf) for place, leaf in enumerate(shapes)}
        expected |= {"key": _plain(jax.random.key(0)), "steps": np.asarray(0)}
        arrays = check_saved(saved, expected, self.name)
        worlds = [_typed(arrays[f"world.{place}"], leaf) for place, leaf in enumerate(shapes)]
        self._world = jax.tree.unflatten(form, worlds)
        self._key = jax.random.wrap_key_data(jnp.asarray(arrays["key"]))
        self._steps = int(arrays["steps"])
        return self._observed(*_look(self.functional, self._world))

    def _started(self) -> Array:
        if self._key is None:
            raise EnvironmentFailure(f"{self.name} was not reset. fix: call reset(seed) before the first step")
        return self._key

    def _batch(self) -> Batch:
        return Batch(self.name, self.count, self._steps)

    def _observed(self, observation: Observation, mask: Array | None) -> BatchObservation:
        batch = self._batch()
        plain = {name: np.asarray(leaf) for name, leaf in observation.items()}
        observed_leaves = batch.leaves(plain, self.spec.observation)
        if mask is None or not isinstance(self.spec.action, Discrete):
            return BatchObservation(observed_leaves)
        self._mask = batch.flags("the mask", mask, (self.spec.action.n,))
        return BatchObservation(observed_leaves, self._mask)

    def _check_spec(self) -> None:
        world = jax.eval_shape(self.functional.start, jax.random.key(0))
        shapes = jax.eval_shape(self.functional.observe, world)
        if set(shapes) != set(self.spec.observation):
            raise SpecError(
                f"{self.name} has the leaves {sorted(shapes)}: its spec has {sorted(self.spec.observation)}"
            )
        masked = jax.eval_shape(self.functional.mask, world) is not None
        if masked != self.spec.masked or (masked and not isinstance(self.spec.action, Discrete)):
            expected = "True if there is a mask of discrete actions, else False"
            raise SpecError(f"{self.name}: spec.masked = {self.spec.masked}: expected {expected}")


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _plain(leaf: Array) -> NDArray[Any]:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _plain_form(leaf: Any) -> NDArray[Any]:
    form = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
    return np.broadcast_to(np.zeros((), form.dtype), form.shape)


def _typed(array: NDArray[Any], like: Any) -> Array:
    return jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(like) else jnp.asarray(array)
