"""A T-maze (Bakker 2002): what decides was seen long before, so that a policy without a memory is right by chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.envs.functional import Moved
from tidelog.types import Array, Discrete, Observation, Spec, Vector

FORWARD, LEFT, RIGHT = 0, 1, 2


class Walk(NamedTuple):
    """A walk through the maze."""

    sign: Array  # [] int32: LEFT or RIGHT, either as likely
    place: Array  # [] int32: steps from the beginning; at `length` the corridor divides
    age: Array  # [] int32: decisions so far


@dataclass(frozen=True)
class TMaze:
    """A corridor of `length` steps that divides; a sign at its beginning says which way is paid 1, the other one 0.

    Forward (0) leads on through the corridor, left (1) and right (2) end the episode where it divides; elsewhere what
    cannot be done changes nothing. The leaf "observation" is the sign (-1 left, 1 right; in the first decision only,
    then 0), whether this is the corridor, and whether it divides here. `limit` decisions truncate.

    The best return is 1. Without a memory it is 1/2, whatever the policy: where the ways part it sees the same under
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

    def step(self, world: Walk, action: Array, key: Array) -> Moved:
        divides = world.place == self.length
        turned = divides & (action != FORWARD)
        place = world.place + (~divides & (action == FORWARD))
        age = world.age + 1
        reward = (turned & (action == world.sign)).astype(jnp.float32)
        return Moved(Walk(world.sign, place, age), reward, turned, age >= self.limit)
