"""What learns from a log, going on in an environment: the same step, on minibatches mixed of the log and of own play.

`Tuned` is an algorithm for the loop that collects; inside it is one that is not. It plays one copy, keeps every
decision in the store `own`, and draws part of each minibatch from `log`, in the order of the algorithm, and the rest
from `own`, uniformly. Observations and rewards of own play are scaled as the log's were.

Letters: `B` batch, `C` segments in a store, `T` steps of a segment, `N` decisions of own play.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from numbers import Integral, Real
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.core.contract import Collection, Feedback, Phase, StoreSpec, one_reward
from tidelog.algorithms.core.optimisation import SCHEDULES, constant
from tidelog.algorithms.core.sampling import Batch, Gathered, NStep, Sampler, Uniform
from tidelog.algorithms.core.segments import Segments
from tidelog.errors import ConfigError, SpecError
from tidelog.types import Act, Observation, Spec, Transition

LOG, OWN = "log", "own"


@dataclass(frozen=True)
class Tuning:
    """How a run goes on in an environment; ConfigError where a number is impossible."""

    offline: float = 0.5  # share of a minibatch that comes from the log
    updates: float = 1.0  # updates a decision
    collect_every: int = 10  # decisions that are made before updates follow
    restart_schedules: bool = False  # learning rates follow the run's schedules anew; otherwise they are constant

    def __post_init__(self) -> None:
        for name in ("offline", "updates"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                raise ConfigError(f"{name} = {value!r}: expected a number")
        if not 0.0 <= self.offline <= 1.0:
            raise ConfigError(f"offline = {self.offline}: expected a share of a minibatch in [0, 1]")
        if self.updates <= 0.0:
            raise ConfigError(f"updates = {self.updates}: expected more than 0 a decision")
        whole = isinstance(self.collect_every, Integral) and not isinstance(self.collect_every, bool)
        if not whole or self.collect_every < 1:
            raise ConfigError(f"collect_every = {self.collect_every!r}: expected a whole number of at least 1")
        if not isinstance(self.restart_schedules, bool):
            raise ConfigError(f"restart_schedules = {self.restart_schedules!r}: expected True or False")

    def sizes(self, batch_size: int) -> dict[str, int]:
        """How many samples of a minibatch each store gives; one that gives none is left out."""
        log = round(self.offline * batch_size)
        return {name: size for name, size in ((LOG, log), (OWN, batch_size - log)) if size}

    def taken(self, round: int) -> int:
        """Updates of a round, so that none is lost where they are a fraction."""
        return int((round + 1) * self.collect_every * self.updates) - int(round * self.collect_every * self.updates)


class Scales(eqx.Module):
    """What the log's scaler does, as arrays: `(observation - mean) / std`, `reward * scale + shift`."""

    mean: dict[str, Any]
    std: dict[str, Any]
    scale: Any
    shift: Any

    def observation(self, observation: Observation) -> Observation:
        """Leaves [..., size] as networks see them."""
        return {
            name: (leaf - self.mean[name]) / self.std[name] if name in self.mean else leaf
            for name, leaf in observation.items()
        }

    def reward(self, reward: jax.Array) -> jax.Array:
        """Rewards of any shape as networks see them."""
        scaled: jax.Array = reward * self.scale + self.shift
        return scaled


@dataclass(frozen=True)
class Recent:
    """A decision of own play and what followed within `n_step` steps, as `NStep` reads it from a log."""

    n_step: int
    discount: Any
    scales: Scales

    def rows(self, store: Segments) -> tuple[Any, None]:
        """All decisions so far; one copy played them, one after another."""
        return store.filled * store.columns["reward"].shape[1], None

    def gather(self, store: Segments, rows: jax.Array) -> Gathered:
        """Transitions at `rows` [B]."""
        all_of = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), store.columns)  # [N, ...]
        reward, ended = self.scales.reward(all_of["reward"]), all_of["terminated"] | all_of["truncated"]
        known, _ = self.rows(store)
        summed, last, alive = reward[rows], rows, jnp.ones_like(rows, bool)
        for k in range(1, self.n_step):
            alive &= ~ended[rows + k - 1] & (rows + k < known)
            summed += jnp.where(alive, self.discount**k * reward[rows + k], 0.0)
            last = jnp.where(alive, rows + k, last)
        length = (last - rows + 1).astype(jnp.float32)
        factor = self.discount if self.n_step == 1 else self.discount**length

        def seen(name: str, at: jax.Array) -> Observation:
            return self.scales.observation({leaf: array[at] for leaf, array in all_of[name].items()})

        return Gathered(
            Transition(
                observation=seen("observation", rows),
                action=_executed(all_of["action"][rows]),
                reward=summed,
                discount=factor * (1.0 - all_of["terminated"][last].astype(jnp.float32)),
                next_observation=seen("following", last),
                mask=all_of["mask"][rows] if "mask" in all_of else None,
                next_mask=all_of["following_mask"][last] if "mask" in all_of else None,
            ),
            None,
        )


def _executed(action: jax.Array) -> jax.Array:
    """What the environment got: continuous actions are cut at the bounds."""
    return jnp.clip(action, -1.0, 1.0) if jnp.issubdtype(action.dtype, jnp.floating) else action


def joined(batches: Mapping[str, Batch]) -> Batch:
    """Minibatches of several stores as one, in the order of their names."""
    parts = [batches[name] for name in sorted(batches)]
    data = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(part.data for part in parts))
    weight = None
    if any(part.weight is not None for part in parts):
        ones = [jnp.ones(part.rows.shape) if part.weight is None else part.weight for part in parts]
        weight = jnp.concatenate(ones)
    return Batch(data, jnp.concatenate([part.rows for part in parts]), weight)


def with_constant_rates(algorithm: Any) -> Any:
    """The algorithm with all of its learning-rate schedules constant.

    A schedule that decays over the run would end fine-tuning with networks that no longer move.
    """
    if not is_dataclass(algorithm):
        return algorithm
    names = [field.name for field in fields(algorithm) if field.metadata.get("choices") is SCHEDULES]
    return replace(algorithm, **dict.fromkeys(names, constant))  # type: ignore[type-var]


class Tuned(eqx.Module):
    """An algorithm that learns from a log, as one that learns in an environment from that log and its own play."""

    inner: Any
    scales: Scales
    tuning: Tuning = eqx.field(static=True)
    rounds: int = eqx.field(static=True)

    @property
    def takes(self) -> tuple[type, ...]:
        """The kinds of action space of the algorithm inside."""
        found: tuple[type, ...] = self.inner.takes
        return found

    def collection(self) -> Collection:
        """One copy, a few decisions."""
        return Collection(1, self.tuning.collect_every, (OWN,))

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """The log as before, and all of own play."""
        mask = ("mask", "following_mask") if spec.masked else ()
        columns = ("observation", "action", "reward", "terminated", "truncated", "following", *mask)
        return {**self.inner.stores(spec), OWN: StoreSpec(columns, self.rounds)}

    def phases(self) -> tuple[Phase, ...]:
        """The phases inside, each on a mix."""
        return tuple(self._mixed(phase) for phase in self.inner.phases())

    def _mixed(self, phase: Phase) -> Phase:
        draw: Any = phase.reads
        sizes = self.tuning.sizes(draw.size)
        own = Recent(draw.unit.n_step, draw.unit.discount, self.scales)
        every = {LOG: draw, OWN: Sampler(OWN, draw.size, own, Uniform())}
        reads = {name: replace(every[name], size=size) for name, size in sizes.items()}

        def step(config: Tuned, state: Any, batch: dict[str, Batch]) -> tuple[Any, Feedback]:
            state, feedback = phase.step(config.inner, state, joined(batch))
            if feedback.priority is None or LOG not in sizes:
                return state, Feedback(feedback.metrics)
            priority: Any = {LOG: feedback.priority[: sizes[LOG]]}
            return state, Feedback(feedback.metrics, priority)

        def losses(config: Tuned, state: Any, batch: dict[str, Batch], key: jax.Array) -> dict[str, jax.Array]:
            return phase.losses(config.inner, state, joined(batch), key)

        return Phase(phase.name, reads, step, losses, lambda config, round: config.tuning.taken(round))

    def init(self, spec: Spec, key: jax.Array, updates: int) -> Any:
        """A fresh state of the algorithm inside."""
        return self.inner.init(spec, key, updates)

    def policy_params(self, state: Any) -> Any:
        """What the algorithm inside acts by."""
        return self.inner.policy_params(state)

    def start(self, params: Any, batch: int) -> Any:
        """Nothing is carried."""
        return self.inner.start(params, batch)

    def act(
        self,
        params: Any,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """What the algorithm inside does, for observations as the environment shows them."""
        found: Act = self.inner.act(params, self.scales.observation(observation), mask=mask, carry=carry, key=key)
        return found

    def distribution(
        self, params: Any, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> Any:
        """The sampled policy, or None."""
        return self.inner.distribution(params, self.scales.observation(observation), mask, carry)

    def q_values(self, params: Any, observation: Observation) -> jax.Array | None:
        """Values of all actions, or None."""
        found: jax.Array | None = self.inner.q_values(params, self.scales.observation(observation))
        return found


def check_tunable(algorithm: Any, spec: Spec) -> None:
    """Raise SpecError unless the algorithm learns what decisions are worth, one at a time, from one reward."""
    name = type(algorithm).__name__
    one_reward(f"fine-tuning of {name}", spec)
    for phase in algorithm.phases():
        if not (isinstance(phase.reads, Sampler) and phase.reads.store == LOG and isinstance(phase.reads.unit, NStep)):
            raise SpecError(
                f"{name}, as this run had it, cannot go on in an environment: its phase '{phase.name}' does not read "
                "single transitions of the log; what can are iql, bcq and discrete-bcq without a memory"
            )
