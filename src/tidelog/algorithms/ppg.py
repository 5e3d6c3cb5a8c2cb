"""Phasic policy gradient (PPG), and PPO without the auxiliary phase.

Cobbe, Hilton, Klimov, Schulman 2020, arXiv:2009.04416; reference implementation: openai/phasic-policy-gradient.

Algorithm 1, as the loop of rounds runs it (`tests/algorithms/test_schedule_of_ppg.py` compares them):

    for round in rounds:
        collect(num_envs * rollout_steps)
        if value_epochs != policy_epochs:
            for update in range(value_epochs * minibatches):
                value_step()
        for update in range(policy_epochs * minibatches):
            policy_step()  # with the value where the epochs are equal
        if auxiliary_epochs and (round + 1) % policy_iterations == 0:
            for update in range(auxiliary_epochs * num_envs * policy_iterations // auxiliary_minibatch):
                auxiliary_step()

Before the first update of a round `estimate` computes advantages and targets of the rollout; before the auxiliary phase
`record_old_policy` computes the policy that it clones, on all rollouts since the last one.

| phase | loss (per step) | reads |
|---|---|---|
| value, with separate epochs | `value_weight (V - target)**2` | targets by the **value** network before the round |
| policy, else with value | `-min(r A, clip(r) A) - entropy_bonus H` | A likewise; pi of the **sampled** action then |
| auxiliary | `0.5 (Vaux - target)**2 + beta_clone KL(old, new)` | every rollout's targets; pi **before** this phase |
| the same update | `0.5 (V - target)**2` | the same targets |

`ppg_common.py` has the auxiliary phase, the initial network and acting, as for off-policy PPG; errors of single steps
are in `losses/`. As in the reference, the value epochs run before the policy epochs. Limits: without auxiliary epochs
it is PPO (with `shared` and equal epochs textbook PPO); with `beta_clone` 0 the auxiliary phase does not constrain the
policy.

Deliberate differences from the reference: a time limit bootstraps from the true next observation (there it counts as
an end); rows in which an environment only resets are not valid; `single` and `shared` have no second value head, their
value is the auxiliary one; heads start small and orthogonal, unless there are pictures.

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
from tidelog.algorithms.optimisation import Schedule, Transformation, constant, init_opt_state, tree_where
from tidelog.algorithms.ppg_common import (
    Rewards,
    Running,
    add_values,
    auxiliary_loss,
    check_network,
    kl_after,
    record_old_policy,
    scale_rewards,
    segment_starts,
    standardise,
    value_unit,
    values_of_segments,
)
from tidelog.algorithms.sampling import Batch, Sampler
from tidelog.algorithms.segments import Columns, Epochs, Whole, check_divides
from tidelog.algorithms.short_form import algorithm, configure
from tidelog.losses.policy import ratio_divergence, surrogate
from tidelog.losses.td import advantages, discount_of, value_error
from tidelog.networks.layers import Activation
from tidelog.networks.phasic import Architecture
from tidelog.networks.pictures import Layers, by_size
from tidelog.types import Continuous, Discrete, Hybrid, Image, MultiDiscrete, Spec


class OptStates(NamedTuple):
    """The optimiser states of the policy phase, of separate value epochs, and of the auxiliary phase."""

    policy: Any
    value: Any
    auxiliary: Any


class PPGState(NamedTuple):
    """Everything that a resumed run needs; None where a setting turns it off."""

    network: Any
    opt_states: OptStates
    rewards: Rewards | None
    values: Running | None
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedules
    carry: jax.Array | None = None  # [W, H]: the value network's own recurrent state between rollouts
    observations: dict[str, Running] | None = None
    stopped: jax.Array | None = None  # bool: `target_kl` has ended this round's policy updates


# Before the policy phase: scaled rewards, advantages, value targets.


def estimate(config: PPG, state: PPGState, columns: Columns) -> tuple[PPGState, Columns]:
    """Return advantages, value targets and values [C, T] of a new rollout, by the value network.

    With value normalisation these targets change the value unit; `value` is then in the new unit, as the losses use it.
    """
    state, reward = scale_rewards(config, state, columns)
    if config.target_kl is not None:
        state = state._replace(stopped=jnp.array(False))
    unit = value_unit(state)
    state, value, following, begins = values_of_segments(state, columns, config.num_chunks)
    value, following = unit * value, unit * following
    flags = columns["terminated"], columns["truncated"], columns["valid"]
    discount = discount_of(config.discount, columns.get("elapsed"))
    advantage = advantages(reward, value, following, *flags, discount, config.gae_lambda)
    target = value + advantage
    if state.values is not None:
        state = state._replace(values=add_values(state.values, target, columns["valid"].astype(jnp.float32)))
        value = value * (value_unit(state) / unit)
    if config.advantage_normalisation:
        advantage = standardise(advantage, columns["valid"])
    return state, {"advantage": advantage, "target": target, "value": value, **begins}


# Losses of the policy phase: each returns the mean over the minibatch and its metrics.


def policy_loss(
    network: Any, config: PPG, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the clipped surrogate with entropy bonus, plus the weighted ratio divergence where it has a weight."""
    data = batch.data
    return _policy_loss(network.policy(data["observation"], data.get("mask"), *segment_starts(data)), config, batch)


def value_loss(
    network: Any, config: PPG, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the weighted squared error of the value, in units of the value network."""
    data = batch.data
    return _value_loss(network(data["observation"], data.get("mask"), *segment_starts(data))[1], config, batch, unit)


def joint_loss(
    network: Any, config: PPG, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the sum of the policy loss and the value loss."""
    policy, value = network(batch.data["observation"], batch.data.get("mask"), *segment_starts(batch.data))
    (p_loss, policy_metrics), (v_loss, value_metrics) = (
        _policy_loss(policy, config, batch),
        _value_loss(value, config, batch, unit),
    )
    return p_loss + v_loss, policy_metrics | value_metrics


def _policy_loss(policy: Any, config: PPG, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
    log_ratio = policy.log_probability(batch.data["action"]) - batch.data["log_probability"]
    gain, entropy = batch.mean(surrogate(log_ratio, batch.data["advantage"], config.clip)), batch.mean(policy.entropy())
    divergence = batch.mean(ratio_divergence(log_ratio))
    loss = gain - config.entropy_bonus * entropy
    beyond = 0.0 if config.clip is None else jnp.abs(jnp.exp(log_ratio) - 1.0) > config.clip
    return loss if config.divergence_weight is None else loss + config.divergence_weight * divergence, {
        "policy_loss": gain,
        "entropy": entropy,
        "approx_kl": divergence,
        "clip_fraction": batch.average(jnp.broadcast_to(beyond, log_ratio.shape)),
        "advantage_max": jnp.max(jnp.abs(batch.data["advantage"])),
    }


def _value_loss(
    value: jax.Array, config: PPG, batch: Batch, unit: jax.Array | float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    target, old = batch.data["target"] / unit, batch.data["value"] / unit
    error = batch.mean(value_error(value, target, old, config.value_clip))
    metrics = {"value_loss": 0.5 * error, "explained_variance": batch.explained_variance(target, old)}
    return config.value_weight * error, metrics


# The updates.


def policy_step(config: PPG, state: PPGState, batch: Batch) -> tuple[PPGState, Feedback]:
    """Do one update of the policy, and of the value where their epochs are equal.

    With `target_kl`, a minibatch whose divergence is larger changes nothing, and neither do later ones of the round.
    """
    loss = joint_loss if config.policy_epochs == config.value_epochs else policy_loss
    updated, feedback = ppg_common.gradient_update(config, state, batch, loss, "policy", config.learning_rate)
    if config.target_kl is None:
        return updated, feedback
    before: Any = state.stopped
    stopped = before | (feedback.metrics["approx_kl"] > config.target_kl)
    updated = tree_where(~stopped, state._replace(step=updated.step), updated)._replace(stopped=stopped)
    return updated, Feedback(feedback.metrics | {"stopped_share": stopped.astype(jnp.float32)})


def value_step(config: PPG, state: PPGState, batch: Batch) -> tuple[PPGState, Feedback]:
    """Do one update of the value in its separate epochs."""
    return ppg_common.gradient_update(config, state, batch, value_loss, "value", config.learning_rate)


def auxiliary_step(config: PPG, state: PPGState, batch: Batch) -> tuple[PPGState, Feedback]:
    """Do one update of the whole network with the auxiliary optimiser."""
    return ppg_common.gradient_update(config, state, batch, auxiliary_loss, "auxiliary", config.auxiliary_learning_rate)


def losses_of(loss: Callable[..., Any]) -> Callable[..., dict[str, jax.Array]]:
    """Return a function of the losses of a phase for the current networks, without an update."""

    def losses(config: PPG, state: PPGState, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
        metrics: dict[str, jax.Array] = loss(state.network, config, batch, value_unit(state))[1]
        return {name: value for name, value in metrics.items() if name.endswith("loss")}

    return losses


ATARI_FRAME = (84, 84)  # the size after the usual reduction of its frames
PRESETS: dict[str, dict[str, Any]] = {
    "procgen": {"hidden": (), "convolutions": "impala"},  # Cobbe et al. 2020, appendix A: the defaults and its network
    "atari": {
        "num_envs": 8,
        "rollout_steps": 128,
        "discount": 0.99,
        "clip": 0.1,
        "learning_rate": 2.5e-4,
        "hidden": (),
        "convolutions": "nature",
        "picture_width": 512,
    },
    "classic-control": {
        "num_envs": 16,
        "rollout_steps": 128,
        "policy_iterations": 4,
        "policy_epochs": 4,
        "value_epochs": 4,
        "minibatches": 4,
        "auxiliary_minibatch": 8,
        "discount": 0.99,
        "entropy_bonus": 0.0,
        "learning_rate": 2.5e-3,
        "auxiliary_learning_rate": 1e-3,
    },
    "mujoco": {
        "num_envs": 4,
        "rollout_steps": 512,
        "policy_iterations": 8,
        "policy_epochs": 10,
        "value_epochs": 10,
        "minibatches": 32,
        "num_chunks": 512,
        "auxiliary_minibatch": 1,
        "discount": 0.99,
        "entropy_bonus": 0.0,
        "learning_rate": 3e-4,
        "auxiliary_learning_rate": 3e-4,
        "gradient_clip": 0.5,
    },
}


@algorithm("ppg")
class PPG:
    """Phasic policy gradient: a policy phase with clipped ratios, an auxiliary phase that distils values into it.

    Example:
        >>> algorithm = tl.PPG(num_envs=8, rollout_steps=16, hidden=(16,), policy_iterations=4)
        >>> run = tl.learn(algorithm, "jax:treatment", steps=1_024)
        >>> run.done, run.unit
        (1024, 'decisions')
    """

    policy_iterations: int = field(32, least=1, help="rounds between two auxiliary phases")
    policy_epochs: int = field(1, least=1, help="passes over a round's decisions that train the policy")
    value_epochs: int = field(
        1, least=1, help="equal to policy_epochs: one joint update; else separate epochs before them"
    )
    auxiliary_epochs: int = field(6, least=0, help="0: no auxiliary phase, which is PPO")
    beta_clone: float = field(1.0, least=0.0, help="weight of the KL divergence in the auxiliary phase")
    clip: float | None = field(0.2, least=0.0, open_ends=True, help="PPO clip range")
    divergence_weight: float | None = field(
        None, least=0.0, help="weight of 0.5 (log ratio)**2, instead of the clip or with it"
    )
    target_kl: float | None = field(
        None, least=0.0, help="largest divergence of a minibatch; beyond it the round's policy updates end"
    )
    entropy_bonus: float = field(0.01, least=0.0, help="weight of the policy's entropy")
    value_weight: float = field(0.5, least=0.0, help="weight of the value loss in the policy phase")
    discount: float = fields.discount(0.999)
    gae_lambda: float = field(
        0.95, least=0.0, most=1.0, help="decay of generalised advantage estimation", group="value"
    )
    learning_rate: float = fields.learning_rate(5e-4, "the policy phase", group=MAIN)
    auxiliary_learning_rate: float = fields.learning_rate(5e-4, "the auxiliary phase")
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "the gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    value_clip: float | None = fields.value_clip(None, "the value around that before the round")
    num_envs: int = field(64, least=1, help="parallel environment copies", group=MAIN)
    rollout_steps: int = field(256, least=1, help="decisions of each copy in a round", group=MAIN)
    minibatches: int = field(8, least=1, help="updates per epoch of the policy phase")
    num_chunks: int = field(1, least=1, help="parts of a copy's decisions for these minibatches")
    auxiliary_minibatch: int = fields.auxiliary_minibatch(4)
    observation_normalisation: bool = fields.observation_normalisation(False)
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
    def preset(cls, name: str) -> PPG:
        """Return the settings for a family of problems: procgen (the paper's), atari, classic-control or mujoco."""
        return cls(**chosen_preset("PPG", PRESETS, name))

    @classmethod
    def preset_for(cls, spec: Spec) -> str:
        """Return the name of the preset for the observations and actions of an environment."""
        pictures = [leaf for leaf in spec.observation.values() if isinstance(leaf, Image)]
        if pictures:
            return "atari" if all((one.height, one.width) == ATARI_FRAME for one in pictures) else "procgen"
        return "mujoco" if isinstance(spec.action, Continuous) else "classic-control"

    def check(self) -> None:
        """Raise ConfigError where minibatches do not use every step once."""
        check_divides("num_chunks", self.num_chunks, "rollout_steps", self.rollout_steps)
        parts = self.num_envs * self.num_chunks
        check_divides("minibatches", self.minibatches, "num_envs * num_chunks", parts)
        check_network(self)
        if self.auxiliary_epochs:
            capacity = self.num_envs * self.policy_iterations
            check_divides("auxiliary_minibatch", self.auxiliary_minibatch, "num_envs * policy_iterations", capacity)

    def collection(self) -> Collection:
        """Return the collection: one rollout per round."""
        complete = ppg_common.scale_observations if self.observation_normalisation else None
        return Collection(self.num_envs, self.rollout_steps, ("fresh",), self.num_chunks, complete)

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Return the store of the current rollout, and with an auxiliary phase the store of a whole policy phase."""
        mask = ("mask",) if spec.masked else ()
        begins: tuple[str, ...] = () if self.recurrent_size is None else ("first", "carry")
        decisions = ("action", "log_probability", "reward", "elapsed", "terminated", "truncated", "following")
        fresh = StoreSpec(("observation", "valid", *mask, *decisions, *begins), self.num_envs)
        if not self.auxiliary_epochs:
            return {"fresh": fresh}
        capacity = self.num_envs * self.policy_iterations
        begins += () if self.recurrent_size is None else ("value_carry",)
        return {"fresh": fresh, "phase_buffer": StoreSpec(("observation", "valid", *mask, *begins, "target"), capacity)}

    def phases(self) -> tuple[Phase, ...]:
        """Return separate value epochs, the policy phase, and the auxiliary phase every `policy_iterations` rounds."""
        joint = self.policy_epochs == self.value_epochs
        minibatch = Sampler(
            "fresh", self.num_envs * self.num_chunks // self.minibatches, Whole(self.num_chunks), Epochs()
        )
        value = Phase(
            name="value",
            samplers=minibatch,
            step=value_step,
            losses=losses_of(value_loss),
            updates=lambda config, round: config.value_epochs * config.minibatches,
            prepare=estimate,
        )
        policy = Phase(
            name="policy",
            samplers=minibatch,
            step=policy_step,
            losses=losses_of(joint_loss if joint else policy_loss),
            updates=lambda config, round: config.policy_epochs * config.minibatches,
            prepare=estimate if joint else None,
            into="phase_buffer" if self.auxiliary_epochs else None,
        )
        auxiliary = Phase(
            name="auxiliary",
            samplers=Sampler("phase_buffer", self.auxiliary_minibatch, Whole(), Epochs()),
            step=auxiliary_step,
            losses=losses_of(auxiliary_loss),
            updates=_auxiliary_updates,
            prepare=record_old_policy,
            conclude=kl_after,
            empties=True,
        )
        return (*([] if joint else [value]), policy, *([auxiliary] if self.auxiliary_epochs else []))

    def init(self, spec: Spec, key: jax.Array, updates: int) -> PPGState:
        """Return a new network and empty statistics of rewards and values, for a run of `updates` updates."""
        network = ppg_common.new_network(self, spec, key)
        apart = self.policy_epochs != self.value_epochs
        opt_states = OptStates(
            init_opt_state(self.optimiser, network),
            init_opt_state(self.optimiser, network) if apart else None,
            init_opt_state(self.optimiser, network) if self.auxiliary_epochs else None,
        )
        rewards, values = ppg_common.initial_rewards(self), ppg_common.initial_values(self)
        carry = ppg_common.initial_value_carry(self, network)
        observations = ppg_common.initial_observations(self, spec)
        stopped = None if self.target_kl is None else jnp.array(False)
        counts = jnp.int32(0), jnp.int32(updates)
        return PPGState(network, opt_states, rewards, values, *counts, carry, observations, stopped)

    with_new_episodes = ppg_common.with_new_episodes
    policy_params = ppg_common.scaled_policy_params
    initial_state = ppg_common.initial_state
    act = ppg_common.act
    distribution = ppg_common.distribution
    recipe = ppg_common.recipe_of


def _auxiliary_updates(config: PPG, round: int) -> int:
    if (round + 1) % config.policy_iterations:
        return 0
    return config.auxiliary_epochs * config.num_envs * config.policy_iterations // config.auxiliary_minibatch


# The published baseline (Cobbe et al. 2020, appendix A): one trunk, three epochs, no auxiliary phase.
PPO_SETTINGS: dict[str, Any] = {"architecture": "shared", "policy_epochs": 3, "value_epochs": 3, "auxiliary_epochs": 0}
configure("ppo", PPG, **PPO_SETTINGS)


def PPO(**settings: Any) -> PPG:  # noqa: N802 - the common name
    """Return PPG without an auxiliary phase, with one trunk and three epochs; every setting can be changed.

    Example:
        >>> algorithm = tl.PPO(num_envs=8, rollout_steps=16, hidden=(16,))
        >>> policy = tl.learn(algorithm, "jax:treatment", steps=1_000).policy()
        >>> tl.rollout(policy, "treatment", episodes=50, sample=True).shape
        (50,)
    """
    return PPG(**{**PPO_SETTINGS, **settings})
