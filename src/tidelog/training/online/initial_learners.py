"""Learners before their first decision in an environment, with all the stores that they will keep."""

from __future__ import annotations

from typing import Any

import jax

from tidelog.algorithms.core.contract import Collecting
from tidelog.envs.functional import Functional
from tidelog.training.engine.learner import LearnerState, Stores, as_arrays, create_learner, metric_names
from tidelog.training.engine.members import Member
from tidelog.training.engine.offload_storage import Storage, check_room
from tidelog.training.engine.plan import extra_metrics, make_stores, planned_stores, played_at_first
from tidelog.types import Spec


def planned_updates(algorithm: Collecting, steps: int) -> int:
    """How many updates a run of so many decisions takes."""
    collection = algorithm.collection()
    rounds = -(-steps // (collection.environments * collection.steps))
    asked = [phase.updates for phase in algorithm.phases()]
    return sum(updates(algorithm, round) for round in range(rounds) for updates in asked if updates is not None)


def fresh_players(
    members: list[Member],
    spec: Spec,
    source: Functional | None,
    steps: int,
    recorded: bool,
    storage: Storage | None = None,
) -> list[LearnerState]:
    """Learners before their first decision; each depends on nothing but its own seed and settings.

    Raises SpaceError where there is no room for what they keep from round to round.
    """
    updates = planned_updates(members[0].algorithm, steps)
    states = [member.algorithm.init(spec, jax.random.key(member.seed), updates) for member in members]
    players = [(member.algorithm, member.seed) for member in members]
    return beginners(players, states, spec, source, recorded, {}, storage)


def beginners(
    players: list[tuple[Any, int]],
    states: list[Any],
    spec: Spec,
    source: Functional | None,
    recorded: bool,
    stores: Stores,
    storage: Storage | None = None,
) -> list[LearnerState]:
    """Learners in given states, for players and their seeds, before their first decision."""
    numbers, storage = as_arrays(players[0][0]), storage or Storage()
    planned = planned_stores(numbers, states[0], spec, recorded)
    stacked = source is not None and storage.stacked(len(players))
    check_room(storage, numbers, planned, len(players), stacked)
    depots = storage.depots(numbers, planned, 0)
    kept = {name: plan for name, plan in planned.items() if name not in depots}
    segments = [make_stores(kept) for _ in players]
    metrics = metric_names(numbers, states[0], {**stores, **segments[0], **depots})
    metrics |= extra_metrics(numbers, states[0], planned)
    return [
        create_learner(
            player,
            state,
            {**stores, **depots},
            seed,
            metrics,
            own,
            played_at_first(player, state, source, seed),
        )
        for (player, seed), state, own in zip(players, states, segments, strict=True)
    ]
