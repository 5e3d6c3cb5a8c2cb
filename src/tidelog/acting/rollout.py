"""Playing a policy in an environment: returns for people, logs for learning. Letters: `W` copies, `A` actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.acting.policy import Policy
from tidelog.envs.play import Actor, Episodes, play
from tidelog.envs.protocol import Environment, Observed
from tidelog.envs.registry import make
from tidelog.errors import ConfigError, SpecError
from tidelog.types import Continuous, Discrete, Spec

COPIES = 16  # environments stepped together


def rollout(
    policy: Policy, env: Any, episodes: int = 50, seed: int = 0, *, sample: bool = False, copies: int | None = None
) -> NDArray[np.float64]:
    """Undiscounted returns [episodes] of a policy, deterministic or (with `sample`) drawn from it.

    `env` is a name (built-in or gymnasium), a gymnasium environment or a function that makes one. SpecError where the
    environment does not show what the policy was trained to see.
    """
    environment = make(env, copies or min(episodes, COPIES))
    try:
        check_same_spec(policy.spec, environment)
        return play(environment, actor(policy, sample=sample), episodes, seed, keep=False).returns
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
) -> tuple[Spec, Episodes]:
    """Play whole episodes and keep everything, with propensities where the policy has a density.

    Without a policy every allowed action is equally likely. Returns the environment's spec and the episodes.
    """
    environment = make(env, copies or min(episodes or COPIES, COPIES))
    try:
        if policy is not None:
            check_same_spec(policy.spec, environment)
        act = uniform_actor(environment.spec) if policy is None else actor(policy, sample=sample)
        return environment.spec, play(environment, act, episodes, seed, steps=steps, progress=progress)
    finally:
        environment.close()


def actor(policy: Policy, *, sample: bool) -> Actor:
    """The policy as `play` asks it: actions for all copies, and propensities [W] where there are any."""

    def act(observed: Observed, generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any] | None]:
        leaves, mask = observed.observation, observed.action_mask
        if sample:
            return policy.sample_with_propensity(leaves, int(generator.integers(2**31)), mask)
        action = policy(leaves, mask)
        return action, np.ones(len(action)) if isinstance(policy.spec.action, Discrete) else None

    return act


def uniform_actor(spec: Spec) -> Actor:
    """Every allowed action equally likely; uniform between the bounds for continuous ones."""
    space = spec.action
    if isinstance(space, Continuous):
        low, high = np.asarray(space.low), np.asarray(space.high)
        density = float(np.prod(1.0 / np.where(high > low, high - low, 1.0)))
        return lambda observed, generator: (
            generator.uniform(low, high, (_count(observed), space.size)).astype(np.float32),
            np.full(_count(observed), density),
        )
    if not isinstance(space, Discrete):
        raise SpecError(f"random play takes Discrete or Continuous actions, found {type(space).__name__}")

    def act(observed: Observed, generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        allowed = (
            observed.action_mask if observed.action_mask is not None else np.ones((_count(observed), space.n), bool)
        )
        ranks = np.where(allowed, generator.random(allowed.shape), -1.0)
        return ranks.argmax(axis=1).astype(np.int32), 1.0 / allowed.sum(axis=1)

    return act


def _count(observed: Observed) -> int:
    return len(next(iter(observed.observation.values())))


def check_same_spec(spec: Spec, environment: Environment) -> None:
    """Raise SpecError unless what the environment shows and takes is what the policy was made for."""
    shown, wanted = dict(environment.spec.observation), dict(spec.observation)
    if set(shown) != set(wanted):
        raise SpecError(f"{environment.name} shows {sorted(shown)}, the policy was trained to see {sorted(wanted)}")
    for name, leaf in wanted.items():
        width, found = _width(leaf), _width(shown[name])
        if type(leaf) is not type(shown[name]) or width != found:
            raise SpecError(
                f"'{name}' is {type(shown[name]).__name__} of width {found} in {environment.name}, the policy was "
                f"trained on {type(leaf).__name__} of width {width}"
            )
    _check_same_actions(spec, environment)


def _width(leaf: Any) -> Any:
    return getattr(leaf, "size", None) or getattr(leaf, "sizes", None)


def _check_same_actions(spec: Spec, environment: Environment) -> None:
    ours, theirs = spec.action, environment.spec.action
    same = type(ours) is type(theirs) and getattr(ours, "n", None) == getattr(theirs, "n", None)
    if same and isinstance(ours, Continuous) and isinstance(theirs, Continuous):
        same = ours.size == theirs.size
        if same and (np.any(np.less(ours.low, theirs.low)) or np.any(np.greater(ours.high, theirs.high))):
            raise ConfigError(
                f"the log's action bounds {ours.low} to {ours.high} reach beyond those of {environment.name}, "
                f"{theirs.low} to {theirs.high}: declare the bounds when the log is read"
            )
    if not same:
        raise SpecError(f"{environment.name} takes {theirs}, the policy acts with {ours}")
