"""The protocol of environments: `W` copies stepped together, with the observations before each reset; and its checks.

Copies that end are reset within the same step. `Outcome.next_observation` is the true next observation, which allows
bootstrapping at a truncation; `Outcome.current_observation` is the input of the next action. They differ only in ended
copies.

Some sources reset a copy only in the step after its end and ignore the action of that step. If an adapter cannot
undo this, `Outcome.valid` is False in such rows: they are not decisions, enter no log and no loss, and do not count.
Until then `current_observation` repeats the last observation of the ended episode, with every action allowed.

Where decisions are unevenly spaced (`Spec.elapsed_unit`), `Outcome.elapsed` is the time from each decision to the
observation that follows it, and discounts are per unit of it.

An environment that can resume exactly has two more methods: `save_state`, and `restore_state`, which loads the saved
arrays into a new object of the same problem and count. Both objects then have the same future.

Letters in shapes: `W` copies, `A` action size or number of actions.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, EnvironmentFailure, SpecError
from tidelog.types import LARGEST, Codes, Continuous, Discrete, Hybrid, Leaf, Spec, Vector, check_seed, is_masked

Leaves: TypeAlias = dict[str, NDArray[Any]]
Saved: TypeAlias = dict[str, NDArray[Any]]  # a saved state
T = TypeVar("T")
Expected: TypeAlias = dict[str, NDArray[Any] | None]  # arrays of the shapes and types of a saved state; None: any bytes


class BatchObservation(NamedTuple):
    """The observations of all copies: leaves `[W, ...]` (Vector float32, Codes int32) and the allowed actions."""

    observation: Leaves
    action_mask: NDArray[np.bool_] | None = None  # [W, A]; None: every action is allowed
    first: NDArray[np.bool_] | None = None  # [W]: copies at the start of an episode; `play` sets it for its actor

    def copied(self) -> BatchObservation:
        """Return it in arrays of its own; an environment may write into its arrays again in the next call."""
        leaves = {name: np.array(leaf) for name, leaf in self.observation.items()}
        return self._replace(
            observation=leaves, action_mask=None if self.action_mask is None else np.array(self.action_mask)
        )


class Outcome(NamedTuple):
    """The result of one step of all copies; both `terminated` and `truncated` may be set, e.g. at a time limit."""

    reward: NDArray[np.float32]  # [W]
    terminated: NDArray[np.bool_]  # [W]
    truncated: NDArray[np.bool_]  # [W]
    next_observation: BatchObservation  # before any reset
    current_observation: BatchObservation  # after the reset of copies that ended
    valid: NDArray[np.bool_] | None = None  # [W]; False: the copy was only restarted; None: every row is a decision
    elapsed: NDArray[np.float32] | None = None  # [W]: time to the next observation; None: one unit each


@runtime_checkable
class Environment(Protocol):
    """`count` copies of one problem, stepped together."""

    @property
    def name(self) -> str:
        """The name of the environment."""

    @property
    def spec(self) -> Spec:
        """The observations and actions."""

    @property
    def count(self) -> int:
        """Number of copies `W` that are stepped together."""

    def reset(self, seed: int) -> BatchObservation:
        """Restart every copy; the same seed gives the same future."""

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy: action `[W]`, `[W, M]`, `[W, A]` or rows of parts; EnvironmentFailure or SpecError."""

    def close(self) -> None:
        """Release the resources of all copies."""


@runtime_checkable
class Resumable(Protocol):
    """The additional interface of environments that can resume exactly in the middle of episodes."""

    def save_state(self) -> dict[str, NDArray[Any]]:
        """The complete state, as plain arrays; EnvironmentFailure before the first reset."""

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> BatchObservation:
        """Restore a saved state and return the observations; ConfigError for the arrays of another problem."""


def check_action(spec: Spec, action: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the action as int32 or float32; SpecError if its shape, range or finiteness is wrong.

    Of an action with parts, a mapping is returned as its rows.
    """
    space = spec.action
    action = np.asarray(space.pack(action) if isinstance(space, Hybrid) and isinstance(action, Mapping) else action)
    shape: tuple[int, ...] = (count,)
    kind = "a discrete action"
    sizes: tuple[int, ...] = ()
    if isinstance(space, Continuous | Hybrid):
        shape = (count, space.size)
    elif isinstance(space, Discrete):
        sizes = (space.n,)
    else:
        shape, kind, sizes = (count, len(space.sizes)), "a multi-discrete action", space.sizes
    if action.shape != shape:
        raise SpecError(f"the action has shape {action.shape}", f"{shape}")
    if isinstance(space, Continuous | Hybrid):
        if not np.isfinite(action).all():
            raise SpecError(f"the action holds {action[~np.isfinite(action)][0]}", "finite numbers")
        parts = zip(space.labels, space.codes, action.T, strict=True) if isinstance(space, Hybrid) else ()
        for label, most, codes in parts:
            if most and ((codes < 0) | (codes >= most) | (codes % 1 != 0)).any():
                found = f"values from {codes.min():g} to {codes.max():g}"
                raise SpecError(f"the part '{label}' of the action has {found}", f"whole numbers from 0 to {most - 1}")
        return action.astype(np.float32)
    if not np.issubdtype(action.dtype, np.integer):
        raise SpecError(f"{kind} has type {action.dtype}", "whole numbers")
    columns = action.reshape(count, len(sizes))
    if (columns < 0).any() or (columns >= np.asarray(sizes)).any():
        found = f"values from {columns.min()} to {columns.max()}"
        raise SpecError(f"{kind} has {found}", f"0 to {'/'.join(str(n - 1) for n in sizes)}")
    return action.astype(np.int32)


def step_copies(environment: Environment, action: NDArray[Any]) -> Outcome:
    """Step every copy; EnvironmentFailure where elapsed times are declared and not returned, or the reverse."""
    outcome, unit = environment.step(action), environment.spec.elapsed_unit
    if (outcome.elapsed is None) != (unit is None):
        found = f"spec.elapsed_unit is {unit!r} and Outcome.elapsed is {outcome.elapsed!r:.60}"
        raise EnvironmentFailure(f"{environment.name}: {found}", "both or neither", "declare the unit of elapsed times")
    return outcome


def positive(what: str, number: int) -> int:
    """Return a whole number above zero; ConfigError names it otherwise."""
    if number < 1:
        raise ConfigError(f"{what} = {number}", "at least 1")
    return number


class BatchReader:
    """The values that the copies of one environment returned in one step; each method checks, converts and copies them.

    EnvironmentFailure, with environment, copy and step, for a wrong shape, NaN, infinite or out-of-range values. With
    `copies` [W], whole numbers, the rows are those of some copies, in this order.
    """

    def __init__(self, name: str, count: int, step: int, copies: Any = None) -> None:
        self.name, self.count, self.step, self.copies = name, count, step, copies
        self._alone = count == 1 and copies is not None

    def leaf(self, what: str, value: Any, leaf: Leaf, start: Any = 0) -> NDArray[Any]:
        """One observation leaf: `[W, size]` float32, `[W, C]` int32 (less `start`), or an image `[W, ..., C]` uint8."""
        if isinstance(leaf, Vector):
            return self.numbers(what, value, (leaf.size,))
        if isinstance(leaf, Codes):
            sizes = np.asarray(leaf.sizes)
            array = self.shaped(what, value, sizes.shape)
            if not np.issubdtype(array.dtype, np.integer):
                raise self.failure(None, f"{what} has type {array.dtype}: expected whole numbers")
            array, low = array.astype(np.int64), np.broadcast_to(start, sizes.shape)
            outside = (array < low) | (array >= low + sizes)
            if outside.any():
                copy, column = (int(index) for index in np.argwhere(outside)[0])
                ends = f"{low[column]} to {low[column] + sizes[column] - 1}"
                raise self.failure(copy, f"{what} is {array[copy, column]}: expected {ends}")
            codes: NDArray[Any] = (array - low).astype(np.int32)
            return codes
        array = self.shaped(what, value, (leaf.height, leaf.width, leaf.channels))
        if array.dtype != np.uint8:
            raise self.failure(None, f"{what} has type {array.dtype}: expected uint8 (0 to 255)")
        return array.copy()

    def numbers(self, what: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Finite numbers `[W, *shape]` as a new float32 array."""
        array = self.shaped(what, value, shape)
        if array.dtype == object:  # such as fractions, or whole numbers of more than 64 bits
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                array = np.reshape([float(number) for number in array.flat], array.shape)
        if array.dtype.kind not in "fiub":
            raise self.failure(None, f"{what} has type {array.dtype}: expected numbers")
        if array.dtype.kind == "f" and not np.abs(array).max(initial=0.0) <= LARGEST:
            copy, entry, value = self._first(~(np.abs(array) <= LARGEST), array, what)
            raise self.failure(copy, f"{entry} is {value}: expected a finite number")
        return array.astype(np.float32)

    def times(self, value: Any) -> NDArray[np.float32]:
        """Elapsed times `[W]`, at least 0."""
        elapsed = self.numbers("elapsed", value, ())
        if (elapsed < 0.0).any():
            copy = int(np.argmax(elapsed < 0.0))
            raise self.failure(copy, f"elapsed is {elapsed[copy]}: expected the time to the next decision, at least 0")
        return elapsed

    def flags(self, what: str, value: Any, shape: tuple[int, ...] = ()) -> NDArray[np.bool_]:
        """Truth values `[W, *shape]`."""
        array = self.shaped(what, value, shape)
        if array.dtype == np.bool_:
            return array.copy()
        wrong = ~np.isin(array, (0, 1)) if array.dtype.kind in "iuf" else np.ones(array.shape, bool)
        if wrong.any():
            copy, entry, value = self._first(wrong, array, what)
            raise self.failure(copy, f"{entry} is {value!r}: expected true or false")
        return array.astype(bool)

    def take(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return a part of what the copies returned, by a function that raises where it is absent."""
        try:
            return function(*arguments)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self.failure(None, f"the observation is unusable: {type(error).__name__}: {error}") from error

    def info(self, value: Any) -> Mapping[str, Any]:
        """The mapping that comes with the observations."""
        if not isinstance(value, Mapping):
            raise self.failure(None, f"the info is {value!r}: expected a dict")
        return value

    def some_allowed(self, mask: NDArray[np.bool_] | None) -> None:
        """Raise for a copy that has to decide and may take no action, by the mask `[W, A]` of the next decision."""
        empty = np.flatnonzero(~mask.any(axis=1)) if mask is not None else np.zeros(0, np.int64)
        if empty.size:
            fix = "end the episode where nothing is left to choose, or allow an action that does nothing"
            raise self.failure(int(empty[0]), "the action mask allows no action: expected at least one", fix)

    def failure(self, copy: int | None, what: str, fix: str = "") -> EnvironmentFailure:
        """The error for one row, with the number of its copy, or for all copies if the copy is unknown."""
        copy = 0 if copy is None and self._alone else copy
        number = copy if copy is None or self.copies is None else self.copies[copy]
        where = "all copies" if number is None else f"copy {number}"
        return EnvironmentFailure(f"{self.name}, {where}, step {self.step}: {what}", fix=fix)

    def shaped(self, what: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """An array `[W, *shape]` of any type."""
        if is_masked(value):
            raise self.failure(None, f"{what} is masked in some places: expected values")
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise self.failure(None, f"{what} is not an array: {error}") from error
        if array.shape != (self.count, *shape):
            skip = int(self._alone and array.shape[:1] == (1,))  # the copy's own shape
            actual, expected = array.shape[skip:], (self.count, *shape)[skip:]
            raise self.failure(None, f"{what} has shape {actual}: expected {expected}")
        return array

    def _first(self, wrong: NDArray[np.bool_], array: NDArray[Any], what: str) -> tuple[int, str, Any]:
        """Return the row, name and value of the first wrong entry of `[W, ...]`."""
        position = tuple(int(index) for index in np.argwhere(wrong)[0])
        return (
            position[0],
            f"entry {position[1]} of {what}" if len(position) > 1 else what,
            np.asarray(array[position]).item(),
        )

    def leaves(self, seen: Leaves, expected: Mapping[str, Leaf]) -> Leaves:
        """All leaves of an observation."""
        if set(seen) != set(expected):
            raise self.failure(None, f"the observation has the leaves {sorted(seen)}: expected {sorted(expected)}")
        return {name: self.leaf(f"observation {name!r}", seen[name], leaf) for name, leaf in expected.items()}


def generators_to_array(generators: Sequence[np.random.Generator]) -> NDArray[np.uint8]:
    """The complete states of generators as the bytes of their JSON."""
    states = [generator.bit_generator.state for generator in generators]
    return np.frombuffer(json.dumps(states, default=lambda array: array.tolist()).encode(), np.uint8).copy()


def generators_from_array(array: NDArray[np.uint8], count: int, what: str) -> list[np.random.Generator]:
    """Rebuild the generators from `generators_to_array`; ConfigError unless there are `count` of them."""
    try:
        states = json.loads(array.tobytes())
        generators = [np.random.Generator(_bit_generator(state["bit_generator"])) for state in states]
        for generator, state in zip(generators, states, strict=True):
            generator.bit_generator.state = state
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
        raise ConfigError(f"{what}: the saved random generators cannot be read: {error}") from error
    if len(generators) != count:
        raise ConfigError(f"{what}: the saved state has {len(generators)} random generators", f"{count}")
    return generators


def _bit_generator(name: Any) -> np.random.BitGenerator:
    """Make one of NumPy's bit generators by its name; ValueError for another name."""
    kind = getattr(np.random, name)
    if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
        raise ValueError(f"{name} is not a bit generator")
    return kind()


def require_reset(made: T | None, name: str) -> T:
    """Return what the first reset makes, such as a generator; EnvironmentFailure before it."""
    if made is None:
        raise EnvironmentFailure(f"{name} was not reset", fix="call reset(seed) before the first step")
    return made


def check_saved(saved: Mapping[str, NDArray[Any]], expected: Expected, name: str) -> Saved:
    """The saved arrays, if names, shapes and types are as expected; None allows any number of bytes."""
    if set(saved) != set(expected):
        raise ConfigError(f"{name}: the saved state holds {sorted(saved)}", f"{sorted(expected)}")
    arrays = {key: np.asarray(saved[key]) for key in expected}
    for key, like in expected.items():
        array = arrays[key]
        if like is not None and (array.shape, array.dtype) != (like.shape, like.dtype):
            actual = f"is {array.dtype} {array.shape}: expected {like.dtype} {like.shape}"
            raise ConfigError(f"{name}: saved {key} {actual}")
    return arrays


# Play episodes with all copies at once, without a bias towards short episodes.
#
# Episode `k` is assigned to copy `k % W` in advance; results are in that order, and exactly the first episodes in that
# order are returned. (Returning the episodes that end first would prefer short ones.)
#
# Letters in shapes: `N` decisions, `W` copies, `A` action size or number of actions.

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
    elapsed: NDArray[np.float32] | None = None  # [N]

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
        raise ConfigError(f"play: episodes = {episodes}, steps = {steps}", "exactly one", "set only one")
    target = episodes if steps is None else steps
    if target is None or target < 1:
        raise ConfigError(f"play: episodes = {episodes}, steps = {steps}", "at least 1")
    generator = np.random.default_rng([check_seed(seed), 1])
    tally = _Tally(environment.count)
    rows: list[_Row] = []
    long = False  # whether an episode was said to be endless
    observed = environment.reset(seed).copied()._replace(first=np.ones(environment.count, bool))
    while True:
        active = np.ones(environment.count, bool) if episodes is None else tally.episode < episodes
        action, propensity = act(observed, generator)
        outcome = step_copies(environment, action)
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
        "elapsed": outcome.elapsed,
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
