"""Members of a run, where a run stands in its rounds, and members that may be stacked. Letters: `S` members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from tidelog.training.engine.learner import LearnerState, Stores, as_arrays, create_learner, metric_names, unstack


@dataclass(frozen=True)
class Member:
    """One run among those that train side by side."""

    index: int
    algorithm: Any
    seed: int


class Position(NamedTuple):
    """Where a run stands in its rounds: the visit of `phase` in `round` has taken `taken` updates."""

    round: int = 0
    phase: int = 0
    taken: int = 0


def apart(learners: list[LearnerState], members: int) -> list[LearnerState]:
    """One learner a member, of learners that may be stacked."""
    return learners if len(learners) == members else [unstack(learners[0], i) for i in range(members)]


def state_of(learners: list[LearnerState], members: int, index: int) -> Any:
    """The state of one member, of learners that may be stacked."""
    return learners[index].state if len(learners) == members else unstack(learners[0].state, index)


def reporting(learners: list[LearnerState], members: int) -> list[LearnerState]:
    """The same with what reports read alone, so that of stacked ones little is copied."""
    if len(learners) == members:
        return learners
    (whole,) = learners
    played = None if whole.played is None else whole.played._replace(worlds=None, carried=None)
    return apart([whole._replace(state=None, orders={}, segments={}, played=played)], members)


def fresh_learners(members: list[Member], spec: Any, stores: Stores, steps: int) -> list[LearnerState]:
    """Learners at update 0; each depends on nothing but its own seed and settings."""
    states = [member.algorithm.init(spec, jax.random.key(member.seed), steps) for member in members]
    metrics = metric_names(as_arrays(members[0].algorithm), states[0], stores)
    return [
        create_learner(member.algorithm, state, stores, member.seed, metrics)
        for member, state in zip(members, states, strict=True)
    ]
