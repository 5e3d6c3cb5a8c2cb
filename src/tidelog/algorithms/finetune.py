"""Fine-tuning: an offline algorithm continues in an environment, on minibatches from the log and from own decisions.

`FinetunedAlgorithm` is an algorithm for the online loop; it contains an offline algorithm. It acts in one copy, stores
every decision in the store `own`, and draws a part of each minibatch from `log`, in the order of the algorithm, and the
rest from `own`, uniformly. Observations and rewards of own decisions use the log's scaling.

Letters: `B` batch, `C` segments in a store, `T` steps of a segment, `N` own decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.contract import Collection, Feedback, Phase, StoreSpec, one_reward
from tidelog.algorithms.optimisation import SCHEDULES, constant
from tidelog.algorithms.sampling import Batch, NStep, SampleData, Sampler, Uniform
from tidelog.algorithms.segments import Segments
from tidelog.errors import ConfigError, SpecError
from tidelog.types import Act, Observation, Spec, Transition

LOG, OWN = "log", "own"


@dataclass(frozen=True)
class FinetuneConfig:
    """Settings of fine-tuning; ConfigError for an impossible number."""

    offline: float = 0.5  # share of a minibatch from the log
    updates: float = 1.0  # updates per decision
    collect_every: int = 10  # decisions between updates
    restart_schedules: bool = False  # True: restart learning-rate schedules; False: constant rates

    def __post_init__(self) -> None:
        for name in ("offline", "updates"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                raise ConfigError(f"{name} = {value!r}", "a finite number", "use 0.5")
        if not 0.0 <= self.offline <= 1.0:
            raise ConfigError(f"offline = {self.offline}", "a share of a minibatch in [0, 1]", "use 0.5")
        if self.updates <= 0.0:
            raise ConfigError(f"updates = {self.updates}", "more than 0 per decision", "use 1.0")
        whole = isinstance(self.collect_every, Integral) and not isinstance(self.collect_every, bool)
        if not whole or self.collect_every < 1:
            raise ConfigError(f"collect_every = {self.collect_every!r}", "a whole number of at least 1", "use 10")
        if not isinstance(self.restart_schedules, bool):
            raise ConfigError(f"restart_schedules = {self.restart_schedules!r}", "True or False", "use False")

    def sizes(self, batch_size: int) -> dict[str, int]:
        """Return the number of samples of a minibatch from each store; stores with none are left out."""
        log = round(self.offline * batch_size)
        return {name: size for name, size in ((LOG, log), (OWN, batch_size - log)) if size}

    def taken(self, round: int) -> int:
        """Return the updates of a round; fractions carry over to later rounds."""
        return int((round + 1) * self.collect_every * self.updates) - int(round * self.collect_every * self.updates)


class Scales(eqx.Module):
    """The log's scaling as arrays: `(observation - mean) / std`, `(reward - centre) * scale`."""

    mean: dict[str, Any]
    std: dict[str, Any]
    scale: Any
    centre: Any  # subtracted first: a product in float32 loses the digits of a reward far from 0

    def observation(self, observation: Observation) -> Observation:
        """Return leaves [..., size] in the units of the networks."""
        return {
            name: (leaf - self.mean[name]) / self.std[name] if name in self.mean else leaf
            for name, leaf in observation.items()
        }

    def reward(self, reward: jax.Array) -> jax.Array:
        """Return rewards of any shape in the units of the networks."""
        scaled: jax.Array = (reward - self.centre) * self.scale
        return scaled


@dataclass(frozen=True)
class Recent:
    """An n-step transition of own decisions; the counterpart of `NStep` for a log."""

    n_step: int
    discount: Any
    scales: Scales
    next_action: bool = False  # also gather the own action after these steps

    def rows(self, store: Segments) -> tuple[Any, None]:
        """Return all decisions so far; they come from one copy, in order."""
        return store.filled * store.columns["reward"].shape[1], None

    def gather(self, store: Segments, rows: jax.Array) -> SampleData:
        """Return transitions at `rows` [B]."""
        all_of = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), store.columns)  # [N, ...]
        reward, ended = self.scales.reward(all_of["reward"]), all_of["terminated"] | all_of["truncated"]
        known, _ = self.rows(store)
        summed, last, alive = reward[rows], rows, jnp.ones_like(rows, bool)
        elapsed: Any = all_of.get("elapsed")
        passed: Any = 1.0 if elapsed is None else elapsed[rows]  # [B]: units of time until the next step
        for k in range(1, self.n_step):
            alive &= ~ended[rows + k - 1] & (rows + k < known)
            units = k if elapsed is None else passed
            summed += jnp.where(alive, self.discount**units * reward[rows + k], 0.0)
            passed += jnp.where(alive, 1.0 if elapsed is None else elapsed[rows + k], 0.0)
            last = jnp.where(alive, rows + k, last)
        factor = self.discount if self.n_step == 1 and elapsed is None else self.discount**passed
        actions = all_of["action"]
        if jnp.issubdtype(actions.dtype, jnp.floating):  # as they were executed
            actions = jnp.clip(actions, -1.0, 1.0)
        following: dict[str, jax.Array] = {}
        if self.next_action:
            has_next = ~ended[last] & (last + 1 < known)
            following = {"next_action": actions[jnp.where(has_next, last + 1, last)], "has_next_action": has_next}

        def seen(name: str, at: jax.Array) -> Observation:
            return self.scales.observation({leaf: array[at] for leaf, array in all_of[name].items()})

        return SampleData(
            Transition(
                observation=seen("observation", rows),
                action=actions[rows],
                reward=summed,
                discount=factor * (1.0 - all_of["terminated"][last].astype(jnp.float32)),
                next_observation=seen("following", last),
                mask=all_of["mask"][rows] if "mask" in all_of else None,
                next_mask=all_of["following_mask"][last] if "mask" in all_of else None,
                **following,
            ),
            None,
        )


def joined(batches: Mapping[str, Batch]) -> Batch:
    """Concatenate minibatches of several stores, in the order of their names."""
    parts = [batches[name] for name in sorted(batches)]
    data = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(part.data for part in parts))
    weight = None
    if any(part.weight is not None for part in parts):
        ones = [jnp.ones(part.rows.shape) if part.weight is None else part.weight for part in parts]
        weight = jnp.concatenate(ones)
    return Batch(data, jnp.concatenate([part.rows for part in parts]), weight)


def with_constant_rates(algorithm: Any) -> Any:
    """Return the algorithm with constant learning rates.

    A schedule that decays over the run would leave almost no learning rate for fine-tuning.
    """
    names = [field.name for field in fields(algorithm) if field.metadata.get("choices") is SCHEDULES]
    return replace(algorithm, **dict.fromkeys(names, constant))


class FinetunedAlgorithm(eqx.Module):
    """An offline algorithm that learns in an environment, from a log and from its own decisions."""

    inner: Any
    scales: Scales
    tuning: FinetuneConfig = eqx.field(static=True)
    rounds: int = eqx.field(static=True)

    @property
    def takes(self) -> tuple[type, ...]:
        """The kinds of action space of the inner algorithm."""
        result: tuple[type, ...] = self.inner.takes
        return result

    def collection(self) -> Collection:
        """Return the collection: one copy, a few decisions."""
        return Collection(1, self.tuning.collect_every, (OWN,))

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Return the stores of the log and a store of own decisions."""
        mask = ("mask", "following_mask") if spec.masked else ()
        columns = ("observation", "action", "reward", "elapsed", "terminated", "truncated", "following", *mask)
        return {**self.inner.stores(spec), OWN: StoreSpec(columns, self.rounds)}

    def phases(self) -> tuple[Phase, ...]:
        """Return the inner phases, each on mixed minibatches."""
        return tuple(self._mixed(phase) for phase in self.inner.phases())

    def _mixed(self, phase: Phase) -> Phase:
        draw: Any = phase.samplers
        sizes = self.tuning.sizes(draw.size)
        own = Recent(draw.unit.n_step, draw.unit.discount, self.scales, draw.unit.next_action)
        every = {LOG: draw, OWN: Sampler(OWN, draw.size, own, Uniform())}
        samplers = {name: replace(every[name], size=size) for name, size in sizes.items()}

        def step(config: FinetunedAlgorithm, state: Any, batch: dict[str, Batch]) -> tuple[Any, Feedback]:
            state, feedback = phase.step(config.inner, state, joined(batch))
            if feedback.priority is None or LOG not in sizes:
                return state, Feedback(feedback.metrics)
            priority: Any = {LOG: feedback.priority[: sizes[LOG]]}
            return state, Feedback(feedback.metrics, priority)

        def losses(
            config: FinetunedAlgorithm, state: Any, batch: dict[str, Batch], key: jax.Array
        ) -> dict[str, jax.Array]:
            return phase.losses(config.inner, state, joined(batch), key)

        return Phase(phase.name, samplers, step, losses, lambda config, round: config.tuning.taken(round))

    def init(self, spec: Spec, key: jax.Array, updates: int) -> Any:
        """Return a new state of the inner algorithm."""
        return self.inner.init(spec, key, updates)

    def policy_params(self, state: Any) -> Any:
        """Return the inner algorithm's acting arrays."""
        return self.inner.policy_params(state)

    def initial_state(self, params: Any, batch: int) -> Any:
        """Return the inner algorithm's initial recurrent state: None."""
        return self.inner.initial_state(params, batch)

    def act(
        self,
        params: Any,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """Return the inner algorithm's actions for observations in the units of the environment."""
        result: Act = self.inner.act(params, self.scales.observation(observation), mask=mask, carry=carry, key=key)
        return result

    def distribution(
        self, params: Any, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> Any:
        """Return the sampled policy, or None."""
        return self.inner.distribution(params, self.scales.observation(observation), mask, carry)

    def q_values(self, params: Any, observation: Observation, action: jax.Array | None = None) -> jax.Array | None:
        """Return the values of all actions or of chosen ones, or None."""
        result: jax.Array | None = self.inner.q_values(
            params, self.scales.observation(observation), *(() if action is None else (action,))
        )
        return result


def check_tunable(algorithm: Any, spec: Spec) -> None:
    """Raise SpecError unless the algorithm learns values from single transitions and one reward."""
    name = type(algorithm).__name__
    one_reward(f"fine-tuning of {name}", spec)
    for phase in algorithm.phases():
        if not (
            isinstance(phase.samplers, Sampler)
            and phase.samplers.store == LOG
            and isinstance(phase.samplers.unit, NStep)
        ):
            raise SpecError(
                f"{name} with this configuration does not support fine-tuning: its phase '{phase.name}' does "
                "not read single transitions of the log",
                fix="use iql, bcq or discrete-bcq without recurrent_size and with n-step returns",
            )
