"""A policy in an environment that counts its words differently: names decide, positions only where there are none.

A log that came as a table has its actions and categories in the order of its words, an environment in its own order.
What both name is matched by name; what cannot be matched is a SpecError. Letters: `W` copies, `A` actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import SpecError
from tidelog.policies.policy import Policy
from tidelog.runtime.memory import Memory
from tidelog.types import Codes, Continuous, Discrete, Image, Leaf, MultiDiscrete, Spec, Vector

Translation = Callable[[NDArray[Any]], NDArray[Any]]


class Aligned:
    """A policy that sees and acts in the words of another spec, an environment's."""

    def __init__(self, policy: Policy, spec: Spec, name: str = "the environment") -> None:
        self._policy = policy
        self._memory: Memory | None = None
        self._leaves = leaf_translations(policy.spec, spec, name)
        self._to_policy, self._to_world = action_orders(policy.spec, spec, name)

    @property
    def order(self) -> NDArray[np.int64] | None:
        """The policy's index of each of the environment's actions; None where they are the same."""
        return self._to_policy

    def translated(
        self, leaves: dict[str, NDArray[Any]], mask: NDArray[np.bool_] | None
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_] | None]:
        """The environment's leaves [W, ...] and mask [W, A] as the policy expects them."""
        return self._seen(leaves), self._mask(mask)

    def begin(self, first: NDArray[np.bool_]) -> None:
        """Forget what is remembered in copies whose episode begins, `first` [W]; nothing without a memory."""
        if self._policy.is_recurrent:
            if self._memory is None or len(self._memory.carry) != len(first):
                self._memory = self._policy.start(len(first))
            self._memory.forget(first)

    def act(self, leaves: dict[str, NDArray[Any]], mask: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """Deterministic actions [W, ...] in the environment's order, for its leaves [W, ...] and mask [W, A]."""
        return self._world(self._policy(self._seen(leaves), self._mask(mask), self._memory))

    def sample(
        self, leaves: dict[str, NDArray[Any]], mask: NDArray[np.bool_] | None, seed: int
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Random actions [W, ...] in the environment's order, and their propensities [W]."""
        action, propensity = self._policy.sample_with_propensity(
            self._seen(leaves), seed, self._mask(mask), self._memory
        )
        return self._world(action), propensity

    def probabilities(self, leaves: dict[str, NDArray[Any]], mask: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """Probabilities [W, A] in the environment's order."""
        found = self._policy.probabilities(self._seen(leaves), self._mask(mask), self._memory)
        return found if self._to_policy is None else found[:, self._to_policy]

    def _seen(self, leaves: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {name: translate(leaves[name]) for name, translate in self._leaves.items()}

    def _mask(self, mask: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        return mask if mask is None or self._to_world is None else mask[:, self._to_world]

    def _world(self, action: NDArray[Any]) -> NDArray[Any]:
        return action if self._to_world is None else self._to_world[action]


def leaf_translations(ours: Spec, theirs: Spec, name: str) -> dict[str, Translation]:
    """How each leaf [..., width] as `theirs` shows it becomes what `ours` expects; SpecError where it cannot."""
    if set(ours.observation) != set(theirs.observation):
        raise SpecError(
            f"{name} shows {sorted(theirs.observation)}, the policy was trained to see {sorted(ours.observation)}"
        )
    return {
        leaf: _translation(leaf, ours.observation[leaf], theirs.observation[leaf], name) for leaf in ours.observation
    }


def _translation(leaf: str, ours: Leaf, theirs: Leaf, name: str) -> Translation:
    width, found = _width(ours), _width(theirs)
    if type(ours) is not type(theirs) or width != found:
        raise SpecError(
            f"'{leaf}' is {type(theirs).__name__} of width {found} in {name}, the policy was trained on "
            f"{type(ours).__name__} of width {width}"
        )
    if isinstance(ours, Image) or isinstance(theirs, Image):
        return lambda values: values
    order = _order(ours.names, theirs.names, f"features of '{leaf}'", name)
    if isinstance(ours, Codes) and isinstance(theirs, Codes):
        codes = range(len(ours.sizes))
        tables = [_codes(leaf, ours, theirs, i, i if order is None else int(order[i]), name) for i in codes]
        return lambda values: _recoded(values, order, tables)
    return (lambda values: values) if order is None else (lambda values: values[..., order])


def _width(leaf: Leaf) -> int | tuple[int, int, int]:
    if isinstance(leaf, Image):
        return leaf.height, leaf.width, leaf.channels
    return leaf.size if isinstance(leaf, Vector) else len(leaf.sizes)


def _order(ours: Sequence[str], theirs: Sequence[str], what: str, name: str) -> NDArray[np.int64] | None:
    """Where each of our names stands among theirs, or None where one side has none or both agree."""
    if not ours or not theirs or tuple(ours) == tuple(theirs):
        return None
    if set(ours) != set(theirs):
        odd = sorted(set(ours).symmetric_difference(theirs))
        raise SpecError(f"{what}: {', '.join(odd[:5])} known on one side only, of the policy and of {name}")
    return np.asarray([list(theirs).index(one) for one in ours])


def _codes(leaf: str, ours: Codes, theirs: Codes, here: int, there: int, name: str) -> NDArray[np.int32] | None:
    """The policy's code for each of the environment's codes of one column; None where they are the same."""
    if not ours.vocabularies or not theirs.vocabularies:
        if theirs.sizes[there] > ours.sizes[here]:
            raise SpecError(
                f"'{leaf}' takes {theirs.sizes[there]} codes in {name}, the policy was trained on {ours.sizes[here]}"
            )
        return None
    known = {word: code for code, word in enumerate(ours.vocabularies[here])}
    lacking = [word for word in theirs.vocabularies[there] if word not in known]
    if lacking:
        raise SpecError(f"'{leaf}' can be {lacking[0]!r} in {name}, a word that the policy's log never had")
    return np.asarray([known[word] for word in theirs.vocabularies[there]], np.int32)


def _recoded(
    values: NDArray[Any], order: NDArray[np.int64] | None, tables: list[NDArray[np.int32] | None]
) -> NDArray[Any]:
    columns = values if order is None else values[..., order]
    parts = [columns[..., i] if table is None else table[columns[..., i]] for i, table in enumerate(tables)]
    return np.stack(parts, axis=-1)


def action_orders(ours: Spec, theirs: Spec, name: str) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """The policy's index of each of the environment's actions, and the reverse; None where they are the same."""
    mine, yours = ours.action, theirs.action
    if isinstance(mine, Discrete) and isinstance(yours, Discrete) and mine.n == yours.n:
        to_world = _order(mine.names, yours.names, "actions", name)
        return (None, None) if to_world is None else (np.argsort(to_world), to_world)
    if isinstance(mine, Continuous) and isinstance(yours, Continuous) and mine.size == yours.size:
        if np.any(np.less(mine.low, yours.low)) or np.any(np.greater(mine.high, yours.high)):
            raise SpecError(
                f"the log's action bounds {mine.low} to {mine.high} reach beyond those of {name}, {yours.low} to "
                f"{yours.high}: declare the bounds when the log is read"
            )
        return None, None
    if isinstance(mine, MultiDiscrete) and mine == yours:
        return None, None
    raise SpecError(f"{name} takes {yours}, the policy acts with {mine}")
