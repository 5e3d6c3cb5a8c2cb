"""Rollouts of a policy in an environment: returns, logs for learning, and distillation targets.

Letters: `W` copies, `A` number of actions or action size, `N` decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tidelog.algorithms.core.choosing_actions import EpsilonGreedy, EpsilonMode, in_blocks
from tidelog.algorithms.core.contract import DistillationTarget
from tidelog.algorithms.phasic import BLOCK
from tidelog.data.log import Log
from tidelog.envs.play import Actor, Episodes, play
from tidelog.envs.protocol import BatchObservation, Environment
from tidelog.envs.registry import make
from tidelog.errors import SpecError
from tidelog.networks.distributions import Categorical, Gaussian, Several
from tidelog.policies.action_mapping import MappedPolicy
from tidelog.policies.policy import Policy
from tidelog.runtime.way_of_acting import in_way, way_of
from tidelog.types import Catalogue, Continuous, Discrete, MultiDiscrete, Spec

COPIES = 16  # environments stepped together


def rollout(
    policy: Policy,
    env: Any,
    episodes: int = 50,
    seed: int = 0,
    *,
    sample: bool | None = None,
    copies: int | None = None,
) -> NDArray[np.float64]:
    """Return undiscounted returns [episodes] of a policy, by its most likely actions or (with `sample`) sampled.

    `sample` None acts in the declared way, else by the most likely actions; another way than the declared one
    warns. `env` is a name (built-in or gymnasium), a gymnasium environment or a function that makes one. SpecError if
    the environment's observations differ from the policy's.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> policy = tl.fit(tl.BC(hidden=(16,)), log, steps=20).policy()
        >>> tl.rollout(policy, "treatment", episodes=50, seed=0, sample=True).shape
        (50,)
    """
    environment = make(env, copies or min(episodes, COPIES))
    try:
        return play(environment, actor(in_way(policy, way_of(sample)), environment), episodes, seed, keep=False).returns
    finally:
        environment.close()


def collect(
    env: Any,
    policy: Policy | None = None,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    sample: bool | None = None,
    copies: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Log:
    """Collect whole episodes as a log, with propensities where the policy has a density.

    Set `episodes`, or `steps` for the smallest number of episodes with this number of decisions. Without a policy all
    allowed actions have equal probability. `sample` None acts in the policy's declared way, else it samples. The log's
    spec is the environment's.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> len(log.starts) - 1, sorted(log.observation)
        (200, ['categorical', 'numeric'])
    """
    environment = make(env, copies or min(episodes or COPIES, COPIES))
    try:
        act = (
            uniform_actor(environment.spec)
            if policy is None
            else actor(in_way(policy, way_of(sample), otherwise="sample"), environment)
        )
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


def actor(policy: Policy, environment: Environment) -> Actor:
    """Return the policy as an actor for `play`: actions for all copies, and propensities [W] where they exist.

    It acts in its declared way, without one by its most likely actions.
    """
    aligned = MappedPolicy(policy, environment.spec, environment.name)

    def act(observed: BatchObservation, generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any] | None]:
        leaves, mask = observed.observation, observed.action_mask
        if observed.first is not None:
            aligned.begin(observed.first)
        if policy.acting == "sample":
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
            generator.uniform(low, high, (_copies(observed), space.size)).astype(np.float32),
            np.full(_copies(observed), density),
        )
    if not isinstance(space, Discrete):
        raise SpecError(
            f"random actions support Discrete or Continuous spaces, got {type(space).__name__}. fix: pass a policy"
        )

    def act(observed: BatchObservation, generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        allowed = (
            observed.action_mask if observed.action_mask is not None else np.ones((_copies(observed), space.n), bool)
        )
        ranks = np.where(allowed, generator.random(allowed.shape), -1.0)
        return ranks.argmax(axis=1).astype(np.int32), 1.0 / allowed.sum(axis=1)

    return act


def _copies(observed: BatchObservation) -> int:
    return len(next(iter(observed.observation.values())))


# Distillation targets: observations from an environment and a policy's distributions on them.


def distillation_target(policy: Policy, environment: Environment, decisions: int, seed: int) -> DistillationTarget:
    """Return at least this number of decisions that a policy samples in an environment, with its distributions.

    SpecError where the policy does not match the environment, or has no distribution for a single observation.
    """
    check_distillable(policy)
    aligned, act = (
        MappedPolicy(policy, environment.spec, environment.name),
        actor(policy.with_acting("sample"), environment),
    )
    generator, rows, count = np.random.default_rng([seed, 2]), [], 0
    observed = environment.reset(seed).copied()
    _distribution(
        policy, aligned, environment.spec, observed.observation, observed.action_mask
    )  # fails before the rollout
    while count < decisions:
        outcome = environment.step(act(observed, generator)[0])
        valid = np.ones(environment.count, bool) if outcome.valid is None else outcome.valid
        rows.append(jax.tree.map(lambda leaf, v=valid: leaf[v], (observed.observation, observed.action_mask)))
        count += int(valid.sum())
        observed = outcome.current_observation.copied()
    seen, mask = jax.tree.map(lambda *leaves: np.concatenate(leaves), *rows)
    return DistillationTarget(seen, mask, _distribution(policy, aligned, environment.spec, seen, mask))


def check_distillable(policy: Policy) -> None:
    """Raise SpecError unless the policy has a distribution for every single observation."""
    name = type(policy.algorithm).__name__
    if isinstance(policy.spec.action, Catalogue):
        raise SpecError(f"this {name} policy ranks items of a catalogue; start= does not support it. fix: drop start=")
    if policy.is_recurrent:
        raise SpecError(
            f"this {name} policy is recurrent; start= does not support recurrent policies. "
            "fix: pass a feed-forward policy or drop start="
        )


def _distribution(policy: Policy, aligned: MappedPolicy, spec: Spec, leaves: Any, mask: Any) -> Any:
    """Return the policy's distributions [N], in the environment's order and units."""
    seen, allowed = aligned.translated(leaves, mask)
    numbers = jax.tree.map(jnp.float32, policy.algorithm)
    output = _plain_in_blocks(numbers, policy.params, policy.scaler.observation(seen), allowed)
    if output is None:
        raise SpecError(
            f"this {type(policy.algorithm).__name__} policy has no density and no divergence. fix: train BC on its log "
            "(`tidelog collect --policy`, then `tidelog train bc`) and pass that to start="
        )
    if isinstance(output, Categorical) and aligned.order is not None:
        return Categorical(output.logits[:, aligned.order])
    mine, yours = policy.spec.action, spec.action
    if isinstance(output, Gaussian) and isinstance(mine, Continuous) and isinstance(yours, Continuous):
        unit = np.ones(mine.size, np.float32)
        share = yours.to_unit(mine.from_unit(unit)) - yours.to_unit(mine.from_unit(0.0 * unit))
        return Gaussian(yours.to_unit(mine.from_unit(output.mean)), output.log_std + np.log(share))
    return output


@eqx.filter_jit
def _plain_in_blocks(algorithm: Any, params: Any, leaves: Any, mask: Any) -> Any:
    return in_blocks(lambda rows: _plain(algorithm.distribution(params, *rows)), (leaves, mask), BLOCK)


def _plain(output: Any) -> Categorical | Several | Gaussian | None:
    """Return a distribution with a divergence, or None for one without a density."""
    if isinstance(output, Gaussian):
        return Gaussian(output.mean, jnp.broadcast_to(output.log_std, output.mean.shape))
    if isinstance(output, Categorical | Several):
        return output
    if isinstance(output, EpsilonGreedy) or (isinstance(output, EpsilonMode) and isinstance(output.base, Categorical)):
        return Categorical(jnp.log(output.probabilities()))
    return None
