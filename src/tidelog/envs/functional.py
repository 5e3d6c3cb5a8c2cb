"""Environments as pure functions: a whole rollout compiles into one program.

A functional environment describes one copy. Its `World` is any pytree of arrays; `start`, `observe`, `mask` and `step`
are pure: callers `vmap` them over copies and `scan` them over time. They do not reset; `advance` resets ended copies in
the same step, and returns the true next observations separately from the inputs of the next actions. `HostedCopies`
adapts a functional environment to the protocol of host environments, for evaluation, rollouts and logs: each step is
one compiled call, and the same functional object compiles once for all adapters.

Letters in shapes: `W` copies, `A` action size or number of actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import (
    BatchObservation,
    BatchReader,
    Expected,
    Outcome,
    Saved,
    check_action,
    check_saved,
    positive,
    require_reset,
)
from tidelog.envs.tabular import Tabular, pack_probabilities
from tidelog.errors import ConfigError, SpecError
from tidelog.types import Array, Continuous, Discrete, Observation, Spec, Vector, check_seed

World: TypeAlias = Any  # a pytree of arrays


class CopyStep(NamedTuple):
    """The result of one step of one copy; scalars, with a leading `[W]` under vmap."""

    world: World  # after the step, never reset
    reward: Array  # [] float32
    terminated: Array  # [] bool
    truncated: Array  # [] bool
    elapsed: Array | None = None  # [] float32: time to the next observation, where the spec has an `elapsed_unit`


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
    elapsed: Array | None = None  # [W]: time to the next observation


def begin(functional: Functional, count: int, key: Array) -> World:
    """Make `count` new worlds, leaves `[W, ...]`."""
    return jax.vmap(functional.start)(jax.random.split(key, count))


def advance(functional: Functional, world: World, action: Array, key: Array) -> BatchStep:
    """Step every copy and restart ended copies; pure, for `jit` and `scan`. `action` is `[W, ...]`.

    Example:
        >>> import jax
        >>> from tidelog.envs import functional
        >>> from tidelog.envs.functional import CartPole
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
    if (moved.elapsed is None) != (functional.spec.elapsed_unit is None):
        found = f"its steps have {'no ' if moved.elapsed is None else ''}elapsed times"
        raise SpecError(f"{functional.name}: spec.elapsed_unit = {functional.spec.elapsed_unit!r}, but {found}",
                        "both or neither")  # fmt: skip
    return BatchStep(after, moved.reward, *flags, next_observation, observation, next_mask, mask, moved.elapsed)


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


class HostedCopies:
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
            raise ConfigError(f"{self.name}: the environment is not hashable", fix="use a frozen dataclass") from error
        self._world: World = None
        self._key: Array | None = None
        self._mask: NDArray[np.bool_] | None = None
        self._steps = 0
        self._check_spec()

    def reset(self, seed: int) -> BatchObservation:
        """Restart every copy; the seed is a whole number from 0 to 2**64 - 1."""
        more, low = divmod(check_seed(seed, 2**64 - 1), 2**32)  # JAX computes keys from the lower 32 bits
        key = jax.random.key(low)
        starting, self._key = jax.random.split(jax.random.fold_in(key, more) if more else key)
        self._world, self._steps = _begin(self.functional, self.count, starting), 0
        observed = self._observed(*_look(self.functional, self._world))
        self._batch().some_allowed(observed.action_mask)
        return observed

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy: action `[W]`, `[W, M]` or `[W, A]`; SpecError for an invalid action."""
        action = check_action(self.spec, action, self.count)
        key = require_reset(self._key, self.name)
        wrong = np.flatnonzero(~self._mask[np.arange(self.count), action]) if self._mask is not None else np.zeros(0)
        if wrong.size:
            where = f"{self.name}: action {action[wrong[0]]} is forbidden in copy {wrong[0]}"
            raise SpecError(where, fix="use the action mask")
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
        batch.some_allowed(current.action_mask)
        elapsed = None if moved.elapsed is None else batch.times(moved.elapsed)
        return Outcome(reward, terminated, truncated, following, current, elapsed=elapsed)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def save_state(self) -> Saved:
        """The worlds, the random key and the step."""
        key = require_reset(self._key, self.name)
        arrays = {f"world.{position}": _plain(leaf) for position, leaf in enumerate(jax.tree.leaves(self._world))}
        return {**arrays, "key": _plain(key), "steps": np.asarray(self._steps)}

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> BatchObservation:
        """Restore a state of `save_state`; ConfigError for the state of another problem or count."""
        shapes, form = jax.tree.flatten(jax.eval_shape(partial(begin, self.functional, self.count), jax.random.key(0)))
        expected: Expected = {}
        for position, leaf in enumerate(shapes):
            stored = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
            expected[f"world.{position}"] = np.broadcast_to(np.zeros((), stored.dtype), stored.shape)
        expected |= {"key": _plain(jax.random.key(0)), "steps": np.asarray(0)}
        arrays = check_saved(saved, expected, self.name)
        plain = [jnp.asarray(arrays[f"world.{position}"]) for position in range(len(shapes))]
        pairs = zip(plain, shapes, strict=True)
        worlds = [jax.random.wrap_key_data(one) if _is_key(leaf) else one for one, leaf in pairs]
        self._world = jax.tree.unflatten(form, worlds)
        self._key = jax.random.wrap_key_data(jnp.asarray(arrays["key"]))
        self._steps = int(arrays["steps"])
        return self._observed(*_look(self.functional, self._world))

    def _batch(self) -> BatchReader:
        return BatchReader(self.name, self.count, self._steps)

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
            raise SpecError(f"{self.name}: spec.masked = {self.spec.masked}", expected)


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _plain(leaf: Array) -> NDArray[Any]:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


# Problems as functional environments: gymnasium's CartPole and Pendulum, and any finite problem.
#
# The equations of CartPole-v1 and Pendulum-v1 are those of gymnasium 1.x (`envs/classic_control`), in float32; the time
# limits are part of the problem and truncate. As in gymnasium, a limit and a fall in one step set both flags, and
# Pendulum's reward is that of the previous state.
#
# Letters in shapes: `S` states, `A` actions, `P` largest number of successors of a state and action.


class Cart(NamedTuple):
    """The state of a cart with its pole, and the age of the episode."""

    state: Array  # [4] float32: position, velocity, angle, angular velocity
    age: Array  # [] int32: steps so far


@dataclass(frozen=True)
class CartPole:
    """Keep a pole on a cart upright by pushing left (0) or right (1); each step has reward 1.

    The start is uniform within 0.05 of rest; beyond 12 degrees or 2.4 units it terminates; `limit` steps truncate.
    """

    limit: int = 500
    name: ClassVar[str] = "jax:CartPole-v1"
    spec: ClassVar[Spec] = Spec({"observation": Vector(4)}, Discrete(2))

    _GRAVITY: ClassVar[float] = 9.8
    _POLE: ClassVar[float] = 0.1  # mass
    _TOTAL: ClassVar[float] = 1.1  # mass
    _LENGTH: ClassVar[float] = 0.5  # half of the pole's length
    _FORCE: ClassVar[float] = 10.0
    _SECONDS: ClassVar[float] = 0.02
    _ANGLE: ClassVar[float] = 12 * 2 * math.pi / 360
    _POSITION: ClassVar[float] = 2.4

    def start(self, key: Array) -> Cart:
        return Cart(jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05), jnp.zeros((), jnp.int32))

    def observe(self, world: Cart) -> Observation:
        return {"observation": world.state}

    def mask(self, world: Cart) -> None:
        return None

    def step(self, world: Cart, action: Array, key: Array) -> CopyStep:
        position, velocity, angle, turning = world.state
        force = jnp.where(action == 1, self._FORCE, -self._FORCE)
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (force + self._POLE * self._LENGTH * turning**2 * sine) / self._TOTAL
        inertia = self._LENGTH * (4.0 / 3.0 - self._POLE * cosine**2 / self._TOTAL)
        turn = (self._GRAVITY * sine - cosine * push) / inertia
        acceleration = push - self._POLE * self._LENGTH * turn * cosine / self._TOTAL
        moved = jnp.stack([position, velocity, angle, turning])
        moved += self._SECONDS * jnp.stack([velocity, acceleration, turning, turn])
        age = world.age + 1
        terminated = (jnp.abs(moved[0]) > self._POSITION) | (jnp.abs(moved[2]) > self._ANGLE)
        return CopyStep(Cart(moved, age), jnp.ones((), jnp.float32), terminated, age >= self.limit)


class Swing(NamedTuple):
    """The state of a pendulum, and the age of the episode."""

    angle: Array  # [] float32, radians from upright, not wrapped
    speed: Array  # [] float32, radians a second
    age: Array  # [] int32: steps so far


@dataclass(frozen=True)
class Pendulum:
    """Swing a pendulum up and hold it with a torque in [-2, 2]; it never terminates, `limit` steps truncate.

    The leaf "observation" is cosine, sine and angular speed; the reward is minus a cost of angle, speed and torque.
    """

    limit: int = 200
    name: ClassVar[str] = "jax:Pendulum-v1"
    spec: ClassVar[Spec] = Spec({"observation": Vector(3)}, Continuous((-2.0,), (2.0,)))

    _GRAVITY: ClassVar[float] = 10.0
    _SECONDS: ClassVar[float] = 0.05
    _FASTEST: ClassVar[float] = 8.0

    def start(self, key: Array) -> Swing:
        angle, speed = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        return Swing(angle * math.pi, speed, jnp.zeros((), jnp.int32))

    def observe(self, world: Swing) -> Observation:
        return {"observation": jnp.stack([jnp.cos(world.angle), jnp.sin(world.angle), world.speed])}

    def mask(self, world: Swing) -> None:
        return None

    def step(self, world: Swing, action: Array, key: Array) -> CopyStep:
        torque = jnp.clip(action[0], -2.0, 2.0)
        wrapped = (world.angle + math.pi) % (2 * math.pi) - math.pi
        cost = wrapped**2 + 0.1 * world.speed**2 + 0.001 * torque**2
        speed = world.speed + (1.5 * self._GRAVITY * jnp.sin(world.angle) + 3.0 * torque) * self._SECONDS
        speed = jnp.clip(speed, -self._FASTEST, self._FASTEST)
        age = world.age + 1
        moved = Swing(world.angle + speed * self._SECONDS, speed, age)
        return CopyStep(moved, -cost, jnp.zeros((), bool), age >= self.limit)


class Place(NamedTuple):
    """The state of one copy, and the age of the episode."""

    state: Array  # [] int32
    age: Array  # [] int32: steps so far


class Finite:
    """One copy of a `Tabular`: entering a final state terminates, the horizon truncates.

    Only possible successors are stored, with their cumulative probabilities in float32 (`[S * A, P]`): impossible ones
    never occur, and each probability is accurate to 1e-7. The caller must mask forbidden actions.
    """

    def __init__(self, problem: Tabular) -> None:
        self.problem = problem
        self.name = f"jax:{problem.name}"
        self.spec: Spec = problem.spec
        self.successor, self.cumulative = pack_probabilities(problem.transition.reshape(-1, problem.states))
        self.first, self.first_cumulative = pack_probabilities(problem.initial[None])
        self._tables = {name: view.table for name, view in problem.views.items()}
        if problem.reward.ndim == 2:
            reward = np.broadcast_to(problem.reward.reshape(-1, 1), self.successor.shape)
        else:
            reward = np.take_along_axis(problem.reward.reshape(-1, problem.states), self.successor, axis=1)
        self._reward = reward.astype(np.float32)

    def start(self, key: Array) -> Place:
        position = _sample(key, jnp.asarray(self.first_cumulative)[0])
        return Place(jnp.asarray(self.first)[0, position], jnp.zeros((), jnp.int32))

    def observe(self, world: Place) -> Observation:
        return {name: jnp.asarray(table)[world.state] for name, table in self._tables.items()}

    def mask(self, world: Place) -> Array | None:
        return None if self.problem.allowed is None else jnp.asarray(self.problem.allowed)[world.state]

    def step(self, world: Place, action: Array, key: Array) -> CopyStep:
        row = world.state * self.problem.actions + action
        position = _sample(key, jnp.asarray(self.cumulative)[row])
        following = jnp.asarray(self.successor)[row, position]
        terminated = jnp.asarray(self.problem.final)[following]
        age = world.age + 1
        truncated = jnp.zeros((), bool) if self.problem.horizon is None else ~terminated & (age == self.problem.horizon)
        reward = jnp.asarray(self._reward)[row, position]
        return CopyStep(Place(following, age), reward, terminated, truncated)


def _sample(key: Array, cumulative: Array) -> Any:
    return (jax.random.uniform(key) >= cumulative).sum()
