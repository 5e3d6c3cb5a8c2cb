"""A phasic algorithm that compiles in seconds, and trainers for small environments."""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tidelog import PPG, OffPolicyPPG
from tidelog.envs.functional import CopyStep
from tidelog.training.collect import assign_environments
from tidelog.training.engine import Engine, fresh_collectors
from tidelog.training.loop import Member
from tidelog.types import Discrete, MultiDiscrete, Spec, Vector

ENV = "jax:CartPole-v1"
TINY = {
    "num_envs": 4, "rollout_steps": 16, "policy_iterations": 2, "policy_epochs": 2, "value_epochs": 2,
    "auxiliary_epochs": 2, "minibatches": 2, "auxiliary_minibatch": 2, "hidden": (8,), "embedding": 2,
    "learning_rate": 1e-2, "auxiliary_learning_rate": 1e-2, "discount": 0.9,
}  # fmt: skip
REPLAYING = {
    "num_envs": 4, "rollout_steps": 16, "update_per_collect": 4, "minibatch": 4, "policy_capacity": 6,
    "value_capacity": 8, "aux_every": 2, "auxiliary_epochs": 2, "auxiliary_minibatch": 2, "hidden": (8,),
    "embedding": 2, "learning_rate": 1e-2, "auxiliary_learning_rate": 1e-2, "discount": 0.9,
}  # fmt: skip
POLICY_UPDATES, AUXILIARY_UPDATES = 4, 8  # of a round, of an auxiliary phase
ROUNDS = 2 * POLICY_UPDATES + AUXILIARY_UPDATES  # updates of two rounds


def tiny(**changes: Any) -> PPG:
    """PPG with learning rates for visible effects after a few updates."""
    return PPG(**(TINY | changes))


def replaying(**changes: Any) -> OffPolicyPPG:
    """Off-policy PPG with as many updates as `tiny`."""
    return OffPolicyPPG(**(REPLAYING | changes))


def players(*members: tuple[Any, int], env: Any = ENV, vmap: bool = False, steps: int = 10_000) -> Engine:
    """Return a trainer of (algorithm, seed) pairs."""
    numbered = [Member(i, algorithm, seed) for i, (algorithm, seed) in enumerate(members or ((tiny(), 0),))]
    places = assign_environments(
        env, numbered[0].algorithm.collection().num_envs, [one.seed for one in numbered], False
    )
    learners = fresh_collectors(numbered, places.spec, places.source, steps, False)
    return Engine(numbered, learners, steps, assignment=places, vmap=vmap)


def moved(training: Engine, updates: int, most: int = 1_000) -> Engine:
    """Return the trainer after this number of updates, in chunks of bounded size."""
    if training.needs_compiling():
        training.compile()
    end = training.update + updates
    while training.update < end:
        training.advance(min(most, end - training.update), 10**9)
    return training


@dataclass(frozen=True)
class Dials:
    """Two choices at once; each step pays where both equal the two observed numbers."""

    name: ClassVar[str] = "dials"
    spec: ClassVar[Spec] = Spec({"observation": Vector(2)}, MultiDiscrete((2, 3)))

    def start(self, key):
        return jax.random.uniform(key, (2,)), jnp.int32(0)

    def observe(self, world):
        return {"observation": world[0]}

    def mask(self, world):
        return None

    def step(self, world, action, key):
        seen, age = world
        right = (action[0] == (seen[0] > 0.5)) & (action[1] == jnp.int32(3 * seen[1]))
        after = jax.random.uniform(key, (2,)), age + 1
        return CopyStep(after, right.astype(jnp.float32), jnp.zeros((), bool), age >= 8)


@dataclass(frozen=True)
class Doors:
    """Three actions, one of them masked in every step; the masked action is an error."""

    name: ClassVar[str] = "doors"
    spec: ClassVar[Spec] = Spec({"observation": Vector(1)}, Discrete(3), masked=True)

    def start(self, key):
        return jax.random.randint(key, (), 0, 3), jnp.int32(0)

    def observe(self, world):
        return {"observation": world[0][None].astype(jnp.float32)}

    def mask(self, world):
        return jnp.arange(3) != world[0]

    def step(self, world, action, key):
        locked, age = world
        reward = jnp.where(action == locked, jnp.nan, (action > locked).astype(jnp.float32))
        return CopyStep((jax.random.randint(key, (), 0, 3), age + 1), reward, age >= 5, jnp.zeros((), bool))


@cache
def after(updates: int, env: Any = ENV, **changes: Any) -> Any:
    """Return the learner of one seed after this number of updates; its arrays must not be donated."""
    return moved(players((tiny(**changes), 0), env=env), updates).learners[0]


@cache
def replayed(updates: int, env: Any = ENV, **changes: Any) -> Any:
    """The same with off-policy PPG."""
    return moved(players((replaying(**changes), 0), env=env), updates).learners[0]
