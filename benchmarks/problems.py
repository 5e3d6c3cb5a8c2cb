"""Who plays in a problem, the log that comes of it, and how a policy that is a table of probabilities is asked."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tidelog as tl
from tidelog.envs import Tabular, TabularEnvironment, play
from tidelog.policies.rollout import log_of

Floats = NDArray[np.float64]
Rows = Callable[[Any], Any]  # from an observation to the rows of a table


class Table:
    """A policy of a table: probabilities [S, A]; `rows` finds those of an observation, at first its leaf `context`."""

    def __init__(self, chances: Any, rows: Rows = lambda seen: np.asarray(seen["context"]).reshape(-1)) -> None:
        self.chances, self.rows = np.asarray(chances, np.float64), rows

    def probabilities(self, observation: Any, mask: Any = None) -> Floats:
        """[B, A]."""
        return self.chances[self.rows(observation)]


def drawn(generator: np.random.Generator, chances: Floats) -> NDArray[np.int64]:
    """One action a row, by chances [N, A]."""
    cumulative = chances.cumsum(axis=1)
    draw = generator.random((len(chances), 1)) * cumulative[:, -1:]
    return (cumulative > draw).argmax(axis=1)


def drawn_from(table: Floats, rows: Rows) -> Any:
    """A policy [S, A] as `play` asks it, with its propensities."""

    def act(observed: Any, generator: np.random.Generator) -> Any:
        state = rows(observed.observation)
        action = drawn(generator, table[state])
        return action.astype(np.int32), table[state, action]

    return act


def state_finder(problem: Tabular) -> Rows:
    """From observations to state numbers."""

    def joined(observation: Any) -> list[bytes]:
        leaves = [np.asarray(leaf, np.float32) for _, leaf in sorted(observation.items())]
        return [row.tobytes() for row in np.concatenate(leaves, axis=1)]

    index = {row: state for state, row in reversed(list(enumerate(joined(problem.observations()))))}
    return lambda observation: np.asarray([index[row] for row in joined(observation)])


def recorded(environment: Any, act: Any, episodes: int | None, seed: int, **how: Any) -> tl.Log:
    """Episodes of a player as a log."""
    return log_of(environment.spec, play(environment, act, episodes, seed, **how))


def table_log(problem: Tabular, table: Floats, episodes: int, seed: int, copies: int = 500) -> tl.Log:
    """Episodes of a policy [S, A] in a finite problem, with its propensities."""
    return recorded(TabularEnvironment(problem, copies), drawn_from(table, state_finder(problem)), episodes, seed)
