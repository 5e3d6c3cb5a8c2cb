"""An environment of `W` copies of a finite problem.

Successors are sampled from one flat array of cumulative probabilities: row `r = state * A + action` has values in
`(r, r + 1]`; one binary search serves all copies, and only possible successors use memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import Observed, Outcome, check_action, positive
from tidelog.envs.saving import Saved, checked, generators_from_array, generators_to_array, started
from tidelog.envs.tabular import Floats, Tabular
from tidelog.errors import ConfigError, SpecError
from tidelog.types import Spec


@dataclass(frozen=True)
class _Rows:
    cumulative: Floats  # [possible successors], offset by the row's number
    successor: NDArray[np.int64]  # [possible successors]
    last: NDArray[np.int64]  # [rows]: index of each row's last entry

    @classmethod
    def of(cls, chances: Floats) -> _Rows:
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
        place = np.searchsorted(self.cumulative, rows + generator.random(len(rows)), side="right")
        return self.successor[np.minimum(place, self.last[rows])]


class TabularEnvironment:
    """`count` copies of a `Tabular`: entering a final state terminates, the horizon truncates.

    Raises SpecError for actions of a wrong shape, out of range, or forbidden in the copy's state.
    """

    def __init__(self, problem: Tabular, count: int) -> None:
        self.problem = problem
        self.name = problem.name
        self.spec: Spec = problem.spec
        self.count = positive("count", count)
        self._moves = _Rows.of(problem.transition.reshape(-1, problem.states))
        self._starts = _Rows.of(problem.initial[None])
        self._generator: np.random.Generator | None = None
        self._state = np.zeros(count, np.int64)
        self._age = np.zeros(count, np.int64)

    def reset(self, seed: int) -> Observed:
        """Restart every copy from the initial distribution."""
        self._generator = np.random.default_rng(seed)
        self._state = self._start(self.count, self._generator)
        self._age = np.zeros(self.count, np.int64)
        return self._observed(self._state)

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy, `[W]` whole numbers; EnvironmentFailure before the first reset."""
        generator = started(self._generator, self.name)
        checked_action = self._checked(action)
        following = self._moves.draw(self._state * self.problem.actions + checked_action, generator)
        earned = self._earned(checked_action, following)
        terminated = self.problem.final[following]
        self._age += 1
        truncated = ~terminated & (self._age == self.problem.horizon)
        shown = self._observed(following)
        self._restart(following, terminated | truncated, generator)
        return Outcome(earned, terminated, truncated, shown, self._observed(self._state))

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def save_state(self) -> Saved:
        """The states, ages and the random generator."""
        generator = started(self._generator, self.name)
        return {"state": self._state.copy(), "age": self._age.copy(), "generator": generators_to_array([generator])}

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> Observed:
        """Restore a state of `save_state`; ConfigError for the state of another problem or count."""
        arrays = checked(saved, {"state": self._state, "age": self._age, "generator": None}, self.name)
        if (arrays["state"] < 0).any() or (arrays["state"] >= self.problem.states).any():
            raise ConfigError(f"{self.name}: a saved state is out of range: expected 0 to {self.problem.states - 1}")
        (self._generator,) = generators_from_array(arrays["generator"], 1, self.name)
        self._state, self._age = arrays["state"].copy(), arrays["age"].copy()
        return self._observed(self._state)

    def _restart(self, following: NDArray[np.int64], ended: NDArray[np.bool_], generator: np.random.Generator) -> None:
        self._state = following.copy()
        self._state[ended] = self._start(int(ended.sum()), generator)
        self._age[ended] = 0

    def _earned(self, action: NDArray[Any], following: NDArray[np.int64]) -> NDArray[np.float32]:
        reward = self.problem.reward
        full = reward.ndim == 3
        earned = reward[self._state, action, following] if full else reward[self._state, action]
        return np.asarray(earned, np.float32)

    def _start(self, number: int, generator: np.random.Generator) -> NDArray[np.int64]:
        return self._starts.draw(np.zeros(number, np.int64), generator)

    def _observed(self, states: NDArray[np.int64]) -> Observed:
        allowed = self.problem.allowed
        return Observed(self.problem.features(states), None if allowed is None else allowed[states])

    def _checked(self, action: NDArray[Any]) -> NDArray[Any]:
        action = check_action(self.spec, action, self.count)
        if self.problem.allowed is not None:
            wrong = np.flatnonzero(~self.problem.allowed[self._state, action])
            if wrong.size:
                state, forbidden = self._state[wrong[0]], action[wrong[0]]
                where = f"{self.name}, state {state}"
                raise SpecError(f"{where}: action {forbidden} is forbidden. fix: use the action mask")
        return action
