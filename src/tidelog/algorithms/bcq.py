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

Letters: `B` batch, `E` ensemble, `A` action size, `L` latent size, `C` candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.choose import in_blocks
from tidelog.algorithms.contract import Batch, Feedback, Keep, Phase, one_reward
from tidelog.algorithms.draws import Draw, Row
from tidelog.algorithms.hyper import hyper, number, own, static
from tidelog.algorithms.optim import (
    OPTIMISERS,
    SCHEDULES,
    Schedule,
    Transformation,
    constant,
    copied,
    descend,
    follow,
    optimiser_memory,
    unless,
)
from tidelog.algorithms.priorities import ordered
from tidelog.data.scaling import REWARD_SCALINGS, RewardScaling
from tidelog.losses.td import POINT_LOSSES, PointLoss, between, ensemble_error, squared
from tidelog.losses.vae import REDUCTIONS, Reduction, mean_over_latents, normal_divergence, reconstruction_error
from tidelog.networks.convolution import LAYERS, Layers, by_size
from tidelog.networks.critic import Critic, Ensemble
from tidelog.networks.encode import Sight
from tidelog.networks.mlp import Linear, host_generator
from tidelog.networks.perturbation import Perturbation, moved
from tidelog.networks.vae import Generator
from tidelog.types import Act, Continuous, Observation, Spec, Transition, same_shape

ROWS = 256  # observations whose candidates are rated at once


class Optimisers(NamedTuple):
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
    optimisers: Optimisers
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedules
    key: jax.Array


class Acting(NamedTuple):
    """What acting reads."""

    generator: Generator
    perturbation: Perturbation
    critic: Any  # the ensemble's first member
    latents: jax.Array


class Noise(NamedTuple):
    """The random numbers of one update."""

    posterior: jax.Array  # [B, L]: for reconstruction
    after: jax.Array  # [C, B, L]: candidates for the target
    now: jax.Array  # [B, L]: for the perturbation


# Losses: each returns the mean over the batch and what the next step or the metrics read.


def generator_loss(
    generator: Generator, h: BCQ, batch: Batch, noise: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Reconstruction of the logged actions and divergence of their latents; also both alone."""
    row: Transition = batch.data
    mean, log_std = generator.encode(row.observation, row.action)
    decoded = generator.decode(row.observation, mean + jnp.exp(log_std) * noise)
    error = reconstruction_error(decoded, row.action)
    divergence = h.kl_reduction(normal_divergence(mean, log_std))
    metrics = {"reconstruction_loss": batch.average(error), "kl": batch.average(divergence)}
    return batch.mean(error + h.kl_weight * divergence), metrics


def critic_loss(critic: Ensemble, h: BCQ, batch: Batch, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Squared (or other) error of every critic against the target [B]; also Q(s, a) [E, B]."""
    q = critic(batch.data.observation, batch.data.action)
    return batch.mean(ensemble_error(q, target, h.critic_loss)), q


def perturbation_loss(
    perturbation: Perturbation, h: BCQ, batch: Batch, proposed: jax.Array, critic: Any
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """What the first critic does not like about proposed actions [B, A], moved; also moved ones and their direction."""
    direction = perturbation(batch.data.observation, proposed)
    chosen = moved(proposed, direction, h.phi)
    return -batch.mean(critic(batch.data.observation, chosen)), (chosen, direction)


def candidates(
    h: BCQ, generator: Generator, perturbation: Perturbation, observation: Observation, latents: jax.Array
) -> jax.Array:
    """What the generator makes of latents [C, B, L], perturbed: [C, B, A]."""

    def one(latent: jax.Array) -> jax.Array:
        action = generator.decode(observation, latent)
        return moved(action, perturbation(observation, action), h.phi)

    return jax.vmap(one)(latents)


def target_value(h: BCQ, generator: Generator, state: State, row: Transition, latents: jax.Array) -> jax.Array:
    """`r + discount max_i between_e Qtarget_e(s', a_i)` [B] over the candidates of latents [C, B, L]."""
    actions = candidates(h, generator, state.target_perturbation, row.next_observation, latents)
    rated = jax.vmap(lambda action: between(state.target_critic(row.next_observation, action), h.mix))(actions)
    best = jnp.max(rated, axis=0)
    same_shape(reward=row.reward, discount=row.discount, value=best)
    return row.reward + row.discount * best


# The update.


def step(h: BCQ, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of generator, critics, perturbation and targets, in this order."""
    row: Transition = batch.data
    progress = state.step / jnp.maximum(state.updates, 1)
    noise = drawn(h, state, batch, jax.random.fold_in(state.key, state.step))

    (g_loss, generator_metrics), slope = _gradient(generator_loss)(state.generator, h, batch, noise.posterior)
    rate = h.generator_learning_rate * h.generator_schedule(progress)
    generator, generator_memory = descend(
        h.optimiser, state.generator, slope, state.optimisers.generator, rate, h.gradient_clip
    )

    target = target_value(h, generator, state, row, noise.after)
    (q_loss, q), slope = _gradient(critic_loss)(state.critic, h, batch, target)
    rate = h.critic_learning_rate * h.critic_schedule(progress)
    critic, critic_memory = descend(h.optimiser, state.critic, slope, state.optimisers.critic, rate, h.gradient_clip)

    due = (state.step + 1) % h.policy_delay == 0
    proposed = generator.decode(row.observation, noise.now)
    (p_loss, (chosen, direction)), slope = _gradient(perturbation_loss)(
        state.perturbation, h, batch, proposed, critic.members[0]
    )
    rate = h.perturbation_learning_rate * h.perturbation_schedule(progress)
    before = state.perturbation, state.optimisers.perturbation
    after = descend(h.optimiser, state.perturbation, slope, before[1], rate, h.gradient_clip)
    perturbation, perturbation_memory = unless(due, before, after)

    move = jnp.where(due, h.target_rate, 0.0)
    error = jnp.abs(q - target)  # [E, B]
    metrics = {
        "generator_loss": g_loss,
        "critic_loss": q_loss,
        "perturbation_loss": p_loss,
        "td_error": batch.average(jnp.mean(error, axis=0)),
        "target_q": batch.average(target),
        **{f"critic_loss_{e + 1}": batch.average(h.critic_loss(q[e] - target)) for e in range(h.critics)},
        "perturbation_size": batch.average(jnp.mean(jnp.abs(h.phi * direction), axis=-1)),
        "distance_to_log": batch.average(jnp.linalg.norm(chosen - row.action, axis=-1)),
        **generator_metrics,
    }
    stepped = State(
        generator,
        perturbation,
        follow(state.target_perturbation, perturbation, move),
        critic,
        follow(state.target_critic, critic, move),
        state.latents,
        Optimisers(generator_memory, critic_memory, perturbation_memory),
        state.step + 1,
        state.updates,
        state.key,
    )
    return stepped, Feedback(metrics, priority=jnp.mean(error, axis=0))


def losses(h: BCQ, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The three losses of the networks as they stand, without a step, on noise that the state fixes."""
    row: Transition = batch.data
    noise = drawn(h, state, batch, state.key)
    g_loss, parts = generator_loss(state.generator, h, batch, noise.posterior)
    target = target_value(h, state.generator, state, row, noise.after)
    q_loss, _ = critic_loss(state.critic, h, batch, target)
    proposed = state.generator.decode(row.observation, noise.now)
    p_loss, _ = perturbation_loss(state.perturbation, h, batch, proposed, state.critic.members[0])
    return {"generator_loss": g_loss, "critic_loss": q_loss, "perturbation_loss": p_loss, **parts}


def drawn(h: BCQ, state: State, batch: Batch, key: jax.Array) -> Noise:
    """All random numbers of one update, from one key."""
    rows, size = batch.rows.shape[0], state.latents.shape[-1]
    posterior, after, now = jax.random.split(key, 3)
    return Noise(
        jax.random.normal(posterior, (rows, size)),
        clipped_normal(h, after, (h.target_samples, rows, size)),
        clipped_normal(h, now, (rows, size)),
    )


def clipped_normal(h: BCQ, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal latents, cut at `latent_clip` on both sides."""
    return jnp.clip(jax.random.normal(key, shape), -h.latent_clip, h.latent_clip)


def _gradient(loss: Callable[..., Any]) -> Callable[..., Any]:
    return eqx.filter_value_and_grad(loss, has_aux=True)


# Acting.


def choose(h: BCQ, acting: Acting, observation: Observation, latents: jax.Array) -> jax.Array:
    """The candidate [B, A] of latents [C, B, L] that the first critic rates highest."""
    actions = candidates(h, acting.generator, acting.perturbation, observation, latents)
    rated = jax.vmap(lambda action: acting.critic(observation, action))(actions)  # [C, B]
    best = jnp.argmax(rated, axis=0)
    return jnp.take_along_axis(actions, best[None, :, None], axis=0)[0]


# A fresh state.


def init(h: BCQ, spec: Spec, key: jax.Array, updates: int) -> State:
    """Fresh networks; targets start as what they follow."""
    random = host_generator(key)
    sight = Sight(h.embedding, h.hidden[0], h.convolutions)
    latent = h.latent or 2 * len(spec.action.low)  # type: ignore[union-attr]
    own = jax.random.split(key, h.critics + 4)

    def fresh_critic() -> Critic:
        return Critic.create(random, spec, hidden=h.hidden, layer_norm=False, sight=sight, linear=Linear.uniform)

    generator = (
        copied(h.generator_network(spec, own[0]))
        if h.generator_network
        else Generator.create(random, spec, hidden=h.generator_hidden, latent=latent, sight=sight)
    )
    perturbation = (
        copied(h.perturbation_network(spec, own[1]))
        if h.perturbation_network
        else Perturbation.create(random, spec, hidden=h.perturbation_hidden, sight=sight)
    )
    critic = (
        Ensemble(tuple(copied(h.critic_network(spec, k)) for k in own[4:]))
        if h.critic_network
        else Ensemble.create(h.critics, fresh_critic)
    )
    memories = Optimisers(*(optimiser_memory(h.optimiser, network) for network in (generator, critic, perturbation)))
    latents = clipped_normal(h, own[2], (h.samples, latent))
    step, planned = jnp.int32(0), jnp.int32(updates)
    followers = copied(perturbation), copied(critic)
    return State(generator, perturbation, followers[0], critic, followers[1], latents, memories, step, planned, own[3])


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
    discount: float = number(0.99, least=0.0, most=1.0)
    target_rate: float = number(0.005, least=0.0, most=1.0, help="share of the gap that targets move")
    critics: int = static(2, least=1, help="size of the critic ensemble")
    critic_loss: PointLoss = static(squared, choices=POINT_LOSSES)
    n_step: int = static(1, least=1, help="rewards summed before bootstrapping")
    batch_size: int = static(100, least=1)
    generator_learning_rate: float = number(1e-3, least=0.0)
    critic_learning_rate: float = number(1e-3, least=0.0)
    perturbation_learning_rate: float = number(1e-3, least=0.0)
    generator_schedule: Schedule = static(
        constant, choices=SCHEDULES, help="factor on the rate, over the run's progress"
    )
    critic_schedule: Schedule = static(constant, choices=SCHEDULES)
    perturbation_schedule: Schedule = static(constant, choices=SCHEDULES)
    optimiser: Transformation = static(OPTIMISERS["adam"], choices=OPTIMISERS, help="makes the direction of a step")
    gradient_clip: float | None = number(
        None, least=0.0, open_ends=True, help="largest norm of each network's gradient"
    )
    hidden: tuple[int, ...] = static((400, 300), help="widths of the critics' hidden layers")
    generator_hidden: tuple[int, ...] = static((750, 750), help="widths of the encoder's and the decoder's")
    perturbation_hidden: tuple[int, ...] = static((400, 300), help="widths of the perturbation's")
    embedding: int = static(32, least=1, help="width of a categorical column's table")
    convolutions: Layers = static(by_size, choices=LAYERS, help="layers that look at pictures")
    priority_exponent: float | None = number(
        None, least=0.0, most=1.0, help="prioritised sampling: 0 is uniform, 1 proportional"
    )
    priority_correction: float = number(0.4, least=0.0, most=1.0, help="where the importance exponent begins")
    reward_scaling: RewardScaling = static(REWARD_SCALINGS["none"], choices=REWARD_SCALINGS)
    generator_network: Callable[[Spec, jax.Array], Any] | None = own("makes a module with encode and decode")
    perturbation_network: Callable[[Spec, jax.Array], Any] | None = own("makes a module of your own")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("one for each critic")

    takes: ClassVar[tuple[type, ...]] = (Continuous,)

    def stores(self, spec: Spec) -> dict[str, Keep]:
        """The log with its rewards."""
        one_reward("BCQ", spec)
        return {"log": Keep(("reward", "terminated"))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase over transitions of the log."""
        order = ordered(self.priority_exponent, self.priority_correction)
        return (Phase("bcq", Draw("log", self.batch_size, Row(self.n_step, self.discount), order), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Fresh networks for a run of `updates` steps."""
        return init(self, spec, key, updates)

    def acting(self, state: State) -> Acting:
        """Generator, perturbation, the first critic and the fixed latents."""
        return Acting(state.generator, state.perturbation, state.critic.members[0], state.latents)

    def start(self, acting: Acting, batch: int) -> None:
        """None: there is no memory."""

    def act(
        self,
        acting: Acting,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """The best of `samples` candidates: of the fixed latents, or with a key of random ones."""
        rows = len(next(iter(observation.values())))
        shape = (rows, *acting.latents.shape)
        latents = jnp.broadcast_to(acting.latents, shape) if key is None else clipped_normal(self, key, shape)

        def some(part: tuple[Observation, jax.Array]) -> jax.Array:
            return choose(self, acting, part[0], jnp.swapaxes(part[1], 0, 1))

        return Act(in_blocks(some, (observation, latents), ROWS))

    def distribution(
        self, acting: Acting, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> None:
        """None: what the best of random candidates will be has no density."""

    def q_values(self, acting: Acting, observation: Observation) -> None:
        """None: continuous actions cannot all be rated."""
