"""Play episodes with all copies at once, without a bias towards short episodes.

Episode `k` is assigned to copy `k % W` in advance; results are in that order, and exactly the first episodes in that
order are returned. (Returning the episodes that end first would prefer short ones.)

Letters in shapes: `N` decisions, `W` copies, `A` action size or number of actions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import BatchObservation, Environment, Leaves, Outcome
from tidelog.errors import ConfigError

Actor: TypeAlias = Callable[[BatchObservation, np.random.Generator], tuple[NDArray[Any], NDArray[Any] | None]]
Progress: TypeAlias = Callable[[int, int], None]
_Row: TypeAlias = dict[str, Any]
ENDLESS = 30_000  # decisions of an episode; the longest usual ones, of Atari, have 27,000


@dataclass(frozen=True)
class Episodes:
    """Complete episodes, one after another; with `keep=False` only `returns` and `lengths` have values."""

    returns: NDArray[np.float64]  # [episodes]: undiscounted
    lengths: NDArray[np.int64]  # [episodes]: decisions
    observation: Leaves  # [N, ...]
    next_observation: Leaves  # [N, ...]: the next observations before any reset
    action: NDArray[Any]  # [N], [N, M] or [N, A]
    reward: NDArray[np.float32]  # [N]
    terminated: NDArray[np.bool_]  # [N]
    truncated: NDArray[np.bool_]  # [N]
    episode: NDArray[np.int64]  # [N]
    propensity: NDArray[np.float64] | None = None  # [N]: as returned by the actor
    action_mask: NDArray[np.bool_] | None = None  # [N, A]
    next_action_mask: NDArray[np.bool_] | None = None  # [N, A]

    def columns(self) -> dict[str, Any]:
        """The arguments of `Log.from_arrays`."""
        return {name: value for name, value in vars(self).items() if name not in ("returns", "lengths")}


def play(
    environment: Environment,
    act: Actor,
    episodes: int | None = None,
    seed: int = 0,
    *,
    steps: int | None = None,
    keep: bool = True,
    progress: Progress | None = None,
) -> Episodes:
    """Play complete episodes: a number of them, or the fewest with at least `steps` decisions in total.

    `act(observed, generator)` returns the actions of all copies and their propensities `[W]` or None.
    `progress(done, wanted)` counts episodes, or decisions if `steps` is set. ConfigError unless exactly one of
    `episodes` and `steps` is set; errors of the environment are not caught.

    Example:
        >>> from tidelog.envs import make, play
        >>> def never(observed, generator):
        ...     return np.zeros(8, np.int32), None
        >>> play(make("treatment", 8), never, episodes=20, seed=0).returns.shape
        (20,)
    """
    if (episodes is None) == (steps is None):
        raise ConfigError(f"play: episodes = {episodes}, steps = {steps}: expected exactly one. fix: set only one")
    target = episodes if steps is None else steps
    if target is None or target < 1:
        raise ConfigError(f"play: episodes = {episodes}, steps = {steps}: expected at least 1")
    generator = np.random.default_rng([seed, 1])
    tally = _Tally(environment.count)
    rows: list[_Row] = []
    long = False  # whether an episode was said to be endless
    observed = environment.reset(seed).copied()._replace(first=np.ones(environment.count, bool))
    while True:
        active = np.ones(environment.count, bool) if episodes is None else tally.episode < episodes
        action, propensity = act(observed, generator)
        outcome = environment.step(action)
        if outcome.valid is not None:
            active &= outcome.valid
        if keep:
            rows.append(_rows(active, tally.episode, observed, action, propensity, outcome))
        tally.add(outcome, active)
        long = long or _warn_of_endless(tally, active)
        ended = outcome.terminated | outcome.truncated
        first = ended if outcome.valid is None else ended | ~outcome.valid
        observed = outcome.current_observation.copied()._replace(first=first)
        done, count = tally.progress(steps)
        if progress is not None:
            progress(min(done, target), target)
        if done >= target:
            return _gather(tally, count if episodes is None else episodes, rows)


def _warn_of_endless(tally: _Tally, active: NDArray[np.bool_]) -> bool:
    """Warn where an episode has had `ENDLESS` decisions; return whether one has."""
    lengths = tally.lengths[tally.episode[active]]
    if not len(lengths) or lengths.max() < ENDLESS:
        return False
    warnings.warn(
        f"an episode goes on after {ENDLESS:,} decisions, and may never end under this policy. fix: give the "
        "environment a limit, such as gymnasium.make(..., max_episode_steps=1_000)",
        UserWarning,
        stacklevel=2,
    )
    return True


class _Tally:
    """Returns and lengths by episode, in the order of assignment."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.episode = np.arange(count)  # [W]: the current episode of each copy
        self.returns = np.zeros(count)
        self.lengths = np.zeros(count, np.int64)
        self.ended = np.zeros(count, bool)
        self._complete = 0  # number of first episodes that have all ended
        self._decisions = 0  # number of their decisions

    def add(self, outcome: Outcome, active: NDArray[np.bool_]) -> None:
        """Add one decision of each active copy."""
        playing = self.episode[active]
        self.returns[playing] += outcome.reward[active]
        self.lengths[playing] += 1
        ended = active & (outcome.terminated | outcome.truncated)
        self.ended[self.episode[ended]] = True
        self.episode[ended] += self.count
        if self.episode.max() >= len(self.ended):
            self.returns, self.lengths, self.ended = (
                np.concatenate([old, np.zeros_like(old)]) for old in (self.returns, self.lengths, self.ended)
            )

    def progress(self, steps: int | None) -> tuple[int, int]:
        """Episodes or decisions in the unbroken run of ended episodes, and the fewest episodes that hold `steps`."""
        while self._complete < len(self.ended) and self.ended[self._complete]:
            if steps is not None and self._decisions >= steps:
                break
            self._decisions += int(self.lengths[self._complete])
            self._complete += 1
        return (self._complete if steps is None else self._decisions), self._complete


def _rows(
    active: NDArray[np.bool_],
    episode: NDArray[np.int64],
    observed: BatchObservation,
    action: NDArray[Any],
    propensity: NDArray[Any] | None,
    outcome: Outcome,
) -> _Row:
    row = {
        "observation": observed.observation,
        "next_observation": outcome.next_observation.observation,
        "action": np.asarray(action),
        "reward": outcome.reward,
        "terminated": outcome.terminated,
        "truncated": outcome.truncated,
        "episode": episode,
        "propensity": None if propensity is None else np.asarray(propensity, np.float64),
        "action_mask": observed.action_mask,
        "next_action_mask": outcome.next_observation.action_mask,
    }
    return {name: _select(value, active) for name, value in row.items()}


def _select(value: Any, rows: NDArray[Any]) -> Any:
    if value is None:
        return None
    return {name: leaf[rows] for name, leaf in value.items()} if isinstance(value, dict) else value[rows]


def _joined(values: list[Any]) -> Any:
    if values[0] is None:
        return None
    if isinstance(values[0], dict):
        return {name: np.concatenate([value[name] for value in values]) for name in values[0]}
    return np.concatenate(values)


def _gather(tally: _Tally, episodes: int, rows: list[_Row]) -> Episodes:
    returns, lengths = tally.returns[:episodes], tally.lengths[:episodes]
    if not rows:
        none, flags = np.zeros(0, np.int64), np.zeros(0, bool)
        return Episodes(returns, lengths, {}, {}, none, np.zeros(0, np.float32), flags, flags, none)
    columns = {name: _joined([row[name] for row in rows]) for name in rows[0]}
    order = np.argsort(columns["episode"], kind="stable")
    order = order[columns["episode"][order] < episodes]
    return Episodes(returns, lengths, **{name: _select(value, order) for name, value in columns.items()})
