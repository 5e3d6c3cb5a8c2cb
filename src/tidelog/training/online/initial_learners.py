"""Learners before their first decision in an environment, with all their stores."""

from __future__ import annotations

from typing import Any

import jax

from tidelog.algorithms.core.contract import Collecting
from tidelog.envs.functional import Functional
from tidelog.networks.keys import new_key
from tidelog.training.engine.learner import LearnerState, Stores, as_arrays, create_learner, metric_names
from tidelog.training.engine.members import Member
from tidelog.training.engine.memory_need import check_segments
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
    together: bool | None = None,
) -> list[LearnerState]:
    """Create learners before their first decision; each depends only on its own seed and settings.

    Raises SpaceError if their stores do not fit. `together` is that of the run.
    """
    updates = planned_updates(members[0].algorithm, steps)
    states = [member.algorithm.init(spec, new_key(member.seed), updates) for member in members]
    collectors = [(member.algorithm, member.seed) for member in members]
    return initial_learners(collectors, states, spec, source, recorded, {}, together)


def initial_learners(
    collectors: list[tuple[Any, int]],
    states: list[Any],
    spec: Spec,
    source: Functional | None,
    recorded: bool,
    stores: Stores,
    together: bool | None = None,
) -> list[LearnerState]:
    """Create learners with these states, for pairs of algorithm and seed, before their first decision."""
    algorithm_arrays = as_arrays(collectors[0][0])
    planned = planned_stores(algorithm_arrays, states[0], spec, recorded)
    together = jax.default_backend() != "cpu" if together is None else together
    check_segments(planned, len(collectors), together and len(collectors) > 1 and source is not None)
    segments = [make_stores(planned) for _ in collectors]
    metrics = metric_names(algorithm_arrays, states[0], {**stores, **segments[0]})
    metrics |= stage_metrics(algorithm_arrays, states[0], planned)
    return [
        create_learner(
            algorithm,
            state,
            stores,
            seed,
            metrics,
            own,
            first_collection_state(algorithm, state, source, seed),
        )
        for (algorithm, seed), state, own in zip(collectors, states, segments, strict=True)
    ]
