"""BCQ: batch-constrained deep Q-learning, continuous actions.

Fujimoto, Meger, Precup 2019, arXiv:1812.02900; reference implementation: sfujim/BCQ, continuous_BCQ.

One update, in this order (`new` marks networks that this update has already changed):

| step | loss (per sample) | reads |
|---|---|---|
| generator | `mean (decode(s, z) - a)**2 + kl_weight KL(z | s, a)`, z encoded | |
| critics | `sum_e (Q_e(s, a) - r - discount max_i between_e Qtarget_e(s', a_i))**2` | **new** generator |
| | | old target perturbation, old target critics |
| perturbation | `-Q_1(s, perturb(s, decode(s, z)))`, a new z | **new** generator, **new** Q_1 |
| targets | Polyak update of perturbation and critics by `target_rate` | **new** perturbation and critics |

`a_i` are `target_samples` candidates: clipped normal latents, decoded by the generator and perturbed by the target
perturbation; `between` is `mix` times the smallest critic plus `1 - mix` times the largest. Acting decodes `samples`
candidates and selects the one with the highest value of the first critic; its latents are random with a key; without a
key they are a fixed set in the state.

Limits: phi 0 acts as the generator; mix 1 is the clipped double minimum, mix 0 the maximum.

Deliberate differences from the reference: actions are scaled to [-1, 1] before any network reads them, so phi is a
share of half their range; the policy has no density and returns None.

With recurrent networks, the losses run over windows [B, T]. Each network unrolls its own recurrent state from zeros,
once; all candidates are decoded and evaluated from this state. The next observation of a step is encoded from that
step's recurrent state.

Letters: `B` batch (`B, T` in windows), `E` ensemble, `A` action size, `L` latent size, `C` candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.bcq_candidates import (
    PolicyParams,
    best_candidate,
    candidates,
    clipped_normal,
    drawn,
    values_of_all,
)
from tidelog.algorithms.core import fields, samplers
from tidelog.algorithms.core.choosing_actions import in_blocks
from tidelog.algorithms.core.contract import Feedback, Phase, StoreSpec, one_reward
from tidelog.algorithms.core.hyperparameters import MAIN, hyperparameters, number, own, static
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
from tidelog.algorithms.core.registry import register
from tidelog.algorithms.core.sampling import Batch
from tidelog.data.scaling import RewardScaling
from tidelog.errors import ConfigError
from tidelog.losses.td import PointLoss, between, ensemble_error, squared
from tidelog.losses.vae import REDUCTIONS, Reduction, mean_over_latents, normal_divergence, reconstruction_error
from tidelog.networks import recipe
from tidelog.networks.arrays import scalar
from tidelog.networks.convolution import Layers, by_size
from tidelog.networks.critic import Critic, Ensemble
from tidelog.networks.encode import EncoderConfig, after, now
from tidelog.networks.keys import split_keys
from tidelog.networks.mlp import Linear, host_generator
from tidelog.networks.perturbation import Perturbation, perturb
from tidelog.networks.vae import Generator
from tidelog.types import Act, Continuous, Observation, Spec, Transition, same_shape

ROWS = 256  # observations whose candidates are evaluated at once


class OptStates(NamedTuple):
    """The optimiser states, one for each network."""

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
    latents: jax.Array  # [C, L]: latents of acting without a key
    opt_states: OptStates
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedules
    key: jax.Array


# Losses: each returns the mean over the batch and the input of the next step or the metrics.


def generator_loss(
    generator: Generator, config: BCQ, batch: Batch, noise: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the reconstruction error of the logged actions plus the divergence of their latents; also both alone."""
    seen, action = now(generator, batch.data), batch.data.action
    mean, log_std = generator.encode(seen, action)
    error = reconstruction_error(generator.decode(seen, mean + jnp.exp(log_std) * noise), action)
    divergence = config.kl_reduction(normal_divergence(mean, log_std))
    metrics = {"reconstruction_loss": batch.average(error), "kl": batch.average(divergence)}
    return batch.mean(error + config.kl_weight * divergence), metrics


def critic_loss(critic: Ensemble, config: BCQ, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the squared (or other) error of every critic against the target [B], and Q(s, a) [E, B]."""
    q = critic(batch.data.observation, batch.data.action, **batch.data.window)
    return batch.mean(ensemble_error(q, target, config.critic_loss)), q


def perturbation_loss(
    perturbation: Perturbation, config: BCQ, batch: Batch, proposed: jax.Array, critic: Any
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Return the negative first critic of perturbed proposals [B, A]; also these actions and their direction."""
    direction = perturbation(now(perturbation, batch.data), proposed)
    chosen = perturb(proposed, direction, config.phi)
    return -batch.mean(critic(now(critic, batch.data), chosen)), (chosen, direction)


def target_value(config: BCQ, generator: Generator, state: State, row: Transition, latents: jax.Array) -> jax.Array:
    """Return `r + discount max_i between_e Qtarget_e(s', a_i)` [B] over the candidates of latents [C, B, L]."""
    correction, critics = state.target_perturbation, state.target_critic
    actions = candidates(generator, after(generator, row), correction, after(correction, row), latents, config.phi)
    values = values_of_all(critics, [after(critic, row) for critic in critics.members], actions)
    best = jnp.max(between(values, config.mix), axis=0)
    same_shape(reward=row.reward, discount=row.discount, value=best)
    return row.reward + row.discount * best


# The update.


def step(config: BCQ, state: State, batch: Batch) -> tuple[State, Feedback]:
    """Do one update of generator, critics, perturbation and targets, in this order."""
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
    """Return the three losses of the current networks, without an update, with noise from the state's key."""
    row: Transition = batch.data
    noise = drawn(config, state, batch, state.key)
    g_loss, parts = generator_loss(state.generator, config, batch, noise.posterior)
    target = target_value(config, state.generator, state, row, noise.after)
    q_loss, _ = critic_loss(state.critic, config, batch, target)
    proposed = state.generator.decode(now(state.generator, row), noise.now)
    p_loss, _ = perturbation_loss(state.perturbation, config, batch, proposed, state.critic.members[0])
    return {"generator_loss": g_loss, "critic_loss": q_loss, "perturbation_loss": p_loss, **parts}


# Initial state.


def init(config: BCQ, spec: Spec, key: jax.Array, updates: int) -> State:
    """Return new networks; targets start as copies of their networks."""
    random, own = host_generator(key), split_keys(key, config.critics + 4)
    encoder_config = EncoderConfig(config.embedding, config.hidden[0], config.convolutions, config.recurrent_size)
    latent = config.latent or 2 * len(spec.action.low)  # type: ignore[union-attr]

    def new_generator() -> Generator:
        return Generator.create(
            random, spec, hidden=config.generator_hidden, latent=latent, encoder_config=encoder_config
        )

    def new_perturbation() -> Perturbation:
        return Perturbation.create(random, spec, hidden=config.perturbation_hidden, encoder_config=encoder_config)

    def new_critic() -> Critic:
        return Critic.create(
            random, spec, hidden=config.hidden, layer_norm=False, encoder_config=encoder_config, linear=Linear.uniform
        )

    generator = build_or_default(config.generator_network, new_generator, spec, own[0])
    perturbation = build_or_default(config.perturbation_network, new_perturbation, spec, own[1])
    critic = Ensemble(tuple(build_or_default(config.critic_network, new_critic, spec, k) for k in own[4:]))
    opt_states = OptStates(
        *(init_opt_state(config.optimiser, network) for network in (generator, critic, perturbation))
    )
    latents = jax.jit(clipped_normal, static_argnums=2)(config, own[2], (config.samples, latent))
    step, planned = scalar(0), scalar(updates)
    targets = copied(perturbation), copied(critic)
    return State(generator, perturbation, targets[0], critic, targets[1], latents, opt_states, step, planned, own[3])


@register("bcq")
@hyperparameters
class BCQ:
    """Batch-constrained Q-learning: the best candidate near the logged actions by the critics (arXiv:1812.02900).

    Example:
        >>> log = tl.collect("point-mass", episodes=50, seed=0)
        >>> run = tl.fit(tl.BCQ(latent_clip=0.5, hidden=(16,)), log, steps=20)
        >>> run.policy().mode(log.observation).shape[1] == log.spec.action.size
        True
    """

    phi: float = number(0.05, least=0.0, most=2.0, help="largest perturbation of an action, in half ranges", group=MAIN)
    mix: float = number(0.75, least=0.0, most=1.0, help="weight of the smallest critic in targets; rest: the largest")
    kl_weight: float = number(0.5, least=0.0, help="weight of the KL divergence in the generator's loss")
    kl_reduction: Reduction = static(mean_over_latents, choices=REDUCTIONS, help="mean or sum over latents")
    latent: int | None = static(None, least=1, help="size of the latents; none: twice the size of actions")
    latent_clip: float = number(0.5, least=0.0, help="limit of generated latents")
    target_samples: int = static(10, least=1, help="candidates in targets")
    samples: int = static(100, least=1, help="candidates when acting", group=MAIN)
    policy_delay: int = static(1, least=1, help="critic updates per update of perturbation and targets")
    discount: float = fields.discount(0.99)
    target_rate: float = fields.target_rate(0.005, "targets move per update")
    critics: int = fields.critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(100)
    generator_learning_rate: float = fields.learning_rate(1e-3, "the generator")
    critic_learning_rate: float = fields.learning_rate(1e-3, "the critics")
    perturbation_learning_rate: float = fields.learning_rate(1e-3, "the perturbation")
    generator_schedule: Schedule = fields.schedule(constant)
    critic_schedule: Schedule = fields.schedule(constant)
    perturbation_schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    products: str = fields.products()
    hidden: tuple[int, ...] = fields.widths((400, 300), "the critics' hidden layers")
    generator_hidden: tuple[int, ...] = fields.widths((750, 750), "the generator's hidden layers", group="network")
    perturbation_hidden: tuple[int, ...] = fields.widths(
        (400, 300), "the perturbation's hidden layers", group="network"
    )
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    recurrent_size: int | None = fields.recurrent_size(None)
    window: int = fields.window(16)
    burn_in: int = fields.burn_in(0)
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float = fields.priority_correction(0.4)
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    generator_network: Callable[[Spec, jax.Array], Any] | None = own(
        "function that returns a module with encode and decode"
    )
    perturbation_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns one critic module")

    takes: ClassVar[tuple[type, ...]] = (Continuous,)

    def check(self) -> None:
        """Raise ConfigError where two fields contradict each other."""
        if self.recurrent_size is not None and (
            self.generator_network or self.perturbation_network or self.critic_network
        ):
            raise ConfigError(
                f"BCQ.recurrent_size = {self.recurrent_size} does not support networks of your own. "
                "fix: drop recurrent_size or your networks"
            )

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Return the log with its rewards."""
        one_reward("BCQ", spec)
        return {"log": StoreSpec(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """Return one phase over transitions of the log, or over windows of them for recurrent networks."""
        return (Phase("bcq", samplers.transitions(self), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Return new networks for a run of `updates` updates."""
        return init(self, spec, key, updates)

    def policy_params(self, state: State) -> PolicyParams:
        """Return generator, perturbation, the first critic and the fixed latents."""
        return PolicyParams(state.generator, state.perturbation, state.critic.members[0], state.latents)

    def start(self, params: PolicyParams, batch: int) -> jax.Array | None:
        """Return the three initial recurrent states, concatenated; None for feed-forward networks."""
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
        """Return the best of `samples` candidates: from the fixed latents, or from random latents with a key."""
        rows = len(next(iter(observation.values())))
        carry = self.start(params, rows) if carry is None else carry
        shape = (rows, *params.latents.shape)
        latents = jnp.broadcast_to(params.latents, shape) if key is None else clipped_normal(self, key, shape)

        def some(part: tuple[Observation, jax.Array | None, jax.Array]) -> tuple[jax.Array, jax.Array | None]:
            return best_candidate(params, *part[:2], jnp.swapaxes(part[2], 0, 1), self.phi)

        action, carry = in_blocks(some, (observation, carry, latents), ROWS)
        return Act(action, None, carry)

    def distribution(
        self, params: PolicyParams, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> None:
        """Return None: the best of random candidates has no density."""

    def recipe(self, params: PolicyParams) -> dict[str, Any]:
        """Return the computation of candidates, perturbation and values as plain nodes."""
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
