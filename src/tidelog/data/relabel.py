"""Goals in hindsight: a log in which each decision was made towards an observation that its episode reached later.

Andrychowicz et al. 2017, "Hindsight Experience Replay", arXiv:1707.01495. There each row has a goal of its own; here
an episode is cut into parts, each with one goal, which its last row reaches. The first part begins at the first row,
its end is drawn among all later rows, and the next part begins there: for each row the end of its part is then equally
likely among the rows from it on, as in the strategy "future", and n-step targets and windows stay possible. Ends that
are geometrically far (Eysenbach et al. 2022, "Contrastive Learning as Goal-Conditioned Reinforcement Learning",
arXiv:2206.07568) have no memory, so that the same holds for them.

Letters: `N` rows of the source, `R` rows of the result, `P` parts, `M` stored observations, `D` numbers of a goal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tidelog.data.log import Log
from tidelog.data.log_columns import PLAIN, ranges
from tidelog.data.raw import Values
from tidelog.errors import ConfigError, LogError, SpecError, nearest
from tidelog.types import Codes, Leaf, Vector, check_seed

STRATEGIES = ("future", "final", "geometric")
_PLACED = ("position", "next_position", "action_mask", "episode_ids", "reward", "reward_known")  # set anew, or not kept


def relabel(
    log: Log,
    goal: str | Sequence[str] | Mapping[str, Sequence[int]],
    strategy: str = "future",
    *,
    tolerance: float = 0.0,
    rewards: tuple[float, float] = (-1.0, 0.0),
    into: str = "goal",
    mean_steps: float = 50.0,
    copies: int = 1,
    seed: int = 0,
) -> Log:
    """Return a log whose decisions have a goal that they reached later, from which any algorithm learns to reach goals.

    `goal` says where one is: a leaf of the observation, one or several of its columns by name, or a leaf with the
    positions of its columns, as in {"observation": [0, 1]}. The new observation has a leaf `into` with the goal, which
    replaces one of that name and kind. A goal is a later observation of the episode: any ("future"), its last one
    ("final"), or one that is geometrically far, `mean_steps` in the mean ("geometric"). Within `tolerance` of it
    (Euclidean distance) it is reached, which terminates the episode; `rewards` are those of a decision that does not
    reach it and of one that does. `copies` draws new goals for all rows so many times. Rows without a known next
    observation are left out; those of one source episode form a cluster. Propensities, masks, times and further columns
    are kept. `tl.judge` refuses the log: its goals were chosen by what happened. ConfigError for settings out of range
    and unknown names, SpecError for a goal in pictures, LogError where no row is left.

    Example:
        >>> walks = np.array([0, 1, 2, 1, 2, 3])
        >>> log = tl.Log.from_arrays(
        ...     observation=walks[:-1], next_observation=walks[1:], action=[1, 1, 0, 1, 1], reward=None,
        ...     episode=[0] * 5, truncated=[0, 0, 0, 0, 1],
        ... )
        >>> hindsight = tl.relabel(log, goal="observation", strategy="final")
        >>> hindsight.transitions.observation["goal"][:, 0], hindsight.reward
        (array([3, 3, 3, 3, 3], dtype=int32), array([-1., -1., -1., -1.,  0.], dtype=float32))
    """
    _check(strategy, tolerance, rewards, mean_steps, copies)
    generator = np.random.default_rng(check_seed(seed))
    leaf, columns = _goal_columns(log, goal)
    kind = _goal_leaf(log, leaf, columns, into)
    achieved = np.asarray(log.observation[leaf])[:, columns]  # [M, D]
    begins, ends = (np.concatenate(edges) for edges in zip(
        *(_parts(log, strategy, mean_steps, generator) for _ in range(copies)), strict=True))  # fmt: skip
    rows, lengths = ranges(begins, ends), ends - begins  # [R], [P]
    aim = np.repeat(np.asarray(log.next_position)[ends - 1], lengths)  # [R]: the stored observation that is the goal
    away = achieved[np.asarray(log.next_position)[rows]].astype(np.float64) - achieved[aim]
    reached = np.sqrt(np.square(away).sum(axis=1)) <= tolerance
    episode = (np.cumsum(reached) - reached).astype(np.int32)  # an end of a part reaches its goal, others may do so too
    first = np.flatnonzero(np.append(True, reached[:-1]))
    stored = ranges(np.asarray(log.position)[rows[first]], np.asarray(log.next_position)[rows[reached]] + 1)
    position = (np.arange(len(rows)) + episode).astype(np.int32)
    goals = np.repeat(achieved[aim[first]], np.diff(np.append(first, len(rows))) + 1, axis=0)
    by_row: dict[str, Any] = {name: np.asarray(getattr(log, name))[rows] for name in PLAIN if name not in _PLACED
              and getattr(log, name) is not None}  # fmt: skip
    by_row |= {
        "cluster": np.unique(log.clusters[by_row["episode"]], return_inverse=True)[1].astype(np.int32),
        "episode": episode,
        "step": (np.arange(len(rows)) - first[episode]).astype(np.int32),
        "terminated": reached,
        "truncated": np.zeros(len(rows), bool),
        "reward": np.where(reached, rewards[1], rewards[0]).astype(np.float32),
    }
    return replace(
        log,
        spec=replace(log.spec, observation={**log.spec.observation, into: kind}, rewards=None),
        observation={name: np.asarray(values)[stored] for name, values in log.observation.items()} | {into: goals},
        position=position,
        next_position=position + np.int32(1),
        action_mask=None if log.action_mask is None else np.asarray(log.action_mask)[stored],
        extra={name: values[rows] for name, values in log.extra.items()},
        episode_ids=np.arange(len(first)),
        reward_unit=None,
        reward_known=None,
        missing_reward=None,
        origin=None,
        hindsight=strategy,
        **by_row,
    )


def _check(strategy: Any, tolerance: Any, rewards: Any, mean_steps: Any, copies: Any) -> None:
    """Raise ConfigError for settings out of range."""
    if strategy not in STRATEGIES:
        raise ConfigError(f"strategy = {strategy!r}: {nearest(str(strategy), STRATEGIES)}")
    for name, value, least in (("tolerance", tolerance, 0.0), ("mean_steps", mean_steps, 1.0)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < np.inf:
            raise ConfigError(f"{name} = {value!r}", f"a finite number of at least {least:g}")
    if isinstance(copies, bool) or not isinstance(copies, int | np.integer) or copies < 1:
        raise ConfigError(f"copies = {copies!r}", "a whole number of at least 1", "use copies=4")
    if np.shape(rewards) != (2,) or not np.isfinite(rewards).all() or not rewards[0] < rewards[1]:
        raise ConfigError(f"rewards = {rewards!r}", "two finite numbers, the second larger", "use rewards=(-1.0, 0.0)")


def _goal_columns(log: Log, goal: Any) -> tuple[str, list[int]]:
    """The leaf that says where one is, and the positions of its columns; ConfigError for unknown names."""
    leaves: Mapping[str, Leaf] = log.spec.observation
    named: dict[str, tuple[str, int]] = {}
    for name, leaf in leaves.items():
        if isinstance(leaf, Vector | Codes):
            named |= {column: (name, position) for position, column in enumerate(leaf.names)}
    if isinstance(goal, str) and goal in leaves:
        kind = leaves[goal]
        if not isinstance(kind, Vector | Codes):
            raise SpecError(f"goal = {goal!r}, a leaf of pictures", "numbers or codes", "name another leaf")
        return goal, list(range(_width(kind)))
    if isinstance(goal, Mapping):
        ((leaf_name, positions),) = goal.items() if len(goal) == 1 else (("", ()),)
        width = sum(_width(leaf) for name, leaf in leaves.items() if name == leaf_name)
        if not len(positions) or not all(isinstance(one, int | np.integer) and 0 <= one < width for one in positions):
            raise ConfigError(f"goal = {goal!r}", "one leaf and positions of its columns, from 0", _fix(leaves, named))
        return leaf_name, list(positions)
    wanted = [goal] if isinstance(goal, str) else list(goal)
    unknown = [one for one in wanted if one not in named]
    if unknown or len({named[one][0] for one in wanted}) != 1:
        found = f"goal = {goal!r}: {nearest(str(unknown[0]), [*leaves, *named])}" if unknown else f"goal = {goal!r}"
        raise ConfigError(found, "a leaf of the observation, or columns of one leaf", _fix(leaves, named))
    return named[wanted[0]][0], [named[one][1] for one in wanted]


def _width(leaf: Leaf) -> int:
    """The number of columns of a leaf; 0 of pictures."""
    return leaf.size if isinstance(leaf, Vector) else len(leaf.sizes) if isinstance(leaf, Codes) else 0


def _fix(leaves: Mapping[str, Leaf], named: Mapping[str, Any]) -> str:
    return f"use one of {', '.join([*leaves, *named][:10])}"


def _goal_leaf(log: Log, leaf: str, columns: list[int], into: str) -> Leaf:
    """The kind of the goal's leaf; ConfigError if the log has another one of that name."""
    if into == leaf:
        found = f"into = {into!r}, the leaf that says where one is"
        raise ConfigError(found, "another leaf", "pass another name, as into='aim'")
    of: Any = log.spec.observation[leaf]

    def some(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[position] for position in columns) if values else ()

    if isinstance(of, Vector):
        names = some(of.names)
        kind: Leaf = Vector(len(columns), tuple(f"{into} {name}" for name in names))
    else:
        names = tuple(f"{into} {name}" for name in some(of.names))
        kind = Codes(some(of.sizes), names, some(of.vocabularies), some(of.rare_labels))
    other = log.spec.observation.get(into)
    if other is not None and (type(other), _width(other)) != (type(kind), len(columns)):
        raise ConfigError(f"into = {into!r}, a leaf of another kind", fix="pass another name, as into='aim'")
    return kind


def _parts(log: Log, strategy: str, mean_steps: float, generator: np.random.Generator) -> tuple[Values, Values]:
    """First row and row after the last of each part, in order; a part has rows with known next observations only."""
    known = np.asarray(log.next_position) != np.asarray(log.position)
    begin = np.asarray(log.starts[:-1], np.int64)
    end = np.asarray(log.starts[1:], np.int64) - ~known[np.asarray(log.starts[1:]) - 1]
    begins, ends = [begin[:0]], [begin[:0]]
    while (going := begin < end).any():
        begin, end = begin[going], end[going]
        if strategy == "final":
            until = end
        elif strategy == "future":
            until = generator.integers(begin + 1, end + 1)
        else:
            until = np.minimum(begin + generator.geometric(1.0 / mean_steps, len(begin)), end)
        begins, ends, begin = [*begins, begin], [*ends, until], until
    first, after = np.concatenate(begins), np.concatenate(ends)
    if not len(first):
        raise LogError("no row has a known next observation", "one that shows what was reached", "add next_observation")
    order = np.argsort(first)
    return first[order], after[order]
