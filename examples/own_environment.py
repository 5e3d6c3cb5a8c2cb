"""An environment of your own as pure functions: a compiled rollout, and the same thing as a log."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

import tidelog as tl
from tidelog.envs.functional import CopyStep, advance, begin, look
from tidelog.types import Discrete, Spec, Vector


class Tank(NamedTuple):
    level: jax.Array
    age: jax.Array


@dataclass(frozen=True)
class Filling:
    """A leaking tank is to be kept half full by opening (1) or closing (0) a valve; 50 steps, and it may run over."""

    leak: float = 0.05
    name: str = "filling"

    @property
    def spec(self) -> Spec:
        return Spec({"observation": Vector(1, ("level",))}, Discrete(2, ("close", "open")))

    def start(self, key: jax.Array) -> Tank:
        return Tank(jax.random.uniform(key, minval=0.2, maxval=0.8), jnp.zeros((), jnp.int32))

    def observe(self, world: Tank) -> dict[str, jax.Array]:
        return {"observation": world.level[None]}

    def mask(self, world: Tank) -> None:
        return None

    def step(self, world: Tank, action: jax.Array, key: jax.Array) -> CopyStep:
        noise = 0.02 * jax.random.normal(key)
        level = jnp.maximum(world.level * (1 - self.leak) + 0.1 * action + noise, 0.0)
        moved = Tank(level, world.age + 1)
        return CopyStep(moved, -jnp.abs(level - 0.5), level > 1.0, moved.age >= 50)


@partial(jax.jit, static_argnums=(0, 1, 2))
def play(tank: Filling, copies: int, steps: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean reward and mean level under a simple rule."""

    def one(worlds: Tank, key: jax.Array) -> tuple[Tank, tuple[jax.Array, jax.Array]]:
        seen, _ = look(tank, worlds)
        action = (seen["observation"][:, 0] < 0.5).astype(jnp.int32)
        moved = advance(tank, worlds, action, key)
        return moved.world, (moved.reward.mean(), moved.next_observation["observation"].mean())

    starting, stepping = jax.random.split(key)
    _, (reward, level) = jax.lax.scan(one, begin(tank, copies, starting), jax.random.split(stepping, steps))
    return reward.mean(), level.mean()


reward, level = play(Filling(), 512, 200, jax.random.key(0))
print(f"by the rule: {reward:.3f} a step at a level of {level:.2f}")
log = tl.collect(Filling(), episodes=20)
print(f"at random: {log.transitions.reward.mean():.3f} a step in {len(log.episodes)} episodes")
