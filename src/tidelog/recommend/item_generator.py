"""How a recommender learns to imagine items: a generator of vectors like logged ones, and a bounded correction.

Letters: `B` batch, `T` targets, `D` item vector size, `L` latent size.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.optimisation import gradient_step, tree_where
from tidelog.algorithms.core.sampling import Batch
from tidelog.losses.vae import mean_over_latents, normal_divergence, reconstruction_error
from tidelog.recommend.candidate_generation import Imagination, clipped, envisaged
from tidelog.recommend.critic_inputs import Scene
from tidelog.recommend.networks.catalogue import Correction, ItemGenerator, Pair


def progress(state: Any) -> jax.Array:
    """The share of the run that has been taken."""
    share: jax.Array = state.step / jnp.maximum(state.updates, 1)
    return share


def generator_loss(
    generator: ItemGenerator, config: Any, batch: Batch, seen: Scene, noise: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Reconstruction of the logged items' vectors and divergence of their latents; also both alone."""
    mean, log_std = generator.encode(seen.states, seen.vectors)
    error = reconstruction_error(generator.decode(seen.states, mean + jnp.exp(log_std) * noise), seen.vectors)
    divergence = mean_over_latents(normal_divergence(mean, log_std))
    metrics = {"reconstruction_loss": batch.average(error), "kl": batch.average(divergence)}
    return batch.mean(error + config.kl_weight * divergence), metrics


def perturbation_loss(
    perturbation: Correction, config: Any, batch: Batch, seen: Scene, generator: ItemGenerator, critic: Pair,
    latent: jax.Array,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """What the first critic does not like about generated vectors, moved; also the vectors."""
    made = envisaged(config, Imagination(generator, perturbation), seen.states, latent)
    return -batch.mean(critic(seen.states, made)[..., 0]), made


def generated(config: Any, state: Any, batch: Batch, seen: Scene, key: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
    """The state with its generator moved."""
    noise = jax.random.normal(key, (*batch.data.reward.shape, config.latent_size))
    rate = config.generator_learning_rate * config.schedule(progress(state))
    generator, opt_state, loss, metrics = gradient_step(
        generator_loss, state.imagination.generator, state.opt_states.generator, rate, config, batch, seen, noise
    )  # fmt: skip
    imagination = state.imagination._replace(generator=generator)
    moved = state._replace(imagination=imagination, opt_states=state.opt_states._replace(generator=opt_state))
    return moved, metrics | {"generator_loss": loss}


def perturbed(
    config: Any, state: Any, batch: Batch, seen: Scene, key: jax.Array, due: jax.Array
) -> tuple[Any, dict[str, jax.Array]]:
    """The state with its perturbation moved, where that is due."""
    generator, before = state.imagination
    latent = clipped(config, key, (*batch.data.reward.shape, config.latent_size))
    rate = config.perturbation_learning_rate * config.schedule(progress(state))
    critic, opt_state = state.critic.members[0], state.opt_states.perturbation
    *after, loss, made = gradient_step(
        perturbation_loss, before, opt_state, rate, config, batch, seen, generator, critic, latent
    )
    perturbation, opt_state = tree_where(due, (before, opt_state), tuple(after))
    moved = state._replace(
        imagination=Imagination(generator, perturbation), opt_states=state.opt_states._replace(perturbation=opt_state)
    )
    distance = batch.average(jnp.linalg.norm(made - seen.vectors, axis=-1))
    return moved, {"perturbation_loss": loss, "distance_to_log": distance}
