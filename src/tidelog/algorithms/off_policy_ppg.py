"""Phasic policy gradient that learns from segments again and again, whoever of its earlier policies played them.

No paper defines it; this definition is ours. It joins the phases of Cobbe et al. 2020 (arXiv:2009.04416), the targets
of Espeholt et al. 2018 (arXiv:1802.01561) and the decoupled objective of Hilton et al. 2021 (arXiv:2110.00641).

Every collected segment goes into two rings, `policy` and `value`, and lives there until it was drawn `max_use` times or
is more than `max_staleness` updates old. A round collects and takes `update_per_collect` updates; every `aux_every`
rounds the auxiliary phase follows.

| loss (per step) | over | reads |
|---|---|---|
| `-(prox / mu) min(r A, clip(r) A) - entropy_bonus H`, `r = pi / prox` | `policy` | A by V-trace, before this update |
| `value_weight (V - v)**2`, in the same update | `value` | v by V-trace, before this update |
| auxiliary: `0.5 (Vaux - v)**2 + beta_clone KL(old, new)` | `value` | v likewise; pi **before** this phase |
| the same update: `0.5 (V - v)**2` | `value` | the same v |

mu is who played, prox an average of recent parameters. Targets and advantages are never stored: networks as they stand
make them at every use. What an update reads and descends is in `replay_phase.py`, the auxiliary phase in
`auxiliary.py`; how a state begins, steps and acts is in `phasic.py`, as for PPG.

At the ends of its dials: with prox held at mu it is PPO's loss; with `proximal_decay` 0 the clip never binds and it is
the importance-weighted policy gradient; one minibatch that is the whole fresh rollout makes the first update PPG's.

Letters: `B` segments of a minibatch, `T` steps, `C` segments of a store, `W` copies, `A` actions or action size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.core import fields
from tidelog.algorithms.core.contract import Collection, DistillationTarget, Feedback, Phase, StoreSpec
from tidelog.algorithms.core.hyperparameters import chosen_preset, hyper, number, own, static
from tidelog.algorithms.core.optimisation import (
    Schedule,
    Transformation,
    constant,
    copied,
    init_opt_state,
    polyak_update,
)
from tidelog.algorithms.core.running_statistics import Running, merged
from tidelog.algorithms.core.sampling import Batch, Sampler
from tidelog.algorithms.core.segments import Living, Passes, Whole, check_lives
from tidelog.algorithms.phasic import network_step as phasic
from tidelog.algorithms.phasic.auxiliary_phase import Rewards, auxiliary_loss, drift, freeze, value_unit
from tidelog.algorithms.phasic.replay_phase import count_rewards, judged, policy_loss, traced, value_loss
from tidelog.networks.convolution import Layers, by_size
from tidelog.networks.mlp import ACTIVATIONS, Activation
from tidelog.networks.phasic import ARCHITECTURES, Architecture
from tidelog.types import Continuous, Discrete, MultiDiscrete, Spec


class OptStates(NamedTuple):
    """What the optimisers remember: of the policy phase, and of the auxiliary phase."""

    policy: Any
    auxiliary: Any


class Proximal(NamedTuple):
    """An exponential average of recent parameters, divided by the weight that it has gathered."""

    network: Any
    weight: jax.Array


class State(NamedTuple):
    """Everything that a resumed run needs; None where a switch turns it off."""

    network: Any
    proximal: Proximal
    opt_states: OptStates
    rewards: Rewards | None
    values: Running | None
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedules


class Drawn(NamedTuple):
    """A minibatch of each store."""

    policy: Batch
    value: Batch


# The loss: the mean over the minibatches and its metrics.


def joint_loss(
    network: Any, config: OffPolicyPPG, drawn: Drawn, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The decoupled surrogate with its entropy bonus on one minibatch, the value's error on the other."""
    (p_loss, policy_metrics), (v_loss, value_metrics) = (
        policy_loss(network, config, drawn.policy),
        value_loss(network, config, drawn.value, unit),
    )
    return p_loss + v_loss, policy_metrics | value_metrics


# The updates.


def step(config: OffPolicyPPG, state: State, batch: dict[str, Batch]) -> tuple[State, Feedback]:
    """One update of policy and value, and a step of the proximal average."""
    state, drawn = prepared(config, state, batch)
    state, feedback = phasic.descended(config, state, drawn, joint_loss, "policy", config.learning_rate)
    return state._replace(proximal=averaged(state.proximal, state.network, config.proximal_decay)), feedback


def auxiliary_step(config: OffPolicyPPG, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of everything by the auxiliary phase's own optimiser; the proximal average begins anew."""
    batch = traced(config, state, batch)
    state, feedback = phasic.descended(
        config, state, batch, auxiliary_loss, "auxiliary", config.auxiliary_learning_rate
    )
    return state._replace(proximal=restarted(state.network)), feedback


def prepared(config: OffPolicyPPG, state: State, batch: dict[str, Batch]) -> tuple[State, Drawn]:
    """Both minibatches as their losses read them, and where values are normalised the spread of their targets."""
    policy, value = judged(config, state, batch["policy"]), traced(config, state, batch["value"])
    if state.values is not None:
        weight = value.data["valid"].astype(jnp.float32)
        state = state._replace(values=merged(state.values, value.data["target"], weight))
    return state, Drawn(policy, value)


def averaged(proximal: Proximal, network: Any, decay: jax.Array | float) -> Proximal:
    """The average one policy step later: the newest parameters weigh 1, all earlier ones `decay` of what they did."""
    weight = decay * proximal.weight + 1.0
    return Proximal(polyak_update(proximal.network, network, 1.0 / weight), weight)


def restarted(network: Any) -> Proximal:
    """The average of these parameters alone."""
    return Proximal(network, jnp.ones(()))


def losses(config: OffPolicyPPG, state: State, batch: dict[str, Batch], key: jax.Array) -> dict[str, jax.Array]:
    """The losses of policy and value as the networks stand, without a step."""
    state, drawn = prepared(config, state, batch)
    metrics = joint_loss(state.network, config, drawn, value_unit(state))[1]
    return {name: metrics[name] for name in ("policy_loss", "value_loss")}


def auxiliary_losses(config: OffPolicyPPG, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The losses of the auxiliary phase as the networks stand, without a step."""
    metrics = auxiliary_loss(state.network, config, traced(config, state, batch), value_unit(state))[1]
    return {name: metrics[name] for name in ("aux_value_loss", "value_loss")}


# A fresh state.


def init(config: OffPolicyPPG, spec: Spec, key: jax.Array, updates: int) -> State:
    """A fresh network, which is its own average; nothing seen of rewards and values."""
    network = phasic.fresh_network(config, spec, key)
    opt_states = OptStates(
        init_opt_state(config.optimiser, network),
        init_opt_state(config.optimiser, network) if config.auxiliary_epochs else None,
    )
    rewards, values = phasic.unseen_rewards(config), phasic.unseen_values(config)
    return State(network, restarted(copied(network)), opt_states, rewards, values, jnp.int32(0), jnp.int32(updates))


PRESETS: dict[str, dict[str, Any]] = {
    "classic-control": {
        "environments": 8,
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


@hyper
class OffPolicyPPG:
    """Phasic policy gradient over replayed segments: V-trace, decoupled clipping, an auxiliary phase over the store."""

    update_per_collect: int = static(5, least=1, help="updates of policy and value after each collection")
    minibatch: int = static(64, least=1, help="segments that an update draws from each store")
    policy_capacity: int = static(1024, least=1, help="segments that the policy's store holds")
    value_capacity: int = static(1024, least=1, help="segments that the value's store holds")
    policy_max_use: int = static(10, least=1, help="how often the policy's segments are drawn, at most")
    value_max_use: int = static(100, least=1, help="how often the value's segments are drawn, at most")
    policy_max_staleness: int | None = static(None, least=1, help="updates that the policy's segments live, at most")
    value_max_staleness: int | None = static(None, least=1, help="updates that the value's segments live, at most")
    aux_every: int = static(32, least=1, help="collections between two auxiliary phases")
    auxiliary_epochs: int = static(6, least=0, help="0: no auxiliary phase")
    beta_clone: float = number(1.0, least=0.0, help="weight of what holds the policy in the auxiliary phase")
    clip: float | None = number(0.2, least=0.0, open_ends=True, help="how far a ratio to the proximal policy may gain")
    proximal_decay: float = number(8 / 9, least=0.0, most=1.0, help="of the average that is the proximal policy")
    most_weight: float = number(100.0, least=0.0, open_ends=True, help="largest ratio to the behaviour policy")
    rho_bar: float = number(1.0, least=0.0, open_ends=True, help="largest ratio on a surprise, in value targets")
    c_bar: float = number(1.0, least=0.0, open_ends=True, help="largest ratio along a trace")
    entropy_bonus: float = number(0.01, least=0.0)
    value_weight: float = number(0.5, least=0.0, help="of the squared error, in the policy phase")
    discount: float = fields.discount(0.99)
    gae_lambda: float = number(0.95, least=0.0, most=1.0)
    learning_rate: float = fields.learning_rate(5e-4)
    auxiliary_learning_rate: float = fields.learning_rate(5e-4)
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "the gradient")
    environments: int = static(64, least=1, help="copies played side by side")
    rollout_steps: int = static(256, least=1, help="decisions of each copy in a collection: a segment")
    auxiliary_minibatch: int = static(4, least=1, help="whole segments in an auxiliary update")
    reward_normalisation: bool = static(True)
    reward_discount: float = number(
        0.99, least=0.0, most=1.0, help="of the returns whose spread is the unit of rewards"
    )
    reward_clip: float = number(10.0, least=0.0, open_ends=True, help="largest normalised reward")
    value_normalisation: bool = static(False)
    advantage_normalisation: bool = static(True)
    architecture: Architecture = static(ARCHITECTURES["dual"], choices=ARCHITECTURES)
    hidden: tuple[int, ...] = fields.widths((64, 64), "hidden layers", least=0)
    activation: Activation = static(ACTIVATIONS["tanh"], choices=ACTIVATIONS)
    layer_norm: bool = fields.layer_norm(False)
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_width: int = fields.picture_width(256)
    network: Callable[[Spec, jax.Array], Any] | None = own("makes a module of your own, used like a Phasic")

    takes: ClassVar[tuple[type, ...]] = (Discrete, MultiDiscrete, Continuous)
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    @classmethod
    def preset(cls, name: str) -> OffPolicyPPG:
        """Settings for a family of problems: classic-control."""
        return cls(**chosen_preset("OffPolicyPPG", PRESETS, name))

    def check(self) -> None:
        """Raise ConfigError where a store could run out of segments that live before new ones come."""
        last = self.update_per_collect if self.auxiliary_epochs else self.update_per_collect - 1
        for store, updates in (("policy", self.update_per_collect - 1), ("value", last)):
            check_lives(self, store, updates)

    def collection(self) -> Collection:
        """A segment of every copy, into both stores; the rewards also where their spread is counted."""
        counted = ("fresh",) if self.reward_normalisation else ()
        return Collection(self.environments, self.rollout_steps, ("policy", "value", *counted))

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Two rings of whole segments with the log-probabilities of who played, and the fresh rewards."""
        mask = ("mask",) if spec.masked else ()
        flags = ("reward", "terminated", "truncated", "valid")
        whole = ("observation", *mask, "action", "log_probability", *flags, "following")
        fresh = {"fresh": StoreSpec(flags, self.environments)} if self.reward_normalisation else {}
        return {
            "policy": StoreSpec(whole, self.policy_capacity, self.policy_max_use, self.policy_max_staleness),
            "value": StoreSpec(whole, self.value_capacity, self.value_max_use, self.value_max_staleness),
            **fresh,
        }

    def phases(self) -> tuple[Phase, ...]:
        """The policy phase over both stores, and every so many rounds the auxiliary phase over the value's."""
        reads = {name: Sampler(name, self.minibatch, Whole(), Living()) for name in ("policy", "value")}
        before, over = (count_rewards, "fresh") if self.reward_normalisation else (None, None)
        policy = Phase("policy", reads, step, losses, _policy_updates, before, over=over)
        again = Sampler("value", self.auxiliary_minibatch, Whole(), Passes())
        auxiliary = Phase("auxiliary", again, auxiliary_step, auxiliary_losses, _auxiliary_updates, freeze, drift)
        return (policy, *((auxiliary,) if self.auxiliary_epochs else ()))

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """A fresh network for a run of `updates` steps."""
        return init(self, spec, key, updates)

    def taught(self, state: State, lesson: DistillationTarget, key: jax.Array, updates: int) -> tuple[State, jax.Array]:
        """A fresh state whose policy, and its average, does what a lesson says; its mean divergence from that."""
        state, divergence = phasic.taught(self, state, lesson, key, updates)
        return state._replace(proximal=restarted(copied(state.network))), divergence

    begun_anew = phasic.begun_anew
    policy_params = phasic.policy_params
    start = phasic.start
    act = phasic.act
    distribution = phasic.distribution
    q_values = phasic.q_values
    recipe = phasic.recipe_of


def _policy_updates(config: OffPolicyPPG, round: int) -> int:
    return config.update_per_collect


def _auxiliary_updates(config: OffPolicyPPG, round: int) -> int:
    held = min(config.value_capacity, (round + 1) * config.environments)
    due = (round + 1) % config.aux_every == 0
    return config.auxiliary_epochs * -(-held // config.auxiliary_minibatch) if due else 0
