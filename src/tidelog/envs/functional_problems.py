"""Problems as functional environments: gymnasium's CartPole and Pendulum, a T-maze, and any finite problem.

The equations of CartPole-v1 and Pendulum-v1 are those of gymnasium 1.x (`envs/classic_control`), in float32; the time
limits are part of the problem and truncate. As in gymnasium, a limit and a fall in one step set both flags, and
Pendulum's reward is that of the previous state. In the T-maze (Bakker 2002) the deciding cue is visible only at the
start; policies without memory succeed by chance.

Letters in shapes: `S` states, `A` actions, `P` largest number of successors of a state and action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog.envs.functional import CopyStep
from tidelog.envs.tabular import Tabular, pack_probabilities
from tidelog.types import Array, Continuous, Discrete, Observation, Spec, Vector

FORWARD, LEFT, RIGHT = 0, 1, 2


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
        acceleration, turn = self._accelerations(angle, turning, jnp.where(action == 1, self._FORCE, -self._FORCE))
        moved = jnp.stack([position, velocity, angle, turning])
        moved += self._SECONDS * jnp.stack([velocity, acceleration, turning, turn])
        age = world.age + 1
        terminated = (jnp.abs(moved[0]) > self._POSITION) | (jnp.abs(moved[2]) > self._ANGLE)
        return CopyStep(Cart(moved, age), jnp.ones((), jnp.float32), terminated, age >= self.limit)

    def _accelerations(self, angle: Array, turning: Array, force: Array) -> tuple[Array, Array]:
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (force + self._POLE * self._LENGTH * turning**2 * sine) / self._TOTAL
        inertia = self._LENGTH * (4.0 / 3.0 - self._POLE * cosine**2 / self._TOTAL)
        turn = (self._GRAVITY * sine - cosine * push) / inertia
        return push - self._POLE * self._LENGTH * turn * cosine / self._TOTAL, turn


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


class Walk(NamedTuple):
    """The state of one episode in the maze."""

    sign: Array  # [] int32: LEFT or RIGHT, equally likely
    place: Array  # [] int32: steps from the start; the junction is at `length`
    age: Array  # [] int32: decisions so far


@dataclass(frozen=True)
class TMaze:
    """A corridor of `length` steps with a junction; the sign at the start names the turn of reward 1, the other has 0.

    Forward (0) moves through the corridor; left (1) and right (2) end the episode at the junction; other actions have
    no effect. The leaf "observation" is the sign (-1 left, 1 right; in the first decision only, then 0), whether the
    agent is in the corridor, and whether it is at the junction. `limit` decisions truncate.

    The best return is 1. Without memory it is 1/2 for every policy: at the junction the observation is the same for
    both signs.
    """

    length: int = 10
    limit: int = 40
    name: ClassVar[str] = "jax:t-maze"
    spec: ClassVar[Spec] = Spec({"observation": Vector(3)}, Discrete(3))
    BEST: ClassVar[float] = 1.0
    WITHOUT_MEMORY: ClassVar[float] = 0.5

    def start(self, key: Array) -> Walk:
        sign = jax.random.randint(key, (), LEFT, RIGHT + 1)
        return Walk(sign, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def observe(self, world: Walk) -> Observation:
        sign = jnp.where(world.age == 0, jnp.where(world.sign == LEFT, -1.0, 1.0), 0.0)
        divides = world.place == self.length
        return {"observation": jnp.stack([sign, ~divides, divides]).astype(jnp.float32)}

    def mask(self, world: Walk) -> None:
        return None

    def step(self, world: Walk, action: Array, key: Array) -> CopyStep:
        divides = world.place == self.length
        turned = divides & (action != FORWARD)
        place = world.place + (~divides & (action == FORWARD))
        age = world.age + 1
        reward = (turned & (action == world.sign)).astype(jnp.float32)
        return CopyStep(Walk(world.sign, place, age), reward, turned, age >= self.limit)


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
        self._reward = self._rewards(problem)

    def start(self, key: Array) -> Place:
        place = _sample(key, jnp.asarray(self.first_cumulative)[0])
        return Place(jnp.asarray(self.first)[0, place], jnp.zeros((), jnp.int32))

    def observe(self, world: Place) -> Observation:
        return {name: jnp.asarray(table)[world.state] for name, table in self._tables.items()}

    def mask(self, world: Place) -> Array | None:
        return None if self.problem.allowed is None else jnp.asarray(self.problem.allowed)[world.state]

    def step(self, world: Place, action: Array, key: Array) -> CopyStep:
        row = world.state * self.problem.actions + action
        place = _sample(key, jnp.asarray(self.cumulative)[row])
        following = jnp.asarray(self.successor)[row, place]
        terminated = jnp.asarray(self.problem.final)[following]
        age = world.age + 1
        truncated = jnp.zeros((), bool) if self.problem.horizon is None else ~terminated & (age == self.problem.horizon)
        reward = jnp.asarray(self._reward)[row, place]
        return CopyStep(Place(following, age), reward, terminated, truncated)

    def _rewards(self, problem: Tabular) -> NDArray[np.float32]:
        if problem.reward.ndim == 2:
            return np.broadcast_to(problem.reward.reshape(-1, 1), self.successor.shape).astype(np.float32)
        rows = problem.reward.reshape(-1, problem.states)
        return np.take_along_axis(rows, self.successor, axis=1).astype(np.float32)


def _sample(key: Array, cumulative: Array) -> Any:
    return (jax.random.uniform(key) >= cumulative).sum()
