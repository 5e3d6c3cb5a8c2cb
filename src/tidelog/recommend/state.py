"""Everything that a resumed run of recommender BCQ needs, and how it begins.

Letters: `N` items, `L` latent size, `n` ideas.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.optimisation import copied, optimiser_memory
from tidelog.algorithms.core.running_statistics import Running, nothing_seen
from tidelog.networks.mlp import host_generator
from tidelog.recommend.candidate_generation import Imagination, clipped, likeliest
from tidelog.recommend.networks.catalogue import Correction, ItemGenerator, Pair, Raters, Table
from tidelog.recommend.networks.sequence import Reader
from tidelog.recommend.next_item import Facts, Recall, facts
from tidelog.types import Spec

UNCHOSEN = 0.25  # the weight of Q in the score where no held-out period has chosen it


class Optimisers(NamedTuple):
    """What the optimisers remember, one for each network; None for one that is not there."""

    recall: Any
    critic: Any
    generator: Any
    perturbation: Any


class State(NamedTuple):
    """Everything that a resumed run needs."""

    recall: Recall
    target_reader: Reader
    critic: Raters
    target_critic: Raters
    imagination: Imagination | None  # None: candidates are the likeliest items
    target_perturbation: Any  # a Correction, where there is a generator
    latents: jax.Array | None  # [n, L]: what acting decodes
    known: Facts
    rewards: Running | None
    weight: jax.Array  # of Q in the score
    optimisers: Optimisers
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedule
    key: jax.Array


def told_of_users(h: Any, spec: Spec) -> bool:
    """Whether the reader is told who the user is."""
    return h.profile and "user" in spec.observation


def begin(h: Any, spec: Spec, key: jax.Array, updates: int) -> State:
    """Fresh networks; targets start as what they follow. What the log knows of its items comes in `furnish`."""
    random, (one, two) = host_generator(key), jax.random.split(key)
    catalogue, history = spec.action, spec.observation["history"]
    count, features = catalogue.n, len(catalogue.features) or None  # type: ignore[union-attr]
    table = Table.create(random, count, h.size, features if h.content else None, h.tower_hidden)
    kinds = len(history.events)  # type: ignore[union-attr]
    described = len(spec.observation["user"].columns) if told_of_users(h, spec) else 0  # type: ignore[union-attr]
    reader = Reader.create(random, h.encoder, h.size, kinds, h.history, h.layers, h.heads, described)
    critic = Raters(tuple(Pair.create(random, h.size, h.size, h.hidden, 1) for _ in range(h.critics)))
    imagination = latents = None
    if h.generator is not likeliest:
        inward = Pair.create(random, h.size, h.size, h.generator_hidden, 2 * h.latent_size)
        outward = Pair.create(random, h.size, h.latent_size, h.generator_hidden, h.size)
        correction = Correction(Pair.create(random, h.size, h.size, h.perturbation_hidden, h.size))
        imagination = Imagination(ItemGenerator(inward, outward), correction)
        latents = clipped(h, one, (h.samples, h.latent_size))
    recall = Recall(table, reader)
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
        known=facts(np.zeros(count + 1), none if h.content else None),
        rewards=nothing_seen() if h.normalise_rewards else None,
        weight=jnp.float32(UNCHOSEN if h.q_weight is None else h.q_weight),
        optimisers=Optimisers(*(None if part is None else optimiser_memory(h.optimiser, part) for part in parts)),
        step=jnp.int32(0),
        updates=jnp.int32(updates),
        key=two,
    )
