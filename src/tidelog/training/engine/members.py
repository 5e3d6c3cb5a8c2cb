"""Members of a run, their learners at the start, and the position of a run in its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog.networks.keys import new_key
from tidelog.schema import Count
from tidelog.training.engine.learner import LearnerState, Stores, as_arrays, create_learner, metric_names


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


def fresh_learners(members: list[Member], spec: Any, stores: Stores, steps: int) -> list[LearnerState]:
    """Return learners at update 0; each depends only on its own seed and settings."""
    states = [member.algorithm.init(spec, new_key(member.seed), steps) for member in members]
    metrics = metric_names(as_arrays(members[0].algorithm), states[0], stores)
    return [
        create_learner(member.algorithm, state, stores, member.seed, metrics)
        for member, state in zip(members, states, strict=True)
    ]


def as_members(algorithms: Sequence[Any], seeds: Sequence[int]) -> list[Member]:
    """Return a member for every algorithm of a population and every seed."""
    pairs = [(algorithm, seed) for algorithm in algorithms for seed in seeds]
    return [Member(i, algorithm, seed) for i, (algorithm, seed) in enumerate(pairs)]
