"""What an algorithm is to the loop: the stores it keeps, the phases it runs over them, pure functions over one state.

The loop knows nothing else. Offline learning is one phase over the store `log`; an algorithm with several phases lists
them in the order of a round. An algorithm that learns in an environment says what is played before each round, and its
stores hold segments that come and go. Letters: `B` batch, `C` segments in a store, `T` steps of a segment, `W` copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax

from tidelog.algorithms.core.sampling import Sampler
from tidelog.errors import SpecError
from tidelog.types import Act, Histories, Observation, Spec

State = Any  # a pytree: everything that a resumed run needs
PolicyParams = Any  # a pytree: the part of the state that acting reads, and all that a saved policy holds


class Feedback(NamedTuple):
    """What a step says about itself: scalar metrics, and new priorities [B] where the draw's order wants them."""

    metrics: dict[str, jax.Array]
    priority: jax.Array | None = None


@dataclass(frozen=True)
class StoreSpec:
    """What a store holds: of a log, the columns that its phases read beyond observations and actions.

    With a `capacity` it holds so many segments instead, of exactly these columns, until a phase empties it. With
    `max_use` or `max_staleness` nobody empties it: a segment can be drawn until it was drawn so often, until it is more
    than so many updates old, or until another takes its place. Of interactions it holds windows whose last `targets`
    events are learnt from.
    """

    columns: tuple[str, ...]
    capacity: int | None = None
    max_use: int | None = None
    max_staleness: int | None = None
    targets: int = 1


@dataclass(frozen=True)
class Collection:
    """What is played before the phases of a round: `steps` decisions in each of `environments` copies.

    Every copy's decisions are one segment, and every segment goes into the stores of these names. Of a policy with a
    memory a segment says what was carried into each of its `pieces`.
    """

    environments: int
    steps: int
    into: tuple[str, ...]
    pieces: int = 1


def check_components(weights: tuple[float, ...] | None, spec: Spec) -> None:
    """Raise SpecError unless the weights are finite, not all zero, and as many as the log's rewards."""
    if weights is not None and not (all(math.isfinite(w) for w in weights) and any(weights)):
        raise SpecError(f"reward_weights = {weights}: expected finite numbers, not all of them 0")
    if weights is not None and len(weights) != (spec.rewards or 1):
        raise SpecError(f"reward_weights has {len(weights)} numbers, this log has {spec.rewards or 1} reward(s)")


def one_reward(owner: str, spec: Spec) -> None:
    """Raise SpecError where the log has several rewards."""
    if spec.rewards is not None:
        raise SpecError(
            f"{owner} learns from one reward, this log has {spec.rewards}: "
            "name one column as reward in the mapping, or weigh several with IQL's reward_weights"
        )


@dataclass(frozen=True)
class Phase:
    """One kind of update over one or several stores.

    `step(algorithm, state, batch) -> (state, feedback)` is pure. `losses(algorithm, state, batch, key) -> dict` gives
    the same losses without a step. `updates(algorithm, round)` is a host integer: how many steps this visit takes, 0 to
    skip it; None takes all that the run has left.

    Over a store of segments a phase may do three more things. `prepare(algorithm, state, columns) -> (state, columns)`
    runs once before a visit over the whole store and adds columns to it. `conclude(algorithm, state, columns) ->
    metrics [C, T]` runs once after a visit; told is their mean over the steps that count. Then the segments it read go
    into the store `into`, or are forgotten (`empties`). That store is the one it reads, unless `over` names another.

    Where the store lies off the device, both are asked about some of its segments after others, and `prepare` leaves
    the state as it is.
    """

    name: str
    reads: Sampler | dict[str, Sampler]
    step: Callable[[Any, State, Any], tuple[State, Feedback]]
    losses: Callable[[Any, State, Any, jax.Array], dict[str, jax.Array]]
    updates: Callable[[Any, int], int] | None = None
    prepare: Callable[[Any, State, dict[str, Any]], tuple[State, dict[str, Any]]] | None = None
    conclude: Callable[[Any, State, dict[str, Any]], dict[str, jax.Array]] | None = None
    into: str | None = None
    empties: bool = False
    over: str | None = None


@runtime_checkable
class Algorithm(Protocol):
    """The contract; `q_values` and `distribution` return None where the policy has no such thing."""

    takes: ClassVar[tuple[type, ...]]  # kinds of action space

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """The stores that the phases read, by name."""

    def phases(self) -> tuple[Phase, ...]:
        """The phases of a round, in order."""

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """A fresh state for a run of `updates` steps."""

    def policy_params(self, state: State) -> PolicyParams:
        """The part of the state that the functions below read."""

    def act(
        self,
        params: PolicyParams,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """Choose actions for observations [B, ...]; without a key, deterministically."""

    def start(self, params: PolicyParams, batch: int) -> Any:
        """What acting carries from step to step before anything was seen, or None where it has no memory."""

    def distribution(
        self, params: PolicyParams, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> Any:
        """The sampled policy's distribution over actions, or None."""

    def q_values(self, params: PolicyParams, observation: Observation) -> jax.Array | None:
        """Values of all actions [B, A], or None."""


@runtime_checkable
class Ranking(Algorithm, Protocol):
    """An algorithm that learns from interactions and ranks items of a catalogue; `H` history length, `N` items."""

    watched: ClassVar[tuple[str, ...]]  # metrics of reports whose fall is a warning

    def furnish(self, state: State, log: Any, seed: int) -> State:
        """A fresh state with what the interactions say of their items before anything is learnt."""

    def weighted(self, state: State, weight: float) -> State:
        """The state with this weight of Q in the score."""

    def all_items(self, params: PolicyParams) -> jax.Array:
        """Rows [N + 1, Q] to search among."""

    def seek(self, params: PolicyParams, seen: Histories, key: jax.Array | None = None) -> jax.Array:
        """Queries [B, 1 + n, Q] after histories; the first finds the likeliest items."""

    def weigh(
        self, params: PolicyParams, seen: Histories, found: jax.Array, logits: jax.Array, ideas: jax.Array
    ) -> Any:
        """Likelihood, standardised value and support of found items [B, K]."""


@runtime_checkable
class Portable(Algorithm, Protocol):
    """An algorithm whose policies act without JAX too, and as ONNX."""

    def recipe(self, params: PolicyParams) -> dict[str, Any]:
        """How acting is computed (`networks/recipe.py`), with its own arrays; ExportError for a user's own part."""


@runtime_checkable
class Collecting(Algorithm, Protocol):
    """An algorithm that learns in an environment: all its stores hold segments."""

    def collection(self) -> Collection:
        """What is played before each round."""


class DistillationTarget(NamedTuple):
    """What a teacher saw in an environment, and what it would do there."""

    observation: Observation  # leaves [N, ...], as the environment shows them
    mask: jax.Array | None  # [N, A] bool
    old: Any  # a distribution of N actions with a divergence to those of its kind


@runtime_checkable
class Distillable(Collecting, Protocol):
    """An algorithm whose policy can begin as another one."""

    def taught(self, state: State, lesson: DistillationTarget, key: jax.Array, updates: int) -> tuple[State, jax.Array]:
        """A fresh state that does what a lesson says, and its mean divergence from that."""


@runtime_checkable
class Counting(Collecting, Protocol):
    """An algorithm whose state counts along the episodes under way."""

    def begun_anew(self, state: State) -> State:
        """The state where all copies begin new episodes."""
