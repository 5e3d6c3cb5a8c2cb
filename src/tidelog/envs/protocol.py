"""The protocol of environments: `W` copies stepped together, with the observations before each reset.

Copies that end are reset within the same step. `Outcome.following` is the true next observation, which allows
bootstrapping at a truncation; `Outcome.current` is the input of the next action. They differ only in ended copies.

Some sources reset a copy only in the step after its end and ignore the action of that step. If an adapter cannot
undo this, `Outcome.valid` is False in such rows: they are not decisions, enter no log and no loss, and do not count.
Until then `current` repeats the last observation of the ended episode, with every action allowed.

An environment that can resume exactly has two more methods: `save_state`, and `restore_state`, which loads the saved
arrays into a new object of the same problem and count. Both objects then have the same future.

Letters in shapes: `W` copies, `A` action size or number of actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, SpecError
from tidelog.types import Continuous, Discrete, MultiDiscrete, Spec

Leaves: TypeAlias = dict[str, NDArray[Any]]


class Observed(NamedTuple):
    """The observations of all copies: leaves `[W, ...]` (Vector float32, Codes int32) and the allowed actions."""

    observation: Leaves
    action_mask: NDArray[np.bool_] | None = None  # [W, A]; None: every action is allowed
    first: NDArray[np.bool_] | None = None  # [W]: copies at the start of an episode; `play` sets it for its actor


class Outcome(NamedTuple):
    """The result of one step of all copies; both `terminated` and `truncated` may be set, e.g. at a time limit."""

    reward: NDArray[np.float32]  # [W]
    terminated: NDArray[np.bool_]  # [W]
    truncated: NDArray[np.bool_]  # [W]
    following: Observed  # before any reset
    current: Observed  # after the reset of copies that ended
    valid: NDArray[np.bool_] | None = None  # [W]; False: the copy was only restarted; None: every row is a decision


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

    def reset(self, seed: int) -> Observed:
        """Restart every copy; the same seed gives the same future."""

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy: action `[W]`, `[W, M]` or `[W, A]`; raises EnvironmentFailure or SpecError."""

    def close(self) -> None:
        """Release the resources of all copies."""


@runtime_checkable
class Resumable(Protocol):
    """The additional interface of environments that can resume exactly in the middle of episodes."""

    def save_state(self) -> dict[str, NDArray[Any]]:
        """The complete state, as plain arrays; EnvironmentFailure before the first reset."""

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> Observed:
        """Restore a saved state and return the observations; ConfigError for the arrays of another problem."""


def check_action(spec: Spec, action: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the action as int32 or float32; SpecError if its shape, range or finiteness is wrong."""
    action = np.asarray(action)
    space = spec.action
    if isinstance(space, Continuous):
        _same_shape(action, (count, space.size))
        if not np.isfinite(action).all():
            raise SpecError(f"the action holds {action[~np.isfinite(action)][0]}: expected finite numbers")
        return action.astype(np.float32)
    sizes = (space.n,) if isinstance(space, Discrete) else space.sizes
    _same_shape(action, (count,) if isinstance(space, Discrete) else (count, len(sizes)))
    if not np.issubdtype(action.dtype, np.integer):
        raise SpecError(f"{_kind(space)} has type {action.dtype}: expected whole numbers")
    columns = action.reshape(count, len(sizes))
    if (columns < 0).any() or (columns >= np.asarray(sizes)).any():
        raise SpecError(f"{_kind(space)} has {_wrong(columns)}: expected 0 to {'/'.join(str(n - 1) for n in sizes)}")
    return action.astype(np.int32)


def _same_shape(action: NDArray[Any], expected: tuple[int, ...]) -> None:
    if action.shape != expected:
        raise SpecError(f"the action has shape {action.shape}: expected {expected}")


def _kind(space: Discrete | MultiDiscrete) -> str:
    return "a discrete action" if isinstance(space, Discrete) else "a multi-discrete action"


def _wrong(columns: NDArray[Any]) -> str:
    return f"values from {columns.min()} to {columns.max()}"


def positive(what: str, number: int) -> int:
    """Return a whole number above zero; ConfigError names it otherwise."""
    if number < 1:
        raise ConfigError(f"{what} = {number}: expected at least 1")
    return number
