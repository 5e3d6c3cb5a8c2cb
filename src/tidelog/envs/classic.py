"""gymnasium's CartPole-v1 and Pendulum-v1 as functional environments: the same dynamics in float32.

The equations are those of gymnasium 1.x (`envs/classic_control`); its time limits are part of the problem and truncate.
As in gymnasium, a limit and a fall in one step set both flags, and Pendulum's reward is that of the previous state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.envs.functional import CopyStep
from tidelog.types import Array, Continuous, Discrete, Observation, Spec, Vector


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
