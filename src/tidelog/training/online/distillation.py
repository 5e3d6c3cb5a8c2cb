"""A run in an environment that begins as a policy: it plays a first collection, and fresh members are taught from it.

What it plays is not counted among the run's decisions. The same collection serves every member, so that a member alone
begins as it does among others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tidelog.algorithms.core.contract import Distillable
from tidelog.data.overlap import Sketch
from tidelog.envs.hosted import Hosted
from tidelog.errors import ConfigError, DivergenceError
from tidelog.policies.distillation import lesson_of
from tidelog.policies.policy import Policy
from tidelog.training.engine.learner import LearnerState
from tidelog.training.engine.members import Member
from tidelog.training.online.env_assignment import EnvAssignment
from tidelog.training.runs.options import whole
from tidelog.training.runs.run import Run

SEED = 0  # of what the teacher plays, whoever is taught


@dataclass(frozen=True)
class Start:
    """Who a run begins as; ConfigError where a number is impossible, or what should teach is no policy."""

    policy: Policy
    decisions: int = 16_384  # that it plays
    updates: int = 3_000  # on minibatches of them

    @classmethod
    def of(cls, policy: Any, **numbers: int | None) -> Start | None:
        """A start from what `learn` was given; None where that is nothing."""
        given = {name: value for name, value in numbers.items() if value is not None}
        if policy is None:
            if given:
                names = ", ".join(f"start_{name}" for name in given)
                raise ConfigError(f"{names}: only with a policy to begin as, in start=...")
            return None
        found = policy.policy() if isinstance(policy, Run) else policy
        if not isinstance(found, Policy):
            raise ConfigError(
                f"start: expected a policy or a run, found {type(policy).__name__}: read it first, as in "
                "start=tl.load_policy(path) or start=tl.load(run)"
            )
        return cls(found, **given)

    def __post_init__(self) -> None:
        for name in ("decisions", "updates"):
            if whole(f"start_{name}", getattr(self, name)) < 1:
                raise ConfigError(f"start_{name} = {getattr(self, name)}: expected at least 1")


def check_begins(algorithm: Any) -> None:
    """Raise ConfigError unless the algorithm's policy can begin as another."""
    if not isinstance(algorithm, Distillable):
        raise ConfigError(f"start: {type(algorithm).__name__} has no policy that can begin as another")


def begun_as(
    start: Start, members: Sequence[Member], learners: Sequence[LearnerState], places: EnvAssignment
) -> tuple[list[LearnerState], dict[str, Any]]:
    """Fresh learners whose policies do what the start's does, and what a record says of it.

    ConfigError where they have a memory: what a teacher did is learnt decision by decision. DivergenceError where what
    is learnt from is not finite.
    """
    first = members[0].algorithm
    if first.start(first.policy_params(learners[0].state), 1) is not None:
        raise ConfigError(f"start: {type(first).__name__} with a memory cannot begin as another: leave one away")
    count = members[0].algorithm.collection().environments
    environment = places.hosts[0].environment if places.source is None else Hosted(places.source, count)
    lesson = lesson_of(start.policy, environment, start.decisions, SEED)
    lesson = jax.tree.map(jax.numpy.asarray, lesson)
    found, apart = [], []
    for member, learner in zip(members, learners, strict=True):
        key = jax.random.fold_in(jax.random.key(member.seed), 3)
        state, divergence = member.algorithm.taught(learner.state, lesson, key, start.updates)
        found.append(learner._replace(state=state))
        apart.append(float(divergence))
        if not math.isfinite(apart[-1]):
            raise DivergenceError(
                f"the divergence of {type(first).__name__} with seed {member.seed} from the policy that it begins as "
                "became NaN or infinite: look at that policy, and at what the environment shows it"
            )
    told = {
        "algorithm": type(start.policy.algorithm).__name__,
        "decisions": int(np.shape(jax.tree.leaves(lesson.observation)[0])[0]),
        "updates": start.updates,
        "divergence": apart,
    }
    return found, told


def learnt_through(policy: Policy) -> dict[str, Any]:
    """Sketches for the record of a run that began as a policy: what informed that has informed this."""
    origin = policy.origin
    if origin.get("learnt_from") is None:
        return {}
    if not origin.get("chosen_by") or origin.get("held_out") is None:
        return {"learnt_from": origin["learnt_from"]}
    both = Sketch.from_json(origin["learnt_from"]).joined(Sketch.from_json(origin["held_out"]))
    return {} if both is None else {"learnt_from": both.to_json()}
