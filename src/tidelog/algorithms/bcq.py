"""BCQ: batch-constrained deep Q-learning, continuous actions.

Fujimoto, Meger, Precup 2019, arXiv:1812.02900; reference behaviour: sfujim/BCQ, continuous_BCQ.

One update, in this order (`new` marks networks that this update has already moved):

| step | loss (per sample) | reads |
|---|---|---|
| generator | `mean (decode(s, z) - a)**2 + kl_weight KL(z given s, a)`, z encoded | |
| critics | `sum_e (Q_e(s, a) - r - discount max_i between_e Qtarget_e(s', a_i))**2` | **new** generator |
| | | old target perturbation, old target critics |
| perturbation | `-Q_1(s, perturb(s, decode(s, z)))`, a fresh z | **new** generator, **new** Q_1 |
| targets | perturbation and critics move by `target_rate` of their gap | **new** perturbation and critics |

`a_i` are `target_samples` candidates: the target perturbation of what the generator makes of clipped normal latents;
`between` is `mix` of the smallest critic and the rest of the largest. Acting tries `samples` candidates and takes the
one that the first critic likes best; its latents are random with a key, and without one a fixed set of the state.

At the ends of its dials: phi 0 acts as the generator does; mix 1 is the clipped double minimum, mix 0 the maximum.

Deliberate differences from the reference: actions are scaled to [-1, 1] before any network sees them, so that phi is a
share of half their range; the policy has no density and says so.

With a memory, the losses run over windows [B, T]; each network unrolls its own from zeros, once, and all candidates are
decoded and rated from what it remembers; what followed a step is seen from that step's state.

Letters: `B` batch (`B, T` in windows), `E` ensemble, `A` action size, `L` latent size, `C` candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.bcq_candidates import PolicyParams, candidates, clipped_normal, drawn, favourite, rated_by_all
from tidelog.algorithms.core import fields
from tidelog.algorithms.core import samplers as reads
from tidelog.algorithms.core.choosing_actions import in_blocks
from tidelog.algorithms.core.contract import Feedback, Phase, StoreSpec, one_reward
from tidelog.algorithms.core.hyperparameters import hyper, number, own, static
from tidelog.algorithms.core.optimisation import (
    Schedule,
    Transformation,
    build_or_default,
    constant,
    copied,
    gradient_step,
    init_opt_state,
    polyak_update,
    tree_where,
)
from tidelog.algorithms.core.sampling import Batch
from tidelog.data.scaling import RewardScaling
from tidelog.errors import ConfigError
from tidelog.losses.td import PointLoss, between, ensemble_error, squared
from tidelog.losses.vae import REDUCTIONS, Reduction, mean_over_latents, normal_divergence, reconstruction_error
from tidelog.networks import recipe
from tidelog.networks.convolution import Layers, by_size
from tidelog.networks.critic import Critic, Ensemble
from tidelog.networks.encode import EncoderConfig, after, now
from tidelog.networks.mlp import Linear, host_generator
from tidelog.networks.perturbation import Perturbation, moved
from tidelog.networks.vae import Generator
from tidelog.types import Act, Continuous, Observation, Spec, Transition, same_shape

ROWS = 256  # observations whose candidates are rated at once


class OptStates(NamedTuple):
    """What the optimisers remember, one for each network."""

    generator: Any
    critic: Any
    perturbation: Any


class State(NamedTuple):
    """Everything that a resumed run needs."""

    generator: Generator
    perturbation: Perturbation
    target_perturbation: Perturbation
    critic: Ensemble
    target_critic: Ensemble
    latents: jax.Array  # [C, L]: what acting without a key decodes
    opt_states: OptStates
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedules
    key: jax.Array


# Losses: each returns the mean over the batch and what the next step or the metrics read.


def generator_loss(
    generator: Generator, config: BCQ, batch: Batch, noise: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Reconstruction of the logged actions and divergence of their latents; also both alone."""
    seen, action = now(generator, batch.data), batch.data.action
    mean, log_std = generator.encode(seen, action)
    error = reconstruction_error(generator.decode(seen, mean + jnp.exp(log_std) * noise), action)
    divergence = config.kl_reduction(normal_divergence(mean, log_std))
    metrics = {"reconstruction_loss": batch.average(error), "kl": batch.average(divergence)}
    return batch.mean(error + config.kl_weight * divergence), metrics


def critic_loss(critic: Ensemble, config: BCQ, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Squared (or other) error of every critic against the target [B]; also Q(s, a) [E, B]."""
    q = critic(batch.data.observation, batch.data.action, **batch.data.window)
    return batch.mean(ensemble_error(q, target, config.critic_loss)), q


def perturbation_loss(
    perturbation: Perturbation, config: BCQ, batch: Batch, proposed: jax.Array, critic: Any
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """What the first critic does not like about proposed actions [B, A], moved; also moved ones and their direction."""
    direction = perturbation(now(perturbation, batch.data), proposed)
    chosen = moved(proposed, direction, config.phi)
    return -batch.mean(critic(now(critic, batch.data), chosen)), (chosen, direction)


def target_value(config: BCQ, generator: Generator, state: State, row: Transition, latents: jax.Array) -> jax.Array:
    """`r + discount max_i between_e Qtarget_e(s', a_i)` [B] over the candidates of latents [C, B, L]."""
    correction, critics = state.target_perturbation, state.target_critic
    actions = candidates(generator, after(generator, row), correction, after(correction, row), latents, config.phi)
    values = rated_by_all(critics, [after(critic, row) for critic in critics.members], actions)
    best = jnp.max(between(values, config.mix), axis=0)
    same_shape(reward=row.reward, discount=row.discount, value=best)
    return row.reward + row.discount * best


# The update.


def step(config: BCQ, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of generator, critics, perturbation and targets, in this order."""
    row: Transition = batch.data
    opt_states, progress = state.opt_states, state.step / jnp.maximum(state.updates, 1)
    noise = drawn(config, state, batch, jax.random.fold_in(state.key, state.step))

    rate = config.generator_learning_rate * config.generator_schedule(progress)
    generator, generator_opt_state, g_loss, generator_metrics = gradient_step(
        generator_loss, state.generator, opt_states.generator, rate, config, batch, noise.posterior
    )

    target = target_value(config, generator, state, row, noise.after)
    rate = config.critic_learning_rate * config.critic_schedule(progress)
    critic, critic_opt_state, q_loss, q = gradient_step(
        critic_loss, state.critic, opt_states.critic, rate, config, batch, target
    )

    due = (state.step + 1) % config.policy_delay == 0
    proposed = generator.decode(now(generator, row), noise.now)
    rate = config.perturbation_learning_rate * config.perturbation_schedule(progress)
    before = state.perturbation, opt_states.perturbation
    *following, p_loss, (chosen, direction) = gradient_step(
        perturbation_loss, *before, rate, config, batch, proposed, critic.members[0]
    )
    perturbation, perturbation_opt_state = tree_where(due, before, tuple(following))

    move = jnp.where(due, config.target_rate, 0.0)
    error = jnp.abs(q - target)  # [E, B]
    metrics = {
        "generator_loss": g_loss,
        "critic_loss": q_loss,
        "perturbation_loss": p_loss,
        "td_error": batch.average(jnp.mean(error, axis=0)),
        "target_q": batch.average(target),
        **{f"critic_loss_{e + 1}": batch.average(config.critic_loss(q[e] - target)) for e in range(config.critics)},
        "perturbation_size": batch.average(jnp.mean(jnp.abs(config.phi * direction), axis=-1)),
        "distance_to_log": batch.average(jnp.linalg.norm(chosen - row.action, axis=-1)),
        **generator_metrics,
    }
    stepped = state._replace(
        generator=generator,
        perturbation=perturbation,
        target_perturbation=polyak_update(state.target_perturbation, perturbation, move),
        critic=critic,
        target_critic=polyak_update(state.target_critic, critic, move),
        opt_states=OptStates(generator_opt_state, critic_opt_state, perturbation_opt_state),
        step=state.step + 1,
    )
    return stepped, Feedback(metrics, priority=batch.per_sample(jnp.mean(error, axis=0)))


def losses(config: BCQ, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The three losses of the networks as they stand, without a step, on noise that the state fixes."""
    row: Transition = batch.data
    noise = drawn(config, state, batch, state.key)
    g_loss, parts = generator_loss(state.generator, config, batch, noise.posterior)
    target = target_value(config, state.generator, state, row, noise.after)
    q_loss, _ = critic_loss(state.critic, config, batch, target)
    proposed = state.generator.decode(now(state.generator, row), noise.now)
    p_loss, _ = perturbation_loss(state.perturbation, config, batch, proposed, state.critic.members[0])
    return {"generator_loss": g_loss, "critic_loss": q_loss, "perturbation_loss": p_loss, **parts}


# A fresh state.


def init(config: BCQ, spec: Spec, key: jax.Array, updates: int) -> State:
    """Fresh networks; targets start as what they follow."""
    random, own = host_generator(key), jax.random.split(key, config.critics + 4)
    sight = EncoderConfig(config.embedding, config.hidden[0], config.convolutions, config.recurrent_size)
    latent = config.latent or 2 * len(spec.action.low)  # type: ignore[union-attr]

    def fresh_generator() -> Generator:
        return Generator.create(random, spec, hidden=config.generator_hidden, latent=latent, sight=sight)

    def fresh_perturbation() -> Perturbation:
        return Perturbation.create(random, spec, hidden=config.perturbation_hidden, sight=sight)

    def fresh_critic() -> Critic:
        return Critic.create(random, spec, hidden=config.hidden, layer_norm=False, sight=sight, linear=Linear.uniform)

    generator = build_or_default(config.generator_network, fresh_generator, spec, own[0])
    perturbation = build_or_default(config.perturbation_network, fresh_perturbation, spec, own[1])
    critic = Ensemble(tuple(build_or_default(config.critic_network, fresh_critic, spec, k) for k in own[4:]))
    opt_states = OptStates(
        *(init_opt_state(config.optimiser, network) for network in (generator, critic, perturbation))
    )
    latents = clipped_normal(config, own[2], (config.samples, latent))
    step, planned = jnp.int32(0), jnp.int32(updates)
    followers = copied(perturbation), copied(critic)
    return State(
        generator, perturbation, followers[0], critic, followers[1], latents, opt_states, step, planned, own[3]
    )


@hyper
class BCQ:
    """Batch-constrained Q-learning: acts near what the log shows, as the critics like it (arXiv:1812.02900)."""

    phi: float = number(0.05, least=0.0, most=2.0, help="how far the perturbation moves an action, in half ranges")
    mix: float = number(0.75, least=0.0, most=1.0, help="weight of the smallest critic in targets; rest: the largest")
    kl_weight: float = number(0.5, least=0.0, help="weight of the divergence beside the reconstruction")
    kl_reduction: Reduction = static(mean_over_latents, choices=REDUCTIONS, help="mean or sum over latents")
    latent: int | None = static(None, least=1, help="size of the latents; none: twice the size of actions")
    latent_clip: float = number(0.5, least=0.0, help="generated latents are cut here")
    target_samples: int = static(10, least=1, help="candidates in targets")
    samples: int = static(100, least=1, help="candidates when acting")
    policy_delay: int = static(1, least=1, help="critic updates for one of perturbation and targets")
    discount: float = fields.discount(0.99)
    target_rate: float = fields.target_rate(0.005, "targets move")
    critics: int = fields.critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(100)
    generator_learning_rate: float = fields.learning_rate(1e-3)
    critic_learning_rate: float = fields.learning_rate(1e-3)
    perturbation_learning_rate: float = fields.learning_rate(1e-3)
    generator_schedule: Schedule = fields.schedule(constant)
    critic_schedule: Schedule = fields.schedule(constant)
    perturbation_schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    hidden: tuple[int, ...] = fields.widths((400, 300), "the critics' hidden layers")
    generator_hidden: tuple[int, ...] = fields.widths((750, 750), "the encoder's and the decoder's")
    perturbation_hidden: tuple[int, ...] = fields.widths((400, 300), "the perturbation's")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    recurrent_size: int | None = fields.recurrent_size(None)
    window: int = fields.window(16)
    burn_in: int = fields.burn_in(0)
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float = fields.priority_correction(0.4)
    reward_scaling: RewardScaling = fields.reward_scaling("none")
    generator_network: Callable[[Spec, jax.Array], Any] | None = own("makes a module with encode and decode")
    perturbation_network: Callable[[Spec, jax.Array], Any] | None = own("makes a module of your own")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("one for each critic")

    takes: ClassVar[tuple[type, ...]] = (Continuous,)

    def check(self) -> None:
        """Raise ConfigError where two fields contradict each other."""
        if self.recurrent_size is not None and (
            self.generator_network or self.perturbation_network or self.critic_network
        ):
            raise ConfigError("BCQ.recurrent_size is for its own networks: leave it out with networks of yours")

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """The log with its rewards."""
        one_reward("BCQ", spec)
        return {"log": StoreSpec(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase over transitions of the log, or over windows of them with a memory."""
        return (Phase("bcq", reads.transitions(self), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Fresh networks for a run of `updates` steps."""
        return init(self, spec, key, updates)

    def policy_params(self, state: State) -> PolicyParams:
        """Generator, perturbation, the first critic and the fixed latents."""
        return PolicyParams(state.generator, state.perturbation, state.critic.members[0], state.latents)

    def start(self, params: PolicyParams, batch: int) -> jax.Array | None:
        """What three memories hold before anything was seen, side by side; None without them."""
        return None if self.recurrent_size is None else jnp.zeros((batch, 3 * self.recurrent_size))

    def act(
        self,
        params: PolicyParams,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """The best of `samples` candidates: of the fixed latents, or with a key of random ones."""
        rows = len(next(iter(observation.values())))
        carry = self.start(params, rows) if carry is None else carry
        shape = (rows, *params.latents.shape)
        latents = jnp.broadcast_to(params.latents, shape) if key is None else clipped_normal(self, key, shape)

        def some(part: tuple[Observation, jax.Array | None, jax.Array]) -> tuple[jax.Array, jax.Array | None]:
            return favourite(params, *part[:2], jnp.swapaxes(part[2], 0, 1), self.phi)

        action, carry = in_blocks(some, (observation, carry, latents), ROWS)
        return Act(action, None, carry)

    def distribution(
        self, params: PolicyParams, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> None:
        """None: what the best of random candidates will be has no density."""

    def q_values(self, params: PolicyParams, observation: Observation) -> None:
        """None: continuous actions cannot all be rated."""

    def recipe(self, params: PolicyParams) -> dict[str, Any]:
        """How candidates are made, moved and rated, as plain nodes."""
        act = {
            "kind": "candidates",
            "generator": recipe.network(params.generator),
            "perturbation": recipe.network(params.perturbation),
            "critic": recipe.network(params.critic),
            "latents": params.latents,
            "clip": float(self.latent_clip),
            "reach": float(self.phi),
        }
        return recipe.whole(act, carry=self.recurrent_size and 3 * self.recurrent_size)
