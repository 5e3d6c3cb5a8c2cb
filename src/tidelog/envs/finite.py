"""A finite problem as a functional environment, with the transitions, rewards and starts of its arrays.

Letters in shapes: `S` states, `A` actions, `P` largest number of successors of a state and action.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog.envs.functional import CopyStep
from tidelog.envs.tabular import Floats, Tabular
from tidelog.types import Array, Observation, Spec


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
        self.successor, self.cumulative = packed(problem.transition.reshape(-1, problem.states))
        self.first, self.first_cumulative = packed(problem.initial[None])
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


def packed(chances: Floats) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Pack rows of probabilities `[rows, S]` into possible successors and cumulative probabilities, both `[rows, P]`.

    Rows with fewer successors repeat their last one with cumulative probability 1, which no draw reaches.
    """
    possible = chances > 0
    number = possible.sum(1)
    order = np.argsort(~possible, axis=1, kind="stable")[:, : int(number.max())]
    place = np.minimum(np.arange(order.shape[1]), number[:, None] - 1)
    successor = np.take_along_axis(order, place, axis=1)
    running = np.cumsum(np.take_along_axis(np.where(possible, chances, 0.0), order, axis=1), axis=1)
    return successor.astype(np.int32), (running / running[:, -1:]).astype(np.float32)


def _sample(key: Array, cumulative: Array) -> Any:
    return (jax.random.uniform(key) >= cumulative).sum()
