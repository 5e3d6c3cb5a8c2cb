"""Distillation targets: observations from an environment and a policy's distributions on them.

Letters: `N` decisions, `W` copies, `A` number of actions or action size.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.choosing_actions import EpsilonGreedy, EpsilonMode, in_blocks
from tidelog.algorithms.core.contract import DistillationTarget
from tidelog.algorithms.phasic import BLOCK
from tidelog.envs.protocol import Environment
from tidelog.errors import SpecError
from tidelog.networks.distributions import Categorical, Gaussian, Several
from tidelog.policies.action_mapping import MappedPolicy
from tidelog.policies.policy import Policy
from tidelog.policies.rollout import actor
from tidelog.types import Catalogue, Continuous, Spec


def distillation_target(policy: Policy, environment: Environment, decisions: int, seed: int) -> DistillationTarget:
    """Return at least this number of decisions that a policy samples in an environment, with its distributions.

    SpecError where the policy does not match the environment, or has no distribution for a single observation.
    """
    check_distillable(policy)
    aligned, act = MappedPolicy(policy, environment.spec, environment.name), actor(policy, environment, sample=True)
    generator, rows, count = np.random.default_rng([seed, 2]), [], 0
    observed = environment.reset(seed)
    _distribution(
        policy, aligned, environment.spec, observed.observation, observed.action_mask
    )  # fails before the rollout
    while count < decisions:
        outcome = environment.step(act(observed, generator)[0])
        valid = np.ones(environment.count, bool) if outcome.valid is None else outcome.valid
        rows.append(jax.tree.map(lambda leaf, v=valid: leaf[v], (observed.observation, observed.action_mask)))
        count += int(valid.sum())
        observed = outcome.current
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
