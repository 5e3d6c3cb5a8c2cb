"""A policy as a teacher: what it sees in an environment, and what it would do there, as whole distributions.

Letters: `N` decisions, `W` copies, `A` number of actions or action size.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.choosing_actions import Among, Mixed, in_blocks
from tidelog.algorithms.core.contract import DistillationTarget
from tidelog.algorithms.phasic.distillation import BLOCK
from tidelog.envs.protocol import Environment
from tidelog.errors import SpecError
from tidelog.networks.distributions import Categorical, Gaussian, Several
from tidelog.policies.action_mapping import Aligned
from tidelog.policies.policy import Policy
from tidelog.policies.rollout import actor
from tidelog.types import Catalogue, Continuous, Spec


def lesson_of(policy: Policy, environment: Environment, decisions: int, seed: int) -> DistillationTarget:
    """At least so many decisions that a policy samples in all copies of an environment, with its distributions.

    SpecError where the policy does not fit the environment, or has no distribution of a single observation.
    """
    check_teaches(policy)
    aligned, act = Aligned(policy, environment.spec, environment.name), actor(policy, environment, sample=True)
    generator, rows, count = np.random.default_rng([seed, 2]), [], 0
    observed = environment.reset(seed)
    _distribution(policy, aligned, environment.spec, observed.observation, observed.action_mask)  # before it plays
    while count < decisions:
        outcome = environment.step(act(observed, generator)[0])
        valid = np.ones(environment.count, bool) if outcome.valid is None else outcome.valid
        rows.append(jax.tree.map(lambda leaf, v=valid: leaf[v], (observed.observation, observed.action_mask)))
        count += int(valid.sum())
        observed = outcome.current
    seen, mask = jax.tree.map(lambda *leaves: np.concatenate(leaves), *rows)
    return DistillationTarget(seen, mask, _distribution(policy, aligned, environment.spec, seen, mask))


def check_teaches(policy: Policy) -> None:
    """Raise SpecError unless the policy says of every single observation what it would do."""
    name = type(policy.algorithm).__name__
    if isinstance(policy.spec.action, Catalogue):
        raise SpecError(f"this {name} policy ranks items of a catalogue: no policy in an environment can begin as it")
    if policy.is_recurrent:
        raise SpecError(
            f"this {name} policy remembers what it saw before: a policy of single observations cannot begin as it"
        )


def _distribution(policy: Policy, aligned: Aligned, spec: Spec, leaves: Any, mask: Any) -> Any:
    """What the policy would do [N], in the environment's order and units."""
    seen, allowed = aligned.translated(leaves, mask)
    numbers = jax.tree.map(jnp.float32, policy.algorithm)
    found = _plain_in_blocks(numbers, policy.params, policy.scaler.observation(seen), allowed)
    if found is None:
        raise SpecError(
            f"this {type(policy.algorithm).__name__} policy has no density, and so no divergence that could be made "
            "small: clone what it plays (`tidelog collect --policy`, then `tidelog train bc`), and begin as that clone"
        )
    if isinstance(found, Categorical) and aligned.order is not None:
        return Categorical(found.logits[:, aligned.order])
    mine, yours = policy.spec.action, spec.action
    if isinstance(found, Gaussian) and isinstance(mine, Continuous) and isinstance(yours, Continuous):
        unit = np.ones(mine.size, np.float32)
        share = yours.to_unit(mine.from_unit(unit)) - yours.to_unit(mine.from_unit(0.0 * unit))
        return Gaussian(yours.to_unit(mine.from_unit(found.mean)), found.log_std + np.log(share))
    return found


@eqx.filter_jit
def _plain_in_blocks(algorithm: Any, params: Any, leaves: Any, mask: Any) -> Any:
    return in_blocks(lambda rows: _plain(algorithm.distribution(params, *rows)), (leaves, mask), BLOCK)


def _plain(found: Any) -> Categorical | Several | Gaussian | None:
    """A distribution as one that has divergences, or None where it has no density."""
    if isinstance(found, Gaussian):
        return Gaussian(found.mean, jnp.broadcast_to(found.log_std, found.mean.shape))
    if isinstance(found, Categorical | Several):
        return found
    if isinstance(found, Among) or (isinstance(found, Mixed) and isinstance(found.base, Categorical)):
        return Categorical(jnp.log(found.probabilities()))
    return None
