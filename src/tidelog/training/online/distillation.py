"""The start policy of a run in an environment: it collects decisions first, and fresh members are distilled from it.

These decisions are not counted in the run's steps. All members use the same collection, therefore a member starts
equally alone and with others.
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
from tidelog.envs.functional import Hosted
from tidelog.errors import ConfigError, DivergenceError
from tidelog.networks.keys import fold_in, new_key
from tidelog.policies.policy import Policy
from tidelog.policies.rollout import distillation_target
from tidelog.training.engine.learner import LearnerState
from tidelog.training.engine.members import Member
from tidelog.training.online.env_assignment import EnvAssignment
from tidelog.training.runs.options import whole
from tidelog.training.runs.record import Distillation
from tidelog.training.runs.run import Run

SEED = 0  # of the start policy's collection, for all members


@dataclass(frozen=True)
class Start:
    """The start policy and the size of its distillation; ConfigError for an invalid number or something else."""

    policy: Policy
    decisions: int = 16_384  # that the policy collects
    updates: int = 3_000  # on minibatches of them

    @classmethod
    def of(cls, policy: Any, **numbers: int | None) -> Start | None:
        """Create a start from the arguments of `learn`, or None without a start policy."""
        settings = {name: value for name, value in numbers.items() if value is not None}
        if policy is None:
            if settings:
                names = ", ".join(f"start_{name}" for name in settings)
                raise ConfigError(
                    f"{names}: has no effect without a start policy. fix: set start= too, or drop {names}"
                )
            return None
        start_policy = policy.policy() if isinstance(policy, Run) else policy
        if not isinstance(start_policy, Policy):
            raise ConfigError(
                f"start: expected a policy or a run, found {type(policy).__name__}. fix: read it first, as in "
                "start=tl.load_policy(path) or start=tl.load(run)"
            )
        return cls(start_policy, **settings)

    def __post_init__(self) -> None:
        for name in ("decisions", "updates"):
            if whole(f"start_{name}", getattr(self, name)) < 1:
                raise ConfigError(f"start_{name} = {getattr(self, name)}: expected at least 1. fix: use 1000")


def check_begins(algorithm: Any) -> None:
    """Raise ConfigError unless the algorithm supports a start policy."""
    if not isinstance(algorithm, Distillable):
        raise ConfigError(
            f"start: {type(algorithm).__name__} does not support a start policy. fix: use PPG or OffPolicyPPG, or drop "
            "start="
        )


def begun_as(
    start: Start, members: Sequence[Member], learners: Sequence[LearnerState], assignment: EnvAssignment
) -> tuple[list[LearnerState], Distillation]:
    """Distill fresh learners from the start policy; return them, and the facts for the record.

    ConfigError for recurrent learners, because the distillation reads single decisions. DivergenceError if the
    divergence is not finite.
    """
    first = members[0].algorithm
    if first.start(first.policy_params(learners[0].state), 1) is not None:
        raise ConfigError(
            f"start: {type(first).__name__} is recurrent here, and start= supports only feed-forward policies. fix: "
            "drop recurrent_size or start="
        )
    count = members[0].algorithm.collection().environments
    environment = assignment.hosts[0].environment if assignment.source is None else Hosted(assignment.source, count)
    target = distillation_target(start.policy, environment, start.decisions, SEED)
    target = jax.tree.map(jax.numpy.asarray, target)
    distilled, divergences = [], []
    for member, learner in zip(members, learners, strict=True):
        key = fold_in(new_key(member.seed), 3)
        state, divergence = member.algorithm.distilled(learner.state, target, key, start.updates)
        distilled.append(learner._replace(state=state))
        divergences.append(float(divergence))
        if not math.isfinite(divergences[-1]):
            raise DivergenceError(
                f"the divergence of {type(first).__name__} with seed {member.seed} from the start policy became NaN or "
                "infinite, expected a finite number. fix: check the start policy and the environment's observations"
            )
    facts = Distillation(
        algorithm=type(start.policy.algorithm).__name__,
        decisions=int(np.shape(jax.tree.leaves(target.observation)[0])[0]),
        updates=start.updates,
        divergence=divergences,
    )
    return distilled, facts


def learnt_through(policy: Policy) -> dict[str, Any]:
    """Return the sketches for the record of a distilled run: the data of its start policy count as its own."""
    origin = policy.origin
    if origin.get("learnt_from") is None:
        return {}
    if not origin.get("chosen_by") or origin.get("held_out") is None:
        return {"learnt_from": origin["learnt_from"]}
    union = Sketch.from_json(origin["learnt_from"]).joined(Sketch.from_json(origin["held_out"]))
    return {} if union is None else {"learnt_from": union.to_json()}
