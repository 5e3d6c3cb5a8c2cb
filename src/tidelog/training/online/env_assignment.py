"""The assignment of environments to members: one functional environment for all, or one host environment each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from tidelog.algorithms.core.contract import Counting
from tidelog.envs.functional import Functional, Hosted
from tidelog.envs.protocol import Environment
from tidelog.envs.registry import is_one_object, make
from tidelog.errors import ConfigError
from tidelog.training.engine.learner import LearnerState
from tidelog.training.online.collection import Host, Named
from tidelog.types import Spec


@dataclass
class EnvAssignment:
    """One functional environment for all members, or one host environment per member."""

    spec: Spec
    source: Functional | None
    hosts: Sequence[Host] = field(default_factory=list)


def assign_environments(env: Any, count: int, seeds: Sequence[int], recorded: bool) -> EnvAssignment:
    """Assign `count` copies of an environment to one member per seed; ConfigError if one object would be shared."""
    first = make(env, count)
    if isinstance(first, Hosted):
        return EnvAssignment(first.spec, first.functional)
    if is_one_object(env) and len(seeds) > 1:
        raise ConfigError(
            f"env: one {first.name} object cannot serve {len(seeds)} members, expected one per member. fix: pass its "
            "name, or a function that creates it"
        )
    environments = [first, *(make(env, count) for _ in seeds[1:])]
    return EnvAssignment(
        first.spec, None, [Host(one, seed, recorded) for one, seed in zip(environments, seeds, strict=True)]
    )


def environment_name(env: Any, assignment: EnvAssignment) -> str:
    """Return the name of the environment."""
    if isinstance(env, str):
        return env
    source: Functional | Environment = assignment.source or assignment.hosts[0].environment
    return source.name


def restore_environments(
    assignment: EnvAssignment,
    algorithms: Sequence[Any],
    learners: Sequence[LearnerState],
    environments: Sequence[Named],
) -> list[LearnerState]:
    """Restore learners and their host environments from a checkpoint; environments without a saved state are reset."""
    restored_learners = list(learners)
    for i, host in enumerate(assignment.hosts):
        host.restore(environments[i] or None)
        if not environments[i]:  # the copies are reset, and with them the sums of their episodes
            restored_learners[i] = with_new_episodes(algorithms[i], restored_learners[i])
    return restored_learners


def with_new_episodes(algorithm: Any, learner: LearnerState) -> LearnerState:
    """Return the learner whose copies were all reset: sums of their episodes begin again."""
    collection_state, state = learner.collection_state, learner.state
    state = algorithm.with_new_episodes(state) if isinstance(algorithm, Counting) else state
    sums = jnp.zeros_like(collection_state.sums)
    return learner._replace(state=state, collection_state=collection_state._replace(sums=sums))
