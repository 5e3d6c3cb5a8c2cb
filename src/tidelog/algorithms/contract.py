"""The contract between an algorithm and the training loop: stores, phases, and pure functions over one state.

Offline learning is one phase over the store `log`. An algorithm with several phases lists them in the order of a
round. An algorithm that learns in an environment says what is collected before each round; its stores hold segments
that are added and removed. Letters: `B` batch, `C` segments in a store, `T` steps of a segment, `W` environment copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from tidelog.algorithms.sampling import Sampler
from tidelog.data.statistics import Scaler
from tidelog.errors import ConfigError, SpecError
from tidelog.types import Act, HistoryArrays, Observation, Spec

State = Any  # a pytree: everything that a resumed run needs
PolicyParams = Any  # a pytree: the part of the state that acting reads and that a saved policy holds


class ScaledParams(NamedTuple):
    """What acting reads while an algorithm learns the scale of observations; a saved policy's scaler has that scale.

    Its networks read `(observation - mean) / std`; leaves without a scale stay unchanged.
    """

    params: PolicyParams
    mean: dict[str, jax.Array]  # [size] for each leaf
    std: dict[str, jax.Array]


def without_scale(params: PolicyParams, scaler: Scaler) -> tuple[PolicyParams, Scaler]:
    """Return the parameters of a policy that reads scaled observations, and the scaler that scales them."""
    if not isinstance(params, ScaledParams):
        return params, scaler
    mean, std = ({name: np.asarray(leaf) for name, leaf in one.items()} for one in (params.mean, params.std))
    return params.params, replace(scaler, mean=mean, std=std)


class Feedback(NamedTuple):
    """The output of a step: scalar metrics, and new priorities [B] where the order of the sampler needs them.

    Metrics named in `VALUES` and `DIFFERENCES` are in scaled rewards; reports show them in the log's unit.
    """

    metrics: dict[str, jax.Array]
    priority: jax.Array | None = None


# metrics in the unit of scaled rewards, which reports show in the log's unit; losses stay in scaled rewards
VALUES = frozenset({"q_mean", "v_mean", "target_q", "policy_q"})
DIFFERENCES = frozenset({"advantage_mean", "advantage_std", "target_gap", "td_error"})  # of values


@dataclass(frozen=True)
class StoreSpec:
    """The content of a store: for a log, the columns that its phases read beyond observations and actions.

    With a `capacity` the store holds that many segments, of exactly these columns, until a phase empties it. With
    `max_use` or `max_staleness` no phase empties it: a segment can be drawn until its number of uses reaches `max_use`,
    until it is more than `max_staleness` updates old, or until a new segment replaces it. For interactions the store
    holds windows whose last `targets` events are the training targets.
    """

    columns: tuple[str, ...]
    capacity: int | None = None
    max_use: int | None = None
    max_staleness: int | None = None
    targets: int = 1


@dataclass(frozen=True)
class Collection:
    """The collection before the phases of a round: `steps` decisions in each of `num_envs` copies.

    The decisions of one copy are one segment. Every segment goes into the stores in `into`. For a recurrent policy
    a segment holds the recurrent state at the start of each of its `num_chunks`. Before the stores take new segments,
    `complete(algorithm, state, columns) -> (state, columns)` adds columns to them.
    """

    num_envs: int
    steps: int
    into: tuple[str, ...]
    num_chunks: int = 1
    complete: Callable[[Any, State, dict[str, Any]], tuple[State, dict[str, Any]]] | None = None


def check_components(weights: tuple[float, ...] | None, spec: Spec) -> None:
    """Raise SpecError unless the weights are finite, not all zero, and one for each reward of the log."""
    if weights is not None and not (all(math.isfinite(w) for w in weights) and any(weights)):
        raise SpecError(
            f"reward_weights = {weights}", "finite numbers, at least one not 0", "reward_weights=(1.0, 0.5)"
        )
    if weights is not None and len(weights) != (spec.rewards or 1):
        raise SpecError(f"reward_weights: {len(weights)} weights", f"{spec.rewards or 1}", "one per reward")


def check_discounts(discounts: tuple[float, ...] | None, spec: Spec) -> None:
    """Raise SpecError unless there is one discount for each of the log's several rewards."""
    if discounts is not None and len(discounts) != spec.rewards:
        fix = "set discount" if spec.rewards is None else "one per reward"
        raise SpecError(f"discounts: {len(discounts)} discounts", f"{spec.rewards or 'none for one reward'}", fix)


def one_reward(owner: str, spec: Spec) -> None:
    """Raise SpecError where the log has several rewards."""
    if spec.rewards is not None:
        raise SpecError(
            f"{owner} learns from one reward, but this log has {spec.rewards}",
            fix="name one column as reward in the mapping, or use IQL with reward_weights",
        )


@dataclass(frozen=True)
class Phase:
    """One kind of update over one or several stores.

    `step(algorithm, state, batch) -> (state, feedback)` is pure. `losses(algorithm, state, batch, key) -> dict` returns
    the same losses without an update. `updates(algorithm, round)` is a host integer: the number of updates of this
    phase in this round, 0 to skip it; None uses all updates that the run has left. Over a log, `share(algorithm)`
    can replace `updates`: the share of the run's updates, rounded, that this phase takes in the first round; a share
    below 1 leaves at least one update.

    Over a store of segments a phase has three more options. `prepare(algorithm, state, columns) -> (state, columns)`
    runs once before the updates, over the whole store, and adds columns to it. `conclude(algorithm, state, columns) ->
    metrics [C, T]` runs once after the updates; the mean over the valid steps is reported. Then the segments go into
    the store `into`, or are deleted (`empties`). That store is the one the phase reads, unless `over` names another.
    """

    name: str
    samplers: Sampler | dict[str, Sampler]
    step: Callable[[Any, State, Any], tuple[State, Feedback]]
    losses: Callable[[Any, State, Any, jax.Array], dict[str, jax.Array]]
    updates: Callable[[Any, int], int] | None = None
    prepare: Callable[[Any, State, dict[str, Any]], tuple[State, dict[str, Any]]] | None = None
    conclude: Callable[[Any, State, dict[str, Any]], dict[str, jax.Array]] | None = None
    into: str | None = None
    empties: bool = False
    over: str | None = None
    share: Callable[[Any], float] | None = None

    def __post_init__(self) -> None:
        if self.updates is not None and self.share is not None:
            raise ConfigError(f"phase '{self.name}' has updates and a share", fix="set only one of them")


@runtime_checkable
class Algorithm(Protocol):
    """The contract; `q_values` and `distribution` return None where the policy has none."""

    takes: ClassVar[tuple[type, ...]]  # supported kinds of action space

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Return the stores that the phases read, by name."""

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases of a round, in order."""

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Return a new state for a run of `updates` updates."""

    def policy_params(self, state: State) -> PolicyParams:
        """Return the part of the state that the functions below read."""

    def act(
        self,
        params: PolicyParams,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """Choose actions for observations [B, ...]; deterministic without a key."""

    def initial_state(self, params: PolicyParams, batch: int) -> Any:
        """Return the initial recurrent state of acting, or None for a feed-forward policy."""

    def distribution(
        self, params: PolicyParams, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> Any:
        """Return the sampled policy's distribution over actions, or None."""

    def q_values(
        self, params: PolicyParams, observation: Observation, action: jax.Array | None = None
    ) -> jax.Array | None:
        """Return the values of all actions [B, A], or of chosen actions [B]; None where the policy has none."""


@runtime_checkable
class Ranking(Algorithm, Protocol):
    """An algorithm that learns from interactions and ranks items of a catalogue; `H` history length, `N` items."""

    watched_metrics: ClassVar[tuple[str, ...]]  # of reports; one below a quarter of its best value gives a warning
    divergence_fix: ClassVar[str]  # what to do where a loss is no longer finite

    def collapse_advice(self, name: str, row: Mapping[str, Any]) -> str:
        """Return what the fall of a watched metric means in a report, and its fix."""

    def spec_of(self, log: Any) -> Spec:
        """Return the spec of the interactions, as far as this algorithm reads them."""

    def with_item_facts(self, state: State, log: Any, seed: int) -> State:
        """Return a new state with the item statistics of the interactions, before training."""

    def with_q_weight(self, state: State, weight: float) -> State:
        """Return the state with this weight of Q in the score; it has no effect before the first update of Q."""

    def policy_metrics(self, params: PolicyParams) -> dict[str, float]:
        """Return metrics for every report: `q_updates`, the updates of Q, and `q_weight`, 0 without any."""

    def all_items(self, params: PolicyParams) -> jax.Array:
        """Return the item vectors [N + 1, Q] for the search."""

    def queries(self, params: PolicyParams, seen: HistoryArrays, key: jax.Array | None = None) -> jax.Array:
        """Return queries [B, 1 + n, Q] for histories; the first finds the most likely items."""

    def score_items(
        self, params: PolicyParams, seen: HistoryArrays, found: jax.Array, logits: jax.Array, ideas: jax.Array
    ) -> Any:
        """Return likelihood, standardised value and support of found items [B, K]."""


class Chooser(Protocol):
    """Data held out from training that choose a part of the state of each member before every report."""

    notes: tuple[str, ...]  # for the user, before training

    def measure(self, policy: Any) -> tuple[Any, dict[str, float]]:
        """Return the choice for a policy and metrics of the report, both as JSON values: one process measures."""

    def apply(self, algorithm: Any, state: State, choice: Any) -> State:
        """Return the state with the choice; it differs only in the part that acting reads."""


@runtime_checkable
class Portable(Algorithm, Protocol):
    """An algorithm whose policies also act without JAX, and as ONNX."""

    def recipe(self, params: PolicyParams) -> dict[str, Any]:
        """Return the acting computation (`networks/recipe.py`) with its own arrays; ExportError for a custom module."""


@runtime_checkable
class Collecting(Algorithm, Protocol):
    """An algorithm that learns in an environment: all its stores hold segments."""

    def collection(self) -> Collection:
        """Return what is collected before each round."""


@runtime_checkable
class Counting(Collecting, Protocol):
    """An algorithm whose state depends on the current episodes."""

    def with_new_episodes(self, state: State) -> State:
        """Return the state for new episodes in all copies."""
