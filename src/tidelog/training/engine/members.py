"""Members of a run, the position of a run in its rounds, and stacked learners. Letters: `S` members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from tidelog.schema import Count
from tidelog.training.engine.learner import LearnerState, Stores, as_arrays, create_learner, metric_names, unstack


@dataclass(frozen=True)
class Member:
    """One algorithm with one seed, trained side by side with other members."""

    index: int
    algorithm: Any
    seed: int


class Position(NamedTuple):
    """The position of a run in its rounds: `phase` of `round` has done `updates` updates."""

    round: Count = 0
    phase: Count = 0
    updates: Count = 0


def apart(learners: list[LearnerState], members: int) -> list[LearnerState]:
    """Return one learner per member, from learners that may be stacked."""
    return learners if len(learners) == members else [unstack(learners[0], i) for i in range(members)]


def state_of(learners: list[LearnerState], members: int, index: int) -> Any:
    """Return the state of one member, from learners that may be stacked."""
    return learners[index].state if len(learners) == members else unstack(learners[0].state, index)


def reporting(learners: list[LearnerState], members: int) -> list[LearnerState]:
    """Return one learner per member with the fields that reports read; stacked learners then copy little."""
    if len(learners) == members:
        return learners
    (stacked,) = learners
    collection_state = (
        None if stacked.collection_state is None else stacked.collection_state._replace(env_states=None, carried=None)
    )
    return apart([stacked._replace(state=None, orders={}, segments={}, collection_state=collection_state)], members)


def fresh_learners(members: list[Member], spec: Any, stores: Stores, steps: int) -> list[LearnerState]:
    """Return learners at update 0; each depends only on its own seed and settings."""
    states = [member.algorithm.init(spec, jax.random.key(member.seed), steps) for member in members]
    metrics = metric_names(as_arrays(members[0].algorithm), states[0], stores)
    return [
        create_learner(member.algorithm, state, stores, member.seed, metrics)
        for member, state in zip(members, states, strict=True)
    ]


def as_members(algorithms: Sequence[Any], seeds: Sequence[int]) -> list[Member]:
    """Return a member for every algorithm of a population and every seed."""
    pairs = [(algorithm, seed) for algorithm in algorithms for seed in seeds]
    return [Member(i, algorithm, seed) for i, (algorithm, seed) in enumerate(pairs)]
