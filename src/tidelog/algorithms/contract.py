"""What an algorithm is to the loop: the stores it keeps, the phases it runs over them, pure functions over one state.

The loop knows nothing else. Offline learning is one phase over the store `log`; an algorithm with several phases lists
them in the order of a round. Letters: `B` batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from tidelog.types import Act, Observation, Spec

if TYPE_CHECKING:
    from tidelog.algorithms.draws import Draw

State = Any  # a pytree: everything that a resumed run needs
Acting = Any  # a pytree: the part of the state that acting reads, and all that a saved policy holds


class Batch(NamedTuple):
    """What a draw returns: `data` as its unit gathers it, and how much each sample counts."""

    data: Any  # Transition or Decision, leaves [B, ...]
    rows: jax.Array  # [B] int32: where the samples stand in their store
    weight: jax.Array | None = None  # [B]; None: every sample counts once

    def mean(self, errors: jax.Array) -> jax.Array:
        """Mean of per-sample errors [B], each multiplied by its weight."""
        if errors.shape != self.rows.shape:
            raise TypeError(f"per-sample errors must have shape {self.rows.shape}, found {errors.shape}")
        return jnp.mean(errors if self.weight is None else self.weight * errors)


class Feedback(NamedTuple):
    """What a step says about itself: scalar metrics, and new priorities [B] where the draw's order wants them."""

    metrics: dict[str, jax.Array]
    priority: jax.Array | None = None


@dataclass(frozen=True)
class Keep:
    """What a store holds: the columns that its phases read beyond observations and actions."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class Phase:
    """One kind of update over one or several stores.

    `step(algorithm, state, batch) -> (state, feedback)` is pure. `losses(algorithm, state, batch, key) -> dict` gives
    the same losses without a step. `updates(algorithm, round)` is a host integer: how many steps this visit takes, 0 to
    skip it; None takes all that the run has left. `prepare(algorithm, state, store) -> store` sees the whole store once
    at the start of a visit.
    """

    name: str
    reads: Draw | dict[str, Draw]
    step: Callable[[Any, State, Any], tuple[State, Feedback]]
    losses: Callable[[Any, State, Any, jax.Array], dict[str, jax.Array]]
    updates: Callable[[Any, int], int] | None = None
    prepare: Callable[[Any, State, Any], Any] | None = None


@runtime_checkable
class Algorithm(Protocol):
    """The contract; `q_values` and `distribution` return None where the policy has no such thing."""

    takes: ClassVar[tuple[type, ...]]  # kinds of action space

    def stores(self, spec: Spec) -> dict[str, Keep]:
        """The stores that the phases read, by name."""

    def phases(self) -> tuple[Phase, ...]:
        """The phases of a round, in order."""

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """A fresh state for a run of `updates` steps."""

    def acting(self, state: State) -> Acting:
        """The part of the state that the functions below read."""

    def act(
        self,
        acting: Acting,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """Choose actions for observations [B, ...]; without a key, deterministically."""

    def distribution(self, acting: Acting, observation: Observation, mask: jax.Array | None = None) -> Any:
        """The sampled policy's distribution over actions, or None."""

    def q_values(self, acting: Acting, observation: Observation) -> jax.Array | None:
        """Values of all actions [B, A], or None."""
