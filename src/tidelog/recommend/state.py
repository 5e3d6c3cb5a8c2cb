"""The training state of recommender BCQ and its initial value.

Letters: `N` items, `L` latent size, `n` generated vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.optimisation import copied, init_opt_state
from tidelog.algorithms.core.running_statistics import Running, empty_statistics
from tidelog.networks.mlp import host_generator
from tidelog.recommend.candidate_generation import ItemGeneration, clipped, most_likely
from tidelog.recommend.networks.catalogue import Correction, ItemCritics, ItemGenerator, Pair, Table
from tidelog.recommend.networks.sequence import Reader
from tidelog.recommend.next_item import ItemFacts, NextItemModel, facts
from tidelog.types import Spec

UNCHOSEN = 0.25  # weight of Q in the score without a held-out period


class OptStates(NamedTuple):
    """The optimiser states, one for each network; None for an absent network."""

    recall: Any
    critic: Any
    generator: Any
    perturbation: Any


class State(NamedTuple):
    """Everything that a resumed run needs."""

    recall: NextItemModel
    target_reader: Reader
    critic: ItemCritics
    target_critic: ItemCritics
    imagination: ItemGeneration | None  # None: candidates are the most likely items
    target_perturbation: Any  # a Correction, where there is a generator
    latents: jax.Array | None  # [n, L]: latents of acting
    known: ItemFacts
    rewards: Running | None
    weight: jax.Array  # weight of Q in the score
    opt_states: OptStates
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedule
    key: jax.Array


def sees_users(config: Any, spec: Spec) -> bool:
    """Return whether the history encoder uses user features."""
    return config.profile and "user" in spec.observation


def begin(config: Any, spec: Spec, key: jax.Array, updates: int) -> State:
    """Return new networks; targets start as copies. `with_item_facts` adds the log's facts of its items."""
    random, (one, two) = host_generator(key), jax.random.split(key)
    catalogue, history = spec.action, spec.observation["history"]
    count, features = catalogue.n, len(catalogue.features) or None  # type: ignore[union-attr]
    table = Table.create(random, count, config.size, features if config.content else None, config.tower_hidden)
    kinds = len(history.events)  # type: ignore[union-attr]
    described = len(spec.observation["user"].columns) if sees_users(config, spec) else 0  # type: ignore[union-attr]
    reader = Reader.create(
        random, config.encoder, config.size, kinds, config.history, config.layers, config.heads, described
    )
    critic = ItemCritics(
        tuple(Pair.create(random, config.size, config.size, config.hidden, 1) for _ in range(config.critics))
    )
    imagination = latents = None
    if config.generator is not most_likely:
        inward = Pair.create(random, config.size, config.size, config.generator_hidden, 2 * config.latent_size)
        outward = Pair.create(random, config.size, config.latent_size, config.generator_hidden, config.size)
        correction = Correction(Pair.create(random, config.size, config.size, config.perturbation_hidden, config.size))
        imagination = ItemGeneration(ItemGenerator(inward, outward), correction)
        latents = clipped(config, one, (config.samples, config.latent_size))
    recall = NextItemModel(table, reader)
    none = None if features is None else np.zeros((count + 1, features), np.float32)
    parts = (recall, critic, *(imagination or (None, None)))
    return State(
        recall=recall,
        target_reader=copied(reader),
        critic=critic,
        target_critic=copied(critic),
        imagination=imagination,
        target_perturbation=None if imagination is None else copied(imagination.perturbation),
        latents=latents,
        known=facts(np.zeros(count + 1), none if config.content else None),
        rewards=empty_statistics() if config.normalise_rewards else None,
        weight=jnp.float32(UNCHOSEN if config.q_weight is None else config.q_weight),
        opt_states=OptStates(*(None if part is None else init_opt_state(config.optimiser, part) for part in parts)),
        step=jnp.int32(0),
        updates=jnp.int32(updates),
        key=two,
    )
