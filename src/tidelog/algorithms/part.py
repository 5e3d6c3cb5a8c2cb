"""A part of a policy: it decides where a verdict could judge it, and leaves all else to the present practice.

A verdict forms it (`tidelog.ope.ladder`), and nothing trains it. Its actions are those of the policy and one more, the
last: "present practice". Letters: `B` batch, `A` actions of the policy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.contract import without_scale
from tidelog.algorithms.hyperparameters import from_config, to_config
from tidelog.data.statistics import Scaler
from tidelog.errors import ConfigError
from tidelog.networks import recipe
from tidelog.networks.actors import Categorical
from tidelog.networks.layers import zeros
from tidelog.types import Act, Discrete, Observation, Spec, Vector

PRACTICE = "present practice"  # the label of the last action
LEAST_CHANCE = 1e-12  # of the practice, as a divisor


class PartParams(NamedTuple):
    """What acting reads."""

    policy: Any
    practice: Any  # None by share
    scale: dict[str, jax.Array]  # [size] by leaf: observations of the policy times these, plus `shift`, are those that
    shift: dict[str, jax.Array]  # the model of the practice reads


def part_spec(spec: Spec) -> Spec:
    """The spec of a part of a policy with this spec: one more action."""
    space = spec.action
    if not isinstance(space, Discrete):
        raise ConfigError(f"a part of a policy of {type(space).__name__} actions", "discrete actions")
    names = space.names or tuple(map(str, range(space.n)))
    return dataclasses.replace(spec, action=Discrete(space.n + 1, (*names, PRACTICE)))


class PolicyPart(eqx.Module):
    """Decides like `policy` with probability `share` where no action's probability is more than `largest_ratio` times
    that under `practice`, and else leaves the decision; by sampled or by most likely actions.
    """

    policy: Any
    practice: Any  # None: no ratio is compared
    largest_ratio: float
    share: float
    sampled: bool = eqx.field(static=True)
    actions: int = eqx.field(static=True)  # A

    takes: ClassVar[tuple[type, ...]] = (Discrete,)

    @classmethod
    def from_config(cls, values: Mapping[str, Any], algorithm_of: Callable[[str], Any]) -> PolicyPart:
        """Rebuild from `to_config`; `algorithm_of(name)` is the class of an algorithm."""
        algorithms: dict[str, Any] = {
            name: values[name] and from_config(algorithm_of(values[name]["algorithm"]), values[name]["config"])
            for name in ("policy", "practice")
        }
        return cls(
            **algorithms,
            largest_ratio=float(values["largest_ratio"]),
            share=float(values["share"]),
            sampled=bool(values["sampled"]),
            actions=int(values["actions"]),
        )

    def to_config(self, name_of: Callable[[Any], str]) -> dict[str, Any]:
        """Plain values; `name_of(algorithm)` is the name of an algorithm."""
        algorithms = {
            name: one and {"algorithm": name_of(one), "config": to_config(one)}
            for name, one in (("policy", self.policy), ("practice", self.practice))
        }
        numbers = {"largest_ratio": float(self.largest_ratio), "share": float(self.share)}
        return {**algorithms, **numbers, "sampled": self.sampled, "actions": self.actions}

    def init(self, spec: Spec, key: jax.Array, updates: int) -> PartParams:
        """Return parameters of the right shapes, to be filled from a file."""
        own = dataclasses.replace(spec, action=Discrete(self.actions))
        policy, practice = (
            one and without_scale(one.policy_params(one.init(own, key, updates)), Scaler())[0]
            for one in (self.policy, self.practice)
        )
        sizes = {name: leaf.size for name, leaf in spec.observation.items() if isinstance(leaf, Vector)}
        arrays = {} if practice is None else {name: zeros(size) for name, size in sizes.items()}
        return PartParams(policy, practice, arrays, dict(arrays))

    def policy_params(self, state: PartParams) -> PartParams:
        """Return the state."""
        return state

    def initial_state(self, params: PartParams, batch: int) -> Any:
        """Return the policy's recurrent state."""
        return self.policy.initial_state(params.policy, batch)

    def act(
        self, params: PartParams, observation: Observation, *, mask: Any = None, carry: Any = None, key: Any = None
    ) -> Act:
        """Return the policy's action, or the last one: the present practice."""
        chances, carry = self._chances(params, observation, mask, carry)
        action = chances.mode() if key is None else chances.sample(key)
        return Act(action, chances.log_probability(action), carry)

    def distribution(self, params: PartParams, observation: Observation, mask: Any = None, carry: Any = None) -> Any:
        """Return the probabilities of the policy's actions and of the present practice."""
        return self._chances(params, observation, mask, carry)[0]

    def q_values(self, params: PartParams, observation: Observation, action: Any = None) -> None:
        """Return None: what the present practice earns is not in the policy's values."""
        return

    def _chances(self, params: PartParams, observation: Observation, mask: Any, carry: Any) -> tuple[Categorical, Any]:
        some, allowed = (
            jnp.asarray(True),
            None,
        )  # [B]: whether one of the policy's actions is allowed; else the practice decides
        if mask is not None:
            some = jnp.any(mask[:, :-1], axis=-1)
            allowed = mask[:, :-1] | ~some[:, None]
        act = self.policy.act(params.policy, observation, mask=allowed, carry=carry)
        if self.sampled:
            own = self.policy.distribution(params.policy, observation, allowed, carry).probabilities()
        else:
            own = jax.nn.one_hot(act.action, self.actions)
        follows = jnp.where(some, self.share * jnp.ones(len(own)), 0.0)
        if self.practice is not None:
            seen = {name: leaf * params.scale[name] + params.shift[name] if name in params.scale else leaf
                    for name, leaf in observation.items()}  # fmt: skip
            usual = self.practice.distribution(params.practice, seen, allowed).probabilities()
            ratio = jnp.max(own / jnp.maximum(usual, LEAST_CHANCE), axis=-1)
            follows = jnp.where(ratio <= self.largest_ratio, follows, 0.0)
        chances = jnp.concatenate([follows[:, None] * own, 1.0 - follows[:, None]], axis=-1)
        return Categorical(jnp.log(chances)), act.carry

    def recipe(self, params: PartParams) -> dict[str, Any]:
        """Return the computation as plain nodes."""
        whole = self.policy.recipe(params.policy)
        rescaled = [{"kind": "affine", "name": name, "scale": params.scale[name], "shift": params.shift[name]}
                    for name in params.scale]  # fmt: skip
        act = {
            "kind": "part",
            "policy": whole["act"],
            "practice": None if self.practice is None else self.practice.recipe(params.practice)["act"],
            "rescaled": rescaled,
            "largest_ratio": float(self.largest_ratio),
            "share": float(self.share),
            "sampled": self.sampled,
        }
        return recipe.whole(act, None, whole["carry"])
