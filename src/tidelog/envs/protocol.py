"""The small promise that every environment here keeps: `W` copies stepped together, nothing hidden by resets.

Copies that end are reset within the same step. What truly followed the action is in `Outcome.following`, so that a
truncation can be bootstrapped; what to act on next is in `Outcome.current`, which differs only in copies that ended.

Some sources reset a copy only in the step after its end and ignore the action of that step. Where an adapter cannot
undo this, `Outcome.valid` is False in such rows: they are no decisions, enter no log and no loss, and are not counted.
Until then `current` repeats the last observation of the ended episode, with every action allowed.

An environment that can go on exactly where it was has two more methods: `save_state`, whose arrays a fresh object of
the same problem and count takes in `restore_state`. Both have the same future from there.

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
    """What every copy shows: leaves `[W, ...]` (Vector float32, Codes int32) and the allowed actions."""

    observation: Leaves
    action_mask: NDArray[np.bool_] | None = None  # [W, A]; None: every action is allowed
    first: NDArray[np.bool_] | None = None  # [W]: copies whose episode begins here; `play` says it to its actor


class Outcome(NamedTuple):
    """What one step of all copies brought; `terminated` and `truncated` may both be set, as a time limit can do."""

    reward: NDArray[np.float32]  # [W]
    terminated: NDArray[np.bool_]  # [W]
    truncated: NDArray[np.bool_]  # [W]
    following: Observed  # before any reset
    current: Observed  # after the reset of copies that ended
    valid: NDArray[np.bool_] | None = None  # [W]; False: the copy only restarted; None: every row is a decision


@runtime_checkable
class Environment(Protocol):
    """`count` copies of one problem, stepped together."""

    @property
    def name(self) -> str:
        """How people call it."""

    @property
    def spec(self) -> Spec:
        """What is seen and what can be done."""

    @property
    def count(self) -> int:
        """How many copies `W` are stepped together."""

    def reset(self, seed: int) -> Observed:
        """Start every copy anew; the same seed gives the same future."""

    def step(self, action: NDArray[Any]) -> Outcome:
        """Act in every copy: action `[W]`, `[W, M]` or `[W, A]`; raises EnvironmentFailure or SpecError."""

    def close(self) -> None:
        """Let go of whatever the copies hold."""


@runtime_checkable
class Resumable(Protocol):
    """What an environment offers beside `Environment` where a run can go on exactly in the middle of its episodes."""

    def save_state(self) -> dict[str, NDArray[Any]]:
        """Everything that its future depends on, as plain arrays; EnvironmentFailure before the first reset."""

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> Observed:
        """Go on from there and show what every copy shows; ConfigError where the arrays are another problem's."""


def check_action(spec: Spec, action: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the action as int32 or float32; SpecError where its shape, range or finiteness is wrong."""
    action = np.asarray(action)
    space = spec.action
    if isinstance(space, Continuous):
        _same_shape(action, (count, space.size))
        if not np.isfinite(action).all():
            raise SpecError(f"actions must be finite, found {action[~np.isfinite(action)][0]}")
        return action.astype(np.float32)
    sizes = (space.n,) if isinstance(space, Discrete) else space.sizes
    _same_shape(action, (count,) if isinstance(space, Discrete) else (count, len(sizes)))
    if not np.issubdtype(action.dtype, np.integer):
        raise SpecError(f"{_words(space)} takes whole numbers, found {action.dtype}")
    columns = action.reshape(count, len(sizes))
    if (columns < 0).any() or (columns >= np.asarray(sizes)).any():
        raise SpecError(f"{_words(space)} takes 0 up to {'/'.join(str(n - 1) for n in sizes)}, found {_wrong(columns)}")
    return action.astype(np.int32)


def _same_shape(action: NDArray[Any], expected: tuple[int, ...]) -> None:
    if action.shape != expected:
        raise SpecError(f"the environment takes actions of shape {expected}, found {action.shape}")


def _words(space: Discrete | MultiDiscrete) -> str:
    return "a discrete action" if isinstance(space, Discrete) else "a multi-discrete action"


def _wrong(columns: NDArray[Any]) -> str:
    return f"values from {columns.min()} to {columns.max()}"


def positive(what: str, number: int) -> int:
    """Return a whole number above zero, or raise a ConfigError that names it."""
    if number < 1:
        raise ConfigError(f"{what} must be at least 1, found {number}")
    return number
