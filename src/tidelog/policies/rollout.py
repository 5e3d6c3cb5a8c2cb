"""Rollouts of a policy in an environment: returns, and logs for learning. Letters: `W` copies, `A` actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.envs.play import Actor, Episodes, play
from tidelog.envs.protocol import Environment, Observed
from tidelog.envs.registry import make
from tidelog.errors import SpecError
from tidelog.policies.action_mapping import MappedPolicy
from tidelog.policies.policy import Policy
from tidelog.types import Continuous, Discrete, MultiDiscrete, Spec

COPIES = 16  # environments stepped together


def rollout(
    policy: Policy, env: Any, episodes: int = 50, seed: int = 0, *, sample: bool = False, copies: int | None = None
) -> NDArray[np.float64]:
    """Return undiscounted returns [episodes] of a policy, deterministic or (with `sample`) sampled.

    `env` is a name (built-in or gymnasium), a gymnasium environment or a function that makes one. SpecError where the
    environment's observations differ from the policy's.
    """
    environment = make(env, copies or min(episodes, COPIES))
    try:
        return play(environment, actor(policy, environment, sample=sample), episodes, seed, keep=False).returns
    finally:
        environment.close()


def collect(
    env: Any,
    policy: Policy | None = None,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    sample: bool = True,
    copies: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Log:
    """Collect whole episodes as a log, with propensities where the policy has a density.

    Set `episodes`, or `steps` for the smallest number of episodes with this number of decisions. Without a policy all
    allowed actions have equal probability. The log's spec is the environment's.
    """
    environment = make(env, copies or min(episodes or COPIES, COPIES))
    try:
        act = uniform_actor(environment.spec) if policy is None else actor(policy, environment, sample=sample)
        return log_of(environment.spec, play(environment, act, episodes, seed, steps=steps, progress=progress))
    finally:
        environment.close()


def log_of(spec: Spec, played: Episodes) -> Log:
    """Return collected episodes as a log whose spec is the environment's."""
    space = spec.action
    log = Log.from_arrays(
        **played.columns(),
        actions=space.n if isinstance(space, Discrete) else space.sizes if isinstance(space, MultiDiscrete) else None,
        bounds=(space.low, space.high) if isinstance(space, Continuous) else None,
    )
    return replace(log, spec=replace(spec, masked=log.spec.masked))


def actor(policy: Policy, environment: Environment, *, sample: bool) -> Actor:
    """Return the policy as an actor for `play`: actions for all copies, and propensities [W] where they exist."""
    aligned = MappedPolicy(policy, environment.spec, environment.name)

    def act(observed: Observed, generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any] | None]:
        leaves, mask = observed.observation, observed.action_mask
        if observed.first is not None:
            aligned.begin(observed.first)
        if sample:
            return aligned.sample(leaves, mask, int(generator.integers(2**31)))
        action = aligned.act(leaves, mask)
        return action, np.ones(len(action)) if isinstance(policy.spec.action, Discrete) else None

    return act


def uniform_actor(spec: Spec) -> Actor:
    """Return an actor with uniform allowed actions; uniform between the bounds for continuous actions."""
    space = spec.action
    if isinstance(space, Continuous):
        low, high = np.asarray(space.low), np.asarray(space.high)
        density = float(np.prod(1.0 / np.where(high > low, high - low, 1.0)))
        return lambda observed, generator: (
            generator.uniform(low, high, (_count(observed), space.size)).astype(np.float32),
            np.full(_count(observed), density),
        )
    if not isinstance(space, Discrete):
        raise SpecError(
            f"random actions support Discrete or Continuous spaces, got {type(space).__name__}. fix: pass a policy"
        )

    def act(observed: Observed, generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        allowed = (
            observed.action_mask if observed.action_mask is not None else np.ones((_count(observed), space.n), bool)
        )
        ranks = np.where(allowed, generator.random(allowed.shape), -1.0)
        return ranks.argmax(axis=1).astype(np.int32), 1.0 / allowed.sum(axis=1)

    return act


def _count(observed: Observed) -> int:
    return len(next(iter(observed.observation.values())))
