"""Training of the item generator (a VAE of logged item vectors) and of its bounded perturbation.

Letters: `B` batch, `T` targets, `D` item vector size, `L` latent size.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.optimisation import gradient_step, tree_where
from tidelog.algorithms.core.sampling import Batch
from tidelog.losses.vae import mean_over_latents, normal_divergence, reconstruction_error
from tidelog.recommend.candidate_generation import ItemGeneration, clipped, decode_items
from tidelog.recommend.critic_inputs import CriticInputs
from tidelog.recommend.networks.catalogue import Correction, ItemGenerator, Pair


def progress(state: Any) -> jax.Array:
    """Return the completed share of the run."""
    share: jax.Array = state.step / jnp.maximum(state.updates, 1)
    return share


def generator_loss(
    generator: ItemGenerator, config: Any, batch: Batch, seen: CriticInputs, noise: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the reconstruction error of the logged items' vectors plus the latents' divergence; also both alone."""
    mean, log_std = generator.encode(seen.states, seen.vectors)
    error = reconstruction_error(generator.decode(seen.states, mean + jnp.exp(log_std) * noise), seen.vectors)
    divergence = mean_over_latents(normal_divergence(mean, log_std))
    metrics = {"reconstruction_loss": batch.average(error), "kl": batch.average(divergence)}
    return batch.mean(error + config.kl_weight * divergence), metrics


def perturbation_loss(
    perturbation: Correction, config: Any, batch: Batch, seen: CriticInputs, generator: ItemGenerator, critic: Pair,
    latent: jax.Array,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Return the negative first critic of generated, perturbed vectors; also the vectors."""
    vectors = decode_items(config, ItemGeneration(generator, perturbation), seen.states, latent)
    return -batch.mean(critic(seen.states, vectors)[..., 0]), vectors


def generated(
    config: Any, state: Any, batch: Batch, seen: CriticInputs, key: jax.Array
) -> tuple[Any, dict[str, jax.Array]]:
    """Return the state with an updated generator."""
    noise = jax.random.normal(key, (*batch.data.reward.shape, config.latent_size))
    rate = config.generator_learning_rate * config.schedule(progress(state))
    generator, opt_state, loss, metrics = gradient_step(
        generator_loss, state.imagination.generator, state.opt_states.generator, rate, config, batch, seen, noise
    )  # fmt: skip
    imagination = state.imagination._replace(generator=generator)
    updated = state._replace(imagination=imagination, opt_states=state.opt_states._replace(generator=opt_state))
    return updated, metrics | {"generator_loss": loss}


def perturbed(
    config: Any, state: Any, batch: Batch, seen: CriticInputs, key: jax.Array, due: jax.Array
) -> tuple[Any, dict[str, jax.Array]]:
    """Return the state with an updated perturbation, where an update is due."""
    generator, before = state.imagination
    latent = clipped(config, key, (*batch.data.reward.shape, config.latent_size))
    rate = config.perturbation_learning_rate * config.schedule(progress(state))
    critic, opt_state = state.critic.members[0], state.opt_states.perturbation
    *after, loss, vectors = gradient_step(
        perturbation_loss, before, opt_state, rate, config, batch, seen, generator, critic, latent
    )
    perturbation, opt_state = tree_where(due, (before, opt_state), tuple(after))
    updated = state._replace(
        imagination=ItemGeneration(generator, perturbation),
        opt_states=state.opt_states._replace(perturbation=opt_state),
    )
    distance = batch.average(jnp.linalg.norm(vectors - seen.vectors, axis=-1))
    return updated, {"perturbation_loss": loss, "distance_to_log": distance}
