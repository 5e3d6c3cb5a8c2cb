"""Rollouts of a policy in an environment: returns, and logs for learning.

Letters: `W` copies, `A` number of actions or action size, `N` decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.data.export import declared_space
from tidelog.data.log import Log
from tidelog.envs.protocol import Actor, BatchObservation, Environment, Episodes, play
from tidelog.envs.registry import make
from tidelog.errors import SpecError
from tidelog.policies.policy import Policy
from tidelog.runtime.policy import RecurrentState, as_rows
from tidelog.runtime.way_of_acting import in_way, way_of
from tidelog.types import (
    Codes,
    Continuous,
    Discrete,
    Hybrid,
    Image,
    Leaf,
    MultiDiscrete,
    Spec,
    Vector,
    has_densities,
    same_choices,
)

# Mapping between a policy and an environment with another order of actions or categories: by name where names exist.
#
# A log from a table orders its actions and categories as in the table, an environment has its own order. Values with
# names on both sides are matched by name; a value without a match is a SpecError. Letters: `W` copies, `A` actions.

Translation = Callable[[NDArray[Any]], NDArray[Any]]


class MappedPolicy:
    """A policy with the observations and actions of another spec, an environment's."""

    def __init__(self, policy: Policy, spec: Spec, name: str = "the environment") -> None:
        self._policy = policy
        self._state: RecurrentState | None = None
        self._pairs = leaf_pairs(policy.spec, spec)
        paired = {ours: spec.observation[theirs] for ours, theirs in self._pairs.items()}
        self._leaves = leaf_translations(policy.spec, replace(spec, observation=paired) if paired else spec, name)
        self._to_policy, self._to_world = action_orders(policy.spec, spec, name)

    def begin(self, first: NDArray[np.bool_]) -> None:
        """Reset the recurrent state of copies whose episode begins, `first` [W]; no effect without recurrence."""
        if self._policy.is_recurrent:
            if self._state is None or len(self._state.carry) != len(first):
                self._state = self._policy.initial_state(len(first))
            self._state.forget(first)

    def act(self, leaves: dict[str, NDArray[Any]], mask: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """Return the most likely actions [W, ...] in the environment's order, for its leaves and mask [W, A]."""
        action, _ = self._policy.act(self._seen(leaves), None, self._mask(mask), self._state)
        return self._world(as_rows(self._policy.spec.action, action))

    def sample(
        self, leaves: dict[str, NDArray[Any]], mask: NDArray[np.bool_] | None, seed: int
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return random actions [W, ...] in the environment's order, and their propensities [W]."""
        action, propensity = self._policy.act(self._seen(leaves), seed, self._mask(mask), self._state)
        return self._world(as_rows(self._policy.spec.action, action)), propensity

    def probabilities(self, leaves: dict[str, NDArray[Any]], mask: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """Return probabilities [W, A] in the environment's order."""
        probabilities = self._policy.probabilities(self._seen(leaves), self._mask(mask), self._state)
        return probabilities if self._to_policy is None else probabilities[:, self._to_policy]

    def _seen(self, leaves: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {name: translate(leaves[self._pairs[name]]) for name, translate in self._leaves.items()}

    def _mask(self, mask: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        return mask if mask is None or self._to_world is None else mask[:, self._to_world]

    def _world(self, action: NDArray[Any]) -> NDArray[Any]:
        return action if self._to_world is None else self._to_world[action]


def leaf_pairs(ours: Spec, theirs: Spec) -> dict[str, str]:
    """Return the leaf of `theirs` for each leaf of `ours`, by name; {} if they differ.

    Specs with one leaf each are a pair where one is of a table ("numeric") and the other of arrays ("observation"), if
    both leaves have one type and width. Without names on both sides, their features are in the same order.
    """
    if set(ours.observation) == set(theirs.observation):
        return {name: name for name in ours.observation}
    if len(ours.observation) != 1 or len(theirs.observation) != 1:
        return {}
    (our_name, one), (their_name, other) = *ours.observation.items(), *theirs.observation.items()
    alike = type(one) is type(other) and not isinstance(one, Image) and _width(one) == _width(other)
    return {our_name: their_name} if alike else {}


def leaf_translations(ours: Spec, theirs: Spec, name: str) -> dict[str, Translation]:
    """Return functions from each leaf [..., width] of `theirs` to that of `ours`; SpecError without a mapping."""
    if set(ours.observation) != set(theirs.observation):
        raise SpecError(
            f"{name} has the observations {sorted(theirs.observation)}, the policy expects {sorted(ours.observation)}",
            fix="use the policy's environment",
        )
    return {
        leaf: _translation(leaf, ours.observation[leaf], theirs.observation[leaf], name) for leaf in ours.observation
    }


def _translation(leaf: str, ours: Leaf, theirs: Leaf, name: str) -> Translation:
    width, their_width = _width(ours), _width(theirs)
    if type(ours) is not type(theirs) or width != their_width:
        raise SpecError(
            f"'{leaf}' is {type(theirs).__name__} of width {their_width} in {name}",
            f"{type(ours).__name__} of width {width} of the policy",
            "use its environment",
        )
    if isinstance(ours, Image) or isinstance(theirs, Image):
        return lambda values: values
    order = _order(ours.names, theirs.names, f"features of '{leaf}'", name)
    if isinstance(ours, Codes) and isinstance(theirs, Codes):
        codes = range(len(ours.sizes))
        tables = [_codes(leaf, ours, theirs, i, i if order is None else int(order[i]), name) for i in codes]

        def recode(values: NDArray[Any]) -> NDArray[Any]:
            columns = values if order is None else values[..., order]
            parts = [columns[..., i] if table is None else table[columns[..., i]] for i, table in enumerate(tables)]
            return np.stack(parts, axis=-1)

        return recode
    return (lambda values: values) if order is None else (lambda values: values[..., order])


def _width(leaf: Leaf) -> int | tuple[int, int, int]:
    if isinstance(leaf, Image):
        return leaf.height, leaf.width, leaf.channels
    return leaf.size if isinstance(leaf, Vector) else len(leaf.sizes)


def _order(ours: Sequence[str], theirs: Sequence[str], what: str, name: str) -> NDArray[np.int64] | None:
    """Return the position of each of our names among theirs, or None where one side has none or both are equal."""
    if not ours or not theirs or tuple(ours) == tuple(theirs):
        return None
    if set(ours) != set(theirs):
        unmatched = sorted(set(ours).symmetric_difference(theirs))
        raise SpecError(f"{what}: only the policy or only {name} has {', '.join(unmatched[:5])}", fix="use equal names")
    return np.asarray([list(theirs).index(one) for one in ours], np.int64)


def _codes(leaf: str, ours: Codes, theirs: Codes, here: int, there: int, name: str) -> NDArray[np.int32] | None:
    """Return the policy's code for each of the environment's codes of one column; None for equal codes."""
    if not ours.vocabularies or not theirs.vocabularies:
        if theirs.sizes[there] > ours.sizes[here]:
            raise SpecError(
                f"'{leaf}' has {theirs.sizes[there]} codes in {name}, the policy {ours.sizes[here]}", fix="train on all"
            )
        return None
    known = {word: code for code, word in enumerate(ours.vocabularies[here])}
    missing = [word for word in theirs.vocabularies[there] if word not in known]
    if missing:
        column = ours.names[here] if ours.names else leaf
        raise SpecError(
            f"'{column}' can be {missing[0]!r} in {name}, but the policy's log has no such value",
            fix="list all its values in `vocabularies` of the mapping and train again",
        )
    return np.asarray([known[word] for word in theirs.vocabularies[there]], np.int32)


def action_orders(ours: Spec, theirs: Spec, name: str) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Return the policy's index of each of the environment's actions, and the reverse; None for equal orders."""
    mine, yours = ours.action, theirs.action
    if isinstance(mine, Discrete) and isinstance(yours, Discrete) and mine.n == yours.n:
        to_world = _order(mine.names, yours.names, "actions", name)
        return (None, None) if to_world is None else (np.argsort(to_world), to_world)
    if isinstance(mine, Continuous) and isinstance(yours, Continuous) and mine.size == yours.size:
        if np.any(np.less(mine.low, yours.low)) or np.any(np.greater(mine.high, yours.high)):
            raise SpecError(
                f"the log's action bounds {mine.low} to {mine.high} exceed the bounds of {name}, {yours.low} "
                f"to {yours.high}",
                fix="set the bounds when you read the log",
            )
        return None, None
    if isinstance(mine, MultiDiscrete) and mine == yours:
        return None, None
    if isinstance(mine, Hybrid) and isinstance(yours, Hybrid) and same_choices(mine, yours):
        for (part, own), (_, other) in zip(mine.parts, yours.parts, strict=True):
            if isinstance(own, Continuous):
                action_orders(replace(ours, action=own), replace(theirs, action=other), f"part '{part}' of {name}")
        return None, None
    raise SpecError(
        f"{name} has the actions {yours}, the policy {mine}", fix="use an environment with the policy's actions"
    )


COPIES = 16  # environments stepped together


def rollout(
    policy: Policy,
    env: Any,
    episodes: int = 50,
    seed: int = 0,
    *,
    sample: bool | None = None,
    num_envs: int | None = None,
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
    environment = make(env, num_envs or min(episodes, COPIES))
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
    num_envs: int | None = None,
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
    environment = make(env, num_envs or min(episodes or COPIES, COPIES))
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
    columns = played.columns()
    if isinstance(spec.action, Hybrid):
        columns["action"] = spec.action.unpack(columns["action"])
    log = Log.from_arrays(**columns, **declared_space(spec.action), elapsed_unit=spec.elapsed_unit)
    return replace(log, spec=replace(spec, masked=log.spec.masked, elapsed_unit=None))


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
        always = isinstance(space := policy.spec.action, Discrete | MultiDiscrete) or not has_densities(space)
        return action, np.ones(len(action)) if always else None

    return act


def uniform_actor(spec: Spec) -> Actor:
    """Return an actor with uniform allowed actions; uniform between the bounds for continuous numbers."""
    space = spec.action
    if isinstance(space, Continuous):
        low, high = np.asarray(space.low), np.asarray(space.high)
        density = float(np.prod(1.0 / np.where(high > low, high - low, 1.0)))
        return lambda observed, generator: (
            generator.uniform(low, high, (_copies(observed), space.size)).astype(np.float32),
            np.full(_copies(observed), density),
        )
    if not isinstance(space, Discrete):
        spaces = [part for _, part in space.parts] if isinstance(space, Hybrid) else [Discrete(n) for n in space.sizes]
        each = [uniform_actor(Spec(spec.observation, part)) for part in spaces]

        def act_in_parts(observed: BatchObservation, generator: np.random.Generator) -> tuple[Any, NDArray[Any]]:
            drawn = [one(observed._replace(action_mask=None), generator) for one in each]
            columns = [action.reshape(len(action), -1) for action, _ in drawn]
            chances = np.prod(np.stack([np.asarray(chance) for _, chance in drawn]), axis=0)
            return np.concatenate(columns, axis=1), chances

        return act_in_parts

    def act(observed: BatchObservation, generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        allowed = (
            observed.action_mask if observed.action_mask is not None else np.ones((_copies(observed), space.n), bool)
        )
        ranks = np.where(allowed, generator.random(allowed.shape), -1.0)
        return ranks.argmax(axis=1).astype(np.int32), 1.0 / allowed.sum(axis=1)

    return act


def _copies(observed: BatchObservation) -> int:
    return len(next(iter(observed.observation.values())))
