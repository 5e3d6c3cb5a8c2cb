"""Off-policy phasic policy gradient: learns repeatedly from stored segments of its earlier policies.

No paper defines it; this definition is ours. It combines the phases of Cobbe et al. 2020 (arXiv:2009.04416), the
targets of Espeholt et al. 2018 (arXiv:1802.01561) and the decoupled objective of Hilton et al. 2021 (arXiv:2110.00641).

Every collected segment goes into two ring buffers, `policy` and `value`, and stays until it was drawn `max_use` times
or is more than `max_staleness` updates old. A round collects and does `update_per_collect` updates; the auxiliary phase
runs every `aux_every` rounds.

| loss (per step) | over | reads |
|---|---|---|
| `-(prox / mu) min(r A, clip(r) A) - entropy_bonus H`, `r = pi / prox` | `policy` | A by V-trace, before this update |
| `value_weight (V - v)**2`, in the same update | `value` | v by V-trace, before this update |
| auxiliary: `0.5 (Vaux - v)**2 + beta_clone KL(old, new)` | `value` | v likewise; pi **before** this phase |
| the same update: `0.5 (V - v)**2` | `value` | the same v |

mu is the behaviour policy, prox (the proximal policy) an average of recent parameters. Targets and advantages are never
stored: the current networks compute them at every use. The auxiliary phase, the initial network and acting are in
`ppg_common.py`, as for PPG.

Limits: with prox equal to mu it is PPO's loss; with `proximal_decay` 0 the clip never binds and it is the
importance-weighted policy gradient; one minibatch of the whole new rollout makes the first update PPG's.

Letters: `B` segments of a minibatch, `T` steps, `C` segments of a store, `W` copies, `A` actions or action size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms import ppg_common
from tidelog.algorithms.contract import Collection, Feedback, Phase, StoreSpec
from tidelog.algorithms.hyperparameters import MAIN, chosen_preset, field, own
from tidelog.algorithms.optimisation import (
    Schedule,
    Transformation,
    constant,
    copied,
    init_opt_state,
    polyak_update,
)
from tidelog.algorithms.ppg_common import (
    Rewards,
    Running,
    add_values,
    auxiliary_loss,
    check_network,
    kl_after,
    record_old_policy,
    scale_rewards,
    scaled,
    segment_starts,
    standardise,
    value_unit,
    values_of_segments,
)
from tidelog.algorithms.sampling import Batch, Sampler
from tidelog.algorithms.segments import Columns, LivePasses, LiveUniform, Whole, check_lives
from tidelog.algorithms.short_form import algorithm
from tidelog.losses.policy import decoupled_surrogate, ratio_divergence, truncated_weight
from tidelog.losses.td import discount_of, value_error, vtrace
from tidelog.networks.layers import Activation
from tidelog.networks.phasic import Architecture
from tidelog.networks.pictures import Layers, by_size
from tidelog.types import Continuous, Discrete, Hybrid, Image, MultiDiscrete, Spec


class OffPolicyOptStates(NamedTuple):
    """The optimiser states of the policy phase and of the auxiliary phase."""

    policy: Any
    auxiliary: Any


class Proximal(NamedTuple):
    """An exponential average of recent parameters, divided by the sum of its weights."""

    network: Any
    weight: jax.Array


class OffPolicyState(NamedTuple):
    """Everything that a resumed run needs; None where a setting turns it off."""

    network: Any
    proximal: Proximal
    opt_states: OffPolicyOptStates
    rewards: Rewards | None
    values: Running | None
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedules
    carry: jax.Array | None = None  # [W, H]: the value network's own recurrent state between collections


class Minibatches(NamedTuple):
    """One minibatch of each store."""

    policy: Batch
    value: Batch


# With a new rollout: what segments keep of the networks that collected them.


def complete(config: OffPolicyPPG, state: OffPolicyState, columns: Columns) -> tuple[OffPolicyState, Columns]:
    """Add the values [C, T] at the collection, in scaled rewards, and a recurrent value network's own state."""
    state, value, _, begins = values_of_segments(state, columns)
    return state, begins if config.value_clip is None else {**begins, "old_value": value_unit(state) * value}


# Before every update: value targets and advantages by the current networks.


def count_rewards(config: OffPolicyPPG, state: OffPolicyState, columns: Columns) -> tuple[OffPolicyState, Columns]:
    """Add a new rollout to the reward statistics."""
    return scale_rewards(config, state, columns)[0], {}


def with_vtrace(config: OffPolicyPPG, state: OffPolicyState, batch: Batch) -> Batch:
    """Return the batch with `target`, `advantage`, `value`, and `log_behaviour`, pi over mu; all [B, T]."""
    data, unit = batch.data, value_unit(state)
    start = segment_starts(data)
    if start:
        value, following, _ = state.network.values_of_segment(data["observation"], data["following"], *start)
    else:
        value, following = (state.network.value_of(data[name]) for name in ("observation", "following"))
    value, following = unit * value, unit * following
    policy = state.network.policy(data["observation"], data.get("mask"), *start)
    log_behaviour = policy.log_probability(data["action"]) - data["log_probability"]
    flags = data["terminated"], data["truncated"], data["valid"]
    discount = discount_of(config.discount, data.get("elapsed"))
    settings = discount, config.gae_lambda, config.rho_bar, config.c_bar
    target, advantage = vtrace(
        log_behaviour, scaled(config, state, data["reward"]), value, following, *flags, *settings
    )
    columns = {"target": target, "advantage": advantage, "value": value, "log_behaviour": log_behaviour}
    return batch._replace(data=data | columns)


def with_policy_inputs(config: OffPolicyPPG, state: OffPolicyState, batch: Batch) -> Batch:
    """Return the policy's batch with its loss inputs: `log_proximal`, prox over mu, and normalised advantages."""
    batch = with_vtrace(config, state, batch)
    data = batch.data
    seen = data["observation"], data.get("mask"), *segment_starts(data)
    proximal = state.proximal.network.policy(*seen).log_probability(data["action"])
    if config.advantage_normalisation:
        data = data | {"advantage": standardise(data["advantage"], data["valid"])}
    return batch._replace(data=data | {"log_proximal": proximal - data["log_probability"]})


# Losses: each returns the mean over the minibatch and its metrics.


def policy_loss(network: Any, config: OffPolicyPPG, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the decoupled surrogate with entropy bonus."""
    data = batch.data
    policy = network.policy(data["observation"], data.get("mask"), *segment_starts(data))
    log_weight, advantage = data["log_proximal"], data["advantage"]
    log_ratio = policy.log_probability(data["action"]) - data["log_probability"] - log_weight
    gain = batch.mean(decoupled_surrogate(log_ratio, log_weight, advantage, config.clip, config.most_weight))
    entropy = batch.mean(policy.entropy())
    beyond = 0.0 if config.clip is None else jnp.abs(jnp.exp(log_ratio) - 1.0) > config.clip
    return gain - config.entropy_bonus * entropy, {
        "policy_loss": gain,
        "entropy": entropy,
        "approx_kl": batch.average(ratio_divergence(log_ratio)),
        "clip_fraction": batch.average(jnp.broadcast_to(beyond, log_ratio.shape)),
        "advantage_max": jnp.max(jnp.abs(advantage)),
        **weight_metrics(config, batch, log_ratio, log_weight),
    }


def weight_metrics(
    config: OffPolicyPPG, batch: Batch, log_ratio: jax.Array, log_weight: jax.Array
) -> dict[str, jax.Array]:
    """Return the ratio to the behaviour policy and the age of the segments."""
    used = jnp.exp(truncated_weight(log_ratio, log_weight, config.most_weight) + log_ratio)
    cut = (log_weight + jnp.maximum(log_ratio, 0.0)) > jnp.log(config.most_weight)
    mean = batch.average(used)
    return {
        "effective_share": jnp.square(mean) / jnp.maximum(batch.average(jnp.square(used)), 1e-12),
        "ratio_mean": mean,
        "truncated_share": batch.average(cut),
        "staleness": jnp.mean(batch.data["age"].astype(jnp.float32)),
    }


def value_loss(
    network: Any, config: OffPolicyPPG, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the weighted squared error of the value, in units of the value network."""
    data = batch.data
    value = network(data["observation"], data.get("mask"), *segment_starts(data))[1]
    target, current = data["target"] / unit, data["value"] / unit
    old = current if config.value_clip is None else data["old_value"] / unit
    error = batch.mean(value_error(value, target, old, config.value_clip))
    metrics = {"value_loss": 0.5 * error, "explained_variance": batch.explained_variance(target, current)}
    return config.value_weight * error, metrics | {"value_staleness": jnp.mean(data["age"].astype(jnp.float32))}


def joint_loss(
    network: Any, config: OffPolicyPPG, drawn: Minibatches, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the decoupled surrogate with entropy bonus on one minibatch plus the value error on the other."""
    (p_loss, policy_metrics), (v_loss, value_metrics) = (
        policy_loss(network, config, drawn.policy),
        value_loss(network, config, drawn.value, unit),
    )
    return p_loss + v_loss, policy_metrics | value_metrics


# The updates.


def step(config: OffPolicyPPG, state: OffPolicyState, batch: dict[str, Batch]) -> tuple[OffPolicyState, Feedback]:
    """Do one update of policy and value, and of the proximal average."""
    state, drawn = prepared(config, state, batch)
    state, feedback = ppg_common.gradient_update(config, state, drawn, joint_loss, "policy", config.learning_rate)
    return state._replace(proximal=averaged(state.proximal, state.network, config.proximal_decay)), feedback


def auxiliary_step(config: OffPolicyPPG, state: OffPolicyState, batch: Batch) -> tuple[OffPolicyState, Feedback]:
    """Do one update of the whole network with the auxiliary optimiser; the proximal average restarts."""
    batch = with_vtrace(config, state, batch)
    state, feedback = ppg_common.gradient_update(
        config, state, batch, auxiliary_loss, "auxiliary", config.auxiliary_learning_rate
    )
    return state._replace(proximal=restarted(state.network)), feedback


def prepared(
    config: OffPolicyPPG, state: OffPolicyState, batch: dict[str, Batch]
) -> tuple[OffPolicyState, Minibatches]:
    """Return both minibatches with the inputs of their losses; also update the target statistics where they exist."""
    policy, value = with_policy_inputs(config, state, batch["policy"]), with_vtrace(config, state, batch["value"])
    if state.values is not None:
        weight = value.data["valid"].astype(jnp.float32)
        state = state._replace(values=add_values(state.values, value.data["target"], weight))
    return state, Minibatches(policy, value)


def averaged(proximal: Proximal, network: Any, decay: jax.Array | float) -> Proximal:
    """Return the average one policy step later: weight 1 for the newest parameters, `decay` for the older ones."""
    weight = decay * proximal.weight + 1.0
    return Proximal(polyak_update(proximal.network, network, 1.0 / weight), weight)


def restarted(network: Any) -> Proximal:
    """Return the average of these parameters alone."""
    return Proximal(network, jnp.ones(()))


def losses(
    config: OffPolicyPPG, state: OffPolicyState, batch: dict[str, Batch], key: jax.Array
) -> dict[str, jax.Array]:
    """Return the losses of the current policy and value, without an update."""
    state, drawn = prepared(config, state, batch)
    metrics = joint_loss(state.network, config, drawn, value_unit(state))[1]
    return {name: metrics[name] for name in ("policy_loss", "value_loss")}


def auxiliary_losses(config: OffPolicyPPG, state: OffPolicyState, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """Return the losses of the auxiliary phase for the current networks, without an update."""
    metrics = auxiliary_loss(state.network, config, with_vtrace(config, state, batch), value_unit(state))[1]
    return {name: metrics[name] for name in ("aux_value_loss", "value_loss")}


PRESETS: dict[str, dict[str, Any]] = {
    "classic-control": {
        "num_envs": 8,
        "rollout_steps": 64,
        "update_per_collect": 16,
        "minibatch": 16,
        "policy_capacity": 32,
        "policy_max_use": 64,
        "value_capacity": 64,
        "value_max_use": 200,
        "aux_every": 8,
        "auxiliary_minibatch": 8,
        "entropy_bonus": 0.0,
        "learning_rate": 2.5e-3,
        "auxiliary_learning_rate": 1e-3,
    },
}


@algorithm("off-policy-ppg")
class OffPolicyPPG:
    """Phasic policy gradient over replayed segments: V-trace, decoupled clipping, an auxiliary phase over the store.

    Example:
        >>> algorithm = tl.OffPolicyPPG(num_envs=64, rollout_steps=4, hidden=(16,))
        >>> run = tl.learn(algorithm, "jax:treatment", steps=1_024, train=False)  # `run.stream()` trains it
        >>> run.policy().spec.action.n
        6
    """

    update_per_collect: int = field(5, least=1, help="updates of policy and value after each collection", group=MAIN)
    minibatch: int = field(64, least=1, help="segments per update from each store")
    policy_capacity: int = field(1024, least=1, help="capacity of the policy's store, in segments")
    value_capacity: int = field(1024, least=1, help="capacity of the value's store, in segments")
    policy_max_use: int = field(10, least=1, help="largest number of draws of a segment of the policy's store")
    value_max_use: int = field(100, least=1, help="largest number of draws of a segment of the value's store")
    policy_max_staleness: int | None = field(None, least=1, help="largest age of the policy's segments, in updates")
    value_max_staleness: int | None = field(None, least=1, help="largest age of the value's segments, in updates")
    aux_every: int = field(32, least=1, help="collections between two auxiliary phases")
    auxiliary_epochs: int = field(6, least=0, help="0: no auxiliary phase")
    beta_clone: float = field(1.0, least=0.0, help="weight of the KL divergence in the auxiliary phase")
    clip: float | None = field(
        0.2, least=0.0, open_ends=True, help="PPO clip range of the ratio to the proximal policy"
    )
    proximal_decay: float = field(8 / 9, least=0.0, most=1.0, help="decay of the average of the proximal policy")
    most_weight: float = field(100.0, least=0.0, open_ends=True, help="cap on the ratio to the behaviour policy")
    rho_bar: float = field(
        1.0, least=0.0, open_ends=True, help="V-trace: cap on the ratio that multiplies the TD error"
    )
    c_bar: float = field(1.0, least=0.0, open_ends=True, help="V-trace: cap on the ratio in the trace")
    entropy_bonus: float = field(0.01, least=0.0, help="weight of the policy's entropy")
    value_weight: float = field(0.5, least=0.0, help="weight of the value loss in the policy phase")
    discount: float = fields.discount(0.99)
    gae_lambda: float = field(
        0.95, least=0.0, most=1.0, help="decay of generalised advantage estimation", group="value"
    )
    learning_rate: float = fields.learning_rate(5e-4, "the policy phase", group=MAIN)
    auxiliary_learning_rate: float = fields.learning_rate(5e-4, "the auxiliary phase")
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "the gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    value_clip: float | None = fields.value_clip(None, "the value around that at the collection")
    num_envs: int = field(64, least=1, help="parallel environment copies", group=MAIN)
    rollout_steps: int = field(256, least=1, help="decisions of each copy in a collection (a segment)")
    auxiliary_minibatch: int = fields.auxiliary_minibatch(4)
    reward_normalisation: bool = fields.reward_normalisation(True)
    reward_discount: float = fields.reward_discount(0.99)
    reward_clip: float = fields.reward_clip(10.0)
    value_normalisation: bool = fields.value_normalisation(False)
    advantage_normalisation: bool = field(True, help="standardise the advantages")
    architecture: Architecture = fields.architecture("dual")
    hidden: tuple[int, ...] = fields.widths((64, 64), "hidden layers", least=0)
    policy_hidden: tuple[int, ...] = fields.policy_hidden()
    value_hidden: tuple[int, ...] = fields.value_hidden()
    activation: Activation = fields.activation("tanh")
    layer_norm: bool = fields.layer_norm(False)
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_width: int = fields.picture_width(256)
    recurrent_size: int | None = fields.recurrent_size(None)
    network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module, used like a Phasic")

    takes: ClassVar[tuple[type, ...]] = (Discrete, MultiDiscrete, Continuous, Hybrid)
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    @classmethod
    def preset(cls, name: str) -> OffPolicyPPG:
        """Return the settings for a family of problems: classic-control."""
        return cls(**chosen_preset("OffPolicyPPG", PRESETS, name))

    @classmethod
    def preset_for(cls, spec: Spec) -> str | None:
        """Return the name of the preset for the observations of an environment, None for pictures."""
        pictures = any(isinstance(leaf, Image) for leaf in spec.observation.values())
        return None if pictures else "classic-control"

    def check(self) -> None:
        """Raise ConfigError where a store could have no live segments before the next collection."""
        check_network(self)
        last = self.update_per_collect if self.auxiliary_epochs else self.update_per_collect - 1
        for store, updates in (("policy", self.update_per_collect - 1), ("value", last)):
            check_lives(self, store, updates)

    def collection(self) -> Collection:
        """Return the collection: a segment per copy, into both stores; rewards also into `fresh` for their scaling."""
        counted = ("fresh",) if self.reward_normalisation else ()
        completed = None if self.value_clip is None and self.recurrent_size is None else complete
        return Collection(self.num_envs, self.rollout_steps, ("policy", "value", *counted), complete=completed)

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Return two ring buffers of segments with the behaviour policy's log-probabilities, and the new rewards."""
        mask = ("mask",) if spec.masked else ()
        flags = ("reward", "elapsed", "terminated", "truncated", "valid")
        begins = () if self.recurrent_size is None else ("first", "carry", "value_carry")
        whole = ("observation", *mask, "action", "log_probability", *flags, "following", *begins)
        old = () if self.value_clip is None else ("old_value",)
        fresh = {"fresh": StoreSpec(flags, self.num_envs)} if self.reward_normalisation else {}
        return {
            "policy": StoreSpec(whole, self.policy_capacity, self.policy_max_use, self.policy_max_staleness),
            "value": StoreSpec((*whole, *old), self.value_capacity, self.value_max_use, self.value_max_staleness),
            **fresh,
        }

    def phases(self) -> tuple[Phase, ...]:
        """Return the policy phase over both stores, and the auxiliary phase over `value` every `aux_every` rounds."""
        policy = Phase(
            name="policy",
            samplers={name: Sampler(name, self.minibatch, Whole(), LiveUniform()) for name in ("policy", "value")},
            step=step,
            losses=losses,
            updates=lambda config, round: config.update_per_collect,
            prepare=count_rewards if self.reward_normalisation else None,
            over="fresh" if self.reward_normalisation else None,
        )
        auxiliary = Phase(
            name="auxiliary",
            samplers=Sampler("value", self.auxiliary_minibatch, Whole(), LivePasses()),
            step=auxiliary_step,
            losses=auxiliary_losses,
            updates=_auxiliary_updates,
            prepare=record_old_policy,
            conclude=kl_after,
        )
        return (policy, *([auxiliary] if self.auxiliary_epochs else []))

    def init(self, spec: Spec, key: jax.Array, updates: int) -> OffPolicyState:
        """Return a new network, its own average, and empty statistics, for a run of `updates` updates."""
        network = ppg_common.new_network(self, spec, key)
        opt_states = OffPolicyOptStates(
            init_opt_state(self.optimiser, network),
            init_opt_state(self.optimiser, network) if self.auxiliary_epochs else None,
        )
        rewards, values = ppg_common.initial_rewards(self), ppg_common.initial_values(self)
        proximal = restarted(copied(network))
        carry = ppg_common.initial_value_carry(self, network)
        return OffPolicyState(network, proximal, opt_states, rewards, values, jnp.int32(0), jnp.int32(updates), carry)

    with_new_episodes = ppg_common.with_new_episodes
    policy_params = ppg_common.policy_params
    initial_state = ppg_common.initial_state
    act = ppg_common.act
    distribution = ppg_common.distribution
    recipe = ppg_common.recipe_of


def _auxiliary_updates(config: OffPolicyPPG, round: int) -> int:
    held = min(config.value_capacity, (round + 1) * config.num_envs)
    due = (round + 1) % config.aux_every == 0
    return config.auxiliary_epochs * -(-held // config.auxiliary_minibatch) if due else 0
