"""Where members play: one function for all, or on the host an environment each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from tidelog.algorithms.core.contract import Counting
from tidelog.envs.functional import Functional
from tidelog.envs.hosted import Hosted
from tidelog.envs.protocol import Environment
from tidelog.envs.registry import make
from tidelog.errors import ConfigError
from tidelog.training.engine.learner import LearnerState
from tidelog.training.online.collection import Host, Named
from tidelog.types import Spec


@dataclass
class EnvAssignment:
    """One function for all members, or the environment of each."""

    spec: Spec
    source: Functional | None
    hosts: list[Host] = field(default_factory=list)


def places_for(env: Any, count: int, seeds: Sequence[int], recorded: bool) -> EnvAssignment:
    """`count` copies of an environment for a member of each seed; ConfigError where one cannot be shared."""
    first = make(env, count)
    if isinstance(first, Hosted):
        return EnvAssignment(first.spec, first.functional)
    if isinstance(env, Environment) and len(seeds) > 1:
        raise ConfigError(f"one {first.name} cannot be played by {len(seeds)} members: pass its name or its maker")
    environments = [first, *(make(env, count) for _ in seeds[1:])]
    return EnvAssignment(
        first.spec, None, [Host(one, seed, recorded) for one, seed in zip(environments, seeds, strict=True)]
    )


def place_name(env: Any, places: EnvAssignment) -> str:
    """How the environment is called."""
    if isinstance(env, str):
        return env
    source: Functional | Environment = places.source or places.hosts[0].environment
    return source.name


def restored(
    places: EnvAssignment, players: Sequence[Any], learners: Sequence[LearnerState], environments: Sequence[Named]
) -> list[LearnerState]:
    """Learners where they stood, with environments on the host put back; what cannot be put back starts anew."""
    found = list(learners)
    for i, host in enumerate(places.hosts):
        host.restore(environments[i] or None)
        if not environments[i]:  # copies start anew, and with them the episodes that are counted
            played, state = found[i].played, found[i].state
            state = players[i].begun_anew(state) if isinstance(players[i], Counting) else state
            found[i] = found[i]._replace(state=state, played=played._replace(sums=jnp.zeros_like(played.sums)))
    return found
