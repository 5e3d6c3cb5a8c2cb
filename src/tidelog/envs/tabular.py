"""Finite problems as arrays: exact values by linear algebra, and an environment of `W` copies.

Letters in shapes: `S` states, `A` actions, `H` horizon, `W` copies.
A policy is `[S, A]` probabilities, `[S]` whole numbers (deterministic), or, with a horizon, `[H, S, A]`.
Final states are absorbing and have value 0; the reward for entering them counts. With a horizon the problem stops
after `H` decisions: values sum the rewards of these decisions, and `play` reports the stop as a truncation.

The environment samples successors from one flat array of cumulative probabilities: row `r = state * A + action` has
values in `(r, r + 1]`; one binary search serves all copies, and only possible successors use memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import (
    BatchObservation,
    Leaves,
    Outcome,
    Saved,
    check_action,
    check_saved,
    generators_from_array,
    generators_to_array,
    positive,
    require_reset,
)
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.types import Codes, Continuous, Discrete, Leaf, Spec, Vector, check_seed

Floats: TypeAlias = NDArray[np.float64]
_SWEEPS = 100_000


@dataclass(frozen=True)
class View:
    """The observation leaf of each state: `table` is `[S, ...]`."""

    leaf: Leaf
    table: NDArray[Any]


@dataclass(frozen=True)
class Tabular:
    """A finite Markov decision process; ConfigError if the arrays do not describe one.

    Example:
        >>> from tidelog.envs import Tabular
        >>> transition = np.zeros((2, 2, 2))  # [S, A, S]: action 0 stays, action 1 ends the episode in state 1
        >>> transition[0, 0, 0] = transition[0, 1, 1] = transition[1, :, 1] = 1.0
        >>> reward, initial = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([1.0, 0.0])
        >>> problem = Tabular(transition, reward, initial, final=np.array([False, True]), horizon=5)
        >>> tl.collect(problem, episodes=3, seed=0)
        Log(5 steps, 3 episodes, observation {observation: Codes}, action Discrete)
    """

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
            number = View(Codes((self.states,), ("state",)), np.arange(self.states, dtype=np.int32)[:, None])
            object.__setattr__(self, "views", {"observation": number})

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

    def value_of(self, policy: Any, discount: float = 1.0) -> float:
        """Exact value of a policy from the initial distribution; ConfigError if it never ends at discount 1.

        The policy is probabilities [S, A] or [H, S, A], or an action for each state [S], by number or by label.
        """
        return float(self.initial @ self.state_values(policy, discount))

    def state_values(self, policy: Any, discount: float = 1.0) -> Floats:
        """Exact value of each state, `[S]`; with a horizon, at the first decision."""
        chances = self._probabilities(policy)
        if self.horizon is not None:
            return _mean(chances[0], self.action_values(chances, discount)[0])
        return self._endless_values(chances, discount)

    def action_values(self, policy: Any, discount: float = 1.0) -> Floats:
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
        raise ConfigError(f"{self.name}: no convergence after {_SWEEPS} sweeps", fix="use a discount below 1")

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
            raise ConfigError(
                f"{self.name}: this policy never ends", fix="use a horizon or discount below 1"
            ) from error
        return values

    def _choices(self, allowed: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        choices = np.ones((self.states, self.actions), bool) if self.allowed is None else self.allowed
        if allowed is not None:
            choices = choices & allowed
        empty = ~choices.any(1) & ~self.final
        if empty.any():
            raise ConfigError(f"{self.name}: no action is allowed in state {int(np.flatnonzero(empty)[0])}")
        return np.asarray(choices | self.final[:, None])

    def _probabilities(self, policy: Any) -> Floats:
        policy = np.asarray(policy)
        if policy.dtype.kind in "UT":  # by label, whatever their order was in the policy's log
            unknown = sorted(set(policy.tolist()) - set(self.action_names))
            if unknown:
                raise ConfigError(f"{self.name} has no action '{unknown[0]}': {nearest(unknown[0], self.action_names)}")
            policy = np.asarray([self.action_names.index(label) for label in policy.tolist()])
        if policy.ndim == 1 and np.issubdtype(policy.dtype, np.integer) and policy.size == self.states:
            policy = np.eye(self.actions)[policy]
        layered = (self.horizon or 0, self.states, self.actions)
        if policy.shape not in {layered, layered[1:]}:
            raise ConfigError(f"{self.name}: the policy has shape {policy.shape}", f"[S, A] = {layered[1:]}")
        live = policy[..., ~self.final, :]
        if (live < 0).any() or not np.allclose(live.sum(-1), 1.0, rtol=0.0, atol=1e-5):
            raise ConfigError(f"{self.name}: the policy's probabilities are negative or do not sum to 1 in some state")
        if self.horizon is not None and policy.ndim == 2:
            policy = np.broadcast_to(policy, layered)
        return np.asarray(policy, np.float64)


def _mean(chances: Floats, values: Floats) -> Floats:
    return np.asarray((chances * values).sum(-1))


def _restricted(values: Floats, choices: NDArray[np.bool_]) -> Floats:
    return np.where(choices, values, -np.inf)


def _greedy(values: Floats) -> Floats:
    return np.asarray(np.eye(values.shape[1])[values.argmax(1)])


def _check(problem: Tabular) -> None:
    shape = problem.transition.shape
    if len(shape) != 3 or shape[0] != shape[2]:
        raise ConfigError(f"{problem.name}: transition has shape {shape}", "[S, A, S]")
    expected = {
        "reward": (problem.reward, (shape, shape[:2])),
        "initial": (problem.initial, (shape[:1],)),
        "final": (problem.final, (shape[:1],)),
        **({} if problem.allowed is None else {"allowed": (problem.allowed, (shape[:2],))}),
    }
    for what, (array, shapes) in expected.items():
        if array.shape not in shapes:
            raise ConfigError(f"{problem.name}: {what} has shape {array.shape}", " or ".join(map(str, shapes)))
    for name, view in problem.views.items():
        if len(view.table) != shape[0]:
            raise ConfigError(f"{problem.name}: view {name} has {len(view.table)} rows", shape[0])
    sums = problem.transition.sum(2)[~problem.final]
    if (problem.transition < 0).any() or not np.allclose(sums, 1.0, rtol=0.0, atol=1e-8):
        raise ConfigError(f"{problem.name}: a row of transition is negative or does not sum to 1")
    if (problem.initial < 0).any() or not np.isclose(problem.initial.sum(), 1.0, rtol=0.0, atol=1e-8):
        raise ConfigError(f"{problem.name}: initial is negative or does not sum to 1")
    if problem.initial[problem.final].any():
        raise ConfigError(f"{problem.name}: initial has mass on a final state", "only live states")
    if problem.horizon is not None and problem.horizon < 1:
        raise ConfigError(f"{problem.name}: horizon = {problem.horizon}", "at least 1")


def pack_probabilities(chances: Floats) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Pack rows of probabilities `[rows, S]` into possible successors and cumulative probabilities, both `[rows, P]`.

    Rows with fewer successors repeat their last one with cumulative probability 1, which no draw reaches.
    """
    possible = chances > 0
    number = possible.sum(1)
    order = np.argsort(~possible, axis=1, kind="stable")[:, : int(number.max())]
    position = np.minimum(np.arange(order.shape[1]), number[:, None] - 1)
    successor = np.take_along_axis(order, position, axis=1)
    running = np.cumsum(np.take_along_axis(np.where(possible, chances, 0.0), order, axis=1), axis=1)
    return successor.astype(np.int32), (running / running[:, -1:]).astype(np.float32)


@dataclass(frozen=True)
class _SparseRows:
    cumulative: Floats  # [possible successors], offset by the row's number
    successor: NDArray[np.int64]  # [possible successors]
    last: NDArray[np.int64]  # [rows]: index of each row's last entry

    @classmethod
    def of(cls, chances: Floats) -> _SparseRows:
        """Pack rows of probabilities `[rows, S]`; every row must have a positive entry."""
        row, successor = np.nonzero(chances)
        last = np.cumsum(np.bincount(row, minlength=len(chances))) - 1
        running = np.cumsum(chances[row, successor])
        before = np.concatenate([[0.0], running[last[:-1]]])
        share = (running - before[row]) / (running[last] - before)[row]
        share[last] = 1.0
        return cls(row + share, successor, last)

    def draw(self, rows: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
        """Sample one successor for each of the rows, `[W]`."""
        position = np.searchsorted(self.cumulative, rows + generator.random(len(rows)), side="right")
        return self.successor[np.minimum(position, self.last[rows])]


class TabularEnvironment:
    """`count` copies of a `Tabular`: entering a final state terminates, the horizon truncates.

    Raises SpecError for actions of a wrong shape, out of range, or forbidden in the copy's state.
    """

    def __init__(self, problem: Tabular, count: int) -> None:
        self.problem = problem
        self.name = problem.name
        self.spec: Spec = problem.spec
        self.count = positive("count", count)
        self._moves = _SparseRows.of(problem.transition.reshape(-1, problem.states))
        self._starts = _SparseRows.of(problem.initial[None])
        self._generator: np.random.Generator | None = None
        self._state = np.zeros(count, np.int64)
        self._age = np.zeros(count, np.int64)

    def reset(self, seed: int) -> BatchObservation:
        """Restart every copy from the initial distribution."""
        self._generator = np.random.default_rng(check_seed(seed))
        self._state = self._start(self.count, self._generator)
        self._age = np.zeros(self.count, np.int64)
        return self._observed(self._state)

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy, `[W]` whole numbers; EnvironmentFailure before the first reset."""
        generator = require_reset(self._generator, self.name)
        action, problem = check_action(self.spec, action, self.count), self.problem
        if problem.allowed is not None:
            wrong = np.flatnonzero(~problem.allowed[self._state, action])
            if wrong.size:
                where = f"{self.name}, state {self._state[wrong[0]]}"
                raise SpecError(f"{where}: action {action[wrong[0]]} is forbidden", fix="use the action mask")
        following = self._moves.draw(self._state * problem.actions + action, generator)
        entered = (following,) if problem.reward.ndim == 3 else ()
        reward = np.asarray(problem.reward[(self._state, action, *entered)], np.float32)
        terminated = problem.final[following]
        self._age += 1
        truncated = ~terminated & (self._age == problem.horizon)
        shown = self._observed(following)
        ended = terminated | truncated
        self._state = following.copy()
        self._state[ended] = self._start(int(ended.sum()), generator)
        self._age[ended] = 0
        return Outcome(reward, terminated, truncated, shown, self._observed(self._state))

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def save_state(self) -> Saved:
        """The states, ages and the random generator."""
        generator = require_reset(self._generator, self.name)
        return {"state": self._state.copy(), "age": self._age.copy(), "generator": generators_to_array([generator])}

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> BatchObservation:
        """Restore a state of `save_state`; ConfigError for the state of another problem or count."""
        arrays = check_saved(saved, {"state": self._state, "age": self._age, "generator": None}, self.name)
        if (arrays["state"] < 0).any() or (arrays["state"] >= self.problem.states).any():
            raise ConfigError(f"{self.name}: a saved state is out of range", f"0 to {self.problem.states - 1}")
        (self._generator,) = generators_from_array(arrays["generator"], 1, self.name)
        self._state, self._age = arrays["state"].copy(), arrays["age"].copy()
        return self._observed(self._state)

    def _start(self, number: int, generator: np.random.Generator) -> NDArray[np.int64]:
        return self._starts.draw(np.zeros(number, np.int64), generator)

    def _observed(self, states: NDArray[np.int64]) -> BatchObservation:
        allowed = self.problem.allowed
        return BatchObservation(self.problem.features(states), None if allowed is None else allowed[states])


# A small continuous problem with a known optimum.


class PointMass:
    """Move a point in `size` dimensions to the origin and keep it there, for 20 steps.

    The start is uniform within [-1, 1]; `position += 0.2 * action`, action in [-1, 1]; the reward is minus the squared
    distance after the step. The twentieth step truncates. The leaf "observation" is the position, `[W, size]`.
    Dimensions are independent and waiting never helps; therefore `best` is optimal at every discount.
    """

    REACH = 0.2
    HORIZON = 20

    def __init__(self, count: int, size: int = 1) -> None:
        self.name = "point-mass"
        self.count = positive("count", count)
        self.size = positive("size", size)
        self.spec = Spec({"observation": Vector(size)}, Continuous((-1.0,) * size, (1.0,) * size))
        self._generator: np.random.Generator | None = None
        self._position = np.zeros((count, size))
        self._age = 0

    def reset(self, seed: int) -> BatchObservation:
        """Start every copy at a random position."""
        self._generator = np.random.default_rng(check_seed(seed))
        return self._begin(self._generator)

    def step(self, action: NDArray[Any]) -> Outcome:
        """Move every copy, `[W, size]`; actions are clipped to the bounds; EnvironmentFailure before a reset."""
        generator = require_reset(self._generator, self.name)
        self._position = self._position + self.REACH * np.clip(check_action(self.spec, action, self.count), -1, 1)
        self._age += 1
        reward = -np.square(self._position).sum(1).astype(np.float32)
        following = self._observed()
        truncated = np.full(self.count, self._age == self.HORIZON)
        current = self._begin(generator) if truncated[0] else following
        return Outcome(reward, np.zeros(self.count, bool), truncated, following, current)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def save_state(self) -> Saved:
        """The positions, the age and the random generator."""
        generator = require_reset(self._generator, self.name)
        age, numbers = np.asarray(self._age), generators_to_array([generator])
        return {"position": self._position.copy(), "age": age, "generator": numbers}

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> BatchObservation:
        """Restore a state of `save_state`; ConfigError for the state of another problem or count."""
        expected = {"position": self._position, "age": np.asarray(self._age), "generator": None}
        arrays = check_saved(saved, expected, self.name)
        (self._generator,) = generators_from_array(arrays["generator"], 1, self.name)
        self._position, self._age = arrays["position"].copy(), int(arrays["age"])
        return self._observed()

    @classmethod
    def best(cls, position: NDArray[Any]) -> NDArray[np.float32]:
        """The optimal action, straight to the origin: `[..., size]` to `[..., size]`."""
        return np.clip(-position / cls.REACH, -1.0, 1.0).astype(np.float32)

    @classmethod
    def best_return(cls, position: NDArray[Any]) -> NDArray[np.float64]:
        """The optimal undiscounted return from the given starts, `[..., size]` to `[...]`."""
        steps = np.arange(1, cls.HORIZON + 1)
        left = np.maximum(np.abs(position)[..., None] - cls.REACH * steps, 0.0)
        return np.asarray(-np.square(left).sum((-1, -2)))

    def _begin(self, generator: np.random.Generator) -> BatchObservation:
        self._position = generator.uniform(-1.0, 1.0, (self.count, self.size))
        self._age = 0
        return self._observed()

    def _observed(self) -> BatchObservation:
        return BatchObservation({"observation": self._position.astype(np.float32)})
