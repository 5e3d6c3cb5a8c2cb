"""A T-maze (Bakker 2002): the deciding cue is visible only at the start; policies without memory succeed by chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.envs.functional import CopyStep
from tidelog.types import Array, Discrete, Observation, Spec, Vector

FORWARD, LEFT, RIGHT = 0, 1, 2


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
