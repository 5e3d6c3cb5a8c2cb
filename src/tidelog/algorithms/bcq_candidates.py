"""Candidate actions of BCQ: latents, their decoded and perturbed actions, and the critics' values of these.

Each network encodes the observations once (`now`, `after`, `encode_all`). All candidates use this encoding, so pictures
and recurrent states are not encoded again for each candidate. Letters: `B` batch (`B, T` in windows), `A` action
size, `L` latent size, `C` candidates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.core.sampling import Batch
from tidelog.networks.arrays import normal
from tidelog.networks.critic import Ensemble
from tidelog.networks.encode import Seen
from tidelog.networks.perturbation import Perturbation, perturb
from tidelog.networks.vae import Generator
from tidelog.types import Observation


class PolicyParams(NamedTuple):
    """The arrays that acting reads."""

    generator: Generator
    perturbation: Perturbation
    critic: Any  # the ensemble's first member
    latents: jax.Array  # [C, L]


class Noise(NamedTuple):
    """The random numbers of one update."""

    posterior: jax.Array  # [B, L]: for reconstruction
    after: jax.Array  # [C, B, L]: candidates for the target
    now: jax.Array  # [B, L]: for the perturbation


def drawn(config: Any, state: Any, batch: Batch, key: jax.Array) -> Noise:
    """Draw all random numbers of one update from one key."""
    rows, size = batch.data.reward.shape, state.latents.shape[-1]
    posterior, after, now = jax.random.split(key, 3)
    return Noise(
        normal(posterior, (*rows, size)),
        clipped_normal(config, after, (config.target_samples, *rows, size)),
        clipped_normal(config, now, (*rows, size)),
    )


def clipped_normal(config: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Draw standard normal latents, clipped at `latent_clip` on both sides."""
    return jnp.clip(normal(key, shape), -config.latent_clip, config.latent_clip)


def candidates(
    generator: Generator, seen: Seen, perturbation: Perturbation, also_seen: Seen, latents: jax.Array, reach: Any
) -> jax.Array:
    """Decode latents [C, B, L] and perturb them by up to `reach`: actions [C, B, A]; each network has its encoding."""

    def one(latent: jax.Array) -> jax.Array:
        action = generator.decode(seen, latent)
        return perturb(action, perturbation(also_seen, action), reach)

    return jax.vmap(one)(latents)


def values_of(critic: Any, seen: Seen, actions: jax.Array) -> jax.Array:
    """Return the values [C, B] of candidates [C, B, A] from one critic."""
    values: jax.Array = jax.vmap(lambda action: critic(seen, action))(actions)
    return values


def values_of_all(critics: Ensemble, seen: list[Seen], actions: jax.Array) -> jax.Array:
    """Return the values [E, C, B] of candidates [C, B, A] from every critic, each with its own encoding."""
    return jnp.stack(
        [values_of(critic, features, actions) for critic, features in zip(critics.members, seen, strict=True)]
    )


def encode_all(
    params: PolicyParams, observation: Observation, carry: jax.Array | None
) -> tuple[list[Seen], jax.Array | None]:
    """Encode with generator, perturbation and critic; also return their recurrent states [B, 3H], concatenated."""
    if carry is None:
        return [observation] * 3, None
    units = jnp.split(carry, 3, axis=1)
    networks: tuple[Any, ...] = params[:3]
    seen = [network.encoder.step(observation, unit)[0] for network, unit in zip(networks, units, strict=True)]
    return seen, jnp.concatenate(seen, axis=1)


def best_candidate(
    params: PolicyParams, observation: Observation, carry: jax.Array | None, latents: jax.Array, reach: Any
) -> tuple[jax.Array, jax.Array | None]:
    """Return the candidate [B, A] of latents [C, B, L] with the highest value of the first critic; also the carry."""
    (seen, also_seen, rating), carry = encode_all(params, observation, carry)
    actions = candidates(params.generator, seen, params.perturbation, also_seen, latents, reach)
    best = jnp.argmax(values_of(params.critic, rating, actions), axis=0)
    return jnp.take_along_axis(actions, best[None, :, None], axis=0)[0], carry
