"""Learners before their first decision in an environment, with all their stores."""

from __future__ import annotations

from typing import Any

from tidelog.algorithms.core.contract import Collecting
from tidelog.envs.functional import Functional
from tidelog.networks.keys import new_key
from tidelog.training.engine.learner import LearnerState, Stores, as_arrays, create_learner, metric_names
from tidelog.training.engine.members import Member
from tidelog.training.engine.offload_storage import Storage, check_room
from tidelog.training.engine.plan import first_collection_state, make_stores, planned_stores, stage_metrics
from tidelog.types import Spec


def planned_updates(algorithm: Collecting, steps: int) -> int:
    """Return the number of updates of a run of `steps` decisions."""
    collection = algorithm.collection()
    rounds = -(-steps // (collection.environments * collection.steps))
    updates_of_phases = [phase.updates for phase in algorithm.phases()]
    return sum(
        updates(algorithm, round) for round in range(rounds) for updates in updates_of_phases if updates is not None
    )


def fresh_collectors(
    members: list[Member],
    spec: Spec,
    source: Functional | None,
    steps: int,
    recorded: bool,
    storage: Storage | None = None,
) -> list[LearnerState]:
    """Create learners before their first decision; each depends only on its own seed and settings.

    Raises SpaceError if their stores do not fit.
    """
    updates = planned_updates(members[0].algorithm, steps)
    states = [member.algorithm.init(spec, new_key(member.seed), updates) for member in members]
    collectors = [(member.algorithm, member.seed) for member in members]
    return initial_learners(collectors, states, spec, source, recorded, {}, storage)


def initial_learners(
    collectors: list[tuple[Any, int]],
    states: list[Any],
    spec: Spec,
    source: Functional | None,
    recorded: bool,
    stores: Stores,
    storage: Storage | None = None,
) -> list[LearnerState]:
    """Create learners with these states, for pairs of algorithm and seed, before their first decision."""
    algorithm_arrays, storage = as_arrays(collectors[0][0]), storage or Storage()
    planned = planned_stores(algorithm_arrays, states[0], spec, recorded)
    stacked = source is not None and storage.stacked(len(collectors))
    check_room(storage, algorithm_arrays, planned, len(collectors), stacked)
    offloaded = storage.offloaded_stores(algorithm_arrays, planned, 0)
    on_device = {name: plan for name, plan in planned.items() if name not in offloaded}
    segments = [make_stores(on_device) for _ in collectors]
    metrics = metric_names(algorithm_arrays, states[0], {**stores, **segments[0], **offloaded})
    metrics |= stage_metrics(algorithm_arrays, states[0], planned)
    return [
        create_learner(
            algorithm,
            state,
            {**stores, **offloaded},
            seed,
            metrics,
            own,
            first_collection_state(algorithm, state, source, seed),
        )
        for (algorithm, seed), state, own in zip(collectors, states, segments, strict=True)
    ]
