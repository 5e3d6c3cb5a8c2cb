"""Finite problems as arrays, with exact values by linear algebra; the same arrays also run as an environment.

Letters in shapes: `S` states, `A` actions, `H` horizon, `W` copies.
A policy is `[S, A]` probabilities, `[S]` whole numbers (deterministic), or, with a horizon, `[H, S, A]`.
Final states are absorbing and have value 0; the reward for entering them counts. With a horizon the problem stops
after `H` decisions: values sum the rewards of these decisions, and `play` reports the stop as a truncation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import Leaves
from tidelog.errors import ConfigError
from tidelog.types import Codes, Discrete, Leaf, Spec, Vector

Floats: TypeAlias = NDArray[np.float64]
_SWEEPS = 100_000


@dataclass(frozen=True)
class View:
    """The observation leaf of each state: `table` is `[S, ...]`."""

    leaf: Leaf
    table: NDArray[Any]


def codes_view(states: int) -> View:
    """Observe the number of the state, `[S, 1]` int32."""
    return View(Codes((states,), ("state",)), np.arange(states, dtype=np.int32)[:, None])


def features_view(features: NDArray[Any], names: tuple[str, ...] = ()) -> View:
    """Observe numeric features of the state, `[S, F]`."""
    return View(Vector(features.shape[1], names), features.astype(np.float32))


@dataclass(frozen=True)
class Tabular:
    """A finite Markov decision process; ConfigError if the arrays do not describe one."""

    transition: Floats  # [S, A, S]
    reward: Floats  # [S, A, S] or [S, A]
    initial: Floats  # [S]
    final: NDArray[np.bool_]  # [S]
    horizon: int | None = None
    allowed: NDArray[np.bool_] | None = None  # [S, A]; None: every action everywhere
    name: str = "tabular"
    action_names: tuple[str, ...] = ()
    views: Mapping[str, View] = field(default_factory=dict)  # empty: the state's number as leaf "observation"

    def __post_init__(self) -> None:
        _check(self)
        if not self.views:
            object.__setattr__(self, "views", {"observation": codes_view(self.states)})

    @property
    def states(self) -> int:
        """Number of states `S`, including final ones."""
        return len(self.transition)

    @property
    def actions(self) -> int:
        """Number of actions `A`."""
        return int(self.transition.shape[1])

    @property
    def spec(self) -> Spec:
        """The observations and actions of a policy."""
        leaves = {name: view.leaf for name, view in self.views.items()}
        return Spec(leaves, Discrete(self.actions, self.action_names), masked=self.allowed is not None)

    def observations(self) -> Leaves:
        """The observations of all states, leaves `[S, ...]`; rows of final states exist but are never used."""
        return self.features(np.arange(self.states))

    def features(self, states: NDArray[Any]) -> Leaves:
        """The observations of the given states: `[W]` to leaves `[W, ...]`."""
        return {name: view.table[states] for name, view in self.views.items()}

    @cached_property
    def expected_reward(self) -> Floats:
        """Mean reward of each action, `[S, A]`, zero in final states."""
        full = self.reward.ndim == 3
        mean = np.einsum("sat,sat->sa", self.transition, self.reward) if full else self.reward.astype(np.float64)
        return np.where(self.final[:, None], 0.0, mean)

    def value_of(self, policy: NDArray[Any], discount: float = 1.0) -> float:
        """Exact value of a policy from the initial distribution; ConfigError if it never ends at discount 1."""
        return float(self.initial @ self.state_values(policy, discount))

    def state_values(self, policy: NDArray[Any], discount: float = 1.0) -> Floats:
        """Exact value of each state, `[S]`; with a horizon, at the first decision."""
        chances = self._probabilities(policy)
        if self.horizon is not None:
            return _mean(chances[0], self.action_values(chances, discount)[0])
        return self._endless_values(chances, discount)

    def action_values(self, policy: NDArray[Any], discount: float = 1.0) -> Floats:
        """Exact value of each action followed by the policy: `[S, A]`, or `[H, S, A]` with a horizon."""
        chances = self._probabilities(policy)
        if self.horizon is None:
            return self._backup(self._endless_values(chances, discount), discount)
        values, layers = np.zeros(self.states), []
        for layer in chances[::-1]:
            layers.append(self._backup(values, discount))
            values = _mean(layer, layers[-1])
        return np.stack(layers[::-1])

    def optimal(self, discount: float = 1.0, allowed: NDArray[np.bool_] | None = None) -> tuple[float, Floats]:
        """Best value and a best policy, `[S, A]` or `[H, S, A]`, over the allowed actions.

        Uses value iteration until no state changes by 1e-12, or backward induction from the horizon.
        """
        choices = self._choices(allowed)
        values = np.zeros(self.states)
        if self.horizon is not None:
            layers = []
            for _ in range(self.horizon):
                layers.append(_restricted(self._backup(values, discount), choices))
                values = layers[-1].max(1)
            return float(self.initial @ values), np.stack([_greedy(layer) for layer in layers[::-1]])
        for _ in range(_SWEEPS):
            before, action_values = values, _restricted(self._backup(values, discount), choices)
            values = action_values.max(1)
            if np.abs(values - before).max() < 1e-12:
                return float(self.initial @ values), _greedy(action_values)
        raise ConfigError(f"{self.name}: no convergence after {_SWEEPS} sweeps. fix: use a discount below 1")

    def _backup(self, values: Floats, discount: float) -> Floats:
        values_by_action = self.expected_reward + discount * (self.transition @ values)
        return np.where(self.final[:, None], 0.0, values_by_action)

    def _endless_values(self, chances: Floats, discount: float) -> Floats:
        live = ~self.final
        moves = np.einsum("sa,sat->st", chances[live], self.transition[live])[:, live]
        earned = _mean(chances, self.expected_reward)[live]
        values = np.zeros(self.states)
        try:
            values[live] = np.linalg.solve(np.eye(int(live.sum())) - discount * moves, earned)
        except np.linalg.LinAlgError as error:
            raise ConfigError(f"{self.name}: this policy never ends. fix: use a horizon or discount below 1") from error
        return values

    def _choices(self, allowed: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        choices = np.ones((self.states, self.actions), bool) if self.allowed is None else self.allowed
        if allowed is not None:
            choices = choices & allowed
        empty = ~choices.any(1) & ~self.final
        if empty.any():
            raise ConfigError(f"{self.name}: no action is allowed in state {int(np.flatnonzero(empty)[0])}")
        return np.asarray(choices | self.final[:, None])

    def _probabilities(self, policy: NDArray[Any]) -> Floats:
        policy = np.asarray(policy)
        if policy.ndim == 1 and np.issubdtype(policy.dtype, np.integer) and policy.size == self.states:
            policy = np.eye(self.actions)[policy]
        layered = (self.horizon or 0, self.states, self.actions)
        if policy.shape not in {layered, layered[1:]}:
            raise ConfigError(f"{self.name}: the policy has shape {policy.shape}: expected [S, A] = {layered[1:]}")
        live = policy[..., ~self.final, :]
        if (live < 0).any() or not np.allclose(live.sum(-1), 1.0, rtol=0.0, atol=1e-5):
            raise ConfigError(f"{self.name}: the policy's probabilities are negative or do not sum to 1 in some state")
        if self.horizon is not None and policy.ndim == 2:
            policy = np.broadcast_to(policy, layered)
        return policy.astype(np.float64)


def _mean(chances: Floats, values: Floats) -> Floats:
    return np.asarray((chances * values).sum(-1))


def _restricted(values: Floats, choices: NDArray[np.bool_]) -> Floats:
    return np.where(choices, values, -np.inf)


def _greedy(values: Floats) -> Floats:
    return np.asarray(np.eye(values.shape[1])[values.argmax(1)])


def _check(problem: Tabular) -> None:
    shape = problem.transition.shape
    if len(shape) != 3 or shape[0] != shape[2]:
        raise ConfigError(f"{problem.name}: transition has shape {shape}: expected [S, A, S]")
    expected = {
        "reward": (problem.reward, (shape, shape[:2])),
        "initial": (problem.initial, (shape[:1],)),
        "final": (problem.final, (shape[:1],)),
        **({} if problem.allowed is None else {"allowed": (problem.allowed, (shape[:2],))}),
    }
    for what, (array, shapes) in expected.items():
        if array.shape not in shapes:
            raise ConfigError(
                f"{problem.name}: {what} has shape {array.shape}: expected {' or '.join(map(str, shapes))}"
            )
    for name, view in problem.views.items():
        if len(view.table) != shape[0]:
            raise ConfigError(f"{problem.name}: view {name} has {len(view.table)} rows: expected {shape[0]}")
    sums = problem.transition.sum(2)[~problem.final]
    if (problem.transition < 0).any() or not np.allclose(sums, 1.0, rtol=0.0, atol=1e-8):
        raise ConfigError(f"{problem.name}: a row of transition is negative or does not sum to 1")
    if (problem.initial < 0).any() or not np.isclose(problem.initial.sum(), 1.0, rtol=0.0, atol=1e-8):
        raise ConfigError(f"{problem.name}: initial is negative or does not sum to 1")
    if problem.initial[problem.final].any():
        raise ConfigError(f"{problem.name}: initial has mass on a final state: expected only live states")
    if problem.horizon is not None and problem.horizon < 1:
        raise ConfigError(f"{problem.name}: horizon = {problem.horizon}: expected at least 1")
